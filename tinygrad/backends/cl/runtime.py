"""OpenCL's compiler, memory and queue.

All commands go through one queue and run in order, so a block may be reused as soon as it is
freed; only copies from device to device have a queue of their own, so that kernels go on beside
them. A driver does not keep the buffers that are set as arguments: the segment does.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygrad.backends.blocks import Blocks
from tinygrad.backends.cl.device import Connection
from tinygrad.backends.interface import Launch, Memory
from tinygrad.backends.presence import wait_until
from tinygrad.base.errors import CompileError, OutOfMemory
from tinygrad.base.helpers import Recent

KEPT_FRACTION = 4  # of the device's memory at most a quarter lies in freed blocks
SOURCES = 64  # remembered for `disassemble`


class CLCompiler:
    """Compiles with the driver; the binary is the driver's own."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._sources: Recent[bytes, str] = Recent(SOURCES)

    @property
    def version(self) -> str:
        device = self.connection.device
        options = " ".join(self.connection.options)
        return f"{device.platform.version} {device.driver_version} {device.name} {options}"

    def compile(self, source: str) -> bytes:
        cl = self.connection.cl
        program = build(self.connection, cl.Program(self.connection.context, source), source)
        binary = bytes(next(filter(None, program.get_info(cl.program_info.BINARIES))))
        self._sources[binary] = source
        return binary

    def disassemble(self, binary: bytes) -> str:
        """OpenCL has no disassembler: the source, where this process compiled it."""
        return self._sources.get(binary, "(no listing: OpenCL binaries are the driver's own)")


def build(connection: Connection, program: Any, source: str = "") -> Any:
    """`program` ready to run. Raises `CompileError` with the driver's words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyopencl warns whenever a driver says anything
        try:
            options, devices = list(connection.options), [connection.device]
            return program.build(options=options, devices=devices, cache_dir=False)
        except connection.cl.Error as error:
            raise CompileError(f"[compile] OpenCL: {error}\n{source}") from error


@dataclass(frozen=True, eq=False)
class Place:
    """A handle: a buffer and the byte in it where the handle begins."""

    buffer: Any
    offset: int = 0


class CLMemory:
    """Buffers of one device."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        limit = connection.device.global_mem_size // KEPT_FRACTION
        refusal, largest = connection.cl.Error, connection.device.max_mem_alloc_size
        self.blocks: Blocks[Any] = Blocks(self._make, self._release, refusal, limit, largest)

    def _make(self, size: int) -> Any:
        cl = self.connection.cl
        return cl.Buffer(self.connection.context, cl.mem_flags.READ_WRITE, size)

    def _release(self, buffer: Any) -> None:
        buffer.release()

    def allocate(self, nbytes: int) -> Place:
        try:
            return Place(self.blocks.take(nbytes)[0])
        except self.connection.cl.Error as error:
            most = self.connection.device.max_mem_alloc_size
            raise OutOfMemory(
                f"[allocate] {nbytes:,} bytes on {self.connection.presence.label} ({error}); a "
                f"buffer takes at most {most:,}"
            ) from error

    def free(self, handle: Place, nbytes: int) -> None:
        self.blocks.keep(handle.buffer, handle.buffer.size)

    def write(self, handle: Place, data: memoryview, offset: int = 0) -> None:
        if data.nbytes:
            source = np.frombuffer(data, np.uint8)
            self._copy(handle.buffer, source, dst_offset=handle.offset + offset)

    def read(self, handle: Place, nbytes: int, offset: int = 0) -> bytearray:
        received = bytearray(nbytes)
        if nbytes:
            target = np.frombuffer(received, np.uint8)
            self._copy(target, handle.buffer, src_offset=handle.offset + offset)
        return received

    def copy_from(self, handle: Place, other: Memory, source: Place, nbytes: int) -> None:
        """Copies bytes from another device: directly within one context, else through the host."""
        assert isinstance(other, CLMemory)
        connection = self.connection
        if connection.context != other.connection.context:
            self.write(handle, memoryview(other.read(source, nbytes)))
            return
        places = {"src_offset": source.offset, "dst_offset": handle.offset, "byte_count": nbytes}
        connection.cl.enqueue_copy(connection.copies, handle.buffer, source.buffer, **places).wait()

    def _copy(self, target: Any, source: Any, **where: int) -> None:
        queue = self.connection.queue
        wait(self.connection)  # a copy that blocks would not hear Ctrl-C
        self.connection.cl.enqueue_copy(queue, target, source, is_blocking=True, **where)

    def view(self, handle: Place, offset: int) -> Place:
        return Place(handle.buffer, handle.offset + offset)

    def borrow(self, data: memoryview) -> None:
        """A card has memory of its own."""

    def address(self, handle: Place) -> None:
        return None


def wait(connection: Connection) -> None:
    """Waits until all commands are done. DeviceError if one takes longer than DEVICE_TIMEOUT, or
    failed: then, as nobody knows what it has written, from now on."""
    cl, queue, label = connection.cl, connection.queue, connection.presence.label
    marker = cl.enqueue_marker(queue)
    queue.flush()
    complete = cl.command_execution_status.COMPLETE
    wait_until(lambda: marker.command_execution_status <= complete, label)
    if (status := marker.command_execution_status) < 0:
        connection.presence.lost = f"a command failed with code {status}; what it wrote is unknown"
        connection.presence.check()


@dataclass(frozen=True)
class CLFunction:
    """A kernel of a program that is on the device."""

    name: str
    program: Any


class CLQueue:
    """Runs kernels in order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def load(self, binary: bytes, name: str) -> CLFunction:
        cl = self.connection.cl
        program = cl.Program(self.connection.context, [self.connection.device], [binary])
        return CLFunction(name, build(self.connection, program))

    def segment(self, launches: Sequence[Launch]) -> CLSegment:
        return CLSegment(self.connection, launches)

    def synchronize(self) -> None:
        wait(self.connection)


class CLSegment:
    """A list of kernels. Each launch has a kernel object of its own, whose arguments stay set."""

    def __init__(self, connection: Connection, launches: Sequence[Launch]) -> None:
        self.connection = connection
        self.lock = threading.Lock()  # arguments stay set until the kernel is in the queue
        self.launches = tuple(launches)
        kernel = connection.cl.Kernel
        self.kernels = [kernel(each.function.program, each.function.name) for each in launches]
        self.known: list[list[Any]] = [
            [None] * (len(launch.buffers) + len(launch.values)) for launch in launches
        ]
        self.sizes = [
            tuple(n * m for n, m in zip(each.grid, each.block, strict=True)) for each in launches
        ]

    def run(
        self, buffers: Sequence[Any], values: Sequence[int], timed: bool = False
    ) -> list[float]:
        cl, queue = self.connection.cl, self.connection.queue
        events = []
        with self.lock:
            for number, launch in enumerate(self.launches):
                self._set_arguments(number, buffers, values)
                kernel, size = self.kernels[number], self.sizes[number]
                events.append(cl.enqueue_nd_range_kernel(queue, kernel, size, launch.block))
        queue.flush()
        if not timed:
            return []
        cl.wait_for_events(events)
        return [(event.profile.end - event.profile.start) * 1e-9 for event in events]

    def _set_arguments(self, number: int, buffers: Sequence[Place], values: Sequence[int]) -> None:
        """Sets the arguments that differ from the last run: a buffer and its offset, or a value."""
        launch, kernel, known = self.launches[number], self.kernels[number], self.known[number]
        count = len(launch.buffers)
        for i, position in enumerate(launch.buffers):
            place = buffers[position]
            if known[i] is not place:
                kernel.set_arg(2 * i, place.buffer)
                kernel.set_arg(2 * i + 1, np.int64(place.offset))
                known[i] = place
        for i, position in enumerate(launch.values, count):
            value = values[position]
            if known[i] != value:
                kernel.set_arg(count + i, np.int64(value))
                known[i] = value
