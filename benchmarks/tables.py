"""The page of a comparison: how fast, how soon, how much memory; for each number of threads."""

from __future__ import annotations

import datetime
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frameworks import OURS
from suite import CASES, Case

TOLERANCE = 0.02  # of the mean magnitude: bfloat16 has two digits
MEBI = 1 << 20

Row = dict[str, Any]
"""What harness.py measured, or {"error": why}."""

Rounds = list[dict[str, Row]]
"""Of one case: a row for each framework, round by round."""


@dataclass
class Page:
    """What a comparison found. `tables`: threads → case → rounds."""

    versions: dict[str, str]
    absent: dict[str, str]
    rounds: int
    seconds: float
    command: str
    tables: dict[int, dict[str, Rounds]] = field(default_factory=dict)


def page(made: Page) -> str:
    """All of it, as Markdown."""
    names = list(made.versions)
    lines = heading(made)
    for threads, table in made.tables.items():
        lines += [f"## {threads} thread{'s' if threads > 1 else ''}", ""]
        lines += [*summary(table, names, threads), ""]
        lines += [*speed_table(table, names, threads), "", *start_table(table, names), ""]
        lines += [*memory_table(table, names), "", *notes(table, names), ""]
    return "\n".join(lines)


# ---- numbers -------------------------------------------------------------------------------------


def clock(threads: int) -> str:
    """The field of a measurement that is compared."""
    return "processor" if threads == 1 else "wall"


def of(rounds: Rounds, name: str) -> list[Row] | None:
    """A framework's rows; None if one of them failed or is not there."""
    rows = [row.get(name, {"error": "not run"}) for row in rounds]
    return None if any("error" in row for row in rows) else rows


def error_of(rounds: Rounds, name: str) -> str | None:
    return next((row[name]["error"] for row in rounds if "error" in row.get(name, {})), None)


def paired(rounds: Rounds, name: str, threads: int) -> list[float]:
    """Their time over ours, round by round; empty if either failed."""
    theirs = of(rounds, name)
    if theirs is None or "beside" not in theirs[0]:
        return []
    key = clock(threads)
    return [row[key] / row["beside"][key] for row in theirs]


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def differ(ours: list[float] | None, theirs: list[float] | None) -> bool:
    """Whether two signatures can't be of the same result."""
    if ours is None or theirs is None:
        return False
    scale = abs(theirs[1]) + 1e-12
    pairs = zip(ours, theirs, strict=True)
    return any(not abs(a - b) <= TOLERANCE * (scale + abs(b)) for a, b in pairs)


# ---- tables --------------------------------------------------------------------------------------


def ruled(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table whose first column is text."""
    rule = ["---", *("--:" for _ in head[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def summary(table: dict[str, Rounds], names: Sequence[str], threads: int) -> list[str]:
    """A line for each rival: geometric means and the worst."""
    lines = []
    for name in names[1:]:
        pairs = {case: paired(rounds, name, threads) for case, rounds in table.items()}
        found = {case: statistics.median(ratios) for case, ratios in pairs.items() if ratios}
        if not found:
            lines.append(f"- {name}: no case could be compared")
            continue
        worst = min(found, key=lambda case: found[case])
        behind = sum(ratio < 1 for ratio in found.values())
        lines.append(
            f"- against {name}: **{geometric_mean(found.values()):.2f}** times its speed "
            f"(geometric mean of {len(found)} cases), {found[worst]:.2f} at worst ({worst}); "
            f"behind in {behind}; {_sooner(table, name, list(found))}"
        )
    return lines


def _sooner(table: dict[str, Rounds], name: str, cases: list[str]) -> str:
    """How much sooner the first result is there, as geometric means."""
    words = []
    for word in ("cold", "warm"):
        ratios = []
        for case in cases:
            ours, theirs = of(table[case], OURS), of(table[case], name)
            assert ours is not None and theirs is not None
            ratios.append(theirs[0][word] / ours[0][word])
        words.append(f"{word} {geometric_mean(ratios):.2f}")
    return f"first result sooner by {', '.join(words)}"


def speed_table(table: dict[str, Rounds], names: Sequence[str], threads: int) -> list[str]:
    """Our time and its spread, rates, and each rival's time over ours with its spread."""
    head = ["case", "ms", "spread", "GFLOP/s", "GB/s", *names[1:]]
    return ruled(head, (_speed(CASES[c], r, names[1:], threads) for c, r in table.items()))


def _speed(case: Case, rounds: Rounds, rivals: Sequence[str], threads: int) -> list[str]:
    ours, key = of(rounds, OURS), clock(threads)
    if ours is None:
        return [case.name, "error", *("" for _ in range(3 + len(rivals)))]
    found = [row[key] for row in ours]
    middle = statistics.median(found)
    low = min(row["low"] for row in ours) if key == "wall" else min(found)
    high = max(row["high"] for row in ours) if key == "wall" else max(found)
    cells = [case.name, f"{middle * 1e3:.3f}", f"{low * 1e3:.3f} to {high * 1e3:.3f}"]
    cells += [f"{n / middle / 1e9:.1f}" if n else "" for n in (case.operations, case.nbytes)]
    for name in rivals:
        ratios = paired(rounds, name, threads)
        if not ratios:
            cells.append("error" if error_of(rounds, name) else "")
            continue
        wrong = any(differ(a.get("signature"), row[name].get("signature")) for a, row in
                    zip(ours, rounds, strict=True))  # fmt: skip
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
        cells.append(f"{statistics.median(ratios):.2f}{spread}" + (" DIFFERS" if wrong else ""))
    return cells


def start_table(table: dict[str, Rounds], names: Sequence[str]) -> list[str]:
    """Seconds to the first result, cold / warm, and of them compiling in the cold run."""
    head = ["cold / warm / compiling, s", *names]
    rows = []
    for case, rounds in table.items():
        cells = [case]
        for name in names:
            found = of(rounds, name)
            if found is None:
                cells.append("error" if error_of(rounds, name) else "")
                continue
            row = found[0]
            cells.append(f"{row['cold']:.2f} / {row['warm']:.2f} / {row['compile']:.2f}")
        rows.append(cells)
    return ruled(head, rows)


def memory_table(table: dict[str, Rounds], names: Sequence[str]) -> list[str]:
    """The most memory during the steady calls."""
    head = ["MiB above the import's (in all)", *names]
    rows = []
    for case, rounds in table.items():
        cells = [case]
        for name in names:
            found = of(rounds, name)
            if found is None or not found[0].get("peak"):
                cells.append("")
                continue
            least = min(found, key=lambda row: row["memory"])
            cells.append(f"{least['memory'] / MEBI:.0f} ({least['peak'] / MEBI:.0f})")
        rows.append(cells)
    return ruled(head, rows)


def notes(table: dict[str, Rounds], names: Sequence[str]) -> list[str]:
    """What went wrong."""
    return [
        f"- {case}: {name}: {error}"
        for case, rounds in table.items()
        for name in names
        if (error := error_of(rounds, name)) is not None
    ]


def case_lines(case: Case, rounds: Rounds, threads: int) -> list[str]:
    """One case while a run is under way."""
    names = list(rounds[0])
    cells = _speed(case, rounds, names[1:], threads)
    ratios = (f"{n} {cell or '-'}" for n, cell in zip(names[1:], cells[5:], strict=True))
    lines = [f"{case.name:28s} {threads} {cells[1]:>10s} ms   {'   '.join(ratios)}"]
    return lines + [f"    {line}" for line in notes({case.name: rounds}, names)]


# ---- the machine ---------------------------------------------------------------------------------


def heading(made: Page) -> list[str]:
    versions = ", ".join(f"{name} {number}" for name, number in made.versions.items())
    return [
        f"# Benchmarks, {datetime.date.today().isoformat()}",
        "",
        f"Machine: {processor()}, {os.cpu_count()} cores, {memory()}, {platform.system()}.",
        f"Versions: Python {platform.python_version()}, {versions}; commit {commit()}.",
        f"{made.rounds} rounds of {made.seconds:g} s. Load average: {load():.1f}.",
        *(f"Not compared: {name}: {why}." for name, why in made.absent.items()),
        "",
        f"    {made.command}",
        "",
        "ms: our time, the median of the rounds' medians, and its spread: processor time on one",
        "core with one thread, wall clock (quartiles of the calls) with more. The columns of the",
        "others: their time over ours in the same round, median (least to most); above 1 we are",
        "faster. DIFFERS: the results don't agree to two digits. Cold: from the start of the",
        "process to the first result, imports included, with empty caches; warm: with those that",
        "the cold process left. Compiling: what the first four calls of the cold process took",
        "beyond later ones. Memory: the most that is resident during later calls, above",
        "what it was after the imports (inputs, weights, results, temporaries), and in all.",
        "",
    ]


def commit() -> str:
    """The commit that is measured; + if files differ from it."""
    here = Path(__file__).resolve().parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
        )
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


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
