"""Which threads may compute at the same time: any number of them, or a single one that captures a
step. A capture treats values that are known as unknown for a while, and no other thread may see
that. And who overwrites buffers, one thread after the other."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from _thread import RLock
from collections import deque
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from tinygrad.base.locks import ForkSafeLock

P = ParamSpec("P")
R = TypeVar("R")
is_owned = RLock._is_owned  # type: ignore[attr-defined]  # by this thread; Condition asks it, too


class Turns:
    """A lock for any number of threads together, or one alone; a thread may enter it again
    inside.

    Each thread has a lock of its own, which it holds while it is together with others; who is
    alone holds all of them. Locks are C: Ctrl-C, which may be heard at any call of Python's, comes
    before one is taken or finds it in a `with` that gives it back.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Resets it: in a forked child the threads inside don't exist."""
        self._gate = RLock()  # held by who is alone, or waits for it
        self._wanted = False  # whether somebody is
        self._mine = threading.local()
        self._locks: weakref.WeakSet[RLock] = weakref.WeakSet()

    def together(self) -> RLock:
        """`with turns.together():` inside, no thread is alone."""
        mine: RLock = getattr(self._mine, "lock", None) or self._begun()
        if self._wanted and not is_owned(mine):  # who waits to be alone goes first
            with self._gate:
                pass
        return mine

    def _begun(self) -> RLock:
        mine = RLock()
        with self._gate:
            self._locks.add(mine)
        self._mine.lock = mine
        return mine

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other thread is. Must not be entered from within `together`."""
        with self._gate:
            locks = [*self._locks]
            released = map(RLock.release, filter(is_owned, locks))
            try:
                self._wanted = True
                for lock in locks:
                    lock.acquire()
                yield
            finally:
                self._wanted = False
                deque(released, maxlen=0)  # one call of C, so that all are or none


turns = Turns()


def in_turn(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a turn of a function that looks at all tensors. It lets go of them before the turn
    ends: a tensor that somebody holds is not overwritten in place, and a capture would see that."""

    @functools.wraps(function)
    def taken(*args: P.args, **kwargs: P.kwargs) -> R:
        with turns.together():
            return function(*args, **kwargs)

    return taken


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=turns.renew)

preparing = ForkSafeLock(threading.RLock, awaited=True)
"""Held while a plan is made or a device is opened, where compilers and drivers have locks of their
own; so threads that want the same plan make it once. Inside of `keeping`, if both are taken."""

keeping = ForkSafeLock(threading.RLock, awaited=True)
"""Held while buffers are overwritten, so that each write is done once, whichever threads ask for
it. Also held while nodes are made of promises (`tensor/promise`), and while a step that needs none
is done: a tensor that another thread asks has a node before the step begins, or a value after it.
It is taken inside of a turn, never around one. What a thread computes it runs, and copies out,
while it holds this, so storage stays what its graph says; plans are made outside."""
