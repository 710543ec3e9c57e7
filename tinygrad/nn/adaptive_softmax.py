"""A softmax over very many classes, most of them rare. The frequent classes are told apart first;
each cluster of rarer ones is told apart by a smaller layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.containers import Sequential
from tinygrad.nn.layers import Linear
from tinygrad.nn.losses import checked_range
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_above


class ASMoutput(NamedTuple):
    """What `AdaptiveLogSoftmaxWithLoss` gives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss:
    """Log-probabilities of target classes by a softmax in two steps, and the mean of their
    negatives.

    (Grave and others, "Efficient softmax approximation for GPUs", 2016.)

    Args:
        in_features: size of the last axis of x.
        n_classes: how many classes, the most frequent first.
        cutoffs: where clusters begin: classes before the first stand in the head.
        div_value: a cluster's layer is by this factor narrower than that of the one before.
        head_bias: whether the head adds one.

    Raises:
        ArgumentError: cutoffs that don't grow, or beyond the classes.
        IndexCheckError: a target that is no class, when the result is read.

    >>> layer = AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10])
    >>> layer(Tensor.ones(3, 8), Tensor([0, 5, 19])).output.shape
    (3,)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
    ) -> None:
        ends = [*cutoffs, n_classes]
        if len(ends) < 2 or ends[0] < 1 or ends != sorted(set(ends)):
            raise ArgumentError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs {list(cutoffs)} of {n_classes} classes; "
                f"legal are numbers that grow, from 1 to {n_classes - 1}"
            )
        check_above("AdaptiveLogSoftmaxWithLoss", "div_value", div_value)
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = ends
        self.head = Linear(in_features, ends[0] + len(cutoffs), head_bias)
        self.tail = []
        for number, (first, end) in enumerate(zip(ends, ends[1:], strict=False), 1):
            narrow = int(in_features // div_value**number)
            layers = Linear(in_features, narrow, False), Linear(narrow, end - first, False)
            self.tail.append(Sequential(*layers))

    def __call__(self, x: Tensor, target: Tensor) -> ASMoutput:
        """x (N, in_features) and classes (N,), or both without N → the log-probabilities of these
        classes, in their shape, and the negative of their mean."""
        if not dtypes.is_int(target.dtype) or x.shape[:-1] != target.shape or target.ndim > 1:
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: x {x.shape}, target {target.shape} of "
                f"{target.dtype!r}; legal are (N, {self.in_features}) and whole numbers (N,), or "
                "both without N"
            )
        told = "AdaptiveLogSoftmaxWithLoss: a target of {0}; legal are 0 to "
        target = checked_range(target, self.n_classes - 1, told)
        short = self.cutoffs[0]
        place = (target < short).where(target, short - 1)
        for first in self.cutoffs[:-1]:
            place = place + (target >= first)
        output = self._head(x).gather(-1, place.unsqueeze(-1)).squeeze(-1)
        for layer, first, end in zip(self.tail, self.cutoffs, self.cutoffs[1:], strict=False):
            inside = (target >= first) & (target < end)
            place = inside.where(target - first, 0).unsqueeze(-1)
            logs = layer(x).log_softmax(-1).gather(-1, place).squeeze(-1)
            output = output + inside.where(logs, 0)
        return ASMoutput(output, -output.mean())

    def _head(self, x: Tensor) -> Tensor:
        """Logs of the probabilities of the frequent classes and of each cluster."""
        return self.head(x).log_softmax(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        """Logs of the probabilities of all classes, (.., in_features) → (.., n_classes).

        >>> layer = AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10])
        >>> layer.log_prob(Tensor.ones(3, 8)).exp().sum(-1).numpy().round(4)
        array([1., 1., 1.], dtype=float32)
        """
        head, short = self._head(x), self.cutoffs[0]
        parts = [head[..., :short]]
        for number, layer in enumerate(self.tail, short):
            parts.append(layer(x).log_softmax(-1) + head[..., number : number + 1])
        return Tensor.cat(*parts, dim=-1)

    def predict(self, x: Tensor) -> Tensor:
        """The likeliest class, (.., in_features) → (..).

        >>> AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10]).predict(Tensor.ones(3, 8)).shape
        (3,)
        """
        return self.log_prob(x).argmax(-1)
