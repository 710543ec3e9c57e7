"""Random small steps on state: captured by TinyJit, done plainly twice, and by NumPy. A step makes
expressions and views, writes in place, and returns some of what it made, read or was given; then
the program writes to what it holds and reads everything else. What is read must be the same all
ways: values, and which writes are seen through which tensors. Half of the steps also have two of
`FEATURES` (`capture_lines`), such as gradients, an optimizer, sizes that are variables, or several
devices, which NumPy is not asked for; these are used between the calls, too, and some calls are
plain ones. A capture may refuse, by a JitError, which ends its program.

    python test/fuzz_captures.py --minutes 5 --seed 1 [--together]
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from capture_lines import FEATURES, SIZED, VALUES, VIEWS, WRITES, Trouble, drawn
from fuzz_loop import look_for_finds

from tinygrad import Tensor, TinyJit, Variable, nn
from tinygrad.base.errors import ArgumentError, DTypeError, JitError

CALLS = 7
SHAPES = ((4,), (6,), (2, 3), (3, 2), (4, 4), (2, 3, 2))
REFUSED = (ArgumentError, DTypeError, ValueError)
"""A write to elements that are one, or of fractions: ours, NumPy's."""


class Ours:
    """Tensors, functions that steps call, and what they train; `box` holds a tensor that may be
    replaced."""

    def __init__(self, jit) -> None:
        self.box = [self.of(np.arange(4, dtype="int32"))]
        self.trouble = False
        self.weight, self.moved = (Tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        self.mover = nn.optim.SGD([self.weight], lr=0.25)
        self.far = Tensor([1.0], device="CPU:1").realize()
        self.norm = nn.BatchNorm(1)
        self.optimizer = nn.optim.SGD([self.moved], lr=0.5, momentum=0.5)
        self.schedule = nn.optim.StepLR(self.optimizer, 2, 0.5)
        seen = self.of(np.zeros(4, "int32"))

        def counts(t):
            seen.assign(seen + 1)
            return t * 2 + seen.sum(), t

        self.inner = [jit(lambda t: t[::2]), jit(lambda t: (t + 1, t)[0]), jit(counts)]

    def shown(self) -> list[tuple[str, Any]]:
        """What it holds besides, by name."""
        parts = {"weight": self.weight, "moved": self.moved, "far": self.far, "norm": self.norm}
        state = nn.state.get_state_dict({**parts, "rate": self.optimizer.lr, "box": self.box})
        return [*state.items(), ("gradient", self.weight.grad)]

    number = staticmethod(lambda t: int(t.sum().item()))
    rand = staticmethod(lambda shape: Tensor.randint(*shape, low=0, high=9, dtype="int32"))
    of = staticmethod(lambda values: Tensor(values).realize())
    values = staticmethod(lambda t: t.numpy())
    realize = staticmethod(lambda t: t.realize())
    copy = staticmethod(lambda t: t.contiguous())
    permute = staticmethod(lambda t, axes: t.permute(axes))
    expand = staticmethod(lambda t, shape: t.expand(shape))
    pad = staticmethod(lambda t, pairs: t.pad(pairs))
    where = staticmethod(lambda c, a, b: c.where(a, b))
    sum = staticmethod(lambda t, axis: t.sum(axis, keepdim=True))
    detach = staticmethod(lambda t: t.detach())
    full = staticmethod(lambda shape, n: Tensor.full(shape, n, dtype="int32"))

    @staticmethod
    def assign(t, value):
        t.assign(value.cast(t.dtype))


class Numpy:
    """Arrays: the oracle."""

    def __init__(self, _) -> None:
        self.box = [np.arange(4, dtype="int32")]

    shown = staticmethod(lambda: [])
    of = staticmethod(lambda values: np.array(values))
    values = staticmethod(lambda t: np.array(t))
    realize = staticmethod(lambda t: t)
    copy = staticmethod(lambda t: np.array(t))
    permute = staticmethod(lambda t, axes: np.transpose(t, axes))
    expand = staticmethod(np.broadcast_to)
    pad = staticmethod(np.pad)
    where = staticmethod(np.where)
    sum = staticmethod(lambda t, axis: np.asarray(t.sum(axis, keepdims=True, dtype=np.int32)))
    detach = staticmethod(lambda t: t[...])
    full = staticmethod(lambda shape, n: np.full(shape, n, np.int32))

    @staticmethod
    def assign(t, value):
        t[...] = value


def usable(t) -> bool:
    return len(t.shape) > 0 and 0 not in t.shape and int(np.prod(t.shape)) <= 64


class Program:
    """The decisions of a step, and of the program around it."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = np.random.default_rng(seed)
        shape = SHAPES[draw.integers(len(SHAPES))]

        def shape_of():
            return shape if draw.random() < 0.7 else SHAPES[draw.integers(len(SHAPES))]

        self.states = [self._numbers(shape_of()) for _ in range(draw.integers(1, 4))]
        self.shapes = [shape_of() for _ in range(draw.integers(1, 3))]
        self.inputs = [[self._numbers(s) for s in self.shapes] for _ in range(CALLS)]
        some = draw.permutation(list(FEATURES))[:2] if draw.random() < 0.5 else ()
        self.more = [row for name in some for row in FEATURES[name]]  # what NumPy hasn't
        self.plain = draw.random(CALLS) < (0.15 if self.more else 0)  # calls of the function itself
        self.sizes = draw.integers(1, 3, size=CALLS)
        self.early = draw.random() < 0.3
        self.given_in = int(draw.integers(4))
        self.trouble = draw.random(CALLS) < 0.3
        self.lines = [self._line() for _ in range(draw.integers(1, 7))]
        self.results = [int(draw.integers(1000)) for _ in range(draw.integers(1, 5))]
        self.late = draw.random() < 0.7  # results are rather those of the last lines
        self.form = int(draw.integers(4))
        self.given = draw.random((CALLS, 2))
        self.keeps = draw.random() < 0.4
        self.actions = [
            [tuple(map(int, draw.integers(1000, size=4))) for _ in range(draw.integers(0, 4))]
            for _ in range(CALLS)
        ]
        self.order = [draw.permutation(40) for _ in range(CALLS)]
        self.varied = draw.random() < 0.25  # inputs of some calls are what calls before gave

    def _numbers(self, shape):
        return self.draw.integers(-9, 9, size=shape).astype("int32")

    def _line(self):
        draw = self.draw
        kinds = (VIEWS, VIEWS, VALUES, VALUES, WRITES, *[self.more] * (2 if self.more else 0))
        kind = kinds[draw.integers(len(kinds))]
        row = kind[draw.integers(len(kind))]
        return row, *map(int, draw.integers(1000, size=3)), draw.random() < 0.15

    @Tensor.train()
    def run(self, way, jit=lambda step: step, bound=False) -> list[Any]:
        """What was read, in order; sizes are `bound` variables, or else numbers."""
        Tensor.manual_seed(5)
        self.refusals, seen = itertools.count(), []  # which no capture watches
        m = way(jit)
        states = [m.of(values) for values in self.states]

        def step(*inputs, more=None, early=False, size=None):
            if self.given_in == 1:
                inputs = list(inputs[0].values())
            return self._step(m, [*inputs, *(more or ()), *states], early, size)

        run = jit(step)
        kept: list[Any] = []
        found: list[Any] = []
        inputs: list[Any] = []
        for call in range(CALLS):
            inputs = self._given(m, call, inputs, found)
            try:
                m.trouble = bool(self.trouble[call])
                found = leaves(self._called(step if self.plain[call] else run, inputs, call, bound))
            except Trouble:
                seen.append(("trouble", call))
                found = inputs[:1]
            others = [*states, *inputs, *kept]
            visible = [*found, *others]
            for which, row, another, n in self.actions[call]:
                t, u = visible[which % len(visible)], visible[another % len(visible)]
                rows = (*WRITES, *(row for row in self.more if row not in SIZED))
                try:
                    if self._tried(rows[row % len(rows)], m, t, u, n) is REFUSED:
                        seen.append("refused")
                except Trouble:
                    seen.append(("trouble", call))
            for place in self.order[call]:
                if place < len(visible):
                    seen.append((call, int(place), m.values(visible[place])))
            if self.more:
                seen += [(call, name, t if t is None else m.values(t)) for name, t in m.shown()]
            seen.append(("same", [[a is b for b in (*found, *others)] for a in found]))
            if self.keeps:
                kept += found[:2]
        self.refused = next(self.refusals)
        return [*seen, *[("kept", i, m.values(t)) for i, t in enumerate((*kept, *states))]]

    def _called(self, run, inputs, call, bound) -> Any:
        options: dict[str, Any] = {"early": bool(call % 2)} if self.early else {}
        if any(row in SIZED for row in self.more):
            size = int(self.sizes[call])
            options["size"] = Variable("size", 1, 2).bind(size) if bound else size
        if self.given_in == 1:
            return run(dict(enumerate(inputs)), **options)
        if self.given_in == 2:
            return run(inputs[0], more=tuple(inputs[1:]), **options)
        return run(*inputs, **options)

    def _step(self, m, pool, early, size) -> Any:
        for row, a, b, n, realizes in self.lines:
            if early and len(pool) > 3 + b % 4:
                return pool[-1], pool[-2]
            t = pool[-1 - a % min(len(pool), 4)] if a % 2 else pool[a % len(pool)]
            row = partial(row, size=size) if row in SIZED else row
            made = self._tried(row, m, t, pool[b % len(pool)], n)
            if made is not None and made is not REFUSED and usable(made):
                pool.append(m.realize(made) if realizes else made)
        span = min(len(pool), 5) if self.late else len(pool)
        found = [pool[-1 - pick % span] for pick in self.results]
        if self.form == 0 and len(found) == 1:
            return found[0]
        if self.form == 1:
            return found
        return {"first": found[0], "rest": tuple(found[1:])} if self.form == 2 else tuple(found)

    def _tried(self, row, m, t, u, n) -> Any:
        """What the row gives; REFUSED for a write to elements that are one."""
        try:
            return row(m, t, u, n)
        except REFUSED as error:
            if isinstance(error, JitError):
                raise
            next(self.refusals)
            return REFUSED

    def _given(self, m, call, before, found):
        """The inputs of a call."""
        made = []
        for number, shape in enumerate(self.shapes):
            how = self.given[call][number]
            alike = [t for t in found if tuple(t.shape) == shape]
            if self.varied and how < 0.3 and alike:
                made.append(alike[0])
            elif self.varied and how < 0.5 and made and tuple(made[0].shape) == shape:
                made.append(made[0] if how < 0.4 else made[0][::-1])
            elif before and how > 0.8:
                made.append(before[number])
            else:
                made.append(m.of(self.inputs[call][number]))
        return made


def leaves(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return [t for part in result.values() for t in leaves(part)]
    if isinstance(result, (list, tuple)):
        return [t for part in result for t in leaves(part)]
    return [result]


def shown(seen: list[Any]) -> list[Any]:
    """What was read, without which of it are the same objects."""
    return [each for each in seen if each[0] != "same"]


def difference(mine: list[Any], theirs: list[Any]) -> str | None:
    for place, (one, two) in enumerate(zip(mine, theirs, strict=False)):
        if type(one) is not type(two) or one[0] != two[0]:
            return f"at {place}: {one!r:.80}, not {two!r:.80}"
        if one[0] in ("same", "trouble", "r"):
            if one != two:
                return f"at {place}: {one!r:.80}, not {two!r:.80}"
        elif (one[-1] is None) != (two[-1] is None):
            return f"at {place}, {one[:-1]}: {one[-1]}, not {two[-1]}"
        elif two[-1] is not None and two[-1].dtype.kind == "f":
            if np.abs(two[-1]).max(initial=0) > 1e4:
                return None  # what rounds differently differs from here on
            if not np.allclose(one[-1], two[-1], 1e-4, 1e-4, equal_nan=True):
                return f"at {place}, {one[:-1]}: {one[-1].tolist()}, not {two[-1].tolist()}"
        elif not np.array_equal(one[-1], two[-1]):
            return f"at {place}, {one[:-1]}: {one[-1].tolist()}, not {two[-1].tolist()}"
    return None if len(mine) == len(theirs) else f"{len(mine)} reads, not {len(theirs)}"


def is_refusal(error: Exception) -> bool:
    """Whether a captured step says that it can't do as a plain one, or that it didn't."""
    return isinstance(error, JitError) or "captured step" in str(error)


def check(seed: int, refusals: Counter[str] | None = None) -> str | None:
    """What differs, if anything does."""
    program = Program(seed)
    plain, refused = program.run(Ours), program.refused
    exact = plain if program.more else program.run(Numpy)
    if not (refused or program.refused) and (found := difference(shown(plain), shown(exact))):
        return f"plain and NumPy: {found}"
    again = program.run(Ours, bound=True)
    if program.refused != refused:  # a part of a size that may grow may lie in itself
        return None
    if found := difference(again, plain):
        return f"plain, once more: {found}"
    try:
        captured = program.run(Ours, TinyJit, bound=True)
    except (JitError, ArgumentError) as error:
        if not is_refusal(error):
            raise
        if refusals is not None:
            refusals[str(error).split(":", 1)[-1][:60]] += 1
        return None
    if found := difference(captured, plain):
        return f"captured and plain: {found}"
    return None


def check_together(seeds: Sequence[int]) -> str | None:
    """The same for captured programs that run at the same time, each in a thread."""
    programs = [p for p in map(Program, seeds) if drawn not in p.more]
    plain = [program.run(Ours) for program in programs]

    def captured(program):
        try:
            return program.run(Ours, TinyJit, bound=True)
        except (JitError, ArgumentError) as error:
            if not is_refusal(error):
                raise
            return None

    with ThreadPoolExecutor(len(seeds)) as pool:
        found = list(pool.map(captured, programs))
    pairs = zip(found, plain, strict=True)
    wrong = [difference(mine, right) for mine, right in pairs if mine is not None]
    return next(filter(None, wrong), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--together", action="store_true", help="three programs in threads")
    refusals = Counter[str]()

    def checking(options):
        if options.together:
            return lambda seed: check_together(range(seed * 3, seed * 3 + 3))
        return lambda seed: check(seed, refusals)

    failed = look_for_finds(parser, checking)
    for message, count in refusals.most_common():
        print(f"  {count} refused: {message}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
