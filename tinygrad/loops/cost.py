"""The cost of a kernel: how many operations it computes and how many bytes it must move. A value is
computed once for each turn of the loops that it depends on, so both numbers follow from the graph,
without running anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tinygrad.base.dtype import dtypes
from tinygrad.loops.layout import nodes_of
from tinygrad.loops.roles import own_ranges, size_of
from tinygrad.schedule.bundles import kernels_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import WEIGHT, GroupOp, Ops


@dataclass(frozen=True)
class Cost:
    """Operations on elements, and the bytes read and written if every buffer is touched once."""

    operations: int
    bytes: int


NARROW = 8
"""The approximate number of operations that round a result to a float narrower than float32."""


def weight(node: UOp) -> int:
    """The number of operations on one element that this node stands for."""
    if node.dtype is dtypes.index or node.op not in GroupOp.Elementwise:
        return 0
    rounds = dtypes.is_float(node.dtype) and node.dtype.itemsize < 4
    return WEIGHT.get(node.op, 1) + (NARROW if rounds else 0)


def turns(loops: Iterable[UOp]) -> int:
    """How often the body of these loops runs; limits are ignored."""
    return prod(size_of(loop) for loop in loops)


def estimate(kernel: UOp) -> Cost:
    """The cost of one kernel, before or after its recipe is applied; for a bundle, of all
    members."""
    if kernel.op is Ops.BUNDLE:
        costs = [estimate(each) for each in kernels_of(kernel)]
        return Cost(sum(cost.operations for cost in costs), sum(cost.bytes for cost in costs))
    operations = moved = 0
    touched: dict[UOp, int] = {}
    for node in nodes_of(kernel):
        if node.op is Ops.RUNNING:
            operations += turns(node.ranges)
        elif node.op is Ops.REDUCE:
            operations += turns(node.ranges | frozenset(own_ranges(node)))
        elif node.op in GroupOp.ALU and node.dtype is not dtypes.index:
            operations += WEIGHT.get(node.op, 1) * turns(node.ranges)
        elif node.op is Ops.INDEX and node.src[0].op is Ops.PARAM:
            buffer = node.src[0]
            count = min(buffer.arg[1], turns(node.ranges))
            touched[buffer] = max(touched.get(buffer, 0), count)
    for buffer, count in touched.items():
        moved += count * buffer.dtype.itemsize
    return Cost(operations, moved)


def work(kernel: UOp) -> int:
    """Operations plus accesses: the measure of the size of a task."""
    total = 0
    for node in nodes_of(kernel):
        if node.dtype is dtypes.index:
            continue
        if node.op is Ops.INDEX or node.op in GroupOp.Elementwise:
            total += WEIGHT.get(node.op, 1) * turns(node.ranges)
        elif node.op is Ops.REDUCE:
            total += turns(node.ranges | frozenset(own_ranges(node)))
    return total
