"""Optimizers that go along the gradient with momentum (SGD and its relatives)."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.optim.optimizer import (
    Optimizer,
    Parameters,
    moved_along,
    moved_average,
    norm,
)
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice


class Momentum(Optimizer):
    """What SGD, LARS and Muon share: b, the direction of the last step, of which some is kept."""

    inertia = "momentum"

    def __init__(
        self,
        params: Parameters,
        lr: float,
        momentum: float,
        weight_decay: float,
        nesterov: bool,
        dampening: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize)
        self._check(momentum=momentum, weight_decay=weight_decay)
        self.momentum: float | Tensor = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.dampening = dampening
        self.b = self._zeros() if momentum else []
        self._count_if_dampened()
        self._own([*self.b, *([self.t] if dampening else [])])

    def _before_it_varies(self) -> None:
        self.b = self.b or self._own_zeros()

    def _count_if_dampened(self) -> None:
        """The first step isn't."""
        if self.dampening and not self.numbers:
            self.numbers = ("t",)
            self.t = self._number(0.0)
        elif not self.dampening and self.numbers:
            self.numbers = ()
            del self.t

    def _make_room(self, names: list[str]) -> None:
        self.b = self._room(self.b, "b.0" in names or self._has_inertia())
        self._count_if_dampened()
        super()._make_room(names)

    def _direction(self, i: int, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The direction to go, and the state that changed."""
        if not self.b and not self.momentum:
            return grad, []
        new = grad
        if self.dampening:
            is_first = self._beside(grad, self._of(i, "t")) == 1
            new = is_first.where(grad, grad * (1 - self.dampening))
        kept = self._inertia(self.b[i])
        b = self._put(self.b[i], kept * self.b[i] + new)
        return (grad + kept * b if self.nesterov else b), [b]


class SGD(Momentum):
    """Stochastic gradient descent: param - lr·grad.

    Args:
        params: the parameters to update.
        lr: the learning rate.
        momentum: the factor by which the last step's direction is kept. (Polyak, 1964.)
        weight_decay: the parameter times this is added to its gradient.
        nesterov: look ahead along the momentum. (Sutskever and others, 2013.)
        classic: multiply by lr before the momentum instead of after it, so that a changed lr
            changes only what comes.
        dampening: this much of a gradient is left out of the momentum, but for the first.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     SGD([x], lr=0.25).step()
    >>> x.item()
    0.5
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        *,
        dampening: float = 0.0,
        maximize: bool = False,
    ) -> None:
        if nesterov and dampening:
            raise ArgumentError(f"SGD: dampening={dampening} and nesterov; legal is one of them")
        super().__init__(params, lr, momentum, weight_decay, nesterov, dampening, maximize)
        self.classic = classic

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        lr = self._lr(param)
        param, grad = self._decayed(param, grad)
        if self.classic:
            grad = grad * lr
        direction, state = self._direction(i, grad)
        return param - direction if self.classic else moved_along(param, direction, lr), state


class LARS(Momentum):
    """SGD whose rate is scaled for each parameter by tcoef·|param| / |grad|.

    (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017.)

    Args:
        params: the parameters to update.
        lr: the learning rate.
        momentum: the factor by which the last step's direction is kept.
        weight_decay: the parameter times this is added to its gradient.
        nesterov: look ahead along the momentum.
        classic: multiply by the rate before the momentum instead of after it.
        tcoef: the share of its norm by which a parameter moves when lr is 1.
        pre_wd: whether the decay is part of the gradient; else the parameter shrinks by lr times
            it, whatever the momentum.

    >>> x = Tensor([2.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     LARS([x], lr=1.0, momentum=0.0, weight_decay=0.0, tcoef=0.5).step()
    >>> x.item()
    1.0
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        nesterov: bool = False,
        classic: bool = True,
        tcoef: float = 0.001,
        *,
        pre_wd: bool = True,
    ) -> None:
        super().__init__(params, lr, momentum, weight_decay, nesterov)
        self.classic = classic
        self.pre_wd = pre_wd
        self.tcoef = tcoef

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        size, slope = norm(param), norm(grad)
        trust = self.tcoef * size / (slope + self.weight_decay * size)
        rate = self._lr(param) * ((size > 0) & (slope > 0)).where(trust, 1.0)
        param, grad = self._decayed(param, grad, decoupled=not self.pre_wd)
        if self.classic:
            grad = grad * rate
        direction, state = self._direction(i, grad)
        return param - (direction if self.classic else direction * rate), state


SCALES: dict[str | None, Callable[[int, int], float]] = {  # by the rows and columns of a matrix
    None: lambda rows, columns: 1.0,
    "original": lambda rows, columns: max(1.0, rows / columns) ** 0.5,
    "match_rms_adamw": lambda rows, columns: 0.2 * max(rows, columns) ** 0.5,
}


class Muon(Momentum):
    """SGD with momentum along the nearest matrix with orthogonal rows, for matrices.

    (Jordan and others, "Muon: an optimizer for hidden layers", 2024.)

    Args:
        params: the tensors to move; the first axis counts as rows, all others as columns. A
            vector is one column, which moves along its direction: better give vectors to another
            optimizer, and both to OptimizerGroup.
        lr: the learning rate.
        momentum: the factor by which the last step's direction is kept.
        weight_decay: parameters shrink by lr times this.
        ns_steps: iterations towards orthogonal rows.
        ns_coefficients: the polynomial of an iteration.
        nesterov: look ahead along the momentum.
        adjust_lr_fn: the rate of a matrix of other than as many columns as rows: None, lr;
            "original", lr times √(rows / columns) where that is above 1, which is what PyTorch
            takes None for; "match_rms_adamw", lr times 0.2·√(the longer side).

    Products are of float32 here, and of bfloat16 in PyTorch, which refuses vectors: its steps are
    1% from these.

    >>> w = Tensor([[3.0, 0.0], [0.0, 4.0]], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = w.square().sum().backward()
    ...     Muon([w], lr=0.5).step()
    >>> w.shape
    (2, 2)
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_choice("Muon", "adjust_lr_fn", adjust_lr_fn, SCALES)
        super().__init__(params, lr, momentum, weight_decay, nesterov)
        self.ns_steps = ns_steps
        self.ns_coefficients = ns_coefficients
        self.adjust_lr_fn = adjust_lr_fn

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        lr = self._lr(param)
        direction, state = self._direction(i, grad)
        matrix = direction.reshape(direction.shape[0] if direction.ndim else 1, -1)
        turned = orthogonalized(matrix, self.ns_steps, self.ns_coefficients).reshape(param.shape)
        step = lr * SCALES[self.adjust_lr_fn](*matrix.shape) * turned
        param, _ = self._decayed(param, grad, decoupled=True)
        return param - step, state


def orthogonalized(
    matrix: Tensor,
    steps: int = 5,
    coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
    eps: float = 1e-7,
) -> Tensor:
    """About the nearest matrix with orthogonal rows (columns, if it is tall): all singular values
    become about 1, by iterating a·x + b·x³ + c·x⁵ on them, which needs only products.

    >>> orthogonalized(Tensor([[3.0, 0.0], [0.0, 3.0]])).shape
    (2, 2)
    """
    if matrix.ndim != 2 or len(coefficients) != 3:
        raise ShapeError(
            f"orthogonalized: {matrix.shape} by {coefficients}; legal are a matrix and 3 numbers"
        )
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (norm(x) + eps)
    for _ in range(steps):
        square = (x @ x.T).contiguous()
        x = (a * x + (b * square + c * square @ square) @ x).contiguous()
    return x.T if tall else x


class Lion(Optimizer):
    """The sign of a moving average: each coordinate moves by lr, up or down.

    (Chen and others, "Symbolic Discovery of Optimization Algorithms", 2023.)

    Args:
        params: the parameters to update.
        lr: the learning rate: a third to a tenth of AdamW's.
        b1: the weight of the average in the direction of this step.
        b2: the decay factor of the average.
        weight_decay: parameters shrink by lr times this.
        betas: b1 and b2 as a pair.

    >>> x = Tensor([1.0, -3.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     Lion([x], lr=0.25).step()
    >>> x.tolist()
    [0.75, -2.75]
    """

    inertia = "b1"

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-4,
        b1: float = 0.9,
        b2: float = 0.99,
        weight_decay: float = 0.0,
        betas: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(params, lr)
        b1, b2 = self._pair(b1, b2, betas)
        self._check(b1=b1, b2=b2, weight_decay=weight_decay)
        self.b1: float | Tensor = b1
        self.b2 = b2
        self.weight_decay = weight_decay
        self.m = self._zeros()
        self._own(self.m)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        m = self.m[i]
        sign = moved_average(m, grad, self._inertia(m)).sign()
        _, direction = self._decayed(param, sign)
        state = [self._put(m, moved_average(m, grad, self.b2))]
        return param - self._lr(param) * direction, state
