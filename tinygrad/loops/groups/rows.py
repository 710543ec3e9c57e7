"""Attention on devices with groups, without a matrix unit. A group computes a block of rows and
keeps their scores in the memory that its lanes share, so scores are never stored. A lane computes
one column for all rows of the block, so each element that it reads of the other operand serves
every row. All lanes share the reductions along a row."""

from __future__ import annotations

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.loops.draft import Draft, names
from tinygrad.loops.groups.pieces import SHORT, deal, power_below
from tinygrad.loops.layout import elements
from tinygrad.loops.matrix_units import matrix_units
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, role_of, size_of
from tinygrad.loops.sharing import room, share_values
from tinygrad.uop import Ops, UOp

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


def group_rows(draft: Draft, lanes: int) -> bool:
    """Stages values in rows if possible, and then distributes the kernel's loops over groups of
    this many lanes. Whether it did."""
    if not _keep_rows(draft):
        return False
    top = draft.nest("store").loops
    rows = [name for name in names(top) if name in draft.block_rows]
    around = [r for r in top if all(r in draft.stages[k].ranges for k in draft.kept)]
    draft.give("PARALLEL", names(around))
    while found := next(filter(None, (_sum_beside(draft, x, rows) for x in rows)), None):
        value, row = found
        draft.kept += (draft.stage(value, (row,), "sum"),)
    for name in draft.kept:
        draft.do("complete", name)
        _share(draft, draft.stages[name], lanes)
    for name in draft.kept:
        _deal(draft, name, lanes)
    _deal(draft, "store", lanes)
    return True


def _keep_rows(draft: Draft) -> bool:
    """Stages values in blocks of as many rows as there is room for. Whether it could."""
    before, most = draft.mark(), MOST_ROWS
    while most:
        share_values(draft, most)
        kept = sum(elements(s) * s.dtype.itemsize for s in draft.stages.values())
        if draft.block_rows and kept <= room(draft.target):
            return True
        most = most // 2 if draft.block_rows else 0
        draft.back_to(before)
    return False


def _sum_beside(draft: Draft, row: str, rows: list[str]) -> tuple[UOp, str] | None:
    """A reduction outside the stages that has one result for each row."""
    loop = draft.loops[row]
    for node in draft.below(draft.nest("store").values):
        if node.op is Ops.REDUCE and loop in node.ranges:
            others = [r for r in node.ranges if r is not loop]
            if all(role_of(r) == "PARALLEL" or name_of(r) in rows for r in others):
                return node, row
    return None


def _share(draft: Draft, stage: UOp, lanes: int) -> None:
    """If a stage holds one reduction for each row, all lanes compute each of these together."""
    value = stage.src[0]
    if value.op is Ops.WHERE:  # `complete` has masked it
        value = value.src[1]
    if value.op is not Ops.REDUCE or not all(_is_row(draft, loop) for loop in own_ranges(stage)):
        return
    reduced = own_ranges(value)[-1]
    if is_plain_loop(reduced) and size_of(reduced) >= LEAST_LANES:
        name, share = name_of(reduced), min(lanes, power_below(size_of(reduced)))
        draft.split(name, share, name + "g", "LOOP", "GROUP")


def _is_row(draft: Draft, loop: UOp) -> bool:
    """Whether the loop runs over the rows of a block, in the kernel or in a stage."""
    return name_of(loop).rpartition(".")[2] in draft.block_rows


def _deal(draft: Draft, nest: str, lanes: int) -> None:
    """Each lane takes columns of the nest that lie a block of lanes apart, in all rows; or in some
    of the rows, if there are fewer columns than lanes."""
    own = [r for r in draft.nest(nest).loops if role_of(r) == "LOOP"]
    rows = [name_of(r) for r in own if _is_row(draft, r)]
    columns = [name for name in names(own) if name not in rows]
    given, left = deal(draft, columns[-1:], lanes)
    if rows and columns and left > 1:
        count = min(left, power_below(draft.size(rows[0])))
        given.insert(0, draft.split(rows[0], count, rows[0] + "l", "LOOP", "LANE"))
    if columns:
        draft.give("UNROLL", (x for x in rows if draft.size(x) <= SHORT))
    draft.innermost(nest, (*rows, *given))
