"""Metal's compiler, memory and queue.

The compiler is the driver's and takes source; macOS keeps what it made of it, so a binary is the
source itself, found to be right. Memory is shared: the host addresses what the device does, and
must wait before it looks or writes. Commands run in the order in which they were committed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tinygrad.backends.blocks import Blocks
from tinygrad.backends.cpu.pages import view_bytes
from tinygrad.backends.interface import Launch
from tinygrad.backends.metal.device import Connection
from tinygrad.backends.metal.objc import COUNT, ID, Held, Size, Span
from tinygrad.base.errors import CompileError, OutOfMemory

SHARED = 0  # MTLResourceStorageModeShared
DISPATCHES = 512  # in one command buffer: the system ends commands that hold the GPU too long


class MetalCompiler:
    """Compiles with the driver; the binary is the source."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.version = connection, f"Metal {connection.language}"

    def compile(self, source: str) -> bytes:
        self.connection.build(source)
        return source.encode()

    def disassemble(self, binary: bytes) -> str:
        """Machine code is the driver's own: the source."""
        return binary.decode()


@dataclass(frozen=True, eq=False)
class Place:
    """A handle: a buffer, where the host finds its first byte, and the byte where this begins."""

    buffer: Held
    contents: int
    size: int
    offset: int = 0

    def at(self, offset: int = 0) -> int:
        return self.contents + self.offset + offset


class MetalMemory:
    """Buffers of one device that the host addresses."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        objc, device = connection.objc, connection.device.id
        most = objc(device, "maxBufferLength")
        limit = objc(device, "recommendedMaxWorkingSetSize") // 4  # lies in freed blocks
        self.blocks = Blocks[Held](self._make, lambda _: None, OutOfMemory, limit, most)

    def _make(self, size: int) -> Held:
        self.connection.presence.check()
        objc, device = self.connection.objc, self.connection.device.id
        made = objc(device, "newBufferWithLength:options:", size, SHARED)
        if not made:
            raise OutOfMemory(f"[allocate] {size:,} bytes on {self.connection.name}: no room")
        return Held(objc, made)

    def allocate(self, nbytes: int) -> Place:
        buffer, size = self.blocks.take(nbytes)
        return Place(buffer, self.connection.objc(buffer.id, "contents"), size)

    def free(self, handle: Place, nbytes: int) -> None:
        self.blocks.keep(handle.buffer, handle.size)

    def write(self, handle: Place, data: memoryview, offset: int = 0) -> None:
        self.connection.wait()  # kernels may still read what the block held before
        source = memoryview(data).cast("B")
        if source.nbytes:
            view_bytes(handle.at(offset), source.nbytes)[:] = source

    def read(self, handle: Place, nbytes: int, offset: int = 0) -> bytearray:
        self.connection.wait()
        return bytearray(view_bytes(handle.at(offset), nbytes))

    def view(self, handle: Place, offset: int) -> Place:
        return Place(handle.buffer, handle.contents, handle.size, handle.offset + offset)

    def borrow(self, data: memoryview) -> None:
        """Metal takes only whole pages that were mapped, and can't say whether some were."""

    def address(self, handle: Place) -> int:
        return handle.at()


@dataclass(frozen=True)
class MetalFunction:
    """A kernel, compiled for the device; `most` lanes of it fit in a group."""

    name: str
    pipeline: Held
    most: int


class MetalQueue:
    """Runs kernels in order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def load(self, binary: bytes, name: str) -> MetalFunction:
        objc, connection = self.connection.objc, self.connection
        library, error = connection.build(binary.decode()), ID()
        with objc.pool():
            made = objc(library.id, "newFunctionWithName:", objc.string(name))
            function = connection.made(made, f"function {name}")
            method = "newComputePipelineStateWithFunction:error:"
            made = objc(connection.device.id, method, function.id, ctypes.byref(error))
            if not made:
                raise CompileError(f"[load] Metal: {name}: {connection.words(error.value)}")
        return MetalFunction(name, Held(objc, made), objc(made, "maxTotalThreadsPerThreadgroup"))

    def segment(self, launches: Sequence[Launch]) -> MetalSegment:
        return MetalSegment(self.connection, launches)

    def synchronize(self) -> None:
        self.connection.wait()


class MetalSegment:
    """A list of kernels, encoded anew at each run."""

    def __init__(self, connection: Connection, launches: Sequence[Launch]) -> None:
        self.connection, self.launches = connection, tuple(launches)
        for launch in launches:
            lanes, function = prod(launch.block), launch.function
            if lanes > function.most:
                raise CompileError(
                    f"[launch] {function.name}: a group of {lanes} lanes; with the registers that "
                    f"this kernel needs, {connection.name} takes at most {function.most}"
                )

    def run(
        self, buffers: Sequence[Any], values: Sequence[int], timed: bool = False
    ) -> list[float]:
        objc = self.connection.objc
        self.connection.presence.check()
        step = 1 if timed else DISPATCHES
        times = []
        for start in range(0, len(self.launches), step):
            commands = self._send(self.launches[start : start + step], buffers, values)
            if timed:
                self.connection.wait()
                times.append(objc(commands.id, "GPUEndTime") - objc(commands.id, "GPUStartTime"))
        return times

    def _send(
        self, launches: Sequence[Launch], buffers: Sequence[Place], values: Sequence[int]
    ) -> Held:
        """One command buffer for these launches, committed. It keeps the buffers that it uses."""
        objc, connection = self.connection.objc, self.connection
        with objc.pool(), connection.lock:
            made = objc(connection.queue.id, "commandBuffer")
            commands = connection.made(made and objc(made, "retain"), "command buffer")
            encoder = objc(commands.id, "computeCommandEncoder")
            try:
                for launch in launches:
                    self._encode(encoder, launch, buffers, values)
            finally:  # Metal ends a process that leaves one open
                objc(encoder, "endEncoding")
            objc(commands.id, "commit")
            connection.sent(commands)
        return commands

    def _encode(
        self, encoder: int, launch: Launch, buffers: Sequence[Place], values: Sequence[int]
    ) -> None:
        objc, count = self.connection.objc, len(launch.buffers)
        places = [buffers[position] for position in launch.buffers]
        objc(encoder, "setComputePipelineState:", launch.function.pipeline.id)
        ids = (ID * count)(*(place.buffer.id for place in places))
        offsets = (COUNT * count)(*(place.offset for place in places))
        objc(encoder, "setBuffers:offsets:withRange:", ids, offsets, Span(0, count))
        for slot, position in enumerate(launch.values, count):
            value = ctypes.byref(ctypes.c_int64(values[position]))
            objc(encoder, "setBytes:length:atIndex:", value, 8, slot)
        dispatch = "dispatchThreadgroups:threadsPerThreadgroup:"
        objc(encoder, dispatch, Size(*launch.grid), Size(*launch.block))
