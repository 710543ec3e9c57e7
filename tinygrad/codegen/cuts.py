"""Where loops are cut. Some values are read in a part of a loop's turns only: the parts of a
concatenation, or of what is rolled or padded. If the loop is cut there, each part reads them
without a mask.

A mask costs a second load where one would do. It costs far more where it hides an address that is
no memory, because a processor then checks each lane. But each part is a copy of the code, and
compile time grows with the code. So a loop is not cut where masks hide no more than the edges of an
image and the code is long, or where sums are loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.loops.layout import flat_offset
from tinygrad.loops.roles import LANES, WRITTEN_OUT, own_ranges, role_of, size_of
from tinygrad.simplify.affine import add, affine, build
from tinygrad.simplify.masks import gate_of
from tinygrad.uop import Ops, UOp
from tinygrad.uop.bounds import Interval, bounds

_CARRIED = (Ops.STAGE, Ops.RUNNING)

PAGE = 4096
SHORT_TEXT = 64
"""Texts of at most so many instructions are worth copying for what an image's border masks. For a
max-pool's backward pass (141 instructions) three copies took 0.98 of its time."""
EDGE = 16
"""A mask that is off, or memory that isn't there, in fewer than one of so many turns is no more
than a border."""

Guard = UOp
"""An index expression; the guarded read happens where it is negative, or where it isn't."""


def guards_of(values: Iterable[UOp], is_stored: bool) -> list[Guard]:
    """The guards of all reads below values. None if there are stages in between, or lanes, which
    have masks anyway. Guards that cover no more than an image's border count only if the text is
    short; in a stage, which isn't stored, only guards of far reads count."""
    nodes = UOp.sink(*values).toposort()
    if any(n.op in _CARRIED or (n.op is Ops.RANGE and role_of(n) in LANES) for n in nodes):
        return []
    loops = [loop for n in nodes if n.op is Ops.REDUCE for loop in own_ranges(n)]
    summed = {loop for loop in loops if role_of(loop) == "LOOP"}
    is_short = _text(nodes) <= SHORT_TEXT
    found: dict[Guard, None] = {}
    for read in nodes:
        gate = gate_of(read) if read.op is Ops.INDEX else None
        tests = [] if gate is None else [n for n in gate.toposort() if n.op is Ops.CMPLT]
        for test in tests:
            if test.src[0].dtype is not dtypes.index:
                continue
            guard = add(test.src[0], test.src[1], -1)
            is_here = is_stored and summed.isdisjoint(test.ranges)
            if _reaches_far(read) or (is_here and (is_short or _hides_much(guard))):
                found[guard] = None
    return list(found)


def _hides_much(guard: Guard) -> bool:
    """Whether the guarded read is masked, in a copy of the text, in more turns than a border
    has."""
    terms, low = affine(guard)
    high = low
    for term, factor in terms.items():
        least, most = sorted((factor * term.vmin, factor * term.vmax))
        is_copied = term.op is Ops.RANGE and role_of(term) in WRITTEN_OUT
        low, high = low + (most if is_copied else least), high + most
    return bool(EDGE * (high + 1) > high - low)


def _reaches_far(read: UOp) -> bool:
    """Whether an address behind a mask is often on a page that isn't mapped."""
    memory, offset = read.src[0], flat_offset(read)
    reach = max(-offset.vmin, offset.vmax + 1 - memory.arg[1])
    is_often = reach * EDGE >= offset.vmax + 1 - offset.vmin
    return bool(is_often and reach * memory.dtype.itemsize > PAGE)


def _text(nodes: Iterable[UOp]) -> int:
    """A rough count of the instructions in a turn of all loops, without address computations."""
    return sum(
        prod(size_of(r) for r in node.ranges if role_of(r) in WRITTEN_OUT)
        for node in nodes
        if node.dtype is not dtypes.index
    )


def pieces(
    loop: UOp, turns: Interval, guards: Sequence[Guard], known: Mapping[UOp, Interval]
) -> list[Interval]:
    """Splits the turns of a loop into stretches. In each, each guard is certainly negative,
    certainly not, or undecided, for all values of the other counters within the intervals that are
    `known`."""
    low, high = turns
    places = {low, high + 1}
    for guard in guards:
        terms, constant = affine(guard)
        factor = terms.get(loop, 0)  # a RANGE may have this one in its limit, but is below its size
        if factor and not any(loop in t.ranges for t in terms if t.op is not Ops.RANGE):
            rest = build({t: k for t, k in terms.items() if t is not loop}, constant)
            first, second = _first_turns(factor, bounds(rest, known))
            few = second - first == 2  # so few undecided turns: an inner loop decides
            places.update((first, first + 1, second) if few else (first, second))
    inside = sorted(place for place in places if low <= place <= high + 1)
    return [(begin, end - 1) for begin, end in pairwise(inside)]


def _first_turns(factor: int, rest: Interval) -> tuple[int, int]:
    """The turn t from which factor * t + rest may change its sign, and the one from which it
    certainly has changed."""
    least, most = rest
    if factor > 0:
        return -(most // factor), -(least // factor)
    return least // -factor + 1, most // -factor + 1
