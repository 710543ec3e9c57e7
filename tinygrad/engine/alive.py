"""Weak references to objects, in the order in which the objects were added. No code runs when an
object dies. References to dead objects are removed from time to time: when they may be as many as
those to living ones."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import compress, repeat
from operator import is_not
from typing import Generic, TypeVar

from tinygrad.base.locks import ForkSafeLock

T = TypeVar("T")
LEAST_ROOM = 8  # references that are kept before dead ones are removed


class Alive(Generic[T]):
    """The objects that were added and are still alive. Threads may add and iterate freely."""

    __slots__ = ("_references", "_room", "__weakref__")
    _one_at_a_time = ForkSafeLock()

    def __init__(self, *first: T) -> None:
        self._references = [weakref.ref(item) for item in first]
        self._room = LEAST_ROOM

    @property
    def several(self) -> bool:
        """Whether more than one was ever added, even if the others are gone."""
        return len(self._references) > 1

    def references(self) -> list[weakref.ref[T]]:
        """Weak references to all objects that are alive, and to some that are not."""
        return self._references.copy()

    def __iter__(self) -> Iterator[T]:
        """The objects alive now; additions and deaths during the iteration are harmless."""
        return (item for reference in self.references() if (item := reference()) is not None)

    def add(self, item: T) -> None:
        """Adds an object."""
        self._references.append(weakref.ref(item))
        if len(self._references) > self._room:
            self._drop_the_dead()

    def discard(self, item: T) -> None:
        """Removes an object that was added."""
        self._references.remove(weakref.ref(item))

    def _drop_the_dead(self) -> None:
        if not Alive._one_at_a_time.now.acquire(blocking=False):
            return
        try:
            before = self.references()  # others may be added behind these meanwhile
            lives = map(is_not, map(weakref.ref.__call__, before), repeat(None))
            living = list(compress(before, lives))
            self._references[: len(before)] = {id(r): r for r in living}.values()
            self._room = max(LEAST_ROOM, 2 * len(self._references))
        finally:
            Alive._one_at_a_time.now.release()
