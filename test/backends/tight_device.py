"""The TIGHT device of the tests: WebGPU with eight bindings of 16 KiB each, so that what a
kernel's groups need at once may be more than they can see, and with buffers of 512 KiB, so that
temporaries together may be more than one holds."""

from __future__ import annotations

import dataclasses
from typing import Any

from tinygrad.backends.interface import Backend
from tinygrad.backends.webgpu.device import connect
from tinygrad.backends.webgpu.runtime import WebGPUCompiler, WebGPUMemory, WebGPUQueue
from tinygrad.backends.wgsl import WGSLRenderer

BINDINGS, WINDOW, LARGEST = 8, 16 << 10, 512 << 10


def open_device(index: int = 0, cache: Any = None) -> Backend:
    found = connect(index)
    limits = {"buffer_limit": BINDINGS, "window_limit": WINDOW, "largest_buffer": LARGEST}
    target = dataclasses.replace(found.target, **limits)
    connection = dataclasses.replace(found, target=target)
    compiler = WebGPUCompiler(connection)
    memory, queue = WebGPUMemory(connection), WebGPUQueue(connection, compiler)
    return Backend(target, WGSLRenderer(target), compiler, memory, queue)
