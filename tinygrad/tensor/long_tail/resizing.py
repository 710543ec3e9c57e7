"""Axes resized: each place of the result is a weighted sum of a few places of the source. Which of
them, with what weights, depends on sizes alone: a filter, a row of a table, says it for an axis."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.engine.realize import capturing
from tinygrad.tensor.elementwise import float_kind
from tinygrad.tensor.long_tail.counts import Counts
from tinygrad.tensor.shapes import Sint
from tinygrad.tensor.template import small

Numbers = NDArray[Any]
Taps = tuple[Numbers, Numbers]  # places of the source and their weights, (goal, taps) each


@dataclass(frozen=True)
class Resize:
    """One axis from `own` elements to `goal`; `scale` is a step of the result in the source."""

    own: int
    goal: int
    scale: float
    corners: bool

    def centres(self) -> Numbers:
        """Where each place of the result lies in the source: pixels have their middles at whole
        numbers, and either the outer edges or the outermost middles meet."""
        at: Numbers = np.arange(self.goal)
        if self.corners:
            at = at * ((self.own - 1) / max(1, self.goal - 1))
            return at
        places: Numbers = (at + 0.5) * self.scale - 0.5
        return places

    def single(self, half: float) -> Numbers:
        """The pixel below each place, in float32, as PyTorch rounds it."""
        at = (np.arange(self.goal, dtype=np.float32) + np.float32(half)) * np.float32(self.scale)
        below: Numbers = np.minimum(np.floor(at).astype(np.int64), self.own - 1)
        return below[:, None]


def cubic(x: Numbers, a: float) -> Numbers:
    """The weight of a pixel at distance x. (Keys, "Cubic convolution interpolation", 1981.)"""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def triangle(x: Numbers) -> Numbers:
    """The weight of a pixel at distance x in a straight line to the next."""
    weights: Numbers = np.maximum(0.0, 1 - np.abs(x))
    return weights


def _nearest(half: float) -> Callable[[Resize], Taps]:
    def taps(resize: Resize) -> Taps:
        places = resize.single(half)
        return places, np.ones(places.shape)

    return taps


def _linear(resize: Resize) -> Taps:
    centre = resize.centres()[:, None].clip(0, resize.own - 1)
    places = np.floor(centre) + np.arange(2)
    return places, triangle(centre - places)


def _cubic(resize: Resize) -> Taps:
    centre = resize.centres()[:, None]
    places = np.floor(centre) + np.arange(-1, 3)
    return places, cubic(centre - places, -0.75)


def _area(resize: Resize) -> Taps:
    """The mean of each place's share of the source; shares overlap where sizes don't divide."""
    at = np.arange(resize.goal)
    begin, end = at * resize.own // resize.goal, -(-(at + 1) * resize.own // resize.goal)
    places = begin[:, None] + np.arange((end - begin).max())
    inside = places < end[:, None]
    return places, inside / inside.sum(1, keepdims=True)


def _smooth(reach: int, weight: Callable[[Numbers], Numbers]) -> Callable[[Resize], Taps]:
    """A filter as wide as a step of the result, so that a smaller picture has no false patterns."""

    def taps(resize: Resize) -> Taps:
        scale = resize.scale
        if resize.corners:
            scale = (resize.own - 1) / (resize.goal - 1) if resize.goal > 1 else 0.0
        wide = max(1.0, scale)
        centre = (np.arange(resize.goal) + 0.5) * scale
        begin = np.maximum(np.trunc(centre - reach * wide + 0.5), 0)
        end = np.minimum(np.trunc(centre + reach * wide + 0.5), resize.own)
        places = begin[:, None] + np.arange(int((end - begin).max()))
        weights = weight((places - centre[:, None] + 0.5) / wide) * (places < end[:, None])
        return places, weights / weights.sum(1, keepdims=True)

    return taps


FILTERS: dict[str, Callable[[Resize], Taps]] = {
    "nearest": _nearest(0.0),
    "nearest-exact": _nearest(0.5),
    "linear": _linear,
    "cubic": _cubic,
    "area": _area,
}
SMOOTH: dict[str, Callable[[Resize], Taps]] = {
    "linear": _smooth(1, triangle),
    "cubic": _smooth(2, lambda x: cubic(x, -0.5)),
}
SYNONYMS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


class Resizing(Counts):
    """Interpolation."""

    __slots__ = ()

    def interpolate(
        self,
        size: Sequence[int],
        mode: str = "linear",
        align_corners: bool = False,
        antialias: bool = False,
        scales: Sequence[float] | None = None,
    ) -> Self:
        """The last axes resized to `size`.

        Args:
            size: one number an axis.
            mode: "nearest", "nearest-exact", "linear" (or "bilinear", "trilinear"), "cubic" (or
                "bicubic"), "area".
            align_corners: the middles of the outermost pixels stay in place, not their edges.
            antialias: of a smaller result each pixel is a mean over as much as it stands for;
                "linear" and "cubic" only.
            scales: how many times larger each axis becomes, where that isn't the ratio of sizes.

        >>> Tensor([[1.0, 2.0]]).interpolate((4,), mode="nearest").tolist()
        [[1.0, 1.0, 2.0, 2.0]]
        """
        kind = SYNONYMS.get(mode, mode)
        table = SMOOTH if antialias else FILTERS
        if kind not in table:
            names = ", ".join((*table, *(s for s in SYNONYMS if SYNONYMS[s] in table)))
            smooth = " with antialias" if antialias else ""
            raise ArgumentError(f"interpolate: mode {mode!r}{smooth}; legal are {names}")
        if len(size) > self.ndim or any(n < 1 for n in size):
            raise ShapeError(f"interpolate: {self.shape} to {tuple(size)}; legal are sizes from 1")
        if scales is not None and len(scales) != len(size):
            raise ShapeError(f"interpolate: scales {scales} to {tuple(size)}; legal is one an axis")
        find: Any = _tables if capturing() else _kept_tables
        resizes: list[tuple[Any, ...]] = []
        tables: list[tuple[Any, ...]] = []  # nothing where elements move, or seldom don't
        first = self.ndim - len(size)
        for i, (own, goal) in enumerate(zip(self.shape[first:], size, strict=True)):
            if own == 0:
                raise ShapeError(f"interpolate: axis {first + i} of {self.shape} has no elements")
            scale = 1 if own == goal else own / goal
            scale = scale if scales is None else 1 / scales[i]
            moves = kind.startswith("nearest") or (own == goal and scale == 1)
            moves = moves or (kind == "area" and _divides(goal, own))
            resize = own, goal, scale, align_corners
            resizes.append(resize)
            tables.append(() if moves else find(type(self), self.device, table[kind], *resize))
        return self._interpolated(kind, antialias, tuple(resizes), tuple(tables))

    @small
    def _interpolated(
        self, kind: str, antialias: bool, resizes: tuple[Any, ...], tables: tuple[Any, ...]
    ) -> Self:
        """The last axes resized, by tables of places and weights where there are some."""
        exact, filters = kind.startswith("nearest"), SMOOTH if antialias else FILTERS
        out = self if exact else self.cast(float_kind(self.dtype))
        for axis, each, table in zip(range(-len(resizes), 0), resizes, tables, strict=True):
            axis, resize = self.ndim + axis, Resize(*each)
            if table:
                out = out._weighed(axis, *table)
            elif kind == "area" and _divides(resize.goal, resize.own):
                out = out.unflatten(axis, (resize.goal, -1)).mean(axis + 1)
            elif resize.own != resize.goal or resize.scale != 1:
                out = out._resized(axis, *filters[kind](resize))
        if exact or dtypes.is_float(self.dtype):
            return out.cast(self.dtype)._copied(self)
        return out.round().cast(self.dtype)

    def _evenly(self, axis: int, places: Numbers) -> Self | None:
        """The elements at these places, if that is each one as often, or every so many."""
        size, goal = self.shape[axis], len(places)
        if goal % size == 0 and np.array_equal(places, np.arange(goal) // (goal // size)):
            return self.repeat_interleave(goal // size, axis)
        first, step = int(places[0]), int(places[1] - places[0]) if goal > 1 else 1
        if step < 1 or not np.array_equal(places, first + step * np.arange(goal)):
            return None
        return self._at(axis, slice(first, int(places[-1]) + 1, step))

    def _resized(self, axis: int, places: Numbers, weights: Numbers) -> Self:
        places = places.clip(0, self.shape[axis] - 1)
        if places.shape[1] == 1 and (moved := self._evenly(axis, places[:, 0])) is not None:
            return moved
        return self._weighed(axis, *_on(type(self), self.device, places, weights))

    def _weighed(self, axis: int, at: Self, share: Self) -> Self:
        """The sum of the elements at these places, times weights; both are (goal, taps)."""
        found = self._at(axis, at)  # (.., goal, taps, ..)
        if at.shape[1] == 1:
            return found.squeeze(axis + 1)
        rest = (1,) * (self.ndim - axis - 1)
        return (found * share.cast(self.dtype).reshape((*at.shape, *rest))).sum(axis + 1)


def _divides(goal: Sint, own: Sint) -> bool:
    """Whether shares of an axis are of one size; a symbolic axis has one share, or is kept."""
    return goal in (1, own) or (isinstance(own, int) and own % goal == 0)


def _on(kind: type[Any], device: Any, places: Numbers, weights: Numbers) -> tuple[Any, Any]:
    """Places and weights as tensors."""
    at, share = places.astype(np.int32), weights.astype(np.float64)
    return kind(at, device=device), kind(share, device=device, requires_grad=False)


def _tables(
    kind: type[Any], device: Any, taps: Callable[[Resize], Taps], own: int, *resize: Any
) -> tuple[Any, ...]:
    """Where a filter reads, and its weights, as tensors; nothing where it reads one place each."""
    places, weights = taps(Resize(own, *resize))
    return () if places.shape[1] == 1 else _on(kind, device, places.clip(0, own - 1), weights)


@functools.lru_cache(256)
def _kept_tables(*which: Any) -> tuple[Any, ...]:
    """The same, in memory: they are made once, so steps that use them are alike."""
    return tuple([each.realize() for each in _tables(*which)])
