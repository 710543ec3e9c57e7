"""SCAN: a counted loop as one node. Its body is a separate graph over placeholders, so a loop is
scheduled and compiled once, whatever its length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.base.helpers import prod
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops


@dataclass(frozen=True)
class ScanInfo:
    """The argument of a SCAN. `body` is a SINK of the next states, then of the outputs of one turn.
    It is written over `placeholder`s: the states, one slice of each input, and everything else that
    the body uses.

    With `reverse`, turns go from the last slice to the first, for inputs and outputs alike.
    """

    body: UOp
    turns: int
    states: int
    inputs: int
    reverse: bool = False

    @property
    def next_states(self) -> tuple[UOp, ...]:
        """What the states are after a turn."""
        return self.body.src[: self.states]

    @property
    def outputs(self) -> tuple[UOp, ...]:
        return self.body.src[self.states :]

    def __repr__(self) -> str:
        return f"<scan of {self.turns} {self.body.key.hex()[:12]}>"


def placeholder(slot: int, like: UOp, shape: tuple[int, ...] | None = None) -> UOp:
    """What stands for source number `slot` inside a body; `shape` if not that of `like`."""
    assert like.device is not None
    shape = like.shape if shape is None else shape
    param = UOp(Ops.PARAM, like.dtype, (UOp.on(like.device),), (slot, prod(shape)), "scan")
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
    """The roots with everything taken out that does not depend on the placeholders, and what was
    taken out. That becomes further sources, whose slots follow those of the placeholders. A value
    that is repeated along an axis is taken out once, and repeated inside."""
    inside = {p.base for p in placeholders}
    fixed: set[UOp] = set()  # what is the same wherever it is computed: as well inside
    order = UOp.sink(*roots).toposort()
    for node in order:
        if any(s in inside for s in node.src):
            inside.add(node)
        elif not node.has_shape or _is_fixed(node, fixed):
            fixed.add(node)
    outer: dict[UOp, UOp] = {}
    wanted = [s for node in order if node in inside for s in node.src]
    for node in (*wanted, *roots):
        if node not in inside and node not in fixed:
            base = _before_repeats(node)
            if base not in outer:
                outer[base] = placeholder(len(placeholders) + len(outer), base)
    return [root.substitute(outer) for root in roots], list(outer)


def _is_fixed(node: UOp, fixed: set[UOp]) -> bool:
    if node.op in (Ops.CONST, Ops.ARANGE):
        return len(node.src) < 2  # nobody's own
    return node.op in GroupOp.Movement | GroupOp.Elementwise and fixed.issuperset(node.src)


def _before_repeats(node: UOp) -> UOp:
    """What a view repeats."""
    found = node
    while node.op in GroupOp.Movement:
        if node.op is Ops.EXPAND:
            found = node.src[0]
        node = node.src[0]
    return found
