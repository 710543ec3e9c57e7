"""What the builder of the loop tree knows of the open loops: between which numbers each counts, and
how often a further loop turns inside them."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.loops.nest import NestScope
from tinygrad.loops.roles import name_of, size_of
from tinygrad.loops.trims import Stop, ends_of
from tinygrad.simplify.affine import add, divide
from tinygrad.simplify.forms import number
from tinygrad.uop import Ops, UOp
from tinygrad.uop.bounds import Interval, bounds


@dataclass(frozen=True)
class Trip:
    """The number of turns of a loop: the least of `most` and `ends`. `guarded`: its one turn may be
    one too many."""

    most: int
    ends: tuple[UOp, ...]
    guarded: bool = False


class OpenLoops:
    """The open loops of a nest, each with the scope that binds it."""

    def __init__(self, kernel: UOp) -> None:
        self.bound: dict[UOp, NestScope] = {}
        self.trims = ends_of(kernel, "trim")
        self.starts = ends_of(kernel, "start")

    def known(self) -> dict[UOp, Interval]:
        """The intervals of the open loops' counters."""
        return {loop: (scope.low, scope.high) for loop, scope in self.bound.items()}

    def trip(self, loop: UOp) -> Trip:
        """How often `loop` turns."""
        known = self.known()
        ends = {end: bounds(end, known) for end in loop.src}
        guarded = any(self._may_begin_beyond(loop, limit) for limit in loop.src[1:])
        trim = self._trim(loop)
        if trim is not None:
            ends[trim] = bounds(trim, known)
        least = min(low for low, _ in ends.values())
        most = min(high for _, high in ends.values())
        if least == most:
            return Trip(most, ())
        kept = tuple(e for e, (low, high) in ends.items() if low < most and e.op is not Ops.CONST)
        return Trip(most, kept, guarded)

    def _may_begin_beyond(self, loop: UOp, limit: UOp) -> bool:
        """Whether the one turn that a loop always takes may lie beyond this limit."""
        start, known = self.start(loop), self.known()
        least = bounds(limit, known)[0]
        if start is None:
            return bool(least < 1)
        if least > min(bounds(start, known)[1], size_of(loop) - 1):
            return False
        within = [outer for outer in start.ranges if limit in outer.src[1:]]
        return all(bounds(add(start, outer, -1), known)[1] > 0 for outer in within)

    def _trim(self, loop: UOp) -> UOp | None:
        """The end of a loop that may stop early, as an expression of the open loops, rounded up."""
        found = self._bound(self.trims.get(name_of(loop)), 1)
        return None if found is None else divide(add(found[0], number(found[1] - 1)), found[1])

    def start(self, loop: UOp) -> UOp | None:
        """The start of a loop that may start late, in the same terms, rounded down; None: at 0."""
        found = self._bound(self.starts.get(name_of(loop)), -1)
        start = None if found is None else divide(*found)
        return start if start is not None and bounds(start, self.known())[1] > 0 else None

    def _bound(self, stop: Stop | None, sign: int) -> tuple[UOp, int] | None:
        """A bound times a sign, and its divisor. None if there is no bound, or if it depends on a
        loop that is not open yet, some turns of which need more."""
        if stop is None:
            return None
        terms, constant, factor = stop
        open_loops = {name_of(r): r for r in self.bound}
        total = number(sign * constant)
        for name, coefficient in terms:
            if name in open_loops:
                total = add(total, open_loops[name], sign * coefficient)
            elif coefficient > 0:
                return None
        return total, factor
