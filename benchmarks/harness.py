"""Runs one case of one framework in this process; a line of JSON for each thing that was measured.

    python harness.py cases_tinygrad matmul_f32_512 [seconds]

First, unasked: start: seconds from the start of the process (STARTED in the environment, else this
file's start) to the first result, imports included; compile: what the first calls took beyond as
many later ones; signature: mean, mean magnitude and last element of the result, to compare
frameworks by. Then for each line on stdin: wall, processor: the median of calls in `seconds`, wall
clock and time of all processors; low and high are the quartiles of wall; memory: the most bytes
resident during these calls, above what importing took; peak: all of it. Ends with stdin.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suite import CASES, Inputs

STARTED = float(os.environ.get("STARTED", time.time()))
WARM_UP_CALLS = 3
FEWEST_CALLS = 3
MOST_CALLS = 300


def main() -> None:
    module_name, case, seconds = (*sys.argv[1:], "1.0")[:3]
    module = importlib.import_module(module_name)
    imported = resident("VmRSS")
    step: Callable[[], Any] = getattr(module, case)(Inputs())

    def call() -> None:
        module.finish(step())

    before = time.perf_counter()
    first = module.finish(step())
    early = time.perf_counter() - before
    row: dict[str, Any] = {"start": time.time() - STARTED}
    if CASES[case].comparable:
        row["signature"] = signature(module.host(first))
    del first
    before = time.perf_counter()
    for _ in range(WARM_UP_CALLS):
        call()
    early += time.perf_counter() - before
    before = time.perf_counter()
    call()
    row["compile"] = max(0.0, early - (1 + WARM_UP_CALLS) * (time.perf_counter() - before))
    say(row)
    for _ in sys.stdin:
        call()
        forget_the_peak()
        row = steady(call, float(seconds))
        row["peak"] = resident("VmHWM")
        row["memory"] = row["peak"] - imported
        say(row)


def say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def steady(call: Callable[[], None], seconds: float) -> dict[str, Any]:
    """Times calls until `seconds` are over."""
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


# ---- memory --------------------------------------------------------------------------------------


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (the most since `forget_the_peak`) in bytes; 0 where Linux isn't."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field)), 0)


def forget_the_peak() -> None:
    """VmHWM starts again from what is resident now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
