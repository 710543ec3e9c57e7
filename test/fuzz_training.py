"""Random small training programs: by PyTorch, plainly, and captured by TinyJit. A program draws a
net, one or two optimizers over parameters that they may share, schedules, and what a step does with
gradients: keeps them, adds to them, scales, clips, writes and reads them. Between steps it freezes
parameters, changes rates and options, loads what it saved, goes on with a deep copy of everything,
does plain steps, or sets gradients by hand. Losses, parameters, gradients (and which there are),
averages and rates must be PyTorch's after each step. A capture may refuse, by a JitError, which
ends its program, and so does a plain step by a gradient that no replay makes.

    python test/fuzz_training.py --minutes 5 --seed 1
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from fuzz_loop import look_for_finds

from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.base.errors import ArgumentError, JitError

STEPS = 7
ROWS, SIZE = 4, 4
UNREADABLE = "the gradient that a captured step made after a zero_grad() of its own"


class Ours:
    """What a program does, by tinygrad."""

    nn, optim, schedules = nn, nn.optim, nn.optim
    no_grad = staticmethod(Tensor.no_grad)
    load = staticmethod(nn.state.load_state_dict)
    state = staticmethod(nn.state.get_state_dict)
    tensor = staticmethod(lambda values: Tensor(values).realize())
    keep = staticmethod(lambda state: {name: t.clone().realize() for name, t in state.items()})
    values = staticmethod(lambda t: t.numpy())
    assign = staticmethod(lambda t, value: t.assign(value))
    clip_norm = staticmethod(nn.optim.clip_grad_norm_)
    clip_value = staticmethod(nn.optim.clip_grad_value_)
    cat = staticmethod(lambda a, b: Tensor.cat(a, b, dim=1))
    where = staticmethod(lambda c, a, b: c.where(a, b))
    freeze = staticmethod(lambda t, on: setattr(t, "requires_grad", on))

    @staticmethod
    def set_rate(optimizer, rate):
        if isinstance(optimizer, nn.optim.OptimizerGroup):
            for group in optimizer.param_groups:
                group["lr"] = rate
        else:
            optimizer.lr = rate

    rates = staticmethod(lambda optimizer: [group["lr"] for group in optimizer.param_groups])
    transposed = staticmethod(lambda t: t.transpose(0, 1))


class Theirs:
    """The same, by PyTorch."""

    nn, optim, schedules = torch.nn, torch.optim, torch.optim.lr_scheduler
    no_grad = staticmethod(torch.no_grad)
    load = staticmethod(lambda net, state: net.load_state_dict(state))
    state = staticmethod(lambda net: net.state_dict())
    tensor = staticmethod(lambda values: torch.tensor(values))
    keep = staticmethod(copy.deepcopy)
    values = staticmethod(lambda t: t.detach().numpy().copy())
    assign = staticmethod(lambda t, value: t.copy_(value))
    clip_norm = staticmethod(torch.nn.utils.clip_grad_norm_)
    clip_value = staticmethod(torch.nn.utils.clip_grad_value_)
    cat = staticmethod(lambda a, b: torch.cat([a, b], dim=1))
    where = staticmethod(torch.where)
    freeze = staticmethod(lambda t, on: t.requires_grad_(on))
    rates = staticmethod(lambda optimizer: [group["lr"] for group in optimizer.param_groups])
    transposed = staticmethod(lambda t: t.transpose(0, 1))

    @staticmethod
    def set_rate(optimizer, rate):
        for group in optimizer.param_groups:
            group["lr"] = rate


def net_of(way, layers: list[str]) -> Any:
    """The layers by name."""
    kinds = {
        "linear": lambda: way.nn.Linear(SIZE, SIZE),
        "other": lambda: way.nn.Linear(SIZE, SIZE, bias=False),
        "norm": lambda: way.nn.BatchNorm1d(SIZE),
        "layer": lambda: way.nn.LayerNorm(SIZE),
        "table": lambda: way.nn.Embedding(5, SIZE),
    }
    made = {name: kinds[name]() for name in layers}
    return made if way is Ours else torch.nn.ModuleDict(made)


# ---- what a net computes -------------------------------------------------------------------------
# (way, net, values so far, the latest, another, labels) → values of the same shape

LAYERS = {
    "linear": lambda m, net, t, u, y: net["linear"](t),
    "other": lambda m, net, t, u, y: net["other"](t).tanh(),
    "norm": lambda m, net, t, u, y: net["norm"](t),
    "layer": lambda m, net, t, u, y: net["layer"](t),
    "table": lambda m, net, t, u, y: t + net["table"](y),
}
PLAIN = (
    lambda m, net, t, u, y: t.relu(),
    lambda m, net, t, u, y: t.sigmoid() * u,
    lambda m, net, t, u, y: t + u,
    lambda m, net, t, u, y: t.softmax(-1),
    lambda m, net, t, u, y: m.where(t > u, t, u * 0.5),
    lambda m, net, t, u, y: t - t.mean(0),
    lambda m, net, t, u, y: m.cat(t[:, 2:], u[:, :2]),
    lambda m, net, t, u, y: t.detach() * t,
    lambda m, net, t, u, y: t @ m.transposed(t) @ u * 0.25,
)

OPTIMIZERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.125}),
    ("SGD", {"momentum": 0.5, "dampening": 0.25, "maximize": True}),
    ("Adam", {"eps": 1e-3}),
    ("Adam", {"eps": 1e-3, "amsgrad": True, "weight_decay": 0.125}),
    ("AdamW", {"eps": 1e-3, "weight_decay": 0.25}),
    ("RMSprop", {"eps": 1e-3, "momentum": 0.5, "centered": True}),
    ("RMSprop", {"eps": 1e-3}),
    ("Adagrad", {"eps": 1e-3, "lr_decay": 0.25}),
    ("Adadelta", {"eps": 1e-3}),
    ("Adamax", {"eps": 1e-3}),
    ("NAdam", {"eps": 1e-3}),
    ("RAdam", {"eps": 1e-3}),
    ("ASGD", {"lambd": 0.125}),
)
SCHEDULES = (
    lambda lib, o: lib.StepLR(o, 2, 0.5),
    lambda lib, o: lib.ExponentialLR(o, 0.75),
    lambda lib, o: lib.CosineAnnealingLR(o, 4),
    lambda lib, o: lib.LinearLR(o, 0.25, total_iters=3),
    lambda lib, o: lib.LambdaLR(o, lambda turn: 1 / (turn + 1)),
    lambda lib, o: lib.SequentialLR(
        o, [lib.ConstantLR(o, 0.5, total_iters=2), lib.ExponentialLR(o, 0.5)], milestones=[3]
    ),
)


RESETS = ("first", "last", "last", "outside", "outside", "never", "never", "zeros", "some")
"""When a step resets gradients. Those of `first` can't be read after replays."""


class Program:
    """The decisions of a training step, and of the program around it."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = np.random.default_rng(seed)
        names = list(LAYERS)
        self.layers = [n for n in names if draw.random() < 0.5] or ["linear"]
        lines: list[Any] = [(LAYERS[name], 0, int(draw.integers(9))) for name in self.layers]
        for _ in range(draw.integers(1, 4)):
            lines.append((PLAIN[draw.integers(len(PLAIN))], *map(int, draw.integers(9, size=2))))
        if draw.random() < 0.4:
            lines.append((LAYERS[self.layers[0]], 0, 0))  # one layer, twice
        self.lines = [lines[i] for i in draw.permutation(len(lines))]
        self.optimizers = [
            (*OPTIMIZERS[draw.integers(len(OPTIMIZERS))], float(draw.choice([0.125, 0.0625])))
            for _ in range(1 + (draw.random() < 0.3))
        ]
        self.owned = [draw.random(20) < 0.7 for _ in self.optimizers]
        self.grouped = draw.random() < 0.3
        self.schedules = [
            SCHEDULES[draw.integers(len(SCHEDULES))] if draw.random() < 0.3 else None
            for _ in self.optimizers
        ]
        self.reset = str(draw.choice(RESETS))
        self.backwards = int(draw.choice([1, 1, 2, 3]))
        self.hand = [int(k) for k in draw.permutation(len(HANDS))[: draw.choice([0, 0, 1, 2])]]
        self.average = draw.random() < 0.3
        self.outside = draw.random() < 0.2  # the optimizer's step isn't captured
        self.parts = draw.random() < 0.3  # losses of halves of the batch
        self.returned = int(draw.integers(4))
        self.whims = [
            [
                (int(draw.integers(len(WHIMS))), int(draw.integers(1000)))
                for _ in range(draw.choice([0, 0, 1, 2]))
            ]
            for _ in range(STEPS)
        ]
        self.data = draw.standard_normal((STEPS, ROWS, SIZE)).astype("float64")
        self.labels = draw.integers(5, size=(STEPS, ROWS))
        self.start = np.random.default_rng(seed + 1)

    def run(self, way, jit=lambda step: step) -> list[tuple[Any, Any]]:
        """What was read, by name, in order."""
        return Run(self, way, jit).done()


class Run:
    """One way of doing a program."""

    def __init__(self, program: Program, way, jit) -> None:
        self.program, self.way, self.jit = program, way, jit
        draw = copy.deepcopy(program.start)
        self.net = net_of(way, program.layers)
        state = way.state(self.net)
        self.names = sorted(n for n in state if "running" not in n and "num_" not in n)
        values = dict(state)
        for name in self.names:
            shape = tuple(state[name].shape)
            values[name] = way.tensor(draw.standard_normal(shape).astype("float64") * 0.5)
        way.load(self.net, values)
        for p in self.params:
            way.freeze(p, True)
        self.optimizers = self._optimizers()
        self.schedules = self._schedules()
        self.averages = [way.tensor(np.zeros(p.shape, "float64")) for p in self.params]
        self.saved: Any = None
        self.seen: list[tuple[Any, Any]] = []
        self.kept: list[Any] = []
        self.capture()

    @property
    def params(self) -> list[Any]:
        found = self.way.state(self.net) if self.way is Ours else dict(self.net.named_parameters())
        return [found[name] for name in self.names]

    def _optimizers(self) -> list[Any]:
        made = []
        for (name, options, rate), owned in zip(
            self.program.optimizers, self.program.owned, strict=True
        ):
            params = [p for p, mine in zip(self.params, owned, strict=False) if mine]
            params = params or self.params[:1]
            given: Any = params
            if self.program.grouped and len(params) > 1:
                given = [{"params": params[:1], "lr": rate / 2}, {"params": params[1:]}]
            made.append(getattr(self.way.optim, name)(given, lr=rate, **options))
        return made

    def _schedules(self) -> list[Any]:
        pairs = zip(self.program.schedules, self.optimizers, strict=True)
        return [make and make(self.way.schedules, o) for make, o in pairs]

    def capture(self) -> None:
        self.step = self.jit(lambda x, y: self._step(x, y))

    # ---- a step ----------------------------------------------------------------------------------

    def _forward(self, x, y) -> Any:
        pool = [x]
        for line, a, b in self.program.lines:
            latest, other = pool[-1 - a % min(2, len(pool))], pool[b % len(pool)]
            pool.append(line(self.way, self.net, latest, other, y))
        return pool[-1]

    def _loss(self, x, y, number: int) -> Any:
        out = self._forward(x, y)
        loss = (out * out).mean() + out.sum() * 0.125
        for p in self.params[number % len(self.params) :]:
            loss = loss + (p * p).sum() * 0.0625
        return loss

    def _step(self, x, y) -> Any:
        program, losses = self.program, []
        if program.reset in ("first", "zeros", "some"):
            self.reset()
        for number in range(program.backwards):
            part = slice(2 * (number % 2), 2 + 2 * (number % 2)) if program.parts else slice(None)
            losses.append(self._loss(x[part], y[part], number))
            losses[-1].backward()
        for k in program.hand:
            HANDS[k](self)
        if not program.outside:
            self._advance()
        result = [*losses]
        if program.returned == 1:
            result += [p * 2 for p in self.params[:1]]
        if program.returned == 2:
            result += [p.grad * 1 for p in self.params if p.grad is not None][:2]
        if program.returned == 3:
            result += [p.grad * 2 for p in self.params if p.grad is not None][:2]
        if program.reset == "last":
            self.reset()
        return result

    def reset(self) -> None:
        if self.program.reset == "some":
            self.params[0].grad = None
            return
        for each in self.optimizers:
            each.zero_grad(set_to_none=self.program.reset != "zeros")

    def _advance(self) -> None:
        for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
            if any(p.grad is not None for g in self._groups(optimizer) for p in g):
                optimizer.step()
            if schedule:
                schedule.step()
        if self.program.average:
            with self.way.no_grad():
                for average, p in zip(self.averages, self.params, strict=True):
                    self.way.assign(average, average * 0.75 + p.detach() * 0.25)

    def _groups(self, optimizer) -> list[list[Any]]:
        if self.way is Ours:
            return [optimizer.params]
        return [group["params"] for group in optimizer.param_groups]

    # ---- the program -----------------------------------------------------------------------------

    def done(self) -> list[tuple[Any, Any]]:
        with Tensor.train():
            for number in range(STEPS):
                for whim, n in self.program.whims[number]:
                    WHIMS[whim](self, n)
                self._once(number)
        return self.seen

    def _once(self, number: int) -> None:
        way, program = self.way, self.program
        x, y = way.tensor(program.data[number]), way.tensor(program.labels[number])
        result = self.step(x, y)
        if program.outside:
            self._advance()
        for i, t in enumerate(result):
            self.see((number, "result", i), t)
        for name, p in zip(self.names, self.params, strict=True):
            self.see((number, name), p)
            self.see((number, name, "grad"), p.grad)
        for i, t in enumerate(self.averages):
            self.see((number, "average", i), t)
        for i, t in enumerate(self.kept):
            self.see((number, "kept", i), t)
        for name, t in sorted(way.state(self.net).items()):
            if name not in self.names:
                self.see((number, name), t)
        for each in self.optimizers:
            self.seen.append(((number, "rates"), np.array(way.rates(each), "float64")))
        if program.reset == "outside":
            self.reset()

    def see(self, name, t) -> None:
        try:
            self.seen.append((name, None if t is None else self.way.values(t)))
        except ArgumentError as error:
            if "captured step made" not in str(error):
                raise
            self.seen.append((name, UNREADABLE))


# ---- by hand -------------------------------------------------------------------------------------


def with_gradients(run) -> list[Any]:
    return [p for p in run.params if p.grad is not None]


def clip_norm(run):
    run.way.clip_norm(run.params, 0.5)


def clip_value(run):
    run.way.clip_value(run.params, 0.25)


def scale_in_place(run):
    with run.way.no_grad():
        for p in with_gradients(run):
            p.grad *= 0.5


def scale_by_another(run):
    for p in with_gradients(run):
        p.grad = p.grad * 0.5


def write_a_part(run):
    with run.way.no_grad():
        for p in with_gradients(run)[:1]:
            p.grad[0] = 1.0


def decay(run):
    with run.way.no_grad():
        p = run.params[0]
        run.way.assign(p, p * 0.75)


def share(run):
    """A gradient that is another's as well."""
    found = with_gradients(run)
    for a, b in zip(found, found[1:], strict=False):
        if a.shape == b.shape:
            b.grad = a.grad.detach() * 1 + b.grad
            return


def forget_one(run):
    run.params[-1].grad = None


HANDS = (
    clip_norm,
    clip_value,
    scale_in_place,
    scale_by_another,
    write_a_part,
    decay,
    share,
    forget_one,
)


# ---- whims: what is done between steps -----------------------------------------------------------


def anew(run, n):
    """Captures again what would refuse, most times."""
    if n % 5:
        run.capture()


def freeze(run, n):
    p = run.params[n % len(run.params)]
    if sum(bool(q.requires_grad) for q in run.params) > 1:
        run.way.freeze(p, False)
        anew(run, n)


def thaw(run, n):
    run.way.freeze(run.params[n % len(run.params)], True)
    anew(run, n)


def rate(run, n):
    which = n % len(run.optimizers)
    if run.schedules[which]:
        return
    run.way.set_rate(run.optimizers[which], [0.25, 0.03125][n % 2])


def options(run, n):
    group = run.optimizers[n % len(run.optimizers)].param_groups[-1]
    if "weight_decay" in group:
        group["weight_decay"] = [0.0, 0.25][n % 2]
        run.saved = None  # PyTorch's state has the options
        anew(run, n)


def parts_of(run) -> list[Any]:
    return [*run.optimizers, *[s for s in run.schedules if s]]


def save(run, n):
    keep = Ours.keep if run.way is Ours else copy.deepcopy
    run.saved = [keep(run.way.state(run.net)), *[keep(p.state_dict()) for p in parts_of(run)]]


def load(run, n):
    if run.saved:
        run.way.load(run.net, run.saved[0])
        for part, state in zip(parts_of(run), run.saved[1:], strict=True):
            part.load_state_dict(copy.deepcopy(state) if run.way is Theirs else state)


def deep_copy(run, n):
    """Goes on with a copy of everything."""
    whole = run.net, run.optimizers, run.schedules, run.averages
    run.net, run.optimizers, run.schedules, run.averages = copy.deepcopy(whole)
    forget(run, n)  # PyTorch's parameters leave theirs behind
    run.capture()


def deep_copy_net(run, n):
    """A copy of the net is moved by hand, and must leave this one as it is."""
    other = copy.deepcopy(run.net)
    with run.way.no_grad():
        for p in run.way.state(other).values():
            if n % 2:
                run.way.assign(p, p * 0)
            else:
                p *= 0


def renew(run, n):
    """New optimizers, with new state."""
    run.optimizers = run._optimizers()
    run.schedules = run._schedules()
    run.capture()


def forget(run, n):
    for p in run.params:
        p.grad = None


def give(run, n):
    """A gradient of the program's own."""
    p = run.params[n % len(run.params)]
    p.grad = run.way.tensor(np.full(tuple(p.shape), 0.25, "float64"))


def keep(run, n):
    found = with_gradients(run)
    if found:
        run.kept.append(found[n % len(found)].grad * 1)


def write(run, n):
    with run.way.no_grad():
        run.params[n % len(run.params)][0] = 0.5


def more(run, n):
    """A backward outside of the step."""
    x = run.way.tensor(run.program.data[n % STEPS])
    y = run.way.tensor(run.program.labels[n % STEPS])
    run._loss(x, y, n).backward()


def plain_step(run, n):
    """A step that isn't captured."""
    x = run.way.tensor(run.program.data[n % STEPS])
    y = run.way.tensor(run.program.labels[n % STEPS])
    run._step(x, y)


def read(run, n):
    run.see("read", run.params[n % len(run.params)].grad)


def thaw_all(run, n):
    for p in run.params:
        run.way.freeze(p, True)


WHIMS = (
    freeze,
    thaw,
    thaw_all,
    rate,
    rate,
    options,
    save,
    save,
    load,
    load,
    deep_copy,
    deep_copy_net,
    renew,
    forget,
    give,
    keep,
    write,
    more,
    plain_step,
    read,
)


@contextmanager
def doubles() -> Iterator[None]:
    """New layers have float64 numbers, so that what rounds differently differs by little."""
    before = dtypes.default_float, torch.get_default_dtype(), torch.get_num_threads()
    dtypes.default_float = dtypes.float64
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        dtypes.default_float = before[0]
        torch.set_default_dtype(before[1])
        torch.set_num_threads(before[2])


def difference(mine: list[Any], theirs: list[Any], partial: bool = False) -> str | None:
    for (name, one), (other, two) in zip(mine, theirs, strict=False):
        if one is UNREADABLE:
            continue
        if name != other or (one is None) != (two is None):
            return f"{name}: {one!r:.60}, not {other} {two!r:.60}"
        if two is not None and np.abs(two).max(initial=0) > 99:
            return None  # it diverges, and all that rounds differently with it
        if one is not None and not np.allclose(one, two, 1e-4, 1e-6, equal_nan=True):
            return f"{name}: {np.ravel(one)[:4]}, not {np.ravel(two)[:4]}"
    return None if partial or len(mine) == len(theirs) else f"{len(mine)} reads, {len(theirs)}"


def check(seed: int, refusals: Counter[str]) -> str | None:
    """What differs, if anything does."""
    with doubles():
        return _check(seed, refusals)


def _check(seed: int, refusals: Counter[str]) -> str | None:
    exact = Program(seed).run(Theirs)
    if found := difference(Program(seed).run(Ours), exact):
        return f"plain: {found}"
    run = Run(Program(seed), Ours, TinyJit)
    try:
        run.done()
    except (JitError, ArgumentError) as error:
        if not isinstance(error, JitError) and "captured step made" not in str(error):
            raise
        refusals[str(error).split(":", 1)[-1][:70]] += 1
    if found := difference(run.seen, exact, partial=True):
        return f"captured: {found}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    refusals = Counter[str]()
    failed = look_for_finds(parser, lambda options: lambda seed: check(seed, refusals))
    for message, count in refusals.most_common():
        print(f"  {count} refused: {message}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
