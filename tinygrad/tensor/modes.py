"""Modes that last for a `with`: each thread has its own. `Tensor.training` can be assigned, too,
which is for all threads; and as that is an attribute of a class, nothing is told of it."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from tinygrad.base.endings import Ending
from tinygrad.base.locks import ForkSafeLock
from tinygrad.base.settings import TRAINING


class _Recording(threading.local):
    """Whether this thread records what gradients follow: it doesn't under `no_grad`. `inside`:
    it runs an expression, of which all is part that others make. `writes`: a write may be promised;
    it isn't where a step goes its long way. `in_body`: it runs the body of a loop, whose values
    nobody can compute. `training`: what `Tensor.train` said, if anything."""

    on: bool = True
    training: bool | None = None
    inside: bool = False
    writes: bool = True
    in_body: bool = False

    @property
    def computes(self) -> bool:
        """Whether what nobody asks for may be computed now."""
        return not (self.inside or self.in_body)

    @contextlib.contextmanager
    def body(self) -> Iterator[None]:
        """A context in which the body of a loop is run."""
        before, self.in_body = self.in_body, True
        try:
            yield
        finally:
            self.in_body = before

    @contextlib.contextmanager
    def expression(self) -> Iterator[None]:
        """A context in which an expression is run."""
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before

    @contextlib.contextmanager
    def written_down(self, followed: bool | None) -> Iterator[None]:
        """A context in which writes have nodes, which gradients follow if they are `followed`; None
        leaves that as it is."""
        before = self.on, self.writes
        self.on, self.writes = self.on if followed is None else followed, False
        try:
            yield
        finally:
            self.on, self.writes = before


recording = _Recording()


class Training:
    """`Tensor.training`: what this thread says (`with Tensor.train()`), else what was assigned,
    else what `Context(TRAINING=1)` says.

    An assignment takes this one's place in the class. As it would hide what threads say, it is put
    aside while any says something. A Ctrl-C that comes meanwhile may leave it aside, where it is
    found as well.

    >>> Tensor.training
    False
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock(threading.Lock)
        self._inside = 0  # threads' contexts
        self._assigned: tuple[Any, bool] | None = None

    def __get__(self, tensor: object, owner: type) -> bool:
        said = recording.training
        if said is not None:
            return said
        return bool(TRAINING.value) if self._assigned is None else self._general(owner)

    def _general(self, owner: type) -> bool:
        """What was assigned; it may just have been put back, and deleted since."""
        with self._lock.now:
            assigned = self._assigned if self._inside else self._found(owner)
        return bool(TRAINING.value if assigned is None else assigned[1])

    def enter(self, owner: type) -> None:
        """Puts aside what was assigned, so that what threads say is seen."""
        with self._lock.now:
            found = self._found(owner)
            if self._inside == 0 or found is not None:
                self._assigned = found
            self._inside += 1
            self._drop(found)

    def leave(self, owner: type) -> None:
        """Drops what was assigned inside. The last one puts back what was before."""
        with self._lock.now:
            self._drop(self._found(owner))
            self._inside -= 1
            if self._inside == 0 and self._assigned is not None:
                holder, value = self._assigned
                holder.training = value

    def _found(self, owner: type) -> tuple[Any, bool] | None:
        """The class to which something was assigned, and what."""
        holder = next(each for each in owner.__mro__ if "training" in vars(each))
        value = vars(holder)["training"]
        return None if value is self else (holder, value)

    def _drop(self, found: tuple[Any, bool] | None) -> None:
        if found is not None:
            del found[0].training


training = Training()


class During(contextlib.ContextDecorator, Ending):
    """While it lasts, this thread's `recording` has `value` under a name; `owner` is the class
    whose `training` that is."""

    def __init__(self, name: str, value: bool, owner: type | None = None) -> None:
        self.name, self.value, self.owner = name, value, owner

    def _recreate_cm(self) -> During:  # of a decorated function each call, in any thread
        return During(self.name, self.value, self.owner)

    def __enter__(self) -> During:
        said, name = recording.__dict__, self.name
        ends = [functools.partial(said.__setitem__, name, getattr(recording, name))]
        if self.owner is not None:
            training.enter(self.owner)
            ends.append(functools.partial(training.leave, self.owner))
        self.at_end(*ends)
        said[name] = self.value
        return self
