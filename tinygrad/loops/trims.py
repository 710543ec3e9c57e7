"""Where a loop may stop early or start late. If a value is the identity of its reduction outside a
guard, the guard bounds the reduction's loop. This shortens causal attention and its gradients,
one-hot sums, and padding.

There is one liberty. A product counts as 0 where a guard makes one factor exactly 0, and a sum as
minus infinity where a guard makes one term minus infinity. So an infinity or NaN in the other
operand is not seen there. A mask with any other number is not a guard, however low the number: in a
row that is masked throughout, the maximum is that number, and all weights of a softmax are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.loops.layout import accumulates, fact, fills_itself, indices, nodes_of
from tinygrad.loops.reads import reads_of, sums_of
from tinygrad.loops.rebuild import value_at
from tinygrad.loops.roles import SEQUENTIAL, name_of, own_ranges, role_of, size_of
from tinygrad.simplify.affine import add, affine, build, simplify_index
from tinygrad.simplify.forms import step_in
from tinygrad.simplify.masks import gate_of
from tinygrad.uop import Ops, UOp
from tinygrad.uop.bounds import bounds

Stop = tuple[tuple[tuple[str, int], ...], int, int]
"""((outer loop, coefficient), ...), d, f: turns are below ceil((sum coefficient*outer + d) / f). A
start is stored as the stop of -1 - turn, which counts backwards, so that changes of loops treat
both in the same way."""

Stops = tuple[tuple[str, Stop], ...]
"""Stops by the name of the loop."""

ENDS = ("trim", "start")
"""The facts of a kernel that bound loops: stops and starts."""

IDENTITY: dict[str, Any] = {"add": 0, "max": -math.inf, "mul": 1}


def permitted(kernel: UOp, outer: frozenset[str]) -> dict[str, Stops]:
    """The bound of each loop that may stop early or start late, in terms of the loops named in
    `outer`. For other loops it assumes the turn in which the bounded loop runs longest."""
    return {end: _permitted(kernel, outer, end) for end in ENDS}


def bounded(kernel: UOp) -> set[str]:
    """The loops that may stop early or start late."""
    return {name for end in ENDS for name in ends_of(kernel, end)}


def part_within(kernel: UOp, loops: Iterable[UOp], outer: frozenset[str]) -> float:
    """The fraction of all turns of these loops, over all turns of the loops named in `outer`, that
    lies within the bounds."""
    stops, starts = map(dict, permitted(kernel, outer).values())
    sizes = {name_of(r): size_of(r) for r in nodes_of(kernel) if r.op is Ops.RANGE}
    part = 1.0
    for loop in loops:
        name, size = name_of(loop), size_of(loop)
        start, stop = starts.get(name, ((), 0, 1)), stops.get(name, ((), size, 1))
        around = sorted({n for n, _ in (*start[0], *stop[0])})
        inside, times = 0, 0
        for counters in product(*(range(sizes[n]) for n in around)):
            turn = dict(zip(around, counters, strict=True))
            begin, end = max(0, -_at(start, turn)), min(size, _at(stop, turn))
            inside += max(0, end - begin)
            times += 1
        part *= inside / (size * times)
    return part


def _at(bound: Stop, outer: dict[str, int]) -> int:
    """The turns that are below a bound."""
    terms, constant, factor = bound
    return -(-(sum(k * outer[name] for name, k in terms) + constant) // factor)


def _permitted(kernel: UOp, outer: frozenset[str], end: str) -> Stops:
    nodes = nodes_of(kernel)
    adding = [(node, node.arg, node.src[0]) for node in sums_of(nodes)]
    adding += [(n, n.src[0].arg, _taken_in(n)) for n in nodes if accumulates(n)]
    stops: dict[UOp, Stop] = {}
    for node, monoid, term in adding:
        guards = _guards(term, IDENTITY[monoid]) if monoid in IDENTITY else []
        for guard in guards:
            for loop in own_ranges(node):
                found = _bound(guard, loop, outer, end)
                if found is not None:
                    stops[loop] = found
    if stops:
        _bound_fills(nodes, stops)
    return tuple(sorted((name_of(loop), stop) for loop, stop in stops.items()))


def _bound_fills(nodes: Sequence[UOp], stops: dict[UOp, Stop]) -> None:
    """Adds the bounds of stages that are filled as far as they are read. If the first reader fills
    a stage, it must go as far as all others: else it gets no bound."""
    reads = [n for n in reads_of(nodes) if n.src[0].op is Ops.STAGE]
    read_at: dict[UOp, list[UOp]] = {}  # for each loop of a stage the indices at which it is read
    for stage in reversed(nodes):  # readers come first
        if stage.op is Ops.STAGE:
            own_reads = [indices(n) for n in reads if n.src[0] is stage]
            for position, loop in enumerate(own_ranges(stage)):
                read_at[loop] = [index[position] for index in own_reads]

    def agree(readers: list[UOp]) -> bool:
        return len({*map(stops.get, readers)}) == 1

    filling = [read_at[r] for n in nodes if fills_itself(n) for r in own_ranges(n)]
    while apart := {r for readers in filling if not agree(readers) for r in readers} & {*stops}:
        for loop in apart:
            del stops[loop]
    for loop, readers in read_at.items():
        if agree(readers) and readers[0] in stops:
            stops[loop] = stops[readers[0]]


def _taken_in(stage: UOp) -> UOp:
    """The value that a stage adds up. For a stage of sums it is what these take in: they are 0
    where all their terms are."""
    value = stage.src[0].src[0]
    return value.src[0] if value.op is Ops.REDUCE and value.arg == stage.src[0].arg else value


def ends_of(kernel: UOp, end: str) -> dict[str, Stop]:
    """Where loops stop, or start: bounds in terms of the loops around them. A stage is filled at
    least as far as its readers go. A reader that takes f elements a turn reads on to a multiple of
    f, unless a loop inside it has a bound, too. The fill of a stage may itself read other
    stages."""
    known = dict(fact(kernel, end))
    if not known:
        return known
    nodes = nodes_of(kernel)
    for node in nodes:
        if node.op in (Ops.REDUCE, Ops.STAGE):
            _drop_unusable(known, node)
    for node in reversed(nodes):  # readers before what they read
        if node.op is not Ops.INDEX or node.src[0].op is not Ops.STAGE or accumulates(node.src[0]):
            continue
        for index, loop in zip(indices(node), own_ranges(node.src[0]), strict=True):
            if name_of(loop) in known:
                readers = {n: known[n] for n in map(name_of, index.ranges) if n in known}
                filled = _filled(known.pop(name_of(loop)), readers)
                known.update({name_of(loop): filled} if readers else {})
    return known


def _drop_unusable(known: dict[str, Stop], node: UOp) -> None:
    """Forgets bounds of a node's loops that don't run in sequence, or that are bounded by a loop
    which is not around them."""
    around = {*map(name_of, node.ranges)}
    if accumulates(node):
        around.update(map(name_of, own_ranges(node.src[0])))
    for loop in own_ranges(node):
        name = name_of(loop)
        if name in known:
            terms, _, _ = known[name]
            if role_of(loop) not in SEQUENTIAL or not around.issuperset(n for n, _ in terms):
                del known[name]
        if node.op is Ops.REDUCE:
            around.add(name)


def _filled(stop: Stop, readers: Mapping[str, Stop]) -> Stop:
    """The stop of a filled loop: at least as far as these readers read."""
    split = {n for terms, _, _ in readers.values() for n, _ in terms}  # a loop inside has a bound
    outer, constant, factor = stop
    for name, (terms, d, f) in readers.items():
        if name in split:
            continue
        more = 0  # elements up to the next multiple of f
        if factor % f:
            more = f - math.gcd(f, d, *(k for _, k in terms))
        if tuple(term for term in terms if term[0] not in readers) == outer:
            constant = max(constant, d + more)
    return outer, constant, factor


def _bound(guard: UOp, loop: UOp, outer: frozenset[str], end: str) -> Stop | None:
    """The stop that `f*loop + rest < 0` implies, or the start that `rest - f*loop < 0` implies,
    where `rest` doesn't depend on the loop. None if the bound never leaves out a turn."""
    terms, constant = affine(guard)
    sign, furthest = (1, size_of(loop)) if end == "trim" else (-1, 0)
    each = sign * (step_in(terms, loop) or 0)
    if each < 1:
        return None
    kept: dict[UOp, int] = {}
    free: dict[UOp, int] = {}
    for term, k in terms.items():
        if term is loop:
            continue
        if term.op is Ops.RANGE and name_of(term) in outer:
            kept[term] = -k
        else:
            free[term] = k
    limit = -int(bounds(build(free, constant), {})[0]) - each * (end == "start")
    if bounds(build(kept, limit), {})[0] > each * (furthest - 1):
        return None
    return tuple(sorted((name_of(t), k) for t, k in kept.items())), limit, each


def _guards(value: UOp, identity: Any) -> list[UOp]:
    """Index expressions that are negative wherever `value` differs from `identity`."""
    if value.op is Ops.WHERE:
        condition, yes, no = value.src
        if _is(no, identity):
            return _conditions(condition, True)
        return _conditions(condition, False) if _is(yes, identity) else []
    if value.op is Ops.INDEX and value.src[0].op is Ops.STAGE:
        return _guards(value_at(value), identity)
    if value.op is Ops.INDEX and identity == 0 and (gate := gate_of(value)) is not None:
        return _conditions(gate, True)
    if value.op is Ops.CAST and dtypes.is_float(value.dtype):
        return _guards(value.src[0], identity)
    if identity == 0:
        if value.op is Ops.MUL:
            return _guards(value.src[0], 0) + _guards(value.src[1], 0)
        if value.op is Ops.EXP2:
            return _guards(value.src[0], -math.inf)
    if identity == -math.inf:
        if value.op is Ops.MUL and value.src[1].op is Ops.CONST and value.src[1].arg > 0:
            return _guards(value.src[0], identity)
        if value.op is Ops.ADD:  # -inf plus a value that is constant over the loop is -inf
            first, second = value.src
            return [g for x, y in ((first, second), (second, first)) for g in _lone(x, y)]
    return []


def _lone(masked: UOp, other: UOp) -> list[UOp]:
    """The guards of a masked value, if the other operand doesn't depend on a guarded loop."""

    def is_lone(guard: UOp) -> bool:
        guarded = (term for term, k in affine(guard)[0].items() if k == 1)
        return all(term.ranges.isdisjoint(other.ranges) for term in guarded)

    return [guard for guard in _guards(masked, -math.inf) if is_lone(guard)]


def _is(node: UOp, identity: Any) -> bool:
    """Whether the node is the constant."""
    node = node.src[0] if node.op is Ops.CAST else node
    return node.op is Ops.CONST and bool(node.arg == identity)


def _conditions(condition: UOp, holds: bool) -> list[UOp]:
    """Index expressions that are negative wherever the condition holds (or fails)."""
    if condition.op is Ops.AND and holds:
        return [g for part in condition.src for g in _conditions(part, True)]
    if condition.op is Ops.OR and holds:
        return _less_or_equal(condition)
    if condition.op is Ops.CMPNE and condition.src[1].op is Ops.CONST:
        if condition.src[0].dtype is dtypes.bool:
            return _conditions(condition.src[0], holds != bool(condition.src[1].arg))
        return []
    if condition.op is not Ops.CMPLT or not dtypes.is_int(condition.src[0].dtype):
        return []
    left, right = map(_as_index, condition.src)
    return [add(left, right, -1) if holds else simplify_index(add(right, left, -1) + -1)]


def _less_or_equal(condition: UOp) -> list[UOp]:
    """The same for `x < y or x == y`."""
    less, same = sorted(condition.src, key=lambda part: part.op is Ops.CMPEQ)
    if same.op is not Ops.CMPEQ or not dtypes.is_int(same.src[0].dtype):
        return []
    left, right = map(_as_index, same.src)
    apart = {add(left, right, -1), add(right, left, -1)}
    return [simplify_index(g + -1) for g in _conditions(less, True) if g in apart]


def _as_index(value: UOp) -> UOp:
    return simplify_index(value.cast(dtypes.index))
