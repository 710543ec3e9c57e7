"""What is WebGPU's own: how shaders read, elements that share words, views, limits, errors. That
operations are right there is what the op tests and the fuzzer say."""

import functools
import operator
import os
import subprocess
import sys

import numpy as np
import pytest

from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.backends import DEVICES, open_device, why_absent
from tinygrad.backends.interface import Launch
from tinygrad.backends.program import most_turns
from tinygrad.backends.wgsl import WGSLRenderer
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import CompileError, DeviceError, DTypeError, OutOfMemory
from tinygrad.base.settings import Context
from tinygrad.base.target import Target
from tinygrad.engine.making import plan_of
from tinygrad.engine.recipes import lower_kernel
from tinygrad.engine.structure import structure_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

ANY = Target("WEBGPU")


@functools.cache
def backend():
    return open_device("WEBGPU")


def param(slot, dtype, size):
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def at(pointer, offset):
    return UOp(Ops.INDEX, pointer.dtype, (pointer, offset), 1)


def added_seven(dtype=dtypes.int32, size=4):
    """data0[i] = data1[i] + 7, a lane an element."""
    out, source, lane = param(0, dtype, size), param(1, dtype, size), lanes(size)
    there, here = at(source, lane), at(out, lane)
    value = UOp(Ops.LOAD, dtype, (there,), (dtype.itemsize, 0))
    total = value + UOp.const(dtype, 7)
    put = UOp(Ops.STORE, dtypes.void, (here, total), (dtype.itemsize, ""))
    return [out, source, lane, there, value, total, here, put]


def lanes(size):
    return UOp(Ops.SPECIAL, dtypes.index, (), ("lid0", size))


def loaded(source, name="k"):
    return backend().queue.load(backend().compiler.compile(source), name)


def ran(function, handles):
    backend().queue.segment([Launch(function, tuple(range(len(handles))))]).run(handles, [])


def test_a_shader_reads_as_documented():
    assert WGSLRenderer(ANY).render("E_4", added_seven()) == (
        '// {"buffers": [[4, 16, [0]], [4, 16, [0]]], "variables": 0}\n'
        "struct Given { at0: i32, at1: i32, nothing: u32 }\n"
        "@group(0) @binding(0) var<storage, read_write> data0: array<i32>;\n"
        "@group(0) @binding(1) var<storage, read_write> data1: array<i32>;\n"
        "@group(0) @binding(2) var<uniform> given: Given;\n"
        "@compute @workgroup_size(4, 1, 1) fn E_4(@builtin(workgroup_id) group: vec3<u32>, "
        "@builtin(local_invocation_id) lane: vec3<u32>) {\n"
        "  let lid0: i32 = i32(lane.x);\n"
        "  let val0: i32 = data1[given.at1+lid0];\n"
        "  data0[given.at0+lid0] = (val0+7);\n"
        "}\n"
    )


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int16, dtypes.int32], ids=lambda d: d.name)
def test_a_view_begins_at_any_element_and_leaves_its_neighbours(dtype):
    """Lanes that store bytes of one word don't lose each other's."""
    kind, memory = np.dtype(dtype.fmt), backend().memory
    function = loaded(WGSLRenderer(ANY).render("k", added_seven(dtype, 50)))
    source, before = np.arange(100, dtype=kind), np.full(200, 9, kind)
    given, out = memory.allocate(source.nbytes), memory.allocate(before.nbytes)
    for first, second in ((0, 0), (1, 3), (33, 70), (49, 149)):
        memory.write(given, memoryview(source).cast("B"))
        memory.write(out, memoryview(before).cast("B"))
        size = kind.itemsize
        ran(function, [memory.view(out, second * size), memory.view(given, first * size)])
        wanted = before.copy()
        wanted[second : second + 50] = source[first : first + 50] + 7
        found = np.frombuffer(bytes(memory.read(out, before.nbytes)), kind)
        np.testing.assert_array_equal(found, wanted)


def test_bytes_are_read_and_written_at_any_place():
    memory, held = backend().memory, bytearray(range(64))
    place = memory.allocate(64)
    memory.write(place, memoryview(held))
    for begin, size in ((0, 1), (1, 2), (3, 5), (7, 1), (8, 9), (63, 1), (4, 8), (5, 0)):
        data = bytes([200 + begin % 50]) * size
        memory.write(memory.view(place, begin), memoryview(data))
        held[begin : begin + size] = data
        assert bytes(memory.read(place, 64)) == held, (begin, size)
        assert bytes(memory.read(place, size, begin)) == data


def test_more_inputs_than_the_device_binds():
    xs = [Tensor(np.full(5, i, np.float32), device="WEBGPU") for i in range(70)]
    assert functools.reduce(operator.add, xs).tolist() == [69 * 35] * 5


@pytest.mark.parametrize("kind", ["float32", "int64", "int16", "uint8", "bool"])
def test_arrays_beyond_the_largest_binding(kind, monkeypatch):
    """On a device whose bindings hold 512 bytes: read in order, across, by address."""
    monkeypatch.setitem(DEVICES, "SMALL", "backends.small_device")
    values = np.random.default_rng(0).integers(0, 100, (9, 150)).astype(kind)
    rows = np.random.default_rng(1).integers(-9, 9, 70)
    x, at = Tensor(values, device="SMALL"), Tensor(rows, device="SMALL")
    np.testing.assert_array_equal(x.T.contiguous().numpy(), values.T)
    np.testing.assert_array_equal(
        x.where(x.flip(0), x.flip(1)).numpy()[::2, 1:],
        np.where(values, values[::-1], values[:, ::-1])[::2, 1:],
    )
    np.testing.assert_array_equal(x[at, 3:].numpy(), values[rows, 3:])
    np.testing.assert_array_equal(x.sum(0).numpy(), values.sum(0))
    with pytest.raises(IndexError, match="index 9 is out of range"):
        x[Tensor([*[0] * 200, 9], device="SMALL")].numpy()


def test_products_beyond_the_largest_binding(monkeypatch):
    monkeypatch.setitem(DEVICES, "SMALL", "backends.small_device")
    a, b = (np.random.default_rng(0).random(s, np.float32) for s in ((65, 33), (33, 70)))
    x, y = Tensor(a, device="SMALL"), Tensor(b, device="SMALL")
    np.testing.assert_allclose((x @ y + 1).relu().numpy(), a @ b + 1, rtol=1e-5)
    np.testing.assert_allclose(x.softmax().numpy(), Tensor(a).softmax().numpy(), rtol=1e-5)


TOO_WIDE = {
    "a product": (((180, 190), (190, 200)), lambda a, b: (a @ b).relu() + 1),
    "by a transposed one": (((180, 48), (700, 48)), lambda a, b: a @ b.T),
    "of a transposed one": (((190, 180), (190, 200)), lambda a, b: a.T @ b),
    "of halves": (((180, 190), (190, 200)), lambda a, b: (a.half() @ b.half()).float()),
    "in rows": (((180, 190), (190, 200)), lambda a, b: (a @ b).softmax()),
    "in batches": (((2, 90, 190), (2, 190, 200)), lambda a, b: a @ b),
    "columns": (((190, 200),), lambda a: a.sum(0) + a.max(0) + a.var(0)),
    "places": (((190, 200),), lambda a: a.argmax(0)),
    "a softmax": (((190, 200),), lambda a: a.softmax(0)),
    "turned": (((1000, 40),), lambda a: a.T.contiguous() + 1),
    "rows by number": (((190, 200),), lambda a: a[(Tensor.arange(70, device=a.device) * 37) % 190]),
    "rows from the end": (((190, 200),), lambda a: a[-1 - Tensor.arange(70, device=a.device)]),
    "places in rows": (((30, 1300),), lambda a: a.gather(1, (a * 1000).int())),
    "places in long rows": (((2, 17000),), lambda a: a.gather(1, (a * 16000).int())),
    "a gradient": (((180, 190), (190, 200)), lambda a, b: (a @ b).square().sum().gradient(b)[0]),
    "columns by number": (
        ((190, 200),),
        lambda a: a[:, (Tensor.arange(70, device=a.device) * 37) % 200],
    ),
    "places in columns": (((1300, 30),), lambda a: a.T.gather(1, (a.T * 1000).int())),
    "sorted columns": (((190, 200),), lambda a: a.sort(0)[0]),
    "far apart": (((190, 200),), lambda a: a.roll(37, 0) + a.roll(5, 1) + a[0, 0] * a[-1, -1]),
    "a search": (((40000,), (7,)), lambda a, b: (a / 40000).cumsum(0).searchsorted(b / 2)),
    "a search in rows": (((2, 20000), (2, 3)), lambda a, b: a.cummax(1)[0].searchsorted(b)),
    "a line": (((40000,), (7,)), lambda a, b: b.interp(a.cummax(0)[0], a)),
    "added by number": (
        ((40000,), (300,)),
        lambda a, b: a.scatter_reduce(0, (b * 99).int() * 400, b, "sum"),
    ),
    "a row's gradient": (
        ((190, 200), (64,)),
        lambda a, b: a[(b * 190).int()].exp().sum().gradient(a)[0],
    ),
    "written by number": (
        ((190, 200), (50,)),
        lambda a, b: a.index_put(((b * 190).int(), (b * 200).int()), b),
    ),
    "written in columns": (
        ((190, 200),),
        lambda a: a.scatter(1, (a[:, :2] * 200).int(), a[:, 2:4] + 1),
    ),
    "many into many": (((40000,),), lambda a: (a * 40000).int().bincount(minlength=40000)),
    "many into few": (((40000,),), lambda a: a.histc(10, 0, 1)),
}


def quickly(*names):
    """All of TOO_WIDE; those that aren't named are slow."""
    return [
        pytest.param(what, marks=() if what in names else pytest.mark.slow) for what in TOO_WIDE
    ]


@pytest.mark.parametrize("what", quickly("a product", "columns", "rows by number"))
def test_what_goes_through_more_of_an_array_than_a_kernel_binds_is_done_in_parts(what, monkeypatch):
    """Arrays take ten of a device's eight bindings: a product's second operand for each element."""
    monkeypatch.setitem(DEVICES, "TIGHT", "backends.tight_device")
    shapes, operation = TOO_WIDE[what]
    values = [np.random.default_rng(0).random(shape, np.float32) for shape in shapes]
    found, wanted = (
        operation(*(Tensor(v, device=device, requires_grad=True) for v in values)).numpy()
        for device in ("TIGHT", "CPU")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-3 if what == "of halves" else 1e-4)


def test_temporaries_lie_in_several_buffers_where_one_would_be_too_long(monkeypatch):
    monkeypatch.setitem(DEVICES, "TIGHT", "backends.tight_device")
    values = np.random.default_rng(0).random((4, 190, 200), np.float32)
    each = [Tensor(v, device="TIGHT").realize() for v in values]
    step = TinyJit(lambda *xs: sum((x.exp().contiguous().flip(0) for x in xs), xs[0]).realize())
    for _ in range(4):
        found = step(*each).numpy()
        np.testing.assert_allclose(found, values[0] + np.exp(values)[:, ::-1].sum(0), rtol=1e-5)


def test_lanes_share_what_goes_through_more_than_a_group_binds(monkeypatch):
    """Also where the kernel has many portions, which are as many programs."""
    monkeypatch.setitem(DEVICES, "TIGHT", "backends.tight_device")
    x, y = (Tensor.empty(190, 200, device="TIGHT").realize() for _ in range(2))
    (step,) = plan_of(structure_of([(x @ y.T).uop]).sink).steps
    assert "LANE" in str(lower_kernel(step.ast, Device["TIGHT"])[1])


def test_many_long_arrays_are_added_a_few_at_a_time(monkeypatch):
    """A group that comes to the next window of each binds twice as many."""
    monkeypatch.setitem(DEVICES, "TIGHT", "backends.tight_device")
    values = np.random.default_rng(0).random((6, 190, 60), np.float32)
    found = functools.reduce(operator.add, [Tensor(v, device="TIGHT") for v in values])
    np.testing.assert_allclose(found.numpy(), values.sum(0), rtol=1e-5)


@pytest.mark.parametrize("shape", [(9000,), (2, 4500), (7, 1200)])
def test_rows_that_no_kernel_sees_as_a_whole_are_sorted(shape, monkeypatch):
    """By chunks that meet, one of them cut short; some rows at a time."""
    monkeypatch.setitem(DEVICES, "TIGHT", "backends.tight_device")
    x = np.random.default_rng(0).integers(0, 3000, shape).astype(np.float32)
    x[..., 5], x[..., -9] = np.nan, np.inf
    values, places = Tensor(x, device="TIGHT").sort()
    wanted = np.argsort(x, -1, kind="stable")
    np.testing.assert_array_equal(places.numpy(), wanted)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, wanted, -1))


def test_running_values_go_on_from_part_to_part(monkeypatch):
    """Across rows, each longer than a binding."""
    monkeypatch.setitem(DEVICES, "TIGHT", "backends.tight_device")
    x = np.random.default_rng(0).random((5, 9000), np.float32)
    rows = Tensor(x, device="TIGHT")
    np.testing.assert_allclose((rows + 1).cumsum(0).numpy(), (x + 1).cumsum(0), rtol=1e-6)
    np.testing.assert_array_equal(rows.cummax(0)[0].numpy(), np.maximum.accumulate(x))


@pytest.fixture
def bare(monkeypatch):
    """The name of a device that has what the standard promises and nothing else."""
    monkeypatch.setitem(DEVICES, "BARE", "backends.bare_device")
    return "BARE"


def copies(xs):
    return [(x + i).realize() for i in range(9) for x in xs]


PROMISED = {
    "27 buffers": lambda xs: functools.reduce(operator.add, copies(xs)),
    "joined parts": lambda xs: Tensor.cat(*[x[:, i:] for i, x in enumerate(copies(xs))], dim=1),
    "a product": lambda xs: xs[0] @ xs[1].T,
    "of halves": lambda xs: (xs[0].half() @ xs[1].half().T).float(),
    "a softmax": lambda xs: (xs[0] @ xs[1].T).softmax(),
    "attention": lambda xs: xs[0].scaled_dot_product_attention(xs[1], xs[2]),
    "a sort": lambda xs: xs[0].flatten().sort()[0],
    "running sums": lambda xs: xs[0].flatten().cumsum(),
}


@pytest.mark.parametrize("what", PROMISED)
def test_what_the_standard_promises_is_enough(what, bare):
    values = np.random.default_rng(0).standard_normal((3, 150, 70), np.float32)
    found, wanted = (
        PROMISED[what]([Tensor(v, device=device) for v in values]).numpy()
        for device in (bare, "CPU")
    )
    tolerance = 1e-2 if what == "of halves" else 1e-4
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_without_a_clock_of_the_device_the_host_times_kernels(bare):
    backend = Device[bare].backend
    source = WGSLRenderer(ANY).render("k", added_seven())
    function = backend.queue.load(backend.compiler.compile(source), "k")
    handles = [backend.memory.allocate(16), backend.memory.allocate(16)]
    segment = backend.queue.segment([Launch(function, (0, 1))] * 3)
    times = segment.run(handles, [], timed=True)
    assert len(times) == 3 and all(0 < time < 1 for time in times)
    with Context(DEBUG=2):
        assert (Tensor([1.0], device=bare) + 1).tolist() == [2.0]


REDUCED = {
    "sum": (np.float32, lambda x: x.sum(1)),
    "largest half": (np.float16, lambda x: x.max(1)),
    "sum of 64 bits": (np.int64, lambda x: (x * 123_456_789_123).sum(1)),
    "largest of 64 bits": (np.int64, lambda x: (x * -123_456_789_123).max(1)),
    "any": (np.float32, lambda x: (x > 99).any(1)),
    "bytes": (np.int8, lambda x: x.min(1)),
}


@pytest.mark.parametrize("what", REDUCED)
def test_lanes_of_a_subgroup_exchange_what_they_reduced(what, monkeypatch):
    if not backend().target.warp:
        pytest.skip("WEBGPU: no subgroups")
    kind, operation = REDUCED[what]
    sources = []
    compiler = type(Device["WEBGPU"].compiler)
    kept = compiler.compile
    monkeypatch.setattr(compiler, "compile", lambda c, s: (sources.append(s), kept(c, s))[1])
    values = np.random.default_rng(0).integers(-100, 100, (3, 1500)).astype(kind)
    with Context(CACHELEVEL=0):
        found = operation(Tensor(values, device="WEBGPU")).numpy()
    np.testing.assert_array_equal(found, operation(Tensor(values, device="CPU")).numpy())
    assert any("subgroupShuffleXor" in source for source in sources)


def test_more_groups_than_a_dimension_takes():
    x = Tensor(np.arange(70001, dtype=np.int32), device="WEBGPU").reshape(70001, 1, 1)
    rows = x.expand(70001, 1, 32).contiguous() + 1
    assert rows.sum((1, 2)).tolist() == (32 * np.arange(1, 70002)).tolist()


def test_the_bits_of_halves():
    given = np.array([1, -2, 0.0, -0.0, 6e-8, -6e-8, 65504, np.inf, -np.inf], np.float16)
    x = Tensor(given, device="WEBGPU")
    assert x.bitcast(dtypes.int16).tolist() == given.view(np.int16).tolist()
    assert (x.bitcast(dtypes.uint16) ^ 0x8000).bitcast(dtypes.half).numpy().tobytes() == (
        -given
    ).tobytes()


def test_random_numbers_and_long_integers_are_those_of_the_cpu():
    for make in (
        lambda device: Tensor.rand(100, device=device),
        lambda device: Tensor.randint(50, low=-(2**40), high=2**45, dtype="int64", device=device),
        lambda device: Tensor([2**40 + 7, -(2**62), 5], device=device, dtype="int64") // 13,
        lambda device: Tensor([0.5, 1e18, -3e9], device=device).cast("int64") * 3,
    ):
        Tensor.manual_seed(7)
        wanted = make("CPU").numpy()
        Tensor.manual_seed(7)
        np.testing.assert_array_equal(make("WEBGPU").numpy(), wanted)


def test_float64_is_stored_and_converted_and_nothing_else():
    x = Tensor(np.array([[1.5, -2.25], [1e300, 0.1]]), device="WEBGPU")
    assert x.T.contiguous().tolist() == [[1.5, 1e300], [-2.25, 0.1]]
    np.testing.assert_array_equal(x.float().numpy()[1], np.float32([np.inf, 0.1]))
    assert (Tensor([3, 2**60 + 1], device="WEBGPU").cast("float64")).tolist() == [3.0, 2.0**60]
    with pytest.raises(DTypeError, match=r"add of float64: .*legal are .*float32"):
        (x + 1).tolist()


def test_a_training_step_is_that_of_the_cpu():
    """A convolution, batch norm, max pool, a captured Adam step, three times."""
    images = np.random.default_rng(0).random((8, 1, 12, 12), np.float32)
    labels = np.arange(8) % 5

    def trained(device):
        Tensor.manual_seed(1)
        layers = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm(4), nn.Linear(100, 5)
        parameters = [p.to_(device) for p in nn.state.get_parameters(layers)]
        x, y = Tensor(images, device=device), Tensor(labels, device=device)
        optimizer = nn.optim.Adam([p for p in parameters if p.requires_grad is not False], lr=0.01)

        @TinyJit
        @Tensor.train()
        def step():
            optimizer.zero_grad()
            out = layers[1](layers[0](x)).relu().max_pool2d().flatten(1)
            loss = layers[2](out).sparse_categorical_crossentropy(y).backward()
            return loss.realize(*optimizer.schedule_step())

        losses = [step().item() for _ in range(3)]
        return losses, [p.numpy() for p in parameters]

    (ours, found), (theirs, wanted) = trained("WEBGPU"), trained("CPU")
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


def test_kernels_are_timed_by_the_device():
    memory, function = backend().memory, loaded(WGSLRenderer(ANY).render("k", added_seven()))
    handles = [memory.allocate(16), memory.allocate(16)]
    segment = backend().queue.segment([Launch(function, (0, 1))] * 3)
    times = segment.run(handles, [], timed=True)
    assert len(times) == 3 and all(0 <= time < 1 for time in times)


# ---- errors --------------------------------------------------------------------------------------


def test_a_refused_shader_names_its_kernel_and_shows_the_line():
    source = WGSLRenderer(ANY).render("E_4", added_seven()).replace("+7", "+7.5f")
    with pytest.raises(CompileError, match=r"(?s)WGSL, kernel E_4: .*val0\+7\.5f.*data0: array"):
        backend().compiler.compile(source)


def test_a_buffer_beyond_what_a_kernel_sees():
    largest = 1 << 40
    with pytest.raises(OutOfMemory, match=r"\[allocate\] 1,099,511,627,776 bytes; a buffer takes"):
        backend().memory.allocate(largest)
    small = Target("WEBGPU", buffer_limit=8, window_limit=1024)
    with pytest.raises(OutOfMemory, match=r"kernel E_9 .* 5 \+ 5 bindings of 1,024 .* has 8"):
        WGSLRenderer(small).render("E_9", added_seven(size=1025))


def test_an_array_of_more_elements_than_a_place_counts():
    x = Tensor.ones(1 << 16, 1, device="WEBGPU").contiguous().realize()
    with pytest.raises(OutOfMemory, match=r"an array of 17,179,869,184 bytes; a buffer takes"):
        (x @ x.T).contiguous().realize()
    assert x[:2].tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("count", [60_000, 200_000])
def test_a_loop_in_order_turns_as_often_as_there_are_updates(count):
    """Also where a driver ends loops before their time, those of tests (CHECK) included."""
    values = np.random.default_rng(0).integers(0, 4, (count, 3), np.int32)
    found = Tensor(values, device="WEBGPU")
    sums = Tensor.zeros(4, dtype="int32", device="WEBGPU")
    sums = sums.scatter_reduce(0, found[:, 0], found.sum(1, dtype="int32"), "sum")
    wanted = [int(values[values[:, 0] == i].sum()) for i in range(4)]
    assert sums.tolist() == wanted
    last = Tensor.zeros(4, dtype="int32", device="WEBGPU").scatter(0, found[:, 0], found[:, 1])
    assert last.tolist() == [int(values[values[:, 0] == i][-1, 1]) for i in range(4)]


def test_a_loop_that_the_driver_would_end_before_its_time():
    turn = UOp(
        Ops.RANGE, dtypes.index, (UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 70_000)), 0
    )
    program = [turn, UOp(Ops.END, dtypes.void, (turn,))]
    small = Target("WEBGPU", cpu="llvmpipe", turn_limit=65_535)
    with pytest.raises(CompileError, match=r"turn 70,000 times, and llvmpipe .* after 65,535"):
        WGSLRenderer(small).render("k", program)


def test_of_a_bundles_parts_a_lane_turns_the_loops_of_one():
    condition = UOp.const(dtypes.bool, True)
    program = []
    for number, turns in enumerate((3, 50, 7)):
        part = UOp(Ops.IF, dtypes.void, (condition,), ("part", number))
        ends = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, turns)
        outer, inner = (UOp(Ops.RANGE, dtypes.index, ends, (number, i)) for i in range(2))
        closed = (UOp(Ops.END, dtypes.void, (loop,)) for loop in (inner, outer))
        program += [part, outer, inner, *closed, UOp(Ops.ENDIF, dtypes.void, (part,))]
    assert most_turns(program) == 50 + 50 * 50 + 6


def test_a_device_that_is_lost_says_so_each_time_and_another_goes_on():
    lost = open_device("WEBGPU")
    held = lost.memory.allocate(64)
    lost.memory.connection.opened.destroy()
    with pytest.raises(DeviceError, match=r"(?s)^\[read\] on WEBGPU: .*lost"):
        lost.memory.read(held, 64)
    for _ in range(2):
        with pytest.raises(
            DeviceError, match="^device WEBGPU is lost: .*; start the program again$"
        ):
            lost.memory.allocate(1 << 20)
    assert (Tensor([1.0], device="WEBGPU") + 1).tolist() == [2.0]


def test_an_adapter_that_is_not_there():
    with pytest.raises(DeviceError, match="WEBGPU:9: there are WEBGPU:0 "):
        open_device("WEBGPU:9")
    assert why_absent("WEBGPU") is None


@pytest.mark.parametrize("most", [10, 1e3, 1e6, 1e8])
def test_remainders_are_exact_though_products_are_rounded_before_sums(most):
    rng = np.random.default_rng(0)
    a = ((rng.random(1000) - 0.5) * most).astype(np.float32)
    b = (rng.random(1000) * 3 + 0.1).astype(np.float32)
    x, y = Tensor(a).to("WEBGPU"), Tensor(b).to("WEBGPU")
    assert (x.fmod(y).numpy() == np.fmod(a, b)).all()
    assert ((x // y).numpy() == np.floor_divide(a, b)).all()


INFINITE = np.float32([1, -np.inf, np.inf, np.nan, 0.0, -0.0, 2] + 93 * [1])
NOTHING = np.where(np.isfinite(INFINITE), np.float32(0), np.float32("nan"))
CANCELLED = {
    "running sums": (lambda x: x[:2].cat(x[6:]).cumsum(0), np.float32([1] + 95 * [-np.inf])),
    "a difference of halves": (lambda x: (x.half() - x.half()).float(), NOTHING),
    "a difference of sums": (lambda x: (x + 1) - (x + 1), NOTHING),
    "a zero added": (lambda x: 1 / (x[5:6] + 0), np.float32([np.inf])),
}


@pytest.mark.parametrize("what", CANCELLED)
def test_what_a_compiler_of_real_numbers_would_cancel_is_computed(what):
    function, wanted = CANCELLED[what]
    np.testing.assert_array_equal(function(Tensor(INFINITE, device="WEBGPU")).numpy(), wanted)


NO_DRIVER = "from tinygrad.backends import why_absent; print(why_absent('WEBGPU'))"


def test_a_machine_without_a_driver_is_told_what_to_install():
    facts = {"VK_ICD_FILENAMES": "/nowhere", "VK_DRIVER_FILES": "/nowhere"}
    ran = subprocess.run(
        [sys.executable, "-c", NO_DRIVER], env=os.environ | facts, capture_output=True, text=True
    )
    assert "no driver answers" in ran.stdout and "mesa-vulkan-drivers" in ran.stdout, ran.stderr
