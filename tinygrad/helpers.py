"""A face, as programs import it: small helpers, settings and counters. Nothing below uses it."""

import hashlib
import pickle
from typing import Any

from tqdm import tqdm, trange

from tinygrad.base.convenience import (
    BEAM,
    CI,
    DEV,
    IMAGE,
    OSX,
    WIN,
    Profiling,
    Timing,
    cdiv,
    cmod,
    count,
    from_mv,
    get_child,
    polyN,
    temp,
    to_mv,
    word_wrap,
)
from tinygrad.base.helpers import (
    T,
    all_same,
    argfix,
    argsort,
    ceildiv,
    colored,
    dedup,
    flatten,
    fully_flatten,
    merge_dicts,
    prod,
    round_up,
    time_to_str,
    unwrap,
)
from tinygrad.base.settings import DEBUG, JIT, TRAINING, Context, ContextVar, getenv
from tinygrad.data.download import fetch
from tinygrad.engine.cache import disk_cache
from tinygrad.engine.profile import GlobalCounters


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
