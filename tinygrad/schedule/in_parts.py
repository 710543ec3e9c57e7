"""How parts of an axis are put together to one array."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, Ops

MOST = 16
"""Parts that one kernel puts together: it has a piece of text for each. More are stored in groups
first, whose kernels are equal if the parts are; as many masks in one loop would take far longer."""


def concatenated(parts: Sequence[UOp], axis: int) -> UOp:
    """The parts concatenated, as a value: one kernel reads all of them, if they are few."""
    parts = [part for part in parts if part.shape[axis] != 0] or parts[:1]
    while len(parts) > MOST:
        groups = [parts[i : i + MOST] for i in range(0, len(parts), MOST)]
        parts = [_put_together(g, axis).contiguous() if len(g) > 1 else g[0] for g in groups]
    return _put_together(parts, axis)


def _put_together(parts: Sequence[UOp], axis: int) -> UOp:
    total, at, whole = sum(part.shape[axis] for part in parts), 0, None
    for part in parts:
        size = part.shape[axis]
        here = UOp.const(dtypes.bool, True, part.device).broadcast_to(part.shape)
        here, value = (each.padded(axis, at, total - at - size) for each in (here, part))
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
    made = first.padded(axis, 0, behind).contiguous()
    for part in others:
        begin, end = end, end + part.shape[axis]
        made = UOp(Ops.ASSIGN, made.dtype, (made.sliced(axis, begin, end), part))
    return made


def continued(part: UOp, monoid: str, axis: int, before: UOp) -> UOp:
    """The running reduction of a part, from the last value `before` it on."""
    combine = MONOIDS[monoid].combine
    if not MONOIDS[monoid].runs_in_order(part.dtype):
        made = part.running(monoid, axis)
        return before.broadcast_to(made.shape).alu(combine, made)
    is_later = UOp.positions(part.shape, axis, part.device) > 0
    started = before.broadcast_to(part.shape).alu(combine, part)
    return is_later.where(part, started).running(monoid, axis)
