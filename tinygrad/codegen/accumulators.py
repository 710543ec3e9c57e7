"""Reductions, turn by turn. The accumulators are in registers, one for each copy of the loops that
a REDUCE depends on. If the reduced loops are outside of a stage's loops, the stage holds the
accumulators."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.codegen.access import Store
from tinygrad.codegen.addresses import around
from tinygrad.codegen.evaluate import Evaluator
from tinygrad.codegen.index import Copies
from tinygrad.codegen.leaves import Leaves, Put
from tinygrad.codegen.linear import Values
from tinygrad.codegen.reduce import empty_of, is_compensated, is_long
from tinygrad.loops.layout import element, factor_of, flat_offset, term_of
from tinygrad.loops.roles import LANES, WRITTEN_OUT, own_ranges, role_of, size_of
from tinygrad.loops.together import BEFORE
from tinygrad.simplify.constants import identity
from tinygrad.uop import Ops, UOp

APART = WRITTEN_OUT | {"TILE"}
"""Roles whose turns each have a state of their own; but a unit's state covers all turns of the TILE
loops."""


class Accumulators:
    """One REDUCE in registers. The state of a copy is its accumulator and, for compensated sums,
    the rounding error; a SPREAD loop has one state for each turn."""

    def __init__(self, evaluator: Evaluator, node: UOp) -> None:
        self.evaluator, self.node = evaluator, node
        self.value, self.factor, own = term_of(node), factor_of(node), own_ranges(node)
        self.unrolled = [r for r in own if role_of(r) == "UNROLL"]
        self.outs = evaluator.copies_of(node.ranges, {}, WRITTEN_OUT if self.is_tiled else APART)
        spread = [r for r in own if role_of(r) == "SPREAD"]
        self.spread = evaluator.copies_of(spread, {})
        self.keys: list[Copies] = [{**out, **turn} for out in self.outs for turn in self.spread]
        self.lanes = next((r for r in own if role_of(r) == "VECTOR"), None)
        self.width = self._width()
        self.empty = evaluator.program.widen(empty_of(node), self.width)
        self.states = 2 if is_compensated(node) else 1
        is_plain = not self._is_fused() and not self.is_tiled
        self.in_pairs = bool(self.unrolled) and is_plain

    @property
    def is_tiled(self) -> bool:
        """Whether a unit takes in tiles."""
        return self.value.op is Ops.WMMA

    def _width(self) -> int:
        evaluator, value, loop = self.evaluator, self.value, self.lanes
        if self.is_tiled:
            return evaluator.tiles.width(self.node)
        if loop is None:
            loop = evaluator.integers.vector_of(value, {})
        return 1 if loop is None else size_of(loop)

    def _is_fused(self) -> bool:
        """Whether one instruction takes in a product."""
        wide = (dtypes.float32, dtypes.float64)
        is_product = self.node.arg == "add" and self.value.op is Ops.MUL
        return is_product and self.node.dtype in wide

    def start(self) -> Values:
        """The states before the first turn."""
        stage = self.evaluator.continued.get(self.node)
        if stage is not None:
            return self._held_in(stage)
        return [self.empty] * (self.states * len(self.keys))

    def _held_in(self, stage: UOp) -> Values:
        """What lies in the stage that a unit's sums go on in; 0 in the first turn of its loops."""
        program, bound = self.evaluator.program, self.evaluator.integers.bound
        later: UOp = UOp.const(dtypes.bool, False)
        for loop in own_ranges(stage.src[0]):
            turn = bound[loop].value
            is_later = program.test(Ops.CMPLT, 0 if isinstance(turn, int) else turn.src[0], turn)
            later = program.add(Ops.OR, dtypes.bool, (later, is_later))
        access, read = self.evaluator.access, element(stage)
        tiles = [r for r in own_ranges(stage) if role_of(r) == "TILE"]
        layout = access.layout(stage, flat_offset(read), tiles)
        return [access.load_tile(read, key, layout, later) for key in self.keys]

    def take(self, accumulators: Values) -> Values:
        """One turn of the loops. The values of unrolled turns are first combined in pairs, except
        for products, which the accumulator takes in one by one."""
        found = self._scaled(accumulators)
        turns = [{}] if self.in_pairs else self.evaluator.copies_of(self.unrolled, {})
        for turn in turns:
            for i, key in enumerate(self.keys):
                state = slice(self.states * i, self.states * (i + 1))
                found[state] = self._after(found[state], {**turn, **key})
        return found

    def _scaled(self, accumulators: Values) -> Values:
        """The states, multiplied by the factor with which a sum that follows a maximum is
        rescaled."""
        if self.factor is None:
            return list(accumulators)
        evaluator, program = self.evaluator, self.evaluator.program
        factors = [evaluator.evaluate(self.factor, key) for key in self.keys]
        pairs = (program.joined(*pair) for pair in zip(accumulators, factors, strict=True))
        return [program.add(Ops.MUL, pair[0].dtype, pair) for pair in pairs]

    def keep(self, results: Values) -> None:
        """Binds each copy to its result: states, lanes, and lanes of a group are combined."""
        evaluator, node, own = self.evaluator, self.node, own_ranges(self.node)
        home = evaluator.home_of(node)
        groups = [r for r in own if role_of(r) in LANES]
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
        """The state of one copy after its values have been taken in."""
        evaluator, program, value = self.evaluator, self.evaluator.program, self.value
        if self.in_pairs:
            item = combined(evaluator, self.node, copies)
            return state if item is None else taken_in(evaluator, self.node.arg, state, item)
        mask = evaluator.integers.valid(own_ranges(self.node), copies)
        if mask is not None and mask.op is Ops.CONST:
            return state
        if self.is_tiled:
            taken = evaluator.tiles.dot(self.node, state[0], copies)
            return [program.chosen(mask, taken, state[0])]
        if mask is None and len(state) == 1 and self._is_fused():
            a, b = (evaluator.evaluate(s, copies) for s in value.src)
            return [evaluator.combiner.fused(a, b, state[0])]
        item = program.widen(evaluator.evaluate(value, copies), self.width)
        item = program.chosen(mask, item, self.empty)
        return taken_in(evaluator, self.node.arg, state, item)


class Maxima:
    """The running maxima, by which the sums that follow them are rescaled; they are carried beside
    the sums."""

    def __init__(self, evaluator: Evaluator, nodes: Sequence[UOp]) -> None:
        self.evaluator = evaluator
        factors = [factor for node in nodes if (factor := factor_of(node)) is not None]
        below = dict.fromkeys(n for factor in factors for n in factor.toposort())
        self.states = [
            (node, copies)
            for node in below
            if node.op is Ops.RUNNING and node.tag is None
            for copies in evaluator.copies_of(node.ranges, {})
        ]

    def start(self) -> Values:
        """The initial maxima."""
        return [identity(node.arg, node.dtype) for node, _ in self.states]

    def take(self, values: Values) -> Values:
        """Takes in this turn's values; the sums that follow find the maxima before and after."""
        evaluator, found = self.evaluator, []
        for (node, copies), value in zip(self.states, values, strict=True):
            most = evaluator.evaluate(node.src[0], copies)
            found.append(evaluator.combiner.combine(node.arg, value, most))
            for each, state in ((node, found[-1]), (node.replace(tag=BEFORE), value)):
                evaluator.home_of(each).memo[evaluator.integers.key(each, copies)] = state
        return found

    def keep(self, results: Values) -> None:
        """Does nothing: no one reads the maxima after the loop."""


def staged_tiles(evaluator: Evaluator, stage: UOp) -> Put:
    """The leaf that stores the sums of a unit's tiles back to the stage that holds them: each
    product starts with what lies there."""
    part = term_of(stage.src[0])
    evaluator.continued[part] = stage
    store = Store(stage, flat_offset(element(stage)), part)
    return Put(evaluator, Leaves(own_ranges(stage), [store]), padded=True)


class StagedSums:
    """A REDUCE whose accumulators are in a stage, and their rounding errors in a second one."""

    def __init__(self, evaluator: Evaluator, stage: UOp) -> None:
        self.evaluator, self.reduce, self.own = evaluator, stage.src[0], own_ranges(stage)
        self.held = [stage]
        if is_long(self.reduce):
            self.held.append(stage.replace(arg=(f"{stage.arg[0]}.error", *stage.arg[1:])))
        self.reads = list(map(element, self.held))
        self.offset = flat_offset(self.reads[0])
        self.apart = (*self.own, *around(stage))

    def starting(self) -> Put:
        """The leaf that initialises the stages before the first turn."""
        empty = identity(self.reduce.arg, self.reduce.dtype)
        starts = [Store(each, self.offset, empty) for each in self.held]
        return Put(self.evaluator, Leaves(self.own, starts), padded=True)

    def take(self, values: Values) -> Values:
        """Emits the leaf that takes in the values of one turn of the loops."""
        evaluator = self.evaluator
        for copies in evaluator.copies_of(self.apart, {}):
            taken = combined(evaluator, self.reduce, copies)
            if taken is None:
                continue
            state = [evaluator.access.load(read, copies) for read in self.reads]
            state = taken_in(evaluator, self.reduce.arg, state, taken)
            for each, value in zip(self.held, state, strict=True):
                store = Store(each, self.offset, value)
                evaluator.access.store(store, copies, self.own, padded=True)
        return values


def taken_in(evaluator: Evaluator, monoid: str, state: Values, item: UOp) -> Values:
    """An accumulator (and its error) after one more value."""
    if len(state) == 2:
        return list(evaluator.combiner.add_exactly(state[0], state[1], item))
    return [evaluator.combiner.combine(monoid, state[0], item)]


def combined(evaluator: Evaluator, reduce: UOp, copies: Copies) -> UOp | None:
    """The values of all unrolled turns of a REDUCE, in pairs; None if there are none."""
    empty, inner = identity(reduce.arg, reduce.dtype), own_ranges(reduce)
    every = evaluator.copies_of(inner, copies)  # a turn of one loop may limit another's
    turns = [turn for turn in every if not evaluator.integers.is_out(inner, turn)]

    def term(turn: Copies) -> UOp:
        mask = evaluator.integers.valid(inner, turn)
        item = evaluator.evaluate(term_of(reduce), turn)
        return evaluator.program.chosen(mask, item, empty)

    return evaluator.combiner.pairwise(reduce.arg, map(term, turns)) if turns else None
