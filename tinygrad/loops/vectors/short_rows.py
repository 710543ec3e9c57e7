"""Stored rows of a few elements that lie side by side, with reads that jump from row to row: for
example the elements of a window, one after the other. A vector covers several rows. Its lanes read
at known distances, and where a few vectors cover all of these, they are loaded and shuffled. Short
rows that are reduced lie side by side, each in a lane, if their elements cost enough."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd

from tinygrad.base.helpers import ceildiv
from tinygrad.loops.cost import turns, weight
from tinygrad.loops.draft import SHORT_VECTORS, Draft, Nest
from tinygrad.loops.layout import flat_offset
from tinygrad.loops.reads import LONGEST_STEP, is_index, reads_of, step
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, role_of, size_of
from tinygrad.loops.vectors.row_sums import reduced_by_vectors
from tinygrad.simplify.affine import add
from tinygrad.simplify.forms import number
from tinygrad.uop import Ops, UOp

MOST_VECTORS = 2
"""At most so many vectors cover what one vector of the result reads of an operand."""

LANE_WORTH = 1.25
"""Operations on one element that cost as much as bringing it into its lane, or storing it from
there."""

IN_FLIGHT, ROWS = 8, 2
"""Sums, so that none waits for the one before; vectors of rows whose steps go on together."""


def merge_short_rows(draft: Draft) -> int:
    """Merges the innermost loops of the stores, if vectors can then run over them. Returns after
    how many vectors rows begin at the same lanes again; 0 if there are no such rows."""
    loops = draft.nest("store").loops
    if draft.stages or any(n.op is Ops.RUNNING for n in draft.nodes):
        return 0
    for first in range(len(loops) - 2, -1, -1):
        run, rows = loops[first:], turns(loops[first + 1 :])
        period = rows // gcd(rows, draft.lanes)
        if rows >= draft.lanes or not all(map(is_plain_loop, run)):
            return 0
        enough = 2 * turns(run) > draft.lanes if period == 1 else turns(run) >= period * draft.lanes
        fits = _is_one_row(draft, run) and _are_columns(draft, run) and _are_covered(draft, run)
        if enough and fits:
            last = name_of(run[-1])
            for loop in reversed(run[:-1]):
                last = draft.merge(name_of(loop), last, "p")
            return period
    return 0


def _is_one_row(draft: Draft, run: tuple[UOp, ...]) -> bool:
    """Whether the stores write the run contiguously, and only addresses depend on the loops'
    counters."""
    wanted = [turns(run[i + 1 :]) for i in range(len(run))]
    if any([step(w, r) for r in run] != wanted for w in draft.nest("store").writes):
        return False
    return not any(
        is_index(source) and not source.ranges.isdisjoint(run)
        for node in draft.nodes
        if node.op not in (Ops.INDEX, Ops.STORE) and not is_index(node)
        for source in node.src
    )


def _are_columns(draft: Draft, run: tuple[UOp, ...]) -> bool:
    """Whether all that is reduced are columns, which lie side by side."""
    reads = [n for n in reads_of(draft.nodes) if not n.ranges.isdisjoint(run)]
    down = {loop for n in draft.sums for loop in own_ranges(n)}
    return all(n.ranges.issuperset(run) for n in draft.sums) and all(
        step(n, run[-1]) == 1 for n in reads if not n.ranges.isdisjoint(down)
    )


def _are_covered(draft: Draft, run: tuple[UOp, ...]) -> bool:
    """Whether few vectors cover what the lanes of one read of each operand access."""
    inner = turns(run[1:])
    digits = [range(ceildiv(draft.lanes, inner)), *(range(size_of(r)) for r in run[1:])]
    for read in draft.nodes:
        if read.op is not Ops.INDEX or read.ranges.isdisjoint(run):
            continue
        steps = [step(read, r) for r in run]
        known = [s for s in steps if s is not None]
        if len(known) < len(run):
            return False
        spots = {sum(d * s for d, s in zip(each, known, strict=True)) for each in product(*digits)}
        if not covered(spots, draft.lanes):
            return False
    return True


def is_one_vector(draft: Draft, nest: Nest) -> bool:
    """Whether a row is shorter than a vector, but longer than half of one, and few vectors cover
    each of its reads: it is one with the last lanes masked."""
    last = nest.loops[-1]
    size = size_of(last)
    lanes = 1 << size.bit_length()
    if not SHORT_VECTORS[0] < size < draft.lanes or size == lanes // 2 or role_of(last) != "LOOP":
        return False
    reads = [n for n in draft.reads_in(nest) if last in n.ranges]
    spots = [lane_spots(r, last) for r in reads if r.src[0].op is Ops.PARAM]
    return len(spots) == len(reads) and all(covered(s, lanes, LONGEST_STEP) for s in spots)


def lane_spots(read: UOp, loop: UOp) -> set[int]:
    """The offsets from its first element at which an INDEX reads in the turns of a loop; none if
    they depend on other loops."""
    offset, found = flat_offset(read), set[int]()
    first = offset.substitute({loop: number(0)})
    for turn in range(size_of(loop)):
        apart = add(offset.substitute({loop: number(turn)}), first, -1)
        if apart.op is not Ops.CONST:
            return set()
        found.add(int(apart.arg))
    return found


def covered(spots: set[int], lanes: int, most: int = MOST_VECTORS) -> bool:
    """Whether there are elements, and few vectors cover them."""
    vectors, end = 0, min(spots, default=0)
    for spot in sorted(spots):
        if spot >= end:
            vectors, end = vectors + 1, spot + lanes
    return 0 < vectors <= most


def lay_side_by_side(draft: Draft, nest: Nest, sums: list[UOp], across: UOp | None) -> bool:
    """Makes each of the rows a lane, and all short loops of a row copies, so that its elements stay
    in registers: if rows are shorter than a vector, and computing the elements one by one costs
    more than bringing each into its lane and storing it from there. Sums may be long where lanes
    read side by side anyway: of a transposed matrix by a narrow one."""
    *outer, last = nest.loops
    stored, summed = [last], {r for n in sums for r in n.ranges}
    while outer and summed and outer[-1] not in summed:
        stored.append(outer.pop())
    row = {*stored}.union(*(own_ranges(n) for n in sums))
    if not (outer and all(map(is_plain_loop, (*row, outer[-1])))):
        return False
    rows = outer[-1]
    short = {r for r in row if size_of(r) < draft.lanes}
    reads = [n for n in draft.reads_in(nest) if rows in n.ranges]
    is_long = row != short
    if not short.issuperset(stored) or (across is not None and not is_long):
        return False
    if is_long and not all(step(n, rows) == 1 for n in reads):
        return False
    if draft.lanes_within(size_of(rows)) < draft.lanes or not lanes_pay(draft, nest, rows, stored):
        return False
    if reduced_by_vectors(draft.nodes, rows):
        return False
    if sums and all(last in n.ranges for n in sums) and is_one_vector(draft, nest):
        return False  # no row is reduced
    draft.give("UNROLL", sorted(map(name_of, short)))
    draft.vectorise(name_of(rows), max(1, IN_FLIGHT // turns(stored)) if is_long else ROWS)
    return True


def lanes_pay(draft: Draft, nest: Nest, rows: UOp, stored: Sequence[UOp]) -> bool:
    """Whether computing the elements of short rows one by one costs more than bringing what is read
    for each into the lane of its row, and storing it from there. `rows`: the loop of the lanes;
    `stored`: those of a row."""
    outer = {*nest.loops}.difference(stored)
    moved, computed = turns(stored) * len(nest.values), 0
    for node in draft.inline(nest.values):
        times = turns(node.ranges.difference(outer)) if rows in node.ranges else 0
        if node.op is Ops.INDEX:
            moved += times if node.src[0].op is not Ops.STAGE and step(node, rows) != 1 else 0
        elif node.op is Ops.REDUCE:
            computed += times * turns(own_ranges(node))
        else:
            computed += times * weight(node)
    return computed > LANE_WORTH * moved
