"""The SMALL device of the tests: WebGPU whose bindings hold half a kilobyte, so that arrays are
bound in windows and kernels run in portions."""

from __future__ import annotations

import dataclasses
from typing import Any

from tinygrad.backends.interface import Backend
from tinygrad.backends.webgpu.device import connect
from tinygrad.backends.webgpu.runtime import WebGPUCompiler, WebGPUMemory, WebGPUQueue
from tinygrad.backends.wgsl import WGSLRenderer

WINDOW = 512


def open_device(index: int = 0, cache: Any = None) -> Backend:
    found = connect(index)
    target = dataclasses.replace(found.target, window_limit=WINDOW)
    connection = dataclasses.replace(found, target=target)
    compiler = WebGPUCompiler(connection)
    memory, queue = WebGPUMemory(connection), WebGPUQueue(connection, compiler)
    return Backend(target, WGSLRenderer(target), compiler, memory, queue)
