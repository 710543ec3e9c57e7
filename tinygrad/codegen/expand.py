"""From the loop tree to instructions: loops open and close as the tree says, and a value is emitted
in the innermost open scope that it depends on, once for each copy, and remembered there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.codegen.access import Access, around, is_swizzled, slot_of
from tinygrad.codegen.fragments import Sums
from tinygrad.codegen.groups import Block, Lanes
from tinygrad.codegen.index import COPIED, Binding, Copies, Integers
from tinygrad.codegen.linear import Number, Program, Scope, as_node
from tinygrad.codegen.nesting import fills_itself, stays_in_registers, value_at
from tinygrad.codegen.reduce import Combiner, empty_of, identity, is_compensated, is_long
from tinygrad.codegen.running import Running, running_of
from tinygrad.codegen.tiles import MERGED, Tiles
from tinygrad.loops.layout import (
    flat_offset,
    indices,
    name_of,
    option,
    overlaps,
    own_ranges,
    role_of,
    size_of,
)
from tinygrad.loops.matrix_units import UNITS
from tinygrad.loops.nest import (
    Branch,
    Copy,
    Fill,
    Given,
    Item,
    Leaf,
    Loop,
    Nest,
    Reduce,
)
from tinygrad.loops.nest import Scope as NestScope
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops, evaluate

Values = list[UOp]
Body = Callable[[Values], Values]
"""What a leaf does: the values that the loops carry, before and after."""

COMPARISONS = GroupOp.Comparison


class Expansion:
    """Emits one phase of a kernel."""

    def __init__(
        self,
        target: Target,
        slots: Mapping[UOp, UOp],
        block: Block,
        fault: UOp | None,
        faults: dict[tuple[str, str], int],
        written: frozenset[UOp],
    ) -> None:
        self.program = Program(target.native)
        self.target = target
        self.integers = Integers(self.program, self.evaluate)
        self.access = Access(self.integers, self.evaluate, dict(slots))
        self.combiner = Combiner(self.program, target)
        self.lanes = Lanes(self.program, self.combiner, block)
        self.integers.lanes_of.update(self.lanes.limits())
        self.given = self.lanes.counters()  # and of PARALLEL ranges
        self.fault, self.faults = fault, faults
        self.written = written  # nodes whose value changes as the kernel stores
        self.filling: frozenset[UOp] = frozenset()
        self.tiles = Tiles(self)
        self.running: Running | None = None
        self.is_late = False  # whether a turn's products may be on their way when it ends

    # ---- values ----------------------------------------------------------------------------------

    def evaluate(self, node: UOp, copies: Copies) -> UOp:
        """The instruction that holds the value of `node` in this copy."""
        found = self._recall(node, copies)
        if found is not None:
            return found
        done: dict[UOp, UOp] = {}
        stack = [node]
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            missing = []
            is_undecided = top.op is Ops.WHERE and top.src[0] not in done
            for source in self._needs(top, done):
                if source not in done:
                    found = self._recall(source, copies)
                    if found is None:
                        missing.append(source)
                    else:
                        done[source] = found
            if missing:
                stack.extend(reversed(missing))
            if missing or is_undecided:
                continue
            stack.pop()
            home = self.home_of(top)
            outer, self.program.scope = self.program.scope, home
            made = done[top] = self._emit(top, copies, done)
            self.program.scope = outer
            home.memo[self.integers.key(top, copies)] = made
        return done[node]

    def home_of(self, node: UOp) -> Scope:
        """Where the value of `node` is kept."""
        return self.program.scope if node in self.written else self.integers.home(node)

    def _recall(self, node: UOp, copies: Copies) -> UOp | None:
        if node.op is Ops.CONST:
            return node if not node.src else UOp.const(node.dtype, node.arg)
        return self.home_of(node).memo.get(self.integers.key(node, copies))

    def _needs(self, node: UOp, done: Mapping[UOp, UOp]) -> tuple[UOp, ...]:
        """The sources to emit first; addresses and indices take care of theirs."""
        if node.op in (Ops.INDEX, Ops.REDUCE, Ops.RANGE, Ops.DEFINE_VAR):
            return ()
        if node.dtype is dtypes.index or _compares_indices(node):
            return ()
        if node.op is Ops.RUNNING:
            return node.src[:1]
        if node.op is Ops.WHERE:
            condition = done.get(node.src[0])
            if condition is None:
                return node.src[:1]
            if condition.op is Ops.CONST:
                return (node.src[1 if condition.arg else 2],)
        return node.src

    def _emit(self, node: UOp, copies: Copies, done: Mapping[UOp, UOp]) -> UOp:
        if node.op is Ops.INDEX:
            return self._read(node, copies)
        if node.op is Ops.DEFINE_VAR and node.dtype is not dtypes.index:
            value = self.program.argument(Ops.DEFINE_VAR, dtypes.index, node.arg)
            return self.program.add(Ops.CAST, node.dtype, (value,))
        if node.dtype is dtypes.index:
            loop = self.integers.vector_of(node, copies)
            if loop is not None:
                return self.integers.lanes(node, loop, copies)
            return as_node(self.integers.scalar(node, copies))
        if node.op is Ops.RUNNING:
            assert self.running is not None and self.running.node is node
            return self.running.take(done[node.src[0]], copies)
        if node.op in COMPARISONS and node.vmin == node.vmax:
            return UOp.const(dtypes.bool, node.vmin)
        if _compares_indices(node):
            return self.integers.compare(node, copies)
        assert node.op in GroupOp.Elementwise, f"{node.op!r} is not in the nest"
        if node.op is Ops.CHECK:
            return self._check(node, copies, done)
        return self._elementwise(node, done)

    def _elementwise(self, node: UOp, done: Mapping[UOp, UOp]) -> UOp:
        program = self.program
        if node.op is Ops.WHERE and done[node.src[0]].op is Ops.CONST:
            return done[node.src[1 if done[node.src[0]].arg else 2]]
        sources = program.joined(*(done[s] for s in node.src))
        dtype = node.dtype.scalar().vec(sources[0].dtype.count)
        if node.op is Ops.CAST and sources[0].dtype is dtype:
            return sources[0]
        if node.op in (Ops.AND, Ops.OR) and dtypes.is_bool(dtype):
            for one, other in (sources, sources[::-1]):
                if one.op is Ops.CONST:
                    return other if bool(one.arg) == (node.op is Ops.AND) else one
        known = [s.arg for s in sources if s.op is Ops.CONST and not dtypes.is_float(s.dtype)]
        if len(known) == len(sources) and node.op in _FOLDED:  # what a copy's number makes
            value = known[0] if node.op is Ops.CAST else evaluate(node.op, dtype, *known)
            return UOp.const(dtype, dtypes.as_const(value, dtype))
        return program.add(node.op, dtype, sources, node.arg)

    def _read(self, node: UOp, copies: Copies) -> UOp:
        lanes = [r for r in self.integers.copied(node) if r in copies and role_of(r) == "VECTOR"]
        along = self.integers.along
        if lanes and along is None:
            return self.integers.data(node, copies)
        stage = node.src[0]
        if stage.op is Ops.STAGE and stays_in_registers(stage):
            return self.evaluate(value_at(node), copies)
        if stage in self.filling and fills_itself(stage):
            value = self.filled(node, lambda value: self.evaluate(value, copies))
            limited = self._beyond(node, copies)
            self.access.store(stage, flat_offset(node), value, copies, limited)
            return value
        return self.access.load(node, copies)

    def _beyond(self, read: UOp, copies: Copies) -> tuple[UOp, ...]:
        """The limited loops of a read that could leave a row of its stage: what is cut off there
        would be written into the next row."""
        rows = zip(indices(read), own_ranges(read.src[0]), strict=True)
        if all(self.integers.interval(at, copies)[1] < size_of(row) for at, row in rows):
            return ()
        return self.integers.limited(read)

    def filled(self, read: UOp, evaluate: Callable[[UOp], UOp]) -> UOp:
        """The value of a stage that this read fills; its loads are asked for some turns ahead."""
        loops = [r for r in read.ranges if r in self.integers.bound and role_of(r) == "LOOP"]
        before, turns = self.access.ahead, option(read.src[0], "prefetch", 0)
        if turns and loops:
            inner = max(loops, key=lambda r: self.integers.bound[r].scope.depth)
            self.access.ahead = {name_of(inner): turns}
        value = evaluate(value_at(read))
        self.access.ahead = before
        return value

    def _check(self, node: UOp, copies: Copies, done: Mapping[UOp, UOp]) -> UOp:
        """The value; a test of the condition stands beside it."""
        program = self.program
        value, fine = (done[s] for s in node.src)
        if fine.op is Ops.CONST and fine.arg:
            return value
        assert self.fault is not None, "a kernel with a CHECK has a fault buffer"
        code = self.faults.setdefault(node.arg, len(self.faults) + 1)
        true = program.widen(UOp.const(dtypes.bool, True), fine.dtype.count)
        failed = program.add(Ops.CMPNE, fine.dtype, (fine, true))
        mask = self.integers.valid(self.integers.limited(node), copies)
        failed_here = program.both(failed, mask)
        assert failed_here is not None
        operands = []
        if dtypes.is_int(value.dtype):
            wide = dtypes.int64.vec(value.dtype.count)
            same = value.dtype is wide
            operands.append(value if same else program.add(Ops.CAST, wide, (value,)))
        pointer = program.argument(Ops.PARAM, self.fault.dtype, self.fault.arg)
        src = (pointer, *program.joined(failed_here, *operands))
        if Ops.FAULT in program.lacking:
            self._fault(*src, code=code)
        else:
            program.effect(Ops.FAULT, dtypes.void, src, code, program.scope)
        return value

    def _fault(self, pointer: UOp, failed: UOp, *operands: UOp, code: int) -> None:
        """A FAULT by branches and stores, lane by lane. Two tasks that fail at once may mix their
        operands; the code comes last, and any of theirs is right."""
        program = self.program

        def word(number: int) -> UOp:
            place = (pointer, as_node(number))
            return program.add(Ops.INDEX, pointer.dtype, place) if number else pointer

        size = pointer.dtype.itemsize
        for lane in range(failed.dtype.count):
            program.open_branch(program.lane(failed, lane))
            arg = (size, program.serial())
            first = program.effect(Ops.LOAD, pointer.dtype, (pointer,), arg, program.scope)
            none = program.add(Ops.CMPNE, dtypes.bool, (first, UOp.const(pointer.dtype, 0)))
            program.open_branch(program.add(Ops.XOR, none.dtype, (none, UOp.const(none.dtype, 1))))
            values = [program.lane(value, lane) for value in operands]
            for number, value in reversed([*enumerate((UOp.const(dtypes.int64, code), *values))]):
                stored = (word(number), value)
                program.effect(Ops.STORE, dtypes.void, stored, (size, ""), program.scope)
            program.close()
            program.close()

    # ---- copies ----------------------------------------------------------------------------------

    def copies_of(self, ranges: Iterable[UOp], copies: Copies) -> list[Copies]:
        """All turns of the UNROLLed and SPREAD among `ranges` that are not cut off for sure, the
        longest range outermost, so that few operands live at a time."""
        found: list[Copies] = [dict(copies)]
        copied = [r for r in ranges if role_of(r) in ("UNROLL", "SPREAD") and r not in copies]
        copied.sort(key=lambda r: (_is_limited_by(r, copied), -size_of(r), name_of(r)))
        for loop in copied:
            found = [{**outer, loop: turn} for outer in found for turn in range(size_of(loop))]
            if len(loop.src) > 1:
                found = [c for c in found if not self.integers.is_out((loop,), c)]
        return found

    # ---- the tree --------------------------------------------------------------------------------

    def run(self, nest: Nest, body: Body) -> None:
        """The whole nest; `body` at its leaves."""
        self._walk(nest.root.items, [], body)

    def none_negative(self, numbers: Sequence[UOp]) -> UOp | None:
        """Whether no expression of the tasks' counters is negative; None if there is none."""
        program, found = self.program, None
        tasks = [r for r in self.given if role_of(r) == "PARALLEL"]
        for loop in tasks:
            binding = Binding(program.scope, self.given[loop], 0, size_of(loop) - 1, True)
            self.integers.bind(loop, binding)
        for each in numbers:
            margin = as_node(self.integers.scalar(each, {}))
            fine = program.add(Ops.CMPLT, dtypes.bool, (as_node(-1), margin))
            found = program.both(found, fine)
        for loop in tasks:
            self.integers.unbind(loop, None)
        return found

    def _walk(self, items: Sequence[Item], values: Values, body: Body) -> Values:
        running = self.running
        if running is not None and any(running.carries_through(item) for item in items):
            outer, values = values, running.start(self.copies_of(running.others, {}))
        else:
            running = None
        filled: set[UOp] = set()  # stages that other lanes may still be at
        for item in items:
            if self._meets(item, filled):
                self.lanes.barrier(filled)
                filled.clear()
            if isinstance(item, Leaf):
                before, self.filling = self.filling, item.filling
                values = body(values)
                self.filling = before
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
                self._fill(item)
                if self.lanes.share(item.stage):
                    filled.add(item.stage)
        if filled:
            self.lanes.barrier(filled)
        return values if running is None else outer

    def _meets(self, item: Item, filled: set[UOp]) -> bool:
        """Whether lanes must arrive before this item: to read what others filled, or to fill again
        what others may still read. Stages that don't read each other are filled together."""
        if not isinstance(item, Fill) or option(item.stage, "acc"):
            return bool(filled)
        if not filled:
            return self.lanes.share(item.stage)
        return any(node in filled for node in item.stage.src[0].toposort())

    def _loop(self, item: Loop, values: Values, body: Body) -> Values:
        loop = item.loop
        assert loop is not None
        end: Number = item.high + 1
        for limit in item.ends:
            end = self._smaller(end, self.integers.scalar(limit, {}))
        if item.ends:
            end = self._at_least(end, item.low + 1, item)
        begin: Number = item.low
        if item.start is not None:  # within the loop, so that there is a turn
            begin = self._larger(item.low, self.integers.scalar(item.start, {}))
            begin = self._smaller(begin, item.high)
            end = self._larger(end, self.program.integer(Ops.ADD, begin, 1))
        ahead = _filled_ahead(item)
        if ahead and item.start is None:
            return self._pipeline(item, ahead, end, values, body)
        counter, carries = self.program.open_loop(begin, end, name_of(loop), values)
        binding = Binding(self.program.scope, counter, item.low, item.high, item.guarded)
        outer = self.integers.bind(loop, binding)
        following = self._walk(item.items, carries, body)
        self.integers.unbind(loop, outer)
        self.program.close(following)
        return carries

    def _pipeline(
        self, item: Loop, ahead: list[Fill], end: Number, values: Values, body: Body
    ) -> Values:
        """A loop whose stages are filled some turns before they are read, each turn in the next
        place of the array: lanes meet once a turn, to see what was filled and to be done with the
        place that is filled next.

        A unit that reads the stages itself is still at the turn before when its lanes meet, if
        there is room: then the place filled next is that of the turn before that one."""
        loop, program, integers = item.loop, self.program, self.integers
        assert loop is not None
        depth = min(int(option(fill.stage, "depth")) for fill in ahead)
        stages = [fill.stage for fill in ahead]
        rest = [each for each in item.items if each not in ahead]
        late = depth > 2 and all(isinstance(each, Leaf) for each in rest)
        late = late and all(map(is_swizzled, stages))
        early = depth - 1 - late  # turns that are filled before they are read
        self.lanes.barrier()
        for turn in range(early):
            self._fill_ahead(item, ahead, item.low + turn, end, turn)
        counter, carries = program.open_loop(item.low, end, name_of(loop), values)
        outer = integers.bind(
            loop, Binding(program.scope, counter, item.low, item.high, item.guarded)
        )
        program.effect(Ops.WAIT, dtypes.void, (), ("copies", early - 1), program.scope)
        self.lanes.barrier(stages)
        done = as_node(program.integer(Ops.ADD, counter, -item.low))
        following = program.integer(Ops.ADD, counter, early)
        place = program.integer(Ops.ADD, done, early)
        slot = place if isinstance(place, int) else program.divided(Ops.MOD, place, depth)
        if not late:
            self._fill_ahead(item, ahead, following, end, slot)
        read = program.divided(Ops.MOD, done, depth)
        slots = [slot_of(stage) for stage in stages]
        for each in slots:
            integers.bind(each, Binding(program.scope, read, 0, depth - 1))
        before, self.is_late = self.is_late, late
        found = self._walk(rest, carries, body)
        self.is_late = before
        for each in slots:
            integers.unbind(each, None)
        if late:
            self._fill_ahead(item, ahead, following, end, slot)
            program.effect(Ops.WAIT, dtypes.void, (), ("products", 1), program.scope)
        integers.unbind(loop, outer)
        program.close(found)
        return carries

    def _fill_ahead(
        self, item: Loop, ahead: list[Fill], turn: Number, end: Number, slot: Number
    ) -> None:
        """Stages are filled for a turn, if there is such a turn."""
        program, integers, loop = self.program, self.integers, item.loop
        assert loop is not None
        known = isinstance(turn, int) and isinstance(end, int)
        if not known or int(str(turn)) < int(str(end)):
            if known:
                program.open()
            else:
                program.open_branch(
                    program.add(Ops.CMPLT, dtypes.bool, (as_node(turn), as_node(end)))
                )
            scope = program.scope
            outer = integers.bind(loop, Binding(scope, turn, item.low, item.high))
            for fill in ahead:
                place = slot_of(fill.stage)
                integers.bind(place, Binding(scope, slot, 0, size_of(place) - 1))
                self._fill(fill)
                integers.unbind(place, None)
            integers.unbind(loop, outer)
            program.close()
        program.effect(Ops.COMMIT, dtypes.void, (), "copies", program.scope)

    def _smaller(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        left, right = as_node(a), as_node(b)
        less = self.program.add(Ops.CMPLT, dtypes.bool, (left, right))
        return self.program.add(Ops.WHERE, dtypes.index, (less, left, right))

    def _larger(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        left, right = as_node(a), as_node(b)
        less = self.program.add(Ops.CMPLT, dtypes.bool, (left, right))
        return self.program.add(Ops.WHERE, dtypes.index, (less, right, left))

    def _at_least(self, end: Number, least: int, item: Loop) -> Number:
        """A loop turns at least once."""
        if isinstance(end, int):
            return max(end, least)
        bounds = [self.integers.interval(limit, {})[0] for limit in item.ends]
        if min(bounds) >= least:
            return end
        less = self.program.add(Ops.CMPLT, dtypes.bool, (end, as_node(least)))
        return self.program.add(Ops.WHERE, dtypes.index, (less, as_node(least), end))

    def _place(self, item: Copy | Given, values: Values, body: Body) -> Values:
        loop = item.loop
        assert loop is not None
        value: Number = item.low if isinstance(item, Copy) else self.given[loop]
        scope = self.program.open()
        guarded = isinstance(item, Given) or item.guarded
        high = max(item.high, self.integers.lanes_of.get(loop, 0) - 1)
        outer = self.integers.bind(loop, Binding(scope, value, item.low, high, guarded))
        values = self._walk(item.items, values, body)
        self.integers.unbind(loop, outer)
        self.program.close()
        return values

    def _branch(self, item: Branch, body: Body) -> None:
        loop = item.rest.loop
        assert loop is not None
        task, last = as_node(self.given[loop]), as_node(item.last.low)
        is_last = self.program.add(Ops.CMPEQ, dtypes.bool, (task, last))
        is_not = self.program.add(Ops.CMPNE, dtypes.bool, (task, last))
        arms: tuple[tuple[UOp, NestScope], ...] = ((is_not, item.rest), (is_last, item.last))
        for condition, arm in arms:
            self.program.open_branch(condition)
            assert isinstance(arm, (Copy, Given))
            self._place(arm, [], body)
            self.program.close()

    # ---- reductions ------------------------------------------------------------------------------

    def _reduce(self, item: Reduce) -> None:
        node = item.node
        value, own, monoid = node.src[0], own_ranges(node), node.arg
        if value.op is Ops.WMMA and UNITS[value.arg].held is not None:
            sums = Sums(self, node)
            sums.keep(self._walk(item.items, sums.start(), sums.take))
            return
        outs = self.copies_of(node.ranges, {})
        spread = self.copies_of([r for r in own if role_of(r) == "SPREAD"], {})
        loop = next((r for r in own if role_of(r) == "VECTOR"), None)
        if loop is None:
            loop = self.integers.vector_of(value, {})
        width = 1 if loop is None else size_of(loop)
        if value.op is Ops.WMMA:
            width = self.tiles.width(node)
        keys: list[Copies] = [{**out, **turn} for out in outs for turn in spread]
        empty = self.program.widen(empty_of(node), width)
        states = 2 if is_compensated(node) else 1

        def take(accumulators: Values) -> Values:
            accumulators = list(accumulators)
            unrolled = [r for r in own if role_of(r) == "UNROLL"]
            if unrolled and not self._is_fused(node) and node.src[0].op is not Ops.WMMA:
                for i, key in enumerate(keys):
                    state = accumulators[states * i : states * (i + 1)]
                    taken = self._unrolled(node, key)
                    if taken is not None:
                        accumulators[states * i : states * (i + 1)] = self._with(node, state, taken)
                return accumulators
            for inner in self.copies_of(unrolled, {}):
                for i, key in enumerate(keys):
                    state = accumulators[states * i : states * (i + 1)]
                    state = self._taken(node, state, {**inner, **key}, empty)
                    accumulators[states * i : states * (i + 1)] = state
            return accumulators

        results = self._walk(item.items, [empty] * (states * len(keys)), take)
        home = self.home_of(node)
        groups = [r for r in own if role_of(r) == "GROUP"]
        for i, out in enumerate(outs):
            group = results[states * i * len(spread) : states * (i + 1) * len(spread)]
            total = self.combiner.pairwise(monoid, group[::states])
            if loop is not None and loop in own:
                total = self.combiner.fold_lanes(monoid, total)
            if groups:
                total = self.lanes.across(monoid, total, groups)
            home.memo[self.integers.key(node, out)] = total

    def _taken(self, node: UOp, state: Values, copies: Copies, empty: UOp) -> Values:
        """The accumulator of one copy after its value is taken in."""
        value, own = node.src[0], own_ranges(node)
        mask = self.integers.valid(own, copies)
        if mask is not None and mask.op is Ops.CONST:
            return state
        if value.op is Ops.WMMA:
            taken = self.tiles.dot(node, state[0], copies)
            if mask is not None:
                joined = self.program.joined(mask, taken, state[0])
                taken = self.program.add(Ops.WHERE, taken.dtype, joined)
            return [taken]
        if mask is None and len(state) == 1 and self._is_fused(node):
            a, b = (self.evaluate(s, copies) for s in value.src)
            return [self.combiner.fused(a, b, state[0])]
        item = self.program.widen(self.evaluate(value, copies), empty.dtype.count)
        if mask is not None:
            (mask, item) = self.program.joined(mask, item)
            item = self.program.add(Ops.WHERE, item.dtype, (mask, item, empty))
        return self._with(node, state, item)

    def _with(self, node: UOp, state: Values, item: UOp) -> Values:
        """The accumulator of one copy and what comes to it."""
        if len(state) == 2:
            return list(self.combiner.add_exactly(state[0], state[1], item))
        return [self.combiner.combine(node.arg, state[0], item)]

    def _is_fused(self, node: UOp) -> bool:
        wide = (dtypes.float32, dtypes.float64)
        return node.arg == "add" and node.src[0].op is Ops.MUL and node.dtype in wide

    # ---- stages and stores -----------------------------------------------------------------------

    def put(self, stores: Sequence[tuple[UOp, UOp, UOp]], own: Sequence[UOp], **how: bool) -> Body:
        """A leaf that stores (memory, offset, value) for every copy of the unrolled ranges that it
        depends on. All values are there before the first is stored: one may read what another
        overwrites."""
        whole = max((len(offset.ranges) for _, offset, _ in stores), default=0)
        parts = [
            own if len(offset.ranges) == whole else _depended_on(own, offset, value)
            for _, offset, value in stores
        ]
        node = running_of([value for _, _, value in stores])
        if node is not None:
            self.running = Running(node, self.program, self.combiner)
        running = self.running if node is not None else None
        apart = (*own, *around(stores[0][0]))
        is_shared = stores[0][0].op is Ops.STAGE and self.lanes.share(stores[0][0])

        def body(values: Values) -> Values:
            if running is not None:
                running.state = list(values)
            fetched = _fetched(*stores[0][::2])
            if (
                is_shared and fetched is None
            ):  # what comes from afar is asked for before the first is waited for
                for copies in self.copies_of(apart, {}):
                    self.evaluate(stores[0][2], copies)
            for copies in self.copies_of(apart, {}):
                if self.integers.is_out(_copied(own), copies):
                    continue
                if fetched is not None and self.lanes.first_of(apart) is None:
                    memory, offset, _ = stores[0]
                    if self.access.fetch(memory, offset, fetched, copies, tuple(own)):
                        continue
                if any(role_of(r) == "TILE" for r in own):
                    self._put_tile(*stores[0], copies, own)
                    continue
                made = [self.evaluate(value, copies) for _, _, value in stores]
                only = self.lanes.first_of(apart)
                for (memory, offset, _), value, part in zip(stores, made, parts, strict=True):
                    if not any(copies.get(r) for r in own if r not in part):
                        self.access.store(memory, offset, value, copies, part, only=only, **how)
            return values if running is None else running.state

        return body

    def _put_tile(
        self, memory: UOp, offset: UOp, value: UOp, copies: Copies, own: Sequence[UOp]
    ) -> None:
        """A stage in a matrix unit's order takes all turns of these loops at once."""
        tiles = self.access.layout(memory, offset, [r for r in own if role_of(r) in MERGED])
        made = self._recall(value, copies)
        if made is None:
            made = self.tiles.vector(value, copies, tiles)
        self.access.store_tile(memory, offset, made, copies, tiles)

    def _fill(self, item: Fill) -> None:
        stage, own = item.stage, own_ranges(item.stage)
        offset = flat_offset(UOp(Ops.INDEX, stage.dtype, (stage, *own), len(own)))
        if not option(stage, "acc"):
            body = self.put([(stage, offset, stage.src[0])], own, padded=not overlaps(stage))
            self._walk(item.items, [], body)
            return
        empty = identity(stage.src[0].arg, stage.dtype)
        held = [stage]
        if is_long(stage.src[0]):
            held.append(stage.replace(arg=(f"{stage.arg[0]}.error", *stage.arg[1:])))
        starts = [(each, offset, empty) for each in held]
        self._walk(item.start, [], self.put(starts, own, padded=True))
        self._walk(item.items, [], self._accumulate(held, offset))

    def _accumulate(self, held: Sequence[UOp], offset: UOp) -> Body:
        """A leaf that takes values into the accumulators that a stage holds, and the errors that a
        second one does."""
        stage = held[0]
        reduce, own = stage.src[0], own_ranges(stage)
        reads = [UOp(Ops.INDEX, stage.dtype, (each, *own), len(own)) for each in held]

        def body(values: Values) -> Values:
            for copies in self.copies_of((*own, *around(stage)), {}):
                taken = self._unrolled(reduce, copies)
                if taken is None:
                    continue
                state = [self.access.load(read, copies) for read in reads]
                if len(state) == 2:
                    state = list(self.combiner.add_exactly(state[0], state[1], taken))
                else:
                    state = [self.combiner.combine(reduce.arg, state[0], taken)]
                for each, value in zip(held, state, strict=True):
                    self.access.store(each, offset, value, copies, own, padded=True)
            return values

        return body

    def _unrolled(self, reduce: UOp, copies: Copies) -> UOp | None:
        """The values of all unrolled turns of a REDUCE, combined; None if there are none."""
        items, inner = [], own_ranges(reduce)
        for turn in self.copies_of(inner, copies):
            mask = self.integers.valid(inner, turn)
            item = self.evaluate(reduce.src[0], turn)
            if mask is not None:
                empty = identity(reduce.arg, reduce.dtype)
                joined = self.program.joined(mask, item, empty)
                item = self.program.add(Ops.WHERE, joined[1].dtype, joined)
            items.append(item)
        return self.combiner.pairwise(reduce.arg, items) if items else None


def _filled_ahead(item: Loop) -> list[Fill]:
    """The stages in this loop that are filled some turns ahead: those that ask for it, unless one
    of them reads what is filled beside it."""
    fills = [each for each in item.items if isinstance(each, Fill)]
    deep = [fill for fill in fills if option(fill.stage, "depth", 1) > 1]
    inside = {fill.stage for fill in fills}
    alone = all(inside.isdisjoint(fill.stage.src[0].toposort()) for fill in deep)
    return deep if alone else []


def _fetched(memory: UOp, value: UOp) -> UOp | None:
    """The read that a stage is a copy of, bit for bit, if the stage is to be copied to."""
    if memory.op is not Ops.STAGE or option(memory, "via") != "async":
        return None
    while value.op is Ops.BITCAST and value.dtype.itemsize == value.src[0].dtype.itemsize:
        value = value.src[0]
    return value if value.op is Ops.INDEX and value.src[0].op is Ops.PARAM else None


_FOLDED = frozenset((Ops.CAST, Ops.ADD, Ops.MUL, Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR))
"""What whole numbers make here as the op table says it; the rest has the machine's meaning."""


def _compares_indices(node: UOp) -> bool:
    return node.op in COMPARISONS and node.src[0].dtype is dtypes.index


def _depended_on(own: Sequence[UOp], offset: UOp, value: UOp) -> list[UOp]:
    return [r for r in own if r in offset.ranges or r in value.ranges]


def _copied(ranges: Iterable[UOp]) -> list[UOp]:
    return [r for r in ranges if role_of(r) in COPIED]


def _is_limited_by(loop: UOp, others: Sequence[UOp]) -> bool:
    return any(r in limit.ranges for limit in loop.src for r in others if r is not loop)
