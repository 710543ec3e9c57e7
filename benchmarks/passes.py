"""Work that passes over memory: norms, losses, order, indexing. A row says what goes in; what each
framework does with it stands in its cases' PASSES (JAX has none of these yet).

    CPU_COUNT=1 THREADS=1 taskset -c 1 python benchmarks/passes.py [names of cases]

prints for each case the floor, our time and PyTorch's: thread time of one process, in turn and in
an order that is drawn anew each round, so that both find the caches as the other left them. The
floor is the bytes that must at least move, over the bandwidth that PyTorch's sum of as much as
64 MB has in the same rounds. A case of the suite that states its bytes may be named too.
"""

from __future__ import annotations

import importlib
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROWS, CLASSES, IMAGES, TABLE = (4096, 1024), (256, 50257), (32, 64, 56, 56), (32000, 512)


@dataclass(frozen=True)
class Pass:
    """`shapes` of float inputs, then `picked` whole numbers below `high`; `times` how often the
    first input's bytes must at least move."""

    meaning: str
    shapes: tuple[tuple[int, ...], ...]
    times: float
    high: int = 0
    picked: int = 0

    @property
    def nbytes(self) -> int:
        return int(4 * math.prod(self.shapes[0]) * self.times)


PASSES = {
    "groupnorm_8x256x32": Pass("32 groups", ((8, 256, 32, 32), (256,), (256,)), 2),
    "rmsnorm_4096": Pass("of rows of 1024", (ROWS, ROWS[1:]), 2),
    "batchnorm_train_32x64x56": Pass("by the batch's own", (IMAGES, (64,), (64,)), 3),
    "softmax_backward_4096": Pass("by rows of 1024", (ROWS, ROWS), 3),
    "layernorm_backward_4096": Pass("by rows of 1024", (ROWS, ROWS), 3),
    "cross_entropy_50k": Pass("50257 classes", (CLASSES,), 1, CLASSES[1], CLASSES[0]),
    "cross_entropy_backward_50k": Pass("50257 classes", (CLASSES,), 2, CLASSES[1], CLASSES[0]),
    "sort_64k": Pass("65536 numbers", ((1 << 16,),), 2),
    "topk_10_64k": Pass("10 of 65536", ((1 << 16,),), 1),
    "argmax_4096": Pass("of rows of 4096", ((4096, 4096),), 1),
    "cumsum_4096": Pass("along rows of 4096", ((4096, 4096),), 2),
    "embedding_backward_32000x512": Pass("4096 tokens", (TABLE, (4096, 512)), 1, TABLE[0], 4096),
}

ROUNDS = 15
FRAMEWORKS = {"tinygrad": "cases_tinygrad", "torch": "cases_torch"}


def main(names: list[str]) -> None:
    suite = importlib.import_module("suite")
    print(
        f"{'case':30s} {'floor ms':>9s} {'ours':>9s} {'torch':>9s} {'of floor':>9s} {'ratio':>6s}"
    )
    for name in names or [*PASSES]:
        steps = {framework: step_of(module, name) for framework, module in FRAMEWORKS.items()}
        steps["sum"] = step_of(FRAMEWORKS["torch"], "sum_16m")
        times = in_turn(steps)
        floor = suite.CASES[name].nbytes / suite.CASES["sum_16m"].nbytes * times["sum"]
        ours, torch = times["tinygrad"], times["torch"]
        row = "".join(f" {1e3 * seconds:9.3f}" for seconds in (floor, ours, torch))
        print(f"{name:30s}{row} {ours / floor:9.2f} {torch / ours:6.2f}", flush=True)


def step_of(module: str, name: str) -> Callable[[], Any]:
    """A case of a framework, warm."""
    cases = importlib.import_module(module)
    step = getattr(cases, name)(importlib.import_module("suite").Inputs())
    for _ in range(3):
        cases.finish(step())
    return lambda: cases.finish(step())


def in_turn(steps: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median thread time of each, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name in order:
            before = time.thread_time()
            steps[name]()
            times[name].append(time.thread_time() - before)
    return {name: statistics.median(taken) for name, taken in times.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
