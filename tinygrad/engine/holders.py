"""What the engine knows of tensors: objects that hold a node and may be read later."""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from typing import Self

from tinygrad.uop.node import UOp


class Holder(ABC):
    """A tensor, as far as the engine cares."""

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def wants_gradient(self) -> bool | None:
        """Whether it says that a gradient is wanted; None if it says nothing."""

    @property
    @abstractmethod
    def has_gradient(self) -> bool:
        """Whether it holds one."""

    @property
    @abstractmethod
    def uop(self) -> UOp:
        """The node that it stands for; a view of storage once that is computed."""

    @classmethod
    @abstractmethod
    def of(cls, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A new one for a node."""

    @abstractmethod
    def alike(self, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A new one for another view of the same: a write to one is seen by the other."""

    @abstractmethod
    def hold(self, node: UOp) -> None:
        """From now on it stands for `node`."""

    @property
    @abstractmethod
    def family(self) -> Hashable:
        """What it shares with those that are views of the same."""

    @abstractmethod
    def copy_out(self, base: UOp) -> None:
        """Before the version `base` is overwritten: if this is a copy of part of it that was not
        made yet, it is from now on an expression, which reads the old version."""


class Reference(weakref.ref[Holder]):
    """A weak reference that knows its number, so that its entry can go with the holder."""

    __slots__ = ("number", "serial")
    number: int
    serial: int


class Holders:
    """All holders that are alive, in order of creation: equal programs see equal orders."""

    def __init__(self) -> None:
        self._references: dict[int, Reference] = {}
        self._serials = itertools.count()

    def refer(self, holder: Holder) -> Reference:
        """A weak reference to a new holder, which nobody finds before `add`."""
        reference = Reference(holder, self._forget)
        reference.number, reference.serial = id(holder), next(self._serials)
        return reference

    def add(self, reference: Reference) -> None:
        """Remembers a holder that is complete, while it lives: other threads look at all."""
        self._references[reference.number] = reference

    def reference(self, holder: Holder) -> Reference:
        """The weak reference to one that is alive."""
        return self._references[id(holder)]

    def _forget(self, reference: Reference) -> None:
        self._references.pop(reference.number, None)

    def __iter__(self) -> Iterator[Holder]:
        """Those alive now; what is made or dies meanwhile doesn't disturb."""
        found = (reference() for reference in list(self._references.values()))
        return (holder for holder in found if holder is not None)

    def now(self) -> int:
        """A number below those of all holders that will be made from now on."""
        return next(self._serials)

    def serial(self, holder: Holder) -> int:
        """The number of one that is alive."""
        return self._references[id(holder)].serial

    def since(self, serial: int) -> list[Holder]:
        """Those alive that were made after `now()` gave `serial`."""
        found = [r() for r in list(self._references.values()) if r.serial > serial]
        return [holder for holder in found if holder is not None]

    def references(self) -> list[weakref.ref[Holder]]:
        """Weak references to those alive."""
        return list(self._references.values())


holders = Holders()
"""Before a buffer is overwritten those that still need its old value are computed, so that a
program means what its order says."""

surroundings: list[Callable[[], Hashable]] = []
"""What besides its arguments a function of tensors may look at: modes and defaults. A captured step
holds for the surroundings that it was captured in."""
