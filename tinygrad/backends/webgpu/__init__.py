"""The WEBGPU device: WGSL through wgpu, on Vulkan, Metal or DirectX; on a machine without a card,
on Mesa's Vulkan for the processor.

device   finds an adapter and describes it as a `Target`
runtime  compiler, memory and queue
"""

from __future__ import annotations

from typing import Any

from tinygrad.backends.interface import Backend
from tinygrad.backends.webgpu.device import connect
from tinygrad.backends.webgpu.runtime import WebGPUCompiler, WebGPUMemory, WebGPUQueue
from tinygrad.backends.wgsl import WGSLRenderer

__all__ = ["open_device"]


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """Adapter number `index`, cards first. Raises `DeviceError` if there is none."""
    connection = connect(index)
    compiler = WebGPUCompiler(connection)
    memory, queue = WebGPUMemory(connection), WebGPUQueue(connection, compiler)
    return Backend(connection.target, WGSLRenderer(connection.target), compiler, memory, queue)
