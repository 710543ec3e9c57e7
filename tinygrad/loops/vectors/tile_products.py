"""Products by a unit whose operands are tile registers (AMX). The rows, columns and depth of an
instruction are loops of their own. Both operands are laid out tile by tile, in the order in which
they are read. Sums go through memory, because tile registers can only be loaded and stored as a
whole.

A tile is multiplied faster than the third cache brings the next one. So a block of rows stays in
the private cache while all panels of columns come by, and a panel comes in slabs that stay in the
first cache while the block's tiles use them:

    for block of rows: for panel: for slab: for tile of rows in the block: for step in the slab
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from tinygrad.loops.draft import Draft, Nest, names, steps_along
from tinygrad.loops.matrix_units import MatrixUnit
from tinygrad.loops.products import (
    Product,
    accumulate_in_memory,
    finish_in_memory,
    reduction_of,
    rows_before,
    side_of,
    take_unit,
    those_in,
    unit_of,
)
from tinygrad.loops.roles import name_of, size_of
from tinygrad.loops.vectors.tasks import parallelise

TILES = 2
"""Tiles of sums along rows and along columns: 4 of 8 registers, the others hold operands."""

BLOCK, SLAB = 0.5, 0.34
"""A block of rows takes so much of the private cache, a slab of a panel so much of the first one:
rows pass through it beside the slab, and so do sums. Twice as large slabs are as fast; twice as
large blocks take 1.6 times as long (2048, Sapphire Rapids: 2 MiB and 48 KiB)."""


def fitting_tile(
    draft: Draft, nest: Nest, products: list[Product]
) -> tuple[MatrixUnit, int] | None:
    """The unit that computes this nest's product in tiles, and the number of the factor that is its
    first operand. None if there is no unit or the product doesn't fill its rows."""
    one = products[0]
    if len(products) > 1 or not nest.is_top or draft.stages or len(one.loops) > 1:
        return None
    own = {*names(nest.loops), *one.loops}
    if any(name_of(r) not in own for r in one.rows.ranges | one.columns.ranges):
        return None  # a sum around it needs it turn by turn
    found = unit_of(draft, name_of(nest.loops[-1]), one, is_tile=True)
    return found if found and size_of(one.row_loop) >= found[0].rows else None


def tile_product(draft: Draft, nest: Nest, one: Product, unit: MatrixUnit, rows: int) -> None:
    """Tiles the nest for the unit, lays out both operands, and orders the loops."""
    m, n, k = name_of(one.row_loop), name_of(nest.loops[-1]), name_of(one.inner)
    outer = [x for x in names(nest.loops) if x not in (m, n)]
    row_tiles = draft.split(m, TILES * unit.rows, m + "t")
    row = draft.split(row_tiles, unit.rows, m + "r")
    column_tiles = draft.split(n, TILES * unit.columns, n + "t")
    column = draft.split(column_tiles, unit.columns, n + "c")
    one = take_unit(draft, one, unit, rows)
    blocks = _split_at(draft, m, _block(draft, unit, draft.size(k)))
    part = _slab(draft, unit)
    slab = _split_at(draft, k, part) if draft.size(k) > 2 * part else (k,)
    (*slabs, step), (*far, near) = slab, blocks
    depth, *packs = one.depth
    # [..][row tile][row][depth]: a vector of whole words along memory, or a square of words
    name = rows_before(draft, one, column, (*outer, *far, *slabs, near, step, row_tiles, row))
    draft.give("TILE", (f"{name}.{pack}" for pack in packs))
    draft.do("role", f"{name}.{depth}", "VECTOR")
    if any(s != 1 for s in one.row_steps):
        draft.do("role", f"{name}.{row}", "UNROLL")
    # a panel that one block of rows uses is packed where it is used
    around = (*outer, n) if far else ()
    _stage_columns(draft, one, (*around, *slab, column_tiles, column), bool(far))
    roles = {row_tiles: "UNROLL", column_tiles: "UNROLL", row: "TILE", column: "TILE"}
    if slabs:
        reduction = reduction_of(draft, "store", one)
        draft.do("regroup", draft.path(reduction), (step, *one.depth))
        accumulate_in_memory(draft, "store", replace(one, loops=(step,)), {near: "LOOP"} | roles)
    else:
        finish_in_memory(draft, "store", one, roles)
    draft.innermost("store", (*far, n, near, row_tiles, row, column_tiles, column))
    draft.do("role", column, "VECTOR")
    draft.do("role", column_tiles, "UNROLL")
    parallelise(draft, [*outer, *far, n])


def _split_at(draft: Draft, loop: str, part: int) -> tuple[str, ...]:
    """Splits a loop of more turns than a part into about equal ones. Returns the loop or loops."""
    parts = ceil(draft.size(loop) / max(1, part))
    if parts == 1:
        return (loop,)
    return loop, draft.split(loop, ceil(draft.size(loop) / parts), loop + "b")


def _slab(draft: Draft, unit: MatrixUnit) -> int:
    """The turns of a sum whose columns stay in the first cache."""
    turn = TILES * unit.columns * unit.depth * unit.b.itemsize
    return int(SLAB * draft.target.cache_l1) // turn


def _block(draft: Draft, unit: MatrixUnit, turns: int) -> int:
    """The tiles of rows that stay in the private cache, of a sum of so many turns."""
    rows = TILES * unit.rows * unit.depth * unit.a.itemsize
    return int(BLOCK * draft.target.cache_l2) // (rows * turns)


def _stage_columns(draft: Draft, one: Product, loops: tuple[str, ...], before: bool) -> None:
    """Packs the columns as [k][column tile][depth][column][pack]: all panels before everything
    else, or a panel in the cache."""
    *outside, column = loops
    value = side_of(draft, "store", one, column, is_column=True)
    depth, *packs = one.depth
    layout = those_in(value, (*outside, depth, column, *packs))
    name = draft.stage(value, layout, "pb", "GLOBAL" if before else "LOCAL")
    if before:
        draft.do("role", f"{name}.{layout[0]}", "PARALLEL")
    draft.give("TILE", (f"{name}.{pack}" for pack in packs))
    draft.do("role", f"{name}.{column}", "VECTOR")
    loads = draft.stages[name].src[0].toposort()
    if any(1 in steps_along(loads, draft.loops[f"{name}.{pack}"]) for pack in packs):
        draft.do("role", f"{name}.{depth}", "UNROLL")
