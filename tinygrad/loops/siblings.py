"""Reductions that share loops: those that read the same elements in the same order, and do not
depend on each other. Examples are a mean and a mean of squares, and the sums in the gradient of a
norm. What both read is then loaded once, from memory or from the cache."""

from __future__ import annotations

from itertools import combinations

from tinygrad.base.helpers import post_order
from tinygrad.loops.cost import turns
from tinygrad.loops.draft import Draft
from tinygrad.loops.products import contractions
from tinygrad.loops.reads import reads_of, sums_of
from tinygrad.loops.rebuild import replaced
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges
from tinygrad.uop.node import UOp

REGISTERS = 8
"""Vector registers that a reduction needs for itself: accumulators and intermediate values."""

SHARE = 0.4
"""Two reductions are joined if at least this fraction of the smaller one's reads is shared."""

Group = tuple[UOp, ...]
"""The loops that some reductions share."""


def join_siblings(draft: Draft) -> None:
    """Joins reductions, two at a time, starting with the pair that has the most reads in common."""
    if contractions(draft, draft.nest("store")):
        return  # a tile of a product needs its loops for itself
    while (found := _best(draft)) is not None:
        kept, given = (tuple(map(name_of, loops)) for loops in found)
        draft.do("together", kept, given)


def _best(draft: Draft) -> tuple[Group, Group] | None:
    groups: dict[Group, list[UOp]] = {}
    for node in draft.sums:
        groups.setdefault(own_ranges(node), []).append(node)
    if len(groups) < 2:
        return None
    most = max(1, draft.target.registers // REGISTERS)
    needs = {loops: _needs(loops, groups) for loops in groups}
    best: tuple[Group, Group] | None = None
    largest = 0.0
    for one, other in combinations(groups, 2):
        few = len(groups[one]) + len(groups[other]) <= most
        if few and _alike(one, other, groups) and not _ordered(one, other, needs):
            shared = _shared(one, other, groups)
            if shared > largest:
                best, largest = (one, other), shared
    return best


def _alike(one: Group, other: Group, groups: dict[Group, list[UOp]]) -> bool:
    """Whether both have the same plain loops, in the same turns of the loops around them."""
    around = {node.ranges for loops in (one, other) for node in groups[loops]}
    plain = all(map(is_plain_loop, (*one, *other)))
    return plain and len(around) == 1 and [r.src for r in one] == [r.src for r in other]


def _needs(loops: Group, groups: dict[Group, list[UOp]]) -> set[Group]:
    """The groups that must be finished before this one starts."""
    below = {n for node in groups[loops] for n in node.src[0].toposort()}
    return {group for group, nodes in groups.items() if not below.isdisjoint(nodes)}


def _ordered(one: Group, other: Group, needs: dict[Group, set[Group]]) -> bool:
    """Whether one must be finished before the other starts, directly or by way of other groups."""
    needed_by_one = post_order([one], needs.__getitem__)
    return other in needed_by_one or one in post_order([other], needs.__getitem__)


def _shared(one: Group, other: Group, groups: dict[Group, list[UOp]]) -> float:
    """How many elements both read in the same turns; 0 if they are too few."""
    first, second = _reads(groups[one], one), _reads(groups[other], other)
    loops = dict(zip(other, one, strict=True))
    common = first & {replaced(read, loops) for read in second}
    shared = _elements(common)
    return shared if shared >= SHARE * min(_elements(first), _elements(second)) else 0


def _reads(nodes: list[UOp], loops: Group) -> set[UOp]:
    """The reads within the loops, except those that belong to other reductions."""
    inner = sums_of(n for node in nodes for n in node.src[0].toposort())
    below = reads_of(n for node in nodes for n in node.src[0].toposort(stop=inner))
    return {n for n in below if not n.ranges.isdisjoint(loops)}


def _elements(reads: set[UOp]) -> int:
    return sum(turns(read.ranges) for read in reads)
