"""Corners of ONNX that its own tests leave out, beside its reference and ONNX Runtime: values that
are constants, types that tensors lack, axes without elements, graphs in functions, broken nodes."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

from tinygrad import Tensor
from tinygrad.base.errors import TinygradError
from tinygrad.formats.onnx import OnnxRunner

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RANDOM.standard_normal((1, 2, 7, 6)).astype(np.float32)
TEXT = np.array(["a", "b", "c"], object)


def ints(*numbers):
    return np.array(numbers, np.int64)


def node_model(operator, inputs, outputs=1, opset=21, constant=False, domain="", **attributes):
    """A model of one node; its inputs are the graph's, or constants."""
    names = ["" if x is None else f"i{place}" for place, x in enumerate(inputs)]
    made = [f"o{place}" for place in range(outputs)]
    node = helper.make_node(operator, names, made, domain=domain, **attributes)
    given = {name: np.asarray(x) for name, x in zip(names, inputs, strict=True) if name}
    kinds = {name: kind_of(x) for name, x in given.items()}
    values = [helper.make_tensor_value_info(n, kinds[n], x.shape) for n, x in given.items()]
    results = [onnx.ValueInfoProto(name=name) for name in made]
    protos = [numpy_helper.from_array(x, name) for name, x in given.items()]
    parts = ([], results, protos) if constant else (values, results)
    graph = helper.make_graph([node], "g", *parts)
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return model, {} if constant else given


def kind_of(x):
    return 8 if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)


def plain(value):
    return value.numpy() if isinstance(value, Tensor) else value


def check(model, inputs, by):
    """All outputs are those of `by`: onnx's reference, or ONNX Runtime."""
    if by == "onnx":
        wanted = ReferenceEvaluator(model).run(None, inputs)
    else:
        typed = onnx.shape_inference.infer_shapes(model).SerializeToString()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        wanted = onnxruntime.InferenceSession(typed, options).run(None, inputs)
    found = [plain(value) for value in OnnxRunner(model)(inputs).values()]
    for one, other in zip(found, wanted, strict=True):
        other = np.asarray(other)
        other = other.astype(object) if other.dtype.kind == "U" else other
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype == object:
            assert one.tolist() == other.tolist()
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def attributes(**given):
    return given


# (operator, inputs, attributes; `outputs` and `opset` among them)
NODES = [
    ("Compress", (X, np.array([False, False])), attributes(axis=1)),
    ("Compress", (X, np.array([False])), attributes(axis=-2)),
    ("Split", (X, None), attributes(axis=1, outputs=3, opset=13)),
    ("Split", (X,), attributes(axis=1, outputs=3, opset=11)),
    ("Split", (X, None), attributes(axis=2, num_outputs=5, outputs=5)),
    ("Flatten", (X[:, :0],), attributes(axis=-1)),
    ("Flatten", (X[:, :0],), attributes(axis=3)),
    ("Tile", (np.float32(3), ints()), {}),
    ("Hardmax", (X[:, :0],), attributes(axis=1)),
    ("Pad", (X, ints(0, 1, 2, 0, 2, 1), np.float32(1)), attributes(mode="reflect")),
    ("Pad", (X, ints(0, 1, 2, 0, 2, 1), np.float32(1)), attributes(mode="edge")),
    ("LpPool", (IMAGE,), attributes(
        kernel_shape=[3, 2], ceil_mode=1, strides=[3, 3], pads=[1, 1, 1, 1], p=1, opset=18)),
    ("LpPool", (IMAGE,), attributes(kernel_shape=[3, 2], ceil_mode=1, strides=[2, 2], opset=18)),
    ("LpPool", (IMAGE,), attributes(kernel_shape=[2, 2], strides=[4, 3], p=3, opset=18)),
    ("MaxRoiPool", (IMAGE, np.array([[0, 1, 1, 6, 6]], np.float32)), attributes(
        pooled_shape=[3, 2], spatial_scale=0.5)),
    ("Div", (ints(-(1 << 60), 1 << 62, -7, 7), ints(7, -3, 2, -2)), {}),
    ("Cast", (np.array(["9007199254740993", "-9223372036854775808"], object),),
     attributes(to=7)),
    ("Tile", (TEXT, ints(2)), {}),
    ("GatherND", (TEXT, ints(1).reshape(1, 1)), {}),
    ("GatherElements", (TEXT, ints(1, 0)), {}),
    ("Expand", (TEXT, ints(2, 3)), {}),
    ("Where", (np.array([True, False, True]), TEXT, TEXT[::-1].copy()), {}),
    ("OneHot", (ints(1, 0), np.int64(3), TEXT[:2]), {}),
    ("ScatterElements", (TEXT, ints(0), TEXT[2:]), {}),
    ("ScatterND", (TEXT, ints(1).reshape(1, 1), TEXT[2:]), {}),
    ("Concat", (TEXT, TEXT[:1]), attributes(axis=0)),
    ("Transpose", (TEXT.reshape(1, 3),), {}),
    ("Slice", (TEXT, ints(2), ints(-4), ints(0), ints(-2)), {}),
]  # fmt: skip
OF_RUNTIME = {
    "MaxRoiPool",
    "Flatten",
    "Relu",
    "Elu",
    "OneHot",
    "LpPool",
    "Split",
    "Hardmax",
    "Tile",
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    "operator, inputs, given", NODES, ids=[f"{i}-{row[0]}" for i, row in enumerate(NODES)]
)
def test_a_node(operator, inputs, given, constant):
    model, values = node_model(operator, inputs, constant=constant, **given)
    check(model, values, "onnxruntime" if operator in OF_RUNTIME else "onnx")


def test_numbers_as_text_are_short():
    numbers = np.array([0.1, 1 / 3, 1e10, 65520], np.float32)
    check(*node_model("Cast", (numbers,), to=8), "onnx")


def test_an_attribute_of_the_first_versions_has_no_effect():
    model, inputs = node_model("Elu", (X,), opset=1, consumed_inputs=[0], alpha=0.5)
    later, _ = node_model("Elu", (X,), opset=6, alpha=0.5)
    found, wanted = (OnnxRunner(each)(inputs)["o0"].numpy() for each in (model, later))
    np.testing.assert_array_equal(found, wanted)


ROWS = X[0]
COLUMNS = [
    ("Scaler", (ROWS,), attributes(offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 3.0, 4.0])),
    ("Scaler", (ints(1, 9).reshape(1, 2),), attributes(offset=[1.0], scale=[2.0])),
    ("Normalizer", (ROWS * [[1], [0], [2]],), attributes(norm="L1")),
    ("Normalizer", (ROWS * [[1], [0], [2]],), attributes(norm="L2")),
    ("Imputer", (np.float32([[1, np.nan, 3]]),), attributes(
        imputed_value_floats=[9.0], replaced_value_float=float("nan"))),
    ("Imputer", (np.float32([[1, 0, 3]]),), attributes(
        imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=0.0)),
    ("Imputer", (ints(1, 0, 3).reshape(1, 3),), attributes(
        imputed_value_int64s=[7], replaced_value_int64=0)),
    ("FeatureVectorizer", (ROWS, ROWS[:, :2]), attributes(inputdimensions=[4, 2])),
    ("LinearRegressor", (ROWS,), attributes(
        coefficients=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], intercepts=[1.0, 2.0], targets=2)),
]  # fmt: skip


@pytest.mark.parametrize("operator, inputs, given", COLUMNS)
def test_columns(operator, inputs, given):
    kept = [x.astype(np.float32) if x.dtype == np.float64 else x for x in inputs]
    check(*node_model(operator, kept, opset=15, domain="ai.onnx.ml", **given), "onnxruntime")


@pytest.mark.parametrize(
    "operator, given, message",
    [
        ("Normalizer", attributes(norm="MAX"), "norm 'MAX'; legal are L1, L2"),
        ("LinearRegressor", attributes(coefficients=[1.0] * 4, post_transform="LOGISTIC"),
         "post_transform 'LOGISTIC'; legal is 'NONE'"),
        ("Imputer", {}, "none of imputed_value_floats"),
        ("LabelEncoder", attributes(keys_int64s=[1, 2], values_int64s=[3]), "shorter"),
    ],
)  # fmt: skip
def test_columns_that_are_refused(operator, given, message):
    model, values = node_model(operator, (ROWS,), opset=15, domain="ai.onnx.ml", **given)
    with pytest.raises(TinygradError, match=message):
        OnnxRunner(model)(values)


# ---- graphs in nodes -----------------------------------------------------------------------------

LOOP = """y, ys = Loop (n, , x) <body = b (int64 i, bool more, float[2] s)
  => (bool again, float[2] next, int64[1, 2] seen) {
    next = Add (s, x) one = Cast <to = 7> (next) seen = Reshape (one, shape)
    again = Identity (more) }>"""
SCAN = """shape = Constant <value_ints = [2]> () y, ys = Scan
  <num_scan_inputs = 1, scan_output_axes = [-1],
   body = b (float[2] s, float[2] row) => (float[2] next, int64[2] seen) {
    next = Add (s, row) seen = Cast <to = 7> (next) }> (x, rows)"""
IF = """<domain: "own", opset_import: ["": 11]> f <slope: float = 3.0> (a, c) => (b) {
  b = If (c) <then_branch = t () => (float[2, 2] q) { w = LeakyRelu <alpha: float = @slope> (a)
  q = Softmax <axis = 0> (w) }, else_branch = e () => (float[2, 2] r) { r = Neg (a) }> }"""


def text_model(body, signature, functions=""):
    head = '<ir_version: 10, opset_import: ["": 21, "own": 1]>'
    return parse_model(f"{head} f {signature} {{ {body} }} {functions}")


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_loop_of_no_turn_has_the_shape_and_type_of_its_results(turns):
    shape = "shape = Constant <value_ints = [1, 2]> ()"
    model = text_model(shape + LOOP, "(int64 n, float[2] x) => (float[2] y, int64[N, 1, 2] ys)")
    check(model, {"n": np.array(turns), "x": np.float32([1.5, 2])}, "onnxruntime")


def test_a_scan_of_no_row_has_the_shape_and_type_of_its_results():
    model = text_model(SCAN, "(float[2] x, float[N, 2] rows) => (float[2] y, int64[2, N] ys)")
    inputs = {"x": np.float32([1, 2]), "rows": np.zeros((0, 2), np.float32)}
    y, ys = OnnxRunner(model)(inputs).values()
    assert y.tolist() == [1, 2] and (ys.shape, ys.dtype.name) == ((2, 0), "long")


def test_a_graph_in_a_function_has_its_attributes_and_operator_sets():
    """An alpha of 3, and a softmax of all elements, as it was in operator set 11."""
    signature = "(float[2, 2] x, bool c) => (float[2, 2] y)"
    model = text_model("y = own.f (x, c)", signature, IF)
    x = np.float32([[-0.5, 0.25], [0.5, -1.0]])
    powers = np.exp(np.where(x < 0, 3 * x, x))
    found = OnnxRunner(model)({"x": x, "c": np.array(True)})["y"].numpy()
    np.testing.assert_allclose(found, powers / powers.sum(), rtol=1e-6)


def test_one_value_may_be_two_outputs():
    model = text_model("y = Neg (x)", "(float[2] x) => (float[2] y, float[2] y)")
    assert OnnxRunner(model)({"x": np.float32([1, 2])})["y"].tolist() == [-1, -2]


# ---- broken nodes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operator, inputs, given, message",
    [
        ("ScatterND", (X, ints(0, 5, 0).reshape(1, 3), np.ones(1, np.float32)), {}, "index 5 .*2"),
        ("Squeeze", (X[:1], ints(3)), {}, "axis 3 of a tensor with 3"),
        ("Unsqueeze", (X, ints(0, 0)), {}, r"axes \[0, 0\]; legal are different"),
        ("Unsqueeze", (X, ints(4)), {}, "axis 4 of a tensor with 4"),
        ("Gather", (X, ints(0)), attributes(axis=5), "axis 5"),
        ("Slice", (X, ints(0), ints(1), ints(7)), {}, "axis 7 of a tensor with 3"),
        ("Flatten", (X,), attributes(axis=4), "axis 4 of shape"),
        ("ReduceSum", (X, ints(3)), {}, "axis 3 of a tensor with 3"),
        ("Split", (X, ints(1, 1)), attributes(axis=2, outputs=2), r"\[1, 1\] of an axis of size 4"),
        ("Cast", (np.array(["300"], object),), attributes(to=2), "out of bounds"),
        ("BatchNormalization", (IMAGE, *np.ones((4, 2), np.float32)),
         attributes(spatial=0, opset=7), "spatial 0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("constant", [False, True])
def test_a_broken_node_is_refused(operator, inputs, given, message, constant):
    model, values = node_model(operator, inputs, constant=constant, **given)
    with pytest.raises(TinygradError, match=message):
        plain(next(iter(OnnxRunner(model)(values).values())))


def test_a_place_outside_of_a_sequence_is_refused():
    body = "s = SequenceConstruct (x) t = SequenceInsert (s, x, at)"
    model = text_model(body, "(float[2] x, int64 at) => (seq(float[2]) t)")
    with pytest.raises(TinygradError, match="place 2 of a sequence of 1"):
        OnnxRunner(model)({"x": np.float32([1, 2]), "at": np.int64(2)})
