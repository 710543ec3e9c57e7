"""What a mechanism of the recipes gains: the kernels whose recipe changes without it, each timed
with and without, in turn.

    CAPTURE_KERNELS=pictures CPU_COUNT=1 python ...           # make kernels: any program's
    python benchmarks/without.py pictures vectors.parts:sum_in_parts 'lambda draft: ()'
    python benchmarks/without.py pictures vectors.stencils:stencil 'lambda draft: False' --most 9

The function of tinygrad/loops is replaced by the given one, which does nothing, or says that
nothing of the kind was found. A ratio is the time without it over the time with it, so above 1 it
gains: first with operands in the private cache where they fit, then from farther away. Kernels are
run alone, so what a recipe does to the next kernel isn't seen. Results that differ are not timed:
sums in another order, or numbers that a kernel's own inputs would never have.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pkgutil
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("CPU_COUNT", "1")

from lock import locked

import tinygrad.loops
from tinygrad.base.errors import TinygradError
from tinygrad.base.target import Target
from tinygrad.engine.gallery import read_target
from tinygrad.engine.trial import SAMPLE, Trial
from tinygrad.loops import heuristic
from tinygrad.loops.recipe import Recipe, to_text
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.text import parse

ROUNDS = 7
FARTHER = 4  # private caches of other memory that are written before a run


def main() -> None:
    options = arguments()
    module, _, name = options.function.partition(":")
    for each in pkgutil.walk_packages(tinygrad.loops.__path__, "tinygrad.loops."):
        importlib.import_module(each.name)
    old = getattr(sys.modules[f"tinygrad.loops.{module}"], name)
    kernels = dict(pictured(options.pictures))
    usual = [heuristic.schedule(*each)[1] for each in kernels.items()]
    put(old, eval(options.instead))
    without = [recipe_of(*each) for each in kernels.items()]
    rows = zip(kernels, usual, without, strict=True)
    changed = [(kernel, one, other) for kernel, one, other in rows if other and one != other]
    print(f"{len(changed)} of {len(kernels)} kernels have another recipe")
    random.Random(0).shuffle(changed)
    ratios = []
    for kernel, one, other in changed[: options.most]:
        with locked(options.lock):
            found = raced(kernel, one, other)
        print(f"{kernel.key.hex()[:12]}  " + "  ".join(f"{r:6.3f}" for r in found), flush=True)
        ratios.append(found)
    for column in zip(*filter(None, ratios), strict=True):
        print(f"geometric mean {math.exp(sum(map(math.log, column)) / len(column)):.3f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", type=Path, help="a folder that CAPTURE_KERNELS named")
    parser.add_argument("function", help="module:name, in tinygrad/loops")
    parser.add_argument("instead", help="Python: what is called in its place")
    parser.add_argument("--most", type=int, default=24, help="kernels that are timed")
    parser.add_argument("--lock", default="", help="a file whose lock is held while measuring")
    return parser.parse_args()


def pictured(folder: Path) -> Iterator[tuple[UOp, Target]]:
    """The kernels of processors with vectors; those of a bundle each for itself."""
    for path in sorted(folder.glob("*.json")):
        picture = json.loads(path.read_text(encoding="utf-8"))
        kernel, target = parse(picture["kernel"]), read_target(picture["target"])
        if target.device == "CPU" and not picture["noopt"]:
            yield from ((k, target) for k in (kernel.src if kernel.op is Ops.BUNDLE else (kernel,)))


def put(old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Puts a function in the place of another one, wherever that is known."""
    for module in [m for name, m in sys.modules.items() if name.startswith("tinygrad.")]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)


def recipe_of(kernel: UOp, target: Target) -> Recipe:
    """The heuristic's recipe; empty if it can't do without the function."""
    try:
        return heuristic.schedule(kernel, target)[1]
    except (TinygradError, AssertionError) as error:
        print(f"{kernel.key.hex()[:12]}  {type(error).__name__}: {error}"[:100])
        return ()


def raced(kernel: UOp, one: Recipe, other: Recipe) -> list[float]:
    """The least time of the other recipe over that of the one, in both conditions."""
    try:
        trial = Trial(kernel, "CPU", to_text(one))
        key = trial._load(to_text(other))
        trial._check(key, SAMPLE)
    except TinygradError as error:
        print(f"{kernel.key.hex()[:12]}  {error}"[:100])
        return []
    often = trial._several(key, trial.repeats), trial.reference_plan
    once = trial._several(key, 1), trial._several(trial.reference, 1)
    found = []
    for pair, size in ((often, 0), (once, FARTHER)):
        condition = trial._condition(*pair, size)
        ways = condition.candidate, condition.reference
        least = dict.fromkeys(ways, math.inf)
        for number in range(ROUNDS):
            for run in ways if number % 2 else ways[::-1]:
                condition.before()
                least[run] = min(least[run], run())
        found.append(least[ways[0]] / least[ways[1]])
    trial.forget()
    return found


if __name__ == "__main__":
    main()
