"""What a backend must write is a table of 25 ops; all else is made of them, and means the same."""

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from backends.absent import MACHINES
from devices import present

from tinygrad.backends import open_device
from tinygrad.backends.amd import target as AMD
from tinygrad.backends.cpu.features import NATIVE_OPS
from tinygrad.backends.cuda import target as CUDA
from tinygrad.backends.interpreter import TARGET
from tinygrad.base.dtype import dtypes
from tinygrad.base.target import ORDINARY
from tinygrad.codegen.derived import RULES
from tinygrad.loops.matrix_units import UNITS
from tinygrad.tensor import Tensor
from tinygrad.uop.instructions import CORE, FACTS, INSTRUCTIONS, NATIVE
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops
from tinygrad.uop.verify import STAGES

spec = importlib.util.spec_from_file_location(
    "renderers", Path(__file__).with_name("test_renderers.py")
)
R = importlib.util.module_from_spec(spec)
spec.loader.exec_module(R)

FLOATS = (dtypes.float32, dtypes.float64)
KINDS = {
    Ops.MAX: (*dtypes.ints, *FLOATS),
    Ops.MOD: dtypes.ints,
    Ops.CMPEQ: (*dtypes.ints, *FLOATS, dtypes.bool),
    Ops.OR: (*dtypes.ints, dtypes.bool),
    Ops.SHL: dtypes.ints,
    Ops.SHR: dtypes.ints,
}
BARE = {"CORE", "TOY"}
"""Devices of the tests that lack what others have."""


class Plain:
    """Writes instructions down, nothing more."""

    def add(self, op, dtype, src, arg=None):
        return UOp(op, dtype, src, arg)

    def widen(self, value, count):
        return value if value.dtype.count == count else R.splat(value, count)


def operands(op, dtype):
    """Ordinary numbers and edges; divisors that are not 0, shifts within the width."""
    a = R.samples(dtype)
    if op is Ops.MOD:
        signs = [3, 7, 2, 5] if dtypes.is_unsigned(dtype) else [3, -7, 2, -5]
        return a, np.resize(np.array(signs, a.dtype), 16)
    if op in (Ops.SHL, Ops.SHR):
        return a, np.resize(np.arange(dtype.bitsize), 16).astype(a.dtype)
    b = np.roll(a, 1)
    if dtypes.is_float(dtype):  # zeros of both signs meet, both ways round
        a[:4], b[:4] = [0.0, -0.0, 0.0, -0.0], [-0.0, 0.0, 0.0, -0.0]
    return a, b


def test_a_backend_writes_at_most_25_ops():
    assert len(CORE) == 25


def test_every_instruction_is_a_row_and_no_other_is_legal():
    assert STAGES["linear"] == set(INSTRUCTIONS) >= CORE | NATIVE
    assert {op.name for op in RULES} | {"FAULT"} == ORDINARY | {"PICK"}
    assert set(INSTRUCTIONS) | {Ops.POW, Ops.THREEFRY} >= GroupOp.ALU


def test_what_a_target_names_as_native_is_an_op_a_fact_or_a_unit():
    known = {op.name for op in INSTRUCTIONS} | {row.brought for row in INSTRUCTIONS.values()}
    known |= set(FACTS) | {unit.feature for unit in UNITS.values()}
    chips = [CUDA.chip_target(chip) for chip in CUDA.CHIPS]
    chips += [AMD.chip_target(chip, chip.name) for chip in AMD.CHIPS]
    chips += [target for target, _ in MACHINES.values()] + [TARGET]
    assert set().union(NATIVE_OPS, *(target.native for target in chips)) <= known


@pytest.mark.parametrize("width", R.WIDTHS)
@pytest.mark.parametrize("op", KINDS, ids=lambda op: op.name)
def test_what_is_derived_means_the_same_to_the_bit(op, width):
    statements, arrays = [], []
    for dtype in KINDS[op]:
        output = dtypes.bool if op in GroupOp.Comparison else dtype
        for function in (lambda a, b: a.alu(op, b), lambda a, b: RULES[op](Plain(), a, b)):
            sources = (dtype, dtype)
            statements += R.elementwise(function, sources, output, 16, width, len(arrays))
            arrays += [np.zeros(16, R.numpy_dtype(output)), *operands(op, dtype)]
    found = R.run("PYTHON", R.program(*statements), arrays)
    for i in range(0, len(arrays), 6):
        native, derived = found[i], found[i + 3]
        np.testing.assert_array_equal(native, derived)
        number = native == native
        np.testing.assert_array_equal(np.signbit(native[number]), np.signbit(derived[number]))


def test_a_number_picks_one_of_several():
    number, values = np.arange(16) % 4, np.arange(16, dtype=np.int32) + 100
    sources, statements, arrays = (dtypes.int64, dtypes.int32), [], []
    for pick in (lambda *src: UOp(Ops.PICK, dtypes.int32, src), partial(RULES[Ops.PICK], Plain())):

        def one_of(n, x, pick=pick):
            return pick(n, x, *(UOp.const(dtypes.int32, c) for c in (7, 8, 9)))

        statements += R.elementwise(one_of, sources, dtypes.int32, 16, 1, len(arrays))
        arrays += [np.zeros(16, np.int32), number, values]
    found = R.run("PYTHON", R.program(*statements), arrays)
    wanted = np.where(number == 0, values, number + 6).tolist()
    assert found[0].tolist() == found[3].tolist() == wanted


@pytest.mark.parametrize("op", (Ops.SHL, Ops.SHR, Ops.MAX), ids=lambda op: op.name)
def test_a_known_operand_makes_it_shorter(op):
    a = R.load(R.param(1, dtypes.float32 if op is Ops.MAX else dtypes.int32), 0)
    known, unknown = UOp.const(a.dtype, 3), R.load(R.param(2, a.dtype), 0)
    sizes = [len(RULES[op](Plain(), a, b).toposort()) for b in (known, unknown)]
    assert sizes[0] < sizes[1]


def test_devices_say_what_they_have():
    """An op that is missing in Target.native is not wrong but slow; so nobody forgets one."""
    lacking = {name for name in present() if not open_device(name).target.native >= ORDINARY}
    assert lacking <= BARE


@pytest.mark.parametrize("count", [1, 5])
def test_a_fault_is_told_without_an_instruction_for_it(count):
    table = Tensor(np.arange(6, dtype=np.float32), device="CORE")
    index = np.zeros(count, np.int32)
    index[-1] = 7
    with pytest.raises(IndexError, match="index 7 is out of range on axis 0; legal are -6 to 5"):
        table[Tensor(index, device="CORE")].numpy()
