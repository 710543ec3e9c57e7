"""Elements taken and put by number: gathers and scatters with one index for a whole slice, or for
the flat tensor. Every number is CHECKed; a number that is out of range raises at the next read."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import plain, prod
from tinygrad.tensor.arguments import check_choice, check_number_from
from tinygrad.tensor.elementwise import check_mask
from tinygrad.tensor.indexing import legal_index
from tinygrad.tensor.long_tail.joining import Joining
from tinygrad.tensor.pieces import known_size
from tinygrad.tensor.shapes import Shape, Sint, axis_of, broadcast_shape, check_number
from tinygrad.tensor.template import movements
from tinygrad.uop.node import UOp

REDUCES = {"prod": "mul", "mean": "add", "amax": "max", "amin": "max"}


@movements
class Parts(Joining):
    """What writes returns a copy: this one stays as it is."""

    __slots__ = ()

    # ---- flat ------------------------------------------------------------------------------------

    def take(self, index: Self) -> Self:
        """The elements at these numbers of the flat tensor, in the shape of `index`.

        >>> Tensor([[1, 2], [3, 4]]).take(Tensor([0, -1])).tolist()
        [1, 4]
        """
        return self.flatten()[index]

    def put(self, index: Self, source: Self, accumulate: bool = False) -> Self:
        """A copy with `source` at these numbers of the flat tensor, or added to what is there.

        >>> Tensor([1, 2, 3]).put(Tensor([0, 2]), Tensor([7, 8])).tolist()
        [7, 2, 8]
        """
        if source.numel() != index.numel():
            raise ShapeError(
                f"put: {source.shape} at {index.shape}; legal are as many elements as numbers"
            )
        self._check_dtype("put", source)
        how, flat = "add" if accumulate else "set", self.flatten()
        return flat._written(0, index.flatten(), source.flatten(), how).reshape(self.shape)

    def diagonal_scatter(self, src: Self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """A copy in which `src` is the diagonal that `diagonal` gives.

        >>> Tensor([[1, 2], [3, 4]]).diagonal_scatter(Tensor([7, 8])).tolist()
        [[7, 2], [3, 8]]
        """
        places = self._counting(self.numel(), self.device).reshape(self.shape)
        spots = places.diagonal(offset, dim1, dim2)
        if src.shape != spots.shape:
            raise ShapeError(
                f"diagonal_scatter: {src.shape} on a diagonal {spots.shape}; legal is that shape"
            )
        return self.put(spots, src.cast(self.dtype))

    def unravel_index(self, shape: tuple[int, ...]) -> tuple[Self, ...]:
        """Numbers of elements of this shape, in a row, as one index an axis.

        >>> [t.tolist() for t in Tensor([5, 2]).unravel_index((2, 3))]
        [[1, 0], [2, 2]]
        """
        if not dtypes.is_int(self.dtype):
            raise DTypeError(f"unravel_index: {self.dtype!r}; legal are ints")
        sizes, inside = tuple(shape), (self >= 0) & (self < prod(shape))
        told = f"unravel_index: {{0}} of shape {sizes}; legal are 0 to {prod(sizes) - 1}"
        rest = self._from(self._node.check(inside._node, "index", told))
        found = []
        for size in reversed(sizes):
            found.append(rest % size)
            rest = rest // size
        return tuple(reversed(found))

    def masked_scatter(self, mask: Any, source: Self) -> Self:
        """A copy with the elements of `source`, in order, where `mask` is true.

        IndexCheckError at the next read if `source` has fewer elements than that.

        >>> Tensor([0, 0, 0]).masked_scatter(Tensor([True, False, True]), Tensor([5, 6])).tolist()
        [5, 0, 6]
        """
        self._check_dtype("masked_scatter", source)
        check_mask("masked_scatter", mask)
        x, chosen = self._meet("masked_scatter", mask, dtype=dtypes.void)
        if x.numel() == 0:
            return x
        flat = chosen.bool().flatten()
        places = flat.where(flat.cast(dtypes.int32).cumsum() - 1, 0)
        if source.numel() == 0:
            source = source.flatten().pad((0, 1))
            places = flat.where(1, places)
        return flat.where(source.flatten()[places], x.flatten()).reshape(x.shape)

    # ---- along an axis ---------------------------------------------------------------------------

    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """`gather` along `dim` of shapes that broadcast on the other axes; flat without `dim`.

        >>> Tensor([[3, 1], [2, 4]]).take_along_dim(Tensor([[1]]), 1).tolist()
        [[1], [4]]
        """
        if dim is None:
            return self.flatten().gather(0, indices.flatten())
        axis = axis_of(dim, self.ndim, "take_along_dim")
        if indices.ndim != self.ndim:
            raise ShapeError(f"take_along_dim: indices {indices.shape} for {self.shape}")
        if self.ndim == 0:
            return self.gather(0, indices)
        mine, theirs = list(self.shape), list(indices.shape)
        mine[axis] = theirs[axis] = 1
        shape = list(broadcast_shape("take_along_dim", tuple(mine), tuple(theirs)))
        shape[axis] = self.shape[axis]
        x = self._broadcast_to(tuple(shape))
        shape[axis] = indices.shape[axis]
        return x.gather(axis, indices._broadcast_to(tuple(shape)))

    def repeat_interleave(
        self, repeats: Any, dim: Sint | None = None, output_size: int | None = None
    ) -> Self:
        """Each element repeated in place, along `dim` or flat: all as often, or each as often as
        its number in a tensor or a list, which is read. ShapeError if that makes another number of
        them than `output_size`.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        >>> Tensor([1, 2, 3]).repeat_interleave([2, 0, 1]).tolist()
        [1, 1, 3]
        """
        x = self.flatten() if dim is None else self
        axis = axis_of(dim or 0, x.ndim, "repeat_interleave")
        if isinstance(repeats := plain(repeats), UOp) or isinstance(repeats, int) and repeats >= 0:
            return x._each_repeated(repeats, axis)._of_size(axis, output_size)
        counts, size = np.asarray(repeats), known_size("repeat_interleave", x.shape, axis)
        if counts.dtype.kind not in "iu" or counts.shape not in ((), (1,), (size,)):
            raise ArgumentError(
                f"repeat_interleave: counts of {counts.dtype} and shape {counts.shape}; legal is a "
                f"whole number, or {size} of them"
            )
        check_number_from("repeat_interleave", "repeats", counts.min(initial=0), 0)
        rows = np.repeat(np.arange(size, dtype=np.int32), np.broadcast_to(counts, size))
        return x.index_select(axis, self._tensor(rows))._of_size(axis, output_size)

    def _of_size(self, axis: int, size: int | None) -> Self:
        """This, whose axis has that size if one is given."""
        n = self.shape[axis]
        if size is not None and size != n:
            raise ShapeError(f"repeat_interleave: output_size={size}; legal is {n}, of repeats")
        return self

    def index_select(self, dim: int, index: Self) -> Self:
        """The slices of axis `dim` with these numbers.

        >>> Tensor([[1, 2], [3, 4]]).index_select(1, Tensor([1, 1])).tolist()
        [[2, 2], [4, 4]]
        """
        _vector("index_select", index)
        axis = axis_of(dim, self.ndim, "index_select")
        if self.ndim == 0:
            return self.reshape(1)[index].reshape(())
        chosen = self._at(axis, index.reshape(-1))
        return chosen.contiguous() if axis else chosen

    def _written(self, dim: int, index: Self, source: Self, how: str) -> Self:
        """A copy with slices of `source` combined with those of axis `dim` that `index` names."""
        axis = axis_of(dim, self.ndim, "index")
        if self.ndim == 0:
            sources = source.reshape(1).expand(index.numel())
            return self.reshape(1)._written(dim, index, sources, how).reshape(())
        if index.numel() == 0:
            return self._copied(self)._with_none_of(source)
        node = legal_index(index._node, self.shape[axis], axis)
        if self.numel() == 0:
            return self
        shape = (*self.shape[:axis], index.numel())  # of the axes that are counted up to this one
        counts = [UOp.positions(shape, i, self.device) for i in range(axis)]
        row = node.reshape((1,) * axis + node.shape).broadcast_to(shape)
        return self._from(self._node.scatter(how, source._node, *counts, row), source)

    def _check_dtype(self, operation: str, source: Self) -> None:
        if source.dtype is not self.dtype:
            raise DTypeError(
                f"{operation}: a source of {source.dtype!r} into {self.dtype!r}; legal is the same"
            )

    def _shape_of_slices(self, operation: str, dim: int, index: Self) -> Shape:
        """The shape of as many slices of axis `dim` as `index` has numbers."""
        _vector(operation, index)
        if not self.ndim:
            return ()
        axis = axis_of(dim, self.ndim, operation)
        return (*self.shape[:axis], index.numel(), *self.shape[axis + 1 :])

    def _slices(self, operation: str, dim: int, index: Self, source: Self) -> Self:
        """`source` as slices of axis `dim`, as many as `index` has numbers."""
        shape = self._shape_of_slices(operation, dim, index)
        if source.shape != shape if self.ndim else (source.numel(), index.numel()) != (1, 1):
            raise ShapeError(
                f"{operation}: a source of {source.shape} for {self.shape}; legal is {shape}"
            )
        self._check_dtype(operation, source)
        return source

    def index_add(self, dim: int, index: Self, source: Self, alpha: Any = 1) -> Self:
        """A copy with slices of `source`, times `alpha`, added to those that `index` names.

        >>> Tensor([1, 1, 1]).index_add(0, Tensor([0, 0]), Tensor([5, 6])).tolist()
        [12, 1, 1]
        """
        part = self._slices("index_add", dim, index, source)
        return self._written(dim, index.flatten(), part * alpha, "add")

    def index_copy(self, dim: int, index: Self, source: Self) -> Self:
        """A copy with slices of `source` in the place of those that `index` names.

        >>> Tensor([1, 2, 3]).index_copy(0, Tensor([2]), Tensor([9])).tolist()
        [1, 2, 9]
        """
        part = self._slices("index_copy", dim, index, source)
        return self._written(dim, index.flatten(), part, "set")

    def index_fill(self, dim: int, index: Self, value: Any) -> Self:
        """A copy with `value` in the slices that `index` names.

        >>> Tensor([[1, 2], [3, 4]]).index_fill(1, Tensor([0]), 9).tolist()
        [[9, 2], [9, 4]]
        """
        shape = self._shape_of_slices("index_fill", dim, index)
        check_number("index_fill", value, self.dtype)
        part = self._tensor(value, self.dtype)
        if part.ndim:
            raise ShapeError(f"index_fill: a value of {part.shape}; legal is one number")
        part = part.cast(self.dtype)._broadcast_to(shape)
        return self._written(dim, index.flatten(), part, "set")

    def index_reduce(
        self, dim: int, index: Self, source: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """A copy with slices of `source` combined with those that `index` names by "prod", "mean",
        "amax" or "amin"; see `scatter_reduce`.

        >>> Tensor([1, 1]).index_reduce(0, Tensor([0, 0]), Tensor([5, 6]), "prod").tolist()
        [30, 1]
        """
        check_choice("index_reduce", "reduce", reduce, REDUCES)
        part = self._slices("index_reduce", dim, index, source)
        spread = part._along(axis_of(dim, self.ndim, "index_reduce"), index.flatten())
        return self.scatter_reduce(
            dim, spread._broadcast_to(part.shape), part, reduce, include_self
        )

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """A copy with src[i][j] added to self[index[i][j]][j] for dim 0, and so on.

        >>> Tensor([1, 1]).scatter_add(0, Tensor([0, 0]), Tensor([5, 6])).tolist()
        [12, 1]
        """
        return self._scatter("scatter_add", dim, index, src, "add")

    argwhere = Joining.nonzero


def _vector(operation: str, index: Any) -> None:
    if index.ndim > 1 or not dtypes.is_int(index.dtype):
        raise ShapeError(
            f"{operation}: an index of {index.dtype!r} {index.shape}; legal is a vector of ints"
        )
