"""The interval in which the value of a node lies. Intervals are sound but not tight. They are used
to prove that indices are in range, to drop guards, and to choose cheaper arithmetic. They cover
integers and bools only: a float's bounds are infinite unless it is a constant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tinygrad.base.dtype import dtypes
from tinygrad.uop.op import GroupOp, Ops

if TYPE_CHECKING:
    from tinygrad.uop.node import UOp

Interval = tuple[Any, Any]
_Rule = Callable[["UOp", list[Interval]], Interval | None]


def _multiply(node: UOp, s: list[Interval]) -> Interval:
    corners = [x * y for x in s[0] for y in s[1]]
    return min(corners), max(corners)


def _divide(node: UOp, s: list[Interval]) -> Interval | None:
    (low, high), (least, most) = s
    if least <= 0 <= most:
        return None
    corners = [x // d for x in (low, high) for d in (least, most)]
    return min(corners), max(corners)


def _modulo(node: UOp, s: list[Interval]) -> Interval | None:
    (low, high), (least, most) = s
    if least <= 0:
        return None
    if least == most and low // least == high // least:
        return low % least, high % least
    return 0, min(most - 1, high) if low >= 0 else most - 1


def _less(node: UOp, s: list[Interval]) -> Interval:
    (low, high), (least, most) = s
    return high < least, low < most


def _and(node: UOp, s: list[Interval]) -> Interval | None:
    if node.dtype is dtypes.bool:
        return s[0][0] and s[1][0], s[0][1] and s[1][1]
    tops = [high for low, high in s if low >= 0]
    return (0, min(tops)) if tops else None


def _or(node: UOp, s: list[Interval]) -> Interval | None:
    return (s[0][0] or s[1][0], s[0][1] or s[1][1]) if node.dtype is dtypes.bool else None


def _xor(node: UOp, s: list[Interval]) -> Interval | None:
    if node.dtype is dtypes.bool or any(low < 0 for low, _ in s):
        return None
    return 0, (1 << int(max(high for _, high in s)).bit_length()) - 1


def _equal(node: UOp, s: list[Interval]) -> Interval:
    (low, high), (least, most) = s
    return low == high == least == most, not (high < least or most < low)


def _not_equal(node: UOp, s: list[Interval]) -> Interval:
    low, high = _equal(node, s)
    return not high, not low


def _cast(node: UOp, s: list[Interval]) -> Interval | None:
    low, high = s[0]
    if dtypes.is_float(node.src[0].dtype) or dtypes.is_float(node.dtype):
        return None
    if node.dtype is dtypes.bool:
        return not low <= 0 <= high, not low == high == 0
    return (int(low), int(high)) if node.dtype.holds(low, high) else None


def _shift_right(node: UOp, s: list[Interval]) -> Interval | None:
    (low, high), (least, most) = s
    return (low >> least, high >> least) if least == most and least >= 0 and low >= 0 else None


_RULES: dict[Ops, _Rule] = {
    Ops.DEFINE_VAR: lambda node, s: (node.arg[1], node.arg[2]),
    Ops.ITEM: lambda node, s: node.arg[2:] or None,
    Ops.RANGE: lambda node, s: (0, max(0, min(high for _, high in s) - 1)),
    Ops.SPECIAL: lambda node, s: (0, node.arg[1] - 1),
    Ops.ADD: lambda node, s: (s[0][0] + s[1][0], s[0][1] + s[1][1]),
    Ops.MUL: _multiply,
    Ops.IDIV: _divide,
    Ops.MOD: _modulo,
    Ops.MAX: lambda node, s: (max(s[0][0], s[1][0]), max(s[0][1], s[1][1])),
    Ops.WHERE: lambda node, s: (min(s[1][0], s[2][0]), max(s[1][1], s[2][1])),
    Ops.PICK: lambda node, s: (min(low for low, _ in s[1:]), max(high for _, high in s[1:])),
    Ops.CMPLT: _less,
    Ops.CMPEQ: _equal,
    Ops.CMPNE: _not_equal,
    Ops.AND: _and,
    Ops.OR: _or,
    Ops.XOR: _xor,
    Ops.CAST: _cast,
    Ops.SHR: _shift_right,
    **dict.fromkeys((Ops.BIND, Ops.CHECK, *GroupOp.View), lambda node, s: s[0]),
}


def interval_of(node: UOp, sources: list[Interval]) -> Interval:
    """The interval of one node from those of its sources."""
    dtype = node.dtype
    if node.op is Ops.CONST:
        return (node.arg, node.arg) if node.arg == node.arg else _whole(node)
    if dtypes.is_float(dtype):
        return _whole(node)
    if node.op in GroupOp.Comparison and any(dtypes.is_float(s.dtype) for s in node.src):
        return False, True
    rule = _RULES.get(node.op)
    found = rule(node, sources) if rule is not None else None
    if found is None:
        return _whole(node)
    low, high = found
    if dtype is dtypes.bool:
        return bool(low), bool(high)
    whole = _whole(node)  # what could wrap could be anything
    return found if dtype is dtypes.index or whole[0] <= low <= high <= whole[1] else whole


def _whole(node: UOp) -> Interval:
    return dtypes.min(node.dtype), dtypes.max(node.dtype)


def bounds(node: UOp, known: Mapping[UOp, Interval]) -> Interval:
    """The interval of `node` where some nodes (loop counters) are known to lie in others."""
    found: dict[UOp, Interval] = dict(known)
    for each in node.toposort(stop=known):
        if each not in found:
            found[each] = interval_of(each, [found[s] for s in each.src])
    return found[node]
