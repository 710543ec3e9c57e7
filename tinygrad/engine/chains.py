"""Values that nobody asks for, and that others are made of again and again: the state `h` of a loop
`h = f(h); print(g(h))`. No run stores such a value, so each turn would compute all turns before it,
by kernels that no turn before it had.

Each run notes here what it computed without storing it, and each use of what isn't stored is noted,
too. A value that stands on what was there before an earlier run, that on what was there before one
before that, and so on a few times, is computed on its own when it is used once more (`grows`). What
is used again and again, but made of storage each time, stays part of the kernels that use it: a
weight that is dequantised. What is made of no storage, at some cost, is computed on its own after a
few runs (`is_costly`): the random weights of a model that isn't trained, a table of sines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tinygrad.uop import GroupOp, Ops, UOp
from tinygrad.uop.op import WEIGHT

MOST_LOOKED_AT = 64
"""Nodes below one that nothing is noted of, among which its growth is looked for."""

MOST_ELEMENTS = 1 << 24
"""Larger values are not stored unless somebody asks for them."""

MOST_LINKS = 3
"""Links of a value that hasn't grown: one turn of a loop may read several values in turn, each made
of the one before, as a loss, a slope and a norm."""

USES = 3
"""Runs after which a value is used before anybody looks whether it costs something; so many more,
and it is looked for again."""

_STORED = frozenset((Ops.BUFFER, Ops.ASSIGN))
_FIXED = frozenset((Ops.CONST, Ops.ARANGE, Ops.BIND, Ops.DEVICE, Ops.DEFINE_VAR))

_PASSED_BY = frozenset((Ops.DETACH, Ops.ASSIGN))

_CHEAP = GroupOp.Elementwise - {op for op, weight in WEIGHT.items() if weight > 10}
CHEAP = _CHEAP | GroupOp.Movement | _FIXED | {Ops.DETACH}
"""Of these, elements are made about as fast as they would be read."""


class Unstored(NamedTuple):
    """Of a value that is not stored: how many runs there were when it was first seen; how many such
    values of other runs it is made of, each of those of one before (its links); whether it is made
    of numbers alone; whether a run computed it; whether it was written to a tensor; and after how
    many runs it was used, and how many there were when it was last."""

    run: int
    links: int
    fixed: bool = False
    ran: bool = False
    written: bool = False
    used: int = 0
    looked: int = 0


class Runs:
    """How many runs there were."""

    count = 0


def note_unstored(nodes: Iterable[UOp]) -> None:
    """Notes that a run has computed these nodes, sources first, as far as they are not known."""
    run = Runs.count
    Runs.count += 1
    fixed: set[UOp] = set()
    notes: dict[tuple[int, bool], Unstored] = {}  # most nodes have one of a few
    for node in nodes:
        if node.op in _STORED or node.known is not None:
            continue
        sources = node.operands
        is_fixed = fixed.issuperset(sources) and node.op is not Ops.THREEFRY
        if is_fixed or node.op in _FIXED:
            fixed.add(node)
        known = node.unstored
        if (known is None or not known.ran) and node.op not in _FIXED:
            made = [each for each in map(unstored, sources) if each is not None]
            links = [each.links + (each.run < run) for each in made if each.fixed is is_fixed]
            if node.op not in GroupOp.Movement:
                kind = max(links, default=0 if known is None else known.links), is_fixed
                node.unstored = notes.setdefault(kind, Unstored(run, *kind, ran=True))
            elif made:
                node.unstored = made[0]


def grows(node: UOp) -> bool:
    """Whether a value that is used has grown, or is made of one that has."""
    top, nodes, links = _value(node), [_value(node)], 0
    for each in nodes:
        made = unstored(each)
        if made is not None:
            is_link = made.run < Runs.count and (each is top or not made.fixed)
            links = max(links, made.links + is_link)
        elif each.known is None and each.op is not Ops.BUFFER and len(nodes) < MOST_LOOKED_AT:
            nodes += each.operands
    made = top.unstored
    if made is None and top.op not in _FIXED:
        top.unstored = Unstored(Runs.count, links, looked=Runs.count)
    elif made is not None and made.looked != Runs.count:
        top.unstored = made._replace(used=made.used + 1, looked=Runs.count)
    return links > MOST_LINKS


def is_costly(node: UOp) -> bool:
    """Whether a value that is used after a few runs is made of no storage, at some cost."""
    made = unstored(node)
    if made is None or not made.used or made.used % USES:
        return False
    below = {_value(node): None}
    costs = False
    for each in (nodes := list(below)):
        if each.op is Ops.BUFFER or each.known is not None:
            return False
        costs |= each.op not in CHEAP
        nodes += [source for source in each.operands if source not in below]
        below.update(dict.fromkeys(each.operands))
    return costs


def follow(new: UOp, old: UOp) -> None:
    """Notes that a value takes the place of another, neither of which is stored: as much as a run
    between them, for a loop that has none."""
    made, new = unstored(old), _value(new)
    note = new.unstored or Unstored(Runs.count, 0)
    links = 0 if made is None else made.links + 1
    new.unstored = note._replace(links=max(note.links, links), written=True)


def waits(node: UOp) -> bool:
    """Whether it is a write that is yet to be done, or a value that was written to a tensor."""
    made = unstored(node)
    return node.known is None and (node.op is Ops.ASSIGN or (made is not None and made.written))


def unstored(node: UOp) -> Unstored | None:
    """What was noted of a value, if it isn't stored since."""
    if node.op in _PASSED_BY:
        node = _value(node)
    return None if node.known is not None else node.unstored


def _value(node: UOp) -> UOp:
    """What is written, if the node is a write, or what it says nothing of gradients of."""
    while node.op in _PASSED_BY and node.known is None:
        node = node.src[1 if node.op is Ops.ASSIGN else 0]
    return node
