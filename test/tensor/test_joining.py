"""Joining, splitting and turning; products by name; all against PyTorch and NumPy."""

import math

import numpy as np
import pytest
import torch
from tensor.check import check, close, to_numpy, value

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor import Tensor


def face(name):
    """`Tensor.name(list)` or `torch.name(list)` of the arguments."""
    return lambda *xs: getattr(Tensor if isinstance(xs[0], Tensor) else torch, name)(list(xs))


def spread(name):
    return lambda *xs: getattr(Tensor if isinstance(xs[0], Tensor) else torch, name)(*xs)


JOINED = {
    "vstack": [((3,), (3,)), ((2, 3), (1, 3)), ((0, 3), (2, 3)), ((2, 3, 2), (1, 3, 2))],
    "hstack": [((3,), (2,)), ((2, 3), (2, 1)), ((2, 1, 3), (2, 2, 3)), ((), ())],
    "dstack": [((3,), (3,)), ((2, 3), (2, 3)), ((2, 3, 1), (2, 3, 2)), ((), ())],
    "column_stack": [((3,), (3,)), ((2,), (2, 3)), ((), ())],
    "row_stack": [((3,), (3,))],
}


@pytest.mark.parametrize(("name", "shapes"), [(n, s) for n in JOINED for s in JOINED[n]])
def test_joined(name, shapes):
    check(face(name), None, *shapes)


SPREAD = {
    "block_diag": [((2, 3), (1, 2), (3,)), ((), (2, 2))],
    "cartesian_prod": [((3,), (2,), (4,)), ((3,),), ((0,), (2,))],
    "kron": [((2, 3), (3, 2)), ((3,), (2, 2)), ((2, 1, 2), (3, 2)), ((), (3,))],
    "outer": [((3,), (4,)), ((0,), (4,))],
    "inner": [((3,), (3,)), ((2, 3), (4, 3)), ((), (4,)), ((2, 0), (3, 0))],
    "vdot": [((5,), (5,))],
    "tensordot": [((2, 3, 4), (3, 4, 5))],
    "mm": [((2, 3), (3, 4)), ((2, 0), (0, 3))],
    "bmm": [((2, 3, 4), (2, 4, 5))],
    "mv": [((3, 4), (4,))],
    "addmm": [((4,), (2, 3), (3, 4)), ((2, 4), (2, 3), (3, 4))],
    "addmv": [((2,), (2, 3), (3,))],
    "addr": [((2, 3), (2,), (3,))],
    "baddbmm": [((2, 3, 5), (2, 3, 4), (2, 4, 5))],
    "addbmm": [((3, 5), (2, 3, 4), (2, 4, 5))],
    "cdist": [((2, 4, 3), (2, 5, 3)), ((4, 3), (1, 3))],
    "dist": [((3, 4), (4,))],
}


@pytest.mark.parametrize(("name", "shapes"), [(n, s) for n in SPREAD for s in SPREAD[n]])
def test_of_several(name, shapes):
    check(spread(name), None, *shapes)


ONE = {
    "atleast_1d": (lambda x: x.atleast_1d(), torch.atleast_1d, [(), (3,)]),
    "atleast_2d": (lambda x: x.atleast_2d(), torch.atleast_2d, [(), (3,), (2, 3)]),
    "atleast_3d": (lambda x: x.atleast_3d(), torch.atleast_3d, [(), (3,), (2, 3), (2, 3, 4)]),
    "fliplr": (lambda x: x.fliplr(), None, [(2, 3), (2, 3, 4)]),
    "flipud": (lambda x: x.flipud(), None, [(3,), (2, 3)]),
    "rot90": (lambda x: x.rot90(), None, [(2, 3), (2, 3, 4)]),
    "rot180": (lambda x: x.rot90(2, (0, 2)), None, [(2, 3, 4)]),
    "rot270": (lambda x: x.rot90(-1, (1, 0)), None, [(2, 3)]),
    "swapaxes": (lambda x: x.swapaxes(0, 1), None, [(2, 3)]),
    "movedim": (lambda x: x.movedim((0, 1), (-1, 0)), None, [(2, 3, 4)]),
    "moveaxis": (lambda x: x.moveaxis(0, -1), None, [(2, 3, 4)]),
    "mT": (lambda x: x.mT, None, [(2, 3, 4)]),
    "tile": (lambda x: x.tile((2, 1, 3)), None, [(2, 3), (1, 2, 1, 2)]),
    "trace": (lambda x: x.trace(), None, [(3, 3), (2, 4)]),
    "diag_embed": (lambda x: x.diag_embed(), None, [(3,), (2, 3)]),
    "diag_embed+": (lambda x: x.diag_embed(1, 0, 2), None, [(2, 3)]),
    "diag_embed-": (lambda x: x.diag_embed(-2), None, [(2, 3)]),
    "narrow": (lambda x: x.narrow(1, -2, 2), None, [(2, 3)]),
    "select": (lambda x: x.select(-1, 1), None, [(2, 3)]),
    "combinations": (
        lambda x: x.combinations(), lambda x: torch.combinations(x), [(4,), (1,)],
    ),
    "combinations3": (
        lambda x: x.combinations(3, True), lambda x: torch.combinations(x, 3, True), [(3,)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), [(n, s) for n in ONE for s in ONE[n][2]])
def test_of_one(name, shape):
    check(*ONE[name][:2], shape)


SPLITS = {
    "tensor_split 3": (lambda x: x.tensor_split(3), [(7,), (2, 3), (0, 2)]),
    "tensor_split at": (lambda x: x.tensor_split([1, 4, 3], 0), [(7,)]),
    "tensor_split beyond": (lambda x: x.tensor_split((-2, 9), 1), [(2, 5)]),
    "hsplit": (lambda x: x.hsplit(2), [(4,), (3, 4)]),
    "vsplit": (lambda x: x.vsplit([1]), [(3, 2)]),
    "dsplit": (lambda x: x.dsplit(2), [(2, 3, 4)]),
    "unbind": (lambda x: x.unbind(1), [(2, 3)]),
}


@pytest.mark.parametrize(("name", "shape"), [(n, s) for n in SPLITS for s in SPLITS[n][1]])
def test_split(name, shape):
    check(SPLITS[name][0], None, shape, grad=0 not in shape)


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_triangles(offset):
    for name in ("tril_indices", "triu_indices"):
        wanted = getattr(torch, name)(3, 4, offset)
        assert value(getattr(Tensor, name)(3, 4, offset)).tolist() == wanted.tolist()


def test_evenly_spaced():
    close(value(Tensor.logspace(-2, 3, 7)), to_numpy(torch.logspace(-2, 3, 7)))
    close(value(Tensor.logspace(0, 4, 5, 2.0)), to_numpy(torch.logspace(0, 4, 5, 2.0)))
    close(value(Tensor.geomspace(1, 1000, 4)), np.geomspace(1, 1000, 4).astype("float32"))
    assert value(Tensor.logspace(0, 5, 6, 3, dtype="int64")).tolist() == [1, 3, 9, 27, 81, 243]
    assert value(Tensor.geomspace(1, 1000, 4, dtype="int32")).tolist() == [1, 10, 100, 1000]
    close(value(Tensor.geomspace(-1, -8, 4)), np.geomspace(-1, -8, 4).astype("float32"))


ORDERS = ["fro", None, 0, 1, 2, 3, 0.5, -1, -2, math.inf, -math.inf]


@pytest.mark.parametrize("p", ORDERS)
def test_norm(p):
    grad = p != 0
    check(lambda x: x.norm(p), lambda x: torch.norm(x, 2 if p is None else p), (3, 4), grad=grad)
    if p not in ("fro", None):
        check(lambda x: x.norm(p, 1, True), None, (2, 3, 4), grad=grad)
        check(lambda x: x.norm(p, (0, 2)), None, (2, 3, 4), grad=grad, dtype="float64")


def test_norm_of_zero_has_gradient_zero():
    check(lambda x: x.norm(), None, [0.0, 0.0])
    check(lambda x: x.norm(2, 1), None, [[0.0, 0.0], [3.0, 4.0]])
    check(lambda a, b: a.cdist(b), torch.cdist, [[1.0, 2.0]], [[1.0, 2.0], [4.0, 6.0]])


@pytest.mark.parametrize("p", [0.0, 1.0, 3.0, math.inf])
def test_distances(p):
    check(
        lambda a, b: a.cdist(b, p), lambda a, b: torch.cdist(a, b, p), (4, 3), (5, 3), grad=p != 0
    )


def test_renorm():
    check(lambda x: x.renorm(2, 0, 1.0), None, (3, 4))
    check(lambda x: x.renorm(1, 1, 2.0), None, (3, 4))


@pytest.mark.parametrize(("count", "up"), [(None, False), (3, True), (0, True)])
def test_powers(count, up):
    x = np.array([1.0, -2.0, 0.5])
    assert value(Tensor(x).vander(count, up)).tolist() == np.vander(x, count, up).tolist()


def test_vector_products():
    for a, b in (((4, 3), (4, 3)), ((1, 3), (5, 3))):
        check(lambda a, b: a.cross(b), torch.linalg.cross, a, b)


def test_added_products():
    check(lambda a, b, c: a.addmm(b, c, beta=0.5, alpha=2.0), None, (2, 4), (2, 3), (3, 4))
    nothing = Tensor([math.nan, 1.0]).addmv(Tensor([[1.0, 2.0]] * 2), Tensor([1.0, 1.0]), beta=0)
    assert value(nothing).tolist() == [3.0, 3.0]
    check(lambda a, b: a.tensordot(b, ([0, 2], [1, 0])), lambda a, b: torch.tensordot(
        a, b, ([0, 2], [1, 0])), (2, 3, 4), (4, 2, 5))  # fmt: skip
    check(lambda a, b: a.tensordot(b, 0), lambda a, b: torch.tensordot(a, b, 0), (2,), (3,))
    check(lambda a, b: a.cross(b, 0), lambda a, b: torch.cross(a, b, 0), (3, 4), (3, 4))


MISUSES = [
    (ArgumentError, "legal is what divides", lambda: Tensor.ones(2, 3).hsplit(2)),
    (ArgumentError, "of one sign", lambda: Tensor.geomspace(-1, 1, 3)),
    (ArgumentError, "each once", lambda: Tensor.ones(2, 3).movedim((0, 0), (1, 0))),
    (ArgumentError, "legal are two", lambda: Tensor.ones(2, 3).rot90(1, (0, 0))),
    (ShapeError, "two axes or more", lambda: Tensor.ones(3).fliplr()),
    (ShapeError, "size 3", lambda: Tensor.ones(4).cross(Tensor.ones(4))),
    (ShapeError, "equal batches", lambda: Tensor.ones(2, 3, 4).bmm(Tensor.ones(3, 4, 5))),
    (ShapeError, "1, 1 axes", lambda: Tensor.ones(2, 2).outer(Tensor.ones(2))),
    (ShapeError, "equal sizes", lambda: Tensor.ones(2, 3).tensordot(Tensor.ones(2, 4), 1)),
    (ArgumentError, "order", lambda: Tensor.ones(2).norm("max")),
    (ArgumentError, "narrow", lambda: Tensor.ones(2).narrow(0, 1, 2)),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()
