"""Blocks of a device's memory that were freed and are kept, so that the next one costs no call of
its driver. What is kept is bounded, and given back oldest first.

Whoever uses this says how a block is made and how it is given back; nothing here knows a driver.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tinygrad.base.errors import OutOfMemory
from tinygrad.base.helpers import round_up
from tinygrad.base.locks import if_free
from tinygrad.base.settings import SETTINGS

Block = TypeVar("Block")

UNIT = 512  # blocks are multiples of this
CLASSES_PER_OCTAVE = 8  # so that rounding up wastes at most an eighth


def size_class(nbytes: int, unit: int = UNIT) -> int:
    """The size of the block for `nbytes`: one of few sizes, so that freed blocks fit again, and a
    multiple of `unit`.

    >>> size_class(1), size_class(1_000_000)
    (512, 1048576)
    """
    octave = 1 << (max(nbytes, 1).bit_length() - 1)
    return round_up(max(nbytes, 1), max(unit, octave // CLASSES_PER_OCTAVE))


class Blocks(Generic[Block]):
    """A pool of blocks. `make(size)` raises `refusal` if the driver has no more memory; `release`
    gives a block back to the driver. At most `limit` bytes are kept. A block has at most `largest`
    bytes (0: any number): sizes are not rounded up beyond that, and larger requests are refused."""

    def __init__(
        self,
        make: Callable[[int], Block],
        release: Callable[[Block], None],
        refusal: type[Exception],
        limit: int,
        largest: int = 0,
    ) -> None:
        self.make, self.release, self.refusal, self.limit = make, release, refusal, limit
        self.largest = largest
        self.kept = 0  # bytes
        self._freed: OrderedDict[int, list[Block]] = OrderedDict()  # by size, oldest first
        self._returned: deque[tuple[Block, int]] = deque()  # freed, not yet sorted into the lists
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> tuple[Block, int]:
        """A block of at least `nbytes` bytes, and its size. If the driver refuses, it gets back
        everything that is kept, and is asked again for no more than is needed."""
        if 0 < self.largest < nbytes:
            raise OutOfMemory(f"[allocate] {nbytes:,} bytes; a buffer takes {self.largest:,}")
        size = size_class(nbytes)
        if 0 < self.largest < size:
            size = max(self.largest // UNIT * UNIT, nbytes)
        with self._lock:
            self._sort_returned()
            if found := self._freed.get(size):
                self.kept -= size
                return found.pop(), size
        try:
            return self.make(size), size
        except self.refusal:
            self.trim(0)
        size = round_up(max(nbytes, 1), UNIT)
        return self.make(size), size

    def keep(self, block: Block, size: int) -> None:
        """Returns a block of this size that is no longer needed. A finaliser may call it at any
        moment, so it never waits."""
        self._returned.append((block, size))
        if_free(self._lock, self._sort_returned)

    def trim(self, limit: int) -> None:
        """Gives blocks back to the driver until at most `limit` bytes are kept."""
        with self._lock:
            self._sort_returned()
            self._give_back(limit)

    def _sort_returned(self) -> None:
        """Moves returned blocks into the lists; the lock is held."""
        while self._returned:
            block, size = self._returned.popleft()
            self._freed.setdefault(size, []).append(block)
            self._freed.move_to_end(size)
            self.kept += size
        self._give_back(self.limit if SETTINGS["LRU"] else 0)

    def _give_back(self, limit: int) -> None:
        while self.kept > limit and self._freed:
            size, blocks = next(iter(self._freed.items()))
            if blocks:
                self.kept -= size
                self.release(blocks.pop())
            else:
                del self._freed[size]
