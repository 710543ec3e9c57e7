"""The BARE device of the tests: WebGPU with the limits that the standard promises and no feature,
asked of the driver so, which then holds us to them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tinygrad.backends.interface import Backend
from tinygrad.backends.webgpu import device
from tinygrad.backends.webgpu.runtime import WebGPUCompiler, WebGPUMemory, WebGPUQueue
from tinygrad.backends.wgsl import WGSLRenderer

PROMISED = {
    "max-buffer-size": 256 << 20,
    "max-storage-buffer-binding-size": 128 << 20,
    "max-storage-buffers-per-shader-stage": 8,
    "max-compute-workgroup-storage-size": 16 << 10,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroups-per-dimension": 65535,
    "min-storage-buffer-offset-alignment": 256,
    "min-uniform-buffer-offset-alignment": 256,
}


def open_device(index: int = 0, cache: Any = None) -> Backend:
    wgpu, adapters = device.find_adapters()
    bare = [
        SimpleNamespace(
            info=adapter.info,
            features=frozenset(),
            limits=PROMISED,
            request_device_sync=adapter.request_device_sync,
        )
        for adapter in adapters
    ]
    with patch.object(device, "find_adapters", lambda: (wgpu, bare)):
        connection = device.connect(index)
    compiler = WebGPUCompiler(connection)
    memory, queue = WebGPUMemory(connection), WebGPUQueue(connection, compiler)
    return Backend(connection.target, WGSLRenderer(connection.target), compiler, memory, queue)
