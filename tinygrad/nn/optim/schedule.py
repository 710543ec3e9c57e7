"""Schedules of the learning rate: its value as a function of the step number.

A schedule counts in a tensor and writes the optimizer's rate in place, so a captured step that
calls `step` continues by itself. Cycles write the momentum, too. The formulas are PyTorch's in
closed form: `rate` depends only on the optimizer's first rate and on the step number. A schedule
that multiplies (`Multiplying`) goes on from a rate that was set by hand meanwhile, as there.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.data.printed import made_with
from tinygrad.engine.realize import capturing, each_time
from tinygrad.nn.optim.gradients import optimizers_of
from tinygrad.nn.optim.optimizer import Optimizer, Stepper
from tinygrad.nn.optim.options import (
    check_kind,
    options_in,
    options_state,
    own_number,
    take_options,
    without_options,
)
from tinygrad.nn.state import load_state_dict
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_above, check_choice, check_number_from

_LAST: WeakKeyDictionary[Optimizer, ReferenceType[Scheduler]] = WeakKeyDictionary()
"""The schedule that stepped last, by optimizer."""


@dataclass(eq=False, repr=False)
class Scheduler(ABC):
    """The base of schedules. Making one sets the rate of step 0; call `step` after each step. A
    rate that is set by hand (`optimizer.lr = x`, or by a ReduceLROnPlateau) lasts until then; a
    schedule that is `Multiplying` goes on from it.

    Args:
        optimizer: whose rate to set; of a group, each optimizer's by its own first rate: the one
            that it was made with, or that was set before its first schedule.
        after: the number of the last step that was made elsewhere, `last_epoch` of PyTorch's, if
            there were some: the schedule goes on from there.

    >>> from tinygrad.nn.optim import SGD
    >>> class Halves(Scheduler):
    ...     def rate(self, base, turn): return base * 0.5**turn.float()
    >>> schedule = Halves(SGD([Tensor([1.0])], lr=1.0))
    >>> schedule.step(); schedule.get_last_lr()
    [0.5]
    """

    optimizer: Stepper = field(repr=False)
    after: int = field(default=-1, kw_only=True)
    counts: ClassVar[tuple[str, ...]] = ()  # the options that must be 1 or more

    def __post_init__(self) -> None:
        check_number_from(type(self).__name__, "last_epoch", self.after, -1)
        self.has_stepped = False
        self.told: int | None = None  # steps, if it has counted
        for name in self.counts:
            if (number := getattr(self, name)) < 1:
                who = type(self).__name__
                raise ArgumentError(f"{who}: {name}={number}; legal is 1 or more")
        self.turn = own_number(self.after + 1, dtypes.int32)
        for written in self._momentum_written(self.turn):
            written.realize()
        for each in self.optimizers:
            each.write_rate(self.rate(each.base_lr, self.turn).cast(dtypes.float32))
            each.is_scheduled, each.rate_was_set = True, False

    def _shown(self) -> dict[str, Any]:
        """Its options, and the schedules in it: not the optimizer, which it only moves."""
        return {n: x for n, x in made_with(self).items() if n not in ("optimizer", "after")}

    @property
    def optimizers(self) -> list[Optimizer]:
        """Those whose rate it sets.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> len(schedule.optimizers)
        1
        """
        return optimizers_of(self.optimizer)

    @abstractmethod
    def rate(self, base: float, turn: Tensor) -> Tensor:
        """The rate at step `turn`, (1,) int32, of an optimizer made with rate `base`."""

    def next_rate(self, optimizer: Optimizer, turn: Tensor) -> Tensor:
        """The rate at step `turn`, (1,) int32, of an optimizer that has that of the step before, or
        one that was set by hand since. At step 0 it begins, after another.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> schedule.next_rate(schedule.optimizers[0], Tensor([2])).tolist()
        [0.25]
        """
        return self.rate(optimizer.base_lr, turn)

    def momentum(self, turn: Tensor) -> Tensor | None:
        """The momentum (or b1) at step `turn`; None leaves it as it is.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> print(schedule.momentum(Tensor([2])))
        None
        """
        return None

    def schedule_step(self) -> list[Tensor]:
        """Goes on by one step; returns what changes. Realize these with the optimizer's step.

        Raises:
            ArgumentError: another schedule sets the rate of the same optimizer, in turns with this.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> _ = Tensor.realize(*schedule.schedule_step()); schedule.last_epoch
        1
        """
        for each in self.optimizers:
            self._check_alone(each)
        self.has_stepped = True
        if self.end is not None:
            each_time(self._count)
        turn = self.turn.assign(self.turn + 1)
        return [
            turn,
            *(
                each.lr.assign(self.next_rate(each, turn).cast(dtypes.float32).to(each.device))
                for each in self.optimizers
            ),
            *self._momentum_written(turn),
        ]

    def _momentum_written(self, turn: Tensor) -> list[Tensor]:
        momentum = self.momentum(turn)
        if momentum is None:
            return []
        kept = [each.vary_inertia() for each in self.optimizers]
        return [each.assign(momentum.cast(dtypes.float32).to(each.device)) for each in kept]

    def _check_alone(self, optimizer: Optimizer) -> None:
        last = _LAST[optimizer]() if optimizer in _LAST else None
        if self.has_stepped and last is not None and last is not self:
            raise ArgumentError(
                f"{type(self).__name__}.step: in turns with {type(last).__name__} of the same "
                "optimizer, and each sets the whole rate; legal is a ChainedScheduler or a "
                "SequentialLR of both"
            )
        _LAST[optimizer] = ref(self)

    def _count(self) -> None:
        """ArgumentError if this was the last step. The host counts, too: a step that is captured
        can't look, and a CHECK would fail when the weights have been written."""
        assert self.end is not None, "asked before"
        if not capturing() and (self.told is None or self.told >= self.end):
            self.told = self.last_epoch  # which somebody may have loaded
        self.told = self.after + 1 if self.told is None else self.told
        if self.told >= self.end:
            raise ArgumentError(
                f"{type(self).__name__}.step: after {self.told} steps; legal are {self.end} of them"
            )
        self.told += 1

    def step(self) -> None:
        """Goes on by one step, now.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> schedule.step(); schedule.get_last_lr()
        [0.5]
        """
        changed = self.schedule_step()
        Tensor.realize(*changed)

    @property
    def end(self) -> int | None:
        """How many steps there are; None: it goes on for ever.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> print(schedule.end)
        None
        """
        return None

    @property
    def last_epoch(self) -> int:
        """The number of the step, as a number of Python.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> schedule.last_epoch
        0
        """
        return int(self.turn.item())

    def state_dict(self) -> dict[str, Tensor]:
        """What the next step depends on besides the optimizer.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> schedule.state_dict()["turn"].tolist()
        [0]
        """
        state = self._tensors()
        for prefix, each in self._all():
            state |= {prefix + name: kept for name, kept in options_state(each).items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resumes from where `state` was taken, with the options that were in use there; the
        optimizer's rate is in its own state.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> state = schedule.state_dict(); schedule.load_state_dict(state); schedule.last_epoch
        0
        """
        check_kind(self, state, list(self._all()))
        load_state_dict(self._tensors(), without_options(state))
        for prefix, each in self._all():
            mine = {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}
            take_options(options_in(mine, each), each)
        self.told = None
        for one in self.optimizers:
            one.rate_was_set = True  # maybe, before the state was taken

    def _tensors(self) -> dict[str, Tensor]:
        return {"turn": self.turn}

    def _all(self, prefix: str = "") -> Iterator[tuple[str, Scheduler]]:
        """It and the schedules in it, each behind what its names in a state begin with."""
        yield prefix, self
        for i, each in enumerate(getattr(self, "schedulers", ())):
            yield from each._all(f"{prefix}schedulers.{i}.")

    def get_last_lr(self) -> list[float]:
        """The rates now, one an optimizer.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ExponentialLR(SGD([Tensor([1.0])], lr=1.0), gamma=0.5)
        >>> schedule.get_last_lr()
        [1.0]
        """
        return [float(each.lr.item()) for each in self.optimizers]


class Multiplying(Scheduler):
    """A schedule that multiplies the rate, or what that has above `lowest`, from step to step, so
    it goes on from one that was set by hand.

    >>> from tinygrad.nn.optim import SGD, ExponentialLR
    >>> optimizer = SGD([Tensor([1.0])], lr=1.0)
    >>> schedule = ExponentialLR(optimizer, gamma=0.5)
    >>> schedule.step()
    >>> optimizer.lr = 0.125
    >>> schedule.step(); schedule.get_last_lr()
    [0.0625]
    """

    @property
    def lowest(self) -> float:
        """What isn't multiplied."""
        return 0.0

    def next_rate(self, optimizer: Optimizer, turn: Tensor) -> Tensor:
        """The closed form. After a rate that is another than that gave, what this has above the
        lowest, times how much that of the closed form grows; where that has none, as much more."""
        rate = self.rate(optimizer.base_lr, turn)
        if not capturing() and _is_by_schedule(optimizer):  # a replay looks at the rate itself
            return rate
        now, before = optimizer.lr.to(turn.device), self.rate(optimizer.base_lr, turn - 1)
        above = before - self.lowest
        grown = (now - self.lowest) * ((rate - self.lowest) / above) + self.lowest
        after = (above == 0).where(now + (rate - before), grown)
        was_set = (turn > 0) & ((now - before).abs() > before.abs() * NEAR)
        return was_set.where(after, rate)


def _is_by_schedule(optimizer: Optimizer) -> bool:
    """Whether nobody has set the rate by hand. A capture, which would watch that, doesn't ask."""
    return not optimizer.rate_was_set


NEAR = 1e-5
"""By how much of it a rate may differ from the closed form, which kernels round in several ways."""


@dataclass(eq=False, repr=False)
class LambdaLR(Scheduler):
    """The first rate times `factor(turn)`, a function of the step number, a tensor (1,) int32. It
    may return a Python number; but if it reads the tensor for that, as in `if turn < 10`, it can't
    be captured.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = LambdaLR(optimizer, lambda turn: 1 / (turn + 1))
    >>> schedule.step()
    >>> optimizer.lr.item()
    0.25
    """

    factor: Callable[[Tensor], Tensor | float]

    def __post_init__(self) -> None:
        check_factor("LambdaLR", self.factor)
        super().__post_init__()

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base·factor(turn)."""
        factor = self.factor(turn)
        return (factor if isinstance(factor, Tensor) else turn.float().const_like(factor)) * base


@dataclass(eq=False, repr=False)
class MultiplicativeLR(Scheduler):
    """The first rate times `factor(1)`, times `factor(2)`, and so on; see `LambdaLR`.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = MultiplicativeLR(optimizer, lambda turn: 0.5)
    >>> schedule.step(); schedule.step()
    >>> optimizer.lr.item()
    0.125
    """

    factor: Callable[[Tensor], Tensor | float]

    def __post_init__(self) -> None:
        check_factor("MultiplicativeLR", self.factor)
        super().__post_init__()

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base times the factors of the steps that were made elsewhere."""
        factors = [self.factor(Tensor([turn])) for turn in range(1, self.after + 2)]
        product = math.prod(float(Tensor(factor).item()) for factor in factors)
        return turn.float().const_like(product) * base

    def next_rate(self, optimizer: Optimizer, turn: Tensor) -> Tensor:
        """The rate times the step's factor."""
        return optimizer.lr.to(turn.device) * self.factor(turn)


def check_factor(who: str, factor: object) -> None:
    """ArgumentError for a factor that is no function of the step."""
    if not callable(factor):
        raise ArgumentError(
            f"{who}: {factor!r}; legal is a function: make a schedule for each optimizer of a group"
        )


@dataclass(eq=False, repr=False)
class ConstantLR(Multiplying):
    """The first rate times `factor` for `total_iters` steps, then the first rate.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = ConstantLR(optimizer, factor=0.5, total_iters=1)
    >>> schedule.step()
    >>> optimizer.lr.numpy().round(4)
    array([0.5], dtype=float32)
    """

    factor: float = 1 / 3
    total_iters: int = 5
    counts = ("total_iters",)

    def __post_init__(self) -> None:
        check_number_from("ConstantLR", "factor", self.factor, 0, 1)
        super().__post_init__()

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base·factor, later base."""
        return (turn < self.total_iters).where(base * self.factor, base)


@dataclass(eq=False, repr=False)
class LinearLR(Multiplying):
    """Warm-up: the first rate times a factor that goes linearly from `start_factor` to
    `end_factor`.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> optimizer.lr.item()
    0.25
    >>> schedule.step()
    >>> optimizer.lr.item()
    0.375
    """

    start_factor: float = 1 / 3
    end_factor: float = 1.0
    total_iters: int = 5
    counts = ("total_iters",)

    def __post_init__(self) -> None:
        check_above("LinearLR", "start_factor", self.start_factor)
        check_number_from("LinearLR", "start_factor", self.start_factor, 0, 1)
        check_number_from("LinearLR", "end_factor", self.end_factor, 0, 1)
        super().__post_init__()

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base·(start + (end - start)·share of the steps)."""
        share = turn.minimum(self.total_iters).float() / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * share)


@dataclass(eq=False, repr=False)
class StepLR(Multiplying):
    """The rate times `gamma` every `step_size` steps.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = StepLR(optimizer, step_size=1, gamma=0.5)
    >>> schedule.step()
    >>> optimizer.lr.numpy().round(4)
    array([0.25], dtype=float32)
    """

    step_size: int
    gamma: float = 0.1
    counts = ("step_size",)

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base·gamma^⌊turn / step_size⌋."""
        return base * self.gamma ** (turn // self.step_size).float()


@dataclass(eq=False, repr=False)
class MultiStepLR(Multiplying):
    """The rate times `gamma` at each of the `milestones`.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    >>> schedule.step()
    >>> optimizer.lr.numpy().round(4)
    array([0.25], dtype=float32)
    """

    milestones: Sequence[int]
    gamma: float = 0.1

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base·gamma^(number of milestones reached)."""
        reached = (turn.float() * 0).contiguous() if not self.milestones else None
        for milestone in self.milestones:
            passed = (turn >= milestone).float()
            reached = passed if reached is None else reached + passed
        assert reached is not None
        return base * self.gamma**reached


@dataclass(eq=False, repr=False)
class ExponentialLR(Multiplying):
    """The rate times `gamma` in every step.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = ExponentialLR(optimizer, gamma=0.5)
    >>> schedule.step()
    >>> optimizer.lr.numpy().round(4)
    array([0.25], dtype=float32)
    """

    gamma: float

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base·gamma^turn."""
        return base * self.gamma ** turn.float()


@dataclass(eq=False, repr=False)
class PolynomialLR(Multiplying):
    """Down to 0 in `total_iters` steps, along (1 - share)^power.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = PolynomialLR(optimizer, total_iters=4)
    >>> schedule.step()
    >>> optimizer.lr.numpy().round(4)
    array([0.375], dtype=float32)
    """

    total_iters: int = 5
    power: float = 1.0
    counts = ("total_iters",)

    def __post_init__(self) -> None:
        check_number_from("PolynomialLR", "power", self.power, 0)
        super().__post_init__()

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base·(1 - turn / total_iters)^power, then 0."""
        left = 1 - turn.minimum(self.total_iters).float() / self.total_iters
        return base * left**self.power


@dataclass(eq=False, repr=False)
class CosineAnnealingLR(Multiplying):
    """Down to `eta_min` in `T_max` steps along half a cosine, and up again.

    (Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2016.)

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = CosineAnnealingLR(optimizer, T_max=2)
    >>> schedule.step()
    >>> optimizer.lr.numpy().round(4)
    array([0.25], dtype=float32)
    """

    T_max: int
    eta_min: float = 0.0
    counts = ("T_max",)

    @property
    def lowest(self) -> float:
        """`eta_min`."""
        return self.eta_min

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """eta_min + (base - eta_min)·(1 + cos(π·turn / T_max)) / 2."""
        return cosine(base, self.eta_min, turn.float() / self.T_max)


@dataclass(eq=False, repr=False)
class CosineAnnealingWarmRestarts(Scheduler):
    """Down to `eta_min` along half a cosine, again and again: in T_0 steps, then in T_mult times as
    many as the time before. (Loshchilov and Hutter, "SGDR", 2016.)

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for _ in range(3):
    ...     rates += [round(optimizer.lr.item(), 4)]
    ...     schedule.step()
    >>> rates
    [0.5, 0.25, 0.5]
    """

    T_0: int
    T_mult: int = 1
    eta_min: float = 0.0
    counts = ("T_0", "T_mult")

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """A cosine of how much of the time since the last restart is over."""
        if self.T_mult == 1:
            return cosine(base, self.eta_min, (turn % self.T_0).float() / self.T_0)
        start, length = turn * 0, turn * 0 + self.T_0
        begin, size = self.T_0, self.T_0 * self.T_mult
        while begin < 2**31 - 1:  # as many restarts as a number of steps may have seen
            over = turn >= begin
            start, length = over.where(begin, start), over.where(min(size, 2**31 - 1), length)
            begin, size = begin + size, size * self.T_mult
        return cosine(base, self.eta_min, (turn - start).float() / length.float())


@dataclass(eq=False, repr=False)
class SequentialLR(Scheduler):
    """One schedule after the other: the next begins at its milestone, from its own step 0.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> warm, decay = LinearLR(optimizer, total_iters=2), ExponentialLR(optimizer, 0.5)
    >>> schedule = SequentialLR(optimizer, [warm, decay], milestones=[2])
    >>> for _ in range(3):
    ...     schedule.step()
    >>> optimizer.lr.item()
    0.25
    """

    schedulers: Sequence[Scheduler]
    milestones: Sequence[int]

    def __post_init__(self) -> None:
        legal = len(self.schedulers) - 1
        if len(self.milestones) != legal:
            raise ArgumentError(
                f"SequentialLR: {len(self.milestones)} milestones for "
                f"{len(self.schedulers)} schedules; legal are {legal}"
            )
        super().__post_init__()

    @property
    def end(self) -> int | None:
        """Where a schedule ends before its milestone; or the last, if it does."""
        begins, ends = [0, *self.milestones], [*self.milestones, math.inf]
        last = [
            begin + each.end
            for begin, until, each in zip(begins, ends, self.schedulers, strict=True)
            if each.end is not None and begin + each.end < until - 1
        ]
        return min(last, default=None)

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """The rate of the schedule whose turn it is."""
        return self._in_turn(turn, lambda each, mine: each.rate(base, mine))

    def next_rate(self, optimizer: Optimizer, turn: Tensor) -> Tensor:
        """That of the schedule whose turn it is."""
        return self._in_turn(turn, lambda each, mine: each.next_rate(optimizer, mine))

    def _in_turn(self, turn: Tensor, of: Callable[[Scheduler, Tensor], Tensor]) -> Tensor:
        """What is asked of the schedule whose turn it is, by the number of its own step."""
        now = of(self.schedulers[0], turn)
        for milestone, schedule in zip(self.milestones, self.schedulers[1:], strict=True):
            later = of(schedule, (turn - milestone).maximum(0))
            now = (turn >= milestone).where(later, now)
        return now

    def momentum(self, turn: Tensor) -> Tensor | None:
        """That of the schedule whose turn it is, if it moves it; else it stays as it was set."""
        now, begins = None, [0, *self.milestones]
        for i, schedule in enumerate(self.schedulers):
            mine = (turn - begins[i]).maximum(0)
            if i < len(self.milestones):
                mine = mine.minimum(max(self.milestones[i] - begins[i] - 1, 0))
            later = schedule.momentum(mine)
            if now is None or later is None:
                now = later if now is None else now
            else:
                now = (turn >= begins[i]).where(later, now)
        return now


class ChainedScheduler(Multiplying):
    """Several schedules at once: the first rate times the factors of all.

    Args:
        schedulers: of one optimizer, each by a factor: ConstantLR, LinearLR, StepLR, MultiStepLR,
            ExponentialLR, PolynomialLR, CosineAnnealingLR down to 0.
        optimizer: theirs; need not be said.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> parts = [ConstantLR(optimizer, 0.5, total_iters=2), ExponentialLR(optimizer, 0.5)]
    >>> schedule = ChainedScheduler(parts)
    >>> schedule.step()
    >>> optimizer.lr.item()
    0.125
    """

    def __init__(self, schedulers: Sequence[Scheduler], optimizer: Stepper | None = None) -> None:
        if not schedulers:
            raise ArgumentError("ChainedScheduler: of no schedules; give at least one")
        for each in schedulers:
            if not isinstance(each, Multiplying) or each.lowest:
                kinds = ", ".join(kind.__name__ for kind in Multiplying.__subclasses__())
                raise ArgumentError(
                    f"ChainedScheduler: {type(each).__name__} sets a rate of its own; legal are "
                    f"{kinds}, down to 0"
                )
            if each.optimizers != schedulers[0].optimizers:
                raise ArgumentError("ChainedScheduler: of several optimizers; legal is one")
        self.schedulers = schedulers
        self.optimizer = optimizer or schedulers[0].optimizer
        self.__post_init__()

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """base times the factors of all."""
        factors = [each.rate(1.0, turn) for each in self.schedulers]
        return functools.reduce(Tensor.mul, factors) * base


class ReduceLROnPlateau:
    """Multiplies the rate by `factor` when a measure has not improved for `patience` steps.

    Args:
        optimizer: whose rate to set.
        mode: "min" if smaller is better, else "max".
        factor: what the rate is multiplied by.
        patience: how many steps without progress are borne.
        threshold: by what share a measure must be better to count.
        threshold_mode: "rel"; or "abs": it must be better by `threshold` itself.
        cooldown: how many steps after a change don't count.
        min_lr: the rate never falls below.
        eps: a change by less than this isn't made.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in [1.0, 1.0, 1.0]:
    ...     schedule.step(loss)
    >>> optimizer.lr.item()
    0.25
    """

    def __init__(
        self,
        optimizer: Stepper,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        check_choice("ReduceLROnPlateau", "threshold_mode", threshold_mode, ("rel", "abs"))
        check_choice("ReduceLROnPlateau", "mode", mode, ("min", "max"))
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.eps = eps
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.best, self.bad, self.resting = map(own_number, (math.inf, 0.0, 0.0))

    def _shown(self) -> dict[str, Any]:
        return {n: x for n, x in made_with(self).items() if n != "optimizer"}

    def schedule_step(self, metric: Tensor | float) -> list[Tensor]:
        """Takes a measure, of one element; returns what changes. Realize these with the optimizer's
        step.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ReduceLROnPlateau(SGD([Tensor([1.0])], lr=0.5), factor=0.5, patience=1)
        >>> _ = Tensor.realize(*schedule.schedule_step(0.25)); schedule.best.item()
        0.25
        """
        given = metric if isinstance(metric, Tensor) else Tensor([metric])
        value = given.detach().reshape(1).float().to(self.best.device)
        value = value if self.mode == "min" else -value
        relative = self.threshold_mode == "rel"
        by = self.best.abs() * self.threshold if relative else self.threshold
        better = value < self.best - by
        better = self.best.isinf().where(value < self.best, better)
        resting = (self.resting - 1).maximum(0)
        bad = (better | (self.resting > 0)).where(0.0, self.bad + 1)
        cut = bad > self.patience
        return [
            *(self._cut(each, cut) for each in optimizers_of(self.optimizer)),
            self.best.assign(better.where(value, self.best)),
            self.bad.assign(cut.where(0.0, bad)),
            self.resting.assign(cut.where(float(self.cooldown), resting)),
        ]

    def _cut(self, optimizer: Optimizer, cut: Tensor) -> Tensor:
        """The rate, lower where `cut` is true."""
        optimizer.rate_was_set = True
        lower = (optimizer.lr * self.factor).maximum(self.min_lr)
        cut = cut.to(optimizer.device) & (optimizer.lr - lower > self.eps)
        return optimizer.lr.assign(cut.where(lower, optimizer.lr))

    def get_last_lr(self) -> list[float]:
        """The rates now, one an optimizer.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ReduceLROnPlateau(SGD([Tensor([1.0])], lr=0.5), factor=0.5, patience=1)
        >>> schedule.get_last_lr()
        [0.5]
        """
        return [float(each.lr.item()) for each in optimizers_of(self.optimizer)]

    def state_dict(self) -> dict[str, Tensor]:
        """What the next step depends on besides the optimizer.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ReduceLROnPlateau(SGD([Tensor([1.0])], lr=0.5), factor=0.5, patience=1)
        >>> sorted(schedule.state_dict())[:3]
        ['bad', 'best', 'options.cooldown']
        """
        return self._tensors() | options_state(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resumes from where `state` was taken, with the options that were in use there; the
        optimizer's rate is in its own state.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ReduceLROnPlateau(SGD([Tensor([1.0])], lr=0.5), factor=0.5, patience=1)
        >>> other = ReduceLROnPlateau(SGD([Tensor([1.0])], lr=0.5), patience=4)
        >>> schedule.load_state_dict(other.state_dict()); schedule.patience
        4
        """
        check_kind(self, state, [("", self)])
        load_state_dict(self._tensors(), without_options(state))
        take_options(options_in(state, self), self)

    def _tensors(self) -> dict[str, Tensor]:
        return {"best": self.best, "bad": self.bad, "resting": self.resting}

    def step(self, metric: Tensor | float) -> None:
        """Takes a measure, now.

        >>> from tinygrad.nn.optim import SGD
        >>> schedule = ReduceLROnPlateau(SGD([Tensor([1.0])], lr=0.5), factor=0.5, patience=1)
        >>> schedule.step(0.25); schedule.step(0.75)
        >>> schedule.best.item(), schedule.bad.item()
        (0.25, 1.0)
        """
        changed = self.schedule_step(metric)
        Tensor.realize(*changed)


def cosine(start: float, end: float, share: Tensor) -> Tensor:
    """From `start` at share 0 to `end` at share 1, along half a cosine."""
    return end + (start - end) * (1 + (share * math.pi).cos()) / 2
