"""A demand: which kernel needs an element of a value, at which index, under which gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tinygrad.base.helpers import prod
from tinygrad.schedule.bases import memory_base, overwrites
from tinygrad.schedule.movement import ZERO, Index, loops_of, turns_of, view_offset
from tinygrad.uop import Ops, UOp

IN_ORDER = frozenset((Ops.SCATTER, Ops.RUNNING))
"""They are made turn by turn, in loops that nothing else should be in."""


class Demand(NamedTuple):
    """`kernel` needs the element at `where`, if `gate` holds."""

    kernel: Kernel
    where: Index
    gate: UOp | None


class Link(NamedTuple):
    """What an inlined node needs from its source, or from its indices: the element, the condition
    under which it exists, and the loops that the node reduces over."""

    demand: Demand
    condition: UOp | None
    loops: tuple[UOp, ...]


@dataclass(eq=False)
class Kernel:
    """A kernel under construction: its loops, what it stores, and what it reads."""

    ranges: tuple[UOp, ...]
    index: Index  # the loops, as the index of what is stored; ZERO for axes of size 1
    shape: tuple[Any, ...]
    stores: list[UOp] = field(default_factory=list)
    reads: dict[UOp, None] = field(default_factory=dict)  # stored nodes, in order of demand
    inlined: list[tuple[UOp, Demand]] = field(default_factory=list)  # users before sources
    weight: int = 0
    first: int = 0  # least position of its stores in the order of the graph
    last: int = 0  # after all that it reads, and before all that read it, except in `first`


Contexts = set[tuple[UOp, ...]]  # the loops around a demand, outermost first
Demanded = dict[Demand, Contexts]


def loop_shape(node: UOp) -> tuple[Any, ...]:
    """The shape that a kernel storing `node` loops over; for partial writes, the shape of what is
    written."""
    return node.src[1].shape if overwrites(node) else node.shape


def ordered_axes(node: UOp) -> Sequence[int]:
    """Which of these axes are gone through in order: those of a SCATTER's updates, and the one of a
    running reduction."""
    if node.op is Ops.SCATTER:
        return range(node.src[2].ndim)
    return (node.arg[1],) if node.op is Ops.RUNNING else ()


def stored_in(node: UOp, demand: Demand) -> tuple[UOp, ...] | None:
    """The kernel's outermost loops, if they compute all of `node` at this demand. None if they
    don't, or if no loop is left of a kernel that has some."""
    kernel = demand.kernel
    if demand.gate is not None:
        return None
    if node.op is Ops.ASSIGN:
        if kernel.shape != loop_shape(node):
            return None
        offset, _ = view_offset(node.src[0], memory_base(node.src[0]), kernel.index)
        return kernel.ranges if demand.where == (offset,) else None
    if demand.where == kernel.index:
        return kernel.ranges if kernel.shape == node.shape else None
    loops = tuple(i for i in demand.where if i is not ZERO)
    whole = all(
        size == (1 if i is ZERO else i.vmax + 1) and len(i.src) < 2  # no loop cut by a variable
        for i, size in zip(demand.where, node.shape, strict=True)
    )
    is_prefix = loops == kernel.ranges[: len(loops)] and (loops or not kernel.ranges)
    return loops if whole and is_prefix else None


def joined_index(node: UOp, joined: Demand) -> Index:
    """The loops of the kernel that a node joins, as the index of what is stored."""
    return joined.kernel.index if node.op is Ops.ASSIGN else joined.where


def is_redone(demand: Demand, context: tuple[UOp, ...]) -> bool:
    """Whether a loop that the element does not depend on is outside one that it depends on."""
    free = loops_of(demand.where)
    outside = False
    for loop in context:
        if loop in free and outside:
            return True
        outside = outside or loop not in free
    return False


def overlaps(demand: Demand) -> bool:
    """Whether loops need most elements several times, as those of overlapping windows do."""
    elements: int = prod(at.vmax - at.vmin + 1 for at in demand.where)
    return turns_of(loops_of(demand.where)) >= 2 * elements


def follow(demands: Demanded) -> bool:
    """Whether one of the kernels reads what another stores: the statistics of what it scales."""
    kernels = {demand.kernel for demand in demands}
    return any(
        not kernel.reads.keys().isdisjoint(other.stores) for kernel in kernels for other in kernels
    )
