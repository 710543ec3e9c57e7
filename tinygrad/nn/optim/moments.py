"""Optimizers with moving averages of the gradient and of its square (Adam and its relatives)."""

from __future__ import annotations

import math

import numpy as np

from tinygrad.nn.optim.optimizer import (
    Optimizer,
    Parameters,
    moved_along,
    moved_average,
    norm,
)
from tinygrad.tensor import Tensor
from tinygrad.tensor.template import expression


class Moments(Optimizer):
    """What Adam and its relatives share: m and v, moving averages of grad and grad².

    The averages start at zero, so at first they are too small: their weights sum to 1 - bᵗ, and
    dividing by that is Adam's bias correction. The powers are kept beside them, as tinygrad does.
    """

    numbers: tuple[str, ...] = ("b1_t", "b2_t")
    inertia = "b1"

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        betas: tuple[float, float] | None = None,
        *,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize)
        b1, b2 = self._pair(b1, b2, betas)
        self._check(b1=b1, b2=b2, eps=eps, weight_decay=weight_decay)
        self.decoupled_weight_decay = decoupled_weight_decay
        self.b1: float | Tensor = b1
        self.b2 = b2
        self.eps = eps
        self.weight_decay = weight_decay
        self.m, self.v = self._zeros(), self._zeros()
        self.largest: list[Tensor] = []
        self.b1_t, self.b2_t = self._number(1.0), self._number(1.0)
        self._own([*self.m, *self.v, self.b1_t, self.b2_t])
        if "t" in self.numbers:
            self.t = self._number(0.0)
            self._own([self.t])

    def _advance(self, i: int | None) -> list[Tensor]:
        turns = super()._advance(i)
        m, v = self._of(i, "b1_t"), self._of(i, "b2_t")
        # a b1 that varies is PyTorch's: as if it had always been what it is now
        power = self.b1 ** turns[0] if isinstance(self.b1, Tensor) else m * self.b1
        return [self._put(m, power), self._put(v, v * self.b2), *turns]

    def _before_it_varies(self) -> None:
        """Counts the steps: how many there were says the power of b2, which stays."""
        if "t" not in self.numbers:
            self.t = self._number(self._turns(self.b2_t))
            found = {name: self._turns(x) for name, x in self.late.items() if "b2_t" in name}
            self.late |= {n.replace("b2_t", "t"): self._number(t) for n, t in found.items()}
            self.numbers = (*self.numbers, "t")

    def _make_room(self, names: list[str]) -> None:
        varied = "t" in self.numbers and "t" not in type(self).numbers
        if varied and not isinstance(self.b1, Tensor):
            self.numbers = type(self).numbers
            del self.t
        super()._make_room(names)

    def _turns(self, power: Tensor) -> float:
        if np.float32(self.b2) in (0, 1):
            return 0.0 if power.item() else math.inf
        return abs(float(_steps(power, self.b2).item()))

    def _shares(self, i: int | None, like: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What the averages of a parameter hold of the weight 1, beside them."""
        m, v = _share(self._of(i, "b1_t"), self.b1), _share(self._of(i, "b2_t"), self.b2)
        return (m, v) if like is None else (self._beside(like, m), self._beside(like, v))

    def _mean(self, i: int, grad: Tensor) -> Tensor:
        """m with this step's gradient in it."""
        return self._put(self.m[i], moved_average(self.m[i], grad, self._inertia(self.m[i])))

    def _averages(self, i: int, grad: Tensor) -> tuple[Tensor, Tensor]:
        """m and v with this step's gradient in them."""
        m = self._mean(i, grad)
        v = self._put(self.v[i], moved_average(self.v[i], grad, self.b2, squared=True))
        return m, v

    def _direction(self, i: int, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """m / √v, both corrected, and the state that changed."""
        m, v = self._averages(i, grad)
        state = [m, v]
        if self.largest:
            v = self._put(self.largest[i], self.largest[i].maximum(v))
            state.append(v)
        return _corrected(m, v, *self._shares(i, m), self.eps), state


@expression
def _share(power: Tensor, b: float | Tensor) -> Tensor:
    """1 - bᵗ without cancellation: by t, which is known from the power of the rounded b."""
    if isinstance(b, Tensor) or np.float32(b) in (0, 1):
        return 1 - power
    return -(_steps(power, b) * math.log(b)).expm1()


def _steps(power: Tensor, b: float) -> Tensor:
    """How many factors b, which is rounded, there are in the power."""
    return (power.log() / math.log(np.float32(b))).round()


@expression
def _corrected(m: Tensor, v: Tensor, m_share: Tensor, v_share: Tensor, eps: float) -> Tensor:
    return (m / m_share) / ((v / v_share).sqrt() + eps)


class Adam(Moments):
    """Steps of about lr in each coordinate: m / √v. (Kingma and Ba, "Adam", 2014.)

    Args:
        params: the parameters to update.
        lr: the learning rate.
        b1: the decay factor of m, the average of gradients.
        b2: the decay factor of v, the average of their squares.
        eps: added to √v.
        weight_decay: the parameter times this is added to its gradient.
        betas: b1 and b2 as a pair.
        amsgrad: divide by the largest v so far. (Reddi, Kale and Kumar, 2018.)
        decoupled_weight_decay: parameters shrink by lr·weight_decay instead, as AdamW's do.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     Adam([x], lr=0.25).step()
    >>> round(x.item(), 4)
    0.75
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        betas: tuple[float, float] | None = None,
        amsgrad: bool = False,
        *,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        more = {"decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}
        super().__init__(params, lr, b1, b2, eps, weight_decay, betas, **more)
        self.amsgrad = amsgrad
        self.largest = self._zeros() if amsgrad else []
        self._own(self.largest)

    def _make_room(self, names: list[str]) -> None:
        self.largest = self._room(self.largest, self.amsgrad)
        super()._make_room(names)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        decay = self.weight_decay if self.decoupled_weight_decay else 0.0
        if not decay:
            param, grad = self._decayed(param, grad)
        direction, state = self._direction(i, grad)
        return moved_along(param, direction, self._lr(param), decay), state


class AdamW(Adam):
    """Adam with decoupled weight decay: parameters shrink by lr·weight_decay each step, whatever
    their gradient.

    (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2017.)

    Args:
        params: the parameters to update.
        lr: the learning rate.
        b1: the decay factor of m, the average of gradients.
        b2: the decay factor of v, the average of their squares.
        eps: added to √v.
        weight_decay: parameters shrink by lr times this.
        betas: b1 and b2 as a pair.
        amsgrad: divide by the largest v so far. (Reddi, Kale and Kumar, 2018.)
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     AdamW([x], lr=0.25).step()
    >>> x.numpy().round(4)
    array([0.7475], dtype=float32)
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        betas: tuple[float, float] | None = None,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        more = {"decoupled_weight_decay": True, "maximize": maximize}
        super().__init__(params, lr, b1, b2, eps, weight_decay, betas, amsgrad, **more)


class LAMB(Moments):
    """AdamW whose rate is scaled for each parameter by |param| / |direction|.

    (You and others, "Large Batch Optimization for Deep Learning", 2019.)

    Args:
        params: the parameters to update.
        lr: the learning rate: the share of its norm by which a parameter moves.
        b1: the decay factor of m, the average of gradients.
        b2: the decay factor of v, the average of their squares.
        eps: added to √v.
        weight_decay: the parameter times this is added to its direction.
        adam: don't scale.
        betas: b1 and b2 as a pair.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     LAMB([x], lr=0.25).step()
    >>> x.numpy().round(4)
    array([0.75], dtype=float32)
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        betas: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, betas)
        self.adam = adam

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        direction, state = self._direction(i, grad)
        _, direction = self._decayed(param, direction)
        rate = self._lr(param)
        if not self.adam:
            size, step = norm(param), norm(direction)
            rate = rate * ((size > 0) & (step > 0)).where(size / step, 1.0)
        return param - rate * direction, state


class Adamax(Moments):
    """Steps of about lr in each coordinate: m over u, a decaying maximum of the gradients' sizes.

    (Kingma and Ba, "Adam", 2014, section 7.)

    Args:
        params: the parameters to update.
        lr: the learning rate.
        b1: the decay factor of m, the average of gradients.
        b2: the decay factor of u.
        eps: added to each gradient's size.
        weight_decay: the parameter times this is added to its gradient.
        betas: b1 and b2 as a pair.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     Adamax([x], lr=0.25).step()
    >>> round(x.item(), 4)
    0.75
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.002,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        betas: tuple[float, float] | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, betas, maximize=maximize)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        param, grad = self._decayed(param, grad)
        m = self._mean(i, grad)
        u = self._put(self.v[i], (self.v[i] * self.b2).maximum(grad.abs() + self.eps))
        return param - self._lr(param) * (m / self._shares(i, m)[0]) / u, [m, u]


class NAdam(Moments):
    """Adam with Nesterov's lookahead along m, and a momentum that grows with the steps.

    (Dozat, "Incorporating Nesterov Momentum into Adam", 2016.)

    Args:
        params: the parameters to update.
        lr: the learning rate.
        b1: what m, the average of gradients, keeps each step in the end.
        b2: the decay factor of v, the average of their squares.
        eps: added to √v.
        weight_decay: the parameter times this is added to its gradient.
        momentum_decay: how fast the momentum comes up to b1.
        betas: b1 and b2 as a pair.
        decoupled_weight_decay: parameters shrink by lr·weight_decay instead, as AdamW's do.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     NAdam([x], lr=0.25).step()
    >>> x.numpy().round(4)
    array([0.7359], dtype=float32)
    """

    numbers = (*Moments.numbers, "t", "mu_product")

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.002,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 0.004,
        betas: tuple[float, float] | None = None,
        *,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        more = {"decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}
        super().__init__(params, lr, b1, b2, eps, weight_decay, betas, **more)
        self.momentum_decay = momentum_decay
        self.mu_product = self._number(1.0)
        self._own([self.mu_product])

    def _mu(self, t: Tensor) -> Tensor:
        return self.b1 * (1 - 0.5 * 0.96 ** (t * self.momentum_decay))

    def _advance(self, i: int | None) -> list[Tensor]:
        changed, product = super()._advance(i), self._of(i, "mu_product")
        return [*changed, self._put(product, product * self._mu(self._of(i, "t")))]

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        param, grad = self._decayed(param, grad, self.decoupled_weight_decay)
        m, v = self._averages(i, grad)
        t, product = self._of(i, "t"), self._of(i, "mu_product")
        mu, mu_next = self._mu(t), self._mu(t + 1)
        of_grad = self._beside(param, (1 - mu) / (1 - product))
        of_m = self._beside(param, mu_next / (1 - product * mu_next))
        away = (v / self._shares(i, v)[1]).sqrt() + self.eps
        return param - self._lr(param) * (of_grad * grad + of_m * m) / away, [m, v]


class RAdam(Moments):
    """Adam that divides by √v only once v is known well enough, and then with a growing weight.

    (Liu and others, "On the Variance of the Adaptive Learning Rate and Beyond", 2019.)

    Args:
        params: the parameters to update.
        lr: the learning rate.
        b1: the decay factor of m, the average of gradients.
        b2: the decay factor of v, the average of their squares.
        eps: added to √v.
        weight_decay: the parameter times this is added to its gradient.
        betas: b1 and b2 as a pair.
        decoupled_weight_decay: parameters shrink by lr·weight_decay instead, as AdamW's do.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     RAdam([x], lr=0.25).step()
    >>> x.numpy().round(4)
    array([0.5], dtype=float32)
    """

    numbers = (*Moments.numbers, "t")

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        param, grad = self._decayed(param, grad, self.decoupled_weight_decay)
        m, v = self._averages(i, grad)
        m_share, v_share = self._shares(i)
        mean = m / self._beside(m, m_share)
        away = (v.sqrt() + self.eps) / self._beside(v, v_share.sqrt())
        known, trust = (
            self._beside(param, x) for x in self._rectification(self._of(i, "t"), v_share)
        )
        direction = (known > 5).where(mean * trust / away, mean)
        return param - self._lr(param) * direction, [m, v]

    def _rectification(self, t: Tensor, v_share: Tensor) -> tuple[Tensor, Tensor]:
        """How many samples v stands for (ρ in the paper), and the factor that makes up for it."""
        most = 2 / (1 - self.b2) - 1
        known = most - 2 * t * (1 - v_share) / v_share
        enough = known.maximum(5)
        ratio = (enough - 4) * (enough - 2) * most / ((most - 4) * (most - 2) * enough)
        return known, ratio.sqrt()
