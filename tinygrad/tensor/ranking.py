"""Order as numbers. An element's *rank* is an integer that compares as the element does: NaN is the
largest, 0.0 and -0.0 are equal. A rank and a place in one 64-bit word compare first by element,
then by place: one maximum over words finds the largest element and where it is, and sorting words
is a stable sort that carries the places along.

It decides how to sort or choose, by the size of rows and of ranks; dtypes are met in `ranks` only,
and what users see (axes, errors, gradients of values) is `order`'s. Read `ranks` and `words` first,
then `in_order` (whole rows), then `leaders`, which chooses a few: in rounds, by blocks, or by
counting digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.helpers import prod
from tinygrad.engine.host import HostFunction, call, register
from tinygrad.uop import Ops, UOp

WORD = 64  # bits
PLACE_BITS = 32  # of a word: the low ones hold the place, those above the rank
FEW_COLUMNS = 4  # an axis so short is sorted by exchanges
FEW = 1 << 12  # elements that are looked at at once: sooner than the host is asked twice
ROUNDS = 8  # so many minima, each of what is beyond the last, are sooner there than the host
SHORT_ROUNDS = 16  # of less than FEW elements: for them the way to the host is the longer part
SINGLE_EXPONENT = 8  # bits
DIGIT = 2  # bits of a rank that a pass over memory finds: three sums take no longer than to read
SPREAD = 16  # a choice of k among so many times k looks at the leaders of blocks first

Array = np.ndarray[Any, Any]
Described = tuple[tuple[int, ...], DType]


def _chosen(words: Described, k: int | None = None) -> list[Described]:
    (*lead, size), kind = words
    return [((*lead, size if k is None else k), kind)]


def _smallest(results: Sequence[Array], words: Array, k: int | None = None) -> None:
    """The `k` smallest words of each row in order."""
    (to,), size = results, words.shape[-1]
    k = size if k is None else k
    to[...] = words if k == size else np.partition(words, k - 1, axis=-1)[..., :k]
    to.sort(axis=-1)


def _argsorted(results: Sequence[Array], ranks: Array) -> None:
    """Where each of a row's ranks was in order, equal ones as they came: sorted by as many of their
    high bits as fit into a word beside a place, and once more if that leaves some in disorder."""
    (to,), bits = results, ranks.shape[-1].bit_length()
    if ranks.size == 0:
        return
    low = int(ranks.min())
    dropped = max(0, (int(ranks.max()) - low).bit_length() + bits - WORD)
    words = ranks.astype(np.uint64)
    words -= np.uint64(low % (1 << WORD))
    words >>= np.uint64(dropped)
    words <<= np.uint64(bits)
    words |= np.arange(ranks.shape[-1], dtype=np.uint64)
    words.sort(axis=-1)
    words &= np.uint64((1 << bits) - 1)
    to[...] = words
    if dropped:
        near = np.take_along_axis(ranks, to, -1)
        if (near[..., 1:] < near[..., :-1]).any():  # quick where most are in order
            to[...] = np.take_along_axis(to, np.argsort(near, axis=-1, kind="stable"), -1)


SMALLEST = register(HostFunction("smallest", _smallest, _chosen))
ARGSORT = register(HostFunction("argsort", _argsorted, lambda ranks: [(ranks[0], dtypes.int32)]))


def _ordered(results: Sequence[Array], ranks: Array, x: Array) -> None:
    values, places = results
    _argsorted([places], ranks)
    values[...] = np.take_along_axis(x, places, -1)


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
    rank = wide.isnan().where(top, (number < 0).where(number ^ top, number))
    return rank >> 8 * bits.itemsize - rank_bits(kind)


def rank_bits(kind: DType) -> int:
    """The bits that ranks of this type need, as floats of single precision at least."""
    if not dtypes.is_float(kind) or kind.itemsize > 4:
        return 8 * kind.itemsize
    fraction: int = dtypes.finfo(kind)[1]
    return 1 + SINGLE_EXPONENT + fraction


def fits(x: Any, size: int) -> bool:
    """Whether rank and place share a word."""
    return bool(x.dtype.itemsize <= 4 and size < 1 << PLACE_BITS - 1)


def words(rank: Any, places: Any) -> Any:
    """Rank and place side by side, int64. `places` broadcast."""
    return (rank.cast(dtypes.int64) << PLACE_BITS) | places.cast(dtypes.int64)


def places_of(word: Any) -> Any:
    """The places that words hold, as int32."""
    return (word & ((1 << PLACE_BITS) - 1)).cast(dtypes.int32)


def in_order(x: Any, descending: bool) -> tuple[Any, Any]:
    """The sorted last axis, and where each element was, int32; equal ones keep their order.
    Symbolic sizes have room for the largest: what is there besides comes behind all elements."""
    if isinstance(x.device, tuple):
        return _ordered_together(x, descending)
    rank = _order(x, descending)
    rank, size = _roomy(rank, _last(rank)), rank._node.room[-1]
    if not fits(x, size):
        (found,) = call(ARGSORT, rank._node)
        places = x._from(found).shrink([(0, n) for n in x.shape])
        return x.gather(-1, places), places
    (found,) = call(SMALLEST, words(rank, x._counting(size, x.device))._node)
    word = x._from(found).shrink([(0, n) for n in x.shape])
    places = places_of(word)
    if dtypes.is_float(x.dtype):  # zeros of both signs have one rank
        return x.gather(-1, places), places
    rank = (word >> PLACE_BITS).cast(dtypes.int32)
    rank = ~rank if descending else rank
    if x.dtype is dtypes.uint32:
        return (rank ^ dtypes.min(dtypes.int32)).bitcast(x.dtype), places
    return rank.cast(x.dtype), places


def few_in_order(x: Any, axis: int, descending: bool) -> tuple[Any, Any]:
    """The same along a short axis: neighbours that are in the wrong order change places, as often
    as there are elements (Knuth, volume 3, 5.3.4, exercise 37). By columns, which are vectors."""
    size, rank = x.shape[axis], _order(x, descending)
    found = [[t._cut(axis, i, i + 1) for t in (rank, x)] for i in range(size)]
    for i, column in enumerate(found):
        column.append(column[0].full_like(i, dtype=dtypes.int32))
    for turn in range(size):
        for i in range(turn % 2, size - 1, 2):
            turned = found[i + 1][0] < found[i][0]
            pairs = list(zip(found[i], found[i + 1], strict=True))
            found[i] = [turned.where(b, a) for a, b in pairs]
            found[i + 1] = [turned.where(a, b) for a, b in pairs]
    columns = [*zip(*found, strict=True)][1:]
    if axis == x.ndim - 1:  # stored apart, each is made once
        columns = [tuple(t.contiguous() for t in each) for each in columns]
    values, places = (first.cat(*more, dim=axis) for first, *more in columns)
    return values, places


def _roomy(x: Any, value: Any) -> Any:
    """Of symbolic sizes the largest; `value` is what comes behind."""
    pads = [(0, most - n) for n, most in zip(x.shape, x._node.room, strict=True)]
    return x if x._node.room == x.shape else x.pad(pads, value=value)


def _last(rank: Any) -> Any:
    """As far behind as an element, and its place is behind them."""
    return dtypes.max(rank.dtype)


def _ordered_together(x: Any, descending: bool) -> tuple[Any, Any]:
    """The same of what several devices have: it moves with its rank, as each of them would need all
    the others' elements to look them up."""
    rank = _order(x, descending)
    rank = _roomy(rank, _last(rank))
    found = call(ORDERED, rank._node, _roomy(x, 0)._node)
    values, places = (x._from(each).shrink([(0, n) for n in x.shape]) for each in found)
    return values, places


def chosen_by_counting(x: Any, k: Any) -> Any:
    """Where an element is that has `k` smaller or equal ones before it in order, a number or
    numbers (.., 1): (.., 1), of equal ones the first."""
    rank, size = ranks(x).contiguous(), x.shape[-1]
    is_short = dtypes.is_int(x.dtype) and x.dtype.itemsize < 4
    least = int(dtypes.min(x.dtype)) if is_short else None
    is_it = rank.eq(_rank_at(rank, k, rank_bits(x.dtype), least))
    return is_it.where(x._counting(size, x.device), size).min(-1, keepdim=True)


def _rank_at(rank: Any, k: Any, bits: int, least: int | None = None) -> Any:
    """The rank that is at place `k` in order, (.., 1); of a wide one half after the other."""
    if bits <= PLACE_BITS:
        return _by_digits(rank, k, bits, least)
    high = (rank >> PLACE_BITS).cast(dtypes.int32).contiguous()
    half = dtypes.min(dtypes.int32)
    low = ((rank & ((1 << PLACE_BITS) - 1)) + half).cast(dtypes.int32)
    found = _by_digits(high, k, PLACE_BITS)
    left = k - (high < found).cast(dtypes.int32).sum(-1, keepdim=True)
    low = high.eq(found).where(low, dtypes.max(dtypes.int32)).contiguous()
    return words(found, _by_digits(low, left, PLACE_BITS).cast(rank.dtype) - half)


def _by_digits(rank: Any, k: Any, bits: int, least: int | None = None) -> Any:
    """The rank that is at place `k` in order, (.., 1); the number of its bits is even. Digit by
    digit, by counting how many are smaller: every pass is the same kernel."""
    bits += bits % DIGIT
    low = rank._cut(rank.ndim - 1, 0, 1).full_like(-(1 << bits - 1) if least is None else least)
    step = low.full_like(1 << bits - DIGIT)
    for _ in range(bits // DIGIT):
        bounds = [low + step * i for i in range(1, 1 << DIGIT)]
        below = [(rank < bound).cast(dtypes.int32).sum(-1, keepdim=True) for bound in bounds]
        digit = sum((count <= k).cast(rank.dtype) for count in below)
        low, step = (low + step * digit).contiguous(), (step >> DIGIT).contiguous()
    return low


def leaders(x: Any, k: int, largest: bool) -> Any:
    """Where the first `k` of the sorted last axis were. int32.

    With n elements in blocks, the k are within the k blocks with the best leaders, of equal ones
    the first: so n/b leaders and k·b candidates are looked at, least for b = √(n/k).
    """
    size = x.shape[-1]
    if k == 0 or not all(isinstance(n, int) for n in x.shape):
        return in_order(x, largest)[1]._cut(x.ndim - 1, 0, k)
    if size < SPREAD * k or prod(x.shape) < FEW or isinstance(x.device, tuple):
        return _first(_order(x, largest), x._counting(size, x.device), k)
    block = 1 << int((size / k) ** 0.5).bit_length() - 1  # whole vectors
    blocks = -(-size // block)
    *lead, _ = x.shape
    rank = _order(x, largest)
    rank = rank.pad((0, blocks * block - size), value=_last(rank))
    best = rank.reshape((*lead, blocks, block)).min(-1)
    if _is_selected(best, k):
        chosen = _nearest(best, k)
    else:
        chosen = _first(best, x._counting(blocks, x.device), k)
        if k > _rounds(best):  # the candidates are to come as their places do
            chosen = chosen.sort()[0]
    places = (chosen.unsqueeze(-1) * block + x._counting(block, x.device)).reshape(
        (*lead, k * block)
    )
    values = x.gather(-1, places.minimum(size - 1))
    return _first((places < size).where(_order(values, largest), _last(rank)), places, k)


def _rounds(order: Any) -> int:
    """So many of each row are found one after the other."""
    if prod(order.shape) < FEW:
        return SHORT_ROUNDS
    return ROUNDS // 2 if order.dtype.itemsize * 8 > PLACE_BITS else ROUNDS


def _is_selected(order: Any, k: int) -> bool:
    """Whether the first `k` of each row are found before they are put in order."""
    return bool(_rounds(order) < k < order.shape[-1] and prod(order.shape) >= FEW)


def _first(order: Any, places: Any, k: int) -> Any:
    """The places of the `k` smallest of `order`, of equal ones those before. `places` rise where
    there are more than are found in rounds."""
    is_wide = order.dtype.itemsize * 8 > PLACE_BITS
    if not isinstance(order.device, tuple):
        all_places = places.expand(order.shape)
        if k <= _rounds(order):
            if is_wide:
                return _by_rounds([order, all_places], k)
            return places_of(_by_rounds([words(order, all_places)], k))
        if _is_selected(order, k):
            near = _nearest(order, k)
            order, places = order.gather(-1, near), all_places.gather(-1, near)
    if is_wide:
        (found,) = call(ARGSORT, order._node)
        first = order._from(found)._cut(order.ndim - 1, 0, k)
        return places.expand(order.shape).gather(-1, first)
    word = words(order, places)
    return places_of(order._from(call(SMALLEST, word._node, parameters=(k,))[0]))


def _nearest(order: Any, k: int) -> Any:
    """Where the `k` smallest of each row are, of equal ones those before, as they come: each goes
    to the slot that is the number of those before it, all others to one behind these."""
    *lead, size = order.shape
    order = order.contiguous()
    bound = _rank_at(order, k - 1, order.dtype.itemsize * 8)
    below, equal = order < bound, order.eq(bound)
    is_near = below | (equal & (equal.cumsum(-1) <= k - below.sum(-1, keepdim=True)))
    slot = is_near.where(is_near.cumsum(-1) - 1, k)
    at = order._counting(size, order.device).expand(order.shape)
    slots = order.zeros((*lead, k + 1), dtype=dtypes.int32, device=order.device)
    return slots.scatter(-1, slot, at)._cut(order.ndim - 1, 0, k)


def _by_rounds(keys: list[Any], k: int) -> Any:
    """The last key of the `k` smallest elements in order, of which the first keys are compared
    first. No two of a row are equal in all, none has the largest number as its last key."""
    found, beyond = list[Any](), None
    while len(found) < k:
        least, left = list[Any](), beyond
        for key in keys:
            among = key if left is None else left.where(key, _last(key))
            least.append(among.min(-1, keepdim=True))
            if len(least) < len(keys):
                equal = key.eq(least[-1])
                left = equal if left is None else equal & left
        found.append(least[-1])
        beyond = keys[-1] > least[-1]
        for key, bound in zip(keys[-2::-1], least[-2::-1], strict=True):
            beyond = (key > bound) | (key.eq(bound) & beyond)
    return found[0].cat(*found[1:], dim=-1)


def _order(x: Any, descending: bool) -> Any:
    return ~ranks(x) if descending else ranks(x)
