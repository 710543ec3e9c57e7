"""Counted loops (SCANs) that do the same turns become one loop, which has the outputs of all. An
example is a recurrent layer: its forward pass wants the outputs, and its gradient wants the states
of the same turns as outputs, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinygrad.schedule.plan import Wishes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.scan import ScanInfo


def joined_loops(sink: UOp, _: Wishes) -> UOp:
    """`sink` with one SCAN for all SCANs that have the same states, turns and sources."""
    order = sink.toposort()
    loops = [node for node in order if node.op is Ops.SCAN]
    alike: dict[Any, dict[UOp, None]] = {}  # the outputs of loops with the same turns
    for loop in loops:
        alike.setdefault(_turns(loop), {}).update(dict.fromkeys(loop.arg.outputs))
    if len(alike) == len(loops):
        return sink
    changes: dict[UOp, UOp] = {}
    for node in order:
        if node.op is Ops.SCAN:
            body = UOp.sink(*node.arg.next_states, *alike[_turns(node)])
            info = replace(node.arg, body=body)
            changes[node] = UOp(Ops.SCAN, node.dtype, tuple(changes[s] for s in node.src), info)
        elif node.op is Ops.ITEM:
            info, (number, shape) = node.src[0].arg, node.arg
            if number >= info.states:
                outputs = alike[_turns(node.src[0])]
                number = info.states + [*outputs].index(info.body.src[number])
            changes[node] = UOp(Ops.ITEM, node.dtype, (changes[node.src[0]],), (number, shape))
        else:
            changes[node] = node.with_src(tuple(changes[s] for s in node.src))
    return changes[sink]


def _turns(loop: UOp) -> tuple[Any, ...]:
    info: ScanInfo = loop.arg
    return loop.src, info.next_states, info.turns, info.inputs, info.reverse
