"""Bessel's and Airy's functions, the incomplete gamma functions, Hurwitz's zeta function, and
orthogonal polynomials are SciPy's, mpmath's and PyTorch's."""

import math

import mpmath
import numpy as np
import pytest
import scipy.special as theirs
import torch
from tensor.check import check, lacks, value

from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.tensor import Tensor

NAN, INF = math.nan, math.inf

WAVES = {  # SciPy's, low, high, the size of the waves
    "bessel_j0": (theirs.j0, -30, 30, 0.3),
    "bessel_j1": (theirs.j1, -30, 30, 0.3),
    "bessel_y0": (theirs.y0, 0.01, 30, 0.3),
    "bessel_y1": (theirs.y1, 0.5, 30, 0.3),
    "spherical_bessel_j0": (lambda x: np.sinc(x / np.pi), -30, 30, 0.03),
    "airy_ai": (lambda x: theirs.airy(x)[0], -6, 2, 0.3),
}
FALLS = {  # SciPy's, low, high
    "modified_bessel_k0": (theirs.k0, 1e-3, 20),
    "modified_bessel_k1": (theirs.k1, 1e-3, 20),
    "scaled_modified_bessel_k0": (theirs.k0e, 1e-3, 90),
    "scaled_modified_bessel_k1": (theirs.k1e, 1e-3, 90),
    "airy_ai": (lambda x: theirs.airy(x)[0], 0, 4),
}
UNITS = {"float32": 24, "float64": 80}
"""Of the last place, that a result may be off."""


def away(name, function, low, high, dtype):
    x = np.linspace(low, high, 500).astype(dtype)
    wanted = function(x.astype(np.float64))
    return np.abs(value(getattr(Tensor(x), name)()) - wanted) / np.finfo(dtype).eps, wanted


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("name", WAVES)
def test_waves(name, dtype):
    function, low, high, size = WAVES[name]
    if not lacks(dtype):
        assert away(name, function, low, high, dtype)[0].max() <= UNITS[dtype] * size


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("name", FALLS)
def test_falls(name, dtype):
    if not lacks(dtype):
        off, wanted = away(name, *FALLS[name], dtype)
        assert (off / wanted).max() <= UNITS[dtype]


@pytest.mark.parametrize("x", [1e3, 1e5, 1e7])
def test_waves_far_out_keep_their_phase(x):
    wanted = float(mpmath.besselj(0, x))
    assert abs(value(Tensor([x]).bessel_j0())[0] - wanted) <= 2e-7 / math.sqrt(x)


@pytest.mark.parametrize(
    ("name", "slope"),
    [
        ("bessel_j0", lambda x: -theirs.j1(x)),
        ("bessel_j1", lambda x: theirs.j0(x) - theirs.j1(x) / x),
        ("bessel_y0", lambda x: -theirs.y1(x)),
        ("bessel_y1", lambda x: theirs.y0(x) - theirs.y1(x) / x),
        ("modified_bessel_k0", lambda x: -theirs.k1(x)),
        ("modified_bessel_k1", lambda x: -theirs.k0(x) - theirs.k1(x) / x),
        ("airy_ai", lambda x: theirs.airy(x)[1]),
    ],
)
def test_slopes(name, slope):
    if lacks("float64"):
        return
    at = np.linspace(0.1, 12, 70)
    x = Tensor(at, requires_grad=True)
    found = value(getattr(x, name)().sum().gradient(x)[0])
    np.testing.assert_allclose(found, slope(at), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [  # at 0, infinity, minus infinity, -1, NaN
        ("bessel_j0", [1, 0, 0, theirs.j0(1), NAN]),
        ("bessel_j1", [0, 0, 0, -theirs.j1(1), NAN]),
        ("bessel_y0", [-INF, 0, NAN, NAN, NAN]),
        ("bessel_y1", [-INF, 0, NAN, NAN, NAN]),
        ("spherical_bessel_j0", [1, 0, 0, math.sin(1), NAN]),
        ("modified_bessel_k0", [INF, 0, NAN, NAN, NAN]),
        ("modified_bessel_k1", [INF, 0, NAN, NAN, NAN]),
        ("scaled_modified_bessel_k0", [INF, 0, NAN, NAN, NAN]),
        ("scaled_modified_bessel_k1", [INF, 0, NAN, NAN, NAN]),
        ("airy_ai", [theirs.airy(0)[0], 0, 0, theirs.airy(-1)[0], NAN]),
    ],
)
def test_special_numbers(name, wanted):
    found = value(getattr(Tensor([0.0, INF, -INF, -1.0, NAN]), name)())
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", [*WAVES, *FALLS])
def test_shapes_and_types(name):
    function = getattr(torch.special, name)
    check(lambda x: getattr(x, name)(), function, (), low=0.1, high=0.4, grad=False)
    check(lambda x: getattr(x, name)(), function, (0, 3), grad=False)
    check(lambda x: getattr(x, name)(), function, [1, 2], dtype="int32", grad=False)


# ---- the incomplete gamma functions --------------------------------------------------------------


def drawn(dtype):
    """a and x: anywhere, of middle size, and close together."""
    r = np.random.default_rng(0)
    a = 10 ** np.concatenate([r.uniform(-8, 5, 500), r.uniform(-2, 2, 500), r.uniform(0, 5, 500)])
    near = a[1000:] * np.abs(1 + r.normal(size=500) * 3 / np.sqrt(a[1000:]))
    x = np.concatenate([10 ** r.uniform(-8, 5, 500), 10 ** r.uniform(-2, 2, 500), near])
    return a.astype(dtype), x.astype(dtype)


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma(name, dtype):
    if lacks(dtype):
        return
    a, x = drawn(dtype)
    function = theirs.gammainc if name == "igamma" else theirs.gammaincc
    found, wanted = value(getattr(Tensor(a), name)(Tensor(x))), function(*np.float64((a, x)))
    tiny = np.finfo(dtype).tiny
    units = np.abs(found - wanted) / (wanted + tiny) / np.finfo(dtype).eps
    # each unit of an exponent rounds, and SciPy's own are no better than 1e-13
    assert (units / (1 - np.log(wanted + tiny))).max() <= (40 if dtype == "float32" else 400)


@pytest.mark.parametrize("a, x", [(914227.78, 909819.26), (26.0, 13.5), (100.0, 80.0), (1e5, 99e3)])
def test_where_others_lose_digits(a, x):
    if not lacks("float64"):
        with mpmath.workdps(30):
            wanted = float(mpmath.gammainc(a, 0, x, regularized=True))
        found = value(Tensor(np.array([a])).igamma(Tensor(np.array([x]))))[0]
        assert abs(found / wanted - 1) < 2e-14


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_of_special_numbers(name):
    numbers = np.float32([0.0, -0.0, 1.0, INF, NAN, -1.0, 1e30, 1e-30, 50.0])
    a, x = (grid.ravel() for grid in np.meshgrid(numbers, numbers))
    exact = theirs.gammainc if name == "igamma" else theirs.gammaincc
    found, wanted = value(getattr(Tensor(a), name)(Tensor(x))), exact(*np.float64((a, x)))
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-38)


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_slopes_of_incomplete_gamma(name):
    if lacks("float64"):
        return
    a = np.array([0.01, 0.3, 1, 1.4, 2, 5, 20, 30, 100, 30])
    x = np.array([0.5, 0.1, 1, 2, 3, 4, 21, 29, 105, 5])
    ours = Tensor(a, requires_grad=True), Tensor(x, requires_grad=True)
    at, by = map(value, getattr(ours[0], name)(ours[1]).sum().gradient(*ours))
    there = torch.tensor(x, requires_grad=True)
    getattr(torch, name)(torch.tensor(a), there).sum().backward()
    np.testing.assert_allclose(by, there.grad, rtol=1e-10)
    exact = getattr(theirs, name.replace("i", "", 1).replace("gamma", "gammainc"))
    step = 1e-5 * a  # PyTorch has no slope by a
    np.testing.assert_allclose(
        at, (exact(a + step, x) - exact(a - step, x)) / (2 * step), 1e-6, 1e-12
    )


# ---- zeta ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", UNITS)
def test_zeta(dtype):
    if lacks(dtype):
        return
    r = np.random.default_rng(0)
    s = np.concatenate([1 + 10 ** r.uniform(-3, 3, 500), r.uniform(1.01, 30, 500)]).astype(dtype)
    q = np.concatenate([10 ** r.uniform(-3, 3, 500), r.uniform(0.01, 30, 500)]).astype(dtype)
    wanted = theirs.zeta(*np.float64((s, q)))
    legal = (wanted > np.finfo(dtype).tiny) & (wanted < np.finfo(dtype).max)
    found, wanted = value(Tensor(s).zeta(Tensor(q)))[legal], wanted[legal]
    units = np.abs(found / wanted - 1) / np.finfo(dtype).eps
    assert (units / (1 + np.abs(np.log(wanted)))).max() <= 4


@pytest.mark.parametrize(
    "s, q, wanted",
    [
        (1.0, 2.0, INF), (0.5, 2.0, NAN), (2.0, 0.0, INF), (2.0, -3.0, INF), (2.5, -3.5, NAN),
        (3.0, -1.5, float(torch.special.zeta(torch.tensor(3.0), torch.tensor(-1.5)))),
        (2.0, -1e-9, 1e18), (3.0, -1e-9, -1e27), (2.0, INF, 0.0), (INF, 1.0, 1.0), (INF, 2.0, 0.0),
        (NAN, 1.0, NAN), (1.0, NAN, NAN), (2.0, -INF, INF),
    ],
)  # fmt: skip
def test_zeta_of_special_numbers(s, q, wanted):
    np.testing.assert_allclose(value(Tensor([s]).zeta(Tensor([q]))), [wanted], rtol=1e-5)


def test_slopes_of_zeta():
    s, q = [1.5, 2.0, 3.0, 10.0, 2.0], [0.5, 2.0, 30.0, 1.3, -1.3]
    check(lambda q: Tensor(np.array(s)).zeta(q), lambda q: torch.special.zeta(torch.tensor(s), q),
        q, dtype="float64", rtol=1e-9)  # fmt: skip


def test_zeta_has_no_slope_by_a_power_that_must_be_whole():
    s = Tensor([2.0], requires_grad=True)
    assert np.isnan(value(s.zeta(-1.5).sum().gradient(s)[0])).all()


# ---- orthogonal polynomials ----------------------------------------------------------------------

FAMILIES = [name for name in dir(torch.special) if "polynomial" in name]


@pytest.mark.parametrize("name", FAMILIES)
def test_orthogonal_polynomials(name):
    function = getattr(torch.special, name)
    for n in (-1, 0, 1, 2, 3, 7):
        check(lambda x, n=n: getattr(x, name)(n), lambda x, n=n: function(x, n), (9,), grad=False,
            low=-0.9, high=1.5, rtol=1e-4, atol=1e-4)  # fmt: skip
    degrees = [-1, 0, 1, 2, 3, 4, 5, 6, 9]
    check(lambda x: getattr(x, name)(Tensor(degrees)), lambda x: function(x, torch.tensor(degrees)),
        (9,), grad=False, low=-0.9, high=1.5, rtol=1e-4, atol=1e-4)  # fmt: skip


def test_slopes_of_orthogonal_polynomials():
    x = Tensor([0.5, -2.0], requires_grad=True)
    slope = x.legendre_polynomial_p(3).sum().gradient(x)[0]  # of (5x³ - 3x) / 2
    np.testing.assert_allclose(value(slope), [7.5 * 0.25 - 1.5, 7.5 * 4 - 1.5], rtol=1e-6)


def test_misuse():
    with pytest.raises(ArgumentError, match="hermite_polynomial_h: n=1.5; legal is a whole number"):
        Tensor([1.0]).hermite_polynomial_h(1.5)
    x = Tensor([1.0], requires_grad=True)
    with pytest.raises(DTypeError, match="legendre_polynomial_p has none"):
        x.legendre_polynomial_p(Tensor([2])).backward()
    with pytest.raises(DTypeError, match="airy_ai: .*complex"):
        Tensor([1j]).airy_ai()
