"""Arithmetic, comparison, rounding, functions and activations against PyTorch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tensor.check import check, close, lacks, refused, to_numpy, value

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DivisionCheckError, DTypeError, ShapeError
from tinygrad.tensor import Tensor

BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rsub": lambda a, b: 1 - a * b,
    "rdiv": lambda a, b: 2 / (a * b),
}
SHAPES = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2,)), ((0, 3), (3,)), ((), ())]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, shapes):
    check(BINARY[name], None, *shapes)


UNARY = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "exp": lambda x: x.exp(),
    "exp2": lambda x: x.exp2(),
    "expm1": lambda x: x.expm1(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tan": lambda x: x.tan(),
    "atan": lambda x: x.atan(),
    "sinh": lambda x: x.sinh(),
    "cosh": lambda x: x.cosh(),
    "tanh": lambda x: x.tanh(),
    "asinh": lambda x: x.asinh(),
    "erf": lambda x: x.erf(),
    "sigmoid": lambda x: x.sigmoid(),
    "relu": lambda x: x.relu(),
    "square": lambda x: x.square(),
    "trunc": lambda x: x.trunc(),
    "floor": lambda x: x.floor(),
    "ceil": lambda x: x.ceil(),
    "round": lambda x: x.round(),
    "sign": lambda x: x.sign(),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow-2": lambda x: x**-2,
    "rpow": lambda x: 2.5**x,
    "clamp": lambda x: x.clamp(-1, 0.5),
    "reciprocal": lambda x: x.reciprocal(),
    "lerp": lambda x: x.lerp(x * x, 0.3),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    check(UNARY[name], None, (5, 7), atol=3e-6)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "tanh", "sigmoid", "atan", "log1p"])
def test_double(name):
    check(lambda x: getattr(x, name)(), None, (33,), low=-0.9, dtype="float64", rtol=1e-12)


POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt"]


@pytest.mark.parametrize("name", POSITIVE)
def test_positive(name):
    check(lambda x: getattr(x, name)(), None, (5, 7), low=0.1, high=30)


@pytest.mark.parametrize("name", ["asin", "acos", "atanh"])
def test_within_one(name):
    check(lambda x: getattr(x, name)(), None, (5, 7), low=-0.95, high=0.95)


def test_acosh():
    check(lambda x: x.acosh(), None, (20,), low=1.1, high=50)


def test_pow_of_tensors():
    check(lambda a, b: a**b, None, (4, 5), (5,), low=0.1)


ACTIVATIONS = {
    "silu": (lambda x: x.silu(), F.silu),
    "gelu": (lambda x: x.gelu(), lambda x: F.gelu(x, approximate="tanh")),
    "quick_gelu": (lambda x: x.quick_gelu(), lambda x: x * torch.sigmoid(1.702 * x)),
    "leaky_relu": (lambda x: x.leaky_relu(), F.leaky_relu),
    "elu": (lambda x: x.elu(), F.elu),
    "celu": (lambda x: x.celu(1.3), lambda x: F.celu(x, 1.3)),
    "selu": (lambda x: x.selu(), F.selu),
    "softplus": (lambda x: x.softplus(), F.softplus),
    "logsigmoid": (lambda x: x.logsigmoid(), F.logsigmoid),
    "mish": (lambda x: x.mish(), F.mish),
    "softsign": (lambda x: x.softsign(), F.softsign),
    "relu6": (lambda x: x.relu6(), F.relu6),
    "hardswish": (lambda x: x.hardswish(), F.hardswish),
    "hardsigmoid": (lambda x: x.hardsigmoid(), F.hardsigmoid),
    "hardtanh": (lambda x: x.hardtanh(), F.hardtanh),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    check(*ACTIVATIONS[name], (6, 8), low=-7, high=7, atol=5e-6)


EXTREME = [-math.inf, -1e30, -200.0, -1e-20, -0.0, 0.0, 1e-20, 200.0, 1e30, math.inf, math.nan]
EXTREME_FUNCTIONS = ["sigmoid", "tanh", "exp", "relu", "log", "sqrt", "expm1", "log1p", "sinh"]
EXTREME_FUNCTIONS += ["cosh", "atan", "asinh", "abs", "sign", "floor", "round", "erf", "neg"]


@pytest.mark.parametrize("name", EXTREME_FUNCTIONS)
def test_extreme(name):
    """Infinities, NaN, zeros, tiny and large numbers."""
    if name == "sign":
        close(value(Tensor(EXTREME[:-1]).sign()), to_numpy(torch.tensor(EXTREME[:-1]).sign()))
    else:
        check(lambda x: getattr(x, name)(), None, EXTREME, grad=False, atol=0, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_natural_exponential_does_not_round_its_product(dtype):
    """The relative error is the same for all sizes, on the interpreter too."""
    x = np.linspace(-80, 80, 101).astype(dtype)
    if lacks(dtype):
        return refused(lambda: value(Tensor(x).exp()))
    found = value(Tensor(x).exp()).astype(np.longdouble)
    wrong = np.abs(found / np.exp(x.astype(np.longdouble)) - 1).max()
    assert wrong < 1.5 * np.finfo(dtype).eps


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "silu", "softplus", "logsigmoid", "gelu"])
def test_gradient_far_out(name):
    """Nothing that overflows on the way gets into the gradient."""
    x = Tensor([-200.0, -90.0, 0.0, 90.0, 200.0], requires_grad=True)
    found = value(getattr(x, name)().sum().gradient(x)[0])
    assert np.isfinite(found).all()


def test_relu_has_gradient_zero_at_zero():
    check(lambda x: x.relu(), None, [-1.0, 0.0, 1.0])


def test_abs_has_gradient_zero_at_zero():
    check(lambda x: x.abs(), None, [-1.0, 0.0, 1.0])


def test_maximum_shares_ties():
    check(lambda a, b: a.maximum(b), torch.maximum, [1.0, 2.0, 3.0, math.nan], [2.0, 2.0, 1.0, 1.0])


def test_minimum_shares_ties():
    check(lambda a, b: a.minimum(b), torch.minimum, [1.0, 2.0, 3.0], [2.0, 2.0, math.nan])


def test_logaddexp():
    check(lambda a, b: a.logaddexp(b), torch.logaddexp, (4, 5), (4, 5), high=90)


def test_copysign():
    check(
        lambda a, b: a.copysign(b), torch.copysign, [1.0, -2.0, 3.0], [-0.0, 0.0, -1.0], grad=False
    )


# ---- promotion -----------------------------------------------------------------------------------

PROMOTION = [
    ([1, 2], lambda x: x + 1, dtypes.int32),
    ([1, 2], lambda x: x + 1.0, dtypes.float32),
    ([True], lambda x: x + 1, dtypes.int32),
    ([True], lambda x: x * 1.0, dtypes.float32),
    ([1, 2], lambda x: x / 2, dtypes.float32),
    ([1, 2], lambda x: x == 2, dtypes.bool),
    ([1.0], lambda x: x < 2, dtypes.bool),
    ([1.0], lambda x: x.half() + 1.0, dtypes.half),
    ([1.0], lambda x: x.half() + x, dtypes.float32),
    ([1], lambda x: x.cast("int8") + x.cast("uint8"), dtypes.int16),
    ([1], lambda x: x.cast("int8") * 3, dtypes.int8),
    ([1], lambda x: x.mean(), dtypes.float32),
    ([1], lambda x: x.exp(), dtypes.float32),
    ([True], lambda x: x.sum(), dtypes.int32),
    ([1], lambda x: x.cast("uint8").sum(), dtypes.uint32),
    ([1.0], lambda x: x.half().sum(), dtypes.half),
    ([1], lambda x: x.argmax(), dtypes.int32),
    ([True], lambda x: x.where(1, 0), dtypes.int32),
    ([True], lambda x: x.where(1, 0.5), dtypes.float32),
]


@pytest.mark.parametrize(("data", "function", "dtype"), PROMOTION)
def test_promotion(data, function, dtype):
    assert function(Tensor(data)).dtype is dtype


# ---- whole numbers -------------------------------------------------------------------------------

NUMBERS = [-7, -6, -1, 0, 1, 6, 7]
WHOLE = {
    "//": (lambda a: a // 3, lambda a: a // 3),
    "%": (lambda a: a % 3, lambda a: a % 3),
    "% -3": (lambda a: a % -3, lambda a: a % -3),
    "r//": (lambda a: 100 // (a * 2 + 1), lambda a: 100 // (a * 2 + 1)),
    "fmod": (lambda a: a.fmod(4), lambda a: a.fmod(4)),
    "trunc": (
        lambda a: a.div(4, rounding_mode="trunc"),
        lambda a: a.div(4, rounding_mode="trunc"),
    ),
    "&": (lambda a: a & 5, lambda a: a & 5),
    "|": (lambda a: a | 8, lambda a: a | 8),
    "^": (lambda a: a ^ 3, lambda a: a ^ 3),
    "~": (lambda a: ~a, lambda a: ~a),
    "<<": (lambda a: a << 2, lambda a: a << 2),
    ">>": (lambda a: a >> 1, lambda a: a >> 1),
    "**": (lambda a: a**3, lambda a: a**3),
    "neg": (lambda a: -a, lambda a: -a),
    "abs": (lambda a: a.abs(), lambda a: a.abs()),
    "minimum": (lambda a: a.minimum(2), lambda a: a.minimum(torch.tensor(2, dtype=a.dtype))),
    "max": (lambda a: a.max(), lambda a: a.max()),
    "min": (lambda a: a.min(), lambda a: a.min()),
}


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
@pytest.mark.parametrize("name", WHOLE)
def test_whole(name, dtype):
    check(*WHOLE[name], NUMBERS, dtype=dtype)


def test_whole_to_whole_power():
    check(lambda a, b: a**b, None, [2, 3, -2, 0, 1], [5, 0, 3, 0, 9], dtype="int32")


def test_minus_of_unsigned_wraps():
    assert value(-Tensor([1, 2], dtype="uint8")).tolist() == [255, 254]


def test_a_number_beyond_a_dtype_compares_as_itself():
    small, unsigned = Tensor([100, -5], dtype="int8"), Tensor([2, 250], dtype="uint8")
    assert value(small < 1000).tolist() == value(small >= -1000).tolist() == [True, True]
    assert value(unsigned > -1).tolist() == value(unsigned < 300).tolist() == [True, True]
    assert value(unsigned == 258).tolist() == [False, False]
    assert value(unsigned != 258).tolist() == [True, True]


def test_a_number_beyond_a_dtype_divides_as_itself():
    small, unsigned = Tensor([100, -5], dtype="int8"), Tensor([2, 4], dtype="uint8")
    close(value(unsigned / -4), np.float32([-0.5, -1.0]))
    close(value(-4 / unsigned), np.float32([-2.0, -1.0]))
    close(value(small / 1000), np.float32([0.1, -0.005]))
    close(value(unsigned.copysign(-1)), np.float32([-2, -4]))
    close(value(small.hypot(1000)), np.float32([1004.98756, 1000.0125]))


def test_a_number_beyond_a_dtype_wraps_in_sums_and_products():
    small = Tensor([100, -5], dtype="int8")
    assert value(small + 1000).tolist() == [76, -29]
    assert value(1000 - small).tolist() == [-124, -19]
    assert value(small * 1000).tolist() == [-96, 120]


def test_hyperbolic_functions_reach_as_far_as_they_are_finite():
    for dtype, far in (("float16", 11.5), ("float32", 89.2), ("float64", 710.3)):
        if lacks(dtype):
            continue
        x = np.array([-far, -0.0, 1e-4, far], dtype)
        for name in ("sinh", "cosh"):
            wanted = getattr(np, name)(x.astype("float64")).astype(dtype)
            close(value(getattr(Tensor(x), name)()), wanted)
    check(lambda x: x.sinh(), None, [-20.0, -1.0, 0.0, 1e-3, 20.0], dtype="float64")
    check(lambda x: x.cosh(), None, [-20.0, -1.0, 0.0, 1e-3, 20.0], dtype="float64")


def test_sign_has_a_gradient_of_0():
    check(lambda x: x.sign(), None, [-2.0, 0.5, 3.0])


def test_floats_floor_and_modulo():
    numbers = [-7.5, -0.5, 0.0, 2.5, 7.0]
    check(lambda a: a // 2, None, numbers, grad=False)
    check(lambda a: a % 3, None, numbers, grad=False)


@pytest.mark.parametrize("function", [lambda a, b: a // b, lambda a, b: a % b])
def test_division_by_zero_is_loud(function):
    with pytest.raises(DivisionCheckError, match="zero"):
        value(function(Tensor([1, 2]), Tensor([1, 0])))


def test_casts():
    close(value(Tensor([1.9, -1.9, 300.0, math.nan]).cast("int8")), np.int8([1, -1, 127, 0]))
    close(value(Tensor([300, -1]).cast("uint8")), np.uint8([44, 255]))
    close(value(Tensor([0.0, 2.0, math.nan]).bool()), np.array([False, True, True]))
    assert value(Tensor([1.0]).bitcast("int")).tolist() == [1065353216]


def test_halves():
    check(lambda x: (x * 3 + 1).exp(), None, (20,), dtype="float16", grad=False)
    check(
        lambda x: x.bfloat16().tanh(),
        lambda x: x.bfloat16().tanh(),
        (20,),
        grad=False,
        same_dtype=False,
        atol=1e-2,
    )


def test_comparisons():
    numbers = [-1.0, 0.0, 1.0, math.nan, math.inf]
    for function in (
        lambda a: a < 0.5,
        lambda a: a <= 0,
        lambda a: a > 0,
        lambda a: a >= 1,
        lambda a: a == 1,
        lambda a: a != 1,
        lambda a: a.isnan(),
        lambda a: a.isinf(),
        lambda a: a.isfinite(),
    ):
        check(function, None, numbers, grad=False)


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 0.9, 1.0, 1.7, -0.2])
def test_lines_end_at_their_ends(weight):
    size = 10.0 ** np.arange(-4, 8)
    numbers = [np.float32(size), np.float32(size[::-1].copy() * 1.7)]
    for given in (lambda a: weight, lambda a: a.new_full((12,), weight)):
        check(lambda a, b: a.lerp(b, given(a)), None, *numbers, grad=False)  # noqa: B023
    a, b, c = (Tensor(x) for x in (*numbers, np.ones(12, np.float32)))
    assert a.lerp(b, 1.0).tolist() == a.lerp(b, c).tolist() == b.tolist()


def test_slopes_of_lines():
    check(lambda a, b, c: a.lerp(b, c), None, (3, 4), (3, 4), (4,))
    line = [Tensor(x, requires_grad=True) for x in (0.0, math.inf, 0.25)]
    assert [t.item() for t in line[0].lerp(*line[1:]).gradient(*line)] == [0.75, 0.25, math.inf]


def test_where_and_masked_fill():
    check(lambda a, b: (a > 0).where(a, b), lambda a, b: torch.where(a > 0, a, b), (3, 4), (4,))
    check(lambda a: a.masked_fill(a > 0, 5.0), None, (3, 4))


def test_a_limit_that_is_nan_makes_nan():
    values, limits = [1.0, -2.0, math.nan], [math.nan, 0.5, 0.0]
    x, given = torch.tensor(values), torch.tensor(limits)
    for name in ("min", "max"):
        found = Tensor(values).clamp(**{name: Tensor(limits)})
        np.testing.assert_array_equal(found.numpy(), x.clamp(**{name: given}).numpy())


def test_isclose():
    a, b = [1.0, 2.0, math.inf, math.nan], [1.0, 2.1, math.inf, math.nan]
    check(lambda a, b: a.isclose(b), torch.isclose, a, b, grad=False)
    assert Tensor(a[:1]).allclose(Tensor(b[:1]))


@pytest.mark.parametrize(
    ("error", "words", "function"),
    [
        (ShapeError, r"\(3,\) and \(4,\)", lambda: Tensor.ones(3) + Tensor.ones(4)),
        (DTypeError, "bool", lambda: Tensor([True]) - Tensor([True])),
        (DTypeError, "ints", lambda: Tensor([1.0]) & 1),
        (DTypeError, "object", lambda: Tensor([1.0]) + object()),
        (ArgumentError, "power", lambda: Tensor([2]) ** -1),
        (ArgumentError, "rounding_mode", lambda: Tensor([2]).div(1, rounding_mode="up")),
        (DTypeError, "unknown dtype", lambda: Tensor([2]).cast("float31")),
        (DTypeError, "size divides", lambda: Tensor([2]).bitcast("long")),
        (ArgumentError, "min", lambda: Tensor([2]).clamp()),
        (TypeError, "any", lambda: bool(Tensor([1, 2]))),
    ],
)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


def test_what_rounds_has_the_slope_0():
    x = Tensor([1.4, -2.5, 3e9])
    for function in (Tensor.round, Tensor.floor, Tensor.ceil, Tensor.trunc):
        assert function(x).sum().gradient(x)[0].tolist() == [0.0, 0.0, 0.0]
