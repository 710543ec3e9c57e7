"""Weak references to objects, in the order in which the objects were added. A reference goes with
its object, without a line of Python: objects die at any moment, in any thread."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from operator import is_not
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

    __slots__ = ("_references", "_forget", "_some_discarded", "__weakref__")

    def __init__(self) -> None:
        # whether the object wasn't discarded: a reference stays until its object dies, when it is
        # popped, for another thread may hold it as well
        self._references: dict[Reference[T], bool] = {}
        self._forget = self._references.pop
        self._some_discarded = False

    def references(self) -> list[Reference[T]]:
        """Weak references to all objects, which are alive now."""
        if not self._some_discarded:
            return list(self._references)
        return [reference for reference, is_in in list(self._references.items()) if is_in]

    def living(self) -> list[T]:
        """The objects alive now."""
        return list(filter(_is_there, map(Reference.__call__, self.references())))

    def __iter__(self) -> Iterator[T]:
        """The objects alive now; additions and deaths during the iteration are harmless."""
        return (item for reference in self.references() if (item := reference()) is not None)

    def add(self, item: T) -> None:
        """Adds an object that was never added."""
        self._references[Reference(item, self._forget)] = True

    def __contains__(self, item: T) -> bool:
        return any(self._references[own] for own in self._own(item))

    def add_once(self, item: T) -> None:
        """Adds an object unless it is there."""
        for own in self._own(item):
            self._references[own] = True
            return
        self.add(item)

    def discard(self, item: T) -> None:
        """Removes an object that was added."""
        for own in self._own(item):
            self._some_discarded = True
            self._references[own] = False

    def _own(self, item: T) -> Iterator[Reference[T]]:
        """The reference to an object that was added, or discarded: an object has few, of however
        many there are here."""
        for reference in weakref.getweakrefs(item):
            if type(reference) is Reference and reference in self._references:
                yield reference
