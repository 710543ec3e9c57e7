"""Rows that a kernel goes through several times: the first pass waits for memory, the later ones
find the row in the cache and leave memory idle. So one of these asks for the row that is next."""

from __future__ import annotations

from tinygrad.loops.cost import turns
from tinygrad.loops.layout import name_of, own_ranges, role_of, sums_of
from tinygrad.loops.plan import Plan
from tinygrad.loops.products import contractions
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

SHORTEST_ROW = 4096
"""Bytes that a processor reads ahead by itself."""


def ask_for_the_next_row(plan: Plan) -> None:
    """The second reduction that reads a row asks for the next one, if both fit the cache well."""
    rows = [r for r in plan.nest("store").loops if role_of(r) in ("LOOP", "PARALLEL")]
    passes = [n for n in sums_of(plan.nodes) if n.ranges and n.ranges <= {*rows}]
    if len(passes) < 2 or contractions(plan, plan.nest("store")):
        return
    row = max({r for n in passes for r in n.ranges}, key=rows.index)
    seen = {loops: _read(node, row) for node in passes if (loops := own_ranges(node))}
    first, *later = seen
    for loops in later:
        again = seen[loops].keys() & seen[first].keys()
        nbytes = sum(seen[loops][memory] for memory in again)
        counted = [name_of(r) for r in loops if role_of(r) == "LOOP"]
        if counted and SHORTEST_ROW <= nbytes <= plan.target.cache_l2 // 4:
            plan.do("prefetch", name_of(row), 1, counted[-1])
            return


def _read(node: UOp, row: UOp) -> dict[UOp, int]:
    """The buffers of which a reduction reads a part for each row, and how many bytes."""
    inner = sums_of(node.src[0].toposort())
    found: dict[UOp, int] = {}
    for read in node.src[0].toposort(stop=inner):
        if read.op is Ops.INDEX and read.src[0].op is Ops.PARAM and row in read.ranges:
            along = turns(r for r in read.ranges if r not in node.ranges)
            found[read.src[0]] = max(found.get(read.src[0], 0), along * read.dtype.itemsize)
    return found
