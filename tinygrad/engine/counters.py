"""Numbers that advance with each use: the positions of random streams. A value is taken when a
tensor is created; a captured step takes as many again on each replay."""

from __future__ import annotations

from typing import ClassVar


class Counter:
    """A named count. The name is also that of the variable that carries its values in graphs."""

    all: ClassVar[dict[str, Counter]] = {}

    def __init__(self, name: str, value: int = 0) -> None:
        self.name, self.value = name, value
        Counter.all[name] = self

    def take(self, amount: int) -> int:
        """The value before it advances by `amount`."""
        before = self.value
        self.value += amount
        return before
