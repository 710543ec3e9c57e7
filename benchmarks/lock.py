"""One measurement at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """The lock of a file, which is made if need be; nothing without a path."""
    if not path:
        yield
        return
    import fcntl

    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
