"""Which threads may compute at the same time: any number of them, or a single one that captures a
step. A capture treats values that are known as unknown for a while, and no other thread may see
that. And who overwrites buffers, one thread after the other."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from tinygrad.base.locks import ForkSafeLock


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
        self._mine = threading.local()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Inside, no thread is alone. As a decorator of what looks at all tensors it sees to it
        that this lets go of them before one is: a tensor of which somebody has a copy must not be
        overwritten, and a capture would note that."""
        depth = getattr(self._mine, "depth", 0)
        if depth == 0 and self._alone != threading.get_ident():
            with self._free:
                while self._alone is not None or self._waiting:  # who waits to be alone goes first
                    self._free.wait()
                self._together += 1
            self._mine.depth = 1
            try:
                yield
            finally:
                self._mine.depth = 0
                with self._free:
                    self._together -= 1
                    self._free.notify_all()
            return
        yield

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
It is taken inside of a turn, never around one."""
