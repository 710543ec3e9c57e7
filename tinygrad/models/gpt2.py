"""GPT-2. (Radford and others, "Language Models are Unsupervised Multitask Learners", 2019.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.activations import activation
from tinygrad.models.cache import Cache, Turn
from tinygrad.models.checkpoint import Names, Only, Pretrained, transposed
from tinygrad.models.words import Words
from tinygrad.nn import Embedding, LayerNorm, Linear
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class GPT2Config:
    """Sizes; the defaults are those of the small model of 124 million parameters."""

    vocab: int = 50257
    length: int = 1024
    dim: int = 768
    layers: int = 12
    heads: int = 12
    eps: float = 1e-5
    hidden: int | None = None  # between the two linear layers; None: 4 times dim
    activation: str = "gelu_new"
    tied: bool = True  # the head's weight is the embedding's
    scaled: bool = True  # scores are divided by √(numbers a head)
    scaled_by_depth: bool = False  # and in the i-th layer by i


class Layer:
    """Attention, then two linear layers; each of the normalized input, added to it."""

    def __init__(self, config: GPT2Config, depth: int) -> None:
        dim, hidden = config.dim, config.hidden or 4 * config.dim
        self.norm1 = LayerNorm(dim, config.eps)
        self.mix = Linear(dim, 3 * dim)  # queries, keys and values
        self.out = Linear(dim, dim)
        self.norm2 = LayerNorm(dim, config.eps)
        self.up = Linear(dim, hidden)
        self.down = Linear(hidden, dim)
        self._heads = config.heads
        self._activation = activation(config.activation)
        self._factor = 1.0 if config.scaled else (dim // config.heads) ** 0.5
        self._factor /= depth if config.scaled_by_depth else 1

    def __call__(self, x: Tensor, layer: int, turn: Turn, mask: Tensor | None) -> Tensor:
        """(batch, tokens, dim) → the same."""
        batch, count, dim = x.shape
        mixed = self.mix(self.norm1(x)).reshape(batch, count, 3, self._heads, dim // self._heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)  # (batch, heads, tokens, size) each
        query = query if self._factor == 1.0 else query * self._factor
        key, value = turn.kept(layer, key, value)
        causal = mask is None and turn.cache is None
        seen = query.scaled_dot_product_attention(key, value, mask, is_causal=causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, count, dim))
        return x + self.down(self._activation(self.up(self.norm2(x))))


class GPT2(Words, Pretrained):
    """Tokens to the scores of what comes next.

    >>> model = GPT2(GPT2Config(vocab=16, length=8, dim=8, layers=1, heads=2))
    >>> model(Tensor([[1, 2, 3]])).shape
    (1, 3, 16)
    """

    ONLY: ClassVar[Only] = {"model_type": ("gpt2",)}
    NAMES: ClassVar[Names] = {
        "wte": "embed",
        "wpe": "places",
        "h.{}.ln_1": "layers.{}.norm1",
        "h.{}.attn.c_attn.weight": ("layers.{}.mix.weight", transposed),
        "h.{}.attn.c_attn.bias": "layers.{}.mix.bias",
        "h.{}.attn.c_proj.weight": ("layers.{}.out.weight", transposed),
        "h.{}.attn.c_proj.bias": "layers.{}.out.bias",
        "h.{}.attn.bias": None,
        "h.{}.attn.masked_bias": None,
        "h.{}.ln_2": "layers.{}.norm2",
        "h.{}.mlp.c_fc.weight": ("layers.{}.up.weight", transposed),
        "h.{}.mlp.c_fc.bias": "layers.{}.up.bias",
        "h.{}.mlp.c_proj.weight": ("layers.{}.down.weight", transposed),
        "h.{}.mlp.c_proj.bias": "layers.{}.down.bias",
        "ln_f": "norm",
        "lm_head": "head",
    }

    def __init__(self, config: GPT2Config | None = None) -> None:
        self.config = config = config or GPT2Config()
        super().__init__(config.vocab, config.dim, config.tied)
        self.places = Embedding(config.length, config.dim)
        self.layers = [Layer(config, i + 1) for i in range(config.layers)]
        self.norm = LayerNorm(config.dim, config.eps)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(
            GPT2Config(
                config["vocab_size"],
                config["n_positions"],
                config["n_embd"],
                config["n_layer"],
                config["n_head"],
                config["layer_norm_epsilon"],
                config.get("n_inner"),
                config.get("activation_function", "gelu_new"),
                config.get("tie_word_embeddings", True),
                config.get("scale_attn_weights", True),
                config.get("scale_attn_by_inverse_layer_idx", False),
            )
        )

    def load(self, state: Mapping[str, Tensor], strict: bool = True) -> Self:
        """Takes the weights of a checkpoint, with or without the prefix `transformer.`."""
        plain = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
        return super().load(plain, strict)

    def __call__(self, tokens: Tensor, turn: Turn | None = None) -> Tensor:
        """Tokens (batch, tokens) → scores (batch, tokens, vocab)."""
        turn = turn or Turn()
        places = turn.positions(tokens, self.config.length)
        x = self.embed(tokens) + self.places(places)  # (batch, tokens, dim)
        mask = turn.mask(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, number, turn, mask)
        return self.scores(self.norm(x))

    @property
    def longest(self) -> int:
        """Tokens that a text may have."""
        return self.config.length

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for what `batch` sequences of up to `length` tokens leave behind."""
        config, weight = self.config, self.embed.weight
        size = config.dim // config.heads
        return Cache(config.layers, batch, config.heads, length, size, weight.dtype, weight.device)
