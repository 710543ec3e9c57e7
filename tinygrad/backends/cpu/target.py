"""This machine as a `Target`, found without LLVM where the system tells (Linux).

Elsewhere llvmlite is asked, once. The description holds what changes generated code, so it is
part of every cache key; the number of cores is not, since results must not depend on it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from pathlib import Path

from tinygrad.backends.cpu.features import (
    ALWAYS,
    ARM_CORES,
    ARM_FEATURES,
    DTYPES,
    EXTRA_DTYPES,
    NATIVE_OPS,
    STORAGE_DTYPES,
    X86_CORES,
    X86_FEATURES,
    Core,
)
from tinygrad.backends.without import permitted
from tinygrad.base.settings import SETTINGS
from tinygrad.base.target import Target

MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
CACHES = {
    "l1": 32 << 10,
    "l2": 512 << 10,
    "l3": 16 << 20,
    "line": 64,
}  # where the system doesn't tell


@functools.cache
def host_target() -> Target:
    """The processor that this process runs on."""
    machine = MACHINES.get(platform.machine().lower(), platform.machine().lower())
    maker, listed = host_features(machine)
    present = permitted(listed.union(ALWAYS.get(machine, ())), SETTINGS["CPU_WITHOUT"].value)
    core = choose_core(machine, maker, present)
    cache = cache_sizes()
    return Target(
        device="CPU",
        triple=host_triple(machine),
        cpu=core.cpu,
        features=feature_string(machine, present),
        vector=core.vector,
        registers=core.registers,
        fma_ports=core.fma_ports,
        load_ports=core.load_ports,
        cache_l1=cache["l1"],
        cache_l2=cache["l2"],
        cache_l3=cache["l3"],
        cache_line=cache["line"],
        cores=core_count(),
        dtypes=DTYPES | {name for name, any_of in EXTRA_DTYPES.items() if present & {*any_of}},
        storage_dtypes=STORAGE_DTYPES,
        native=frozenset(
            op for op, any_of in NATIVE_OPS.items() if "" in any_of or present & {*any_of}
        ),
    )


def core_count() -> int:
    """Threads to use: the cores this process may run on, at most CPU_COUNT if that is set."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    limits = [cores, int(SETTINGS["CPU_COUNT"]) or cores, _container_cores() or cores]
    return max(1, min(limits))


def _container_cores() -> int:
    """The processor time a container may use, in cores rounded up; 0: no limit known."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):
        return 0


def host_triple(machine: str) -> str:
    """LLVM's name of machine, system and object format."""
    if sys.platform.startswith("linux"):
        return f"{machine}-unknown-linux-gnu"
    try:
        import llvmlite.binding as llvm
    except ImportError:  # a device that compiles C still wants to know the machine
        return f"{machine}-{sys.platform}"
    return str(llvm.get_process_triple())


def host_features(machine: str) -> tuple[str, set[str]]:
    """The maker's name and the LLVM features that this process may use."""
    if not sys.platform.startswith("linux"):
        try:
            import llvmlite.binding as llvm
        except ImportError:
            return "", set()
        return "", {name for name, have in llvm.get_host_cpu_features().items() if have}
    facts = cpu_facts()
    names = feature_names(machine)
    words = (facts.get("flags") or facts.get("Features") or "").split()
    present = {names[word] for word in words if word in names}
    if "sse4.2" in present:
        present.add("crc32")
    if "amx-tile" in present and not enable_amx():
        present -= {name for name in present if name.startswith("amx-")}
    return facts.get("vendor_id", ""), present


def feature_names(machine: str) -> dict[str, str]:
    """The table from the system's names to LLVM's; empty for machines we know nothing of."""
    return {"x86_64": X86_FEATURES, "aarch64": ARM_FEATURES}.get(machine, {})


def cpu_facts() -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    facts: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if not line.strip() and facts:
                    break
                name, _, value = line.partition(":")
                facts[name.strip()] = value.strip()
    except OSError:
        return {}
    return facts


def feature_string(machine: str, present: set[str]) -> str:
    """Every feature of the table as "+name" or "-name", so that a core's name implies none."""
    known = sorted({*feature_names(machine).values(), *present})
    absent = [f"-{name}" for name in known if name not in present]
    return ",".join(absent + [f"+{name}" for name in known if name in present])


def choose_core(machine: str, maker: str, present: set[str]) -> Core:
    """The first row of the machine's table whose abilities are all present."""
    rows = {"x86_64": X86_CORES, "aarch64": ARM_CORES}.get(machine)
    if rows is None:
        return Core("generic", "", (), 0, 16)
    return next(row for row in rows if row.maker in ("", maker) and present.issuperset(row.needs))


def cache_sizes() -> dict[str, int]:
    """Bytes of the data caches and of a line, as the system lists them."""
    sizes = dict(CACHES)
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size, line = (
                (folder / name).read_text().strip()
                for name in ("level", "type", "size", "coherency_line_size")
            )
        except OSError:
            continue
        if kind != "Instruction" and f"l{level}" in sizes:
            sizes[f"l{level}"] = int(size.rstrip("K")) << 10
            sizes["line"] = int(line)
    return sizes


def enable_amx() -> bool:
    """Ask Linux for the use of AMX tiles: once a process, before its threads are made."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    libc = ctypes.CDLL(None)
    return bool(libc.syscall(arch_prctl, request_permission, tile_data) == 0)
