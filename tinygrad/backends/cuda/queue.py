"""Runs kernels on a card, in order, on one stream.

A segment is launched kernel by kernel the first time, since most run once. From the second time on
it is a graph of the driver: one call launches all its kernels, and only those whose buffers or
values are others than last time are told so before.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.backends.cuda.device import Connection
from tinygrad.backends.cuda.driver import Pointer
from tinygrad.backends.cuda.tensors import TensorMaps
from tinygrad.backends.interface import ALIGNMENT, Launch
from tinygrad.backends.llvm_dialect import dialect_of
from tinygrad.base.errors import ArgumentError, CompileError

LOG = 16 << 10  # bytes of the driver's words on a module
ERROR_LOG, ERROR_SIZE = 5, 6  # options of a module
MOST_SHARED = 8  # attribute of a function: bytes of memory that a launch may lend


@dataclass(frozen=True, eq=False)
class CUDAFunction:
    """A kernel of a module that is on the card."""

    name: str
    handle: int


class CUDAQueue:
    """Runs kernels in order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def load(self, binary: bytes, name: str) -> CUDAFunction:
        """The driver compiles PTX here, and keeps what it made on the disk."""
        self.connection.enter()
        module, entry = self._module(binary, name), name.encode()
        handle = self.connection.made("cuModuleGetFunction", module, entry, what=f"load {name}")
        function = CUDAFunction(name, handle)
        self.connection.retire(function, "cuModuleUnload", module)
        return function

    def _module(self, binary: bytes, name: str) -> int:
        log = ctypes.create_string_buffer(LOG)
        options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_SIZE)
        values = (Pointer * 2)(ctypes.addressof(log), LOG)
        try:
            where = binary, len(options), options, values
            return self.connection.made("cuModuleLoadDataEx", *where, what=f"load {name}")
        except CompileError as failed:
            words = f"{failed}\n{log.value.decode(errors='replace')}"
            raise CompileError(f"{words}\n{binary.decode(errors='replace')}") from failed

    def segment(self, launches: Sequence[Launch]) -> CUDASegment:
        return CUDASegment(self.connection, launches)

    def synchronize(self) -> None:
        self.connection.synchronize()


class Prepared:
    """A launch, with the table of what its kernel is given."""

    def __init__(self, connection: Connection, launch: Launch) -> None:
        self.connection, self.launch = connection, launch
        count = max(1, len(launch.buffers) + len(launch.values))
        self.table = (ctypes.c_int64 * count)()
        first = ctypes.addressof(self.table)
        self.tensors = TensorMaps(connection, launch.tensors)
        places = [*(first + 8 * i for i in range(count)), *self.tensors.places]
        self.pointers = (Pointer * len(places))(*places)
        self.given: list[int] = []
        given = {"shared": self._lend(), "arguments": ctypes.addressof(self.pointers)}
        shape = {"grid": launch.grid, "block": launch.block}
        self.node = connection.node(function=launch.function.handle, **shape, **given)

    def _lend(self) -> int:
        """Bytes of shared memory that the launch must provide: all of them, if they are more than a
        function may declare."""
        function, size = self.launch.function, self.launch.scratch
        if size <= dialect_of(self.connection.target).static_local:
            return 0
        what = f"lend {size:,} bytes of shared memory to {function.name}"
        self.connection.enter()
        self.connection.call("cuFuncSetAttribute", function.handle, MOST_SHARED, size, what=what)
        return size

    def fill(self, buffers: Sequence[int], values: Sequence[int]) -> bool:
        """Writes the table. Returns whether anything differs from the last run."""
        found = [buffers[position] for position in self.launch.buffers]
        if any(address % ALIGNMENT for address in found):
            raise ArgumentError(f"[run] buffers at {found}; they must lie on {ALIGNMENT} bytes")
        found += [values[position] for position in self.launch.values]
        changed = found != self.given
        if changed:
            self.tensors.fill(found)
            self.given, self.table[: len(found)] = found, [*found]
        return changed

    def start(self) -> None:
        """Puts the kernel into the stream."""
        node, launch = self.node, self.launch
        what = f"launch {launch.function.name} with grid {launch.grid}, block {launch.block}"
        shape = *node.grid, *node.block, node.shared
        where = self.connection.stream, node.arguments, None
        self.connection.call("cuLaunchKernel", node.function, *shape, *where, what=what)


class CUDASegment:
    """A list of kernels."""

    def __init__(self, connection: Connection, launches: Sequence[Launch]) -> None:
        self.connection = connection
        self.lock = threading.Lock()  # tables stay until the kernels are in the stream
        self.kernels = [Prepared(connection, launch) for launch in launches]
        self.stale: set[int] = set()  # those that the graph knows with other arguments
        self.table: list[int] = []
        self.runs = 0
        self.graph: Graph | None = None
        self.events: list[int] = []

    def run(
        self, buffers: Sequence[int], values: Sequence[int], timed: bool = False
    ) -> list[float]:
        with self.lock:
            self.connection.enter()
            if (table := [*buffers, *values]) != self.table:
                kernels = enumerate(self.kernels)
                self.stale |= {number for number, k in kernels if k.fill(buffers, values)}
                self.table = table
            if timed:
                return self._run_timed()
            self.runs += 1
            if self.runs == 1 or len(self.kernels) == 1:
                for kernel in self.kernels:
                    kernel.start()
            else:
                self._run_graph()
        return []

    def _run_graph(self) -> None:
        if self.graph is None:
            self.graph = Graph(self.connection, [kernel.node for kernel in self.kernels])
            self.stale.clear()
        while self.stale:
            number = self.stale.pop()
            self.graph.update(number, self.kernels[number].node)
        self.graph.launch()

    def _run_timed(self) -> list[float]:
        """Runs the kernels one after the other, with events between them; the seconds from event to
        event."""
        connection, stream = self.connection, self.connection.stream
        while len(self.events) <= len(self.kernels):
            self.events.append(connection.event(timing=True))
        connection.call("cuEventRecord", self.events[0], stream)
        for kernel, event in zip(self.kernels, self.events[1:], strict=True):
            kernel.start()
            connection.call("cuEventRecord", event, stream)
        connection.call("cuEventSynchronize", self.events[-1], what="waiting for timed kernels")
        seconds = []
        for start, end in itertools.pairwise(self.events):
            took = ctypes.c_float()
            connection.call("cuEventElapsedTime", ctypes.byref(took), start, end)
            seconds.append(took.value * 1e-3)
        return seconds


class Graph:
    """Kernels that the driver launches in one call, one after the other."""

    def __init__(self, connection: Connection, nodes: Sequence[ctypes.Structure]) -> None:
        self.connection = connection
        graph = connection.made("cuGraphCreate", 0)  # it stays, since its nodes are named later
        self.nodes: list[int] = []
        for node in nodes:
            before = (Pointer * 1)(*self.nodes[-1:])
            where = graph, before, len(self.nodes[-1:]), ctypes.byref(node)
            self.nodes.append(connection.made("cuGraphAddKernelNode", *where))
        self.handle = connection.made("cuGraphInstantiateWithFlags", graph, 0)
        connection.retire(self, "cuGraphExecDestroy", self.handle)
        connection.retire(self, "cuGraphDestroy", graph)

    def update(self, number: int, node: ctypes.Structure) -> None:
        """Other arguments for one of the kernels, from the next launch on."""
        where = self.handle, self.nodes[number], ctypes.byref(node)
        self.connection.call("cuGraphExecKernelNodeSetParams", *where)

    def launch(self) -> None:
        """Puts all kernels into the stream."""
        what = f"launch {len(self.nodes)} kernels"
        self.connection.call("cuGraphLaunch", self.handle, self.connection.stream, what=what)
