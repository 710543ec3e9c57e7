"""Products by matrix units: all transposes, sizes that nothing divides, against NumPy exactly, in
the interpreter and, where this machine has the unit, in machine code."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.target import Target
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.matrix_units import UNITS
from tinygrad.loops.recipe import apply
from tinygrad.tensor import Tensor

spec = importlib.util.spec_from_file_location("kernels", Path(__file__).with_name("kernels.py"))
K = importlib.util.module_from_spec(spec)
spec.loader.exec_module(K)

BF, F, I8, U8, I16, I32 = (
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.int8,
    dtypes.uint8,
    dtypes.int16,
    dtypes.int32,
)
HOST = K.host_target()
WIDE = Target(
    "CPU",
    triple="x86_64-unknown-linux-gnu",
    features="+avx512bf16,+avx512vnni",
    vector=64,
    registers=32,
    dtypes=HOST.dtypes,
    storage_dtypes=HOST.storage_dtypes,
    native=HOST.native,
)
AVX2 = replace(WIDE, features="+avxvnni", vector=32, registers=16)


def product(m_, n_, k_, at, bt, a_dtype, b_dtype, out):
    m, n, k = K.loop("m", m_), K.loop("n", n_), K.loop("k", k_)
    a_shape, a_at = ((k_, m_), (k, m)) if at else ((m_, k_), (m, k))
    b_shape, b_at = ((n_, k_), (n, k)) if bt else ((k_, n_), (k, n))
    a, b = K.read(1, a_shape, *a_at, dtype=a_dtype), K.read(2, b_shape, *b_at, dtype=b_dtype)
    return K.out((m_, n_), (a.cast(out) * b.cast(out)).reduce("add", k), m, n)


def stored(values, dtype):
    """Whole numbers as that dtype; a bfloat16 as its bits."""
    values = np.ascontiguousarray(values)
    if dtype is BF:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(K.NUMPY.get(dtype, np.int16))


def ways_of_running(target):
    """The interpreter has every unit; machine code runs where this machine has the target's."""
    has_all = {*target.features.split(",")} <= {*HOST.features.split(",")}
    return ("python", "llvm") if has_all else ("python",)


def check(target, unit, sizes, at, bt, a_dtype, b_dtype, out, ways=("python", "llvm")):
    """The recipe takes the unit, and the result is exact in every way of running it."""
    m, n, k = sizes
    draw = np.random.default_rng(m + n + k).integers
    low, high = (-8, 8) if a_dtype is BF else (-128, 128)
    a = draw(0 if a_dtype is U8 else low, high, (m, k))
    b = draw(low, high, (k, n))
    inputs = [stored(a.T if at else a, a_dtype), stored(b.T if bt else b, b_dtype)]
    kernel, recipe = schedule(product(m, n, k, at, bt, a_dtype, b_dtype, out), target)
    assert unit in [step[3] for step in recipe if step[0] == "tensorise"]
    for how in ways:
        if how == "llvm" and f"+{UNITS[unit].feature}" not in HOST.features.split(","):
            continue
        found = K.compute(kernel, (m, n), inputs, how, dtype=K.NUMPY[out], target=target)
        np.testing.assert_array_equal(found, a @ b, err_msg=how)


KINDS = [
    (WIDE, "vdpbf16ps", BF, BF, F),
    (WIDE, "vpdpbusd", U8, I8, I32),
    (WIDE, "vpdpbusd", I8, I8, I32),
    (WIDE, "vpdpwssd", I16, I16, I32),
    (AVX2, "vpdpbusd.256", I8, I8, I32),
]
SMALL = [(5, 17, 11), (13, 33, 40)]
LARGE = [(48, 64, 64), (37, 100, 77), (70, 333, 131), (3, 70, 130), (9, 33, 323)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[1]}-{kind[2]!r}")
@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
def test_products_by_units_are_exact(kind, at, bt):
    target, unit, *kinds = kind
    for sizes in SMALL:
        check(target, unit, sizes, at, bt, *kinds)
    for sizes in LARGE[at ^ bt :: 2]:
        check(target, unit, sizes, at, bt, *kinds, ways=("llvm",))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[1]}-{kind[2]!r}")
@pytest.mark.parametrize("size", [300, 64])
def test_one_row_by_units_along_memory_is_exact(kind, size):
    target, unit, *kinds = kind
    check(target, unit, (1, 21, size), False, True, *kinds)


@pytest.mark.parametrize("target", [WIDE, AVX2], ids=["512 bits", "256 bits"])
def test_words_of_several_groups_make_a_vector(target):
    """Sums of 8 numbers of a group, 4 a word, are scaled and added: lanes are groups."""
    rows, blocks, words, lanes = 9, 3, 2, target.vector // 4
    i, b, g, w, p = (
        K.loop(name, size)
        for name, size in zip("ibgwp", (rows, blocks, lanes, words, 4), strict=True)
    )
    shape = (blocks, words, lanes, 4)
    a = K.read(1, (rows, *shape), i, b, w, g, p, dtype=U8)
    x = K.read(2, shape, b, w, g, p, dtype=I8)
    scales = K.read(3, (rows, blocks, lanes), i, b, g)
    sums = (a.cast(I32) * x.cast(I32)).reduce("add", w, p)
    kernel = K.out((rows,), (sums.cast(F) * scales).reduce("add", b, g), i)
    kernel, recipe = schedule(kernel, target)
    assert [step[0] for step in recipe].count("tensorise") == 1
    draw = np.random.default_rng(0).integers
    numbers, given = draw(0, 256, (rows, *shape)), draw(-128, 128, shape)
    factors = draw(-2, 3, (rows, blocks, lanes))
    wanted = ((numbers * given).sum((2, 4)) * factors).sum((1, 2))
    inputs = [stored(numbers, U8), stored(given, I8), factors.astype(np.float32)]
    for how in ways_of_running(target):
        found = K.compute(kernel, (rows,), inputs, how, target=target)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("vector_is_first", [True, False])
def test_a_factor_that_is_the_same_in_all_lanes(vector_is_first):
    """As in a norm's gradient: each row of one is multiplied by a number of the other."""
    rows, columns = K.loop("m", 5), K.loop("k", 256)
    vector = K.read(1, (5, 256), rows, columns, dtype=BF).cast(F)
    number = K.read(2, (5,), rows, dtype=BF).cast(F)
    product_ = vector * number if vector_is_first else number * vector
    kernel, recipe = schedule(K.out((5,), product_.reduce("add", columns), rows), WIDE)
    assert [step[0] for step in recipe].count("tensorise") == 1
    draw = np.random.default_rng(0).integers
    x, w = draw(-4, 5, (5, 256)), draw(-4, 5, 5)
    for how in ways_of_running(WIDE):
        found = K.compute(kernel, (5,), [stored(x, BF), stored(w, BF)], how, target=WIDE)
        np.testing.assert_array_equal(found, x.sum(1) * w)


def test_what_is_added_to_a_short_sum_is_no_number_of_its_neighbours():
    """A sum of 5 is padded to 6: the NaN behind it, and infinities beside it, don't matter."""
    kernel, _ = schedule(product(3, 16, 5, False, False, BF, BF, F), WIDE)
    a = stored(np.ones((4, 5)), BF)
    a[3:] = 0x7FC0
    b = stored(np.full((6, 16), 2.0), BF)
    b[5] = 0x7F80
    for how in ways_of_running(WIDE):
        found = K.compute(kernel, (3, 16), [a, b], how, target=WIDE)
        np.testing.assert_array_equal(found, np.full((3, 16), 10.0))


def test_a_unit_takes_its_own_dtypes_only():
    kernel = product(4, 16, 8, False, False, BF, BF, F)
    split = ("split", "k", 2, "kp", "LOOP", "TILE")
    for unit, message in (("vpdpwssd", "does not take"), ("vpdpbusd", "TILE loops"), ("x", "no")):
        with pytest.raises(ArgumentError, match=message):
            apply(kernel, (split, ("tensorise", "kp", 0, unit)))
    with pytest.raises(ArgumentError, match="only a LOOP of fixed size"):
        apply(kernel, (split, ("extend", "kp", 4)))


@pytest.mark.parametrize("size", [13, 16, 40])
def test_factors_that_are_computed_below_their_casts(size):
    """What a unit's depth doesn't divide is padded below the casts."""
    draw = np.random.default_rng(size).integers
    a, b = draw(-4, 5, (17, size)), draw(-4, 5, (size, 19))
    left, right = (Tensor(x.astype(np.float32)).cast(BF) for x in (a, b))
    np.testing.assert_array_equal((left @ right.roll(1, 0)).numpy(), a @ np.roll(b, 1, 0))
    np.testing.assert_array_equal(((left + 1) @ (right * 2)).numpy(), (a + 1) @ (b * 2))


def test_a_long_epilogue_is_a_loop_over_the_tile():
    m, n, k = K.loop("m", 14), K.loop("n", 70), K.loop("k", 20)
    a, b = K.normal(14, 20), K.normal(20, 70)
    value = (K.read(1, (14, 20), m, k) * K.read(2, (20, 70), k, n)).reduce("add", k)
    for _ in range(12):
        value = value * 0.5 + 1.0
    kernel, recipe = schedule(K.out((14, 70), value, m, n), WIDE)
    expected = a @ b
    for _ in range(12):
        expected = expected * 0.5 + 1.0
    for how in ("python", "llvm"):
        found = K.compute(kernel, (14, 70), [a, b], how)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert any(step[0] == "role" and step[2] == "LOOP" for step in recipe)


@pytest.mark.parametrize("size, is_loop", [(512, True), (4096, False)])
def test_a_long_epilogue_of_long_work_is_written_out(size, is_loop):
    m, n, k = K.loop("m", size), K.loop("n", size), K.loop("k", size)
    value = (K.read(1, (size,) * 2, m, k) * K.read(2, (size,) * 2, k, n)).reduce("add", k)
    for _ in range(6):
        value = value * 0.5 + 1.0
    _, recipe = schedule(K.out((size,) * 2, value, m, n), WIDE)
    assert any(step[0] == "stage" and step[3] == "tile1" for step in recipe) is is_loop
