"""Which of a product's sides lies along the vectors. A window that is summed over its positions (a
convolution's weight gradient) would be packed once for each tap, across memory. The other side is
packed once, so vectors turn to that one, and the window is read where it lies, in a copy that has
its border. The results wait in memory of their own; the stores turn them back."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd

from tinygrad.loops.cost import turns
from tinygrad.loops.layout import gate_of, is_plain_loop, name_of, own_ranges, size_of, step
from tinygrad.loops.plan import TASKS, Plan, names
from tinygrad.loops.products import factors_of
from tinygrad.loops.streams import COPIES, even_part
from tinygrad.loops.windows import Pair, over_sums
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

PANEL = 4
"""Vectors of a panel, as a rule."""

ACROSS, TURNED = 2.5, 5.0
"""Cycles for an element that is packed across memory; and for a result that is turned back."""


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
    if pair is None or not all(map(is_plain_loop, (*loops, *own))):
        return None
    for window, other in (pair, pair[::-1]):
        taps = tuple(r for r in loops if r in window.ranges and r not in other.ranges)
        along = [r for r in loops if r in other.ranges and r not in window.ranges]
        pairs = _pairs(window, own, taps)
        if pairs and along and size_of(along[-1]) >= plan.lanes:
            rows, columns = turns(taps), size_of(along[-1])
            saved = ACROSS * turns(own) * (rows - columns)
            if saved > TURNED * rows * columns:
                return Turn(window, pairs, taps, along[-1])
    return None


def _pairs(window: UOp, own: tuple[UOp, ...], taps: tuple[UOp, ...]) -> tuple[Pair, ...]:
    """The positions, more than taps, that with a tap move the value by their sum alone."""
    found: list[Pair] = []
    for tap in taps:
        for position in (r for r in own if size_of(r) > size_of(tap)):
            steps = {(step(n, position), step(n, tap)) for n in _reads(window)}
            for one, other in steps:
                if not one or not other or min(one, other) < 1:
                    continue
                each, apart = one // gcd(one, other), other // gcd(one, other)
                moved = over_sums(window, position, each, tap, apart)
                if moved and max(each, apart) < size_of(tap if apart == 1 else position):
                    found.append((name_of(position), each, name_of(tap), apart))
                    window = moved[0]
                    break
    return tuple(found)


def _reads(value: UOp) -> list[UOp]:
    return [n for n in value.toposort() if n.op is Ops.INDEX]


def _keep_window(plan: Plan, found: Turn) -> None:
    """The window in memory, laid out as what it is made of; unless it is just that."""
    value = found.window
    while value.op is Ops.CAST:  # the narrow one, which a matrix unit wants
        value = value.src[0]
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
    wanted = ceil(TASKS / (batch * ceil(size_of(found.along) / (PANEL * plan.lanes))))
    count = min(size, wanted)
    if not rest or count < 2 or count * turns(found.taps) >= turns((first, *rest)):
        return ()
    if size > wanted:
        inner.insert(0, plan.unused(name + "p"))
        plan.do("split", name, even_part(size, ceil(size / wanted)), inner[0])
    (reduction,) = (n for n in plan.nodes if n.op is Ops.REDUCE)
    plan.do("regroup", plan.path(reduction), inner)
    return (name,)
