"""Products by a unit that reads its operands from the memory that a group's lanes share (`wgmma`):
a group's block is a row of the unit's matrices, one for each set of lanes that executes it. While
the unit multiplies one turn's pieces the next ones are fetched."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.helpers import ceildiv, prod
from tinygrad.base.target import Target
from tinygrad.loops.layout import size_of
from tinygrad.loops.matrix_units import MatrixUnit, matrix_units
from tinygrad.loops.pieces import BUSY_GROUPS, TURNED, Options, fill, parts_of, reach
from tinygrad.loops.plan import Plan
from tinygrad.loops.products import Product
from tinygrad.loops.unit_products import ByUnit, common_unit, lanes_first
from tinygrad.uop.op import Ops

ROW = 128  # bytes of a row of a piece
BLOCK = 64  # elements of an operand whose rows lie one after the other
MOST_LANES = 256  # of a group: two sets leave each lane registers for a whole matrix
REGISTERS = 0.75  # of a lane's, for sums
WASTE = 1.25  # of the least that blocks may reach beyond the edges
LEAST_PIECES = 2  # that there must be room for
NEIGHBOURS = 8  # blocks of rows whose groups follow each other: they read the same columns


@dataclass(frozen=True)
class StagedShape:
    """The unit, how many sets of its lanes a group has, and the bytes of one turn's pieces."""

    unit: MatrixUnit
    sets: int
    shared: int

    @property
    def block(self) -> tuple[int, int]:
        return self.sets * self.unit.rows, self.unit.columns


def staged_product(plan: Plan, m: str, n: str, outer: list[str], products: list[Product]) -> bool:
    """Gives large products to such a unit, if the target has one for all of them. m, n: the loops
    of rows and columns."""
    unit = common_unit(plan, m, products, staged=True)
    if unit is None:
        return False
    sizes = size_of(plan.loops[m]), size_of(plan.loops[n])
    batch = prod(size_of(plan.loops[x]) for x in outer)
    shape = staged_shape(plan.target, unit, *sizes, batch, len(products))
    depth = max(size_of(one.inner) for one in products)
    if shape is None or 2 * min(sizes) < BLOCK or depth * unit.a.itemsize < ROW:
        return False
    _Staged(plan, shape, m, n, outer).run(products)
    return True


def staged_shape(
    target: Target, unit: MatrixUnit, rows: int, columns: int, batch: int, products: int
) -> StagedShape | None:
    """The largest block that registers and shared memory hold, that leaves groups enough for a
    busy device and reaches little beyond the edges; None if there is none."""
    found: list[tuple[int, StagedShape]] = []
    alike = matrix_units(target, unit.a, unit.b, unit.out)
    for each in (other for other in alike if other.is_staged and other.a is unit.a):
        for sets in (2, 1):
            shape = StagedShape(each, sets, 0)
            shared = products * sum(shape.block) * ROW
            sums = products * each.rows * each.columns / each.lanes
            if (
                sets * each.lanes <= min(MOST_LANES, target.group_limit)
                and sums <= target.registers * REGISTERS
                and LEAST_PIECES * shared <= target.local_memory
            ):
                blocks = [ceildiv(*pair) for pair in zip((rows, columns), shape.block, strict=True)]
                if batch * prod(blocks) >= BUSY_GROUPS:
                    area = prod(blocks) * prod(shape.block)
                    found.append((area, StagedShape(each, sets, shared)))
    least = min((area for area, _ in found), default=0)
    fits = [shape for area, shape in found if area <= WASTE * least]
    return max(fits, key=lambda shape: (prod(shape.block), shape.unit.columns), default=None)


class _Staged(ByUnit):
    """The steps of the recipe."""

    def __init__(self, plan: Plan, shape: StagedShape, m: str, n: str, outer: list[str]) -> None:
        super().__init__(plan, shape.unit, shape.shared, m, n)
        self.shape, self.outer = shape, outer  # `inner` counts blocks of an operand
        self.marks = self.single = plan.unused(m + "s"), plan.unused(n + "s")  # elements of one

    def run(self, products: list[Product]) -> None:
        plan, unit = self.plan, self.unit
        step = ROW // unit.a.itemsize
        for axis, size in enumerate(self.shape.block):
            plan.do("split", self.sides[axis], size, self.inner[axis], "PARALLEL", "LOOP")
            plan.do("split", self.inner[axis], BLOCK, self.single[axis])
        depths = []
        for one in products:
            ki, kd = self.tensorised(one, step), plan.unused(one.first_loop + "d")
            plan.do("split", ki, unit.depth, kd, "UNROLL", "TILE")
            depths.append([kd])
        row_parts, column_parts = self._output()
        for depth in depths:
            plan.do("distribute", row_parts, column_parts, depth, unit.name)

    def _layout(self, k: str, ki: str, axis: int) -> tuple[str, str, str]:
        """A piece's loops: blocks, and in each rows of what the sum steps along; or, where memory
        is the other way and the unit can turn it, of the block's elements."""
        plan, value = self.plan, self._side(k, axis)
        block, single = self.inner[axis], self.single[axis]
        if value.dtype.itemsize == TURNED:
            loads = [x for x in plan.below((value,)) if x.op is Ops.INDEX]
            if reach(loads, plan.loops[single]) < reach(loads, plan.loops[ki]):
                return block, ki, single
        return block, single, ki

    def _piece(self, k: str, axis: int, layout: tuple[str, ...], options: Options) -> None:
        """An operand's piece, as the unit reads it."""
        plan, name, value = self.plan, self.plan.numbered("p" + "ab"[axis]), self._side(k, axis)
        options = (*options, ("swizzle", ROW))
        layout = tuple(x for x in layout if plan.loops[x] in value.ranges)  # one block may be all
        plan.do("stage", plan.path(value), layout, name, "LOCAL", options)
        plan.do("complete", name)
        fill(plan, name, self.shape.sets * self.unit.lanes)

    def _output(self) -> tuple[list[str], list[str]]:
        """The output's loops: groups, sets of lanes, and the parts of the unit's matrices. Groups
        that follow each other have the same columns, so that they find them in the cache."""
        plan, held = self.plan, self.unit.held
        assert held is not None
        (m, n), (sets, blocks) = self.sides, self.inner
        roles = ("LANE", "UNROLL", "VECTOR")
        plan.do("role", sets, "LANE")
        plan.do("role", blocks, "UNROLL")
        rows = parts_of(plan, self.single[0], held.rows, roles)
        columns = [blocks, *parts_of(plan, self.single[1], held.columns[1:], roles)]
        groups = [m, n]
        if size_of(plan.loops[m]) % NEIGHBOURS == 0:
            near = plan.unused(m + "n")
            plan.do("split", m, NEIGHBOURS, near, "PARALLEL", "PARALLEL")
            groups = [m, n, near]
        lanes, items = lanes_first(((rows, held.rows), (columns, held.columns)))
        plan.do("order", "store", (*self.outer, *groups, sets, *lanes, *items))
        for loop in self.outer:
            plan.do("role", loop, "PARALLEL")
        return rows, columns
