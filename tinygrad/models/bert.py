"""BERT. (Devlin and others, "BERT: Pre-training of Deep Bidirectional Transformers", 2019.)

`SentenceEncoder` makes one vector a sentence of it, as the sentence-transformers do.
(Reimers and Gurevych, "Sentence-BERT", 2019.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.activations import activation
from tinygrad.models.attention import Attention, visible
from tinygrad.models.checkpoint import Names, Only, Pretrained
from tinygrad.nn import Embedding, LayerNorm, Linear
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class BertConfig:
    """Sizes; the defaults are those of bert-base-uncased."""

    vocab: int = 30522
    length: int = 512
    kinds: int = 2  # segments that a token may be of
    dim: int = 768
    hidden: int = 3072
    layers: int = 12
    heads: int = 12
    eps: float = 1e-12
    pooler: bool = True
    activation: str = "gelu"


class Layer:
    """Attention, then two linear layers; each added to its input, then normalized."""

    def __init__(self, config: BertConfig) -> None:
        self.attention = Attention(config.dim, config.heads)
        self.norm1 = LayerNorm(config.dim, config.eps)
        self.up = Linear(config.dim, config.hidden)
        self.down = Linear(config.hidden, config.dim)
        self.norm2 = LayerNorm(config.dim, config.eps)
        self._activation = activation(config.activation)

    def __call__(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, tokens, dim) → the same."""
        x = self.norm1(x + self.attention(x, mask=mask))
        return self.norm2(x + self.down(self._activation(self.up(x))))


class Bert(Pretrained):
    """Tokens to a vector each, and one for the whole text.

    >>> model = Bert(BertConfig(vocab=16, length=8, dim=8, hidden=16, layers=1, heads=2))
    >>> states, pooled = model(Tensor([[1, 2, 3]]))
    >>> states.shape, pooled.shape
    ((1, 3, 8), (1, 8))
    """

    ONLY: ClassVar[Only] = {
        "model_type": ("bert",),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
    }
    NAMES: ClassVar[Names] = {
        "embeddings.word_embeddings": "words",
        "embeddings.position_embeddings": "places",
        "embeddings.token_type_embeddings": "kinds",
        "embeddings.LayerNorm": "norm",
        "embeddings.position_ids": None,
        "encoder.layer.{}.attention.self.query": "layers.{}.attention.query",
        "encoder.layer.{}.attention.self.key": "layers.{}.attention.key",
        "encoder.layer.{}.attention.self.value": "layers.{}.attention.value",
        "encoder.layer.{}.attention.output.dense": "layers.{}.attention.out",
        "encoder.layer.{}.attention.output.LayerNorm": "layers.{}.norm1",
        "encoder.layer.{}.intermediate.dense": "layers.{}.up",
        "encoder.layer.{}.output.dense": "layers.{}.down",
        "encoder.layer.{}.output.LayerNorm": "layers.{}.norm2",
        "pooler.dense": "pooler",
        "cls": None,
    }

    def __init__(self, config: BertConfig | None = None) -> None:
        self.config = config = config or BertConfig()
        self.words = Embedding(config.vocab, config.dim)
        self.places = Embedding(config.length, config.dim)
        self.kinds = Embedding(config.kinds, config.dim)
        self.norm = LayerNorm(config.dim, config.eps)
        self.layers = [Layer(config) for _ in range(config.layers)]
        if config.pooler:
            self.pooler = Linear(config.dim, config.dim)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(
            BertConfig(
                config["vocab_size"],
                config["max_position_embeddings"],
                config["type_vocab_size"],
                config["hidden_size"],
                config["intermediate_size"],
                config["num_hidden_layers"],
                config["num_attention_heads"],
                config["layer_norm_eps"],
                activation=config.get("hidden_act", "gelu"),
            )
        )

    def load(self, state: Mapping[str, Tensor], strict: bool = True) -> Self:
        """Takes the weights of a checkpoint, with or without the prefix `bert.`."""
        plain = {name.removeprefix("bert."): tensor for name, tensor in state.items()}
        return super().load(plain, strict)

    def __call__(
        self, tokens: Tensor, mask: Tensor | None = None, kinds: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens (batch, tokens) → a vector each (batch, tokens, dim), and one a text (batch, dim).

        Args:
            tokens: numbers of the vocabulary.
            mask: 1 where a token counts, 0 for padding; None: all count.
            kinds: the segment of each token; None: all are of the first.
        """
        count = tokens.shape[1]
        places = self.places.weight[:count]  # (tokens, dim)
        kind = self.kinds.weight[0] if kinds is None else self.kinds(kinds)
        x = self.norm(self.words(tokens) + places + kind)  # (batch, tokens, dim)
        seen = visible(mask)
        for layer in self.layers:
            x = layer(x, seen)
        return x, self.pooler(x[:, 0]).tanh() if self.config.pooler else None


class SentenceEncoder(Bert):
    """A vector of length 1 for each sentence: the mean of its tokens' vectors, or the first one.

    Their dot product is the similarity of two sentences, from -1 to 1.
    """

    first = False  # whether a sentence is its first token's vector

    def embed(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Tokens and mask (batch, tokens) → (batch, dim)."""
        states, _ = self(tokens, mask)
        weights = mask.unsqueeze(-1).cast(states.dtype)  # (batch, tokens, 1)
        mean = (states * weights).sum(1) / weights.sum(1).maximum(1e-9)
        whole = states[:, 0] if self.first else mean
        return whole / whole.square().sum(-1, keepdim=True).sqrt().maximum(1e-12)
