"""Plans that run: kernels loaded, launches bound to positions in tables, one native call for each
stretch of kernels on one device. Running again costs filling the tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.backends.interface import Launch, Segment
from tinygrad.base.settings import DEBUG
from tinygrad.engine.compile import LoadedKernel, kernel_key, load_kernels
from tinygrad.engine.devices import Device, OpenDevice
from tinygrad.engine.faults import FaultWords
from tinygrad.engine.host import run_host_step
from tinygrad.engine.profile import GlobalCounters, report_step
from tinygrad.engine.sharing import straightened, write_back
from tinygrad.engine.storage import NOTHING, Buffer
from tinygrad.schedule.plan import Plan, Step, variable_number
from tinygrad.uop.op import Ops

step_runners: dict[Ops, Callable[[Step, Sequence[Buffer]], None]] = {
    Ops.COPY: run_host_step,
    Ops.CALL: run_host_step,
}
"""What runs the steps that are no kernels."""


class Stretch:
    """Kernels in a row on one device. `positions` are the storages that they use, in the order of
    the segment's buffer table; further entries are the kernels' own buffers (`extra`)."""

    def __init__(self, device: OpenDevice) -> None:
        self.device = device
        self.items: list[tuple[Item, tuple[int, ...], int]] = []
        self.positions: dict[int, int] = {}
        self.extra: list[Any] = []
        self.temporaries = 0  # bytes of the kernels' temporaries, which share one place
        self.operations = self.nbytes = 0
        self.segment: Segment | None = None

    def add(self, item: Item, storages: tuple[int, ...], first_value: int) -> None:
        """One more kernel, which uses these storages and the values from `first_value` on."""
        self.items.append((item, storages, first_value))
        for number in storages:
            self.positions.setdefault(number, len(self.positions))

    def bind(self) -> None:
        """Prepares the native call; no kernel is added after."""
        launches: list[Launch] = []
        own = len(self.positions)
        for item, storages, first_value in self.items:
            assert item.kernel is not None, "a kernel's item"
            record = item.kernel.record
            values = [first_value + variable_number(name) for name in item.step.variables]
            table = [self.positions[number] for number in storages]
            own_entries: list[Any] = [start for start, _ in _offsets(record.temporaries)]
            if item.faults is not None:
                own_entries.append(item.faults)
            table += range(own + len(self.extra), own + len(self.extra) + len(own_entries))
            self.extra += own_entries
            self.temporaries = max(self.temporaries, sum(map(_aligned, record.temporaries)))
            self.operations += record.operations
            self.nbytes += record.nbytes
            for function, phase in zip(item.kernel.functions, record.phases, strict=True):
                launches.append(
                    Launch(
                        function,
                        tuple(table[slot] for slot in phase.buffers),
                        tuple(values[variable] for variable in phase.variables),
                        phase.grid,
                        phase.block,
                        phase.scratch,
                        phase.work,
                    )
                )
        self.segment = self.device.backend.queue.segment(launches)

    def run(self, buffers: Sequence[Buffer], values: Sequence[int]) -> None:
        """Runs the kernels on these storages."""
        assert self.segment is not None
        handles = [buffers[number].handle for number in self.positions]
        if self.extra:
            handles += self._own_handles()
        timed = DEBUG >= 2
        times = self.segment.run(handles, values, timed)
        GlobalCounters.global_ops += self.operations
        GlobalCounters.global_mem += self.nbytes
        if not timed:
            GlobalCounters.kernel_count += len(self.items)
            return
        seconds = iter(times)
        for item, _, _ in self.items:
            assert item.kernel is not None
            GlobalCounters.kernel_count += 1
            record, step = item.kernel.record, item.step
            took = sum(next(seconds) for _ in record.phases)
            report_step(
                step.device, record.colored, took, record.operations, record.nbytes, step.origin
            )

    def _own_handles(self) -> list[Any]:
        scratch = Buffer(self.device.name, self.temporaries) if self.temporaries else None
        handles = []
        unread = self.device.unread_faults
        for entry in self.extra:
            if isinstance(entry, int):
                assert scratch is not None
                handles.append(self.device.backend.memory.view(scratch.handle, entry))
            else:
                unread[entry] = entry.handle
                handles.append(entry.handle)
        if scratch is not None:
            self.device.synchronize()
        return handles


class Chain:
    """Plans that run one after the other as if they were one: kernels of a device are one native
    call also where one plan ends and the next begins. Storages and values are numbered through;
    `counts` says how many values each plan takes."""

    def __init__(self, plans: Sequence[RunnablePlan], counts: Sequence[int]) -> None:
        self.parts: list[Stretch | tuple[Step, tuple[int, ...]]] = []
        self.written: list[int] = []  # what came with the graphs and is written
        first_storage = first_value = 0
        for plan, count in zip(plans, counts, strict=True):
            for item in plan.items:
                storages = tuple(first_storage + number for number in item.step.storages)
                self._add(item, storages, first_value)
                kept = plan.plan.storages
                for number in item.step.storages[: item.step.writes]:
                    if kept[number].kind == "param":
                        self.written.append(first_storage + number)
            first_storage += len(plan.plan.storages)
            first_value += count
        for part in self.parts:
            if isinstance(part, Stretch):
                part.bind()

    def _add(self, item: Item, storages: tuple[int, ...], first_value: int) -> None:
        if item.kernel is None:
            self.parts.append((item.step, storages))
            return
        device = Device[item.step.device]
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, Stretch) or last.device is not device:
            last = Stretch(device)
            self.parts.append(last)
        last.add(item, storages, first_value)

    def run(self, buffers: list[Buffer], values: Sequence[int]) -> None:
        """Runs all steps on these storages."""
        elsewhere = straightened(self.written, buffers) if self.written else []
        for part in self.parts:
            if isinstance(part, Stretch):
                part.run(buffers, values)
            else:
                step, storages = part
                GlobalCounters.kernel_count += 1
                step_runners[step.op](step, [buffers[n] for n in storages])
        if elsewhere:
            write_back(elsewhere, buffers)


@dataclass(frozen=True)
class Item:
    """A step of a plan; of a kernel, what is loaded and where its faults are written."""

    step: Step
    kernel: LoadedKernel | None = None
    faults: FaultWords | None = None


class RunnablePlan:
    """A plan with its kernels loaded. `keys` are the kernel keys, one a KERNEL step."""

    def __init__(self, plan: Plan, keys: Sequence[str] | None = None) -> None:
        self.plan = plan
        self.items: list[Item] = []
        kernels = [step for step in plan.steps if step.op is Ops.KERNEL]
        self.keys = list(keys) if keys is not None else [_key(step) for step in kernels]
        wanted: dict[str, list[Any]] = {}
        for step, key in zip(kernels, self.keys, strict=True):
            wanted.setdefault(step.device, []).append((step.ast, key))
        loaded = {name: load_kernels(pairs, Device[name]) for name, pairs in wanted.items()}
        self.complete = None not in loaded.values()
        if self.complete:
            next_key = iter(self.keys).__next__
            self.items = [_item(step, next_key) for step in plan.steps]
        self.faults = [item.faults for item in self.items if item.faults is not None]

    @functools.cached_property
    def chain(self) -> Chain:
        """The plan alone, ready to run."""
        return Chain([self], [0])

    def storages(
        self,
        params: Sequence[Buffer],
        given: Mapping[int, Buffer],
        arenas: Mapping[str, Buffer],
    ) -> list[Buffer]:
        """The buffers of all storages: what is `given`, temporaries in the `arenas`, new ones."""
        buffers = []
        for number, kept in enumerate(self.plan.storages):
            if kept.kind == "part":
                buffers.append(NOTHING)
            elif number in given:
                buffers.append(given[number])
            elif kept.kind == "param":
                buffers.append(params[kept.place])
            elif kept.kind == "out":
                buffers.append(Buffer(kept.device, kept.nbytes))
            elif kept.device in arenas:
                buffers.append(arenas[kept.device].view(kept.place, kept.nbytes))
            else:  # no step uses it
                buffers.append(NOTHING)
        for number, kept in enumerate(self.plan.storages):
            if kept.kind == "part":
                buffers[number] = buffers[kept.whole].part(kept.place)
        return buffers

    def run(
        self,
        params: Sequence[Buffer],
        values: Sequence[int],
        given: Mapping[int, Buffer] | None = None,
    ) -> list[Buffer]:
        """Runs all steps; the buffers of all storages. `given` results are not made anew."""
        buffers = self.storages(params, given or {}, arenas_for([self]))
        self.chain.run(buffers, values)
        return buffers

    def run_on(self, buffers: list[Buffer], values: Sequence[int]) -> None:
        """Runs all steps on these storages."""
        self.chain.run(buffers, values)


def arenas_for(plans: Sequence[RunnablePlan]) -> dict[str, Buffer]:
    """One arena a device for the temporaries of plans that run one after the other."""
    sizes: dict[str, int] = {}
    for plan in plans:
        for name, size in plan.plan.arenas.items():
            sizes[name] = max(size, sizes.get(name, 0))
    return {name: Buffer(name, size) for name, size in sizes.items()}


def _item(step: Step, next_key: Callable[[], str]) -> Item:
    if step.op is not Ops.KERNEL:
        return Item(step)
    device = Device[step.device]
    kernel = device.kernels[next_key()]
    faults = kernel.record.faults
    return Item(step, kernel, FaultWords(device.backend.memory, faults) if faults else None)


def _key(step: Step) -> str:
    assert step.ast is not None
    return kernel_key(step.ast, Device[step.device])


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 256) * 256


def _offsets(sizes: Sequence[int]) -> list[tuple[int, int]]:
    placed, start = [], 0
    for size in sizes:
        placed.append((start, size))
        start += _aligned(size)
    return placed
