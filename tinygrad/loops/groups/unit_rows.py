"""Attention by a matrix unit that the lanes of a warp execute together. A warp has some rows and
goes along the keys. The unit computes the scores of a block of keys, and the lanes keep them in
registers. The reductions along a row take them from there, and without being moved they become an
operand of the next product. So scores are never in memory, however long a row is.

Sums whose terms use the row's maximum follow it (`follow`), so all reductions go along the keys
once and scores are computed once. Where a term needs another sum of the whole row, each reduction
computes the scores again, which costs less on the unit than storing and loading them.

Gradients work in the same way. Their rows are queries or keys, a factor follows from two products
and the statistics of the rows, and only a sum of it goes along the other axis.

The unit must give its results in the register layout of one of its operands: with the same rows if
that is the first operand, with rows as columns if it is the second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tinygrad.base.helpers import ceildiv, round_up
from tinygrad.base.target import Target
from tinygrad.loops.draft import Draft, names
from tinygrad.loops.groups.blocks import BUSY_GROUPS
from tinygrad.loops.groups.pieces import (
    VECTOR,
    WORD,
    Options,
    is_copy,
    lanes_first,
    parts_of,
    piece,
    pipeline,
)
from tinygrad.loops.layout import term_of
from tinygrad.loops.matrix_units import UNITS, MatrixUnit, Part, matrix_units
from tinygrad.loops.operands import owners_of
from tinygrad.loops.reads import sums_of
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, size_of
from tinygrad.loops.tensorise import operand
from tinygrad.loops.together import can_follow
from tinygrad.uop import Ops, UOp

T = TypeVar("T")

KEYS = 64  # of a block, at most
WARPS = 4  # of a group, at most
FILLED = 0.63  # of a lane's registers, for sums, scores and the rows' own operand


@dataclass(frozen=True)
class Form:
    """The loops of such a kernel by name."""

    rows: str
    columns: str
    keys: tuple[str, ...]
    last: str


@dataclass(frozen=True)
class Use:
    """A unit whose results become its operand number `side`. The rows of the result have the size
    and parts of `rows`; the other axis of the result becomes part of the depth."""

    unit: MatrixUnit
    side: int

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of rows and of the other axis."""
        sizes = self.unit.rows, self.unit.columns
        return sizes[self.side], sizes[1 - self.side]

    @property
    def parts(self) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """The parts of rows and of the other axis."""
        assert self.unit.held is not None
        parts = self.unit.held.rows, self.unit.held.columns
        return parts[self.side], parts[1 - self.side]

    def in_order(self, rows: T, others: T) -> tuple[T, T]:
        """The two values in the order of the unit's rows and columns."""
        return (others, rows) if self.side else (rows, others)


def use_of(unit: MatrixUnit) -> Use | None:
    """How a unit's results can become its operand, if lanes hold both in the same layout."""
    held = unit.held
    if held is None or unit.is_staged:
        return None
    for side, operand_parts in enumerate((held.a, held.b)):
        use = Use(unit, side)
        rows, others = use.parts
        if rows == operand_parts and _shape(held.depth)[-len(others) :] == _shape(others):
            return use
    return None


def _shape(parts: tuple[Part, ...]) -> list[tuple[int, int]]:
    return [(size, stride) for _, size, stride in parts]


def row_units(target: Target) -> list[MatrixUnit]:
    """The units of a target whose results can become an operand."""
    return [u for u in UNITS.values() if use_of(u) and u in matrix_units(target, u.a, u.b, u.out)]


def unit_rows(draft: Draft) -> bool:
    """Computes the kernel with such a unit, if possible. Whether it did."""
    before = draft.mark()
    _merge_heads(draft)
    found = _form_of(draft)
    use = None if found is None else _use_for(draft, found[1])
    made = None if found is None or use is None else _Rows(draft, use, found[0], found[1][:-1])
    if made is None or not made.fits:
        draft.back_to(before)
        return False
    made.run()
    return True


def _merge_heads(draft: Draft) -> None:
    """Merges the loops of a sum over the rows of several heads, as in the gradient of keys that
    heads share."""
    for node in draft.sums:
        own = own_ranges(node)
        if len(own) != 2 or not sums_of(node.src[0].toposort()):
            continue
        if all(is_plain_loop(x) and owners_of(draft.kernel, x) == [node] for x in own):
            outer, inner = names(own)
            draft.merge(outer, inner, "g")
            return


class _Rows:
    """The steps of the recipe. `rows`, `columns`: the output's loops; `keys`: the loops of the
    reductions along a row, of which `last` is that of the output's product."""

    def __init__(self, draft: Draft, use: Use, form: Form, scores: list[UOp]) -> None:
        unit = use.unit
        assert unit.held is not None
        self.draft, self.use, self.unit, self.held, self.form = draft, use, unit, unit.held, form
        outer = draft.names_in("store")
        self.outer = [x for x in outer if x not in (form.rows, form.columns)]
        self.width = draft.size(form.columns)
        self.depth = round_up(max(size_of(own_ranges(n)[0]) for n in scores), unit.depth)
        loops = [draft.loops[k] for k in form.keys]
        self.scores = max(sum(loop in n.ranges for n in scores) for loop in loops)  # in a pass
        self.rows, self.beside = use.sizes
        self.leader = self._leader()
        self.passes = 1 if self.leader else len(form.keys)  # along the keys
        batch = draft.turns(self.outer)
        size, self.warps = draft.size(form.rows), WARPS
        while self.warps > 1 and (
            batch * ceildiv(size, self.warps * self.rows) < BUSY_GROUPS
            or self.warps * self.rows >= 2 * size
        ):
            self.warps //= 2
        self.block = KEYS
        while self.block > self.unit.depth and not self.fits:
            self.block //= 2

    def _leader(self) -> str | None:
        """The loop of the maximum that all other reductions can follow."""
        sums = {k: self.draft.sum_over(k) for k in self.form.keys}
        for k, first in sums.items():
            others = (n for n in sums.values() if n is not first)
            if all(can_follow(first, other) for other in others):
                return k
        return None

    @property
    def fits(self) -> bool:
        """Whether registers and shared memory hold what a warp and a group need at once."""
        target, unit = self.draft.target, self.unit
        operand = self.depth * unit.a.itemsize // WORD
        words = self.rows * (self.width + self.scores * (self.block + operand)) / unit.lanes
        return (
            self.width % self.beside == 0
            and words <= target.registers * FILLED
            and self.warps * unit.lanes <= target.group_limit
            and self._shared() <= target.local_memory
        )

    def _shared(self) -> int:
        """The bytes of all pieces."""
        scores = self.passes * self.scores
        columns = scores * self.depth + self.width
        return self.block * (columns * self.unit.a.itemsize + (scores + 1) * VECTOR)

    def run(self) -> None:
        """All steps."""
        draft, form = self.draft, self.form
        m, n = form.rows, form.columns
        warp = draft.split(m, self.warps * self.rows, m + "w", "PARALLEL", "LOOP")
        row = draft.split(warp, self.rows, m + "i", "LANE", "LOOP")
        insides = {k: self._block(k, n) for k in form.keys}
        if self.leader:
            kept = self.leader, insides[self.leader]
            for k in form.keys:
                if k != self.leader:
                    draft.do("follow", kept, (k, insides[k]))
            insides = {self.leader: insides[self.leader]}
        sums = {k: self._bring(k, inside, n) for k, inside in insides.items()}
        tile = draft.split(n, self.beside, n + "t", "UNROLL", "LOOP")
        roles = ("LANE", "UNROLL", "VECTOR")
        parts = self.use.parts
        rows, columns = (
            parts_of(draft, x, each, roles) for x, each in zip((row, tile), parts, strict=True)
        )
        lanes, items = lanes_first(zip((rows, columns), parts, strict=True))
        draft.do("order", "store", (*self.outer, m, warp, *lanes, n, *items))
        draft.give("PARALLEL", self.outer)
        for k, inside in insides.items():
            self._distribute(k, inside, sums[k], rows, columns)

    def _block(self, k: str, column: str) -> str:
        """Splits off a block of keys for each turn. Returns the loop inside the block."""
        draft = self.draft
        draft.do("extend", k, self.block)
        if k == self.form.last:
            self._tensorise(k, column)
        return draft.split(k, self.block, k + "i")

    def _bring(self, k: str, inside: str, column: str) -> list[str]:
        """Stages the operands of a block of keys for the group. Returns the loops of the sums that
        compute its scores."""
        draft, found = self.draft, list[str]()
        while (shared := self._scores(inside, found)) is not None:
            found.append(draft.unused(name_of(own_ranges(shared)[0]) + "s"))
            draft.do("own_loop", draft.path(shared), found[-1])
            draft.do("extend", found[-1], self.unit.depth)
            self._tensorise(found[-1], inside)
            self._piece(found[-1], (inside, found[-1]))
        if self._product(k) is not None:
            turned = "matrix_load" in draft.target.native
            self._piece(k, (inside, column) if turned else (column, inside))
        return found

    def _tensorise(self, k: str, other: str) -> None:
        """Gives the products of a sum to the unit. Its operand number `side` is the factor of the
        rows: the one without the loop `other`."""
        factors = self.draft.sum_over(k).src[0].src
        mine = next(i for i, x in enumerate(factors) if self.draft.loops[other] not in x.ranges)
        self.draft.do("tensorise", k, mine ^ self.use.side, self.unit.name)

    def _scores(self, inside: str, done: list[str]) -> UOp | None:
        """A sum that computes scores of these keys and is not the unit's yet."""
        loop = self.draft.loops[inside]
        sums = (x for x in self.draft.sums if loop in x.ranges)
        return next((x for x in sums if name_of(own_ranges(x)[0]) not in done), None)

    def _product(self, k: str) -> UOp | None:
        """The unit's product that is summed over `k`."""
        loop = self.draft.loops[k]
        terms = (term_of(x) for x in self.draft.sums if loop in own_ranges(x))
        return next((x for x in terms if x.op is Ops.WMMA), None)

    def _piece(self, k: str, layout: tuple[str, str]) -> None:
        """Stages the other operand than the rows', with rows padded by 16 bytes."""
        draft, product = self.draft, self._product(k)
        assert product is not None
        value = product.src[1 - self.use.side]
        options: Options = ()
        if is_copy(value, draft.loops[layout[1]]):
            blocks = (size_of(r) for r in value.ranges if name_of(r) in self.form.keys)
            options = pipeline(draft.target, self._shared(), next(blocks, 1))
        piece(draft, value, layout, "key", self.warps * self.unit.lanes, options)

    def _distribute(
        self, k: str, inside: str, sums: list[str], rows: list[str], columns: list[str]
    ) -> None:
        """Distributes products over the lanes. The lanes hold the scores in the layout that the
        next product expects of its operand. Lanes that have other keys of the same row combine
        their reductions."""
        draft, unit, use = self.draft, self.unit, self.use
        part = draft.split(inside, unit.depth, k + "p", "UNROLL", "LOOP")
        keys = parts_of(draft, part, self.held.depth, ("LOOP", "UNROLL", "VECTOR"))
        if self._product(k) is not None:
            draft.do("distribute", *use.in_order(rows, columns), keys, unit.name)
        mine = []
        for lane, item, (*_, stride) in zip(
            columns, keys[-len(columns) :], use.parts[1], strict=True
        ):
            if stride and item in draft.loops:
                draft.do("across", item, lane)
            mine.append(lane if stride else item)
        for loop in sums:
            depth = draft.split(loop, unit.depth, loop + "d", "UNROLL", "LOOP")
            parts = parts_of(draft, depth, self.held.depth, ("LOOP", "TILE", "VECTOR"))
            draft.do("distribute", *use.in_order(rows, mine), parts, unit.name)


def _form_of(draft: Draft) -> tuple[Form, list[UOp]] | None:
    """The loops of the kernel in this form, and its products; None if it has another form."""
    top = draft.nest("store").loops
    sums = draft.sums
    plain = all(map(is_plain_loop, (*top, *(r for n in sums for r in own_ranges(n)))))
    if not plain or any(len(own_ranges(n)) != 1 for n in sums):
        return None
    first = [n for n in sums if not sums_of(n.src[0].toposort())]
    along = [n for n in sums if n not in first]
    keys = {own_ranges(n)[0]: n for n in along}
    last = [(n, c) for n in along for c in _own_loops(n, top) if not _of_scores(n, c)]
    if len(last) != 1 or len(keys) != len(along):
        return None
    ((product, columns),) = last
    scores = [n for n in first if not keys.keys().isdisjoint(n.ranges)]
    if any(columns in n.ranges for n in first):
        return None
    rows = set[UOp]()
    for node in scores:
        sides = [_own_loops(node, top), _own_loops(node, tuple(keys))]
        if not sides[0] or len(sides[1]) != 1:
            return None
        rows.add(sides[0][-1])  # heads that share all keys are around them
    if len(rows) != 1 or columns in rows:
        return None
    form = Form(
        name_of(rows.pop()), name_of(columns), tuple(names(keys)), name_of(own_ranges(product)[0])
    )
    return form, [*scores, product]


def _own_loops(node: UOp, loops: tuple[UOp, ...]) -> list[UOp]:
    """The loops, among these, that exactly one factor of a sum of products depends on."""
    value = node.src[0]
    if node.arg != "add" or value.op is not Ops.MUL:
        return []
    a, b = (side.ranges for side in value.src)
    return [r for r in loops if (r in a) != (r in b)]


def _of_scores(node: UOp, loop: UOp) -> bool:
    """Whether the node, a sum of products, has scores in the factor that depends on the loop."""
    sides = (side for side in node.src[0].src if loop in side.ranges)
    return any(sums_of(side.toposort()) for side in sides)


def _use_for(draft: Draft, products: list[UOp]) -> Use | None:
    """How to use the unit that takes the factors of all of these products."""
    for unit in row_units(draft.target):
        sides = [operand(side, unit.a).dtype for node in products for side in node.src[0].src]
        if all(d is unit.a for d in sides) and all(n.dtype is unit.out for n in products):
            return use_of(unit)
    return None
