"""Functions of complex numbers, from real and imaginary part to both of the result.

They hold at infinities, near branch points and for sizes whose squares overflow. On a branch cut
the sign of a zero says which side is meant, as in C99. (Kahan, "Branch cuts for complex elementary
functions", 1987.)
"""

from __future__ import annotations

import math
from typing import Any

Pair = tuple[Any, Any]


def tensors(like: Any, *parts: Any) -> Any:
    """Numbers among the parts as tensors."""
    return tuple(like._tensor(p, like.real.dtype) if isinstance(p, float) else p for p in parts)


def _scale(x: Any, y: Any) -> Any:
    """The larger size of both, a number that no gradient sees; 1 for 0 and infinities."""
    most = x.detach().abs().maximum(y.detach().abs())
    return ((most > 0) & most.isfinite()).where(most, 1)


def size(x: Any, y: Any) -> Any:
    """√(x² + y²) without overflow; its gradient at 0 is 0."""
    return x.hypot(y)


def angle(x: Any, y: Any) -> Any:
    """The angle of (x, y) from -pi to pi."""
    return y.atan2(x)


def quotient(a: Any, b: Any, c: Any, d: Any) -> Pair:
    """(a + bi) / (c + di), the divisor scaled so that its square doesn't overflow."""
    scale = _scale(c, d)
    c, d = c / scale, d / scale
    under = (c * c + d * d) * scale
    return (a * c + b * d) / under, (b * c - a * d) / under


def exp(x: Any, y: Any) -> Pair:
    """e**x · (cos y, sin y); an imaginary part of 0 stays 0."""
    e, real = x.exp(), y.eq(0)
    return real.where(e, e * y.cos()), real.where(y, e * y.sin())


def expm1(x: Any, y: Any) -> Pair:
    """e**z - 1, exact near 0."""
    half = (y * 0.5).sin()
    return x.expm1() * y.cos() - half * half * 2, x.exp() * y.sin()


def log(x: Any, y: Any) -> Pair:
    """log |z| and the angle."""
    return size(x, y).log(), angle(x, y)


def log1p(x: Any, y: Any) -> Pair:
    """log(1 + z), exact near 0."""
    small = size(x, y) < 0.5
    a, b = small.where(x, 0), small.where(y, 0)
    near = (a * (a + 2) + b * b).log1p() * 0.5
    return small.where(near, size(x + 1, y).log()), angle(x + 1, y)


def sqrt(x: Any, y: Any) -> Pair:
    """The root whose real part isn't negative."""
    zero = x.eq(0) & y.eq(0)
    a = zero.where(1, x)
    root = ((size(a, y) + a.abs()) * 0.5).sqrt()
    other = y / (root * 2)
    right = a >= 0
    sign = y.signbit().where(-1, 1)
    real, imag = right.where(root, other.abs()), right.where(other, root * sign)
    wide = y.isinf()
    real, imag = wide.where(math.inf, real), wide.where(y, imag)
    return zero.where(0, real), zero.where(y, imag)


def sin(x: Any, y: Any) -> Pair:
    """sin x · cosh y, cos x · sinh y."""
    return x.sin() * y.cosh(), x.cos() * y.sinh()


def cos(x: Any, y: Any) -> Pair:
    """cos x · cosh y, -sin x · sinh y."""
    return x.cos() * y.cosh(), -(x.sin() * y.sinh())


def tan(x: Any, y: Any) -> Pair:
    """By the tangents of both parts; only tanh y is bounded, so far from 0 it is ±i."""
    t, h = x.tan(), y.tanh()
    under = t * t * h * h + 1
    still = (1 - h) * (1 + h)
    return t * still / under, h * (t * t + 1) / under


def _roots(x: Any, y: Any) -> tuple[Pair, Pair]:
    """√(1 - z) and √(1 + z)."""
    return sqrt(1 - x, -y), sqrt(1 + x, y)


def asin(x: Any, y: Any) -> Pair:
    """(Kahan 1987.)"""
    (a, b), (c, d) = _roots(x, y)
    return angle(a * c - b * d, x), (a * d - b * c).asinh()


def acos(x: Any, y: Any) -> Pair:
    """(Kahan 1987.)"""
    (a, b), (c, d) = _roots(x, y)
    return angle(c, a) * 2, (c * b - d * a).asinh()


def acosh(x: Any, y: Any) -> Pair:
    """(Kahan 1987.)"""
    (a, b), (c, d) = sqrt(x - 1, y), sqrt(x + 1, y)
    return (a * c + b * d).asinh(), angle(c, b) * 2


def atanh(x: Any, y: Any) -> Pair:
    """(1/4)·log1p(4x / ((1 - x)² + y²)), and half the angle of 1 - x² - y² + 2iy."""
    away = (1 - x) * (1 - x) + y * y
    return (x * 4 / away).log1p() * 0.25, angle((1 - x) * (1 + x) - y * y, y * 2) * 0.5
