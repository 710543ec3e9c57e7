"""Finds an OpenCL device and describes it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tinygrad.base.errors import DeviceError
from tinygrad.base.target import ORDINARY, Numerics, Target

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
STORAGE = ("float16", "bfloat16", "fp8e4m3", "fp8e5m2")
# OpenCL promises 3 ulp for exp2 and the like, which is less than ours give: they are not here.
# half is converted by vload_half and vstore_half, which every device has.
NATIVE = ORDINARY | {"TRUNC", "RECIP", "CAST_HALF"}
EXACT_DIVISION = "-cl-fp32-correctly-rounded-divide-sqrt"
NO_WARNINGS = "-w"
OLDEST = (1, 2)


@dataclass(frozen=True)
class Connection:
    """One device with a context and a queue of commands that run in order."""

    cl: ModuleType
    device: Any
    opened_context: Any
    opened_queue: Any
    target: Target
    options: tuple[str, ...]  # of its compiler
    process: int = field(default_factory=os.getpid)

    @property
    def context(self) -> Any:
        """The context; DeviceError in a forked child."""
        self._check_process()
        return self.opened_context

    @property
    def queue(self) -> Any:
        """The queue; DeviceError in a forked child."""
        self._check_process()
        return self.opened_queue

    def _check_process(self) -> None:
        """The driver's threads don't survive a fork: a child would wait for them for ever."""
        if os.getpid() != self.process:
            raise DeviceError(
                "device CL: this process was forked after the device was opened; legal are "
                "multiprocessing's start method 'spawn', or opening the device in the child only"
            )


def connect(index: int) -> Connection:
    """Device number `index` of this machine."""
    cl, found = find_devices()
    if index >= len(found):
        names = ", ".join(f"CL:{i} ({device.name})" for i, device in enumerate(found))
        raise DeviceError(f"device CL:{index}: there are {names}")
    device = found[index]
    check_version(device)
    context = cl.Context([device])
    queue = cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
    exact = _has(device.single_fp_config, cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)
    options = (NO_WARNINGS, EXACT_DIVISION) if exact else (NO_WARNINGS,)
    return Connection(cl, device, context, queue, describe(cl, device), options)


def check_version(device: Any) -> None:
    """DeviceError if the driver is older than what kernels are written in."""
    words = device.version.split()  # "OpenCL 3.0 PoCL ..."
    version = tuple(int(part) for part in words[1].split(".")[:2])
    if version < OLDEST:
        raise DeviceError(
            f"device CL: the driver of {device.name.strip()} speaks {' '.join(words[:2])}; needed "
            f"is {OLDEST[0]}.{OLDEST[1]}, which a newer driver may have"
        )


def find_devices() -> tuple[ModuleType, list[Any]]:
    """pyopencl, and all devices: those that are not this machine's processor first."""
    try:
        import pyopencl as cl
    except ImportError as error:
        raise DeviceError(
            f"device CL needs pyopencl: pip install 'tinygrad[cl]' ({error})"
        ) from error
    try:
        platforms = cl.get_platforms()
        found = [device for platform in platforms for device in platform.get_devices()]
    except cl.Error as error:
        raise DeviceError(_no_driver(str(error))) from error
    if not found:
        raise DeviceError(_no_driver("no platform has a device"))
    return cl, sorted(found, key=lambda device: _has(device.type, cl.device_type.CPU))


def _no_driver(reason: str) -> str:
    return (
        f"device CL: no OpenCL driver answers ({reason}); install the vendor's, or PoCL for the "
        "processor (Debian: apt-get install pocl-opencl-icd ocl-icd-libopencl1)"
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
