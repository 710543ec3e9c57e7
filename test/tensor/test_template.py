"""What methods make is remembered by how their arguments look; here: by nothing less."""

from __future__ import annotations

import numpy as np
import pytest
from together import together

from tinygrad import Tensor, dtypes
from tinygrad.base.errors import ShapeError
from tinygrad.tensor import template
from tinygrad.tensor.template import expression


@expression
def scaled(x: Tensor, factor: float = 2, other: Tensor | None = None) -> Tensor:
    scaled.runs += 1
    out = (x + 1) * factor
    return out if other is None else out + other


scaled.runs = 0


@pytest.fixture
def runs(monkeypatch):
    """How often a call runs the method, without SPEC's second way."""
    monkeypatch.setattr(template, "SPEC", False)
    template._remembered.cache_clear()

    def count(*given, **named):
        before = scaled.runs
        result = scaled(*given, **named)
        return scaled.runs - before, result

    return count


def numbers(*shape, dtype="float32"):
    return Tensor(np.arange(np.prod(shape)).reshape(shape).astype(dtype)).realize()


def test_a_method_runs_once_for_arguments_that_look_alike(runs):
    assert runs(numbers(2, 3))[0] == 1
    count, made = runs(numbers(2, 3) + 5)  # computed, not storage
    assert count == 1
    count, made = runs(numbers(2, 3))
    assert count == 0
    np.testing.assert_array_equal(made.numpy(), (np.arange(6).reshape(2, 3) + 1) * 2)


@pytest.mark.parametrize(
    "x",
    [
        lambda: numbers(3, 2),
        lambda: numbers(2, 3, dtype="float64"),
        lambda: numbers(2, 3, dtype="int32"),
        lambda: numbers(3, 2).transpose(),
        lambda: numbers(2, 3).to("CPU:1"),
        lambda: numbers(2, 3).requires_grad_(),
    ],
)
def test_what_looks_otherwise_is_another_expression(runs, x):
    runs(numbers(2, 3))
    assert runs(x())[0] == 1


@pytest.mark.parametrize("factor", [1, 1.0, True, 0.0, -0.0, 3, 3.0, None])
def test_numbers_count_with_their_type_and_sign(factor):
    x = numbers(3, dtype="int32")
    for first in (1, 0.0, 3):
        scaled(x, first)
    if factor is None:
        with pytest.raises(TypeError, match="NoneType"):
            scaled(x, factor)
        return
    made, want = scaled(x, factor), (x + 1) * factor
    assert made.dtype == want.dtype
    np.testing.assert_array_equal(np.signbit(made.numpy()), np.signbit(want.numpy()))


def test_modes_count(runs):
    x = numbers(2, 3).requires_grad_()
    assert runs(x)[1].requires_grad is True
    with Tensor.no_grad():
        count, made = runs(x)
        assert made.requires_grad is False
    x = numbers(2, dtype="int32")
    assert runs(x, 1.5)[1].dtype == dtypes.float32
    dtypes.default_float = dtypes.float64
    try:
        assert runs(x, 1.5)[1].dtype == dtypes.float64
    finally:
        dtypes.default_float = dtypes.float32


def test_the_same_tensor_twice_and_two_tensors_are_told_apart_by_their_values(runs):
    x, y = numbers(3), numbers(3) + 7
    y.realize()
    np.testing.assert_array_equal(runs(x, 2, x)[1].numpy(), [2, 5, 8])
    np.testing.assert_array_equal(runs(x, 2, y)[1].numpy(), [9, 12, 15])
    np.testing.assert_array_equal(runs(x, other=x)[1].numpy(), [2, 5, 8])


def test_what_is_written_in_place_is_read_anew(runs):
    x = numbers(3)
    before = runs(x)[1]
    x.assign(numbers(3) + 10)
    after = runs(x)[1]
    np.testing.assert_array_equal(before.numpy(), [2, 4, 6])
    np.testing.assert_array_equal(after.numpy(), [22, 24, 26])


def test_symbolic_sizes_and_complex_numbers_go_the_long_way(runs):
    from tinygrad import Variable

    n = Variable("n", 1, 4)
    for k in (2, 3):
        part = numbers(4)[: n.bind(k)]
        assert runs(part)[0] == 1
        assert part.shape[0].val == k
    for _ in range(2):
        assert runs(Tensor([1 + 2j]))[0] == 1


def test_constants_are_told_apart_by_their_numbers(runs):
    for number in (0.0, -0.0, 1.0, 1.5):
        counts, made = zip(*[runs(Tensor.full((3,), number)) for _ in range(2)], strict=True)
        assert counts == (1, 0)
        assert [each.tolist() for each in made] == 2 * [[2 * number + 2] * 3]


def test_what_draws_random_numbers_or_makes_storage_is_not_remembered(monkeypatch):
    monkeypatch.setattr(template, "SPEC", False)

    @expression
    def noisy(x: Tensor) -> Tensor:
        return x + Tensor.rand(3)

    @expression
    def fresh(x: Tensor) -> Tensor:
        return x + Tensor([1.0, 2.0, 3.0])

    x = numbers(3)
    assert noisy(x).tolist() != noisy(x).tolist()
    assert fresh(x).tolist() == fresh(x).tolist() == [1, 3, 5]


def test_views_of_an_argument_stay_views(monkeypatch):
    monkeypatch.setattr(template, "SPEC", False)

    @expression
    def turned(x: Tensor) -> Tensor:
        return x.transpose()

    x = numbers(2, 3)
    for _ in range(2):
        turned(x)[0, 1].assign(Tensor(50.0))
        assert x[1, 0].item() == 50
        x[1, 0].assign(Tensor(3.0))


def test_gradients_pass(runs):
    for k in range(3):
        x = (numbers(3) + k).realize().requires_grad_()
        (runs(x, 3.0)[1] * x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 3 * (2 * (np.arange(3) + k) + 1))


def test_errors_are_the_method_s_own():
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"matmul: \(2, 3\) @ \(2, 3\)"):
            numbers(2, 3) @ numbers(2, 3)


def test_threads_may_remember_at_the_same_time(runs):
    def work():
        for size in range(1, 12):
            total = runs(numbers(size), 2.0, numbers(size))[1].sum().item()
            assert total == 2 * size + 3 * size * (size - 1) / 2

    together(work, work)


def test_a_count_that_somebody_computed_is_made_as_one_that_nobody_has():
    x = numbers(4, 5)
    assert (x * 2).argmax(1).tolist() == [4] * 4
    held = [Tensor.arange(5).realize()]
    assert (x * 2).argmax(1).tolist() == [4] * 4  # SPEC: both ways
    assert held[0].tolist() == [0, 1, 2, 3, 4]


def test_what_is_the_same_is_promised_once_and_a_dead_promise_leaves_no_entry():
    x = numbers(4).realize()
    before = len(template._promises)
    first, second = x.exp(), x.exp()
    assert first._source is second._source and len(template._promises) == before + 1
    del first, second
    assert len(template._promises) == before
