"""Finds an OpenCL device and describes it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tinygrad.backends.interface import INTEGERS
from tinygrad.backends.presence import Presence
from tinygrad.base.errors import DeviceError
from tinygrad.base.target import ORDINARY, Numerics, Target

STORAGE = ("float16", "bfloat16", "fp8e4m3", "fp8e5m2")
# OpenCL promises 3 ulp for exp2 and the like, which is less than ours give: they are not here.
# half is converted by vload_half and vstore_half, which every device has.
NATIVE = ORDINARY | {"PICK", "TRUNC", "ROUND", "RECIP", "CAST_HALF"}
EXACT_DIVISION = "-cl-fp32-correctly-rounded-divide-sqrt"
NO_WARNINGS = "-w"
OLDEST = (1, 2)
MISCOMPILES = "portable computing language"  # barriers in a branch (docs/backends/cl.md)


@dataclass(frozen=True)
class Connection:
    """One device with a context and a queue of commands that run in order."""

    cl: ModuleType
    device: Any
    opened_context: Any
    opened_queue: Any
    copies: Any  # a queue beside that one
    target: Target
    options: tuple[str, ...]  # of its compiler
    presence: Presence

    @property
    def context(self) -> Any:
        """The context; DeviceError in a forked child."""
        self.presence.check()
        return self.opened_context

    @property
    def queue(self) -> Any:
        """The queue; DeviceError in a forked child."""
        self.presence.check()
        return self.opened_queue


def connect(index: int, name: str = "CL", makers: Sequence[str] = ("",)) -> Connection:
    """Device number `index` among those whose vendor, platform or own name contains one of the
    words `makers`. `name` is what users call such devices."""
    cl, found = find_devices(name)
    mine = [device for device in found if any(maker in who(device) for maker in makers)]
    if index >= len(mine):
        names = ", ".join(f"{name}:{i} ({device.name})" for i, device in enumerate(mine))
        others = ", ".join(device.name for device in found)
        there = names or f"no OpenCL drivers of {makers[0].title()}'s, but {others}"
        raise DeviceError(f"device {name}:{index}: there are {there}")
    device = mine[index]
    check_version(name, device)
    context = context_of(cl, device.platform, device.type)
    queue = cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
    copies = cl.CommandQueue(context, device)
    exact = _has(device.single_fp_config, cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)
    options = (NO_WARNINGS, EXACT_DIVISION) if exact else (NO_WARNINGS,)
    target = describe(cl, device)
    return Connection(cl, device, context, queue, copies, target, options, Presence(name))


@functools.cache
def context_of(cl: ModuleType, platform: Any, kind: int) -> Any:
    """One context for all devices of a driver that are of one kind, so that buffers are copied from
    one to another without the host."""
    return cl.Context([device for device in platform.get_devices() if device.type == kind])


def check_version(name: str, device: Any) -> None:
    """DeviceError if the driver is older than what kernels are written in."""
    words = device.version.split()  # "OpenCL 3.0 PoCL ..."
    version = tuple(int(part) for part in words[1].split(".")[:2])
    if version < OLDEST:
        raise DeviceError(
            f"device {name}: the driver of {device.name.strip()} speaks {' '.join(words[:2])}; "
            f"needed is {OLDEST[0]}.{OLDEST[1]}, which a newer driver may have"
        )


def who(device: Any) -> str:
    """The names of a device's vendor, its platform and itself, in lower case."""
    return f"{device.vendor} {device.platform.name} {device.name}".lower()


def find_devices(name: str = "CL") -> tuple[ModuleType, list[Any]]:
    """pyopencl, and all devices: those that are not this machine's processor first."""
    try:
        import pyopencl as cl
    except ImportError as error:
        raise DeviceError(
            f"device {name} needs pyopencl: pip install 'tinygrad[cl]' ({error})"
        ) from error
    try:
        platforms = cl.get_platforms()
        found = [device for platform in platforms for device in platform.get_devices()]
    except cl.Error as error:
        raise DeviceError(_no_driver(name, str(error))) from error
    if not found:
        raise DeviceError(_no_driver(name, "no platform has a device"))
    return cl, sorted(found, key=lambda device: _has(device.type, cl.device_type.CPU))


def _no_driver(name: str, reason: str) -> str:
    return (
        f"device {name}: no OpenCL driver answers ({reason}); install the vendor's, or PoCL for "
        "the processor (Debian: apt-get install pocl-opencl-icd ocl-icd-libopencl1)"
    )


def describe(cl: ModuleType, device: Any) -> Target:
    """The device in our terms, as it describes itself."""
    extensions = device.extensions.split()
    single = device.single_fp_config
    flags = cl.device_fp_config
    dtypes = {"bool", *INTEGERS, "float32"}
    if "cl_khr_fp64" in extensions or device.double_fp_config:
        dtypes.add("float64")
    if "cl_khr_fp16" in extensions:
        dtypes.add("float16")
    sizes = tuple(device.max_work_item_sizes)
    return Target(
        device="CL",
        cpu=device.name.strip(),
        features=f"{device.platform.version} {device.driver_version}".strip(),
        vector=16,
        registers=64,
        cache_line=device.global_mem_cacheline_size or 64,
        cores=device.max_compute_units,
        has_groups=True,
        group_limit=min(device.max_work_group_size, *sizes[:1]),
        local_memory=device.local_mem_size,
        meets_in_branches=MISCOMPILES not in who(device),
        buffer_limit=device.max_parameter_size // 16,  # a pointer, and where the buffer begins
        largest_buffer=device.max_mem_alloc_size,
        grid_limit=(2**31 - 1, 2**31 - 1, 2**31 - 1),
        dtypes=frozenset(dtypes),
        storage_dtypes=frozenset((*dtypes, *STORAGE)),
        native=NATIVE | ({"MULACC"} if _has(single, flags.FMA) else frozenset()),
        numerics=Numerics(
            nan=_has(single, flags.INF_NAN),
            exact_division=_has(single, flags.CORRECTLY_ROUNDED_DIVIDE_SQRT),
            subnormals=_has(single, flags.DENORM),
        ),
    )


def _has(bits: int, flag: int) -> bool:
    return bool(bits & flag)
