"""The numbers and data that a step uses and that come neither from its arguments nor from existing
tensors: constants, offsets of slices, data that the step makes tensors of. The step's Python found
them somewhere (a clock, a file, an iterator), and replays would use those of the captured call for
ever. So the graphs of the captured call are compared with those of the call before it: if they
differ in such a number only, that is an error.

Of the earlier call only *outlines* are kept, which hold none of its memory."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinygrad.engine.realize import Run
from tinygrad.engine.sharing import is_addressable
from tinygrad.engine.storage import Buffer, as_array, buffer_of
from tinygrad.engine.streams import Stream
from tinygrad.engine.structure import met
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

_GIVEN = GroupOp.Movement | {Ops.ARANGE}
_LEAVES = {Ops.CONST, Ops.ARANGE, Ops.BUFFER, Ops.BIND}
_PASSED_ON = {Ops.COPY: 0, Ops.CONTIGUOUS: 0, Ops.ASSIGN: 1}  # the source that passes on its value
_FEW = 8  # elements that are shown


class NodeOutline(NamedTuple):
    """A node: its sources' rows, the values that may differ in another call of the same Python
    code, and, for state, its identity."""

    op: Ops
    sources: tuple[int, ...]
    given: Any
    state: int | None
    origin: str | None


class Outline(NamedTuple):
    """A graph's nodes, sources first, and the numbers of its roots."""

    rows: list[NodeOutline]
    roots: list[int]

    def row(self, number: int) -> NodeOutline:
        """One of the rows. For a copy it is that of what is copied, for a write that of what is
        written, since only one of two calls may need these."""
        row = self.rows[number]
        while row.op in _PASSED_ON:
            row = self.rows[row.sources[_PASSED_ON[row.op]]]
        return row

    def is_memory(self, row: NodeOutline) -> bool:
        """Whether the row is the content of a buffer."""
        while row.op in GroupOp.Movement:
            row = self.row(row.sources[0])
        return row.op is Ops.BUFFER


class Outlines(list[Outline]):
    """The outlines of a call, in the order of computation. `variables` are the names of the
    variables whose values are arguments; `arguments` are the buffers of tensor arguments."""

    def __init__(self, variables: Container[str], arguments: Container[Buffer]) -> None:
        super().__init__()
        self._variables, self._arguments = variables, arguments
        self._start = UOp.unique().arg
        self._computed: weakref.WeakSet[Buffer] = weakref.WeakSet()

    def see(self, run: Run) -> None:
        """Adds what has been computed."""
        self._computed.update([*run.results.values(), *run.written])
        at: dict[UOp, int] = {}
        rows: list[NodeOutline] = []
        for node in run.structure.nodes:
            leads = () if node.op in _LEAVES else tuple(at[met(s, at)] for s in node.src)
            at[node] = len(rows)
            given, state = self._given(node), self._state(node)
            rows.append(NodeOutline(node.op, leads, given, state, node.origin))
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
        if node.op is Ops.BUFFER and is_addressable(node.device) and self._is_new(node):
            return _shown(as_array(buffer_of(node), node.dtype))
        return None

    def _is_new(self, storage: UOp) -> bool:
        """Whether the call made these data, which no expression computed: neither one of the call
        nor one before it whose BUFFER the call was the first to ask for."""
        buffer = buffer_of(storage)
        is_computed = buffer.expression is not None or buffer in self._computed
        return storage.src[0].arg > self._start and not is_computed

    def _state(self, node: UOp) -> int | None:
        if node.op is not Ops.BUFFER or node.src[0].arg > self._start:
            return None
        buffer = buffer_of(node)
        return None if buffer in self._arguments else id(buffer)


def difference(before: Sequence[Outline], now: Sequence[Outline]) -> tuple[Any, Any, str] | None:
    """The value that differs between two calls that otherwise did the same: the old value, the new
    one, and the line of the program that uses it."""
    if len(before) != len(now):
        return None
    for one, other in zip(before, now, strict=True):
        if (found := _difference(one, other)) is not None:
            return found
    return None


def _difference(one: Outline, other: Outline) -> tuple[Any, Any, str] | None:
    """Descends from the roots as far as both are alike: what one call computed may be in memory in
    the other. None if they differ in anything else."""
    if len(one.roots) != len(other.roots):
        return None
    waiting = [(*pair, "") for pair in zip(one.roots, other.roots, strict=True)]
    seen, found = set(), None
    while waiting:
        a, b, line = waiting.pop()
        if (a, b) in seen:
            continue
        seen.add((a, b))
        was, now = one.row(a), other.row(b)
        line = now.origin or line
        if was.op is not now.op or len(was.sources) != len(now.sources):
            if one.is_memory(was) or other.is_memory(now):
                continue
            return None
        if was.state != now.state and was.state is not None and now.state is not None:
            return None
        if was.given != now.given and was.given is not None and now.given is not None:
            found = found or (was.given, now.given, line)
        waiting += [(*pair, line) for pair in zip(was.sources, now.sources, strict=True)]
    return found


def _shown(values: np.ndarray[Any, Any]) -> str:
    """A text that is equal for equal bytes, also for NaNs."""
    if values.size <= _FEW:
        return f"data {values.tolist()}"
    return f"{values.size:,} elements of data ({hashlib.blake2b(values.tobytes()).hexdigest()[:8]})"
