"""The standard's extension for Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinygrad.array_api.types import checked
from tinygrad.base.dtype import DType
from tinygrad.numeric import fft as transforms
from tinygrad.tensor import Tensor

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]

One = Callable[..., Tensor]


def _along_one(method: One) -> One:
    """A transform along one axis, under the standard's names of its arguments."""

    def function(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        checked(x)
        return method(x, n, axis, norm)

    function.__name__, function.__doc__ = method.__name__, method.__doc__
    return function


def _along_several(method: One) -> One:
    """A transform along several axes, under the standard's names of its arguments."""

    def function(
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Tensor:
        checked(x)
        return method(x, s, axes, norm)

    function.__name__, function.__doc__ = method.__name__, method.__doc__
    return function


fft = _along_one(transforms.fft)
ifft = _along_one(transforms.ifft)
rfft = _along_one(transforms.rfft)
irfft = _along_one(transforms.irfft)
hfft = _along_one(transforms.hfft)
ihfft = _along_one(transforms.ihfft)
fftn = _along_several(transforms.fftn)
ifftn = _along_several(transforms.ifftn)
rfftn = _along_several(transforms.rfftn)
irfftn = _along_several(transforms.irfftn)


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """The frequencies of the elements of a transform of `n` samples that are `d` apart: first those
    from 0 up, then the negative ones.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    return transforms.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """The frequencies of a transform of real samples: those from 0 up.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    return transforms.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: int | tuple[int, ...] | None = None) -> Tensor:
    """The element of frequency 0 in the middle.

    >>> fftshift(Tensor([0, 1, -2, -1])).tolist()
    [-2, -1, 0, 1]
    """
    checked(x)
    return transforms.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: int | tuple[int, ...] | None = None) -> Tensor:
    """The element of frequency 0 at the beginning again.

    >>> ifftshift(Tensor([-2, -1, 0, 1])).tolist()
    [0, 1, -2, -1]
    """
    checked(x)
    return transforms.ifftshift(x, axes)
