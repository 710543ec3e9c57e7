"""Weights of 8 and 4 bits: rounded to the nearest, a fraction of the memory."""

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.base.errors import ArgumentError
from tinygrad.nn import Linear
from tinygrad.nn.quantised import QuantisedLinear, quantise

RANDOM = np.random.default_rng(0)


def layer(inputs=64, out=24, bias=True):
    made = Linear(inputs, out, bias)
    made.weight = Tensor(RANDOM.standard_normal((out, inputs)).astype(np.float32))
    return made


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("group", [8, 64])
def test_no_number_is_further_off_than_half_a_step(bits, group):
    linear = layer()
    weight = linear.weight.numpy()
    most = np.abs(weight.reshape(24, -1, group)).max(-1, keepdims=True)
    step = np.broadcast_to(most / (2 ** (bits - 1) - 1), (24, 64 // group, group))
    off = np.abs(QuantisedLinear(linear, bits, group).weight.numpy() - weight)
    assert (off <= step.reshape(24, 64) * 0.5001).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_the_product_is_that_with_the_rounded_weight(bits):
    linear, x = layer(), RANDOM.standard_normal((3, 64)).astype(np.float32)
    made = QuantisedLinear(linear, bits)
    wanted = x @ made.weight.numpy().T + linear.bias.numpy()
    np.testing.assert_allclose(made(Tensor(x)).numpy(), wanted, atol=1e-4)


def test_memory():
    linear = layer(1024, 8)
    assert QuantisedLinear(linear, 8, 64).nbytes() == 8 * 1024 + 4 * 8 * 16
    assert QuantisedLinear(linear, 4, 64).nbytes() == 8 * 1024 // 2 + 4 * 8 * 16


def test_a_row_of_zeros_stays():
    linear = layer(bias=False)
    linear.weight = Tensor.zeros(24, 64)
    assert QuantisedLinear(linear)(Tensor.ones(1, 64)).abs().max().item() == 0


def test_all_layers_of_a_model_that_are_meant():
    class Net:
        def __init__(self):
            self.layers = [layer(), {"inner": layer()}]
            self.head, self.odd, self.self = layer(), layer(inputs=33), self

    net = Net()
    assert quantise(net, 4, which=lambda name: name != "head") == ["layers.0", "layers.1.inner"]
    assert [type(part) for part in (net.layers[0], net.head, net.odd)] == [
        QuantisedLinear,
        Linear,
        Linear,
    ]


@pytest.mark.parametrize(("bits", "group"), [(3, 32), (8, 7), (4, 48)])
def test_what_is_not_legal_is_refused(bits, group):
    with pytest.raises(ArgumentError, match="legal are 4 or 8 bits, and an even group"):
        QuantisedLinear(layer(), bits, group)
