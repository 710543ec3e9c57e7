"""Functions of tensors that networks use now and then, with PyTorch's names and meaning.

What is used everywhere is a method of Tensor; here stand images taken apart and put together,
pooling to a given size, and sampling, beside the losses and activations of this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import ceildiv
from tinygrad.nn.activations import gelu, glu
from tinygrad.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    ctc_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    nll_loss,
    pairwise_distance,
    smooth_l1_loss,
    triplet_margin_loss,
)
from tinygrad.tensor import Tensor

Sizes = int | tuple[int, ...]


# ---- methods of Tensor as functions --------------------------------------------------------------


def _method(name: str) -> Callable[..., Tensor]:
    """A method of Tensor under the same name: `relu(x)` is `x.relu()`."""
    method: Callable[..., Tensor] = getattr(Tensor, name)
    return method


relu = _method("relu")
relu6 = _method("relu6")
leaky_relu = _method("leaky_relu")
elu = _method("elu")
celu = _method("celu")
selu = _method("selu")
silu = _method("silu")
mish = _method("mish")
tanh = _method("tanh")
sigmoid = _method("sigmoid")
logsigmoid = _method("logsigmoid")
hardsigmoid = _method("hardsigmoid")
hardswish = _method("hardswish")
hardtanh = _method("hardtanh")
softplus = _method("softplus")
softsign = _method("softsign")
softmax = _method("softmax")
log_softmax = _method("log_softmax")
normalize = _method("normalize")
one_hot = _method("one_hot")
dropout = _method("dropout")
interpolate = _method("interpolate")
pad = _method("pad")
avg_pool1d = avg_pool2d = avg_pool3d = _method("avg_pool2d")
max_pool1d = max_pool2d = max_pool3d = _method("max_pool2d")
scaled_dot_product_attention = _method("scaled_dot_product_attention")


# ---- what layers do, with the weights given ------------------------------------------------------


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (.., in) times weight (out, in), plus bias (out,).

    >>> linear(Tensor.ones(2, 3), Tensor.ones(4, 3)).shape
    (2, 4)
    """
    return x.linear(weight.transpose(), bias)


def embedding(numbers: Tensor, weight: Tensor) -> Tensor:
    """Rows of weight (many, features) by their numbers (..) → (.., features).

    >>> embedding(Tensor([1]), Tensor([[1, 2], [3, 4]])).tolist()
    [[3, 4]]
    """
    return weight[numbers]


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over as many axes as the weight (out, in / groups, *taps) has taps.

    >>> conv2d(Tensor.ones(1, 3, 5, 5), Tensor.ones(4, 3, 2, 2)).shape
    (1, 4, 4, 4)
    """
    return x.conv2d(weight, bias, groups, stride, dilation, padding)


def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The adjoint of `conv2d`; the weight is (in, out / groups, *taps).

    >>> conv_transpose2d(Tensor.ones(1, 3, 4, 4), Tensor.ones(3, 4, 2, 2), stride=2).shape
    (1, 4, 8, 8)
    """
    return x.conv_transpose2d(weight, bias, groups, stride, dilation, padding, output_padding)


conv1d = conv3d = conv2d
conv_transpose1d = conv_transpose3d = conv_transpose2d


def layer_norm(
    x: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 over the last axes, then scaled and shifted.

    >>> layer_norm(Tensor([1.0, 3.0]), (2,), eps=0.0).tolist()
    [-1.0, 1.0]
    """
    if x.shape[-len(normalized_shape) :] != tuple(normalized_shape):
        raise ShapeError(
            f"layer_norm: x has shape {x.shape}; legal is (.., *{tuple(normalized_shape)})"
        )
    out = x.layernorm(tuple(range(-len(normalized_shape), 0)), eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 in each group of channels of x (N, channels, *any).

    >>> group_norm(Tensor.ones(1, 6, 4), 2).shape
    (1, 6, 4)
    """
    if num_groups < 1 or x.ndim < 2 or x.shape[1] % num_groups:
        raise ShapeError(f"group_norm: {num_groups} groups of x {x.shape}; legal is what divides")
    out = x.reshape(x.shape[0], num_groups, -1).layernorm(-1, eps).reshape(x.shape)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def rms_norm(
    x: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divided by the root of the mean square over the last axes, then scaled.

    >>> rms_norm(Tensor([3.0, 3.0]), (2,)).round().tolist()
    [1.0, 1.0]
    """
    small = 2.0 ** -dtypes.finfo(x.dtype)[1] if eps is None else eps
    axes = tuple(range(-len(normalized_shape), 0))
    out = x * (x.square().mean(axes, keepdim=True) + small).rsqrt()
    return out if weight is None else out * weight


# ---- images taken apart and put together ---------------------------------------------------------


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """(.., C·r², H, W) → (.., C, H·r, W·r): channels become pixels. (Shi and others, 2016.)

    >>> pixel_shuffle(Tensor([[[1]], [[2]], [[3]], [[4]]]), 2).tolist()
    [[[1, 2], [3, 4]]]
    """
    r = upscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle: x {x.shape}, factor {r}; legal are (.., C·{r * r}, H, W)")
    *outer, channels, height, width = x.shape
    parts = x.reshape(-1, channels // (r * r), r, r, height, width).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(*outer, channels // (r * r), height * r, width * r)


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """(.., C, H·r, W·r) → (.., C·r², H, W): the inverse of `pixel_shuffle`.

    >>> pixel_unshuffle(Tensor([[[1, 2], [3, 4]]]), 2).tolist()
    [[[1]], [[2]], [[3]], [[4]]]
    """
    r = downscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-1] % r or x.shape[-2] % r:
        raise ShapeError(f"pixel_unshuffle: x {x.shape}, factor {r}; legal are multiples of {r}")
    *outer, channels, height, width = x.shape
    parts = x.reshape(-1, channels, height // r, r, width // r, r).permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(*outer, channels * r * r, height // r, width // r)


unfold = _method("im2col")
fold = _method("fold")


# ---- pooling to a given size ---------------------------------------------------------------------


def adaptive_avg_pool2d(x: Tensor, output_size: Sizes | tuple[int | None, ...]) -> Tensor:
    """x (.., H, W) averaged to (.., *output_size); each place sees its share of an axis, and the
    shares overlap where sizes don't divide. None keeps an axis.

    >>> adaptive_avg_pool2d(Tensor([[[1.0, 3.0], [5.0, 7.0]]]), 1).tolist()
    [[[4.0]]]
    """
    return _adaptive(x, output_size, 2, _averaged)


def adaptive_avg_pool1d(x: Tensor, output_size: int) -> Tensor:
    """`adaptive_avg_pool2d` over one axis."""
    return _adaptive(x, output_size, 1, _averaged)


def adaptive_avg_pool3d(x: Tensor, output_size: Sizes | tuple[int | None, ...]) -> Tensor:
    """`adaptive_avg_pool2d` over three axes."""
    return _adaptive(x, output_size, 3, _averaged)


def adaptive_max_pool2d(x: Tensor, output_size: Sizes | tuple[int | None, ...]) -> Tensor:
    """The greatest of what `adaptive_avg_pool2d` takes the mean of.

    >>> adaptive_max_pool2d(Tensor([[[1.0, 3.0], [5.0, 7.0]]]), 1).tolist()
    [[[7.0]]]
    """
    return _adaptive(x, output_size, 2, _greatest)


def adaptive_max_pool1d(x: Tensor, output_size: int) -> Tensor:
    """`adaptive_max_pool2d` over one axis."""
    return _adaptive(x, output_size, 1, _greatest)


def _adaptive(x: Tensor, size: Any, axes: int, pool: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Pools each of the last axes to its size by `pool`, which works on the last axis."""
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,) * axes
    if len(sizes) != axes or x.ndim <= axes or any(n is not None and n < 1 for n in sizes):
        raise ShapeError(f"adaptive pooling: x {x.shape} to {size}; legal are {axes} sizes above 0")
    for axis, wanted in zip(range(-axes, 0), sizes, strict=True):
        if wanted is not None and wanted != x.shape[axis]:
            x = pool(x.transpose(axis, -1), wanted).transpose(axis, -1)
    return x


def _shares(size: int, wanted: int) -> tuple[list[int], list[int]]:
    """Where each place's share of an axis begins and ends."""
    places = range(wanted)
    return [i * size // wanted for i in places], [ceildiv((i + 1) * size, wanted) for i in places]


def _averaged(x: Tensor, wanted: int) -> Tensor:
    size = x.shape[-1]
    if size % wanted == 0:
        return x.reshape(*x.shape[:-1], wanted, size // wanted).mean(-1)
    begins, ends = _shares(size, wanted)
    rows = [
        [1 / (e - b) if b <= i < e else 0.0 for i in range(size)]
        for b, e in zip(begins, ends, strict=True)
    ]
    return x @ Tensor(rows, dtype=x.dtype, device=x.device).T


def _greatest(x: Tensor, wanted: int) -> Tensor:
    begins, ends = _shares(x.shape[-1], wanted)
    widest = max(e - b for b, e in zip(begins, ends, strict=True))
    # a share that is narrower sees its last element again
    index = [[min(b + i, e - 1) for i in range(widest)] for b, e in zip(begins, ends, strict=True)]
    return x[..., Tensor(index, device=x.device)].max(-1)


# ---- sampling ------------------------------------------------------------------------------------


def affine_grid(theta: Tensor, size: tuple[int, ...], align_corners: bool = False) -> Tensor:
    """Where the pixels of an image (N, C, H, W) come from under theta (N, 2, 3): (N, H, W, 2),
    x and y from -1 to 1.

    >>> affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    batch, _, height, width = size
    y, x = (_positions(n, align_corners, theta) for n in (height, width))
    ones = Tensor.ones(height, width, dtype=theta.dtype, device=theta.device)
    base = Tensor.stack(ones * x, ones * y.unsqueeze(1), ones, dim=-1)
    out = base.reshape(1, height * width, 3) @ theta.transpose(1, 2)
    return out.reshape(batch, height, width, 2)


def _positions(size: int, align_corners: bool, like: Tensor) -> Tensor:
    """The middles of `size` pixels between -1 and 1, or from -1 to 1."""
    at = Tensor.arange(size, device=like.device).cast(like.dtype)
    if align_corners:
        return at * (2 / max(size - 1, 1)) - (1 if size > 1 else 0)
    return (at * 2 + 1) / size - 1


def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """x (N, C, H, W) seen at places (N, rows, columns, 2), x and y from -1 to 1.

    Args:
        x: the image.
        grid: the places.
        mode: "bilinear" or "nearest".
        padding_mode: what lies outside: "zeros", the nearest "border", or a "reflection".
        align_corners: -1 and 1 are the middles of the outermost pixels, not their edges.

    >>> image = Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> grid_sample(image, Tensor([[[[0.0, 0.0]]]])).item()
    2.5
    """
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            f"padding_mode={padding_mode!r}; legal are zeros, border and reflection"
        )
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[-1] != 2 or grid.shape[0] != x.shape[0]:
        raise ShapeError(
            f"grid_sample: x {x.shape}, grid {grid.shape}; legal are (N, C, H, W), (N, .., .., 2)"
        )
    places = [_pixel(grid[..., i], x.shape[3 - i], padding_mode, align_corners) for i in range(2)]
    if mode == "nearest":
        return _pixels(x, places[1].round(), places[0].round())
    if mode != "bilinear":
        raise ArgumentError(f"mode={mode!r}; legal are bilinear and nearest")
    left, top = (place.floor() for place in places)
    right_share, bottom_share = places[0] - left, places[1] - top
    out: Tensor | None = None
    for down in (0, 1):
        for right in (0, 1):
            share = (right_share if right else 1 - right_share) * (
                bottom_share if down else 1 - bottom_share
            )
            part = _pixels(x, top + down, left + right) * share.unsqueeze(1)
            out = part if out is None else out + part
    assert out is not None
    return out


def _pixel(at: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """The pixel's number, with a fraction, of a place from -1 to 1."""
    number = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
    if padding_mode == "border":
        return number.clamp(0, size - 1)
    if padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if span == 0:
            return number * 0
        away = (number - low).abs()
        turns = (away / span).floor()
        rest = away - turns * span
        even = (turns - (turns / 2).floor() * 2) < 0.5
        return (even.where(rest, span - rest) + low).clamp(0, size - 1)
    return number


def _pixels(x: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """x (N, C, H, W) at whole rows and columns (N, ..), 0 outside: (N, C, ..)."""
    batch, channels, height, width = x.shape
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    flat = inside.where(row * width + column, 0).cast(dtypes.int32).reshape(batch, 1, -1)
    found = x.reshape(batch, channels, -1).gather(2, flat.expand(batch, channels, flat.shape[2]))
    out: Tensor = inside.unsqueeze(1).where(found.reshape(batch, channels, *row.shape[1:]), 0)
    return out


def softmin(x: Tensor, dim: int = -1) -> Tensor:
    """`softmax` of -x.

    >>> softmin(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    return (-x).softmax(dim)


def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x)."""
    return x - x.tanh()


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x where it is farther than lambd from 0, else 0."""
    return (x.abs() > lambd).where(x, 0)


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved by lambd towards 0, and not beyond it."""
    return (x - lambd).maximum(0) + (x + lambd).minimum(0)


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """A random class by its probability, as a vector that gradients go through.

    (Jang, Gu and Poole, "Categorical Reparameterization with Gumbel-Softmax", 2017.)

    >>> gumbel_softmax(Tensor([0.0, 0.0]), hard=True).sum().item()
    1.0
    """
    noise = -(-(Tensor.rand_like(logits).maximum(math.ldexp(1, -32))).log()).log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    best = soft.argmax(dim, keepdim=True)
    at = Tensor.arange(logits.shape[dim], device=logits.device)
    axis = dim % logits.ndim
    one = at.reshape(*(-1 if i == axis else 1 for i in range(logits.ndim))).eq(best)
    sharp: Tensor = one.cast(soft.dtype) - soft.detach() + soft
    return sharp


__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "affine_grid",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "elu",
    "embedding",
    "fold",
    "grid_sample",
    "gelu",
    "glu",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "triplet_margin_loss",
    "unfold",
]
