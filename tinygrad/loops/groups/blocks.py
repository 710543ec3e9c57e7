"""What the recipes for groups of lanes have in common.

- Loops split into the parts that a matrix unit prescribes.
- Pieces of operands in the memory that a group's lanes share. All lanes fill a piece together,
  whatever expression the operand is.
- Blocks of a product's result. A group computes one block. It goes along the sum in steps, and each
  step brings pieces of both operands. Beyond the edges a piece is 0, so only stores need masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinygrad.base.helpers import ceildiv, prod
from tinygrad.base.target import Target
from tinygrad.loops.draft import Draft, names
from tinygrad.loops.matrix_units import MatrixUnit, Part
from tinygrad.loops.products import those_in
from tinygrad.loops.reads import copy_of, reads_of, step
from tinygrad.loops.roles import own_ranges, role_of
from tinygrad.uop.node import UOp

WORD = 4  # bytes of a register of a lane
VECTOR = 16  # bytes that a lane moves at once
Options = tuple[tuple[str, object], ...]
DEEPEST = 4  # pieces of a pipeline: with three being fetched, the first arrives in time
TURNED = 2  # bytes of elements whose matrices units can transpose as they read them
BUSY_GROUPS = 128  # with fewer groups, processors are idle
SHARED = 2  # groups that should fit on a processor at once
FILLED = 0.75  # of a lane's registers, for sums and for operands that it holds
SHORT = 8  # a loop of so few turns is unrolled
UNKNOWN_STEP = 1 << 20  # elements between neighbours of which nothing is known
NOT_READ = 1 << 30


def sum_over(draft: Draft, k: str) -> UOp:
    """The sum that the loop `k` belongs to."""
    loop = draft.loops[k]
    return next(x for x in draft.sums if loop in own_ranges(x))


def parts_of(
    draft: Draft, loop: str, parts: Sequence[Part], roles: tuple[str, str, str]
) -> list[str]:
    """Splits a loop into its parts. Roles: of parts that lanes count, of elements that a lane
    holds, of adjacent elements that it holds."""
    found, rest = [], loop
    for i, (_, _, stride) in enumerate(parts):
        inside = prod(size for _, size, _ in parts[i + 1 :])
        role = roles[0] if stride else roles[1 + (i + 1 == len(parts))]
        found.append(rest)
        if inside > 1:
            rest = draft.split(rest, inside, f"{loop}{parts[i + 1][0]}", role, "LOOP")
        elif role != "LOOP":
            draft.do("role", rest, role)
    return found


def lanes_first(pairs: Iterable[tuple[Sequence[str], Sequence[Part]]]) -> tuple[list[str], ...]:
    """The loops that count lanes, slowest first; and the loops over what a lane holds."""
    strides = {
        name: part[2] for names, parts in pairs for name, part in zip(names, parts, strict=True)
    }
    lanes = sorted((x for x in strides if strides[x]), key=lambda x: -strides[x])
    return lanes, [x for x in strides if not strides[x]]


# ---- pieces --------------------------------------------------------------------------------------


def pipeline(target: Target, shared: int, most: int) -> Options:
    """The options of a stage whose next pieces are fetched while others are used, as many as there
    is room for. `shared`: bytes of one turn's pieces, `most`: number of turns."""
    depth = min(DEEPEST, target.local_memory // shared, most)
    if "async_copy" not in target.native or depth < 2:
        return ()
    return (("depth", depth), ("via", "async"))


def is_copy(value: UOp, along: UOp) -> bool:
    """Whether a piece is an exact copy of memory whose rows have neighbours along `along`."""
    read = copy_of(value)
    return read is not None and step(read, along) == 1


def fill(draft: Draft, name: str, lanes: int) -> None:
    """All lanes of a group fill a stage together: adjacent lanes read adjacent memory, in vectors
    if possible."""
    own = names(own_ranges(draft.stages[name]))
    loads = reads_of(draft.below(draft.nest(name).values))
    fast = min(own, key=lambda x: (reach(loads, draft.loops[x]), -own.index(x)))
    others = [x for x in own if x != fast]
    elements = draft.turns(own)
    width = draft.target.lanes(draft.stages[name].dtype.itemsize)
    while width > 1 and elements < lanes * width:
        width //= 2
    tail: list[str] = []
    if width > 1 and all(_is_row(x, draft.loops[fast]) for x in loads):
        tail = [draft.split(fast, width, fast + "v", "LOOP", "VECTOR")]
    given, _ = deal(draft, (fast, *reversed(others)), lanes)
    for loop in own:
        if role_of(draft.loops[loop]) == "LOOP" and draft.size(loop) <= SHORT:
            draft.do("role", loop, "UNROLL")
    draft.do("order", name, (*(x for x in own if x not in given), *given, *tail))


def piece(
    draft: Draft, value: UOp, layout: Sequence[str], base: str, lanes: int, options: Options = ()
) -> None:
    """A complete stage that this many lanes fill together. Its rows are padded by 16 bytes, unless
    they are swizzled."""
    name = draft.stage(value, layout, base, "LOCAL", options)
    draft.do("complete", name)
    if len(layout) > 1 and "swizzle" not in dict(options):
        draft.do("pad", name, f"{name}.{layout[0]}", max(1, VECTOR // value.dtype.itemsize))
    fill(draft, name, lanes)


def deal(draft: Draft, loops: Iterable[str], lanes: int) -> tuple[list[str], int]:
    """Distributes loops, the fastest first, over lanes until no lanes are left. Returns the loops
    that count lanes, slowest first, and how many lanes share each position."""
    given: list[str] = []
    for loop in loops:
        size = draft.size(loop)
        if lanes == 1:
            break
        if size <= lanes:
            draft.do("role", loop, "LANE")
            given.insert(0, loop)
            lanes //= power_above(size)
        else:
            given.insert(0, draft.split(loop, lanes, loop + "l", "LOOP", "LANE"))
            lanes = 1
    return given, lanes


def power_below(number: int) -> int:
    """The largest power of two that is at most `number`."""
    return int(2 ** (number.bit_length() - 1))


def power_above(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return int(2 ** (number - 1).bit_length())


def reach(loads: Iterable[UOp], loop: UOp) -> int:
    """The distance between reads of neighbours along the loop, summed over the reads. An unknown
    step counts as a very large one."""
    steps = [step(x, loop) for x in loads if loop in x.ranges]
    if not steps:
        return NOT_READ
    return sum(UNKNOWN_STEP if s is None else abs(s) for s in steps)


def _is_row(load: UOp, loop: UOp) -> bool:
    """Whether a vector along the loop reads adjacent elements, or a single one."""
    return step(load, loop) in (0, 1)


# ---- blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sides:
    """The output's loops by name: that of the rows, that of the columns, and all others."""

    m: str
    n: str
    outer: list[str]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a product: rows and columns of the result, terms of its longest sum, how often
    the product is repeated, and how many products contribute sums to each element."""

    rows: int
    columns: int
    depth: int
    batch: int = 1
    products: int = 1

    def groups(self, block: tuple[int, int]) -> int:
        """The number of blocks of this size; the last ones may reach beyond the edges."""
        return int(self.batch * ceildiv(self.rows, block[0]) * ceildiv(self.columns, block[1]))


@dataclass(frozen=True)
class Shape:
    """The shape of a group's block. `grid`: the parts along rows and columns, each of them one
    warp's (or set of warps', or lane's). `part`: how many of the unit's matrices (or elements) a
    part has. `depth`: the terms of the sum in one turn. `shared`: the bytes of a turn's pieces."""

    grid: tuple[int, int]
    part: tuple[int, int]
    depth: int
    shared: int = 0
    unit: MatrixUnit | None = None

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the unit's result; 1 by 1 without a unit."""
        return (1, 1) if self.unit is None else (self.unit.rows, self.unit.columns)

    @property
    def block(self) -> tuple[int, int]:
        rows, columns = map(prod, zip(self.grid, self.part, self.matrix, strict=True))
        return rows, columns

    @property
    def lanes(self) -> int:
        return int(prod(self.grid)) * (1 if self.unit is None else self.unit.lanes)


class Blocks(ABC):
    """The steps of the recipes. `sides`: the loops of rows and columns, which count blocks;
    `inner`: the loops inside a block; `marks`: loops that tell the factors apart, since each factor
    depends only on that of its own side; `outer`: all other loops of the output. `lanes` of a group
    fill the pieces, whose rows are laid out as `options` say, or padded by 16 bytes."""

    options: Options = ()

    def __init__(self, draft: Draft, sides: Sides, shape: Shape) -> None:
        self.draft, self.shape, self.lanes = draft, shape, shape.lanes
        self.sides, self.outer = (sides.m, sides.n), sides.outer
        rows, columns = (
            draft.split(side, size, side + "i", "PARALLEL", "LOOP")
            for side, size in zip(self.sides, shape.block, strict=True)
        )
        self.inner = self.marks = rows, columns

    def bring(self, k: str, unit: MatrixUnit | None = None) -> str:
        """The operands of the sum over `k` are staged piece by piece, and the products are given to
        the unit. Returns the loop over the terms of a turn."""
        draft, step = self.draft, self.shape.depth
        draft.do("extend", k, step)
        if unit is not None:
            factors = sum_over(draft, k).src[0].src
            rows = next(i for i, x in enumerate(factors) if draft.loops[self.marks[0]] in x.ranges)
            draft.do("tensorise", k, rows, unit.name)
        ki = draft.split(k, step, k + "i")
        layouts = [self.layout(k, ki, axis) for axis in range(2)]
        sides = [self.side(k, axis) for axis in range(2)]
        options = self.options
        if all(is_copy(x, draft.loops[own[-1]]) for x, own in zip(sides, layouts, strict=True)):
            options = (*pipeline(draft.target, self.shape.shared, draft.size(k)), *options)
        for axis, layout in enumerate(layouts):
            self._piece(k, axis, layout, options)
        return ki

    def side(self, k: str, axis: int) -> UOp:
        """A factor of the sum over `k` in its current form: the rows (0) or the columns (1)."""
        factors, mark = sum_over(self.draft, k).src[0].src, self.draft.loops[self.marks[axis]]
        return next(x for x in factors if mark in x.ranges)

    @abstractmethod
    def layout(self, k: str, ki: str, axis: int) -> tuple[str, ...]:
        """A piece's loops, slowest first."""

    def is_turned(self, k: str, ki: str, axis: int) -> bool:
        """Whether memory has neighbours along a piece's own axis rather than along the sum, and a
        unit can transpose as it reads."""
        value, own = self.side(k, axis), self.draft.loops[self.marks[axis]]
        loads = reads_of(self.draft.below((value,)))
        is_across = reach(loads, own) < reach(loads, self.draft.loops[ki])
        return value.dtype.itemsize == TURNED and is_across

    def _piece(self, k: str, axis: int, layout: tuple[str, ...], options: Options) -> None:
        """Stages an operand's piece in shared memory."""
        draft, value = self.draft, self.side(k, axis)
        layout = those_in(value, layout)  # a single block has no loop
        piece(draft, value, layout, "p" + "ab"[axis], self.lanes, options)

    def order(self, *loops: Iterable[str]) -> None:
        """Orders the output's loops within the outer ones, which count groups, too."""
        self.draft.do("order", "store", (*self.outer, *(x for each in loops for x in each)))
        self.draft.give("PARALLEL", self.outer)
