"""YOLOv8: the boxes of things in a picture, in one pass.

(Redmon and others, "You Only Look Once", 2016; the layers and their names are those of ultralytics'
YOLOv8, 2023; boxes as distributions: Li and others, "Generalized Focal Loss", 2020.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.models.checkpoint import Names, Pretrained
from tinygrad.models.convolution import ConvNorm
from tinygrad.nn import Conv2d
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import Devices

BINS = 16  # of the distance from an anchor to an edge


@dataclass(frozen=True)
class YOLOConfig:
    """Sizes; the defaults are those of YOLOv8n."""

    depth: float = 0.33
    width: float = 0.25
    most: int = 1024  # channels, before `width`
    classes: int = 80

    def channels(self, count: int) -> int:
        """What becomes of so many channels."""
        return math.ceil(min(count, self.most) * self.width / 8) * 8

    def repeats(self, count: int) -> int:
        """What becomes of so many blocks."""
        return max(round(count * self.depth), 1)


SIZES: Mapping[str, YOLOConfig] = {
    "n": YOLOConfig(0.33, 0.25, 1024),
    "s": YOLOConfig(0.33, 0.50, 1024),
    "m": YOLOConfig(0.67, 0.75, 768),
    "l": YOLOConfig(1.00, 1.00, 512),
    "x": YOLOConfig(1.00, 1.25, 512),
}


def conv(channels: int, out: int, kernel: int = 1, stride: int = 1) -> ConvNorm:
    """Convolution, normalization, SiLU."""
    return ConvNorm(channels, out, kernel, stride, activation=Tensor.silu, eps=1e-3)


class Bottleneck:
    """Two convolutions, added to the input on the way down."""

    def __init__(self, channels: int, adds: bool) -> None:
        self.first, self.second = conv(channels, channels, 3), conv(channels, channels, 3)
        self._adds = adds

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → the same."""
        out = self.second(self.first(x))
        return x + out if self._adds else out


class Split:
    """Half of the channels goes through bottlenecks; the results of all are brought together."""

    def __init__(self, channels: int, out: int, count: int, adds: bool) -> None:
        half = out // 2
        self.into = conv(channels, 2 * half)
        self.blocks = [Bottleneck(half, adds) for _ in range(count)]
        self.out = conv((2 + count) * half, out)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, out, height, width)."""
        parts = list(self.into(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.out(parts[0].cat(*parts[1:], dim=1))


class Pyramid:
    """The largest value around each pixel, over three sizes of surroundings."""

    def __init__(self, channels: int, out: int) -> None:
        self.into = conv(channels, channels // 2)
        self.out = conv(channels * 2, out)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, out, height, width)."""
        parts = [self.into(x)]
        for _ in range(3):
            parts.append(parts[-1].max_pool2d(5, 1, padding=2))
        return self.out(parts[0].cat(*parts[1:], dim=1))


class Branch:
    """Two convolutions and a linear map of the channels."""

    def __init__(self, channels: int, inner: int, out: int) -> None:
        self.first, self.second = conv(channels, inner, 3), conv(inner, inner, 3)
        self.out = Conv2d(inner, out, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, out, height·width)."""
        return self.out(self.second(self.first(x))).flatten(2)


_PARTS = (
    (0, "down.0"), (1, "down.1"), (2, "splits.0"), (3, "down.2"), (4, "splits.1"), (5, "down.3"),
    (6, "splits.2"), (7, "down.4"), (8, "splits.3"), (9, "pyramid"), (12, "merges.0"),
    (15, "merges.1"), (16, "halves.0"), (18, "merges.2"), (19, "halves.1"), (21, "merges.3"),
)  # fmt: skip


class YOLOv8(Pretrained):
    """Pictures to boxes and how likely each class is in them.

    >>> boxes, scores = YOLOv8(YOLOConfig(classes=3))(Tensor.ones(1, 3, 64, 64))
    >>> boxes.shape, scores.shape
    ((1, 4, 84), (1, 3, 84))
    """

    NAMES: ClassVar[Names] = {
        **{
            f"model.{number}{theirs}": f"{part}{ours}"
            for number, part in _PARTS
            for theirs, ours in (
                (".conv", ".conv"),
                (".bn", ".norm"),
                (".cv1.conv", ".into.conv"),
                (".cv1.bn", ".into.norm"),
                (".cv2.conv", ".out.conv"),
                (".cv2.bn", ".out.norm"),
                (".m.{}.cv1.conv", ".blocks.{}.first.conv"),
                (".m.{}.cv1.bn", ".blocks.{}.first.norm"),
                (".m.{}.cv2.conv", ".blocks.{}.second.conv"),
                (".m.{}.cv2.bn", ".blocks.{}.second.norm"),
            )
        },
        **{
            f"model.22.{theirs}.{{}}.{place}": f"{ours}.{{}}.{part}"
            for theirs, ours in (("cv2", "boxes"), ("cv3", "classes"))
            for place, part in (
                ("0.conv", "first.conv"),
                ("0.bn", "first.norm"),
                ("1.conv", "second.conv"),
                ("1.bn", "second.norm"),
                ("2", "out"),
            )
        },
        "model.22.dfl": None,  # the numbers 0 to 15
    }

    def __init__(self, config: YOLOConfig | None = None) -> None:
        self.config = config = config or YOLOConfig()
        widths = [config.channels(n) for n in (64, 128, 256, 512, 1024)]
        few, many = config.repeats(3), config.repeats(6)
        self.down = [conv(a, b, 3, 2) for a, b in zip([3, *widths], widths, strict=False)]
        counts = (few, many, many, few)
        self.splits = [
            Split(width, width, count, adds=True)
            for width, count in zip(widths[1:], counts, strict=True)
        ]
        small, middle, large = widths[2:]
        self.pyramid = Pyramid(large, large)
        self.merges = [
            Split(a, b, few, adds=False)
            for a, b in (
                (large + middle, middle),
                (middle + small, small),
                (small + middle, middle),
                (middle + large, large),
            )
        ]
        self.halves = [conv(small, small, 3, 2), conv(middle, middle, 3, 2)]
        box = max(16, small // 4, 4 * BINS)
        label = max(small, min(config.classes, 100))
        self.boxes = [Branch(n, box, 4 * BINS) for n in widths[2:]]
        self.classes = [Branch(n, label, config.classes) for n in widths[2:]]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """{"size": "n", "classes": 80}."""
        size = SIZES[config.get("size", "n")]
        return cls(YOLOConfig(size.depth, size.width, size.most, config.get("classes", 80)))

    def features(self, images: Tensor) -> list[Tensor]:
        """Images → features of an eighth, a sixteenth and a 32nd of their size."""
        x, seen = self.down[0](images), []
        for down, split in zip(self.down[1:], self.splits, strict=True):
            x = split(down(x))
            seen.append(x)
        small, middle, large = seen[1], seen[2], self.pyramid(seen[3])
        middle = self.merges[0](doubled(large).cat(middle, dim=1))
        small = self.merges[1](doubled(middle).cat(small, dim=1))
        middle = self.merges[2](self.halves[0](small).cat(middle, dim=1))
        large = self.merges[3](self.halves[1](middle).cat(large, dim=1))
        return [small, middle, large]

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 3, height, width), each a multiple of 32 → boxes (batch, 4, anchors): centre x,
        centre y, width and height in pixels; and probabilities (batch, classes, anchors)."""
        boxes, scores = [], []
        for number, x in enumerate(self.features(images)):
            stride = 8 << number
            bins = self.boxes[number](x).reshape(x.shape[0], 4, BINS, -1).softmax(2)
            weights = Tensor.arange(BINS, device=x.device).reshape(1, 1, BINS, 1)
            left, top, right, bottom = ((bins * weights).sum(2) * stride).split(1, dim=1)
            across, along = centres(x.shape[2], x.shape[3], stride, x.device)
            middle = across + (right - left) / 2, along + (bottom - top) / 2
            boxes.append(middle[0].cat(middle[1], left + right, top + bottom, dim=1))
            scores.append(self.classes[number](x).sigmoid())
        return boxes[0].cat(*boxes[1:], dim=2), scores[0].cat(*scores[1:], dim=2)


def doubled(x: Tensor) -> Tensor:
    """Each pixel four times."""
    return x.interpolate((x.shape[2] * 2, x.shape[3] * 2), mode="nearest")


def centres(height: int, width: int, stride: int, device: Devices) -> tuple[Tensor, Tensor]:
    """x and y of the centres of the fields, (1, 1, height·width) each, in pixels."""
    along, across = (
        (Tensor.arange(size, device=device) + 0.5) * stride for size in (height, width)
    )
    return (
        across.reshape(1, width).expand(height, width).reshape(1, 1, -1),
        along.reshape(height, 1).expand(height, width).reshape(1, 1, -1),
    )


@dataclass(frozen=True)
class Found:
    """A thing in a picture: corners in pixels, its class and how likely that is."""

    left: float
    top: float
    right: float
    bottom: float
    label: int
    score: float


def found(
    boxes: NDArray[Any], scores: NDArray[Any], least: float = 0.25, overlap: float = 0.7,
    most: int = 300,
) -> list[Found]:  # fmt: skip
    """The things in one picture: the likeliest box of those that overlap much.

    Args:
        boxes: (4, anchors) as the model gives them.
        scores: (classes, anchors).
        least: probability of a thing.
        overlap: shared area by united area from which two boxes of one class are one thing.
        most: things.
    """
    label, score = scores.argmax(0), scores.max(0)
    order = [int(i) for i in np.argsort(-score, kind="stable") if score[i] >= least]
    half = boxes[2:] / 2
    corners = np.concatenate([boxes[:2] - half, boxes[:2] + half])  # (4, anchors)
    kept: list[int] = []
    for i in order:
        rivals = [j for j in kept if label[j] == label[i]]
        if len(kept) < most and all(
            _shared(corners[:, i], corners[:, j]) <= overlap for j in rivals
        ):
            kept.append(i)
    return [_thing(corners[:, i].tolist(), int(label[i]), float(score[i])) for i in kept]


def _thing(corners: list[float], label: int, score: float) -> Found:
    left, top, right, bottom = corners
    return Found(left, top, right, bottom, label, score)


def _shared(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Shared area by united area of two boxes."""
    sides = np.maximum(0, np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]))
    shared = float(sides.prod())
    united = float((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod()) - shared
    return shared / united if united > 0 else 0.0
