"""Operators and elementary functions for everything that builds expressions: nodes, patterns and
tensors. A class that derives from `Arithmetic` supplies `alu` and `const_like`, nothing else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tinygrad.base.dtype import dtypes
from tinygrad.uop.op import Ops

A = TypeVar("A", bound="Arithmetic")


def _operators(op: Ops) -> tuple[Callable[[A, Any], A], Callable[[A, Any], A]]:
    """`a op b`, and `b op a`."""

    def method(self: A, other: Any) -> A:
        return self._binary(op, other)

    def turned_method(self: A, other: Any) -> A:
        return self._binary(op, other, True)

    return method, turned_method


class Arithmetic:
    """Python's operators and the elementary functions, as ops of the table. (No ABC: `isinstance`
    would run Python.)"""

    __slots__ = ()

    @abstractmethod
    def alu(self, op: Ops, *others: Self) -> Self:
        """This and `others` as the sources of `op`.

        >>> Variable("n", 1, 8).alu(Ops.ADD, Variable("m", 1, 3))
        (n + m)[2..11]
        """

    @abstractmethod
    def const_like(self, value: Any) -> Self:
        """A constant with this one's dtype and shape.

        >>> Variable("n", 1, 8).const_like(3).arg
        3
        """

    def _operand(self, other: Any) -> Self:
        own = type(self)
        return other if type(other) is own or isinstance(other, own) else self.const_like(other)

    def _operands(self, other: Any) -> tuple[Self, Self]:
        """This and a Python number as the operands of one operation."""
        return self, self._operand(other)

    def _binary(self, op: Ops, other: Any, reverse: bool = False) -> Self:
        if type(other) is not type(self):
            if hasattr(other, "__array_priority__"):  # a tensor or an array: it knows what to do
                return NotImplemented  # type: ignore[no-any-return]
            self, other = self._operands(other)
        return other.alu(op, self) if reverse else self.alu(op, other)

    # ---- operators -------------------------------------------------------------------------------

    def __neg__(self) -> Self:
        return self._binary(Ops.MUL, -1)

    def __invert__(self) -> Self:
        return self._binary(Ops.XOR, -1)

    __add__, __radd__ = _operators(Ops.ADD)
    __mul__, __rmul__ = _operators(Ops.MUL)
    __truediv__, __rtruediv__ = _operators(Ops.FDIV)
    __floordiv__, __rfloordiv__ = _operators(Ops.IDIV)
    __mod__, __rmod__ = _operators(Ops.MOD)
    __and__, __rand__ = _operators(Ops.AND)
    __or__, __ror__ = _operators(Ops.OR)
    __xor__, __rxor__ = _operators(Ops.XOR)
    __lshift__, __rlshift__ = _operators(Ops.SHL)
    __rshift__, __rrshift__ = _operators(Ops.SHR)
    __lt__, __gt__ = _operators(Ops.CMPLT)

    def __sub__(self, other: Any) -> Self:
        if hasattr(other, "__array_priority__"):
            return NotImplemented
        one, two = self._operands(other)
        return one._binary(Ops.ADD, -two)

    def __rsub__(self, other: Any) -> Self:
        one, two = self._operands(other)
        return two._binary(Ops.ADD, -one)

    def __le__(self, other: Any) -> Self:
        return self._binary(Ops.CMPLT, other)._binary(Ops.OR, self.eq(other))

    def __ge__(self, other: Any) -> Self:
        return self._binary(Ops.CMPLT, other, True)._binary(Ops.OR, self.eq(other))

    # ---- functions -------------------------------------------------------------------------------

    def eq(self, other: Any) -> Self:
        """Elementwise equality. (`==` on nodes is identity, so that they can be dict keys.)

        >>> n = Variable("n", 1, 8)
        >>> n.eq(9).ssimplify(), n.eq(n).ssimplify(), n == n + 0
        (False, True, False)
        """
        return self._binary(Ops.CMPEQ, other)

    def ne(self, other: Any) -> Self:
        """Elementwise inequality.

        >>> Variable("n", 1, 8).ne(9).ssimplify()
        True
        """
        return self._binary(Ops.CMPNE, other)

    def logical_not(self) -> Self:
        """Whether this bool is false.

        >>> (Variable("n", 1, 8) < 9).logical_not().ssimplify()
        False
        """
        return self._binary(Ops.CMPNE, True)

    def maximum(self, other: Any) -> Self:
        """The larger of two; NaN if one is.

        >>> Variable("n", 1, 8).maximum(3).vmin
        3
        """
        return self._binary(Ops.MAX, other)

    def minimum(self, other: Any) -> Self:
        """The smaller of two: -max(-a, -b), on integers ~max(~a, ~b), which can't overflow.

        >>> UOp.const(dtypes.int, -5).minimum(3).ssimplify()
        -5
        """
        self, operand = self._operands(other)
        if dtypes.is_float(getattr(self, "dtype", dtypes.float32)):
            return -((-self).maximum(-operand))
        return ~((~self).maximum(~operand))

    def where(self, yes: Any, no: Any) -> Self:
        """`yes` where this bool holds, else `no`; one of the two may be a Python number.

        Raises:
            TypeError: both are.

        >>> n = Variable("n", 1, 8)
        >>> (n < 9).where(n, 0).ssimplify()
        n[1..8]
        """
        if isinstance(yes, type(self)):
            return self.alu(Ops.WHERE, yes, yes._operand(no))
        if isinstance(no, type(self)):
            return self.alu(Ops.WHERE, no.const_like(yes), no)
        raise TypeError("where(yes, no): one of the two must not be a Python number")

    def exp2(self) -> Self:
        """2 to the power of this.

        >>> UOp.const(dtypes.float, 3.0).exp2().ssimplify()
        8.0
        """
        return self.alu(Ops.EXP2)

    def log2(self) -> Self:
        """The logarithm to base 2.

        >>> UOp.const(dtypes.float, 8.0).log2().ssimplify()
        3.0
        """
        return self.alu(Ops.LOG2)

    def sin(self) -> Self:
        """The sine of radians.

        >>> UOp.const(dtypes.float, 0.0).sin().ssimplify()
        0.0
        """
        return self.alu(Ops.SIN)

    def cos(self) -> Self:
        """The cosine of radians.

        >>> UOp.const(dtypes.float, 0.0).cos().ssimplify()
        1.0
        """
        return self.alu(Ops.COS)

    def sqrt(self) -> Self:
        """The square root, correctly rounded.

        >>> UOp.const(dtypes.float, 9.0).sqrt().ssimplify()
        3.0
        """
        return self.alu(Ops.SQRT)

    def reciprocal(self) -> Self:
        """One over this.

        >>> UOp.const(dtypes.float, 4.0).reciprocal().ssimplify()
        0.25
        """
        return self.alu(Ops.RECIP)

    def trunc(self) -> Self:
        """Without the fraction: towards zero.

        >>> UOp.const(dtypes.float, -2.5).trunc().ssimplify()
        -2.0
        """
        return self.alu(Ops.TRUNC)

    def round(self) -> Self:
        """The nearest whole number, of two the even one.

        >>> half = UOp.const(dtypes.float, 2.5)
        >>> half.round().ssimplify(), (half + 1).round().ssimplify()
        (2.0, 4.0)
        """
        return self.alu(Ops.ROUND)

    def threefry(self, key: Any) -> Self:
        """64 random bits of this counter and `key`: Threefry-2x32, 20 rounds. (Salmon and others,
        "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.)

        >>> hex(UOp.const(dtypes.uint64, 0).threefry(7).ssimplify())
        '0xbc3b53b9e892296a'
        """
        return self._binary(Ops.THREEFRY, key)
