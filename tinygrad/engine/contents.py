"""Mutable objects of Python that a captured step uses: lists, dicts, iterators, arrays, sources of
random numbers.

A replay runs none of the step's Python, so a step that changes such an object would change it once
and never again. Therefore it is an error if one has changed when the captured call ends, or if the
step resumes a generator that was started outside. An object that the step reads as a whole
(`len(x)`, `for k in x`) is also watched before each replay.

Of the elements, plain values are compared by value and all others by type only; tensors inside are
watched by `engine/places`."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from enum import Enum
from opcode import opmap
from operator import getitem, length_hint
from random import Random
from types import BuiltinMethodType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from tinygrad.base.dtype import DType
from tinygrad.engine.places import PLAIN, Place

SETTINGS = (*PLAIN, DType, Enum, FunctionType)
"""Plain values, for which identity of the value matters."""

MOST = 4096
"""The most elements that are compared; of larger containers only the length is. Of larger arrays
so many are, evenly spread, or all in `LARGEST` bytes."""

LARGEST = 1 << 20  # bytes, which take 75 microseconds; so many spread elements take 30

_SHOWN = 6
_SMALL = 256  # small integers, of which there is one object each


class Content(NamedTuple):
    """The content of an object. Objects with equal contents say the same."""

    kind: str
    size: int
    parts: Any

    def __repr__(self) -> str:
        parts = [str(part) for part in self.parts]
        shown = parts if len(parts) <= _SHOWN else ["..", *parts[-_SHOWN:]]
        return f"{self.kind}({', '.join(shown)})"


class Contents:
    """The objects that a step meets while it runs, each with its content at that time."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[str, Any, Content]] = {}  # by `id`
        self._whole: dict[int, str] = {}  # objects that are read as a whole, and their names
        self._counted: set[int] = set()  # those of them whose length matters
        self._begun: set[int] = set()  # frames of generators
        self._resumed: str | None = None

    def meets(self, value: Any, name: str, use: str = "") -> None:
        """Notes an object that existed before the step, its name in the step's code, and how the
        code uses it."""
        if id(value) not in self._held:
            if (was := content(value)) is None:
                return
            self._held[id(value)] = name, value, was
        if use in _READ.get(type(value), ()):
            self._whole.setdefault(id(value), name)
            if use != "looked up":
                self._counted.add(id(value))

    def enters(self, frame: FrameType) -> None:
        """A generator is called or resumed: it may have started before the step."""
        code, at = frame.f_code.co_code, frame.f_lasti
        if code[at] != _RESUME or code[at + 1] & 3 == 0:
            self._begun.add(id(frame))
        elif id(frame) not in self._begun:
            self._resumed = frame.f_code.co_qualname

    def changes(self) -> Iterator[tuple[str, Any, Any]]:
        """What the step changed: the name, the old content, and the new one."""
        for name, value, was in self._held.values():
            if (now := content(value)) != was:
                yield name, was, now
        if self._resumed is not None:
            yield f"a generator ({self._resumed})", "one turn", "the next"

    def settings(self) -> Iterator[tuple[str, Place]]:
        """What was read as a whole, as places that must stay as they are."""
        for key, name in self._whole.items():
            _, value, was = self._held[key]
            if was.size > _SMALL or not isinstance(value, (list, deque, dict)):
                yield name, Place(_still, value, was, was)
                continue
            if key in self._counted:
                yield f"the length of {name}", Place(length_hint, value, 0, was.size)
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for at, part in pairs:
                if isinstance(part, SETTINGS):
                    yield f"element {at!r} of {name}", Place(getitem, value, at, part)


def owner_of(value: Any) -> Any:
    """The owner of a method (`random.random`), or the value itself."""
    return value.__self__ if isinstance(value, (BuiltinMethodType, MethodType)) else value


def content(value: Any) -> Content | None:
    """The content of a value, if its type is one that may change."""
    look = _LOOKS.get(type(value))
    if look is None:
        return None
    several = look(value)
    parts = several if len(several) <= MOST else [f"{len(several)} elements"]
    kept = frozenset(parts) if isinstance(value, set) else tuple(parts)
    return Content(type(value).__name__, len(several), kept)


def _still(value: Any, was: Content) -> Any:
    """The same object, if nothing has changed."""
    return was if (now := content(value)) == was else now


def _part(value: Any) -> Any:
    return value if isinstance(value, SETTINGS) else type(value).__name__


def _pairs(value: dict[Any, Any]) -> list[Any]:
    return [(_part(key), _part(part)) for key, part in value.items()]


class _Bytes(bytes):
    """Many elements, of which an error shows none."""

    def __str__(self) -> str:
        return f"{len(self)} bytes"


def _numbers(value: Any) -> Any:
    """An array's elements as text, or many as bytes, in which a NaN is equal to itself."""
    if value.dtype == object:
        return value.ravel()
    if value.size <= MOST:
        return [str(n) for n in value.ravel().tolist()]
    some = value if value.nbytes <= LARGEST else value.flat[:: value.size // MOST]
    return [str(value.shape), _Bytes(some.tobytes())]


def _state(look: Callable[[Any], Any]) -> Callable[[Any], list[str]]:
    return lambda value: [f"state {hash(str(look(value))):x}"]


_RESUME = opmap["RESUME"]
_ITERATED: tuple[Any, ...] = ([], (), {}, {}.values(), {}.items(), "", set(), range(0))
_ITERATED += (range(1 << 70),)

_READ: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((list, deque, set, bytearray), ("whole", "iterated", "looked up")),
    **dict.fromkeys((dict, OrderedDict, defaultdict, Counter), ("iterated", "looked up")),
    np.ndarray: ("whole", "iterated", "part", "looked up"),
}
"""How watched values are used if all of their content counts."""

_LOOKS: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((list, deque, set, bytearray), lambda value: list(map(_part, value))),
    **dict.fromkeys((dict, OrderedDict, defaultdict, Counter), _pairs),
    **{type(iter(each)): lambda value: [f"{length_hint(value)} left"] for each in _ITERATED},
    itertools.count: lambda value: [repr(value)],
    Random: _state(Random.getstate),
    np.ndarray: _numbers,
    np.random.Generator: _state(lambda value: value.bit_generator.state),
    np.random.RandomState: _state(lambda value: value.get_state(legacy=True)),
}
SOURCES = (Random, np.random.Generator, np.random.RandomState)
"""Sources of random numbers: if a module has one, it existed before the step."""
