"""Linear algebra by the names of `torch.linalg`: decompositions, equations, norms, products.

What a Tensor has as a method is that method under its other name; norms, condition numbers and the
rest are made here, of tensors. Each takes batches (.., rows, columns), real or complex.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import axis_of
from tinygrad.tensor.spellings import spell_functions

Dims = int | tuple[int, ...] | list[int] | None


class QR(NamedTuple):
    """What `qr` gives.

    >>> qr(Tensor.ones(3, 2)).R.shape
    (2, 2)
    """

    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    """What `svd` gives.

    >>> svd(Tensor.ones(3, 2), full_matrices=False).S.shape
    (2,)
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


class Eigen(NamedTuple):
    """What `eig` and `eigh` give.

    >>> eigh(Tensor([[1.0, 0.0], [0.0, 2.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class SlogDet(NamedTuple):
    """What `slogdet` gives.

    >>> slogdet(Tensor([[-1.0]])).sign.item()
    -1.0
    """

    sign: Tensor
    logabsdet: Tensor


class LU(NamedTuple):
    """What `lu` gives.

    >>> lu(Tensor.eye(2)).U.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactor(NamedTuple):
    """What `lu_factor` gives.

    >>> lu_factor(Tensor.eye(2)).pivots.tolist()
    [1, 2]
    """

    LU: Tensor
    pivots: Tensor


class LeastSquares(NamedTuple):
    """What `lstsq` gives.

    >>> lstsq(Tensor.eye(2), Tensor.ones(2, 1)).solution.tolist()
    [[1.0], [1.0]]
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# ---- the methods of tensors ----------------------------------------------------------------------

det = Tensor.det
inv = Tensor.inv
inv_ex = Tensor.inv_ex
solve_ex = Tensor.solve_ex
lu_factor_ex = Tensor.lu_factor_ex
cholesky = Tensor.cholesky
cholesky_ex = Tensor.cholesky_ex
cross = Tensor.cross
svdvals = Tensor.svdvals
eigvalsh = Tensor.eigvalsh
eigvals = Tensor.eigvals
pinv = Tensor.pinv
matrix_power = Tensor.matrix_power
matrix_exp = Tensor.matrix_exp
matmul = Tensor.matmul
vecdot = Tensor.vecdot
solve_triangular = Tensor.solve_triangular


def diagonal(a: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices; see `Tensor.diagonal`.

    >>> diagonal(Tensor([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    return a.diagonal(offset, dim1, dim2)


def slogdet(a: Tensor) -> SlogDet:
    """The sign of the determinant and the logarithm of its size.

    >>> slogdet(Tensor([[1.0, 0.0], [0.0, 1.0]])).logabsdet.item()
    0.0
    """
    return SlogDet(*a.slogdet())


def solve(a: Tensor, b: Tensor, left: bool = True) -> Tensor:
    """X with a @ X = b, or X @ a = b; see `Tensor.solve`.

    >>> solve(Tensor([[2.0]]), Tensor([4.0])).tolist()
    [2.0]
    """
    return a.solve(b, left)


def lstsq(a: Tensor, b: Tensor, rcond: float | None = None) -> LeastSquares:
    """Least squares; see `Tensor.lstsq`.

    >>> round(lstsq(Tensor([[1.0], [1.0]]), Tensor([[1.0], [3.0]])).solution.item(), 4)
    2.0
    """
    return LeastSquares(*a.lstsq(b, rcond))


def qr(a: Tensor, mode: str = "reduced") -> QR:
    """Q and R with a = Q @ R; `mode` "reduced", "complete", or "r": Q is empty then.

    >>> qr(Tensor([[1.0], [0.0], [0.0]])).R.shape
    (1, 1)
    """
    if mode == "r":
        q, r = a.qr("reduced")
        return QR(q.zeros(0, dtype=q.dtype, device=q.device), r)
    return QR(*a.qr(mode))


def svd(a: Tensor, full_matrices: bool = True) -> SVD:
    """U, S and Vh with a = U @ diag(S) @ Vh.

    >>> svd(Tensor([[3.0, 0.0], [0.0, 4.0]])).S.tolist()
    [4.0, 3.0]
    """
    return SVD(*a.svd(full_matrices))


def eigh(a: Tensor, UPLO: str = "L") -> Eigen:  # noqa: N803
    """Eigenvalues and eigenvectors of a Hermitian matrix.

    >>> eigh(Tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return Eigen(*a.eigh(UPLO))


def eig(a: Tensor) -> Eigen:
    """Eigenvalues and eigenvectors of a square matrix, complex.

    >>> eig(Tensor([[2.0]])).eigenvalues.tolist()
    [(2+0j)]
    """
    return Eigen(*a.eig())


def lu(a: Tensor) -> LU:
    """P, L and U with a = P @ L @ U.

    >>> lu(Tensor([[0.0, 1.0], [2.0, 3.0]])).U.tolist()
    [[2.0, 3.0], [0.0, 1.0]]
    """
    return LU(*a.lu())


def lu_factor(a: Tensor) -> LUFactor:
    """L and U in one matrix, and the pivots, from 1.

    >>> lu_factor(Tensor([[0.0, 1.0], [2.0, 3.0]])).pivots.tolist()
    [2, 2]
    """
    return LUFactor(*a.lu_factor())


def matrix_rank(
    a: Tensor,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:
    """How many singular values count; see `Tensor.pinv`.

    >>> matrix_rank(Tensor([[2.0, 0.0], [0.0, 0.0]])).item()
    1
    """
    return a.matrix_rank(atol, rtol, hermitian)


# ---- with factors --------------------------------------------------------------------------------


def lu_solve(
    LU: Tensor,  # noqa: N803
    pivots: Tensor,
    b: Tensor,
    left: bool = True,
    adjoint: bool = False,
) -> Tensor:
    """X with A @ X = b (X @ A = b unless `left`; A* in the place of A if `adjoint`), of what
    `lu_factor` gave for A.

    >>> a = Tensor([[0.0, 1.0], [2.0, 3.0]])
    >>> lu_solve(*lu_factor(a), Tensor([[1.0], [5.0]])).tolist()
    [[1.0], [1.0]]
    """
    if not left:
        return lu_solve(LU, pivots, b.mH, adjoint=not adjoint).mH
    n = LU.shape[-1]
    turn = Tensor.eye(n, dtype=LU.dtype, device=LU.device)
    rows = Tensor.arange(n, device=LU.device)
    for i in range(n):  # row i with the row that its pivot names
        other = (pivots[..., i] - 1).unsqueeze(-1)
        source = (rows == i).where(other, (rows == other).where(i, rows))  # (.., n)
        turn = (source.unsqueeze(-1) == rows).cast(LU.dtype) @ turn
    low, up = LU, LU
    if adjoint:
        half = up.mH.solve_triangular(b, upper=False)
        return turn.mT @ low.mH.solve_triangular(half, upper=True, unitriangular=True)
    half = low.solve_triangular(turn @ b, upper=False, unitriangular=True)
    return up.solve_triangular(half, upper=True)


def householder_product(a: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of reflections 1 - tau[i]·v·v*, v being column i of `a` with
    1 on the diagonal and 0 above: Q of what `geqrf` gives. (.., m, n), m not less than n.

    >>> householder_product(Tensor([[1.0], [1.0]]), Tensor([1.5])).tolist()
    [[-0.5], [-1.5]]
    """
    rows, columns = a.shape[-2:]
    if columns > rows or tau.ndim != a.ndim - 1 or tau.shape[-1] > columns:
        raise ShapeError(
            f"householder_product: {a.shape} and {tau.shape}; legal are (.., m, n) with n at most "
            "m, and (.., k) with k at most n"
        )
    k = tau.shape[-1]
    one = Tensor.eye(rows, columns, dtype=a.dtype, device=a.device)
    v = (a.tril(-1) + one)[..., :k]
    # The product is 1 - V T V*, with T⁻¹ = diag(1/tau) + the strict upper triangle of V* V
    inner = tau.unsqueeze(-1) * (v.mH @ v).triu(1) + Tensor.eye(k, dtype=a.dtype, device=a.device)
    right = tau.unsqueeze(-1) * (v.mH @ one)
    return one - v @ inner.solve_triangular(right, upper=True, unitriangular=True)


def tensorinv(a: Tensor, ind: int = 2) -> Tensor:
    """The inverse for `tensordot` over the first `ind` axes.

    >>> tensorinv(Tensor.eye(4).reshape(4, 2, 2), ind=1).shape
    (2, 2, 4)
    """
    if ind <= 0 or prod(a.shape[:ind]) != prod(a.shape[ind:]):
        raise ShapeError(f"tensorinv: {a.shape} with ind={ind}; both parts must have as many")
    size = prod(a.shape[:ind])
    return a.reshape(size, size).inv().reshape(*a.shape[ind:], *a.shape[:ind])


def tensorsolve(a: Tensor, b: Tensor, dims: tuple[int, ...] | None = None) -> Tensor:
    """X with tensordot(a, X, X.ndim) = b; `dims` of `a` are moved to its end first.

    >>> tensorsolve(Tensor.eye(4).reshape(2, 2, 4), Tensor.ones(2, 2)).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if dims is not None:
        last = [axis_of(d, a.ndim, "tensorsolve") for d in dims]
        a = a.permute(*(i for i in range(a.ndim) if i not in last), *last)
    shape = a.shape[b.ndim :]
    if prod(shape) != b.numel() or a.shape[: b.ndim] != b.shape:
        raise ShapeError(f"tensorsolve: {a.shape} and {b.shape}; the first must begin so")
    return a.reshape(b.numel(), b.numel()).solve(b.flatten()).reshape(shape)


def vander(x: Tensor, N: int | None = None) -> Tensor:  # noqa: N803
    """The powers 0 to N - 1 of numbers, as a last axis.

    >>> vander(Tensor([2, 3]), N=3).tolist()
    [[1, 2, 4], [1, 3, 9]]
    """
    size = x.shape[-1] if N is None else N
    powers = [x.ones_like()]
    for _ in range(size - 1):
        powers.append(powers[-1] * x)
    return Tensor.stack(*powers, dim=-1)


def multi_dot(tensors: list[Tensor]) -> Tensor:
    """The product of matrices in the order that multiplies least. The first and the last may be
    vectors. (Cormen and others, Introduction to Algorithms, 15.2.)

    >>> multi_dot([Tensor.ones(2, 3), Tensor.ones(3, 4), Tensor.ones(4)]).tolist()
    [12.0, 12.0]
    """
    if len(tensors) < 2:
        raise ArgumentError(f"multi_dot: {len(tensors)} tensors; legal are two or more")
    row, column = tensors[0].ndim == 1, tensors[-1].ndim == 1
    parts = list(tensors)
    parts[0] = parts[0].unsqueeze(0) if row else parts[0]
    parts[-1] = parts[-1].unsqueeze(1) if column else parts[-1]
    if any(part.ndim != 2 for part in parts):
        raise ShapeError(f"multi_dot: {[t.shape for t in tensors]}; legal are matrices")
    sizes = [parts[0].shape[0], *(part.shape[1] for part in parts)]
    cost: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(parts))}
    for length in range(1, len(parts)):
        for i in range(len(parts) - length):
            j = i + length
            cost[i, j] = min(
                (cost[i, k][0] + cost[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        if i == j:
            return parts[i]
        k = cost[i, j][1]
        return product(i, k) @ product(k + 1, j)

    out = product(0, len(parts) - 1)
    out = out.squeeze(0) if row else out
    return out.squeeze(-1) if column else out


# ---- norms ---------------------------------------------------------------------------------------


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,  # noqa: A002
) -> Tensor:
    """(Σ |x|**ord)**(1/ord) over `dim`; for inf and -inf the largest and the least size, for 0 how
    many are not 0. Its gradient at 0 is 0.

    >>> vector_norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    axes = x._axes(dim, "vector_norm")
    size = x.abs() if x.is_complex() or x.is_floating_point() else x.float().abs()
    if ord in (math.inf, -math.inf):
        if ord > 0 and 0 in x.shape and all(x.shape[i] for i in axes):
            return size.sum(axes, keepdim)
        return size.max(axes, keepdim) if ord > 0 else size.min(axes, keepdim)
    if ord == 0:
        return size.ne(0).sum(axes, keepdim).cast(size.dtype)
    if ord == 1:
        return size.sum(axes, keepdim)
    if 0 in x.shape:
        return size.sum(axes, keepdim)
    scale = size.max(axes, keepdim=True).detach()  # so that no power overflows
    scale = ((scale > 0) & scale.isfinite()).where(scale, 1)
    total = ((size / scale) ** ord).sum(axes, keepdim=True)
    zero = total.eq(0)
    out = zero.where(0, zero.where(1, total) ** (1 / ord)) * scale
    return out if keepdim else out.squeeze(axes)


def matrix_norm(
    a: Tensor,
    ord: float | str = "fro",  # noqa: A002
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
) -> Tensor:
    """A norm of matrices: "fro", "nuc" (the sum of singular values), ±inf (rows), ±1 (columns),
    ±2 (the largest, the least singular value).

    >>> matrix_norm(Tensor([[3.0, 0.0], [0.0, 4.0]]), 2).item()
    4.0
    """
    row, column = (axis_of(d, a.ndim, "matrix_norm") for d in dim)
    if ord == "fro":
        return vector_norm(a, 2, (row, column), keepdim)
    rest = [i for i in range(a.ndim) if i not in (row, column)]
    x = a.permute(*rest, row, column)
    if ord in ("nuc", 2, -2):
        values = x.svdvals()
        out = values.sum(-1) if ord == "nuc" else values.max(-1) if ord == 2 else values.min(-1)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = vector_norm(x, 1, -2 if abs(float(ord)) == 1 else -1)
        out = sums.max(-1) if float(ord) > 0 else sums.min(-1)
    else:
        raise ArgumentError(f"matrix_norm: ord {ord!r}; legal are fro, nuc, ±1, ±2 and ±inf")
    kept = tuple(1 if i in (row, column) else n for i, n in enumerate(a.shape))
    return out.reshape(kept) if keepdim else out


def norm(
    x: Tensor,
    ord: float | str | None = None,  # noqa: A002
    dim: Dims = None,
    keepdim: bool = False,
) -> Tensor:
    """`vector_norm` along one axis, `matrix_norm` along two; of all elements if neither `ord` nor
    `dim` is given.

    >>> norm(Tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    if dim is None and ord is None:
        return vector_norm(x, 2, None, keepdim)
    axes = x._axes(dim, "norm") if not isinstance(dim, (tuple, list)) else tuple(dim)
    if len(axes) == 2 and ord is not None:
        return matrix_norm(x, ord, (axes[0], axes[1]), keepdim)
    if isinstance(ord, str):
        raise ArgumentError(f"norm: ord {ord!r} of {x.shape} over {dim}; legal is a matrix")
    return vector_norm(x, 2 if ord is None else ord, axes, keepdim)


def cond(a: Tensor, p: float | str | None = None) -> Tensor:
    """The condition number: the norm `p` of the matrix times that of its inverse; for None and ±2
    the ratio of singular values.

    >>> cond(Tensor([[2.0, 0.0], [0.0, 4.0]])).item()
    2.0
    """
    if p in (None, 2, -2):
        values = a.svdvals()
        most, least = values[..., 0], values[..., -1]
        return least / most if p == -2 else most / least
    return matrix_norm(a, p) * matrix_norm(a.inv(), p)


spell_functions(globals())
