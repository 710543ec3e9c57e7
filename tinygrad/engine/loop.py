"""SCAN: the same plan run turn by turn, states going back and forth between two sets of buffers.

Inputs and outputs are seen slice by slice, without copies where slices lie as buffers do."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.helpers import prod
from tinygrad.engine.faults import Taken
from tinygrad.engine.plans import runnable_plan
from tinygrad.engine.run import step_runners
from tinygrad.engine.storage import Buffer
from tinygrad.schedule.memory import ALIGNMENT
from tinygrad.schedule.plan import Step
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.scan import ScanInfo


def run_scan(step: Step, buffers: Sequence[Buffer], taken: Taken) -> None:
    """Runs a SCAN step on its storages: wanted results, then sources."""
    node, wanted = step.arg
    info: ScanInfo = node.arg
    results = dict(zip(wanted, buffers, strict=False))
    sources = list(buffers[step.writes :])
    body = UOp.sink(
        *(UOp(Ops.CONTIGUOUS, r.dtype, (r,), tag=i) for i, r in enumerate(info.body.src))
    )
    plan = runnable_plan(body.rebuilt({Ops.DETACH: lambda node: node.src[0]}))
    spare = [[_like(root, step.device) for root in info.body.src] for _ in range(2)]
    states = sources[: info.states]
    inputs = [Slices(x, info.turns) for x in sources[info.states : info.states + info.inputs]]
    outputs = {n: Slices(whole, info.turns) for n, whole in results.items() if n >= info.states}
    for turn in range(info.turns):
        at = info.turns - 1 - turn if info.reverse else turn
        targets = list(spare[turn % 2])
        for number, slices in outputs.items():
            targets[number] = slices.place(at)
        if turn == info.turns - 1:
            targets[: info.states] = [results.get(n, targets[n]) for n in range(info.states)]
        slices_in = [slices.read(at) for slices in inputs]
        params = [*states, *slices_in, *sources[info.states + info.inputs :]]
        plan.run(
            params, plan.plan.values, taken, dict(zip(plan.plan.results, targets, strict=True))
        )
        for slices in outputs.values():
            slices.wrote(at)
        states = targets[: info.states]
    if info.turns == 0:
        for number, whole in results.items():
            if number < info.states:
                whole.write(sources[number].read())


def _like(root: UOp, device: str) -> Buffer:
    return Buffer(device, prod(root.shape) * root.dtype.itemsize)


class Slices:
    """A buffer turn by turn. Kernels count on buffers that begin at a multiple of ALIGNMENT: slices
    that don't are copied to or from a buffer that does."""

    def __init__(self, whole: Buffer, turns: int) -> None:
        self.whole = whole
        self.nbytes = whole.nbytes // turns
        apart = self.nbytes % ALIGNMENT != 0
        self.copy = Buffer(whole.device, self.nbytes) if apart and turns > 1 else None

    def place(self, at: int) -> Buffer:
        """Where a kernel reads or writes slice `at`."""
        return self.copy or self._view(at)

    def read(self, at: int) -> Buffer:
        """Slice `at`, to be read by a kernel."""
        if self.copy is not None:
            self.copy.write(self._view(at).read())
        return self.place(at)

    def wrote(self, at: int) -> None:
        """A kernel wrote slice `at`."""
        if self.copy is not None:
            self._view(at).write(self.copy.read())

    def _view(self, at: int) -> Buffer:
        return self.whole.view(at * self.nbytes, self.nbytes)


step_runners[Ops.SCAN] = run_scan
