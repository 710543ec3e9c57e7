"""What depends on order along an axis: running sums, sorting, choosing the largest."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Self

from tinygrad.base.dtype import compute_dtype, dtypes, sum_acc_dtype
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor.conv import Conv
from tinygrad.tensor.creation import DTypeLike
from tinygrad.tensor.functions import wide
from tinygrad.tensor.ranking import FEW_COLUMNS, few_in_order, in_order, leaders
from tinygrad.tensor.shapes import axis_of
from tinygrad.tensor.template import expressions
from tinygrad.uop.infer import most


class Found(tuple[Any, Any]):
    """What was found along an axis, and where: `values, indices = x.sort()`, or by these names."""

    __slots__ = ()
    values = property(itemgetter(0))
    indices = property(itemgetter(1))


RUNNING = {"add": "cumsum", "mul": "cumprod", "max": "cummax"}


@expressions
class Order(Conv):
    """Running reductions and sorting."""

    __slots__ = ()

    # ---- running reductions ----------------------------------------------------------------------

    def _running(self, monoid: str, axis: int) -> Self:
        """Element i becomes the reduction of elements 0..i along `axis`, in a wide type."""
        at = axis_of(axis, self.ndim, RUNNING[monoid])
        if self.ndim == 0 or 0 in self.shape:
            return self._copied(self)
        small = not dtypes.is_float(self.dtype) and self.dtype.itemsize < 4
        x = self.cast(dtypes.int32 if small else compute_dtype(self.dtype))
        return x._from(x._node.running(monoid, at)).cast(self.dtype)._copied(self)

    def cumsum(self, axis: int = 0, dtype: DTypeLike | None = None) -> Self:
        """The sum of this and all before along `axis`; of these as `dtype`, if there is one.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        return self.cast(dtype or sum_acc_dtype(self.dtype))._running("add", axis)

    def cumprod(self, axis: int = 0, dtype: DTypeLike | None = None) -> Self:
        """The product of this and all before along `axis`; of these as `dtype`, if there is one.

        >>> Tensor([1, 2, 3]).cumprod().tolist()
        [1, 2, 6]
        """
        return self.cast(dtype or sum_acc_dtype(self.dtype))._running("mul", axis)

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """The largest of this and all before along `axis`, and where it was (the latest).

        >>> [t.tolist() for t in Tensor([1, 3, 2]).cummax()]
        [[1, 3, 3], [0, 1, 1]]
        """
        at = axis_of(axis, self.ndim, "cummax")
        if self.ndim == 0:
            return Found((self._copied(self), self.zeros_like(dtype=dtypes.int32)))
        top, size = self._running("max", at), self.shape[at]
        count = self._along(at, self._counting(size, self.device))
        fresh = self.eq(top) | (self.isnan() & top.isnan())
        return Found((top, fresh.where(count, 0)._running("max", at)))

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """The smallest of this and all before along `axis`, and where it was (the latest).

        >>> [t.tolist() for t in Tensor([3, 1, 2]).cummin()]
        [[3, 1, 1], [0, 1, 1]]
        """
        top, places = self._opposite().cummax(axis)
        return Found((top._opposite(), places))

    @wide
    def logcumsumexp(self, axis: int = 0) -> Self:
        """log of the running sum of e**x, without overflow.

        >>> Tensor([0.0, 0.0]).logcumsumexp().numpy().round(4)
        array([0.    , 0.6931], dtype=float32)
        """
        at = axis_of(axis, self.ndim, "logcumsumexp")
        if self.ndim == 0 or 0 in self.shape:
            return self._copied(self)
        size, reach = self.shape[at], 1
        top = self.detach()._running("max", at)  # to which the sums are relative: it never falls
        top = top.isfinite().where(top, 0).contiguous()
        total = (self - top).exp()
        while reach < most(size):  # each holds the last `reach` of those before it. (Hillis, 1986.)
            pads = tuple((reach, 0) if i == at else (0, 0) for i in range(self.ndim))
            top_then, total_then = (x.pad(pads)._cut(at, 0, size) for x in (top, total))
            total = (total + total_then * (top_then - top).minimum(0).exp()).contiguous()
            reach *= 2
        nothing = total.eq(0)  # e**-inf alone, as this element is
        return nothing.where(self, top + nothing.where(1, total).log())

    # ---- sorting ---------------------------------------------------------------------------------

    def sort(
        self, dim: int = -1, descending: bool = False, stable: bool = True
    ) -> tuple[Self, Self]:
        """In order along `dim`, and where each was; equal ones keep their order whatever `stable`
        says, NaN is largest.

        >>> [t.tolist() for t in Tensor([3, 1, 2]).sort()]
        [[1, 2, 3], [1, 2, 0]]
        """
        axis = axis_of(dim, self.ndim, "sort")
        if self.ndim == 0:
            return Found((self._copied(self), self.zeros_like(dtype=dtypes.int32)))
        x = self.movedim(axis, -1)
        size, is_one = self.shape[axis], not isinstance(self.device, tuple)
        if is_one and isinstance(size, int) and 0 < size <= FEW_COLUMNS:
            return Found(few_in_order(self, axis, descending))
        values, places = in_order(x, descending)
        if is_one and axis < self.ndim - 1:
            values = values.contiguous()
        return Found((values._laid_along(axis), places._laid_along(axis)))

    def _laid_along(self, axis: int) -> Self:
        """This, found along the last axis, with that as `axis`; its elements lie in order, so that
        a reshape is a view of it."""
        last = axis == self.ndim - 1
        return self if last else self.movedim(-1, axis).contiguous()

    def _gathered_along(self, axis: int, places: Self) -> Self:
        """The elements at places of the last axis, with that as `axis`. They are moved after they
        are gathered, as along `axis` each would be far from the one before."""
        values = self.gather(-1, places)
        return values if axis == self.ndim - 1 else values.contiguous()._laid_along(axis)

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """Where each element of the sorted tensor was.

        >>> Tensor([30, 10, 20]).argsort().tolist()
        [1, 2, 0]
        """
        return self.sort(dim, descending)[1]

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> tuple[Self, Self]:
        """The `k` largest (or smallest) along `dim`, in order, and where each was.

        >>> [t.tolist() for t in Tensor([3, 1, 2]).topk(2)]
        [[3, 2], [0, 2]]
        """
        axis = axis_of(dim, self.ndim, "topk")
        size = self.shape[axis] if self.ndim else 1
        if not 0 <= k <= most(size):
            raise ArgumentError(f"topk: {k} of an axis of size {size}; legal are 0 to {most(size)}")
        if self.ndim == 0:
            return Found((self._copied(self), self.zeros_like(dtype=dtypes.int32)))
        x = self.movedim(axis, -1)
        places = leaders(x, k, largest)
        return Found((x._gathered_along(axis, places), places._laid_along(axis)))
