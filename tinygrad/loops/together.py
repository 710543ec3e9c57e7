"""The primitive that has reductions go through the same loops, side by side: what several of them
read is read once."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.errors import ArgumentError
from tinygrad.loops.layout import nodes_of, own_ranges
from tinygrad.loops.operands import loops_alike
from tinygrad.loops.rebuild import replaced
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def together(kernel: UOp, kept: Sequence[str], given: Sequence[str]) -> UOp:
    """The reductions over loops `given` take their values in loops `kept` of others, turn by turn.

        for k: s += x(k)
        for k1: t = max(t, y(k1))
    becomes
        for k: s += x(k), t = max(t, y(k))

    Requires: each names all loops of REDUCEs, in order, of the same sizes; none of those that
    then share loops needs another.

    >>> from tinygrad.loops.drawing import draw, two_sums
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
    owners = [n for n in nodes_of(kernel) if _loops_of(n) in (loops, others)]
    for names, own in ((kept, loops), (given, others)):
        if not any(own_ranges(n) == own for n in owners):
            raise ArgumentError(f"together: {tuple(names)} are not all loops of a REDUCE")
    for one in owners:
        if any(other is not one and other in one.toposort() for other in owners):
            raise ArgumentError(f"together: what {tuple(kept)} and {tuple(given)} reduce is nested")
    return replaced(kernel, dict(zip(others, loops, strict=True)))


def _loops_of(node: UOp) -> tuple[UOp, ...]:
    """The loops of a REDUCE; none of other nodes."""
    return own_ranges(node) if node.op is Ops.REDUCE else ()
