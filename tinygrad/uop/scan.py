"""SCAN: a counted loop as one node. The body is a graph of its own, closed over parameters, so a
loop of any length is scheduled and compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


@dataclass(frozen=True)
class ScanInfo:
    """The argument of a SCAN. `body` is a SINK of the next states, then the outputs of one turn,
    over `placeholder`s: states, then one slice of each input, then what else the body uses.

    With `reverse` turns are taken from the last slice to the first, for inputs and outputs alike.
    """

    body: UOp
    turns: int
    states: int
    inputs: int
    reverse: bool = False

    def __repr__(self) -> str:
        return f"<scan of {self.turns} {self.body.key.hex()[:12]}>"


def placeholder(slot: int, like: UOp, shape: tuple[int, ...] | None = None) -> UOp:
    """What stands for source number `slot` inside a body; `shape` if not that of `like`."""
    assert like.device is not None
    shape = like.shape if shape is None else shape
    size = 1
    for n in shape:
        size *= n
    param = UOp(Ops.PARAM, like.dtype, (UOp.on(like.device),), (slot, size), "scan")
    return param.reshape(shape)


def scan(info: ScanInfo, sources: Sequence[UOp]) -> list[UOp]:
    """The results of a SCAN: final states, then each output stacked over the turns."""
    node = UOp(Ops.SCAN, src=tuple(sources), arg=info)
    results = []
    for i, root in enumerate(info.body.src):
        shape = root.shape if i < info.states else (info.turns, *root.shape)
        results.append(UOp(Ops.ITEM, root.dtype, (node,), (i, shape)))
    return results


def close(roots: Sequence[UOp], placeholders: Sequence[UOp]) -> tuple[list[UOp], list[UOp]]:
    """The roots with all that does not depend on the placeholders taken out, and what was taken
    out: it becomes further sources, in the order of the slots after the placeholders'."""
    inside = {p.base for p in placeholders}
    order = UOp.sink(*roots).toposort()
    for node in order:
        if any(s in inside for s in node.src):
            inside.add(node)
    outer: dict[UOp, UOp] = {}
    for node in order:
        if node in inside:
            for source in node.src:
                _take(source, inside, outer, len(placeholders))
    for root in roots:
        _take(root, inside, outer, len(placeholders))
    return [root.substitute(outer) for root in roots], list(outer)


def _take(node: UOp, inside: set[UOp], outer: dict[UOp, UOp], first: int) -> None:
    plain = node.op in (Ops.CONST, Ops.ARANGE) or not node.has_shape or _is_constant(node)
    if node not in inside and not plain and node not in outer:
        outer[node] = placeholder(first + len(outer), node)


def _is_constant(node: UOp) -> bool:
    return node.base.op is Ops.CONST and len(node.base.src) < 2  # nobody's own
