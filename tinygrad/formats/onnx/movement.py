"""Operators that move elements: reshaping, slicing, gathering and scattering."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import prod
from tinygrad.formats.onnx import host
from tinygrad.formats.onnx.registry import Array, Row, Table, Value, on_host, one
from tinygrad.formats.onnx.values import dtype_of, fits_tensor, kind_of
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import axis_of


def _ints(values: Any) -> list[int]:
    return [int(n) for n in np.asarray(values).reshape(-1)]


# ---- shapes --------------------------------------------------------------------------------------


def _reshape(x: Tensor, shape: Any, allowzero: int = 0) -> Tensor:
    return x.reshape(host.reshaped(tuple(x.shape), shape, allowzero))


def _transpose(x: Tensor, perm: list[int] | None = None) -> Tensor:
    return x.permute(list(range(x.ndim))[::-1] if perm is None else perm)


def _squeeze(x: Tensor, axes: Any = None) -> Tensor:
    gone = (
        [i for i, n in enumerate(x.shape) if n == 1] if axes is None else host.axes_of(axes, x.ndim)
    )
    if any(x.shape[i] != 1 for i in gone):
        raise ArgumentError(f"axes {list(gone)} of shape {x.shape}; legal are axes of size 1")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in gone])


def _unsqueeze(x: Tensor, axes: Any) -> Tensor:
    ndim = x.ndim + np.size(axes)
    new, sizes = host.axes_of(axes, ndim), iter(x.shape)
    return x.reshape([1 if i in new else next(sizes) for i in range(ndim)])


def _expand(x: Tensor, shape: Any) -> Tensor:
    return x.expand(np.broadcast_shapes(x.shape, tuple(_ints(shape))))


def _tile(x: Tensor, repeats: Any, tiles: Any = None) -> Tensor:
    return x.repeat(_ints(repeats)) if x.ndim else x


def _concat(*parts: Tensor, axis: int = 1) -> Tensor:
    axis = axis_of(axis, parts[0].ndim, "axis")
    full = [part for part in parts if part.shape[axis]]
    if not full:
        return parts[0]
    return full[0].cat(*full[1:], dim=axis)


def _split(
    x: Tensor, split: Any = None, axis: int = 0, num_outputs: int | None = None, outputs: int = 0
) -> tuple[Tensor, ...]:
    sizes = host.split_sizes(x.shape[axis_of(axis, x.ndim, "axis")], split, num_outputs, outputs)
    return x.split(sizes, dim=axis)


def _depth_to_space(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    each = c // blocksize**2
    if mode == "DCR":
        parts = x.reshape(n, blocksize, blocksize, each, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, each, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, each, h * blocksize, w * blocksize)


def _space_to_depth(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.permute(order).reshape(n, -1, h // blocksize, w // blocksize)


# ---- parts ---------------------------------------------------------------------------------------


def _slice(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    return x[host.slices(x.shape, starts, ends, axes, steps)]


MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _pad(
    x: Tensor,
    pads: Any,
    constant_value: Any = None,
    axes: Any = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Tensor:
    sizes = _ints(pads)
    where = range(x.ndim) if axes is None else host.axes_of(axes, x.ndim)
    pairs = [(0, 0)] * x.ndim
    for place, axis in enumerate(where):
        pairs[axis] = sizes[place], sizes[place + len(sizes) // 2]
    fill = value if constant_value is None else one(constant_value)
    fill = fill if mode == "constant" else 0
    out = x if mode == "wrap" else x.pad(pairs, mode=MODES[mode], value=fill).cast(x.dtype)
    if mode == "wrap":  # may go around more than once
        for axis, (before, after) in enumerate(pairs):
            size = x.shape[axis]
            if before or after:
                host.checked(before + size + after, host.MOST_PLACES)
                places = np.arange(-before, size + after) % size
                out = out._at(axis, Tensor(places, device=x.device))
    return out


def _center_crop_pad(x: Tensor, shape: Any, axes: Any = None) -> Tensor:
    where = range(x.ndim) if axes is None else host.axes_of(axes, x.ndim)
    pairs = [(0, 0)] * x.ndim
    for axis, goal in zip(where, _ints(shape), strict=True):
        size = x.shape[axis]
        missing = goal - size
        before = missing // 2 if missing > 0 else -(-missing // 2)
        pairs[axis] = before, missing - before
    return x.pad(pairs).cast(x.dtype)


def _trilu(x: Tensor, k: Any = None, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(one(k))
    return x.triu(diagonal) if upper else x.tril(diagonal)


# ---- gathering -----------------------------------------------------------------------------------


def _positive(indices: Tensor, size: int) -> Tensor:
    return (indices < 0).where(indices + size, indices)


def _gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    axis = axis_of(axis, x.ndim, "axis")
    if 0 in indices.shape:
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return Tensor.zeros(shape, dtype=x.dtype, device=x.device)
    return x._at(axis, indices)


def _gather_elements(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return x.gather(axis, _positive(indices, x.shape[axis]))


def _gather_nd(x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Rows of `indices` are positions on the axes after the batches."""
    depth, places = indices.shape[-1], indices.shape[:-1]
    batches = []
    for axis in range(batch_dims):
        along = [n if i == axis else 1 for i, n in enumerate(places)]
        count = Tensor.arange(x.shape[axis], device=x.device, dtype=indices.dtype)
        batches.append(count.reshape(along).expand(places))
    return x[(*batches, *(indices[..., i] for i in range(depth)))]


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none"
) -> Tensor:
    axis = axis_of(axis, x.ndim, "axis")
    places = _positive(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, REDUCTIONS[reduction])


def _scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    rows, inner = prod(x.shape[:depth]), prod(x.shape[depth:])
    # An index of each axis checks that axis; a number computed of all of them would not.
    numbers = Tensor.arange(rows, device=x.device).reshape(x.shape[:depth])
    flat = _gather_nd(numbers, indices)
    places = flat.reshape(-1, 1).expand(-1, inner)
    values = updates.reshape(-1, inner)
    target = x.reshape(rows, inner)
    if reduction == "none":
        out = target.scatter(0, places, values)
    else:
        out = target.scatter_reduce(0, places, values, REDUCTIONS[reduction])
    return out.reshape(x.shape)


def _tensor_scatter(
    past: Tensor, update: Tensor, places: Any = None, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Rows of a cache overwritten from a place of their own in each batch."""
    axis = axis_of(axis, past.ndim, "axis")
    size, count, batches = past.shape[axis], update.shape[axis], past.shape[0]
    starts = np.zeros(batches, np.int64) if places is None else np.asarray(places).reshape(-1)
    rows = starts[:, None] + np.arange(count)  # (batches, count)
    rows = rows % size if mode == "circular" else rows
    along = [batches, *[1] * (past.ndim - 1)]
    along[axis] = count
    index = Tensor(rows, device=past.device).reshape(along).expand(update.shape)
    return past.scatter(axis, index, update)


def _one_hot(indices: Tensor, depth: Any, values: Tensor, axis: int = -1) -> Tensor:
    size = int(one(depth))
    axis = axis_of(axis, indices.ndim + 1, "axis")
    whole = indices.cast(dtypes.int64)
    return _positive(whole, size)._one_hot_along(axis, size).where(values[1], values[0])


def _reverse_sequence(x: Tensor, lengths: Any, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    size = x.shape[time_axis]
    turns = np.arange(size)[None, :]
    ends = np.asarray(lengths)[:, None]
    places = np.where(turns < ends, ends - 1 - turns, turns)  # (batches, size)
    along = [1] * x.ndim
    along[batch_axis], along[time_axis] = places.shape
    order = places if batch_axis < time_axis else places.T
    index = Tensor(np.ascontiguousarray(order), device=x.device).reshape(along).expand(x.shape)
    return x.gather(time_axis, index)


# ---- made of nothing -----------------------------------------------------------------------------


def _eye_like(x: Tensor, k: int = 0, dtype: int | None = None) -> Tensor:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    rows = Tensor.arange(x.shape[0], device=x.device).reshape(-1, 1)
    columns = Tensor.arange(x.shape[1], device=x.device).reshape(1, -1)
    return (rows + k).eq(columns).cast(kind or dtypes.float32)


def _range(start: Array, limit: Array, delta: Array) -> Tensor:
    first, last, step = (one(v) for v in (start, limit, delta))
    count = host.checked(max(0, math.ceil((last - first) / step)))
    made = first + np.arange(count) * step
    return Tensor(made.astype(start.dtype))


def _full(shape: Any, value: Any = None) -> Value:
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    if not fits_tensor(fill):
        return host.full(shape, fill)
    number, kind = fill[0].item(), dtype_of(kind_of(fill.dtype))
    return Tensor.full(tuple(_ints(shape)), number, dtype=kind)


# ---- what the host must know ---------------------------------------------------------------------


def _nonzero(x: Array) -> Array:
    return np.array(np.nonzero(x) if x.ndim else np.nonzero(x.reshape(1)), np.int64)


def _compress(x: Tensor, condition: Array, axis: int | None = None) -> Tensor:
    flat = x.reshape(-1) if axis is None else x
    places = np.nonzero(np.asarray(condition))[0]
    return _gather(flat, Tensor(places, device=x.device), axis or 0)


def _unique(x: Array, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:  # noqa: A002
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


ROWS: Table = {
    "CenterCropPad": Row(_center_crop_pad, (1,)),
    "Compress": Row(_compress, (1,)),
    "Concat": _concat,
    "Constant": host.constant,
    "ConstantOfShape": Row(_full, (0,)),
    "DepthToSpace": _depth_to_space,
    "Expand": Row(_expand, (1,)),
    "EyeLike": _eye_like,
    "Flatten": host.flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Identity": lambda x: x,
    "NonZero": on_host(_nonzero),
    "OneHot": Row(_one_hot, (1,)),
    "Pad": Row(_pad, (1, 2, 3)),
    "Range": on_host(_range),
    "Reshape": Row(_reshape, (1,)),
    "ReverseSequence": Row(_reverse_sequence, (1,)),
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": host.shape_of,
    "Size": host.size_of,
    "Slice": Row(_slice, (1, 2, 3, 4)),
    "SpaceToDepth": _space_to_depth,
    "Split": Row(_split, (1,), ("outputs",)),
    "Squeeze": Row(_squeeze, (1,)),
    "TensorScatter": Row(_tensor_scatter, (2,)),
    "Tile": Row(_tile, (1, 2)),
    "Transpose": _transpose,
    "Trilu": Row(_trilu, (1,)),
    "Unique": on_host(_unique),
    "Unsqueeze": Row(_unsqueeze, (1,)),
}

MAKES = {"Constant", "ConstantOfShape", "EyeLike", "NonZero", "Range", "Shape", "Size", "Unique"}
MOVES = frozenset({*ROWS, "Where"} - MAKES)
"""Operators that only move elements, so that their numbers can be moved in their place."""
