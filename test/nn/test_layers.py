"""A layer with PyTorch's weights gives PyTorch's results and gradients, whatever the device."""

import numpy as np
import pytest
import torch

from tinygrad import nn
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, IndexCheckError, ShapeError
from tinygrad.engine.devices import Device
from tinygrad.nn import (
    BatchNorm,
    BatchNorm2d,
    Bilinear,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Dropout,
    Dropout2d,
    Embedding,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    Linear,
    LSTMCell,
    PReLU,
    RMSNorm,
)
from tinygrad.nn.state import get_state_dict, load_state_dict
from tinygrad.tensor import Tensor


@pytest.fixture(params=["CPU", "PYTHON"])
def device(request, monkeypatch):
    """The device that tensors of this test go to."""
    monkeypatch.setattr(Device, "DEFAULT", request.param)
    return request.param


def randomized(module):
    """PyTorch's layer with no weight left at 0 or 1, so that none is untested."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.uniform_(-0.5, 0.5)
    return module


def arrays_of(module):
    return {name: value.detach().numpy() for name, value in module.state_dict().items()}


def check(layer, module, shape, tolerance=2e-5):
    """`layer` is `module`: same names, and same results and gradients for an input of `shape`."""
    assert get_state_dict(layer).keys() == module.state_dict().keys()
    randomized(module)
    load_state_dict(layer, {name: Tensor(value) for name, value in arrays_of(module).items()})
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, theirs = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    out, wanted = layer(x), module(theirs)
    weights = np.cos(np.arange(wanted.numel(), dtype=np.float32)).reshape(wanted.shape)
    names = [n for n, p in module.named_parameters()]
    targets = [get_state_dict(layer)[name] for name in names]
    found = (out * Tensor(weights)).sum().gradient(x, *targets)
    Tensor.realize(*found)
    (wanted * torch.tensor(weights)).sum().backward()
    close("result", out, wanted, tolerance)
    close("gradient of x", found[0], theirs.grad, tolerance)
    parameters = dict(module.named_parameters())
    for name, gradient in zip(names, found[1:], strict=True):
        close(f"gradient of {name}", gradient, parameters[name].grad, tolerance)


def close(what, ours, theirs, tolerance=2e-5):
    wanted = theirs.detach().numpy()
    bound = tolerance * max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(ours.numpy(), wanted, rtol=tolerance, atol=bound, err_msg=what)


def test_linear(device):
    check(Linear(4, 3), torch.nn.Linear(4, 3), (2, 5, 4))
    check(Linear(4, 3, bias=False), torch.nn.Linear(4, 3, bias=False), (4,))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": "same"},
        {"padding": "same", "dilation": 2, "bias": False},
        {"groups": 2, "padding": (1, 0)},
        {"dilation": (2, 1)},
    ],
)
def test_conv2d(device, more):
    check(Conv2d(2, 4, 3, **more), torch.nn.Conv2d(2, 4, 3, **more), (2, 2, 5, 6))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [2, (1, 2), "same", "valid"])
def test_conv2d_with_other_padding(mode, padding):
    make = {"padding": padding, "padding_mode": mode, "bias": False}
    check(Conv2d(2, 3, (3, 5), **make), torch.nn.Conv2d(2, 3, (3, 5), **make), (2, 2, 5, 6))


@pytest.mark.parametrize("axes", [1, 3])
def test_other_padding_of_other_axes(axes):
    ours, theirs = (getattr(lib, f"Conv{axes}d") for lib in (nn, torch.nn))
    more = {"padding": 1, "padding_mode": "circular"}
    check(ours(2, 3, 3, **more), theirs(2, 3, 3, **more), (2, 2, *(4,) * axes))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_conv2d_with_an_even_kernel_keeps_the_size():
    check(Conv2d(1, 1, 4, padding="same"), torch.nn.Conv2d(1, 1, 4, padding="same"), (1, 1, 5, 6))


def test_conv1d(device):
    check(Conv1d(2, 3, 3, padding=1), torch.nn.Conv1d(2, 3, 3, padding=1), (2, 2, 6))
    check(Conv1d(2, 3, (3,), [2]), torch.nn.Conv1d(2, 3, (3,), [2]), (2, 2, 6))


@pytest.mark.parametrize(
    "more", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2}]
)
def test_conv_transpose2d(device, more):
    ours, theirs = ConvTranspose2d(2, 4, 3, **more), torch.nn.ConvTranspose2d(2, 4, 3, **more)
    check(ours, theirs, (1, 2, 3, 4))


def test_conv_transpose1d(device):
    check(
        ConvTranspose1d(2, 3, 2, stride=2), torch.nn.ConvTranspose1d(2, 3, 2, stride=2), (1, 2, 4)
    )


def test_layernorm(device):
    check(LayerNorm(6), torch.nn.LayerNorm(6), (2, 3, 6))
    check(LayerNorm((3, 6)), torch.nn.LayerNorm((3, 6)), (2, 3, 6))
    check(LayerNorm(6, elementwise_affine=False), torch.nn.LayerNorm(6, 1e-5, False), (2, 6))


def test_groupnorm_and_instancenorm(device):
    check(GroupNorm(2, 4), torch.nn.GroupNorm(2, 4), (2, 4, 3, 2))
    check(InstanceNorm(3), torch.nn.InstanceNorm2d(3, affine=True), (2, 3, 3, 4))


def test_rmsnorm(device):
    check(RMSNorm(6), torch.nn.RMSNorm(6, eps=1e-6), (2, 6))


def test_layernorm2d_is_layernorm_with_channels_last(device):
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype(np.float32)
    wanted = torch.nn.LayerNorm(3)(torch.tensor(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    close("result", LayerNorm2d(3)(Tensor(x)), wanted)


@pytest.mark.parametrize("shape", [(4, 3, 2, 2), (6, 3)])
def test_batchnorm_trains_and_remembers(device, shape):
    ours = BatchNorm(3)
    theirs = torch.nn.BatchNorm2d(3) if len(shape) == 4 else torch.nn.BatchNorm1d(3)
    with Tensor.train():
        check(ours, theirs, shape)
    for name, value in arrays_of(theirs).items():
        close(name, get_state_dict(ours)[name], torch.tensor(value))
    theirs.eval()
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    close("evaluated", ours(Tensor(x)), theirs(torch.tensor(x)))


def test_batchnorm_without_weights_or_memory(device):
    check(BatchNorm(2, affine=False), torch.nn.BatchNorm1d(2, affine=False).eval(), (2, 2, 3))
    forgetful = BatchNorm2d(2, track_running_stats=False)
    x = np.random.default_rng(0).standard_normal((3, 2, 2, 2)).astype(np.float32)
    wanted = torch.nn.BatchNorm2d(2, track_running_stats=False)(torch.tensor(x))
    close("evaluated by the batch", forgetful(Tensor(x)), wanted)


def test_batchnorm_without_momentum_averages_all_batches(device):
    ours, theirs = BatchNorm2d(2, momentum=None), torch.nn.BatchNorm2d(2, momentum=None)
    for x in np.random.default_rng(0).standard_normal((3, 3, 2, 2, 2)).astype(np.float32):
        with Tensor.train():
            ours(Tensor(x)).realize()
        theirs(torch.tensor(x))
    close("mean", ours.running_mean, theirs.running_mean)
    close("variance", ours.running_var, theirs.running_var)


def test_batchnorm_has_second_derivatives():
    values = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    weights = np.cos(np.arange(8, dtype=np.float32)).reshape(4, 2)
    x, theirs = Tensor(values), torch.tensor(values, requires_grad=True)
    with Tensor.train():
        loss = (BatchNorm(2)(x).tanh() * Tensor(weights)).sum()
    slope = loss.gradient(x)[0].square().sum().gradient(x)[0]
    wanted = (torch.nn.BatchNorm1d(2)(theirs).tanh() * torch.tensor(weights)).sum()
    (first,) = torch.autograd.grad(wanted, theirs, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), theirs)
    close("second derivative", slope, second, 1e-4)


def test_batchnorm_keeps_half(device):
    assert BatchNorm(2)(Tensor.ones(3, 2, dtype=dtypes.half)).dtype is dtypes.half


def test_embedding(device):
    ours, theirs = Embedding(5, 3), torch.nn.Embedding(5, 3)
    load_state_dict(ours, {name: Tensor(value) for name, value in arrays_of(theirs).items()})
    numbers = [[4, 0], [2, 4]]
    ours.weight.requires_grad = True
    out, wanted = ours(Tensor(numbers)), theirs(torch.tensor(numbers))
    out.square().sum().backward()
    wanted.square().sum().backward()
    close("vectors", out, wanted)
    close("gradient, of a number used twice too", ours.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize("padding_idx", [2, -1])
def test_embedding_of_padding(padding_idx):
    ours = Embedding(num_embeddings=5, embedding_dim=3, padding_idx=padding_idx)
    theirs = torch.nn.Embedding(5, 3, padding_idx)
    assert ours.weight[padding_idx].tolist() == [0.0] * 3
    load_state_dict(ours, {"weight": Tensor(arrays_of(randomized(theirs))["weight"])})
    ours.weight.requires_grad = True
    numbers = [[0, 2, 4], [2, 2, 1]]
    found, wanted = ours(Tensor(numbers)), theirs(torch.tensor(numbers))
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy())
    (found**2).sum().backward()
    (wanted**2).sum().backward()
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-6)


LAYERS = [  # name, arguments, shape: the same class in both
    *((f"MaxPool{n}d", (2,), (1, 2, *(5,) * n)) for n in (1, 2, 3)),
    *((f"AvgPool{n}d", (3, 1, 1), (1, 2, *(5,) * n)) for n in (1, 2, 3)),
    *((f"LPPool{n}d", (2, 2), (1, 2, *(5,) * n)) for n in (1, 2, 3)),
    *((f"AdaptiveAvgPool{n}d", (2,), (1, 2, *(5,) * n)) for n in (1, 2, 3)),
    *((f"AdaptiveMaxPool{n}d", (2,), (1, 2, *(5,) * n)) for n in (1, 2, 3)),
    *((f"ZeroPad{n}d", (1,), (1, 2, *(3,) * n)) for n in (1, 2, 3)),
    *((f"ReflectionPad{n}d", (1,), (1, 2, *(3,) * n)) for n in (1, 2, 3)),
    *((f"ReplicationPad{n}d", (2,), (1, 2, *(3,) * n)) for n in (1, 2, 3)),
    *((f"CircularPad{n}d", (1,), (1, 2, *(3,) * n)) for n in (1, 2, 3)),
    *((f"ConstantPad{n}d", ((1, 2) * n, 0.5), (1, 2, *(3,) * n)) for n in (1, 2, 3)),
    ("MaxPool2d", ((2, 3), 1, 1), (2, 2, 6, 6)),
    ("Flatten", (), (2, 3, 4)),
    ("Flatten", (0, 1), (2, 3, 4)),
    ("Unflatten", (1, (2, 3)), (2, 6)),
    ("PixelShuffle", (2,), (1, 8, 3, 3)),
    ("PixelUnshuffle", (2,), (1, 2, 4, 4)),
    ("ChannelShuffle", (2,), (1, 4, 2, 2)),
    ("Upsample", (None, 2), (1, 2, 3, 3)),
    ("UpsamplingNearest2d", (None, 2), (1, 2, 3, 3)),
    ("UpsamplingBilinear2d", ((4, 5),), (1, 2, 3, 3)),
    ("Unfold", (2, 1, 1), (1, 2, 4, 4)),
    ("Fold", ((4, 4), 2), (1, 8, 9)),
    ("LocalResponseNorm", (3, 0.5), (1, 4, 2, 2)),
    ("Threshold", (0.1, 7.0), (3, 4)),
    ("Softmax2d", (), (2, 3, 2, 2)),
    ("Softmin", (0,), (3, 4)),
    ("Tanhshrink", (), (3, 4)),
    ("Hardshrink", (0.3,), (3, 4)),
    ("Softshrink", (0.3,), (3, 4)),
]


@pytest.mark.parametrize("name, arguments, shape", LAYERS)
def test_functions_as_layers(name, arguments, shape):
    check(getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments), shape)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_what_pools_took_goes_back(axes):
    x = np.random.default_rng(0).standard_normal((2, 3, *(4,) * axes)).astype(np.float32)
    pool, back = (getattr(torch.nn, f"Max{kind}{axes}d") for kind in ("Pool", "Unpool"))
    values, places = pool(2, return_indices=True)(torch.tensor(x))
    mine = getattr(nn, f"MaxUnpool{axes}d")(2)
    for size in (None, x.shape):
        found = mine(Tensor(values.numpy()), Tensor(places.numpy()), output_size=size)
        wanted = back(2)(values, places, output_size=size)
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def test_what_a_loss_takes_has_names():
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 5.0])
    assert nn.MSELoss()(input=x, target=y).item() == nn.MSELoss()(x, y).item() == 6.5
    with pytest.raises(TypeError, match="MSELoss: no argument 'goal'"):
        nn.MSELoss()(x, goal=y)


def test_layers_of_two():
    x, y = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    for name in ("CosineSimilarity", "PairwiseDistance"):
        found = getattr(nn, name)()(Tensor(x), Tensor(y))
        wanted = getattr(torch.nn, name)()(torch.tensor(x), torch.tensor(y))
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


def test_a_list_of_layers_is_a_layer():
    ours = nn.Sequential(Linear(3, 4), nn.ReLU(inplace=True), Linear(4, 2))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    check(ours, theirs, (5, 3))
    assert len(ours[:2]) == 2
    with pytest.raises(ArgumentError, match="legal are layers one by one"):
        nn.Sequential([Linear(3, 4)])


IN_PLACE = """
nn.ReLU(True)  nn.ReLU6(True)  nn.SiLU(True)  nn.Mish(True)  nn.Hardswish(True)  nn.ELU(1.5,True)
nn.SELU(inplace=True)  nn.Hardsigmoid(inplace=True)  nn.LeakyReLU(0.1,True)  nn.CELU(1.5,True)
nn.Hardtanh(-1.0,1.0,inplace=True)  nn.Threshold(0.5,7.0,True)  nn.RReLU(0.2,0.2,True)
lambda(x):F.relu(x,True)  lambda(x):F.relu(input=x,inplace=True)  lambda(x):F.relu(x[1:],True)
lambda(x):F.elu(x,1.5,True)  lambda(x):F.dropout(x,0.5,False,True)  lambda(x):F.relu(x*2,True)
lambda(x):F.dropout(x,1.0,True,True)  lambda(x):F.relu(x.reshape(5,1),inplace=True)
nn.ReLU(False)  lambda(x):F.threshold(x,0.5,7.0)
"""


@pytest.mark.parametrize("call", IN_PLACE.split())
@pytest.mark.parametrize("factor", [None, -3.0])
def test_in_place_means_that_x_is_written(call, factor):
    """By who reads x, or a view of it, afterwards, and by the gradient of what stood before."""
    seen = []
    for library, made in ((torch, torch.tensor), (nn, Tensor)):
        functional = torch.nn.functional if library is torch else nn.functional
        names = {"nn": torch.nn if library is torch else nn, "F": functional}
        start = made([-4.0, -0.5, 0.25, 2.0, 9.0], requires_grad=factor is not None)
        x = start if factor is None else start * factor
        view, before = x[1:], x * 3
        result = eval(call.replace("(x):", " x: "), names)(x)
        seen.append([x, view, before, result])
        if factor is not None:
            ((x * x).sum() + view.sum() + before.sum() + result.sum()).backward()
            seen[-1].append(start.grad)
        seen[-1] = [each.detach().numpy() for each in seen[-1]] + [result is x]
    for theirs, ours in zip(*seen, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_what_is_written_in_place_by_chance_is_the_result():
    with Tensor.train():
        x = Tensor.ones(400) * 1
        assert nn.Dropout(0.25, inplace=True)(x) is x
        assert set((x * 3).numpy().round().tolist()) == {0.0, 4.0}


def test_weights_come_from_torch_as_they_are():
    ours, theirs = Linear(3, 2), torch.nn.Linear(3, 2)
    load_state_dict(ours, theirs.state_dict())
    assert ours.weight.tolist() == theirs.weight.tolist()


def test_what_there_isnt_says_what_to_use():
    with pytest.raises(AttributeError, match="nn has no 'Module'; legal is a class of your own"):
        _ = nn.Module


def test_lstm_cell(device):
    ours, theirs = LSTMCell(3, 2), randomized(torch.nn.LSTMCell(3, 2))
    load_state_dict(ours, {name: Tensor(value) for name, value in arrays_of(theirs).items()})
    xs = np.random.default_rng(0).standard_normal((3, 2, 3)).astype(np.float32)
    state, wanted = None, None
    for x in xs:
        state, wanted = ours(Tensor(x), state), theirs(torch.tensor(x), wanted)
    close("hidden", state[0], wanted[0])
    close("cell", state[1], wanted[1])


def test_dropout_drops_only_while_training(device):
    x = Tensor.ones(400)
    assert Dropout(0.5)(x).tolist() == [1.0] * 400
    with Tensor.train():
        values = Dropout(0.25)(x).numpy()
    np.testing.assert_allclose(values[values > 0], 1 / 0.75, rtol=1e-6)
    assert 0.15 < (values == 0).mean() < 0.35


def test_initial_weights_are_spread_as_in_pytorch():
    pairs = [
        (Linear(64, 32), torch.nn.Linear(64, 32)),
        (Conv2d(8, 16, 3, groups=2), torch.nn.Conv2d(8, 16, 3, groups=2)),
        (ConvTranspose2d(8, 16, 3, groups=2), torch.nn.ConvTranspose2d(8, 16, 3, groups=2)),
    ]
    for ours, theirs in pairs:
        for name, value in arrays_of(theirs).items():
            mine = get_state_dict(ours)[name].numpy()
            assert mine.shape == value.shape
            np.testing.assert_allclose(np.abs(mine).max(), np.abs(value).max(), rtol=0.25)
            assert abs(mine.mean()) < 0.35 * np.abs(value).max()


@pytest.mark.parametrize(
    "misuse, error, message",
    [
        (lambda: BatchNorm(3)(Tensor.ones(2, 4, 5)), ShapeError, r"\(2, 4, 5\).*\(N, 3, "),
        (lambda: InstanceNorm(3)(Tensor.ones(2, 6, 4)), ShapeError, r"InstanceNorm: x has shape"),
        (lambda: LayerNorm(3)(Tensor.ones(2, 4)), ShapeError, r"layer_norm: x has shape \(2, 4\)"),
        (lambda: LayerNorm2d(3)(Tensor.ones(2, 4, 1, 1)), ShapeError, r"legal is \(N, 3"),
        (lambda: GroupNorm(2, 3), ArgumentError, "2 groups of 3 channels"),
        (lambda: Conv2d(3, 4, 3, groups=2), ArgumentError, "groups=2 for 3 → 4 channels"),
        (lambda: Conv2d(3, 4, 3, padding="full"), ArgumentError, 'legal are numbers, "same" and'),
        (lambda: Conv2d(3, 4, 3, padding_mode="x"), ArgumentError, "legal are zeros, reflect,"),
        (lambda: BatchNorm(3, 1e-5, 0.1), DTypeError, "affine=0.1 of type float; legal is bool"),
        (
            lambda: Embedding(3, 4, 3),
            ArgumentError,
            "padding_idx=3 of 3 vectors; legal are -3 to 2",
        ),
        (lambda: Conv2d(3, 4, 3, 2, "same"), ArgumentError, "legal is stride 1"),
        (lambda: nn.Tanh(inplace=True), TypeError, "Tanh: no argument 'inplace'"),
        (lambda: Embedding(3, 4)(Tensor([0.5])), ArgumentError, "legal are ints"),
        (lambda: Embedding(3, 4)(Tensor([1, 3])).numpy(), IndexCheckError, "3"),
    ],
)
def test_misuse(misuse, error, message):
    with pytest.raises(error, match=message):
        misuse()


def test_batchnorm_refuses_to_learn_from_one_value():
    with Tensor.train(), pytest.raises(ShapeError, match="one value a channel"):
        BatchNorm(3)(Tensor.ones(1, 3))


def test_three_axes(device):
    check(Conv3d(2, 3, 2, stride=2), torch.nn.Conv3d(2, 3, 2, stride=2), (1, 2, 4, 5, 4))
    theirs = torch.nn.ConvTranspose3d(2, 3, 2, stride=2)
    check(ConvTranspose3d(2, 3, 2, stride=2), theirs, (1, 2, 2, 3, 2))


def test_bilinear(device):
    layer, module = Bilinear(3, 4, 5), randomized(torch.nn.Bilinear(3, 4, 5))
    load_state_dict(layer, {name: Tensor(value) for name, value in arrays_of(module).items()})
    x, y = (np.random.default_rng(n).standard_normal((2, n)).astype(np.float32) for n in (3, 4))
    close("result", layer(Tensor(x), Tensor(y)), module(torch.tensor(x), torch.tensor(y)))
    with pytest.raises(ShapeError, match="Bilinear"):
        layer(Tensor.ones(2, 3), Tensor.ones(3, 4))


@pytest.mark.parametrize("shares", [1, 3])
def test_prelu(device, shares):
    check(PReLU(shares), torch.nn.PReLU(shares), (2, 3, 4))


def test_dropout_of_channels():
    x = Tensor.ones(50, 20, 3, 3)
    assert Dropout2d(0.5)(x) is x
    with Tensor.train():
        dropped = Dropout2d(0.5)(x).numpy()
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert (dropped == dropped[:, :, :1, :1]).all() and 0.4 < (dropped == 0).mean() < 0.6


@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d"])
def test_norms_that_only_scale(name):
    options = {"affine": True, "bias": False}
    layer, module = (getattr(lib, name)(3, **options) for lib in (nn, torch.nn))
    check(layer, module.eval(), (2, 3, 4, 5))
    assert layer.bias is None


def test_embedding_bag(device):
    ours, theirs = nn.EmbeddingBag(5, 4, mode="max"), torch.nn.EmbeddingBag(5, 4, mode="max")
    theirs.weight.data = torch.tensor(ours.weight.numpy())
    numbers, starts = np.array([1, 4, 0, 2, 2]), np.array([0, 3])
    wanted = theirs(torch.tensor(numbers), torch.tensor(starts))
    close("bags", ours(Tensor(numbers), Tensor(starts)), wanted)
    padded = nn.EmbeddingBag(5, 4, padding_idx=2)
    assert padded(Tensor([[2, 2, 2]])).tolist() == [[0.0] * 4] == padded.weight[2:3].tolist()


def test_instance_norm_that_keeps_averages(device):
    more = {"affine": True, "track_running_stats": True, "momentum": 0.3}
    ours, theirs = nn.InstanceNorm2d(3, **more), torch.nn.InstanceNorm2d(3, **more)
    with Tensor.train():
        check(ours, theirs, (2, 3, 4, 5))
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        close(name, getattr(ours, name), getattr(theirs, name).float())
    theirs.zero_grad()
    check(ours, theirs.eval(), (2, 3, 4, 5))


@pytest.mark.parametrize("name", ["InstanceNorm1d", "InstanceNorm2d", "LazyInstanceNorm3d"])
@pytest.mark.parametrize("options", [{}, {"affine": True}, {"track_running_stats": True}])
def test_an_instance_norm_learns_what_pytorchs_of_its_name_learns(name, options):
    first = () if "Lazy" in name else (3,)
    layer, module = (getattr(lib, name)(*first, **options) for lib in (nn, torch.nn))
    if "Lazy" in name:
        x = np.ones((2, 3, 2, 2, 2), np.float32)
        layer(Tensor(x)), module(torch.tensor(x))
    assert set(nn.state.get_state_dict(layer)) == set(module.state_dict())


@pytest.mark.parametrize("layer", ["AlphaDropout", "FeatureAlphaDropout", "RReLU"])
def test_layers_of_chance(layer):
    x = Tensor([[[-1.0, 2.0], [3.0, -4.0]]])
    made = getattr(nn, layer)()
    theirs = getattr(torch.nn, layer)().eval()
    close(layer, made(x), theirs(torch.tensor(x.numpy())))
    with Tensor.train():
        assert made(x).tolist() != made(x).tolist() or made(x).tolist() != made(x).tolist()


def test_margin_losses_as_layers():
    x, target = np.float32([[0.1, 0.7, -0.3]]), np.array([1])
    for name, given in (("MultiMarginLoss", {"p": 2, "margin": 0.5}), ("MultiMarginLoss", {})):
        wanted = getattr(torch.nn, name)(**given)(torch.tensor(x), torch.tensor(target))
        close(name, getattr(nn, name)(**given)(Tensor(x), Tensor(target)), wanted)
    several = np.array([[2, -1, 0]])
    wanted = torch.nn.MultiLabelMarginLoss()(torch.tensor(x), torch.tensor(several))
    close("several", nn.MultiLabelMarginLoss()(Tensor(x), Tensor(several)), wanted)
    wanted = torch.nn.TripletMarginWithDistanceLoss(margin=0.5)(*[torch.tensor(x)] * 3)
    found = nn.TripletMarginWithDistanceLoss(margin=0.5)(*[Tensor(x)] * 3)
    close("triplet", found, wanted)


@pytest.mark.parametrize(
    "layer, name, instead",
    [
        (nn.Linear(2, 3), "parameters", r"nn.state.get_parameters\(layer\)"),
        (nn.Sequential(nn.ReLU()), "eval", r"with Tensor.train\(False\)"),
        (nn.ReLU(), "to", r"t.to_\(device\)"),
    ],
)
def test_what_torchs_layers_have_besides_says_what_does_the_same(layer, name, instead):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; legal is .*{instead}"):
        getattr(layer, name)
    with pytest.raises(AttributeError, match="has no attribute 'weigth'$"):
        _ = layer.weigth
    assert not hasattr(layer, name)


SIZES = {
    "Linear": (3, 4),
    "Bilinear": (2, 3, 4),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), (4, 6, 3)),
    **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), (4, 6, 3)),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), (3,)),
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), (3,)),
    **dict.fromkeys(("LayerNorm", "RMSNorm"), (3,)),
    "GroupNorm": (1, 3),
    **dict.fromkeys(("Embedding", "EmbeddingBag"), (5, 3)),
    **dict.fromkeys(("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"), (3, 4)),
    "MultiheadAttention": (4, 2),
}
ONE_FOR_ALL = (
    "stride",
    "padding",
    "dilation",
    "output_padding",
    "padding_mode",
)  # (1, 1) is 1 here
UNLIKE = (*ONE_FOR_ALL, "eps", "mode", "bias", "sparse")


@pytest.mark.parametrize("name", SIZES)
def test_layers_know_their_sizes_by_pytorchs_names(name):
    """`Linear(model.head.in_features, 10)`: for who replaces a layer of a model."""
    ours, theirs = (getattr(library, name)(*SIZES[name]) for library in (nn, torch.nn))
    for fact in set(theirs.__constants__) - set(UNLIKE):
        assert getattr(ours, fact) == getattr(theirs, fact), fact


@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
@pytest.mark.parametrize("freeze", [True, False])
def test_a_table_may_be_given(name, freeze):
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    ours = getattr(nn, name).from_pretrained(Tensor(rows), freeze, padding_idx=1)
    theirs = getattr(torch.nn, name).from_pretrained(torch.tensor(rows), freeze, padding_idx=1)
    at = [[0, 2], [1, 2]]
    found, expected = ours(Tensor(at)), theirs(torch.tensor(at))
    np.testing.assert_array_equal(found.numpy(), expected.detach().numpy())
    assert ours.weight.requires_grad is theirs.weight.requires_grad
    assert (ours.num_embeddings, ours.embedding_dim) == (3, 2)
    if not freeze:
        found.sum().backward()
        expected.sum().backward()
        np.testing.assert_array_equal(ours.weight.grad.numpy(), theirs.weight.grad.numpy())
    with pytest.raises(ShapeError, match="from_pretrained"):
        getattr(nn, name).from_pretrained(Tensor([1.0]))
