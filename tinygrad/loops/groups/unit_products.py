"""Matrix products by a unit that many lanes of a group execute together: one warp, whose lanes hold
the operands (`mma`), or several warps, whose operands lie in shared memory (`wgmma`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.loops.draft import Draft
from tinygrad.loops.groups.blocks import BUSY_GROUPS, FILLED, SHARED, Blocks, Shape, Sides, Sizes
from tinygrad.loops.groups.pieces import VECTOR, WORD, lanes_first, parts_of
from tinygrad.loops.matrix_units import MatrixUnit, matrix_units
from tinygrad.loops.tensorise import operand, units_of


def unit_product(draft: Draft, sides: Sides, sizes: Sizes, sums: Sequence[str]) -> bool:
    """Gives the products of these sums to a unit, if the target has one that takes them all; a unit
    that reads shared memory comes first."""
    for kind, shape_of in ((_Staged, staged_shape), (_Warps, warp_shape)):
        units = [_unit_of(draft, sides.m, k, kind is _Staged) for k in sums]
        unit = units[0] if len(set(units)) == 1 else None
        shape = None if unit is None else shape_of(draft.target, unit, sizes)
        if shape is not None:
            kind(draft, sides, shape).run(sums)
            return True
    return False


def _unit_of(draft: Draft, m: str, k: str, staged: bool) -> MatrixUnit | None:
    """The first unit for the sum over `k` of products of two CASTs, or of two values as they are.
    m: the loop of rows."""
    a, b = sorted(draft.sum_over(k).src[0].src, key=lambda x: draft.loops[m] not in x.ranges)
    units = units_of(draft.target, a, b, a.dtype)
    held = (u for u in units if u.held is not None and u.is_staged == staged)
    return next((u for u in held if u.a is operand(a, u.a).dtype), None)


class UnitBlocks(Blocks):
    """The steps that all units' recipes share; subclasses add how a kind of unit splits its
    loops."""

    def __init__(self, draft: Draft, sides: Sides, shape: Shape) -> None:
        super().__init__(draft, sides, shape)
        assert shape.unit is not None and shape.unit.held is not None
        self.unit, self.held = shape.unit, shape.unit.held

    def run(self, sums: Sequence[str]) -> None:
        """All steps."""
        depths = []
        for k in sums:
            ki = self.bring(k, self.unit)
            depths.append(self.depth_parts(ki, k + "d"))
        rows, columns = self.output()
        for depth in depths:
            self.draft.do("distribute", rows, columns, depth, self.unit.name)

    @abstractmethod
    def depth_parts(self, ki: str, kd: str) -> list[str]:
        """Splits a turn's terms into the unit's own loops along the sum; the first is named like
        `kd`."""

    @abstractmethod
    def output(self) -> tuple[list[str], list[str]]:
        """Splits the output's loops into the unit's own along rows and columns."""


# ---- operands in lanes ---------------------------------------------------------------------------

LARGEST_PART = (64, 64)  # of a warp: more registers than this leave no room for operands
LARGEST_GRID = (2, 4)  # warps along rows and columns
STEP = 64  # bytes of a row of a piece: half of what one memory transaction has, and few barriers


def warp_shape(target: Target, unit: MatrixUnit, sizes: Sizes) -> Shape | None:
    """The largest parts that fit in registers and shared memory, provided that enough blocks remain
    to keep the device busy. None if not even one warp fits, or if half of a matrix would be
    empty."""
    axes = (sizes.rows, unit.rows), (sizes.columns, unit.columns), (sizes.depth, unit.depth)
    if any(2 * size < unit_size for size, unit_size in axes):
        return None
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
    """A block is a grid of warps. A warp's part is a grid of the unit's matrices, whose sums stay
    in the lanes' registers."""

    def depth_parts(self, ki: str, kd: str) -> list[str]:
        kd = self.draft.split(ki, self.unit.depth, kd)
        if self.shape.depth <= 2 * self.unit.depth:
            self.draft.do("role", ki, "UNROLL")
        return parts_of(self.draft, kd, self.held.depth, ("LOOP", "TILE", "VECTOR"))

    def layout(self, k: str, ki: str, axis: int) -> tuple[str, str]:
        """[element][step], so that what the unit reads from a row is adjacent. If memory is
        transposed and the target can transpose as it reads, [step][element]."""
        inner = self.inner[axis]
        turns = "matrix_load" in self.draft.target.native and self.is_turned(k, ki, axis)
        return (ki, inner) if turns else (inner, ki)

    def output(self) -> tuple[list[str], list[str]]:
        """Splits the output's loops into blocks, warps, the unit's matrices, and parts of these."""
        draft, sizes = self.draft, self.shape.matrix
        warps, copies, parts = [], [], []
        for axis, (inner, size) in enumerate(zip(self.inner, sizes, strict=True)):
            part = self.shape.part[axis] * size
            matrix = draft.split(inner, part, inner + "f", "LANE", "LOOP")
            single = draft.split(matrix, size, inner + "m", "UNROLL", "LOOP")
            warps.append(inner)
            copies.append(matrix)
            axis_parts = self.held.columns if axis else self.held.rows
            parts.append(parts_of(draft, single, axis_parts, ("LANE", "UNROLL", "VECTOR")))
        lanes, items = lanes_first(zip(parts, (self.held.rows, self.held.columns), strict=True))
        self.order(self.sides, warps, lanes, copies, items)
        return parts[0], parts[1]


# ---- operands in the memory that lanes share -----------------------------------------------------

ROW = 128  # bytes of a row of a piece
BLOCK = 64  # elements of an operand whose rows are contiguous
MOST_LANES = 256  # of a group: with two sets each lane still has registers for a whole matrix
WASTE = 1.25  # blocks may cover this many times the least area, at most
LEAST_PIECES = 2  # that must fit, at least
NEIGHBOURS = 8  # blocks of rows whose groups follow each other: they read the same columns


def staged_shape(target: Target, unit: MatrixUnit, sizes: Sizes) -> Shape | None:
    """The largest block that fits in registers and shared memory, leaves enough groups to keep the
    device busy, and reaches little beyond the edges. None if there is none."""
    if 2 * min(sizes.rows, sizes.columns) < BLOCK or sizes.depth * unit.a.itemsize < ROW:
        return None
    found: list[tuple[int, Shape]] = []
    alike = matrix_units(target, unit.a, unit.b, unit.out)
    for each in (other for other in alike if other.is_staged and other.a is unit.a):
        for sets in (2, 1):
            shape = Shape((sets, 1), (1, 1), ROW // unit.a.itemsize, unit=each)
            shape = replace(shape, shared=sizes.products * sum(shape.block) * ROW)
            sums = sizes.products * each.rows * each.columns / each.lanes
            if (
                shape.lanes <= min(MOST_LANES, target.group_limit)
                and sums <= target.registers * FILLED
                and LEAST_PIECES * shape.shared <= target.local_memory
                and sizes.groups(shape.block) >= BUSY_GROUPS
            ):
                found.append((sizes.groups(shape.block) * prod(shape.block), shape))
    least = min((area for area, _ in found), default=0)
    fits = [shape for area, shape in found if area <= WASTE * least]
    return max(fits, key=lambda shape: (prod(shape.block), shape.matrix[1]), default=None)


class _Staged(UnitBlocks):
    """A block is a row of the unit's matrices, one for each set of lanes. While the unit multiplies
    one turn's pieces, the next ones are fetched. `inner` counts blocks of an operand, `marks`
    elements of a block."""

    options = (("swizzle", ROW),)

    def __init__(self, draft: Draft, sides: Sides, shape: Shape) -> None:
        super().__init__(draft, sides, shape)
        rows, columns = self.inner
        self.marks = (
            draft.split(rows, BLOCK, sides.m + "s"),
            draft.split(columns, BLOCK, sides.n + "s"),
        )

    def depth_parts(self, ki: str, kd: str) -> list[str]:
        return [self.draft.split(ki, self.unit.depth, kd, "UNROLL", "TILE")]

    def layout(self, k: str, ki: str, axis: int) -> tuple[str, str, str]:
        """Blocks, and in each of them rows along the sum; or, if memory is transposed and the unit
        can transpose as it reads, rows of the block's elements."""
        block, mark = self.inner[axis], self.marks[axis]
        return (block, ki, mark) if self.is_turned(k, ki, axis) else (block, mark, ki)

    def output(self) -> tuple[list[str], list[str]]:
        """Splits the output's loops into groups, sets of lanes, and the parts of the unit's
        matrices. Consecutive groups have the same columns, so that they find them in the cache."""
        draft, held = self.draft, self.held
        (m, n), (sets, blocks) = self.sides, self.inner
        roles = ("LANE", "UNROLL", "VECTOR")
        draft.do("role", sets, "LANE")
        draft.do("role", blocks, "UNROLL")
        rows = parts_of(draft, self.marks[0], held.rows, roles)
        columns = [blocks, *parts_of(draft, self.marks[1], held.columns[1:], roles)]
        groups = [m, n]
        if draft.size(m) % NEIGHBOURS == 0:
            groups.append(draft.split(m, NEIGHBOURS, m + "n", "PARALLEL", "PARALLEL"))
        lanes, items = lanes_first(((rows, held.rows), (columns, held.columns)))
        self.order(groups, [sets], lanes, items)
        return rows, columns
