"""Images taken apart and put together, resized, and seen at other places."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.resizing import goal_sizes

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
    parts = x.reshape(-1, channels // (r * r), r, r, height, width).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(*outer, channels // (r * r), height * r, width * r)


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """(.., C, H·r, W·r) → (.., C·r², H, W): the inverse of `pixel_shuffle`.

    >>> pixel_unshuffle(Tensor([[[1, 2], [3, 4]]]), 2).tolist()
    [[[1]], [[2]], [[3]], [[4]]]
    """
    r = downscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-1] % r or x.shape[-2] % r:
        raise ShapeError(f"pixel_unshuffle: x {x.shape}, factor {r}; legal are multiples of {r}")
    *outer, channels, height, width = x.shape
    parts = x.reshape(-1, channels, height // r, r, width // r, r).permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(*outer, channels * r * r, height // r, width // r)


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels of x (N, groups·k, ..) dealt out anew: the first of each group, then the second
    of each, and so on. (Zhang and others, "ShuffleNet", 2018.)

    >>> channel_shuffle(Tensor([[1, 2, 3, 4]]).reshape(1, 4, 1), 2).flatten().tolist()
    [1, 3, 2, 4]
    """
    if x.ndim < 3 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"channel_shuffle: x {x.shape}, {groups} groups; legal is what divides")
    return x.unflatten(1, (groups, -1)).transpose(1, 2).reshape(x.shape)


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
    """x (N, C, *axes) resized to `size`, or by `scale_factor`: one number, or one an axis; see
    `Tensor.interpolate`.

    >>> interpolate(Tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    if x.ndim < 3:
        raise ShapeError(f"interpolate: x {x.shape}; legal is (N, C, *axes)")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ArgumentError(f"interpolate: align_corners with mode {mode!r}; it has no corners")
    goals, scales = goal_sizes(x.shape[2:], size, scale_factor, recompute_scale_factor)
    return x.interpolate(goals, mode, bool(align_corners), antialias, scales)


upsample = interpolate


# ---- other places --------------------------------------------------------------------------------


def affine_grid(theta: Tensor, size: tuple[int, ...], align_corners: bool = False) -> Tensor:
    """Where the pixels of an image (N, C, *axes) come from under theta (N, n, n + 1), for n = 2 or
    3 axes: (N, *axes, n), the last axis first, from -1 to 1.

    >>> affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    batch, _, *axes = size
    count = len(axes)
    if theta.shape != (batch, count, count + 1):
        raise ShapeError(
            f"affine_grid: theta {theta.shape} for {size}; legal is {(batch, count, count + 1)}"
        )
    lines = [_positions(n, align_corners, theta) for n in axes]
    places = lines[0].meshgrid(*lines[1:])[::-1]
    base = places[0].stack(*places[1:], places[0].ones_like(), dim=-1)
    out = base.reshape(1, -1, count + 1) @ theta.transpose(1, 2)
    return out.reshape(batch, *axes, count)


def _positions(size: int, align_corners: bool, like: Tensor) -> Tensor:
    """The middles of `size` pixels between -1 and 1, or from -1 to 1."""
    at = Tensor.arange(size, device=like.device).cast(like.dtype)
    if align_corners:
        return at * (2 / max(size - 1, 1)) - (1 if size > 1 else 0)
    return (at * 2 + 1) / size - 1


Bounds = Callable[[Tensor, int, bool], Tensor]
Weighted = list[tuple[Tensor, Tensor | None]]  # places along an axis, and what each counts


def _reflected(number: Tensor, size: int, align_corners: bool) -> Tensor:
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span == 0:
        return number * 0
    away = (number - low).abs()
    turns = (away / span).floor()
    rest = away - turns * span
    even = (turns - (turns / 2).floor() * 2) < 0.5
    inside: Tensor = even.where(rest, span - rest) + low
    return inside.clamp(0, size - 1)


BOUNDS: dict[str, Bounds] = {
    "zeros": lambda number, size, align_corners: number,
    "border": lambda number, size, align_corners: number.clamp(0, size - 1),
    "reflection": _reflected,
}


def _nearest(at: Tensor) -> Weighted:
    return [(at.round(), None)]


def _linear(at: Tensor) -> Weighted:
    low = at.floor()
    return [(low, 1 - (at - low)), (low + 1, at - low)]


def _cubic(at: Tensor) -> Weighted:
    """Four pixels by Keys' polynomials with a = -0.75."""
    low = at.floor()
    t = at - low

    def near(x: Tensor) -> Tensor:
        out: Tensor = (x * 1.25 - 2.25) * x * x + 1
        return out

    def far(x: Tensor) -> Tensor:
        out: Tensor = ((x - 5) * x + 8) * x * -0.75 + 3
        return out

    return [(low - 1, far(t + 1)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]


FILTERS = {"nearest": _nearest, "bilinear": _linear, "bicubic": _cubic}


def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """x (N, C, *axes) of two or three axes seen at places (N, .., n): (N, C, ..).

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
    if padding_mode not in BOUNDS:
        raise ArgumentError(f"padding_mode={padding_mode!r}; legal are {', '.join(BOUNDS)}")
    if mode not in FILTERS or (mode == "bicubic" and count != 2):
        raise ArgumentError(f"mode={mode!r} over {count} axes; legal are {', '.join(FILTERS)}")
    if (
        count not in (2, 3)
        or (grid.ndim, grid.shape[-1], grid.shape[0]) != (x.ndim, count, x.shape[0])
        or 0 in x.shape[2:]
    ):
        raise ShapeError(
            f"grid_sample: x {x.shape}, grid {grid.shape}; legal are (N, C, H, W), (N, .., .., 2), "
            "or with three axes and 3"
        )
    bound = BOUNDS[padding_mode]
    axes: list[Weighted] = []
    for i, size in enumerate(x.shape[2:]):
        at = grid[..., count - 1 - i]
        number = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
        if mode == "bicubic":  # each of the pixels is brought inside, not the place
            axes.append([(bound(p, size, align_corners), w) for p, w in _cubic(number)])
        else:
            axes.append(FILTERS[mode](bound(number, size, align_corners)))
    out: Tensor | None = None
    for corner in itertools.product(*axes):
        part = _pixels(x, [place for place, _ in corner])
        for _, weight in corner:
            part = part if weight is None else part * weight.unsqueeze(1)
        out = part if out is None else out + part
    assert out is not None
    return out


def _pixels(x: Tensor, places: list[Tensor]) -> Tensor:
    """x (N, C, *axes) at whole places, one tensor (N, ..) an axis, 0 outside: (N, C, ..)."""
    batch, channels, *sizes = x.shape
    inside, flat = None, None
    for place, size in zip(places, sizes, strict=True):
        within = (place >= 0) & (place < size)
        here = within.where(place, 0).cast(dtypes.int32)
        inside = within if inside is None else inside & within
        flat = here if flat is None else flat * size + here
    assert inside is not None and flat is not None
    at = flat.reshape(batch, 1, -1)
    found = x.reshape(batch, channels, -1).gather(2, at.expand(batch, channels, at.shape[2]))
    out: Tensor = inside.unsqueeze(1).where(found.reshape(batch, channels, *flat.shape[1:]), 0)
    return out
