"""Decomposed graphs mean what the op table says, op by op, in units of the last place."""

import math
import operator
from dataclasses import replace
from functools import reduce

import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.codegen.numbers.decompose import IN_RANGE, decompose, float_bound
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, Ops, evaluate
from tinygrad.uop.rewrite import listeners
from tinygrad.uop.verify import verify

NUMPY = {
    dtypes.bool: np.bool_,
    dtypes.index: np.int64,
    dtypes.int8: np.int8,
    dtypes.uint8: np.uint8,
    dtypes.int16: np.int16,
    dtypes.uint16: np.uint16,
    dtypes.int32: np.int32,
    dtypes.uint32: np.uint32,
    dtypes.int64: np.int64,
    dtypes.uint64: np.uint64,
    dtypes.float16: np.float16,
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
    dtypes.float32: np.float32,
    dtypes.float64: np.float64,
}
INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
WIDE = frozenset((*INTS, "bool", "float32", "float64"))

FULL = Target(
    "FULL",
    dtypes=WIDE,
    storage_dtypes=WIDE | {"float16", "bfloat16"},
    native=frozenset(("MULACC", "TRUNC", "CAST_HALF")),
)
SCALES = replace(FULL, device="SCALES", native=FULL.native | {"LDEXP"})
BARE = Target("BARE", dtypes=WIDE, storage_dtypes=WIDE)
SINGLE = Target("SINGLE", dtypes=WIDE - {"float64"}, native=frozenset(("MULACC", "TRUNC")))
HALF = Target("HALF", dtypes=WIDE | {"float16"}, storage_dtypes=WIDE, native=FULL.native)
TARGETS = pytest.mark.parametrize("target", (FULL, BARE), ids=lambda t: t.device)

# ---- a small machine that has the required ops and no other --------------------------------------


def two_product(a, b):
    """a*b and its rounding error, of float64s."""

    def halves(x):
        c = x * 134217729.0
        return c - (c - x), x - (c - (c - x))

    (ah, al), (bh, bl), p = halves(a), halves(b), a * b
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def fused(a, b, c):
    """a*b + c, rounded once (but for a hundredth of an ulp in rare cases)."""
    if a.dtype == np.float32:
        a, b, c = (x.astype(np.float64) for x in (a, b, c))
        product, error = a * b, 0.0
        kind = np.float32
    else:
        product, error = two_product(a, b)
        kind = np.float64
    total = product + c
    back = total - product
    lost = (product - (total - back)) + (c - back)
    exact = total + (lost + error)
    return np.where(np.isfinite(exact), exact, total).astype(kind)


def maximum(a, b):
    if a.dtype.kind != "f":
        return np.maximum(a, b)
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, np.where(np.signbit(a), b, a), np.maximum(a, b))


def division(function):
    def divide(a, b):
        assert (b > 0).all() and (a >= 0).all(), "not what every machine can do"
        return function(a, b)

    return divide


def shift(function):
    def move(a, n):
        assert a.dtype == n.dtype and (n >= 0).all() and (n < a.dtype.itemsize * 8).all()
        return function(a, n)

    return move


def convert(node, a):
    kind = NUMPY[node.dtype]
    if node.src[0].dtype in dtypes.floats and dtypes.is_int(node.dtype):
        assert node.tag == IN_RANGE
        low, high = float(dtypes.min(node.dtype)), float(dtypes.max(node.dtype)) + 1
        whole = np.trunc(a.astype(np.float64))
        assert ((whole >= low) & (whole < (2.0**63 if high == 2.0**63 else high))).all()
    assert node.dtype is not dtypes.bool
    return a.astype(kind)


def scaled(a, n):
    assert (n.astype(np.int32) == n)[n == n].all()
    return np.ldexp(a, np.where(n == n, n, 0).astype(np.int32))


MACHINE = {
    Ops.LDEXP: scaled,
    Ops.ADD: operator.add,
    Ops.MUL: operator.mul,
    Ops.FDIV: operator.truediv,
    Ops.SQRT: np.sqrt,
    Ops.TRUNC: np.trunc,
    Ops.ROUND: np.rint,
    Ops.MAX: maximum,
    Ops.CMPLT: operator.lt,
    Ops.CMPNE: operator.ne,
    Ops.CMPEQ: operator.eq,
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
    Ops.WHERE: np.where,
    Ops.MULACC: fused,
    Ops.IDIV: division(operator.floordiv),
    Ops.MOD: division(operator.mod),
    Ops.SHL: shift(np.left_shift),
    Ops.SHR: shift(np.right_shift),
}
ON_BOOL = {Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.WHERE}


def execute(node, target, inputs):
    """The value of one decomposed node, as an array."""
    values = {}
    for n in node.toposort():
        src = [values.get(s) for s in n.src]
        native = NUMPY.get(n.dtype)
        if n.op is Ops.CONST:
            values[n] = np.array([n.arg]).astype(native)
        elif n.op is Ops.PARAM:
            given = inputs[n.arg[0] - 1] if n.arg[0] else None
            values[n] = None if given is None else given.view(native)
        elif n.op is Ops.INDEX:
            values[n] = src[0]
        elif n.op is Ops.RANGE:
            values[n] = None
        elif n.op is Ops.CAST:
            values[n] = convert(n, src[0])
        elif n.op is Ops.BITCAST:
            values[n] = src[0].view(native)
        else:
            assert n.op not in (Ops.TRUNC, Ops.ROUND, Ops.MULACC) or n.op.name in target.native
            assert n.src[0].dtype is not dtypes.bool or n.op in ON_BOOL, n.op
            assert n.op is not Ops.MULACC or dtypes.is_float(n.dtype)
            values[n] = MACHINE[n.op](*src)
            assert values[n].dtype == native, (n.op, values[n].dtype, native)
    return values[node]


def kernel(build, kinds, size):
    """A kernel that stores build(inputs...), with inputs of these dtypes."""
    loop = UOp.range(size, "r0")
    inputs = [UOp(Ops.PARAM, kind, arg=(i + 1, size)).index(loop) for i, kind in enumerate(kinds)]
    value = build(*inputs)
    return UOp.sink(UOp(Ops.PARAM, value.dtype, arg=(0, size)).index(loop).store(value, loop))


def run(build, *inputs, target=FULL, kinds=None):
    """What the decomposed expression gives for whole arrays, as the stored dtype."""
    named = {np.dtype(v): k for k, v in NUMPY.items() if k is not dtypes.index}
    kinds = kinds or [named[a.dtype] for a in inputs]
    before = kernel(build, kinds, len(inputs[0]))
    after = decompose(before, target)
    verify(after, "kernel")
    store = after.src[0]
    with np.errstate(all="ignore"):
        found = execute(store.src[1], target, inputs)
    found = np.broadcast_to(found, inputs[0].shape)
    return np.ascontiguousarray(found).view(NUMPY[before.src[0].src[1].dtype])


def nodes(build, *kinds, target=FULL):
    """How many nodes an expression becomes, constants and what was there before not counted."""
    before = kernel(build, kinds, 8)
    rest = {Ops.CONST, *(n.op for n in kernel(lambda *s: s[0], kinds, 8).toposort())}
    return sum(n.op not in rest for n in decompose(before, target).toposort())


def unary(op):
    return lambda x: UOp(op, x.dtype, (x,))


def binary(op):
    return lambda x, y: x.alu(op, y)


# ---- functions, in ulp ---------------------------------------------------------------------------


def ulps(found, wanted, kind):
    """The largest distance in units of the last place of `kind`; specials must be alike."""
    with np.errstate(all="ignore"):
        nearest = wanted.astype(kind)
        special = ~np.isfinite(nearest) | ~np.isfinite(found)
        one = np.spacing(np.abs(nearest)).astype(wanted.dtype)
        away = np.abs(found.astype(wanted.dtype) - wanted) / one
    overflow = special & ~np.isnan(nearest)
    same = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
    assert same[special & ~overflow].all()
    assert same[overflow].all(), (found[overflow & ~same][:3], wanted[overflow & ~same][:3])
    return float(np.max(away[~special], initial=0))


def random_bits(kind, count, seed=0):
    """Numbers whose bits are random: all exponents, NaN and infinities too."""
    size = np.dtype(kind).itemsize
    bits = np.random.default_rng(seed).integers(0, 256, count * size, dtype=np.uint8)
    return np.concatenate((bits.view(kind), edges(kind)))


def edges(kind):
    info = np.finfo(kind)
    values = [0.0, 1.0, np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal, 0.5, 2.0, 3.0]
    values += [1.0 + info.eps, 1.0 - info.epsneg, np.pi, np.pi / 2, 127.5, 128.0, 150.0, 1023.5]
    with np.errstate(all="ignore"):
        edge = np.array(values, dtype=np.float64).astype(kind)
    return np.concatenate((edge, -edge))


def uniform(low, high, kind, count=60_000, seed=1):
    return np.random.default_rng(seed).uniform(low, high, count).astype(kind)


def grid(kind, low, high, count=60_000):
    """Numbers of every size from 2**low to 2**high, both signs."""
    random = np.random.default_rng(2)
    size = np.exp2(random.uniform(low, high, count))
    return (size * random.choice((-1.0, 1.0), count)).astype(kind)


def wide(kind):
    return np.float64 if kind is np.float32 else np.longdouble


LOG2_E = 1.4426950408889634

FUNCTIONS = [
    # name, what is built, reference, range of interest, limit in ulp for float32 and float64
    ("exp2", unary(Ops.EXP2), np.exp2, (-1080, 1030), 1.0, 1.0),
    ("exp", lambda x: (x * LOG2_E).exp2(), np.exp, (-750, 715), 1.0, 1.0),
    ("log2", unary(Ops.LOG2), np.log2, (0, 4), 1.5, 2.5),
    ("sin", unary(Ops.SIN), np.sin, (-100, 100), 1.7, 1.5),
    ("cos", unary(Ops.COS), np.cos, (-100, 100), 1.9, 1.7),
    ("recip", unary(Ops.RECIP), lambda x: 1 / x, (-4, 4), 0.51, 0.51),
]


@pytest.mark.parametrize("target", (FULL, BARE, SCALES), ids=lambda t: t.device)
@pytest.mark.parametrize("kind", (np.float32, np.float64))
@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row[0])
def test_functions_are_within_their_ulps(row, kind, target):
    name, build, reference, (low, high), single, double = row
    if kind is np.float32 and high > 1000:
        low, high = low / 8, high / 8
    x = np.concatenate(
        (random_bits(kind, 60_000), uniform(low, high, kind), grid(kind, -30, 30), edges(kind))
    )
    with np.errstate(all="ignore"):
        wanted = reference(x.astype(wide(kind)))
        worst = ulps(run(build, x, target=target), wanted, kind)
    made = nodes(
        build, {np.float32: dtypes.float32, np.float64: dtypes.float64}[kind], target=target
    )
    print(f"\n{name:6} {np.dtype(kind).name} {target.device}: {worst:.3f} ulp, {made} nodes")
    assert worst <= (single if kind is np.float32 else double) + 0.5 * (target is BARE)


@pytest.mark.parametrize("row", FUNCTIONS[:2], ids=lambda row: row[0])
@pytest.mark.parametrize("kind", (dtypes.float32, dtypes.float64))
def test_what_a_mask_hides_is_0_without_a_product_that_underflows(row, kind):
    value = decompose(kernel(row[1], [kind], 1), FULL).src[0].src[1]
    with np.errstate(under="raise"):
        assert execute(value, FULL, [np.array([-np.inf], NUMPY[kind])]) == 0


@pytest.mark.parametrize("target", (FULL, BARE, SCALES), ids=lambda t: t.device)
@pytest.mark.parametrize("kind", (np.float32, np.float64))
def test_an_exponential_of_minus_a_magnitude_has_one_clamp_and_no_choice(kind, target):
    def build(x, by=1.0):
        return ((x < 0.0).where(x, x * -1.0) * by * LOG2_E).exp2()

    def plain(x):
        return (x * LOG2_E).exp2()

    def choices(build):
        dtype = {np.float32: dtypes.float32, np.float64: dtypes.float64}[kind]
        made = decompose(kernel(build, [dtype], 8), target).toposort()
        return sum(node.op is Ops.WHERE for node in made)

    assert choices(build) == choices(plain) - 1
    x = np.concatenate((random_bits(kind, 20_000), uniform(-90, 90, kind), grid(kind, -30, 30)))
    for by in (1.0, 2.0):
        with np.errstate(all="ignore"):
            wanted = np.exp(-np.abs(x.astype(wide(kind))) * by)
            worst = ulps(run(lambda a, by=by: build(a, by), x, target=target), wanted, kind)
        assert worst <= 1.0 + 0.5 * (target is BARE)


@pytest.mark.parametrize("kind", (dtypes.float32, dtypes.float64))
def test_an_exponential_of_minus_a_square_has_one_clamp(kind):
    def choices(build):
        made = decompose(kernel(build, [kind], 8), FULL).toposort()
        return sum(node.op is Ops.WHERE for node in made)

    square = choices(lambda x: (x * x * -0.5 * LOG2_E).exp2())
    assert square == choices(lambda x: (x * x * 0.5 * LOG2_E).exp2()) - 1
    assert square == choices(lambda x: (x * -0.5 * LOG2_E).exp2()) - 1


def largest_sines(kind):
    """Numbers close to multiples of pi, from continued fractions, where reduction is hardest."""
    found = []
    with mpmath.workprec(2400):
        for exponent in range(2, 1000 if kind is np.float64 else 104, 3):
            scaled = mpmath.ldexp(1 / mpmath.pi, exponent)
            bits = np.finfo(kind).nmant
            p, q = 0, 1
            a, (h0, k0), (h1, k1) = scaled, (1, 0), (int(mpmath.floor(scaled)), 1)
            while k1 < 2**bits:
                a = 1 / (a - mpmath.floor(a))
                step = int(mpmath.floor(a))
                (h0, k0), (h1, k1) = (h1, k1), (step * h1 + h0, step * k1 + k0)
                if k1 < 2 ** (bits + 1):
                    p, q = h1, k1
            found.append(float(mpmath.ldexp(q, exponent)))
            assert p
    return np.array(found).astype(kind)


@TARGETS
@pytest.mark.parametrize("op", (Ops.SIN, Ops.COS))
@pytest.mark.parametrize("kind", (np.float32, np.float64))
def test_sine_and_cosine_next_to_multiples_of_half_pi(kind, op, target):
    multiples = largest_sines(kind)
    x = np.concatenate((multiples, multiples / 2))
    exactly = mpmath.sin if op is Ops.SIN else mpmath.cos
    found = run(unary(op), x, target=target)
    with mpmath.workprec(2400):
        exact = [exactly(mpmath.mpf(float(v))) for v in x]
        ulp = np.spacing(np.abs(np.array([float(v) for v in exact])).astype(kind))
        away = [
            float(abs(mpmath.mpf(float(f)) - e) / mpmath.mpf(float(u)))
            for f, e, u in zip(found, exact, ulp, strict=True)
        ]
    print(f"\n{op.name} next to k*pi/2 {np.dtype(kind).name} {target.device}: {max(away):.3f} ulp")
    assert max(away) < 2.5


@pytest.mark.parametrize("op", (Ops.SIN, Ops.COS))
def test_a_short_sine_where_the_argument_is_known_to_be_small(op):
    x = np.arange(-(2**15), 2**15).astype(np.int16)

    def build(i):
        return (i.cast(dtypes.float32) * 3.7).alu(op)

    reference = np.sin if op is Ops.SIN else np.cos
    wanted = reference((x.astype(np.float32) * np.float32(3.7)).astype(np.float64))
    worst = ulps(run(build, x), wanted, np.float32)
    made = nodes(build, dtypes.int16)
    print(f"\n{op.name} float32 of |x| < 2**17: {worst:.3f} ulp, {made} nodes")
    assert worst < 1.7
    assert made < nodes(unary(op), dtypes.float32) - 10


@pytest.mark.parametrize("op, reference", ((Ops.SIN, np.sin), (Ops.COS, np.cos)))
def test_a_sine_without_float64_needs_none(op, reference):
    x = np.concatenate((random_bits(np.float32, 20_000), largest_sines(np.float32)))
    with np.errstate(all="ignore"):
        wanted = reference(x.astype(np.float64))
    assert ulps(run(unary(op), x, target=SINGLE), wanted, np.float32) < 1.7
    made = decompose(kernel(unary(op), [dtypes.float32], 8), SINGLE)
    assert all(node.dtype is not dtypes.float64 for node in made.toposort())


def test_bounds_of_numbers_made_of_whole_ones():
    bits = UOp(Ops.PARAM, dtypes.uint32, arg=(1, 8)).index(UOp.range(8, "r"))
    high = (bits >> UOp.const(dtypes.uint32, 9)).cast(dtypes.float32)
    assert float_bound(high * 2.0**-23 * (2 * math.pi)) < 6.5
    assert float_bound((bits.cast(dtypes.float32) * 3.0).sin()) < 1.1
    assert float_bound(bits.bitcast(dtypes.float32)) == float("inf")


def test_exact_powers_of_two_both_ways():
    whole = np.arange(-1074, 1024).astype(np.float64)
    assert (run(unary(Ops.EXP2), whole) == np.exp2(whole)).all()
    assert (run(unary(Ops.LOG2), np.exp2(whole)) == whole).all()
    single = np.arange(-149, 128).astype(np.float32)
    powers = np.exp2(single.astype(np.float64)).astype(np.float32)
    assert (run(unary(Ops.EXP2), single) == powers).all()
    assert (run(unary(Ops.LOG2), powers) == single).all()


@TARGETS
@pytest.mark.parametrize("kind", (np.float32, np.float64))
def test_powers(kind, target):
    largest = 127.9 if kind is np.float32 else 1023.9
    x = np.abs(
        np.concatenate((grid(kind, -30, 30), uniform(0.5, 2, kind), random_bits(kind, 9999)))
    )
    random = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        scale = largest / np.abs(np.log2(x.astype(np.float64)))
        y = (scale * random.uniform(-1, 1, len(x))).astype(kind)
        y = np.where(random.random(len(x)) < 0.3, np.trunc(y), y)
        sign = np.where(np.trunc(y) == y, random.choice((-1, 1), len(x)), 1)
        x = (x * sign).astype(kind)
        wanted = np.power(x.astype(wide(kind)), y.astype(wide(kind)))
    worst = ulps(run(binary(Ops.POW), x, y, target=target), wanted, kind)
    dtype = dtypes.float32 if kind is np.float32 else dtypes.float64
    made = nodes(binary(Ops.POW), dtype, dtype, target=target)
    print(f"\npow {np.dtype(kind).name} {target.device}: {worst:.3f} ulp, {made} nodes")
    assert worst < 1.5


@TARGETS
@pytest.mark.parametrize("kind", (np.float32, np.float64))
def test_powers_of_special_values(kind, target):
    info = np.finfo(kind)
    values = [
        0,
        0.5,
        1,
        2,
        3,
        4,
        np.inf,
        np.nan,
        info.max,
        info.tiny,
        2.5,
        1 / 3,
        1e30,
        1 + info.eps,
    ]
    values = np.array([*values, info.smallest_subnormal, 2.0**24 - 1, 2.0**24 + 2], dtype=kind)
    values = np.concatenate((values, -values))
    x, y = (a.ravel().copy() for a in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(wide(kind)), y.astype(wide(kind)))
        meant = [evaluate(Ops.POW, dtypes.float64, *p) for p in zip(x, y, strict=True)]
    found = run(binary(Ops.POW), x, y, target=target)
    assert ulps(found, wanted, kind) < 1.5
    assert (np.isnan(found) == np.isnan(meant)).all()
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(found)].all()


@TARGETS
@pytest.mark.parametrize("kind", (np.float32, np.float64))
@pytest.mark.parametrize("op, numpy", ((Ops.TRUNC, np.trunc), (Ops.ROUND, np.rint)))
def test_whole_numbers(op, numpy, kind, target):
    x = np.concatenate((random_bits(kind, 20_000), grid(kind, -3, 70), edges(kind)))
    x = np.concatenate(
        (x, np.arange(-9, 9, 0.5, kind), np.array([2**23 - 0.5, 2.0**52 - 0.5], kind))
    )
    with np.errstate(all="ignore"):
        found, wanted = run(unary(op), x, target=target), numpy(x)
    assert np.array_equal(found, wanted, equal_nan=True)
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(x)].all()


# ---- integers ------------------------------------------------------------------------------------


def by_table(op, dtype, *arrays):
    """What the op table says, in Python, element by element."""
    columns = [a.tolist() for a in arrays]
    found = [evaluate(op, dtype, *v) for v in zip(*columns, strict=True)]
    return np.array(found, dtype=object).astype(NUMPY[dtype])


def corners(dtype):
    low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    near = {low, low + 1, low + 2, high, high - 1, high // 2, high // 2 + 1, low // 2}
    small = {v for v in range(-9, 10) if low <= v <= high}
    return sorted(near | small | {high // 3, low // 3, 63 & high, 64 & high})


DIVISIONS = (Ops.IDIV, Ops.MOD)


@pytest.mark.parametrize("op", DIVISIONS)
@pytest.mark.parametrize("dtype", (dtypes.int8, dtypes.uint8))
def test_division_of_bytes_in_full(op, dtype):
    every = np.arange(256, dtype=np.uint8).view(NUMPY[dtype])
    x, y = (a.ravel().copy() for a in np.meshgrid(every, every))
    assert (run(binary(op), x, y) == by_table(op, dtype, x, y)).all()
    for divisor in every.tolist():
        divide = binary(op)
        found = run(lambda x, c=divisor, f=divide: f(x, UOp.const(x.dtype, c)), every)
        assert (found == by_table(op, dtype, every, np.full(256, divisor))).all(), divisor


@pytest.mark.parametrize("op", DIVISIONS)
@pytest.mark.parametrize("name", [*INTS[2:], "index"])
def test_division_at_the_corners(op, name):
    dtype = getattr(dtypes, name)
    kind = NUMPY[dtype]
    x, y = (a.ravel().copy() for a in np.meshgrid(*2 * [np.array(corners(dtype), dtype=kind)]))
    if name == "index":  # which never wraps
        keep = ~((x == x.min()) & (y == -1))
        x, y = x[keep].copy(), y[keep].copy()
    kinds = [dtype, dtype]
    assert (run(binary(op), x, y, kinds=kinds) == by_table(op, dtype, x, y)).all()
    for divisor in corners(dtype):
        if name == "index" and (divisor == -1 or divisor > 0):
            continue
        divide = binary(op)
        found = run(lambda x, c=divisor, f=divide: f(x, UOp.const(x.dtype, c)), x, kinds=kinds[:1])
        assert (found == by_table(op, dtype, x, np.full(len(x), divisor))).all(), divisor


@given(st.sampled_from(INTS), st.sampled_from(DIVISIONS), st.data())
def test_division_of_anything(name, op, data):
    dtype = getattr(dtypes, name)
    number = st.integers(int(dtypes.min(dtype)), int(dtypes.max(dtype)))
    pairs = data.draw(st.lists(st.tuples(number, number), min_size=1, max_size=20))
    x, y = (np.array(column, dtype=NUMPY[dtype]) for column in zip(*pairs, strict=True))
    assert (run(binary(op), x, y) == by_table(op, dtype, x, y)).all()


def test_division_that_needs_nothing_stays():
    r = UOp.range(100, "r")
    target = UOp(Ops.PARAM, dtypes.int32, arg=(0, 64)).index(r % 8 * 8 + r // 8 % 8)
    sink = UOp.sink(target.store(UOp.const(dtypes.int32, 1), r))
    assert decompose(sink, FULL) is sink


def test_an_index_divided_by_a_constant_is_left_to_codegen_index():
    r = UOp.range(100, "r")
    place = UOp(Ops.PARAM, dtypes.int32, arg=(0, 64)).index((r + -3) // 7 + (r + -3) % 8)
    sink = UOp.sink(place.store(UOp.const(dtypes.int32, 1), r))
    assert decompose(sink, FULL) is sink


SHIFTS = (Ops.SHL, Ops.SHR)


@pytest.mark.parametrize("op", SHIFTS)
@pytest.mark.parametrize("name", INTS)
def test_shifts(op, name):
    dtype = getattr(dtypes, name)
    values = np.array(corners(dtype), dtype=NUMPY[dtype])
    x, n = (a.ravel().copy() for a in np.meshgrid(values, values))
    assert (run(binary(op), x, n) == by_table(op, dtype, x, n)).all()
    for count in range(0, min(70, int(dtypes.max(dtype)))):
        move = binary(op)
        found = run(lambda x, c=count, f=move: f(x, UOp.const(x.dtype, c)), values)
        assert (found == by_table(op, dtype, values, np.full(len(values), count))).all(), count


def test_a_shift_counted_in_another_dtype():
    x = np.array([1, 3, 5, 7], dtype=np.uint64)
    n = np.array([0, 63, 64, -1], dtype=np.int32)
    assert run(binary(Ops.SHL), x, n).tolist() == [1, 3 << 63 & 2**64 - 1, 0, 0]


def test_threefry_is_the_table():
    random = np.random.default_rng(3)
    x, key = (random.integers(0, 2**64, 200, dtype=np.uint64) for _ in range(2))
    found = run(binary(Ops.THREEFRY), x, key)
    assert (found == by_table(Ops.THREEFRY, dtypes.uint64, x, key)).all()


BOOL_OPS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR)


@pytest.mark.parametrize("op", (*BOOL_OPS, *DIVISIONS, *SHIFTS))
def test_truth_values(op):
    x, y = np.array([0, 0, 1, 1], dtype=bool), np.array([0, 1, 0, 1], dtype=bool)
    assert (run(binary(op), x, y) == by_table(op, dtypes.bool, x, y)).all()


@pytest.mark.parametrize("monoid", MONOIDS)
def test_reductions_of_truth_values(monoid):
    r = UOp.range(4, "r")
    value = UOp(Ops.PARAM, dtypes.bool, arg=(1, 4)).index(r).reduce(monoid, r)
    place = UOp(Ops.PARAM, dtypes.bool, arg=(0, 1)).index(UOp.const(dtypes.index, 0))
    after = decompose(UOp.sink(place.store(value)), FULL)
    verify(after, "kernel")
    (inner,) = [n for n in after.toposort() if n.op is Ops.REDUCE]
    combine, kind = MONOIDS[inner.arg].combine, inner.dtype
    for bits in range(16):
        given = [bool(bits >> i & 1) for i in range(4)]
        first = MONOIDS[monoid].combine
        found = reduce(lambda a, b: evaluate(combine, kind, a, b), map(int, given))
        assert bool(found) == reduce(lambda a, b, f=first: evaluate(f, dtypes.bool, a, b), given)


# ---- casts ---------------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("source", (np.float16, np.float32, np.float64))
@pytest.mark.parametrize("name", [*INTS, "bool", "index"])
def test_float_to_integer_saturates(source, name, target):
    dtype = getattr(dtypes, name)
    low, high = float(dtypes.min(dtype)), float(dtypes.max(dtype))
    with np.errstate(all="ignore"):
        edge = np.array([low, high, low - 1, high + 1, high / 2, -0.5, 0.99, -0.99, -1.0])
        near = [np.nextafter(edge.astype(source), source(to)) for to in (-np.inf, np.inf)]
        x = np.concatenate((edge.astype(source), *near, edges(source), random_bits(source, 2000)))
    with np.errstate(all="ignore"):
        found = run(lambda x: x.cast(dtype), x, target=target)
    low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    held = [0 if v != v else low if v < low else high if v > high else int(v) for v in x.tolist()]
    wanted = x != 0 if name == "bool" else np.array(held, dtype=object).astype(NUMPY[dtype])
    assert (found == wanted).all(), x[found != wanted]


# ---- narrow floats -------------------------------------------------------------------------------

NARROW = (dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)
KINDS = pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
EACH = pytest.mark.parametrize("target", (FULL, BARE, HALF), ids=lambda t: t.device)


def every(dtype):
    """All bit patterns."""
    bits = np.arange(2**dtype.bitsize, dtype=np.uint8 if dtype.itemsize == 1 else np.uint16)
    return bits.view(NUMPY[dtype])


def alike(found, wanted):
    """The same bits, or both NaN."""
    kind = np.uint8 if found.dtype.itemsize == 1 else np.uint16
    both_nan = np.isnan(found.astype(np.float32)) & np.isnan(wanted.astype(np.float32))
    return bool(((found.view(kind) == wanted.view(kind)) | both_nan).all())


@EACH
@KINDS
def test_every_narrow_float_widens_and_comes_back(dtype, target):
    x = every(dtype)
    wide_values = run(lambda x: x.cast(dtypes.float32), x, target=target)
    assert np.array_equal(wide_values, x.astype(np.float32), equal_nan=True)
    assert alike(run(lambda x: x.cast(dtype), wide_values, target=target), x)
    assert alike(run(lambda x: x.maximum(x), x, target=target), x)
    assert (run(lambda x: x, x, target=target).view(np.uint8) == x.view(np.uint8)).all()


@EACH
@KINDS
def test_narrow_bits_can_be_looked_at(dtype, target):
    x, bits = every(dtype), dtypes.uint8 if dtype.itemsize == 1 else dtypes.uint16
    assert (run(lambda x: x.bitcast(bits), x, target=target) == x.view(NUMPY[bits])).all()
    again = run(lambda x: x.bitcast(dtype).cast(dtypes.float32), x.view(NUMPY[bits]), target=target)
    assert np.array_equal(again, x.astype(np.float32), equal_nan=True)


def ties(dtype):
    """Numbers half way between two neighbours, and next to that, as float64."""
    with np.errstate(all="ignore"):
        x = every(dtype).astype(np.float64)
    x = np.unique(x[np.isfinite(x)])
    thin = 1 if dtype.itemsize == 1 else 13  # Python's rounding is slow
    x = np.concatenate((x[: 40 * thin], x[-40 * thin :], x[len(x) // 2 :: thin])) if thin > 1 else x
    x = np.unique(x)
    middle = (x[1:] + x[:-1]) / 2
    largest = np.array([x[-1] + (x[-1] - x[-2]) / 2, x[-1] * 2, 1e300, 1e39, np.inf])
    points = np.concatenate((x, middle, largest, -largest))
    return np.concatenate((points, np.nextafter(points, np.inf), np.nextafter(points, -np.inf)))


def nearest(values, dtype):
    limit = 2.0**1000
    held = [v if abs(v) == np.inf else min(max(v, -limit), limit) for v in map(float, values)]
    with np.errstate(all="ignore"):
        return np.array([dtypes.as_const(v, dtype) for v in held]).astype(NUMPY[dtype])


@EACH
@KINDS
def test_rounding_to_a_narrow_float_is_to_nearest_even(dtype, target):
    exact = ties(dtype)
    assert alike(run(lambda x: x.cast(dtype), exact, target=target), nearest(exact, dtype))
    with np.errstate(all="ignore"):
        single = np.concatenate((exact.astype(np.float32), random_bits(np.float32, 5_000)))
        single = np.concatenate((single, np.nextafter(single, np.float32(np.inf))))
    assert alike(run(lambda x: x.cast(dtype), single, target=target), nearest(single, dtype))


@EACH
@KINDS
@pytest.mark.parametrize("name", INTS)
def test_integers_round_once_to_narrow_floats(dtype, name, target):
    kind = getattr(dtypes, name)
    random, high = np.random.default_rng(6), int(dtypes.max(kind))
    values = {*corners(kind), *(int(v) for v in random.integers(0, high, 300, dtype=np.uint64))}
    for bits in range(9, high.bit_length()):  # half way between two bfloat16s, and next to it
        tie = (0x101 << bits) >> 8
        values |= {tie - 1, tie, tie + 1, tie + (1 << bits >> 7), tie + (1 << bits >> 7) + 1}
    low = int(dtypes.min(kind))
    x = np.array(sorted(v for v in values if low <= v <= high), dtype=NUMPY[kind])
    wanted = [exactly(int(v), dtype) for v in x]
    assert alike(run(lambda x: x.cast(dtype), x, target=target), nearest(wanted, dtype))


def exactly(value, dtype):
    """An integer rounded to an odd float64 unless it is equal, so that rounding again is right."""
    near = float(value)
    if int(near) == value or np.float64(near).view(np.uint64) & 1:
        return near
    return float(np.nextafter(near, np.inf if int(near) < value else -np.inf))


ARITHMETIC = (Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.CMPLT, Ops.CMPEQ)


@EACH
@KINDS
@pytest.mark.parametrize("op", ARITHMETIC)
def test_narrow_arithmetic_rounds_once(dtype, op, target):
    random = np.random.default_rng(8)
    x, y = (random.choice(every(dtype), 4000) for _ in range(2))
    if dtype is dtypes.bfloat16:  # whose subnormal numbers may round twice
        x, y = (a[(np.abs(a) > 2.0**-60) & (np.abs(a) < 2.0**60)][:1500] for a in (x, y))
    found = run(binary(op), x, y, target=target)
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = MACHINE[op](a, b)
    if op in (Ops.CMPLT, Ops.CMPEQ):
        assert (found == exact).all()
    else:
        assert alike(found, nearest(exact, dtype))


@EACH
@KINDS
@pytest.mark.parametrize("op", (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.SQRT, Ops.RECIP))
def test_narrow_functions_are_float32s_rounded(dtype, op, target):
    x = every(dtype)
    found = run(unary(op), x, target=target)
    with np.errstate(all="ignore"):
        single = run(unary(op), x.astype(np.float32), target=target)
    assert alike(found, nearest(single, dtype))


def test_each_narrow_op_rounds():
    x = np.array([1.0], dtype=np.float16)
    found = run(lambda x: (x + 2048.0) + -2048.0, x)
    assert found.tolist() == [0.0]


@EACH
def test_staged_and_reduced_narrow_values_are_float32_inside(target):
    r = UOp.range(4, "r")
    x = UOp(Ops.PARAM, dtypes.bfloat16, arg=(1, 4)).index(r)
    stage = UOp(Ops.STAGE, dtypes.bfloat16, (x * 2.0, r), ("s", "LOCAL", ()))
    total = UOp(Ops.INDEX, dtypes.bfloat16, (stage, r), 1).reduce("add", r)
    place = UOp(Ops.PARAM, dtypes.bfloat16, arg=(0, 1)).index(UOp.const(dtypes.index, 0))
    after = decompose(UOp.sink(place.store(total)), target)
    verify(after, "kernel")
    inner = {n.op: n.dtype for n in after.toposort()}
    assert inner[Ops.REDUCE] is inner[Ops.STAGE] is dtypes.float32


# ---- cost ----------------------------------------------------------------------------------------


def test_a_large_kernel_is_decomposed_once():
    def chain(x):
        for i in range(64):
            x = (x + 0.1 * i).sin() * 3.0 + (x * 0.01).exp2()
        return x

    rewritten = []
    listeners.append(lambda before, after, rule: rewritten.append(rule))
    try:
        made = len(decompose(kernel(chain, [dtypes.float32], 8), FULL).toposort())
    finally:
        listeners.pop()
    assert len(rewritten) < made  # each node is made about once


def test_what_is_native_stays():
    native = Target(
        "N", dtypes=WIDE, native=frozenset(("EXP2", "SIN", "POW", "TRUNC", "ROUND", "RECIP"))
    )
    for op in (Ops.EXP2, Ops.SIN, Ops.TRUNC, Ops.ROUND, Ops.RECIP):
        before = kernel(unary(op), [dtypes.float32], 8)
        assert decompose(before, native) is before
