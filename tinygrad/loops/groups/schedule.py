"""Recipes for devices with groups of lanes (OpenCL, GPUs). Outputs are distributed over groups and
their lanes. Long reductions to few outputs are shared by the lanes of a group. Matrix products get
a register tile for each lane.

The lanes of a group run along memory, so that neighbours read neighbouring elements. In a sum over
columns they run along the columns; in a transpose they do so both for reads and for writes, through
shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import isqrt

from tinygrad.loops.cost import turns
from tinygrad.loops.draft import Draft, Nest, names
from tinygrad.loops.groups.blocks import BUSY_GROUPS
from tinygrad.loops.groups.pieces import WORD, fill, power_below, reach
from tinygrad.loops.groups.products import group_product
from tinygrad.loops.groups.rows import group_rows
from tinygrad.loops.groups.unit_rows import unit_rows
from tinygrad.loops.operands import owners_of
from tinygrad.loops.products import contractions
from tinygrad.loops.reads import reads_of, step
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.uop import Ops, UOp

BLOCK = 256  # lanes of a group for plain loops; fewer if there is little to do
LEAST_BLOCK = 32  # lanes of the smallest group
TILE_LANES = 16  # lanes along each side of a product's block
TILE_COPIES = 4  # rows and columns that a lane computes
FEW_OUTPUTS = 4096  # with fewer outputs, a group shares the reduction of one
BUSY = 1 << 16  # lanes that keep a device busy
TURNED_LANES = 32  # side of a square that is transposed
TURNED_ROWS = 8  # of its rows, that a group has at once
SECTOR = 8  # lanes that read neighbours, at least: a memory transaction has 32 bytes


def schedule_groups(draft: Draft) -> None:
    """Assigns roles for a device with groups."""
    nest = draft.nest("store")
    if any(role_of(r) == "ORDERED" for r in nest.loops):
        _serial(draft, nest)
        return
    if nest.loops and (unit_rows(draft) or group_rows(draft, _block(draft))):
        return
    found = [p for p in contractions(draft, nest) if p.is_multiplied]
    if not found and _columns(draft, nest):
        return
    shared = _shared_reductions(draft, nest, FEW_OUTPUTS, bool(found))
    if shared:
        _rows(draft, nest, shared)
    if shared or not nest.loops:
        return
    if found and group_product(draft, nest, found):
        return
    if found and _block(draft) >= LEAST_BLOCK:
        _tiles(draft, found[0].row_loop, nest.loops[-1])
        return
    if not _through_squares(draft, nest):
        _flat(draft, nest)


def _block(draft: Draft) -> int:
    """The lanes of a group: a power of two that the device allows."""
    return power_below(max(1, min(BLOCK, draft.target.group_limit)))


def _serial(draft: Draft, nest: Nest) -> None:
    """Each lane runs the loops in order by itself; turns of the other loops must be independent."""
    free = tuple(loop for loop in nest.loops if role_of(loop) == "LOOP")
    in_order = (loop for loop in nest.loops if loop not in free)
    draft.do("order", "store", (*names(free), *names(in_order)))
    if free:
        _flat(draft, replace(nest, loops=free))


def _shared_reductions(draft: Draft, nest: Nest, few: int, are_products: bool = False) -> list[UOp]:
    """Long reductions that lanes should share. All of them, if there are so few outputs that lanes
    would be idle. Else those that are not products, if several outputs need each of them, or if
    what they take in is adjacent in memory."""
    block = _block(draft)
    reductions = draft.sums
    rows = _row_loops(nest, reductions)
    if block < LEAST_BLOCK or not reductions:
        return []
    repeated = len(rows) < len(nest.loops) and not are_products
    is_many = turns(rows) > few and not repeated
    if is_many and (are_products or not _run_along(draft, rows, reductions)):
        return []
    for node in reductions:
        last = own_ranges(node)[-1]
        if role_of(last) != "LOOP" or node.ranges - set(rows):
            return []  # a reduction inside another one, or for each column
        if size_of(last) < LEAST_BLOCK * (1 if repeated else 4):
            return []
    return reductions


def _run_along(draft: Draft, rows: tuple[UOp, ...], shared: list[UOp]) -> bool:
    """Whether memory is contiguous along the reduction, rather than along a loop around it."""
    reads = reads_of(draft.below(shared))
    inside = max(reach(reads, own_ranges(n)[-1]) for n in shared)
    return all(inside < reach(reads, r) for r in rows)


def _row_loops(nest: Nest, reductions: list[UOp]) -> tuple[UOp, ...]:
    """The loops of the output that any of the reductions depends on."""
    return tuple(r for r in nest.loops if any(r in n.ranges for n in reductions))


def _rows(draft: Draft, nest: Nest, shared: list[UOp]) -> None:
    """One group for each row: its lanes stride along the reduction, and along the output. If there
    are only reductions and these are short, a group takes several rows."""
    rows = _row_loops(nest, shared)
    shortest = min(size_of(own_ranges(n)[-1]) for n in shared)
    lanes = min(_block(draft), power_below(shortest // 2))
    _share(draft, shared, lanes)
    outer, across = names(rows), names(r for r in nest.loops if r not in rows)
    side = 1 if across else _block(draft) // lanes
    while side > 1 and (turns(rows) < side * BUSY_GROUPS or size_of(rows[-1]) < side):
        side //= 2
    if side > 1:
        draft.split(outer[-1], side, outer[-1] + "l", "PARALLEL", "LANE")
    draft.give("PARALLEL", outer[:-1] if side > 1 else outer)
    if across:
        draft.split(across[-1], lanes, across[-1] + "l", "LOOP", "LANE")


def _share(draft: Draft, shared: list[UOp], lanes: int) -> None:
    """This many lanes share each of these reductions."""
    for name in dict.fromkeys(name_of(own_ranges(n)[-1]) for n in shared):
        owners = owners_of(draft.kernel, draft.loops[name])
        if len(owners) == 1 and owners[0].arg == "add" and not draft.loops[name].src[1:]:
            draft.do("extend", name, lanes)  # lanes that a limit cuts off would meet in every block
        draft.split(name, lanes, name + "g", "LOOP", "GROUP")


def _columns(draft: Draft, nest: Nest) -> bool:
    """Reductions whose terms lie further apart in memory than their results, such as sums down the
    columns of a matrix: a group takes some adjacent columns, and several lanes share each."""
    shared = _shared_reductions(draft, nest, BUSY // 2)
    rows = _row_loops(nest, shared)
    if not rows:
        return False
    reads = reads_of(draft.below(shared))
    column = min(rows, key=lambda r: reach(reads, r))
    inside = min(reach(reads, own_ranges(n)[-1]) for n in shared)
    if size_of(column) < SECTOR or reach(reads, column) >= inside:
        return False
    if not all(column in n.ranges for n in shared):
        return False
    beside = [r for r in nest.loops if r not in rows]
    everything = reads_of(draft.nodes)
    if beside and reach(everything, column) >= reach(everything, beside[-1]):
        return False
    side, many = LEAST_BLOCK, turns(rows)
    while side > SECTOR and (many < side * BUSY_GROUPS or size_of(column) < side):
        side //= 2
    shortest = min(size_of(own_ranges(n)[-1]) for n in shared)
    lanes = min(_block(draft) // side, LEAST_BLOCK, power_below(shortest // 2))
    name, across = name_of(column), names(beside)
    mine = draft.split(name, side, name + "l", "PARALLEL", "LOOP")
    inner: list[str] = []
    if across:
        _keep_columns(draft, mine, len(shared))
        inner = [draft.split(across[-1], lanes, across[-1] + "l", "LOOP", "LANE")]
    _share(draft, draft.sums, lanes)
    draft.do("role", mine, "LANE")
    draft.give("PARALLEL", draft.innermost("store", (name, *across, *inner, mine)))
    return True


def _keep_columns(draft: Draft, column: str, count: int) -> None:
    """Stages the reductions of each of a group's columns for all lanes. The lanes of a column are
    far apart, so that adjacent lanes have adjacent columns."""
    for _ in range(count):
        sums = (x for x in draft.below(draft.nest("store").values) if x.op is Ops.REDUCE)
        name = draft.stage(next(sums), (column,), "sum")
        draft.do("complete", name)
        draft.do("role", f"{name}.{column}", "LANE")


def _tiles(draft: Draft, rows: UOp, columns: UOp) -> None:
    """Each lane computes a small tile of a product; the lanes of a group form a square block."""
    side = min(TILE_LANES, power_below(isqrt(_block(draft))))
    inside: list[list[str]] = [[], [], []]
    for loop in (rows, columns):
        name = name_of(loop)
        # copies lie a block of lanes apart, so that adjacent lanes read adjacent memory
        copy = draft.split(name, side * TILE_COPIES, name + "u", "PARALLEL", "LOOP")
        lane = draft.split(copy, side, name + "l", "UNROLL", "LANE")
        for level, each in zip(inside, (name, copy, lane), strict=True):
            level.append(each)
    draft.give("PARALLEL", draft.innermost("store", chain(*inside)))


def _flat(draft: Draft, nest: Nest) -> None:
    """Lanes along the last loop; if that is short, the loop around it is included."""
    last, total = nest.loops[-1], turns(nest.loops)
    size, block = size_of(last), min(_block(draft), max(LEAST_BLOCK, power_below(total // 8)))
    name = name_of(last)
    taken = {name}
    if block == 1:
        draft.do("role", name, "PARALLEL")
    elif size <= LEAST_BLOCK and len(nest.loops) > 1 and size < block:
        outer = name_of(nest.loops[-2])
        taken.add(outer)
        draft.split(outer, block // size, outer + "l", "PARALLEL", "LANE")
        draft.do("role", name, "LANE")
    else:
        count = _neighbours(draft, nest)
        if count > 1 and total >= BUSY * count and size >= block * count:
            draft.split(name, count, name + "v", "LOOP", "VECTOR")
        lanes = min(block, size)
        draft.split(name, lanes, name + "l", "PARALLEL", "LANE")
    draft.give("PARALLEL", (n for n in names(nest.loops) if n not in taken))


def _contiguous(read: UOp, loops: Sequence[UOp]) -> UOp | None:
    """The first of these loops along which a read is contiguous."""
    return next((loop for loop in loops if step(read, loop) == 1), None)


def _through_squares(draft: Draft, nest: Nest) -> bool:
    """For reads across memory, as in a transposition: squares are copied to shared memory, by lanes
    along memory, and read from there by lanes along the result."""
    if draft.sums or turns(nest.loops) < BUSY or _block(draft) < TURNED_LANES * TURNED_ROWS:
        return False
    last = nest.loops[-1]
    across = [x for x in reads_of(draft.nodes) if reach([x], last) > SECTOR and last in x.ranges]
    along = {_contiguous(x, nest.loops[:-1]) for x in across}
    other = along.pop() if len(along) == 1 else None
    if other is None or min(map(size_of, (other, last))) < TURNED_LANES or other.src[1:]:
        return False
    square = TURNED_LANES * (TURNED_LANES + 1)
    if sum(square * x.dtype.itemsize for x in across) > draft.target.local_memory // 2:
        return False
    slow, fast = name_of(other), name_of(last)
    rows, lanes = (draft.split(x, TURNED_LANES, x + "t", "PARALLEL", "LOOP") for x in (slow, fast))
    draft.give("PARALLEL", draft.innermost("store", (slow, fast, rows, lanes)))
    for _ in across:
        read = next(x for x in reads_of(draft.nodes) if step(x, draft.loops[rows]) == 1)
        name = draft.stage(read, (lanes, rows), "turned", "LOCAL")
        draft.do("complete", name)
        draft.do("pad", name, f"{name}.{lanes}", max(1, WORD // read.dtype.itemsize))  # other banks
        fill(draft, name, TURNED_LANES * TURNED_ROWS)
    own = draft.split(rows, TURNED_ROWS, rows + "l", "UNROLL", "LANE")
    draft.innermost("store", (slow, fast, rows, own, lanes))
    draft.do("role", lanes, "LANE")
    return True


def _neighbours(draft: Draft, nest: Nest) -> int:
    """How many adjacent elements a lane loads and stores as one vector: as many of the widest dtype
    as fill a register, if every access has step 0 or 1 along the last loop; else 1."""
    last = nest.loops[-1]
    accesses = [n for n in reads_of(draft.nodes) if last in n.ranges]
    if not all(step(n, last) in (0, 1) for n in accesses):
        return 1
    widest = max((n.dtype.itemsize for n in accesses), default=4)
    return draft.target.lanes(widest)
