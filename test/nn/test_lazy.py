"""Lazy layers become the layer of the size that they see first, and have no weights before."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, nn
from tinygrad.base.errors import ArgumentError, JitError, ShapeError

ROWS = {  # of each: its options, the shape of x, the type that it becomes
    "LazyLinear": ((2,), (4, 3), nn.Linear),
    "LazyConv1d": ((4, 2), (3, 7), nn.Conv2d),
    "LazyConv2d": ((4, 2), (2, 3, 7, 7), nn.Conv2d),
    "LazyConvTranspose2d": ((4, 2), (2, 3, 7, 7), nn.ConvTranspose2d),
    "LazyBatchNorm1d": ((), (4, 3), nn.BatchNorm1d),
    "LazyInstanceNorm2d": ((), (2, 3, 7, 7), nn.InstanceNorm2d),
}


@pytest.mark.parametrize("name", ROWS)
def test_becomes_the_layer(name):
    options, shape, kind = ROWS[name]
    layer, x = getattr(nn, name)(*options), Tensor.rand(*shape)
    first = layer(x)
    assert type(layer) is type(kind(3, *options))
    wanted = getattr(torch.nn, name)(*options)
    wanted(torch.ones(shape))
    names = {n: tuple(t.shape) for n, t in wanted.state_dict().items()}
    assert {n: t.shape for n, t in nn.state.get_state_dict(layer).items()} == names
    np.testing.assert_allclose(layer(x).numpy(), first.numpy(), atol=1e-6)


@pytest.mark.parametrize("ask", [nn.state.get_parameters, nn.state.get_state_dict])
def test_has_no_weights_before(ask):
    with pytest.raises(ArgumentError, match="LazyLinear: no weights before its first call"):
        ask([nn.Linear(2, 2), nn.LazyLinear(3)])


def test_is_not_made_while_a_step_is_captured():
    layers = [nn.LazyLinear(3) for _ in range(4)]
    step = TinyJit(lambda x: layers.pop()(x).realize())
    step(Tensor.ones(2, 2).realize())
    with pytest.raises(JitError, match="LazyLinear: its first call makes weights"):
        step(Tensor.ones(2, 2).realize())


def test_axes_are_checked():
    with pytest.raises(ShapeError, match="LazyConv2d: x .*legal are shapes with an axis -3"):
        nn.LazyConv2d(4, 2)(Tensor.ones(3, 3))
