"""Products by a unit that all lanes of a warp execute together: a group's block is a grid of warps,
a warp's part of it a grid of the unit's matrices, whose sums stay in the lanes' registers."""

from __future__ import annotations

from dataclasses import replace

from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.loops.groups.blocks import Shape, Sides, Sizes, UnitBlocks, common_unit, lanes_first
from tinygrad.loops.groups.pieces import BUSY_GROUPS, VECTOR, WORD, parts_of
from tinygrad.loops.matrix_units import MatrixUnit
from tinygrad.loops.plan import Plan
from tinygrad.loops.products import Product

LARGEST_PART = (64, 64)  # of a warp: more registers than this leave no room for operands
LARGEST_GRID = (2, 4)  # warps along rows and columns
STEP = 64  # bytes of a row of a piece: half of what memory brings at once, and few barriers
FILLED = 0.75  # of a lane's registers, for sums and operands
SHARED = 2  # groups that a processor should have room for


def warp_product(plan: Plan, sides: Sides, sizes: Sizes, products: list[Product]) -> bool:
    """Gives the products to a unit of a warp, if the target has one for all of them."""
    unit = common_unit(plan, sides.m, products, staged=False)
    if unit is None:
        return False
    least = min(2 * sizes.rows / unit.rows, 2 * sizes.columns / unit.columns)
    shape = warp_shape(plan.target, unit, sizes)
    if shape is None or min(least, 2 * sizes.depth / unit.depth) < 1:
        return False
    _Warps(plan, sides, shape).run(products)
    return True


def warp_shape(target: Target, unit: MatrixUnit, sizes: Sizes) -> Shape | None:
    """The largest parts that registers and shared memory hold, if that leaves blocks enough for a
    busy device; None if not even one warp has room."""
    part = [
        most // size for most, size in zip(LARGEST_PART, (unit.rows, unit.columns), strict=True)
    ]
    grid = list(LARGEST_GRID)
    item = unit.a.itemsize
    steps = max(unit.depth, STEP // item)
    while steps > unit.depth and steps >= 2 * sizes.depth:
        steps //= 2

    def shape() -> Shape:
        made = Shape((grid[0], grid[1]), (part[0], part[1]), steps, unit=unit)
        return replace(made, shared=sizes.products * sum(made.block) * (steps * item + VECTOR))

    def fits() -> bool:
        sums = part[0] * part[1] * unit.rows * unit.columns
        operands = (part[0] * unit.rows + part[1] * unit.columns) * unit.depth * item // WORD
        words = sizes.products * (sums + operands) / unit.lanes
        return (
            shape().lanes <= target.group_limit
            and words <= target.registers * FILLED
            and SHARED * shape().shared <= target.local_memory
        )

    while not (fits() and sizes.groups(shape().block) >= BUSY_GROUPS):
        if prod(grid) > 4 or (prod(part) <= 4 and prod(grid) > 1):
            grid[grid[0] < grid[1]] //= 2
        elif prod(part) > 4 or (prod(part) > 1 and not fits()):
            part[part[0] * unit.rows < part[1] * unit.columns] //= 2
        else:
            break
        if min(*grid, *part) == 0:
            return None
    return shape() if fits() else None


class _Warps(UnitBlocks):
    """The steps of the recipe."""

    def depth_parts(self, ki: str, kd: str) -> list[str]:
        kd = self.plan.split(ki, self.unit.depth, kd)
        if self.shape.depth <= 2 * self.unit.depth:
            self.plan.do("role", ki, "UNROLL")
        return parts_of(self.plan, kd, self.held.depth, ("LOOP", "TILE", "VECTOR"))

    def layout(self, k: str, ki: str, axis: int) -> tuple[str, str]:
        """[element][step]: what the unit wants from a row is side by side; or, where memory is the
        other way and the target can turn it, [step][element]."""
        inner = self.inner[axis]
        turns = "matrix_load" in self.plan.target.native and self.is_turned(k, ki, axis)
        return (ki, inner) if turns else (inner, ki)

    def output(self) -> tuple[list[str], list[str]]:
        """The output's loops: blocks, warps, the unit's matrices, and their parts."""
        plan, sizes = self.plan, self.shape.matrix
        warps, copies, parts = [], [], []
        for axis, (inner, size) in enumerate(zip(self.inner, sizes, strict=True)):
            part = self.shape.part[axis] * size
            matrix = plan.split(inner, part, inner + "f", "LANE", "LOOP")
            single = plan.split(matrix, size, inner + "m", "UNROLL", "LOOP")
            warps.append(inner)
            copies.append(matrix)
            axis_parts = self.held.columns if axis else self.held.rows
            parts.append(parts_of(plan, single, axis_parts, ("LANE", "UNROLL", "VECTOR")))
        lanes, items = lanes_first(zip(parts, (self.held.rows, self.held.columns), strict=True))
        self.order(self.sides, warps, lanes, copies, items)
        return parts[0], parts[1]
