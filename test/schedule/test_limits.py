"""Kernels take no more buffers than a device binds, and a graph of many inputs is still right."""

import functools
import operator

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Wishes


def inputs(count=40, shape=(2, 3)):
    made = [Tensor(np.full(shape, i, np.float32)).realize() for i in range(count)]
    return made


def balanced(tensors):
    while len(tensors) > 1:
        pairs = zip(tensors[::2], tensors[1::2], strict=False)
        odd = tensors[-1:] if len(tensors) % 2 else []
        tensors = [a + b for a, b in pairs] + odd
    return tensors[0]


GRAPHS = {
    "chain": lambda xs: [functools.reduce(operator.add, xs)],
    "tree": lambda xs: [balanced(xs)],
    "stack": lambda xs: [Tensor.stack(*xs)],
    "cat, reduced": lambda xs: [Tensor.cat(*xs).sum(0)],
    "several results": lambda xs: [functools.reduce(operator.add, xs), *(x * 2 for x in xs)],
    "views": lambda xs: [functools.reduce(operator.add, [x.permute(1, 0)[1:] for x in xs])],
    "gathers": lambda xs: [
        functools.reduce(operator.add, [x[Tensor([i % 2])] for i, x in enumerate(xs)])
    ],
}


IN_GROUPS = ("stack", "cat, reduced")
"""Of 16 parts, and what they are put together to."""


@pytest.mark.parametrize("limit", [5, 8, 32])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_kernel_takes_more_buffers_than_the_limit(name, limit):
    results = GRAPHS[name](inputs())
    sink = structure_of([result.uop for result in results]).sink
    assert max(len(step.storages) for step in plan(sink, Wishes(0, limit)).steps) <= limit
    most = max(len(step.storages) for step in plan(sink, Wishes(0)).steps)
    assert most == 17 if name in IN_GROUPS else most > 32 or name == "views"


def test_many_results_of_one_loop_are_kept_apart():
    x = Tensor(np.arange(6, dtype=np.float32)).realize()
    results = [(x + i).exp() for i in range(20)]
    sink = structure_of([result.uop for result in results]).sink
    assert max(len(step.storages) for step in plan(sink, Wishes(0, 8)).steps) <= 8


def test_what_fits_is_planned_as_ever():
    results = [balanced(inputs(6)).relu()]
    sink = structure_of([result.uop for result in results]).sink
    assert plan(sink, Wishes(0, 32)) == plan(sink, Wishes(0))
