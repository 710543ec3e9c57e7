"""Positions, sorting and choosing, exact against NumPy: every kind of type, NaN, infinities, zeros
of both signs, equal elements, odd sizes; and how often memory is read."""

import numpy as np
import pytest
import torch
from often import one_in
from tensor.check import has_large_sizes, value

from tinygrad import GlobalCounters, Tensor, TinyJit

SHAPES = [(1,), (7,), (1000,), (3, 257), (5, 40, 6), (4, 30, 3), (90, 2)]
TYPES = ["float64", "float16", "int32", "int64", "int8", "uint8", "uint32", "uint64"]
SPECIAL = [np.nan, -0.0, 0.0, np.inf, -np.inf, -np.nan, 0.0, -0.0, np.nan]


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different numbers, so that many are equal; floats with all that is special."""
    kind = np.dtype(dtype)
    x = np.random.default_rng(1).integers(-5, 6, shape).astype(kind)  # unsigned ones wrap
    if kind.kind == "f" and x.size > len(SPECIAL):
        x.reshape(-1)[: len(SPECIAL)] = SPECIAL
    return x


def order_of(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Places in order, equal ones as they come; NaN counts as the largest."""
    rank = np.unique(x, return_inverse=True)[1].reshape(x.shape)  # one number for all NaN
    return np.argsort(-rank if descending else rank, axis, kind="stable")


CASES = [(shape, "float32") for shape in SHAPES] + [
    (shape, dtype) for dtype in TYPES for shape in ((3, 257), (40, 3))
]


@pytest.mark.parametrize("shape,dtype", one_in(2, CASES))
def test_positions_and_order(shape, dtype):
    x = numbers(shape, dtype)
    for axis in range(x.ndim):
        assert np.array_equal(value(Tensor(x).argmax(axis)), np.argmax(x, axis))
        for descending in (False, True):
            order = order_of(x, axis, descending)
            values, places = Tensor(x).sort(axis, descending)
            assert np.array_equal(value(places), order)
            in_order = np.take_along_axis(x, order, axis)
            assert np.array_equal(value(values), in_order, equal_nan=x.dtype.kind == "f")
            k = min(3, x.shape[axis])
            chosen = value(Tensor(x).topk(k, axis, largest=descending)[1])
            assert np.array_equal(chosen, np.take(order, range(k), axis))


SELECTED = [(1,), (4,), (5,), (300,), (7, 33), (3, 5003)]


@pytest.mark.parametrize(
    "shape,dtype",
    one_in(2, [(shape, "float32") for shape in SELECTED])
    + one_in(2, [(shape, dtype) for dtype in TYPES for shape in ((4,), (7, 33), (3, 5003))]),
)
def test_the_kth_is_that_of_a_sort(shape, dtype):
    """Its place is the first of equals, in rows longer than four. Each is computed alone, and of
    other types with its place."""
    x = numbers(shape, dtype)
    order = order_of(x, -1, False)
    for k in {1, 2, shape[-1] // 3 + 1, shape[-1]} & {*range(shape[-1] + 1)}:
        found = Tensor(x).kthvalue(k)
        if dtype != "float32":
            Tensor.realize(*found)
        values, places = map(value, found)
        wanted = np.take_along_axis(x, order[..., k - 1 : k], -1)[..., 0]
        assert np.array_equal(values, wanted, equal_nan=x.dtype.kind == "f")
        found = np.take_along_axis(x, places[..., None], -1)[..., 0]
        assert np.array_equal(found, wanted, equal_nan=x.dtype.kind == "f")


@pytest.mark.parametrize("dtype", ["int64", "float64", "uint64", "bfloat16", "float16", "int8"])
def test_the_kth_of_numbers_that_fill_their_type(dtype):
    rng = np.random.default_rng(5)
    bits = rng.integers(-(1 << 63), (1 << 63) - 1, 2001, dtype=np.int64)
    x = Tensor(bits).bitcast(dtype if dtype.endswith("64") else "int16")
    x = x if dtype.endswith("64") else x.cast("int8") if dtype == "int8" else x.bitcast(dtype)
    wide = value(x.cast("float64") if "float" in dtype else x)
    for k in (1, 2, 777, 1500, 2001):
        found = value(x.kthvalue(k)[0].cast("float64") if "float" in dtype else x.kthvalue(k)[0])
        assert np.array_equal(found, np.sort(wide)[k - 1], equal_nan="float" in dtype), k


def test_the_gradient_of_a_median_goes_to_one_element():
    for size in (4, 101):
        data = np.random.default_rng(2).permutation(3 * size).reshape(3, size).astype(np.float32)
        x, theirs = Tensor(data), torch.tensor(data, requires_grad=True)
        theirs.median(1)[0].square().sum().backward()
        (found,) = x.median(1)[0].square().sum().gradient(x)
        assert np.array_equal(value(found), theirs.grad.numpy())


@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_of_a_sort_of_few(axis):
    data = np.random.default_rng(3).integers(0, 3, (3, 3)).astype(np.float32)
    weight = np.arange(9, dtype=np.float32).reshape(3, 3)
    x, theirs = Tensor(data), torch.tensor(data, requires_grad=True)
    (theirs.sort(dim=axis, stable=True)[0] * torch.tensor(weight)).sum().backward()
    (found,) = (x.sort(axis)[0] * Tensor(weight)).sum().gradient(x)
    assert np.array_equal(value(found), theirs.grad.numpy())


def test_argmin_takes_the_first_of_equals():
    assert value(Tensor([2.0, -0.0, 0.0]).argmin()) == 1
    assert value(Tensor([[3, 1], [1, 1]]).argmin(1)).tolist() == [1, 0]


SPANS = [(0, 1), (0, 300), (-(1 << 31), 1 << 31), (5, 6 + (1 << 33)), (-(1 << 63), (1 << 63) - 1)]


@pytest.mark.parametrize("size", [5003, 17_003])
@pytest.mark.parametrize("low,high", SPANS)
def test_rows_whose_ranks_have_any_span_are_sorted(low, high, size):
    """Few bits beside a place, half a word, more than a word has room for, and all of them."""
    rng = np.random.default_rng(3)
    x = rng.integers(low, high, (2, size))
    x[:, 1], x[:, -1] = low, high - 1
    x[:, 2000:3000] = x[:, :1000]
    for kind in ("int64", "int32"):
        row = x.astype(kind)
        order = order_of(row, 1, False)
        places = value(Tensor(row).sort()[1])
        assert np.array_equal(places, order)
        chosen = value(Tensor(row).topk(7, largest=False)[1])
        assert np.array_equal(chosen, order[:, :7])


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01])
def test_ranks_that_only_their_low_bits_tell_apart_are_sorted(share):
    """These have no room beside a place; `share` of the row differs in them alone."""
    rng = np.random.default_rng(4)
    x = rng.integers(-(1 << 62), 1 << 62, (2, 5003))
    near = rng.random(x.shape) < share
    x[near] = rng.integers(0, 100, near.sum())
    x[:, 0] = 1 << 62
    assert np.array_equal(value(Tensor(x).sort()[1]), order_of(x, 1, False))


def test_choosing_among_many_looks_at_blocks():
    x = np.random.default_rng(2).permutation(100_003).astype(np.int32)
    values, places = Tensor(x).topk(9)
    assert value(values).tolist() == list(range(100_002, 99_993, -1))
    assert np.array_equal(x[value(places)], value(values))


@pytest.mark.parametrize("size", [4096, 5003])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_of_equal_ones_in_several_blocks_the_first_are_chosen(size, dtype):
    x = np.stack([numbers((size,), dtype), np.full(size, np.array(-1).astype(dtype))])
    for largest in (False, True):
        chosen = value(Tensor(x).topk(40, largest=largest)[1])
        assert np.array_equal(chosen, order_of(x, 1, largest)[:, :40])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", one_in(2, [1, 8, 9, 16, 17]))
@pytest.mark.parametrize("shape", [(18,), (3, 1000), (2, 5003)])
def test_few_are_chosen_in_the_order_of_a_sort(shape, k, dtype):
    """By rounds or by the host: of equal ones the first, NaN the largest."""
    x = np.random.default_rng(4).integers(-2, 3, shape).astype(dtype)
    x[..., 1::7], x[..., 2::7], x[..., 3::7] = np.nan, np.inf, -0.0
    for largest in (False, True):
        chosen = value(Tensor(x).topk(k, largest=largest)[1])
        assert np.array_equal(chosen, order_of(x, -1, largest)[..., :k])


@pytest.mark.parametrize("shape", [(5000,), (9, 600)])
@pytest.mark.parametrize("dtype", ["float32", *TYPES])
def test_many_are_chosen_in_the_order_of_a_sort(shape, dtype):
    """Of many elements the first `k` are selected before these are put in order."""
    x = numbers(shape, dtype)
    for largest in (False, True):
        chosen = value(Tensor(x).topk(30, largest=largest)[1])
        assert np.array_equal(chosen, order_of(x, -1, largest)[..., :30])


def test_many_are_chosen_of_numbers_that_fill_64_bits():
    x = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (6, 1000))
    x[:, :3] = [[-(2**63), 2**63 - 1, 0]]
    for largest in (False, True):
        chosen = value(Tensor(x).topk(40, largest=largest)[1])
        assert np.array_equal(chosen, order_of(x, -1, largest)[..., :40])


def test_the_gradient_of_a_choice_goes_to_the_chosen():
    x = Tensor(np.random.default_rng(2).permutation(5003).astype(np.float32))
    values, places = x.topk(3)
    (found,) = (values * Tensor([1.0, 2.0, 3.0])).sum().gradient(x)
    assert value(found)[value(places)].tolist() == [1.0, 2.0, 3.0]
    assert np.count_nonzero(value(found)) == 3


@pytest.mark.parametrize("shape,axis", [((777, 999), 1), ((999, 777), 0), ((300_001,), 0)])
def test_a_position_takes_one_pass_over_memory(shape, axis):
    x = Tensor(np.ones(shape, np.float32)).realize()
    before = GlobalCounters.global_mem
    x.argmax(axis).realize()
    if has_large_sizes():
        assert GlobalCounters.global_mem - before < 1.02 * 4 * x.numel()


FOUND = {  # what has a value and its place
    "sort": lambda x: x.sort(-1),
    "topk": lambda x: x.topk(2, -1),
    "kthvalue": lambda x: x.kthvalue(2, -1),
    "median": lambda x: x.median(-1),
    "nanmedian": lambda x: x.nanmedian(-1),
    "mode": lambda x: x.mode(-1),
    "cummax": lambda x: x.cummax(-1),
    "cummin": lambda x: x.cummin(-1),
}


@pytest.mark.parametrize("name", FOUND)
def test_results_have_pytorchs_names(name):
    find, data = FOUND[name], [[3.0, 1.0, 3.0, 2.0], [2.0, 5.0, 2.0, 4.0]]
    theirs = find(torch.tensor(data))
    for found in (find(Tensor(data)), find(Tensor(data).realize()), TinyJit(find)(Tensor(data))):
        assert found.values.tolist() == found[0].tolist() == theirs.values.tolist()
        assert found.indices.tolist() == found[1].tolist()
    assert name == "mode" or found[1].shape == theirs.indices.shape


def test_results_are_tuples():
    values, places = Tensor([3, 1]).sort()
    assert (values.tolist(), places.tolist()) == ([1, 3], [1, 0])


ALONG = {
    "sort": (lambda x, axis: x.sort(axis), lambda x, axis: (np.sort(x, axis), np.argsort(x, axis))),
    "argsort": (lambda x, axis: (x.argsort(axis),), lambda x, axis: (np.argsort(x, axis),)),
    "topk": (
        lambda x, axis: x.topk(2, axis, largest=False),
        lambda x, axis: (
            np.take(np.sort(x, axis), (0, 1), axis),
            np.take(np.argsort(x, axis), (0, 1), axis),
        ),
    ),
}


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ALONG)
def test_results_along_any_axis_lie_in_order_so_that_a_reshape_is_a_view_of_them(
    kind, axis, is_computed
):
    x = np.random.default_rng(2).permutation(24).astype("float32").reshape(2, 3, 4)
    ours, theirs = ALONG[kind]
    for again in range(3):  # also by a plan that is known
        for found, wanted in zip(ours(Tensor(x), axis), theirs(x, axis), strict=True):
            if is_computed:
                found.realize()
            found.reshape(-1)[1:5] = 7
            wanted.reshape(-1)[1:5] = 7
            assert np.array_equal(value(found), wanted), again


def test_what_was_sorted_is_free_afterwards():
    """The shapes of a sort's results were remembered with its arguments, and so their memory."""

    def sort(size):
        x = Tensor.rand(size).realize()
        for each in (*x.sort(), *x.topk(9), x.median()):
            each.realize()

    sort(5000)
    before = GlobalCounters.mem_used
    sort(5001)
    assert GlobalCounters.mem_used - before <= 64
