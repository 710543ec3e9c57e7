"""Times one case of one framework in this process and prints a line of JSON.

    python harness.py cases_tinygrad matmul_f32_512 [seconds]

start: seconds from the start of the process (STARTED in the environment, else this file's start) to
the first result, imports included. wall, processor: the median of the calls after that, wall clock
and time of all processors; low and high are the quartiles of wall. signature: mean, mean magnitude
and last element of the result, to compare frameworks by.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from suite import SUITE, Inputs

STARTED = float(os.environ.get("STARTED", time.time()))
WARM_UP_CALLS = 3
FEWEST_CALLS = 5
MOST_CALLS = 300


def main() -> None:
    module_name, case, seconds = (*sys.argv[1:], "1.0")[:3]
    module = importlib.import_module(module_name)
    step: Callable[[], Any] = getattr(module, case)(Inputs())
    first = module.finish(step())
    row: dict[str, Any] = {"start": time.time() - STARTED}
    if {c.name: c.comparable for c in SUITE}[case]:
        row["signature"] = signature(module.host(first))
    print(json.dumps(row | steady(lambda: module.finish(step()), float(seconds))))


def steady(call: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Times calls until `seconds` are over."""
    for _ in range(WARM_UP_CALLS):
        call()
    wall: list[float] = []
    processor: list[float] = []
    end = time.perf_counter() + seconds
    while len(wall) < FEWEST_CALLS or (time.perf_counter() < end and len(wall) < MOST_CALLS):
        processor_before, before = time.process_time(), time.perf_counter()
        call()
        wall.append(time.perf_counter() - before)
        processor.append(time.process_time() - processor_before)
    low, middle, high = statistics.quantiles(wall, n=4)
    return {
        "wall": middle,
        "low": low,
        "high": high,
        "processor": statistics.median(processor),
        "calls": len(wall),
    }


def signature(values: Any) -> list[float]:
    """Three numbers that tell results apart."""
    wide = values.astype("float64")
    return [float(wide.mean()), float(abs(wide).mean()), float(wide.reshape(-1)[-1])]


if __name__ == "__main__":
    main()
