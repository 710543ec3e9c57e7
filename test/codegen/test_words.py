"""64-bit numbers as pairs of words mean what they mean as one: each operation at the edges of its
dtypes, in the interpreter, against NumPy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.base.target import Target
from tinygrad.codegen.numbers.words import WIDE
from tinygrad.codegen.pipeline import lower
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, evaluate

spec = importlib.util.spec_from_file_location("kernels", Path(__file__).with_name("kernels.py"))
K = sys.modules["kernels"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(K)

NARROW = frozenset(("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32"))
STORED = NARROW | {"int64", "uint64", "float64"}
WORDS = Target("WORDS", vector=0, widest_integer=32, dtypes=NARROW, storage_dtypes=STORED)
KINDS = K.NUMPY | {dtypes.uint64: np.uint64, dtypes.uint32: np.uint32, dtypes.uint16: np.uint16}
LONG = (dtypes.int64, dtypes.uint64)
EDGES = (0, 1, 2, 3, 7, 100, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33 + 5, 2**53 + 1)
EDGES = (*EDGES, 0x123456789ABCDEF0, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2**40, 2**62 + 2**38)


def samples(dtype):
    """Every pair of edges, as two arrays."""
    if dtypes.is_float(dtype):
        numbers = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-30, 3e38, 7e-46, 1e-41, 2.0**-126, np.inf, np.nan]
        if dtype is dtypes.float64:
            numbers += [
                1e300,
                1 + 2**-24,
                1 + 3 * 2**-24,
                1 + 2**-24 + 2**-50,
                3.4028236e38,
                5e-324,
            ]
            numbers += [1.17549429e-38, 2.0**-150, 2.0**-150 * 1.0001, -1e-42]
    else:
        numbers = [dtypes.as_const(e, dtype) for e in EDGES]
        numbers += [] if dtypes.is_unsigned(dtype) else [dtypes.as_const(-e, dtype) for e in EDGES]
    pairs = [(a, b) for a in numbers for b in numbers]
    return [np.array(column, KINDS[dtype]) for column in zip(*pairs, strict=True)]


def ran(function, inputs, dtypes_in, target=WORDS):
    """`function` of arrays, element by element, in the interpreter."""
    count = len(inputs[0])
    loop = K.loop("i", count)
    reads = [K.read(i, (count,), loop, dtype=d) for i, d in enumerate(dtypes_in, 1)]
    value = function(*reads)
    lowered = lower(K.out((count,), value, loop), target)
    for node in lowered.phases[0].program:
        assert node.dtype not in WIDE - {dtypes.index} or target is not WORDS
    out = np.zeros(count, KINDS[value.dtype])
    K.run_python(lowered, out, inputs)
    return out


def check(function, inputs, dtypes_in, expected):
    np.testing.assert_array_equal(ran(function, inputs, dtypes_in), expected)


BINARY = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR)


@pytest.mark.parametrize("dtype", LONG, ids=lambda d: d.name)
@pytest.mark.parametrize("op", (*BINARY, Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR), ids=lambda o: o.name)
def test_operations_of_two(op, dtype):
    a, b = samples(dtype)
    result = a.dtype if op not in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ) else np.bool_
    kind = dtype if result is not np.bool_ else dtypes.bool
    expected = [evaluate(op, kind, int(x), int(y)) for x, y in zip(a, b, strict=True)]
    check(lambda x, y: x.alu(op, y), (a, b), (dtype, dtype), np.array(expected, result))


@pytest.mark.parametrize("dtype", LONG, ids=lambda d: d.name)
@pytest.mark.parametrize("number", [1, 7, 31, 32, 33, 63])
def test_operations_with_a_constant(dtype, number):
    a = samples(dtype)[1][: len(EDGES)]
    for op in (Ops.SHL, Ops.SHR, Ops.MUL, Ops.ADD, Ops.IDIV, Ops.MOD):
        expected = [evaluate(op, dtype, int(x), number) for x in a]
        constant = UOp.const(dtype, number)
        check(lambda x, o=op, c=constant: x.alu(o, c), (a,), (dtype,), np.array(expected, a.dtype))


NUMBERS = (*dtypes.ints, dtypes.bool, dtypes.float32)


@pytest.mark.parametrize("other", NUMBERS, ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", LONG, ids=lambda d: d.name)
def test_casts(dtype, other):
    plain = Target("PLAIN", vector=0)
    there, back = samples(dtype)[:1], samples(other)[:1]
    for inputs, old, new in ((there, dtype, other), (back, other, dtype)):
        expected = ran(lambda x, new=new: x.cast(new), inputs, (old,), plain)
        check(lambda x, new=new: x.cast(new), inputs, (old,), expected)


def test_a_float_is_the_nearest_to_an_integer():
    a = np.random.default_rng(0).integers(-(2**63), 2**63, 300)
    a = a >> np.random.default_rng(1).integers(0, 63, 300)
    check(lambda x: x.cast(dtypes.float32), (a,), (dtypes.int64,), a.astype(np.float32))
    b = a.astype(np.uint64)
    check(lambda x: x.cast(dtypes.float32), (b,), (dtypes.uint64,), b.astype(np.float32))
    check(lambda x: x.cast(dtypes.float64), (a,), (dtypes.int64,), a.astype(np.float64))
    check(lambda x: x.cast(dtypes.float64), (b,), (dtypes.uint64,), b.astype(np.float64))


def test_float64_is_moved_and_converted():
    (a, b), (c, _) = samples(dtypes.float64), samples(dtypes.float32)
    with np.errstate(all="ignore"):
        single = a.astype(np.float32)
    check(lambda x: x.cast(dtypes.float32), (a,), (dtypes.float64,), single)
    check(lambda x: x.cast(dtypes.float64), (c,), (dtypes.float32,), c.astype(np.float64))
    flags = b > 0
    kinds = (dtypes.bool, dtypes.float64, dtypes.float64)
    chosen = np.where(flags, a, b)
    check(lambda p, x, y: p.alu(Ops.WHERE, x, y), (flags, a, b), kinds, chosen)


@pytest.mark.parametrize(
    "function", (lambda x: x + x, lambda x: x < x + x, lambda x: x.cast(dtypes.int32))
)
def test_arithmetic_of_float64_is_refused(function):
    with pytest.raises(DTypeError, match="of float64: .*legal are moving.*float32"):
        ran(function, (np.ones(3),), (dtypes.float64,))


@pytest.mark.parametrize("monoid", ["add", "mul", "max"])
def test_reductions_carry_both_words(monoid):
    a = np.random.default_rng(0).integers(-(2**62), 2**62, (3, 37))
    i, j = K.loop("i", 3), K.loop("j", 37)
    value = K.read(1, a.shape, i, j, dtype=dtypes.int64).reduce(monoid, j)
    lowered = lower(K.out((3,), value, i), WORDS)
    out = np.zeros(3, np.int64)
    K.run_python(lowered, out, [a])
    numpy = {"add": np.add, "mul": np.multiply, "max": np.maximum}[monoid]
    np.testing.assert_array_equal(out, numpy.reduce(a, axis=1))


def test_what_fits_stays_one_number():
    """A gather's address wraps, divisions of counters are of 32 bits: no pair anywhere."""
    i = K.loop("i", 60)
    at = K.read(2, (60,), i, dtype=dtypes.int32).cast(dtypes.index) * 5 + i // 7 % 3
    value = UOp(Ops.INDEX, dtypes.float32, (K.param(1, (400,)), at), 1)
    lowered = lower(K.out((60,), value, i), WORDS)
    program = lowered.phases[0].program
    assert len(program) < 40
    assert not any(node.op in (Ops.SHL, Ops.CMPLT) for node in program)  # no carry, no high word
    a = np.arange(400, dtype=np.float32)
    b = np.random.default_rng(0).integers(0, 79, 60).astype(np.int32)
    out = np.zeros(60, np.float32)
    K.run_python(lowered, out, [a, b])
    np.testing.assert_array_equal(out, a[b * 5 + np.arange(60) // 7 % 3])
