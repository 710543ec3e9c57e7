"""The oracle of tensor graphs: an evaluator of stage "tensor" in NumPy, one row an op.

It computes each node once, from its sources, without recursion, and knows nothing of kernels. What
it says is what the op table means; the compiler is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tinygrad.base.dtype import DType, dtypes, to_numpy_name
from tinygrad.engine.faults import KINDS
from tinygrad.engine.host import HOST_FUNCTIONS
from tinygrad.engine.storage import as_array, buffer_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, THREEFRY_PARITY, THREEFRY_ROTATIONS, Ops

Array = np.ndarray[Any, Any]

_NOT_NUMPYS = {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's, or ml_dtypes', dtype object."""
    if dtype is dtypes.index:
        return np.dtype(np.int64)
    return np.dtype(_NOT_NUMPYS.get(dtype) or to_numpy_name(dtype))


def evaluate(root: UOp) -> Array:
    """The value of a node as an array of its shape and dtype. Raises what a CHECK finds wrong."""
    done: dict[UOp, Array] = {}
    stack = [root]
    with np.errstate(all="ignore"):
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            if node.known is not None:
                todo = [] if node.known in done else [node.known]
            else:
                todo = [s for s in node.src if s not in done]
            if todo:
                stack.extend(todo)
                continue
            stack.pop()
            done[node] = done[node.known] if node.known is not None else _value(node, done)
    return done[root]


def _value(node: UOp, done: dict[UOp, Array]) -> Any:
    if node.op in (Ops.DEVICE, Ops.UNIQUE):
        return np.zeros(())
    if node.op is Ops.CALL:  # several results: ITEM takes one
        name, *parameters = node.arg
        called, given = HOST_FUNCTIONS[name], [done[s] for s in node.src]
        described = called.shapes(*((s.shape, s.dtype) for s in node.src), *parameters)
        results = [np.empty(shape, numpy_dtype(dtype)) for shape, dtype in described]
        called.function(results, *given, *parameters)
        return results
    rule = RULES[node.op]
    value = rule(node, *(done[s] for s in node.src))
    out = np.asarray(value).astype(numpy_dtype(node.dtype), copy=False)
    shape = tuple(n if isinstance(n, int) else n.val for n in node.shape)
    assert out.shape == shape, f"{node.op!r}: {out.shape} is not {node.shape}"
    return out


# ---- one value in, one out -----------------------------------------------------------------------


def _wide(dtype: DType) -> Any:
    """The type in which a function of `dtype` is computed before it is rounded."""
    return np.float64 if dtype in (dtypes.float64, dtypes.float32) else np.float32


def _function(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda node, a: function(a.astype(_wide(node.dtype)))


def _arithmetic(function: Callable[..., Array]) -> Callable[..., Array]:
    """On narrow floats in float32, so that the result is rounded once."""

    def rule(node: UOp, *values: Array) -> Array:
        if node.src[0].dtype in _NOT_NUMPYS:
            values = tuple(v.astype(np.float32) for v in values)
        return function(*values)

    return rule


def _cast(node: UOp, a: Array) -> Array:
    source, target = node.src[0].dtype, node.dtype
    if dtypes.is_float(source) and (dtypes.is_int(target)):
        wide = a.astype(np.float64)
        low, high = int(dtypes.min(target)), int(dtypes.max(target))
        inside = np.clip(np.trunc(np.nan_to_num(wide, nan=0.0)), low, float(high))
        whole = np.asarray(inside).astype(object).reshape(-1)
        fixed = [min(max(int(v), low), high) for v in whole]
        return np.array(fixed, dtype=numpy_dtype(target)).reshape(a.shape)
    if target is dtypes.bool:
        return a != 0
    if source is dtypes.bool or dtypes.is_int(source):
        return a.astype(numpy_dtype(target))
    return a.astype(np.float32 if source in _NOT_NUMPYS else a.dtype).astype(numpy_dtype(target))


def _floor_divide(node: UOp, a: Array, b: Array) -> Array:
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a.dtype.type(0), np.floor_divide(a, safe))


def _modulo(node: UOp, a: Array, b: Array) -> Array:
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a, np.mod(a, safe))


def _maximum(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iub":
        return np.maximum(a, b)
    larger = np.where((a == b) & (a == 0), a + b, np.where(a > b, a, b))  # 0.0 above -0.0
    return np.where(np.isnan(a), a, np.where(np.isnan(b), b, larger))


def _shift(function: Callable[..., Array]) -> Callable[..., Array]:
    def rule(node: UOp, a: Array, b: Array) -> Array:
        width = node.dtype.bitsize
        legal = (b >= 0) & (b < width)
        return np.where(legal, function(a, np.where(legal, b, b.dtype.type(0))), a.dtype.type(0))

    return rule


def _threefry(node: UOp, counter: Array, key: Array) -> Array:
    mask, low = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y, k0, k1 = counter & mask, counter >> low, key & mask, key >> low
    keys = (k1, np.uint64(THREEFRY_PARITY) ^ k0 ^ k1, k0)
    x, y = (x + k0) & mask, (y + k1) & mask
    for block in range(5):
        for turn in THREEFRY_ROTATIONS[block % 2]:
            x = (x + y) & mask
            y = ((y << np.uint64(turn) | y >> np.uint64(32 - turn)) & mask) ^ x
        x = (x + keys[block % 3]) & mask
        y = (y + keys[(block + 1) % 3] + np.uint64(block + 1)) & mask
    return x | y << low


def _check(node: UOp, a: Array, ok: Array) -> Array:
    kind, message = node.arg
    if not ok.all():
        raise KINDS[kind](message.format(*a[~ok].tolist()))
    return a


# ---- movement ------------------------------------------------------------------------------------


def _window(node: UOp, a: Array) -> Array:
    first = a.ndim
    for i, (axis, taps, stride, dilation, before, after) in enumerate(node.arg):
        a = np.pad(a, [(before, after) if k == axis else (0, 0) for k in range(a.ndim)])
        places = node.shape[axis]
        at = np.arange(places)[:, None] * stride + np.arange(taps)[None, :] * dilation
        a = np.moveaxis(np.take(a, at, axis=axis), axis + 1, first + i)
    return a


def _fold(node: UOp, a: Array) -> Array:
    windows, shape = node.arg
    kind = np.float64 if dtypes.is_float(node.dtype) else a.dtype
    sizes = list(shape)
    for axis, _, _, _, before, after in windows:
        sizes[axis] += before + after
    out = np.zeros(sizes, kind)
    for taps in np.ndindex(*a.shape[len(shape) :]):
        places: list[slice] = [slice(None)] * len(shape)
        for k, (axis, _, stride, dilation, _, _) in zip(taps, windows, strict=True):
            begin = k * dilation
            places[axis] = slice(begin, begin + (a.shape[axis] - 1) * stride + 1, stride)
        out[tuple(places)] += a[(..., *taps)]
    for axis, _, _, _, before, _ in windows:
        out = np.take(out, np.arange(before, before + shape[axis]), axis=axis)
    return out


def _running(node: UOp, a: Array) -> Any:
    monoid, axis = node.arg
    ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum}[monoid]
    exact = a.astype(np.float64) if dtypes.is_float(node.dtype) else a
    return ufunc.accumulate(exact, axis, dtype=exact.dtype)


def _reduce_axis(node: UOp, a: Array) -> Array:
    monoid, axes = node.arg
    if any(a.shape[i] == 0 for i in axes):
        return np.full(node.shape, MONOIDS[monoid].identity(node.dtype))
    if monoid == "max":
        return np.maximum.reduce(a, axis=axes, keepdims=True)
    if all(a.shape[i] == 1 for i in axes):
        return a  # NumPy adds 0 to it, and loses the sign of -0.0
    exact = a.astype(np.float64) if dtypes.is_float(node.dtype) else a
    combine = np.add if monoid == "add" else np.multiply
    if a.dtype == np.bool_:
        return (np.any if monoid == "add" else np.all)(a, axis=axes, keepdims=True)
    return combine.reduce(exact, axis=axes, keepdims=True, dtype=exact.dtype)


def _index(node: UOp, a: Array, *rest: Array) -> Array:
    indices = rest[: node.arg]
    safe = tuple(np.clip(i, 0, n - 1) for i, n in zip(indices, a.shape, strict=False))
    out = a[safe]
    for gate in rest[node.arg :]:
        out = np.where(gate.reshape(gate.shape + (1,) * (out.ndim - gate.ndim)), out, 0)
    return out


def _scatter(node: UOp, target: Array, updates: Array, *indices: Array) -> Array:
    how, out = node.arg[0], target.copy()
    for place in np.ndindex(*indices[0].shape):
        at = tuple(int(i[place]) for i in indices)
        new = updates[place]
        if how == "set":
            out[at] = new
        elif how == "max":
            out[at] = _maximum(np.asarray(out[at]), np.asarray(new))
        else:
            out[at] = out[at] + new if how == "add" else out[at] * new
    return out


def _assign(node: UOp, view: Array, value: Array) -> Array:
    """The whole buffer with `value` where the view of it is: the view of its element numbers says
    where."""
    base = node.src[0].base
    size = base.shape[0]
    numbers = UOp(Ops.ARANGE, dtypes.int64, (), size)
    places = evaluate(node.src[0].viewed(numbers))
    out = evaluate(base).copy()
    out[places.reshape(-1)] = value.reshape(-1)
    return out


def _pad(node: UOp, a: Array) -> Array:
    return np.pad(a, node.arg)


def _where(node: UOp, c: Array, a: Array, b: Array) -> Array:
    return np.where(c, a, b)


RULES: dict[Ops, Callable[..., Any]] = {
    Ops.CONST: lambda node, *_: np.array(node.arg),
    Ops.ARANGE: lambda node, *_: np.arange(node.arg),
    Ops.BUFFER: lambda node, *_: as_array(buffer_of(node), node.dtype),
    Ops.DEFINE_VAR: lambda node: np.zeros(()),
    Ops.BIND: lambda node, *_: np.array(node.val),
    Ops.COPY: lambda node, a, _: a,
    Ops.CONTIGUOUS: lambda node, a: a,
    Ops.DETACH: lambda node, a, *_: a,
    Ops.ASSIGN: _assign,
    Ops.RESHAPE: lambda node, a: a.reshape(node.arg),
    Ops.EXPAND: lambda node, a: np.broadcast_to(a, node.arg),
    Ops.PERMUTE: lambda node, a: a.transpose(node.arg),
    Ops.PAD: _pad,
    Ops.SHRINK: lambda node, a: a[tuple(slice(b, e) for b, e in node.arg)],
    Ops.FLIP: lambda node, a: np.flip(a, node.arg),
    Ops.WINDOW: _window,
    Ops.FOLD: _fold,
    Ops.REDUCE_AXIS: _reduce_axis,
    Ops.RUNNING: _running,
    Ops.INDEX: _index,
    Ops.SCATTER: _scatter,
    Ops.ITEM: lambda node, results: results[node.arg[0]],
    Ops.CHECK: _check,
    Ops.CAST: _cast,
    Ops.BITCAST: lambda node, a: a.copy().view(numpy_dtype(node.dtype)),
    Ops.EXP2: _function(np.exp2),
    Ops.LOG2: _function(np.log2),
    Ops.SIN: _function(np.sin),
    Ops.COS: _function(np.cos),
    Ops.SQRT: _function(np.sqrt),
    Ops.RECIP: _arithmetic(lambda a: 1 / a),
    Ops.TRUNC: _arithmetic(np.trunc),
    Ops.ROUND: _arithmetic(np.rint),
    Ops.ADD: _arithmetic(np.add),
    Ops.MUL: _arithmetic(np.multiply),
    Ops.FDIV: _arithmetic(np.divide),
    Ops.MULACC: lambda node, a, b, c: a.astype(_wide(node.dtype)) * b + c,
    Ops.IDIV: _floor_divide,
    Ops.MOD: _modulo,
    Ops.MAX: _arithmetic(_maximum),
    Ops.POW: lambda node, a, b: np.power(a.astype(_wide(node.dtype)), b.copy()),
    Ops.CMPLT: _arithmetic(np.less),
    Ops.CMPNE: _arithmetic(np.not_equal),
    Ops.CMPEQ: _arithmetic(np.equal),
    Ops.AND: lambda node, a, b: a & b,
    Ops.OR: lambda node, a, b: a | b,
    Ops.XOR: lambda node, a, b: a ^ b,
    Ops.SHL: _shift(np.left_shift),
    Ops.SHR: _shift(np.right_shift),
    Ops.THREEFRY: _threefry,
    Ops.WHERE: _where,
}
