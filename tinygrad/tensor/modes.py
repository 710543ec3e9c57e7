"""Modes that last for a `with`: each thread has its own. `Tensor.training` can be assigned, too,
which is for all threads; and as that is an attribute of a class, nothing is told of it."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from tinygrad.base.locks import ForkSafeLock
from tinygrad.base.settings import TRAINING
from tinygrad.tensor.promise import recording


class Training:
    """`Tensor.training`: what this thread says (`with Tensor.train()`), else what was assigned,
    else what `Context(TRAINING=1)` says.

    An assignment takes this one's place in the class. As it would hide what threads say, it is put
    aside while any says something.

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
            assigned = self._taken(owner)
            if self._inside == 0 or assigned is not None:
                self._assigned = assigned
            self._inside += 1

    def leave(self, owner: type) -> None:
        """Drops what was assigned inside. The last one puts back what was before."""
        with self._lock.now:
            self._taken(owner)
            self._inside -= 1
            if self._inside == 0 and self._assigned is not None:
                holder, value = self._assigned
                holder.training = value

    def _found(self, owner: type) -> tuple[Any, bool] | None:
        """The class to which something was assigned, and what."""
        holder = next(each for each in owner.__mro__ if "training" in vars(each))
        value = vars(holder)["training"]
        return None if value is self else (holder, value)

    def _taken(self, owner: type) -> tuple[Any, bool] | None:
        found = self._found(owner)
        if found is not None:
            delattr(found[0], "training")
        return found


training = Training()


class During(contextlib.ContextDecorator):
    """While it lasts, this thread's `recording` has `value` under a name; `owner` is the class
    whose `training` that is."""

    def __init__(self, name: str, value: bool, owner: type | None = None) -> None:
        self.name, self.value, self.owner = name, value, owner
        self.before: list[Any] = []

    def _recreate_cm(self) -> During:  # of a decorated function each call, in any thread
        return During(self.name, self.value, self.owner)

    def __enter__(self) -> During:
        self.before.append(getattr(recording, self.name))
        if self.owner is not None:
            training.enter(self.owner)
        # no call of `setattr`, so that no Ctrl-C comes before the `with` begins
        recording.__dict__[self.name] = self.value
        return self

    def __exit__(self, *exception: object) -> None:
        # first, and without a call: Ctrl-C may come at the next
        recording.__dict__[self.name] = self.before[-1]
        self.before.pop()
        if self.owner is not None:
            training.leave(self.owner)
