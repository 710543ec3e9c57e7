"""How accurate sums are, whatever their shape; what is special stays special in them; sums that a
comparison narrows read one element; and rows are read once, by whole vectors."""

import numpy as np
import pytest
import torch
from tensor.check import has_large_sizes, value

from tinygrad import Device, GlobalCounters, Tensor

LIMIT = 2e-7  # of the sum of magnitudes

SUMS = [
    ((77, 5003), 0),
    ((77, 5003), 1),
    ((5003, 77), 0),
    ((15, 5000), 0),
    ((16, 5000), 0),
    ((17, 5000), 0),
    ((700, 12), 1),
    ((700, 16), 0),
    ((64, 33, 70), 1),
    ((50, 50, 50, 20), (1, 3)),
    ((33, 65, 129), (0, 2)),
    ((300_001,), 0),
    ((1_000_003, 2), 0),
]


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("shape,axis", SUMS)
def test_accuracy(shape, axis):
    draw = np.random.default_rng(3)
    for x in (draw.random(shape, np.float32), draw.standard_normal(shape, np.float32)):
        wide = x.astype(np.float64)
        error = np.abs(Tensor(x).sum(axis).numpy() - wide.sum(axis))
        assert np.max(error / np.abs(wide).sum(axis)) < LIMIT


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("size", [12, 31, 64, 500])
def test_accuracy_of_distances(size):
    """Also where two operands are combined, as in a product."""
    draw = np.random.default_rng(3)
    a, b = (draw.random((1, 280, size), np.float32) for _ in range(2))
    b = b.reshape(280, 1, size)
    wide = np.abs(a - b).astype(np.float64).sum(-1)
    error = np.abs((Tensor(a) - Tensor(b)).abs().sum(-1).numpy() - wide)
    assert np.max(error / wide) < LIMIT


@pytest.mark.parametrize("shape", [(5, 7), (3, 1001), (40, 63), (2, 70_000)])
def test_reductions_of_the_same_elements(shape):
    draw = np.random.default_rng(3)
    x, y = (draw.standard_normal(shape, np.float32) for _ in range(2))
    x[1, 0], x[0, 1], y[1, 2] = np.inf, -np.inf, np.nan
    a, b = Tensor(x).realize(), Tensor(y).realize()
    found = a.sum(1).stack(a.max(1), a.square().sum(1), (a * b).sum(1), b.min(1), dim=1)
    with np.errstate(invalid="ignore"):
        pairs = ((x.sum(1), x.max(1)), ((x * x).sum(1), (x * y).sum(1)), (y.min(1),))
    wanted = np.stack([each for pair in pairs for each in pair], 1)
    np.testing.assert_allclose(value(found), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [5, 17, 67])
def test_nothing_special_is_lost(size, special):
    for place in (0, size // 2, size - 1):
        x = np.linspace(0.5, 1.5, 3 * size, dtype=np.float32).reshape(3, size)
        x[1, place] = special
        for a, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
            t, u = Tensor(a), torch.from_numpy(a)
            pairs = [
                (t.sum(axis), u.sum(axis)),
                (t.max(axis), u.amax(axis)),
                (t.min(axis), u.amin(axis)),
                (t.softmax(axis), u.softmax(axis)),
                (t.log_softmax(axis), u.log_softmax(axis)),
                (t.relu(), u.relu()),
                (t.clip(-1, 1), u.clip(-1, 1)),
            ]
            for ours, theirs in pairs:
                np.testing.assert_allclose(value(ours), theirs.numpy(), rtol=1e-4)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_lanes_beyond_the_end_of_a_row_of_quotients_add_nothing(kind):
    """Their 0 / 0 is NaN, which a code generator that takes it for 0 does not leave out."""
    for size in range(1, 19):
        x = np.arange(1, 3 * size + 1).reshape(3, size).astype(kind)
        found = (Tensor(x).realize() / Tensor(x[:1]).realize()).sum(1)
        np.testing.assert_allclose(found.numpy(), (x / x[:1]).sum(1), rtol=1e-6)


@pytest.mark.parametrize("rows,classes", [(1, 3), (5, 7), (33, 1000), (3, 5003)])
def test_losses_of_class_numbers(rows, classes):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((rows, classes)).astype(np.float32)
    y = draw.integers(0, classes, rows)
    logits, numbers = torch.from_numpy(x), torch.from_numpy(y)
    for smoothing in (0.0, 0.1):
        want = torch.nn.functional.cross_entropy(logits, numbers, label_smoothing=smoothing).item()
        for kind in ("int32", "int64"):
            chosen = Tensor(y.astype(kind))
            sparse = Tensor(x).sparse_categorical_crossentropy(chosen, label_smoothing=smoothing)
            plain = Tensor(x).cross_entropy(chosen, label_smoothing=smoothing)
            np.testing.assert_allclose([value(sparse), value(plain)], want, rtol=1e-5)


@pytest.fixture
def on_the_cpu(monkeypatch):
    """What is about the CPU's kernels, or would take too long elsewhere, runs on the CPU."""
    monkeypatch.setattr(Device, "DEFAULT", "CPU")


def test_a_class_that_is_ignored_adds_nothing():
    x = np.zeros((3, 4), np.float32)
    loss = Tensor(x).sparse_categorical_crossentropy(Tensor([-1, 2, -1]), reduction="none")
    np.testing.assert_allclose(value(loss), [0.0, np.log(4), 0.0], rtol=1e-6)


def test_a_sum_of_chosen_rows_gathers():
    table, picked = np.random.default_rng(0).random((50, 7), np.float32), np.array([3, 49, 0])
    rows = Tensor(picked).reshape(3, 1, 1) == Tensor.arange(50).reshape(1, 50, 1)
    held = Tensor(table).realize()
    before = GlobalCounters.global_mem
    got = rows.where(held, 0).sum(1).realize()
    moved = GlobalCounters.global_mem - before
    np.testing.assert_array_equal(value(got), table[picked])
    assert moved < table.nbytes or not has_large_sizes()


@pytest.mark.usefixtures("on_the_cpu")
def test_a_row_is_reduced_once_and_by_whole_vectors():
    x, y = Tensor(np.ones((64, 5003), np.float32)).realize(), Tensor([1] * 64).realize()
    before = GlobalCounters.global_mem
    x.sparse_categorical_crossentropy(y, reduction="none").realize()
    assert GlobalCounters.global_mem - before < 1.01 * 4 * x.numel()


@pytest.mark.parametrize("rows", [1027, 1021, 1024])
def test_a_vector_by_one_or_two_matrices_that_leave_the_cache(rows):
    """Some rows of the last task are missing: their number is no multiple of what goes together."""
    rng = np.random.default_rng(0)
    w, v = (rng.integers(-4, 5, (rows, 516)).astype(np.float32) for _ in range(2))
    x = rng.integers(-4, 5, (1, 516)).astype(np.float32)
    one, two, by = (Tensor(a).realize() for a in (w, v, x))
    np.testing.assert_array_equal(value(by @ one.T), x @ w.T)
    np.testing.assert_array_equal(
        value((by @ one.T).relu() * (by @ two.T)), (x @ w.T).clip(0) * (x @ v.T)
    )
