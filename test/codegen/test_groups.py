"""Recipes for groups of lanes, on the interpreter, whose lanes go in step from barrier to barrier:
against NumPy, at sizes that no block divides."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tinygrad.backends.interface import Launch
from tinygrad.backends.interpreter.renderer import PythonRenderer
from tinygrad.backends.interpreter.runtime import PythonQueue
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DeviceError, VerifyError
from tinygrad.base.target import Target
from tinygrad.codegen.pipeline import lower, rewrite
from tinygrad.loops.groups import unit_products
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.operands import path_to
from tinygrad.loops.recipe import apply
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def beside(name):
    """A module of this folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


K = beside("kernels")

GPU = Target(
    "GPU",
    vector=16,
    registers=64,
    has_groups=True,
    group_limit=16,
    local_memory=48 << 10,
    native=frozenset(("MULACC",)),
)


def check(kernel, inputs, expected, tolerance=1e-5, target=GPU, **options):
    """The heuristic's recipe on groups gives what is expected; the recipe."""
    made, recipe = schedule(kernel, target)
    found = K.compute(made, np.shape(expected), inputs, "python", target=target, **options)
    np.testing.assert_allclose(found.astype(float), expected, rtol=0, atol=tolerance)
    return recipe


def staged(recipe):
    return [step[3] for step in recipe if step[0] == "stage"]


# ---- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(33, 37, 21), (16, 16, 5), (17, 40, 1)])
@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
def test_products_share_pieces(shape, at, bt):
    m, n, k = shape
    a, b = K.normal(m, k), K.normal(k, n)
    inputs = [np.ascontiguousarray(x.T) if t else x for x, t in ((a, at), (b, bt))]
    assert staged(check(K.matmul(m, n, k, at, bt), inputs, a @ b)) == ["pa1", "pb1"] or k == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_variable_may_say_how_many_rows_columns_and_products_there_are(axis):
    """Blocks are those of the largest size; groups beyond the limit do nothing."""
    sizes = [3, 36, 40]
    limit = UOp.variable("n", 1, sizes[axis]).cast(dtypes.index)
    limits = [limit if i == axis else size for i, size in enumerate(sizes)]
    (h, m, n), k = (K.loop(*pair) for pair in zip("hmn", limits, strict=True)), K.loop("k", 21)
    product = K.read(1, (3, 36, 21), h, m, k) * K.read(2, (3, 21, 40), h, k, n)
    kernel, recipe = schedule(K.out((3, 36, 40), product.reduce("add", k), h, m, n), GPU)
    assert len(staged(recipe)) == 2
    found = [node.op for node in lower(kernel, GPU).phases[0].program]
    assert found.index(Ops.IF) < found.index(Ops.BARRIER)
    a, b = K.normal(3, 36, 21), K.normal(3, 21, 40)
    for value in (1, sizes[axis] - 1, sizes[axis]):
        found = K.compute(
            kernel, (3, 36, 40), [a, b], "python", target=GPU, values=(value,), like=7
        )
        expected = np.moveaxis(a @ b, axis, 0)
        expected[value:] = 7
        np.testing.assert_allclose(np.moveaxis(found, axis, 0), expected, rtol=0, atol=1e-5)


def test_what_operands_and_results_are_made_of_is_fused():
    m, n, k = K.loop("m", 19), K.loop("n", 22), K.loop("k", 18)
    a, b, c = K.normal(19, 18), K.normal(22, 18), K.normal(22)
    left = K.read(1, (19, 18), m, k).maximum(0)
    product = (left * (K.read(2, (22, 18), n, k) * 2)).reduce("add", k)
    kernel = K.out((19, 22), (product + K.read(3, (22,), n)).maximum(0), m, n)
    expected = np.maximum(np.maximum(a, 0) @ (2 * b).T + c, 0)
    assert len(staged(check(kernel, [a, b, c], expected))) == 2


def test_convolutions_lay_their_windows_out_as_they_bring_them():
    x, w = K.normal(2, 3, 7, 5), K.normal(17, 3, 3, 3)
    recipe = check(K.conv(2, 3, 7, 5, 17), [x, w], K.conv_ref(x, w))
    assert staged(recipe) == ["pa1", "pb1"] and any(step[0] == "merge" for step in recipe)


def test_a_sum_within_an_operand_is_summed_once():
    m, n, k, j = K.loop("m", 17), K.loop("n", 20), K.loop("k", 12), K.loop("j", 12)
    x, w = K.normal(17, 12), K.normal(12, 20)
    squares = (K.read(1, (17, 12), m, j) * K.read(1, (17, 12), m, j)).reduce("add", j)
    left = K.read(1, (17, 12), m, k) * (squares + 1e-5).sqrt().reciprocal()
    kernel = K.out((17, 20), (left * K.read(2, (12, 20), k, n)).reduce("add", k), m, n)
    expected = x / np.sqrt((x * x).sum(1, keepdims=True) + 1e-5) @ w
    assert staged(check(kernel, [x, w], expected)) == ["ps1", "pa1", "pb1"]


def test_lanes_meet_as_seldom_as_they_can():
    lowered = lower(schedule(K.matmul(64, 64, 64), GPU)[0], GPU)
    assert sum(node.op is Ops.BARRIER for node in lowered.phases[0].program) == 2


def test_a_product_without_room_goes_without_pieces():
    a, b = K.normal(20, 9), K.normal(9, 24)
    target = dataclasses.replace(GPU, local_memory=0)
    assert staged(check(K.matmul(20, 24, 9), [a, b], a @ b, target=target)) == []


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.float64, dtypes.float16])
def test_products_of_other_dtypes(dtype):
    kind = K.NUMPY[dtype]
    a = np.random.randint(0, 5, (17, 20)).astype(kind)
    b = np.random.randint(0, 5, (20, 21)).astype(kind)
    check(K.matmul(17, 21, 20, dtype=dtype), [a, b], a @ b, dtype=kind)


def test_a_long_product_is_summed_in_blocks():
    kernel = schedule(K.matmul(80, 80, 5000), GPU)[0]
    assert "block" in str(rewrite(kernel, GPU)), "one accumulator takes at most 4096 products"


# ---- rows ----------------------------------------------------------------------------------------


def attention(rows, columns, width):
    """softmax(q @ k.T) @ v, as one kernel for each of a few heads."""
    b, m, n = K.loop("b", 3), K.loop("m", rows), K.loop("n", width)
    shapes = [(3, size, width) for size in (rows, columns, columns)]

    def score(t):
        e = K.loop("e", width)
        q, k = K.read(1, shapes[0], b, m, e), K.read(2, shapes[1], b, t, e)
        return (q * k).reduce("add", e)

    along = [K.loop(name, columns) for name in ("t", "u", "w")]
    top = score(along[0]).reduce("max", along[0])
    total = (score(along[1]) - top).exp2().reduce("add", along[1])
    weighted = (score(along[2]) - top).exp2() * K.read(3, shapes[2], b, along[2], n)
    out = weighted.reduce("add", along[2]) * total.reciprocal()
    return K.out((3, rows, width), out, b, m, n), shapes


@pytest.mark.parametrize("rows,columns,width", [(9, 40, 4), (17, 33, 3), (8, 70, 40)])
def test_a_group_keeps_the_scores_of_its_rows(rows, columns, width):
    kernel, shapes = attention(rows, columns, width)
    q, k, v = (K.normal(*shape) for shape in shapes)
    powers = np.exp2(q @ k.transpose(0, 2, 1))
    expected = powers / powers.sum(-1, keepdims=True) @ v
    steps = check(kernel, [q, k, v], expected)
    assert sorted(staged(steps)) == ["row1", "row2", "sum1", "sum2"]


def test_rows_that_have_no_room_are_not_kept():
    kernel, shapes = attention(9, 40, 4)
    target = dataclasses.replace(GPU, local_memory=300)
    kept = staged(schedule(kernel, target)[1])
    assert not any(name.startswith("row") for name in kept)


# ---- lanes ---------------------------------------------------------------------------------------


def test_lanes_meet_before_they_read_what_the_first_reader_would_fill():
    """A row of exponentials, kept for the sum over it and for the quotient; lanes read others'."""
    i, j, t = K.loop("i", 5), K.loop("j", 40), K.loop("t", 40)
    x = K.normal(5, 40)
    total = K.read(1, (5, 40), i, t).exp2().reduce("add", t)
    kernel = K.out((5, 40), K.read(1, (5, 40), i, j).exp2() * total.reciprocal(), i, j)
    where = path_to(kernel, K.read(1, (5, 40), i, t).exp2())
    recipe = [
        ("stage", where, ("t",), "e", "LOCAL", (("first", True),), ("j",)),
        ("role", "i", "PARALLEL"),
        ("split", "j", 16, "jl", "LOOP", "LANE"),
        ("split", "e.t", 16, "el", "LOOP", "LANE"),
    ]
    powers = np.exp2(x)
    made = apply(kernel, recipe)
    found = K.compute(made, (5, 40), [x], "python", target=GPU)
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5)
    assert any(node.op is Ops.BARRIER for node in lower(made, GPU).phases[0].program)


def test_a_loop_of_one_turn_takes_no_lanes():
    kernel = apply(
        K.transposed(3, 5),
        [
            ("split", "i", 1, "il", "PARALLEL", "LANE"),
            ("role", "j", "LANE"),
        ],
    )
    x = K.normal(5, 3)
    found = K.compute(kernel, (3, 5), [x], "python", target=GPU)
    np.testing.assert_array_equal(found, x.T)


def test_each_stage_deals_its_work_out_in_its_own_way():
    recipe = [
        ("split", "n", 4, "nl", "PARALLEL", "LANE"),
        ("split", "m", 3, "ml", "PARALLEL", "LANE"),
        ("split", "k", 6, "ki"),
        ("stage", (0, 1, 0, 1), ("ki", "nl"), "pb", "LOCAL"),
        ("complete", "pb"),
        ("role", "pb.ki", "LANE"),
        ("split", "pb.nl", 2, "pb.v", "LANE", "VECTOR"),
        ("order", "pb", ("pb.nl", "pb.ki")),
    ]
    a, b = K.normal(11, 37), K.normal(37, 10)
    kernel = apply(K.matmul(11, 10, 37), recipe)
    found = K.compute(kernel, (11, 10), [a, b], "python", target=GPU)
    np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-5)


# ---- warps ---------------------------------------------------------------------------------------

WARPS = dataclasses.replace(GPU, warp=4, group_limit=32)
UNITS = dataclasses.replace(
    GPU, registers=255, warp=32, group_limit=64, native=frozenset(("MULACC", "mma"))
)


def wmma(shape, dtype, total, at=False, bt=False):
    m, n, k = (K.loop(name, size) for name, size in zip("mnk", shape, strict=True))
    m_, n_, k_ = shape
    a = K.read(1, (k_, m_), k, m, dtype=dtype) if at else K.read(1, (m_, k_), m, k, dtype=dtype)
    b = K.read(2, (n_, k_), n, k, dtype=dtype) if bt else K.read(2, (k_, n_), k, n, dtype=dtype)
    return K.out((m_, n_), (a.cast(total) * b.cast(total)).reduce("add", k), m, n)


def operands(dtype, *shapes):
    """Numbers that the dtype has, and their bits."""
    if dtypes.is_int(dtype):
        low, high = dtypes.min(dtype), dtypes.max(dtype)
        values = [np.random.randint(low, high + 1, s).astype(K.NUMPY[dtype]) for s in shapes]
        return values, values
    values = [np.random.randint(-64, 65, s) / np.float32(32) for s in shapes]
    if dtype is dtypes.bfloat16:
        return values, [
            (v.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for v in values
        ]
    if dtype is dtypes.float16:
        return values, [v.astype(np.float16).view(np.uint16) for v in values]
    return values, [v.astype(np.float32) for v in values]


@pytest.mark.parametrize("size", [(16, 8, 32), (35, 27, 45)])
@pytest.mark.parametrize(("at", "bt"), [(False, False), (True, True)])
@pytest.mark.parametrize(
    ("dtype", "total"),
    [
        (dtypes.bfloat16, dtypes.float32),
        (dtypes.float16, dtypes.float32),
        (dtypes.int8, dtypes.int32),
        (dtypes.uint8, dtypes.int32),
        (dtypes.float32, dtypes.float32),
    ],
)
def test_a_unit_of_a_warp_computes_products(size, at, bt, dtype, total):
    m, n, k = size
    (a, b), bits = operands(dtype, (m, k), (k, n))
    bits = [np.ascontiguousarray(x.T) if t else x for x, t in zip(bits, (at, bt), strict=True)]
    target = UNITS
    if dtype is dtypes.float32:  # whose shorter mantissa somebody has to ask for
        target = dataclasses.replace(UNITS, native=UNITS.native | {"mma_tf32"})
    expected = a.astype(np.float64) @ b.astype(np.float64)
    kind = K.NUMPY[total]
    recipe = check(wmma(size, dtype, total, at, bt), bits, expected, 0.0, target, dtype=kind)
    assert any(step[0] == "distribute" for step in recipe)


def test_a_unit_takes_what_operands_are_made_of():
    m, n, k = K.loop("m", 20), K.loop("n", 12), K.loop("k", 24)
    (a, b), bits = operands(dtypes.float16, (20, 24), (12, 24))
    left = K.read(1, (20, 24), m, k, dtype=dtypes.float16).maximum(0).cast(dtypes.float32)
    right = K.read(2, (12, 24), n, k, dtype=dtypes.float16).cast(dtypes.float32)
    kernel = K.out((20, 12), (left * right).reduce("add", k) * 2 + 1, m, n)
    recipe = check(kernel, bits, np.maximum(a, 0) @ b.T * 2 + 1, 0.0, UNITS)
    assert any(step[0] == "distribute" for step in recipe)


def ops_of(kernel, target):
    lowered = lower(schedule(kernel, target)[0], target)
    return [node.op for phase in lowered.phases for node in phase.program]


@pytest.mark.parametrize("columns", [130, 257, 700])
def test_lanes_of_a_warp_exchange_what_they_reduced(columns):
    x = K.normal(3, columns)
    check(K.softmax(3, columns), [x], K.softmax_ref(x), 1e-6, dataclasses.replace(WARPS))
    check(K.total(3, columns, 1), [x], x.sum(1, dtype=np.float64), 1e-4, WARPS)


def test_warps_meet_twice_however_many_they_are():
    found = ops_of(K.total(3, 1000, 1), WARPS)
    assert found.count(Ops.BARRIER) == 2 and found.count(Ops.EXCHANGE) == 2
    one = ops_of(K.total(3, 1000, 1), dataclasses.replace(WARPS, warp=32))
    assert one.count(Ops.BARRIER) == 0 and one.count(Ops.EXCHANGE) == 5


# ---- pipelines -----------------------------------------------------------------------------------

FETCHES = dataclasses.replace(
    UNITS, native=UNITS.native | {"async_copy"}, aligned=True, local_memory=32 << 10
)


@pytest.mark.parametrize("size", [(24, 16, 120), (33, 26, 99), (16, 24, 32)])
@pytest.mark.parametrize("bt", [False, True])
@pytest.mark.parametrize("gathers", [False, True])
def test_pieces_are_fetched_while_others_are_used(size, bt, gathers):
    m, n, k = size
    target = FETCHES
    if gathers:
        target = dataclasses.replace(FETCHES, native=FETCHES.native | {"matrix_load"})
    (a, b), bits = operands(dtypes.bfloat16, (m, k), (k, n))
    bits = [bits[0], np.ascontiguousarray(bits[1].T) if bt else bits[1]]
    kernel = wmma(size, dtypes.bfloat16, dtypes.float32, False, bt)
    recipe = check(kernel, bits, a.astype(float) @ b, 0.0, target)
    deep = [dict(step[5]).get("depth", 1) for step in recipe if step[0] == "stage"]
    assert deep == [min(4, -(-k // 32)) if bt or gathers else 1] * 2
    found = ops_of(kernel, target)
    assert (Ops.FETCH in found) == ((k % 8 == 0 and bt or gathers and k == 120) and k > 32)
    assert (Ops.GATHER in found) == gathers
    assert found.count(Ops.BARRIER) == 2  # before pieces are filled, and before they are read


STAGED = dataclasses.replace(
    FETCHES,
    group_limit=256,
    local_memory=227 << 10,
    native=FETCHES.native | {"matrix_load", "wgmma"},
)


def test_a_shorter_mantissa_has_to_be_asked_for(monkeypatch):
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    (a, b), bits = operands(dtypes.float32, (40, 34), (34, 48))
    kernel = wmma((40, 48, 34), dtypes.float32, dtypes.float32)
    asked = dataclasses.replace(STAGED, native=STAGED.native | {"wgmma_tf32"})
    for target in (STAGED, asked):
        recipe = check(kernel, bits, a.astype(float) @ b, 0.0, target)
        assert (("distribute", "wgmma.tf32.64") in {(s[0], s[-1]) for s in recipe}) == (
            target is asked
        )


@pytest.mark.parametrize("turned", [False, True])
def test_a_unit_reads_staged_operands_itself(turned, monkeypatch):
    """Of both layouts, by copies that are on their way and by stores, beyond the edges."""
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    m, n, k = (40, 56, 72) if turned else (56, 40, 99)
    (a, b), bits = operands(dtypes.bfloat16, (m, k), (k, n))
    bits = [np.ascontiguousarray(bits[0].T), bits[1]] if turned else bits
    kernel = wmma((m, n, k), dtypes.bfloat16, dtypes.float32, turned, False)
    recipe = check(kernel, bits, a.astype(float) @ b, 0.0, STAGED)
    assert ("distribute", "wgmma.bf16.64") in {(step[0], step[-1]) for step in recipe}
    found = ops_of(kernel, STAGED)
    assert Ops.FETCH in found and (Ops.STORE in found[: found.index(Ops.WMMA)]) != turned
    assert found.count(Ops.FENCE) == 1 and found.count(Ops.BARRIER) == 2
    assert found.count(Ops.WMMA) == 4 and found.count(Ops.MATRIX) == 8


BOXES = dataclasses.replace(STAGED, native=STAGED.native | {"box_copy"})


@pytest.mark.parametrize(
    ("size", "at", "bt"),
    [
        ((64, 128, 320), True, False),  # whole boxes, more turns than places
        ((56, 40, 104), False, False),
        ((60, 64, 72), False, True),
    ],
)
def test_boxes_are_fetched_by_one_lane(size, at, bt, monkeypatch):
    """What a box reaches beyond the edges is 0. Lanes meet once, before the first turn."""
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    m, n, k = size
    (a, b), bits = operands(dtypes.bfloat16, (m, k), (k, n))
    bits = [np.ascontiguousarray(x.T) if t else x for x, t in zip(bits, (at, bt), strict=True)]
    kernel = wmma(size, dtypes.bfloat16, dtypes.float32, at, bt)
    check(kernel, bits, a.astype(float) @ b, 0.0, BOXES)
    found = ops_of(kernel, BOXES)
    assert found.count(Ops.BARRIER) == found.count(Ops.FENCE) == 1
    assert found.count(Ops.TENSOR) == 2 and Ops.SIGNAL in found


@pytest.mark.parametrize(
    ("shape", "tensors"),
    [
        # sizes, strides but the first, box
        ((128, 128, 128), [((128, 128), (128,), (64, 128)), ((128, 128), (128,), (64, 64))]),
        # edges within a block, and with one
        ((100, 192, 72), [((72, 100), (72,), (64, 128)), ((192, 72), (192,), (64, 64))]),
        ((128, 128, 100), []),  # rows that are 200 bytes apart
    ],
)
def test_a_buffer_is_seen_as_a_tensor(shape, tensors, monkeypatch):
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    made, _ = schedule(wmma(shape, dtypes.bfloat16, dtypes.float32), BOXES)
    views = lower(made, BOXES).phases[0].tensors
    assert [view[2:] for view in views] == tensors


def test_a_batch_is_an_axis_of_its_own(monkeypatch):
    """Its matrices end within boxes, and what follows is another one's."""
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    sizes = {"g": 2, "m": 60, "n": 56, "k": 72}
    g, m, n, k = (K.loop(name, size) for name, size in sizes.items())
    a = K.read(1, (2, 60, 72), g, m, k, dtype=dtypes.bfloat16)
    b = K.read(2, (2, 72, 56), g, k, n, dtype=dtypes.bfloat16)
    total = (a.cast(dtypes.float32) * b.cast(dtypes.float32)).reduce("add", k)
    kernel = K.out((2, 60, 56), total, g, m, n)
    (a, b), bits = operands(dtypes.bfloat16, (2, 60, 72), (2, 72, 56))
    check(kernel, bits, a.astype(float) @ b, 0.0, BOXES)
    made, _ = schedule(kernel, BOXES)
    (first, second) = lower(made, BOXES).phases[0].tensors
    assert first[2:4] == ((72, 60, 2), (72, 60 * 72))
    assert second[2:4] == ((56, 72, 2), (56, 56 * 72))


def test_a_signal_that_nobody_gives_is_an_error(monkeypatch):
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    made, _ = schedule(wmma((64, 128, 448), dtypes.bfloat16, dtypes.float32), BOXES)
    program = lower(made, BOXES).phases[0].program
    quiet = [node for node in program if node.op is not Ops.COMMIT or node.arg != 0]
    source = PythonRenderer().render("f", quiet)
    function = PythonQueue().load(source.encode(), "f")
    lanes = next(node.arg[1] for node in program if node.op is Ops.SPECIAL)
    buffers = [memoryview(bytearray(1 << 18))] * 3
    with pytest.raises(DeviceError, match="lanes wait for signals that nobody gives"):
        PythonQueue().segment([Launch(function, (0, 1, 2), block=(lanes, 1, 1))]).run(buffers, [])


def test_products_of_a_turn_are_on_their_way_when_the_next_begins(monkeypatch):
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    kernel = wmma((128, 256, 512), dtypes.float16, dtypes.float32)
    made, _ = schedule(kernel, STAGED)
    program = lower(made, STAGED).phases[0].program
    waits = [node.arg for node in program if node.op is Ops.WAIT]
    # two turns are fetched ahead of the four that there is room for
    assert waits == [("copies", 1), ("products", 1), ("products", 0)]


@pytest.mark.parametrize(
    "change", [("pad", "pa1", "pa1.ms", 8), ("order", "pa1", ("pa1.ki", "pa1.ms"))]
)
def test_a_unit_does_not_read_another_layout(change, monkeypatch):
    """Only the order of the fill may change."""
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    _, recipe = schedule(wmma((64, 64, 64), dtypes.float16, dtypes.float32), STAGED)
    at = next(i for i, step in enumerate(recipe) if step[0] == "complete") + 1
    kernel = wmma((64, 64, 64), dtypes.float16, dtypes.float32)
    if change[0] == "order":
        rewrite(apply(kernel, recipe), STAGED)
        return
    with pytest.raises(VerifyError, match="its rows are not those a unit reads"):
        lower(apply(kernel, [*recipe[:at], change, *recipe[at:]]), STAGED)


@pytest.mark.parametrize("at", [False, True])
def test_a_product_of_lanes_is_fetched_too(at):
    a, b = K.normal(36, 84), K.normal(84, 36)
    inputs = [np.ascontiguousarray(a.T) if at else a, b]
    target = dataclasses.replace(FETCHES, native=FETCHES.native - {"mma"})
    check(K.matmul(36, 36, 84, at), inputs, a @ b, 1e-4, target)
    assert (Ops.FETCH in ops_of(K.matmul(36, 36, 84, at), target)) == at


def test_two_turns_on_their_way_without_copies_of_their_own():
    recipe = [
        ("role", "m", "PARALLEL"),
        ("split", "n", 8, "nl", "PARALLEL", "LANE"),
        ("split", "k", 5, "ki"),
        ("stage", (0, 1, 0, 1), ("ki", "nl"), "pb", "LOCAL", (("depth", 3),)),
        ("complete", "pb"),
        ("role", "pb.nl", "LANE"),
    ]
    for length in (3, 5, 11, 37):
        a, b = K.normal(2, length), K.normal(length, 21)
        kernel = apply(K.matmul(2, 21, length), recipe)
        found = K.compute(kernel, (2, 21), [a, b], "python", target=GPU)
        np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-5)


# ---- rows in registers ---------------------------------------------------------------------------


def narrow_attention(rows, keys, width, early=False, window=None):
    """softmax(q @ k.T) @ v, as the scheduler writes it; divided after the product, or before it.
    `window`: a row sees no key that is so much before it."""
    half, single = dtypes.float16, dtypes.float32
    m, n = K.loop("m", rows), K.loop("n", width)

    def scores(key):
        d = K.loop("d", width)
        q = K.read(1, (rows, width), m, d, dtype=half).cast(single)
        score = (q * K.read(2, (keys, width), key, d, dtype=half).cast(single)).reduce("add", d)
        return score if window is None else (m < key + window).where(score, -np.inf)

    first, second, third = (K.loop(name, keys) for name in ("k1", "k2", "k3"))
    most = scores(first).reduce("max", first)

    def weights(key):
        return ((scores(key) + most * -1.0) * 1.4426950408889634).exp2()

    total = weights(second).reduce("add", second)
    value = K.read(3, (keys, width), third, n, dtype=half).cast(single)
    weight = weights(third).alu(Ops.FDIV, total) if early else weights(third)
    summed = (weight.cast(half).cast(single) * value).reduce("add", third)
    return K.out((rows, width), summed if early else summed.alu(Ops.FDIV, total), m, n)


REGISTERS = dataclasses.replace(
    FETCHES, group_limit=128, registers=255, native=FETCHES.native | {"matrix_load", "EXP2", "FDIV"}
)


@pytest.mark.parametrize(
    ("rows", "keys", "width", "early", "window"),
    [
        (17, 66, 8, False, None),
        (16, 40, 24, False, None),
        (33, 130, 16, False, None),
        (17, 66, 8, True, None),
        (80, 96, 8, False, 5),  # the first blocks of keys are nothing to the last rows
    ],
)
def test_scores_are_the_units_results_and_its_operand(rows, keys, width, early, window):
    """They are made once, as sums follow the maximum; for each reduction, if one needs the sum."""
    shapes = (rows, width), (keys, width), (keys, width)
    (q, k, v), bits = operands(dtypes.float16, *shapes)
    scores = (q @ k.T).astype(float)
    if window is not None:
        scores[np.arange(rows)[:, None] >= np.arange(keys) + window] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    wanted = weights @ v / weights.sum(1, keepdims=True)
    kernel = narrow_attention(rows, keys, width, early, window)
    recipe = check(kernel, bits, wanted, 2e-3, REGISTERS)
    units = [step[-1] for step in recipe if step[0] == "distribute"]
    assert units == ["mma.f16"] * (4 if early else 2)
    assert not any(name.startswith("row") for name in staged(recipe))


@pytest.mark.parametrize("width", [12, 400])
def test_other_rows_stay_with_other_recipes(width):
    """Columns that the unit doesn't divide, or that registers have no room for."""
    _, recipe = schedule(narrow_attention(16, 40, width), REGISTERS)
    assert not any(step[0] == "own_loop" for step in recipe)


def test_a_stage_that_no_turn_is_ahead_of_is_stored():
    """A copy on its way is waited for by the loop that it is ahead in, and by nobody else: the last
    turn of a loop that doesn't divide stands apart."""
    recipe = [
        ("role", "m", "PARALLEL"),
        ("split", "n", 8, "nl", "PARALLEL", "LANE"),
        ("split", "k", 4, "ki"),
        ("stage", (0, 1, 0, 1), ("ki", "nl"), "pb", "LOCAL", (("depth", 3), ("via", "async"))),
        ("complete", "pb"),
        ("split", "pb.nl", 4, "pb.nv", "LOOP", "VECTOR"),
        ("role", "pb.nl", "LANE"),
        ("role", "pb.ki", "LANE"),
    ]
    for length in (12, 14):
        a, b = K.normal(2, length), K.normal(length, 24)
        kernel = apply(K.matmul(2, 24, length), recipe)
        found = K.compute(kernel, (2, 24), [a, b], "python", target=FETCHES)
        np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-5)
        ops = [node.op for node in lower(kernel, FETCHES).phases[0].program]
        assert Ops.FETCH in ops
