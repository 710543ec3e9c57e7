"""Derivatives of products without division, as trees of products. They are right where factors are
0, and so are their own derivatives, of all orders."""

from __future__ import annotations

from collections.abc import Collection

from tinygrad.uop.infer import most
from tinygrad.uop.node import UOp


def other_factors(x: UOp) -> UOp:
    """For each place of the last axis, the product of all other elements.

    Place i and place i + half are a pair. Who multiplies the pairs, but for one, and then that
    pair's other element, has multiplied all but one.
    """
    *lead, size = x.shape
    if size == 1:
        return x.const_like(1)
    half = (size + 1) // 2
    left, right = x.sliced(-1, 0, half), x.sliced(-1, half, size)
    if size % 2:  # the middle one's partner is 1
        one = UOp.const(x.dtype, 1, x.device).broadcast_to((*lead, 1))
        right = right.padded(-1, 0, 1) + one.padded(-1, half - 1, 0)
    other_pairs = other_factors(left * right)  # (.., half)
    of_left, of_right = other_pairs * right, other_pairs * left
    behind = size - half
    return of_left.padded(-1, 0, behind) + of_right.sliced(-1, 0, behind).padded(-1, half, 0)


def filled_room(x: UOp, axes: Collection[int]) -> UOp:
    """With factors 1 in the room of the largest sizes along these axes, so that they can become
    one axis."""
    if not any(isinstance(x.shape[i], UOp) for i in axes):
        return x
    pads = tuple((0, most(n) - n if i in axes else 0) for i, n in enumerate(x.shape))
    return x.pad(pads) + x.const_like(1).pad(pads).eq(0).cast(x.dtype)


def of_running_product(x: UOp, g: UOp, axis: int) -> UOp:
    """The gradient of x's running product along `axis`, given the gradient `g` of its result: at
    each place the product of the factors before it, times the contribution of all products from
    there on."""
    to_last = (*(i for i in range(x.ndim) if i != axis), axis)  # the axis becomes the last one
    back = tuple(to_last.index(i) for i in range(x.ndim))
    following = _from_before(x, axis, -1)
    later = _from_the_end(g.permute(to_last), following.permute(to_last)).permute(back)
    one = x.const_like(1)
    is_first = _from_before(one, axis, 1).eq(0)
    before = is_first.where(one, _from_before(x.running("mul", axis), axis, 1))
    return later * before


def _from_before(x: UOp, axis: int, by: int) -> UOp:
    """At each place of an axis the element `by` places before, or after if `by` is negative; 0
    where there is none."""
    size, before, after = x.shape[axis], max(by, 0), max(-by, 0)
    return x.padded(axis, before, after).sliced(axis, after, size + after)


def _from_the_end(g: UOp, factor: UOp) -> UOp:
    """At each place of the last axis g + factor · (this at the next place)."""
    *lead, size = g.shape
    if size == 1:
        return g
    half = (size + 1) // 2

    def parted(x: UOp) -> tuple[UOp, UOp]:  # the first of each pair, and the second
        pairs = x.padded(-1, 0, 2 * half - size).reshape((*lead, half, 2))
        first, second = (pairs.sliced(-1, i, i + 1).reshape((*lead, half)) for i in range(2))
        return first, second

    (g0, g1), (f0, f1) = parted(g), parted(factor)
    first = _from_the_end(g0 + f0 * g1, f0 * f1)
    second = g1 + f1 * first.padded(-1, 0, 1).sliced(-1, 1, half + 1)
    pair = (*lead, half, 1)
    pairs = first.reshape(pair).padded(-1, 0, 1) + second.reshape(pair).padded(-1, 1, 0)
    return pairs.reshape((*lead, 2 * half)).sliced(-1, 0, size)
