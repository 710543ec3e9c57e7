"""Adafactor: for a matrix, the averages of squared gradients are kept as one row and one column
only."""

from __future__ import annotations

from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.nn.optim.optimizer import Optimizer, Parameters, norm, wide
from tinygrad.tensor import Tensor


class Adafactor(Optimizer):
    """Steps of a given share of the parameter's own size, each coordinate scaled by the root of an
    average of squared gradients. For a matrix (the last two axes) only the means of these averages
    over rows and over columns are kept; their product approximates the matrix.

    (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018.)

    Args:
        params: the parameters to update.
        lr: the share by which parameters move, at most; 1/√t at step t if that is less.
        beta2_decay: at step t the averages take t to this power of the new squares.
        eps: the least root of the averages (None: the dtype's precision), and the least size of a
            parameter that counts.
        d: steps larger than this, by the mean of squares, are made so large.
        weight_decay: parameters shrink by lr times this.
        maximize: go along the gradient, not against it.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.train():
    ...     _ = (x * x).sum().backward()
    ...     Adafactor([x], lr=0.25).step()
    >>> x.item()
    0.75
    """

    numbers = ("t",)

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize)
        if not isinstance(eps, (tuple, list)) or len(eps) != 2:
            raise ArgumentError(f"Adafactor: eps {eps!r}; legal are two numbers, or None and one")
        self._check(size=eps[1], weight_decay=weight_decay, **_given(eps[0]))
        if not beta2_decay <= 0 or not d >= 1:
            raise ArgumentError(
                f"Adafactor: beta2_decay={beta2_decay}, d={d}; legal are numbers to 0, from 1"
            )
        self.beta2_decay = beta2_decay
        self.eps = (eps[0], eps[1])
        self.d = d
        self.weight_decay = weight_decay
        self.t = self._number(0.0)
        self.rows = [_means(p, -1) if p.ndim > 1 else _zeros(p) for p in self.params]
        self.columns = [
            _means(p, -2) if p.ndim > 1 else _zeros(p.reshape(-1)[:0]) for p in self.params
        ]
        self._own([self.t, *self.rows, *self.columns])

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        least = self.eps[0]
        if least is None:  # what the dtype tells apart from 1
            least = 2.0 ** -dtypes.finfo(self.params[i].dtype)[1]
        t, lr = self._beside(param, self._of(i, "t")), self._lr(param)
        new = t**self.beta2_decay
        rate = norm(param) / param.numel() ** 0.5
        rate = rate.maximum(self.eps[1]) * lr.minimum(t.rsqrt())
        squares = grad.square()
        if param.ndim > 1:
            row = self._put(self.rows[i], self.rows[i].lerp(squares.mean(-1, keepdim=True), new))
            column = squares.mean(-2, keepdim=True)
            column = self._put(self.columns[i], self.columns[i].lerp(column, new))
            spread = row * column / row.mean(-2, keepdim=True).maximum(least)
            state = [row, column]
        else:
            spread = self._put(self.rows[i], self.rows[i].lerp(squares, new))
            state = [spread]
        step = spread.maximum(least * least).rsqrt() * grad
        larger = (norm(step) / (step.numel() ** 0.5 * self.d)).maximum(1.0)
        param, _ = self._decayed(param, grad, decoupled=True)
        return param - rate / larger * step, state


def _given(eps: Any) -> dict[str, float]:
    return {} if eps is None else {"eps": eps}


def _zeros(like: Tensor) -> Tensor:
    return like.zeros_like(dtype=wide(like.dtype), requires_grad=False)


def _means(param: Tensor, axis: int) -> Tensor:
    """Zeros in the shape of the parameter's means over this axis."""
    return _zeros(param).sum(axis, keepdim=True)
