"""Fourier transforms by the names of `torch.fft`, which are NumPy's: of one axis, two, many; of
complex, real and Hermitian numbers. `dft` does the work; here are sizes, axes and norms.

`norm` says where the sum is divided by how many it has: "backward" (in the inverse transforms),
"forward", or "ortho": by the root in both. Whole numbers become the default float, narrow floats
float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tinygrad.base.dtype import complex_of, dtypes, least_upper_float
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.numeric import dft
from tinygrad.tensor import Tensor
from tinygrad.tensor.elementwise import float_kind
from tinygrad.tensor.shapes import axis_of
from tinygrad.tensor.spellings import spell_functions

Sizes = Sequence[int] | None
Dims = Sequence[int] | int | None
NORMS = ("backward", "forward", "ortho")
OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _norm(name: str, norm: str | None) -> str:
    if norm not in (None, *NORMS):
        raise ArgumentError(f"{name}: norm {norm!r}; legal are {', '.join(NORMS)}")
    return norm or "backward"


def _scale(norm: str, n: int, inverse: bool) -> float:
    """What the plain sum is multiplied by."""
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm == "backward") else 1.0


def _axis(name: str, x: Tensor, dim: int) -> int:
    if not x.ndim:
        raise ShapeError(f"{name}: a tensor of (); legal are one axis or more")
    return axis_of(dim, x.ndim, name)


def _taken(name: str, x: Tensor, axis: int, n: int | None) -> Tensor:
    """`x` as floats, with n elements on this axis: cut, or followed by zeros."""
    size = x.shape[axis]
    n = size if n is None else n
    if n < 1:
        raise ArgumentError(f"{name}: length {n} of {x.shape} on axis {axis}; legal are from 1")
    if not x.is_complex():
        x = x.cast(float_kind(x.dtype))
    if n < size:
        return x._cut(axis, 0, n)
    return x.pad(tuple((0, n - size) if i == axis else None for i in range(x.ndim)))


def _real(name: str, x: Tensor) -> Tensor:
    if x.is_complex():
        raise DTypeError(f"{name}: of {x.dtype!r}; legal are real numbers")
    return x


def _complex(x: Tensor) -> Any:
    return x if x.is_complex() else x.cast(complex_of(x.dtype))


def _columns(x: Any, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """Planes (2 or 1, n, columns) with `axis` as n, and the shape of the rest."""
    moved = x.movedim(axis, 0)
    n, *rest = moved.shape
    parts = moved.view_as_real() if x.is_complex() else moved.unsqueeze(-1)
    planes = parts.reshape(n, prod(rest), -1).permute(2, 0, 1)
    return planes.contiguous(), tuple(rest)


def _complex_of(planes: Tensor, axis: int, rest: tuple[int, ...]) -> Any:
    """Complex numbers of planes (2, n, columns), n at place `axis`."""
    n = planes.shape[1]
    columns = planes.permute(1, 2, 0).reshape(n, *rest, 2).view_as_complex()
    return columns.movedim(0, axis)._in_order()


def _transform(
    name: str, x: Tensor, n: int | None, dim: int, norm: str | None, inverse: bool
) -> Any:
    axis = _axis(name, x, dim)
    kind = _norm(name, norm)
    x = _taken(name, x, axis, n)
    if 0 in x.shape:
        return _complex(x)
    planes, rest = _columns(x, axis)
    size = planes.shape[1]
    if inverse:
        planes = planes if planes.shape[0] == 2 else planes.pad(((0, 1), None, None))
        planes = dft.exchanged(dft.transform(dft.exchanged(planes)))
    else:
        planes = dft.transform(planes)
    scale = _scale(kind, size, inverse)
    return _complex_of(planes * scale if scale != 1 else planes, axis, rest)


# ---- along one axis ------------------------------------------------------------------------------


def fft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """Σ_j x[j]·exp(-2πi·j·k/n) along `dim`; x is cut to n or followed by zeros.

    >>> fft(Tensor([1.0, 0.0])).tolist()
    [(1+0j), (1+0j)]
    """
    return _transform("fft", x, n, dim, norm, False)


def ifft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`.

    >>> ifft(Tensor([2.0, 0.0])).tolist()
    [(1+0j), (1+0j)]
    """
    return _transform("ifft", x, n, dim, norm, True)


def rfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The first n//2 + 1 results of `fft` of real numbers; the others are their conjugates.

    >>> rfft(Tensor([1.0, 0.0, 0.0])).shape
    (2,)
    """
    axis = _axis("rfft", x, dim)
    kind = _norm("rfft", norm)
    x = _taken("rfft", _real("rfft", x), axis, n)
    if 0 in x.shape:
        return _complex(x)._cut(axis, 0, x.shape[axis] // 2 + 1)
    planes, rest = _columns(x, axis)
    scale = _scale(kind, planes.shape[1], False)
    out = dft.transform_real(planes[0])
    return _complex_of(out * scale if scale != 1 else out, axis, rest)


def irfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: n real numbers, 2·(size - 1) unless given.

    >>> irfft(Tensor([1.0, 1.0])).tolist()
    [1.0, 0.0]
    """
    axis = _axis("irfft", x, dim)
    kind = _norm("irfft", norm)
    n = 2 * (x.shape[axis] - 1) if n is None else n
    if n < 1:
        raise ArgumentError(f"irfft: length {n} from {x.shape} on axis {axis}; legal are from 1")
    x = _complex(_taken("irfft", x, axis, n // 2 + 1))
    if 0 in x.shape:
        shape = tuple(n if i == axis else size for i, size in enumerate(x.shape))
        return Tensor.zeros(shape, dtype=x.real.dtype, device=x.device)
    planes, rest = _columns(x, axis)
    out = dft.inverse_real(planes, n)
    scale = _scale(kind, n, True)
    columns = (out * scale if scale != 1 else out).reshape(n, *rest)
    return columns.movedim(0, axis)._in_order()


def hfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """`fft` of n numbers of which x is the first half, the others being its conjugates: n real
    numbers.

    >>> hfft(Tensor([1.0, 1.0])).tolist()
    [2.0, 0.0]
    """
    return irfft(_complex(_floats(x)).conj(), n, dim, OPPOSITE[_norm("hfft", norm)])


def ihfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`: the first n//2 + 1 results of `ifft` of real numbers.

    >>> ihfft(Tensor([2.0, 0.0])).real.tolist()
    [1.0, 1.0]
    """
    return rfft(x, n, dim, OPPOSITE[_norm("ihfft", norm)]).conj()


def _floats(x: Tensor) -> Tensor:
    return x if x.is_complex() else x.cast(least_upper_float(x.dtype))


# ---- along several -------------------------------------------------------------------------------


def _axes(name: str, x: Tensor, s: Sizes, dim: Dims) -> list[tuple[int, int | None]]:
    """(axis, size or None) of each axis to go along."""
    if dim is None:
        first = x.ndim - len(s) if s is not None else 0
        dims = list(range(first, x.ndim))
    else:
        dims = [dim] if isinstance(dim, int) else list(dim)
    axes = [axis_of(d, x.ndim, name) for d in dims]
    sizes = list(s) if s is not None else [None] * len(axes)
    if len(sizes) != len(axes) or len(set(axes)) < len(axes):
        raise ArgumentError(f"{name}: sizes {s} and axes {dim} of {x.shape}; legal: one each")
    return [(a, None if n == -1 else n) for a, n in zip(axes, sizes, strict=True)]


def fftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Any:
    """`fft` along several axes (all unless given), of sizes `s`.

    >>> fftn(Tensor.ones(2, 2)).real[0].tolist()
    [4.0, 0.0]
    """
    for axis, n in reversed(_axes("fftn", x, s, dim)):
        x = fft(x, n, axis, norm)
    return _complex(x)


def ifftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Any:
    """The inverse of `fftn`.

    >>> ifftn(Tensor([[4.0, 0.0], [0.0, 0.0]])).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    for axis, n in reversed(_axes("ifftn", x, s, dim)):
        x = ifft(x, n, axis, norm)
    return _complex(x)


def rfftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Any:
    """`rfft` along the last of several axes, then `fft` along the others.

    >>> rfftn(Tensor.ones(2, 4)).shape
    (2, 3)
    """
    *others, (last, n) = _axes("rfftn", x, s, dim)
    out = rfft(x, n, last, norm)
    for axis, size in reversed(others):
        out = fft(out, size, axis, norm)
    return out


def irfftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`: real numbers.

    >>> irfftn(Tensor([[4 + 0j, 0], [0, 0]])).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    *others, (last, n) = _axes("irfftn", x, s, dim)
    for axis, size in others:
        x = ifft(x, size, axis, norm)
    return irfft(x, n, last, norm)


def hfftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """`fft` along several axes, of which the last holds half of Hermitian numbers: `hfft`.

    >>> hfftn(Tensor.ones(2, 2)).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return irfftn(_complex(_floats(x)).conj(), s, dim, OPPOSITE[_norm("hfftn", norm)])


def ihfftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Any:
    """The inverse of `hfftn`.

    >>> hfftn(ihfftn(Tensor([[1.0, 2.0]]))).tolist()
    [[1.0, 2.0]]
    """
    return rfftn(x, s, dim, OPPOSITE[_norm("ihfftn", norm)]).conj()


def fft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Any:
    """`fftn` along the last two axes.

    >>> fft2(Tensor.ones(3, 2, 2)).shape
    (3, 2, 2)
    """
    return fftn(x, s, dim, norm)


def ifft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Any:
    """`ifftn` along the last two axes.

    >>> ifft2(Tensor.ones(3, 2, 2)).shape
    (3, 2, 2)
    """
    return ifftn(x, s, dim, norm)


def rfft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Any:
    """`rfftn` along the last two axes.

    >>> rfft2(Tensor.ones(3, 4, 4)).shape
    (3, 4, 3)
    """
    return rfftn(x, s, dim, norm)


def irfft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`irfftn` along the last two axes.

    >>> irfft2(Tensor.ones(3, 4, 3)).shape
    (3, 4, 4)
    """
    return irfftn(x, s, dim, norm)


def hfft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`hfftn` along the last two axes.

    >>> hfft2(Tensor.ones(3, 4, 3)).shape
    (3, 4, 4)
    """
    return hfftn(x, s, dim, norm)


def ihfft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Any:
    """`ihfftn` along the last two axes.

    >>> ihfft2(Tensor.ones(3, 4, 4)).shape
    (3, 4, 3)
    """
    return ihfftn(x, s, dim, norm)


# ---- frequencies ---------------------------------------------------------------------------------


def fftfreq(n: int, d: float = 1.0, **more: Any) -> Tensor:
    """The frequency of each result of `fft` of n numbers taken every `d`: cycles a unit.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    k = _counted("fftfreq", n, n, more)
    return (k >= (n + 1) // 2).where(k - n, k) * (1 / (n * d))


def rfftfreq(n: int, d: float = 1.0, **more: Any) -> Tensor:
    """The frequency of each result of `rfft`.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    return _counted("rfftfreq", n, n // 2 + 1, more) * (1 / (n * d))


def _counted(name: str, n: int, count: int, more: dict[str, Any]) -> Tensor:
    if n < 1:
        raise ArgumentError(f"{name}: {n} samples; legal are numbers from 1")
    return Tensor.arange(count, dtype=more.pop("dtype", None) or dtypes.default_float, **more)


def fftshift(x: Tensor, dim: Dims = None) -> Tensor:
    """Frequency 0 in the middle, of the axes `dim` or all.

    >>> fftshift(Tensor([0, 1, -2, -1])).tolist()
    [-2, -1, 0, 1]
    """
    axes = [axis for axis, _ in _axes("fftshift", x, None, dim)]
    return x.roll([x.shape[a] // 2 for a in axes], axes) if axes else x


def ifftshift(x: Tensor, dim: Dims = None) -> Tensor:
    """The inverse of `fftshift`.

    >>> ifftshift(Tensor([-2, -1, 0, 1])).tolist()
    [0, 1, -2, -1]
    """
    axes = [axis for axis, _ in _axes("ifftshift", x, None, dim)]
    return x.roll([-(x.shape[a] // 2) for a in axes], axes) if axes else x


spell_functions(globals())
