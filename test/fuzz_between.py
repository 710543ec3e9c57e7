"""What another thread does at any line of a program: a line of `tensor/` or `engine/` that one of
its statements runs, drawn by chance, before which the other thread works, or that the other
thread's work runs, before which the statement does. None writes to what is the other's.

    python test/fuzz_between.py --minutes 5 --seed 1
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from together import beside

from tinygrad import Generator, Tensor, TinyJit, nn
from tinygrad.base.errors import RuntimeCheckError
from tinygrad.engine.holders import ask_all
from tinygrad.engine.realize import compute_pending

WHERE = ("/tinygrad/tensor/", "/tinygrad/engine/")
PATIENCE = 0.02  # seconds after which who works at a line is taken to wait for its end
END = 60.0  # seconds in which it must have worked then

Program = Callable[[], Iterator[None]]


# ---- programs, whose statements end at each `yield` ----------------------------------------------


def plain() -> Iterator[None]:
    state, wanted = Tensor.zeros(5).contiguous().realize(), 0
    for n in range(3):
        state.assign(state + n)
        yield
        twice = state * 2
        yield
        twice.realize()
        yield
        wanted += n
        assert twice.tolist() == [wanted * 2] * 5


def captured() -> Iterator[None]:
    state, wanted = Tensor.zeros(5).contiguous().realize(), 0

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return (state * 2).realize()

    for n in range(4):
        twice = step(Tensor([float(n)] * 5).realize())
        yield
        wanted += n
        assert twice.tolist() == [wanted * 2] * 5


def lazy() -> Iterator[None]:
    t = Tensor.ones(4).contiguous()
    v, u = t[1:3], t * 2
    t += 1
    yield
    v += 5
    yield
    w = t + v.sum()
    t *= 3
    yield
    assert (u.tolist(), v.tolist()) == ([2] * 4, [21] * 2)
    assert (t.tolist(), w.tolist()) == ([6, 21, 21, 6], [16, 21, 21, 16])


def trains() -> Iterator[None]:
    w = Tensor.ones(3, requires_grad=True)
    optimizer = nn.optim.SGD([w], lr=0.5, momentum=0.5)
    momentum, wanted = np.zeros(3), np.ones(3)
    for n in range(3):
        optimizer.zero_grad()
        x = np.arange(3, dtype=np.float32) + n
        (w * Tensor(x)).sum().backward()
        yield
        with Tensor.train():
            optimizer.step()
        yield
        momentum = 0.5 * momentum + x
        wanted = wanted - 0.5 * momentum
        assert w.tolist() == wanted.tolist()


def shares() -> Iterator[None]:
    a, b = (Tensor.full((4,), 3.0).contiguous() for _ in range(2))
    a.realize()
    yield
    a += 1
    yield
    b *= 2
    c = a.detach()
    yield
    c[0] = 9
    yield
    assert (a.tolist(), b.tolist()) == ([9, 4, 4, 4], [6] * 4)
    assert Tensor.full((4,), 3.0).contiguous().tolist() == [3] * 4


def rows() -> Iterator[None]:
    t = Tensor.zeros(3, 2).contiguous().realize()
    for n in range(3):
        t[n] = t[n - 1] + n
        yield
        row = t[n]
        yield
        assert row.tolist() == [[0, 1, 3][n]] * 2
    t[t > 2] = 7
    yield
    assert t.tolist() == [[0, 0], [1, 1], [7, 7]]


def draws() -> Iterator[None]:
    first, again = (Tensor.rand(4, generator=Generator(3)) for _ in range(2))
    yield
    kept = first * 2
    yield
    first.add_(again)
    yield
    assert first.tolist() == kept.tolist() == (again * 2).tolist()


def reads() -> Iterator[None]:
    """A value that isn't computed yet, and views of it, which other threads read, too."""
    x = Tensor.arange(6, dtype="float32").reshape(2, 3)
    seen[:] = [x * 2, (x * 2).contiguous()]
    yield
    seen.append(seen[1][1])
    yield
    total = (seen[0] + seen[1]).sum()
    yield
    assert (total.item(), seen[2].tolist()) == (60, [6, 8, 10])
    yield
    written = seen[1].clone()
    written += 1
    yield
    assert (written.tolist(), seen[0].tolist()) == (
        [[1, 3, 5], [7, 9, 11]],
        [[0, 2, 4], [6, 8, 10]],
    )


seen: list[Tensor] = []


def calls() -> Iterator[None]:
    """A model of which nobody has asked the weights, which other threads call, too."""
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad = layer.bias.requires_grad = True
    model[:] = [layer, nn.LayerNorm(2)]
    yield
    x = Tensor.ones(4, 3)
    first = x.sequential(model)
    yield
    slopes = (first * first).sum().gradient(model[0].weight, model[0].bias)
    yield
    again = x.sequential(model).numpy()
    yield
    assert np.allclose(first.numpy(), again, atol=1e-6)
    assert [each.shape for each in slopes] == [(2, 3), (2,)]
    weights, bias = model[0].weight.numpy(), model[0].bias.numpy()
    made = np.ones((4, 3), np.float32) @ weights.T + bias
    made = (made - made.mean(1, keepdims=True)) / np.sqrt(made.var(1, keepdims=True) + 1e-5)
    assert np.allclose(made, again, atol=1e-3)


model: list[Any] = []

PROGRAMS: list[Program] = [plain, captured, lazy, trains, shares, rows, draws, reads, calls]


# ---- what other threads do -----------------------------------------------------------------------


def asks() -> None:
    ask_all()
    compute_pending()


def steps() -> None:
    state = Tensor.zeros(3).contiguous().realize()
    for n in range(3):
        state.assign(state + 1)
        assert (state * 2).tolist() == [2 * n + 2] * 3


def captures() -> None:
    state = Tensor.zeros(3).contiguous().realize()
    step = TinyJit(lambda x: state.assign(state + x).sum().realize())
    for n in range(3):
        assert step(Tensor.ones(3).realize()).item() == 3 * n + 3


def writes_equals() -> None:
    """To what the programs' values are equal to."""
    for fresh in (Tensor.zeros(5), Tensor.ones(4), Tensor.full((4,), 3.0), Tensor.zeros(3, 2)):
        mine = fresh.contiguous().realize()
        before = mine.numpy()
        mine += 7
        assert mine.numpy().tolist() == (before + 7).tolist()


def learns() -> None:
    for _ in trains():
        pass


def fails() -> None:
    """Reads what a check finds wrong, of its own."""
    try:
        (Tensor([1, 2]) // Tensor([1, 0])).tolist()
    except RuntimeCheckError:
        return
    raise AssertionError("silent")


def collects() -> None:
    gc.collect()


def looks() -> None:
    """At what a program shows to others."""
    sums = [(each + each[0]).sum().item() for each in seen]
    assert set(sums) <= {42}, sums
    assert {each.sum().item() for each in seen} <= {24, 30}


def calls_too() -> None:
    """The model of a program."""
    layers = [*model]
    first, again = (Tensor.ones(4, 3).sequential(layers) for _ in range(2))
    slopes = [(each * each).sum().gradient(layers[0].weight) for each in (first, again) if layers]
    assert np.allclose(first.numpy(), again.numpy(), atol=1e-6)
    assert not slopes or np.allclose(slopes[0][0].numpy(), slopes[1][0].numpy(), atol=1e-5)


OTHERS = [asks, steps, captures, writes_equals, learns, fails, collects, looks, calls_too]


# ---- one at a line of the other ------------------------------------------------------------------


def lines_of(work: Callable[[], object], come: Callable[[str], None]) -> None:
    """Works, and says of each line which it is, before it runs."""

    def follow(frame: Any, event: str, _: object) -> Any:
        path = frame.f_code.co_filename
        if not any(folder in path for folder in WHERE):
            return None
        if event == "line":
            come(f"{path.split('/tinygrad/')[-1]}:{frame.f_lineno}")
        return follow

    sys.settrace(follow)
    try:
        work()
    finally:
        sys.settrace(None)


def at_line(number: int, work: Callable[[], object], act: Callable[[], None]) -> str | None:
    """Works; before that one of its lines it acts. Which line that was; None if it has fewer."""
    places: list[str] = []

    def come(place: str) -> None:
        places.append(place)
        if len(places) == number + 1:
            act()

    lines_of(work, come)
    return places[number] if number < len(places) else None


def _until(place: int, program: Program) -> Iterator[None]:
    """A program that has done so many statements."""
    running = program()
    for _ in range(place):
        next(running)
    return running


def wrong(seed: int) -> str | None:
    """What goes wrong in a program; None if nothing does."""
    draw = random.Random(seed)
    program, other, inside = draw.choice(PROGRAMS), draw.choice(OTHERS), draw.random() < 0.5
    for _ in range(2):  # what is done the first time is another program
        count = sum(1 for _ in program())
        other()
    place = draw.randrange(count)
    measured, lines = _until(place, program), list[str]()
    lines_of((lambda: next(measured)) if inside else other, lines.append)
    number = draw.randrange(max(1, len(lines)))
    running = _until(place, program)

    def statement() -> None:
        next(running, None)

    errors: list[str] = []
    threads: list[threading.Thread] = []

    def told(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            errors.append(traceback.format_exc())

    work, act = (statement, other) if inside else (other, statement)
    where = None
    try:
        where = at_line(number, work, lambda: threads.append(beside(lambda: told(act), PATIENCE)))
        for thread in threads:
            thread.join(END)
        if any(thread.is_alive() for thread in threads):
            errors.append("hangs")
        elif not inside and not threads:
            statement()
        for _ in running if not errors else ():
            pass
    except Exception:
        errors.append(traceback.format_exc())
    name = f"{program.__name__}, statement {place}, {other.__name__}"
    role = "works at" if inside else "is interrupted at"
    return f"{name} {role} {where}: {errors[0]}" if errors else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=1 << 30, help="programs")
    options = parser.parse_args()
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    while time.monotonic() < end and seed < options.seed + options.most:
        if (problem := wrong(seed)) is not None:
            print(f"seed {seed}: {problem}", flush=True)
        seed += 1
    print(f"{seed - options.seed} programs")


if __name__ == "__main__":
    main()
