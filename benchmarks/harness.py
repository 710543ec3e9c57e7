"""Times one case of one framework in this process and prints a line of JSON.

    python harness.py cases_tinygrad matmul_f32_512 [seconds]

start: seconds from the start of the process (STARTED in the environment, else this file's start) to
the first result, imports included. wall, processor: the median of the calls after that, wall clock
and time of all processors; low and high are the quartiles of wall. compile: what the first calls
took beyond as many later ones. memory: the most bytes resident during the later calls, above what
importing took; peak: all of it. signature: mean, mean magnitude and last element of the result, to
compare frameworks by. BENCH_LOCK names a file whose lock is held during the later calls.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from suite import CASES, Inputs

STARTED = float(os.environ.get("STARTED", time.time()))
WARM_UP_CALLS = 3
FEWEST_CALLS = 5
MOST_CALLS = 300


def main() -> None:
    module_name, case, seconds = (*sys.argv[1:], "1.0")[:3]
    module = importlib.import_module(module_name)
    imported = resident("VmRSS")
    step: Callable[[], Any] = getattr(module, case)(Inputs())
    before = time.perf_counter()
    first = module.finish(step())
    early = time.perf_counter() - before
    row: dict[str, Any] = {"start": time.time() - STARTED}
    if CASES[case].comparable:
        row["signature"] = signature(module.host(first))
    del first
    before = time.perf_counter()
    for _ in range(WARM_UP_CALLS):
        module.finish(step())
    early += time.perf_counter() - before
    with locked(os.environ.get("BENCH_LOCK", "")):
        forget_the_peak()
        row |= steady(lambda: module.finish(step()), float(seconds))
    row["peak"] = resident("VmHWM")
    row["memory"] = row["peak"] - imported
    row["compile"] = max(0.0, early - (1 + WARM_UP_CALLS) * row["wall"])
    print(json.dumps(row))


def steady(call: Callable[[], Any], seconds: float) -> dict[str, float]:
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


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """The lock of a file, which is made if need be; nothing without a path."""
    if not path:
        yield
        return
    import fcntl

    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
