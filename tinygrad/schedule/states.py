"""Reductions of several states: one whose terms are made with the result of another over the same
elements, as a softmax's sum is with the maximum and a variance with the mean. As they stand, the
second one reads its row after the first has read all of it; a row longer than the cache then comes
from memory twice.

So such a row is taken in blocks. Each block has states of its own, the second one made with the
first one of that block, which is in the cache still, and a law says how a block's second state
follows from the whole row's first:

    max of x, sum of w*2**(a*(x - m))    sum over blocks of  s * 2**(a*(m - M))
    sum of x, sum of (x - m)**2          sum over blocks of  s + n*(m - M)**2       m: the mean
    max of x, sum of (x == m)            sum over blocks of  s, where m == M

(Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Chan, Golub and LeVeque,
"Updating formulae and a pairwise algorithm for computing sample variances", 1979.) Nothing is
rescaled from element to element: an exponential is computed once, and vectors stay vectors. What
comes out is a graph as any other, so all devices have it; and blocks are work for many cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tinygrad.base.dtype import largest_float
from tinygrad.schedule.bases import beneath, is_concrete, reached
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.split import Piece, combined, pieces_of
from tinygrad.uop import GroupOp, Ops, UOp

LONG = 1 << 17
"""Elements that are read before one is read again: more than a cache holds."""

BLOCK = 1 << 11
"""Approximate number of elements in a block: as many as the nearest cache holds."""

FEWEST = 128
"""Terms of a block, at least: shorter sums would be computed where they are used."""

STRIP = 64
"""Columns that are reduced side by side, where rows of memory are reduced into one."""


@dataclass(frozen=True)
class Pair:
    """A reduction `second` whose terms depend on `centre`, a number for each row that follows from
    the reduction `first`.

    `stand_in(state, part)`: the value from which the blocks' centres follow, given the blocks'
    first states, each over that part of all terms. `rescale(state, own, whole, terms)`: the
    contributions of blocks to the row's second state, given their second states, their centres, the
    row's centre, and their number of terms.
    """

    first: UOp
    second: UOp
    centre: UOp
    stand_in: Callable[[UOp, float], UOp]
    rescale: Callable[[UOp, UOp, UOp, int], UOp]


def take_in_blocks(sink: UOp, _: Wishes) -> UOp:
    """`sink` with such pairs of reductions over long rows computed in blocks."""
    order = sink.toposort()
    pairs = {node: pair for node in order if (pair := _pair_of(node)) is not None}
    if not pairs:
        return sink
    firsts = {pair.first for pair in pairs.values()}
    done: dict[UOp, UOp] = {}
    for node in order:
        if node in firsts:
            pieces = _pieces(node)
            rebuilt = combined(node, pieces, [_first_states(node, p, done) for p in pieces])
        elif node in pairs:
            pieces = _pieces(node)
            rebuilt = combined(node, pieces, [_second(pairs[node], p, done) for p in pieces])
        else:
            rebuilt = node.with_src(tuple(done[s] for s in node.src))
        if rebuilt is not node:
            rebuilt.origin = node.origin
        done[node] = rebuilt
    return done[sink]


def _first_states(node: UOp, piece: Piece, done: dict[UOp, UOp]) -> UOp:
    return piece.states(node.arg[0], piece.part(done[node.src[0]]))


def _second(pair: Pair, piece: Piece, done: dict[UOp, UOp]) -> UOp:
    """The contributions of a piece's blocks to the second state, computed with the blocks' own
    first states."""
    first, terms = pair.first, pair.second.src[0]
    state = _first_states(first, piece, done)
    part_of_row = piece.terms * first.size / first.src[0].size
    local = {first: pair.stand_in(state, part_of_row)}  # what follows from a block's first state
    for node in terms.toposort():
        if node in local or local.keys().isdisjoint(node.src):
            continue
        if node.op is Ops.EXPAND:
            local[node] = local[node.src[0]].expand(piece.apart)
            continue
        place = piece.part if node.shape == terms.shape else piece.rows
        src = [local[s] if s in local else place(done[s]) for s in node.src]
        local[node] = node.with_src(tuple(src))
    own, whole = local[pair.centre], piece.rows(done[pair.centre])
    states = piece.states(pair.second.arg[0], local[terms])
    return pair.rescale(states, own, whole, piece.terms)


# ---- blocks --------------------------------------------------------------------------------------


def _pieces(node: UOp) -> list[Piece]:
    """Blocks of some inner axes and a part of the next one; the remainder of that axis is one
    block."""
    shape, axes = node.src[0].shape, sorted(node.arg[1])
    most = max(FEWEST, BLOCK // _strip(node))
    inner = 1  # terms of the axes that a block has in full
    while len(axes) > 1 and inner * shape[axes[-1]] < most:
        inner *= shape[axes.pop()]
    axis = axes[-1]
    size = shape[axis]
    wanted = max(1, most // inner)
    each = next((n for n in range(wanted, wanted // 2, -1) if size % n == 0), wanted)
    return pieces_of(node, axis, size // each, each, [a for a in node.arg[1] if a >= axis])


def _strip(node: UOp) -> int:
    """How many columns are reduced side by side."""
    columns: int = prod(node.src[0].shape[max(node.arg[1]) + 1 :])
    return min(columns, STRIP)


def _is_long(node: UOp) -> bool:
    if node.op is not Ops.REDUCE_AXIS or not is_concrete(node.src[0]):
        return False
    return node.size > 0 and node.src[0].size // node.size * _strip(node) > LONG


# ---- laws ----------------------------------------------------------------------------------------


def _pair_of(node: UOp) -> Pair | None:
    if not _is_long(node):
        return None
    return next((pair for law in LAWS if (pair := law(node)) is not None), None)


def _exponentials(node: UOp) -> Pair | None:
    """Terms w * 2**(a*(x - m)), where m follows from the maximum of x."""
    factors = [node.src[0]]
    while factors[0].op is Ops.MUL:
        factors[:1] = factors[0].src
    for power in factors:
        if power.op is not Ops.EXP2 or node.arg[0] != "add":
            continue
        distance, scale = power.src[0], None
        if distance.op is Ops.MUL and _number(distance.src[1]) is not None:
            distance, scale = distance.src
        x, centre = _distance(distance)
        first = None if centre is None else _first(node, centre, "max", x)
        others = [other for other in factors if other is not power]
        if centre is None or first is None or any(first in o.toposort() for o in others):
            continue

        def rescaled(state: UOp, own: UOp, whole: UOp, _: int, a: UOp | None = scale) -> UOp:
            apart = own - whole
            apart = apart if a is None else apart * _number(a)
            return state * apart.alu(Ops.EXP2)

        return Pair(first, node, centre, _or_lowest, rescaled)
    return None


def _or_lowest(state: UOp, _: float) -> UOp:
    """The maximum of a block without any number is replaced by a finite one, so that distances from
    it are not NaN."""
    return state.maximum(-largest_float(state.dtype))


def _squares(node: UOp) -> Pair | None:
    """Terms (x - m)**2, where m is the mean of x."""
    terms = node.src[0]
    if node.arg[0] != "add" or terms.op is not Ops.MUL or terms.src[0] is not terms.src[1]:
        return None
    x, centre = _distance(terms.src[0])
    if centre is None or centre.op is not Ops.FDIV:
        return None
    first, count = _first(node, centre, "add", x), node.src[0].size // node.size
    if first is not centre.src[0] or _number(centre.src[1]) != count:
        return None

    def rescaled(state: UOp, own: UOp, whole: UOp, terms: int) -> UOp:
        apart = own - whole
        return state + apart * apart * float(terms)

    return Pair(first, node, centre, lambda state, part: state * (1 / part), rescaled)


def _equals(node: UOp) -> Pair | None:
    """Terms 1 where x is its maximum, else 0."""
    same = node.src[0].src[0] if node.src[0].op is Ops.CAST else node.src[0]
    if same.op is not Ops.CMPEQ or same.src[1].op is not Ops.EXPAND or node.arg[0] != "add":
        return None
    x, centre = same.src[0], same.src[1].src[0]
    if _first(node, centre, "max", x) is not centre:
        return None

    def rescaled(state: UOp, own: UOp, whole: UOp, _: int) -> UOp:
        return own.alu(Ops.CMPEQ, whole).where(state, state.const_like(0))

    return Pair(centre, node, centre, lambda state, _: state, rescaled)


LAWS = (_exponentials, _squares, _equals)


def _distance(node: UOp) -> tuple[UOp, UOp | None]:
    """x and m, if the node is x - m, and m is a number for each row."""
    if node.op is Ops.ADD and node.src[1].op is Ops.MUL:
        repeated, sign = node.src[1].src
        if repeated.op is Ops.EXPAND and _number(sign) == -1:
            return node.src[0], repeated.src[0]
    return node, None


def _first(node: UOp, centre: UOp, monoid: str, x: UOp) -> UOp | None:
    """The reduction of x, over the axes that `node` reduces, from which `centre` follows."""
    wanted = (x,), (monoid, node.arg[1])
    if x.shape == node.src[0].shape:
        for top in reached(centre, through=lambda n: n.op in GroupOp.Elementwise):
            if top.op is Ops.REDUCE_AXIS and (top.src, top.arg) == wanted:
                return top
    return None


def _number(node: UOp) -> float | None:
    """The constant that a node repeats; None if it isn't one."""
    node = beneath(node, (Ops.EXPAND, Ops.RESHAPE))
    return float(node.arg) if node.op is Ops.CONST else None
