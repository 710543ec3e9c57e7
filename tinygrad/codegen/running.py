"""Running reductions (scans): what their loop carries from turn to turn, and the running values
inside a vector whose lanes lie along the loop. Sums of float32 carry a correction for their
rounding errors; products of floats are made lane by lane, in order."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.codegen.index import Copies
from tinygrad.codegen.linear import Program, Values
from tinygrad.codegen.reduce import PLAIN, Combiner
from tinygrad.loops.nest import Item, NestScope
from tinygrad.loops.roles import role_of, size_of
from tinygrad.simplify.constants import identity
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, Ops


class Running:
    """One RUNNING node. `loop` is the ORDERED loop that carries the accumulators; `others` are the
    ranges whose copies and lanes each have an accumulator of their own."""

    def __init__(self, node: UOp, program: Program, combiner: Combiner) -> None:
        self.node, self.program, self.combiner = node, program, combiner
        counted = node.src[1].ranges
        (self.loop,) = (r for r in counted if role_of(r) == "ORDERED")
        self.lanes = next((r for r in counted if role_of(r) == "VECTOR"), None)
        self.others = tuple(r for r in node.ranges if r not in counted)
        long = node.src[1].vmax >= PLAIN
        self.states = 2 if node.arg == "add" and node.dtype is dtypes.float32 and long else 1
        self.state: Values = []
        self._places: dict[object, int] = {}

    def carries_through(self, item: Item) -> bool:
        """Whether the item is this loop, or one of its turns."""
        return isinstance(item, NestScope) and item.loop is self.loop

    def start(self, copies: Sequence[Copies]) -> Values:
        """The accumulators before the first turn."""
        vector = next((r for r in self.others if role_of(r) == "VECTOR"), None)
        width = 1 if vector is None else size_of(vector)
        self._places = {self._key(each): self.states * i for i, each in enumerate(copies)}
        empty = self.program.widen(identity(self.node.arg, self.node.dtype), width)
        return [empty] * (self.states * len(copies))

    def _key(self, copies: Copies) -> object:
        return tuple(copies.get(r) for r in self.others)

    def take(self, value: UOp, copies: Copies) -> UOp:
        """The running value of one copy, after `value` is taken in."""
        place = self._places[self._key(copies)]
        if self.lanes is None:
            self._carry(place, value)
            return self._sum(self.state[place : place + self.states])
        if MONOIDS[self.node.arg].runs_in_order(self.node.dtype):
            return self._in_turn(place, value)
        before = self.state[place : place + self.states]
        value = self._within(self.program.widen(value, size_of(self.lanes)))
        self._carry(place, self.program.lane(value, size_of(self.lanes) - 1))
        return self._sum([*before, value])

    def _sum(self, parts: Values) -> UOp:
        """The sum of all parts, the small ones first."""
        total = parts[-1]
        for part in reversed(parts[:-1]):
            total = self.combiner.combine(self.node.arg, part, total)
        return total

    def _carry(self, place: int, value: UOp) -> None:
        total = self.state[place]
        if self.states == 2:
            state = self.combiner.add_exactly(total, self.state[place + 1], value)
            self.state[place : place + 2] = state
        else:
            self.state[place] = self.combiner.combine(self.node.arg, total, value)

    def _in_turn(self, place: int, value: UOp) -> UOp:
        """The running values of lanes, one after the other."""
        found = []
        for lane in range(value.dtype.count):
            self._carry(place, self.program.lane(value, lane))
            found.append(self.state[place])
        return self.program.vector(found)

    def _within(self, value: UOp) -> UOp:
        """Lane i becomes the reduction of lanes 0 to i, in log2(lanes) steps (Hillis, Steele,
        1986). Lanes are rotated, and those that wrapped around are masked: shifting in an identity
        takes tens of cycles on some processors."""
        count = value.dtype.count
        reach = 1
        while reach < count:
            lanes = (*range(count - reach, count), *range(count - reach))
            moved = self.program.picked(value, value, lanes)
            both = self.combiner.combine(self.node.arg, moved, value)
            from_below = self.program.vector(
                [UOp.const(dtypes.bool, lane >= reach) for lane in range(count)]
            )
            value = self.program.add(Ops.WHERE, value.dtype, (from_below, both, value))
            reach *= 2
        return value


def running_of(values: Sequence[UOp]) -> UOp | None:
    """The RUNNING node with a loop in order, among what these values depend on; a kernel has at
    most one."""
    found = (n for value in values for n in value.toposort() if n.op is Ops.RUNNING)
    return next((n for n in found if any(role_of(r) == "ORDERED" for r in n.src[1].ranges)), None)
