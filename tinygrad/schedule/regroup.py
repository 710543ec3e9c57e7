"""Reshapes of symbolic sizes. Storage has room for the largest size of each axis, so a reshape that
would move the places of what follows a symbolic axis is no view: it reads each element where it
lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.infer import most, settled
from tinygrad.uop.node import UOp

Shape = tuple[Any, ...]


def symbolic_axes_lead(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether a symbolic axis is the first of those that become, or were made of, others: storage
    has room for the largest size, so what follows in it must have a place that is known."""
    if all(isinstance(n, int) for n in (*shape, *other)):
        return True
    rests = [[n for n in sizes if n != 1] for sizes in (shape, other)]
    while all(rests):
        group = [rest.pop(0) for rest in rests]
        while group[0] is not group[1] and group[0] != group[1]:
            rooms = list(map(most, group))
            short = rooms.index(min(rooms))
            if rooms[0] == rooms[1] or not rests[short] or not isinstance(rests[short][0], int):
                return False
            group[short] = settled(group[short] * rests[short].pop(0))
    return True


def regrouped(node: UOp, shape: Shape, final: Shape) -> UOp:
    """The elements of `node`, which has `shape` and perhaps more axes, under `final` in its place:
    each is read where it lies."""
    kind = dtypes.int32 if node.size < 1 << 31 else dtypes.int64
    place = UOp.const(kind, 0, node.device).broadcast_to(final)
    stride: Any = 1
    for axis in reversed(range(len(final))):
        count = UOp.positions(final, axis, node.device, kind)
        place = place + count * for_each(place, stride, kind)
        stride = settled(stride * final[axis])
    indices: list[UOp] = []
    for size in reversed(shape[1:]):
        inner = for_each(place, size, kind)
        indices.insert(0, place % inner)
        place = place // inner
    return node.index(place, *indices)


def for_each(node: UOp, size: int | UOp, dtype: DType) -> UOp:
    """A size as a number for each element of `node`."""
    number = UOp.const(dtype, 0, node.device)
    if isinstance(size, UOp):
        number, size = number + size.cast(dtype), 0
    return number.broadcast_to(node.shape) + size
