"""Operators on strings, which stay on the host: joining, splitting, matching, normalising, counting
n-grams."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.host import checked
from tinygrad.formats.onnx.registry import Array, Table, on_host

CASES: dict[str, Callable[[str], str]] = {
    "LOWER": str.lower,
    "UPPER": str.upper,
    "NONE": lambda text: text,
}


def _concat(a: Array, b: Array) -> Array:
    left, right = np.broadcast_arrays(a, b)
    made = [x + y for x, y in zip(left.reshape(-1), right.reshape(-1), strict=True)]
    return np.array(made, object).reshape(left.shape)


def _split(x: Array, delimiter: str = "", maxsplit: int = -1) -> tuple[Array, Array]:
    """The pieces along a new last axis, filled up with empty strings; and how many there are."""
    parts = [text.split(delimiter or None, maxsplit) for text in x.reshape(-1)]
    counts = np.array([len(each) for each in parts], np.int64).reshape(x.shape)
    most = int(counts.max(initial=0))
    filled = [each + [""] * (most - len(each)) for each in parts]
    return np.array(filled, object).reshape(*x.shape, most), counts


def _match(x: Array, pattern: str) -> Array:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ArgumentError(f"pattern {pattern!r}: {error}") from error
    found = [compiled.fullmatch(text) is not None for text in x.reshape(-1)]
    return np.array(found, bool).reshape(x.shape)


def _normalise(
    x: Array,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: list[str] | None = None,
) -> Array:
    """Stop words taken out, the case changed. Rows of one batch may come out shorter."""
    if x.ndim > 2 or (x.ndim == 2 and x.shape[0] != 1) or case_change_action not in CASES:
        raise ArgumentError(f"strings of {x.shape}, {case_change_action}; legal are (C,), (1, C)")
    change = CASES[case_change_action]
    stops = set(stopwords or ())
    folded = {word.lower() for word in stops}
    words = [_without_accents(str(word)) for word in x.reshape(-1)]
    if is_case_sensitive:
        words = [word for word in words if word not in stops]
    else:
        words = [word for word in words if word.lower() not in folded]
    made = np.array([change(word) for word in words if word] or [""], object)
    return made.reshape(1, -1) if x.ndim == 2 else made


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


Gram = tuple[Any, ...]


def _pool_of(pool: Sequence[Any], starts: Sequence[int]) -> dict[Gram, None]:
    """The n-grams of a pool, each once: those of length n begin at number `starts[n - 1]`."""
    found: dict[Gram, None] = {}
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        found |= dict.fromkeys(tuple(pool[at : at + n]) for at in range(start, end, n))
    return found


def _grams_of(row: Sequence[Any], shortest: int, longest: int, most_skipped: int) -> Iterator[Gram]:
    """The n-grams of these lengths in a row, with up to so many items left out between two."""
    for length in range(shortest, min(longest, len(row)) + 1):
        steps = min(most_skipped, len(row)) + 1 if length > 1 else 1
        for step in range(1, steps + 1):
            for start in range(len(row) - (length - 1) * step):
                yield tuple(row[start + i * step] for i in range(length))


def _count_grams(
    x: Array,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Array:
    """How often each n-gram of a pool stands in each row, with up to `max_skip_count` left out
    between its items; by mode TF (the count), IDF (its weight, if it is there) or TFIDF."""
    pool: Any = pool_int64s or pool_strings or []
    listed = _pool_of(pool, ngram_counts)
    places = dict(zip(listed, ngram_indexes[: len(listed)], strict=True))
    size = max(ngram_indexes, default=-1) + 1
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    checked(len(rows) * size)
    counts = np.zeros((len(rows), size), np.float32)
    which = min_gram_length, max_gram_length, max_skip_count
    for out, row in zip(counts, rows.tolist(), strict=True):
        for gram in _grams_of(row, *which):
            if gram in places:
                out[places[gram]] += 1
    factors = np.ones(size, np.float32)
    for place, weight in zip(ngram_indexes, weights or (), strict=False):
        factors[place] = weight
    values = {"TF": counts, "IDF": (counts > 0) * factors, "TFIDF": counts * factors}[mode]
    return np.asarray(values, np.float32).reshape(size if x.ndim < 2 else (len(rows), size))


ROWS: Table = {
    "RegexFullMatch": on_host(_match),
    "StringConcat": on_host(_concat),
    "StringNormalizer": on_host(_normalise),
    "StringSplit": on_host(_split),
    "TfIdfVectorizer": on_host(_count_grams),
}
