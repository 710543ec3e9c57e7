"""Layers that learn a size from the first tensor they are called with, by PyTorch's names.

Such an object becomes the layer of that size, class and all, so nothing else has to know of it.
Until then it has no weights: who asks a model that holds one for its tensors (an optimizer, a file)
is told so.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from tinygrad.base.errors import JitError, ShapeError
from tinygrad.engine.realize import capturing
from tinygrad.nn.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Linear,
)
from tinygrad.nn.norms import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from tinygrad.nn.state import Unmade
from tinygrad.tensor import Tensor

# what PyTorch's lazy instance norms do, but not its others
LEARNS = {"affine": True, "track_running_stats": True}


class Lazy(Unmade):
    """A layer of which one size is not known yet: `make` of it gives the layer, and x has it along
    `axis`."""

    def __init__(self, name: str, make: Callable[[Any], Any], axis: int) -> None:
        self.name, self.make, self.axis = name, make, axis
        self.why = f"{name}: no weights before its first call; legal is to call the model before"

    def __repr__(self) -> str:
        return f"{self.name}()"

    def __call__(self, x: Tensor) -> Any:
        """Becomes the layer for x, and gives what that makes of it."""
        if capturing():
            raise JitError(f"{self.name}: its first call makes weights; legal is one before a JIT")
        if not -x.ndim <= self.axis < x.ndim:
            raise ShapeError(f"{self.name}: x {x.shape}; legal are shapes with an axis {self.axis}")
        layer = self.make(x.shape[self.axis])
        vars(self).clear()
        vars(self).update(vars(layer))
        self.__class__ = type(layer)
        return self(x)


def _lazy(layer: Callable[..., Any], axis: int, *example: str, **usual: Any) -> Callable[..., Lazy]:
    """What takes all arguments of `layer` but the first, which is the size of x along `axis`; an
    example: these arguments, the shape of x, that of the result; and what has another default."""
    name = f"Lazy{layer.__name__}"
    options, given, result = example

    def made(*options: Any, **named: Any) -> Lazy:
        told = {*list(signature(layer).parameters)[: 1 + len(options)], *named}
        more = {option: value for option, value in usual.items() if option not in told}
        return Lazy(name, lambda size: layer(size, *options, **named, **more), axis)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = (
        f"A `{layer.__name__}` whose first argument is the size that the first x has. It has no "
        f"weights before.\n\n    >>> {name}({options})(Tensor.ones({given})).shape\n    {result}\n"
    )
    return made


LazyLinear = _lazy(Linear, -1, "2", "4, 3", "(4, 2)")
LazyConv1d = _lazy(Conv1d, -2, "8, 5", "1, 3, 9", "(1, 8, 5)")
LazyConv2d = _lazy(Conv2d, -3, "8, 5", "1, 3, 9, 9", "(1, 8, 5, 5)")
LazyConv3d = _lazy(Conv3d, -4, "8, 2", "1, 3, 4, 4, 4", "(1, 8, 3, 3, 3)")
LazyConvTranspose1d = _lazy(ConvTranspose1d, -2, "8, 2", "1, 3, 4", "(1, 8, 5)")
LazyConvTranspose2d = _lazy(ConvTranspose2d, -3, "8, 2", "1, 3, 4, 4", "(1, 8, 5, 5)")
LazyConvTranspose3d = _lazy(ConvTranspose3d, -4, "8, 2", "1, 3, 2, 2, 2", "(1, 8, 3, 3, 3)")
LazyBatchNorm1d = _lazy(BatchNorm1d, 1, "", "4, 3", "(4, 3)")
LazyBatchNorm2d = _lazy(BatchNorm2d, 1, "", "4, 3, 2, 2", "(4, 3, 2, 2)")
LazyBatchNorm3d = _lazy(BatchNorm3d, 1, "", "4, 3, 2, 2, 2", "(4, 3, 2, 2, 2)")
LazyInstanceNorm1d = _lazy(InstanceNorm1d, -2, "", "4, 3, 2", "(4, 3, 2)", **LEARNS)
LazyInstanceNorm2d = _lazy(InstanceNorm2d, -3, "", "4, 3, 2, 2", "(4, 3, 2, 2)", **LEARNS)
LazyInstanceNorm3d = _lazy(InstanceNorm3d, -4, "", "4, 3, 2, 2, 2", "(4, 3, 2, 2, 2)", **LEARNS)
