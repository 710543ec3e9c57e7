"""The standard's extension for Fourier transforms."""

from __future__ import annotations

from tinygrad.array_api.types import checked
from tinygrad.base.dtype import DType
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor import Tensor
from tinygrad.tensor.core import axis_of

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """The frequencies of the elements of a transform of `n` samples that are `d` apart: first those
    from 0 up, then the negative ones.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    if n < 1:
        raise ArgumentError(f"fftfreq: {n} samples; legal are numbers from 1")
    count = Tensor.arange(n, device=device)
    turned = (count < (n + 1) // 2).where(count, count - n)
    return _scaled(turned, n * d, dtype)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """The frequencies of a transform of real samples: those from 0 up.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    if n < 1:
        raise ArgumentError(f"rfftfreq: {n} samples; legal are numbers from 1")
    return _scaled(Tensor.arange(n // 2 + 1, device=device), n * d, dtype)


def _scaled(count: Tensor, by: float, dtype: DType | None) -> Tensor:
    return (count.double() / by).cast(dtype) if dtype is not None else count.float() / by


def fftshift(x: Tensor, /, *, axes: int | tuple[int, ...] | None = None) -> Tensor:
    """The element of frequency 0 in the middle.

    >>> fftshift(Tensor([0, 1, -2, -1])).tolist()
    [-2, -1, 0, 1]
    """
    chosen = _axes(x, axes)
    return x.roll(tuple(x.shape[a] // 2 for a in chosen), chosen) if chosen else x


def ifftshift(x: Tensor, /, *, axes: int | tuple[int, ...] | None = None) -> Tensor:
    """The element of frequency 0 at the beginning again.

    >>> ifftshift(Tensor([-2, -1, 0, 1])).tolist()
    [0, 1, -2, -1]
    """
    chosen = _axes(x, axes)
    return x.roll(tuple(-(x.shape[a] // 2) for a in chosen), chosen) if chosen else x


def _axes(x: Tensor, axes: int | tuple[int, ...] | None) -> tuple[int, ...]:
    checked(x)
    given = range(x.ndim) if axes is None else axes if isinstance(axes, tuple) else (axes,)
    return tuple(axis_of(a, x.ndim, "fftshift") for a in given)
