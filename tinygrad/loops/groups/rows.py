"""Attention on devices with groups, without a matrix unit. A group computes a block of rows and
keeps their scores in the memory that its lanes share, so scores are never stored. A lane computes
one column for all rows of the block, so each element that it reads of the other operand serves
every row. All lanes share the reductions along a row."""

from __future__ import annotations

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.loops.groups.blocks import SHORT, deal, power_below
from tinygrad.loops.layout import elements, is_plain_loop, name_of, own_ranges, role_of, size_of
from tinygrad.loops.matrix_units import matrix_units
from tinygrad.loops.plan import Plan, names
from tinygrad.loops.sharing import room, share_values
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

LEAST_LANES = 32  # of a reduction along a row
MOST_ROWS = 8  # of a block: each lane has a sum for each
FEWEST_ROWS = 4  # of a block: with fewer, each value that a lane reads is used too seldom
KEPT = 8  # bytes of an element of a row: a score, and what follows it


def longest_row(target: Target) -> int:
    """The longest row such that a block of rows fits in shared memory; without groups, such that a
    single row does, since scores of long rows take more time in memory. 0 if warps have matrix
    units: these save more than it costs to write scores to memory and read them back."""
    if not target.has_groups:
        return room(target) // KEPT
    half = dtypes.float16
    if any(unit.lanes > 1 for unit in matrix_units(target, half, half, dtypes.float32)):
        return 0
    return room(target) // (FEWEST_ROWS * KEPT)


def group_rows(plan: Plan, lanes: int) -> bool:
    """Stages values in rows if possible, and then distributes the kernel's loops over groups of
    this many lanes. Whether it did."""
    if not _keep_rows(plan):
        return False
    top = plan.nest("store").loops
    rows = [name for name in names(top) if name in plan.block_rows]
    around = [r for r in top if all(r in plan.stages[k].ranges for k in plan.kept)]
    plan.give("PARALLEL", names(around))
    while found := next(filter(None, (_sum_beside(plan, x, rows) for x in rows)), None):
        value, row = found
        plan.kept += (plan.stage(value, (row,), "sum"),)
    for name in plan.kept:
        plan.do("complete", name)
        _share(plan, plan.stages[name], lanes)
    for name in plan.kept:
        _deal(plan, name, lanes)
    _deal(plan, "store", lanes)
    return True


def _keep_rows(plan: Plan) -> bool:
    """Stages values in blocks of as many rows as there is room for. Whether it could."""
    before, most = plan.mark(), MOST_ROWS
    while most:
        share_values(plan, most)
        kept = sum(elements(s) * s.dtype.itemsize for s in plan.stages.values())
        if plan.block_rows and kept <= room(plan.target):
            return True
        most = most // 2 if plan.block_rows else 0
        plan.back_to(before)
    return False


def _sum_beside(plan: Plan, row: str, rows: list[str]) -> tuple[UOp, str] | None:
    """A reduction outside the stages that has one result for each row."""
    loop = plan.loops[row]
    for node in plan.below(plan.nest("store").values):
        if node.op is Ops.REDUCE and loop in node.ranges:
            others = [r for r in node.ranges if r is not loop]
            if all(role_of(r) == "PARALLEL" or name_of(r) in rows for r in others):
                return node, row
    return None


def _share(plan: Plan, stage: UOp, lanes: int) -> None:
    """If a stage holds one reduction for each row, all lanes compute each of these together."""
    value = stage.src[0]
    if value.op is Ops.WHERE:  # `complete` has masked it
        value = value.src[1]
    if value.op is not Ops.REDUCE or not all(_is_row(plan, loop) for loop in own_ranges(stage)):
        return
    reduced = own_ranges(value)[-1]
    if is_plain_loop(reduced) and size_of(reduced) >= LEAST_LANES:
        name, share = name_of(reduced), min(lanes, power_below(size_of(reduced)))
        plan.split(name, share, name + "g", "LOOP", "GROUP")


def _is_row(plan: Plan, loop: UOp) -> bool:
    """Whether the loop runs over the rows of a block, in the kernel or in a stage."""
    return name_of(loop).rpartition(".")[2] in plan.block_rows


def _deal(plan: Plan, nest: str, lanes: int) -> None:
    """Each lane takes columns of the nest that lie a block of lanes apart, in all rows; or in some
    of the rows, if there are fewer columns than lanes."""
    own = [r for r in plan.nest(nest).loops if role_of(r) == "LOOP"]
    rows = [name_of(r) for r in own if _is_row(plan, r)]
    columns = [name for name in names(own) if name not in rows]
    given, left = deal(plan, columns[-1:], lanes)
    if rows and columns and left > 1:
        count = min(left, power_below(size_of(plan.loops[rows[0]])))
        given.insert(0, plan.split(rows[0], count, rows[0] + "l", "LOOP", "LANE"))
    if columns:
        plan.give("UNROLL", (x for x in rows if size_of(plan.loops[x]) <= SHORT))
    plan.innermost(nest, (*rows, *given))
