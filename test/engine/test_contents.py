"""What a captured step does to lists, dicts, iterators and random numbers of Python is done once:
that is an error, not a stale result. What it makes for itself, or leaves as it was, is fine."""

import os
import random
import threading
from collections import deque
from itertools import count

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, nn
from tinygrad.base.errors import JitError
from tinygrad.data import DataLoader
from tinygrad.engine.contents import content


def vec(*values):
    return Tensor([float(v) for v in values]).realize()


def three(function, *arguments):
    step = TinyJit(function)
    return [step(*[vec(1), *arguments]).item() for _ in range(3)]


class Held:
    def __init__(self):
        self.log, self.seen, self.named, self.work = [], set(), {}, deque([1.0, 2.0, 3.0])
        self.parts = [Part(), Part()]


class Part:
    def __init__(self):
        self.outs = []


held = Held()
numbers, counter = iter(range(100)), count()
rng, other = np.random.default_rng(0), random.Random(0)


def forever():
    number = 0
    while True:
        yield number
        number += 1


turns, batches = forever(), iter(DataLoader([(1.0, 2.0)] * 8, batch_size=1))


def noted(log, value):
    log.append(value)
    return value


def of_parts(x):
    for part in held.parts:
        part.outs.append(x)
    return x * 2


def slices(x):
    held.log[len(held.log) :] = [1]
    return x * 2


def default(x, outs=[]):  # noqa: B006
    outs.append(x)
    return x * 2


CHANGES = {
    "append": (lambda x: noted(held.log, x * 2), r"changes held\.log .* from list\("),
    "append to what a loop found": (of_parts, "changes a list .*of_parts"),
    "append to a default": (default, r"changes outs .*default\) from list\(Tensor\)"),
    "write by a slice": (slices, r"changes held\.log"),
    "add to a set": (lambda x: held.seen.add(next(numbers)) or x * 2, "changes"),
    "key of a dict": (lambda x: noted(held.log, x) * len(held.named.setdefault("a", "b")), "held"),
    "pop": (lambda x: x * held.work.popleft(), r"held\.work .* to deque\(3\.0\), which replays"),
    "iterator": (lambda x: x * next(numbers), r"numbers .* from range_iterator\(\d+ left\)"),
    "count": (lambda x: x * next(counter), r"counter .* from count\(count\(1\)\)"),
    "generator": (lambda x: x * next(turns), r"changes a generator \(forever\)"),
    "loader": (lambda x: x * next(batches)[0], "changes a generator|changes"),
    "random": (lambda x: x * random.random(), r"random\.random .* Tensor\.rand"),
    "uniform": (lambda x: x * random.uniform(1, 2), r"random\.uniform"),
    "shuffle": (lambda x: random.shuffle([1, 2]) or x * 2, r"random\.shuffle"),
    "stream": (lambda x: x * other.random(), r"other .* from Random\(state"),
    "NumPy's random": (lambda x: x * np.random.rand(), r"np\.random\.rand"),
    "NumPy's generator": (lambda x: x * rng.random(), r"rng .* from Generator\(state"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_step_changes_is_an_error(name, monkeypatch):
    monkeypatch.setitem(globals(), "held", Held())
    function, words = CHANGES[name]
    with pytest.raises(JitError, match=words):
        three(function)
    assert three(lambda x: x * 2) == [2.0] * 3


def test_what_a_step_makes_or_restores_is_fine():
    stack, log = [1], []

    def step(x):
        outs = []
        for factor in (1, 2, 3):
            outs.append(x * factor)
        stack.append(2)
        own = forever()
        next(own), next(own)
        rate = random.Random(3).random() + next(iter([1, 2]))
        assert stack.pop() == 2
        if not log:  # a memo, filled by the first call
            log.append(rate)
        return sum(outs) + sorted({3, 1})[0] * next(own)

    assert three(step) == [8.0] * 3


def changed_between(function, change):
    step = TinyJit(function)
    for _ in range(3):
        step(vec(1))
    change()
    return step(vec(1)).item()


def test_what_a_step_reads_whole_must_stay():
    factors, table, array = [1.0, 2.0], {"a": 1.0}, np.ones(2, "float32")
    key, named = "a", {"a": 1.0, "b": 1.0}

    def set_first():
        factors[0] = 5.0

    def element(x, place):
        return x * place[key.lower()]

    rows = [
        (lambda x: x * len(factors), lambda: factors.append(1.0), "the length of factors .* is 3"),
        (lambda x: x * sum(factors), set_first, "element 0 of factors .* is 5.0 now"),
        (lambda x: x * named[key], lambda: named.update(a=3.0), "element 'a' of named"),
        (lambda x: x * named.get(key), lambda: named.update(b=4.0), "element 'b' of named"),
        (lambda x: element(x, named), lambda: named.update(a=5.0), "element 'a' of place"),
        (lambda x: x * sum(table.values()), lambda: table.update(a=2.0), "element 'a' of table"),
        (lambda x: x * float(array[0]), lambda: array.fill(3), r"array .* is ndarray\(3.0, 3.0\)"),
        (lambda x: (x * Tensor(array)).sum(), lambda: array.fill(4), r"array .* is ndarray\(4.0"),
    ]
    for function, change, words in rows:
        with pytest.raises(JitError, match=words):
            changed_between(function, change)


def test_what_is_read_of_the_environment_must_stay(monkeypatch):
    rows = [
        lambda x: x * float(os.environ["RATE"]),
        lambda x: x * float(os.environ.get("RATE", "2")),
        lambda x: x * float(os.getenv("RATE", "2")),
        lambda x: x * ("RATE" in os.environ),
    ]
    for function in rows:
        monkeypatch.setenv("RATE", "3")
        with pytest.raises(JitError, match=r"os.environ\['RATE'\] is '4' now"):
            changed_between(function, lambda: monkeypatch.setenv("RATE", "4"))
    other = changed_between(rows[0], lambda: monkeypatch.setenv("MODE", "x"))
    assert other == 4.0


def test_an_array_that_holds_nan_stays_as_it_is():
    array = np.array([1.0, np.nan], "float32")
    step = TinyJit(lambda x: (x * Tensor(array)).realize())
    for n in range(4):
        found = step(Tensor([float(n), 1.0]).contiguous().realize())
        np.testing.assert_array_equal(found.numpy(), [n, np.nan])


@pytest.mark.parametrize("size", [4097, 1 << 22])
@pytest.mark.parametrize("columns_first", [False, True])
def test_a_large_array_that_is_filled_anew_is_no_longer_the_same(size, columns_first):
    batch = np.full((2, size), np.nan, "float32")
    batch = batch.T if columns_first else batch
    step = TinyJit(lambda x: (x * Tensor(batch)).nansum().realize())
    for n in range(4):
        assert step(vec(n)).item() == 0
    batch[:] = 1
    with pytest.raises(JitError, match=r"batch .* is ndarray\(.*, \d+ bytes\)"):
        step(vec(1))


def test_what_a_step_takes_a_part_of_may_change_elsewhere():
    state, log, source = {"scale": 2.0, "epoch": 0}, [], random.Random(1)

    def step(x):
        if source is None:
            log.append(x)
        return x * state["scale"] * state.get("scale")

    def change():
        state["epoch"], _ = 1, (log.append(1), source.random())

    assert changed_between(step, change) == 4.0


def test_other_threads_may_change_what_the_step_can_reach():
    class Trainer:
        def __init__(self):
            self.layer, self.queue = nn.Linear(1, 1), deque()

        def step(self, x):
            self.ready.wait(5)
            return self.layer(x).realize()

    trainer = Trainer()
    trainer.ready = threading.Event()
    filling = threading.Timer(0.01, lambda: (trainer.queue.append(1), trainer.ready.set()))
    run = TinyJit(trainer.step)
    trainer.ready.set()
    run(vec(1))
    trainer.ready.clear()
    filling.start()
    run(vec(1))
    filling.join()
    assert trainer.queue and run(vec(1)).shape == (1,)


def test_what_is_held_in_words():
    assert repr(content([1, "a", Part()])) == "list(1, a, Part)"
    assert repr(content({"a": Part()})) == "dict(('a', 'Part'))"
    assert repr(content(list(range(10)))) == "list(.., 4, 5, 6, 7, 8, 9)"
    assert repr(content([0] * 5000)) == "list(5000 elements)"
    assert content(3) is None and content((1, 2)) is None
