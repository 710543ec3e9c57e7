"""Losses that demand a margin between the right answer and others. The other losses are in
`losses`."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.held import held
from tinygrad.nn.losses import pairwise_distance
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_above, check_choice, check_number_from
from tinygrad.tensor.learning import reduced


def multi_margin_loss(
    x: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """By how much other classes come within `margin` of the target's, to the power `p`, as the mean
    over classes. x is (N, classes) or (classes,), target (N,) or ().

    >>> round(multi_margin_loss(Tensor([[0.0, 2.0, 1.5]]), Tensor([1])).item(), 4)
    0.1667
    """
    check_choice("multi_margin_loss", "p", p, (1, 2))
    _check_rows("multi_margin_loss", x, target, x.shape[:-1])
    right = x._at_class(target, x.ndim - 1, "multi_margin_loss")[0].unsqueeze(-1)
    lacks = (margin - right + x).relu() ** p
    if weight is not None:
        if weight.shape != x.shape[-1:]:
            raise ShapeError(
                f"multi_margin_loss: weight {weight.shape} of x {x.shape}; legal is {x.shape[-1:]}"
            )
        lacks = lacks * weight[target].unsqueeze(-1)
    others = target.unsqueeze(-1).ne(Tensor.arange(x.shape[-1], device=x.device))
    return reduced(others.where(lacks, 0).mean(-1), reduction)


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """By how much classes that aren't named come within 1 of each that is, over the number of
    classes. x is (N, classes) or (classes,); target has its shape and names classes up to a -1.

    >>> round(multilabel_margin_loss(Tensor([0.0, 2.0, 1.5]), Tensor([1, -1, 0])).item(), 4)
    0.1667
    """
    _check_rows("multilabel_margin_loss", x, target, x.shape)
    named = target.ge(0).cast(dtypes.int32).cumprod(-1).cast(dtypes.bool)  # up to the first -1
    classes = Tensor.arange(x.shape[-1], device=x.device)
    at = named.where(target, 0)
    is_named = (at.unsqueeze(-1).eq(classes) & named.unsqueeze(-1)).any(-2)
    lacks = (1 - x.gather(-1, at).unsqueeze(-1) + x.unsqueeze(-2)).maximum(0)
    counts = named.unsqueeze(-1) & is_named.unsqueeze(-2).logical_not()
    loss: Tensor = counts.where(lacks, 0).sum((-2, -1)) / x.shape[-1]
    return reduced(loss, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with another distance function; None is `pairwise_distance`.

    >>> x = Tensor([[1.0, 0.0]])
    >>> triplet_margin_with_distance_loss(x, x, x, lambda a, b: (a - b).abs().sum(-1)).item()
    1.0
    """
    check_above("triplet_margin_with_distance_loss", "margin", margin)
    distance = distance_function or pairwise_distance
    far = distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((distance(anchor, positive) - far + margin).maximum(0), reduction)


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm of the difference of each pair of rows of x (n, k): (n·(n - 1) / 2,).

    >>> pdist(Tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).numpy().round(4)
    array([5.    , 1.    , 4.2426], dtype=float32)
    """
    check_number_from("pdist", "p", p, 0)
    if x.ndim != 2:
        raise ShapeError(f"pdist: x has shape {x.shape}; legal is (n, k)")
    first, second = Tensor.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return (x[first] - x[second]).norm(p, -1)


def _check_rows(who: str, x: Tensor, target: Tensor, legal: tuple[int, ...]) -> None:
    if x.ndim not in (1, 2) or not x.numel() or target.shape != legal:
        raise ShapeError(
            f"{who}: x has shape {x.shape} and target {target.shape}; legal are (N, classes) or "
            f"(classes,), and {legal}"
        )
    if not dtypes.is_int(target.dtype):
        raise ArgumentError(f"{who}: target of {target.dtype!r}; legal are numbers of classes")


MultiMarginLoss = held("MultiMarginLoss", multi_margin_loss)
MultiLabelMarginLoss = held("MultiLabelMarginLoss", multilabel_margin_loss)
TripletMarginWithDistanceLoss = held(
    "TripletMarginWithDistanceLoss", triplet_margin_with_distance_loss
)
