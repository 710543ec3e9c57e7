"""Tables of vectors that are looked up by number, one at a time or combined in bags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.formats.quants import is_in_blocks, rows
from tinygrad.nn.function import function
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice, check_number_from

MODES = ("mean", "sum", "max")


def embedding(
    numbers: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """Rows of weight (many, features), looked up by their numbers (..) → (.., features).

    Args:
        numbers: of the rows.
        weight: the rows.
        padding_idx: the number of a row that gets no gradient.
        max_norm: a row that is looked up and is longer is first cut to this length, in place.
        norm_type: of what norm that length is.
        scale_grad_by_freq: a row's gradient is divided by how often it was looked up.

    >>> embedding(Tensor([1]), Tensor([[1, 2], [3, 4]])).tolist()
    [[3, 4]]
    """
    if not dtypes.is_int(numbers.dtype):
        raise ArgumentError(f"embedding: numbers of {numbers.dtype!r}; legal are ints")
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight has shape {weight.shape}; legal is (many, features)")
    if max_norm is not None:
        _cut_to(max_norm, norm_type, weight, numbers)
    found = rows(weight, numbers)
    if scale_grad_by_freq:
        found = _by_frequency(found, numbers, weight.shape[0])
    if padding_idx is None:
        return found
    padding = _row("embedding", padding_idx, weight.shape[0])
    return numbers.eq(padding).unsqueeze(-1).where(found.detach(), found)


def _cut_to(max_norm: float, norm_type: float, weight: Tensor, numbers: Tensor) -> None:
    """Scales rows that are longer than `max_norm` down to it, in place."""
    check_number_from("embedding", "max_norm", max_norm, 0)
    if is_in_blocks(weight) or not dtypes.is_float(weight.dtype):
        raise ArgumentError("embedding: max_norm of quantised or whole rows; legal are floats")
    flat = numbers.flatten()
    with Tensor.no_grad():
        found = weight.detach()[flat]
        lengths = found.norm(norm_type, -1, keepdim=True)
        share = (lengths > max_norm).where(max_norm / (lengths + 1e-7), 1)
        weight[flat] = found * share


def _divided(
    grad_out: Tensor, found: Tensor, numbers: Tensor, many: int
) -> tuple[Tensor | None, ...]:
    counts = Tensor.zeros(many, dtype=grad_out.dtype, device=grad_out.device)
    ones = Tensor.ones(numbers.numel(), dtype=grad_out.dtype, device=grad_out.device)
    often = counts.index_add(0, numbers.flatten(), ones)[numbers]
    return grad_out / often.unsqueeze(-1), None


@function(gradient=_divided)
def _by_frequency(found: Tensor, numbers: Tensor, many: int) -> Tensor:
    """The rows that were looked up, with a gradient that is divided by how often each number
    occurs."""
    return found


def embedding_bag(
    numbers: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Rows of weight (many, features), looked up and combined in bags → (bags, features).

    Args:
        numbers: of rows: (bags, n), or (n,) with `offsets`.
        weight: the rows.
        offsets: where in `numbers` each bag begins, (bags,), from 0 on.
        max_norm, norm_type, scale_grad_by_freq: see `embedding`; the last not with "max".
        mode: "mean", "sum" or "max"; an empty bag gives zeros.
        per_sample_weights: by what rows are multiplied, like numbers; for "sum" only.
        include_last_offset: the last of the offsets is the end of the last bag.
        padding_idx: the number of a row that doesn't count.

    >>> embedding_bag(Tensor([0, 1, 1]), Tensor([[1.0], [3.0]]), Tensor([0, 2])).tolist()
    [[2.0], [3.0]]
    """
    check_choice("embedding_bag", "mode", mode, MODES)
    if mode == "max" and scale_grad_by_freq:
        raise ArgumentError('embedding_bag: scale_grad_by_freq with mode="max"; legal are others')
    bag, bags = _bags(numbers, offsets, include_last_offset)
    flat = numbers.flatten()
    found = embedding(flat, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    counts = Tensor.ones(*flat.shape, dtype=found.dtype, device=found.device)
    if padding_idx is not None:
        counts = flat.ne(_row("embedding_bag", padding_idx, weight.shape[0])).cast(found.dtype)
    if per_sample_weights is not None:
        if mode != "sum" or per_sample_weights.shape != numbers.shape:
            raise ArgumentError(
                f"embedding_bag: per_sample_weights {per_sample_weights.shape} for numbers "
                f'{numbers.shape}, mode={mode!r}; legal are the same shape and "sum"'
            )
        found = found * per_sample_weights.flatten().unsqueeze(-1)
    empty = Tensor.zeros(bags, found.shape[-1], dtype=found.dtype, device=found.device)
    sizes = empty[:, 0].index_add(0, bag, counts).unsqueeze(-1)
    if mode == "max":
        places = bag.unsqueeze(-1).expand(*found.shape)
        lowest = counts.unsqueeze(-1).where(found, -float("inf"))
        most = empty.scatter_reduce(0, places, lowest, "amax", include_self=False)
        return sizes.eq(0).where(0, most)
    total = empty.index_add(0, bag, counts.unsqueeze(-1).ne(0).where(found, 0))
    return total if mode == "sum" else total / sizes.maximum(1)


def _bags(numbers: Tensor, offsets: Tensor | None, has_end: bool) -> tuple[Tensor, int]:
    """The bag that each number is in, in a row, and how many there are."""
    if numbers.ndim == 2 and offsets is None and not has_end:
        bags = Tensor.arange(numbers.shape[0], device=numbers.device)
        return bags.unsqueeze(-1).expand(*numbers.shape).flatten(), numbers.shape[0]
    if numbers.ndim != 1 or offsets is None or offsets.ndim != 1:
        shape = None if offsets is None else offsets.shape
        raise ShapeError(
            f"embedding_bag: numbers {numbers.shape}, offsets {shape}; legal are (bags, n) without "
            "offsets, or (n,) and (bags,)"
        )
    grows = (offsets[1:] >= offsets[:-1]).all() & (offsets <= numbers.shape[0]).all()
    fits = grows & offsets[:1].eq(0).all()
    told = f"embedding_bag: offsets that don't grow from 0 to at most {numbers.shape[0]}"
    offsets = offsets._from(
        offsets._node.check(fits._node.broadcast_to(offsets.shape), "value", told)
    )
    starts = offsets[: offsets.shape[0] - 1] if has_end else offsets
    places = Tensor.arange(numbers.shape[0], device=numbers.device)
    return (places.unsqueeze(-1) >= starts).sum(-1) - 1, starts.shape[0]


def _row(who: str, padding_idx: int, count: int) -> int:
    """The number of the row, from 0 on."""
    if not -count <= padding_idx < count:
        legal = f"{-count} to {count - 1}"
        raise ArgumentError(
            f"{who}: padding_idx={padding_idx} of {count} vectors; legal are {legal}"
        )
    return padding_idx % count


def _pretrained(
    layer: Callable[..., Any], embeddings: Tensor, freeze: bool, options: dict[str, Any]
) -> Any:
    if embeddings.ndim != 2:
        raise ShapeError(
            f"from_pretrained: embeddings {embeddings.shape}; legal is (many, features)"
        )
    made = layer(*embeddings.shape, **options)
    made.weight = embeddings.detach().requires_grad_(not freeze)
    return made


class Embedding:
    """A table of vectors, looked up by number. It begins uniform, by Glorot and Bengio, as
    tinygrad's does; PyTorch's is normal (`init.normal_`).

    Args:
        vocab_size: how many vectors.
        embed_size: how long each is.
        padding_idx: the number of a vector that begins as 0 and gets no gradient.
        max_norm, norm_type, scale_grad_by_freq: see `functional.embedding`.

    Raises:
        IndexCheckError: a number outside the table, when the result is read.

    >>> Embedding(10, 4)(Tensor([[1, 2, 9]])).shape
    (1, 3, 4)
    """

    def __init__(
        self,
        vocab_size: int,
        embed_size: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
    ) -> None:
        self.vocab_sz = vocab_size
        self.embed_sz = embed_size
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)
        if padding_idx is not None:
            self.padding_idx = _row("Embedding", padding_idx, vocab_size)
            self.weight[self.padding_idx] = 0

    @property
    def num_embeddings(self) -> int:
        """How many vectors, by PyTorch's name.

        >>> Embedding(10, 4).num_embeddings
        10
        """
        return self.vocab_sz

    @property
    def embedding_dim(self) -> int:
        """How long each vector is, by PyTorch's name.

        >>> Embedding(10, 4).embedding_dim
        4
        """
        return self.embed_sz

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Self:
        """The layer whose table is `embeddings` (many, features), in the same memory; not to be
        trained unless `freeze` is False. `options`: what the layer is made with otherwise.

        >>> Embedding.from_pretrained(Tensor([[1, 2], [3, 4]]))(Tensor([1])).tolist()
        [[3, 4]]
        """
        made: Self = _pretrained(cls, embeddings, freeze, options)
        return made

    def __call__(self, idx: Tensor) -> Tensor:
        """Whole numbers (..) → vectors (.., embed_size)."""
        cut = self.max_norm, self.norm_type, self.scale_grad_by_freq
        return embedding(idx, self.weight, self.padding_idx, *cut)


class EmbeddingBag:
    """A table of vectors, of which each result is the mean, the sum or the largest of several.

    Args:
        num_embeddings: how many vectors.
        embedding_dim: how long each is.
        max_norm, norm_type, scale_grad_by_freq: see `functional.embedding`.
        mode: "mean", "sum" or "max".
        include_last_offset: see `functional.embedding_bag`.
        padding_idx: the number of a vector that begins as 0 and doesn't count.

    >>> EmbeddingBag(10, 4)(Tensor([[1, 2, 9], [1, 1, 1]])).shape
    (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        check_choice("EmbeddingBag", "mode", mode, MODES)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.padding_idx = padding_idx
        self.weight = Tensor.randn(num_embeddings, embedding_dim)
        if padding_idx is not None:
            self.padding_idx = _row("EmbeddingBag", padding_idx, num_embeddings)
            self.weight[self.padding_idx] = 0

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Self:
        """See `Embedding.from_pretrained`.

        >>> EmbeddingBag.from_pretrained(Tensor([[1.0], [3.0]]))(Tensor([[0, 1]])).tolist()
        [[2.0]]
        """
        made: Self = _pretrained(cls, embeddings, freeze, options)
        return made

    def __call__(
        self,
        numbers: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """(bags, n), or (n,) and offsets (bags,) → (bags, embedding_dim)."""
        end, padding = self.include_last_offset, self.padding_idx
        cut = self.max_norm, self.norm_type, self.scale_grad_by_freq
        return embedding_bag(
            numbers, self.weight, offsets, *cut, self.mode, per_sample_weights, end, padding
        )
