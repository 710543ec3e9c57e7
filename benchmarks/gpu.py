"""One command for a machine with a GPU: checks, then times tinygrad against PyTorch on it.

    python benchmarks/gpu.py [--only tests,operations,copy,gemm,attention,training,rows,conv,...]
                             [--minutes 8] [--device CUDA] [--peer cuda] [--patience 90]
                             [--output FILE] [--small] [--anyway]

It needs this checkout, its dependencies and PyTorch; nothing is installed, and what is missing is
said at once. A Markdown page with a row for each case goes to benchmarks/results/gpu-DATE.md, and
is written again after each row, so that whatever ends this program costs no result; beside it lies
a .log with what failed, in full, and the times of each kernel.

The parts run in the order above, each for its share of the minutes, then what is left of them; what
was not reached is said, and `--only` runs it another time. `tests` are the package's own op tests
(a sample with --minutes below 20). The cases of the other parts run in a process of their
own (`gpu_cases`): one that hangs, crashes or loses its card is a row that says so, and another
process goes on behind it. The first case of a part that fails, is wrong or takes too long is tried
again without what is a choice of the device (`CHOICES`: wgmma, the engine that copies boxes, ..),
until it works; all are rows, and the rest of the part goes that way too.
CUDA_WITHOUT=wgmma,box_copy leaves these out from the start; BEAM=2 searches recipes.

Ratios are PyTorch's time over ours: above 1, tinygrad is faster. `--device CL --peer cpu` tries
all of it on any machine.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PARTS = (
    *("tests", "operations", "copy", "gemm", "attention", "training", "rows", "conv"),
    *("f32", "kernels", "compiled"),
)
TESTS_SHARE = 0.25  # of the minutes, at most
# minutes → which op tests, one of so many, and of each one's cases
SAMPLES = (
    (20, {"TESTS": "1", "EVERY": "1"}),
    (5, {"TESTS": "3", "EVERY": "40"}),
    (0, {"TESTS": "30", "EVERY": "400"}),
)
STARTS = 24  # processes for the cases, at most
# device → the setting by which features are left out, and what to leave out where a case fails
CHOICES = {
    "CUDA": (
        "CUDA_WITHOUT",
        ("wgmma", "wgmma,box_copy", "wgmma,box_copy,async_copy,matrix_load,mma"),
    )
}
NO_CHOICE = {"operations", "copy"}  # parts without products
WITHOUT = ", without "  # in the name of a case, what was left out
START = 60.0  # seconds in which a process imports all and opens the device
GRACE = 15.0  # of the end: for sums, and a last case


@dataclass
class Page:
    """All that is known so far, and where it is written."""

    output: Path
    title: str
    machine: str = "unknown: no process could open the device"
    waiting: dict[str, str] = field(default_factory=dict)  # cases that are to come, with their part
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, row: dict[str, Any]) -> None:
        """A row; printed, and on the disk when this returns."""
        self.waiting.pop(name.partition(WITHOUT)[0], None)
        self.rows[name] = row
        if row.get("part") != "operations" or row["note"]:
            print(line(name, row), flush=True)
        self.write()

    def note(self, words: str) -> None:
        """A sentence below the table."""
        self.notes.append(words)
        print(words, flush=True)
        self.write()

    def write(self) -> None:
        """The file as a whole, in one move."""
        beside = self.output.with_suffix(".part")
        beside.write_text(self.text())
        beside.replace(self.output)

    def text(self) -> str:
        checked = [row for row in self.rows.values() if row.get("part") == "operations"]
        agree = sum(not row["note"] for row in checked)
        head = [
            f"# {self.title}",
            "",
            f"{self.machine}.",
            "Ratios are PyTorch's time over ours (above 1 tinygrad is faster); times in",
            "microseconds; first: seconds to build, compile and run both sides once.",
            "",
            f"Operations: {agree} of {len(checked)} agree with PyTorch." if checked else "",
            "",
            "| case | ours | PyTorch | ratio | target | rate | first | |",
            "|---|--:|--:|--:|---|---|--:|---|",
        ]
        shown = [
            line(name, row)
            for name, row in self.rows.items()
            if row.get("part") != "operations" or row["note"]
        ]
        left = f"Not reached: {', '.join(self.waiting)}." if self.waiting else ""
        return "\n".join([*head, *shown, "", *self.notes, left, ""])

    @property
    def failed(self) -> bool:
        return any(row["note"] for row in self.rows.values())


def line(name: str, row: dict[str, Any]) -> str:
    """A row of the table."""
    if "ours" not in row:
        return f"| {name} | | | | | | | {row['note']} |"
    share = row["share"]
    kept = row["reached"] >= share if share else row["ratio"] >= row["target"]
    aim = f"{share:.0%} of a copy" if share else f"{row['target']:.1f}"
    times = f"{row['ours'] * 1e6:.1f} | {row['theirs'] * 1e6:.1f} | {row['ratio']:.2f}"
    verdict = f"{aim}: {'yes' if kept and not row['note'] else 'no'}"
    return f"| {name} | {times} | {verdict} | {row['rate']} | {row['first']:.1f} | {row['note']} |"


# ---- what a machine may lack ---------------------------------------------------------------------


def missing() -> list[str]:
    """What must be installed, as pip would be told; of another version counts as not there, for a
    compiler of another year refuses our code, which would cost the minutes that there are."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    absent = []
    for requirement in (*wanted, "torch"):
        name, pins = re.match(r"([\w-]+)(.*)", requirement).groups()  # type: ignore[union-attr]
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = ""
        if not found or not fits(found, pins):
            print(f"{requirement} is asked for, here is {found or 'none'}", flush=True)
            absent.append(requirement)
    return absent


def fits(version: str, pins: str) -> bool:
    """Whether a version is one of `>=0.50,<0.51`."""

    def numbers(text: str) -> list[int]:
        return [int(n) for n in re.findall(r"\d+", text)[:3]]

    asked = re.findall(r"(>=|<|==)([\d.]+)", pins)
    has = numbers(version)
    kept = {">=": lambda n: has >= n, "<": lambda n: has < n, "==": lambda n: has[: len(n)] == n}
    return all(kept[sign](numbers(text)) for sign, text in asked)


# ---- processes -----------------------------------------------------------------------------------


class Child:
    """A process, and all that it starts, read line by line with patience."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], errors: Any) -> None:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            command,
            cwd=ROOT / "test",
            env={**os.environ, "DEVICE_TIMEOUT": "20", "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout.fileno()
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.pipe, selectors.EVENT_READ)
        self.lines: list[str] = []
        self.rest = b""

    def line(self, patience: float) -> str | None:
        """The next line with its end; "" after the last; None if there is none in so many
        seconds."""
        until = time.monotonic() + patience
        while not self.lines:
            left = until - time.monotonic()
            if left <= 0 or not self.ready.select(timeout=left):
                return None
            data = os.read(self.pipe, 1 << 16)
            if not data:
                return ""
            *whole, self.rest = (self.rest + data).split(b"\n")
            self.lines = [text.decode(errors="replace") + "\n" for text in whole]
        return self.lines.pop(0)

    def end(self) -> str:
        """Nothing of it is left; how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"


# ---- the op tests --------------------------------------------------------------------------------

FILES = ("tensor", "elementwise", "movement", "reduction", "indexing", "conv")


def run_tests(page: Page, device: str, limit: float, some: dict[str, str], log: TextIO) -> None:
    """The package's op tests on the device, by pytest; one row. Where the time is over, what was
    found so far counts."""
    absent = [name for name in ("pytest", "hypothesis") if find_spec(name) is None]
    if absent:
        page.add("op tests", {"note": f"not run: {' and '.join(absent)} not installed"})
        return
    several = ["-n", "4"] if find_spec("xdist") else []
    files = [f"tensor/test_{name}.py" for name in FILES]
    command = [sys.executable, "-m", "pytest", *files, "-v", "--tb=short", *several]
    environment = {"DEV": device, **some}
    child = Child([*command, "-p", "no:cacheprovider"], environment, subprocess.STDOUT)
    deadline, late = time.monotonic() + limit, False
    found: dict[str, str] = {}
    while (text := child.line(deadline - time.monotonic())) != "":
        if text is None and late:
            break
        if text is None:  # pytest sums up, with tracebacks
            late, deadline = True, time.monotonic() + GRACE
            os.killpg(child.process.pid, signal.SIGINT)
            continue
        log.write(text)
        verdict, test = (re.search(p, text) for p in (r"PASSED|FAILED|ERROR", r"tensor/\S+"))
        if verdict and test:
            found.setdefault(test[0], verdict[0])
    log.flush()
    how = child.end()
    bad = [test for test, verdict in found.items() if verdict != "PASSED"]
    words = [f"{len(found) - len(bad)} of {len(found)} op tests pass"]
    words += ["stopped before the end"] * late + bad[:8] + [f"pytest: {how}"] * (not found)
    page.note(f"{'; '.join(words)}.")
    if bad or not found:
        page.add("op tests", {"note": "; ".join(words)})


# ---- the cases -----------------------------------------------------------------------------------


@dataclass
class Cases:
    """Processes for the cases, one after the other, as long as they bring something."""

    page: Page
    given: dict[str, Any]  # what each process is told: fields of gpu_cases.Bench
    patience: float  # seconds that a case may take
    deadline: float
    log: TextIO
    begun: tuple[str, str] | None = None  # a case, and its part
    failed: tuple[str, str] | None = None  # the same, of one that is to be tried again
    lost: str = ""  # what a process said of its end
    starts: int = 0
    settled: set[str] = field(default_factory=lambda: {*NO_CHOICE})  # parts with no more to try

    def run(self) -> None:
        """All of them, in as many processes as it takes."""
        given = dict(self.given)
        while given["parts"] and self._go_on(given) and self.failed:
            name, part = self.failed
            self.settled.add(part)
            if without := self._tried_again(name, part):
                left = self.deadline - time.monotonic()
                self._go_on(given | {"parts": [part], "without": without}, left / 2)
                given["parts"] = [each for each in given["parts"] if each != part]

    def _tried_again(self, name: str, part: str) -> str:
        """What a case works without, if anything."""
        for without in CHOICES[self.given["device"]][1]:
            alone = {"parts": [part], "only": name, "without": without}
            if not self._go_on(self.given | alone):
                return ""
            row = self.page.rows.get(f"{name}{WITHOUT}{without}")
            if row is not None and not row["note"]:
                return without
        return ""

    def _go_on(self, given: dict[str, Any], seconds: float = 1e9) -> bool:
        """Processes for what is given, until it is done or one has failed that is to be tried
        again; whether there is more to do, and time for it."""
        self.failed = None
        until = min(self.deadline, time.monotonic() + seconds)
        while self.starts < STARTS:
            self.starts += 1
            before = len(self.page.rows)
            why = self._one_process(given, until)
            if self.failed or not why or time.monotonic() > until:
                break
            if self.begun is not None:
                name, part = self.begun
                self._add(name, {"part": part, "note": why}, given)
                if self.failed:
                    break
            elif len(self.page.rows) == before:
                self.page.note(f"No case could begin: {why} (more in {self.log.name}).")
                return False
        return self.starts < STARTS and time.monotonic() < self.deadline

    def _add(self, name: str, row: dict[str, Any], given: dict[str, Any]) -> None:
        """A row; of a failure there is more to know, if something can be left out."""
        self.page.add(name, row)
        if row["note"] and given["device"] in CHOICES and row["part"] not in self.settled:
            self.failed = name, row["part"]

    def _one_process(self, given: dict[str, Any], until: float) -> str:
        """Why it didn't come to its end, if it didn't."""
        left = max(0.0, until - time.monotonic())
        known = {key: self.given[key] for key in ("bandwidth",) if key in self.given}
        told = given | known | {"skip": list(self.page.rows), "seconds": left}
        command = [sys.executable, str(HERE / "gpu_cases.py"), json.dumps(told)]
        environment = {"DEV": given["device"]}
        if given.get("without"):
            environment[CHOICES[given["device"]][0]] = given["without"]
        self.begun, self.lost, done = None, "", False
        child = Child(command, environment, self.log)
        patience = max(START, self.patience)  # then what a case may take
        while text := child.line(min(patience, self.deadline + GRACE - time.monotonic())):
            done = self._hear(json.loads(text), given) or done
            if self.failed:
                break
            patience = self.patience if self.begun else START
        how = child.end()
        if done or self.failed:
            return ""
        late = f"not done after {patience:.0f} s"
        return late if text is None else self.lost or f"its process: {how}"

    def _hear(self, thing: dict[str, Any], given: dict[str, Any]) -> bool:
        """What a process says; whether it is done."""
        if "cases" in thing:
            cases = {case: part for part, case in thing["cases"]}
            if not given.get("without"):
                self.page.waiting |= cases
        elif "machine" in thing:
            self.page.machine = thing["machine"]
        elif "lost" in thing:
            self.lost = thing["lost"]
        elif "begin" in thing:
            self.begun = thing["begin"], thing["part"]
        elif "bandwidth" in thing:
            self.given |= thing
        elif "name" in thing:
            self.begun = None
            self._add(thing.pop("name"), thing, given)
        return "done" in thing


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--minutes", type=float, default=8.0, help="in all, starts included")
    parser.add_argument("--device", default="CUDA")
    parser.add_argument("--peer", default="cuda", help="PyTorch's device: cuda, cpu")
    parser.add_argument("--patience", type=float, default=90.0, help="seconds for one case")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--anyway", action="store_true", help="with packages of other versions")
    parser.add_argument("--small", action="store_true", help="tiny shapes: tries the script itself")
    return parser.parse_args()


def main() -> int:
    """Runs the parts; 1 if a result was wrong or a case failed, 2 if nothing could begin."""
    chosen = arguments()
    wanted = chosen.only.split(",")
    if unknown := [name for name in wanted if name not in PARTS]:
        raise SystemExit(f"--only {','.join(unknown)}: the parts are {', '.join(PARTS)}")
    if (absent := missing()) and not chosen.anyway:
        words = " ".join(f"'{each}'" for each in absent)
        raise SystemExit(
            f"not installed: {', '.join(absent)}\n{sys.executable} -m pip install {words}"
        )
    start = time.monotonic()
    deadline = start + 60 * chosen.minutes - GRACE
    device = chosen.device.upper()
    now = datetime.datetime.now()
    output = chosen.output or HERE / "results" / f"gpu-{now:%Y-%m-%d}.md"
    page = Page(output.resolve(), f"{device} against PyTorch, {now:%Y-%m-%d %H:%M}")
    page.write()  # says now if it can't be
    with output.with_suffix(".log").open("w") as log:
        if "tests" in wanted:
            some = next(row for minutes, row in SAMPLES if chosen.minutes >= minutes)
            some = SAMPLES[-1][1] if chosen.small else some
            limit = max(0.0, (deadline - start) * (TESTS_SHARE if wanted[1:] else 1))
            run_tests(page, device, limit, some, log)
        parts = [name for name in PARTS[1:] if name in wanted]
        facts = {"device": device, "peer": chosen.peer, "small": chosen.small, "parts": parts}
        if parts:
            Cases(page, facts, chosen.patience, deadline, log).run()
    page.write()
    print(f"\n{page.text()}\nwritten to {output}")
    return 2 if parts and not page.rows else int(page.failed)


if __name__ == "__main__":
    sys.exit(main())
