"""What it costs to start: import, and the first result of a fresh process, cold and warm.

    python benchmarks/startup.py [--rounds N]

cold: an empty cache folder; warm: the folder that the cold run left. Wall-clock and processor time,
median and least: on a machine that others use look at the least, and at processor time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

PROGRAMS = {
    "python itself": "pass",
    "import numpy": "import numpy",
    "import tinygrad": "import tinygrad",
    "first (Tensor([1,2])+1).tolist()": "from tinygrad import Tensor; (Tensor([1,2])+1).tolist()",
    "first 64x64 matrix product": (
        "from tinygrad import Tensor; (Tensor.rand(64, 64) @ Tensor.rand(64, 64)).tolist()"
    ),
}
NEEDS_KERNELS = 3  # the programs from this one on compile something


def run_once(code: str, cache: str) -> tuple[float, float]:
    """Wall-clock and processor seconds of one process."""
    environment = {**os.environ, "TINYGRAD_CACHE": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has bytecode
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, os.times()
    spent = after.children_user + after.children_system
    return wall, spent - before.children_user - before.children_system


def measure(label: str, code: str, rounds: int, prepare: Callable[[], None], cache: str) -> None:
    """Prints one line."""
    times = []
    for _ in range(rounds):
        prepare()
        times.append(run_once(code, cache))
    columns = []
    for values in zip(*times, strict=True):
        columns.append(f"{statistics.median(values):6.3f} ({min(values):.3f})")
    print(f"{label:42s} wall {columns[0]}   processor {columns[1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to start.")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    cache = tempfile.mkdtemp(prefix="startup-")

    def forget() -> None:
        shutil.rmtree(cache, ignore_errors=True)

    print("seconds: median (least)")
    try:
        for number, (label, code) in enumerate(PROGRAMS.items()):
            if number < NEEDS_KERNELS:
                measure(label, code, rounds, lambda: None, cache)
                continue
            measure(label + ", cold", code, rounds, forget, cache)
            measure(label + ", warm", code, rounds, lambda: None, cache)
    finally:
        forget()


if __name__ == "__main__":
    main()
