"""EfficientNet. (Tan and Le, "EfficientNet: Rethinking Model Scaling", 2019.)"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.checkpoint import Names, Only, Pretrained, class_count
from tinygrad.models.convolution import ConvNorm, Padding, rounded
from tinygrad.nn import Conv2d, Linear
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class Stage:
    """Blocks alike: the first has the stride and changes the channels."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int
    out: int


STAGES = (
    Stage(1, 3, 1, 1, 32, 16),
    Stage(2, 3, 2, 6, 16, 24),
    Stage(2, 5, 2, 6, 24, 40),
    Stage(3, 3, 2, 6, 40, 80),
    Stage(3, 5, 1, 6, 80, 112),
    Stage(4, 5, 2, 6, 112, 192),
    Stage(1, 3, 1, 6, 192, 320),
)


@dataclass(frozen=True)
class EfficientNetConfig:
    """Sizes; the defaults are those of B0."""

    width: float = 1.0  # all channels are so many times as many
    depth: float = 1.0  # and all repeats
    stages: tuple[Stage, ...] = STAGES
    squeeze: float = 0.25
    top: int = 1280
    divisor: int = 8
    channels: int = 3
    classes: int = 1000
    eps: float = 1e-3
    even: tuple[
        int, ...
    ] = ()  # blocks that halve pictures of odd size, at the size of the training


# width, depth and image size of each
SIZES: Mapping[str, tuple[float, float, int]] = {
    "b0": (1.0, 1.0, 224),
    "b1": (1.0, 1.1, 240),
    "b2": (1.1, 1.2, 260),
    "b3": (1.2, 1.4, 300),
    "b4": (1.4, 1.8, 380),
    "b5": (1.6, 2.2, 456),
    "b6": (1.8, 2.6, 528),
    "b7": (2.0, 3.1, 600),
}


class Block:
    """Channels expanded, a depthwise convolution, channels weighed, and brought together.

    (Sandler and others, "MobileNetV2", 2018; Hu and others, "Squeeze-and-Excitation", 2018.)
    """

    def __init__(
        self, channels: int, out: int, kernel: int, stride: int, expansion: int, squeezed: int,
        eps: float, padding: Padding,
    ) -> None:  # fmt: skip
        inner = channels * expansion
        self.expand = (
            None if expansion == 1 else ConvNorm(channels, inner, activation=Tensor.silu, eps=eps)
        )
        self.depthwise = ConvNorm(inner, inner, kernel, stride, inner, Tensor.silu, eps, padding)
        self.squeeze = Conv2d(inner, squeezed, 1)
        self.excite = Conv2d(squeezed, inner, 1)
        self.project = ConvNorm(inner, out, eps=eps)
        self._fits = channels == out and stride == 1

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, out, height / stride, width / stride)."""
        inner = self.depthwise(x if self.expand is None else self.expand(x))
        weight = self.excite(self.squeeze(inner.mean((2, 3), keepdim=True)).silu()).sigmoid()
        out = self.project(inner * weight)
        return x + out if self._fits else out


class EfficientNet(Pretrained):
    """Images to the scores of classes.

    >>> stages = (Stage(1, 3, 1, 1, 32, 8), Stage(1, 5, 2, 6, 8, 16))
    >>> EfficientNet(EfficientNetConfig(stages=stages, classes=5))(Tensor.ones(2, 3, 16, 16)).shape
    (2, 5)
    """

    NAMES: ClassVar[Names] = {
        "efficientnet.embeddings.convolution": "stem.conv",
        "efficientnet.embeddings.batchnorm": "stem.norm",
        **{
            f"efficientnet.encoder.blocks.{{}}.{theirs}": f"blocks.{{}}.{ours}"
            for theirs, ours in (
                ("expansion.expand_conv", "expand.conv"),
                ("expansion.expand_bn", "expand.norm"),
                ("depthwise_conv.depthwise_conv", "depthwise.conv"),
                ("depthwise_conv.depthwise_norm", "depthwise.norm"),
                ("squeeze_excite.reduce", "squeeze"),
                ("squeeze_excite.expand", "excite"),
                ("projection.project_conv", "project.conv"),
                ("projection.project_bn", "project.norm"),
            )
        },
        "efficientnet.encoder.top_conv": "top.conv",
        "efficientnet.encoder.top_bn": "top.norm",
        "classifier": "head",
    }
    ONLY: ClassVar[Only] = {
        "model_type": ("efficientnet",),
        "hidden_act": ("swish", "silu"),
        "pooling_type": ("mean",),
    }

    def __init__(self, config: EfficientNetConfig | None = None) -> None:
        self.config = config = config or EfficientNetConfig()
        scaled = [rounded(n * config.width, config.divisor) for n in (32, config.top)]
        stem, top = scaled
        self.stem = ConvNorm(
            config.channels, stem, 3, 2, activation=Tensor.silu, eps=config.eps, padding="end"
        )
        self.blocks: list[Block] = []
        for stage in config.stages:
            self.blocks += _blocks(stage, config, len(self.blocks))
        last = rounded(config.stages[-1].out * config.width, config.divisor)
        self.top = ConvNorm(last, top, activation=Tensor.silu, eps=config.eps)
        self.head = Linear(top, config.classes)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        columns = ("num_block_repeats", "kernel_sizes", "strides", "expand_ratios", "in_channels",
                   "out_channels")  # fmt: skip
        return cls(
            EfficientNetConfig(
                config["width_coefficient"],
                config["depth_coefficient"],
                tuple(Stage(*row) for row in zip(*(config[c] for c in columns), strict=True)),
                config["squeeze_expansion_ratio"],
                1280,
                config["depth_divisor"],
                config["num_channels"],
                class_count(config),
                config["batch_norm_eps"],
                tuple(config.get("depthwise_padding") or ()),
            )
        )

    def features(self, images: Tensor) -> Tensor:
        """Images (batch, channels, height, width) → (batch, top, height/32, width/32)."""
        return self.top(self.stem(images).sequential(self.blocks))

    def __call__(self, images: Tensor) -> Tensor:
        """Images (batch, channels, height, width) → scores (batch, classes)."""
        return self.head(self.features(images).mean((2, 3)))


def _blocks(stage: Stage, config: EfficientNetConfig, before: int) -> list[Block]:
    channels, out = (rounded(n * config.width, config.divisor) for n in (stage.channels, stage.out))
    made = []
    for place in range(math.ceil(stage.repeats * config.depth)):
        given, stride = (channels, stage.stride) if place == 0 else (out, 1)
        squeezed = max(1, int(given * config.squeeze))
        padding: Padding = "even" if stride == 1 or before + place in config.even else "end"
        sizes = (given, out, stage.kernel, stride, stage.expansion, squeezed)
        made.append(Block(*sizes, config.eps, padding))
    return made
