"""MobileNet 1 and 2: convolutions by channel, then across channels.

(Howard and others, "MobileNets", 2017; Sandler and others, "MobileNetV2: Inverted Residuals and
Linear Bottlenecks", 2018.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.checkpoint import Names, Only, Pretrained, class_count
from tinygrad.models.convolution import ConvNorm, Padding, rounded
from tinygrad.nn import Linear
from tinygrad.tensor import Tensor

# channels of the result, and stride
ROWS_V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5,
           (1024, 2), (1024, 1))  # fmt: skip
ROWS_V2 = ((24, 2), (24, 1), (32, 2), (32, 1), (32, 1), (64, 2), *((64, 1),) * 3, *((96, 1),) * 3,
           (160, 2), (160, 1), (160, 1), (320, 1))  # fmt: skip


@dataclass(frozen=True)
class MobileNetConfig:
    """Sizes; all channels are `width` times as many."""

    width: float = 1.0
    channels: int = 3
    classes: int = 1000
    eps: float = 1e-3
    least: int = 8  # channels
    padding: Padding = "fit"
    expansion: int = 6  # of version 2
    wide_top: bool = True  # of version 2: no fewer channels before the classifier when width < 1


def _config(config: Mapping[str, Any]) -> MobileNetConfig:
    return MobileNetConfig(
        config["depth_multiplier"],
        config["num_channels"],
        class_count(config),
        config["layer_norm_eps"],
        config["min_depth"],
        "fit" if config["tf_padding"] else "even",
        config.get("expand_ratio", 6),
        config.get("finegrained_output", True),
    )


class _Classifier(Pretrained):
    """What both versions share: features, their mean, a linear layer."""

    head: Linear

    def __init__(self, config: MobileNetConfig | None = None) -> None:
        self.config = config or MobileNetConfig()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(_config(config))

    def features(self, images: Tensor) -> Tensor:
        """Images (batch, channels, height, width) → (batch, features, height/32, width/32)."""
        raise NotImplementedError

    def __call__(self, images: Tensor) -> Tensor:
        """Images (batch, channels, height, width) → scores (batch, classes)."""
        return self.head(self.features(images).mean((2, 3)))

    def _conv(
        self, channels: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1,
        active: bool = True,
    ) -> ConvNorm:  # fmt: skip
        activation = Tensor.relu6 if active else None
        config = self.config
        return ConvNorm(
            channels, out, kernel, stride, groups, activation, config.eps, config.padding
        )


class MobileNetV1(_Classifier):
    """Images to the scores of classes.

    >>> model = MobileNetV1(MobileNetConfig(width=0.125, classes=5))
    >>> model.head.weight.shape
    (5, 128)
    """

    ONLY: ClassVar[Only] = {"model_type": ("mobilenet_v1",), "hidden_act": ("relu6",)}
    NAMES: ClassVar[Names] = {
        "mobilenet_v1.conv_stem.convolution": "convs.0.conv",
        "mobilenet_v1.conv_stem.normalization": "convs.0.norm",
        **{
            f"mobilenet_v1.layer.{i}.{theirs}": f"convs.{i + 1}.{ours}"
            for i in range(2 * len(ROWS_V1))
            for theirs, ours in (("convolution", "conv"), ("normalization", "norm"))
        },
        "classifier": "head",
    }

    def __init__(self, config: MobileNetConfig | None = None) -> None:
        super().__init__(config)
        width, least = self.config.width, self.config.least
        channels = max(int(32 * width), least)
        self.convs = [self._conv(self.config.channels, channels, 3, 2)]
        for wanted, stride in ROWS_V1:
            out = max(int(wanted * width), least)
            self.convs.append(self._conv(channels, channels, 3, stride, channels))
            self.convs.append(self._conv(channels, out))
            channels = out
        self.head = Linear(channels, self.config.classes)

    def features(self, images: Tensor) -> Tensor:
        """Images (batch, channels, height, width) → (batch, features, height/32, width/32)."""
        return images.sequential(self.convs)


class Inverted:
    """Channels expanded, a convolution by channel, and fewer channels without activation."""

    def __init__(self, parts: list[ConvNorm], fits: bool) -> None:
        self.expand, self.depthwise, self.project = parts
        self._fits = fits

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, out, height / stride, width / stride)."""
        out = self.project(self.depthwise(self.expand(x)))
        return x + out if self._fits else out


class MobileNetV2(_Classifier):
    """Images to the scores of classes.

    >>> model = MobileNetV2(MobileNetConfig(width=0.25, classes=5))
    >>> model.head.weight.shape
    (5, 1280)
    """

    ONLY: ClassVar[Only] = {
        "model_type": ("mobilenet_v2",),
        "hidden_act": ("relu6",),
        "output_stride": (32,),
        "first_layer_is_expansion": (True,),
        "depth_divisible_by": (8,),
    }
    NAMES: ClassVar[Names] = {
        **{
            f"mobilenet_v2.{theirs}.{end}": f"{ours}.{short}"
            for theirs, ours in (
                ("conv_stem.first_conv", "stem"),
                ("conv_stem.conv_3x3", "first_depthwise"),
                ("conv_stem.reduce_1x1", "first_project"),
                ("layer.{}.expand_1x1", "blocks.{}.expand"),
                ("layer.{}.conv_3x3", "blocks.{}.depthwise"),
                ("layer.{}.reduce_1x1", "blocks.{}.project"),
                ("conv_1x1", "top"),
            )
            for end, short in (("convolution", "conv"), ("normalization", "norm"))
        },
        "classifier": "head",
    }

    def __init__(self, config: MobileNetConfig | None = None) -> None:
        super().__init__(config)
        stem, channels = self._scaled(32), self._scaled(16)
        self.stem = self._conv(self.config.channels, stem, 3, 2)
        self.first_depthwise = self._conv(stem, stem, 3, groups=stem)
        self.first_project = self._conv(stem, channels, active=False)
        self.blocks = []
        for wanted, stride in ROWS_V2:
            out, inner = self._scaled(wanted), rounded(round(channels * self.config.expansion))
            parts = [
                self._conv(channels, inner),
                self._conv(inner, inner, 3, stride, inner),
                self._conv(inner, out, active=False),
            ]
            self.blocks.append(Inverted(parts, stride == 1 and channels == out))
            channels = out
        wide = self.config.wide_top and self.config.width < 1
        top = 1280 if wide else self._scaled(1280)
        self.top = self._conv(channels, top)
        self.head = Linear(top, self.config.classes)

    def _scaled(self, channels: int) -> int:
        return rounded(round(channels * self.config.width), least=self.config.least)

    def features(self, images: Tensor) -> Tensor:
        """Images (batch, channels, height, width) → (batch, features, height/32, width/32)."""
        first = self.first_project(self.first_depthwise(self.stem(images)))
        return self.top(first.sequential(self.blocks))
