"""Which temporaries may share storage: lives that don't overlap get the same place in an arena."""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import round_up
from tinygrad.schedule.plan import Plan, Storage

T = TypeVar("T")
ALIGNMENT = 256  # bytes: a device can bind memory at multiples, see `base/windows`
TIGHT = 65 / 64  # an arena this close to the lower bound is good enough
MANY = 2048  # lives: with more, they are not all compared with each other


class Life(NamedTuple):
    """`nbytes` needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int


def arranged(plan: Plan) -> Plan:
    """The plan with a place for each temporary in the arena of its device."""
    temporaries = {n: kept for n, kept in enumerate(plan.storages) if kept.kind == "temp"}
    uses = [(*step.storages, *step.own) for step in plan.steps]
    offsets, arenas = shared_places(temporaries, uses, plan.largest)
    storages = list(plan.storages)
    for n, offset in offsets.items():
        storages[n] = dataclasses.replace(storages[n], place=offset)
    return dataclasses.replace(plan, storages=tuple(storages), arenas=arenas)


def shared_places(
    temporaries: Mapping[T, Storage], uses: Iterable[Iterable[T]], largest: int
) -> tuple[dict[T, int], dict[str, int]]:
    """The place of each temporary in the arena of its device, and the sizes of the arenas. `uses`:
    what each step reads or writes. A temporary that no step uses has no place."""
    first: dict[T, int] = {}
    last: dict[T, int] = {}
    for moment, used in enumerate(uses):
        for each in used:
            first.setdefault(each, moment)
            last[each] = moment
    offsets: dict[T, int] = {}
    arenas: dict[str, int] = {}
    for device in dict.fromkeys(kept.device for kept in temporaries.values()):
        own = [t for t, kept in temporaries.items() if kept.device == device and t in first]
        lives = [Life(temporaries[t].nbytes, first[t], last[t]) for t in own]
        found, total = place(lives, largest)
        offsets.update(zip(own, found, strict=True))
        if total:
            arenas[device] = total
    return offsets, arenas


def with_own_storages(plan: Plan, wanted: Sequence[Sequence[int]]) -> Plan:
    """The plan in which each step gets additional storages of these sizes for itself."""
    if not any(wanted):
        return plan
    storages, steps = list(plan.storages), []
    for step, sizes in zip(plan.steps, wanted, strict=True):
        own = tuple(range(len(storages), len(storages) + len(sizes)))
        storages += [Storage("temp", step.device, dtypes.uint8, size) for size in sizes]
        steps.append(dataclasses.replace(step, own=own))
    return arranged(dataclasses.replace(plan, storages=tuple(storages), steps=tuple(steps)))


def place(lives: Sequence[Life], largest: int = 0) -> tuple[list[int], int]:
    """An offset for each life, and the size of the arena. If the arena consists of buffers of
    `largest` bytes, a multiple of ALIGNMENT, each life lies in one of them; a longer life starts a
    buffer and ends it.

    >>> place([Life(100, 0, 1), Life(100, 1, 2), Life(100, 2, 3)])
    ([0, 256, 0], 512)
    >>> place([Life(300, 0, 1), Life(300, 1, 2)], 768)
    ([0, 768], 1280)
    """
    found = _in_time(lives, largest)
    if len(lives) > MANY or found[1] <= most_live(lives) * TIGHT:
        return found
    return min(found, _by_size(lives, largest), key=lambda placed: placed[1])


def _inside(start: int, size: int, largest: int) -> int:
    """The first place from `start` on that lies in a single buffer."""
    if not largest or start // largest == (start + size - 1) // largest:
        return start
    return round_up(start, largest)


def most_live(lives: Sequence[Life]) -> int:
    """The bytes that are live in the step with the most: a lower bound of the arena."""
    changes: defaultdict[int, int] = defaultdict(int)
    for life in lives:
        changes[life.first] += _rounded(life)
        changes[life.last + 1] -= _rounded(life)
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)


def _by_size(lives: Sequence[Life], largest: int) -> tuple[list[int], int]:
    """The largest first, each at the lowest place that the lives beside it allow."""
    offsets, end = [0] * len(lives), 0
    placed: list[tuple[int, int, Life]] = []  # (start, end), in order
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, i)):
        life, start, size = lives[i], 0, _rounded(lives[i])
        for begins, ends, other in placed:
            if other.first <= life.last and life.first <= other.last:
                if begins >= start + size:
                    break
                start = _inside(max(start, ends), size, largest)
        bisect.insort(placed, (start, start + size, life))
        offsets[i], end = start, max(end, start + size)
    return offsets, end


def _in_time(lives: Sequence[Life], largest: int) -> tuple[list[int], int]:
    """In order of time, each into the smallest gap that can hold it; the last gap is unbounded."""
    offsets, end = [0] * len(lives), 0
    gaps: list[tuple[int, float]] = [(0, math.inf)]  # (start, end), in order
    ending: list[tuple[int, int]] = []  # (last step, number of the life)
    for i in sorted(range(len(lives)), key=lambda i: (lives[i].first, -lives[i].nbytes, i)):
        while ending and ending[0][0] < lives[i].first:
            _, gone = heapq.heappop(ending)
            _open(gaps, offsets[gone], offsets[gone] + _rounded(lives[gone]))
        size = _rounded(lives[i])
        start = _take(gaps, size, largest)
        offsets[i], end = start, max(end, start + size)
        heapq.heappush(ending, (lives[i].last, i))
    return offsets, end


def _take(gaps: list[tuple[int, float]], size: int, largest: int) -> int:
    """Takes `size` bytes of the smallest gap that can hold them, and returns the first."""
    fitting = []
    for begins, ends in gaps:
        if ends - begins >= size:  # where one buffer ends and the next begins, some may be lost
            start = _inside(begins, size, largest)
            if ends - start >= size:
                fitting.append((ends - begins, begins, ends, start))
    _, begins, ends, start = min(fitting)
    at = gaps.index((begins, ends))
    left = ((begins, start), (start + size, ends))
    gaps[at : at + 1] = [gap for gap in left if gap[0] < gap[1]]
    return start


def _open(gaps: list[tuple[int, float]], start: int, end: float) -> None:
    """Frees an interval and merges it with the gaps beside it."""
    at = bisect.bisect(gaps, (start, end))
    if gaps[at][0] == end:
        end = gaps.pop(at)[1]
    if at and gaps[at - 1][1] == start:
        at -= 1
        start = gaps.pop(at)[0]
    gaps.insert(at, (start, end))


def _rounded(life: Life) -> int:
    return round_up(max(life.nbytes, 1), ALIGNMENT)
