"""A fixed set of about 200 small programs whose kernels every chip's assembler must accept: rows of
(name, function of the device's name that gives tensors)."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from tinygrad import Tensor, Variable, dtypes

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
NARROW = (dtypes.fp8e4m3, dtypes.fp8e5m2)
WHOLE = (*dtypes.ints, dtypes.bool)
ALL = (*FLOATS, *NARROW, *WHOLE)


def ones(device, *shape, dtype=dtypes.float32):
    """A tensor in memory, without a kernel."""
    made = Tensor(np.ones(shape, np.float32), device="CPU").cast(dtype).realize()
    return made.to(device)


def row(function, *shapes, dtype=dtypes.float32):
    """A case: the function of tensors of those shapes."""
    return lambda device: function(*(ones(device, *shape, dtype=dtype) for shape in shapes))


def _elementwise():
    two = (33, 70), (33, 70)
    for dtype in ALL:
        yield f"add {dtype.name}", row(lambda a, b: a + b, *two, dtype=dtype)
        yield f"where {dtype.name}", row(lambda a, b: (a < b).where(a, b), *two, dtype=dtype)
        yield f"maximum {dtype.name}", row(lambda a, b: a.maximum(b), *two, dtype=dtype)
    for dtype in (*FLOATS, dtypes.int32, dtypes.uint8, dtypes.int64):
        yield f"copy of a large {dtype.name}", row(lambda a: a + a, (1024, 1024), dtype=dtype)
    for dtype in dtypes.ints:
        yield f"divide {dtype.name}", row(lambda a, b: (a // b) + (a % b), *two, dtype=dtype)
    for name, dtype in itertools.product(
        ("exp", "log", "sin", "sqrt", "tanh", "erf", "reciprocal", "floor"), FLOATS[1:]
    ):
        yield f"{name} {dtype.name}", row(lambda a, n=name: getattr(a, n)(), (7, 130), dtype=dtype)
    for dtype in FLOATS:
        yield f"power {dtype.name}", row(lambda a, b: a**b / b, *two, dtype=dtype)
        yield f"multiply-add {dtype.name}", row(lambda a, b: a * b + a, *two, dtype=dtype)


def _casts():
    pairs = (
        *itertools.product(FLOATS + NARROW, (dtypes.int8, dtypes.uint64, dtypes.bool)),
        *itertools.product((dtypes.int16, dtypes.uint32, dtypes.bool), FLOATS + NARROW),
        *itertools.permutations((dtypes.float16, dtypes.bfloat16, *NARROW), 2),
    )
    for old, new in pairs:
        yield f"cast {old.name} to {new.name}", row(lambda a, n=new: a.cast(n), (9, 77), dtype=old)


def _reductions():
    for dtype in (*FLOATS, dtypes.int8, dtypes.uint32, dtypes.int64, dtypes.bool):
        yield f"sum {dtype.name}", row(lambda a: a.sum(1), (12, 1000), dtype=dtype)
        yield f"max {dtype.name}", row(lambda a: a.max(), (12, 1000), dtype=dtype)
    yield "sum of columns", row(lambda a: a.sum(0), (1000, 33))
    yield "sum of all", row(lambda a: a.sum(), (1000, 1000))
    yield "argmax", row(lambda a: a.argmax(1), (13, 500))
    yield "mean and variance", row(lambda a: a.var(1), (13, 500))
    yield "product", row(lambda a: a.prod(1), (13, 50))
    yield "any and all", row(lambda a: [(a > 0).any(1), (a > 0).all()], (13, 500))
    for dtype in FLOATS:
        yield f"softmax {dtype.name}", row(lambda a: a.softmax(), (16, 1000), dtype=dtype)
        yield f"layernorm {dtype.name}", row(lambda a: a.layernorm(), (16, 1000), dtype=dtype)
    yield "logsumexp", row(lambda a: a.logsumexp(1), (16, 300))
    yield "softmax of a long row", row(lambda a: a.softmax(), (2, 40000))


def _products():
    for dtype in (*FLOATS, dtypes.int8, dtypes.int32):
        square = (128, 128), (128, 128)
        yield f"matmul {dtype.name}", row(lambda a, b: a @ b, *square, dtype=dtype)
        odd = (65, 33), (33, 17)
        yield f"odd matmul {dtype.name}", row(lambda a, b: a @ b, *odd, dtype=dtype)
    for dtype, (a, b) in itertools.product(FLOATS[:2], itertools.product((0, 1), repeat=2)):
        name = f"large matmul {dtype.name}{' At' * a}{' Bt' * b}"
        yield name, lambda device, given=(dtype, a, b): _large(device, *given)
    yield "transposed matmul", row(lambda a, b: a @ b.T, (64, 96), (80, 96))
    yield "matmul of both transposed", row(lambda a, b: a.T @ b.T, (96, 64), (80, 96))
    yield "batched matmul", row(lambda a, b: a @ b, (3, 65, 20), (3, 20, 40))
    yield "matrix times vector", row(lambda a, b: a @ b, (500, 700), (700,))
    yield "linear and gelu", row(lambda a, b: (a @ b).gelu(), (64, 64), (64, 256))
    for shape, kernel in (((2, 3, 16, 16), (8, 3, 3, 3)), ((1, 8, 9, 9), (4, 8, 1, 1))):
        yield f"conv {kernel}", row(lambda a, w: a.conv2d(w, padding=1), shape, kernel)
    wide = (1, 8, 12, 12), (8, 1, 3, 3)
    yield "depthwise conv", row(lambda a, w: a.conv2d(w, groups=8, stride=2), *wide)
    yield (
        "transposed conv",
        row(lambda a, w: a.conv_transpose2d(w, stride=2), (1, 4, 7, 7), (4, 3, 3, 3)),
    )
    yield "max pool", row(lambda a: a.max_pool2d(2), (1, 3, 12, 12))
    for dtype in FLOATS[:3]:
        heads = ((1, 2, 64, 32),) * 3
        yield (
            f"attention {dtype.name}",
            row(lambda q, k, v: q.scaled_dot_product_attention(k, v), *heads, dtype=dtype),
        )
    for causal in (False, True):
        yield (
            f"gradients of {'causal ' * causal}attention",
            functools.partial(_attention_back, causal=causal),
        )
    yield (
        "causal attention",
        row(
            lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
            *((1, 2, 40, 16),) * 3,
        ),
    )


def _attention_back(device, causal):
    q, k, v, grad_out = (ones(device, 2, 136, 16, dtype=dtypes.bfloat16) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad = True
    out = q.scaled_dot_product_attention(k, v, is_causal=causal)
    out.backward(grad_out)
    return out.realize(q.grad, k.grad, v.grad)


def _large(device, dtype, a_turned, b_turned):
    """A product of which a card takes a block at a time, its edges masked; a function of it."""
    a, b = (Tensor.empty(1096, 1096, dtype=dtype, device=device) for _ in range(2))
    return ((a.T if a_turned else a) @ (b.T if b_turned else b)).relu()


def _gathered(device):
    table, at = ones(device, 50, 20), ones(device, 7, dtype=dtypes.int32)
    return table[at]


def _scattered(device):
    at = ones(device, 7, 20, dtype=dtypes.int64)
    return ones(device, 50, 20).scatter(0, at, ones(device, 7, 20))


def _symbolic(device):
    size = Variable("n", 1, 30).bind(7)
    return [(ones(device, 30, 20)[:size] * 2).sum(1), ones(device, 30, 20)[:size].sum(0)]


def _step(device):
    weight = ones(device, 64, 10)
    weight.requires_grad = True
    loss = (ones(device, 32, 64) @ weight).relu().log_softmax().square().mean()
    loss.backward()
    return [loss, weight.detach() - 0.1 * weight.grad]


def _others():
    yield "gather", _gathered
    yield "scatter", _scattered
    yield "cumulative sum", row(lambda a: a.cumsum(1), (5, 300))
    yield "cumulative maximum", row(lambda a: a.cummax(1)[0], (5, 100))
    yield "sort", row(lambda a: a.sort(1)[0], (4, 50))
    yield "top k", row(lambda a: a.topk(3)[0], (4, 50))
    yield "triangle", row(lambda a: a.tril(), (33, 44))
    yield "one-hot", row(lambda a: a.one_hot(10), (33,), dtype=dtypes.int32)
    yield "pad, flip, repeat", row(lambda a: a.pad((1, 2)).flip(0).repeat(2, 1), (13, 14))
    yield "transpose", row(lambda a: a.T.contiguous(), (300, 200))
    yield "cat and stack", row(lambda a, b: [a.cat(b), Tensor.stack(a, b)], (5, 6), (5, 6))
    yield "interpolate", row(lambda a: a.interpolate((9, 9)), (1, 2, 5, 5))
    yield "random numbers", lambda device: Tensor.rand(100, 100, device=device)
    yield "normal numbers", lambda device: Tensor.randn(100, 100, device=device)
    yield "whole random numbers", lambda device: Tensor.randint(50, low=0, high=9, device=device)
    yield "numbers in a row", lambda device: Tensor.arange(1000, device=device).contiguous()
    yield "symbolic sizes", _symbolic
    yield "a training step", _step
    yield "bits", row(lambda a: (a << 3 ^ a) & 7 | a >> 1, (100,), dtype=dtypes.uint32)
    yield "a bitcast", row(lambda a: a.bitcast(dtypes.int32) + 1, (100,))
    yield "results of several sizes", _several
    yield "an outer sum of many groups", row(lambda a, b: a + b, (70000, 1), (1, 3))


def _several(device):
    """One launch of a kernel of any size, and of two that are like no other."""
    given = [ones(device, n) for n in (5, 64, 3000)]
    made = [*(x * 2 + 1 for x in given), ones(device, 7, 9).T + 1, ones(device, 40).sum()]
    made[0].realize(*made[1:])
    return made[2]


CASES = tuple(
    row for family in (_elementwise, _casts, _reductions, _products, _others) for row in family()
)
