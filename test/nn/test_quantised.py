"""Weights of 8 and 4 bits: rounded to the nearest, a fraction of the memory."""

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.base.errors import ArgumentError
from tinygrad.nn import Linear
from tinygrad.nn.quantised import IntegerLinear, QuantisedLinear, quantise

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
    linear, x = layer(), RANDOM.standard_normal((11, 64)).astype(np.float32)
    made = QuantisedLinear(linear, bits)
    wanted = x @ made.weight.numpy().T + linear.bias.numpy()
    for rows in (11, 3, 1):
        found = made(Tensor(x[:rows])).numpy()
        np.testing.assert_allclose(found, wanted[:rows], atol=1e-4)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("out", [1, 67, 200, 1100])  # panels of 1, 4, 8, and 64 with some added
def test_any_number_of_outputs(bits, out):
    linear, x = layer(32, out), RANDOM.standard_normal((2, 2, 32)).astype(np.float32)
    made = QuantisedLinear(linear, bits)
    assert made.weight.shape == (out, 32)
    assert np.abs(made.weight.numpy() - linear.weight.numpy()).max() < (0.02 if bits == 8 else 0.4)
    wanted = x @ made.weight.numpy().T + linear.bias.numpy()
    np.testing.assert_allclose(made(Tensor(x)).numpy(), wanted, atol=1e-4)


def test_few_rows_of_a_narrow_type_are_computed_in_float32():
    linear = layer(bias=False)
    linear.weight = linear.weight.cast("bfloat16")
    made = QuantisedLinear(linear, 8)
    x = Tensor(RANDOM.standard_normal((11, 64)).astype(np.float32)).cast("bfloat16")
    one, many = made(x[2:3]), made(x)[2:3]
    assert one.dtype == many.dtype == x.dtype
    np.testing.assert_allclose(one.float().numpy(), many.float().numpy(), rtol=0.03, atol=0.1)


def rounded(x, group):
    """The inputs as 8 bits a number hold them."""
    groups = x.reshape(len(x), -1, group)
    step = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    return (np.round(groups / np.where(step == 0, 1, step)) * step).reshape(x.shape)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("rows", "inputs", "group"), [(1, 512, 32), (3, 96, 32), (1, 64, 64), (5, 80, 8), (2, 6144, 32)]
)
def test_whole_numbers_give_the_product_of_what_was_rounded(bits, rows, inputs, group):
    linear, x = layer(inputs), RANDOM.standard_normal((rows, inputs)).astype(np.float32)
    weight = QuantisedLinear(linear, bits, group).weight.numpy()
    wanted = rounded(x, group) @ weight.T + linear.bias.numpy()
    found = IntegerLinear(linear, bits, group)(Tensor(x)).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    exact = x @ weight.T + linear.bias.numpy()
    assert np.abs(found - exact).mean() < 0.02 * np.abs(exact).mean()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(("rows", "inputs", "group"), [(33, 512, 32), (40, 80, 8)])
def test_many_inputs_are_not_rounded(bits, rows, inputs, group):
    linear, x = layer(inputs), RANDOM.standard_normal((rows, inputs)).astype(np.float32)
    wanted = x @ QuantisedLinear(linear, bits, group).weight.numpy().T + linear.bias.numpy()
    found = IntegerLinear(linear, bits, group)(Tensor(x)).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_whole_numbers_of_zeros_and_of_more_axes():
    x = np.zeros((2, 3, 64), np.float32)
    x[1, 2] = RANDOM.standard_normal(64)
    linear = layer(bias=False)
    found = IntegerLinear(linear, 4)(Tensor(x)).numpy()
    assert found.shape == (2, 3, 24) and not found[0].any() and found[1, 2].any()


@pytest.mark.parametrize("out", [1, 6, 23])
def test_whole_numbers_of_any_number_of_outputs(out):
    linear, x = layer(64, out), RANDOM.standard_normal((2, 64)).astype(np.float32)
    wanted = rounded(x, 32) @ QuantisedLinear(linear, 4).weight.numpy().T + linear.bias.numpy()
    np.testing.assert_allclose(IntegerLinear(linear, 4)(Tensor(x)).numpy(), wanted, atol=1e-4)


def test_long_rows_lie_in_parts_unless_these_would_be_short():
    parts = {n: IntegerLinear(layer(n, 4), 4).numbers.shape[0] for n in (2048, 8192, 11008)}
    assert parts == {2048: 1, 8192: 4, 11008: 1}


def test_memory():
    linear = layer(1024, 8)
    assert IntegerLinear(linear, 4, 64).nbytes() == 8 * 1024 // 2 + 4 * 8 * 16
    assert IntegerLinear(linear, 8, 64).nbytes() == 8 * 1024 + 4 * 8 * 16


def test_memory_of_rounded_weights():
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


@pytest.mark.parametrize(("bits", "group"), [(3, 32), (8, 6), (4, 4), (8, 48)])
def test_what_whole_numbers_cannot_be_is_refused(bits, group):
    with pytest.raises(ArgumentError, match="legal are 4 or 8 bits, and a group that divides"):
        IntegerLinear(layer(), bits, group)


def test_inputs_are_rounded_where_that_is_asked_for():
    net = {"first": layer()}
    assert quantise(net, 4, inputs=8) == ["first"] and type(net["first"]) is IntegerLinear
    with pytest.raises(ArgumentError, match="legal are 8, or None"):
        quantise(net, 4, inputs=4)
