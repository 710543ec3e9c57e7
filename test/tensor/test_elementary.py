"""The long tail of elementwise functions against PyTorch and SciPy: values, gradients, and what is
special: NaN, infinities, zeros of both signs, overflow."""

import math

import numpy as np
import pytest
import scipy.special
import torch
from tensor.check import check, close, to_numpy, value

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.engine.structure import resolved
from tinygrad.tensor import Tensor
from tinygrad.uop.op import Ops

NAN, INF = math.nan, math.inf
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.5, 1e-30, 3e38]
PAIRS = [list(x) for x in zip(*((a, b) for a in SPECIAL for b in SPECIAL), strict=True)]

TWO = {
    "hypot": torch.hypot,
    "atan2": torch.atan2,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "xlogy": torch.xlogy,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "heaviside": torch.heaviside,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "true_divide": torch.true_divide,
    "logical_xor": torch.logical_xor,
    "ge": torch.ge,
    "le": torch.le,
    "float_power": torch.float_power,
    "logaddexp": torch.logaddexp,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


@pytest.mark.parametrize("name", TWO)
def test_two_special_numbers(name):
    a, b = (np.array(x, np.float32) for x in PAIRS)
    found = value(getattr(Tensor(a), name)(Tensor(b)))
    wanted = to_numpy(TWO[name](torch.tensor(a), torch.tensor(b)))
    if name in ("fmod", "remainder", "floor_divide"):  # quotients of 2**46 and more: NaN
        with np.errstate(all="ignore"):
            small = ~(np.abs(a / b) > 2.0**46) | ~np.isfinite(a) | (b == 0)
        found, wanted = found[small], wanted[small]
    close(found, wanted, rtol=1e-5, atol=0)
    if name in ("atan2", "copysign", "nextafter"):
        kept = ~np.isnan(found)
        assert (np.signbit(found) == np.signbit(wanted))[kept].all()


SMOOTH = {
    "hypot": ((3, 4), (4,)),
    "atan2": ((3, 4), (3, 1)),
    "fmax": ((3, 4), (3, 4)),
    "fmin": ((2, 1), (3,)),
    "copysign": ((5,), (5,)),
    "logaddexp": ((5,), ()),
}


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("name", SMOOTH)
def test_two(name, dtype):
    grad = dtype != "float16"
    check(
        lambda a, b: getattr(a, name)(b),
        getattr(torch, name),
        *SMOOTH[name],
        dtype=dtype,
        grad=grad,
    )


ONE = {  # name: low, high, PyTorch's
    "erf": (-3, 3, torch.erf),
    "erfc": (-3, 5, torch.erfc),
    "erfinv": (-0.99, 0.99, torch.erfinv),
    "lgamma": (-4.6, 12, torch.lgamma),
    "digamma": (0.3, 12, torch.digamma),
    "i0": (-25, 25, torch.i0),
    "sinc": (-4, 4, torch.sinc),
    "logit": (0.05, 0.95, torch.logit),
    "frac": (-3, 3, torch.frac),
    "deg2rad": (-90, 90, torch.deg2rad),
    "rad2deg": (-3, 3, torch.rad2deg),
    "nan_to_num": (-3, 3, torch.nan_to_num),
    "atan": (-4, 4, torch.atan),
    "asin": (-0.95, 0.95, torch.asin),
    "acos": (-0.95, 0.95, torch.acos),
    "atanh": (-0.99, 0.99, torch.atanh),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ONE)
def test_one(name, dtype):
    low, high, theirs = ONE[name]
    exact = {"float64": 1e-13, "float32": 1e-5}[dtype]
    exact = {"digamma": 1e-8, "i0": None}.get(name, exact)  # PyTorch's own gradients are no better
    check(
        lambda x: getattr(x, name)(), theirs, (61,), low=low, high=high, dtype=dtype,
        rtol=exact, atol=1e-13 if dtype == "float64" else 6e-6,
    )  # fmt: skip


@pytest.mark.parametrize("name", [*ONE, "isposinf", "isneginf", "signbit", "abs"])
def test_one_special_number(name):
    theirs = getattr(torch, name)
    beyond = {"sinc": [3e38, 1.0], "i0": [INF, -INF]}.get(name, [])  # PyTorch says NaN
    numbers = [x for x in SPECIAL if x not in beyond]
    check(lambda x: getattr(x, name)(), theirs, numbers, grad=False, rtol=1e-5, atol=1e-30)


ACCURATE = {  # against SciPy, in units of the last place: float32, float64
    "erf": (scipy.special.erf, -7, 7, 2, 6),
    "erfc": (np.vectorize(math.erfc), -5, 9, 6, 6),
    "erfinv": (scipy.special.erfinv, -0.999, 0.999, 6, 8),
    "lgamma": (scipy.special.gammaln, 2.5, 40, 4, 4),
    "digamma": (scipy.special.digamma, 2, 40, 9, 9),
    "i0": (scipy.special.i0, -50, 50, 5, 12),
    "exp": (np.exp, -80, 80, 1, 1.1),
    "expm1": (np.expm1, -3, 3, 1.6, 2),
    "atan": (np.arctan, -20, 20, 2.2, 4),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACCURATE)
def test_accuracy(name, dtype):
    theirs, low, high, *most = ACCURATE[name]
    x = np.linspace(low, high, 500).astype(dtype)
    wanted = theirs(x.astype(np.float64))
    found = value(getattr(Tensor(x), name)())
    ulp = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(dtype))
    assert ulp.max() <= most[dtype == "float64"]


CIRCULAR = {"cos": (np.cos, 4), "tan": (np.tan, 8)}


@pytest.mark.parametrize("name", CIRCULAR)
@pytest.mark.parametrize("scale", [1, 3, 100, 1e4, 1e8, 1e30])
def test_accuracy_next_to_zeros_of_the_cosine(name, scale):
    theirs, most = CIRCULAR[name]
    rng = np.random.default_rng(0)
    x = (rng.normal(size=500) * scale).astype(np.float32)
    zeros = (np.round(x / np.pi) + 0.5) * np.pi
    x = np.array([-1.5707943, 0.0, *x, *zeros, *np.nextafter(zeros.astype(np.float32), INF)])
    x = x.astype(np.float32)
    wanted = theirs(x.astype(np.float64))
    found = value(getattr(Tensor(x), name)())
    ulp = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype("float32"))
    assert ulp.max() <= most


def test_gelu_is_off_by_little_of_its_argument():
    x = np.array([*np.linspace(-12, 12, 500), -1e30, -1e-30], np.float32)
    wanted = x.astype(np.float64) * scipy.special.ndtr(x.astype(np.float64))
    found = value(Tensor(x).gelu("none"))
    assert (np.abs(found - wanted) <= np.abs(x) * 1.6e-7).all()
    assert Tensor([INF]).gelu("none").item() == INF
    check(lambda x: x.gelu("none"), torch.nn.functional.gelu, (61,), low=-6, high=6, rtol=1e-5)
    check(lambda x: x.gelu("none"), torch.nn.functional.gelu, (61,), dtype="float64")


def test_parts_of_a_float():
    x = np.array([0.0, -0.0, 1.0, -3.7, 1e-42, 3e38, INF, -INF], np.float32)
    mantissa, power = Tensor(x).frexp()
    wanted = np.frexp(x)
    assert value(mantissa).tolist() == wanted[0].tolist()
    assert value(power).tolist() == wanted[1].tolist()
    back = value(mantissa.ldexp(power))
    assert back.tolist() == x.tolist()
    assert math.isnan(Tensor([NAN]).frexp()[0].item())
    check(lambda x: x.frexp()[0], lambda x: torch.frexp(x)[0], (9,))


@pytest.mark.parametrize("kind", ["float16", "float64"])
def test_next_number(kind):
    x = np.array([0.0, 1.0, -1.0, 5.0, 6e4], kind)
    for goal in (INF, -INF, 0.0):
        wanted = np.nextafter(x, np.array(goal, kind))
        assert value(Tensor(x).nextafter(goal)).tolist() == wanted.tolist()


def test_ldexp():
    check(lambda a, b: a.ldexp(b), np_ldexp, [1.5, 3.0, -2.0], [1, -3, 130], grad=False)


def np_ldexp(a, b):
    with np.errstate(all="ignore"):
        return torch.tensor(np.ldexp(a.numpy(), b.numpy().astype(int)))


def test_digamma_of_negative_numbers():
    x = np.linspace(-6.9, -0.1, 43)
    close(value(Tensor(x).digamma()), scipy.special.digamma(x), rtol=1e-11)
    assert np.isnan(value(Tensor([-1.0, -7.0]).digamma())).all()


@pytest.mark.parametrize(
    ("n", "dtype"),
    [*((n, "float64") for n in (0, 1, 2, 4, 7)), *((n, "float32") for n in (0, 1, 3))],
)
def test_polygamma(n, dtype):
    x = np.concatenate([np.linspace(-3.9, -0.1, 16), np.linspace(0.1, 40, 60)])
    exact = {"float64": 1e-9, "float32": 3e-4}[dtype]
    check(
        lambda x: x.polygamma(n), lambda x: torch.polygamma(n, x), list(x), dtype=dtype, rtol=exact
    )
    wanted = scipy.special.polygamma(n, x[16:])
    exact = {"float64": 2e-13, "float32": 6e-6}[dtype]
    np.testing.assert_allclose(value(Tensor(x[16:]).cast(dtype).polygamma(n)), wanted, exact)


def test_polygamma_of_large_orders_neither_underflows_nor_cancels():
    x = Tensor([50.0, 2.0, 0.5]).polygamma(30)
    wanted = scipy.special.polygamma(30, [50.0, 2.0, 0.5])
    np.testing.assert_allclose(value(x)[:2], wanted[:2], 2e-5)
    found = value(Tensor(np.float64([-1.5, -3.5])).polygamma(12))
    wanted = torch.polygamma(12, torch.tensor([-1.5, -3.5], dtype=torch.float64))
    np.testing.assert_allclose(found, wanted, 1e-3)  # of terms that are 10¹² as large


@pytest.mark.parametrize("n, pole", [(1, INF), (2, -INF), (3, INF)])
def test_poles_of_polygamma(n, pole):
    found = value(Tensor([0.0, -0.0, -1.0, -2.0, INF, NAN]).polygamma(n))
    np.testing.assert_array_equal(found, [pole] * 4 + [0, NAN])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_second_derivatives_of_polygamma(n):
    given = [-2.6, -0.5, 0.5, 3.0, 20.0]
    ours = Tensor(np.array(given), requires_grad=True)
    theirs = torch.tensor(given, dtype=torch.float64, requires_grad=True)
    (once,) = ours.polygamma(n).sum().gradient(ours)
    (wanted,) = torch.autograd.grad(torch.polygamma(n, theirs).sum(), theirs, create_graph=True)
    (wanted,) = torch.autograd.grad(wanted.sum(), theirs)
    np.testing.assert_allclose(value(once.sum().gradient(ours)[0]), wanted, 1e-9)


QUOTIENTS = (
    [5.3, -5.3, 1.0, 7.0, -7.5, 1e6, 0.3, -0.0],
    [0.1, 0.1, 0.1, -3.5, 2.5, 0.7, -0.1, 3.0],
)


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_remainders_are_exact(name, dtype):
    a, b = ([1e3 if x == 1e6 and dtype == "float16" else x for x in v] for v in QUOTIENTS)
    grad = name != "floor_divide" and dtype != "float16"
    check(lambda a, b: getattr(a, name)(b), getattr(torch, name), a, b, dtype=dtype, grad=grad,
          rtol=0, atol=0)  # fmt: skip


def test_whole():
    a, b = np.array([12, -18, 0, 0, 7]), np.array([8, 27, 5, 0, -7])
    for name in ("gcd", "lcm"):
        wanted = getattr(torch, name)(torch.tensor(a), torch.tensor(b))
        assert value(getattr(Tensor(a), name)(Tensor(b))).tolist() == wanted.tolist()
    with pytest.raises(DTypeError, match="ints"):
        Tensor([1.0]).gcd(2)


def test_numbers_for_none():
    x = [NAN, INF, -INF, 2.0]
    check(lambda x: x.nan_to_num(1.0, 2.0, 3.0), None, x, grad=False)
    check(lambda x: x.nan_to_num(), None, x, dtype="float16", grad=False)
    check(lambda x: x.nan_to_num(), None, x, dtype="float64", grad=False)


def test_derivatives_at_zero():
    """Where a function is made of pieces, its first and second derivative."""
    for name, first, second in (
        ("asinh", 1, 0), ("atanh", 1, 0), ("erf", 2 / math.sqrt(math.pi), 0),
        ("erfinv", math.sqrt(math.pi) / 2, 0), ("sinc", 0, -(math.pi**2) / 3), ("i0", 0, 0.5),
    ):  # fmt: skip
        x = Tensor(np.zeros(1), requires_grad=True)
        (once,) = getattr(x, name)().sum().gradient(x)
        twice = value(once.sum().gradient(x, materialize_grads=True)[0])
        np.testing.assert_allclose([value(once)[0], twice[0]], [first, second], atol=1e-12)
    x = Tensor(np.array([0.0, 3.0]), requires_grad=True)
    (once,) = x.hypot(1.5).sum().gradient(x)
    twice = value(once.sum().gradient(x)[0])
    np.testing.assert_allclose(twice, [1 / 1.5, 1.5**2 / 11.25**1.5])


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("asin", (-1.0, 1.0, 0.99)),
        ("acos", (-1.0, 1.0, 0.99)),
        ("acosh", (1.0, INF, 1e20)),
        ("atanh", (-1.0, 1.0, 2.0, INF)),
        ("cosh", (0.0, -0.0, INF, -800.0)),
        ("sinh", (0.0, INF, -800.0)),
        ("expm1", (0.0, INF, -INF, 800.0)),
        ("erfc", (INF, -INF, 0.0, 9.0)),
        ("erfinv", (-1.0, 1.0, 2.0, 0.99)),
        ("lgamma", (0.0, -0.0, INF, 0.4, -0.5, 30.0)),
        ("digamma", (0.0, -0.0, 0.4, -0.5, 30.0)),
        ("logit", (0.0, 1.0, -0.5, 2.0, 0.25)),
        ("sigmoid", (INF, -INF, 0.0, -0.0, 7.0, -7.0)),
        ("tanh", (INF, -INF, 0.0, -0.0, 0.5, -0.5, 0.4, 3.0, -3.0)),
    ],
)
def test_slopes_at_the_ends_of_domains(name, ends):
    ours, theirs = (
        Tensor(np.array(ends), requires_grad=True),
        torch.tensor(ends, dtype=torch.float64),
    )
    theirs.requires_grad_()
    (mine,) = getattr(ours, name)().sum().gradient(ours)
    (wanted,) = torch.autograd.grad(getattr(theirs, name)().sum(), theirs, create_graph=True)
    np.testing.assert_allclose(value(mine), wanted.detach().numpy(), 1e-7)
    if name != "logit":  # of which PyTorch's second is 0 where the first is NaN
        (mine,) = mine.sum().gradient(ours)
        (wanted,) = torch.autograd.grad(wanted.sum(), theirs)
        np.testing.assert_allclose(value(mine), wanted.numpy(), 1e-7)


def test_slopes_of_sigmoid_and_tanh_are_made_of_their_values_and_do_not_cancel():
    x = Tensor(np.linspace(-40, 40, 3001, dtype=np.float32), requires_grad=True)
    for made, steep in ((x.sigmoid(), 1), (x.tanh(), 2)):
        (slope,) = made.gradient(x, gradient=Tensor.ones_like(x))
        assert sum(n.op is Ops.FDIV for n in resolved(slope.uop).toposort()) == 1
        e = np.exp(-abs(value(x).astype(np.float64)) * steep)
        np.testing.assert_allclose(value(slope), steep**2 * e / (1 + e) ** 2, 1e-5)


def test_sides_of_an_infinite_triangle():
    x, y = (Tensor(np.array(v), requires_grad=True) for v in ([0.0, 3.0, -1.0], [0.0, 4.0, INF]))
    found = x.hypot(y).sum().gradient(x, y)
    np.testing.assert_array_equal(value(found[0]), [0, 0.6, 0])
    np.testing.assert_array_equal(value(found[1]), [0, 0.8, NAN])


def test_the_larger_of_two_zeros_is_positive():
    """In every order, in vectors and at their ends, of two and of many."""
    for size in (1, 19):
        minus, plus = (Tensor(np.full(size, x, np.float32)) for x in (-0.0, 0.0))
        for found in (minus.maximum(plus), plus.maximum(minus), minus.abs(), minus.maximum(0.0)):
            assert not np.signbit(value(found)).any()
        for found in (minus.minimum(plus), plus.minimum(minus), minus.maximum(minus)):
            assert np.signbit(value(found)).all()
    row = np.full((2, 33), -0.0, np.float32)
    row[1, 20] = 0.0
    assert np.signbit(value(Tensor(row).max(1))).tolist() == [True, False]


def test_combined():
    check(lambda a, b, c: a.addcmul(b, c, value=0.5), None, (3, 4), (4,), (3, 1))
    check(lambda a, b, c: a.addcdiv(b, c, value=2.0), None, (3, 4), (4,), (3, 1), low=0.5)
    check(lambda a: a.clamp_min(0.5), None, (7,))
    check(lambda a: a.clamp_max(0.5), None, (7,))
    check(lambda a: a.logit(0.2), None, [0.1, 0.5, 0.9])
    assert Tensor([2]).float_power(0.5).dtype is dtypes.float64


@pytest.mark.parametrize("name", ["erf", "erfc", "lgamma", "digamma", "erfinv", "i0", "sinc"])
def test_shapes_and_types(name):
    theirs = getattr(torch, name)
    check(lambda x: getattr(x, name)(), theirs, (), low=0.1, high=0.9)
    check(lambda x: getattr(x, name)(), theirs, (0, 3))
    check(
        lambda x: getattr(x, name)(), theirs, (5,), low=0.1, high=0.9, dtype="float16", grad=False
    )
    check(lambda x: getattr(x, name)(), theirs, [0, 1], dtype="int32", grad=False)


# ---- vectors, as NumPy's -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_convolutions_of_vectors(name, mode):
    x = np.cos(np.arange(12.0)).astype(np.float32)
    for n in range(1, 7):
        for m in range(1, 7):
            a, b = x[:n], x[6 : 6 + m]
            found = value(getattr(Tensor(a), name)(Tensor(b), mode))
            np.testing.assert_allclose(found, getattr(np, name)(a, b, mode), 1e-5, 1e-6)


def test_polyval():
    for p, x in (([1.0, 2.0, 3.0], 2.0), ([1, 2, 3], [[1.5, 2.0]]), ([4.0], [1.0, 2.0])):
        wanted = np.polyval(np.float32(p), np.float32(x))
        np.testing.assert_allclose(value(Tensor(p).polyval(Tensor(x))), wanted)


def test_misuse_of_vectors():
    with pytest.raises(ArgumentError, match="convolve: mode"):
        Tensor([1.0]).convolve(Tensor([1.0]), "half")
    with pytest.raises(ShapeError, match="correlate: .*legal are 1, 1 axes"):
        Tensor([[1.0]]).correlate(Tensor([1.0]))
    with pytest.raises(ShapeError, match="convolve: .*legal are elements"):
        Tensor([1.0]).convolve(Tensor([]))
