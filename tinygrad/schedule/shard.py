"""From one graph over several devices to a graph for each: the only pass that knows of both.

Above, a value on several devices is one node with one shape; where it lies is a fact of the storage
that it comes from. Here each such node becomes its *parts*, a node on each device. A value is

- on each device in full (a constant, what was copied to several devices);
- *cut* along an axis, see `uop/placement`;
- a *partial* result: what the devices have is yet to be reduced over them. That is done when the
  value is used, in full (an all-reduce), or only for the part that a device wants.

How an operation treats cuts is a row of `schedule/shard_rules`. A row only asks for its sources as
it can use them; bringing them there is done here, and is the only thing that makes copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from tinygrad.base.errors import ArgumentError
from tinygrad.schedule.bases import is_memory, memory_base, stored_base
from tinygrad.schedule.collectives import (
    Reduction,
    all_reduce,
    in_buckets,
    joined,
    reduced_to,
    sent,
)
from tinygrad.schedule.plan import Plan, Storage
from tinygrad.uop import GroupOp, Ops, UOp
from tinygrad.uop.placement import Cut, Placement, cut_at

Nodes = tuple[UOp, ...]


class Parts(NamedTuple):
    """A value's node on each device. `partial`: the monoid that still has to combine them."""

    nodes: Nodes
    cut: Cut | None = None
    partial: str | None = None


class Along(NamedTuple):
    """A cut of a shape: the axis, and the positions."""

    axis: int
    bounds: tuple[int, ...]

    def box(self, part: int) -> tuple[int, int]:
        """The interval of a part."""
        return self.bounds[part], self.bounds[part + 1]

    def size(self, part: int) -> int:
        """The length of a part along the axis."""
        return self.bounds[part + 1] - self.bounds[part]

    def shape(self, whole: Sequence[Any], part: int) -> tuple[Any, ...]:
        """The shape of a part of `whole`."""
        return tuple(self.size(part) if i == self.axis else n for i, n in enumerate(whole))


Rule = Callable[["Sharding", UOp], Parts]


def is_empty(part: UOp) -> bool:
    """Whether a device has no element of a value."""
    return part.has_shape and 0 in part.shape


class Sharding:
    """The walk: for each node, `parts` if it is on several devices, else `single`, in the new
    graph."""

    def __init__(self, rules: dict[Ops, Rule]) -> None:
        self.rules = rules
        self.parts: dict[UOp, Parts] = {}
        self.single: dict[UOp, UOp] = {}
        self.params: list[tuple[UOp, int]] = []  # PARAM and part, for each slot of the new graph
        self.inside: list[tuple[Cut | None, str | None]] = []  # for each source of a loop's body
        self.loops: dict[UOp, Any] = {}  # how the results of a SCAN lie, see `shard_loops`
        self.results: dict[UOp, list[Parts]] = {}  # of a CALL of which each device computes a part
        self.reduced: list[Reduction] = []
        self._whole: dict[UOp, Nodes] = {}

    def add(self, roots: Sequence[UOp]) -> None:
        """Splits all nodes below the roots."""
        for node in UOp.sink(*roots).toposort()[:-1]:
            if node.op is Ops.DEVICE or node in self.parts or node in self.single:
                continue
            if not isinstance(node.device, tuple):
                self.single[node] = self._rebuilt(node)
                continue
            check_devices(node)
            if node.has_shape and 0 in node.shape:
                nothing = (UOp.const(node.dtype, 0, name) for name in node.device)
                made = Parts(tuple(each.broadcast_to(node.shape) for each in nothing))
            else:
                made = self.rules[node.op](self, node)
            for part in made.nodes:
                if part.origin is None:
                    part.origin = node.origin
            self.parts[node] = made
            if not is_memory(node) and any(map(is_empty, made.nodes)):
                self._empty(node)

    def _empty(self, node: UOp) -> None:
        """If a device has no element of a value without a device, the part is a constant, which
        reads nothing. If several axes could be cut, its shape has the one that is known to be."""
        along, made = self.along(node), self.parts[node]
        nodes = list(made.nodes)
        for i, part in enumerate(nodes):
            if is_empty(part) and not is_memory(part):
                shape = part.shape if along is None else along.shape(node.shape, i)
                nodes[i] = UOp.const(part.dtype, 0, part.device).broadcast_to(shape)
        self.parts[node] = made._replace(nodes=tuple(nodes))

    def _rebuilt(self, node: UOp) -> UOp:
        """A node on one device, or on none: only the source of a COPY may be on several."""
        if node.op is Ops.PARAM and node.tag != "scan":
            return self.slot(node, 0, node.device, node.arg[1])
        if node.op is Ops.COPY and isinstance(node.src[0].device, tuple):
            return self.fetched(node.src[0], node.device).contiguous()
        return node.with_src(tuple(self.single.get(s, s) for s in node.src))

    def slot(self, param: UOp, part: int, device: str, size: int) -> UOp:
        """The next PARAM of the new graph: this part of an old one."""
        self.params.append((param, part))
        return UOp(Ops.PARAM, param.dtype, (UOp.on(device),), (len(self.params) - 1, size))

    # ---- what rules ask for ----------------------------------------------------------------------

    def along(self, node: UOp) -> Along | None:
        """The axis along which a value is cut; None if each device has all of it, or if the cut
        doesn't follow an axis of its shape."""
        found = self.parts.get(node)
        if found is None or found.cut is None:
            return None
        where = found.cut.on(node.shape)
        return None if where is None else Along(*where)

    def nodes(self, node: UOp, along: Along | None, count: int = 0) -> Nodes:
        """The value on each device: its part `along` the axis, or all of it. A size or a variable
        is known everywhere; it is repeated `count` times."""
        if node not in self.parts:
            return (self.single.get(node, node),) * count
        if along is None:
            return self.whole(node)
        own = self.parts[node]
        if own.cut is not None and self.along(node) == along:
            return own.nodes
        if own.cut is None and own.partial is None:
            return self._cut(own.nodes, along)
        if own.cut is not None and _keeps_elements(node):  # what repeats is brought before it does
            return self._cut(self.whole(node), along)
        names = node.device
        return tuple(
            self.fetched(node, name, along.axis, along.box(i)) for i, name in enumerate(names)
        )

    def whole(self, node: UOp) -> Nodes:
        """The complete value on each device; a partial one is reduced first."""
        found = self._whole.get(node)
        if found is None:
            own = self.parts[node]
            if own.partial is not None:
                found = all_reduce(own.nodes, node.device, own.partial)
                self.reduced.append(Reduction(own.nodes, node.device, own.partial, found))
            elif own.cut is None:
                found = own.nodes
            elif _keeps_elements(node):
                sources = self.whole(node.src[0])
                found = tuple(node.with_src((s, *node.src[1:])) for s in sources)
            else:
                found = tuple(self.fetched(node, name) for name in node.device)
            self._whole[node] = found
        return found

    def fetched(
        self, node: UOp, device: str, axis: int = 0, box: tuple[int, int] | None = None
    ) -> UOp:
        """The value on `device`; with `box`, only the part in this interval along `axis`."""
        if box is not None and box[0] == box[1]:
            return UOp.const(node.dtype, 0, device).broadcast_to(node.shape).sliced(axis, *box)
        own = self.parts.get(node)
        if own is None:
            single = self.single[node]
            return sent(single if box is None else single.sliced(axis, *box), device)
        names = node.device
        if own.partial is not None and (box is None or device not in names):
            own = Parts(self.whole(node))
        if own.partial is not None:
            assert box is not None, "else it was reduced"
            pieces = [part.sliced(axis, *box) for part in own.nodes]
            return reduced_to(names.index(device), pieces, names, own.partial)
        if own.cut is None:
            part = own.nodes[names.index(device) if device in names else 0]
            return sent(part if box is None else part.sliced(axis, *box), device)
        return self._gathered(node, own, device, axis, box)

    def _gathered(
        self, node: UOp, own: Parts, device: str, axis: int, box: tuple[int, int] | None
    ) -> UOp:
        """The devices' parts of a cut value, concatenated on one device."""
        along = self.along(node)
        if along is None:
            assert own.cut is not None, "whole values are not gathered"
            outer, size = own.cut.outer, own.cut.bounds[-1]
            inner = node.size // (outer * size)
            shapes = [(outer, own.cut.share(i, size), inner) for i in range(len(own.nodes))]
            parts = [part.reshape(n) for part, n in zip(own.nodes, shapes, strict=True)]
            lined = joined([sent(part, device) for part in parts], 1).reshape(node.shape)
            return lined if box is None else lined.sliced(axis, *box)
        pieces = []
        for i, part in enumerate(own.nodes):
            if box is not None and axis == along.axis:
                first, end = along.box(i)
                begin, stop = max(first, box[0]), min(end, box[1])
                if begin >= stop:
                    continue
                part = part.sliced(axis, begin - first, stop - first)
            elif box is not None:
                part = part.sliced(axis, *box)
            pieces.append(sent(part, device))
        return joined(pieces, along.axis)

    @staticmethod
    def _cut(nodes: Nodes, along: Along) -> Nodes:
        return tuple(node.sliced(along.axis, *along.box(i)) for i, node in enumerate(nodes))

    def best(self, sources: Sequence[UOp]) -> Along | None:
        """The cut that sources of one shape should share: that of the largest; the others are
        moved."""
        found = [
            (memory_base(source).size, -number, along)
            for number, source in enumerate(sources)
            if (along := self.along(source)) is not None
        ]
        return max(found)[2] if found else None

    def made(self, node: UOp, nodes: Sequence[UOp], along: Along | None) -> Parts:
        """A result with this cut. If the cut can't be expressed, because an axis of symbolic size
        comes before it, the result is gathered."""
        if along is None:
            return Parts(tuple(nodes))
        cut = cut_at(node.shape, *along)
        if cut is not None:
            return Parts(tuple(nodes), cut)
        lined = ([sent(part, name) for part in nodes] for name in node.device)
        return Parts(tuple(joined(parts, along.axis) for parts in lined))


def _keeps_elements(node: UOp) -> bool:
    """Whether the node is movement that reads all of its source: then the source is brought, not
    the result."""
    return node.op in GroupOp.Movement - {Ops.SHRINK} or node.op is Ops.DETACH


# ---- the graph and its plan ----------------------------------------------------------------------


@dataclass
class Sharded:
    """The graph for each device (`sink`), and what its slots and roots were before."""

    sink: UOp
    params: list[tuple[UOp, int]]
    roots: list[tuple[UOp, Placement | str]] = field(default_factory=list)

    def regrouped(self, made: Plan) -> Plan:
        """The plan in terms of the original graph: storages on several devices, and, as "part", the
        pieces of them that steps use."""
        storages = list(made.storages)
        wholes: dict[UOp, int] = {}  # PARAM → its storage
        for number, kept in enumerate(made.storages):
            if kept.kind != "param":
                continue
            param, part = self.params[kept.place]
            if isinstance(param.device, str):
                storages[number] = replace(kept, place=param.arg[0])
                continue
            if param not in wholes:
                wholes[param] = len(storages)
                place, (slot, size) = param.src[0].arg, param.arg
                storages.append(Storage("param", place, param.dtype, size, slot))
            storages[number] = replace(kept, kind="part", place=part, whole=wholes[param])
        numbers = iter(made.results)
        results = []
        for base, place in self.roots:
            if isinstance(place, str):
                results.append(next(numbers))
                continue
            parts = [next(numbers) for _ in place.names]
            first = storages[parts[0]]
            if first.kind != "part":
                storages.append(Storage("out", place, base.dtype, base.size))
                for part, number in enumerate(parts):
                    storages[number] = replace(
                        storages[number], kind="part", place=part, whole=len(storages) - 1
                    )
                results.append(len(storages) - 1)
            else:
                results.append(first.whole)
        return replace(made, storages=tuple(storages), results=tuple(results))


def is_sharded(sink: UOp) -> bool:
    """Whether any node of the graph is on several devices. ArgumentError if a node's operands are
    on different ones: a kernel would mistake another device's address for its own."""
    nodes = sink.toposort()
    for node in nodes[:-1]:
        check_devices(node)
    return any(isinstance(node.device, tuple) for node in nodes)


def check_devices(node: UOp) -> None:
    """ArgumentError unless the operands are on the node's device. A KERNEL's may be anywhere that
    its device can read, as constants that were computed."""
    for source in node.src if node.op not in (Ops.COPY, Ops.KERNEL) else ():
        if source.op is not Ops.DEVICE and source.device not in (None, node.device):
            raise ArgumentError(
                f"{node.op!r}: operands are on {node.device} and {source.device}; legal are the "
                "same devices in the same order: use .to() or .shard()"
            )


def shard(sink: UOp, rules: dict[Ops, Rule]) -> Sharded:
    """The graph for each device."""
    walk = Sharding(rules)
    bases = [stored_base(root) if isinstance(root.device, tuple) else root for root in sink.src]
    walk.add(bases)
    wanted: list[Nodes] = []
    for base in bases:
        own = walk.parts.get(base)
        if own is None:
            wanted.append((walk.single[base],))
        else:
            wanted.append(own.nodes if own.partial is None else walk.whole(base))
    # a version is made as a whole, however little of it is read
    versions = [own.nodes for node, own in walk.parts.items() if node.op is Ops.ASSIGN]
    made = Sharded(UOp.sink(), walk.params)
    roots: list[UOp] = []
    taken: dict[UOp, UOp] = {}
    first = {base: number for number, base in reversed(list(enumerate(bases)))}
    rest = iter(in_buckets(sum((*wanted, *versions), ()), walk.reduced))
    for base, old in zip(bases, wanted, strict=True):
        parts = list(islice(rest, len(old)))
        if not isinstance(base.device, tuple):
            made.roots.append((base, base.device))
        else:
            made.roots.append((base, Placement(base.device, walk.parts[base].cut)))
            if base.op is not Ops.ASSIGN and not is_memory(base):
                parts = [_stored(n, base, taken, (first[base], i)) for i, n in enumerate(parts)]
        roots += parts
    made.sink = UOp.sink(*roots, *rest)
    return made


def _stored(node: UOp, base: UOp, taken: dict[UOp, UOp], tag: Any) -> UOp:
    """The node if it will be stored exactly like this, and for this root only; else a copy."""
    stored = stored_base(node)
    if stored is node and not is_memory(node) and taken.setdefault(node, base) is base:
        return node
    return UOp(Ops.CONTIGUOUS, node.dtype, (node,), tag=("part", *tag))
