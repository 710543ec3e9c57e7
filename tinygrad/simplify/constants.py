"""Constant folding: a value that is known before it runs becomes a constant, by the op table's own
meaning of each op.

A CHECK must be evaluated even if its value is not needed, so nothing here drops one.
"""

from __future__ import annotations

import math

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, GroupOp, Ops, bit_cast, evaluate
from tinygrad.uop.pattern import Rule, UPat


def is_zero(node: UOp) -> bool:
    """Whether this is the constant 0, of either sign."""
    return node.op is Ops.CONST and node.arg == 0


def is_positive_zero(node: UOp) -> bool:
    """Whether this is the constant 0, and not -0."""
    return is_zero(node) and math.copysign(1, node.arg) > 0


def identity(monoid: str, dtype: DType) -> UOp:
    """The result of an empty reduction."""
    return UOp.const(dtype, MONOIDS[monoid].identity(dtype))


def drops_check(before: UOp, after: UOp) -> bool:
    """Whether a CHECK below `before` is no longer below `after`."""
    if not before.has_check:
        return False
    gone = set(before.toposort()).difference(after.toposort())
    return any(node.op is Ops.CHECK for node in gone)


def _fold(node: UOp) -> UOp | None:
    """An operation on constants is the constant that `evaluate` says."""
    if any(s.op is not Ops.CONST for s in node.src):
        return None
    dtype, values = node.dtype.scalar(), [s.arg for s in node.src]
    if node.op is Ops.CAST:
        return node.const_like(values[0])
    if node.op is not Ops.BITCAST:
        return node.const_like(evaluate(node.op, dtype, *values))
    source = node.src[0].dtype.scalar()
    known = all(d.fmt is not None or d is dtypes.bfloat16 for d in (source, dtype))
    return node.const_like(bit_cast(values[0], source, dtype)) if known else None


def _only_value(node: UOp) -> UOp | None:
    """An integer or bool whose bounds are equal is that constant."""
    if dtypes.is_float(node.dtype) or node.dtype is dtypes.void:
        return None
    low = node.vmin
    return None if low != node.vmax or node.has_check else node.const_like(low)


def _constant_last(node: UOp) -> UOp | None:
    """The sources of a commutative op with a constant last, so that rules need to look in one place
    only."""
    first, second = node.src
    return node.with_src((second, first)) if first.op is Ops.CONST is not second.op else None


FOLDED = GroupOp.ALU | {Ops.CAST, Ops.BITCAST}

RULES = [
    Rule("fold", UPat(FOLDED, name="node"), _fold),
    Rule("bounds meet", UPat(FOLDED, name="node"), _only_value),
    Rule("constant last", UPat(GroupOp.Commutative, name="node"), _constant_last),
]
