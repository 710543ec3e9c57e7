"""T5. (Raffel and others, "Exploring the Limits of Transfer Learning", 2020.)

Positions are a learned number for each distance, added to the scores of attention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tinygrad.models.attention import Attention, visible
from tinygrad.models.checkpoint import Names, Pretrained
from tinygrad.nn import Embedding, Linear, RMSNorm
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class T5Config:
    """Sizes; the defaults are those of t5-small."""

    vocab: int = 32128
    dim: int = 512
    head_dim: int = 64
    hidden: int = 2048
    layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    buckets: int = 32  # of distances
    farthest: int = 128  # distances from here on share a bucket
    eps: float = 1e-6
    gated: bool = False  # T5 1.1: gelu(gate)·up instead of relu(up)
    tied: bool = True  # the head's weight is the embedding's
    scaled: bool = True  # what the head sees is divided by √dim
    start: int = 0  # the token that a decoder begins with


class Feed:
    """Two linear layers, or a gated pair and one."""

    def __init__(self, config: T5Config) -> None:
        self.up = Linear(config.dim, config.hidden, bias=False)
        if config.gated:
            self.gate = Linear(config.dim, config.hidden, bias=False)
        self.down = Linear(config.hidden, config.dim, bias=False)
        self._gated = config.gated

    def __call__(self, x: Tensor) -> Tensor:
        """(.., dim) → the same."""
        return self.down(self.gate(x).gelu() * self.up(x) if self._gated else self.up(x).relu())


class Layer:
    """Attention, in a decoder also to the encoder's result, then the feed-forward part."""

    def __init__(self, config: T5Config, decodes: bool) -> None:
        self.norm1 = RMSNorm(config.dim, config.eps)
        self.attention = _attention(config)
        if decodes:
            self.norm2 = RMSNorm(config.dim, config.eps)
            self.across = _attention(config)
        self.norm3 = RMSNorm(config.dim, config.eps)
        self.feed = Feed(config)

    def __call__(
        self, x: Tensor, scores: Tensor, seen: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """x (batch, tokens, dim) → the same.

        `scores` are added to those of x with itself; `seen` is the encoder's result and `mask`
        says what of it counts.
        """
        x = x + self.attention(self.norm1(x), mask=scores)
        if seen is not None:
            x = x + self.across(self.norm2(x), seen, mask)
        return x + self.feed(self.norm3(x))


def _attention(config: T5Config) -> Attention:
    inner = config.heads * config.head_dim
    return Attention(
        config.dim, config.heads, inner=inner, qkv_bias=False, out_bias=False, scale=1.0
    )


class Stack:
    """The layers of the encoder, or of the decoder."""

    def __init__(self, config: T5Config, decodes: bool) -> None:
        layers = config.decoder_layers if decodes else config.layers
        self.layers = [Layer(config, decodes) for _ in range(layers)]
        self.distances = Embedding(config.buckets, config.heads)
        self.norm = RMSNorm(config.dim, config.eps)
        self._config, self._decodes = config, decodes

    def __call__(
        self,
        x: Tensor,
        own: Tensor | None = None,
        seen: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """x (batch, tokens, dim) → the same; masks as `visible` makes them, for x and for seen."""
        scores = self._scores(x.shape[1], str(x.device))
        if own is not None:
            scores = own.where(scores, -math.inf)
        for layer in self.layers:
            x = layer(x, scores, seen, mask)
        return self.norm(x)

    def _scores(self, count: int, device: str) -> Tensor:
        """(1, heads, queries, keys): a number for each distance, -inf where may not be looked."""
        buckets = distance_buckets(count, self._config, not self._decodes)
        scores = self.distances(Tensor(buckets, device=device)).permute(2, 0, 1).unsqueeze(0)
        if not self._decodes:
            return scores
        return Tensor.ones(count, count, device=device).tril().where(scores, -math.inf)


def distance_buckets(count: int, config: T5Config, both_ways: bool) -> np.ndarray[Any, Any]:
    """(queries, keys): the bucket of each distance; near ones have their own, far ones share.

    >>> distance_buckets(3, T5Config(), both_ways=False).tolist()
    [[0, 0, 0], [1, 0, 0], [2, 1, 0]]
    """
    back = np.arange(count)[:, None] - np.arange(count)[None, :]  # how far the key lies before
    buckets = config.buckets // 2 if both_ways else config.buckets
    first = np.where(back < 0, buckets, 0) if both_ways else 0
    back = np.abs(back) if both_ways else np.maximum(back, 0)
    near = buckets // 2
    ratio = np.log(np.maximum(back, 1) / near, dtype=np.float32) / math.log(config.farthest / near)
    far = np.minimum(near + (ratio * (buckets - near)).astype(np.int32), buckets - 1)
    return np.asarray(first + np.where(back < near, back, far), np.int32)


class T5(Pretrained):
    """A text to the scores of another one, token by token.

    >>> config = T5Config(vocab=16, dim=8, head_dim=4, hidden=16, layers=1, heads=2)
    >>> T5(config)(Tensor([[1, 2, 3]]), Tensor([[0, 4]])).shape
    (1, 2, 16)
    """

    NAMES: ClassVar[Names] = {
        "shared": "embed",
        "encoder.embed_tokens": None,
        "decoder.embed_tokens": None,
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias": "encoder.distances",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias": "decoder.distances",
        "encoder.final_layer_norm": "encoder.norm",
        "decoder.final_layer_norm": "decoder.norm",
        "lm_head": "head",
        **{
            f"{side}.block.{{}}.layer.{part}.{theirs}": f"{side}.layers.{{}}.{ours}"
            for side, part, block, own in (
                ("encoder", 0, "SelfAttention", "attention"),
                ("decoder", 0, "SelfAttention", "attention"),
                ("decoder", 1, "EncDecAttention", "across"),
            )
            for theirs, ours in (
                (f"{block}.q", f"{own}.query"),
                (f"{block}.k", f"{own}.key"),
                (f"{block}.v", f"{own}.value"),
                (f"{block}.o", f"{own}.out"),
                ("layer_norm", f"norm{part + 1}"),
            )
        },
        **{
            f"{side}.block.{{}}.layer.{part}.{theirs}": f"{side}.layers.{{}}.{ours}"
            for side, part in (("encoder", 1), ("decoder", 2))
            for theirs, ours in (
                ("DenseReluDense.wi", "feed.up"),
                ("DenseReluDense.wi_0", "feed.gate"),
                ("DenseReluDense.wi_1", "feed.up"),
                ("DenseReluDense.wo", "feed.down"),
                ("layer_norm", "norm3"),
            )
        },
    }

    def __init__(self, config: T5Config | None = None) -> None:
        self.config = config = config or T5Config()
        self.embed = Embedding(config.vocab, config.dim)
        self.encoder = Stack(config, decodes=False)
        self.decoder = Stack(config, decodes=True)
        if not config.tied:
            self.head = Linear(config.dim, config.vocab, bias=False)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(
            T5Config(
                config["vocab_size"],
                config["d_model"],
                config["d_kv"],
                config["d_ff"],
                config["num_layers"],
                config.get("num_decoder_layers") or config["num_layers"],
                config["num_heads"],
                config["relative_attention_num_buckets"],
                config.get("relative_attention_max_distance", 128),
                config["layer_norm_epsilon"],
                "gated" in config.get("feed_forward_proj", "relu"),
                config.get("tie_word_embeddings", True),
                config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True)),
                config.get("decoder_start_token_id", 0),
            )
        )

    def names(self) -> Names:
        """With tied weights, a checkpoint's copy of the embedding isn't needed."""
        return {**self.NAMES, "lm_head": None} if self.config.tied else self.NAMES

    def encode(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Tokens (batch, tokens) → a vector each (batch, tokens, dim); mask: 1 where one counts."""
        return self.encoder(self.embed(tokens), visible(mask))

    def decode(self, tokens: Tensor, seen: Tensor, mask: Tensor | None = None) -> Tensor:
        """What was written so far (batch, tokens), the encoded text → (batch, tokens, vocab)."""
        x = self.decoder(self.embed(tokens), None, seen, visible(mask))
        if self.config.scaled:
            x = x * self.config.dim**-0.5
        return x.linear(self.embed.weight.T) if self.config.tied else self.head(x)

    def __call__(self, tokens: Tensor, written: Tensor, mask: Tensor | None = None) -> Tensor:
        """A text, and what was written so far → scores (batch, written, vocab)."""
        return self.decode(written, self.encode(tokens, mask), mask)
