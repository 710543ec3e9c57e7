"""Windows of one channel: a depthwise convolution, or a pool whose windows overlap. Neither operand
of such a sum is shared by many results, but neighbouring results share what they read. So a block
of the image is kept in the nearest cache together with its border, where no read needs a mask.
Several rows of results stay in registers, so a vector that has been loaded serves all rows whose
windows cover it."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from tinygrad.base.helpers import round_up
from tinygrad.loops.cost import turns
from tinygrad.loops.layout import is_plain_loop, name_of, own_ranges, size_of
from tinygrad.loops.plan import Plan, names
from tinygrad.loops.products import factors_of
from tinygrad.loops.vectors.tasks import parallelise
from tinygrad.loops.windows import Pair, pairs_of
from tinygrad.uop.node import UOp

FEWEST_USES, OF_SHORT_ROWS = 6, 2
"""An element that fewer results need is read where it lies, unless a vector has room for two rows:
where several make one, each lane has a mask of its own."""

MOST_TAPS, MOST_COPIES = 32, 128
"""Taps down the image that are unrolled, and those for each row of results."""

MOST_FILLS = 16
"""Vectors of a row that are unrolled when it is filled, so that the border's lanes are known."""

EMPTY = 1.5
"""The most lanes of whole vectors, relative to those in use."""

LEAST_ROWS = 2
"""Whole rows of results become a tile if at least so many fit: they share their loads, and are
written in the order of memory."""


class Stencil(NamedTuple):
    """The operand of a sum that moves with the `row` and the `column` of its result, each by a
    tap."""

    window: UOp
    row: Pair
    column: Pair


def stencil(plan: Plan) -> bool:
    """Stages the window and tiles the nest, if the kernel is one of these."""
    found = _found(plan)
    lanes = _lanes(plan, found) if found else 0
    if not found or not lanes:
        return False
    block = _rows_of_a_block(plan, found)
    if not block:
        return False
    if block < size_of(plan.loops[found.row[0]]):
        plan.split(found.row[0], block, found.row[0] + "b")
        found = _found(plan)
        assert found, "blocks of an image are windows, too"
    (down, _, tap_down, _), (across, _, tap_across, _) = found.row, found.column
    rows, taps = size_of(plan.loops[down]), size_of(plan.loops[tap_down])
    sums = min(plan.target.registers // 2, MOST_COPIES // taps)
    columns = ceil(size_of(plan.loops[across]) / lanes)
    is_whole = columns <= sums // LEAST_ROWS
    height = ceil(rows / ceil(rows / (sums // (columns if is_whole else 1))))
    outer = [n for n in plan.names_in("store") if n not in (down, across)]
    name, window = plan.numbered("w"), plan.path(found.window)
    plan.do("window", window, (down, across), (found.row, found.column), name, "LOCAL")
    filled = f"{name}.{across}"
    role = "UNROLL" if size_of(plan.loops[filled]) <= MOST_FILLS * lanes else "LOOP"
    plan.split(filled, lanes, filled + "v", role, "VECTOR")
    plan.do("order", "reduce", (tap_across, tap_down))
    plan.do("role", tap_down, "UNROLL")
    copies = height * (columns if is_whole else 1)
    if taps * size_of(plan.loops[tap_across]) * copies <= MOST_COPIES:
        plan.do("role", tap_across, "UNROLL")
    row = plan.split(down, height, down + "u", "LOOP", "UNROLL")
    vector = plan.split(across, lanes, across + "v", "UNROLL" if is_whole else "LOOP", "VECTOR")
    tile = (row, across) if is_whole else (across, row)
    plan.do("order", "store", (*outer, down, *tile, vector))
    parallelise(plan, outer)
    return True


def _found(plan: Plan) -> Stencil | None:
    nest = plan.nest("store")
    if len(plan.kernel.src) > 1 or plan.stages or len(plan.sums) != 1 or len(nest.loops) < 2:
        return None
    (reduction,), (*_, down, across) = plan.sums, nest.loops
    own = own_ranges(reduction)
    if len(own) != 2 or not all(map(is_plain_loop, (*nest.loops, *own))):
        return None
    window, other = factors_of(reduction) or (reduction.src[0], None)
    if other is not None and across in other.ranges:
        window, other = other, window
    if other is not None and not other.ranges <= {*own, *window.ranges} - {down, across}:
        return None  # results that the window doesn't depend on, or a sum over pixels: a product
    pairs = [pair for pair, *_ in pairs_of(window, (down, across), own, 0)]
    positions = [pair[0] for pair in pairs]
    if sorted(positions) != sorted(names((down, across))):
        return None
    row, column = sorted(pairs, key=lambda pair: pair[0] == name_of(across))
    fewest = FEWEST_USES if 2 * size_of(across) > plan.lanes else OF_SHORT_ROWS
    is_used = turns(own) >= fewest * row[1] * column[1]
    is_text = size_of(plan.loops[row[2]]) <= MOST_TAPS
    return Stencil(window, row, column) if is_used and is_text else None


def _lanes(plan: Plan, found: Stencil) -> int:
    """The lanes of a vector along the row; 0 if too many would be empty."""
    lanes, size = plan.lanes, size_of(plan.loops[found.column[0]])
    while lanes // 2 >= size:
        lanes //= 2
    if lanes == plan.lanes and plan.target.fma_ports == 1:  # halves take half of the time
        lanes = min(lanes, lanes // 2, key=lambda n: round_up(size, n))
    return lanes if lanes > 1 and round_up(size, lanes) <= EMPTY * size else 0


def _rows_of_a_block(plan: Plan, found: Stencil) -> int:
    """The rows of results in a block, a divisor of their number, whose window with its border stays
    in the nearest cache; in the second one if most of a block would be border otherwise."""
    size = size_of(plan.loops[found.row[0]])
    line = _counted(plan, found.column, size_of(plan.loops[found.column[0]]))
    line *= found.window.dtype.itemsize
    border = _counted(plan, found.row, 1)
    for cache in (plan.target.cache_l1, plan.target.cache_l2 // 2):
        rows = (cache // line - border) // found.row[1] + 1
        block = max((n for n in range(1, min(rows, size) + 1) if size % n == 0), default=0)
        if block >= min(size, 2 * border):
            break
    return block


def _counted(plan: Plan, pair: Pair, positions: int) -> int:
    """The elements of the window for this many positions in a row."""
    _, each, tap, apart = pair
    return each * (positions - 1) + abs(apart) * (size_of(plan.loops[tap]) - 1) + 1
