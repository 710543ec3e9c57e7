"""What a product prefetches: memory that its tiles will read, in patterns that the hardware
prefetcher doesn't see."""

from __future__ import annotations

from tinygrad.loops.cost import turns
from tinygrad.loops.draft import Draft, is_plain
from tinygrad.loops.layout import elements, fill_order, memory_of, option
from tinygrad.loops.products import Product, reduction_of, side_of
from tinygrad.loops.reads import reads_of, step
from tinygrad.loops.register_tiles import SETS
from tinygrad.loops.roles import name_of, own_ranges, role_of
from tinygrad.loops.vectors.tiling import Tiling, is_transposed
from tinygrad.uop import Ops, UOp

TILES_AHEAD = 2
"""How many tiles ahead lines are prefetched: packed rows, and what is read beside the sums."""

PAGE = 4096
"""Bytes: the hardware prefetcher stops there, and doesn't follow steps that are longer."""


def ask_for_rows(draft: Draft, tiling: Tiling, one: Product) -> None:
    """Prefetches rows from memory that are used for one panel of columns only, some tiles ahead; if
    the rows of a tile span more than a page, where the hardware prefetcher stops, and fit in the
    cache beside others."""
    rows = side_of(draft, tiling.nest.name, one, tiling.n_in, False)
    if rows.op is not Ops.INDEX or not _is_far(draft, rows) or not is_plain(rows):
        return
    once, itemsize = tiling.columns <= tiling.panel, rows.dtype.itemsize
    depth = turns(own_ranges(reduction_of(draft, tiling.nest.name, one)))
    tile = tiling.height * depth * itemsize
    fits = PAGE < tile <= draft.target.cache_l1 // 2 and one.row_steps == (1,)
    if once and fits:
        *_, inner = (r for r in draft.nest(tiling.nest.name).loops if role_of(r) == "LOOP")
        draft.do("prefetch", name_of(inner), TILES_AHEAD)


def ask_for_panels(draft: Draft, tiling: Tiling, one: Product) -> None:
    """While a panel is packed from memory, prefetches the next one into the second cache, where it
    arrives while this one is used. It transposes short rows, or its first reader takes parts of
    rows, which the hardware prefetcher doesn't follow."""
    turned = is_transposed(draft, one)
    around = [n for n in draft.names_in(tiling.nest.name) if n not in {*tiling.inside} - {tiling.n}]
    for name, stage in draft.stages.items():
        is_first = bool(option(stage, "first"))
        is_panel = is_first or (turned and f"{name}.{tiling.n_in}" in draft.loops)
        fits = elements(stage) * stage.dtype.itemsize <= draft.target.cache_l2 // 4
        if not (is_panel and fits and memory_of(stage) == "LOCAL"):
            continue
        far = [n for n in reads_of(stage.src[0].toposort()) if _is_far(draft, n)]
        outer = one.around if is_first else (*around, *one.around)
        advance = [n for n in outer if any(draft.loops[n] in read.ranges for read in far)]
        fills = [name_of(r) for r in fill_order(stage) if role_of(r) == "LOOP"]
        if advance:
            inside = [name_of(one.inner)] if is_first else fills
            draft.do("prefetch", advance[-1], 1, *inside[-1:])


def _is_far(draft: Draft, read: UOp) -> bool:
    """Whether this reads a buffer that the private cache can't hold."""
    memory = read.src[0]
    return memory.op is Ops.PARAM and memory.arg[1] * read.dtype.itemsize > draft.target.cache_l2


def ask_for_epilogue(draft: Draft, tiling: Tiling) -> None:
    """Prefetches what is read beside the sums, such as a residual or a mask of scores. A tile reads
    a line of each row, and the hardware prefetcher doesn't see the pattern if rows are far apart.
    The next tile is the one below, or, if a block has few rows, the one beside."""
    nest = draft.nest(tiling.nest.name)
    *_, inner = (None, *(r for r in nest.loops if role_of(r) == "LOOP"))
    if inner is None or not {tiling.m_copies, tiling.n} <= draft.loops.keys():
        return
    rows, columns = draft.loops[tiling.m_copies], draft.loops[tiling.n]
    for read in reads_of(draft.below(nest.values)):
        if not _is_far(draft, read) or not {inner, rows, columns} <= read.ranges:
            continue
        if (step(read, rows) or 0) * read.dtype.itemsize >= SETS:
            ahead = (tiling.n, 1) if nest.name in draft.kept else (name_of(inner), TILES_AHEAD)
            draft.do("prefetch", *ahead, name_of(inner))
            return
