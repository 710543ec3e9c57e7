"""What a RANGE says: the name of a loop, its turns, and its role, which is how it is run. Each role
has a row here, and every set of roles that the other files ask about."""

from __future__ import annotations

from typing import NamedTuple

from tinygrad.uop import Ops, UOp
from tinygrad.uop.infer import CLOSERS

OUTPUT = frozenset((Ops.STORE, Ops.STAGE))
REDUCED = frozenset((Ops.REDUCE,))


class Role(NamedTuple):
    """The meaning of a turn, and the nodes that may close such a loop if a recipe says so."""

    turn: str
    closers: frozenset[Ops]


ROLES: dict[str, Role] = {
    "LOOP": Role("follows the turn before it", OUTPUT | REDUCED),
    "PARALLEL": Role("is a task", OUTPUT),
    "LANE": Role("is a lane of a group", OUTPUT),
    "VECTOR": Role("is a lane of a vector", OUTPUT | REDUCED),
    "UNROLL": Role("is a copy in the text", OUTPUT | REDUCED),
    "TILE": Role("is inside one instruction of a matrix unit", OUTPUT | REDUCED),
    "SPREAD": Role("is a copy with a sum of its own; they are combined at the end", REDUCED),
    "GROUP": Role("is a lane; the lanes of a group combine their values at the end", REDUCED),
    "ORDERED": Role("must follow the turn before it, as the scheduler says", frozenset()),
}

LANES = frozenset(("LANE", "GROUP"))
"""The turns run side by side in a group: if some are cut off, they are masked."""

LAUNCHED = LANES | {"PARALLEL"}
"""The launch counts the turns: there is no loop in the text."""

SEQUENTIAL = LAUNCHED | {"LOOP", "ORDERED"}
"""The counter has one value at a time; all other roles are copies or lanes in the text."""

WRITTEN_OUT = frozenset(("UNROLL", "SPREAD"))
"""The turns are copies in the text, one after another."""

MERGED = frozenset(("VECTOR", "TILE"))
"""The turns are elements of one vector."""

COPIED = WRITTEN_OUT | MERGED


def name_of(node: UOp) -> str:
    """The name of a RANGE or a STAGE, unique in its kernel."""
    return str(node.arg[0])


def role_of(loop: UOp) -> str:
    """How a RANGE runs: LOOP, PARALLEL, VECTOR, ..."""
    return str(loop.arg[1])


def size_of(loop: UOp) -> int:
    """The largest number of turns of a RANGE; limits are ignored."""
    return int(loop.src[0].vmax)


def is_plain_loop(loop: UOp) -> bool:
    """Whether the loop is a LOOP of fixed size without limits."""
    return role_of(loop) == "LOOP" and len(loop.src) == 1


def own_ranges(node: UOp) -> tuple[UOp, ...]:
    """The loops that a REDUCE, STAGE or STORE closes."""
    return node.src[CLOSERS[node.op] :]
