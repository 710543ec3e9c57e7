"""Functions of two numbers: the incomplete gamma functions, and Hurwitz's zeta function.

Of the gamma functions' a and x: where a is large and x near it, Temme's uniform expansion; below,
where x is less than a or small, the power series, and elsewhere the continued fraction. Each has as
many terms as its part of the plane needs anywhere. (NIST's Digital Library of Mathematical
Functions, dlmf.nist.gov: 8.11.4, 8.9.2, 8.12.3 to 8.12.10, 8.7.3.)
"""

from __future__ import annotations

import functools
import math
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.tensor.elementwise import float_kind, float_of_both
from tinygrad.tensor.functions import polynomial
from tinygrad.tensor.long_tail.bessel import FLOATS, Bessel
from tinygrad.tensor.long_tail.gamma import BERNOULLI, LGAMMA_AT_TWO, LGAMMA_FAR, STIRLING_FROM
from tinygrad.tensor.template import expressions

UNIFORM_FROM = 25.0  # of a, where x is within half of it: there the uniform expansion begins
SMALL = 1.5  # of x: up to here the series is shorter than the continued fraction
SERIES = {dtypes.float32: 36, dtypes.float64: 64}  # terms, up to x = a = UNIFORM_FROM
FRACTION = {dtypes.float32: 18, dtypes.float64: 66}  # levels, from x = SMALL
UNIFORM = {dtypes.float32: (4, 10), dtypes.float64: (11, 24)}  # terms in 1/a, and in eta
LOGARITHM = {dtypes.float32: 7, dtypes.float64: 16}  # terms of atanh, up to 1/3
ZETA_FROM = 10  # so many terms of zeta are added up as they are
ZETA_STEEP = 1000.0  # from this power on, only these count


@functools.cache
def _uniform_terms(orders: int, count: int) -> tuple[tuple[float, ...], ...]:
    """Row k, of 1/a to the k: terms in eta. With m = x/a - 1 and eta²/2 = m - log(1 + m), row 0 is
    1/m - 1/eta, and each is the one before, differentiated and divided by eta, plus that multiple
    of 1/m for which 1/eta cancels. (DLMF 8.12.9, 8.12.10.)"""
    length = count + 2 * orders + 2
    m = [0.0, 1.0]  # from m·m' = eta·(1 + m)
    for n in range(2, length):
        square = sum(m[i] * m[n + 1 - i] for i in range(2, n))
        m.append((m[n - 1] * 2 / (n + 1) - square) / 2)
    inverse = [1.0]  # of m / eta
    for n in range(1, length - 1):
        inverse.append(-sum(m[i + 1] * inverse[n - i] for i in range(1, n + 1)))
    row, rows = inverse[1:], []
    for _ in range(orders):
        rows.append(tuple(row[:count]))
        later = zip(row[2:], inverse[1:], strict=False)
        row = [(n + 2) * c - row[1] * beside for n, (c, beside) in enumerate(later)]
    return tuple(rows)


def _zeta_tail() -> tuple[float, ...]:
    """Of Euler's and Maclaurin's sum: B2k / (2k)!, over those before."""
    terms = [b / math.factorial(2 * k) for k, b in enumerate(BERNOULLI, 1)]
    return (terms[0], *(b / a for a, b in zip(terms, terms[1:], strict=False)))


ZETA_TAIL = _zeta_tail()


@expressions
class Incomplete(Bessel):
    """Operands broadcast; floats narrower than float32 are computed in float32, rounded once."""

    __slots__ = ()

    def _two_floats(self, who: str, other: Any) -> tuple[Self, Self]:
        a, b = self._meet(who, other, dtype=float_of_both(self, other))
        kind = float_kind(a.dtype)
        if kind not in FLOATS:
            raise DTypeError(f"{who}: {kind!r}; legal are real numbers")
        return a.cast(kind), b.cast(kind)

    # ---- the incomplete gamma functions ----------------------------------------------------------

    def igamma(self, other: Any) -> Self:
        """The lower incomplete gamma function, over the whole: the share of the gamma distribution
        of this shape, from 0, that is below `other`. NaN where one is negative, or both are 0 or
        infinite.

        >>> Tensor([1.0, 1.0]).igamma(Tensor([0.0, 1.0])).numpy().round(4)
        array([0.    , 0.6321], dtype=float32)
        """
        a, x = self._two_floats("igamma", other)
        return a._incomplete(x, is_upper=False).cast(float_of_both(self, other))

    def igammac(self, other: Any) -> Self:
        """The upper incomplete gamma function, over the whole: 1 - `igamma`, without cancellation.

        >>> Tensor([1.0, 1.0]).igammac(Tensor([0.0, 1.0])).numpy().round(4)
        array([1.    , 0.3679], dtype=float32)
        """
        a, x = self._two_floats("igammac", other)
        return a._incomplete(x, is_upper=True).cast(float_of_both(self, other))

    gammainc, gammaincc = igamma, igammac

    def _incomplete(self, x: Self, is_upper: bool) -> Self:
        plain = (self > 0) & (x > 0) & self.isfinite() & x.isfinite()
        near = plain & (self > UNIFORM_FROM) & ((x - self).abs() < self * 0.5)
        inside = near.where(self, 2 * UNIFORM_FROM)
        close = inside._uniform_gamma(near.where(x, 2 * UNIFORM_FROM), is_upper)
        else_ = plain & near.logical_not()
        apart = else_.where(self, 1)._apart_gamma(else_.where(x, 1), is_upper)
        least = self.eq(0) | x.isinf()  # the lower share is 1
        most = x.eq(0) | self.isinf()  # and here 0
        known = (least & most.logical_not()).where(float(not is_upper), math.nan)
        known = (most & least.logical_not()).where(float(is_upper), known)
        legal = (self >= 0) & (x >= 0)
        out: Self = near.where(close, plain.where(apart, legal.where(known, math.nan)))
        return out

    def _uniform_gamma(self, x: Self, is_upper: bool) -> Self:
        """By erfc, and what is left of it as powers of 1/a and eta. (DLMF 8.12.3, 8.12.4, 8.12.7.)
        m - log(1 + m) is m² times what is nearly 1/2."""
        m = (x - self) / self
        over = (m + 2).reciprocal()
        r = m * over
        square = r * r
        odd = tuple(1 / (2 * k + 3) for k in range(LOGARITHM[self.dtype]))
        half = (1 - r * over * polynomial(square, odd) * 2) * over
        eta = m * (half * 2).sqrt()
        inverse = self.reciprocal()
        rows = [polynomial(eta, row) for row in _uniform_terms(*UNIFORM[self.dtype])]
        left: Any = rows[-1]
        for row in reversed(rows[:-1]):
            left = left * inverse + row
        left = left * (-(self * m * m * half)).exp() * (self * (2 * math.pi)).rsqrt()
        share = (eta * (self * 0.5).sqrt() * (1 if is_upper else -1)).erfc() * 0.5
        out: Self = share + left if is_upper else share - left
        return out

    def _apart_gamma(self, x: Self, is_upper: bool) -> Self:
        """By the series, or the continued fraction, times x^a·exp(-x) / Γ(a + 1)."""
        by_series = x < self.maximum(SMALL)
        factor = self._start_gamma(x)
        y = by_series.where(x, 0)
        series = y.ones_like()
        for k in range(SERIES[self.dtype], 0, -1):
            series = y / (self + k) * series + 1
        lower = factor * series
        levels, most = FRACTION[self.dtype], self.maximum(SMALL)
        y = by_series.where(most, x)
        fraction = y + (2 * levels + 1) - self
        for k in range(levels, 0, -1):
            fraction = y + (2 * k - 1) - self - (k - self) * k / fraction
        upper = factor * self / fraction
        if not is_upper:
            return by_series.where(lower, 1 - upper)
        low = by_series & (self < SMALL) & (x < SMALL)
        small = low.where(self, 1)._upper_of_small(low.where(x, 1))
        return by_series.where(low.where(small, 1 - lower), upper)

    def _start_gamma(self, x: Self) -> Self:
        """x^a·exp(-x) / Γ(a + 1)."""
        large = self >= STIRLING_FROM
        a, y = large.where(self, STIRLING_FROM), large.where(x, STIRLING_FROM)
        inverse = a.reciprocal()
        rest = inverse * polynomial(inverse * inverse, LGAMMA_FAR)
        far = ((a - y) + a * (y / a).log() - rest).exp() * (a * (2 * math.pi)).rsqrt()
        b, y = large.where(1, self), large.where(1, x)
        return large.where(far, (b * y.log() - y - b._lgamma_above()).exp())

    def _lgamma_above(self) -> Self:
        """log Γ(a + 1), of a from 0, also exact where it is nearly 0."""
        small, low = self < SMALL, self < 0.5
        rest = small.where(low.where(self, self - 1), 0)
        out = rest * polynomial(rest, LGAMMA_AT_TWO)
        out = low.where(out - low.where(self, 0).log1p(), out)
        return small.where(out, small.where(1, self + 1).lgamma())

    def _upper_of_small(self, x: Self) -> Self:
        """1 - x^a / Γ(a + 1), less what is left of the series of exp(-t); a and x up to SMALL."""
        power = self * x.log() - self._lgamma_above()
        rest: Any = 0.0
        for n in range(24, 0, -1):
            rest = (rest + (self + n).reciprocal()) * x * (-1 / n)
        out: Self = -power.expm1() - power.exp() * rest * self
        return out

    # ---- the zeta function -----------------------------------------------------------------------

    def zeta(self, other: Any) -> Self:
        """Hurwitz's zeta function: the sum of (k + q)^-s over all k from 0, of this s and q =
        `other`. Infinite at s = 1 and, of whole q up to 0, anywhere; NaN below 1, and where a
        negative q would have a power that isn't whole.

        >>> Tensor([2.0]).zeta(1.0).numpy().round(4)
        array([1.6449], dtype=float32)
        """
        s, q = self._two_floats("zeta", other)
        plain = (s > 1) & s.isfinite() & q.isfinite()
        pole = (q <= 0) & q.eq(q.floor())
        left = plain & (q < 0) & pole.logical_not() & s.eq(s.floor())
        right = plain & (q > 0)
        # of q below 0: the terms from 0 on are those above, the rest those of 1 - q and beyond
        gap, power = left.where(-q - (-q).floor(), 0.5), (left | right).where(s, 2)
        slope = left.where(math.nan, right.where(1.0, 0))  # of q below 0, s is whole
        power = power._sloped(s, slope)
        above = power._zeta_above(right.where(q, left.where(1 - gap, 1)))
        below = power._zeta_above(gap) - power._zeta_above(left.where(1 - q, 1))
        odd = (power * 0.5).floor().ne(power * 0.5)
        out = right.where(above, above + odd.where(-below, below))
        endless = (s > 1) & (q > 0)  # one of them: what is left is the first term
        ends = q.isinf().where(0, q.eq(1).where(1, (q < 1).where(math.inf, 0)))
        infinite = (s.eq(1) & q.isnan().logical_not()) | ((s > 1) & pole)
        ends = endless.where(ends, infinite.where(math.inf, math.nan))
        return (left | right).where(out, ends).cast(float_of_both(self, other))

    def _zeta_above(self, q: Self) -> Self:
        """The same of s above 1 and q above 0, by Euler's and Maclaurin's sum. (DLMF 25.11.9.)"""
        total: Any = q.pow(-self)
        for k in range(1, ZETA_FROM):
            total = total + (q + k).pow(-self)
        steep = self > ZETA_STEEP
        s, a = steep.where(2, self), q + ZETA_FROM
        inverse = a.reciprocal()
        square = inverse * inverse
        rest: Any = 0.0
        for k in range(len(ZETA_TAIL) - 1, -1, -1):
            factor = (s + (2 * k - 1)) * (s + 2 * k) * square if k else s * inverse
            rest = (rest + 1) * factor * ZETA_TAIL[k]
        tail = a.pow(-s) * (a / (s - 1) + 0.5 + rest)
        out: Self = steep.where(total, total + tail)
        return out
