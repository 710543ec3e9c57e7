"""A beam search over recipes, given a stopwatch: it starts from the heuristic's recipe and keeps
whatever runs faster, so it never ends worse. It changes numbers in steps (tile sizes, roles of
tails), never the meaning: every candidate goes through the same checked primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tinygrad.base.errors import TinygradError
from tinygrad.base.target import Target
from tinygrad.loops.recipe import Recipe, Step, apply
from tinygrad.uop.node import UOp

Stopwatch = Callable[[UOp], float]
"""Seconds that a scheduled kernel takes; infinity, or an error of ours, if it can't run."""

ROUNDS = 4
FACTORS = (0.5, 2.0, 0.75, 1.5)
NEEDED_GAIN = 0.98  # a change counts only if it is faster than noise


def search(
    kernel: UOp, target: Target, recipe: Recipe, stopwatch: Stopwatch, width: int = 4
) -> Recipe:
    """The fastest recipe found near `recipe`, in at most ROUNDS rounds of `width` survivors."""
    start = _time(kernel, recipe, stopwatch)
    beam = [(start, recipe)]
    seen = {recipe}
    for _ in range(ROUNDS):
        found = []
        for _, one in beam:
            for candidate in neighbours(one):
                if candidate not in seen:
                    seen.add(candidate)
                    found.append((_time(kernel, candidate, stopwatch), candidate))
        best = beam[0][0]
        beam = sorted(beam + found, key=lambda pair: pair[0])[:width]
        if beam[0][0] >= best * NEEDED_GAIN:
            break
    fastest = beam[0]
    return fastest[1] if fastest[0] < start * NEEDED_GAIN else recipe


def neighbours(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes that differ in the factor of one split, or lack one step."""
    for position, step in enumerate(recipe):
        for changed in _changed(step):
            yield (*recipe[:position], *changed, *recipe[position + 1 :])


def _changed(step: Step) -> Iterator[tuple[Step, ...]]:
    if step[0] == "split" and "VECTOR" not in step:
        factor = step[2]
        for new in dict.fromkeys(max(1, int(factor * f)) for f in FACTORS):
            if new != factor:
                yield ((*step[:2], new, *step[3:]),)
    if step[0] in ("prefetch", "stream"):
        yield ()


def _time(kernel: UOp, recipe: Recipe, stopwatch: Stopwatch) -> float:
    try:
        return stopwatch(apply(kernel, recipe))
    except TinygradError:
        return float("inf")
