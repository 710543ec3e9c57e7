"""Rewriting: the compiler's inner loop. Each distinct node is rewritten once, because nodes are
interned; nothing recurses; listeners (a trace, VIZ) stand outside and cost nothing when absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.base.errors import VerifyError
from tinygrad.uop.node import UOp
from tinygrad.uop.pattern import PatternMatcher

Listener = Callable[[UOp, UOp, str], None]

listeners: list[Listener] = []
"""Called with (before, after, rule's name) for each rewrite, in order."""


def graph_rewrite(
    sink: UOp,
    pm: PatternMatcher,
    ctx: Any = None,
    bottom_up: bool = False,
    name: str | None = None,
) -> UOp:
    """`sink` with `pm` applied everywhere until nothing fits.

    By default sources are rewritten before the node that uses them. With `bottom_up` a node is
    rewritten before its sources are looked at, and its rebuilt form is not tried again.
    A rule that takes `ctx` gets it.
    """
    done: dict[UOp, UOp] = {}
    waiting: set[UOp] = set()  # nodes whose replacement is being rewritten
    stack: list[tuple[UOp, int, UOp]] = [(sink, 0, sink)]
    while stack:
        node, step, current = stack.pop()
        if node in done:
            continue
        if step == 0:
            if bottom_up:
                current = _settle(node, pm, ctx)
            stack.append((node, 1, current))
            stack.extend((s, 0, s) for s in reversed(current.src) if s not in done)
        elif step == 1:
            rebuilt = current.with_src(tuple(done[s] for s in current.src))
            made = None if bottom_up else _once(rebuilt, pm, ctx)
            if made is None:
                done[node] = done[rebuilt] = rebuilt
                continue
            if made in waiting:
                raise VerifyError(f"{name or 'rewrite'}: rules go in a circle at {made!r}")
            waiting.add(node)
            stack.append((node, 2, made))
            stack.append((made, 0, made))
        else:
            waiting.discard(node)
            done[node] = done[current]
    return done[sink]


def _once(node: UOp, pm: PatternMatcher, ctx: Any) -> UOp | None:
    found = pm.rewrite_named(node, ctx)
    if found is None:
        return None
    made, rule = found
    if made.origin is None:
        made.origin = node.origin
    for listener in listeners:
        listener(node, made, rule)
    return made


def _settle(node: UOp, pm: PatternMatcher, ctx: Any) -> UOp:
    """`node` rewritten by itself until nothing fits."""
    for _ in range(1000):
        made = _once(node, pm, ctx)
        if made is None:
            return node
        node = made
    raise VerifyError(f"rules don't come to an end at {node!r}")
