"""Groups of lanes (work-groups of a GPU): which digit of a lane's number counts which loop, and how
lanes combine their partial reductions.

The lanes of a group are numbered in one row. The LANE ranges of a node are digits of that number,
the innermost range being the lowest digit. A GROUP range takes the lowest digit that no LANE range
of its value uses. So each stage may distribute its work over the lanes in its own way. If a range
is shorter than its digit, the lanes beyond it are masked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import VerifyError
from tinygrad.base.helpers import ceildiv
from tinygrad.base.target import Target
from tinygrad.codegen.linear import Number, Program, as_node
from tinygrad.codegen.reduce import Combiner
from tinygrad.loops.layout import fill_order, memory_of, nodes_of, option
from tinygrad.loops.rebuild import rebuild
from tinygrad.loops.roles import LANES, own_ranges, role_of, size_of
from tinygrad.uop import Ops, UOp
from tinygrad.uop.infer import CLOSERS

MOST_WARPS = 64
"""Up to so many warps, each lane combines the results of all; with more, they are combined by
halves."""


@dataclass(frozen=True)
class Digit:
    """lane // stride % size. The highest digit of a value is open: its size is 0, and it takes no
    remainder."""

    stride: int
    size: int


class Block:
    """The number of lanes in a kernel's groups, and the digit that counts each LANE and GROUP."""

    def __init__(self, kernel: UOp, target: Target) -> None:
        self.digits: dict[UOp, Digit] = {}
        self.size, self.warp = 1, target.warp
        closers = [node for node in nodes_of(kernel) if node.op in CLOSERS]
        for node in reversed(closers):  # from the stores down: readers come before what they read
            outer = [r for r in node.ranges if r in self.digits]
            loops = fill_order(node) if node.op is Ops.STAGE else own_ranges(node)
            own = [r for r in reversed(loops) if role_of(r) in LANES]
            if any(r not in self.digits for r in own):
                self._place(own, outer)
        if self.size > max(1, target.group_limit):
            raise VerifyError(f"a group of {self.size} lanes; the device has {target.group_limit}")

    def _place(self, own: Sequence[UOp], outer: Sequence[UOp]) -> None:
        """Assigns digits to loops that have none: the lowest that `outer` leaves free."""
        for loop in own:
            if size_of(loop) == 1:  # it needs no digit
                self.digits.setdefault(loop, Digit(1, 1))
        known = [r for r in (*outer, *own) if r in self.digits and size_of(r) > 1]
        taken = sorted((self.digits[r].stride, self._end(r)) for r in known)
        for loop in own:
            if loop in self.digits:
                continue
            size = size_of(loop)
            starts = [1, *(end for _, end in taken)]
            free = (s for s in starts if all(s * size <= low or end <= s for low, end in taken))
            stride = next(free)
            above = [low for low, _ in taken if low > stride]
            self.digits[loop] = Digit(stride, min(above) // stride if above else 0)
            taken = sorted([*taken, (stride, stride * size)])
            self.size = max(self.size, stride * size)
        for loop in (*known, *own):  # a digit below another one is no longer open
            stride = self.digits[loop].stride
            above = [low for low, _ in taken if low > stride]
            if above and self.digits[loop].size == 0:
                self.digits[loop] = Digit(stride, min(above) // stride)

    def _end(self, loop: UOp) -> int:
        digit = self.digits[loop]
        return digit.stride * max(digit.size, size_of(loop))

    def lanes_of(self, loop: UOp) -> int:
        """The number of values of this range's digit."""
        digit = self.digits[loop]
        return digit.size or ceildiv(self.size, digit.stride)

    def shares(self, stage: UOp) -> bool:
        """Whether a stage in LOCAL memory is filled by some lanes and read by others."""
        if memory_of(stage) != "LOCAL" or self.size == 1:
            return False
        told = (r for r in stage.ranges if r in self.digits)
        each = sorted((self.digits[r].stride, self.lanes_of(r)) for r in told)
        below = 1
        for stride, size in each:
            if stride > below:
                return True
            below = max(below, stride * size)
        return below < self.size

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.size, 1, 1


def filled_apart(kernel: UOp, target: Target) -> UOp:
    """A stage that lanes share is filled before it is read, not by its first reader, since the
    lanes must synchronise in between."""
    stages = [n for n in nodes_of(kernel) if n.op is Ops.STAGE and option(n, "first")]
    if not stages or not target.has_groups:
        return kernel
    block = Block(kernel, target)
    changes = {}
    for stage in filter(block.shares, stages):
        name, memory, options = stage.arg
        kept = tuple((key, value) for key, value in options if key != "first")
        changes[stage.arg] = (name, memory, kept)
    return rebuild(
        kernel, {}, lambda n: n.replace(arg=changes[n.arg]) if n.arg in changes else None
    )


def check_meetings(program: Sequence[UOp]) -> None:
    """VerifyError unless every barrier is reached by all lanes: it must be in no branch and no loop
    that some lanes skip. Else some machines hang, and others read what is not there yet."""
    varies: set[UOp] = set()  # differs from lane to lane
    open_: list[UOp] = []
    for node in program:
        if (
            node.op is Ops.SPECIAL
            and node.arg[0].startswith("lid")
            or any(source in varies for source in node.src)
        ):
            varies.add(node)
        if node.op in (Ops.IF, Ops.RANGE):
            open_.append(node)
        elif node.op in (Ops.ENDIF, Ops.END):
            open_.pop()
        elif node.op is Ops.BARRIER and any(around in varies for around in open_):
            raise VerifyError("lanes meet in a branch that not all of them take")


class Lanes:
    """The lanes of one phase's program."""

    def __init__(self, program: Program, combiner: Combiner, block: Block) -> None:
        self.program, self.combiner, self.block = program, combiner, block

    def flat(self) -> Number:
        """This lane's number."""
        if self.block.size == 1:
            return 0
        return self.program.argument(Ops.SPECIAL, dtypes.index, ("lid0", self.block.size))

    def part(self, stride: int, size: int) -> Number:
        """lane // stride % size; without the remainder if size is 0."""
        value = 0 if size == 1 else self.flat()
        if not isinstance(value, int) and stride > 1:
            value = self.program.divided(Ops.IDIV, value, stride)
        if not isinstance(value, int) and 0 < size < ceildiv(self.block.size, stride):
            value = self.program.divided(Ops.MOD, value, size)
        return value

    def counters(self) -> dict[UOp, Number]:
        """The counter of each LANE and GROUP range."""
        return {loop: self.part(d.stride, d.size) for loop, d in self.block.digits.items()}

    def limits(self) -> dict[UOp, int]:
        """The number of lanes for each range that may need fewer."""
        return {loop: self.block.lanes_of(loop) for loop in self.block.digits}

    def first_of(self, own: Iterable[UOp]) -> UOp | None:
        """Whether this lane is the one that stores: the first of the lanes that agree in all of
        `own`. None if no two lanes agree."""
        told = sorted((d.stride, d.size) for d in map(self.block.digits.get, own) if d is not None)
        mask: UOp | None = None
        below = 1
        for stride, size in (*told, (self.block.size, 1)):
            if below < stride:
                is_first = self.program.test(Ops.CMPEQ, self.part(below, stride // below), 0)
                mask = self.program.both(mask, is_first)
            below = max(below, stride * size or self.block.size)
        return mask

    def barrier(self, filled: Iterable[UOp] = ()) -> None:
        """All lanes synchronise; afterwards the values that they filled are visible to all
        readers."""
        if self.block.size > 1:
            if any(option(stage, "swizzle") for stage in filled):
                self.program.effect(Ops.FENCE, dtypes.void, ())
            self.program.effect(Ops.BARRIER, dtypes.void, ())

    def across(self, monoid: str, value: UOp, ranges: Sequence[UOp]) -> UOp:
        """Combines the values of all lanes along GROUP `ranges`; every lane gets the result."""
        rest = []
        for loop in ranges:
            if self._exchanges(loop):
                value = self._in_warps(monoid, value, loop)
            else:
                rest.append(loop)
        return self._in_tree(monoid, value, rest) if rest else value

    def _exchanges(self, loop: UOp) -> bool:
        """Whether lanes of a warp may exchange values along this range: it has all lanes of its
        digit, a power of two, in complete warps, of which there are few."""
        digit, size, warp = self.block.digits[loop], size_of(loop), self.block.warp
        if warp == 0 or self.block.lanes_of(loop) != size or self.block.size % warp:
            return False
        if size > MOST_WARPS * max(1, warp // digit.stride):
            return False
        return (size & (size - 1)) == (digit.stride & (digit.stride - 1)) == 0

    def _in_warps(self, monoid: str, value: UOp, loop: UOp) -> UOp:
        """Lanes exchange values with neighbours, then at twice the distance, and so on within a
        warp. The results of several warps go through LOCAL memory, and each lane combines all of
        them."""
        program, width = self.program, value.dtype.count
        stride, size = self.block.digits[loop].stride, size_of(loop)
        inside = max(1, min(size, self.block.warp // stride))
        distance = 1
        while distance < inside:
            other = program.add(Ops.EXCHANGE, value.dtype, (value,), distance * stride)
            value = self.combiner.combine(monoid, value, other)
            distance *= 2
        if inside == size:
            return value
        memory, flat = self._shown(value)
        counter = self.part(stride, self.block.digits[loop].size)
        back = program.integer(Ops.MUL, counter, -stride * width)
        first = program.integer(Ops.ADD, flat, back)
        places = (j * inside * stride * width for j in range(size // inside))
        found = [
            self._load(self._at(memory, program.integer(Ops.ADD, first, p)), value) for p in places
        ]
        return self.combiner.pairwise(monoid, found)

    def _in_tree(self, monoid: str, value: UOp, ranges: Sequence[UOp]) -> UOp:
        """The same through LOCAL memory only, with half of the lanes in each step."""
        program, width = self.program, value.dtype.count
        memory, flat = self._shown(value)
        own = self._at(memory, flat)
        for loop in ranges:
            digit, size = self.block.digits[loop], size_of(loop)
            lane, stride = self.part(digit.stride, digit.size), digit.stride * width
            distance = 1 << (size - 1).bit_length() >> 1
            while distance:
                last = min(distance, size - distance)
                with program.branch(program.test(Ops.CMPLT, lane, last)):
                    other = self._at(memory, program.integer(Ops.ADD, flat, distance * stride))
                    pair = self._load(own, value), self._load(other, value)
                    self._store(own, self.combiner.combine(monoid, *pair))
                self.barrier()
                distance //= 2
            flat = program.integer(Ops.ADD, flat, program.integer(Ops.MUL, lane, -stride))
            own = self._at(memory, flat)
        return self._load(own, value)

    def _shown(self, value: UOp) -> tuple[UOp, Number]:
        """LOCAL memory that holds the values of all lanes, and the index of this lane's."""
        program, width = self.program, value.dtype.count
        arg = (f"lanes{program.serial()}", self.block.size * width)
        memory = program.argument(Ops.LOCAL, value.dtype.scalar(), arg)
        flat = program.integer(Ops.MUL, self.flat(), width)
        self.barrier()
        self._store(self._at(memory, flat), value)
        self.barrier()
        return memory, flat

    def _at(self, memory: UOp, offset: Number) -> UOp:
        return self.program.add(Ops.INDEX, memory.dtype, (memory, as_node(offset)))

    def _load(self, pointer: UOp, like: UOp) -> UOp:
        arg = (like.dtype.scalar().itemsize, self.program.serial())
        return self.program.effect(Ops.LOAD, like.dtype, (pointer,), arg)

    def _store(self, pointer: UOp, value: UOp) -> None:
        arg = (value.dtype.scalar().itemsize, "")
        self.program.effect(Ops.STORE, dtypes.void, (pointer, value), arg)
