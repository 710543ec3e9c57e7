"""Attention by a unit that the lanes of a warp execute together: a warp has some rows, and goes
along the keys. The scores of a block of keys are a product by the unit, whose results the lanes
keep in registers; there they are taken in by what is reduced along a row, or become, as they lie,
an operand of the next product. So scores are nowhere in memory, however long a row is. Each
reduction along it makes them again, which costs the unit less than memory would.

That needs a unit whose results lie in lanes as its operands do."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.helpers import ceildiv, prod, round_up
from tinygrad.base.target import Target
from tinygrad.loops.groups.blocks import lanes_first
from tinygrad.loops.groups.pieces import (
    BUSY_GROUPS,
    VECTOR,
    Options,
    is_copy,
    parts_of,
    piece,
    pipeline,
    sum_over,
)
from tinygrad.loops.layout import is_plain_loop, name_of, own_ranges, size_of, sums_of
from tinygrad.loops.matrix_units import UNITS, MatrixUnit, Part, matrix_units
from tinygrad.loops.plan import Plan, names
from tinygrad.loops.tensorise import operand
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

KEYS = 64  # of a block
WARPS = 4  # of a group, at most
FILLED = 0.6  # of a lane's registers, for sums, scores and the rows' own operand
WORD = 4


@dataclass(frozen=True)
class Form:
    """The loops of such a kernel by name."""

    rows: str
    columns: str
    keys: tuple[str, ...]
    last: str


def keeps_results(unit: MatrixUnit) -> bool:
    """Whether results of a unit lie in lanes as its first operand does."""
    held = unit.held
    if held is None or unit.is_staged or held.a != held.rows:
        return False
    return _shape(held.depth)[-len(_shape(held.columns)) :] == _shape(held.columns)


def _shape(parts: tuple[Part, ...]) -> list[tuple[int, int]]:
    return [(size, stride) for _, size, stride in parts]


def row_units(target: Target) -> list[MatrixUnit]:
    """The units of a target that can do this."""
    return [
        u for u in UNITS.values() if keeps_results(u) and u in matrix_units(target, u.a, u.b, u.out)
    ]


def unit_rows(plan: Plan) -> bool:
    """Whether such a unit computes the kernel."""
    found = _form_of(plan)
    if found is None:
        return False
    form, products = found
    unit = _unit_for(plan, products)
    if unit is None:
        return False
    depth = max(size_of(own_ranges(n)[0]) for n in products[:-1])
    made = _Rows(plan, unit, form, depth)
    if not made.fits:
        return False
    made.run()
    return True


class _Rows:
    """The steps of the recipe. `rows`, `columns`: the output's loops; `keys`: those of what is
    reduced along a row, `last` the one whose sum is the output's product."""

    def __init__(self, plan: Plan, unit: MatrixUnit, form: Form, depth: int) -> None:
        assert unit.held is not None
        self.plan, self.unit, self.held, self.form = plan, unit, unit.held, form
        outer = names(plan.nest("store").loops)
        self.outer = [x for x in outer if x not in (form.rows, form.columns)]
        self.width = size_of(plan.loops[form.columns])
        self.depth = round_up(depth, unit.depth)
        batch = prod(size_of(plan.loops[x]) for x in self.outer)
        size, self.warps = size_of(plan.loops[form.rows]), WARPS
        while self.warps > 1 and (
            batch * ceildiv(size, self.warps * unit.rows) < BUSY_GROUPS
            or self.warps * unit.rows >= 2 * size
        ):
            self.warps //= 2

    @property
    def fits(self) -> bool:
        """Whether registers and shared memory hold what a warp, and a group, needs at once."""
        target, unit = self.plan.target, self.unit
        operand = self.depth * unit.a.itemsize // WORD
        words = unit.rows * (self.width + KEYS + operand) / unit.lanes
        return (
            self.width % unit.columns == 0
            and words <= target.registers * FILLED
            and self.warps * unit.lanes <= target.group_limit
            and self._shared() <= target.local_memory
        )

    def _shared(self) -> int:
        """Bytes of all pieces."""
        rows = len(self.form.keys) * self.depth + self.width
        return KEYS * (rows * self.unit.a.itemsize + (len(self.form.keys) + 1) * VECTOR)

    def run(self) -> None:
        """All steps."""
        plan, unit, form = self.plan, self.unit, self.form
        m, n = form.rows, form.columns
        warp = plan.split(m, self.warps * unit.rows, m + "w", "PARALLEL", "LOOP")
        row = plan.split(warp, unit.rows, m + "i", "LANE", "LOOP")
        sums = {k: self._block(k, n) for k in form.keys}
        tile = plan.split(n, unit.columns, n + "t", "UNROLL", "LOOP")
        roles = ("LANE", "UNROLL", "VECTOR")
        rows = parts_of(plan, row, self.held.rows, roles)
        columns = parts_of(plan, tile, self.held.columns, roles)
        lanes, items = lanes_first(((rows, self.held.rows), (columns, self.held.columns)))
        plan.do("order", "store", (*self.outer, m, warp, *lanes, n, *items))
        plan.give("PARALLEL", self.outer)
        for k in form.keys:
            self._distribute(k, sums[k], rows, columns)

    def _block(self, k: str, column: str) -> list[str]:
        """A block of keys a turn, whose operands are brought to the group. Returns the loops of the
        sums that its scores are."""
        plan, unit = self.plan, self.unit
        plan.do("extend", k, KEYS)
        if k == self.form.last:
            plan.do("tensorise", k, self._side(k, column), unit.name)
        inside = plan.split(k, KEYS, k + "i")
        found = list[str]()
        while (shared := self._scores(inside, found)) is not None:
            found.append(plan.unused(name_of(own_ranges(shared)[0]) + "s"))
            plan.do("own_loop", plan.path(shared), found[-1])
            plan.do("extend", found[-1], unit.depth)
            plan.do("tensorise", found[-1], self._side(found[-1], inside), unit.name)
            self._piece(found[-1], (inside, found[-1]))
        if k == self.form.last:
            self._piece(k, (inside, column))
        return found

    def _side(self, k: str, other: str) -> int:
        """Which factor of a sum is that of the rows: the one without the loop `other`."""
        factors = sum_over(self.plan, k).src[0].src
        return next(i for i, x in enumerate(factors) if self.plan.loops[other] not in x.ranges)

    def _scores(self, inside: str, done: list[str]) -> UOp | None:
        """A sum of scores of these keys that is not the unit's yet."""
        loop = self.plan.loops[inside]
        sums = (x for x in sums_of(self.plan.nodes) if loop in x.ranges)
        return next((x for x in sums if name_of(own_ranges(x)[0]) not in done), None)

    def _piece(self, k: str, layout: tuple[str, str]) -> None:
        """The second operand of the sum over `k`: rows for keys, 16 bytes beyond whole ones."""
        plan, value = self.plan, sum_over(self.plan, k).src[0].src[1]
        options: Options = ()
        if is_copy(value, plan.loops[layout[1]]):
            blocks = (size_of(r) for r in value.ranges if name_of(r) in self.form.keys)
            options = pipeline(plan.target, self._shared(), next(blocks, 1))
        piece(plan, value, layout, "key", self.warps * self.unit.lanes, options)

    def _distribute(self, k: str, sums: list[str], rows: list[str], columns: list[str]) -> None:
        """Products go to the lanes. Scores lie in them as the next product wants its operand, or as
        lanes share what is reduced."""
        plan, unit, held = self.plan, self.unit, self.held
        inside = k + "i"
        if k == self.form.last:
            part = plan.split(inside, unit.depth, k + "p", "UNROLL", "LOOP")
            keys = parts_of(plan, part, held.depth, ("LOOP", "UNROLL", "VECTOR"))
            plan.do("distribute", rows, columns, keys, unit.name)
            pairs = zip(columns, keys[-len(columns) :], held.columns, strict=True)
            mine = [lane if stride else item for lane, item, (*_, stride) in pairs]
        else:
            part = plan.split(inside, unit.columns, k + "p", "UNROLL", "LOOP")
            mine = parts_of(plan, part, held.columns, ("GROUP", "UNROLL", "UNROLL"))
        for loop in sums:
            depth = plan.split(loop, unit.depth, loop + "d", "UNROLL", "LOOP")
            parts = parts_of(plan, depth, held.depth, ("LOOP", "TILE", "VECTOR"))
            plan.do("distribute", rows, mine, parts, unit.name)


def _form_of(plan: Plan) -> tuple[Form, list[UOp]] | None:
    """The kernel's loops in these terms, and its products; None if it has another form."""
    top = plan.nest("store").loops
    sums = sums_of(plan.nodes)
    plain = all(map(is_plain_loop, (*top, *(r for n in sums for r in own_ranges(n)))))
    if len(plan.kernel.src) != 1 or not plain or any(len(own_ranges(n)) != 1 for n in sums):
        return None
    scores = [n for n in sums if not any(x.op is Ops.REDUCE for x in n.src[0].toposort())]
    along = [n for n in sums if n not in scores]
    keys = {own_ranges(n)[0]: n for n in along}
    last = [(n, c) for n in along for c in _own_loops(n, top) if not _of_scores(n, c)]
    if len(last) != 1 or len(keys) != len(along):
        return None
    ((product, columns),) = last
    rows = set[UOp]()
    for node in scores:
        sides = [_own_loops(node, top), _own_loops(node, tuple(keys))]
        if [len(side) for side in sides] != [1, 1] or columns in node.ranges:
            return None
        rows.update(sides[0])
    if len(rows) != 1 or columns in rows:
        return None
    form = Form(
        name_of(rows.pop()), name_of(columns), tuple(names(keys)), name_of(own_ranges(product)[0])
    )
    return form, [*scores, product]


def _own_loops(node: UOp, loops: tuple[UOp, ...]) -> list[UOp]:
    """Of these loops those that one factor of a sum of products depends on, and the other not."""
    value = node.src[0]
    if node.arg != "add" or value.op is not Ops.MUL:
        return []
    a, b = (side.ranges for side in value.src)
    return [r for r in loops if (r in a) != (r in b)]


def _of_scores(node: UOp, loop: UOp) -> bool:
    """Whether it is the factor with scores that depends on a loop."""
    sides = (side for side in node.src[0].src if loop in side.ranges)
    return any(x.op is Ops.REDUCE for side in sides for x in side.toposort())


def _unit_for(plan: Plan, products: list[UOp]) -> MatrixUnit | None:
    """The unit that takes the factors of all of these."""
    for unit in row_units(plan.target):
        sides = [operand(side, unit.a).dtype for node in products for side in node.src[0].src]
        if all(d is unit.a for d in sides) and all(n.dtype is unit.out for n in products):
            return unit
    return None
