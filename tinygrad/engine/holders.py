"""What the engine knows of tensors: objects that hold a node and may be read later."""

from __future__ import annotations

import contextlib
import itertools
import threading
from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterator
from itertools import starmap
from typing import Any, ClassVar, Self

from tinygrad.engine.alive import Alive, Reference
from tinygrad.engine.turns import in_turn
from tinygrad.uop.node import UOp


class Holder:
    """A tensor, as the engine sees it. What is abstract here is the whole of what the engine asks
    of a tensor. (Not an ABC: `isinstance` would run Python code.)"""

    __slots__ = ("_grad", "_uop", "requires_grad", "serial", "__weakref__")

    _uop: UOp
    """The node that it represented when last seen. `uop` is the current one: the same, if this is a
    view of unchanged storage."""
    requires_grad: bool | None
    """Whether a gradient is required; None if that is not specified."""
    serial: int
    """In order of creation."""
    _grad: Any
    """The gradient, another holder, or None, to who is not the step's own code."""

    @property
    @abstractmethod
    def has_gradient(self) -> bool:
        """Whether it holds a gradient."""

    @abstractmethod
    def move_gradient_to(self, place: Any) -> None:
        """Makes the holder `place` its gradient, with the value of the one that it has, 0 without
        one."""

    @property
    @abstractmethod
    def uop(self) -> UOp:
        """The node that it represents; a view of storage once it is computed."""

    @classmethod
    @abstractmethod
    def of(cls, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A new holder for a node."""

    @classmethod
    @abstractmethod
    def of_shared(cls, node: UOp, wants_gradient: bool | None, owns_elements: bool) -> Self:
        """A new holder for a view of storage in which others lie, views of it or not;
        `owns_elements` as in another holder."""

    @abstractmethod
    def is_untouched(self, node: UOp, wants_gradient: bool | None) -> bool:
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

    @property
    @abstractmethod
    def owns_elements(self) -> bool:
        """Whether each of its elements is its own, even if they repeat where it lies, as those of a
        constant do."""

    @property
    @abstractmethod
    def lies_in(self) -> UOp:
        """What has to be computed for it to be in memory: of a view that others of its family may
        see through what it is a view of, else `uop`."""

    @property
    @abstractmethod
    def lies_at(self) -> UOp:
        """The view that it is of what the others of its family lie in, too; `uop`, if there are
        none."""

    @abstractmethod
    def settle_family(self, start: int, given: Collection[Hashable]) -> UOp:
        """Called when a step ends that returns this: what to compute, so that its family lies in
        storage if others are in it. A family that began after `start` and is none of `given` gets
        storage of its own where it lies in that of others."""

    @property
    @abstractmethod
    def is_broken(self) -> bool:
        """Whether it is a promise that can't be kept: who asks for its node gets that error."""

    @abstractmethod
    def break_with(self, error: Exception) -> None:
        """Keeps the error that making its node has raised."""

    @abstractmethod
    def copy_out(self, base: UOp) -> None:
        """Called before the version `base` is overwritten. If this is a pending copy of part of it,
        it becomes an expression that reads the old version."""


class Holders(Alive[Holder]):
    """All living holders, in order of creation: equal programs see equal orders. Those that are
    broken stand for nothing, and are left out. `newest`: the serial of the last one."""

    __slots__ = ("_serials", "newest")

    def __init__(self) -> None:
        super().__init__()
        self.newest = -1
        self._serials: Iterator[int] = itertools.count()

    def __iter__(self) -> Iterator[Holder]:
        return (holder for holder in super().__iter__() if not holder.is_broken)

    def add(self, holder: Holder) -> None:
        """Adds a complete holder while it lives: other threads look at all of them."""
        holder.serial = self.newest = next(self._serials)
        self._references[Reference(holder, self._forget)] = True  # as `add`: each comes here

    def now(self) -> int:
        """A number below those of all holders that will be made from now on."""
        return next(self._serials)

    def since(self, serial: int) -> list[Holder]:
        """The living holders that were made after `now()` returned `serial`."""
        return [holder for holder in self if holder.serial > serial]

    @property
    def are_apart(self) -> bool:
        """Whether a thread captures a step, of whose tensors others must compute none."""
        return type(self._serials) is _Apart

    @contextlib.contextmanager
    def apart(self) -> Iterator[set[int]]:
        """A context whose set gets the serials of holders that other threads make meanwhile."""
        before, apart = self._serials, _Apart(self._serials)
        self._serials = apart
        try:
            yield apart.others
        finally:
            self._serials = before


class _Apart:
    """Goes on counting, and notes what it counts for other threads than the one that made it."""

    def __init__(self, serials: Iterator[int]) -> None:
        self.serials, self.thread = serials, threading.get_ident()
        self.others: set[int] = set()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        serial = next(self.serials)
        if threading.get_ident() != self.thread:
            self.others.add(serial)
        return serial


holders = Holders()
"""Before a buffer is overwritten, living holders that need its old value are computed, so that a
program's statements take effect in their order."""


class Promised:
    """Whether `some` holders may have no node yet, and which; reading their `_uop` makes it."""

    some: ClassVar[bool] = False
    holders: ClassVar[Alive[Holder]] = Alive()


def ask_all() -> None:
    """Gives every holder a node, so that graphs show who reads what. One whose node can't be made
    keeps the error to itself."""
    if Promised.some:
        _ask_each()


@in_turn
def _ask_each() -> None:
    Promised.some = False  # before the first is asked: others may be promised meanwhile
    try:
        for holder in Promised.holders:
            try:
                if not holder.is_broken:
                    _ = holder._uop
            except Exception as error:
                holder.break_with(error)
    except BaseException:  # Ctrl-C: some were not asked
        Promised.some = True
        raise


surroundings: list[tuple[Any, str]] = []
"""The modes and defaults, besides its arguments, that a function of tensors may read: each is an
attribute of an object. A captured step is valid for the surroundings in which it was captured."""


def surroundings_now() -> tuple[Hashable, ...]:
    """The values of the surroundings."""
    return tuple(starmap(getattr, surroundings))
