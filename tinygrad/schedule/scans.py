"""Counted loops (SCANs) that do the same turns become one loop, which has the outputs of all. An
example is a recurrent layer: its forward pass wants the outputs, and its gradient wants the states
of the same turns as outputs, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinygrad.schedule.plan import Wishes
from tinygrad.uop import Ops, UOp
from tinygrad.uop.scan import ScanInfo


def joined_loops(sink: UOp, _: Wishes) -> UOp:
    """`sink` with one SCAN for all SCANs that have the same states, turns and sources."""
    loops = [node for node in sink.toposort() if node.op is Ops.SCAN]
    alike: dict[Any, dict[UOp, None]] = {}  # the outputs of loops with the same turns
    for loop in loops:
        alike.setdefault(_turns(loop), {}).update(dict.fromkeys(loop.arg.outputs))
    if len(alike) == len(loops):
        return sink

    def joined(old: UOp, node: UOp) -> UOp:
        if old.op is Ops.SCAN:
            body = UOp.sink(*old.arg.next_states, *alike[_turns(old)])
            return node.replace(arg=replace(old.arg, body=body))
        if old.op is Ops.ITEM and old.src[0].op is Ops.SCAN:
            info, (number, *facts) = old.src[0].arg, old.arg
            if number >= info.states:
                outputs = alike[_turns(old.src[0])]
                number = info.states + [*outputs].index(info.body.src[number])
            return node.replace(arg=(number, *facts))
        return node

    return sink.remade(joined)


def _turns(loop: UOp) -> tuple[Any, ...]:
    info: ScanInfo = loop.arg
    return loop.src, info.next_states, info.turns, info.inputs, info.reverse
