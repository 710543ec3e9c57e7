"""A captured call that computes with another number than the call before it is an error, wherever
its Python found that number; calls that differ in something else are not compared."""

import itertools
import time

import numpy as np
import pytest

from tinygrad import Context, Generator, Tensor, TinyJit, Variable, nn
from tinygrad.base.errors import JitError
from tinygrad.uop.op import Ops


def vec(*values):
    return Tensor([float(v) for v in values]).realize()


def calls(function, times=3):
    step = TinyJit(function)
    return [step(vec(1)).tolist() for _ in range(times)]


class Rates:
    rate = 1.0


row, scratch = vec(*range(100)), vec(0)


@pytest.fixture(autouse=True)
def from_the_start():
    """Whichever tests ran before."""
    global paired, moved, table
    paired, moved = zip(itertools.count(1), itertools.count()), map(float, itertools.count(1))
    table = Rates()


def read(numbers):
    return map(float, numbers).__next__


def attribute(name):
    setattr(table, name, getattr(table, name) + 1)
    return vars(table)["".join(name)]


def file(path="/proc/self/stat"):
    with open(path) as found:
        return time.perf_counter() % 1 + len(found.read())


GIVEN = {
    "the clock": (
        lambda x: x * (time.perf_counter() % 1),
        r"computes with \d+\.\d+ at .*, and did with",
    ),
    "two iterators": (lambda x: x * next(paired)[0], "with 2.0 at .*, and did with 1.0"),
    "a map": (lambda x: x * next(moved), "with 2.0 .* with 1.0"),
    "an attribute by its name": (lambda x: x * attribute("rate"), "with 3.0 .* with 2.0"),
    "a file": (lambda x: x * file(), "computes with"),
    "one number of a row": (
        lambda x: x * row[next(paired)[0]],
        r"with \(\(2, 3\),\) .*\(\(1, 2\),",
    ),
    "a part of a row": (lambda x: row[int(next(moved)) :][:1] * x, r"with \(\(\d, 100\),\)"),
    "a list": (lambda x: x * Tensor([next(moved)]), r"with data \[\d.0\]"),
    "an array": (lambda x: x * Tensor(np.array([next(moved)])), r"with data \[\d.0\]"),
    "a larger array": (
        lambda x: (x + Tensor(np.full(99, next(moved)))).sum(),
        "99 elements of data",
    ),
    "what is written": (lambda x: (scratch.assign(x * next(moved)), x + 1)[1], "computes with"),
    "a padding": (lambda x: x.pad(((n := next(paired)[0], 20 - n),)).sum(), "computes with"),
    "a variable": (
        lambda x: x * Tensor(Variable("n", 0, 99).bind(next(paired)[0])),
        r"with \d+ at",
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_another_number_is_an_error(name):
    function, words = GIVEN[name]
    with pytest.raises(JitError, match=words):
        calls(function)


def test_it_stays_one_until_the_number_does():
    numbers = map(float, [1, 2, 3, 3, 3, 3])
    step = TinyJit(lambda x: x * next(numbers))
    step(vec(1))
    for _ in range(2):
        with pytest.raises(JitError, match="computes with"):
            step(vec(1))
    step.reset()
    numbers = itertools.repeat(5)
    assert [step(vec(n)).item() for n in range(1, 4)] == [5.0, 10.0, 15.0]


def test_numbers_that_may_differ():
    layer = nn.Linear(1, 1)
    size = Variable("n", 1, 9)
    assert len({tuple(v) for v in calls(lambda x: x * Tensor.rand(1) + layer(x).detach() * 0)}) == 3
    cut = TinyJit(lambda x, n: row[n].sum() + x.sum())
    shaped = TinyJit(lambda x: (x * 2 + Tensor.arange(x.shape[0])).sum())
    assert [cut(vec(1), size.bind(n)).item() for n in (1, 2, 3, 4)] == [2.0, 3.0, 4.0, 5.0]
    assert [shaped(vec(*range(n))).item() for n in (2, 3, 3)] == [3.0, 9.0, 9.0]


def test_what_only_the_first_call_does():
    made = {}

    def step(x):
        if "weight" not in made:
            made["weight"] = Tensor.full((1,), 3.0).contiguous()
            return (x * 5 * made["weight"]).realize()
        return (x * made["weight"]).realize()

    assert calls(step, 4) == [[15.0], [3.0], [3.0], [3.0]]


def test_what_expressions_computed_before_is_not_looked_at():
    weights = [Tensor.full((1, 9), 2.0).contiguous().detach() for _ in range(4)]
    with Context(SPEC=0):  # so that all but the first are promises, whose nodes the step makes
        for weight in weights:
            weight.realize()
        step = TinyJit(lambda x: sum(x @ weight for weight in weights).realize())
        step(vec(1))
    (outlines,) = step._outlines.values()
    given = [row.given for outline in outlines for row in outline.rows if row.op is Ops.BUFFER]
    assert len(given) >= len(weights) and not any(given)


def test_steps_whose_results_come_in_another_order():
    weights = [Tensor([float(n)]).realize() for n in (2, 3)]
    rates, orders = (0.5, 0.25), iter([(0, 1), (1, 0), (1, 0)])

    def step(x):
        made = [weights[n].assign(weights[n] - x * rates[n]) for n in next(orders)]
        return x.realize(*made)

    run = TinyJit(lambda x: step(x) * 1)
    with pytest.raises(JitError, match="changes orders"):  # not that it computed with 0.25
        [run(vec(1)) for _ in range(2)]


def test_a_training_step_that_counts():
    net, seen = nn.Linear(2, 2), itertools.count(1)
    optimizer = nn.optim.Adam(nn.state.get_parameters(net))

    def step(x, rate):
        optimizer.zero_grad()
        (net(x).square().mean() * rate()).backward()
        optimizer.step()
        return x.sum().realize()

    with Tensor.train():
        constant, moving = (TinyJit(lambda x, r=r: step(x, r)) for r in (lambda: 2.0, read(seen)))
        assert [constant(vec(1, 2)).item() for _ in range(3)] == [3.0] * 3
        with pytest.raises(JitError, match="with 2.0 at .*, and did with 1.0"):
            [moving(vec(1, 2)) for _ in range(2)]


def test_a_seed_of_a_generator_made_inside():
    seeds = map(int, itertools.count())
    drawn = calls(lambda x: x * Tensor.rand(1, generator=Generator(3)))
    assert drawn[0] == drawn[1] == drawn[2]
    with pytest.raises(JitError, match="with 1 at .* with 0 in"):
        calls(lambda x: x * Tensor.rand(1, generator=Generator(next(seeds))))


def test_nan_is_the_same_number():
    array = np.array([np.nan, 1.0])
    assert calls(lambda x: (x * float("nan") + Tensor(array.copy())).isnan().all()) == [True] * 3
