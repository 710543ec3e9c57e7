"""Helpers that programs import from `tinygrad.helpers` and that the package itself does without."""

from __future__ import annotations

import contextlib
import cProfile
import ctypes
import itertools
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tinygrad.base.settings import SETTINGS

BEAM, IMAGE, DEV = SETTINGS["BEAM"], SETTINGS["IMAGE"], SETTINGS["DEV"]
OSX, WIN = sys.platform == "darwin", sys.platform == "win32"
CI = os.environ.get("CI", "") != ""


def cdiv(a: int, b: int) -> int:
    """C's integer division: rounded toward zero; division by zero gives 0.

    >>> cdiv(-7, 2)
    -3
    """
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def cmod(a: int, b: int) -> int:
    """C's remainder, with the sign of the dividend.

    >>> cmod(-7, 2)
    -1
    """
    return a - cdiv(a, b) * b


def polyN(x: Any, coefficients: Sequence[Any]) -> Any:  # noqa: N802  tinygrad's name
    """The polynomial with these coefficients, that of the highest power first.

    >>> polyN(2, [1, 0, 3])
    7
    """
    total: Any = 0
    for c in coefficients:
        total = total * x + c
    return total


def count(start: int = 0) -> Iterator[int]:
    """start, start + 1, ...

    >>> counter = count(5)
    >>> next(counter), next(counter)
    (5, 6)
    """
    return itertools.count(start)


def get_child(root: Any, path: str) -> Any:
    """The object at `path` below `root`: attributes, keys and indices, separated by dots.

    >>> get_child([complex(1, 2)], "0.imag")
    2.0
    """
    for part in path.split("."):
        if isinstance(root, Mapping):
            root = root[part]
        else:
            root = root[int(part)] if part.isnumeric() else getattr(root, part)
    return root


def word_wrap(text: str, wrap: int = 80) -> str:
    """Lines cut at `wrap` characters.

    >>> word_wrap("one two three", wrap=7).splitlines()
    ['one two', ' three']
    """
    return "\n".join(
        line[i : i + wrap]
        for line in text.splitlines() or [""]
        for i in range(0, max(len(line), 1), wrap)
    )


def temp(name: str, append_user: bool = False) -> str:
    """A path in the system's folder for temporary files.

    >>> temp("notes.txt").endswith("notes.txt")
    True
    """
    user = f".{os.environ.get('USER', 'user')}" if append_user else ""
    return os.path.join(tempfile.gettempdir(), name + user)


def to_mv(address: int, nbytes: int) -> memoryview:
    """`nbytes` bytes of this process's memory.

    >>> raw = (ctypes.c_char * 2)(b"a", b"b")
    >>> to_mv(ctypes.addressof(raw), 2).tobytes()
    b'ab'
    """
    return memoryview((ctypes.c_uint8 * nbytes).from_address(address)).cast("B")


def from_mv(view: memoryview, to_type: Any = ctypes.c_char) -> Any:
    """The bytes of a writable memoryview as a ctypes array, which keeps them alive.

    >>> from_mv(memoryview(bytearray(b"ab"))).raw
    b'ab'
    """
    return (to_type * (view.nbytes // ctypes.sizeof(to_type))).from_buffer(view)


class Timing(contextlib.ContextDecorator):
    """`with Timing("load "): ...` prints how long it took.

    >>> with Timing("made in "):
    ...     _ = sum(range(10))
    made in ...
    """

    def __init__(
        self,
        prefix: str = "",
        on_exit: Callable[[int], str] | None = None,
        enabled: bool = True,
    ) -> None:
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled

    def __enter__(self) -> Timing:
        self.start = time.perf_counter_ns()
        return self

    def __exit__(self, *exception: object) -> None:
        self.et = time.perf_counter_ns() - self.start
        if self.enabled:
            more = self.on_exit(self.et) if self.on_exit else ""
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{more}")


class Profiling(contextlib.ContextDecorator):
    """`with Profiling(): ...` prints where Python spent the time; nothing unless `enabled`.

    >>> with Profiling(enabled=False):
    ...     _ = sum(range(10))
    """

    def __init__(self, enabled: bool = True, sort: str = "cumtime", frac: float = 0.2) -> None:
        self.enabled, self.sort, self.frac = enabled, sort, frac
        self.profile = cProfile.Profile()

    def __enter__(self) -> Profiling:
        if self.enabled:
            self.profile.enable()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.enabled:
            self.profile.disable()
            pstats.Stats(self.profile).strip_dirs().sort_stats(self.sort).print_stats(self.frac)
