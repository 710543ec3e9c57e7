"""Sorting, choosing, running sums and rows by number, in turn with PyTorch.

    python benchmarks/orders.py [--cases 'topk*,sort*'] [--rounds 5]

One thread, processor time; a captured step each. Short inputs are many in turn: a processor learns
the comparisons of the same thousand numbers by heart, and sorts them in a third of the time. The
figure is PyTorch's time over ours, the median of the rounds' ratios; below 0.8 is what remains to
be done.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("CPU_COUNT", "1")

import numpy as np
import torch
from asked import matching, parser
from plain import milliseconds

from tinygrad import Tensor, TinyJit

SHORT, MANY = 1 << 12, 256  # elements of an input of which there are many
DTYPES = {"float32": np.float32, "int32": np.int32, "int64": np.int64}
BRAIN = "bfloat16"

Run = Callable[[Any], Any]

SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "1k": ((1_000,), "float32"),
    "64k": ((65_536,), "float32"),
    "1m": ((1 << 20,), "float32"),
    "64x1k": ((64, 1_000), "float32"),
    "4096x128": ((4096, 128), "float32"),
    "1m_int32": ((1 << 20,), "int32"),
    "1m_int64": ((1 << 20,), "int64"),
    "1m_bfloat16": ((1 << 20,), BRAIN),
    "first_axis_1kx512": ((1_000, 512), "float32"),
}

OPERATIONS: dict[str, tuple[Run, Run]] = {
    "sort": (lambda x: x.sort(_axis(x))[0], lambda x: x.sort(_axis(x))[0]),
    "argsort": (lambda x: x.argsort(_axis(x)), lambda x: x.argsort(_axis(x))),
    "argmax": (lambda x: x.argmax(_axis(x)), lambda x: x.argmax(_axis(x))),
    "cumsum": (lambda x: x.cumsum(_axis(x)), lambda x: x.cumsum(_axis(x))),
    "topk_5": (lambda x: x.topk(5, _axis(x))[0], lambda x: x.topk(5, _axis(x))[0]),
    "topk_100": (lambda x: x.topk(100, _axis(x))[0], lambda x: x.topk(100, _axis(x))[0]),
}

GATHERS = {"gather_64k_of_1m": (1 << 20, 1, 65_536), "rows_4k_of_32k_x256": (32_768, 256, 4096)}


def _axis(x: Any) -> int:
    """The first axis where that is the long one."""
    return 0 if len(x.shape) == 2 and x.shape[0] == 1_000 else -1


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return rng.integers(-(1 << 30), 1 << 30, shape).astype(DTYPES[dtype])
    return rng.standard_normal(shape, dtype=np.float32)


def ordered(operation: str, shape: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    ours, theirs = OPERATIONS[operation]
    sizes, dtype = SHAPES[shape]
    count = MANY if math.prod(sizes) <= SHORT else 1
    given = [numbers(sizes, dtype, seed) for seed in range(count)]
    xs, ys = [Tensor(each) for each in given], [torch.from_numpy(each) for each in given]
    if dtype == BRAIN:
        xs, ys = [x.cast(BRAIN) for x in xs], [y.to(torch.bfloat16) for y in ys]
    Tensor.realize(*xs)
    step = TinyJit(lambda x: ours(x).realize())
    x, y = itertools.cycle(xs), itertools.cycle(ys)
    return lambda: step(next(x)), lambda: theirs(next(y))


def gathered(name: str, backward: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    rows, width, count = GATHERS[name]
    table = numbers((rows, width), "float32")
    at = np.random.default_rng(1).integers(0, rows, count)
    grad = numbers((count, width), "float32")
    x, i, g = Tensor(table).realize(), Tensor(at).realize(), Tensor(grad).realize()
    a, j, b = (torch.from_numpy(each) for each in (table, at, grad))

    def differentiated(x: Tensor, i: Tensor, g: Tensor) -> Tensor:
        return x[i].gradient(x, gradient=g)[0].realize()

    def theirs() -> Any:
        return torch.ops.aten.embedding_dense_backward(b, j, rows, -1, False)

    if backward:
        back = TinyJit(differentiated)
        return lambda: back(x, i, g), theirs
    step = TinyJit(lambda x, i: x[i].realize())
    return lambda: step(x, i), lambda: torch.index_select(a, 0, j)


def cases() -> dict[str, Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]]:
    found: dict[str, Any] = {}
    for operation in OPERATIONS:
        for shape in SHAPES:
            found[f"{operation}_{shape}"] = lambda o=operation, s=shape: ordered(o, s)
    for name in GATHERS:
        found[name] = lambda n=name: gathered(n, False)
        found[f"{name}_backward"] = lambda n=name: gathered(n, True)
    return found


def main() -> None:
    options, made = parser(__doc__, rounds=3).parse_args(), cases()
    torch.set_num_threads(1)
    print("| case | ms | torch |\n| --- | --: | --: |")
    for name in matching(options.cases, made):
        ours, theirs = made[name]()
        for _ in range(4):
            ours(), theirs()
        pairs = [(milliseconds(ours), milliseconds(theirs)) for _ in range(options.rounds)]
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"| {name} | {statistics.median(a for a, _ in pairs):.3f} | {ratio:.2f} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
