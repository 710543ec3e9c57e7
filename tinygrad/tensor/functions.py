"""Elementary functions and activations, of the ops EXP2, LOG2, SIN, COS and SQRT.

They are written so that infinities, NaN, tiny and large numbers come out right, in the value and in
the gradient: what overflows is never in a branch that a gradient passes. Floats narrower than
float32 are computed in float32 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tinygrad.base.dtype import compute_dtype, dtypes, least_upper_float
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor.elementwise import Elementwise
from tinygrad.tensor.template import expressions
from tinygrad.uop import Ops, UOp

F = TypeVar("F", bound=Callable[..., Any])


def wide(function: F) -> F:
    """A function of floats: whole numbers become the default float, narrow floats pass float32."""

    @functools.wraps(function)
    def widened(x: Elementwise, *args: Any, **more: Any) -> Any:
        if x._element and (own := vars(type(x)).get(function.__name__)) is not None:
            return own(x, *args, **more)  # `Tensor.exp(x)` of complex numbers, which have their own
        kind = least_upper_float(x.dtype)
        return function(x.cast(compute_dtype(kind)), *args, **more).cast(kind)

    return widened  # type: ignore[return-value]


# tanh(x) / x as a ratio of polynomials in x*x, from its continued fraction; exact to 1e-16 for
# |x| < 0.5. (Abramowitz and Stegun, 4.5.70, nine levels.)
_TANH_OVER = (1.0, 4729725 / 34459425, 135135 / 34459425, 990 / 34459425, 1 / 34459425)
_TANH_UNDER = (1.0, 16216200 / 34459425, 945945 / 34459425, 13860 / 34459425, 45 / 34459425)

# atan(x) / x by x*x up to 1, off by 2.4e-9 of it. (Remez's exchange.)
ATAN_SHORT = (
    *(1.0, -0.3333328366279602, 0.1999826580286026, -0.142619326710701, 0.1094203069806099),
    *(-0.08377315104007721, 0.05755210295319557, -0.030804600566625595, 0.010726946406066418),
    -0.0017539309337735176,
)

_EXPM1 = tuple(1 / math.factorial(n + 1) for n in range(15))
"""(e**x - 1) / x by x, of Taylor: exact to 1e-16 for |x| < 0.5, the first nine to 2e-9."""


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """c0 + c1·x + c2·x² ..., by Horner's rule."""
    out: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        out = x * out + c
    return out


def fused(x: Any, coefficients: tuple[float, ...]) -> Any:
    """`polynomial`, whose steps round once where the device can: for what states its own slope."""
    node = x._node
    out: UOp = node.const_like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = node.alu(Ops.MULACC, out, node.const_like(c))
    return x._from(out)


@expressions
class Functions(Elementwise):
    """exp, log, sin and their families; activations."""

    __slots__ = ()

    def _sloped(self, *pairs: Self) -> Self:
        """This value, whose slope by each first of the pairs is the second: where what makes it
        has steps of infinite slope that would be multiplied by zeros, or that cancel."""
        return self._from(self._node.sloped(*(each._node for each in pairs)), *pairs)

    # ---- exponentials and logarithms -------------------------------------------------------------

    @wide
    def exp2(self) -> Self:
        """2 to this power.

        >>> Tensor([0.0, 1.0, 3.0]).exp2().tolist()
        [1.0, 2.0, 8.0]
        """
        return self._unary(Ops.EXP2)

    @wide
    def exp(self) -> Self:
        """e to this power.

        >>> Tensor([0.0]).exp().tolist()
        [1.0]
        """
        return (self * (1 / math.log(2)))._unary(Ops.EXP2)

    @wide
    def expm1(self) -> Self:
        """e to this power, minus 1; exact near 0.

        >>> Tensor([0.0, 1.0]).expm1().numpy().round(4)
        array([0.    , 1.7183], dtype=float32)
        """
        e = self.exp()
        terms = _EXPM1 if self.dtype is dtypes.float64 else _EXPM1[:9]
        near = self * fused(self, terms)
        return self._within(0.5).where(near, e - 1)._sloped(self, e)

    @wide
    def log2(self) -> Self:
        """The logarithm to base 2; NaN below zero, -inf at zero.

        >>> Tensor([1.0, 8.0]).log2().tolist()
        [0.0, 3.0]
        """
        return self._unary(Ops.LOG2)

    @wide
    def log(self) -> Self:
        """The natural logarithm; NaN below zero, -inf at zero.

        >>> Tensor([1.0]).log().tolist()
        [0.0]
        """
        return self._unary(Ops.LOG2) * math.log(2)

    @wide
    def log10(self) -> Self:
        """The logarithm to base 10.

        >>> Tensor([1.0, 100.0]).log10().numpy().round(4)
        array([0., 2.], dtype=float32)
        """
        return self._unary(Ops.LOG2) * math.log10(2)

    @wide
    def log1p(self) -> Self:
        """The natural logarithm of 1 + this; exact near 0.

        >>> Tensor([0.0, 1.0]).log1p().numpy().round(4)
        array([0.    , 0.6931], dtype=float32)
        """
        total = self + 1
        lost = (self - (total - 1)).detach()  # what the addition rounded away
        is_lost = lost.isfinite() & total.ne(0)
        out = total.log() + is_lost.where(lost, 0) / is_lost.where(total, 1)
        is_near = total.eq(1)
        near = is_near.where(self, 0)
        near = near * (1 - near * (0.5 - near / 3))  # -0.0 keeps its sign, and all derivatives hold
        return is_near.where(near, out)

    def logaddexp(self, other: Any) -> Self:
        """log(exp(a) + exp(b)) without overflow.

        >>> Tensor([0.0, 1.0]).logaddexp(Tensor([0.0, 2.0])).numpy().round(4)
        array([0.6931, 2.3133], dtype=float32)
        """
        first: Self = self >= other  # not a maximum, which halves equal ones: all derivatives hold
        high, low = first.where(self, other), first.where(other, self)
        same = high.eq(low) & high.isinf()
        return high + same.where(0, low - high).exp().log1p()

    # ---- circular and hyperbolic -----------------------------------------------------------------

    @wide
    def sin(self) -> Self:
        """The sine of radians.

        >>> Tensor([-1.0, 0.5, 2.0]).sin().numpy().round(4)
        array([-0.8415,  0.4794,  0.9093], dtype=float32)
        """
        return self._unary(Ops.SIN)

    @wide
    def cos(self) -> Self:
        """The cosine of radians.

        >>> Tensor([-1.0, 0.5, 2.0]).cos().numpy().round(4)
        array([ 0.5403,  0.8776, -0.4161], dtype=float32)
        """
        return self._unary(Ops.COS)

    @wide
    def tan(self) -> Self:
        """The tangent of radians.

        >>> Tensor([-1.0, 0.5, 2.0]).tan().numpy().round(4)
        array([-1.5574,  0.5463, -2.185 ], dtype=float32)
        """
        return self.sin() / self.cos()

    @wide
    def atan(self) -> Self:
        """The angle whose tangent this is, from -pi/2 to pi/2.

        >>> Tensor([0.0]).atan().tolist()
        [0.0]
        """
        steep = (self > 1) | (self < -1)
        x = steep.where(steep.where(self, 1).reciprocal(), self)
        if self.dtype is dtypes.float32:
            angle = x * fused(x * x, ATAN_SHORT)
        else:
            for _ in range(2):  # the angle halved twice: |x| < tan(pi/16) = 0.199
                x = x / ((x * x + 1).sqrt() + 1)
            angle = x * polynomial(x * x, tuple((-1) ** i / (2 * i + 1) for i in range(12))) * 4
        quarter = (self < 0).where(self.const_like(-math.pi / 2), math.pi / 2)
        slope = (self * self + 1).reciprocal()
        slope = slope._sloped(self, self * -2 * slope * slope)
        return steep.where(quarter - angle, angle)._sloped(self, slope)

    @wide
    def asin(self) -> Self:
        """The angle whose sine this is; NaN outside -1 to 1.

        >>> Tensor([-1.0, 0.5]).asin().numpy().round(4)
        array([-1.5708,  0.5236], dtype=float32)
        """
        out = (self / ((1 - self) * (1 + self)).sqrt()).atan()
        return out._sloped(self, self._slope_of_asin())

    @wide
    def acos(self) -> Self:
        """The angle whose cosine this is; NaN outside -1 to 1.

        >>> Tensor([-1.0, 0.5]).acos().numpy().round(4)
        array([3.1416, 1.0472], dtype=float32)
        """
        out = ((1 - self) / (1 + self)).sqrt().atan() * 2
        return out._sloped(self, -self._slope_of_asin())

    def _slope_of_asin(self) -> Self:
        root = ((1 - self) * (1 + self)).rsqrt()
        return root._sloped(self, self * root * root * root)

    @wide
    def sinh(self) -> Self:
        """The hyperbolic sine.

        >>> Tensor([-1.0, 0.5, 2.0]).sinh().numpy().round(4)
        array([-1.1752,  0.5211,  3.6269], dtype=float32)
        """
        odd, even = self._sinh(), self._cosh()
        return odd._sloped(self, even._sloped(self, odd))

    def _sinh(self) -> Self:
        negative = self < 0
        most = 1400 if self.dtype is dtypes.float64 else 176
        e = (negative.where(-self, self).minimum(most) * 0.5).expm1()
        # 2 · sinh(x / 2) · cosh(x / 2): e**x may be too large where its half is not
        other = (e + 1).reciprocal()
        out = (e + e * other) * 0.5 * (e + 1 + other)
        return negative.where(-out, out)

    @wide
    def cosh(self) -> Self:
        """The hyperbolic cosine.

        >>> Tensor([-1.0, 0.5, 2.0]).cosh().numpy().round(4)
        array([1.5431, 1.1276, 3.7622], dtype=float32)
        """
        odd, even = self._sinh(), self._cosh()
        return even._sloped(self, odd._sloped(self, even))

    def _cosh(self) -> Self:
        root = ((self < 0).where(-self, self) * 0.5).exp()
        half = root * 0.5 * root  # of e**x, which may be too large where this is not
        return half + 0.25 / half

    @wide
    def tanh(self) -> Self:
        """The hyperbolic tangent; exact near 0.

        >>> Tensor([0.0]).tanh().tolist()
        [0.0]
        """
        small = self._within(0.5)
        x = small.where(self, 0)
        over = x * polynomial(x * x, _TANH_OVER)
        under = polynomial(x * x, _TANH_UNDER)
        negative = self < 0
        e = (negative.where(self, -self) * 2).exp()  # at most 1
        large = negative.where(e - 1, 1 - e)
        out = small.where(over, large) / small.where(under, e + 1)
        ends = negative.where(-out, out) + 1  # 1 - out would cancel
        return out._sloped(self, small.where(1 - out * out, e * ends * ends))

    def _within(self, bound: float) -> Self:
        return (self < bound) & (self > -bound)

    @wide
    def asinh(self) -> Self:
        """The inverse of sinh.

        >>> Tensor([-1.0, 0.5, 2.0]).asinh().numpy().round(4)
        array([-0.8814,  0.4812,  1.4436], dtype=float32)
        """
        negative = self < 0
        size = negative.where(-self, self)
        small = size < 1e6
        x = small.where(size, 0)
        near = (x * (x / ((x * x + 1).sqrt() + 1) + 1)).log1p()
        far = small.where(1, size).log() + math.log(2)
        out = small.where(near, far)
        return negative.where(-out, out)

    @wide
    def acosh(self) -> Self:
        """The inverse of cosh; NaN below 1.

        >>> Tensor([1.0, 2.0]).acosh().numpy().round(4)
        array([0.   , 1.317], dtype=float32)
        """
        x = self - 1
        small = self < 1e6
        near = small.where(x, 1)
        far = small.where(1, self).log() + math.log(2)
        root = near.sqrt() * (near + 2).sqrt()  # each NaN where it should be
        inverse = x.rsqrt() * (self + 1).rsqrt()
        slope = inverse._sloped(self, -(self * inverse) * inverse * inverse)
        return small.where((near + root).log1p(), far)._sloped(self, slope)

    @wide
    def atanh(self) -> Self:
        """The inverse of tanh; NaN outside -1 to 1.

        >>> Tensor([-0.5, 0.5]).atanh().numpy().round(4)
        array([-0.5493,  0.5493], dtype=float32)
        """
        negative = self < 0
        size = negative.where(-self, self)
        out = (size * 2 / (1 - size)).log1p() * 0.5
        slope = ((1 - self) * (1 + self)).reciprocal()
        slope = slope._sloped(self, self * 2 * slope * slope)
        return negative.where(-out, out)._sloped(self, slope)

    # ---- activations -----------------------------------------------------------------------------

    def relu(self) -> Self:
        """Itself above 0, else 0.

        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
        """
        return (self <= 0).where(0, self)

    @wide
    def sigmoid(self) -> Self:
        """1 / (1 + e**-x).

        >>> Tensor([0.0]).sigmoid().tolist()
        [0.5]
        """
        negative = self < 0
        e = negative.where(self, -self).exp()  # at most 1
        out = negative.where(e, 1) / (e + 1)
        return out._sloped(self, negative.where(1 - out, e * out) * out)

    @wide
    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """alpha·x + beta, kept between 0 and 1.

        >>> Tensor([-1.0, 0.5, 2.0]).hardsigmoid().numpy().round(4)
        array([0.3333, 0.5833, 0.8333], dtype=float32)
        """
        return (self * alpha + beta)._inside(0, 1)

    def relu6(self) -> Self:
        """Kept between 0 and 6.

        >>> Tensor([-1.0, 3.0, 9.0]).relu6().tolist()
        [0.0, 3.0, 6.0]
        """
        return self._inside(0, 6)

    @wide
    def hardswish(self) -> Self:
        """x · relu6(x + 3) / 6.

        >>> Tensor([-1.0, 0.5, 2.0]).hardswish().numpy().round(4)
        array([-0.3333,  0.2917,  1.6667], dtype=float32)
        """
        return self * (self + 3).relu6() * (1 / 6)

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """Kept between two values.

        >>> Tensor([-1.0, 0.5, 2.0]).hardtanh().numpy().round(4)
        array([-1. ,  0.5,  1. ], dtype=float32)
        """
        if not min_val <= max_val:
            raise ArgumentError(f"hardtanh: from {min_val} to {max_val}; legal is up to max_val")
        return self._inside(min_val, max_val)

    def _inside(self, least: float, most: float) -> Self:
        """As `clamp`, but at the edges the gradient is 0, as beyond them."""
        return (self >= most).where(most, (self <= least).where(least, self))

    @wide
    def silu(self) -> Self:
        """x · sigmoid(x).

        >>> Tensor([-1.0, 0.5, 2.0]).silu().numpy().round(4)
        array([-0.2689,  0.3112,  1.7616], dtype=float32)
        """
        return self * self.sigmoid()

    swish = silu

    @wide
    def quick_gelu(self) -> Self:
        """x · sigmoid(1.702·x).

        >>> Tensor([-1.0, 0.5, 2.0]).quick_gelu().numpy().round(4)
        array([-0.1542,  0.3504,  1.9357], dtype=float32)
        """
        return self * (self * 1.702).sigmoid()

    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """Itself above 0, `neg_slope` times itself below.

        >>> Tensor([-1.0, 0.5, 2.0]).leaky_relu().numpy().round(4)
        array([-0.01,  0.5 ,  2.  ], dtype=float32)
        """
        return (self <= 0).where(self * neg_slope, self)

    @wide
    def elu(self, alpha: float = 1.0) -> Self:
        """Itself above 0, alpha·(e**x - 1) below.

        >>> Tensor([-1.0, 0.5, 2.0]).elu().numpy().round(4)
        array([-0.6321,  0.5   ,  2.    ], dtype=float32)
        """
        below = self <= 0
        return below.where(below.where(self, 0).expm1() * alpha, self)

    @wide
    def celu(self, alpha: float = 1.0) -> Self:
        """Itself above 0, alpha·(e**(x/alpha) - 1) below.

        >>> Tensor([-1.0, 0.5, 2.0]).celu().numpy().round(4)
        array([-0.6321,  0.5   ,  2.    ], dtype=float32)
        """
        if isinstance(alpha, (int, float)) and alpha == 0:
            raise ArgumentError("celu: alpha=0; legal is any other number")
        below = self <= 0
        return below.where((below.where(self, 0) / alpha).expm1() * alpha, self)

    @wide
    def selu(self, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Self:
        """gamma · elu(x, alpha).

        >>> Tensor([-1.0, 0.5, 2.0]).selu().numpy().round(4)
        array([-1.1113,  0.5254,  2.1014], dtype=float32)
        """
        return self.elu(alpha) * gamma

    @wide
    def softplus(self, beta: float = 1.0, threshold: float | None = None) -> Self:
        """log(1 + e**(beta·x)) / beta, for any size of x; x itself where beta·x > `threshold`.

        >>> Tensor([-1.0, 0.5, 2.0]).softplus().numpy().round(4)
        array([0.3133, 0.9741, 2.1269], dtype=float32)
        """
        if beta == 0:
            raise ArgumentError("softplus: beta 0; legal is any other number")
        x = self * beta
        negative = x < 0
        out = (negative.where(0, x) + negative.where(x, -x).exp().log1p()) * (1 / beta)
        return out if threshold is None else (x > threshold).where(self, out)

    def logsigmoid(self) -> Self:
        """log(sigmoid(x)).

        >>> Tensor([-1.0, 0.5, 2.0]).logsigmoid().numpy().round(4)
        array([-1.3133, -0.4741, -0.1269], dtype=float32)
        """
        return -(-self).softplus()

    @wide
    def mish(self) -> Self:
        """x · tanh(softplus(x)).

        >>> Tensor([-1.0, 0.5, 2.0]).mish().numpy().round(4)
        array([-0.3034,  0.3752,  1.944 ], dtype=float32)
        """
        return self * self.softplus().tanh()

    def softsign(self) -> Self:
        """x / (1 + |x|).

        >>> Tensor([-1.0, 0.5, 2.0]).softsign().numpy().round(4)
        array([-0.5   ,  0.3333,  0.6667], dtype=float32)
        """
        return self / (self.abs() + 1)
