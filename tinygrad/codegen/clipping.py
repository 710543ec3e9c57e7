"""Symbolic sizes. Most tasks end before the limit that a variable sets, and run without masks. The
task that the limit cuts runs with masks, and tasks beyond it do nothing.

A loop of symbolic size has the largest size as its size, and a limit. When such a loop is split,
each piece has what the outer pieces leave of the limit. A task's *margin* is the least distance
that is left between the end of a loop and its limit, an expression of the task's counters. Where no
margin is negative, no limit matters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tinygrad.codegen.access import Store
from tinygrad.codegen.leaves import Leaves
from tinygrad.loops.layout import memory_of
from tinygrad.loops.rebuild import replaced
from tinygrad.loops.roles import role_of, size_of
from tinygrad.simplify.affine import add, affine
from tinygrad.simplify.forms import number
from tinygrad.uop import Ops, UOp


@dataclass(frozen=True)
class Arms:
    """A task runs only if no `inside` is negative. If no `margins` are negative either, it runs
    `whole`, which has none of these limits. Task loops that had a limit are other nodes there;
    `renamed` maps them."""

    inside: tuple[UOp, ...]
    margins: tuple[UOp, ...]
    whole: Leaves
    renamed: dict[UOp, UOp]


def arms_of(leaves: Leaves) -> Arms | None:
    """How tasks of a nest differ by the limits that variables set; None if they don't."""
    tasks = {r for r in leaves.own if role_of(r) == "PARALLEL"}
    inside: list[UOp] = []
    margins: list[UOp] = []
    free: dict[UOp, UOp] = {}
    stop = {n for n in _nodes(leaves, ()) if memory_of(n) == "GLOBAL"}
    for loop in _nodes(leaves, stop):
        if loop.op is not Ops.RANGE:
            continue
        kept: list[UOp] = []
        for limit in loop.src[1:]:
            margin = _margin(loop, limit, tasks)
            if margin is None:
                kept.append(limit)
            else:
                (inside if loop in tasks else margins).append(margin)
        if len(kept) + 1 < len(loop.src):
            free[loop] = UOp(Ops.RANGE, loop.dtype, (loop.src[0], *kept), loop.arg)
    if not free:
        return None
    changes = {**{stage: stage for stage in stop}, **free}
    stores = [
        Store(memory, replaced(offset, changes), replaced(value, changes))
        for memory, offset, value in leaves.stores
    ]
    whole = Leaves([free.get(r, r) for r in leaves.own], stores)
    renamed = {loop: free[loop] for loop in free.keys() & tasks}
    return Arms(tuple(inside), tuple(margins), whole, renamed)


def _nodes(leaves: Leaves, stop: Iterable[UOp]) -> list[UOp]:
    return UOp.sink(*leaves.own, *leaves.values).toposort(stop=frozenset(stop))


def _margin(loop: UOp, limit: UOp, tasks: set[UOp]) -> UOp | None:
    """The least distance between the end of `loop` and a limit that variables set, as an expression
    of the tasks' counters; None if the limit is of another kind."""
    if not any(n.op is Ops.DEFINE_VAR for n in limit.toposort()):
        return None
    if loop in tasks:
        return add(add(limit, loop, -1), number(-1)) if limit.ranges <= tasks else None
    inner = limit.ranges - tasks
    by_inner = [(term, k) for term, k in affine(limit)[0].items() if term.ranges & inner]
    if not limit.ranges & tasks or any(k > 0 or term not in inner for term, k in by_inner):
        return None
    least = replaced(limit, {r: number(size_of(r) - 1) for r in inner})
    return add(least, number(-size_of(loop)))
