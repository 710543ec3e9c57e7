"""What networks are trained with: losses, normalizations, attention."""

from __future__ import annotations

import math
from typing import Any, Self, TypeVar

from tinygrad.base.dtype import DType, dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor.arguments import check_choice, check_number_from
from tinygrad.tensor.functions import wide
from tinygrad.tensor.random import Random
from tinygrad.tensor.template import expression, expressions

Loss = TypeVar("Loss", bound=Random)


def reduced(loss: Loss, reduction: str) -> Loss:
    """The mean of a loss, its sum, or ("none") the loss of each sample; ArgumentError for another
    word."""
    check_choice("a loss", "reduction", reduction, ("mean", "sum", "none"))
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


@expressions
class Learning(Random):
    """Losses return one number unless reduction="none"."""

    __slots__ = ()

    def _shared_out(self, shares: Self) -> Self:
        """The mean where each counts by its share: of nothing NaN, which no gradient goes on to."""
        total, none = shares.sum(), shares.sum().eq(0)
        return none.where(math.nan, self.sum() / none.where(1, total))

    # ---- losses ----------------------------------------------------------------------------------

    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:  # noqa: N803
        """-y·log p - (1 - y)·log(1 - p), of probabilities.

        >>> Tensor([0.5, 0.5]).binary_crossentropy(Tensor([0.0, 1.0])).numpy().round(4)
        np.float32(0.6931)
        """
        loss = -Y * self.log() - (1 - Y) * (1 - self).log()
        return reduced(loss, reduction)

    @expression
    def binary_crossentropy_logits(
        self,
        Y: Self,
        reduction: str = "mean",
        pos_weight: Self | None = None,  # noqa: N803
    ) -> Self:
        """`binary_crossentropy` of the sigmoid of this, without overflow.

        >>> Tensor([0.0, 0.0]).binary_crossentropy_logits(Tensor([0.0, 1.0])).numpy().round(4)
        np.float32(0.6931)
        """
        yes = Y if pos_weight is None else Y * pos_weight
        loss = yes * (-self).softplus() + (1 - Y) * self.softplus()
        return reduced(loss, reduction)

    @expression
    def sparse_categorical_crossentropy(
        self,
        Y: Self,  # noqa: N803
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Minus the log of the softmax at the class that Y names; the classes are the last axis.

        Y has this one's shape without it; `ignore_index` doesn't count.

        >>> Tensor([[0.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item() < 0.7
        True
        """
        if Y.shape != self.shape[:-1]:
            raise ShapeError(f"crossentropy: classes {Y.shape} for logits {self.shape}")
        name, counts = "sparse_categorical_crossentropy", Y.ne(ignore_index)
        own = self._log_chance(Y, Y.ndim, label_smoothing, name, ignore_index)
        loss = -counts.where(own, 0)
        if reduction != "mean":
            return reduced(loss, reduction)
        return loss._shared_out(counts)

    @expression
    def cross_entropy(
        self,
        Y: Self,  # noqa: N803
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Self:
        """Minus the log of the softmax, by the probability of each class; classes are axis 1 (axis
        0 of a vector). Y holds class numbers, or probabilities in this one's shape.

        >>> round(Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item(), 4)
        0.6931
        """
        check_number_from("cross_entropy", "label_smoothing", label_smoothing, 0, 1)
        axis = 0 if self.ndim == 1 else 1
        if Y.ndim < self.ndim:
            own = self._log_chance(Y, axis, label_smoothing, "cross_entropy")
            return reduced(-own, reduction)
        if Y.shape != self.shape:
            raise ShapeError(
                f"cross_entropy: classes {Y.shape} for logits {self.shape}; legal are a class "
                "number for each, or probabilities of that shape"
            )
        even = label_smoothing / self.shape[axis] if label_smoothing else 0
        goal = Y * (1 - label_smoothing) + even if label_smoothing else Y
        return reduced(-(self.log_softmax(axis) * goal).sum(axis), reduction)

    @expression
    def nll_loss(
        self,
        Y: Self,  # noqa: N803
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """Minus the log-probability (this) at the class that Y names; classes are axis 1.

        The mean counts each by its class's `weight`.

        >>> Tensor([[-0.5, -1.0]]).nll_loss(Tensor([1])).item()
        1.0
        """
        axis = 1 if self.ndim > 1 else 0
        own, hit = self._at_class(Y, axis, "nll_loss", ignore_index)
        factor = Y.ones_like(dtype=self.dtype)
        if weight is not None and weight.shape != self.shape[axis : axis + 1]:
            raise ShapeError(f"nll_loss: weight {weight.shape}; legal is ({self.shape[axis]},)")
        if weight is not None:
            factor = hit.where(hit._along(axis, weight), 0).sum(axis)
        if ignore_index is not None:
            factor = Y.ne(ignore_index).where(factor, 0)
        loss = -(own * factor)
        return loss._shared_out(factor) if reduction == "mean" else reduced(loss, reduction)

    def _at_class(
        self, classes: Self, axis: int, operation: str, ignored: int | None = None
    ) -> tuple[Self, Self]:
        """Along `axis` the element at each class number, with a CHECK that it is one; and where
        that is."""
        if not self.ndim:
            raise ShapeError(f"{operation}: of one number, shape (); legal is an axis of classes")
        hit = classes._one_hot_along(axis, self.shape[axis])
        own = hit.where(self, 0).sum(axis)
        return classes._of_class(own, self.shape[axis], operation, ignored), hit

    def _log_chance(
        self, classes: Self, axis: int, smoothing: float, operation: str, ignored: int | None = None
    ) -> Self:
        """The log of the softmax along `axis` at each class number, and some of all others'."""
        check_number_from(operation, "label_smoothing", smoothing, 0, 1)
        logs = self.log_softmax(axis)
        own, _ = logs._at_class(classes, axis, operation, ignored)
        return own * (1 - smoothing) + logs.mean(axis) * smoothing if smoothing else own

    # ---- normalization ---------------------------------------------------------------------------

    @expression
    @wide
    def layernorm(self, axis: Any = -1, eps: float = 1e-5) -> Self:
        """Mean 0 and variance 1 over `axis`; the variance counts `eps` more.

        >>> Tensor([1.0, 3.0]).layernorm(eps=0.0).tolist()
        [-1.0, 1.0]
        """
        centred = self - self.mean(axis, keepdim=True)
        return centred * (centred.square().mean(axis, keepdim=True) + eps).rsqrt()

    @expression
    def batchnorm(
        self,
        weight: Self | None,
        bias: Self | None,
        mean: Self,
        invstd: Self,
        axis: int | tuple[int, ...] = 1,
    ) -> Self:
        """(x - mean)·invstd·weight + bias, each a vector along `axis`, or of full shape.

        >>> mean, invstd = Tensor([1.0, 1.0]), Tensor([0.5, 1.0])
        >>> Tensor([[1.0, 2.0]]).batchnorm(None, None, mean, invstd).tolist()
        [[0.0, 1.0]]
        """
        axes = axis if isinstance(axis, tuple) else (axis,)
        shape = tuple(n if i in axes else 1 for i, n in enumerate(self.shape))
        x = self - mean.reshape(shape)
        if weight is not None:
            x = x * weight.reshape(shape)
        out = x * (invstd.reshape(shape) if len(invstd.shape) == len(axes) else invstd)
        return out if bias is None else out + bias.reshape(shape)

    # ---- attention -------------------------------------------------------------------------------

    def _rounded_back(self, dtype: DType) -> Self:
        """This wide product of narrow factors, with a gradient that is rounded as they are: so a
        unit multiplies them again. (A half, whose exponents are few, could lose all of it.)"""
        if dtype is not dtypes.bfloat16 or self.dtype is dtype:
            return self
        return self._from(self._node.detach(self._node.cast(dtype).cast(self.dtype)))

    def _rounded_there(self, dtype: DType) -> Self:
        """This as `dtype` would hold it; its gradient stays as wide as it is."""
        if self.dtype is dtype:
            return self
        return self._from(self._node.cast(dtype).cast(self.dtype).detach(self._node))

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
        scale: float | None = None,
    ) -> Self:
        """softmax(q·kᵀ / √d + mask)·v; this is q, of shape (.., queries, d).

        A bool mask says what may be seen, a float one is added. With `enable_gqa` several heads
        of q share one of k and v. `scale` is instead of 1 / √d. (Vaswani and others, 2017.)

        >>> q = Tensor.ones(1, 2, 4)
        >>> q.scaled_dot_product_attention(q, q).shape
        (1, 2, 4)
        """
        if min(self.ndim, key.ndim, value.ndim) < 2:
            raise ShapeError(
                f"attention: {self.shape}, {key.shape}, {value.shape}; legal are (.., length, size)"
            )
        if enable_gqa:
            share = self.shape[-3] // key.shape[-3]
            key, value = (t._each_repeated(share, t.ndim - 3) for t in (key, value))
        if is_causal and attn_mask is not None:
            raise ArgumentError("attention: is_causal and attn_mask; legal is one of them")
        wide = least_upper_dtype(self.dtype, key.dtype, dtypes.float32)
        by: Any = self.shape[-1] ** -0.5 if scale is None else scale
        scores = self.matmul(key.transpose(-2, -1), dtype=wide)._rounded_back(self.dtype) * by
        if is_causal:
            queries, keys = self.shape[-2], key.shape[-2]
            seen = self._constant(True, dtypes.bool, (queries, keys))
            attn_mask = self._wrap(seen).tril()
        if attn_mask is not None:
            bools = attn_mask.dtype is dtypes.bool
            scores = attn_mask.where(scores, -float("inf")) if bools else scores + attn_mask
        # divided after the product with v: one division an output; a row that sees nothing is 0
        most = scores.max(-1, keepdim=True).detach()
        weights = (scores - (most == -float("inf")).where(0.0, most)).exp()
        total = weights.sum(-1, keepdim=True)
        mixed = weights.dropout(dropout_p)._rounded_there(self.dtype).matmul(value, dtype=wide)
        mixed = mixed._rounded_back(self.dtype)
        out: Self = mixed / (total == 0).where(1.0, total)
        return out.cast(self.dtype)
