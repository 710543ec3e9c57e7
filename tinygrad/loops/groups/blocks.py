"""What products on devices with groups have in common, whoever multiplies: a group computes a block
of the result. It goes along the sum in steps; for each, all its lanes together bring a piece of
both operands into the memory that they share, whatever the operands are made of. What lies beyond
the edges is 0 in the pieces, so that only what is stored needs masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinygrad.base.helpers import ceildiv, prod
from tinygrad.loops.groups.pieces import TURNED, Options, is_copy, piece, pipeline, reach, sum_over
from tinygrad.loops.layout import reads_of, size_of
from tinygrad.loops.matrix_units import MatrixUnit, Part
from tinygrad.loops.plan import Plan
from tinygrad.loops.products import Product, those_in
from tinygrad.loops.tensorise import operand, units_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


@dataclass(frozen=True)
class Sides:
    """The output's loops by name: of rows, of columns, and all others."""

    m: str
    n: str
    outer: list[str]


@dataclass(frozen=True)
class Sizes:
    """Of the result, of the longest sum, how often that is to be done, and of how many products
    each element has the sum."""

    rows: int
    columns: int
    depth: int
    batch: int = 1
    products: int = 1

    def groups(self, block: tuple[int, int]) -> int:
        """Blocks of that size, which may reach beyond the edges."""
        return int(self.batch * ceildiv(self.rows, block[0]) * ceildiv(self.columns, block[1]))


@dataclass(frozen=True)
class Shape:
    """Of a group's block: how many parts it has along rows and columns, each of them one warp's (or
    set of warps', or lane's), and how many of the unit's matrices (or elements) each part; the
    terms of the sum that a turn takes, and the bytes of its pieces."""

    grid: tuple[int, int]
    part: tuple[int, int]
    depth: int
    shared: int = 0
    unit: MatrixUnit | None = None

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the unit's result."""
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
    `inner`: those of a block; `marks`: loops of which a factor has the one of its side, and not the
    other; `outer`: all other loops of the output. `lanes` of a group fill the pieces, whose rows
    lie as `options` say, or 16 bytes beyond whole ones."""

    options: Options = ()

    def __init__(self, plan: Plan, sides: Sides, shape: Shape) -> None:
        self.plan, self.shape, self.lanes = plan, shape, shape.lanes
        self.sides, self.outer = (sides.m, sides.n), sides.outer
        rows, columns = (
            plan.split(side, size, side + "i", "PARALLEL", "LOOP")
            for side, size in zip(self.sides, shape.block, strict=True)
        )
        self.inner = self.marks = rows, columns

    def bring(self, one: Product, unit: MatrixUnit | None = None) -> str:
        """Operands come in pieces; the products are the unit's. Returns the loop over the terms of
        a turn."""
        plan, k, step = self.plan, one.first_loop, self.shape.depth
        plan.do("extend", k, step)
        if unit is not None:
            factors = sum_over(plan, k).src[0].src
            rows = next(i for i, x in enumerate(factors) if plan.loops[self.marks[0]] in x.ranges)
            plan.do("tensorise", k, rows, unit.name)
        ki = plan.split(k, step, k + "i")
        layouts = [self.layout(k, ki, axis) for axis in range(2)]
        sides = [self.side(k, axis) for axis in range(2)]
        options = self.options
        if all(is_copy(x, plan.loops[own[-1]]) for x, own in zip(sides, layouts, strict=True)):
            options = (*pipeline(plan.target, self.shape.shared, size_of(plan.loops[k])), *options)
        for axis, layout in enumerate(layouts):
            self._piece(k, axis, layout, options)
        return ki

    def side(self, k: str, axis: int) -> UOp:
        """A factor of the sum over `k` as it is now: of rows (0) or columns (1)."""
        factors, mark = sum_over(self.plan, k).src[0].src, self.plan.loops[self.marks[axis]]
        return next(x for x in factors if mark in x.ranges)

    @abstractmethod
    def layout(self, k: str, ki: str, axis: int) -> tuple[str, ...]:
        """A piece's loops, slowest first."""

    def is_turned(self, k: str, ki: str, axis: int) -> bool:
        """Whether memory has neighbours along a piece's own axis, and not along the sum, and a unit
        can turn what it reads."""
        value, own = self.side(k, axis), self.plan.loops[self.marks[axis]]
        loads = reads_of(self.plan.below((value,)))
        is_across = reach(loads, own) < reach(loads, self.plan.loops[ki])
        return value.dtype.itemsize == TURNED and is_across

    def _piece(self, k: str, axis: int, layout: tuple[str, ...], options: Options) -> None:
        """An operand's piece in shared memory."""
        plan, value = self.plan, self.side(k, axis)
        layout = those_in(value, layout)  # one block may be all
        piece(plan, value, layout, "p" + "ab"[axis], self.lanes, options)

    def order(self, *loops: Iterable[str]) -> None:
        """The output's loops within the outer ones, which count groups, too."""
        self.plan.do("order", "store", (*self.outer, *(x for each in loops for x in each)))
        self.plan.give("PARALLEL", self.outer)


class UnitBlocks(Blocks):
    """Those of a unit that many lanes execute together, be its operands held by them or read from
    the memory that they share."""

    def __init__(self, plan: Plan, sides: Sides, shape: Shape) -> None:
        super().__init__(plan, sides, shape)
        assert shape.unit is not None and shape.unit.held is not None
        self.unit, self.held = shape.unit, shape.unit.held

    def run(self, products: Sequence[Product]) -> None:
        """All steps."""
        depths = []
        for one in products:
            ki = self.bring(one, self.unit)
            depths.append(self.depth_parts(ki, one.first_loop + "d"))
        rows, columns = self.output()
        for depth in depths:
            self.plan.do("distribute", rows, columns, depth, self.unit.name)

    @abstractmethod
    def depth_parts(self, ki: str, kd: str) -> list[str]:
        """A turn's terms as the unit's own loops along the sum, the first named like `kd`."""

    @abstractmethod
    def output(self) -> tuple[list[str], list[str]]:
        """The output's loops as the unit's own along rows and columns."""


def common_unit(plan: Plan, m: str, products: Sequence[Product], staged: bool) -> MatrixUnit | None:
    """The unit that all these products take, if they take one; m: the loop of rows."""
    units = [_unit_of(plan, m, one.first_loop, staged) for one in products]
    return units[0] if all(other is units[0] for other in units) else None


def _unit_of(plan: Plan, m: str, k: str, staged: bool) -> MatrixUnit | None:
    """The first unit of a warp, or of several warps that reads staged operands, for the sum over
    `k` of products of two CASTs, or of two values as they are."""
    value = sum_over(plan, k).src[0]
    if value.op is not Ops.MUL:
        return None
    a, b = sorted(value.src, key=lambda x: plan.loops[m] not in x.ranges)
    for unit in units_of(plan.target, a, b, value.dtype):
        is_exact = unit.a is operand(a, unit.a).dtype
        if unit.held is not None and unit.is_staged == staged and is_exact:
            return unit
    return None


def lanes_first(pairs: Iterable[tuple[Sequence[str], Sequence[Part]]]) -> tuple[list[str], ...]:
    """The loops that count lanes, slowest first; and those that count what a lane holds."""
    strides = {
        name: part[2] for names, parts in pairs for name, part in zip(names, parts, strict=True)
    }
    lanes = sorted((x for x in strides if strides[x]), key=lambda x: -strides[x])
    return lanes, [x for x in strides if not strides[x]]
