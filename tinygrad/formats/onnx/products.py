"""Matrix products, convolutions, pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import prod
from tinygrad.formats.onnx.registry import Array, Function, Row, Table, on_host
from tinygrad.numeric.sampling import between_pixels
from tinygrad.tensor import Tensor

Pairs = list[tuple[int, int]]


# ---- matrices ------------------------------------------------------------------------------------


def _gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  the standard's names
    transB: int = 0,  # noqa: N803
    broadcast: int = 1,
) -> Tensor:
    out = (a.T if transA else a) @ (b.T if transB else b)
    out = out if alpha == 1 else (out * alpha).cast(a.dtype)
    if c is None or beta == 0:
        return out
    return out + (c if beta == 1 else (c * beta).cast(c.dtype))


def _einsum(*operands: Tensor, equation: str) -> Tensor:
    return Tensor.einsum(equation.replace(" ", ""), *operands)


def _det(x: Array) -> Array:
    return np.asarray(np.linalg.det(x)).astype(x.dtype)


# ---- convolution ---------------------------------------------------------------------------------


def _halves(total: int, auto_pad: str) -> tuple[int, int]:
    """Padding of both sides of an axis, where the larger half is as `auto_pad` says."""
    less, more = total // 2, total - total // 2
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def _ends(pads: list[int] | None, count: int) -> Pairs:
    """(before, after) of each axis, of what are first all that lie before."""
    given = pads or [0] * 2 * count
    return list(zip(given[:count], given[count:], strict=True))


def _windows(
    x: Tensor,
    kernel: Sequence[int],
    auto_pad: str = "NOTSET",
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
) -> tuple[Any, Any, Any]:
    """Stride, dilation, and padding before and after, of each spatial axis."""
    count = len(kernel)
    steps, gaps = tuple(strides or [1] * count), tuple(dilations or [1] * count)
    if auto_pad in ("NOTSET", ""):
        return steps, gaps, _ends(pads, count)
    if auto_pad == "VALID":
        return steps, gaps, [(0, 0)] * count
    around = []
    for size, taps, step, gap in zip(x.shape[2:], kernel, steps, gaps, strict=True):
        total = max(0, (-(-size // step) - 1) * step + gap * (taps - 1) + 1 - size)
        around.append(_halves(total, auto_pad))
    return steps, gaps, around


def _conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    kernel = kernel_shape or w.shape[2:]
    return x.conv2d(w, b, group, *_windows(x, kernel, auto_pad, pads, strides, dilations))


def _conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    count = x.ndim - 2
    kernel = kernel_shape or list(w.shape[2:])
    steps, gaps, cuts = _windows(x, kernel, pads=pads, strides=strides, dilations=dilations)
    extra = output_padding or [0] * count
    full = [
        (n - 1) * step + gap * (taps - 1) + 1 + more
        for n, step, gap, taps, more in zip(x.shape[2:], steps, gaps, kernel, extra, strict=True)
    ]
    goals = output_shape
    if goals is None and auto_pad.startswith("SAME"):
        goals = [n * step for n, step in zip(x.shape[2:], steps, strict=True)]
    if goals is not None:
        sizes = zip(full, goals[-count:], strict=True)
        cuts = [_halves(size - goal, auto_pad) for size, goal in sizes]
    # What the kernel spreads is cut; what output_padding adds stays zero but for the bias.
    box = [(-before, more - after) for (before, after), more in zip(cuts, extra, strict=True)]
    later = b if any(high > 0 or low > 0 for low, high in box) else None
    out = x.conv_transpose2d(w, b if later is None else None, group, steps, gaps)
    return out.pad([(0, 0), (0, 0), *box]).cast(x.dtype)._plus_bias(later)


def _col2im(
    x: Tensor,
    image_shape: Any,
    block_shape: Any,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    sizes, kernel = [int(n) for n in image_shape], [int(n) for n in block_shape]
    steps, gaps, around = _windows(x, kernel, pads=pads, strides=strides, dilations=dilations)
    return x.fold(tuple(sizes), tuple(kernel), gaps, around, steps)


# ---- pooling -------------------------------------------------------------------------------------


def _max_pool(
    x: Tensor,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    outputs: int = 1,
) -> Any:
    windows = _windows(x, kernel_shape, auto_pad, pads, strides, dilations)
    how = (tuple(kernel_shape), *windows)
    if outputs == 1:
        return x.max_pool2d(*how, ceil_mode=bool(ceil_mode))
    top, places = x.max_pool2d(*how, ceil_mode=bool(ceil_mode), return_indices=True)
    spatial = x.shape[2:]
    places = places.cast(dtypes.int64)
    if storage_order:  # column-major: the first spatial axis runs fastest
        left, column = places, Tensor.zeros((), dtype=dtypes.int64, device=x.device)
        for axis in range(len(spatial) - 1, -1, -1):
            column = column + left % spatial[axis] * prod(spatial[:axis])
            left = left // spatial[axis]
        places = column
    rows = Tensor.arange(prod(x.shape[:2]), dtype=dtypes.int64, device=x.device) * prod(spatial)
    return top, places + rows.reshape(*x.shape[:2], *[1] * len(spatial))


def _max_unpool(
    x: Tensor,
    places: Tensor,
    output_shape: Any = None,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    kernel = kernel_shape or []
    count = len(kernel)
    steps, given = strides or [1] * count, pads or [0] * 2 * count
    spatial = [
        (n - 1) * step - given[i] - given[i + count] + taps
        for i, (n, step, taps) in enumerate(zip(x.shape[2:], steps, kernel, strict=True))
    ]
    lead = x.shape[:2]
    within = places.cast(dtypes.int64) % prod(spatial)  # they count through batches and channels
    zeros = Tensor.zeros(*lead, prod(spatial), dtype=x.dtype, device=x.device)
    flat = zeros.scatter(2, within.reshape(*lead, -1), x.reshape(*lead, -1))
    out = flat.reshape(*lead, *spatial)
    if output_shape is None:
        return out
    goals = [int(n) for n in output_shape]
    return out.pad([(0, goal - n) for goal, n in zip(goals, out.shape, strict=True)])


def _average_pool(
    x: Tensor,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    windows = _windows(x, kernel_shape, auto_pad, pads, strides, dilations)
    how = (tuple(kernel_shape), *windows)
    return x.avg_pool2d(*how, bool(ceil_mode), bool(count_include_pad)).cast(x.dtype)


def _lp_pool(
    x: Tensor,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    kernel = tuple(kernel_shape)
    steps, gaps, around = _windows(x, kernel, auto_pad, pads, strides, dilations)
    powers = x.abs().pow(p)
    counts = powers.avg_pool2d(kernel, steps, gaps, around, bool(ceil_mode)).shape[2:]
    box = []  # zeros for all windows; fewer than none where no window ends at the end
    for size, taps, step, gap, (before, _), count in zip(
        x.shape[2:], kernel, steps, gaps, around, counts, strict=True
    ):
        box.append((before, (count - 1) * step + gap * (taps - 1) + 1 - size - before))
    means = powers.pad([(0, 0), (0, 0), *box]).avg_pool2d(kernel, steps, gaps)
    return (means * math.prod(kernel)).pow(1 / p).cast(x.dtype)


def _over_space(name: str) -> Function:
    def reduce(x: Tensor, p: int = 2) -> Tensor:
        axes = tuple(range(2, x.ndim))
        if name == "lp":
            return x.abs().pow(p).sum(axes, keepdim=True).pow(1 / p).cast(x.dtype)
        return x.mean(axes, keepdim=True) if name == "mean" else x.max(axes, keepdim=True)

    return reduce


def _deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """A convolution whose taps lie where `offset` moves them, read bilinearly."""
    if x.ndim != 4:
        raise ArgumentError(f"x of shape {x.shape}; legal is (N, C, H, W)")
    n, channels, height, width = x.shape
    kh, kw = w.shape[2:]
    oh, ow = offset.shape[2:]
    (dh, dw), (sh, sw) = dilations or [1, 1], strides or [1, 1]
    top, left = (pads or [0, 0, 0, 0])[:2]
    moved = offset.reshape(n, offset_group, kh, kw, 2, oh, ow)

    def places(axis: int, count: int, taps: int, step: int, gap: int, before: int) -> Tensor:
        along = [taps if i == axis else 1 for i in range(4)]
        across = [count if i == 2 + axis else 1 for i in range(4)]
        grid = np.arange(taps).reshape(along) * gap + np.arange(count).reshape(across) * step
        return Tensor((grid - before).astype(np.float32), device=x.device)

    ys = moved[:, :, :, :, 0] + places(0, oh, kh, sh, dh, top)  # (n, og, kh, kw, oh, ow)
    xs = moved[:, :, :, :, 1] + places(1, ow, kw, sw, dw, left)
    each = channels // offset_group
    image = x.reshape(n * offset_group, each, height, width)
    numbers = [t.reshape(n * offset_group, kh, kw, oh, ow) for t in (ys, xs)]
    seen = between_pixels(image, numbers, "bilinear").reshape(n, offset_group, each, kh, kw, oh, ow)
    if mask is not None:
        seen = seen * mask.reshape(n, offset_group, 1, kh, kw, oh, ow)
    # (n, g, 1, c, taps, oh, ow) * (1, g, out, c, taps, 1, 1)
    columns = seen.reshape(n, group, 1, channels // group, kh * kw, oh, ow)
    kernel = w.reshape(1, group, -1, channels // group, kh * kw, 1, 1)
    out: Tensor = (columns * kernel).sum((3, 4)).reshape(n, w.shape[0], oh, ow).cast(x.dtype)
    return out._plus_bias(b)


ROWS: Table = {
    "AveragePool": _average_pool,
    "Col2Im": Row(_col2im, (1, 2)),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "Det": on_host(_det),
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GlobalAveragePool": _over_space("mean"),
    "GlobalLpPool": _over_space("lp"),
    "GlobalMaxPool": _over_space("max"),
    "LpPool": _lp_pool,
    "MatMul": Tensor.matmul,
    "MaxPool": Row(_max_pool, (), ("outputs",)),
    "MaxUnpool": Row(_max_unpool, (2,)),
}
