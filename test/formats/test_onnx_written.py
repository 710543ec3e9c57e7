"""What people expect to see of a model in ONNX: the operators that its author wrote."""

import itertools
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

from tinygrad import Tensor, TinyJit, nn
from tinygrad.base.errors import ArgumentError
from tinygrad.formats import onnx as onnx_files
from tinygrad.nn import functional as F
from tinygrad.nn.onnx import OnnxRunner, export_onnx

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.log_severity_level = 3
RANDOM = np.random.default_rng(5)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def check(function, inputs, operators):
    """The exported function is these operators, and ONNX Runtime computes what it computes."""
    tensors = [Tensor(x) for x in inputs]
    made = export_onnx(function, tensors)
    session = onnxruntime.InferenceSession(made.SerializeToString(), OPTIONS)
    names = [item.name for item in session.get_inputs()]
    (found,) = session.run(None, dict(zip(names, inputs, strict=True)))
    wanted = function(*tensors).numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert " ".join(node.op_type for node in made.graph.node) == f"{operators} Identity"
    return made


X = floats(2, 3, 9, 11) - 3  # no window's greatest is the 0 of a border
POOLS = {
    "MaxPool": [
        lambda x: x.max_pool2d(2),
        lambda x: x.max_pool2d(3, 2, padding=1),
        lambda x: x.max_pool2d(3, 2, ceil_mode=True),
        lambda x: x.max_pool2d((2, 3), (2, 1), dilation=2, padding=1),
    ],
    "AveragePool": [
        lambda x: x.avg_pool2d(3, 2, padding=1),
        lambda x: x.avg_pool2d(3, 2, padding=1, count_include_pad=False),
        lambda x: x.avg_pool2d(2, ceil_mode=True),
        lambda x: x.avg_pool2d(3, 2, padding=1, ceil_mode=True, count_include_pad=False),
    ],
    "ReduceMean": [lambda x: x.mean((2, 3), keepdim=True)],
    "ReduceMean Reshape": [lambda x: x.mean(), lambda x: x.sum(1) / 3],
    "Relu": [lambda x: x.relu()],
    "Slice Reshape MaxPool": [lambda x: F.max_pool1d(x[:, :, 0], 3)],
    "Reshape MaxPool": [lambda x: F.max_pool3d(x.reshape(1, 2, 3, 9, 11), 2)],
    "Relu Pad MaxPool": [lambda x: x.relu().pad((1, 1, 1, 1)).max_pool2d(3)],  # zeros count
    "ReduceSum Reshape Div": [lambda x: x.sum(1) / 4],
    "Relu MaxPool": [lambda x: x.relu().max_pool2d(2)],
}


@pytest.mark.parametrize("operators", POOLS)
def test_pools_and_means(operators):
    Tensor(1.0).contiguous().realize()  # somebody's copy of a constant changes nothing
    for function in POOLS[operators]:
        check(function, [X], operators)


def spread(**options):
    return lambda x, w: x.conv_transpose2d(w, **options)


def test_transposed_convolutions():
    two = (1, 2)
    options = dict(groups=two, stride=two, padding=(0, 1), output_padding=(0, 1), dilation=two)
    for values in itertools.product(*options.values()):
        given = dict(zip(options, values, strict=True))
        if given["output_padding"] < given["stride"]:
            inputs = [floats(2, 4, 3, 4), floats(4, 3, 3, 2)]
            check(spread(**given), inputs, "ConvTranspose")
    for channels, groups in ((4, 4), (1, 1)):
        check(
            spread(stride=2, padding=(1, 0, 2, 1), groups=groups),
            [floats(3, channels, 5, 3), floats(channels, 1, 3, 3)],
            "ConvTranspose",
        )
    check(spread(), [floats(3, 4, 7), floats(4, 2, 4)], "ConvTranspose")


class Net:
    def __init__(self):
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(4, 5, 2, stride=2)

    def __call__(self, x):
        return self.up(self.conv(x).relu().max_pool2d(2)).mean((2, 3))


def test_weights_have_their_names_and_shapes():
    operators = "Conv Reshape Add Relu MaxPool ConvTranspose Reshape Add ReduceMean Reshape"
    made = check(Net(), [floats(2, 3, 8, 8)], operators)
    shapes = {item.name: tuple(item.dims) for item in made.graph.initializer}
    assert shapes["conv.weight"] == (4, 3, 3, 3)
    assert shapes["up.weight"] == (4, 5, 2, 2)


def test_a_captured_function_is_written_as_the_function():
    weight = Tensor([[1.0, 2.0], [3.0, 4.0]])
    step = TinyJit(lambda x: (x @ weight).realize())
    for _ in range(3):
        step(Tensor([[1.0, 0.0]]).realize())
    found = OnnxRunner(export_onnx(step, Tensor.ones(1, 2)))({"input": Tensor([[0.0, 1.0]])})
    assert found["output"].tolist() == [[3.0, 4.0]]


ONE = Tensor([1.0])


@pytest.mark.parametrize(
    "given, returned", [(None, ONE), (3, ONE), (ONE, None), (ONE, 3), (ONE, {"a": 1})]
)
def test_what_is_no_tensor_is_refused(given, returned):
    with pytest.raises(ArgumentError, match=r"export_onnx: (in|out)puts .*; legal are tensors"):
        export_onnx(lambda x: returned, given)


def test_export_stands_beside_the_runner():
    code = "import tinygrad.formats.onnx as f; import tinygrad.nn.onnx as n"
    names = "f.OnnxRunner is n.OnnxRunner and f.export_onnx is n.export_onnx"
    for order in (code, "; ".join(reversed(code.split("; ")))):
        subprocess.run([sys.executable, "-c", f"{order}; assert {names}"], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'import_onnx'"):
        onnx_files.import_onnx  # noqa: B018
