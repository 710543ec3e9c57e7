"""Kernels of symbolic size have the recipes of fixed ones: vectors, tiles and tasks. They are right
at every end of a vector, a tile and a task, and tasks within the limit run without masks."""

import numpy as np
import pytest

from tinygrad import Tensor, Variable
from tinygrad.codegen.pipeline import lower
from tinygrad.engine.devices import Device
from tinygrad.engine.structure import structure_of
from tinygrad.loops.heuristic import schedule
from tinygrad.schedule.kernels import plan
from tinygrad.uop.op import Ops

MOST = 3000  # enough for several tasks
SIZES = (1, 15, 16, 65, 1501, 2999, 3000)


def softmax(x):
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def attention(n, q, k, v):
    return softmax(q @ k[:, :n].transpose(0, 2, 1) / np.sqrt(q.shape[-1])) @ v[:, :n]


# name → the tensors' shapes, ours of a size, NumPy's of a size
CASES = {
    "elementwise": (
        ((MOST,), (MOST,)),
        lambda n, a, b: (a[:n] * b[:n] + 1).relu(),
        lambda n, a, b: np.maximum(a[:n] * b[:n] + 1, 0),
    ),
    "rows of a product": (
        ((MOST, 40), (40, 70)),
        lambda n, a, b: a[:n].relu() @ b + 1,
        lambda n, a, b: np.maximum(a[:n], 0) @ b + 1,
    ),
    "a product's sums": (
        ((20, MOST), (MOST, 36)),
        lambda n, a, b: a[:, :n] @ b[:n],
        lambda n, a, b: a[:, :n] @ b[:n],
    ),
    "sum": (((MOST,),), lambda n, a: a[:n].sum(), lambda n, a: a[:n].sum()),
    "columns": (((MOST, 90),), lambda n, a: a[:n].sum(0), lambda n, a: a[:n].sum(0)),
    "max": (((MOST,),), lambda n, a: (a[:n] - 9).max(), lambda n, a: (a[:n] - 9).max()),
    "softmax": (((MOST, 50),), lambda n, a: a[:n].softmax(), lambda n, a: softmax(a[:n])),
    "long softmax": (((6, MOST),), lambda n, a: a[:, :n].softmax(), lambda n, a: softmax(a[:, :n])),
    "transpose": (((MOST, 37),), lambda n, a: a[:n].T * 2, lambda n, a: a[:n].T * 2),
    "cumsum": (((MOST, 5),), lambda n, a: a[:n].cumsum(0), lambda n, a: a[:n].cumsum(0)),
    "attention": (
        ((3, 5, 32), (3, MOST, 32), (3, MOST, 32)),
        lambda n, q, k, v: q.scaled_dot_product_attention(k[:, :n], v[:, :n]),
        attention,
    ),
    "attention of as many queries": (
        ((1, MOST, 16), (1, MOST, 16), (1, MOST, 16)),
        lambda n, q, k, v: q[:, :n].scaled_dot_product_attention(k[:, :n], v[:, :n]),
        lambda n, q, k, v: attention(n, q[:, :n], k, v),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_size_of_a_kernel(name):
    shapes, ours, theirs = CASES[name]
    arrays = [np.random.standard_normal(shape).astype(np.float32) for shape in shapes]
    tensors = [Tensor(a).realize() for a in arrays]
    n = Variable("n", 1, MOST)
    for size in SIZES:
        found = ours(n.bind(size), *tensors).numpy()
        expected = theirs(size, *(a.astype(np.float64) for a in arrays))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4, err_msg=f"{size}")


@pytest.mark.parametrize("device", ["CPU", "CLANG", "PYTHON"])
def test_a_sum_that_starts_behind_the_size_is_of_nothing(device):
    """A loop turns once at least, here with a term that is none."""
    x, n = Tensor(np.arange(1, 10, dtype=np.int32), device=device), Variable("n", 1, 15)
    padded = x.realize().pad(((6, 0),))
    assert [padded[: n.bind(size)].sum().item() for size in (1, 6, 7, 9)] == [0, 0, 1, 6]


def test_what_a_masked_lane_would_divide_by_harms_nobody():
    numbers = np.arange(1, MOST + 1, dtype=np.int32)
    top, below = Tensor(numbers * 7).realize(), Tensor(numbers).realize()
    n = Variable("n", 1, MOST)
    for size in SIZES:
        assert (top[: n.bind(size)] // below[: n.bind(size)]).numpy().tolist() == [7] * size


def kernel_of(tensor):
    (step,) = plan(structure_of([tensor.uop]).sink).steps
    return step.ast


def test_tasks_within_the_limit_have_no_mask():
    """A store without a mask in one arm, with one in the other; a task beyond does nothing."""
    x = Tensor(np.ones(1 << 20, np.float32)).realize()
    kernel = kernel_of((x[: Variable("n", 1, 1 << 20).bind(5)] + 1).contiguous())
    target = Device["CPU"].target
    (phase,) = lower(schedule(kernel, target)[0], target).phases
    stores = [node for node in phase.program if node.op is Ops.STORE]
    assert {len(store.src) for store in stores} == {2, 3}
    assert sum(node.op is Ops.IF for node in phase.program) == 3
    assert "a task that a variable cuts" in phase.nest


def test_reads_beyond_the_limit_that_are_memory_need_no_mask():
    rows = Tensor(np.ones((MOST, 40), np.float32)).realize()
    columns = Tensor(np.ones((40, 64), np.float32)).realize()
    kernel = kernel_of((rows[: Variable("n", 1, MOST).bind(5)] @ columns).contiguous())
    target = Device["CPU"].target
    (phase,) = lower(schedule(kernel, target)[0], target).phases
    assert all(len(node.src) == 1 for node in phase.program if node.op is Ops.LOAD)


@pytest.mark.parametrize("queries", ["fixed", "symbolic"])
def test_scores_of_a_symbolic_length_are_kept_in_rows(queries):
    """Attention over the first n keys stores no scores: it is one kernel, as if fixed."""
    q, k, v = (Tensor(np.ones((2, 512, 32), np.float32)).realize() for _ in range(3))
    n = Variable("n", 1, 512).bind(300)
    rows = n if queries == "symbolic" else 200
    kernel_of(q[:, :rows].scaled_dot_product_attention(k[:, :n], v[:, :n]))
