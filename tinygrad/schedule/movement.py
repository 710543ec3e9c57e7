"""Movement as index arithmetic: which element of the source an element of the result is.

Each rule takes the index (one expression an axis) of the result and gives that of the source, and
the conditions under which there is such an element at all (outside, PAD and WINDOW are zero).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import ceildiv, prod, strides_for
from tinygrad.simplify.affine import divide, modulo, simplify_index, weighted
from tinygrad.simplify.masks import all_of, conditions_of
from tinygrad.uop import GroupOp, Ops, UOp

Index = tuple[UOp, ...]
ZERO = UOp.const(dtypes.index, 0)


def offset_of(index: Sequence[UOp], shape: Sequence[Any]) -> UOp:
    """The position of an element in a row-major array. Where a size is symbolic the array has
    room for the largest, so that strides are numbers."""
    return weighted(index, strides_for([n if isinstance(n, int) else int(n.vmax) for n in shape]))


def within(at: UOp, low: int, high: Any) -> list[UOp]:
    """The conditions low <= at < high, without those that bounds prove."""
    high_const = high if isinstance(high, UOp) else UOp.const(dtypes.index, high)
    conditions = []
    if at.vmin < low:
        conditions.append(UOp.const(dtypes.index, low - 1) < at)
    if at.vmax >= high_const.vmin:
        conditions.append(at < high_const)
    return conditions


def _reshape(node: UOp, index: Index) -> tuple[Index, list[UOp]]:
    """Axes are matched in groups of equal size; only within a group is there arithmetic.
    A symbolic axis leads its group, so that what holds of the room holds of what is in it."""
    out_shape, in_shape = node.room, node.src[0].room
    if 0 in in_shape:  # there is nothing to read
        return tuple(ZERO for _ in in_shape), [UOp.const(dtypes.bool, False)]
    result: list[UOp] = []
    taken = 0
    position = 0
    while position < len(in_shape):
        stop, size_in, start, size_out = position + 1, in_shape[position], taken, 1
        while size_in != size_out:
            if size_out < size_in and taken < len(out_shape):
                size_out *= out_shape[taken]
                taken += 1
            else:
                size_in *= in_shape[stop]
                stop += 1
        flat = offset_of(index[start:taken], out_shape[start:taken])
        result.extend(_unflatten(flat, in_shape[position:stop]))
        position = stop
    assert prod(out_shape[taken:]) == 1, f"RESHAPE of {in_shape} to {out_shape}, more elements"
    return tuple(result), []


def _unflatten(flat: UOp, shape: Sequence[int]) -> list[UOp]:
    """The index in `shape` of the position `flat`."""
    index: list[UOp] = []
    for axis, size in enumerate(shape):
        inner = prod(shape[axis + 1 :])
        outer = divide(flat, inner) if inner > 1 else flat
        if prod(shape[:axis]) > 1:
            outer = modulo(outer, size)
        index.append(ZERO if size == 1 else outer)
    return index


def _expand(node: UOp, index: Index) -> tuple[Index, list[UOp]]:
    sizes = zip(index, node.src[0].shape, node.shape, strict=True)
    return tuple(ZERO if n == 1 and m != 1 else at for at, n, m in sizes), []


def _permute(node: UOp, index: Index) -> tuple[Index, list[UOp]]:
    source = [ZERO] * len(index)
    for at, axis in zip(index, node.arg, strict=True):
        source[axis] = at
    return tuple(source), []


def _shrink(node: UOp, index: Index) -> tuple[Index, list[UOp]]:
    pairs = zip(index, node.sizes, strict=True)
    return tuple(simplify_index(at + begin) for at, (begin, _) in pairs), []


def _flip(node: UOp, index: Index) -> tuple[Index, list[UOp]]:
    source = list(index)
    for axis in node.arg:
        source[axis] = simplify_index(index[axis] * -1 + (node.shape[axis] - 1))
    return tuple(source), []


def _pad(node: UOp, index: Index) -> tuple[Index, list[UOp]]:
    source: list[UOp] = []
    conditions: list[UOp] = []
    for at, (before, after), size in zip(index, node.sizes, node.src[0].shape, strict=True):
        if (before, after) != (0, 0):
            at = simplify_index(at - before)
            conditions.extend(within(at, 0, size))
        source.append(at)
    return tuple(source), conditions


def _window(node: UOp, index: Index) -> tuple[Index, list[UOp]]:
    windows = node.arg
    source = list(index[: len(index) - len(windows)])
    taps = index[len(source) :]
    conditions: list[UOp] = []
    for (axis, _, stride, dilation, before, _), tap in zip(windows, taps, strict=True):
        at = simplify_index(source[axis] * stride + tap * dilation - before)
        conditions.extend(within(at, 0, node.src[0].shape[axis]))
        source[axis] = at
    return tuple(source), conditions


_RULES: dict[Ops, Callable[[UOp, Index], tuple[Index, list[UOp]]]] = {
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.PAD: _pad,
    Ops.WINDOW: _window,
}


def source_index(node: UOp, index: Index) -> tuple[Index, list[UOp]]:
    """For a movement op: the index into its source, and the conditions under which that element
    exists."""
    return _RULES[node.op](node, index)


def view_offset(view: UOp, base: UOp, index: Index) -> tuple[UOp, list[UOp]]:
    """The offset in the base's storage, through all movement from `view` down to `base`."""
    conditions: list[UOp] = []
    while view is not base:
        index, more = source_index(view, index)
        conditions.extend(more)
        view = view.src[0]
    return offset_of(index, base.shape), conditions


def both(*gates: UOp | None) -> UOp | None:
    """The AND of gates, with each condition once; None if there is none."""
    conditions = conditions_of(*gates)
    return all_of(conditions) if conditions else None


def loops_of(index: Iterable[UOp]) -> frozenset[UOp]:
    """The loops that an index depends on."""
    return frozenset().union(*(at.ranges for at in index))


def turns_of(loops: Iterable[UOp]) -> int:
    """How often the innermost of these loops runs."""
    return int(prod(loop.vmax + 1 for loop in loops))


def merged_axes(node: UOp) -> tuple[tuple[Any, ...], ...] | None:
    """For each axis, the sizes of the axes that a RESHAPE below merged into it, if only elementwise
    ops follow the RESHAPE: loops over these sizes visit the values in the order in which they are
    computed."""
    while node.op in GroupOp.Elementwise or node.op is Ops.CONTIGUOUS:
        reshaped = (s for s in node.src if s.op is Ops.RESHAPE)
        merging = (s for s in reshaped if len(s.src[0].shape) > len(s.shape))
        node = next(merging, node.src[0])
    if node.op is not Ops.RESHAPE:
        return None
    before = [*zip(node.src[0].shape, node.src[0].room, strict=True)]
    found: list[tuple[Any, ...]] = []
    for room in node.room:
        sizes, merged = list[Any](), 1
        while before and merged * before[0][1] <= room and (merged < room or before[0][1] == 1):
            size, most = before.pop(0)
            sizes, merged = [*sizes, size], merged * most
        if merged != room:
            return None
        found.append(tuple(n for n in sizes if n != 1) or (1,))
    return tuple(found)


LONG_ROW = 16  # elements that are vectors by themselves


def fold_index(
    node: UOp, where: Index, counter: Callable[[int], str]
) -> tuple[Index, list[UOp], tuple[UOp, ...]]:
    """For the element of a FOLD at `where`: the element of its source, the conditions under which
    it exists, and the loops over taps, whose names `counter` gives for an axis."""
    source, taps = list(where), list[UOp]()
    conditions, loops = list[UOp](), list[UOp]()
    for window in node.arg[0]:
        axis = window[0]
        found = fold_axis(where[axis], window, node.src[0].shape, counter(axis))
        source[axis], tap, own, loop = found
        taps.append(tap)
        conditions += own
        loops += loop
    return (*source, *taps), conditions, tuple(loops)


def fold_axis(
    at: UOp, window: tuple[int, ...], positions: tuple[Any, ...], name: str
) -> tuple[UOp, UOp, list[UOp], list[UOp]]:
    """For element `at` of a windowed axis: the position, the tap, the conditions, and the loop over
    taps.

    Position i reads i*stride + k*dilation - before. Only taps k for which at + before - k*dilation
    is divisible by the stride read `at`. If stride and dilation have no common factor, these are
    every stride-th tap, starting at one that depends only on `at`, so the loop visits no other taps
    (its phases).
    """
    axis, taps, stride, dilation, before, _ = window
    shifted = at + before
    in_phases = stride > 1 and math.gcd(dilation, stride) == 1
    turns = ceildiv(taps, stride) if in_phases else taps
    tap = loop = ZERO if turns == 1 else UOp.range(turns, name)
    if in_phases:
        tap = (shifted * pow(dilation, -1, stride)) % stride + loop * stride
    moved = shifted - tap * dilation
    position = moved // stride
    if in_phases and dilation == 1:
        position = shifted // stride - loop  # (x - x % s) // s is x // s
    position, tap = simplify_index(position), simplify_index(tap)
    conditions = [tap < taps] if in_phases and taps % stride else []
    if stride > 1 and not in_phases:
        conditions.append(simplify_index(moved % stride).eq(0))
    conditions += within(position, 0, positions[axis])
    return position, tap, conditions, [] if loop is ZERO else [loop]


def part_of_taps(
    windows: Sequence[tuple[int, ...]], shape: Sequence[Any], phases: bool
) -> float | None:
    """The part of the turns of a FOLD's loops that visit a tap: with a stride, the last turn of
    some phases visits none, which recipes leave out. 0 if phases are no loops of their own, as they
    differ in length or are short rows. None if turns also visit taps that read another element, or
    with a stride if there shall be no `phases`, all have as many taps, or an image has one channel:
    its sums are no products."""
    strided = [window for window in windows if window[2] > 1]
    if not strided:
        return 1
    if not phases or any(dilation > 1 for _, _, _, dilation, *_ in strided):
        return None
    part, row, channels = 1.0, shape[-1], shape[windows[0][0] - 1]
    for axis, taps, stride, *_ in strided:
        part *= 0 if shape[axis] % stride else taps / (stride * ceildiv(taps, stride))
        row = row // stride if axis == len(shape) - 1 else row
    if not part or row < LONG_ROW:
        return 0
    return None if channels == 1 or any(w[1] % w[2] == 0 for w in strided) else part
