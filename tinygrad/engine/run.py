"""Plans that run: kernels loaded, launches bound to positions in tables, one native call for each
stretch of kernels on one device. Running again costs filling the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinygrad.backends.interface import Launch, Segment
from tinygrad.base.settings import DEBUG
from tinygrad.engine.compile import LoadedKernel, kernel_key, load_kernels
from tinygrad.engine.devices import Device, OpenDevice
from tinygrad.engine.faults import FaultWords, fault_words
from tinygrad.engine.host import run_host_step
from tinygrad.engine.profile import GlobalCounters, report_step
from tinygrad.engine.storage import Buffer
from tinygrad.schedule.plan import Plan, Step
from tinygrad.uop.op import Ops

step_runners: dict[Ops, Callable[[Step, Sequence[Buffer]], None]] = {
    Ops.COPY: run_host_step,
    Ops.CALL: run_host_step,
}
"""What runs the steps that are no kernels."""


@dataclass
class Stretch:
    """Kernels in a row on one device. `positions` are the plan's storages in the order of the
    segment's buffer table; further entries are the kernels' own buffers (`extra`)."""

    device: OpenDevice
    steps: list[Step] = field(default_factory=list)
    kernels: list[LoadedKernel] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    extra: list[Any] = field(default_factory=list)
    temporaries: int = 0  # bytes of the kernels' temporaries, which share one place
    segment: Segment | None = None


class RunnablePlan:
    """A plan with its kernels loaded. `keys` are the kernel keys, one a KERNEL step."""

    def __init__(self, plan: Plan, keys: Sequence[str] | None = None) -> None:
        self.plan = plan
        self.parts: list[Stretch | Step] = []
        self.faults: list[FaultWords] = []
        kernels = [step for step in plan.steps if step.op is Ops.KERNEL]
        self.keys = list(keys) if keys is not None else [_key(step) for step in kernels]
        wanted: dict[str, list[Any]] = {}
        for step, key in zip(kernels, self.keys, strict=True):
            wanted.setdefault(step.device, []).append((step.ast, key))
        self.complete = all(load_kernels(pairs, Device[name]) for name, pairs in wanted.items())
        if self.complete:
            self._cut(iter(self.keys).__next__)

    # ---- preparation -----------------------------------------------------------------------------

    def _cut(self, next_key: Callable[[], str]) -> None:
        for step in self.plan.steps:
            if step.op is not Ops.KERNEL:
                self.parts.append(step)
                continue
            device = Device[step.device]
            last = self.parts[-1] if self.parts else None
            if not isinstance(last, Stretch) or last.device is not device:
                last = Stretch(device)
                self.parts.append(last)
            last.steps.append(step)
            last.kernels.append(device.kernels[next_key()])
        for part in self.parts:
            if isinstance(part, Stretch):
                self._bind(part)

    def _bind(self, part: Stretch) -> None:
        for step in part.steps:
            for number in step.storages:
                part.positions.setdefault(number, len(part.positions))
        launches: list[Launch] = []
        own = len(part.positions)
        for step, kernel in zip(part.steps, part.kernels, strict=True):
            record = kernel.record
            table = [part.positions[number] for number in step.storages]
            own_entries: list[Any] = [start for start, _ in _offsets(record.temporaries)]
            if record.faults:
                own_entries.append(fault_words(part.device, record.faults))
                self.faults.append(own_entries[-1])
            table += range(own + len(part.extra), own + len(part.extra) + len(own_entries))
            part.extra += own_entries
            part.temporaries = max(part.temporaries, sum(map(_aligned, record.temporaries)))
            for function, phase in zip(kernel.functions, record.phases, strict=True):
                launches.append(
                    Launch(
                        function,
                        tuple(table[slot] for slot in phase.buffers),
                        phase.variables,
                        phase.grid,
                        phase.block,
                        phase.scratch,
                        phase.work,
                    )
                )
        part.segment = part.device.backend.queue.segment(launches)

    # ---- running ---------------------------------------------------------------------------------

    def run(
        self,
        params: Sequence[Buffer],
        values: Sequence[int],
        given: Mapping[int, Buffer] | None = None,
    ) -> list[Buffer]:
        """Runs all steps; the buffers of all storages. `given` results are not made anew."""
        given = given or {}
        memory = {name: Buffer(name, size) for name, size in self.plan.arenas.items()}
        buffers = []
        for number, kept in enumerate(self.plan.storages):
            if number in given:
                buffers.append(given[number])
            elif kept.kind == "param":
                buffers.append(params[kept.place])
            elif kept.kind == "out":
                buffers.append(Buffer(kept.device, kept.nbytes))
            elif kept.device in memory:
                buffers.append(memory[kept.device].view(kept.place, kept.nbytes))
        self.run_on(buffers, values)
        return buffers

    def run_on(self, buffers: Sequence[Buffer], values: Sequence[int]) -> None:
        """Runs all steps on these storages."""
        for part in self.parts:
            if isinstance(part, Stretch):
                self._run_stretch(part, buffers, values)
            else:
                GlobalCounters.kernel_count += 1
                step_runners[part.op](part, [buffers[n] for n in part.storages])

    def _run_stretch(self, part: Stretch, buffers: Sequence[Buffer], values: Sequence[int]) -> None:
        assert part.segment is not None
        handles = [buffers[number].handle for number in part.positions]
        if part.extra:
            handles += self._own_handles(part)
        timed = DEBUG >= 2
        times = part.segment.run(handles, values, timed)
        for kernel in part.kernels:
            GlobalCounters.global_ops += kernel.record.operations
            GlobalCounters.global_mem += kernel.record.nbytes
        if not timed:
            GlobalCounters.kernel_count += len(part.kernels)
            return
        seconds = iter(times)
        for step, kernel in zip(part.steps, part.kernels, strict=True):
            GlobalCounters.kernel_count += 1
            record = kernel.record
            took = sum(next(seconds) for _ in record.phases)
            report_step(
                step.device, record.colored, took, record.operations, record.nbytes, step.origin
            )

    def _own_handles(self, part: Stretch) -> list[Any]:
        scratch = Buffer(part.device.name, part.temporaries) if part.temporaries else None
        handles = []
        for entry in part.extra:
            if isinstance(entry, int):
                assert scratch is not None
                handles.append(part.device.backend.memory.view(scratch.handle, entry))
            else:
                part.device.unread_faults[entry] = None
                handles.append(entry.handle)
        if scratch is not None:
            part.device.synchronize()
        return handles


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
