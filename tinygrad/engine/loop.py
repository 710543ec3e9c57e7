"""SCAN: the same plan run turn by turn, states going back and forth between two sets of buffers,
inputs and outputs seen slice by slice without copies."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.helpers import prod
from tinygrad.engine.plans import runnable_plan
from tinygrad.engine.run import RunnablePlan, step_runners
from tinygrad.engine.storage import Buffer
from tinygrad.schedule.plan import Step
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.scan import ScanInfo


def run_scan(step: Step, buffers: Sequence[Buffer]) -> None:
    """Runs a SCAN step on its storages: wanted results, then sources."""
    node, wanted = step.arg
    info: ScanInfo = node.arg
    results = dict(zip(wanted, buffers, strict=False))
    sources = list(buffers[step.writes :])
    body = UOp.sink(
        *(UOp(Ops.CONTIGUOUS, r.dtype, (r,), tag=i) for i, r in enumerate(info.body.src))
    )
    plan = runnable_plan(body)
    spare = [[_like(root, step.device) for root in info.body.src] for _ in range(2)]
    states = sources[: info.states]
    for turn in range(info.turns):
        at = info.turns - 1 - turn if info.reverse else turn
        targets = list(spare[turn % 2])
        for number, whole in results.items():
            if number >= info.states:
                targets[number] = _slice(whole, at, info.turns)
            elif turn == info.turns - 1:
                targets[number] = whole
        inputs = [
            _slice(x, at, info.turns) for x in sources[info.states : info.states + info.inputs]
        ]
        _turn(plan, [*states, *inputs, *sources[info.states + info.inputs :]], targets)
        states = targets[: info.states]
    if info.turns == 0:
        for number, whole in results.items():
            if number < info.states:
                whole.write(sources[number].read())


def _turn(plan: RunnablePlan, params: list[Buffer], targets: list[Buffer]) -> None:
    plan.run(params, [], dict(zip(plan.plan.results, targets, strict=True)))


def _like(root: UOp, device: str) -> Buffer:
    return Buffer(device, prod(root.shape) * root.dtype.itemsize)


def _slice(whole: Buffer, at: int, turns: int) -> Buffer:
    nbytes = whole.nbytes // turns
    return whole.view(at * nbytes, nbytes)


step_runners[Ops.SCAN] = run_scan
