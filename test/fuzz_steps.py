"""Random plain training steps, done with promises, by graphs, and both ways at once (SPEC), which
must agree but for rounding: what is written later may be computed in one kernel with more. Kernels
without recipes (NOOPT) must agree with them, too. A step
is a list of decisions, taken once, so that steps are like those before them and go the short way;
what is kept alive, read and written differs from step to step.

    python test/fuzz_steps.py --minutes 5 --seed 1
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
from fuzz_loop import look_for_finds

from tinygrad import Context, Tensor, nn
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor import again, backward, draws, template

STEPS = 5
ROWS, SIZES = (2, 3, 4, 6, 7, 9, 17), (1, 3, 4, 8, 15, 16, 24, 32, 33, 64)
ONE = (
    lambda t: t.relu(),
    lambda t: t.tanh(),
    lambda t: t.softmax(-1),
    lambda t: t.log_softmax(-1),
    lambda t: t.dropout(0.3),
    lambda t: t + 0.1 * Tensor.randn(*t.shape),
    lambda t: t * Tensor.rand(len(t), 1),
    lambda t: t.sum(0, keepdim=True).expand(*t.shape) * 0.2,
    lambda t: t.flip(0),
    lambda t: t[1:].pad(((0, 1), (0, 0))),
    lambda t: t.transpose().reshape(*t.shape),
    lambda t: t.layernorm(),
    lambda t: (t > 0).where(t, t * 0.5),
    lambda t: t[Tensor.randint(len(t), high=len(t))],
    lambda t: t.std_mean(0)[1] + t,
    lambda t: Tensor.cat(*t.chunk(2, dim=1)[::-1], dim=1),
    lambda t: t.detach() * t,
    lambda t: t.cumsum(0) * 0.1,
)
TWO = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: (a < b).where(a, b),
    lambda a, b: a.transpose().matmul(b).mean() + a,
    lambda a, b: a.stack(b, dim=0).mean(0),
)


class Beside:
    """What a step has besides its lines: tensors that live until it ends, its number, what a loop
    made before its first step and never computes, and what it writes without `no_grad`."""

    def __init__(self, number: int, held: list[Tensor], written: Tensor) -> None:
        self.number, self.held, self.written = number, held, written
        self.alive: list[Tensor] = []

    def keep(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        self.alive += tensors
        return tensors


def parts(t: Tensor, beside: Beside) -> Tensor:
    return Tensor.cat(*[each.tanh() for each in beside.keep(*t.chunk(2, dim=1))], dim=1)


def rows_of_a_value(t: Tensor, beside: Beside) -> Tensor:
    first, last = beside.keep((t * 0.5)[:1], (t * 0.5)[-1:])
    return t + first * last


def equal_gradients(t: Tensor, beside: Beside) -> Tensor:
    one, other = beside.keep(t.tanh(), t.tanh() + 1)
    return one + other


def begins_later(t: Tensor, beside: Beside) -> Tensor:
    (made,) = beside.keep(t.detach() * 0.5 + 0.1)
    made.requires_grad = True
    return made * t


LIVING = (
    *(parts, rows_of_a_value, equal_gradients, begins_later),
    lambda t, beside: t + beside.keep((t[:1, :1] * 0.5).sum())[0],
    lambda t, beside: t * (0.3 + beside.number / 7),
    lambda t, beside: (beside.number * 0.5 - 0.25) / (t.square() + 1.5) - 0.5,
    lambda t, beside: t * beside.held[0].unsqueeze(1)[: len(t)] + beside.held[1],
    lambda t, beside: (beside.held[2].unsqueeze(1)[: len(t)] > 0).where(t, beside.number * 0.1),
    lambda t, beside: t * Tensor([[beside.number * 0.3 - 0.5]] * len(t)) + Tensor([0.25]),
    lambda t, beside: t + (Tensor([float(i) for i in range(len(t))]) / 3).cos().unsqueeze(1),
    lambda t, beside: t * 0.5 + beside.written,
)
OPTIMIZERS = (nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW, nn.optim.RMSprop, nn.optim.Lion)


class Program:
    """The decisions of a step."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw = draw = np.random.default_rng(seed)
        self.lines = [
            (
                int(draw.integers(4)),
                int(draw.integers(1000)),
                *map(int, draw.integers(1000, size=2)),
            )
            for _ in range(draw.integers(2, 8))
        ]
        self.optimizer = OPTIMIZERS[draw.integers(len(OPTIMIZERS))]
        self.habits = draw.random(8) < 0.35  # what is done in each step
        self.whims = draw.random((STEPS, 8)) < 0.12  # what is done in one
        self.picks = draw.integers(1000, size=(STEPS, 6))
        rows, size = draw.choice(ROWS), draw.choice(SIZES)
        self.data = draw.standard_normal((STEPS, rows, size)).astype("float32")
        self.start = draw.standard_normal((3, size, size)).astype("float32") * np.float32(
            size**-0.5
        )

    def run(self) -> list[np.ndarray]:
        Tensor.manual_seed(self.seed)
        weights = [Tensor(values).realize() for values in self.start]
        optimizer = self.optimizer(weights, lr=0.01)
        average, written = (Tensor(np.zeros_like(self.data[0])).realize() for _ in range(2))
        held = [Tensor.linspace(0, 1, 17), Tensor(self.start[0, 0, 0]) / 3, Tensor.randn(17)]
        kept: list[Tensor] = []
        seen: list[np.ndarray] = []
        with Tensor.train():
            for number in range(STEPS):
                aside = Beside(number, held, written)
                self._step(number, weights, optimizer, average, kept, seen, aside)
        return [*seen, *[t.numpy() for t in (average, written, *kept, *weights)]]

    def _step(self, number, weights, optimizer, average, kept, seen, aside) -> None:
        habits, whims, picks = self.habits, self.whims[number], self.picks[number]
        pool = self._pool(Tensor(self.data[number]), weights, aside)
        loss = (pool[-1] * pool[-1]).mean() + sum((w * w).sum() for w in weights) * 0.01
        chosen = pool[picks[0] % len(pool)]
        beside = [chosen.softmax(-1), (chosen > 0).float().mean()] if habits[1] else []
        if habits[2]:
            with Tensor.no_grad():
                average.assign(average * 0.9 + pool[-1].detach() * 0.1)
        if habits[6]:
            aside.written.assign(aside.written * 0.9 + pool[-1].detach() * 0.1)
        if habits[7]:
            average[number % len(average)] = self.data[number][0] * 0.5
            with Tensor.no_grad():
                aside.written[:1, number % self.data.shape[2] :] = pool[-1].mean()
        if whims[0]:
            kept.append(chosen)
        if whims[1]:
            seen.append(chosen.numpy())
        if not habits[3]:
            del pool[:], chosen
        if not (habits[4] and number % 2):  # else gradients add up
            optimizer.zero_grad()
        loss.backward()
        gradients = [t.grad for t in (weights[picks[1] % 3], *pool) if t.grad is not None]
        if whims[2]:
            _write(gradients[picks[2] % len(gradients)], seen)
        if whims[3]:
            kept.append(weights[picks[3] % 3] * 2)
        if whims[4]:
            optimizer.lr = 0.01 / (number + 1)
        if whims[5]:
            Tensor.manual_seed(int(picks[4]))
        optimizer.step()
        if whims[6]:
            seen += [t.numpy() for t in aside.alive]
            seen += [t.grad.numpy() for t in aside.alive if t.grad is not None]
        if whims[7] and aside.alive:
            with Tensor.no_grad():
                aside.alive[picks[5] % len(aside.alive)].mul_(2)
            seen += [t.numpy() for t in (*aside.alive, *pool)]
        seen += [t.numpy() for t in (loss, *beside, *(gradients if habits[5] else ()))]

    def _pool(self, x, weights, aside) -> list[Tensor]:
        """What the lines make, one after the other."""
        pool = [x.realize() if self.habits[0] else x]
        for kind, which, a, b in self.lines:
            first, second = pool[a % len(pool)], pool[b % len(pool)]
            if kind == 0:
                pool.append(first.matmul(weights[which % 3]))
            elif kind == 3:
                pool.append(LIVING[which % len(LIVING)](first, aside))
            elif kind == 1 or len(pool) == 1:
                pool.append(ONE[which % len(ONE)](first))
            else:
                pool.append(TWO[which % len(TWO)](first, second))
        return pool


def _write(gradient: Tensor, seen: list[np.ndarray]) -> None:
    with Tensor.no_grad():
        try:
            gradient[0] = 1
        except ArgumentError:  # elements of a view that are one
            seen.append(np.float32(1))


MODULES = again, backward, draws, template


def ways(program: Program) -> dict[str, list[np.ndarray]]:
    """What each way of doing it gives."""
    found = {"promises": program.run(), "again": program.run()}
    for name, attribute, value in (
        ("graphs", "capturing", lambda: True),
        ("spec", "SPEC", True),
    ):
        with ExitStack() as stack:
            stack.enter_context(patch.object(again, "bytes", Near, create=True))
            for module in MODULES:
                stack.enter_context(patch.object(module, attribute, value))
            found[name] = program.run()
    with Context(NOOPT=1):
        found["plain loops"] = program.run()
    return found


class Near(bytes):
    """Storage of floats, equal to what has the same numbers but for the order of sums: a long way
    that finds other tensors to compute makes other kernels."""

    def __eq__(self, other: object) -> bool:
        mine, theirs = (np.frombuffer(each, np.float32) for each in (self, other))
        return np.allclose(mine, theirs, 1e-5, 1e-6, equal_nan=True)

    __hash__ = bytes.__hash__


def check(seed: int) -> str | None:
    """What differs, if anything does."""
    found = ways(Program(seed))
    right = found.pop("graphs")
    for name, results in found.items():
        if len(results) != len(right):
            return f"{name}: {len(results)} results, {len(right)} by graphs"
        for place, (mine, theirs) in enumerate(zip(results, right, strict=True)):
            if not np.allclose(mine, theirs, 1e-5, 1e-6, equal_nan=True):
                return f"{name}: result {place} is {mine.ravel()[:4]}, not {theirs.ravel()[:4]}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sys.exit(look_for_finds(parser, lambda options: check) > 0)


if __name__ == "__main__":
    main()
