"""Many elements to few, by counting, by order, or without NaN: what NumPy and PyTorch call
statistics; and differences and integrals along an axis."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Self

from tinygrad.base.dtype import dtypes, least_upper_dtype, least_upper_float
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor.arguments import check_choice, check_number_from
from tinygrad.tensor.creation import LISTS, DTypeLike, node_of
from tinygrad.tensor.elementwise import float_kind
from tinygrad.tensor.long_tail.products import Products
from tinygrad.tensor.order import Found
from tinygrad.tensor.ranking import FEW_COLUMNS, chosen_by_counting, ranks
from tinygrad.tensor.reduction import Axis
from tinygrad.tensor.shapes import axis_of, check_axes
from tinygrad.tensor.template import expressions, small
from tinygrad.uop.infer import most

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@expressions
class Statistics(Products):
    """`dim` is one axis (or several, where it says so), or None for all elements."""

    __slots__ = ()

    # ---- extremes and counts ---------------------------------------------------------------------

    def amax(self, dim: Axis = None, keepdim: bool = False) -> Self:
        """The largest over one axis or several; see `max`.

        >>> Tensor([[1, 5], [3, 2]]).amax(1).tolist()
        [5, 3]
        """
        return self.max(dim, keepdim)

    def amin(self, dim: Axis = None, keepdim: bool = False) -> Self:
        """The smallest over one axis or several; see `min`.

        >>> Tensor([[1, 5], [3, 2]]).amin(1).tolist()
        [1, 2]
        """
        return self.min(dim, keepdim)

    def aminmax(self, dim: Axis = None, keepdim: bool = False) -> tuple[Self, Self]:
        """The smallest and the largest.

        >>> [t.item() for t in Tensor([3, 1, 2]).aminmax()]
        [1, 3]
        """
        return self.min(dim, keepdim), self.max(dim, keepdim)

    def count_nonzero(self, dim: Axis = None) -> Self:
        """How many are not zero, as int32; over one axis or several.

        >>> Tensor([0, 5, 6]).count_nonzero().item()
        2
        """
        return self.bool().sum(dim)

    # ---- without NaN -----------------------------------------------------------------------------

    def nansum(
        self, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None
    ) -> Self:
        """The sum, NaN counting as 0.

        >>> Tensor([1.0, float("nan")]).nansum().item()
        1.0
        """
        return self.isnan().where(0, self).sum(dim, keepdim, dtype=dtype)

    def nanprod(self, dim: Axis = None, keepdim: bool = False) -> Self:
        """The product, NaN counting as 1.

        >>> Tensor([2.0, float("nan"), 3.0]).nanprod().item()
        6.0
        """
        return self.isnan().where(1, self).prod(dim, keepdim)

    def nancumsum(self, dim: int = 0) -> Self:
        """The running sum, NaN counting as 0.

        >>> Tensor([2.0, float("nan"), 3.0]).nancumsum().tolist()
        [2.0, 2.0, 5.0]
        """
        return self.isnan().where(0, self).cumsum(dim)

    def nancumprod(self, dim: int = 0) -> Self:
        """The running product, NaN counting as 1.

        >>> Tensor([2.0, float("nan"), 3.0]).nancumprod().tolist()
        [2.0, 2.0, 6.0]
        """
        return self.isnan().where(1, self).cumprod(dim)

    def nanmax(self, dim: Axis = None, keepdim: bool = False) -> Self:
        """The largest of what is not NaN; NaN where there is none.

        >>> Tensor([1.0, float("nan"), 3.0]).nanmax().item()
        3.0
        """
        return self._of_numbers(type(self).max, -math.inf, dim, keepdim)

    def nanmin(self, dim: Axis = None, keepdim: bool = False) -> Self:
        """The smallest of what is not NaN; NaN where there is none.

        >>> Tensor([1.0, float("nan"), 3.0]).nanmin().item()
        1.0
        """
        return self._of_numbers(type(self).min, math.inf, dim, keepdim)

    def _of_numbers(self, reduce: Any, least: float, dim: Axis, keepdim: bool) -> Self:
        """A reduction that NaN, replaced by what never wins, has no part in."""
        if not dtypes.is_float(self.dtype):
            whole: Self = reduce(self, dim, keepdim)
            return whole
        out: Self = reduce(self.isnan().where(least, self), dim, keepdim)
        return self.isnan().all(dim, keepdim).where(math.nan, out)

    def nanmean(self, dim: Axis = None, keepdim: bool = False) -> Self:
        """The mean of what is not NaN; NaN where there is none.

        >>> Tensor([1.0, 3.0, float("nan")]).nanmean().item()
        2.0
        """
        kind = least_upper_float(self.dtype)
        x = self.cast(float_kind(self.dtype))
        count = x.isnan().logical_not().cast(x.dtype).sum(dim, keepdim)
        return (x.nansum(dim, keepdim) / count).cast(kind)

    def nanvar(self, dim: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The variance of what is not NaN; NaN where there is no more than `correction`.

        >>> Tensor([1.0, 3.0, float("nan")]).nanvar().item()
        2.0
        """
        kind = least_upper_float(self.dtype)
        x = self.cast(float_kind(self.dtype))
        away = x.isnan().where(0, x - x.nanmean(dim, True)).square().sum(dim, keepdim)
        count = x.isnan().logical_not().cast(x.dtype).sum(dim, keepdim) - correction
        return (count > 0).where(away / count, math.nan).cast(kind)

    def nanstd(self, dim: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The root of `nanvar`.

        >>> Tensor([1.0, 3.0, 5.0, float("nan")]).nanstd().item()
        2.0
        """
        return self.nanvar(dim, keepdim, correction).sqrt()

    # ---- by order --------------------------------------------------------------------------------

    def msort(self) -> Self:
        """In order along the first axis.

        >>> Tensor([3, 1, 2]).msort().tolist()
        [1, 2, 3]
        """
        return self.sort(0)[0]

    def _last(self, dim: int | None, operation: str) -> tuple[Self, int]:
        """With axis `dim` last, or flat; and which axis that was."""
        if dim is None:
            return self.flatten(), 0
        axis = axis_of(dim, self.ndim, operation)
        x = self if self.ndim else self.reshape(1)
        if x.shape[axis] == 0:
            raise ArgumentError(
                f"{operation}: of no elements: shape {self.shape}, axis {dim}; legal is one"
            )
        return x.moveaxis(axis, -1), axis

    def _restored(self, dim: int | None, keepdim: bool, axis: int, shape: tuple[Any, ...]) -> Self:
        """A result (..) with the axis that it lacks, where it is kept."""
        if not keepdim or not shape:
            return self
        return self.reshape((1,) * len(shape)) if dim is None else self.unsqueeze(axis)

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """The `k`-th smallest along `dim`, counted from 1, and where it was; NaN is largest.

        >>> [t.item() for t in Tensor([5, 3, 4]).kthvalue(2)]
        [4, 2]
        """
        x, axis = self._last(dim, "kthvalue")
        check_number_from("kthvalue", "k", k, 1, most(x.shape[-1]))
        return Found(t._restored(dim, keepdim, axis, self.shape) for t in x._chosen(k - 1))

    def _chosen(self, k: Any) -> tuple[Self, Self]:
        """The element of the last axis that is at place `k` in order, and where it was."""
        if isinstance(self.shape[-1], int) and self.shape[-1] <= FEW_COLUMNS:
            values, places = self.sort(-1)
            at = self._tensor(k).cast(dtypes.int32).expand((*self.shape[:-1], 1))
            return values.gather(-1, at).squeeze(-1), places.gather(-1, at).squeeze(-1)
        place = chosen_by_counting(self, k)
        return self.gather(-1, place).squeeze(-1), place.squeeze(-1)

    @small
    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The middle one of all, or along `dim`, then with where it was; of two the lower. NaN if
        there is one.

        >>> Tensor([1, 3, 2, 4]).median().item()
        2
        >>> [t.tolist() for t in Tensor([[3, 1, 2]]).median(1)]
        [[2], [2]]
        """
        return self._middle("median", dim, keepdim, False)

    @small
    def nanmedian(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The `median` of what is not NaN.

        >>> Tensor([1.0, float("nan"), 3.0]).nanmedian().item()
        1.0
        """
        return self._middle("nanmedian", dim, keepdim, True)

    def _middle(self, operation: str, dim: int | None, keepdim: bool, skip: bool) -> Any:
        """Of an even number the lower; of NaNs none is counted, or with `skip` none is seen."""
        x, axis = self._last(dim, operation)
        size = x.shape[-1]
        if size == 0:
            if not dtypes.is_float(x.dtype):
                raise ArgumentError(
                    f"{operation}: of no elements: shape {self.shape}, {x.dtype!r}; legal is one"
                )
            return x._wrap(x._constant(math.nan))._with_none_of(self)
        count = size - x.isnan().sum(-1)  # NaNs come after so many in order
        middle = (count - 1) // 2
        rank = count.eq(0).where(0, middle) if skip else (count < size).where(count, middle)
        found = x._chosen(rank.unsqueeze(-1))
        made = Found(t._restored(dim, keepdim, axis, self.shape) for t in found)
        return made.values if dim is None else made

    def mode(self, dim: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """The most frequent along `dim`, the smallest of those, and where it was last.

        >>> [t.item() for t in Tensor([3, 1, 3, 1, 2]).mode()]
        [1, 3]
        """
        x, axis = self._last(dim, "mode")
        values, places = x.sort(-1)
        size = x.shape[-1]
        rank = ranks(values)
        before = rank._cut(rank.ndim - 1, 0, size - 1)
        fresh = rank._cut(rank.ndim - 1, 1, size).ne(before)
        count = x._counting(size, x.device)
        pads = ((0, 0),) * (x.ndim - 1)
        start = (fresh.cast(dtypes.int32).pad((*pads, (1, 0))) * count).cummax(-1)[0]
        best = (count - start).argmax(-1).unsqueeze(-1)  # the end of the first longest run
        found, at = (t.gather(-1, best).squeeze(-1) for t in (values, places))
        return Found(t._restored(dim, keepdim, axis, self.shape) for t in (found, at))

    def quantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """Where a share `q` of the elements lies below: of several shares along a new first axis.
        Between two elements by `interpolation`: "linear", "lower", "higher", "midpoint" or
        "nearest". NaN if there is one.

        >>> Tensor([1.0, 2.0, 3.0]).quantile(0.25).item()
        1.5
        """
        return self._quantile("quantile", q, dim, keepdim, interpolation, False)

    def nanquantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """The `quantile` of what is not NaN; NaN where there is none.

        >>> Tensor([1.0, float("nan"), 3.0]).nanquantile(0.5).item()
        2.0
        """
        return self._quantile("nanquantile", q, dim, keepdim, interpolation, True)

    def percentile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """The `quantile` of q / 100.

        >>> Tensor([1.0, 2.0, 3.0]).percentile(25).item()
        1.5
        """
        return self._quantile("percentile", q, dim, keepdim, interpolation, False, 100)

    def nanpercentile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """The `nanquantile` of q / 100.

        >>> Tensor([1.0, float("nan"), 3.0]).nanpercentile(50).item()
        2.0
        """
        return self._quantile("nanpercentile", q, dim, keepdim, interpolation, True, 100)

    def _quantile(
        self,
        operation: str,
        q: Any,
        dim: int | None,
        keepdim: bool,
        how: str,
        skip: bool,
        whole: int = 1,
    ) -> Self:
        check_choice(operation, "interpolation", how, INTERPOLATIONS)
        if 0 in getattr(q, "shape", ()):
            raise ArgumentError(f"{operation}: q of shape {q.shape}; legal is one number or more")
        for share in (q,) if isinstance(q, (int, float)) else q if isinstance(q, LISTS) else ():
            if not isinstance(share, Real):
                raise ArgumentError(f"{operation}: q={q!r}; legal are numbers from 0 to {whole}")
            check_number_from(operation, "q", share, 0, whole)
        x, axis = self._last(dim, operation)
        if x.shape[-1] == 0:
            raise ArgumentError(f"{operation}: of no elements: shape {self.shape}; legal is one")
        kind, x = least_upper_float(x.dtype), x.cast(float_kind(x.dtype))
        given = q._node if isinstance(q, Statistics) else node_of(q, x.dtype, self.device)
        shares = self._wrap(given.cast(x.dtype))
        shares = shares / whole if whole > 1 else shares
        if shares.ndim > 1:
            raise ShapeError(f"{operation}: q of {shares.shape}; legal are a number and a vector")
        if isinstance(q, Statistics):
            fits = ((shares >= 0) & (shares <= 1))._node
            told = f"{operation}: q outside 0 to {whole}"
            shares = shares._from(shares._node.check(fits, "value", told)).clip(0, 1)
        values = x.sort(-1)[0]
        missing = x.isnan().sum(-1, keepdim=True)  # (.., 1)
        last = (x.shape[-1] - missing - 1).cast(x.dtype)
        place = shares.reshape(-1) * last.maximum(0)  # (.., q)
        low, high = place.floor(), place.ceil()
        if how in ("lower", "higher", "nearest"):
            place = {"lower": low, "higher": high, "nearest": place.round()}[how]
            low = high = place
        a, b = (values.gather(-1, t.cast(dtypes.int32)) for t in (low, high))
        weight = a.full_like(0.5) if how == "midpoint" else place - low
        infinite = a.isinf() | b.isinf()  # which no line leads to
        between = infinite.where(a + b, a.lerp(infinite.where(a, b), weight))
        out = (weight.eq(0) | a.eq(b)).where(a, between)
        spoilt = last < 0 if skip else missing.ne(0)
        out = spoilt.where(math.nan, out).cast(kind)
        parts = out.moveaxis(-1, 0)
        if keepdim and self.ndim:
            shape = [1] * self.ndim if dim is None else list(self.shape)
            shape[axis] = 1
            parts = parts.reshape((parts.shape[0], *shape))
        elif not self.ndim:
            parts = parts.reshape(-1)
        return parts if shares.ndim else parts.squeeze(0)

    # ---- differences and integrals ---------------------------------------------------------------

    def diff(
        self, n: int = 1, dim: int = -1, prepend: Self | None = None, append: Self | None = None
    ) -> Self:
        """Each element less the one before along `dim`, `n` times.

        >>> Tensor([1, 4, 9]).diff().tolist()
        [3, 5]
        """
        axis = axis_of(dim, self.ndim, "diff")
        if self.ndim == 0 or n < 0:
            raise ShapeError(f"diff: {n} times of {self.shape}; legal are one axis or more, n >= 0")
        parts = [part for part in (prepend, self, append) if n and part is not None] or [self]
        out = parts[0].cat(*parts[1:], dim=axis) if len(parts) > 1 else self
        for _ in range(n):
            after, before = out._neighbours(axis)
            out = after.ne(before) if out.dtype is dtypes.bool else after - before
        return out._copied(self)

    def _neighbours(self, axis: int) -> tuple[Self, Self]:
        """All elements of an axis but the first, and all but the last."""
        size = self.shape[axis]
        # a symbolic size is no 0: where it is one now, what is cut off is told to be missing
        first = 0 if size == 0 else 1
        return self._cut(axis, first, size), self._cut(axis, 0, size - first)

    def _slabs(self, operation: str, x: Any, dx: float, dim: int) -> tuple[Self, int]:
        """The areas between neighbours along `dim`."""
        axis = axis_of(dim, self.ndim, operation)
        check_axes(operation, self, 1)
        after, before = self._neighbours(axis)
        if x is None:
            return after.add(before) * (dx / 2), axis
        places = self._tensor(x)
        places = self._along(axis, places) if places.ndim == 1 else places
        there = self.ndim - axis <= places.ndim <= self.ndim
        if not there or places.shape[axis - self.ndim] != self.shape[axis]:
            raise ShapeError(f"{operation}: places {places.shape} for {self.shape}")
        return after.add(before) * places.diff(dim=axis - self.ndim) / 2, axis

    def trapezoid(self, x: Any = None, dx: float = 1.0, dim: int = -1) -> Self:
        """The integral along `dim` by the trapezoidal rule, at places `x` or `dx` apart.

        >>> Tensor([1.0, 2.0, 3.0]).trapezoid().item()
        4.0
        """
        areas, axis = self._slabs("trapezoid", x, dx, dim)
        return areas.sum(axis)

    trapz = trapezoid

    def cumulative_trapezoid(self, x: Any = None, dx: float = 1.0, dim: int = -1) -> Self:
        """The integral up to each element but the first; see `trapezoid`.

        >>> Tensor([1.0, 2.0, 3.0]).cumulative_trapezoid().tolist()
        [1.5, 4.0]
        """
        areas, axis = self._slabs("cumulative_trapezoid", x, dx, dim)
        return areas.cumsum(axis)

    # ---- together --------------------------------------------------------------------------------

    def cov(
        self,
        correction: int = 1,
        fweights: Self | None = None,
        aweights: Self | None = None,
        rowvar: bool = True,
    ) -> Self:
        """How the rows vary together: (n, n) of n variables by observations, over the number of
        observations less `correction`, () of one; `fweights` say how often each counts, `aweights`
        how much. Without `rowvar` columns are variables.

        >>> Tensor([[0.0, 2.0], [1.0, 5.0]]).cov().tolist()
        [[2.0, 4.0], [4.0, 8.0]]
        """
        if self.ndim > 2:
            raise ShapeError(f"cov: {self.shape}; legal are at most two axes")
        kinds = (w.dtype for w in (self, fweights, aweights) if w is not None)
        kind = least_upper_float(least_upper_dtype(*kinds))
        x = self.cast(float_kind(kind)).atleast_2d()
        x = x.T if not rowvar and self.ndim == 2 else x
        given = [w.cast(x.dtype) for w in (fweights, aweights) if w is not None]
        weight = given[0] if given else x.ones(x.shape[1], dtype=x.dtype, device=x.device)
        weight = weight * given[1] if len(given) > 1 else weight
        total = weight.sum()
        centred = x - (x * weight).sum(1, keepdim=True) / total
        if aweights is None:
            freedom = total - correction
        else:
            freedom = total - (weight * aweights).sum() / total * correction
        products = (centred * weight).dot(centred.T) / (freedom <= 0).where(0, freedom)
        return (products.reshape(()) if x.shape[0] == 1 else products).cast(kind)

    def corrcoef(self, rowvar: bool = True) -> Self:
        """`cov` over the product of both standard deviations: from -1 to 1.

        >>> Tensor([[0.0, 2.0], [1.0, 5.0]]).corrcoef().round().tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        c = self.cov(rowvar=rowvar)
        if c.ndim == 0:
            return c / c
        root = c.diagonal().sqrt()
        return (c / root.unsqueeze(1) / root.unsqueeze(0)).clamp(-1, 1)
