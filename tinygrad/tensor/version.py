"""What expressions stand on that are no promises: storage as it is now, and values that change from
step to step.

Storage means its contents of the moment. A *version* is a BUFFER and an era, which numbers the
writes to it; the era ends when the bytes are overwritten while the node stays the same, which is
done if nobody else reads it."""

from __future__ import annotations

from typing import Any

from tinygrad.engine.aliases import bottom_of
from tinygrad.engine.numbers import value_of
from tinygrad.engine.storage import NOTHING, Buffer, last_eras
from tinygrad.schedule.bases import beneath
from tinygrad.schedule.strides import steps_between
from tinygrad.tensor.looks import Look, sizes_of
from tinygrad.tensor.modes import recording
from tinygrad.uop import GroupOp, Ops, UOp


class Version:
    """What a tensor of storage stands for now: the BUFFER `base`, as `view` shows it in boxes that
    have their `begins`, until the end of its era. A constant has no storage, and no end. `start`:
    the number of the tensor that gradients go to, if they are wanted; this one is it, or a view of
    it. A look ends there: it doesn't say how the start is a view of storage, and a `row` does.
    `silent`: the same under `no_grad`, where a start is none. `newest`: the tensor's number."""

    __slots__ = (
        *("view", "base", "era", "begins", "row"),
        *("start", "is_start", "wants", "records", "look", "silent", "newest"),
    )
    depth = number = 0

    def __init__(self, tensor: Any, view: UOp, base: UOp, look: Look, era: int) -> None:
        self.view, self.base, self.look, self.era = view, base, look, era
        self.begins = tuple([begin for box in boxes_of(view) for begin, _ in box.arg])
        self.wants, self.records = tensor.requires_grad, recording.on
        self.is_start = self.wants is True and self.records and not tensor._taped
        self.start = tensor.serial if self.is_start else _start_below(view)
        self.row = (look, None) if self.start is None else (look, *_order_of(view))
        self.silent: Version | None = None
        self.newest = tensor.serial

    @property
    def buffer(self) -> Buffer:
        """Where it lies; of a constant, and of a list that isn't copied yet, NOTHING."""
        storage = self.base.storage
        return NOTHING if storage is None and self.base.op in (Ops.CONST, Ops.COPY) else storage

    @property
    def is_over(self) -> bool:
        """Whether the bytes were overwritten, or are to be."""
        buffer = self.buffer
        return buffer is None or buffer.era != self.era or self.base.newer is not None

    @property
    def node(self) -> UOp:
        """The node to build on. Of bytes that were overwritten one that can't be read."""
        view, buffer = self.view, self.buffer
        last = last_eras.get(self.base, self.era) if buffer is None else buffer.era
        if last != self.era:
            gone = UOp.new_buffer(self.base.device, self.base.arg, self.base.dtype)
            view = gone.moved_by(steps_between(view, self.base))
        if not self.is_start or self.start is None:
            return view
        return view.detach(start_node(self.start))

    def now(self, tensor: Any) -> Version | None:
        """This, or the same in a later era; None if the tensor stands for something else now."""
        view, base = self.view, self.base
        if self.wants is True and recording.on is not self.records:
            silent = self.silent
            if silent is None or recording.on:
                return None
            self.silent = silent.now(tensor)
            return self.silent
        if (
            view is not tensor._uop
            or tensor.requires_grad is not self.wants
            or view.known is not None
            or base.known is not None
            or base.newer is not None
        ):
            return None
        buffer = base.storage
        if buffer is None and (buffer := self.buffer) is None:
            return None
        if buffer.era == self.era:
            return self
        is_start = self.wants is True and self.records and not tensor._taped
        is_same = is_start is self.is_start
        era = buffer.era
        later = self._in_era(era) if is_same else Version(tensor, view, base, self.look, era)
        if tensor._source is self:  # else another thread, which can't run in between, has written
            tensor._source = later
        return later

    def takes(self, other: Version) -> bool:
        """Keeps the same under `no_grad`, if that is `other`; if this is, the other one does."""
        if other.wants is True and other.records is not self.records:
            if self.records:
                self.silent = other
                return True
            other.silent = self
        return False

    def in_storage(self, base: UOp) -> Version:
        """The same, of a copy that is in this storage now."""
        there = self._in_era(self.era if base.storage is None else base.storage.era)
        there.base = base
        return there

    def _in_era(self, era: int) -> Version:
        """The same in a later era. (Copied field by field: each step asks for this once for most of
        its tensors.)"""
        later = object.__new__(Version)
        later.view, later.base, later.look, later.era = self.view, self.base, self.look, era
        later.begins, later.row, later.start = self.begins, self.row, self.start
        later.wants, later.records, later.is_start = self.wants, self.records, self.is_start
        later.silent, later.newest = self.silent, self.newest
        return later


def start_node(serial: int) -> UOp:
    """What stands in a graph for the tensor of this number as a start, in all its versions."""
    return UOp(Ops.UNIQUE, arg=("start", serial))


def is_start_of(node: UOp) -> bool:
    """Whether a tensor as a start stands for itself here."""
    return node.op is Ops.DETACH and len(node.src) > 1 and node.src[1].op is Ops.UNIQUE


def _start_below(view: UOp) -> int | None:
    """The number of the tensor that gradients by a view of storage go to."""
    end = beneath(view, GroupOp.Movement)
    return end.src[1].arg[1] if is_start_of(end) else None


def _order_of(view: UOp) -> tuple[Any, ...]:
    """How elements of storage are chosen and exchanged in a view; nothing if they lie in a row."""
    steps = steps_between(view, bottom_of(view))
    if all([step.op in (Ops.RESHAPE, Ops.DETACH) for step in steps]):
        return ()
    return tuple([(s.op, sizes_of(s.arg) if s.op is Ops.SHRINK else s.arg) for s in steps])


def boxes_of(view: UOp) -> list[UOp]:
    """The boxes through which a view shows storage."""
    return [step for step in steps_between(view, bottom_of(view)) if step.op is Ops.SHRINK]


class Bound:
    """A variable and its value: a stream's seed, and where it was drawn from; or a constant that
    changes. It has no storage and no end; the value is no part of lines, and is given to plans.
    There is one of a node."""

    __slots__ = ("node", "look", "value")
    depth = number = newest = 0
    buffer = NOTHING

    def __init__(self, node: UOp, look: Look) -> None:
        self.node, self.look = node, look
        self.value = value_of(node) if node.op is Ops.CONST else node.val
