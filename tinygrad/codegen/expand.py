"""From the loop tree to instructions: loops are opened and closed as the tree says. Other files
write the contents: `evaluate` values, `leaves` stores, `accumulators` reductions, and `fragments`
reductions by a matrix unit that lanes share."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence

from tinygrad.base.errors import ArgumentError
from tinygrad.codegen.access import fill_of
from tinygrad.codegen.accumulators import Accumulators, Maxima, StagedSums, staged_tiles
from tinygrad.codegen.ahead import ahead_of
from tinygrad.codegen.evaluate import Evaluator
from tinygrad.codegen.fragments import Sums
from tinygrad.codegen.leaves import Body, Leaves, Put
from tinygrad.codegen.linear import Number, Values
from tinygrad.loops.layout import accumulates, holds_tiles, overlaps, term_of
from tinygrad.loops.matrix_units import UNITS
from tinygrad.loops.nest import Branch, Copy, Fill, Given, Item, Leaf, Loop, NestScope, Reduce
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.uop import Ops, UOp


class Expansion:
    """Walks one phase of a kernel. `given` maps the loops that the launch counts, tasks and lanes,
    to their counters."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.program, self.integers = evaluator.program, evaluator.integers
        self.lanes = evaluator.lanes
        self.given: dict[UOp, Number] = self.lanes.counters()
        self.stores: Mapping[str, Body] = {}  # bodies that may be inside the loops of others

    def run(self, root: NestScope, bodies: Mapping[str, Body]) -> None:
        """Walks the whole tree and calls, at each leaf, the body of its kind. The bodies of stages
        that are filled on the way are made here."""
        self.stores = {kind: body for kind, body in bodies.items() if kind != "fill"}
        self._walk(root.items, [], next(iter(bodies.values())))

    def none_negative(self, numbers: Sequence[UOp]) -> UOp | None:
        """Whether no expression of the tasks' counters is negative; None if there are no
        expressions."""
        found: UOp | None = None
        with contextlib.ExitStack() as tasks:
            for loop in (r for r in self.given if role_of(r) == "PARALLEL"):
                last = size_of(loop) - 1
                tasks.enter_context(self.integers.counting([loop], self.given[loop], 0, last, True))
            for each in numbers:
                fine = self.program.test(Ops.CMPLT, -1, self.integers.scalar(each, {}))
                found = self.program.both(found, fine)
        return found

    def _walk(self, items: Sequence[Item], values: Values, body: Body) -> Values:
        evaluator, running = self.evaluator, self.evaluator.running
        if running is not None and any(running.carries_through(item) for item in items):
            outer, values = values, running.start(evaluator.copies_of(running.others, {}))
        else:
            running = None
        filled: set[UOp] = set()  # stages that other lanes may still be reading
        for item in items:
            if self._meets(item, filled):
                self.lanes.barrier(filled)
                filled.clear()
            if isinstance(item, Leaf):
                before, evaluator.filling = evaluator.filling, item.filling
                values = self.stores.get(item.kind, body)(values)
                evaluator.filling = before
            elif isinstance(item, Loop):
                values = self._loop(item, values, body)
            elif isinstance(item, (Copy, Given)):
                values = self._place(item, values, body)
            elif isinstance(item, Branch):
                self._branch(item, body)
            elif isinstance(item, Reduce):
                self._reduce(item)
            else:
                assert isinstance(item, Fill)
                self.fill(item)
                if self.lanes.block.shares(item.stage):
                    filled.add(item.stage)
        if filled:
            self.lanes.barrier(filled)
        return values if running is None else outer

    def _meets(self, item: Item, filled: set[UOp]) -> bool:
        """Whether lanes must synchronise before this item: to read what others filled, or to fill
        again what others may still read. Stages that don't read each other are filled together."""
        if not isinstance(item, Fill) or accumulates(item.stage):
            return bool(filled)
        if not filled:
            return self.lanes.block.shares(item.stage)
        return any(node in filled for node in item.stage.src[0].toposort())

    # ---- loops -----------------------------------------------------------------------------------

    def _loop(self, item: Loop, values: Values, body: Body) -> Values:
        loop = item.loop
        assert loop is not None
        begin, end = self._turns(loop, item)
        ahead = ahead_of(self.evaluator, item, end, self.fill)
        if ahead is not None:
            ahead.first()
        counter, carries = self.program.open_loop(begin, end, name_of(loop), values)
        with self.integers.counting([loop], counter, item.low, item.high, item.guarded):
            if ahead is None:
                following = self._walk(item.items, carries, body)
            else:
                rest = ahead.rest
                following = ahead.turn(counter, lambda: self._walk(rest, carries, body))
        self.program.close(following)
        return carries

    def _turns(self, loop: UOp, item: Loop) -> tuple[Number, Number]:
        """The begin and end of a loop."""
        end: Number = item.high + 1
        for limit in item.ends:
            self._check_counted(loop, limit)
            end = self.program.smaller(end, self.integers.scalar(limit, {}))
        if any(self.integers.interval(limit, {})[0] <= item.low for limit in item.ends):
            end = self.program.larger(end, item.low + 1)  # at least one turn
        begin: Number = item.low
        if item.start is not None:  # clamped into the loop, so that there is a turn
            begin = self.program.larger(item.low, self.integers.scalar(item.start, {}))
            begin = self.program.smaller(begin, item.high)
            end = self.program.larger(end, self.program.integer(Ops.ADD, begin, 1))
        return begin, end

    def _check_counted(self, loop: UOp, limit: UOp) -> None:
        """A loop that runs must not have an end that differs between copies or lanes of another."""
        for outer in limit.ranges:
            if outer not in self.integers.bound:
                inner, kind = name_of(loop), role_of(outer)
                raise ArgumentError(
                    f"role of {name_of(outer)!r}: {inner!r}, which is run, ends where it says, so "
                    f"it can't be {kind}; legal is LOOP, or UNROLL for {inner!r} too"
                )

    def _place(self, item: Copy | Given, values: Values, body: Body) -> Values:
        loop = item.loop
        assert loop is not None
        value: Number = item.low if isinstance(item, Copy) else self.given[loop]
        guarded = isinstance(item, Given) or item.guarded
        high = max(item.high, self.integers.lanes_of.get(loop, 0) - 1)
        self.program.open()
        with self.integers.counting([loop], value, item.low, high, guarded):
            values = self._walk(item.items, values, body)
        self.program.close()
        return values

    def _branch(self, item: Branch, body: Body) -> None:
        loop = item.arms[0].loop
        assert loop is not None
        task, program = self.given[loop], self.program
        first, last = item.arms[0].low, item.arms[-1].high
        for arm in item.arms:
            here: UOp | None = None
            if arm.low == arm.high:
                here = program.test(Ops.CMPEQ, task, arm.low)
            else:
                if arm.low > first:
                    here = program.test(Ops.CMPLT, arm.low - 1, task)
                if arm.high < last:
                    here = program.both(here, program.test(Ops.CMPLT, task, arm.high + 1))
            if arm.items:
                with program.branch(here):
                    self._place(arm, [], body)

    # ---- reductions and stages -------------------------------------------------------------------

    def _reduce(self, item: Reduce) -> None:
        """The accumulators of several REDUCEs run through the loops together."""
        maxima = Maxima(self.evaluator, item.nodes)
        sums = [maxima, *(self._sums(node) for node in item.nodes)]
        starts = [each.start() for each in sums]
        ends = [*itertools.accumulate(map(len, starts), initial=0)]

        def shares(values: Values) -> list[Values]:
            return [values[low:high] for low, high in itertools.pairwise(ends)]

        def take(values: Values) -> Values:
            taken = (each.take(own) for each, own in zip(sums, shares(values), strict=True))
            return [*itertools.chain.from_iterable(taken)]

        results = self._walk(item.items, [*itertools.chain.from_iterable(starts)], take)
        for each, own in zip(sums, shares(results), strict=True):
            each.keep(own)

    def _sums(self, node: UOp) -> Sums | Accumulators:
        value = term_of(node)
        in_warps = value.op is Ops.WMMA and UNITS[value.arg].held is not None
        return Sums(self.evaluator, node) if in_warps else Accumulators(self.evaluator, node)

    def fill(self, item: Fill) -> None:
        """A stage gets its values, or takes them into the accumulators that it holds."""
        stage = item.stage
        if accumulates(stage):
            if holds_tiles(stage):
                self._walk(item.items, [], staged_tiles(self.evaluator, stage))
                return
            sums = StagedSums(self.evaluator, stage)
            self._walk(item.start, [], sums.starting())
            self._walk(item.items, [], sums.take)
            return
        leaves = Leaves(own_ranges(stage), [fill_of(stage)])
        self._walk(item.items, [], Put(self.evaluator, leaves, padded=not overlaps(stage)))
