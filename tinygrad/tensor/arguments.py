"""What is said of a wrong argument. The types of those that are numbers, bools or words are looked
at before a call; one that failed in Python's own words is looked at again, beside all that its
function says. What types don't say, functions check: which words and which numbers are legal."""

from __future__ import annotations

import inspect
import math
import numbers
import sys
import types
import typing
from abc import ABC
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError, TinygradError
from tinygrad.base.helpers import argfix, plain
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
    """ArgumentError for a value that is not among those that are legal."""
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


def check_above(operation: str, name: str, value: float) -> None:
    """ArgumentError for a number that isn't above 0, and for NaN."""
    if not value > 0:
        raise ArgumentError(f"{operation}: {name}={value}; legal are numbers above 0")


def check_types(
    operation: str,
    values: Iterable[Any],
    kinds: Any,
    legal: str,
    error: type[TinygradError] = DTypeError,
) -> None:
    """An error that names the first value of another type; a bool is no whole number."""
    is_whole = kinds is int or (isinstance(kinds, tuple) and int in kinds and float not in kinds)
    for value in values:
        if not isinstance(value, kinds) or (is_whole and isinstance(value, bool)):
            kind = type(value).__name__
            raise error(f"{operation}: {value!r} of type {kind}; legal are {legal}")


def number_of(value: Any) -> Any:
    """A tensor or an array of one number as that number, which is read."""
    is_one = getattr(value, "ndim", 1) == 0 and not isinstance(value, UOp)
    return value.item() if is_one else plain(value)


def given_sizes(*given: Any) -> tuple[Any, ...]:
    """Sizes, or one tuple of them."""
    return tuple([n if type(n) is int else number_of(n) for n in argfix(*given)])


def told(
    function: Callable[..., Any], called: str, given: Any, named: Any, error: Exception
) -> TinygradError | None:
    """The error that names an argument whose type isn't what `function` takes, if there is one and
    `error` doesn't say so already; else one with a symbolic size, which wasn't foreseen. One that
    says so in another method's name learns what was `called`; the outermost call is the last."""
    if isinstance(error, (ArgumentError, DTypeError, ShapeError)):
        error.called = called
    if isinstance(error, TinygradError) or not isinstance(error, BARE):
        return None
    return wrong_type(function, called, given, named, failed=True) or _symbolic(
        called, *given, **named
    )


def wrong_type(
    function: Callable[..., Any], called: str, given: Any, named: Any, failed: bool = False
) -> DTypeError | None:
    """The error that names an argument whose type isn't what `function` takes, if there is one.
    An array or a tensor of one number isn't what was wanted only where the call `failed`."""
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
                is_one_of_python = type(one).__module__ == "builtins"  # a list sorts, a str splits
                has_it = hasattr(type(one), function.__name__) and not is_one_of_python
                text, fitting = "Tensor", has_it or not failed
            else:
                fitting = one is parameter.default or fits(one, hint)
                fitting = fitting or (not failed and _holds_one(one, hint))
            if not fitting:
                legal = WORDS.get(text, text.replace("Self", "Tensor"))
                kind = type(one).__name__
                return DTypeError(f"{called}: {name}={one!r} of type {kind}; legal is {legal}")
    return None


PLAIN: dict[Any, tuple[type, ...]] = {
    int: (int, UOp),
    float: (float, int, UOp),
    bool: (bool,),
    str: (str,),
    type(None): (type(None),),
}
"""What an annotation may say for its argument to be looked at: the types that surely fit."""


def looked_at_of(
    function: Callable[..., Any], plain: dict[Any, tuple[type, ...]]
) -> list[tuple[int, str, frozenset[type]]]:
    """The arguments whose annotations are all in `plain`: their places, beyond all for those
    given by name alone, their names, and the types that surely fit."""
    function = inspect.unwrap(function)
    code, found = function.__code__, []
    for place, name in enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        text = function.__annotations__.get(name, Any)
        hint = meaning(text, function) if isinstance(text, str) else text
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        parts = typing.get_args(hint) if is_union else (hint,)
        if all(isinstance(part, type) and part in plain for part in parts):
            kinds = frozenset(kind for part in parts for kind in plain[part])
            found.append((place if place < code.co_argcount else sys.maxsize, name, kinds))
    return found


def _symbolic(called: str, *given: Any, **named: Any) -> ShapeError | None:
    """The error that shows a symbolic size, or a tensor's, among the arguments, if there is one."""
    for value in (*given, *named.values()):
        sizes = (value,) if isinstance(value, UOp) else getattr(value, "shape", ())
        if isinstance(sizes, tuple) and any(isinstance(size, UOp) for size in sizes):
            return ShapeError(
                f"{called}: symbolic sizes, {sizes}; legal are numbers: reshape a tensor to the "
                "sizes that it has now"
            )
    return None


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; true where the annotation says nothing."""
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


def _holds_one(value: Any, hint: Any) -> bool:
    """Whether this is an array or a tensor of one number, of a kind that an annotation names."""
    is_array = isinstance(value, np.ndarray)
    if not (is_array or isinstance(value, AnyTensor)) or math.prod(value.shape) != 1:
        return False
    parts, kind = typing.get_args(hint) or (hint,), value.dtype
    is_int = kind.kind in "iu" if is_array else dtypes.is_int(kind)
    is_float = kind.kind == "f" if is_array else dtypes.is_float(kind)
    return (float in parts and (is_float or is_int)) or (int in parts and is_int)


def meaning(text: str, function: Any) -> Any:
    """What an annotation means; Any where only a type checker knows."""
    try:
        return eval(text, {**vars(typing), **function.__globals__, **MEANT})
    except (NameError, TypeError):
        return Any
