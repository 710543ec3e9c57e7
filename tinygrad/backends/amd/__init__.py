"""The AMD device: code objects from LLVM, run through HIP's runtime library alone (no compiler and
no linker of AMD's).

target    AMD's chips, as data
linker    an object as LLVM makes it → one that can be loaded
compiler  LLVM IR → such an object
driver    HIP's names of the functions that `cuda` calls, and a card that is found by them
"""

from __future__ import annotations

from typing import Any

from tinygrad.backends.amd.compiler import AMDCompiler
from tinygrad.backends.amd.driver import connect
from tinygrad.backends.cuda.memory import CUDAMemory
from tinygrad.backends.cuda.queue import CUDAQueue
from tinygrad.backends.interface import Backend
from tinygrad.backends.llvm_ir import LLVMRenderer

__all__ = ["open_device"]


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """AMD card number `index`. Raises `DeviceError` if there is none, or no driver for it."""
    connection = connect(index)
    target, memory = connection.target, CUDAMemory(connection)
    made = LLVMRenderer(target), AMDCompiler(target), memory, CUDAQueue(connection)
    return Backend(target, *made, memory.copy_from)
