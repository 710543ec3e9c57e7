"""Averages of weights over steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.nn.state import get_parameters, own_copy
from tinygrad.tensor import Tensor


class EMA:
    """An exponential moving average of a model's weights, often better than the last of them.

    (Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.)

    Args:
        model: any object that holds tensors.
        decay: what the average keeps each update.

    >>> net = {"w": Tensor([0.0])}
    >>> average = EMA(net, decay=0.75)
    >>> _ = net["w"].assign(Tensor([4.0]))
    >>> average.update()
    >>> with average.applied():
    ...     inside = net["w"].item()
    >>> inside, net["w"].item()
    (1.0, 4.0)
    """

    def __init__(self, model: Any, decay: float = 0.999) -> None:
        self.decay = decay
        self.params = [t for t in get_parameters(model) if dtypes.is_float(t.dtype)]
        self.averages = [own_copy(t.detach()).realize() for t in self.params]

    def schedule_update(self) -> list[Tensor]:
        """Moves the averages towards the weights; returns them. Realize them with a step."""
        for average, param in zip(self.averages, self.params, strict=True):
            average.assign(average + (param.detach() - average) * (1 - self.decay))
        return self.averages

    def update(self) -> None:
        """Moves the averages towards the weights, now."""
        if self.params:
            changed = self.schedule_update()
            changed[0].realize(*changed[1:])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While it lasts, the model has the averages for weights."""
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
        self.params[0].realize(*self.params[1:])
