"""Reductions that need another one over the same elements are taken in blocks where rows are long:
these are right, and no row comes from memory twice."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor
from tinygrad.engine.structure import structure_of
from tinygrad.schedule import states
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.states import take_in_blocks
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

DEVICES = ["CPU", "PYTHON", "CL"]
SMALL = {"LONG": 90, "BLOCK": 16, "FEWEST": 16}


def in_small_blocks(monkeypatch, x):
    """An expression as it is scheduled where blocks have few terms."""
    with monkeypatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(states, name, value)
        planned = UOp.sink(x.uop).rebuilt({Ops.DETACH: lambda node: node.src[0]})
        rewritten = take_in_blocks(planned, Wishes())
    assert rewritten is not planned
    return Tensor(rewritten.src[0])


def numbers(shape):
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32) * 3 + 100


TWO_STATES = {
    "var": lambda x, axis: x.var(axis),
    "logsumexp": lambda x, axis: x.logsumexp(axis),
    "softmax": lambda x, axis: x.softmax(axis),
}
ROWS = [((3, 130), 1), ((2, 128), 1), ((40, 5), 0), ((3, 4, 50, 2), 2)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TWO_STATES)
def test_two_states_in_blocks(monkeypatch, name, device):
    of = TWO_STATES[name]
    for shape, axis in ROWS if device == "CPU" else ROWS[:1]:
        found = in_small_blocks(monkeypatch, of(Tensor(numbers(shape), device=device), axis))
        wanted = of(torch.from_numpy(numbers(shape)).double(), axis).float()
        np.testing.assert_allclose(found.numpy(), wanted, rtol=3e-6)


@pytest.mark.parametrize("axes", [(1, 2), (0, 2), (0, 1, 2)])
def test_blocks_of_several_axes(monkeypatch, axes):
    shape = (7, 15, 31)
    found = in_small_blocks(monkeypatch, Tensor(numbers(shape)).var(axes))
    wanted = torch.from_numpy(numbers(shape)).double().var(axes).float()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-6)


INF, NAN = np.inf, np.nan
SPECIAL = {
    "nothing but -inf": lambda x: x.fill(-INF),
    "a block of -inf": lambda x: x[:40].fill(-INF),
    "all blocks of -inf but one": lambda x: x[:-1].fill(-INF),
    "inf": lambda x: x[50:51].fill(INF),
    "NaN": lambda x: x[-2:].fill(NAN),
    "both infinities": lambda x: (x[:40].fill(-INF), x[60:61].fill(INF)),
    "far apart": lambda x: (x[:20].fill(-3e38), x[99:].fill(3e38)),
    "far below 0": lambda x: x.fill(-3e38),
}


@pytest.mark.parametrize("device", DEVICES)
def test_special_values_are_what_they_are_in_one_row(monkeypatch, device):
    x = np.zeros((len(SPECIAL), 101), np.float32)
    for row, change in zip(x, SPECIAL.values(), strict=True):
        change(row)
    for name in ("logsumexp", "softmax"):
        of = TWO_STATES[name]
        found = in_small_blocks(monkeypatch, of(Tensor(x, device=device), 1)).numpy()
        np.testing.assert_allclose(found, of(torch.from_numpy(x), 1), rtol=1e-6, err_msg=name)
    found = in_small_blocks(monkeypatch, Tensor(x[3:5], device=device).var(1)).numpy()
    assert np.isnan(found).all()


def test_numbers_below_what_float32_holds(monkeypatch):
    x = np.full((2, 101), -1e300)
    x[1, :40] = -INF
    found = in_small_blocks(monkeypatch, Tensor(x).softmax(1)).numpy()
    np.testing.assert_allclose(found, torch.from_numpy(x).softmax(1), rtol=1e-12)


def test_how_often_the_maximum_stands_in_a_row(monkeypatch):
    x = np.random.default_rng(0).integers(-2, 3, (4, 120)).astype(np.float32)
    x[0] = -INF
    mine, theirs = Tensor(x), torch.from_numpy(x).requires_grad_()
    found = in_small_blocks(monkeypatch, mine.max(1).sum().gradient(mine)[0]).numpy()
    theirs.amax(1).sum().backward()
    np.testing.assert_allclose(found, theirs.grad, rtol=1e-6)


def test_weights_beside_the_exponential(monkeypatch):
    x = numbers((2, 120))
    mine, theirs = Tensor(x), torch.from_numpy(x).double()
    e = (mine - mine.max(1, keepdim=True)).exp()
    found = in_small_blocks(monkeypatch, (e * mine * 0.5).sum(1)).numpy()
    wanted = ((theirs - theirs.amax(1, keepdim=True)).exp() * theirs * 0.5).sum(1)
    np.testing.assert_allclose(found, wanted.float(), rtol=2e-6)


def passes(x):
    """How many kernels of a plan read long rows."""
    steps = plan(structure_of([x.uop]).sink).steps
    reads = [[n.src[0].arg[1] for n in s.ast.toposort() if n.op is Ops.INDEX] for s in steps]
    return sum(max(sizes) > 1 << 18 for sizes in reads)


LONG = Tensor.empty(3, 300_000).realize()
FLAT = Tensor.empty(1_000_000).realize()
PASSES = {
    "a variance": (1, lambda: LONG.var(1)),
    "a logsumexp": (1, lambda: LONG.logsumexp(1)),
    "of all": (1, lambda: FLAT.var()),
    "of columns": (1, lambda: LONG.reshape(9000, 100).var(0)),
    "a softmax": (2, lambda: LONG.softmax(1)),
    "a layer's norm": (2, lambda: LONG.layernorm(1)),
    "what is left over": (2, lambda: LONG.reshape(-1)[:-37].var()),
}


@pytest.mark.parametrize("name", PASSES)
def test_kernels_that_go_through_a_long_row(name):
    times, x = PASSES[name]
    assert passes(x()) == times


UNCHANGED = {
    "rows that the cache keeps": lambda: Tensor.empty(64, 1024).softmax(1),
    "no second reduction": lambda: LONG.sum(1),
    "of another's maximum": lambda: (LONG - (LONG + 1).max(1, keepdim=True)).exp().sum(1),
    "of another axis": lambda: (LONG - LONG.max(0, keepdim=True)).exp().sum(1),
    "no mean": lambda: (LONG - LONG.sum(1, keepdim=True) / 7).square().sum(1),
    "empty": lambda: Tensor.empty(3, 0).sum(1),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_no_law_is_known_of_stays(name):
    sink = UOp.sink(UNCHANGED[name]().uop)
    assert take_in_blocks(sink, Wishes()) is sink
