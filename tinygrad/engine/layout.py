"""Where temporaries lie while a captured step is replayed: all its plans share one arena, and what
they made that nobody sees afterwards (gradients, mostly) is a temporary too."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tinygrad.backends import keeps
from tinygrad.engine.run import RunnablePlan
from tinygrad.schedule.memory import Life, place
from tinygrad.schedule.plan import Plan, shortest


class Source(NamedTuple):
    """Where a buffer of a recorded plan comes from: ("input", i, 0), ("made", plan, storage), or
    ("state", i, 0)."""

    kind: str
    first: int
    second: int = 0


def sources_of(plans: Sequence[Plan], params: Sequence[Sequence[Source]]) -> list[list[Source]]:
    """For each storage of each plan where its bytes come from; `params` says that of what plans
    are given."""
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
    """The plans of a step, one after the other, with places for all that lives no longer than it.
    `seen` is what outlives the step."""
    made = [each.plan for each in plans]

    def ends(source: Source) -> bool:
        """Whether it is gone after the step."""
        if source.kind != "made":
            return False
        kept = made[source.first].storages[source.second]
        is_hidden = kept.kind == "out" and source not in seen and isinstance(kept.device, str)
        return kept.kind == "temp" or (is_hidden and not keeps(kept.device))

    lives: dict[Source, Life] = {}
    steps = ((number, step) for number, plan in enumerate(made) for step in plan.steps)
    for moment, (number, step) in enumerate(steps):
        for storage in (*step.storages, *step.own):
            source = sources[number][storage]
            if ends(source):
                kept = made[source.first].storages[source.second]
                first = lives[source].first if source in lives else moment
                lives[source] = Life(kept.nbytes, first, moment)
    largest = shortest(plan.largest for plan in made)
    offsets, arenas = _placed(made, lives, largest)
    settled = []
    for each, plan, own in zip(plans, made, sources, strict=True):
        storages = [
            kept
            if source not in offsets
            else dataclasses.replace(kept, kind="temp", place=offsets[source])
            for source, kept in zip(own, plan.storages, strict=True)
        ]
        changed = dataclasses.replace(
            plan, storages=tuple(storages), arenas=arenas, largest=largest
        )
        settled.append(each.laid_out(changed))
    return settled


def _placed(
    made: Sequence[Plan], lives: dict[Source, Life], largest: int
) -> tuple[dict[Source, int], dict[str, int]]:
    """The place of each in the arena of its device, and the sizes of the arenas."""
    of_device: defaultdict[str, list[Source]] = defaultdict(list)
    for source in lives:
        of_device[made[source.first].storages[source.second].device].append(source)
    offsets: dict[Source, int] = {}
    arenas: dict[str, int] = {}
    for device, sources in of_device.items():
        found, arenas[device] = place([lives[source] for source in sources], largest)
        offsets.update(zip(sources, found, strict=True))
    return offsets, arenas
