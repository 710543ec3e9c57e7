"""The register tile of a product: how many rows by how many vectors of its result are summed at a
time. The choice is arithmetic on the machine's description: each tile that fits in the registers is
given its cycles, remainders at the edges included, and the fastest is taken."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import ceil
from typing import NamedTuple

from tinygrad.base.target import Target
from tinygrad.loops.draft import Draft

MOST_VECTORS, MOST_ROWS = 6, 16
"""The largest tiles that are compared: vectors side by side, and rows."""

FEW_REGISTERS, MASK, SPILT_MASK = 16, 0.75, 5
"""With so few registers masks share them with the tile; processors with more have separate mask
registers. Cycles that a vector read under a mask takes longer, and the number of loads that it
counts as if no register is left for the mask."""

ACROSS = 0.85
"""Cycles that a vector as long as a cache line takes longer where it lies across two, as those read
under masks do, on a processor that multiplies two such vectors at a time (Sapphire Rapids: 3x3
convolutions take 1.1 to 1.45 times as long without it). With one at a time it is hidden."""

WAYS, SETS = 8, 2048
"""Rows `SETS` bytes apart fall on two sets of the first cache, each of which holds `WAYS` lines."""

ADDRESSES, ADDRESS = 4, 1.0
"""The number of row addresses that stay in registers; cycles for each further one."""

FRONT_END = 0.15  # cycles that the processor takes to issue one operand

PART_OF_A_LINE = 1.0
"""Cycles for each vector that is read where it lies and shares its line with the next tile's, since
the line may have to be loaded again."""

POWER_OF_TWO_PANELS = 0.02  # panels of 2^n lines fall on fewer sets, but start on whole pages

HALVES = 0.85
"""Half vectors are worth it if they take at most this fraction of the time, since they need twice
as many instructions."""

TEMPORARIES = 2
"""Registers for values between the operands and the results, unless one instruction multiplies and
adds."""


class Tile(NamedTuple):
    """The rows and columns of a tile whose sums stay in registers, and the cycles that one step
    along k takes for all tiles together."""

    cycles: float
    rows: int
    columns: int


class Surroundings(NamedTuple):
    """What costs a tile time besides its size: how a product reads its operands and leaves its
    results.

    `run`: this many rows are evenly spaced; 0: all. `apart`: bytes from row to row, if rows are
    read where they lie. `masked`: vectors are read under masks. `beside`: tiles lie beside each
    other in one panel, so one that is no whole number of cache lines shares a line with the next.
    `depth`: terms of a sum that is stored at once, where the same holds of the results, if their
    rows are whole lines; 0: it is not. `temporaries`: registers that the sums can't have."""

    run: int = 0
    apart: int = 0
    masked: bool = False
    beside: bool = False
    depth: int = 0
    temporaries: int = 0


PLAIN = Surroundings()
"""All rows are evenly spaced, and a packed panel is read without masks."""


def register_tile(
    draft: Draft, rows: int, columns: int, itemsize: int, around: Surroundings = PLAIN
) -> Tile:
    """The best register tile for elements of this size."""
    lanes = max(1, min(draft.lanes, draft.target.vector // itemsize))
    return best_tile(draft.target, rows, columns, lanes, around)


@lru_cache(maxsize=1024)
def best_tile(
    target: Target, rows: int, columns: int, lanes: int, around: Surroundings = PLAIN
) -> Tile:
    """The tile with the fewest cycles. m*v accumulators, v vectors and one broadcast must fit in
    the registers."""
    registers = target.registers - around.temporaries
    most = WAYS if around.apart and around.apart % SETS == 0 else MOST_ROWS
    vectors = ceil(columns / lanes)
    whole_rows = around.depth and columns * target.vector // lanes % target.cache_line == 0
    in_lanes = around.masked and registers <= FEW_REGISTERS
    is_wide = target.vector >= target.cache_line and target.fma_ports > 1
    masked = MASK * in_lanes + ACROSS * (around.masked and is_wide)  # for each vector

    def cycles(m: int, v: int) -> float:
        spilt = in_lanes and m * v + 2 * v + 1 > registers
        loads, cost = SPILT_MASK if spilt else 1, masked * vectors * ceil(rows / m)
        for count, width in ((vectors // v, v), (1, vectors % v)):
            for times, height in ((rows // m, m), (1, rows % m)):
                if width and height:
                    cost += count * times * _cycles(target, height, width, loads)
        cost += ADDRESS * _addresses(m, around.run) * (rows / m) * (vectors / v)
        if rows > m:
            cost += vectors  # packing: one more store for each vector and turn
        elif lanes > 1 and v * target.vector < target.cache_line:
            cost += vectors * PART_OF_A_LINE
        if v * target.vector % target.cache_line:
            tiles = ceil(vectors / v) * PART_OF_A_LINE
            cost += tiles * ceil(rows / m) if around.beside else 0
            cost += tiles * rows / around.depth if whole_rows else 0
        return cost * (1 + POWER_OF_TWO_PANELS) if v & (v - 1) else cost

    sizes = product(range(1, MOST_VECTORS + 1), range(1, most + 1))
    fitting = [(v, m) for v, m in sizes if m * v + v + 1 <= registers]
    tiles = [Tile(cycles(m, v), m, v * lanes) for v, m in fitting]
    return min(tiles, key=lambda tile: round(tile.cycles, 9))


def half_tile(target: Target, rows: int, columns: int, lanes: int) -> Tile | None:
    """The best tile of vectors of half the size, where a processor that computes one of its widest
    vectors at a time, or two of these, is faster with them, because much of the last wide vector
    would be empty."""
    if target.fma_ports > 1 or lanes < 2:
        return None
    half = best_tile(target.halved(), rows, columns, lanes // 2)
    return half if half.cycles < HALVES * best_tile(target, rows, columns, lanes).cycles else None


def _addresses(height: int, run: int) -> int:
    """How many separate addresses the rows of a tile need, since they have no fixed distance from
    another row, beyond those that there are registers for."""
    if not run or run % height == 0:
        return 0
    count = height // run if height % run == 0 else height
    return max(0, count - ADDRESSES)


def _cycles(target: Target, height: int, width: int, loads: int) -> float:
    """Cycles of one step of a tile: the slowest of multiply-add ports, load ports and latency, plus
    the front end."""
    issue = max(
        height * width / target.fma_ports,
        (height + width * loads) / target.load_ports,
        target.fma_latency,
    )
    return issue + FRONT_END * (height + width)
