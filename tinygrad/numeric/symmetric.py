"""Symmetric matrices that need not be positive definite: L D L* by LAPACK's pivots, on the host
(Bunch and Kaufman, "Some Stable Methods for Calculating Inertia and Solving Symmetric Linear
Systems", 1977)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinygrad.base.errors import ArgumentError, LinalgError, ShapeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.long_tail.lapack import INT, SAME, Array, Routine, each, scipy_linalg
from tinygrad.tensor.modes import recording


class LDLFactor(NamedTuple):
    """`LD` has D, blocks of one and two, on and beside the diagonal, and L below; and the pivots
    say which rows changed places, from 1: a pair of equal negative ones is a block of two.

    >>> ldl_factor(Tensor.eye(2)).pivots.tolist()
    [1, 2]
    """

    LD: Tensor
    pivots: Tensor


class LDLFactorEx(NamedTuple):
    """An `LDLFactor`, and where D is 0.

    >>> ldl_factor_ex(Tensor.eye(2)).info.item()
    0
    """

    LD: Tensor
    pivots: Tensor
    info: Tensor


def ldl_factor(a: Tensor, hermitian: bool = False) -> LDLFactor:
    """The factors of symmetric matrices (Hermitian ones, if they are complex and `hermitian`), of
    which the lower triangle is read, for `ldl_solve`. (.., n, n); needs SciPy.

    Raises:
        ArgumentError: gradients would have to pass: `solve` has them.

    >>> ldl_factor(Tensor([[4.0, 2.0], [2.0, 3.0]])).LD.tolist()
    [[4.0, 0.0], [0.5, 2.0]]
    """
    if a.requires_grad and recording.on:
        raise ArgumentError(
            "ldl_factor: of a matrix that wants a gradient, which this doesn't let pass; legal are "
            "solve(a, b), or a.detach()"
        )
    x = a.detach()._square("ldl_factor")
    low, pivots = LDL(x, parameters=(bool(hermitian),))
    return LDLFactor(low, pivots)


def ldl_factor_ex(a: Tensor, hermitian: bool = False, check_errors: bool = False) -> LDLFactorEx:
    """As `ldl_factor`; and for each matrix 0, or the number of its first row, from 1, where D is 0:
    `ldl_solve` of such factors divides by 0.

    Raises:
        LinalgError: with `check_errors`, if there is one.

    >>> ldl_factor_ex(Tensor([[4.0, 0.0], [0.0, 0.0]])).info.item()
    2
    """
    low, pivots = ldl_factor(a, hermitian)
    there = ((pivots < 0) | low.diagonal(0, -2, -1).ne(0)).int()
    info = (there.cumprod(-1).sum(-1) + 1) % (a.shape[-1] + 1)
    if check_errors and info.ne(0).any().item():
        raise LinalgError(
            f"ldl_factor_ex: D is 0 at {info.tolist()}; legal are matrices that can be inverted"
        )
    return LDLFactorEx(low, pivots, info)


def ldl_solve(
    LD: Tensor,  # noqa: N803
    pivots: Tensor,
    b: Tensor,
    hermitian: bool = False,
) -> Tensor:
    """X with A @ X = b, of what `ldl_factor` gave for A. (.., n, n), (.., n) and (.., n, k).

    >>> a = Tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> ldl_solve(*ldl_factor(a), Tensor([[1.0], [2.0]])).tolist()
    [[2.0], [1.0]]
    """
    if b.ndim < 2 or b.shape[-2] != LD.shape[-1] or pivots.shape != LD.shape[:-1]:
        raise ShapeError(
            f"ldl_solve: {LD.shape}, {pivots.shape} and {b.shape}; legal are (.., n, n), (.., n) "
            "and (.., n, k)"
        )
    lead = np.broadcast_shapes(LD.shape[:-2], b.shape[:-2])
    n = LD.shape[-1]
    parts = (
        LD.detach().expand(*lead, n, n),
        pivots.cast(LD.dtype).expand(*lead, n),
        b.expand(*lead, *b.shape[-2:]),
    )
    return LDL_SOLVE(*parts, parameters=(bool(hermitian),))[0]


@each
def _factor(a: Array, hermitian: bool) -> Any:
    name = "hetrf" if hermitian and np.iscomplexobj(a) else "sytrf"
    (factor,) = scipy_linalg("ldl_factor").get_lapack_funcs((name,), (a,))
    packed, pivots, _ = factor(a, lower=1)  # a block of 0 is none of its errors
    return np.tril(packed), pivots


@each
def _solve(packed: Array, pivots: Array, b: Array, hermitian: bool) -> Any:
    x, n = b.copy(), len(packed)
    adjoint = packed.conj().T if hermitian else packed.T
    blocks, i = [], 0
    while i < n:  # each its rows, and the row that its last one changed places with
        pivot = int(pivots[i].real)
        blocks.append((i, i + (1 if pivot > 0 else 2), abs(pivot) - 1))
        i = blocks[-1][1]
    for begin, end, other in blocks:
        x[[end - 1, other]] = x[[other, end - 1]]
        x[end:] -= packed[end:, begin:end] @ x[begin:end]
        if end - begin == 1:
            x[begin] /= packed[begin, begin].real if hermitian else packed[begin, begin]
        else:
            (p, _), (q, r) = packed[begin:end, begin:end]
            above = np.conj(q) if hermitian else q
            turned = np.array([[r, -above], [-q, p]]) / (p * r - q * above)
            x[begin:end] = turned @ x[begin:end]
    for begin, end, other in reversed(blocks):
        x[begin:end] -= adjoint[begin:end, end:] @ x[end:]
        x[[end - 1, other]] = x[[other, end - 1]]
    return x


def _slope_of_b(arguments: Any, _: Any, incoming: Any, hermitian: bool) -> Any:
    packed, pivots, _ = arguments
    if hermitian:
        return None, None, LDL_SOLVE(packed, pivots, incoming[0], parameters=(True,))[0]
    found = LDL_SOLVE(packed, pivots, incoming[0].conj(), parameters=(False,))[0]
    return None, None, found.conj()


def _no_slope(*_: Any) -> Any:
    raise AssertionError("its argument is detached")


LDL = Routine("ldl_factor", _factor, _no_slope, shapes=lambda s, _: [(s, SAME), (s[:-1], INT)])
LDL_SOLVE = Routine("ldl_solve", _solve, _slope_of_b, shapes=lambda a, p, b, _: [(b, SAME)])
