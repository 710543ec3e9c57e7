"""How layers print: what each was made with, the shapes of its tensors, and the layers in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import indent
from types import FunctionType
from typing import Any

from tinygrad.tensor import Tensor

PLAIN = (bool, int, float, str, tuple)
NO_WAY: tuple[Any, ...] = (object.__repr__, list.__repr__)
"""How classes print that don't say how."""


def described(thing: Any) -> str:
    """The text of a layer, or of any object that holds layers and tensors: its public attributes,
    but for those that are None, and each layer in it on lines of its own.

    >>> print(described(nn.Sequential(nn.Linear(3, 4), nn.ReLU())))
    Sequential(
      0: Linear(weight=(4, 3), bias=(4,))
      1: ReLU(inplace=False)
    )
    """
    return _described(thing, (id(thing),))


def print_as_described(kinds: Iterable[Any]) -> None:
    """Lets these classes print so, but for those that print in a way of their own."""
    for kind in kinds:
        if isinstance(kind, type) and kind.__repr__ in NO_WAY:
            kind.__repr__ = described  # type: ignore[method-assign, assignment]


def _described(thing: Any, around: tuple[int, ...]) -> str:
    here: list[str] = []
    below: list[str] = []
    for name, value in _parts(thing):
        if isinstance(value, Tensor):
            here.append(f"{name}={value.shape}")
        elif _is_plain(value):
            here.append(f"{name}={value!r}")
        elif value is not None and id(value) not in around:
            below.append(f"{name}: {_inside(value, (*around, id(value)))}")
    head, inside = f"{type(thing).__name__}({', '.join(here)}", indent("\n".join(below), "  ")
    return f"{head}\n{inside}\n)" if below else f"{head})"


def _is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, list) and all(map(_is_plain, value)))


def _inside(value: Any, around: tuple[int, ...]) -> str:
    if isinstance(value, FunctionType):
        return value.__name__
    has_no_way = type(value).__repr__ in (*NO_WAY, described)
    return _described(value, around) if has_no_way else repr(value)


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What is in an object by name, in a list by place."""
    if isinstance(thing, list):
        yield from ((str(i), value) for i, value in enumerate(thing))
    named: Mapping[str, Any] = getattr(thing, "__dict__", {})
    yield from ((name, value) for name, value in named.items() if not name.startswith("_"))
