"""Every rule on random numbers: what `evaluate` says before and after is the same, bit for bit,
with NaN, infinities, -0.0, subnormals, and the ends of every integer type among the numbers."""

import itertools
import math
import random

import numpy as np
import pytest
from simplify.prover import allowed, children, is_literal, operand_kind
from simplify.terms import same, value

from tinygrad.base.dtype import dtypes
from tinygrad.simplify import cast
from tinygrad.simplify.affine import simplify_index
from tinygrad.simplify.masks import both, conditions_of, simplify_condition, under
from tinygrad.simplify.rules import TERMS, dropped, guarded, simplify, symbolic
from tinygrad.uop import rewrite
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops
from tinygrad.uop.pattern import PatternMatcher

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
KINDS = (*dtypes.ints, dtypes.index, dtypes.bool, *FLOATS)
REALS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    0.5,
    3.0,
    1e-45,
    6e-8,
    3e38,
    65504.0,
    math.inf,
    -math.inf,
    math.nan,
)
WHOLES = (0, 1, -1, 2, 3, 4, 7, 12, 100, 255)


def a_number(dtype, random):
    if dtypes.is_float(dtype):
        number = random.choice((*REALS, random.gauss(0, 10), random.gauss(0, 1e6)))
    elif dtype is dtypes.bool:
        number = random.random() < 0.5
    else:
        ends = () if dtype is dtypes.index else (dtypes.min(dtype), dtypes.max(dtype))
        number = random.choice((*WHOLES, *ends, random.randint(-300, 300)))
    return dtypes.as_const(number, dtype)


def a_leaf(name, dtype, random, known):
    """A variable that has a value, known to lie within some bounds around it."""
    number = a_number(dtype, random)
    low = high = number
    if dtypes.is_float(dtype) or dtype is dtypes.bool or random.random() < 0.3:
        low, high = dtypes.min(dtype), dtypes.max(dtype)
    elif random.random() < 0.8:
        low = max(number - random.randint(0, 9), dtypes.min(dtype))
        high = min(number + random.randint(0, 9), dtypes.max(dtype))
    node = UOp.variable(name, low, high, dtype)
    known[node] = number
    return node


def an_instance(pattern, dtype, test, random, found, known):
    """A node that fits the pattern, and the values of its leaves."""
    if pattern.name in found:
        return found[pattern.name]
    if is_literal(pattern):
        return UOp.const(dtype, pattern.arg)
    if not children(pattern):
        if pattern.ops == (Ops.CONST,):
            made = UOp.const(dtype, a_number(dtype, random))
        else:
            made = a_leaf(pattern.name, dtype, random, known)
    else:
        op, src = pattern.ops[0], children(pattern)
        inner = [dtype] * len(src)
        if op in GroupOp.Comparison:
            kinds = {operand_kind(s, test) for s in src} - {None}
            inner = [next(iter(kinds))] * 2
        elif op is Ops.WHERE:
            inner[0] = dtypes.bool
        elif op is Ops.CHECK:
            inner[1] = dtypes.bool
        elif op in (Ops.CAST, Ops.BITCAST):
            only = src[0].dtypes or [
                d for d in KINDS if op is Ops.CAST or d.bitsize == dtype.bitsize
            ]
            inner[0] = random.choice(list(only))
            if src[0].ops == (Ops.CAST,) or src[0].ops == (Ops.BITCAST,):
                inner[0] = random.choice(
                    [d for d in KINDS if op is Ops.CAST or d.bitsize == dtype.bitsize]
                )
        made_src = [
            an_instance(s, d, test, random, found, known) for s, d in zip(src, inner, strict=True)
        ]
        if len({s.dtype for s in made_src}) > 1 and op in GroupOp.Binary:
            raise ValueError("dtypes differ")
        arg = ("index", "") if op is Ops.CHECK else None
        made = UOp(op, dtype, tuple(made_src), arg)
    if pattern.name is not None:
        found[pattern.name] = made
    return made


def has_pattern(rule):
    return bool(children(rule.left))


@pytest.mark.parametrize("rule", [r for r in TERMS if has_pattern(r)], ids=lambda rule: rule.name)
def test_rule_changes_nothing(rule):
    random_ = random.Random(rule.name)
    matcher = PatternMatcher([guarded(rule)])
    tests = sorted(allowed(rule) & set(KINDS), key=lambda d: d.name)
    fired = 0
    for _ in range(4000):
        test, known = random_.choice(tests), {}
        try:
            dtype = operand_kind(rule.left, test) or test
            before = an_instance(rule.left, dtype, test, random_, {}, known)
        except (AssertionError, ValueError):
            continue  # a rule that says nothing of this dtype
        after = matcher.rewrite(before)
        if after is not None:
            fired += 1
            assert after.dtype is before.dtype
            old, new = value(before, known), value(after, known)
            assert same(old, new), f"{test!r}: {old} became {new} with {known}"
        if fired == 150:
            break
    assert fired >= 20, f"only {fired} times"


# ---- whole expressions ---------------------------------------------------------------------------

SAME_KIND = [Ops.ADD, Ops.MUL, Ops.MAX]
OF_INTS = [*SAME_KIND, Ops.IDIV, Ops.MOD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR]
OF_FLOATS = [*SAME_KIND, Ops.FDIV]
OF_BOOLS = [Ops.AND, Ops.OR, Ops.XOR, Ops.ADD, Ops.MUL]


def an_expression(dtype, depth, random, known):
    """A random tree of this dtype."""
    if depth == 0 or random.random() < 0.1:
        if random.random() < 0.35:
            return UOp.const(dtype, a_number(dtype, random))
        again = [leaf for leaf in known if leaf.dtype is dtype]
        if again and random.random() < 0.6:
            return random.choice(again)
        return a_leaf(f"v{len(known)}", dtype, random, known)

    def inner(kind):
        return an_expression(kind, depth - 1, random, known)

    roll = random.random()
    if roll < 0.1:
        return inner(dtypes.bool).where(inner(dtype), inner(dtype))
    if roll < 0.2:
        return cast_from(random, dtype, inner)
    if dtype is dtypes.bool:
        if roll < 0.6:
            kind = random.choice(KINDS)
            return inner(kind).alu(random.choice(list(GroupOp.Comparison)), inner(kind))
        if roll < 0.7:
            return inner(dtype).logical_not()
        return inner(dtype).alu(random.choice(OF_BOOLS), inner(dtype))
    if dtypes.is_float(dtype):
        if roll < 0.3:
            return inner(dtype).alu(random.choice((Ops.TRUNC, Ops.ROUND, Ops.RECIP, Ops.SQRT)))
        return inner(dtype).alu(random.choice(OF_FLOATS), inner(dtype))
    return inner(dtype).alu(random.choice(OF_INTS), inner(dtype))


def cast_from(random, dtype, inner):
    if dtype is dtypes.index:
        return inner(random.choice(dtypes.sints)).cast(dtype)
    kinds = [k for k in KINDS if k is not dtypes.index or not dtypes.is_float(dtype)]
    return inner(random.choice(kinds)).cast(dtype)


def in_range(before, known):
    """Whether no index left 64 bits on the way: there they don't wrap, by contract."""
    return all(
        abs(value(node, known)) < 1 << 62
        for node in before.toposort()
        if node.dtype is dtypes.index
    )


@pytest.fixture
def fired():
    names = set()
    listener = lambda before, after, name: names.add(name)  # noqa: E731
    rewrite.listeners.append(listener)
    yield names
    rewrite.listeners.remove(listener)


def test_expressions_keep_their_value():
    random_ = random.Random(1)
    for _ in range(1500):
        known = {}
        before = an_expression(random_.choice(KINDS), random_.randint(1, 4), random_, known)
        if not in_range(before, known):
            continue
        after = simplify(before)
        old, new = value(before, known), value(after, known)
        assert after.dtype is before.dtype
        assert same(old, new), f"{old} became {new} with {known}"
        assert simplify(after) is after


# ---- indices, on all points of a small domain ----------------------------------------------------

LOOPS = {UOp.range(6, "a"): range(6), UOp.range(4, "b"): range(4), UOp.range(3, "c"): range(3)}
OFFSET = UOp.variable("v", -3, 9, dtypes.index)
POINTS = [
    {**dict(zip(LOOPS, point, strict=True)), OFFSET: v}
    for point in itertools.product(*LOOPS.values())
    for v in (-3, 0, 1, 9)
]


def an_index(depth, random):
    """A random index expression, often of the shapes that a reshape leaves behind."""
    if depth == 0 or random.random() < 0.1:
        if random.random() < 0.8:
            return random.choice([*LOOPS, OFFSET])
        return UOp.const(dtypes.index, random.randint(-9, 13))
    x, kind = an_index(depth - 1, random), random.randrange(10)
    small = random.choice((1, 2, 3, 4, 6, 12))
    if kind < 3:
        return x + an_index(depth - 1, random) * random.choice((1, 1, -1))
    if kind == 3:
        return x * random.choice((-3, -1, 2, 3, 4, 6, 12))
    if kind == 4:
        return x // random.choice((small, small, -2, -3, 0))
    if kind == 5:
        return x % random.choice((small, small, -4, 0))
    if kind == 6:
        return x.maximum(an_index(depth - 1, random))
    if kind == 7:
        return x * an_index(max(depth - 2, 0), random)
    if kind == 8:
        return (x // small) * small + x % small
    return (x // small % 3) * small + x % small


def a_condition(random, depth=2):
    x, limit = an_index(depth, random), random.randint(-4, 20)
    op = random.choice((Ops.CMPLT, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE))
    made = x.alu(op, x.const_like(limit))
    return made.logical_not() if random.random() < 0.3 else made


def at(points, *nodes):
    """Values of several nodes at several points."""
    return [[value(node, point) for node in nodes] for point in points]


def test_indices_keep_their_value():
    random_ = random.Random(2)
    for _ in range(500):
        before = an_index(random_.randint(1, 5), random_)
        after = simplify_index(before)
        assert simplify_index(after) is after, "not canonical"
        for old, new in at(random_.sample(POINTS, 12), before, after):
            assert old == new


def test_divisions_on_every_point():
    """x // d and x % d for every small sum and divisor, at every point of its loops."""
    a, b = list(LOOPS)[:2]
    for k, m, c, d in itertools.product(
        (-4, 1, 3, 8), (-3, 2, 4, 6), (-5, 0, 1, 7), (-4, 2, 3, 4, 8, 12)
    ):
        x = a * k + b * m + c
        quotient, remainder = simplify_index(x // d), simplify_index(x % d)
        both_again = simplify_index(quotient * d + remainder)
        assert both_again is simplify_index(x)
        for i, j in itertools.product(range(6), range(4)):
            point = {a: i, b: j}
            expected = divmod(i * k + j * m + c, d)
            assert (value(quotient, point), value(remainder, point)) == expected


def test_conditions_keep_their_value():
    random_ = random.Random(3)
    for _ in range(400):
        before = a_condition(random_)
        after = simplify_condition(before)
        assert simplify_condition(after) is after
        for old, new in at(random_.sample(POINTS, 12), before, after):
            assert old == new


def test_gates_keep_their_value_and_what_they_guard():
    random_ = random.Random(4)
    for _ in range(150):
        gates = [a_condition(random_, 1) for _ in range(random_.randint(1, 4))]
        index = an_index(3, random_)
        gate = both(*gates)
        assert both(*conditions_of(gate)) is gate
        inside = under(gate, index)
        for point in random_.sample(POINTS, 30):
            holds = all(value(g, point) for g in gates)
            assert value(gate, point) == holds
            if holds:
                assert value(inside, point) == value(index, point)


def test_gated_reads_keep_their_place():
    """Where the gate holds the same element is read; the gate holds where both gates held."""
    random_, memory = random.Random(7), UOp(Ops.PARAM, dtypes.float32, arg=(0, 9999))
    for _ in range(200):
        gate, outer = (a_condition(random_, 1) & a_condition(random_, 1) for _ in range(2))
        index = an_index(3, random_)
        before = outer.where(memory.index(index, gate=gate), 0.0)
        after = simplify(before)
        assert simplify(after) is after
        for point in random_.sample(POINTS, 20):
            reads = value(gate, point) and value(outer, point)
            if after.op is Ops.CONST:
                assert not reads
                continue
            assert value(after.src[2], point) == reads if len(after.src) == 3 else reads
            if reads:
                assert value(after.src[1], point) == value(index, point)


def test_a_gate_that_is_read_for_each_element_stays_a_choice():
    """relu(x[i]) reads x[i] once; a row's label decides which elements of the row are read."""
    memory, labels = (UOp(Ops.PARAM, dtypes.float32, arg=(n, 99)) for n in range(2))
    i, j = (UOp.range(9, name) for name in "ij")
    x, zero = memory.index(i * 9 + j), memory.const_like(0.0)
    assert simplify((x < 0.0).where(zero, x)).op is Ops.WHERE
    assert simplify((labels.index(i) < 0.0).where(x, zero)).op is Ops.INDEX


# ---- tensors -------------------------------------------------------------------------------------


def tensor_value(root, leaves):
    """A tensor expression by NumPy."""
    found = dict(leaves)
    for node in root.toposort(stop=found):
        if node in found or node.op in (Ops.DEVICE, Ops.UNIQUE):
            continue
        src = [found.get(s) for s in node.src]
        found[node] = TENSOR_OPS[node.op](node, *src)
    return found[root]


def box(node):
    return tuple(slice(b, e) for b, e in node.arg)


REDUCES = {"add": np.sum, "max": np.max}
TENSOR_OPS = {
    Ops.CONST: lambda n, *s: np.array(n.arg, np.int32),
    Ops.RESHAPE: lambda n, x: x.reshape(n.arg),
    Ops.EXPAND: lambda n, x: np.broadcast_to(x, n.arg),
    Ops.PERMUTE: lambda n, x: x.transpose(n.arg),
    Ops.PAD: lambda n, x: np.pad(x, n.arg),
    Ops.SHRINK: lambda n, x: x[box(n)],
    Ops.FLIP: lambda n, x: np.flip(x, n.arg),
    Ops.ADD: lambda n, x, y: x + y,
    Ops.MUL: lambda n, x, y: x * y,
    Ops.CONTIGUOUS: lambda n, x: x,
    Ops.DETACH: lambda n, x: x,
    Ops.REDUCE_AXIS: lambda n, x: REDUCES[n.arg[0]](x, n.arg[1], keepdims=True),
}


def moved(x, random):
    """x with one random movement."""
    shape, kind = x.shape, random.randrange(10)
    if kind == 0:
        return UOp(Ops.RESHAPE, x.dtype, (x,), (*shape[::-1],))
    if kind == 1:
        return UOp(
            Ops.EXPAND, x.dtype, (x,), tuple(random.choice((2, 3)) if n == 1 else n for n in shape)
        )
    if kind == 2:
        axes = random.sample(range(len(shape)), len(shape))
        return UOp(Ops.PERMUTE, x.dtype, (x,), tuple(axes))
    if kind == 3:
        pads = tuple((random.randrange(2), random.randrange(2)) for _ in shape)
        return UOp(Ops.PAD, x.dtype, (x,), pads)
    if kind in (4, 5):
        begins = [random.randrange(n) for n in shape]
        return UOp(
            Ops.SHRINK,
            x.dtype,
            (x,),
            tuple((b, random.randint(b + 1, n)) for b, n in zip(begins, shape, strict=True)),
        )
    if kind == 6:
        return UOp(
            Ops.FLIP, x.dtype, (x,), tuple(a for a in range(len(shape)) if random.random() < 0.5)
        )
    if kind == 7:
        return x.contiguous() if random.random() < 0.5 else x.detach()
    if kind == 8:
        axes = tuple(a for a in range(len(shape)) if random.random() < 0.4)
        return x.reduce_axis(random.choice(list(REDUCES)), axes)
    return x.alu(random.choice((Ops.ADD, Ops.MUL)), x.const_like(random.randint(-1, 3)))


def test_tensors_keep_their_values(fired):
    random_ = random.Random(5)
    leaf = UOp.new_buffer("CPU", 12, dtypes.int32)
    leaves = {leaf: np.arange(12, dtype=np.int32) - 5}
    for _ in range(600):
        x = leaf.reshape(random_.choice(((12,), (3, 4), (2, 1, 6))))
        if random_.random() < 0.3:
            x = x.const_like(random_.randint(0, 2))
        for _ in range(random_.randint(1, 7)):
            x = moved(x, random_)
        after = simplify(x)
        assert after.shape == x.shape
        assert simplify(after) is after
        np.testing.assert_array_equal(tensor_value(after, leaves), tensor_value(x, leaves))


# ---- and no rule is left out ---------------------------------------------------------------------


def test_no_rule_is_without_a_test(fired):
    """Rules on numbers are tested above one by one; all others must fire in the tests above."""
    test_expressions_keep_their_value()
    test_tensors_keep_their_values(fired)
    a = next(iter(LOOPS))
    memory = UOp(Ops.PARAM, dtypes.float32, arg=(0, 99))
    gate = a < 3
    assert simplify(gate.where(memory.index(a), 0.0)) is memory.index(a, gate=gate)
    assert simplify(memory.index(a % 3, gate=gate)) is memory.index(a, gate=gate)
    assert simplify(memory.index(a, gate=(a < 6))) is memory.index(a)
    assert simplify(memory.index(a, gate=(a < 0))).arg == 0
    assert simplify((a < 3) & (a < 4)) is (a < 3)
    simplify(
        UOp.variable("f", -math.inf, math.inf, dtypes.float32)
        .bitcast(dtypes.int32)
        .bitcast(dtypes.int32)
    )
    simplify(UOp(Ops.CAST, dtypes.int32, (UOp.variable("n", 0, 5),)))
    column = UOp.new_buffer("CPU", 1, dtypes.int32).reshape((1, 1))
    assert simplify(column.expand((3, 1)).expand((3, 4))) is column.expand((3, 4))
    one_by_one = {rule.name for rule in TERMS if has_pattern(rule)}
    missing = {rule.name for rule in symbolic.rules} - one_by_one - fired
    assert not missing
    assert len({rule.name for rule in symbolic.rules}) == len(symbolic.rules), "names must differ"


def test_rules_that_drop_something_stop_at_a_check():
    random_, seen = random.Random(6), 0
    for rule in TERMS:
        for _ in range(60 if dropped(rule) else 0):
            known, found = {}, {}
            test = random_.choice(sorted(allowed(rule) & set(KINDS), key=lambda d: d.name))
            try:
                before = an_instance(
                    rule.left, operand_kind(rule.left, test) or test, test, random_, found, known
                )
            except (AssertionError, ValueError):
                continue
            checks = {
                node: node.check(UOp.variable("ok", False, True, dtypes.bool), "index", "no")
                for name, node in found.items()
                if name in dropped(rule) and node.op is Ops.DEFINE_VAR
            }
            if checks:
                seen += 1
                before = before.substitute(checks)
                after = PatternMatcher([guarded(rule)]).rewrite(before)
                assert after is None or set(checks.values()) & set(before.toposort()) <= set(
                    after.toposort()
                )
    assert seen > 300
    assert UOp.const(dtypes.int32, 1).check(gate_of_nothing(), "index", "").has_check
    assert cast.holds(dtypes.int64, UOp.variable("x", -5, 5))


def gate_of_nothing():
    return UOp.variable("ok", False, True, dtypes.bool)
