"""PyTorch's names for the arguments of layers, optimizers and functions, where they have others
here. An argument that there isn't is a TypeError that says which there are."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

from tinygrad.tensor import spellings
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
    "": ("inplace", "foreach", "fused", "capturable"),
}
"""What PyTorch calls an argument, by its name here; it has none where it would change nothing."""


def spell(module: dict[str, Any], names: list[str]) -> None:
    """Lets classes and functions of a module take their arguments by PyTorch's names."""
    for name in names:
        thing = module[name]
        if isinstance(thing, FunctionType):
            module[name] = spelled(thing, OTHERS, name)
        for what in ("__init__", "__call__") if inspect.isclass(thing) else ():
            method = getattr(thing, what)
            if isinstance(method, FunctionType) and not hasattr(method, "__wrapped__"):
                setattr(thing, what, spelled(method, OTHERS, thing.__name__))
