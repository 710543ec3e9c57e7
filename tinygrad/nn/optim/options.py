"""What an optimizer was made with, by name: to be read, set later, and kept in its state."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.tensor import Tensor

PARTS = ("b1", "b2", "rho", "alpha")
NUMBERED = (
    *PARTS,
    "eps",
    "weight_decay",
    "momentum",
    "dampening",
    "lr_decay",
    "momentum_decay",
    "lambd",
    "tcoef",
)
"""Options that are numbers, from 0 on: what averages keep a part of, and others."""
SETTABLE = ("lr", "weight_decay", "eps")
KEPT = ("base_lr", *(name for name in NUMBERED if name != "dampening"))
"""Numbers that a state has, as steps go on by them. Dampening decides what there is to count."""
PREFIX = "options."


class Options(MutableMapping[str, Any]):
    """What an optimizer was made with, by name. "lr" is a number, and is written in place, and so
    is the momentum (or b1) once it was set. "weight_decay" and "eps" can be set, too: a step that
    was captured before says so.

    >>> from tinygrad.nn.optim import SGD
    >>> options = SGD([Tensor([1.0])], lr=0.5, momentum=0.75).param_groups[0]
    >>> options["lr"] *= 0.5
    >>> options["momentum"] = 0.5
    >>> options["lr"], options["momentum"]
    (0.25, 0.5)
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        names = inspect.signature(type(optimizer)).parameters
        self._names = [name for name in names if hasattr(optimizer, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(f"param_groups: no option {name!r}; there are {', '.join(self)}")
        value = getattr(self._optimizer, name)
        return float(value.item()) if isinstance(value, Tensor) else value

    def __setitem__(self, name: str, value: Any) -> None:
        settable = [each for each in (*SETTABLE, self._optimizer.inertia) if each in self._names]
        if name not in settable:
            raise ArgumentError(
                f"param_groups: {self._optimizer._name}'s {name!r} = {value!r}; legal to set are "
                f"{', '.join(settable)}"
            )
        if not isinstance(value, Tensor):
            self._optimizer._check(**{name: value})
        if name == self._optimizer.inertia:
            if not isinstance(value, Tensor) and value == self[name]:
                return
            self._optimizer.vary_inertia().assign(value).realize()
        else:
            setattr(self._optimizer, name, value)

    def __delitem__(self, name: str) -> None:
        raise ArgumentError(f"param_groups: del {name!r}; legal is to set it")


def kept(optimizer: Any) -> dict[str, float]:
    """The numbers among the options of an optimizer that are no tensors, by name."""
    found = vars(optimizer)
    return {name: found[name] for name in KEPT if type(found.get(name)) in (int, float)}


def number_in(value: Any) -> float:
    """The number in a state: of a tensor or an array with one element."""
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    return float(array.reshape(()))
