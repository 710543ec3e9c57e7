"""Operators on NumPy arrays of the host: shape arithmetic, whose values are known before anything
runs. They mean the same as the operators on tensors; only what shape arithmetic uses is here. What
moves elements that tensors lack (strings, 4-bit numbers) moves their numbers (`numbers_for`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.casts import cast_on_host
from tinygrad.formats.onnx.registry import Array
from tinygrad.formats.onnx.values import STRINGS, is_foreign
from tinygrad.tensor.shapes import axis_of

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
    """Whole numbers are cut off toward zero."""
    if a.dtype.kind == "f":
        return np.asarray(np.divide(a, b))
    upward = (a % b != 0) & ((a < 0) != (b < 0))
    return np.asarray(a // b + upward).astype(a.dtype)


def _mod(a: Array, b: Array, fmod: int = 0) -> Array:
    return np.asarray(np.fmod(a, b) if fmod else np.mod(a, b))


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front.

    Raises:
        AxisError: one that isn't there; ArgumentError: one that is named twice.
    """
    found = tuple(axis_of(int(a), ndim, "axes") for a in np.asarray(axes).reshape(-1))
    if len(set(found)) < len(found):
        raise ArgumentError(f"axes {list(found)}; legal are different ones")
    return found


def squeeze(x: Array, axes: Any = None) -> Array:
    """Without the axes of size 1 that are named, or all."""
    return np.squeeze(x, None if axes is None else axes_of(axes, x.ndim))


def unsqueeze(x: Array, axes: Any) -> Array:
    """With new axes of size 1."""
    return np.expand_dims(x, axes_of(axes, x.ndim + np.size(axes)))


def flatten(x: Any, axis: int = 1) -> Any:
    """Two axes: of those before `axis`, and of the others."""
    if not -x.ndim <= axis <= x.ndim:
        raise ArgumentError(f"axis {axis} of shape {x.shape}; legal are {-x.ndim} to {x.ndim}")
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


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


def numbers_for(values: list[Any]) -> tuple[list[Any], Array]:
    """Whole numbers in the place of all elements that tensors lack, and the elements by number; 0
    is what fills what nothing was moved to."""
    foreign = [value for value in values if is_foreign(value)]
    kind = foreign[0].dtype
    elements = [np.array([""] if kind == STRINGS else [0]).astype(kind)]
    numbered, count = list(values), 1
    for place, value in enumerate(values):
        if is_foreign(value):
            numbered[place] = np.arange(count, count + value.size).reshape(value.shape)
            elements.append(value.reshape(-1))
            count += value.size
    return numbered, np.concatenate(elements)


def checked(count: int, most: int = MOST) -> int:
    """That many elements, unless they are more than `most`."""
    if count > most:
        raise ArgumentError(f"{count} elements; legal are up to {most}")
    return count


def transpose(x: Array, perm: Any = None) -> Array:
    """The axes in another order, unless given the opposite one."""
    return np.transpose(x, perm)


def split(
    x: Array, split: Any = None, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> Any:
    """An axis in pieces."""
    sizes = split_sizes(x.shape[axis], split, num_outputs, outputs)
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def split_sizes(size: int, sizes: Any, wanted: int | None, count: int) -> list[int]:
    """The sizes of the `count` pieces of an axis; if not given, equal ones, of which the last may
    be smaller or empty. `wanted`: how many pieces the node says that it makes."""
    if sizes is not None:
        listed = [int(n) for n in np.asarray(sizes).reshape(-1)]
        if sum(listed) != size or min(listed, default=0) < 0:
            raise ArgumentError(f"pieces {listed} of an axis of size {size}; legal are all of it")
        return listed
    if wanted not in (None, count):
        raise ArgumentError(f"num_outputs {wanted} of a node with {count}; legal is that number")
    each = -(-size // count)
    return [min(each, max(size - i * each, 0)) for i in range(count)]


def _reduced(function: Callable[..., Any], empty: float | None = None) -> Callable[..., Array]:
    """`function` reduces axes. `empty`: the infinity that no elements give."""

    def reduce(
        x: Array, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Array:
        if axes is None or np.size(axes) == 0:
            if noop_with_empty_axes:
                return x
            axes = range(x.ndim)
        start = {} if x.size or empty is None else {"initial": _bound(x.dtype, empty)}
        made = function(x, axis=axes_of(axes, x.ndim), keepdims=bool(keepdims), **start)
        return np.asarray(made).astype(x.dtype)

    return reduce


def _bound(kind: np.dtype[Any], infinity: float) -> Any:
    """The number of a type that is next to an infinity."""
    if kind.kind == "f":
        return infinity
    limits = (False, True) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    return limits[infinity > 0]


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
    "Flatten": flatten,
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
    "ReduceMax": _reduced(np.max, -math.inf),
    "ReduceMin": _reduced(np.min, math.inf),
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
