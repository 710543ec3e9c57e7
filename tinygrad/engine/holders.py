"""What the engine knows of tensors: objects that hold a node and may be read later."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Self

from tinygrad.engine.alive import Alive
from tinygrad.uop.node import UOp


class Holder:
    """A tensor, as far as the engine cares. (No ABC: `isinstance` would run Python.)"""

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
    def _is_new(self, node: UOp, wants_gradient: bool | None) -> bool:
        """Whether it is as `of` made it: nothing has happened to it."""

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


class Holders(Alive[Holder]):
    """All holders that are alive, in order of creation: equal programs see equal orders."""

    __slots__ = ("_serials",)

    def __init__(self) -> None:
        super().__init__()
        self._serials = itertools.count()

    def add(self, holder: Holder) -> None:
        """Remembers a holder that is complete, while it lives: other threads look at all."""
        holder.serial = next(self._serials)
        super().add(holder)

    def now(self) -> int:
        """A number below those of all holders that will be made from now on."""
        return next(self._serials)

    def since(self, serial: int) -> list[Holder]:
        """Those alive that were made after `now()` gave `serial`."""
        return [holder for holder in self if holder.serial > serial]


holders = Holders()
"""Before a buffer is overwritten those that still need its old value are computed, so that a
program means what its order says."""


class Promised:
    """Whether `some` holders may have no node yet: asked for `_uop` they make it."""

    some: ClassVar[bool] = False


def ask_all() -> None:
    """Every holder has a node from now on, so that graphs say who reads what."""
    if Promised.some:
        Promised.some = False
        for holder in holders:
            _ = holder._uop


surroundings: list[tuple[Any, str]] = []
"""What besides its arguments a function of tensors may look at: modes and defaults, each an
object's attribute. A captured step holds for the surroundings that it was captured in."""


def surroundings_now() -> tuple[Hashable, ...]:
    """Their values."""
    return tuple([getattr(place, name) for place, name in surroundings])
