"""Long chains of instructions go in step.

Values are emitted copy by copy. The steps of an exponential or a sine wait for each other: where
one copy follows the other, the instructions that a processor can look ahead over belong to few
copies, and most of them wait. So in straight runs of instructions with long chains, those go first
that have the most steps left: copies, and chains within one, advance together. A constant that they
all need is read once. What finds no room in the registers meanwhile waits in the nearest cache,
which takes less time than the steps would wait for each other. It is another order, nothing else; a
compiler that comes after keeps most of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tinygrad.base.helpers import post_order
from tinygrad.base.target import Target
from tinygrad.uop import GroupOp, Ops, UOp

STRAIGHT = GroupOp.ALU | {
    *(Ops.LOAD, Ops.STORE, Ops.INDEX, Ops.PREFETCH, Ops.VECTORIZE, Ops.GEP, Ops.SHUFFLE),
    *(Ops.CAST, Ops.BITCAST),
}
"""What a run is made of."""

LONG = 16
"""Steps of a chain that a processor does not overlap well with the next one: an exponential's."""

VALUES = 4
"""Values for each register, at most, that wait for their readers."""


def interleaved(program: Sequence[UOp], target: Target) -> Sequence[UOp]:
    """The program with its long chains interleaved, where nothing else hides what they wait for."""
    if target.has_groups:
        return program
    out: list[UOp] = []
    run: list[UOp] = []
    for node in program:
        if node.op in STRAIGHT:
            run.append(node)
            continue
        out += _in_step(run, target)
        out.append(node)
        run = []
    return out + _in_step(run, target)


def _in_step(run: list[UOp], target: Target) -> list[UOp]:
    count = sum(map(_is_step, run))
    if count < 2 * LONG:
        return run
    depth: dict[UOp, int] = {}
    for node in run:
        depth[node] = _is_step(node) + max((depth.get(s, 0) for s in node.src), default=0)
    longest, is_plain = max(depth.values()), len(depth) == len(run)  # no node twice
    written, read = ({_buffer(n) for n in run if n.op is op} for op in (Ops.STORE, Ops.LOAD))
    if longest < LONG or count < 2 * longest or written & read or not is_plain:
        return run
    copies, left = _copies(run), _steps_left(run)
    outside = {s for node in run for s in node.src if _is_held(s) and s not in depth}
    room = VALUES * target.registers - len(outside)
    at_once = max(1, room // max(map(_most_held, copies)))
    order: list[UOp] = []
    for i in range(0, len(copies), at_once):
        steps = [node for copy in copies[i : i + at_once] for node in copy if _is_step(node)]
        order += sorted(steps, key=left.__getitem__, reverse=True)
    stores = [node for node in run if node.op is Ops.STORE]
    before = dict(zip(stores[1:], stores, strict=False))

    def needs(node: UOp) -> list[UOp]:
        sources = [s for s in reversed(node.src) if s in depth]
        return [*sources, before[node]] if node in before else sources

    return post_order(reversed([*order, *run]), needs)


def _is_step(node: UOp) -> bool:
    """Whether an instruction computes with vectors, or ends a chain. All others are placed just
    before the first step that needs them."""
    return node.op is Ops.STORE or (_is_held(node) and node.op is not Ops.LOAD)


def _is_held(node: UOp) -> bool:
    """Whether a value needs a register of vectors; constants are read where they are needed."""
    return node.dtype.count > 1 and node.op is not Ops.VECTORIZE


def _buffer(node: UOp) -> UOp:
    """What an instruction reads or writes."""
    while node.op not in (Ops.PARAM, Ops.LOCAL) and node.src:
        node = node.src[0]
    return node


def _steps_left(run: list[UOp]) -> dict[UOp, int]:
    """The longest way from each instruction to a result."""
    left: dict[UOp, int] = {}
    for node in reversed(run):
        left[node] = left.get(node, 0) + _is_step(node)
        for source in node.src:
            left[source] = max(left.get(source, 0), left[node])
    return left


def _copies(run: list[UOp]) -> list[list[UOp]]:
    """The instructions of each copy, in order. A copy is what one result needs, and what others
    need that have few instructions of their own beside it."""
    place = {node: i for i, node in enumerate(run)}
    read = {source for node in run for source in node.src}
    owner: dict[UOp, list[UOp]] = {}

    def below(node: UOp) -> list[UOp]:
        return [] if node in owner else [s for s in node.src if s in place]

    copies: list[list[UOp]] = []
    for result in (node for node in run if node not in read):
        reached = post_order([result], below)
        mine = [node for node in reached if node not in owner]
        others = [owner[node] for node in reached if node in owner and _is_step(node)]
        copy = max(others, key=len, default=[])
        if len(copy) <= 2 * len(mine):
            copy = []
            copies.append(copy)
        copy += sorted(mine, key=place.__getitem__)
        owner |= dict.fromkeys(mine, copy)
    return copies


def _most_held(copy: list[UOp]) -> int:
    """The registers that a copy needs at a time."""
    left = Counter(source for node in copy for source in {*node.src})
    held, most = set[UOp](), 1
    for node in copy:
        if _is_held(node) and left[node]:
            held.add(node)
        most = max(most, len(held))
        left.subtract({*node.src})
        held -= {source for source in node.src if not left[source]}
    return most
