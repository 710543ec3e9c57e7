"""Reductions, turn by turn: accumulators in registers, for each copy of what a REDUCE depends on,
or in a stage, where the loops that it reduces are around the stage's.
"""

from __future__ import annotations

from tinygrad.base.dtype import dtypes
from tinygrad.codegen.access import around
from tinygrad.codegen.evaluate import COPIES, Evaluator
from tinygrad.codegen.index import Copies
from tinygrad.codegen.leaves import Put
from tinygrad.codegen.linear import Values
from tinygrad.codegen.reduce import empty_of, identity, is_compensated, is_long
from tinygrad.loops.layout import element, flat_offset, own_ranges, role_of, size_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

APART = (*COPIES, "TILE")
"""What has a state of its own each turn; but a unit's state is all turns of the TILE loops."""


class Accumulators:
    """One REDUCE in registers. A copy's state is its accumulator and, where sums carry rounding
    errors along, the error; a SPREAD loop has a state for each turn."""

    def __init__(self, evaluator: Evaluator, node: UOp) -> None:
        self.evaluator, self.node = evaluator, node
        value, own = node.src[0], own_ranges(node)
        self.unrolled = [r for r in own if role_of(r) == "UNROLL"]
        self.outs = evaluator.copies_of(node.ranges, {}, COPIES if value.op is Ops.WMMA else APART)
        self.spread = evaluator.copies_of([r for r in own if role_of(r) == "SPREAD"], {})
        self.keys: list[Copies] = [{**out, **turn} for out in self.outs for turn in self.spread]
        self.lanes = next((r for r in own if role_of(r) == "VECTOR"), None)
        self.width = self._width()
        self.empty = evaluator.program.widen(empty_of(node), self.width)
        self.states = 2 if is_compensated(node) else 1
        is_plain = not self._is_fused() and value.op is not Ops.WMMA
        self.in_pairs = bool(self.unrolled) and is_plain

    def _width(self) -> int:
        evaluator, value, loop = self.evaluator, self.node.src[0], self.lanes
        if value.op is Ops.WMMA:
            return evaluator.tiles.width(self.node)
        if loop is None:
            loop = evaluator.integers.vector_of(value, {})
        return 1 if loop is None else size_of(loop)

    def _is_fused(self) -> bool:
        """Whether a product is taken in by one instruction."""
        wide = (dtypes.float32, dtypes.float64)
        is_product = self.node.arg == "add" and self.node.src[0].op is Ops.MUL
        return is_product and self.node.dtype in wide

    def start(self) -> Values:
        """The states before the first turn."""
        return [self.empty] * (self.states * len(self.keys))

    def take(self, accumulators: Values) -> Values:
        """One turn of the loops. Values of unrolled turns are combined first, in pairs, but for
        products, which the accumulator takes in one by one."""
        found = list(accumulators)
        turns = [{}] if self.in_pairs else self.evaluator.copies_of(self.unrolled, {})
        for turn in turns:
            for i, key in enumerate(self.keys):
                state = slice(self.states * i, self.states * (i + 1))
                found[state] = self._after(found[state], {**turn, **key})
        return found

    def keep(self, results: Values) -> None:
        """Every copy finds its reduction: states, lanes and the lanes of a group are combined."""
        evaluator, node, own = self.evaluator, self.node, own_ranges(self.node)
        home = evaluator.home_of(node)
        groups = [r for r in own if role_of(r) == "GROUP"]
        each = self.states * len(self.spread)
        for i, out in enumerate(self.outs):
            states = results[each * i : each * (i + 1)]
            total = evaluator.combiner.pairwise(node.arg, states[:: self.states])
            if self.lanes is not None:
                total = evaluator.combiner.fold_lanes(node.arg, total)
            if groups:
                total = evaluator.lanes.across(node.arg, total, groups)
            home.memo[evaluator.integers.key(node, out)] = total

    def _after(self, state: Values, copies: Copies) -> Values:
        """The state of one copy after its values are taken in."""
        evaluator, program, value = self.evaluator, self.evaluator.program, self.node.src[0]
        if self.in_pairs:
            item = combined(evaluator, self.node, copies)
            return state if item is None else self._with(state, item)
        mask = evaluator.integers.valid(own_ranges(self.node), copies)
        if mask is not None and mask.op is Ops.CONST:
            return state
        if value.op is Ops.WMMA:
            taken = evaluator.tiles.dot(self.node, state[0], copies)
            if mask is not None:
                joined = program.joined(mask, taken, state[0])
                taken = program.add(Ops.WHERE, taken.dtype, joined)
            return [taken]
        if mask is None and len(state) == 1 and self._is_fused():
            a, b = (evaluator.evaluate(s, copies) for s in value.src)
            return [evaluator.combiner.fused(a, b, state[0])]
        item = program.widen(evaluator.evaluate(value, copies), self.width)
        if mask is not None:
            mask, item = program.joined(mask, item)
            item = program.add(Ops.WHERE, item.dtype, (mask, item, self.empty))
        return self._with(state, item)

    def _with(self, state: Values, item: UOp) -> Values:
        return taken_in(self.evaluator, self.node.arg, state, item)


class StagedSums:
    """A REDUCE whose accumulators a stage holds, and their rounding errors a second one."""

    def __init__(self, evaluator: Evaluator, stage: UOp) -> None:
        self.evaluator, self.reduce, self.own = evaluator, stage.src[0], own_ranges(stage)
        self.held = [stage]
        if is_long(self.reduce):
            self.held.append(stage.replace(arg=(f"{stage.arg[0]}.error", *stage.arg[1:])))
        self.reads = list(map(element, self.held))
        self.offset = flat_offset(self.reads[0])
        self.apart = (*self.own, *around(stage))

    def starting(self) -> Put:
        """The leaf that fills the stages before the first turn."""
        empty = identity(self.reduce.arg, self.reduce.dtype)
        starts = [(each, self.offset, empty) for each in self.held]
        return Put(self.evaluator, starts, self.own, padded=True)

    def take(self, values: Values) -> Values:
        """The leaf that takes in the values of one turn of the loops."""
        evaluator = self.evaluator
        for copies in evaluator.copies_of(self.apart, {}):
            taken = combined(evaluator, self.reduce, copies)
            if taken is None:
                continue
            state = [evaluator.access.load(read, copies) for read in self.reads]
            state = taken_in(evaluator, self.reduce.arg, state, taken)
            for each, value in zip(self.held, state, strict=True):
                evaluator.access.store(each, self.offset, value, copies, self.own, padded=True)
        return values


def taken_in(evaluator: Evaluator, monoid: str, state: Values, item: UOp) -> Values:
    """An accumulator (and its error) with one more value."""
    if len(state) == 2:
        return list(evaluator.combiner.add_exactly(state[0], state[1], item))
    return [evaluator.combiner.combine(monoid, state[0], item)]


def combined(evaluator: Evaluator, reduce: UOp, copies: Copies) -> UOp | None:
    """The values of all unrolled turns of a REDUCE, in pairs; None if there are none."""
    program, items, inner = evaluator.program, [], own_ranges(reduce)
    for turn in evaluator.copies_of(inner, copies):
        mask = evaluator.integers.valid(inner, turn)
        item = evaluator.evaluate(reduce.src[0], turn)
        if mask is not None:
            empty = identity(reduce.arg, reduce.dtype)
            joined = program.joined(mask, item, empty)
            item = program.add(Ops.WHERE, joined[1].dtype, joined)
        items.append(item)
    return evaluator.combiner.pairwise(reduce.arg, items) if items else None
