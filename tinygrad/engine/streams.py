"""Streams of random numbers, as the engine sees them: a seed, and a position that each draw
advances. Both are bound variables of the graph; the position is fixed when a tensor is created. A
replay of a captured step draws from the streams' positions at that time, as many numbers as the
captured call did."""

from __future__ import annotations

import weakref
from typing import ClassVar

from tinygrad.base.locks import ForkSafeLock


class Stream:
    """A seed and a position. The name is that of the variable that carries positions in graphs; the
    variable of the seed has the suffix `.seed`."""

    all: ClassVar[weakref.WeakValueDictionary[str, Stream]] = weakref.WeakValueDictionary()
    _lock: ClassVar[ForkSafeLock] = ForkSafeLock()

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed_name = name, name + ".seed"
        self.seed, self.position = seed, 0
        self.restarts = 0  # a captured step must not restart it
        Stream.all[name] = self

    def restart(self, seed: int, position: int = 0) -> None:
        """Continues as if it were new, with this seed and position."""
        self.seed, self.position, self.restarts = seed, position, self.restarts + 1

    def take(self, amount: int) -> int:
        """Returns the position, and advances it by `amount`."""
        with Stream._lock.now:
            before = self.position
            self.position += amount
        return before
