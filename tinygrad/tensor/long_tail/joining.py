"""Tensors put side by side and taken apart, turned, and combined each with each: what NumPy and
PyTorch have names for beyond `cat`, `stack` and `split`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tinygrad.base.dtype import DType, dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import argfix, plain
from tinygrad.tensor.arguments import check_number_from, check_types, number_of
from tinygrad.tensor.creation import DTypeLike, checked_dtype
from tinygrad.tensor.long_tail.orthogonal import Orthogonal
from tinygrad.tensor.pieces import tensors_of
from tinygrad.tensor.shapes import Sint, axis_of, broadcast_shape, check_axes
from tinygrad.tensor.template import movements
from tinygrad.uop.infer import most
from tinygrad.uop.node import UOp


@movements
class Joining(Orthogonal):
    """Methods that take several tensors take them one by one or in a list, as `cat` does."""

    __slots__ = ()

    concat = concatenate = Orthogonal.cat
    swapaxes = swapdims = Orthogonal.transpose
    moveaxis = Orthogonal.movedim
    ravel = Orthogonal.flatten
    broadcast_to = Orthogonal.expand

    # ---- axes ------------------------------------------------------------------------------------

    def t(self) -> Self:
        """A matrix transposed; a vector or a number as it is.

        >>> Tensor([[1, 2]]).t().tolist()
        [[1], [2]]
        """
        if self.ndim > 2:
            raise ShapeError(f"t: {self.shape}; legal are at most two axes: use transpose")
        return self.T

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """`length` elements of axis `dim`, from `start` on.

        >>> Tensor([1, 2, 3, 4]).narrow(0, 1, 2).tolist()
        [2, 3]
        """
        check_axes("narrow", self, 1)
        start, length = number_of(start), number_of(length)
        axis = axis_of(dim, self.ndim, "narrow")
        size = self.shape[axis]
        begin = start + size if most(start) < 0 else start
        is_number = not any(
            isinstance(n, UOp) for n in (begin, length, size)
        )  # else told by values
        if is_number and (length < 0 or not 0 <= begin <= size - length):
            raise ArgumentError(
                f"narrow: {length} from {start} of an axis of size {size}; legal is what it has"
            )
        return self._cut(axis, begin, begin + length)

    def select(self, dim: int, index: int) -> Self:
        """Slice number `index` of axis `dim`, without that axis.

        >>> Tensor([[1, 2], [3, 4]]).select(1, 0).tolist()
        [1, 3]
        """
        return self._at(axis_of(dim, self.ndim, "select"), index)

    def expand_as(self, other: Self) -> Self:
        """Expanded to the shape of `other`.

        >>> Tensor([1, 2]).expand_as(Tensor.ones(3, 2)).shape
        (3, 2)
        """
        return self.expand(other.shape)

    @classmethod
    def broadcast_tensors(cls, *tensors: Any) -> tuple[Self, ...]:
        """All expanded to the shape in which they meet.

        >>> [t.shape for t in Tensor.broadcast_tensors(Tensor.ones(2, 1), Tensor.ones(3))]
        [(2, 3), (2, 3)]
        """
        parts = argfix(*tensors)
        wrong = [part for part in parts if not isinstance(part, Joining)]
        if wrong or not parts:
            raise ArgumentError(f"broadcast_tensors: {wrong or parts}; legal are tensors")
        shape = broadcast_shape("broadcast_tensors", *(t.shape for t in parts))
        return tuple(t.expand(shape) for t in parts)

    def tile(self, *repeats: Any) -> Self:
        """The whole repeated, for each of the last axes so often.

        >>> Tensor([[1, 2]]).tile(2).tolist()
        [[1, 2, 1, 2]]
        """
        counts = argfix(*repeats)
        return self.repeat((1,) * (self.ndim - len(counts)) + counts)

    def _with_axes(self, least: int) -> Self:
        """At least so many axes, new ones in front."""
        return self.reshape((1,) * (least - self.ndim) + self.shape)

    def atleast_1d(self) -> Self:
        """At least one axis.

        >>> Tensor(3).atleast_1d().shape
        (1,)
        """
        return self._with_axes(1)

    def atleast_2d(self) -> Self:
        """At least two axes, new ones in front.

        >>> Tensor([1, 2]).atleast_2d().shape
        (1, 2)
        """
        return self._with_axes(2)

    def atleast_3d(self) -> Self:
        """At least three axes: a vector lies along the second, a matrix on the first two.

        >>> Tensor([1, 2]).atleast_3d().shape, Tensor([[1, 2]]).atleast_3d().shape
        ((1, 2, 1), (1, 2, 1))
        """
        if self.ndim == 2:
            return self.unsqueeze(-1)
        return self.reshape(1, -1, 1) if self.ndim < 2 else self

    # ---- side by side ----------------------------------------------------------------------------

    def vstack(self, *others: Self) -> Self:
        """Below each other along the first axis; vectors are rows.

        >>> Tensor([1, 2]).vstack(Tensor([3, 4])).tolist()
        [[1, 2], [3, 4]]
        """
        parts: list[Self] = [t.atleast_2d() for t in tensors_of("vstack", self, others)]
        return parts[0].cat(*parts[1:], dim=0)

    row_stack = vstack

    def hstack(self, *others: Self) -> Self:
        """Beside each other: along the second axis, vectors along their only one.

        >>> Tensor.hstack([Tensor([1, 2]), Tensor([3])]).tolist()
        [1, 2, 3]
        """
        parts: list[Self] = [t.atleast_1d() for t in tensors_of("hstack", self, others)]
        return parts[0].cat(*parts[1:], dim=0 if parts[0].ndim == 1 else 1)

    def dstack(self, *others: Self) -> Self:
        """Behind each other along the third axis.

        >>> Tensor([1, 2]).dstack(Tensor([3, 4])).tolist()
        [[[1, 3], [2, 4]]]
        """
        parts: list[Self] = [t.atleast_3d() for t in tensors_of("dstack", self, others)]
        return parts[0].cat(*parts[1:], dim=2)

    def column_stack(self, *others: Self) -> Self:
        """Beside each other; vectors and numbers are columns.

        >>> Tensor([1, 2]).column_stack(Tensor([3, 4])).tolist()
        [[1, 3], [2, 4]]
        """
        parts: list[Self] = [
            t.reshape(-1, 1) if t.ndim < 2 else t for t in tensors_of("column_stack", self, others)
        ]
        return parts[0].cat(*parts[1:], dim=1)

    def tensor_split(
        self, indices_or_sections: Sint | Sequence[Sint] | Self, dim: int = 0
    ) -> tuple[Self, ...]:
        """Parts along `dim`: so many, as equal as can be, or cut at the places in a list, or in a
        tensor, which is read.

        >>> [t.tolist() for t in Tensor([1, 2, 3, 4, 5]).tensor_split(2)]
        [[1, 2, 3], [4, 5]]
        >>> [t.tolist() for t in Tensor([1, 2, 3]).tensor_split([1, 1])]
        [[1], [], [2, 3]]
        """
        if self.ndim == 0:
            raise ShapeError("tensor_split: a tensor of shape () has no axis to split")
        axis = axis_of(dim, self.ndim, "tensor_split")
        size = self.shape[axis]
        given: Any = indices_or_sections
        if isinstance(given, Joining):
            given = np.asarray(given).tolist()
        if isinstance(given, int):
            parts = given
            check_number_from("tensor_split", "parts", parts, 1)
            sizes = [size // parts + (i < size % parts) for i in range(parts)]
            cuts = list(itertools.accumulate(sizes[:-1]))
        else:
            cuts = [plain(i) for i in given]
            check_types("tensor_split", cuts, int, "whole numbers", ArgumentError)
        places = [slice(*ends).indices(size)[:2] for ends in itertools.pairwise([0, *cuts, None])]
        return tuple(self._cut(axis, begin, max(begin, end)) for begin, end in places)

    def _split_evenly(self, operation: str, parts: Any, dim: int) -> tuple[Self, ...]:
        if self.ndim <= dim:
            raise ShapeError(f"{operation}: {self.shape}; legal are {dim + 1} axes or more")
        if isinstance(parts, int) and (parts <= 0 or self.shape[dim] % parts):
            raise ArgumentError(
                f"{operation}: {parts} parts of an axis of size {self.shape[dim]}; legal is what "
                "divides it, or a list of places"
            )
        return self.tensor_split(parts, dim)

    def hsplit(self, indices_or_sections: Sint | Sequence[Sint]) -> tuple[Self, ...]:
        """`tensor_split` along the second axis, of a vector along its only one.

        >>> [t.tolist() for t in Tensor([[1, 2], [3, 4]]).hsplit(2)]
        [[[1], [3]], [[2], [4]]]
        """
        return self._split_evenly("hsplit", indices_or_sections, 0 if self.ndim == 1 else 1)

    def vsplit(self, indices_or_sections: Sint | Sequence[Sint]) -> tuple[Self, ...]:
        """`tensor_split` along the first axis of two or more.

        >>> [t.shape for t in Tensor.ones(4, 2).vsplit(2)]
        [(2, 2), (2, 2)]
        """
        check_axes("vsplit", self, 2)
        return self._split_evenly("vsplit", indices_or_sections, 0)

    def dsplit(self, indices_or_sections: Sint | Sequence[Sint]) -> tuple[Self, ...]:
        """`tensor_split` along the third axis.

        >>> [t.shape for t in Tensor.ones(2, 2, 4).dsplit(2)]
        [(2, 2, 2), (2, 2, 2)]
        """
        return self._split_evenly("dsplit", indices_or_sections, 2)

    # ---- turned ----------------------------------------------------------------------------------

    def fliplr(self) -> Self:
        """The second axis backwards.

        >>> Tensor([[1, 2]]).fliplr().tolist()
        [[2, 1]]
        """
        check_axes("fliplr", self, 2)
        return self.flip(1)

    def flipud(self) -> Self:
        """The first axis backwards.

        >>> Tensor([[1], [2]]).flipud().tolist()
        [[2], [1]]
        """
        check_axes("flipud", self, 1)
        return self.flip(0)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Turned by `k` right angles in the plane of two axes, from the first to the second.

        >>> Tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
        """
        if len(dims) != 2:
            raise ArgumentError(f"rot90: axes {tuple(dims)} of {self.shape}; legal are two")
        first, second = (axis_of(d, self.ndim, "rot90") for d in dims)
        if first == second or self.ndim < 2:
            raise ArgumentError(f"rot90: axes {tuple(dims)} of {self.shape}; legal are two")
        out = self
        for _ in range(k % 4):
            out = out.flip(second).transpose(first, second)
        return out

    # ---- diagonals and triangles -----------------------------------------------------------------

    def trace(self) -> Self:
        """The sum of a matrix's diagonal.

        >>> Tensor([[1, 2], [3, 4]]).trace().item()
        5
        """
        if self.ndim != 2:
            raise ShapeError(f"trace: {self.shape}; legal are two axes")
        return self._diagonal(0, 0, 1)[0].sum()

    def diag(self, diagonal: Sint = 0) -> Self:
        """A square matrix with this vector on a diagonal, so many columns to the right of the main
        one; or that diagonal of this matrix.

        >>> Tensor([1, 2]).diag().tolist()
        [[1, 0], [0, 2]]
        >>> Tensor([[1, 2], [3, 4]]).diag(1).tolist()
        [2]
        """
        if self.ndim == 2:
            return self.diagonal(diagonal)
        if self.ndim != 1:
            raise ShapeError(f"diag: {self.shape}; legal are one axis or two")
        return self.diag_embed(plain(diagonal))

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """The last axis on the diagonal, `offset` columns to the right, of two new axes.

        >>> Tensor([[1, 2]]).diag_embed().tolist()
        [[[1, 0], [0, 2]]]
        """
        if not self.ndim:
            raise ShapeError("diag_embed: of one number, shape (); legal is one axis or more")
        first, second = (axis_of(d, self.ndim + 1, "diag_embed") for d in (dim1, dim2))
        side = self.shape[-1] + abs(offset)
        longer = self.pad((*((0, 0),) * (self.ndim - 1), (0, abs(offset))))
        x = longer.unsqueeze(-1 if offset >= 0 else -2)  # rows, or columns, of one number each
        places = self._counting(side, self.device)
        x = (places.unsqueeze(-1) + offset == places).where(x, x.const_like(0))
        is_last = (first, second) == (self.ndim - 1, self.ndim)
        return x if is_last else x.moveaxis((-2, -1), (first, second)).contiguous()

    @classmethod
    def _triangle(cls, lower: bool, row: int, col: int, offset: int, more: dict[str, Any]) -> Self:
        for name, size in (("row", row), ("col", col)):
            check_number_from("tril_indices" if lower else "triu_indices", name, size, 0)
        places = (np.tril_indices if lower else np.triu_indices)(row, offset, col)
        kind = checked_dtype(more.pop("dtype", None) or dtypes.default_int)
        like = cls.zeros(0, dtype=dtypes.int32, **more)
        return like._tensor(np.stack(places).astype(np.int32)).cast(kind)

    @classmethod
    def tril_indices(cls, row: int, col: int, offset: int = 0, **more: Any) -> Self:
        """Rows and columns of a matrix's lower triangle, (2, how many).

        >>> Tensor.tril_indices(2, 2).tolist()
        [[0, 1, 1], [0, 0, 1]]
        """
        return cls._triangle(True, row, col, offset, more)

    @classmethod
    def triu_indices(cls, row: int, col: int, offset: int = 0, **more: Any) -> Self:
        """Rows and columns of a matrix's upper triangle, (2, how many).

        >>> Tensor.triu_indices(2, 2).tolist()
        [[0, 0, 1], [0, 1, 1]]
        """
        return cls._triangle(False, row, col, offset, more)

    def block_diag(self, *others: Self) -> Self:
        """Matrices along the diagonal of one, zeros elsewhere; vectors are rows.

        >>> Tensor([[1, 2]]).block_diag(Tensor([[3], [4]])).tolist()
        [[1, 2, 0], [0, 0, 3], [0, 0, 4]]
        """
        parts: list[Self] = [t.atleast_2d() for t in tensors_of("block_diag", self, others)]
        if any(part.ndim != 2 for part in parts):
            raise ShapeError(f"block_diag: {[p.shape for p in parts]}; legal are at most two axes")
        kind = least_upper_dtype(*(p.dtype for p in parts))
        width, at, rows = sum(p.shape[1] for p in parts), 0, []
        for part in parts:
            rows.append(part.cast(kind).pad((None, (at, width - at - part.shape[1]))))
            at += part.shape[1]
        return rows[0].cat(*rows[1:], dim=0)

    # ---- each with each --------------------------------------------------------------------------

    def cartesian_prod(self, *others: Self) -> Self:
        """All ways to take one element of each vector, (how many, vectors).

        >>> Tensor([1, 2]).cartesian_prod(Tensor([3, 4])).tolist()
        [[1, 3], [1, 4], [2, 3], [2, 4]]
        """
        parts = tensors_of("cartesian_prod", self, others)
        if any(part.ndim != 1 for part in parts):
            raise ShapeError(f"cartesian_prod: {[p.shape for p in parts]}; legal are vectors")
        if len(parts) == 1:
            first: Self = parts[0]
            return first
        grids = parts[0].meshgrid(*parts[1:])
        out: Self = grids[0].stack(*grids[1:], dim=-1)
        return out.reshape(-1, len(parts))

    def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
        """All ways to take `r` elements of a vector in its order, (how many, r).

        >>> Tensor([1, 2, 3]).combinations().tolist()
        [[1, 2], [1, 3], [2, 3]]
        """
        if self.ndim != 1 or r < 0:
            raise ShapeError(f"combinations: {r} of {self.shape}; legal is a vector, r from 0")
        choose: Any = itertools.combinations
        if with_replacement:
            choose = itertools.combinations_with_replacement
        chosen = list(choose(range(self.shape[0]), r))
        places = np.array(chosen, np.int32).reshape(len(chosen), r)
        if places.size:
            return self[self._tensor(places)]
        return self.zeros(places.shape, dtype=self.dtype, device=self.device)

    def vander(self, N: int | None = None, increasing: bool = False) -> Self:  # noqa: N803
        """The powers of each element of a vector, (elements, N), the highest first unless
        `increasing`.

        >>> Tensor([1, 2, 3]).vander().tolist()
        [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
        """
        if self.ndim != 1:
            raise ShapeError(f"vander: {self.shape}; legal is one axis")
        count = self.shape[0] if N is None else N
        check_number_from("vander", "N", count, 0)
        if count == 0:
            return self.zeros(self.shape[0], 0, dtype=self.dtype, device=self.device)
        powers: list[Self] = [self.ones_like()]
        for _ in range(count - 1):
            powers.append(powers[-1] * self)
        ordered = powers if increasing else powers[::-1]
        return ordered[0].stack(*ordered[1:], dim=1)

    # ---- evenly spaced ---------------------------------------------------------------------------

    @classmethod
    def logspace(
        cls, start: float, end: float, steps: int, base: float = 10.0, **more: Any
    ) -> Self:
        """`steps` powers of `base`, whose exponents go evenly from `start` to `end`.

        >>> Tensor.logspace(0, 2, 3).round().tolist()
        [1.0, 10.0, 100.0]
        """
        if base <= 0:
            raise ArgumentError(f"logspace: base {base}; legal are numbers above 0")
        kind: DTypeLike | None = more.pop("dtype", None)
        exponents = cls.linspace(start, end, steps, dtype=dtypes.float64, **more)
        power = exponents._tensor(base, dtypes.float64) ** exponents
        return power._as_kind(checked_dtype(kind or dtypes.default_float))

    def _as_kind(self, kind: DType) -> Self:
        """Powers in another dtype: what rounding left just below a whole number is that number."""
        return (self if dtypes.is_float(kind) else self * (1 + 2.0**-50)).cast(kind)

    @classmethod
    def geomspace(cls, start: float, end: float, steps: int, **more: Any) -> Self:
        """`steps` numbers from `start` to `end`, both included, in even ratios.

        >>> Tensor.geomspace(1, 8, 4).round().tolist()
        [1.0, 2.0, 4.0, 8.0]
        """
        if not start * end > 0:
            raise ArgumentError(
                f"geomspace: {start} to {end}; legal are numbers of one sign, not 0"
            )
        sign = -1.0 if start < 0 else 1.0
        kind = checked_dtype(more.pop("dtype", None) or dtypes.default_float)
        ends = math.log2(abs(start)), math.log2(abs(end))
        power = cls.linspace(*ends, steps, dtype=dtypes.float64, **more).exp2()
        return (power * sign)._as_kind(kind)
