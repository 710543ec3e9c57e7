"""Sums that read the same terms, as in the gradients of a group norm: those of weight and bias are
sums over images and pixels, what the statistics pass back is summed over the channels of a group
and pixels. All of them are made of sums over pixels, and one kernel makes those of the gradient and
of the gradient times what it scales, so both are read once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import accumulate, combinations, pairwise
from math import prod
from operator import mul
from typing import NamedTuple

from tinygrad.schedule.bases import is_concrete
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.rows import is_product
from tinygrad.schedule.sums import first_of, unchanged_along
from tinygrad.uop import Ops, UOp

FEWEST_TERMS = 16  # of the sums that are stored: a line of memory for each number
SMALL = 1 << 14  # with fewer terms the number of kernels is what counts


class Common(NamedTuple):
    """A part of a sum: the sum along these axes of the product of these factors, in this shape."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    factors: tuple[UOp, ...]

    @property
    def terms(self) -> int:
        return prod(self.shape[a] for a in self.axes)


def common_sums(sink: UOp, wishes: Wishes) -> UOp:
    """`sink` with sums made of the parts that they have in common."""
    order = sink.toposort()
    parts = {} if wishes.lanes else _common(order)
    if not parts:
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        done[node] = node.with_src(tuple(done[s] for s in node.src))
        if node in parts:
            done[node] = _made_of(parts[node], node, done)
            done[node].origin = node.origin
    return done[sink]


def beside(order: Iterable[UOp]) -> dict[UOp, UOp]:
    """Sums along the same rows of which one has all factors of the other: each with the last such
    sum, whose kernel had better store both. (Columns are read in wider pieces for one sum.)"""
    found: dict[UOp, UOp] = {}
    for node, host in _pairs(order):
        alike = node.arg == host.arg and node.src[0].shape == host.src[0].shape
        few, many = sorted((_factors(node), _factors(host)), key=len)
        if alike and node.src[0].ndim - 1 in node.arg[1] and set(few).issubset(many):
            found[node] = host
    return found


def _common(order: Iterable[UOp]) -> dict[UOp, Common]:
    """For each sum that has a part in common with others, the one of most terms."""
    position = {node: i for i, node in enumerate(order)}
    users: dict[Common, set[UOp]] = {}
    for pair in _pairs(position):
        shape = _refined([n.src[0] for n in pair] + _factors(pair[0]) + _factors(pair[1]))
        one, other = (_summed(node, shape) for node in pair)
        axes = tuple(a for a in one if a in other)
        if one != other and Common(shape, axes, ()).terms >= FEWEST_TERMS:
            for node in pair:
                still = _still(node, shape, axes)
                moving = [factor for factor in _factors(node) if factor not in still]
                if moving:
                    factors = tuple(sorted(moving, key=position.__getitem__))
                    users.setdefault(Common(shape, axes, factors), set()).add(node)
    parts: dict[UOp, Common] = {}
    for common, nodes in users.items():
        for node in nodes if len(nodes) > 1 else ():
            parts[node] = max(parts.get(node, common), common, key=lambda part: part.terms)
    return parts


def _pairs(order: Iterable[UOp]) -> Iterable[tuple[UOp, UOp]]:
    """Each two long sums, in order, that have a factor in common, and are no products with tiles of
    their own."""
    users: dict[UOp, list[UOp]] = {}
    for node in order:
        if node.op is not Ops.REDUCE_AXIS or node.arg[0] != "add" or not is_concrete(node.src[0]):
            continue
        if node.src[0].size > SMALL and not is_product(node):
            for factor in dict.fromkeys(_factors(node)):
                users.setdefault(factor, []).append(node)
    return (pair for sums in users.values() for pair in combinations(sums, 2))


def _factors(node: UOp) -> list[UOp]:
    """What a sum multiplies to make its terms, in whatever shape."""
    found, stack = list[UOp](), [node.src[0]]
    while stack:
        top = stack.pop()
        if top.op is Ops.MUL or (top.op is Ops.RESHAPE and is_concrete(top.src[0])):
            stack += top.src
        else:
            found.append(top)
    return found


def _refined(values: Iterable[UOp]) -> tuple[int, ...]:
    """The shape of fewest axes of which those of all these values are made by merging axes; () if
    there is none."""
    ends = {1}
    for value in values:
        ends.update(accumulate(value.shape, mul))
    steps = [*pairwise(sorted(ends))]
    return tuple(b // a for a, b in steps) if all(b % a == 0 for a, b in steps) else ()


def _summed(node: UOp, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a refined shape along which a sum runs."""
    before = (1, *accumulate(node.src[0].shape, mul))
    spans = [(before[a], before[a + 1]) for a in node.arg[1]]
    begins = (1, *accumulate(shape, mul))
    return tuple(
        a for a in range(len(shape)) if any(low <= begins[a] < high for low, high in spans)
    )


def _still(node: UOp, shape: tuple[int, ...], axes: tuple[int, ...]) -> list[UOp]:
    """The factors that are the same for all terms along these axes."""
    return [f for f in _factors(node) if len(unchanged_along(f.reshape(shape), axes)) == len(axes)]


def _made_of(part: Common, node: UOp, done: dict[UOp, UOp]) -> UOp:
    """A sum made of its part; `done` has the nodes of the new graph."""
    shape, axes, factors = part
    terms = reduce(UOp.__mul__, (done[f].reshape(shape) for f in factors))
    once = [first_of(done[f].reshape(shape), axes) for f in _still(node, shape, axes)]
    made = reduce(UOp.__mul__, once, terms.reduce_axis("add", axes))
    rest = tuple(a for a in _summed(node, shape) if a not in axes)
    return (made.reduce_axis("add", rest) if rest else made).reshape(node.shape)
