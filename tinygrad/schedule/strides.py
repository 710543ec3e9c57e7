"""How far apart in storage the elements of a view lie: NumPy's strides, and what follows from them.
Which views are copies, and which show an element several times.

A view is a chain of movement operations over a *bottom*: storage, or a value that will be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.base.helpers import strides_for
from tinygrad.uop import GroupOp, Ops, UOp

Strides = tuple[int, ...]

_ONCE = (Ops.SHRINK, Ops.PERMUTE, Ops.FLIP)
_ALWAYS_WINDOWS = (Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK, Ops.FLIP, Ops.DETACH)


def steps_between(node: UOp, bottom: UOp) -> list[UOp]:
    """The movement from `bottom` up to `node`, in that order."""
    steps = []
    while node is not bottom:
        steps.append(node)
        node = node.src[0]
    return steps[::-1]


def strides_of(node: UOp, bottom: UOp) -> Strides | None:
    """For each axis the distance of its elements in the bottom; None if an axis has no constant
    distance, so that the node is a copy."""
    strides: Strides | None = strides_for(bottom.room)
    for step in steps_between(node, bottom):
        strides = _STRIDES[step.op](step, strides)
        if strides is None:
            return None
    return strides


def is_window(node: UOp, bottom: UOp) -> bool:
    """Whether NumPy would make `node` a view of `bottom`."""
    plain = node
    while plain is not bottom and plain.op in _ALWAYS_WINDOWS:
        plain = plain.src[0]
    if plain is bottom:
        return True
    while plain is not bottom and plain.op in (Ops.RESHAPE, Ops.DETACH):
        plain = plain.src[0]  # of contiguous storage
    return plain is bottom or strides_of(node, bottom) is not None


def is_plain_window(node: UOp) -> bool:
    """Whether `node` certainly shows each element below all movement at most once, by a quick test:
    axes of contiguous storage are cut, flipped and permuted."""
    while node.op in _ONCE:
        node = node.src[0]
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op not in GroupOp.Movement and node.op is not Ops.DETACH


def repeats(node: UOp, bottom: UOp) -> bool:
    """Whether several elements of the view may be the same element of the bottom."""
    if is_plain_window(node) or 0 in node.room:
        return False
    strides = strides_of(node, bottom)
    if strides is None:
        return True
    reach = 0
    for stride, size in sorted((abs(s), n) for s, n in zip(strides, node.room, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _reshaped(node: UOp, strides: Strides) -> Strides | None:
    """Contiguous axes form runs of elements, which are split into the new axes."""
    if 0 in node.room:
        return strides_for(node.room)
    runs: list[tuple[int, int]] = []  # number of elements, and their distance
    for size, stride in zip(node.src[0].room, strides, strict=True):
        if size > 1 and runs and runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        elif size > 1:
            runs.append((size, stride))
    out, left, apart = [], 1, 0
    for size in reversed(node.room):
        if left == 1 < size:
            left, apart = runs.pop()
        if left % size:
            return None
        out.append(apart if size > 1 else 0)
        left, apart = left // size, apart * size
    return tuple(out[::-1])


def _expanded(node: UOp, strides: Strides) -> Strides:
    sizes = zip(node.src[0].room, node.room, strides, strict=True)
    return tuple(s if n == m else 0 for n, m, s in sizes)


def _windowed(node: UOp, strides: Strides) -> Strides | None:
    out, taps = list(strides), []
    for axis, _, stride, dilation, before, after in node.arg:
        if (before, after) != (0, 0):
            return None
        taps.append(strides[axis] * dilation)
        out[axis] *= stride
    return (*out, *taps)


_STRIDES: dict[Ops, Callable[[UOp, Any], Strides | None]] = {
    Ops.RESHAPE: _reshaped,
    Ops.EXPAND: _expanded,
    Ops.PERMUTE: lambda node, strides: tuple(strides[axis] for axis in node.arg),
    Ops.SHRINK: lambda node, strides: strides,
    Ops.FLIP: lambda node, strides: tuple(
        -s if axis in node.arg else s for axis, s in enumerate(strides)
    ),
    Ops.PAD: lambda node, strides: None,
    Ops.WINDOW: _windowed,
    Ops.DETACH: lambda node, strides: strides,
}
