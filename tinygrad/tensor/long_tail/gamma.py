"""Functions that integrals define: the error function and its inverse, the gamma function's
logarithm and that one's derivatives.

Each is a few polynomials, one for each stretch of the axis. What a stretch computes is harmless for
the others' arguments, so gradients need no care. Series come from Abramowitz and Stegun's Handbook
(1964); rational approximations from Cody (1969) and Wichura (1988).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor.arguments import check_number_from
from tinygrad.tensor.functions import fused, polynomial, wide
from tinygrad.tensor.long_tail.elementary import Elementary
from tinygrad.tensor.template import expressions

Ratio = tuple[tuple[float, float], ...]  # row n: of xⁿ, above and below the line

# ---- W. J. Cody, "Rational Chebyshev approximations for the error function", 1969 ----------------

ERF_NEAR: Ratio = (  # erf(x) / x in x², for |x| < 0.46875
    (3.20937758913846947e03, 2.84423683343917062e03),
    (3.77485237685302021e02, 1.28261652607737228e03),
    (1.13864154151050156e02, 2.44024637934444173e02),
    (3.16112374387056560e00, 2.36012909523441209e01),
    (1.85777706184603153e-1, 1.0),
)
ERFC_MIDDLE: Ratio = (  # erfc(x) · exp(x²) in x, up to 4
    (1.23033935479799725e03, 1.23033935480374942e03),
    (2.05107837782607147e03, 3.43936767414372164e03),
    (1.71204761263407058e03, 4.36261909014324716e03),
    (8.81952221241769090e02, 3.29079923573345963e03),
    (2.98635138197400131e02, 1.62138957456669019e03),
    (6.61191906371416295e01, 5.37181101862009858e02),
    (8.88314979438837594e00, 1.17693950891312499e02),
    (5.64188496988670089e-1, 1.57449261107098347e01),
    (2.15311535474403846e-8, 1.0),
)
# Short ones for float32, by tools/polynomials.py.
ERF_SHORT = (  # erf(x)/x - 1 in x², up to 1
    0.12837912142276764,
    -0.37612318992614746,
    0.11280123889446259,
    -0.02670978754758835,
    0.004915859084576368,
    -0.0005624815239571035,
)
ERFC_SLOWNESS = 0.39
ERFC_SHORT = (  # erfc(x) · exp(x²) / t in t = 1 / (1 + 0.39·x), so that erfc is off by 2⁻²⁶ of 1
    0.23539753258228302,
    0.09093732386827469,
    0.6506779789924622,
    -0.6367788314819336,
    0.8875089287757874,
    -0.22774294018745422,
)
ERFC_FAR: Ratio = (  # (1/√π - x · erfc(x) · exp(x²)) · x² in 1/x², beyond 4
    (6.58749161529837803e-4, 2.33520497626869185e-3),
    (1.60837851487422766e-2, 6.05183413124413191e-2),
    (1.25781726111229246e-1, 5.27905102951428412e-1),
    (3.60344899949804439e-1, 1.87295284992346725e00),
    (3.05326634961232344e-1, 2.56852019228982242e00),
    (1.63153871373020978e-2, 1.0),
)

# ---- M. B. Giles, "Approximating the erfinv function", 2010: for float32 ----

PROBIT_SHORT = (  # erfinv(x) / x in w - 2.5, where w is -log(1 - x²), up to 5
    *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
    *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
)
PROBIT_SHORT_FAR = (  # the same in √w - 3, beyond 5
    *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773),
    *(-0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257),
)

# ---- M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988 ---

PROBIT_NEAR: Ratio = (  # in 0.180625 - q², where q is the distance from 1/2, up to 0.425
    (3.3871328727963666080e0, 1.0),
    (1.3314166789178437745e2, 4.2313330701600911252e1),
    (1.9715909503065514427e3, 6.8718700749205790830e2),
    (1.3731693765509461125e4, 5.3941960214247511077e3),
    (4.5921953931549871457e4, 2.1213794301586595867e4),
    (6.7265770927008700853e4, 3.9307895800092710610e4),
    (3.3430575583588128105e4, 2.8729085735721942674e4),
    (2.5090809287301226727e3, 5.2264952788528545610e3),
)
PROBIT_MIDDLE: Ratio = (  # in √(-log p) - 1.6, up to 5
    (1.42343711074968357734e0, 1.0),
    (4.63033784615654529590e0, 2.05319162663775882187e0),
    (5.76949722146069140550e0, 1.67638483018380384940e0),
    (3.64784832476320460504e0, 6.89767334985100004550e-1),
    (1.27045825245236838258e0, 1.48103976427480074590e-1),
    (2.41780725177450611770e-1, 1.51986665636164571966e-2),
    (2.27238449892691845833e-2, 5.47593808499534494600e-4),
    (7.74545014278341407640e-4, 1.05075007164441684324e-9),
)
PROBIT_FAR: Ratio = (  # in √(-log p) - 5
    (6.65790464350110377720e0, 1.0),
    (5.46378491116411436990e0, 5.99832206555887937690e-1),
    (1.78482653991729133580e0, 1.36929880922735805310e-1),
    (2.96560571828504891230e-1, 1.48753612908506148525e-2),
    (2.65321895265761230930e-2, 7.86869131145613259100e-4),
    (1.24266094738807843860e-3, 1.84631831751005468180e-5),
    (2.71155556874348757815e-5, 1.42151175831644588870e-7),
    (2.01033439929228813265e-7, 2.04426310338993978564e-15),
)

# ---- series --------------------------------------------------------------------------------------

EULER = 0.5772156649015329
TERMS = 28  # of a series in z/2 with |z| <= 1/2
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B2, B4, ..
STIRLING_FROM = 8.0  # from here on eight terms of an asymptotic series are enough


def zeta_less_one(n: int) -> float:
    """Riemann's zeta function less 1, of a whole number from 2. (A&S 23.2.9, with its remainder.)

    >>> round(zeta_less_one(2), 12)
    0.644934066848
    """
    last = 60.0
    total = math.fsum(float(k) ** -n for k in range(2, 60))
    total += last ** (1 - n) / (n - 1) + last**-n / 2 + n * last ** (-n - 1) / 12
    total -= n * (n + 1) * (n + 2) * last ** (-n - 3) / 720
    return total + n * (n + 1) * (n + 2) * (n + 3) * (n + 4) * last ** (-n - 5) / 30240


# log Γ(2 + z) / z in z. (A&S 6.1.33)
LGAMMA_AT_TWO = (1 - EULER, *((-1) ** n * zeta_less_one(n) / n for n in range(2, TERMS)))
# what log Γ(x) is above (x - 1/2)·log x - x + log √2π, times x, in 1/x². (A&S 6.1.40)
LGAMMA_FAR = tuple(b / (2 * n * (2 * n - 1)) for n, b in enumerate(BERNOULLI, 1))
# what ψ(x) is below log x - 1/2x, times x², in 1/x². (A&S 6.3.18)
DIGAMMA_FAR = tuple(b / (2 * n) for n, b in enumerate(BERNOULLI, 1))


def ratio(x: Any, terms: Ratio) -> Any:
    """One polynomial over another."""
    above, below = (polynomial(x, part) for part in zip(*terms, strict=True))
    return above / below


@expressions
class Gamma(Elementary):
    """Of a float narrower than float32 in float32, rounded once; whole numbers become floats."""

    __slots__ = ()

    # ---- the error function ----------------------------------------------------------------------

    def _bell(self) -> Self:
        """exp(-x²), its exponent as a sum of two, so that a large one has no larger error. The
        first is the square of a number of few bits."""
        half = dtypes.int32 if self.dtype is dtypes.float32 else dtypes.int64
        cut = -(1 << (12 if half is dtypes.int32 else 27))
        few = (self.bitcast(half) & cut).bitcast(self.dtype)
        few = self.isfinite().where(few, self).detach()
        rest = (few - self) * (few + self)
        return (few * -few).exp() * self.isfinite().where(rest, 0).exp()

    def _erfc_ratio(self) -> Self:
        """erfc(x) · exp(x²) of x from 0.46875."""
        middle = self < 4.0
        inverse = middle.where(4.0, self).reciprocal()
        square = inverse * inverse
        far = (1 / math.sqrt(math.pi) - square * ratio(square, ERFC_FAR)) * inverse
        out: Self = middle.where(ratio(middle.where(self, 4.0), ERFC_MIDDLE), far)
        return out

    @wide
    def erf(self) -> Self:
        """The error function 2/√π ∫₀ˣ exp(-t²) dt. (Cody, 1969.)

        >>> Tensor([0.0, 10.0]).erf().tolist()
        [0.0, 1.0]
        """
        if self.dtype is dtypes.float32:
            near, far = self._within(1.0), 1 - self._erfc_of_size()
            x = near.where(self, 0)
            out: Self = near.where(x + x * fused(x * x, ERF_SHORT), (self < 0).where(-far, far))
            return out._sloped(self, self._erf_slope(1.0))
        near = self._within(0.46875)
        x = near.where(self, 0)
        size = near.where(1, self.abs().minimum(7.0))  # from there on it is 1
        far = 1 - (size * -size).exp() * size._erfc_ratio()
        return near.where(x * ratio(x * x, ERF_NEAR), (self < 0).where(-far, far))

    def _erf_slope(self, scale: float) -> Self:
        """The slope of erf(scale·x). `_bell` costs more, to be exact where this is nearly 0."""
        return self._short_bell(scale) * (2 * scale / math.sqrt(math.pi))

    def _short_bell(self, scale: float) -> Self:
        """exp(-(scale·x)²), off by 2⁻²⁴ of 1."""
        return (self * self * -(scale**2)).exp()

    def _erfc_of_size(self, scale: float = 1.0) -> Self:
        """erfc(scale·|x|), in float32 and by few operations: off by 6·2⁻²⁴ at most, however small
        it is (what `t` is rounded by counts three times). Its exponential is that of the slope."""
        t = (self.abs() * (ERFC_SLOWNESS * scale) + 1).reciprocal()
        out: Self = t * fused(t, ERFC_SHORT) * self._short_bell(scale)
        fall = self._erf_slope(scale)
        return out._sloped(self, (self < 0).where(fall, -fall))

    @wide
    def gelu(self, approximate: str = "tanh") -> Self:
        """x·Φ(x), where Φ(x) is the share of the normal distribution below x.

        Args:
            approximate: "tanh" gives the sigmoid of 1.5957691·(x + 0.044715·x³) in Φ's place,
                which is tanh's form without its cancellation; "none" gives Φ.

        Raises:
            ArgumentError: another word.

        (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.)

        >>> Tensor([-1.0, 0.5, 2.0]).gelu().numpy().round(4)
        array([-0.1588,  0.3457,  1.9546], dtype=float32)
        >>> Tensor([-1.0, 0.5, 2.0]).gelu("none").numpy().round(4)
        array([-0.1587,  0.3457,  1.9545], dtype=float32)
        """
        if approximate == "tanh":
            slope = 2 * math.sqrt(2 / math.pi)
            inner: Self = self * (self * self * (0.044715 * slope) + slope)
            return self * inner.sigmoid()
        if approximate != "none":
            raise ArgumentError(f'gelu: approximate={approximate!r}; legal are "none" and "tanh"')
        if self.dtype is dtypes.float32:
            outside = self._erfc_of_size(math.sqrt(0.5)) * 0.5
            return self * (self < 0).where(outside, 1 - outside)
        return self * 0.5 * (1 + (self * math.sqrt(0.5)).erf())

    @wide
    def erfc(self) -> Self:
        """1 - erf(x), without cancellation. (Cody, 1969.)

        >>> Tensor([0.0]).erfc().tolist()
        [1.0]
        """
        near = self._within(0.46875)
        x = near.where(self, 0)
        size = near.where(1, self.abs())
        far = size._bell() * size._erfc_ratio()
        out = near.where(1 - x * ratio(x * x, ERF_NEAR), (self < 0).where(2 - far, far))
        return out._sloped(self, self._bell() * (-2 / math.sqrt(math.pi)))

    @wide
    def erfinv(self) -> Self:
        """The x whose `erf` this is; infinite at -1 and 1, NaN outside. (Wichura, 1988; Giles,
        2010.)

        >>> Tensor([0.0, 1.0]).erfinv().tolist()
        [0.0, inf]
        """
        out = self._erfinv_short() if self.dtype is dtypes.float32 else self._erfinv()
        once = out._sloped(self, out._slope_of_erfinv())
        return out._sloped(self, once._slope_of_erfinv())

    def _erfinv_short(self) -> Self:
        """By few operations: off by 5 units of float32's last place."""
        w = -((1 - self) * (1 + self)).log()
        far = fused(w.sqrt() - 3, PROBIT_SHORT_FAR)
        out: Self = self * (w < 5).where(fused(w - 2.5, PROBIT_SHORT), far)
        return self.abs().eq(1).where(self * math.inf, out)

    def _erfinv(self) -> Self:
        near = self._within(0.85)
        q = near.where(self, 0) * 0.5
        central = q * ratio(0.180625 - q * q, PROBIT_NEAR)
        size = near.where(0.9, self.abs())
        edge = size.eq(1)
        r = (-(edge.where(0.5, (1 - size) * 0.5)).log()).sqrt()
        tail = (r <= 5).where(ratio(r - 1.6, PROBIT_MIDDLE), ratio(r - 5, PROBIT_FAR))
        tail = edge.where(math.inf, tail)
        return near.where(central, (self < 0).where(-tail, tail)) * (1 / math.sqrt(2))

    def _slope_of_erfinv(self) -> Self:
        return self.square().exp() * (math.sqrt(math.pi) / 2)

    # ---- the gamma function ----------------------------------------------------------------------

    def _from_whole(self) -> Self:
        """x less the nearest whole number: what sin(πx) and tan(πx) depend on."""
        return self - self.round().detach()

    def _moved_up(self, far: int, term: Callable[[Self], Self]) -> tuple[Self, Self]:
        """This x, not below 0, plus as many ones as it takes to reach `far`; and the sum of a
        function over all x, x + 1, .. that are passed on the way."""
        y, total = self, self.zeros_like()
        for _ in range(far):
            below: Self = y < far
            total = total + below.where(term(below.where(y, 1)), 0)
            y = below.where(y + 1, y)
        return y, total

    @wide
    def lgamma(self) -> Self:
        """log |Γ(x)|; infinite at 0 and at negative whole numbers. (A&S 6.1.33, 6.1.40.)

        >>> Tensor([1.0, 2.0]).lgamma().tolist()
        [0.0, 0.0]
        """
        reflected = self < 0.5
        x = reflected.where(1 - self, self)
        large = x >= STIRLING_FROM
        # down to between 1.5 and 2.5 by Γ(x) = (x - 1)·Γ(x - 1), or up from below
        z, product = large.where(2.0, x), x.ones_like()
        for _ in range(6):
            above = z > 2.5
            product = above.where(product * (z - 1), product)
            z = above.where(z - 1, z)
        below = z < 1.5
        factor = below.where(z, product).log()
        rest = below.where(z - 1, z - 2)
        central = rest * polynomial(rest, LGAMMA_AT_TWO)
        small = below.where(central - factor, central + factor)
        y = large.where(x, STIRLING_FROM)
        inverse = y.reciprocal()
        series = inverse * polynomial(inverse * inverse, LGAMMA_FAR)
        stirling = (y - 0.5) * (y.log() - 1) + (series + (math.log(2 * math.pi) - 1) / 2)
        positive = large.where(stirling, small)
        wave = (reflected.where(self, 0.5)._from_whole() * math.pi).sin().abs()
        mirrored = math.log(math.pi) - wave.log() - positive
        out = reflected.where(mirrored, positive)
        return self.isinf().where(math.inf, out)._sloped(self, self.digamma())

    @wide
    def digamma(self) -> Self:
        """ψ(x), the derivative of `lgamma`; -∞ at 0 (∞ at -0), NaN at negative whole numbers.
        (A&S 6.3.5, 6.3.7, 6.3.18.)

        >>> round(Tensor([1.0]).digamma().item(), 4)
        -0.5772
        """
        reflected = self < 0
        x = reflected.where(1 - self, self)
        large = x >= STIRLING_FROM
        y, total = x._moved_up(int(STIRLING_FROM), lambda z: z.reciprocal())
        inverse = y.reciprocal()
        square = inverse * inverse
        out = y.log() - inverse * 0.5 - square * polynomial(square, DIGAMMA_FAR)
        out = large.where(out, out - total)
        angle = reflected.where(self, 0.25)._from_whole() * math.pi
        pole = reflected & angle.eq(0)
        turned = out - math.pi / pole.where(1, angle).tan()
        out = pole.where(math.nan, reflected.where(turned, out))
        zero = self.eq(0)
        out = zero.where(-(zero.where(self.detach(), 1).reciprocal()), out)
        return out._sloped(self, self._trigamma())

    def _trigamma(self) -> Self:
        """ψ'(x), infinite at 0 and at negative whole numbers. (A&S 6.4.6, 6.4.7, 6.4.12.)"""
        reflected = self < 0.5
        x = reflected.where(1 - self, self)
        y, total = x._moved_up(int(STIRLING_FROM), lambda z: z.square().reciprocal())
        inverse = y.reciprocal()
        square = inverse * inverse
        far = inverse + square * 0.5 + square * inverse * polynomial(square, BERNOULLI)
        wave = (reflected.where(self, 0.5)._from_whole() * math.pi).sin()
        out = total + far
        return reflected.where((math.pi / wave).square() - out, out)

    @wide
    def polygamma(self, n: int) -> Self:
        """The n-th derivative of `digamma`, n up to 170; from 1 on infinite at 0 and at negative
        whole numbers, with the sign that it has to the right of them; NaN where what cancels there
        overflows. (A&S 6.4.10, 6.4.11.)

        >>> Tensor([1.0, 2.0]).polygamma(1).numpy().round(4)
        array([1.6449, 0.6449], dtype=float32)
        """
        check_number_from("polygamma", "n", n, 0, 170)
        if n < 2:
            return self._trigamma() if n else self.digamma()
        sign = (-1) ** (n + 1)
        left = self <= 0
        away = left.where(self, 0.25)._from_whole()
        size, right = away.abs(), away >= 0
        # the terms from x on are those on both sides of 0 without those on the left of x
        near = left.where(right.where(size, 1 - size), self)._powers(n)
        other = left.where(right.where(1 - size, size)._powers(n) * sign, 0)
        beyond = left.where((1 - left.where(self, 0))._powers(n) * sign, 0)
        out: Self = (near + other - beyond) * sign
        return out

    def _powers(self, n: int) -> Self:
        """n!·Σ 1/(x + k)ⁿ⁺¹ over all k from 0, of x from 0 and n from 1."""
        unit = 2.0 ** round(math.log2(math.factorial(n)) / (n + 1))  # its power is about n!
        rest = math.factorial(n) / unit ** (n + 1)
        y, total = self._moved_up(int(STIRLING_FROM) + n, lambda z: (unit / z) ** (n + 1))
        inverse = y.reciprocal()
        rows = enumerate(BERNOULLI, 1)
        series = tuple(b * math.comb(2 * k + n - 1, n) / (2 * k) for k, b in rows)
        far = 1 / n + inverse * (0.5 + inverse * polynomial(inverse * inverse, series))
        out: Self = (total + (unit * inverse) ** n * unit * far) * rest
        return out
