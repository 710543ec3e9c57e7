"""Products of few rows by a matrix that lies in memory along the sum, such as a layer's weights by
a handful of inputs. A panel would have to be transposed and would hardly be reused. Instead vectors
run along the sum, and the lanes of each result are added at the end."""

from __future__ import annotations

from tinygrad.base.helpers import round_up
from tinygrad.loops.draft import Draft, Nest, names
from tinygrad.loops.products import (
    Product,
    in_one_word,
    reduction_of,
    rows_before,
    tensorised,
    whole_sum,
)
from tinygrad.loops.reads import reads_of, step
from tinygrad.loops.register_tiles import best_tile
from tinygrad.loops.roles import name_of, size_of
from tinygrad.loops.vectors.tasks import parallelise

FOLD, TRANSPOSE = 10, 5
"""Instructions to sum the lanes of a vector; and to transpose one element."""

DOTS = 4
"""Vectors of results in a task, for every row."""


def runs_along_k(draft: Draft, nest: Nest, one: Product) -> bool:
    """Whether vectors along k, folded for each result, cost less than a transposed panel that few
    rows share. Memory must be contiguous along k, and rows that several tiles read must stay in a
    near cache."""
    rows, size, last = size_of(one.row_loop), size_of(one.inner), nest.loops[-1]
    if not nest.is_top or draft.stages or len(one.loops) > 1 or size < 2 * draft.lanes:
        return False
    if not {*one.rows.ranges, *one.columns.ranges} <= {*nest.loops, one.inner}:
        return False  # a term of another sum
    if {*one.column_steps} != {1} or any(
        last in n.ranges and step(n, last) == 1 for n in reads_of(one.columns.toposort())
    ):
        return False
    height = best_tile(draft.target, rows, size_of(last), 1).rows
    if rows > height and rows * size * one.rows.dtype.itemsize >= draft.target.cache_l2:
        return False
    return FOLD * draft.lanes * rows < TRANSPOSE * size


def dots(draft: Draft, nest: Nest, one: Product) -> None:
    """Computes a tile of results, each a sum over vectors along k, and stages it; vectors of
    results are then read from memory."""
    m, n, k = name_of(one.row_loop), name_of(nest.loops[-1]), name_of(one.inner)
    rows, columns = size_of(one.row_loop), size_of(nest.loops[-1])
    tile = best_tile(draft.target, rows, columns, 1)
    outer = [x for x in names(nest.loops) if x not in (m, n)]
    panel = draft.split(n, min(DOTS * draft.lanes, round_up(columns, draft.lanes)), n + "i")
    one = tensorised(draft, panel, one)
    lanes = draft.split(k, draft.lanes, k + "v", "LOOP", "VECTOR")
    # what each result's sum reads again is laid out in the order in which it is read: rows of 2^n
    # bytes would map to the same sets of the cache
    name = rows_before(draft, one, panel, (*outer, k, m, lanes))
    in_one_word(draft, name, one)
    draft.do("role", f"{name}.{lanes}", "VECTOR")
    reduction = reduction_of(draft, "store", one)
    name = draft.stage(whole_sum(draft, reduction), (m, panel), "tile", "LOCAL")
    down, along = f"{name}.{m}", f"{name}.{panel}"
    copies = (
        draft.split(down, tile.rows, down + "u", "LOOP", "UNROLL"),
        draft.split(along, tile.columns, along + "u", "LOOP", "UNROLL"),
    )
    draft.do("order", name, (along, down, *copies))
    draft.do("prefetch", along, 1)
    vector = draft.split(panel, draft.lanes, n + "v", "UNROLL", "VECTOR")
    draft.innermost("store", (n, m, panel, vector))
    parallelise(draft, [*outer, n])
