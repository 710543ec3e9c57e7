"""The METAL device: Apple's GPUs, through Metal, which is called by ctypes alone.

objc     messages to Objective-C objects
device   finds a device, describes it as a `Target`, and knows what went wrong on it
runtime  compiler, memory and queue
"""

from __future__ import annotations

from typing import Any

from tinygrad.backends.c_dialect import METAL, METAL_BFLOAT
from tinygrad.backends.c_family import CRenderer
from tinygrad.backends.interface import Backend
from tinygrad.backends.metal.device import connect, describe
from tinygrad.backends.metal.runtime import MetalCompiler, MetalMemory, MetalQueue

__all__ = ["open_device"]


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """GPU number `index`, the system's default first. Raises `DeviceError` if there is none."""
    connection = connect(index)
    target = describe(connection)
    renderer = CRenderer(METAL_BFLOAT if "CAST_BFLOAT16" in target.native else METAL)
    memory = MetalMemory(connection)
    return Backend(target, renderer, MetalCompiler(connection), memory, MetalQueue(connection))
