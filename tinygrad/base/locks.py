"""A lock that a forked child finds open. A plain lock that another thread of the parent holds
at the moment of `fork` would stay locked in the child for ever, since that thread is not there.

Inside of some locks a thread also holds locks of other libraries, or changes what a child needs
whole. So a fork takes these first, and waits for who holds them."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from operator import methodcaller
from typing import Any

PATIENCE = 30.0  # seconds that a fork waits for other threads


class ForkSafeLock:
    """`with lock.now:` holds a lock of this `kind`, which is replaced in a forked child. Of those
    that are `awaited`, one that is made later must be taken before one that is made earlier."""

    def __init__(self, kind: Callable[[], Any] = threading.Lock, awaited: bool = False) -> None:
        self.kind = kind
        self.renew()
        _all.add(self)
        if awaited:
            _awaited.insert(0, self)

    def renew(self) -> None:
        """Replaces the lock, whoever holds it."""
        self.now = self.kind()


_all: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()
_awaited: list[ForkSafeLock] = []


def if_free(lock: Any, work: Callable[[], None]) -> None:
    """Does that work with the lock, unless it is taken: then nothing."""
    taken: list[bool] = []
    try:
        taken += map(lock.acquire, (False,))  # in one call of C: no Ctrl-C comes between
        if True in taken:
            work()
    finally:
        if True in taken:
            lock.release()


_taken = threading.local()


def _wait() -> None:
    """Not for ever: who holds a lock may wait for what the forking thread holds. Ctrl-C ends the
    wait, not the fork: what was taken until then is known."""
    taken: list[Any] = []
    _taken.locks = taken
    end = time.monotonic() + PATIENCE
    for lock in _awaited:
        timeout = max(0.0, end - time.monotonic())
        taken += filter(methodcaller("acquire", timeout=timeout), (lock.now,))


def _go_on() -> None:
    taken, _taken.locks = getattr(_taken, "locks", ()), ()
    deque(map(methodcaller("release"), reversed(taken)), maxlen=0)


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait, after_in_parent=_go_on, after_in_child=_renew_all)
