"""This checkout beside an earlier one: every case of the suite in both, in turn.

    python benchmarks/before.py main~3                    # a commit, or a folder that holds one
    python benchmarks/before.py main~3 --cases 'conv*,softmax*'

A change that helps one case may cost another; `tools/replay.py` says whose kernels it touched, this
how long they take now. Each case runs in two processes, pinned to one core, which measure in turn;
of the rounds the least processor time counts. A ratio below 1: this checkout is faster. Nothing is
written: what is worth keeping goes into a page of results/ with its reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from asked import matching
from lock import locked
from suite import CASES, Case

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def main() -> None:
    options = arguments()
    ratios: list[float] = []
    with checkout(options.base) as base, TemporaryDirectory(prefix="before-") as caches:
        for name in matching(options.cases, CASES):
            with locked(options.lock):
                then, now = compared(CASES[name], (base, ROOT), Path(caches), options)
            ratios.append(now / then)
            mark = "  slower" if now > 1.06 * then else "  faster" if now < 0.94 * then else ""
            row = f"{name:40} {1e3 * then:9.3f} {1e3 * now:9.3f} ms {now / then:6.2f}{mark}"
            print(row, flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{len(ratios)} cases, geometric mean {mean:.3f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="a commit, or the folder of another checkout")
    parser.add_argument("--cases", default="*", help="names or patterns, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.15, help="of a measurement")
    parser.add_argument("--core", default="1", help="that both are pinned to")
    parser.add_argument("--lock", default="", help="a file whose lock is held while measuring")
    return parser.parse_args()


@contextlib.contextmanager
def checkout(base: str) -> Iterator[Path]:
    """The folder of a checkout: `base` itself, or a worktree of that commit for a while."""
    if Path(base).is_dir():
        yield Path(base).resolve()
        return
    with TemporaryDirectory(prefix="before-") as place:
        tree = Path(place) / "tree"
        add = ["git", "worktree", "add", "--quiet", "--detach", str(tree), base]
        if subprocess.run(add, cwd=ROOT, check=False).returncode:
            raise SystemExit(f"{base} is neither a folder nor a commit")
        try:
            yield tree
        finally:
            remove = ["git", "worktree", "remove", "--force", str(tree)]
            subprocess.run(remove, cwd=ROOT, check=True)


def compared(
    case: Case, trees: tuple[Path, Path], caches: Path, options: argparse.Namespace
) -> list[float]:
    """Seconds of the processor that a call takes in each tree."""
    running = [started(case, tree, caches / str(i), options) for i, tree in enumerate(trees)]
    least = [math.inf, math.inf]
    for process in running:
        said(process)
    for _ in range(options.rounds):
        for i, process in enumerate(running):
            assert process.stdin is not None
            print("again", file=process.stdin, flush=True)
            least[i] = min(least[i], said(process)["processor"])
    for process in running:
        process.kill()
        process.wait()
    return least


def started(
    case: Case, tree: Path, cache: Path, options: argparse.Namespace
) -> subprocess.Popen[str]:
    """A case of one tree under way, by the harness of this one: both measure the same."""
    pinned = ["taskset", "-c", options.core] if sys.platform == "linux" else []
    inside = {"PYTHONPATH": str(tree), "TINYGRAD_CACHE": str(cache), "CPU_COUNT": "1"}
    return subprocess.Popen(
        [*pinned, sys.executable, str(HERE / "harness.py"), "cases_tinygrad", case.name]
        + [str(options.seconds)],
        env={**os.environ, **inside},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next thing that it measured."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            row: dict[str, Any] = json.loads(line)
            return row
    raise SystemExit("a case ended; its words are above")


if __name__ == "__main__":
    main()
