"""The one graph walk that all primitives use: it makes a kernel in which some loops are replaced. A
node that closes a loop then closes the pieces of the loop, a node that uses its counter uses the
sum of the pieces, and readers of a stage follow its new layout. Index arithmetic comes out in
canonical form: as a whole where it is used, not step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from tinygrad.base.helpers import post_order
from tinygrad.loops.layout import indices, nodes_of
from tinygrad.loops.roles import own_ranges
from tinygrad.simplify.affine import add, canonical, divide, modulo, with_sources
from tinygrad.simplify.masks import conditions_of, gate_of, with_gate
from tinygrad.uop import Ops, UOp
from tinygrad.uop.infer import CLOSERS


@dataclass(frozen=True)
class Replacement:
    """What replaces a RANGE: its value, the ranges that take its place, and, if it was split or
    merged with the one around it, the size of the inner piece."""

    value: UOp
    pieces: tuple[UOp, ...]
    factor: int = 0


Hook = Callable[[UOp], UOp | None]
"""Maps a node of the new kernel to its replacement (None: itself)."""


def rebuild(root: UOp, loops: Mapping[UOp, Replacement], hook: Hook | None = None) -> UOp:
    """`root` with `loops` replaced; `hook` may replace any other node."""
    done: dict[UOp, UOp] = {}
    for node in nodes_of(root):
        if node in loops:
            done[node] = loops[node].value
            continue
        if node.op in CLOSERS and loops:
            made = _closer(node, loops, done)
        elif node.op is Ops.INDEX and node.src[0].op is Ops.STAGE and loops:
            made = _reader(node, loops, done)
        else:
            made = with_sources(node, tuple(map(done.__getitem__, node.src)))
        other = hook(made) if hook is not None else None
        done[node] = made if other is None else other
    return canonical(done[root])


def value_at(read: UOp) -> UOp:
    """The value of a STAGE at the indices of a read; it reads memory where the read does."""
    stage = read.src[0]
    value = replaced(stage.src[0], dict(zip(own_ranges(stage), indices(read), strict=True)))
    for inside in conditions_of(gate_of(read)):
        value = read_where(value, inside, inside.ranges)
    return value


def read_where(value: UOp, inside: UOp, loops: Collection[UOp]) -> UOp:
    """`value`, whose reads that depend on all of the loops happen only where `inside` holds; its
    CHECKs pass elsewhere."""

    def guard(node: UOp) -> UOp | None:
        if not node.ranges.issuperset(loops):
            return None
        if node.op is Ops.CHECK:
            checked, fine = node.src
            return node.with_src((checked, inside.alu(Ops.WHERE, fine, fine.const_like(True))))
        return with_gate(node, inside) if node.op is Ops.INDEX else None

    return rebuild(value, {}, guard)


def replaced(root: UOp, changes: Mapping[UOp, UOp], known: dict[UOp, UOp] | None = None) -> UOp:
    """`root` with nodes replaced; index arithmetic is brought into canonical form. `known`: what
    the same changes made of nodes that other roots share; this call adds to it."""
    done = {} if known is None else known
    done.update(changes)
    for node in _affected(root, changes, done):
        done[node] = with_sources(node, tuple(done.get(s, s) for s in node.src))
    return canonical(done[root]) if root in done else root


def _affected(root: UOp, changes: Mapping[UOp, UOp], done: Mapping[UOp, UOp]) -> list[UOp]:
    """The nodes that may change and are not done, sources first. If loops that are free in `root`
    are replaced, values that don't depend on them are not visited."""
    if not all(node.op is Ops.RANGE and node in root.ranges for node in changes):
        return [n for n in root.toposort(stop=done) if n not in done]

    def changing(nodes: Iterable[UOp]) -> list[UOp]:
        return [n for n in nodes if n not in done and not n.ranges.isdisjoint(changes)]

    return post_order(changing([root]), lambda node: changing(node.src))


def _closer(node: UOp, loops: Mapping[UOp, Replacement], done: Mapping[UOp, UOp]) -> UOp:
    first = CLOSERS[node.op]
    own: list[UOp] = []
    for loop in node.src[first:]:
        own += loops[loop].pieces if loop in loops else (done[loop],)
    return node.with_src((*(canonical(done[s]) for s in node.src[:first]), *own))


def _reader(node: UOp, loops: Mapping[UOp, Replacement], done: Mapping[UOp, UOp]) -> UOp:
    """Adapts a read of a stage: where the stage's ranges are split, it reads with quotient and
    remainder; where they are merged, with their sum."""
    new: list[UOp] = []
    for index, loop in zip(indices(node), node.src[0].src[1:], strict=True):
        at, change = done[index], loops.get(loop)
        if change is None or len(change.pieces) == 1:
            new.append(canonical(at))
        elif change.factor and not change.pieces:
            new[-1] = add(at, new[-1], change.factor)
        elif change.factor:
            new += (divide(at, change.factor), modulo(at, change.factor))
    gate = gate_of(node)
    gates = () if gate is None else (canonical(done[gate]),)
    return UOp(Ops.INDEX, node.dtype, (done[node.src[0]], *new, *gates), len(new), node.tag)
