"""Which threads may compute at the same time: any number of them, or a single one that captures a
step. A capture treats values that are known as unknown for a while, and no other thread may see
that. And who overwrites buffers, one thread after the other."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from tinygrad.base.locks import ForkSafeLock


class _Depth(threading.local):
    """How often this thread is inside, and whether it counts as one of those that are together."""

    depth: int = 0
    counts: bool = False


class Turns:
    """A lock for any number of threads together, or one alone; a thread may enter it again
    inside."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Resets it: in a forked child the threads inside don't exist."""
        self._free = threading.Condition()
        self._together = self._waiting = 0
        self._alone: int | None = None
        self._mine = _Depth()
        self._entered = 0

    def together(self) -> Turns:
        """A context inside of which no thread is alone."""
        return self

    def __enter__(self) -> None:
        mine = self._mine
        if mine.depth == 0 and self._alone != threading.get_ident():
            with self._free:
                while self._alone is not None or self._waiting:  # who waits to be alone goes first
                    self._free.wait()
                self._together += 1
                self._entered += 1
            mine.counts = True
        mine.depth += 1

    def __exit__(self, *exception: object) -> None:
        mine = self._mine
        mine.depth -= 1
        if mine.depth == 0 and mine.counts:
            mine.counts = False
            with self._free:
                self._together -= 1
                if self._waiting:
                    self._free.notify_all()

    @property
    def quiet(self) -> int:
        """A number that stays the same for as long as no other thread comes in; -1 if one is."""
        return self._entered if self._together < 2 else -1

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other thread is. Must not be entered from within `together`."""
        with self._free:
            self._waiting += 1
            try:
                while self._alone is not None or self._together:
                    self._free.wait()
                self._alone = threading.get_ident()
            finally:
                self._waiting -= 1
                self._free.notify_all()
        try:
            yield
        finally:
            with self._free:
                self._alone = None
                self._free.notify_all()


turns = Turns()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=turns.renew)

keeping = ForkSafeLock(threading.RLock)
"""Held while buffers are overwritten, so that each write is done once, whichever threads ask for
it. Also held while nodes are made of promises (`tensor/promise`), and while a step that needs none
is done: a tensor that another thread asks has a node before the step begins, or a value after it.
It is taken inside of a turn, never around one. What a thread computes it runs, and copies out,
while it holds this, so storage stays what its graph says; plans are made outside."""
