"""Optimizers with a rate for each coordinate, derived from its past gradients."""

from __future__ import annotations

from tinygrad.base.errors import ArgumentError
from tinygrad.nn.optim.optimizer import Optimizer, Parameters, moved_average
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_number_from


class Adagrad(Optimizer):
    """Each coordinate's rate is divided by the root of the sum of its squared gradients.

    (Duchi, Hazan and Singer, "Adaptive Subgradient Methods", 2011.)

    Args:
        params: the parameters to update.
        lr: the learning rate.
        lr_decay: the rate at step t is lr / (1 + (t - 1)·lr_decay).
        weight_decay: the parameter times this is added to its gradient.
        initial_accumulator_value: where the sums begin.
        eps: added to the root.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0, -3.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     Adagrad([x], lr=0.25).step()
    >>> x.tolist()
    [0.75, -2.75]
    """

    numbers = ("t",)

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize)
        self.lr_decay = lr_decay
        self.weight_decay = weight_decay
        self.eps = eps
        self.t = self._number(0.0)
        check_number_from("Adagrad", "initial_accumulator_value", initial_accumulator_value, 0)
        self.sum = [zeros + initial_accumulator_value for zeros in self._zeros()]
        self._own([self.t, *self.sum])

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        param, grad = self._decayed(param, grad)
        total = self._put(self.sum[i], self.sum[i] + grad.square())
        slower = self._beside(param, 1 + (self._of(i, "t") - 1) * self.lr_decay)
        return param - self._lr(param) / slower * grad / (total.sqrt() + self.eps), [total]


class Adadelta(Optimizer):
    """Steps as large as the previous ones, measured by the root of a moving average of their
    squares.

    (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012.)

    Args:
        params: the parameters to update.
        lr: the factor of every step.
        rho: the decay factor of both averages.
        eps: added to them below the roots.
        weight_decay: the parameter times this is added to its gradient.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     Adadelta([x], lr=0.25).step()
    >>> x.numpy().round(4)
    array([0.9992], dtype=float32)
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize)
        self.rho = rho
        self.eps = eps
        self.weight_decay = weight_decay
        self.v, self.steps = self._zeros(), self._zeros()
        self._own([*self.v, *self.steps])

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        param, grad = self._decayed(param, grad)
        v = self._put(self.v[i], moved_average(self.v[i], grad, self.rho, squared=True))
        step = (self.steps[i] + self.eps).sqrt() / (v + self.eps).sqrt() * grad
        steps = moved_average(self.steps[i], step, self.rho, squared=True)
        return param - self._lr(param) * step, [v, self._put(self.steps[i], steps)]


class Rprop(Optimizer):
    """A step size for each coordinate, which grows while the gradient keeps its sign and shrinks
    when the sign changes. Only signs count, so it needs the gradient of all data, not of batches.

    (Riedmiller and Braun, "A Direct Adaptive Method for Faster Backpropagation", 1993.)

    Args:
        params: the parameters to update.
        lr: the first step size.
        etas: what a step size is multiplied by when the sign turned, and when it stayed.
        step_sizes: the least and the largest step size.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0, -3.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     Rprop([x], lr=0.25).step()
    >>> x.tolist()
    [0.75, -2.75]
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize)
        if len(etas) != 2 or len(step_sizes) != 2:
            raise ArgumentError(f"Rprop: etas={etas}, step_sizes={step_sizes}; legal are pairs")
        self._check(least=min(step_sizes), largest=max(step_sizes))
        (less, more), (least, largest) = etas, step_sizes
        if not 0 < less < 1 < more:
            raise ArgumentError(f"Rprop: etas={etas}; legal are one between 0 and 1, one above 1")
        self.etas = (less, more)
        self.step_sizes = (least, largest)
        self.sizes = [zeros + lr for zeros in self._zeros()]
        self.before = self._zeros()
        self._own([*self.sizes, *self.before])

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        (less, more), turn = self.etas, grad * self.before[i]
        factor = (turn > 0).where(more, (turn < 0).where(less, 1.0))
        size = self._put(self.sizes[i], (self.sizes[i] * factor).clamp(*self.step_sizes))
        grad = (turn < 0).where(0.0, grad)
        return param - grad.sign() * size, [size, self._put(self.before[i], grad)]


class RMSprop(Optimizer):
    """The gradient divided by the root of a moving average of its square. (Hinton, 2012.)

    Args:
        params: the parameters to update.
        lr: the learning rate.
        alpha: the decay factor of the averages.
        eps: added to the root.
        weight_decay: the parameter times this is added to its gradient.
        momentum: the factor by which the last step's direction is kept.
        centered: divide by the standard deviation instead: subtract the square of the mean.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     RMSprop([x], lr=0.25).step()
    >>> x.numpy().round(4)
    array([-1.5], dtype=float32)
    """

    inertia = "momentum"

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize)
        self.alpha = alpha
        self.eps = eps
        self.weight_decay = weight_decay
        self.momentum: float | Tensor = momentum
        self.v = self._zeros()
        self.centered = centered
        self.mean = self._zeros() if centered else []
        self.b = self._zeros() if momentum else []
        self._own([*self.v, *self.mean, *self.b])

    def _before_it_varies(self) -> None:
        self.b = self.b or self._own_zeros()

    def _make_room(self, names: list[str]) -> None:
        self.mean = self._room(self.mean, self.centered)
        self.b = self._room(self.b, "b.0" in names or self._has_inertia())
        super()._make_room(names)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        param, grad = self._decayed(param, grad)
        v = self._put(self.v[i], moved_average(self.v[i], grad, self.alpha, squared=True))
        state, spread = [v], v
        if self.mean:
            mean = self._put(self.mean[i], moved_average(self.mean[i], grad, self.alpha))
            state, spread = [v, mean], v - mean.square()
        direction = grad / (spread.sqrt() + self.eps)
        if self.b or self.momentum:
            direction = self._put(self.b[i], self._inertia(self.b[i]) * self.b[i] + direction)
            state = [*state, direction]
        return param - self._lr(param) * direction, state
