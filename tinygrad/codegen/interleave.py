"""Copies of a long computation take turns, instruction by instruction.

Values are emitted copy by copy. The steps of an exponential or a sine wait for each other: where
one copy follows the other, the instructions that a processor can look ahead over belong to few
copies, and most of them wait. So straight runs of instructions with long chains are scheduled as a
list: the oldest instruction whose sources are there goes next, as long as the values that wait for
their readers have room in the registers. It is another order, nothing else; a compiler that comes
after keeps most of it."""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Sequence

from tinygrad.base.target import Target
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

STRAIGHT = GroupOp.ALU | {
    *(Ops.LOAD, Ops.STORE, Ops.INDEX, Ops.PREFETCH, Ops.VECTORIZE, Ops.GEP, Ops.SHUFFLE),
    *(Ops.CAST, Ops.BITCAST),
}
"""What a run is made of."""

LONG = 16
"""Steps of a chain that a processor does not overlap well with the next one: an exponential's."""

CONSTANTS, MANY = 12, 32
"""Registers that hold a function's constants and the like, if there are many registers."""

FEW_CONSTANTS = 5
"""The same with fewer, where most constants are read each time."""

LEAST_ROOM = 4
"""Values side by side: with fewer, nothing is gained."""


def interleaved(program: Sequence[UOp], target: Target) -> list[UOp]:
    """The program with its long chains interleaved."""
    out: list[UOp] = []
    run: list[UOp] = []
    for node in program:
        if node.op in STRAIGHT:
            run.append(node)
            continue
        out += _in_turns(run, target)
        out.append(node)
        run = []
    return out + _in_turns(run, target)


def _in_turns(run: list[UOp], target: Target) -> list[UOp]:
    steps = sum(map(_is_step, run))
    if steps < 2 * LONG:
        return run
    depth: dict[UOp, int] = {}
    for node in run:
        depth[node] = _is_step(node) + max((depth.get(s, 0) for s in node.src), default=0)
    longest, is_plain = max(depth.values()), len(depth) == len(run)  # no node twice
    written, read = ({_buffer(n) for n in run if n.op is op} for op in (Ops.STORE, Ops.LOAD))
    if longest < LONG or steps < 2 * longest or written & read or not is_plain:
        return run
    order = _Order(run, target)
    return run if order.room < LEAST_ROOM else order.found()


def _is_step(node: UOp) -> bool:
    """Whether an instruction computes with vectors, or ends a chain. All others are placed just
    before the first step that needs them."""
    is_vector = node.dtype.count > 1 and node.op not in (Ops.LOAD, Ops.VECTORIZE)
    return is_vector or node.op is Ops.STORE


def _buffer(node: UOp) -> UOp:
    """What an instruction reads or writes."""
    while node.op not in (Ops.PARAM, Ops.LOCAL) and node.src:
        node = node.src[0]
    return node


class _Order:
    """The order of a run, as far as it is found (`out`)."""

    def __init__(self, run: list[UOp], target: Target) -> None:
        self.run = run
        self.place = {node: i for i, node in enumerate(run)}
        self.latency, self.width = target.fma_latency, 2 * target.fma_ports
        vectors = [s for node in run for s in {*node.src} if s.dtype.count > 1]
        self.readers = Counter(vectors)  # how many are still to come
        outside = {s for s in vectors if s not in self.place and s.op is not Ops.VECTORIZE}
        constants = CONSTANTS if target.registers >= MANY else FEW_CONSTANTS
        self.room = target.registers - constants - len(outside)
        self.held: set[UOp] = set()  # vectors whose readers are still to come
        self.out: dict[UOp, None] = {}

    def found(self) -> list[UOp]:
        """One instruction after the other, counting cycles."""
        followers, missing, prefetches = self._waits()
        steps = [*missing]
        ready = dict.fromkeys(steps, 0)
        waiting = [self.place[step] for step in steps if not missing[step]]
        now = issued = oldest = 0
        while waiting:
            while steps[oldest] in self.out:
                oldest += 1
            index = self._next(waiting, ready, now, steps[oldest])
            if index is None or issued == self.width:
                now, issued = now + 1, 0
                continue
            step = self.run[waiting.pop(index)]
            issued += 1
            for node in (*prefetches[step], step):
                self._emit(node)
            for follower in followers[step]:
                missing[follower] -= 1
                ready[follower] = now + self.latency
                if not missing[follower]:
                    insort(waiting, self.place[follower])
        for node in self.run:
            self._emit(node)
        return [*self.out]

    def _waits(self) -> tuple[dict[UOp, list[UOp]], dict[UOp, int], dict[UOp, list[UOp]]]:
        """For each step the ones that wait for it, how many it waits for, and the prefetches that
        stood before it. STOREs wait for each other."""
        followers: dict[UOp, list[UOp]] = defaultdict(list)
        missing: dict[UOp, int] = {}
        prefetches: dict[UOp, list[UOp]] = {}
        behind: dict[UOp, frozenset[UOp]] = {}
        last: frozenset[UOp] = frozenset()
        loose: list[UOp] = []
        for node in self.run:
            waits = frozenset[UOp]().union(*(behind.get(s, ()) for s in node.src))
            behind[node] = frozenset((node,)) if _is_step(node) else waits
            if node.op is Ops.PREFETCH:
                loose.append(node)
            if not _is_step(node):
                continue
            if node.op is Ops.STORE:
                waits, last = waits | last, behind[node]
            for other in waits:
                followers[other].append(node)
            missing[node] = len(waits)
            prefetches[node], loose = loose, []
        return followers, missing, prefetches

    def _next(self, waiting: list[int], ready: dict[UOp, int], now: int, oldest: UOp) -> int | None:
        """Which of the waiting steps goes next. The oldest one always may."""
        for index, place in enumerate(waiting):
            step = self.run[place]
            if ready[step] <= now and (step is oldest or self._fits(step)):
                return index
        return None

    def _fits(self, step: UOp) -> bool:
        """Whether there is room for what the step gives, and for what is loaded for it, less what
        it is the last to read."""
        more = int(step.op is not Ops.STORE)
        for source in {*step.src}:
            if source in self.held:
                more -= self.readers[source] == 1
            elif source in self.place and source.op is Ops.LOAD:
                more += self.readers[source] > 1
        return len(self.held) + more <= self.room

    def _emit(self, node: UOp) -> None:
        """Adds an instruction, after what it needs."""
        if node in self.out or node not in self.place:
            return
        for source in dict.fromkeys(node.src):
            self._emit(source)
            self.readers[source] -= 1
            if not self.readers[source]:
                self.held.discard(source)
        if self.readers[node] > 0:
            self.held.add(node)
        self.out[node] = None
