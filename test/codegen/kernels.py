"""Kernels written by hand, as the scheduler would make them, and two ways to run them."""

from __future__ import annotations

import ctypes
import math

import numpy as np

from tinygrad.backends.cpu.loader import load_object
from tinygrad.backends.cpu.target import host_target
from tinygrad.backends.interface import Launch
from tinygrad.backends.interpreter.renderer import PythonRenderer
from tinygrad.backends.interpreter.runtime import PythonCompiler, PythonQueue
from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.backends.llvm_ir import LLVMRenderer
from tinygrad.base.dtype import dtypes
from tinygrad.codegen.pipeline import Lowered, lower
from tinygrad.loops.heuristic import schedule
from tinygrad.simplify.affine import simplify_index
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

F32 = dtypes.float32
NUMPY = {
    dtypes.float32: np.float32,
    dtypes.float64: np.float64,
    dtypes.int32: np.int32,
    dtypes.int64: np.int64,
    dtypes.int8: np.int8,
    dtypes.int16: np.int16,
    dtypes.uint8: np.uint8,
    dtypes.bool: np.bool_,
    dtypes.float16: np.float16,
}


# ---- writing -------------------------------------------------------------------------------------


def loop(name, size, role="LOOP"):
    return UOp.range(size, name, role)


def const(value, dtype=F32):
    return UOp.const(dtype, value)


def index(value):
    return UOp.const(dtypes.index, value)


def param(slot, shape, dtype=F32):
    return UOp(Ops.PARAM, dtype, arg=(slot, math.prod(shape)))


def offset(shape, at):
    total = index(0)
    for i, n in enumerate(at):
        stride = math.prod(shape[i + 1 :])
        total = total + (n if isinstance(n, UOp) else index(n)) * stride
    return simplify_index(total)


def read(slot, shape, *at, dtype=F32, gate=None):
    return param(slot, shape, dtype).index(offset(shape, at), gate=gate)


def out(shape, value, *loops, slot=0):
    where = param(slot, shape, value.dtype).index(offset(shape, loops))
    return UOp.sink(where.store(value, *loops))


def matmul(m_, n_, k_, at=False, bt=False, dtype=F32):
    m, n, k = loop("m", m_), loop("n", n_), loop("k", k_)
    a = read(1, (k_, m_), k, m, dtype=dtype) if at else read(1, (m_, k_), m, k, dtype=dtype)
    b = read(2, (n_, k_), n, k, dtype=dtype) if bt else read(2, (k_, n_), k, n, dtype=dtype)
    return out((m_, n_), (a * b).reduce("add", k), m, n)


# ---- running -------------------------------------------------------------------------------------


def buffers_for(lowered: Lowered, out_array, inputs):
    """Arrays for every slot, in order."""
    arrays = [out_array, *inputs]
    arrays += [np.full(n // 4 + 64, np.nan, np.float32) for n in lowered.temporaries]
    arrays.append(np.zeros(8, np.int64))
    return arrays


def run_python(lowered: Lowered, out_array, inputs, values=()):
    arrays = buffers_for(lowered, out_array, inputs)
    queue = PythonQueue()
    for phase in lowered.phases:
        source = PythonRenderer().render("f", phase.program)
        function = queue.load(PythonCompiler().compile(source), "f")
        launch = Launch(
            function, phase.buffers, tuple(range(len(values))), phase.tasks, phase.block
        )
        views = [memoryview(a).cast("B") for a in arrays]
        queue.segment([launch]).run(views, list(values))
    return arrays


def load_llvm(lowered: Lowered):
    compiler = LLVMCompiler(host_target())
    found = []
    for phase in lowered.phases:
        binary = compiler.compile(LLVMRenderer(host_target()).render("f", phase.program))
        code = load_object(binary, ("f",))
        prototype = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )
        found.append((prototype(code.address("f")), code))
    return found


def aligned(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def run_llvm(lowered: Lowered, out_array, inputs, values=(), backwards=True):
    arrays = []
    for a in buffers_for(lowered, out_array, inputs):
        copy = aligned(a.shape, a.dtype)
        copy[...] = a
        arrays.append(copy)
    for phase, (function, _) in zip(lowered.phases, load_llvm(lowered), strict=True):
        pointers = [arrays[b].ctypes.data for b in phase.buffers] + list(values)
        table = (ctypes.c_int64 * max(1, len(pointers)))(*pointers)
        scratch = aligned((phase.scratch + 64,), np.uint8)
        for task in reversed(range(phase.tasks[0])):
            scratch[:] = 0xFF
            function(ctypes.addressof(table), task, task + 1, scratch.ctypes.data)
    return arrays


RUNNERS = {"python": run_python, "llvm": run_llvm}


class Faults:
    """The fault words of the last kernel that `compute` ran."""

    words: np.ndarray


def compute(kernel, shape, inputs, how="llvm", dtype=np.float32, target=None, values=(), like=None):
    """The output of a kernel; `like` is what the memory holds before."""
    lowered = lower(kernel, target or host_target())
    result = aligned(shape, dtype)
    if like is not None:
        result[...] = like
    elif result.dtype.kind == "f":
        result[...] = np.nan
    arrays = RUNNERS[how](lowered, result, inputs, values)
    Faults.words = arrays[-1]
    return arrays[0]


def scheduled(kernel, target=None):
    return schedule(kernel, target or host_target())[0]


def normal(*shape):
    return np.random.randn(*shape).astype(np.float32)


# ---- more kernels --------------------------------------------------------------------------------


def land(*conditions):
    total = conditions[0]
    for c in conditions[1:]:
        total = total & c
    return total


def softmax(rows, columns):
    i, j, j1, j2 = loop("i", rows), loop("j", columns), loop("j1", columns), loop("j2", columns)
    most = read(1, (rows, columns), i, j1).reduce("max", j1)

    def e(j):
        return ((read(1, (rows, columns), i, j) - most) * math.log2(math.e)).exp2()

    return out((rows, columns), e(j) * (const(1.0) / e(j2).reduce("add", j2)), i, j)


def layernorm(rows, columns):
    i, j, j1, j2 = loop("i", rows), loop("j", columns), loop("j1", columns), loop("j2", columns)
    mean = read(1, (rows, columns), i, j1).reduce("add", j1) * (1 / columns)

    def d(j):
        return read(1, (rows, columns), i, j) - mean

    variance = (d(j2) * d(j2)).reduce("add", j2) * (1 / columns)
    scale = const(1.0) / (variance + 1e-5).sqrt()
    value = d(j) * scale * read(2, (columns,), j) + read(3, (columns,), j)
    return out((rows, columns), value, i, j)


def conv(n_, c_, h_, w_, o_):
    n, o, h, w = loop("n", n_), loop("o", o_), loop("h", h_), loop("w", w_)
    c, a, b = loop("c", c_), loop("kh", 3), loop("kw", 3)
    y, x = h + a + -1, w + b + -1
    gate = land(index(-1) < y, y < index(h_), index(-1) < x, x < index(w_))
    pixel = read(1, (n_, c_, h_, w_), n, c, y, x, gate=gate)
    weight = read(2, (o_, c_, 3, 3), o, c, a, b)
    return out((n_, o_, h_, w_), (pixel * weight).reduce("add", c, a, b), n, o, h, w)


def attention(heads, length, width, causal=True):
    h, q, d, e = loop("h", heads), loop("q", length), loop("d", width), loop("e", width)
    t1, t2, t3 = loop("t1", length), loop("t2", length), loop("t3", length)
    shape = (heads, length, width)

    def score(t):
        product = read(1, shape, h, q, e) * read(2, shape, h, t, e)
        return product.reduce("add", e) * (math.log2(math.e) / width**0.5)

    def seen(t, value, other):
        return (t < q + 1).where(value, const(other)) if causal else value

    most = seen(t1, score(t1), -math.inf).reduce("max", t1)

    def p(t):
        return seen(t, (score(t) - most).exp2(), 0.0)

    total = p(t2).reduce("add", t2)
    value = (p(t3) * read(3, shape, h, t3, d)).reduce("add", t3) * (const(1.0) / total)
    return out(shape, value, h, q, d)


def attention_ref(q, k, v, causal=True):
    s = np.einsum("hqd,hkd->hqk", q.astype(float), k) / q.shape[-1] ** 0.5
    if causal:
        s[:, ~np.tril(np.ones(s.shape[1:], bool))] = -np.inf
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hqk,hkd->hqd", e / e.sum(-1, keepdims=True), v)


def total(rows, columns, axis):
    i, j = loop("i", rows), loop("j", columns)
    value = read(1, (rows, columns), i, j).reduce("add", (i, j)[axis])
    return out(((columns,), (rows,))[axis], value, (j, i)[axis])


def transposed(rows, columns):
    i, j = loop("i", rows), loop("j", columns)
    return out((rows, columns), read(1, (columns, rows), j, i), i, j)


def gelu(n):
    i = loop("i", n)
    x = read(1, (n,), i)
    y = (x + x * x * x * 0.044715) * (-2 * 0.7978845608028654 * math.log2(math.e))
    return out((n,), x / (y.exp2() + 1.0), i)


def gather(n, rows, columns):
    i, j = loop("i", n), loop("j", columns)
    at = read(2, (n,), i, dtype=dtypes.int32)
    ok = (at < const(rows, dtypes.int32)) & (const(-1, dtypes.int32) < at)
    at = at.check(ok, "index", "{0} out of range")
    return out((n, columns), read(1, (rows, columns), at.cast(dtypes.index), j), i, j)


def gather_unsigned(n, rows):
    """As a Tensor's index has it: one comparison, of unsigned numbers, and a clamp."""
    i = loop("i", n)
    at = read(2, (n,), i, dtype=dtypes.int32).cast(dtypes.uint32)
    told = at.cast(dtypes.int32).check(at < const(rows, dtypes.uint32), "index", "{0} out of range")
    at, last = told.cast(dtypes.uint32), const(rows - 1, dtypes.uint32)
    return out((n,), read(1, (rows,), (at < last).where(at, last).cast(dtypes.index)), i)


def scatter(n, rows, columns):
    i, j = loop("i", n, "ORDERED"), loop("j", columns)
    at = read(2, (n,), i, dtype=dtypes.int32).cast(dtypes.index)
    old = read(0, (rows, columns), at, j)
    where = param(0, (rows, columns)).index(offset((rows, columns), (at, j)))
    return UOp.sink(where.store(old + read(1, (n, columns), i, j), i, j))


# ---- what they should give -----------------------------------------------------------------------


def softmax_ref(x):
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def layernorm_ref(x, g, b):
    z = x.astype(float)
    z = (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-5)
    return z * g + b


def conv_ref(x, k):
    """3x3, padded by one."""
    n, _, h, w = x.shape
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = np.zeros((n, k.shape[0], h, w))
    for a in range(3):
        for b in range(3):
            total += np.einsum("nchw,oc->nohw", padded[:, :, a : a + h, b : b + w], k[:, :, a, b])
    return total


def gelu_ref(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
