"""The interpreter's compiler, memory and queue."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinygrad.backends.interface import Launch
from tinygrad.backends.interpreter.operations import NAMESPACE
from tinygrad.base.errors import CompileError, DeviceError, OutOfMemory
from tinygrad.base.helpers import free_memory
from tinygrad.base.settings import SETTINGS

Point = tuple[int, int, int]
LARGE = 1 << 28  # bytes from which on the machine is asked whether it has them


def _out_of_memory(nbytes: int) -> OutOfMemory:
    return OutOfMemory(
        f"[allocate] {nbytes:,} bytes: {free_memory():,} are free; free tensors, or use "
        "smaller ones"
    )


class PythonCompiler:
    """Source → binary, which is the source again, found to be Python."""

    version = "1"

    def compile(self, source: str) -> bytes:
        try:
            compile(source, "<kernel>", "exec")
        except SyntaxError as error:
            raise CompileError(f"[compile] Python: {error}\n{source}") from error
        return source.encode()

    def disassemble(self, binary: bytes) -> str:
        return binary.decode()


class PythonMemory:
    """Blocks are bytearrays; a handle is a memoryview of one, and so is a view of a handle."""

    def allocate(self, nbytes: int) -> memoryview:
        if nbytes >= LARGE and nbytes > free_memory():
            raise _out_of_memory(nbytes)
        try:
            return memoryview(bytearray(b"\xff") * max(1, nbytes))
        except (MemoryError, OverflowError) as error:
            raise _out_of_memory(nbytes) from error

    def free(self, handle: memoryview, nbytes: int) -> None:
        """Nothing: Python frees a block when its last view goes."""

    def write(self, handle: memoryview, data: memoryview, offset: int = 0) -> None:
        source = memoryview(data).cast("B")
        handle[offset : offset + len(source)] = source

    def read(self, handle: memoryview, nbytes: int, offset: int = 0) -> bytearray:
        return bytearray(handle[offset : offset + nbytes])

    def view(self, handle: memoryview, offset: int) -> memoryview:
        return handle[offset:]

    def borrow(self, data: memoryview) -> memoryview:
        return data

    def address(self, handle: memoryview) -> int:
        return int(np.frombuffer(handle, np.uint8).ctypes.data)


class PythonQueue:
    """Calls functions, one task or work-item after the other."""

    def load(self, binary: bytes, name: str) -> Callable[..., Any]:
        namespace: dict[str, Any] = dict(NAMESPACE)
        exec(compile(binary.decode(), f"<kernel {name}>", "exec"), namespace)
        return namespace[name]  # type: ignore[no-any-return]

    def segment(self, launches: Sequence[Launch]) -> PythonSegment:
        return PythonSegment(launches)

    def synchronize(self) -> None:
        """Nothing: runs are over when they return."""


class PythonSegment:
    """A list of kernels."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = tuple(launches)

    def run(
        self, buffers: Sequence[Any], values: Sequence[int], timed: bool = False
    ) -> list[float]:
        seconds = []
        with at_most(SETTINGS["DEVICE_TIMEOUT"].value):
            for launch in self.launches:
                start = time.perf_counter()
                given = [buffers[i] for i in launch.buffers], [values[i] for i in launch.values]
                run_kernel(launch, *given)
                seconds.append(time.perf_counter() - start)
        return seconds if timed else []


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in this thread after so many seconds, whatever Python code it runs; 0
    means never."""
    if not seconds:
        yield
        return
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    given = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(TimeoutError)
    timer = threading.Timer(seconds, raise_in, given)
    timer.start()
    try:
        yield
    except TimeoutError:
        raise TimeoutError(f"stopped after {seconds} s (DEVICE_TIMEOUT)") from None
    finally:
        timer.cancel()
        timer.join()
        raise_in(given[0], None)  # what has not arrived doesn't


def run_kernel(launch: Launch, buffers: Sequence[Any], values: Sequence[int]) -> None:
    """Runs every group of the grid; the lanes of a group meet at barriers."""
    function = launch.function
    waits = inspect.isgeneratorfunction(function)
    for group in _points(launch.grid):
        memories: dict[str, memoryview] = {}
        runs = (function(buffers, values, group, lane, memories) for lane in _points(launch.block))
        if waits:
            _in_step(list(runs))
        else:
            for _ in runs:
                pass


def _points(sizes: Point) -> Iterator[Point]:
    """All positions, the first axis fastest."""
    x, y, z = sizes
    return ((i, j, k) for k, j, i in itertools.product(range(z), range(y), range(x)))


def _in_step(lanes: list[Iterator[Any]]) -> None:
    """Run each lane to its next barrier in turn, until all are through. One that waits for a signal
    says which; it goes on before others leave their barrier. DeviceError if all wait for good."""
    while lanes:
        there, going, before = [], lanes, list[Any]()
        while going:
            found = [(lane, next(lane, lanes)) for lane in going]
            there += [lane for lane, said in found if said is None]
            waiting = [(lane, said) for lane, said in found if said is not None]
            going = [lane for lane, said in waiting if said is not lanes]
            said = [each for _, each in waiting if each is not lanes]
            if going and said == before:
                raise DeviceError(f"[PYTHON] {len(going)} lanes wait for signals that nobody gives")
            before = said
        lanes = there
