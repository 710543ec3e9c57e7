"""Which temporaries may share storage: lives that don't overlap get the same place in an arena."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinygrad.base.helpers import round_up

ALIGNMENT = 256


class Life(NamedTuple):
    """`nbytes` needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int


def place(lives: Sequence[Life]) -> tuple[list[int], int]:
    """An offset for each life, and the size of the arena. Largest first, at the lowest gap.

    >>> place([Life(100, 0, 1), Life(100, 1, 2), Life(100, 2, 3)])
    ([0, 256, 0], 512)
    """
    offsets = [0] * len(lives)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, lives[i].first, i)):
        life = lives[i]
        size = round_up(max(life.nbytes, 1), ALIGNMENT)
        at = 0
        for j in sorted(placed, key=offsets.__getitem__):
            other = lives[j]
            if other.last < life.first or life.last < other.first:
                continue
            if at + size <= offsets[j]:
                break
            at = max(at, offsets[j] + round_up(max(other.nbytes, 1), ALIGNMENT))
        offsets[i] = at
        total = max(total, at + size)
        placed.append(i)
    return offsets, total
