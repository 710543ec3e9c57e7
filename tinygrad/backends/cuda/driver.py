"""NVIDIA's driver library through ctypes: the functions that are used, and what their results mean.

Nothing else of NVIDIA's is needed. A function is looked up under the name that has the behaviour
we rely on (`_v2` and so on), which later drivers keep.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from tinygrad.base.errors import DeviceError

LINUX = ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
NAMES = ("nvcuda.dll",) if sys.platform == "win32" else LINUX
OLDEST = 11_040
"""Of CUDA 11.4, whose drivers instantiate graphs as we do."""

Pointer, Address, Size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
Int, Uint, Float, Text = ctypes.c_int, ctypes.c_uint, ctypes.c_float, ctypes.c_char_p


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v1: a kernel of a graph."""

    _fields_ = (
        ("function", Pointer),
        ("grid", Uint * 3),
        ("block", Uint * 3),
        ("shared", Uint),
        ("arguments", Pointer),
        ("extra", Pointer),
    )


_Out = ctypes.POINTER(Pointer)
_Int = ctypes.POINTER(Int)
_HANDLE = (  # functions of one handle
    "cuCtxSetCurrent cuStreamQuery cuStreamSynchronize cuEventSynchronize cuEventDestroy_v2 "
    "cuModuleUnload cuGraphDestroy cuGraphExecDestroy"
)
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_HANDLE.split(), (Pointer,)),
    "cuInit": (Uint,),
    "cuDriverGetVersion": (_Int,),
    "cuGetErrorName": (Int, ctypes.POINTER(Text)),
    "cuGetErrorString": (Int, ctypes.POINTER(Text)),
    "cuDeviceGetCount": (_Int,),
    "cuDeviceGet": (_Int, Int),
    "cuDeviceGetAttribute": (_Int, Int, Int),
    "cuDeviceTotalMem_v2": (ctypes.POINTER(Size), Int),
    "cuDevicePrimaryCtxRetain": (_Out, Int),
    "cuStreamCreate": (_Out, Uint),
    "cuEventCreate": (_Out, Uint),
    "cuEventRecord": (Pointer, Pointer),
    "cuEventElapsedTime": (ctypes.POINTER(Float), Pointer, Pointer),
    "cuMemAlloc_v2": (ctypes.POINTER(Address), Size),
    "cuMemFree_v2": (Address,),
    "cuMemHostAlloc": (_Out, Size, Uint),
    "cuMemcpyHtoDAsync_v2": (Address, Pointer, Size, Pointer),
    "cuMemcpyDtoHAsync_v2": (Pointer, Address, Size, Pointer),
    "cuMemcpyPeerAsync": (Address, Pointer, Address, Pointer, Size, Pointer),
    "cuModuleLoadDataEx": (_Out, Pointer, Uint, Pointer, Pointer),
    "cuModuleGetFunction": (_Out, Pointer, Text),
    "cuFuncSetAttribute": (Pointer, Int, Int),
    "cuLaunchKernel": (Pointer, *(Uint,) * 7, Pointer, Pointer, Pointer),
    "cuGraphCreate": (_Out, Uint),
    "cuGraphAddKernelNode": (_Out, Pointer, Pointer, Size, Pointer),
    "cuGraphInstantiateWithFlags": (_Out, Pointer, ctypes.c_uint64),
    "cuGraphExecKernelNodeSetParams": (Pointer, Pointer, Pointer),
    "cuGraphLaunch": (Pointer, Pointer),
}

OWN = {name: name for name in FUNCTIONS}

OUT_OF_MEMORY, NOT_READY = 2, 600
REFUSED = {200, 209, 218, 220, 221, 222, 223}
"""What a module that can't be compiled gives."""

LOST = {46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999}
"""Results after which a context can't be used again: an access outside of memory, a kernel that ran
too long, an instruction that isn't one, memory that is broken, and the like."""

ADVICE = {
    700: "a kernel touched memory that is not its own",
    702: "a kernel ran longer than the system allows",
    716: "a kernel read or wrote at an address that its size doesn't divide",
}


def open_library() -> Any:
    """The driver's library. Raises `DeviceError` if there is none."""
    source = "it comes with NVIDIA's driver for the card, in a container with --gpus all"
    return first_library(NAMES, "device CUDA: no NVIDIA driver here", source)


def first_library(names: Sequence[str], absent: str, source: str) -> Any:
    """The first of these libraries that is on this machine. DeviceError, which says what is absent
    and what it comes with, if there is none."""
    reasons = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    raise DeviceError(f"{absent} ({reasons[0]}); {source}. DEV=CPU needs none")


class Driver:
    """The library, its functions declared, and initialised. Another maker's library may have them
    by other `names`; what it is for is `device` then."""

    def __init__(self, library: Any, device: str = "CUDA", names: dict[str, str] = OWN) -> None:
        self.device, self.library = device, library
        self.functions = {n: self.declared(own, FUNCTIONS[n]) for n, own in names.items()}
        if code := self.functions["cuInit"](0):
            raise DeviceError(f"device {device}: the driver doesn't start: {self.words(code)}")
        self.version = self.number("cuDriverGetVersion", Int)
        if self.version < OLDEST:
            known = version_text(self.version)
            raise DeviceError(
                f"device {device}: driver too old: it knows CUDA {known}; needed is one for CUDA "
                f"{version_text(OLDEST)}"
            )

    def declared(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """A function of the library that takes these and returns a result's number."""
        function = getattr(self.library, name, None)
        if function is None:
            raise DeviceError(f"device {self.device}: driver too old: it lacks {name}")
        function.argtypes, function.restype = arguments, Int
        return function

    def number(self, name: str, kind: Any, *arguments: Any) -> Any:
        """What a function writes where its first argument points to."""
        found = kind()
        code = self.functions[name](ctypes.byref(found), *arguments)
        if code:
            raise DeviceError(f"device {self.device}: {name} fails: {self.words(code)}")
        return found.value

    def words(self, code: int) -> str:
        """A result as the driver calls it; its number, where this driver doesn't know it."""
        name, meaning = Text(), Text()
        self.functions["cuGetErrorName"](code, ctypes.byref(name))
        self.functions["cuGetErrorString"](code, ctypes.byref(meaning))
        known = (name.value or b"error").decode(), (meaning.value or b"unknown").decode()
        return f"{known[0]} {code} ({known[1]})"


def version_text(version: int) -> str:
    """12040 → "12.4"."""
    return f"{version // 1000}.{version % 1000 // 10}"
