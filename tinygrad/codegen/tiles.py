"""Vectors over several loops at once, row-major: the operands and results of matrix instructions.

If memory has that order, such a vector is one load or store. Arithmetic is done on the whole
vector. If memory runs along another loop than the vector, and the neighbours of TILE loops fill a
word, a square of words is transposed in registers. Everything else is put together lane by lane
from vectors over one loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from operator import mul
from typing import Protocol

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.helpers import post_order, prod
from tinygrad.codegen.access import Access, Store
from tinygrad.codegen.addresses import Loops
from tinygrad.codegen.index import Copies, Integers
from tinygrad.codegen.linear import Program, Scope
from tinygrad.loops.layout import fills_itself, flat_offset, memory_of
from tinygrad.loops.matrix_units import UNITS
from tinygrad.loops.rebuild import value_at
from tinygrad.loops.roles import MERGED, own_ranges, role_of, size_of
from tinygrad.simplify.masks import gate_of
from tinygrad.uop import GroupOp, Ops, UOp


class Owner(Protocol):
    """The evaluator of the rest of the kernel."""

    program: Program
    integers: Integers
    access: Access
    filling: frozenset[UOp]

    def evaluate(self, node: UOp, copies: Copies) -> UOp: ...
    def home_of(self, node: UOp) -> Scope: ...
    def filled(self, read: UOp, evaluate: Callable[[UOp], UOp]) -> UOp: ...


class Tiles:
    """Values over several loops, in one phase of a kernel."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.program: Program = owner.program
        self.integers: Integers = owner.integers

    def dot(self, reduce: UOp, total: UOp, copies: Copies) -> UOp:
        """A REDUCE's accumulator, after its unit has taken in the products of the TILE loops."""
        (wmma, *_) = reduce.src
        first, second = wmma.src
        depth = tuple(r for r in own_ranges(reduce) if role_of(r) == "TILE")
        rows, columns = (_free(x, (*depth, *copies)) for x in (first, second))
        a = self.vector(first, copies, (*rows, *depth))
        words = len(depth) - (UNITS[wmma.arg].pack > 1)  # loops outside of a packed word
        b = self.vector(second, copies, (*depth[:words], *columns, *depth[words:]))
        return self.program.add(Ops.WMMA, total.dtype, (a, b, total), wmma.arg)

    def width(self, reduce: UOp) -> int:
        """Lanes of the accumulator of a REDUCE that a unit computes."""
        own = own_ranges(reduce)
        free = _free(reduce.src[0], [r for r in own if role_of(r) == "TILE"])
        return _count(free)

    # ---- values ----------------------------------------------------------------------------------

    def vector(self, node: UOp, copies: Copies, tiles: Loops) -> UOp:
        """`node` for all turns of `tiles`, the last one fastest."""
        for below in self._elementwise(node, tiles):
            self._remembered(below, copies, tiles)
        return self._remembered(node, copies, tiles)

    def _elementwise(self, node: UOp, tiles: Loops) -> list[UOp]:
        """The nodes below `node` that are computed on whole vectors, sources first."""
        return post_order([node], lambda top: top.src if _is_arithmetic(top, tiles) else ())

    def _remembered(self, node: UOp, copies: Copies, tiles: Loops) -> UOp:
        if node.op is Ops.CONST:
            return self.program.widen(UOp.const(node.dtype, node.arg), _count(tiles))
        home = self.owner.home_of(node)
        key = ("tile", tiles, self.integers.key(node, copies))
        found = home.memo.get(key)
        if found is None:
            outer, self.program.scope = self.program.scope, self.program.latest(home)
            found = home.memo[key] = self._made(node, copies, tiles)
            self.program.scope = outer
        return found

    def _made(self, node: UOp, copies: Copies, tiles: Loops) -> UOp:
        count = _count(tiles)
        if node.ranges.isdisjoint(tiles):
            return self.program.widen(self.owner.evaluate(node, copies), count)
        if _is_arithmetic(node, tiles):
            sources = [self._remembered(s, copies, tiles) for s in node.src]
            if node.op is Ops.WHERE and sources[0].op is Ops.CONST:
                return sources[1] if sources[0].arg else sources[2]
            wide = tuple(self.program.widen(s, count) for s in sources)
            return self.program.add(node.op, node.dtype.scalar().vec(count), wide, node.arg)
        if node.op is Ops.INDEX:
            found = self._read(node, copies, tiles)
        else:
            found = self._compared(node, copies, tiles)
        return self._assembled(node, copies, tiles) if found is None else found

    def _read(self, read: UOp, copies: Copies, tiles: Loops) -> UOp | None:
        stage, owner = read.src[0], self.owner
        if memory_of(stage) == "REG":
            return self.vector(value_at(read), copies, tiles)
        if stage in owner.filling and fills_itself(stage):
            value = owner.filled(read, lambda value: self.vector(value, copies, tiles))
            owner.access.store_tile(Store(stage, flat_offset(read), value), copies, tiles)
            return value
        found = self._loaded(read, copies, tiles)
        return self._transposed(read, copies, tiles) if found is None else found

    def _loaded(self, read: UOp, copies: Copies, tiles: Loops) -> UOp | None:
        """One load, with 0 where a gate or a limit is off; None if memory has another order."""
        access, gate = self.owner.access, gate_of(read)
        if not access.addresses.read_at(read, {}).is_row_major(tiles):
            return None
        mask, conditions = access.outside_of(read, copies, tiles)
        for condition in conditions if gate is None else (*conditions, gate):
            found = self.vector(condition, copies, tiles)
            if not _is_on(found):
                mask = self.program.both(mask, found)
        return access.load_tile(read, copies, tiles, mask)

    def _compared(self, node: UOp, copies: Copies, tiles: Loops) -> UOp | None:
        """A comparison of indices for each turn; None if it isn't a sum over counters of `tiles`
        and what is the same in all turns."""
        integers, program = self.integers, self.program
        if node.op not in GroupOp.Comparison or node.src[0].dtype is not dtypes.index:
            return None
        known = integers.decided(node, copies)
        if known is not None:
            return UOp.const(dtypes.bool, known)
        difference = integers.difference(node)
        terms, constant = integers.form(difference)
        if any(t not in tiles and not t.ranges.isdisjoint(tiles) for t in terms):
            return None
        factors = [terms.get(r, 0) for r in tiles]
        steps = [sum(map(mul, factors, turn)) for turn in _turns(tiles)]
        fixed = {t: k for t, k in terms.items() if t not in tiles}
        start, kind = integers.total(fixed, constant, copies), integers.kind_of(difference, copies)
        begin = start if isinstance(start, int) else 0
        value = program.vector([UOp.const(kind, begin + step) for step in steps])
        if not isinstance(start, int):
            both = program.joined(value, integers.as_kind(start, kind))
            value = program.add(Ops.ADD, value.dtype, both)
        return program.signs(node.op, value)

    # ---- lane beside lane ------------------------------------------------------------------------

    def _assembled(self, node: UOp, copies: Copies, tiles: Loops) -> UOp:
        """Vectors over the VECTOR loop (or scalars), one for each turn of the TILE loops."""
        loop = next((r for r in tiles if role_of(r) == "VECTOR"), None)
        others = tuple(r for r in tiles if r is not loop)
        parts = [self.owner.evaluate(node, each) for each in in_turns(copies, others)]
        if loop is None:
            return self.program.vector(parts)
        assert tiles[0] is loop, "what is put together has its vector outermost"
        return self._interleaved([self.program.widen(p, size_of(loop)) for p in parts])

    def _interleaved(self, parts: Sequence[UOp]) -> UOp:
        """Lane 0 of each part, then lane 1 of each, and so on. The number of parts is a power of
        two."""
        if len(parts) == 1:
            return parts[0]
        even, odd = self._interleaved(parts[::2]), self._interleaved(parts[1::2])
        count = even.dtype.count
        lanes = [lane for i in range(count) for lane in (i, count + i)]
        return self.program.picked(even, odd, lanes)

    def _transposed(self, read: UOp, copies: Copies, tiles: Loops) -> UOp | None:
        """Words of TILE neighbours that are contiguous along an UNROLL loop as long as the vector:
        loads along that loop, one for each lane, and a transposition of the square of words in
        registers."""
        loop, inner = tiles[0], tiles[1:]
        word = _count(inner) * read.dtype.itemsize
        if role_of(loop) != "VECTOR" or word not in _WORDS or loop in copies:
            return None
        access, words = self.owner.access, _WORDS[word].vec(size_of(loop))
        along = access.runs_along(access.addresses.read_at(read, copies), loop, inner)
        if along is None:
            return None

        def row(here: Copies) -> UOp | None:
            found = self._words(read, here, along, inner)
            return None if found is None else self.program.add(Ops.BITCAST, words, (found,))

        columns = access.square(copies, loop, along, row)
        if columns is None:
            return None
        memo, dtype = self.program.scope.memo, read.dtype.vec(_count(tiles))
        for turn, column in enumerate(columns):
            key = ("tile", tiles, self.integers.key(read, {**copies, along: turn}))
            memo[key] = self.program.add(Ops.BITCAST, dtype, (column,))
        return memo["tile", tiles, self.integers.key(read, copies)]

    def _words(self, read: UOp, copies: Copies, along: UOp, inner: Loops) -> UOp | None:
        """Words of `inner` along memory: one load, or one for each part of the words."""
        found = self._loaded(read, copies, (along, *inner))
        if found is not None:
            return found
        parts = [self._loaded(read, each, (along,)) for each in in_turns(copies, inner)]
        return None if None in parts else self._interleaved([p for p in parts if p is not None])


_WORDS: dict[int, DType] = {2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def _count(tiles: Iterable[UOp]) -> int:
    return int(prod(size_of(r) for r in tiles))


def _turns(tiles: Iterable[UOp]) -> Iterator[tuple[int, ...]]:
    """All turns of these loops, those of the last one fastest."""
    return product(*(range(size_of(r)) for r in tiles))


def in_turns(copies: Copies, loops: Sequence[UOp]) -> list[Copies]:
    """These copies in each turn of the loops, those of the last one fastest."""
    return [{**copies, **dict(zip(loops, turn, strict=True))} for turn in _turns(loops)]


def _is_on(mask: UOp) -> bool:
    """Whether a mask is known to be on in all lanes."""
    return mask.op is Ops.VECTORIZE and all(s.op is Ops.CONST and s.arg for s in mask.src)


def _free(node: UOp, bound: Iterable[UOp]) -> Loops:
    """The TILE and VECTOR loops that a value depends on, except those in `bound`; TILE first."""
    found = [r for r in node.ranges if role_of(r) in MERGED and r not in bound]
    return tuple(sorted(found, key=lambda r: (role_of(r) == "VECTOR", r.arg)))


def _is_arithmetic(node: UOp, tiles: Loops) -> bool:
    """Whether this op can be done on the whole vector."""
    if node.op not in GroupOp.Elementwise or node.op is Ops.CHECK or node.dtype is dtypes.index:
        return False
    if node.ranges.isdisjoint(tiles):
        return False
    return all(s.dtype is not dtypes.index for s in node.src)
