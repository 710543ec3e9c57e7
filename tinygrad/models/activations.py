"""Activations by the names that config.json has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinygrad.base.errors import ArgumentError
from tinygrad.nn.activations import gelu
from tinygrad.tensor import Tensor

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_fast": Tensor.gelu,
    "gelu_new": Tensor.gelu,
    "gelu_pytorch_tanh": Tensor.gelu,
    "quick_gelu": Tensor.quick_gelu,
    "relu": Tensor.relu,
    "relu6": Tensor.relu6,
    "sigmoid": Tensor.sigmoid,
    "silu": Tensor.silu,
    "swish": Tensor.silu,
    "tanh": Tensor.tanh,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function of this name.

    Raises:
        ArgumentError: there is none; the message lists the names.

    >>> activation("relu")(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    if name not in ACTIVATIONS:
        raise ArgumentError(f"activation {name!r}; legal are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
