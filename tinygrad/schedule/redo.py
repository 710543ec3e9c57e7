"""Values that several kernels rather compute again than read, so that nobody stores them: what a
backward pass wants of activations is mostly a few operations on what the step stores anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

BYTE_WORTH = 12
"""Operations that take as long as writing a byte of a value and reading it in another kernel."""

SMALL = 8
"""So many times smaller than what is made of it, a value is read for nothing."""

LARGE_LEAVES = 2
"""Large values that may be read in the place of the one."""


def is_small_work(node: UOp, weight_of: Callable[[UOp], int], free: Iterable[Ops]) -> bool:
    """Whether an element is made of few stored values by fewer operations than it would take to
    store it; each operation counts once, however often its result is used."""
    most = BYTE_WORTH * node.dtype.itemsize
    weight, large = 0, 0
    stack, seen = [node], {node}
    while stack:
        top = stack.pop()
        if top.op in GroupOp.Elementwise or top.op in GroupOp.Movement or top.op is Ops.DETACH:
            weight += weight_of(top)
            sources = [s for s in top.src if s.has_shape and s not in seen]
            seen.update(sources)
            stack += sources
        elif top.op not in free:
            large += top.size * SMALL > node.size
        if weight > most or large > LARGE_LEAVES:
            return False
    return True
