"""A beam search over recipes, given a function that measures time. It starts from the heuristic's
recipe and keeps what runs faster. Candidates are the heuristic's recipes for similar machines, and
changes of single steps: sizes of tiles and tasks, roles, orders, where and how values are staged.
Every candidate goes through the same checked primitives, so none changes the meaning.

The step `stream` is not searched. Whether an output should bypass the cache depends on who reads it
next, which repeated runs of a single kernel can't measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from tinygrad.base.errors import TinygradError
from tinygrad.base.helpers import ceildiv
from tinygrad.base.target import Target
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.matrix_units import UNITS
from tinygrad.loops.recipe import Recipe, Step
from tinygrad.uop.node import UOp

Stopwatch = Callable[[Recipe, float], float]
"""The seconds of the kernel with a recipe; infinity if it can't run, gives wrong results, or is
clearly slower than the given limit."""

ROUNDS = 4
"""Rounds; in each, neighbours of the best recipes so far are timed. Before the first, other
proposals are timed."""

TRIES = 48
"""The candidates that are timed, for each recipe of the beam's width."""

STREAM: Step = ("stream",)

NEEDED_GAIN = 0.98  # a smaller change may be noise


def search(
    recipe: Recipe, others: Iterable[Recipe], stopwatch: Stopwatch, width: int
) -> tuple[Recipe, int]:
    """The fastest recipe found near `recipe` or one of `others`, and how many were timed."""
    start = stopwatch(recipe, float("inf"))
    beam, seen, tried = [(start, recipe)], {recipe}, 1
    streamed = (STREAM,) if STREAM in recipe else ()
    found: Iterator[Recipe] = ((*other, *streamed) for other in others)
    for _ in range(1 + ROUNDS):
        best = beam[0][0]
        fresh = []
        share = ceildiv(TRIES * width, ROUNDS)
        for candidate in islice((c for c in found if c not in seen), share):
            seen.add(candidate)
            fresh.append((stopwatch(candidate, beam[-1][0]), candidate))
        tried += len(fresh)
        is_first = len(seen) == 1 + len(fresh)
        beam = sorted(beam + fresh, key=lambda pair: pair[0])[:width]
        if beam[0][0] >= best * NEEDED_GAIN and not is_first:
            break
        found = alternate([neighbours(one) for _, one in beam])
    return (beam[0][1] if beam[0][0] < start * NEEDED_GAIN else recipe), tried


def alternate(lists: Iterable[Iterator[Recipe]]) -> Iterator[Recipe]:
    """Takes one from each iterator in turn."""
    waiting = list(lists)
    while waiting:
        for one in list(waiting):
            item = next(one, None)
            if item is None:
                waiting.remove(one)
            else:
                yield item


# ---- machines much like this one -----------------------------------------------------------------


def elsewhere(kernel: UOp, target: Target) -> Iterator[Recipe]:
    """The recipes that the heuristic would choose if the machine had other vectors, registers,
    ports or caches, smaller groups, or lacked one of its matrix units; and one without `stream`."""
    for changed in _other_groups(target) if target.has_groups else _other_cores(target):
        try:
            found = schedule(kernel, replace(target, **changed))[1]
        except TinygradError:
            continue
        yield tuple(step for step in found if step != STREAM)


def _other_cores(target: Target) -> tuple[dict[str, Any], ...]:
    return (
        {"registers": 3 * target.registers // 4},
        {"registers": target.registers // 2},
        {"fma_ports": 3 - min(2, target.fma_ports)},
        {"load_ports": 3 - min(2, target.load_ports)},
        {"load_ports": 3},
        {"vector": target.vector // 2},
        {"vector": target.vector * 2},
        {"cache_l1": target.cache_l1 // 2},
        {"cache_l1": target.cache_l1 * 4},
        {"cache_l2": target.cache_l2 // 4},
        {"cache_l2": target.cache_l2 * 4},
    )


def _other_groups(target: Target) -> Iterator[dict[str, Any]]:
    units = {unit.feature for unit in UNITS.values()}
    for unit in sorted(units & target.native):
        yield {"native": target.native - {unit}}
    for lanes in (128, 64, 32):
        if lanes < target.group_limit:
            yield {"group_limit": lanes}
    yield {"vector": target.vector // 2}
    yield {"vector": 1}
    yield {"registers": target.registers // 2}
    yield {"local_memory": target.local_memory // 2}


# ---- changes of one step -------------------------------------------------------------------------


def neighbours(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes that differ in one step; the changes of all steps take turns."""

    def at(position: int) -> Iterator[Recipe]:
        step = recipe[position]
        for changed in CHANGES[step[0]](step) if step[0] in CHANGES else ():
            yield (*recipe[:position], *changed, *recipe[position + 1 :])

    yield from alternate([at(position) for position in range(len(recipe))])


def _other_sizes(step: Step) -> Iterator[tuple[Step, ...]]:
    name, loop, factor, inner, *roles = step
    if roles[-1:] == ["TILE"]:  # its size is the matrix unit's choice
        return
    sizes = [2 * factor, factor // 2, factor + 1, factor - 1, 3 * factor // 2, 3 * factor // 4]
    if roles[-1:] in (["VECTOR"], ["LANE"], ["GROUP"]):
        sizes = sizes[:2]
    for size in dict.fromkeys(s for s in sizes if s > 1 and s != factor):
        yield ((name, loop, size, inner, *roles),)
    if roles[-1:] in (["UNROLL"], ["LOOP"]):
        other = {"UNROLL": "LOOP", "LOOP": "UNROLL"}[roles[-1]]
        yield ((name, loop, factor, inner, *roles[:-1], other),)


def _other_orders(step: Step) -> Iterator[tuple[Step, ...]]:
    name, owner, loops = step
    for i in range(len(loops) - 1):
        swapped = (*loops[:i], loops[i + 1], loops[i], *loops[i + 2 :])
        yield ((name, owner, swapped),)


def _other_stages(step: Step) -> Iterator[tuple[Step, ...]]:
    head, how = step[:4], step[4:]
    if len(how) < 2:  # memory and options have their defaults
        return
    memory, options, *twins = how
    kept = dict(options)
    first = {"first": not kept.get("first", False)}
    for changed in (first, {"prefetch": 2 * kept.get("prefetch", 2)}, {"prefetch": 0}):
        pairs = tuple((k, v) for k, v in (kept | changed).items() if v)
        if pairs != options:
            yield ((*head, memory, pairs, *twins),)
    yield ((*head, "LOCAL" if memory == "GLOBAL" else "GLOBAL", options, *twins),)
    yield ()


def _other_distances(step: Step) -> Iterator[tuple[Step, ...]]:
    name, loop, turns, *inside = step
    yield ((name, loop, 2 * turns, *inside),)
    yield ((name, loop, max(1, turns // 2), *inside),)
    yield ()


def _none(step: Step) -> Iterator[tuple[Step, ...]]:
    yield ()


CHANGES: dict[str, Callable[[Step], Iterator[tuple[Step, ...]]]] = {
    "split": _other_sizes,
    "order": _other_orders,
    "stage": _other_stages,
    "prefetch": _other_distances,
    "role": _none,
    "together": _none,
    "merge": _none,
    "trim": _none,
    "pad": _none,
    "regroup": _none,
}
