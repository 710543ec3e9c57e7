"""PyTorch's argument names for layers, optimizers and functions that have other names here. An
unknown argument is a TypeError that lists the known ones. The types of numbers, bools, words and
tensors are checked: a bool is no bias."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tinygrad.tensor import Tensor, spellings
from tinygrad.tensor.arguments import PLAIN, check_types
from tinygrad.tensor.spellings import spelled

OTHERS = {
    **spellings.OTHERS,
    "x": ("input", "input1", "x1"),
    "y": ("input2", "x2"),
    "sz": ("num_features",),
    "vocab_size": ("num_embeddings",),
    "embed_size": ("embedding_dim",),
    "dim": ("axis", "normalized_shape"),
    "numbers": ("input",),
    "factor": ("lr_lambda",),
    "after": ("last_epoch",),
    "value": ("val",),
}
"""What PyTorch calls an argument, by its name here."""

LOOKED_AT = {**PLAIN, Tensor: (Tensor,)}

METHODS = ("__init__", "__call__", "load_state_dict")
"""Of classes, what is called with arguments that may be wrong."""

WRITABLE = frozenset(
    ("relu", "relu6", "elu", "celu", "selu", "silu", "mish", "leaky_relu", "rrelu", "threshold")
    + ("hardtanh", "hardswish", "hardsigmoid")
    + ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
)
"""The functions that take `inplace`."""


def spell(
    module: dict[str, Any], names: list[str], others: dict[str, tuple[str, ...]] = OTHERS
) -> None:
    """Lets classes and functions of a module take their arguments by PyTorch's names."""
    for name in names:
        thing = module[name]
        if isinstance(thing, FunctionType):
            module[name] = called_by_others(thing, name)
        for what in METHODS if inspect.isclass(thing) else ():
            method = getattr(thing, what, None)
            if isinstance(method, FunctionType) and not hasattr(method, "__wrapped__"):
                setattr(thing, what, spelled(method, others, thing.__name__, LOOKED_AT))


def called_by_others(function: Callable[..., Any], called: str) -> Callable[..., Any]:
    """The function, called as PyTorch's is: by its names, and in place."""
    found = spelled(function, OTHERS, called, LOOKED_AT)
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
