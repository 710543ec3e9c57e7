"""Product columns whose reads advance evenly only along stretches: the pixels of a strided, valid
or dilated convolution, taken row after row as one loop. The product's vectors run over all pixels
without a gap, and the panel that they read is filled stretch by stretch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tinygrad.loops.draft import Draft, Nest
from tinygrad.loops.layout import flat_offset
from tinygrad.loops.operands import loop_named
from tinygrad.loops.primitives import split
from tinygrad.loops.reads import divisions, reads_of, steady, step
from tinygrad.loops.register_tiles import Surroundings, best_tile
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, size_of
from tinygrad.uop.node import UOp

WIDEST_PANEL = 16
"""Vectors of a panel, at most."""

SHORTEST = 16
"""Bytes of a stretch, at least: shorter vectors take longer than single elements."""

HARDLY_MORE = 1.02
"""Acceptable cycles, relative to the best panel."""


def stretch_of(
    draft: Draft, loop: UOp, operands: Iterable[UOp], is_steady: Callable[[UOp, UOp], bool] = steady
) -> int:
    """The number of turns of `loop` within which every read of these operands advances in constant
    small steps. 0 if that is the whole loop, or if the stretches are too short for a vector."""
    reads = {*reads_of(n for side in operands for n in side.toposort())}
    unsteady = [n for n in reads if not is_steady(n, loop)]
    lengths = {
        length
        for read in unsteady
        for index, length in divisions(flat_offset(read).toposort())
        if index is loop
    }
    length = min(lengths, default=0)
    if length * draft.target.vector < SHORTEST * draft.lanes:
        return 0
    if any(n % length for n in (*lengths, size_of(loop))):
        return 0
    inner = draft.unused(name_of(loop) + "s")
    tried = split(draft.kernel, name_of(loop), length, inner)
    piece = loop_named(tried, inner)
    found = (n for n in reads_of(tried.toposort()) if piece in n.ranges)
    broken = sum(not is_steady(n, piece) for n in found)
    return 0 if broken else length


def unbroken(draft: Draft, nest: Nest) -> Nest:
    """Splits the nest's last loop where all accesses jump together (images side by side along it),
    so that vectors run inside the pieces and not lane by lane across them; and those of its sums,
    where what a quotient chooses (a channel's weight) is one number for all of a piece."""
    for reduction in draft.sums_in(nest):
        last = own_ranges(reduction)[-1]
        if last in draft.loops.values():  # else a sum beside it has split it
            _take_in_pieces(draft, last, reduction.src)
    nest = draft.nest(nest.name)
    if nest.loops:
        _take_in_pieces(draft, nest.loops[-1], (*nest.values, *nest.writes))
    return draft.nest(nest.name)


def _take_in_pieces(draft: Draft, loop: UOp, operands: Iterable[UOp]) -> None:
    length = stretch_of(draft, loop, operands, _in_steps) if is_plain_loop(loop) else 0
    if length >= draft.lanes:
        draft.split(name_of(loop), length, name_of(loop) + "s")


def _in_steps(access: UOp, loop: UOp) -> bool:
    return step(access, loop) is not None


def panel_of(draft: Draft, stretch: int, rows: int, columns: int, depth: int) -> int:
    """The columns of a panel: whole stretches, such that tiles take hardly more cycles than with
    any other choice over all `rows` and `columns`, and that `depth` bytes a column fit in half of
    the private cache. Narrow panels are preferred, but wide enough for a register tile if
    possible."""
    lanes, room = draft.lanes, draft.target.cache_l2 // 2
    most = max(stretch, min(columns, WIDEST_PANEL * lanes, room // depth))
    around = Surroundings(beside=True)

    def cycles(width: int) -> float:
        parts = ((columns // width, width), (1, columns % width))
        tiles = ((n, best_tile(draft.target, rows, w, lanes, around)) for n, w in parts if w)
        return sum(n * tile.cycles for n, tile in tiles)

    cost = {width: cycles(width) for width in range(stretch, most + 1, stretch)}
    good = [width for width in cost if cost[width] <= HARDLY_MORE * min(cost.values())]
    return min(good, key=lambda width: (-min(width, 4 * lanes), width))


def fill_stretches(draft: Draft, name: str, across: str, stretch: int) -> tuple[str, str]:
    """Splits the loop `across` of a stage into stretches, and these into vectors, the last of which
    would reach into the next stretch. Returns the loops inside a stretch."""
    lanes = draft.lanes
    while lanes // 2 >= stretch:
        lanes //= 2
    column = draft.split(across, stretch, across + "r")
    vector = draft.split(column, lanes, across + "v", "UNROLL", "VECTOR")
    if stretch % lanes:
        draft.do("pad", name, across, -(-stretch % lanes))
    loops = list(map(name_of, own_ranges(draft.stages[name])))
    row = stretch * draft.size(across)
    line = draft.target.cache_line // draft.stages[name].dtype.itemsize
    if loops.index(across) and row % line:
        draft.do("pad", name, loops[loops.index(across) - 1], -row % line)
    return column, vector
