"""Runs kernels on this machine's cores: loads objects, and runs prepared lists in one call.

A segment is laid out once as an array of records for the native runner; a run writes the pointers
of its buffers and its values into one table and makes one native call. Everything is done when
`run` returns. Segments of one queue run one after the other, whichever threads they come from.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import struct
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.backends.cpu.cut_files import check, cut, readers
from tinygrad.backends.cpu.loader import LoadedObject, load_object
from tinygrad.backends.cpu.pages import Pages
from tinygrad.backends.cpu.patience import Patience
from tinygrad.backends.cpu.pool import Pool
from tinygrad.backends.cpu.runner import Place
from tinygrad.backends.cpu.runner_program import LIST, RECORD
from tinygrad.backends.interface import Launch
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import ceildiv
from tinygrad.base.locks import ForkSafeLock
from tinygrad.base.settings import SPEC

CHUNKS_PER_THREAD = 8  # how finely a kernel's tasks are dealt out, for balance
SHARED_WORK = 2_000  # nanoseconds on one core: below this a kernel stays with the caller
LONG_WORK = 4_000_000_000  # from here on a segment can be left: a thread listens
SLICES = 64  # of a long kernel, for each thread: how soon it can be left
IN_A_MOMENT = contextlib.nullcontext()
WAKING_WORK = 60_000  # nanoseconds of shared kernels in a segment: below this nobody is woken


@dataclass(frozen=True)
class CPUFunction:
    """A kernel in memory: `void kernel(ptr arguments, i64 low, i64 high, ptr scratch)`."""

    name: str
    address: int
    code: LoadedObject  # keeps the code mapped


class CPUQueue:
    """The cores of this machine, as one queue. `place` makes binaries callable."""

    def __init__(self, pool: Pool, place: Place = load_object) -> None:
        self.pool = pool
        self.place = place
        self.lock = ForkSafeLock()
        self.scratch: Pages | None = None
        self.stop = ctypes.c_int32(0)
        self.stop_at = ctypes.addressof(self.stop)
        self.run_list = pool.runner.run_list
        self._loaded: weakref.WeakValueDictionary[tuple[bytes, str], LoadedObject]
        self._loaded = weakref.WeakValueDictionary()

    def load(self, binary: bytes, name: str) -> CPUFunction:
        """The function `name` of an object file; the same object is placed once."""
        code = self._loaded.get((binary, name))
        if code is None:
            code = self.place(binary, (name,))
            for known in code.addresses:
                self._loaded[binary, known] = code
        return CPUFunction(name, code.address(name), code)

    def segment(self, launches: Sequence[Launch]) -> CPUSegment:
        return CPUSegment(self, launches)

    def synchronize(self) -> None:
        """Nothing: runs are over when they return."""

    def scratch_address(self, nbytes: int) -> int:
        """The caller's scratch memory, at least `nbytes`; the lock is held."""
        if self.scratch is None or self.scratch.nbytes < nbytes:
            self.scratch = Pages(nbytes, huge=True)
        if SPEC:  # whoever reads what it has not written gets NaNs
            ctypes.memset(self.scratch.address, 0xFF, nbytes)
        return self.scratch.address


class CPUSegment:
    """A list of kernels, ready to run."""

    def __init__(self, queue: CPUQueue, launches: Sequence[Launch]) -> None:
        self.queue = queue
        self.launches = tuple(launches)
        self.n_buffers = _table_size(launch.buffers for launch in launches)
        self.n_values = _table_size(launch.values for launch in launches)
        self.scratch = max((launch.scratch for launch in launches), default=0)
        shared = [launch for launch in launches if self._is_shared(launch)]
        unknown = any(launch.work == 0 for launch in shared)
        self.wakes = unknown or sum(launch.work for launch in shared) >= WAKING_WORK
        self.shares = bool(shared)
        self.is_long = sum(launch.work for launch in launches) >= LONG_WORK
        self.is_one_call = not self.is_long
        behind = struct.Struct(f"{2 + self.n_buffers + self.n_values}q")
        self._pack_behind = behind.pack_into
        self._lay_out(LIST.size + behind.size)

    def run(
        self,
        buffers: Sequence[int],
        values: Sequence[int],
        timed: bool = False,
        over: list[Any] | None = None,
    ) -> list[float]:
        """Run the kernels in order; with `timed`, return the seconds of each. `over` gets an
        element when they have run (`OneCall`)."""
        if len(buffers) != self.n_buffers or len(values) != self.n_values:
            buffers, values = self._trimmed(buffers, values)
        queue = self.queue
        with queue.lock.now:
            scratch = queue.scratch_address(self.scratch) if self.scratch else 0
            try:
                readers.append(None)
                pool = queue.pool.borrow(queue.lock, self.scratch) if self.shares else 0
                self._pack_behind(self._list, LIST.size, pool, scratch, *buffers, *values)
                if timed or self.is_long:
                    return self._run_watched(timed)
                if over is None:
                    queue.run_list(self._list_at)
                else:
                    over += map(queue.run_list, (self._list_at,))
            finally:
                readers.pop()
                if self.shares:
                    queue.pool.give_back(queue.lock)
                if cut:
                    check(buffers)
        return []

    def _run_watched(self, timed: bool) -> list[float]:
        """Runs kernels that are timed, or that take so long that they may have to be stopped."""
        with Patience(self.queue.stop) if self.is_long else IN_A_MOMENT:
            if timed:
                return self._run_timed()
            self.queue.run_list(self._list_at)
        return []

    def _run_timed(self) -> list[float]:
        """Runs each kernel by a call of its own. Each time includes a quarter of a microsecond for
        the call."""
        seconds = []
        try:
            for number in range(len(self.launches)):
                self._begin_at(number, 1)
                start = time.perf_counter()
                self.queue.run_list(self._list_at)
                seconds.append(time.perf_counter() - start)
        finally:
            self._begin_at(0, len(self.launches))
        return seconds

    def _begin_at(self, number: int, count: int) -> None:
        """Makes the list consist of `count` kernels, from this one on."""
        first = self._records_at + RECORD.size * number
        LIST.pack_into(self._list, 0, first, count, self.queue.stop_at)

    def _is_shared(self, launch: Launch) -> bool:
        enough = launch.work == 0 or launch.work >= SHARED_WORK
        return self.queue.pool.threads > 1 and launch.grid[0] > 1 and enough

    def _lay_out(self, first: int) -> None:
        """Writes the records of the list, behind its `first` bytes, then their argument tables, and
        the positions from which these are filled. All lies close together, because a kernel may
        have displaced it from the caches."""
        given = [
            (*launch.buffers, *(self.n_buffers + value for value in launch.values))
            for launch in self.launches
        ]
        total = sum(map(len, given))
        self._list = ctypes.create_string_buffer(first + RECORD.size * len(given) + 12 * total)
        self._list_at = ctypes.addressof(self._list)
        self._records_at = self._list_at + first
        arguments = self._records_at + RECORD.size * len(given)
        positions = arguments + 8 * total
        for launch, sources in zip(self.launches, given, strict=True):
            facts = launch.function.address, arguments, positions, len(sources)
            RECORD.pack_into(self._list, first, *facts, *self._partition(launch))
            struct.pack_into(f"{len(sources)}i", self._list, positions - self._list_at, *sources)
            first += RECORD.size
            arguments += 8 * len(sources)
            positions += 4 * len(sources)
        self._begin_at(0, len(self.launches))

    def _partition(self, launch: Launch) -> tuple[int, int, int, int, int]:
        """The tasks of a kernel, the tasks of a chunk, the number of chunks (0: the caller runs all
        of them), the number of ranges, and whether to wake helpers. Chunks decide who runs a task,
        never what it computes, so results don't depend on the number of threads."""
        tasks = launch.grid[0]
        if launch.grid[1:] != (1, 1):
            raise ArgumentError(f"[segment] a CPU grid has one axis, not {launch.grid}")
        is_long = launch.work >= LONG_WORK
        if not self._is_shared(launch):
            return tasks, ceildiv(tasks, SLICES if is_long else 1), 0, 0, 0
        threads = self.queue.pool.threads
        chunk = ceildiv(tasks, (SLICES if is_long else CHUNKS_PER_THREAD) * threads)
        chunks = ceildiv(tasks, chunk)
        return tasks, chunk, chunks, min(threads, chunks), int(self.wakes)

    def _trimmed(
        self, buffers: Sequence[int], values: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Tables without entries that no kernel uses. Too short ones are an error."""
        for kind, given, needed in (
            ("buffers", buffers, self.n_buffers),
            ("values", values, self.n_values),
        ):
            if len(given) < needed:
                raise ArgumentError(f"[run] the segment needs {needed} {kind}, not {len(given)}")
        return buffers[: self.n_buffers], values[: self.n_values]


def _table_size(uses: Iterable[tuple[int, ...]]) -> int:
    """How many entries a table needs so that every position in `uses` exists."""
    return 1 + max(itertools.chain.from_iterable(uses), default=-1)
