"""Random programs of views, expressions and writes in place that gradients follow, beside PyTorch:
values, which writes are seen through which views, gradients, and gradients of gradients. Each
program is run three times, so that plain statements are also done as they are remembered.

    python test/fuzz_slopes.py --minutes 5 --seed 1
    python test/fuzz_slopes.py --silent --minutes 5 --seed 1
    python test/fuzz_slopes.py --captured --minutes 5 --seed 1

Silent: the leaves say nothing of gradients (`requires_grad` None), which may be refused. Captured:
a program is a step of TinyJit, which may refuse it, and is called with leaves of other values.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from fuzz_loop import look_for_finds

from tinygrad import Tensor, TinyJit
from tinygrad.base.errors import JitError, TinygradError

SHAPES = ((6,), (3, 4), (2, 3, 4), (4, 4), (1, 4), (4, 1, 3), (0, 3), (), (2, 2))
RUNS, NEAR = 3, {"rtol": 1e-6, "atol": 1e-6}
SCALES = (1.0, 0.5, -1.0, 2.0, 0.25)  # of the leaves, call by call
ONE = (
    lambda t: t.sin(),
    lambda t: t.tanh(),
    lambda t: t.relu(),
    lambda t: (t * 0.2).exp(),
    lambda t: t.square(),
    lambda t: t.cumsum(-1) if t.ndim else t,
    lambda t: t.sum(0) if t.ndim else t,
    lambda t: t.detach(),
)
TWO = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a.maximum(b))
FORGOTTEN = "was made that was computed since"  # of what says nothing; documented
REFUSED = "through .detach(), which lets none pass"  # a value that needs a gradient; documented


class Program:
    """Lines, each a function of one library's tensors, drawn while PyTorch's are computed."""

    def __init__(self, seed: int) -> None:
        self.draw, self.random = Random(seed), np.random.default_rng(seed)
        shapes = [self.draw.choice(SHAPES) for _ in range(self.draw.choice((1, 2, 2, 3)))]
        self.starts = [self.random.normal(size=shape) for shape in shapes]
        self.lines: list[Callable[[Any, Any], Any]] = []
        self.theirs = self.begun(lambda a: torch.tensor(a, requires_grad=True))
        for _ in range(self.draw.randrange(3, 11)):
            line = self.draw.choice((self.one, self.two, self.view, self.view, *[self.write] * 3))()
            if line is not None and self._fits(line):
                self.lines.append(line)

    def begun(self, leaf: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
        """Leaves, and the first values."""
        leaves = [leaf(start.copy()) for start in self.starts]
        return leaves, [each * 2 for each in leaves]

    def _fits(self, line: Callable[[Any, Any], Any]) -> bool:
        try:
            line(self.theirs[1], torch.tensor)
        except (RuntimeError, IndexError):
            return False
        return True

    def _pick(self) -> int:
        count = len(self.theirs[1])
        return self.draw.randrange(max(0, count - 5) if self.draw.random() < 0.7 else 0, count)

    def one(self) -> Any:
        i, function = self._pick(), self.draw.choice(ONE)
        return lambda pool, array: pool.append(function(pool[i]))

    def two(self) -> Any:
        i, j, function = self._pick(), self._pick(), self.draw.choice(TWO)
        return lambda pool, array: pool.append(function(pool[i], pool[j]))

    def view(self) -> Any:
        """Another member of a family."""
        i = self._pick()
        shape = tuple(self.theirs[1][i].shape)
        key, order = self._key(shape, by_arrays=False), self.draw.sample(range(9), 9)
        axes, offset = [axis for axis in order if axis < len(shape)], self.draw.randrange(-1, 2)
        kinds: tuple[Callable[[Any], Any], ...] = (
            lambda t: t[key],
            lambda t: t.permute(tuple(axes)),
            lambda t: t.unsqueeze(0),
            lambda t: t.diagonal(offset, *axes[:2]),
            lambda t: t.unfold(axes[0], 2, 2),
            lambda t: t.narrow(axes[0], 1, 1),
        )
        kind = self.draw.choice(kinds)
        return lambda pool, array: pool.append(kind(pool[i]))

    def write(self) -> Any:
        i, j = self._pick(), self._pick()
        shape = tuple(self.theirs[1][i].shape)
        key, value = self._key(shape), self.random.normal(size=shape)
        mask = self.random.random(shape) < 0.5
        kinds: tuple[Callable[[Any, Any], Any], ...] = (
            lambda pool, array: _put(pool[i], _of(key, array), 1.5),
            lambda pool, array: _put(pool[i], _of(key, array), pool[j]),
            lambda pool, array: _put(pool[i], _of(key, array), pool[i][_of(key, array)] * 3),
            lambda pool, array: pool[i].mul_(2),
            lambda pool, array: pool[i].add_(array(value)),
            lambda pool, array: pool[i].zero_(),
            lambda pool, array: pool[i].masked_fill_(array(mask), 0.5),
            lambda pool, array: pool[i].realize() if isinstance(pool[i], Tensor) else None,
        )
        return self.draw.choice(kinds)

    def _key(self, shape: Sequence[int], by_arrays: bool = True) -> tuple[Any, ...]:
        """Numbers, slices and None; or arrays without duplicates, whose order would not be said."""
        parts: list[Any] = []
        for size in shape:
            kind = self.draw.randrange(6)
            if kind == 0 and size and not by_arrays:
                parts.append(self.draw.randrange(-size, size))
            elif kind == 1 and size and by_arrays and not parts:
                parts.append(self.random.permutation(size)[: self.draw.randrange(1, size + 1)])
            elif kind in (2, 3):
                begin = self.draw.choice((None, self.draw.randrange(size + 1)))
                parts.append(slice(begin, None, self.draw.choice((None, 1, 2))))
            else:
                parts += [None] * (kind == 4) + [slice(None)]
        return tuple(parts)


def _of(key: tuple[Any, ...], array: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(array(part) if isinstance(part, np.ndarray) else part for part in key)


def _put(tensor: Any, key: tuple[Any, ...], value: Any) -> None:
    if isinstance(value, torch.Tensor) and value.requires_grad > tensor.requires_grad:
        raise RuntimeError(REFUSED)
    tensor[key] = value.clone() if isinstance(value, torch.Tensor) else value


def total_of(pool: Sequence[Any]) -> Any:
    """A number that depends on all values."""
    return sum((each * (i + 1)).sin().sum() for i, each in enumerate(pool))


def check(seed: int, says: bool | None = True) -> str | None:
    """What differs, if anything does."""
    program = Program(seed)
    leaves, pool = program.theirs
    orders = 2 if seed % 3 == 0 and says else 1
    wanted = [_array(t, t) for t in pool]
    total, totals = total_of(pool), []
    try:
        for _ in range(orders):
            totals.append(torch.autograd.grad(total, leaves, None, None, True, True))
            total = sum((slope * slope).sum() for slope in totals[-1] if slope is not None)
    except RuntimeError:  # a write to what a gradient needs: of no use here
        return None
    for slopes in totals:
        wanted += [_array(slope, leaf) for slope, leaf in zip(slopes, leaves, strict=True)]
    for run in range(RUNS):
        mine, values = program.begun(lambda a: Tensor(a, requires_grad=says))
        try:
            for line in program.lines:
                line(values, Tensor)
            found, total = [*values], total_of(values)
            for slopes in totals:
                made = total.gradient(*mine, materialize_grads=True)
                found += made
                there = zip(made, slopes, strict=True)
                total = sum((one * one).sum() for one, slope in there if slope is not None)
        except TinygradError as error:
            refused = FORGOTTEN if says is None else REFUSED
            return None if refused in str(error) else f"run {run}: {error}"
        for place, (ours, want) in enumerate(zip(found, wanted, strict=True)):
            if not np.allclose(ours.numpy(), want, **NEAR, equal_nan=True):
                return f"run {run}: result {place} is {ours.numpy()}, not {want}"
    return None


def check_captured(seed: int) -> str | None:
    """What differs in a step whose leaves are made inside, or are state that it writes; half of
    them say nothing of gradients."""
    program = Program(seed)
    says, is_inside = (True, None)[seed % 4 // 2], seed % 2 == 0
    try:
        wanted = [_scaled(program, scale) for scale in SCALES]
    except RuntimeError:  # as above
        return None
    state = [Tensor(start, requires_grad=says).realize() for start in program.starts]

    @TinyJit
    def step(*given: Tensor) -> list[Tensor]:
        leaves = [Tensor.requires_grad_(x + 0) if says else x * 1 for x in given]
        if not is_inside:
            leaves = state
            with Tensor.no_grad():
                for leaf, x in zip(state, given, strict=True):
                    leaf.assign(x)
        values = [leaf * 2 for leaf in leaves]
        for line in program.lines:
            line(values, Tensor)
        return [*values, *total_of(values).gradient(*leaves, materialize_grads=True)]

    for call, (scale, right) in enumerate(zip(SCALES, wanted, strict=True)):
        try:
            given = [Tensor(np.asarray(start * scale)) for start in program.starts]
            found = step(*[each.realize() for each in given])
        except TinygradError as error:
            refused = isinstance(error, JitError) or REFUSED in str(error)
            refused |= says is None and FORGOTTEN in str(error)
            return None if refused else f"call {call}: {error}"
        for place, (ours, want) in enumerate(zip(found, right, strict=True)):
            if not np.allclose(ours.numpy(), want, **NEAR, equal_nan=True):
                return f"call {call}: result {place} is {ours.numpy()}, not {want}"
    return None


def _scaled(program: Program, scale: float) -> list[Any]:
    """PyTorch's values and gradients of leaves that are scaled."""
    leaves = [torch.tensor(start * scale, requires_grad=True) for start in program.starts]
    pool = [leaf * 2 for leaf in leaves]
    for line in program.lines:
        line(pool, torch.tensor)
    slopes = torch.autograd.grad(total_of(pool), leaves, allow_unused=True)
    there = zip(slopes, leaves, strict=True)
    return [_array(t, t) for t in pool] + [_array(slope, leaf) for slope, leaf in there]


def _array(tensor: Any, like: Any) -> Any:
    return np.zeros(like.shape) if tensor is None else (tensor.detach() + torch.zeros(())).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--captured", action="store_true")

    def checking(options: argparse.Namespace) -> Callable[[int], str | None]:
        if options.captured:
            return check_captured
        return lambda seed: check(seed, None if options.silent else True)

    finds = look_for_finds(parser, checking)
    sys.exit(finds > 0)


if __name__ == "__main__":
    main()
