"""Many elements to one: sums, products, extremes, their positions, and what is made of them."""

from __future__ import annotations

from typing import Any, Self

from tinygrad.base.dtype import compute_dtype, dtypes, least_upper_float, sum_acc_dtype
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.base.helpers import prod
from tinygrad.tensor.creation import DTypeLike, checked_dtype, node_of
from tinygrad.tensor.elementwise import order_reversed
from tinygrad.tensor.functions import Functions, wide
from tinygrad.tensor.ranking import fits, places_of, ranks, words
from tinygrad.tensor.shapes import axis_of
from tinygrad.tensor.template import expressions
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS

REDUCES = {"add": "sum", "mul": "prod", "max": "max"}
Axis = int | tuple[int, ...] | list[int] | None


@expressions
class Reduction(Functions):
    """`axis` is one, several, or None for all; `keepdim` keeps them with size 1."""

    __slots__ = ()

    def _reduce(self, monoid: str, axis: Axis, keepdim: bool) -> Self:
        axes = self._axes(axis, REDUCES[monoid])
        node = self._node
        if any(self.shape[i] == 0 for i in axes):  # nothing to combine: the neutral element
            shape = tuple(1 if i in axes else n for i, n in enumerate(self.shape))
            neutral = self._constant(MONOIDS[monoid].identity(self.dtype), shape=shape)
            kept = self._wrap(neutral)._with_none_of(self)
        else:
            kept = self._from(node.reduce_axis(monoid, axes))
        return (kept if keepdim else kept._without(axes))._copied(self)

    def _without(self, axes: tuple[int, ...]) -> Self:
        return self._spaced(tuple(n for i, n in enumerate(self.shape) if i not in axes))

    def _accumulated(self, monoid: str, axis: Axis, keepdim: bool, dtype: DTypeLike | None) -> Self:
        """Reduced in a type that is wide enough; narrow floats return to their own."""
        if dtype is not None:
            return self.cast(checked_dtype(dtype))._reduce(monoid, axis, keepdim)
        kind = sum_acc_dtype(self.dtype)
        return self.cast(compute_dtype(kind))._reduce(monoid, axis, keepdim).cast(kind)

    def sum(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The sum. Small integers and bools add up as int32, unsigned ones as uint32.

        >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
        [4, 6]
        """
        return self._accumulated("add", axis, keepdim, dtype)

    def prod(
        self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None
    ) -> Self:
        """The product.

        >>> Tensor([2, 3, 4]).prod().item()
        24
        """
        return self._accumulated("mul", axis, keepdim, dtype)

    def max(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """The largest; NaN if there is one. ArgumentError for an axis without elements.

        >>> Tensor([1, 5, 3]).max().item()
        5
        """
        self._not_empty("max", axis)
        return self._reduce("max", axis, keepdim)._of_some("max", self, axis)

    def min(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """The smallest; NaN if there is one. ArgumentError for an axis without elements.

        >>> Tensor([3, 1, 2]).min().item()
        1
        """
        self._not_empty("min", axis)
        top = self._from(order_reversed(self._node))._reduce("max", axis, keepdim)
        return top._from(order_reversed(top._node))._of_some("min", self, axis)

    def _not_empty(self, operation: str, axis: Axis) -> None:
        if any(self.shape[i] == 0 for i in self._axes(axis, operation)):
            raise ArgumentError(
                f"{operation}: of no elements: shape {self.shape}, axis {axis}; legal is one"
            )

    def _of_some(self, operation: str, whole: Self, axis: Axis) -> Self:
        """This, a result, which a read refuses if a size that is a variable is 0 then."""
        made = self
        for i in whole._axes(axis, operation):
            size = whole.shape[i]
            if isinstance(size, UOp):
                text = f"of no elements: {size.render()} along axis {axis} is 0"
                made = made._if_size(size, 1, f"{operation}: {text}")
        return made

    def _if_size(self, size: Any, least: int, text: str) -> Self:
        """This, which a read refuses with `text` if `size`, where it is a variable, is less."""
        if not isinstance(size, UOp) or size.vmin >= least:
            return self
        now = node_of(size, dtypes.int32, self.device).broadcast_to(self.shape)
        return self._from(self._node.check(now >= least, "value", text))

    def mean(
        self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None
    ) -> Self:
        """The mean, a float; of these as `dtype`, if there is one.

        >>> Tensor([1, 2]).mean().item()
        1.5
        """
        x = self._as_float("mean", dtype)
        kind = least_upper_float(x.dtype)
        total = x.cast(compute_dtype(kind)).sum(axis, keepdim)
        return total.div(self._count(axis)).cast(kind)

    def _count(self, axis: Axis) -> Any:
        return prod(self.shape[i] for i in self._axes(axis, "mean"))

    def any(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Whether one is not zero.

        >>> Tensor([0, 1]).any().item()
        True
        """
        return self.bool()._reduce("max", axis, keepdim)

    def all(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Whether none is zero.

        >>> Tensor([[True, False], [True, True]]).all(axis=1).tolist()
        [False, True]
        """
        return self.logical_not()._reduce("max", axis, keepdim).logical_not()

    def allclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """Whether all are close; see `isclose`. Reads the result.

        >>> Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.0 + 1e-7]))
        True
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    # ---- spread ----------------------------------------------------------------------------------

    def var(
        self, axis: Axis = None, keepdim: bool = False, correction: float | bool | None = None
    ) -> Self:
        """The mean of squared distances to the mean; over n - `correction`, which is 1 if not said.

        >>> Tensor([1.0, 3.0]).var().item()
        2.0
        """
        return self.var_mean(axis, keepdim, correction)[0]

    def var_mean(
        self, axis: Axis = None, keepdim: bool = False, correction: float | bool | None = None
    ) -> tuple[Self, Self]:
        """The variance and the mean. A bool in the place of the axes is the correction, of all
        elements: `var(False)` is over n. ArgumentError for a correction beside it.

        >>> [t.item() for t in Tensor([1.0, 2.0, 3.0]).var_mean()]
        [1.0, 2.0]
        """
        axis, correction = spread_over(axis, correction)
        kind = least_upper_float(self.dtype)
        x = self.cast(compute_dtype(kind))
        mean = x.mean(axis, keepdim=True)
        squares = (x - mean).square().sum(axis, keepdim)
        freedom = self._count(axis) - correction
        spread = squares.div(freedom.maximum(0) if isinstance(freedom, UOp) else max(0, freedom))
        centre = mean if keepdim else mean._without(self._axes(axis, "var"))
        return spread.cast(kind), centre.cast(kind)

    def std(
        self, axis: Axis = None, keepdim: bool = False, correction: float | bool | None = None
    ) -> Self:
        """The square root of the variance.

        >>> Tensor([1.0, 2.0, 3.0]).std().item()
        1.0
        """
        return self.var(axis, keepdim, correction)._square_root()

    def _square_root(self) -> Self:
        """The square root; where it is 0 no gradient passes, instead of an infinite one."""
        silent = self.eq(0)
        return silent.where(0, silent.where(1, self).sqrt())

    def std_mean(
        self, axis: Axis = None, keepdim: bool = False, correction: float | bool | None = None
    ) -> tuple[Self, Self]:
        """The standard deviation and the mean.

        >>> [t.item() for t in Tensor([1.0, 2.0, 3.0]).std_mean()]
        [1.0, 2.0]
        """
        spread, mean = self.var_mean(axis, keepdim, correction)
        return spread._square_root(), mean

    # ---- positions -------------------------------------------------------------------------------

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The position of the largest, the first of equals, as int32; NaN is the largest.

        >>> Tensor([1, 5, 3]).argmax().item()
        1
        """
        if axis is None:
            place = self.flatten().argmax(0)
            return place.reshape((1,) * self.ndim) if keepdim else place
        self._not_empty("argmax", axis)
        at = axis_of(axis, self.ndim, "argmax")
        x = self if self.ndim else self.reshape(1)
        n = x.shape[at]
        found: Self
        late = x._along(
            at, -(x._counting(n, self.device) - (n - 1))
        )  # n - 1 at the front, 0 at the end
        if fits(x, n):  # one pass over memory
            found = n - 1 - places_of(words(ranks(x), late)._reduce("max", at, keepdim))
        else:
            hit = x.eq(x._reduce("max", at, True)) | x.isnan()
            found = n - 1 - hit.where(late, 0)._reduce("max", at, keepdim)
        found = found.cast(dtypes.int32) if self.ndim else found.reshape(())
        return found._of_some("argmax", self, axis)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The position of the smallest, the first of equals, as int32; NaN is the smallest.

        >>> Tensor([3, 1, 2]).argmin().item()
        1
        """
        return self._from(order_reversed(self._node)).argmax(axis, keepdim)

    def _along(self, axis: int, vector: Self) -> Self:
        """A vector lying along one axis of this one's shape, all others of size 1."""
        return vector.reshape(tuple(-1 if i == axis else 1 for i in range(self.ndim)))

    # ---- normalized exponentials -----------------------------------------------------------------

    def softmax(self, axis: Axis = -1, dtype: DTypeLike | None = None) -> Self:
        """e**x over its sum along `axis`; of x as `dtype`, if there is one.

        >>> Tensor([0.0, 0.0]).softmax().tolist()
        [0.5, 0.5]
        """
        return self._as_float("softmax", dtype)._softmax(axis)

    def log_softmax(self, axis: Axis = -1, dtype: DTypeLike | None = None) -> Self:
        """The logarithm of `softmax`, computed without it.

        >>> Tensor([-1.0, 0.5, 2.0]).log_softmax().numpy().round(4)
        array([-3.2413, -1.7413, -0.2413], dtype=float32)
        """
        return self._as_float("log_softmax", dtype)._log_softmax(axis)

    @wide
    def _softmax(self, axis: Axis) -> Self:
        e = self._below_largest(axis).exp()
        return e * e.sum(axis, keepdim=True).reciprocal()

    @wide
    def _log_softmax(self, axis: Axis) -> Self:
        x = self._below_largest(axis)
        return x - x.exp().sum(axis, keepdim=True).log()

    def _as_float(self, operation: str, dtype: DTypeLike | None) -> Self:
        """As `dtype`; DTypeError unless that is a float."""
        kind = checked_dtype(dtype) if dtype is not None else self.dtype
        if dtype is not None and not dtypes.is_float(kind):
            raise DTypeError(f"{operation}: as {kind!r}; legal are floats")
        return self.cast(kind)

    def _below_largest(self, axis: Axis) -> Self:
        """How far each element is from the largest along `axis`, if there is one."""
        return self if 0 in self.shape else self - self._reduce("max", axis, True).detach()

    def softmin(self, axis: Axis = -1, dtype: DTypeLike | None = None) -> Self:
        """`softmax` of minus this.

        >>> Tensor([-1.0, 0.5, 2.0]).softmin().numpy().round(4)
        array([0.7856, 0.1753, 0.0391], dtype=float32)
        """
        return (-self).softmax(axis, dtype)

    @wide
    def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """log of the sum of e**x, without overflow.

        >>> Tensor([1000.0]).logsumexp().item()
        1000.0
        """
        if any(self.shape[i] == 0 for i in self._axes(axis, "logsumexp")):
            return self.sum(axis, keepdim).log()  # -inf
        top = self._reduce("max", axis, True).detach()
        top = top.isinf().where(0, top)
        out = (self - top).exp().sum(axis, keepdim=True).log() + top
        return out if keepdim else out._without(self._axes(axis, "logsumexp"))


def spread_over(axis: Axis | bool, correction: float | bool | None) -> tuple[Axis, float | bool]:
    """The axes and the correction of a variance; see `var_mean`."""
    if not isinstance(axis, bool):
        return axis, 1 if correction is None else correction
    if correction is not None:
        raise ArgumentError(
            f"var: {axis} in the place of the axes, which is the correction, and {correction=}; "
            "legal is one of the two"
        )
    return None, axis
