"""The CUDA device: PTX from LLVM, run through the driver's library alone (no toolkit).

Read in this order: `target` (NVIDIA's chips, as data); `compiler` (LLVM IR → PTX); `driver` (the
library's functions); `device` (a card, its failures); `memory` (its blocks, copies); `tensors`
(buffers as tensors of which boxes are copied); `queue` (kernels, graphs of them).
"""

from __future__ import annotations

from typing import Any

from tinygrad.backends.cuda.compiler import PTXCompiler
from tinygrad.backends.cuda.device import connect
from tinygrad.backends.cuda.memory import CUDAMemory
from tinygrad.backends.cuda.queue import CUDAQueue
from tinygrad.backends.interface import Backend
from tinygrad.backends.llvm_ir import LLVMRenderer

__all__ = ["open_device"]


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """CUDA card number `index`. Raises `DeviceError` if there is none, or no driver for it."""
    connection = connect(index)
    target, memory = connection.target, CUDAMemory(connection)
    made = LLVMRenderer(target), PTXCompiler(target), memory, CUDAQueue(connection)
    return Backend(target, *made, memory.copy_from)
