"""Sums of products by a matrix unit that a warp, or several warps, execute. An operand is either
words that each lane collects from what it reads, or a place in LOCAL memory that the unit itself
reads. The accumulator is distributed: each lane holds its elements of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import VerifyError
from tinygrad.base.helpers import prod
from tinygrad.codegen.addresses import ROW, is_swizzled
from tinygrad.codegen.evaluate import Evaluator
from tinygrad.codegen.index import Copies
from tinygrad.codegen.linear import Values
from tinygrad.codegen.tiles import in_turns
from tinygrad.loops.layout import factor_of, flat_offset, memory_of, option, term_of
from tinygrad.loops.matrix_units import UNITS, Fragments, MatrixUnit
from tinygrad.loops.reads import below_bits
from tinygrad.loops.rebuild import replaced
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.simplify.affine import add, divide, modulo, scale
from tinygrad.simplify.constants import identity
from tinygrad.simplify.forms import Terms, number, step_in
from tinygrad.uop import Ops, UOp

WORD = dtypes.uint32
ROWS, ROW_BYTES, ROW_STRIDE = 8, 16, 4  # of a matrix that a warp gathers; lanes for each row


class RowOrder(NamedTuple):
    """How matrices that a warp gathers lie in memory: the loops over rows and over a row's words,
    and the elements from one row to the next. `is_turned`: memory runs along the other axis, and
    matrices of 8x8 elements of two bytes are transposed: a lane gets the elements that its row has
    of two columns."""

    row: UOp
    word: UOp
    step: int
    is_turned: bool


class Place:
    """An operand that a unit reads from LOCAL memory: the stage, the index of its first element,
    and its layout. The layout says whether rows run along the operand's own axis instead of the
    depth, and has the bytes between groups of eight rows and between blocks of elements with
    contiguous rows (0: a single block).

    Raises VerifyError if the unit can't read the stage's layout."""

    def __init__(self, value: UOp, own: Sequence[UOp], depth: Sequence[UOp]) -> None:
        value = below_bits(value)
        self.stage = value.src[0] if value.op is Ops.INDEX else value
        if not is_swizzled(self.stage):
            raise VerifyError(f"a unit reads {value.op!r} itself; legal: a swizzled STAGE")
        self.offset, self.size = flat_offset(value), value.dtype.itemsize
        self.own, self.depth = own, depth
        zeros = {loop: number(0) for loop in (*own, *depth)}
        self.first = replaced(self.offset, zeros)
        turned = self._apart(own, 1) == self.size
        rows, row = (depth, own) if turned else (own, depth)
        inside = ROW // self.size
        count = min(inside, prod(map(size_of, row)))
        steps = [(row, i, i * self.size) for i in _powers(count)]
        steps += [(rows, i, i * ROW) for i in _powers(prod(map(size_of, rows)))]
        if any(self._apart(loops, i) != bytes_ for loops, i, bytes_ in steps):
            raise VerifyError(f"stage {name_of(self.stage)!r}: its rows are not those a unit reads")
        chunk = self._apart(row, inside) if prod(map(size_of, row)) > inside else 0
        self.layout = turned, ROWS * ROW, chunk

    def _apart(self, loops: Sequence[UOp], index: int) -> int:
        """Bytes from the first element to the one with that index along an axis."""
        changes, rest = {loop: number(0) for loop in (*self.own, *self.depth)}, index
        for loop in reversed(loops):
            changes[loop] = number(rest % size_of(loop))
            rest //= size_of(loop)
        found = add(replaced(self.offset, changes), self.first, -1)
        return int(found.arg) * self.size if found.op is Ops.CONST else -1


def _powers(count: int) -> list[int]:
    return [1 << i for i in range((count - 1).bit_length())]


class Sums:
    """A REDUCE of products on such a unit."""

    def __init__(self, owner: Evaluator, node: UOp) -> None:
        self.owner, self.node = owner, node
        value = term_of(node)
        self.factor = factor_of(node)
        unit = UNITS[value.arg]
        assert unit.held is not None
        self.unit: MatrixUnit = unit
        self.held: Fragments = unit.held
        self.sides = value.src[:2]
        self.loops = dict(zip(self.held.items, value.src[2:], strict=True))
        self.own = [self.loops[name] for name in self.held.out_items]
        self.outs = owner.copies_of([r for r in node.ranges if r not in self.own], {})
        if unit.is_staged:
            self.places = [Place(side, *self._along(i)) for i, side in enumerate(self.sides)]

    def start(self) -> Values:
        """The accumulators before the first turn, one for each of the unit's matrices."""
        count = prod(size_of(r) for r in self.own)
        empty = self.owner.program.widen(identity(self.node.arg, self.node.dtype), count)
        return [empty] * len(self.outs)

    def take(self, accumulators: Values) -> Values:
        """One turn of the loops."""
        inside = self.loops.values()
        own = [r for r in own_ranges(self.node) if r not in inside]
        unrolled = [r for r in own if role_of(r) == "UNROLL"]
        totals = self._scaled(accumulators)
        for inner in self.owner.copies_of(unrolled, {}):
            for i, out in enumerate(self.outs):
                copies = {**out, **inner}
                if self.unit.is_staged:
                    totals[i] = self._begun(totals[i], copies)
                    continue
                a = self._words(self.sides[0], self.held.a_items, copies)
                b = self._words(self.sides[1], self.held.b_items, copies)
                src = (a, b, totals[i])
                totals[i] = self.owner.program.add(Ops.WMMA, totals[i].dtype, src, self.unit.name)
        if self.unit.is_staged:
            self._effect(Ops.COMMIT, dtypes.void, (), "products")
            if not self.owner.is_late:
                self._effect(Ops.WAIT, dtypes.void, (), ("products", 0))
        return totals

    def _scaled(self, accumulators: Values) -> Values:
        """The accumulators, multiplied by the factor with which a sum that follows a maximum is
        rescaled."""
        if self.factor is None:
            return list(accumulators)
        program, found = self.owner.program, []
        for out, total in zip(self.outs, accumulators, strict=True):
            factors = [self.owner.evaluate(self.factor, turn) for turn in in_turns(out, self.own)]
            found.append(program.add(Ops.MUL, total.dtype, (total, program.vector(factors))))
        return found

    def _effect(self, op: Ops, dtype: DType, src: tuple[UOp, ...], arg: object) -> UOp:
        return self.owner.program.effect(op, dtype, src, arg)

    def _begun(self, total: UOp, copies: Copies) -> UOp:
        """The unit begins to add the products of operands in LOCAL memory."""
        program = self.owner.program
        operands = []
        for place in self.places:
            at = self.owner.addresses.at(place.stage, place.first, copies)
            pointer, _ = self.owner.addresses.plain_pointer(at)
            operands.append(program.add(Ops.MATRIX, dtypes.uint64, (pointer,), place.layout))
        return self._effect(Ops.WMMA, total.dtype, (*operands, total), self.unit.name)

    def _along(self, side: int) -> tuple[list[UOp], list[UOp]]:
        """The unit's loops along an operand's own axis, and along the depth."""
        axis = self.held.columns if side else self.held.rows
        return [self.loops[x] for x, *_ in axis], [self.loops[x] for x, *_ in self.held.depth]

    def keep(self, results: Values) -> None:
        """Binds every copy of the output to its lane of an accumulator."""
        program, home = self.owner.program, self.owner.home_of(self.node)
        if self.unit.is_staged:
            wait = "products", 0
            results = [self._effect(Ops.WAIT, each.dtype, (each,), wait) for each in results]
        vector = next((r for r in self.own if role_of(r) == "VECTOR"), None)
        key = functools.partial(self.owner.integers.key, self.node)
        for out, total in zip(self.outs, results, strict=True):
            groups: dict[object, Values] = {}
            for lane, copies in enumerate(in_turns(out, self.own)):
                element = program.lane(total, lane)
                if vector is None:
                    home.memo[key(copies)] = element
                else:
                    others = {loop: turn for loop, turn in copies.items() if loop is not vector}
                    groups.setdefault(key(others), []).append(element)
            for place, lanes in groups.items():
                home.memo[place] = program.vector(lanes)

    def _of_words(self, items: Sequence[str]) -> tuple[list[UOp], list[UOp]]:
        """The loops inside a word of an operand, and those over a lane's words."""
        loops = [self.loops[name] for name in items]
        inside = [r for r in loops if role_of(r) == "VECTOR"]
        return inside, [r for r in loops if r not in inside]

    def _gathered(self, value: UOp, items: Sequence[str], copies: Copies) -> UOp | None:
        """Matrices of 8 rows of 16 bytes, one for each word of a lane. Lane 8*w + r has the address
        of row r of matrix w; lane 4*g + t gets word t of row g. None if memory has no such rows."""
        value = below_bits(value)
        stage = value.src[0] if value.op is Ops.INDEX else value
        if memory_of(stage) != "LOCAL" or not option(stage, "whole"):
            return None
        terms, constant = self.owner.integers.form(flat_offset(value))
        inside, outside = self._of_words(items)
        order = self._order_of_rows(value, terms, inside)
        if order is None:
            return None
        lane = add(scale(order.row, ROW_STRIDE), order.word)
        place = add(number(constant), modulo(lane, ROWS), order.step)
        matrix, each = divide(lane, ROWS), 1
        for loop in reversed(outside):
            digit = modulo(divide(matrix, each), size_of(loop))
            place = add(place, digit, terms.get(loop, 0))
            each *= size_of(loop)
        for term, factor in terms.items():
            if term not in (order.row, order.word, *inside, *outside):
                place = add(place, term, factor)
        addresses, program = self.owner.addresses, self.owner.program
        pointer, alignment = addresses.pointer(addresses.at(stage, place, copies))
        if alignment % ROW_BYTES:
            return None
        arg = (order.is_turned, program.serial())
        return program.effect(Ops.GATHER, WORD.vec(each), (pointer,), arg)

    def _order_of_rows(self, value: UOp, terms: Terms, inside: Sequence[UOp]) -> RowOrder | None:
        """How rows lie at an address of these terms, if as matrices of a `GATHER`: its words, or
        those that are turned."""
        digits = self.owner.lanes.block.digits
        lanes = {digits[r].stride: r for r in value.ranges if r in digits}
        row, word = lanes.get(ROW_STRIDE), lanes.get(1)
        if row is None or word is None or step_in(terms, row) is None:
            return None
        pack = prod(size_of(r) for r in inside)
        first = terms.get(inside[0], 0) if inside else 1
        if terms.get(row) == 1 and pack == 2 and terms.get(word) == 2 * first:
            return RowOrder(row, word, first, is_turned=True)
        if first == 1 and terms.get(word) == pack:
            return RowOrder(row, word, terms.get(row, 0), is_turned=False)
        return None

    def _words(self, value: UOp, items: Sequence[str], copies: Copies) -> UOp:
        """An operand's words: one load for each, if a word's elements are adjacent, or all of them
        by one instruction of the warp."""
        program = self.owner.program
        if "matrix_load" in self.owner.target.native:
            home, key = self.owner.home_of(value), ("words", self.owner.integers.key(value, copies))
            if key not in home.memo:
                outer, program.scope = program.scope, program.latest(home)
                gathered = self._gathered(value, items, copies)
                program.scope = outer
                if gathered is not None:
                    home.memo[key] = gathered
            if key in home.memo:
                return home.memo[key]
        inside, outside = self._of_words(items)
        words = []
        for here in in_turns(copies, outside):
            found = self.owner.evaluate(value, here)
            found = program.widen(found, prod(size_of(r) for r in inside))
            words.append(program.add(Ops.BITCAST, WORD, (found,)))
        return program.vector(words)
