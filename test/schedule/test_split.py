"""Long reductions, running ones and products of few results are work for many lanes."""

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Wishes
from tinygrad.uop.op import Ops

GROUPS = Wishes(longest_row=0, lanes=True)


def longest_way(tensor, wishes):
    """Turns of a lane, at most, if each kernel's plain loops are dealt out to lanes."""
    most = 0
    for step in plan(structure_of([tensor.uop]).sink, wishes).steps:
        for node in step.ast.toposort():
            own = node.src[1:] if node.op is Ops.REDUCE else ()
            if node.op is Ops.RANGE and node.arg[1] == "ORDERED":
                own = (node,)
            most = max(most, int(np.prod([loop.vmax + 1 for loop in own])))
    return most


@pytest.mark.parametrize("shape,axis", [((70_001,), 0), ((3, 2049, 5), 1), ((2**20,), 0)])
def test_no_lane_takes_a_whole_row_of_a_running_sum(shape, axis):
    x = Tensor.empty(*shape).cumsum(axis)
    assert longest_way(x, GROUPS) < 2048 <= longest_way(x, Wishes())


def test_rows_enough_are_a_lane_each():
    x = Tensor.empty(10_000, 3000).cumsum(1)
    assert longest_way(x, GROUPS) == 3000


def first_of(shape, axis):
    """Results of the first kernel that a sum takes, which is the one that reads all of x."""
    x = Tensor.empty(*shape).realize().sum(axis)
    store = plan(structure_of([x.uop]).sink, GROUPS).steps[0].ast.src[0]
    return store.src[0].src[0].arg[1]


@pytest.mark.parametrize("shape,axis", [((2**24,), 0), ((4096, 4096), None), ((64, 2**18), 1)])
def test_a_long_sum_is_work_for_many_groups(shape, axis):
    assert 512 <= first_of(shape, axis) <= 1024


def test_columns_that_are_few_and_long_are_cut_for_groups_that_have_eight_of_them():
    assert first_of((100_003, 64), 0) >= 512
    assert first_of((4096, 4096), 0) == 4096


@pytest.mark.parametrize(
    "shape,axes,stored", [((512, 512, 3), (0, 1), 64 * 96), ((100_000, 7), 0, 16 * 70)]
)
def test_columns_that_are_few_and_long_are_summed_in_rows_of_several_neighbours(
    shape, axes, stored
):
    """So memory is read by whole vectors, not one number of each column after the other."""
    x = Tensor.empty(*shape).realize().sum(axes)
    store = plan(structure_of([x.uop]).sink, Wishes()).steps[0].ast.src[0]
    assert store.src[0].src[0].arg[1] == stored


@pytest.mark.parametrize(
    ("shape", "blocks"), [((8192, 64), 16), ((8192, 8, 16), 16), ((8192, 63), 1), ((300, 4096), 1)]
)
def test_a_long_table_of_few_columns_is_work_for_several_cores(shape, blocks):
    x = Tensor.empty(*shape).realize().sum(0)
    store = plan(structure_of([x.uop]).sink, Wishes()).steps[0].ast.src[0]
    assert store.src[0].src[0].arg[1] == blocks * x.numel()


@pytest.mark.parametrize(
    "shape,axes", [((700, 300, 3), (0, 1)), ((100_003, 5), 0), ((90_001, 2), 0), ((9001, 60), 0)]
)
@pytest.mark.parametrize("name", ["sum", "max", "prod"])
def test_reductions_of_few_columns_are_those_of_numpy(shape, axes, name):
    x = np.random.default_rng(0).random(shape, np.float32) * 1e-5 + 1
    want = getattr(x.astype(np.float64), name)(axes)
    np.testing.assert_allclose(getattr(Tensor(x), name)(axes).numpy(), want, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_whose_operands_are_cast_or_computed_stay_whole(dtype):
    a, b = (Tensor.empty(*s, dtype=dtype).realize() for s in ((64, 2**17), (2**17, 64)))
    for x, y in ((a.float(), b.float()), (a.exp().float(), b.float() + 1)):
        made = plan(structure_of([(x @ y).uop]).sink, GROUPS)
        kept = plan(structure_of([(a @ b).uop]).sink, GROUPS)
        assert len(made.steps) <= len(kept.steps) + 2


@pytest.mark.parametrize("shape,axis", [((5003, 70), 0), ((3, 1300, 70), 1), ((3, 90_001), 1)])
@pytest.mark.parametrize("name", ["sum", "max", "prod"])
def test_reductions_that_lanes_share_are_those_of_numpy(shape, axis, name):
    x = np.random.default_rng(0).random(shape, np.float32) * 1e-5 + 1
    found = getattr(Tensor(x, device="CL"), name)(axis).numpy()
    np.testing.assert_allclose(found, getattr(x.astype(np.float64), name)(axis), rtol=1e-2)


def test_a_deep_product_of_few_results_is_cut_along_its_depth():
    x = Tensor.empty(16, 8192) @ Tensor.empty(8192, 24)
    assert longest_way(x, GROUPS) <= 1024 < longest_way(x, Wishes())


@pytest.mark.parametrize("kind", ["float32", "int32", "float16"])
@pytest.mark.parametrize("shape,axis", [((2049,), 0), ((2, 2500), 1), ((2100, 3), 0)])
def test_running_values_over_blocks(shape, axis, kind):
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(kind)
    on_groups = Tensor(x, device="CL")
    sums = np.cumsum(x, axis, dtype=np.float64 if kind != "int32" else np.int32)
    np.testing.assert_allclose(on_groups.cumsum(axis).numpy(), sums.astype(kind), rtol=1e-3)
    largest, _ = on_groups.cummax(axis)
    np.testing.assert_array_equal(largest.numpy(), np.maximum.accumulate(x, axis))


def test_nothing_special_is_lost_between_blocks():
    x = np.ones((3, 2100), np.float32)
    x[1, 300], x[2, 1000], x[2, 1500] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        for name, theirs in {"cumsum": np.cumsum, "cumprod": np.cumprod}.items():
            found = getattr(Tensor(x, device="CL"), name)(1).numpy()
            np.testing.assert_array_equal(found, theirs(x, 1))


def test_products_cut_along_their_depth():
    a, b = (np.random.default_rng(0).standard_normal(s) for s in ((5, 1300), (1300, 7)))
    x, y = (Tensor(m.astype(np.float32), device="CL") for m in (a, b))
    np.testing.assert_allclose((x @ y).relu().numpy(), np.maximum(a @ b, 0), rtol=1e-3, atol=1e-4)
