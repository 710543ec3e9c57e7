"""The primitive `distribute`, which gives a sum of products to a matrix unit that all lanes of a
warp execute together. The unit's row says which lane holds which elements of each operand; the
primitive writes that as index arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.errors import ArgumentError
from tinygrad.loops.layout import factor_of, term_of
from tinygrad.loops.matrix_units import UNITS, Part
from tinygrad.loops.operands import loop_named, owners_of
from tinygrad.loops.rebuild import replaced
from tinygrad.loops.roles import own_ranges, role_of, size_of
from tinygrad.simplify.affine import add, build, divide, modulo, scale
from tinygrad.simplify.forms import number
from tinygrad.uop import Ops, UOp


def distribute(
    kernel: UOp, rows: Sequence[str], columns: Sequence[str], depth: Sequence[str], unit: str
) -> UOp:
    """Distributes a sum of a unit's products over the lanes of a warp. Each lane reads the operand
    elements that the unit expects from it, and holds the elements of the result that the unit
    leaves in it.

    Requires: `rows` and `columns` are loops of the output, and `depth` are loops of one REDUCE that
    `tensorise` gave to the unit. Each axis is split into the parts that the unit's row lists.
    Output loops that are a lane's parts have the role LANE.

        s += wmma(a(m, k), b(k, n))   becomes   s += wmma(a(m, mine), b(mine, other))

    The part of k that differs from lane to lane is no longer a loop: each lane has its own. If the
    unit reads staged operands itself, it is only told the loops that it runs over.

    >>> from tinygrad.base.dtype import dtypes
    >>> from tinygrad.viz.loops import draw, product
    >>> from tinygrad.loops.primitives import role, split
    >>> from tinygrad.loops.tensorise import tensorise
    >>> cut = tensorise(product(16, 8, 16, dtypes.bfloat16), "k", 0, "mma.bf16")
    >>> cut = split(split(cut, "m", 8, "g", "UNROLL", "LANE"), "n", 2, "e", "LANE", "VECTOR")
    >>> cut = split(split(cut, "k", 8, "t", "TILE"), "t", 2, "p", "LOOP", "VECTOR")
    >>> draw(cut)
    wmma mma.bf16
    reduce add: k:2 TILE, t:4, p:2 VECTOR
    store: m:2 UNROLL, g:8 LANE, n:4 LANE, e:2 VECTOR
    >>> draw(distribute(cut, ("m", "g"), ("n", "e"), ("k", "t", "p"), "mma.bf16"))
    wmma mma.bf16
    reduce add: k:2 TILE, p:2 VECTOR
    store: m:2 UNROLL, g:8 LANE, n:4 LANE, e:2 VECTOR
    """
    row = UNITS.get(unit)
    if row is None or row.held is None:
        known = ", ".join(u.name for u in UNITS.values() if u.held)
        raise ArgumentError(f"distribute: no unit {unit!r} of a warp; there are {known}")
    held = row.held
    row_loops = _loops_of(kernel, unit, rows, held.rows)
    column_loops = _loops_of(kernel, unit, columns, held.columns)
    depth_loops = _loops_of(kernel, unit, depth, held.depth)
    digits = _digits(row_loops, held.rows) | _digits(column_loops, held.columns)
    if any(role_of(loop) != "LANE" for loop in digits.values()):
        raise ArgumentError(f"distribute: {unit}'s lanes are LANEs of the output")
    owners = [n for n in owners_of(kernel, depth_loops[0]) if _is_by(n, unit)]
    if len(owners) != 1:
        raise ArgumentError(f"distribute: {tuple(depth)} are not the loops of one sum by {unit}")
    (owner,), product = owners, term_of(owners[0])
    if row.is_staged:  # the unit reads its operands from where they lie
        src = (*product.src, *row_loops, *column_loops, *depth_loops)
        made = UOp(Ops.WMMA, row.out, src, unit)
        return replaced(kernel, {owner: owner.with_src((made, *own_ranges(owner)))})
    lane = build({loop: stride for stride, loop in digits.items()})  # the lane's number in the warp
    along = _changes(depth_loops, held.depth, lane)
    items = _items(row_loops, held.rows) | _items(column_loops, held.columns)
    a, b = product.src
    if held.a != held.rows:  # lanes split the operand's rows otherwise than the result's
        a = replaced(a, _split_up(row_loops, held.rows, _place(held.a, lane, items)))
    if held.b != held.columns:
        b = replaced(b, _split_up(column_loops, held.columns, _place(held.b, lane, items)))
    items |= _items(depth_loops, held.depth)
    src = (replaced(a, along), replaced(b, along), *(items[name] for name in held.items))
    made = UOp(Ops.WMMA, row.out, src, unit)
    gone = {loop for loop in depth_loops if loop not in items.values()}
    own = tuple(r for r in own_ranges(owner) if r not in gone)
    if (grown := factor_of(owner)) is not None:
        made = UOp(Ops.RESCALE, row.out, (made, replaced(grown, along)))
    return replaced(kernel, {owner: owner.with_src((made, *own))})


def _loops_of(kernel: UOp, unit: str, names: Sequence[str], parts: Sequence[Part]) -> list[UOp]:
    """The loops along an axis, if they are the parts that the unit's row has of it."""
    loops = [loop_named(kernel, name) for name in names]
    if [size_of(r) for r in loops] != [size for _, size, _ in parts]:
        raise ArgumentError(f"distribute: {unit} takes loops of {parts}, not {tuple(names)}")
    return loops


def _is_by(node: UOp, unit: str) -> bool:
    """Whether the node is a sum of that unit's products."""
    is_sum = node.op is Ops.REDUCE and term_of(node).op is Ops.WMMA
    return is_sum and term_of(node).arg == unit


def _digits(loops: Sequence[UOp], parts: Sequence[Part]) -> dict[int, UOp]:
    """The loops that are digits of the lane's number, by their stride."""
    pairs = zip(loops, parts, strict=True)
    return {stride: loop for loop, (_, _, stride) in pairs if stride}


def _items(loops: Sequence[UOp], parts: Sequence[Part]) -> dict[str, UOp]:
    """The loops over what one lane holds, by name."""
    pairs = zip(loops, parts, strict=True)
    return {name: loop for loop, (name, _, stride) in pairs if not stride}


def _changes(loops: Sequence[UOp], parts: Sequence[Part], lane: UOp) -> dict[UOp, UOp]:
    """Loops over lanes' parts, and the expressions of this lane that replace them."""
    pairs = zip(loops, parts, strict=True)
    return {loop: modulo(divide(lane, stride), size) for loop, (_, size, stride) in pairs if stride}


def _place(parts: Sequence[Part], lane: UOp, items: dict[str, UOp]) -> UOp:
    """The index of this lane's element along an axis."""
    total = number(0)
    for name, size, stride in parts:
        digit = modulo(divide(lane, stride), size) if stride else items[name]
        total = add(scale(total, size), digit)
    return total


def _split_up(loops: Sequence[UOp], parts: Sequence[Part], place: UOp) -> dict[UOp, UOp]:
    """The loops of an axis, and their values at a position along it."""
    changes, inside = {}, 1
    for loop, (_, size, _) in reversed(list(zip(loops, parts, strict=True))):
        changes[loop] = modulo(divide(place, inside), size)
        inside *= size
    return changes
