"""A sum that a comparison narrows to one turn needs no loop.

    sum over k of where(k == at, v(k), 0)    is    where(0 <= at < size, v(at), 0)

One-hot rows are never made: a loss reads the logit of its class, a choice among rows gathers them.
"""

from __future__ import annotations

from tinygrad.base.dtype import DType, dtypes
from tinygrad.schedule.movement import both
from tinygrad.simplify.affine import with_sources
from tinygrad.simplify.constants import is_zero
from tinygrad.simplify.masks import conditions_of, with_gate
from tinygrad.uop import Ops, UOp


def narrowed_sum(value: UOp, ranges: tuple[UOp, ...]) -> UOp:
    """The sum of `value` over `ranges`, without those that a condition narrows to one turn."""
    if value.op is not Ops.WHERE or not is_zero(value.src[2]) or _checks_turns(value, ranges):
        return value.reduce("add", *ranges)
    conditions = conditions_of(value.src[0])
    for condition in conditions:
        loop, at = _turn(condition, ranges)
        if loop is None:
            continue
        inside = (UOp.const(dtypes.index, -1) < at) & (at < loop.src[0])
        rest = both(*(c for c in conditions if c is not condition))
        term = value.src[1] if rest is None else rest.where(value.src[1], value.src[2])
        term = inside.where(_at(term, loop, at, inside), value.src[2])
        return narrowed_sum(term, tuple(r for r in ranges if r is not loop))
    return value.reduce("add", *ranges)


def _checks_turns(value: UOp, ranges: tuple[UOp, ...]) -> bool:
    """Whether a CHECK depends on the turn. One that is the same in all turns is kept."""
    checks = [n for n in value.toposort() if n.op is Ops.CHECK] if value.has_check else []
    return any(not check.ranges.isdisjoint(ranges) for check in checks)


def _turn(condition: UOp, ranges: tuple[UOp, ...]) -> tuple[UOp | None, UOp]:
    """The loop that the condition narrows, and the turn."""
    if condition.op is Ops.CMPEQ:
        for counter, at in (condition.src, condition.src[::-1]):
            loop = counter
            while loop.op is Ops.CAST and _holds(loop.dtype, loop.src[0]):
                loop = loop.src[0]
            if loop in ranges and len(loop.src) == 1 and loop not in at.ranges:
                return loop, at if at.dtype is dtypes.index else at.cast(dtypes.index)
    return None, condition


def _holds(dtype: DType, counter: UOp) -> bool:
    """Whether an integer type can hold the loop's counter, so that the cast doesn't change it."""
    return dtypes.is_int(dtype) and bool(counter.vmax <= int(dtypes.max(dtype)))


def _at(value: UOp, loop: UOp, at: UOp, inside: UOp) -> UOp:
    """`value` at turn `at` of the loop; memory is read only if that is `inside` of it."""
    done = {loop: at}
    for node in value.toposort():
        if node in done or loop not in node.ranges:
            continue
        made = with_sources(node, tuple(done.get(s, s) for s in node.src))
        done[node] = with_gate(made, inside) if node.op is Ops.INDEX else made
    return done.get(value, value)
