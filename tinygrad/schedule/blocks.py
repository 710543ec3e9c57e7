"""A reduction in two steps: blocks of what is reduced each come to a state, and the states to the
whole. Where an axis is no multiple of a block, what is left over is one block more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS


@dataclass(frozen=True)
class Piece:
    """A `box` of what is reduced, all of it or what is left over, with an axis for blocks: in the
    shape `apart`, axes `within` are reduced for each block, then the axes `blocks`."""

    box: tuple[tuple[int, int], ...]
    apart: tuple[int, ...]
    blocks: tuple[int, ...]
    within: tuple[int, ...]

    @property
    def terms(self) -> int:
        """Of a block."""
        return prod(self.apart[i] for i in self.within)

    def part(self, value: UOp) -> UOp:
        """What of a value lies in the box."""
        return value.shrink(self.box).reshape(self.apart)

    def rows(self, value: UOp) -> UOp:
        """A number for each row, for all its blocks."""
        reduced = (*self.blocks, *self.within)
        rows = tuple(1 if i in reduced else n for i, n in enumerate(self.apart))
        states = tuple(1 if i in self.within else n for i, n in enumerate(self.apart))
        return value.reshape(rows).expand(states)

    def states(self, monoid: str, terms: UOp) -> UOp:
        """What the blocks come to; `terms` lie `apart`."""
        return terms.reduce_axis(monoid, self.within)


def pieces_of(node: UOp, axis: int, blocks: int, each: int, inner: Collection[int]) -> list[Piece]:
    """What a REDUCE_AXIS reduces, in `blocks` of so many `each` of `axis`, which reduce the axes
    `inner`."""
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


def joined(node: UOp, pieces: Sequence[Piece], states: Sequence[UOp]) -> UOp:
    """The row's state of those of its blocks."""
    monoid = node.arg[0]
    found = [
        state.reduce_axis(monoid, piece.blocks).reshape(node.shape)
        for piece, state in zip(pieces, states, strict=True)
    ]
    return reduce(lambda one, other: one.alu(MONOIDS[monoid].combine, other), found)
