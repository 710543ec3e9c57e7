"""Kernels that would take more buffers than a device binds: what is to be stored or kept apart, so
that the walk, taken again, makes kernels that fit."""

from __future__ import annotations

from collections.abc import Iterable

from tinygrad.schedule.bases import memory_base
from tinygrad.schedule.demand import Kernel
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

SPARE = 2  # buffers besides what is read and stored: fault words, a copy of an old version


def beyond(kernels: Iterable[Kernel], limit: int) -> tuple[set[UOp], set[UOp]]:
    """Nodes that are to be stored, and stored ones that are to have kernels of their own, where a
    kernel takes more than `limit` buffers. Both empty: all fit, or can't be made smaller."""
    stored: set[UOp] = set()
    apart: set[UOp] = set()
    for kernel in kernels:
        if len(kernel.reads) + len(kernel.stores) + SPARE <= limit:
            continue
        if len(kernel.stores) > 1:
            apart.update(kernel.stores[1:])
        elif (part := _part(kernel, max(2, limit - SPARE - 1))) is not None:
            stored.add(part)
    return stored, apart


def _part(kernel: Kernel, most: int) -> UOp | None:
    """The largest part of a kernel's value that reads at most so many buffers, as the first value
    that reads more is reached from the leaves."""
    leaves: dict[UOp, frozenset[UOp]] = {}
    for node, _ in reversed(kernel.inlined):
        below = [(s, leaves.get(s, frozenset((s,)) & kernel.reads.keys())) for s in node.src]
        if node.op in (Ops.INDEX, Ops.SCATTER):  # what is indexed lies in memory, under its views
            below[0] = node.src[0], leaves.get(node.src[0]) or frozenset(node.src[:1])
        leaves[node] = found = leaves.get(node, frozenset()).union(*(own for _, own in below))
        if len(found) > most:
            largest, count = max(((s, len(own)) for s, own in below), key=lambda pair: pair[1])
            return memory_base(largest) if count > 1 else None
    return None
