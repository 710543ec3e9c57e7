"""Derivatives of products without division, as trees of products. They are right where factors are
0, and so are their own derivatives, of all orders."""

from __future__ import annotations

from tinygrad.uop.node import UOp


def other_factors(x: UOp) -> UOp:
    """For each place of the last axis, the product of all other elements."""
    *lead, size = x.shape
    if size == 1:
        return x.const_like(1)
    half = (size + 1) // 2
    box = tuple((0, n) for n in lead)
    still = ((0, 0),) * len(lead)
    left = x.shrink((*box, (0, half)))
    right = x.shrink((*box, (half, size)))
    if size % 2:  # one factor 1 more, so that both have `half`
        one = UOp.const(x.dtype, 1, x.device).broadcast_to((*lead, 1))
        right = right.pad((*still, (0, 1))) + one.pad((*still, (half - 1, 0)))
    outside = other_factors(left * right)  # (.., half)
    of_left = (outside * right).pad((*still, (0, size - half)))
    of_right = (outside * left).shrink((*box, (0, size - half))).pad((*still, (half, 0)))
    return of_left + of_right


def of_running_product(x: UOp, g: UOp, axis: int) -> UOp:
    """The gradient of x's running product along `axis`, given the gradient `g` of its result: at
    each place the product of the factors before it, times the contribution of all products from
    there on."""
    size = x.shape[axis]
    still = tuple((0, 0) for _ in x.shape)

    def moved(y: UOp, by: int) -> UOp:  # 0 where nothing comes
        sides = (*still[:axis], (max(by, 0), max(-by, 0)), *still[axis + 1 :])
        box = [(0, n) for n in x.shape]
        box[axis] = (max(-by, 0), size + max(-by, 0))
        return y.pad(sides).shrink(tuple(box))

    order = (*(i for i in range(x.ndim) if i != axis), axis)
    back = tuple(order.index(i) for i in range(x.ndim))
    later = _from_the_end(g.permute(order), moved(x, -1).permute(order)).permute(back)
    first = moved(x.const_like(1), 1).eq(0)
    return later * first.where(x.const_like(1), moved(x.running("mul", axis), 1))


def _from_the_end(g: UOp, factor: UOp) -> UOp:
    """At each place of the last axis g + factor · (this at the next place)."""
    *lead, size = g.shape
    if size == 1:
        return g
    still, box = ((0, 0),) * len(lead), tuple((0, n) for n in lead)
    half = (size + 1) // 2

    def parted(x: UOp) -> tuple[UOp, UOp]:  # the first of each pair, and the second
        pairs = x.pad((*still, (0, 2 * half - size))).reshape((*lead, half, 2))
        first, second = (pairs.shrink((*box, (0, half), (i, i + 1))) for i in range(2))
        return first.reshape((*lead, half)), second.reshape((*lead, half))

    (g0, g1), (f0, f1) = parted(g), parted(factor)
    first = _from_the_end(g0 + f0 * g1, f0 * f1)
    second = g1 + f1 * first.pad((*still, (0, 1))).shrink((*box, (1, half + 1)))
    wide = (*lead, half, 1)
    pairs = first.reshape(wide).pad((*still, (0, 0), (0, 1)))
    pairs = pairs + second.reshape(wide).pad((*still, (0, 0), (1, 0)))
    return pairs.reshape((*lead, 2 * half)).shrink((*box, (0, size)))
