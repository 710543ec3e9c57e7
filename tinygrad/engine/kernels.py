"""Kernels made once: object code and what running it needs, cached in the process and on disk.

The key is the kernel before its recipe, the target, the compiler's version and our own code's
stamp. A warm process finds the object code, and neither lowers nor loads a compiler.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tinygrad.base.settings import BEAM, DEBUG, IGNORE_BEAM_CACHE
from tinygrad.engine.cache import disk_cache, stamped_key
from tinygrad.engine.cold import making, recipes
from tinygrad.engine.devices import OpenDevice
from tinygrad.uop.node import UOp


class PhaseRecord(NamedTuple):
    """One function of a kernel as the cache stores it; its binary is separate."""

    name: str
    buffers: tuple[int, ...]  # slots: the kernel's own, then its temporaries, then fault words
    variables: tuple[int, ...]  # numbers of the kernel's variables
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scratch: int
    work: int
    tensors: tuple[tuple[Any, ...], ...] = ()
    ends: bool = False  # whether tasks beyond a variable's limit do nothing


class KernelRecord(NamedTuple):
    """A compiled kernel: everything that is needed to run it."""

    name: str
    colored: str
    operations: int
    nbytes: int
    temporaries: tuple[int, ...]
    faults: tuple[tuple[str, str], ...]
    phases: tuple[PhaseRecord, ...]
    binaries: tuple[bytes, ...]

    def pack(self) -> bytes:
        """Serialises it: a length, a JSON header, then the binaries."""
        *facts, binaries = self
        text = json.dumps([*facts, [len(b) for b in binaries]]).encode()
        return len(text).to_bytes(4, "little") + text + b"".join(binaries)

    @staticmethod
    def unpack(raw: bytes) -> KernelRecord:
        """The record that `pack` wrote."""
        start = 4 + int.from_bytes(raw[:4], "little")
        *facts, phases, lengths = map(_tuples, json.loads(raw[4:start]))
        ends = itertools.accumulate(lengths, initial=start)
        binaries = tuple(raw[first:end] for first, end in itertools.pairwise(ends))
        made = tuple(PhaseRecord(*phase) for phase in phases)
        return KernelRecord._make((*facts, made, binaries))


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A kernel on a device, ready for a Launch."""

    record: KernelRecord
    functions: tuple[Any, ...]


def kernel_key(ast: UOp, device: OpenDevice) -> str:
    """The key of everything that a kernel's code depends on, as a text that is the same in every
    process."""
    return stamped_key(ast, device.target.key(), device.compiler.version, recipes.recipe_facts(ast))


def load_kernels(
    wanted: Sequence[tuple[UOp | None, str]], device: OpenDevice
) -> dict[str, LoadedKernel] | None:
    """The kernels of all wanted (kernel, key) pairs, by key. The device knows them for as long as
    someone holds them, as plans do.

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
    for key, record in making.compiled(missing, device) if missing else ():
        disk_cache().put("kernel", key, record.pack())
        loaded[key] = load_record(record, device)
    device.kernels.update(loaded)
    return loaded


def load_record(record: KernelRecord, device: OpenDevice) -> LoadedKernel:
    """A compiled kernel in the device's memory."""
    queue = device.backend.queue
    pairs = zip(record.binaries, record.phases, strict=True)
    return LoadedKernel(record, tuple(queue.load(binary, p.name) for binary, p in pairs))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
