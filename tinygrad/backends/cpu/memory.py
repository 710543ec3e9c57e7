"""The bytes of the CPU device: aligned blocks, kept after use, zero-copy to read.

A handle is the block's address, an int, so that a launch table is written without looking
anything up and memory that is not ours (`from_blob`, NumPy arrays) is a handle as it is.
Freed blocks are kept by size class: fresh pages cost a page fault each, which for a large array
is more than the work on it. What is kept is bounded and given back, oldest first. Blocks shorter
than a huge page lie side by side in huge pages: a model has hundreds of them, and a core that went
through more memory than it has addresses of pages for would wait for each.
"""

from __future__ import annotations

import functools
import os
from collections import OrderedDict, deque
from pathlib import Path

import numpy as np

from tinygrad.backends import blocks
from tinygrad.backends.cpu.cut_files import check, cut, readers
from tinygrad.backends.cpu.pages import HUGE_PAGE, PAGE, Pages, view_bytes
from tinygrad.backends.interface import ALIGNMENT
from tinygrad.base.errors import ArgumentError, OutOfMemory
from tinygrad.base.helpers import free_memory, round_up
from tinygrad.base.locks import ForkSafeLock, if_free
from tinygrad.base.settings import SETTINGS

SLAB = 16 << 20  # bytes of addresses; blocks shorter than a huge page are cut from such
SMALL = 32 << 10  # the largest block whose memory is never given back


@functools.lru_cache(1024)  # a program asks for the same few again and again
def size_class(nbytes: int) -> int:
    """The size of the block that serves `nbytes`: a multiple of 64, or of a page."""
    small = blocks.size_class(nbytes, ALIGNMENT)
    return small if small <= SMALL else blocks.size_class(nbytes, PAGE)


def physical_memory() -> int:
    """Bytes of memory that this process may hope for: the machine's, or its container's."""
    limits = [_sysconf_memory()]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def _sysconf_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 46  # not told (Windows): the system itself will say no


LARGE = 1 << 28  # bytes from which on the machine is asked whether it has them


class HostMemory:
    """Allocates host memory. `keep_fraction` of `capacity` may lie in freed blocks."""

    def __init__(self, capacity: int | None = None, keep_fraction: float = 0.25) -> None:
        self.capacity = physical_memory() if capacity is None else capacity
        self.keep_limit = int(self.capacity * keep_fraction)
        self.live = 0  # bytes of the blocks in use
        self.kept = 0  # bytes of the freed large blocks
        self._lock = ForkSafeLock()
        self._sizes: dict[int, int] = {}  # handle in use → size class
        self._small: dict[int, list[int]] = {}  # size class → freed handles
        self._large: dict[int, list[int]] = {}
        self._oldest: OrderedDict[int, int] = OrderedDict()  # those of `_large` with memory → size
        self._pages: dict[int, Pages] = {}  # large handle → pages of its own, or the slab's
        self._slabs: list[Pages] = []
        self._slab_used = SLAB
        self._returned: deque[int] = deque()  # freed, not yet sorted into the lists

    def allocate(self, nbytes: int) -> int:
        """A block of at least `nbytes` bytes, not zeroed when it was used before."""
        size = size_class(nbytes)
        with self._lock.now:
            if self._returned:
                self._sort_returned()
            handle = self._take_small(size) if size <= SMALL else self._take_large(nbytes, size)
            self._sizes[handle] = size
            self.live += size
        return handle

    def free(self, handle: int, nbytes: int = 0) -> None:
        """Take back a block. May be called by a finalizer at any moment, so it never waits. A small
        one, which is kept in any case, is sorted in when the next is wanted."""
        self._returned.append(handle)
        if nbytes > SMALL:
            if_free(self._lock.now, self._sort_returned)

    def trim(self, limit: int = 0) -> None:
        """Give freed large blocks back to the system until at most `limit` bytes are kept."""
        with self._lock.now:
            self._sort_returned()
            self._give_back(limit)

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        source = memoryview(data).cast("B")
        if source.nbytes:
            try:
                readers.append(None)
                view_bytes(handle + offset, source.nbytes)[:] = source
            finally:
                readers.pop()
            if cut:
                check([self.borrow(source)])

    def read(self, handle: int, nbytes: int, offset: int = 0) -> memoryview:
        """The bytes themselves: writes through the view, or by kernels, are seen by both."""
        if cut:
            check([handle + offset])
        return view_bytes(handle + offset, nbytes)

    def view(self, handle: int, offset: int) -> int:
        return handle + offset

    def borrow(self, data: memoryview) -> int:
        return int(np.frombuffer(data, np.uint8).ctypes.data)

    def address(self, handle: int) -> int:
        return handle

    def _take_small(self, size: int) -> int:
        freed = self._small.get(size)
        return freed.pop() if freed else self._cut(size)

    def _cut(self, size: int) -> int:
        """The next `size` bytes of a slab."""
        begin = round_up(self._slab_used, PAGE if size > SMALL else ALIGNMENT)
        if begin + size > SLAB:
            self._slabs.append(self._map(SLAB, SLAB))
            begin = 0
        self._slab_used = begin + size
        return self._slabs[-1].address + begin

    def _take_large(self, nbytes: int, size: int) -> int:
        freed = self._large.get(size)
        if freed:
            handle = freed.pop()
            self.kept -= self._oldest.pop(handle, 0)
            return handle
        if self.live + self.kept + size > self.capacity:
            self._give_back(max(0, self.capacity - self.live - size))
        if size >= LARGE and size > free_memory():
            self._give_back(0)
        if self.live + size > self.capacity or (size >= LARGE and size > free_memory()):
            raise self._out_of_memory(nbytes)
        if size < HUGE_PAGE:
            handle = self._cut(size)
            self._pages[handle] = self._slabs[-1]
            return handle
        pages = self._map(nbytes, size)
        self._pages[pages.address] = pages
        return pages.address

    def _map(self, nbytes: int, size: int) -> Pages:
        try:
            return Pages(size, huge=True)
        except MemoryError:
            self._give_back(0)
        try:
            return Pages(size, huge=True)
        except MemoryError as error:
            raise self._out_of_memory(nbytes) from error

    def _out_of_memory(self, nbytes: int) -> OutOfMemory:
        return OutOfMemory(
            f"[allocate] {nbytes:,} bytes: {self.live:,} bytes are in use and the machine "
            f"has {self.capacity:,}; free tensors, or use smaller ones"
        )

    def _sort_returned(self) -> None:
        """Put returned blocks into the lists; the lock is held."""
        while self._returned:
            handle = self._returned.popleft()
            size = self._sizes.pop(handle, 0)
            if not size:
                raise ArgumentError(f"[free] {handle:#x} is not a block in use: freed twice?")
            self.live -= size
            if size <= SMALL:
                self._small.setdefault(size, []).append(handle)
                continue
            self._large.setdefault(size, []).append(handle)
            self._oldest[handle] = size
            self.kept += size
        limit = self.keep_limit if SETTINGS["LRU"].value else 0
        if self.kept > limit:
            self._give_back(limit)

    def _give_back(self, limit: int) -> None:
        while self.kept > limit and self._oldest:
            handle, size = self._oldest.popitem(last=False)
            if size < HUGE_PAGE:  # its place in the slab stays
                self._pages[handle].forget(handle, size)
            else:
                self._large[size].remove(handle)
                self._pages.pop(handle).close()
            self.kept -= size
        if not self._oldest:
            self.kept = 0  # a Ctrl-C came while one was counted
