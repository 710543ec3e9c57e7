"""Which views share memory with what they are views of, by the rules of NumPy and PyTorch: a write
to one is seen through the other. All other views (padded ones, a reshape of a transposed tensor)
are copies in those libraries and here too: they keep the values of the moment they were made.

A view is a chain of movement operations over a *bottom*: storage, or a value that will be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import argsort, prod, strides_for
from tinygrad.schedule.bases import MOVED, beneath
from tinygrad.schedule.movement import view_offset
from tinygrad.simplify.affine import simplify_index
from tinygrad.transforms.gradient import RULES as GRADIENTS
from tinygrad.transforms.gradient import reshaped
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

Strides = tuple[int, ...]
Pair = tuple[int, int]


def bottom_of(node: UOp, root: UOp | None = None) -> UOp:
    """The node that `node` is a view of: `root` if that is on the way, else the node below all
    movement."""
    while node is not root and node.op in MOVED:
        node = node.src[0]
    return node


def steps_between(node: UOp, bottom: UOp) -> list[UOp]:
    """The movement from `bottom` up to `node`, in that order."""
    steps = []
    while node is not bottom:
        steps.append(node)
        node = node.src[0]
    return steps[::-1]


def on_bottom(node: UOp, bottom: UOp, new: UOp) -> UOp:
    """The same view, of another bottom with the same elements in the same order."""
    return new.reshape(bottom.shape).moved_by(steps_between(node, bottom))


def writable_part(node: UOp) -> UOp:
    """The same view without DETACH, which doesn't affect storage."""
    bottom = bottom_of(node)
    return bottom.moved_by(s for s in steps_between(node, bottom) if s.op is not Ops.DETACH)


_ONCE = (Ops.SHRINK, Ops.PERMUTE, Ops.FLIP)
_ALWAYS_WINDOWS = (Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK, Ops.FLIP, Ops.DETACH)


# ---- strides -------------------------------------------------------------------------------------


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
    return beneath(beneath(node, _ONCE), (Ops.RESHAPE,)).op not in MOVED


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


def diagonal_of(node: UOp, bottom: UOp, axes: Pair, starts: Pair, count: int) -> UOp:
    """`count` elements along two axes of a view at once, from `starts` on, as a last axis, and as a
    view of the same storage. Gradients go through `node` all the same."""
    strides = strides_of(node, bottom)
    assert strides is not None, "a view, not a copy"
    corner = dict(zip(axes, starts, strict=True))
    first = tuple(UOp.const(dtypes.index, corner.get(axis, 0)) for axis in range(node.ndim))
    plain = bottom.moved_by(s for s in steps_between(node, bottom) if s.op is not Ops.DETACH)
    begin = simplify_index(view_offset(plain, bottom, first)[0])
    rest = [axis for axis in range(node.ndim) if axis not in axes]
    sizes = (*(node.shape[axis] for axis in rest), count)
    apart = (*(strides[axis] for axis in rest), sum(strides[axis] for axis in axes))
    return _strided(bottom.detach(written(node, bottom, node)), begin.arg, sizes, apart)


def _strided(bottom: UOp, begin: int, sizes: tuple[int, ...], strides: Strides) -> UOp:
    """Any view of storage: windows in windows, those that are furthest apart first."""
    order = sorted(range(len(sizes)), key=lambda axis: -abs(strides[axis]))
    reaches = [(n - 1) * abs(s) for n, s in zip(sizes, strides, strict=True)]
    begin += sum(min((n - 1) * s, 0) for n, s in zip(sizes, strides, strict=True))
    left = sum(reaches) + 1
    view = bottom.reshape((prod(bottom.shape),)).sliced(0, begin, begin + left)
    for place, axis in enumerate(order):  # (done.., left) → (done.., size, left of the others)
        left -= reaches[axis]
        repeated = strides[axis] == 0 or sizes[axis] == 1
        view = view.window(((place, left, 1 if repeated else abs(strides[axis]), 1, 0, 0),))
        view = view.broadcast_to((*view.shape[:place], sizes[axis], left))
    view = view.reshape(view.shape[:-1]).permute(tuple(argsort(order)))
    backwards = tuple(axis for axis, s in enumerate(strides) if s < 0 < sizes[axis] - 1)
    return view.flip(backwards) if backwards else view


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


# ---- writes as expressions -----------------------------------------------------------------------


def spread(view: UOp, bottom: UOp, value: UOp) -> UOp:
    """`value` (of the view's shape) at its place in `bottom`, zeros elsewhere: as the view's
    gradient."""
    for step in reversed(steps_between(view, bottom)):
        if step.op is Ops.WINDOW and all(taps == 1 for _, taps, *_ in step.arg):
            value = _between(step, value)
        elif step.op is not Ops.DETACH:
            moved = GRADIENTS[step.op](step, value)[0]
            assert moved is not None, "movement passes gradients"
            value = moved
    return value


def written(view: UOp, bottom: UOp, value: UOp) -> UOp:
    """`bottom` with `value` at the place of the view."""
    ones = UOp.const(dtypes.bool, True, bottom.device).broadcast_to(view.shape)
    return spread(view, bottom, ones).where(spread(view, bottom, value), bottom)


def _between(step: UOp, value: UOp) -> UOp:
    """Windows of one tap with zeros between. A FOLD would be the same, but it would read everywhere
    and discard what lies between."""
    below = step.src[0].shape
    value = reshaped(value, value.shape[: len(below)])  # it may be what a gradient is asked by
    for axis, _, stride, *_ in step.arg:
        before, size, after = value.shape[:axis], value.shape[axis], value.shape[axis + 1 :]
        apart = value.reshape((*before, size, 1, *after)).padded(axis + 1, 0, stride - 1)
        value = apart.reshape((*before, size * stride, *after)).sliced(axis, 0, below[axis])
    return value
