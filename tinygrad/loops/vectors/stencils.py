"""Windows of one channel: a depthwise convolution, or a pool whose windows overlap. Neither operand
of such a sum is shared by many results, but neighbouring results share what they read. So a block
of the image is kept in the nearest cache together with its border, where no read needs a mask.
Several rows of results stay in registers, so a vector that has been loaded serves all rows whose
windows cover it.

Vectors lie along the row of pixels; or, if the results lie so, along channels, and then pixels of
a row share what is loaded. If an image doesn't lie as its results do, squares of it are turned
when a block of it is filled, for a line of channels together."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import NamedTuple

from tinygrad.base.helpers import round_up
from tinygrad.loops.cost import turns
from tinygrad.loops.draft import Draft, names
from tinygrad.loops.layout import LINE, stores_of
from tinygrad.loops.products import factors_of
from tinygrad.loops.reads import divisions, reads_of, steady, step
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, size_of
from tinygrad.loops.vectors.streams import stream
from tinygrad.loops.vectors.tasks import parallelise
from tinygrad.loops.windows import Pair, pairs_of
from tinygrad.simplify.affine import affine
from tinygrad.uop import Ops, UOp

FEWEST_USES, OF_CHANNELS, OF_PHASES, OF_SHORT_ROWS = 6, 4, 4, 2
"""An element that fewer results need is read where it lies: in vectors along a row, or along
channels; in every second lane, which are picked once where it is kept; or if a vector has room for
two rows, as each lane has a mask of its own where several make one. What doesn't lie along the
vectors is kept if it is used again at all."""

MOST_TAPS, MOST_COPIES = 32, 128
"""Taps down the image that are unrolled, and those for each row of results."""

MOST_FILLS = 16
"""Vectors of a row that are unrolled when it is filled, so that the border's lanes are known."""

EMPTY, MANY_TAPS = 1.5, 16
"""The most lanes of whole vectors, relative to those in use, unless a pixel has so many taps."""

MOST_PHASES = 4
"""Results of an element and its taps; more are a product."""

SPARE = 4
"""Registers that hold no sums of taps: pixels, and what is loaded ahead."""

LEAST_ROWS = 2
"""Whole rows of results become a tile if at least so many fit: they share their loads, and are
written in the order of memory."""


class Stencil(NamedTuple):
    """The operand of a sum that moves with each position by a tap: `pairs` of the slowest axis
    first, rows and columns last. `is_summed`: the sum runs over the positions, and has a result for
    each tap, as the gradient of a depthwise convolution's weights does. `phases`: short loops of
    the other operand alone, such as pixels between those of an image, or a few channels.
    `channels`: the loop along which the results lie, if they don't along the row."""

    window: UOp
    pairs: tuple[Pair, ...]
    is_summed: bool
    phases: tuple[str, ...]
    channels: str = ""

    @property
    def positions(self) -> tuple[str, ...]:
        return tuple(pair[0] for pair in self.pairs)

    @property
    def taps(self) -> tuple[str, ...]:
        return tuple(pair[2] for pair in self.pairs)


def stencil(draft: Draft) -> bool:
    """Stages the window and tiles the nest, if the kernel is one of these."""
    mark = draft.mark()
    _split_phases(draft)
    found = _found(draft)
    lanes = _lanes(draft, found) if found else 0
    tile = _sum_pixels if found and found.is_summed else _sum_taps
    is_tiled = found is not None and lanes > 0 and tile(draft, found, lanes)
    if not is_tiled:
        draft.back_to(mark)
    return is_tiled


def _split_phases(draft: Draft) -> None:
    """Splits loops over pixels of which the sum uses quotients and remainders, where the last phase
    lacks a pixel. (Others were split before.)"""
    loops = draft.nest("store").loops
    for index, divisor in divisions(draft.nodes):
        for loop in loops:
            is_long = is_plain_loop(loop) and size_of(loop) > divisor <= MOST_PHASES
            if is_long and affine(index)[0].get(loop):
                draft.split(name_of(loop), divisor, name_of(loop) + "g")
                _split_phases(draft)
                return


def _sum_taps(draft: Draft, stencil: Stencil, lanes: int) -> bool:
    """Results are pixels: a tile is vectors of several rows, or of whole rows; or, along channels,
    of pixels of one row."""
    found, channels = _in_blocks(draft, stencil)
    if found is None:
        return False
    (*_, down, across), (*deep, tap_down, tap_across) = found.positions, found.taps
    kept = (*channels, *found.positions)
    if found.channels:
        kept = (*found.positions, *channels)
        down, across, tap_down, tap_across = across, down, tap_across, tap_down
        _lay_along(draft, found, found.channels, (*found.taps, *draft.names_in("store")))
    rows, phases = draft.size(down), draft.turns(found.phases)
    # which taps a phase has is known of copies
    taps = draft.turns(found.taps) if phases > 1 else draft.size(tap_down)
    sums = max(1, min(draft.target.registers // 2, MOST_COPIES // taps) // phases)
    columns = 1 if found.channels else ceil(draft.size(across) / lanes)
    is_whole = not found.channels and columns <= sums // LEAST_ROWS
    height = ceil(rows / ceil(rows / (sums // (columns if is_whole else 1))))
    inside = (down, across, *channels, *found.phases)
    outer = [n for n in draft.names_in("store") if n not in inside]
    _keep(draft, found, kept, lanes)
    draft.do("order", "reduce", (*deep, tap_across, tap_down))
    draft.give("UNROLL", found.phases)
    copies = phases * height * (columns if is_whole else 1)
    for tap in (tap_down, tap_across, *reversed(deep)):
        copies *= draft.size(tap)
        if tap == tap_down or copies <= MOST_COPIES:
            draft.do("role", tap, "UNROLL")
    row = draft.split(down, height, down + "u", "LOOP", "UNROLL")
    along = found.channels or across
    vector = draft.split(along, lanes, along + "v", "UNROLL" if is_whole else "LOOP", "VECTOR")
    tile = (down, row, across) if is_whole else (down, across, row)
    tile = (across, down, row) if found.channels else tile
    draft.do("order", "store", (*outer, *channels, *tile, vector, *found.phases))
    parallelise(draft, [n for n in outer if n not in found.positions])
    return True


def _in_blocks(draft: Draft, found: Stencil) -> tuple[Stencil | None, list[str]]:
    """Splits channels and rows into blocks that are kept together. Returns the window of a block,
    None if most of a block would be border; and the loop over its channels, if it has several."""
    channels, count, first = list[str](), 1, found.positions[0]
    loop = draft.loops[found.channels] if found.channels else _lying(draft, found)
    if loop is not None:
        size, line = size_of(loop), LINE // found.window.dtype.itemsize
        count = next(n for n in range(min(size, line), size + 1) if size % n == 0)
        channels = [draft.split(name_of(loop), count, name_of(loop) + "b")]
        last = channels if found.channels else []
        draft.innermost("store", (*found.positions, *last, *found.phases))
    block = _rows_of_a_block(draft, found, count)
    if block < min(2, draft.size(first)):
        return None, channels
    if block < draft.size(first):
        draft.split(first, block, first + "b")
    return _found(draft), channels


def _lying(draft: Draft, found: Stencil) -> UOp | None:
    """The loop along which the image lies, if vectors don't."""
    along = draft.loops[found.channels or found.positions[-1]]
    reads = reads_of(found.window.toposort())
    apart = [n for n in reads if along in n.ranges and not steady(n, along)]
    for loop in filter(draft.fills_vectors, draft.nest("store").loops):
        is_row = name_of(loop) in found.positions and not found.channels
        if not is_row and any(loop in n.ranges and steady(n, loop) for n in apart):
            return loop
    return None


def _sum_pixels(draft: Draft, found: Stencil, lanes: int) -> bool:
    """Results are taps: each of a tile of them has a vector of sums, of the same pixels; for each
    of a few channels of the other operand, as the panels of a product would be packed for these
    alone."""
    sums = (draft.target.registers - SPARE) // draft.turns(found.phases)
    (*_, across), (*_, tap_down, tap_across) = found.positions, found.taps
    columns = draft.size(tap_across)
    if columns > sums:
        return False
    images = [n for n in names(own_ranges(draft.sums[0])) if n not in found.positions]
    is_whole = draft.turns(found.taps) <= sums
    kept = found.positions if is_whole else (*images, *found.positions)
    outer = [n for n in draft.names_in("store") if n not in (*found.taps, *found.phases)]
    _lay_along(draft, found, across, (*outer, *found.phases, *images, *found.positions))
    is_turned = _lying(draft, found) is not None
    if is_turned:  # all of it: squares are of several channels
        loops = names(found.window.ranges)
        kept = tuple(n for n in (*outer, *images, *found.positions) if n in loops)
    _keep(draft, found, kept, lanes, "GLOBAL" if is_turned else "LOCAL")
    draft.do("order", "reduce", (*images, *found.positions))
    draft.do("order", "store", (*outer, *found.phases, *found.taps))
    draft.give("UNROLL", found.phases)
    if is_whole:
        draft.give("UNROLL", found.taps)
    else:
        rows = draft.size(tap_down)
        height = ceil(rows / ceil(rows / (sums // columns)))
        draft.split(tap_down, height, tap_down + "u", "LOOP", "UNROLL")
        draft.do("role", tap_across, "UNROLL")
    few = draft.size(across) <= MOST_FILLS // 4 * lanes
    draft.split(across, lanes, across + "v", "UNROLL" if few else "LOOP", "VECTOR")
    parallelise(draft, outer)
    return True


def _lay_along(draft: Draft, found: Stencil, along: str, order: Sequence[str]) -> None:
    """Lays along the vectors what the other operand reads across them, such as a gradient channels
    last, or weights: lanes would read each element from another line of memory."""
    loop = draft.loops[along]
    for read in reads_of(draft.sums[0].toposort(stop=[found.window])):
        over = [n for n in order if draft.loops[n] in read.ranges]
        is_plain = read.src[0].op is Ops.PARAM and len(over) == len(read.ranges)
        if read is not found.window and is_plain and loop in read.ranges and step(read, loop) != 1:
            stream(draft, draft.nest(draft.stage(read, over, "turned", "GLOBAL")))


def _keep(
    draft: Draft, found: Stencil, over: tuple[str, ...], lanes: int, memory: str = "LOCAL"
) -> None:
    """Stages the window over these loops, and fills it by vectors."""
    name, (across, step, *_) = draft.numbered("w"), found.pairs[-1]
    of_channels = not found.is_summed and len(over) > len(found.positions)
    is_stream = memory == "GLOBAL" or of_channels
    by_phase = not is_stream and _are_phases_kept(draft, found)
    phases = (((across, step),),) if by_phase else ()
    draft.do("window", draft.path(found.window), over, found.pairs, name, memory, *phases)
    if is_stream:
        stream(draft, draft.nest(name))
        return
    filled = f"{name}.{across}"
    if by_phase:
        draft.do("role", filled + "p", "UNROLL")
    role = "UNROLL" if draft.size(filled) <= MOST_FILLS * lanes else "LOOP"
    draft.split(filled, lanes, filled + "v", role, "VECTOR")


def _found(draft: Draft) -> Stencil | None:
    nest = draft.nest("store")
    has_one = len(stores_of(draft.kernel)) == len(draft.sums) == 1
    if draft.stages or not has_one or len(nest.loops) < 2:
        return None
    (reduction,) = draft.sums
    own = own_ranges(reduction)
    pair = factors_of(reduction)
    if pair is None:
        return _moving(draft, reduction.src[0], None, own, False)
    for window, other in (pair, pair[::-1]):
        for is_summed in (False, True):
            found = _moving(draft, window, other, own, is_summed)
            if found is not None:
                return found
    return None


def _moving(
    draft: Draft, window: UOp, other: UOp | None, own: tuple[UOp, ...], is_summed: bool
) -> Stencil | None:
    """This operand as a window; None if the sum is a product, which the other operand shares with
    results that the window doesn't depend on."""
    loops, phases, its = draft.nest("store").loops, list[UOp](), frozenset[UOp]()
    cut = dict[UOp, UOp]()
    if other is not None:
        cut = {r: UOp.range(size_of(r), name_of(r)) for r in loops if not is_plain_loop(r)}
        its = frozenset(other.substitute(cut).ranges)
        phases = [r for r in loops if r not in window.ranges and cut.get(r, r) in its]
        loops = tuple(r for r in loops if r not in phases)
    if not all(map(is_plain_loop, (*loops, *own))):
        return None
    if is_summed:
        taps, positions = [r for r in loops if r not in its], own
        moved = {n for pair, *_ in pairs_of(window, own, taps, -_longest(taps)) for n in pair}
        # others are channels, with sums of their own
        taps = [r for r in taps if name_of(r) in moved]
        positions = tuple(r for r in own if name_of(r) in moved)
        along: tuple[UOp, ...] = ()
    else:
        taps, along = list(own), () if cut else _lies_along(draft, window, loops, own)
        positions = loops[: len(loops) - len(along)][-len(own) :]
    if not 2 <= len(taps) == len(positions) or {*taps, *positions} - window.ranges:
        return None
    if its.intersection(taps if is_summed else positions) or turns(phases) > MOST_PHASES:
        return None
    pairs = [found for found, *_ in pairs_of(window, positions, taps, -_longest(taps))]
    pairs.sort(key=lambda pair: names(positions).index(pair[0]))
    if [pair[0] for pair in pairs] != names(positions):
        return None
    channels = "".join(names(along))
    found = Stencil(window, tuple(pairs), is_summed, tuple(names(phases)), channels)
    return found if _pays(draft, found) else None


def _lies_along(
    draft: Draft, window: UOp, loops: tuple[UOp, ...], taps: tuple[UOp, ...]
) -> tuple[UOp, ...]:
    """The loop over channels, if the results lie along it; none if they lie along a row."""
    writes, reads = draft.nest("store").writes, reads_of(window.toposort())
    return tuple(
        loop
        for loop in filter(draft.fills_vectors, loops[-1:])
        if all(step(w, loop) == 1 for w in writes)
        and all(step(n, loop) is not None for n in reads)
        and not pairs_of(window, [loop], taps, -_longest(taps))
    )


def _pays(draft: Draft, found: Stencil) -> bool:
    """Whether what are called taps are not the pixels, and results share enough of them; so few
    down the image that they can be unrolled."""
    least = 2 if found.is_summed else 1
    pairs = zip(found.positions, found.taps, strict=True)
    if any(2 * draft.size(pixels) < least * draft.size(tap) for pixels, tap in pairs):
        return False
    if found.is_summed:
        return True
    row = draft.size(found.channels or found.positions[-1])
    is_long = 2 * row > draft.lanes or len(found.phases) > 0
    fewest = OF_PHASES if _are_phases_kept(draft, found) else FEWEST_USES
    fewest = (OF_CHANNELS if found.channels else fewest) if is_long else OF_SHORT_ROWS
    fewest = 1 if _lying(draft, found) is not None else fewest
    uses = _uses(draft, found)
    return uses > 1 and uses >= fewest and draft.size(found.taps[-2]) <= MOST_TAPS


def _are_phases_kept(draft: Draft, found: Stencil) -> bool:
    """Whether lanes are picked when a row is filled, and so once: if its elements are used often
    enough, and come from a cache. Of memory, a fill that reads each line again sees less ahead."""
    reads = [n for n in reads_of(found.window.toposort()) if n.src[0].op is Ops.PARAM]
    nbytes = max((n.src[0].arg[1] * n.dtype.itemsize for n in reads), default=0)
    is_near = nbytes <= draft.target.cache_l3 // 4
    return is_near and 1 < found.pairs[-1][1] <= MOST_PHASES and _uses(draft, found) >= OF_PHASES


def _uses(draft: Draft, found: Stencil) -> float:
    """How many taps read an element of the window."""
    return draft.turns(found.taps) / prod(pair[1] for pair in found.pairs)


def _longest(taps: Sequence[UOp]) -> int:
    return max(map(size_of, taps), default=0)


def _lanes(draft: Draft, found: Stencil) -> int:
    """The lanes of a vector along the row; 0 if too many would be empty."""
    lanes, size = draft.lanes, draft.size(found.channels or found.positions[-1])
    while lanes // 2 >= size:
        lanes //= 2
    if lanes == draft.lanes and draft.target.fma_ports == 1:  # halves take half of the time
        lanes = min(lanes, lanes // 2, key=lambda n: round_up(size, n))
    is_full = round_up(size, lanes) <= EMPTY * size
    if found.is_summed:  # beside phases it could be a product, whose vectors are full
        is_full = not found.phases or (is_full and 2 * size >= draft.lanes)
    has_many = not found.is_summed and draft.turns(found.taps) >= MANY_TAPS
    return lanes if lanes > 1 and (is_full or has_many) else 0


def _rows_of_a_block(draft: Draft, found: Stencil, channels: int) -> int:
    """The rows (or planes) of results in a block, a divisor of their number, whose window with its
    border stays in the nearest cache; in the second one if most of a block would be border
    otherwise."""
    first, *inner = found.pairs
    size = draft.size(first[0])
    line = prod(_counted(draft, pair, draft.size(pair[0])) for pair in inner)
    line *= channels * found.window.dtype.itemsize
    border = _counted(draft, first, 1)
    for cache in (draft.target.cache_l1, draft.target.cache_l2 // 2):
        rows = (cache // line - border) // first[1] + 1
        block = max((n for n in range(1, min(rows, size) + 1) if size % n == 0), default=0)
        if block >= min(size, 2 * border):
            break
    return block


def _counted(draft: Draft, pair: Pair, positions: int) -> int:
    """The elements of the window for this many positions in a row."""
    _, each, tap, apart = pair
    return each * (positions - 1) + abs(apart) * (draft.size(tap) - 1) + 1
