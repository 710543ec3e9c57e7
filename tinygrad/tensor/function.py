"""`@function`: a mark for functions of tensors whose calls are pure expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def function(wrapped: Callable[P, R]) -> Callable[P, R]:
    """Marks a function that only builds an expression of its tensors.

    Nothing is computed by calling it: equal calls on equal tensors are one graph already, because
    nodes are interned, and repeated bodies compile once, because equal kernels are one.

    >>> @function
    ... def scaled(x, by): return x * by
    >>> scaled(Tensor([1, 2]), 3).tolist()
    [3, 6]
    """

    return wrapped
