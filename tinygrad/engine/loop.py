"""SCAN: the same plan run turn by turn, states going back and forth between two sets of buffers.

Inputs and outputs are seen slice by slice, without copies where slices lie as buffers do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tinygrad.base.helpers import round_up
from tinygrad.engine.devices import Device
from tinygrad.engine.faults import Taken
from tinygrad.engine.plans import runnable_plan, settings_of_plans
from tinygrad.engine.run import RunnablePlan, arenas_for, step_runners
from tinygrad.engine.storage import Buffer
from tinygrad.engine.turns import preparing
from tinygrad.schedule.memory import ALIGNMENT
from tinygrad.schedule.plan import Step
from tinygrad.uop import Ops, UOp
from tinygrad.uop.scan import ScanInfo

MOST_BODIES = 256
"""The most bodies whose plans are kept; the least recently used is dropped first."""


def run_scan(step: Step, buffers: Sequence[Buffer], taken: Taken) -> None:
    """Runs a SCAN step on its storages: wanted results, then sources."""
    node, wanted = step.arg
    info: ScanInfo = node.arg
    results = dict(zip(wanted, buffers, strict=False))
    sources = list(buffers[step.writes :])
    plan = _plan_of_a_turn(info.body, settings_of_plans())
    sizes = [root.size * root.dtype.itemsize for root in info.body.src]
    spare = [[Buffer(step.device, size) for size in sizes] for _ in range(2)]
    inputs = [Slices(x, info.turns) for x in sources[info.states : info.states + info.inputs]]
    outputs = {n: Slices(whole, info.turns) for n, whole in results.items() if n >= info.states}
    given = [*(slices.here for slices in inputs), *sources[info.states + info.inputs :]]
    arenas, tables = arenas_for([plan]), dict[tuple[bool, bool, int], list[Buffer]]()
    for slices in inputs:
        slices.fill()
    for turn in range(info.turns):
        at = info.turns - 1 - turn if info.reverse else turn
        for slices in (*inputs, *outputs.values()):
            slices.go_to(at)
        kind = (turn == 0, turn == info.turns - 1, turn % 2)
        if kind not in tables:
            states = sources if kind[0] else spare[1 - kind[2]]
            targets = [*spare[kind[2]]]
            if kind[1]:
                targets = [results.get(n, targets[n]) for n in range(len(targets))]
            for number, slices in outputs.items():
                targets[number] = slices.here
            params = [*states[: info.states], *given]
            made = dict(zip(plan.plan.results, targets, strict=True))
            tables[kind] = plan.storages(params, made, arenas)
        plan.chain.run(tables[kind], plan.plan.values, taken, [])
    for slices in outputs.values():
        slices.drain()
    if info.turns == 0:
        for number, whole in results.items():
            if number < info.states:
                whole.write(sources[number].read())


@lru_cache(MOST_BODIES)
def _plan_of_a_turn(body: UOp, settings: tuple[object, ...]) -> RunnablePlan:
    """The plan of a loop's body, by the settings that it is made under."""
    roots = [UOp(Ops.CONTIGUOUS, r.dtype, (r,), tag=i) for i, r in enumerate(body.src)]
    with preparing.now:
        return runnable_plan(UOp.sink(*roots).rebuilt({Ops.DETACH: lambda node: node.src[0]}))


class Slices:
    """A buffer, turn by turn: `here` is the slice that kernels read or write, which is moved from
    turn to turn. Kernels rely on buffers that begin at a multiple of ALIGNMENT: if slices don't,
    there is a copy in which they do."""

    def __init__(self, whole: Buffer, turns: int) -> None:
        self.whole, self.turns = whole, turns
        self.nbytes = whole.nbytes // max(1, turns)
        self.apart = round_up(self.nbytes, ALIGNMENT)  # from slice to slice
        self.is_copy = self.apart != self.nbytes and turns > 1
        self.places = Buffer(whole.device, turns * self.apart) if self.is_copy else whole
        self.here = self.places.view(0, self.nbytes) if turns else whole
        self._view = Device[whole.device].backend.memory.view

    def go_to(self, at: int) -> None:
        """Moves `here` to slice `at`."""
        self.here.handle = self._view(self.places.handle, at * self.apart)

    def fill(self) -> None:
        """Copies the data to be read into the aligned copy."""
        if self.is_copy:
            made = np.zeros((self.turns, self.apart), np.uint8)
            made[:, : self.nbytes] = np.frombuffer(self.whole.read(), np.uint8).reshape(
                self.turns, self.nbytes
            )
            self.places.write(made.reshape(-1).data)

    def drain(self) -> None:
        """Copies written data from the aligned copy to their place."""
        if self.is_copy:
            made = np.frombuffer(self.places.read(), np.uint8).reshape(self.turns, self.apart)
            self.whole.write(np.ascontiguousarray(made[:, : self.nbytes]).reshape(-1).data)


step_runners[Ops.SCAN] = run_scan
