"""The four nets of MLPerf Tiny. (Banbury and others, "MLPerf Tiny Benchmark", 2021.)

They are small enough for microcontrollers; inputs are as the benchmark gives them, channels first.
"""

from __future__ import annotations

from tinygrad.models.convolution import Activation, ConvNorm
from tinygrad.models.mobilenet import MobileNetConfig, MobileNetV1
from tinygrad.nn import BatchNorm, Conv2d, Linear
from tinygrad.tensor import Tensor


class KeywordSpotting:
    """DS-CNN: a second of speech, 49 frames of 10 coefficients, to one of 12 words.

    (Zhang and others, "Hello Edge: Keyword Spotting on Microcontrollers", 2017.)

    >>> KeywordSpotting()(Tensor.ones(1, 1, 49, 10)).shape
    (1, 12)
    """

    def __init__(self, classes: int = 12, width: int = 64, blocks: int = 4) -> None:
        self.stem = Conv2d(1, width, (10, 4), stride=2, bias=False)
        self.norm = BatchNorm(width)
        self.blocks: list[ConvNorm] = []
        for _ in range(blocks):
            self.blocks.append(ConvNorm(width, width, 3, groups=width, activation=Tensor.relu))
            self.blocks.append(ConvNorm(width, width, activation=Tensor.relu))
        self.head = Linear(width, classes)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, 1, 49, 10) → scores (batch, classes)."""
        x = x.pad((1, 1, 4, 5))  # 25 x 5 windows, as TensorFlow's "same"
        x = self.norm(self.stem(x)).relu().dropout(0.2)
        x = x.sequential(self.blocks).dropout(0.4)
        return self.head(x.mean((2, 3)))


class VisualWakeWords(MobileNetV1):
    """Whether there is a person in an image of 96 x 96 pixels: MobileNet of a quarter's width.

    >>> VisualWakeWords().head.weight.shape
    (2, 256)
    """

    def __init__(self, config: MobileNetConfig | None = None) -> None:
        super().__init__(config or MobileNetConfig(width=0.25, classes=2))


class _Residual:
    def __init__(self, channels: int, out: int, stride: int) -> None:
        relu: Activation = Tensor.relu
        self.first = ConvNorm(channels, out, 3, stride, activation=relu, padding="fit")
        self.second = ConvNorm(out, out, 3)
        self.shortcut = None if channels == out else Conv2d(channels, out, 1, stride)

    def __call__(self, x: Tensor) -> Tensor:
        out = self.second(self.first(x))
        return (out + (x if self.shortcut is None else self.shortcut(x))).relu()


class ResNet8:
    """An image of CIFAR-10 to one of 10 classes.

    >>> ResNet8()(Tensor.ones(1, 3, 32, 32)).shape
    (1, 10)
    """

    def __init__(self, classes: int = 10) -> None:
        self.stem = ConvNorm(3, 16, 3, activation=Tensor.relu)
        self.blocks = [_Residual(16, 16, 1), _Residual(16, 32, 2), _Residual(32, 64, 2)]
        self.head = Linear(64, classes)

    def __call__(self, images: Tensor) -> Tensor:
        """(batch, 3, 32, 32) → scores (batch, classes)."""
        return self.head(self.stem(images).sequential(self.blocks).mean((2, 3)))


class AnomalyAutoencoder:
    """Five frames of 128 mel coefficients of a machine's sound, through a bottleneck and back.

    What it brings back badly is not the sound that it was trained on.

    >>> AnomalyAutoencoder()(Tensor.ones(2, 640)).shape
    (2, 640)
    """

    def __init__(self, size: int = 640, width: int = 128, code: int = 8) -> None:
        widths = [size, *(width,) * 4, code, *(width,) * 4]
        pairs = list(zip(widths, widths[1:], strict=False))
        self.layers = [Linear(a, b) for a, b in pairs]
        self.norms = [BatchNorm(b) for _, b in pairs]
        self.out = Linear(width, size)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, size) → the same."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x)).relu()
        return self.out(x)

    def error(self, x: Tensor) -> Tensor:
        """(batch, size) → (batch,): the mean squared difference to what comes back."""
        return (self(x) - x).square().mean(-1)
