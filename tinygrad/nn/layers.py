"""Layers with learned factors: linear, convolutions, embedding; and dropout.

Weights have PyTorch's names and shapes, so its checkpoints load.
"""

from __future__ import annotations

from typing import Any

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.nn.ranks import as_batch
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice
from tinygrad.tensor.conv import padding_pairs, same_padding
from tinygrad.tensor.template import expression

Sizes = int | tuple[int, ...]
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def uniform_weight(shape: tuple[int, ...], fan_in: int) -> Tensor:
    """Uniform in ±1/√fan_in, so that a sum over `fan_in` inputs has about their size.

    (LeCun, Bottou, Orr and Müller, "Efficient BackProp", 1998.)
    """
    bound = fan_in**-0.5 if fan_in > 0 else 0.0
    return Tensor.uniform(*shape, low=-bound, high=bound)


@expression
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (.., in) times weight (out, in), plus bias (out,).

    >>> linear(Tensor.ones(2, 3), Tensor.ones(4, 3)).shape
    (2, 4)
    """
    return x.linear(weight.transpose(), bias)


class Linear:
    """x @ weightᵀ + bias.

    Args:
        in_features: size of the last axis of x, (.., in_features).
        out_features: size of the last axis of the result, (.., out_features).
        bias: whether to add one.

    Raises:
        ShapeError: the last axis of x has another size.

    >>> Linear(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = uniform_weight((out_features, in_features), in_features)
        self.bias = uniform_weight((out_features,), in_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(.., in) → (.., out)."""
        return linear(x, self.weight, self.bias)


class Bilinear:
    """x·weight·y + bias: each output feature is a bilinear form in both inputs.

    Args:
        in1_features: size of the last axis of x, (.., in1_features).
        in2_features: size of the last axis of y, (.., in2_features).
        out_features: size of the last axis of the result, (.., out_features).
        bias: whether to add one.

    Raises:
        ShapeError: a last axis has another size, or the others differ.

    >>> Bilinear(3, 4, 5)(Tensor.ones(2, 3), Tensor.ones(2, 4)).shape
    (2, 5)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True
    ) -> None:
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        self.weight = uniform_weight((out_features, in1_features, in2_features), in1_features)
        self.bias = uniform_weight((out_features,), in1_features) if bias else None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """(.., in1) and (.., in2) → (.., out)."""
        return bilinear(x, y, self.weight, self.bias)


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·weight·y + bias: (.., in1) and (.., in2) → (.., out), by a weight (out, in1, in2).

    >>> bilinear(Tensor.ones(2, 3), Tensor.ones(2, 4), Tensor.ones(5, 3, 4)).shape
    (2, 5)
    """
    features, first, second = weight.shape if weight.ndim == 3 else (0, 0, 0)
    if (x.shape[-1:], y.shape[-1:], x.shape[:-1]) != ((first,), (second,), y.shape[:-1]):
        raise ShapeError(
            f"Bilinear: x has shape {x.shape}, y {y.shape} and the weight {weight.shape}; legal "
            f"are (.., {first}), (.., {second}) with the same axes before, (out, in1, in2)"
        )
    if bias is not None and bias.shape != (features,):
        raise ShapeError(f"Bilinear: bias {bias.shape}; legal is ({features},)")
    seen = x.matmul(weight.permute(1, 0, 2).reshape(first, features * second))
    out = (seen.reshape(*x.shape[:-1], features, second) * y.unsqueeze(-2)).sum(-1)
    return out if bias is None else out + bias


class Conv2d:
    """Cross-correlation over the last two axes, or as many as `kernel_size` has numbers.

    Args:
        in_channels: channels of x, (N, in_channels, height, width), or an image without N.
        out_channels: channels of the result.
        kernel_size: one number for both axes, or one for each.
        stride: the distance between windows.
        padding: zeros on each side; one number, one an axis, "valid" for none, or "same": as many
            as keep the size.
        dilation: the distance between the taps of a window.
        groups: the channels are split into this many groups, each convolved separately.
        bias: whether to add a learned number to each channel.
        padding_mode: what the padding holds: "zeros", or as `Tensor.pad` has them "reflect",
            "replicate" or "circular".

    Raises:
        ArgumentError: groups don't divide the channels, or "same" with a stride.
        ShapeError: x has another number of channels, or is smaller than the kernel.

    >>> Conv2d(3, 8, 5, stride=2)(Tensor.ones(1, 3, 9, 9)).shape
    (1, 8, 3, 3)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        _check_groups("Conv2d", in_channels, out_channels, groups)
        check_choice("Conv2d", "padding_mode", padding_mode, PADDING_MODES)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.padding_mode = padding_mode
        kernel = _each(kernel_size, 2)
        self.kernel_size = kernel
        self.stride = stride
        self.dilation = dilation
        self.groups = groups
        self.padding: Sizes = (
            padding if not isinstance(padding, str) else _same(padding, kernel, stride, dilation)
        )
        fan_in = in_channels // groups * prod(kernel)
        self.weight = uniform_weight((out_channels, in_channels // groups, *kernel), fan_in)
        self.bias = uniform_weight((out_channels,), fan_in) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in, *spatial) → (N, out, *positions), or both without N."""
        return as_batch(self._batched, x, len(self.kernel_size) + 2)

    def _batched(self, x: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            around = padding_pairs(padding, len(self.kernel_size))
            x = x.pad([n for pair in reversed(around) for n in pair], self.padding_mode)
            padding = 0
        return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, padding)


def Conv1d(  # noqa: N802  made like a class
    in_channels: int, out_channels: int, kernel_size: Sizes, *options: Any, **named: Any
) -> Conv2d:
    """A `Conv2d` with a single spatial axis: (N, in, length) → (N, out, positions). The further
    arguments are those of `Conv2d`.

    >>> Conv1d(3, 8, 5)(Tensor.ones(1, 3, 9)).shape
    (1, 8, 5)
    """
    kernel = _each(kernel_size, 1)
    return Conv2d(in_channels, out_channels, kernel, *options, **named)


def Conv3d(  # noqa: N802  made like a class
    in_channels: int, out_channels: int, kernel_size: Sizes, *options: Any, **named: Any
) -> Conv2d:
    """A `Conv2d` with three spatial axes: (N, in, depth, height, width).

    >>> Conv3d(3, 8, 2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 8, 3, 3, 3)
    """
    kernel = _each(kernel_size, 3)
    return Conv2d(in_channels, out_channels, kernel, *options, **named)


class ConvTranspose2d:
    """The adjoint of `Conv2d`: each input element adds a kernel's worth to the result.

    Args:
        in_channels: channels of x, (N, in_channels, height, width), or an image without N.
        out_channels: channels of the result.
        kernel_size: one number for both axes, or one for each.
        stride: the distance between the places to which the kernel is added.
        padding: how much is cut off on each side.
        output_padding: what is added at the end: which of the sizes that the convolution maps to
            this input is meant.
        dilation: the distance between the taps of a kernel.
        groups: the channels are split into this many groups, each convolved separately.
        bias: whether to add a learned number to each channel.

    >>> ConvTranspose2d(3, 8, 2, stride=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 8, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        _check_groups("ConvTranspose2d", in_channels, out_channels, groups)
        kernel = _each(kernel_size, 2)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = kernel
        self.stride = stride
        self.padding = padding
        self.output_padding = output_padding
        self.dilation = dilation
        self.groups = groups
        fan_in = out_channels // groups * prod(kernel)
        self.weight = uniform_weight((in_channels, out_channels // groups, *kernel), fan_in)
        self.bias = uniform_weight((out_channels,), fan_in) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in, *positions) → (N, out, *spatial), or both without N."""
        return as_batch(self._batched, x, len(self.kernel_size) + 2)

    def _batched(self, x: Tensor) -> Tensor:
        return x.conv_transpose2d(
            self.weight,
            self.bias,
            self.groups,
            self.stride,
            self.dilation,
            self.padding,
            self.output_padding,
        )


def ConvTranspose1d(  # noqa: N802  made like a class
    in_channels: int, out_channels: int, kernel_size: Sizes, *options: Any, **named: Any
) -> ConvTranspose2d:
    """A `ConvTranspose2d` with a single spatial axis.

    >>> ConvTranspose1d(3, 8, 2, stride=2)(Tensor.ones(1, 3, 4)).shape
    (1, 8, 8)
    """
    kernel = _each(kernel_size, 1)
    return ConvTranspose2d(in_channels, out_channels, kernel, *options, **named)


def ConvTranspose3d(  # noqa: N802  made like a class
    in_channels: int, out_channels: int, kernel_size: Sizes, *options: Any, **named: Any
) -> ConvTranspose2d:
    """A `ConvTranspose2d` with three spatial axes.

    >>> ConvTranspose3d(3, 8, 2, stride=2)(Tensor.ones(1, 3, 2, 2, 2)).shape
    (1, 8, 4, 4, 4)
    """
    kernel = _each(kernel_size, 3)
    return ConvTranspose2d(in_channels, out_channels, kernel, *options, **named)


def _each(size: Sizes, count: int) -> tuple[int, ...]:
    """One number for each of `count` axes; a tuple says itself how many there are."""
    return tuple(size) if isinstance(size, (tuple, list)) else (size,) * count


def _check_groups(layer: str, in_channels: int, out_channels: int, groups: int) -> None:
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise ArgumentError(
            f"{layer}: groups={groups} for {in_channels} → {out_channels} channels; legal is what "
            "divides both"
        )


def _same(word: str, kernel: tuple[int, ...], stride: Sizes, dilation: Sizes) -> tuple[int, ...]:
    """The padding that keeps the size: (before, after) of each axis, flat, the last axis first."""
    if word.lower() == "same" and any(step != 1 for step in _each(stride, 1)):
        raise ArgumentError(f'Conv2d: padding="same" with stride={stride}; legal is stride 1')
    pairs = same_padding(word, kernel, dilation)
    return tuple(n for pair in reversed(pairs) for n in pair)
