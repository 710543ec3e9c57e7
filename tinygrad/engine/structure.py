"""What a graph has in common with others: buffers become numbered parameters and bound variables
lose their values. Two steps of a training loop have one structure, and so one plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


@dataclass(frozen=True)
class Structure:
    """`sink` has PARAMs where the graph had BUFFERs and `v000`, `v001`, ... where it had bound
    variables; `nodes` are the graph's own, sources first, with known values left out."""

    sink: UOp
    params: tuple[UOp, ...]
    binds: tuple[UOp, ...]
    nodes: tuple[UOp, ...]

    @property
    def values(self) -> list[int]:
        return [bind.val for bind in self.binds]


def resolved(node: UOp) -> UOp:
    """The node, or the view of storage that holds its value since it was computed.

    A constant is written into the kernel even if somebody's copy of it lies in memory, so a kernel
    doesn't depend on what else the process has computed."""
    while node.known is not None and node.base.op is not Ops.CONST:
        node = node.known
    return node


def nodes_below(roots: Sequence[UOp]) -> list[UOp]:
    """All nodes that the roots still need, sources first."""
    order: list[UOp] = []
    seen: set[UOp] = set()
    stack = [(resolved(root), False) for root in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((resolved(s), False) for s in reversed(node.src))
    return order


def structure_of(roots: Sequence[UOp]) -> Structure:
    """The structure of what the roots still need."""
    made: dict[UOp, UOp] = {}
    params: list[UOp] = []
    binds: list[UOp] = []
    nodes = nodes_below(roots)
    for node in nodes:
        if node.op is Ops.BUFFER:
            made[node] = UOp(Ops.PARAM, node.dtype, (made[node.src[1]],), (len(params), node.arg))
            params.append(node)
        elif node.op is Ops.DEVICE:  # no node of a plan is a tensor's, or it would keep its value
            made[node] = node.replace(tag="plan")
        elif node.op is Ops.BIND:
            _, low, high = node.src[0].arg
            made[node] = UOp(Ops.DEFINE_VAR, node.dtype, arg=(f"v{len(binds):03}", low, high))
            binds.append(node)
        else:
            made[node] = node.with_src(tuple(made[resolved(s)] for s in node.src))
            if made[node].origin is None:
                made[node].origin = node.origin
    sink = UOp.sink(*(made[resolved(root)] for root in roots))
    return Structure(sink, tuple(params), tuple(binds), tuple(nodes))
