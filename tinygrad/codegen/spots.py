"""Where the lanes of a read lie relative to each other, if that is known: a few elements apart
(forward or back), in pairs that read the same element, or as rows of a window one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tinygrad.codegen.index import Copies, Integers
from tinygrad.loops.roles import size_of
from tinygrad.simplify.forms import Terms
from tinygrad.uop import Ops, UOp

Parts = tuple[int, list[int]]
"""An index as a sum: a part that all lanes share, which is a multiple of the first number (0: there
is none), and a number for each lane."""


def spots_of(integers: Integers, terms: Terms, loop: UOp, copies: Copies) -> list[int]:
    """The offset in elements of each lane of `loop` from the lowest lane. None if that is not
    known, or if all are the same."""
    found = _sum(integers, terms, 0, loop, copies)
    if found is None or min(found[1]) == max(found[1]):
        return []
    return [part - min(found[1]) for part in found[1]]


def _sum(
    integers: Integers, terms: Terms, constant: int, loop: UOp, copies: Copies
) -> Parts | None:
    common, lanes = 0, [constant] * size_of(loop)
    for term, factor in terms.items():
        found = _term(integers, term, loop, copies)
        if found is None:
            return None
        common = gcd(common, factor * found[0])
        lanes = [lane + factor * part for lane, part in zip(lanes, found[1], strict=True)]
    return common, lanes


def _term(integers: Integers, term: UOp, loop: UOp, copies: Copies) -> Parts | None:
    count = size_of(loop)
    if term is loop:
        return 0, [*range(count)]
    if loop not in term.ranges:
        low, high = integers.interval(term, copies)
        return (0, [low] * count) if low == high else (1, [0] * count)
    if term.op not in (Ops.IDIV, Ops.MOD) or term.src[1].op is not Ops.CONST:
        each = [integers.interval(term, {**copies, loop: lane}) for lane in range(count)]
        return (0, [low for low, _ in each]) if all(low == high for low, high in each) else None
    divisor = int(term.src[1].arg)
    found = _sum(integers, *integers.form(term.src[0]), loop, copies)
    if found is None or found[0] % divisor:
        return None
    common, parts = found
    if term.op is Ops.IDIV:
        return common // divisor, [part // divisor for part in parts]
    return 0, [part % divisor for part in parts]


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
