"""What models of text begin and end with: tokens to vectors, and vectors to scores of tokens."""

from __future__ import annotations

from tinygrad.nn import Embedding, Linear
from tinygrad.tensor import Tensor


class Words:
    """An embedding, and a head; with tied weights the embedding is the head, too.

    Args:
        vocab: how many tokens there are.
        dim: numbers of a vector.
        tied: whether one weight serves both.

    >>> Words(16, 8, tied=True).scores(Tensor.ones(2, 8)).shape
    (2, 16)
    """

    def __init__(self, vocab: int, dim: int, tied: bool) -> None:
        self.embed = Embedding(vocab, dim)
        self.head = None if tied else Linear(dim, vocab, bias=False)

    def untie(self, embed: Tensor | None, head: Tensor | None) -> None:
        """Makes a head of its own if a checkpoint's weights for both differ, whatever its config
        says: such were trained apart."""
        if embed is not None and head is not None and not _are_equal(embed, head):
            self.head = Linear(head.shape[-1], head.shape[0], bias=False)

    def scores(self, x: Tensor) -> Tensor:
        """(.., dim) → (.., vocab)."""
        return x.linear(self.embed.weight.T) if self.head is None else self.head(x)


def _are_equal(one: Tensor, other: Tensor) -> bool:
    if one.uop is other.uop or one.shape != other.shape:
        return one.shape == other.shape
    return bool((one == other).all().item())
