"""Tensors in several threads, in forked processes, and after Ctrl-C."""

from __future__ import annotations

import functools
import itertools
import operator
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted_at
from together import beside, together

from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.base import locks
from tinygrad.base.helpers import Recent
from tinygrad.base.settings import NOOPT
from tinygrad.engine import plans
from tinygrad.engine.devices import Device
from tinygrad.engine.replay import Replay
from tinygrad.engine.storage import Families
from tinygrad.engine.structure import nodes_below, structure_of
from tinygrad.engine.turns import Turns, is_owned, keeping, preparing
from tinygrad.tensor import core
from tinygrad.tensor.core import Core
from tinygrad.tensor.modes import recording
from tinygrad.tensor.version import Version


@pytest.fixture
def on(request):
    before = Device.DEFAULT
    yield lambda name: setattr(Device, "DEFAULT", name)
    Device.DEFAULT = before


@pytest.mark.parametrize(
    ("device", "turns"), [("CPU", 12), ("PYTHON", 6), ("CL", 2), ("WEBGPU", 2)]
)
def test_threads_disturb_each_other_nowhere(device, turns, on):
    """Shared expressions, writes, gradients, and errors that each thread hears of alone."""
    on(device)
    numbers = np.arange(64, dtype=np.float32)
    shared = Tensor(numbers).realize()
    lazy = [(shared * k).sin() for k in range(4)]

    def work(n: int) -> None:
        draw = random.Random(n)
        for i in range(turns):
            k = draw.randrange(4)
            np.testing.assert_allclose(lazy[k].numpy(), np.sin(numbers * k), atol=1e-5)
            x, wanted = Tensor.full((8, 8), float(n)).contiguous().realize(), np.full((8, 8), n)
            part = x[::2]
            part += i
            x[:, 1] = 7
            wanted[::2] += i
            wanted[:, 1] = 7
            assert x.tolist() == wanted.tolist()
            total = (x @ x + shared[:8]).relu().sum(0).numpy()
            np.testing.assert_allclose(total, (wanted @ wanted + np.arange(8)).sum(0), rtol=1e-4)
            z = Tensor([1.0, 2.0], requires_grad=True)
            (z * z * n).sum().backward()
            assert z.grad.tolist() == [2 * n, 4 * n]
            with pytest.raises(IndexError, match=f"index {n + 5} "):
                Tensor([1, 2, 3])[Tensor([n + 5])].tolist()

    together(*[functools.partial(work, n) for n in range(1, 6)], often=True)


def test_a_write_that_several_threads_wait_for_is_done_once():
    for _ in range(30):
        x = Tensor(np.zeros(2000, np.float32)).realize()
        x.assign(x + 1)
        x[:1000] += 1
        y = x * 2
        arrays = together(x.numpy, x.numpy, y.numpy, often=True)
        assert [a.sum() for a in arrays] == [3000, 3000, 6000]


def once_beside(
    monkeypatch, owner: object, name: str, work: Callable[[], object], after: bool = False
) -> list[Any]:
    """When this function is called next, another thread works before it, or after it; a list of
    that thread."""
    original, begun = getattr(owner, name), []

    def interrupted(*args: Any, **named: Any) -> Any:
        if begun:
            return original(*args, **named)
        begun.append(None)
        found = original(*args, **named) if after else None
        begun[0] = beside(work)
        return found if after else original(*args, **named)

    monkeypatch.setattr(owner, name, interrupted)
    return begun


@pytest.mark.parametrize(
    ("looks", "write"),
    [
        ("add", lambda t: t.add_(1)),
        ("__add__", lambda t: operator.iadd(t, 1)),
        ("__add__", lambda t: operator.setitem(t, 1, operator.iadd(t[1], 1))),
        ("__add__", lambda t: operator.iadd(t[1:], 1)),
    ],
)
def test_nobody_writes_between_look_and_write_of_an_operator_in_place(looks, write, monkeypatch):
    t = Tensor(np.zeros((3, 2), np.float32)).realize()
    other = once_beside(monkeypatch, Tensor, looks, lambda: write(t), after=True)
    write(t)
    other[0].join(60)
    assert t.tolist()[1] == [2, 2]


def test_threads_that_add_to_one_tensor_and_to_its_rows_lose_nothing():
    t = Tensor(np.zeros((4, 16), np.float32)).realize()

    def add(row: int) -> None:
        x = t
        for _ in range(6):
            x += 1
            t[row] += 1
            t[row].add_(1).realize()

    together(*[functools.partial(add, row) for row in range(4)], often=True)
    assert (t.numpy() == 36).all()


def test_a_replay_that_only_reads_waits_for_a_step_that_writes(monkeypatch):
    state, one = (Tensor.ones(4).contiguous().realize() for _ in range(2))
    write = TinyJit(lambda x: state.assign(state + x).realize())
    look = TinyJit(lambda x: (state * x).realize())
    for _ in range(3):
        write(one)
        look(one)
    seen: list[Any] = []
    other = once_beside(monkeypatch, Replay, "run", lambda: seen.append(look(one)))
    write(one)
    other[0].join(60)
    assert seen[0].tolist() == [5] * 4


def test_a_view_that_is_made_while_another_thread_writes_is_one(monkeypatch):
    """Here the write gives the tensor memory of its own."""
    start = Tensor(np.ones(4, np.float32)).realize()
    for make in (lambda t: t.reshape(2, 2), lambda t: t.detach()):
        t, same = start * 2, start * 2
        Tensor.realize(t, same)
        other = once_beside(monkeypatch, Core, "_join", lambda t=t: operator.setitem(t, 0, 5.0))
        view = make(t)
        other[0].join(60)
        monkeypatch.undo()
        view += 1
        assert (t.tolist(), view.reshape(4).tolist()) == ([6, 3, 3, 3], [6, 3, 3, 3])
        assert same.tolist() == [2] * 4


def test_who_reads_a_tensor_leaves_it_a_write_that_another_thread_has_promised(monkeypatch):
    t, two = (Tensor(np.full(4, n, np.float32)).realize() for n in (1, 2))

    @Tensor.no_grad()
    def assign() -> None:
        t.assign(two * 2)

    (t * 3).realize()
    with Context(SPEC=0):  # which would look at it a third time
        t.assign(1.0)  # a later era of the same storage
        other = once_beside(monkeypatch, Version, "_in_era", assign)
        _ = t * 3
    other[0].join(60)
    assert t.tolist() == [4] * 4


def test_who_comes_to_share_memory_is_known_before_another_thread_writes_there(monkeypatch):
    start = Tensor(np.ones(4, np.float32)).realize()
    with recording.written_down(followed=False):
        x, y = start * 2, start * 2
    x.realize()
    other = once_beside(monkeypatch, core, "join", lambda: x.add_(1).realize())
    _ = y._value
    other[0].join(60)
    assert (x.tolist(), y.tolist()) == ([3] * 4, [2] * 4)


def test_locks_are_taken_in_their_order(monkeypatch):
    """A turn, `keeping`, `preparing`. A thread that waited for its turn with `keeping` would wait
    for a capture, which waits for that."""
    original, seen = Turns.together, []

    def checked(self: Turns) -> Any:
        lock = original(self)
        seen.append(is_owned(lock) or not (is_owned(keeping.now) or is_owned(preparing.now)))
        return lock

    monkeypatch.setattr(Turns, "together", checked)
    monkeypatch.setattr(plans, "_plans", Recent(9))
    x, weight = Tensor(np.ones((4, 3), np.float32)).realize(), Tensor.ones(3, requires_grad=True)
    mean = Tensor.zeros(3).contiguous().realize()
    optimizer = nn.optim.SGD([weight], lr=0.25, momentum=0.5)

    def step() -> Tensor:
        loss = (x.T[:, 1:] * weight.reshape(3, 1)).exp().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with Tensor.no_grad():
            mean.assign(mean * 0.5 + weight)
            x.add_(1)[1:] += weight
            x[2] = x[1] - mean.detach()
            half = (x * 0.5).realize()
            half.assign(x * 0.25)
        return loss + half.sum()

    with Tensor.train():
        for take in (step, step, step, *[TinyJit(step)] * 4):
            assert take().realize().item() > 0
    assert len(seen) > 100
    assert all(seen)


new_sizes = itertools.count(137)


def test_threads_that_want_the_same_plan_make_it_once(monkeypatch):
    made: list[Any] = []
    original = plans._shared
    monkeypatch.setattr(plans, "_shared", lambda *given: made.append(None) or original(*given))
    x = Tensor(np.ones((3, next(new_sizes)), np.float32)).realize()
    together(*[lambda: (x.sin() * 11 + x).sum().item()] * 4, often=True)
    assert len(made) == 1


def test_a_check_fails_after_a_replay_that_was_timed(capsys):
    """Timed ones and others find the words of a run in different places."""
    x, at = Tensor([1, 2, 3]).realize(), [Tensor([n]).realize() for n in (0, 1, 2, 9)]
    step = TinyJit(lambda i: x[i].realize())
    for n in range(2):
        step(at[n])
    with Context(DEBUG=2):
        step(at[2])
    assert step(at[1]).tolist() == [2]
    with pytest.raises(IndexError, match="index 9"):
        step(at[3]).tolist()


def test_what_another_thread_makes_of_the_state_during_a_capture_stays_its_own():
    state, one = Tensor([1.0, 1.0]).realize(), Tensor([1.0, 1.0]).realize()
    made: list[Tensor] = []

    def make(factor: float) -> None:
        other = Tensor([factor, factor]).realize()
        thread = beside(lambda: made.append(state * other), 60)
        assert not thread.is_alive()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        make(3)
        state.assign(state + x).realize()
        make(5)
        return (state * 2).realize()

    for n in range(6):
        assert step(one).tolist() == [2 * n + 4] * 2
        assert [t.tolist()[0] for t in made] == [1 * 3, 2 * 5, 2 * 3, 3 * 5][: 2 * n + 2]


@pytest.mark.parametrize("before, during", [(2.0, None), (2.0, 3.0), (None, 3.0), (5, None)])
def test_gradients_that_another_thread_sets_during_a_capture_stay_its_own(before, during):
    def given(value):
        return Tensor([value]) if isinstance(value, float) else value

    theirs, state = (Tensor([1.0], requires_grad=True) for _ in range(2))

    @TinyJit
    def step(x: Tensor) -> Tensor:
        beside(lambda: setattr(theirs, "grad", given(during)), 60)
        return (x * state).realize()

    for n in range(2):
        theirs.grad = given(before)
        assert step(given(float(n))).item() == n
    for gradient in (given(4.0), None):
        theirs.grad = gradient
        state.requires_grad = gradient is None  # of no concern to a step without gradients
        assert step(given(2.0)).item() == 2
        assert theirs.grad is gradient


def test_another_thread_may_drop_its_view_of_the_state_during_a_capture():
    state, one = Tensor([1.0, 1.0]).realize(), Tensor([1.0, 1.0]).realize()
    turn = threading.Barrier(2, timeout=20)

    def looks() -> None:
        for n in range(5):
            view = state.detach()[1:]
            assert view.tolist() == [n + 1]
            turn.wait()
            turn.wait()  # the step has begun
            del view
            turn.wait()
            turn.wait()

    def meet() -> None:
        turn.wait()
        turn.wait()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        meet()
        return state.assign(state + x).sum().realize()

    def steps() -> None:
        for n in range(5):
            turn.wait()
            if n > 1:  # a replay
                meet()
            assert step(one).tolist() == 2 * n + 4
            turn.wait()

    together(looks, steps)


def test_captured_steps_of_several_threads_write_each_their_own_state():
    def work() -> None:
        for _ in range(30):
            state = Tensor.zeros(5).contiguous().realize()
            weight = Tensor.ones(5, requires_grad=True)

            @TinyJit
            def step(x, state=state, weight=weight):
                state.assign(state * 0.5 + x)
                weight.assign(weight.detach() + 1)
                return (state * 2).realize()

            wanted = np.zeros(5, np.float32)
            for n in range(4):
                x = np.arange(5, dtype=np.float32) + n
                wanted = wanted * np.float32(0.5) + x
                assert step(Tensor(x).realize()).tolist() == (wanted * 2).tolist()
            assert weight.tolist() == [5] * 5

    together(*[work] * 4, often=True)


def test_a_captured_step_that_threads_share_loses_no_write():
    total = Tensor.zeros(16).contiguous().realize()
    one = Tensor.ones(16).contiguous().realize()
    step = TinyJit(lambda x: total.assign(total + x).sum().realize())
    for _ in range(2):
        step(one)
    together(*[lambda: [step(one) for _ in range(50)]] * 4, often=True)
    assert total.tolist() == [202] * 16


def test_threads_that_share_a_step_from_its_first_call_lose_no_write():
    one = Tensor.ones(16).contiguous().realize()
    for _ in range(20):
        total = Tensor.zeros(16).contiguous().realize()
        step = TinyJit(lambda x, total=total: total.assign(total + x).sum().realize())
        together(*[lambda step=step: [step(one) for _ in range(3)]] * 4, often=True)
        assert total.tolist() == [12] * 16


def test_threads_share_the_step_of_an_instance_from_its_first_call():
    class Counter:
        def __init__(self) -> None:
            self.total = Tensor.zeros(4).contiguous().realize()

        @TinyJit
        def add(self, x):
            return self.total.assign(self.total + x).sum().realize()

    one = Tensor.ones(4).contiguous().realize()
    for _ in range(10):
        counter = Counter()
        together(*[lambda it=counter: [it.add(one) for _ in range(3)]] * 4, often=True)
        assert counter.total.tolist() == [12] * 4


def test_values_are_copied_before_another_thread_gets_their_memory():
    def work(n: int) -> None:
        for turn in range(40):
            x = Tensor(np.full((60, 60), n * 100 + turn, np.float32)).realize()
            assert (x.T[1:50].numpy() == n * 100 + turn).all()
            x += 1
            assert (x[:, 3:40].numpy() == n * 100 + turn + 1).all()

    together(*[functools.partial(work, n) for n in range(4)], often=True)


def test_threads_train_each_its_own_model():
    def work() -> None:
        weight = Tensor.ones(3, requires_grad=True)
        optimizer = nn.optim.SGD([weight], lr=0.25)
        for _ in range(5):
            with Tensor.train():
                (weight * weight).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert weight.tolist() == [1 / 32] * 3

    together(*[work] * 4, often=True)


def test_a_capture_is_not_told_of_faults_in_what_others_wait_for():
    """It computes what they wait for, since that is state from then on."""
    waits = Tensor([1, 2, 3]).realize()[Tensor([9]).realize()]
    step = TinyJit(lambda x: (x + 1).realize())
    assert [step(Tensor([n]).realize()).tolist() for n in range(3)] == [[1], [2], [3]]
    with pytest.raises(IndexError, match="index 9"):
        waits.tolist()


def handed_on(programs: list[list[Callable[[], None]]]) -> None:
    """Runs the first lines of all threads in turn, then their second lines, and so on."""
    turn = threading.Barrier(1 + len(programs))

    def work(lines: list[Callable[[], None]]) -> None:
        for line in lines:
            turn.wait()
            line()
            turn.wait()

    threads = [threading.Thread(target=work, args=(lines,)) for lines in programs]
    for thread in threads:
        thread.start()
    for _ in programs[0]:
        turn.wait()
        turn.wait()
    for thread in threads:
        thread.join(timeout=120)


@pytest.mark.parametrize("assigned", [None, True, False])
def test_training_is_said_by_each_thread_for_itself(assigned):
    """Contexts overlap here: each ends while another lasts."""
    if assigned is not None:
        Tensor.training = assigned
    on, off, seen = Tensor.train(), Tensor.train(False), []

    def look() -> None:
        seen.append(Tensor.training)

    with Tensor.train():
        inner = threading.Thread(target=look)
        inner.start()
        inner.join()
        look()
    try:
        first = [lambda: on.__enter__(), look, lambda: on.__exit__(), look]
        second = [lambda: None, lambda: off.__enter__(), look, lambda: off.__exit__()]
        handed_on([first, second])
        assert seen == [bool(assigned), True, True, False, bool(assigned)]
        assert Tensor.training is bool(assigned)
    finally:
        if assigned is not None:
            del Tensor.training
    assert Tensor.training is False


def test_training_that_is_assigned_is_that_of_all_threads():
    seen: list[bool] = []
    try:
        Tensor.training = True
        thread = threading.Thread(target=lambda: seen.append(Tensor.training))
        thread.start()
        thread.join()
        with Tensor.train(False):
            Tensor.training = True
            seen.append(Tensor.training)
        seen.append(Tensor.training)
    finally:
        del Tensor.training
    assert (seen, Tensor.training) == ([True, True, True], False)


def test_contexts_of_threads_that_overlap_leave_settings_as_they_were():
    first, second = Context(NOOPT=1), Context(NOOPT=2)

    def nothing() -> None: ...

    handed_on([[first.__enter__, nothing, first.__exit__], [nothing, second.__enter__, nothing]])
    assert NOOPT.value == 2
    second.__exit__()
    assert NOOPT.value == 0


def test_what_a_thread_left_is_told_when_it_has_ended():
    made = []
    wrong = threading.Thread(
        target=lambda: made.append(Tensor([1, 2, 3])[Tensor([9])].contiguous().realize())
    )
    wrong.start()
    wrong.join()
    with pytest.raises(IndexError, match="index 9 is out of range"):
        made[0].tolist()
    assert Tensor([1, 2]).tolist() == [1, 2]


def run(program: str, **environment: str) -> str:
    """What a program prints in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip()


FORK = """
    import multiprocessing
    from tinygrad import Tensor
    x = Tensor([1.0, 2.0, 3.0]).realize()
    (x * 2).tolist()

    def work(n):
        try:
            return (x * n).tolist() + (x.reshape(1, 3) @ x.reshape(3, 1)).tolist()
        except Exception as error:
            return type(error).__name__ + ": " + str(error)

    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map_async(work, [3]).get(timeout=200))
    print((x * 5).tolist())
"""


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_forked_workers_compute(device):
    assert run(FORK, DEV=device) == "[[3.0, 6.0, 9.0, [14.0]]]\n[5.0, 10.0, 15.0]"


def test_forked_workers_may_not_use_an_open_opencl_device():
    """Its driver's threads are not there; waiting for them would never end."""
    told, after = run(FORK, DEV="CL").split("\n")
    assert "DeviceError: device CL" in told
    assert "'spawn'" in told
    assert after == "[5.0, 10.0, 15.0]"


FORKED = """
    import os, sys, threading, time
    from tinygrad import Tensor
    HELD
    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    forked = os.fork()
    if not forked:
        print(child(), flush=True)
        os._exit(0)
    end = time.monotonic() + 60
    while os.waitpid(forked, os.WNOHANG) == (0, 0):
        time.sleep(0.01)
        if time.monotonic() > end:
            os.kill(forked, 9)
            print("hangs")
            os.waitpid(forked, 0)
            break
    thread.join()
"""

HELD = {
    "a library's lock, as it makes a plan": """
    from tinygrad.engine import making
    lock, inside, plan = threading.Lock(), threading.Event(), making.plan_to_run

    def planned(*given):
        with lock:
            inside.set()
            time.sleep(0.2)
            return plan(*given)

    making.plan_to_run = planned

    def hold():
        (Tensor([1.0, 2.0]).realize() * 7).tolist()

    def child():
        return (Tensor([1.0, 2.0]).realize() + 5).tolist()
    """,
    "a module's lock, as it imports that": """
    from tinygrad.base.later import later
    inside = threading.Event()
    slow = later("slow")

    def hold():
        sys.modules["__main__"].inside = inside
        slow.value

    def child():
        return [slow.value + 1.0, 7.0]
    """,
    "the table of nodes, as one dies": """
    from tinygrad.uop import interning
    inside = threading.Event()

    def hold():
        with interning._forgetting:
            inside.set()
            time.sleep(0.2)

    def child():
        return (Tensor([1.0, 2.0]).realize() + 5).tolist()
    """,
}


@pytest.mark.parametrize("held", HELD)
def test_a_child_forked_while_a_thread_holds_computes(held, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time, __main__\n__main__.inside.set()\ntime.sleep(0.2)\nvalue = 5.0\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    program = FORKED.replace("    HELD\n", HELD[held].rstrip(" "))
    assert run(program, CACHELEVEL="0", PYTHONPATH=paths) == "[6.0, 7.0]"


INTERRUPTED = """
    import os, random, signal, threading, time
    from tinygrad import Tensor, TinyJit
    draw = random.Random(0)
    x = Tensor([1.0, 2.0]).realize()
    step = TinyJit(lambda a: (a * 2 + 1).sum().realize())

    def still_works():
        assert (x * 2 + hits).tolist() == [2.0 + hits, 4.0 + hits]
        assert (Tensor.ones(size, 3) @ Tensor.ones(3, size)).sum().item() == 3 * size * size
        assert step(Tensor([1.0, 2.0]).realize()).item() == 8

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    hits = 0
    while hits < 40:  # however many turns that takes: on a busy machine fewer, and longer ones
        size = draw.randrange(2, 60)
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.random() * 0.08 + 0.0005)
            a = Tensor.rand(size, size + hits % 7)
            b = (a @ a.T).relu().softmax().sum(0).realize()
            w = Tensor([1.0, 2.0, 3.0]).realize()
            w += 1
            w[0] = size
            ((a * draw.random()).exp() + b.sum()).mean().item()
            step(Tensor([1.0, 2.0]).realize())
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            hits += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            still_works()
        except KeyboardInterrupt:  # what came in a finaliser is sent again, a moment later
            still_works()
    print("interrupted")
    exec("")  # or CPython ends by the signal if the last exec, a named tuple's, was interrupted
"""


def test_interrupts_anywhere_leave_a_working_interpreter():
    """While building, planning, compiling and running."""
    assert run(INTERRUPTED, CACHELEVEL="0") == "interrupted"


@pytest.mark.parametrize("kind", ["together", "alone"])
def test_a_turn_that_is_interrupted_anywhere_is_over(kind):
    """Also while it begins and ends: a turn that stayed taken was one that a capture waited for,
    for ever."""
    turns, number, other = Turns(), 0, threading.Event()

    def takes_a_turn(kind: str) -> None:
        with getattr(turns, kind)():
            pass

    def goes_on() -> None:  # a thread that was inside before
        takes_a_turn("together")
        other.wait()

    threading.Thread(target=goes_on, daemon=True).start()
    while interrupted_at(number, functools.partial(takes_a_turn, kind)):
        number += 1
        together(*[functools.partial(takes_a_turn, k) for k in ("alone", "together")], patience=20)
        takes_a_turn("alone")
    other.set()
    assert number > 4


def test_a_fork_whose_wait_is_interrupted_anywhere_keeps_no_lock():
    """It goes on without those that it had yet to wait for."""

    def take_each() -> None:
        for lock in locks._awaited:
            with lock.now:
                pass

    number = 0
    while interrupted_at(number, locks._wait):
        locks._go_on()
        together(take_each, patience=20)
        number += 1
    locks._go_on()
    together(take_each, patience=20)
    assert number > 4


@pytest.mark.parametrize("pause", [0, 0.05], ids=["at once", "a busy machine"])
def test_control_c_in_a_finaliser_is_heard(pause):
    """Also if the thread that sends it again is much quicker than the one that started it."""
    program = f"""
        import _thread, signal, time
        from tinygrad import Tensor

        start = _thread.start_new_thread

        def started(*arguments):
            start(*arguments)
            time.sleep({pause})

        _thread.start_new_thread = started

        class Dies:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        try:
            Dies()
            time.sleep(20)
        except KeyboardInterrupt:
            print("heard", (Tensor([1, 2]) + 1).tolist())
    """
    assert run(program) == "heard [2, 3]"


def test_control_c_in_a_long_kernel():
    program = """
        import os, signal, threading, time
        from tinygrad import Tensor
        x = Tensor.ones(700, 700).contiguous().realize()
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            for _ in range(10000):
                x = (x @ x * 1e-3).realize()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", (Tensor([1, 2]) + 1).tolist(), Tensor.ones(3, 3).sum().item())
    """
    assert run(program) == "interrupted [2, 3] 9.0"


def test_what_another_thread_computes_between_walk_and_plan_leaves_no_gap():
    """A walk tells what is to be computed; by the time a plan is made some of it may be known."""
    shared = Tensor([1.0, 2.0]).realize() * 3
    total = shared.sin() + 1
    roots = [total.uop]
    nodes = nodes_below(roots)
    before = structure_of(roots, nodes)
    shared.realize()
    total.realize()
    after = structure_of(roots, nodes)
    assert (after.form, after.sink) == (before.form, before.sink)


def test_who_begins_to_read_memory_while_it_is_written_reads_what_is_written(monkeypatch):
    t = Tensor(np.zeros(4, np.float32)).realize()
    view = t[:2]
    t.add_(1).realize()
    once_beside(monkeypatch, Families, "add_once", lambda: t.add_(1).realize())
    assert view.tolist() in ([1, 1], [2, 2])
    assert view.tolist() == [2, 2]


def test_who_builds_on_memory_while_it_is_overwritten_builds_on_what_is_there(monkeypatch):
    t = Tensor(np.zeros(3, np.float32)).realize()
    once_beside(monkeypatch, Version, "__init__", lambda: operator.setitem(t, 0, 1.0) or t.numpy())
    assert (t * 3).tolist() == [3, 0, 0]


def test_a_property_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(Core, "_start", property(lambda t: t.nothing))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = Tensor([1.0])._start
