"""Pooling with PyTorch's names and order of arguments, over one, two or three axes, either with
windows of a given size or to a result of a given size. x is (N, C, *axes) or (C, *axes)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import ceildiv
from tinygrad.nn.held import held
from tinygrad.nn.spellings import called_by_others
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_types
from tinygrad.uop.node import UOp

Sizes = int | tuple[int, ...]
Wanted = int | tuple[int | None, ...]


def _each(operation: str, x: Tensor, value: Any, axes: int) -> Any:
    """One number for each of the last `axes`."""
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{operation}: x {x.shape}; legal are (N, C, ..) and (C, ..), {axes} axes")
    if value is None:
        return None
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    values = values * axes if len(values) == 1 else values
    check_types(operation, [v for v in values if v is not None], (int, UOp), "whole numbers")
    if len(values) != axes:
        raise ArgumentError(f"{operation}: {value}; legal is a number, or {axes} of them")
    return values


def _check_padding(operation: str, kernel: tuple[int, ...], padding: tuple[int, ...]) -> None:
    """ShapeError for a padding that a window could lie in: it would have no largest number, and no
    mean. What is no whole number is told by the method."""
    pairs = [(p, n) for p, n in zip(padding, kernel, strict=True) if type(p) is type(n) is int]
    if any(not 0 <= pad <= taps // 2 for pad, taps in pairs):
        raise ShapeError(
            f"{operation}: padding {padding} of windows {kernel}; legal is up to half a window"
        )


# ---- windows -------------------------------------------------------------------------------------


@partial(called_by_others, called="avg_pool")
def _averages(
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    def each(value: Any) -> Any:
        return _each(f"avg_pool{axes}d", x, value, axes)

    kernel, pad = each(kernel_size), each(padding)
    _check_padding(f"avg_pool{axes}d", kernel, pad)
    step = each(stride)
    if divisor_override is None:
        return x.avg_pool2d(kernel, step, 1, pad, ceil_mode, count_include_pad)
    if not isinstance(divisor_override, int) or divisor_override == 0:
        raise ArgumentError(f"avg_pool: divisor_override {divisor_override!r}; legal are others")
    pads = x._pool_pads(kernel, kernel if step is None else step, 1, pad, ceil_mode)
    padded = x.pad([(0, 0)] * (x.ndim - axes) + pads)  # then each window is a whole one
    return padded.avg_pool2d(kernel, step).mul(math.prod(kernel) / divisor_override)


def avg_pool1d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """The mean of each window of the last axis; see `avg_pool2d`.

    >>> avg_pool1d(Tensor([[1.0, 3.0, 5.0, 7.0]]), 2).tolist()
    [[2.0, 6.0]]
    """
    return _averages(1, x, *options, **named)  # type: ignore[no-any-return]


def avg_pool2d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """The mean of each window of the last two axes, or its sum over `divisor_override`.

    Options, in order: kernel_size, stride=None (the kernel's size), padding=0, ceil_mode=False,
    count_include_pad=True, divisor_override=None.

    >>> avg_pool2d(Tensor([[[1.0, 3.0], [5.0, 7.0]]]), 2).tolist()
    [[[4.0]]]
    """
    return _averages(2, x, *options, **named)  # type: ignore[no-any-return]


def avg_pool3d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """`avg_pool2d` over three axes.

    >>> avg_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _averages(3, x, *options, **named)  # type: ignore[no-any-return]


@partial(called_by_others, called="max_pool")
def _largest(
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    def each(value: Any) -> Any:
        return _each(f"max_pool{axes}d", x, value, axes)

    kernel, step, gap, pad = (each(v) for v in (kernel_size, stride, dilation, padding))
    _check_padding(f"max_pool{axes}d", kernel, pad)
    return x.max_pool2d(kernel, step, gap, pad, ceil_mode, return_indices)


def max_pool1d(x: Tensor, *options: Any, **named: Any) -> Any:
    """The largest of each window of the last axis; see `max_pool2d`.

    >>> max_pool1d(Tensor([[1.0, 3.0, 5.0, 2.0]]), 2).tolist()
    [[3.0, 5.0]]
    """
    return _largest(1, x, *options, **named)


def max_pool2d(x: Tensor, *options: Any, **named: Any) -> Any:
    """The largest of each window of the last two axes; indices count the two as one.

    Options, in order: kernel_size, stride=None (the kernel's size), padding=0, dilation=1,
    ceil_mode=False, return_indices=False.

    >>> max_pool2d(Tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), 2).tolist()
    [[[[4.0]]]]
    """
    return _largest(2, x, *options, **named)


def max_pool3d(x: Tensor, *options: Any, **named: Any) -> Any:
    """`max_pool2d` over three axes; indices count the three as one.

    >>> max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _largest(3, x, *options, **named)


def _unpooled(
    axes: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    def each(value: Any) -> Any:
        return _each(f"max_unpool{axes}d", x, value, axes)

    size = None if output_size is None else tuple(output_size)[-axes:]
    return x.max_unpool2d(indices, each(kernel_size), each(stride), 1, each(padding), size)


def max_unpool1d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """Puts each element back where `max_pool1d` found it, with zeros elsewhere.

    Options, in order: indices, kernel_size, stride=None (the kernel's size), padding=0,
    output_size=None.

    >>> max_unpool1d(*max_pool1d(Tensor([[1.0, 3.0]]), 2, return_indices=True), 2).tolist()
    [[0.0, 3.0]]
    """
    return _unpooled(1, x, *options, **named)


def max_unpool2d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """`max_unpool1d` over two axes.

    >>> values, places = max_pool2d(Tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), 2, return_indices=True)
    >>> max_unpool2d(values, places, 2).tolist()
    [[[[0.0, 0.0], [4.0, 0.0]]]]
    """
    return _unpooled(2, x, *options, **named)


def max_unpool3d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """`max_unpool1d` over three axes.

    >>> values, places = max_pool3d(Tensor.ones(1, 1, 2, 2, 2), 2, return_indices=True)
    >>> max_unpool3d(values, places, 2).sum().item()
    1.0
    """
    return _unpooled(3, x, *options, **named)


def _powers(
    axes: int,
    x: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(Σ xᵖ)^(1/p), p = `norm_type`."""
    kernel = _each(f"lp_pool{axes}d", x, kernel_size, axes)
    check_types(f"lp_pool{axes}d", [norm_type], (int, float), "numbers", ArgumentError)
    if norm_type == 0 or not abs(norm_type) < math.inf:
        raise ArgumentError(f"lp_pool{axes}d: norm_type {norm_type}; legal is any other number")
    mean = _averages(axes, x**norm_type, kernel, stride, 0, ceil_mode, True)
    total = mean * math.prod(kernel)
    empty = total.eq(0)
    root: Tensor = empty.where(0, empty.where(1, total) ** (1 / norm_type))
    return root


def lp_pool1d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """(Σxᵖ)^(1/p) over each window of the last axis; NaN where that is no number.

    Options, in order: norm_type (p), kernel_size, stride=None (the kernel's size),
    ceil_mode=False.

    >>> lp_pool1d(Tensor([[3.0, 4.0]]), 2, 2).tolist()
    [[5.0]]
    """
    return _powers(1, x, *options, **named)


def lp_pool2d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """`lp_pool1d` over two axes.

    >>> lp_pool2d(Tensor([[[[3.0, 4.0]]]]), 2.0, (1, 2)).tolist()
    [[[[5.0]]]]
    """
    return _powers(2, x, *options, **named)


def lp_pool3d(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """`lp_pool1d` over three axes.

    >>> lp_pool3d(Tensor.ones(1, 1, 2, 2, 2), 1.0, 2).tolist()
    [[[[[8.0]]]]]
    """
    return _powers(3, x, *options, **named)


# ---- to a given size -----------------------------------------------------------------------------


def _goal(operation: str, x: Tensor, size: Wanted, axes: int) -> tuple[int, ...]:
    wanted = _each(operation, x, size, axes)
    own = x.shape[-axes:]
    goal = tuple(n if w is None else w for n, w in zip(own, wanted, strict=True))
    if any(isinstance(n, bool) or n < 1 for n in (*goal, *own)):
        raise ShapeError(f"{operation}: x {x.shape} to {size}; legal are {axes} sizes above 0")
    return goal


def adaptive_avg_pool1d(x: Tensor, output_size: Wanted) -> Tensor:
    """`adaptive_avg_pool2d` over one axis.

    >>> adaptive_avg_pool1d(Tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2).tolist()
    [[[2.0, 6.0]]]
    """
    return x.interpolate(_goal("adaptive_avg_pool1d", x, output_size, 1), mode="area")


def adaptive_avg_pool2d(x: Tensor, output_size: Wanted) -> Tensor:
    """x (.., H, W) averaged to (.., *output_size). Each result covers its share of an axis; the
    shares overlap where sizes don't divide. None keeps an axis.

    >>> adaptive_avg_pool2d(Tensor([[[1.0, 3.0], [5.0, 7.0]]]), 1).tolist()
    [[[4.0]]]
    """
    return x.interpolate(_goal("adaptive_avg_pool2d", x, output_size, 2), mode="area")


def adaptive_avg_pool3d(x: Tensor, output_size: Wanted) -> Tensor:
    """`adaptive_avg_pool2d` over three axes.

    >>> adaptive_avg_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return x.interpolate(_goal("adaptive_avg_pool3d", x, output_size, 3), mode="area")


def _greatest(axes: int, x: Tensor, size: Wanted, return_indices: bool) -> Any:
    goal, own = _goal(f"adaptive_max_pool{axes}d", x, size, axes), x.shape[-axes:]
    pairs = list(zip(own, goal, strict=True))
    if not return_indices and all(wanted in (1, n) or n % wanted == 0 for n, wanted in pairs):
        shares = [(wanted, 1 if wanted == n else n // wanted) for n, wanted in pairs]
        return x.reshape(*x.shape[:-axes], *itertools.chain(*shares)).max(
            tuple(range(-1, -2 * axes, -2))
        )
    flat = np.zeros((1,) * (2 * axes), np.int64)  # (*goal, *taps): places in the flat axes
    for i, (n, wanted) in enumerate(pairs):
        begin = np.arange(wanted) * n // wanted
        end = np.array([ceildiv((j + 1) * n, wanted) for j in range(wanted)])
        taps = np.arange((end - begin).max())
        # a share that is narrower sees its last element again
        places = np.minimum(begin[:, None] + taps, end[:, None] - 1)
        shape = [1] * (2 * axes)
        shape[i], shape[axes + i] = places.shape
        flat = flat * n + places.reshape(shape)
    table = Tensor(flat.reshape(*goal, -1).astype(np.int32), device=x.device)
    seen = x.flatten(-axes)[..., table]  # (.., *goal, taps)
    if not return_indices:
        return seen.max(-1)
    first = seen.argmax(-1, keepdim=True)
    return seen.max(-1), table.expand(seen.shape).gather(-1, first).squeeze(-1)


def adaptive_max_pool1d(x: Tensor, output_size: Wanted, return_indices: bool = False) -> Any:
    """`adaptive_max_pool2d` over one axis.

    >>> adaptive_max_pool1d(Tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2).tolist()
    [[[3.0, 7.0]]]
    """
    return _greatest(1, x, output_size, return_indices)


def adaptive_max_pool2d(x: Tensor, output_size: Wanted, return_indices: bool = False) -> Any:
    """The maximum over the shares of `adaptive_avg_pool2d`; with `return_indices` also its
    position, in the flat axes.

    >>> adaptive_max_pool2d(Tensor([[[1.0, 3.0], [5.0, 7.0]]]), 1).tolist()
    [[[7.0]]]
    """
    return _greatest(2, x, output_size, return_indices)


def adaptive_max_pool3d(x: Tensor, output_size: Wanted, return_indices: bool = False) -> Any:
    """`adaptive_max_pool2d` over three axes.

    >>> adaptive_max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _greatest(3, x, output_size, return_indices)


# ---- as layers -----------------------------------------------------------------------------------


AvgPool1d = held("AvgPool1d", avg_pool1d, partial(_averages, 1))
AvgPool2d = held("AvgPool2d", avg_pool2d, partial(_averages, 2))
AvgPool3d = held("AvgPool3d", avg_pool3d, partial(_averages, 3))
MaxPool1d = held("MaxPool1d", max_pool1d, partial(_largest, 1))
MaxPool2d = held("MaxPool2d", max_pool2d, partial(_largest, 2))
MaxPool3d = held("MaxPool3d", max_pool3d, partial(_largest, 3))
LPPool1d = held("LPPool1d", lp_pool1d, partial(_powers, 1))
LPPool2d = held("LPPool2d", lp_pool2d, partial(_powers, 2))
LPPool3d = held("LPPool3d", lp_pool3d, partial(_powers, 3))
MaxUnpool1d = held("MaxUnpool1d", max_unpool1d, partial(_unpooled, 1), "output_size")
MaxUnpool2d = held("MaxUnpool2d", max_unpool2d, partial(_unpooled, 2), "output_size")
MaxUnpool3d = held("MaxUnpool3d", max_unpool3d, partial(_unpooled, 3), "output_size")
AdaptiveAvgPool1d = held("AdaptiveAvgPool1d", adaptive_avg_pool1d)
AdaptiveAvgPool2d = held("AdaptiveAvgPool2d", adaptive_avg_pool2d)
AdaptiveAvgPool3d = held("AdaptiveAvgPool3d", adaptive_avg_pool3d)
AdaptiveMaxPool1d = held("AdaptiveMaxPool1d", adaptive_max_pool1d)
AdaptiveMaxPool2d = held("AdaptiveMaxPool2d", adaptive_max_pool2d)
AdaptiveMaxPool3d = held("AdaptiveMaxPool3d", adaptive_max_pool3d)
