"""Attention as encoders have it: of a sequence to itself, or to another one."""

from __future__ import annotations

from tinygrad.models.activations import activation
from tinygrad.nn import LayerNorm, Linear
from tinygrad.tensor import Tensor


class Attention:
    """Several attentions side by side, each over its part of the features.

    Args:
        dim: features of the queries and of the result.
        heads: how many attentions; must divide `inner`.
        context: features of the keys and values; None: dim.
        inner: features of all heads together; None: dim.
        qkv_bias: whether queries and values add one.
        key_bias: whether keys do; None: as queries.
        out_bias: whether the result does.
        scale: what scores are multiplied by; None: 1 / √(features of a head).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        context: int | None = None,
        inner: int | None = None,
        qkv_bias: bool = True,
        key_bias: bool | None = None,
        out_bias: bool = True,
        scale: float | None = None,
    ) -> None:
        inner, context = inner or dim, context or dim
        self.query = Linear(dim, inner, qkv_bias)
        self.key = Linear(context, inner, qkv_bias if key_bias is None else key_bias)
        self.value = Linear(context, inner, qkv_bias)
        self.out = Linear(inner, dim, out_bias)
        self.heads = heads
        self._factor = 1.0 if scale is None else scale * (inner // heads) ** 0.5

    def __call__(
        self,
        x: Tensor,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """x (batch, queries, dim) looks at context (batch, keys, its features), or itself.

        The mask (.., queries, keys) is True where may be looked, or is added to the scores.
        """
        context = x if context is None else context
        key, value = self.split(self.key(context)), self.split(self.value(context))
        return self.mixed(x, key, value, mask, causal)

    def mixed(
        self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool = False
    ) -> Tensor:
        """x (batch, queries, dim) looks at keys and values (batch, heads, keys, size)."""
        query = self.split(self.query(x))
        if self._factor != 1.0:
            query = query * self._factor
        seen = query.scaled_dot_product_attention(key, value, mask, is_causal=causal)
        return self.out(seen.transpose(1, 2).reshape(*x.shape[:2], -1))

    def split(self, x: Tensor) -> Tensor:
        """(batch, tokens, inner) → (batch, heads, tokens, size)."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


class EncoderLayer:
    """Attention, then two linear layers; each of the normalized input, added to it."""

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        eps: float,
        kind: str = "gelu",
        qkv_bias: bool = True,
    ) -> None:
        self.norm1 = LayerNorm(dim, eps)
        self.attention = Attention(dim, heads, qkv_bias=qkv_bias)
        self.norm2 = LayerNorm(dim, eps)
        self.up = Linear(dim, hidden)
        self.down = Linear(hidden, dim)
        self._activation = activation(kind)

    def __call__(self, x: Tensor, causal: bool = False) -> Tensor:
        """(batch, tokens, dim) → the same."""
        x = x + self.attention(self.norm1(x), causal=causal)
        return x + self.down(self._activation(self.up(self.norm2(x))))


def visible(mask: Tensor | None) -> Tensor | None:
    """Tokens that count (batch, keys), 1 or 0, as a mask for (batch, heads, queries, keys)."""
    return None if mask is None else mask.reshape(mask.shape[0], 1, 1, mask.shape[1]) != 0
