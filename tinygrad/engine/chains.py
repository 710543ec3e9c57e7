"""Values that nobody asks for, and that others are made of again and again: the state `h` of a loop
`h = f(h); print(g(h))`. No run stores such a value, so each turn would compute all turns before it,
by kernels that no turn before it had.

Each run notes here what it computed without storing it. A value that is made of what a few earlier
runs had made already, each of what the one before had made, is computed on its own when it is used
once more (`grows`). What is used again and again, but made of storage each time, stays part of the
kernels that use it: a weight that is dequantised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tinygrad.uop import GroupOp, Ops, UOp

MOST_LOOKED_AT = 64
"""Nodes below one that no run made, among which its growth is looked for."""

MOST_ELEMENTS = 1 << 24
"""Larger values are not stored unless somebody asks for them."""

MOST_LINKS = 2
"""Links of a value that hasn't grown: one turn of a loop may read several values in turn, each made
of the one before, as a loss, a slope and a norm."""

_STORED = frozenset((Ops.BUFFER, Ops.ASSIGN))
_FIXED = frozenset((Ops.CONST, Ops.ARANGE, Ops.BIND))


class Unstored(NamedTuple):
    """Of a value: the first run that computed it; how many earlier runs made such values that it is
    made of, each of those of one before; and whether it is made of numbers alone."""

    run: int
    links: int
    fixed: bool


class Runs:
    """How many runs have noted something."""

    count = 0


def note_unstored(nodes: Iterable[UOp]) -> None:
    """Notes that a run has computed these nodes, sources first, as far as they are not known."""
    Runs.count = run = Runs.count + 1
    fixed: set[UOp] = set()
    notes: dict[tuple[int, bool], Unstored] = {}  # most nodes have one of a few
    for node in nodes:
        if node.op in _STORED or node.known is not None:
            continue
        sources = node.operands
        is_fixed = fixed.issuperset(sources) and node.op is not Ops.THREEFRY
        if is_fixed or node.op in _FIXED:
            fixed.add(node)
        if node.unstored is None and node.op not in _FIXED:
            made = [each for each in map(unstored, sources) if each is not None]
            links = [each.links + (each.run < run) for each in made if each.fixed is is_fixed]
            if node.op not in GroupOp.Movement:
                kind = max(links, default=0), is_fixed
                node.unstored = notes.setdefault(kind, Unstored(run, *kind))
            elif made:
                node.unstored = made[0]


def grows(node: UOp) -> bool:
    """Whether a value has grown, or is made of one that has: a run made that of what an earlier one
    had made, and none has stored either."""
    nodes = [node]
    for each in nodes:
        made = unstored(each)
        if made is not None and made.links > MOST_LINKS:
            return True
        if made is None and each.known is None and len(nodes) < MOST_LOOKED_AT:
            nodes += each.operands
    return False


def unstored(node: UOp) -> Unstored | None:
    """What was noted of a value, if it isn't stored since."""
    while node.op is Ops.DETACH and node.known is None:
        node = node.src[0]
    return None if node.known is not None else node.unstored
