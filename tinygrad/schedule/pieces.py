"""Pieces of one array that share work, such as the slopes of a cell's gates, which are computed by
one product and chunked. The kernel that puts them together would ask for what they share at the
places of each, so it would all be stored. Where that is more than the pieces are, these are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tinygrad.schedule.bases import COMPUTED, reached
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.redo import CHEAP_WEIGHT, weights_below
from tinygrad.uop import Ops, UOp


def pieces_stored(sink: UOp, _: Wishes) -> UOp:
    """Stores such pieces."""
    order = sink.toposort()
    groups = [found for top in _sums(order) if len(found := _pieces(top)) > 1]
    if not groups:
        return sink
    weight, _leaves = weights_below(order)
    stored: dict[UOp, UOp] = {}
    for group in groups:
        costly = [piece for piece in group if weight[piece] > CHEAP_WEIGHT]
        if len(_shared(costly, weight)) > len(costly):
            stored |= {piece: UOp(Ops.CONTIGUOUS, piece.dtype, (piece,)) for piece in costly}
    return sink.substitute(stored) if stored else sink


def _sums(order: Iterable[UOp]) -> set[UOp]:
    """The sums that are no terms of others."""
    found: set[UOp] = set()
    for node in order:
        if node.op is Ops.ADD:
            found.add(node)
            found.difference_update(node.src)
    return found


def _pieces(top: UOp) -> list[UOp]:
    """What is padded and then added up."""
    terms = reached(top, through=lambda node: node.op is Ops.ADD)
    return [*dict.fromkeys(term.src[0] for term in terms if term.op is Ops.PAD)]


def _shared(pieces: list[UOp], weight: dict[UOp, int]) -> set[UOp]:
    """The values, neither cheap nor stored already, that several pieces are computed from; of those
    that only others of them need, none."""
    cones = [{*reached(piece, through=lambda node: node.op in COMPUTED)} for piece in pieces]
    times = Counter(node for cone in cones for node in cone)
    both = {node for node, count in times.items() if count > 1 and weight[node] > CHEAP_WEIGHT}
    return {s for node in times for s in node.src if s in both and node not in both}
