"""What CHECKs cost: operations with them, in turn with the same operations without.

    python benchmarks/checks.py [--cases 'gather*'] [--sizes 1000,100000] [--rounds 41] [--plain]

One thread, processor time; a captured step each (or, with --plain, an expression that is made anew
and realized), in each round in another order. The figures are the time with CHECKs in microseconds,
of the fastest tenth of the rounds; and that over the time of a second such step (what this says is
noise), over the time without the tests alone, and over that of the bare operation, which reads
wherever a number says: each the median of the rounds, in which what disturbs a machine disturbs
all. The numbers are all legal.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("CPU_COUNT", "1")

import numpy as np
from asked import matching, parser

from tinygrad import Tensor, TinyJit, nn
from tinygrad.tensor import indexing, template
from tinygrad.tensor.long_tail import parts
from tinygrad.uop.node import UOp

SECONDS = 0.004  # short turns, so that what disturbs the machine disturbs all ways
WARMING = 5  # calls until a step is captured, and Python knows what its lines are given
SIZES = (1_000, 100_000, 10_000_000)
WIDTH = 1_000  # of a table's rows
CLASSES = 100
VECTOR = 64  # of an embedding


def legal_but_bare(node: UOp, size: Any, axis: int, from_zero: bool = False) -> UOp:
    """An index as `legal_index` makes it, without its test and its clamp."""
    return node if from_zero or node.vmin >= 0 else (node < 0).where(node + size, node)


WAYS: dict[str, dict[tuple[Any, str], Any]] = {
    "checked": {},
    "again": {},
    "untold": {(UOp, "check"): lambda self, ok, kind, message: self},
    "bare": {
        (UOp, "check"): lambda self, ok, kind, message: self,
        (indexing, "legal_index"): legal_but_bare,
        (parts, "legal_index"): legal_but_bare,
    },
}
MEMORIES = {
    way: functools.lru_cache(64, typed=True)(template._remembered.__wrapped__) for way in WAYS
}


@contextlib.contextmanager
def way_of(way: str) -> Iterator[None]:
    """Expressions are made in this way, and templates of them remembered apart."""
    changed = {**WAYS[way], (template, "_remembered"): MEMORIES[way]}
    before = {place: getattr(*place) for place in changed}
    for (owner, name), value in changed.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name), value in before.items():
            setattr(owner, name, value)


rng = np.random.default_rng(0)


def floats(*shape: int) -> Tensor:
    return Tensor(rng.standard_normal(shape, dtype=np.float32)).realize()


def numbers(high: int, *shape: int, dtype: Any = np.int32, low: int = 0) -> Tensor:
    return Tensor(rng.integers(low, high, shape).astype(dtype)).realize()


Case = tuple[Callable[..., Tensor], list[Tensor]]


def rows_of(size: int) -> tuple[int, int]:
    return max(1, size // WIDTH), WIDTH


def along(axis: int, dtype: Any = np.int32) -> Callable[[int], Case]:
    """gather along an axis of a table; along the first one, of at most a thousand rows."""

    def case(size: int) -> Case:
        shape = rows_of(size)
        at = numbers(shape[axis], *shape, dtype=dtype)
        return (lambda x, i: x.gather(axis, i)), [floats(*shape), at]

    return case


def embedding(size: int) -> Case:
    layer = nn.Embedding(1_000, VECTOR)
    layer.weight.realize()
    return layer, [numbers(1_000, max(1, size // VECTOR))]


def classes(size: int) -> Case:
    rows = max(1, size // CLASSES)
    return (lambda x, y: x.sparse_categorical_crossentropy(y)), [
        floats(rows, CLASSES),
        numbers(CLASSES, rows),
    ]


def scattered(size: int) -> Case:
    return (lambda x, i, y: x.scatter(0, i, y)), [floats(size), numbers(size, size), floats(size)]


def vectors(run: Callable[..., Tensor], dtype: Any = np.int32, low: int = 0) -> Callable[..., Case]:
    return lambda n: (run, [floats(n), numbers(n, n, dtype=dtype, low=low * n)])


def whole(run: Callable[..., Tensor], dtype: Any = np.int32) -> Callable[[int], Case]:
    return lambda n: (run, [numbers(1 << 30, n, dtype=dtype), numbers(1000, n, dtype=dtype, low=1)])


CASES: dict[str, Callable[[int], Case]] = {
    "gather_rows": along(1),
    "gather_rows_int64": along(1, np.int64),
    "gather_rows_uint8": lambda n: (
        (lambda x, i: x.gather(1, i)),
        [floats(max(1, n // 200), 200), numbers(200, max(1, n // 200), 200, dtype=np.uint8)],
    ),
    "gather_columns": along(0),
    "embedding": embedding,
    "index": vectors(lambda x, i: x[i]),
    "index_int64": vectors(lambda x, i: x[i], np.int64),
    "index_negative": vectors(lambda x, i: x[i], low=-1),
    "index_1k": lambda n: ((lambda x, i: x[i]), [floats(1_000), numbers(1_000, n)]),
    "index_1k_double": lambda n: ((lambda x, i: x[i] * 2 + 1), [floats(1_000), numbers(1_000, n)]),
    "index_1k_sum": lambda n: ((lambda x, i: x[i].sum()), [floats(1_000), numbers(1_000, n)]),
    "take": lambda n: ((lambda x, i: x.take(i)), [floats(*rows_of(n)), numbers(n, n)]),
    "take_along_axis": lambda n: (
        (lambda x, i: x.take_along_dim(i, 1)),
        [floats(*rows_of(n)), numbers(WIDTH, *rows_of(n))],
    ),
    "index_select": lambda n: (
        (lambda x, i: x.index_select(1, i)),
        [floats(*rows_of(n)), numbers(WIDTH, WIDTH)],
    ),
    "two_axes": lambda n: (
        (lambda x, i, j: x[i, j]),
        [floats(*rows_of(n)), numbers(rows_of(n)[0], n), numbers(WIDTH, n)],
    ),
    "cross_entropy": classes,
    "divide": whole(lambda a, b: a // b),
    "divide_int64": whole(lambda a, b: a // b, np.int64),
    "modulo": whole(lambda a, b: a % b),
    "scatter": scattered,
    "scatter_add": lambda n: (
        (lambda x, i, y: x.scatter_reduce(0, i, y, "sum")),
        [floats(1_000), numbers(1_000, n), floats(n)],
    ),
}


def step_of(way: str, run: Callable[..., Tensor], given: list[Tensor], plain: bool) -> Any:
    """A function that makes a number of calls in this way, and returns the seconds of one. A
    captured step is of the way of its capture: the changes for it would slow Python after that."""
    step: Any = run if plain else TinyJit(run)

    def several(count: int) -> float:
        begin = time.thread_time()
        for _ in range(count):
            step(*given).realize()
        return (time.thread_time() - begin) / count

    def in_this_way(count: int) -> float:
        with way_of(way):
            several(WARMING)
            return several(count)

    in_this_way(1)
    return in_this_way if plain else several


def measured(run: Any, given: list[Tensor], rounds: int, plain: bool) -> list[list[float]]:
    """A row of seconds for each of the ways: one a round."""
    steps = [step_of(way, run, given, plain) for way in WAYS]
    count = max(1, int(SECONDS / max(1e-6, steps[0](3))))
    rows: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for number in rng.permutation(len(steps)):
            rows[number].append(steps[number](count))
    return rows


def main() -> None:
    asked = parser(__doc__, rounds=41)
    asked.add_argument("--sizes", default=",".join(map(str, SIZES)))
    asked.add_argument("--plain", action="store_true", help="steps that are not captured")
    options = asked.parse_args()
    others = [way for way in WAYS if way != "checked"]
    print(f"| case | elements | µs | over {' | over '.join(others)} |")
    print("| --- |" + " --: |" * (2 + len(others)))
    for name in matching(options.cases, CASES):
        for size in map(int, options.sizes.split(",")):
            run, given = CASES[name](size)
            rows = measured(run, given, options.rounds, options.plain)
            took, *without = rows
            quotients = (np.median(np.divide(took, other)) for other in without)
            ratios = " | ".join(f"{quotient:.3f}" for quotient in quotients)
            print(f"| {name} | {size} | {sorted(took)[len(took) // 10] * 1e6:.1f} | {ratios} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
