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
from tinygrad.backends.cuda.driver import KernelNode, Pointer
from tinygrad.backends.interface import Launch
from tinygrad.backends.llvm_dialect import PTX
from tinygrad.base.errors import CompileError

LEAST_GRAPH = 2  # kernels that are worth a graph
LOG = 16 << 10  # bytes of the driver's words on a module
INFO_LOG, INFO_SIZE, ERROR_LOG, ERROR_SIZE = 3, 4, 5, 6  # options of a module
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
        connection = self.connection
        connection.enter()
        module = self._module(binary, name)
        handle = connection.made("cuModuleGetFunction", module, name.encode(), what=f"load {name}")
        function = CUDAFunction(name, handle)
        connection.retire(function, "cuModuleUnload", module)
        return function

    def _module(self, binary: bytes, name: str) -> int:
        info, error = ctypes.create_string_buffer(LOG), ctypes.create_string_buffer(LOG)
        options = (ctypes.c_int * 4)(INFO_LOG, INFO_SIZE, ERROR_LOG, ERROR_SIZE)
        places = ctypes.addressof(info), LOG, ctypes.addressof(error), LOG
        values = (Pointer * 4)(*places)
        try:
            where = binary, len(options), options, values
            return self.connection.made("cuModuleLoadDataEx", *where, what=f"load {name}")
        except CompileError as failed:
            log = b"\n".join((error.value, info.value)).decode(errors="replace").strip()
            text = binary.rstrip(b"\0").decode(errors="replace")
            raise CompileError(f"{failed}\n{log}\n{text}") from failed

    def segment(self, launches: Sequence[Launch]) -> CUDASegment:
        return CUDASegment(self.connection, launches)

    def synchronize(self) -> None:
        self.connection.synchronize()


class CUDASegment:
    """A list of kernels, with one table of what they are given."""

    def __init__(self, connection: Connection, launches: Sequence[Launch]) -> None:
        self.connection = connection
        self.launches = tuple(launches)
        self.lock = threading.Lock()  # the table stays until the kernels are in the stream
        self.positions = [(*each.buffers, *each.values) for each in launches]
        counts = [len(positions) for positions in self.positions]
        self.starts = list(itertools.accumulate(counts, initial=0))
        total = max(1, self.starts[-1])
        self.table = (ctypes.c_int64 * total)()
        first = ctypes.addressof(self.table)
        self.pointers = (Pointer * total)(*(first + 8 * i for i in range(total)))
        self.given: list[tuple[int, ...]] = [()] * len(self.launches)
        self.stale: set[int] = set()  # launches that the graph knows with other arguments
        self.runs = 0
        self.graph: Graph | None = None
        self.events: list[int] = []
        self.lent = [self._lent(launch) for launch in launches]

    def run(
        self, buffers: Sequence[int], values: Sequence[int], timed: bool = False
    ) -> list[float]:
        with self.lock:
            self.connection.enter()
            self._fill(buffers, values)
            if timed:
                return self._run_timed()
            self.runs += 1
            if self.runs == 1 or len(self.launches) < LEAST_GRAPH:
                for number in range(len(self.launches)):
                    self._launch(number)
                return []
            if self.graph is None:
                self.graph = Graph(self.connection, [*map(self.node, range(len(self.launches)))])
                self.stale.clear()
            while self.stale:
                number = self.stale.pop()
                self.graph.update(number, self.node(number))
            self.graph.launch(f"{len(self.launches)} kernels")
        return []

    def node(self, number: int) -> KernelNode:
        """A launch as a node of a graph; its arguments are read when it is given to the driver."""
        launch = self.launches[number]
        return KernelNode(
            launch.function.handle,
            launch.grid,
            launch.block,
            self.lent[number],
            ctypes.addressof(self.pointers) + 8 * self.starts[number],
        )

    def _fill(self, buffers: Sequence[int], values: Sequence[int]) -> None:
        """Writes the table; launches that are given something else than last time are stale."""
        for number, launch in enumerate(self.launches):
            found = (
                *[buffers[position] for position in launch.buffers],
                *[values[position] for position in launch.values],
            )
            if found != self.given[number]:
                self.given[number] = found
                start = self.starts[number]
                self.table[start : start + len(found)] = list(found)
                self.stale.add(number)

    def _launch(self, number: int) -> None:
        launch = self.launches[number]
        arguments = ctypes.addressof(self.pointers) + 8 * self.starts[number]
        shape = *launch.grid, *launch.block, self.lent[number]
        self.connection.call(
            "cuLaunchKernel",
            *(launch.function.handle, *shape, self.connection.stream, arguments, None),
            what=f"launch {launch.function.name} with grid {launch.grid}, block {launch.block}",
        )

    def _lent(self, launch: Launch) -> int:
        """Bytes of shared memory that come with the launch: all, where there are more than a
        function may declare."""
        if launch.scratch <= PTX.static_local:
            return 0
        self.connection.enter()
        what = f"lend {launch.scratch:,} bytes of shared memory to {launch.function.name}"
        where = launch.function.handle, MOST_SHARED, launch.scratch
        self.connection.call("cuFuncSetAttribute", *where, what=what)
        return launch.scratch

    def _run_timed(self) -> list[float]:
        """One after the other, with marks between them; the seconds from mark to mark."""
        connection, stream = self.connection, self.connection.stream
        while len(self.events) <= len(self.launches):
            self.events.append(connection.event(timing=True))
        connection.call("cuEventRecord", self.events[0], stream)
        for number in range(len(self.launches)):
            self._launch(number)
            connection.call("cuEventRecord", self.events[number + 1], stream)
        connection.call("cuEventSynchronize", self.events[-1], what="waiting for timed kernels")
        seconds = []
        for start, end in itertools.pairwise(self.events):
            took = ctypes.c_float()
            connection.call("cuEventElapsedTime", ctypes.byref(took), start, end)
            seconds.append(took.value * 1e-3)
        return seconds


class Graph:
    """Kernels that the driver launches in one call, one after the other."""

    def __init__(self, connection: Connection, nodes: Sequence[KernelNode]) -> None:
        self.connection = connection
        graph = connection.made("cuGraphCreate", 0)
        self.nodes: list[int] = []
        for node in nodes:
            before = (Pointer * 1)(*self.nodes[-1:])
            where = graph, before, len(self.nodes[-1:]), ctypes.byref(node)
            self.nodes.append(connection.made("cuGraphAddKernelNode", *where))
        what = f"a graph of {len(nodes)} kernels"
        self.handle = connection.made("cuGraphInstantiateWithFlags", graph, 0, what=what)
        connection.call("cuGraphDestroy", graph)
        connection.retire(self, "cuGraphExecDestroy", self.handle)

    def update(self, number: int, node: KernelNode) -> None:
        """Other arguments for one of the kernels, from the next launch on."""
        where = self.handle, self.nodes[number], ctypes.byref(node)
        self.connection.call("cuGraphExecKernelNodeSetParams", *where)

    def launch(self, what: str) -> None:
        """Puts all kernels into the stream."""
        stream = self.connection.stream
        self.connection.call("cuGraphLaunch", self.handle, stream, what=f"launch {what}")
