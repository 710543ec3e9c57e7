"""A lock that a forked child finds open. A plain lock that another thread of the parent holds
at the moment of `fork` would stay locked in the child for ever, since that thread is not there."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any


class ForkSafeLock:
    """`with lock.now:` holds a lock of this `kind`, which is replaced in a forked child."""

    def __init__(self, kind: Callable[[], Any] = threading.Lock) -> None:
        self.kind = kind
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """Replaces the lock, whoever holds it."""
        self.now = self.kind()


_all: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
