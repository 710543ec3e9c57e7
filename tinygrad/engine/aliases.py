"""Which views share memory with what they are views of, by the rules of NumPy and PyTorch: a write
to one is seen through the other. All other views (padded ones, a reshape of a transposed tensor)
are copies in those libraries and here too: they keep the values of the moment they were made.

A view is a chain of movement operations over a *bottom*: storage, or a value that will be stored.
"""

from __future__ import annotations

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import argsort, prod
from tinygrad.schedule.bases import MOVED
from tinygrad.schedule.movement import view_offset
from tinygrad.schedule.strides import Strides, repeats, steps_between, strides_of
from tinygrad.simplify.affine import simplify_index
from tinygrad.transforms.gradient import RULES as GRADIENTS
from tinygrad.transforms.gradient import reshaped
from tinygrad.uop import Ops, UOp

Pair = tuple[int, int]


def bottom_of(node: UOp, root: UOp | None = None) -> UOp:
    """The node that `node` is a view of: `root` if that is on the way, else the node below all
    movement."""
    while node is not root and node.op in MOVED:
        node = node.src[0]
    return node


def on_bottom(node: UOp, bottom: UOp, new: UOp) -> UOp:
    """The same view, of another bottom with the same elements in the same order."""
    return new.reshape(bottom.shape).moved_by(steps_between(node, bottom))


def without_detach(node: UOp, bottom: UOp, new: UOp) -> UOp:
    """The same view, of another bottom of the same shape, without DETACH, which doesn't affect
    storage."""
    return new.moved_by(s for s in steps_between(node, bottom) if s.op is not Ops.DETACH)


def writable_part(node: UOp) -> UOp:
    """The same view without DETACH."""
    bottom = bottom_of(node)
    return without_detach(node, bottom, bottom)


def diagonal_of(node: UOp, bottom: UOp, axes: Pair, starts: Pair, count: int) -> UOp:
    """`count` elements along two axes of a view at once, from `starts` on, as a last axis, and as a
    view of the same storage. Gradients go through `node` all the same."""
    strides = strides_of(node, bottom)
    assert strides is not None, "a view, not a copy"
    corner = dict(zip(axes, starts, strict=True))
    first = tuple(UOp.const(dtypes.index, corner.get(axis, 0)) for axis in range(node.ndim))
    plain = without_detach(node, bottom, bottom)
    begin = simplify_index(view_offset(plain, bottom, first)[0])
    rest = [axis for axis in range(node.ndim) if axis not in axes]
    sizes = (*(node.shape[axis] for axis in rest), count)
    apart = (*(strides[axis] for axis in rest), sum(strides[axis] for axis in axes))
    way = node
    if dtypes.is_float(node.dtype) and repeats(node, bottom):  # an element has a share in each
        ones = UOp.const(node.dtype, 1, node.device).broadcast_to(node.shape)
        way = node / on_bottom(node, bottom, spread(node, bottom, ones))
    return _strided(bottom.detach(written(node, bottom, way)), begin.arg, sizes, apart)


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
