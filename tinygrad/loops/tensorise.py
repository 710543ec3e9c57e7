"""Primitives that make a sum of products fit a matrix unit: they extend its loop to a multiple of
the unit's depth, and replace its multiplications by the unit's own (`matrix_units`)."""

from __future__ import annotations

from collections.abc import Iterator

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import round_up
from tinygrad.base.target import Target
from tinygrad.loops.matrix_units import SHIFTED, UNITS, MatrixUnit, matrix_units
from tinygrad.loops.operands import loop_named, owners_of, stage_named
from tinygrad.loops.rebuild import read_where, replaced
from tinygrad.loops.roles import is_plain_loop, own_ranges, role_of, size_of
from tinygrad.simplify.constants import identity
from tinygrad.simplify.forms import number
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, unsigned_of


def extend(kernel: UOp, name: str, multiple: int) -> UOp:
    """A reduction's loop is extended to a multiple; the additional turns take in the identity. In a
    sum of products both factors are 0 there, so that a NaN in one of them can't matter.

    Requires: `name` is a static LOOP without limits that one REDUCE closes, and only it.

        for k:77: s += a(k) * b(k)
    becomes
        for k:80: s += where(k < 77, a(k), 0) * where(k < 77, b(k), 0)

    >>> draw(product(4, 8, 77))
    reduce add: k:77
    store: m:4, n:8
    >>> draw(extend(product(4, 8, 77), "k", 16))
    reduce add: k:80
    store: m:4, n:8
    """
    loop, reduce = _only_owner(kernel, name, "extend")
    if not is_plain_loop(loop):
        raise ArgumentError(f"extend {name!r}: only a LOOP of fixed size can be longer")
    size = size_of(loop)
    if size % multiple == 0:
        return kernel
    longer = loop.with_src((number(round_up(size, multiple)),))
    inside = UOp(Ops.CMPLT, dtypes.bool, (longer, number(size)))
    value, own = reduce.src[0], tuple(longer if r is loop else r for r in own_ranges(reduce))
    if reduce.arg != "add":
        chosen = within(reduce, replaced(value, {loop: longer}), longer, number(size))
        return replaced(kernel, {reduce: reduce.with_src((chosen, *own))})
    factors = value.src if value.op is Ops.MUL else (value,)
    moved = [_inside(replaced(f, {loop: longer}), longer, inside) for f in factors]
    sums = value.with_src(tuple(moved)) if value.op is Ops.MUL else moved[0]
    return replaced(kernel, {reduce: reduce.with_src((sums, *own))})


def within(reduce: UOp, value: UOp, loop: UOp, limit: UOp) -> UOp:
    """What a REDUCE takes in if `value` counts only below a limit of this loop: the value there,
    and the identity beyond. Memory is read only below the limit."""
    inside = UOp(Ops.CMPLT, dtypes.bool, (loop, limit))
    nothing = identity(reduce.arg, reduce.dtype)
    return inside.alu(Ops.WHERE, read_where(value, inside, (loop,)), nothing)


def complete(kernel: UOp, name: str) -> UOp:
    """A stage is filled completely: its loops lose their limits, the elements that these cut off
    are 0, and readers need no mask.

    Requires: the stage is LOCAL.

        for name.i:min(16, n - 16*b): name[name.i] = x(16*b + name.i)
    becomes
        for name.i:16: name[name.i] = where(16*b + name.i < n, x(16*b + name.i), 0)

    >>> from tinygrad.viz.loops import draw, product
    >>> from tinygrad.loops.primitives import stage
    >>> cut = split(product(4, 20, 32), "n", 16, "ni")
    >>> staged = stage(cut, (0, 1, 0, 1), ("k", "ni"), "pb")
    >>> draw(staged)
    pb LOCAL: pb.k:32, pb.ni:16<((n*-16) + 20)
    reduce add: k:32
    store: m:4, n:2, ni:16<((n*-16) + 20)
    >>> draw(complete(staged, "pb"))
    pb LOCAL whole=True: pb.k:32, pb.ni:16
    reduce add: k:32
    store: m:4, n:2, ni:16<((n*-16) + 20)
    """
    found = stage_named(kernel, name)
    stage, memory, options = found.arg
    if memory != "LOCAL":
        raise ArgumentError(f"complete {name!r}: it is {memory}; legal: LOCAL")
    value, changes = found.src[0], dict[UOp, UOp]()
    for loop in own_ranges(found):
        changes[loop] = loop.with_src(tuple(replaced(s, changes) for s in loop.src[:1]))
    value = replaced(value, changes)
    for loop in own_ranges(found):
        for limit in loop.src[1:]:
            inside = UOp(Ops.CMPLT, dtypes.bool, (changes[loop], replaced(limit, changes)))
            value = _inside(value, changes[loop], inside)
    made = UOp(
        Ops.STAGE,
        found.dtype,
        (value, *changes.values()),
        (stage, memory, (*options, ("whole", True))),
    )
    return replaced(kernel, {found: made})


def _only_owner(kernel: UOp, name: str, primitive: str) -> tuple[UOp, UOp]:
    loop = loop_named(kernel, name)
    owners = owners_of(kernel, loop)
    if len(owners) != 1 or owners[0].op is not Ops.REDUCE:
        raise ArgumentError(f"{primitive} {name!r}: one REDUCE must close it, not {owners!r}")
    return loop, owners[0]


def _inside(value: UOp, loop: UOp, inside: UOp) -> UOp:
    """`value` where `inside` holds, else 0. Memory is read only where it holds."""
    return _zero_unless(inside, read_where(value, inside, (loop,)))


def _zero_unless(inside: UOp, value: UOp) -> UOp:
    """`value`, or 0 outside. The choice goes below casts that a unit takes in, and is omitted for a
    read that is guarded already."""
    if value.op is Ops.INDEX:
        return value
    if value.op in (Ops.CAST, Ops.BITCAST):
        return value.with_src((_zero_unless(inside, value.src[0]),))
    return inside.alu(Ops.WHERE, value, UOp.const(value.dtype, 0))


def tensorise(kernel: UOp, name: str, rows: int, unit: str) -> UOp:
    """The products in a sum become those of a matrix unit: a WMMA of the factors' bits.

    Requires: `name` is the innermost TILE loop of a REDUCE (for a unit of a warp any loop: see
    `distribute`). The REDUCE sums products of two values of the dtypes that the unit takes, or of
    CASTs from them. Source number `rows` of the product is the unit's first operand. If the unit
    takes that operand unsigned, a signed one is shifted into range: a*b = (a + 128)*b - 128*b,
    which is exact since sums wrap.

        s += cast(a(m, k, kp)) * cast(b(k, n, kp))   becomes   s += wmma(bits(a), bits(b))

    >>> cut = split(product(4, 16, 32, dtypes.bfloat16), "k", 2, "kp", "LOOP", "TILE")
    >>> draw(cut)
    reduce add: k:16, kp:2 TILE
    store: m:4, n:16
    >>> draw(tensorise(cut, "kp", 0, "vdpbf16ps"))
    wmma vdpbf16ps
    reduce add: k:16, kp:2 TILE
    store: m:4, n:16
    """
    _, reduce = _only_owner(kernel, name, "tensorise")
    row = UNITS.get(unit)
    if row is None:
        raise ArgumentError(f"tensorise {name!r}: no unit {unit!r}; there are {', '.join(UNITS)}")
    product, own = reduce.src[0], own_ranges(reduce)
    tiles = [size_of(r) for r in own if role_of(r) == "TILE"]
    if tiles != row.inside or product.op is not Ops.MUL:
        raise ArgumentError(
            f"tensorise {name!r}: {unit} takes TILE loops of {row.inside}, not {tiles}"
        )
    a, b = operand(product.src[rows], row.a), operand(product.src[1 - rows], row.b)
    given = a.dtype, b.dtype
    if row.a not in (a.dtype, SHIFTED.get(a.dtype)) or (b.dtype, reduce.dtype) != (row.b, row.out):
        raise ArgumentError(f"tensorise {name!r}: {unit} does not take {given} to {reduce.dtype!r}")
    first, second = as_bits(a), as_bits(b)
    if a.dtype is row.a:
        return replaced(kernel, {reduce: _sum_of(reduce, row, first, second)})
    shift = UOp.const(row.a, 1 << row.a.bitsize - 1)
    moved = _sum_of(reduce, row, first.bitcast(row.a) ^ shift, second)
    beyond = _sum_of(reduce, row, shift, second)
    return replaced(kernel, {reduce: moved + beyond * UOp.const(row.out, -1)})


def units_of(target: Target, a: UOp, b: UOp, out: DType) -> Iterator[MatrixUnit]:
    """The units that multiply two factors, either as they are or as the values they are CAST
    from."""
    below = tuple(x.src[0].dtype if x.op is Ops.CAST else x.dtype for x in (a, b))
    for one, other in dict.fromkeys((below, (a.dtype, b.dtype))):
        yield from matrix_units(target, one, other, out)


def operand(factor: UOp, dtype: DType) -> UOp:
    """The operand that a unit for `dtype` reads of a product's factor: the factor, or the value it
    is CAST from."""
    is_cast = factor.op is Ops.CAST and factor.dtype is not dtype
    return factor.src[0] if is_cast else factor


def _sum_of(reduce: UOp, row: MatrixUnit, first: UOp, second: UOp) -> UOp:
    product = UOp(Ops.WMMA, row.out, (first, second), row.name)
    return reduce.with_src((product, *own_ranges(reduce)))


def as_bits(value: UOp) -> UOp:
    """A float as the unsigned integer of the same size; an integer as it is."""
    dtype: DType = value.dtype
    if not dtypes.is_float(dtype):
        return value
    return value.bitcast(unsigned_of(dtype))
