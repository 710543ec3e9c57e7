"""Where the lanes of a read lie relative to each other, if that is known: a few elements apart
(forward or back), in pairs that read the same element, or as rows of a window one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.codegen.index import Copies, Integers
from tinygrad.loops.roles import size_of
from tinygrad.simplify.forms import Terms
from tinygrad.uop import UOp


def spots_of(integers: Integers, terms: Terms, loop: UOp, copies: Copies) -> list[int]:
    """The offset in elements of each lane of `loop` from the lowest lane. None if that is not
    known, or if all are the same."""
    lanes = [0] * size_of(loop)
    for term, factor in terms.items():
        if loop not in term.ranges:
            continue  # all lanes share it
        for lane in range(len(lanes)):
            low, high = integers.interval(term, {**copies, loop: lane})
            if low != high:
                return []
            lanes[lane] += factor * low
    lowest = min(lanes)
    return [spot - lowest for spot in lanes] if lowest < max(lanes) else []


def width_of(spots: Sequence[int]) -> int:
    """The width of the vectors that cover these spots: as many elements as there are lanes, or
    fewer if all spots are closer together."""
    return min(len(spots), 1 << (max(spots) + 1).bit_length() - 1)


def pieces(spots: Sequence[int]) -> list[int]:
    """The starts of vectors that cover these spots.

    >>> pieces([0, 2, 4, 6]), pieces([0, 0, 1, 1]), pieces([0, 1, 20, 21])
    ([0, 3], [0], [0, 18])
    """
    found: list[int] = []
    for spot in sorted(spots):
        if not found or spot >= found[-1] + width_of(spots):
            found.append(min(spot, max(spots) + 1 - width_of(spots)))
    return found
