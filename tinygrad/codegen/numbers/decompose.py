"""Every op that the target lacks, written with those that it has.

What remains is what every backend must have: arithmetic, comparisons, WHERE, bits and casts.
Divisions have a divisor that is not 0, do not overflow, and have operands of one sign, so that
rounding down and truncating agree. Shifts are by less than the width. Casts from float to integer
are in range. The op table says what each op means; the table here says how to compute it, with a
row for each op. Nothing branches, so everything vectorises.

A cast that is known to be in range has the tag IN_RANGE. A division of an `index` by a positive
constant is left alone: codegen/index reads such terms, and rounds them down using sharper bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.base.target import Target
from tinygrad.codegen.numbers.coefficients import FORMATS
from tinygrad.codegen.numbers.narrow import narrow
from tinygrad.codegen.numbers.transcendental import (
    cos,
    exp,
    exp2,
    halves,
    log2,
    magnitude,
    power,
    sin,
)
from tinygrad.loops.layout import accumulates, nodes_of
from tinygrad.uop.natural import natural_exponent
from tinygrad.uop.node import UOp
from tinygrad.uop.op import (
    ROUNDED_ONCE,
    THREEFRY_PARITY,
    THREEFRY_ROTATIONS,
    Ops,
    unsigned_of,
)
from tinygrad.uop.pattern import PatternMatcher, UPat
from tinygrad.uop.rewrite import graph_rewrite

IN_RANGE = "in range"
AT_MOST_ONE = "at most one"  # a sine or cosine, once it is arithmetic

Rule = Callable[[UOp, Target], UOp | None]

FUNCTIONS = (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.POW)
OPTIONAL = frozenset((*FUNCTIONS, Ops.RECIP, Ops.TRUNC, Ops.ROUND, Ops.MULACC, Ops.THREEFRY))
"""Ops that stay if `Target.native` names them; all others are native anyway, or composed of native
ones."""


def decompose(sink: UOp, target: Target) -> UOp:
    """A kernel that contains only ops that every backend has or that `target` names.

    Requires stage "kernel"; gives stage "kernel" with the same loops, parameters and stores.
    """
    _check_doubles(sink, target)
    sink = graph_rewrite(narrow(sink, target), MATCHER, ctx=target, name="decompose")
    for stage in nodes_of(sink):
        if accumulates(stage) and stage.src[0].op is not Ops.REDUCE:
            return decompose(_accumulators(sink, stage), target)
    return sink


def _check_doubles(sink: UOp, target: Target) -> None:
    """float64 can't be composed of narrower numbers. A target that can only store float64 moves and
    converts it (`words`)."""
    if not target.dtypes or "float64" in target.dtypes | target.storage_dtypes:
        return
    if any(node.dtype.scalar() is dtypes.float64 for node in nodes_of(sink)):
        raise DTypeError(
            f"[compile] float64: device {target.device} ({target.cpu}) has no such numbers; legal "
            f"are {', '.join(sorted(target.storage_dtypes))}: cast before, or use another device"
        )


def _accumulators(sink: UOp, stage: UOp) -> UOp:
    """If the reduction that a stage holds became a function of a reduction (rounded, or compared
    with 0), the stage holds the reduction, and its readers apply the function."""
    value = stage.src[0]
    reduction = next(n for n in reversed(value.toposort()) if n.op is Ops.REDUCE)
    held = stage.replace(dtype=reduction.dtype, src=(reduction, *stage.src[1:]))
    reads = (n for n in sink.toposort() if n.op is Ops.INDEX and n.src[0] is stage)
    changes = {
        read: value.substitute(
            {reduction: UOp(Ops.INDEX, held.dtype, (held, *read.src[1:]), read.arg, read.tag)}
        )
        for read in reads
    }
    return sink.substitute(changes)


# ---- small words ---------------------------------------------------------------------------------


def _not(a: UOp) -> UOp:
    return a ^ True


# ---- bool ----------------------------------------------------------------------------------------

BOOL: dict[Ops, Callable[..., UOp]] = {
    Ops.ADD: lambda a, b: a | b,
    Ops.MUL: lambda a, b: a & b,
    Ops.MAX: lambda a, b: a | b,
    Ops.CMPLT: lambda a, b: _not(a) & b,
    Ops.IDIV: lambda a, b: a & b,
    Ops.MOD: lambda a, b: a & _not(b),
    Ops.MULACC: lambda a, b, c: a & b | c,
    Ops.SHL: lambda a, n: a if n.dtype is dtypes.bool else a & _within(n, 8),
    Ops.SHR: lambda a, n: a & n.eq(0),
}
"""Arithmetic of bools: as numbers 0 and 1, where any number but 0 is true."""


def _bool(node: UOp, ctx: Target) -> UOp | None:
    return BOOL[node.op](*node.src) if node.src[0].dtype is dtypes.bool else None


def _reduce_bool(node: UOp, ctx: Target) -> UOp | None:
    """A reduction of bools, also a running one, counts in uint8, which every machine adds and
    compares."""
    if node.dtype is not dtypes.bool:
        return None
    monoid = "mul" if node.arg == "mul" else "max"
    src = (node.src[0].cast(dtypes.uint8), *node.src[1:])
    return UOp(node.op, dtypes.uint8, src, monoid, node.tag).ne(0)


# ---- integer division ----------------------------------------------------------------------------


def _divide(node: UOp, ctx: Target) -> UOp | None:
    a, b = node.src
    if dtypes.is_float(a.dtype):
        return None
    if b.op is Ops.CONST and (simple := _divide_by_constant(a, b)) is not None:
        return simple
    if _is_plain(a, b):
        return None
    if dtypes.is_unsigned(a.dtype):
        quotient = a // b.maximum(1)
        return b.eq(0).where(0, quotient)
    return _divide_positive(a, b) if b.vmin > 0 else _divide_signed(a, b)


def _modulo(node: UOp, ctx: Target) -> UOp | None:
    a, b = node.src
    if dtypes.is_float(a.dtype):
        return None
    if b.op is Ops.CONST:
        if b.arg == 0:
            return a
        if abs(b.arg) == 1:
            return a.const_like(0)
        if _is_power(b.arg) and a.dtype is not dtypes.index:
            return a & (int(b.arg) - 1)  # right for negative numbers, too: it rounds down
    if _is_plain(a, b):
        return None
    if dtypes.is_unsigned(a.dtype):
        return b.eq(0).where(a, a % b.maximum(1))
    return a + (a // b * b) * -1


def _is_plain(a: UOp, b: UOp) -> bool:
    """Whether the machine's division equals the op, or codegen/index makes it so."""
    left_to_index = a.dtype is dtypes.index and b.op is Ops.CONST
    return bool(b.vmin > 0 and (a.vmin >= 0 or left_to_index))


def _is_power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _divide_by_constant(a: UOp, b: UOp) -> UOp | None:
    value = b.arg
    if value == 0:
        return a.const_like(0)
    if value == 1:
        return a
    if value == -1:
        return -a
    if _is_power(value) and a.dtype is not dtypes.index:
        return a >> (int(value).bit_length() - 1)
    return None


def _sign(a: UOp) -> UOp:
    """-1 where a number is negative, else 0. A shift of an index would be a division by more than
    an index can be."""
    if a.dtype is dtypes.index:
        return (a < 0).where(a.const_like(-1), 0)
    return a >> (a.dtype.bitsize - 1)


def _divide_positive(a: UOp, b: UOp) -> UOp:
    """Division by a positive number. For a negative a, ~(~a // b), where ~a is not negative."""
    uint, sign = unsigned_of(a.dtype), _sign(a)
    quotient = (a ^ sign).cast(uint) // b.cast(uint)
    return quotient.cast(a.dtype) ^ sign


def _divide_signed(a: UOp, b: UOp) -> UOp:
    """Division by any number: magnitudes are divided, and rounded up if the signs differ. INT_MIN
    // -1 wraps."""
    uint = unsigned_of(a.dtype)
    one = UOp.const(uint, 1)
    a_sign, b_sign = _sign(a), _sign(b)
    a_size = (a ^ a_sign).cast(uint) + (a_sign.cast(uint) & one)
    b_size = (b ^ b_sign).cast(uint) + (b_sign.cast(uint) & one)
    divisor = b_size.maximum(one)
    sign = (a_sign ^ b_sign).cast(uint)
    quotient = (a_size + (divisor + -1 & sign)) // divisor
    signed = ((quotient ^ sign) + (sign & one)).cast(a.dtype)
    return b.eq(0).where(0, signed)


# ---- shifts --------------------------------------------------------------------------------------


def _within(n: UOp, width: int) -> UOp:
    """Whether 0 <= n < width."""
    if dtypes.is_unsigned(n.dtype):
        return n < width
    return (n < width) & (n > -1)


def _shift(node: UOp, ctx: Target) -> UOp | None:
    a, n = node.src
    width = a.dtype.bitsize
    if n.vmin >= 0 and n.vmax < width:
        return None if n.dtype is a.dtype else a.alu(node.op, n.cast(a.dtype))
    moved = a.alu(node.op, (n & (width - 1)).cast(a.dtype))
    return _within(n, width).where(moved, 0)


# ---- casts ---------------------------------------------------------------------------------------


def _cast(node: UOp, ctx: Target) -> UOp | None:
    (a,) = node.src
    if node.dtype is dtypes.bool:
        return a.ne(0)
    if node.tag == IN_RANGE or not dtypes.is_float(a.dtype) or dtypes.is_float(node.dtype):
        return None
    return _saturated(a if a.dtype in FORMATS else a.cast(dtypes.float32), node.dtype)


def _saturated(a: UOp, dtype: DType) -> UOp:
    """A float as an integer: clamped to the range, NaN as 0."""
    low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    inside = a < (high + 1)  # a power of two, so exact in every float type
    held = inside.where(a, 0.0)
    held = (held < low).where(low, held)
    wide = dtypes.int32 if dtype.itemsize < 4 else dtype
    found = UOp(Ops.CAST, wide, (held,), tag=IN_RANGE).cast(dtype)
    beyond = a.eq(a).where(UOp.const(dtype, high), 0)
    return inside.where(found, beyond)


def _trunc(node: UOp, ctx: Target) -> UOp | None:
    """Truncates by way of an integer; a float with a fraction fits an integer of its size."""

    def whole(size: UOp, limit: float) -> UOp:
        held = (size < limit).where(size, 0.0)
        integer = FORMATS[size.dtype].integer
        return UOp(Ops.CAST, integer, (held,), tag=IN_RANGE).cast(size.dtype)

    return _whole(node, whole)


def _round(node: UOp, ctx: Target) -> UOp | None:
    """The sum with a number whose last bit is a one rounds."""
    return _whole(node, lambda size, limit: (size + limit) - limit)


def _whole(node: UOp, whole: Callable[[UOp, float], UOp]) -> UOp:
    """`whole(magnitude, limit)` with a's sign; from the limit on all floats are whole."""
    (a,) = node.src
    form = FORMATS.get(a.dtype)
    if form is None:
        return a.cast(dtypes.float32).alu(node.op).cast(a.dtype)
    size, limit = magnitude(a, form), 2.0**form.mantissa
    sign = a.bitcast(form.integer) & int(dtypes.min(form.integer))
    signed = (whole(size, limit).bitcast(form.integer) | sign).bitcast(a.dtype)
    return (size < limit).where(signed, a)


def _maximum(node: UOp, ctx: Target) -> UOp | None:
    """The maximum of a number and its negative: the absolute value, by one operation on its
    bits."""
    for a, b in (node.src, node.src[::-1]):
        if a.dtype in FORMATS and b is a * -1:
            return magnitude(a, FORMATS[a.dtype])
    return None


# ---- functions -----------------------------------------------------------------------------------


def _function(node: UOp, ctx: Target) -> UOp | None:
    """One of FUNCTIONS; a narrow float that the target computes with is evaluated in float32."""
    if node.dtype not in FORMATS:
        wide = tuple(s.cast(dtypes.float32) for s in node.src)
        return UOp(node.op, dtypes.float32, wide).cast(node.dtype)
    x = node.src[0]
    if node.op is Ops.EXP2:
        natural = natural_exponent(x)
        if natural is None:
            return exp2(x, ctx)
        below = natural if _is_minus_square(natural) else _minus_magnitude(natural)
        return exp(natural if below is None else below, ctx, at_most_0=below is not None)
    if node.op is Ops.LOG2:
        return log2(x)
    if node.op in (Ops.SIN, Ops.COS):
        wave = sin if node.op is Ops.SIN else cos
        return wave(x, ctx, float_bound(x)).replace(tag=AT_MOST_ONE)
    return power(x, node.src[1], ctx)


def _is_minus_square(x: UOp) -> bool:
    """Whether `x` is a square times a negative number: the exponent of a bell."""
    if x.op is not Ops.MUL or x.src[1].op is not Ops.CONST or x.src[0].op is not Ops.MUL:
        return False
    return x.src[1].arg < 0 and x.src[0].src[0] is x.src[0].src[1]


def _minus_magnitude(x: UOp) -> UOp | None:
    """-|a| or a positive multiple of it, by one operation on its bits, if `x` is that but for the
    sign of 0: the exponent of a sigmoid and its kin."""
    if x.op is Ops.MUL and x.src[1].op is Ops.CONST and x.src[1].arg > 0:
        below = _minus_magnitude(x.src[0])
        return None if below is None else below * x.src[1].arg
    if x.op is not Ops.WHERE or x.dtype not in FORMATS:
        return None
    test, a, other = x.src
    if test is not (a < 0.0) or other is not a * -1.0:
        return None
    integer = FORMATS[x.dtype].integer
    return (a.bitcast(integer) | int(dtypes.min(integer))).bitcast(x.dtype)


def _recip(node: UOp, ctx: Target) -> UOp:
    (a,) = node.src
    return 1.0 / a


def _mulacc(node: UOp, ctx: Target) -> UOp | None:
    a, b, c = node.src
    is_native = dtypes.is_float(node.dtype) and "MULACC" in ctx.native
    if node.arg == ROUNDED_ONCE and not (is_native and ctx.numerics.fused_multiply_add):
        for part, other in itertools.product(halves(a), halves(b)):
            c = part * other + c
        return c
    return None if is_native else a * b + c


def _threefry(node: UOp, ctx: Target) -> UOp:
    """Twenty rounds on two words of 32 bits: add, rotate, xor."""
    uint32, uint64 = dtypes.uint32, dtypes.uint64
    word = UOp.const(uint64, 32)
    counter, key = node.src
    x, y = counter.cast(uint32), (counter >> word).cast(uint32)
    k0, k1 = key.cast(uint32), (key >> word).cast(uint32)
    keys = (k1, k0 ^ k1 ^ THREEFRY_PARITY, k0)
    x, y = x + k0, y + k1
    for block in range(5):
        for turn in THREEFRY_ROTATIONS[block % 2]:
            x = x + y
            rotated = y << turn | y >> (32 - turn)
            y = rotated ^ x
        x = x + keys[block % 3]
        y = y + keys[(block + 1) % 3] + (block + 1)
    return x.cast(uint64) | y.cast(uint64) << word


# ---- what is known of a float's size -------------------------------------------------------------


def float_bound(node: UOp, depth: int = 8) -> float:
    """An upper bound of |node| (unless that is NaN); infinity if unknown."""
    if node.op is Ops.CONST:
        return abs(float(node.arg))
    if node.tag == AT_MOST_ONE or node.op in (Ops.SIN, Ops.COS):
        return 1.01
    if depth == 0:
        return math.inf
    if dtypes.is_int(node.dtype) or node.dtype is dtypes.bool:
        return float(max(abs(node.vmin), abs(node.vmax)))
    rule = _BOUNDS.get(node.op)
    if rule is None:
        return math.inf
    found = rule(node, depth - 1)
    return found * (1 + 2.0**-8) if found == found else math.inf  # rounding, in any float type


def _sum_bound(node: UOp, depth: int) -> float:
    return sum(float_bound(s, depth) for s in node.src)


def _product_bound(node: UOp, depth: int) -> float:
    return math.prod(float_bound(s, depth) for s in node.src)


_BOUNDS: dict[Ops, Callable[[UOp, int], float]] = {
    Ops.ADD: _sum_bound,
    Ops.MUL: _product_bound,
    Ops.WHERE: lambda node, depth: max(float_bound(s, depth) for s in node.src[1:]),
    Ops.MAX: lambda node, depth: max(float_bound(s, depth) for s in node.src),
    Ops.CAST: lambda node, depth: float_bound(node.src[0], depth),
}

# ---- the table -----------------------------------------------------------------------------------

RULES: tuple[tuple[tuple[Ops, ...], Rule], ...] = (
    (tuple(BOOL), _bool),
    ((Ops.REDUCE, Ops.RUNNING), _reduce_bool),
    ((Ops.IDIV,), _divide),
    ((Ops.MOD,), _modulo),
    ((Ops.SHL, Ops.SHR), _shift),
    ((Ops.CAST,), _cast),
    ((Ops.TRUNC,), _trunc),
    ((Ops.ROUND,), _round),
    ((Ops.MAX,), _maximum),
    (FUNCTIONS, _function),
    ((Ops.RECIP,), _recip),
    ((Ops.MULACC,), _mulacc),
    ((Ops.THREEFRY,), _threefry),
)
"""(ops, rule): a rule returns None if the machine's op already has the table's semantics."""


def _unless_native(rule: Rule) -> Callable[..., UOp | None]:
    def attempt(node: UOp, ctx: Target) -> UOp | None:
        if node.op in OPTIONAL and node.op is not Ops.MULACC and node.op.name in ctx.native:
            return None
        return rule(node, ctx)

    attempt.__name__ = rule.__name__.lstrip("_")
    return attempt


MATCHER = PatternMatcher([(UPat(ops, name="node"), _unless_native(rule)) for ops, rule in RULES])
