"""Which values are stored and which are recomputed where they are used.

The graph is walked once from its roots down. Each node collects *demands*: which kernel needs it,
at which index, under which gate. When a node is reached all its users have been, so everything is
known that the decision needs (`schedule/inlining`): how many kernels want it, at how many different
indices, and inside which loops that it does not depend on. Then it is either *inlined* (its sources
get the demands) or *stored* (it gets a kernel of its own, or another store in a kernel whose loops
fit, and its users read memory).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tinygrad.schedule.bases import (
    contiguous_base,
    is_concrete,
    is_kernelized,
    is_memory,
    memory_base,
    overwrites,
    storage_home,
)
from tinygrad.schedule.common_sums import beside
from tinygrad.schedule.crossings import between, joinable
from tinygrad.schedule.demand import (
    IN_ORDER,
    Contexts,
    Demand,
    Demanded,
    Kernel,
    Link,
    joined_index,
    loop_shape,
    ordered_axes,
    stored_in,
)
from tinygrad.schedule.inlining import Inlining
from tinygrad.schedule.limits import beyond, in_circles
from tinygrad.schedule.movement import (
    ZERO,
    Index,
    both,
    fold_index,
    loops_of,
    merged_axes,
    offset_of,
    part_of_taps,
    source_index,
    turns_of,
)
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.redo import NO_VALUE, made_together, weight_of
from tinygrad.schedule.row_loops import above_reductions, reduced_at, rows_first, split_sizes
from tinygrad.uop import GroupOp, Ops, UOp

STEPS = frozenset((Ops.COPY, Ops.SCAN, Ops.CALL, Ops.KERNEL))
ALWAYS_STORED = STEPS | IN_ORDER | {Ops.CONTIGUOUS, Ops.ASSIGN, Ops.ITEM}
MOST_STORES = 32  # of a kernel


def demands_within(sink: UOp, wishes: Wishes) -> Demands:
    """The demands of a graph, such that no kernel has more buffers than its devices can bind."""
    stored: set[UOp] = set()
    apart: set[UOp] = set()
    company: dict[UOp, UOp] = {}
    redone: set[UOp] = set()
    while True:
        found = Demands(sink, wishes, stored, apart, company.items(), redone)
        circles = in_circles(found.kernels)
        more = beyond(found.kernels, wishes) if wishes.buffers else (set(), set())
        settled = found.company.keys() <= company.keys()
        alone = more[1] | circles | between(found.crossings)
        if settled and more[0] | circles <= stored and alone <= apart:
            values = found.read_once.values()
            again = {n for v in values for n in made_together(v, found.stored_at, wishes.cache)}
            if again <= redone:
                return found
            redone |= again
        company = {**found.company, **company}
        stored |= more[0] | circles
        apart |= alone


class Demands:
    """The result: kernels, and for each inlined (node, demand) the demands on its sources."""

    def __init__(
        self,
        sink: UOp,
        wishes: Wishes,
        stored: Iterable[UOp],
        apart: Iterable[UOp],
        company: Iterable[tuple[UOp, UOp]],
        redone: Collection[UOp],
    ) -> None:
        self.order = sink.toposort()
        self.position = {node: i for i, node in enumerate(self.order)}
        self.kernels: list[Kernel] = []
        self.links: dict[tuple[UOp, Demand], Link] = {}
        self.stored_at: dict[UOp, Demand] = {}
        self.same_as: dict[tuple[UOp, Demand], Demand] = {}
        # by kernel the values that it alone reads, each element once, but for who computes them
        self.read_once: dict[Kernel, list[UOp]] = {}
        self._pending: dict[UOp, Demanded] = {}
        # kernels (of steps: their positions) that need the whole of a node in memory
        self._readers: dict[UOp, list[Kernel | int]] = {}
        # names of loops, whose text has the order in which they were made
        self._names = map("t{:06}".format, itertools.count())
        self.counters: dict[tuple[UOp, int], str] = {}  # names of reductions' loops
        self._company = dict(company)
        self._beside = {} if wishes.lanes else beside(self.order)
        self._inlining = Inlining(self.order, wishes, self._pending, self._company, redone)
        self._has_groups = bool(wishes.lanes)
        # groups are given work for all their lanes element by element
        self._above = set() if wishes.lanes else above_reductions(self.order)
        self._stored = {*self._forced(sink), *stored}
        self._apart = set(apart)  # stored nodes that share no kernel with others
        self.company = self._inlining.company
        for node in reversed(self.order):
            self._visit(node)
        self.crossings = joinable(self._inlining.crossings, self.links)

    # ---- what must be stored ---------------------------------------------------------------------

    def _forced(self, sink: UOp) -> Iterable[UOp]:
        yield from map(contiguous_base, sink.src)
        for node in self.order:
            if node.op in ALWAYS_STORED:
                yield node
            if node.op in STEPS:
                yield from (contiguous_base(s) for s in node.src if s.has_shape)
            elif node.op is Ops.INDEX or node.op is Ops.SCATTER:
                # indices known only at run time need memory to index into
                yield memory_base(node.src[0])

    # ---- the walk --------------------------------------------------------------------------------

    def _visit(self, node: UOp) -> None:
        demands = self._pending.pop(node, {})
        if node.op in NO_VALUE or not (demands or node in self._stored):
            return
        if is_memory(node):
            self._read(node, demands)
        elif node in self._stored or not self._inlining.allows(node, demands):
            self._store(node, demands)
        else:
            self._inlining.accompany(node, demands)
            self._inline(node, demands)

    def _read(self, node: UOp, demands: Demanded) -> None:
        for demand in demands:
            demand.kernel.reads[node] = None

    def _store(self, node: UOp, demands: Demanded) -> None:
        if node.op in STEPS or node.op is Ops.ITEM or is_kernelized(node):
            self._read(node, demands)
            for source in node.src:
                self._pending.setdefault(source, {})
                if source.has_shape:
                    base = contiguous_base(source)
                    self._readers.setdefault(base, []).append(self.position[node])
            return
        joined = self._kernel_to_join(node, demands)
        kernel = self._kernel_beside(node, demands) if joined is None else joined.kernel
        kernel = kernel or self._new_kernel(node)
        index = kernel.index if joined is None else joined_index(node, joined)
        kernel.stores.append(node)
        position = self.position[node]
        kernel.first, kernel.last = min(kernel.first, position), max(kernel.last, position)
        here = self.stored_at[node] = Demand(kernel, index, None)
        if joined is not None:
            self.same_as[node, joined] = here
        others = {d: c for d, c in demands.items() if d != joined}
        self._read(node, others)
        if node.op in GroupOp.Elementwise and len(others) == 1 and node not in self._stored:
            ((demand, contexts),) = others.items()
            if is_concrete(node) and sum(map(turns_of, contexts)) <= node.size:
                self.read_once.setdefault(demand.kernel, []).append(node)
        loops = None if joined is None else stored_in(node, joined)
        self._inline(node, {here: {kernel.ranges if loops is None else loops}})

    def _new_kernel(self, node: UOp) -> Kernel:
        shape = loop_shape(node)
        value = node.src[0] if node.op is Ops.CONTIGUOUS else node
        pieces = merged_axes(node) if self._inlining.products.get(value) else None
        ranges, index = self._loops(node, pieces or tuple((n,) for n in shape))
        position = self.position[node]
        if node.op is Ops.RUNNING:  # the carried value needs the innermost loop
            ranges.sort(key=lambda r: r is index[node.arg[1]])
        elif node in self._above and pieces is None and is_concrete(node):
            ranges, index = self._rows_first(node, ranges, index)
        kernel = Kernel(tuple(ranges), index, shape, first=position, last=position)
        self.kernels.append(kernel)
        return kernel

    def _loops(
        self, node: UOp, pieces: Iterable[tuple[Any, ...]]
    ) -> tuple[list[UOp], tuple[UOp, ...]]:
        """Loops of these sizes for each axis, and the index that they form."""
        ranges: list[UOp] = []
        index: list[UOp] = []
        ordered = ordered_axes(node)
        for axis, sizes in enumerate(pieces):
            loops, role = [], "ORDERED" if axis in ordered else "LOOP"
            for size in sizes:
                if size == 1:
                    loops.append(ZERO)
                else:
                    loops.append(UOp.range(size, next(self._names), role))
                    ranges.append(loops[-1])
            index.append(loops[0] if len(loops) == 1 else offset_of(loops, sizes))
        return ranges, tuple(index)

    def _rows_first(self, node: UOp, ranges: list[UOp], index: Index) -> tuple[list[UOp], Index]:
        """The loops with the rows of the node's reductions outermost, and the index."""
        wanted = reduced_at(node, index, self._above, self._stored)
        apart = split_sizes(wanted, index)
        if any(len(sizes) > 1 for sizes in apart):
            ranges, index = self._loops(node, apart)
            wanted = reduced_at(node, index, self._above, self._stored)
        return rows_first(ranges, wanted), index

    def _kernel_to_join(self, node: UOp, demands: Demanded) -> Demand | None:
        """A demand of a kernel that computes `node` in its own outermost loops anyway, or for each
        of its rows (a softmax's sums), if storing it there makes no cycle.

        Sources come before users in the graph's order, so a kernel whose stores all come after
        those of another can't be one of its sources.
        """
        # a value that a user asks to store ends a kernel
        if node.op is Ops.CONTIGUOUS or node in self._apart:
            return None
        users = self._users(node, demands)
        early: Demand | None = None
        for demand, contexts in demands.items():
            kernel = demand.kernel
            loops = stored_in(node, demand)
            if loops is None or any(context[: len(loops)] != loops for context in contexts):
                continue
            others = [user for user in users if user is not kernel]
            if len(others) + 1 < len(users) or not _takes_store(kernel, node):
                continue  # it would read what it is just writing, or has no room
            if not self._inlining.allows(node, {demand: contexts}):
                continue
            if _are_after(others, kernel.last):
                return demand
            if self._moves_before(kernel, node, others):
                early = early or demand
        if early is not None:
            early.kernel.last = self.position[node]
        return early

    def _kernel_beside(self, node: UOp, demands: Demanded) -> Kernel | None:
        """The kernel that keeps the same rows as this node's, or sums the same terms, if storing
        the node there makes no cycle."""
        host = self._company.get(node, self._beside.get(node, node))
        other = self.stored_at.get(host)
        if other is None or node in self._apart or other.kernel.shape != node.shape:
            return None
        kernel, users = other.kernel, self._users(node, demands)
        is_free = kernel not in users and IN_ORDER.isdisjoint(s.op for s in kernel.stores)
        if not (is_free and _takes_store(kernel, node)):
            return None
        if not _are_after(users, kernel.last):
            if not self._moves_before(kernel, node, users):
                return None
            kernel.last = self.position[node]
        return kernel

    def _users(self, node: UOp, demands: Demanded) -> list[Kernel | int]:
        """The kernels that need a node, each as often as it does, and the positions of steps."""
        return [*self._readers.get(node, ()), *(demand.kernel for demand in demands)]

    def _moves_before(self, kernel: Kernel, node: UOp, users: Iterable[Kernel | int]) -> bool:
        """Whether a kernel may come as early as this node, and so before users that come after
        that: what it doesn't read yet comes before the node."""
        waits = not all(map(is_memory, kernel.reads)) or any(map(overwrites, kernel.stores))
        return not waits and _are_after(users, self.position[node])

    # ---- inlining --------------------------------------------------------------------------------

    def _inline(self, node: UOp, demands: Demanded) -> None:
        if node in self._inlining.laid_out:
            self._inlining.laying_out.update(demands)
        for demand, contexts in demands.items():
            demand.kernel.inlined.append((node, demand))
            demand.kernel.weight += weight_of(node)
            through = THROUGH.get(node.op, Demands._through_elementwise)
            through(self, node, demand, contexts)

    def _ask(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        self._pending.setdefault(node, {}).setdefault(demand, set()).update(contexts)

    def _ask_whole(self, base: UOp, kernel: Kernel) -> None:
        """Makes the kernel read any element of `base`, at an address known only when it runs."""
        kernel.reads[base] = None
        self._pending.setdefault(base, {})
        self._readers.setdefault(base, []).append(kernel)

    def _link(
        self,
        node: UOp,
        demand: Demand,
        index: Index,
        conditions: Sequence[UOp] = (),
        loops: tuple[UOp, ...] = (),
    ) -> Demand:
        """Records what an inlined node demands of a source, which then applies to what that
        reads."""
        gate = both(demand.gate, *conditions) if conditions else demand.gate
        inner = Demand(demand.kernel, index, gate)
        self.links[node, demand] = Link(inner, both(*conditions), loops)
        return inner

    def _through_elementwise(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        for source in node.src:
            if source.op not in NO_VALUE:
                self._ask(source, demand, contexts)

    def _through_movement(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        index, conditions = source_index(node, demand.where)
        inner = self._link(node, demand, index, conditions)
        if not conditions and (node, demand) in self._inlining.folded:
            self._inlining.folded[node.src[0], inner] = self._inlining.folded[node, demand]
        self._ask(node.src[0], inner, contexts)

    def _through_reduce(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        source, loops = list(demand.where), list[UOp]()
        for axis in node.arg[1]:
            size = node.src[0].shape[axis]
            source[axis] = ZERO
            if size != 1:
                source[axis] = UOp.range(size, self._counter(node, axis))
                loops.append(source[axis])
        inner = self._link(node, demand, tuple(source), loops=tuple(loops))
        self._ask_in_loops(inner, node, demand, contexts)

    def _through_fold(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        """An element of a FOLD is the sum over the taps that read it; see `fold_axis`."""
        found = fold_index(node, demand.where, lambda axis: self._counter(node, axis))
        inner = self._link(node, demand, *found)
        part = part_of_taps(node.arg[0], node.room, phases=not self._has_groups)
        if part is not None:
            self._inlining.folded[node.src[0], inner] = part
        self._ask_in_loops(inner, node, demand, contexts)

    def _ask_in_loops(self, inner: Demand, node: UOp, demand: Demand, contexts: Contexts) -> None:
        """Asks for the terms of a sum, in its loops inside those that the sum depends on."""
        free, loops = loops_of(demand.where), self.links[node, demand].loops
        around = {tuple(r for r in context if r in free) + loops for context in contexts}
        self._ask(node.src[0], inner, around)

    def _counter(self, node: UOp, axis: int) -> str:
        """The name of a reduction's loop. It is the same wherever the node is computed, so that
        equal values are recognised as equal."""
        if (node, axis) not in self.counters:
            self.counters[node, axis] = next(self._names)
        return self.counters[node, axis]

    def _through_gather(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        """The indices are needed at the leading axes; the indexed value is read from memory."""
        indices = node.src[2:] if node.op is Ops.SCATTER else node.src[1:]
        lead = len(indices[0].shape) if indices else 0
        inner = self._link(node, demand, demand.where[:lead])
        for source in indices:
            self._ask(source, inner, contexts)
        self._ask_whole(memory_base(node.src[0]), demand.kernel)

    def _through_scatter(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        self._ask(node.src[1], demand, contexts)
        self._through_gather(node, demand, contexts)

    def _through_assign(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        self._ask(node.src[1], demand, contexts)
        self._ask_whole(memory_base(node.src[0]), demand.kernel)


def _are_after(users: Iterable[Kernel | int], position: int) -> bool:
    """Whether all of these kernels and steps come after a position in the graph's order."""
    return all(position < (user if isinstance(user, int) else user.first) for user in users)


def _takes_store(kernel: Kernel, node: UOp) -> bool:
    """Whether a node may be one more store of a kernel, wherever that computes it."""
    is_full = len(kernel.stores) >= MOST_STORES
    if is_full or node.op in IN_ORDER or kernel.stores[0].device != node.device:
        return False
    # two versions in one storage must be written one after the other
    home = storage_home(node)
    return not any(s.op is Ops.SCATTER or storage_home(s) is home for s in kernel.stores)


THROUGH: dict[Ops, Callable[[Demands, UOp, Demand, Contexts], None]] = {
    **dict.fromkeys(GroupOp.Movement, Demands._through_movement),
    Ops.REDUCE_AXIS: Demands._through_reduce,
    Ops.FOLD: Demands._through_fold,
    Ops.INDEX: Demands._through_gather,
    Ops.SCATTER: Demands._through_scatter,
    Ops.ASSIGN: Demands._through_assign,
}
"""What an inlined node asks of its sources; any other op asks for the same element of each."""
