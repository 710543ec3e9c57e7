"""Rewriting, the compiler's inner loop. Nodes are interned, so each distinct node is rewritten
once. Nothing recurses. Listeners (a trace, VIZ) are outside of the loop and cost nothing when there
are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.base.errors import VerifyError
from tinygrad.uop.node import UOp
from tinygrad.uop.pattern import PatternMatcher

Listener = Callable[[UOp, UOp, str], None]

listeners: list[Listener] = []
"""Called with (before, after, rule's name) for each rewrite, in order."""

DEEPEST = 1000  # replacements inside of replacements: kernels have ten


# how far a node on the stack is: not looked at, its sources are done, its replacement is done
_NEW, _READY, _REPLACED = range(3)


def graph_rewrite(
    sink: UOp, pm: PatternMatcher, ctx: Any = None, bottom_up: bool = False, name: str | None = None
) -> UOp:
    """`sink` with `pm` applied everywhere until nothing fits.

    By default sources are rewritten before the node that uses them, and the result of a rule is
    rewritten in turn. With `bottom_up` (tinygrad's name: its graphs grow downward) a node is
    rewritten before its sources, and is not tried again once its sources have changed. A rule that
    takes `ctx` gets it. VerifyError if rewriting returns to a node that it started from, or goes
    on growing.
    """
    done: dict[UOp, UOp] = {}
    waiting: set[UOp] = set()  # nodes whose replacement is being rewritten
    stack: list[tuple[UOp, int, UOp]] = [(sink, _NEW, sink)]  # with what the node is by now
    while stack:
        node, step, current = stack.pop()
        if node in done:
            continue
        if step == _NEW:
            if bottom_up:
                current = _settle(node, pm, ctx)
            stack.append((node, _READY, current))
            stack.extend((s, _NEW, s) for s in reversed(current.src) if s not in done)
        elif step == _READY:
            rebuilt = current.with_src(tuple(done[s] for s in current.src))
            made = None if bottom_up else _once(rebuilt, pm, ctx)
            if made is None:
                done[node] = done[rebuilt] = rebuilt
                continue
            if made in waiting:
                raise VerifyError(f"{name or 'rewrite'}: rules go in a circle at {made!r}")
            if len(waiting) > DEEPEST:
                raise VerifyError(f"{name or 'rewrite'}: rules don't come to an end at {node.op!r}")
            waiting.add(node)
            stack.append((node, _REPLACED, made))
            stack.append((made, _NEW, made))
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
    for _ in range(DEEPEST):
        made = _once(node, pm, ctx)
        if made is None:
            return node
        node = made
    raise VerifyError(f"rules don't come to an end at {node!r}")
