"""The loops of a nest with matrix products: the rows and columns of a register tile, the panel that
holds the columns, and which loops go outside."""

from __future__ import annotations

from tinygrad.base.helpers import round_up
from tinygrad.loops.cost import turns
from tinygrad.loops.draft import Draft, Nest, names
from tinygrad.loops.in_place import is_window, steps_apart
from tinygrad.loops.products import PANEL_BLOCK, SUMS, Product
from tinygrad.loops.reads import step
from tinygrad.loops.register_tiles import TEMPORARIES, Surroundings, Tile, register_tile
from tinygrad.loops.roles import name_of, size_of
from tinygrad.loops.vectors.panels import turn_reads
from tinygrad.loops.vectors.stretches import panel_of, stretch_of
from tinygrad.loops.vectors.tasks import TASKS_WITH_BLOCKS
from tinygrad.uop.op import Ops

FROM_MEMORY = 20
"""Cycles for a line from memory: a tile that needs lines faster waits for them."""

TILES_A_TASK = 8
"""The least number of row tiles that share a packed panel."""


class Tiling:
    """The loops of a nest of products, by name. The column loop n is split into n, n_in (panel),
    n_copies and n_lanes (tile); the row loop m into m and m_copies. If a panel is one tile, n_in is
    n_copies.

    `panel`: columns of one turn of n: those of a tile (`height`, `width`) or of several. `stretch`:
    columns along which reads have constant steps; 0: all. `edges`: loops of rows around m that the
    summed part depends on. `rows_once`: n goes inside m, so that each row is read from memory once
    for all columns."""

    def __init__(self, draft: Draft, nest: Nest, products: list[Product]) -> None:
        row_loop, last = products[0].row_loop, nest.loops[-1]
        self.nest, self.m, self.n = nest, name_of(row_loop), name_of(last)
        size, self.columns = size_of(row_loop), size_of(last)
        self.stretch, panel = stretch_of(draft, last, [p.columns for p in products]), 0
        if self.stretch < draft.lanes and all(is_transposed(draft, p) for p in products):
            self.stretch = 0
        if self.stretch:
            depth = _panel_depth(draft, nest, products)
            panel = panel_of(draft, self.stretch, size, self.columns, depth)
        columns = panel or self.columns
        tile = _tile(draft, products, size, columns, panel > 0)
        self.width = min(max(tile.columns, draft.lanes), round_up(columns, draft.lanes))
        self.height, self.panel = min(tile.rows, size), panel or self.width
        edges = [loop for loop in nest.loops if name_of(loop) in draft.edges]
        self.edges, self.rows = names(edges), size * turns(edges)
        self.rows_once = len(nest.loops) == 2 and self._wait(draft, products)
        self.n_in = self.n_copies = self.n_lanes = draft.split(self.n, self.panel, self.n + "i")
        turn_reads(draft, nest, self.m, self.n_in)
        self.m_copies = draft.split(self.m, self.height, self.m + "u", "LOOP", "UNROLL")

    def _wait(self, draft: Draft, products: list[Product]) -> bool:
        """Whether tiles would wait for memory at every panel, each of which reads all rows again;
        and the private cache can hold all panels, or blocks of them, and the partial sums of all
        rows."""
        (one, *others), target = products, draft.target
        if others or one.in_place or self.stretch or draft.kept or not self.nest.is_top:
            return False
        if one.rows.op is not Ops.INDEX or is_window(one.rows) or self.columns <= self.width:
            return False
        itemsize, cache = one.rows.dtype.itemsize, target.cache_l2
        is_far = turns(one.rows.ranges) * itemsize > cache
        # cycles that a tile computes with a line of each row
        busy = self.width * target.cache_line / (itemsize * draft.lanes * target.fma_ports)
        sums = self.rows * round_up(self.columns, self.width) * itemsize
        tasks = self.rows // (self.height * TILES_A_TASK)
        return is_far and busy < FROM_MEMORY and sums <= SUMS * cache and tasks >= TASKS_WITH_BLOCKS

    @property
    def panels(self) -> list[str]:
        """The loop over panels, if it is outside of the rows' loop."""
        return [] if self.rows_once else [self.n]

    @property
    def together(self) -> int:
        """The columns of the panels that are in use at the same time."""
        return round_up(self.columns, self.width) if self.rows_once else self.panel

    @property
    def inside(self) -> set[str]:
        tile = {self.m, self.m_copies, self.n, self.n_in, self.n_copies, self.n_lanes}
        return tile.union(self.edges)


def _panel_depth(draft: Draft, nest: Nest, products: list[Product]) -> int:
    """The bytes of a panel's column. A deep panel is packed in blocks, if it is the only one."""
    itemsize = max(p.rows.dtype.itemsize for p in products)
    depth = itemsize * max(draft.turns(p.loops) for p in products)
    if nest.is_top and len(products) == 1:
        return min(depth, int(PANEL_BLOCK * draft.target.cache_l2) // (4 * draft.lanes))
    return depth


def _tile(draft: Draft, products: list[Product], rows: int, columns: int, beside: bool) -> Tile:
    """The register tile that is best for all products."""
    first = products[0]
    is_apart = len(products) == 1 and is_window(first.rows)
    around = Surroundings(
        run=steps_apart(first.rows, first.row_loop) if is_apart else 0,
        apart=_bytes_apart(products),
        masked=any(p.in_place for p in products),
        beside=beside,
        depth=draft.turns(first.loops) if len(products) == 1 else 0,
        temporaries=0 if all(p.is_multiplied for p in products) else TEMPORARIES,
    )
    itemsize = max(p.rows.dtype.itemsize for p in products)
    return register_tile(draft, rows, columns, itemsize, around)


def _bytes_apart(products: list[Product]) -> int:
    """The bytes from row to row, if the rows of all products are read where they lie; else 0."""
    if any(p.rows.op is not Ops.INDEX or p.row_steps != (1,) for p in products):
        return 0
    return (step(products[0].rows, products[0].row_loop) or 0) * products[0].rows.dtype.itemsize


def is_transposed(draft: Draft, one: Product) -> bool:
    """Whether the columns are contiguous along the reduction, so that packing transposes them."""
    return 1 in one.column_steps and size_of(one.inner) >= draft.lanes
