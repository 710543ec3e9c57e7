"""Decompositions of matrices, and what solves equations with them.

`self` is a matrix or a batch of them: (.., rows, columns). Whole numbers become the default float,
narrow floats float32; complex matrices are taken everywhere. The work is LAPACK's, on the host (see
`lapack`); gradients are graphs (see `matrix_gradients`). A matrix that has no result is a
LinalgError, with its place in the batch, when the result is computed. The names of `torch.linalg`
are in `tinygrad.linalg`.
"""

from __future__ import annotations

import operator
from typing import Any, Self

import numpy as np

from tinygrad.base.dtype import dtypes, least_upper_dtype
from tinygrad.base.errors import ShapeError
from tinygrad.tensor.arguments import check_choice
from tinygrad.tensor.elementwise import by_squares, float_kind
from tinygrad.tensor.interop import Interop
from tinygrad.tensor.long_tail import lapack
from tinygrad.tensor.long_tail import matrix_gradients as gradients
from tinygrad.tensor.long_tail.lapack import COMPLEX, INT, REAL, SAME, Routine, Shape
from tinygrad.tensor.shapes import broadcast_shape, check_axes
from tinygrad.tensor.template import expressions

Shapes = list[tuple[Shape, str]]


# ---- shapes of results: (.., m, n) is the argument -----------------------------------------------


def _qr(shape: Shape, complete: bool) -> Shapes:
    *lead, m, n = shape
    k = m if complete else min(m, n)
    return [((*lead, m, k), SAME), ((*lead, k, n), SAME)]


def _svd(shape: Shape, full: bool) -> Shapes:
    *lead, m, n = shape
    k = min(m, n)
    a, b = (m, n) if full else (k, k)
    return [((*lead, m, a), SAME), ((*lead, k), REAL), ((*lead, b, n), SAME)]


def _lu(shape: Shape) -> Shapes:
    *lead, m, n = shape
    k = min(m, n)
    return [((*lead, m), INT), ((*lead, m, k), SAME), ((*lead, k, n), SAME), ((*lead, k), INT)]


def _as_second(a: Shape, b: Shape, *_: Any) -> Shapes:
    return [(b, SAME)]


def _turned(shape: Shape, *_: Any) -> Shapes:
    return [((*shape[:-2], shape[-1], shape[-2]), SAME)]


def _slogdet(shape: Shape) -> Shapes:
    return [(shape[:-2], SAME), (shape[:-2], REAL)]


def _eigh(shape: Shape, upper: bool) -> Shapes:
    return [(shape[:-1], REAL), (shape, SAME)]


def _eig(shape: Shape) -> Shapes:
    return [(shape[:-1], COMPLEX), (shape, COMPLEX)]


# ---- the routines --------------------------------------------------------------------------------

_linalg = np.linalg
DET = Routine("det", _linalg.det, gradients.det, shapes=lambda s: [(s[:-2], SAME)])
SLOGDET = Routine("slogdet", _linalg.slogdet, gradients.slogdet, shapes=_slogdet)
ADJUGATE = Routine("adjugate", lapack.adjugate, gradients.adjugate)
INV = Routine("inv", lapack.eliminating(_linalg.inv), gradients.inv, "singular")
SOLVE = Routine("solve", lapack.eliminating(_linalg.solve), gradients.solve, "singular", _as_second)
TRIANGULAR = Routine(
    "solve_triangular", lapack.triangular, gradients.triangular, "singular", _as_second
)
CHOLESKY = Routine("cholesky", _linalg.cholesky, gradients.cholesky, "not positive definite")
CHOLESKY_EX = Routine(
    "cholesky_ex",
    lapack.cholesky_ex,
    lambda given, results, incoming: gradients.cholesky(given, results[:1], incoming[:1]),
    shapes=lambda shape: [(shape, SAME), (shape[:-2], INT)],
)
QR = Routine("qr", lapack.qr, gradients.qr, shapes=_qr)
SVD = Routine("svd", _linalg.svd, gradients.svd, "not finite, or svd didn't end", _svd)
EIGH = Routine("eigh", lapack.eigh, gradients.eigh, "not finite", _eigh)
EIG = Routine("eig", _linalg.eig, gradients.eig, "not finite", _eig)
LU = Routine("lu", lapack.lu, gradients.lu, shapes=_lu)
EXP = Routine("matrix_exp", lapack.matrix_exp, gradients.matrix_exp)
PINV = Routine("pinv", lapack.pinv, gradients.pinv, "not finite", _turned)


@expressions
class Decomposition(Interop):
    """Matrices taken apart, and equations solved."""

    __slots__ = ()

    # ---- what is taken ---------------------------------------------------------------------------

    def _matrix(self, operation: str) -> Self:
        check_axes(operation, self, 2)
        return self.cast(float_kind(self.dtype))

    def _square(self, operation: str) -> Self:
        if self.ndim < 2 or self.shape[-1] != self.shape[-2]:
            raise ShapeError(f"{operation}: {self.shape}; legal are square matrices (.., n, n)")
        return self._matrix(operation)

    def _beside(self, operation: str, other: Any) -> list[Self]:
        """A and B of A X = B with one dtype and the same batch axes."""
        a, b = self._matrix(operation), self._tensor(other)._matrix(operation)
        kind = least_upper_dtype(a.dtype, b.dtype)
        if a.shape[-2] != b.shape[-2]:
            raise ShapeError(
                f"{operation}: {self.shape} and {b.shape}: the first has {a.shape[-2]} rows, axis "
                f"-2 of the second {b.shape[-2]}; legal are equal"
            )
        lead = broadcast_shape(operation, a.shape[:-2], b.shape[:-2])
        return [x.cast(kind)._broadcast_to((*lead, *x.shape[-2:])) for x in (a, b)]

    # ---- determinants ----------------------------------------------------------------------------

    def det(self) -> Self:
        """The determinant; its gradient holds where it is 0, too.

        >>> round(Tensor([[1.0, 2.0], [3.0, 4.0]]).det().item(), 4)
        -2.0
        """
        return DET(self._square("det"))[0]

    def _adjugate(self) -> Self:
        return ADJUGATE(self._square("adjugate"))[0]

    def slogdet(self) -> tuple[Self, Self]:
        """The sign of the determinant and the logarithm of its size; 0 and -inf if it is 0.

        >>> [round(t.item(), 4) for t in Tensor([[1.0, 2.0], [3.0, 4.0]]).slogdet()]
        [-1.0, 0.6931]
        """
        sign, size = SLOGDET(self._square("slogdet"))
        return sign, size

    def logdet(self) -> Self:
        """The logarithm of the determinant; NaN below zero.

        >>> round(Tensor([[1.0, 2.0], [-3.0, 4.0]]).logdet().item(), 4)
        2.3026
        """
        sign, size = self.slogdet()
        return size + sign.log()

    # ---- equations -------------------------------------------------------------------------------

    def inv(self) -> Self:
        """The inverse. LinalgError for singular matrices.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inv().tolist()
        [[0.5, 0.0], [0.0, 0.25]]
        """
        return INV(self._square("inv"))[0]

    inverse = inv

    def inv_ex(self, check_errors: bool = False) -> tuple[Self, Self]:
        """As `inv`, without an error unless `check_errors`: the inverse, NaN where there is none;
        and for each matrix 0, or the number of its first pivot that is 0.

        >>> [t.tolist() for t in Tensor([[2.0, 0.0], [0.0, 0.0]]).inv_ex()]
        [[[nan, nan], [nan, nan]], 2]
        """
        x, info = self._square("inv_ex")._without_singular(check_errors)
        found: Self = info._fails(2).where(float("nan"), x.inv())
        return found, info

    def solve_ex(self, b: Any, left: bool = True, check_errors: bool = False) -> tuple[Self, Self]:
        """As `solve`, without an error: see `inv_ex`.

        >>> [t.tolist() for t in Tensor([[2.0, 0.0], [0.0, 4.0]]).solve_ex(Tensor([2.0, 2.0]))]
        [[1.0, 0.5], 0]
        """
        x, info = self._square("solve_ex")._without_singular(check_errors)
        found = x.solve(b, left)
        return info._fails(found.ndim - info.ndim).where(float("nan"), found), info

    def _without_singular(self, check_errors: bool) -> tuple[Self, Self]:
        """These matrices with the identity in the place of singular ones, and which these are."""
        info = self.lu_factor_ex()[2]
        one = self.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        return self if check_errors else info._fails(2).where(one, self), info

    def _fails(self, axes: int) -> Self:
        """Whether it says so of a matrix, beside numbers with so many more axes."""
        return self.reshape((*self.shape, *(1,) * axes)) > 0

    def solve(self, b: Any, left: bool = True) -> Self:
        """X with self @ X = b, or X @ self = b unless `left`. b is (.., n, k), or vectors: (n,), or
        the batch's axes and n. LinalgError for singular matrices.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).solve(Tensor([2.0, 2.0])).tolist()
        [1.0, 0.5]
        """
        a, b = self._square("solve"), self._tensor(b)
        if b.ndim == 1 or (self.ndim > 2 and b.shape == self.shape[:-1]):  # vectors
            return a.solve(b.unsqueeze(-1)).squeeze(-1)
        if not left:
            return a.mT.solve(b._matrix("solve").mT).mT
        return SOLVE(*a._beside("solve", b))[0]

    def solve_triangular(
        self, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
    ) -> Self:
        """As `solve`, reading one triangle of self only, and ones on its diagonal if
        `unitriangular`.

        >>> Tensor([[2.0, 9.0], [4.0, 1.0]]).solve_triangular(
        ...     Tensor([[2.0], [5.0]]), upper=False).tolist()
        [[1.0], [1.0]]
        """
        a = self._square("solve_triangular")
        if not left:
            flipped = self._tensor(b)._matrix("solve_triangular").mT
            out = a.mT.solve_triangular(flipped, upper=not upper, unitriangular=unitriangular)
            return out.mT
        pair = a._beside("solve_triangular", b)
        return TRIANGULAR(*pair, parameters=(upper, unitriangular))[0]

    def pinv(
        self, rtol: float | Self | None = None, atol: float | Self = 0.0, hermitian: bool = False
    ) -> Self:
        """The pseudo-inverse (.., n, m) of (.., m, n). Singular values of at most max(`atol`,
        `rtol` times the largest) count as 0, numbers or one for each matrix; `rtol` is max(m, n)
        times the dtype's precision unless given (0 if `atol` is).

        >>> Tensor([[2.0, 0.0], [0.0, 0.0]]).pinv().tolist()
        [[0.5, 0.0], [0.0, 0.0]]
        """
        x = self._square("pinv") if hermitian else self._matrix("pinv")
        relative, least = x._bounds(rtol, atol)
        bounds = relative.stack(least, dim=-1).cast(x.dtype)
        out: Self = PINV(x, bounds, parameters=(bool(hermitian),))[0]
        return out

    def _bounds(self, rtol: Any, atol: Any) -> tuple[Any, Any]:
        """For each matrix, which singular values count as 0 beside the largest, and at all."""
        real = self.real
        own = float(max(self.shape[-2:]) * 2.0 ** -dtypes.finfo(real.dtype)[1])
        least = real._tensor(0.0 if atol is None else atol, real.dtype).detach()
        relative = least.eq(0).where(own, 0) if rtol is None else real._tensor(rtol, real.dtype)
        shape = broadcast_shape("pinv", self.shape[:-2], relative.shape, least.shape)
        if shape != self.shape[:-2]:
            raise ShapeError(
                f"pinv: rtol {relative.shape} and atol {least.shape} for {self.shape}; legal are "
                f"numbers, and what broadcasts to {self.shape[:-2]}"
            )
        relative = relative.detach().cast(real.dtype)
        return relative._broadcast_to(shape), least.cast(real.dtype)._broadcast_to(shape)

    def lstsq(self, b: Any, rcond: float | None = None) -> tuple[Any, Any, Any, Any]:
        """The X of least norm that makes the norm of self @ X - b least; squared norms of what is
        left (empty unless there are more rows than columns and the rank is full in the whole batch,
        which is read); the ranks; the singular values.

        >>> x, *_ = Tensor([[1.0], [1.0]]).lstsq(Tensor([[1.0], [3.0]]))
        >>> round(x.item(), 4)
        2.0
        """
        a, b = self._beside("lstsq", b)
        rows, columns = a.shape[-2:]
        x = a.pinv(rcond) @ b
        values = a.svdvals()
        rank = a.matrix_rank(rtol=rcond)
        left = b.real.zeros(0, dtype=b.real.dtype, device=b.device)
        if rows > columns and bool((rank == columns).all()):
            left = (a @ x - b).abs().square().sum(-2)
        return x, left, rank, values

    # ---- decompositions --------------------------------------------------------------------------

    def cholesky(self, upper: bool = False) -> Self:
        """L, lower triangular, with self = L @ L.mH; its conjugate transpose if `upper`. One
        triangle is read. LinalgError unless self is positive definite.

        >>> Tensor([[4.0, 0.0], [0.0, 9.0]]).cholesky().tolist()
        [[2.0, 0.0], [0.0, 3.0]]
        """
        x = self._square("cholesky")
        out: Self = CHOLESKY(x.mH if upper else x)[0]
        return out.mH if upper else out

    def cholesky_ex(self, upper: bool = False) -> tuple[Self, Self]:
        """As `cholesky`, without an error: the factor, NaN where there is none; and for each matrix
        0, or the size of its first leading part that isn't positive definite.

        >>> Tensor([[4.0, 0.0], [0.0, -9.0]]).cholesky_ex()[1].item()
        2
        """
        x = self._square("cholesky_ex")
        low, info = CHOLESKY_EX(x.mH if upper else x)
        return low.mH if upper else low, info

    def cholesky_solve(self, factor: Any, upper: bool = False) -> Self:
        """X with A @ X = self, of A's Cholesky factor.

        >>> Tensor([[8.0]]).cholesky_solve(Tensor([[2.0]])).tolist()
        [[2.0]]
        """
        low = self._tensor(factor)
        low = low.mH if upper else low
        half = low.solve_triangular(self, upper=False)
        return low.mH.solve_triangular(half, upper=True)

    def qr(self, mode: str = "complete") -> tuple[Self, Self]:
        """Q with orthonormal columns and R upper triangular, with self = Q @ R. Q is square, or has
        as many columns as R has rows, at most the columns of self, with mode "reduced".

        >>> q, r = Tensor([[1.0, 0.0], [0.0, 1.0]]).qr()
        >>> (q @ r).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        check_choice("qr", "mode", mode, ("complete", "reduced"))
        q, r = QR(self._matrix("qr"), parameters=(mode == "complete",))
        return q, r

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """U, S and V with self = U @ diag(S) @ V; S falls, U and V are orthogonal, square if
        `full_matrices`.

        >>> Tensor([[3.0, 0.0], [0.0, 4.0]]).svd()[1].tolist()
        [4.0, 3.0]
        """
        u, s, v = SVD(self._matrix("svd"), parameters=(bool(full_matrices),))
        return u, s, v

    def svdvals(self) -> Self:
        """The singular values, falling.

        >>> Tensor([[3.0, 0.0], [0.0, 4.0]]).svdvals().tolist()
        [4.0, 3.0]
        """
        return self.svd(False)[1]

    def matrix_rank(
        self,
        atol: float | Self | None = None,
        rtol: float | Self | None = None,
        hermitian: bool = False,
    ) -> Self:
        """How many singular values count, see `pinv`.

        >>> Tensor([[2.0, 0.0], [0.0, 0.0]]).matrix_rank().item()
        1
        """
        x = self._matrix("matrix_rank")
        values = x.eigvalsh().abs() if hermitian else x.svdvals()
        if 0 in x.shape[-2:]:
            return x.real.zeros(x.shape[:-2], dtype=dtypes.int32, device=x.device)  # type: ignore[no-any-return]
        relative, least = x._bounds(rtol, atol)
        bound = (values.max(-1) * relative).maximum(least)
        rank: Self = (values > bound.unsqueeze(-1)).sum(-1)
        return rank

    def eigh(self, UPLO: str = "L") -> tuple[Self, Self]:  # noqa: N803
        """The eigenvalues of a Hermitian matrix, rising, and its eigenvectors as columns. One
        triangle is read, "L" or "U".

        >>> Tensor([[2.0, 0.0], [0.0, 1.0]]).eigh()[0].tolist()
        [1.0, 2.0]
        """
        check_choice("eigh", "UPLO", UPLO, ("L", "U"))
        w, v = EIGH(self._square("eigh"), parameters=(UPLO == "U",))
        return w, v

    def eigvalsh(self, UPLO: str = "L") -> Self:  # noqa: N803
        """The eigenvalues of a Hermitian matrix, rising.

        >>> Tensor([[2.0, 0.0], [0.0, 3.0]]).eigvalsh().numpy().round(3)
        array([2., 3.], dtype=float32)
        """
        return self.eigh(UPLO)[0]

    def eig(self) -> tuple[Any, Any]:
        """The eigenvalues of a square matrix in no order, and its eigenvectors of norm 1 as
        columns; both complex.

        >>> Tensor([[0.0, 1.0], [-1.0, 0.0]]).eig()[0].tolist()
        [1j, -1j]
        """
        w, v = EIG(self._square("eig"))
        return w, v

    def eigvals(self) -> Any:
        """The eigenvalues of a square matrix, complex, in no order.

        >>> Tensor([[2.0, 0.0], [0.0, 3.0]]).eigvals().shape
        (2,)
        """
        return self.eig()[0]

    def lu(self) -> tuple[Self, Self, Self]:
        """P, L and U with self = P @ L @ U: rows permuted, ones on L's diagonal, U triangular.

        >>> p, l, u = Tensor([[0.0, 1.0], [2.0, 3.0]]).lu()
        >>> p.tolist(), u.tolist()
        ([[0.0, 1.0], [1.0, 0.0]], [[2.0, 3.0], [0.0, 1.0]])
        """
        order, low, up, _ = LU(self._matrix("lu"))
        return order._rows_of_order().cast(low.dtype), low, up

    def lu_factor(self) -> tuple[Self, Self]:
        """L, without its ones, and U in one matrix; and the pivots: the row, from 1, that each row
        was exchanged with.

        >>> [t.tolist() for t in Tensor([[0.0, 1.0], [2.0, 3.0]]).lu_factor()]
        [[[2.0, 3.0], [0.0, 1.0]], [2, 2]]
        """
        x = self._matrix("lu_factor")
        _, low, up, pivots = LU(x)
        rows, columns = x.shape[-2:]
        least = min(rows, columns)
        low, up = low.pad((0, columns - least)), up.pad((0, 0, 0, rows - least))
        return low.tril(-1) + up, pivots

    def lu_factor_ex(self) -> tuple[Self, Self, Self]:
        """As `lu_factor`; and for each matrix 0, or the number of its first pivot that is 0.

        >>> Tensor([[0.0, 1.0], [0.0, 3.0]]).lu_factor_ex()[2].item()
        1
        """
        low, pivots = self.lu_factor()
        there = low.detach().diagonal(0, -2, -1).ne(0).int()
        info: Self = (there.cumprod(-1).sum(-1) + 1) % (there.shape[-1] + 1)
        return low, pivots, info

    def _rows_of_order(self) -> Self:
        """The matrix that puts row i at place order[i]: (.., n) → (.., n, n)."""
        n = self.shape[-1]
        return self._counting(n, self.device).unsqueeze(-1).eq(self.unsqueeze(-2))

    # ---- functions of matrices -------------------------------------------------------------------

    def matrix_power(self, n: int) -> Self:
        """The product of `n` of this; below 0 of its inverse.

        >>> Tensor([[1, 1], [0, 1]]).matrix_power(5).tolist()
        [[1, 5], [0, 1]]
        """
        if self.ndim < 2 or self.shape[-1] != self.shape[-2]:
            raise ShapeError(f"matrix_power: {self.shape}; legal are square matrices (.., n, n)")
        if n < 0:
            return self.inv().matrix_power(-n)
        if not n:
            one = self.eye(self.shape[-1], dtype=self.dtype, device=self.device)
            return one._broadcast_to(self.shape)._with_none_of(self)
        return by_squares(self, n, operator.matmul)._copied(self)

    def matrix_exp(self) -> Self:
        """The sum of self**k / k! over all k.

        >>> Tensor([[0.0, 1.0], [0.0, 0.0]]).matrix_exp().tolist()
        [[1.0, 1.0], [0.0, 1.0]]
        """
        return EXP(self._square("matrix_exp"))[0]
