"""Where a box of storage begins is no part of a plan: a loop over batches, rows or columns makes
one plan for the first, and one for all others."""

from __future__ import annotations

import numpy as np
import pytest

from tinygrad import GlobalCounters, Tensor, TinyJit, Variable

RNG = np.random.default_rng(7)
TABLE = RNG.normal(size=(24, 6, 5)).astype("float32")
WEIGHT = RNG.normal(size=(5, 7)).astype("float32")

READS = {
    "batches": lambda x, i: x[3 * i : 3 * i + 3] @ x[0].T,
    "a row": lambda x, i: x[i] + 1,
    "a column": lambda x, i: x[:, i % 5] * 2,
    "an element": lambda x, i: x[i, (i + 1) % 6, i % 5] - 1,
    "a box": lambda x, i: x[i : i + 2, i % 4 : i % 4 + 3, 1:4].sum(1),
    "a box of a box": lambda x, i: x[i : i + 9][i % 4 : i % 4 + 2] * 3,
    "of a row, reshaped": lambda x, i: x[i].reshape(-1)[i : i + 4] * 3,
    "of the turned whole": lambda x, i: x.reshape(24, 30).T[i : i + 6, i : i + 2].sum(0),
    "sums up to each": lambda x, i: x[i : i + 4].cumsum(0),
    "by numbers": lambda x, i: x[i : i + 4][[2, 0, 3]],
    "sorted": lambda x, i: (
        x[i].flatten().sort()[0] if isinstance(x, Tensor) else np.sort(x[i].flatten())
    ),
    "two boxes": lambda x, i: x[i : i + 3] * x[i + 2 : i + 5],
    "a box and the whole": lambda x, i: x[i] + x.sum(0),
}


FEW = ("batches", "a box of a box", "by numbers", "a row by a row")
"""Where a compiler is slow, each time; `make test-all` has all."""


def each(names):
    return [
        pytest.param(device, name, marks=[] if quick else [pytest.mark.slow])
        for device in ("CPU", "PYTHON", "CL", "CLANG", "WEBGPU")
        for name in names
        for quick in [device in ("CPU", "PYTHON") or name in FEW]
    ]


def plans_made(run, turns):
    before = GlobalCounters.plans_made
    for turn in turns:
        run(turn)
    return GlobalCounters.plans_made - before


@pytest.fixture(scope="module")
def table(device):
    return Tensor(TABLE, device=device).realize()


@pytest.fixture(scope="module")
def device(request):
    return request.param


@pytest.mark.parametrize(("device", "name"), each(READS), indirect=["device"], scope="module")
def test_reads_share_a_plan(table, name):
    read = READS[name]

    def run(i):
        np.testing.assert_allclose(read(table, i).numpy(), read(TABLE, i), rtol=1e-4, atol=1e-5)

    run(0), run(1)
    assert plans_made(run, [2, 5, 6, 1, 4]) <= 1  # an axis on which 0 and 1 began alike


WRITES = {
    "a row of numbers": lambda y, x, i: y.__setitem__(i, i + 0.5),
    "a row by a row": lambda y, x, i: y.__setitem__(i, x[i + 3]),
    "a column": lambda y, x, i: y.__setitem__((slice(None), i % 4), 2.0),
    "a row of itself": lambda y, x, i: y.__setitem__(i, y[i] * 2),
    "a box": lambda y, x, i: y.__setitem__(
        (slice(i, i + 2), slice(i % 3, i % 3 + 2)), x[i : i + 2, :2]
    ),
}


@pytest.mark.parametrize(("device", "name"), each(WRITES), indirect=["device"], scope="module")
def test_writes_share_a_plan(device, table, name):
    flat, expected = table[:, 0].contiguous().realize(), TABLE[:, 0].copy()
    given, theirs = table[:, 1].contiguous().realize(), TABLE[:, 1].copy()

    def run(i):
        WRITES[name](flat, given, i)
        flat.realize()
        WRITES[name](expected, theirs, i)
        np.testing.assert_array_equal(flat.numpy(), expected)

    run(0), run(1)
    assert plans_made(run, [2, 3, 5, 6, 4]) <= 2


@pytest.mark.parametrize("seed", range(6))
def test_what_is_read_may_be_what_is_written(seed):
    """A plan for boxes that lie apart is none for those that meet."""
    rng = np.random.default_rng(seed)
    ours, theirs = Tensor(TABLE[:, 0]).contiguous().realize(), TABLE[:, 0].copy()
    for _ in range(12):
        (a, b), size = rng.integers(0, 16, 2), int(rng.integers(1, 3)) * 2
        for y in (ours, theirs):
            y[a : a + size] = y[b : b + size] * 2 - y[b + 1 : b + 1 + size]
        np.testing.assert_allclose(ours.realize().numpy(), theirs, rtol=1e-4)


def test_boxes_beside_bound_variables():
    """A cache to which a step appends, at a place that a variable tells, what a box gives."""
    place, cache = Variable("place", 0, 9), Tensor.zeros(10, 5).contiguous().realize()
    data, expected = Tensor(TABLE[:, 0]).contiguous().realize(), np.zeros((10, 5), "float32")

    def run(i):
        at = place.bind(i)
        cache[at : at + 1] = data[2 * i : 2 * i + 1] + 1
        expected[i] = TABLE[2 * i, 0] + 1
        np.testing.assert_array_equal(cache.realize().numpy(), expected)

    run(0), run(1)
    assert plans_made(run, [2, 7, 5]) == 0


def test_gradients_and_captured_steps_of_batches():
    weight = Tensor(WEIGHT, requires_grad=True)
    data = Tensor(TABLE[:, 0]).contiguous().realize()
    fixed = Tensor(WEIGHT).realize()
    step = TinyJit(lambda x: (x @ fixed).relu().realize())

    def run(i):
        part = TABLE[2 * i : 2 * i + 2, 0]
        weight.grad = None
        (data[2 * i : 2 * i + 2] @ weight).square().sum().backward()
        expected = 2 * part.T @ (part @ WEIGHT)
        np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-4, atol=1e-5)
        made = step(data[2 * i : 2 * i + 2]).numpy()
        np.testing.assert_allclose(made, np.maximum(part @ WEIGHT, 0), rtol=1e-4, atol=1e-5)

    run(0), run(1), run(2)
    assert plans_made(run, [3, 4, 7, 8]) == 0


def test_boxes_are_copied_to_other_devices():
    data = Tensor(TABLE[:, 0]).contiguous().realize()

    def run(i):
        assert data[i : i + 2].to("CPU:1").tolist() == TABLE[i : i + 2, 0].tolist()

    run(0), run(1)
    assert plans_made(run, [4, 6]) == 0
