"""What a decoder has seen: keys and values of each layer, in buffers of fixed size.

The sizes are fixed and the place is a variable, so that one captured step serves all places.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.dtype import DType, dtypes
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import Devices
from tinygrad.uop.node import UOp


class Cache:
    """Room for the keys and values of `length` tokens in each of `layers` layers.

    Args:
        layers: how many attentions.
        batch: sequences.
        heads: heads of keys and values.
        length: tokens there is room for.
        size: numbers a head.
    """

    def __init__(
        self,
        layers: int,
        batch: int,
        heads: int,
        length: int,
        size: int,
        dtype: DType = dtypes.float32,
        device: Devices | None = None,
    ) -> None:
        shape = (2, batch, heads, length, size)
        self.layers = [
            Tensor.zeros(*shape, dtype=dtype, device=device).contiguous() for _ in range(layers)
        ]
        self.layers[0].realize(*self.layers[1:])
        self.batch, self.length, self.device = batch, length, self.layers[0].device


@dataclass(frozen=True)
class Turn:
    """Where in their sequences the tokens of one call stand.

    Args:
        start: the index of the first token; a number, or a bound variable.
        padding: (batch,) how many tokens at the front of each sequence are none; None: none are.
        cache: what was seen before; None: nothing, and nothing is kept.
        whole: tokens of the texts so far, the rest of a prompt included; None: up to this call's.
    """

    start: int | UOp = 0
    padding: Tensor | None = None
    cache: Cache | None = None
    whole: int | UOp | None = None

    def length(self, tokens: Tensor) -> int | UOp:
        """Tokens that the texts have, for what depends on that."""
        return self.start + tokens.shape[1] if self.whole is None else self.whole

    def positions(self, tokens: Tensor, most: int | None = None) -> Tensor:
        """(batch or 1, tokens): the place of each in its sequence, from 0.

        With a cache the last tokens may be padding; their places are below `most`, if it is given.
        """
        count = tokens.shape[1]
        index = (Tensor.arange(count, device=tokens.device) + self.start).reshape(1, count)
        if self.padding is not None:
            index = (index - self.padding.reshape(-1, 1)).maximum(0)
        return index if most is None or self.cache is None else index.minimum(most - 1)

    def kept(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (batch, heads, tokens, size) with those of all tokens before them."""
        if self.cache is None:
            return keys, values
        room, stop = self.cache.layers[layer], self.start + keys.shape[2]
        room[:, :, :, self.start : stop, :].assign(
            Tensor.stack(keys, values).detach().cast(room.dtype)
        )
        seen = room[:, :, :, 0:stop, :].cast(keys.dtype)
        return seen[0], seen[1]

    def mask(self, tokens: Tensor, window: int | None = None) -> Tensor | None:
        """(batch or 1, 1, tokens, keys): what each may see; None: all.

        Not what comes later, not padding, and with a `window` only the last so many tokens.
        """
        count = tokens.shape[1]
        if count == 1 and self.padding is None and window is None:
            return None
        most = count if self.cache is None else self.cache.length
        key = Tensor.arange(most, device=tokens.device).reshape(1, 1, 1, most)
        index = (Tensor.arange(count, device=tokens.device) + self.start).reshape(1, 1, count, 1)
        seen = key <= index
        if window is not None:
            seen = seen & (key > index - window)
        if self.padding is not None:
            seen = seen & (key >= self.padding.reshape(-1, 1, 1, 1))
        return seen if self.cache is None else seen[:, :, :, 0 : self.start + count]
