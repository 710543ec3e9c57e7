"""T5. (Raffel and others, "Exploring the Limits of Transfer Learning", 2020.)

Positions are a learned number for each distance, added to the scores of attention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tinygrad.models.activations import activation
from tinygrad.models.attention import Attention, visible
from tinygrad.models.cache import Cache, Turn
from tinygrad.models.checkpoint import Names, Only, Pretrained
from tinygrad.models.words import Words
from tinygrad.nn import Embedding, Linear, RMSNorm
from tinygrad.tensor import Tensor

Pair = tuple[Tensor, Tensor]  # keys and values


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
    gated: bool = False  # T5 1.1: activation(gate)·up instead of activation(up)
    activation: str = "relu"
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
        self._gated, self._activation = config.gated, activation(config.activation)

    def __call__(self, x: Tensor) -> Tensor:
        """(.., dim) → the same."""
        if self._gated:
            return self.down(self._activation(self.gate(x)) * self.up(x))
        return self.down(self._activation(self.up(x)))


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
        self,
        x: Tensor,
        scores: Tensor,
        number: int,
        turn: Turn,
        seen: Pair | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """x (batch, tokens, dim) → the same.

        `scores` are added to those of x with itself and, in the decoder, with what the cache of
        layer `number` keeps; `seen` are keys and values of the encoder's result, and `mask` says
        what of it counts.
        """
        own, given = self.attention, self.norm1(x)
        key, value = turn.kept(number, own.split(own.key(given)), own.split(own.value(given)))
        x = x + own.mixed(given, key, value, scores)
        if seen is not None:
            x = x + self.across.mixed(self.norm2(x), *seen, mask)
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
        self._config = config

    def encoded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (batch, tokens, dim) → the same; the mask as `visible` makes it."""
        buckets = distance_buckets(x.shape[1], self._config, both_ways=True)
        scores = self._scores(Tensor(buckets, device=x.device))
        if mask is not None:
            scores = mask.where(scores, -math.inf)
        for number, layer in enumerate(self.layers):
            x = layer(x, scores, number, Turn())
        return self.norm(x)

    def decoded(self, x: Tensor, seen: list[Pair], mask: Tensor | None, turn: Turn) -> Tensor:
        """x (batch, tokens, dim) → the same, after the tokens that `turn` knows; `seen` has keys
        and values of the encoder's result for each layer, the mask is of it."""
        count = x.shape[1]
        most = count if turn.cache is None else turn.cache.length
        by_distance = distance_buckets(most, self._config, both_ways=False)[-1, ::-1].copy()
        index = (Tensor.arange(count, device=x.device) + turn.start).reshape(count, 1)
        back = (index - Tensor.arange(most, device=x.device).reshape(1, most)).maximum(0)
        scores = self._scores(Tensor(by_distance, device=x.device)[back])
        if turn.cache is not None:
            scores = scores[:, :, :, 0 : turn.start + count]
        allowed = turn.mask(x)
        if allowed is not None:
            scores = allowed.where(scores, -math.inf)
        for number, (layer, pair) in enumerate(zip(self.layers, seen, strict=True)):
            x = layer(x, scores, number, turn, pair, mask)
        return self.norm(x)

    def _scores(self, buckets: Tensor) -> Tensor:
        """(queries, keys) → (1, heads, queries, keys): a number for each distance."""
        return self.distances(buckets).permute(2, 0, 1).unsqueeze(0)


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


class T5(Words, Pretrained):
    """A text to the scores of another one, token by token.

    >>> config = T5Config(vocab=16, dim=8, head_dim=4, hidden=16, layers=1, heads=2)
    >>> T5(config)(Tensor([[1, 2, 3]]), Tensor([[0, 4]])).shape
    (1, 2, 16)
    """

    ONLY: ClassVar[Only] = {"model_type": ("t5",), "is_decoder": (False,)}
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
        super().__init__(config.vocab, config.dim, config.tied)
        self.encoder = Stack(config, decodes=False)
        self.decoder = Stack(config, decodes=True)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        feed = config.get("feed_forward_proj", "relu")
        shape = feed.removeprefix("gated-")
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
                shape != feed,
                "gelu_new" if feed == "gated-gelu" else shape,
                config.get("tie_word_embeddings", True),
                config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True)),
                config.get("decoder_start_token_id", 0),
            )
        )

    def encode(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Tokens (batch, tokens) → a vector each (batch, tokens, dim); mask: 1 where one counts."""
        return self.encoder.encoded(self.embed(tokens), visible(mask))

    def __call__(self, tokens: Tensor, written: Tensor, mask: Tensor | None = None) -> Tensor:
        """A text, and what was written so far → scores (batch, written, vocab)."""
        return Reading(self, self.encode(tokens, mask), mask)(written)

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> Reading:
        """What an answer is made from with `generate`: a text (batch, tokens), encoded once; the
        mask is 1 where a token counts."""
        reading = Reading(self, self.encode(tokens, mask), mask)
        reading.realize()
        return reading


class Reading:
    """A text that was read: `generate(model.read(tokens), [[config.start]])`."""

    def __init__(self, model: T5, seen: Tensor, mask: Tensor | None) -> None:
        self._model, self._mask = model, visible(mask)
        looks = [layer.across for layer in model.decoder.layers]
        self._seen = [(look.split(look.key(seen)), look.split(look.value(seen))) for look in looks]

    def realize(self) -> None:
        """Computes what every token will look at."""
        self._seen = [(key.contiguous(), value.contiguous()) for key, value in self._seen]
        first, *rest = (tensor for pair in self._seen for tensor in pair)
        first.realize(*rest, *([] if self._mask is None else [self._mask]))

    def __call__(self, tokens: Tensor, turn: Turn | None = None) -> Tensor:
        """Tokens (batch, tokens) → scores (batch, tokens, vocab)."""
        model, config = self._model, self._model.config
        x = model.decoder.decoded(model.embed(tokens), self._seen, self._mask, turn or Turn())
        if config.scaled:
            x = x * config.dim**-0.5
        return model.scores(x)

    @property
    def longest(self) -> int | None:
        """Tokens that a text may have: distances have no end."""
        return None

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for what `batch` texts of up to `length` tokens leave behind."""
        config, weight = self._model.config, self._model.embed.weight
        return Cache(
            config.decoder_layers, batch, config.heads, length, config.head_dim,
            weight.dtype, weight.device,
        )  # fmt: skip
