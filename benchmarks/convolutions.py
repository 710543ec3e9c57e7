"""Convolutions of every kind: cases beyond the suite, measured where --cases names them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Convolution:
    """x is (N, channels, *spatial), the weight (out, channels / groups, *kernel); a transposed one
    has (channels, out, *kernel)."""

    meaning: str
    x: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    is_transposed: bool = False

    @property
    def operations(self) -> int:
        """Multiplications and additions, also those with padding."""
        if self.is_transposed:
            return 2 * prod(self.x) * prod(self.weight[1:])
        return 2 * self.x[0] * self.weight[0] * prod(self.positions) * prod(self.weight[1:])

    @property
    def positions(self) -> tuple[int, ...]:
        """Sizes of the result's spatial axes."""
        pairs = zip(self.x[2:], self.weight[2:], strict=True)
        reach = 2 * self.pad + self.stride
        return tuple((n + reach - self.dilation * (k - 1) - 1) // self.stride for n, k in pairs)


CONVOLUTIONS: dict[str, Convolution] = {
    "conv3x3_128_28": Convolution("3x3", (8, 128, 28, 28), (128, 128, 3, 3), pad=1),
    "conv3x3_256_14": Convolution("3x3", (8, 256, 14, 14), (256, 256, 3, 3), pad=1),
    "conv3x3_512_7": Convolution("3x3", (8, 512, 7, 7), (512, 512, 3, 3), pad=1),
    "conv3x3_512_7_b1": Convolution("3x3, one image", (1, 512, 7, 7), (512, 512, 3, 3), pad=1),
    "conv3x3_s2_64_56": Convolution("stride 2", (8, 64, 56, 56), (128, 64, 3, 3), 2, 1),
    "conv3x3_s2_128_28": Convolution("stride 2", (8, 128, 28, 28), (256, 128, 3, 3), 2, 1),
    "conv3x3_odd": Convolution("odd sizes", (4, 33, 37, 41), (50, 33, 3, 3), pad=1),
    "conv1x1_64_56": Convolution("1x1", (8, 64, 56, 56), (256, 64, 1, 1)),
    "conv1x1_s2_64_56": Convolution("1x1, stride 2", (8, 64, 56, 56), (128, 64, 1, 1), 2),
    "conv5x5_32_28": Convolution("5x5, no padding", (32, 32, 28, 28), (32, 32, 5, 5)),
    "conv7x7_s2_3_224": Convolution("ResNet's first", (8, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    "conv7x7_s2_16_64": Convolution("7x7, stride 2", (8, 16, 64, 64), (16, 16, 7, 7), 2, 3),
    "conv5x5_s2_odd": Convolution("odd, stride 2", (8, 32, 33, 35), (64, 32, 5, 5), 2, 2),
    "conv3x3_s2_256_14": Convolution("stride 2", (8, 256, 14, 14), (512, 256, 3, 3), 2, 1),
    "conv3x3_dilated": Convolution(
        "dilation 2", (8, 64, 56, 56), (64, 64, 3, 3), pad=2, dilation=2
    ),
    "conv3x3_4_groups": Convolution("4 groups", (8, 128, 28, 28), (128, 32, 3, 3), pad=1, groups=4),
    "conv3x3_32_groups": Convolution(
        "32 groups", (8, 256, 28, 28), (256, 8, 3, 3), pad=1, groups=32
    ),
    "depthwise3x3_s2": Convolution(
        "depthwise, stride 2", (8, 128, 56, 56), (128, 1, 3, 3), 2, 1, groups=128
    ),
    "depthwise5x5_28": Convolution(
        "depthwise, 5x5", (8, 240, 28, 28), (240, 1, 5, 5), pad=2, groups=240
    ),
    "conv1d_k3": Convolution("one axis", (8, 64, 4096), (64, 64, 3), pad=1),
    "conv1d_s2": Convolution("one axis, stride 2", (8, 80, 3000), (128, 80, 3), 2, 1),
    "conv3d_k3": Convolution("three axes", (2, 16, 16, 28, 28), (32, 16, 3, 3, 3), pad=1),
    "conv3d_s2": Convolution("stride 2", (2, 16, 16, 16, 16), (32, 16, 3, 3, 3), 2, 1),
    "transposed3x3": Convolution(
        "transposed", (8, 64, 28, 28), (64, 64, 3, 3), pad=1, is_transposed=True
    ),
    "transposed2x2_s2": Convolution(
        "transposed, stride 2", (8, 128, 28, 28), (128, 64, 2, 2), 2, is_transposed=True
    ),
    "transposed4x4_s2": Convolution(
        "transposed, stride 2", (8, 64, 28, 28), (64, 32, 4, 4), 2, 1, is_transposed=True
    ),
}

BY = ("x", "weight")

GRADIENTS = {f"{name}_by_{by}": (row, by) for name, row in CONVOLUTIONS.items() for by in BY}
"""The gradient of each by what it is made of, where that of the result is given."""
