"""A face, as programs import it: small helpers, settings and counters. Nothing below uses it."""

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


def diskcache_get(table: str, key: str) -> bytes | None:
    """Bytes kept on disk under a table and a key, else None.

    >>> _ = diskcache_put("examples", "b", b"kept")
    >>> diskcache_get("examples", "b")
    b'kept'
    """
    return disk_cache().get(table, key)


def diskcache_put(table: str, key: str, value: bytes) -> bytes:
    """Keeps bytes on disk under a table and a key; returns them.

    >>> diskcache_put("examples", "a", b"kept")
    b'kept'
    """
    disk_cache().put(table, key, value)
    return value


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
