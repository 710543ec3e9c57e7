"""What depends on order along an axis: running sums, sorting, choosing the largest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinygrad.base.dtype import dtypes, sum_acc_dtype
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor.conv import Conv
from tinygrad.tensor.core import axis_of
from tinygrad.tensor.functions import wide
from tinygrad.tensor.ranking import in_order, leaders
from tinygrad.uop.node import UOp

BLOCK = 64  # a running reduction adds up so many elements directly, and blocks of so many


class Order(Conv):
    """Running reductions and sorting."""

    __slots__ = ()

    # ---- running reductions ----------------------------------------------------------------------

    def _running(self, monoid: str, axis: int, neutral: Any) -> Self:
        """Element i becomes the reduction of elements 0..i along `axis`.

        Blocks of 64 by windows that reach back to their block's start, then the blocks' totals
        in the same way: n·64 operations and few steps for any n.
        """
        at = axis_of(axis, self.ndim, "cumsum")
        if self.ndim == 0 or 0 in self.shape:
            return self
        x = self.movedim(at, -1)
        *lead, n = x.shape
        if isinstance(n, UOp):
            room = x.pad((0, n.vmax - n), value=neutral)._running(monoid, -1, neutral)
            return room._cut(len(lead), 0, n).movedim(-1, at)
        if n <= BLOCK:
            return x._running_short(monoid, neutral).movedim(-1, at)
        blocks = -(-n // BLOCK)
        x = x.pad((0, blocks * BLOCK - n), value=neutral).reshape((*lead, blocks, BLOCK))
        inside = x._running_short(monoid, neutral)  # (.., blocks, 64)
        totals = x._reduce(monoid, -1, False)._running(monoid, -1, neutral)  # (.., blocks)
        before = totals._cut(len(lead), 0, blocks - 1).pad((1, 0), value=neutral).unsqueeze(-1)
        whole: Self = COMBINE[monoid](before, inside)
        flat = whole.reshape((*lead, blocks * BLOCK))._cut(len(lead), 0, n)
        return flat.movedim(-1, at)

    def _running_short(self, monoid: str, neutral: Any) -> Self:
        n = self.shape[-1]
        padded = self.pad((n - 1, 0), value=neutral)
        windows = padded._from(padded._node.window(((self.ndim - 1, n, 1, 1, 0, 0),)))
        return windows._reduce(monoid, -1, False)

    def cumsum(self, axis: int = 0) -> Self:
        """The sum of this and all before along `axis`.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        kind = sum_acc_dtype(self.dtype)
        narrow = dtypes.is_float(kind) and kind.itemsize < 4
        x = self.cast(dtypes.float32 if narrow else kind)
        return x._running("add", axis, 0).cast(kind)

    def cumprod(self, axis: int = 0) -> Self:
        """The product of this and all before along `axis`."""
        return self.cast(sum_acc_dtype(self.dtype))._running("mul", axis, 1)

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """The largest of this and all before along `axis`, and where it was (the latest).

        >>> [t.tolist() for t in Tensor([1, 3, 2]).cummax()]
        [[1, 3, 3], [0, 1, 1]]
        """
        if self.ndim == 0:
            return self, self.zeros_like(dtype=dtypes.int32)
        top = self._running("max", axis, dtypes.min(self.dtype))
        at = axis_of(axis, self.ndim, "cummax")
        count = self._along(at, self._counting(self.shape[at], self.device))
        fresh = self.eq(top) | (self.isnan() & top.isnan())
        return top, fresh.where(count, 0)._running("max", axis, 0)

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """The smallest of this and all before along `axis`, and where it was (the latest)."""
        top, places = self._opposite().cummax(axis)
        return top._opposite(), places

    @wide
    def logcumsumexp(self, axis: int = 0) -> Self:
        """log of the running sum of e**x, without overflow."""
        if self.ndim == 0 or 0 in self.shape:
            return self
        at = axis_of(axis, self.ndim, "logcumsumexp")
        n = self.shape[at]
        x = self.movedim(at, -1)
        # (.., n, n): row i holds elements 0..i
        seen = self.ones(n, n, dtype=dtypes.bool, device=self.device).tril()
        rows = seen.where(x.unsqueeze(-2), -float("inf"))
        return rows.logsumexp(-1).movedim(-1, at)

    # ---- sorting ---------------------------------------------------------------------------------

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """In order along `dim`, and where each was; equal ones keep their order, NaN is largest.

        >>> [t.tolist() for t in Tensor([3, 1, 2]).sort()]
        [[1, 2, 3], [1, 2, 0]]
        """
        if self.ndim == 0:
            return self, self.zeros_like(dtype=dtypes.int32)
        axis = axis_of(dim, self.ndim, "sort")
        x = self.movedim(axis, -1)
        places = in_order(x, descending)
        return x.gather(-1, places).movedim(-1, axis), places.movedim(-1, axis)

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """Where each element of the sorted tensor was."""
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
        if not 0 <= k <= size:
            raise ArgumentError(f"topk: {k} of an axis of size {size}; legal are 0 to {size}")
        if self.ndim == 0:
            return self, self.zeros_like(dtype=dtypes.int32)
        x = self.movedim(axis, -1)
        places = leaders(x, k, largest)
        return x.gather(-1, places).movedim(-1, axis), places.movedim(-1, axis)


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": lambda a, b: a.maximum(b),
}
