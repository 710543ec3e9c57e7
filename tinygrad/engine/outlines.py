"""What a step computes with that neither an argument nor a tensor from outside gave it: constants,
where parts begin, the data that it makes tensors of. Its Python found these, wherever that may have
been (the clock, a file, an iterator's next), and replays would keep those of the captured call. So
that call is held beside the one before it: where graphs differ in such a number only, the step is
an error.

Of the call before there are outlines, which keep none of its memory.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np

from tinygrad.engine.realize import Run
from tinygrad.engine.storage import Buffer, as_array, buffer_of
from tinygrad.engine.streams import Stream
from tinygrad.engine.structure import met
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

_HOST = ("CPU", "CLANG", "PYTHON", "NPY")
"""Devices whose memory can be looked at without waiting for them."""

_GIVEN = GroupOp.Movement | {Ops.ARANGE}
_LEAVES = {Ops.CONST, Ops.ARANGE, Ops.BUFFER, Ops.BIND}
_FEW = 8  # elements that are shown


class Row(NamedTuple):
    """A node: its sources' rows, and what of it another call of the same Python may give."""

    op: Ops
    sources: tuple[int, ...]
    given: Any
    origin: str | None


class Outline(NamedTuple):
    """A graph's nodes, sources first, and which of them are its roots."""

    rows: list[Row]
    roots: list[int]

    def row(self, number: int) -> Row:
        """One of them; of a copy that of what is copied, as only one of two calls may need it."""
        row = self.rows[number]
        while row.op in (Ops.COPY, Ops.CONTIGUOUS):
            row = self.rows[row.sources[0]]
        return row


class Outlines(list[Outline | None]):
    """Those of a call, in the order in which they are computed; None for what makes no graph.
    `variables` are the names of those whose values arguments give."""

    def __init__(self, variables: Container[str]) -> None:
        super().__init__()
        self._variables = variables
        self._start = UOp.unique().arg
        self._computed: weakref.WeakSet[Buffer] = weakref.WeakSet()

    def see(self, run: Run | None) -> None:
        """Something has been computed."""
        if run is None:
            self.append(None)
            return
        self._computed.update([*run.results.values(), *run.written])
        at: dict[UOp, int] = {}
        rows: list[Row] = []
        for node in run.structure.nodes:
            leads = () if node.op in _LEAVES else tuple(at[met(s, at)] for s in node.src)
            at[node] = len(rows)
            rows.append(Row(node.op, leads, self._given(node), node.origin))
        self.append(Outline(rows, [at[met(root, at)] for root in run.structure.roots]))

    def _given(self, node: UOp) -> Any:
        if node.op is Ops.CONST:
            return repr(node.arg)
        if node.op in _GIVEN:
            return node.arg
        if node.op is Ops.BIND:
            name = node.src[0].arg[0]
            known = name in self._variables or name.removesuffix(".seed") in Stream.all
            return None if known else node.val
        if node.op is Ops.BUFFER and node.device in _HOST and node.src[0].arg > self._start:
            buffer = buffer_of(node)
            return None if buffer in self._computed else _shown(as_array(buffer, node.dtype))
        return None


def difference(before: Outlines, now: Outlines) -> tuple[Any, Any, str] | None:
    """What one call was given otherwise than the one before, which did the same: what it was, what
    it is, and the line of the program that uses it."""
    if len(before) != len(now):
        return None
    for one, other in zip(before, now, strict=True):
        if one and other and (found := _difference(one, other)):
            return found
    return None


def _difference(one: Outline, other: Outline) -> tuple[Any, Any, str] | None:
    """Goes down from the roots as far as both are alike: what was computed by one of the calls may
    be in memory for the other."""
    if len(one.roots) != len(other.roots):
        return None
    waiting = [(*pair, "") for pair in zip(one.roots, other.roots, strict=True)]
    seen = set()
    while waiting:
        a, b, line = waiting.pop()
        was, now = one.row(a), other.row(b)
        if (a, b) in seen or was.op is not now.op or len(was.sources) != len(now.sources):
            continue
        seen.add((a, b))
        line = now.origin or line
        if was.given is not None and now.given is not None and was.given != now.given:
            return was.given, now.given, line
        waiting += [(*pair, line) for pair in zip(was.sources, now.sources, strict=True)]
    return None


def _shown(values: np.ndarray[Any, Any]) -> str:
    """Equal for equal bytes; NaNs too."""
    if values.size <= _FEW:
        return f"data {values.tolist()}"
    return f"{values.size:,} elements of data ({hashlib.blake2b(values.tobytes()).hexdigest()[:8]})"
