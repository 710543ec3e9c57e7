"""Builds the loop tree of a scheduled kernel: where each loop, REDUCE and STAGE goes, and which
turns get a copy of their own. `loops/nest` describes the tree and the one rule that it follows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import post_order
from tinygrad.codegen.cuts import guards_of, pieces
from tinygrad.codegen.open_loops import OpenLoops, Trip
from tinygrad.loops.layout import (
    accumulates,
    factor_of,
    fill_order,
    fills_itself,
    holds_tiles,
    memory_of,
    option,
)
from tinygrad.loops.nest import Branch, Copy, Fill, Given, Item, Leaf, Loop, NestScope, Reduce
from tinygrad.loops.rebuild import value_at
from tinygrad.loops.roles import LAUNCHED, SEQUENTIAL, name_of, own_ranges, role_of, size_of
from tinygrad.uop import Ops, UOp
from tinygrad.uop.bounds import Interval, bounds

MOST_COPIES = 24
"""The most static copies in a nest, and in each fill of a stage in it; beyond that, clipped turns
are masked at run time."""


@dataclass(frozen=True)
class Work:
    """Code to be emitted: a leaf of this kind, for all turns of these loops, outermost first, and
    the values that it needs. The work listed in `before` precedes it in the same loops, as long as
    these are the same."""

    loops: tuple[UOp, ...]
    values: tuple[UOp, ...]
    kind: str
    before: tuple[Work, ...] = ()

    @property
    def inside(self) -> Work:
        """The work inside the first of the loops."""
        before = tuple(each.inside for each in self.before)
        return replace(self, loops=self.loops[1:], before=before)

    @property
    def parts(self) -> tuple[Work, ...]:
        """The works in `before` and this one, in order."""
        return (*self.before, self)

    @property
    def needs(self) -> tuple[UOp, ...]:
        """The values of all parts."""
        return tuple(value for each in self.parts for value in each.values)

    @property
    def is_stored(self) -> bool:
        """Whether its leaves store results of the kernel."""
        return self.kind not in ("take", "fill")

    def goes_along(self, loops: Sequence[UOp]) -> bool:
        """Whether its next loop is the first of these."""
        return bool(self.loops and loops) and self.loops[0] is loops[0]


class NestBuilder:
    """Builds the tree of one phase of a kernel, at the end of the list `into`; `here` is the open
    scope."""

    def __init__(self, kernel: UOp) -> None:
        self.copies = 0
        self.root = NestScope()
        self.here, self.into = self.root, self.root.items
        self.around: dict[NestScope, NestScope] = {}  # scope → the one around it
        self.open = OpenLoops(kernel)
        self.bound = self.open.bound
        self.coming: tuple[Work, ...] = ()  # it may share the loops of a stage's sums
        self.closed: set[UOp] = set()  # stages that were filled by a reader, here or elsewhere
        self._needs: dict[tuple[UOp, frozenset[UOp]], tuple[UOp, ...]] = {}
        self._owners: dict[tuple[UOp, ...], list[UOp]] = {}
        self._guards: dict[tuple[Sequence[UOp], str], list[UOp]] = {}

    def build(self, nests: Iterable[tuple[Sequence[UOp], Sequence[UOp], str]]) -> NestScope:
        """The root of the tree of (loops, values, kind): the values are computed for all turns of
        their loops."""
        *before, last = (self._work(*nest) for nest in nests)
        whole = replace(last, before=tuple(before))
        for node in dict.fromkeys(n for value in whole.needs for n in self.needed(value)):
            if node.op is Ops.REDUCE:
                self._owners.setdefault(_loops_around(node), []).append(node)
        self._open(whole)
        return self.root

    def _work(self, own: Sequence[UOp], values: Sequence[UOp], kind: str) -> Work:
        loops = tuple(r for r in own if role_of(r) in SEQUENTIAL and not self._is_lane_here(r))
        return Work(loops, (*values, *own), kind)

    def _nest(self, work: Work, into: list[Item]) -> None:
        before, self.into = self.into, into
        self._open(work)
        self.into = before

    # ---- what a value needs ----------------------------------------------------------------------

    def needed(self, value: UOp) -> tuple[UOp, ...]:
        """REDUCEs, STAGEs to fill, reads of STAGEs that fill themselves and clipped RANGEs below
        `value`, sources first."""
        filled = frozenset([stage for stage in self.closed if self._is_done(stage)])
        found = self._needs.get((value, filled))
        if found is None:
            below = post_order([value], lambda node: reversed(_sources(node, filled)))
            found = self._needs[value, filled] = tuple(filter(_is_needed, below))
        return found

    def _open_scopes(self) -> Iterable[NestScope]:
        scope: NestScope | None = self.here
        while scope is not None:
            yield scope
            scope = self.around.get(scope)

    def _home(self, node: UOp) -> NestScope:
        """The innermost open scope that `node` depends on."""
        scopes = (self.bound[r] for r in _stands_in(node) if r in self.bound)
        return max(scopes, key=lambda scope: scope.depth, default=self.root)

    def _is_ready(self, node: UOp) -> bool:
        return all(r in self.bound for r in _stands_in(node) if role_of(r) in SEQUENTIAL)

    def _is_lane_here(self, loop: UOp) -> bool:
        """Whether lanes that are already separated count this loop, too."""
        return role_of(loop) == "LANE" and loop in self.bound

    def _is_done(self, node: UOp) -> bool:
        return any(node in scope.done for scope in self._open_scopes())

    def _force(self, values: Sequence[UOp], coming: Sequence[UOp]) -> None:
        """Emits everything that does not depend on the loops still to come."""
        for value in values:
            for node in self.needed(value):
                if node.op not in (Ops.REDUCE, Ops.STAGE) or not self._is_ready(node):
                    continue
                if any(r in _stands_in(node) for r in coming):
                    continue
                if not self._is_done(node) and not fills_itself(node):
                    home = self._home(node)
                    self._place(node, home)
                    home.done.add(node)

    def _place(self, node: UOp, home: NestScope) -> None:
        before, self.here = self.here, home
        if node.op is Ops.REDUCE:
            reduce = Reduce((node, *self._beside(node, home)))
            values = [each.src[0] for each in reduce.nodes]
            self._nest(self._work(own_ranges(node), values, "take"), reduce.items)
            home.items.append(reduce)
            home.done.update(reduce.nodes)
        elif accumulates(node):
            home.items.append(self._accumulating(node))
        else:
            fill, outside, self.copies = Fill(node), self.copies, 0
            self._nest(self._work(fill_order(node), (node.src[0],), "fill"), fill.items)
            # what reads the stage has as many copies as if it was filled without any
            self.copies = outside
            home.items.append(fill)
        self.here = before

    def _beside(self, node: UOp, home: NestScope) -> list[UOp]:
        """The REDUCEs that run in the same loops, in the same turns of the loops around them, and
        don't depend on each other."""
        return [
            other
            for other in self._owners.get(_loops_around(node), ())
            if other is not node
            and other not in home.done
            and self._is_ready(other)
            and self._home(other) is home
            and other not in self.needed(node.src[0])
            and node not in self.needed(other.src[0])
        ]

    def _accumulating(self, stage: UOp) -> Fill:
        """The loops of a staged REDUCE are outside the loops of the stage. Earlier work with the
        same loops shares them."""
        fill, reduce, own = Fill(stage), stage.src[0], fill_order(stage)
        along = tuple(each for each in self.coming if each.goes_along(own_ranges(reduce)))
        self.coming = tuple(each for each in self.coming if each not in along)
        if not holds_tiles(stage):
            self._nest(self._work(own, (), "fill"), fill.start)
        taken = self._work((*own_ranges(reduce), *own), (reduce.src[0],), "take")
        self._nest(replace(taken, before=along), fill.items)
        return fill

    # ---- loops -----------------------------------------------------------------------------------

    def _open(self, work: Work) -> None:
        """Builds the first loop of some work, and everything inside."""
        loops = work.loops
        work = self._forced(work)
        if not all(each.goes_along(loops) for each in work.before):
            for each in work.parts:
                self._open(replace(each, before=()))
            return
        if not loops:
            self.into.append(Leaf(work.kind, self._unfilled(work.needs)))
            self._close(work.needs)  # a row whose elements are copies is whole
            return
        trip = self.open.trip(loops[0])
        if trip.most <= 0:
            return
        if role_of(loops[0]) in LAUNCHED:
            self._given(work, trip)
        else:
            self._run(work, trip)

    def _run(self, work: Work, trip: Trip) -> None:
        """A loop in the text. If its number of turns is known, it is cut where masks begin or end,
        and a clipped last turn is a copy. So is a first turn that fills stages for the others."""
        loop, values = work.loops[0], work.needs
        low, high, start = 0, trip.most - 1, self.open.start(loop)
        is_counted = not trip.ends and start is None
        if start is None and self._first_turn_fills(loop, values):
            self._copy(work, 0, trip.guarded)
            low = 1
        peeled = is_counted and low < high and self._last_turn_is_clipped(loop, low, high, values)
        last = high - peeled
        for begin, end in self._pieces(work, low, last) if is_counted else [(low, last)]:
            if is_counted and begin == end:
                self._copy(work, begin)
            elif begin <= end:
                ends, guarded = trip.ends, trip.guarded
                scope = Loop(loop, begin, end, ends=ends, start=start, guarded=guarded)
                self._inside(scope, work)
        if peeled:
            self._copy(work, high)
        self._close(values)

    def _forced(self, work: Work) -> Work:
        """The remaining work, once everything that does not depend on its loops is emitted."""
        outer, self.coming = self.coming, work.before
        for each in work.parts:
            self._force(each.values, each.loops)
        work, self.coming = replace(work, before=self.coming), outer
        return work

    def _given(self, work: Work, trip: Trip) -> None:
        """A loop that the launch counts. Tasks that read something which others don't, or whose
        last turn clips a loop inside, are arms of a branch."""
        loop, high = work.loops[0], size_of(work.loops[0]) - 1
        pieces = [(0, high)]
        if role_of(loop) == "PARALLEL":
            if not trip.ends:
                pieces = self._pieces(work, 0, high)
            if pieces == [(0, high)] and self._last_task_is_clipped(loop, high, work.needs):
                pieces = [(0, high - 1), (high, high)]
        if len(pieces) > 1:
            self._cut(work, pieces)
        elif role_of(loop) == "PARALLEL" and high == 0 and not trip.ends:
            self._copy(work, 0)
        else:
            self._inside(Given(loop, 0, high), work)

    def _last_task_is_clipped(self, task: UOp, high: int, values: Sequence[UOp]) -> bool:
        """Whether the last turn of a task gets a text of its own; not if all work runs on whole
        pieces, and masks are for stores only."""
        whole = any(option(stage, "whole") for stage in self._all_needed(values, Ops.STAGE))
        return high > 0 and not whole and self._last_turn_is_clipped(task, 0, high, values)

    def _cut(self, work: Work, pieces: Sequence[Interval]) -> None:
        """A task runs the arm that it belongs to."""
        loop, into, branch = work.loops[0], self.into, Branch([])
        for low, high in pieces:
            self.copies += 1
            branch.arms.append((Copy if low == high else Given)(loop, low, high))
            self._fill(branch.arms[-1], work)
        into.append(branch)

    def _copy(self, work: Work, turn: int, guarded: bool = False) -> None:
        self.copies += 1
        self._inside(Copy(work.loops[0], turn, turn, guarded=guarded), work)

    def _inside(self, scope: NestScope, work: Work) -> None:
        """The remaining loops, inside `scope`, which binds the first."""
        self._fill(scope, work)
        self.into.append(scope)

    def _fill(self, scope: NestScope, work: Work) -> None:
        """Builds the remaining loops inside `scope`; the caller places the scope."""
        loop, here, into = work.loops[0], self.here, self.into
        outer = self.bound.get(loop)
        self.here, self.into, self.bound[loop] = scope, scope.items, scope
        self.around[scope], scope.depth = here, here.depth + 1
        self._open(work.inside)
        self.here, self.into = here, into
        if outer is None:
            del self.bound[loop]
        else:
            self.bound[loop] = outer

    # ---- bounds ----------------------------------------------------------------------------------

    def _pieces(self, work: Work, low: int, high: int) -> list[Interval]:
        """The turns of a loop, cut where reads begin or cease to be masked. If that gives several
        pieces, a clipped last turn becomes a piece of its own."""
        loop, values = work.loops[0], work.needs
        key = values, work.kind
        if key not in self._guards:
            self._guards[key] = guards_of(values, work.is_stored)
        found = pieces(loop, (low, high), self._guards[key], self.open.known())
        if len(found) > 1 and self._last_turn_is_clipped(loop, low, high, values):
            begin, end = found.pop()
            found += [(begin, end - 1), (end, end)] if begin < end else [(end, end)]
        return found if self.copies + len(found) <= MOST_COPIES else [(low, high)]

    def _last_turn_is_clipped(self, loop: UOp, low: int, high: int, values: Sequence[UOp]) -> bool:
        """Whether a loop below is cut short in the last turn only."""
        if self.copies >= MOST_COPIES:
            return False
        known = self.open.known()
        for range_, limit in self._limits(loop, values):
            known[loop] = low, high
            if bounds(limit, known)[0] < size_of(range_):
                known[loop] = low, high - 1
                if bounds(limit, known)[0] >= size_of(range_):
                    return True
        return False

    def _limits(self, loop: UOp, values: Sequence[UOp]) -> Iterable[tuple[UOp, UOp]]:
        for node in self._all_needed(values, Ops.RANGE):
            yield from ((node, limit) for limit in node.src[1:] if loop in limit.ranges)

    def _all_needed(self, values: Sequence[UOp], op: Ops) -> Iterable[UOp]:
        for value in values:
            yield from (node for node in self.needed(value) if node.op is op)

    # ---- stages that fill themselves -------------------------------------------------------------

    def _reads(self, values: Sequence[UOp]) -> dict[UOp, list[UOp]]:
        """Reads of STAGEs that fill themselves, by stage."""
        found: dict[UOp, list[UOp]] = {}
        for node in self._all_needed(values, Ops.INDEX):
            found.setdefault(node.src[0], []).append(node)
        return found

    def _filled_in(self, stage: UOp) -> NestScope:
        """The scope in which a stage that its readers fill stays filled: at most the task."""
        scopes = [self._home(stage)]
        scopes += [s for r, s in self.bound.items() if role_of(r) == "PARALLEL"]
        return max(scopes, key=lambda scope: scope.depth)

    def _unfilled(self, values: Sequence[UOp]) -> frozenset[UOp]:
        return frozenset(s for s in self._reads(values) if not self._is_done(s))

    def _first_turn_fills(self, loop: UOp, values: Sequence[UOp]) -> bool:
        """Whether a stage is filled inside the loop, by reads that do not depend on it."""
        is_filled = False
        for stage, reads in self._reads(values).items():
            around = frozenset[UOp]().union(*(read.ranges for read in reads))
            if self._is_ready(stage) and not self._is_done(stage) and loop not in around:
                self._check_whole(stage, loop, around)
                is_filled = True
        return is_filled

    def _check_whole(self, stage: UOp, loop: UOp, running: Iterable[UOp]) -> None:
        """The first turn must read as much of the stage as any later one."""
        for inner in running:
            terms = self.open.trims.get(name_of(inner), ((), 0, 1))[0]
            if any(name == name_of(loop) and factor > 0 for name, factor in terms):
                early = f"in the first turn of {name_of(loop)!r}, {name_of(inner)!r} stops early"
                raise ArgumentError(
                    f"stage {name_of(stage)!r} can't be filled by its first reader: {early}; "
                    "legal: no 'first'"
                )

    def _close(self, values: Sequence[UOp]) -> None:
        """A stage is filled once no loop is open that its reader's indices depend on."""
        for stage, reads in self._reads(values).items():
            if self._is_ready(stage) and not self._is_done(stage):
                running = any(
                    r in self.bound and r not in stage.ranges for read in reads for r in read.ranges
                )
                if not running:
                    self._filled_in(stage).done.add(stage)
                    self.closed.add(stage)


def _stands_in(node: UOp) -> frozenset[UOp]:
    """The loops that a node is inside of: those that it depends on, and lanes that combine what
    each of them reduced."""
    if node.op is not Ops.REDUCE:
        return node.ranges
    return node.ranges.union(r for r in own_ranges(node) if role_of(r) == "LANE")


def _loops_around(node: UOp) -> tuple[UOp, ...]:
    """The loops of a REDUCE that other REDUCEs share: all of them; or only the sequential ones, if
    the state that it carries is rescaled as others' is."""
    own = own_ranges(node)
    if factor_of(node) is None:
        return own
    return tuple(r for r in own if role_of(r) in SEQUENTIAL and role_of(r) != "LANE")


def _sources(node: UOp, filled: Collection[UOp]) -> tuple[UOp, ...]:
    """What a value is computed from while some stages are filled."""
    if accumulates(node):  # its REDUCE runs around its loops
        return (*node.src[0].src, *node.src[1:])
    if node.op is not Ops.INDEX or node.src[0].op is not Ops.STAGE:
        return node.src
    stage = node.src[0]
    if memory_of(stage) == "GLOBAL" or stage in filled:
        return node.src[1:]
    if fills_itself(stage) or memory_of(stage) == "REG":
        return (*node.src[1:], value_at(node))
    return node.src


def _is_needed(node: UOp) -> bool:
    """Whether a node is one of `NestBuilder.needed`."""
    is_work = node.op in (Ops.REDUCE, Ops.STAGE) or _is_clipped(node)
    return is_work or (node.op is Ops.INDEX and fills_itself(node.src[0]))


def _is_clipped(node: UOp) -> bool:
    return node.op is Ops.RANGE and len(node.src) > 1
