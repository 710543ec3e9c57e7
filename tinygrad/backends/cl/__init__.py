"""The CL device: OpenCL through pyopencl, on whatever driver the machine has.

device   finds a device and describes it as a `Target`
runtime  compiler, memory and queue
"""

from __future__ import annotations

from typing import Any

from tinygrad.backends.c_dialect import OPENCL, OPENCL_HALF
from tinygrad.backends.c_family import CRenderer
from tinygrad.backends.cl.device import connect
from tinygrad.backends.cl.runtime import CLCompiler, CLMemory, CLQueue
from tinygrad.backends.interface import Backend

__all__ = ["open_device"]


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """OpenCL device number `index`, accelerators first. Raises `DeviceError` if there is none."""
    connection = connect(index)
    target = connection.target
    renderer = CRenderer(OPENCL_HALF if "float16" in target.dtypes else OPENCL)
    memory = CLMemory(connection)
    made = renderer, CLCompiler(connection), memory, CLQueue(connection)
    return Backend(target, *made, memory.copy_from)
