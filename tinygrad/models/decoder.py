"""The decoder that LLaMA and its relatives share: RMSNorm, rotary positions, gated linear units.

    x = x + attention(norm(x))
    x = x + feed(norm(x))

(Touvron and others, "LLaMA", 2023.) A family is a configuration and a table of names: `llama.py`,
`mistral.py`, `mixtral.py`, `qwen.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.models.activations import activation
from tinygrad.models.cache import Cache, Turn
from tinygrad.models.rotary import Rotary, turned
from tinygrad.models.words import Words
from tinygrad.nn import Linear, RMSNorm
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
    expert_hidden: int | None = None  # size inside an expert; None: hidden
    shared_hidden: int = 0  # and inside one more that all tokens go through; 0: there is none
    mixed: tuple[bool, ...] | None = None  # the layers that have a mixture; None: all

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

    @property
    def rotary(self) -> Rotary:
        """How heads are turned."""
        return Rotary(self.head_size, self.theta, self.length, self.scaling)

    def mixes(self, layer: int) -> bool:
        """Whether this layer has a mixture of experts."""
        return self.experts > 0 and (self.mixed is None or self.mixed[layer])


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

    def __init__(self, config: DecoderConfig, hidden: int) -> None:
        dim, bias = config.dim, config.feed_bias
        self.gate = Linear(dim, hidden, bias)
        self.up = Linear(dim, hidden, bias)
        self.down = Linear(hidden, dim, bias)
        self._activation = activation(config.activation)

    def __call__(self, x: Tensor) -> Tensor:
        """(.., dim) → the same."""
        return self.down(self._activation(self.gate(x)) * self.up(x))


class Mixture:
    """A few of many gated linear units for each token, as a router says.

    (Jiang and others, "Mixtral of Experts", 2024.) The others are neither read nor computed. Where
    one more is shared, all tokens go through it, each by its gate. (Dai and others, "DeepSeekMoE",
    2024.)
    """

    def __init__(self, config: DecoderConfig) -> None:
        dim, experts, hidden = config.dim, config.experts, config.expert_hidden or config.hidden
        self.router = Linear(dim, experts, bias=False)
        self.gate = ChosenLinear(experts, dim, hidden)
        self.up = ChosenLinear(experts, dim, hidden)
        self.down = ChosenLinear(experts, hidden, dim)
        if config.shared_hidden:
            self.shared = GatedLinear(config, config.shared_hidden)
            self.shared_gate = Linear(dim, 1, bias=False)
        self._shares = config.shared_hidden > 0
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
        mixed = (found * shares.cast(x.dtype).unsqueeze(-1)).sum(1)  # (tokens, dim)
        if self._shares:
            mixed = mixed + self.shared_gate(tokens).sigmoid() * self.shared(tokens)
        return mixed.reshape(x.shape)


class Layer:
    """Attention, then a feed-forward part; each of the normalized input, added to it."""

    def __init__(self, config: DecoderConfig, mixes: bool) -> None:
        self.attention_norm = RMSNorm(config.dim, config.eps)
        self.attention = Attention(config)
        self.feed_norm = RMSNorm(config.dim, config.eps)
        self.feed = Mixture(config) if mixes else GatedLinear(config, config.hidden)

    def __call__(
        self, x: Tensor, layer: int, turn: Turn, angles: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """(batch, tokens, dim) → the same."""
        x = x + self.attention(self.attention_norm(x), layer, turn, angles, mask)
        return x + self.feed(self.feed_norm(x))


class Decoder(Words):
    """Tokens to the scores of what comes next.

    >>> model = Decoder(DecoderConfig(vocab=16, dim=8, layers=1, heads=2, hidden=16))
    >>> model(Tensor([[1, 2, 3]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config.vocab, config.dim, config.tied)
        self.config, self._rotary = config, config.rotary
        self.layers = [Layer(config, config.mixes(i)) for i in range(config.layers)]
        self.norm = RMSNorm(config.dim, config.eps)

    def __call__(self, tokens: Tensor, turn: Turn | None = None) -> Tensor:
        """Tokens (batch, tokens) → scores (batch, tokens, vocab)."""
        turn = turn or Turn()
        x = self.embed(tokens)  # (batch, tokens, dim)
        angles = self._rotary.angles(turn.positions(tokens), turn.length(tokens))
        windowed = self.config.windowed or (True,) * len(self.layers)
        masks = {
            near: turn.mask(tokens, self.config.window if near else None) for near in {*windowed}
        }
        for number, (layer, near) in enumerate(zip(self.layers, windowed, strict=True)):
            x = layer(x, number, turn, angles, masks[near])
        return self.scores(self.norm(x))

    @property
    def longest(self) -> int | None:
        """Tokens that a text may have: rotary positions have no end."""
        return None

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for what `batch` sequences of up to `length` tokens leave behind."""
        config, weight = self.config, self.embed.weight
        return Cache(
            config.layers, batch, config.key_heads, length, config.head_size,
            weight.dtype, weight.device,
        )  # fmt: skip
