"""Line search: how far to go along a direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt

from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class Slope:
    """A point on the line: its place, the loss there, the loss's slope along the line."""

    at: float
    loss: float
    slope: float
    gradient: Tensor


ENOUGH = 1e-4
"""The loss must fall by this share of what the first slope promises."""

FLAT = 0.9
"""The slope must become this share of the first one, or less."""

MOST = 25
"""Places that are looked at, at most."""


def strong_wolfe(
    look: Callable[[float], Slope], length: float, start: Slope, steepest: float, tolerance: float
) -> tuple[Slope, int]:
    """A point with enough less loss than `start` and a slope that is flat enough.

    (Nocedal and Wright, "Numerical Optimization", 2006, algorithms 3.5 and 3.6.)

    Args:
        look: evaluates a place on the line.
        length: the first place to look at.
        start: place 0.
        steepest: the largest element of the direction.
        tolerance: an interval in which nothing moves by more is done with.

    Returns:
        The point, and the number of looks.
    """
    line = _Line(look, start)
    low, high = sorted(line.bracketed(length), key=lambda point: point.loss)
    while line.looks < MOST and abs(high.at - low.at) * steepest > tolerance:
        low, high = line.narrowed(low, high)
    return low, line.looks


class _Line:
    """The line of a search, and how often it was looked at."""

    def __init__(self, look: Callable[[float], Slope], start: Slope) -> None:
        self._look, self.start, self.looks = look, start, 0
        self.was_near = False  # whether the last look was near an end of its interval

    def look(self, at: float) -> Slope:
        self.looks += 1
        return self._look(at)

    def falls(self, point: Slope) -> bool:
        return point.loss <= self.start.loss + ENOUGH * point.at * self.start.slope

    def is_found(self, point: Slope) -> bool:
        return self.falls(point) and abs(point.slope) <= -FLAT * self.start.slope

    def bracketed(self, length: float) -> tuple[Slope, Slope]:
        """Two points with what is looked for between them; it itself twice, if it is found."""
        before, point = self.start, self.look(length)
        while self.falls(point) and not (self.looks > 1 and point.loss >= before.loss):
            if self.is_found(point):
                return point, point
            if point.slope >= 0 or self.looks >= MOST:
                break
            nearest, farthest = point.at + 0.01 * (point.at - before.at), point.at * 10
            before, point = point, self.look(between(before, point, nearest, farthest))
        return before, point

    def narrowed(self, low: Slope, high: Slope) -> tuple[Slope, Slope]:
        """Two points nearer to each other, with what is looked for between them, the one of less
        loss first; it itself twice, if it is found."""
        point = self.look(self._between(low, high))
        if not self.falls(point) or point.loss >= low.loss:
            return (point, low) if point.loss < low.loss else (low, point)
        if self.is_found(point):
            return point, point
        return point, low if point.slope * (high.at - low.at) >= 0 else high

    def _between(self, low: Slope, high: Slope) -> float:
        """The next place to look at; if it is near an end for the second time, away from it."""
        left, right = sorted((low.at, high.at))
        at, margin = between(low, high, left, right), 0.1 * (right - left)
        is_near = min(right - at, at - left) < margin
        if is_near and (self.was_near or not left < at < right):
            at, is_near = right - margin if right - at < at - left else left + margin, False
        self.was_near = is_near
        return at


def between(a: Slope, b: Slope, low: float, high: float) -> float:
    """Where the cubic through two points and their slopes is least, from `low` to `high`."""
    left, right = (a, b) if a.at <= b.at else (b, a)
    if left.at == right.at or not (isfinite(a.loss) and isfinite(b.loss)):
        return (low + high) / 2
    bend = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.at - right.at)
    square = bend * bend - left.slope * right.slope
    if square < 0:
        return (low + high) / 2
    root = sqrt(square)
    share = (right.slope + root - bend) / (right.slope - left.slope + 2 * root)
    least = right.at - (right.at - left.at) * share
    return min(max(least, low), high)
