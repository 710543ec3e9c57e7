"""Functions of tensors as classes, for programs that keep a layer or a loss as an object. `held`
makes a class of a function: its fields are the function's options, and its objects are called with
the tensors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tinygrad.nn.spellings import WRITABLE, called_by_others
from tinygrad.tensor import Tensor


class Held:
    """An object that is called with tensors: `function` of these and of the options that it
    holds."""

    function: ClassVar[Callable[..., Tensor]]

    if TYPE_CHECKING:  # a class that is made takes the options that its function has

        def __init__(self, *options: Any, **named: Any) -> None: ...

    def __call__(self, *tensors: Any, **named: Any) -> Tensor:
        """The tensors that the function takes before its options."""
        return type(self).function(*tensors, **named, **vars(self))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({options})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((*vars(self).values(),))


def held(
    name: str,
    function: Callable[..., Any],
    options_of: Callable[..., Any] | None = None,
    without: str = "training",
) -> type[Held]:
    """The class of this name. Its fields are the arguments of `function` (or of another function to
    which it passes options on) that are not tensors, or have a default, in that order; `without`
    one that comes with each call, or is `Tensor.training`. `inplace` comes last, where the function
    takes it.

    >>> held("SoftMarginLoss", nn.functional.soft_margin_loss)("sum")
    SoftMarginLoss(reduction='sum')
    """
    given = inspect.signature(options_of or function).parameters.values()
    options = [
        (p.name, p.annotation, field() if p.default is p.empty else p.default)
        for p in given
        if p.default is not p.empty or not (p.name == "self" or p.annotation.startswith("Tensor"))
        if p.name != without
    ]
    if function.__name__ in WRITABLE:
        options.append(("inplace", "bool", False))
    members = {
        "__doc__": function.__doc__,
        "__module__": sys._getframe(1).f_globals["__name__"],
        "function": staticmethod(called_by_others(function, name)),
    }
    return make_dataclass(name, options, bases=(Held,), namespace=members, repr=False, eq=False)
