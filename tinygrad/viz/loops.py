"""Example kernels, and a kernel's loops as text. The doctests of the primitives use both."""

from __future__ import annotations

from math import prod

from tinygrad.base.dtype import DType, dtypes
from tinygrad.loops.nest import expression
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.schedule.movement import offset_of
from tinygrad.uop import Ops, UOp


def draw(kernel: UOp) -> None:
    """Prints the loops of each stage, reduction and store, one line for each, and then the other
    facts that a recipe added.

    >>> draw(scaled(4, 8))
    store: i:4, j:8
    """
    print("\n".join(loop_lines(kernel)))


def loop_lines(kernel: UOp) -> list[str]:
    """The lines of `draw`."""
    lines = []
    for node in kernel.toposort():
        if node.op not in (Ops.STAGE, Ops.REDUCE, Ops.STORE, Ops.WMMA):
            continue
        words = [node.op.name.lower(), node.arg or ""]
        if node.op is Ops.STAGE:
            name, memory, options = node.arg
            words = [name, memory, *(f"{key}={value}" for key, value in options)]
        loops = "" if node.op is Ops.WMMA else ", ".join(map(one_loop, own_ranges(node)))
        lines.append(f"{' '.join(filter(None, words))}: {loops}".rstrip(": "))
    return lines + [f"{key}: {value}" for key, value in kernel.arg or ()]


def one_loop(loop: UOp) -> str:
    """A loop's name, size, limits and role."""
    size = str(size_of(loop)) if loop.src[0].op is Ops.CONST else expression(loop.src[0])
    limits = "".join(f"<{expression(limit)}" for limit in loop.src[1:])
    role = role_of(loop)
    return f"{name_of(loop)}:{size}{limits}" + ("" if role == "LOOP" else f" {role}")


# ---- kernels -------------------------------------------------------------------------------------


def element(slot: int, shape: tuple[int, ...], *indices: UOp, dtype: DType = dtypes.float32) -> UOp:
    """One element of a row-major buffer."""
    return UOp(Ops.PARAM, dtype, (), (slot, prod(shape))).index(offset_of(indices, shape))


def scaled(rows: int, columns: int) -> UOp:
    """out[i, j] = x[i, j] * 2"""
    i, j = UOp.range(rows, "i"), UOp.range(columns, "j")
    shape = (rows, columns)
    return UOp.sink(element(0, shape, i, j).store(element(1, shape, i, j) * 2, i, j))


def sums(rows: int, columns: int) -> UOp:
    """out[i] = sum over r of x[r, i]"""
    i, r = UOp.range(columns, "i"), UOp.range(rows, "r")
    value = element(1, (rows, columns), r, i).reduce("add", r)
    return UOp.sink(element(0, (columns,), i).store(value, i))


def taps(positions: int, taps: int) -> UOp:
    """out[i] = sum over k of x[i + k]"""
    i, k = UOp.range(positions, "i"), UOp.range(taps, "k")
    value = element(1, (positions + taps - 1,), i + k).reduce("add", k)
    return UOp.sink(element(0, (positions,), i).store(value, i))


def past_sums(size: int) -> UOp:
    """out[q] = sum over t of x[q, t] where t <= q"""
    q, t = UOp.range(size, "q"), UOp.range(size, "t")
    value = (t < q + 1).where(element(1, (size, size), q, t), 0.0).reduce("add", t)
    return UOp.sink(element(0, (size,), q).store(value, q))


def product(rows: int, columns: int, inner: int, dtype: DType = dtypes.float32) -> UOp:
    """out[m, n] = sum over k of a[m, k] * b[k, n], summed in float32"""
    m, n, k = UOp.range(rows, "m"), UOp.range(columns, "n"), UOp.range(inner, "k")
    a = element(1, (rows, inner), m, k, dtype=dtype).cast(dtypes.float32)
    b = element(2, (inner, columns), k, n, dtype=dtype).cast(dtypes.float32)
    value = a * b
    return UOp.sink(element(0, (rows, columns), m, n).store(value.reduce("add", k), m, n))


def shares(rows: int, columns: int) -> UOp:
    """out[i, j] = e(j) / (sum over j1 of e(j1)), e(j) = exp2(x[i, j])"""
    i, j, j1 = UOp.range(rows, "i"), UOp.range(columns, "j"), UOp.range(columns, "j1")

    def e(j: UOp) -> UOp:
        return element(1, (rows, columns), i, j).exp2()

    value = e(j) * e(j1).reduce("add", j1).reciprocal()
    return UOp.sink(element(0, (rows, columns), i, j).store(value, i, j))


def two_sums(rows: int, columns: int) -> UOp:
    """out[i] = sum over k of x[i, k] * max over k1 of x[i, k1]"""
    i, k, k1 = UOp.range(rows, "i"), UOp.range(columns, "k"), UOp.range(columns, "k1")
    total = element(1, (rows, columns), i, k).reduce("add", k)
    value = total * element(1, (rows, columns), i, k1).reduce("max", k1)
    return UOp.sink(element(0, (rows,), i).store(value, i))


def weights(rows: int, columns: int) -> UOp:
    """out[i] = sum over k1 of exp2(x[i, k1] - (max over k of x[i, k]))"""
    i, k, k1 = UOp.range(rows, "i"), UOp.range(columns, "k"), UOp.range(columns, "k1")
    most = element(1, (rows, columns), i, k).reduce("max", k)
    apart = element(1, (rows, columns), i, k1) + most * -1.0
    return UOp.sink(element(0, (rows,), i).store(apart.exp2().reduce("add", k1), i))
