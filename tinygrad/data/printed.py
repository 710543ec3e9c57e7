"""How layers, optimizers, data sets and the like print: what each was made with, the shapes of its
tensors, and the objects in it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import PurePath
from textwrap import indent
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from tinygrad.tensor import Tensor

PLAIN = (bool, int, float, str, range, PurePath)
ARRAYS = (Tensor, np.ndarray)
NO_WAY: tuple[Any, ...] = (object.__repr__, list.__repr__)
"""How classes print that don't say how."""
MOST = 100
"""So many elements of a list are printed, and a tenth of it of numbers and shapes."""


def described(thing: Any) -> str:
    """The text of a layer, or of any object that holds layers and tensors: its public attributes,
    but for those that are None, and each layer in it on lines of its own.

    >>> print(described(nn.Sequential(nn.Linear(3, 4), nn.ReLU())))
    Sequential(
      0: Linear(in_features=3, out_features=4, weight=(4, 3), bias=(4,))
      1: ReLU(inplace=False)
    )
    """
    return _described(thing, (id(thing),))


def print_as_described(kinds: Iterable[Any]) -> None:
    """Lets these classes print so, but for those that print in a way of their own. A class whose
    objects show something else than their attributes has `_shown`, which returns it by name."""
    for kind in kinds:
        if isinstance(kind, type) and kind.__repr__ in NO_WAY:
            kind.__repr__ = described  # type: ignore[method-assign, assignment]


def made_with(thing: Any) -> dict[str, Any]:
    """The arguments of an object's class that it has by their names."""
    names = inspect.signature(type(thing)).parameters
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def _described(thing: Any, around: tuple[int, ...]) -> str:
    here: list[str] = []
    below: list[str] = []
    for name, value in _parts(thing):
        text = _in_line(value)
        if text is not None and isinstance(thing, list):
            below.append(f"{name}: {text}")
        elif text is not None:
            here.append(f"{name}={text}")
        elif value is not None and id(value) not in around:
            below.append(f"{name}: {_inside(value, (*around, id(value)))}")
    if isinstance(thing, list) and len(thing) > MOST:
        below.append(f".. {len(thing) - MOST} more")
    head, inside = f"{type(thing).__name__}({', '.join(here)}", indent("\n".join(below), "  ")
    return f"{head}\n{inside}\n)" if below else f"{head})"


def _in_line(value: Any) -> str | None:
    """The text of a setting, or of shapes; None for what is no such thing."""
    if isinstance(value, ARRAYS):
        return repr(value.shape)
    if isinstance(value, PLAIN):
        return repr(value)
    if type(value) not in (list, tuple):
        return None
    texts = ["None" if each is None else _in_line(each) for each in value[: MOST // 10]]
    if None in texts:
        return None
    more = [f".. {len(value) - len(texts)} more"] if len(value) > len(texts) else []
    inside = ", ".join([*map(str, texts), *more])
    if isinstance(value, list):
        return f"[{inside}]"
    return f"({inside},)" if len(value) == 1 else f"({inside})"


def _inside(value: Any, around: tuple[int, ...]) -> str:
    if isinstance(value, (FunctionType, MethodType)):
        return value.__name__
    has_no_way = type(value).__repr__ in (*NO_WAY, described)
    return _described(value, around) if has_no_way else repr(value)


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What is in an object by name, in a list by place."""
    if isinstance(thing, list):
        yield from ((str(i), value) for i, value in enumerate(islice(thing, MOST)))
    shown = getattr(type(thing), "_shown", None)
    named: Mapping[str, Any] = shown(thing) if shown else getattr(thing, "__dict__", {})
    yield from ((name, value) for name, value in named.items() if not name.startswith("_"))
