"""What is read beside a product's sums, and lies in memory along the tile's rows instead of its
vectors, as a mask does where scores stand transposed: a copy of a block's part, turned in squares
of registers, is read by whole vectors. Else each lane would be a read of its own."""

from __future__ import annotations

from tinygrad.loops.layout import size_of, steady, step
from tinygrad.loops.plan import Nest, Plan
from tinygrad.loops.vectors.panels import fill_squares
from tinygrad.uop.op import Ops


def turn_reads(plan: Plan, nest: Nest, row: str, column: str) -> None:
    """Stages such reads for a block's rows and the columns of a panel. A nest whose rows are no
    block leaves them: the copy would be as large as the result."""
    rows, columns = plan.loops[row], plan.loops[column]
    if nest.is_top or min(size_of(rows), size_of(columns)) < plan.lanes:
        return
    values = plan.nest(nest.name).values
    sums = [n for n in plan.below(values) if n.op is Ops.REDUCE]
    reads = [n for v in values for n in v.toposort(stop=sums) if n.op is Ops.INDEX]
    for read in dict.fromkeys(n for n in reads if n.src[0].op is Ops.PARAM):
        if step(read, rows) == 1 and not steady(read, columns):
            name = plan.stage(read, (row, column), "turned")
            fill_squares(plan, name, f"{name}.{row}", f"{name}.{column}")
