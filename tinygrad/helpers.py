"""A face, as programs import it: small helpers, settings and counters. Nothing below uses it: what
the package itself needs comes from `base`, and what only programs want is written here."""

from __future__ import annotations

import contextlib
import cProfile
import ctypes
import hashlib
import itertools
import os
import pickle
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tqdm import tqdm, trange

from tinygrad.base.helpers import (
    T,
    argfix,
    argsort,
    ceildiv,
    colored,
    dedup,
    flatten,
    prod,
    round_up,
    time_to_str,
)
from tinygrad.base.settings import DEBUG, JIT, SETTINGS, TRAINING, Context, ContextVar, getenv
from tinygrad.data.download import fetch
from tinygrad.engine.cache import disk_cache
from tinygrad.engine.profile import GlobalCounters

BEAM, IMAGE, DEV = SETTINGS["BEAM"], SETTINGS["IMAGE"], SETTINGS["DEV"]
OSX, WIN = sys.platform == "darwin", sys.platform == "win32"
CI = os.environ.get("CI", "") != ""

U = TypeVar("U")


def cdiv(x: int, y: int) -> int:
    """C's integer division: rounded toward zero; division by zero gives 0.

    >>> cdiv(-7, 2)
    -3
    """
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def cmod(x: int, y: int) -> int:
    """C's remainder, with the sign of the dividend.

    >>> cmod(-7, 2)
    -1
    """
    return x - cdiv(x, y) * y


def polyN(x: Any, p: Sequence[Any]) -> Any:  # noqa: N802  tinygrad's name
    """The polynomial with the coefficients `p`, that of the highest power first.

    >>> polyN(2, [1, 0, 3])
    7
    """
    total: Any = 0
    for c in p:
        total = total * x + c
    return total


def count(start: int = 0, step: int = 1) -> Iterator[int]:
    """start, start + step, ...

    >>> counter = count(5)
    >>> next(counter), next(counter)
    (5, 6)
    """
    return itertools.count(start, step)


def all_same(items: Sequence[Any]) -> bool:
    """Whether all items are equal; true for none.

    >>> all_same([1, 1]), all_same([1, 2])
    (True, False)
    """
    return all(v == items[0] for v in items)


def fully_flatten(l: Any) -> list[Any]:  # noqa: E741
    """All leaves of nested lists and tuples, in order.

    >>> fully_flatten([[1, [2]], 3])
    [1, 2, 3]
    """
    if isinstance(l, (list, tuple)):
        return [leaf for item in l for leaf in fully_flatten(item)]
    return [l]


def unwrap(x: T | None) -> T:
    """`x`, which is known not to be None.

    >>> unwrap(5)
    5
    """
    assert x is not None
    return x


def merge_dicts(ds: Iterable[dict[T, U]]) -> dict[T, U]:
    """One dict from all; a key with two different values is an error.

    >>> merge_dicts([{"a": 1}, {"b": 2}])
    {'a': 1, 'b': 2}
    """
    merged: dict[T, U] = {}
    for one in ds:
        for key, value in one.items():
            if key in merged and merged[key] != value:
                raise ValueError(f"key {key!r} has two values: {merged[key]!r} and {value!r}")
            merged[key] = value
    return merged


def get_child(obj: Any, key: str) -> Any:
    """The object at `key` below `obj`: attributes, keys and indices, separated by dots.

    >>> get_child([complex(1, 2)], "0.imag")
    2.0
    """
    for part in key.split("."):
        if isinstance(obj, Mapping):
            obj = obj[part]
        else:
            obj = obj[int(part)] if part.isnumeric() else getattr(obj, part)
    return obj


def word_wrap(x: str, wrap: int = 80) -> str:
    """Lines cut at `wrap` characters.

    >>> word_wrap("one two three", wrap=7).splitlines()
    ['one two', ' three']
    """
    return "\n".join(
        line[i : i + wrap]
        for line in x.splitlines() or [""]
        for i in range(0, max(len(line), 1), wrap)
    )


def temp(x: str, append_user: bool = False) -> str:
    """A path in the system's folder for temporary files.

    >>> temp("notes.txt").endswith("notes.txt")
    True
    """
    user = f".{os.environ.get('USER', 'user')}" if append_user else ""
    return os.path.join(tempfile.gettempdir(), x + user)


def to_mv(ptr: int, sz: int) -> memoryview:
    """`sz` bytes of this process's memory.

    >>> raw = (ctypes.c_char * 2)(b"a", b"b")
    >>> to_mv(ctypes.addressof(raw), 2).tobytes()
    b'ab'
    """
    return memoryview((ctypes.c_uint8 * sz).from_address(ptr)).cast("B")


def from_mv(mv: memoryview, to_type: Any = ctypes.c_char) -> Any:
    """The bytes of a writable memoryview as a ctypes array, which keeps them alive.

    >>> from_mv(memoryview(bytearray(b"ab"))).raw
    b'ab'
    """
    return (to_type * (mv.nbytes // ctypes.sizeof(to_type))).from_buffer(mv)


class Timing(contextlib.ContextDecorator):
    """`with Timing("load "): ...` prints how long it took.

    >>> with Timing("made in "):
    ...     _ = sum(range(10))
    made in ...
    """

    def __init__(
        self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True
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
    """`with Profiling(): ...` prints where Python spent the time; nothing unless `enabled`. `fn` is
    a file for all of it, as `pstats` reads it.

    >>> with Profiling(enabled=False):
    ...     _ = sum(range(10))
    """

    def __init__(
        self, enabled: bool = True, sort: str = "cumtime", frac: float = 0.2, fn: str | None = None
    ) -> None:
        self.enabled, self.sort, self.frac, self.fn = enabled, sort, frac, fn
        self.profile = cProfile.Profile()

    def __enter__(self) -> Profiling:
        if self.enabled:
            self.profile.enable()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.enabled:
            self.profile.disable()
            if self.fn is not None:
                self.profile.dump_stats(self.fn)
            pstats.Stats(self.profile).strip_dirs().sort_stats(self.sort).print_stats(self.frac)


def diskcache_get(table: str, key: Any) -> Any:
    """What is kept on disk under a table and a key, else None.

    >>> _ = diskcache_put("examples", "b", [1, 2])
    >>> diskcache_get("examples", "b")
    [1, 2]
    """
    raw = disk_cache().get(table, _place(key))
    return None if raw is None else pickle.loads(raw)  # the folder of the cache is trusted


def diskcache_put(table: str, key: Any, val: Any, prepickled: bool = False) -> Any:
    """Keeps what can be pickled, or has been, on disk under a table and a key (a text, a number or
    a dict of these); returns it.

    >>> diskcache_put("examples", {"size": 3}, b"kept")
    b'kept'
    """
    disk_cache().put(table, _place(key), val if prepickled else pickle.dumps(val))
    return val


def _place(key: Any) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()


def diskcache_clear() -> None:
    """Forgets all that is kept on disk."""
    disk_cache().clear()


__all__ = [
    "BEAM",
    "CI",
    "DEBUG",
    "DEV",
    "IMAGE",
    "JIT",
    "OSX",
    "TRAINING",
    "WIN",
    "Context",
    "ContextVar",
    "GlobalCounters",
    "Profiling",
    "T",
    "Timing",
    "all_same",
    "argfix",
    "argsort",
    "cdiv",
    "ceildiv",
    "cmod",
    "colored",
    "count",
    "dedup",
    "diskcache_clear",
    "diskcache_get",
    "diskcache_put",
    "fetch",
    "flatten",
    "from_mv",
    "fully_flatten",
    "get_child",
    "getenv",
    "merge_dicts",
    "polyN",
    "prod",
    "round_up",
    "temp",
    "time_to_str",
    "to_mv",
    "tqdm",
    "trange",
    "unwrap",
    "word_wrap",
]
