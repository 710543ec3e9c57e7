"""Functions under `torch.special`'s and SciPy's names that those of the gamma's family make: the
normal distribution, entropy, other names."""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.tensor.arguments import check_number_from
from tinygrad.tensor.functions import wide
from tinygrad.tensor.long_tail.gamma import PROBIT_FAR, PROBIT_MIDDLE, PROBIT_NEAR, Gamma, ratio
from tinygrad.tensor.template import expressions


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

    # ---- other names -----------------------------------------------------------------------------

    expit = Gamma.sigmoid
    gammaln = Gamma.lgamma
    multigammaln = mvlgamma
    psi = Gamma.digamma
