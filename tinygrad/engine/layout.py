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


def in_one_arena(
    plans: Sequence[RunnablePlan], sources: Sequence[Sequence[Source]], seen: Collection[Source]
) -> list[RunnablePlan]:
    """The plans of a step, in sequence, with places for all storages that live no longer than the
    step. `seen` are those that outlive it."""
    made = [each.plan for each in plans]

    def ends(source: Source, kept: Storage) -> bool:
        """Whether it is made in the step and not needed after it."""
        is_hidden = kept.kind == "out" and source not in seen and isinstance(kept.device, str)
        return kept.kind == "temp" or (is_hidden and not keeps(kept.device))

    storages_of = [
        list(zip(own, plan.storages, strict=True)) for own, plan in zip(sources, made, strict=True)
    ]
    temporaries = {s: kept for pairs in storages_of for s, kept in pairs if ends(s, kept)}
    uses = [
        [own[n] for n in (*step.storages, *step.own)]
        for own, plan in zip(sources, made, strict=True)
        for step in plan.steps
    ]
    largest = shortest(plan.largest for plan in made)
    offsets, arenas = shared_places(temporaries, uses, largest)
    settled = []
    for each, pairs in zip(plans, storages_of, strict=True):
        storages = [
            dataclasses.replace(kept, kind="temp", place=offsets[source])
            if source in offsets
            else kept
            for source, kept in pairs
        ]
        changed = dataclasses.replace(
            each.plan, storages=tuple(storages), arenas=arenas, largest=largest
        )
        settled.append(each.laid_out(changed))
    return settled
