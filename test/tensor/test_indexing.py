"""Reading and writing parts against NumPy; gather and scatter against PyTorch."""

import numpy as np
import pytest
import torch
from tensor.check import check, close, has_large_sizes, numerics, value

from tinygrad import GlobalCounters
from tinygrad.base.errors import ArgumentError, DTypeError, IndexCheckError, ShapeError
from tinygrad.tensor import Tensor

X = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
I = np.array([0, 2, -1])  # noqa: E741
J = np.array([[1], [3]])
s_ = np.s_
KEYS = {
    "number": s_[1],
    "negative": s_[-1, -2],
    "slice": s_[1:3],
    "steps": s_[::2, 1::3, ::-1],
    "backwards": s_[3:0:-2, ::-1],
    "backwards far": s_[:, 4:-9:-3],
    "none and dots": s_[None, ..., 1:2, None],
    "empty": s_[2:2],
    "past the end": s_[1:99],
    "array": s_[I],
    "array after slice": s_[:, I],
    "two arrays": s_[I, I],
    "two broadcast": s_[J, I],
    "apart": s_[I, :, I],
    "number and array": s_[0, :, I],
    "beside": s_[0, I],
    "array of arrays": s_[:, J],
    "array and none": s_[None, I, None],
    "array and steps": s_[::-2, I, 1:5:2],
    "list": s_[[0, 2]],
    "range": s_[range(2)],
    "range on axis": s_[:, range(3, 0, -1)],
    "two ranges": s_[range(3), range(3)],
    "range of none": s_[range(0)],
    "mask": s_[np.array([True, False, True, False])],
    "mask on axis": s_[:, np.array([True, False, True, False, True])],
    "mask of two": s_[X[:, :, 0] > 40],
    "true": s_[True],
    "false": s_[False],
    "true and number": s_[True, 0],
    "number and true": s_[0, True],
    "dots and true": s_[..., True],
    "dots": s_[..., 0],
    "dots for no axis": s_[1:, 0, ..., I],
    "all": s_[...],
}
if not numerics().values:  # nobody knows there what a mask chooses
    KEYS = {name: key for name, key in KEYS.items() if "mask" not in name}


def ours_key(key):
    """A key of NumPy's with its arrays as tensors."""
    if isinstance(key, tuple):
        return tuple(ours_key(k) for k in key)
    return Tensor(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("name", KEYS)
def test_read(name):
    close(value(Tensor(X)[ours_key(KEYS[name])]), X[KEYS[name]])


def test_whole_numbers_are_read_as_floats_are():
    """True is no 1 there either, an array of one number is no number."""
    x, y = np.arange(6).reshape(2, 3), Tensor(np.arange(6).reshape(2, 3)).contiguous().realize()
    for key in (s_[True], s_[True, 0], s_[False], s_[np.array([1])], s_[np.array([[1]]), 0]):
        close(value(y[ours_key(key)]), x[key])
    close(value(y[torch.tensor([1])]), x[[1]])
    y[True], x[True] = 5, 5
    y[False], x[False] = 7, 7
    y[True, 1], x[True, 1] = 9, 9
    close(value(y), x)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_indices_are_computed_as_numbers_are(dtype):
    """Quotients are rounded down, remainders are positive, whichever numbers may come."""
    at = np.random.default_rng(0).integers(-90, 90, 200).astype(dtype)
    x, i = np.arange(64 * 48).reshape(64, 48), Tensor(at)
    close(value(Tensor(x)[i // 3, i % 5]), x[at // 3, at % 5])
    close(value(Tensor(x)[(i // 3).maximum(-5) % 7]), x[np.maximum(at // 3, -5) % 7])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_rows_that_indices_choose_are_multiplied_and_transposed(dtype):
    draw, size = np.random.default_rng(0), 160 if has_large_sizes() else 40
    x, i = draw.integers(-5, 5, (200, size)).astype(dtype), draw.integers(0, 200, size)
    rows, wide = Tensor(x)[Tensor(i)], {"int8": "int32"}.get(dtype, dtype)
    wanted = x[i].astype(wide) @ x[:size].astype(wide)  # sums of these are exact
    close(value(rows.cast(wide) @ Tensor(x[:size]).cast(wide)), wanted)
    close(value(rows.T + 1), x[i].T + 1)


READS = ["slice", "steps", "array", "two broadcast", "apart", "mask"]


@pytest.mark.parametrize("name", [name for name in READS if name in KEYS])
def test_read_has_a_gradient(name):
    key = KEYS[name]
    x = Tensor(X, requires_grad=True)
    part = x[ours_key(key)]
    weights = np.cos(np.arange(part.numel(), dtype=np.float32)).reshape(part.shape)
    expected = np.zeros_like(X)
    np.add.at(expected, key, weights)
    close(value((part * Tensor(weights)).sum().gradient(x)[0]), expected, atol=1e-5)


WRITES = ["number", "negative", "slice", "steps", "backwards", "none and dots", "array", "all"]
WRITES += ["two arrays", "two broadcast", "array after slice", "mask", "dots", "list"]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("name", [name for name in WRITES if name in KEYS])
def test_write(name, stored):
    key = KEYS[name]
    expected, x = X.copy(), Tensor(X)
    if stored:
        x.realize()
    new = -np.arange(expected[key].size, dtype=np.float32).reshape(expected[key].shape)
    expected[key] = new
    x[ours_key(key)] = Tensor(new)
    close(value(x), expected)


def test_write_numbers():
    x = Tensor.zeros(3, 4)
    x[1:, ::2] = 5
    x[0, 0] = 7
    x[x > 6] = 1
    expected = np.zeros((3, 4), np.float32)
    expected[1:, ::2] = 5
    expected[0, 0] = 1
    close(value(x), expected)


def test_write_passes_gradients():
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = Tensor([5.0], requires_grad=True)
    y = x * 2
    y[1:2] = v * v
    first, second = (y * Tensor([1.0, 10.0, 100.0])).sum().gradient(x, v)
    assert value(first).tolist() == [2.0, 0.0, 200.0]
    assert value(second).tolist() == [100.0]


def test_a_view_sees_its_base_and_the_other_way():
    x = Tensor([1.0, 2.0, 3.0, 4.0]).contiguous().realize()
    view = x[1:3]
    x[2] = 9.0
    assert view.tolist() == [2.0, 9.0]
    view[0] = 7.0
    assert x.tolist() == [1.0, 7.0, 9.0, 4.0]
    square = x.reshape(2, 2)
    square += 1
    assert x.tolist() == [2.0, 8.0, 10.0, 5.0]


def test_what_was_read_before_stays():
    x = Tensor([1.0, 2.0]).contiguous().realize()
    double = x * 2
    x[0] = 5.0
    assert (double.tolist(), x.tolist()) == ([2.0, 4.0], [5.0, 2.0])


def test_assign():
    x = Tensor([1.0, 2.0]).contiguous().realize()
    for _ in range(3):
        x.assign(x * 2 + x)
    assert x.tolist() == [27.0, 54.0]
    x += 1
    x *= Tensor([2.0, 0.5])
    assert x.tolist() == [56.0, 27.5]


# ---- gather and scatter --------------------------------------------------------------------------

INDEX = np.array([[0, 1, 2], [2, 0, 0]])


def test_gather():
    at = torch.tensor(INDEX)
    check(lambda x: x.gather(0, Tensor(INDEX)), lambda x: x.gather(0, at), (3, 4))
    check(lambda x: x.gather(1, Tensor(INDEX)), lambda x: x.gather(1, at), (3, 4))
    check(lambda x: x.gather(0, Tensor(0)), lambda x: x.gather(0, torch.tensor(0)), ())


def test_scatter():
    at = torch.tensor(INDEX)
    check(
        lambda x, s: x.scatter(0, Tensor([[0, 1, 2], [2, 0, 1]]), s),
        lambda x, s: x.scatter(0, torch.tensor([[0, 1, 2], [2, 0, 1]]), s),
        (3, 4),
        (2, 3),
    )
    check(
        lambda x, s: x.scatter(0, Tensor(INDEX), s, reduce="add"),
        lambda x, s: x.scatter_add(0, at, s),
        (3, 4),
        (2, 3),
    )


def test_scatter_last_update_wins_and_has_the_gradient():
    x, s = Tensor([0.0, 0.0], requires_grad=True), Tensor([5.0, 6.0, 7.0], requires_grad=True)
    out = x.scatter(0, Tensor([1, 1, 0]), s)
    assert value(out).tolist() == [7.0, 6.0]
    first, second = (out * Tensor([10.0, 100.0])).sum().gradient(x, s)
    assert value(first).tolist() == [0.0, 0.0]
    assert value(second).tolist() == [0.0, 100.0, 10.0]


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("how", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(how, include):
    at = torch.tensor(INDEX)
    check(
        lambda x, s: x.scatter_reduce(0, Tensor(INDEX), s, how, include_self=include),
        lambda x, s: x.scatter_reduce(0, at, s, how, include_self=include),
        (3, 4),
        (2, 3),
    )


def test_one_hot():
    assert value(Tensor([0, 2]).one_hot(3)).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_nonzero_and_masked_select():
    x = np.array([[0, 1], [2, 0]])
    assert Tensor(x).nonzero().tolist() == np.argwhere(x).tolist()
    assert Tensor(x).masked_select(Tensor(x > 0)).tolist() == [1, 2]


MISUSES = [
    (IndexCheckError, "legal are -3 to 2", lambda: Tensor.ones(3)[3]),
    (IndexCheckError, "1 indices", lambda: Tensor.ones(3)[0, 0]),
    (
        IndexCheckError,
        "index 3 .* legal are -3 to 2",
        lambda: value(Tensor([1, 2, 3])[Tensor([0, 3])]),
    ),
    (
        IndexCheckError,
        "index -4 .* legal are -3 to 2",
        lambda: value(Tensor([1, 2, 3])[Tensor([-4])]),
    ),
    (IndexCheckError, "range", lambda: value(Tensor([1, 2]).gather(0, Tensor([2])))),
    (IndexCheckError, "range", lambda: value(Tensor(3.0).gather(0, Tensor(1)))),
    (ArgumentError, "step 0", lambda: Tensor.ones(3)[::0]),
    (DTypeError, "ints and bools", lambda: Tensor.ones(3)[Tensor([0.5])]),
    (ArgumentError, "legal are numbers", lambda: Tensor.ones(3)["a"]),
    (ShapeError, "as many axes", lambda: Tensor.ones(3).gather(0, Tensor([[0]]))),
    (DTypeError, "src", lambda: Tensor.ones(3).scatter(0, Tensor([0]), Tensor([1]))),
    (ShapeError, "into a part", lambda: Tensor.ones(3).__setitem__(slice(0, 2), Tensor.ones(4, 3))),
    (ArgumentError, "gradient", lambda: Tensor.ones(3).assign(Tensor(1.0, requires_grad=True))),
    (DTypeError, "cast", lambda: Tensor.ones(3).assign(Tensor([1, 2, 3]))),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


def test_a_few_elements_of_storage_are_read_without_a_kernel():
    """Each would else be the call of a kernel, and the first ones have to be compiled."""
    x = Tensor(np.arange(24.0).reshape(2, 3, 4), device="CPU").realize()
    expected = x.numpy().copy()
    before = GlobalCounters.kernel_count
    read = [
        x[0, 1, 2].item(),
        *(row.tolist() for row in x[1]),
        x.permute(2, 1, 0)[1:, ::-1].numpy(),
    ]
    assert GlobalCounters.kernel_count == before
    wanted = [expected[0, 1, 2], *expected[1].tolist(), expected.T[1:, ::-1]]
    for mine, other in zip(read, wanted, strict=True):
        np.testing.assert_array_equal(mine, other)
    x += 1
    np.testing.assert_array_equal(read[-1], expected.T[1:, ::-1])
