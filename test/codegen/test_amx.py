"""Products in tile registers (AMX), whether or not this machine has them: the linear program in the
interpreter; the LLVM IR with each tile instruction replaced by a function that does what Intel's
manual says; the assembly that LLVM makes of it."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.backends.llvm_ir import LLVMRenderer
from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.codegen.pipeline import lower
from tinygrad.loops.heuristic import schedule
from tinygrad.uop import Ops

spec = importlib.util.spec_from_file_location("kernels", Path(__file__).with_name("kernels.py"))
K = importlib.util.module_from_spec(spec)
spec.loader.exec_module(K)

BF, F32, I8, U8, I32 = (
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.int8,
    dtypes.uint8,
    dtypes.int32,
)
HOST = K.host_target()
FEATURES = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+fma,+amx-tile,+amx-bf16,+amx-int8,+amx-fp16"
AMX = Target(
    "CPU",
    triple="x86_64-unknown-linux-gnu",
    cpu="sapphirerapids",
    features=FEATURES,
    vector=64,
    registers=32,
    dtypes=frozenset(("bool", "int8", "uint8", "int32", "int64", "float32", "float64")),
    storage_dtypes=HOST.storage_dtypes,
    native=HOST.native,
)


def product(m_, n_, k_, at, bt, a_dtype, b_dtype, out):
    m, n, k = K.loop("m", m_), K.loop("n", n_), K.loop("k", k_)
    a_shape, a_at = ((k_, m_), (k, m)) if at else ((m_, k_), (m, k))
    b_shape, b_at = ((n_, k_), (n, k)) if bt else ((k_, n_), (k, n))
    a, b = K.read(1, a_shape, *a_at, dtype=a_dtype), K.read(2, b_shape, *b_at, dtype=b_dtype)
    total = (a.cast(out) * b.cast(out)).reduce("add", k)
    return K.out((m_, n_), total + K.const(1, out), m, n)


def drawn(shape, dtype):
    """Small whole numbers, as they are stored, and as numbers."""
    low, high = {BF: (-8, 8), dtypes.float16: (-8, 8), I8: (-128, 128), U8: (0, 256)}[dtype]
    values = np.random.default_rng(sum(shape)).integers(low, high, shape)
    if dtype is BF:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), values
    return values.astype(K.NUMPY[dtype]), values


def example(sizes, at, bt, a_dtype, b_dtype, out, target=AMX):
    m, n, k = sizes
    a, a_values = drawn((k, m) if at else (m, k), a_dtype)
    b, b_values = drawn((n, k) if bt else (k, n), b_dtype)
    expected = (a_values.T if at else a_values) @ (b_values.T if bt else b_values) + 1
    kernel, recipe = schedule(product(m, n, k, at, bt, a_dtype, b_dtype, out), target)
    unit = next(step[3] for step in recipe if step[0] == "tensorise")
    assert unit.startswith("tdp")
    return kernel, [a, b], expected.astype(K.NUMPY[out])


# ---- the instructions ----------------------------------------------------------------------------


class TileUnit:
    """Eight tiles of 16 rows of 64 bytes, and the instructions on them."""

    def __init__(self):
        self.tiles = np.zeros((8, 16, 64), np.uint8)
        self.configured = False
        self.count = 0

    def ldtilecfg(self, where):
        config = bytes((ctypes.c_ubyte * 64).from_address(where))
        assert config[0] == 1 and not any(config[1:16]), "palette 1, and nothing begun"
        assert config[16:32] == bytes([64, 0] * 8) and not any(config[32:48])
        assert config[48:56] == bytes([16] * 8) and not any(config[56:])
        self.configured, self.tiles[:] = True, 0

    def tilerelease(self):
        assert self.configured
        self.configured = False

    def tilezero(self, tile):
        assert self.configured
        self.tiles[tile] = 0

    def rows(self, where, stride):
        return [(ctypes.c_ubyte * 64).from_address(where + i * stride) for i in range(16)]

    def tileloadd64(self, tile, where, stride):
        assert self.configured
        self.tiles[tile] = np.array([list(row) for row in self.rows(where, stride)], np.uint8)

    def tilestored64(self, tile, where, stride):
        assert self.configured
        for row, values in zip(self.rows(where, stride), self.tiles[tile], strict=True):
            row[:] = values.tolist()

    def multiply(self, total, a, b, of_a, of_b, kind):
        """total[i, j] += sum over k and the parts p of words: a[i, k, p] * b[k, j, p]."""
        assert self.configured and len({total, a, b}) == 3, "the manual: three different tiles"
        left, right = of_a(self.tiles[a]), of_b(self.tiles[b])  # [16][16][parts]
        wide = np.float64 if kind is np.float32 else np.int64
        with np.errstate(all="ignore"):  # rows behind the last hold anything
            sums = np.einsum("ikp,kjp->ij", left.astype(wide), right.astype(wide))
            self.tiles[total].view(kind)[:] += sums.astype(kind)
        self.count += 1

    def functions(self):
        def bfloat(tile):
            wide = tile.view(np.uint16).astype(np.uint32) << 16
            return wide.view(np.float32).reshape(16, 16, 2)

        def whole(kind):
            return lambda tile: tile.view(kind).reshape(16, 16, -1)

        kinds = {
            "tdpbf16ps": (bfloat, bfloat, np.float32),
            "tdpfp16ps": (whole(np.float16), whole(np.float16), np.float32),
            "tdpbssd": (whole(np.int8), whole(np.int8), np.int32),
            "tdpbsud": (whole(np.int8), whole(np.uint8), np.int32),
            "tdpbusd": (whole(np.uint8), whole(np.int8), np.int32),
            "tdpbuud": (whole(np.uint8), whole(np.uint8), np.int32),
        }
        number, pointer, stride = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
        found = {
            name: (lambda t, a, b, kind=kind: self.multiply(t, a, b, *kind), (number,) * 3)
            for name, kind in kinds.items()
        }
        moves = (number, pointer, stride)
        return found | {
            "ldtilecfg": (self.ldtilecfg, (pointer,)),
            "tilerelease": (self.tilerelease, ()),
            "tilezero": (self.tilezero, (number,)),
            "tileloadd64": (self.tileloadd64, moves),
            "tileloaddt164": (self.tileloadd64, moves),
            "tilestored64": (self.tilestored64, moves),
        }


def run_emulated(kernel, shape, inputs, dtype, target=AMX):
    """Every phase, natively but for its tile instructions; tasks in two calls."""
    unit, problems = TileUnit(), []

    def guarded(function):
        def call(*values):
            try:
                function(*values)
            except Exception as error:  # a callback can't raise
                problems.append(error)

        return call

    callbacks = []
    for name, (function, kinds) in unit.functions().items():
        callbacks.append(ctypes.CFUNCTYPE(None, *kinds)(guarded(function)))
        llvm.add_symbol(f"emulated_{name}", ctypes.cast(callbacks[-1], ctypes.c_void_p).value)
    lowered = lower(kernel, target)
    arrays = []
    for a in K.buffers_for(lowered, np.full(shape, 77, dtype), inputs):
        arrays.append(K.aligned(a.shape, a.dtype))
        arrays[-1][...] = a
    LLVMCompiler(HOST).compile("define void @f() { ret void }")  # LLVM is ready
    for phase in lowered.phases:
        text = LLVMRenderer(target).render("f", phase.program)
        names = "|".join(unit.functions())
        text = re.sub(rf"llvm\.x86\.({names})\b", r"emulated_\1", text).replace("immarg", "")
        module = llvm.parse_assembly(text)
        machine = llvm.Target.from_triple(HOST.triple).create_target_machine(
            cpu=HOST.cpu, features=HOST.features, opt=1, jit=True
        )
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        function = ctypes.CFUNCTYPE(None, *types)(engine.get_function_address("f"))
        pointers = [arrays[b].ctypes.data for b in phase.buffers]
        table = (ctypes.c_int64 * len(pointers))(*pointers)
        scratch = K.aligned((phase.scratch + 64,), np.uint8)
        tasks, half = phase.tasks[0], (phase.tasks[0] + 1) // 2
        for low, high in ((half, tasks), (0, half)):
            scratch[:] = 0xFF
            if low < high:
                function(ctypes.addressof(table), low, high, scratch.ctypes.data)
        assert not problems, problems[0]
        assert not unit.configured, "tiles are released"
    assert unit.count > 0
    return arrays[0]


def named(value):
    """A test's name: of dtypes those of the operands."""
    return f"{value[0]!r}-{value[1]!r}" if isinstance(value, tuple) else None


KINDS = [
    (BF, BF, F32),
    (dtypes.float16, dtypes.float16, F32),
    (I8, I8, I32),
    (U8, I8, I32),
    (I8, U8, I32),
    (U8, U8, I32),
]
WAYS = [  # kinds, and whether the operands lie transposed: each kind and each way, not all of both
    *((kinds, False, False) for kinds in KINDS),
    *((kinds, True, True) for kinds in (KINDS[0], KINDS[1], KINDS[3])),
    *(pytest.param(k, True, True, marks=pytest.mark.slow) for k in (KINDS[2], *KINDS[4:])),
    *(pytest.param(k, at, not at, marks=pytest.mark.slow) for k in KINDS for at in (False, True)),
]
SIZES = [(16, 16, 64), (33, 40, 70), (48, 32, 128), (17, 97, 65), (65, 33, 40)]


@pytest.mark.parametrize(("kinds", "at", "bt"), WAYS, ids=named)
def test_tiles_emulated(kinds, at, bt):
    for sizes in SIZES:
        kernel, inputs, expected = example(sizes, at, bt, *kinds)
        found = run_emulated(kernel, expected.shape, inputs, expected.dtype)
        np.testing.assert_array_equal(found, expected, err_msg=str(sizes))


@pytest.mark.parametrize("kinds", KINDS[:3], ids=named)
@pytest.mark.parametrize("at", [False, True])
def test_tiles_in_the_interpreter(kinds, at):
    kernel, inputs, expected = example((18, 17, 35), at, not at, *kinds)
    how = {"dtype": expected.dtype, "target": AMX}
    found = K.compute(kernel, expected.shape, inputs, "python", **how)
    np.testing.assert_array_equal(found, expected)


SMALL = replace(AMX, cache_l1=6 << 10, cache_l2=32 << 10)
"""Caches for slabs of one turn of an instruction, and for blocks of two tiles at four turns."""


@pytest.mark.parametrize("kinds", KINDS[:3], ids=named)
@pytest.mark.parametrize("sizes", [(96, 70, 256), (130, 33, 210), (64, 64, 330), (32, 40, 384)])
def test_sums_of_slabs_wait_in_memory(kinds, sizes):
    kernel, inputs, expected = example(sizes, False, True, *kinds, target=SMALL)
    assert {"pa1", "pb1", "acc1"} <= {n.arg[0] for n in kernel.toposort() if n.op is Ops.STAGE}
    how = {"dtype": expected.dtype, "target": SMALL}
    for found in (
        run_emulated(kernel, expected.shape, inputs, **how),
        K.compute(kernel, expected.shape, inputs, "python", **how),
    ):
        np.testing.assert_array_equal(found, expected)


def test_the_assembly_is_tile_instructions():
    kernel, _, _ = example((64, 64, 256), False, False, BF, BF, F32)
    text = LLVMRenderer(AMX).render("f", lower(kernel, AMX).phases[-1].program)
    lines = LLVMCompiler(AMX).assembly(text).split("\n")
    words = [line.split()[0] for line in lines if line.startswith("\t") and line.split()]
    assert words.count("ldtilecfg") == words.count("tilerelease") == 1
    assert words.count("tdpbf16ps") == 4 and words.count("tilestored") == 4
    assert words.count("tileloadd") + words.count("tileloaddt1") == 4
    registers = {name for line in lines for name in re.findall(r"%tmm\d", line)}
    assert len(registers) == 8


def test_few_rows_and_machines_without_tiles_do_without():
    kernel = product(8, 64, 64, False, False, BF, BF, F32)
    assert not any(step[0] == "tensorise" for step in schedule(kernel, AMX)[1])
    plain = replace(AMX, features=FEATURES.replace("+amx", "-amx"))
    kernel = product(64, 64, 64, False, False, BF, BF, F32)
    assert not any(step[0] == "tensorise" for step in schedule(kernel, plain)[1])
