"""Index expressions as instructions. They are constants where the value is known. Sums are
assembled so that the part which an outer loop fixes is computed in that loop. An expression that
differs from lane to lane is a vector.

`copies` says which turn of each UNROLL and SPREAD range, or which single lane of a VECTOR, is being
written. All other loops are bound to the scope that runs them and to their counter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from operator import itemgetter

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.codegen.linear import Number, Program, Scope, as_node, is_off
from tinygrad.loops.roles import COPIED, name_of, role_of, size_of
from tinygrad.simplify.affine import add, affine
from tinygrad.simplify.forms import Terms, step_in
from tinygrad.uop import Ops, UOp
from tinygrad.uop.bounds import Interval, interval_of

Copies = Mapping[UOp, int]

INT32 = (-(2**31), 2**31 - 1)


@dataclass(frozen=True)
class Binding:
    """The counter of a loop: an instruction or a number, in a scope, and its interval."""

    scope: Scope
    value: Number
    low: int
    high: int
    guarded: bool = False  # this turn may be beyond a limit


class Integers:
    """Evaluates expressions of dtype index, and comparisons of them."""

    def __init__(self, program: Program, evaluate_data: Callable[[UOp, Copies], UOp]) -> None:
        self.program = program
        self.evaluate_data = evaluate_data
        self.bound: dict[UOp, Binding] = {}
        self.lanes_of: dict[UOp, int] = {}  # the lanes that count a range; there may be too many
        self.along: UOp | None = None  # a range that is treated as a VECTOR at the moment
        self._homes: dict[UOp, Scope] = {}  # valid as long as the bindings are the same
        self._copied: dict[UOp, tuple[UOp, ...]] = {}
        self._forms: dict[UOp, tuple[Terms, int]] = {}
        self._differences: dict[UOp, UOp] = {}
        self._ends: dict[UOp, tuple[UOp, ...]] = {}
        self._limited: dict[UOp, tuple[UOp, ...]] = {}

    # ---- where and which -------------------------------------------------------------------------

    @contextlib.contextmanager
    def counting(
        self, loops: Iterable[UOp], value: Number, low: int, high: int, guarded: bool = False
    ) -> Iterator[None]:
        """A context in which `value` counts these loops, from `low` to `high`, in the scope that is
        open."""
        before = self.bound
        binding = Binding(self.program.scope, value, low, high, guarded)
        self.bound = {**before, **dict.fromkeys(loops, binding)}
        self._homes.clear()
        yield
        self.bound = before
        self._homes.clear()

    def innermost(self) -> set[str]:
        """The names of the counters of the scope that is open."""
        depth = max((b.scope.depth for b in self.bound.values()), default=0)
        return {name_of(loop) for loop, b in self.bound.items() if b.scope.depth == depth}

    def home(self, node: UOp) -> Scope:
        """The innermost open scope that the value of `node` depends on."""
        found = self._homes.get(node)
        if found is None:
            found = self.program.base
            for loop in node.ranges:
                binding = self.bound.get(loop)
                if binding is not None and binding.scope.depth > found.depth:
                    found = binding.scope
            self._homes[node] = found
        return found

    def copied(self, node: UOp) -> tuple[UOp, ...]:
        """The ranges below `node` that are copies or lanes."""
        found = self._copied.get(node)
        if found is None:
            found = tuple(r for r in node.ranges if role_of(r) in COPIED)
            found = tuple(sorted(found, key=lambda r: str(r.arg[0]))) if len(found) > 1 else found
            self._copied[node] = found
        return found

    def key(self, node: UOp, copies: Copies) -> object:
        """A key that distinguishes the copies of a node's value."""
        ranges = self.copied(node)
        return (node, *map(copies.get, ranges)) if ranges else node

    def vector_of(self, node: UOp, copies: Copies) -> UOp | None:
        """The VECTOR range whose lanes make the value a vector."""
        found = None
        for loop in self.copied(node):
            if loop not in copies and (role_of(loop) == "VECTOR" or loop is self.along):
                if found is not None:
                    both = f"{name_of(found)!r} and {name_of(loop)!r}"
                    raise ArgumentError(
                        f"role of {both}: lanes of both meet in one value; legal is one VECTOR in "
                        "it, and UNROLL or LOOP for the other"
                    )
                found = loop
        return found

    def form(self, node: UOp) -> tuple[Terms, int]:
        """The node as a sum of multiples of terms, and a constant."""
        found = self._forms.get(node)
        if found is None:
            found = self._forms[node] = affine(node)
        return found

    # ---- bounds ----------------------------------------------------------------------------------

    def interval(self, node: UOp, copies: Copies) -> Interval:
        """The interval of an index, here and in this copy."""
        if node.op is Ops.RANGE:
            turn = copies.get(node)
            if turn is not None:
                return turn, turn
            binding = self.bound.get(node)
            if binding is None:  # lanes and copies beyond a limit count too
                return 0, size_of(node) - 1
            return binding.low, binding.high
        if node.dtype is not dtypes.index or not node.ranges:
            return node.vmin, node.vmax
        terms, constant = self.form(node)
        if len(terms) == 1 and node in terms:
            return interval_of(node, [self.interval(s, copies) for s in node.src])
        low = high = constant
        for term, factor in terms.items():
            least, most = self.interval(term, copies)
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
        return low, high

    def difference(self, comparison: UOp) -> UOp:
        """Left minus right of a comparison of indices."""
        found = self._differences.get(comparison)
        if found is None:
            left, right = comparison.src
            found = self._differences[comparison] = add(left, right, -1)
        return found

    def decided(self, comparison: UOp, copies: Copies) -> bool | None:
        """The truth of a comparison of indices, if bounds decide it; else None."""
        low, high = self.interval(self.difference(comparison), copies)
        if comparison.op is Ops.CMPLT:
            return True if high < 0 else False if low >= 0 else None
        if low > 0 or high < 0:
            return comparison.op is Ops.CMPNE
        return comparison.op is Ops.CMPEQ if low == high else None

    # ---- scalars ---------------------------------------------------------------------------------

    def scalar(self, node: UOp, copies: Copies) -> Number:
        """The value of an index; `copies` has a lane for every VECTOR range below it."""
        return self.total(*self.form(node), copies)

    def total(self, terms: Terms, constant: int, copies: Copies) -> Number:
        """The value of a sum: terms of outer scopes are added first, the constant last."""
        parts, known = self.parts(terms, copies)
        result: Number = 0
        for _, value, factor in parts:
            result = self.program.integer(Ops.ADD, result, self.program.multiple(value, factor))
        return self.program.integer(Ops.ADD, result, constant + known)

    def parts(self, terms: Terms, copies: Copies) -> tuple[list[tuple[int, UOp, int]], int]:
        """The terms of a sum that are instructions, those of outer scopes first, as (depth of the
        scope, value, factor); and the sum of all others."""
        found: list[tuple[int, UOp, int]] = []
        known = 0
        for term, factor in terms.items():
            value = self.term(term, copies)
            if isinstance(value, int):
                known += factor * value
            else:
                scope = self.program.places.get(value)
                found.append((0 if scope is None else scope.depth, value, factor))
        if len(found) > 1:
            found.sort(key=itemgetter(0))
        return found, known

    def term(self, term: UOp, copies: Copies) -> Number:
        """The value of a term, that is, of anything but a sum."""
        if term in copies:
            return copies[term]
        if term.op is Ops.RANGE:
            return self.bound[term].value
        memo, key = self.home(term).memo, ("index", self.key(term, copies))
        found = memo.get(key)
        if found is None:
            low, high = self.interval(term, copies)
            found = memo[key] = as_node(int(low) if low == high else self._term(term, copies))
        return int(found.arg) if found.op is Ops.CONST else found

    def _term(self, term: UOp, copies: Copies) -> Number:
        program = self.program
        if term.op is Ops.DEFINE_VAR:
            return program.argument(Ops.DEFINE_VAR, dtypes.index, term.arg)
        if term.op in (Ops.IDIV, Ops.MOD) and term.src[1].op is Ops.CONST:
            value, divisor = as_node(self.scalar(term.src[0], copies)), int(term.src[1].arg)
            low = self.interval(term.src[0], copies)[0]
            return self._divided(term.op, value, divisor, low)
        if term.op is Ops.CAST and term.src[0].op is Ops.DEFINE_VAR:
            return program.argument(Ops.DEFINE_VAR, dtypes.index, term.src[0].arg)
        sources = [self._source(s, copies) for s in term.src]
        return program.add(term.op, dtypes.index, tuple(sources), term.arg)

    def _source(self, node: UOp, copies: Copies) -> UOp:
        if node.dtype is dtypes.index:
            return as_node(self.scalar(node, copies))
        return self.evaluate_data(node, copies)

    def _divided(self, op: Ops, value: UOp, divisor: int, low: int) -> Number:
        """Division rounded down, where the machine truncates: a value that may be negative is first
        shifted up."""
        add = self.program.integer
        if low >= 0:
            return self.program.divided(op, value, divisor)
        if low > INT32[0]:
            turns = -(low // divisor)
            start = as_node(add(Ops.ADD, value, turns * divisor))
            moved = self.program.divided(op, start, divisor)
            return add(Ops.ADD, moved, -turns) if op is Ops.IDIV else moved
        rest = as_node(add(Ops.MOD, value, divisor))
        negative = self.program.test(Ops.CMPLT, rest, 0)
        shift = as_node(-1 if op is Ops.IDIV else divisor)
        result = add(Ops.IDIV, value, divisor) if op is Ops.IDIV else rest
        moved = self.program.add(Ops.ADD, dtypes.index, (as_node(result), shift))
        return self.program.add(Ops.WHERE, dtypes.index, (negative, moved, as_node(result)))

    # ---- vectors ---------------------------------------------------------------------------------

    def lanes(self, node: UOp, loop: UOp, copies: Copies) -> UOp:
        """An index that differs from lane to lane of `loop`, as int32 if it fits, else as index."""
        memo, key = self.home(node).memo, ("lanes", loop, self.key(node, copies))
        if key not in memo:
            memo[key] = self._lanes(node, loop, copies, self.kind_of(node, copies))
        return memo[key]

    def kind_of(self, node: UOp, copies: Copies) -> DType:
        """The dtype of an index in vectors: int32 if it fits, else index."""
        low, high = self.interval(node, copies)
        return dtypes.int32 if INT32[0] <= low and high <= INT32[1] else dtypes.index

    def _lanes(self, node: UOp, loop: UOp, copies: Copies, kind: DType) -> UOp:
        program, count = self.program, size_of(loop)
        dtype = kind.vec(count)
        terms, constant = self.form(node)
        known = {loop, *copies}  # a copy's turn is one number, also if its limit has lanes
        if len(terms) == 1 and constant == 0 and node in terms and node not in known:
            return self._opaque_lanes(node, loop, copies, dtype)
        whole = [t for t in terms if loop not in t.ranges or t in known and t is not loop]
        fixed = {term: terms[term] for term in whole}
        start = self.total(fixed, constant, copies)
        step = terms.get(loop, 0)
        begin = int(start) if isinstance(start, int) else 0
        iota = [UOp.const(kind, begin + step * i) for i in range(count)]
        parts: list[UOp] = []
        if not isinstance(start, int):
            parts.append(program.widen(self.as_kind(start, kind), count))
        if step or begin or not parts:
            parts.append(program.vector(iota))
        for term, factor in terms.items():
            if loop in term.ranges and term not in known:
                value = self.as_kind(self.lanes(term, loop, copies), kind)
                if factor != 1:
                    by = program.widen(UOp.const(kind, factor), count)
                    value = program.add(Ops.MUL, dtype, (value, by))
                parts.append(value)
        total = parts[0]
        for part in parts[1:]:
            total = program.add(Ops.ADD, dtype, (total, part))
        return total

    def _opaque_lanes(self, node: UOp, loop: UOp, copies: Copies, dtype: DType) -> UOp:
        """One vector instruction on the sources' lanes."""
        program, kind, count = self.program, dtype.scalar(), dtype.count
        if node.op in (Ops.IDIV, Ops.MOD) and node.src[1].op is Ops.CONST:
            return self._divided_lanes(node, loop, copies, dtype)
        if node.op is Ops.CAST:
            source = program.widen(self.evaluate_data(node.src[0], copies), count)
            return self.as_kind(source, kind)
        sources = []
        for source in node.src:
            if source.dtype is dtypes.index:
                sources.append(self.as_kind(self.lanes(source, loop, copies), kind))
            else:
                sources.append(program.widen(self.evaluate_data(source, copies), count))
        return program.add(node.op, dtype, tuple(sources), node.arg)

    def _divided_lanes(self, node: UOp, loop: UOp, copies: Copies, dtype: DType) -> UOp:
        program, divisor = self.program, int(node.src[1].arg)
        low, high = self.interval(node.src[0], copies)
        turns = 0 if low >= 0 else -(int(low) // divisor)
        if low <= INT32[0] or high + turns * divisor > INT32[1]:  # lane by lane
            each = [self.scalar(node, {**copies, loop: i}) for i in range(dtype.count)]
            lanes = [program.add(Ops.CAST, dtype.scalar(), (as_node(e),)) for e in each]
            return program.vector(lanes)
        moved = add(node.src[0], UOp.const(dtypes.index, turns * divisor))
        value = self.lanes(moved, loop, copies)
        kind = value.dtype.scalar()
        result = program.divided(node.op, value, divisor)
        if turns and node.op is Ops.IDIV:
            back = program.widen(UOp.const(kind, -turns), dtype.count)
            result = program.add(Ops.ADD, value.dtype, (result, back))
        return self.as_kind(result, dtype.scalar())

    def as_kind(self, value: UOp, kind: DType) -> UOp:
        """The value as that dtype, in each lane."""
        if value.dtype.scalar() is kind:
            return value
        return self.program.add(Ops.CAST, kind.vec(value.dtype.count), (value,))

    # ---- bools -----------------------------------------------------------------------------------

    def compare(self, comparison: UOp, copies: Copies) -> UOp:
        """A comparison of indices: a constant, one bool, or one for each lane."""
        difference = self.difference(comparison)
        memo = self.home(difference).memo
        key = ("compare", comparison.op, self.along, self.key(difference, copies))
        found = memo.get(key)
        if found is None:
            found = memo[key] = self._compare(comparison, copies)
        return found

    def _compare(self, comparison: UOp, copies: Copies) -> UOp:
        known = self.decided(comparison, copies)
        if known is not None:
            return UOp.const(dtypes.bool, known)
        difference = self.difference(comparison)
        loop = self.vector_of(difference, copies)
        if loop is not None and self._is_uniform(comparison.op, difference, loop):
            copies, loop = {**copies, loop: 0}, None
        if loop is None:
            return self.program.test(comparison.op, self.scalar(difference, copies), 0)
        return self.program.signs(comparison.op, self.lanes(difference, loop, copies))

    def _is_uniform(self, op: Ops, difference: UOp, loop: UOp) -> bool:
        """Whether difference < 0 holds for all lanes of `loop` or for none: what the lanes add
        reaches no multiple of the number that everything else is a multiple of."""
        terms, constant = self.form(difference)
        each = step_in(terms, loop)
        if op is not Ops.CMPLT or each is None:
            return False
        step = gcd(*(factor for term, factor in terms.items() if term is not loop))
        last = constant + each * (size_of(loop) - 1)
        return step > 0 and constant // step == last // step

    def ends(self, loop: UOp) -> tuple[UOp, ...]:
        """Comparisons that hold while `loop` is within its limits, and within its size if that is
        no constant."""
        found = self._ends.get(loop)
        if found is None:
            size = loop.src[0]
            is_fixed = size.op is Ops.CONST and self.lanes_of.get(loop, 0) <= size.arg
            ends = loop.src[1:] if is_fixed else loop.src
            found = self._ends[loop] = tuple(self._within(loop, end) for end in ends)
        return found

    def _within(self, loop: UOp, end: UOp) -> UOp:
        """loop < end. Its form is made here, since the algebra assumes that limits hold, and this
        comparison is about copies and lanes for which they don't."""
        comparison = UOp(Ops.CMPLT, dtypes.bool, (loop, end))
        terms, constant = self.form(end)
        left = {term: -factor for term, factor in terms.items()}
        left[loop] = left.get(loop, 0) + 1
        difference = self._differences[comparison] = loop + end * -1
        self._forms[difference] = left, -constant
        return comparison

    def limited(self, node: UOp) -> tuple[UOp, ...]:
        """The loops below `node` that something cuts off, ordered by name: the order of a set is
        that of addresses, and a program must be the same in every process."""
        found = self._limited.get(node)
        if found is None:
            loops = sorted((r for r in node.ranges if self.ends(r)), key=name_of)
            found = self._limited[node] = tuple(loops)
        return found

    def is_out(self, ranges: Iterable[UOp], copies: Copies) -> bool:
        """Whether bounds show that one of these copies is beyond its limits."""
        return any(
            self.decided(inside, copies) is False for loop in ranges for inside in self.ends(loop)
        )

    def valid(self, ranges: Iterable[UOp], copies: Copies) -> UOp | None:
        """Whether these copies, lanes and given turns are within their limits; None if they always
        are."""
        mask: UOp | None = None
        for loop in ranges:
            comparisons = self.ends(loop)
            if not comparisons:
                continue
            binding = self.bound.get(loop)
            if binding is not None and role_of(loop) in ("LOOP", "ORDERED") and not binding.guarded:
                continue
            for comparison in comparisons:
                mask = self.program.both(mask, self.compare(comparison, copies))
                if is_off(mask):
                    return mask
        return mask
