"""Sums of windows without tiles, such as those that add up stored products of a convolution: most
taps of a small image may lie beyond its border."""

from __future__ import annotations

from tinygrad.loops.cost import turns
from tinygrad.loops.draft import COPIES, UNROLL_WHOLE, Draft, Nest, names
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.loops.trims import ENDS, ends_of

MOST_TAPS = 8
"""Taps along a row that are copies."""


def counted(nest: Nest) -> list[str]:
    """The loops whose turns a bound may name."""
    return [name_of(r) for r in nest.loops[:-1] if role_of(r) in ("LOOP", "PARALLEL")]


def border_outside(draft: Draft, nest: Nest) -> bool:
    """Whether sums of windows skip taps that a row or plane of pixels lacks. Loops over these go
    outside of others; taps along the row are copies, since their lanes' masks are then known; and
    planes that all lack the same ones have sums of their own side by side."""
    if not nest.is_top or draft.stages:
        return False
    before = draft.mark()
    draft.do("trim", counted(nest))
    ends = [end for each in ENDS for end in ends_of(draft.kernel, each).items()]
    draft.back_to(before)
    cut = {loop for loop, _ in ends}
    around = {name for _, (terms, *_) in ends for name, _ in terms}
    owns = [names(own_ranges(n)) for n in draft.sums]
    if not cut or any(own[-1] in cut for own in owns):
        return False
    if all(draft.turns(own) <= UNROLL_WHOLE for own in owns):
        return False  # all taps are copies
    longest = max(map(draft.size, around), default=0)
    if any(draft.size(n) > longest for n in cut):
        return False  # pixels that are summed for each tap
    for own in owns:
        draft.do("order", "reduce", sorted(own, key=lambda n: n not in cut))
        if draft.size(own[-1]) <= MOST_TAPS:
            draft.do("role", own[-1], "UNROLL")
    free = [n for n in counted(nest) if n not in around]
    phases = turns(r for r in nest.loops if role_of(r) == "UNROLL")
    # half of the registers hold sums
    count = min(COPIES, draft.target.registers // 2 // phases)
    if free and count > 1 and not (phases > 1 and size_of(nest.loops[-1]) < draft.lanes):
        copies = draft.split(free[-1], count, free[-1] + "u", "LOOP", "UNROLL")
        draft.innermost(nest.name, (copies, name_of(nest.loops[-1])))
    return True
