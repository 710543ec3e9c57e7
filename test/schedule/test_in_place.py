"""Several results of one kernel, some of them written over what the others read."""

import numpy as np

from tinygrad import Tensor
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan


def check(size: int) -> None:
    rng = np.random.default_rng(0)
    p0, m0, g0 = (rng.standard_normal(size, dtype=np.float32) for _ in range(3))
    p, m, g = (Tensor(x).realize() for x in (p0, m0, g0))
    m.assign(m * 0.5 + (g + p * 0.25))  # reads p, which the same kernel overwrites
    p.assign(p - m * 0.125)
    assert len(plan(structure_of([p.uop, m.uop]).sink).steps) == 1
    Tensor.realize(p, m)
    m1 = m0 * np.float32(0.5) + (g0 + p0 * np.float32(0.25))
    np.testing.assert_allclose(m.numpy(), m1, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(p.numpy(), p0 - m1 * np.float32(0.125), rtol=1e-6, atol=1e-6)


def test_what_is_overwritten_is_read_first() -> None:
    for size in (1, 3, 16, 100, 4096, 100_003):
        check(size)


def check_sum(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, columns), dtype=np.float32)
    p0, m0 = (rng.standard_normal(columns, dtype=np.float32) for _ in range(2))
    p, m = Tensor(p0.copy()).realize(), Tensor(m0.copy()).realize()
    slope = (Tensor(x) + p).sum(0)  # of what the same kernel overwrites
    m.assign(m * 0.5 + slope)
    p.assign(p - slope)
    Tensor.realize(p, m)
    expected = (x + p0).sum(0)
    np.testing.assert_allclose(m.numpy(), m0 * 0.5 + expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(p.numpy(), p0 - expected, rtol=1e-5, atol=1e-4)


def test_a_sum_may_overwrite_what_it_read() -> None:
    """Of few rows it is outside of the loop that stores; of more it is a loop of its own."""
    for rows in (1, 2, 4, 7, 40):
        for columns in (3, 8, 16, 32, 33, 64, 1000):
            check_sum(rows, columns)
