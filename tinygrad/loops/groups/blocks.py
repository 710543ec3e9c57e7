"""Blocks of a product's result. A group computes one of them: it goes along the sum in steps, and
each step brings pieces of both operands. Beyond the edges a piece is 0, so only stores need
masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from tinygrad.base.helpers import ceildiv, prod
from tinygrad.loops.draft import Draft
from tinygrad.loops.groups.pieces import Options, is_copy, piece, pipeline, reach
from tinygrad.loops.matrix_units import MatrixUnit
from tinygrad.loops.products import those_in
from tinygrad.loops.reads import reads_of
from tinygrad.uop.node import UOp

TURNED = 2  # bytes of elements whose matrices units can transpose as they read them
BUSY_GROUPS = 128  # with fewer groups, processors are idle
SHARED = 2  # groups that should fit on a processor at once
FILLED = 0.75  # of a lane's registers, for sums and for operands that it holds


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
            factors = draft.sum_over(k).src[0].src
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
        factors, mark = self.draft.sum_over(k).src[0].src, self.draft.loops[self.marks[axis]]
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
