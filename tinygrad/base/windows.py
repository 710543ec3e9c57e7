"""Windows on an array that is longer than a device binds in one piece: stretches of it, of one
length, numbered. The compiler that cuts kernels by them, the shader that tells them apart and the
queue that binds them must agree."""

from __future__ import annotations

UNIT = 256
"""A binding begins at a multiple of this at most, so a window has a multiple of it, and the array
begins less than this after its first window."""


def whole_window(largest: int) -> int:
    """Bytes of a window, where a binding holds at most `largest`."""
    return largest // UNIT * UNIT


def windows(begin: int, end: int, nbytes: int, largest: int) -> range:
    """The windows that may hold the bytes from `begin` to `end` of an array of `nbytes`. `largest`
    0: one window holds any array."""
    window = whole_window(largest)
    if not 0 < window < nbytes + UNIT:
        return range(1)
    return range(begin // window, (end + UNIT - 1) // window + 1)
