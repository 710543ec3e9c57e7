"""Counted loops: what goes into them, and how many there are."""

import numpy as np

from tinygrad import Tensor
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.rows import is_product
from tinygrad.tensor.scan import scan
from tinygrad.uop.op import Ops


def data(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape, dtype=np.float32)).realize()


X, WEIGHT, BIAS = data(7, 4, 5), data(5, 5), data(5)


def outputs() -> Tensor:
    """Of a recurrent layer: (turns, batch, features)."""

    def body(state: Tensor, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        after = (x + state @ WEIGHT + BIAS).tanh()
        return [after], [after]

    return scan(body, [Tensor.zeros(4, 5)], [X])[1][0]


def test_what_a_loop_uses_goes_in_once_not_for_each_row_of_a_batch():
    (loop,) = [n for n in outputs().uop.toposort() if n.op is Ops.SCAN]
    assert sorted(source.size for source in loop.src[2:]) == [BIAS.numel(), WEIGHT.numel()]


def test_a_sequence_and_its_gradient_run_the_loop_once_forward():
    """The gradient wants the states before each turn, of a loop that has the same."""
    made = outputs()
    graph = structure_of([t.uop for t in (made, *made.sum().gradient(WEIGHT, X))])
    loops = [step for step in plan(graph.sink).steps if step.op is Ops.SCAN]
    assert len(loops) == 2


def test_products_of_a_turn_are_kept_for_the_way_back():
    """They are not multiplied again: of the backward loop's two, none makes the state."""
    graph = structure_of([t.uop for t in outputs().sum().gradient(WEIGHT, X)])
    _, backward = [n for n in graph.sink.toposort() if n.op is Ops.SCAN]
    sums = [n for n in backward.arg.body.toposort() if n.op is Ops.REDUCE_AXIS]
    assert sum(map(is_product, sums)) == 2


def test_a_sort_on_the_host_beside_loops_that_are_joined():
    """Results of a host's function are ITEMs, too, but of no loop."""
    keys = Tensor(np.random.default_rng(1).random(5000, dtype=np.float32)).realize()
    made, ordered = outputs(), keys.sort()[0]
    Tensor.realize(made, *made.sum().gradient(WEIGHT, X), ordered)
    assert np.array_equal(ordered.numpy(), np.sort(keys.numpy()))
