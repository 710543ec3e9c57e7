"""Where elements lie in memory. An address is a chain of INDEX nodes, from the outermost scope
inward. The constant is last, so that it falls into the addressing mode."""

from __future__ import annotations

from math import gcd
from operator import attrgetter
from typing import NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.codegen.index import Copies, Integers
from tinygrad.codegen.linear import Program, as_node
from tinygrad.loops.layout import elements, flat_offset, memory_of, option
from tinygrad.loops.roles import COPIED, LANES, WRITTEN_OUT, name_of, role_of, size_of
from tinygrad.simplify.forms import Terms, step_in
from tinygrad.uop import Ops, UOp
from tinygrad.uop.instructions import ALIGNMENT

SLACK = 64
"""Elements after a staged array, so that a whole vector at its end may be read or written."""

ROW, ROWS, CHUNK = 128, 8, 16
"""In a swizzled stage, chunk c of row r (in bytes) is at the place of chunk c ^ (r % ROWS), so that
neighbours along either axis are in different banks. Units that read LOCAL memory themselves expect
this layout."""


Loops = tuple[UOp, ...]


class Address(NamedTuple):
    """An element of `memory`, in one copy of the loops: a sum of multiples of terms, and a
    constant."""

    memory: UOp
    terms: Terms
    constant: int
    copies: Copies

    def moved(self, elements: int) -> Address:
        """The address this many elements further."""
        return self._replace(constant=self.constant + elements)

    def in_turn(self, loop: UOp, turn: int) -> Address:
        """The address in this turn of a loop, or for this lane of it."""
        return self._replace(copies={**self.copies, loop: turn})

    def start(self, *loops: UOp) -> Address:
        """The address in the first turn of these loops."""
        return self._replace(terms={t: k for t, k in self.terms.items() if t not in loops})

    def step(self, loop: UOp) -> int | None:
        """The elements from turn to turn of a loop, or from lane to lane; None if they differ."""
        return step_in(self.terms, loop)

    def is_row_major(self, tiles: Loops) -> bool:
        """Whether the elements for the turns of `tiles` are contiguous, in this order."""
        step = 1
        for loop in reversed(tiles):
            if self.step(loop) != step:
                return False
            step *= size_of(loop)
        return True


class Addresses:
    """The addresses of one function. `slots` maps GLOBAL stages to their PARAM."""

    def __init__(self, integers: Integers, slots: dict[UOp, UOp]) -> None:
        self.integers, self.slots = integers, slots
        self.program: Program = integers.program
        self._places: dict[tuple[UOp, UOp, bool], tuple[Terms, int]] = {}

    def base(self, memory: UOp) -> UOp:
        """The pointer to the first element of a PARAM or STAGE."""
        if memory.op is Ops.PARAM:
            return self.program.argument(Ops.PARAM, memory.dtype, memory.arg)
        if memory in self.slots:
            slot = self.slots[memory]
            return self.program.argument(Ops.PARAM, slot.dtype, slot.arg)
        copies = prod(size_of(r) for r in around(memory))
        size = elements(memory) * copies * size_of(slot_of(memory)) + SLACK
        aligned = (ROW * ROWS,) if is_swizzled(memory) else ()
        return self.program.argument(Ops.LOCAL, memory.dtype, (name_of(memory), size, *aligned))

    def at(self, memory: UOp, offset: UOp, copies: Copies) -> Address:
        """The element of `memory` at `offset`, an expression for all copies of the loops."""
        is_slotted = is_deep(memory) and slot_of(memory) in self.integers.bound
        key = (memory, offset, is_slotted)
        if key not in self._places:
            self._places[key] = self._place(*key)
        return Address(memory, *self._places[key], copies)

    def _place(self, memory: UOp, offset: UOp, is_slotted: bool) -> tuple[Terms, int]:
        """The position in a staged array. Each copy of the loops around the stage has an array of
        its own, in which the elements of the lanes around it are interleaved."""
        terms, constant = self.integers.form(offset)
        if is_slotted:
            terms = {**terms, slot_of(memory): elements(memory)}
        copied = around(memory)
        step, places = 1, dict[UOp, int]()
        for loop in reversed([r for r in copied if role_of(r) not in WRITTEN_OUT]):
            places[loop] = step
            step *= size_of(loop)
        apart = step * elements(memory) * size_of(slot_of(memory)) if copied else 0
        for loop in reversed([r for r in copied if role_of(r) in WRITTEN_OUT]):
            places[loop] = apart
            apart *= size_of(loop)
        terms = {**{t: k * step for t, k in terms.items()}, **places}
        return terms, constant * step

    def read_at(self, read: UOp, copies: Copies) -> Address:
        """The element that an INDEX reads."""
        return self.at(read.src[0], flat_offset(read), copies)

    def pointer(self, address: Address) -> tuple[UOp, int]:
        """A pointer to an element, and a number of bytes that its address is known to be a multiple
        of."""
        memory, terms, constant, copies = address
        if not is_swizzled(memory):
            return self.plain_pointer(address)
        size, program = memory.dtype.itemsize, self.program
        whole = ROW * ROWS // size  # swizzling repeats at this distance
        far = {t: k for t, k in terms.items() if k % whole == 0}
        near = {t: k for t, k in terms.items() if t not in far}
        beyond = constant // whole * whole
        place = as_node(self.integers.total(near, constant - beyond, copies))
        turned = program.divided(Ops.IDIV, place, ROWS)
        mask = UOp.const(dtypes.index, (ROWS - 1) * CHUNK // size)
        turned = program.add(Ops.AND, dtypes.index, (turned, mask))
        place = program.add(Ops.XOR, dtypes.index, (place, turned))
        found, _ = self.plain_pointer(Address(memory, far, beyond, copies))
        steps = (k * size for k in near.values())
        found = program.add(Ops.INDEX, memory.dtype, (found, place))
        return found, gcd(CHUNK, constant * size, *steps)

    def plain_pointer(self, address: Address) -> tuple[UOp, int]:
        """The same without regard to swizzling."""
        memory, terms, constant, copies = address
        rest = {}
        for term, factor in terms.items():
            if term in copies:
                constant += factor * copies[term]
            else:
                rest[term] = factor
        found, step, known = self._start(memory, rest, copies)
        constant += known
        if constant:
            found = self.program.add(Ops.INDEX, memory.dtype, (found, as_node(constant)))
            step = gcd(step, constant * memory.dtype.itemsize)
        return found, step

    def _start(self, memory: UOp, terms: Terms, copies: Copies) -> tuple[UOp, int, int]:
        """A pointer moved by the non-constant terms, its alignment, and the constant offset that
        remains. Copies that differ only by a constant share the pointer."""
        integers, program, dtype = self.integers, self.program, memory.dtype
        scope = max(map(integers.home, terms), key=attrgetter("depth"), default=program.base)
        key = (memory, *[(integers.key(t, copies), k) for t, k in terms.items()])
        if key in scope.starts:
            return scope.starts[key]
        found, (parts, constant) = self.base(memory), integers.parts(terms, copies)
        for _, value, factor in parts:
            found = program.add(Ops.INDEX, dtype, (found, program.multiple(value, factor)))
        step = gcd(ALIGNMENT, *(factor * dtype.itemsize for _, _, factor in parts))
        scope.starts[key] = found, step, constant
        return scope.starts[key]


def is_deep(memory: UOp) -> bool:
    """Whether a staged array holds the values of several turns."""
    return memory.op is Ops.STAGE and bool(option(memory, "depth", 1) > 1)


def is_swizzled(memory: UOp) -> bool:
    """Whether a staged array has the layout of a unit that reads it directly."""
    return memory.op is Ops.STAGE and option(memory, "swizzle") is not None


def slot_of(stage: UOp) -> UOp:
    """The index that counts the slots of such an array."""
    return UOp.range(option(stage, "depth", 1), f"{name_of(stage)}.slot")


def around(memory: UOp) -> list[UOp]:
    """The copied ranges and lanes that a staged array depends on, a vector last. Each of their
    turns has elements of its own."""
    if memory_of(memory) != "LOCAL":
        return []
    found = [r for r in memory.ranges if role_of(r) in COPIED | LANES]
    return sorted(found, key=lambda r: (role_of(r) == "VECTOR", name_of(r)))
