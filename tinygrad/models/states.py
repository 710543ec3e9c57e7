"""Recurrent models: what they keep of a text is a few tensors of fixed size a layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from tinygrad.models.checkpoint import Pretrained
from tinygrad.models.words import Words
from tinygrad.tensor import Tensor

States = tuple[Tensor, ...]


class Recurrent(Words, Pretrained):
    """Tokens to the scores of what comes next, layer by layer, each with its states."""

    norm: Callable[[Tensor], Tensor]
    layers: Sequence[Callable[[Tensor, States], tuple[Tensor, States]]]

    def __call__(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens) → scores (batch, tokens, vocab)."""
        return self.advanced(tokens, self.new_states(tokens.shape[0]))[0]

    def advanced(self, tokens: Tensor, before: list[States]) -> tuple[Tensor, list[States]]:
        """Tokens, and the states of what came before them → scores, and the states after them."""
        x, after = self.embedded(tokens), []
        for layer, states in zip(self.layers, before, strict=True):
            x, made = layer(x, states)
            after.append(made)
        return self.scores(self.norm(x)), after

    def embedded(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) → (batch, tokens, dim)."""
        return self.embed(tokens)

    @abstractmethod
    def new_states(self, batch: int) -> list[States]:
        """The states of `batch` sequences before their first token."""
