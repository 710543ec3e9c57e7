"""Many elements to one: sums, extremes, running sums, differences."""

from __future__ import annotations

import builtins

from tinygrad.array_api.types import checked
from tinygrad.base.dtype import DType, dtypes, sum_acc_dtype
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import axis_of

__all__ = [
    "all",
    "any",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]

Axis = int | tuple[int, ...] | None


def all(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether all elements are true.

    >>> all(Tensor([True, False])).item()
    False
    """
    checked(x)
    return x.all(axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether some element is true.

    >>> any(Tensor([True, False])).item()
    True
    """
    checked(x)
    return x.any(axis, keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The greatest element; NaN if there is one.

    >>> max(Tensor([1, 5, 3])).item()
    5
    """
    checked(x)
    return x.max(axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The least element; NaN if there is one.

    >>> min(Tensor([4, 1])).item()
    1
    """
    checked(x)
    return x.min(axis, keepdims)


def sum(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """The sum; of small integers in the default integer type.

    >>> sum(Tensor([1, 2, 3])).item()
    6
    """
    checked(x)
    return x.sum(axis, keepdims, dtype=dtype)


def prod(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """The product; of small integers in the default integer type.

    >>> prod(Tensor([2, 3])).item()
    6
    """
    checked(x)
    wide = dtype or sum_acc_dtype(x.dtype)
    return x.cast(wide).prod(axis, keepdims, dtype=wide)


def _floats(operation: str, x: Tensor) -> None:
    checked(x)
    if not dtypes.is_float(x.dtype):
        raise DTypeError(f"{operation}: of {x.dtype!r}; legal are floats")


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The arithmetic mean.

    >>> mean(Tensor([1.0, 3.0])).item()
    2.0
    """
    if not x.is_complex():
        _floats("mean", x)
    return x.mean(axis, keepdims)


def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The mean square distance from the mean, over as many as there are less `correction`.

    >>> var(Tensor([1.0, 3.0])).item()
    1.0
    """
    _floats("var", x)
    return x.var(axis, keepdims, correction)


def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The square root of `var`.

    >>> std(Tensor([1.0, 3.0])).item()
    1.0
    """
    _floats("std", x)
    return x.std(axis, keepdims, correction)


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """The sums of all elements up to each; first the empty sum, if `include_initial`.

    >>> cumulative_sum(Tensor([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _running("cumsum", 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """The products of all elements up to each; first the empty product, if `include_initial`.

    >>> cumulative_prod(Tensor([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    return _running("cumprod", 1, x, axis, dtype, include_initial)


def _running(
    method: str,
    start: int,
    x: Tensor,
    axis: int | None,
    dtype: DType | None,
    include_initial: builtins.bool,
) -> Tensor:
    checked(x)
    if axis is None and x.ndim > 1:
        raise ArgumentError(f"cumulative: axis None of {x.shape}; legal is that with one axis")
    x = x if x.ndim else x.reshape(1)
    where = axis_of(-1 if axis is None else axis, x.ndim, "cumulative")
    made: Tensor = getattr(x.cast(dtype or sum_acc_dtype(x.dtype)), method)(where)
    if not include_initial:
        return made
    shape = tuple(1 if i == where else n for i, n in enumerate(x.shape))
    return Tensor.full(shape, start, dtype=made.dtype, device=x.device).cat(made, dim=where)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of neighbours along an axis, `n` times.

    >>> diff(Tensor([1, 4, 9])).tolist()
    [3, 5]
    """
    checked(x)
    return x.diff(n, axis, prepend, append)
