"""The order of loops in a kernel whose result is made of reductions. The loops that the reductions
depend on come first. So each reduction is computed once, inside this kernel, and the row that it
has read is still in the cache when it is read again.

    x - mean of x over (n, h, w)     stored over n, c, h, w     has the loops c, n, h, w
    x - mean of x over groups of c   stored over n, c, h, w     has the loops n, c//8, c%8, h, w
    x - mean of x over 3 channels    stored over n, c, h, w     has the loops n, h, w, c
    x - mean of its 2 x 2 pixels     stored over n, c, h, w     has n, c, h//2, w//2, h%2, w%2"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import dropwhile, takewhile

from tinygrad.schedule.inlining import FEW_ROWS, makes_rows
from tinygrad.schedule.movement import Index, fold_index, loops_of, source_index, turns_of
from tinygrad.uop import GroupOp, Ops, UOp

SHORTEST_RUN = 16
"""The least number of contiguous elements when loops are reordered: a cache line."""

WRITTEN_OUT = 6
"""Elements of a row, at most, that are written side by side with those of its neighbours: rows that
lie along memory are lanes of vectors then."""

ABOVE = GroupOp.Elementwise | GroupOp.Movement | {Ops.CONTIGUOUS, Ops.FOLD}

Sizes = tuple[tuple[int, ...], ...]
"""For each axis the sizes of the loops that run over it."""


def above_reductions(order: Iterable[UOp]) -> set[UOp]:
    """The reductions that are computed row by row, and what depends on them elementwise and by
    movement; nodes come in order."""
    found: set[UOp] = set()
    for node in order:
        if node.op is Ops.REDUCE_AXIS:
            if makes_rows(node):
                found.add(node)
        elif node.op in ABOVE and not found.isdisjoint(node.src):
            found.add(node)
    return found


def reduced_at(
    node: UOp, index: Index, above: Collection[UOp], ends: Collection[UOp]
) -> list[Index]:
    """The elements of reductions that the value of `node` at `index` needs; those with the most
    terms come first. Nodes in `ends` are stored, and so are values under conditions: neither
    count."""
    found: dict[Index, int] = {}
    stack, seen = [(node, index)], {(node, index)}
    while stack:
        top, at = stack.pop()
        if top.op is Ops.REDUCE_AXIS:
            found[at] = max(found.get(at, 0), top.src[0].size)
            continue
        if top.op in GroupOp.Movement or top.op is Ops.FOLD:
            is_fold = top.op is Ops.FOLD
            at, *more = fold_index(top, at, str) if is_fold else source_index(top, at)
            if any(more):  # conditions, or loops over the taps of a FOLD
                continue
        for source in top.src:
            if source in above and source not in ends and (source, at) not in seen:
                seen.add((source, at))
                stack.append((source, at))
    return sorted(found, key=lambda at: -found[at])


def split_sizes(wanted: Iterable[Index], index: Sequence[UOp]) -> Sizes:
    """Each loop of `index`, split where a reduction is needed at its quotient by a divisor."""
    cuts: dict[UOp, set[int]] = {}
    for where in wanted:
        for at in where:
            if at.op is Ops.IDIV and at.src[0] in index and at.src[1].op is Ops.CONST:
                cuts.setdefault(at.src[0], set()).add(int(at.src[1].arg))
    found = []
    for loop in index:
        rest, sizes = int(loop.vmax) + 1, []
        for divisor in sorted(cuts.get(loop, ()), reverse=True):
            if rest % divisor == 0 and rest > divisor:
                sizes.append(rest // divisor)
                rest = divisor
        found.append((*sizes, rest))
    return tuple(found)


def rows_first(loops: Sequence[UOp], wanted: Iterable[Index]) -> list[UOp]:
    """The loops with those of the reductions outermost, if these have at least FEW_ROWS rows, and
    as long as the innermost loops stay contiguous in memory."""
    chain: list[frozenset[UOp]] = []
    for where in wanted:
        own = loops_of(where)
        plain = all(not at.ranges or at.op is Ops.RANGE for at in where)
        if plain and own and all(own <= other or other <= own for other in chain):
            chain.append(own)
    moved = sorted(loops, key=lambda loop: -sum(loop in own for own in chain))
    rows = chain[0] if chain else frozenset()
    enough = turns_of(rows) >= FEW_ROWS
    run = turns_of(_trailing(loops, moved))
    if turns_of(loop for loop in loops if loop not in rows) <= WRITTEN_OUT:
        run = max(run, turns_of(_adjacent(loops, rows)))
    return moved if enough and run >= SHORTEST_RUN else list(loops)


def _adjacent(loops: Sequence[UOp], rows: Collection[UOp]) -> Iterable[UOp]:
    """The innermost loops over rows, as long as no other loop is between them."""
    inside = dropwhile(lambda loop: loop not in rows, reversed(loops))
    return takewhile(lambda loop: loop in rows, inside)


def _trailing(loops: Sequence[UOp], moved: Sequence[UOp]) -> Iterable[UOp]:
    """The innermost loops that keep their place."""
    for before, after in zip(reversed(loops), reversed(moved), strict=True):
        if before is not after:
            return
        yield before
