"""Where temporaries lie while a captured step is replayed. All plans of the step share one arena,
and results that nobody can see after the step (mostly gradients) are treated as temporaries too."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tinygrad.backends import keeps
from tinygrad.engine.run import RunnablePlan
from tinygrad.schedule.memory import shared_places
from tinygrad.schedule.plan import Plan, Storage, shortest


class Source(NamedTuple):
    """The origin of a buffer of a recorded plan: ("input", i, 0), ("made", plan, storage), or
    ("state", i, 0)."""

    kind: str
    first: int
    second: int = 0


def sources_of(plans: Sequence[Plan], params: Sequence[Sequence[Source]]) -> list[list[Source]]:
    """For each storage of each plan, the origin of its bytes; `params` has the origins of the
    plans' parameters."""
    return [
        [
            given[kept.place] if kept.kind == "param" else Source("made", number, storage)
            for storage, kept in enumerate(plan.storages)
        ]
        for number, (plan, given) in enumerate(zip(plans, params, strict=True))
    ]


def hidden(source: Source, kept: Storage, seen: Collection[Source]) -> bool:
    """Whether it is a result that nobody can see after the step."""
    is_result = kept.kind == "out" and source not in seen
    return is_result and isinstance(kept.device, str) and not keeps(kept.device)


def places_in_step(
    plans: Sequence[RunnablePlan],
    sources: Sequence[Sequence[Source]],
    seen: Collection[Source],
    without: Collection[Source] = (),
) -> tuple[dict[Source, int], dict[str, int]]:
    """The place of each storage that lives no longer than the step, except those that it is to do
    `without`, and the sizes of the arenas."""
    made = [each.plan for each in plans]
    temporaries = {
        source: kept
        for own, plan in zip(sources, made, strict=True)
        for source, kept in zip(own, plan.storages, strict=True)
        if (kept.kind == "temp" or hidden(source, kept, seen)) and source not in without
    }
    uses = [
        [own[n] for n in (*step.storages, *step.own)]
        for own, plan in zip(sources, made, strict=True)
        for step in plan.steps
    ]
    return shared_places(temporaries, uses, shortest(plan.largest for plan in made))


def in_one_arena(
    plans: Sequence[RunnablePlan], sources: Sequence[Sequence[Source]], seen: Collection[Source]
) -> list[RunnablePlan]:
    """The plans of a step, in sequence, with places for all storages that live no longer than the
    step. `seen` are those that outlive it."""
    offsets, arenas = places_in_step(plans, sources, seen)
    largest = shortest(each.plan.largest for each in plans)
    settled = []
    for each, own in zip(plans, sources, strict=True):
        storages = [
            dataclasses.replace(kept, kind="temp", place=offsets[source])
            if source in offsets
            else kept
            for source, kept in zip(own, each.plan.storages, strict=True)
        ]
        changed = dataclasses.replace(
            each.plan, storages=tuple(storages), arenas=arenas, largest=largest
        )
        settled.append(each.laid_out(changed))
    return settled
