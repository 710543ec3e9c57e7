"""ONNX models: the standard's own tests, and what holds for every model."""

import numpy as np
import onnx
import pytest
from formats import onnx_cases
from formats.mutants import mutants, survives
from hypothesis import given, settings
from mapped import is_mapped
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

from tinygrad import GlobalCounters, Tensor
from tinygrad.base.errors import ArgumentError, DTypeError, FileError, JitError, ShapeError
from tinygrad.formats.onnx import OnnxRunner
from tinygrad.formats.onnx.tables import TABLES

PARTS = 40
SLOW = pytest.mark.slow


def test_few_cases_are_excluded():
    assert len(onnx_cases.EXCLUDED) <= 20


@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=SLOW) for i in range(1, PARTS))])
def test_nodes(part):
    found = onnx_cases.cases("node")
    assert len(found) >= 1500
    assert onnx_cases.failures(found[part::PARTS]) == []


@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=SLOW) for i in range(1, PARTS))])
def test_nodes_of_constants(part):
    """The same inputs, where the host knows them before anything runs."""
    found = onnx_cases.cases("node")
    assert onnx_cases.failures(found[part::PARTS], constant=True) == []


@pytest.mark.parametrize(
    "kind", ["simple", "pytorch-operator", pytest.param("pytorch-converted", marks=SLOW)]
)
def test_small_models(kind):
    assert onnx_cases.failures(onnx_cases.cases(kind)) == []


NETWORKS = (
    "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 "
    "zfnet512"
)


@SLOW
@pytest.mark.parametrize("name", NETWORKS.split())
def test_light_models(name):
    model, inputs, wanted = onnx_cases.light_model(name)
    (found,) = OnnxRunner(model)(inputs).values()
    onnx_cases.same(found, wanted, 1e-3, 1e-7)


def test_every_row_is_an_operator_of_the_standard():
    known = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    assert {(domain, name) for domain, table in TABLES.items() for name in table} <= known


# ---- running -------------------------------------------------------------------------------------


def model_of(body, signature="(float[N, 4] x) => (float[M, K] y)", opset=21, functions=""):
    head = f'<ir_version: 10, opset_import: ["": {opset}, "own": 1]>'
    return parse_model(f"{head} f {signature} {{ {body} }} {functions}")


MLP = """
  w = Constant <value = float[4, 2] {1, 2, 3, 4, 5, 6, 7, 8}> ()
  size = Shape (x)
  rows = Gather <axis = 0> (size, zero)
  one = Unsqueeze (rows, zeros)
  goal = Concat <axis = 0> (one, minus)
  flat = Reshape (x, goal)
  h = MatMul (flat, w)
  y = Relu (h)
"""
CONSTANTS = """
  zero = Constant <value = int64 {0}> ()
  zeros = Constant <value = int64[1] {0}> ()
  minus = Constant <value = int64[1] {-1}> ()
"""


def test_inputs_may_be_tensors_arrays_or_lists():
    run = OnnxRunner(model_of(CONSTANTS + MLP))
    rows = [[1.0, -2.0, 3.0, 0.0]]
    for x in (rows, np.array(rows, np.float32), Tensor(rows)):
        assert run({"x": x})["y"].tolist() == [[10, 12]]
    assert list(run.graph_inputs) == ["x"] and list(run.graph_outputs) == ["y"]


def test_shape_arithmetic_makes_no_kernels():
    run = OnnxRunner(model_of(CONSTANTS + MLP))
    x = Tensor.ones(3, 4).contiguous().realize()
    run({"x": x})["y"].realize()
    GlobalCounters.reset()
    run({"x": x})["y"].realize()
    assert GlobalCounters.kernel_count == 1


def test_a_model_is_captured_as_one_step():
    step = OnnxRunner(model_of(CONSTANTS + MLP)).captured()
    for value in range(4):
        x = Tensor.full((3, 4), float(value)).contiguous().realize()
        assert step(x).tolist() == [[value * 16.0, value * 20.0]] * 3
    assert step.captured is not None and len(step.jit_cache) == 1


def test_random_numbers_are_fresh_in_a_captured_step():
    step = OnnxRunner(model_of("r = RandomNormalLike (x) y = Add (r, x)")).captured()
    x = Tensor.ones(2, 4).contiguous().realize()
    assert len({step(x).sum().item() for _ in range(5)}) == 5
    seeded = OnnxRunner(model_of("y = RandomUniformLike <seed = 3.0> (x)"))
    assert seeded({"x": x})["y"].tolist() == seeded({"x": x})["y"].tolist()


def test_gradients_go_through_a_model():
    x = Tensor([[1.0, 2.0, 3.0, 4.0]], requires_grad=True)
    OnnxRunner(model_of(CONSTANTS + MLP))({"x": x})["y"].sum().backward()
    assert x.grad.tolist() == [[3, 7, 11, 15]]


def test_a_function_of_the_models_own():
    own = '<domain: "own", opset_import: ["": 21]> twice <k> (a) => (b) { '
    own += "c = Constant <value_float: float = @k> () b = Mul (a, c) }"
    run = OnnxRunner(model_of("y = own.twice <k = 3.0> (x)", functions=own))
    assert run({"x": [[1.0, 2.0, 3.0, 4.0]]})["y"].tolist() == [[3, 6, 9, 12]]


def test_a_host_value_in_a_captured_step_is_refused():
    body = "z = Constant <value = int64[1] {0}> () k = ReduceSum <keepdims = 0> (x)"
    body += "n = Cast <to = 7> (k) m = Unsqueeze (n, z) y = Expand (x, m)"
    run = OnnxRunner(model_of(body)).captured()
    x = Tensor.ones(1, 4).contiguous().realize()
    assert run(x).shape == (1, 4)
    with pytest.raises(JitError, match="onnx Expand: it needs a value on the host"):
        run(x)


def test_strings_and_sequences_are_values():
    body = "s = StringConcat (a, b) x = SequenceConstruct (s, a)"
    run = OnnxRunner(model_of(body, "(string[2] a, string[2] b) => (seq(string[2]) x)"))
    (found,) = run({"a": ["u", "v"], "b": ["1", "2"]}).values()
    assert [item.tolist() for item in found] == [["u1", "v2"], ["u", "v"]]


@pytest.mark.parametrize(
    "inputs, error, message",
    [
        ({}, ArgumentError, "inputs none; legal are x"),
        ({"x": [[0.0] * 4], "z": 1}, ArgumentError, "inputs x, z; legal are x"),
        ({"x": [[0.0] * 3]}, ArgumentError, r"'x' has shape \(1, 3\); legal is \('N', 4\)"),
        ({"x": Tensor([[1, 2, 3, 4]])}, DTypeError, "'x' is dtypes.int; legal is dtypes.float"),
        ({"x": np.zeros((1, 4))}, DTypeError, "'x' is float64; legal is float32"),
    ],
)
def test_wrong_inputs_are_named(inputs, error, message):
    with pytest.raises(error, match=message):
        OnnxRunner(model_of(CONSTANTS + MLP))(inputs)


def test_an_error_names_the_node_and_what_it_got():
    with pytest.raises(ArgumentError, match=r"onnx Concat of float\[1, 4\]: .*axis 7"):
        OnnxRunner(model_of("y = Concat <axis = 7> (x)"))({"x": [[0.0] * 4]})
    apart = "shape = Constant <value_ints = [3, 2]> () y = Reshape (x, shape)"
    with pytest.raises(ShapeError, match=r"onnx Reshape of float\[1, 4\], .*1, 4.* .3, 2."):
        OnnxRunner(model_of(apart))({"x": [[0.0] * 4]})
    with pytest.raises(ArgumentError, match="operator own.What of set 1 has no meaning"):
        OnnxRunner(model_of("y = own.What (x)"))({"x": [[0.0] * 4]})
    with pytest.raises(ArgumentError, match="inputs that are a list; legal is a dict"):
        OnnxRunner(model_of("y = Abs (x)"))([[0.0] * 4])


GRAMS = "max_gram_length = 1, min_gram_length = 1, max_skip_count = 0, "
GRAMS += "ngram_counts = [0], pool_int64s = [1]"


@pytest.mark.parametrize(
    "made",
    [
        "Range (zero, most, one)",
        "Range (zero, one, zero)",
        "Tile (many, repeats)",
        "Expand (one, large)",
        "ConstantOfShape (large)",
        'Resize <mode = "nearest"> (x, , , wide)',
        'Resize <mode = "cubic"> (x, , , wide)',
        "MelWeightMatrix (million, million, one, low, high)",
        "DFT (signal, billion)",
        'Resize <mode = "linear", antialias = 1> (x, , tiny)',
        'Pad <mode = "wrap"> (x, far)',
        "RoiAlign <output_height = 1000000000> (image, boxes, zeros)",
        "RoiAlign <sampling_ratio = 1000000000> (image, boxes, zeros)",
        f'TfIdfVectorizer <{GRAMS}, mode = "TF", ngram_indexes = [10000000000000]> (many)',
        "Split <num_outputs = 1000000000> (x)",
        "Abs (zero, one)",
        "Neg (zero, one, one)",
    ],
)
def test_what_a_node_cannot_make_is_refused(made):
    """From numbers in the file, at once, and before memory is gone."""
    known = "zero = Constant <value_int = 0> () one = Constant <value_int = 1> () "
    known += "most = Constant <value_int = 1000000000000> () "
    known += "many = Constant <value_ints = [1, 2]> () "
    known += "repeats = Constant <value_ints = [1000000000000]> () "
    known += "large = Constant <value_ints = [100000, 100000]> () "
    known += "wide = Constant <value_ints = [1, 1000000000]> () "
    known += "million = Constant <value_int = 1000000> () "
    known += "billion = Constant <value_int = 1000000000> () "
    known += "low = Constant <value_float = 0.0> () high = Constant <value_float = 4000.0> () "
    known += "tiny = Constant <value_floats = [1.0, 0.000000001]> () "
    known += "far = Constant <value_ints = [0, 1000000000, 0, 0]> () "
    known += "four = Constant <value_ints = [1, 1, 2, 2]> () image = Reshape (x, four) "
    known += "corners = Constant <value_floats = [0.0, 0.0, 3.0, 3.0]> () "
    known += "zeros = Constant <value_ints = [0]> () boxes = Unsqueeze (corners, zeros) "
    known += "three = Constant <value_ints = [1, 4, 1]> () signal = Reshape (x, three) "
    operator = made.split()[0]
    with pytest.raises(ArgumentError, match=f"onnx {operator}"):
        OnnxRunner(model_of(f"{known} n = {made} y = Shape (n)"))({"x": [[0.0] * 4]})


@pytest.mark.parametrize("batch", [1, 2])
def test_a_grid_for_each_image(batch):
    """The standard's definition by other operators drops a batch of one."""
    size = f"size = Constant <value_ints = [{batch}, 1, 2, 3]> ()"
    signature = "(float[B, 2, 3] x) => (float[B, H, W, 2] y)"
    model = model_of(f"{size} y = AffineGrid (x, size)", signature)
    x = {"x": np.arange(6.0 * batch, dtype=np.float32).reshape(batch, 2, 3)}
    want = ReferenceEvaluator(model).run(None, x)[0]
    np.testing.assert_allclose(OnnxRunner(model)(x)["y"].numpy(), want, rtol=1e-6)


def test_windows_wider_than_all_there_is_cost_nothing():
    many = "size = 1000000000000, alpha = 1000000000000.0"
    run = OnnxRunner(model_of(f"y = LRN <{many}> (x)"))
    x = np.arange(1.0, 5).reshape(1, 4).astype(np.float32)
    np.testing.assert_allclose(run({"x": x})["y"].numpy(), x / 31**0.75, rtol=1e-6)
    grams = "min_gram_length = 1, max_gram_length = 1000000000, max_skip_count = 1000000000"
    pool = "ngram_counts = [0], ngram_indexes = [0], pool_int64s = [2]"
    text = f'i = Cast <to = 7> (x) y = TfIdfVectorizer <mode = "TF", {grams}, {pool}> (i)'
    assert OnnxRunner(model_of(text))({"x": x})["y"].tolist() == [[1.0]]


@pytest.mark.parametrize("dims, place", [([1 << 40], 0), ([4], 9), ([-4], 0)])
def test_a_broken_sparse_tensor_is_refused(dims, place):
    values = numpy_helper.from_array(np.ones(1, np.float32))
    places = numpy_helper.from_array(np.array([place], np.int64))
    sparse = onnx.SparseTensorProto(values=values, indices=places, dims=dims)
    model = graph_of([node("Constant", [], ["y"], sparse_value=sparse)])
    with pytest.raises(FileError, match="sparse tensor of shape"):
        OnnxRunner(model)({"x": np.zeros(2, np.float32)})


# ---- data beside the model -----------------------------------------------------------------------


def with_data(tmp_path, location, offset=0, shape=(4, 2)):
    tensor = TensorProto(name="w", data_type=1, dims=shape, data_location=1)
    for key, value in (("location", location), ("offset", str(offset))):
        tensor.external_data.add(key=key, value=value)
    model = model_of("y = MatMul (x, w)")
    model.graph.initializer.append(tensor)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "model.onnx"


def test_data_in_a_file_is_mapped(tmp_path):
    np.arange(9, dtype=np.float32).tofile(tmp_path / "data")
    run = OnnxRunner(with_data(tmp_path, "data", 4))
    assert run({"x": [[1.0, 1.0, 1.0, 1.0]]})["y"].tolist() == [[16, 20]]
    assert is_mapped(run.constants["w"])


@pytest.mark.parametrize(
    "location, offset, message",
    [
        ("../data", 0, r"file '\.\./data'; legal are files in the folder"),
        ("/etc/passwd", 0, "legal are files in the folder"),
        ("", 0, "legal are files in the folder"),
        ("none", 0, "can't be read"),
        ("data", 8, "at byte 8 of 'data', which has 36"),
        ("data", -4, "at byte -4"),
        ("data", "x", "is broken"),
    ],
)
def test_data_elsewhere_is_refused(tmp_path, location, offset, message):
    (tmp_path / "in").mkdir()
    for folder in (tmp_path, tmp_path / "in"):
        np.arange(9, dtype=np.float32).tofile(folder / "data")
    with pytest.raises(FileError, match=message):
        OnnxRunner(with_data(tmp_path / "in", location, offset))


# ---- broken models -------------------------------------------------------------------------------


def graph_of(nodes):
    x = helper.make_tensor_value_info("x", 1, [2])
    y = helper.make_tensor_value_info("y", 1, [2])
    made = helper.make_model(helper.make_graph(nodes, "g", [x], [y]))
    made.opset_import[0].version = 21
    return made


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


@pytest.mark.parametrize(
    "nodes, message",
    [
        ([node("Add", ["x", "b"], ["a"]), node("Abs", ["a"], ["b"])], "uses 'b', which no node"),
        ([node("Abs", ["x"], ["z"])], "output 'y' is made by no node"),
        ([node("Abs", ["x"], ["y"]), node("Neg", ["x"], ["y"])], "two nodes make 'y'"),
        ([node("Abs", ["x"], ["x"]), node("Abs", ["q"], ["y"])], "uses 'q'"),
    ],
)
def test_a_graph_out_of_order_is_refused(nodes, message):
    with pytest.raises(FileError, match=message):
        OnnxRunner(graph_of(nodes))


def test_other_things_are_refused(tmp_path):
    good = graph_of([node("Abs", ["x"], ["y"])])
    good.opset_import[0].version = 999
    (tmp_path / "x.onnx").write_bytes(b"no model")
    for source in (tmp_path / "x.onnx", tmp_path / "none.onnx", b"", b"\xff" * 99, 3, good):
        with pytest.raises(FileError):
            OnnxRunner(source)


def test_a_broken_tensor_is_refused():
    model = graph_of([node("Add", ["x", "w"], ["y"])])
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    for change in ({"dims": [1 << 40]}, {"data_type": 99}, {"raw_data": b"abc"}):
        broken, bad = onnx.ModelProto(), TensorProto()
        broken.CopyFrom(model)
        bad.CopyFrom(tensor)
        bad.ClearField(next(iter(change)))
        bad.MergeFrom(TensorProto(**change))
        broken.graph.initializer.append(bad)
        with pytest.raises(FileError):
            OnnxRunner(broken)


REAL = model_of(CONSTANTS + MLP).SerializeToString()


@settings(max_examples=150)
@given(mutants([REAL]))
def test_mutants_are_run_or_refused(raw):
    survives(lambda data: OnnxRunner(data)({"x": Tensor.ones(3, 4)}), raw)
