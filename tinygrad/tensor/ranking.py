"""Order as numbers. An element's *rank* is an integer that compares as the element does: NaN is the
largest, 0.0 and -0.0 are equal. A rank and a place in one 64-bit word compare first by element,
then by place: one maximum over words finds the largest element and where it is, and sorting words
is a stable sort that carries the places along.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.helpers import prod
from tinygrad.engine.digits import PLACE_BITS, places_in_order
from tinygrad.engine.host import HostFunction, call, register
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

LONG_ROW = 1 << 12
FEW = 1 << 12  # elements that are looked at at once: sooner than the host is asked twice
ROUNDS = 8  # so many minima, each of what is beyond the last, are sooner there than the host
SHORT_ROUNDS = 16  # of less than FEW elements: for them the way to the host is the longer part
SPREAD = 16  # a choice of k among so many times k looks at the leaders of blocks first

Described = tuple[tuple[int, ...], DType]


def _chosen(words: Described, k: int) -> list[Described]:
    (*lead, _), kind = words
    return [((*lead, k), kind)]


def _smallest(words: np.ndarray[Any, Any], k: int) -> list[np.ndarray[Any, Any]]:
    if k < words.shape[-1]:
        words = np.partition(words, k - 1, axis=-1)[..., :k]
    return [np.sort(words, axis=-1)]


def _argsorted(ranks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where each of a row's ranks was in order, equal ones as they came: short rows are compared,
    long ones sorted by digits."""
    size = ranks.shape[-1]
    if size < LONG_ROW and ranks.itemsize * 8 > PLACE_BITS:
        return np.argsort(ranks, axis=-1, kind="stable").astype(np.int32)
    if size < LONG_ROW:
        sorted_words = np.sort((ranks.astype(np.int64) << PLACE_BITS) | np.arange(size), axis=-1)
        return sorted_words.astype(np.int32)  # the lower half: where it was
    rows = [places_in_order(row) for row in ranks.reshape(-1, size)]
    return np.array(rows, np.int32).reshape(ranks.shape)


SMALLEST = register(HostFunction("smallest", _smallest, _chosen))
ARGSORT = register(
    HostFunction(
        "argsort",
        lambda ranks: [_argsorted(ranks)],
        lambda ranks: [(ranks[0], dtypes.int32)],
    )
)


def _ordered(ranks: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    places = _argsorted(ranks)
    return [np.take_along_axis(x, places, -1), places]


def _ordered_gradient(node: UOp, results: dict[int, UOp]) -> tuple[UOp | None, ...]:
    """Each element's is where the order has brought it."""
    x, g = node.src[1], results[0]
    *lead, size = x.shape
    flat = (x.size // size, size)
    places = UOp(Ops.ITEM, dtypes.int32, (node,), (1, x.shape)).reshape(flat)
    row = UOp.arange(flat[0], x.device).reshape((flat[0], 1)).broadcast_to(flat)
    of_x = x.const_like(0).reshape(flat).scatter("add", g.reshape(flat), row, places)
    return None, of_x.reshape(x.shape)


ORDERED = register(
    HostFunction("ordered", _ordered, lambda ranks, x: [x, (x[0], dtypes.int32)], _ordered_gradient)
)


def ranks(x: Any) -> Any:
    """Integers in the order of the elements: int64 for types of 64 bits, int32 for all others."""
    kind = x.dtype
    if not dtypes.is_float(kind):
        bits = dtypes.int64 if kind.itemsize == 8 else dtypes.int32
        if kind in (dtypes.uint64, dtypes.uint32):
            return x.bitcast(bits) ^ dtypes.min(bits)
        return x.cast(bits)
    wide = x.cast(dtypes.float32) if kind.itemsize < 4 else x
    bits = dtypes.int64 if kind.itemsize == 8 else dtypes.int32
    number = wide.eq(0).where(0, wide).bitcast(bits)
    top = dtypes.max(bits)
    return wide.isnan().where(top, (number < 0).where(number ^ top, number))


def fits(x: Any, size: int) -> bool:
    """Whether rank and place share a word."""
    return bool(x.dtype.itemsize <= 4 and size < 1 << PLACE_BITS - 1)


def words(rank: Any, places: Any) -> Any:
    """Rank and place side by side, int64. `places` broadcast."""
    return (rank.cast(dtypes.int64) << PLACE_BITS) | places.cast(dtypes.int64)


def places_of(word: Any) -> Any:
    """The places that words hold, as int32."""
    return (word & ((1 << PLACE_BITS) - 1)).cast(dtypes.int32)


def in_order(x: Any, descending: bool) -> Any:
    """Where each element of the sorted last axis was; equal ones keep their order. int32. Symbolic
    sizes have room for the largest: what is there besides comes behind all elements."""
    rank = _order(x, descending)
    room = rank._node.room
    if room != x.shape:
        pads = [(0, most - n) for n, most in zip(x.shape, room, strict=True)]
        rank = rank.pad(pads, value=_last(rank))
    (places,) = call(ARGSORT, rank._node)
    return x._from(places).shrink([(0, n) for n in x.shape])


def _last(rank: Any) -> Any:
    """As far behind as an element, and its place is behind them."""
    return dtypes.max(rank.dtype)


def ordered(x: Any, descending: bool) -> tuple[Any, Any]:
    """The sorted last axis, and where each element was; what several devices have moves with its
    rank, as each of them would need all the others' elements to look them up."""
    values, places = (x._from(each) for each in call(ORDERED, _order(x, descending)._node, x._node))
    return values, places


def leaders(x: Any, k: int, largest: bool) -> Any:
    """Where the first `k` of the sorted last axis were. int32.

    With n elements in blocks, the k are within the k blocks with the best leaders, of equal ones
    the first: so n/b leaders and k·b candidates are looked at, least for b = √(n/k).
    """
    size = x.shape[-1]
    if k == 0 or not all(isinstance(n, int) for n in x.shape):
        return in_order(x, largest)._cut(x.ndim - 1, 0, k)
    if size < SPREAD * k or prod(x.shape) < FEW or isinstance(x.device, tuple):
        return _first(_order(x, largest), x._counting(size, x.device), k)
    block = 1 << int((size / k) ** 0.5).bit_length() - 1  # whole vectors
    blocks = -(-size // block)
    *lead, _ = x.shape
    rank = _order(x, largest)
    rank = rank.pad((0, blocks * block - size), value=_last(rank))
    best = rank.reshape((*lead, blocks, block)).min(-1)
    chosen = _first(best, x._counting(blocks, x.device), k)
    if not fits(x, size):
        chosen = chosen.sort()[0]  # so that candidates come as their places do
    places = (chosen.unsqueeze(-1) * block + x._counting(block, x.device)).reshape(
        (*lead, k * block)
    )
    values = x.gather(-1, places.minimum(size - 1))
    return _first((places < size).where(_order(values, largest), _last(rank)), places, k)


def _first(order: Any, places: Any, k: int) -> Any:
    """The places of the `k` smallest of `order`, of equal ones those before. Where a rank fills a
    word `places` rise."""
    if order.dtype.itemsize * 8 > PLACE_BITS:
        (found,) = call(ARGSORT, order._node)
        first = order._from(found)._cut(order.ndim - 1, 0, k)
        return places.expand(order.shape).gather(-1, first)
    word = words(order, places)
    most = SHORT_ROUNDS if prod(word.shape) < FEW else ROUNDS
    if k <= most and not isinstance(word.device, tuple):
        return places_of(_by_rounds(word, k))
    return places_of(order._from(call(SMALLEST, word._node, parameters=(k,))[0]))


def _by_rounds(word: Any, k: int) -> Any:
    """The `k` smallest in order. No two words of a row are equal, none is the largest number."""
    found = [word.min(-1, keepdim=True)]
    while len(found) < k:
        left = (word > found[-1]).where(word, _last(word))
        found.append(left.min(-1, keepdim=True))
    return found[0].cat(*found[1:], dim=-1)


def _order(x: Any, descending: bool) -> Any:
    return ~ranks(x) if descending else ranks(x)
