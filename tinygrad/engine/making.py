"""What happens when no cache has a plan or a kernel: a graph is made into a plan, a kernel into
object code. Of the files that computing needs only this one, and `recipes` and `show` below it,
import the floors that rewrite graphs, so a warm process, which finds everything in the caches,
never does (`cold`).

Kernels are lowered in Python one after the other, while other threads compile (in LLVM, outside of
Python's lock) those that are lowered already. With one core there are no such threads: they would
only evict each other's data from its cache. (The pool of `concurrent.futures` has a lock that each
fork takes first, and would wait with it for who makes plans.)"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from tinygrad.backends.cpu.target import core_count
from tinygrad.base.helpers import prod
from tinygrad.base.settings import BEAM, CAPTURE_KERNELS, DEBUG, NOOPT, RECIPES, SPEC
from tinygrad.codegen.names import kernel_name
from tinygrad.codegen.pipeline import Lowered
from tinygrad.engine.devices import Device, OpenDevice
from tinygrad.engine.faults import Touches
from tinygrad.engine.gallery import capture_kernel
from tinygrad.engine.kernels import KernelRecord, PhaseRecord
from tinygrad.engine.profile import GlobalCounters
from tinygrad.engine.recipes import kernel_id, lower_kernel
from tinygrad.engine.show import show_assembly, show_lowered, show_phase, show_plan
from tinygrad.engine.structure import devices_of
from tinygrad.loops.cost import Cost, estimate
from tinygrad.loops.groups.rows import longest_row
from tinygrad.loops.groups.unit_rows import row_units
from tinygrad.schedule.bundles import kernels_and_slots, kernels_of
from tinygrad.schedule.fills import with_shared_fills
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.memory import ALIGNMENT
from tinygrad.schedule.plan import Plan, Wishes, shortest, variable_number
from tinygrad.uop import Ops, UOp
from tinygrad.uop.verify import verify

__all__ = ["compile_lowered", "compiled", "kernel_name", "plan_of", "plan_to_run"]

SHORT_TURN = 1e-3
"""Seconds that a thread which returns from LLVM waits for the thread that lowers, instead of
Python's 5 ms: compiling a kernel returns from LLVM about ten times."""


# ---- plans ---------------------------------------------------------------------------------------


def plan_of(sink: UOp, devices: Sequence[str] = ()) -> Plan:
    """The plan of a structure, according to its devices' wishes."""
    targets = [Device[name].target for name in devices or devices_of(sink)]
    lanes = not NOOPT and any(target.has_groups for target in targets)
    longest = 0 if NOOPT else min(map(longest_row, targets), default=Wishes.longest_row)
    units = [frozenset(unit.a for unit in row_units(target)) for target in targets]
    registers = frozenset.intersection(*units) if units and not NOOPT else frozenset()
    most = shortest(target.buffer_limit for target in targets)
    window = shortest(target.window_limit for target in targets)
    largest = shortest(target.largest_buffer for target in targets) // ALIGNMENT * ALIGNMENT
    turns = shortest(target.turn_limit for target in targets)
    cache = min((0 if target.has_groups else target.cache_l3 for target in targets), default=0)
    return plan(sink, Wishes(longest, most, lanes, registers, window, largest, turns, cache))


def plan_to_run(sink: UOp, devices: Sequence[str]) -> Plan:
    """The same, with kernels of any size where that saves compilation; verified, counted, and
    shown."""
    if SPEC:
        verify(sink, "tensor")
    GlobalCounters.plans_made += 1
    made = plan_of(sink, devices)
    if not (NOOPT or BEAM or RECIPES) and all(map(_compiles, devices)):
        made = with_shared_fills(made, sum(n.op is Ops.DEFINE_VAR for n in sink.toposort()))
    if SPEC:
        for step in made.steps:
            if step.ast is None or step.ast.op not in (Ops.SINK, Ops.BUNDLE):
                continue
            for kernel in kernels_of(step.ast):
                verify(kernel, "kernel")
            if step.ast.op is Ops.SINK:
                own = {n.arg[0] for n in step.ast.toposort() if n.op is Ops.DEFINE_VAR}
                assert len(own) == len(step.variables), f"{own} for {step.variables}"
    show_plan(made)
    return made


def _compiles(device: str) -> bool:
    """Whether the device's kernels are compiled by LLVM, which is slow, and have no groups."""
    target = Device[device].target
    return bool(target.triple) and not target.has_groups


def touches_of_kernels(ast: UOp) -> Iterator[Touches]:
    """For each kernel of a step: the slots that it reads, those that it writes, and those that it
    writes completely."""
    for kernel, slots in kernels_and_slots(ast):
        targets = [store.src[0] for store in kernel.src]
        sources = [n for store in kernel.src for n in (store.src[1], *store.src[0].src[1:])]
        reads = [n for n in UOp.sink(*sources).toposort() if n.op is Ops.INDEX]
        whole = [target for target in targets if _covers(target)]
        yield _slots_of(reads, slots), _slots_of(targets, slots), _slots_of(whole, slots)


def _slots_of(accesses: Iterable[UOp], slots: Sequence[int] | None) -> list[int]:
    """The slots of the step that a kernel accesses; `slots` has them by the kernel's own."""
    own = [access.src[0].arg[0] for access in accesses]
    return own if slots is None else [slots[slot] for slot in own]


def _covers(target: UOp) -> bool:
    """Whether the loops have as many turns as there are elements, so that none is left out."""
    below = target.src[1].toposort()
    loops = [node for node in below if node.op is Ops.RANGE]
    free = all(len(loop.src) == 1 and loop.arg[1] == "LOOP" for loop in loops)
    known = len(target.src) == 2 and all(node.op is not Ops.INDEX for node in below)
    return free and known and prod(loop.vmax + 1 for loop in loops) == target.src[0].arg[1]


# ---- kernels -------------------------------------------------------------------------------------

Texts = dict[tuple[str, ...], tuple[str, bytes]]
"""For each source, split at its function's name, that name and the object code. Kernels that pack
the same rows, or sum the tiles of a product, share a phase."""


def compiled(missing: Mapping[str, UOp], device: OpenDevice) -> Iterator[tuple[str, KernelRecord]]:
    """Each kernel's key and its record; phases with the same text are compiled once."""
    cores, texts = core_count(), Texts()
    if len(missing) == 1 or cores == 1 or DEBUG >= 3:
        for key, ast in missing.items():
            yield key, compile_lowered(_lowered(ast, device), device, texts)
        return
    jobs: SimpleQueue[Any] = SimpleQueue()
    made: dict[str, SimpleQueue[Any]] = {key: SimpleQueue() for key in missing}

    def work() -> None:
        for key, lowered in iter(jobs.get, None):
            try:
                made[key].put(compile_lowered(lowered, device, texts))
            except BaseException as error:
                made[key].put(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORT_TURN)
    threads = [Thread(target=work, daemon=True) for _ in range(min(cores, len(missing)))]
    try:
        for thread in threads:
            thread.start()
        for key, ast in missing.items():
            jobs.put((key, _lowered(ast, device)))
        for key, result in made.items():
            record = result.get()
            if isinstance(record, BaseException):
                raise record
            yield key, record
    finally:
        for _ in threads:
            jobs.put(None)
        for thread in threads:
            if thread.ident is not None:  # else Ctrl-C came before it
                thread.join()
        sys.setswitchinterval(before)


def _lowered(ast: UOp, device: OpenDevice) -> tuple[Lowered, Cost]:
    GlobalCounters.kernels_lowered += 1
    lowered, recipe = lower_kernel(ast, device)
    show_lowered(lowered, recipe, kernel_id(ast))
    if CAPTURE_KERNELS and not (BEAM or RECIPES):
        capture_kernel(ast, lowered, device, Path(CAPTURE_KERNELS.value))
    return lowered, estimate(ast)


def compile_lowered(
    made: tuple[Lowered, Cost], device: OpenDevice, texts: Texts | None = None
) -> KernelRecord:
    """Compiles linear programs to object code, except those of known `texts`. Several threads may
    call it at once."""
    lowered, cost = made
    GlobalCounters.kernels_compiled += 1
    phases, binaries, texts = [], [], Texts() if texts is None else texts
    for phase in lowered.phases:
        source = device.renderer.render(phase.name, phase.program)
        show_phase(phase, source)
        text = tuple(source.split(phase.name, 1))
        if text not in texts:
            texts[text] = phase.name, device.compiler.compile(source)
        name, binary = texts[text]
        binaries.append(binary)
        show_assembly(device.compiler, source, binary)
        names = sorted({n.arg[0] for n in phase.program if n.op is Ops.DEFINE_VAR})
        variables = tuple(map(variable_number, names))
        launch = phase.tasks, phase.block, phase.scratch
        work, ends = cost.operations // len(lowered.phases), bool(phase.ends)
        taken = phase.buffers, variables, *launch, work, phase.tensors, ends
        phases.append(PhaseRecord(name, *taken))
    return KernelRecord(
        lowered.name,
        lowered.colored,
        cost.operations,
        cost.bytes,
        lowered.temporaries,
        lowered.faults,
        tuple(phases),
        tuple(binaries),
    )
