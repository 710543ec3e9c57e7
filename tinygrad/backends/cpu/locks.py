"""A lock that a forked child finds open. A plain lock that another thread of the parent holds
at the moment of `fork` would stay locked in the child for ever, since that thread is not there."""

from __future__ import annotations

import os
import threading
import weakref


class ForkSafeLock:
    """A `threading.Lock` that is made anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Forget whoever holds it."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


_all: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
