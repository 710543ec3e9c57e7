"""Which threads may compute at the same time: any number of them, or a single one that captures a
step. A capture treats values that are known as unknown for a while, and no other thread may see
that. And who overwrites buffers, one thread after the other."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from threading import get_ident

from tinygrad.base.locks import ForkSafeLock


class Turns:
    """A lock for any number of threads together, or one alone; a thread may enter it again
    inside."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Resets it: in a forked child the threads inside don't exist."""
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}  # how deep each thread is that came together
        self._waiting = 0
        self._alone: int | None = None

    def together(self) -> Turns:
        """`with turns.together():` inside, no thread is alone. (No generator: each plain step comes
        here.)"""
        return self

    def __enter__(self) -> None:
        me = get_ident()
        depth = self._inside.get(me, 0)
        if not depth and self._alone != me:
            with self._lock:
                while self._alone is not None or self._waiting:  # who waits to be alone goes first
                    self._free.wait()
                self._inside[me] = 1
        elif depth:
            self._inside[me] = depth + 1

    def __exit__(self, *exception: object) -> None:
        me = get_ident()
        depth = self._inside.get(me, 0)
        if depth > 1:
            self._inside[me] = depth - 1
        elif depth:
            with self._lock:
                del self._inside[me]
                if self._waiting:
                    self._free.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other thread is. Must not be entered from within `together`."""
        with self._free:
            self._waiting += 1
            try:
                while self._alone is not None or self._inside:
                    self._free.wait()
                self._alone = get_ident()
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
