"""AMD's runtime library, HIP, through ctypes. It has the functions of NVIDIA's driver by names of
its own, with the same arguments and results, so what calls those serves both: here are the names.
A context is a device's number.
"""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any

from tinygrad.backends.amd.target import CHIPS, chip_of, chip_target
from tinygrad.backends.cuda.device import NON_BLOCKING, Connection
from tinygrad.backends.cuda.driver import Driver, first_library
from tinygrad.base.errors import DeviceError

LIBRARIES = {"win32": ("amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll")}
LINUX = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so")
PROPERTIES = ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties")
ROOM = 8192  # bytes that surely hold a device's properties, in any version of the library

SAME = (
    "Init DriverGetVersion StreamQuery StreamSynchronize EventRecord EventSynchronize "
    "EventElapsedTime MemcpyPeerAsync ModuleLoadDataEx ModuleUnload ModuleGetFunction "
    "FuncSetAttribute GraphCreate GraphAddKernelNode GraphInstantiateWithFlags GraphDestroy "
    "GraphExecKernelNodeSetParams GraphLaunch GraphExecDestroy"
)
OTHERS = {
    "cuGetErrorName": "hipDrvGetErrorName",
    "cuGetErrorString": "hipDrvGetErrorString",
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuDeviceTotalMem_v2": "hipDeviceTotalMem",
    "cuCtxSetCurrent": "hipSetDevice",
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuEventCreate": "hipEventCreateWithFlags",
    "cuEventDestroy_v2": "hipEventDestroy",
    "cuMemAlloc_v2": "hipMalloc",
    "cuMemFree_v2": "hipFree",
    "cuMemHostAlloc": "hipHostMalloc",
    "cuMemcpyHtoDAsync_v2": "hipMemcpyHtoDAsync",
    "cuMemcpyDtoHAsync_v2": "hipMemcpyDtoHAsync",
    "cuLaunchKernel": "hipModuleLaunchKernel",
}
NAMES = {f"cu{name}": f"hip{name}" for name in SAME.split()} | OTHERS


class KernelNode(ctypes.Structure):
    """hipKernelNodeParams: the fields of CUDA's, in another order."""

    _fields_ = (
        ("block", ctypes.c_uint * 3),
        ("extra", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("arguments", ctypes.c_void_p),
        ("shared", ctypes.c_uint),
    )


def open_library() -> Any:
    """The runtime library. Raises `DeviceError` if there is none."""
    source = "it comes with AMD's ROCm, in a container with --device=/dev/kfd --device=/dev/dri"
    names = LIBRARIES.get(sys.platform, LINUX)
    return first_library(names, "device AMD: no HIP library here", source)


def connect(index: int) -> Connection:
    """Card number `index` of this machine."""
    library = open_library()
    driver = Driver(library, "AMD", NAMES)
    count = driver.number("cuDeviceGetCount", ctypes.c_int)
    if index >= count:
        names = ", ".join(f"AMD:{i} ({architecture_of(library, i)})" for i in range(count))
        raise DeviceError(f"device AMD:{index}: there is no such card; there are: {names}")
    architecture = architecture_of(library, index)
    chip = chip_of(architecture)
    if chip is None:
        legal = ", ".join(f"{chip.name}*" for chip in CHIPS)
        name = architecture or "unknown"
        raise DeviceError(f"device AMD:{index}: its chip is {name}; legal are {legal}")
    target = chip_target(chip, architecture)
    memory = driver.number("cuDeviceTotalMem_v2", ctypes.c_size_t, index)
    connection = Connection(driver, f"AMD:{index}", target, index, memory, node=KernelNode)
    connection.enter()
    connection.stream = connection.made("cuStreamCreate", NON_BLOCKING)
    return connection


def architecture_of(library: Any, index: int) -> str:
    """A chip's name, such as gfx1100. It is somewhere in the properties, whose layout depends on
    the version of the library. The last word that looks like a chip's name is it: an earlier one
    may be a part of the card's name."""
    found = next(getattr(library, name) for name in PROPERTIES if hasattr(library, name))
    found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_int), ctypes.c_int
    properties = ctypes.create_string_buffer(ROOM)
    if found(properties, index):
        return ""
    words: list[bytes] = re.findall(rb"gfx[0-9a-f]+", properties.raw)
    return words[-1].decode() if words else ""
