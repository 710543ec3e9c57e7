"""Optimizers: how parameters move along their gradients.

An optimizer states one thing: the new value of a parameter, given its gradient. Everything else is
here once: which tensors are parameters, that state and parameters are written in place, and that
one `realize` computes a whole step, so that it becomes few kernels. The learning rate is a tensor:
another value makes no other program.

Papers say θ, g, m and v; here they are `param`, `grad`, `m` and `v`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tinygrad.base.dtype import DType, dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import dedup
from tinygrad.nn.state import own_copy
from tinygrad.tensor import Tensor


class Stepper(ABC):
    """What a training loop calls: an optimizer, or a group of them."""

    params: list[Tensor]

    def zero_grad(self) -> None:
        """Forgets the gradients, so that the next `backward` starts anew."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Moves the parameters and computes them, and all that changes with them, now."""
        changed = self.schedule_step()
        changed[0].realize(*changed[1:])

    @abstractmethod
    def schedule_step(self) -> list[Tensor]:
        """Moves the parameters; returns all tensors that change. Realize them together."""


class Optimizer(Stepper):
    """The base of optimizers: the parameters, the learning rate, and one step of all.

    Args:
        params: the tensors to move: all floats but those that say requires_grad=False; the others
            say requires_grad=True from now on. Tensors that don't move, such as a BatchNorm's
            averages, are only realized with them.
        lr: the learning rate. `self.lr` is a tensor of one number; assign to change it.

    Raises:
        ArgumentError: none of them is to be moved.
    """

    def __init__(self, params: list[Tensor], lr: float) -> None:
        for param in params:
            if param.requires_grad is None:
                param.requires_grad = dtypes.is_float(param.dtype)
        tensors = dedup(params)
        self.params = [t for t in tensors if _moves(t)]
        self.buffers = [t for t in tensors if not _moves(t)]
        if not self.params:
            raise ArgumentError(f"{self._name}: {len(tensors)} tensors, none wants a gradient")
        self.device = self.params[0].device
        self.lr = self._number(lr)

    @property
    def _name(self) -> str:
        return type(self).__name__

    # ---- state -----------------------------------------------------------------------------------

    def _number(self, value: float) -> Tensor:
        """One number that steps may read and change."""
        return Tensor([value], device=self.device, dtype=dtypes.float32, requires_grad=False)

    def _zeros(self) -> list[Tensor]:
        """Zeros in the shape of each parameter, in float32 at least."""
        return [
            Tensor.zeros(*p.shape, dtype=_wide(p.dtype), device=p.device, requires_grad=False)
            for p in self.params
        ]

    def _own(self, state: list[Tensor]) -> None:
        """Computes all that steps write to, each in storage of its own: equal values may share
        theirs, and then moving one would move the other. Constructors end with it."""
        tensors = [*self.params, *self.buffers, self.lr, *state]
        taken = set()
        for tensor in tensors:
            held = tensor.uop.realized
            if held is None or held in taken:
                tensor.replace(own_copy(tensor))
            taken.add(held)
        tensors[0].realize(*tensors[1:])

    # ---- a step ----------------------------------------------------------------------------------

    def schedule_step(self) -> list[Tensor]:
        """Moves the parameters that have a gradient; returns all tensors that change.

        Raises:
            ArgumentError: outside `Tensor.train()`, or if no parameter has a gradient.
        """
        if not Tensor.training:
            raise ArgumentError(f"{self._name}.step: use it inside `with Tensor.train():`")
        moved = [i for i, param in enumerate(self.params) if param.grad is not None]
        if not moved:
            raise ArgumentError(f"{self._name}.step: no gradients; call backward() on a loss first")
        changed = self._advance()
        for i in moved:
            param, grad = self.params[i], self.params[i].grad
            assert grad is not None, "filtered above"
            kind = _wide(param.dtype)
            new, state = self._moved(i, param.detach().cast(kind), grad.detach().cast(kind))
            param.assign(new.cast(param.dtype))
            changed += state
        return [*self.params, *self.buffers, *changed]

    def _advance(self) -> list[Tensor]:
        """What changes once a step, before the parameters do."""
        return []

    @abstractmethod
    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The new value of parameter `i`, and the tensors of state that changed."""

    def _lr(self, like: Tensor) -> Tensor:
        """The learning rate beside a parameter: on its device, in its dtype."""
        return self.lr.to(like.device).cast(like.dtype)


class OptimizerGroup(Stepper):
    """Several optimizers as one, for parameters that move in different ways.

    >>> a, b = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    >>> both = OptimizerGroup(SGD([a], lr=0.5), SGD([b], lr=0.25))
    >>> with Tensor.train():
    ...     _ = (a + b).sum().backward()
    ...     both.step()
    >>> a.item(), b.item()
    (0.5, 0.75)
    """

    def __init__(self, *optimizers: Stepper) -> None:
        if not optimizers:
            raise ArgumentError("OptimizerGroup: of no optimizers; give at least one")
        self.optimizers = optimizers
        self.params = [param for each in optimizers for param in each.params]

    def __getitem__(self, i: int) -> Stepper:
        return self.optimizers[i]

    def schedule_step(self) -> list[Tensor]:
        """A step of each; returns all tensors that change."""
        return [tensor for each in self.optimizers for tensor in each.schedule_step()]


# ---- along the gradient, with momentum -----------------------------------------------------------


class SGD(Optimizer):
    """Stochastic gradient descent: param - lr·grad.

    Args:
        params: the tensors to move.
        lr: the learning rate.
        momentum: how much of the last step's direction is kept. (Polyak, 1964.)
        weight_decay: this much of the parameter is added to its gradient.
        nesterov: look ahead along the momentum. (Sutskever and others, 2013.)
        classic: multiply by lr before the momentum instead of after it, so that a changed lr
            changes only what comes.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     SGD([x], lr=0.25).step()
    >>> x.item()
    0.5
    """

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.classic = classic
        self.b = self._zeros() if momentum else []
        self._own(self.b)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        lr = self._lr(param)
        if self.weight_decay:
            grad = grad + self.weight_decay * param
        if self.classic:
            grad = grad * lr
        direction, state = _with_momentum(self.b, i, grad, self.momentum, self.nesterov)
        return param - (direction if self.classic else direction * lr), state


class LARS(Optimizer):
    """SGD whose rate is scaled for each parameter by tcoef·|param| / |grad|.

    (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017.)

    Args:
        params: the tensors to move.
        lr: the learning rate.
        momentum: how much of the last step's direction is kept.
        weight_decay: this much of the parameter is added to its gradient.
        nesterov: look ahead along the momentum.
        classic: multiply by the rate before the momentum instead of after it.
        tcoef: the share of its norm by which a parameter moves when lr is 1.

    >>> x = Tensor([2.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     LARS([x], lr=1.0, momentum=0.0, weight_decay=0.0, tcoef=0.5).step()
    >>> x.item()
    1.0
    """

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        nesterov: bool = False,
        classic: bool = True,
        tcoef: float = 0.001,
    ) -> None:
        super().__init__(params, lr)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.tcoef = tcoef
        self.nesterov = nesterov
        self.classic = classic
        self.b = self._zeros() if momentum else []
        self._own(self.b)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        size, slope = _norm(param), _norm(grad)
        trust = self.tcoef * size / (slope + self.weight_decay * size)
        rate = self._lr(param) * ((size > 0) & (slope > 0)).where(trust, 1.0)
        grad = grad + self.weight_decay * param
        if self.classic:
            grad = grad * rate
        direction, state = _with_momentum(self.b, i, grad, self.momentum, self.nesterov)
        return param - (direction if self.classic else direction * rate), state


class Muon(Optimizer):
    """SGD with momentum along the nearest matrix with orthogonal rows, for matrices.

    (Jordan and others, "Muon: an optimizer for hidden layers", 2024.)

    Args:
        params: the tensors to move, of at least two axes; the first counts as rows, all others
            as columns.
        lr: the learning rate.
        momentum: how much of the last step's direction is kept.
        weight_decay: parameters shrink by lr times this.
        ns_steps: iterations towards orthogonal rows.
        ns_coefficients: the polynomial of an iteration.
        nesterov: look ahead along the momentum.

    Raises:
        ArgumentError: a parameter with fewer axes; give those to another optimizer, and both to
            OptimizerGroup.
    """

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
    ) -> None:
        super().__init__(params, lr)
        flat = [param.shape for param in self.params if param.ndim < 2]
        if flat:
            raise ArgumentError(f"Muon: parameters of shapes {flat}; legal are two axes or more")
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.ns_steps = ns_steps
        self.ns_coefficients = ns_coefficients
        self.b = self._zeros() if momentum else []
        self._own(self.b)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        lr = self._lr(param)
        direction, state = _with_momentum(self.b, i, grad, self.momentum, self.nesterov)
        matrix = direction.reshape(direction.shape[0], -1)
        turned = orthogonalized(matrix, self.ns_steps, self.ns_coefficients).reshape(param.shape)
        return param * (1 - lr * self.weight_decay) - lr * turned, state


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
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (_norm(x) + eps)
    for _ in range(steps):
        square = (x @ x.T).contiguous()
        x = (a * x + (b * square + c * square @ square) @ x).contiguous()
    return x.T if tall else x


def _with_momentum(
    averages: list[Tensor], i: int, grad: Tensor, momentum: float, nesterov: bool
) -> tuple[Tensor, list[Tensor]]:
    """The direction to go, and the state that changed."""
    if not momentum:
        return grad, []
    average = averages[i]
    average.assign(momentum * average + grad)
    return (grad + momentum * average if nesterov else average), [average]


# ---- by moving averages of the gradient and of its square ----------------------------------------


class Moments(Optimizer):
    """What Adam, AdamW and LAMB share: m and v, moving averages of grad and grad².

    The averages start at zero, so at first they are too small: they hold only a share of the
    weight 1. That share is the same average of the number 1, kept beside them; dividing by it is
    Adam's bias correction, 1 - bᵗ, without its cancellation.
    """

    def __init__(
        self, params: list[Tensor], lr: float, b1: float, b2: float, eps: float, weight_decay: float
    ) -> None:
        super().__init__(params, lr)
        self.b1 = b1
        self.b2 = b2
        self.eps = eps
        self.weight_decay = weight_decay
        self.m, self.v = self._zeros(), self._zeros()
        self.m_share, self.v_share = self._number(0.0), self._number(0.0)
        self._own([*self.m, *self.v, self.m_share, self.v_share])

    def _advance(self) -> list[Tensor]:
        for share, keep in ((self.m_share, self.b1), (self.v_share, self.b2)):
            share.assign(keep * share + (1 - keep))
        return [self.m_share, self.v_share]

    def _direction(self, i: int, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """m / √v, both corrected, and the state that changed."""
        m, v = self.m[i], self.v[i]
        m.assign(self.b1 * m + (1 - self.b1) * grad)
        v.assign(self.b2 * v + (1 - self.b2) * grad.square())
        m_share, v_share = (s.to(m.device).cast(m.dtype) for s in (self.m_share, self.v_share))
        return (m / m_share) / ((v / v_share).sqrt() + self.eps), [m, v]


class Adam(Moments):
    """Steps of about lr in each coordinate: m / √v. (Kingma and Ba, "Adam", 2014.)

    Args:
        params: the tensors to move.
        lr: the learning rate.
        b1: what m, the average of gradients, keeps each step.
        b2: what v, the average of their squares, keeps each step.
        eps: added to √v.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     Adam([x], lr=0.25).step()
    >>> round(x.item(), 4)
    0.75
    """

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, 0.0)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        direction, state = self._direction(i, grad)
        return param - self._lr(param) * direction, state


class AdamW(Moments):
    """Adam, and parameters shrink by lr·weight_decay each step, whatever their gradient.

    (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2017.)

    Args:
        params: the tensors to move.
        lr: the learning rate.
        b1: what m, the average of gradients, keeps each step.
        b2: what v, the average of their squares, keeps each step.
        eps: added to √v.
        weight_decay: parameters shrink by lr times this.
    """

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        direction, state = self._direction(i, grad)
        return param - self._lr(param) * (direction + self.weight_decay * param), state


class LAMB(Moments):
    """AdamW whose rate is scaled for each parameter by |param| / |direction|.

    (You and others, "Large Batch Optimization for Deep Learning", 2019.)

    Args:
        params: the tensors to move.
        lr: the learning rate: the share of its norm by which a parameter moves.
        b1: what m, the average of gradients, keeps each step.
        b2: what v, the average of their squares, keeps each step.
        eps: added to √v.
        weight_decay: this much of the parameter is added to its direction.
        adam: don't scale.
    """

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay)
        self.adam = adam

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        direction, state = self._direction(i, grad)
        direction = direction + self.weight_decay * param
        rate = self._lr(param)
        if not self.adam:
            size, step = _norm(param), _norm(direction)
            rate = rate * ((size > 0) & (step > 0)).where(size / step, 1.0)
        return param - rate * direction, state


def _moves(tensor: Tensor) -> bool:
    return bool(tensor.requires_grad) and dtypes.is_float(tensor.dtype)


def _norm(x: Tensor) -> Tensor:
    """The Euclidean length of all elements."""
    return x.square().sum().sqrt()


def _wide(dtype: DType) -> DType:
    """The dtype that steps are computed in: float32 at least."""
    return least_upper_dtype(dtype, dtypes.float32)
