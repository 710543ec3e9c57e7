"""Narrow floats are added up in float32 and rounded once, in values and in gradients: sums of many
bfloat16 or float16 numbers are as far from those of float64 as a rounding of the largest, or two.
"""

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as f
from tensor.check import value

from tinygrad import Tensor, nn
from tinygrad.tensor.scan import scan

KINDS = {"bfloat16": (2**-8, ml_dtypes.bfloat16), "float16": (2**-11, np.float16)}
ROWS, COLUMNS = 600, 5  # so many that a narrow sum stands still
ROUNDINGS = 2.0
AT = np.random.default_rng(0).integers(0, 3, ROWS)
GRID = np.repeat(AT[:, None], COLUMNS, 1)
X, V, TABLE = (ROWS, COLUMNS), (COLUMNS,), (3, COLUMNS)


def batch_norm(x, weight, bias):
    layer = nn.BatchNorm(COLUMNS, track_running_stats=False)
    layer.weight, layer.bias = weight, bias
    return layer(x)


def turns(x):
    weight = x[0]
    return scan(lambda s, row: ([s], [row * weight]), [Tensor(0.0)], [x])[1][0]


# inputs, ours, theirs in float64
FACTS = {
    "sum": ([X], lambda x: x.sum(0), lambda x: x.sum(0)),
    "mean": ([X], lambda x: x.mean(0), lambda x: x.mean(0)),
    "var": ([X], lambda x: x.var(0), lambda x: x.var(0)),
    "cumsum": ([X], lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "bias": ([X, V], lambda x, b: x + b, lambda x, b: x + b),
    "scale": ([X, V], lambda x, w: x * w, lambda x, w: x * w),
    "linear": ([X, (4, COLUMNS), (4,)], nn.functional.linear, f.linear),
    "layer norm": (
        [X, V, V],
        lambda x, w, b: nn.functional.layer_norm(x, V, w, b),
        lambda x, w, b: f.layer_norm(x, V, w, b),
    ),
    "rms norm": (
        [X, V],
        lambda x, w: nn.functional.rms_norm(x, V, w, 1e-5),
        lambda x, w: f.rms_norm(x, V, w, 1e-5),
    ),
    "group norm": (
        [(20, 4, 30), (4,), (4,)],
        lambda x, w, b: nn.functional.group_norm(x, 2, w, b),
        lambda x, w, b: f.group_norm(x, 2, w, b),
    ),
    "batch norm": ([X, V, V], batch_norm, lambda x, w, b: f.batch_norm(x, None, None, w, b, True)),
    "embedding": ([TABLE], lambda w: w[Tensor(AT)], lambda w: w[torch.from_numpy(AT)]),
    "gather": (
        [TABLE],
        lambda w: w.gather(0, Tensor(GRID)),
        lambda w: w.gather(0, torch.from_numpy(GRID)),
    ),
    **{
        f"scatter {how}": (
            [TABLE, X],
            lambda w, x, how=how: w.scatter_reduce(0, Tensor(GRID), x, how),
            lambda w, x, how=how: w.scatter_reduce(0, torch.from_numpy(GRID), x, how),
        )
        for how in ("sum", "mean")
    },
    "index_add": (
        [TABLE, X],
        lambda w, x: w.index_add(0, Tensor(AT), x),
        lambda w, x: w.index_add(0, torch.from_numpy(AT), x),
    ),
    "parts": (
        [(3, COLUMNS)],
        lambda x: x.cat(*[x * 1.0] * 40),
        lambda x: torch.cat([x, *[x * 1.0] * 40]),
    ),
    "scan": ([X], turns, lambda x: x * x[0]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FACTS)
def test_sums_are_rounded_once(name, kind):
    shapes, mine, theirs = FACTS[name]
    unit, narrow = KINDS[kind]
    draw = np.random.default_rng(1)

    def drawn(shape):  # of one sign mostly, so that sums grow
        return (draw.random(shape) + 0.25 * draw.standard_normal(shape)).astype(narrow)

    given = [drawn(s) for s in shapes]
    wide = [torch.from_numpy(x.astype(np.float64)).requires_grad_() for x in given]
    exact = theirs(*wide)
    seed = drawn(tuple(exact.shape))
    exact.backward(torch.from_numpy(seed.astype(np.float64)))
    ours = [Tensor(x.astype(np.float32)).cast(kind).realize() for x in given]
    out = mine(*ours)
    grads = out.gradient(*ours, gradient=Tensor(seed.astype(np.float32)).cast(kind))
    Tensor.realize(out, *grads)
    for found, wanted in zip((out, *grads), (exact, *(x.grad for x in wide)), strict=True):
        wanted = wanted.detach().numpy()
        error = np.abs(value(found.float()) - wanted).max()
        assert error <= ROUNDINGS * unit * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["hardswish", "pow -3", "pow 7", "hardsigmoid"])
def test_what_overflows_on_the_way_alone_is_right(name):
    x = np.array([65504, -65504, 100, -100, 12, 1.1, -0.3], np.float16)
    ours, theirs = {
        "hardswish": (lambda x: x.hardswish(), f.hardswish),
        "pow -3": (lambda x: x.pow(-3), lambda x: x.pow(-3)),
        "pow 7": (lambda x: x**7, lambda x: x**7),
        "hardsigmoid": (lambda x: x.hardsigmoid(), f.hardsigmoid),
    }[name]
    wanted = theirs(torch.from_numpy(x).double()).to(torch.float16).numpy()
    np.testing.assert_allclose(value(ours(Tensor(x))), wanted, rtol=2**-10, atol=2**-24)
