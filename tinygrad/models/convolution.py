"""What image models repeat: a convolution, normalized over the batch, and an activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tinygrad.nn import BatchNorm, Conv2d
from tinygrad.tensor import Tensor

Activation = Callable[[Tensor], Tensor]
Padding = Literal["even", "end", "fit"]
"""Zeros around pictures: kernel // 2 on each side; one fewer of them at the begin; or as few as the
size needs, as TensorFlow's "same" has them."""


class ConvNorm:
    """Convolution without bias, batch normalization, activation.

    Args:
        channels: of the input.
        out: channels of the result.
        kernel: height and width of the kernel.
        stride: the distance of windows.
        groups: the channels fall into so many parts that don't see each other.
        activation: None: none.
        eps: of the normalization.
        padding: the zeros.
    """

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        activation: Activation | None = None,
        eps: float = 1e-5,
        padding: Padding = "even",
    ) -> None:
        half = kernel // 2
        self._zeros = None if padding == "fit" else (half - (padding == "end"), half)
        around = half if padding == "even" else 0
        self.conv = Conv2d(channels, out, kernel, stride, padding=around, groups=groups, bias=False)
        self.norm = BatchNorm(out, eps)
        self._kernel, self._stride, self._padding = kernel, stride, padding
        self._activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, out, height / stride, width / stride)."""
        if self._padding != "even":
            sides = (self._zeros or fitting(n, self._kernel, self._stride) for n in x.shape[2:])
            x = x.pad(((0, 0), (0, 0), *sides))
        x = self.norm(self.conv(x))
        return x if self._activation is None else self._activation(x)


def fitting(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis, so that there are ⌈size / stride⌉ windows.

    >>> fitting(32, 3, 2), fitting(33, 3, 2)
    ((0, 1), (1, 1))
    """
    total = max(kernel - (stride if size % stride == 0 else size % stride), 0)
    return total // 2, total - total // 2


def rounded(channels: float, divisor: int = 8, least: int | None = None) -> int:
    """The multiple of `divisor` next to `channels`, at most a tenth below it.

    >>> rounded(33), rounded(12)
    (32, 16)
    """
    near = max(least or divisor, int(channels + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * channels else near
