"""A product of long sums and few results, such as a weight's gradient over many rows. Each panel of
columns would read all of the other operand from memory again, and there are too few panels for all
cores. So the sums are split into parts whose operands stay in the cache while all panels use them.
Parts are tasks; the stores add up their results. (Rows that lie along the sum are streamed as they
are where one panel reads them, or the cache keeps them.)"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from tinygrad.loops.cost import turns
from tinygrad.loops.draft import Draft, names
from tinygrad.loops.products import Product, contractions
from tinygrad.loops.register_tiles import register_tile
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, size_of
from tinygrad.loops.vectors.tasks import TASKS_WITH_BLOCKS, even_part
from tinygrad.uop.node import UOp

FEW_RESULTS = 8
"""A part's operands have at least this many times as many elements as its results."""

FAR = 2
"""Operands of this many times the private cache are read from memory, or from a slower cache."""


def sum_in_parts(draft: Draft) -> tuple[str, ...]:
    """Applies that if it saves work. Returns the stages that then hold a product."""
    nest = draft.nest("store")
    if len(draft.sums) != 1 or draft.stages or len(nest.loops) != 2:
        return ()
    found = contractions(draft, nest)
    if len(found) != 1 or found[0].in_place:
        return ()
    (reduction,) = draft.sums
    first, *rest = own_ranges(reduction)
    if not all(map(is_plain_loop, (*nest.loops, first, *rest))):
        return ()
    part = _part(draft, found[0], first, rest)
    if part is None:
        return ()
    name, size = name_of(first), size_of(first)
    least = ceil(size / ceil(size / part))
    inner = draft.split(name, even_part(size, least), name + "p")
    (reduction,) = draft.sums
    draft.do("regroup", draft.path(reduction), (inner, *names(rest)))
    inside = next(n for n in draft.sums if name_of(own_ranges(n)[0]) == inner)
    return (draft.stage(inside, (name, *names(nest.loops)), "out", "GLOBAL"),)


def _part(draft: Draft, one: Product, first: UOp, rest: Sequence[UOp]) -> int | None:
    """Turns of the sum's first loop in a part, such that half of the cache holds what they read.
    None if parts don't pay."""
    target, loops = draft.target, draft.nest("store").loops
    rows, columns, itemsize = *map(size_of, loops), one.rows.dtype.itemsize
    panels = ceil(columns / register_tile(draft, rows, columns, itemsize).columns)
    turn = (rows + columns) * itemsize * turns(rest)  # bytes of a turn's operands
    part = min(target.cache_l2 // 2 // turn, ceil(size_of(first) / TASKS_WITH_BLOCKS))
    results = turns(loops) * draft.sums[0].dtype.itemsize
    is_far = size_of(first) * turn >= FAR * target.cache_l2
    pays = is_far and FEW_RESULTS * results <= part * turn
    is_again = panels > 1 and size_of(first) * turns(rest) * rows * itemsize > FAR * target.cache_l2
    is_stream = 1 in one.row_steps and not is_again
    return part if pays and not is_stream and panels < TASKS_WITH_BLOCKS else None
