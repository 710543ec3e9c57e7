"""Reductions in two steps: each block of the input is reduced to a partial result, then the partial
results are reduced. If a block's size doesn't divide the axis, the rest is one more block.

So many cores can work on a long reduction with few results, and the order in which it is added up
depends on shapes only, never on the number of cores. Devices with groups have thousands of lanes.
For them sums are split into more parts (sums of columns into fewer again, as a group takes several
columns side by side), products with few results are split too, and running reductions of few rows
are done in three steps: within blocks, over the totals of the blocks, and the two combined
(Blelloch, "Prefix sums and their applications", 1990)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from tinygrad.base.helpers import ceildiv
from tinygrad.schedule.bases import COMPUTED, is_concrete, reached
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.rows import is_product
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, Ops

MANY_RESULTS = 32  # with so many there is work for all cores already
LONG = 1 << 15  # elements a reduction must have to be split
PARTIALS = (64, 128, 32, 96, 48, 256, 16)  # preferred numbers of partial results

FEW_COLUMNS = 1 << 12  # of a table: a core sums some 1,024 beside each other
LARGE = 1 << 19  # elements of a table whose rows are work for several cores
BLOCKS_OF_ROWS = 16
FEWEST_ROWS = 1 << 10  # of such a table: what its blocks' results add to it is little then

ROW, ENOUGH = 64, 16  # elements side by side that memory delivers as fast as it can; a line of them
BLOCK = 256  # elements of a running reduction for one lane
FEWEST_BLOCKS = 8
ENOUGH_LANES = 1 << 13  # with so many rows each may be one lane
FEW_RESULTS = 1 << 12  # of a product whose tiles would leave lanes idle
DEEPEST = 256  # terms that a lane of such a product adds
GROUPS = 1 << 9  # of lanes, to keep a device busy
SHARE = 1 << 10  # terms of a group, at least
SIDE_BY_SIDE = 8  # columns of a group, at least: a memory transaction has 32 bytes


@dataclass(frozen=True)
class Piece:
    """A `box` of what is reduced, either all of it or a remainder, split into blocks. In the shape
    `apart`, the axes `within` are reduced for each block, and then the axes `blocks`."""

    box: tuple[tuple[int, int], ...]
    apart: tuple[int, ...]
    blocks: tuple[int, ...]
    within: tuple[int, ...]

    @property
    def terms(self) -> int:
        """The number of terms of a block."""
        return prod(self.apart[i] for i in self.within)

    def part(self, value: UOp) -> UOp:
        """The part of a value that lies in the box."""
        return value.shrink(self.box).reshape(self.apart)

    def rows(self, value: UOp) -> UOp:
        """A value with one number for each row, repeated for all blocks of the row."""
        reduced = (*self.blocks, *self.within)
        rows = tuple(1 if i in reduced else n for i, n in enumerate(self.apart))
        states = tuple(1 if i in self.within else n for i, n in enumerate(self.apart))
        return value.reshape(rows).expand(states)

    def states(self, monoid: str, terms: UOp) -> UOp:
        """The results of the blocks; `terms` has the shape `apart`."""
        return terms.reduce_axis(monoid, self.within)


def pieces_of(node: UOp, axis: int, blocks: int, each: int, inner: Collection[int]) -> list[Piece]:
    """Splits what a REDUCE_AXIS reduces into `blocks` blocks of `each` elements of `axis`, which
    reduce the axes `inner`, and a remainder."""
    main, size = blocks * each, node.src[0].shape[axis]
    found = [_piece(node, axis, (0, main), blocks, inner)]
    return found if main == size else [*found, _piece(node, axis, (main, size), 1, inner)]


def _piece(
    node: UOp, axis: int, span: tuple[int, int], blocks: int, inner: Collection[int]
) -> Piece:
    shape, reduced = node.src[0].shape, node.arg[1]
    box = tuple(span if i == axis else (0, n) for i, n in enumerate(shape))
    apart = (*shape[:axis], blocks, (span[1] - span[0]) // blocks, *shape[axis + 1 :])
    outer = tuple(i + (i > axis) for i in reduced if i == axis or i not in inner)
    return Piece(box, apart, outer, tuple(i + (i >= axis) for i in reduced if i in inner))


def combined(node: UOp, pieces: Sequence[Piece], states: Sequence[UOp]) -> UOp:
    """Combines the states of blocks into the state of the row."""
    monoid = node.arg[0]
    found = [
        state.reduce_axis(monoid, piece.blocks).reshape(node.shape)
        for piece, state in zip(pieces, states, strict=True)
    ]
    return reduce(lambda one, other: one.alu(MONOIDS[monoid].combine, other), found)


# ---- what is split -------------------------------------------------------------------------------


def split_reductions(sink: UOp, wishes: Wishes) -> UOp:
    """`sink` with each long REDUCE_AXIS in two steps."""
    if wishes.lanes:
        return sink.rebuilt({Ops.REDUCE_AXIS: _for_lanes, Ops.RUNNING: _split_running})
    return sink.rebuilt({Ops.REDUCE_AXIS: _split})


def _for_lanes(node: UOp) -> UOp:
    made = _split_product(node)
    return made if made is not node else _split_for_groups(node)


def _split_running(node: UOp) -> UOp:
    """Running values within blocks, each combined with the total of the blocks before it."""
    source, (monoid, axis) = node.src[0], node.arg
    shape = source.shape
    if not is_concrete(source) or MONOIDS[monoid].runs_in_order(node.dtype):
        return node
    size = shape[axis]
    blocks = ceildiv(size, BLOCK)
    if blocks < FEWEST_BLOCKS or node.size // size >= ENOUGH_LANES:
        return node
    before, after = shape[:axis], shape[axis + 1 :]
    # the padding comes after all that is needed, so it may be anything
    padded = source.padded(axis, 0, blocks * BLOCK - size)
    apart = padded.reshape((*before, blocks, BLOCK, *after))
    within = apart.running(monoid, axis + 1)
    ends = within.sliced(axis + 1, BLOCK - 1, BLOCK).reshape((*before, blocks, *after))
    totals = _split_running(ends.running(monoid, axis))
    shifted = totals.padded(axis, 1, -1).reshape((*before, blocks, 1, *after))
    earlier = shifted.broadcast_to(apart.shape)
    is_later = UOp.positions(apart.shape, axis, node.device) > 0
    both = is_later.where(earlier.alu(MONOIDS[monoid].combine, within), within)
    return both.reshape((*before, blocks * BLOCK, *after)).shrink(tuple((0, n) for n in shape))


def _split_product(node: UOp) -> UOp:
    """A product of few results, with its longest axis split into stretches of DEEPEST terms."""
    source, (_, axes) = node.src[0], node.arg
    if not is_concrete(source) or not is_product(node):
        return node
    axis = max(axes, key=lambda a: source.shape[a])
    size = source.shape[axis]
    if node.size > FEW_RESULTS or size < 4 * DEEPEST:
        return node
    parts = next((p for p in range(size // DEEPEST, 1, -1) if size % p == 0), 1)
    return _in_two(node, axis, parts) if 4 * parts * DEEPEST > size else node


def _split_for_groups(node: UOp) -> UOp:
    """Splits a long reduction so that there are enough groups: each has a row, or adjacent columns.
    Reductions that repeat elements may be products in some form, and are left to matrix units."""
    source, (_, axes) = node.src[0], node.arg
    if not is_concrete(source) or node.size == 0 or source.size // node.size < LONG:
        return node
    below = reached(source, through=lambda n: n.op in COMPUTED)
    if any(n.op is Ops.EXPAND and n.src[0].size > 1 for n in below):
        return node
    groups = node.size if source.ndim - 1 in axes else ceildiv(node.size, SIDE_BY_SIDE)
    axis = max(axes, key=lambda a: source.shape[a])
    size = source.shape[axis]
    most = min(ceildiv(GROUPS, groups), source.size // node.size // SHARE, size)
    parts = next((p for p in range(most, most // 2, -1) if size % p == 0), most)
    return _in_two(node, axis, parts) if parts > 1 else node


def _split(node: UOp) -> UOp:
    source, (_, axes) = node.src[0], node.arg
    if not is_concrete(source):
        return node
    shape, results = source.shape, node.shape
    if _is_long_table(node):
        return _in_two(node, 0, BLOCKS_OF_ROWS)
    if not 0 < node.size < MANY_RESULTS or source.size // node.size < LONG:
        return node
    axis = next((a for a in axes if shape[a] >= min(PARTIALS)), None)
    if axis is None:
        return node
    beside, last = _beside(shape, axes), max(axes)
    if beside > 1:
        split = (*shape[:last], shape[last] // beside, beside, *shape[last + 1 :])
        node = source.reshape(split).reduce_axis(node.arg[0], axes)
    size = node.src[0].shape[axis]
    parts = next((p for p in PARTIALS if size % p == 0), PARTIALS[0])
    made = _in_two(node, axis, parts) if parts <= size else node
    return made.reduce_axis(node.arg[0], (last + 1,)).reshape(results) if beside > 1 else made


def _is_long_table(node: UOp) -> bool:
    """Whether it sums the rows of a large table that is much longer than wide, and no product."""
    source = node.src[0]
    if node.arg[1] != (0,) or source.shape[0] < FEWEST_ROWS or source.size < LARGE:
        return False
    return MANY_RESULTS <= node.size < FEW_COLUMNS and not is_product(node)


def _beside(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """How many neighbours along the last reduced axis get partial results of their own: as many as
    make a row of memory that fills vectors, if the axes behind are less than a line. 1: none."""
    last = max(axes)
    columns = prod(shape[last + 1 :])
    if columns == 1 or columns >= ENOUGH:
        return 1
    least, size = ceildiv(ROW, columns), shape[last]
    return next((n for n in range(least, min(4 * least, size) + 1) if size % n == 0), 1)


def _in_two(node: UOp, axis: int, parts: int) -> UOp:
    """The partial results of this many parts of `axis` are stored; a remainder is reduced
    separately."""
    source, (monoid, axes) = node.src[0], node.arg
    pieces = pieces_of(node, axis, parts, source.shape[axis] // parts, axes)
    partial, *rest = (piece.states(monoid, piece.part(source)) for piece in pieces)
    return combined(node, pieces, [partial.contiguous(), *rest])
