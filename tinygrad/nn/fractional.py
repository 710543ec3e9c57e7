"""Fractional max pooling: to any smaller size, over windows whose places are drawn at random.

(Graham, "Fractional Max-Pooling", 2014.)
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.held import held
from tinygrad.nn.spellings import called_by_others
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_types

Sizes = int | tuple[int, ...]


def _each(operation: str, value: Any, axes: int, kind: type) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    check_types(operation, values, kind, f"{axes} numbers")
    if len(values) != axes:
        raise ArgumentError(f"{operation}: {value}; legal is a number, or {axes} of them")
    return values


def _goal(operation: str, own: tuple[int, ...], size: Any, ratio: Any) -> tuple[int, ...]:
    """The sizes of the result: given, or shares of x's."""
    if (size is None) == (ratio is None):
        raise ArgumentError(
            f"{operation}: output_size={size}, output_ratio={ratio}; legal is one of them"
        )
    if size is not None:
        return _each(operation, size, len(own), int)
    ratios = _each(operation, ratio, len(own), float)
    if not all(0 < r < 1 for r in ratios):
        raise ArgumentError(f"{operation}: output_ratio={ratio}; legal are numbers between 0 and 1")
    return tuple(int(n * r) for n, r in zip(own, ratios, strict=True))


def _starts(sample: Tensor, size: int, goal: int, taps: int) -> Tensor:
    """Where each of `goal` windows begins, (N, C, goal); the last one ends with the axis."""
    last = size - taps
    if goal == 1:
        return sample.zeros_like(dtype="int32").unsqueeze(-1) + last
    step = last / (goal - 1)
    count = Tensor.arange(goal, dtype=sample.dtype, device=sample.device)
    begin = sample.unsqueeze(-1)
    found = ((count + begin) * step).cast("int32") - (begin * step).cast("int32")
    return (count < goal - 1).where(found, last)


@partial(called_by_others, called="fractional_max_pool")
def _fractional(
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | tuple[float, ...] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    who = f"fractional_max_pool{axes}d"
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{who}: x {x.shape}; legal are (N, C, ..) and (C, ..), {axes} axes")
    if x.ndim == axes + 1:
        more = (kernel_size, output_size, output_ratio, return_indices, _random_samples)
        found = _fractional(axes, x.unsqueeze(0), *more)
        return tuple(t.squeeze(0) for t in found) if return_indices else found.squeeze(0)
    own, kernel = x.shape[2:], _each(who, kernel_size, axes, int)
    goal = _goal(who, own, output_size, output_ratio)
    if any(g < 1 or k < 1 or g + k - 1 > n for n, g, k in zip(own, goal, kernel, strict=True)):
        raise ShapeError(
            f"{who}: {own} to {goal} by windows {kernel}; legal are sizes from 1, with "
            "output_size + kernel_size - 1 at most that of x"
        )
    samples = _random_samples
    if samples is None:
        kind = x.dtype if x.dtype.itemsize > 2 else "float32"
        samples = Tensor.rand(*x.shape[:2], axes, dtype=kind, device=x.device)
    if samples.shape != (*x.shape[:2], axes):
        raise ShapeError(f"{who}: _random_samples {samples.shape}; legal is {(*x.shape[:2], axes)}")
    order = (1, 0) if axes == 2 else (0, 1, 2)  # of two numbers, the first is the last axis'
    flat: Any = 0  # (N, C, *goal, *taps): the place in the flat axes
    for i, (n, wanted, taps) in enumerate(zip(own, goal, kernel, strict=True)):
        starts = _starts(samples[:, :, order[i]], n, wanted, taps)
        places = starts.unsqueeze(-1) + Tensor.arange(taps, device=x.device)
        shape = [1] * (2 * axes)
        shape[i], shape[axes + i] = wanted, taps
        flat = flat * n + places.reshape(*x.shape[:2], *shape)
    flat = flat.reshape(*x.shape[:2], -1)
    seen = x.flatten(2).gather(-1, flat).reshape(*x.shape[:2], *goal, -1)
    if not return_indices:
        return seen.max(-1)
    first = seen.argmax(-1, keepdim=True)
    return seen.max(-1), flat.reshape(seen.shape).gather(-1, first).squeeze(-1)


def fractional_max_pool2d(x: Tensor, *options: Any, **named: Any) -> Any:
    """The largest of windows over the last two axes of (N, C, H, W), or of (C, H, W), whose places
    are drawn for each channel, and steps apart that need not be whole.

    Options, in order: kernel_size; output_size, or output_ratio of x's sizes (between 0 and 1);
    return_indices=False, for their positions as well, which count both axes as one;
    _random_samples (N, C, 2), from 0 to below 1.

    >>> fractional_max_pool2d(Tensor.ones(1, 3, 9, 9), 2, output_size=6).shape
    (1, 3, 6, 6)
    """
    return _fractional(2, x, *options, **named)


def fractional_max_pool3d(x: Tensor, *options: Any, **named: Any) -> Any:
    """`fractional_max_pool2d` over three axes.

    >>> fractional_max_pool3d(Tensor.ones(1, 3, 9, 9, 9), 2, output_ratio=0.5).shape
    (1, 3, 4, 4, 4)
    """
    return _fractional(3, x, *options, **named)


FractionalMaxPool2d = held("FractionalMaxPool2d", fractional_max_pool2d, partial(_fractional, 2))
FractionalMaxPool3d = held("FractionalMaxPool3d", fractional_max_pool3d, partial(_fractional, 3))
