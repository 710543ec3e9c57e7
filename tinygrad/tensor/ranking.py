"""Order as numbers. An element's *rank* is an integer that compares as the element does: NaN is the
largest, 0.0 and -0.0 are equal. A rank and a place in one 64-bit word compare first by element,
then by place: one maximum over words finds the largest element and where it is, and sorting words
is a stable sort that carries the places along.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.base.dtype import DType, dtypes
from tinygrad.engine.host import HostFunction, call, register

PLACE_BITS = 32
SPREAD = 16  # a choice of k among so many times k looks at the leaders of blocks first

Described = tuple[tuple[int, ...], DType]


def _chosen(words: Described, k: int) -> list[Described]:
    (*lead, _), kind = words
    return [((*lead, k), kind)]


def _smallest(words: np.ndarray[Any, Any], k: int) -> list[np.ndarray[Any, Any]]:
    if k < words.shape[-1]:
        words = np.partition(words, k - 1, axis=-1)[..., :k]
    return [np.sort(words, axis=-1)]


SORT = register(HostFunction("sort", lambda w: [np.sort(w, axis=-1)], lambda w: [w]))
SMALLEST = register(HostFunction("smallest", _smallest, _chosen))
ARGSORT = register(
    HostFunction(
        "argsort",
        lambda ranks: [np.argsort(ranks, axis=-1, kind="stable")],
        lambda ranks: [(ranks[0], dtypes.int64)],
    )
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
    """Where each element of the sorted last axis was; equal ones keep their order. int32."""
    size = x.shape[-1]
    rank = ~ranks(x) if descending else ranks(x)
    if not fits(x, size):
        (places,) = call(ARGSORT, rank._node)
        return x._from(places).cast(dtypes.int32)
    (sorted_words,) = call(SORT, words(rank, x._counting(size, x.device))._node)
    return places_of(x._from(sorted_words))


def leaders(x: Any, k: int, largest: bool) -> Any:
    """Where the first `k` of the sorted last axis were. int32.

    With n elements in blocks, the k are within the k blocks with the best leaders: so n/b leaders
    and k·b candidates are looked at, least for b = √(n/k).
    """
    size = x.shape[-1]
    if not fits(x, size) or k == 0:
        return in_order(x, largest)._cut(x.ndim - 1, 0, k)
    count = x._counting(size, x.device)._broadcast_to(x.shape)
    if size < SPREAD * k:
        return _first(x, count, k, largest)
    block = int((size / k) ** 0.5)
    blocks = -(-size // block)
    *lead, _ = x.shape
    none = dtypes.max(dtypes.int64)
    word = _words_of(x, count, largest).pad((0, blocks * block - size), value=none)
    best = word.reshape((*lead, block, blocks)).min(-2)  # (.., blocks): one block is a column
    chosen = places_of(x._from(call(SMALLEST, best._node, parameters=(k,))[0])) % blocks
    rows = x._counting(block, x.device).reshape((block, 1)) * blocks
    places = (chosen.unsqueeze(-2) + rows).reshape((*lead, block * k))
    inside = places < size
    values = x.gather(-1, inside.where(places, 0))
    return _first(values, places, k, largest, inside)


def _first(x: Any, places: Any, k: int, largest: bool, counts: Any = None) -> Any:
    word = _words_of(x, places, largest)
    if counts is not None:
        word = counts.where(word, dtypes.max(dtypes.int64))
    return places_of(x._from(call(SMALLEST, word._node, parameters=(k,))[0]))


def _words_of(x: Any, places: Any, largest: bool) -> Any:
    return words(~ranks(x) if largest else ranks(x), places)
