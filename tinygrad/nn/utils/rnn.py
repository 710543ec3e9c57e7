"""Sequences of several lengths, either padded to one length, or packed turn by turn without
padding.

Lengths are Python numbers, because the amount of packed data is a shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice

__all__ = [
    "PackedSequence",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]

Lengths = Tensor | Sequence[int]


class PackedSequence(NamedTuple):
    """Sequences without padding: the first elements of all, the longest sequence first, then the
    second elements of those that have one, and so on. RNN, GRU and LSTM accept it as x, and then
    return one.

    >>> PackedSequence(Tensor([1, 3, 2]), Tensor([2, 1])).lengths
    [2, 1]
    """

    data: Tensor
    """(all elements, *any)."""

    batch_sizes: Tensor
    """How many sequences have a first element, a second, ..: (longest,) int64."""

    sorted_indices: Tensor | None = None
    """Which sequence stands first in `data`, second, ..; None: they are in order."""

    unsorted_indices: Tensor | None = None
    """Where each sequence stands."""

    @property
    def lengths(self) -> list[int]:
        """The length of each sequence, in the order in which they were given.

        >>> pack_sequence([Tensor.ones(2), Tensor.ones(3)], enforce_sorted=False).lengths
        [2, 3]
        """
        sizes: list[int] = self.batch_sizes.tolist()
        found = [sum(size > i for size in sizes) for i in range(sizes[0])]
        if self.unsorted_indices is None:
            return found
        return [found[i] for i in self.unsorted_indices.tolist()]


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (length, *any) beside each other, padded to the longest.

    Args:
        sequences: at least one; all axes but the first have one size.
        batch_first: (N, longest, *any) instead of (longest, N, *any).
        padding_value: what is put behind the shorter ones.
        padding_side: "right", or "left" to put it before them.

    >>> pad_sequence([Tensor([1, 2, 3]), Tensor([4])], batch_first=True).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    check_choice("pad_sequence", "padding_side", padding_side, ("right", "left"))
    if not sequences or any(x.ndim < 1 or x.shape[1:] != sequences[0].shape[1:] for x in sequences):
        shapes = [x.shape for x in sequences]
        raise ShapeError(f"pad_sequence: {shapes}; legal are (length, *any), one any for all")
    longest = max(x.shape[0] for x in sequences)
    padded = []
    for x in sequences:
        missing = longest - x.shape[0]
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        padded.append(x.pad((ends, *((0, 0),) * (x.ndim - 1)), value=padding_value))
    return Tensor.stack(*padded, dim=0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Lengths, batch_first: bool = False
) -> list[Tensor]:
    """The sequences that `pad_sequence` padded on the right.

    >>> [x.tolist() for x in unpad_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)]
    [[1, 2], [3]]
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :length] for i, length in enumerate(_checked("unpad_sequence", x, lengths))]


def pack_padded_sequence(
    input: Tensor, lengths: Lengths, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Padded sequences, without the padding.

    Args:
        input: (longest, N, *any), or batch first.
        lengths: of each sequence, from 1 on.
        batch_first: see there.
        enforce_sorted: lengths that rise are an error; False sorts them.

    >>> packed = pack_padded_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 3, 2], [2, 1])
    """
    x = input if batch_first else input.transpose(0, 1)
    known = _checked("pack_padded_sequence", x, lengths)
    order = sorted(range(len(known)), key=lambda i: -known[i])
    if enforce_sorted and any(a < b for a, b in zip(known, known[1:], strict=False)):
        raise ArgumentError(
            f"pack_padded_sequence: lengths {known}; legal are lengths that fall, or enforce_sorted"
            "=False"
        )
    rows, turns = _places([known[i] for i in order])
    data = x[Tensor([order[row] for row in rows]), Tensor(turns)]
    sizes = [turns.count(turn) for turn in range(max(known))]
    if enforce_sorted:
        return PackedSequence(data, Tensor(sizes))
    back = sorted(range(len(order)), key=order.__getitem__)
    return PackedSequence(data, Tensor(sizes), Tensor(order), Tensor(back))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The sequences padded on the right, in the order in which they were given, and their lengths.

    Args:
        sequence: what `pack_padded_sequence` or a recurrent layer gives.
        batch_first: (N, longest, *any) instead of (longest, N, *any).
        padding_value: what is put behind the shorter ones.
        total_length: what to pad to, at least the longest length; None for that.

    >>> padded, lengths = pad_packed_sequence(pack_sequence([Tensor([1, 2]), Tensor([3])]))
    >>> padded.tolist(), lengths.tolist()
    ([[1, 3], [2, 0]], [2, 1])
    """
    lengths, data = sequence.lengths, sequence.data
    longest = max(lengths) if total_length is None else total_length
    if longest < max(lengths):
        raise ArgumentError(
            f"pad_packed_sequence: {total_length=}; legal is {max(lengths)} or more"
        )
    ranks = sequence.unsorted_indices
    where = list(range(len(lengths))) if ranks is None else ranks.tolist()
    begins = [0]
    for size in sequence.batch_sizes.tolist():
        begins.append(begins[-1] + size)
    none = data.shape[0]  # beyond the last element: a row of padding
    places = [
        [begins[turn] + rank if turn < length else none for turn in range(longest)]
        for rank, length in zip(where, lengths, strict=True)
    ]
    padding = data.full_like(padding_value)[:1]
    padded = Tensor.cat(data, padding)[Tensor(places)]  # (N, longest, *any)
    return (padded if batch_first else padded.transpose(0, 1)), Tensor(lengths)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (length, *any), without padding between them.

    >>> pack_sequence([Tensor([1, 2]), Tensor([3])]).data.tolist()
    [1, 3, 2]
    """
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that `pack_sequence` took.

    >>> [x.tolist() for x in unpack_sequence(pack_sequence([Tensor([1, 2]), Tensor([3])]))]
    [[1, 2], [3]]
    """
    return unpad_sequence(*pad_packed_sequence(packed_sequences))


def _checked(who: str, x: Tensor, lengths: Lengths) -> list[int]:
    """The lengths as numbers: one for each sequence of x, (N, longest, *any)."""
    known: list[int] = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    if x.ndim < 2 or len(known) != x.shape[0]:
        raise ShapeError(f"{who}: {len(known)} lengths for {x.shape} (batch first)")
    wrong = [n for n in known if type(n) is not int or not 1 <= n <= x.shape[1]]
    if wrong or not known:
        raise ArgumentError(f"{who}: lengths {known}; legal are 1 to {x.shape[1]}")
    return known


def _places(lengths: list[int]) -> tuple[list[int], list[int]]:
    """Row and turn of each packed element, of rows whose lengths fall."""
    pairs = [(turn, row) for row, length in enumerate(lengths) for turn in range(length)]
    return [row for _, row in sorted(pairs)], [turn for turn, _ in sorted(pairs)]
