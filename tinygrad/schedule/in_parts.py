"""Parts of an axis, and how parts are put together to one array."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def sliced(node: UOp, axis: int, begin: int, end: int) -> UOp:
    """A slice along one axis."""
    return node.shrink(
        tuple((begin, end) if i == axis else (0, n) for i, n in enumerate(node.shape))
    )


def concatenated(parts: Sequence[UOp], axis: int) -> UOp:
    """The parts concatenated, as a value: one kernel reads all of them."""
    parts = [part for part in parts if part.shape[axis] != 0] or parts[:1]
    total, at, whole = sum(part.shape[axis] for part in parts), 0, None
    for part in parts:
        size = part.shape[axis]
        pads = tuple((at, total - at - size) if i == axis else (0, 0) for i in range(part.ndim))
        here = UOp.const(dtypes.bool, True, part.device).broadcast_to(part.shape).pad(pads)
        value = part.pad(pads)
        whole = value if whole is None else here.where(value, whole)
        at += size
    assert whole is not None, "at least one part"
    return whole


def in_one(parts: Sequence[UOp], axis: int) -> UOp:
    """The parts concatenated, each written in place by a kernel of its own that reads no other
    part."""
    first, *others = parts
    if not others:
        return first
    end = first.shape[axis]
    behind = sum(part.shape[axis] for part in others)
    made = first.pad(tuple((0, behind if i == axis else 0) for i in range(first.ndim))).contiguous()
    for part in others:
        begin, end = end, end + part.shape[axis]
        made = UOp(Ops.ASSIGN, made.dtype, (sliced(made, axis, begin, end), part))
    return made
