"""The CUDA runtime over a driver that isn't there: memory, copies, kernels, graphs and bad days.
Kernels are the PTX that a card would get, run by the emulator."""

import gc
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from backends.cuda import fake_driver
from backends.cuda.fake_driver import Card, FakeLibrary

from tinygrad import Context, GlobalCounters, Tensor, TinyJit, dtypes
from tinygrad.backends import canonicalize, open_device, why_absent
from tinygrad.backends.blocks import size_class
from tinygrad.backends.cuda import driver
from tinygrad.backends.cuda.compiler import PTXCompiler
from tinygrad.backends.cuda.memory import PINNED
from tinygrad.backends.cuda.tensors import TensorMaps
from tinygrad.backends.interface import Launch, TensorView
from tinygrad.base.errors import CompileError, DeviceError, OutOfMemory
from tinygrad.base.settings import SETTINGS
from tinygrad.engine.devices import Device
from tinygrad.engine.making import plan_of
from tinygrad.engine.structure import structure_of
from tinygrad.loops.groups import unit_products

TEST = Path(__file__).parents[2]


LIBRARY = FakeLibrary([Card((9 - i // 8, 0), 128 << 20) for i in range(9)])


@pytest.fixture
def library(monkeypatch):
    """A driver with some cards, the same for all tests: plans stay with the device that they were
    made for. What a test counts begins at 0."""
    assert shutil.which("cc"), "the emulator makes C"
    monkeypatch.setattr(driver, "open_library", lambda: LIBRARY)
    LIBRARY.calls.clear()
    LIBRARY.fails.clear()
    LIBRARY.broken = 0
    return LIBRARY


def opened(library, monkeypatch, index=0):
    monkeypatch.setattr(driver, "open_library", lambda: library)
    return open_device(f"CUDA:{index}")


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ---- kernels -------------------------------------------------------------------------------------


def test_results_of_several_sizes_are_one_launch(library):
    """Lanes pick the pointers of their member."""
    given = [Tensor(numbers(n), device="CUDA").realize() for n in (5, 64, 300)]
    made = [x * 2 + 1 for x in given]
    before = GlobalCounters.kernel_count
    made[0].realize(*made[1:])
    assert GlobalCounters.kernel_count == before + 1
    for x, y in zip(given, made, strict=True):
        np.testing.assert_array_equal(y.numpy(), x.numpy() * 2 + 1)


def test_tensors_are_computed(library):
    a, b = numbers(33, 20), numbers(20, 17)
    x, y = Tensor(a, device="CUDA"), Tensor(b, device="NV")
    np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-4, atol=1e-5)
    exps = np.exp(a - a.max(1, keepdims=True))
    wanted = exps / exps.sum(1, keepdims=True)
    np.testing.assert_allclose(x.softmax().numpy(), wanted, rtol=1e-5, atol=1e-7)
    assert library.launched and library.calls["cuLaunchKernel"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_squares_are_turned_in_shared_memory(library, dtype):
    x = (numbers(257, 300) * 9).astype(dtype)
    np.testing.assert_array_equal((Tensor(x, device="CUDA").T + 1).numpy(), x.T + x.dtype.type(1))


@pytest.mark.parametrize("shape", [(1000, 70), (5003, 33), (150_000,)])
@pytest.mark.parametrize("name", ["sum", "max"])
def test_columns_and_long_sums_are_shared_by_lanes(library, shape, name):
    x = numbers(*shape) + 2
    found = getattr(Tensor(x, device="CUDA"), name)(0).numpy()
    np.testing.assert_allclose(found, getattr(x.astype(np.float64), name)(0), rtol=1e-5)


def test_features_of_a_card_can_be_left_unused(library):
    whole = open_device("CUDA").target.native
    with Context(CUDA_WITHOUT="wgmma, box_copy"):
        assert whole - open_device("CUDA").target.native == {"wgmma", "box_copy"}
    with Context(ALLOW_TF32=1):
        assert open_device("CUDA").target.native - whole == {"mma_tf32", "wgmma_tf32"}


@pytest.mark.parametrize("dtype", (dtypes.float16, dtypes.bfloat16), ids=repr)
def test_warps_multiply_matrices(library, dtype):
    a, b = (Tensor(numbers(*s), device="CUDA").cast(dtype).realize() for s in ((65, 33), (33, 40)))
    wanted = a.cast(dtypes.float32).numpy() @ b.cast(dtypes.float32).numpy()
    LIBRARY.texts.clear()
    found = a.matmul(b, dtype=dtypes.float32).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert any("mma.sync" in text for text in LIBRARY.texts)


@pytest.mark.parametrize(
    ("rows", "keys", "width", "dtype", "causal"),
    [
        (40, 72, 16, dtypes.float16, False),  # keys beyond a block
        (70, 70, 24, dtypes.bfloat16, True),
        (17, 9, 8, dtypes.bfloat16, False),
    ],
)
def test_scores_stay_in_registers(library, rows, keys, width, dtype, causal):
    """One kernel, whose scores are the unit's results and then its operand."""
    shapes = (2, 2, rows, width), (2, 2, keys, width), (2, 1, keys, width)
    q, k, v = (Tensor(numbers(*x), device="CUDA").cast(dtype).realize() for x in shapes)
    library.launched.clear()
    out = q.scaled_dot_product_attention(k, v, is_causal=causal).realize()
    assert len(library.launched) == 1 and library.texts[-1].count("mma.sync") > 4
    given = [torch.tensor(x.float().numpy()) for x in (q, k, v)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal)
    np.testing.assert_allclose(out.float().numpy(), wanted.numpy(), rtol=0.01, atol=0.01)


def test_sums_follow_a_maximum_that_comes_late(library):
    """The first two blocks of keys are not seen at all, scores lie far below 0, and grow."""
    q, k, v = numbers(16, 16), -np.abs(numbers(200, 16)), numbers(200, 16)
    q, k = np.abs(q) * 30, k * np.linspace(40, 20, 200, dtype=np.float32)[:, None]
    mask = np.arange(200) < np.arange(16)[:, None] * 8 + 130
    mask[:, :128] = False
    given = [Tensor(x, device="CUDA").bfloat16().realize() for x in (q, k, v)]
    found = given[0].scaled_dot_product_attention(*given[1:], Tensor(mask, device="CUDA"))
    scores = given[0].float().numpy() @ given[1].float().numpy().T / 4
    weights = np.exp(
        np.where(mask, scores - scores.max(1, where=mask, initial=-np.inf)[:, None], -np.inf)
    )
    wanted = weights @ given[2].float().numpy() / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(found.float().numpy(), wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("rows", "keys", "width", "heads", "causal"),
    [
        pytest.param(160, 200, 16, 2, False, marks=pytest.mark.slow),
        pytest.param(136, 136, 16, 2, True, marks=pytest.mark.slow),  # what no block divides
        pytest.param(256, 320, 32, 2, False, marks=pytest.mark.slow),
        (136, 136, 16, 1, True),  # heads share keys: a block is of two
        pytest.param(144, 150, 16, 1, False, marks=pytest.mark.slow),
    ],
)
def test_attention_goes_back_without_stored_scores(library, rows, keys, width, heads, causal):
    """Each kernel makes the scores again, and what they become is the unit's operand: the output
    and its rows' statistics, then the gradients of queries, keys and values."""
    queries, others = (2, 2, rows, width), (2, heads, keys, width)
    shapes = queries, others, others, queries
    given = [Tensor(numbers(*x), device="CUDA").cast(dtypes.bfloat16).realize() for x in shapes]
    wanted = [torch.tensor(x.float().numpy(), requires_grad=True) for x in given]
    for x in given[:3]:
        x.requires_grad = True
    before = len(library.texts)
    how = {"is_causal": causal, "enable_gqa": heads == 1}
    out = given[0].scaled_dot_product_attention(*given[1:3], **how)
    out.backward(given[3])
    found = [out, *(x.grad for x in given[:3])]
    most = max(kept.size for kept in plan_of(structure_of([x.uop for x in found]).sink).storages)
    assert most < 2 * 2 * rows * keys / 2
    Tensor.realize(*found)
    assert [text.count("mma.sync") > 4 for text in library.texts[before:]] == [True] * 4
    made = torch.nn.functional.scaled_dot_product_attention(*wanted[:3], **how)
    made.backward(wanted[3])
    for ours, theirs in zip(found, [made.detach(), *(x.grad for x in wanted[:3])], strict=True):
        near = 0.01 * theirs.abs().max().item()
        np.testing.assert_allclose(ours.float().numpy(), theirs.numpy(), rtol=0.02, atol=near)


@pytest.mark.parametrize(
    ("shape", "dtype", "turned"),
    [
        ((130, 104, 264), dtypes.bfloat16, (False, False)),  # what neither block nor step divides
        ((72, 136, 200), dtypes.float16, (True, True)),
        ((64, 60, 99), dtypes.bfloat16, (False, True)),  # which is stored, not copied
        ((128, 120, 272), dtypes.int8, (False, True)),
        ((2, 70, 72, 136), dtypes.bfloat16, (False, False)),  # several, which end within a box
    ],
)
def test_four_warps_multiply_what_is_staged(library, shape, dtype, turned, monkeypatch):
    """Copies and products arrive as late as they may; sums of these numbers are exact."""
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    *batch, m, n, k = shape
    values = [np.random.randint(-64, 65, (*batch, *size)) for size in ((m, k), (k, n))]
    given = [v if dtypes.is_int(dtype) else v / np.float32(32) for v in values]
    a, b = (
        Tensor(np.ascontiguousarray(v.T) if t else v, device="CUDA").cast(dtype).realize()
        for v, t in zip(given, turned, strict=True)
    )
    LIBRARY.texts.clear()
    a, b = (x.T if t else x for x, t in zip((a, b), turned, strict=True))
    total = dtypes.int32 if dtypes.is_int(dtype) else dtypes.float32
    found = a.matmul(b, dtype=total).numpy()
    np.testing.assert_array_equal(found, given[0].astype(np.float64) @ given[1])
    text = next(text for text in LIBRARY.texts if "wgmma.mma_async" in text)
    assert ("cp.async.bulk.tensor" in text) == (k != 99)


@pytest.mark.parametrize(("card", "unit"), [(6, "wgmma"), (8, "mma.sync")])
def test_a_shorter_mantissa_has_to_be_asked_for(library, card, unit, monkeypatch):
    """Sums of what ten bits hold are exact; whole float32 would tell these factors from 1."""
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    values = np.random.randint(-64, 65, (72, 64)).astype(np.float32)
    factors = 1 + np.full((64, 40), 2.0**-20, np.float32)
    with Context(ALLOW_TF32=1):
        a, b = (Tensor(x, device=f"CUDA:{card}").realize() for x in (values, factors))
    LIBRARY.texts.clear()
    np.testing.assert_array_equal((a @ b).numpy(), values @ np.ones_like(factors))
    assert any(unit in text and ".tf32" in text for text in LIBRARY.texts)


def test_boxes_follow_buffers_that_move(library, monkeypatch):
    """In a graph, too: its parameters are told of the maps for other addresses."""
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    jitted = TinyJit(lambda x, w: (x @ w).float().contiguous().relu().realize())
    w = Tensor(numbers(72, 64), device="CUDA").half().realize()
    kept, before = [], library.calls["cuGraphExecKernelNodeSetParams"]
    for _ in range(5):
        x = Tensor(numbers(64, 72), device="CUDA").half().realize()
        kept.append(x)
        wanted = x.float().numpy() @ w.float().numpy()
        found = jitted(x, w).numpy()
        np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=2e-3, atol=2e-2)
    assert library.calls["cuTensorMapEncodeTiled"] >= 5
    assert library.calls["cuGraphExecKernelNodeSetParams"] > before


def test_a_driver_without_tensor_maps_says_so(monkeypatch):
    library = FakeLibrary(lacks=("cuTensorMapEncodeTiled",))
    view = TensorView(0, 2, (64, 64), (64,), (64, 64))
    with pytest.raises(DeviceError, match="driver too old: it lacks cuTensorMapEncodeTiled"):
        TensorMaps(opened(library, monkeypatch).memory.connection, [view]).fill([1 << 20])


@pytest.mark.parametrize(
    ("left_out", "depth", "card", "lost"),
    [
        ("wgmma.wait_group", 264, 3, False),
        ("cp.async.wait_group", 264, 8, True),
        ("fence.proxy.async", 280, 4, True),
        ("mbarrier.arrive.shared", 1288, 5, True),
        ("mbarrier.arrive.expect_tx", 296, 6, True),
        (("mbarrier.try_wait", "@!%had"), 328, 7, True),
    ],
)
def test_the_emulator_finds_what_is_missing(library, left_out, depth, card, lost, monkeypatch):
    monkeypatch.setattr(unit_products, "BUSY_GROUPS", 1)
    compile_ = PTXCompiler.compile

    def without(self, source):
        lines = compile_(self, source).decode().splitlines()
        return "\n".join(x for x in lines if not x.strip().startswith(left_out)).encode()

    monkeypatch.setattr(PTXCompiler, "compile", without)
    a = Tensor(numbers(128, depth), device=f"CUDA:{card}").cast(dtypes.bfloat16).realize()
    wanted = a.float().numpy() @ a.float().numpy().T
    with Context(CACHELEVEL=0):
        product = a.matmul(a.T, dtype=dtypes.float32)
        if lost:
            with pytest.raises(DeviceError, match=f"CUDA:{card} is lost"):
                product.numpy()
            library.broken = 0
        else:
            assert not np.allclose(product.numpy(), wanted, atol=1e-3)


def run_tests(*files, **facts):
    """Tests of other folders on this device, in a process of their own; how many passed."""
    command = [sys.executable, "-m", "pytest", *files, "-q", "-x", "-p", "no:cacheprovider"]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ran = subprocess.run(
        [*command, "-p", "backends.cuda.emulated"],
        cwd=TEST,
        env=inherited | facts,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    return int(re.search(r"(\d+) passed", ran.stdout)[1])


OP_TESTS = tuple(f"tensor/test_{name}.py" for name in ("elementwise", "reduction", "indexing"))


def test_op_tests_pass():
    """A few of what every device must do; see the slow one."""
    assert run_tests(OP_TESTS[1], "-k", "sum or max", DEV="CUDA", EVERY="400") >= 3


@pytest.mark.slow
def test_more_op_tests_pass():
    assert run_tests(*OP_TESTS, DEV="CUDA", EVERY="5") >= 100


@pytest.mark.slow
def test_programs_written_by_hand_do_the_same():
    assert run_tests("backends/test_renderers.py", PROGRAMS_ON="CUDA") >= 50


def test_memory_that_a_function_may_not_declare_is_lent(library, monkeypatch):
    device = opened(FakeLibrary(), monkeypatch)
    source = """
//
.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 lent[];
.visible .entry k(
	.param .u64 k_param_0
)
{
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<4>;
	ld.param.b64 	%rd1, [k_param_0];
	mov.b64 	%rd2, lent;
	mov.u32 	%r1, %tid.x;
	st.shared.b32 	[%rd2+61440], %r1;
	bar.sync 	0;
	ld.shared.b32 	%r2, [%rd2+61440];
	st.global.b32 	[%rd1], %r2;
	ret;
}
"""
    function = device.queue.load(source.encode() + b"\0", "k")
    handle = device.memory.allocate(64)
    launch = Launch(function, (0,), (), (1, 1, 1), (4, 1, 1), 60 << 10)
    segment = device.queue.segment([launch])
    segment.run([handle], [])  # 61440 is where its 60 KiB end
    with pytest.raises(DeviceError, match="lost: .*ILLEGAL_ADDRESS"):
        device.queue.synchronize()
    assert device.memory.connection.presence.lost


# ---- graphs --------------------------------------------------------------------------------------


def step(x, w):
    hidden = (x @ w).relu().contiguous()
    return (hidden.sum(1) + 1).realize()


def test_a_captured_step_is_a_graph_whose_arguments_change(library):
    w = Tensor(numbers(20, 9), device="CUDA").realize()
    jitted = TinyJit(step)
    for seed in range(6):
        a = np.random.default_rng(seed).standard_normal((6, 20)).astype(np.float32)
        x = Tensor(a, device="CUDA").realize()
        wanted = np.maximum(a @ w.numpy(), 0).sum(1) + 1
        np.testing.assert_allclose(jitted(x, w).numpy(), wanted, rtol=1e-4)
    assert library.calls["cuGraphInstantiateWithFlags"] <= 2  # of the plan, of the captured step
    assert library.calls["cuGraphLaunch"] >= 2
    assert library.calls["cuGraphExecKernelNodeSetParams"] >= 1


def test_a_timed_run_between_two_graphs_leaves_nothing_stale(library):
    w = Tensor(numbers(20, 9), device="CUDA").realize()
    jitted = TinyJit(step)
    for seed in range(8):
        x = Tensor(np.full((6, 20), seed, np.float32), device="CUDA").realize()
        with Context(DEBUG=2 if seed in (4, 6) else 0):
            found = jitted(x, w).numpy()
        wanted = np.maximum(np.full((6, 20), seed) @ w.numpy(), 0).sum(1) + 1
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_timed_runs_give_seconds_of_each_kernel(library, monkeypatch):
    x = Tensor(numbers(30, 30), device="CUDA").realize()
    with Context(DEBUG=2):
        (x.contiguous() + 1).realize()
    assert library.calls["cuEventElapsedTime"] >= 1


@pytest.mark.usefixtures("others_are_old")
def test_what_nobody_holds_is_given_back(library, monkeypatch):
    made = FakeLibrary()
    device = opened(made, monkeypatch)
    function = device.queue.load(empty_kernel("E_1"), "E_1")
    segment = device.queue.segment([Launch(function, ())] * 2)
    for _ in range(3):
        segment.run([], [])
    assert (made.kinds["Module"], made.kinds["Executable"], made.kinds["Graph"]) == (1, 1, 1)
    assert made.launched == ["E_1"] * 6
    del function, segment
    gc.collect()
    assert made.kinds["Module"] == made.kinds["Executable"] == 1  # they may still be running
    device.queue.synchronize()
    assert made.kinds["Module"] == made.kinds["Executable"] == made.kinds["Graph"] == 0


def empty_kernel(name):
    head = "//\n.version 7.0\n.target sm_80\n.address_size 64\n"
    return f"{head}.visible .entry {name}()\n{{\n\tret;\n}}\n".encode() + b"\0"


# ---- memory --------------------------------------------------------------------------------------


def test_copies_pass_in_parts(library, monkeypatch):
    device = opened(library, monkeypatch)
    data = np.random.default_rng(0).integers(0, 255, 2 * PINNED + 1234).astype(np.uint8)
    handle = device.memory.allocate(data.nbytes)
    device.memory.write(handle, memoryview(data))
    assert device.memory.read(handle, data.nbytes) == data.tobytes()
    assert device.memory.read(handle, 100, 5) == data[5:105].tobytes()
    assert device.memory.read(handle, 0) == b""
    assert library.calls["cuMemcpyHtoDAsync_v2"] == 3


def test_freed_blocks_serve_again_and_are_bounded(library, monkeypatch):
    library = FakeLibrary()
    memory = opened(library, monkeypatch).memory
    first = memory.allocate(1 << 20)
    memory.free(first, 1 << 20)
    assert memory.allocate(1 << 20) == first
    assert library.calls["cuMemAlloc_v2"] == 1
    many = [memory.allocate(16 << 20) for _ in range(10)]
    for handle in many:
        memory.free(handle, 16 << 20)
    assert memory.blocks.kept <= memory.blocks.limit
    with Context(LRU=0):
        memory.free(first, 1 << 20)
    assert memory.blocks.kept == 0 and not library.cards[0].blocks


def test_a_block_is_an_eighth_larger_at_most():
    for nbytes in (1, 511, 513, 5000, 10**6, 10**9 + 7):
        assert nbytes <= size_class(nbytes) <= max(512, nbytes + nbytes // 8 + 512)


def test_out_of_memory_says_how_much_and_goes_on(library):
    with pytest.raises(OutOfMemory, match=r"1,073,741,824 bytes on CUDA:0.*134,217,728"):
        Tensor.empty(1 << 28, device="CUDA").realize()
    assert (Tensor([1.0, 2.0], device="CUDA") + 1).tolist() == [2, 3]


def test_freed_blocks_are_given_back_when_memory_is_short(library, monkeypatch):
    memory = opened(FakeLibrary(), monkeypatch).memory
    held = [memory.allocate(20 << 20) for _ in range(6)]
    for handle in held:
        memory.free(handle, 20 << 20)
    assert memory.blocks.kept > 100 << 20
    assert memory.allocate(200 << 20)


def test_a_kernel_that_runs_too_long_is_an_error(library, monkeypatch):
    x = Tensor(numbers(5), device="CUDA").realize()
    library.fails["cuStreamQuery"] = [600] * 10_000  # not ready
    with monkeypatch.context() as patch:
        patch.setattr(SETTINGS["DEVICE_TIMEOUT"], "value", 0.05)
        with pytest.raises(DeviceError, match="CUDA.*: its kernels have run for 0.05 s"):
            Device["CUDA"].synchronize()
    library.fails.clear()
    assert x.tolist() == numbers(5).tolist()


def test_bytes_go_from_card_to_card(monkeypatch):
    library = FakeLibrary([Card(size=8 << 20), Card(size=8 << 20)])
    first, second = (opened(library, monkeypatch, i) for i in (0, 1))
    one, other = first.memory.allocate(4096), second.memory.allocate(4096)
    first.memory.write(one, memoryview(bytes(range(256)) * 16))
    second.memory.copy_from(other, first.memory, one, 4096)
    assert second.memory.read(other, 4096) == bytes(range(256)) * 16
    assert library.kinds["Event"] == 4  # those of the pinned blocks


def test_tensors_go_from_card_to_card_without_the_host(library):
    x = Tensor(numbers(30, 5), device="CUDA").realize()
    library.calls.clear()
    y = (x.to("CUDA:1") + 1).realize()
    assert library.calls["cuMemcpyPeerAsync"] == 1
    assert library.calls["cuMemcpyDtoHAsync_v2"] == 0
    np.testing.assert_array_equal(y.numpy(), numbers(30, 5) + 1)


# ---- bad days ------------------------------------------------------------------------------------


def test_no_driver_is_one_sentence(monkeypatch):
    monkeypatch.setattr(driver, "NAMES", ("libcuda-that-is-not-there.so.1",))
    assert re.match("device CUDA: no NVIDIA driver here .*DEV=CPU needs none$", why_absent("CUDA"))


@pytest.mark.parametrize(
    ("facts", "words"),
    (
        ({"cards": []}, "CUDA_ERROR_NO_DEVICE 100"),
        ({"version": 11_020}, "driver.* too old: it knows CUDA 11.2; needed is .*11.4"),
        ({"lacks": ("cuGraphInstantiateWithFlags",)}, "too old: it lacks cuGraphInstantiate"),
        ({"cards": [Card((7, 0))]}, r"compute capability 7\.0 .* needed are 7\.5 or"),
        ({"start": 999}, "doesn.t start: error 999"),
    ),
)
def test_what_is_wrong_with_a_driver_is_said(facts, words, monkeypatch):
    with pytest.raises(DeviceError, match=words):
        opened(FakeLibrary(**facts), monkeypatch)


def test_a_card_that_there_is_not(library, monkeypatch):
    with pytest.raises(DeviceError, match=r"CUDA:9: there is no such card; there are: CUDA:0,"):
        opened(library, monkeypatch, 9)


@pytest.mark.parametrize(
    ("capability", "version", "chip"),
    (
        ((9, 0), 12_080, "sm_90a"),
        ((9, 0), 11_080, "sm_90"),
        ((12, 0), 12_080, "sm_90"),
        ((8, 9), 11_080, "sm_89"),
        ((8, 9), 11_060, "sm_86"),
        ((8, 0), 11_040, "sm_80"),
        ((7, 5), 12_080, "sm_75"),
    ),
)
def test_a_card_takes_the_newest_row_that_it_and_its_driver_know(
    capability, version, chip, monkeypatch
):
    device = opened(FakeLibrary([Card(capability)], version), monkeypatch)
    assert device.target.cpu == chip


@pytest.mark.usefixtures("others_are_old")
def test_a_lost_card_says_so_each_time_and_others_go_on(library):
    x = Tensor(numbers(5, 5), device="CUDA:2").realize()
    library.fails["cuStreamSynchronize"] = [700]
    with pytest.raises(DeviceError, match="CUDA:2 is lost: waiting for kernels: .*ILLEGAL_ADDRESS"):
        Device["CUDA:2"].synchronize()
    for _ in range(2):
        with pytest.raises(
            DeviceError, match="is lost: .*ILLEGAL_ADDRESS.*not its own; start the program again"
        ):
            (x + 1).numpy()
    library.broken = 0
    for other in ("CPU", "CUDA"):
        assert (Tensor([1.0], device=other) + 1).item() == 2
    del x
    gc.collect()


def test_a_kernel_that_runs_too_long_is_told_as_that(library):
    x = Tensor(numbers(5, 5), device="CUDA:3").realize()
    library.fails["cuEventSynchronize"] = [702]
    with pytest.raises(DeviceError, match="LAUNCH_TIMEOUT.*ran longer than the system allows"):
        (x + 1).numpy()


def test_a_launch_that_fails_names_kernel_and_shape(library):
    x = Tensor(numbers(5, 5), device="CUDA").realize()
    library.fails["cuLaunchKernel"] = [1]
    with pytest.raises(DeviceError, match=r"launch E_\S+ with grid \(\d+, 1, 1\), block .*INVALID"):
        (x * 3).realize()
    assert (x * 3).tolist() == (x.numpy() * 3).tolist()


def test_what_the_driver_can_not_compile_comes_with_its_words(library, monkeypatch):
    device = opened(library, monkeypatch)
    with pytest.raises(CompileError, match=r"(?s)load k.*INVALID_PTX.*Missing .version.*nonsense"):
        device.queue.load(b"nonsense\0", "k")


def test_a_fork_is_refused(library, monkeypatch):
    device = opened(library, monkeypatch)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(DeviceError, match="CUDA:0: this process was forked.*'spawn'"):
        device.memory.allocate(64)


def test_checks_reach_the_host(library):
    table = Tensor(numbers(4, 3), device="CUDA")
    with pytest.raises(IndexError):
        table[Tensor(np.array([1, 7], np.int32), device="CUDA")].numpy()


def test_names():
    assert (canonicalize("nv"), canonicalize("cuda:0"), canonicalize("NV:1")) == (
        "CUDA",
        "CUDA",
        "CUDA:1",
    )


# ---- signatures ----------------------------------------------------------------------------------

LETTERS = {"i": "int", "u": "unsigned int", "z": "size_t", "q": "unsigned long long"}


def test_functions_are_declared_as_in_the_drivers_header():
    found = [p for p in map(Path, HEADERS) if p.exists()]
    if not found:
        pytest.skip("CUDA: no cuda.h")
    text = found[0].read_text()
    for name, types in driver.FUNCTIONS.items():
        plain = RENAMED.get(name, name.removesuffix("_v2"))
        declared = re.findall(rf"CUDAAPI {plain}(?:_v2)?\(([^)]*)\);", text)
        assert declared, name
        sizes = [[_size(a) for a in _arguments(one)] for one in declared]
        ours = [driver.ctypes.sizeof(kind) for kind in types]
        theirs = [driver.ctypes.sizeof(fake_driver.KINDS[x]) for x in fake_driver.SIGNATURES[name]]
        assert ours in sizes and ours == theirs, (name, ours, sizes)


HEADERS = (
    "/usr/local/cuda/include/cuda.h",
    *map(str, Path("/usr/local").glob("cuda*/include/cuda.h")),
)
RENAMED = {"cuGraphInstantiateWithFlags": "cuGraphInstantiate"}


def _arguments(text):
    return [part.strip() for part in text.split(",") if part.strip() not in ("", "void")]


def _size(argument):
    """Bytes of an argument of C."""
    if "*" in argument or "[" in argument:
        return 8
    word = argument.replace("const ", "").rsplit(" ", 1)[0]
    small = {"int": 4, "unsigned int": 4, "CUdevice": 4, "CUresult": 4, "CUdevice_attribute": 4}
    return small.get(word, 4 if word.endswith("_attribute") else 8)
