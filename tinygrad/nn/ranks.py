"""How many axes layers accept. An image without a batch axis is treated as a batch of one. Numbers
of axes that PyTorch's layer of the same name refuses are refused here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinygrad.base.errors import ShapeError
from tinygrad.tensor import Tensor


def check_rank(who: str, x: Tensor, legal: Sequence[int]) -> None:
    """ShapeError for a tensor of another number of axes than those that are legal."""
    if x.ndim not in legal:
        raise ShapeError(f"{who}: x {x.shape}; legal are {' or '.join(map(str, legal))} axes")


def as_batch(function: Callable[[Tensor], Tensor], x: Tensor, rank: int) -> Tensor:
    """`function` of x, whose `rank` axes begin with a batch. With one axis less x is a batch of
    one, and the result has no such axis.

    >>> from tinygrad.nn.ranks import as_batch
    >>> as_batch(lambda x: x.max_pool2d(2), Tensor.ones(3, 4, 4), 4).shape
    (3, 2, 2)
    """
    if x.ndim != rank - 1:
        return function(x)
    return function(x.unsqueeze(0)).squeeze(0)
