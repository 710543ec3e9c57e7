"""A recorded list of plan runs, prepared to be run again as one. Where each storage's bytes come
from is worked out once. A replay then only fills in what differs from the last one, and makes one
native call for each stretch of kernels, even if these belong to several plans.

What nobody can see after a replay (temporaries, and results that the function doesn't return) stays
at the same place from replay to replay, in a *frame*. A replay takes a frame that is not in use, or
makes one; so several threads can replay one capture at the same time.

It knows buffers and plans, but no tensor: whether a call may be replayed is `call`'s to say. Read
`__init__` first (each storage is an input, state, something made earlier, a result that is seen, or
kept), then `run`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tinygrad.base.settings import DEBUG
from tinygrad.engine.faults import Taken, leave, note, noted, spoilt
from tinygrad.engine.layout import Source, in_one_arena, sources_of
from tinygrad.engine.run import DONE, Chain, Over, RunnablePlan, arenas_for
from tinygrad.engine.sharing import any_crooked
from tinygrad.engine.storage import NOTHING, Buffer
from tinygrad.schedule.plan import Storage
from tinygrad.uop.node import UOp


@dataclass
class Execution:
    """One recorded run of a plan, and the graph that it was made of."""

    plan: RunnablePlan
    params: list[Source]
    variables: list[tuple[str, int]]  # name and captured value of each
    sink: UOp | None = None


class Frame(NamedTuple):
    """What is kept between replays: the buffers of all storages, except those that differ from call
    to call; if the step is a single stretch of kernels, the table of their handles; and fault
    words, until one is not zero."""

    buffers: list[Buffer]
    table: list[Any]
    taken: Taken


class Replay:
    """`executions` in order, with the buffers that are kept; `seen` are the results that callers
    get. Storages are numbered across all plans. Frames of more than `most` bytes are not kept."""

    def __init__(
        self,
        executions: Sequence[Execution],
        state: Sequence[Buffer],
        seen: Collection[Source],
        most: int | None = None,
    ) -> None:
        given = [execution.plan for execution in executions]
        params = [execution.params for execution in executions]
        sources = sources_of([plan.plan for plan in given], params)
        plans = in_one_arena(given, sources, seen)
        self.plans, self.params, self.state = plans, params, list(state)
        self._firsts = list(itertools.accumulate(map(len, sources), initial=0))
        self.inputs: list[tuple[int, int]] = []  # (storage, number of the input)
        self.fresh: list[tuple[int, Any, int]] = []  # (storage, device, bytes) of what is seen
        self.made: dict[Source, int] = {}  # the places in `fresh`
        self.same: list[tuple[int, int]] = []  # (storage, the storage that it is)
        self.parts: list[tuple[int, int, int]] = []  # (storage, the whole, number of the part)
        homes: list[Hashable] = list(itertools.chain.from_iterable(sources))
        for number, plan in enumerate(plans):
            first = self._firsts[number]
            for place, kept in enumerate(plan.plan.storages, first):
                self._lay_out(place, sources[number][place - first], kept, seen)
                if kept.kind == "part":
                    self.parts.append((place, first + kept.whole, kept.place))
                    homes[place] = (sources[number][kept.whole], kept.place)
        self._idle: list[Frame] = []
        need = sum(sum(plan.plan.arenas.values()) for plan in plans)
        self._stays = most is None or most >= need
        self.keeps = need if self._stays else 0  # bytes between replays
        counts = [len(execution.variables) for execution in executions]
        self.chain = Chain(plans, counts, homes)
        self.faults = [words for plan in plans for words in plan.faults]
        changing = {place for place, *_ in (*self.inputs, *self.same, *self.fresh)}
        self.parts = [part for part in self.parts if part[1] in changing]
        self._stretch = None if self.parts else self.chain.only
        self._inputs_at, self._made_at = self._positions()

    def _lay_out(self, place: int, source: Source, kept: Storage, seen: Collection[Source]) -> None:
        if source.kind == "input":
            self.inputs.append((place, source.first))
        elif kept.kind == "param" and source.kind == "made":
            self.same.append((place, self._firsts[source.first] + source.second))
        elif kept.kind == "out" and source in seen:
            self.made[source] = len(self.fresh)
            self.fresh.append((place, kept.device, kept.nbytes))

    def _positions(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The positions of the handles of inputs and of results in the table of the only
        stretch."""
        inputs = dict(self.inputs)
        fresh = {place: number for number, (place, _, _) in enumerate(self.fresh)}
        same = dict(self.same)
        positions = self._stretch.positions if self._stretch is not None else {}
        at = [(position, same.get(place, place)) for place, position in positions.items()]
        inputs_at = [(position, inputs[place]) for position, place in at if place in inputs]
        return inputs_at, [(position, fresh[place]) for position, place in at if place in fresh]

    def buffers(self) -> list[Buffer]:
        """New buffers for the results, in the order of `made`."""
        return [Buffer(device, nbytes) for _, device, nbytes in self.fresh]

    def run(
        self, inputs: Sequence[Buffer], values: Sequence[int], made: Sequence[Buffer], over: Over
    ) -> None:
        """Runs all plans, which fill the buffers `made`. If that is left by an error or by Ctrl-C
        and something is `over`, all is, or what it writes is spoilt."""
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = self._frame()
        taken, stretch = frame.taken, self._stretch
        try:
            if stretch is None or DEBUG.value >= 2 or (self.chain.written and any_crooked()):
                self.chain.run(self._filled(frame, inputs, made), values, taken, over)
            else:
                table = frame.table
                for position, number in self._inputs_at:
                    table[position] = inputs[number].handle
                for position, number in self._made_at:
                    table[position] = made[number].handle
                if stretch.extra:  # words of other runs are there, if the chain ran in between
                    stretch.watch(table, taken)
                stretch.launch(table, values, over)
                over.append(DONE)
                stretch.count()
            if noted or spoilt or (taken and any(taken.values())):
                note(self.chain.flow, self._filled(frame, inputs, made), taken, over)
                frame = frame._replace(taken={})
        except BaseException as error:
            self.chain.finish(self._filled(frame, inputs, made), values, taken, over, error)
            raise
        if self._stays:
            self._idle.append(frame)
        else:
            leave(frame.taken)

    def _filled(
        self, frame: Frame, inputs: Sequence[Buffer], made: Sequence[Buffer]
    ) -> list[Buffer]:
        """The buffers of all storages."""
        buffers = frame.buffers.copy()
        for place, number in self.inputs:
            buffers[place] = inputs[number]
        for (place, _, _), buffer in zip(self.fresh, made, strict=True):
            buffers[place] = buffer
        for place, origin in self.same:
            buffers[place] = buffers[origin]
        for place, whole, part in self.parts:
            buffers[place] = buffers[whole].part(part)
        return buffers

    def _frame(self) -> Frame:
        arenas = arenas_for(self.plans)
        seen = {place for place, _, _ in self.fresh}
        buffers: list[Buffer] = []
        for plan, sources in zip(self.plans, self.params, strict=True):
            first = len(buffers)
            given = {n: NOTHING for n in range(len(plan.plan.storages)) if first + n in seen}
            params = [self.state[s.first] if s.kind == "state" else NOTHING for s in sources]
            buffers += plan.storages(params, given, arenas)
        table: list[Any] = []
        if self._stretch is not None:
            same = dict(self.same)
            table = [buffers[same.get(n, n)].handle for n in self._stretch.positions]
            table += [None] * len(self._stretch.extra)
        return Frame(buffers, table, {})
