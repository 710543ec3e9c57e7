"""Functions of tensors as classes, for programs that hold a layer or a loss: `held` makes of a
function a class whose fields are its options, and whose objects are called with the tensors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tinygrad.tensor import Tensor


class Held:
    """Called with tensors, it is `function` of them and of the options that it holds."""

    function: ClassVar[Callable[..., Tensor]]

    if TYPE_CHECKING:  # a class that is made takes the options that its function has

        def __init__(self, *options: Any, **named: Any) -> None: ...

    def __call__(self, *tensors: Any, **more: Any) -> Tensor:
        """The tensors that the function takes before its options."""
        return type(self).function(*tensors, **more, **vars(self))


def held(name: str, function: Callable[..., Tensor]) -> type[Held]:
    """The class of this name. Its fields are what `function` has defaults for, in that order.

    >>> held("L1Loss", nn.functional.l1_loss)("sum")
    L1Loss(reduction='sum')
    """
    given = inspect.signature(function).parameters.values()
    options = [(p.name, p.annotation, p.default) for p in given if p.default is not p.empty]
    members = {
        "__doc__": function.__doc__,
        "__module__": sys._getframe(1).f_globals["__name__"],
        "function": staticmethod(function),
    }
    return make_dataclass(name, options, bases=(Held,), namespace=members, unsafe_hash=True)
