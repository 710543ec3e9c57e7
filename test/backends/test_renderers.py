"""Linear programs, written by hand, do the same on every backend: the interpreter is the judge,
NumPy the second opinion."""

import functools
import itertools
import math
import os

import ml_dtypes
import numpy as np
import pytest

from tinygrad.backends import canonicalize, open_device, why_absent
from tinygrad.backends.c_dialect import OPENCL
from tinygrad.backends.c_family import CRenderer
from tinygrad.backends.interface import Launch
from tinygrad.backends.interpreter.renderer import PythonRenderer
from tinygrad.backends.llvm_ir import LLVMRenderer
from tinygrad.backends.program import params
from tinygrad.base.dtype import dtypes, to_numpy_name
from tinygrad.base.errors import ArgumentError, DeviceError
from tinygrad.base.target import Target
from tinygrad.uop.instructions import local_layout
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

NAME = "work"
TASKS = ("PYTHON", "CPU", "CL", *(["CLANG"] if why_absent("CLANG") is None else []))
GROUPS = ("PYTHON", "CL")
if "PROGRAMS_ON" in os.environ:  # another backend, in place of these
    TASKS = GROUPS = (os.environ["PROGRAMS_ON"],)


# ---- building programs ---------------------------------------------------------------------------


def const(value, dtype=dtypes.index):
    return UOp.const(dtype, value)


def param(slot, dtype, size=64):
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def at(pointer, offset):
    offset = const(offset) if isinstance(offset, int) else offset
    return UOp(Ops.INDEX, pointer.dtype, (pointer, offset), 1)


def load(pointer, offset, count=1, mask=None, serial=0):
    source = at(pointer, offset)
    arg = (pointer.dtype.itemsize, serial)
    masks = () if mask is None else (mask,)
    return UOp(Ops.LOAD, pointer.dtype.vec(count), (source, *masks), arg)


def store(pointer, offset, value, mask=None, hint=""):
    masks = () if mask is None else (mask,)
    arg = (pointer.dtype.itemsize, hint)
    return UOp(Ops.STORE, dtypes.void, (at(pointer, offset), value, *masks), arg)


def loop(end, begin=0, name="r"):
    end = const(end) if isinstance(end, int) else end
    return UOp(Ops.RANGE, dtypes.index, (const(begin), end), (name, "LOOP"))


def carry(initial, over, serial=0):
    return UOp(Ops.CARRY, initial.dtype, (initial, over), serial)


def end(over, *pairs):
    return UOp(Ops.END, dtypes.void, (over, *pairs))


def splat(value, count):
    return UOp(Ops.VECTORIZE, value.dtype.vec(count), (value,))


def vector(*values):
    return UOp(Ops.VECTORIZE, values[0].dtype.vec(len(values)), values)


def special(name, size):
    return UOp(Ops.SPECIAL, dtypes.index, (), (name, size))


def program(*statements):
    """The statements in order, each after the values that it needs."""
    order = dict.fromkeys(param for s in statements for param in params(s.toposort()))
    for statement in statements:
        order.update(dict.fromkeys(statement.toposort()))
    return list(order)


# ---- running them --------------------------------------------------------------------------------


@functools.cache
def backend(name):
    return open_device(name)


def run(name, steps, arrays, values=(), tasks=1, lanes=1):
    """The arrays after the program ran on them."""
    arrays = [array.copy() for array in arrays]
    device = backend(name)
    source = device.renderer.render(NAME, steps)
    function = device.queue.load(device.compiler.compile(source), NAME)
    handles = [device.memory.allocate(array.nbytes) for array in arrays]
    for handle, array in zip(handles, arrays, strict=True):
        device.memory.write(handle, memoryview(array.view(np.uint8)))
    positions = tuple(range(len(arrays)))
    launch = Launch(
        function,
        positions,
        tuple(range(len(values))),
        (tasks, 1, 1),
        (lanes, 1, 1),
        local_layout(steps)[1],
    )
    device.queue.segment([launch]).run(handles, list(values))
    device.queue.synchronize()
    return [
        np.frombuffer(bytes(device.memory.read(handle, array.nbytes)), array.dtype)
        for handle, array in zip(handles, arrays, strict=True)
    ]


def check(steps, arrays, expected, names=TASKS, **options):
    """On each backend the first array becomes `expected`, bit by bit but for NaN and zeros."""
    for name in names:
        found = run(name, steps, arrays, **options)[0][: len(expected)]
        compare(found, expected, name, steps)


def compare(found, expected, name, steps):
    wanted = np.asarray(expected).astype(found.dtype)
    if found.dtype.itemsize < 4 and found.dtype.kind not in "iub":  # ml_dtypes
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    message = f"{name}\n{PythonRenderer().render(NAME, steps)}"
    np.testing.assert_array_equal(found, wanted, err_msg=message)


def numpy_dtype(dtype):
    name = to_numpy_name(dtype)
    return np.dtype(getattr(ml_dtypes, name, name))


def samples(dtype, count=16):
    """Ordinary numbers and the edges of `dtype`."""
    kind = numpy_dtype(dtype)
    if dtypes.is_float(dtype):
        edges = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 3.25, 1e-3, -7.0, 100.0]
        return np.resize(np.array(edges, kind), count)
    if dtype is dtypes.bool:
        return np.resize(np.array([True, False, False], kind), count)
    low, high = dtypes.min(dtype), dtypes.max(dtype)
    return np.resize(np.array([low, high, 0, 1, 7, high - 1, low + 1, 100, 3, 2, 5], kind), count)


def elementwise(function, sources, output, count=16, width=1, slot=0):
    """A loop (of vectors, if width > 1) that stores `function` of the loads."""
    out = param(slot, output)
    over = loop(count // width, name=f"r{slot}")
    where = over * const(width)
    loads = [load(param(slot + i, d), where, width) for i, d in enumerate(sources, 1)]
    return over, store(out, where, function(*loads)), end(over)


class Table:
    """Elementwise cases that run as one program, since a compiler takes long to start."""

    def __init__(self, width):
        self.width = width
        self.statements, self.arrays, self.expected = [], [], {}

    def add(self, function, sources, output, inputs, expected):
        slot = len(self.arrays)
        self.statements += elementwise(function, sources, output, 16, self.width, slot)
        self.expected[slot] = expected
        self.arrays += [np.zeros(16, numpy_dtype(output)), *inputs]

    def check(self, names=TASKS):
        steps = program(*self.statements)
        for name in names:
            found = run(name, steps, self.arrays)
            for slot, expected in self.expected.items():
                compare(found[slot], expected, f"{name}, parameter {slot}", steps)


def converting():
    """Those that convert half by themselves; for others, codegen/numbers/decompose does."""
    return [name for name in TASKS if "CAST_HALF" in backend(name).target.native]


WIDTHS = (1, 4)
FLOATS = (dtypes.float32, dtypes.float64)
NUMBERS = (*dtypes.ints, *FLOATS)
STORED = (*NUMBERS, dtypes.bool, dtypes.float16, dtypes.bfloat16)

# ---- arithmetic ----------------------------------------------------------------------------------

BINARY = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.MAX: np.maximum,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
}


@pytest.mark.parametrize("width", WIDTHS)
def test_binary_operations_on_every_dtype(width):
    table = Table(width)
    for op, function in BINARY.items():
        for dtype in (*NUMBERS, dtypes.bool):
            output = dtypes.bool if op in GroupOp.Comparison else dtype
            a, b = samples(dtype), np.roll(samples(dtype), 1)
            with np.errstate(all="ignore"):
                expected = function(a, b)
            table.add(lambda a, b, op=op: a.alu(op, b), (dtype, dtype), output, (a, b), expected)
    table.check()


def test_a_vector_of_c_is_as_long_as_the_machines():
    a = np.arange(64, dtype=np.uint8)
    steps = program(
        *elementwise(lambda x: x + x, (dtypes.uint8,), dtypes.uint8, count=64, width=64)
    )
    check(steps, [np.zeros(64, np.uint8), a], a + a, names=("PYTHON", "CPU", *TASKS[3:]))


@pytest.mark.parametrize("width", WIDTHS)
def test_bits_of_integers_and_bools(width):
    table = Table(width)
    rows = {Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or, Ops.XOR: np.bitwise_xor}
    for op, function in rows.items():
        for dtype in (*dtypes.ints, dtypes.bool):
            a, b = samples(dtype), np.roll(samples(dtype), 3)
            expected = function(a, b)
            table.add(lambda a, b, op=op: a.alu(op, b), (dtype, dtype), dtype, (a, b), expected)
    table.check()


@pytest.mark.parametrize("width", WIDTHS)
def test_division_truncates_and_shifts_keep_the_sign(width):
    table = Table(width)
    for dtype in dtypes.ints:
        a = samples(dtype)
        b = np.resize(np.array([3, 7, 2, 5], a.dtype), 16)
        pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
        quotient = [abs(x) // y * (-1 if x < 0 else 1) for x, y in pairs]
        rows = {
            Ops.IDIV: quotient,
            Ops.MOD: [x - q * y for (x, y), q in zip(pairs, quotient, strict=True)],
            Ops.SHL: np.left_shift(a, b),
            Ops.SHR: np.right_shift(a, b),
        }
        for op, expected in rows.items():
            table.add(lambda a, b, op=op: a.alu(op, b), (dtype, dtype), dtype, (a, b), expected)
    table.check()


@pytest.mark.parametrize("width", WIDTHS)
def test_float_functions(width):
    table = Table(width)
    rows = {
        Ops.SQRT: np.sqrt,
        Ops.TRUNC: np.trunc,
        Ops.ROUND: np.rint,
        Ops.RECIP: lambda x: np.array(1, x.dtype) / x,
    }
    for dtype in FLOATS:
        a = samples(dtype)
        for op, function in rows.items():
            with np.errstate(all="ignore"):
                expected = function(a)
            table.add(lambda a, op=op: a.alu(op), (dtype,), dtype, (a,), expected)
    table.check()


@pytest.mark.parametrize("width", (1, 4, 8, 16))
def test_scaling_by_a_power_of_two_is_exact_until_it_is_rounded_once(width):
    table = Table(width)
    powers = [0, 1, -1, 127, 128, -126, math.nan, -149, -150, 200, 24, -24, 5, 1023, -1074, -160]
    for dtype in FLOATS:
        a, n = samples(dtype), np.array(powers, numpy_dtype(dtype))
        whole = np.where(np.isnan(n), 0, n).astype(np.int32)
        with np.errstate(all="ignore"):
            expected = np.where(np.isnan(n), n, np.ldexp(a, whole))
        table.add(lambda a, n: a.alu(Ops.LDEXP, n), (dtype, dtype), dtype, (a, n), expected)
    table.check(
        [name for name in TASKS if "LDEXP" in backend(name).target.native or name == "PYTHON"]
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_multiply_add_rounds_once(width):
    table = Table(width)
    a = np.random.rand(16).astype(np.float32)
    b, c = a[::-1] * 3, -(a * (a[::-1] * 3))
    exact = a.astype(np.float64) * b + c  # the product has 48 bits, and little of it is left
    sources = (dtypes.float32,) * 3
    table.add(lambda *s: s[0].alu(Ops.MULACC, *s[1:]), sources, sources[0], (a, b, c), exact)
    for dtype in FLOATS:
        far, x = const(-math.inf, dtype.vec(width)), a.astype(numpy_dtype(dtype))
        kinds = (dtype,), dtype
        table.add(lambda x, far=far: x.alu(Ops.MULACC, far, x), *kinds, (x,), x * -math.inf)
    table.check()


@pytest.mark.parametrize("width", WIDTHS)
def test_maximum_with_a_constant_keeps_nan(width):
    table = Table(width)
    a = samples(dtypes.float32)
    zero = const(0.0, dtypes.float32.vec(width))
    sources = (dtypes.float32,)
    table.add(lambda a: a.alu(Ops.MAX, zero), sources, dtypes.float32, (a,), np.maximum(a, 0))
    nan = const(math.nan, dtypes.float32.vec(width))
    table.add(lambda a: a.alu(Ops.MAX, nan), sources, dtypes.float32, (a,), a * math.nan)
    table.check()


@pytest.mark.parametrize("width", WIDTHS)
def test_what_wrapped_is_compared_as_wrapped(width):
    table = Table(width)
    for dtype in dtypes.ints:
        a, seven = samples(dtype), const(7, dtype.vec(width))
        with np.errstate(over="ignore"):
            expected = (a + a < 7) & (a * a < 7)
        kinds = (dtype,), dtypes.bool
        table.add(lambda a, c=seven: ((a + a) < c) & ((a * a) < c), *kinds, (a,), expected)
    table.check()


@pytest.mark.parametrize("width", WIDTHS)
def test_where_chooses_on_every_dtype(width):
    table = Table(width)
    for dtype in STORED:
        a, b, c = samples(dtype), np.roll(samples(dtype), 1), samples(dtypes.bool)
        sources = (dtypes.bool, dtype, dtype)
        expected = np.where(c, a, b)
        table.add(lambda c, a, b: c.alu(Ops.WHERE, a, b), sources, dtype, (c, a, b), expected)
    table.check()


def test_constants_of_every_dtype():
    statements, arrays = [], []
    for slot, dtype in enumerate(STORED):
        values = samples(dtype)
        out = param(slot, dtype)
        statements += [store(out, i, const(v, dtype)) for i, v in enumerate(values.tolist())]
        arrays.append(values)
    steps = program(*statements)
    for name in TASKS:
        found = run(name, steps, [np.zeros_like(array) for array in arrays])
        for array, expected in zip(found, arrays, strict=True):
            compare(array, expected, name, steps)


# ---- casts ---------------------------------------------------------------------------------------


def cast_samples(old, new):
    """Numbers of `old` for which the cast to `new` is defined."""
    values = samples(old)
    if dtypes.is_float(old) and dtypes.is_int(new):
        top = min(float(dtypes.max(new)) / 2, 2e9)
        edges = [0.0, 0.75, top, 2.0, 100.9] + ([-1.5, -top] if dtypes.min(new) < 0 else [])
        return np.resize(np.array(edges, values.dtype), 16)
    return values


@pytest.mark.parametrize("width", WIDTHS)
def test_casts(width):
    slow_to_compile = (dtypes.int8, dtypes.uint32, dtypes.int64, dtypes.float32, dtypes.bool)
    rows = (((*NUMBERS, dtypes.bool), ("PYTHON", "CPU")), (slow_to_compile, TASKS[2:]))
    for kinds, names in rows:
        table = Table(width)
        for old, new in itertools.product(kinds, kinds):
            a = cast_samples(old, new)
            with np.errstate(all="ignore"):
                expected = a.astype(numpy_dtype(new))
            table.add(lambda a, new=new: a.cast(new.vec(width)), (old,), new, (a,), expected)
        table.check(names)


@pytest.mark.parametrize("width", WIDTHS)
def test_half_is_loaded_stored_and_cast_to_float(width):
    table = Table(width)
    half, single = dtypes.float16, dtypes.float32
    a = np.array([1.0, 65504, 65520, 1e-7, 2049, 2051, math.nan, -math.inf] * 2, np.float32)
    with np.errstate(over="ignore"):
        halves = a.astype(np.float16)
    table.add(lambda a: a.cast(half.vec(width)), (single,), half, (a,), halves)
    table.add(lambda a: a.cast(single.vec(width)), (half,), single, (halves,), halves)
    table.check(converting())


def test_big_integers_become_floats_with_one_rounding():
    a = np.array([2**62 + 2**38 + 1, 2**53 + 1, -(2**63), 2**63 - 1, 2**24 + 1] * 4, np.int64)[:16]
    table = Table(1)
    kinds = (dtypes.int64,), dtypes.float32
    table.add(lambda a: a.cast(dtypes.float32), *kinds, (a,), a.astype(np.float32))
    table.check()


def test_the_interpreter_rounds_short_floats():
    for dtype in (dtypes.bfloat16, dtypes.float16, dtypes.fp8e4m3, dtypes.fp8e5m2):
        name = {dtypes.fp8e4m3: "float8_e4m3fn", dtypes.fp8e5m2: "float8_e5m2"}.get(dtype)
        kind = np.dtype(getattr(ml_dtypes, name)) if name else numpy_dtype(dtype)
        a = np.array([1.0, 1.06, -3.3, 0.02, 17.0, 250.0, -0.0, math.nan] * 2, np.float32)
        there = elementwise(lambda a, d=dtype: a.cast(d), (dtypes.float32,), dtype)
        back = elementwise(lambda a: a.cast(dtypes.float32), (dtype,), dtypes.float32)
        short = run("PYTHON", program(*there), [np.zeros(16, kind), a])[0]
        found = run("PYTHON", program(*back), [np.zeros(16, np.float32), short])[0]
        np.testing.assert_array_equal(found, a.astype(kind).astype(np.float32))


@pytest.mark.parametrize("width", WIDTHS)
def test_bitcasts_keep_the_bits(width):
    pairs = (
        (dtypes.float32, dtypes.int32),
        (dtypes.uint32, dtypes.float32),
        (dtypes.int64, FLOATS[-1] if FLOATS[-1].itemsize == 8 else dtypes.uint64),
        (dtypes.float16, dtypes.uint16),
        (dtypes.bfloat16, dtypes.uint16),
        (dtypes.uint16, dtypes.bfloat16),
        (dtypes.int8, dtypes.uint8),
    )
    table = Table(width)
    for old, new in pairs:
        a = samples(old)
        kind = numpy_dtype(new)
        table.add(lambda a, n=new: a.bitcast(n.vec(width)), (old,), new, (a,), a.view(kind))
    table.check()


# ---- loops, branches, memory ---------------------------------------------------------------------


def test_a_carried_sum_and_its_last_value():
    a = np.random.rand(64).astype(np.float32)
    out, source, over = param(0, dtypes.float32), param(1, dtypes.float32), loop(64)
    total = carry(const(0.0, dtypes.float32), over)
    following = total + load(source, over)
    steps = program(over, total, following, end(over, total, following), store(out, 0, total * 2.0))
    expected = functools.reduce(lambda x, y: np.float32(x + y), a, np.float32(0))
    check(steps, [np.zeros(4, np.float32), a], [expected * np.float32(2)])


def test_two_carries_take_their_next_values_at_once():
    out, over = param(0, dtypes.int64), loop(10)
    a, b = (carry(const(i, dtypes.int64), over, i) for i in (0, 1))
    total = a + b
    steps = program(
        over, a, b, total, end(over, a, b, b, total), store(out, 0, a), store(out, 1, b)
    )
    check(steps, [np.zeros(2, np.int64)], [55, 89])


def test_nested_loops_with_an_end_that_depends_on_the_outer_one():
    out, outer = param(0, dtypes.int32), loop(6, name="i")
    inner = loop(outer + 1, name="j")
    total = carry(const(0, dtypes.int32), inner)
    following = total + inner.cast(dtypes.int32)
    steps = program(
        outer,
        inner,
        total,
        following,
        end(inner, total, following),
        store(out, outer, total),
        end(outer),
    )
    check(steps, [np.zeros(6, np.int32)], [sum(range(i + 1)) for i in range(6)])


def test_a_loop_that_begins_later_and_a_bound_variable():
    out, size = param(0, dtypes.int32), UOp.variable("n", 1, 60)
    over = loop(size.cast(dtypes.index), begin=3)
    steps = program(size, over, store(out, over, size * 10), end(over))
    expected = [0] * 3 + [90] * 6 + [0] * 7
    check(steps, [np.zeros(16, np.int32)], expected, values=(9,))


def test_a_branch_is_taken_only_where_its_condition_holds():
    out, over = param(0, dtypes.int32), loop(8)
    branch = UOp(Ops.IF, dtypes.void, (over < 3,))
    value = over.cast(dtypes.int32) * 5
    steps = program(
        over,
        branch,
        store(out, over, value),
        UOp(Ops.ENDIF, dtypes.void, (branch,)),
        end(over),
    )
    check(steps, [np.full(8, -1, np.int32)], [0, 5, 10] + [-1] * 5)


def test_tasks_run_the_whole_program_each():
    out, task = param(0, dtypes.int32), special("task", 7)
    steps = program(task, store(out, task, task.cast(dtypes.int32) + 4))
    check(steps, [np.zeros(7, np.int32)], [4, 5, 6, 7, 8, 9, 10], tasks=7)


def test_scratch_memory_of_a_task():
    out, task = param(0, dtypes.float32), special("task", 3)
    tile = UOp(Ops.LOCAL, dtypes.float32, (), ("tile", 4))
    flags = UOp(Ops.LOCAL, dtypes.bool, (), ("flags", 4))
    over, back = loop(4, name="i"), loop(4, name="j")
    value = (task + over).cast(dtypes.float32)
    read = load(tile, const(3) - back, serial=1)
    chosen = load(flags, back, serial=2).alu(Ops.WHERE, read, const(-1.0, dtypes.float32))
    steps = program(
        task,
        tile,
        flags,
        over,
        store(tile, over, value),
        store(flags, over, over < 2),
        end(over),
        back,
        store(out, task * 4 + back, chosen),
        end(back),
    )
    expected = [x for t in range(3) for x in (t + 3, t + 2, -1, -1)]
    check(steps, [np.zeros(12, np.float32)], expected, tasks=3)


@pytest.mark.parametrize(
    "dtype", (dtypes.float32, dtypes.bool, dtypes.int8, dtypes.float16), ids=repr
)
def test_masked_lanes_are_zero_and_touch_no_memory(dtype):
    source, out = param(1, dtype), param(0, dtype)
    lanes = vector(*(const(i) for i in range(4)))
    over = loop(3)
    mask = (splat(over * 4, 4) + lanes) < splat(const(10), 4)
    value = load(source, over * 4, 4, mask)
    steps = program(over, store(out, over * 4, value), end(over))
    a = np.resize(samples(dtype), 10)
    a[np.isnan(a.astype(np.float64))] = 1
    check(steps, [np.ones(12, a.dtype), a], np.concatenate([a, np.zeros(2, a.dtype)]))
    kept = program(over, store(out, over * 4, load(source, over * 4, 4, mask), mask), end(over))
    check(kept, [np.ones(12, a.dtype), a], np.concatenate([a, np.ones(2, a.dtype)]))


def test_masked_scalars():
    source, out, over = param(1, dtypes.float32), param(0, dtypes.float32), loop(8)
    inside = over < 5
    value = load(source, over - 1, mask=inside & (const(0) < over)) + 1.0
    steps = program(over, store(out, over, value, mask=over < 7), end(over))
    a = np.arange(4, dtype=np.float32)
    check(steps, [np.full(8, 9, np.float32), a], [1, 1, 2, 3, 4, 1, 1, 9])


def test_one_mask_may_stand_for_all_lanes():
    source, out, over = param(1, dtypes.float32), param(0, dtypes.float32), loop(2)
    steps = program(over, store(out, over * 4, load(source, over * 4, 4, over < 1)), end(over))
    a = np.arange(4, dtype=np.float32)
    check(steps, [np.ones(8, np.float32), a], [0, 1, 2, 3, 0, 0, 0, 0])


def test_streaming_stores_store():
    source, out, over = param(1, dtypes.float32), param(0, dtypes.float32), loop(4)
    steps = program(
        over, store(out, over * 4, load(source, over * 4, 4), hint="nontemporal"), end(over)
    )
    a = np.arange(16, dtype=np.float32)
    check(steps, [np.zeros(16, np.float32), a], a)


def test_lanes_move_between_vectors():
    source, out = param(1, dtypes.float32), param(0, dtypes.float32)
    a, b = load(source, 0, 4, serial=1), load(source, 4, 4, serial=2)
    mixed = UOp(Ops.SHUFFLE, dtypes.float32.vec(4), (a, b), (0, 4, 3, 6))
    first = UOp(Ops.GEP, dtypes.float32, (b,), 1)
    made = vector(first, const(2.0, dtypes.float32), first, UOp(Ops.GEP, dtypes.float32, (a,), 3))
    flags = UOp(Ops.GEP, dtypes.bool, (a.alu(Ops.CMPLT, b),), 2)
    chosen = flags.alu(Ops.WHERE, first, const(0.0, dtypes.float32))
    steps = program(store(out, 0, mixed), store(out, 4, made), store(out, 8, splat(chosen, 4)))
    a = np.arange(10, 18, dtype=np.float32)
    expected = [10, 14, 13, 16, 15, 2, 15, 13, 15, 15, 15, 15]
    check(steps, [np.zeros(12, np.float32), a], expected)


def test_lanes_of_masks_move_and_one_bit_stands_in_some_lanes():
    source, out, off = param(1, dtypes.float32), param(0, dtypes.float32), const(False, dtypes.bool)
    a, b = load(source, 0, 4, serial=1), load(source, 4, 4, serial=2)
    mask, scalar = a.alu(Ops.CMPLT, b), load(source, 0, serial=3)
    moved = UOp(Ops.SHUFFLE, dtypes.bool.vec(4), (mask, mask), (3, 3, 0, 5))
    bit = scalar.alu(Ops.CMPLT, const(1.0, dtypes.float32))
    some = vector(off, bit, bit, off)
    floats = [UOp(Ops.CAST, dtypes.float32.vec(4), (each,)) for each in (mask, moved, some)]
    steps = program(*(store(out, 4 * i, each) for i, each in enumerate(floats)))
    numbers = np.array([0, 5, 2, 7, 1, 6, 1, 8], np.float32)
    check(steps, [np.zeros(12, np.float32), numbers], [1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 0])


@pytest.mark.parametrize("lanes", [2, 4, 8])
@pytest.mark.parametrize("kind", [dtypes.float32, dtypes.float64])
def test_no_lane_of_zero_over_zero_is_taken_for_zero(kind, lanes):
    """LLVM's code generator knows a quotient to be 0 where it knows both numbers to be."""
    source, out = param(1, kind), param(0, kind)
    zero = const(0.0, kind)
    a, b = (vector(load(source, i), *[zero] * (lanes - 1)) for i in (0, 1))
    first = vector(*(const(i == 0, dtypes.bool) for i in range(lanes)))
    kept = UOp(Ops.WHERE, a.dtype, (first, UOp(Ops.FDIV, a.dtype, (a, b)), vector(*[zero] * lanes)))
    steps = program(store(out, 0, kept))
    numbers = np.array([6, 3], f"f{kind.itemsize}")
    check(steps, [np.zeros(lanes, numbers.dtype), numbers], [2, *[0] * (lanes - 1)])


def test_rounds_of_shuffles_are_fenced_where_they_would_be_searched_for_longer_ones():
    source, out = param(1, dtypes.float32), param(0, dtypes.float32)
    mixed, turns = load(source, 0, 4), (3, 0, 1, 2)
    for _ in range(5):
        mixed = UOp(Ops.SHUFFLE, mixed.dtype, (mixed, mixed), turns)
    steps = program(store(out, 0, mixed))
    check(steps, [np.zeros(4, np.float32), np.arange(4, dtype=np.float32)], [3, 0, 1, 2])
    text = LLVMRenderer(Target("CPU", triple="x86_64-unknown-linux-gnu")).render("f", steps)
    assert text.count("= call <4 x float> @llvm.arithmetic.fence") == 2


# ---- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_fault_is_reported_once(width):
    words, source, over = param(0, dtypes.int64), param(1, dtypes.int64), loop(16 // width)
    value = load(source, over * width, width)
    limit = const(5, dtypes.int64)
    failed = (splat(limit, width) if width > 1 else limit) < value
    steps = program(
        over,
        UOp(Ops.FAULT, dtypes.void, (words, failed, value, over.cast(dtypes.int64)), 42),
        end(over),
    )
    a = np.array([0, 1, 2, 3, 4, 5, 9, 8, 7, 20] + [0] * 6, np.int64)
    check(steps, [np.zeros(4, np.int64), a], [42, 9, 6 // width, 0])
    check(steps, [np.zeros(4, np.int64), np.minimum(a, 5)], [0, 0, 0, 0])


# ---- groups --------------------------------------------------------------------------------------


def test_lanes_of_a_group_meet_at_a_barrier():
    source, out = param(1, dtypes.float32), param(0, dtypes.float32)
    group, lane = special("gid0", 3), special("lid0", 8)
    tile = UOp(Ops.LOCAL, dtypes.float32, (), ("tile", 8))
    where = group * 8
    steps = program(
        group,
        lane,
        tile,
        store(tile, lane, load(source, where + lane)),
        UOp(Ops.BARRIER, dtypes.void),
        store(out, where + lane, load(tile, const(7) - lane, serial=1)),
    )
    a = np.arange(24, dtype=np.float32)
    expected = a.reshape(3, 8)[:, ::-1].ravel()
    check(steps, [np.zeros(24, np.float32), a], expected, GROUPS, tasks=3, lanes=8)


def test_the_interpreter_refuses_an_index_outside():
    out, over = param(0, dtypes.float32), loop(3)
    steps = program(over, store(out, over - 1, const(1.0, dtypes.float32)), end(over))
    with pytest.raises(IndexError, match="element -1"):
        run("PYTHON", steps, [np.zeros(4, np.float32)])


def test_a_view_may_begin_at_any_element():
    steps, a = added_seven(False), np.arange(12, dtype=np.int32)
    for name in TASKS:
        device = backend(name)
        memory = device.memory
        source = device.renderer.render(NAME, steps)
        function = device.queue.load(device.compiler.compile(source), NAME)
        whole = memory.allocate(a.nbytes)
        memory.write(whole, memoryview(a.view(np.uint8)))
        segment = device.queue.segment([Launch(function, (0, 1))])
        views = [memory.view(whole, 12), memory.view(memory.view(whole, 4), 28)]
        if device.target.aligned:
            with pytest.raises(ArgumentError, match="must lie on 64 bytes"):
                segment.run(views, [])
            continue
        segment.run(views, [])
        device.queue.synchronize()
        found = np.frombuffer(bytes(memory.read(whole, 16, 12)), np.int32)
        np.testing.assert_array_equal(found, a[8:] + 7, err_msg=name)


def test_null_runs_nothing_and_reads_zeros():
    found = run("NULL", added_seven(False), [np.ones(4, np.int32), np.ones(4, np.int32)])
    assert not found[0].any()


@pytest.mark.parametrize(
    ("name", "canonical"),
    (("cpu:0", "CPU"), ("CPU:1", "CPU:1"), ("gpu", "CL"), ("llvm", "CPU"), ("python", "PYTHON")),
)
def test_devices_have_one_name(name, canonical):
    assert canonicalize(name) == canonical


def test_an_unknown_device_is_named_with_those_there_are():
    with pytest.raises(DeviceError, match="'TPU' is not known; there are CPU, "):
        open_device("TPU")
    assert why_absent("NULL") is None


# ---- how it reads --------------------------------------------------------------------------------


def added_seven(unrolled):
    out, source = param(0, dtypes.int32, 4), param(1, dtypes.int32, 4)
    if unrolled:
        loads = [load(source, i, serial=i) for i in range(4)]
        return program(*loads, *(store(out, i, v + 7) for i, v in enumerate(loads)))
    over = loop(4)
    return program(over, store(out, over, load(source, over) + 7), end(over))


def test_c_reads_as_documented():
    assert CRenderer().render("E_4n2", added_seven(True)) == (
        "void E_4n2(int* restrict data0, int* restrict data1) {\n"
        "  int val0 = *(data1+0);\n"
        "  int val1 = *(data1+1);\n"
        "  int val2 = *(data1+2);\n"
        "  int val3 = *(data1+3);\n"
        "  *(data0+0) = (val0+7);\n"
        "  *(data0+1) = (val1+7);\n"
        "  *(data0+2) = (val2+7);\n"
        "  *(data0+3) = (val3+7);\n"
        "}\n"
    )
    assert CRenderer().render("E_4n2", added_seven(False)) == (
        "void E_4n2(int* restrict data0, int* restrict data1) {\n"
        "  for (int ridx0 = 0; ridx0 < 4; ridx0++) {\n"
        "    int val0 = *(data1+ridx0);\n"
        "    *(data0+ridx0) = (val0+7);\n"
        "  }\n"
        "}\n"
    )


def test_c_chooses_by_a_comparison_as_it_comes():
    """Not by a mask that was cut to bytes on the way. What GCC wouldn't take for the smaller of two
    integers is written as that."""
    out, source = param(0, dtypes.int32, 4), param(1, dtypes.int32, 4)
    x, most = load(source, 0, 4), const(9, dtypes.int32.vec(4))
    below = x.alu(Ops.CMPLT, most)
    for other, expected in (
        (const(8, x.dtype), "choose(val0<all(int4, 9), val0, all(int4, 8), int4, int4)"),
        (most, "lanewise2(int4, smaller, val0, all(int4, 9))"),
    ):
        found = UOp(Ops.WHERE, x.dtype, (below, x, other))
        ops = program(x, below, other, found, store(out, 0, found))
        assert expected in CRenderer().render("least", ops)


def test_opencl_names_its_kernel_and_its_memory():
    source = CRenderer(OPENCL).render("E_4", added_seven(False))
    assert source.startswith("__kernel void E_4(__global char* data0_whole, const long data0_at, ")
    assert "  __global int* restrict data0 = (__global int*)(data0_whole+data0_at);\n" in source


def test_llvm_loops_turn_at_the_bottom():
    source = LLVMRenderer(Target("CPU")).render("E_4", added_seven(False))
    assert "define void @E_4(ptr noalias %args, i64 %lo, i64 %hi, ptr noalias %scratch)" in source
    assert "phi i64 [ 0, %entry ]" in source
    assert "alloca" not in source
