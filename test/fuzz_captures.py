"""Random small steps on state: captured by TinyJit, done plainly twice, and by NumPy. A step makes
expressions and views, writes in place, and returns some of what it made, read or was given; then
the program writes to what it holds and reads everything else. What is read must be the same all
ways: values, and which writes are seen through which tensors. Half of the steps also draw random
numbers, call captured functions, replace state, read numbers, or raise errors, which NumPy is not
asked for. A capture may refuse, by a JitError, which ends its program.

    python test/fuzz_captures.py --minutes 5 --seed 1 [--together]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from fuzz_loop import look_for_finds

from tinygrad import Tensor, TinyJit
from tinygrad.base.errors import ArgumentError, JitError

CALLS = 7
SHAPES = ((4,), (6,), (2, 3), (3, 2), (4, 4), (2, 3, 2))
REFUSED = (ArgumentError, ValueError)  # a write to elements that are one: ours, NumPy's


class Trouble(Exception):
    """What a step of the program raises."""


class Ours:
    """Tensors, and functions that steps call; `box` holds one that may be replaced."""

    def __init__(self, jit) -> None:
        self.box = [self.of(np.arange(4, dtype="int32"))]
        self.trouble = False
        seen = self.of(np.zeros(4, "int32"))

        def counts(t):
            seen.assign(seen + 1)
            return t * 2 + seen.sum(), t

        self.inner = [jit(lambda t: t[::2]), jit(lambda t: (t + 1, t)[0]), jit(counts)]

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
        t.assign(value)


class Numpy:
    """Arrays: the oracle."""

    def __init__(self, _) -> None:
        self.box = [np.arange(4, dtype="int32")]

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


# ---- the lines of a step -------------------------------------------------------------------------
# (way, a tensor, another one, a number) → a tensor; a write gives None


def other(m, t, u):
    """`u`, or a number of it, as something that has the shape of `t`."""
    if u.shape == t.shape:
        return u
    return m.sum(u.reshape(-1), 0).reshape(*[1] * len(t.shape))


def part(t, n):
    """A part of the first axis, or another axis, by a slice."""
    axis = n % len(t.shape)
    size = t.shape[axis]
    start, n = n // 3 % size, n // 7
    end, n = min(size, start + 1 + n % size), n // 5
    cut = (
        slice(start, end),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(start, end, 2),
        slice(None, None, -2),
        slice(start, start + 1),
        slice(1 if size > 1 else 0, None, 2),
    )
    return (*[slice(None)] * axis, cut[n % len(cut)])  # fmt: skip


def reshaped(m, t, u, n):
    count = int(np.prod(t.shape))
    shapes = [(count,), (count, 1), (1, count), tuple(t.shape[::-1])]
    shapes += [(k, count // k) for k in (2, 3, 4) if count % k == 0]
    return t.reshape(shapes[n % len(shapes)])


def expanded(m, t, u, n):
    if 1 in t.shape:
        return m.expand(t, tuple(3 if size == 1 else size for size in t.shape))
    return m.expand(t.reshape(1, *t.shape), (2, *t.shape))


def permuted(m, t, u, n):
    axes = np.random.default_rng(n).permutation(len(t.shape))
    return m.permute(t, tuple(map(int, axes)))


def write_part(m, t, u, n):
    if not t.shape or 0 in t.shape:
        return
    at = part(t, n)
    shape = t[at].shape
    t[at] = other(m, t[at], u) if 0 not in shape else 0


def write_more(m, t, u, n):
    t += other(m, t, u)


VIEWS: tuple[Callable[..., Any], ...] = (
    lambda m, t, u, n: t[part(t, n)] if t.shape else t,
    lambda m, t, u, n: t[part(t, n)] if t.shape else t,
    reshaped,
    expanded,
    permuted,
    lambda m, t, u, n: t[n % t.shape[0]] if len(t.shape) > 1 else t[: 1 + n % t.shape[0]],
    lambda m, t, u, n: m.detach(t),
)
VALUES: tuple[Callable[..., Any], ...] = (
    lambda m, t, u, n: t + other(m, t, u),
    lambda m, t, u, n: t * other(m, t, u),
    lambda m, t, u, n: t * 3 - n % 5,
    lambda m, t, u, n: -t,
    lambda m, t, u, n: m.where(t > other(m, t, u), t, u if u.shape == t.shape else t * 0),
    lambda m, t, u, n: m.pad(t, ((n % 2, 1),) + ((0, 0),) * (len(t.shape) - 1)),
    lambda m, t, u, n: m.sum(t, n % len(t.shape)),
    lambda m, t, u, n: m.copy(t),
    lambda m, t, u, n: m.full(tuple(t.shape), n % 9),
)
WRITES: tuple[Callable[..., Any], ...] = (
    lambda m, t, u, n: m.assign(t, m.copy(other(m, t, u)) + m.full(tuple(t.shape), 1)),
    lambda m, t, u, n: m.assign(t, t * 2 + n % 7),
    write_more,
    write_part,
    write_part,
)


def drawn(m, t, u, n):
    return m.rand(tuple(t.shape))


def replaced(m, t, u, n):
    m.box[0] = m.box[0] + other(m, m.box[0], t)
    return m.box[0]


def troubled(m, t, u, n):
    if m.trouble:
        raise Trouble


def nested(m, t, u, n):
    result = m.inner[n % 3](t)
    return result[n // 3 % 2] if isinstance(result, tuple) else result


MORE: tuple[Callable[..., Any], ...] = (
    drawn,
    nested,
    nested,
    nested,
    replaced,
    lambda m, t, u, n: m.box[0] * 2,
    lambda m, t, u, n: t + m.number(u) % 5,
    troubled,
)


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
        self.more = draw.random() < 0.5  # of what NumPy hasn't
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
        kinds = (VIEWS, VIEWS, VALUES, VALUES, WRITES, *([MORE] if self.more else []))
        kind = kinds[draw.integers(len(kinds))]
        row = kind[draw.integers(len(kind))]
        return row, *map(int, draw.integers(1000, size=3)), draw.random() < 0.15

    def run(self, way, jit=lambda step: step) -> list[Any]:
        """What was read, in order."""
        Tensor.manual_seed(5)
        self.refused, seen = False, []
        m = way(jit)
        states = [m.of(values) for values in self.states]

        def step(*inputs, more=None, early=False):
            if self.given_in == 1:
                inputs = list(inputs[0].values())
            return self._step(m, [*inputs, *(more or ()), *states], early)

        run = jit(step)
        kept: list[Any] = []
        found: list[Any] = []
        inputs: list[Any] = []
        for call in range(CALLS):
            inputs = self._given(m, call, inputs, found)
            try:
                m.trouble = bool(self.trouble[call])
                found = leaves(self._called(run, inputs, call))
            except Trouble:
                seen.append(("trouble", call))
                found = inputs[:1]
            others = [*states, *inputs, *kept]
            visible = [*found, *others]
            for which, row, another, n in self.actions[call]:
                t, u = visible[which % len(visible)], visible[another % len(visible)]
                if self._tried(WRITES[row % len(WRITES)], m, t, u, n) is REFUSED:
                    seen.append("refused")
            for place in self.order[call]:
                if place < len(visible):
                    seen.append((call, int(place), m.values(visible[place])))
            seen.append(("same", [[a is b for b in (*found, *others)] for a in found]))
            if self.keeps:
                kept += found[:2]
        return [*seen, *[("kept", i, m.values(t)) for i, t in enumerate((*kept, *states))]]

    def _called(self, run, inputs, call) -> Any:
        options = {"early": bool(call % 2)} if self.early else {}
        if self.given_in == 1:
            return run(dict(enumerate(inputs)), **options)
        if self.given_in == 2:
            return run(inputs[0], more=tuple(inputs[1:]), **options)
        return run(*inputs, **options)

    def _step(self, m, pool, early) -> Any:
        for row, a, b, n, realizes in self.lines:
            if early and len(pool) > 3 + b % 4:
                return pool[-1], pool[-2]
            t = pool[-1 - a % min(len(pool), 4)] if a % 2 else pool[a % len(pool)]
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
            self.refused = True
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
        elif not np.array_equal(one[-1], two[-1]):
            return f"at {place}, {one[:-1]}: {one[-1].tolist()}, not {two[-1].tolist()}"
    return None if len(mine) == len(theirs) else f"{len(mine)} reads, not {len(theirs)}"


def check(seed: int, refusals: Counter[str] | None = None) -> str | None:
    """What differs, if anything does."""
    program = Program(seed)
    plain, refused = program.run(Ours), program.refused
    exact = plain if program.more else program.run(Numpy)
    if not (refused or program.refused) and (found := difference(shown(plain), shown(exact))):
        return f"plain and NumPy: {found}"
    if found := difference(program.run(Ours), plain):
        return f"plain, once more: {found}"
    try:
        captured = program.run(Ours, TinyJit)
    except JitError as error:
        if refusals is not None:
            refusals[str(error).split(":", 1)[-1][:60]] += 1
        return None
    if found := difference(captured, plain):
        return f"captured and plain: {found}"
    return None


def check_together(seeds: Sequence[int]) -> str | None:
    """The same for captured programs that run at the same time, each in a thread."""
    programs = [p for p in map(Program, seeds) if all(line[0] is not drawn for line in p.lines)]
    plain = [program.run(Ours) for program in programs]

    def captured(program):
        try:
            return program.run(Ours, TinyJit)
        except JitError:
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
