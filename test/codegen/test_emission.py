"""Kernels written by hand, through the loop tree and the linear program, against NumPy: plain and
scheduled, in the interpreter and in machine code."""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.backends.llvm_ir import LLVMRenderer
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.target import Target
from tinygrad.codegen import full_rewrite_to_sink
from tinygrad.codegen.faults import after_loops
from tinygrad.codegen.index import Integers
from tinygrad.codegen.linear import Program
from tinygrad.codegen.pipeline import lower
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.operands import path_to
from tinygrad.loops.recipe import apply
from tinygrad.loops.roles import name_of
from tinygrad.loops.together import can_follow
from tinygrad.simplify.affine import simplify_index
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.verify import STAGES


def beside(name):
    """A module of this folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


K = beside("kernels")
fuzz = beside("fuzz_emission")

WAYS = [(plain, how) for plain in (True, False) for how in ("python", "llvm")]
GROUPS = Target(
    "CL",
    vector=0,
    has_groups=True,
    group_limit=64,
    local_memory=32 << 10,
    grid_limit=(5, 100, 1),
    native=frozenset(("MULACC",)),
)
AVX2 = Target(
    "CPU",
    triple="x86_64-unknown-linux-gnu",
    cpu="haswell",
    features="+avx2",
    vector=32,
    native=frozenset(("VMIN", "MAX", "RECIP")),
)


def check(kernel, inputs, expected, tolerance=0.0, ways=WAYS, **options):
    """Every way of running the kernel gives what is expected, NaN where NaN."""
    expected = np.asarray(expected)
    for plain, how in ways:
        made = kernel if plain else K.scheduled(kernel)
        found = K.compute(made, expected.shape, inputs, how, **options)
        np.testing.assert_allclose(
            found.astype(float), expected.astype(float), rtol=0, atol=tolerance, err_msg=how
        )


# ---- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
def test_matmul(at, bt):
    a, b = K.normal(7, 5), K.normal(5, 17)
    stored = [np.ascontiguousarray(x.T) if t else x for x, t in ((a, at), (b, bt))]
    check(K.matmul(7, 17, 5, at, bt), stored, a @ b, 1e-5)


@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
def test_large_matmul(at, bt):
    a, b = K.normal(127, 77), K.normal(77, 333)
    stored = [np.ascontiguousarray(x.T) if t else x for x, t in ((a, at), (b, bt))]
    check(K.matmul(127, 333, 77, at, bt), stored, a @ b, 1e-3, [(False, "llvm")])


@pytest.mark.parametrize(
    "dtype",
    [dtypes.int32, dtypes.int64, dtypes.int8, dtypes.uint8, dtypes.float64, dtypes.float16],
)
def test_matmul_of_other_dtypes(dtype):
    kind = K.NUMPY[dtype]
    a = np.random.randint(0, 5, (9, 40)).astype(kind)
    b = np.random.randint(0, 5, (40, 21)).astype(kind)
    check(K.matmul(9, 21, 40, dtype=dtype), [a, b], a @ b, dtype=kind)


def test_softmax():
    x = K.normal(5, 37)
    check(K.softmax(5, 37), [x], K.softmax_ref(x), 1e-6)
    x = K.normal(9, 777)
    check(K.softmax(9, 777), [x], K.softmax_ref(x), 1e-6, [(False, "llvm")])


def test_layernorm():
    x, g, b = K.normal(3, 37), K.normal(37), K.normal(37)
    check(K.layernorm(3, 37), [x, g, b], K.layernorm_ref(x, g, b), 1e-5)


def test_conv_reads_nothing_outside_its_gates():
    x, k = K.normal(1, 2, 5, 4), K.normal(3, 2, 3, 3)
    check(K.conv(1, 2, 5, 4, 3), [x, k], K.conv_ref(x, k), 1e-5)
    x, k = K.normal(2, 5, 17, 19), K.normal(33, 5, 3, 3)
    check(K.conv(2, 5, 17, 19, 33), [x, k], K.conv_ref(x, k), 1e-4, [(False, "llvm")])


@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
def test_a_long_product_is_summed_in_blocks(at, bt):
    a, b = K.normal(17, 260), K.normal(260, 37)
    stored = [np.ascontiguousarray(x.T) if t else x for x, t in ((a, at), (b, bt))]
    target = dataclasses.replace(K.host_target(), cache_l2=1 << 14)
    kernel = K.scheduled(K.matmul(17, 37, 260, at, bt), target)
    assert "acc1" in str(kernel)
    check(kernel, stored, a @ b, 1e-4, [(True, "python"), (True, "llvm")])


@pytest.mark.parametrize("columns", [37, 38, 39])
def test_lanes_known_to_be_stored_are_so_many_short_vectors(columns):
    """A masked store of AVX2 takes AMD's processors 12 cycles."""
    x, g, b = K.normal(3, columns), K.normal(columns), K.normal(columns)
    host = K.host_target()
    target = dataclasses.replace(host, vector=32, native=host.native - {"masked_store"})
    kernel = K.scheduled(K.layernorm(3, columns), target)
    (phase,) = K.lower(kernel, target).phases
    stores = [node for node in phase.program if node.op is Ops.STORE]
    assert {4, 8} <= {node.src[1].dtype.count for node in stores}
    assert not any(len(node.src) > 2 for node in stores)
    for how in ("python", "llvm"):
        found = K.compute(kernel, (3, columns), [x, g, b], how, target=target)
        np.testing.assert_allclose(found, K.layernorm_ref(x, g, b), rtol=0, atol=1e-5)


def test_a_block_of_sums_leaves_out_turns_that_two_loops_together_put_beyond_the_end():
    q, k, v = (K.normal(1, 17, 3) for _ in range(3))
    made = apply(K.attention(1, 17, 3, False), [("split", "t2", 2, "t2.x", "LOOP", "SPREAD")])
    expected = K.attention_ref(q, k, v, False)
    check(made, [q, k, v], expected, 1e-5, [(True, "python"), (True, "llvm")])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    small = [K.normal(2, 7, 6) for _ in range(3)]
    check(K.attention(2, 7, 6, causal), small, K.attention_ref(*small, causal), 1e-5)
    large = [K.normal(2, 100, 64) for _ in range(3)]
    expected = K.attention_ref(*large, causal)
    check(K.attention(2, 100, 64, causal), large, expected, 1e-5, [(False, "llvm")])


def test_copies_between_the_lanes_of_others_are_stored_one_after_the_other():
    """A compiler then makes whole vectors of them."""
    i, j = K.loop("i", 32), K.loop("j", 2, "UNROLL")
    kernel = K.out((32, 2), K.read(1, (32, 2), i, j) * 2.0, i, j)
    kernel = apply(kernel, [("split", "i", 8, "iv", "LOOP", "VECTOR")])
    (phase,) = lower(kernel, Target("CPU", vector=32, registers=16)).phases
    order = [node.op for node in phase.program if node.op in (Ops.LOAD, Ops.STORE)]
    assert Ops.LOAD not in order[order.index(Ops.STORE) :]


def test_transpose_goes_through_registers():
    x = K.normal(35, 50)
    check(K.transposed(50, 35), [x], x.T)


@pytest.mark.parametrize("phases", [2, 4])
@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("gate", [False, True])
def test_lanes_of_several_phases(phases, first, gate):
    """out[i] = x[i % d * 9 + i // d], with i from `first`; where gated, only the even ones."""
    i = K.loop("i", 16, "VECTOR")
    at = i + first
    on = (at % 2).alu(Ops.CMPLT, K.index(1)) if gate else None
    place = simplify_index(at % phases * 20 + at.alu(Ops.IDIV, K.index(phases)))
    kernel = K.out((16,), K.param(1, (80,)).index(place, gate=on), i)
    x, turns = K.normal(80), np.arange(16) + first
    expected = x[turns % phases * 20 + turns // phases]
    check(
        kernel,
        [x],
        np.where(gate & (turns % 2 > 0), 0, expected),
        0,
        [(True, "python"), (True, "llvm")],
    )
    loads = [n for n in lower(kernel, K.host_target()).phases[0].program if n.op is Ops.LOAD]
    assert len(loads) == phases


def strided(count, step, first=0, gate=False):
    """out[i] = x[step*i + first] for 16 lanes; where gated, only from x[3] on, and 0 before."""
    i = K.loop("i", count, "VECTOR")
    at = i * step + first
    on = K.index(2).alu(Ops.CMPLT, at) if gate else None
    size = abs(step) * (count - 1) + 1
    return K.out((count,), K.param(1, (size,)).index(simplify_index(at), gate=on), i)


@pytest.mark.parametrize("count", [4, 16])
@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("step", [2, 3, 4, -1, -2, -3, 5])
def test_lanes_a_few_elements_apart(step, gate, count):
    size = abs(step) * (count - 1) + 1
    x, first = K.normal(size), 0 if step > 0 else size - 1
    places = first + step * np.arange(count)
    kernel = strided(count, step, first, gate)
    expected = np.where(places > 2, x[places], 0) if gate else x[places]
    check(kernel, [x], expected, ways=[(True, "python"), (True, "llvm")])


LOADS_AND_SHUFFLES = [
    (1, 1, 0),
    (-1, 1, 1),
    (2, 2, 1),
    (3, 3, 3),
    (-4, 4, 3),
    (5, 4, 3),
    (6, 16, 0),
]


@pytest.mark.parametrize("step, loads, shuffles", LOADS_AND_SHUFFLES)
def test_loads_of_a_strided_vector(step, loads, shuffles):
    kernel = strided(16, step, 0 if step > 0 else -15 * step)
    (phase,) = lower(kernel, K.host_target()).phases
    ops = [node.op for node in phase.program]
    assert (ops.count(Ops.LOAD), ops.count(Ops.SHUFFLE)) == (loads, shuffles)


@pytest.mark.parametrize("step, stores", [(1, 1), (2, 2), (3, 3), (4, 4), (5, 16)])
@pytest.mark.parametrize("lanes", [16, 13])
def test_stores_a_few_elements_apart(step, stores, lanes):
    """out[step*i] = x[i], and nothing in between: vectors with masks, where these cost nothing."""
    i = UOp.range(16, "i", "VECTOR", (K.index(lanes),) if lanes < 16 else ())
    place = K.param(0, (16 * step,)).index(simplify_index(i * step))
    kernel = UOp.sink(place.store(K.param(1, (16,)).index(i), i))
    x = K.normal(16)
    expected = np.full(16 * step, np.nan, np.float32)  # as the memory was
    expected[: lanes * step : step] = x[:lanes]
    check(kernel, [x], expected, 0, [(True, "python"), (True, "llvm")])
    wide = dataclasses.replace(K.host_target(), native=K.host_target().native | {"masked_store"})
    (phase,) = lower(kernel, wide).phases
    found = [n for n in phase.program if n.op is Ops.STORE]
    assert len(found) == (stores if step < 5 else lanes)


@pytest.mark.parametrize("low", [0, 1])
@pytest.mark.parametrize("gate", [False, True])
def test_lanes_at_known_distances(gate, low):
    """out[p] = x of windows of 2 x 2 one after the other from `low`, for two whole vectors; where
    gated, only if memory says so."""
    o, v = K.loop("o", 2), K.loop("v", 16, "VECTOR")
    p = o * 16 + v + low
    four, two = K.index(4), K.index(2)
    row = p.alu(Ops.MOD, four).alu(Ops.IDIV, two)
    at = p.alu(Ops.IDIV, four) * 2 + row * 20 + p.alu(Ops.MOD, two)
    x, mask = K.normal(60), np.arange(33) % 3 > 0
    on = K.param(2, (33,), dtypes.bool).index(simplify_index(p)) if gate else None
    kernel = K.out((2, 16), K.param(1, (60,)).index(simplify_index(at), gate=on), o, v)
    turns = np.arange(32) + low
    expected = x[turns // 4 * 2 + turns % 4 // 2 * 20 + turns % 2]
    expected = np.where(mask[turns], expected, 0) if gate else expected
    inputs = [x, mask] if gate else [x]
    check(kernel, inputs, expected.reshape(2, 16), 0, [(True, "python"), (True, "llvm")])
    if not gate and not low:
        loads = [n for n in lower(kernel, K.host_target()).phases[0].program if n.op is Ops.LOAD]
        assert len(loads) == 2


@pytest.mark.parametrize("beyond", (0, 9))
def test_lanes_that_differ_in_their_masks_alone_read_once(beyond):
    """out[r, c] = x[r] on the diagonal. Memory that may not be there is read only where it is."""
    rows, r, v = 16 + beyond, K.loop("r", 16 + beyond), K.loop("v", 16, "VECTOR")
    on = (r + v * -1).alu(Ops.CMPEQ, K.index(0))
    kernel = K.out((rows, 16), K.param(1, (16,)).index(r, gate=on), r, v)
    x = K.normal(16)
    expected = np.zeros((rows, 16), np.float32)
    np.fill_diagonal(expected, x)
    check(kernel, [x], expected, 0, [(True, "python"), (True, "llvm")])
    program = lower(kernel, K.host_target()).phases[0].program
    assert [n.op for n in program].count(Ops.LOAD) == (16 if beyond else 1)


@pytest.mark.parametrize("low", (0, 1))
def test_lanes_on_one_spot_have_masks_of_their_own(low):
    """out[p] = x[p // 4] where memory says so: what one lane may read, its neighbour may not."""
    o, v = K.loop("o", 2), K.loop("v", 16, "VECTOR")
    p = o * 16 + v + low
    x, mask = K.normal(12), np.arange(33) % 3 > 0
    on = K.param(2, (33,), dtypes.bool).index(simplify_index(p))
    at = simplify_index(p.alu(Ops.IDIV, K.index(4)))
    kernel = K.out((2, 16), K.param(1, (12,)).index(at, gate=on), o, v)
    turns = np.arange(32) + low
    expected = np.where(mask[turns], x[turns // 4], 0)
    check(kernel, [x, mask], expected.reshape(2, 16), 0, [(True, "python"), (True, "llvm")])


@pytest.mark.parametrize("is_flag", [True, False])
def test_a_flag_times_what_a_gate_turned_off_is_no_instruction(is_flag):
    """The sum over k < 2 of f(x[i]) * (y[i] if k < 1); what is no flag may make 0 * inf, a NaN."""
    i, k = K.loop("i", 16, "VECTOR"), K.loop("k", 2, "UNROLL")
    x, y = K.param(1, (16,)).index(i), K.param(2, (16,)).index(i, gate=k.alu(Ops.CMPLT, K.index(1)))
    flag = x.alu(Ops.CMPLT, UOp.const(dtypes.float32, 0)).cast(dtypes.float32)
    term = (flag if is_flag else x) * y
    kernel = K.out((16,), UOp(Ops.REDUCE, dtypes.float32, (term, k), "add"), i)
    numbers, factors = K.normal(16), K.normal(16)
    numbers[3] = np.inf
    expected = np.where(numbers < 0, factors, 0) if is_flag else numbers * factors
    expected[3] = 0 if is_flag else np.nan
    check(kernel, [numbers, factors], expected, 0, [(True, "python"), (True, "llvm")])
    text = lower(kernel, K.host_target()).phases[0].program
    assert len([n for n in text if n.op is Ops.MULACC]) == (1 if is_flag else 2)


def test_gelu():
    x = K.normal(1003)
    check(K.gelu(1003), [x], K.gelu_ref(x), 1e-5)


def test_gather_by_a_loaded_index():
    x, i = K.normal(9, 35), np.random.randint(0, 9, 13).astype(np.int32)
    check(K.gather(13, 9, 35), [x, i], x[i])
    assert not K.Faults.words.any()


def test_check_writes_its_code_and_the_operand_once():
    x, i = K.normal(90, 35), np.arange(13, dtype=np.int32)
    i[4], i[6] = 77, 78
    lowered = lower(K.gather(13, 9, 35), K.host_target())
    assert lowered.faults == (("index", "{0} out of range"),)
    for how in ("python", "llvm"):
        K.compute(K.gather(13, 9, 35), (13, 35), [x, i], how)
        assert K.Faults.words[:2].tolist() == [1, 77]


@pytest.mark.parametrize("row", [1, 8, 35])
def test_a_test_of_several_vectors_tells_one_that_failed(row):
    """Single numbers, and short rows, whose places are found ahead of them."""
    x, i = K.normal(90, row), np.random.default_rng(0).integers(0, 80, 1000, dtype=np.int32)
    kernel, _ = schedule(K.gather(1000, 80, row), K.host_target())
    for how in ("python", "llvm"):
        assert np.array_equal(K.compute(kernel, (1000, row), [x, i], how), x[i])
        assert not K.Faults.words.any()
    i[517] = 85
    for how in ("python", "llvm"):
        K.compute(kernel, (1000, row), [x, i], how)
        assert K.Faults.words[:2].tolist() == [1, 85]


def test_a_loop_of_tests_has_no_branch():
    lowered = lower(schedule(K.gather(4096, 90, 1), K.host_target())[0], K.host_target())
    program = [n.op for n in lowered.phases[-1].program]
    assert program.count(Ops.FAULT) == 1
    assert Ops.END in program[: program.index(Ops.FAULT)]


@pytest.mark.parametrize("size", [7, 16, 64, 100, 1000])
def test_of_unsigned_numbers_below_a_limit_a_loop_remembers_the_largest(size):
    """One number a lane, and one comparison with the limit, behind the loops; it is told wherever
    it was: in a whole vector, in the rest of a row, in the first place and the last."""
    kernel, _ = schedule(K.gather_unsigned(size, 50), K.host_target())
    ops = [(n.op, n.dtype.scalar()) for n in lower(kernel, K.host_target()).phases[-1].program]
    is_few = size < K.host_target().lanes(4)  # tested in place
    assert ops.count((Ops.FAULT, dtypes.void)) == (size if is_few else 1)
    assert size < 1000 or ops.count((Ops.CARRY, dtypes.uint32)) == 1
    assert (Ops.CARRY, dtypes.bool) not in ops and (Ops.CARRY, dtypes.int32) not in ops
    x, fine = K.normal(50), np.random.default_rng(0).integers(0, 50, size, dtype=np.int32)
    for how in ("python", "llvm"):
        assert np.array_equal(K.compute(kernel, (size,), [x, fine], how), x[fine])
        assert not K.Faults.words.any()
        for place in (0, size // 3, size - 2, size - 1):
            for number in (50, -1, 2**31 - 1, -(2**31)):
                at = fine.copy()
                at[place] = number
                made, expected = K.compute(kernel, (size,), [x, at], how), fine.copy()
                expected[place] = 49
                assert K.Faults.words[:2].tolist() == [1, number]
                assert np.array_equal(made, x[expected])


def test_of_a_number_that_no_message_tells_only_a_mask_is_remembered():
    """Of as many bits as the number, so that no vector of bools is put together in the loop."""
    i = K.loop("i", 1000)
    number = K.read(1, (1000,), i, dtype=dtypes.int32)
    number = number.check(number.ne(K.const(0, dtypes.int32)), "division", "by zero")
    kernel, _ = schedule(K.out((1000,), number * 2, i), K.host_target())
    program = lower(kernel, K.host_target()).phases[-1].program
    carried = [n.dtype.scalar() for n in program if n.op is Ops.CARRY and n.dtype.count > 1]
    assert carried == [dtypes.uint32]


def test_masks_of_one_message_may_have_several_widths():
    i, zero = K.loop("i", 1000), 0
    narrow, wide = (
        K.read(slot, (1000,), i, dtype=kind)
        for slot, kind in ((1, dtypes.int32), (2, dtypes.int64))
    )
    told = [n.check(n.ne(K.const(zero, n.dtype)), "division", "by zero") for n in (narrow, wide)]
    kernel, _ = schedule(K.out((1000,), told[0].cast(dtypes.int64) + told[1], i), K.host_target())
    a, b = np.ones(1000, np.int32), np.ones(1000, np.int64)
    b[7] = 0
    for how in ("python", "llvm"):
        made = K.compute(kernel, (1000,), [a, b], how, np.int64)
        assert K.Faults.words[0] == 1 and np.array_equal(made, a + b)


def test_tests_of_vectors_wait_for_the_end_of_all_loops_around_them():
    """One whose branch is inside a loop stays: its lanes may not be there."""
    lanes = dtypes.int32.vec(4)
    index = UOp(Ops.PARAM, dtypes.int32, arg=(0, 64))
    words = UOp(Ops.PARAM, dtypes.int64, arg=(1, 8))
    end = UOp.const(dtypes.index, 8)
    outer = UOp(Ops.RANGE, dtypes.index, (UOp.const(dtypes.index, 0), end), 1)
    inner = UOp(Ops.RANGE, dtypes.index, (UOp.const(dtypes.index, 0), end), 2)
    found = [UOp(Ops.LOAD, lanes, (index,), (16, n)) for n in range(2)]
    failed = [UOp(Ops.CMPLT, dtypes.bool.vec(4), (each, each)) for each in found]
    faults = [
        UOp(Ops.FAULT, dtypes.void, (words, *each), 1) for each in zip(failed, found, strict=True)
    ]
    ends = [UOp(Ops.END, dtypes.void, (loop,)) for loop in (inner, outer)]
    first = [outer, inner, found[0], failed[0], faults[0], found[1], failed[1], faults[1], *ends]
    made = after_loops(first, AVX2)
    ops = [node.op for node in made]
    assert ops.count(Ops.FAULT) == 1 and ops[-1] is Ops.FAULT, ops
    assert ops.count(Ops.CARRY) == 4 and made[-1].src[2].src[1].op is Ops.CARRY
    assert [len(node.src) for node in made if node.op is Ops.END] == [5, 5]
    branch = UOp(Ops.IF, dtypes.void, (UOp.const(dtypes.bool, True),))
    inside = [outer, branch, found[0], failed[0], faults[0], UOp(Ops.ENDIF, dtypes.void, (branch,))]
    assert after_loops([*inside, ends[1]], AVX2) == [*inside, ends[1]]


def test_a_check_that_bounds_prove_is_gone():
    i = K.loop("i", 20)
    at = i.cast(dtypes.int32)
    at = at.check(at < K.const(20, dtypes.int32), "index", "out of range")
    kernel = K.out((20,), K.param(1, (20,)).index(at.cast(dtypes.index)), i)
    x = K.normal(20)
    check(kernel, [x], x, ways=[(True, "llvm")])
    assert lower(kernel, K.host_target()).faults == ()


def test_scatter_runs_in_order():
    updates, i = K.normal(13, 35), np.random.randint(0, 9, 13).astype(np.int32)
    expected = np.zeros((9, 35), np.float32)
    np.add.at(expected, i, updates)
    check(K.scatter(13, 9, 35), [updates, i], expected, 1e-5, like=0)


@pytest.mark.parametrize("monoid", ["add", "max"])
@pytest.mark.parametrize("size", [5, 16, 101])
def test_a_scatter_of_numbers_takes_what_the_lanes_before_left(monoid, size):
    """Of an expression, computed as a vector; many numbers go to one place, next to each other."""
    i, updates = K.loop("i", size, "ORDERED"), K.normal(size)
    at = K.read(2, (size,), i, dtype=dtypes.int32).cast(dtypes.index)
    value = K.read(1, (size,), i) * 2.0
    old = K.param(0, (9,)).index(at)
    new = old + value if monoid == "add" else old.alu(Ops.MAX, value)
    where = np.random.randint(0, 3, size).astype(np.int32)
    expected = np.zeros(9, np.float32)
    (np.add if monoid == "add" else np.maximum).at(expected, where, updates * 2)
    kernel = UOp.sink(K.param(0, (9,)).index(at).store(new, i))
    check(kernel, [updates, where], expected, like=0)
    program = lower(K.scheduled(kernel), K.host_target()).phases[0].program
    products = [n for n in program if n.op is Ops.MUL and n.dtype is not dtypes.index]
    assert len(products) <= 2  # in the loop, and in its last turn


def test_of_numbers_scattered_to_one_place_the_last_stays():
    i, x = K.loop("i", 100, "ORDERED"), K.normal(100)
    at = K.read(2, (100,), i, dtype=dtypes.int32).cast(dtypes.index)
    kernel = UOp.sink(K.param(0, (9,)).index(at).store(K.read(1, (100,), i), i))
    where = np.random.randint(0, 9, 100).astype(np.int32)
    last = [x[np.flatnonzero(where == n)[-1]] for n in range(9)]
    check(kernel, [x, where], last)


@pytest.mark.parametrize("size", [5, 64, 101])
def test_where_a_number_goes_may_be_what_lanes_before_it_left(size):
    """As cards are dealt: each to the next place of its pile, one of four."""
    i = K.loop("i", size, "ORDERED")
    card = K.read(2, (size,), i, dtype=dtypes.int32)
    place = K.param(1, (4,), dtypes.int32).index((card & 3).cast(dtypes.index))
    to = K.param(0, (4 * size,), dtypes.int32).index(place.cast(dtypes.index))
    kernel = UOp.sink(to.store(card, i), place.store(place + 1, i))
    cards = np.random.randint(0, 1000, size).astype(np.int32)
    expected = np.zeros(4 * size, np.int32)
    for pile in range(4):
        dealt = cards[cards & 3 == pile]
        expected[pile * size : pile * size + len(dealt)] = dealt
    for made in (kernel, K.scheduled(kernel)):
        for how in ("python", "llvm"):
            places = size * np.arange(4, dtype=np.int32)
            found = K.compute(made, (4 * size,), [places, cards], how, np.int32, like=0)
            np.testing.assert_array_equal(found, expected, err_msg=how)


def test_a_scatter_tests_a_vector_of_its_numbers_at_once():
    """Behind the loop, where the largest is compared with the limit."""
    i = K.loop("i", 64, "ORDERED")
    at = K.read(2, (64,), i, dtype=dtypes.int32).cast(dtypes.uint32)
    told = at.cast(dtypes.int32).check(at < K.const(50, dtypes.uint32), "index", "{0} is none")
    at, last = told.cast(dtypes.uint32), K.const(49, dtypes.uint32)
    at = (at < last).where(at, last).cast(dtypes.index)
    kernel = UOp.sink(K.param(0, (50,)).index(at).store(K.read(1, (64,), i), i))
    program = lower(K.scheduled(kernel), K.host_target()).phases[0].program
    assert [node.op for node in program].count(Ops.FAULT) == 1


def test_a_kernel_may_change_what_it_reads():
    i, x = K.loop("i", 100), K.normal(100)
    place = K.param(0, (100,)).index(i)
    kernel = UOp.sink(place.store(place + K.param(1, (100,)).index(i), i))
    check(kernel, [x], x + 1, 1e-6, like=1)


def test_two_stores_share_a_nest():
    i, j, x = K.loop("i", 5), K.loop("j", 33), K.normal(5, 33)
    value = K.read(2, (5, 33), i, j)
    stores = [
        K.param(slot, (5, 33)).index(K.offset((5, 33), (i, j))).store(v, i, j)
        for slot, v in enumerate((value * 2.0, value + 1.0))
    ]
    for made in (UOp.sink(*stores), K.scheduled(UOp.sink(*stores))):
        second = K.aligned((5, 33), np.float32)
        arrays = K.run_llvm(lower(made, K.host_target()), second, [second, x])
        np.testing.assert_array_equal(arrays[0], x * 2)
        np.testing.assert_array_equal(arrays[1], x + 1)


def test_loops_may_be_shared_or_absent():
    i, j, x = K.loop("i", 5), K.loop("j", 37), K.normal(5, 37)
    value = K.read(1, (5, 37), i, j)
    most = value.reduce("max", j)
    share = (value - most).exp2()
    kernel = K.out((5, 37), share / share.reduce("add", j), i, j)
    e = np.exp2(x - x.max(1, keepdims=True))
    check(kernel, [x], e / e.sum(1, keepdims=True), 1e-6, [(True, "python"), (True, "llvm")])
    check(K.out((), K.param(1, (1,)).index(K.index(0)) + 1.0), [np.zeros(1, np.float32)], 1.0)


# ---- index arithmetic ----------------------------------------------------------------------------


def test_index_arithmetic_as_data():
    i, n = K.loop("i", 50), np.arange(50)
    chosen = (i < 20).where((i * 3 + 1).cast(K.F32), K.const(-1.0))
    check(K.out((50,), chosen, i), [], np.where(n < 20, n * 3 + 1, -1).astype(np.float32))
    pieces = (i // 7 + i % 5).cast(K.F32)
    check(K.out((50,), pieces, i), [], (n // 7 + n % 5).astype(np.float32))
    signed = ((i + -20) // 7).cast(K.F32)
    check(K.out((50,), signed, i), [], ((n - 20) // 7).astype(np.float32))


def test_steps_other_than_one():
    i, x = K.loop("i", 50), K.normal(100)
    check(K.out((50,), K.param(1, (100,)).index(i * -1 + 99), i), [x], x[::-1][:50])
    check(K.out((50,), K.param(1, (100,)).index(i * 2), i), [x], x[::2])


def test_the_size_of_a_loop_may_be_a_variable():
    size = UOp.variable("n", 1, 100).cast(dtypes.index)
    i, j, x = K.loop("i", 4), K.loop("j", size), K.normal(4, 100)
    total = K.param(1, (400,)).index(K.offset((4, 100), (i, j))).reduce("add", j)
    check(K.out((4,), total, i), [x], x[:, :37].sum(1), 1e-5, values=(37,))
    kernel = UOp.sink(K.param(0, (100,)).index(j).store(K.param(1, (400,)).index(j) * 2.0, j))
    expected = np.where(np.arange(100) < 37, x[0] * 2, 0)
    check(kernel, [x], expected, values=(37,), like=0)


# ---- reductions ----------------------------------------------------------------------------------


def test_max_keeps_nan():
    x = K.normal(3, 50)
    x[1, 7] = np.nan
    i, j = K.loop("i", 3), K.loop("j", 50)
    check(K.out((3,), K.read(1, (3, 50), i, j).reduce("max", j), i), [x], x.max(1))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_the_larger_of_whole_vectors_heeds_nan_and_the_signs_of_zeros(dtype):
    numbers = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45]
    kind = {dtypes.float32: np.float32, dtypes.float64: np.float64}[dtype]
    a, b = (grid.ravel().astype(kind) for grid in np.meshgrid(numbers, numbers))
    i = K.loop("i", 64)
    kernel = K.out(
        (64,), K.param(1, (64,), dtype).index(i).alu(Ops.MAX, K.param(2, (64,), dtype).index(i)), i
    )
    expected = np.maximum(a, b)
    for how in ("python", "llvm"):
        found = K.compute(K.scheduled(kernel), (64,), [a, b], how, kind)
        np.testing.assert_array_equal(found, expected, err_msg=how)
        zeros = (a == 0) & (b == 0)
        negative = np.signbit(a) & np.signbit(b)
        assert (np.signbit(found) == negative)[zeros].all(), how


def test_the_larger_of_two_numbers_is_found_without_a_branch():
    """LLVM's own maximum asks for a sign, which a processor guesses every other time."""
    (phase,) = lower(K.out((), K.read(1, (2,), 0).alu(Ops.MAX, K.read(1, (2,), 1))), AVX2).phases
    text = LLVMCompiler(AVX2).assembly(LLVMRenderer(AVX2).render("f", phase.program))
    assert text.count("vminps") == 2 and "\tj" not in text.partition("ret")[0]


def test_a_tree_of_maxima_takes_two_minima_for_each_where_that_is_all_there_is():
    """AVX alone: what LLVM makes of its own maximum are three choices, a maximum and a test."""
    k, i = K.loop("k", 4, "UNROLL"), K.loop("i", 8, "VECTOR")
    kernel = K.out((8,), K.read(1, (4, 8), k, i).reduce("max", k), i)
    (phase,) = lower(kernel, AVX2).phases
    text = LLVMCompiler(AVX2).assembly(LLVMRenderer(AVX2).render("f", phase.program))
    counts = [text.count(name) for name in ("vminps", "vblendv", "vorps", "vxorps")]
    assert counts == [6, 0, 3, 5], text  # each number is negated, and the result


@pytest.mark.parametrize("native", [frozenset(), frozenset(("masked_store",))])
def test_masks_that_inner_loops_use_stay_as_wide_as_vectors(native):
    """Where masks lie in vectors, LLVM would pack and unpack those that it keeps."""
    target = dataclasses.replace(AVX2, native=AVX2.native | native, registers=16)
    *_, phase = lower(K.scheduled(K.conv(1, 16, 28, 28, 16), target), target).phases
    text = LLVMRenderer(target).render("f", phase.program)
    assert ("sext <8 x i1>" in text) == (not native)
    assert "vpackssdw" not in LLVMCompiler(target).assembly(text) or native


def test_argmax_by_comparing_with_the_max():
    i, j, j2, x = K.loop("i", 6), K.loop("j", 37), K.loop("j2", 37), K.normal(6, 37)
    most = K.read(1, (6, 37), i, j).reduce("max", j)
    back = (K.index(37) + j2 * -1).cast(dtypes.int32)
    found = K.read(1, (6, 37), i, j2).eq(most).where(back, K.const(0, dtypes.int32))
    value = K.const(37, dtypes.int32) - found.reduce("max", j2)
    check(K.out((6,), value, i), [x], x.argmax(1), dtype=np.int32)


def test_any():
    x = np.random.rand(9, 40) < 0.03
    i, j = K.loop("i", 9), K.loop("j", 40)
    value = K.read(1, (9, 40), i, j, dtype=dtypes.bool).reduce("max", j)
    check(K.out((9,), value, i), [x], x.any(1), dtype=np.bool_)


@pytest.mark.parametrize("axis", [0, 1])
def test_sum(axis):
    x = K.normal(6, 135)
    check(K.total(6, 135, axis), [x], x.sum(axis), 1e-5)


@pytest.mark.parametrize("data", ["uniform", "constant", "normal"])
def test_long_sums_are_accurate(data):
    make = {
        "uniform": lambda: np.random.rand(10**7).astype(np.float32),
        "constant": lambda: np.full(10**7, 0.1, np.float32),
        "normal": lambda: K.normal(10**7),
    }
    x = make[data]()
    k = K.loop("k", len(x))
    kernel = K.out((1,), K.read(1, x.shape, k).reduce("add", k), K.loop("o", 1))
    columns = x[:8_000_000].reshape(4000, 2000)
    for made in (kernel, K.scheduled(kernel)):
        error = np.abs(K.compute(made, (1,), [x]) - x.sum(dtype=float))
        assert error.max() <= 2e-7 * np.abs(x).sum(dtype=float)
    for made in (K.total(4000, 2000, 0), K.scheduled(K.total(4000, 2000, 0))):
        error = np.abs(K.compute(made, (2000,), [columns]) - columns.sum(0, dtype=float))
        assert (error <= 2e-7 * np.abs(columns).sum(0, dtype=float)).all()


def test_a_long_sum_with_an_infinity_is_infinite():
    x = np.ones((2, 300), np.float32)
    x[0, 5] = np.inf
    check(K.total(2, 300, 1), [x], x.sum(1))


@pytest.mark.parametrize("numbers", [np.full(100_000, 0.1), np.geomspace(1e-3, 1e3, 100_000)])
def test_a_sum_of_blocks_is_accurate(numbers):
    x = numbers.astype(np.float32)[np.newaxis]
    for made in (K.total(1, 100_000, 1), K.scheduled(K.total(1, 100_000, 1))):
        error = np.abs(K.compute(made, (1,), [x]) - x.sum(dtype=float))
        assert error.max() <= 2e-7 * x.sum(dtype=float)


@pytest.mark.parametrize(("vector", "ports", "nbytes"), [(32, 2, 512), (64, 1, 512), (64, 2, 1024)])
def test_a_block_of_vectors_has_the_bytes_of_eight_cycles(vector, ports, nbytes):
    target = dataclasses.replace(K.host_target(), vector=vector, load_ports=ports)
    kernel = K.scheduled(K.total(1, 1 << 17, 1), target)
    ops = [node.op for node in lower(kernel, target).phases[0].program]
    turn = ops[ops.index(Ops.RANGE) : ops.index(Ops.END)]
    assert turn.count(Ops.LOAD) * vector == nbytes


def test_a_sum_that_overflows_is_infinite():
    for length in (300, 3_000_000):
        x = np.full((1, length), 1e37, np.float32)
        check(K.total(1, length, 1), [x], [np.inf], ways=WAYS if length < 1000 else WAYS[-1:])


def test_the_larger_of_a_number_and_its_negative_is_its_bits_without_the_sign():
    i, x = K.loop("i", 8), np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan, 1e-45])
    number = K.read(1, (8,), i)
    kernel = K.out((8,), number.alu(Ops.MAX, number * -1), i)
    check(kernel, [x.astype(np.float32)], np.abs(x).astype(np.float32))
    ops = [node.op for node in lower(kernel, K.host_target()).phases[0].program]
    assert Ops.MAX not in ops and Ops.AND in ops


# ---- limits, stages, groups ----------------------------------------------------------------------


def test_clipped_loops_beyond_the_most_copies_are_masked(monkeypatch):
    monkeypatch.setattr("tinygrad.codegen.nesting.MOST_COPIES", 0)
    a, b = K.normal(13, 21), K.normal(21, 37)
    recipe = [
        ("split", "m", 4, "mu", "LOOP", "UNROLL"),
        ("split", "k", 8, "ku", "LOOP", "UNROLL"),
        ("split", "n", 16, "nv", "PARALLEL", "VECTOR"),
    ]
    kernel = apply(K.matmul(13, 37, 21), recipe)
    assert " = " not in lower(kernel, K.host_target()).phases[0].nest
    for how in ("python", "llvm"):
        found = K.compute(kernel, (13, 37), [a, b], how)
        np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-5)


def tree_of_tasks(rows, block, tile, cols, inner):
    """A product whose rows are tasks of `block` rows, in tiles, and its tree."""
    recipe = [
        ("split", "m", block, "mi", "PARALLEL", "LOOP"),
        ("split", "mi", tile, "mu", "LOOP", "UNROLL"),
        ("split", "n", 16, "nv", "PARALLEL", "VECTOR"),
    ]
    kernel = apply(K.matmul(rows, cols, inner), recipe)
    a, b = K.normal(rows, inner), K.normal(inner, cols)
    for how in ("python", "llvm"):
        found = K.compute(kernel, (rows, cols), [a, b], how)
        np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-5)
    return lower(kernel, K.host_target()).phases[0].nest


@pytest.mark.parametrize(
    ("rows", "block", "tile", "texts"),
    [
        (100, 36, 6, 3),  # 6 whole tiles; or 4, and one of 4 rows
        (96, 36, 6, 2),  # 6 tiles, or 4
        (70, 36, 6, 3),  # 6 whole tiles; or 5, and one of 4 rows
        (40, 36, 6, 2),  # 6 tiles, or one of 4 rows
        (100, 34, 6, 4),  # 5 whole tiles and one of 4 rows, or one of 2
        (102, 34, 6, 2),  # the same in all tasks
    ],
)
def test_a_last_task_that_is_clipped_has_a_text_of_its_own(rows, block, tile, texts):
    assert tree_of_tasks(rows, block, tile, 32, 8).count("reduce add") == texts
    assert tree_of_tasks(rows, block, tile, 40, 8).count("reduce add") == 2 * texts  # lanes too


def test_a_last_task_that_is_clipped_sums_by_itself():
    t = K.loop("t", 100)
    block = simplify_index(UOp(Ops.IDIV, dtypes.index, (t, K.index(36))))
    k = K.loop("k", 8)
    total = K.read(1, (3, 8), block, k).reduce("add", k)
    recipe = [
        ("split", "t", 36, "ti", "PARALLEL", "LOOP"),
        ("split", "ti", 6, "tu", "LOOP", "UNROLL"),
    ]
    kernel = apply(K.out((100,), total * K.read(2, (100,), t), t), recipe)
    assert lower(kernel, K.host_target()).phases[0].nest.count("reduce add") == 2
    a, b = K.normal(3, 8), K.normal(100)
    for how in ("python", "llvm"):
        found = K.compute(kernel, (100,), [a, b], how)
        np.testing.assert_allclose(found, a.sum(1)[np.arange(100) // 36] * b, rtol=0, atol=1e-5)


def test_a_sum_that_the_last_task_cuts_short_stands_in_both_arms():
    t = K.loop("t", 5, "PARALLEL")
    limit = K.index(100) + t * K.index(-24)
    k = UOp(Ops.RANGE, dtypes.index, (K.index(24), simplify_index(limit)), ("k", "LOOP"))
    value = K.read(1, (100,), t * 24 + k).reduce("add", k)
    recipe = [("split", "k", 8, "ku", "LOOP", "UNROLL")]
    kernel = apply(K.out((5,), value, t), recipe)
    assert lower(kernel, K.host_target()).phases[0].nest.startswith("store over t\ntask t")
    x = K.normal(100)
    expected = np.array([part.sum() for part in np.split(x, [24, 48, 72, 96])])
    for how in ("python", "llvm"):
        np.testing.assert_allclose(K.compute(kernel, (5,), [x], how), expected, rtol=0, atol=1e-5)


def test_a_global_stage_is_a_phase_of_its_own():
    a, b = K.normal(12, 20), K.normal(20, 33)
    recipe = [
        ("stage", (0, 1, 0, 0), ("k", "m"), "pa", "GLOBAL"),
        ("role", "pa.k", "PARALLEL"),
        ("split", "n", 16, "nv", "PARALLEL", "VECTOR"),
    ]
    kernel = apply(K.matmul(12, 33, 20), recipe)
    lowered = lower(kernel, K.host_target())
    assert [p.buffers for p in lowered.phases] == [(1, 3), (0, 2, 3)]
    assert len(lowered.temporaries) == 1 and lowered.phases[0].tasks == (20, 1, 1)
    for how in ("python", "llvm"):
        found = K.compute(kernel, (12, 33), [a, b], how)
        np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-5)


LANES = [("split", "n", 4, "nl", "PARALLEL", "LANE"), ("role", "m", "PARALLEL")]
ROWS = [("role", "i", "PARALLEL"), ("split", "j", 8, "jl", "LOOP", "LANE")]


def test_groups_of_lanes():
    a, b, x = K.normal(11, 37), K.normal(37, 10), K.normal(3, 100)
    staged = [
        ("split", "n", 4, "nl", "PARALLEL", "LANE"),
        ("split", "m", 3, "ml", "PARALLEL", "LANE"),
        ("split", "k", 5, "ki"),
        ("stage", (0, 1, 0, 1), ("ki", "nl"), "pb", "LOCAL"),
        ("role", "pb.nl", "LANE"),
        ("role", "pb.ki", "LANE"),
    ]
    shared = [*LANES, ("split", "k", 6, "kg", "LOOP", "GROUP")]
    rows = [*ROWS, *(("split", j, 6, f"{j}g", "LOOP", "GROUP") for j in ("j1", "j2"))]
    for recipe in (LANES, shared, staged):
        kernel = apply(K.matmul(11, 10, 37), recipe)
        found = K.compute(kernel, (11, 10), [a, b], "python", target=GROUPS)
        np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-5)
    found = K.compute(apply(K.softmax(3, 100), rows), (3, 100), [x], "python", target=GROUPS)
    np.testing.assert_allclose(found, K.softmax_ref(x), rtol=0, atol=1e-6)


# ---- text, laws, speed ---------------------------------------------------------------------------

GEMM_NEST = """\
store over n, mt, mu:6 UNROLL, ni:4 UNROLL, nv:16 VECTOR
task n
  for n in 0..2, tasks
    mt = 0
      reduce add over k, ku:2 UNROLL
        for k in 0..32
          take, filling pb
      store
    for mt in 1..16
      reduce add over k, ku:2 UNROLL
        for k in 0..32
          take
      store
    mt = 16
      reduce add over k, ku:2 UNROLL
        for k in 0..32
          take
      store
  n = 2
    mt = 0
      reduce add over k, ku:2 UNROLL
        for k in 0..32
          take, filling pb
      store
    for mt in 1..16
      reduce add over k, ku:2 UNROLL
        for k in 0..32
          take
      store
    mt = 16
      reduce add over k, ku:2 UNROLL
        for k in 0..32
          take
      store"""

SOFTMAX_NEST = """\
store over i, j, jv:16 VECTOR
for i in 0..8, tasks
  reduce max over j1, j1v:16 VECTOR
    for j1 in 0..64
      take
  reduce add over j2, j2v:16 VECTOR
    for j2 in 0..8
      reduce add over j2.block
        for j2.block in 0..8
          take, filling e
      take, filling e
  for j in 0..64
    store"""


def test_a_stage_is_not_filled_by_a_turn_that_reads_less_than_others():
    q, t = K.loop("q", 20), K.loop("t", 20)
    value = K.read(1, (20, 20), q, t) * K.read(2, (20,), t)
    kernel = K.out((20,), (t < q + 1).where(value, K.const(0.0)).reduce("add", t), q)
    y = next(n for n in kernel.toposort() if n.op is Ops.INDEX and n.src[0].arg[0] == 2)
    for options in ((), (("first", True),)):
        stage = ("stage", path_to(kernel, y), ("t",), "y", "LOCAL", options)
        trimmed = apply(kernel, [stage, ("trim", ("q",))])
        x, w = K.normal(20, 20), K.normal(20)
        if options:
            with pytest.raises(ArgumentError, match="'y' can't be filled by its first reader"):
                lower(trimmed, K.host_target())
        else:
            expected = (np.tril(x) * w).sum(1)
            np.testing.assert_allclose(K.compute(trimmed, (20,), [x, w]), expected, atol=1e-5)


@pytest.mark.parametrize("outer", ["UNROLL", "VECTOR"])
def test_a_loop_that_runs_has_no_limit_that_differs_from_copy_to_copy(outer):
    t = K.loop("t", 100)
    kernel = K.out((100,), K.read(1, (100,), t) * 2, t)
    split = ("split", "t", 16, "ti", outer)
    with pytest.raises(ArgumentError, match=f"'t': 'ti', .*can't be {outer}; legal is LOOP, or"):
        lower(apply(kernel, [split]), K.host_target())
    if outer == "VECTOR":
        with pytest.raises(ArgumentError, match="'t' and 'ti': lanes of both meet"):
            lower(apply(kernel, [split, ("role", "ti", "VECTOR")]), K.host_target())
    x = K.normal(100)
    made = apply(kernel, [split, ("role", "ti", "UNROLL")])
    np.testing.assert_array_equal(K.compute(made, (100,), [x]), x * 2)


def test_the_nest_of_a_matrix_product():
    recipe = [
        ("split", "n", 64, "ni", "PARALLEL"),
        ("split", "m", 6, "mu", "LOOP", "UNROLL"),
        ("stage", (0, 1, 0, 1), ("k", "ni"), "pb", "LOCAL", (("first", True),)),
        ("split", "k", 2, "ku", "LOOP", "UNROLL"),
        ("split", "ni", 16, "nv", "UNROLL", "VECTOR"),
        ("split", "m", 100, "mt"),
        ("drop_single",),
        ("order", "store", ("n", "mt", "mu", "ni", "nv")),
    ]
    kernel = apply(K.matmul(100, 150, 64), recipe)
    assert lower(kernel, K.host_target()).phases[0].nest == GEMM_NEST
    a, b = K.normal(100, 64), K.normal(64, 150)
    np.testing.assert_allclose(K.compute(kernel, (100, 150), [a, b]), a @ b, rtol=0, atol=1e-4)


def test_the_nest_of_a_softmax():
    kernel = K.softmax(8, 1024)
    e = next(n for n in kernel.toposort() if n.op is Ops.EXP2)
    own = next(r.arg[0] for r in e.ranges if r.arg[0] != "i")
    twin = {"j": "j2", "j2": "j"}[own]
    first = (("first", True),)
    recipe = [("stage", path_to(kernel, e), (own,), "e", "LOCAL", first, (twin,))]
    recipe += [("split", j, 16, f"{j}v", "LOOP", "VECTOR") for j in ("j1", "j2", "j")]
    recipe += [("role", "i", "PARALLEL")]
    kernel = apply(kernel, recipe)
    assert lower(kernel, K.host_target()).phases[0].nest == SOFTMAX_NEST
    x = K.normal(8, 1024)
    found = K.compute(kernel, x.shape, [x])
    np.testing.assert_allclose(found, K.softmax_ref(x), rtol=0, atol=1e-6)


def test_names_and_the_rewritten_graph():
    i = K.loop("i", 4)
    kernel = K.out((4,), K.param(1, (4,), dtypes.int32).index(i) + K.const(7, dtypes.int32), i)
    assert lower(kernel, K.host_target()).name == "E_4"
    assert lower(K.total(3, 12, 1), K.host_target()).name == "r_3_12"
    assert full_rewrite_to_sink(kernel).op is Ops.SINK


@pytest.mark.parametrize(
    "kernel", [K.matmul(64, 70, 33), K.attention(1, 20, 16), K.conv(1, 3, 9, 9, 4)]
)
def test_a_program_obeys_its_stage_and_uses_what_stands_before(kernel):
    for made in (kernel, K.scheduled(kernel)):
        for phase in lower(made, K.host_target()).phases:
            seen: set[UOp] = set()
            for node in phase.program:
                assert node.op in STAGES["linear"]
                begun = node.src[:0] if node.op is Ops.CARRY else node.src
                for source in begun:
                    numbers = source.op is Ops.CONST
                    assert numbers or source in seen, (node.op, source.op)
                seen.add(node)


def test_lowering_is_the_same_every_time():
    first = lower(K.scheduled(K.attention(2, 40, 16)), K.host_target())
    second = lower(K.scheduled(K.attention(2, 40, 16)), K.host_target())
    assert [p.program for p in first.phases] == [p.program for p in second.phases]


def test_limits_are_asked_for_in_one_order_in_every_process():
    loops = [UOp.range(9, f"r{i}") for i in range(12)]
    loops = [loop.replace(src=(*loop.src, K.index(i + 1))) for i, loop in enumerate(loops)]
    integers = Integers(Program(frozenset()), lambda node, copies: node)
    found = integers.limited(sum(loops, K.index(0)))
    assert found == tuple(sorted(loops, key=name_of))


def test_a_product_is_a_short_text():
    """What compiling costs grows with the text: a register tile twice, its panel's filling."""
    lowered = lower(K.scheduled(K.matmul(512, 512, 512)), K.host_target())
    assert sum(len(phase.program) for phase in lowered.phases) < 1200


@pytest.mark.parametrize("carries", [True, False])
def test_multiples_of_counters_are_carried_where_llvm_would_leave_them(carries):
    host = K.host_target()
    target = host if carries else dataclasses.replace(host, triple="")
    kernel = apply(K.matmul(40, 64, 64), [("split", "k", 2, "ku", "LOOP", "UNROLL")])
    (phase,) = lower(kernel, target).phases
    multiples = [n for n in phase.program if n.op is Ops.MUL and n.src[0].op is Ops.RANGE]
    carried = [n for n in phase.program if n.op is Ops.CARRY and n.dtype is dtypes.index]
    assert bool(carried) is carries
    assert bool(multiples) is not carries


@pytest.mark.parametrize("seed", range(12))
def test_random_kernels(seed):
    fuzz.try_one(seed)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("most_copies", [0, 24])
def test_random_recipes(monkeypatch, seed, most_copies):
    monkeypatch.setattr("tinygrad.codegen.nesting.MOST_COPIES", most_copies)
    fuzz.try_recipe(seed, most_copies)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 200))
def test_more_random_kernels(seed):
    fuzz.try_one(seed)


@pytest.mark.parametrize("how", ("python", "llvm"))
@pytest.mark.parametrize("role", ("LOOP", "UNROLL", "VECTOR"))
@pytest.mark.parametrize("is_finite", (True, False))
def test_a_sum_that_follows_a_maximum_is_scaled_where_that_grows(how, role, is_finite):
    """Blocks that are nothing come first and in between; the maximum grows far, and falls. The
    centre is finite in any row, or follows a row of minus infinity."""
    rows, columns = 3, 40
    i, first, second = K.loop("i", rows), K.loop("k", columns), K.loop("k1", columns)
    most = K.read(1, (rows, columns), i, first).reduce("max", first)
    centre = most.eq(float("-inf")).where(most.const_like(0), most) if is_finite else most
    power = ((K.read(1, (rows, columns), i, second) + centre * -1.0) * 0.5).exp2()
    total = (power * K.read(2, (columns,), second)).reduce("add", second)
    steps = [("split", "k", 8, "ki"), ("split", "k1", 8, "k1i")]
    steps += [("follow", ("k", "ki"), ("k1", "k1i")), ("role", "ki", role)]
    kernel = apply(K.out((rows,), total, i), [step for step in steps if step[-1] != "LOOP"])
    x, w = K.normal(rows, columns) * 300, K.normal(columns)
    x[:, :8] = x[0, 16:24] = x[2] = -np.inf  # the last row's sum is 0
    centres = np.where(x.max(1) == -np.inf, 0, x.max(1))
    wanted = (np.exp2((x - centres[:, None]) * 0.5) * w).sum(1)
    found = K.compute(kernel, (rows,), [x, w], how)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_no_multiple_of_a_power_follows_no_maximum():
    x, first, second = (1, 40), K.loop("k", 40), K.loop("k1", 40)
    i = K.loop("i", 1)
    most = K.read(1, x, i, first).reduce("max", first)
    power = (K.read(1, x, i, second) + most * -1.0).exp2()
    own = (K.read(1, x, i, second) + (most + K.read(1, x, i, second)) * -1.0).exp2()
    rounded = power.cast(dtypes.int32).cast(dtypes.float32)
    for terms in (
        power + 1.0,
        power * most,
        power * power,
        rounded,
        own,
        (most < 1.0).where(power, 0.0),
    ):
        assert not can_follow(most, terms.reduce("add", second))
    assert can_follow(most, (power * K.read(1, x, i, second)).reduce("add", second))


def test_a_program_is_freed_with_its_last_user():
    """Nothing that it was made with is a cycle, which would wait for the garbage collector."""
    target = K.host_target()
    gc.disable()
    try:
        lowered = lower(K.scheduled(K.attention(2, 50, 16)), target)
        phase = lowered.phases[-1]
        ends = [weakref.ref(node) for node in phase.program if node.op is Ops.END]
        LLVMRenderer(target).render(phase.name, phase.program)
        del lowered, phase
        assert ends and not any(end() for end in ends)
    finally:
        gc.enable()
