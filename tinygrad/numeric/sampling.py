"""Images seen between their pixels: each value is a weighted sum of the pixels around its place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tinygrad.base.dtype import dtypes, least_upper_dtype, least_upper_float
from tinygrad.base.errors import ShapeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.elementwise import float_kind

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


def sampled(
    x: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool = False
) -> Tensor:
    """x (N, C, *axes) at places (N, .., n) from -1 to 1, the last axis first: (N, C, ..)."""
    kinds = (x.dtype,) if mode == "nearest" else (x.dtype, least_upper_float(grid.dtype))
    grid = grid.cast(float_kind(grid.dtype))  # narrow types have no places of thousands of pixels
    numbers = []
    for i, size in enumerate(x.shape[2:]):
        at = grid[..., x.ndim - 3 - i]
        numbers.append((at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2)
    out = between_pixels(x, numbers, mode, padding_mode, align_corners)
    return out.cast(least_upper_dtype(*kinds))


def between_pixels(
    x: Tensor,
    numbers: Sequence[Tensor],
    mode: str,
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """x (N, C, *axes) at places that count pixels, one tensor (N, ..) an axis: (N, C, ..)."""
    bound = BOUNDS[padding_mode]
    axes: list[Weighted] = []
    for number, size in zip(numbers, x.shape[2:], strict=True):
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


# ---- where pixels come from ----------------------------------------------------------------------


def affine_grid(theta: Tensor, size: tuple[int, ...], align_corners: bool = False) -> Tensor:
    """Where the pixels of an image (N, C, *axes) come from under theta (N, n, n + 1), for n = 2 or
    3 axes: (N, *axes, n), the last axis first, from -1 to 1.

    >>> affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    if len(size) not in (4, 5):
        raise ShapeError(f"affine_grid: size {size}; legal is (N, C, *axes) of two or three axes")
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
