"""Matrices on the host: LAPACK's routines as CALLs, for batches, floats and complex numbers.

Whatever the device, the arguments are copied to the host, worked on by NumPy or SciPy, and copied
back; under the jit a replay does the same. What a routine gives is a row here: the function of
arrays, the shapes of its results, and what kind of numbers they hold. Gradients are in
`matrix_gradients`. Nothing here knows which methods exist.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import DType, complex_of, dtypes
from tinygrad.base.errors import ArgumentError, LinalgError
from tinygrad.engine.host import HostFunction, call, register
from tinygrad.engine.storage import numpy_dtype
from tinygrad.tensor.core import Core
from tinygrad.transforms.gradient import Gradients
from tinygrad.uop import Ops, UOp

Array = NDArray[Any]
Shape = tuple[int, ...]
SAME, REAL, COMPLEX, INT = "same", "real", "complex", "int"  # what a result holds
T = TypeVar("T", bound=Core)
GradientOf = Callable[..., Sequence[Any]]


@dataclass
class Routine:
    """`run(*arrays, *parameters)` gives the result, or several; `shapes(*shapes, *parameters)`
    their shapes and kinds. `gradient(arguments, results, incoming, *parameters)` gives a tensor or
    None for each argument, from tensors; incoming gradients that are not there are None."""

    name: str
    run: Callable[..., Any]
    gradient: GradientOf
    wrong: str = ""  # what a matrix is for which `run` fails
    shapes: Callable[..., Sequence[tuple[Shape, str]]] = lambda shape, *_: [(shape, SAME)]

    def __post_init__(self) -> None:
        gradient = functools.partial(_gradient, self)
        made = HostFunction(self.name, self._on_host, self._described, gradient)
        self.registered = register(made)

    def _on_host(self, results: Sequence[Array], *given: Any) -> None:
        """On arrays as they lie in buffers: complex numbers as pairs."""
        arrays, (*parameters, pairs) = _arrays_and_rest(given)
        wide = numpy_dtype(complex_of(_OWN[arrays[0].dtype.name]))
        if pairs:
            arrays = [np.ascontiguousarray(a).view(wide)[..., 0] for a in arrays]
        shaped = self.shapes(*(a.shape for a in arrays), *parameters)
        with np.errstate(all="ignore"):
            found = self._found(*arrays, *parameters)
        for to, result, (shape, holds) in zip(results, found, shaped, strict=True):
            target = to.view(wide)[..., 0] if _is_pair(holds, pairs) else to
            target[...] = np.reshape(result, shape)

    def _found(self, *given: Any) -> Sequence[Any]:
        """The results; where there are none, LinalgError names the first matrix that has none."""
        try:
            found = self.run(*given)
            return found if isinstance(found, tuple) else (found,)
        except np.linalg.LinAlgError as error:
            arrays, rest = _arrays_and_rest(given)
            for place in np.ndindex(arrays[0].shape[:-2]):
                try:
                    self.run(*(a[place] for a in arrays), *rest)
                except np.linalg.LinAlgError:
                    which = f"matrix {list(place)} of the batch" if place else "the matrix"
                    raise LinalgError(f"{self.name}: {which} is {self.wrong}") from error
            raise LinalgError(f"{self.name}: {error}") from error

    def _described(self, *given: Any) -> list[tuple[Shape, DType]]:
        """Shape and dtype of each result's node, from those of the arguments' nodes."""
        pairs = given[-1]
        described = [g for g in given if isinstance(g, tuple)]
        kind = described[0][1]
        shapes = [shape[:-1] if pairs else shape for shape, _ in described]
        out = []
        for shape, holds in self.shapes(*shapes, *given[len(described) : -1]):
            dtype = dtypes.int32 if holds == INT else kind
            out.append(((*shape, 2) if _is_pair(holds, pairs) else shape, dtype))
        return out

    def __call__(self, *tensors: T, parameters: tuple[Any, ...] = ()) -> list[T]:
        """The results as tensors; the arguments are all real or all complex."""
        pairs = bool(tensors[0]._element)
        given: Any = tensors
        reals = [t.view_as_real() if pairs else t for t in given]
        shapes = self.shapes(*(t.shape for t in tensors), *parameters)
        if any(0 in t.shape for t in tensors):
            return self._of_nothing(tensors, shapes, parameters)
        nodes = call(self.registered, *(t._node for t in reals), parameters=(*parameters, pairs))
        out = []
        for node, (_, holds) in zip(nodes, shapes, strict=True):
            result = reals[0]._from(node, *reals[1:])
            out.append(result.view_as_complex() if _is_pair(holds, pairs) else result)
        return out

    def _of_nothing(self, tensors: Any, shapes: Any, parameters: tuple[Any, ...]) -> list[Any]:
        """Without elements the results depend on shapes alone, so they are constants."""
        first = tensors[0]
        dtype = {SAME: first.dtype, REAL: first.real.dtype, INT: dtypes.int32}
        dtype[COMPLEX] = complex_of(first.real.dtype)
        kinds = [dtype[holds] for _, holds in shapes]
        if all(0 in shape for shape, _ in shapes):
            found: Sequence[Any] = [np.zeros(shape) for shape, _ in shapes]
        else:
            arrays = (np.zeros(t.shape, numpy_dtype(first.real.dtype)) for t in tensors)
            found = self._found(*arrays, *parameters)
        out = []
        for value, (shape, _), kind in zip(found, shapes, kinds, strict=True):
            made = first._tensor(np.asarray(value, np.float64).reshape(shape)).cast(kind)
            out.append(made if kind is dtypes.int32 else made._with_none_of(*tensors))
        return out


def _is_pair(holds: str, pairs: bool) -> bool:
    """Whether a result is complex, of arguments that are if `pairs`."""
    return holds == COMPLEX or (holds == SAME and pairs)


_OWN = {"float32": dtypes.float32, "float64": dtypes.float64}


def _gradient(routine: Routine, node: UOp, results: dict[int, UOp]) -> Gradients:
    *parameters, pairs = node.arg[1:]
    described = [(s.shape, s.dtype) for s in node.src]
    specified = routine._described(*described, *node.arg[1:])
    held = routine.shapes(*(s[:-1] if pairs else s for s, _ in described), *parameters)

    def tensor(source: UOp, paired: bool) -> Any:
        made = Core._real._wrap(source)
        return made.view_as_complex() if paired else made

    kinds = [_is_pair(holds, pairs) for _, holds in held]
    values = [
        tensor(UOp(Ops.ITEM, dtype, (node,), (i, shape)), kinds[i])
        for i, (shape, dtype) in enumerate(specified)
    ]
    incoming = [tensor(results[i], kinds[i]) if i in results else None for i in range(len(values))]
    arguments = [tensor(s, pairs) for s in node.src]
    found = routine.gradient(arguments, values, incoming, *parameters)
    return tuple(
        None if g is None else (g if pairs else g.real)._held.cast(s.dtype)
        for g, s in zip(found, node.src, strict=True)
    )


# ---- batches on the host -------------------------------------------------------------------------


def _arrays_and_rest(given: tuple[Any, ...]) -> tuple[list[Array], tuple[Any, ...]]:
    arrays = [a for a in given if isinstance(a, np.ndarray)]
    return arrays, given[len(arrays) :]


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one matrix (or several) for stacks of them."""

    @functools.wraps(function)
    def run(*given: Any) -> Any:
        arrays, rest = _arrays_and_rest(given)
        lead = arrays[0].shape[:-2]
        found = [function(*(a[place] for a in arrays), *rest) for place in np.ndindex(lead)]
        if not isinstance(found[0], tuple):
            return np.stack(found).reshape((*lead, *found[0].shape))
        columns = zip(*found, strict=True)
        return tuple(np.stack(parts).reshape((*lead, *parts[0].shape)) for parts in columns)

    return run


def scipy_linalg(name: str) -> Any:
    """SciPy's linear algebra; ArgumentError if it is not installed."""
    try:
        from scipy import linalg
    except ImportError as error:
        raise ArgumentError(
            f"{name}: needs SciPy, which is not installed; pip install 'tinygrad[linalg]'"
        ) from error
    return linalg


# ---- the routines' functions ---------------------------------------------------------------------


def eliminating(run: Callable[..., Any]) -> Callable[..., Any]:
    """A routine that eliminates, for which NaN is not a number: as a pivot OpenBLAS may pass over
    it, so that [[nan, 1], [1, 1]] has an inverse with numbers."""

    @functools.wraps(run)
    def careful(a: Array, *more: Any) -> Any:
        found = run(a, *more)
        spoilt = np.isnan(a).any((-2, -1))
        for result in found if isinstance(found, tuple) else (found,):
            if result.dtype.kind in "fc":
                result[spoilt] = np.nan
        return found

    return careful


@each
def triangular(a: Array, b: Array, upper: bool, unit: bool) -> Any:
    """x of a @ x = b, a triangular."""
    if not unit and (zeros := np.flatnonzero(np.diagonal(a) == 0)).size:
        raise np.linalg.LinAlgError(f"entry {zeros[0]} of the diagonal is 0")
    solve = scipy_linalg("solve_triangular").solve_triangular
    return solve(a, b, lower=not upper, unit_diagonal=unit, check_finite=False)


@eliminating
@each
def lu(a: Array) -> Any:
    """The rows' order, L and U, and what LAPACK's pivots say: each row's partner, from 1."""
    (factor,) = scipy_linalg("lu").get_lapack_funcs(("getrf",), (a,))
    packed, pivots, _ = factor(a)  # a pivot of 0 is none of its errors
    rows, columns = a.shape
    least = min(rows, columns)
    order = np.arange(rows)
    for i, j in enumerate(pivots):
        order[[i, j]] = order[[j, i]]
    lower = np.tril(packed[:, :least], -1) + np.eye(rows, least, dtype=a.dtype)
    return order, lower, np.triu(packed[:least]), pivots + 1


def _has_cholesky(a: Array) -> bool:
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return False
    return True


@each
def cholesky_ex(a: Array) -> Any:
    """L and 0; of what is not positive definite NaN, and the size of the first leading part of it
    that isn't."""
    if _has_cholesky(a):
        return np.linalg.cholesky(a), np.array(0)
    sizes = (n for n in range(1, len(a)) if not _has_cholesky(a[:n, :n]))
    return np.full_like(a, np.nan), np.array(next(sizes, len(a)))


def qr(a: Array, complete: bool) -> Any:
    """Q and R; of a square Q all columns."""
    return np.linalg.qr(a, "complete" if complete else "reduced")


def eigh(a: Array, upper: bool) -> Any:
    """Eigenvalues and vectors by one triangle."""
    return np.linalg.eigh(a, "U" if upper else "L")


def matrix_exp(a: Array) -> Any:
    """The exponential of each matrix."""
    return scipy_linalg("matrix_exp").expm(a)


def adjugate(a: Array) -> Any:
    """Of each matrix the transposed matrix of cofactors, also of singular ones: by U, S, V, with
    the product of all other singular values in the place of each."""
    u, s, v = np.linalg.svd(a)
    n = s.shape[-1]
    others = np.stack([np.delete(s, i, -1).prod(-1) for i in range(n)], -1) if n else s
    turn = np.linalg.det(u) * np.linalg.det(v)
    inner = v.conj().swapaxes(-1, -2) * others[..., None, :]
    return turn[..., None, None] * (inner @ u.conj().swapaxes(-1, -2))


def pinv(a: Array, bounds: Array, hermitian: bool) -> Any:
    """The pseudo-inverse: singular values of at most max(atol, rtol · largest) count as 0, of
    bounds (.., rtol and atol)."""
    if hermitian:
        w, u = np.linalg.eigh(a)
        s, v = np.abs(w), (u * np.where(w < 0, -1, 1)[..., None, :]).conj().swapaxes(-1, -2)
    else:
        u, s, v = np.linalg.svd(a, full_matrices=False)
    rtol, atol = np.moveaxis(bounds.real[..., None], -2, 0)
    bound = np.maximum(atol, rtol * s.max(-1, keepdims=True, initial=0))
    s = np.where(np.isfinite(s), s, np.nan)  # of what is infinite nothing is known
    inverse = np.where(s <= bound, 0, 1 / np.where(s <= bound, 1, s))
    return (v.conj().swapaxes(-1, -2) * inverse[..., None, :]) @ u.conj().swapaxes(-1, -2)
