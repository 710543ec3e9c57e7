"""Groups of lanes (a GPU's work-groups): which loop is counted by which lane number, and how lanes
combine what each of them reduced.

A group has up to three numbers, lid0 the fastest. The LANE ranges of a node take them from the
innermost outward; a GROUP range takes one that no LANE range of its value uses. Where a range is
shorter than its number, the lanes beyond it are masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import VerifyError
from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.codegen.linear import Number, Program, as_node
from tinygrad.codegen.reduce import Combiner
from tinygrad.loops.layout import OWN, name_of, own_ranges, role_of, size_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

MOST_NUMBERS = 3


class Block:
    """The shape of a kernel's groups, and the number that counts each LANE and GROUP range."""

    def __init__(self, kernel: UOp, target: Target) -> None:
        self.sizes: list[int] = []
        self.number: dict[UOp, int] = {}
        closers = [node for node in kernel.toposort() if node.op in OWN]
        for node in closers:
            lanes = [r for r in own_ranges(node) if role_of(r) == "LANE"]
            for number, loop in enumerate(reversed(lanes)):
                self._assign(loop, number)
        for node in closers:
            taken = {self.number[r] for r in node.ranges if r in self.number}
            for loop in own_ranges(node):
                if role_of(loop) == "GROUP" and loop not in self.number:
                    self._assign(loop, self._free_number(loop, taken))
                    taken.add(self.number[loop])
        if prod(self.sizes) > max(1, target.group_limit):
            raise VerifyError(f"a group of {self.sizes} lanes; the device has {target.group_limit}")

    def _free_number(self, loop: UOp, taken: set[int]) -> int:
        """One that is as long as the loop if there is one, else the first."""
        free = [n for n in range(MOST_NUMBERS) if n not in taken]
        sizes = dict(enumerate(self.sizes))
        fits = [n for n in free if sizes.get(n) == size_of(loop)]
        return (fits or free or [MOST_NUMBERS])[0]

    def _assign(self, loop: UOp, number: int) -> None:
        if number >= MOST_NUMBERS:
            raise VerifyError(f"no lane number is left for {name_of(loop)!r}; there are 3")
        self.sizes += [1] * (number + 1 - len(self.sizes))
        self.sizes[number] = max(self.sizes[number], size_of(loop))
        self.number[loop] = number

    @property
    def shape(self) -> tuple[int, int, int]:
        x, y, z = (*self.sizes, 1, 1, 1)[:MOST_NUMBERS]
        return x, y, z


class Lanes:
    """The lanes of one phase's program."""

    def __init__(self, program: Program, combiner: Combiner, block: Block) -> None:
        self.program, self.combiner, self.block = program, combiner, block

    def lane(self, number: int) -> Number:
        """This lane's number."""
        size = self.block.sizes[number]
        if size == 1:
            return 0
        return self.program.argument(Ops.SPECIAL, dtypes.index, (f"lid{number}", size))

    def counters(self) -> dict[UOp, Number]:
        """What counts each LANE and GROUP range."""
        return {loop: self.lane(number) for loop, number in self.block.number.items()}

    def limits(self) -> dict[UOp, int]:
        """How many lanes there are for each range, which may need fewer."""
        return {loop: self.block.sizes[number] for loop, number in self.block.number.items()}

    def first_of(self, own: Iterable[UOp]) -> UOp | None:
        """Whether this lane is the one that stores: the first of those that `own` doesn't tell
        apart. None if it tells all apart."""
        told = {self.block.number[r] for r in own if r in self.block.number}
        mask: UOp | None = None
        for number, size in enumerate(self.block.sizes):
            if number not in told and size > 1:
                lane = as_node(self.lane(number))
                is_first = self.program.add(Ops.CMPEQ, dtypes.bool, (lane, as_node(0)))
                mask = self.program.both(mask, is_first)
        return mask

    def barrier(self) -> None:
        """All lanes arrive before any goes on."""
        if prod(self.block.sizes) > 1:
            self.program.effect(Ops.BARRIER, dtypes.void, (), None, self.program.scope)

    def across(self, monoid: str, value: UOp, ranges: Sequence[UOp]) -> UOp:
        """The values of all lanes along GROUP `ranges`, combined in a tree; every lane gets it."""
        program, sizes = self.program, self.block.sizes
        width = value.dtype.count
        name = f"lanes{program.serial()}"
        count = prod(sizes) * width
        memory = program.argument(Ops.LOCAL, value.dtype.scalar(), (name, count))
        flat: Number = 0
        for number in range(len(sizes)):
            step = program.integer(Ops.MUL, self.lane(number), prod(sizes[:number]) * width)
            flat = program.integer(Ops.ADD, flat, step)
        own = self._at(memory, flat)
        self.barrier()
        self._store(own, value)
        self.barrier()
        for loop in ranges:
            number, size = self.block.number[loop], size_of(loop)
            stride = prod(sizes[:number]) * width
            distance = 1 << (size - 1).bit_length() >> 1
            while distance:
                lane = as_node(self.lane(number))
                last = as_node(min(distance, size - distance))
                program.open_branch(program.add(Ops.CMPLT, dtypes.bool, (lane, last)))
                other = self._at(memory, program.integer(Ops.ADD, flat, distance * stride))
                pair = self._load(own, value), self._load(other, value)
                self._store(own, self.combiner.combine(monoid, *pair))
                program.close()
                self.barrier()
                distance //= 2
            back = program.integer(Ops.MUL, self.lane(number), -stride)
            flat = program.integer(Ops.ADD, flat, back)
            own = self._at(memory, flat)
        return self._load(own, value)

    def _at(self, memory: UOp, offset: Number) -> UOp:
        return self.program.add(Ops.INDEX, memory.dtype, (memory, as_node(offset)))

    def _load(self, pointer: UOp, like: UOp) -> UOp:
        arg = (like.dtype.scalar().itemsize, self.program.serial())
        return self.program.effect(Ops.LOAD, like.dtype, (pointer,), arg, self.program.scope)

    def _store(self, pointer: UOp, value: UOp) -> None:
        arg = (value.dtype.scalar().itemsize, "")
        scope = self.program.scope
        self.program.effect(Ops.STORE, dtypes.void, (pointer, value), arg, scope)
