"""A linear layer whose outputs are the logits of a cross-entropy, as a function and as a layer."""

from __future__ import annotations

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.nn.layers import Linear
from tinygrad.nn.losses import cross_entropy
from tinygrad.tensor import Tensor


def linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """`cross_entropy` of x times a weight, plus a bias.

    Args:
        x: (N, in), or (in,).
        linear_weight: (classes, in), or (classes, *any, in).
        target: class numbers (N, *any), or probabilities (N, classes, *any).
        linear_bias: (classes, *any).
        weight: how much each class counts, (classes,).
        reduction: "mean", "sum" or "none".
        ignore_index: this class number doesn't count; None is -100.
        label_smoothing: this much of each target is spread over all classes.

    Raises:
        ShapeError: sizes that don't go together.

    >>> x, weight = Tensor([[2.0, 0.0]]), Tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(linear_cross_entropy(x, weight, Tensor([0])).item(), 4)
    0.1269
    """
    shape = linear_weight.shape[:-1]
    if (
        x.ndim not in (1, 2)
        or len(shape) < 1
        or (x.ndim == 1 and len(shape) > 1)
        or x.shape[-1] != linear_weight.shape[-1]
        or (linear_bias is not None and linear_bias.shape != shape)
    ):
        raise ShapeError(
            f"linear_cross_entropy: x {x.shape}, linear_weight {linear_weight.shape}, linear_bias "
            f"{None if linear_bias is None else linear_bias.shape}; legal are (N, in), (classes, "
            "*any, in) and (classes, *any), or (in,), (classes, in) and (classes,)"
        )
    flat = linear_weight.reshape(prod(shape), x.shape[-1])
    bias = None if linear_bias is None else linear_bias.flatten()
    logits = x.linear(flat.T, bias).reshape(*x.shape[:-1], *shape)
    if ignore_index is not None and target.shape == logits.shape and dtypes.is_float(target.dtype):
        raise ArgumentError(
            f"linear_cross_entropy: {ignore_index=} beside probabilities {target.shape}; legal is "
            "None"
        )
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight, ignored, reduction, label_smoothing)


class LinearCrossEntropyLoss:
    """A linear layer, and the cross-entropy of its outputs: `linear_cross_entropy`.

    Args:
        in_features: size of the last axis of x.
        num_classes: how many classes.
        out_features: the axes of the target after the first.
        bias: whether the linear layer adds one.
        reduction: "mean", "sum" or "none".
        weight: how much each class counts, (num_classes,).
        ignore_index: this class number doesn't count; None is -100.
        label_smoothing: this much of each target is spread over all classes.

    >>> LinearCrossEntropyLoss(4, 5)(Tensor.ones(2, 4), Tensor([0, 4])).shape
    ()
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.weight = weight
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(in_features, num_classes * prod(self.out_features), bias)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        """x (N, in_features) and class numbers (N, *out_features), or both without N → the loss."""
        shape = self.num_classes, *self.out_features
        bias = self.linear.bias
        return linear_cross_entropy(
            x,
            self.linear.weight.reshape(*shape, -1),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )
