"""A recorded list of plan runs, as one thing to do again: where each storage's bytes come from is
settled once, so that a replay fills in what differs and makes one native call for each stretch of
kernels, however many plans they came from.

What nobody sees after a replay (temporaries, and results that are not the function's own) keeps its
place between replays, in a *frame*. A replay takes an idle frame or makes one, so that threads may
replay the same capture at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinygrad.engine.layout import Source, in_one_arena
from tinygrad.engine.run import Chain, RunnablePlan, arenas_for
from tinygrad.engine.storage import NOTHING, Buffer


@dataclass
class Execution:
    """One recorded run of a plan."""

    plan: RunnablePlan
    params: list[Source]
    variables: list[tuple[str, int]]  # name and captured value of each


class Replay:
    """`executions` in order, with the buffers that stay; `seen` are the results that callers get.
    Storages are numbered through all plans."""

    def __init__(
        self, executions: Sequence[Execution], state: Sequence[Buffer], seen: Collection[Source]
    ) -> None:
        params = [execution.params for execution in executions]
        plans = in_one_arena([execution.plan for execution in executions], params, seen)
        pairs = zip(executions, plans, strict=True)
        self.executions = [replace(execution, plan=plan) for execution, plan in pairs]
        self.state = list(state)
        self.firsts: list[int] = []
        self.inputs: list[tuple[int, int]] = []  # (storage, number of the input)
        self.fresh: list[tuple[int, Any, int]] = []  # (storage, device, bytes) of what is seen
        self.again: list[tuple[int, int]] = []  # (storage, the storage that it is)
        self.parts: list[tuple[int, int, int]] = []  # (storage, the whole, number of the part)
        self.filled: list[int] = []  # the places of these
        self._idle: list[list[Buffer]] = []
        total = 0
        for number, execution in enumerate(self.executions):
            self.firsts.append(total)
            self._lay_out(number, execution, seen)
            total += len(execution.plan.plan.storages)
        counts = [len(execution.variables) for execution in executions]
        self.chain = Chain(plans, counts, self._homes())
        self.filled += [place for place, _ in self.inputs + self.again]
        self.filled += [place for place, _, _ in self.fresh]
        changing = set(self.filled)
        self.parts = [part for part in self.parts if part[1] in changing]
        self.filled += [place for place, _, _ in self.parts]

    def _lay_out(self, number: int, execution: Execution, seen: Collection[Source]) -> None:
        for place, kept in enumerate(execution.plan.plan.storages, self.firsts[-1]):
            if kept.kind == "param":
                source = execution.params[kept.place]
                if source.kind == "input":
                    self.inputs.append((place, source.first))
                elif source.kind == "made":
                    self.again.append((place, self.place(source)))
            elif kept.kind == "out" and Source("made", number, place - self.firsts[-1]) in seen:
                self.fresh.append((place, kept.device, kept.nbytes))
            elif kept.kind == "part":
                self.parts.append((place, self.firsts[-1] + kept.whole, kept.place))

    def _homes(self) -> list[Hashable]:
        """For each storage what it is: the same for storages that are the same."""
        homes: list[Hashable] = []
        for execution in self.executions:
            first = len(homes)
            kept = execution.plan.plan.storages
            homes += range(first, first + len(kept))
            for place, each in enumerate(kept, first):
                if each.kind == "param":
                    source = execution.params[each.place]
                    homes[place] = homes[self.place(source)] if source.kind == "made" else source
            for place, each in enumerate(kept, first):
                if each.kind == "part":
                    homes[place] = (homes[first + each.whole], each.place)
        return homes

    def place(self, source: Source) -> int:
        """The number of a storage that a plan made."""
        return self.firsts[source.first] + source.second

    def run(self, inputs: Sequence[Buffer], values: Sequence[int]) -> list[Buffer]:
        """Runs all plans; the buffers of all storages, for as long as `done` wasn't told."""
        buffers = self._idle.pop() if self._idle else self._frame()
        for place, number in self.inputs:
            buffers[place] = inputs[number]
        for place, device, nbytes in self.fresh:
            buffers[place] = Buffer(device, nbytes)
        for place, made in self.again:
            buffers[place] = buffers[made]
        for place, whole, part in self.parts:
            buffers[place] = buffers[whole].part(part)
        self.chain.run(buffers, values)
        return buffers

    def done(self, buffers: list[Buffer]) -> None:
        """Gives a frame back; what was seen or came in is not kept with it."""
        for place in self.filled:
            buffers[place] = NOTHING
        self._idle.append(buffers)

    def _frame(self) -> list[Buffer]:
        arenas = arenas_for([execution.plan for execution in self.executions])
        seen = {place for place, _, _ in self.fresh}
        buffers: list[Buffer] = []
        for execution in self.executions:
            first = len(buffers)
            storages = execution.plan.plan.storages
            given = {n: NOTHING for n in range(len(storages)) if first + n in seen}
            params = [
                self.state[s.first] if s.kind == "state" else NOTHING for s in execution.params
            ]
            buffers += execution.plan.storages(params, given, arenas)
        return buffers
