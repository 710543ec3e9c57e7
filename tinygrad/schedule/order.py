"""Which step next: of those whose sources are there, one that frees more memory than it takes,
else the first in the graph's order. A backward pass then uses up a layer's activations as soon as
the gradient reaches them, instead of keeping all of them for weights' gradients at the end."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tinygrad.schedule.demand import Kernel
from tinygrad.uop.node import UOp


@dataclass(eq=False)
class Unit:
    """Something that runs as a whole: a kernel, or a node that is a step of its own."""

    position: int
    reads: list[UOp]
    writes: list[UOp]
    kernel: Kernel | None = None
    node: UOp | None = None
    moved: dict[UOp, UOp] = field(default_factory=dict)  # old versions that it reads elsewhere
    users: dict[Unit, bool] = field(default_factory=dict)  # False: only because it overwrites
    waits: int = 0


class Ready:
    """The units that wait for nothing. `home` gives the first version that lived where a version
    lives, `is_temporary` says of such a one that its storage is needed no longer than it is read.

    A unit is entered again when it becomes the last that uses some storage; what was taken out
    before is skipped by whoever takes units out.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        home: Callable[[UOp], UOp],
        is_temporary: Callable[[UOp], bool],
    ) -> None:
        self.number = {unit: i for i, unit in enumerate(units)}
        self.units = units
        self.stored: dict[Unit, list[UOp]] = {}  # the temporaries that a unit reads or writes
        self.left: dict[UOp, set[Unit]] = {}  # the units to come that do
        self.begun: set[UOp] = set()
        self._heap: list[tuple[bool, int, int]] = []
        for unit in units:
            homes = dict.fromkeys(map(home, (*unit.reads, *unit.writes)))
            self.stored[unit] = [h for h in homes if is_temporary(h)]
            for each in self.stored[unit]:
                self.left.setdefault(each, set()).add(unit)
        for unit in units:
            self.add(unit)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, unit: Unit) -> None:
        """Enters the unit, if it waits for nothing."""
        if unit.waits == 0:
            entry = (self._grows(unit), unit.position, self.number[unit])
            heapq.heappush(self._heap, entry)

    def take(self) -> Unit:
        """The next unit, or one that was taken before."""
        return self.units[heapq.heappop(self._heap)[2]]

    def done(self, unit: Unit) -> None:
        """The unit has run: those that are now the last to use some storage may come earlier."""
        self.begun.update(self.stored[unit])
        for home in self.stored[unit]:
            left = self.left[home]
            left.discard(unit)
            if len(left) == 1:
                self.add(next(iter(left)))

    def _grows(self, unit: Unit) -> bool:
        """Whether more bytes are taken by what it begins than freed by what it is the last of."""
        growth = 0
        for home in self.stored[unit]:
            nbytes = home.size * home.dtype.itemsize
            if home not in self.begun:
                growth += nbytes
            if len(self.left[home]) == 1:
                growth -= nbytes
        return growth >= 0
