"""Elements found again: where each belongs in an order, how many fall where, and each once.
What depends on values for its shape reads the tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.engine.realize import read
from tinygrad.tensor.again import compute
from tinygrad.tensor.arguments import check_choice
from tinygrad.tensor.long_tail.statistics import Statistics
from tinygrad.tensor.shapes import axis_of
from tinygrad.tensor.template import small
from tinygrad.uop.infer import most

FEW_COUNTED = 1 << 18  # numbers that the host counts before kernels are asked to
FEW_SORTED = 1 << 12  # elements that the host sorts, too
WIDE = 4  # bytes of a number that NumPy sorts by vectors

Array = np.ndarray[Any, Any]
Distinct = tuple[Array, Callable[[], Array], Callable[[], Array]]
"""The values, and what tells each element's number among them, and their counts."""


class Sets(Statistics):
    """Tensors as sets and as sorted lists."""

    __slots__ = ()

    def searchsorted(
        self, values: Any, right: bool = False, side: str | None = None, sorter: Self | None = None
    ) -> Self:
        """Where each value belongs in the sorted last axis of this, as int32: before elements equal
        to it, with `right` (or side="right") behind them. This is a vector, or has the shape of
        `values` but for the last axis; `sorter` is its order where it isn't sorted.

        >>> Tensor([1, 3, 5]).searchsorted(Tensor([3, 6])).tolist()
        [1, 3]
        """
        check_choice("searchsorted", "side", side, (None, "left", "right"))
        right = right or side == "right"
        if sorter is not None and sorter.shape != self.shape:
            raise ShapeError(
                f"searchsorted: sorter {sorter.shape} of {self.shape}; legal is the same shape"
            )
        rows = self if sorter is None else self.gather(-1, sorter)
        wanted = self._tensor(values)
        if not rows.ndim or (rows.ndim > 1 and rows.shape[:-1] != wanted.shape[:-1]):
            raise ShapeError(
                f"searchsorted: values {wanted.shape} in {rows.shape}; "
                "legal are the same axes but the last"
            )
        size, whole = rows.shape[-1], wanted._counting(1, wanted.device).reshape(())
        at = whole._broadcast_to(wanted.shape)
        if size == 0 or wanted.numel() == 0:
            return at
        bits = range(most(size).bit_length())
        for bit in reversed(bits):  # `at` elements are known to lie before
            further = at + (1 << bit)
            spot = further.minimum(size) - 1
            found = rows[spot] if rows.ndim == 1 else rows.gather(-1, spot)
            is_last = found.isnan()  # in any order
            behind = found > wanted if right else found >= wanted
            behind = behind | (is_last & wanted.isnan().logical_not() if right else is_last)
            at = ((further <= size) & behind.logical_not()).where(further, at)
        return at

    def interp(
        self, xp: Self, fp: Self, left: float | None = None, right: float | None = None
    ) -> Self:
        """The line through the points (xp, fp), both (n,) and xp in order, at these places.

        Args:
            xp: where the line has corners, one or more.
            fp: its values there.
            left, right: what holds before the first, and behind the last; None for their values.

        >>> Tensor([0.5, 9.0]).interp(Tensor([0.0, 1.0]), Tensor([2.0, 4.0])).tolist()
        [3.0, 4.0]
        """
        if xp.ndim != 1 or xp.shape != fp.shape or not xp.numel():
            raise ShapeError(f"interp: xp {xp.shape}, fp {fp.shape}; legal are (n,) twice")
        last = xp.shape[0] - 1
        at = (xp.detach().searchsorted(self.detach(), right=True) - 1).clip(0, max(last - 1, 0))
        after = (at + 1).minimum(last)
        (x0, x1), (y0, y1) = ((line[at], line[after]) for line in (xp, fp))
        flat = x0.eq(x1)
        share = flat.where(0, (self - x0) / flat.where(1, x1 - x0))
        out: Self = y0 + (y1 - y0) * share
        out = (self <= xp[0]).where(fp[0], (self >= xp[last]).where(fp[last], out))
        out = out if left is None else (self < xp[0]).where(left, out)
        out = out if right is None else (self > xp[last]).where(right, out)
        return self.isnan().where(math.nan, out)

    def bucketize(self, boundaries: Self, right: bool = False) -> Self:
        """For each element the number of the stretch between sorted `boundaries`: the one that ends
        with it, or with `right` the one that begins.

        >>> Tensor([0, 3, 9]).bucketize(Tensor([1, 3, 5])).tolist()
        [0, 1, 3]
        """
        if boundaries.ndim != 1:
            shape = boundaries.shape
            raise ShapeError(f"bucketize: boundaries {shape}; legal is one axis (or searchsorted)")
        return boundaries.searchsorted(self, right)

    # ---- how many --------------------------------------------------------------------------------

    def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
        """How often each number from 0 stands in a vector of whole ones, or the sum of its weights.
        As long as the largest number asks for, which is read, and at least `minlength`.

        >>> Tensor([1, 1, 3]).bincount().tolist()
        [0, 2, 0, 1]
        """
        if self.ndim != 1 or not dtypes.is_int(self.dtype) or minlength < 0:
            raise DTypeError(f"bincount: {self.dtype!r} {self.shape}; legal is a vector of ints")
        if weights is not None and weights.shape != self.shape:
            raise ShapeError(f"bincount: weights {weights.shape} for {self.shape}")
        few = most(self.numel()) < FEW_COUNTED
        seen = read(self._node, copy=False) if few else None
        low, high = self._ends_read() if seen is None else _ends(seen)
        if low < 0:
            raise ArgumentError(f"bincount: {low} is among the numbers; legal are numbers from 0")
        if seen is None or weights is not None:
            return self._summed_at(max(high + 1, minlength), weights)
        counts = np.bincount(seen.astype(np.int64, copy=False), minlength=minlength)
        return self._tensor(counts.astype(np.int32))

    def _ends_read(self) -> tuple[int, int]:
        compute(ends := self.aminmax())
        low, high = (int(read(end._node, copy=False)) for end in ends)
        return low, high

    @small
    def _summed_at(self, size: int, weights: Self | None) -> Self:
        """The sum of the weights at each of these places below `size`, or how many there are."""
        what = self.ones_like(dtype=dtypes.int32) if weights is None else weights
        zeros = self.zeros(size, dtype=what.dtype, device=self.device)
        return self._from(zeros._node.scatter("add", what._node, self._node), what)

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:  # noqa: A002
        """How many elements fall into each of `bins` equal stretches from `min` to `max`, which are
        the least and largest element where they are equal. The last includes its end.

        >>> Tensor([1.0, 2.0, 1.0]).histc(4, 0, 3).tolist()
        [0.0, 2.0, 1.0, 0.0]
        """
        at, inside, _ = self.flatten()._stretches("histc", bins, min, max, 1)
        return self._into(bins + 1, inside.where(at, bins), None)._cut(0, 0, bins)

    def histogram(
        self,
        bins: int | Self = 100,
        range: tuple[float, float] | None = None,  # noqa: A002
        weight: Self | None = None,
        density: bool = False,
    ) -> tuple[Self, Self]:
        """How many elements fall between each two neighbours of the edges, and the edges: `bins`
        equal stretches over `range` (of the elements, unless given), or a vector of edges.

        >>> [t.tolist() for t in Tensor([1.0, 2.0, 1.0]).histogram(2, (0.0, 4.0))]
        [[2.0, 1.0], [0.0, 2.0, 4.0]]
        """
        rows = self.reshape(-1, 1)
        counts, (edges,) = rows._counted("histogram", [bins], range, weight, density)
        return counts, edges

    def histogramdd(
        self,
        bins: int | Sequence[int | Self],
        range: Sequence[Any] | None = None,  # noqa: A002
        weight: Self | None = None,
        density: bool = False,
    ) -> tuple[Self, tuple[Self, ...]]:
        """`histogram` of points (.., axes): how many fall into each box, and the edges along each
        axis. `bins` are a number or edges for each axis, `range` the two ends of each.

        >>> counts, edges = Tensor([[0.0, 0.0], [1.0, 2.0]]).histogramdd(2)
        >>> counts.tolist(), [line.tolist() for line in edges]
        ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.5, 1.0], [0.0, 1.0, 2.0]])
        """
        axes = self.shape[-1] if self.ndim > 1 else 0
        each = [bins] * axes if isinstance(bins, int) else list(bins)
        ends = None if range is None else np.ravel(range).tolist()  # NumPy gives pairs
        if not axes or len(each) != axes or len(ends or each * 2) != 2 * axes:
            raise ShapeError(
                f"histogramdd: {bins} bins and range {range} of {self.shape}; legal are points "
                "(.., axes), bins for each axis and two ends for each"
            )
        return self.reshape(-1, axes)._counted("histogramdd", each, ends, weight, density)

    def _counted(
        self,
        operation: str,
        bins: Sequence[int | Self],
        ends: Sequence[float] | None,
        weight: Self | None,
        density: bool,
    ) -> tuple[Self, tuple[Self, ...]]:
        """The counts of points (n, axes) in boxes, and the edges along each axis."""
        if weight is not None and weight.numel() != self.shape[0]:
            raise ShapeError(
                f"{operation}: weight {weight.shape} of {self.shape[0]}; legal is one for each"
            )
        spot, inside, edges = self._counting(1, self.device) * 0, None, []
        for axis, wanted in enumerate(bins):
            column = self._cut(1, axis, axis + 1).reshape(-1)
            if isinstance(wanted, int):
                low, high = ends[2 * axis : 2 * axis + 2] if ends else (0, 0)
                at, there, line = column._stretches(operation, wanted, low, high, 0.5)
            else:
                line = wanted
                at = line.searchsorted(column, right=True) - 1
                at = column.eq(line[-1]).where(line.shape[0] - 2, at)
                there = (at >= 0) & (at < line.shape[0] - 1)
            spot = spot * (line.shape[0] - 1) + at
            inside = there if inside is None else inside & there
            edges.append(line)
        shape = tuple(line.shape[0] - 1 for line in edges)
        total = math.prod(shape)
        assert inside is not None
        counts = self._into(total + 1, inside.where(spot, total), weight)._cut(0, 0, total)
        counts = counts.reshape(shape)
        if density:
            counts = counts / counts.sum()
            for axis, line in enumerate(edges):
                counts = counts / counts._along(axis, line[1:] - line[:-1])
        return counts, tuple(edges)

    def _stretches(
        self, operation: str, bins: int, low: Any, high: Any, around: float
    ) -> tuple[Self, Self, Self]:
        """Of each element its number among equal stretches and whether it is in any, and the edges;
        if all elements are equal, `around` these."""
        if bins < 1 or not dtypes.is_float(self.dtype) or not -math.inf < low <= high < math.inf:
            raise ArgumentError(
                f"{operation}: {bins} bins of {self.dtype!r} from {low} to {high}; legal are "
                "floats, bins from 1"
            )
        if low == high and not self.numel():
            low, high = 0, 1
        first, last = (self._tensor(end, self.dtype) for end in (low, high))
        if low == high and self.numel():
            first, last = self.detach().aminmax()
        equal = first.eq(last)
        first, last = equal.where(first - around, first), equal.where(last + around, last)
        share = (self - first) / (last - first) * bins
        inside = (self >= first) & (self <= last)
        at = inside.where(share, 0).cast(dtypes.int32).clamp(0, bins - 1)
        steps = self._counting(bins + 1, self.device).cast(self.dtype) / bins
        return at, inside, first + (last - first) * steps

    def _into(self, size: int, places: Self, weight: Self | None) -> Self:
        """How many, or what weight, at each place below `size`."""
        what = places.ones_like(dtype=self.dtype) if weight is None else weight.cast(self.dtype)
        zeros = self.zeros(size, dtype=self.dtype, device=self.device)
        return zeros._written(0, places.flatten(), what.flatten(), "add")

    # ---- members --------------------------------------------------------------------------------

    def isin(self, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Self:
        """Whether each element stands among `test_elements`. NaN never does.

        >>> Tensor([1, 2, 3]).isin(Tensor([2, 5])).tolist()
        [False, True, False]
        """
        x, among = self, self._tensor(test_elements).flatten()
        hit = x.eq(x.const_like(0)) & False
        if among.numel():
            row = among.sort()[0]
            near = row[row.searchsorted(x).minimum(row.shape[0] - 1)]
            hit = near.eq(x)
        return hit.logical_not() if invert else hit

    def unique(
        self,
        sorted: bool = True,  # noqa: A002
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        """Each element once, in order, or each slice of axis `dim`; on wish also the number that
        each element has there, and how often each stands in this. Reads the tensor, always sorts;
        each NaN is one of its own.

        >>> [t.tolist() for t in Tensor([3, 1, 3]).unique(return_counts=True)]
        [[1, 3], [1, 2]]
        """
        x, axis = self._values_read("unique", dim)
        if axis is not None:
            values, inverse, counts = np.unique(x, False, True, True, axis, equal_nan=False)
            return self._found(values, inverse.reshape(-1), counts, return_inverse, return_counts)
        flat = x.reshape(-1)
        once, number, count = _counted_once(flat) or self._sorted_once(flat, return_inverse)
        each = number().reshape(x.shape) if return_inverse else None
        many = count() if return_counts else None
        return self._found(once, each, many, return_inverse, return_counts)

    def _sorted_once(self, flat: Array, has_places: bool) -> Distinct:
        """Of equal neighbours in order the first; `flat` are the values of this. Where the elements
        were is only known if it `has_places`: NumPy sorts values alone by vectors."""
        if not has_places and flat.dtype.itemsize >= WIDE:
            row, places = np.sort(flat), np.empty(0, np.intp)
        elif flat.size < FEW_SORTED:
            places = np.argsort(flat, kind="stable")
            row = flat[places]
        else:
            found = self.cast(_read_as(self)).flatten().sort()
            compute(found)
            row, places = (read(t._node, copy=False) for t in found)
        fresh = _are_fresh(row)

        def numbers() -> Array:
            each: Array = np.empty(flat.shape, np.int32)
            each[places.astype(np.intp)] = np.cumsum(fresh, dtype=np.int32) - 1
            return each

        def counts() -> Array:
            starts = np.flatnonzero(np.append(fresh, True))
            many = np.empty(len(starts) - 1, np.int32)
            return np.subtract(starts[1:], starts[:-1], out=many, casting="unsafe")

        return row[fresh], numbers, counts

    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        """Of equal neighbours only the first, flat or along `dim`; see `unique`. Reads the tensor.

        >>> Tensor([1, 1, 2, 1]).unique_consecutive().tolist()
        [1, 2, 1]
        """
        x, axis = self._values_read("unique_consecutive", dim)
        rows = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
        fresh = _are_fresh(rows)
        places = np.flatnonzero(fresh)
        values = np.moveaxis(rows[places], 0, axis or 0)
        inverse = (np.cumsum(fresh) - 1).reshape(x.shape if dim is None else -1)
        counts = np.diff(places, append=len(rows))
        return self._found(values, inverse, counts, return_inverse, return_counts)

    def _values_read(self, operation: str, dim: int | None) -> tuple[Any, int | None]:
        """The values as an array of a type that NumPy itself has, and axis `dim` from the front."""
        if dim is not None and not self.ndim:
            raise ShapeError(f"{operation}: of one number, shape (); legal is dim None")
        axis = None if dim is None else axis_of(dim, self.ndim, operation)
        return read(self.cast(_read_as(self))._node, copy=False), axis

    def _found(self, values: Any, inverse: Any, counts: Any, *wanted: bool) -> Any:
        """Arrays as tensors: the values, and of the others those that are wanted."""
        made = self._tensor(values).cast(self.dtype)
        others = [a for a, want in zip((inverse, counts), wanted, strict=True) if want]
        more = (self._tensor(a.astype(np.int32, copy=False)) for a in others)
        return (made, *more) if others else made


def _read_as(x: Any) -> DType:
    """A type that NumPy itself has, with the order of this one's."""
    return dtypes.float32 if x.dtype.fmt is None else x.dtype


def _ends(x: Array) -> tuple[int, int]:
    """The least and the largest number."""
    return (int(x.min()), int(x.max())) if x.size else (0, -1)


def _are_fresh(rows: Array) -> Array:
    """Which rows differ from the one before."""
    differ = (rows[1:] != rows[:-1]).any(axis=tuple(range(1, rows.ndim)))
    return np.concatenate([np.ones(len(rows[:1]), bool), differ])


def _counted_once(flat: Array) -> Distinct | None:
    """Of whole numbers that are close together, by counting each; None of others."""
    if flat.dtype == bool:
        flat = flat.view(np.uint8)
    if flat.dtype.kind not in "iu" or not flat.size:
        return None
    low, high = flat.min(), flat.max()
    if int(high) - int(low) >= max(flat.size, FEW_SORTED):
        return None
    places = flat.astype(np.int64, copy=False) - low.astype(np.int64)  # as 64 bits hold them
    counts = np.bincount(places)
    there = np.flatnonzero(counts)

    def numbers() -> Array:
        return np.asarray((np.cumsum(counts > 0, dtype=np.int32) - 1)[places])

    return (there + low.astype(np.int64)).astype(flat.dtype), numbers, lambda: counts[there]
