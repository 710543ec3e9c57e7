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


def strong_wolfe(
    look: Callable[[float], Slope],
    length: float,
    start: Slope,
    steepest: float,
    tolerance: float = 1e-9,
    enough: float = 1e-4,
    flat: float = 0.9,
    most: int = 25,
) -> tuple[Slope, int]:
    """A point with enough less loss than `start` and a slope that is flat enough.

    (Nocedal and Wright, "Numerical Optimization", 2006, algorithms 3.5 and 3.6.)

    Args:
        look: evaluates a place on the line.
        length: the first place to look at.
        start: place 0.
        steepest: the largest element of the direction.
        tolerance: an interval in which nothing moves by more is done with.
        enough: the loss must fall by this share of what the first slope promises.
        flat: the slope must be this share of the first one, or less.
        most: at most so many looks.

    Returns:
        The point, and the number of looks.
    """

    def falls(point: Slope) -> bool:
        return point.loss <= start.loss + enough * point.at * start.slope

    def is_flat(point: Slope) -> bool:
        return abs(point.slope) <= -flat * start.slope

    before, point, looks = start, look(length), 1
    while falls(point) and not (looks > 1 and point.loss >= before.loss):
        if is_flat(point):
            return point, looks
        if point.slope >= 0 or looks >= most:
            break
        nearest, farthest = point.at + 0.01 * (point.at - before.at), point.at * 10
        ahead = between(before, point, nearest, farthest)
        before, point = point, look(ahead)
        looks += 1

    low, high = (before, point) if before.loss <= point.loss else (point, before)
    stuck = False
    while looks < most and abs(high.at - low.at) * steepest > tolerance:
        left, right = sorted((low.at, high.at))
        at = between(low, high, left, right)
        margin = 0.1 * (right - left)
        if min(right - at, at - left) < margin:  # twice near an end: step away from it
            if stuck or at >= right or at <= left:
                at = right - margin if abs(at - right) < abs(at - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = look(at)
        looks += 1
        if not falls(point) or point.loss >= low.loss:
            high = point
            if high.loss < low.loss:
                low, high = high, low
            continue
        if is_flat(point):
            return point, looks
        if point.slope * (high.at - low.at) >= 0:
            high = low
        low = point
    return low, looks


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
