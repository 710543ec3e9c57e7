"""Models written as ONNX are legal, and ONNX Runtime and our own runner compute what we do."""

import numpy as np
import onnx
import onnxruntime
import pytest

from tinygrad import Tensor, nn
from tinygrad.base.errors import ArgumentError
from tinygrad.nn.onnx import OnnxRunner, export_onnx
from tinygrad.tensor.scan import scan

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.log_severity_level = 3


def arrays(shapes, dtype="float32"):
    draw = np.random.default_rng(0)
    return [
        draw.normal(size=shape).astype(dtype) if isinstance(shape, tuple) else np.array(shape)
        for shape in shapes
    ]


def check(model, *shapes, dtype="float32", atol=1e-5):
    """The exported model is legal, and gives what the model gives."""
    given = arrays(shapes, dtype)
    inputs = [Tensor(array) for array in given]
    made = export_onnx(model, inputs)
    onnx.checker.check_model(made, full_check=True)
    session = onnxruntime.InferenceSession(made.SerializeToString(), OPTIONS)
    feeds = {f"input{i}": array for i, array in enumerate(given)}
    results = model(*inputs)
    wanted = [t.numpy() for t in (results if isinstance(results, (tuple, list)) else [results])]
    ours = [t.numpy() for t in OnnxRunner(made)(feeds).values()]
    for found in (session.run(None, feeds), ours):
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=atol)


class Chain:
    def __init__(self, *layers):
        self.layers = layers

    def __call__(self, x):
        return x.sequential(list(self.layers))


class Block:
    """A convolution, a normalisation, a skip: what an image net is made of."""

    def __init__(self):
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm(8)
        self.grouped, self.down = nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.Conv2d(8, 4, 3, 2)
        self.head = nn.Linear(4 * 3 * 3, 5)

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        x = (x + self.grouped(x)).max_pool2d((2, 2))
        return self.head(self.down(x).gelu().flatten(1)).softmax()


def test_an_image_net():
    check(Block().forward, (2, 3, 14, 14))


def test_a_transformer_layer():
    check(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (2, 5, 8))


def test_embeddings_norms_and_attention():
    check(Chain(nn.Embedding(10, 6), nn.RMSNorm(6), nn.Linear(6, 3)), [[1, 2], [9, 0]])
    check(lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True), *[(1, 2, 5, 8)] * 3)


OPERATIONS = {
    "product": (lambda x, y: (x @ y).relu(), (3, 4), (4, 5)),
    "batched product": (lambda x, y: x @ y, (2, 1, 3, 4), (5, 4, 2)),
    "outer": (lambda x, y: x.reshape(-1, 1) * y, (3,), (4,)),
    "transposed convolution": (
        lambda x, w: x.conv_transpose2d(w, stride=2, padding=1, output_padding=1),
        (2, 3, 5, 5),
        (3, 4, 3, 3),
    ),
    "dilated 1d convolution": (lambda x, w: x.conv2d(w, dilation=2), (2, 3, 9), (4, 3, 3)),
    "mean of windows": (lambda x: x.avg_pool2d((3, 3), stride=2, padding=1), (1, 2, 9, 9)),
    "views": (lambda x: x[:, ::2].flip(1).pad(((1, 1), (0, 2))).T, (3, 6)),
    "sums": (lambda x: (x.sum(), x.mean(1), x.max(0), x.var(1), x.cumsum(1)), (3, 6)),
    "functions": (lambda x: (x.exp(), x.sin(), x.tanh(), x.erf(), x.round(), x.sign()), (3, 6)),
    "choice": (lambda x: ((x > 0).where(x, 0), (x > 0) & (x < 1), x.masked_fill(x < 0, 2)), (3, 6)),
    "gather": (lambda x: x.gather(1, Tensor([[0, 5], [1, 1], [2, 3]])), (3, 6)),
    "scatter": (lambda x: x.scatter(1, Tensor([[0, 5]] * 3), x[:, :2] * 2), (3, 6)),
    "constant": (lambda x: Tensor.arange(4).float() + x * 0 + 2, (3, 1)),
    "no axes": (lambda x: x * 2 + 1, ()),
    "the input itself": (lambda x: x, (2, 3)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    check(*OPERATIONS[name])


def test_whole_numbers():
    check(lambda x: (x // 3, x % 3, -x, x > 2, x.float() / 2, x.cast("uint8") >> 1), list(range(9)))
    check(lambda x: (x.sum(1), x.half() * 2), (2, 3), dtype="float64")


def test_bools_have_an_order():
    check(lambda x, y: (x < y, x >= y), [True, False, True, False], [True, True, False, False])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_smallest_number(dtype):
    small = np.iinfo(dtype).min
    given = [np.array(x, dtype) for x in ([small, small, 7, -7, 8, 8], [3, small, small, 2, 2, -3])]
    check(lambda x, y: (x // y, x % y, x.div(y, rounding_mode="trunc")), *given)
    check(lambda x: (x >> 1, x >> 8 * np.dtype(dtype).itemsize - 1), given[0])


def test_places_of_the_largest_and_shifts():
    check(lambda x: (x.argmax(1), x.argmin(0), x.argmax()), (3, 6))
    shifts = [-7, -1, 0, 5, 1 << 20]
    check(lambda x: (x >> 1, x << 3, x.cast("long") >> 2, x.cast("uint32") >> 4), shifts)
    check(lambda x: x.bitcast("int32"), (3,))


def test_loops_and_sorting():
    check(lambda x: x.sort(1, descending=True), (3, 6))
    check(lambda x: x.topk(2), (3, 6))

    def running(x, w):
        states, outs = scan(lambda s, row: ([(s + row) @ w], [s * 2]), [x[0]], [x], reverse=True)
        return *states, *outs

    check(running, (4, 3), (3, 3))


def test_a_realize_on_the_way_does_nothing():
    check(lambda x: ((x + 1).realize() * 2).contiguous().realize() - 1, (3, 4))


def written(x):
    table, y = Tensor.zeros(3, 4), x * 2
    table[0] = 1
    row = y[1]
    y[0] = 3.0
    row += 1
    y[x > 1] = y[2, 0]
    with Tensor.no_grad():
        y.clamp_(-1, 5)
    return y + table, row


def filled(x):
    out = Tensor.zeros(4, 3)
    for i in range(4):
        out[i] = x[:, i] * i
    return out


@pytest.mark.parametrize("model", [written, filled, lambda x: x.clone().masked_fill_(x > 0, 7)])
def test_what_is_written_in_place_is_exported(model):
    check(model, (3, 4))


def test_an_export_leaves_what_the_model_holds():
    norm, total = nn.BatchNorm2d(2), Tensor.zeros(2).contiguous().realize()
    with Tensor.train(), pytest.raises(ArgumentError, match="BatchNorm: in place: .* don't train"):
        export_onnx(norm, Tensor.ones(1, 2, 3, 3))
    with pytest.raises(ArgumentError, match="in place: "):
        export_onnx(lambda x: total.assign(total + x), Tensor.ones(2))
    assert norm.running_mean.tolist() == [0, 0] and norm.running_var.tolist() == [1, 1]
    assert total.tolist() == [0, 0]


def test_weights_have_their_names(tmp_path):
    net = nn.Linear(3, 2)
    made = export_onnx(net, {"x": Tensor.ones(1, 3)}, tmp_path / "net.onnx")
    assert {item.name for item in made.graph.initializer} >= {"weight", "bias"}
    assert [item.name for item in made.graph.input] == ["x"]
    x = Tensor([[1.0, 2.0, 3.0]])
    found = OnnxRunner(tmp_path / "net.onnx")({"x": x})["output"]
    np.testing.assert_allclose(found.numpy(), net(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda x: x + Tensor.rand(2), "of random numbers; realize"),
        (
            lambda x: Tensor.zeros(2).contiguous().realize().assign(x),
            "in place: to a tensor of shape",
        ),
        (
            lambda x: x.add_(1),
            "in place: .* legal are models that don't train, and writes to a .clone",
        ),
        (lambda x: x.reshape(1, 2).svd()[0], "host function 'svd' has no ONNX operator"),
        (lambda x: x * x.sum().item(), r"shape \(\) is read while its graph is only being built"),
        (lambda x: 3, "'int' object is not iterable|legal are tensors"),
    ],
)
def test_what_has_no_operator_is_refused(model, message):
    with pytest.raises((ArgumentError, TypeError), match=message):
        export_onnx(model, Tensor.ones(2))


def operators(model, *shapes):
    """What the exported model is made of, movement and constants aside; it is right, too."""
    check(model, *shapes)
    made = export_onnx(model, [Tensor(array) for array in arrays(shapes)])
    moves = {"Reshape", "Transpose", "Identity", "Add"}
    return [node.op_type for node in made.graph.node if node.op_type not in moves]


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (nn.Linear(4, 5), [(2, 3, 4)]),
        (lambda a, b: a @ b, [(2, 3, 4), (2, 4, 5)]),
        (lambda a, b: a @ b, [(3, 4), (4,)]),
        (lambda a, b: a @ b, [(4,), (4, 3)]),
        (lambda a, b: Tensor.einsum("abc,dcb->da", a, b), [(2, 3, 4), (5, 4, 3)]),
        (lambda a, b: Tensor.einsum("abc,bcd->cad", a, b), [(2, 3, 4), (3, 4, 5)]),
    ],
)
def test_products_are_products(model, shapes):
    assert operators(model, *shapes) == ["MatMul"]


def test_what_only_one_factor_has_is_summed_before():
    def model(a, b):
        return Tensor.einsum("abc,dc->ad", a, b)

    assert operators(model, (2, 3, 4), (5, 4)) == ["ReduceSum", "MatMul"]
    assert operators(lambda a: (a * a).sum(-1), (2, 5)) == ["Mul", "ReduceSum"]


def channels_last(x):
    """Channels behind the pixels, and weights as they come."""
    weight = Tensor(arrays([(3, 2, 4, 3)])[0])  # (taps, taps, in, out)
    windows = x.permute(0, 3, 1, 2)
    return windows.conv2d(weight.permute(3, 2, 0, 1), stride=(1, 2)).permute(0, 2, 3, 1)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Conv2d(3, 8, 3, stride=2, padding=1), (2, 3, 9, 8)),
        (nn.Conv2d(4, 6, 3, groups=2, dilation=2), (2, 4, 9, 9)),
        (nn.Conv2d(4, 4, (3, 1), groups=4, padding=(1, 0)), (1, 4, 9, 1)),
        (nn.Conv2d(4, 8, 1), (1, 4, 5, 3)),
        (nn.Conv2d(1, 1, 3, bias=False), (1, 1, 3, 3)),
        (nn.Conv1d(4, 8, 3, padding=2), (2, 4, 9)),
        (channels_last, (2, 7, 8, 4)),
    ],
)
def test_convolutions_are_convolutions(model, shape):
    assert operators(model, shape) == ["Conv"]


def test_a_convolution_that_cuts_its_input_is_still_right():
    assert "Einsum" not in operators(nn.Conv2d(2, 3, 3, padding=(-1, 1)), (1, 2, 9, 9))
    assert "Einsum" not in operators(nn.ConvTranspose2d(2, 3, 3, stride=2), (1, 2, 4, 4))
