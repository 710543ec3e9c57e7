"""The blocks that the nets of latent diffusion share: residual convolutions, halving, doubling."""

from __future__ import annotations

from tinygrad.nn import Conv2d, GroupNorm, Linear
from tinygrad.tensor import Tensor


class ResBlock:
    """Two convolutions of the normalized input, added to it.

    Args:
        channels: of the input.
        out: channels of the result.
        time: features of a vector that is added between the convolutions; 0: none.
        groups: of the normalization.
        eps: of the normalization.
    """

    def __init__(
        self, channels: int, out: int, time: int = 0, groups: int = 32, eps: float = 1e-5
    ) -> None:
        self.norm1 = GroupNorm(groups, channels, eps)
        self.conv1 = Conv2d(channels, out, 3, padding=1)
        self.time = Linear(time, out) if time else None
        self.norm2 = GroupNorm(groups, out, eps)
        self.conv2 = Conv2d(out, out, 3, padding=1)
        self.shortcut = None if channels == out else Conv2d(channels, out, 1)

    def __call__(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        """x (batch, channels, height, width), time (batch, features) → (batch, out, ..)."""
        inner = self.conv1(self.norm1(x).silu())
        if self.time is not None and time is not None:
            inner = inner + self.time(time.silu()).reshape(*inner.shape[:2], 1, 1)
        inner = self.conv2(self.norm2(inner).silu())
        return (x if self.shortcut is None else self.shortcut(x)) + inner


class Halve:
    """A convolution that halves height and width."""

    def __init__(self, channels: int, at_end: bool = False) -> None:
        self.conv = Conv2d(channels, channels, 3, stride=2, padding=0 if at_end else 1)
        self._at_end = at_end  # zeros only after the last row and column

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, channels, height / 2, width / 2)."""
        return self.conv(x.pad(((0, 0), (0, 0), (0, 1), (0, 1))) if self._at_end else x)


class Double:
    """Each pixel four times, then a convolution."""

    def __init__(self, channels: int) -> None:
        self.conv = Conv2d(channels, channels, 3, padding=1)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, channels, 2·height, 2·width)."""
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, height, 1, width, 1)
        x = x.expand(batch, channels, height, 2, width, 2)
        return self.conv(x.reshape(batch, channels, 2 * height, 2 * width))


def pixels_last(x: Tensor) -> Tensor:
    """(batch, channels, height, width) → (batch, height·width, channels)."""
    return x.flatten(2).transpose(1, 2)


def pixels_apart(x: Tensor, like: Tensor) -> Tensor:
    """(batch, height·width, channels) → (batch, channels, height, width) as of `like`."""
    return x.transpose(1, 2).reshape(like.shape)
