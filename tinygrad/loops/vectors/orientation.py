"""Which side of a product lies along the vectors.

The usual choice is bad in some products, most of them of a window. In the weight gradient of a
convolution the window is summed over its positions: it would be packed once for each tap, across
memory. Small images leave much of their last vector empty. In these cases the product is
transposed. The other side is packed once and fills the vectors, and the window is read in place,
from a copy that includes its border. Results are kept in a buffer, and the stores transpose them
back.

- Many rows that lie beside each other would be packed, and are more than a few columns: their
  product is transposed, too.
- Several matrices whose products' elements lie side by side would be summed element by element:
  each product is computed on its own, in tiles.
- A product whose result lies along the other side anyway is transposed too: the gradients of a
  transposed convolution, which would pack that side again for each row of pixels.
- Where much of a window is border and there are enough images, a tile is one pixel of several
  images, instead of several pixels of one.
- Where there are enough blocks of images, they are tasks. Each has its own copy of the window and
  its own results, which stay in the cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf
from typing import NamedTuple

from tinygrad.loops.cost import turns
from tinygrad.loops.draft import COPIES, Draft, names
from tinygrad.loops.layout import flat_offset
from tinygrad.loops.products import LONG_PANEL, SUMS, factors_of, is_in_place
from tinygrad.loops.reads import linear, reads_of, step
from tinygrad.loops.register_tiles import MOST_ROWS, Surroundings, half_tile, register_tile
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, size_of
from tinygrad.loops.trims import part_within
from tinygrad.loops.vectors.streams import stream
from tinygrad.loops.vectors.tasks import TASKS_WITH_BLOCKS, even_part
from tinygrad.loops.windows import Pair, pairs_of
from tinygrad.simplify.masks import gate_of
from tinygrad.uop import Ops, UOp

PANEL = 4
"""The usual number of vectors in a panel."""

ACROSS, SQUARES, PACKED, APART = 2.5, 1.25, 4.0, 0.4
"""Cycles to pack an element across memory, one by one or in squares of vectors that are turned; to
pack a vector along it; and in addition for each of its elements that a stride leaves apart."""

BUILT, READ_AGAIN, PUT_BACK = 1.0, 0.25, 3.0
"""Cycles for an element of a staged window; for each panel that reads it; and for a result that is
transposed back."""

LEAST_SUM = 16
"""Terms of a sum from which on its tile is worth a result that is stored twice."""

MANY_PANELS, LONG_SUM = 4, 4
"""Panels, and terms of a sum for each column, from which on a product of few columns is turned."""

WORTH = 0.97
"""A product is transposed only if that takes at most this fraction of the cost: the estimates are
uncertain."""


Names = tuple[str, ...]


class Sum(NamedTuple):
    """A sum of products over the loops `own`, for each turn of the stores' `loops`; all are
    plain."""

    node: UOp
    loops: tuple[UOp, ...]
    own: tuple[UOp, ...]
    sides: tuple[UOp, UOp]


@dataclass(frozen=True)
class WindowProduct:
    """A sum over `own` of products of `window`, which depends on the loops of each of `pairs` by
    their sum and alone has the loops `taps`, and of an `other` side that alone has the loop
    `along`. `images`: a loop of the window, over images or channels, that is neither in a pair nor
    summed. `beside`: its turns are the rows of a tile, which all end at the same border. `shifts`:
    pairs of a position with a loop of both sides, which moves the window as a tap does, as the
    phases of a transposed convolution do."""

    own: tuple[UOp, ...]
    window: UOp
    other: UOp
    pairs: tuple[Pair, ...]
    taps: tuple[UOp, ...]
    along: UOp
    images: UOp | None = None
    beside: bool = False
    shifts: tuple[Pair, ...] = ()
    groups: tuple[UOp, ...] = ()

    @property
    def is_summed(self) -> bool:
        """Whether the sum runs over the window's positions, as in the gradient of a convolution's
        weights."""
        return self.pairs[0][0] not in names(self.taps)


def transpose_windows(draft: Draft) -> tuple[str, ...]:
    """Transposes the product of a window, or of many rows, if that saves work. Returns the stages
    that then hold a product."""
    one = _only_sum(draft)
    if one is None:
        return ()
    found = _transposed(draft, one)
    if found is not None:
        return (_transpose(draft, found),)
    layout = names(_turned(draft, one) or _matrices_apart(draft, one))
    return (draft.stage(one.node, layout, "out", "GLOBAL"),) if layout else ()


def _only_sum(draft: Draft) -> Sum | None:
    """The kernel's sum, if it has a single one, of products, and nothing is staged."""
    if len(draft.sums) != 1 or draft.stages or draft.lanes < 2:
        return None
    (node,), loops = draft.sums, draft.nest("store").loops
    own, sides = own_ranges(node), factors_of(node)
    if sides is None or not loops or not all(map(is_plain_loop, (*loops, *own))):
        return None
    return Sum(node, loops, own, sides)


def _transpose(draft: Draft, found: WindowProduct) -> str:
    """Transposes the product of a window. Returns the stage that then holds it."""
    along, (tasks, blocks, images) = name_of(found.along), _images(draft, found)
    taps = [n for n in names(found.taps) if n not in (*tasks, *blocks, *images)]
    inside = (*blocks, *images, *taps, along)
    is_along = found.along is draft.nest("store").loops[-1]
    _keep_window(draft, found, tasks, images)
    rest = [n for n in draft.innermost("store", inside) if n not in tasks]
    if not found.beside:
        taps, images = [*images, *taps], ()
    while len(taps) > 1 and not found.beside:
        inner, outer = taps.pop(), taps.pop()
        taps.append(draft.merge(outer, inner, "p"))
    parts = _parts(draft, found, draft.turns(rest))
    sums = draft.sums  # the inner one first
    layout = (*rest, *parts, *blocks, *images, *taps, along)
    name = draft.stage(sums[0], layout, "out", "LOCAL" if tasks else "GLOBAL")
    draft.planes |= {f"{name}.{n}" for n in draft.planes.intersection(rest)}
    if found.beside:
        order = (*blocks, *taps, *images, along)
        draft.innermost(name, [f"{name}.{n}" for n in order])
        draft.edges = frozenset(f"{name}.{n}" for n in (*blocks, *taps))
    last = (*taps, along) if is_along else (along, *taps)
    draft.do("order", "store", (*tasks, *rest, *blocks, *images, *last))
    return name


def _turned(draft: Draft, one: Sum) -> tuple[UOp, ...]:
    """The result's layout if many rows, which lie beside each other, by few columns have long sums:
    the weights' gradient of a layer. Its rows would all be packed, tile by tile."""
    if len(one.loops) != 2:
        return ()
    row, column = one.loops
    rows, columns = one.sides if row in one.sides[0].ranges else one.sides[::-1]
    reads = reads_of(rows.toposort())
    if row in columns.ranges or column in rows.ranges or not reads:
        return ()
    if any(step(n, row) != 1 or n.dtype is not one.node.dtype for n in reads):
        return ()
    few, many = size_of(column), max(2 * size_of(column), MANY_PANELS * PANEL * draft.lanes)
    is_worth = draft.lanes < few and size_of(row) >= many and turns(one.own) >= LONG_SUM * few
    return (column, row) if is_worth else ()


def _matrices_apart(draft: Draft, one: Sum) -> tuple[UOp, ...]:
    """The layout of each product on its own, if several matrices are stored element by element, the
    matrices innermost."""
    both = [r for r in one.loops if all(r in side.ranges for side in one.sides)]
    alone = [r for r in one.loops if r not in both]
    is_product = all(any(r in side.ranges for r in alone) for side in one.sides)
    if one.loops[-1] not in both or not is_product or turns(one.own) < LEAST_SUM:
        return ()
    return (*both, *alone) if size_of(alone[-1]) >= draft.lanes else ()


def _images(draft: Draft, found: WindowProduct) -> tuple[Names, Names, Names]:
    """Three groups of loops: those over blocks of images that are tasks, with those over groups of
    channels; those over other blocks; and those over the images of a block."""
    if found.images is None:
        return (), (), ()
    name, size, count = name_of(found.images), size_of(found.images), _block(draft, found)
    are_tasks = size >= TASKS_WITH_BLOCKS * count and _stays(draft, found, count)
    if count == size or not (found.beside or are_tasks):
        return (), (), (name,)
    inner = draft.split(name, count, name + "b")
    if not are_tasks:
        return (), (name,), (inner,)
    draft.blocked |= {name}
    return (name, *names(found.groups)), (), (inner,)


def _block(draft: Draft, found: WindowProduct) -> int:
    """The images of a block, a divisor of their number: as many as make a tile, or as fit in the
    cache."""
    assert found.images is not None
    size = size_of(found.images)
    most = MOST_ROWS if found.beside else size // TASKS_WITH_BLOCKS
    counts = (n for n in range(min(size, most), 0, -1) if size % n == 0)
    return next((n for n in counts if found.beside or _stays(draft, found, n)), size)


def _stays(draft: Draft, found: WindowProduct, count: int) -> bool:
    """Whether the cache can hold the other side, together with what is staged for `count`
    images."""
    assert found.images is not None
    columns = size_of(found.along)
    kept = _elements(found) + turns(found.taps) * columns
    half = draft.target.cache_l2 // 2 // draft.sums[0].dtype.itemsize
    block = kept // size_of(found.images) * count
    return turns(found.own) * columns <= half and (found.beside or block <= half)


def _transposed(draft: Draft, one: Sum) -> WindowProduct | None:
    """The transposed form of this sum that saves enough work; None if there is none."""
    loops, own = one.loops, one.own
    sides = one.sides if loops[-1] in one.sides[1].ranges else one.sides[::-1]
    for other, window in (sides, sides[::-1]):
        taps = tuple(r for r in loops if r in window.ranges and r not in other.ranges)
        along = [r for r in loops if r in other.ranges and r not in window.ranges]
        if not along or 2 * size_of(along[-1]) < draft.lanes:
            continue
        found = pairs_of(window, own, taps, 1) or pairs_of(window, taps, own, 0)
        if found:
            break
    else:
        return None
    if window.op is Ops.CAST:
        return None  # too narrow: it is packed in the order that a matrix unit expects
    pairs, moved, counters = zip(*found, strict=True)
    both = [r for r in loops if r in window.ranges and r in other.ranges]
    shifts = tuple(pair for pair, *_ in pairs_of(moved[-1], counters, both, 0) if pair[1] == 1)
    groups = tuple(r for r in both if all(name_of(r) != pair[2] for pair in shifts))
    plain = WindowProduct(own, window, other, pairs, taps, along[-1], shifts=shifts, groups=groups)
    images = [r for r in taps if not any(name_of(r) in pair for pair in pairs)]
    choices = [plain]
    if images and not plain.is_summed:
        plain = replace(plain, images=images[-1])
        choices = [plain, replace(plain, beside=True)]
    costs = [_cycles(draft, each) for each in choices]
    least = min(costs)
    is_less = least < WORTH * _as_it_is(draft, plain)
    return choices[costs.index(least)] if is_less else None


def _cycles(draft: Draft, product: WindowProduct) -> float:
    """The total cycles of the transposed product."""
    own = product.own
    runs_along = all(step(n, own[-1]) == 1 for n in reads_of(product.other.toposort()))
    across = SQUARES if runs_along and size_of(own[-1]) >= draft.lanes else ACROSS
    depth, rows, columns = turns(own), turns(product.taps), size_of(product.along)
    built, together, part = BUILT, rows, 1.0
    if product.beside:
        built, together = ACROSS, _block(draft, product)
        part = part_within(draft.kernel, own, frozenset(names(product.taps)))
    tile = half_tile(draft.target, together, columns, draft.lanes)
    tile = tile or register_tile(draft, together, columns, product.window.dtype.itemsize)
    width = tile.columns if product.beside else PANEL * draft.lanes
    line, cache = width * product.window.dtype.itemsize, draft.target.cache_l2
    if depth * line > LONG_PANEL * cache and rows * line > SUMS * cache:
        return inf  # neither a panel nor its sums would stay in the cache
    kept = _elements(product) * (built + READ_AGAIN * ceil(columns / (PANEL * draft.lanes)))
    tiles = part * rows // together * tile.cycles
    return depth * (tiles + across * columns) + PUT_BACK * rows * columns + kept


def _as_it_is(draft: Draft, product: WindowProduct) -> float:
    """The cycles of the product whose vectors lie along the window."""
    nest, depth, rows = draft.nest("store"), turns(product.own), turns(product.taps)
    if product.along is nest.loops[-1]:
        return _along_as_it_is(draft, product)
    row = [nest.loops[-1]]
    for inner, outer in pairwise(reversed(nest.loops)):
        as_one = all(linear(flat_offset(write), outer, inner) for write in nest.writes)
        if outer not in product.taps or not as_one:
            break
        row.append(outer)  # they will be one loop
    runs = [linear(flat_offset(product.window), o, i) for i, o in pairwise(row)]
    stays = all(runs) and not product.is_summed
    stays = stays and is_in_place(
        draft, nest, product.other, product.window, product.own, product.along, turns(row)
    )
    size, around = size_of(product.along), Surroundings(masked=stays)
    tile = register_tile(draft, size, turns(row), product.window.dtype.itemsize, around)
    tiles = rows // turns(row) * tile.cycles
    if product.is_summed:
        return depth * (tiles + ACROSS * rows)
    if stays:
        return depth * tiles
    run = turns(row[: 1 + (*runs, False).index(False)])  # without a break in memory
    apart = any(step(n, row[0]) != 1 for n in reads_of(product.window.toposort()))
    return depth * (tiles + rows * (PACKED * ceil(run / draft.lanes) / run + APART * apart))


def _along_as_it_is(draft: Draft, product: WindowProduct) -> float:
    """The cycles if vectors lie along the other side, which is packed again for each row of
    taps."""
    depth, rows, columns = turns(product.own), turns(product.taps), size_of(product.along)
    height, itemsize = size_of(product.taps[-1]), product.window.dtype.itemsize
    dense = all(step(n, product.along) == 1 for n in reads_of(product.other.toposort()))
    each = register_tile(draft, height, columns, itemsize).cycles
    each += 0 if dense else ACROSS * columns
    return depth * (rows // height * each + BUILT * rows)


def _elements(product: WindowProduct) -> int:
    """The number of elements of the window's side in a product, each counted once."""
    both = {name for position, _, tap, _ in product.pairs for name in (position, tap)}
    its = product.window.ranges & {*product.taps, *product.own}
    count = turns(r for r in its if name_of(r) not in both)
    loops = {name_of(r): size_of(r) for r in its}
    for position, each, tap, apart in product.pairs:
        count *= each * (loops[position] - 1) + abs(apart) * (loops[tap] - 1) + 1
    return count


def _keep_window(draft: Draft, found: WindowProduct, tasks: Names, images: Names) -> None:
    """Stages the window, with its rows adjacent. It is laid out like its source, unless squares can
    be transposed so that channels, which all taps sum over, become contiguous. A plain read without
    a gate stays where it is, unless `beside`."""
    (reduction,) = draft.sums
    sides = factors_of(reduction) or ()
    value = next(side for side in sides if name_of(found.along) not in names(side.ranges))
    if value.op is Ops.INDEX and gate_of(value) is None and not found.beside:
        return
    pairs = (*found.pairs, *found.shifts)
    positions, taps = ({pair[i] for pair in pairs} for i in (0, 2))
    channels = [n for n in names(own_ranges(reduction)) if n not in (*positions, *taps)]
    like = max(reads_of(value.toposort()), key=lambda n: turns(n.ranges))
    free = [r for r in value.ranges if name_of(r) not in (*taps, *tasks)]
    free.sort(key=lambda r: (-(step(like, r) or 0), name_of(r)))
    squares = min(size_of(free[-1]), draft.turns(channels)) >= draft.lanes
    inside = channels if squares and not found.is_summed else []
    if found.beside:
        inside = [*images, *channels] if squares else [*channels, *images]
    free.sort(key=lambda r: inside.index(name_of(r)) if name_of(r) in inside else -1)
    name = draft.numbered("w")
    draft.do("window", draft.path(value), names(free), pairs, name, "LOCAL" if tasks else "GLOBAL")
    if inside:
        stream(draft, draft.nest(name))
        return
    own = names(own_ranges(draft.stages[name]))
    draft.vectorise(own[-1], COPIES)
    if not tasks:
        draft.do("role", own[0], "PARALLEL")


def _parts(draft: Draft, found: WindowProduct, batch: int) -> tuple[str, ...]:
    """The outermost loop of the sum, if its turns should be summed separately: as tasks that share
    nothing, where there are few panels, and sums that are small compared to their operands."""
    (reduction,) = draft.sums
    first, *rest = own_ranges(reduction)
    name, inner, size = name_of(first), names(rest), size_of(first)
    wanted = ceil(TASKS_WITH_BLOCKS / (batch * ceil(size_of(found.along) / (PANEL * draft.lanes))))
    count = min(size, wanted)
    if not rest or count < 2 or count * turns(found.taps) >= turns((first, *rest)):
        return ()
    part = even_part(size, ceil(size / wanted))
    if part == size:
        return ()
    if size > wanted:
        inner.insert(0, draft.split(name, part, name + "p"))
    (reduction,) = draft.sums
    draft.do("regroup", draft.path(reduction), inner)
    return (name,)
