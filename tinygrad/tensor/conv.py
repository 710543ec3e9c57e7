"""Convolution and pooling over any number of spatial axes: windows, products, sums.

Shapes: x is (N, channels, *spatial), a weight (out, channels / groups, *kernel); x as windows is
(N, channels, *positions, *taps).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

from tinygrad.base.dtype import dtypes, least_upper_dtype, sum_acc_dtype
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import ceildiv, plain, prod
from tinygrad.tensor.creation import DTypeLike
from tinygrad.tensor.indexing import Indexing
from tinygrad.tensor.template import expression, expressions
from tinygrad.uop.infer import least, settled

Sizes = int | Sequence[int]

PASS = 4
"""Taps of a window that take as long as writing an element of a result and reading it."""


@expressions
class Conv(Indexing):
    """What slides a window over the last axes."""

    __slots__ = ()

    def _windows(
        self, kernel: tuple[int, ...], stride: Sizes, dilation: Sizes, pads: list[tuple[int, int]]
    ) -> Self:
        """(.., *spatial) → (.., *positions, *taps), zeros around."""
        windows = _sliding(self.ndim - len(kernel), kernel, stride, dilation, pads)
        for axis, taps, _, gap, before, after in windows:
            size, reach = settled(self.shape[axis] + before + after), gap * (taps - 1) + 1
            if least(size) < reach:
                raise ShapeError(
                    f"window: {reach} wide over axis {axis} of {self.shape}, padded to {size}; "
                    "legal are kernels that fit"
                )
        return self._from(self._node.window(windows))

    # ---- convolution -----------------------------------------------------------------------------

    @expression
    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes | str = 0,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Convolution over as many spatial axes as the weight has beyond two.

        `padding` is one number, one an axis, (before, after) pairs flat with the last axis first,
        or "same". Returns (N, out, *positions), of integers in the type of their sum.
        ShapeError if channels don't match.

        >>> Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
        """
        if weight.ndim < 3:
            raise _weight_of_few_axes("conv2d", weight.shape)
        out_channels, each, *kernel = weight.shape
        self._check_conv("conv2d", weight, groups, each * groups, out_channels)
        count = len(kernel)
        if isinstance(padding, str):
            pads = same_padding(padding, tuple(kernel), dilation)
        else:
            pads = padding_pairs(padding, count)
        x = self._windows(tuple(kernel), stride, dilation, pads)
        batch, places = x.shape[0], x.shape[2 : 2 + count]
        # (N, g, 1, c, *taps, *positions) * (1, g, out / g, c, *taps, 1..)
        x = x.reshape((batch, groups, each, *places, *kernel))
        order = (0, 1, 2, *range(3 + count, 3 + 2 * count), *range(3, 3 + count))
        x = x.permute(order).unsqueeze(2)
        shape = (1, groups, out_channels // groups, each, *kernel, *([1] * count))
        axes = tuple(range(3, 4 + count))
        kind = dtype or sum_acc_dtype(least_upper_dtype(self.dtype, weight.dtype))
        out = x._inner(weight.reshape(shape), axes, kind)  # (N, g, out / g, *positions)
        return out.reshape((batch, out_channels, *places))._plus_bias(bias)

    def _plus_bias(self, bias: Self | None) -> Self:
        if bias is None:
            return self
        if bias.shape != (self.shape[1],):
            raise ShapeError(f"conv: bias {bias.shape}; legal is one for each of {self.shape[1]}")
        return self + self._along(1, bias)

    def _check_conv(
        self, operation: str, weight: Self, groups: int, channels: Any, out_channels: Any
    ) -> None:
        if self.ndim != weight.ndim or self.ndim < 3:
            raise ShapeError(
                f"{operation}: x {self.shape}, weight {weight.shape}; legal are x (N, channels, "
                "*spatial) and a weight (out, channels / groups, *kernel) with as many axes"
            )
        if 0 in weight.shape[2:]:
            raise ShapeError(f"{operation}: weight {weight.shape}; legal are kernels from 1")
        if self.shape[1] != channels or out_channels % groups:
            raise ShapeError(
                f"{operation}: x {self.shape} has {self.shape[1]} channels; weight {weight.shape} "
                f"with groups={groups} takes {channels} and gives {out_channels}, which groups "
                "must divide"
            )

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
    ) -> Self:
        """The adjoint of `conv2d` with these arguments: each element spreads a kernel.

        The weight is (channels, out / groups, *kernel). Spatial sizes become
        (n - 1)·stride - padding + dilation·(kernel - 1) + 1 + output_padding.

        >>> Tensor.ones(1, 1, 2, 2).conv_transpose2d(Tensor.ones(1, 1, 2, 2)).sum().item()
        16.0
        """
        if weight.ndim < 3:
            raise _weight_of_few_axes("conv_transpose2d", weight.shape)
        channels, each, *kernel = weight.shape
        self._check_conv("conv_transpose2d", weight, groups, channels, channels)
        count = len(kernel)
        steps = _each(stride, count, "stride")
        extra = _each(output_padding, count, "output_padding")
        batch, spatial = self.shape[0], self.shape[2:]
        # (N, g, c, 1, 1.., *spatial) * (1, g, c, out / g, *taps, 1..) → (N, g, out / g, *taps, ..)
        ones, own = [1] * count, channels // groups
        x = self.reshape((batch, groups, own, 1, *ones, *spatial))
        w = weight.reshape((1, groups, own, each, *kernel, *ones))
        spread = x._inner(w, (2,), None)
        spread = spread.reshape((batch, groups * each, *kernel, *spatial))._exchanged(count)
        windows = _sliding(2, kernel, steps, dilation, padding_pairs(padding, count))
        rows = list(zip(spatial, windows, extra, strict=True))
        sizes = [settled(_reach(n, window) + more) for n, window, more in rows]
        gaps = _each(dilation, count, "dilation")
        if any(least(n) <= 0 for n in sizes) or any(
            e >= max(step, gap) for e, step, gap in zip(extra, steps, gaps, strict=True)
        ):
            raise ShapeError(
                f"conv_transpose2d: x {self.shape}, weight {weight.shape} give spatial {sizes}; "
                f"output_padding {extra} must be less than stride {steps} or dilation {gaps}"
            )
        inside = tuple((*window[:5], max(0, window[5] - more)) for _, window, more in rows)
        # what is a whole step or more beyond the last window is no place of another
        beyond = [more - w[5] if more - w[5] >= w[2] else 0 for _, w, more in rows]
        folded = (n - more for n, more in zip(sizes, beyond, strict=True))
        node = spread._node.fold(inside, (batch, groups * each, *folded))
        node = node.pad(((0, 0), (0, 0), *((0, more) for more in beyond)))
        return spread._from(node)._plus_bias(bias)

    def _exchanged(self, count: int) -> Self:
        """(N, C, *a, *b) → (N, C, *b, *a), each `count` axes."""
        return self.permute((0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count)))

    # ---- windows as columns ----------------------------------------------------------------------

    def im2col(
        self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> Self:
        """The windows of (N, C, H, W) as columns: (N, C·taps, positions). PyTorch's `F.unfold`.

        >>> Tensor.ones(1, 2, 3, 3).im2col(2).shape
        (1, 8, 4)
        """
        kernel = _kernel(kernel_size)
        if self.ndim != 2 + len(kernel):
            raise ShapeError(f"im2col: x has shape {self.shape}; legal is (N, C, H, W)")
        seen = self._windows(kernel, stride, dilation, padding_pairs(padding, len(kernel)))
        count = len(kernel)
        batch, channels, *sizes = seen.shape
        flat = (batch, channels * prod(kernel), prod(sizes[:count]))
        return seen._exchanged(count).reshape(flat)._copied(self)

    def fold(
        self,
        output_size: Sizes,
        kernel_size: Sizes,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        stride: Sizes = 1,
    ) -> Self:
        """Columns (N, C·taps, positions) added up where `im2col` took them: (N, C, *output_size).

        >>> Tensor.ones(1, 1, 3, 3).im2col(2).fold(3, 2).tolist()
        [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
        """
        kernel, size = _kernel(kernel_size), _kernel(output_size)
        if len(kernel) != len(size):
            raise ArgumentError(f"fold: {size} of kernels {kernel}; legal are as many axes")
        windows = _sliding(2, kernel, stride, dilation, padding_pairs(padding, len(kernel)))
        places = [
            (n + before + after - gap * (taps - 1) - 1) // step + 1
            for n, (_, taps, step, gap, before, after) in zip(size, windows, strict=True)
        ]
        if self.ndim != 3 or self.shape[1] % prod(kernel) or self.shape[2] != prod(places):
            raise ShapeError(
                f"fold: columns {self.shape}; legal are (N, C·{prod(kernel)}, {prod(places)})"
            )
        channels = self.shape[1] // prod(kernel)
        spread = self.reshape((self.shape[0], channels, *kernel, *places))._exchanged(len(kernel))
        return self._from(spread._node.fold(windows, (self.shape[0], channels, *size)), spread)

    # ---- pooling ---------------------------------------------------------------------------------

    def _pool_pads(
        self, kernel: tuple[int, ...], stride: Sizes, dilation: Sizes, padding: Any, ceil_mode: bool
    ) -> list[tuple[int, int]]:
        """Padding of each axis; with `ceil_mode` enough behind for a last, partial window that
        begins inside."""
        if self.ndim < len(kernel):
            raise ShapeError(f"window: {kernel} over {self.shape}; legal is an axis for each")
        pads = padding_pairs(padding, len(kernel))
        if not ceil_mode:
            return pads
        out = []
        for axis, taps, step, gap, before, after in _sliding(0, kernel, stride, dilation, pads):
            size, reach = self.shape[axis - len(kernel)], gap * (taps - 1) + 1
            places = ceildiv(size + before + after - reach, step) + 1
            if (places - 1) * step >= size + before:
                places -= 1
            out.append((before, max(after, (places - 1) * step + reach - size - before)))
        return out

    @expression
    def avg_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The mean of each window; the windows lie side by side unless `stride` is given.

        >>> Tensor.arange(4).reshape(1, 1, 2, 2).avg_pool2d().item()
        1.5
        """
        kernel = _kernel(kernel_size)
        step = kernel if stride is None else stride
        axes = tuple(range(-len(kernel), 0))
        pads = self._pool_pads(kernel, step, dilation, padding, ceil_mode)
        total = self._windows(kernel, step, dilation, pads).sum(axes)
        plain = padding_pairs(padding, len(kernel))
        if count_include_pad and pads == plain:
            return total.div(prod(kernel))
        sizes = self.shape[-len(kernel) :]
        if count_include_pad:  # the given padding counts, what ceil_mode added doesn't
            sizes = tuple(n + b + a for n, (b, a) in zip(sizes, plain, strict=True))
            pads = [(0, a - p) for (_, a), (_, p) in zip(pads, plain, strict=True)]
        ones = self._wrap(self._constant(1, dtypes.float32, sizes))
        mean = total.div(ones._windows(kernel, step, dilation, pads).sum(axes))
        return mean.cast(total.dtype) if dtypes.is_float(total.dtype) else mean

    @expression
    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes | Sequence[tuple[int, int]] = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The largest of each window; with `return_indices` also where it was, in the flat
        spatial axes. Equal elements share the gradient.

        >>> Tensor.arange(4).reshape(1, 1, 2, 2).max_pool2d().item()
        3
        """
        kernel = _kernel(kernel_size)
        count, step = len(kernel), kernel if stride is None else stride
        pads = self._pool_pads(kernel, step, dilation, padding, ceil_mode)
        windows = _sliding(0, kernel, step, dilation, pads)
        if not return_indices and _is_less_apart(windows):
            x = self
            for axis, taps, every, gap, before, after in windows:
                x = x.max_pool2d(
                    _along_one(axis, count, taps, 1),
                    _along_one(axis, count, every, 1),
                    _along_one(axis, count, gap, 1),
                    _along_one(axis, count, (before, after), (0, 0)),
                )
            return x
        around = [(0, 0)] * (self.ndim - count) + pads
        none = [(0, 0)] * count
        lowest = dtypes.min(self.dtype)
        x = self.pad(around, value=lowest)._windows(kernel, step, dilation, none)
        if not return_indices:
            return x.max(tuple(range(-count, 0)))
        spatial = self.shape[-count:]
        places = self._counting(prod(spatial), self.device).reshape(spatial).pad(pads)
        at = places._windows(kernel, step, dilation, none)  # (*positions, *taps)
        flat = x.flatten(-count)
        first = flat.argmax(-1, keepdim=True)
        spots = at.flatten(-count)._broadcast_to(flat.shape)
        return flat.max(-1), spots.gather(-1, first).squeeze(-1)

    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_size: tuple[int, ...] | None = None,
    ) -> Self:
        """Each element back where `max_pool2d` found it, zeros elsewhere.

        >>> values, places = Tensor([[[[1.0, 2.0], [4.0, 3.0]]]]).max_pool2d(2, return_indices=True)
        >>> values.max_unpool2d(places, 2).tolist()
        [[[[0.0, 0.0], [4.0, 0.0]]]]
        """
        kernel = _kernel(kernel_size)
        count = len(kernel)
        if self.ndim < count:
            raise ShapeError(f"max_unpool2d: {self.shape}; legal are {count} axes or more")
        step, pads = kernel if stride is None else stride, padding_pairs(padding, count)
        windows = _sliding(0, kernel, step, dilation, pads)
        spatial = tuple(_reach(*each) for each in zip(self.shape[-count:], windows, strict=True))
        spatial = tuple(output_size[-count:]) if output_size is not None else spatial
        lead = self.shape[:-count]
        zeros = self.zeros(*lead, prod(spatial), dtype=self.dtype, device=self.device)
        flat = zeros.scatter(-1, indices.flatten(-count), self.flatten(-count))
        return flat.reshape((*lead, *spatial))


Window = tuple[int, int, int, int, int, int]  # axis, taps, stride, dilation, padding on both sides


def _sliding(
    first: int, kernel: Sequence[int], stride: Sizes, dilation: Sizes, pads: list[tuple[int, int]]
) -> tuple[Window, ...]:
    """The windows over as many axes as the kernel has, from `first` on."""
    steps, gaps = (
        _each(value, len(kernel), name)
        for value, name in ((stride, "stride"), (dilation, "dilation"))
    )
    rows = zip(itertools.count(first), kernel, steps, gaps, pads, strict=False)
    return tuple((axis, taps, step, gap, *pair) for axis, taps, step, gap, pair in rows)


def _along_one(axis: int, count: int, value: Any, others: Any) -> list[Any]:
    """For each of `count` axes `others`, for one of them `value`."""
    return [value if each == axis else others for each in range(count)]


def _is_less_apart(windows: Sequence[Window]) -> bool:
    """Whether windows overlap so much that it is less work to reduce one axis after the other."""
    passes, apart, taps, elements = len(windows) - 1, 0, 1, 1
    for _, own, step, *_ in reversed(windows):
        apart, taps, elements = apart + own * elements, taps * own, elements * step
    return apart + PASS * passes < taps


def _reach(places: Any, window: Window) -> Any:
    """The elements that windows at so many places see, but for padding."""
    _, taps, step, gap, before, after = window
    return (places - 1) * step - before - after + gap * (taps - 1) + 1


def _each(value: Any, count: int, name: str) -> tuple[int, ...]:
    """One number for each of `count` axes."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    values = values * count if len(values) == 1 else values
    least = 1 if name in ("stride", "dilation") else 0
    if len(values) != count or any(isinstance(v, bool) or v < least for v in values):
        raise ArgumentError(f"{name}: {value}; legal is a number, or {count} of them, from {least}")
    return values


def _kernel(size: Sizes) -> tuple[int, ...]:
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if not all(isinstance(n, int) and n > 0 for n in map(plain, sizes)):
        raise ArgumentError(f"kernel {size}; legal are sizes from 1")
    return sizes


def padding_pairs(padding: Any, count: int) -> list[tuple[int, int]]:
    """Padding as (before, after) of each axis, in the order of the axes."""
    padding = (padding,) if isinstance(padding, int) else padding
    if len(padding) == 1 and isinstance(padding[0], int):
        padding = (*padding,) * count
    if any(isinstance(p, bool) for p in padding):
        raise DTypeError(f"padding: {padding}; legal are whole numbers")
    if len(padding) == count and all(isinstance(p, (tuple, list)) for p in padding):
        return [(p[0], p[1]) for p in padding]
    if len(padding) == count:
        return [(p, p) for p in padding]
    if len(padding) == 2 * count:
        return list(zip(padding[::2], padding[1::2], strict=True))[::-1]
    raise ArgumentError(
        f"padding: {padding}; legal are one number, {count} numbers, or {2 * count} (before, "
        "after, the last axis first)"
    )


def _weight_of_few_axes(operation: str, shape: tuple[Any, ...]) -> ShapeError:
    return ShapeError(f"{operation}: weight {shape}; legal is (out, channels / groups, *kernel)")


def same_padding(padding: str, kernel: tuple[int, ...], dilation: Sizes) -> list[tuple[int, int]]:
    """The padding of each axis that keeps its size, or none, by its word."""
    if padding.lower() == "valid":
        return [(0, 0)] * len(kernel)
    if padding.lower() != "same":
        raise ArgumentError(f'padding: {padding!r}; legal are numbers, "same" and "valid"')
    gaps = _each(dilation, len(kernel), "dilation")
    extra = [d * (k - 1) for d, k in zip(gaps, kernel, strict=True)]
    return [(n // 2, n - n // 2) for n in extra]
