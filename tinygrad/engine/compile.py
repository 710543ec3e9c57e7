"""Kernels made once: loops to object code, cached in the process and on disk.

The key is the kernel before its recipe, the target, the compiler's version and our own code's
stamp. A warm process finds the object code and neither lowers nor loads a compiler. Python lowers
one kernel after the other while other threads compile those that are lowered, if there are cores
for them: on one they would only take each other's place in its cache.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tinygrad.backends.cpu.target import core_count
from tinygrad.base.settings import BEAM, CAPTURE_KERNELS, DEBUG, IGNORE_BEAM_CACHE, RECIPES
from tinygrad.codegen.pipeline import Lowered
from tinygrad.engine.cache import disk_cache, stamped_key
from tinygrad.engine.devices import OpenDevice
from tinygrad.engine.gallery import capture_kernel
from tinygrad.engine.profile import GlobalCounters
from tinygrad.engine.recipes import kernel_id, lower_kernel, recipe_facts
from tinygrad.engine.show import show_assembly, show_lowered, show_phase
from tinygrad.loops.cost import Cost, estimate
from tinygrad.schedule.plan import variable_number
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

SHORT_TURN = 1e-3
"""Seconds that a thread which comes back from LLVM waits for the one that lowers, in place of
Python's 5 ms: compiling a kernel leaves LLVM some ten times."""


@dataclass(frozen=True)
class PhaseRecord:
    """One function of a kernel, as the cache keeps it; its binary apart."""

    name: str
    buffers: tuple[int, ...]  # slots: the kernel's own, then its temporaries, then fault words
    variables: tuple[int, ...]  # numbers of the kernel's variables
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scratch: int
    work: int
    tensors: tuple[tuple[Any, ...], ...] = ()
    ends: bool = False  # whether tasks beyond what a variable says do nothing


@dataclass(frozen=True)
class KernelRecord:
    """A compiled kernel: everything that running it needs."""

    name: str
    colored: str
    operations: int
    nbytes: int
    temporaries: tuple[int, ...]
    faults: tuple[tuple[str, str], ...]
    phases: tuple[PhaseRecord, ...]
    binaries: tuple[bytes, ...] = field(repr=False)

    def pack(self) -> bytes:
        """As bytes: a length, a JSON header, the binaries one after the other."""
        header = asdict(self)
        header["binaries"] = [len(b) for b in self.binaries]
        text = json.dumps(header).encode()
        return len(text).to_bytes(4, "little") + text + b"".join(self.binaries)

    @staticmethod
    def unpack(raw: bytes) -> KernelRecord:
        """What `pack` wrote."""
        start = 4 + int.from_bytes(raw[:4], "little")
        header: dict[str, Any] = json.loads(raw[4:start])
        binaries = []
        for length in header["binaries"]:
            binaries.append(raw[start : start + length])
            start += length
        phases = tuple(
            PhaseRecord(**{k: _tuples(v) for k, v in p.items()}) for p in header["phases"]
        )
        rest = {k: _tuples(v) for k, v in header.items() if k not in ("phases", "binaries")}
        return KernelRecord(**rest, phases=phases, binaries=tuple(binaries))


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A kernel on a device, ready for a Launch."""

    record: KernelRecord
    functions: tuple[Any, ...]


def kernel_key(ast: UOp, device: OpenDevice) -> str:
    """What decides a kernel's code, as a text that is the same in every process."""
    return stamped_key(ast, device.target.key(), device.compiler.version, recipe_facts(ast))


def load_kernels(
    wanted: Sequence[tuple[UOp | None, str]], device: OpenDevice
) -> dict[str, LoadedKernel] | None:
    """The kernels of all wanted (kernel, key) pairs, by key. The device knows them for as long as
    somebody holds them, as plans do.

    A pair without a kernel can only come from the cache; None if one of those is missing.
    """
    loaded: dict[str, LoadedKernel] = {}
    missing: dict[str, UOp] = {}
    again = DEBUG >= 3 or (BEAM and IGNORE_BEAM_CACHE)
    for ast, key in wanted:
        if key in loaded or key in missing:
            continue
        known = device.kernels.get(key)
        raw = None if known is not None or again else disk_cache().get("kernel", key)
        if known is not None:
            loaded[key] = known
        elif raw is not None:
            loaded[key] = load_record(KernelRecord.unpack(raw), device)
        elif ast is None:
            return None
        else:
            missing[key] = ast
    cores = core_count()
    if len(missing) == 1 or cores == 1 or DEBUG >= 3:
        for key, ast in missing.items():
            loaded[key] = _finished(key, compile_lowered(_lowered(ast, device), device), device)
    elif missing:
        loaded.update(_compiled_together(missing, device, cores))
    device.kernels.update(loaded)
    return loaded


def _compiled_together(
    missing: dict[str, UOp], device: OpenDevice, cores: int
) -> dict[str, LoadedKernel]:
    futures: dict[str, Future[KernelRecord]] = {}
    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORT_TURN)
    try:
        with ThreadPoolExecutor(max_workers=cores) as pool:
            for key, ast in missing.items():
                futures[key] = pool.submit(compile_lowered, _lowered(ast, device), device)
            return {key: _finished(key, made.result(), device) for key, made in futures.items()}
    finally:
        sys.setswitchinterval(before)


def _lowered(ast: UOp, device: OpenDevice) -> tuple[Lowered, Cost]:
    GlobalCounters.kernels_lowered += 1
    lowered, recipe = lower_kernel(ast, device)
    show_lowered(lowered, recipe, kernel_id(ast))
    if CAPTURE_KERNELS and not (BEAM or RECIPES):
        capture_kernel(ast, lowered, device, Path(CAPTURE_KERNELS.value))
    return lowered, estimate(ast)


def compile_lowered(made: tuple[Lowered, Cost], device: OpenDevice) -> KernelRecord:
    """Linear programs to object code. May be called from several threads at once."""
    lowered, cost = made
    GlobalCounters.kernels_compiled += 1
    phases, binaries = [], []
    for phase in lowered.phases:
        source = device.renderer.render(phase.name, phase.program)
        show_phase(phase, source)
        binaries.append(device.compiler.compile(source))
        show_assembly(device.compiler, source, binaries[-1])
        names = sorted({n.arg[0] for n in phase.program if n.op is Ops.DEFINE_VAR})
        phases.append(
            PhaseRecord(
                phase.name,
                phase.buffers,
                tuple(map(variable_number, names)),
                phase.tasks,
                phase.block,
                phase.scratch,
                cost.operations // max(1, len(lowered.phases)),
                phase.tensors,
                bool(phase.ends),
            )
        )
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


def _finished(key: str, record: KernelRecord, device: OpenDevice) -> LoadedKernel:
    disk_cache().put("kernel", key, record.pack())
    return load_record(record, device)


def load_record(record: KernelRecord, device: OpenDevice) -> LoadedKernel:
    """A compiled kernel in the device's memory."""
    queue = device.backend.queue
    pairs = zip(record.binaries, record.phases, strict=True)
    return LoadedKernel(record, tuple(queue.load(binary, p.name) for binary, p in pairs))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
