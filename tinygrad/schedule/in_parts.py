"""Values that are made part by part, in one array."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def cut(value: UOp, axis: int, begin: int, end: int) -> UOp:
    """What lies between two places of an axis."""
    return value.shrink(
        tuple((begin, end) if i == axis else (0, n) for i, n in enumerate(value.shape))
    )


def in_one(parts: Sequence[UOp], axis: int) -> UOp:
    """The parts one behind the other. Each is written where it belongs by a kernel of its own,
    which sees no other."""
    first, *others = parts
    if not others:
        return first
    end = first.shape[axis]
    behind = sum(part.shape[axis] for part in others)
    made = first.pad(tuple((0, behind if i == axis else 0) for i in range(first.ndim))).contiguous()
    for part in others:
        begin, end = end, end + part.shape[axis]
        made = UOp(Ops.ASSIGN, made.dtype, (cut(made, axis, begin, end), part))
    return made
