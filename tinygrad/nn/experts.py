"""Mixtures of experts: several layers of one shape, of which each input uses a few.

    (Shazeer and others, "Outrageously Large Neural Networks", 2017.)

Only the chosen experts are read and computed. Sizes do not depend on the choice, so a captured step
is valid for every choice. Inputs are sorted into blocks of rows that belong to one expert, and a
product reads that expert's weights in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ShapeError
from tinygrad.formats.quants import is_in_blocks, rows
from tinygrad.nn.layers import uniform_weight
from tinygrad.tensor import Tensor

READING = 8
"""Rows whose product takes as long as reading the weights that they are multiplied by."""

LARGEST_BLOCK = 64
"""Rows that share what is read well enough."""


class ChosenLinear:
    """Several linear layers; each block of rows goes through one of them.

    Args:
        count: how many.
        in_features: size of the last axis of x.
        out_features: size of the last axis of the result.

    Raises:
        ShapeError: x is not of blocks of rows of in_features.

    >>> ChosenLinear(5, 3, 4)(Tensor.ones(2, 7, 3), Tensor([4, 0])).shape
    (2, 7, 4)
    """

    def __init__(self, count: int, in_features: int, out_features: int) -> None:
        self.weight = uniform_weight((count, out_features, in_features), in_features)

    def __call__(self, x: Tensor, which: Tensor) -> Tensor:
        """Blocks of rows (blocks, rows, in), and their layers (blocks,) → (blocks, rows, out)."""
        if x.ndim != 3 or x.shape[-1] != self.weight.shape[-1] or which.shape != x.shape[:1]:
            raise ShapeError(
                f"ChosenLinear: x {x.shape} and layers {which.shape}; legal are (blocks, rows, "
                f"{self.weight.shape[-1]}) and (blocks,)"
            )
        if not is_in_blocks(self.weight):
            self.weight.realize()  # what a checkpoint has in parts is put together once
        return x.matmul(rows(self.weight, which).transpose(1, 2))


@dataclass(frozen=True)
class Deal:
    """Inputs sorted into blocks, each for one expert.

    `rows` (blocks, rows of a block): the input in each row; where a block has fewer, input 0.
    `which` (blocks,): the expert. `places` (inputs, used): the rows, counted over all blocks, of
    each input's experts.
    """

    rows: Tensor
    which: Tensor
    places: Tensor


def dealt(chosen: Tensor, experts: int) -> Deal:
    """Distributes inputs over the experts that were chosen for them, (inputs, used), in order.

    >>> deal = dealt(Tensor([[1, 0], [1, 2]]), 3)
    >>> deal.rows.tolist(), deal.which.tolist()
    ([[0], [0], [1], [1]], [1, 0, 1, 2])
    """
    inputs, used = chosen.shape
    pairs, height = inputs * used, block_height(inputs * used, experts)
    if height == 1:  # each pair is a block
        places = Tensor.arange(pairs, device=chosen.device)
        return Deal((places // used).unsqueeze(-1), chosen.flatten(), places.reshape(inputs, used))
    blocks = block_count(pairs, experts, height)
    numbers = Tensor.arange(experts, device=chosen.device)
    is_his = (chosen.reshape(pairs, 1) == numbers).cast(dtypes.int32)  # (pairs, experts)
    before = is_his.cumsum(0) - 1  # pairs of the same expert before this one
    needed = (is_his.sum(0) + (height - 1)) // height  # (experts,) blocks
    ends = needed.cumsum(0)
    places = (is_his * ((ends - needed) * height + before)).sum(1).contiguous()  # (pairs,)
    owners = Tensor.arange(pairs, device=chosen.device) // used
    rows = Tensor.zeros(blocks * height, dtype=owners.dtype, device=chosen.device)
    rows = rows.contiguous().scatter(0, places, owners)
    counted = Tensor.arange(blocks, device=chosen.device).reshape(blocks, 1)
    which = (counted >= ends).cast(dtypes.int32).sum(1).minimum(experts - 1)
    return Deal(rows.reshape(blocks, height), which.contiguous(), places.reshape(inputs, used))


def block_height(pairs: int, experts: int) -> int:
    """Rows of a block. With more, more rows share what is read; with fewer, fewer are left empty.

    >>> [block_height(pairs, 8) for pairs in (2, 16, 128, 1024)]
    [1, 1, 8, 32]
    """
    heights = [1 << n for n in range(LARGEST_BLOCK.bit_length())]
    return min(heights, key=lambda h: block_count(pairs, experts, h) * (READING + h))


def block_count(pairs: int, experts: int, height: int) -> int:
    """A number of blocks that is enough for every choice: the last block of an expert may be nearly
    empty."""
    return pairs if height == 1 else pairs // height + min(experts, pairs)
