"""Kernels that can't run as the walk made them. Here it is found what must be stored, or must have
a kernel of its own, before the walk is repeated. There are two reasons:

- A kernel uses more buffers than its device can bind.
- Two kernels each overwrite what the other one reads, so each would have to run first. The step of
  an optimizer makes such pairs: a gradient that is computed in the kernel which updates its
  parameter may need the old value of another parameter. If gradients have their own kernels, no old
  value has to be copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tinygrad.base.windows import windows
from tinygrad.schedule.bases import COMPUTED, memory_base, reached, storage_home
from tinygrad.schedule.demand import Kernel
from tinygrad.schedule.plan import Wishes
from tinygrad.uop import Ops, UOp

SPARE = 2  # further buffers: fault words, a copy of an old version


def beyond(kernels: Iterable[Kernel], wishes: Wishes) -> tuple[set[UOp], set[UOp]]:
    """Where a kernel binds more than `wishes.buffers`: nodes that must be stored, and stored nodes
    that must have kernels of their own. Both are empty if all kernels fit, or can't be made
    smaller."""
    stored: set[UOp] = set()
    apart: set[UOp] = set()

    def bound(nodes: Iterable[UOp]) -> int:
        return sum(_bound(node, wishes.window) for node in nodes)

    for kernel in kernels:
        arrays = [*kernel.stores, *kernel.reads]
        spare = SPARE
        if bound(arrays) > len(arrays):  # long arrays, of few kernels: counted exactly
            spare = any(node.op is Ops.CHECK for node, _ in kernel.inlined)
        if bound(arrays) + spare <= wishes.buffers:
            continue
        if len(kernel.stores) > 1:
            apart.update(kernel.stores[1:])
            continue
        part = _part(kernel, wishes.buffers - spare - bound(kernel.stores), bound)
        if part is not None:
            stored.add(part)
    return stored, apart


def _bound(node: UOp, window: int) -> int:
    """How often a group binds an array that it passes through in order: twice if it may cross into
    the next window."""
    home = storage_home(node)
    return min(2, len(windows([(0, home.size)], home.dtype.itemsize, home.size, window)))


def _part(kernel: Kernel, most: int, bound: Callable[[Iterable[UOp]], int]) -> UOp | None:
    """The largest part of a kernel's value that binds at most this many arrays, but at least two: a
    source of the first node, from the leaves on, that binds more."""
    arrays: dict[UOp, frozenset[UOp]] = {}  # that a node's value is computed from

    def read_by(source: UOp) -> frozenset[UOp]:
        own = arrays.get(source)
        return own if own is not None else frozenset((source,)) & kernel.reads.keys()

    for node, _ in reversed(kernel.inlined):
        below = [(source, read_by(source)) for source in node.src]
        if node.op in (Ops.INDEX, Ops.SCATTER):  # an indexed array is in memory, below its views
            array = node.src[0]
            below[0] = array, arrays.get(array) or frozenset((array,))
        found = arrays.get(node, frozenset()).union(*(own for _, own in below))
        arrays[node] = found
        if len(found) > 2 and bound(found) > most:
            largest, own = max(below, key=lambda pair: len(pair[1]))
            return memory_base(largest) if len(own) > 1 else None
    return None


def in_circles(kernels: Sequence[Kernel]) -> set[UOp]:
    """The reductions that must be stored, and share no kernel, so that no two kernels each
    overwrite what the other reads. Empty if there are no such pairs, or if nothing helps."""
    writers = {
        assign.src[0].base: kernel
        for kernel in kernels
        for assign in kernel.stores
        if assign.op is Ops.ASSIGN
    }
    reads = {kernel: {writers.get(node) for node in kernel.reads} for kernel in writers.values()}
    found: set[UOp] = set()
    for kernel, others in reads.items():
        if any(o is not None and o is not kernel and kernel in reads[o] for o in others):
            found |= _reductions(kernel)
    return found


def _reductions(kernel: Kernel) -> set[UOp]:
    """The reductions that the kernel's new values depend on element by element."""
    own = {node for node, _ in kernel.inlined if node.op is Ops.REDUCE_AXIS}
    values = [assign.src[1] for assign in kernel.stores if assign.op is Ops.ASSIGN]
    return own.intersection(reached(*values, through=lambda node: node.op in COMPUTED))
