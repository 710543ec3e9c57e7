"""What goes through more of an array than a kernel binds is planned in parts; nothing else is."""

import pytest

from tinygrad.base.dtype import dtypes
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Wishes
from tinygrad.tensor import Tensor
from tinygrad.uop.op import Ops

BOUND = Wishes(buffers=8, window=16 << 10, lanes=True)  # 128 KiB: arrays of 152 KB are too long


def empty(*shape, dtype="float32"):
    return Tensor.empty(*shape, dtype=dtype).realize()


A, B, C = (180, 190), (190, 200), (200, 190)
PLANS = {
    "a product's second operand": (lambda: empty(*A) @ empty(*B), 10),
    "rows of a transposed operand are a few": (lambda: empty(*A) @ empty(*C).T, 1),
    "both operands' columns": (lambda: empty(190, 180).T @ empty(*B), 9),
    "what fits": (lambda: empty(*A) @ empty(190, 60), 1),
    "a window more than fits": (lambda: empty(*A) @ empty(190, 190), 9),
    "a sum of columns": (lambda: empty(*B).sum(0), 10),
    "a sum of rows": (lambda: empty(*B).sum(1), 1),
    "running sums of columns": (lambda: empty(5, 9000).cumsum(0), 5),
    "elements": (lambda: empty(*B) + empty(*B) * empty(*B), 1),
}


@pytest.mark.parametrize("what", PLANS)
def test_as_many_kernels_as_there_are_windows_that_an_element_needs(what):
    make, count = PLANS[what]
    sink = structure_of([make().uop]).sink
    assert len(plan(sink, BOUND).steps) == count
    assert len(plan(sink, Wishes(lanes=True)).steps) == 1


TURNS = {
    "updates": (lambda: scattered(5, empty(250)), 2 + 3),
    "updates that are sums": (lambda: scattered(5, empty(90, 9).sum(1)), 2 + 9),
    "few": (lambda: scattered(5, empty(100)), 2 + 1),
    "rows": (lambda: empty(300, 20).cumsum(0), 3 + 4),
}


def scattered(size, updates):
    places = empty(*updates.shape, dtype="int32")
    return Tensor.zeros(size).contiguous().scatter_reduce(0, places, updates, "sum")


@pytest.mark.parametrize("what", TURNS)
def test_loops_in_order_turn_no_more_often_than_a_lane_may(what):
    make, count = TURNS[what]
    made = plan(structure_of([make().uop]).sink, Wishes(turns=100))
    assert sum(step.op is Ops.KERNEL for step in made.steps) == count


def test_partial_sums_of_halves_are_float32():
    product = empty(*A, dtype="float16") @ empty(190, 400, dtype="float16")
    made = plan(structure_of([product.uop]).sink, BOUND)
    kept = [s.dtype for s in made.storages if s.kind == "temp"]
    assert kept and set(kept) == {dtypes.float32}


def test_an_array_that_is_gathered_from_is_seen_part_by_part():
    places = Tensor([3, 5, 189]).realize()
    sink = structure_of([empty(*B)[places].uop]).sink
    kernels = [step for step in plan(sink, BOUND).steps if step.op is Ops.KERNEL]
    assert len(kernels) == 11  # and what the numbers come to, once


def test_a_gather_under_a_condition_keeps_it_in_each_part():
    places = empty(3, dtype="int32")
    gathered = empty(*B).uop.index(places.uop, gate=(places < 5).uop)
    steps = plan(structure_of([gathered]).sink, BOUND).steps
    kernels = [step.ast for step in steps if step.ast is not None]
    reads = [n for ast in kernels for n in ast.toposort() if n.op is Ops.INDEX]
    gates = {read.src[2].dtype for read in reads if len(read.src) > 2}
    assert gates == {dtypes.bool}
