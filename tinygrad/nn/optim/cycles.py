"""Schedules that go up and down: the learning rate, and the momentum in the opposite direction.

The momentum is then a number in a tensor, like the rate: `vary_inertia` makes it one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinygrad.base.errors import ArgumentError
from tinygrad.nn.optim.schedule import Scheduler, check_factor, cosine
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice, check_number_from


def _line(start: float, end: float, share: Tensor) -> Tensor:
    """From `start` at share 0 to `end` at share 1, in a line."""
    return start + (end - start) * share


CURVES = {"cos": cosine, "linear": _line}


@dataclass(eq=False, repr=False)
class OneCycleLR(Scheduler):
    """Up from max_lr / div_factor to `max_lr`, then down to next to nothing, along cosines; and
    momentum the other way round: down, then up again.

    (Smith and Topin, "Super-Convergence", 2017.)

    Args:
        optimizer: whose rate to set. Its own first rate doesn't count.
        max_lr: the highest rate.
        total_steps: the length of the cycle; None for epochs times steps_per_epoch.
        epochs: see there.
        steps_per_epoch: see there.
        pct_start: the share of the steps that go up.
        anneal_strategy: "cos", or "linear" for straight lines.
        cycle_momentum: set the momentum, too, or b1 of those that have one; False leaves it.
        base_momentum: where the rate is highest.
        max_momentum: at both ends.
        div_factor: max_lr over the first rate.
        final_div_factor: the first rate over the last.
        three_phase: come down to the first rate as fast as up, and from there to the last.

    Raises:
        ArgumentError: an optimizer without momentum and b1, and not cycle_momentum=False; a step
            after total_steps of them.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> schedule.step()
    >>> optimizer.lr.numpy().round(4), optimizer.momentum.numpy().round(4)
    (array([0.52], dtype=float32), array([0.9], dtype=float32))
    """

    max_lr: float
    total_steps: int | None = None
    epochs: int | None = None
    steps_per_epoch: int | None = None
    pct_start: float = 0.3
    anneal_strategy: str = "cos"
    cycle_momentum: bool = True
    base_momentum: float = 0.85
    max_momentum: float = 0.95
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    three_phase: bool = False
    counts = ("total_steps",)

    def __post_init__(self) -> None:
        if self.total_steps is None:
            if self.epochs is None or self.steps_per_epoch is None:
                raise ArgumentError(
                    f"OneCycleLR: epochs={self.epochs}, steps_per_epoch={self.steps_per_epoch}; "
                    "legal are total_steps, or both of them"
                )
            self.total_steps = self.epochs * self.steps_per_epoch
        check_choice("OneCycleLR", "anneal_strategy", self.anneal_strategy, CURVES)
        check_number_from("OneCycleLR", "pct_start", self.pct_start, 0, 1)
        _check_momenta(self)
        if min(self.div_factor, self.final_div_factor) <= 0:
            raise ArgumentError(
                f"OneCycleLR: div_factor={self.div_factor}, final_div_factor="
                f"{self.final_div_factor}; legal are numbers above 0"
            )
        super().__post_init__()
        for each in self.optimizers:
            each.base_lr = self.first  # from which other schedules go on, as in PyTorch

    @property
    def first(self) -> float:
        """The first rate."""
        return self.max_lr / self.div_factor

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """The rate at step `turn`; `base` doesn't matter."""
        first, last = self.first, self.first / self.final_div_factor
        down = [(self.max_lr, first), (first, last)] if self.three_phase else [(self.max_lr, last)]
        return self._along([(first, self.max_lr), *down], turn)

    def momentum(self, turn: Tensor) -> Tensor | None:
        """The momentum at step `turn`."""
        if not self.cycle_momentum:
            return None
        low, high = self.base_momentum, self.max_momentum
        down = [(low, high), (high, high)] if self.three_phase else [(low, high)]
        return self._along([(high, low), *down], turn)

    @property
    def end(self) -> int | None:
        """`total_steps`."""
        return self.total_steps

    def _along(self, phases: list[tuple[float, float]], turn: Tensor) -> Tensor:
        """From the first number of a phase to its second, one phase after the other."""
        assert self.total_steps is not None, "made so"
        up = self.pct_start * self.total_steps - 1
        ends = (
            [up, 2 * up, self.total_steps - 1] if self.three_phase else [up, self.total_steps - 1]
        )
        at, curve, begins = turn.float(), CURVES[self.anneal_strategy], [0, *ends]
        shares = [
            ((at - begin) / max(end - begin, 1e-9)).minimum(1.0)
            for begin, end in zip(begins, ends, strict=False)
        ]
        *before, now = (curve(*both, share) for both, share in zip(phases, shares, strict=True))
        for end, value in reversed(list(zip(ends, before, strict=False))):
            now = (at <= end).where(value, now)
        return now


SCALES: dict[str, tuple[str, Callable[[Tensor, float], Tensor | float]]] = {
    "triangular": ("cycle", lambda cycle, gamma: 1.0),
    "triangular2": ("cycle", lambda cycle, gamma: 0.5 ** (cycle - 1).float()),
    "exp_range": ("iterations", lambda turn, gamma: gamma ** turn.float()),
}
"""Of a cycle's modes, what its height is multiplied by, and by what number that is found."""


@dataclass(eq=False, repr=False)
class CyclicLR(Scheduler):
    """Up from `base_lr` to `max_lr` in a line, and down, again and again; and momentum the other
    way round.

    (Smith, "Cyclical Learning Rates for Training Neural Networks", 2015.)

    Args:
        optimizer: whose rate to set. Its own first rate doesn't count.
        base_lr: the lowest rate.
        max_lr: the highest rate.
        step_size_up: how many steps go up.
        step_size_down: how many go down; None for as many.
        mode: "triangular"; "triangular2", by half as much in each cycle; or "exp_range", times
            gamma at each step.
        gamma: see there.
        scale_fn: instead of a mode, what the height of a cycle is multiplied by: a function of
            the number of the cycle, (1,) int32, which begins with 1.
        scale_mode: "cycle"; or "iterations", if the function is one of the number of the step.
        cycle_momentum: set the momentum, too, or b1 of those that have one; False leaves it.
        base_momentum: where the rate is highest.
        max_momentum: where it is lowest.

    Raises:
        ArgumentError: an optimizer without momentum and b1, and not cycle_momentum=False.

    >>> from tinygrad.nn.optim import SGD
    >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
    >>> schedule = CyclicLR(optimizer, base_lr=1.0, max_lr=2.0, step_size_up=2)
    >>> schedule.step()
    >>> optimizer.lr.item(), round(optimizer.momentum.item(), 4)
    (1.5, 0.85)
    """

    base_lr: float
    max_lr: float
    step_size_up: int = 2000
    step_size_down: int | None = None
    mode: str = "triangular"
    gamma: float = 1.0
    scale_fn: Callable[[Tensor], Tensor | float] | None = None
    scale_mode: str = "cycle"
    cycle_momentum: bool = True
    base_momentum: float = 0.8
    max_momentum: float = 0.9
    counts = ("step_size_up", "step_size_down")

    def __post_init__(self) -> None:
        check_choice("CyclicLR", "mode", self.mode, SCALES)
        check_choice("CyclicLR", "scale_mode", self.scale_mode, ("cycle", "iterations"))
        if self.scale_fn is not None:
            check_factor("CyclicLR", self.scale_fn)
        _check_momenta(self)
        if self.step_size_down is None:
            self.step_size_down = self.step_size_up
        super().__post_init__()

    def rate(self, base: float, turn: Tensor) -> Tensor:
        """The rate at step `turn`; `base` doesn't matter."""
        return self.base_lr + (self.max_lr - self.base_lr) * self._height(turn)

    def momentum(self, turn: Tensor) -> Tensor | None:
        """The momentum at step `turn`."""
        if not self.cycle_momentum:
            return None
        return self.max_momentum - (self.max_momentum - self.base_momentum) * self._height(turn)

    def _height(self, turn: Tensor) -> Tensor:
        """How far up it is, from 0 to 1."""
        assert self.step_size_down is not None, "made so"
        cycle = self.step_size_up + self.step_size_down
        at = (turn % cycle).float()
        share = (at / self.step_size_up).minimum((cycle - at) / self.step_size_down)
        numbers = {"cycle": turn // cycle + 1, "iterations": turn}
        if self.scale_fn is not None:
            return share * self.scale_fn(numbers[self.scale_mode])
        by, scale = SCALES[self.mode]
        return share * scale(numbers[by], self.gamma)


def _check_momenta(cycle: OneCycleLR | CyclicLR) -> None:
    who = type(cycle).__name__
    for name in ("base_momentum", "max_momentum"):
        check_number_from(who, name, getattr(cycle, name), 0, 1)
