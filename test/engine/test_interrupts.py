"""What an error or a Ctrl-C at any place leaves behind: everything else works, and each write is
done as a whole, once, or not at all."""

from __future__ import annotations

import contextlib
import random
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted_at

from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.base.errors import CompileError, IndexCheckError, RuntimeCheckError
from tinygrad.base.settings import BEAM, NOOPT
from tinygrad.engine import making
from tinygrad.engine.faults import forget_faults
from tinygrad.engine.holders import ask_all
from tinygrad.engine.realize import telling
from tinygrad.tensor.modes import recording
from tinygrad.tensor.promise import Template
from tinygrad.uop.op import Ops


@pytest.fixture
def plain(monkeypatch):
    """Steps are remembered, and not done both ways; what comes in a finaliser is over."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with Context(SPEC=0):
        yield


def tensor(*numbers: float) -> Tensor:
    return Tensor(np.array(numbers, np.float32)).realize()


# ---- promises that can't be kept -----------------------------------------------------------------


def fails_to_write_down(monkeypatch, broken: Tensor, error: BaseException) -> list[None]:
    """From now on the nodes of this promise can't be made; a list with an element for each try."""
    template, original, tries = broken._source.expression.template, Template.over, []

    def over(self, *given):
        if self is template:
            tries.append(None)
            raise error
        return original(self, *given)

    monkeypatch.setattr(Template, "over", over)
    return tries


def two_promises(t: Tensor) -> tuple[Tensor, Tensor]:
    for _ in range(2):
        # of other operations, as multiples of many numbers are of one template
        one, other = t * 5, t + 3
    assert one._is_promised and other._is_promised
    return one, other


def test_a_promise_that_cant_be_written_down_is_an_error_of_its_own(plain, monkeypatch):
    t = tensor(1, 2)
    broken, good = two_promises(t)
    tries = fails_to_write_down(monkeypatch, broken, IndexError("no node"))
    state = tensor(0, 0)
    step = TinyJit(lambda x: state.assign(state + x).realize())
    for n in range(4):
        assert step(t).tolist() == [n + 1, 2 * n + 2]
    t[0] = 7
    assert (t.tolist(), good.tolist()) == ([7, 2], [4, 5])
    for _ in range(2):
        with pytest.raises(IndexError, match="no node"):
            broken.numpy()
    assert len(tries) == 1
    monkeypatch.undo()
    with pytest.raises(IndexError, match="no node"):
        (broken + 1).numpy()
    broken.replace(tensor(4, 4))
    assert broken.tolist() == [4, 4]


def test_a_promised_write_that_cant_be_done_is_not_lost(plain, monkeypatch):
    t, u = tensor(1, 2), tensor(3, 4)

    @Tensor.no_grad()
    def writes() -> None:
        t.assign(u * 2)
        u.assign(u + 1)

    for _ in range(3):
        writes()
    written = t._source
    assert t._is_promised
    fails_to_write_down(monkeypatch, t, IndexError("no node"))
    for _ in range(2):
        with pytest.raises(IndexError, match="no node"):
            _ = t.uop
        assert t._source is written
    monkeypatch.undo()
    assert (t.tolist(), u.tolist()) == ([10, 12], [6, 7])


def test_ctrl_c_while_all_are_asked_leaves_the_rest_to_be_asked(plain, monkeypatch):
    t = tensor(1, 2)
    first, second = two_promises(t)
    fails_to_write_down(monkeypatch, first, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ask_all()
    monkeypatch.undo()
    ask_all()
    assert not (first._is_promised or second._is_promised)
    t[0] = 7
    assert (t.tolist(), first.tolist(), second.tolist()) == ([7, 2], [5, 10], [4, 5])


# ---- plans that can't be made --------------------------------------------------------------------


@pytest.fixture
def no_sines(monkeypatch):
    """No plan with a sine can be made."""
    plan = making.plan_to_run

    def fails(sink, devices):
        if any(node.op is Ops.SIN for node in sink.toposort()):
            raise CompileError("no plan")
        return plan(sink, devices)

    monkeypatch.setattr(making, "plan_to_run", fails)
    return monkeypatch


def test_what_has_no_plan_keeps_nobody_from_writing(plain, no_sines):
    x, y = tensor(1, 2), tensor(0, 0)
    waits, alike, sound = x.sin() * 19, y.sin() * 23, x * 5
    x += 1
    assert (x.tolist(), sound.tolist()) == ([2, 3], [5, 10])
    step = TinyJit(lambda a: y.assign(y + a).realize())
    assert [step(x).tolist() for _ in range(4)][-1] == [8, 12]
    for lost in (waits, alike):
        with pytest.raises(CompileError, match="no plan"):
            lost.tolist()


def test_a_write_that_has_no_plan_is_not_lost(plain, no_sines):
    x = tensor(0, 0)
    x.assign(x.sin() * 29 + 1)
    with pytest.raises(CompileError, match="no plan"):
        x.tolist()
    no_sines.undo()
    assert x.tolist() == [1, 1]


def test_a_write_after_which_an_observer_fails_is_done_once(plain, monkeypatch):
    x = tensor(1, 2)

    def look(run: Any) -> None:
        raise ValueError("seen enough")

    x += 1
    with pytest.raises(ValueError, match="seen enough"), telling(look):
        x.realize()
    assert x.tolist() == [2, 3]


# ---- Ctrl-C anywhere -----------------------------------------------------------------------------


class Program:
    """`work` takes it from one of `sound` to the next, if Ctrl-C doesn't come; `look` says where it
    is. What is found there afterwards must be one of these, and a second `work` must go on. Its
    mode begins before and ends after: one that Ctrl-C ends may stay, which is a known hole."""

    mode: Any = nullcontext

    def __init__(self) -> None:
        self.begin()
        for _ in range(3):  # its steps and plans are known
            with self.mode():
                self.work()
            self.look()
        self.begin()

    def begin(self) -> None: ...

    def work(self) -> None: ...

    def look(self) -> list[Any]: ...


class WritesThroughAView(Program):
    def begin(self):
        self.whole = Tensor(np.zeros((3, 2), np.float32)).realize()
        self.part, self.late = self.whole[1:], self.whole * 3

    def work(self):
        self.part += 1
        self.whole.realize()

    def look(self):
        assert self.part.tolist() == self.whole.tolist()[1:]
        assert self.late.tolist() == [[0, 0]] * 3
        return self.whole.tolist()


class WritesThatWait(Program):
    def begin(self):
        self.a, self.b = tensor(1, 1), tensor(2, 2)
        self.late = self.a * 10

    mode = staticmethod(Tensor.no_grad)

    def work(self):
        self.a.assign(self.a * 2)
        self.b.assign(self.b + self.a)
        Tensor.realize(self.a, self.b)

    def look(self):
        assert self.late.tolist() == [10, 10]
        return [self.a.tolist(), self.b.tolist()]


class SharesMemory(Program):
    def begin(self):
        start = tensor(1, 1, 1, 1)
        self.one, self.same = start * 2, start * 2
        Tensor.realize(self.one, self.same)
        self.view = self.one.reshape(2, 2)

    def work(self):
        self.one.add_(1)

    def look(self):
        assert self.same.tolist() == [2] * 4
        assert self.view.reshape(4).tolist() == self.one.tolist()
        return self.one.tolist()


class WritesWhereGradientsFollow(Program):
    def begin(self):
        self.start = Tensor(np.ones(4, np.float32), requires_grad=True)
        self.whole = self.start * 2
        self.part = self.whole[1:3]

    def work(self):
        self.part *= 3

    def look(self):
        self.start.grad = None
        self.whole.sum().backward()
        assert self.part.tolist() == self.whole.tolist()[1:3]
        assert self.start.grad.tolist() == self.whole.tolist()
        return self.whole.tolist()


class WritesPastGradients(WritesWhereGradientsFollow):
    mode = staticmethod(Tensor.no_grad)

    def look(self):
        self.start.grad = None
        self.whole.sum().backward()
        assert self.start.grad.tolist() == [2] * 4
        return self.whole.tolist()


class Trains(Program):
    def begin(self):
        self.weight = Tensor(np.ones((3, 2), np.float32), requires_grad=True).realize()
        self.x = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3) / 8).realize()
        self.optimizer = nn.optim.SGD([self.weight], lr=0.25, momentum=0.5)
        self.late = self.weight.detach() * 3

    mode = Tensor.train

    def work(self):
        self.optimizer.zero_grad()
        ((self.x @ self.weight).tanh() ** 2).mean().backward()
        self.optimizer.step()

    def look(self):
        assert self.late.tolist() == [[3, 3]] * 3
        return [self.weight.tolist(), *[b.tolist() for b in self.optimizer.b]]


class IsCaptured(Program):
    calls = 1

    def begin(self):
        self.state, self.weight, self.one = tensor(0, 0), tensor(1, 1), tensor(1, 1)
        self.weight.requires_grad = True
        self.late = self.state * 10

        def step(x: Tensor) -> Tensor:
            (self.weight * x).sum().backward()
            self.state.assign(self.state + x)
            return (self.state * 2).realize()

        self.step = TinyJit(step)
        for _ in range(self.calls):
            self.weight.grad = None
            self.step(self.one)
        self.state.assign(Tensor([0.0, 0.0])).realize()
        self.late = self.state * 10
        self.weight.grad = None

    def work(self):
        self.weight.grad = None
        self.step(self.one)

    def look(self):
        assert self.late.tolist() == [0, 0]
        return self.state.tolist()


class IsReplayed(IsCaptured):
    calls = 3

    def look(self):
        state = self.state.tolist()
        assert self.weight.grad is None or self.weight.grad.tolist() == [1, 1]
        return state


class CopiesToAnotherDevice(Program):
    def begin(self):
        self.here = tensor(1, 2)
        self.here += 1
        self.there = (self.here * 2).to("PYTHON")

    def work(self):
        self.there.realize()
        self.here += self.there.to("CPU")

    def look(self):
        assert self.there.tolist() == [4, 6]
        return self.here.tolist()


class OfSeveralDevices(Program):
    def begin(self):
        devices = ("CPU:1", "CPU:2")
        self.cut = Tensor(np.arange(4, dtype=np.float32)).shard(devices, 0).realize()
        self.all = Tensor(np.ones(4, np.float32)).shard(devices, None).realize()
        self.late = self.cut * 3

    def work(self):
        self.all.assign(self.all + self.cut.sum())
        self.cut.assign(self.cut + 1)
        Tensor.realize(self.cut, self.all)

    def look(self):
        assert self.late.tolist() == [0, 3, 6, 9]
        return [self.cut.tolist(), self.all.tolist()]


class IsReplaced(Program):
    def begin(self):
        self.one, self.other = tensor(1, 1), tensor(2, 2)

    def work(self):
        self.one.replace(self.other)

    def look(self):
        self.other.add_(1)
        assert self.one.tolist() in ([1, 1], self.other.tolist())
        return self.one.tolist()


PROGRAMS = [*Program.__subclasses__(), WritesPastGradients, IsReplayed]
MOST = 40  # interrupts of each


def works(program: Program, number: int = 1 << 40) -> bool:
    """Whether its work was broken off at the place of this number."""
    with program.mode():
        return interrupted_at(number, program.work)


def parts(looks: list[Any]) -> list[Any]:
    """Tensors, each of which may be written or not."""
    return looks if isinstance(looks[0], list) else [looks]


@pytest.mark.parametrize("kind", PROGRAMS, ids=lambda kind: kind.__name__)
def test_ctrl_c_leaves_no_write_half_done_or_done_twice(kind, plain):
    program, before, last = kind(), kind().look(), 1
    works(program)
    after = program.look()
    while works(kind(), last):
        last *= 2
    for number in sorted(random.Random(0).sample(range(last), min(MOST, last))):
        program = kind()
        works(program, number)
        found = program.look()
        for now, *legal in zip(*map(parts, (found, before, after)), strict=True):
            assert now in legal, f"after an interrupt at {number}"
        works(program)
        program.look()


def test_a_fault_is_told_whenever_ctrl_c_comes(plain):
    x, at, number = Tensor([1, 2, 3]).realize(), Tensor([9]).realize(), 0
    forget_faults()

    def look() -> None:
        with pytest.raises(IndexCheckError):
            y.tolist()

    y = x[at] + 1
    look()
    y = x[at] + 1
    while interrupted_at(number, look):
        look()
        assert x.tolist() == [1, 2, 3]
        y, number = x[at] + 1, 2 * number + 1
    assert number > 50


def test_what_a_kernel_was_interrupted_in_the_middle_of_is_an_error_until_it_is_written(plain):
    def begin() -> Tensor:
        return Tensor(np.zeros(4, np.float32), device="PYTHON").realize().add_(1)

    begin().realize()
    least, most, seen = 0, 1, set()
    while interrupted_at(most, begin().realize):
        least, most = most, 2 * most
    while least + 1 < most:  # where the last place is, behind the kernel
        middle = (least + most) // 2
        is_before = interrupted_at(middle, begin().realize)
        least, most = (middle, most) if is_before else (least, middle)
    for number in range(0, least, 5):
        x = begin()
        interrupted_at(number, x.realize)
        try:
            seen.add(x.tolist()[0])
        except RuntimeCheckError as error:
            assert "KeyboardInterrupt came while this was overwritten" in str(error)
            seen.add("told")
        x.assign(Tensor(np.full(4, 7, np.float32), device="PYTHON")).realize()
        assert x.tolist() == [7] * 4
    assert seen == {1, "told"}


ENTERED = {
    "no_grad": Tensor.no_grad,
    "train": Tensor.train,
    "Context": lambda: Context(NOOPT=1, BEAM=2),
}


def settings() -> list[Any]:
    return [recording.on, Tensor.training, NOOPT.value, BEAM.value]


@pytest.mark.parametrize("kind", ENTERED)
def test_ctrl_c_leaves_no_mode_behind(kind, plain):
    def work() -> None:
        with ENTERED[kind]():
            assert settings() != before

    before, number = settings(), 0
    while interrupted_at(number, work):
        assert settings() == before, f"after an interrupt at {number}"
        number += 1
    assert settings() == before
    assert number > 5


@pytest.mark.parametrize("kind", ENTERED)
def test_a_mode_may_be_entered_again_inside(kind):
    mode, before = ENTERED[kind](), settings()
    for _ in range(2):
        with contextlib.ExitStack() as stack, mode:
            inside = settings()
            with mode:
                stack.enter_context(mode)
                assert settings() == inside != before
            assert settings() == inside
        assert settings() == before
