"""What the engine knows of tensors: objects that hold a node and may be read later."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

from tinygrad.uop.node import UOp


class Holder(ABC):
    """A tensor, as far as the engine cares."""

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def uop(self) -> UOp:
        """The node that it stands for; a view of storage once that is computed."""

    @classmethod
    @abstractmethod
    def holding(cls, node: UOp) -> Self:
        """A tensor of this class, of `node`."""

    @abstractmethod
    def copy_out(self, base: UOp) -> None:
        """Before the version `base` is overwritten: if this is a copy of part of it that was not
        made yet, it is from now on an expression, which reads the old version."""

    @abstractmethod
    def with_node(self, node: UOp) -> Self:
        """A new one for another node."""


class _Reference(weakref.ref[Holder]):
    """A weak reference that knows its number, so that its entry can go with the holder."""

    __slots__ = ("number",)
    number: int


class Holders:
    """All holders that are alive, in order of creation: equal programs see equal orders."""

    def __init__(self) -> None:
        self._references: dict[int, _Reference] = {}

    def add(self, holder: Holder) -> None:
        """Remembers `holder` while it lives."""
        reference = _Reference(holder, self._forget)
        reference.number = id(holder)
        self._references[reference.number] = reference

    def _forget(self, reference: _Reference) -> None:
        self._references.pop(reference.number, None)

    def __iter__(self) -> Iterator[Holder]:
        """Those alive now; what is made or dies meanwhile doesn't disturb."""
        found = (reference() for reference in list(self._references.values()))
        return (holder for holder in found if holder is not None)


holders = Holders()
"""Before a buffer is overwritten those that still need its old value are computed, so that a
program means what its order says."""
