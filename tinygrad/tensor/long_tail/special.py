"""Functions under `torch.special`'s and SciPy's names that those of the gamma's family make: the
normal distribution, entropy, Bessel functions of order 0 and 1.

Series come from Abramowitz and Stegun's Handbook (1964), chapter 9.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.tensor.arguments import check_number_from
from tinygrad.tensor.functions import polynomial, wide
from tinygrad.tensor.long_tail.gamma import PROBIT_FAR, PROBIT_MIDDLE, PROBIT_NEAR, Gamma, ratio
from tinygrad.tensor.template import expressions

BESSEL_SPLIT = {dtypes.float32: (9.0, 24, 9), dtypes.float64: (20.0, 46, 24)}
"""Where the series in x ends; terms of it, and of that in 1/x."""


def _bessel_terms(order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of I(x) / (x/2)^order in (x/2)², and of I(x)·√(2πx)/exp(x) in 1/x. (A&S 9.6.10, 9.7.1.)"""
    near = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(46)]
    far = [1.0]
    for k in range(1, 24):
        far.append(far[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k))
    return tuple(near), tuple(far)


BESSEL = (_bessel_terms(0), _bessel_terms(1))


@expressions
class Special(Gamma):
    """Of a float narrower than float32 in float32, rounded once; whole numbers become floats."""

    __slots__ = ()

    # ---- the normal distribution -----------------------------------------------------------------

    @wide
    def erfcx(self) -> Self:
        """exp(x²)·erfc(x), which doesn't vanish where x is large. (Cody, 1969.)

        >>> Tensor([0.0, 100.0]).erfcx().numpy().round(6)
        array([1.      , 0.005642], dtype=float32)
        """
        large = self >= 0.46875
        x = large.where(0, self)
        out = large.where(large.where(self, 1)._erfc_ratio(), x.square().exp() * x.erfc())
        return out._sloped(self, self * out * 2 - 2 / math.sqrt(math.pi))

    @wide
    def ndtr(self) -> Self:
        """The share of the normal distribution that is below x.

        >>> Tensor([0.0]).ndtr().tolist()
        [0.5]
        """
        return (self * -math.sqrt(0.5)).erfc() * 0.5

    @wide
    def log_ndtr(self) -> Self:
        """The logarithm of `ndtr`, also where that vanishes.

        >>> Tensor([-100.0]).log_ndtr().numpy().round(2)
        array([-5005.52], dtype=float32)
        """
        low = self < -1.0
        z = low.where(-self, 1) * math.sqrt(0.5)
        tail = (z._erfc_ratio() * 0.5).log() - z * z
        tail = self.eq(-math.inf).where(-math.inf, tail)
        return low.where(tail, (low.where(0, self) * math.sqrt(0.5)).erfc().mul(-0.5).log1p())

    @wide
    def ndtri(self) -> Self:
        """The x whose `ndtr` this is; infinite at 0 and 1, NaN outside. (Wichura, 1988.)

        >>> Tensor([0.5, 0.0]).ndtri().tolist()
        [0.0, -inf]
        """
        q = self - 0.5
        near = q.abs() <= 0.425
        inner = near.where(q, 0)
        central = inner * ratio(0.180625 - inner * inner, PROBIT_NEAR)
        below = q < 0
        share = near.where(0.05, below.where(self, 1 - self))
        end = share.eq(0)
        r = (-(end.where(0.05, share).log())).sqrt()
        tail = (r <= 5).where(ratio(r - 1.6, PROBIT_MIDDLE), ratio(r - 5, PROBIT_FAR))
        tail = end.where(math.inf, tail)
        out = near.where(central, below.where(-tail, tail))
        once = out._sloped(self, out._slope_of_ndtri())
        return out._sloped(self, once._slope_of_ndtri())

    def _slope_of_ndtri(self) -> Self:
        return (self.square() * 0.5).exp() * math.sqrt(2 * math.pi)

    # ---- logarithms ------------------------------------------------------------------------------

    @wide
    def entr(self) -> Self:
        """-x·log(x), 0 at 0 and minus infinity below.

        >>> Tensor([0.0, 1.0, -1.0]).entr().tolist()
        [0.0, -0.0, -inf]
        """
        inside = self > 0
        x = inside.where(self, 1)
        out: Self = inside.where(-x * x.log(), self.eq(0).where(0, -math.inf))
        out = self.isnan().where(math.nan, out)
        return out

    def xlog1py(self, other: Any) -> Self:
        """This times log(1 + `other`), 0 where this is 0 and `other` is a number.

        >>> Tensor([0.0, 1.0]).xlog1py(Tensor([-1.0, 0.0])).tolist()
        [0.0, 0.0]
        """
        other = self._tensor(other)
        none = self.eq(0) & other.isnan().logical_not()
        out: Self = self * none.where(0, other).log1p()
        out = none.where(0, out)
        return out

    @wide
    def mvlgamma(self, p: int) -> Self:
        """The logarithm of the gamma function of `p` dimensions; NaN up to (p - 1)/2.

        >>> Tensor([3.0]).mvlgamma(2).numpy().round(4)
        array([1.5502], dtype=float32)
        """
        check_number_from("mvlgamma", "p", p, 1)
        out: Self = (self - (p - 1) / 2).lgamma()
        for j in range(p - 1):
            out = out + (self - j / 2).lgamma()
        legal = self > (p - 1) / 2
        return legal.where(out + p * (p - 1) / 4 * math.log(math.pi), math.nan)

    # ---- Bessel functions ------------------------------------------------------------------------

    @wide
    def i0(self) -> Self:
        """The modified Bessel function of the first kind and order 0. (A&S 9.6.12, 9.7.1.)

        >>> Tensor([0.0]).i0().tolist()
        [1.0]
        """
        return self._bessel("i0", 0, is_scaled=False)

    @wide
    def i0e(self) -> Self:
        """`i0` over exp(|x|), which doesn't overflow.

        >>> Tensor([0.0]).i0e().tolist()
        [1.0]
        """
        return self._bessel("i0e", 0, is_scaled=True)

    @wide
    def i1(self) -> Self:
        """The modified Bessel function of the first kind and order 1. (A&S 9.6.10, 9.7.1.)

        >>> Tensor([0.0]).i1().tolist()
        [0.0]
        """
        return self._bessel("i1", 1, is_scaled=False)

    @wide
    def i1e(self) -> Self:
        """`i1` over exp(|x|), which doesn't overflow.

        >>> Tensor([0.0]).i1e().tolist()
        [0.0]
        """
        return self._bessel("i1e", 1, is_scaled=True)

    def _bessel(self, who: str, order: int, is_scaled: bool) -> Self:
        if self.dtype not in BESSEL_SPLIT:
            raise DTypeError(f"{who}: {self.dtype!r}; legal are real numbers")
        split, near_terms, far_terms = BESSEL_SPLIT[self.dtype]
        in_x, in_inverse = BESSEL[order]
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
