"""Memory accesses: loads, stores and masks.

A read is one vector load if its lanes lie side by side. If its lanes lie a row apart and an UNROLL
range runs along memory, it is a square of loads that are transposed in registers. If the lanes lie
at known small distances, it is a few loads and shuffles. Otherwise it is a gather, lane by lane."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from math import gcd
from typing import NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.codegen.addresses import SLACK, Address, Addresses, Loops, around
from tinygrad.codegen.index import Copies
from tinygrad.codegen.linear import Program, is_off
from tinygrad.codegen.spots import pieces, spots_of, width_of
from tinygrad.loops.layout import element, elements, flat_offset, option
from tinygrad.loops.reads import LONGEST_STEP
from tinygrad.loops.roles import name_of, role_of, size_of
from tinygrad.schedule.bases import sure_size
from tinygrad.simplify.masks import gate_of
from tinygrad.uop import Ops, UOp
from tinygrad.uop.instructions import ALIGNMENT

FETCHED = 16
"""Bytes that one asynchronous copy to LOCAL memory moves."""

Evaluate = Callable[[UOp, Copies], UOp]


class Store(NamedTuple):
    """`value` is written to `memory`, a PARAM or STAGE, at `offset`."""

    memory: UOp
    offset: UOp
    value: UOp


def fill_of(stage: UOp) -> Store:
    """The store that fills a stage."""
    return Store(stage, flat_offset(element(stage)), stage.src[0])


class Access:
    """The loads and stores of one function."""

    def __init__(self, target: Target, addresses: Addresses, evaluate: Evaluate) -> None:
        self.target = target
        self.addresses = addresses
        self.integers, self.program = addresses.integers, addresses.program
        self.evaluate = evaluate
        # loop → how many turns ahead its loads are prefetched, and inside which loops (none: any)
        self.ahead: dict[str, tuple[int, list[str]]] = {}

    # ---- loads -----------------------------------------------------------------------------------

    def gate(self, read: UOp, copies: Copies) -> UOp | None:
        """The mask of an INDEX's gate; None without one."""
        gate = gate_of(read)
        return None if gate is None else self.evaluate(gate, copies)

    def load(self, read: UOp, copies: Copies) -> UOp:
        """The value of an INDEX; 0 in lanes whose gate is off."""
        mask = self.gate(read, copies)
        if not is_off(mask):
            mask = self.program.both(mask, self._within(read, copies))
        if is_off(mask):
            return UOp.const(read.dtype, 0)
        address = self.addresses.read_at(read, copies)
        loop = self.integers.vector_of(read, copies)
        if loop is None:
            return self._emit(address, 1, mask)
        if address.step(loop) == 1:
            return self._emit(address.start(loop), size_of(loop), mask)
        if address.step(loop) == 0 and self._is_inside(read, copies):
            found = self._emit(address, 1, None)  # lanes differ in their masks only
            return self.program.chosen(mask, found, UOp.const(read.dtype, 0))
        along = self.runs_along(address, loop)
        if along is not None and _is_computed(gate_of(read)):
            return self._transposed(read, address, loop, along)
        spots = spots_of(self.integers, address.terms, loop, copies)
        if 0 < len(pieces(spots)) <= min(LONGEST_STEP, len(spots) // 2):
            return self._covered(address.in_turn(loop, 0).moved(-spots[0]), spots, mask)
        return self._gathered(address, loop, mask)

    def _within(self, read: UOp, copies: Copies) -> UOp | None:
        """The mask of lanes and copies that are within their limits. Values beyond are never used,
        so a mask is needed only where the load could leave the array. A staged array has some room
        for the copies that are certainly cut off."""
        memory, limited = read.src[0], self.integers.limited(read)
        if memory.op is Ops.STAGE and option(memory, "whole"):  # except for surplus lanes
            limited = tuple(r for r in limited if self.integers.lanes_of.get(r, 0) > size_of(r))
        mask = self.integers.valid(limited, copies)
        if mask is None:
            return None
        if memory.op is Ops.PARAM:
            is_needed = mask.op is Ops.CONST
        else:
            lanes = mask.src if mask.op is Ops.VECTORIZE else (mask,)
            is_needed = any(s.op is not Ops.CONST for s in lanes)
        return mask if is_needed or not self._is_inside(read, copies) else None

    def _is_inside(self, read: UOp, copies: Copies) -> bool:
        """Whether a read stays within its array, whatever its gate and limits say."""
        memory = read.src[0]
        end = sure_size(memory) if memory.op is Ops.PARAM else elements(memory) + SLACK
        low, high = self.integers.interval(flat_offset(read), copies)
        return bool(low >= 0 and high < end)

    def _emit(self, address: Address, count: int, mask: UOp | None) -> UOp:
        memory = address.memory
        runs = runs_on(mask)
        if is_one_lane(runs):
            lanes = [UOp.const(memory.dtype, 0)] * count
            lanes[runs[0].start] = self._emit(address.moved(runs[0].start), 1, None)
            return self.program.vector(lanes)
        pointer, alignment = self.addresses.pointer(address)
        source = (pointer,) if mask is None else (pointer, mask)
        dtype = memory.dtype.vec(count)
        aligned = max(memory.dtype.itemsize, gcd(alignment, dtype.itemsize))
        if memory.op is Ops.PARAM and not self.target.aligned:
            aligned = memory.dtype.itemsize  # it may belong to a mapped file or another library
        if self.ahead and mask is None and memory.op is Ops.PARAM:
            self._prefetch(address, dtype.itemsize)
        return self.program.effect(Ops.LOAD, dtype, source, (aligned, self.program.serial()))

    def _prefetch(self, address: Address, nbytes: int) -> None:
        """Prefetches the line that this load will need some turns later; once for loads that share
        a line."""
        if Ops.PREFETCH in self.program.lacking:
            return
        memory, terms, constant, copies = address
        for loop, step in terms.items():
            if loop.op is not Ops.RANGE or name_of(loop) not in self.ahead:
                continue
            turns, inside = self.ahead[name_of(loop)]
            if inside and self.integers.innermost().isdisjoint(inside):
                continue
            level = 1 if name_of(loop) in inside or not inside else 2
            start = constant + sum(k * copies.get(term, 0) for term, k in terms.items())
            if turns and start * memory.dtype.itemsize % ALIGNMENT < nbytes:
                later, _ = self.addresses.pointer(address.moved(turns * step))
                self.program.effect(Ops.PREFETCH, dtypes.void, (later,), level)

    def _covered(self, lowest: Address, spots: list[int], mask: UOp | None) -> UOp:
        """Loads lanes at known distances: as vectors that cover them, and shuffles that pick the
        lanes. `lowest` is the address of the lowest lane. The last vector ends at the last spot, so
        nothing beyond the lanes is touched; if lanes are masked, nothing between them either."""
        count, width = len(spots), width_of(spots)
        wide = None if mask is None else self.program.widen(mask, count)
        begins, vectors = pieces(spots), []
        for begin in begins:
            inside = [[i for i, s in enumerate(spots) if s == begin + at] for at in range(width)]
            part = None if wide is None else self._any_of(wide, inside)
            vectors.append(self._emit(lowest.moved(begin), width, part))
        which = [bisect_right(begins, spot) - 1 for spot in spots]
        places = [n * width + spot - begins[n] for n, spot in zip(which, spots, strict=True)]
        found = self._picked_from(vectors, places)
        if wide is None or len({*spots}) == count:
            return found
        # of two lanes on the same spot one may be allowed to read it and the other not
        nothing = self.program.widen(UOp.const(lowest.memory.dtype, 0), count)
        return self.program.add(Ops.WHERE, found.dtype, (wide, found, nothing))

    def _picked_from(self, vectors: list[UOp], places: list[int]) -> UOp:
        """The lanes at these positions, counted through all vectors. A shuffle takes two
        vectors."""
        count, both = len(places), 2 * vectors[0].dtype.count
        first, second = vectors[0], vectors[1 % len(vectors)]
        found = self.program.picked(first, second, [p if p < both else 0 for p in places])
        if len(vectors) <= 2:
            return found
        rest = self._picked_from(vectors[2:], [max(0, p - both) for p in places])
        lanes = [i if p < both else i + count for i, p in enumerate(places)]
        return self.program.picked(found, rest, lanes)

    def _any_of(self, mask: UOp, groups: list[list[int]]) -> UOp:
        """For each group of lanes whether any of its masks is on."""
        count, program = mask.dtype.count, self.program
        parts = (
            self._moved(mask, [g[nth] if nth < len(g) else count for g in groups])
            for nth in range(max(map(len, groups)))
        )
        return reduce(lambda a, b: program.add(Ops.OR, a.dtype, (a, b)), parts)

    def _moved(self, mask: UOp, lanes: list[int]) -> UOp:
        """These lanes of a mask, off beyond its end. Of its conditions, those that all lanes share
        stay as they are, as shuffles of masks are slow; and those that outer loops fix are combined
        there."""
        program, count = self.program, len(lanes)
        off = program.widen(UOp.const(dtypes.bool, False), mask.dtype.count)
        first, *others = sorted(_conditions(mask), key=_is_shared)
        parts = [program.picked(first, off, lanes)]
        for other in others:
            shared = _is_shared(other)
            parts.append(
                program.widen(other.src[0], count) if shared else program.picked(other, off, lanes)
            )
        parts.sort(key=lambda part: program.home((part,)).depth)
        return reduce(lambda a, b: program.add(Ops.AND, a.dtype, (a, b)), parts)

    def _gathered(self, address: Address, loop: UOp, mask: UOp | None) -> UOp:
        lanes = [UOp.const(address.memory.dtype, 0)] * size_of(loop)
        for lane, own in self._lanes_on(mask, len(lanes)):
            lanes[lane] = self._emit(address.in_turn(loop, lane), 1, own)
        return self.program.vector(lanes)

    def _lanes_on(self, mask: UOp | None, count: int) -> Iterator[tuple[int, UOp | None]]:
        """The lanes that are not certainly off, each with its own mask."""
        for lane in range(count):
            own = None if mask is None else self.program.lane(mask, lane)
            if not is_off(own):
                yield lane, self.program.both(own, None)

    # ---- squares ---------------------------------------------------------------------------------

    def runs_along(self, address: Address, loop: UOp, inner: Loops = ()) -> UOp | None:
        """An UNROLL range as long as `loop`, a power of two, along which memory is contiguous, in
        elements or in words of `inner`."""
        size = size_of(loop)
        if size & (size - 1):
            return None
        steps = (prod(map(size_of, inner)), 1) if address.is_row_major(inner) else (1,)
        for term in address.terms:
            is_copy = term in address.copies and role_of(term) == "UNROLL"
            if is_copy and size_of(term) == size and address.step(term) in steps:
                return term
        return None

    def square(
        self, copies: Copies, loop: UOp, along: UOp, row: Callable[[Copies], UOp | None]
    ) -> list[UOp] | None:
        """Reads a square and transposes it: `row` reads along a range for one lane of a loop; the
        result is the vector over the loop for each turn of the range. None if a row can't be read
        like that."""
        others = {r: turn for r, turn in copies.items() if r is not along}
        rows = [row({**others, loop: lane}) for lane in range(size_of(loop))]
        whole = [each for each in rows if each is not None]
        return transpose(self.program, whole) if len(whole) == len(rows) else None

    def _transposed(self, read: UOp, address: Address, loop: UOp, along: UOp) -> UOp:
        """Loads along `along`, one for each lane of `loop`, and transposes; every copy of `along`
        gets its value."""
        program, integers, size = self.program, self.integers, size_of(loop)

        def row(here: Copies) -> UOp:
            integers.along = along
            mask = self._within(read, here)
            if not is_off(mask):
                mask = program.both(mask, self.gate(read, here))
            integers.along = None
            if is_off(mask):
                return program.widen(UOp.const(read.dtype, 0), size)
            return self._emit(address.start(along)._replace(copies=here), size, mask)

        memo = program.scope.memo
        for turn, column in enumerate(self.square(address.copies, loop, along, row) or ()):
            memo[integers.key(read, {**address.copies, along: turn})] = column
        return memo[integers.key(read, address.copies)]

    # ---- stores ----------------------------------------------------------------------------------

    def store(
        self,
        store: Store,
        copies: Copies,
        ranges: Sequence[UOp],
        padded: bool = False,
        nontemporal: bool = False,
        only: UOp | None = None,
    ) -> None:
        """Stores to an element, or to a vector's worth of them. `padded`: lanes that are
        cut off may be written, too. `only`: a mask over everything."""
        integers, program = self.integers, self.program
        memory, offset, value = store
        address = self.addresses.at(memory, offset, copies)
        lanes = (r for r in (*ranges, *around(memory)) if role_of(r) == "VECTOR")
        loop = next((r for r in lanes if r not in copies), None)
        if loop is None:
            loop = integers.vector_of(offset, copies)
        checked = tuple(r for r in ranges if not (padded and r is loop))
        mask = integers.valid(checked, copies)
        if is_off(mask):
            return
        mask = program.both(mask, only)
        if loop is None:
            self._put(address, value, mask)
            return
        size = size_of(loop)
        value = program.widen(value, size)
        if address.step(loop) == 1:
            self._put(address.start(loop), value, mask, nontemporal)
        elif self._is_sieved(address.step(loop), size):
            self._sieved(address.start(loop), value, mask, address.step(loop) or 1)
        else:
            for lane, own in self._lanes_on(mask, size):
                self._put(address.in_turn(loop, lane), program.lane(value, lane), own)

    def _is_sieved(self, step: int | None, count: int) -> bool:
        """Whether lanes that lie `step` apart are stored by vectors that leave out what lies
        between them."""
        if step is None or "masked_store" not in self.target.native:
            return False
        return 1 < step <= min(LONGEST_STEP, count // 2)

    def _sieved(self, first: Address, value: UOp, mask: UOp | None, step: int) -> None:
        """Stores lanes that lie `step` apart, by as many vectors with a mask."""
        count, program = value.dtype.count, self.program
        off = program.widen(UOp.const(dtypes.bool, False), count)
        on = program.widen(UOp.const(dtypes.bool, True) if mask is None else mask, count)
        for begin in range(0, count * step, count):
            spots = [divmod(spot, step) for spot in range(begin, begin + count)]
            lanes = program.picked(on, off, [count if rest else lane for lane, rest in spots])
            spread = program.picked(value, value, [lane for lane, _ in spots])
            self._put(first.moved(begin), spread, lanes)

    def fetch(self, stage: UOp, offset: UOp, read: UOp, copies: Copies, own: Loops) -> bool:
        """Begins to copy 16 bytes that are contiguous both in memory and in a stage. False, without
        doing anything, if that can't be shown."""
        loop = next((r for r in own if role_of(r) == "VECTOR" and r not in copies), None)
        if loop is None or size_of(loop) * stage.dtype.itemsize != FETCHED:
            return False
        mask = self.program.both(self.gate(read, copies), None)
        if mask is not None and (is_off(mask) or mask.dtype.count > 1):
            return False
        if self.integers.valid(own, copies) is not None or self._within(read, copies) is not None:
            return False
        ends = []
        for memory, place in ((stage, offset), (read.src[0], read.src[1])):
            address = self.addresses.at(memory, place, copies)
            if address.step(loop) != 1:
                return False
            pointer, alignment = self.addresses.pointer(address.start(loop))
            if alignment % FETCHED or not self.target.aligned:
                return False
            ends.append(pointer)
        source = (*ends, *(() if mask is None else (mask,)))
        self.program.effect(Ops.FETCH, dtypes.void, source, FETCHED)
        return True

    # ---- several loops at once -------------------------------------------------------------------

    def load_tile(self, read: UOp, copies: Copies, tiles: Loops, mask: UOp | None) -> UOp:
        """All turns of `tiles`, over which memory is contiguous in this order, as one vector."""
        count = prod(size_of(r) for r in tiles)
        if is_off(mask):
            return self.program.widen(UOp.const(read.dtype, 0), count)
        address = self.addresses.read_at(read, copies)
        return self._emit(address.start(*tiles), count, mask)

    def outside_of(self, read: UOp, copies: Copies, tiles: Loops) -> tuple[UOp | None, list[UOp]]:
        """The mask that says where a load of `tiles` is within the limits of other loops, and the
        comparisons for the limits of `tiles` themselves. A staged array has room for what is
        beyond."""
        if read.src[0].op is not Ops.PARAM:
            return None, []
        limited = self.integers.limited(read)
        others = tuple(r for r in limited if r not in tiles)
        mask = self.integers.valid(others, copies)
        return mask, [end for r in limited if r in tiles for end in self.integers.ends(r)]

    def store_tile(self, store: Store, copies: Copies, tiles: Loops) -> None:
        """Stores a vector over `tiles` to a staged array, which is contiguous over them in this
        order."""
        memory, offset, value = store
        address = self.addresses.at(memory, offset, copies)
        assert address.is_row_major(tiles), "a stage lies as its matrix unit wants it"
        value = self.program.widen(value, prod(size_of(r) for r in tiles))
        self._put(address.start(*tiles), value, None)

    def layout(self, memory: UOp, offset: UOp, loops: Sequence[UOp]) -> Loops:
        """These loops in the order in which an array has them, slowest first."""
        terms = self.addresses.at(memory, offset, {}).terms
        return tuple(sorted(loops, key=lambda r: -terms.get(r, 0)))

    def _put(
        self, address: Address, value: UOp, mask: UOp | None, nontemporal: bool = False
    ) -> None:
        """Stores a scalar, or a vector to neighbouring elements."""
        dtype, whole, runs = address.memory.dtype, value.dtype.itemsize, runs_on(mask)
        if runs and (is_one_lane(runs) or "masked_store" not in self.target.native):
            for run in runs:
                self._put(address.moved(run.start), self._lanes_of(value, run), None, nontemporal)
            return
        pointer, alignment = self.addresses.pointer(address)
        aligned = max(dtype.itemsize, gcd(alignment, whole))
        stream = nontemporal and mask is None and aligned >= min(whole, ALIGNMENT)
        source = (pointer, value) if mask is None else (pointer, value, mask)
        arg = (aligned, "nontemporal" if stream else "")
        self.program.effect(Ops.STORE, dtypes.void, source, arg)

    def _lanes_of(self, value: UOp, run: range) -> UOp:
        program = self.program
        is_one = len(run) == 1
        return program.lane(value, run.start) if is_one else program.picked(value, value, run)


def runs_on(mask: UOp | None) -> list[range]:
    """The lanes of a vector's mask that are on, in runs of 2**n; none if the mask isn't known."""
    if mask is None or mask.op is not Ops.VECTORIZE or mask.dtype.count != len(mask.src):
        return []
    if any(lane.op is not Ops.CONST for lane in mask.src):
        return []
    runs: list[range] = []
    for lane, source in enumerate(mask.src):
        if not source.arg:
            continue
        last = range(lane, lane + 1)
        while runs and runs[-1].stop == last.start and len(runs[-1]) == len(last):
            last = range(runs.pop().start, last.stop)
        runs.append(last)
    return runs


def _conditions(mask: UOp) -> list[UOp]:
    """The masks of which this is the conjunction."""
    return [c for s in mask.src for c in _conditions(s)] if mask.op is Ops.AND else [mask]


def _is_shared(mask: UOp) -> bool:
    """Whether all lanes of a mask are the same scalar."""
    return mask.op is Ops.VECTORIZE and len(mask.src) == 1


def is_one_lane(runs: list[range]) -> bool:
    """Whether a vector's access should be one to a single element (LLVM 22 writes too much for such
    a mask on a truncated vector)."""
    return len(runs) == 1 and len(runs[0]) == 1


def _is_computed(gate: UOp | None) -> bool:
    """Whether a gate depends on loop counters alone."""
    return gate is None or all(n.op is not Ops.INDEX for n in gate.toposort())


def transpose(program: Program, rows: Sequence[UOp]) -> list[UOp]:
    """The columns of a square of vectors, in log2 rounds of exchanging halves."""
    size = len(rows)
    rows, distance = list(rows), size // 2
    while distance:
        following = list(rows)
        low = tuple(i if not i & distance else size + (i ^ distance) for i in range(size))
        high = tuple(i | distance if not i & distance else size + i for i in range(size))
        for i in range(size):
            if not i & distance:
                pair = rows[i], rows[i + distance]
                following[i] = program.picked(*pair, low)
                following[i + distance] = program.picked(*pair, high)
        rows, distance = following, distance // 2
    return rows
