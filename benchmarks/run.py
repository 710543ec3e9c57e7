"""Compares tinygrad with other frameworks on the suite and writes a page.

    python benchmarks/run.py [--cases 'matmul*,gather_rows'] [--against torch,jax,...]
                             [--threads 1,2] [--rounds 3] [--seconds 1] [--avx2]
                             [--output FILE] [--again] [--lock FILE]

A case is started twice in each framework: cold, with empty caches, and warm, with those that the
first left. The warm processes stay, and round by round each one repeats the case for a while, in
turn, so that what else the machine does disturbs all alike. The ratio is the other's time over
ours in the same round: above 1, tinygrad is faster.

With one thread a process is kept on one core and processor time is compared, which is the figure to
trust on a machine that does other things too; with more threads it is wall-clock time.

What is missing is installed first, into environments of their own (frameworks.py). Every case is
written down at once: a run that was interrupted goes on where it stopped, as long as our code and
the protocol are the same (--again starts over). A rival that can't be installed, fails
or takes too long is a note in the table. --lock FILE holds that file's lock during the rounds (not
while processes start and compile), for machines on which several people measure.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from asked import matching
from frameworks import (
    BEAM,
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
from lock import locked
from suite import CASES, SUITE, Case
from tables import Page, Row, case_lines, page, processor

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PATIENCE = 15.0
"""Seconds of a round after which a rival is not asked again: that round stands for all."""


@dataclass(frozen=True)
class Setting:
    """How measurements are made."""

    rounds: int
    seconds: float
    limit: float
    lock: str
    avx2: bool
    folder: Path  # of this run: what was measured, and the caches of cases under way


@dataclass
class Log:
    """What was measured: a line for each case and framework, in a file that grows."""

    file: Path
    rows: dict[tuple[str, int, str], list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                with contextlib.suppress(ValueError):  # a line that was cut off
                    key, rows = json.loads(line)
                    self.rows[tuple(key)] = rows

    def add(self, key: tuple[str, int, str], rows: list[Row]) -> None:
        """Writes down the rounds of (case, threads, framework)."""
        self.rows[key] = rows
        with self.file.open("a") as file:
            file.write(json.dumps([key, rows]) + "\n")


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
    versions = {f.name: described(f) for f in frameworks}
    setting = Setting(
        options.rounds,
        options.seconds,
        options.limit,
        options.lock,
        options.avx2,
        run_folder(options, versions),
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
    rivals = ",".join(name for name in FRAMEWORKS if name not in (OURS, BEAM))
    parser.add_argument("--cases", default="", help="names or patterns, with commas; the suite")
    parser.add_argument("--against", default=rivals, help=f"some of {rivals},{BEAM}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on a measurement")
    parser.add_argument("--threads", default="1", help="numbers, with commas: a table each")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a process may take")
    parser.add_argument("--output", default="", help="default: results/<date>.md")
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    parser.add_argument("--avx2", action="store_true", help="everybody without AVX-512")
    parser.add_argument("--lock", default="", help="a file whose lock is held while measuring")
    return parser.parse_args()


def described(framework: Framework) -> str:
    """A version, and the compiler that it uses."""
    words = [version(framework) or "", framework.compiler or ""]
    return " with ".join(filter(None, words))


def command(options: argparse.Namespace) -> str:
    """What makes the page again."""
    parts = ["python benchmarks/run.py", f"--against {options.against}"]
    parts += [f"--threads {options.threads}", f"--rounds {options.rounds}"]
    parts += [f"--seconds {options.seconds:g}"]
    parts += ["--avx2"] if options.avx2 else []
    return " ".join([*parts, *([f"--cases '{options.cases}'"] if options.cases else [])])


def selected(patterns: str) -> list[Case]:
    """The cases whose names match one of the patterns; the suite if there is none."""
    return [CASES[name] for name in matching(patterns, CASES)] if patterns else list(SUITE)


def run_folder(options: argparse.Namespace, versions: dict[str, str]) -> Path:
    """Where a run with this code, these versions and this protocol writes."""
    digest = hashlib.sha256(
        repr((options.seconds, options.rounds, options.avx2, processor())).encode()
    )
    for path in sorted([*(ROOT / "tinygrad").rglob("*.py"), *HERE.glob("cases_*.py")]):
        digest.update(path.read_bytes())
    kept = sorted(name + number for name, number in versions.items() if name == OURS)
    digest.update(repr(kept).encode())
    return cache_folder() / "runs" / digest.hexdigest()[:16]


# ---- measuring -----------------------------------------------------------------------------------


def measure_case(
    case: Case, threads: int, frameworks: list[Framework], setting: Setting, log: Log
) -> list[dict[str, Row]]:
    """All rounds of a case. Rivals that are new to the log are measured beside ours of now."""
    keys = {f.name: (case.name, threads, f.name) for f in frameworks}
    wanted = [f for f in frameworks if keys[f.name] not in log.rows]
    if wanted:
        ours = [f for f in frameworks if f.name == OURS and f not in wanted]
        for name, rows in measure(case, threads, [*ours, *wanted], setting).items():
            if name != OURS or keys[name] not in log.rows:
                log.add(keys[name], rows)
    return [
        {f.name: log.rows[keys[f.name]][number] for f in frameworks}
        for number in range(setting.rounds)
    ]


def measure(
    case: Case, threads: int, frameworks: list[Framework], setting: Setting
) -> dict[str, list[Row]]:
    """The rounds of each framework; one that failed has {"error": text} in each."""
    measured: dict[str, list[Row]] = {}
    alive: dict[str, tuple[Process, Row]] = {}
    for framework in frameworks:
        folder = setting.folder / "caches" / f"{framework.name}-{case.name}-{threads}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            cold = Process(framework, case, threads, setting, folder)
            facts = cold.line(setting.limit)
            cold.end()
            warm = Process(framework, case, threads, setting, folder)
            started = warm.line(setting.limit)["start"]
            alive[framework.name] = warm, {**facts, "cold": facts["start"], "warm": started}
        except Failure as failure:
            measured[framework.name] = [{"error": str(failure)}] * setting.rounds
        shutil.rmtree(folder, ignore_errors=True)
    slow: set[str] = set()
    with locked(setting.lock):
        for _ in range(setting.rounds):
            beside: Row = {}
            for name, (process, facts) in list(alive.items()):
                if name in slow:
                    measured[name].append(measured[name][-1])
                    continue
                try:
                    before = time.perf_counter()
                    row = process.ask(setting.limit)
                    if time.perf_counter() - before > PATIENCE and name != OURS:
                        slow.add(name)
                    if name == OURS:
                        beside = {"beside": row}
                    measured.setdefault(name, []).append({**facts, **row, **beside})
                except Failure as failure:
                    measured[name] = [{"error": str(failure)}] * setting.rounds
                    del alive[name]
    for process, _ in alive.values():
        process.end()
    return measured


class Failure(Exception):
    """Why a measurement came to nothing, in a line."""


class Process:
    """A case of a framework, under way (harness.py)."""

    def __init__(
        self, framework: Framework, case: Case, threads: int, setting: Setting, folder: Path
    ) -> None:
        words = [interpreter(framework), str(HERE / "harness.py"), framework.module, case.name]
        if threads == 1 and shutil.which("taskset"):
            words = ["taskset", "-c", "0", *words]
        self.case = case.name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  lives as long as the process
        self.process = subprocess.Popen(
            [*words, str(setting.seconds)],
            env={
                **surroundings(framework, threads, folder, setting.avx2),
                "STARTED": str(time.time()),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put("")

    def ask(self, seconds: float) -> Row:
        """Times some calls."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it died: the line will say so
            self.process.stdin.write("again\n")
            self.process.stdin.flush()
        return self.line(seconds)

    def line(self, seconds: float) -> Row:
        """What it says next."""
        try:
            found = self.lines.get(timeout=seconds)
        except queue.Empty:
            self.end()
            raise Failure(f"more than {seconds:.0f} s") from None
        if found:
            row: Row = json.loads(found)
            return row
        self.end()
        self.errors.seek(0)
        last = ([line for line in self.errors.read().splitlines() if line] or ["no output"])[-1]
        if f"no attribute '{self.case}'" in last:
            last = "has no such case"
        raise Failure(last[:120].replace("|", "/"))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    main()
