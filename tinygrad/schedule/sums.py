"""Sums of products rewritten by algebra, before there are kernels: a sum of several products
becomes several sums, and a factor that all terms share multiplies their sum."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from math import prod
from operator import add

from tinygrad.base.helpers import argsort, round_up
from tinygrad.schedule.bases import beneath, is_concrete
from tinygrad.schedule.movement import source_index
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.rows import is_contraction, is_product
from tinygrad.uop import GroupOp, Ops, UOp

LANES, HARDLY_FULL = 16, 1.25
"""Lanes of a vector, and how many times the pixels of a plane there are lanes in vectors that are
worth filling otherwise."""

TOGETHER = 4  # products that one kernel adds: a loop in Python over a layer has one for each turn


def products_apart(sink: UOp, _: Wishes) -> UOp:
    """`sink` with each of the products that a sum adds up summed on its own."""
    return sink.rebuilt({Ops.REDUCE_AXIS: _products_apart})


def factors_apart(sink: UOp, _: Wishes) -> UOp:
    """`sink` with the factors that terms share multiplied to their sums."""
    return sink.rebuilt({Ops.REDUCE_AXIS: _still_factor_apart})


def planes_together(sink: UOp, wishes: Wishes) -> UOp:
    """`sink` with small planes of stored products beside each other, where vectors run along
    them."""
    return sink if wishes.lanes else sink.rebuilt({Ops.FOLD: _planes_together})


def _planes_together(fold: UOp) -> UOp:
    """If a FOLD adds up products of which one factor is the same for all images and pixels, small
    planes of pixels lie beside those of other images: 49 pixels fill 64 lanes, those of 8 images
    400."""
    node = beneath(fold.src[0], {Ops.RESHAPE, Ops.PERMUTE})
    if node.op is not Ops.REDUCE_AXIS or not is_concrete(node.src[0]) or not is_contraction(node):
        return fold
    if node.src[0].op is not Ops.MUL:
        return fold  # of narrow floats, which a unit multiplies
    first, second = node.src[0].src
    axes = range(len(node.shape))
    same: list[int] = []
    for factor in (second, first):
        unchanged = unchanged_along(factor, axes)
        if axes[-1] in unchanged:
            same = unchanged
    plane = next((a for a in reversed(axes) if a - 1 not in same), 0)
    pixels = prod(node.shape[plane:])
    images = [a for a in same if a < plane and node.shape[a] > 1]
    if not images or round_up(pixels, LANES) < HARDLY_FULL * pixels:
        return fold
    order = (*(a for a in axes[:plane] if a not in images), *images, *axes[plane:])
    product = first.permute(order).alu(Ops.MUL, second.permute(order))
    made = product.reduce_axis("add", tuple(order.index(a) for a in node.arg[1]))
    return fold.substitute({node: made.permute(argsort(order))})


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
        still = unchanged_along(factor, [a for a in axes if source.shape[a] > 1])
        if still:
            once = set(unchanged_along(other, range(other.ndim))).difference(still)
            summed = first_of(other, once).reduce_axis("add", tuple(still))
            kept = first_of(factor, still)
            rest = tuple(a for a in axes if a not in still)
            return kept.alu(Ops.MUL, summed.expand(kept.shape)).reduce_axis("add", rest)
    return node


def unchanged_along(value: UOp, asked: Iterable[int]) -> list[int]:
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


def first_of(value: UOp, axes: Collection[int]) -> UOp:
    """The first element along these axes, along which a value is constant."""
    return value.shrink(tuple((0, 1 if i in axes else n) for i, n in enumerate(value.shape)))
