"""What the engine knows of tensors: objects that hold a node and may be read later."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Self

from tinygrad.engine.alive import Alive
from tinygrad.uop.node import UOp


class Holder:
    """A tensor, as the engine sees it. (Not an ABC: `isinstance` would run Python code.)"""

    __slots__ = ("_uop", "requires_grad", "serial", "__weakref__")

    _uop: UOp
    """The node that it was last seen to stand for. `uop` is what it stands for now: the same where
    this is a view of storage that nothing has happened to."""
    requires_grad: bool | None
    """Whether it says that a gradient is wanted; None if it says nothing."""
    serial: int
    """In order of creation."""

    @property
    @abstractmethod
    def has_gradient(self) -> bool:
        """Whether it holds a gradient."""

    @property
    @abstractmethod
    def uop(self) -> UOp:
        """The node that it represents; a view of storage once it is computed."""

    @classmethod
    @abstractmethod
    def of(cls, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A new holder for a node."""

    @abstractmethod
    def _is_new(self, node: UOp, wants_gradient: bool | None) -> bool:
        """Whether nothing has happened to it since `of` made it."""

    @abstractmethod
    def alike(self, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A new holder for another view of the same storage: writes to one are seen by the
        other."""

    @abstractmethod
    def hold(self, node: UOp) -> None:
        """Makes it represent `node` from now on."""

    @property
    @abstractmethod
    def family(self) -> Hashable:
        """A key that it shares with views of the same storage."""

    @abstractmethod
    def copy_out(self, base: UOp) -> None:
        """Called before the version `base` is overwritten. If this is a pending copy of part of it,
        it becomes an expression that reads the old version."""


class Holders(Alive[Holder]):
    """All living holders, in order of creation: equal programs see equal orders."""

    __slots__ = ("_serials",)

    def __init__(self) -> None:
        super().__init__()
        self._serials = itertools.count()

    def add(self, holder: Holder) -> None:
        """Adds a complete holder while it lives: other threads look at all of them."""
        holder.serial = next(self._serials)
        super().add(holder)

    def now(self) -> int:
        """A number below those of all holders that will be made from now on."""
        return next(self._serials)

    def since(self, serial: int) -> list[Holder]:
        """The living holders that were made after `now()` returned `serial`."""
        return [holder for holder in self if holder.serial > serial]


holders = Holders()
"""Before a buffer is overwritten those that still need its old value are computed, so that a
program means what its order says."""


class Promised:
    """Whether `some` holders may have no node yet; reading their `_uop` makes it."""

    some: ClassVar[bool] = False


def ask_all() -> None:
    """Gives every holder a node, so that graphs show who reads what."""
    if Promised.some:
        Promised.some = False
        for holder in holders:
            _ = holder._uop


surroundings: list[tuple[Any, str]] = []
"""What besides its arguments a function of tensors may look at: modes and defaults, each an
object's attribute. A captured step holds for the surroundings that it was captured in."""


def surroundings_now() -> tuple[Hashable, ...]:
    """The values of the surroundings."""
    return tuple([getattr(place, name) for place, name in surroundings])
