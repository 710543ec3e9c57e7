"""Which reductions are matrix products: a REDUCE of a*b whose factors depend on different loops of
the output, or of any other short expression of two such operands (a distance, a sum of which the
maximum is wanted). Also the matrix unit that can compute such a product, if the target has one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import round_up
from tinygrad.base.target import Target
from tinygrad.loops.cost import weight
from tinygrad.loops.draft import Draft, Nest, names, steps_along
from tinygrad.loops.in_place import STRIDED_ROWS, laying_out, may_stay
from tinygrad.loops.matrix_units import MatrixUnit
from tinygrad.loops.operands import owners_of
from tinygrad.loops.reads import below_bits, sums_of
from tinygrad.loops.register_tiles import FEW_REGISTERS, Surroundings, register_tile
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.loops.tensorise import operand, units_of
from tinygrad.schedule.bases import beneath
from tinygrad.uop import GroupOp, Ops, UOp

PACKING = 0.125
"""Cycles that it takes to pack a byte of columns."""

LONG_PANEL, PANEL_BLOCK, SUMS = 0.5, 0.125, 0.3
"""A panel of more than the first fraction of the private cache is packed in blocks of about the
second, if the partial sums of all row tiles fit in the third. Where few row tiles use a panel, so
that they wait for memory, two blocks are long: one is used while the next one arrives."""

NEAR_PANEL, NEAR_TURNS = 0.5, 128
"""A window's rows are read again with each tap. With few registers tiles are small, and read the
panel so often that both should stay in the first cache. So a block of the panel has this fraction
of that cache, if it has this many turns of a tile; the cost of loading and storing sums is then
small."""

PADDED, PADDED_TILES = 1.25, 4.0
"""For a unit a sum may be padded to this many times its length; to the second number for a unit of
tiles, since it is that much faster."""

MOST_OPERATIONS = 8
"""Operations on two operands that are worth a register tile: if there are more, then reading the
operands again for each result costs little beside them."""


@dataclass(frozen=True)
class Product:
    """A REDUCE over rows[m, k] * columns[k, n]. The facts are from before anything was split."""

    loops: tuple[str, ...]
    inner: UOp
    rows: UOp
    columns: UOp
    row_loop: UOp
    row_steps: tuple[int | None, ...]
    column_steps: tuple[int | None, ...]
    in_place: bool  # the columns are read where they lie
    laying_out: float  # the cost of laying out the rows, relative to the product
    around: tuple[str, ...] = ()  # loops of the sum that run around the row tiles
    depth: tuple[str, ...] = ()  # the loops inside a matrix unit's instruction
    is_multiplied: bool = True  # a sum of plain products, as a matrix unit computes it


def factors_of(reduction: UOp) -> tuple[UOp, UOp] | None:
    """The two factors if a REDUCE sums products, else None."""
    value = beneath(reduction.src[0], (Ops.CAST,))
    if reduction.arg != "add" or value.op not in (Ops.MUL, Ops.WMMA):
        return None
    first, second = value.src
    return first, second


def operands_of(reduction: UOp) -> tuple[UOp, UOp] | None:
    """The two operands whose combinations a REDUCE takes in: its factors, or those of any other
    elementwise expression. Values that depend on nothing but what one of the operands depends on
    may take part. None if there are more operands, or the expression is long; and for sums of
    floats that are no products, whose rounding errors a tile has no registers for."""
    pair, (mixed, found) = factors_of(reduction), _parts(reduction.src[0])
    if pair is not None and not any(factor in mixed for factor in pair):
        return pair
    if pair is None and reduction.arg == "add" and dtypes.is_float(reduction.dtype):
        return None
    most = [n for n in found if not any(n.ranges < other.ranges for other in found)]
    most = [n for n in most if not any(m is not n and m in n.toposort() for m in most)]
    is_long = sum(map(weight, mixed)) > MOST_OPERATIONS
    if len(most) != 2 or is_long or any(n.op not in GroupOp.Elementwise for n in mixed):
        return None
    return most[0], most[1]


def _parts(value: UOp) -> tuple[list[UOp], list[UOp]]:
    """The nodes of a value that depend on all of its loops, and the largest parts that depend on
    some of them."""
    mixed = [n for n in value.toposort() if n.ranges == value.ranges]
    inside = dict.fromkeys(s for n in mixed if n.op in GroupOp.Elementwise for s in n.src)
    return mixed, [n for n in inside if n.ranges and n.ranges < value.ranges]


def panel_block(target: Target, line: int, has_window: bool) -> int:
    """The bytes of a block of a long panel, of which one turn takes `line` bytes."""
    near = int(NEAR_PANEL * target.cache_l1)
    is_near = has_window and target.registers <= FEW_REGISTERS and near >= NEAR_TURNS * line
    return near if is_near else int(PANEL_BLOCK * target.cache_l2)


def is_in_place(
    draft: Draft,
    nest: Nest,
    rows: UOp,
    columns: UOp,
    loops: Sequence[UOp],
    row_loop: UOp,
    width: int,
) -> bool:
    """Whether it is cheaper to read `width` columns of this product over `loops` where they lie
    than from a packed panel."""
    if not may_stay(nest, columns, loops):
        return False
    height, itemsize = size_of(row_loop), columns.dtype.itemsize
    stay = register_tile(draft, height, width, itemsize, Surroundings(masked=True)).cycles
    packed = register_tile(draft, height, width, itemsize).cycles + PACKING * itemsize * width
    return stay * (1 + min(laying_out(nest, rows), STRIDED_ROWS)) <= packed


# ---- which sums are products ---------------------------------------------------------------------


def contractions(draft: Draft, nest: Nest) -> list[Product]:
    """The products in this nest that share its row loop; empty if it has none."""
    last = nest.loops[-1] if nest.loops else None
    if last is None or role_of(last) != "LOOP" or not 2 <= draft.lanes <= 2 * size_of(last):
        return []
    sums = sums_of(draft.below(nest.values))
    found = [one for n in sums if (one := _contraction(draft, nest, n, last)) is not None]
    return [p for p in found if p.row_loop is found[0].row_loop]


def _contraction(draft: Draft, nest: Nest, reduction: UOp, last: UOp) -> Product | None:
    if (pair := operands_of(reduction)) is None:
        return None
    rows, columns = pair if last in pair[1].ranges else pair[::-1]
    if last in rows.ranges or last not in columns.ranges or _is_filled_for_each(draft, last):
        return None
    loops = own_ranges(reduction)
    inner = loops[-1]
    if any(role_of(r) != "LOOP" for r in loops):
        return None
    if inner not in rows.ranges or inner not in columns.ranges:
        return None
    row_loops = [r for r in nest.loops if r in rows.ranges and r not in columns.ranges]
    row_loops = [r for r in row_loops if role_of(r) == "LOOP"]
    if not row_loops or size_of(row_loops[-1]) == 1:
        return None
    return Product(
        tuple(names(loops)),
        inner,
        rows,
        columns,
        row_loops[-1],
        tuple(steps_along(rows.toposort(), inner)),
        tuple(steps_along(columns.toposort(), inner)),
        is_in_place(draft, nest, rows, columns, loops, row_loops[-1], size_of(last)),
        laying_out(nest, rows),
        is_multiplied=pair == factors_of(reduction),
    )


def _is_filled_for_each(draft: Draft, loop: UOp) -> bool:
    """Whether values kept in rows, which may have vectors of their own, are filled in each turn."""
    return any(loop in draft.stages[name].ranges for name in draft.kept)


# ---- matrix units --------------------------------------------------------------------------------


def tensorised(draft: Draft, column: str, one: Product) -> Product:
    """The product on a vector unit, if the target has one for its dtypes."""
    found = unit_of(draft, column, one, is_tile=False)
    return one if found is None else take_unit(draft, one, *found)


def take_unit(draft: Draft, one: Product, unit: MatrixUnit, rows: int) -> Product:
    """The product on this unit, whose first operand is factor number `rows`."""
    name = name_of(one.inner)
    depth = fit(draft, name, unit, rows)
    pack = depth[-1]
    products = (n for n in draft.nodes if n.op is Ops.WMMA and draft.loops[pack] in n.ranges)
    first, second = map(below_bits, next(products).src)
    return replace(one, inner=draft.loops[name], rows=first, columns=second, depth=depth)


def fit(draft: Draft, name: str, unit: MatrixUnit, rows: int) -> tuple[str, ...]:
    """Gives the products along loop `name` to the unit. Returns the loops inside an instruction."""
    draft.do("extend", name, unit.depth)
    wanted = name + ("d" if unit.depth > unit.pack else "p")
    if len(unit.inside) == 1:
        depth: tuple[str, ...] = (draft.split(name, unit.depth, wanted, "LOOP", "TILE"),)
    else:
        first = draft.split(name, unit.depth, wanted)
        depth = (first, draft.split(first, unit.pack, name + "p", "TILE", "TILE"))
    draft.do("tensorise", depth[-1], rows, unit.name)
    return depth


def unit_of(
    draft: Draft, column: str, one: Product, is_tile: bool
) -> tuple[MatrixUnit, int] | None:
    """The unit that computes this product, and the number of the factor that is its first operand:
    the one without the loop `column`."""
    found = _units(draft, one.inner, is_tile) if one.is_multiplied else []
    return next(((u, rows) for u, rows, first in found if column not in names(first.ranges)), None)


def vector_unit(draft: Draft, loop: UOp) -> tuple[MatrixUnit, int] | None:
    """The vector unit for a sum of products along `loop`, with either factor as its first operand.
    Units that take the factors as they are come first."""
    found = _units(draft, loop, is_tile=False)
    exact = [each for each in found if each[0].a is operand(each[2], each[0].a).dtype]
    return next((each[:2] for each in (*exact, *found)), None)


def _units(draft: Draft, loop: UOp, is_tile: bool) -> list[tuple[MatrixUnit, int, UOp]]:
    """Units for the sum along `loop`, if it is one of products; each with the number of the factor
    that is the first operand, and that factor. Short sums that would be mostly padding are left to
    plain loops."""
    owners = owners_of(draft.kernel, loop)
    if len(owners) != 1 or len(loop.src) > 1 or owners[0].op is not Ops.REDUCE:
        return []
    value, size, found = owners[0].src[0], size_of(loop), []
    most = size * (PADDED_TILES if is_tile else PADDED)
    for rows, first in enumerate(value.src if value.op is Ops.MUL else ()):
        for unit in units_of(draft.target, first, value.src[1 - rows], first.dtype):
            suits = unit.columns == draft.lanes and unit.is_tile == is_tile
            if suits and round_up(size, unit.depth) <= most:
                found.append((unit, rows, first))
                break
    return found


def reduction_of(draft: Draft, nest: str, one: Product) -> UOp:
    """The product's sum in the kernel's current form."""
    for node in sums_of(draft.below(draft.nest(nest).values)):
        is_sum = name_of(own_ranges(node)[0]) in one.loops
        if is_sum and not any(factor.op is Ops.CONST for factor in factors_of(node) or ()):
            return node  # not the correction that `tensorise` subtracts
    raise AssertionError(f"the product over {one.loops[0]} is gone")


def whole_sum(draft: Draft, reduction: UOp) -> UOp:
    """The sum including the correction that `tensorise` subtracts, which runs over the same
    loops."""
    for node in draft.nodes:
        if node.op is Ops.ADD and node.src[0] is reduction and node.src[1].op is Ops.MUL:
            other = node.src[1].src[0]
            if other.op is Ops.REDUCE and own_ranges(other) == own_ranges(reduction):
                return node
    return reduction


def side_of(draft: Draft, nest: str, one: Product, column: str, is_column: bool) -> UOp:
    """A product's operand in its current form: the one that depends on the loop `column`, or the
    other."""
    pair = operands_of(reduction_of(draft, nest, one))
    assert pair is not None, "a product has operands"
    return next(side for side in pair if (column in names(side.ranges)) == is_column)


def finish_in_memory(draft: Draft, nest: str, one: Product, roles: dict[str, str]) -> None:
    """Stages a finished sum over all turns of these loops, which become copies and lanes."""
    total = whole_sum(draft, reduction_of(draft, nest, one))
    layout = those_in(total, roles)
    name = draft.stage(total, layout, "tile", "LOCAL")
    for loop in layout:
        draft.do("role", f"{name}.{loop}", roles[loop])


def accumulate_in_memory(draft: Draft, nest: str, one: Product, roles: dict[str, str]) -> None:
    """Stages the sums of a product in two parts, over all turns of these loops, which get their
    roles: the outer part's loops run around them."""
    part = reduction_of(draft, nest, one)
    (whole,) = (n for n in draft.sums if n.src[0] is part)
    name, over = draft.numbered("acc"), those_in(whole, roles)
    draft.do("accumulate", draft.path(whole), over, name)
    for loop in over:
        draft.do("role", f"{name}.{loop}", roles[loop])


def in_one_word(draft: Draft, name: str, one: Product) -> None:
    """Stages neighbours along a unit's depth together."""
    draft.give("TILE", (f"{name}.{loop}" for loop in one.depth))


def rows_before(draft: Draft, one: Product, column: str, layout: Iterable[str]) -> str:
    """Lays out the rows of the stores' product, without the loop `column`, before everything else,
    in tasks. Returns the stage."""
    value = side_of(draft, "store", one, column, is_column=False)
    loops = those_in(value, (*layout, *one.depth))
    name = draft.stage(value, loops, "pa", "GLOBAL")
    draft.do("role", f"{name}.{loops[0]}", "PARALLEL")
    return name


def those_in(value: UOp, loops: Iterable[str]) -> tuple[str, ...]:
    """The loops that the value depends on. (It never depends on a loop of a single turn.)"""
    free = {name_of(r) for r in value.ranges}
    return tuple(n for n in loops if n in free)
