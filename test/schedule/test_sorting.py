"""Devices with groups sort themselves: short rows by counting, long ones by a network."""

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Wishes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def steps(tensor, wishes):
    return [step.op for step in plan(structure_of([tensor.uop]).sink, wishes).steps]


@pytest.mark.parametrize("shape", [(5, 70), (3, 2000)])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nothing_goes_through_the_host(shape, kind):
    for result in (*Tensor.empty(*shape, dtype=kind).sort(), Tensor.empty(*shape).topk(20)[1]):
        assert Ops.CALL in steps(result, Wishes()) and Ops.CALL not in steps(
            result, Wishes(0, 0, True)
        )


@pytest.mark.parametrize("shape,k", [((70,), 16), ((3, 1000), 9), ((5003,), 8), ((20, 3000), 5)])
def test_a_choice_of_few_is_kernels_alone(shape, k):
    assert Ops.CALL not in steps(Tensor.empty(*shape).topk(k)[1], Wishes())


@pytest.mark.parametrize("shape", [(5, 70), (3, 1100)])
@pytest.mark.parametrize("kind", ["float32", "int64", "uint8"])
def test_order_is_that_of_numpy(shape, kind):
    """Equal ones keep their order; NaN is the largest, infinities are before it."""
    x = np.random.default_rng(0).integers(0, 40, shape).astype(kind)
    if kind == "float32":
        x[:, 3], x[:, 50], x[0, 7] = np.nan, np.inf, -np.inf
    wanted = np.argsort(x, -1, kind="stable")
    values, places = Tensor(x, device="CL").sort()
    np.testing.assert_array_equal(places.numpy(), wanted)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, wanted, -1))
    if kind == "int64":
        falling, _ = Tensor(x, device="CL").sort(0, descending=True)
        np.testing.assert_array_equal(falling.numpy(), -np.sort(-x, 0))


@pytest.mark.parametrize("size", [1, 70, 1100])
def test_what_stands_for_a_function_of_the_host_is_stored_in_its_own_order(size):
    """A network's rows lie side by side: the result is a view, also where nothing is made of it."""
    x = np.random.default_rng(0).integers(0, 40, (3, size)).astype(np.int32)
    keys = Tensor(x, device="CL")
    for function, wanted in {
        "argsort": np.argsort(x, -1, kind="stable"),
        "smallest": np.sort(x, -1),
    }.items():
        call = UOp(Ops.CALL, src=(keys.uop,), arg=(function,))
        node = UOp(Ops.ITEM, dtypes.int32, (call,), (0, wanted.shape))
        np.testing.assert_array_equal(Tensor(node).numpy(), wanted)
    np.testing.assert_array_equal(keys.numpy(), x)


def test_a_captured_sort_takes_new_values():
    sort = TinyJit(lambda x: x.sort()[0].realize())
    for seed in range(4):
        x = np.random.default_rng(seed).random(1100, np.float32)
        np.testing.assert_array_equal(sort(Tensor(x, device="CL").realize()).numpy(), np.sort(x))


def test_rows_of_nothing_and_of_one():
    assert Tensor.empty(3, 0, device="CL").sort()[1].shape == (3, 0)
    assert Tensor([[2.0], [1.0]], device="CL").sort()[1].tolist() == [[0], [0]]


@pytest.mark.parametrize("shape, most", [((20000,), 8192), ((3, 9000), 8192), ((50, 1500), 8192)])
def test_no_turn_sees_more_than_its_kernel_may_bind(shape, most):
    """Of key and place in one word of eight bytes: four windows."""
    bound = Wishes(buffers=8, window=(16 << 10) + 256, lanes=True)
    sink = structure_of([Tensor.empty(*shape).realize().argsort().uop]).sink
    loops = [step.arg[0] for step in plan(sink, bound).steps if step.op is Ops.SCAN]
    seen = [state.size for loop in loops for state in loop.src[: loop.arg.states]]
    assert max(seen) == most and len({loop.arg.body for loop in loops}) <= 2
