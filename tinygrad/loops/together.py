"""Primitives that say through which loops a reduction goes: those of another reduction, beside it
or following it; the lanes of a group; or loops of its own.

Two reductions can go through their loops once even if one needs the other's result. A sum of terms
w * 2**(a*(x - m)), where m follows from the maximum of x, needs the final maximum; but its terms
can be computed with the maximum so far, if the sum is multiplied by 2**(a*(before - now)) whenever
that grows. This is the online softmax (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018; Dao and others, "FlashAttention", 2022). `schedule/states` applies the same law to
whole blocks of a row, which are rescaled at the end. It would have to compute the terms twice,
which is too much where they are the scores of attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.loops.layout import nodes_of
from tinygrad.loops.operands import at_path, check_unused, loop_named, loops_alike
from tinygrad.loops.reads import sums_of
from tinygrad.loops.rebuild import replaced
from tinygrad.loops.roles import own_ranges, role_of
from tinygrad.simplify.constants import identity, is_zero
from tinygrad.uop import Ops, UOp

BEFORE = "before"
"""The tag of a RUNNING whose value excludes the current turn."""


class Power(NamedTuple):
    """exp2 of multiples of a distance from a centre."""

    value: UOp
    distance: UOp
    centre: UOp


def together(kernel: UOp, kept: Sequence[str], given: Sequence[str]) -> UOp:
    """The reductions over loops `given` run in the loops `kept` of other reductions.

        for k: s += x(k)
        for k1: t = max(t, y(k1))
    becomes
        for k: s += x(k), t = max(t, y(k))

    Requires: `kept` and `given` each name all loops of REDUCEs, in order, with the same sizes. No
    REDUCE may depend on another one that it then shares loops with.

    >>> from tinygrad.viz.loops import draw, two_sums
    >>> draw(two_sums(4, 8))
    reduce add: k:8
    reduce max: k1:8
    store: i:4
    >>> draw(together(two_sums(4, 8), ("k",), ("k1",)))
    reduce add: k:8
    reduce max: k:8
    store: i:4
    """
    loops, others = loops_alike("together", kernel, kept, given)
    owners = [n for n in sums_of(nodes_of(kernel)) if own_ranges(n) in (loops, others)]
    for names, own in ((kept, loops), (given, others)):
        if not any(own_ranges(n) == own for n in owners):
            raise ArgumentError(f"together: {tuple(names)} are not all loops of a REDUCE")
    for one in owners:
        if any(other is not one and other in one.toposort() for other in owners):
            raise ArgumentError(f"together: what {tuple(kept)} and {tuple(given)} reduce is nested")
    return replaced(kernel, dict(zip(others, loops, strict=True)))


def own_loop(kernel: UOp, path: tuple[int, ...], name: str) -> UOp:
    """A REDUCE that shares its loop with others gets a loop of its own, so that a recipe can treat
    it differently.

    Requires: `path` leads to a REDUCE of one loop; `name` is a new name.

        for k: s += x(k)        becomes        for k2: s += x(k2)

    >>> from tinygrad.viz.loops import draw, product
    >>> draw(product(4, 8, 16))
    reduce add: k:16
    store: m:4, n:8
    >>> draw(own_loop(product(4, 8, 16), (0, 1), "k2"))
    reduce add: k2:16
    store: m:4, n:8
    """
    check_unused(kernel, name)
    reduce = at_path(kernel, path)
    if reduce.op is not Ops.REDUCE or len(own_ranges(reduce)) != 1:
        raise ArgumentError(f"own_loop: {reduce.op!r} at {path}; legal: a REDUCE of one loop")
    (loop,) = own_ranges(reduce)
    mine = loop.replace(arg=(name, role_of(loop)))
    return replaced(kernel, {reduce: replaced(reduce, {loop: mine})})


def across(kernel: UOp, name: str, lane: str) -> UOp:
    """A reduction's loop is distributed over the lanes of a loop of the output: each lane takes its
    own turn, and then all of them combine their values.

        for i, j (lanes): out(i, j) = sum over k of x(i, k)
    becomes
        for i, j (lanes): out(i, j) = sum over lanes j of x(i, j)

    Requires: `name` is a LOOP of REDUCEs, with as many turns as the output's LANE loop; no value
    that is reduced depends on the latter.

    >>> from tinygrad.viz.loops import draw, shares
    >>> from tinygrad.loops.primitives import role
    >>> lanes = role(shares(4, 8), "j", "LANE")
    >>> draw(lanes)
    reduce add: j1:8
    store: i:4, j:8 LANE
    >>> draw(across(lanes, "j1", "j"))
    reduce add: j:8 LANE
    store: i:4, j:8 LANE
    """
    loop, counted = loop_named(kernel, name), loop_named(kernel, lane)
    if role_of(loop) != "LOOP" or role_of(counted) != "LANE" or loop.src != counted.src:
        raise ArgumentError(f"across: {loop!r} is no LOOP of as many turns as a LANE {counted!r}")
    for node in sums_of(nodes_of(kernel)):
        if {loop, counted} <= {*own_ranges(node), *node.ranges}:
            raise ArgumentError(f"across: what is reduced over {name!r} depends on {lane!r}")
    return replaced(kernel, {loop: counted})


def follow(kernel: UOp, kept: Sequence[str], given: Sequence[str]) -> UOp:
    """The sum over loops `given`, whose terms use a maximum over loops `kept`, runs in these loops
    beside the maximum. It is rescaled whenever the running maximum grows.

        for k: m = max(m, x(k))
        for k1: s += w(k1) * exp2(a * (x(k1) - m))
    becomes
        for k: m, before = max(m, x(k)), m
               s = s * exp2(a * (before - m)) + w(k) * exp2(a * (x(k) - m))

    With several loops, the maximum inside the first is that over all turns of the others. A term is
    0 if x is minus infinity, even if the maximum is minus infinity so far: -inf - -inf would be NaN
    for good. So a row of nothing else has the sum 0, and dividing by it gives NaN.

    Requires: `kept` and `given` each name all loops of a REDUCE, in order, with the same sizes and
    without limits. The maximum occurs in the exponent only.

    >>> from tinygrad.viz.loops import draw, weights
    >>> draw(weights(4, 8))
    reduce max: k:8
    reduce add: k1:8
    store: i:4
    >>> draw(follow(weights(4, 8), ("k",), ("k1",)))
    reduce add: k:8
    store: i:4
    """
    loops, others = loops_alike("follow", kernel, kept, given)
    if any(r.src[1:] for r in loops):
        raise ArgumentError(f"follow: a loop of {tuple(kept)} has a limit; legal: none")
    first, second = _reduction(kernel, loops, "max"), _reduction(kernel, others, "add")
    power = None if first is None or second is None else power_of(second, first)
    if first is None or second is None or power is None:
        what = f"the terms over {tuple(given)}", f"a maximum over {tuple(kept)}"
        raise ArgumentError(f"follow: {what[0]} are no powers of distances to {what[1]}")
    return replaced(kernel, {second: _followed(first, second, loops, power)})


def can_follow(first: UOp, second: UOp) -> bool:
    """Whether `second` is a sum that can run in the loops of `first`, provided the loops are
    alike."""
    monoids = first.arg, second.arg
    return monoids == ("max", "add") and power_of(second, first) is not None


def power_of(second: UOp, first: UOp) -> Power | None:
    """Matches a sum whose terms are multiples of exp2(a * (x + c * -1)) for numbers a, where only c
    depends on `first`, another reduction, and not on the sum's loops: power, distance, and c."""
    value = second.src[0]
    above = _above(value, first)
    while value.op is not Ops.EXP2:
        inside = [factor for factor in _factors_of(value) if factor in above]
        if len(inside) != 1 or sum(s in above for s in value.src) > 1:
            return None
        (value,) = inside
    distance = value.src[0]
    while distance.op is Ops.MUL and distance.src[1].op is Ops.CONST:
        distance = distance.src[0]
    if distance.op is not Ops.ADD or distance.src[0] in above:
        return None
    moved = distance.src[1]
    if moved.op is not Ops.MUL or moved.src[1].op is not Ops.CONST or moved.src[1].arg != -1:
        return None
    centre = moved.src[0]
    return Power(value, distance, centre) if centre.ranges <= first.ranges else None


def _factors_of(value: UOp) -> tuple[UOp, ...]:
    """The nodes that a value is proportional to: if one of them doubles, the value doubles."""
    if value.op is Ops.WMMA:  # it takes floats as their bits
        return tuple(s.src[0] if s.op is Ops.BITCAST else s for s in value.src[:2])
    if value.op is Ops.WHERE:
        chosen = tuple(s for s in value.src[1:] if not is_zero(s))
        return chosen if len(chosen) == 1 else ()
    if value.op is Ops.MUL or (value.op is Ops.CAST and dtypes.is_float(value.dtype)):
        return value.src
    return ()


def _above(value: UOp, centre: UOp) -> set[UOp]:
    """The nodes below `value` that depend on `centre`, and `centre` itself."""
    found = {centre}
    for node in value.toposort():
        if not found.isdisjoint(node.src):
            found.add(node)
    return found


def _reduction(kernel: UOp, loops: tuple[UOp, ...], monoid: str) -> UOp | None:
    """The REDUCE of these loops that does not follow another one."""
    found = (n for n in sums_of(nodes_of(kernel)) if n.src[0].op is not Ops.RESCALE)
    return next((n for n in found if own_ranges(n) == loops and n.arg == monoid), None)


def _followed(first: UOp, second: UOp, loops: tuple[UOp, ...], power: Power) -> UOp:
    """`second`, running in the loops of `first`."""
    most = first.src[0].reduce("max", *loops[1:])
    now = UOp(Ops.RUNNING, first.dtype, (most, loops[0]), "max")
    before = now.replace(tag=BEFORE)
    nothing = identity("max", first.dtype)
    # the term, with the maximum so far; a distance from minus infinity stays minus infinity
    x = power.distance.src[0]
    distance = x.alu(Ops.CMPEQ, nothing).where(x, power.distance)
    term = replaced(second.src[0], {power.distance: replaced(distance, {first: now})})
    names = dict(zip(own_ranges(second), loops, strict=True))
    # the factor for the sum so far: exp2(a * (before - now)), 0 as long as there is no maximum
    earlier, later = (replaced(power.centre, {first: state}) for state in (before, now))
    grown = replaced(power.value, {power.distance: earlier + later * -1.0})
    factor = before.alu(Ops.CMPEQ, nothing).where(grown.const_like(0), grown)
    rescaled = UOp(Ops.RESCALE, term.dtype, (replaced(term, names), factor))
    return second.with_src((rescaled, *loops))
