"""Numbers as in NumPy and PyTorch: one row a fact about NaN, infinities, signed zeros, overflow,
division, shifts, and tensors with no element or one."""

import enum
import math
import operator

import numpy as np
import pytest
import torch
from tensor.check import value

from tinygrad.base.errors import ArgumentError, DivisionCheckError, ShapeError
from tinygrad.tensor import Tensor

NAN, INF = math.nan, math.inf


def same(found, wanted):
    """Bit for bit but for NaN, whose sign and payload don't count."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape, (found, wanted)
    np.testing.assert_array_equal(found, wanted)
    if wanted.dtype.kind == "f":
        plain = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[plain], np.signbit(wanted)[plain])


# ---- floats: an operator, what it is of, and NumPy's answer --------------------------------------

EDGES = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-45], np.float32)
A, B = (x.reshape(-1) for x in np.meshgrid(EDGES, EDGES, indexing="ij"))
OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_on_special_numbers(name):
    with np.errstate(all="ignore"):
        wanted = OPERATORS[name](A, B)
    same(value(OPERATORS[name](Tensor(A), Tensor(B))), wanted)


ONE = {
    "neg": np.negative,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.round,
    "sqrt": np.sqrt,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "sign": np.sign,
}


@pytest.mark.parametrize("name", ONE)
def test_functions_of_special_numbers(name):
    x = np.append(EDGES, np.float32([0.5, -0.5, 1.5, -2.5, 8388609.0]))
    with np.errstate(all="ignore"):
        wanted = ONE[name](x)
    found = value(getattr(Tensor(x), name)())
    if name == "sign":  # of -0.0 it is 0.0, as NumPy says on some machines
        found, wanted = found + np.float32(0), wanted + np.float32(0)
    same(found, wanted)


@pytest.mark.parametrize("name", ["log1p", "expm1", "asinh", "acosh", "atanh", "sinh", "tan"])
def test_functions_keep_the_sign_of_zero_and_are_nan_where_they_are_not_defined(name):
    x = np.float32([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, -3.0, -1e6, -1e30, 1e30, 1e-30, -1e-30])
    x = x[np.abs(x) < 10] if name == "tan" else x
    wanted = getattr(torch, name)(torch.from_numpy(x)).numpy()
    found = value(getattr(Tensor(x), name)())
    np.testing.assert_allclose(found, wanted, 1e-6)
    plain = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[plain], np.signbit(wanted)[plain])


FLOAT_FACTS = [
    (lambda: Tensor([1e-45, -3e-45]).expm1(), [1e-45, -3e-45]),
    (lambda: Tensor([1e-45, -3e-45]).elu(), [1e-45, -3e-45]),
    (lambda: Tensor([NAN, 1.0]).max(), NAN),
    (lambda: Tensor([1.0, NAN]).min(), NAN),
    (lambda: Tensor([1.0, NAN]).sum(), NAN),
    (lambda: Tensor([INF, -INF]).sum(), NAN),
    (lambda: Tensor([INF, 1.0]).mean(), INF),
    (lambda: Tensor([NAN, 1.0]).maximum(2.0), [NAN, 2.0]),
    (lambda: Tensor([-0.0, 0.0]).max(), 0.0),
    (lambda: Tensor([0.0, -0.0]).min(), -0.0),
    (lambda: Tensor([1.0, NAN, INF]).argmax(), 1),
    (lambda: Tensor([1.0, NAN]).any(), True),
    (lambda: Tensor([NAN, 2.0]).sort()[0], [2.0, NAN]),
    (lambda: Tensor([NAN, 2.0]).clamp(0, 1), [NAN, 1.0]),
    (lambda: Tensor([NAN]).relu(), [NAN]),
    (lambda: Tensor([NAN]).bool(), [True]),
    (lambda: Tensor([-1000.0, 1000.0]).softmax(), [0.0, 1.0]),
    (lambda: Tensor([-INF, -INF]).logsumexp(), -INF),
    (lambda: Tensor([3e38, 3e38]).logsumexp(), 3e38),
    (lambda: Tensor([3e38]) * 10, [INF]),
    (lambda: Tensor([65504.0]).half() * 2, [INF]),
    (lambda: Tensor([0.0]) ** 0, [1.0]),
    (lambda: Tensor([NAN]) ** 0.0, [1.0]),
    (lambda: Tensor([-8.0]) ** (1 / 3), [NAN]),
    (lambda: Tensor([-0.0]) ** -1, [-INF]),
    (
        lambda: Tensor([7.0, -7.0, 7.0, -7.0]) % Tensor([3.0, 3.0, -3.0, -3.0]),
        [1.0, 2.0, -2.0, -1.0],
    ),
    (lambda: Tensor([7.0, -7.0]) // 2, [3.0, -4.0]),
    (lambda: Tensor([1e30, -1e30]).fmod(1.0140375), [NAN, NAN]),  # beyond two mantissas
    (lambda: Tensor([2.0**60, -(2.0**100)]) // 0.5, [2.0**61, -(2.0**101)]),  # no fraction
    (lambda: Tensor([1.0, -1.0, 0.0]) // 0.0, [INF, -INF, NAN]),
    (lambda: Tensor([1.0, INF]) % 0.0, [NAN, NAN]),
    (lambda: Tensor([-1.0]) % INF, [INF]),
    (lambda: Tensor([0.5, 1.5, 2.5, -0.5]).round(), [0.0, 2.0, 2.0, -0.0]),
    (
        lambda: Tensor([8388607.5, 8388609.0, 1e30, -1e30]).round(),
        [2.0**23, 2.0**23 + 1, 1e30, -1e30],
    ),
    (lambda: 1 / Tensor([-0.0, -0.3, 0.3]).round(), [-math.inf, -math.inf, math.inf]),
]


@pytest.mark.parametrize("number", range(len(FLOAT_FACTS)))
def test_floats(number):
    function, wanted = FLOAT_FACTS[number]
    found = value(function())
    same(found, np.asarray(wanted, found.dtype))


# ---- whole numbers -------------------------------------------------------------------------------

I8, I32, I64 = ({"dtype": f"int{n}"} for n in (8, 32, 64))
U8 = {"dtype": "uint8"}
LEAST, MOST = -(2**31), 2**31 - 1
WHOLE_FACTS = [
    (lambda: Tensor([MOST], **I32) + 1, [LEAST]),
    (lambda: Tensor([LEAST], **I32) - 1, [MOST]),
    (lambda: -Tensor([LEAST], **I32), [LEAST]),
    (lambda: Tensor([LEAST], **I32).abs(), [LEAST]),
    (lambda: Tensor([LEAST], **I32) // -1, [LEAST]),
    (lambda: Tensor([LEAST], **I32) % -1, [0]),
    (lambda: Tensor([2**16], **I32) * 2**16, [0]),
    (lambda: Tensor([127, -128], **I8) + Tensor([1, -1], **I8), [-128, 127]),
    (lambda: Tensor([0, 255], **U8) - Tensor([1, 255], **U8), [255, 0]),
    (lambda: Tensor([200], **U8) * 2, [144]),
    (lambda: Tensor([7, -7, 7, -7]) // Tensor([2, 2, -2, -2]), [3, -4, -4, 3]),
    (lambda: Tensor([7, -7, 7, -7]) % Tensor([3, 3, -3, -3]), [1, 2, -2, -1]),
    (lambda: Tensor([-7]).fmod(3), [-1]),
    (lambda: Tensor([1, 1, 1]) << Tensor([0, 31, 32]), [1, LEAST, 0]),
    (lambda: Tensor([-8, 8]) >> 1, [-4, 4]),
    (lambda: Tensor([1], **I64) << 63, [-(2**63)]),
    (lambda: ~Tensor([0, -1]), [-1, 0]),
    (lambda: Tensor([True, True]) + Tensor([True, False]), [True, True]),
    (lambda: Tensor([True, True]).sum(), 2),
    (lambda: Tensor([200, 100], **U8).sum(), 300),
    (lambda: Tensor([100, 100], **I8).sum(), 200),
    (lambda: Tensor([2**62, 2**62], **I64).sum(), -(2**63)),
    (lambda: Tensor([3e9, -3e9, NAN, INF]).cast("int32"), [MOST, LEAST, 0, MOST]),
    (lambda: Tensor([300, -1]).cast("uint8"), [44, 255]),
    (lambda: Tensor([-1], **I8).cast("uint32"), [2**32 - 1]),
    (lambda: Tensor([2**53 + 1], **I64) + 0, [2**53 + 1]),
    (lambda: Tensor([2, -2]) ** 3, [8, -8]),
    (lambda: Tensor([10], **I8) ** 3, [-24]),
]


@pytest.mark.parametrize("number", range(len(WHOLE_FACTS)))
def test_whole_numbers(number):
    function, wanted = WHOLE_FACTS[number]
    assert value(function()).tolist() == wanted


# ---- none, and one -------------------------------------------------------------------------------

EMPTY = {
    "sum": (lambda x: x.sum(), 0.0),
    "prod": (lambda x: x.prod(), 1.0),
    "mean": (lambda x: x.mean(), NAN),
    "var": (lambda x: x.var(), NAN),
    "any": (lambda x: x.any(), False),
    "all": (lambda x: x.all(), True),
    "sum 0": (lambda x: x.sum(0), []),
    "logsumexp": (lambda x: x.logsumexp(1), [-INF, -INF]),
    "sum 1": (lambda x: x.sum(1), [0.0, 0.0]),
    "cumsum": (lambda x: x.cumsum(1), [[], []]),
    "sort": (lambda x: x.sort(1)[0], [[], []]),
    "softmax": (lambda x: x.reshape(0, 2).softmax(), []),
    "cat": (lambda x: x.cat(Tensor.ones(2, 1), dim=1), [[1.0], [1.0]]),
    "matmul": (lambda x: x @ x.T, [[0.0, 0.0], [0.0, 0.0]]),
    "matmul 0": (lambda x: x.T @ x, []),
    "broadcast": (lambda x: x + Tensor.ones(2, 1), [[], []]),
    "index": (lambda x: x[:, Tensor([], dtype="int")], [[], []]),
    "pad": (lambda x: x.pad((1, 0)), [[0.0], [0.0]]),
    "where": (lambda x: (x > 0).where(x, 1), [[], []]),
    "exp": (lambda x: x.exp(), [[], []]),
    "flip": (lambda x: x.flip(1), [[], []]),
    "norm": (lambda x: x.norm(), 0.0),
    "diff": (lambda x: x.diff(), [[], []]),
    "unique": (lambda x: x.unique(), []),
    "nonzero": (lambda x: x.nonzero(), []),
}


@pytest.mark.parametrize("name", EMPTY)
def test_no_elements(name):
    function, wanted = EMPTY[name]
    found = value(function(Tensor.zeros(2, 0)))
    assert found.tolist() == wanted or (wanted != wanted and math.isnan(found))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "aminmax"])
def test_an_extreme_of_no_elements_is_an_error(name):
    for x, axes in ((Tensor.zeros(0), (None, 0)), (Tensor.zeros(2, 0), (None, 1))):
        for axis in axes:
            with pytest.raises(ArgumentError, match="no elements"):
                getattr(x, name)(axis)
    assert Tensor.zeros(2, 0).max(0).shape == (0,)


ZERO_D = [
    lambda x: x + x,
    lambda x: x.sum(),
    lambda x: x.max(),
    lambda x: x.mean(0),
    lambda x: x.softmax(0),
    lambda x: x.cumsum(0),
    lambda x: x.sort(0)[0],
    lambda x: x.reshape(1, 1),
    lambda x: x.flip(()) if isinstance(x, torch.Tensor) else x.flip(()),
    lambda x: x.unsqueeze(0),
    lambda x: x.squeeze(),
    lambda x: x.expand(3),
    lambda x: x.flatten(),
    lambda x: x[None],
    lambda x: x[...],
    lambda x: x.clamp(0, 1),
    lambda x: x.norm(),
    lambda x: x.logcumsumexp(0),
    lambda x: x.nanquantile(0.5),
    lambda x: x.diag_embed() if x.ndim else x,
]


@pytest.mark.parametrize("number", range(len(ZERO_D)))
def test_no_axes(number):
    found, wanted = ZERO_D[number](Tensor(2.5)), ZERO_D[number](torch.tensor(2.5))
    assert value(found).shape == tuple(wanted.shape)
    np.testing.assert_allclose(value(found), wanted.numpy(), rtol=1e-6)


LOUD = [
    (DivisionCheckError, lambda: Tensor([1]) // 0),
    (DivisionCheckError, lambda: Tensor([1]) % Tensor([0])),
    (ArgumentError, lambda: Tensor([2]) ** -1),
    (ShapeError, lambda: Tensor.zeros(2, 0) + Tensor.zeros(2, 3)),
    (ShapeError, lambda: Tensor.zeros(2, 0).reshape(3)),
    (TypeError, lambda: len(Tensor(1.0))),
]


@pytest.mark.parametrize(("error", "function"), LOUD)
def test_what_has_no_answer_is_an_error(error, function):
    with pytest.raises(error):
        value(function())
    assert value(Tensor([1, 2]).sum()) == 3  # and what comes next works


def test_chances():
    Tensor.manual_seed(3)
    drawn = value(Tensor.full((4000,), 0.3).bernoulli())
    assert set(drawn.tolist()) == {0.0, 1.0} and abs(drawn.mean() - 0.3) < 0.03
    assert abs(value(Tensor.ones(4000).bernoulli(0.8)).mean() - 0.8) < 0.03
    assert value(Tensor([0.0, 1.0]).bernoulli()).tolist() == [0.0, 1.0]
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        Tensor([1.0]).bernoulli(1.5)


def test_weights_of_a_row_that_is_masked_throughout_are_equal():
    """By the lowest finite number, as many programs have it; of minus infinity they are NaN."""
    tokens, width = 130, 16
    values = Tensor(np.random.default_rng(0).normal(size=(tokens, width)).astype(np.float32))
    earlier = Tensor.arange(tokens).reshape(1, -1) < Tensor.arange(tokens).reshape(-1, 1)
    for masked, first in ((np.finfo(np.float32).min, values.mean(0).numpy()), (-INF, NAN)):
        scores = earlier.where(values @ values.T, float(masked))
        result = (scores.softmax(1) @ values).numpy()
        np.testing.assert_allclose(result[0], np.broadcast_to(first, width), atol=1e-6)


def part(t, pads):
    """Four of five columns, padded."""
    return t[:, :4].pad(pads)


# sums of products in which an infinity that lies beside the elements in memory has no part
BESIDE = {
    "padded": lambda a, b: (part(a, (1, 1)) * part(b, (1, 1))).sum(1),
    "windows": lambda a, b: (part(a, (1, 1)).unfold(1, 3, 1) * part(b, (1, 1)).unfold(1, 3, 1)).sum(
        2
    ),
    "shifted": lambda a, b: (part(a, (0, 2))[:, 1:] * part(b, (0, 2))[:, 1:]).sum(1),
    "triangles": lambda a, b: (a.tril(-1) * b.tril(-1)).sum(1),
    "product": lambda a, b: part(a, (0, 1)) @ part(b, (0, 1)).T,
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_a_part_leaves_out_is_not_seen(name):
    a, b = np.ones((5, 5), np.float32), np.ones((5, 5), np.float32)
    a[:, 4] = INF
    found = BESIDE[name](Tensor(a).realize(), Tensor(b).realize())
    a[:, 4] = 7  # a number that nothing may depend on
    same(value(found), value(BESIDE[name](Tensor(a).realize(), Tensor(b).realize())))


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 200


class Metre(float):
    pass


@pytest.mark.parametrize(
    "values", [[Level.LOW, Level.HIGH], [[Metre(1.5)], [2]], [True, Level.LOW]]
)
def test_lists_of_numbers_of_other_classes(values):
    made, wanted = Tensor(values), torch.tensor(values)
    assert made.tolist() == wanted.tolist()
    assert made.dtype.fmt == ("f" if wanted.is_floating_point() else "i")
