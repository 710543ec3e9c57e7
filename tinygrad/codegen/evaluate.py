"""Values as instructions: a node of a kernel, for one copy of the loops around it. The instruction
for a value is placed in the innermost open scope that the value depends on, and remembered there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.codegen.access import Access, Store
from tinygrad.codegen.addresses import Addresses
from tinygrad.codegen.faults import Faults
from tinygrad.codegen.groups import Block, Lanes
from tinygrad.codegen.index import Copies, Integers
from tinygrad.codegen.linear import Program, Scope, as_node, is_off
from tinygrad.codegen.reduce import Combiner
from tinygrad.codegen.running import Running
from tinygrad.codegen.tiles import Tiles
from tinygrad.loops.layout import fills_itself, flat_offset, indices, memory_of, option
from tinygrad.loops.rebuild import value_at
from tinygrad.loops.roles import WRITTEN_OUT, name_of, own_ranges, role_of, size_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops, evaluate


class Evaluator:
    """The values of one phase of a kernel. The caller walks the loop tree (`codegen/expand`), binds
    the loops, and says which stages are filled at this point, which loops run there, whether the
    walk is at a later turn (`is_ahead`), and whether a turn's products may still be running when it
    ends (`is_late`)."""

    def __init__(
        self,
        target: Target,
        slots: Mapping[UOp, UOp],
        block: Block,
        fault: UOp | None,
        faults: dict[tuple[str, str], int],
        written: frozenset[UOp],
    ) -> None:
        by_llvm = bool(target.triple)
        self.program = Program(target.native, by_llvm, by_llvm and target.group_limit > 1)
        self.target = target
        self.integers = Integers(self.program, self.data)
        self.addresses = Addresses(self.integers, dict(slots))
        self.access = Access(target, self.addresses, self.evaluate)
        self.combiner = Combiner(self.program, target)
        self.lanes = Lanes(self.program, self.combiner, block)
        self.integers.lanes_of.update(self.lanes.limits())
        self.faults = Faults(self.integers, fault, faults)
        self.written = written  # nodes whose value changes when the kernel stores
        self.tiles = Tiles(self)
        self.filling: frozenset[UOp] = frozenset()
        self.running: Running | None = None
        self.continued: dict[UOp, UOp] = {}  # sums that start with what lies in a stage
        self.is_late = False
        self.is_ahead = False

    def evaluate(self, node: UOp, copies: Copies) -> UOp:
        """The instruction that holds the value of `node` in this copy."""
        found = self.recalled(node, copies)
        if found is not None:
            return found
        done: dict[UOp, UOp] = {}
        stack = [node]
        are_lanes = self.integers.along is None and "VECTOR" in map(role_of, copies)
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            takes_lane = are_lanes and top.dtype is not dtypes.index
            lane = self._lane(top, copies) if takes_lane else None
            if lane is not None:
                done[top] = lane
                continue
            is_undecided = top.op is Ops.WHERE and top.src[0] not in done
            missing = self._missing(top, copies, done)
            if missing or is_undecided:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            home = self.home_of(top)
            outer, self.program.scope = self.program.scope, self.program.latest(home)
            made = done[top] = self._emit(top, copies, done)
            self.program.scope = outer
            home.memo[self.integers.key(top, copies)] = made
        return done[node]

    def _missing(self, node: UOp, copies: Copies, done: dict[UOp, UOp]) -> list[UOp]:
        """The sources of a node that must be emitted; what was emitted before goes to `done`."""
        missing = []
        for source in self._needs(node, done):
            if source in done:
                continue
            found = self.recalled(source, copies)
            if found is None:
                missing.append(source)
            else:
                done[source] = found
        return missing

    def data(self, node: UOp, copies: Copies) -> UOp:
        """A data value that an index depends on."""
        lane = self._lane(node, copies)
        return self.evaluate(node, copies) if lane is None else lane

    def _lane(self, node: UOp, copies: Copies) -> UOp | None:
        """If one lane is wanted, it is taken from a vector that is computed once; unless lanes may
        have stored to its memory in between."""
        lanes = [r for r in self.integers.copied(node) if r in copies and role_of(r) == "VECTOR"]
        if not lanes or node in self.written:
            return None
        others = {r: turn for r, turn in copies.items() if r is not lanes[0]}
        return self.program.lane(self.evaluate(node, others), copies[lanes[0]])

    def home_of(self, node: UOp) -> Scope:
        """The scope in which the value of `node` is kept."""
        return self.program.scope if node in self.written else self.integers.home(node)

    def forget_written(self, copies: Copies) -> None:
        """Makes the next lane read again what this one may have written."""
        for node in self.written:
            self.program.scope.memo.pop(self.integers.key(node, copies), None)

    def recalled(self, node: UOp, copies: Copies) -> UOp | None:
        """The value of `node`, if it was emitted before."""
        if node.op is Ops.CONST:
            return node if not node.src else UOp.const(node.dtype, node.arg)
        return self.home_of(node).memo.get(self.integers.key(node, copies))

    def _needs(self, node: UOp, done: Mapping[UOp, UOp]) -> tuple[UOp, ...]:
        """The sources to emit first; addresses and indices handle theirs."""
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
        if node.op in GroupOp.Comparison and node.vmin == node.vmax:
            return UOp.const(dtypes.bool, node.vmin)
        if _compares_indices(node):
            return self.integers.compare(node, copies)
        assert node.op in GroupOp.Elementwise, f"{node.op!r} is not in the nest"
        if node.op is Ops.CHECK:
            value, fine = (done[s] for s in node.src)
            self.faults.test(node, value, fine, copies)
            return value
        return self._elementwise(node, done)

    def _elementwise(self, node: UOp, done: Mapping[UOp, UOp]) -> UOp:
        program = self.program
        if node.op is Ops.WHERE and done[node.src[0]].op is Ops.CONST:
            return done[node.src[1 if done[node.src[0]].arg else 2]]
        sources = tuple(done[s] for s in node.src)
        if node.op in (Ops.AND, Ops.OR) and dtypes.is_bool(node.dtype):
            for one, other in (sources, sources[::-1]):
                if one.op is Ops.CONST:
                    return other if bool(one.arg) == (node.op is Ops.AND) else one
        sources = program.joined(*sources)
        dtype = node.dtype.scalar().vec(sources[0].dtype.count)
        if node.op is Ops.CAST and sources[0].dtype is dtype:
            return sources[0]
        known = [s.arg for s in sources if s.op is Ops.CONST and not dtypes.is_float(s.dtype)]
        if len(known) == len(sources) and node.op in _FOLDED:  # constant in this copy
            value = known[0] if node.op is Ops.CAST else evaluate(node.op, dtype, *known)
            return UOp.const(dtype, dtypes.as_const(value, dtype))
        return program.add(node.op, dtype, sources, node.arg)

    # ---- memory and stages -----------------------------------------------------------------------

    def _read(self, node: UOp, copies: Copies) -> UOp:
        stage = node.src[0]
        if memory_of(stage) == "REG":
            return self.evaluate(value_at(node), copies)
        if stage in self.filling and fills_itself(stage):
            value = self.filled(node, lambda value: self.evaluate(value, copies))
            only = self.access.gate(node, copies)
            if not is_off(only):
                store = Store(stage, flat_offset(node), value)
                self.access.store(store, copies, self._beyond(node, copies), only=only)
            return value
        return self.access.load(node, copies)

    def _beyond(self, read: UOp, copies: Copies) -> tuple[UOp, ...]:
        """The limited loops of a read that could leave a row of its stage: a value that is cut off
        there would be written into the next row."""
        rows = zip(indices(read), own_ranges(read.src[0]), strict=True)
        if all(self.integers.interval(at, copies)[1] < size_of(row) for at, row in rows):
            return ()
        return self.integers.limited(read)

    def filled(self, read: UOp, evaluate: Callable[[UOp], UOp]) -> UOp:
        """The value of a stage that this read fills; its loads are prefetched some turns ahead."""
        loops = [r for r in read.ranges if r in self.integers.bound and role_of(r) == "LOOP"]
        before, turns = self.access.ahead, option(read.src[0], "prefetch", 0)
        if turns and loops:
            inner = max(loops, key=lambda r: self.integers.bound[r].scope.depth)
            self.access.ahead = {**before, name_of(inner): (turns, [])}
        value = evaluate(value_at(read))
        self.access.ahead = before
        return value

    # ---- copies ----------------------------------------------------------------------------------

    def copies_of(
        self, ranges: Iterable[UOp], copies: Copies, roles: Collection[str] = WRITTEN_OUT
    ) -> list[Copies]:
        """All turns of the loops among `ranges` with these roles that are not certainly cut off.
        The longest range is outermost, so that few operands are live at a time."""
        found: list[Copies] = [dict(copies)]
        copied = [r for r in ranges if role_of(r) in roles and r not in copies]
        copied.sort(key=lambda r: (_is_limited_by(r, copied), -size_of(r), name_of(r)))
        for loop in copied:
            found = [{**outer, loop: turn} for outer in found for turn in range(size_of(loop))]
            if len(loop.src) > 1:
                found = [c for c in found if not self.integers.is_out((loop,), c)]
        return found


_FOLDED = frozenset((Ops.CAST, Ops.ADD, Ops.MUL, Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR))
"""Integer ops that are folded here by the op table; others have the machine's semantics."""


def _compares_indices(node: UOp) -> bool:
    return node.op in GroupOp.Comparison and node.src[0].dtype is dtypes.index


def _is_limited_by(loop: UOp, others: Sequence[UOp]) -> bool:
    return any(r in limit.ranges for limit in loop.src for r in others if r is not loop)
