"""Two kernels that use the same matrix of values, one row by row and the other column by column.
The backward pass of attention is such a pair: the gradient of the queries sums over keys, the
gradients of keys and values sum over queries, both of the same scores. Joined in one kernel they
compute the scores once.

In a joined kernel each STORE has its own loops: the first STOREs have one value for each key, and
the last one sums over the keys. A recipe that cuts the matrix into blocks (`loops/sharing`) adds up
that last sum block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import NamedTuple

from tinygrad.schedule.bases import overwrites, reached
from tinygrad.schedule.demand import Demand, Demanded, Kernel, Link
from tinygrad.schedule.movement import loops_of, turns_of
from tinygrad.schedule.rows import Reader, readers_of, row_parts
from tinygrad.simplify.affine import affine
from tinygrad.uop import Ops, UOp

Loops = Mapping[UOp, UOp]

FEWEST_TASKS = 8
"""The least number of turns of the loops around both. With fewer, blocks of rows should be tasks
(`loops/vectors/tasks`), which they can't be if another STORE sums over them."""


class Crossing(NamedTuple):
    """A pair of kernels: `kernel`, which needs `value` row by row, can also store what `other`
    stores. `loops` maps the loops of `other` to those of `kernel`; `summed` is a reduction's loop
    in `other` whose counterpart is one of the kernel's own."""

    value: UOp
    kernel: Kernel
    other: Kernel
    loops: Loops
    summed: UOp


def crossings(value: UOp, demands: Demanded) -> Iterator[Crossing]:
    """The pairs of kernels of which one needs the rows of a value and the other reduces across
    them."""
    for (one, first), (other, second) in permutations(readers_of(demands).items(), 2):
        if len({*second.indices}) > 1:
            continue
        loops = _counterparts(first, second, other)
        if loops is None:
            continue
        summed = [loop for loop in loops if loop not in other.ranges]
        tasks = turns_of(new for old, new in loops.items() if old not in summed)
        if len(summed) == 1 and tasks >= FEWEST_TASKS:
            yield Crossing(value, one, other, loops, summed[0])


def _counterparts(first: Reader, second: Reader, other: Kernel) -> Loops | None:
    """For each loop with which the second reader counts the first one's rows, the loop of the first
    one. None if they count differently, or if no loop of the kernel `other`, which is the second
    one's, goes along these rows."""
    loops: dict[UOp, UOp] = {}
    crosses = False
    for here, part, there in zip(
        first.indices[0], row_parts(first), second.indices[0], strict=True
    ):
        if here is not part:  # along the first one's rows
            crosses = crosses or loops_of((there,)) <= {*other.ranges}
            continue
        counters = _counters(there)
        if not _count_alike(there, here) or not loops.keys().isdisjoint(counters):
            return None
        loops.update(zip(counters, _counters(here), strict=True))
    return loops if crosses else None


def _counters(at: UOp) -> list[UOp]:
    """The loops of an index, those with the largest steps first."""
    terms, _ = affine(at)
    return sorted(terms, key=lambda loop: -terms[loop])


def _count_alike(one: UOp, other: UOp) -> bool:
    """Whether both indices are composed in the same way of loops of the same sizes."""
    (terms, constant), (other_terms, other_constant) = affine(one), affine(other)
    steps = [(terms[loop], loop.src) for loop in _counters(one)]
    other_steps = [(other_terms[loop], loop.src) for loop in _counters(other)]
    if (steps, constant) != (other_steps, other_constant):
        return False
    return all(r.op is Ops.RANGE and len(r.src) == 1 for r in (*terms, *other_terms))


def joinable(found: Iterable[Crossing], links: Mapping[tuple[UOp, Demand], Link]) -> list[Crossing]:
    """The pairs that can become one kernel; each kernel is in one pair at most. The other kernel's
    values must be sums over the shared loop, and nothing else in it may run over that loop."""
    taken = set[Kernel]()
    kept = []
    for each in found:
        pair = {each.kernel, each.other}
        may_join = taken.isdisjoint(pair) and all(map(_stores_anew, pair))
        if may_join and _adds_up(each, links) and not _makes_rows(each):
            taken |= pair
            kept.append(each)
    return kept


def between(found: Iterable[Crossing]) -> set[UOp]:
    """What one of the two kernels stores and the other one reads, such as sums that depend on a
    row. If it has a kernel of its own, the two don't depend on each other."""
    return {node for each in found for node in _read_between(each)}


def _read_between(crossing: Crossing) -> set[UOp]:
    pair = crossing.kernel, crossing.other
    return {node for one, other in permutations(pair) for node in one.stores if node in other.reads}


def _makes_rows(crossing: Crossing) -> bool:
    """Whether what one kernel reads of the other depends on the value itself, which would have to
    be computed twice to store it before both."""
    read = crossing.kernel.reads.keys() | crossing.other.reads.keys()
    between = _read_between(crossing)
    return crossing.value in reached(*between, through=lambda n: n in between or n not in read)


def _stores_anew(kernel: Kernel) -> bool:
    """Whether a kernel stores something, and only to fresh storage."""
    return 0 not in kernel.shape and not any(map(overwrites, kernel.stores))


def _adds_up(crossing: Crossing, links: Mapping[tuple[UOp, Demand], Link]) -> bool:
    """Whether exactly one sum of the other kernel runs over the loop, with one element for each
    turn of the kernel's own loops."""
    own = {*crossing.other.ranges}
    sums = [
        loops_of(demand.where) <= own and node.op is Ops.REDUCE_AXIS and node.arg[0] == "add"
        for node, demand in crossing.other.inlined
        if (link := links.get((node, demand))) and crossing.summed in link.loops
    ]
    return sums == [True]
