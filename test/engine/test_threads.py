"""Tensors in several threads, in forked processes, and after Ctrl-C."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import numpy as np
import pytest
from together import together

from tinygrad import Tensor, TinyJit
from tinygrad.engine.devices import Device
from tinygrad.engine.structure import nodes_below, structure_of
from tinygrad.engine.turns import Turns


@pytest.fixture
def on(request):
    before = Device.DEFAULT
    yield lambda name: setattr(Device, "DEFAULT", name)
    Device.DEFAULT = before


@pytest.mark.parametrize(
    ("device", "turns"), [("CPU", 12), ("PYTHON", 6), ("CL", 4), ("WEBGPU", 4)]
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


def interrupted_at(number: int, work: Callable[[], None]) -> bool:
    """Whether a KeyboardInterrupt came at that one of the places in `work` where Python hears
    signals: where functions begin, and where calls of C end."""
    left = number

    def listens(frame: object, event: str, argument: object) -> None:
        nonlocal left
        left -= event in ("call", "c_return")
        if left < 0 and argument is not sys.setprofile:
            raise KeyboardInterrupt

    try:
        sys.setprofile(listens)
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


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


def test_control_c_in_a_finaliser_is_heard():
    program = """
        import signal, time
        from tinygrad import Tensor

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
