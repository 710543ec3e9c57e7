"""Primitives for reductions that need each other and yet go through their loops once.

A sum of terms w * 2**(a*(x - m)), where m follows from the maximum of x, can't begin before the
maximum is known; but it can be scaled. So it takes terms that are made with the maximum so far, and
when that grows, what was summed is scaled by 2**(a*(before - now)). `schedule/states` has the same
law for rows in blocks, which are scaled when all is known; here what a term is made of, the scores
of attention, would have to be made again then. (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018; Dao and others, "FlashAttention", 2022.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.loops.layout import nodes_of, own_ranges, role_of
from tinygrad.loops.operands import loop_named, loops_alike
from tinygrad.loops.rebuild import replaced
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, Ops

BEFORE = "before"
"""The tag of a RUNNING without the present turn."""


class Power(NamedTuple):
    """exp2 of multiples of a distance to a centre."""

    value: UOp
    distance: UOp
    centre: UOp


def follow(kernel: UOp, kept: Sequence[str], given: Sequence[str]) -> UOp:
    """The sum over loops `given`, whose terms are made with a maximum over loops `kept`, goes
    through these, beside the maximum, and is scaled where that grows.

        for k: m = max(m, x(k))
        for k1: s += w(k1) * exp2(a * (x(k1) - m))
    becomes
        for k: m, before = max(m, x(k)), m
               s = s * exp2(a * (before - m)) + w(k) * exp2(a * (x(k) - m))

    Inside the first of several loops the maximum is that of all turns of the others.

    Requires: each names all loops of a REDUCE, in order, of the same sizes, none with limits; the
    maximum stands in the exponent and nowhere else.

    >>> from tinygrad.loops.drawing import draw, weights
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


def across(kernel: UOp, name: str, lane: str) -> UOp:
    """A reduction's loop is counted by lanes that count a loop of the output, too: each lane takes
    its own turn, and then all of them combine what they have.

        for i, j (lanes): out(i, j) = sum over k of x(i, k)
    becomes
        for i, j (lanes): out(i, j) = sum over lanes j of x(i, j)

    Requires: `name` is a LOOP of REDUCEs, of as many turns as the LANE loop of the output; no value
    that is reduced depends on that.

    >>> from tinygrad.loops.drawing import draw, repeated
    >>> from tinygrad.loops.primitives import role
    >>> draw(across(role(repeated(4, 8), "j", "LANE"), "k", "j"))
    reduce add: j:8 LANE
    store: i:4, j:8 LANE
    """
    loop, counted = loop_named(kernel, name), loop_named(kernel, lane)
    if role_of(loop) != "LOOP" or role_of(counted) != "LANE" or loop.src != counted.src:
        raise ArgumentError(f"across: {loop!r} is no LOOP of as many turns as a LANE {counted!r}")
    for node in nodes_of(kernel):
        if node.op is Ops.REDUCE and {loop, counted} <= {*own_ranges(node), *node.ranges}:
            raise ArgumentError(f"across: what is reduced over {name!r} depends on {lane!r}")
    return replaced(kernel, {loop: counted})


def can_follow(first: UOp, second: UOp) -> bool:
    """Whether `second` is a sum that can go through the loops of `first`, if they are alike."""
    monoids = first.arg, second.arg
    return monoids == ("max", "add") and power_of(second, first) is not None


def power_of(second: UOp, first: UOp) -> Power | None:
    """Where the terms of a sum are multiples of exp2(a * (x + c * -1)) for numbers a, and only c
    depends on `first`, another reduction, but not on the sum's loops: power, distance, and c."""
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
    """What a value is proportional to: it is twice as much if one of these is."""
    if value.op is Ops.WMMA:  # which takes floats as their bits
        return tuple(s.src[0] if s.op is Ops.BITCAST else s for s in value.src[:2])
    if value.op is Ops.WHERE:
        chosen = tuple(s for s in value.src[1:] if not _is_zero(s))
        return chosen if len(chosen) == 1 else ()
    if value.op is Ops.MUL or (value.op is Ops.CAST and dtypes.is_float(value.dtype)):
        return value.src
    return ()


def _above(value: UOp, centre: UOp) -> set[UOp]:
    """What below `value` is made of `centre`, and that itself."""
    found = {centre}
    for node in value.toposort():
        if not found.isdisjoint(node.src):
            found.add(node)
    return found


def _is_zero(node: UOp) -> bool:
    return node.op is Ops.CONST and node.arg == 0


def _reduction(kernel: UOp, loops: tuple[UOp, ...], monoid: str) -> UOp | None:
    """The REDUCE of these loops that follows none."""
    found = (n for n in nodes_of(kernel) if n.op is Ops.REDUCE and n.src[0].op is not Ops.RESCALE)
    return next((n for n in found if own_ranges(n) == loops and n.arg == monoid), None)


def _followed(first: UOp, second: UOp, loops: tuple[UOp, ...], power: Power) -> UOp:
    """`second` in the loops of `first`."""
    most = first.src[0].reduce("max", *loops[1:])
    now = UOp(Ops.RUNNING, first.dtype, (most, loops[0]), "max")
    before = now.replace(tag=BEFORE)
    names = dict(zip(own_ranges(second), loops, strict=True))
    term = replaced(replaced(second.src[0], {first: now}), names)
    earlier, later = (replaced(power.centre, {first: state}) for state in (before, now))
    grown = replaced(power.value, {power.distance: earlier + later * -1.0})
    nothing = UOp.const(first.dtype, MONOIDS["max"].identity(first.dtype))
    factor = before.alu(Ops.CMPEQ, nothing).where(grown.const_like(0), grown)
    return second.with_src((UOp(Ops.RESCALE, term.dtype, (term, factor)), *loops))
