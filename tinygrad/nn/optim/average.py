"""Averages of weights over steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.nn.optim.optimizer import Optimizer, Parameters
from tinygrad.nn.optim.options import PREFIX, options_in, options_state, own_number, take_options
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict, own_copy
from tinygrad.tensor import Tensor
from tinygrad.tensor.template import expression


class ASGD(Optimizer):
    """Gradient descent with a decreasing rate. `averages` holds the average of each parameter's
    values, which is the result to use in the end.

    (Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.)

    Args:
        params: the parameters to update.
        lr: the first rate: at step t it is lr / (1 + lambd·lr·(t - 1))^alpha.
        lambd: parameters shrink by the rate times this.
        alpha: how fast the rate falls.
        t0: the step after which positions are averaged.
        weight_decay: the parameter times this is added to its gradient.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     ASGD([x], lr=0.25).step()
    >>> round(x.item(), 3)
    0.5
    """

    numbers = ("t", "rate", "before")
    parts = ()

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize)
        self._check(weight_decay=weight_decay)
        self.lambd = lambd
        self.alpha = alpha
        self.t0 = t0
        self.weight_decay = weight_decay
        self.t, self.rate, self.before = map(self._number, (0.0, lr, lr))
        self.averages = self._zeros()
        self._own([self.t, self.rate, self.before, *self.averages])

    def _advance(self, i: int | None) -> list[Tensor]:
        t, before = self._of(i, "t"), self._of(i, "before")  # lr as it was in the step before
        before.assign((t > 0).where(before, self.lr))  # which the first step hasn't
        rate = self._put(self._of(i, "rate"), before / (1 + self.lambd * before * t) ** self.alpha)
        return [rate, self._put(before, self.lr), self._put(t, t + 1)]

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        param, grad = self._decayed(param, grad)
        rate, t = (self._beside(param, self._of(i, name)) for name in ("rate", "t"))
        new = param * (1 - self.lambd * rate) - rate * grad
        share = 1 / (t - 1 - self.t0).maximum(1.0)
        return new, [self._put(self.averages[i], self.averages[i].lerp(new, share))]


@expression
def _moved_towards(average: Tensor, param: Tensor, share: float | Tensor) -> Tensor:
    return average + (param.detach() - average) * share


class EMA:
    """An average of a model's weights over the updates, often better than the last of them:
    exponential, so that it moves along, or with equal weights.

    (Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; Izmailov
    and others, "Averaging Weights Leads to Wider Optima and Better Generalization", 2018.)

    Args:
        model: any object that holds tensors.
        decay: the decay factor of the average, applied at each update. None: all updates count
            alike, as PyTorch's `AveragedModel` does; the weights before the first don't.

    >>> net = {"w": Tensor([0.0])}
    >>> average = EMA(net, decay=0.75)
    >>> _ = net["w"].assign(Tensor([4.0]))
    >>> average.update()
    >>> with average.applied():
    ...     inside = net["w"].item()
    >>> inside, net["w"].item()
    (1.0, 4.0)
    """

    def __init__(self, model: Any, decay: float | None = 0.999) -> None:
        if decay is not None and not 0 <= decay <= 1:
            raise ArgumentError(f"EMA: decay {decay!r}; legal are numbers from 0 to 1, or None")
        self.decay = decay
        self.params = [t for t in get_parameters(model) if dtypes.is_float(t.dtype)]
        if not self.params:
            raise ArgumentError(f"EMA: {model!r} holds no tensors of floats; legal are models")
        self.averages = [own_copy(t.detach()).realize() for t in self.params]
        self._count()

    def _count(self) -> None:
        """Equal weights depend on how many updates there were."""
        self.updates = [own_number(0.0)] if self.decay is None else []

    def _shown(self) -> dict[str, Any]:
        return {"decay": self.decay, "averages": self.averages}

    def state_dict(self) -> dict[str, Tensor]:
        """The averages, and what the next update depends on, by name.

        >>> list(EMA({"w": Tensor([0.0])}).state_dict())
        ['averages.0', 'options.decay']
        """
        return self._tensors() | options_state(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resumes from where `state` was taken, with the decay that was in use there.

        >>> first, second = EMA({"w": Tensor([2.0])}, 0.5), EMA({"w": Tensor([0.0])})
        >>> second.load_state_dict(first.state_dict())
        >>> second.averages[0].item(), second.decay
        (2.0, 0.5)
        """
        before = dict(vars(self))
        try:
            take_options(options_in(state, self), self)
            self._count()
            tensors = {n: t for n, t in state.items() if not n.startswith(PREFIX)}
            load_state_dict(self._tensors(), tensors)
        except BaseException:
            vars(self).update(before)
            raise

    def _tensors(self) -> dict[str, Tensor]:
        return get_state_dict({"averages": self.averages, "updates": self.updates})

    def schedule_update(self) -> list[Tensor]:
        """Moves the averages towards the weights; returns what changes. Realize it with a step.

        >>> net = {"w": Tensor([0.0])}
        >>> average = EMA(net, decay=0.75)
        >>> _ = net["w"].assign(Tensor([4.0]))
        >>> [t.tolist() for t in average.schedule_update()]
        [[1.0]]
        """
        for count in self.updates:
            count.assign(count + 1)
        for average, param in zip(self.averages, self.params, strict=True):
            average.assign(_moved_towards(average, param, self._share(average)))
        return [*self.averages, *self.updates]

    def _share(self, like: Tensor) -> float | Tensor:
        """The weight of this update, beside an average."""
        if self.decay is not None:
            return 1 - self.decay
        return (1 / self.updates[0]).to(like.device).cast(like.dtype)

    def update(self) -> None:
        """Moves the averages towards the weights, now.

        >>> net = {"w": Tensor([0.0])}
        >>> average = EMA(net, decay=0.75)
        >>> _ = net["w"].assign(Tensor([4.0]))
        >>> average.update()
        >>> average.averages[0].item()
        1.0
        """
        if self.params:
            changed = self.schedule_update()
            Tensor.realize(*changed)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """A context in which the model has the averages as its weights.

        >>> net = {"w": Tensor([0.0])}
        >>> average = EMA(net, decay=0.75)
        >>> _ = net["w"].assign(Tensor([4.0]))
        >>> with average.applied():
        ...     net["w"].item()
        0.0
        """
        if not self.params:
            yield
            return
        kept = [own_copy(param.detach()).realize() for param in self.params]
        self._write(self.averages)
        try:
            yield
        finally:
            self._write(kept)

    def _write(self, values: list[Tensor]) -> None:
        for param, value in zip(self.params, values, strict=True):
            param.assign(value.detach())
        Tensor.realize(*self.params)
