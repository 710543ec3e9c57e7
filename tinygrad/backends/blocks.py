"""Blocks of a device's memory that were freed and are kept, so that the next one costs no call of
its driver. What is kept is bounded, and given back oldest first.

Whoever uses this says how a block is made and how it is given back; nothing here knows a driver.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from tinygrad.base.helpers import round_up
from tinygrad.base.settings import SETTINGS

Block = TypeVar("Block")

UNIT = 256  # blocks are multiples of this, so that freed ones fit again


class Blocks(Generic[Block]):
    """`make(size)` raises `refusal` where the driver has no more; `release` gives a block back."""

    def __init__(
        self,
        make: Callable[[int], Block],
        release: Callable[[Block], None],
        refusal: type[Exception],
        limit: int,
    ) -> None:
        self.make, self.release, self.refusal, self.limit = make, release, refusal, limit
        self.kept = 0  # bytes
        self._freed: OrderedDict[int, list[Block]] = OrderedDict()  # by size, oldest first
        self._lock = threading.RLock()  # a buffer may be freed inside, by the garbage collector

    def take(self, nbytes: int) -> tuple[Block, int]:
        """A block of at least `nbytes` bytes, and its size. Before the driver's refusal is final
        it gets back all that is kept."""
        size = round_up(max(1, nbytes), UNIT)
        with self._lock:
            found = self._freed.get(size)
            if found:
                self.kept -= size
                return found.pop(), size
        try:
            return self.make(size), size
        except self.refusal:
            self.trim(0)
        return self.make(size), size

    def keep(self, block: Block, size: int) -> None:
        """A block of this size that nobody needs now."""
        with self._lock:
            self._freed.setdefault(size, []).append(block)
            self._freed.move_to_end(size)
            self.kept += size
            self.trim(self.limit if SETTINGS["LRU"] else 0)

    def trim(self, limit: int) -> None:
        """Give blocks back until at most `limit` bytes are kept."""
        with self._lock:
            while self.kept > limit and self._freed:
                size, blocks = next(iter(self._freed.items()))
                if blocks:
                    self.kept -= size
                    self.release(blocks.pop())
                else:
                    del self._freed[size]
