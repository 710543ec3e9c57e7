"""PyTorch's names for the arguments of layers, optimizers and functions, where they have others
here. An argument that there isn't is a TypeError that says which there are. Those that are numbers,
bools or words must be so: a bool is no number, a float no whole one and no bool."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tinygrad.tensor import spellings
from tinygrad.tensor.arguments import check_types, meaning, wrong_type
from tinygrad.tensor.spellings import spelled

OTHERS = {
    **spellings.OTHERS,
    "self": ("input",),
    "x": ("input", "input1"),
    "y": ("input2",),
    "sz": ("num_features",),
    "vocab_size": ("num_embeddings",),
    "embed_size": ("embedding_dim",),
    "dim": ("axis", "normalized_shape"),
    "numbers": ("input",),
    "factor": ("lr_lambda",),
    "padding": ("pad",),
    "value": ("val",),
    "": ("foreach", "fused", "capturable"),
}
"""What PyTorch calls an argument, by its name here; it has none where it would change nothing."""

WRITABLE = frozenset(
    ("relu", "relu6", "elu", "celu", "selu", "silu", "mish", "leaky_relu", "rrelu", "threshold")
    + ("hardtanh", "hardswish", "hardsigmoid")
    + ("dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout")
)
"""The functions that take `inplace`."""


def spell(module: dict[str, Any], names: list[str]) -> None:
    """Lets classes and functions of a module take their arguments by PyTorch's names."""
    for name in names:
        thing = module[name]
        if isinstance(thing, FunctionType):
            module[name] = called_by_others(thing, name)
        for what in ("__init__", "__call__") if inspect.isclass(thing) else ():
            method = getattr(thing, what)
            if isinstance(method, FunctionType) and not hasattr(method, "__wrapped__"):
                looked_at = checked(method, thing.__name__)
                setattr(thing, what, spelled(looked_at, OTHERS, thing.__name__))


def called_by_others(function: Callable[..., Any], called: str) -> Callable[..., Any]:
    """The function, called as PyTorch's is: by its names, and in place."""
    found = spelled(checked(function, called), OTHERS, called)
    return writable(found, called) if function.__name__ in WRITABLE else found


def writable(function: Callable[..., Any], called: str) -> Callable[..., Any]:
    """The function, which takes `inplace` after its own arguments: whether x becomes the result."""
    code = inspect.unwrap(function).__code__

    @functools.wraps(function)
    def writing(*args: Any, inplace: bool = False, **named: Any) -> Any:
        if len(args) == code.co_argcount + 1:
            *args, inplace = args  # type: ignore[assignment]
        result = function(*args, **named)
        if inplace is False:
            return result
        check_types(called, [inplace], bool, "True and False for inplace")
        x: Any = args[0] if args else named.get(code.co_varnames[0], named.get("input"))
        return x if result is x else x._in_place(called, result)

    return writing


PLAIN = {int: (int,), float: (float, int), bool: (bool,), str: (str,), type(None): (type(None),)}
"""What an annotation may say for its argument to be looked at: the types that surely fit."""


def checked(function: Callable[..., Any], called: str) -> Callable[..., Any]:
    """The function, for whose plain arguments others' types are a DTypeError that names them."""
    order = inspect.unwrap(function).__code__.co_varnames
    order = order[: inspect.unwrap(function).__code__.co_argcount]
    types_of = functools.cache(lambda: _plain_types(function))  # once all names are there

    @functools.wraps(function)
    def checking(*args: Any, **named: Any) -> Any:
        plain = types_of()
        for name, value in (*zip(order, args, strict=False), *named.items()):
            if name in plain and type(value) not in plain[name]:
                wrong = wrong_type(function, called, args, named)
                if wrong is not None:
                    raise wrong
                break
        return function(*args, **named)

    return checking


def _plain_types(function: Callable[..., Any]) -> dict[str, frozenset[type]]:
    """The arguments that are numbers, bools or words, and the types that surely fit."""
    function = inspect.unwrap(function)
    found = {}
    for name, text in function.__annotations__.items():
        hint = meaning(text, function) if isinstance(text, str) else text
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        parts = typing.get_args(hint) if is_union else (hint,)
        if name != "return" and all(isinstance(p, type) and p in PLAIN for p in parts):
            found[name] = frozenset(kind for part in parts for kind in PLAIN[part])
    return found
