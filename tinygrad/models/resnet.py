"""Residual networks. (He and others, "Deep Residual Learning for Image Recognition", 2016.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.checkpoint import Names, Only, Pretrained, class_count, translated
from tinygrad.models.convolution import ConvNorm
from tinygrad.nn import Linear
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class ResNetConfig:
    """Sizes; the defaults are those of ResNet-50 on ImageNet."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    bottleneck: bool = True  # 1x1, 3x3, 1x1 on a quarter of the channels; else 3x3, 3x3
    stem: int = 64
    channels: int = 3
    classes: int = 1000
    first_halves: bool = False  # whether the first stage halves the picture as the others do
    early: bool = False  # whether a bottleneck's first convolution does, not its second


BASIC = (64, 128, 256, 512)
SIZES: Mapping[int, ResNetConfig] = {
    18: ResNetConfig((2, 2, 2, 2), BASIC, bottleneck=False),
    34: ResNetConfig((3, 4, 6, 3), BASIC, bottleneck=False),
    50: ResNetConfig(),
    101: ResNetConfig((3, 4, 23, 3)),
    152: ResNetConfig((3, 8, 36, 3)),
}

TORCHVISION: Names = {
    "conv1": "resnet.embedder.embedder.convolution",
    "bn1": "resnet.embedder.embedder.normalization",
    "fc": "classifier.1",
    **{
        f"layer{stage + 1}.{{}}.{theirs}": f"resnet.encoder.stages.{stage}.layers.{{}}.{ours}"
        for stage in range(4)
        for theirs, ours in (
            ("downsample.0", "shortcut.convolution"),
            ("downsample.1", "shortcut.normalization"),
            *((f"conv{i + 1}", f"layer.{i}.convolution") for i in range(3)),
            *((f"bn{i + 1}", f"layer.{i}.normalization") for i in range(3)),
        )
    },
}


class Block:
    """Two or three convolutions, added to the input, which is fitted where sizes differ."""

    def __init__(
        self, channels: int, out: int, stride: int, bottleneck: bool, early: bool = False
    ) -> None:
        if bottleneck:
            inner, (first, second) = out // 4, (stride, 1) if early else (1, stride)
            self.convs = [
                ConvNorm(channels, inner, stride=first, activation=Tensor.relu),
                ConvNorm(inner, inner, 3, second, activation=Tensor.relu),
                ConvNorm(inner, out),
            ]
        else:
            self.convs = [
                ConvNorm(channels, out, 3, stride, activation=Tensor.relu),
                ConvNorm(out, out, 3),
            ]
        fits = channels == out and stride == 1
        self.shortcut = None if fits else ConvNorm(channels, out, stride=stride)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, out, height / stride, width / stride)."""
        out = x.sequential(self.convs)
        return (out + (x if self.shortcut is None else self.shortcut(x))).relu()


class ResNet(Pretrained):
    """Images to the scores of classes.

    >>> model = ResNet(ResNetConfig((1, 1), (8, 16), stem=4, classes=5))
    >>> model(Tensor.ones(2, 3, 16, 16)).shape
    (2, 5)
    """

    NAMES: ClassVar[Names] = {
        "resnet.embedder.embedder.convolution": "stem.conv",
        "resnet.embedder.embedder.normalization": "stem.norm",
        **{
            f"resnet.encoder.stages.{{}}.layers.{{}}.{theirs}": f"stages.{{}}.{{}}.{ours}"
            for theirs, ours in (
                ("shortcut.convolution", "shortcut.conv"),
                ("shortcut.normalization", "shortcut.norm"),
                ("layer.{}.convolution", "convs.{}.conv"),
                ("layer.{}.normalization", "convs.{}.norm"),
            )
        },
        "classifier.1": "head",
    }
    ONLY: ClassVar[Only] = {"model_type": ("resnet",), "hidden_act": ("relu",)}

    def __init__(self, config: ResNetConfig | None = None) -> None:
        self.config = config = config or ResNetConfig()
        self.stem = ConvNorm(config.channels, config.stem, 7, 2, activation=Tensor.relu)
        self.stages: list[list[Block]] = []
        channels = config.stem
        for number, (depth, width) in enumerate(zip(config.depths, config.widths, strict=True)):
            blocks = []
            for place in range(depth):
                halves = place == 0 and (number > 0 or config.first_halves)
                stride = 2 if halves else 1
                blocks.append(Block(channels, width, stride, config.bottleneck, config.early))
                channels = width
            self.stages.append(blocks)
        self.head = Linear(channels, config.classes)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(
            ResNetConfig(
                tuple(config["depths"]),
                tuple(config["hidden_sizes"]),
                config["layer_type"] == "bottleneck",
                config["embedding_size"],
                config["num_channels"],
                class_count(config),
                config.get("downsample_in_first_stage", False),
                config.get("downsample_in_bottleneck", False),
            )
        )

    def load(self, state: Mapping[str, Tensor], strict: bool = True) -> Self:
        """Takes the weights of a checkpoint, in Hugging Face's layout or torchvision's."""
        return super().load(translated(state, TORCHVISION) if "conv1.weight" in state else state,
                            strict)  # fmt: skip

    def features(self, images: Tensor) -> Tensor:
        """Images (batch, channels, height, width) → (batch, widths[-1], height/32, width/32)."""
        x: Tensor = self.stem(images).max_pool2d(3, 2, padding=1)
        for blocks in self.stages:
            x = x.sequential(blocks)
        return x

    def __call__(self, images: Tensor) -> Tensor:
        """Images (batch, channels, height, width) → scores (batch, classes)."""
        return self.head(self.features(images).mean((2, 3)))
