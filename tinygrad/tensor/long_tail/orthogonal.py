"""Orthogonal polynomials, by the recurrence that each family has. (Abramowitz and Stegun's
Handbook, 1964: table 22.7.)

Of a degree that is a number the recurrence is a graph; of a tensor of degrees the host takes the
steps, each element its own number of them, and no gradient passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from tinygrad.base.dtype import DType
from tinygrad.base.errors import ArgumentError
from tinygrad.engine.host import HostFunction, call, register
from tinygrad.tensor.elementwise import float_kind, float_of_both
from tinygrad.tensor.long_tail.incomplete import Incomplete

First = tuple[float, float]
Step = Callable[[int], tuple[float, float, float, float]]


class Family:
    """A method that gives the polynomials of a family, of degree n: p0 is 1, p1 is a·x + b by
    `first`, and d·p(k + 1) is (a·x + b)·p(k) - c·p(k - 1) by `step` of k."""

    __call__: Callable[..., Any]  # for type checkers: it is a method by the time of a call

    def __init__(self, title: str, first: First, step: Step, example: str) -> None:
        self.title, self.first, self.step, self.example = title, first, step, example

    def __set_name__(self, cls: Any, name: str) -> None:
        host = HostFunction(name, self._on_host, _like_the_first)
        setattr(cls, name, _method(name, self, register(host)))

    def terms(self, x: Any, most: int) -> list[Any]:
        """The polynomials of degrees 1 to `most`."""
        a, b = self.first
        last, out = 1.0, [x * a + b]
        for k in range(1, most):
            a, b, c, d = self.step(k)
            last, new = out[-1], (x * a + b) * out[-1] - last * c
            out.append(new if d == 1 else new / d)
        return out

    def _on_host(self, to: Sequence[Any], x: Any, degree: Any) -> None:
        to[0][...] = np.where(degree < 0, 0, 1)
        with np.errstate(all="ignore"):
            for n, value in enumerate(self.terms(x, int(degree.max(initial=0))), 1):
                to[0][...] = np.where(degree == n, value, to[0])


def _like_the_first(*given: tuple[tuple[int, ...], DType]) -> list[tuple[tuple[int, ...], DType]]:
    return [given[0]]


def _method(name: str, family: Family, host: HostFunction) -> Callable[..., Any]:
    def polynomial(self: Any, n: Any) -> Any:
        if isinstance(n, Incomplete):
            x, degree = self._meet(name, n, dtype=float_of_both(self, n))
            wide = x.cast(float_kind(x.dtype))
            whole = degree.trunc().cast("int64")
            if 0 in x.shape:
                return x
            return wide._from(call(host, wide._node, whole._node)[0], whole).cast(x.dtype)
        if not isinstance(n, Real) or n % 1:
            raise ArgumentError(f"{name}: n={n}; legal is a whole number")
        kind = float_of_both(self, 1.0)
        x = self.cast(float_kind(kind))
        if n < 1:
            return x.full_like(0 if n < 0 else 1).cast(kind)
        return family.terms(x, int(float(n)))[-1].cast(kind)

    polynomial.__name__ = name
    polynomial.__qualname__ = f"Orthogonal.{name}"
    polynomial.__doc__ = (
        f"{family.title} of degree `n`, a number or a tensor, at each element; 0 below degree 0.\n"
        f"\n        >>> Tensor([2.0]).{name}(2).tolist()\n        {family.example}\n        "
    )
    return polynomial


def _chebyshev(k: int) -> tuple[float, float, float, float]:
    return 2, 0, 1, 1


def _shifted(k: int) -> tuple[float, float, float, float]:
    return 4, -2, 1, 1


class Orthogonal(Incomplete):
    """Of a float narrower than float32 in float32, rounded once; whole numbers become floats."""

    __slots__ = ()

    chebyshev_polynomial_t = Family("Chebyshev's polynomial T", (1, 0), _chebyshev, "[7.0]")
    chebyshev_polynomial_u = Family("Chebyshev's polynomial U", (2, 0), _chebyshev, "[15.0]")
    chebyshev_polynomial_v = Family("Chebyshev's polynomial V", (2, -1), _chebyshev, "[11.0]")
    chebyshev_polynomial_w = Family("Chebyshev's polynomial W", (2, 1), _chebyshev, "[19.0]")
    shifted_chebyshev_polynomial_t = Family("T of 2x - 1", (2, -1), _shifted, "[17.0]")
    shifted_chebyshev_polynomial_u = Family("U of 2x - 1", (4, -2), _shifted, "[35.0]")
    shifted_chebyshev_polynomial_v = Family("V of 2x - 1", (4, -3), _shifted, "[29.0]")
    shifted_chebyshev_polynomial_w = Family("W of 2x - 1", (4, -1), _shifted, "[41.0]")
    hermite_polynomial_h = Family(
        "Hermite's polynomial H", (2, 0), lambda k: (2, 0, 2 * k, 1), "[14.0]"
    )
    hermite_polynomial_he = Family(
        "Hermite's polynomial He", (1, 0), lambda k: (1, 0, k, 1), "[3.0]"
    )
    laguerre_polynomial_l = Family(
        "Laguerre's polynomial",
        (-1, 1),
        lambda k: (-1, 2 * k + 1, k, k + 1),
        "[-1.0]",
    )
    legendre_polynomial_p = Family(
        "Legendre's polynomial", (1, 0), lambda k: (2 * k + 1, 0, k, k + 1), "[5.5]"
    )
