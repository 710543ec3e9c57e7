"""Matrices: products, and the standard's extension for linear algebra."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.array_api.types import checked
from tinygrad.base.dtype import DType, least_upper_dtype, sum_acc_dtype
from tinygrad.base.errors import ShapeError
from tinygrad.numeric import linalg as methods
from tinygrad.numeric.linalg import QR, SVD, Eigen, SlogDet
from tinygrad.tensor import Tensor

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
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
    return x.mT


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Products of elements, added up over pairs of axes: the last so many of `x1` with the first
    of `x2`, or those named.

    >>> tensordot(Tensor([[1, 2], [3, 4]]), Tensor([[1, 0], [0, 1]])).item()
    5
    """
    checked(x1, x2)
    return x1.tensordot(x2, axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner product along an axis, over the others, which broadcast.

    >>> vecdot(Tensor([[1, 2], [3, 4]]), Tensor([1, 1])).tolist()
    [3, 7]
    """
    checked(x1, x2)
    if x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(f"vecdot: {x1.shape} and {x2.shape} along {axis}; legal are equal sizes")
    product = x1.conj() * x2
    return product.sum(axis, dtype=product.dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product along an axis of size 3.

    >>> cross(Tensor([1, 0, 0]), Tensor([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    checked(x1, x2)
    return x1.cross(x2, axis)


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
    return x1.outer(x2)


def vector_norm(
    x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The size of vectors: the `ord`-th root of the sum of `ord`-th powers; of the greatest element
    for infinity, of the least for minus infinity, how many are not 0 for 0.

    >>> vector_norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    checked(x)
    return methods.vector_norm(_floats(x), ord, axis, keepdims)


# ---- decompositions ------------------------------------------------------------------------------


def _floats(x: Tensor) -> Tensor:
    checked(x)
    return x if x.is_complex() or x.is_floating_point() else x.float()


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangle L with x = L @ L.mH; its conjugate transpose if `upper`.

    >>> cholesky(Tensor([[4.0]])).tolist()
    [[2.0]]
    """
    return _floats(x).cholesky(upper)


def det(x: Tensor, /) -> Tensor:
    """The determinants.

    >>> det(Tensor([[2.0, 0.0], [0.0, 3.0]])).item()
    6.0
    """
    return _floats(x).det()


def eigh(x: Tensor, /) -> Eigen:
    """Eigenvalues, the least first, and eigenvectors (columns) of matrices equal to their
    conjugate transposes.

    >>> eigh(Tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return methods.eigh(_floats(x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of `eigh`.

    >>> eigvalsh(Tensor([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    return _floats(x).eigvalsh()


def inv(x: Tensor, /) -> Tensor:
    """The inverses. LinalgError for singular matrices.

    >>> inv(Tensor([[2.0]])).tolist()
    [[0.5]]
    """
    return _floats(x).inv()


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """A norm of each matrix: "fro", "nuc" (the sum of singular values), ±inf (rows), ±1 (columns),
    ±2 (the largest, the least singular value).

    >>> matrix_norm(Tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    return methods.matrix_norm(_floats(x), "fro" if ord is None else ord, keepdim=keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Each square matrix times itself, `n` times; its inverse below 0.

    >>> matrix_power(Tensor([[2.0]]), 3).tolist()
    [[8.0]]
    """
    return _floats(x).matrix_power(n)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """How many singular values are greater than `rtol` times the largest.

    >>> matrix_rank(Tensor([[1.0, 1.0], [1.0, 1.0]])).item()
    1
    """
    if not isinstance(rtol, Tensor):
        return _floats(x).matrix_rank(rtol=rtol)
    values = _floats(x).svdvals()
    return (values > rtol.unsqueeze(-1) * values.max(-1, keepdim=True)).sum(-1)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverses; singular values below `rtol` times the largest count as 0.

    >>> pinv(Tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    if not isinstance(rtol, Tensor):
        return _floats(x).pinv(rtol)
    left, values, right = _floats(x).svd(full_matrices=False)
    kept = values > rtol.unsqueeze(-1) * values.max(-1, keepdim=True)
    inverse = kept.where(1 / kept.where(values, 1), 0).cast(left.dtype)
    return (right.conj().mT * inverse.unsqueeze(-2)) @ left.conj().mT


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """Orthonormal columns Q and a triangle R with x = Q @ R; `mode` "reduced" or "complete".

    >>> qr(Tensor([[1.0], [0.0], [0.0]])).R.shape
    (1, 1)
    """
    return methods.qr(_floats(x), mode)


def slogdet(x: Tensor, /) -> SlogDet:
    """The sign of the determinant and the logarithm of its size.

    >>> slogdet(Tensor([[-1.0]])).sign.item()
    -1.0
    """
    return methods.slogdet(_floats(x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The X with x1 @ X = x2; x2 of one axis is a vector, else matrices. LinalgError for singular
    matrices.

    >>> solve(Tensor([[2.0]]), Tensor([4.0])).tolist()
    [2.0]
    """
    a, b = _floats(x1), _floats(x2)
    kind = least_upper_dtype(a.dtype, b.dtype)
    a, b = a.cast(kind), b.cast(kind)
    return a.solve(b) if b.ndim != a.ndim - 1 or b.ndim == 1 else a.solve(b.unsqueeze(0))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """U, S and Vh with x = U @ diag(S) @ Vh, the largest singular value first.

    >>> svd(Tensor([[3.0, 0.0], [0.0, 4.0]])).S.tolist()
    [4.0, 3.0]
    """
    return methods.svd(_floats(x), full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values, the largest first.

    >>> svdvals(Tensor([[3.0, 0.0], [0.0, 4.0]])).tolist()
    [4.0, 3.0]
    """
    return _floats(x).svdvals()
