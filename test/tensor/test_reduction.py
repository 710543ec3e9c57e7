"""Reductions, softmax, running reductions, sorting and matrix products against PyTorch."""

import math

import numpy as np
import pytest
import torch
from tensor.check import check, close, lacks, refused, value

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor import Tensor

AXES = [None, 0, 1, -1, (0, 2)]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "var", "std", "logsumexp"])
def test_reduce(name, axis, keepdim):
    theirs = {"max": "amax", "min": "amin"}.get(name, name)
    axes = tuple(range(3)) if axis is None else axis
    check(
        lambda x: getattr(x, name)(axis, keepdim=keepdim),
        lambda x: getattr(x, theirs)(axes, keepdim=keepdim),
        (3, 4, 5),
    )


def test_a_spread_of_0_has_no_gradient():
    check(lambda x: x.std(1), None, [[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]])
    check(lambda x: x.std_mean()[0], lambda x: torch.std_mean(x)[0], [3.0, 3.0])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_prod(axis):
    check(lambda x: x.prod(axis), None, (3, 4, 5))


def test_prod_with_zeros_has_the_right_gradient():
    check(lambda x: x.prod(), None, [2.0, 0.0, 3.0, 4.0, 5.0])
    check(lambda x: x.prod(), None, [2.0, 0.0, 0.0, 4.0])


def test_max_shares_ties():
    check(lambda x: x.max(), lambda x: x.amax(), [1.0, 3.0, 3.0, 2.0])


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name, axis):
    check(
        lambda x: getattr(x, name)(axis),
        lambda x: getattr(x, name)(axis),
        (5, 6),
        grad=False,
        same_dtype=False,
    )


def test_argmax_takes_the_first_and_nan():
    assert value(Tensor([1, 3, 3]).argmax()) == 1
    assert value(Tensor([1.0, math.nan, 3.0]).argmax()) == 1
    assert value(Tensor([True, False]).argmin()) == 1
    assert value(Tensor([0, 2**32 - 1], dtype="uint32").argmin()) == 0


def test_nan_and_empty():
    assert math.isnan(value(Tensor([1.0, math.nan]).max()))
    assert math.isnan(value(Tensor([math.nan, 1.0]).min()))
    assert value(Tensor([]).sum()) == 0
    assert value(Tensor([]).prod()) == 1
    assert value(Tensor.ones(0, 3).sum(0)).tolist() == [0, 0, 0]
    assert math.isnan(value(Tensor([]).mean()))


def test_any_and_all():
    x = [[0, 1], [0, 0]]
    assert value(Tensor(x).any(1)).tolist() == [True, False]
    assert value(Tensor(x).all()) == False  # noqa: E712
    assert value(Tensor([]).all()) == True  # noqa: E712


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis):
    check(lambda x: x.softmax(axis), None, (4, 6), high=80)
    check(lambda x: x.log_softmax(axis), None, (4, 6), high=80)


def test_softmax_of_infinities():
    x = [0.0, -math.inf, 1.0]
    check(lambda x: x.softmax(0), None, x, grad=False)
    assert value(Tensor([-math.inf, -math.inf]).logsumexp(0)) == -math.inf


def test_normalize():
    check(lambda x: x.normalize(), lambda x: torch.nn.functional.normalize(x), (3, 5))
    check(lambda x: x.normalize(0), lambda x: torch.nn.functional.normalize(x, 0), (3, 5))


@pytest.mark.parametrize("size", [1, 5, 64, 65, 200])
def test_cumsum(size):
    check(lambda x: x.cumsum(1), None, (2, size), atol=1e-5)


@pytest.mark.parametrize("size", [5, 70])
def test_running(size):
    check(lambda x: x.cumprod(0), None, (size,), low=0.9, high=1.1)
    check(lambda x: x.cummax(0)[0], lambda x: x.cummax(0)[0], (size,), grad=False)
    check(lambda x: x.cummin(0)[1].int(), lambda x: x.cummin(0)[1].int(), (size,), grad=False)
    check(lambda x: x.logcumsumexp(0), None, (size,), atol=1e-5)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 13])
def test_sort(size, descending):
    check(lambda x: x.sort(1, descending)[0], None, (2, size))


def test_sort_is_stable_and_nan_is_largest():
    values, places = Tensor([2.0, 1.0, 2.0, math.nan, 1.0]).sort()
    assert value(places).tolist() == [1, 4, 0, 2, 3]
    assert math.isnan(value(values)[-1])


def test_topk():
    check(lambda x: x.topk(3)[0], None, (2, 9))
    check(lambda x: x.topk(3, 0, largest=False)[0], None, (9, 2))


# ---- products ------------------------------------------------------------------------------------

PRODUCTS = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 3)),
    ((3, 0), (0, 2)),
    ((17, 33), (33, 9)),
]


@pytest.mark.parametrize(("a", "b"), PRODUCTS)
def test_matmul(a, b):
    check(lambda a, b: a @ b, None, a, b, atol=1e-5)


def test_matmul_of_other_types():
    check(lambda a, b: a @ b, None, (4, 30), (30, 3), dtype="float16", grad=False, atol=1e-2)
    check(lambda a, b: a @ b, None, (4, 30), (30, 3), dtype="float64")
    ints = [[1, 2], [3, 4]]
    check(lambda a, b: a @ b, None, ints, ints, dtype="int32")
    check(lambda a, b: a @ b, None, [[100, 100]], [[100], [100]], dtype="int8")
    for shapes in (((16, 4), (4, 17)), ((17, 3), (3, 16)), ((40, 4), (4, 70))):
        values = [np.arange(m * n).reshape(m, n) % 7 - 3 for m, n in shapes]  # one instruction deep
        check(lambda a, b: a @ b, None, *values, dtype="int8")


EINSUM = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ii->i", (3, 3)),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("i,j->ij", (2,), (3,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,jk", (2, 3), (3, 4)),
    ("...ij,jk->...ik", (2, 1, 3, 4), (4, 5)),
    ("i...,...j->ij...", (2, 3, 1), (4, 5)),
    ("...,...->...", (2, 3), (3,)),
    ("b...->...", (2, 3, 4)),
    ("...ii->...i", (2, 3, 3)),
    ("iij,jj->i", (2, 2, 3), (3, 3)),
    ("ii", (3, 3)),
    (",i->i", (), (3,)),
    ("ba", (2, 3)),
    ("i,i->", (4,), (4,)),
    ("ij,ij,ij->ij", (2, 3), (2, 3), (2, 3)),
    ("ik,jk->", (0, 3), (2, 3)),
    ("abc,cd,de->abe", (2, 1, 3), (3, 4), (4, 1)),
]


@pytest.mark.parametrize("case", EINSUM)
def test_einsum(case):
    formula, *shapes = case
    check(
        lambda *xs: Tensor.einsum(formula, *xs),
        lambda *xs: torch.einsum(formula, *xs),
        *shapes,
        atol=1e-5,
    )


def test_linear():
    check(lambda x, w, b: x.linear(w.T, b), torch.nn.functional.linear, (3, 4), (5, 4), (5,))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "mean", "cumsum", "cumprod"])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_a_dtype_is_that_of_the_operation(name, kind):
    """So the result isn't rounded as the input is."""
    x = np.cos(np.arange(12.0)).reshape(3, 4).astype("float16")
    if lacks(kind):
        return refused(getattr(Tensor(x), name)(1, dtype=kind).numpy)
    found = getattr(Tensor(x), name)(1, dtype=kind).numpy()
    wanted = getattr(torch.tensor(x), name)(1, dtype=getattr(torch, kind)).numpy()
    assert found.dtype == wanted.dtype
    close(found, wanted, rtol=2e-3 if kind == "float16" else 1e-6)


def test_digits_of_halves():
    """Times 10 to the fifth they would be infinite."""
    x = np.array([1.2345, -7.5, 100.0], "float16")
    close(Tensor(x).round(decimals=5).numpy(), torch.tensor(x).round(decimals=5).numpy(), rtol=0)


def test_no_elements_have_an_axis_that_may_be_cut():
    for sizes in ((1, -1), (3, -1), (-1, 3)):
        wanted = torch.zeros(0, 3).unflatten(1, sizes).shape
        assert Tensor.zeros(0, 3).unflatten(1, sizes).shape == tuple(wanted)


MISUSES = [
    (
        ShapeError,
        r"\(3, 4\) @ \(3, 4\).* 4, axis -2 .* 3",
        lambda: Tensor.ones(3, 4) @ Tensor.ones(3, 4),
    ),
    (ShapeError, "one axis", lambda: Tensor.ones(3, 4) @ Tensor(1.0)),
    (
        ShapeError,
        "sizes 3 and 4",
        lambda: Tensor.einsum("ij,jk->ik", Tensor.ones(2, 3), Tensor.ones(4, 2)),
    ),
    (ArgumentError, "operands", lambda: Tensor.einsum("ij,jk->ik", Tensor.ones(2, 3))),
    (ArgumentError, "-2 to 1", lambda: Tensor.ones(3, 4).sum(2)),
    (ArgumentError, "twice", lambda: Tensor.ones(3, 4).sum((0, 0))),
    (ArgumentError, "no elements", lambda: Tensor([]).max()),
    (ArgumentError, "0 to 2", lambda: Tensor([1, 2]).topk(3)),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


def test_a_long_sum_is_exact_enough():
    x = np.random.default_rng(0).random(100_000, np.float32)
    close(value(Tensor(x).sum()), np.float32(x.sum(dtype=np.float64)), rtol=1e-6)
