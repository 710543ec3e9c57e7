"""What a captured step does to `.grad` of tensors from before it. What comes to a gradient is added
where it lies, but the first is bound, so replays have to bind it as the step did, and find what the
step found.

Noted is for each tensor: whether the step read the gradient that it found (then a replay finds the
present one there), whether it made the first one (then a replay must find none, or it would have to
add), whether its own code looked if there is one (then a replay must find the same), whether it set
it to None first (then it doesn't matter), and what the step left: the old one, one that it made,
another tensor or none."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tinygrad.base.errors import JitError, TinygradError
from tinygrad.engine.holders import Holder, holders
from tinygrad.engine.realize import own_copy
from tinygrad.engine.storage import Buffer, realized_buffer


def given_since(start: int) -> set[int]:
    """The numbers of the gradients that were made after `holders.now()` returned `start`."""
    return {h._grad.serial for h in holders if h.has_gradient and h._grad.serial > start}


class _Read(NamedTuple):
    """A tensor whose gradient the step read, that gradient, and whether it wrote there."""

    holder: weakref.ref[Holder]
    place: Any
    adds: bool


class Gradients:
    """The gradients of a step; its own tensors have numbers from `start` on. `own` are the numbers
    of those that the call before it left. One that the step finds as it left it, and replaces, is
    nobody else's: replays don't keep its memory for it."""

    def __init__(self, own: Collection[int]) -> None:
        self._own = own
        self._before = [(weakref.ref(h), h._grad) for h in holders if h.has_gradient]
        for _, grad in self._before:
            with contextlib.suppress(TinygradError):  # whoever reads it gets the error
                if realized_buffer(grad.uop) is None:  # a constant: zeros
                    grad.hold(own_copy(grad.uop))
        self.start = 0
        self._firsts: list[weakref.ref[Holder]] = []
        self._seen: list[weakref.ref[Holder]] = []
        self._cleared: list[weakref.ref[Holder]] = []
        self._set: dict[int, weakref.ref[Holder]] = {}  # by this thread, by ids
        self._reads: list[_Read] = []
        self._made: list[weakref.ref[Holder]] = []  # theirs are the last results of the step
        self._left: list[tuple[weakref.ref[Holder], Any]] = []  # or made, but nobody keeps them
        self.places = {id(grad) for _, grad in self._before}  # the gradients from before the step

    @property
    def left(self) -> set[int]:
        """The ids of those that it made, or found, and replays don't make."""
        return {id(grad) for _, grad in self._left}

    def begins(self, holder: Holder) -> None:
        """The step looked for the gradient of this tensor, which has none, or gives it one."""
        if self._is_first(holder):
            self._firsts.append(weakref.ref(holder))

    def sees(self, holder: Holder) -> None:
        """The step's own code looks if there is a gradient."""
        if not holder.has_gradient:
            self.begins(holder)
        elif holder._grad.serial < self.start and not _is_among(holder, self._seen):
            self._seen += [ref for ref, grad in self._before if grad is holder._grad]

    def sets(self, holder: Holder, gradient: Any) -> None:
        """The step is about to give a tensor this gradient, or none."""
        self._set[id(holder)] = weakref.ref(holder)
        if gradient is None and holder._grad is None and self._is_first(holder):
            self._cleared.append(weakref.ref(holder))

    def _is_first(self, holder: Holder) -> bool:
        """Whether a tensor from before the step had no gradient, and the step comes to it first."""
        known = [*[ref for ref, _ in self._before], *self._firsts, *self._cleared]
        return holder.serial < self.start and not _is_among(holder, known)

    def made(self, state: Collection[Buffer]) -> list[Any]:
        """The gradients, but those that were given before, that the step, which has ended, made for
        tensors from before it; `state` is what it has read so far."""
        before = {id(ref()): grad for ref, grad in self._before}
        earlier = [h for h in _alive(self._set.values()) if h.serial < self.start]
        changed = [h for h in earlier if h._grad is not before.get(id(h))]
        kept = {id(h) for h in _alive(self._made)}
        fresh = [h for h in changed if h.has_gradient and h._grad.serial >= self.start]
        found = []
        for h in fresh:
            old: Any = before.get(id(h))
            is_own = old is not None and old.serial in self._own
            if id(h) not in kept and not (is_own and not _is_in(old, state)):
                self._made.append(weakref.ref(h))
                found.append(h._grad)
        kept = {id(h) for h in _alive(self._made)}
        gone = [h for h in _alive(self._cleared) if not h.has_gradient]
        self._left = [(weakref.ref(h), h._grad) for h in (*changed, *gone) if id(h) not in kept]
        return found

    def note(self, states: Collection[Buffer], written: Collection[Buffer]) -> None:
        """Notes which of the old gradients are among the buffers that the step knew, or wrote."""
        for ref, grad in self._before:
            if _is_in(grad, states):
                self._reads.append(_Read(ref, grad, _is_in(grad, written)))
        self._before.clear()

    # ---- replays -------------------------------------------------------------------------------

    def find(self, name: str) -> None:
        """Before a replay: gradients that the step reads must be where it read them, and tensors
        that it gives a first one must have none."""
        for seen in _alive(self._seen):
            if not seen.has_gradient:
                raise JitError(
                    f"{name}: a tensor of shape {seen.uop.shape} has no .grad, and had one when "
                    "the call was captured that looked for it; give it one, or call reset() to "
                    "capture again"
                )
        for reference, place, adds in self._reads:
            holder = reference()
            if holder is None or holder._grad is place:
                continue
            if not (adds or holder.has_gradient):
                raise JitError(
                    f"{name}: a tensor of shape {holder.uop.shape} has no .grad, which the "
                    "captured call read; give it one, or call reset() to capture again"
                )
            holder.move_gradient_to(place)
        for holder in _alive(self._firsts):
            if holder.has_gradient:
                raise JitError(
                    f"{name}: a tensor of shape {holder.uop.shape} has a .grad, and had none "
                    "when the call was captured that looked for it: replays don't know whether to "
                    "add to it; legal is zero_grad() before each call, or reset() to capture again"
                )

    def leave(self, found: Sequence[Any]) -> None:
        """After a replay, of which these are all results."""
        if not self._made and not self._left:
            return
        made = found[len(found) - len(self._made) :]
        for reference, grad in (*zip(self._made, made, strict=True), *self._left):
            if (holder := reference()) is not None:
                holder._grad = grad

    def __bool__(self) -> bool:
        return bool(self._reads or self._firsts or self._seen or self._made or self._left)


def _is_in(holder: Holder, buffers: Collection[Buffer]) -> bool:
    buffer = realized_buffer(holder.uop)
    return buffer is not None and buffer in buffers


def _is_among(holder: Holder, references: Sequence[weakref.ref[Holder]]) -> bool:
    return any(ref() is holder for ref in references)


def _alive(references: Iterable[weakref.ref[Holder]]) -> Iterator[Holder]:
    return (holder for ref in references if (holder := ref()) is not None)
