"""Matrices: products, and the standard's extension for linear algebra."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinygrad.array_api.types import checked
from tinygrad.base.dtype import DType, sum_acc_dtype
from tinygrad.base.errors import ShapeError
from tinygrad.base.helpers import prod
from tinygrad.tensor import Tensor
from tinygrad.tensor.core import axis_of

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_transpose",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

Axis = int | tuple[int, ...] | None


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of matrices, over leading axes that broadcast.

    >>> matmul(Tensor([[1, 2]]), Tensor([[3], [4]])).tolist()
    [[11]]
    """
    checked(x1, x2)
    return x1.matmul(x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Rows as columns.

    >>> matrix_transpose(Tensor([[1, 2]])).tolist()
    [[1], [2]]
    """
    checked(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: of {x.shape}; legal are two axes or more")
    return x.transpose(-1, -2)


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Products of elements, added up over pairs of axes: the last so many of `x1` with the first
    of `x2`, or those named.

    >>> tensordot(Tensor([[1, 2], [3, 4]]), Tensor([[1, 0], [0, 1]])).item()
    5
    """
    checked(x1, x2)
    if isinstance(axes, int):
        left, right = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        left = [axis_of(a, x1.ndim, "tensordot") for a in axes[0]]
        right = [axis_of(a, x2.ndim, "tensordot") for a in axes[1]]
    if [x1.shape[a] for a in left] != [x2.shape[a] for a in right] or min(left, default=0) < 0:
        raise ShapeError(
            f"tensordot: {x1.shape} and {x2.shape} over {axes}; legal are axes of equal sizes"
        )
    free1 = [a for a in range(x1.ndim) if a not in left]
    free2 = [a for a in range(x2.ndim) if a not in right]
    rows, columns = [x1.shape[a] for a in free1], [x2.shape[a] for a in free2]
    inner = prod(x1.shape[a] for a in left)
    a = x1.permute(*free1, *left).reshape(prod(rows), inner) if x1.ndim else x1.reshape(1, 1)
    b = x2.permute(*right, *free2).reshape(inner, prod(columns)) if x2.ndim else x2.reshape(1, 1)
    return a.matmul(b).reshape((*rows, *columns))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner product along an axis, over the others, which broadcast.

    >>> vecdot(Tensor([[1, 2], [3, 4]]), Tensor([1, 1])).tolist()
    [3, 7]
    """
    checked(x1, x2)
    if x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(f"vecdot: {x1.shape} and {x2.shape} along {axis}; legal are equal sizes")
    product = x1 * x2
    return product.sum(axis, dtype=product.dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product along an axis of size 3.

    >>> cross(Tensor([1, 0, 0]), Tensor([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    checked(x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ShapeError(f"cross: {x1.shape} and {x2.shape} along {axis}; legal is size 3")
    a, b = (x.transpose(axis, -1) if x.ndim > 1 else x for x in (x1, x2))
    parts = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    made = parts[0].stack(*parts[1:], dim=-1)
    return made.transpose(axis, -1) if made.ndim > 1 else made


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The elements of a diagonal of each matrix.

    >>> diagonal(Tensor([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    checked(x)
    return x.diagonal(offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sum of a diagonal of each matrix.

    >>> trace(Tensor([[1, 2], [3, 4]])).item()
    5
    """
    return diagonal(x, offset=offset).sum(-1, dtype=dtype or sum_acc_dtype(x.dtype))


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Each element of a vector times each of another.

    >>> outer(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    checked(x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"outer: {x1.shape} and {x2.shape}; legal is one axis each")
    return x1.unsqueeze(1) * x2.unsqueeze(0)


def vector_norm(
    x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The size of vectors: the `ord`-th root of the sum of `ord`-th powers; of the greatest element
    for infinity, of the least for minus infinity, how many are not 0 for 0.

    >>> vector_norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    checked(x)
    large = x.abs()
    if ord == math.inf:
        return large.max(axis, keepdims)
    if ord == -math.inf:
        return large.min(axis, keepdims)
    if ord == 0:
        return (x != 0).sum(axis, keepdims).cast(large.dtype)
    if ord == 1:
        return large.sum(axis, keepdims)
    if ord == 2:
        return large.square().sum(axis, keepdims).sqrt()
    return large.pow(ord).sum(axis, keepdims).pow(1 / ord)
