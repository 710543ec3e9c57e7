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
from tinygrad.schedule.shard import Along, Parts, Sharding
from tinygrad.uop import Ops, UOp

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
    row = UOp.positions(at.shape, 0, values.device)
    return flat.index(row, at).reshape((*lead, at.shape[1]))


Block = list[UOp]
"""What a device has of a row: keys, what belongs to them, and the keys' original indices."""


def _in_rounds(walk: Sharding, node: UOp, along: Along) -> list[Parts]:
    names, axis, size = node.device, along.axis, along.bounds[-1]
    each = ceildiv(size, len(names))
    even = Along(axis, tuple(min(i * each, size) for i in range(len(names) + 1)))
    sources = zip(*(walk.nodes(s, even) for s in node.src), strict=True)
    blocks = [_own_block(parts, each, i) for i, parts in enumerate(sources)]
    for turn in range(len(names)):
        for low in range(turn % 2, len(names) - 1, 2):
            both = slice(low, low + 2)
            blocks[both] = _merged(blocks[both], names[both], axis, each)
    _, *sorted_along = zip(*blocks, strict=True)  # without the keys
    results = []
    for parts in sorted_along:
        pieces = [part.sliced(axis, 0, even.size(i)) for i, part in enumerate(parts)]
        results.append(walk.made(node.src[0], pieces, even))
    return results


def _own_block(parts: Sequence[UOp], size: int, number: int) -> Block:
    """What a device begins with: its own part of the row, in order."""
    block = [_filled(part, size) for part in parts]
    places = UOp.arange(size, block[0].device) + number * size
    return _ordered([*block, places.broadcast_to(block[0].shape)])


def _merged(pair: Sequence[Block], names: Sequence[str], axis: int, size: int) -> list[Block]:
    """Two neighbours merge their blocks: the first keeps the smaller half, the other the larger."""
    halves = zip(names, ((0, size), (size, 2 * size)), strict=True)
    return [_ordered(_together(pair, name, axis), *half) for name, half in halves]


def _together(pair: Sequence[Block], device: str, axis: int) -> Block:
    """Two blocks as one, on a device."""
    both = zip(*pair, strict=True)
    return [joined([sent(part, device) for part in parts], axis) for parts in both]


def _filled(part: UOp, size: int) -> UOp:
    """The part extended to that many elements, by keys that none is larger than."""
    have = part.shape[-1]
    if have == size:
        return part
    shape = (*part.shape[:-1], size)
    last = UOp.const(part.dtype, dtypes.max(part.dtype), part.device).broadcast_to(shape)
    if have == 0:
        return last
    is_there: UOp = UOp.positions(shape, -1, part.device) < have
    return is_there.where(part.padded(-1, 0, size - have), last)


def _ordered(block: Block, begin: int = 0, end: int | None = None) -> list[UOp]:
    """Keys, and what belongs to them, sorted by key: from position `begin` to `end`."""
    keys = block[0]
    order = _places(keys).sliced(-1, begin, keys.shape[-1] if end is None else end)
    return [_moved(each, order).contiguous() for each in block]
