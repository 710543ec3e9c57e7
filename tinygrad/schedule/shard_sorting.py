"""Sorting on the host (`argsort`, `smallest`, `ordered`) of tensors that are cut over devices.

If the cut is along another axis than the one that is sorted, each device sorts its part. If a row
itself is cut, each device sorts its block of the row. Then neighbours exchange their blocks, in
turn with the one before and the one after: each merges both and keeps the smaller or the larger
half. After as many rounds as there are devices the row is in order (Baudet and Stevenson, "Optimal
sorting algorithms for parallel computers", 1978). No device ever has more than two blocks. Blocks
have one size, so the last ones are filled up; the filling is cut off at the end. Merging keeps the
order of equal elements, so the sort is stable. For the `k` smallest of a row, each device finds the
k smallest of its part, and all devices the k smallest of these."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import ceildiv
from tinygrad.schedule.collectives import joined, sent
from tinygrad.schedule.in_parts import sliced
from tinygrad.schedule.shard import Along, Parts, Sharding
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

ROWWISE = frozenset(("argsort", "smallest", "ordered"))
"""Functions along the last axis: the original index of each sorted key; the first keys in order;
other values in the order of the keys, with the keys' original indices."""


def sorted_parts(walk: Sharding, node: UOp) -> list[Parts]:
    """The results of such a CALL."""
    name, *parameters = node.arg
    keys, along = node.src[0], walk.along(node.src[0])
    count = len(node.device)
    if along is None or along.axis < keys.ndim - 1:
        sources = zip(*(walk.nodes(s, along, count) for s in node.src), strict=True)
        made = [_here(name, parameters, each) for each in sources]
        return [walk.made(parts[0], parts, along) for parts in zip(*made, strict=True)]
    if name == "smallest":
        found = [_smallest(part, parameters[0]) for part in walk.nodes(keys, along)]
        chosen = [joined([sent(n, to) for n in found], along.axis) for to in node.device]
        return [Parts(tuple(_smallest(each, parameters[0]) for each in chosen))]
    return _in_rounds(walk, node, along)


def _here(name: str, parameters: Sequence[float], sources: Sequence[UOp]) -> list[UOp]:
    """The results on one device."""
    if name == "smallest":
        return [_smallest(sources[0], int(parameters[0]))]
    places = _places(sources[0])
    return [places] if name == "argsort" else [_moved(sources[1], places), places]


def _smallest(keys: UOp, count: float) -> UOp:
    shape = (*keys.shape[:-1], min(int(count), keys.shape[-1]))
    call = UOp(Ops.CALL, src=(keys.contiguous(),), arg=("smallest", shape[-1]))
    return UOp(Ops.ITEM, keys.dtype, (call,), (0, shape))


def _places(keys: UOp) -> UOp:
    call = UOp(Ops.CALL, src=(keys.contiguous(),), arg=("argsort",))
    return UOp(Ops.ITEM, dtypes.int32, (call,), (0, keys.shape))


def _moved(values: UOp, places: UOp) -> UOp:
    """The elements of rows at these places."""
    *lead, size = values.shape
    rows = values.size // size if size else 0
    flat, at = values.reshape((rows, size)), places.reshape((rows, places.shape[-1]))
    row = UOp.arange(rows, values.device).reshape((rows, 1)).broadcast_to(at.shape)
    return flat.index(row, at).reshape((*lead, at.shape[1]))


def _in_rounds(walk: Sharding, node: UOp, along: Along) -> list[Parts]:
    names, axis = node.device, along.axis
    size, each = along.bounds[-1], ceildiv(along.bounds[-1], len(names))
    bounds = tuple(min(i * each, size) for i in range(len(names) + 1))
    even = Along(axis, bounds)
    sources = [[_filled(part, each) for part in walk.nodes(s, even)] for s in node.src]
    places = []
    for i, keys in enumerate(sources[0]):
        at = UOp.arange(each, keys.device) + i * each
        places.append(at.broadcast_to(keys.shape))
    blocks = [_ordered(list(block)) for block in zip(*sources, places, strict=True)]
    for turn in range(len(names)):
        before = list(blocks)
        for low in range(turn % 2, len(names) - 1, 2):
            for i, begin in ((low, 0), (low + 1, each)):
                pair = zip(before[low], before[low + 1], strict=True)
                both = [joined([sent(n, names[i]) for n in two], axis) for two in pair]
                blocks[i] = _ordered(both, begin, begin + each)
    results = []
    for number in range(1, len(blocks[0])):
        pieces = [sliced(b[number], axis, 0, even.size(i)) for i, b in enumerate(blocks)]
        results.append(walk.made(node.src[0], pieces, even))
    return results


def _filled(part: UOp, size: int) -> UOp:
    """The part extended to that many elements, by keys that none is larger than."""
    have = part.shape[-1]
    last = UOp.const(part.dtype, dtypes.max(part.dtype), part.device)
    if have == size:
        return part
    shape = (*part.shape[:-1], size)
    if have == 0:
        return last.broadcast_to(shape)
    room = ((0, 0),) * (part.ndim - 1) + ((0, size - have),)
    is_there: UOp = UOp.arange(size, part.device).broadcast_to(shape) < have
    filled: UOp = is_there.where(part.pad(room), last.broadcast_to(shape))
    return filled


def _ordered(block: Sequence[UOp], begin: int = 0, end: int | None = None) -> list[UOp]:
    """Keys, and what belongs to them, sorted by key: from position `begin` to `end`."""
    keys = block[0]
    order = sliced(_places(keys), keys.ndim - 1, begin, keys.shape[-1] if end is None else end)
    return [_moved(each, order).contiguous() for each in block]
