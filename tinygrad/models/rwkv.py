"""RWKV 4: attention whose weights only fall with distance, so that a few sums hold all of it.

(Peng and others, "RWKV: Reinventing RNNs for the Transformer Era", 2023.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.checkpoint import Names, Only
from tinygrad.models.states import Recurrent, States
from tinygrad.nn import LayerNorm, Linear
from tinygrad.tensor import Tensor
from tinygrad.tensor.scan import scan


@dataclass(frozen=True)
class RWKVConfig:
    """Sizes; the defaults are those of the model of 169 million parameters."""

    vocab: int = 50277
    dim: int = 768
    layers: int = 12
    inner: int = 768  # channels of the attention
    hidden: int = 3072
    eps: float = 1e-5
    tied: bool = False
    halving: int = 0  # layers after which what runs through them is halved, for narrow floats

    def eps_at(self, layer: int) -> float:
        """Norms undo such halves but for their eps, so it grows in their place; that of the norm
        behind the layers is always 1e-5."""
        eps = self.eps if layer < self.layers else 1e-5
        return eps * 4 ** (layer // self.halving) if self.halving else eps


def mixed(x: Tensor, before: Tensor, share: Tensor) -> Tensor:
    """Each token with the one before it: x·share + before·(1 - share)."""
    return x * share + before * (1 - share)


def shifted(x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The token before each of x (batch, tokens, dim), where `last` (batch, dim) came before the
    first; and the last one of x."""
    return last.unsqueeze(1).cat(x[:, :-1], dim=1), x[:, -1]


class TimeMix:
    """A weighted mean of all values so far: weights e^key, less with each token since."""

    def __init__(self, config: RWKVConfig) -> None:
        dim, inner = config.dim, config.inner
        self.decay = Tensor.zeros(inner)
        self.first = Tensor.zeros(inner)  # how much more the newest counts
        self.mix_key = Tensor.ones(1, 1, dim) * 0.5
        self.mix_value = Tensor.ones(1, 1, dim) * 0.5
        self.mix_gate = Tensor.ones(1, 1, dim) * 0.5
        self.key = Linear(dim, inner, bias=False)
        self.value = Linear(dim, inner, bias=False)
        self.gate = Linear(dim, inner, bias=False)
        self.out = Linear(inner, dim, bias=False)

    def __call__(self, x: Tensor, states: States) -> tuple[Tensor, States]:
        """x (batch, tokens, dim) → the same, and the states after it.

        States: the last token, the sum of weighted values, that of weights, and the exponent that
        both were divided by, so that nothing overflows.
        """
        last, *sums = states
        before, last = shifted(x, last)
        key = self.key(mixed(x, before, self.mix_key))  # (batch, tokens, inner)
        value = self.value(mixed(x, before, self.mix_value))
        gate = self.gate(mixed(x, before, self.mix_gate)).sigmoid()
        decay, first = -self.decay.exp(), self.first

        def turn(total: Tensor, weight: Tensor, most: Tensor, key: Tensor, value: Tensor) -> Any:
            top = most.maximum(key + first)  # the newest token counts more, once
            old, new = (most - top).exp(), (key + first - top).exp()
            seen = (old * total + new * value) / (old * weight + new)
            top = (most + decay).maximum(key)
            old, new = (most + decay - top).exp(), (key - top).exp()
            return [old * total + new * value, old * weight + new, top], [seen]

        along = [t.transpose(0, 1).contiguous() for t in (key, value)]
        after, (seen,) = scan(turn, sums, along)
        return self.out(gate * seen.transpose(0, 1)), (last, *after)


class ChannelMix:
    """Two linear layers with relu² between them, gated."""

    def __init__(self, config: RWKVConfig) -> None:
        dim = config.dim
        self.mix_key = Tensor.ones(1, 1, dim) * 0.5
        self.mix_gate = Tensor.ones(1, 1, dim) * 0.5
        self.key = Linear(dim, config.hidden, bias=False)
        self.gate = Linear(dim, dim, bias=False)
        self.value = Linear(config.hidden, dim, bias=False)

    def __call__(self, x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """x (batch, tokens, dim) and the token before → the same, and the last token."""
        before, last = shifted(x, last)
        key = self.key(mixed(x, before, self.mix_key)).relu().square()
        gate = self.gate(mixed(x, before, self.mix_gate)).sigmoid()
        return gate * self.value(key), last


class Layer:
    """Both mixes of the normalized input, added to it."""

    def __init__(self, config: RWKVConfig, number: int) -> None:
        self.norm1 = LayerNorm(config.dim, config.eps_at(number))
        self.time = TimeMix(config)
        self.norm2 = LayerNorm(config.dim, config.eps_at(number))
        self.channel = ChannelMix(config)

    def __call__(self, x: Tensor, before: States) -> tuple[Tensor, States]:
        """(batch, tokens, dim) → the same, and the states after it."""
        last, *rest = before
        seen, time = self.time(self.norm1(x), tuple(rest))
        x = x + seen
        out, last = self.channel(self.norm2(x), last)
        return x + out, (last, *time)


class RWKV(Recurrent):
    """Tokens to the scores of what comes next.

    >>> model = RWKV(RWKVConfig(vocab=16, dim=8, layers=1, inner=8, hidden=16))
    >>> model(Tensor([[1, 2, 3]])).shape
    (1, 3, 16)
    """

    ONLY: ClassVar[Only] = {"model_type": ("rwkv",)}
    NAMES: ClassVar[Names] = {
        "rwkv.embeddings": "embed",
        "rwkv.blocks.0.pre_ln": "norm_before",
        **{
            f"rwkv.blocks.{{}}.{theirs}": f"layers.{{}}.{ours}"
            for theirs, ours in (
                ("ln1", "norm1"),
                ("ln2", "norm2"),
                ("attention.time_decay", "time.decay"),
                ("attention.time_first", "time.first"),
                ("attention.time_mix_key", "time.mix_key"),
                ("attention.time_mix_value", "time.mix_value"),
                ("attention.time_mix_receptance", "time.mix_gate"),
                ("attention.key", "time.key"),
                ("attention.value", "time.value"),
                ("attention.receptance", "time.gate"),
                ("attention.output", "time.out"),
                ("feed_forward.time_mix_key", "channel.mix_key"),
                ("feed_forward.time_mix_receptance", "channel.mix_gate"),
                ("feed_forward.key", "channel.key"),
                ("feed_forward.receptance", "channel.gate"),
                ("feed_forward.value", "channel.value"),
            )
        },
        "rwkv.ln_out": "norm",
        "head": "head",
    }

    def __init__(self, config: RWKVConfig | None = None) -> None:
        self.config = config = config or RWKVConfig()
        super().__init__(config.vocab, config.dim, config.tied)
        self.norm_before = LayerNorm(config.dim, config.eps)
        self.layers = [Layer(config, number) for number in range(config.layers)]
        self.norm = LayerNorm(config.dim, config.eps_at(config.layers))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        dim = config["hidden_size"]
        return cls(
            RWKVConfig(
                config["vocab_size"],
                dim,
                config["num_hidden_layers"],
                config.get("attention_hidden_size") or dim,
                config.get("intermediate_size") or 4 * dim,
                config["layer_norm_epsilon"],
                config.get("tie_word_embeddings", False),
                config.get("rescale_every", 6),
            )
        )

    def embedded(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) → (batch, tokens, dim)."""
        return self.norm_before(self.embed(tokens))

    def new_states(self, batch: int) -> list[States]:
        """The states of `batch` sequences before their first token."""
        config = self.config
        token, sums = (batch, config.dim), (batch, config.inner)
        device = self.embed.weight.device
        return [
            (
                Tensor.zeros(*token, device=device),
                Tensor.zeros(*token, device=device),
                Tensor.zeros(*sums, device=device),
                Tensor.zeros(*sums, device=device),
                Tensor.full(sums, -1e38, device=device),
            )
            for _ in self.layers
        ]
