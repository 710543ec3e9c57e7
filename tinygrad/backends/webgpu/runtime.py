"""WebGPU's compiler, memory and queue.

What is submitted runs in order, and kernels of one pass see each other's writes, so a segment is
one pass and one submission. Numbers that kernels take besides buffers lie in one uniform buffer a
segment, which is written when they change.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tinygrad.backends.blocks import Blocks
from tinygrad.backends.interface import Launch
from tinygrad.backends.presence import wait_until
from tinygrad.backends.webgpu.device import Connection
from tinygrad.base.errors import CompileError
from tinygrad.base.helpers import Recent, round_up
from tinygrad.base.windows import whole_window

KEPT = 1 << 30  # bytes of freed buffers
PIPELINES = 256  # that were compiled and are not loaded yet
MARKS = "beginning_of_pass_write_index", "end_of_pass_write_index"  # of a clock
WORD = 4  # bytes; buffers are read and written in these


@dataclass(frozen=True, eq=False)
class WebGPUFunction:
    """A pipeline, and the facts from the first line of its source: for each buffer the bytes of an
    element, the bytes of all, and the windows through which it is seen; the number of variables."""

    name: str
    pipeline: Any
    layout: Any
    buffers: list[tuple[int, int, list[int]]]
    variables: int

    @property
    def given(self) -> int:
        """The bytes that it is given besides buffers."""
        return round_up(8 * self.variables + 4 * len(self.buffers) + 4, 16)


class WebGPUCompiler:
    """The driver compiles; the binary is the source, which is checked here."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._made: Recent[bytes, WebGPUFunction] = Recent(PIPELINES)
        self._layouts: dict[int, Any] = {}

    @property
    def version(self) -> str:
        return f"wgpu {self.connection.wgpu.__version__} {self.connection.target.features}"

    def compile(self, source: str) -> bytes:
        binary = source.encode()
        self._made[binary] = self.build(source)
        return binary

    def function(self, binary: bytes) -> WebGPUFunction:
        return self._made.pop(binary, None) or self.build(binary.decode())

    def build(self, source: str) -> WebGPUFunction:
        """Raises `CompileError` with the driver's words and the source."""
        device, wgpu = self.connection.device, self.connection.wgpu
        facts = json.loads(source.partition("\n")[0].removeprefix("// "))
        name = source.partition(") fn ")[2].partition("(")[0]
        with self.connection.lock:
            layout = self._layout(sum(len(windows) for *_, windows in facts["buffers"]))
            whole = device.create_pipeline_layout(bind_group_layouts=[layout])
            try:
                shader = {"module": device.create_shader_module(code=source), "entry_point": name}
                pipeline = device.create_compute_pipeline(layout=whole, compute=shader)
            except wgpu.GPUError as error:
                raise CompileError(f"[compile] WGSL, kernel {name}: {error}\n{source}") from error
        return WebGPUFunction(name, pipeline, layout, facts["buffers"], facts["variables"])

    def _layout(self, buffers: int) -> Any:
        if buffers not in self._layouts:
            visible = self.connection.wgpu.ShaderStage.COMPUTE
            entries = [
                {"binding": i, "visibility": visible, "buffer": {"type": kind}}
                for i, kind in enumerate(["storage"] * buffers + ["uniform"])
            ]
            create = self.connection.device.create_bind_group_layout
            self._layouts[buffers] = create(entries=entries)
        return self._layouts[buffers]

    def disassemble(self, binary: bytes) -> str:
        """What the driver makes of it is its own: the source."""
        return binary.decode()


class Place(NamedTuple):
    """A handle: a buffer and the byte in it where the handle begins."""

    buffer: Any
    offset: int = 0


class WebGPUMemory:
    """Buffers of one device, read and written in whole words. All are held here: else the garbage
    collector would finalize a buffer together with the object that frees it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        refusal, largest = connection.wgpu.GPUError, connection.target.largest_buffer
        self.blocks = Blocks[Any](self._make, self._release, refusal, KEPT, largest)
        self._held: dict[int, Any] = {}

    def _make(self, size: int) -> Any:
        usage = "STORAGE|COPY_SRC|COPY_DST"
        made = self.connection.device.create_buffer(size=size, usage=usage)
        self._held[id(made)] = made
        return made

    def _release(self, buffer: Any) -> None:
        self._held.pop(id(buffer)).destroy()

    def allocate(self, nbytes: int) -> Place:
        with self.connection.told(f"[allocate] {nbytes:,} bytes"):
            return Place(self.blocks.take(nbytes)[0])

    def free(self, handle: Place, nbytes: int) -> None:
        self.blocks.keep(handle.buffer, handle.buffer.size)

    def write(self, handle: Place, data: memoryview, offset: int = 0) -> None:
        begin, raw = handle.offset + offset, data.cast("B")
        first, last = begin // WORD * WORD, round_up(begin + len(raw), WORD)
        if last - first != len(raw):  # words that it shares keep their other bytes
            held = bytearray(self._words(handle.buffer, first, last))
            held[begin - first : begin - first + len(raw)] = raw
            begin, raw = first, memoryview(held)
        if raw:
            with self.connection.told("[write]"):
                self.connection.device.queue.write_buffer(handle.buffer, begin, raw)

    def read(self, handle: Place, nbytes: int, offset: int = 0) -> memoryview:
        begin = handle.offset + offset
        first, last = begin // WORD * WORD, round_up(begin + nbytes, WORD)
        if not nbytes:
            return memoryview(b"")
        return self._words(handle.buffer, first, last)[begin - first :][:nbytes]

    def _words(self, buffer: Any, first: int, last: int) -> memoryview:
        with self.connection.told("[read]"):
            queue = self.connection.device.queue
            return memoryview(queue.read_buffer(buffer, first, last - first)).cast("B")

    def view(self, handle: Place, offset: int) -> Place:
        return Place(handle.buffer, handle.offset + offset)

    def borrow(self, data: memoryview) -> None:
        """Buffers are the driver's own."""

    def address(self, handle: Place) -> None:
        return None


class WebGPUQueue:
    """Runs kernels in order."""

    def __init__(self, connection: Connection, compiler: WebGPUCompiler) -> None:
        self.connection, self.compiler = connection, compiler
        self.is_busy = False  # whether something was submitted since the last wait
        self.waiting = ThreadPoolExecutor(1)
        self.mark = connection.device.create_buffer(size=WORD, usage="COPY_SRC|STORAGE")

    def load(self, binary: bytes, name: str) -> WebGPUFunction:
        return self.compiler.function(binary)

    def segment(self, launches: Sequence[Launch]) -> WebGPUSegment:
        return WebGPUSegment(self, launches)

    def synchronize(self) -> None:
        """Reads a word: when it is there, all that was submitted before has run."""
        if self.is_busy:
            with self.connection.told("[synchronize]"):
                asked = self.waiting.submit(self.connection.device.queue.read_buffer, self.mark)
                wait_until(asked.done, self.connection.presence.label)
                asked.result()
            self.is_busy = False


class WebGPUSegment:
    """A list of kernels. What each is bound to stays until a run binds other buffers."""

    def __init__(self, queue: WebGPUQueue, launches: Sequence[Launch]) -> None:
        self.queue, self.launches = queue, tuple(launches)
        self.connection = connection = queue.connection
        step = connection.limits["min-uniform-buffer-offset-alignment"]
        sizes = (round_up(launch.function.given, step) for launch in launches)
        *self.starts, total = itertools.accumulate(sizes, initial=0)
        self.numbers = np.zeros(max(total, 16), np.uint8)
        kinds = "UNIFORM|COPY_DST"
        with connection.told("[prepare kernels]"):
            self.given = connection.device.create_buffer(size=self.numbers.nbytes, usage=kinds)
        self.places: list[list[Place]] = [[] for _ in launches]
        self.values: list[int] | None = None
        self.groups: list[Any] = [None] * len(launches)

    def run(
        self, buffers: Sequence[Place], values: Sequence[int], timed: bool = False
    ) -> list[float]:
        device, numbers = self.connection.device, range(len(self.launches))
        with self.connection.told("[run kernels]"):
            if self._bind(buffers, list(values)):
                device.queue.write_buffer(self.given, 0, self.numbers)
            if timed:
                has_clock = "timestamp-query" in device.features
                return self._timed() if has_clock else [self._timed_here(n) for n in numbers]
            self._submit(numbers)
        return []

    def _submit(self, numbers: Iterable[int], **options: Any) -> None:
        """These kernels, in one pass."""
        device, self.queue.is_busy = self.connection.device, True
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass(**options)
        for number in numbers:
            launch = self.launches[number]
            compute.set_pipeline(launch.function.pipeline)
            compute.set_bind_group(0, self.groups[number])
            compute.dispatch_workgroups(*launch.grid)
        compute.end()
        device.queue.submit([encoder.finish()])

    # ---- binding ---------------------------------------------------------------------------------

    def _bind(self, buffers: Sequence[Place], values: list[int]) -> bool:
        """Binds kernels whose buffers changed anew. Returns whether the numbers changed."""
        changed = values != self.values
        for number, launch in enumerate(self.launches):
            places = [buffers[position] for position in launch.buffers]
            if places != self.places[number]:
                self._bind_buffers(number, places)
                self.places[number], changed = places, True
            if values != self.values and launch.values:
                own = np.array([values[position] for position in launch.values], np.int64)
                start = self.starts[number]
                self.numbers[start : start + own.nbytes] = own.view(np.uint8)
        self.values = values
        return changed

    def _bind_buffers(self, number: int, places: Sequence[Place]) -> None:
        """Binds each buffer from the last aligned place before its data, and no further than is
        used."""
        launch, limits = self.launches[number], self.connection.limits
        function, step = launch.function, limits["min-storage-buffer-offset-alignment"]
        entries, steps = [], []
        nothing = {"buffer": self.queue.mark, "offset": 0, "size": WORD}
        window = whole_window(self.connection.target.window_limit)
        for place, (itemsize, nbytes, windows) in zip(places, function.buffers, strict=True):
            start = place.offset // step * step
            before = place.offset - start
            end = min(start + round_up(before + nbytes, WORD), place.buffer.size)
            steps.append(before // itemsize)
            for begin in (start + window * number for number in windows):
                here = {"buffer": place.buffer, "offset": begin, "size": min(window, end - begin)}
                entries.append(here if begin < end else nothing)
        own = {"buffer": self.given, "offset": self.starts[number], "size": function.given}
        self.groups[number] = self.connection.device.create_bind_group(
            layout=function.layout,
            entries=[{"binding": i, "resource": e} for i, e in enumerate([*entries, own])],
        )
        first = self.starts[number] + 8 * function.variables
        self.numbers[first : first + 4 * len(steps)] = np.array(steps, np.int32).view(np.uint8)

    # ---- time ------------------------------------------------------------------------------------

    def _timed_here(self, number: int) -> float:
        """Seconds of one kernel by the host's clock, the way there and back included."""
        self.queue.synchronize()
        begin = time.perf_counter()
        self._submit([number])
        self.queue.synchronize()
        return time.perf_counter() - begin

    def _timed(self) -> list[float]:
        """Seconds of each kernel by the device's clock: a pass a kernel."""
        device, count = self.connection.device, len(self.launches)
        queries = device.create_query_set(type="timestamp", count=2 * count)
        for number in range(count):
            marks = dict(zip(MARKS, (2 * number, 2 * number + 1), strict=True))
            self._submit([number], timestamp_writes={"query_set": queries, **marks})
        resolved = device.create_buffer(size=16 * count, usage="QUERY_RESOLVE|COPY_SRC")
        encoder = device.create_command_encoder()
        encoder.resolve_query_set(queries, 0, 2 * count, resolved, 0)
        device.queue.submit([encoder.finish()])
        times = np.frombuffer(device.queue.read_buffer(resolved), np.uint64).astype(np.int64)
        return [int(after - before) * 1e-9 for before, after in times.reshape(-1, 2)]
