"""The METAL device, on a Metal that is not there: sources run through the shim, calls of the
Objective-C runtime are checked one by one, and what can go wrong is made to."""

import ctypes
import functools
import operator
import sys

import numpy as np
import pytest
from backends import fake_metal
from backends import test_renderers as programs
from backends.fake_driver import Misuse
from backends.test_devices import run_op_tests
from together import together

from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.backends import open_device, why_absent
from tinygrad.backends.c_dialect import METAL
from tinygrad.backends.c_family import CRenderer
from tinygrad.backends.interface import Launch
from tinygrad.backends.metal import device as metal_device
from tinygrad.backends.metal import objc
from tinygrad.base.errors import (
    CompileError,
    DeviceError,
    DTypeError,
    IndexCheckError,
    OutOfMemory,
)
from tinygrad.base.settings import SETTINGS

if fake_metal.compiler() is None:
    pytest.skip("METAL: no clang++ of 16 or later to read its sources", allow_module_level=True)

SHARED = fake_metal.Machine()  # of the tensors: plans keep their device


@pytest.fixture
def machine(monkeypatch):
    """A Metal of the test's own."""
    made = fake_metal.Machine()
    monkeypatch.setattr(metal_device, "open_library", made.open_library)
    return made


@pytest.fixture
def metal(monkeypatch):
    """Tensors on METAL."""
    monkeypatch.setattr(metal_device, "open_library", SHARED.open_library)
    return SHARED


# ---- sources -------------------------------------------------------------------------------------

BY_HAND = (
    "binary_operations_on_every_dtype",
    "bits_of_integers_and_bools",
    "division_truncates_and_shifts_keep_the_sign",
    "float_functions",
    "multiply_add_rounds_once",
    "maximum_with_a_constant_keeps_nan",
    "what_wrapped_is_compared_as_wrapped",
    "where_chooses_on_every_dtype",
    "half_is_loaded_stored_and_cast_to_float",
    "bitcasts_keep_the_bits",
)
WITHOUT_WIDTH = (
    "constants_of_every_dtype",
    "a_loop_that_begins_later_and_a_bound_variable",
    "masked_scalars",
    "lanes_move_between_vectors",
    "lanes_of_a_group_meet_at_a_barrier",
    "scratch_memory_of_a_task",
)


@pytest.fixture
def by_hand(monkeypatch, metal):
    """The programs of `test_renderers` run on METAL, without float64."""
    alone = ("METAL",)
    monkeypatch.setattr(metal, "most_arguments", 1000)  # a table of cases is one program
    monkeypatch.setattr(programs, "FLOATS", (dtypes.float32,))
    monkeypatch.setattr(programs, "NUMBERS", (*dtypes.ints, dtypes.float32))
    stored = (*programs.NUMBERS, dtypes.bool, dtypes.float16, dtypes.bfloat16)
    monkeypatch.setattr(programs, "STORED", stored)
    monkeypatch.setattr(programs, "TASKS", alone)
    monkeypatch.setattr(programs, "GROUPS", alone)
    monkeypatch.setattr(programs.Table.check, "__defaults__", (alone,))
    monkeypatch.setattr(programs.check, "__defaults__", (alone,))


@pytest.mark.parametrize("width", (1, 4))
@pytest.mark.parametrize("name", BY_HAND)
def test_programs_by_hand_give_what_numpy_gives(by_hand, name, width):
    getattr(programs, f"test_{name}")(width)


@pytest.mark.parametrize("name", WITHOUT_WIDTH)
def test_memory_and_loops_by_hand(by_hand, name):
    getattr(programs, f"test_{name}")()


def test_a_vector_of_more_than_four_lanes_is_refused():
    out, source = programs.param(0, dtypes.float32), programs.param(1, dtypes.float32)
    steps = programs.program(programs.store(out, 0, programs.load(source, 0, 8)))
    with pytest.raises(CompileError, match="a vector of Metal has at most 4 lanes"):
        CRenderer(METAL).render("wide", steps)


# ---- tensors -------------------------------------------------------------------------------------


def on_metal(*arrays):
    return [Tensor(array, device="METAL") for array in arrays]


def random(*shape):
    return np.random.standard_normal(shape).astype(np.float32)


def test_products_rows_and_a_gradient(metal):
    a, b = random(33, 20), random(20, 17)
    x, y = on_metal(a, b)
    x.requires_grad = True
    (x @ y).softmax().square().sum().backward()
    cpu = Tensor(a, requires_grad=True, device="CPU")
    (cpu @ Tensor(b, device="CPU")).softmax().square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), cpu.grad.numpy(), atol=1e-6)


def test_narrow_floats_and_wide_integers(metal):
    a = random(41)
    (x,) = on_metal(a)
    half = (x.half() * 3 + 1).float().numpy()
    expected = (a.astype(np.float16) * np.float16(3) + np.float16(1)).astype(np.float32)
    np.testing.assert_array_equal(half, expected)
    bits = x.bfloat16().bitcast(dtypes.uint16).numpy()
    np.testing.assert_array_equal(
        bits, Tensor(a, device="CPU").bfloat16().bitcast("uint16").numpy()
    )
    (n,) = on_metal(np.array([-7, 2**60, 5], np.int64))
    np.testing.assert_array_equal((n // 3 * 2).numpy(), [-6, 2**60 // 3 * 2, 2])


def test_float64_is_refused_with_the_reason(metal):
    with pytest.raises(DTypeError, match=r"float64: device METAL \(Apple M0\) has no such numbers"):
        (Tensor([1.0, 2.0], dtype="float64", device="METAL") * 2).numpy()


def test_an_index_outside_is_found_by_the_kernel(metal):
    (x,) = on_metal(random(5))
    with pytest.raises(IndexCheckError, match="index 7 is out of range"):
        x[Tensor([7], device="METAL")].numpy()


def test_a_captured_step_is_one_command_buffer(metal):
    step = TinyJit(lambda x: ((x + 1).contiguous() * 2).realize())
    arrays = [random(6) for _ in range(4)]
    for array in arrays[:-1]:
        step(*on_metal(array))
    (last,) = on_metal(arrays[-1])
    last.realize()
    before = metal.count("commandBuffer")
    made = step(last)
    assert metal.count("commandBuffer") == before + 1
    np.testing.assert_array_equal(made.numpy(), (arrays[-1] + 1) * 2)


def test_more_inputs_than_a_kernel_takes(metal):
    xs = [Tensor(np.full(5, i, np.float32), device="METAL") for i in range(70)]
    assert functools.reduce(operator.add, xs).tolist() == [69 * 35] * 5


def test_two_threads_compute_at_once(metal):
    def work(number):
        (x,) = on_metal(np.full(100, number, np.float32))
        for _ in range(5):
            x = (x + 1).realize()
        assert (x.numpy() == number + 5).all()

    together(lambda: work(0), lambda: work(1))


@pytest.mark.slow
def test_the_op_tests_pass_or_are_refused_for_float64():
    run_op_tests("METAL", cases=20, options=("-p", "backends.fake_metal"))


# ---- the runtime ---------------------------------------------------------------------------------


def added_seven(device, lanes=8):
    """A loaded kernel: out[i] = in[i] + 7 for a group of lanes."""
    out, source = programs.param(0, dtypes.float32), programs.param(1, dtypes.float32)
    lane = programs.special("lid0", lanes)
    steps = programs.program(lane, programs.store(out, lane, programs.load(source, lane) + 7.0))
    code = device.compiler.compile(device.renderer.render("added", steps))
    return device.queue.load(code, "added")


def written(device, values):
    raw = np.asarray(values, np.float32)
    place = device.memory.allocate(raw.nbytes)
    device.memory.write(place, memoryview(raw.view(np.uint8)))
    return place


def read(device, place, count=8):
    return np.frombuffer(device.memory.read(place, 4 * count), np.float32)


def test_kernels_run_when_somebody_waits_and_in_order(machine):
    device = open_device("METAL")
    function = added_seven(device)
    a, b = written(device, range(8)), device.memory.allocate(32)
    launches = [Launch(function, pair, block=(8, 1, 1)) for pair in ((1, 0), (0, 1), (1, 0))]
    device.queue.segment(launches).run([a, b], [])
    (commands,) = (o for o in machine.objects.values() if isinstance(o, fake_metal.CommandBuffer))
    assert commands.state == commands.SENT and len(commands.dispatches) == 3
    device.memory.write(a, memoryview(bytes(32)))  # waits: the kernels read what was there
    np.testing.assert_array_equal(read(device, b), np.arange(8) + 21)
    np.testing.assert_array_equal(read(device, a), 0)


def test_a_kernel_that_runs_too_long_is_told_and_waited_for_again(machine, monkeypatch):
    device = open_device("METAL")
    a, b = written(device, range(8)), device.memory.allocate(32)
    device.queue.segment([Launch(added_seven(device), (1, 0), block=(8, 1, 1))]).run([a, b], [])
    (queue,) = (o for o in machine.objects.values() if isinstance(o, fake_metal.CommandQueue))
    queue.hangs = True
    with monkeypatch.context() as patch:
        patch.setattr(SETTINGS["DEVICE_TIMEOUT"], "value", 0.05)
        with pytest.raises(DeviceError, match="device METAL: its kernels have run for 0.05 s"):
            device.queue.synchronize()
    queue.hangs = False
    np.testing.assert_array_equal(read(device, b), np.arange(8) + 7)


def test_times_are_those_of_the_gpu(machine):
    device = open_device("METAL")
    launch = Launch(added_seven(device), (0, 1), block=(8, 1, 1))
    places = [written(device, range(8)) for _ in range(2)]
    assert device.queue.segment([launch] * 3).run(places, [], timed=True) == [0.25] * 3


def test_a_view_begins_at_its_offset(machine):
    device = open_device("METAL")
    launch = Launch(added_seven(device), (0, 1), block=(8, 1, 1))
    whole, out = written(device, range(20)), device.memory.allocate(64)
    view = device.memory.view(device.memory.view(whole, 12), 4)
    device.queue.segment([launch]).run([out, view], [])
    np.testing.assert_array_equal(read(device, out), np.arange(4, 12) + 7)
    host = (ctypes.c_float * 2).from_address(device.memory.address(view))
    assert list(host) == [4, 5]


def test_a_group_is_no_larger_than_the_kernel_allows(machine):
    machine.most_lanes = 4
    device = open_device("METAL")
    function = added_seven(device)
    with pytest.raises(CompileError, match="added: a group of 8 lanes; .* takes at most 4"):
        device.queue.segment([Launch(function, (0, 1), block=(8, 1, 1))])


def test_nothing_is_left_when_all_is_forgotten(machine):
    device = open_device("METAL")
    place = written(device, range(8))
    segment = device.queue.segment([Launch(added_seven(device), (0, 1), block=(8, 1, 1))])
    for _ in range(200):
        segment.run([place, place], [])
    assert machine.living(fake_metal.CommandBuffer) <= metal_device.MOST_UNDER_WAY + 1
    device.queue.synchronize()
    device.memory.free(place, 32)
    device.memory.blocks.trim(0)
    del segment, place
    for kind in (fake_metal.CommandBuffer, fake_metal.Buffer, fake_metal.Kernel):
        assert machine.living(kind) == 0
    assert machine.arena.used == 0


def test_freed_blocks_are_used_again(machine):
    device = open_device("METAL")
    first = device.memory.allocate(1000)
    device.memory.free(first, 1000)
    assert device.memory.allocate(900).buffer is first.buffer


def test_older_systems_have_no_bfloat(machine):
    machine.languages.discard((3 << 16) + 1)
    target = open_device("METAL").target
    assert "CAST_BFLOAT16" not in target.native and "bfloat16" in target.storage_dtypes


# ---- bad days ------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "darwin", reason="METAL: it may be here")
def test_other_systems_say_in_a_sentence_why_it_is_absent():
    assert "no Metal library here" in why_absent("METAL")


def test_a_mac_without_a_gpu(machine):
    machine.devices.clear()
    assert why_absent("METAL") == "device METAL:0: macOS has no GPU for Metal"


def test_a_number_that_no_device_has(monkeypatch):
    two = fake_metal.Machine(("Apple M0", "Fake eGPU"))
    monkeypatch.setattr(metal_device, "open_library", two.open_library)
    assert open_device("METAL:1").target.cpu == "Fake eGPU"
    assert why_absent("METAL:2") == "device METAL:2: macOS has Apple M0, Fake eGPU"


def test_memory_that_is_not_there(machine):
    machine.arena.capacity = 1 << 20
    memory = open_device("METAL").memory
    with pytest.raises(OutOfMemory, match="2,147,483,648 bytes; a buffer takes 524,288"):
        memory.allocate(1 << 31)
    kept = [memory.allocate(256 << 10) for _ in range(3)]
    memory.free(kept.pop(), 256 << 10)
    kept.append(memory.allocate(400 << 10))  # what was kept is given back first
    with pytest.raises(OutOfMemory):
        memory.allocate(400 << 10)


def test_a_source_that_the_compiler_refuses(machine):
    with pytest.raises(CompileError, match=r"(?s)Metal: .*error.*oops"):
        open_device("METAL").compiler.compile("[[kernel]] void oops(device float* x) { y }")


CODES = {
    1: (DeviceError, "its commands failed", True),
    2: (DeviceError, "ran longer than the system allows", False),
    8: (OutOfMemory, "there is not enough memory", False),
    11: (DeviceError, "its commands failed", True),
}


@pytest.mark.parametrize("code", CODES)
def test_what_goes_wrong_on_the_device_is_told_by_the_next_read(machine, code):
    kind, words, is_lost = CODES[code]
    device = open_device("METAL")
    launch = Launch(added_seven(device), (0, 1), block=(8, 1, 1))
    places = [written(device, range(8)) for _ in range(2)]
    segment = device.queue.segment([launch])
    machine.failures.append(code)
    segment.run(places, [])
    with pytest.raises(kind, match=rf"device METAL: .*{words}.*injected error {code}"):
        read(device, places[0])
    if is_lost:
        with pytest.raises(DeviceError, match="device METAL is lost: .*start the program again"):
            segment.run(places, [])
        assert (Tensor([1, 2], device="CPU") + 1).tolist() == [2, 3]  # others go on
    else:
        segment.run(places, [])
        np.testing.assert_array_equal(read(device, places[0]), np.arange(8) + 7)


def test_the_fake_finds_wrong_types(machine, monkeypatch):
    monkeypatch.setitem(objc.SIGNATURES, "newBufferWithLength:options:", (objc.ID, (objc.COUNT,)))
    with pytest.raises(Misuse):
        open_device("METAL").memory.allocate(1 << 20)
