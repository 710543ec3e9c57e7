"""Phases of strided windows. With stride 2, some taps of a window read even pixels and others read
odd ones, so a gradient asks for each pixel which taps cover it. There the loop over pixels is split
into one loop for each phase (even, odd). If the phases are a loop already, around the loop over
their pixels, the elements that they store are interleaved, so the phases go inside."""

from __future__ import annotations

from math import prod

from tinygrad.loops.draft import Draft, Nest
from tinygrad.loops.reads import divisions, step
from tinygrad.loops.roles import is_plain_loop, name_of, size_of
from tinygrad.simplify.affine import affine
from tinygrad.uop.node import UOp

MOST_PHASES = 4
"""Copies of a nest, one for each phase of its loops."""


def phases_of(draft: Draft, nest: Nest) -> dict[UOp, int]:
    """Loops that a sum's reads use by quotient or remainder of a small number, such as the taps of
    a strided window, and that number. If the loop is split by it, each phase is a copy whose reads
    have constant steps and whose gates are known."""
    if nest.name != "store" or not draft.sums_in(nest):
        return {}
    seen: dict[UOp, set[int]] = {}
    for index, divisor in divisions(draft.nodes):
        terms, _ = affine(index)
        for loop in filter(is_plain_loop, nest.loops):
            if abs(terms.get(loop, 0)) == 1:
                seen.setdefault(loop, set()).add(divisor)
    found: dict[UOp, int] = {}
    for loop, divisors in seen.items():
        count, size = max(divisors), size_of(loop)
        is_one = not any(count % n for n in divisors)
        is_long = loop is not nest.loops[-1] or size >= draft.lanes * count
        if is_one and is_long and count * prod(found.values()) <= MOST_PHASES:
            found[loop] = count
    for loop in _around_their_pixels(nest):
        if loop not in found and size_of(loop) * prod(found.values()) <= MOST_PHASES:
            found[loop] = size_of(loop)
    return found


def _around_their_pixels(nest: Nest) -> list[UOp]:
    """Plain loops whose turns are adjacent in the output, inside the turns of a later loop."""
    (write, *_), found = nest.writes, list[UOp]()
    for place, loop in enumerate(nest.loops):
        apart = step(write, loop) or 0
        inside = any(step(write, inner) == size_of(loop) * apart for inner in nest.loops[place:])
        if is_plain_loop(loop) and apart and inside:
            found.append(loop)
    return found


def split_phases(draft: Draft, nest: Nest, phases: dict[UOp, int]) -> Nest:
    """The nest, with a copy for each phase."""
    last = name_of(nest.loops[-1])
    for loop, count in phases.items():
        name = name_of(loop)
        draft.split(name, count, name + "p", "LOOP", "UNROLL")
    draft.innermost(nest.name, [last])
    return draft.nest(nest.name)
