"""L-BFGS, a quasi-Newton method, for problems whose data fits into one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tinygrad.base.errors import ArgumentError
from tinygrad.nn.optim.line_search import Slope, strong_wolfe
from tinygrad.nn.optim.optimizer import Optimizer
from tinygrad.nn.optim.pytorch import is_pytorchs
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice

Closure = Callable[[], Tensor]


OPTIONS = (
    "max_iter",
    "max_eval",
    "tolerance_grad",
    "tolerance_change",
    "history_size",
    "line_search_fn",
)


KEPT = ("moves", "turns", "direction", "last_gradient", "length")
"""What else a state has: pairs of vectors, vectors, and how far the last move went."""


class LBFGS(Optimizer):
    """A quasi-Newton direction from the last few steps: no matrix is kept, only pairs of vectors.

    `step` takes a closure that clears the gradients, calls `backward` and returns the loss; it is
    called several times. Decisions are made on the host, so it can't be captured by TinyJit.
    (Nocedal and Wright, "Numerical Optimization", 2006, algorithms 7.4 and 7.5.)

    Args:
        params: the parameters to update.
        lr: the length of a step, 1 for a whole one.
        max_iter: at most so many directions a step.
        max_eval: at most so many calls of the closure a step; None for 1.25 a direction.
        tolerance_grad: small enough: the largest element of the gradient.
        tolerance_change: small enough: the change of a parameter, or of the loss.
        history_size: how many pairs are kept.
        line_search_fn: None, or "strong_wolfe".

    >>> x = Tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     x.grad = None
    ...     return ((x - Tensor([1.0, 2.0])) ** 2).sum().backward()
    >>> _ = optimizer.step(closure)
    >>> [round(value, 4) for value in x.tolist()]
    [1.0, 2.0]
    """

    takes_groups = False

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_choice("LBFGS", "line_search_fn", line_search_fn, (None, "strong_wolfe"))
        super().__init__(params, lr)
        self.max_iter = max_iter
        self.max_eval = max_eval if max_eval is not None else max_iter * 5 // 4
        self.tolerance_grad = tolerance_grad
        self.tolerance_change = tolerance_change
        self.history_size = history_size
        self.line_search_fn = line_search_fn
        self.moves: list[Tensor] = []
        self.turns: list[Tensor] = []
        self.direction: Tensor | None = None
        self.last_gradient: Tensor | None = None
        self.length = lr
        self._own([])

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on besides the parameters.

        >>> sorted(LBFGS([Tensor([3.0])]).state_dict())[:4]
        ['direction', 'last_gradient', 'length', 'moves']
        """
        return {
            "moves": self.moves,
            "turns": self.turns,
            "direction": self.direction,
            "last_gradient": self.last_gradient,
            "length": self.length,
            "options": {"lr": self.lr.item()} | {name: getattr(self, name) for name in OPTIONS},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from where `state` was taken, also one of PyTorch's.

        Raises:
            ArgumentError: `state` lacks something.

        >>> x = Tensor([3.0])
        >>> optimizer = LBFGS([x])
        >>> optimizer.load_state_dict(LBFGS([x], max_iter=5).state_dict())
        >>> optimizer.max_iter
        5
        """
        if is_pytorchs(state):
            state = self._from_pytorch(state)
        if missing := [name for name in KEPT if name not in state]:
            raise ArgumentError(
                f"LBFGS.load_state_dict: no value for {', '.join(missing)}; legal is what "
                "state_dict() of an LBFGS returned"
            )
        self.moves, self.turns = list(state["moves"]), list(state["turns"])
        self.direction, self.last_gradient = state["direction"], state["last_gradient"]
        self.length = state["length"]
        for name, value in state.get("options", {}).items():
            setattr(self, name, value)

    def _from_pytorch(self, state: dict[str, Any]) -> dict[str, Any]:
        """PyTorch keeps the state of all parameters as that of the first."""
        group, its = state["param_groups"][0], state["state"].get(0, {})
        if missing := [name for name in OPTIONS if name not in group]:
            raise ArgumentError(
                f"LBFGS.load_state_dict: PyTorch's state has no {', '.join(missing)}; legal is the "
                "state of an LBFGS"
            )
        kept: dict[str, Any] = {}
        for mine, name in (("moves", "old_stps"), ("turns", "old_dirs")):
            kept[mine] = [Tensor(each) for each in its.get(name, [])]
        for mine, name in (("direction", "d"), ("last_gradient", "prev_flat_grad")):
            kept[mine] = None if its.get(name) is None else Tensor(its[name])
        options = {"lr": float(group["lr"])} | {name: group[name] for name in OPTIONS}
        return kept | {"length": float(its.get("t") or options["lr"]), "options": options}

    def schedule_step(self) -> list[Tensor]:
        """ArgumentError: a step can't be made before it is computed.

        >>> LBFGS([Tensor([3.0])]).schedule_step()
        Traceback (most recent call last):
        tinygrad.base.errors.ArgumentError: LBFGS: its steps decide on the host; ...
        """
        raise ArgumentError("LBFGS: its steps decide on the host; legal is step(closure), alone")

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        raise AssertionError("all parameters move together")

    def step(self, closure: Closure | None = None) -> Tensor:
        """Moves the parameters; returns the loss of the first call of `closure`.

        Raises:
            ArgumentError: there is no closure.

        >>> LBFGS([Tensor([3.0])]).step()
        Traceback (most recent call last):
        tinygrad.base.errors.ArgumentError: LBFGS.step: without a closure; ...
        """
        if closure is None:
            raise ArgumentError(
                "LBFGS.step: without a closure; legal is a function that clears the gradients, "
                "calls backward and returns the loss"
            )
        rate = float(self.lr.item())
        first = self._evaluated(closure)
        loss, calls = float(first.item()), 1
        gradient = self._gradient()
        for _ in range(self.max_iter):
            if gradient.abs().max().item() <= self.tolerance_grad:
                break
            direction = self._next_direction(gradient, rate)
            slope = float((gradient * direction).sum().item())
            if slope > -self.tolerance_change:
                break
            before, start = loss, self._flat()
            if self.line_search_fn is not None:
                look = partial(self._at, closure, start, direction)
                here = Slope(0.0, loss, slope, gradient)
                steepest = float(direction.abs().max().item())
                tolerance = self.tolerance_change
                point, used = strong_wolfe(look, self.length, here, steepest, tolerance)
                self.length, loss, gradient = point.at, point.loss, point.gradient
                self._write(start + direction * self.length)
            else:
                self._write(start + direction * self.length)
                loss = float(self._evaluated(closure).item())
                gradient, used = self._gradient(), 1
            calls += used
            moved = float((direction * self.length).abs().max().item())
            if calls >= self.max_eval or moved <= self.tolerance_change:
                break
            if abs(loss - before) < self.tolerance_change:
                break
        return first

    def _next_direction(self, gradient: Tensor, rate: float) -> Tensor:
        """-H·gradient, H the inverse of the Hessian as the kept pairs show it; sets the length."""
        if self.direction is None or self.last_gradient is None:
            self.length = min(1.0, 1.0 / float(gradient.abs().sum().item())) * rate
            self.direction = (-gradient).realize()
        else:
            turn = (gradient - self.last_gradient).realize()
            move = (self.direction * self.length).realize()
            if (turn * move).sum().item() > 1e-10:
                self.moves = [*self.moves, move][-self.history_size :]
                self.turns = [*self.turns, turn][-self.history_size :]
            self.direction = self._two_loops(gradient).realize()
            self.length = rate
        self.last_gradient = gradient
        return self.direction

    def _two_loops(self, gradient: Tensor) -> Tensor:
        """Computed pair by pair: a graph of all would be another one for each length of the
        history, and compiled for each."""
        q = (-gradient).realize()
        shares: list[Tensor] = []
        for move, turn in zip(reversed(self.moves), reversed(self.turns), strict=True):
            share = (move * q).sum() / (turn * move).sum()
            q = q - share * turn
            shares.append(share.realize(q))
        if self.moves:
            move, turn = self.moves[-1], self.turns[-1]
            q = (q * ((turn * move).sum() / (turn * turn).sum())).realize()
        for move, turn, share in zip(self.moves, self.turns, reversed(shares), strict=True):
            q = (q + move * (share - (turn * q).sum() / (turn * move).sum())).realize()
        return q

    def _at(self, closure: Closure, start: Tensor, direction: Tensor, t: float) -> Slope:
        """The loss and its slope along the direction, at `t`."""
        self._write(start + direction * t)
        loss = float(self._evaluated(closure).item())
        gradient = self._gradient()
        return Slope(t, loss, float((gradient * direction).sum().item()), gradient)

    @staticmethod
    def _evaluated(closure: Closure) -> Tensor:
        return closure().detach().realize()

    def _gradient(self) -> Tensor:
        """All gradients as one vector; zeros where there are none."""
        parts = [
            (param.zeros_like() if param._grad is None else param._grad).detach().flatten()
            for param in self.params
        ]
        return Tensor.cat(*parts).realize()

    def _flat(self) -> Tensor:
        return Tensor.cat(*(param.detach().flatten() for param in self.params)).clone().realize()

    def _write(self, flat: Tensor) -> None:
        flat = flat.detach().realize()
        place = 0
        for param in self.params:
            size = param.numel()
            part = flat[place : place + size].reshape(param.shape)
            param.assign(part.cast(param.dtype))
            place += size
        self.params[0].realize(*self.params[1:])
