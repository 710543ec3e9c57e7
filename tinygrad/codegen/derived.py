"""Instructions that a target lacks, made of those that every target has (`uop/instructions`). There
is one row for each op.

The values of a kernel pass through here as they become instructions, and so do addresses, masks and
loop ends, which codegen itself adds. `decompose` has already ensured that divisors are not 0 and
shifts are in range, so nothing here checks. Everything works lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tinygrad.base.dtype import ConstType, DType, dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, unsigned_of


class Writer(Protocol):
    """Places instructions."""

    def add(self, op: Ops, dtype: DType, src: tuple[UOp, ...], arg: object = None) -> UOp: ...
    def widen(self, value: UOp, count: int) -> UOp: ...


Rule = Callable[..., UOp]
"""Takes a writer and the sources."""


def _const(to: Writer, dtype: DType, value: ConstType) -> UOp:
    return to.widen(UOp.const(dtype.scalar(), value), dtype.count)


def _same(to: Writer, op: Ops, *src: UOp) -> UOp:
    return to.add(op, src[-1].dtype, src)


def _test(to: Writer, op: Ops, *src: UOp) -> UOp:
    return to.add(op, dtypes.bool.vec(src[0].dtype.count), src)


def _known(value: UOp) -> ConstType | None:
    """The constant that every lane has, or None."""
    if value.op is Ops.VECTORIZE and len(value.src) == 1:
        value = value.src[0]
    return value.arg if value.op is Ops.CONST else None


def _equal(to: Writer, a: UOp, b: UOp) -> UOp:
    differs = _test(to, Ops.CMPNE, a, b)
    return _same(to, Ops.XOR, differs, _const(to, differs.dtype, True))


def _or(to: Writer, a: UOp, b: UOp) -> UOp:
    return _same(to, Ops.XOR, _same(to, Ops.XOR, a, b), _same(to, Ops.AND, a, b))


def _remainder(to: Writer, a: UOp, b: UOp) -> UOp:
    whole = _same(to, Ops.MUL, _same(to, Ops.IDIV, a, b), b)
    return _same(to, Ops.ADD, a, _same(to, Ops.MUL, whole, _const(to, a.dtype, -1)))


def _larger(to: Writer, a: UOp, b: UOp) -> UOp:
    """The maximum by comparison, which is right except for a NaN in b, and for two zeros, whose
    sign bits are combined."""
    found = _same(to, Ops.WHERE, _test(to, Ops.CMPLT, a, b), b, a)
    if not dtypes.is_float(a.dtype.scalar()):
        return found
    if not (_known(a) or _known(b)):  # with a constant other than 0, two zeros can't meet
        bits = unsigned_of(a.dtype)
        first, second = (to.add(Ops.BITCAST, bits, (s,)) for s in (a, b))
        both = to.add(Ops.BITCAST, a.dtype, (_same(to, Ops.AND, first, second),))
        found = _same(to, Ops.WHERE, _test(to, Ops.CMPNE, a, b), found, both)
    return _same(to, Ops.WHERE, _test(to, Ops.CMPNE, b, b), b, found)


def _power_of_two(to: Writer, n: UOp, dtype: DType) -> UOp:
    """2**n in a dtype: for each bit of n that is set, the factor that this bit stands for."""
    known = _known(n)
    if known is not None:
        return _const(to, dtype, 1 << int(known))
    total = _const(to, dtype, 1)
    for bit in range((dtype.bitsize // dtype.count - 1).bit_length()):
        mask = _same(to, Ops.AND, n, _const(to, n.dtype, 1 << bit))
        is_set = _test(to, Ops.CMPNE, mask, _const(to, n.dtype, 0))
        factor = _const(to, dtype, 1 << (1 << bit))
        factor = _same(to, Ops.WHERE, is_set, factor, _const(to, dtype, 1))
        total = _same(to, Ops.MUL, total, factor)
    return total


def _shift_left(to: Writer, a: UOp, n: UOp) -> UOp:
    return _same(to, Ops.MUL, a, _power_of_two(to, n, a.dtype))


def _shift_right(to: Writer, a: UOp, n: UOp) -> UOp:
    """A shift of the unsigned number; for a negative a, ~(~a >> n)."""
    bits = unsigned_of(a.dtype)
    power = _power_of_two(to, n, bits)
    if dtypes.is_unsigned(a.dtype.scalar()):
        return _same(to, Ops.IDIV, a, power)
    zero, ones = _const(to, a.dtype, 0), _const(to, a.dtype, -1)
    sign = _same(to, Ops.WHERE, _test(to, Ops.CMPLT, a, zero), ones, zero)
    size = to.add(Ops.CAST, bits, (_same(to, Ops.XOR, a, sign),))
    moved = to.add(Ops.CAST, a.dtype, (_same(to, Ops.IDIV, size, power),))
    return _same(to, Ops.XOR, moved, sign)


def _pick(to: Writer, number: UOp, *choices: UOp) -> UOp:
    found = choices[-1]
    for place in reversed(range(len(choices) - 1)):
        below = _test(to, Ops.CMPLT, number, _const(to, number.dtype, place + 1))
        found = _same(to, Ops.WHERE, below, choices[place], found)
    return found


RULES: dict[Ops, Rule] = {
    Ops.MAX: _larger,
    Ops.MOD: _remainder,
    Ops.CMPEQ: _equal,
    Ops.OR: _or,
    Ops.SHL: _shift_left,
    Ops.SHR: _shift_right,
    Ops.PICK: _pick,
}
