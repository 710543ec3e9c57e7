"""EXP2, LOG2, SIN, COS and POW as arithmetic, without branches or tables in memory, so that they
vectorise and give the same on every device. They are computed in float32 or float64; narrower
floats are widened first.

The table shows the largest error found, in ulp, and the number of nodes (without constants), on a
target with MULACC, TRUNC and float64, as measured by test/codegen/test_decompose.py. Without MULACC
errors are up to 0.3 ulp larger, and SIN and COS need 138 nodes in float32.

                        float32   nodes    float64   nodes
    EXP2                  0.79       23       0.75      28
    EXP2(x * log2 e)      0.81       24       0.85      29
    LOG2                  1.30       29       2.26      30
    SIN, |x| bounded      1.61       19       1.55      22
    SIN                   1.63       38       1.47     237
    COS, |x| bounded      1.54       21       1.55      24
    COS                   1.80       40       1.59     236
    POW                   0.86      132       1.36     142

If the target can scale by powers of 2 (LDEXP), EXP2 takes 14 and 15 nodes, in float64 19 and 20,
with the same errors.

Results are right for every argument: subnormal numbers, zeros, infinities and NaN, and for SIN and
COS also the largest numbers and those next to their zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.codegen.numbers.coefficients import (
    DOUBLE,
    FORMATS,
    INVERSE_PI,
    INVERSE_PI_BITS,
    INVERSE_PI_FRACTION,
    SINGLE,
    TURNS,
    Format,
)
from tinygrad.uop.natural import LOG2_E
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, bit_cast

LIFT = 64  # numbers too small for a logarithm are first multiplied by 2**64

# ---- words ---------------------------------------------------------------------------------------


def fma(a: UOp, b: UOp | float, c: UOp | float) -> UOp:
    """a * b + c, rounded once if the target can."""
    return a.alu(Ops.MULACC, *(s if isinstance(s, UOp) else a.const_like(s) for s in (b, c)))


def minus(a: UOp, b: UOp) -> UOp:
    """a - b, rounded once."""
    return fma(b, -1, a) if dtypes.is_float(a.dtype) else a + b * -1


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """Horner's rule; lowest power first."""
    total = x.const_like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def clamp(x: UOp, low: float, high: float) -> UOp:
    """NaN stays NaN; in this form each half is one instruction on most machines."""
    x = (x < low).where(low, x)
    return (high < x).where(high, x)


def magnitude(x: UOp, form: Format) -> UOp:
    """|x|, also of a NaN."""
    every = UOp.const(form.integer, int(dtypes.max(form.integer)))
    return (x.bitcast(form.integer) & every).bitcast(form.real)


# ---- 2**x ----------------------------------------------------------------------------------------


def exp2(x: UOp, target: Target) -> UOp:
    """2**x, exact at whole numbers."""
    form = FORMATS[x.dtype]
    x = clamp(x, *form.exp2_range)
    if "LDEXP" not in target.native:
        return _scaled_power(x, None, form)
    whole = x + form.magic + -form.magic
    return _power(minus(x, whole), form.exp2).alu(Ops.LDEXP, whole)


def exp(x: UOp, target: Target, at_most_0: bool = False) -> UOp:
    """e**x: what EXP2(x * log2 e) would be if the product were not rounded."""
    form = FORMATS[x.dtype]
    low, high = form.exp_range
    x = (x < low).where(low, x) if at_most_0 else clamp(x, low, high)
    scales = "LDEXP" in target.native
    magic = x.const_like(form.magic if scales else _magic(form))
    rounded = fma(x, LOG2_E, magic)
    whole = rounded + -form.magic if scales else minus(rounded, magic)
    rest = x
    for part in form.ln2:
        rest = fma(whole, -part, rest)
    if scales:
        return _power(rest, form.exp).alu(Ops.LDEXP, whole)
    return _assemble(rounded, rest, form.exp, form)


def _scaled_power(x: UOp, low: UOp | None, form: Format) -> UOp:
    """2**(x + low) for x within the range of exponents and a tiny `low`."""
    magic = x.const_like(_magic(form))
    rounded = x + magic
    rest = fma(rounded, -1, magic) + x
    return _assemble(rounded, rest if low is None else rest + low, form.exp2, form)


def _magic(form: Format) -> float:
    """The constant that leaves round(x) in the low bits of x + magic, counted from the least
    exponent."""
    return form.magic + form.lift


def _power(rest: UOp, terms: tuple[float, ...], by: float = 1.0) -> UOp:
    """(1 + rest * terms(rest)) * by, a power of 2."""
    return fma(rest, polynomial(rest, [by * term for term in terms]), by)


def _assemble(rounded: UOp, rest: UOp, terms: tuple[float, ...], form: Format) -> UOp:
    """(1 + rest * terms(rest)) * 2**(the integer in the low bits of `rounded`).

    No single float is that power of 2 for all exponents, so it is the product of two, of half the
    exponent each, counted from the least one. For the least exponent they are 0: a masked e**-inf
    is 0 without a product that underflows, which many processors take far longer for.
    """
    bits = rounded.bitcast(form.integer)
    half = bits >> 1
    first, second = ((n << form.mantissa).bitcast(form.real) for n in (half, bits + half * -1))
    return _power(rest, terms, 2.0 ** (2 * form.bias - form.lift)) * first * second


# ---- the logarithm -------------------------------------------------------------------------------


def log2(x: UOp) -> UOp:
    """The logarithm to base 2, exact at powers of two."""
    form = FORMATS[x.dtype]
    exponent, reduced = _split(x, form)
    above = reduced + -1.0
    if form.log2_by_quotient:
        s = above / (reduced + 1.0)
        found = fma(s, polynomial(s * s, form.log2), exponent)
    else:
        found = fma(above, polynomial(above, form.log2), exponent)
    zero, infinity = x.const_like(0.0), x.const_like(math.inf)
    outside = x.eq(zero).where(x.const_like(-math.inf), math.nan)
    return (zero < x).where((x < infinity).where(found, x), outside)


def _split(x: UOp, form: Format) -> tuple[UOp, UOp]:
    """(e, m) with x = m * 2**e and m between the roots of 1/2 and 2, for positive finite x."""
    tiny = x < (2.0 ** (1 - form.bias))
    scaled = x * tiny.where(x.const_like(2.0**LIFT), 1.0)
    root = int(bit_cast(math.sqrt(0.5), form.real, form.integer))
    above = scaled.bitcast(form.integer) + -root
    exponent = (above >> form.mantissa).cast(form.real)
    exponent = exponent + tiny.where(x.const_like(-float(LIFT)), 0.0)
    fraction = above & (2**form.mantissa - 1)
    return exponent, (fraction + root).bitcast(form.real)


# ---- powers --------------------------------------------------------------------------------------


def power(x: UOp, y: UOp, target: Target) -> UOp:
    """C's pow: the logarithm has twice as many bits, since y multiplies its error."""
    form = FORMATS[x.dtype]
    zero, one, infinity = x.const_like(0.0), x.const_like(1.0), x.const_like(math.inf)
    sign_bit = UOp.const(form.integer, int(dtypes.min(form.integer)))
    bits = x.bitcast(form.integer)
    size = magnitude(x, form)
    fused = "MULACC" in target.native

    far = 2.0 ** (form.mantissa + 12)  # any base but 1 to this power is 0 or infinity
    exponent = clamp(y, -far, far)
    high, low = _long_log2(size, fused, form)
    product, error = _exact(exponent, high, fused)
    error = fma(exponent, low, error)
    ends = size.eq(zero) | size.eq(infinity)
    end = size.eq(zero).where(-math.inf, infinity)
    product = ends.where(exponent * end, product)
    limited = clamp(product, *form.exp2_range)
    error = limited.eq(product).where(error, zero)
    error = ends.where(zero, error)
    found = _scaled_power(limited, error, form)

    whole = y.trunc().eq(y)
    half = y * 0.5
    odd = whole & half.trunc().ne(half)
    negated = (found.bitcast(form.integer) ^ (bits & sign_bit)).bitcast(form.real)
    found = odd.where(negated, found)
    undefined = (x < zero) & (-math.inf < x) & whole.logical_not()
    found = (undefined | x.ne(x) | y.ne(y)).where(math.nan, found)
    return (x.eq(one) | y.eq(zero)).where(one, found)


def halves(x: UOp) -> tuple[UOp, UOp]:
    """The first half of a float's mantissa and the rest, which add up to x. Products of halves are
    exact."""
    form = FORMATS[x.dtype]
    kept = -(1 << (form.mantissa // 2 + 1))
    high = (x.bitcast(form.integer) & kept).bitcast(x.dtype)
    return high, x + high * -1.0


def _exact(a: UOp, b: UOp, fused: bool) -> tuple[UOp, UOp]:
    """A product as an unevaluated sum of two floats: by a fused multiply-add, or of halves (Dekker,
    1971)."""
    high = a * b
    if fused:
        return high, fma(a, b, high * -1.0)
    (ah, al), (bh, bl) = halves(a), halves(b)
    error = ah * bh + high * -1.0
    return high, error + ah * bl + al * bh + al * bl


def _long_log2(x: UOp, fused: bool, form: Format) -> tuple[UOp, UOp]:
    """log2 of a positive finite number as a sum of two floats: s*c1 + s**3*c3 + s**5*tail(s*s)."""
    exponent, m = _split(x, form)
    top = m + -1.0
    bottom = m + 1.0
    bottom_low = minus(m, bottom + -1.0)
    s = top / bottom  # and s_low: the quotient's error
    back, back_low = _exact(s, bottom, fused)
    left = minus(minus(minus(top, back), back_low), s * bottom_low)
    s_low = left / bottom

    (c1, c1_low), (c3, c3_low) = form.pow_terms
    square, square_low = _exact(s, s, fused)
    square_low = fma(s + s, s_low, square_low)
    cube, cube_low = _exact(square, s, fused)
    cube_low = fma(square, s_low, fma(square_low, s, cube_low))
    first, first_low = _exact(s, x.const_like(c1), fused)
    first_low = first_low + fma(s_low, c1, s * c1_low)
    third, third_low = _exact(cube, x.const_like(c3), fused)
    third_low = third_low + fma(cube_low, c3, cube * c3_low)
    rest = fma(cube * square, polynomial(square, form.pow), first_low + third_low)

    total = first + third
    rest = rest + minus(third, minus(total, first))
    high = exponent + total
    rest = rest + minus(total, minus(high, exponent))
    whole = high + rest
    return whole, minus(rest, minus(whole, high))


# ---- sine and cosine -----------------------------------------------------------------------------


def sin(x: UOp, target: Target, bound: float = math.inf) -> UOp:
    """The sine, if |x| is known to stay below `bound`."""
    return x.eq(0.0).where(x, _wave(x, target, bound, 0.0))  # keeps the sign of zero


def cos(x: UOp, target: Target, bound: float = math.inf) -> UOp:
    """The cosine, if |x| is known to stay below `bound`."""
    return x.eq(0.0).where(1.0, _wave(x, target, bound, 0.5))


def _wave(x: UOp, target: Target, bound: float, lead: float) -> UOp:
    """sin(x + lead*pi) for a lead of 0 or 1/2, which is added after x is reduced to half turns,
    where the addition is exact."""
    form = FORMATS[x.dtype]
    fused = "MULACC" in target.native
    if fused and bound <= form.sin_bound:
        odd, rest = _reduce_short(x, form, lead)
    elif fused and form is SINGLE and "float64" in target.dtypes and not target.has_groups:
        odd, rest = _reduce_in_double(x, lead)
    else:
        odd, rest = _reduce_long(x, form, target, lead)
    square = rest * rest
    wave = fma(rest * square, polynomial(square, form.sin), rest)
    sign = odd << (form.real.bitsize - 1)
    return (wave.bitcast(form.integer) ^ sign).bitcast(form.real)


def _reduce_short(x: UOp, form: Format, lead: float) -> tuple[UOp, UOp]:
    """(k, x + (lead - k)*pi) for the nearest k, pi in three parts (Cody and Waite, 1980)."""
    magic = x.const_like(form.magic)
    rounded = fma(x, INVERSE_PI, lead) + magic if lead else fma(x, INVERSE_PI, magic)
    minus_turns = fma(rounded, -1.0, magic)
    if lead:
        minus_turns = minus_turns + lead
    rest = x
    for part in form.pi:
        rest = fma(minus_turns, part, rest)
    return rounded.bitcast(form.integer), rest


def _reduce_in_double(x: UOp, lead: float) -> tuple[UOp, UOp]:
    """The same for every float32, with twice 53 bits of 1/pi, chosen by the size of x."""
    wide = x.cast(dtypes.float64)
    size = magnitude(wide, DOUBLE)
    (_, first, second), *larger = TURNS
    high, low = wide.const_like(first), wide.const_like(second)
    for bound, first, second in larger:
        above = bound < size
        high = above.where(first, high)
        low = above.where(second, low)
    turns = wide * high
    error = fma(wide, high, turns * -1.0)
    magic = wide.const_like(DOUBLE.magic)
    rounded = turns + lead + magic if lead else turns + magic
    whole = minus(rounded, magic)
    rest = minus(turns, whole + -lead if lead else whole) + fma(wide, low, error)
    return (rounded.bitcast(dtypes.int64).cast(dtypes.int32), (rest * math.pi).cast(dtypes.float32))


def _reduce_long(x: UOp, form: Format, target: Target, lead: float) -> tuple[UOp, UOp]:
    """The same in integers (Payne and Hanek, 1983): x = m * 2**e times those bits of 1/pi whose
    product with m is neither a multiple of 2 nor negligible, in words of 32 bits."""
    size = magnitude(x, form)
    uint = dtypes.uint32 if form is SINGLE else dtypes.uint64
    bits = size.bitcast(uint)
    exponent = (bits >> form.mantissa).cast(dtypes.uint32)
    m = bits & (2**form.mantissa - 1) | (2**form.mantissa)
    limbs = [m.cast(dtypes.uint32)]
    if form is DOUBLE:
        limbs.append((m >> 32).cast(dtypes.uint32))
    count = 3 if form is SINGLE else 5  # words of the product; the last lacks a carry from below
    product = _product(limbs, _window(exponent, count + len(limbs) - 1, form), count)

    # In half turns: word 0 has one bit before the point. The fraction is taken as signed.
    half = 1 if form is SINGLE else 2
    high, low = _joined(product[:half], form), _joined(product[half : 2 * half], form)
    width, one = form.real.bitsize, UOp.const(uint, 1)
    top_bit = UOp.const(uint, width - 1)
    if lead:
        high = high + (1 << (width - 2))
    odd = high + (1 << (width - 2)) >> top_bit
    high, low = high << one | low >> top_bit, low << one
    below = high >> top_bit  # 1 if the fraction is negative; then -fraction is used
    flip = below * -1
    high, low = high ^ flip, low ^ flip
    tail = 2 ** (width - form.mantissa - 1) - 1  # the bits of `high` that don't fit the float
    top = _scaled(high & (2**width - 1 - tail), -width, form)
    more = _scaled(high & tail, -width, form) + _scaled(low, -2 * width, form)
    pi, pi_low, _ = form.pi
    rest, error = _exact(top, x.const_like(pi), "MULACC" in target.native)
    rest = rest + fma(more, pi, fma(top, pi_low, error))

    small, zero = size < 0.5, UOp.const(uint, 0)
    rest = small.where(minus(x.const_like(pi * lead), size) if lead else size, rest)
    rest = (size < math.inf).where(rest, math.nan)
    odd = small.where(zero, odd ^ below)
    if not lead:  # the cosine is even
        odd = odd ^ (x < 0.0).where(one, zero)
    return odd.bitcast(form.integer), rest


def _scaled(whole: UOp, exponent: int, form: Format) -> UOp:
    """An unsigned integer times a power of two, as a float."""
    return whole.cast(form.real) * (2.0**exponent)


def _window(exponent: UOp, count: int, form: Format) -> list[UOp]:
    """`count` words of 1/pi, starting at the bit that a number with this biased exponent moves to
    1."""
    zeros = 1 if form is SINGLE else 2  # words in front, for numbers whose lowest bit is small
    size = 8 if form is SINGLE else 39
    table = INVERSE_PI_FRACTION << 1280 - INVERSE_PI_BITS - 32 * zeros
    uint32 = dtypes.uint32
    words = [UOp.const(uint32, table >> 32 * (39 - i) & 0xFFFFFFFF) for i in range(size)]
    start = form.bias + form.mantissa - 32 * zeros + 1
    least = UOp.const(uint32, start)
    at = (exponent < least).where(least, exponent) + -start
    step = 4 if form is SINGLE else 32
    while step:
        taken = (at & (32 * step)).ne(0)
        needed = min(len(words), count + step)
        words = [
            taken.where(words[i + step], words[i]) if i + step < len(words) else words[i]
            for i in range(needed)
        ]
        step //= 2
    shift = at & 31
    back = (shift ^ 31) & 31
    one = UOp.const(uint32, 1)
    return [
        words[i] << shift | words[i + 1] >> one >> back  # in two steps: 32 is too far for one shift
        for i in range(count)
    ]


def _product(limbs: list[UOp], words: list[UOp], count: int) -> list[UOp]:
    """The first `count` words of the product; the integer's low limb meets word 0 in word 0."""
    uint64 = dtypes.uint64
    mask, word = UOp.const(uint64, 0xFFFFFFFF), UOp.const(uint64, 32)
    columns: list[list[UOp]] = [[] for _ in range(count)]
    for j, limb in enumerate(limbs):
        for i in range(count):
            partial = limb.cast(uint64) * words[i + j].cast(uint64)
            columns[i].append(partial & mask)
            if i:
                columns[i - 1].append(partial >> word)
    found: list[UOp] = []
    carry: UOp | None = None
    for column in reversed(columns):
        total = column[0]
        for term in column[1:]:
            total = total + term
        if carry is not None:
            total = total + (carry >> word)
        found.insert(0, total & mask)
        carry = total
    return found


def _joined(words: list[UOp], form: Format) -> UOp:
    """One or two 32-bit words, held in 64 bits, as an unsigned integer of the float's size."""
    if form is SINGLE:
        return words[0].cast(dtypes.uint32)
    return words[0] << 32 | words[1]
