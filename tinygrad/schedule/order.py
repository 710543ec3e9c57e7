"""The order of steps. Of the steps whose sources are ready, one that frees more memory than it
takes is next, else the first in the order of the graph. So a backward pass uses up the activations
of a layer as soon as the gradient arrives there, instead of keeping them all until the weights'
gradients are computed at the end.

Short kernels that are ready are launched together (`schedule/bundles`). There are two kinds:

- Late ones: only other short kernels need what they make, as the updates of a model's parameters
  and what these are made of. They come last, and all that are ready are one launch, unless
  they free memory. Together they may use the memory that is free by then, or half as much as the
  graph was given.
- All others that move few bytes: the first that comes up takes along those that are ready."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from tinygrad.schedule.bases import is_memory, storage_home
from tinygrad.schedule.crossings import Crossing
from tinygrad.schedule.demand import Kernel
from tinygrad.uop.node import UOp

LITTLE = 1 << 16  # bytes that make no difference


@dataclass(eq=False)
class Unit:
    """A unit of execution: a kernel, or a node that is a step of its own."""

    position: int
    reads: list[UOp]
    writes: list[UOp]
    kernel: Kernel | None = None
    crossing: Crossing | None = None  # what the kernel stores of another one
    node: UOp | None = None
    moved: dict[UOp, UOp] = field(default_factory=dict)  # old versions that it reads from copies
    users: dict[Unit, bool] = field(default_factory=dict)  # False: only because it overwrites
    waits: int = 0
    company: Hashable = None  # short units with the same company may be launched together
    is_late: bool = False  # only late units, and copies that nothing waits for, need its results


def put_off(units: Sequence[Unit]) -> None:
    """Decides which short units are late, and lets copies to other devices overlap with kernels: a
    unit that a copy waits for has no company, and one that waits for a copy only has company of its
    kind. A unit that reads only the graph's leaves is moved to right before its first user."""
    units = sorted(units, key=lambda u: u.position)
    behind = set[Unit]()  # copies, and the units that depend on them
    for unit in units:
        if unit.kernel is None:
            behind.add(unit)
        if unit in behind:
            behind.update(user for user, is_made in unit.users.items() if is_made)
    last = set[Unit]()  # copies at the end
    for unit in reversed(units):
        users = [user for user, is_made in unit.users.items() if is_made]
        if unit.company is not None:
            unit.is_late = all(user.is_late or user in last for user in users)
            is_sent = any(user.kernel is None for user in users)
            stays = unit.is_late or (not is_sent and _is_little(unit))
            unit.company = (unit.company, unit in behind) if stays else None
        elif unit.kernel is None and not users:
            last.add(unit)
        if unit.kernel and users and all(map(is_memory, unit.reads)):  # waiting keeps nothing alive
            unit.position = max(unit.position, min(user.position for user in users))


def _is_little(unit: Unit) -> bool:
    return sum(map(_nbytes, (*unit.reads, *unit.writes))) <= LITTLE


class Ready:
    """The units that wait for nothing. `is_temporary` tells of the first version in some storage
    whether that is needed only as long as it is read.

    A unit is entered again when it becomes the last that uses some storage.
    """

    def __init__(
        self, units: Sequence[Unit], is_temporary: Callable[[UOp], bool], given: int
    ) -> None:
        self.units = sorted(units, key=lambda unit: unit.position)
        self.number = {unit: i for i, unit in enumerate(self.units)}
        self.stored: dict[Unit, list[UOp]] = {}  # the temporaries that a unit reads or writes
        self.left: dict[UOp, set[Unit]] = {}  # the remaining units that use a temporary
        self.begun: set[UOp] = set()
        self.live, self.most = 0, given // 2  # bytes of live temporaries, and how many there may be
        self.early = {unit for unit in units if unit.kernel is not None and not unit.is_late}
        self._heap: list[tuple[bool, bool, int]] = []
        self._companies = defaultdict[Hashable, list[int]](list)
        self._taken = set[Unit]()
        for unit in units:
            homes = dict.fromkeys(map(storage_home, (*unit.reads, *unit.writes)))
            self.stored[unit] = [h for h in homes if is_temporary(h)]
            for each in self.stored[unit]:
                self.left.setdefault(each, set()).add(unit)
        for unit in units:
            self.add(unit)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, unit: Unit) -> None:
        """Adds the unit, if it waits for nothing."""
        if unit.waits == 0:
            growth = self._growth(unit)
            comes_last = unit.is_late and growth > -LITTLE
            number = self.number[unit]
            heapq.heappush(self._heap, (comes_last, growth >= 0, number))
            if unit.company is not None:
                heapq.heappush(self._companies[unit.company, unit.is_late], number)

    def take(self) -> list[Unit]:
        """The next unit, and those that are launched with it; none if it was taken before."""
        unit = self.units[heapq.heappop(self._heap)[2]]
        if unit in self._taken:
            return []
        self._taken.add(unit)
        found, free = [unit], self.most - self.live - self._growth(unit)
        company = [] if unit.is_late and self.early else self._companies[unit.company, unit.is_late]
        while company:
            each = self.units[company[0]]
            if each not in self._taken:
                growth = max(0, self._growth(each))
                if unit.is_late and growth > free:
                    break  # a longer search would be repeated in each turn
                self._taken.add(each)
                found.append(each)
                free -= growth
            heapq.heappop(company)
        return found

    def done(self, unit: Unit) -> None:
        """Marks the unit as run: units that are now the last to use some storage may come
        earlier."""
        self.early.discard(unit)
        begun = [home for home in self.stored[unit] if home not in self.begun]
        self.begun.update(begun)
        self.live += sum(map(_nbytes, begun))
        self.most = max(self.most, self.live)
        for home in self.stored[unit]:
            left = self.left[home]
            left.discard(unit)
            if len(left) == 1:
                self.add(next(iter(left)))
            elif not left:
                self.live -= _nbytes(home)

    def _growth(self, unit: Unit) -> int:
        """The bytes of the storage that the unit begins to use, minus those of the storage it is
        the last to use."""
        growth = 0
        for home in self.stored[unit]:
            if home not in self.begun:
                growth += _nbytes(home)
            if len(self.left[home]) == 1:
                growth -= _nbytes(home)
        return growth


def _nbytes(home: UOp) -> int:
    return int(home.size * home.dtype.itemsize)
