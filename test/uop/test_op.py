"""The op table: one row an op, and what a row says of the algebra is true of its meaning. Bounds
are sound. `verify` catches each way in which a graph can be wrong."""

import math
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError, VerifyError
from tinygrad.uop.bounds import bounds
from tinygrad.uop.infer import SHAPE_RULES
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, ROW, TABLE, GroupOp, Ops, bit_cast, evaluate
from tinygrad.uop.verify import STAGES, verify

INT = dtypes.int32
REALS = (0.0, -0.0, 1.0, -1.5, 3.25, 1e30, 1e-40, math.inf, -math.inf, math.nan)


def numbers(dtype, count, seed=0):
    random_ = random.Random(seed)
    if dtypes.is_float(dtype):
        pool = REALS
    elif dtype is dtypes.bool:
        pool = (False, True)
    else:
        pool = (0, 1, -1, 2, 7, 100, int(dtypes.min(dtype)), int(dtypes.max(dtype)))
    return [
        [dtypes.as_const(random_.choice(pool), dtype) for _ in range(count)] for _ in range(200)
    ]


def same(a, b):
    return a == b and math.copysign(1, a) == math.copysign(1, b) or (a != a and b != b)


def test_each_op_has_exactly_one_row_in_order():
    assert [row.op for row in TABLE] == list(Ops)
    assert len(ROW) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.op.name)
def test_row_is_whole(row):
    assert row.dtype in ("first", "bits", "last", "bool", "void", "given")
    assert row.shape in SHAPE_RULES
    assert row.sentence.endswith(".") and row.algebra <= {
        "commutative",
        "associative",
        "idempotent",
    }
    assert any(row.op in legal for legal in STAGES.values()) or row.op in (
        Ops.KERNEL,
        Ops.SINK,
        Ops.BUNDLE,
    )


def kinds_of(op):
    if op in (Ops.AND, Ops.OR, Ops.XOR):
        return (dtypes.bool, dtypes.int8, dtypes.uint32)
    return (dtypes.bool, dtypes.int8, dtypes.uint32, dtypes.float32)


@pytest.mark.parametrize("op", sorted(GroupOp.Commutative))
def test_commutative(op):
    for dtype in kinds_of(op):
        result = dtypes.bool if op in GroupOp.Comparison else dtype
        for x, y in numbers(dtype, 2):
            assert same(evaluate(op, result, x, y), evaluate(op, result, y, x))


@pytest.mark.parametrize("op", sorted(GroupOp.Associative))
def test_associative(op):
    for dtype in kinds_of(op):
        if dtypes.is_float(dtype) and op is not Ops.MAX:
            continue  # floats round: sums and products are only nearly associative
        for x, y, z in numbers(dtype, 3):
            left = evaluate(op, dtype, evaluate(op, dtype, x, y), z)
            assert same(left, evaluate(op, dtype, x, evaluate(op, dtype, y, z)))


@pytest.mark.parametrize("op", sorted(GroupOp.Idempotent))
def test_idempotent(op):
    for dtype in kinds_of(op):
        for (x,) in numbers(dtype, 1):
            assert same(evaluate(op, dtype, x, x), x)


@pytest.mark.parametrize(
    "row", [r for r in TABLE if r.identity is not None], ids=lambda r: r.op.name
)
def test_identity(row):
    for dtype in kinds_of(row.op):
        least = row.identity == -math.inf  # of floats; of other types the least number
        neutral = dtypes.min(dtype) if least else dtypes.as_const(row.identity, dtype)
        for (x,) in numbers(dtype, 1):
            found = evaluate(row.op, dtype, x, neutral)
            assert found == x or x != x and found != found


@pytest.mark.parametrize("monoid", MONOIDS.values(), ids=lambda m: m.name)
def test_monoid_starts_from_its_identity(monoid):
    for dtype in (dtypes.bool, dtypes.int8, dtypes.uint32, dtypes.float32):
        for (x,) in numbers(dtype, 1):
            found = evaluate(monoid.combine, dtype, monoid.identity(dtype), x)
            assert found == x or x != x and found != found


EVALUATED = [
    (Ops.ADD, dtypes.int8, (127, 1), -128),
    (Ops.MUL, dtypes.uint8, (16, 17), 16),
    (Ops.ADD, dtypes.bool, (True, True), True),
    (Ops.ADD, dtypes.float16, (65504.0, 65504.0), math.inf),
    (Ops.IDIV, INT, (-7, 2), -4),
    (Ops.MOD, INT, (-7, 2), 1),
    (Ops.MOD, INT, (7, -2), -1),
    (Ops.IDIV, INT, (-(2**31), -1), -(2**31)),
    (Ops.IDIV, INT, (5, 0), 0),
    (Ops.MOD, INT, (5, 0), 5),
    (Ops.SHL, dtypes.int8, (1, 7), -128),
    (Ops.SHL, dtypes.int8, (1, 8), 0),
    (Ops.SHL, dtypes.int64, (1, 64), 0),
    (Ops.SHR, dtypes.int8, (-128, 7), -1),
    (Ops.SHR, dtypes.int8, (-128, 8), 0),
    (Ops.FDIV, dtypes.float32, (-1.0, 0.0), -math.inf),
    (Ops.FDIV, dtypes.float32, (0.0, 0.0), math.nan),
    (Ops.RECIP, dtypes.float32, (-0.0,), -math.inf),
    (Ops.SQRT, dtypes.float32, (-1.0,), math.nan),
    (Ops.LOG2, dtypes.float32, (0.0,), -math.inf),
    (Ops.LOG2, dtypes.float32, (-1.0,), math.nan),
    (Ops.EXP2, dtypes.float32, (2000.0,), math.inf),
    (Ops.SIN, dtypes.float32, (math.inf,), math.nan),
    (Ops.COS, dtypes.float32, (math.inf,), math.nan),
    (Ops.COS, dtypes.float32, (-0.0,), 1.0),
    (Ops.MAX, dtypes.float32, (math.nan, 1.0), math.nan),
    (Ops.MAX, dtypes.float32, (-0.0, 0.0), 0.0),
    (Ops.TRUNC, dtypes.float32, (-0.5,), -0.0),
    (Ops.ROUND, dtypes.float32, (-0.5,), -0.0),
    (Ops.ROUND, dtypes.float32, (2.5,), 2.0),
    (Ops.ROUND, dtypes.float32, (-math.inf,), -math.inf),
    (Ops.POW, dtypes.float64, (-2.0, 0.5), math.nan),
    (Ops.CMPLT, dtypes.bool, (math.nan, 1.0), False),
    (Ops.CMPNE, dtypes.bool, (math.nan, math.nan), True),
    (Ops.WHERE, INT, (True, 1, 2), 1),
]


@pytest.mark.parametrize("op, dtype, values, expected", EVALUATED)
def test_meaning(op, dtype, values, expected):
    found = evaluate(op, dtype, *values)
    assert same(found, expected) and type(found) is type(dtypes.as_const(expected, dtype))


def test_threefry_is_the_published_one():
    """Random123's known answers for threefry2x32 with 20 rounds, words in order of significance."""
    ones = 2**64 - 1
    assert evaluate(Ops.THREEFRY, dtypes.uint64, 0, 0) == 0x99BA4EFE_6B200159
    assert evaluate(Ops.THREEFRY, dtypes.uint64, ones, ones) == 0xBB002BE7_1CB996FC
    pi = 0x85A308D3_243F6A88, 0x03707344_13198A2E
    assert evaluate(Ops.THREEFRY, dtypes.uint64, *pi) == 0x483DF7A0_C4923A9C


CASTS = [
    (math.inf, dtypes.int64, 2**63 - 1),
    (-math.inf, dtypes.int64, -(2**63)),
    (math.inf, dtypes.uint64, 2**64 - 1),
    (1e30, dtypes.int32, 2**31 - 1),
    (-1.0, dtypes.uint8, 0),
    (math.nan, dtypes.int32, 0),
    (-1.9, dtypes.int32, -1),
    (300, dtypes.uint8, 44),
    (math.nan, dtypes.bool, True),
]


@pytest.mark.parametrize("value, dtype, expected", CASTS)
def test_cast_of_a_constant(value, dtype, expected):
    assert dtypes.as_const(value, dtype) == expected


def test_bits_stay_under_bitcast():
    assert bit_cast(1.0, dtypes.float32, dtypes.int32) == 0x3F800000
    assert bit_cast(0x8000, dtypes.uint16, dtypes.float16) == 0
    assert bit_cast(0x3E, dtypes.uint8, dtypes.fp8e5m2) == 1.5
    assert (
        bit_cast(bit_cast(-2.5, dtypes.bfloat16, dtypes.int16), dtypes.int16, dtypes.bfloat16)
        == -2.5
    )


# ---- bounds --------------------------------------------------------------------------------------

KINDS = (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.bool)
OPS = [Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR]

BITS = [Ops.AND, Ops.OR, Ops.XOR]


@st.composite
def expressions(draw, depth=4):
    """(node, its value, values of its leaves) of one dtype."""
    values = {}

    def leaf(dtype):
        low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
        near = st.integers(max(low, -20), min(high, 20))
        number = draw(st.one_of(near, st.integers(low, high)))
        if draw(st.booleans()):
            return UOp.const(dtype, number), dtypes.as_const(number, dtype)
        below, above = draw(st.integers(0, 20)), draw(st.integers(0, 20))
        bounds_ = (max(low, number - below), min(high, number + above))
        node = UOp.variable(f"v{len(values)}", *(dtypes.as_const(b, dtype) for b in bounds_), dtype)
        values[node] = dtypes.as_const(number, dtype)
        return node, values[node]

    def build(dtype, depth):
        if depth == 0 or draw(st.integers(0, 4)) == 0:
            return leaf(dtype)
        kind = draw(st.integers(0, 5))
        if kind == 0:
            p, a, b = (build(d, depth - 1) for d in (dtypes.bool, dtype, dtype))
            return p[0].where(a[0], b[0]), a[1] if p[1] else b[1]
        if kind == 1:
            node, value = build(draw(st.sampled_from(KINDS)), depth - 1)
            return node.cast(dtype), dtypes.as_const(value, dtype)
        if dtype is dtypes.bool and kind < 4:
            operands = draw(st.sampled_from(KINDS))
            op = draw(st.sampled_from(sorted(GroupOp.Comparison)))
        else:
            operands, op = (
                dtype,
                draw(st.sampled_from(OPS if dtype is not dtypes.bool else OPS[5:8])),
            )
        (a, x), (b, y) = build(operands, depth - 1), build(operands, depth - 1)
        return a.alu(op, b), evaluate(op, dtype, x, y)

    return (*build(draw(st.sampled_from(KINDS)), depth), values)


@settings(max_examples=500)
@given(expressions())
def test_bounds_are_sound(drawn):
    node, value, values = drawn
    assert node.vmin <= value <= node.vmax
    low, high = bounds(node, {leaf: (v, v) for leaf, v in values.items()})
    assert low <= value <= high


i = UOp.range(8, "i")
TIGHT = [
    (i, 0, 7),
    (i * 4 + 3, 3, 31),
    (i // 3, 0, 2),
    (i % 3, 0, 2),
    (i % 9, 0, 7),
    ((i + 8) % 16, 8, 15),
    (i * -1, -7, 0),
    (i < 8, True, True),
    (i < 0, False, False),
    (i.maximum(3), 3, 7),
    (UOp.range(8, "n", limits=(i,)), 0, 6),
    (UOp.variable("x", 0, 127, dtypes.int8) + 1, -128, 127),
    (UOp.const(dtypes.float32, math.nan), -math.inf, math.inf),
]


@pytest.mark.parametrize("node, low, high", TIGHT)
def test_bounds(node, low, high):
    assert (node.vmin, node.vmax) == (low, high)


# ---- verify --------------------------------------------------------------------------------------

x, y, f = (
    UOp.variable("x", 0, 9),
    UOp.variable("y", 0, 9, dtypes.int64),
    UOp.const(dtypes.float32, 1),
)
tensor = UOp.new_buffer("CPU", 4, INT)
WRONG = [
    ("no place at stage", "kernel", tensor.reshape((2, 2))),
    ("no place at stage", "tensor", i),
    ("no place at stage", "linear", x.check(x < 3, "index", "")),
    ("takes 2 sources, has 1", "kernel", UOp(Ops.ADD, INT, (x,))),
    ("its first source", "kernel", UOp(Ops.ADD, dtypes.int64, (x, x))),
    ("its last source", "kernel", UOp(Ops.WHERE, INT, (x < 3, f, f))),
    ("which has no bits", "kernel", UOp(Ops.SHR, dtypes.float32, (f, x))),
    ("compares, but has", "kernel", UOp(Ops.CMPLT, INT, (x, x))),
    ("sources are", "kernel", UOp(Ops.ADD, INT, (x, y))),
    ("sources have shapes", "tensor", UOp(Ops.ADD, INT, (tensor, tensor.const_like(1).src[0]))),
    ("at places", "tensor", tensor.scatter("set", tensor, tensor.shrink(((0, 3),)))),
]


@pytest.mark.parametrize("message, stage, node", WRONG)
def test_verify_catches(message, stage, node):
    with pytest.raises(VerifyError, match=message):
        verify(node, stage)


@pytest.mark.parametrize("op", [Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR])
def test_floats_have_no_bits(op):
    """A shift of floats was a rule's endless loop, the others a compiler's syntax error."""
    with pytest.raises(DTypeError, match=f"{op!r}: of {f.dtype!r}; legal are"):
        f.alu(op, f)


RIGHT = [("kernel", (x + 1) < 3), ("tensor", tensor + 1), ("kernel", i * 4), ("linear", x << 3)]


@pytest.mark.parametrize("stage, node", RIGHT)
def test_verify_passes(stage, node):
    verify(node, stage)


def test_origin_of_wrongness_is_shown():
    with pytest.raises(VerifyError, match="Ops.ADD at stage 'kernel'"):
        verify(UOp.sink(UOp(Ops.ADD, INT, (x,))), "kernel")
