"""Fit the polynomials of codegen/numbers/transcendental.py and the short ones of
tensor/long_tail/gamma.py, and print them with their errors.

Each is close to the minimax polynomial of a smooth function on a small interval: the least squares
at Chebyshev's points, in 60 digits (mpmath). Then, lowest first, each coefficient is rounded to
the format it will be used in and the rest is fitted again, so that the rounding of one is made
good by those above it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]

Function = Callable[[Any], Any]

mp.mp.dps = 60
POINTS = 160


@dataclass(frozen=True)
class Fit:
    """A polynomial p of `degree` with weight(x) * (function(x) - p(x)) small on [low, high]."""

    name: str
    function: Function
    weight: Function
    low: Any
    high: Any
    degree: int
    single: bool


def near_zero(function: Function, limit: Any) -> Function:
    """`function` with its limit where it would divide zero by zero."""
    return lambda x: limit if abs(x) < mp.mpf(10) ** -25 else function(x)


LN2 = mp.log(2)
ROOT = mp.sqrt(2)
S = (ROOT - 1) / (ROOT + 1)


def exp2_tail(x: Any) -> Any:
    """(2**x - 1) / x."""
    return mp.expm1(x * LN2) / x


def exp_tail(x: Any) -> Any:
    """(e**x - 1) / x."""
    return mp.expm1(x) / x


def log2_ratio(x: Any) -> Any:
    """log2(1 + x) / x."""
    return mp.log1p(x) / x / LN2


def log2_odd(z: Any) -> Any:
    """log2((1+s)/(1-s)) / s; z = s squared."""
    s = mp.sqrt(z)
    return 2 * mp.atanh(s) / s / LN2


def log2_odd_fifth(z: Any) -> Any:
    """What is left of log2((1+s)/(1-s)) after two terms, over s to the fifth."""
    return sum(mp.mpf(2) / (2 * k + 5) * z**k for k in range(60)) / LN2


def sin_third(z: Any) -> Any:
    """(sin r - r) / r**3, where z = r squared."""
    return sum((-1) ** (k + 1) * z**k / mp.factorial(2 * k + 3) for k in range(40))


def erf_ratio(z: Any) -> Any:
    """erf(x) / x - 1, which is small beside the 1 that it is added to; z = x squared."""
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1


def erf_weight(z: Any) -> Any:
    """So that the error is relative to erf(x)."""
    return 1 / (1 + near_zero(erf_ratio, ERF_LIMIT)(z))


def erfc_place(t: Any) -> Any:
    """The x whose t = 1 / (1 + 0.39 x) this is."""
    return (1 / t - 1) / ERFC_SLOWNESS


def erfc_ratio(t: Any) -> Any:
    """erfc(x) exp(x²) / t."""
    x = erfc_place(t)
    return mp.erfc(x) * mp.exp(x * x) / t


def erfc_weight(t: Any) -> Any:
    """So that the error is that of erfc(x), absolute."""
    return t * mp.exp(-(erfc_place(t) ** 2))


def one(x: Any) -> Any:
    """The error is relative already."""
    return mp.mpf(1)


def sin_weight(z: Any) -> Any:
    """So that the error is relative to the sine."""
    r = mp.sqrt(z)
    return z * r / mp.sin(r) if z > 0 else mp.mpf(0)


QUARTER = (mp.pi / 2 * mp.mpf("1.0001")) ** 2
HALF = mp.mpf("0.5001")
ERF_LIMIT = 2 / mp.sqrt(mp.pi) - 1
ERFC_SLOWNESS = mp.mpf("0.39")  # with which six terms are the best

FITS = [
    Fit("EXP2_32", near_zero(exp2_tail, LN2), lambda x: x / 2**x, -HALF, HALF, 5, True),
    Fit("EXP2_64", near_zero(exp2_tail, LN2), lambda x: x / 2**x, -HALF, HALF, 10, False),
    Fit(
        "EXP_32", near_zero(exp_tail, 1), lambda x: x / mp.exp(x), -HALF * LN2, HALF * LN2, 5, True
    ),
    Fit(
        "EXP_64",
        near_zero(exp_tail, 1),
        lambda x: x / mp.exp(x),
        -HALF * LN2,
        HALF * LN2,
        10,
        False,
    ),
    Fit("LOG2_32", near_zero(log2_ratio, 1 / LN2), one, 1 / ROOT - 1, ROOT - 1, 9, True),
    Fit("LOG2_64", near_zero(log2_odd, 2 / LN2), one, mp.mpf(0), S * S, 7, False),
    Fit("POW_32", log2_odd_fifth, one, mp.mpf(0), S * S, 2, True),
    Fit("POW_64", log2_odd_fifth, one, mp.mpf(0), S * S, 7, False),
    Fit("SIN_32", sin_third, sin_weight, mp.mpf(0), mp.mpf(4), 4, True),
    Fit("SIN_64", sin_third, sin_weight, mp.mpf(0), QUARTER, 7, False),
    Fit("ERF_32", near_zero(erf_ratio, ERF_LIMIT), erf_weight, mp.mpf(0), mp.mpf(1), 5, True),
    Fit("ERFC_32", erfc_ratio, erfc_weight, 1 / (1 + 4 * ERFC_SLOWNESS), mp.mpf(1), 5, True),
]


def rounded(value: Any, single: bool) -> Any:
    """The nearest float32 or float64."""
    nearest = float(value)
    return mp.mpf(struct.unpack("f", struct.pack("f", nearest))[0] if single else nearest)


def evaluate(coefficients: list[Any], x: Any) -> Any:
    """The polynomial's value, lowest power first."""
    total = mp.mpf(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def best(fit: Fit, fixed: list[Any]) -> list[Any]:
    """All coefficients, of which the lowest are `fixed`: least squares at Chebyshev's points."""
    free = fit.degree + 1 - len(fixed)
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    points = [middle - half * mp.cos(mp.pi * (i + mp.mpf(1) / 3) / POINTS) for i in range(POINTS)]
    rows, right = mp.matrix(POINTS, free), mp.matrix(POINTS, 1)
    for i, x in enumerate(points):
        weight = fit.weight(x)
        right[i] = weight * (fit.function(x) - evaluate(fixed, x))
        for k in range(free):
            rows[i, k] = weight * x ** (k + len(fixed))
    solved = mp.lu_solve(rows.T * rows, rows.T * right)
    return fixed + [solved[k] for k in range(free)]


def fitted(fit: Fit) -> tuple[list[Any], Any]:
    """Coefficients in their format, lowest first, and log2 of the largest error."""
    fixed: list[Any] = []
    for k in range(fit.degree + 1):
        fixed.append(rounded(best(fit, list(fixed))[k], fit.single))
    points = [fit.low + (fit.high - fit.low) * i / 500 for i in range(501)]
    worst = max(abs(fit.weight(x) * (fit.function(x) - evaluate(fixed, x))) for x in points)
    return fixed, mp.log(worst, 2)


def main() -> None:
    """Print all, or those named."""
    for fit in FITS:
        if len(sys.argv) > 1 and fit.name not in sys.argv[1:]:
            continue
        coefficients, error = fitted(fit)
        print(f"{fit.name} = (  # relative error 2**{mp.nstr(error, 4)}")
        for coefficient in coefficients:
            print(f"    {float(coefficient)!r},")
        print(")")


if __name__ == "__main__":
    main()
