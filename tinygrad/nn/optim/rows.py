"""An optimizer for tables of which a step uses a few rows."""

from __future__ import annotations

from tinygrad.nn.optim.moments import Moments
from tinygrad.nn.optim.optimizer import Parameters, moved_average
from tinygrad.tensor import Tensor


class SparseAdam(Moments):
    """Adam that leaves alone what a step didn't use: a row whose gradient is all 0 stays, and so
    do its averages. So rows of an embedding that are seldom used don't go on moving meanwhile.

    Gradients are dense here, so a row that was used counts as unused if its gradient comes out as
    exactly 0; PyTorch's, of sparse gradients, moves it on.

    Args:
        params: the tensors to move; the first axis counts rows.
        lr: the learning rate.
        b1: the decay factor of m, the average of gradients.
        b2: the decay factor of v, the average of their squares.
        eps: added to √v.
        betas: b1 and b2 as a pair.
        maximize: go along the gradient, not against it.

    >>> table = Tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True)
    >>> optimizer = SparseAdam([table], lr=0.25)
    >>> with Tensor.train():
    ...     for row in (0, 1):
    ...         optimizer.zero_grad()
    ...         _ = (table[row] * table[row]).sum().backward()
    ...         optimizer.step()
    >>> round(table[0, 0].item(), 4)
    0.75
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        betas: tuple[float, float] | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, 0.0, betas, maximize=maximize)

    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        # (rows, 1..)
        used = (grad != 0).any(tuple(range(1, grad.ndim)), keepdim=True) if grad.ndim else grad != 0
        m = moved_average(self.m[i], grad, self._inertia(self.m[i]))
        v = moved_average(self.v[i], grad, self.b2, squared=True)
        m, v = used.where(m, self.m[i]), used.where(v, self.v[i])
        m, v = self._put(self.m[i], m), self._put(self.v[i], v)
        m_share, v_share = self._shares(i, m)
        direction = m / m_share * v_share.sqrt() / (v.sqrt() + self.eps)
        return used.where(param - self._lr(param) * direction, param), [m, v]
