"""Products by a unit that reads its operands from the memory that a group's lanes share (`wgmma`):
a group's block is a row of the unit's matrices, one for each set of lanes that executes it. While
the unit multiplies one turn's pieces the next ones are fetched."""

from __future__ import annotations

from dataclasses import replace

from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.loops.groups.blocks import Shape, Sides, Sizes, UnitBlocks, common_unit, lanes_first
from tinygrad.loops.groups.pieces import BUSY_GROUPS, parts_of
from tinygrad.loops.layout import size_of
from tinygrad.loops.matrix_units import MatrixUnit, matrix_units
from tinygrad.loops.plan import Plan
from tinygrad.loops.products import Product

ROW = 128  # bytes of a row of a piece
BLOCK = 64  # elements of an operand whose rows lie one after the other
MOST_LANES = 256  # of a group: two sets leave each lane registers for a whole matrix
REGISTERS = 0.75  # of a lane's, for sums
WASTE = 1.25  # of the least that blocks may reach beyond the edges
LEAST_PIECES = 2  # that there must be room for
NEIGHBOURS = 8  # blocks of rows whose groups follow each other: they read the same columns


def staged_product(plan: Plan, sides: Sides, sizes: Sizes, products: list[Product]) -> bool:
    """Gives large products to such a unit, if the target has one for all of them."""
    unit = common_unit(plan, sides.m, products, staged=True)
    if unit is None or 2 * min(sizes.rows, sizes.columns) < BLOCK:
        return False
    shape = staged_shape(plan.target, unit, sizes)
    if shape is None or sizes.depth * unit.a.itemsize < ROW:
        return False
    _Staged(plan, sides, shape).run(products)
    return True


def staged_shape(target: Target, unit: MatrixUnit, sizes: Sizes) -> Shape | None:
    """The largest block that registers and shared memory hold, that leaves groups enough for a
    busy device and reaches little beyond the edges; None if there is none."""
    found: list[tuple[int, Shape]] = []
    alike = matrix_units(target, unit.a, unit.b, unit.out)
    for each in (other for other in alike if other.is_staged and other.a is unit.a):
        for sets in (2, 1):
            shape = Shape((sets, 1), (1, 1), ROW // unit.a.itemsize, unit=each)
            shape = replace(shape, shared=sizes.products * sum(shape.block) * ROW)
            sums = sizes.products * each.rows * each.columns / each.lanes
            if (
                shape.lanes <= min(MOST_LANES, target.group_limit)
                and sums <= target.registers * REGISTERS
                and LEAST_PIECES * shape.shared <= target.local_memory
                and sizes.groups(shape.block) >= BUSY_GROUPS
            ):
                found.append((sizes.groups(shape.block) * prod(shape.block), shape))
    least = min((area for area, _ in found), default=0)
    fits = [shape for area, shape in found if area <= WASTE * least]
    return max(fits, key=lambda shape: (prod(shape.block), shape.matrix[1]), default=None)


class _Staged(UnitBlocks):
    """The steps of the recipe. `inner` counts blocks of an operand, `marks` elements of one."""

    options = (("swizzle", ROW),)

    def __init__(self, plan: Plan, sides: Sides, shape: Shape) -> None:
        super().__init__(plan, sides, shape)
        rows, columns = self.inner
        self.marks = (
            plan.split(rows, BLOCK, sides.m + "s"),
            plan.split(columns, BLOCK, sides.n + "s"),
        )

    def depth_parts(self, ki: str, kd: str) -> list[str]:
        return [self.plan.split(ki, self.unit.depth, kd, "UNROLL", "TILE")]

    def layout(self, k: str, ki: str, axis: int) -> tuple[str, str, str]:
        """Blocks, and in each rows of what the sum steps along; or, where memory is the other way
        and the unit can turn it, of the block's elements."""
        block, mark = self.inner[axis], self.marks[axis]
        return (block, ki, mark) if self.is_turned(k, ki, axis) else (block, mark, ki)

    def output(self) -> tuple[list[str], list[str]]:
        """The output's loops: groups, sets of lanes, and the parts of the unit's matrices. Groups
        that follow each other have the same columns, so that they find them in the cache."""
        plan, held = self.plan, self.held
        (m, n), (sets, blocks) = self.sides, self.inner
        roles = ("LANE", "UNROLL", "VECTOR")
        plan.do("role", sets, "LANE")
        plan.do("role", blocks, "UNROLL")
        rows = parts_of(plan, self.marks[0], held.rows, roles)
        columns = [blocks, *parts_of(plan, self.marks[1], held.columns[1:], roles)]
        groups = [m, n]
        if size_of(plan.loops[m]) % NEIGHBOURS == 0:
            groups.append(plan.split(m, NEIGHBOURS, m + "n", "PARALLEL", "PARALLEL"))
        lanes, items = lanes_first(((rows, held.rows), (columns, held.columns)))
        self.order(groups, [sets], lanes, items)
        return rows, columns
