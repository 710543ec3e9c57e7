"""Compares tinygrad with other frameworks on the suite and writes a table.

    python benchmarks/run.py [--cases a,b] [--rounds 3] [--seconds 1] [--threads 2]
                             [--against torch,torch-compile,jax] [--python jax=PATH] [--output FILE]

Frameworks take turns, case by case and round by round, so that what else the machine does disturbs
all alike. Each measurement is a process of its own (harness.py). In the first round the caches are
empty: the start of that round is called cold, the best of the later rounds warm. The ratio is the
other's time over ours, round by round, and the median of that: above 1, tinygrad is faster.

With one thread a process is kept on one core and processor time is compared, which is the figure to
trust on a machine that does other things too; with more threads it is wall-clock time.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import SUITE, Case

HERE = Path(__file__).resolve().parent
OURS = "tinygrad"
MODULES = {OURS: "cases_tinygrad", "torch": "cases_torch", "jax": "cases_jax"}
MODULES["torch-compile"] = MODULES["torch"]
PACKAGES = ("tinygrad", "numpy", "llvmlite", "torch", "jax")
TOLERANCE = 0.02  # of the mean magnitude: bfloat16 has two digits
QUIET_LOAD = 0.5

Row = dict[str, Any]
"""What harness.py measured, or {"error": why}."""


@dataclass(frozen=True)
class Setting:
    """How one table is made."""

    frameworks: tuple[str, ...]
    pythons: dict[str, str]
    rounds: int
    seconds: float
    threads: int
    limit: float
    caches: Path

    @property
    def clock(self) -> str:
        """The field of a measurement that is compared."""
        return "processor" if self.threads == 1 else "wall"


def main() -> None:
    options = arguments()
    cases = [case for case in SUITE if not options.cases or case.name in options.cases.split(",")]
    pythons = dict(pair.split("=", 1) for pair in options.python)
    names = [OURS, *filter(None, options.against.split(","))]
    present = tuple(name for name in names if version(name, pythons.get(name)) is not None)
    with tempfile.TemporaryDirectory(prefix="bench-") as caches:
        setting = Setting(
            present,
            pythons,
            options.rounds,
            options.seconds,
            options.threads,
            options.limit,
            Path(caches),
        )
        load_before = load()
        head = heading(setting, set(names) - set(present), load_before)
        lines = [table_head(setting)]
        print(*lines, sep="\n", flush=True)
        ratios: dict[str, list[float]] = {name: [] for name in present[1:]}
        for case in cases:
            rounds = [measure_all(case, setting) for _ in range(setting.rounds)]
            lines.append(table_line(case, rounds, ratios, setting.clock))
            print(lines[-1], flush=True)
        lines += ["", *summary(ratios), f"Load average at the end: {load():.1f}.", ""]
    today = datetime.date.today().isoformat()
    output = Path(options.output or HERE / "results" / f"{today}.md")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join([*head, *lines]))
    print(f"wrote {output}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares tinygrad with other frameworks.")
    parser.add_argument("--cases", default="", help="names, with commas; all if not given")
    parser.add_argument("--against", default="torch", help="torch, torch-compile, jax")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on a measurement")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds a process may take")
    parser.add_argument("--python", action="append", default=[], help="FRAMEWORK=INTERPRETER")
    parser.add_argument("--output", default="", help="default: results/<date>.md")
    return parser.parse_args()


# ---- measuring -----------------------------------------------------------------------------------


def measure_all(case: Case, setting: Setting) -> dict[str, Row]:
    """One round: each framework once."""
    return {name: measure(name, case, setting) for name in setting.frameworks}


def measure(name: str, case: Case, setting: Setting) -> Row:
    """One framework's case in a process of its own."""
    folder = setting.caches / name / case.name
    folder.mkdir(parents=True, exist_ok=True)
    threads = str(setting.threads)
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CPU_COUNT", "THREADS"), threads),
        "TINYGRAD_CACHE": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "COMPILE": "1" if name == "torch-compile" else "0",
        "STARTED": str(time.time()),
    }
    python = setting.pythons.get(name, sys.executable)
    command = [python, str(HERE / "harness.py"), MODULES[name], case.name, str(setting.seconds)]
    if setting.threads == 1 and shutil.which("taskset"):
        command = ["taskset", "-c", "0", *command]
    try:
        found = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=setting.limit
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {setting.limit:.0f} s"}
    if found.returncode != 0:
        return {"error": (found.stderr.strip().splitlines() or ["no output"])[-1][:120]}
    row: Row = json.loads(found.stdout.splitlines()[-1])
    return row


# ---- the table -----------------------------------------------------------------------------------


def table_head(setting: Setting) -> str:
    columns = ["case", "ms", "spread", "GFLOP/s", "GB/s", "cold s", "warm s"]
    for name in setting.frameworks[1:]:
        columns += [f"{name} ms", "ratio", "least to most", "cold s", "warm s"]
    columns.append("note")
    rule = ["---", *("--:" for _ in columns[2:]), "---"]
    return f"| {' | '.join(columns)} |\n| {' | '.join(rule)} |"


def table_line(
    case: Case, rounds: Sequence[dict[str, Row]], ratios: dict[str, list[float]], clock: str
) -> str:
    """One case; adds its ratio to those of each framework."""
    ours = [row[OURS] for row in rounds]
    notes = []
    error = first_error(ours)
    if error:
        cells = [case.name, "error", *[""] * 5]
        notes.append(error)
    else:
        wall = statistics.median(row[clock] for row in ours)
        spread = f"{least(ours, clock) * 1e3:.3f} to {most(ours, clock) * 1e3:.3f}"
        rates = [f"{n / wall / 1e9:.1f}" if n else "" for n in (case.operations, case.nbytes)]
        cells = [case.name, f"{wall * 1e3:.3f}", spread, *rates, *starts(ours)]
    for name, collected in ratios.items():
        theirs = [row[name] for row in rounds]
        problem = first_error(theirs)
        if problem or error:
            cells += ["" if not problem else "error", "", "", "", ""]
            notes += [f"{name}: {problem}"] if problem else []
            continue
        paired = [b[clock] / a[clock] for a, b in zip(ours, theirs, strict=True)]
        collected.append(statistics.median(paired))
        wall = statistics.median(row[clock] for row in theirs)
        spread = f"{min(paired):.2f} to {max(paired):.2f}"
        cells += [f"{wall * 1e3:.3f}", f"{collected[-1]:.2f}", spread, *starts(theirs)]
        if differ(ours[0].get("signature"), theirs[0].get("signature")):
            notes.append(f"RESULTS DIFFER from {name}")
    return f"| {' | '.join([*cells, '; '.join(notes)])} |"


def least(rows: Sequence[Row], clock: str) -> float:
    return min(row["low" if clock == "wall" else clock] for row in rows)


def most(rows: Sequence[Row], clock: str) -> float:
    return max(row["high" if clock == "wall" else clock] for row in rows)


def starts(rows: Sequence[Row]) -> list[str]:
    """Seconds to the first result: cold, and the best warm."""
    warm = min((row["start"] for row in rows[1:]), default=math.nan)
    return [f"{rows[0]['start']:.2f}", f"{warm:.2f}"]


def first_error(rows: Iterable[Row]) -> str | None:
    return next((row["error"] for row in rows if "error" in row), None)


def differ(ours: list[float] | None, theirs: list[float] | None) -> bool:
    if ours is None or theirs is None:
        return False
    scale = abs(theirs[1]) + 1e-12
    pairs = zip(ours, theirs, strict=True)
    return any(not abs(a - b) <= TOLERANCE * (scale + abs(b)) for a, b in pairs)


def summary(ratios: dict[str, list[float]]) -> list[str]:
    lines = []
    for name, found in ratios.items():
        if found:
            mean = math.exp(sum(map(math.log, found)) / len(found))
            lines.append(
                f"Against {name}: {mean:.2f} times its speed (geometric mean of {len(found)} "
                f"cases), {min(found):.2f} at worst."
            )
    return lines


# ---- the machine ---------------------------------------------------------------------------------


def heading(setting: Setting, absent: set[str], load_before: float) -> list[str]:
    versions = ", ".join(f"{n} {v}" for n in PACKAGES if (v := version(n, setting.pythons.get(n))))
    clock = {"wall": "wall-clock time", "processor": "processor time on one core"}[setting.clock]
    busy = ""
    if load_before > QUIET_LOAD:
        busy = " **Other work was running: read the ratios, not the milliseconds.**"
    return [
        f"# Benchmarks, {datetime.date.today().isoformat()}",
        "",
        f"Machine: {processor()}, {os.cpu_count()} cores, {memory()}, {platform.system()}.",
        f"Versions: Python {platform.python_version()}, {versions}.",
        f"{setting.rounds} rounds of {setting.seconds:g} s, threads: {setting.threads}."
        f" Load average at the start: {load_before:.1f}.{busy}",
        *([f"Not installed: {', '.join(sorted(absent))}."] if absent else []),
        "",
        f"ms: {clock}, median of the rounds' medians, and its spread over calls and rounds;",
        "ratio: the other's time over ours in the same round, its median, least and most;",
        "cold and warm: seconds from the start of the process to the first result, with empty",
        "caches and with those of the round before.",
        "",
    ]


def version(name: str, python: str | None) -> str | None:
    """The installed version of a framework; None if it is not there."""
    package = "torch" if name == "torch-compile" else name
    if python is None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return found.stdout.strip() or None


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError, OSError):
        return "memory unknown"


def load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan


if __name__ == "__main__":
    main()
