"""What a change does to the kernels: those that the tests make at an earlier commit are made again
here, and their sources compared.

    make replay BASE=main~3                          # or: python tools/replay.py main~3
    make replay BASE=main~3 TESTS="test/tensor/test_conv.py test/nn"

The tests run in a worktree of BASE, with CAPTURE_KERNELS; what they made is kept in `.replay/`, so
a second time only the present is computed. Sources that differ are shown once for each way in which
they differ: the lines that go and come, but for the numbers in them. Exit status: 0 nothing
differs, 1 something does, 2 there is nothing to compare.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("test/tensor", "test/engine", "test/nn", "test/schedule")
MOST_LINES = 40  # of one diff
SHOWN = 12  # ways
EXAMPLES = 4  # names of kernels
ERRORS = re.compile(r"^(FAILED|ERROR)\b|\w+(Error|Exception): ")  # of what pytest says


@dataclass(frozen=True)
class Outcome:
    """One kernel: "same", "changed" with a unified diff, "failed" or "skipped" with a reason."""

    name: str
    device: str
    state: str
    text: str = ""


# ---- the past ------------------------------------------------------------------------------------


def pictures_of(base: str, tests: Iterable[str]) -> Path:
    """The folder with the kernels that these tests make at that commit."""
    tests = list(tests)
    commit = git("rev-parse", "--verify", f"{base}^{{commit}}").strip()
    where = hashlib.sha256(" ".join([commit, *tests, os.environ.get("DEV", "")]).encode())
    folder = ROOT / ".replay" / f"{commit[:12]}-{where.hexdigest()[:8]}"
    if not (folder / "complete").exists():
        with worktree(commit) as tree:
            finished = record(tree, tests, folder)
        if finished and any(folder.glob("*.json")):
            (folder / "complete").touch()
    return folder


@contextlib.contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """The files of a commit, for a while."""
    with TemporaryDirectory(prefix="replay-") as place:
        tree = Path(place) / "tree"
        git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def record(tree: Path, tests: list[str], folder: Path) -> bool:
    """Runs the tests there, and whether they came to an end: a test that fails is said, and made
    kernels before it did."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "CAPTURE_KERNELS": str(folder),
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # make hands on its TESTS, which test/tensor reads as a number of its own
    inherited = {k: v for k, v in os.environ.items() if k[:7] != "PYTEST_" and k != "TESTS"}
    parallel = ["-n", str(min(2, os.cpu_count() or 1))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *parallel, *tests]
    done = subprocess.run(command, cwd=tree, env=inherited | facts, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if ERRORS.search(line)]
        told = "\n".join(dict.fromkeys(errors[-20:])) or done.stdout[-1500:] + done.stderr[-1500:]
        print(f"the tests of then did not all pass:\n{told}", file=sys.stderr)
    return done.returncode in (0, 1)  # pytest's own: passed, some failed


def git(*words: str) -> str:
    """What git says; stops with its words when it can't."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


# ---- the present ---------------------------------------------------------------------------------


def prepare() -> None:
    """A worker computes with this tree, and knows the devices of its tests."""
    sys.path[:0] = [str(ROOT), str(ROOT / "test")]
    with contextlib.suppress(ImportError):
        importlib.import_module("devices")


def compare(path: str) -> Outcome:
    """One picture beside what is made of it now."""
    from tinygrad.backends import why_absent
    from tinygrad.engine.devices import Device
    from tinygrad.engine.gallery import made_again

    picture: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    device, name = picture["target"]["device"], next(iter(picture["sources"]))
    try:
        reason = why_absent(device)
        if reason:
            return Outcome(name, device, "skipped", reason.splitlines()[0])
        now = made_again(picture, Device[device])
    except Exception as error:  # of whatever kind: the kernel can't be made any more
        return Outcome(name, device, "failed", f"{type(error).__name__}: {str(error)[:200]}")
    then: dict[str, str] = picture["sources"]
    if now == then:
        return Outcome(name, device, "same")
    return Outcome(name, device, "changed", "\n".join(differences(then, now)))


def differences(then: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    """A unified diff of each phase; phases in order, whatever they are called now."""
    names = [*then, *[""] * (len(now) - len(then))], [*now, *[""] * (len(then) - len(now))]
    for old, new in zip(*names, strict=True):
        lines = then.get(old, "").splitlines(), now.get(new, "").splitlines()
        yield from difflib.unified_diff(*lines, old, new, n=2, lineterm="")


def way_of(diff: str) -> str:
    """What kernels that changed in the same way have in common: lines that go and come, without
    their numbers, each once."""
    lines = (line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in FILES)
    return "\n".join(dict.fromkeys(re.sub(r"\d+", "#", line) for line in lines))


FILES = ("+++", "---")

# ---- what is said --------------------------------------------------------------------------------


def report(outcomes: list[Outcome]) -> str:
    """The counts, and an example of each way."""
    devices = Counter(o.device for o in outcomes)
    states = Counter(o.state for o in outcomes)
    out = [
        f"{len(outcomes)} kernels ({', '.join(f'{k} {n}' for k, n in devices.most_common())}): "
        + ", ".join(f"{states[s]} {s}" for s in ("same", "changed", "failed", "skipped"))
    ]
    ways: defaultdict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        if one.state == "changed":
            ways[way_of(one.text)].append(one)
        elif one.state != "same":
            ways[f"{one.state}: {re.sub('[0-9]+', '#', one.text)}"].append(one)
    ordered = sorted(ways.values(), key=len, reverse=True)
    for number, those in enumerate(ordered[:SHOWN], 1):
        names = ", ".join(dict.fromkeys(f"{o.name} on {o.device}" for o in those[:EXAMPLES]))
        more = f" and {len(those) - EXAMPLES} more" if len(those) > EXAMPLES else ""
        shortest = min((o.text for o in those), key=len).splitlines()
        cut = ["..."] if len(shortest) > MOST_LINES else []
        out += [f"\n-- way {number} of {len(ordered)}: {names}{more}"]
        out += [f"   {those[0].state}", *shortest[:MOST_LINES], *cut]
    if len(ordered) > SHOWN:
        out.append(f"\n... and {len(ordered) - SHOWN} more ways")
    return "\n".join(out)


def main() -> int:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("base", help="a commit that has CAPTURE_KERNELS")
    parser.add_argument("tests", nargs="*", default=TESTS, help="tests that make the kernels")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    there = git("ls-tree", "-r", "-t", "--name-only", options.base).splitlines()
    if absent := [t for t in options.tests if t.split("::")[0].rstrip("/") not in there]:
        print(f"no kernels: {options.base} has no {', '.join(absent)}")
        return 2
    paths = sorted(map(str, pictures_of(options.base, options.tests).glob("*.json")))
    if not paths:
        print("no kernels: the tests made none, or that commit knows no CAPTURE_KERNELS")
        return 2
    with ProcessPoolExecutor(options.jobs, initializer=prepare) as pool:
        outcomes = list(pool.map(compare, paths, chunksize=8))
    print(report(outcomes))
    return 0 if all(o.state in ("same", "skipped") for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
