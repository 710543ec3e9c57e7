"""Results of a captured step that nobody reads: after the step nobody can see them (mostly
gradients that the step itself zeroes), and in the step, what is made of them is made where they are
computed (an optimizer's update). If storing them takes much of the step's memory, its plans are
made anew without them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tinygrad.base.helpers import garbage_kept
from tinygrad.engine.faults import touches_of
from tinygrad.engine.layout import Source, hidden, places_in_step, sources_of
from tinygrad.engine.plans import runnable_plan
from tinygrad.engine.replay import Execution
from tinygrad.engine.run import RunnablePlan
from tinygrad.engine.turns import preparing
from tinygrad.schedule.plan import Plan
from tinygrad.uop import Ops, UOp

WORTH = 7 / 8  # of the temporaries' bytes: with more left, kernels aren't compiled again

_NEEDED = (Ops.DEFINE_VAR, Ops.ASSIGN)
"""What a plan must do, or be given, even if only results that are left out depend on it."""


def without_unread(executions: Sequence[Execution], seen: Collection[Source]) -> list[Execution]:
    """The executions, which leave out results that are neither read nor `seen`."""
    plans = [each.plan for each in executions]
    sources = sources_of([each.plan for each in plans], [each.params for each in executions])
    pairs = list(zip(sources, plans, strict=True))
    read = {source for each in executions for source in each.params}
    read |= {own[n] for own, each in pairs for n in _read_in(each.plan)}
    unread = {
        source
        for own, each in pairs
        for source, kept in zip(own, each.plan.storages, strict=True)
        if hidden(source, kept, seen) and source not in read
    }
    now, then = (
        sum(places_in_step(plans, sources, seen, without)[1].values()) for without in ((), unread)
    )
    if then > WORTH * now:
        unread = set()
    made = [_without(e, n, unread) for n, e in enumerate(executions)]
    return [replace(each, sink=None) for each in made]


def _read_in(plan: Plan) -> Iterator[int]:
    """The storages that steps of the plan read."""
    for step in plan.steps:
        for read, _, _ in touches_of(step):
            yield from (step.storages[slot] for slot in read)


def _without(execution: Execution, number: int, unread: Collection[Source]) -> Execution:
    """The execution of a plan that has the same storages, but for those that are unread."""
    old, sink = execution.plan.given, execution.sink
    left = [i for i, n in enumerate(old.results) if Source("made", number, n) not in unread]
    if sink is None or not 0 < len(left) < len(old.results):
        return execution
    less = UOp.sink(*[sink.src[i] for i in left])
    kept = [{n for n in s.toposort() if n.op in _NEEDED} for s in (sink, less)]
    if kept[0] != kept[1] or any(each.kind == "part" for each in old.storages):
        return execution
    with preparing.now, garbage_kept():
        made = runnable_plan(less)
    if made.given.values != old.values:  # it would take other arguments
        return execution
    plan = _numbered_as(made.given, old, [old.results[i] for i in left])
    return replace(execution, plan=RunnablePlan(plan, made.keys))


def _numbered_as(plan: Plan, old: Plan, results: Sequence[int]) -> Plan:
    """The plan, in which parameters have the numbers that they have in `old`, and results these."""
    numbers = dict(zip(plan.results, results, strict=True))
    params = {kept.place: n for n, kept in enumerate(old.storages) if kept.kind == "param"}
    storages = [replace(kept, kind="unused") for kept in old.storages]
    for n, kept in enumerate(plan.storages):
        if kept.kind == "param":
            numbers[n] = params[kept.place]
        elif n not in numbers:
            numbers[n] = len(storages)
            storages.append(kept)
        storages[numbers[n]] = kept
    steps = [replace(s, storages=tuple(numbers[n] for n in s.storages)) for s in plan.steps]
    return replace(plan, storages=tuple(storages), steps=tuple(steps), results=tuple(results))
