"""What is found by value: each element once, how many of each, where a mask is true. All of it
against NumPy, sorted and counted, on the host and by kernels."""

from __future__ import annotations

import numpy as np
import pytest
from tensor.check import has_large_sizes, value

from tinygrad import GlobalCounters, Tensor

RNG = np.random.default_rng(0)
LONG = 5000  # sorted by a kernel's words, and more than are sorted at once


def numbers(low: int, high: int, size: int, dtype: str) -> np.ndarray:
    return RNG.integers(low, high, size, dtype=dtype)


def floats(size: int) -> np.ndarray:
    x = RNG.integers(-9, 9, size).astype(np.float32) / 2
    x[: min(size, 8)] = [np.nan, -0.0, 0.0, np.inf, -np.inf, -np.nan, 0.0, -0.0][:size]
    return x


SETS = {
    "none": np.zeros(0, np.float32),
    "one": np.array([3], np.int8),
    "axes": numbers(-3, 3, 24, "int16").reshape(2, 3, 4),
    "close, few": numbers(-128, 128, 90, "int8"),
    "close, at the end of 64 bits": numbers(2**64 - 40, 2**64, 300, "uint64"),
    "close, about the middle of 64 bits": numbers(2**63 - 40, 2**63 + 40, 300, "uint64"),
    "apart": numbers(-(2**62), 2**62, 50, "int64"),
    "long, close": numbers(0, 256, LONG, "uint8"),
    "long, apart": numbers(-(2**31), 2**31, LONG, "int32"),
    "long, over 32 bits": numbers(-(2**62), 2**62, LONG, "int64") // 3**36,
    "bools": RNG.random(LONG) < 0.5,
    "floats": floats(60),
    "long floats": floats(LONG),
}


@pytest.mark.parametrize("name", SETS)
def test_each_element_once(name):
    x = SETS[name]
    once, counts = np.unique(x, return_counts=True, equal_nan=False)
    found, each, many = Tensor(x).unique(return_inverse=True, return_counts=True)
    exact = {"equal_nan": x.dtype.kind == "f"}
    assert value(found).dtype == x.dtype and np.array_equal(value(found), once, **exact)
    assert value(many).tolist() == counts.tolist()
    assert each.shape == x.shape and np.array_equal(value(found)[value(each)], x, **exact)
    assert np.array_equal(value(Tensor(x).unique()), once, **exact)


def test_slices_once():
    x = numbers(0, 2, 60, "int32").reshape(20, 3)
    once, each, counts = np.unique(x, return_inverse=True, return_counts=True, axis=0)
    found = Tensor(x).unique(return_inverse=True, return_counts=True, dim=0)
    for ours, theirs in zip(found, (once, each.reshape(-1), counts), strict=True):
        assert np.array_equal(value(ours), theirs)


@pytest.mark.parametrize("size", [9, 300_000 if has_large_sizes() else 90])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "uint64"])
def test_counts_are_those_of_numpy(size, dtype):
    x = numbers(0, 50, size, dtype)
    weights = RNG.integers(0, 9, size).astype(np.float32)
    theirs = np.bincount(x.astype(np.int64), minlength=60)
    assert value(Tensor(x).bincount(minlength=60)).tolist() == theirs.tolist()
    theirs = np.bincount(x.astype(np.int64), weights)
    assert value(Tensor(x).bincount(Tensor(weights))).tolist() == theirs.tolist()


MASKED = [(7,), (3, 4), (2, 3, 4), (0,), (3, 0), (1000, 3)]


@pytest.mark.parametrize("shape", MASKED)
def test_a_mask_of_the_first_axes_takes_what_numpys_takes(shape):
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    for axes in range(1, x.ndim + 1):
        for share in (0.0, 0.5, 1.0):
            mask = RNG.random(shape[:axes]) < share
            found = Tensor(x)[Tensor(mask)]
            assert found.shape == x[mask].shape and np.array_equal(value(found), x[mask])
            where = Tensor(mask).nonzero()
            assert np.array_equal(value(where), np.argwhere(mask))
            each = Tensor(mask).nonzero(as_tuple=True)
            assert [value(t).tolist() for t in each] == [t.tolist() for t in np.nonzero(mask)]


def test_another_mask_finds_its_kernel_made():
    x = Tensor(np.arange(3000, dtype=np.float32).reshape(1000, 3)).realize()
    masks = [Tensor(np.arange(1000) < count) for count in (500, 501, 511)]
    assert x[masks[0]].shape == (500, 3)
    lowered = GlobalCounters.kernels_lowered
    assert [x[mask].shape[0] for mask in masks] == [500, 501, 511]
    assert GlobalCounters.kernels_lowered == lowered


def test_gradients_go_to_what_a_mask_took():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (x[x > 1] * Tensor([2.0, 3.0, 4.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("index", [[0, 2, 0, 1], [2], [-1, 0]])
def test_slices_are_written_along_any_axis(axis, index):
    x = RNG.integers(0, 9, (3, 4, 5)).astype(np.float32)
    part = RNG.integers(0, 9, np.take(x, index, axis).shape).astype(np.float32)
    at = tuple(index if i == axis % 3 else slice(None) for i in range(3))
    added = x.copy()
    np.add.at(added, at, part)
    assert np.array_equal(value(Tensor(x).index_add(axis, Tensor(index), Tensor(part))), added)
    copied = x.copy()
    for number, place in enumerate(index):  # of several the last counts
        np.moveaxis(copied, axis, 0)[place] = np.moveaxis(part, axis, 0)[number]
    assert np.array_equal(value(Tensor(x).index_copy(axis, Tensor(index), Tensor(part))), copied)
