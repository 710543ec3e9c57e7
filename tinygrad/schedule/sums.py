"""Sums of products rewritten by algebra, before there are kernels: a sum of several products
becomes several sums, and a factor that all terms share multiplies their sum."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import add

from tinygrad.schedule.bases import is_concrete
from tinygrad.schedule.movement import source_index
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.rows import is_contraction, is_product
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

TOGETHER = 4  # products that one kernel adds: a loop in Python over a layer has one for each turn


def products_apart(sink: UOp, _: Wishes) -> UOp:
    """`sink` with each of the products that a sum adds up summed on its own."""
    return sink.rebuilt({Ops.REDUCE_AXIS: _products_apart})


def factors_apart(sink: UOp, _: Wishes) -> UOp:
    """`sink` with the factors that terms share multiplied to their sums."""
    return sink.rebuilt({Ops.REDUCE_AXIS: _still_factor_apart})


def _products_apart(node: UOp) -> UOp:
    """If products are added before they are summed, each is summed on its own, in register tiles.
    This happens in gradients of weights that are used by several layers."""
    addends, stack = list[UOp](), [node.src[0]]
    while stack:
        top = stack.pop()
        if top.op is Ops.ADD:
            stack += reversed(top.src)
        else:
            addends.append(top)
    sums = [node.with_src((addend,)) for addend in addends]
    products = [each for each in sums if is_contraction(each)]
    if len(sums) == 1 or not products:
        return node
    rest = [each.src[0] for each in sums if each not in products]
    if rest:
        products.append(node.with_src((reduce(add, rest),)))
    starts = range(0, len(products), TOGETHER)
    total, *others = [reduce(add, products[i : i + TOGETHER]) for i in starts]
    return reduce(lambda so_far, more: so_far.contiguous() + more, others, total)


def _still_factor_apart(node: UOp) -> UOp:
    """A factor that is constant over some of the terms is moved out of their sum, such as a
    gradient that a mean spread over its rows."""
    source, (_, axes) = node.src[0], node.arg
    if source.op is not Ops.MUL or not is_concrete(source) or not is_product(node):
        return node
    for factor, other in (source.src, source.src[::-1]):
        still = _unchanged_along(factor, [a for a in axes if source.shape[a] > 1])
        if still:
            once = set(_unchanged_along(other, range(other.ndim))).difference(still)
            summed = _first_of(other, once).reduce_axis("add", tuple(still))
            kept = _first_of(factor, still)
            rest = tuple(a for a in axes if a not in still)
            return kept.alu(Ops.MUL, summed.expand(kept.shape)).reduce_axis("add", rest)
    return node


def _unchanged_along(value: UOp, asked: Iterable[int]) -> list[int]:
    """Those of the axes along which a value is constant, according to the movement ops."""
    axes = [UOp.range(n, str(i)) for i, n in enumerate(value.shape)]
    changing, first = set[UOp](), (value, tuple(axes))
    stack, seen = [first], {first}
    open_axes = {axes[i]: i for i in asked}
    while stack and not changing.issuperset(open_axes):
        node, index = stack.pop()
        sources = node.src
        if node.op in GroupOp.Movement:
            index, conditions = source_index(node, index)
            changing.update(*(condition.ranges for condition in conditions))
            sources = node.src[:1]
        elif node.op not in GroupOp.Elementwise:
            changing.update(*(at.ranges for at in index))
            continue
        below = [(s, index) for s in sources if (s, index) not in seen]
        seen.update(below)
        stack += below
    return [i for loop, i in open_axes.items() if loop not in changing]


def _first_of(value: UOp, axes: Collection[int]) -> UOp:
    """The first element along these axes, along which a value is constant."""
    return value.shrink(tuple((0, 1 if i in axes else n) for i, n in enumerate(value.shape)))
