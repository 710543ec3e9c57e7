"""What a step computes, as a trace of a few *lines*: which templates, over which storage and which
others' results.

Promises and versions are objects, new ones in each step. Lines have numbers in their place, in the
order in which they are met: two steps that do the same to other storage have equal lines. A graph
says as much in a hundred nodes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tinygrad.engine.numbers import Begin, Number
from tinygrad.tensor.promise import DEEP, Expression, Promise, Source, Template, from_below
from tinygrad.tensor.sources import brought
from tinygrad.tensor.version import Bound, Version, boxes_of
from tinygrad.uop import Ops, UOp


class Lines:
    """Expressions and what they stand on, numbered as they are met: what a graph would say, in a
    few lines. What was computed counts as storage, unless its expression is asked for (`whole`):
    then nothing is to be computed yet, and lists stay what they are."""

    def __init__(self, whole: bool = False) -> None:
        self.whole = whole
        self.key: list[Hashable] = []  # equal for steps that do the same to other storage
        self.places: dict[Expression | Source, int] = {}  # the number of each
        self.leaves: list[Source] = []  # storage, draws, promises of others
        self.starts: dict[int, Version] = {}  # where gradients begin: the first version met of each
        self.begins: list[int] = []  # of all leaves' boxes and draws, which are no part of the key
        self.is_over = False  # whether a version among them was overwritten
        self.is_lent = False  # whether other libraries see storage among them
        self.bases: dict[UOp, int] = {}  # of the storage among the leaves, in the order met

    def continued(self, template: Template) -> Lines:
        """Others that begin with these, of which only the gradients are that have this template."""
        made = object.__new__(Lines)
        made.whole, made.key, made.places = False, [template], self.places.copy()
        made.leaves = [brought(leaf) if type(leaf) is Version else leaf for leaf in self.leaves]
        made.starts, made.begins = self.starts.copy(), self.begins.copy()
        made.bases = {_home(node): i for node, i in self.bases.items()}
        made.is_over = made.is_lent = False
        for leaf in made.leaves:
            made._look_at(leaf)
        return made

    def add(self, source: Source | Expression) -> int:
        """The number of a promise's expression, or of storage."""
        places = self.places
        item: Any = source
        if isinstance(source, Promise) and (self.whole or source.buffer is None):
            item = source.expression
        if item in places:
            return places[item]
        if type(item) is Expression:
            for deep in from_below(item, places, self.whole) if item.depth > DEEP else ():
                self.add(deep)
            row: list[Hashable] = [item.template, item.origin]
            for below in item.sources:
                # of storage, most of which was met before
                row.append(places[below] if below in places else self.add(below))
                if below.number:
                    row.append(-below.number)
            self.key += row
        else:
            self._add_leaf(item)
        place = places[item] = len(places)
        return place

    def sources(self) -> list[Source]:
        """What expressions stand on: storage, and promises of others."""
        places = self.places
        expressions = [item for item in places if type(item) is Expression]
        inner = [b for each in expressions for b in each.sources if b not in places]
        return [*self.leaves, *inner]

    def numbers(self) -> dict[Number, int]:
        """The numbers that plans may take as arguments, and their places among the `begins`: where
        random numbers were drawn from, and where boxes begin through which alone a storage is
        seen."""
        views: dict[UOp, set[UOp]] = {}
        for leaf in self.leaves:
            if isinstance(leaf, Version):
                views.setdefault(leaf.base, set()).add(leaf.view)
        numbers: list[tuple[Number, bool]] = []
        for leaf in self.leaves:
            if isinstance(leaf, Bound):
                numbers.append((leaf.node, True))
            elif isinstance(leaf, Version):
                boxes, alone = boxes_of(leaf.view), len(views[leaf.base]) == 1
                numbers += [(Begin(b, axis), alone) for b in boxes for axis in range(len(b.arg))]
        return {number: i for i, (number, alone) in enumerate(numbers) if alone}

    def _look_at(self, leaf: Source) -> None:
        """Notes whether it was overwritten, or others see it."""
        if type(leaf) is Version:
            base = leaf.base
            buffer = base.storage
            if buffer is None:
                self.is_over |= base.op not in (Ops.CONST, Ops.COPY)
            elif buffer.era != leaf.era or base.newer is not None:
                self.is_over = True
            elif buffer.others:
                self.is_lent = True
        elif type(leaf) is not Bound:
            self.is_lent |= leaf.buffer is not None and leaf.buffer.others > 0

    def _add_leaf(self, item: Any) -> None:
        leaf: Any = item if self.whole or type(item) is not Version else brought(item)
        self._look_at(leaf)
        if type(leaf) is Version:
            base, seen = leaf.base, self.bases
            self.key += leaf.row
            self.key.append(seen.setdefault(base, len(seen)))
            if leaf.start is not None:
                same = self.starts.setdefault(leaf.start, item)
                self.key.append(None if same is item else self.places[same])
            if leaf.begins:
                self.begins += leaf.begins
                self.key.append(seen.setdefault(leaf.view, len(seen)))
        elif type(leaf) is Bound:
            self.begins.append(leaf.value)
            self.key.append(leaf.look)
        else:
            self.key += (leaf.expression.template, leaf.number)
        self.leaves.append(leaf)


def _home(node: UOp) -> UOp:
    """A list's storage, in the place of its copy."""
    return node if node.op is not Ops.COPY or node.known is None else node.known.base
