"""Operations that several devices do together, written as graphs of copies and arithmetic, which
the scheduler treats like any others: reductions of what each device has (as a tree, or around a
ring in chunks), and parts collected where they are wanted. A reduction has one order for all
devices, so all get the same bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from tinygrad.base.settings import RING, RING_BYTES
from tinygrad.schedule.bases import is_concrete
from tinygrad.schedule.in_parts import concatenated
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS
from tinygrad.uop.placement import even_bounds

Nodes = tuple[UOp, ...]
SMALL = 1 << 14  # bytes: smaller reductions share their copies
TOGETHER = 16  # so many at most


def sent(node: UOp, device: str) -> UOp:
    """The value on `device`: the node itself if it is there already."""
    return node if node.device == device or node.device is None else node.copy_to(device)


def joined(parts: Sequence[UOp], axis: int) -> UOp:
    """Parts on one device, concatenated along `axis` and stored."""
    parts = [part for part in parts if part.shape[axis] != 0] or parts[:1]
    return parts[0] if len(parts) == 1 else concatenated(parts, axis).contiguous()


def all_reduce(parts: Nodes, names: Sequence[str], monoid: str) -> Nodes:
    """The reduction of all devices' parts, on each device: in a tree for small parts, which takes
    few steps, or else around a ring in chunks, which keeps all links busy."""
    large = len(names) > 2 and parts[0].size * parts[0].dtype.itemsize >= RING_BYTES.value
    wanted = RING.value > 1 or (RING.value and large)
    if wanted and is_concrete(parts[0]) and parts[0].size >= len(names) > 1:
        return _around_a_ring(parts, names, monoid)
    return _in_a_tree(parts, names, monoid)


def _in_a_tree(parts: Nodes, names: Sequence[str], monoid: str) -> Nodes:
    """Reduces pairs, pairs of pairs, ..., and sends the result back the same way."""
    combine, held, count = MONOIDS[monoid].combine, list(parts), len(parts)
    if count == 2:
        return tuple(sent(parts[0], n).alu(combine, sent(parts[1], n)) for n in names)
    step = 1
    while step < count:
        for i in range(0, count - step, 2 * step):
            held[i] = held[i].alu(combine, sent(held[i + step], names[i]))
        step *= 2
    while step > 1:
        step //= 2
        for i in range(0, count - step, 2 * step):
            held[i + step] = sent(held[i], names[i + step])
    return tuple(held)


def _around_a_ring(parts: Nodes, names: Sequence[str], monoid: str) -> Nodes:
    """Chunk c starts at device c + 1, is combined with the chunk of each device, and is complete at
    device c; then each complete chunk goes around once more. All devices send and receive at
    once."""
    count, size, shape = len(parts), parts[0].size, parts[0].shape
    bounds = even_bounds(size, count)
    flat = [part.reshape((size,)) for part in parts]
    got: list[list[UOp]] = [[] for _ in names]  # each device's chunks, in order
    for chunk in range(count):
        box = bounds[chunk], bounds[chunk + 1]
        pieces = [part.sliced(0, *box) for part in flat]
        held = reduced_to(chunk, pieces, names, monoid)
        at = {chunk: held}
        for turn in range(1, count):
            device = (chunk + turn) % count
            held = at[device] = sent(held, names[device])
        for device, chunks in enumerate(got):
            chunks.append(at[device])
    return tuple(joined(chunks, 0).reshape(shape) for chunks in got)


def reduced_to(target: int, pieces: Sequence[UOp], names: Sequence[str], monoid: str) -> UOp:
    """The reduction of the devices' pieces, on device number `target`: it starts at the device
    after it and goes around the ring."""
    combine, count = MONOIDS[monoid].combine, len(names)
    held = pieces[(target + 1) % count]
    for turn in range(2, count + 1):
        device = (target + turn) % count
        held = sent(held, names[device]).alu(combine, pieces[device])
    return held


# ---- several at once -----------------------------------------------------------------------------


class Reduction(NamedTuple):
    """The arguments of `all_reduce`, and its results."""

    parts: Nodes
    names: tuple[str, ...]
    monoid: str
    results: Nodes

    @property
    def is_small(self) -> bool:
        """Whether the latency of its copies outweighs their bytes."""
        one = self.parts[0]
        return is_concrete(one) and one.size * one.dtype.itemsize <= SMALL


def in_buckets(roots: Nodes, made: Sequence[Reduction]) -> Nodes:
    """The same values, with independent small reductions combined into one: a device's parts are
    concatenated in memory and reduced together, and each reduction takes its part of the result."""
    depth: dict[UOp, int] = {}  # the reductions below a node, counted along a path
    ends = {node for one in made for node in one.results}
    for node in UOp.sink(*roots).toposort():
        depth[node] = max((depth[s] for s in node.src), default=0) + (node in ends)
    alike = defaultdict(list)
    for one in made:
        if one.is_small and one.results[0] in depth:
            level = min(depth[node] for node in one.results if node in depth)
            alike[level, one.names, one.monoid, one.parts[0].dtype.name].append(one)
    known: dict[UOp, UOp] = {}
    for key in sorted(alike):
        for first in range(0, len(alike[key]), TOGETHER):
            bucket = alike[key][first : first + TOGETHER]
            if len(bucket) > 1:
                known |= _as_one(bucket, known)
    return UOp.sink(*roots).substitute(known).src


def _as_one(bucket: Sequence[Reduction], known: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """The results of several reductions as parts of the result of one."""
    ends = list(accumulate((one.parts[0].size for one in bucket), initial=0))
    names, monoid = bucket[0].names, bucket[0].monoid
    lined = []
    for device in range(len(names)):
        parts = [one.parts[device].substitute(known).contiguous() for one in bucket]
        lined.append(joined([part.reshape((part.size,)) for part in parts], 0))
    found = all_reduce(tuple(lined), names, monoid)
    return {
        old: whole.sliced(0, begin, end).reshape(old.shape)
        for one, begin, end in zip(bucket, ends[:-1], ends[1:], strict=True)
        for old, whole in zip(one.results, found, strict=True)
    }
