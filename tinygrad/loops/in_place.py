"""Product columns that are read where they lie in memory, instead of from a packed panel. An
example is a convolution whose window moves along rows of its own width: each tap is a shifted read
under a mask, and packing would copy every pixel once for each tap. The masks depend on the taps
only, so the loops over taps go outside."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.loops.cost import turns
from tinygrad.loops.draft import Nest
from tinygrad.loops.layout import elements, flat_offset
from tinygrad.loops.reads import divisions, reads_of, step
from tinygrad.simplify.masks import gate_of
from tinygrad.uop import Ops, UOp

LAYING_OUT = 2
"""Cycles to lay out one element of the rows in another order of loops."""

STRIDED_ROWS = 0.05
"""The cost of rows that are not laid out, relative to the whole product."""

LEAST_TURNS = 4
"""The least number of turns that share a mask."""

SHARED = 1.4
"""The least number of reads of an element, on average, at which reads of a window overlap: a 3x3
window of stride 2 has 2.25, or 1.9 with the padding of short rows."""


def may_stay(nest: Nest, columns: UOp, loops: Sequence[UOp]) -> bool:
    """Whether the columns of a product over `loops` can be read where they lie, with few masks."""
    gate = _gate(columns)
    if gate is None or columns.src[0].op is not Ops.PARAM or step(columns, nest.loops[-1]) != 1:
        return False
    if reads_of(gate.toposort()):
        return False
    return turns(r for r in loops if r not in gate.ranges) >= LEAST_TURNS


def masks_outside(columns: UOp, loops: Sequence[UOp]) -> list[UOp]:
    """The loops of a reduction, reordered: those that the mask of its columns depends on come
    outermost."""
    gate = _gate(columns)
    return sorted(loops, key=lambda r: gate is None or r not in gate.ranges)


def laying_out(nest: Nest, rows: UOp) -> float:
    """What it costs to lay out the rows once, as a fraction of the whole product."""
    return 16 * LAYING_OUT / turns(r for r in nest.loops if r not in rows.ranges)


def _gate(columns: UOp) -> UOp | None:
    return gate_of(columns) if columns.op is Ops.INDEX else None


# ---- rows ----------------------------------------------------------------------------------------


def is_window(value: UOp) -> bool:
    """Whether a copy of what is read from memory would hold each element several times."""
    if value.op is not Ops.INDEX or gate_of(value) is not None:
        return False
    source = value.src[0]
    if source.op is Ops.STAGE:
        return turns(value.ranges - source.ranges) >= SHARED * elements(source)
    return turns(value.ranges) >= SHARED * int(source.arg[1])


def steps_apart(read: UOp, loop: UOp) -> int:
    """The number of turns of a loop within which a read moves in even steps; 0 means all turns."""
    parts = divisions(flat_offset(read).toposort())
    return min((number for index, number in parts if index is loop), default=0)
