"""Compares tinygrad with other frameworks on the suite and writes a page.

    python benchmarks/run.py [--cases 'matmul*,gather_rows'] [--against torch,jax,...]
                             [--threads 1,2] [--rounds 3] [--seconds 1] [--output FILE] [--again]

Frameworks take turns, case by case and round by round, so that what else the machine does disturbs
all alike. Each measurement is a process of its own (harness.py). In the first round the caches are
empty: the start of that round is called cold, the best of the later rounds warm. The ratio is the
other's time over ours, round by round, and the median of that: above 1, tinygrad is faster.

With one thread a process is kept on one core and processor time is compared, which is the figure to
trust on a machine that does other things too; with more threads it is wall-clock time.

What is missing is installed first, into environments of their own (frameworks.py). Every
measurement is written down at once: a run that was interrupted goes on where it stopped, as long as
the code and the versions are the same (--again starts over). A rival that can't be installed, fails
or takes too long is a note in the table. --lock FILE holds that file's lock during the timed calls
(not while a process starts and compiles), for machines on which several people measure.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fnmatch
import hashlib
import json
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frameworks import (
    FRAMEWORKS,
    OURS,
    Framework,
    cache_folder,
    chosen,
    interpreter,
    prepare,
    surroundings,
    version,
)
from suite import CASES, SUITE, Case
from tables import Page, Row, case_lines, page, processor

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


@dataclass(frozen=True)
class Setting:
    """How measurements are made."""

    rounds: int
    seconds: float
    limit: float
    lock: str
    folder: Path  # of this run: what was measured, and the caches of cases under way


@dataclass
class Log:
    """Every measurement of a run, in a file that grows by a line each."""

    file: Path
    rows: dict[tuple[str, int, str, int], Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                with contextlib.suppress(ValueError):  # a line that was cut off
                    key, row = json.loads(line)
                    self.rows[tuple(key)] = row

    def add(self, key: tuple[str, int, str, int], row: Row) -> Row:
        """Writes down a measurement of (case, threads, framework, round)."""
        self.rows[key] = row
        with self.file.open("a") as file:
            file.write(json.dumps([key, row]) + "\n")
        return row


def main() -> None:
    options = arguments()
    cases = selected(options.cases)
    threads = [int(n) for n in options.threads.split(",")]
    frameworks, absent = [FRAMEWORKS[OURS]], {}
    for framework in chosen(options.against.split(",")):
        problem = prepare(framework)
        if problem:
            absent[framework.name] = problem
        else:
            frameworks.append(framework)
    versions = {f.name: version(f) or "" for f in frameworks}
    setting = Setting(
        options.rounds, options.seconds, options.limit, options.lock, run_folder(options, versions)
    )
    if options.again:
        shutil.rmtree(setting.folder, ignore_errors=True)
    log = Log(setting.folder / "measured.jsonl")
    made = Page(versions, absent, options.rounds, options.seconds, command(options))
    for number in threads:
        for case in cases:
            rounds = measure_case(case, number, frameworks, setting, log)
            made.tables.setdefault(number, {})[case.name] = rounds
            print("\n".join(case_lines(case, rounds, number)), flush=True)
    today = datetime.date.today().isoformat()
    output = Path(options.output or HERE / "results" / f"{today}.md")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(made))
    print(f"wrote {output}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares tinygrad with other frameworks.")
    rivals = ",".join(name for name in FRAMEWORKS if name != OURS)
    parser.add_argument("--cases", default="", help="names or patterns, with commas; the suite")
    parser.add_argument("--against", default=rivals, help=f"some of {rivals}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on a measurement")
    parser.add_argument("--threads", default="1", help="numbers, with commas: a table each")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a process may take")
    parser.add_argument("--output", default="", help="default: results/<date>.md")
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    parser.add_argument("--lock", default="", help="a file whose lock is held while measuring")
    return parser.parse_args()


def command(options: argparse.Namespace) -> str:
    """What makes the page again."""
    parts = ["python benchmarks/run.py", f"--against {options.against}"]
    parts += [f"--threads {options.threads}", f"--rounds {options.rounds}"]
    parts += [f"--seconds {options.seconds:g}"]
    return " ".join([*parts, *([f"--cases '{options.cases}'"] if options.cases else [])])


def selected(patterns: str) -> list[Case]:
    """The cases whose names match one of the patterns; the suite if there is none."""
    if not patterns:
        return list(SUITE)
    wanted = patterns.split(",")
    found = [c for c in CASES.values() if any(fnmatch.fnmatch(c.name, p) for p in wanted)]
    if not found:
        raise SystemExit(f"no case {patterns}; there are {', '.join(CASES)}")
    return found


def run_folder(options: argparse.Namespace, versions: dict[str, str]) -> Path:
    """Where a run with this code, these versions and this protocol writes."""
    digest = hashlib.sha256(repr((options.seconds, processor())).encode())
    for path in sorted([*(ROOT / "tinygrad").rglob("*.py"), *HERE.glob("cases_*.py")]):
        digest.update(path.read_bytes())
    kept = sorted(name + number for name, number in versions.items() if name == OURS)
    digest.update(repr(kept).encode())
    return cache_folder() / "runs" / digest.hexdigest()[:16]


# ---- measuring -----------------------------------------------------------------------------------


def measure_case(
    case: Case, threads: int, frameworks: list[Framework], setting: Setting, log: Log
) -> list[dict[str, Row]]:
    """All rounds of a case; in each, every framework once."""
    rounds: list[dict[str, Row]] = []
    for number in range(setting.rounds):
        row: dict[str, Row] = {}
        for framework in frameworks:
            key = (case.name, threads, framework.name, number)
            before = rounds[0].get(framework.name, {}) if rounds else {}
            if key in log.rows:
                row[framework.name] = log.rows[key]
            elif "error" in before:
                row[framework.name] = log.add(key, before)  # it won't get better
            else:
                row[framework.name] = log.add(key, measure(framework, case, threads, setting))
        rounds.append(row)
    for framework in frameworks:
        shutil.rmtree(caches_of(framework, case, threads, setting), ignore_errors=True)
    return rounds


def caches_of(framework: Framework, case: Case, threads: int, setting: Setting) -> Path:
    return setting.folder / "caches" / f"{framework.name}-{case.name}-{threads}"


def measure(framework: Framework, case: Case, threads: int, setting: Setting) -> Row:
    """One framework's case in a process of its own; what went wrong as {"error": text}."""
    folder = caches_of(framework, case, threads, setting)
    folder.mkdir(parents=True, exist_ok=True)
    words = [interpreter(framework), str(HERE / "harness.py"), framework.module, case.name]
    words.append(str(setting.seconds))
    if threads == 1 and shutil.which("taskset"):
        words = ["taskset", "-c", "0", *words]
    environment = surroundings(framework, threads, folder)
    if setting.lock:
        environment["BENCH_LOCK"] = setting.lock
    environment["STARTED"] = str(time.time())
    try:
        found = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=setting.limit
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {setting.limit:.0f} s"}
    if found.returncode == 0:
        with contextlib.suppress(ValueError, IndexError):
            row: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
            return row
    last = (found.stderr.strip().splitlines() or ["no output"])[-1]
    if f"no attribute '{case.name}'" in last:
        last = "has no such case"
    return {"error": last[:120].replace("|", "/")}


if __name__ == "__main__":
    main()
