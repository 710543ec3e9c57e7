"""The long tail of one element in, one out: other names, other meanings of NaN and zero, the parts
of a float. NumPy's and PyTorch's functions, with their results for special values."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from tinygrad.base.dtype import DType, compute_dtype, dtypes, largest_float
from tinygrad.base.errors import DTypeError
from tinygrad.engine.host import HostFunction, call, register
from tinygrad.tensor.arguments import check_number_from
from tinygrad.tensor.elementwise import float_kind, float_of_both
from tinygrad.tensor.functions import wide
from tinygrad.tensor.long_tail.hashing import Hashing
from tinygrad.tensor.template import expressions

Described = tuple[tuple[int, ...], DType]

GCD = register(HostFunction("gcd", lambda to, a, b: np.gcd(a, b, out=to[0]), lambda a, b: [a]))
LCM = register(HostFunction("lcm", lambda to, a, b: np.lcm(a, b, out=to[0]), lambda a, b: [a]))

# The integer with a float's bits, how many of them are its mantissa, and its exponent's bias.
LAYOUT = {
    dtypes.float16: (dtypes.int16, 10, 15),
    dtypes.bfloat16: (dtypes.int16, 7, 127),
    dtypes.float32: (dtypes.int32, 23, 127),
    dtypes.float64: (dtypes.int64, 52, 1023),
}
LIFT = 64  # a subnormal number times 2**LIFT is a normal one


@expressions
class Elementary(Hashing):
    """Operands broadcast and are promoted as in arithmetic."""

    __slots__ = ()

    # ---- arithmetic by other names ---------------------------------------------------------------

    absolute = Hashing.abs
    negative = Hashing.neg
    subtract = Hashing.sub
    multiply = Hashing.mul
    divide = true_divide = Hashing.div
    floor_divide = Hashing.idiv
    remainder = Hashing.mod
    fix = Hashing.trunc
    arccos = Hashing.acos
    arccosh = Hashing.acosh
    arcsin = Hashing.asin
    arcsinh = Hashing.asinh
    arctan = Hashing.atan
    arctanh = Hashing.atanh

    def float_power(self, exponent: Any) -> Self:
        """This to the power, in float64.

        >>> Tensor([2]).float_power(-1).tolist()
        [0.5]
        """
        power = exponent.double() if isinstance(exponent, Elementary) else exponent
        return self.double().pow(power)

    def clamp_min(self, min: Any) -> Self:  # noqa: A002
        """Not below `min`.

        >>> Tensor([1, 5]).clamp_min(3).tolist()
        [3, 5]
        """
        return self.clamp(min, None)

    def clamp_max(self, max: Any) -> Self:  # noqa: A002
        """Not above `max`.

        >>> Tensor([1, 5]).clamp_max(3).tolist()
        [1, 3]
        """
        return self.clamp(None, max)

    def addcmul(self, tensor1: Self, tensor2: Any, value: Any = 1) -> Self:
        """This + value · tensor1 · tensor2.

        >>> Tensor([1.0]).addcmul(Tensor([2.0]), Tensor([3.0]), value=0.5).tolist()
        [4.0]
        """
        return self.add(tensor1 * tensor2 * value)

    def addcdiv(self, tensor1: Self, tensor2: Any, value: Any = 1) -> Self:
        """This + value · tensor1 / tensor2.

        >>> Tensor([1.0]).addcdiv(Tensor([3.0]), Tensor([2.0])).tolist()
        [2.5]
        """
        return self.add(tensor1 / tensor2 * value)

    def frac(self) -> Self:
        """What `trunc` cuts off, with this one's sign.

        >>> Tensor([1.5, -1.5]).frac().tolist()
        [0.5, -0.5]
        """
        return self - self.trunc()

    @wide
    def deg2rad(self) -> Self:
        """Degrees as radians.

        >>> Tensor([180.0]).deg2rad().numpy().round(4)
        array([3.1416], dtype=float32)
        """
        return self * (math.pi / 180)

    @wide
    def rad2deg(self) -> Self:
        """Radians as degrees.

        >>> Tensor([3.1415927]).rad2deg().numpy().round(2)
        array([180.], dtype=float32)
        """
        return self * (180 / math.pi)

    # ---- comparison ------------------------------------------------------------------------------

    less = lt = Hashing.__lt__
    less_equal = le = Hashing.__le__
    greater = gt = Hashing.__gt__
    greater_equal = ge = Hashing.__ge__
    not_equal = Hashing.ne

    def logical_xor(self, other: Any) -> Self:
        """Whether just one of the two is not zero.

        >>> Tensor([True, True]).logical_xor(Tensor([True, False])).tolist()
        [False, True]
        """
        return self.bool().ne(self._tensor(other).bool())

    def isposinf(self) -> Self:
        """Whether infinite and positive.

        >>> Tensor([float("inf"), 1.0]).isposinf().tolist()
        [True, False]
        """
        return self.isinf(True, False)

    def isneginf(self) -> Self:
        """Whether infinite and negative.

        >>> Tensor([float("-inf"), 1.0]).isneginf().tolist()
        [True, False]
        """
        return self.isinf(False, True)

    def signbit(self) -> Self:
        """Whether negative; -0.0 is, and so is a NaN with that bit.

        >>> Tensor([-0.0, 0.0]).signbit().tolist()
        [True, False]
        """
        layout = LAYOUT.get(self.dtype)
        return self < 0 if layout is None else self.bitcast(layout[0]) < 0

    def copysign(self, other: Any) -> Self:
        """The size of this with the sign of `other`, of a zero too.

        >>> Tensor([1.0, -2.0]).copysign(Tensor([-0.0, 3.0])).tolist()
        [-1.0, 2.0]
        """
        a, b = self._meet("copysign", other, dtype=float_of_both(self, other))
        size = a.abs()  # whose slope at 0 is 0
        return b.signbit().where(-size, size)

    # ---- the other meaning of NaN, and of zero ---------------------------------------------------

    def nan_to_num(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """Numbers for what is none: `nan`, and for infinities the largest and the least that the
        dtype has, unless given.

        >>> Tensor([float("nan"), 1.0]).nan_to_num().tolist()
        [0.0, 1.0]
        """
        if not dtypes.is_float(self.dtype):
            return self._copied(self)
        most = largest_float(self.dtype)
        out = self.isposinf().where(most if posinf is None else posinf, self)
        out = self.isneginf().where(-most if neginf is None else neginf, out)
        return self.isnan().where(nan, out)

    def fmax(self, other: Any) -> Self:
        """The larger; the number where just one is NaN.

        >>> Tensor([float("nan"), 1.0]).fmax(2.0).tolist()
        [2.0, 2.0]
        """
        a, b = self._meet("fmax", other)
        return ((a >= b) | b.isnan()).where(a, b)

    def fmin(self, other: Any) -> Self:
        """The smaller; the number where just one is NaN.

        >>> Tensor([1.0, float("nan")]).fmin(Tensor([3.0, 2.0])).tolist()
        [1.0, 2.0]
        """
        a, b = self._meet("fmin", other)
        return ((a <= b) | b.isnan()).where(a, b)

    bitwise_left_shift = left_shift = Hashing.lshift
    bitwise_right_shift = right_shift = Hashing.rshift

    def modf(self) -> tuple[Self, Self]:
        """What is behind the point, and what is before it, both with the sign of the number.

        >>> [t.tolist() for t in Tensor([2.5, -2.5]).modf()]
        [[0.5, -0.5], [2.0, -2.0]]
        """
        whole = self.trunc()
        rest = self.isinf().where(0, self - self.isinf().where(0, whole))
        return rest.copysign(self), whole

    def heaviside(self, values: Any) -> Self:
        """0 below zero, 1 above, `values` at zero.

        >>> Tensor([-1.0, 0.0, 2.0]).heaviside(0.5).tolist()
        [0.0, 0.5, 1.0]
        """
        a, b = self._meet("heaviside", values)
        return a.eq(0).where(b, (a > 0).cast(a.dtype))

    def xlogy(self, other: Any) -> Self:
        """This times the logarithm of `other`; 0 where this is 0, unless `other` is NaN.

        >>> Tensor([0.0, 2.0]).xlogy(Tensor([0.0, 1.0])).tolist()
        [0.0, 0.0]
        """
        x, y = self._meet("xlogy", other, dtype=float_of_both(self, other))
        silent = x.eq(0) & ((y <= 0) | y.isinf())
        return x * silent.where(1, y).log()

    @wide
    def logit(self, eps: float | None = None) -> Self:
        """log(x / (1 - x)), the inverse of `sigmoid`; first kept from `eps` to 1 - `eps`.

        >>> Tensor([0.5]).logit().tolist()
        [0.0]
        """
        check_number_from("logit", "eps", eps or 0, 0, 0.5)
        x = self if eps is None else self.clamp(eps, 1 - eps)
        slope = ((x < 0) | (x > 1)).where(math.nan, (x * (1 - x)).reciprocal())
        return (x / (1 - x)).log()._sloped(x, slope)

    @wide
    def sinc(self) -> Self:
        """sin(πx) / (πx), 1 at zero.

        >>> Tensor([0.0, 0.5]).sinc().tolist()
        [1.0, 0.6366197466850281]
        """
        zero = self.eq(0)
        whole = self.round()  # what is left of x keeps all its bits, so that whole x give 0
        x = zero.where(1, self)
        odd = (whole * 0.5).trunc().ne(whole * 0.5)
        wave = ((self - whole.detach()) * math.pi).sin()
        out = odd.where(-wave, wave) / (x * math.pi)
        near = 1 - (self * math.pi).square() * (1 / 6)  # which is 1 there, and has its derivatives
        return zero.where(near, out)

    # ---- two sides of a triangle -----------------------------------------------------------------

    def hypot(self, other: Any) -> Self:
        """√(x² + y²) without overflow; infinite where either is.

        >>> Tensor([3.0]).hypot(4.0).tolist()
        [5.0]
        """
        a, b = self._meet("hypot", other, dtype=float_of_both(self, other))
        return a._hypot(b)

    def _hypot(self, other: Self) -> Self:
        kind = float_kind(self.dtype)
        a, b = self.cast(kind), other.cast(kind)
        steep = b.abs() > a.abs()
        high, low = steep.where(b, a), steep.where(a, b)
        infinite = a.isinf() | b.isinf()
        ratio = low / (high.eq(0) | infinite).where(1, high)
        length = high.abs() * (ratio * ratio + 1).sqrt()
        length = (a.isnan() | b.isnan()).where(math.nan, length)
        length = infinite.where(math.inf, length)
        over = length.eq(0).where(math.inf, length)
        return length._sloped(a, a / over, b, b / over).cast(self.dtype)

    def atan2(self, other: Any) -> Self:
        """The angle of the point (x, y) = (`other`, this), from -π to π, with the sign of this.

        >>> Tensor([0.0, -0.0]).atan2(Tensor([1.0, 1.0])).tolist()
        [0.0, -0.0]
        """
        y, x = self._meet("atan2", other, dtype=float_of_both(self, other))
        kind = y.dtype
        if kind.itemsize < 4:
            y, x = y.float(), x.float()
        steep = y.abs() > x.abs()
        origin, far = y.eq(0) & x.eq(0), y.isinf() & x.isinf()
        ratio = steep.where(x, y) / (steep.where(y, x).eq(0)).where(1, steep.where(y, x))
        ratio = origin.where(y.detach(), far.where(y.sign() * x.sign(), ratio))
        angle = ratio.atan()
        side = y.signbit().where(-1.0, 1.0).cast(y.dtype)
        turned = x.signbit().where(angle + side * math.pi, angle)
        out = steep.where(side * (math.pi / 2) - angle, turned)
        return (y.isnan() | x.isnan()).where(math.nan, out).cast(kind)

    arctan2 = atan2

    # ---- whole numbers ---------------------------------------------------------------------------

    def _on_host(self, function: HostFunction, other: Any) -> Self:
        self._whole(function.name, other)
        a, b = self._meet(function.name, other)
        if a.dtype is dtypes.bool:
            raise DTypeError(f"{function.name}: bool and bool; legal are ints")
        if 0 in a.shape:
            return a
        return a._from(call(function, a._node, b._node)[0], b)

    def gcd(self, other: Any) -> Self:
        """The greatest number that divides both, from 0. Computed on the host.

        >>> Tensor([12, -18]).gcd(8).tolist()
        [4, 2]
        """
        return self._on_host(GCD, other)

    def lcm(self, other: Any) -> Self:
        """The least number that both divide, from 0. Computed on the host.

        >>> Tensor([4, 6]).lcm(10).tolist()
        [20, 30]
        """
        return self._on_host(LCM, other)

    # ---- the parts of a float --------------------------------------------------------------------

    def _layout(self, operation: str) -> tuple[DType, int, int]:
        if self.dtype not in LAYOUT:
            names = ", ".join(kind.name for kind in LAYOUT)
            raise DTypeError(f"{operation}: of {self.dtype!r}; legal are {names}")
        return LAYOUT[self.dtype]

    def ldexp(self, other: Any) -> Self:
        """This times 2 to the power `other`.

        >>> Tensor([3.0]).ldexp(Tensor([2])).tolist()
        [12.0]
        """
        power = self._tensor(other)
        kind = float_of_both(self, power)
        inner = compute_dtype(kind)
        half = (power.cast(inner) * 0.5).trunc()  # in two steps: 2**power may be infinite alone
        rest = half.isinf().where(half, power.cast(inner) - half)
        return (self.cast(inner) * half.exp2() * rest.exp2()).cast(kind)

    def frexp(self) -> tuple[Self, Self]:
        """(m, e) with this = m · 2**e: m a float with 1/2 <= |m| < 1, e an int32; zeros, infinities
        and NaN are their own m, with e = 0.

        >>> [t.tolist() for t in Tensor([8.0, -0.75]).frexp()]
        [[0.5, -0.75], [4, 0]]
        """
        self._layout("frexp")
        x = self.float() if self.dtype.itemsize < 4 else self
        integer, mantissa, bias = LAYOUT[x.dtype]
        tiny = x.abs() < 2.0 ** (1 - bias)
        bits = tiny.where(x * 2.0**LIFT, x).bitcast(integer)
        power = ((bits >> mantissa) & (2 * bias + 1)) - (bias - 1)
        plain = x.isfinite() & x.ne(0)
        power = plain.where(tiny.where(power - LIFT, power), 0).cast(dtypes.int32)
        return x.ldexp(-power).cast(self.dtype), power

    def nextafter(self, other: Any) -> Self:
        """The next number that the dtype has on the way to `other`.

        >>> (Tensor([1.0]).nextafter(2.0) - 1).tolist()
        [1.1920928955078125e-07]
        """
        a, b = self._meet("nextafter", other)
        integer, _, _ = a._layout("nextafter")
        bits, one = a.bitcast(integer), Hashing.const_like(a, 0).bitcast(integer) + 1
        away = (b > a).eq(a > 0)  # further from zero
        moved = away.where(bits + 1, bits - 1).bitcast(a.dtype)
        least = one.bitcast(a.dtype)
        moved = a.eq(0).where((b > 0).where(least, -least), moved)
        out = a.eq(b).where(b, moved)
        return (a.isnan() | b.isnan()).where(math.nan, out).detach()
