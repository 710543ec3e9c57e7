"""Which of a product's sides lies along the vectors. A window that is summed over its positions (a
convolution's weight gradient) would be packed once for each tap, across memory; small images leave
much of their last vector empty. The other side is packed once and fills vectors, so these turn to
that one, and the window is read where it lies, in a copy that has its border. The results wait in
memory of their own; the stores turn them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from math import ceil, gcd

from tinygrad.loops.cost import turns
from tinygrad.loops.in_place import is_in_place
from tinygrad.loops.layout import (
    flat_offset,
    gate_of,
    is_plain_loop,
    linear,
    name_of,
    own_ranges,
    size_of,
    step,
)
from tinygrad.loops.plan import Plan, names
from tinygrad.loops.products import LONG_PANEL, SUMS, factors_of, tile_cycles
from tinygrad.loops.streams import COPIES, TASKS_WITH_BLOCKS, even_part
from tinygrad.loops.windows import Pair, over_sums
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

PANEL = 4
"""Vectors of a panel, as a rule."""

ACROSS, PACKED = 2.5, 4.0
"""Cycles to pack an element across memory; and a vector along it."""

BUILT, READ_AGAIN, TURNED = 1.0, 0.25, 3.0
"""Cycles for an element of a window that is kept; for each panel that reads it; and for a result
that is turned back."""

WORTH = 0.97
"""A turn takes at most this part of what it replaces; the rest is doubt."""


@dataclass(frozen=True)
class Turn:
    """A product of `window`, which moves by the sums of `pairs` and alone has the loops `taps`, and
    of a side that alone has the loop `along`."""

    window: UOp
    pairs: tuple[Pair, ...]
    taps: tuple[UOp, ...]
    along: UOp


def turn_windows(plan: Plan) -> tuple[str, ...]:
    """Takes the turn where that is less work; the stages that then hold a product."""
    reductions = [n for n in plan.nodes if n.op is Ops.REDUCE]
    if len(reductions) != 1 or plan.stages or plan.lanes < 2:
        return ()
    found = _turn(plan, reductions[0])
    if found is None:
        return ()
    rest, along = list(map(name_of, plan.nest("store").loops)), name_of(found.along)
    rest = [n for n in rest if n != along and n not in names(found.taps)]
    _keep_window(plan, found)
    taps = names(found.taps)
    plan.do("order", "store", (*rest, *taps, along))
    while len(taps) > 1:
        inner, outer = taps.pop(), taps.pop()
        taps.append(plan.numbered("p"))
        plan.do("merge", outer, inner, taps[-1])
    parts = _parts(plan, found, turns(plan.loops[n] for n in rest))
    sums = [n for n in plan.nodes if n.op is Ops.REDUCE]  # the inner one first
    name = plan.numbered("out")
    plan.do("stage", plan.path(sums[0]), (*rest, *parts, *taps, along), name, "GLOBAL")
    plan.do("order", "store", (*rest, along, *taps))
    return (name,)


def _turn(plan: Plan, reduction: UOp) -> Turn | None:
    """The turn of this sum that is worth it."""
    loops, own, pair = plan.nest("store").loops, own_ranges(reduction), factors_of(reduction)
    if pair is None or not loops or not all(map(is_plain_loop, (*loops, *own))):
        return None
    other, window = pair if loops[-1] in pair[1].ranges else pair[::-1]
    if window.op is Ops.CAST:
        return None  # narrow: it is packed in the order that a matrix unit wants
    taps = tuple(r for r in loops if r in window.ranges and r not in other.ranges)
    along = [r for r in loops if r in other.ranges and r not in window.ranges]
    if not along or size_of(along[-1]) < plan.lanes:
        return None
    pairs = _pairs(window, own, taps) or _pairs(window, taps, own)
    turn = Turn(window, pairs, taps, along[-1])
    return turn if pairs and _is_less(plan, turn, other, own) else None


def _is_less(plan: Plan, turn: Turn, other: UOp, own: tuple[UOp, ...]) -> bool:
    """Whether the turned product takes fewer cycles, all in all."""
    depth, rows, columns = turns(own), turns(turn.taps), size_of(turn.along)
    panels, line = ceil(columns / (PANEL * plan.lanes)), PANEL * plan.target.vector
    if (
        depth * line > LONG_PANEL * plan.target.cache_l2
        and rows * line > SUMS * plan.target.cache_l2
    ):
        return False  # neither a panel nor its sums would stay in the cache
    now = _as_it_is(plan, turn, other, own)
    kept = _elements(turn) * (BUILT + READ_AGAIN * panels)
    then = depth * (tile_cycles(plan, rows, columns) + ACROSS * columns) + TURNED * rows * columns
    return then + kept < WORTH * now


def _as_it_is(plan: Plan, turn: Turn, other: UOp, own: tuple[UOp, ...]) -> float:
    """Cycles of the product whose vectors lie along the window."""
    nest, depth, rows = plan.nest("store"), turns(own), turns(turn.taps)
    row = list(takewhile(turn.taps.__contains__, reversed(nest.loops)))  # will be one loop
    tiles = rows // turns(row) * tile_cycles(plan, size_of(turn.along), turns(row))
    if turn.pairs[0][0] in names(own):  # summed over its positions
        return depth * (tiles + ACROSS * rows)
    in_place = is_in_place(nest, other, turn.window, own, turn.along)
    if in_place and all(linear(flat_offset(turn.window), o, i) for i, o in pairwise(row)):
        return depth * tiles
    return depth * (tiles + PACKED * rows / turns(row) * ceil(turns(row) / plan.lanes))


def _elements(turn: Turn) -> int:
    """How many elements the window's side has, each counted once."""
    both = {name for position, _, tap, _ in turn.pairs for name in (position, tap)}
    count = turns(r for r in turn.window.ranges if name_of(r) not in both)
    loops = {name_of(r): size_of(r) for r in turn.window.ranges}
    for position, each, tap, apart in turn.pairs:
        count *= each * (loops[position] - 1) + abs(apart) * (loops[tap] - 1) + 1
    return count


def _pairs(window: UOp, own: Sequence[UOp], taps: Sequence[UOp]) -> tuple[Pair, ...]:
    """The positions, more than taps, that with a tap move the value by their sum alone."""
    found: list[Pair] = []
    for tap in taps:
        for position in (r for r in own if size_of(r) > size_of(tap)):
            steps = {(step(n, position), step(n, tap)) for n in _reads(window)}
            for one, other in steps:
                if not one or not other or one < 1:
                    continue
                each, apart = one // gcd(one, other), other // gcd(one, other)
                moved = over_sums(window, position, each, tap, apart)
                if moved and max(each, abs(apart)) < size_of(tap if abs(apart) == 1 else position):
                    found.append((name_of(position), each, name_of(tap), apart))
                    window = moved[0]
                    break
    return tuple(found)


def _reads(value: UOp) -> list[UOp]:
    return [n for n in value.toposort() if n.op is Ops.INDEX]


def _keep_window(plan: Plan, found: Turn) -> None:
    """The window in memory, laid out as what it is made of; unless it is just that."""
    value = found.window
    if value.op is Ops.INDEX and gate_of(value) is None:
        return
    taps = {tap for _, _, tap, _ in found.pairs}
    like = max(_reads(value), key=lambda n: turns(n.ranges))
    free = [r for r in value.ranges if name_of(r) not in taps]
    free.sort(key=lambda r: (-(step(like, r) or 0), name_of(r)))
    name = plan.numbered("w")
    plan.do("window", plan.path(value), names(free), found.pairs, name, "GLOBAL")
    own = names(own_ranges(plan.stages[name]))
    plan.vectorise(own[-1], COPIES)
    plan.do("role", own[0], "PARALLEL")


def _parts(plan: Plan, found: Turn, batch: int) -> tuple[str, ...]:
    """The outermost loop of the sum, if what its turns make is summed apart: tasks that share
    nothing, where there are few panels, and sums that are few beside what goes into them."""
    (reduction,) = (n for n in plan.nodes if n.op is Ops.REDUCE)
    first, *rest = own_ranges(reduction)
    name, inner, size = name_of(first), names(rest), size_of(first)
    wanted = ceil(TASKS_WITH_BLOCKS / (batch * ceil(size_of(found.along) / (PANEL * plan.lanes))))
    count = min(size, wanted)
    if not rest or count < 2 or count * turns(found.taps) >= turns((first, *rest)):
        return ()
    if size > wanted:
        inner.insert(0, plan.unused(name + "p"))
        plan.do("split", name, even_part(size, ceil(size / wanted)), inner[0])
    (reduction,) = (n for n in plan.nodes if n.op is Ops.REDUCE)
    plan.do("regroup", plan.path(reduction), inner)
    return (name,)
