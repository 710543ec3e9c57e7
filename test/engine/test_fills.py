"""Random numbers are compiled once for many sizes, and are the same as if they were not."""

import functools

import numpy as np
import pytest
from together import together

from tinygrad import Device, GlobalCounters, Tensor, TinyJit
from tinygrad.base.settings import Context

SHAPES = [(513,), (7, 11), (3, 5, 129), (1,), (4096,), (4095,)]
KINDS = {
    "rand": Tensor.rand,
    "uniform": lambda *shape, **more: Tensor.uniform(*shape, low=-1 / len(shape), high=2.0, **more),
    "randn": Tensor.randn,
    "normal": lambda *shape, **more: Tensor.normal(*shape, mean=0.5, std=len(shape), **more),
}


def drawn(kind, device, **settings):
    """Some of each shape, each realised alone, and how many kernels that took to compile."""
    before = GlobalCounters.kernels_compiled
    with Context(CACHELEVEL=0, **settings):
        Tensor.manual_seed(7)
        made = [KINDS[kind](*shape, device=device).realize().numpy() for shape in SHAPES]
    return made, GlobalCounters.kernels_compiled - before


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_share_a_kernel(kind):
    Device["CPU"].kernels.clear()
    shared, few = drawn(kind, "CPU")
    apart, _ = drawn(kind, "CPU", NOOPT=1)
    assert few <= 3  # of six; a scale that is 1 is not there, and twice something is a sum
    for ours, theirs in zip(shared, apart, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
        assert len(np.unique(ours)) > 0.99 * ours.size


def test_a_scale_that_is_an_argument_is_the_same_kernel():
    """What takes a second value becomes an argument of the graph: the third draw compiles none."""
    with Context(CACHELEVEL=0):
        for high in (1.5, 2.5):
            Tensor.uniform(5000, high=high, device="CPU").realize()
        before = GlobalCounters.kernels_compiled
        last = Tensor.uniform(300, 70, high=3.5, device="CPU").realize().numpy()
        assert GlobalCounters.kernels_compiled == before
    assert 3.4 < last.max() <= 3.5 and abs(last.mean() - 1.75) < 0.05


def test_only_the_own_tasks_of_a_kernel_of_any_size_are_launched():
    launched = []
    queue = Device["CPU"].backend.queue
    prepare = queue.segment
    queue.segment = lambda launches: launched.extend(launches) or prepare(launches)
    try:
        for n in (1, 5000, 100_001):
            Tensor.rand(n, 3, device="CPU").realize()
    finally:
        del queue.segment
    tasks = [launch.grid[0] for launch in launched if launch.grid[0] > 1]
    assert max(tasks) < 1000, tasks


def test_what_is_drawn_beyond_a_kernels_tasks_is_there():
    big = Tensor.rand(4097 * 64, device="CPU").realize().numpy()
    assert abs(big[-4096:].mean() - 0.5) < 0.02 and (big > 0).mean() > 0.999


def test_counters_and_captured_steps_know_the_own_size():
    Tensor.rand(1000, device="CPU").realize()
    before = GlobalCounters.global_mem
    Tensor.rand(999, device="CPU").realize()
    assert abs(GlobalCounters.global_mem - before - 4 * 999) <= 4
    step = TinyJit(lambda x: (x.realize(), Tensor.rand(77, device="CPU").realize()))
    x = Tensor.ones(3, device="CPU").contiguous().realize()
    seen = [step(x)[1].numpy() for _ in range(5)]
    assert len(np.unique(np.stack(seen))) > 380


def test_running_sums_of_what_is_made_of_nothing():
    """Their loop has an order, and so a size of its own."""
    n = 5000
    made = ((Tensor.arange(n, device="CPU").float() * 1.5).sin() * 0.5 + 1).cumsum().numpy()
    np.testing.assert_allclose(made, np.cumsum(np.sin(np.arange(n) * 1.5) * 0.5 + 1), rtol=1e-4)


@pytest.mark.parametrize("n", [700, 4097])
def test_other_fills(n):
    """The same number inside and outside; several results; whole numbers; a turned matrix."""
    at = np.arange(n)
    x = Tensor.arange(n, device="CPU").float()
    np.testing.assert_allclose(
        ((x * 0.25).sin() * 0.25 + 0.25).numpy(), np.sin(at * 0.25) * 0.25 + 0.25, atol=2e-5
    )
    one, two = x.sin() * 2.5 + 1, x.sin() * 3.5 - 1
    one.realize(two)
    np.testing.assert_allclose(one.numpy(), np.sin(at) * 2.5 + 1, atol=2e-5)
    np.testing.assert_allclose(two.numpy(), np.sin(at) * 3.5 - 1, atol=2e-5)
    whole = (Tensor.arange(n, device="CPU") // 3 * 7 % 11) * 5 + 2
    np.testing.assert_array_equal(whole.numpy(), at // 3 * 7 % 11 * 5 + 2)
    turned = (Tensor.arange(3 * n, device="CPU").reshape(n, 3).T.float() * 0.5).cos() * 2 + 1
    expected = np.cos(np.arange(3 * n).reshape(n, 3).T * 0.5) * 2 + 1
    np.testing.assert_allclose(turned.numpy(), expected, atol=5e-5)


def test_threads_that_compile_the_same_kernel_keep_their_own():
    """What one thread has loaded, another that loads the same puts aside, and then drops."""

    def draw(k):
        for n in range(1, 12):
            assert Tensor.rand(50 * k + n, device="CPU").realize().numpy().size == 50 * k + n

    Device["CPU"].kernels.clear()
    with Context(CACHELEVEL=0):
        together(*[functools.partial(draw, k) for k in range(4)])
