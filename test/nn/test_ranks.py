"""Layers take the numbers of axes that PyTorch's take: images without a batch, too."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, nn
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn import functional as ours
from tinygrad.nn.state import load_state_dict

theirs = torch.nn.functional
RANDOM = np.random.default_rng(1)
SIZES = (5, 6, 4)


def array(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


LAYERS = {
    "Conv": (3, 4, 2),
    "ConvTranspose": (3, 4, 2, 2),
    "InstanceNorm": (3,),
    "MaxPool": (2,),
    "AvgPool": (2,),
    "LPPool": (2.0, 2),
    "AdaptiveAvgPool": (3,),
    "AdaptiveMaxPool": (3,),
    "ReflectionPad": (1,),
    "ZeroPad": (1,),
}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_an_image_without_a_batch(name, axes):
    layer, module = (getattr(lib, f"{name}{axes}d")(*LAYERS[name]) for lib in (nn, torch.nn))
    load_state_dict(layer, {k: Tensor(v.numpy()) for k, v in module.state_dict().items()})
    values = np.abs(array(3, *SIZES[:axes]))
    x, other = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    found, wanted = layer(x), module(other)
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=3e-5, atol=3e-5)
    found.square().sum().backward()
    wanted.square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=2e-4, atol=2e-4)


def test_other_padding_of_an_image_without_a_batch():
    layer, module = (
        lib.Conv2d(3, 4, 3, padding=1, padding_mode="reflect") for lib in (nn, torch.nn)
    )
    load_state_dict(layer, {k: Tensor(v.numpy()) for k, v in module.state_dict().items()})
    x = array(3, 5, 6)
    wanted = module(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name, shapes, options",
    [
        ("conv1d", [(3, 6), (4, 3, 2), (4,)], {"stride": 2}),
        ("conv2d", [(4, 6, 5), (4, 2, 2, 3)], {"groups": 2, "padding": 1}),
        ("conv3d", [(3, 4, 5, 4), (2, 3, 2, 2, 2)], {}),
        ("conv_transpose1d", [(3, 4), (3, 2, 3), (2,)], {"stride": 2, "output_padding": 1}),
        ("conv_transpose2d", [(3, 4, 3), (3, 2, 2, 2)], {"padding": 1}),
        ("unfold", [(3, 5, 6)], {"kernel_size": 2, "stride": 2}),
        ("fold", [(12, 6)], {"output_size": (3, 4), "kernel_size": 2}),
    ],
)
def test_functions_of_an_image_without_a_batch(name, shapes, options):
    given = [array(*shape) for shape in shapes]
    found = getattr(ours, name)(*map(Tensor, given), **options).numpy()
    wanted = getattr(theirs, name)(*map(torch.tensor, given), **options).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_an_instance_norm_without_a_batch_keeps_averages():
    layer = nn.InstanceNorm2d(3, track_running_stats=True)
    module = torch.nn.InstanceNorm2d(3, track_running_stats=True)
    x = array(3, 4, 5)
    with Tensor.train():
        layer(Tensor(x))
    module(torch.tensor(x))
    for name in ("running_mean", "running_var"):
        wanted = getattr(module, name).numpy()
        np.testing.assert_allclose(getattr(layer, name).numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name, shape", [("dropout1d", (40, 9)), ("dropout3d", (40, 3, 3, 2))])
def test_dropout_of_channels_without_a_batch(name, shape):
    dropped = getattr(ours, name)(Tensor.ones(*shape), 0.5, training=True).numpy()
    assert set(np.unique(dropped)) == {0.0, 2.0}
    flat = dropped.reshape(40, -1)
    assert (flat == flat[:, :1]).all()


@pytest.mark.parametrize("name, axes", [("dropout1d", 3), ("dropout3d", 5)])
def test_dropout_of_channels_of_a_batch(name, axes):
    dropped = getattr(ours, name)(Tensor.ones(20, 5, *(3,) * (axes - 2)), training=True).numpy()
    flat = dropped.reshape(20, 5, -1)
    assert (flat == flat[:, :, :1]).all() and len(np.unique(flat[:, :, 0].mean(1))) > 2


@pytest.mark.parametrize(
    "name, shape",
    [
        ("BatchNorm1d", (2, 3, 4, 4)),
        ("BatchNorm2d", (2, 3)),
        ("BatchNorm2d", (2, 3, 4)),
        ("BatchNorm3d", (2, 3, 4, 4)),
        ("InstanceNorm1d", (2, 3, 4, 4)),
        ("InstanceNorm2d", (2, 3)),
        ("InstanceNorm3d", (2, 3, 4)),
        ("Dropout1d", (2, 3, 4, 4)),
        ("Dropout3d", (2, 3, 4)),
    ],
)
def test_a_rank_that_pytorch_refuses_is_refused(name, shape):
    given = (0.5,) if name.startswith("Dropout") else (3,)
    with pytest.raises(ShapeError, match=rf"{name}: x \(2, 3.*\); legal are \d.* axes"):
        getattr(nn, name)(*given)(Tensor.ones(*shape))


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (2, 3, 2, 2), (2, 3, 2, 2, 2)])
def test_a_norm_without_a_number_in_its_name_takes_any_rank(shape):
    assert nn.BatchNorm(3)(Tensor.ones(*shape)).shape == shape


def test_channels_of_an_image_without_a_batch_are_its_first_axis():
    with pytest.raises(ShapeError, match=r"InstanceNorm2d: x .*legal is \(3, \*any\)"):
        nn.InstanceNorm2d(3)(Tensor.ones(4, 3, 3))


def test_a_class_to_ignore_beside_probabilities_is_refused():
    x = Tensor.ones(2, 3)
    with pytest.raises(ArgumentError, match="ignore_index=1 beside probabilities"):
        ours.cross_entropy(x, x / 3, ignore_index=1)
    ours.cross_entropy(x, x / 3, ignore_index=-1)
