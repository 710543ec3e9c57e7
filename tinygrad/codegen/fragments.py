"""Sums of products that a unit of a warp computes: operands as words that each lane puts together
from what it reads, and accumulators of which every lane holds its elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Protocol

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.codegen.index import Copies, Integers
from tinygrad.codegen.linear import Program, Scope
from tinygrad.codegen.reduce import identity
from tinygrad.loops.layout import own_ranges, role_of, size_of
from tinygrad.loops.matrix_units import UNITS, Fragments, MatrixUnit
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

Values = list[UOp]
WORD = dtypes.uint32


class Owner(Protocol):
    """What evaluates the rest of a kernel."""

    program: Program
    integers: Integers

    def evaluate(self, node: UOp, copies: Copies) -> UOp: ...
    def home_of(self, node: UOp) -> Scope: ...
    def copies_of(self, ranges: Sequence[UOp], copies: Copies) -> list[Copies]: ...


class Sums:
    """One such REDUCE."""

    def __init__(self, owner: Owner, node: UOp) -> None:
        self.owner, self.node = owner, node
        value = node.src[0]
        unit = UNITS[value.arg]
        assert unit.held is not None
        self.unit: MatrixUnit = unit
        self.held: Fragments = unit.held
        self.sides = value.src[:2]
        self.loops = dict(zip(self.held.items, value.src[2:], strict=True))
        self.own = [self.loops[name] for name in self.held.out_items]
        self.outs = owner.copies_of([r for r in node.ranges if r not in self.own], {})

    def start(self) -> Values:
        """The accumulators before the first turn, one for each of the unit's matrices."""
        count = prod(size_of(r) for r in self.own)
        empty = self.owner.program.widen(identity(self.node.arg, self.node.dtype), count)
        return [empty] * len(self.outs)

    def take(self, accumulators: Values) -> Values:
        """One turn of the loops."""
        unrolled = [r for r in own_ranges(self.node) if role_of(r) == "UNROLL"]
        totals = list(accumulators)
        for inner in self.owner.copies_of(unrolled, {}):
            for i, out in enumerate(self.outs):
                copies = {**out, **inner}
                a = self._words(self.sides[0], self.held.a_items, copies)
                b = self._words(self.sides[1], self.held.b_items, copies)
                src = (a, b, totals[i])
                totals[i] = self.owner.program.add(Ops.WMMA, totals[i].dtype, src, self.unit.name)
        return totals

    def keep(self, results: Values) -> None:
        """Every copy of the output finds its lane of an accumulator."""
        program, home = self.owner.program, self.owner.home_of(self.node)
        vector = next((r for r in self.own if role_of(r) == "VECTOR"), None)
        key: Callable[[Copies], object] = lambda c: self.owner.integers.key(self.node, c)  # noqa: E731
        for out, total in zip(self.outs, results, strict=True):
            groups: dict[object, Values] = {}
            for lane, turn in enumerate(product(*(range(size_of(r)) for r in self.own))):
                copies = {**out, **dict(zip(self.own, turn, strict=True))}
                element = program.lane(total, lane)
                if vector is None:
                    home.memo[key(copies)] = element
                else:
                    del copies[vector]
                    groups.setdefault(key(copies), []).append(element)
            for place, lanes in groups.items():
                home.memo[place] = program.vector(lanes)

    def _words(self, value: UOp, items: Sequence[str], copies: Copies) -> UOp:
        """An operand's words: one load each, where a word's elements lie side by side."""
        program = self.owner.program
        loops = [self.loops[name] for name in items]
        inside = [r for r in loops if role_of(r) == "VECTOR"]
        outside = [r for r in loops if r not in inside]
        words = []
        for turn in product(*(range(size_of(r)) for r in outside)):
            here = {**copies, **dict(zip(outside, turn, strict=True))}
            found = self.owner.evaluate(value, here)
            found = program.widen(found, prod(size_of(r) for r in inside))
            words.append(program.add(Ops.BITCAST, WORD, (found,)))
        return program.vector(words)
