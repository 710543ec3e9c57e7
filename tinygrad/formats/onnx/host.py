"""Operators on NumPy arrays of the host: shape arithmetic, whose values are known before anything
runs, and movement of element types that tensors lack (strings, 4-bit numbers). They mean the same
as the operators on tensors; only what shape arithmetic uses is here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.casts import cast_on_host
from tinygrad.formats.onnx.registry import Array

MOST = 1 << 28
"""Elements that a few numbers of a model make at most."""

MOST_PLACES = 1 << 24
"""Places along one axis that are worked out on the host, with some numbers for each."""


def shape_of(x: Any, start: int = 0, end: int | None = None) -> Array:
    """Sizes of the axes from `start` to `end`."""
    return np.array(x.shape[start:end], np.int64)


def size_of(x: Any) -> Array:
    """The number of elements."""
    return np.array(int(np.prod(x.shape)), np.int64)


def constant(**given: Any) -> Array:
    """The one attribute's value."""
    ((name, value),) = given.items()
    if name in ("value", "sparse_value"):
        return np.asarray(value)
    kinds = {"float": np.float32, "int": np.int64, "string": object}
    return np.array(value, kinds[name.removeprefix("value_").removesuffix("s")])


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.divide(a, b))
    wide = np.trunc(a / b) if np.abs(a).max(initial=0) < 1 << 52 else a // b
    return np.asarray(wide).astype(a.dtype)


def _mod(a: Array, b: Array, fmod: int = 0) -> Array:
    return np.asarray(np.fmod(a, b) if fmod else np.mod(a, b))


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front."""
    return tuple(int(a) % max(ndim, 1) for a in np.asarray(axes).reshape(-1))


def squeeze(x: Array, axes: Any = None) -> Array:
    """Without the axes of size 1 that are named, or all."""
    return np.squeeze(x, None if axes is None else axes_of(axes, x.ndim))


def unsqueeze(x: Array, axes: Any) -> Array:
    """With new axes of size 1."""
    return np.expand_dims(x, axes_of(axes, x.ndim + np.size(axes)))


def reshaped(shape: tuple[int, ...], wanted: Any, allowzero: int = 0) -> tuple[int, ...]:
    """The sizes that a reshape to `wanted` gives: 0 keeps a size, -1 takes what is left."""
    sizes = [int(n) for n in np.asarray(wanted).reshape(-1)]
    return tuple(shape[i] if n == 0 and not allowzero else n for i, n in enumerate(sizes))


def reshape(x: Array, shape: Any, allowzero: int = 0) -> Array:
    """The same elements in another shape."""
    return x.reshape(reshaped(x.shape, shape, allowzero))


def concat(*parts: Array, axis: int) -> Array:
    """Arrays one behind the other."""
    return np.concatenate(parts, axis)


def slices(
    shape: tuple[int, ...], starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> tuple[slice, ...]:
    """Python's slices of an array of `shape`."""
    found = [slice(None)] * len(shape)
    listed = [np.asarray(v).reshape(-1) for v in (starts, ends)]
    count = len(listed[0])
    where = range(count) if axes is None else axes_of(axes, len(shape))
    jumps = [1] * count if steps is None else np.asarray(steps).reshape(-1)
    for axis, start, end, step in zip(where, *listed, jumps, strict=True):
        size, first, last, jump = shape[axis], int(start), int(end), int(step)
        first, last = (n + size if n < 0 else n for n in (first, last))
        if jump > 0:
            found[axis] = slice(min(max(first, 0), size), min(max(last, 0), size), jump)
        else:
            first, last = min(first, size - 1), max(last, -1)
            empty = first < 0
            found[axis] = slice(0, 0) if empty else slice(first, last if last >= 0 else None, jump)
    return tuple(found)


def slice_(x: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Array:
    """Parts of axes."""
    return x[slices(x.shape, starts, ends, axes, steps)]


def gather(x: Array, indices: Array, axis: int = 0) -> Array:
    """What stands at `indices` of an axis."""
    return np.asarray(np.take(x, indices, axis))


def expand(x: Array, shape: Any) -> Array:
    """Repeated to what broadcasts with `shape`."""
    sizes = np.broadcast_shapes(x.shape, tuple(int(n) for n in shape))
    checked(math.prod(sizes))
    return np.broadcast_to(x, sizes)


def full(shape: Any, value: Any = None) -> Array:
    """`value` (one element; float32 0 unless given) everywhere."""
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value)
    sizes = tuple(int(n) for n in shape)
    checked(math.prod(sizes))
    return np.broadcast_to(fill.reshape(()), sizes)


def range_(start: Array, limit: Array, delta: Array) -> Array:
    """Numbers from `start` in steps of `delta`, before `limit`."""
    checked(math.ceil((limit.item() - start.item()) / delta.item()))
    return np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def tile(x: Array, repeats: Array) -> Array:
    """An array again and again along each axis."""
    checked(math.prod(int(n) for n in (*x.shape, *repeats)))
    return np.tile(x, repeats)


def checked(count: int, most: int = MOST) -> int:
    """That many elements, unless they are more than `most`."""
    if count > most:
        raise ArgumentError(f"{count} elements; legal are up to {most}")
    return count


def transpose(x: Array, perm: Any = None) -> Array:
    """The axes in another order, unless given the opposite one."""
    return np.transpose(x, perm)


def split(x: Array, split: Any = None, axis: int = 0, num_outputs: int | None = None) -> Any:
    """An axis in pieces."""
    sizes = split_sizes(x.shape[axis], split, num_outputs)
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def split_sizes(size: int, sizes: Any, count: int | None) -> list[int]:
    """The sizes of the pieces of an axis; equal ones, the last perhaps smaller, if not given."""
    if sizes is not None:
        return [int(n) for n in np.asarray(sizes).reshape(-1)]
    count = 2 if count is None else count
    if not 0 < count <= max(size, 1):
        raise ArgumentError(f"{count} pieces of an axis of size {size}; legal are 1 to {size}")
    each = -(-size // count)
    return [min(each, size - i * each) for i in range(count)]


def _reduced(function: Callable[..., Any]) -> Callable[..., Array]:
    def reduce(
        x: Array, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Array:
        if axes is None or np.size(axes) == 0:
            if noop_with_empty_axes:
                return x
            axes = range(x.ndim)
        made = function(x, axis=axes_of(axes, x.ndim), keepdims=bool(keepdims))
        return np.asarray(made).astype(x.dtype)

    return reduce


def _compare(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda a, b: np.asarray(function(a, b))


def _fold(function: Callable[..., Any]) -> Callable[..., Array]:
    def all_of(first: Array, *rest: Array) -> Array:
        for other in rest:
            first = function(first, other)
        return np.asarray(first)

    return all_of


def _unary(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda x: np.asarray(function(x)).astype(x.dtype)


def _power(a: Array, b: Array) -> Array:
    return np.asarray(np.power(a, b)).astype(a.dtype)


FOLDED: Mapping[str, Callable[..., Any]] = {
    "Abs": _unary(np.abs),
    "Add": _compare(np.add),
    "And": _compare(np.logical_and),
    "Cast": cast_on_host,
    "Ceil": _unary(np.ceil),
    "Concat": concat,
    "Constant": constant,
    "ConstantOfShape": full,
    "Div": _divide,
    "Equal": _compare(np.equal),
    "Expand": expand,
    "Flatten": lambda x, axis=1: x.reshape(int(np.prod(x.shape[:axis])), -1),
    "Floor": _unary(np.floor),
    "Gather": gather,
    "Greater": _compare(np.greater),
    "GreaterOrEqual": _compare(np.greater_equal),
    "Identity": lambda x: x,
    "Less": _compare(np.less),
    "LessOrEqual": _compare(np.less_equal),
    "Max": _fold(np.maximum),
    "Min": _fold(np.minimum),
    "Mod": _mod,
    "Mul": _compare(np.multiply),
    "Neg": _unary(np.negative),
    "Not": _unary(np.logical_not),
    "Or": _compare(np.logical_or),
    "Pow": _power,
    "Range": range_,
    "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min),
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "Reshape": reshape,
    "Shape": shape_of,
    "Size": size_of,
    "Slice": slice_,
    "Split": split,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": squeeze,
    "Sub": _compare(np.subtract),
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
    "Where": lambda condition, x, y: np.where(condition, x, y),
}
"""Operators by name, on arrays."""
