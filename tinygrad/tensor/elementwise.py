"""Arithmetic: operators, promotion and broadcasting, comparison, bits, rounding.

A Python number takes the tensor's dtype unless it is a float beside whole numbers, or an int beside
bools. Otherwise both go to the least type above both. Integer division by zero is a CHECK: the
next read raises.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tinygrad.base.dtype import DType, compute_dtype, dtypes, least_upper_dtype, least_upper_float
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.tensor.arguments import check_choice, check_number_from
from tinygrad.tensor.core import Core
from tinygrad.tensor.creation import ARRAY, holds_complex, node_of
from tinygrad.tensor.pieces import Pieces
from tinygrad.tensor.shapes import broadcast_shape, check_devices, check_number, holds
from tinygrad.tensor.template import expressions
from tinygrad.tensor.varying import of_any_number
from tinygrad.transforms.gradient import broadcast
from tinygrad.uop.node import UOp
from tinygrad.uop.op import ROUNDED_ONCE, Ops

Number = (bool, int, float)
WRAP = {"add", "sub", "mul", "and", "or", "xor"}
"""What commutes with wrapping: a number beyond a dtype may stand for the one that it wraps to."""
_NAMES = {op: op.name.lower() for op in Ops}
T = TypeVar("T", bound="Elementwise")


def _operators(name: str) -> tuple[Callable[[T, Any], T], Callable[[T, Any], T]]:
    """`a + b` and `b + a`, of whatever a's method of this name does."""

    def method(self: T, x: Any) -> T:
        return getattr(self, name)(x)  # type: ignore[no-any-return]

    def turned_method(self: T, x: Any) -> T:
        return getattr(self, name)(x, True)  # type: ignore[no-any-return]

    return method, turned_method


@expressions
class Elementwise(Pieces):
    """One element of each source in, one out."""

    __slots__ = ()

    # ---- how two sources meet --------------------------------------------------------------------

    def _tensor(self, other: Any, dtype: DType | None = None) -> Self:
        """`other` as a tensor; a Python number with the dtype that it takes beside this one."""
        if isinstance(other, Elementwise):
            return other  # type: ignore[return-value]
        if is_complex(other):
            return self._complex(other, self.device)  # type: ignore[no-any-return]
        if isinstance(other, Number):
            return self._wrap(UOp.const(dtype or self._dtype_of(other), other, self.device))
        if isinstance(other, (UOp, list, tuple)) or hasattr(other, ARRAY):
            return self._wrap(node_of(other, None, self.device))
        raise DTypeError(
            f"an operand {other!r} of type {type(other).__name__}; legal are tensors, numbers "
            "and arrays"
        )

    def _operand(self, operation: str, other: Any, dtype: DType | None = None) -> UOp:
        """The node of `other`: of a number the constant, wherever a copy of it may lie."""
        if isinstance(other, Number):
            kind = dtype or self._dtype_of(other)
            check_held(operation, other, kind)
            return UOp.const(kind, other, self.device)
        return self._tensor(other)._node

    def _dtype_of(self, number: Any) -> DType:
        own = self.dtype
        if dtypes.is_float(own) or isinstance(number, bool):
            return own if dtypes.is_float(own) else least_upper_dtype(own, dtypes.bool)
        if isinstance(number, int):
            return own if dtypes.is_int(own) else dtypes.default_int
        return dtypes.default_float

    def _meet(self, operation: str, *others: Any, dtype: DType | None = None) -> list[Self]:
        """This and `others` with one shape, and one dtype unless `dtype` is void."""
        own = None if dtype is dtypes.void else dtype
        for number in (other for other in others if isinstance(other, Number)):
            check_held(operation, number, own or self._dtype_of(number))
        all_: list[Self] = [self, *(self._tensor(other, own) for other in others)]
        check_devices(operation, *all_)
        shape = broadcast_shape(operation, *(t.shape for t in all_))
        if dtype is dtypes.void:
            return [t._broadcast_to(shape) for t in all_]
        kind = dtype or least_upper_dtype(*(t.dtype for t in all_))
        return [t.cast(kind)._broadcast_to(shape) for t in all_]

    def _met(self, operation: str, other: Any, reverse: bool) -> tuple[Self, Self]:
        """This and `other` with one shape and dtype; exchanged if `reverse`."""
        a, b = self._meet(operation, other)
        return (b, a) if reverse else (a, b)

    def _pair(self, operation: str, other: Any, reverse: bool = False) -> tuple[UOp, UOp]:
        """The nodes of this and `other` with one shape and dtype; exchanged if `reverse`."""
        a = self._node
        if isinstance(other, Number):
            kind = least_upper_dtype(a.dtype, self._dtype_of(other))
            if a.dtype is dtypes.bool:
                check_number(operation, other, kind)  # a bool says of no dtype that it wraps
            check_held(operation, other, kind)
            a = a.cast(kind)
            b = a.const_like(other)
        else:
            x = self._tensor(other)
            b = x._node
            kind = least_upper_dtype(a.dtype, b.dtype)
            if a.device != b.device:
                check_devices(operation, self, x)
        if a.shape != b.shape:
            shape = broadcast_shape(operation, a.shape, b.shape)
            a, b = broadcast(a.cast(kind), shape), broadcast(b.cast(kind), shape)
        else:
            a, b = a.cast(kind), b.cast(kind)
        return (b, a) if reverse else (a, b)

    def _of_pair(self, node: UOp, other: Any) -> Self:
        """A tensor of `node`, which was made of this and `other`."""
        return self._from(node, other) if isinstance(other, Elementwise) else self._from(node)

    def _promoted(self, *others: Any) -> Any:
        """This as complex numbers, beside operands of which one is complex."""
        return self.cast(least_upper_dtype(self.dtype, *(self._tensor(o).dtype for o in others)))

    def _binary(self, op: Ops, other: Any, reverse: bool = False) -> Self:
        if is_complex(other):
            return self._promoted(other)._binary(op, other, reverse)  # type: ignore[no-any-return]
        a, b = self._pair(_NAMES[op], other, reverse)
        return self._of_pair(a.alu(op, b), other)

    def _unary(self, op: Ops) -> Self:
        x = self.cast(least_upper_float(self.dtype))
        return x._from(x._node.alu(op))

    def _whole(self, operation: str, other: Any) -> None:
        kinds = (self.dtype, self._tensor(other).dtype)
        if dtypes.is_float(least_upper_dtype(*kinds)):
            raise DTypeError(
                f"{operation}: {kinds[0]!r} and {kinds[1]!r}; legal are ints and bools of which "
                "one type holds both"
            )

    def _shifted(self, op: Ops, sign: str, x: Any, reverse: bool) -> Self:
        """Shifts whole numbers; a CHECK that no number of places is negative."""
        self._whole(sign, x)
        if isinstance(x, int) and x >= 0:  # one below 0 is told of below
            check_held(sign, x, self._dtype_of(x))
        value, places = (self._tensor(x), self) if reverse else (self, self._tensor(x))
        node = places._node
        legal = f"{sign}: by {{0}} places; legal are numbers from 0"
        if node.vmax < 0:
            raise ArgumentError(legal.format(node.vmax if isinstance(x, UOp) else x))
        if node.vmin < 0:
            places = places._from(node.check(node >= 0, "shift", legal))
        return value._binary(op, places)

    # ---- arithmetic ------------------------------------------------------------------------------

    @of_any_number
    def add(self, x: Any, reverse: bool = False, *, alpha: float = 1) -> Self:
        """The sum, of `alpha` times the other.

        >>> (Tensor([1, 2]) + 0.5).tolist()
        [1.5, 2.5]
        """
        return self._binary(Ops.ADD, x if alpha == 1 else self._tensor(x) * alpha, reverse)

    @of_any_number
    def sub(self, x: Any, reverse: bool = False, *, alpha: float = 1) -> Self:
        """The difference, of `alpha` times the other. DTypeError between bools, where it has no
        meaning.

        >>> Tensor([5, 7]).sub(2).tolist()
        [3, 5]
        """
        if alpha != 1:
            return self.sub(self._tensor(x) * alpha, reverse)
        if is_complex(x):
            return self._promoted(x).sub(x, reverse)  # type: ignore[no-any-return]
        a, b = self._pair("sub", x, reverse)
        if a.dtype is dtypes.bool:
            raise DTypeError("sub: bool and bool; legal are numbers; use ^ for 'differs'")
        return self._of_pair(a.alu(Ops.ADD, -b), x)

    @of_any_number
    def mul(self, x: Any, reverse: bool = False) -> Self:
        """The product.

        >>> (Tensor([1, 2]) * 3).tolist()
        [3, 6]
        """
        return self._binary(Ops.MUL, x, reverse)

    def neg(self) -> Self:
        """Minus this; of a bool, not this. Unsigned numbers wrap.

        >>> Tensor([1, -2]).neg().tolist()
        [-1, 2]
        """
        return self.logical_not() if self.dtype is dtypes.bool else self._from(-self._node)

    @of_any_number
    def div(self, x: Any, reverse: bool = False, rounding_mode: str | None = None) -> Self:
        """The quotient, a float; with `rounding_mode` "trunc" or "floor" rounded, in the operands'
        type. A whole number divided by zero so raises DivisionCheckError at the next read.

        >>> (Tensor([1, 2]) / 2).tolist()
        [0.5, 1.0]
        >>> Tensor([-7]).div(2, rounding_mode="trunc").tolist()
        [-3]
        """
        check_choice("div", "rounding_mode", rounding_mode, (None, "trunc", "floor"))
        if is_complex(x):
            return self._promoted(x).div(x, reverse, rounding_mode)  # type: ignore[no-any-return]
        if rounding_mode == "floor":
            return self.idiv(x, reverse)
        if rounding_mode is None and isinstance(x, int) and not dtypes.is_float(self.dtype):
            return self.cast(least_upper_float(self.dtype)).div(float(x), reverse)
        one, other = self._pair("div", x, reverse)
        if rounding_mode is None or dtypes.is_float(one.dtype):
            kind = least_upper_float(one.dtype)
            out = self._of_pair(one.cast(kind).alu(Ops.FDIV, other.cast(kind)), x)
            return out if rounding_mode is None else out.trunc()
        a, b = self._of_pair(one, x), self._of_pair(other, x)
        down = a.idiv(b)
        inexact = (down * b).ne(a)
        return down + inexact.logical_and((a < 0) ^ (b < 0)).cast(down.dtype)

    def _divided(self, op: Ops, sign: str, divisor: Self) -> Self:
        """Whole numbers divided, with a CHECK that none is by zero, unless that is known."""
        kind = _at_least_int8(self.dtype)
        a, b = self.cast(kind), divisor.cast(kind)._node
        if b.vmin <= 0 <= b.vmax:
            b = b.check(b.ne(0), "division", f"{sign}: division of a whole number by zero")
        return a._from(a._node.alu(op, b), divisor)

    def idiv(self, x: Any, reverse: bool = False) -> Self:
        """The quotient rounded down, as Python's //.

        >>> (Tensor([7, -7]) // 2).tolist()
        [3, -4]
        """
        a, b = self._met("//", x, reverse)
        if dtypes.is_float(a.dtype):
            return a._float_floor_division(b)
        return a._divided(Ops.IDIV, "//", b)

    def mod(self, x: Any, reverse: bool = False) -> Self:
        """The remainder with the divisor's sign, as Python's %.

        >>> (Tensor([7, -7]) % 3).tolist()
        [1, 2]
        """
        a, b = self._met("%", x, reverse)
        if dtypes.is_float(a.dtype):
            rest = a.fmod(b)
            return rest._against(b).where(rest + b, rest)
        return a._divided(Ops.MOD, "%", b)

    def _against(self, divisor: Self) -> Self:
        """Whether a remainder has another sign than its divisor."""
        return self.ne(0) & ((self < 0) ^ (divisor < 0))

    def _float_floor_division(self, b: Self) -> Self:
        """What the remainder leaves, divided: a whole number but for a last rounding."""
        rest = self.fmod(b)
        quotient = (self - rest) / b
        quotient = rest._against(b).where(quotient - 1, quotient)
        down = quotient.floor()
        down = (quotient - down > 0.5).where(down + 1, down)
        whole = self / b
        out = quotient.eq(0).where(whole * 0, down)  # a zero's sign
        is_huge = rest.isnan() & self.isfinite() & b.isfinite()  # then it has no fraction
        return (b.eq(0) | is_huge).where(whole, out)

    def fmod(self, x: Any) -> Self:
        """The remainder with this one's sign, as C's fmod. Floats: exact; NaN where the quotient
        has more than twice the bits of a mantissa.

        >>> Tensor([7, -7]).fmod(3).tolist()
        [1, -1]
        """
        a, b = self._meet("fmod", x)
        if not dtypes.is_float(a.dtype):
            return a - a.div(b, rounding_mode="trunc") * b
        wide, bits = (dtypes.float64, dtypes.int64), (dtypes.float32, dtypes.int32)
        kind, whole = wide if a.dtype is dtypes.float64 else bits
        p, divisor = a.cast(kind), b.cast(kind).abs()
        negative = p.bitcast(whole) < 0
        p = negative.where(-p, p)
        rest = p
        for _ in range(2):  # each takes the bits of one mantissa off the quotient, exactly
            times = (rest / divisor).trunc()
            less = (-times)._node.alu(Ops.MULACC, divisor._node, rest._node)
            rest = p._from(less.replace(arg=ROUNDED_ONCE), p, divisor)
        rest = (rest < 0).where(rest + divisor, rest)  # `times` was rounded up
        rest = ((rest >= 0) & (rest < divisor)).where(rest, math.nan)
        rest = (divisor.isinf() & p.isfinite()).where(p, rest)
        return negative.where(-rest, rest).cast(a.dtype)

    def reciprocal(self) -> Self:
        """One over this.

        >>> Tensor([2.0, 4.0]).reciprocal().tolist()
        [0.5, 0.25]
        """
        return self._unary(Ops.RECIP)

    def square(self) -> Self:
        """This times itself.

        >>> Tensor([2, -3]).square().tolist()
        [4, 9]
        """
        return self * self

    def sqrt(self) -> Self:
        """The square root; NaN below zero.

        >>> Tensor([4.0]).sqrt().tolist()
        [2.0]
        """
        return self._unary(Ops.SQRT)

    def rsqrt(self) -> Self:
        """One over the square root.

        >>> Tensor([4.0, 16.0]).rsqrt().tolist()
        [0.5, 0.25]
        """
        return self.sqrt().reciprocal()

    def pow(self, x: Any, reverse: bool = False) -> Self:
        """This to the power `x`. ArgumentError for an int to a negative number.

        >>> (Tensor([2, 3]) ** 2).tolist(), (2 ** Tensor([1.0, 2.0])).tolist()
        ([4, 9], [2.0, 4.0])
        """
        if not reverse and isinstance(x, Number) and not isinstance(x, bool):
            return self._pow_number(x)
        if is_complex(x):
            return self._promoted(x).pow(x, reverse)  # type: ignore[no-any-return]
        a, b = self._met("pow", x, reverse)
        if dtypes.is_float(a.dtype):
            return a._from(a._node.alu(Ops.POW, b._node), a, b)
        return _whole_power(a.cast(_at_least_int8(a.dtype)), b.cast(_at_least_int8(a.dtype)))

    def _pow_number(self, x: float) -> Self:
        whole = float(x).is_integer() and 0 < abs(x) <= 64  # x**0 has a gradient: zeros
        if isinstance(x, float) and not dtypes.is_float(self.dtype):
            return self.cast(dtypes.default_float)._pow_number(x)
        if not dtypes.is_float(self.dtype):
            base = self.cast(_at_least_int8(self.dtype))
            if x < 0:
                raise ArgumentError(
                    f"pow: {self.dtype!r} to the power {x}; legal are powers from 0"
                )
            return base._multiplied(int(x))
        inner = compute_dtype(self.dtype)
        if whole and inner is not self.dtype and not -1 <= x <= 2:  # rounded once
            return self.cast(inner)._pow_number(x).cast(self.dtype)
        if whole:
            power = self._multiplied(abs(int(x)))
            return power if x >= 0 else power.reciprocal()
        if abs(x) == 0.5:
            return self.sqrt() if x > 0 else self.rsqrt()
        return self._binary(Ops.POW, x)

    def _multiplied(self, times: int) -> Self:
        """This times itself, by squares."""
        if not times:
            return self._wrap(self._constant(1, shape=self.shape))
        return by_squares(self, times, operator.mul) if times > 1 else self._copied(self)

    def maximum(self, x: Any) -> Self:
        """The larger; NaN if either is NaN.

        >>> Tensor([1, 5]).maximum(3).tolist()
        [3, 5]
        """
        return self._binary(Ops.MAX, x)

    def minimum(self, x: Any) -> Self:
        """The smaller; NaN if either is NaN.

        >>> Tensor([1, 5]).minimum(Tensor([3, 3])).tolist()
        [1, 3]
        """
        a, b = self._pair("minimum", x)
        return self._of_pair(order_reversed(order_reversed(a).alu(Ops.MAX, order_reversed(b))), x)

    def clamp(self, min_: Any = None, max_: Any = None) -> Self:
        """Not below `min`, not above `max`; where they cross, `max`. NaN where a limit is.

        >>> Tensor([-1, 5]).clamp(0, 3).tolist()
        [0, 3]
        """
        if min_ is None and max_ is None:
            raise ArgumentError("clamp: give min, max or both")
        for limit in (each for each in (min_, max_) if isinstance(each, Number)):
            if limit != limit:
                raise ArgumentError(f"clamp: {limit} as a limit; legal are numbers")
            check_held("clamp", limit, self._dtype_of(limit))
        out = self
        if min_ is not None:  # where, not maximum: the gradient at the edge belongs to this
            out = self._or_unknown(out < min_, min_).where(min_, out)
        return out if max_ is None else self._or_unknown(out > max_, max_).where(max_, out)

    clip = clamp

    def _or_unknown(self, is_beyond: Self, limit: Any) -> Self:
        """Beyond a limit, or that is NaN."""
        if isinstance(limit, Number) or not dtypes.is_float((limit := self._tensor(limit)).dtype):
            return is_beyond
        made: Self = is_beyond | limit.ne(limit)
        return made

    def lerp(self, end: Any, weight: Any) -> Self:
        """From this (weight 0) to `end` (weight 1) in a straight line, counted from the nearer.

        >>> Tensor([1.0]).lerp(Tensor([3.0]), 0.5).tolist()
        [2.0]
        """
        end = self._tensor(end)
        apart = end.sub(self)
        if isinstance(weight, Number):
            near = abs(weight) < 0.5
            return self.add(apart * weight) if near else end.sub(apart * (1 - weight))
        share = self._tensor(weight)
        small = share.abs() < 0.5
        return small.where(self, end).add(apart * small.where(share, share - 1))

    def abs(self) -> Self:
        """The size without the sign.

        >>> Tensor([-2, 3]).abs().tolist()
        [2, 3]
        """
        if dtypes.is_unsigned(self.dtype) or self.dtype is dtypes.bool:
            return self._copied(self)
        if dtypes.is_float(self.dtype):
            return self.maximum(-self)
        return (self < 0).where(-self, self)

    def sign(self) -> Self:
        """-1, 0 or 1; NaN of NaN.

        >>> Tensor([-2.0, 0.0, 3.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
        """
        if self.dtype is dtypes.bool:
            return self._copied(self)
        above, below = (self > 0).cast(self.dtype), (self < 0).cast(self.dtype)
        out = above - below if not dtypes.is_unsigned(self.dtype) else above
        if dtypes.is_float(self.dtype):
            out = self.isnan().where(self.trunc(), out)  # so that its gradient is 0, and not none
        return self._from(out._node)

    # ---- rounding --------------------------------------------------------------------------------

    def trunc(self) -> Self:
        """Rounded toward zero.

        >>> Tensor([-1.7, 1.7]).trunc().tolist()
        [-1.0, 1.0]
        """
        return self._unary(Ops.TRUNC) if dtypes.is_float(self.dtype) else self._copied(self)

    def floor(self) -> Self:
        """Rounded down.

        >>> Tensor([-1.5, 1.5]).floor().tolist()
        [-2.0, 1.0]
        """
        whole = self.trunc()
        return (self < whole).where(whole - 1, whole) if dtypes.is_float(self.dtype) else whole

    def ceil(self) -> Self:
        """Rounded up.

        >>> Tensor([-1.5, 1.5]).ceil().tolist()
        [-1.0, 2.0]
        """
        whole = self.trunc()
        return (self > whole).where(whole + 1, whole) if dtypes.is_float(self.dtype) else whole

    def round(self, decimals: int = 0) -> Self:
        """Rounded to the nearest whole number, halves to the even one; with `decimals` to so many
        digits behind the point, or before it.

        >>> Tensor([0.5, 1.5, 2.5]).round().tolist()
        [0.0, 2.0, 2.0]
        """
        if not dtypes.is_float(self.dtype):
            if decimals < 0:
                raise DTypeError(f"round: decimals={decimals} of {self.dtype!r}; legal are floats")
            return self._copied(self)
        if decimals:
            x, scale = self.cast(compute_dtype(self.dtype)), 10.0 ** abs(decimals)
            there = x * scale if decimals > 0 else x / scale
            whole = there.round()
            return (whole / scale if decimals > 0 else whole * scale).cast(self.dtype)
        return self._unary(Ops.ROUND)

    # ---- comparison ------------------------------------------------------------------------------

    def eq(self, x: Any) -> Self:
        """Whether equal.

        >>> (Tensor([1, 2]) == 2).tolist()
        [False, True]
        """
        return self._compare(Ops.CMPEQ, x)

    def ne(self, x: Any) -> Self:
        """Whether not equal; true for NaN.

        >>> Tensor([1, 2]).ne(2).tolist()
        [True, False]
        """
        return self._compare(Ops.CMPNE, x)

    def _compare(self, op: Ops, x: Any, reverse: bool = False) -> Self:
        if is_complex(x):
            return self._promoted(x)._compare(op, x, reverse)  # type: ignore[no-any-return]
        if isinstance(x, int) and not holds(self._dtype_of(x), x):
            x = math.copysign(math.inf, x)  # it is beyond all of these
        a, b = self._pair(_NAMES[op], x, reverse)
        return self._wrap(a.alu(op, b), False)

    def isnan(self) -> Self:
        """Whether NaN.

        >>> Tensor([1.0, float("nan")]).isnan().tolist()
        [False, True]
        """
        return self.ne(self)

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """Whether infinite, of the signs asked for.

        >>> Tensor([1.0, float("-inf")]).isinf().tolist()
        [False, True]
        """
        if not dtypes.is_float(self.dtype):
            return self.ne(self)
        high, low = self.eq(math.inf), self.eq(-math.inf)
        if detect_positive and detect_negative:
            return high | low
        return high if detect_positive else low if detect_negative else self.ne(self) & False

    def isfinite(self) -> Self:
        """Whether neither infinite nor NaN.

        >>> Tensor([1.0, float("inf"), float("nan")]).isfinite().tolist()
        [True, False, False]
        """
        return (self.isinf() | self.isnan()).logical_not()

    def isclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Self:
        """Whether |a - b| <= atol + rtol·|b|; equal infinities are close, NaNs only if asked.

        >>> Tensor([1.0, 2.0]).isclose(Tensor([1.0, 2.1])).tolist()
        [True, False]
        """
        if is_complex(other):
            near = self._promoted(other).isclose(other, rtol, atol, equal_nan)
            return near  # type: ignore[no-any-return]
        check_number_from("isclose", "rtol", rtol, 0)
        check_number_from("isclose", "atol", atol, 0)
        a, b = self._meet("isclose", other, dtype=float_of_both(self, other))
        near = a.isfinite() & b.isfinite() & ((a - b).abs() <= b.abs() * rtol + atol)
        both = (a.isnan() & b.isnan()) & equal_nan
        return a.eq(b) | near | both

    # ---- logic and bits --------------------------------------------------------------------------

    def logical_not(self) -> Self:
        """Whether zero.

        >>> Tensor([True, False]).logical_not().tolist()
        [False, True]
        """
        return self._wrap(self._node.cast(dtypes.bool).logical_not(), False)

    def logical_and(self, x: Any) -> Self:
        """Whether neither is zero.

        >>> Tensor([True, False]).logical_and(True).tolist()
        [True, False]
        """
        return self.bool() & self._tensor(x).bool()

    def logical_or(self, x: Any) -> Self:
        """Whether not both are zero.

        >>> Tensor([True, False]).logical_or(False).tolist()
        [True, False]
        """
        return self.bool() | self._tensor(x).bool()

    def bitwise_and(self, x: Any, reverse: bool = False) -> Self:
        """Bits of both; of bools, and.

        >>> Tensor([6, 5]).bitwise_and(3).tolist()
        [2, 1]
        """
        self._whole("&", x)
        return self._binary(Ops.AND, x, reverse)

    def bitwise_or(self, x: Any, reverse: bool = False) -> Self:
        """Bits of either; of bools, or.

        >>> Tensor([6, 5]).bitwise_or(3).tolist()
        [7, 7]
        """
        self._whole("|", x)
        return self._binary(Ops.OR, x, reverse)

    def bitwise_xor(self, x: Any, reverse: bool = False) -> Self:
        """Bits that differ; of bools, whether they differ.

        >>> Tensor([6, 5]).bitwise_xor(3).tolist()
        [5, 6]
        """
        self._whole("^", x)
        return self._binary(Ops.XOR, x, reverse)

    def bitwise_not(self) -> Self:
        """All bits turned; of bools, not.

        >>> Tensor([0, 5]).bitwise_not().tolist()
        [-1, -6]
        """
        self._whole("~", self)
        return self.logical_not() if self.dtype is dtypes.bool else self._from(~self._node)

    def lshift(self, x: Any, reverse: bool = False) -> Self:
        """Bits moved up; by the width or more 0.

        >>> (Tensor([1, 2]) << 3).tolist()
        [8, 16]
        """
        return self._shifted(Ops.SHL, "<<", x, reverse)

    def rshift(self, x: Any, reverse: bool = False) -> Self:
        """Bits moved down.

        >>> Tensor([8, 5]).rshift(1).tolist()
        [4, 2]
        """
        return self._shifted(Ops.SHR, ">>", x, reverse)

    # ---- choice ----------------------------------------------------------------------------------

    def where(self, x: Any = None, y: Any = None) -> Self:
        """`x` where this is true, else `y`. ArgumentError unless both are given, and if only `x` is
        a mask.

        >>> Tensor([True, False]).where(1, Tensor([5, 6])).tolist()
        [1, 6]
        """
        if not isinstance(self, Elementwise):
            raise DTypeError(f"where: {self!r} as a condition; legal is a Tensor")
        if x is None or y is None:
            raise ArgumentError(
                f"where: {x} and {y}; legal are two choices, and without any of them "
                "nonzero(as_tuple=True) for the places"
            )
        if is_complex(x) or is_complex(y):
            return self._complex.chosen(self, x, y)  # type: ignore[no-any-return]
        check_devices("where", self, *(t for t in (x, y) if isinstance(t, Elementwise)))
        if _is_mask(x) and not (_is_mask(self) or _is_mask(y) or isinstance(y, bool)):
            raise ArgumentError("where: a mask as the first choice; legal is mask.where(a, b)")
        yes, no = self._choices(x, y)
        mask = self._node.cast(dtypes.bool)
        shape = broadcast_shape("where", mask.shape, yes.shape, no.shape)
        kind = least_upper_dtype(yes.dtype, no.dtype)
        one, other = broadcast(yes.cast(kind), shape), broadcast(no.cast(kind), shape)
        node = broadcast(mask, shape).alu(Ops.WHERE, one, other)
        return self._from(node, *(t for t in (x, y) if isinstance(t, Elementwise)))

    def _choices(self, x: Any, y: Any) -> tuple[UOp, UOp]:
        """The nodes to choose from; a number takes the dtype that it takes beside the other."""
        if isinstance(x, Elementwise):
            return x._node, x._operand("where", y)
        if isinstance(y, Elementwise):
            return y._operand("where", x), y._node
        kind = None
        if isinstance(x, Number) and isinstance(y, Number):
            kind = max(dtypes.from_py(x), dtypes.from_py(y))
        return self._operand("where", x, kind), self._operand("where", y, kind)

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """`value` where `mask` is true.

        >>> Tensor([1, 2]).masked_fill(Tensor([True, False]), 9).tolist()
        [9, 2]
        """
        return mask.where(value, self)

    # ---- operators -------------------------------------------------------------------------------

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("sub")
    __mul__, __rmul__ = _operators("mul")
    __truediv__, __rtruediv__ = _operators("div")
    __floordiv__, __rfloordiv__ = _operators("idiv")
    __mod__, __rmod__ = _operators("mod")
    __pow__, __rpow__ = _operators("pow")
    __and__, __rand__ = _operators("bitwise_and")
    __or__, __ror__ = _operators("bitwise_or")
    __xor__, __rxor__ = _operators("bitwise_xor")
    __lshift__, __rlshift__ = _operators("lshift")
    __rshift__, __rrshift__ = _operators("rshift")

    def __lt__(self, x: Any) -> Self:
        """Whether each element is less than x; false with NaN.

        >>> (Tensor([1, 2, 3]) < 2).tolist()
        [True, False, False]
        """
        return self._compare(Ops.CMPLT, x)

    def __gt__(self, x: Any) -> Self:
        """Whether each element is greater than x; false with NaN.

        >>> (Tensor([1, 2, 3]) > 2).tolist()
        [False, False, True]
        """
        return self._compare(Ops.CMPLT, x, True)

    def __le__(self, x: Any) -> Self:
        """Whether each element is at most x; false with NaN.

        >>> (Tensor([1, 2, 3]) <= 2).tolist()
        [True, True, False]
        """
        return self._compare(Ops.CMPLT, x).bitwise_or(self.eq(x))

    def __ge__(self, x: Any) -> Self:
        """Whether each element is at least x; false with NaN.

        >>> (Tensor([1, 2, 3]) >= 2).tolist()
        [False, True, True]
        """
        return self._compare(Ops.CMPLT, x, True).bitwise_or(self.eq(x))

    # Beside what has no values (None, a text) Python compares identities, so that containers can.

    def __eq__(self, x: object) -> Self:  # type: ignore[override]
        return self.eq(x) if is_operand(x) else NotImplemented

    def __ne__(self, x: object) -> Self:  # type: ignore[override]
        return self.ne(x) if is_operand(x) else NotImplemented

    __hash__ = Core.__hash__

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self._copied(self)

    def __abs__(self) -> Self:
        return self.abs()

    def __invert__(self) -> Self:
        return self.bitwise_not()


def by_squares(x: T, times: int, product: Callable[[T, T], T]) -> T:
    """x multiplied by itself so many times, from 1."""
    while not times & 1:
        x, times = product(x, x), times >> 1
    out = x
    while times := times >> 1:
        x = product(x, x)
        out = product(out, x) if times & 1 else out
    return out


def is_operand(x: object) -> bool:
    """Whether it is a tensor, or what becomes one."""
    return isinstance(x, (Elementwise, Number, UOp, list, tuple)) or hasattr(x, ARRAY)


def is_complex(x: Any) -> bool:
    """Whether an operand, a tensor or what becomes one, holds complex numbers."""
    if isinstance(x, Core):
        return bool(x._element)
    return not isinstance(x, Number) and holds_complex(x)


def _is_mask(x: Any) -> bool:
    return isinstance(x, Elementwise) and x.dtype is dtypes.bool


def check_held(operation: str, number: float, dtype: DType) -> None:
    """ArgumentError for a number that would wrap where a wrapped one means something else."""
    if operation not in WRAP:
        check_number(operation, number, dtype)


def _at_least_int8(dtype: DType) -> DType:
    return dtypes.int8 if dtype is dtypes.bool else dtype


def float_of_both(a: Elementwise, b: Any) -> DType:
    """The float type in which `a` and `b` meet."""
    other = b.dtype if isinstance(b, Elementwise) else a.dtype
    return least_upper_float(least_upper_dtype(a.dtype, other))


def float_kind(dtype: DType) -> DType:
    """The float type in which a function of `dtype` is computed: float32 for narrower ones."""
    return compute_dtype(least_upper_float(dtype))


def order_reversed(node: UOp) -> UOp:
    """The order turned round without overflow: minus a float, the bits of an integer turned."""
    if node.dtype is dtypes.bool:
        return node.logical_not()
    return -node if dtypes.is_float(node.dtype) else ~node


def _whole_power(base: T, exponent: T) -> T:
    """By the exponent's bits; below zero 1 and -1 keep their powers and all else gives 0."""
    node = exponent._node
    positive = (exponent < 0).where(-exponent, exponent) if node.vmin < 0 else exponent
    bits = min(exponent.dtype.bitsize, int(max(abs(node.vmin), abs(node.vmax))).bit_length())
    out, square = base.const_like(1), base
    for bit in range(bits):
        out = ((positive >> bit) & 1).bool().where(out * square, out)
        square = square * square
    if node.vmin >= 0:
        return out
    unit = base.eq(1) | base.eq(-1)
    return ((exponent < 0) & unit.logical_not()).where(out.const_like(0), out)


def check_mask(operation: str, mask: Any) -> None:
    """DTypeError for a tensor of numbers: its places may be what is meant."""
    if isinstance(mask, Core) and mask.dtype is not dtypes.bool:
        raise DTypeError(f"{operation}: a mask of {mask.dtype!r}; legal are bools: mask != 0")
