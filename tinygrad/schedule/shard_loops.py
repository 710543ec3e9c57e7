"""A counted loop (SCAN) over several devices. Each device runs the loop on its own part, if no turn
needs anything of another device. How a state is cut inside the loop is found by trial: first as its
initial value is, then as the body leaves it (cut, or a partial sum), until both agree. A loop that
would have to copy between devices in its turns is run as a whole on every device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from tinygrad.schedule.collectives import sent
from tinygrad.schedule.shard import Along, Nodes, Parts, Sharding
from tinygrad.uop import Ops, UOp
from tinygrad.uop.placement import Cut, cut_at
from tinygrad.uop.scan import ScanInfo


class Lies(NamedTuple):
    """How a source or a result is distributed inside a turn: cut, partial, or complete
    everywhere."""

    along: Along | None = None
    partial: str | None = None


WHOLE = Lies()


def scan(walk: Sharding, node: UOp) -> Parts:
    """A SCAN on each device; `walk.loops` has the distribution of its results."""
    info: ScanInfo = node.arg
    names = node.device
    lies = _sources(walk, node)
    bodies = None
    for _ in range(info.states + 1):
        inner = Sharding(walk.rules)
        inner.inside = [_inside(info, *each) for each in zip(node.src, count(), lies)]
        inner.add(info.body.src)
        found = [_lies(inner, root) for root in info.body.src]
        if found[: info.states] == lies[: info.states]:
            bodies = _bodies(inner, info, found, len(names))
            break
        if any(a != b and a != WHOLE for a, b in zip(lies, found[: info.states], strict=False)):
            break
        lies = [*found[: info.states], *lies[info.states :]]
    if bodies is None:
        lies, found = [WHOLE] * len(node.src), [WHOLE] * len(info.body.src)
        bodies = [_moved(info.body, name) for name in names]
    sources = [_given(walk, node, i, each, len(names)) for i, each in enumerate(lies)]
    made = []
    for body, src in zip(bodies, zip(*sources, strict=True), strict=True):
        made.append(UOp(Ops.SCAN, node.dtype, src, replace(info, body=body)))
    walk.loops[node] = found
    return Parts(tuple(made))


def _sources(walk: Sharding, node: UOp) -> list[Lies]:
    """The distribution of the sources, as a turn sees them: an input without its axis of turns."""
    info: ScanInfo = node.arg
    found = []
    for i, source in enumerate(node.src):
        along, shape = walk.along(source), source.shape
        if along is not None and _is_input(info, i):
            along = Along(along.axis - 1, along.bounds) if along.axis else None
            shape = shape[1:]
        if along is not None and cut_at(shape, *along) is None:
            along = None
        found.append(Lies(along))
    return found


def _inside(info: ScanInfo, source: UOp, number: int, lies: Lies) -> tuple[Cut | None, str | None]:
    """The same for the placeholder of a source, which is flat."""
    if lies.along is None:
        return None, lies.partial
    shape = source.shape[1:] if _is_input(info, number) else source.shape
    return cut_at(shape, *lies.along), None


def _is_input(info: ScanInfo, source: int) -> bool:
    return info.states <= source < info.states + info.inputs


def _lies(inner: Sharding, root: UOp) -> Lies:
    own = inner.parts.get(root)
    if own is None:
        return WHOLE
    return Lies(None, own.partial) if own.partial == "add" else Lies(inner.along(root))


def _bodies(
    inner: Sharding, info: ScanInfo, found: Sequence[Lies], devices: int
) -> list[UOp] | None:
    """The body of each device; None if it would need the body of another device."""
    roots = []
    for root, lies in zip(info.body.src, found, strict=True):
        if lies.partial is not None:
            roots.append(inner.parts[root].nodes)
        else:
            roots.append(inner.nodes(root, lies.along, devices))
    bodies = [UOp.sink(*each) for each in zip(*roots, strict=True)]
    copied = any(n.op is Ops.COPY for body in bodies for n in body.toposort())
    return None if copied else bodies


def _moved(body: UOp, name: str) -> UOp:
    places = {n: UOp.on(name) for n in body.toposort() if n.op is Ops.DEVICE}
    return body.substitute(places)


def _given(walk: Sharding, node: UOp, number: int, lies: Lies, devices: int) -> Nodes:
    """A source for each device."""
    source, along = node.src[number], lies.along
    if lies.partial is not None:  # the first device has it, the others the identity
        first, *others = walk.nodes(source, None, devices)
        return (first, *(other.const_like(0) for other in others))
    if along is not None and _is_input(node.arg, number):
        along = Along(along.axis + 1, along.bounds)
    return walk.nodes(source, along, devices)


def item(walk: Sharding, node: UOp) -> Parts:
    """A result of a SCAN or of a host function; if its parts aren't known, one device has it."""
    made, (number, shape) = walk.parts[node.src[0]], node.arg
    known = walk.results.get(node.src[0])
    if known is not None:
        return known[int(number)]
    if node.src[0] not in walk.loops:
        one = node.with_src(made.nodes[:1])
        return Parts(tuple(sent(one, name) for name in node.device))
    along, partial = walk.loops[node.src[0]][number]
    if along is None:
        return Parts(tuple(node.with_src((each,)) for each in made.nodes), None, partial)
    if number >= node.src[0].arg.states:
        along = Along(along.axis + 1, along.bounds)
    nodes = []
    for part, each in enumerate(made.nodes):
        nodes.append(UOp(Ops.ITEM, node.dtype, (each,), (number, along.shape(shape, part))))
    return walk.made(node, nodes, along)
