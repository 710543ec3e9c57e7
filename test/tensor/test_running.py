"""Running sums, products and extremes: along any axis, shorter and longer than a vector, with NaN
and infinities, as accurate as a sum, in one pass over memory; and their gradients."""

import numpy as np
import pytest
from tensor.check import check, has_large_sizes, value

from tinygrad import Device, GlobalCounters, Tensor

SHAPES = [(1,), (7,), (16,), (33,), (1000,), (3, 257), (5, 40, 6), (2, 3, 70, 5)]
FUNCTIONS = {"cumsum": np.cumsum, "cumprod": np.cumprod}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_running(name, shape):
    x = 1 + 0.1 * np.random.default_rng(0).standard_normal(shape)
    for axis in range(len(shape)):
        ours = value(getattr(Tensor(x.astype(np.float32)), name)(axis))
        np.testing.assert_allclose(ours, FUNCTIONS[name](x, axis), rtol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int8", "bool"])
@pytest.mark.parametrize("shape", [(33,), (3, 257), (5, 40, 6)])
def test_the_largest_so_far_and_where(shape, dtype):
    x = np.random.default_rng(0).integers(0, 9, shape).astype(dtype)
    for axis in range(x.ndim):
        top, place = Tensor(x).cummax(axis)
        largest = np.maximum.accumulate(x, axis)
        assert np.array_equal(value(top), largest)
        line = np.expand_dims(
            np.arange(x.shape[axis]), tuple(i for i in range(x.ndim) if i != axis)
        )
        line = np.moveaxis(line.reshape(-1, *(1,) * (x.ndim - 1)), 0, axis)
        latest = np.maximum.accumulate(np.where(x == largest, line, 0), axis)
        assert np.array_equal(value(place), latest)


LOGICAL = {"max": np.logical_or, "add": np.logical_or, "mul": np.logical_and}


@pytest.mark.parametrize("monoid", LOGICAL)
def test_bools_so_far(monoid):
    x = (np.random.default_rng(0).random((5, 40)) > 0.9) ^ (monoid == "mul")
    for axis in range(2):
        found = Tensor(Tensor(x)._node.running(monoid, axis))
        assert np.array_equal(value(found), LOGICAL[monoid].accumulate(x, axis))


@pytest.mark.parametrize("size", [20, 16, 100])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_nothing_special_is_lost(special, size):
    x = np.ones(size, np.float32)
    x[size // 2] = special
    for column in (x, np.stack([x] * 40)[:, :]):
        for name, theirs in {**FUNCTIONS, "cummax": np.maximum.accumulate}.items():
            ours = getattr(Tensor(column), name)(-1)
            ours = ours[0] if name == "cummax" else ours
            np.testing.assert_array_equal(value(ours), theirs(column, -1))
            ours = getattr(Tensor(column.T.copy()), name)(0)
            ours = ours[0] if name == "cummax" else ours
            np.testing.assert_array_equal(value(ours), theirs(column.T, 0))


@pytest.mark.parametrize("size", [9, 2000])
def test_products_after_a_zero_are_zero(size):
    """However large those are that follow: they are not multiplied with each other first."""
    x = np.full((2, size), 1e30, np.float32)
    x[0, 0] = x[1, 3] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.cumprod(x, 1)
    assert np.array_equal(value(Tensor(x).cumprod(1)), wanted, equal_nan=True)
    assert np.array_equal(value(Tensor(x[0]).cumprod(0)), np.zeros(size))


@pytest.mark.parametrize("shape,axis", [((200_003,), 0), ((20_011, 7), 0), ((20_011, 32), 0)])
def test_a_running_sum_is_accurate(shape, axis):
    if not has_large_sizes():
        return
    x = np.random.default_rng(0).random(shape, np.float32)
    exact = np.cumsum(x.astype(np.float64), axis)
    assert np.max(np.abs(Tensor(x).cumsum(axis).numpy() - exact) / exact) < 1.3e-7


def test_errors_of_one_sign_do_not_add_up():
    if not has_large_sizes():
        return
    x = np.full(3_000_000, 0.1, np.float32)
    assert abs(Tensor(x).cumsum(0)[-1].item() / (np.float64(x[0]) * x.size) - 1) < 1.3e-7


@pytest.mark.parametrize("shape,axis", [((777, 999), 1), ((777, 999), 0), ((300_001,), 0)])
def test_one_pass_over_memory(shape, axis):
    x = Tensor(np.ones(shape, np.float32)).realize()
    before = GlobalCounters.global_mem
    x.cumsum(axis).realize()
    if has_large_sizes() and not Device.default.target.has_groups:  # these take it in blocks
        assert GlobalCounters.global_mem - before == 8 * x.numel()


def test_gradients():
    check(lambda x: x.cumsum(1) * x, lambda x: x.cumsum(1) * x, (3, 20))
    check(lambda x: x.cumprod(0), lambda x: x.cumprod(0), (5, 3))
    for zeros in ([2.0, 0.0, 3.0, 4.0], [2.0, 0.0, 3.0, 0.0, 5.0], [0.0, 1.5, 0.0]):
        check(lambda x: x.cumprod(0), lambda x: x.cumprod(0), zeros)
    check(lambda x: x.cummax(1)[0], lambda x: x.cummax(1)[0], (3, 20))
