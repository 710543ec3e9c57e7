"""Which loops of a nest become tasks, and how large tasks are: enough of them for all cores of any
machine, none so small that handing it out costs more than doing it, and no work done twice."""

from __future__ import annotations

from math import ceil

from tinygrad.base.helpers import round_up
from tinygrad.loops.cost import turns, work
from tinygrad.loops.draft import Draft, names
from tinygrad.loops.layout import fill_order
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.uop.node import UOp

TASKS = 16
"""A large kernel is split into at least about this many tasks, whatever the number of cores."""

GRAIN = 16 << 10
"""The least number of operations of a task, approximately."""

LARGEST_TASK = 256 << 10
"""The operations of a task if there is plenty of work."""

MANY_TASKS = 64
"""Plenty of work is split into about this many tasks."""

TASKS_WITH_BLOCKS = 8
"""With fewer tasks than this, blocks of rows become tasks, although each packs the panels again."""


def all_stages_depend_on(draft: Draft, name: str) -> bool:
    """Whether every stage depends on the loop: a task must not compute again what another one
    does."""
    return all(any(name_of(r) == name for r in s.ranges) for s in draft.inner_stages)


def all_reductions_depend_on(draft: Draft, name: str) -> bool:
    """Whether all reductions that are directly in the nest depend on the loop: a task must not
    reduce again a row that another task reduces."""
    top = set(draft.nest("store").loops)
    reductions = [n for n in draft.sums if n.ranges <= top]
    return all(any(name_of(r) == name for r in n.ranges) for n in reductions)


def parallelise(draft: Draft, candidates: list[str], multiple: int = 1) -> None:
    """Makes tasks of the outermost of these loops, so that each has at least GRAIN operations and a
    `multiple` of turns. A kernel too small for two tasks stays one task. Loops that some stores sum
    over can't be tasks."""
    loops = [draft.loops[n] for n in candidates]
    loops = [r for r in loops if role_of(r) == "LOOP" and _all_stores_count(draft, r)]
    total = work(draft.kernel)
    if total < 2 * GRAIN or not loops:
        return
    wanted = max(GRAIN, min(total // MANY_TASKS, LARGEST_TASK))
    grain = max(ceil(wanted * turns(loops) / total), multiple)
    for loop in reversed(loops):
        size, name = size_of(loop), name_of(loop)
        if grain >= size:
            grain = ceil(grain / size)
        elif grain > 1:
            part = even_part(size, grain, multiple)
            draft.split(name, part, name + "c", "PARALLEL")
            grain = 1
        else:
            draft.do("role", name, "PARALLEL")


def _all_stores_count(draft: Draft, loop: UOp) -> bool:
    """Whether the loop is one of all stores, if it is one of any."""
    counted = [loop in own_ranges(store) for store in draft.kernel.src]
    return all(counted) or not any(counted)


def even_part(size: int, least: int, multiple: int = 1) -> int:
    """A part of `size` that is `least` or a little more: a divisor if one is near, else such that
    the last part is nearly as large. It is a multiple of `multiple`."""
    least = round_up(least, multiple)
    for part in range(least, min(size, 2 * least) + 1, multiple):
        if size % part == 0:
            return part
    return round_up(ceil(size / max(1, size // least)), multiple)


def fill_in_tasks(draft: Draft, name: str) -> None:
    """Makes tasks of the outermost loops of a fill, until there are enough for all cores."""
    tasks = 1
    for loop in names(fill_order(draft.stages[name])):
        size, wanted = draft.size(loop), ceil(TASKS / tasks)
        if wanted == 1 or role_of(draft.loops[loop]) != "LOOP":
            return
        if size > 2 * wanted:
            part = even_part(size, size // wanted)
            draft.split(loop, part, loop + "t", "PARALLEL")
        else:
            draft.do("role", loop, "PARALLEL")
        tasks *= min(size, wanted)
