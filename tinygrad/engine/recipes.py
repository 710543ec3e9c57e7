"""Which recipe a kernel gets: one that the user pinned, else the search's, else the heuristic's.

A pin is a file `<id>.recipe` in the folder that RECIPES names, with the text that DEBUG=3 prints:
a step a line; lines that begin with # are comments. The id is the kernel's, before any recipe; it
is the same on every machine and in every process. BEAM=n searches with n recipes kept in each
round; what it finds is kept in the disk cache, beside the time that it takes to find it again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import colored, uncolored
from tinygrad.base.settings import BEAM, DEBUG, IGNORE_BEAM_CACHE, NOOPT, RECIPES
from tinygrad.codegen.bundles import Part, joined, shared
from tinygrad.codegen.names import kernel_name
from tinygrad.codegen.pipeline import Lowered, lower
from tinygrad.engine.cache import disk_cache, stamped_key
from tinygrad.engine.devices import OpenDevice
from tinygrad.engine.show import show_lowered
from tinygrad.engine.stopwatch import Stopwatch
from tinygrad.loops.heuristic import schedule, schedule_scalars, schedule_small
from tinygrad.loops.recipe import Recipe, apply, from_text, to_text
from tinygrad.loops.search import NEEDED_GAIN, elsewhere, search
from tinygrad.uop import Ops, UOp

MOST_INSTRUCTIONS = 5000
"""LLVM's time grows faster than the text, and caches can't hold more."""

CHOICES = (schedule, MOST_INSTRUCTIONS), (schedule_small, 8000), (schedule_scalars, sys.maxsize)
"""The heuristic's recipes, with the most instructions that are accepted of each. Scalars, which are
left in the end, take many times as long as vectors of any text."""

WON = 0.97
"""A recipe wins if it takes at most this fraction of the heuristic's time in the last race."""

SHORT = 5e-6
"""Seconds; faster kernels are not searched."""


def recipe_facts(ast: UOp) -> tuple[object, ...]:
    """Everything besides a kernel and its target that decides its recipe: part of its key."""
    pins = [_pin(kernel) for kernel in ast.src] if ast.op is Ops.BUNDLE else _pin(ast)
    return NOOPT.value, BEAM.value, pins


def kernel_id(ast: UOp) -> str:
    """A kernel's name in files: the same in every process and on every machine."""
    return ast.key.hex()[:12]


def lower_kernel(ast: UOp, device: OpenDevice) -> tuple[Lowered, Recipe]:
    """The kernel as linear programs, and the recipe that produced it. ArgumentError, which names
    the step, if a pinned recipe is not legal."""
    target = device.target
    if ast.op is Ops.BUNDLE:
        parts = []
        for kernel, members in shared(ast, target):
            lowered, recipe = lower_kernel(kernel, device)
            show_lowered(lowered, recipe, kernel_id(kernel))
            parts.append(Part(lowered, members))
        return joined(ast, parts, target), ()
    pin = _pin(ast)
    if pin is not None:
        try:
            return lower(apply(ast, pin), target), pin
        except ArgumentError as error:
            raise ArgumentError(f"{_pin_file(ast)}: {error}") from error
    for choose, most in CHOICES:
        kernel, recipe = choose(ast, target)
        lowered = lower(kernel, target)
        if lowered.instructions <= most:
            break
    if BEAM > 0 and recipe and target.vector and not _reads_by_value(ast):
        found = _searched(ast, device, recipe)
        if found != recipe:
            return lower(apply(ast, found), target), found
    return lowered, recipe


# ---- pins ----------------------------------------------------------------------------------------


def _pin_file(ast: UOp) -> Path:
    return Path(RECIPES.value) / f"{kernel_id(ast)}.recipe"


def _pin(ast: UOp) -> Recipe | None:
    if not RECIPES.value:
        return None
    try:
        lines = uncolored(_pin_file(ast).read_text(encoding="utf-8")).splitlines()
    except OSError:
        return None
    try:
        return from_text("\n".join(line for line in lines if not line.lstrip().startswith("#")))
    except ArgumentError as error:
        raise ArgumentError(f"{_pin_file(ast)}: {error}") from error


# ---- search --------------------------------------------------------------------------------------


def _searched(ast: UOp, device: OpenDevice, recipe: Recipe) -> Recipe:
    """The result of the search, from the cache if it was found before."""
    key = stamped_key(ast, device.target.key(), device.compiler.version, BEAM.value)
    kept = None if IGNORE_BEAM_CACHE else disk_cache().get("recipe", key)
    if kept is not None:
        return from_text(kept.decode())
    found = _search(ast, device, recipe)
    disk_cache().put("recipe", key, to_text(found).encode())
    return found


def _search(ast: UOp, device: OpenDevice, recipe: Recipe) -> Recipe:
    began = time.perf_counter()
    watch = Stopwatch(ast, device.name, recipe)
    before = best = watch.seconds(recipe, float("inf")) if watch.usable else 0.0
    if before < SHORT or before == float("inf"):
        return recipe
    name = kernel_name(apply(ast, recipe))[1]
    _say(f"{name}: {before * 1e6:.1f} us; searching")

    def timed(candidate: Recipe, limit: float) -> float:
        nonlocal best
        seconds = watch.seconds(candidate, limit)
        if seconds < best * NEEDED_GAIN:
            best = seconds
            _say(f"  {best * 1e6:.1f} us")
        return seconds

    found, tried = search(recipe, elsewhere(ast, device.target), timed, BEAM.value)
    ratio = 1.0 if found == recipe else watch.ratio(found)
    if ratio > WON:
        found, ratio = recipe, 1.0
    took = time.perf_counter() - began
    _say(f"  takes {ratio:.2f} of the time; {tried} recipes timed in {took:.1f} s")
    return found


def _reads_by_value(ast: UOp) -> bool:
    """Whether addresses depend on values in memory: a stopwatch with values of its own would time
    other addresses."""
    reads = [n for n in ast.toposort() if n.op is Ops.INDEX]
    return any(n.op is Ops.INDEX for read in reads for n in read.src[1].toposort())


def _say(text: str) -> None:
    if DEBUG >= 2:
        print(f"{colored('*** BEAM', 'magenta')}  {text}", file=sys.stderr, flush=True)
