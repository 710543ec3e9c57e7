"""Bessel functions of order 0 and 1, and Airy's.

Below 1.5 they are their power series. Beyond, all are one integral: with

    h(z) = ∫ exp(-t)·t^(n - 1/2)·(1 + z·t)^(n - 1/2) dt / Γ(n + 1/2)    from 0 to infinity

the decaying ones are exp(-x)·h(1/2x), and those that swing are the two parts of
exp(i·phase)·h(i/2x), both over √x. (Abramowitz and Stegun's Handbook, 1964: 9.1.10 to 9.1.13,
9.6.10 to 9.6.13 and 9.6.23; 10.4.2 and 10.4.14.) No table of numbers stands here: Chebyshev's
series of h in 1/x is fitted when it is first asked for, which takes milliseconds. Next to zeros
the error is small beside the size of the waves, not beside the value.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.tensor.functions import polynomial, wide
from tinygrad.tensor.long_tail.gamma import EULER
from tinygrad.tensor.long_tail.special import Special
from tinygrad.tensor.template import expressions

FLOATS = (dtypes.float32, dtypes.float64)
GROWING_SPLIT = {dtypes.float32: (9.0, 24, 9), dtypes.float64: (20.0, 46, 24)}
"""Of I: where the series in x ends; terms of it, and of that in 1/x."""
NEAR = 1.5  # where the power series of the others end
NEAR_TERMS = {dtypes.float32: 7, dtypes.float64: 12}
FAR_TERMS = {dtypes.float32: 14, dtypes.float64: 36}
AIRY_NEAR = (1.5 * NEAR) ** (2 / 3)  # where 2/3·x^(3/2) is NEAR
STEP = 1 / 16  # of the trapezoids that h is summed up by


def _growing_terms(order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of I(x) / (x/2)^order in (x/2)², and of I(x)·√(2πx)/exp(x) in 1/x. (A&S 9.6.10, 9.7.1.)"""
    near = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(46)]
    far = [1.0]
    for k in range(1, 24):
        far.append(far[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k))
    return tuple(near), tuple(far)


GROWING = (_growing_terms(0), _growing_terms(1))


def _harmonic(order: int) -> tuple[float, ...]:
    """The terms of I / (x/2)^order, each times the mean of the harmonic numbers of its factorials:
    what the second solutions have beside the logarithm. (A&S 9.1.13, 9.6.13.)"""
    sums = [0.0]
    for k in range(1, 48):
        sums.append(sums[-1] + 1 / k)
    terms = GROWING[order][0]
    return tuple(c * (sums[k] + sums[k + order]) / 2 for k, c in enumerate(terms))


HARMONIC = (_harmonic(0), _harmonic(1))


def _airy_terms(first: int) -> tuple[float, ...]:
    """Of Airy's equation y'' = x·y the solution that begins with x^first, over that, in x³."""
    terms = [1.0]
    for k in range(1, 20):
        n = 3 * k + first
        terms.append(terms[-1] / (n * (n - 1)))
    return tuple(terms)


AIRY = (_airy_terms(0), _airy_terms(1))
AIRY_AT_ZERO = 3 ** (-2 / 3) / math.gamma(2 / 3)
AIRY_SLOPE_AT_ZERO = -(3 ** (-1 / 3)) / math.gamma(1 / 3)


def _h(order: float, z: complex) -> complex:
    """The integral above, by t = exp(u - exp(-u)), which ends fast on both sides."""
    total: complex = 0
    for k in range(-100, 65):
        fall = math.exp(-k * STEP)
        t = math.exp(k * STEP - fall)
        power = t ** (order - 0.5) * (1 + z * t) ** (order - 0.5)
        total += t * (1 + fall) * math.exp(-t) * power
    return total * STEP / math.gamma(order + 0.5)


@functools.cache
def _h_series(order: float, turn: complex, count: int) -> tuple[tuple[float, ...], ...]:
    """The real and the imaginary part of h(turn/2x), x from NEAR, as Chebyshev's series in
    2·NEAR/x - 1."""
    turns = [math.cos(math.pi * k / (2 * count)) for k in range(4 * count)]
    values = [_h(order, turn * (turns[2 * k + 1] + 1) / (4 * NEAR)) for k in range(count)]
    terms = [
        [value * turns[n * (2 * k + 1) % (4 * count)] * 2 / count for k, value in enumerate(values)]
        for n in range(count)
    ]
    parts = (operator.attrgetter(name) for name in ("real", "imag"))
    return tuple(tuple(math.fsum(map(part, term)) for term in terms) for part in parts)


def _chebyshev(x: Any, terms: tuple[float, ...]) -> Any:
    """c0/2 + c1·T1(x) + c2·T2(x) .., by Clenshaw's rule."""
    twice = x + x
    last, out = 0.0, terms[-1]
    for c in reversed(terms[1:-1]):
        last, out = out, twice * out + (c - last)
    return x * out + (terms[0] / 2 - last)


def _waves(x: Any, order: int) -> tuple[Any, Any]:
    """√2 times cosine and sine of x - (order/2 + 1/4)·π, of x with all its bits."""
    sine, cosine = x.sin(), x.cos()
    even, odd = cosine + sine, sine - cosine
    return (odd, -even) if order else (even, odd)


@expressions
class Bessel(Special):
    """Of a float narrower than float32 in float32, rounded once; whole numbers become floats."""

    __slots__ = ()

    def _check_real(self, who: str) -> None:
        if self.dtype not in FLOATS:
            raise DTypeError(f"{who}: {self.dtype!r}; legal are real numbers")

    # ---- those that grow -------------------------------------------------------------------------

    @wide
    def i0(self) -> Self:
        """The modified Bessel function of the first kind and order 0. (A&S 9.6.12, 9.7.1.)

        >>> Tensor([0.0]).i0().tolist()
        [1.0]
        """
        return self._growing("i0", 0, is_scaled=False)

    @wide
    def i0e(self) -> Self:
        """`i0` over exp(|x|), which doesn't overflow.

        >>> Tensor([0.0]).i0e().tolist()
        [1.0]
        """
        return self._growing("i0e", 0, is_scaled=True)

    @wide
    def i1(self) -> Self:
        """The modified Bessel function of the first kind and order 1. (A&S 9.6.10, 9.7.1.)

        >>> Tensor([0.0]).i1().tolist()
        [0.0]
        """
        return self._growing("i1", 1, is_scaled=False)

    @wide
    def i1e(self) -> Self:
        """`i1` over exp(|x|), which doesn't overflow.

        >>> Tensor([0.0]).i1e().tolist()
        [0.0]
        """
        return self._growing("i1e", 1, is_scaled=True)

    modified_bessel_i0 = i0
    modified_bessel_i1 = i1

    def _growing(self, who: str, order: int, is_scaled: bool) -> Self:
        self._check_real(who)
        split, near_terms, far_terms = GROWING_SPLIT[self.dtype]
        in_x, in_inverse = GROWING[order]
        size = self.abs()
        near = size < split
        half = near.where(self, 0) * 0.5
        series = polynomial(half * half, in_x[:near_terms])
        series = series * half if order else series
        y = near.where(split, size if is_scaled else size.minimum(2000))
        far = polynomial(y.reciprocal(), in_inverse[:far_terms]) / (y * (2 * math.pi)).sqrt()
        if is_scaled:
            inside = near.where(size, 0)
            series = series * (-inside).exp()
        else:
            root = (y * 0.5).exp()  # twice, because the whole may overflow before it is divided
            far = self.isinf().where(math.inf, root * far * root)
        return near.where(series, (self < 0).where(-far, far) if order else far)

    # ---- those that swing ------------------------------------------------------------------------

    @wide
    def bessel_j0(self) -> Self:
        """The Bessel function of the first kind and order 0.

        >>> Tensor([0.0, 1.0]).bessel_j0().numpy().round(4)
        array([1.    , 0.7652], dtype=float32)
        """
        return self._swinging("bessel_j0", 0)

    @wide
    def bessel_j1(self) -> Self:
        """The Bessel function of the first kind and order 1.

        >>> Tensor([0.0, 1.0]).bessel_j1().numpy().round(4)
        array([0.    , 0.4401], dtype=float32)
        """
        return self._swinging("bessel_j1", 1)

    @wide
    def bessel_y0(self) -> Self:
        """The Bessel function of the second kind and order 0; minus infinity at 0, NaN below.

        >>> Tensor([0.0, 1.0]).bessel_y0().numpy().round(4)
        array([  -inf, 0.0883], dtype=float32)
        """
        return self._swinging("bessel_y0", 0, is_second=True)

    @wide
    def bessel_y1(self) -> Self:
        """The Bessel function of the second kind and order 1; minus infinity at 0, NaN below.

        >>> Tensor([0.0, 1.0]).bessel_y1().numpy().round(4)
        array([   -inf, -0.7812], dtype=float32)
        """
        return self._swinging("bessel_y1", 1, is_second=True)

    def _swinging(self, who: str, order: int, is_second: bool = False) -> Self:
        self._check_real(who)
        size = self.abs()
        near, endless = size < NEAR, size.isinf()
        x = (near | endless).where(NEAR, size)
        real, imaginary = _h_series(order, 1j, FAR_TERMS[self.dtype])
        place = x.reciprocal() * (2 * NEAR) - 1
        p, q = _chebyshev(place, real), _chebyshev(place, imaginary)
        cosine, sine = _waves(x, order)
        wave = p * sine + q * cosine if is_second else p * cosine - q * sine
        far = endless.where(0, wave / (x * math.pi).sqrt())
        far = self.isnan().where(self, far)
        if not is_second:
            far = (self < 0).where(-far, far) if order else far
            return near.where(self._first_near(near, order, -1), far)
        begins = self._second_near(near, order, -1) * (2 / math.pi)
        return (self < 0).where(math.nan, near.where(begins, far))

    def _first_near(self, near: Self, order: int, sign: int) -> Self:
        """J (`sign` -1) or I (1) below NEAR."""
        half = near.where(self, 0) * 0.5
        series: Self = polynomial(half * half * sign, self._near_terms(GROWING[order][0]))
        return series * half if order else series

    def _second_near(self, near: Self, order: int, sign: int) -> Self:
        """What Y (`sign` -1) and K (1) are beside a factor: infinite at 0."""
        inside = near & (self > 0)
        x = inside.where(self, 1)
        half = x * 0.5
        beside = polynomial(half * half * sign, self._near_terms(HARMONIC[order]))
        first = x._first_near(inside, order, sign)
        out: Self = (half.log() + EULER) * first - (beside * half if order else beside)
        out = out + x.reciprocal() * sign if order else out
        return self.eq(0).where(-math.inf if sign < 0 or not order else math.inf, out)

    def _near_terms(self, terms: tuple[float, ...]) -> tuple[float, ...]:
        return terms[: NEAR_TERMS[self.dtype]]

    @wide
    def spherical_bessel_j0(self) -> Self:
        """sin(x) / x, 1 at 0.

        >>> Tensor([0.0, 1.0]).spherical_bessel_j0().numpy().round(4)
        array([1.    , 0.8415], dtype=float32)
        """
        near, endless = self.abs() < 0.5, self.isinf()
        x = (near | endless).where(1, self)
        square = near.where(self, 0).square()
        series = polynomial(square, tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(8)))
        return near.where(series, endless.where(0, x.sin() / x))

    # ---- those that decay ------------------------------------------------------------------------

    @wide
    def modified_bessel_k0(self) -> Self:
        """The modified Bessel function of the second kind and order 0; infinite at 0, NaN below.

        >>> Tensor([0.0, 1.0]).modified_bessel_k0().numpy().round(4)
        array([  inf, 0.421], dtype=float32)
        """
        return self._decaying("modified_bessel_k0", 0, is_scaled=False)

    @wide
    def modified_bessel_k1(self) -> Self:
        """The modified Bessel function of the second kind and order 1; infinite at 0, NaN below.

        >>> Tensor([0.0, 1.0]).modified_bessel_k1().numpy().round(4)
        array([   inf, 0.6019], dtype=float32)
        """
        return self._decaying("modified_bessel_k1", 1, is_scaled=False)

    @wide
    def scaled_modified_bessel_k0(self) -> Self:
        """`modified_bessel_k0` times exp(x), which doesn't vanish.

        >>> Tensor([1.0]).scaled_modified_bessel_k0().numpy().round(4)
        array([1.1445], dtype=float32)
        """
        return self._decaying("scaled_modified_bessel_k0", 0, is_scaled=True)

    @wide
    def scaled_modified_bessel_k1(self) -> Self:
        """`modified_bessel_k1` times exp(x), which doesn't vanish.

        >>> Tensor([1.0]).scaled_modified_bessel_k1().numpy().round(4)
        array([1.6362], dtype=float32)
        """
        return self._decaying("scaled_modified_bessel_k1", 1, is_scaled=True)

    def _decaying(self, who: str, order: int, is_scaled: bool) -> Self:
        self._check_real(who)
        near = self < NEAR
        x = near.where(NEAR, self)
        series, _ = _h_series(order, 1, FAR_TERMS[self.dtype])
        far = _chebyshev(x.reciprocal() * (2 * NEAR) - 1, series) * (x * (2 / math.pi)).rsqrt()
        begins = self._second_near(near, order, 1)
        begins = begins if order else -begins
        if is_scaled:
            begins = begins * (near & (self > 0)).where(self, 0).exp()
        else:
            far = far * (-x).exp()
        return (self < 0).where(math.nan, near.where(begins, far))

    # ---- Airy's ----------------------------------------------------------------------------------

    @wide
    def airy_ai(self) -> Self:
        """Airy's function Ai: the solution of y'' = x·y that decays to the right.

        >>> Tensor([0.0, 1.0]).airy_ai().numpy().round(4)
        array([0.355 , 0.1353], dtype=float32)
        """
        self._check_real("airy_ai")
        size, count = self.abs(), FAR_TERMS[self.dtype]
        near, endless = size < AIRY_NEAR, size.isinf()
        inside = near.where(self, 0)
        cube = inside * inside * inside
        even, odd = (polynomial(cube, terms) for terms in AIRY)
        series = even * AIRY_AT_ZERO + inside * odd * AIRY_SLOPE_AT_ZERO
        y = (near | endless).where(AIRY_NEAR, size)
        root = y.sqrt()
        zeta = y * root * (2 / 3)
        place, below = zeta.reciprocal() * (2 * NEAR) - 1, self < 0
        p, q = (_chebyshev(place, part) for part in _h_series(1 / 3, 1j, count))
        cosine, sine = _waves(zeta, 0)
        swing = (p * cosine - q * sine) * math.sqrt(0.5)
        fall = _chebyshev(place, _h_series(1 / 3, 1, count)[0]) * (-zeta).exp() * 0.5
        far = below.where(swing, fall) * (root * math.pi).rsqrt()
        out: Self = near.where(series, self.isnan().where(self, endless.where(0, far)))
        return out
