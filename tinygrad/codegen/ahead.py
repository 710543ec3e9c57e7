"""Loops whose stages are filled some turns before they are read (software pipelining). Each turn
fills the next place of the stages' arrays.

Writers and readers must synchronise. If all lanes fill, they meet at one barrier each turn: after
it the turn's place is full, and the place that is filled next is no longer read. If an engine
copies boxes that one lane asks for, each place has two signals instead: that it is full, and that
its readers are far enough for another place to be free. Then lanes never meet, and only the lane
that asks for boxes waits.

A matrix unit that reads the stages itself may still be working on the previous turn when its lanes
go on, if the arrays have room for that (`late`). The place that is filled next is then the one of
the turn before it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import ceildiv
from tinygrad.codegen.addresses import is_swizzled, slot_of
from tinygrad.codegen.boxes import Boxes, boxes_of
from tinygrad.codegen.evaluate import Evaluator
from tinygrad.codegen.linear import Number, Values, as_node
from tinygrad.loops.layout import option
from tinygrad.loops.nest import Fill, Item, Leaf, Loop
from tinygrad.uop import Ops, UOp


def _filled_ahead(item: Loop) -> list[Fill]:
    """The stages in this loop that are filled some turns ahead: those with this option, unless one
    of them reads a stage that is filled beside it, or the loop starts late."""
    fills = [each for each in item.items if isinstance(each, Fill)]
    deep = [fill for fill in fills if option(fill.stage, "depth", 1) > 1]
    inside = {fill.stage for fill in fills}
    alone = all(inside.isdisjoint(fill.stage.src[0].toposort()) for fill in deep)
    return deep if alone and item.start is None else []


class Filled(NamedTuple):
    """A loop, its end, and the stages in it that are filled some turns ahead."""

    item: Loop
    end: Number
    fills: Sequence[Fill]


def ahead_of(
    owner: Evaluator, item: Loop, end: Number, write: Callable[[Fill], None]
) -> Ahead | None:
    """How stages are filled ahead in this loop; None if none is. `write` emits the fill of one
    stage by all lanes."""
    loop = Filled(item, end, _filled_ahead(item))
    if not loop.fills:
        return None
    boxes = [boxes_of(fill.stage) for fill in loop.fills]
    found = [each for each in boxes if each is not None]
    engine = "box_copy" in owner.target.native and owner.target.aligned
    if engine and len(found) == len(boxes) and not owner.program.in_loop:
        return ByBoxes(owner, loop, found)
    return ByLanes(owner, loop, write)


class Ahead(ABC):
    """The steps of such a loop, which `Expansion` opens and closes."""

    def __init__(self, owner: Evaluator, loop: Filled) -> None:
        self.owner = owner
        self.item, self.end, self.fills = loop
        self.stages = [fill.stage for fill in self.fills]
        self.slots = list(map(slot_of, self.stages))
        self.depth = min(int(option(stage, "depth")) for stage in self.stages)
        self.rest: list[Item] = [each for each in self.item.items if each not in self.fills]
        is_short = all(isinstance(each, Leaf) for each in self.rest)
        self.late = self.depth > 2 and is_short and all(map(is_swizzled, self.stages))
        self.early = self.depth - 1 - self.late  # turns that are filled before they are read

    @abstractmethod
    def prepare(self) -> None:
        """Before the first fill."""

    @abstractmethod
    def see(self, done: UOp) -> None:
        """A turn begins after `done` others: waits until its stages are filled."""

    @abstractmethod
    def fill(self, done: Number, turn: Number, slot: Number) -> None:
        """Fills the stages for a turn, if there is such a turn; `done` turns are over when the
        current one begins."""

    @abstractmethod
    def leave(self, done: UOp) -> None:
        """A turn is over."""

    def first(self) -> None:
        """The fills before the loop."""
        self.prepare()
        for turn in range(self.early):
            self.fill(-1, self.item.low + turn, turn)

    def turn(self, counter: UOp, rest: Callable[[], Values]) -> Values:
        """One turn of the loop: waits for its stages, lets `rest` read them, and fills the stages
        of a later turn. That fill comes before `rest`; or after it, if the products of this turn
        are still running then."""
        owner, program = self.owner, self.owner.program
        done = as_node(program.integer(Ops.ADD, counter, -self.item.low))
        self.see(done)
        if not self.late:
            self.following(done, counter)
        slot = program.divided(Ops.MOD, done, self.depth)
        with owner.integers.counting(self.slots, slot, 0, self.depth - 1):
            before, owner.is_late = owner.is_late, self.late
            found = rest()
            owner.is_late = before
        if self.late:
            self.following(done, counter)
            program.effect(Ops.WAIT, dtypes.void, (), ("products", 1))
        self.leave(done)
        return found

    def following(self, done: UOp, counter: UOp) -> None:
        """The fill of a later turn."""
        program = self.owner.program
        place = program.integer(Ops.ADD, done, self.early)
        slot = place if isinstance(place, int) else program.divided(Ops.MOD, place, self.depth)
        self.fill(done, program.integer(Ops.ADD, counter, self.early), slot)

    def never(self, turn: Number) -> bool:
        """Whether there is certainly no such turn."""
        return isinstance(turn, int) and isinstance(self.end, int) and turn >= self.end

    @contextlib.contextmanager
    def _in(self, turn: Number, slot: Number, only: UOp | None = None) -> Iterator[None]:
        """A context in which stages are filled for a turn, if there is such a turn."""
        program, integers, item = self.owner.program, self.owner.integers, self.item
        assert item.loop is not None
        if isinstance(turn, UOp) or isinstance(self.end, UOp):
            only = program.both(only, program.test(Ops.CMPLT, turn, self.end))
        with (
            program.branch(only),
            integers.counting([item.loop], turn, item.low, item.high),
            integers.counting(self.slots, slot, 0, self.depth - 1),
        ):
            yield

    def _effect(self, op: Ops, src: tuple[UOp, ...], arg: object) -> None:
        self.owner.program.effect(op, dtypes.void, src, arg)


class ByLanes(Ahead):
    """All lanes fill, and synchronise at barriers."""

    def __init__(self, owner: Evaluator, loop: Filled, write: Callable[[Fill], None]) -> None:
        super().__init__(owner, loop)
        self.write = write

    def prepare(self) -> None:
        self.owner.lanes.barrier()

    def see(self, done: UOp) -> None:
        self._effect(Ops.WAIT, (), ("copies", self.early - 1))
        self.owner.lanes.barrier(self.stages)

    def fill(self, done: Number, turn: Number, slot: Number) -> None:
        if not self.never(turn):
            before, self.owner.is_ahead = self.owner.is_ahead, True
            with self._in(turn, slot):
                for fill in self.fills:
                    self.write(fill)
            self.owner.is_ahead = before
        self._effect(Ops.COMMIT, (), "copies")

    def leave(self, done: UOp) -> None:
        """Nothing to do: the barrier of the next turn follows."""


class ByBoxes(Ahead):
    """The first lane requests the boxes, and every warp signals its progress."""

    def __init__(self, owner: Evaluator, loop: Filled, boxes: Sequence[Boxes]) -> None:
        super().__init__(owner, loop)
        self.boxes = boxes
        lanes, program = owner.lanes, owner.program
        size, warp = lanes.block.size, max(1, owner.target.warp)
        name = f"signals{program.serial()}"
        self.signals = program.argument(Ops.LOCAL, dtypes.uint64, (name, 2 * self.depth))
        self.first_lane = program.test(Ops.CMPEQ, lanes.flat(), 0)
        self.leads = program.test(Ops.CMPEQ, lanes.part(1, min(warp, size)), 0)
        self.warps = ceildiv(size, warp)

    def _signal(self, slot: Number, which: int) -> UOp:
        """A slot's signal: that it is full (0), or that its readers have left it (1)."""
        program = self.owner.program
        place = program.integer(Ops.ADD, slot, which * self.depth)
        return program.add(Ops.INDEX, dtypes.uint64, (self.signals, as_node(place)))

    def prepare(self) -> None:
        with self.owner.program.branch(self.first_lane):
            for which, arrivals in enumerate((1, self.warps)):
                for slot in range(self.depth):
                    self._effect(Ops.SIGNAL, (self._signal(slot, which),), arrivals)
        self._effect(Ops.FENCE, (), None)
        self.owner.lanes.barrier()

    def _turn_of(self, done: UOp, offset: int = 0) -> tuple[UOp, UOp]:
        """The slot of a turn, and whether its signals are in an odd round."""
        program = self.owner.program
        place = as_node(program.integer(Ops.ADD, done, offset))
        round_ = program.divided(Ops.IDIV, place, self.depth)
        return program.divided(Ops.MOD, place, self.depth), program.divided(Ops.MOD, round_, 2)

    def see(self, done: UOp) -> None:
        slot, odd = self._turn_of(done)
        self._effect(Ops.WAIT, (self._signal(slot, 0), odd), ("signal", 0))

    def fill(self, done: Number, turn: Number, slot: Number) -> None:
        if self.never(turn):
            return
        with self._in(turn, slot, self.first_lane):
            if isinstance(done, UOp):
                self._wait_for_readers(done)
            signal = self._signal(slot, 0)
            self._effect(Ops.COMMIT, (signal,), sum(each.nbytes for each in self.boxes))
            for each in self.boxes:
                each.fetch(self.owner.addresses, signal)

    def _wait_for_readers(self, done: UOp) -> None:
        """Waits until all warps have left the turn before the current one. In the first turn there
        is none: a fresh signal counts as having completed an odd round."""
        program = self.owner.program
        slot, odd = self._turn_of(done, self.depth - 1)
        before = program.add(Ops.XOR, dtypes.index, (odd, as_node(1)))
        self._effect(Ops.WAIT, (self._signal(slot, 1), before), ("signal", 0))

    def leave(self, done: UOp) -> None:
        slot, _ = self._turn_of(done)
        signal = self._signal(slot, 1)
        with self.owner.program.branch(self.leads):
            self._effect(Ops.COMMIT, (signal,), 0)
