"""Steps on several devices at the same time. The steps of one device, and the copies to one device,
are a *lane*: they run in order. A lane waits for another one only where a step needs what the other
has made, or overwrites what the other still reads. Between such points lie *segments*. So devices
compute at the same time, and copies overlap with computation.

`segments_of` finds the segments once for a plan; `run_lanes` runs them, with a thread for each
lane."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ENOUGH_WORK = 2_000_000
"""Nanoseconds of work for which starting threads is worth it."""


class Touch(NamedTuple):
    """A step's access to a piece of memory, which `home` identifies. Temporaries that share an
    arena have a `span`: (arena, first byte, end)."""

    home: Hashable
    writes: bool
    span: tuple[Hashable, int, int] | None = None


@dataclass
class Segment:
    """Consecutive steps of one lane. `waits` are the segments to wait for before the first of them;
    `awaited`: some segment waits for this one."""

    lane: Hashable
    steps: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    awaited: bool = False


def segments_of(
    lanes: Sequence[Hashable], touches: Sequence[Sequence[Touch]], alone: Sequence[bool]
) -> list[Segment]:
    """The segments of a list of steps, in an order in which they may also run one by one. A step
    that is `alone` shares no segment."""
    waits = _waits(lanes, touches)
    awaited = {step for found in waits for step in found}
    segments: list[Segment] = []
    number_of: dict[int, int] = {}  # step → its segment
    open_one: dict[Hashable, int] = {}  # lane → the segment that may grow
    for step, lane in enumerate(lanes):
        if waits[step] or alone[step] or lane not in open_one:
            open_one[lane] = len(segments)
            segments.append(Segment(lane, waits=sorted({number_of[w] for w in waits[step]})))
        number = number_of[step] = open_one[lane]
        segments[number].steps.append(step)
        if step in awaited:
            segments[number].awaited = True
        if step in awaited or alone[step]:
            del open_one[lane]
    return segments


def _waits(lanes: Sequence[Hashable], touches: Sequence[Sequence[Touch]]) -> list[list[int]]:
    """For each step, the steps of other lanes to wait for: the last one of each lane."""
    writer: dict[Hashable, int] = {}
    readers: defaultdict[Hashable, list[int]] = defaultdict(list)
    spans: defaultdict[Hashable, dict[Hashable, tuple[int, int]]] = defaultdict(dict)
    seen: defaultdict[tuple[Hashable, Hashable], int] = defaultdict(lambda: -1)
    found = []
    for step, lane in enumerate(lanes):
        needed: set[int] = set()
        for home, writes, span in touches[step]:
            homes = [home]
            if span is not None and home not in spans[span[0]]:  # earlier users of these bytes
                arena, first, end = span
                kept = spans[arena]
                over = [h for h, (a, b) in kept.items() if a < end and first < b]
                for covered in [h for h in over if first <= kept[h][0] and kept[h][1] <= end]:
                    del kept[covered]  # later users wait for this one
                homes += over
                kept[home] = (first, end)
            for each in homes:
                if each in writer:
                    needed.add(writer[each])
                if writes:
                    needed.update(readers[each])
        latest: dict[Hashable, int] = {}
        for other in sorted(needed):
            if lanes[other] != lane:
                latest[lanes[other]] = other
        found.append([s for at, s in latest.items() if s > seen[lane, at]])
        for at, other in latest.items():
            seen[lane, at] = max(other, seen[lane, at])
        for home, writes, _ in touches[step]:
            if writes:
                writer[home] = step
                readers[home].clear()
            else:
                readers[home].append(step)
    return found


def run_lanes(
    segments: Sequence[Segment], launch: Callable[[int], Any], finish: Callable[[int], Any]
) -> None:
    """Runs all segments, the lanes in parallel. `launch` starts a segment by its number, `finish`
    waits until it is over. The first error is raised when all lanes have stopped."""
    events = {n: threading.Event() for n, segment in enumerate(segments) if segment.awaited}
    lanes: defaultdict[Hashable, list[int]] = defaultdict(list)
    for number, segment in enumerate(segments):
        lanes[segment.lane].append(number)
    failed: list[BaseException] = []

    def go(numbers: list[int]) -> None:
        try:
            for number in numbers:
                for other in segments[number].waits:
                    events[other].wait()
                if failed:
                    return
                launch(number)
                if number in events:
                    finish(number)
                    events[number].set()
        except BaseException as error:
            failed.append(error)
        finally:
            for number in numbers:  # so that no one waits for ever
                if number in events:
                    events[number].set()

    first, *others = lanes.values()
    threads = [threading.Thread(target=go, args=(numbers,), daemon=True) for numbers in others]
    for thread in threads:
        thread.start()
    go(first)
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
