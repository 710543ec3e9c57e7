"""The decoder that LLaMA and its relatives share: RMSNorm, rotary positions, gated linear units.

    x = x + attention(norm(x))
    x = x + feed(norm(x))

(Touvron and others, "LLaMA", 2023.) A family is a configuration and a table of names: `llama.py`,
`mistral.py`, `mixtral.py`, `qwen.py`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.models.activations import activation
from tinygrad.models.cache import Cache, Turn
from tinygrad.nn import Embedding, Linear, RMSNorm
from tinygrad.nn.experts import ChosenLinear, dealt
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder, and which parts it has."""

    vocab: int
    dim: int
    layers: int
    heads: int
    hidden: int  # size inside the gated linear unit
    kv_heads: int | None = None  # heads of keys and values; None: as many as heads
    head_dim: int | None = None  # None: dim / heads
    eps: float = 1e-5
    theta: float = 10000.0  # base of the rotary wavelengths
    scaling: dict[str, Any] = field(default_factory=dict)  # of them, as config.json says it
    length: int = 2048  # tokens that it was trained for
    tied: bool = False  # the head's weight is the embedding's
    qkv_bias: bool = False
    out_bias: bool = False
    feed_bias: bool = False
    activation: str = "silu"  # of the gates
    qk_norm: bool = False  # RMSNorm of each head of queries and keys
    window: int | None = None  # tokens that attention looks back
    windowed: tuple[bool, ...] | None = None  # the layers that have the window; None: all
    experts: int = 0  # 0: one feed-forward part; else a mixture of so many
    experts_used: int = 2  # of them for a token
    normalised: bool = True  # whether the weights of the experts used sum to 1

    def __post_init__(self) -> None:
        if self.heads % (self.kv_heads or self.heads):
            raise ArgumentError(
                f"decoder: {self.heads} heads share {self.kv_heads} heads of keys; legal is what "
                "divides"
            )

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def head_size(self) -> int:
        """Numbers a head."""
        return self.head_dim or self.dim // self.heads


# ---- rotary positions ----------------------------------------------------------------------------


def wavelength_rates(config: DecoderConfig) -> list[float]:
    """The angle a position turns each pair of a head's numbers, (head_size / 2,).

    (Su and others, "RoFormer", 2021; the scalings of longer texts as Hugging Face's
    `rope_scaling` names them, "linear", "llama3" and "yarn"; "divided" by a number each, as in
    GGUF files.)
    """
    size = config.head_size
    rates = [config.theta ** (-2 * i / size) for i in range(size // 2)]
    kind = scaling_of(config)
    if kind == "default":
        return rates
    if kind == "linear":
        return [rate / config.scaling["factor"] for rate in rates]
    if kind == "llama3":
        return [_llama3(rate, config.scaling) for rate in rates]
    if kind == "yarn":
        return _yarn(rates, config)
    if kind == "divided":
        return [r / by for r, by in zip(rates, config.scaling["factors"], strict=True)]
    raise ArgumentError(f"rope_scaling {kind!r}; legal are default, linear, llama3, yarn, divided")


def scaling_of(config: DecoderConfig) -> str:
    """What the scaling of wavelengths is called."""
    kind: str = config.scaling.get("rope_type", config.scaling.get("type", "default"))
    return kind


def wave_height(config: DecoderConfig) -> float:
    """What sines and cosines are multiplied by: more than 1 keeps scores of long texts sharp."""
    scaling = config.scaling
    if scaling_of(config) != "yarn":
        return 1.0
    if (given := scaling.get("attention_factor")) is not None:
        return float(given)

    def height(weight: float) -> float:
        return 0.1 * weight * math.log(scaling["factor"]) + 1.0 if scaling["factor"] > 1 else 1.0

    weight, over = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return height(weight) / height(over) if weight and over else height(1.0)


def _yarn(rates: list[float], config: DecoderConfig) -> list[float]:
    """Waves that turn seldom within the texts of the training are slowed by `factor`, those that
    turn often stay; between them, some of both. (Peng and others, "YaRN", 2023.)"""
    scaling, size = config.scaling, config.head_size
    trained = scaling.get("original_max_position_embeddings") or config.length

    def pair_that_turns(times: float) -> float:
        waves = math.log(trained / (times * 2 * math.pi)) / math.log(config.theta)
        return size * waves / 2

    first = pair_that_turns(scaling.get("beta_fast") or 32)
    last = pair_that_turns(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    last += 0.001 * (first == last)
    slow = [min(max((i - first) / (last - first), 0.0), 1.0) for i in range(len(rates))]
    return [r * (1 - s) + r / scaling["factor"] * s for r, s in zip(rates, slow, strict=True)]


def _llama3(rate: float, scaling: dict[str, Any]) -> float:
    """Long waves are slowed by `factor`, short ones stay; between them, some of both."""
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * rate / (2 * math.pi)
    share = min(max((turns - low) / (high - low), 0.0), 1.0)
    return rate * share + rate / float(scaling["factor"]) * (1 - share)


@functools.cache
def _on_device(rates: tuple[float, ...], device: str) -> Tensor:
    """Brought there once, and not at each step."""
    return Tensor(list(rates), device=device).realize()


def turned(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Each pair (i, i + size/2) of x (batch, heads, tokens, size) turned by its angle."""
    cos, sin = angles  # (batch or 1, 1, tokens, size / 2) each
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return (a * cos - b * sin).cat(b * cos + a * sin, dim=-1).cast(x.dtype)


# ---- the parts of a layer ------------------------------------------------------------------------


class Attention:
    """Causal attention whose queries share `key_heads` heads of keys and values."""

    def __init__(self, config: DecoderConfig) -> None:
        heads, shared, size = config.heads, config.key_heads, config.head_size
        self.query = Linear(config.dim, heads * size, config.qkv_bias)
        self.key = Linear(config.dim, shared * size, config.qkv_bias)
        self.value = Linear(config.dim, shared * size, config.qkv_bias)
        self.out = Linear(heads * size, config.dim, config.out_bias)
        if config.qk_norm:
            self.query_norm = RMSNorm(size, config.eps)
            self.key_norm = RMSNorm(size, config.eps)
        self._config = config

    def __call__(
        self, x: Tensor, layer: int, turn: Turn, angles: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """(batch, tokens, dim) → the same."""
        config = self._config
        query = self._heads(self.query(x), config.heads)  # (batch, heads, tokens, size)
        key = self._heads(self.key(x), config.key_heads)  # (batch, key_heads, tokens, size)
        value = self._heads(self.value(x), config.key_heads)
        if config.qk_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = turned(query, angles), turned(key, angles)
        key, value = turn.kept(layer, key, value)
        mixed = query.scaled_dot_product_attention(
            key, value, mask, is_causal=mask is None and turn.cache is None, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(*x.shape[:2], heads, self._config.head_size).transpose(1, 2)


class GatedLinear:
    """silu(gate(x))·up(x), brought back to dim. (Shazeer, "GLU Variants", 2020.)"""

    def __init__(self, config: DecoderConfig) -> None:
        dim, hidden, bias = config.dim, config.hidden, config.feed_bias
        self.gate = Linear(dim, hidden, bias)
        self.up = Linear(dim, hidden, bias)
        self.down = Linear(hidden, dim, bias)
        self._activation = activation(config.activation)

    def __call__(self, x: Tensor) -> Tensor:
        """(.., dim) → the same."""
        return self.down(self._activation(self.gate(x)) * self.up(x))


class Mixture:
    """A few of many gated linear units for each token, as a router says.

    (Jiang and others, "Mixtral of Experts", 2024.) The others are neither read nor computed.
    """

    def __init__(self, config: DecoderConfig) -> None:
        dim, hidden, experts = config.dim, config.hidden, config.experts
        self.router = Linear(dim, experts, bias=False)
        self.gate = ChosenLinear(experts, dim, hidden)
        self.up = ChosenLinear(experts, dim, hidden)
        self.down = ChosenLinear(experts, hidden, dim)
        self._experts, self._used = experts, config.experts_used
        self._normalised = config.normalised
        self._activation = activation(config.activation)

    def __call__(self, x: Tensor) -> Tensor:
        """(.., dim) → the same."""
        tokens = x.reshape(-1, x.shape[-1])  # (tokens, dim)
        shares = self.router(tokens).cast(dtypes.float32).softmax(-1)
        shares, chosen = shares.topk(self._used, dim=-1)  # (tokens, used)
        if self._normalised:
            shares = shares / shares.sum(-1, keepdim=True)
        deal = dealt(chosen, self._experts)
        given, which = tokens[deal.rows].contiguous(), deal.which  # (blocks, rows, dim)
        inside = self._activation(self.gate(given, which)) * self.up(given, which)
        found = self.down(inside, which).reshape(-1, x.shape[-1])[deal.places]  # (tokens, used, ..)
        return (found * shares.cast(x.dtype).unsqueeze(-1)).sum(1).reshape(x.shape)


class Layer:
    """Attention, then a feed-forward part; each of the normalized input, added to it."""

    def __init__(self, config: DecoderConfig) -> None:
        self.attention_norm = RMSNorm(config.dim, config.eps)
        self.attention = Attention(config)
        self.feed_norm = RMSNorm(config.dim, config.eps)
        self.feed = Mixture(config) if config.experts else GatedLinear(config)

    def __call__(
        self, x: Tensor, layer: int, turn: Turn, angles: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """(batch, tokens, dim) → the same."""
        x = x + self.attention(self.attention_norm(x), layer, turn, angles, mask)
        return x + self.feed(self.feed_norm(x))


class Decoder:
    """Tokens to the scores of what comes next.

    >>> model = Decoder(DecoderConfig(vocab=16, dim=8, layers=1, heads=2, hidden=16))
    >>> model(Tensor([[1, 2, 3]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.embed = Embedding(config.vocab, config.dim)
        self.layers = [Layer(config) for _ in range(config.layers)]
        self.norm = RMSNorm(config.dim, config.eps)
        if not config.tied:
            self.head = Linear(config.dim, config.vocab, bias=False)

    def __call__(self, tokens: Tensor, turn: Turn | None = None) -> Tensor:
        """Tokens (batch, tokens) → scores (batch, tokens, vocab)."""
        turn = turn or Turn()
        x = self.embed(tokens)  # (batch, tokens, dim)
        rates = _on_device(tuple(wavelength_rates(self.config)), x.device)
        angle = (turn.positions(tokens).unsqueeze(-1) * rates).unsqueeze(1)
        height = wave_height(self.config)
        angles = (angle.cos() * height).contiguous(), (angle.sin() * height).contiguous()
        windowed = self.config.windowed or (True,) * len(self.layers)
        masks = {
            near: turn.mask(tokens, self.config.window if near else None) for near in {*windowed}
        }
        for number, (layer, near) in enumerate(zip(self.layers, windowed, strict=True)):
            x = layer(x, number, turn, angles, masks[near])
        x = self.norm(x)
        return x.linear(self.embed.weight.T) if self.config.tied else self.head(x)

    @property
    def longest(self) -> int | None:
        """Tokens that a text may have: rotary positions have no end."""
        return None

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for what `batch` sequences of up to `length` tokens leave behind."""
        config, weight = self.config, self.embed.weight
        return Cache(
            config.layers, batch, config.key_heads, length, config.head_size,
            weight.dtype, str(weight.device),
        )  # fmt: skip
