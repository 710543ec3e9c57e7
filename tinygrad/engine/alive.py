"""Weak references to objects, in the order in which the objects were added. A reference goes with
its object, without a line of Python: objects die at any moment, in any thread."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from itertools import repeat
from operator import is_, is_not
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_is_there: Any = functools.partial(is_not, None)


class Reference(weakref.ref[T]):
    """A weak reference that equals no other, whatever its object is equal to."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Alive(Generic[T]):
    """The objects that were added and are still alive. Threads may add and iterate freely."""

    __slots__ = ("_references", "_forget", "__weakref__")

    def __init__(self) -> None:
        self._references: dict[Reference[T], None] = {}
        self._forget = self._references.pop

    def references(self) -> list[Reference[T]]:
        """Weak references to all objects, which are alive now."""
        return list(self._references)

    def living(self) -> list[T]:
        """The objects alive now."""
        return list(filter(_is_there, map(Reference.__call__, self.references())))

    def __iter__(self) -> Iterator[T]:
        """The objects alive now; additions and deaths during the iteration are harmless."""
        return (item for reference in self.references() if (item := reference()) is not None)

    def add(self, item: T) -> None:
        """Adds an object that was never added."""
        self._references[Reference(item, self._forget)] = None

    def add_once(self, item: T) -> None:
        """Adds an object unless it is there."""
        if not any(map(is_, self.living(), repeat(item))):
            self.add(item)

    def discard(self, item: T) -> None:
        """Removes an object that was added."""
        for reference in self.references():
            if reference() is item:
                self._forget(reference, None)
