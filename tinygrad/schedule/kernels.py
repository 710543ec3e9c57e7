"""Kernels cut out of the walk's outcome, put in order, and given storage.

A *version* is a node whose value is in memory; several versions may live in one storage, one after
the other (ASSIGN, SCATTER). Readers of a version run before the next one is written; where that
would be a circle, the old version is copied away first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from tinygrad.base.helpers import post_order, prod
from tinygrad.schedule.bases import (
    contiguous_base,
    is_kernelized,
    is_memory,
    memory_base,
    overwrites,
    previous_version,
    storage_home,
    stored_base,
)
from tinygrad.schedule.bundles import bundled, is_short
from tinygrad.schedule.demand import Kernel
from tinygrad.schedule.memory import arranged
from tinygrad.schedule.movement import offset_of
from tinygrad.schedule.order import Ready, Unit, put_off
from tinygrad.schedule.plan import Plan, Step, Storage, Wishes, numbered, variable_number
from tinygrad.schedule.ranges import Expressions
from tinygrad.schedule.rewrites import rewrite
from tinygrad.schedule.shard import is_sharded, shard
from tinygrad.schedule.shard_rules import RULES
from tinygrad.schedule.wide import demands_in_windows
from tinygrad.simplify.affine import with_sources
from tinygrad.simplify.rules import simplify
from tinygrad.uop import Ops, UOp

USUAL = Wishes()


def plan(sink: UOp, wishes: Wishes = USUAL) -> Plan:
    """The plan of a graph at stage "tensor" whose leaves are PARAMs or BUFFERs, according to its
    devices' wishes. No kernel needs a DETACH: the engine has left them out."""
    if not is_sharded(sink):
        return _Planner(sink, wishes).finish()
    sharded = shard(sink, RULES)
    return sharded.regrouped(_Planner(sharded.sink, wishes).finish())


class _Planner:
    def __init__(self, sink: UOp, wishes: Wishes) -> None:
        # what became a view of something else is still stored in its own order
        made = rewrite(UOp.sink(*map(stored_base, sink.src)), wishes)
        self.buffers, self.largest = wishes.buffers, wishes.largest
        self.sink, self.demands = demands_in_windows(made, wishes)
        self.storages: list[Storage] = []
        self.number: dict[UOp, int] = {}  # version → storage
        self.results = {storage_home(contiguous_base(root)) for root in self.sink.src}
        self.steps: list[Step] = []
        self.finished: dict[UOp, tuple[UOp, tuple[int, ...], tuple[int, ...]]] = {}
        for node in self.demands.order:
            if is_memory(node):
                self._add(node, "param")
        self.versions: list[UOp] = []
        self.version_number: dict[UOp, int] = {}

    # ---- storages --------------------------------------------------------------------------------

    def _add(self, node: UOp, kind: str) -> int:
        assert node.device is not None, f"{node.op!r} has no device"
        size = node.size
        place = node.arg[0] if node.op is Ops.PARAM else 0
        self.number[node] = len(self.storages)
        self.storages.append(Storage(kind, node.device, node.dtype, size, place))
        return self.number[node]

    def _storage(self, node: UOp) -> int:
        """The storage of a version; it is created when first needed."""
        home = storage_home(node)
        if home not in self.number:
            self._add(home, "out" if home in self.results else "temp")
        return self.number[home]

    def _version(self, node: UOp) -> UOp:
        """The node that represents a version inside kernels until slots are assigned."""
        if node not in self.version_number:
            self.version_number[node] = len(self.versions)
            self.versions.append(node)
        kept, home = self.storages[self._storage(node)], storage_home(node)
        sure = home.arg[2:] if home.op is Ops.PARAM else ()
        return UOp(Ops.PARAM, kept.dtype, arg=(self.version_number[node], kept.size, *sure))

    # ---- units and their order -------------------------------------------------------------------

    def _units(self) -> list[Unit]:
        units = []
        for kernel in self.demands.kernels:
            if 0 not in kernel.shape:
                own = [n for n in kernel.stores if overwrites(n)]
                reads = [*kernel.reads, *(previous_version(n) for n in own)]
                unit = Unit(kernel.last, reads, kernel.stores, kernel)
                if is_short(kernel):
                    unit.company = kernel.stores[0].device
                units.append(unit)
        return [*self._joined(units), *self._steps()]

    def _steps(self) -> Iterable[Unit]:
        """The nodes that are steps of their own: copies, calls, loops, and finished kernels."""
        position = self.demands.position
        items: dict[UOp, list[UOp]] = {}
        for node in self.demands.order:
            if node.op is Ops.ITEM:
                items.setdefault(node.src[0], []).append(node)
        for node in self.demands.order:
            if node.op in (Ops.COPY, Ops.CALL, Ops.SCAN):
                sources = [contiguous_base(s) for s in node.src if s.has_shape]
                writes = [node] if node.op is Ops.COPY else items[node]
                yield Unit(position[node], sources, writes, node=node)
            elif is_kernelized(node):
                inputs = [memory_base(s) for s in node.src[1].src]
                yield Unit(position[node], inputs, [node], node=node)

    def _joined(self, units: list[Unit]) -> list[Unit]:
        """Joins kernels that use the same matrix by rows and by columns (`crossings`), if neither
        depends on the other."""
        of = {unit.kernel: unit for unit in units}
        producer = {node: unit for unit in units for node in unit.writes}
        for crossing in self.demands.crossings:
            unit, other = of[crossing.kernel], of[crossing.other]
            if not _needs(unit, other, producer) and not _needs(other, unit, producer):
                unit.crossing = crossing
                unit.position = max(unit.position, other.position)
                unit.reads = list(dict.fromkeys((*unit.reads, *other.reads)))
                unit.writes = [*unit.writes, *other.writes]
                producer |= dict.fromkeys(other.writes, unit)
                units.remove(other)
        return units

    def _connect(self, units: Iterable[Unit]) -> None:
        producer = {node: unit for unit in units for node in unit.writes}
        readers: dict[UOp, list[Unit]] = {}
        for unit in units:
            for node in unit.reads:
                readers.setdefault(node, []).append(unit)
                if (made := producer.get(node)) is not None and made is not unit:
                    made.users[unit] = True
        for node, writer in producer.items():
            if overwrites(node):
                for reader in readers.get(previous_version(node), ()):
                    if reader is not writer:
                        reader.users.setdefault(writer, False)
        for unit in units:
            for user in unit.users:
                user.waits += 1

    def _ordered(self) -> Iterable[list[Unit]]:
        """Sources before users, old readers before writers; the units in a list run as one. See
        `Ready` for the other criteria."""
        units = self._units()
        self._connect(units)
        put_off(units)
        given = sum(storage.nbytes for storage in self.storages)
        ready = Ready(units, self._is_temporary, given)
        left = set(units)
        while left:
            while not ready:
                ready.add(self._save_old_version(left))
            together = ready.take()
            left.difference_update(together)
            yield together
            for unit in together:
                for user in unit.users:
                    user.waits -= 1
                    ready.add(user)
                ready.done(unit)

    def _is_temporary(self, home: UOp) -> bool:
        return home not in self.results and not is_memory(home)

    def _save_old_version(self, left: set[Unit]) -> Unit:
        """Breaks a cycle: readers of an old version wait for the writer that waits to overwrite it.
        The readers get a copy, made now. A writer that waits for nothing else is preferred."""
        unmade = {node for unit in left for node in unit.writes}
        found: list[tuple[int, int, Unit, list[Unit]]] = []
        for unit in left:
            blockers = [u for u in left if unit in u.users]
            readers = [u for u in blockers if not u.users[unit]]
            old = [previous_version(n) for n in unit.writes if overwrites(n)]
            if readers and unmade.isdisjoint(old):
                found.append((len(blockers) - len(readers), unit.position, unit, readers))
        assert found, "kernels wait for each other in a circle"
        _, _, unit, readers = min(found, key=lambda f: f[:2])
        for node in unit.writes:
            if overwrites(node):
                self._keep(previous_version(node), readers)
        for reader in readers:
            del reader.users[unit]
            unit.waits -= 1
        return unit

    def _keep(self, old: UOp, readers: Sequence[Unit]) -> None:
        saved = UOp(Ops.CONTIGUOUS, old.dtype, (old,), tag=("old", len(self.steps)))
        storages = (self._storage(saved), self._storage(old))
        self.steps.append(Step(Ops.COPY, self.storages[storages[0]].device, storages))
        for reader in readers:
            if old in reader.reads:
                reader.moved[old] = saved

    # ---- steps -----------------------------------------------------------------------------------

    def finish(self) -> Plan:
        for units in self._ordered():
            rows = [self._kernel_steps(u, u.kernel) for u in units if u.kernel is not None]
            for together in itertools.zip_longest(*rows):
                steps = [step for step in together if step is not None]
                self.steps += bundled(steps, self.buffers)
            for unit in units:
                if unit.kernel is None:
                    self._node_step(unit)
        results = tuple(self._storage(contiguous_base(root)) for root in self.sink.src)
        made = Plan(tuple(self.storages), tuple(self.steps), results, {}, largest=self.largest)
        for kernel in self.demands.kernels:
            kernel.inlined.clear()  # demands know it: they would wait for the garbage collector
        return arranged(made)

    def _node_step(self, unit: Unit) -> None:
        node = unit.node
        assert node is not None
        if node.op is Ops.COPY and 0 in node.shape:
            return
        numbers = [self._storage(n) for n in unit.writes]
        if is_kernelized(node):
            kernel = node.src[1]
            storages = tuple(self._storage(memory_base(s)) for s in kernel.src)
            op = Ops.COPY if kernel.arg.ast.op is Ops.COPY else Ops.KERNEL
            device = self.storages[storages[0]].device
            step = Step(op, device, storages, kernel.arg.writes, kernel.arg.ast)
        else:
            numbers += [self._storage(unit.moved.get(n, n)) for n in unit.reads]
            device = self.storages[numbers[0]].device
            items = tuple(n.arg[0] for n in unit.writes if n.op is Ops.ITEM)
            step = Step(node.op, device, tuple(numbers), len(items) or 1, arg=(node, items))
        self.steps.append(step)

    def _kernel_steps(self, unit: Unit, kernel: Kernel) -> Iterable[Step]:
        stores = Expressions(self.demands, kernel, self._version).stores()
        if unit.crossing is not None:
            others = Expressions(self.demands, unit.crossing.other, self._version).stores()
            stores += [store.substitute(unit.crossing.loops) for store in others]
        if unit.moved:
            moves = {self._version(old): self._version(new) for old, new in unit.moved.items()}
            stores = [s.src[0].store(s.src[1].substitute(moves), *s.src[2:]) for s in stores]
        in_place = any(n.op is Ops.ASSIGN for n in kernel.stores)
        for part in self._without_hazards(stores) if in_place else (stores,):
            yield self._kernel_step(part, kernel.stores[0].origin)

    def _without_hazards(self, stores: list[UOp]) -> Iterable[list[UOp]]:
        """One kernel; or two if it would read what it has already overwritten: the values are then
        stored to temporaries first and copied from there."""
        written = {self._slot_storage(s.src[0].src[0]): s.src[0].src[1] for s in stores}
        hazard = False
        for node in UOp.sink(*(s.src[1] for s in stores)).toposort():
            if node.op is Ops.INDEX and (number := self._slot_storage(node.src[0])) in written:
                hazard = hazard or node.src[1] is not written[number]
        if not hazard:
            yield stores
            return
        first: list[UOp] = []
        second: list[UOp] = []
        for store in stores:
            target, value, *ranges = store.src
            sizes = [r.vmax + 1 for r in ranges]
            device = self.storages[self._slot_storage(target.src[0])].device
            zeros = UOp.const(value.dtype, 0, device).broadcast_to((prod(sizes),))
            temporary = UOp(Ops.CONTIGUOUS, zeros.dtype, (zeros,), tag=len(self.versions))
            kept = self._version(temporary).index(offset_of(ranges, sizes))
            first.append(kept.store(value, *ranges))
            second.append(target.store(kept, *ranges))
        yield first
        yield second

    def _slot_storage(self, param: UOp) -> int:
        return self._storage(self.versions[param.arg[0]])

    def _kernel_step(self, stores: list[UOp], origin: str | None) -> Step:
        """Slots are numbered by storage, results first; ranges and variables are named in order, so
        that equal kernels are identical."""
        order = UOp.sink(*stores).toposort()
        params, variables, ranges = (
            [node for node in order if node.op is op]
            for op in (Ops.PARAM, Ops.DEFINE_VAR, Ops.RANGE)
        )
        written = dict.fromkeys(self._slot_storage(store.src[0].src[0]) for store in stores)
        storages = tuple({**written, **dict.fromkeys(map(self._slot_storage, params))})
        changes = {n: numbered(n, storages.index(self._slot_storage(n))) for n in params}
        changes |= {node: numbered(node, i) for i, node in enumerate(variables)}
        outer = stores[0].src[2:]
        for i, loop in enumerate(dict.fromkeys((*outer, *ranges))):
            name = f"i{i}" if i < len(outer) else f"k{i - len(outer)}"
            ends = tuple(end.substitute(changes) for end in loop.src) if variables else loop.src
            changes[loop] = UOp(Ops.RANGE, loop.dtype, ends, (name, loop.arg[1]))
        ast, slots, numbers = self._finished(_renamed(order, changes))
        device = self.storages[storages[0]].device
        used = tuple(storages[slot] for slot in slots)
        names = tuple(variables[number].arg[0] for number in numbers)
        return Step(Ops.KERNEL, device, used, len(written), ast, None, origin, names)

    def _finished(self, kernel: UOp) -> tuple[UOp, tuple[int, ...], tuple[int, ...]]:
        """The simplified kernel with its remaining slots and variables renumbered, and the old
        numbers of both. Equal kernels are simplified once."""
        if kernel not in self.finished:
            ast = simplify(kernel)
            order = ast.toposort()
            params = {n.arg[0]: n for n in order if n.op is Ops.PARAM}
            variables = {variable_number(n.arg[0]): n for n in order if n.op is Ops.DEFINE_VAR}
            slots, numbers = tuple(sorted(params)), tuple(sorted(variables))
            changes = {params[old]: numbered(params[old], new) for new, old in enumerate(slots)}
            kept = (variables[old] for old in numbers)
            changes |= {node: numbered(node, new) for new, node in enumerate(kept)}
            self.finished[kernel] = (ast.substitute(changes), slots, numbers)
        return self.finished[kernel]


def _needs(unit: Unit, other: Unit, producer: Mapping[UOp, Unit]) -> bool:
    """Whether a unit waits for another one, directly or through others."""

    def sources(unit: Unit) -> list[Unit]:
        return [producer[node] for node in unit.reads if node in producer]

    return other in post_order([unit], sources)


def _renamed(order: list[UOp], changes: dict[UOp, UOp]) -> UOp:
    """The last node of `order`, with leaves replaced, and index expressions in the canonical order
    of the new names."""
    done = dict(changes)
    for node in order:
        if node not in done:
            done[node] = with_sources(node, tuple([done[s] for s in node.src]))
    return done[order[-1]]
