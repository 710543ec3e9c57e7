"""Attention, and the layers of transformers. Weights have PyTorch's names and shapes."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.layers import Linear
from tinygrad.nn.norms import LayerNorm
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.relu(),
    "gelu": lambda x: x.gelu("none"),
}


class MultiheadAttention:
    """Several attentions side by side, each over its part of the features.

    (Vaswani and others, "Attention Is All You Need", 2017.)

    Args:
        embed_dim: features of the queries and of the result.
        num_heads: how many attentions; must divide embed_dim.
        dropout: of what is attended to, while training.
        bias: whether the projections add one.
        add_bias_kv: one more key and value, which are learned.
        add_zero_attn: one more key and value of zeros: what attends to nothing.
        kdim: features of the keys, embed_dim if None.
        vdim: features of the values, embed_dim if None.
        batch_first: inputs are (batch, length, features), not (length, batch, features).

    Raises:
        ArgumentError: num_heads doesn't divide embed_dim.
        ShapeError: an input of other axes or features.

    >>> x = Tensor.ones(7, 2, 8)
    >>> out, weights = MultiheadAttention(8, 4)(x, x, x)
    >>> out.shape, weights.shape
    ((7, 2, 8), (2, 7, 7))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        self._hold(embed_dim, num_heads, dropout, add_zero_attn, batch_first)
        if kdim in (None, embed_dim) and vdim in (None, embed_dim):
            self.in_proj_weight = Tensor.glorot_uniform(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight = Tensor.glorot_uniform(embed_dim, embed_dim)
            self.k_proj_weight = Tensor.glorot_uniform(embed_dim, kdim or embed_dim)
            self.v_proj_weight = Tensor.glorot_uniform(embed_dim, vdim or embed_dim)
        self.in_proj_bias = Tensor.zeros(3 * embed_dim) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k, self.bias_v = (
                Tensor.randn(1, 1, embed_dim) * embed_dim**-0.5 for _ in range(2)
            )
        if bias:
            self.out_proj.bias = Tensor.zeros(embed_dim)

    def _hold(
        self, size: int, heads: int, dropout: float, zero: bool, batch_first: bool = False
    ) -> None:
        """Everything that is no tensor."""
        if heads < 1 or size < 1 or size % heads:
            raise ArgumentError(
                f"MultiheadAttention: {heads} heads of {size} features; legal are numbers from 1, "
                "and what divides"
            )
        self.embed_dim = size
        self.num_heads = heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = zero

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Queries (length, batch, embed_dim), and keys and values of possibly another length → the
        result, and with `need_weights` the attention weights (batch, queries, keys), or with a head
        axis.

        A mask is True, or -inf, where attention is forbidden: `key_padding_mask` is (batch, keys),
        `attn_mask` (queries, keys) or (batch·heads, queries, keys).
        """
        batched, few = query.ndim == 3, not query.ndim == key.ndim == value.ndim
        if not batched and not few:
            query, key, value = (t.unsqueeze(1) for t in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif self.batch_first and not few:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        if (
            few
            or query.ndim != 3
            or query.shape[-1] != self.embed_dim
            or key.shape[:2] != value.shape[:2]
        ):
            raise ShapeError(
                f"MultiheadAttention: query {query.shape}, key {key.shape}, value {value.shape}; "
                f"legal are (length, batch, {self.embed_dim}), and keys and values alike"
            )
        q, k, v = (
            self._heads(x, *self._projection(number))
            for number, x in enumerate((query, key, value))
        )
        mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal)
        k, v, mask = self._with_more(k, v, mask)
        out, weights = self._attended(q, k, v, mask, need_weights)
        length, batch = query.shape[:2]
        out = self.out_proj(out.permute(2, 0, 1, 3).reshape(length, batch, self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(1), None if weights is None else weights.squeeze(0)
        return (out.transpose(0, 1) if self.batch_first else out), weights

    def _projection(self, number: int) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of queries, keys or values."""
        size = self.embed_dim
        rows = slice(number * size, (number + 1) * size)
        if hasattr(self, "in_proj_weight"):
            weight = self.in_proj_weight[rows]
        else:
            weight = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[number]
        return weight, None if self.in_proj_bias is None else self.in_proj_bias[rows]

    def _heads(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(length, batch, features) → (batch, heads, length, embed_dim / heads)."""
        length, batch, _ = x.shape
        split = x.linear(weight.T, bias).reshape(length, batch, self.num_heads, -1)
        return split.permute(1, 2, 0, 3)

    def _with_more(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and mask, extended at the end of each sequence by the learned bias and by
        zeros."""
        batch, heads, _, size = k.shape
        before = k.shape[2]
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                t.cat(more.reshape(1, heads, 1, size).expand(batch, heads, 1, size), dim=2)
                for t, more in ((k, self.bias_k), (v, self.bias_v))
            )
        if self.add_zero_attn:
            k, v = (t.pad(((0, 0), (0, 0), (0, 1), (0, 0))) for t in (k, v))
        if mask is not None and k.shape[2] > before:
            mask = mask.pad(((0, 0),) * (mask.ndim - 1) + ((0, k.shape[2] - before),))
        return k, v, mask

    def _mask(
        self, q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None, causal: bool
    ) -> Tensor | None:
        """What is added to the scores (batch, heads, queries, keys), if anything."""
        if causal:
            later = Tensor.ones(q.shape[2], k.shape[2], dtype=dtypes.bool, device=q.device)
            mask = later.triu(1) if mask is None else mask
        if mask is not None and mask.ndim == 3:
            mask = mask.reshape(q.shape[0], self.num_heads, q.shape[2], k.shape[2])
        if padding is not None:
            padding = additive(padding, q).reshape(q.shape[0], 1, 1, k.shape[2])
        if mask is None:
            return padding
        mask = additive(mask, q)
        return mask if padding is None else mask + padding

    def _attended(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        p = self.dropout if Tensor.training else 0.0
        if not need_weights:
            return q.scaled_dot_product_attention(k, v, mask, p), None
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        weights = (scores if mask is None else scores + mask).softmax(-1).dropout(p)
        return weights @ v, weights


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What `MultiheadAttention` does, with the weights given: queries, keys and values (length,
    batch, features), or without batch.

    Raises:
        ArgumentError: the three weights of `use_separate_proj_weight` aren't given, or else the
            joined one.

    >>> x, w = Tensor.ones(5, 8), Tensor.ones(24, 8)
    >>> more = None, None, None, False, 0.0, Tensor.ones(8, 8), None
    >>> multi_head_attention_forward(x, x, x, 8, 2, w, *more)[0].shape
    (5, 8)
    """
    layer = MultiheadAttention.__new__(MultiheadAttention)
    layer._hold(embed_dim_to_check, num_heads, dropout_p, add_zero_attn)
    joined, *apart = in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight
    if use_separate_proj_weight and all(weight is not None for weight in apart):
        layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight = apart  # type: ignore
    elif joined is not None and not use_separate_proj_weight:
        layer.in_proj_weight = joined
    else:
        raise ArgumentError(
            f"multi_head_attention_forward: {use_separate_proj_weight=} without its weights; legal "
            "are q_proj_weight, k_proj_weight and v_proj_weight if it is True, else in_proj_weight"
        )
    layer.in_proj_bias, layer.bias_k, layer.bias_v = in_proj_bias, bias_k, bias_v
    layer.out_proj = Linear.__new__(Linear)
    layer.out_proj.weight, layer.out_proj.bias = out_proj_weight, out_proj_bias
    masks = key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
    with Tensor.train(training):
        return layer(query, key, value, *masks)


def additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask that is added: -inf where a bool one is True."""
    return mask.where(-float("inf"), 0.0).cast(like.dtype) if mask.dtype is dtypes.bool else mask


class TransformerLayer:
    """Everything that encoder and decoder layers share, except how they apply it."""

    looks_back = False
    """Whether the layer also attends to a memory."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        heads = (d_model, nhead, dropout, bias)
        self.self_attn = MultiheadAttention(*heads, batch_first=batch_first)
        if self.looks_back:
            self.multihead_attn = MultiheadAttention(*heads, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        if self.looks_back:
            self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout = dropout
        self.norm_first = norm_first
        if isinstance(activation, str):
            check_choice(type(self).__name__, "activation", activation, ACTIVATIONS)
        self.activation = activation

    def _added(self, x: Tensor, norm: LayerNorm, part: Callable[[Tensor], Tensor]) -> Tensor:
        """x plus the result of a part of the layer, normalized before the part or after the sum."""
        if self.norm_first:
            return x + part(norm(x)).dropout(self.dropout)
        return norm(x + part(x).dropout(self.dropout))

    def _fed_forward(self, x: Tensor) -> Tensor:
        given = self.activation
        activation = ACTIVATIONS[given] if isinstance(given, str) else given
        return self.linear2(activation(self.linear1(x)).dropout(self.dropout))


class TransformerEncoderLayer(TransformerLayer):
    """Attention of a sequence to itself, then two linear layers, each added to what comes in.

    (Vaswani and others, "Attention Is All You Need", 2017.)

    Args:
        d_model: features of x, (length, batch, d_model).
        nhead: how many heads attend.
        dim_feedforward: features between the two linear layers.
        dropout: of each part's result, while training.
        activation: "relu", "gelu", or a function of a tensor.
        layer_norm_eps: added to the variance.
        batch_first: x is (batch, length, d_model).
        norm_first: normalize before each part instead of after it.
        bias: whether the linear layers add one.

    >>> TransformerEncoderLayer(8, 2, 16)(Tensor.ones(7, 2, 8)).shape
    (7, 2, 8)
    """

    def __call__(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(length, batch, d_model) → the same shape. Masks as in `MultiheadAttention`."""

        def attention(x: Tensor) -> Tensor:
            padding = src_key_padding_mask
            return self.self_attn(x, x, x, padding, False, src_mask, is_causal=is_causal)[0]

        x = self._added(src, self.norm1, attention)
        return self._added(x, self.norm2, self._fed_forward)


class TransformerDecoderLayer(TransformerLayer):
    """An encoder layer that also attends to a memory, the result of an encoder.

    Arguments as for `TransformerEncoderLayer`.

    >>> TransformerDecoderLayer(8, 2, 16)(Tensor.ones(3, 2, 8), Tensor.ones(7, 2, 8)).shape
    (3, 2, 8)
    """

    looks_back = True

    def __call__(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """A sequence and a memory (length, batch, d_model) → the shape of the sequence."""

        def attention(x: Tensor) -> Tensor:
            padding = tgt_key_padding_mask
            return self.self_attn(x, x, x, padding, False, tgt_mask, is_causal=tgt_is_causal)[0]

        def look_back(x: Tensor) -> Tensor:
            masks = (memory_key_padding_mask, False, memory_mask)
            return self.multihead_attn(x, memory, memory, *masks, is_causal=memory_is_causal)[0]

        x = self._added(tgt, self.norm1, attention)
        x = self._added(x, self.norm2, look_back)
        return self._added(x, self.norm3, self._fed_forward)
