"""Matrix products on devices with groups of lanes: by a matrix unit if one suits (`unit_products`),
otherwise each lane computes a small register tile from the pieces of its group's block."""

from __future__ import annotations

from dataclasses import replace

from tinygrad.base.target import Target
from tinygrad.loops.draft import Draft, Nest, names
from tinygrad.loops.groups.blocks import BUSY_GROUPS, FILLED, SHARED, Blocks, Shape, Sides, Sizes
from tinygrad.loops.groups.pieces import VECTOR, WORD, piece, power_below
from tinygrad.loops.groups.unit_products import unit_product
from tinygrad.loops.operands import owners_of
from tinygrad.loops.products import Product, reduction_of
from tinygrad.loops.reads import reads_of
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, role_of
from tinygrad.uop import Ops, UOp

LANES = 256  # of a group: enough to hide its own latencies, few enough for many groups
LONGEST_TILE = 8  # elements along a side of a lane's tile
DEEPEST_STEP = 16  # of the sum: what a piece holds
LEAST = 16  # along a side of a product that is worth a block


def group_product(draft: Draft, nest: Nest, products: list[Product]) -> bool:
    """Blocks, pieces and tiles for the products of the stores' nest. False if there is no room or
    the products are too small; the draft is then unchanged."""
    before, loops = draft.mark(), _sides(nest, products)
    if loops is None:
        return False
    done = _joined(draft, loops, products)
    if done is None or not _multiplied(draft, *done):
        draft.back_to(before)
        return False
    return True


def _multiplied(draft: Draft, sides: Sides, sums: list[str]) -> bool:
    """Whether a unit, or else lanes, can compute these sums of products."""
    sizes = Sizes(
        draft.size(sides.m),
        draft.size(sides.n),
        max(map(draft.size, sums)),
        draft.turns(sides.outer),
        len(sums),
    )
    if unit_product(draft, sides, sizes, sums):
        return True
    itemsizes = [draft.sum_over(k).src[0].dtype.itemsize for k in sums]
    shape = block_shape(draft.target, sizes, sum(max(1, size // WORD) for size in itemsizes))
    if shape is not None:
        _Lanes(draft, sides, shape, itemsizes).run(sums)
    return shape is not None


# ---- loops ---------------------------------------------------------------------------------------


def _sides(nest: Nest, products: list[Product]) -> tuple[list[str], list[str]] | None:
    """The output's loops that only the rows, and only the columns, depend on: the same for all
    products."""
    found = set()
    for one in products:
        only_rows = [r for r in nest.loops if r in one.rows.ranges - one.columns.ranges]
        only_columns = [r for r in nest.loops if r in one.columns.ranges - one.rows.ranges]
        found.add((tuple(names(only_rows)), tuple(names(only_columns))))
    if len(found) != 1:
        return None
    ((rows, columns),) = found
    merged = {*rows[len(rows) < 2 :], *columns[len(columns) < 2 :]}
    if not all(_is_free(r) and (is_plain_loop(r) or name_of(r) not in merged) for r in nest.loops):
        return None
    return list(rows), list(columns)


def _is_free(loop: UOp) -> bool:
    """Whether the loop is a LOOP without limits, other than those that variables set."""
    return role_of(loop) == "LOOP" and not any(limit.ranges for limit in loop.src[1:])


def _joined(
    draft: Draft, sides: tuple[list[str], list[str]], products: list[Product]
) -> tuple[Sides, list[str]] | None:
    """Merges loops: one for the rows, one for the columns, one for each sum; and returns the loops
    around them."""
    rows, columns = sides
    outer = draft.innermost("store", (*rows, *columns))
    m, n = _as_one(draft, rows), _as_one(draft, columns)
    made = []
    for one in products:
        reduction = reduction_of(draft, "store", one)
        if not all(map(is_plain_loop, own_ranges(reduction))) or _sums_in_indices(reduction):
            return None
        if any(len(owners_of(draft.kernel, draft.loops[x])) > 1 for x in one.loops):
            return None
        k = _as_one(draft, list(one.loops))
        sums, *others = owners_of(draft.kernel, draft.loops[k])
        if sums.op is not Ops.REDUCE or others or sums.src[0].op is not Ops.MUL:
            return None
        made.append(k)
    return Sides(m, n, outer), made


def _sums_in_indices(reduction: UOp) -> bool:
    """Whether an operand of the sum is read at an index that another sum computes."""
    reads = reads_of(reduction.src[0].toposort())
    return any(x.op is Ops.REDUCE for read in reads for s in read.src[1:] for x in s.toposort())


def _as_one(draft: Draft, loops: list[str]) -> str:
    """Merges adjacent loops into one. Returns its name."""
    whole = loops[0]
    for following in loops[1:]:
        whole = draft.merge(whole, following, "g")
    return whole


# ---- sizes ---------------------------------------------------------------------------------------


def block_shape(target: Target, sizes: Sizes, words: int) -> Shape | None:
    """The largest tiles that fit in registers, provided that enough blocks remain to keep the
    device busy. `words`: registers that an element of the result takes."""
    if min(sizes.rows, sizes.columns) < LEAST or target.local_memory == 0:
        return None
    lanes = power_below(max(1, min(LANES, target.group_limit)))
    side = power_below(int(lanes**0.5))
    if side < 2:
        return None
    across = lanes // side
    tile = [LONGEST_TILE, LONGEST_TILE]
    room = target.registers * FILLED / words

    def is_busy() -> bool:
        return sizes.groups((side * tile[0], across * tile[1])) >= BUSY_GROUPS

    while max(tile) > 1 and (tile[0] * tile[1] + sum(tile) > room or not is_busy()):
        if tile[0] * tile[1] + sum(tile) <= room and max(tile) <= 2:
            break
        tile[tile[0] < tile[1]] //= 2  # rows first: columns are adjacent in memory
    for axis, size in enumerate((sizes.rows, sizes.columns)):
        reach = (side, across)[axis]
        while tile[axis] > 1 and reach * tile[axis] >= 2 * size:
            tile[axis] //= 2
    steps = DEEPEST_STEP
    while steps > 1 and steps >= 2 * sizes.depth:
        steps //= 2
    shape = Shape((side, across), (tile[0], tile[1]), steps)
    taken = words * WORD * steps * (sum(shape.block) + 2 * VECTOR // WORD)
    return shape if taken * SHARED <= target.local_memory else None


# ---- the nest ------------------------------------------------------------------------------------


class _Lanes(Blocks):
    """The steps of the recipe."""

    def __init__(self, draft: Draft, sides: Sides, shape: Shape, itemsizes: list[int]) -> None:
        self.itemsize = max(itemsizes)
        step = sum(shape.block) * self.itemsize + 2 * VECTOR
        super().__init__(draft, sides, replace(shape, shared=len(itemsizes) * shape.depth * step))

    def run(self, sums: list[str]) -> None:
        for k in sums:
            self.bring(k)
        self._tile()

    def layout(self, k: str, ki: str, axis: int) -> tuple[str, str]:
        """[step][element]. Sums inside an operand are computed before the product."""
        draft, inner = self.draft, self.inner[axis]
        own, along = draft.loops[inner], {draft.loops[k], draft.loops[ki]}
        for part in _sums_within(draft, self.side(k, axis), own, along):
            piece(draft, part, (inner,), "ps", self.lanes)
        return ki, inner

    def _tile(self) -> None:
        """Distributes a block's elements over the lanes, several neighbours to each."""
        draft, lanes, copies = self.draft, [], []
        vector = draft.target.lanes(self.itemsize)
        for axis, (inner, size) in enumerate(zip(self.inner, self.shape.part, strict=True)):
            together = min(vector, size)
            block = self.shape.grid[axis] * together
            copies.append(inner)
            lane = draft.split(inner, block, inner + "l", "UNROLL")
            if together > 1:
                role = "VECTOR" if axis else "UNROLL"
                copies.append(draft.split(lane, together, inner + "v", "LANE", role))
            else:
                draft.do("role", lane, "LANE")
            lanes.append(lane)
        self.order(self.sides, lanes, copies)


def _sums_within(draft: Draft, value: UOp, own: UOp, along: set[UOp]) -> list[UOp]:
    """The largest parts of an operand that contain a REDUCE and depend on its `own` loop, but not
    on the loops of the product's sum."""
    below, with_sums = draft.below((value,)), set[UOp]()
    for node in below:
        if node.op is Ops.REDUCE or any(s in with_sums for s in node.src):
            with_sums.add(node)
    fixed = {node for node in with_sums if node.ranges.isdisjoint(along)}
    inside = {s for node in fixed for s in node.src}
    return [node for node in below if node in fixed - inside and own in node.ranges]
