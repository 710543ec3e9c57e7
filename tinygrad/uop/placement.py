"""Where a value on several devices lies: completely on each of them, or cut into parts, one for
each device.

A cut is defined on the elements in row-major order, so it means the same for every shape. The
elements are seen as (outer, size, inner), and part p has the range bounds[p] to bounds[p + 1] of
the middle axis. A device holds its part, row-major, in a flat buffer of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import plain, prod


class Cut(NamedTuple):
    """How elements are dealt out: see above. `bounds` goes from 0 to the size of the axis."""

    outer: int
    bounds: tuple[int, ...]

    def on(self, shape: Sequence[Any]) -> tuple[int, tuple[int, ...]] | None:
        """The axis of `shape` that is cut, and where; None if that is no single axis.

        >>> Cut(2, (0, 3, 6)).on((2, 6)), Cut(1, (0, 4, 8)).on((4, 2)), Cut(2, (0, 3, 6)).on((12,))
        ((1, (0, 3, 6)), (0, (0, 2, 4)), None)
        """
        before, size = 1, self.bounds[-1]
        for axis, n in enumerate(shape):
            if not isinstance(n, int):
                return None
            if before == self.outer and all(b * n % size == 0 for b in self.bounds):
                return axis, tuple(b * n // size for b in self.bounds)
            before *= n
        return None

    def share(self, part: int, elements: int) -> int:
        """How many of so many elements are in a part."""
        begin, end = self.bounds[part : part + 2]
        return elements * (end - begin) // self.bounds[-1]


def cut_at(shape: Sequence[Any], axis: int, bounds: Sequence[int]) -> Cut | None:
    """The cut of `shape` along `axis`; None behind an axis of symbolic size."""
    lead = shape[:axis]
    return Cut(prod(lead), tuple(bounds)) if all(isinstance(n, int) for n in lead) else None


class Placement(NamedTuple):
    """The devices by name, and how a value is cut over them; None: each has all of it."""

    names: tuple[str, ...]
    cut: Cut | None = None

    def sizes(self, elements: int) -> tuple[int, ...]:
        """How many of so many elements lie on each device."""
        if self.cut is None:
            return (elements,) * len(self.names)
        return tuple(self.cut.share(part, elements) for part in range(len(self.names)))

    def __str__(self) -> str:
        how = "each" if self.cut is None else f"cut at {list(self.cut.bounds)}"
        return f"({', '.join(self.names)}; {how})"


Place = str | Placement
"""What a DEVICE names."""


def placed(device: Any) -> Place:
    """A device name as it is; several names as a Placement where each device has the whole value.

    >>> placed("CPU"), placed(("CPU", "CPU:1")).cut
    ('CPU', None)
    """
    if isinstance(device, (str, Placement)):
        return device
    return Placement(tuple(device))


def names_of(device: Any) -> tuple[str, ...]:
    """The names of one device or of several.

    >>> names_of("CPU"), names_of(Placement(("CPU", "CPU:1")))
    (('CPU',), ('CPU', 'CPU:1'))
    """
    return (device,) if isinstance(device, str) else placed(device).names  # type: ignore[union-attr]


def even_bounds(size: int, parts: int, splits: Sequence[int] | None = None) -> tuple[int, ...]:
    """Where an axis of `size` is cut into that many parts, as evenly as possible and the larger
    ones first; or into parts of the sizes `splits`. If the axis is short, some parts are empty.

    >>> even_bounds(10, 4), even_bounds(5, 2, (1, 4)), even_bounds(1, 2)
    ((0, 3, 6, 8, 10), (0, 1, 5), (0, 1, 1))
    """
    if splits is None:
        least, more = divmod(size, parts)
        splits = [least + (part < more) for part in range(parts)]
    splits = [plain(n) for n in splits]
    are_sizes = all(type(n) is int and n >= 0 for n in splits)
    if len(splits) != parts or sum(splits) != size or not are_sizes:
        raise ArgumentError(
            f"shard: an axis of size {size} over {parts} devices in parts {tuple(splits)}; legal "
            "is a size for each device, which add up to the axis"
        )
    return tuple(accumulate(splits, initial=0))
