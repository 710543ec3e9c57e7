"""Which values are stored and which are recomputed where they are used.

The graph is walked once from its roots down. Each node collects *demands*: which kernel needs it,
at which index, under which gate. When a node is reached all its users have been, so everything is
known that the decision needs: how many kernels want it, at how many different indices, and inside
which loops that it does not depend on. Then it is either *inlined* (its sources get the demands)
or *stored* (it gets a kernel of its own, or another store in a kernel whose loops fit, and its
users read memory). What counts is bytes moved and operations redone, not the number of kernels.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tinygrad.base.settings import FUSE_OPS
from tinygrad.schedule.bases import (
    contiguous_base,
    is_concrete,
    is_kernelized,
    is_memory,
    memory_base,
    storage_home,
)
from tinygrad.schedule.circles import in_circles
from tinygrad.schedule.limits import beyond
from tinygrad.schedule.movement import (
    ZERO,
    Index,
    both,
    conditions_of,
    fold_axis,
    loops_of,
    merged_axes,
    offset_of,
    source_index,
    turns_of,
    view_offset,
)
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.redo import (
    CHEAP_LEAVES,
    CHEAP_WEIGHT,
    FREE_LEAVES,
    NO_VALUE,
    WEIGHT_LIMIT,
    kept_anyway,
    laid_out,
    repeats,
    small_work,
    weight_of,
    weights_below,
    widens,
)
from tinygrad.schedule.row_loops import above_reductions, pieces_of, reduced_at, rows_first
from tinygrad.schedule.rows import Reader, are_kept, products_below
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

REDONE_AT_MOST = 1.1  # so often a costly value may be computed by several kernels together
SHARED_WEIGHT = 200  # within one kernel: loops/ keeps a shared row in cache
FEW_ROWS = 16  # a reduction over fewer rows would leave cores idle if its users joined it
SMALL_WORK = 1 << 14  # below so many elements the number of kernels is what counts
SHORT_SUM = 64  # terms of a sum that gains nothing from a tile of its own
STORE_WORTH = 96  # multiply-adds that take as long as writing a value and folding it

STEPS = frozenset((Ops.COPY, Ops.SCAN, Ops.CALL, Ops.KERNEL))
PASS_THROUGH = frozenset((Ops.DETACH,))
ALWAYS_STORED = frozenset((Ops.CONTIGUOUS, Ops.ASSIGN, Ops.SCATTER, Ops.RUNNING, Ops.ITEM)) | STEPS


class Demand(NamedTuple):
    """`kernel` needs the element at `where`, if `gate` holds."""

    kernel: Kernel
    where: Index
    gate: UOp | None


@dataclass(eq=False)
class Kernel:
    """A kernel in the making: its loops, what it stores, what it reads."""

    ranges: tuple[UOp, ...]
    index: Index  # the loops, as the index of what is stored; ZERO for axes of size 1
    shape: tuple[Any, ...]
    stores: list[UOp] = field(default_factory=list)
    reads: dict[UOp, None] = field(default_factory=dict)  # stored nodes, in order of demand
    inlined: list[tuple[UOp, Demand]] = field(default_factory=list)  # users before sources
    weight: int = 0
    first: int = 0  # least position of its stores in the order of the graph
    last: int = 0  # after all that it reads, and before all who read it, except in `first`


Contexts = set[tuple[UOp, ...]]  # the loops around a demand, outermost first


def demands_within(sink: UOp, wishes: Wishes) -> Demands:
    """The demands of a graph whose kernels take no more buffers than its devices bind."""
    stored: set[UOp] = set()
    apart: set[UOp] = set()
    while True:
        found = Demands(sink, wishes, stored, apart)
        more = beyond(found, wishes.buffers) if wishes.buffers else (set(), set())
        circles = in_circles(found)
        if more[0] | circles <= stored and more[1] | circles <= apart:
            return found
        stored |= more[0] | circles
        apart |= more[1] | circles


class Demands:
    """The outcome: kernels, and for each inlined (node, demand) the demands on its sources."""

    def __init__(
        self,
        sink: UOp,
        wishes: Wishes,
        stored: Iterable[UOp] = (),
        apart: Iterable[UOp] = (),
    ) -> None:
        self.order = sink.toposort()
        self.position = {node: i for i, node in enumerate(self.order)}
        self.kernels: list[Kernel] = []
        self.links: dict[tuple[UOp, Demand], Demand] = {}
        self.conditions: dict[tuple[UOp, Demand], UOp | None] = {}
        self.reduce_ranges: dict[tuple[UOp, Demand], tuple[UOp, ...]] = {}
        self.stored_at: dict[UOp, Demand] = {}
        self.same_as: dict[tuple[UOp, Demand], Demand] = {}
        self._folded: set[tuple[UOp, Demand]] = set()  # what a FOLD of stride 1 adds up
        self._pending: dict[UOp, dict[Demand, Contexts]] = {}
        self._readers: dict[UOp, list[Kernel | int]] = {}  # kernels (steps: position) that want
        # the whole of a node in memory
        self._names = map("t{:06}".format, itertools.count())  # in order also as text
        self._counters: dict[tuple[UOp, int], str] = {}  # names of reductions' loops
        self._wishes = wishes
        keeps = wishes.longest_row or wishes.in_registers
        self._products = products_below(self.order) if keeps else {}
        # groups are given work for all their lanes element by element
        self._above = set() if wishes.lanes else above_reductions(self.order, _makes_rows)
        self._weight, self._leaves = weights_below(self.order)
        self._kept = kept_anyway(self.order)
        self._laying_out: set[Demand] = set()  # of factors of products, and what is below them
        self._laid_out = Counter() if wishes.lanes else laid_out(self.order)
        self._stored = {*self._forced(sink), *stored}
        self._apart = set(apart)  # what shares no kernel with what else is stored
        for node in reversed(self.order):
            self._visit(node)

    # ---- what must be stored ---------------------------------------------------------------------

    def _forced(self, sink: UOp) -> Iterable[UOp]:
        yield from map(contiguous_base, sink.src)
        for node in self.order:
            if node.op in ALWAYS_STORED:
                yield node
            if node.op in STEPS:
                yield from (contiguous_base(s) for s in node.src if s.has_shape)
            elif node.op is Ops.INDEX or node.op is Ops.SCATTER:
                # indices known only when running need memory to index into
                yield memory_base(node.src[0])

    # ---- the walk --------------------------------------------------------------------------------

    def _visit(self, node: UOp) -> None:
        demands = self._pending.pop(node, {})
        if node.op in NO_VALUE or not (demands or node in self._stored):
            return
        if is_memory(node):
            self._read(node, demands)
        elif node in self._stored or not self._may_inline(node, demands):
            self._store(node, demands)
        else:
            self._inline(node, demands)

    def _read(self, node: UOp, demands: dict[Demand, Contexts]) -> None:
        for demand in demands:
            demand.kernel.reads[node] = None

    def _store(self, node: UOp, demands: dict[Demand, Contexts]) -> None:
        if node.op in STEPS or node.op is Ops.ITEM or is_kernelized(node):
            self._read(node, demands)
            for source in node.src:
                self._pending.setdefault(source, {})
                if source.has_shape:
                    base = contiguous_base(source)
                    self._readers.setdefault(base, []).append(self.position[node])
            return
        joined = self._kernel_to_join(node, demands)
        kernel = joined.kernel if joined is not None else self._new_kernel(node)
        index = kernel.index if joined is None else _joined_index(node, joined)
        kernel.stores.append(node)
        position = self.position[node]
        kernel.first, kernel.last = min(kernel.first, position), max(kernel.last, position)
        here = self.stored_at[node] = Demand(kernel, index, None)
        if joined is not None:
            self.same_as[node, joined] = here
        self._read(node, {d: c for d, c in demands.items() if d != joined})
        loops = None if joined is None else _stored_in(node, joined)
        self._inline(node, {here: {kernel.ranges if loops is None else loops}})

    def _new_kernel(self, node: UOp) -> Kernel:
        shape = loop_shape(node)
        value = node.src[0] if node.op is Ops.CONTIGUOUS else node
        pieces = merged_axes(node) if self._products.get(value) else None
        ranges, index = self._loops(node, pieces or tuple((n,) for n in shape))
        position = self.position[node]
        if node.op is Ops.RUNNING:  # what is carried from turn to turn wants the innermost loop
            ranges.sort(key=lambda r: r is index[node.arg[1]])
        elif node in self._above and pieces is None and is_concrete(node):
            ranges, index = self._rows_first(node, ranges, index)
        kernel = Kernel(tuple(ranges), index, shape, first=position, last=position)
        self.kernels.append(kernel)
        return kernel

    def _loops(
        self, node: UOp, pieces: Iterable[tuple[Any, ...]]
    ) -> tuple[list[UOp], tuple[UOp, ...]]:
        """Loops of these sizes for each axis, and the index that they make."""
        ranges: list[UOp] = []
        index: list[UOp] = []
        for axis, sizes in enumerate(pieces):
            loops = [
                ZERO if m == 1 else UOp.range(m, next(self._names), self._role(node, axis))
                for m in sizes
            ]
            ranges += [loop for loop in loops if loop is not ZERO]
            index.append(loops[0] if len(loops) == 1 else offset_of(loops, sizes))
        return ranges, tuple(index)

    def _rows_first(self, node: UOp, ranges: list[UOp], index: Index) -> tuple[list[UOp], Index]:
        """Loops whose outermost ones are the rows that the node's reductions have."""
        wanted = reduced_at(node, index, self._above, self._stored)
        apart = pieces_of(wanted, index)
        if any(len(sizes) > 1 for sizes in apart):
            ranges, index = self._loops(node, apart)
            wanted = reduced_at(node, index, self._above, self._stored)
        return rows_first(ranges, wanted, FEW_ROWS), index

    @staticmethod
    def _role(node: UOp, axis: int) -> str:
        """The updates of a SCATTER are applied in order, the turns of a running reduction are
        taken so; everything else may be reordered."""
        ordered = node.op is Ops.SCATTER and axis < len(node.src[2].shape)
        ordered = ordered or (node.op is Ops.RUNNING and axis == node.arg[1])
        return "ORDERED" if ordered else "LOOP"

    def _kernel_to_join(self, node: UOp, demands: dict[Demand, Contexts]) -> Demand | None:
        """A demand of a kernel that computes `node` in its own outermost loops anyway, or for each
        of its rows (a softmax's sums), if storing there makes no circle.

        Sources come before users in the graph's order, so a kernel whose stores all come after
        those of another can't be one of its sources.
        """
        # what a user asks to store ends a kernel
        if node.op in (Ops.SCATTER, Ops.RUNNING, Ops.CONTIGUOUS) or node in self._apart:
            return None
        readers = self._readers.get(node, [])
        users = {d.kernel for d in demands} | {k for k in readers if isinstance(k, Kernel)}
        steps = [position for position in readers if isinstance(position, int)]
        early: Demand | None = None
        for demand, contexts in demands.items():
            kernel = demand.kernel
            loops = _stored_in(node, demand)
            if loops is None or any(context[: len(loops)] != loops for context in contexts):
                continue
            if any(s.op is Ops.SCATTER for s in kernel.stores) or len(kernel.stores) >= 32:
                continue
            if kernel.stores[0].device != node.device:
                continue
            if any(storage_home(s) is storage_home(node) for s in kernel.stores):
                continue  # two versions in one storage: one after the other
            if kernel in readers or any(d.kernel is kernel and d is not demand for d in demands):
                continue  # it would read what it is just writing
            if not self._may_inline(node, {demand: contexts}):
                continue
            after = [*steps, *(k.first for k in users if k is not kernel)]
            if all(position > kernel.last for position in after):
                return demand
            # what it doesn't read yet comes before this node
            waits = not all(map(is_memory, kernel.reads)) or any(map(_overwrites, kernel.stores))
            if not waits and all(position > self.position[node] for position in after):
                early = early or demand
        if early is not None:
            early.kernel.last = self.position[node]
        return early

    # ---- inlining --------------------------------------------------------------------------------

    def _inline(self, node: UOp, demands: dict[Demand, Contexts]) -> None:
        if node in self._laid_out:
            self._laying_out.update(demands)
        for demand, contexts in demands.items():
            demand.kernel.inlined.append((node, demand))
            demand.kernel.weight += weight_of(node)
            if node.op in GroupOp.Movement:
                self._through_movement(node, demand, contexts)
            elif node.op in (Ops.REDUCE_AXIS, Ops.FOLD):
                self._through_reduce(node, demand, contexts)
            elif node.op is Ops.INDEX:
                self._through_gather(node, demand, contexts)
            elif node.op is Ops.SCATTER:
                self._through_scatter(node, demand, contexts)
            elif node.op is Ops.ASSIGN:
                self._ask(node.src[1], demand, contexts)
                self._ask_whole(memory_base(node.src[0]), demand.kernel)
            else:
                for source in node.src:
                    if source.op not in NO_VALUE:
                        self._ask(source, demand, contexts)

    def _ask(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        self._pending.setdefault(node, {}).setdefault(demand, set()).update(contexts)

    def _ask_whole(self, base: UOp, kernel: Kernel) -> None:
        """The kernel reads any element of `base`, by an address known only when it runs."""
        kernel.reads[base] = None
        self._pending.setdefault(base, {})
        self._readers.setdefault(base, []).append(kernel)

    def _through_movement(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        index, conditions = source_index(node, demand.where)
        own = both(conditions)
        gate = (
            demand.gate if own is None else both([*conditions_of(demand.gate), *conditions_of(own)])
        )
        inner = Demand(demand.kernel, index, gate)
        self.conditions[node, demand] = own
        self.links[node, demand] = inner
        if own is None and (node, demand) in self._folded:
            self._folded.add((node.src[0], inner))
        self._ask(node.src[0], inner, contexts)

    def _through_reduce(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        if node.op is Ops.FOLD:
            index, own, ranges = self._fold(node, demand.where)
        else:
            index, own, ranges = self._reduce(node, demand.where)
        gate = both([*conditions_of(demand.gate), *own])
        self.reduce_ranges[node, demand] = ranges
        self.conditions[node, demand] = both(own)
        inner = Demand(demand.kernel, index, gate)
        self.links[node, demand] = inner
        if node.op is Ops.FOLD and all(stride == 1 for _, _, stride, *_ in node.arg[0]):
            self._folded.add((node.src[0], inner))
        free = loops_of(demand.where)
        around = {tuple(r for r in context if r in free) + ranges for context in contexts}
        self._ask(node.src[0], inner, around)

    def _counter(self, node: UOp, axis: int) -> str:
        """The name of a reduction's loop: the same wherever the node is computed, so that equal
        values are seen to be equal."""
        if (node, axis) not in self._counters:
            self._counters[node, axis] = next(self._names)
        return self._counters[node, axis]

    def _reduce(self, node: UOp, index: Index) -> tuple[Index, list[UOp], tuple[UOp, ...]]:
        source = list(index)
        for axis in node.arg[1]:
            n = node.src[0].shape[axis]
            source[axis] = ZERO if n == 1 else UOp.range(n, self._counter(node, axis))
        ranges = tuple(source[a] for a in node.arg[1] if source[a] is not ZERO)
        return tuple(source), [], ranges

    def _fold(self, node: UOp, index: Index) -> tuple[Index, list[UOp], tuple[UOp, ...]]:
        """An element is the sum over the taps that read it; see `fold_axis`."""
        windows = node.arg[0]
        source, taps, own, ranges = list(index), [], [], []
        positions = node.src[0].shape
        for window in windows:
            name = self._counter(node, window[0])
            at, tap, conditions, counter = fold_axis(index[window[0]], window, positions, name)
            source[window[0]] = at
            taps.append(tap)
            own.extend(conditions)
            ranges.extend(counter)
        return (*source, *taps), own, tuple(ranges)

    def _through_gather(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        """The indices are wanted at the leading axes; the indexed value is read from memory."""
        indices = node.src[1:]
        lead = len(indices[0].shape) if indices else 0
        inner = Demand(demand.kernel, demand.where[:lead], demand.gate)
        self.links[node, demand] = inner
        for source in indices:
            self._ask(source, inner, contexts)
        self._ask_whole(memory_base(node.src[0]), demand.kernel)

    def _through_scatter(self, node: UOp, demand: Demand, contexts: Contexts) -> None:
        lead = len(node.src[2].shape)
        self._ask(node.src[1], demand, contexts)
        inner = Demand(demand.kernel, demand.where[:lead], demand.gate)
        self.links[node, demand] = inner
        for source in node.src[2:]:
            self._ask(source, inner, contexts)
        self._ask_whole(memory_base(node.src[0]), demand.kernel)

    # ---- decisions -------------------------------------------------------------------------------

    def _may_inline(self, node: UOp, demands: dict[Demand, Contexts]) -> bool:
        if node.op in FREE_LEAVES or node.op in GroupOp.Movement or node.op in PASS_THROUGH:
            return True
        if widens(node):
            return True
        kernels = {d.kernel for d in demands}
        if any(k.weight + weight_of(node) > FUSE_OPS.value for k in kernels):
            return False
        products = self._products.get(node)
        if products and are_kept(node.room, products.values(), _readers(demands), self._wishes):
            return True
        if node.op in (Ops.REDUCE_AXIS, Ops.FOLD):
            return len(demands) == 1 and self._reduction_fits(node, demands)
        if node.op in (Ops.ASSIGN, Ops.CONTIGUOUS):
            return True
        return self._is_rather_redone(node, demands, len(kernels)) or repeats(node)

    def _is_rather_redone(self, node: UOp, demands: dict[Demand, Contexts], kernels: int) -> bool:
        """Whether computing an elementwise value where it is wanted costs less than storing it."""
        weight = self._weight[node]
        cheap = weight <= CHEAP_WEIGHT and len(self._leaves[node]) <= CHEAP_LEAVES
        if kernels > 1:
            return cheap or self._each_its_part(node, demands) or self._is_made_again(node, demands)
        if len(demands) > 1 and weight * len(demands) > SHARED_WEIGHT:
            return False
        if not any(_redone(d, context) for d, cs in demands.items() for context in cs):
            return True
        # a reduction below would be stored in its place: then rather what follows it
        return cheap and not any(s.op in (Ops.REDUCE_AXIS, Ops.FOLD) for s in self._leaves[node])

    @staticmethod
    def _each_its_part(node: UOp, demands: dict[Demand, Contexts]) -> bool:
        """Whether hardly an element is computed twice, as kernels want different ones."""
        if not is_concrete(node):
            return False
        times = sum(turns_of(context) for contexts in demands.values() for context in contexts)
        return times <= node.size * REDONE_AT_MOST

    def _is_made_again(self, node: UOp, demands: dict[Demand, Contexts]) -> bool:
        """Whether several kernels compute a value, each element once, rather than that it is
        stored: a product does so, too, as it lays out its factors."""
        if node in self._kept or not is_concrete(node):
            return False
        inside = [d for d, cs in demands.items() if any(turns_of(c) > node.size for c in cs)]
        if len(set(inside) - self._laying_out) > self._laid_out[node]:
            return False
        read = small_work(node, self._is_stored_anyway)
        return read is not None and (not inside or all(map(self._is_stored_anyway, read)))

    def _is_stored_anyway(self, node: UOp) -> bool:
        """Whether a value is in memory, whatever becomes of the one that is looked at."""
        return is_memory(node) or (node in self._kept and node in self._pending)

    def _reduction_fits(self, node: UOp, demands: dict[Demand, Contexts]) -> bool:
        """Whether a reduction may live in its user's kernel: computed once an element there.

        Loops that it does not depend on must be inside those it depends on (a softmax's row), and
        there must be rows enough to keep cores busy. Inside another reduction only if it is small,
        or if each sum is asked for once and is short: the sums of a quantised weight's groups.
        """
        ((demand, contexts),) = demands.items()
        free = loops_of(demand.where)
        inner = node.src[0].size if is_concrete(node.src[0]) else WEIGHT_LIMIT
        if max(inner, *(turns_of(context) for context in contexts)) <= SMALL_WORK:
            return True
        if (node, demand) in self._folded:
            return self._rather_folded(node, contexts)
        if any(_redone(demand, context) for context in contexts):
            return False
        if any(r not in demand.kernel.ranges for r in free):
            rows = turns_of(demand.kernel.ranges)
            once = is_concrete(node) and all(turns_of(c) == node.size for c in contexts)
            return once and rows >= FEW_ROWS and inner <= SHORT_SUM * node.size
        if (
            is_concrete(node) and turns_of(free) > node.size
        ):  # several elements ask for the same sum
            return False
        if all(free.issuperset(context) for context in contexts):
            return True
        return turns_of(free) >= FEW_ROWS and not self._is_product(node)

    @staticmethod
    def _is_product(node: UOp) -> bool:
        """Whether a sum's factors are read several times: tiles of its own read them once."""
        value = node.src[0]
        if node.arg[0] != "add" or value.op is not Ops.MUL or not is_concrete(value):
            return False
        return value.size >= 2 * sum(memory_base(factor).size for factor in value.src)

    def reads_again(self, node: UOp) -> bool:
        """Whether a reduction needs what it reads several times, as a product does, and is long."""
        return not is_concrete(node.src[0]) or (
            node.src[0].size > SMALL_WORK and self._is_product(node)
        )

    def _rather_folded(self, node: UOp, contexts: Contexts) -> bool:
        """Whether the sums that a FOLD adds up are better computed in its loops, though there it
        asks for some that are not there: a convolution's input gradient."""
        if node.op is not Ops.REDUCE_AXIS or node.arg[0] != "add" or not is_concrete(node.src[0]):
            return False
        made = node.size
        redone = max(turns_of(context) for context in contexts) - made
        return redone * (node.src[0].size // made) <= STORE_WORTH * made


def loop_shape(node: UOp) -> tuple[Any, ...]:
    """What a kernel that stores `node` loops over: for partial writes, what is written."""
    return node.src[1].shape if node.op in (Ops.ASSIGN, Ops.SCATTER) else node.shape


def _stored_in(node: UOp, demand: Demand) -> tuple[UOp, ...] | None:
    """The kernel's outermost loops that compute all of `node` at this demand; None if they don't,
    or if these are none of several."""
    kernel = demand.kernel
    if demand.gate is not None:
        return None
    if node.op is Ops.ASSIGN:
        if kernel.shape != loop_shape(node):
            return None
        offset, _ = view_offset(node.src[0], memory_base(node.src[0]), kernel.index)
        return kernel.ranges if demand.where == (offset,) else None
    if demand.where == kernel.index:
        return kernel.ranges if kernel.shape == node.shape else None
    loops = tuple(i for i in demand.where if i is not ZERO)
    whole = all(
        size == (1 if i is ZERO else i.vmax + 1)
        for i, size in zip(demand.where, node.shape, strict=True)
    )
    is_prefix = loops == kernel.ranges[: len(loops)] and (loops or not kernel.ranges)
    return loops if whole and is_prefix else None


def _overwrites(node: UOp) -> bool:
    """Whether storing the node has to wait for readers of what was there."""
    return node.op in (Ops.ASSIGN, Ops.SCATTER)


def _joined_index(node: UOp, joined: Demand) -> Index:
    """The loops of the kernel that a node joins, as the index of what is stored."""
    return joined.kernel.index if node.op is Ops.ASSIGN else joined.where


def _makes_rows(node: UOp) -> bool:
    """Whether this REDUCE_AXIS may be computed in the kernel that wants it, row by row."""
    return is_concrete(node.src[0]) and not Demands._is_product(node)


def _readers(demands: dict[Demand, Contexts]) -> list[Reader]:
    """The demands by kernel; none if some want the value only where a gate is open."""
    found: dict[Kernel, Reader] = {}
    for demand, contexts in demands.items():
        if demand.gate is not None:
            return []
        reader = found.setdefault(demand.kernel, Reader(demand.kernel.ranges, [], []))
        reader.indices.append(demand.where)
        reader.contexts.extend(contexts)
    return list(found.values())


def _redone(demand: Demand, context: tuple[UOp, ...]) -> bool:
    """Whether a loop that the element does not depend on is outside one that it depends on."""
    free = loops_of(demand.where)
    outside = False
    for loop in context:
        if loop in free and outside:
            return True
        outside = outside or loop not in free
    return False
