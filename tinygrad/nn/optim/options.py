"""What an optimizer was made with, by name: to be read, set later, and kept in its state."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.data.printed import made_with, print_as_described
from tinygrad.engine.realize import capturing
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
PREFIX = "options."
"""What the names of options in a state begin with."""


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
        self._names = list(made_with(optimizer))

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

    def _shown(self) -> dict[str, Any]:
        """Tensors of one number as that number, but while a step is captured."""
        held = {name: getattr(self._optimizer, name) for name in self if name != "params"}
        return {n: as_number(x) for n, x in held.items()} | {"params": self._optimizer.params}

    def __delitem__(self, name: str) -> None:
        raise ArgumentError(f"param_groups: del {name!r}; legal is to set it")


print_as_described([Options])


def options_of(thing: Any) -> list[str]:
    """The names of what an object was made with; and of the rate that schedules begin with."""
    return ["base_lr", *inspect.signature(type(thing)).parameters]


def as_number(value: Any) -> Any:
    """The number in a tensor, to the digits that float32 has. While a step is captured the tensor:
    it has no number then."""
    if not isinstance(value, Tensor) or capturing():
        return value
    return float(f"{value.item():.7g}")


def kept(thing: Any) -> dict[str, Any]:
    """The options of an object that it has as plain values, by name, as a state keeps them."""
    held = vars(thing)
    names = [name for name in options_of(thing) if name in held and name != "params"]
    return {name: held[name] for name in names if _is_plain(held[name])}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def options_state(thing: Any, device: Any = None) -> dict[str, Tensor]:
    """The options of an object by the names that they have in a state."""
    return {PREFIX + name: stored(value, device) for name, value in kept(thing).items()}


def options_in(state: dict[str, Tensor], thing: Any) -> dict[str, Any]:
    """The options in a state that an object has, too, by name."""
    held = vars(thing)
    names = [name for name in options_of(thing) if name in held and PREFIX + name in state]
    return {name: restored(state[PREFIX + name], held[name]) for name in names}


def check_kind(who: Any, state: dict[str, Tensor], things: list[tuple[str, Any]]) -> None:
    """ArgumentError if the options in a state are those of something else, where `things` are what
    it is made of, each behind what its names in a state begin with. A state may have none."""
    found = {name for name in state if PREFIX in name}
    own = {prefix + PREFIX + name for prefix, each in things for name in kept(each)}
    if found and found != own:
        there, here = (
            ", ".join(sorted(name.replace(PREFIX, "") for name in names)) for names in (found, own)
        )
        raise ArgumentError(
            f"load_state_dict: a state with the options {there}; legal is one of another "
            f"{type(who).__name__}, with {here}"
        )


def take_options(options: dict[str, Any], thing: Any) -> None:
    """Gives an object these options, which it has, too (`options_in`). Own values that are the same
    stay, as captured steps have read them."""
    for name, value in options.items():
        own = vars(thing)[name]
        if isinstance(own, Tensor) or own != value:
            setattr(thing, name, value)


def without_options(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What else is in a state."""
    return {name: tensor for name, tensor in state.items() if PREFIX not in name}


def own_number(value: float, dtype: DType = dtypes.float32) -> Tensor:
    """A tensor of one number that is written in place, and that no other shares."""
    return Tensor([value], dtype=dtype, requires_grad=False).contiguous().realize()


def stored(value: Any, device: Any = None) -> Tensor:
    """An option as a tensor: bools and numbers as these (float64 is what Python counts with), all
    else as the bytes of its JSON text."""
    if not isinstance(value, (bool, int, float)):
        return Tensor(list(json.dumps(value).encode()), dtype=dtypes.uint8, device=device)
    dtype = dtypes.bool if isinstance(value, bool) else dtypes.float64
    return Tensor([value], dtype=dtype, device=device)


def restored(value: Any, own: Any) -> Any:
    """The option that a tensor, or an array, keeps, where `own` is what there was before."""
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype == np.uint8:
        found = json.loads(array.tobytes())
        return tuple(found) if isinstance(found, list) and type(own) is not list else found
    found = array.reshape(()).item()
    return int(found) if type(own) is int and found == int(found) else found
