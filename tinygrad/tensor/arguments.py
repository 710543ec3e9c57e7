"""What is said of a wrong argument. A call that failed in Python's own words is looked at again,
beside what its function says of its arguments' types; calls that succeed pay nothing. What types
don't say, functions check: which words and which numbers are legal."""

from __future__ import annotations

import inspect
import math
import numbers
import types
import typing
from abc import ABC
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError, TinygradError
from tinygrad.uop.infer import least, most
from tinygrad.uop.node import UOp

BARE = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError, AssertionError)
WORDS = {"Self": "Tensor", "Sint": "int", "Sizes": "int | tuple[int, ...]"}
"""What stands in annotations: what is said to a user."""


class AnyTensor(ABC):  # noqa: B024  what it holds are others
    """Every class of tensors: floors below those don't know them."""

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return hasattr(other, "uop") and hasattr(other, "requires_grad_")


MEANT = {"Self": AnyTensor, "Sint": int}
"""What names in annotations stand for, where a type checker is told of less."""


def check_choice(operation: str, name: str, value: Any, legal: Iterable[Any]) -> None:
    """ArgumentError for a value that is none of those that are legal."""
    if value not in legal:
        words = ", ".join(map(str, legal))
        raise ArgumentError(f"{operation}: {name}={value!r}; legal are {words}")


def check_number_from(
    operation: str, name: str, value: Any, low: float, high: float = math.inf
) -> None:
    """ArgumentError for a number below the least that is legal or above the most, and for NaN."""
    if not (low <= least(value) and most(value) <= high):
        end = "" if high == math.inf else f" to {high}"
        raise ArgumentError(f"{operation}: {name}={value}; legal are numbers from {low}{end}")


def check_types(
    operation: str,
    values: Iterable[Any],
    kinds: Any,
    legal: str,
    error: type[TinygradError] = DTypeError,
) -> None:
    """An error that names the first value of another type."""
    for value in values:
        if not isinstance(value, kinds):
            kind = type(value).__name__
            raise error(f"{operation}: {value!r} of type {kind}; legal are {legal}")


def told(
    function: Callable[..., Any], called: str, given: Any, named: Any, error: Exception
) -> TinygradError | None:
    """The error that names an argument whose type isn't what `function` takes, if there is one and
    `error` doesn't say so already; else one with a symbolic size, which wasn't foreseen."""
    if isinstance(error, TinygradError) or not isinstance(error, BARE):
        return None
    return wrong_type(function, called, given, named) or _symbolic(called, *given, **named)


def wrong_type(
    function: Callable[..., Any], called: str, given: Any, named: Any
) -> DTypeError | None:
    """The error that names an argument whose type isn't what `function` takes, if there is one."""
    function = inspect.unwrap(function)
    try:
        bound = inspect.signature(function).bind(*given, **named)
    except TypeError:
        return None  # which says itself what is missing
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        each = value if parameter.kind is parameter.VAR_POSITIONAL else (value,)
        text = parameter.annotation if isinstance(parameter.annotation, str) else "Any"
        hint = meaning(text, function)
        for one in each:
            if name == "self" and text == "Any":
                text, fitting = "Tensor", hasattr(type(one), function.__name__)
            else:
                fitting = one is parameter.default or fits(one, hint)
            if not fitting:
                legal = WORDS.get(text, text.replace("Self", "Tensor"))
                kind = type(one).__name__
                return DTypeError(f"{called}: {name}={one!r} of type {kind}; legal is {legal}")
    return None


def _symbolic(called: str, *given: Any, **named: Any) -> ShapeError | None:
    """The error that shows a symbolic size, or a tensor's, among the arguments, if there is one."""
    for value in (*given, *named.values()):
        sizes = getattr(value, "shape", (value,))
        if isinstance(sizes, tuple) and any(isinstance(size, UOp) for size in sizes):
            return ShapeError(
                f"{called}: symbolic sizes, {sizes}; legal are numbers: reshape a tensor to the "
                "sizes that it has now"
            )
    return None


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says, as far as it says anything."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (list, tuple) or (isinstance(origin, type) and issubclass(origin, Iterable)):
        inner = [part for part in parts[:1] if part is not Ellipsis]
        return isinstance(value, origin) and all(fits(v, p) for p in inner for v in value)
    if origin is not None:
        return isinstance(value, origin) if isinstance(origin, type) else True
    if hint is bool:
        return isinstance(value, np.bool) or (isinstance(value, int) and value in (0, 1))
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, (kind, UOp)) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) and hint is not object else True


def meaning(text: str, function: Any) -> Any:
    """What an annotation means; Any where only a type checker knows."""
    try:
        return eval(text, {**vars(typing), **function.__globals__, **MEANT})
    except (NameError, TypeError):
        return Any
