"""Where elements are: searching, sorting, sets, and picking by position."""

from __future__ import annotations

import builtins
from typing import NamedTuple

from tinygrad.array_api.types import checked
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import axis_of, check_axes

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "nonzero",
    "searchsorted",
    "sort",
    "take",
    "take_along_axis",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "where",
]


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Where the greatest element is: the first of several.

    >>> argmax(Tensor([1, 5, 3])).item()
    1
    """
    checked(x)
    return x.argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Where the least element is: the first of several.

    >>> argmin(Tensor([4, 1, 3])).item()
    1
    """
    checked(x)
    return x.argmin(axis, keepdims)


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    """The places of the elements in order; of equal ones the first comes first.

    >>> argsort(Tensor([30, 10, 20])).tolist()
    [1, 2, 0]
    """
    return _sorted(x, axis, descending)[1]


def sort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    """The elements in order; NaN as the greatest.

    >>> sort(Tensor([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    return _sorted(x, axis, descending)[0]


def _sorted(x: Tensor, axis: int, descending: builtins.bool) -> tuple[Tensor, Tensor]:
    checked(x)
    check_axes("sort", x, 1)
    values, places = x.sort(axis, descending)
    return values, places


def count_nonzero(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """How many elements are not 0.

    >>> count_nonzero(Tensor([0, 5, 6])).item()
    2
    """
    checked(x)
    return (x != 0).sum(axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """For each axis the indices of the elements that are not 0.

    >>> [x.tolist() for x in nonzero(Tensor([0, 5, 6]))]
    [[1, 2]]
    """
    checked(x)
    check_axes("nonzero", x, 1)
    places: tuple[Tensor, ...] = x.nonzero(as_tuple=True)
    return places


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """For each element of `x2` how many of the ordered `x1` come before it; with `side` "right"
    those that are equal count too. `sorter` orders `x1`.

    >>> searchsorted(Tensor([1, 3, 5]), Tensor([0, 3, 9])).tolist()
    [0, 1, 3]
    """
    checked(x1, x2)
    if x1.ndim != 1 or side not in ("left", "right"):
        raise ArgumentError(
            f"searchsorted: side {side!r} in shape {x1.shape}; legal are left and right, one axis"
        )
    return x1.searchsorted(x2, side=side, sorter=sorter).cast(dtypes.default_int)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The elements of an axis at these places; there may be no `axis` where there is one only.

    >>> take(Tensor([5, 6, 7]), Tensor([2, 0])).tolist()
    [7, 5]
    """
    checked(x, indices)
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"take: axis None of {x.shape}; legal is that with one axis")
    where = axis_of(0 if axis is None else axis, x.ndim, "take")
    if not indices.numel():
        shape = (*x.shape[:where], *indices.shape, *x.shape[where + 1 :])
        return Tensor.zeros(shape, dtype=x.dtype, device=x.device)
    return x._at(where, indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each row along an axis its elements at that row's places.

    >>> take_along_axis(Tensor([[5, 6], [7, 8]]), Tensor([[1], [0]])).tolist()
    [[6], [7]]
    """
    checked(x, indices)
    return x.take_along_dim(indices, axis)


def where(condition: Tensor, x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """`x1` where the condition is true, `x2` elsewhere.

    >>> where(Tensor([True, False]), 1, Tensor([5, 6])).tolist()
    [1, 6]
    """
    checked(condition)
    return condition.where(x1, x2)


# ---- sets ----------------------------------------------------------------------------------------


class Unique(NamedTuple):
    """Each value once, in order; where it is first; for each element which it is; how often."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class Counts(NamedTuple):
    """Each value once, and how often it is there."""

    values: Tensor
    counts: Tensor


class Inverse(NamedTuple):
    """Each value once, and for each element which it is."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> Unique:
    """All about the different values of an array. Each NaN is a value of its own.

    >>> unique_all(Tensor([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    checked(x)
    flat = x.flatten()
    size = flat.shape[0]
    if not size:
        none = Tensor.zeros(0, dtype=dtypes.default_int, device=x.device)
        return Unique(flat, none, none.reshape(x.shape), none)
    ordered, order = flat.sort()
    order = order.cast(dtypes.default_int)
    first = ordered.ones_like(dtype=dtypes.bool)
    if size > 1:
        first = first[:1].cat(ordered[1:] != ordered[:-1])
    starts = first.nonzero()[:, 0].cast(dtypes.default_int)
    group = first.cast(dtypes.default_int).cumsum() - 1
    inverse = group.zeros_like().scatter(0, order, group)
    ends = starts[1:].cat(starts.full_like(size)[:1])
    return Unique(ordered[starts], order[starts], inverse.reshape(x.shape), ends - starts)


def unique_counts(x: Tensor, /) -> Counts:
    """The different values of an array, and how often each is there.

    >>> unique_counts(Tensor([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    found = unique_all(x)
    return Counts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> Inverse:
    """The different values of an array, and which of them each element is.

    >>> unique_inverse(Tensor([3, 1, 3])).inverse_indices.tolist()
    [1, 0, 1]
    """
    found = unique_all(x)
    return Inverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different values of an array, in order.

    >>> unique_values(Tensor([3, 1, 3])).tolist()
    [1, 3]
    """
    return unique_all(x).values
