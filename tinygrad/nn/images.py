"""Images taken apart into patches and put together, resized, and sampled at other positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import plain, prod
from tinygrad.nn.held import held
from tinygrad.numeric.sampling import BOUNDS, FILTERS, sampled
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice, check_types

# ---- channels and pixels -------------------------------------------------------------------------


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """(.., C·r², H, W) → (.., C, H·r, W·r): channels become pixels. (Shi and others, 2016.)

    >>> pixel_shuffle(Tensor([[[1]], [[2]], [[3]], [[4]]]), 2).tolist()
    [[[1, 2], [3, 4]]]
    """
    r = upscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle: x {x.shape}, factor {r}; legal are (.., C·{r * r}, H, W)")
    *outer, channels, height, width = x.shape
    parts = x.reshape(prod(outer), channels // (r * r), r, r, height, width).permute(
        0, 1, 4, 2, 5, 3
    )
    return parts.reshape(*outer, channels // (r * r), height * r, width * r)._copied(x)


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """(.., C, H·r, W·r) → (.., C·r², H, W): the inverse of `pixel_shuffle`.

    >>> pixel_unshuffle(Tensor([[[1, 2], [3, 4]]]), 2).tolist()
    [[[1]], [[2]], [[3]], [[4]]]
    """
    r = downscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-1] % r or x.shape[-2] % r:
        raise ShapeError(f"pixel_unshuffle: x {x.shape}, factor {r}; legal are multiples of {r}")
    *outer, channels, height, width = x.shape
    parts = x.reshape(prod(outer), channels, height // r, r, width // r, r).permute(
        0, 1, 3, 5, 2, 4
    )
    return parts.reshape(*outer, channels * r * r, height // r, width // r)._copied(x)


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels of x (N, groups·k, ..) in another order: the first of each group, then the
    second of each, and so on. (Zhang and others, "ShuffleNet", 2018.)

    >>> channel_shuffle(Tensor([[1, 2, 3, 4]]).reshape(1, 4, 1), 2).flatten().tolist()
    [1, 3, 2, 4]
    """
    if x.ndim < 3 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"channel_shuffle: x {x.shape}, {groups} groups; legal is what divides")
    return x.unflatten(1, (groups, -1)).transpose(1, 2).reshape(x.shape)._copied(x)


# ---- other sizes ---------------------------------------------------------------------------------


def interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """x (N, C, *axes) resized to `size`, or by `scale_factor`: one number, or one for each axis;
    see `Tensor.interpolate`.

    >>> interpolate(Tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    if x.ndim < 3:
        raise ShapeError(f"interpolate: x {x.shape}; legal is (N, C, *axes)")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ArgumentError(f"interpolate: align_corners with mode {mode!r}; it has no corners")
    goals, scales = _goal_sizes(x.shape[2:], size, scale_factor, recompute_scale_factor)
    return x.interpolate(goals, mode, bool(align_corners), antialias, scales)


upsample = interpolate


def _goal_sizes(
    shape: Sequence[int], size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """What `size` or `scale_factor` ask for, one number an axis of `shape`, and the scales that
    count, None for the ratios of sizes.

    >>> _goal_sizes((4, 6), None, 1.5, None)
    ((6, 9), (1.5, 1.5))
    """
    count = len(shape)
    if (size is None) == (scale_factor is None):
        raise ArgumentError(f"interpolate: size {size} and scale_factor {scale_factor}: give one")

    def each(value: Any, kinds: Any) -> tuple[Any, ...]:
        values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
        values = tuple(map(plain, values))
        check_types("interpolate", values, kinds, "numbers of elements, and scales")
        if len(values) != count or not all(0 <= abs(v) < math.inf for v in values):
            raise ArgumentError(f"interpolate: {value}; legal is a number, or {count} of them")
        return values

    if size is not None:
        return each(size, int), None
    scales = tuple(float(s) for s in each(scale_factor, (int, float)))
    goals = tuple(math.floor(n * s) for n, s in zip(shape, scales, strict=True))
    return goals, None if recompute else scales


# ---- other places --------------------------------------------------------------------------------


def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """x (N, C, *axes), with two or three axes, sampled at positions (N, .., n): (N, C, ..).

    Args:
        x: the image.
        grid: the places, the last axis first, from -1 to 1.
        mode: "bilinear" (in three axes trilinear), "nearest", or "bicubic" in two.
        padding_mode: what lies outside: "zeros", the nearest "border", or a "reflection".
        align_corners: -1 and 1 are the middles of the outermost pixels, not their edges.

    >>> image = Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> grid_sample(image, Tensor([[[[0.0, 0.0]]]])).item()
    2.5
    """
    count = x.ndim - 2
    check_choice("grid_sample", "padding_mode", padding_mode, BOUNDS)
    legal = [word for word in FILTERS if count == 2 or word != "bicubic"]
    check_choice("grid_sample", "mode", mode, legal)
    if (
        count not in (2, 3)
        or (grid.ndim, *grid.shape[-1:], *grid.shape[:1]) != (x.ndim, count, x.shape[0])
        or 0 in x.shape[2:]
    ):
        raise ShapeError(
            f"grid_sample: x {x.shape}, grid {grid.shape}; legal are (N, C, H, W), (N, .., .., 2), "
            "or with three axes and 3"
        )
    return sampled(x, grid, mode, padding_mode, align_corners)


# ---- as layers -----------------------------------------------------------------------------------


PixelShuffle = held("PixelShuffle", pixel_shuffle)
PixelUnshuffle = held("PixelUnshuffle", pixel_unshuffle)
ChannelShuffle = held("ChannelShuffle", channel_shuffle)


def upsample_nearest(x: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`upsample` by the nearest pixels.

    >>> upsample_nearest(Tensor.ones(1, 1, 2, 2), scale_factor=2).shape
    (1, 1, 4, 4)
    """
    return upsample(x, size, scale_factor, "nearest")


def upsample_bilinear(x: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`upsample` by linear interpolation between the centres of pixels, with those of the outermost
    ones as ends.

    >>> upsample_bilinear(Tensor.ones(1, 1, 2, 2), scale_factor=2).shape
    (1, 1, 4, 4)
    """
    return upsample(x, size, scale_factor, "bilinear", align_corners=True)


Upsample = held("Upsample", upsample)
UpsamplingNearest2d = held("UpsamplingNearest2d", upsample_nearest)
UpsamplingBilinear2d = held("UpsamplingBilinear2d", upsample_bilinear)
