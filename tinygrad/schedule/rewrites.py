"""The scheduler's table of contents: what is done to a graph, in order, before the walk decides
what of it is stored. (A graph over several devices has become one for each device before.)"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tinygrad.schedule.common_sums import common_sums
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.scans import joined_loops
from tinygrad.schedule.sorting import sorted_there
from tinygrad.schedule.split import split_reductions
from tinygrad.schedule.states import take_in_blocks
from tinygrad.schedule.sums import factors_apart, planes_together, products_apart
from tinygrad.uop import Ops, UOp


def own_targets(sink: UOp, _: Wishes) -> UOp:
    """Gives each SCATTER a target of its own, which can be overwritten in place."""
    numbers = itertools.count()

    def owning(node: UOp) -> UOp:
        target, *rest = node.src
        own = UOp(Ops.CONTIGUOUS, node.dtype, (target,), tag=("target", next(numbers)))
        return node.with_src((own, *rest))

    return sink.rebuilt({Ops.SCATTER: owning})


REWRITES: tuple[tuple[str, Callable[[UOp, Wishes], UOp], str], ...] = (
    ("sorts", sorted_there, "Where lanes would wait for the host, sorts are graphs."),
    ("loops", joined_loops, "Counted loops that do the same turns are one loop."),
    ("targets", own_targets, "Each SCATTER overwrites a target of its own."),
    ("blocks", take_in_blocks, "Long rows that two reductions read are read once, in blocks."),
    ("products", products_apart, "Products that are added before they are summed are summed each."),
    ("factors", factors_apart, "A factor that all terms of a product share multiplies their sum."),
    ("common", common_sums, "Sums of the same terms share sums along the axes of both."),
    ("planes", planes_together, "Small planes of products that are folded lie side by side."),
    ("parts", split_reductions, "A long sum of few results is a sum of sums."),
)
"""Graph to graph, by the wishes of the devices. None changes what is computed, but sums of floats
may be added in another order."""


def rewrite(sink: UOp, wishes: Wishes) -> UOp:
    """The graph after every rewrite."""
    for _, function, _ in REWRITES:
        sink = function(sink, wishes)
    return sink
