"""Plans that run: kernels loaded, launches bound to positions in tables, one native call for each
stretch of kernels on one device. Running again costs filling the tables.

It decides in which order steps run, and which of them together: an `Item` is a step, a `Stretch`
consecutive kernels of one device, a `Chain` all of one or several plans. What a kernel computes,
and what a buffer means to a tensor, it doesn't know. Read `RunnablePlan` first (a plan, its
kernels, its buffers), then `Chain`, then `Stretch`.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tinygrad.backends import keeps
from tinygrad.backends.interface import Launch, OneCall, TensorView
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DeviceError
from tinygrad.base.helpers import once
from tinygrad.base.settings import DEBUG
from tinygrad.engine.devices import Device, OpenDevice, Telling
from tinygrad.engine.faults import FaultWords, Flow, Taken, note, spoil
from tinygrad.engine.host import are_alike, run_host_step
from tinygrad.engine.kernels import LoadedKernel, PhaseRecord, kernel_key, load_kernels
from tinygrad.engine.lanes import ENOUGH_WORK, Touch, run_lanes, segments_of
from tinygrad.engine.profile import GlobalCounters, report_step
from tinygrad.engine.sharing import straightened, write_back
from tinygrad.engine.storage import NOTHING, Buffer
from tinygrad.schedule.memory import with_own_storages
from tinygrad.schedule.plan import Plan, Step, Storage, shortest, variable_number
from tinygrad.uop.op import GroupOp, Ops

step_runners: dict[Ops, Callable[[Step, Sequence[Buffer], Taken], None]] = {
    Ops.COPY: run_host_step,
    Ops.CALL: run_host_step,
}
"""The functions that run steps which are not kernels."""


Over = list[Any]
"""How far a run of a chain has come: an element for each part that is over, then DONE, and one more
once it is noted (`faults`). OPEN is there while nobody could say whether a part is over, if Ctrl-C
came."""

OPEN, DONE = "open", "done"


class Item(NamedTuple):
    """A step of a plan; for a kernel, also the loaded kernel and its fault words. Its position in a
    chain: its storages, and where the values of its plan begin."""

    step: Step
    kernel: LoadedKernel | None = None
    faults: FaultWords | None = None
    storages: tuple[int, ...] = ()
    first_value: int = 0

    # ---- of one that is no kernel ------------------------------------------------------------

    def settle(self, buffers: Sequence[Buffer]) -> None:
        """Waits for devices that it would run beside."""
        used = [buffers[number] for number in self.storages]
        if self.step.op is Ops.COPY and are_alike(*used):
            for buffer in used:
                Device[buffer.device].synchronize()

    def run(
        self, buffers: Sequence[Buffer], values: Sequence[int], taken: Taken, over: Over
    ) -> None:
        """Runs it now. As it overwrites nothing that it reads, it may run again."""
        step_runners[self.step.op](self.step, [buffers[n] for n in self.storages], taken)
        over.append(self)


class Stretch:
    """Consecutive kernels on one device. `positions` are the storages that they use, in the order
    of the segment's buffer table; after these come the kernels' own buffers (`extra`)."""

    def __init__(self, device: OpenDevice, items: Sequence[Item]) -> None:
        self.device, self.items = device, items
        used = itertools.chain.from_iterable(item.storages for item in items)
        self.positions = {number: place for place, number in enumerate(dict.fromkeys(used))}
        self.extra: list[FaultWords] = []
        self.operations = self.nbytes = 0
        self.work = 0  # rough nanoseconds on one core
        launches = [launch for item in items for launch in self._launches(item)]
        kernels = [item.kernel.record.name for item in items if item.kernel is not None]
        more = f" and {len(kernels) - 3} more" if len(kernels) > 3 else ""
        self.telling = Telling(device.name, f"running {', '.join(kernels[:3])}{more}")
        with self.telling:
            self.segment: Any = device.backend.queue.segment(launches)
        self._is_one_call = isinstance(self.segment, OneCall) and self.segment.is_one_call

    def _launches(self, item: Item) -> Iterator[Launch]:
        """A launch for each phase of a kernel, with its slots mapped to the segment's table."""
        assert item.kernel is not None, "a kernel's item"
        record, part = item.kernel.record, item.step.part
        values = [item.first_value + variable_number(name) for name in item.step.variables]
        table = [self.positions[number] for number in item.storages]
        if item.faults is not None:
            table.append(len(self.positions) + len(self.extra))
            self.extra.append(item.faults)
        self.operations += int(part * record.operations)
        self.nbytes += int(part * record.nbytes)
        self.work += int(part * sum(phase.work for phase in record.phases))
        for function, phase in zip(item.kernel.functions, record.phases, strict=True):
            yield Launch(
                function,
                tuple(table[slot] for slot in phase.buffers),
                tuple(values[variable] for variable in phase.variables),
                _grid(phase, part),
                phase.block,
                phase.scratch,
                math.ceil(part * phase.work),  # 0 means unknown
                tuple(TensorView(*row) for row in phase.tensors),
            )

    def launch(self, handles: Sequence[Any], values: Sequence[int], over: Over) -> None:
        """Runs the kernels on a table from `handles`, or one like it."""
        try:
            if self._is_one_call:
                self.segment.run(handles, values, False, over)
                return
            over.append(OPEN)
            self.segment.run(handles, values)
            over[-1] = self
        except Exception:
            with self.telling:
                raise

    def count(self, kernels: bool = True) -> None:
        """Counts the kernels, before or after they run, and their operations."""
        GlobalCounters.kernel_count += len(self.items) if kernels else 0
        GlobalCounters.global_ops += self.operations
        GlobalCounters.global_mem += self.nbytes

    def run(
        self, buffers: Sequence[Buffer], values: Sequence[int], taken: Taken, over: Over
    ) -> None:
        """Runs the kernels on these storages."""
        if DEBUG.value < 2:
            self.launch(self.handles(buffers, taken), values, over)
            self.count()
            return
        over.append(OPEN)
        with self.telling:
            times = self.segment.run(self.handles(buffers, taken), values, True)
        over[-1] = self
        self.count(kernels=False)
        seconds = iter(times)
        for item in self.items:
            assert item.kernel is not None
            GlobalCounters.kernel_count += 1
            record, step = item.kernel.record, item.step
            took = sum(next(seconds) for _ in record.phases)
            done = int(step.part * record.operations), int(step.part * record.nbytes)
            report_step(step.device, record.colored, took, *done, step.origin)

    def handles(self, buffers: Sequence[Buffer], taken: Taken) -> list[Any]:
        """The segment's table of buffers."""
        handles = [buffers[number].handle for number in self.positions]
        handles += [None] * len(self.extra)
        self.watch(handles, taken)
        return handles

    def watch(self, handles: list[Any], taken: Taken) -> None:
        """Puts fault words at the end of a table: those that this run has `taken`, or others."""
        for position, words in enumerate(self.extra, len(self.positions)):
            if words not in taken:
                taken[words] = words.take()
            handles[position] = taken[words].handle


class Chain:
    """Plans that run in sequence as if they were one: kernels of a device are one native call even
    across plans. Storages and values are numbered across the plans; `counts` has the number of
    values of each plan, `homes` tells which storages are the same."""

    def __init__(
        self,
        plans: Sequence[RunnablePlan],
        counts: Sequence[int],
        homes: Sequence[Hashable] | None = None,
    ) -> None:
        self.written: list[int] = []  # written buffers that came with the graphs
        placed: list[Item] = []
        storages: list[Storage] = []
        first_value = 0
        for plan, count in zip(plans, counts, strict=True):
            first, kept = len(storages), plan.plan.storages
            for item in plan.items:
                numbers = tuple(first + n for n in (*item.step.storages, *item.step.own))
                placed.append(item._replace(storages=numbers, first_value=first_value))
                for number in item.step.storages[: item.step.writes]:
                    whole = kept[number].whole if kept[number].kind == "part" else number
                    if kept[whole].kind == "param":
                        self.written.append(first + number)
            storages += [
                replace(each, whole=each.whole + first) if each.kind == "part" else each
                for each in kept
            ]
            first_value += count
        self._placed, self._storages, self._homes = placed, storages, homes
        alone = [item.kernel is None for item in placed]
        lanes = [_lane(item.step) for item in placed]
        touches: Sequence[Sequence[Touch]] = [()] * len(placed)
        several = len(set(lanes)) > 1
        if several:
            touches = [_touches(item, storages, homes) for item in placed]
        self.segments = segments_of(lanes, touches, alone)
        self.parts = [self._part([placed[n] for n in s.steps]) for s in self.segments]
        work = sum(part.work for part in self.parts if isinstance(part, Stretch))
        copies = all(p.step.op is Ops.COPY for p in self.parts if isinstance(p, Item))
        self.side_by_side = several and copies and work >= ENOUGH_WORK

    @staticmethod
    def _part(items: Sequence[Item]) -> Stretch | Item:
        first = items[0]
        return first if first.kernel is None else Stretch(Device[first.step.device], items)

    @once
    def flow(self) -> Flow:
        """What its steps read and write."""
        storages = self._storages
        homes = list(range(len(storages)) if self._homes is None else self._homes)
        for number, each in enumerate(storages):
            if each.kind == "part":
                homes[number] = homes[each.whole]
        kept = [n for n, each in enumerate(storages) if each.kind in ("param", "out")]
        steps = [(item.step, item.storages, item.faults) for item in self._placed]
        made = {homes[n] for n, each in enumerate(storages) if each.kind == "out"}
        return Flow(steps, homes, kept, made)

    @property
    def only(self) -> Stretch | None:
        """The stretch, if the chain is a single one."""
        first = self.parts[0] if len(self.parts) == 1 else None
        return first if isinstance(first, Stretch) else None

    def run(self, buffers: list[Buffer], values: Sequence[int], taken: Taken, over: Over) -> None:
        """Runs all steps on these storages, from where an earlier try that was `over` so far has
        ended; the fault words that they use are added to `taken`."""
        elsewhere = straightened(self.written, buffers) if self.written and not over else []
        if elsewhere:  # before that is written back nothing is overwritten
            self._run(buffers, values, taken, [])
            over.append(OPEN)
            write_back(elsewhere, buffers)
            over[-1] = DONE
        elif DONE not in over:
            self._run(buffers, values, taken, over)
            over.append(DONE)

    def _run(self, buffers: list[Buffer], values: Sequence[int], taken: Taken, over: Over) -> None:
        if self.side_by_side and DEBUG.value < 2:
            over.append(OPEN)
            self._run_side_by_side(buffers, values, taken)
            over[-1] = self
        else:
            for part in self.parts[len(over) :]:
                if isinstance(part, Item):
                    GlobalCounters.kernel_count += 1
                    part.settle(buffers)
                part.run(buffers, values, taken, over)

    def finish(
        self,
        buffers: list[Buffer],
        values: Sequence[int],
        taken: Taken,
        over: Over,
        error: BaseException,
    ) -> bool:
        """Called when that error, or Ctrl-C, came after a run was `over` so far. Says whether it
        had begun to overwrite what came with the graph. Then it is finished now; where that can't
        be, all that it writes is spoilt."""
        if not self.written:
            over.clear()  # it can be done again
        if not over:
            return False
        flow = self.flow
        if OPEN not in over and (DONE in over or not isinstance(error, Exception)):
            try:
                self.run(buffers, values, taken, over)
            except Exception as another:
                error = another
        if DONE not in over or over[-1] is DONE:
            note(flow, buffers, taken, over)
        if DONE not in over:
            homes = {flow.homes[n] for step, ns, _ in flow.steps for n in ns[: step.writes]}
            spoil((buffers[n] for n in flow.kept if flow.homes[n] in homes), error)
        return True

    def _run_side_by_side(self, buffers: list[Buffer], values: Sequence[int], taken: Taken) -> None:
        """Runs all parts, with a thread for each lane. Counting and waiting is done here, by one
        thread."""
        parts = self.parts
        stretches = [(i, part) for i, part in enumerate(parts) if isinstance(part, Stretch)]
        tables = {i: stretch.handles(buffers, taken) for i, stretch in stretches}
        for part in parts:  # earlier plans may still use the same memory
            if isinstance(part, Item):
                part.settle(buffers)

        def launch(number: int) -> None:
            part = parts[number]
            if isinstance(part, Item):
                part.run(buffers, values, taken, [])
            else:
                part.launch(tables[number], values, [])

        def finish(number: int) -> None:
            part = parts[number]
            if isinstance(part, Stretch):
                part.device.synchronize()

        run_lanes(self.segments, launch, finish)
        for part in parts:
            if isinstance(part, Stretch):
                part.count()
            else:
                GlobalCounters.kernel_count += 1


def _lane(step: Step) -> Hashable:
    """The lane of a step, in which steps run in order: a device, or copies to that device."""
    return (step.device, step.op is Ops.COPY)


def _touches(
    item: Item, storages: Sequence[Storage], homes: Sequence[Hashable] | None
) -> list[Touch]:
    """The memory that a step reads and writes. After its storages come a kernel's own buffers,
    which it writes."""
    found = []
    step = item.step
    for place, number in enumerate(item.storages):
        kept = storages[number]
        end = kept.place + kept.nbytes
        span = (kept.device, kept.place, end) if kept.kind == "temp" else None
        home = number if homes is None else homes[number]
        written = place < step.writes or place >= len(step.storages)
        found.append(Touch(home, written, span))
    return found


class RunnablePlan:
    """A plan with its kernels loaded. `keys` are the kernel keys, one for each KERNEL step. `given`
    is the original plan; `plan` also has places for the buffers that kernels use between their
    phases."""

    def __init__(self, plan: Plan, keys: Sequence[str] | None = None) -> None:
        self.plan = self.given = plan
        self.items: list[Item] = []
        kernels = [step for step in plan.steps if step.op is Ops.KERNEL]
        _refuse_kernels([step for step in kernels if keeps(step.device)])
        self.keys = list(keys) if keys is not None else [_key(step) for step in kernels]
        wanted: dict[str, list[Any]] = {}
        for step, key in zip(kernels, self.keys, strict=True):
            wanted.setdefault(step.device, []).append((step.ast, key))
        loaded: dict[str, dict[str, LoadedKernel]] = {}
        for name, given in wanted.items():
            if (found := load_kernels(given, Device[name])) is not None:
                loaded[name] = found
        self.complete = len(loaded) == len(wanted)
        if self.complete:
            next_key = iter(self.keys).__next__
            items = [
                _item(step, loaded[step.device][next_key()])  # the device's may have been replaced
                if step.op is Ops.KERNEL
                else Item(step)
                for step in plan.steps
            ]
            own = [() if i.kernel is None else i.kernel.record.temporaries for i in items]
            self.plan = with_own_storages(plan, own)
            pairs = zip(items, self.plan.steps, strict=True)
            self.items = [item._replace(step=step) for item, step in pairs]
        self.faults = [item.faults for item in self.items if item.faults is not None]

    @property
    def operations(self) -> float:
        """Of a kernel, on average."""
        kernels = [item.kernel.record for item in self.items if item.kernel is not None]
        return sum(kernel.operations for kernel in kernels) / max(1, len(kernels))

    @property
    def room(self) -> int:
        """How many bytes its results and temporaries take."""
        results = sum(kept.nbytes for kept in self.plan.storages if kept.kind == "out")
        return results + sum(self.plan.arenas.values())

    @once
    def chain(self) -> Chain:
        """The plan alone, ready to run."""
        return Chain([self], [0])

    def laid_out(self, plan: Plan) -> RunnablePlan:
        """The same kernels, with the places that storages have in `plan`."""
        made = copy.copy(self)
        made.plan = plan
        made.__dict__.pop("chain", None)  # it knows the old places
        return made

    def storages(
        self, params: Sequence[Buffer], given: Mapping[int, Buffer], arenas: Mapping[str, Arena]
    ) -> list[Buffer]:
        """The buffers of all storages: those `given`, temporaries in the `arenas`, and new ones."""
        buffers = []
        for number, kept in enumerate(self.plan.storages):
            if number in given:
                buffers.append(given[number])
            elif kept.kind == "param":
                buffers.append(params[kept.place])
            elif kept.kind == "out":
                buffers.append(Buffer(kept.device, kept.nbytes))
            elif kept.kind == "temp" and kept.device in arenas:  # else no step uses it
                buffers.append(arenas[kept.device].place(kept))
            else:
                buffers.append(NOTHING)
        for number, kept in enumerate(self.plan.storages):
            if kept.kind == "part":
                buffers[number] = buffers[kept.whole].part(kept.place)
        return buffers

    def run(self, params: Sequence[Buffer], values: Sequence[int]) -> None:
        """Runs all steps."""
        self.chain.run(self.storages(params, {}, arenas_for([self])), values, {}, [])


class Arena:
    """The memory for the temporaries of a device: one buffer, or several of at most `largest`
    bytes."""

    def __init__(self, device: str, size: int, largest: int) -> None:
        self.device, self.each = device, largest or size
        begins = range(0, size, self.each)
        self.buffers = [Buffer(device, min(self.each, size - begin)) for begin in begins]

    def place(self, kept: Storage) -> Buffer:
        """The place of this temporary."""
        if kept.nbytes > self.each:
            return Buffer(self.device, kept.nbytes)  # its device says how long a buffer may be
        number, begin = divmod(kept.place, self.each)
        return self.buffers[number].view(begin, kept.nbytes)


def arenas_for(plans: Sequence[RunnablePlan]) -> dict[str, Arena]:
    """One arena for each device, for the temporaries of plans that run in sequence."""
    sizes: dict[str, int] = {}
    for plan in plans:
        for name, size in plan.plan.arenas.items():
            sizes[name] = max(size, sizes.get(name, 0))
    largest = shortest(plan.plan.largest for plan in plans)
    return {name: Arena(name, size, largest) for name, size in sizes.items()}


def _item(step: Step, kernel: LoadedKernel) -> Item:
    faults = kernel.record.faults
    return Item(step, kernel, FaultWords(Device[step.device], faults) if faults else None)


def _grid(phase: PhaseRecord, part: float) -> tuple[int, int, int]:
    """The tasks of a phase; a kernel of any size has only a part of them."""
    tasks, rows, planes = phase.grid
    return (math.ceil(part * tasks), rows, planes) if phase.ends else phase.grid


def _refuse_kernels(steps: Sequence[Step]) -> None:
    """DeviceError for kernels on devices that only hold bytes."""
    for step in steps:
        assert step.ast is not None
        computed = GroupOp.ALU | {Ops.REDUCE, Ops.RUNNING, Ops.CAST, Ops.BITCAST}
        nodes = [n for n in step.ast.toposort() if n.op in computed and n.dtype is not dtypes.index]
        found = {node.op.name for node in nodes}
        what = ", ".join(sorted(found)) or "a copy"
        where = f" at {step.origin}" if step.origin else ""
        raise DeviceError(
            f"device {step.device} holds bytes and runs no kernels ({what}{where}); legal is "
            ".to('CPU') or another device first, and computing there"
        )


def _key(step: Step) -> str:
    assert step.ast is not None
    return kernel_key(step.ast, Device[step.device])
