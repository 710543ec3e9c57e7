"""The NPY device: buffers are arrays of NumPy's in the host's memory. It runs no kernels: tensors
come here from the host and go to it, and are read here by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.backends.interface import Backend
from tinygrad.backends.null import NullCompiler, NullQueue
from tinygrad.base.dtype import INVERSE_NAMES
from tinygrad.base.errors import DeviceError, OutOfMemory
from tinygrad.base.helpers import free_memory
from tinygrad.base.later import later
from tinygrad.base.target import Target

LARGE = 1 << 28  # bytes from which on the machine is asked whether it has them


class ArrayMemory:
    """A handle is an array, which may have any strides, or other bytes of the host."""

    def allocate(self, nbytes: int) -> Any:
        try:
            if nbytes >= LARGE and nbytes > free_memory():
                raise MemoryError
            return np.empty(nbytes, np.uint8)
        except (MemoryError, ValueError) as error:
            raise OutOfMemory(
                f"[allocate] {nbytes:,} bytes: {free_memory():,} are free; free tensors, or "
                "use smaller ones"
            ) from error

    def free(self, handle: Any, nbytes: int) -> None:
        """Nothing: NumPy frees an array when its last view goes."""

    def write(self, handle: Any, data: memoryview, offset: int = 0) -> None:
        source = memoryview(data).cast("B")
        memoryview(handle).cast("B")[offset : offset + len(source)] = source

    def read(self, handle: Any, nbytes: int, offset: int = 0) -> memoryview:
        """The bytes in row-major order: the memory itself if it has that order, else a copy."""
        if isinstance(handle, np.ndarray) and not handle.flags.c_contiguous:
            size = handle.itemsize
            part = handle.flat[offset // size : (offset + nbytes) // size]
            return np.ascontiguousarray(part).view(np.uint8).data
        if isinstance(handle, np.ndarray):
            handle = handle.reshape(-1).view(np.uint8)
        return memoryview(handle).cast("B")[offset : offset + nbytes]

    def view(self, handle: Any, offset: int) -> Any:
        return memoryview(handle).cast("B")[offset:]

    def borrow(self, data: memoryview) -> Any:
        return data

    def address(self, handle: Any) -> int:
        return int(np.frombuffer(handle, np.uint8).ctypes.data)


DTYPES = frozenset(INVERSE_NAMES)
TARGET = Target("NPY", vector=0, dtypes=DTYPES, storage_dtypes=DTYPES)


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """The arrays of this process. DeviceError for a second one: there is one host."""
    if index:
        raise DeviceError(f"device NPY:{index}: arrays of the host are one device, NPY")
    renderer = later("tinygrad.backends.c_family", "CRenderer")
    return Backend(TARGET, renderer, NullCompiler(), ArrayMemory(), NullQueue())
