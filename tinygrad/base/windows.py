"""Windows on an array that is longer than a device binds in one piece: stretches of it, of one
length, numbered. The compiler that cuts kernels by them, the shader that tells them apart and the
queue that binds them must agree."""

from __future__ import annotations

from collections.abc import Iterable

Stretch = tuple[int, int]
"""The begin and the end of elements that are accessed."""

UNIT = 256
"""A device may require that bindings begin at a multiple of at most this. So a window is a multiple
of it, and the array begins less than this after the begin of its first window."""


def whole_window(largest: int) -> int:
    """The bytes of a window, if a binding holds at most `largest`."""
    return largest // UNIT * UNIT


def windows(touched: Iterable[Stretch], itemsize: int, size: int, largest: int) -> list[int]:
    """The windows that may hold these elements of an array of `size`. With `largest` 0, one window
    holds any array."""
    window = whole_window(largest)
    if not 0 < window < size * itemsize + UNIT:
        return [0]
    ends = [(begin * itemsize, end * itemsize + UNIT - 1) for begin, end in touched]
    found = {n for begin, end in ends for n in range(begin // window, end // window + 1)}
    return sorted(found) or [0]


def merged(touched: Iterable[Stretch]) -> list[Stretch]:
    """The same elements, in disjoint stretches."""
    found: list[Stretch] = []
    for begin, end in sorted(touched):
        if found and begin <= found[-1][1]:
            begin, end = found[-1][0], max(end, found.pop()[1])
        found.append((begin, end))
    return found
