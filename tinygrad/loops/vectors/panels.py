"""How a panel is filled by loops of its own. A panel holds columns of a product, or values that are
read beside its sums. Memory is read in vectors along its rows, whatever order the product needs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tinygrad.loops.draft import Draft, Nest, is_plain, names, reach_along, steps_along
from tinygrad.loops.primitives import split
from tinygrad.loops.products import Product
from tinygrad.loops.reads import goes_as_one, reads_of, steady, step, sums_of
from tinygrad.loops.roles import name_of, own_ranges, size_of
from tinygrad.loops.vectors.stretches import fill_stretches
from tinygrad.simplify.masks import gate_of
from tinygrad.uop import Ops, UOp


def fill_nest(draft: Draft, one: Product, name: str, column: str, stretch: int) -> None:
    """Fills a panel by loops of its own, with the widest vectors that memory allows. Loops that
    masks depend on go outside."""
    filled, across = _as_memory_runs(draft, one, name), f"{name}.{column}"
    if not stretch and _lies_along_depth(draft, one, name, filled, across):
        fill_squares(draft, name, filled[-1], across)
        return
    masked, free = _masked_first(draft, name, filled)
    if stretch:
        columns: tuple[str, ...] = fill_stretches(draft, name, across, stretch)
        free = [across, *free]
    elif width := _widest(draft, name, across):
        vector = draft.split(across, width, across + "v", "UNROLL", "VECTOR")
        columns = (across, vector)
    else:  # lane by lane: a turn is text enough, and the addresses of its lanes are computed once
        few = _few_lanes(draft, name, across)
        columns = (draft.split(across, few, across + "v", "LOOP", "VECTOR"),)
        masked = [across, *masked]
    words = [f"{name}.{k}" for k in one.depth]
    inside = {across, *filled, *columns, *words}
    outer = [n for n in names(own_ranges(draft.stages[name])) if n not in inside]
    draft.do("order", name, (*outer, *masked, *free, *columns, *words))


def _loads(draft: Draft, name: str) -> list[UOp]:
    """What a fill reads."""
    return reads_of(draft.stages[name].src[0].toposort())


def _lies_along_depth(
    draft: Draft, one: Product, name: str, filled: list[str], across: str
) -> bool:
    """Whether memory runs along the loops that the product sums over, not along its columns."""
    if not filled or draft.size(filled[-1]) < draft.lanes:
        return False
    inner, loads = draft.loops[filled[-1]], _loads(draft, name)
    word = draft.turns(one.depth)  # neighbours along k that stay together
    both = [n for n in loads if inner in n.ranges]
    is_along_columns = 1 in steps_along(both, draft.loops[across])
    return word in steps_along(loads, inner) and not is_along_columns


def _masked_first(draft: Draft, name: str, filled: list[str]) -> tuple[list[str], list[str]]:
    """The loops of a fill on which masks depend, and the others."""
    gates = [gate for n in _loads(draft, name) if (gate := gate_of(n)) is not None]
    guarded = {name_of(r) for gate in gates for r in gate.ranges}
    return [k for k in filled if k in guarded], [k for k in filled if k not in guarded]


def _few_lanes(draft: Draft, name: str, across: str) -> int:
    """The lanes of a vector that is read lane by lane: few where each has an address of its own."""
    loads = _loads(draft, name)
    is_even = None not in steps_along(loads, draft.loops[across]) and all(map(is_plain, loads))
    return draft.lanes if is_even else max(2, draft.lanes // 4)


def fill_squares(draft: Draft, name: str, along: str, across: str) -> None:
    """Orders a fill that reads vectors along one loop and writes them along the other."""
    copies = draft.split(along, draft.lanes, along + "u", "LOOP", "UNROLL")
    vector = draft.split(across, draft.lanes, across + "v", "LOOP", "VECTOR")
    own = own_ranges(draft.stages[name])
    walk = [n for n in names(own) if n not in (across, along, copies)]
    at = walk.index(vector)
    walk[at:at] = (along, copies)
    if draft.loops[across].ranges.isdisjoint(r for r in own if name_of(r) != across):
        draft.do("order", name, (across, *walk))  # few rows at a time, each along memory


def turn_reads(draft: Draft, nest: Nest, row: str, column: str) -> None:
    """Transposes reads beside a product's sums that are contiguous along the tile's rows instead of
    its vectors, such as a mask where scores are transposed. A block's part is copied in squares of
    registers and then read as whole vectors; else each lane would be a read of its own. Not for a
    nest whose rows are no block: the copy would be as large as the result."""
    rows, columns = draft.loops[row], draft.loops[column]
    if nest.is_top or min(size_of(rows), size_of(columns)) < draft.lanes:
        return
    values = draft.nest(nest.name).values
    sums = sums_of(draft.below(values))
    reads = reads_of(n for v in values for n in v.toposort(stop=sums))
    for read in dict.fromkeys(n for n in reads if n.src[0].op is Ops.PARAM):
        if step(read, rows) == 1 and not steady(read, columns):
            name = draft.stage(read, (row, column), "turned")
            fill_squares(draft, name, f"{name}.{row}", f"{name}.{column}")


def memory_run(value: UOp, layout: Sequence[UOp]) -> list[UOp]:
    """The loops, given in the order of a panel's layout, that are adjacent there and that memory
    steps through as through one, in smaller steps than through any others."""
    reads = reads_of(value.toposort())
    *rest, last = sorted(layout, key=lambda r: -reach_along(reads, r))
    run = [last]
    while rest and (rest[-1], run[0]) in pairwise(layout) and goes_as_one(value, rest[-1], run[0]):
        run.insert(0, rest.pop())
    return run


def _as_memory_runs(draft: Draft, one: Product, name: str) -> list[str]:
    """The loops of a fill that the product sums over. Adjacent loops that memory steps through as
    through one are merged. Loops of a single turn are left out."""
    filled = [draft.loops[n] for k in one.loops if (n := f"{name}.{k}") in draft.loops]
    if not filled:
        return []
    value = draft.stages[name].src[0]
    reads = reads_of(value.toposort())
    *outer, inner = names(memory_run(value, filled))
    filled.sort(key=lambda r: -reach_along(reads, r))
    rest = [n for n in names(filled) if n not in (*outer, inner)]
    while outer:
        both = draft.unused(inner + "m")
        draft.do("merge", outer.pop(), inner, both)
        inner = both
    return [*rest, inner]


def _widest(draft: Draft, name: str, across: str) -> int:
    """The longest vector that every load can take with a constant small step; 0 if there is
    none."""
    for width in (draft.lanes, draft.lanes // 2, draft.lanes // 4):
        if width < 2:
            break
        vector = draft.unused(across + "v")
        tried = split(draft.kernel, across, width, vector, "UNROLL", "VECTOR")
        stage = next(n for n in tried.toposort() if n.op is Ops.STAGE and name_of(n) == name)
        loop = next(r for r in own_ranges(stage) if name_of(r) == vector)
        if all(steady(n, loop) for n in reads_of(stage.src[0].toposort())):
            return width
    return 0
