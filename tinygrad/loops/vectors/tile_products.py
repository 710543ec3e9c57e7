"""Products by a unit whose operands are tile registers (AMX). The rows, columns and depth of an
instruction are loops of their own. Both operands are laid out tile by tile. Finished sums go
through memory, because tile registers can only be loaded and stored as a whole."""

from __future__ import annotations

from tinygrad.loops.draft import Draft, Nest, names, steps_along
from tinygrad.loops.matrix_units import MatrixUnit
from tinygrad.loops.products import (
    Product,
    finish_in_memory,
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
    # [row tile][k][row][depth]: a vector of whole words along memory, or a square of words
    name = rows_before(draft, one, column, (*outer, m, row_tiles, k, row))
    depth, *packs = one.depth
    draft.give("TILE", (f"{name}.{pack}" for pack in packs))
    draft.do("role", f"{name}.{depth}", "VECTOR")
    if any(s != 1 for s in one.row_steps):
        draft.do("role", f"{name}.{row}", "UNROLL")
    _stage_columns(draft, one, (k, column_tiles, column))
    tiles, inside = (row_tiles, column_tiles), (row, column)
    finish_in_memory(
        draft, "store", one, dict.fromkeys(tiles, "UNROLL") | dict.fromkeys(inside, "TILE")
    )
    draft.innermost("store", (n, m, row_tiles, row, column_tiles, column))
    draft.do("role", column, "VECTOR")
    draft.do("role", column_tiles, "UNROLL")
    parallelise(draft, [*outer, n])


def _stage_columns(draft: Draft, one: Product, loops: tuple[str, ...]) -> None:
    """Packs the columns as [k][column tile][depth][column][pack]: a panel in the cache."""
    *outside, column = loops
    value = side_of(draft, "store", one, column, is_column=True)
    depth, *packs = one.depth
    layout = those_in(value, (*outside, depth, column, *packs))
    name = draft.stage(value, layout, "pb", "LOCAL")
    draft.give("TILE", (f"{name}.{pack}" for pack in packs))
    draft.do("role", f"{name}.{column}", "VECTOR")
    loads = draft.stages[name].src[0].toposort()
    if any(1 in steps_along(loads, draft.loops[f"{name}.{pack}"]) for pack in packs):
        draft.do("role", f"{name}.{depth}", "UNROLL")
