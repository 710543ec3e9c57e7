"""The leaves of the loop tree that store: every copy of a turn's values, to memory or a stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tinygrad.codegen.access import Store
from tinygrad.codegen.addresses import around
from tinygrad.codegen.evaluate import Evaluator
from tinygrad.codegen.index import Copies
from tinygrad.codegen.linear import Values
from tinygrad.codegen.running import Running, running_of
from tinygrad.loops.layout import option
from tinygrad.loops.reads import copy_of
from tinygrad.loops.roles import COPIED, MERGED, WRITTEN_OUT, role_of
from tinygrad.simplify.affine import affine
from tinygrad.simplify.forms import step_in
from tinygrad.uop import Ops, UOp


class Leaves(NamedTuple):
    """The stores for all turns of these loops."""

    own: Sequence[UOp]
    stores: Sequence[Store]

    @property
    def values(self) -> list[UOp]:
        """What is computed for the stores."""
        return [value for store in self.stores for value in (store.offset, store.value)]


Body = Callable[[Values], Values]
"""The action of a leaf: maps the values that the loops carry to those after it."""


class Put:
    """A leaf that stores for every copy of the loops `own` that a store depends on. All values are
    computed before the first is stored, since one may read what another overwrites. `how` has the
    options of `Access.store`."""

    def __init__(self, evaluator: Evaluator, leaves: Leaves, **how: bool) -> None:
        self.evaluator, self.how = evaluator, how
        self.own, self.stores = own, stores = leaves
        self.copied = [r for r in own if role_of(r) in COPIED]
        whole = max((len(store.offset.ranges) for store in stores), default=0)
        # the loops that each store depends on
        self.parts = [
            [r for r in own if len(at.ranges) == whole or r in at.ranges or r in value.ranges]
            for _, at, value in stores
        ]
        memory, _, value = stores[0]
        self.apart = (*own, *around(memory))
        self.is_shared = evaluator.lanes.block.shares(memory)
        self.fetched = _fetched(memory, value) if evaluator.is_ahead else None
        # all are requested before any wait; and a compiler joins stores that follow each other
        is_asked = self.is_shared and self.fetched is None
        self.all_first = is_asked or _fill_gaps(own, stores)
        self.running: Running | None = None
        node = running_of([store.value for store in stores])
        if node is not None:
            evaluator.running = Running(node, evaluator.program, evaluator.combiner)
            self.running = evaluator.running
        self.in_order = node is None and _lanes_are_in_order(own, stores)
        self.roles = WRITTEN_OUT | {"VECTOR"} if self.in_order else WRITTEN_OUT

    def __call__(self, values: Values) -> Values:
        evaluator, running = self.evaluator, self.running
        if running is not None:
            running.state = list(values)
        if self.all_first:
            for copies in evaluator.copies_of(self.apart, {}):
                for store in self.stores:
                    evaluator.evaluate(store.value, copies)
        for copies in evaluator.copies_of(self.apart, {}, self.roles):
            if not evaluator.integers.is_out(self.copied, copies):
                self._put(copies)
            if self.in_order:
                evaluator.forget_written(copies)
        return values if running is None else running.state

    def _put(self, copies: Copies) -> None:
        evaluator = self.evaluator
        if self.fetched is not None and evaluator.lanes.first_of(self.apart) is None:
            memory, offset, _ = self.stores[0]
            if evaluator.access.fetch(memory, offset, self.fetched, copies, tuple(self.own)):
                return
        if any(role_of(r) == "TILE" for r in self.own):
            self._put_tile(self.stores[0], copies)
            return
        made = [evaluator.evaluate(store.value, copies) for store in self.stores]
        only = evaluator.lanes.first_of(self.apart)
        for (memory, offset, _), value, part in zip(self.stores, made, self.parts, strict=True):
            if not any(copies.get(r) for r in self.own if r not in part):
                store = Store(memory, offset, value)
                evaluator.access.store(store, copies, part, only=only, **self.how)

    def _put_tile(self, store: Store, copies: Copies) -> None:
        """Stores all turns of these loops at once to a stage in a matrix unit's order."""
        evaluator, (memory, offset, value) = self.evaluator, store
        merged = [r for r in self.own if role_of(r) in MERGED]
        tiles = evaluator.access.layout(memory, offset, merged)
        made = evaluator.recalled(value, copies)
        if made is None:
            made = evaluator.tiles.vector(value, copies, tiles)
        evaluator.access.store_tile(Store(memory, offset, made), copies, tiles)


def _fetched(memory: UOp, value: UOp) -> UOp | None:
    """The read that a stage is an exact copy of, if the stage is filled by copy instructions."""
    if memory.op is not Ops.STAGE or option(memory, "via") != "async":
        return None
    return copy_of(value)


def _fill_gaps(own: Sequence[UOp], stores: Sequence[Store]) -> bool:
    """Whether unrolled copies are stored between the lanes of each other."""
    for memory, offset, _ in stores:
        terms = affine(offset)[0]
        apart = [abs(step_in(terms, r) or 0) for r in own if role_of(r) == "VECTOR"]
        copies = [abs(step_in(terms, r) or 0) for r in own if role_of(r) == "UNROLL"]
        if memory.op is Ops.PARAM and any(0 < n < max(apart, default=0) for n in copies):
            return True
    return False


def _lanes_are_in_order(own: Sequence[UOp], stores: Sequence[Store]) -> bool:
    """Whether two lanes may store to the same element, always or depending on data: then the lanes
    run one after the other, and each reads what those before it stored."""
    vectors = [r for r in own if role_of(r) == "VECTOR"]
    if all(role_of(r) != "ORDERED" for r in own):
        return False
    return any(not step_in(affine(each.offset)[0], r) for r in vectors for each in stores)
