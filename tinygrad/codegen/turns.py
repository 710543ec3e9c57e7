"""What the tree's builder knows of the loops that are open: between which numbers they count, and
how often a further one turns within them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tinygrad.base.dtype import dtypes
from tinygrad.loops.layout import fact, name_of, size_of
from tinygrad.loops.nest import Scope
from tinygrad.loops.trims import Stop
from tinygrad.simplify.affine import add, divide
from tinygrad.uop.bounds import Interval, bounds
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


@dataclass(frozen=True)
class Trip:
    """How often a loop turns: from `least` to `most`, the least of `most` and `ends`."""

    least: int
    most: int
    ends: tuple[UOp, ...]
    guarded: bool = False


class Turns:
    """The open loops of a nest, by the scope that binds each."""

    def __init__(self, kernel: UOp) -> None:
        self.bound: dict[UOp, Scope] = {}
        self.trims: dict[str, Stop] = dict(fact(kernel, "trim"))
        self.starts: dict[str, Stop] = dict(fact(kernel, "start"))
        self._facts: dict[UOp, Interval] = {}

    def known(self) -> dict[UOp, Interval]:
        """Between which numbers the open loops count, and what else is known of expressions."""
        counters = {loop: (scope.low, scope.high) for loop, scope in self.bound.items()}
        return {**counters, **self._facts}

    @contextlib.contextmanager
    def assuming(self, facts: Mapping[UOp, Interval]) -> Iterator[None]:
        """Within, counters and limits lie between these numbers."""
        before = self._facts
        self._facts = {**before, **facts}
        yield
        self._facts = before

    def trip(self, loop: UOp) -> Trip:
        """How often `loop` turns."""
        known = self.known()
        ends = {end: bounds(end, known) for end in loop.src}
        guarded = any(low < 1 for low, _ in ends.values())
        trim = self._trim(loop)
        if trim is not None:
            ends[trim] = bounds(trim, known)
        least = min(low for low, _ in ends.values())
        most = min(high for _, high in ends.values())
        if least == most:
            return Trip(least, most, ())
        kept = tuple(e for e, (low, high) in ends.items() if low < most and e.op is not Ops.CONST)
        return Trip(least, most, kept, guarded)

    def _trim(self, loop: UOp) -> UOp | None:
        """Where the loop may stop, as an expression of the loops that are open."""
        return self._bound(self.trims.get(name_of(loop)), late=False)

    def start(self, loop: UOp) -> UOp | None:
        """Where the loop may start, in the same terms; None: at 0."""
        found = self._bound(self.starts.get(name_of(loop)), late=True)
        return found if found is not None and bounds(found, self.known())[1] > 0 else None

    def _bound(self, bound: Stop | None, late: bool) -> UOp | None:
        """A stop, rounded up, or a start, rounded down. None: there is none, or a loop that is not
        open yet has turns that want more."""
        if bound is None:
            return None
        terms, constant, factor = bound
        open_loops = {name_of(r): r for r in self.bound}
        total = UOp.const(dtypes.index, constant + (0 if late else factor - 1))
        for name, coefficient in terms:
            if name in open_loops:
                total = add(total, open_loops[name], coefficient)
            elif (coefficient < 0) is late:
                return None
        return divide(total, factor) if factor != 1 else total

    def is_free(self, range_: UOp, limit: UOp) -> bool:
        """Whether the limit cuts nothing off."""
        return bool(bounds(limit, self.known())[0] >= size_of(range_))
