"""Functions of tensors that networks use occasionally, with PyTorch's names and meaning.

Functions that are used everywhere are methods of Tensor. Here are: taking images apart into patches
and putting them together, pooling to a given size, sampling, and this package's losses and
activations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.base.errors import ShapeError
from tinygrad.nn.activations import (
    gelu,
    glu,
    leaky_relu,
    log_softmax,
    prelu,
    rrelu,
    softmax,
    threshold,
)
from tinygrad.nn.attention import multi_head_attention_forward
from tinygrad.nn.dropouts import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from tinygrad.nn.embeddings import embedding, embedding_bag
from tinygrad.nn.fractional import fractional_max_pool2d, fractional_max_pool3d
from tinygrad.nn.held import held
from tinygrad.nn.images import (
    channel_shuffle,
    grid_sample,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from tinygrad.nn.layers import bilinear, linear
from tinygrad.nn.linear_loss import linear_cross_entropy
from tinygrad.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    pairwise_distance,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
)
from tinygrad.nn.margins import (
    multi_margin_loss,
    multilabel_margin_loss,
    pdist,
    triplet_margin_with_distance_loss,
)
from tinygrad.nn.norms import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from tinygrad.nn.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from tinygrad.nn.ranks import as_batch
from tinygrad.nn.spellings import called_by_others, spell
from tinygrad.numeric.sampling import affine_grid
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_number_from
from tinygrad.tensor.creation import DTypeLike

Sizes = int | tuple[int, ...]


# ---- methods of Tensor as functions --------------------------------------------------------------


relu = Tensor.relu
relu6 = Tensor.relu6
elu = Tensor.elu
celu = Tensor.celu
selu = Tensor.selu
silu = Tensor.silu
mish = Tensor.mish
tanh = Tensor.tanh
sigmoid = Tensor.sigmoid
logsigmoid = Tensor.logsigmoid
hardsigmoid = Tensor.hardsigmoid
hardswish = Tensor.hardswish
hardtanh = Tensor.hardtanh
softplus = Tensor.softplus
softsign = Tensor.softsign
normalize = Tensor.normalize
one_hot = Tensor.one_hot
pad = Tensor.pad
scaled_dot_product_attention = Tensor.scaled_dot_product_attention


# ---- what layers do, with the weights given ------------------------------------------------------


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over as many axes as the weight (out, in / groups, *taps) has taps; x is
    (N, in, *axes), or without N.

    >>> conv2d(Tensor.ones(1, 3, 5, 5), Tensor.ones(4, 3, 2, 2)).shape
    (1, 4, 4, 4)
    """
    return as_batch(
        lambda x: x.conv2d(weight, bias, groups, stride, dilation, padding), x, weight.ndim
    )


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
    """The adjoint of `conv2d`; the weight is (in, out / groups, *taps), and x may lack N.

    >>> conv_transpose2d(Tensor.ones(1, 3, 4, 4), Tensor.ones(3, 4, 2, 2), stride=2).shape
    (1, 4, 8, 8)
    """
    more = groups, stride, dilation, padding, output_padding
    return as_batch(lambda x: x.conv_transpose2d(weight, bias, *more), x, weight.ndim)


conv1d = conv3d = conv2d
conv_transpose1d = conv_transpose3d = conv_transpose2d


def unfold(
    x: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """The windows of (N, C, H, W) as columns: (N, C·taps, positions), or both without N.

    >>> unfold(Tensor.ones(2, 3, 3), 2).shape
    (8, 4)
    """
    rank = 2 + (2 if isinstance(kernel_size, int) else len(kernel_size))
    return as_batch(lambda x: x.im2col(kernel_size, dilation, padding, stride), x, rank)


def fold(
    x: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Columns (N, C·taps, positions), added up at the places where `unfold` took them: (N, C,
    *output_size), or both without N.

    >>> fold(unfold(Tensor.ones(1, 3, 3), 2), 3, 2).tolist()
    [[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]
    """
    return as_batch(lambda x: x.fold(output_size, kernel_size, dilation, padding, stride), x, 3)


def _written(function: Callable[..., Tensor], more: str = "") -> Callable[..., Tensor]:
    """The function, whose result x becomes."""
    name = function.__name__
    called = called_by_others(function, name)

    def written(x: Tensor, *options: Any, **named: Any) -> Tensor:
        return called(x, *options, inplace=True, **named)  # type: ignore[no-any-return]

    written.__name__ = written.__qualname__ = f"{name}_"
    written.__doc__ = (
        f"`{name}` in place: x holds its result, and so do views of it.\n\n"
        f"    >>> {name}_(Tensor([2.0]){more}).shape\n    (1,)\n    "
    )
    return written


relu_, elu_, celu_, selu_ = _written(relu), _written(elu), _written(celu), _written(selu)
hardtanh_, leaky_relu_, rrelu_ = _written(hardtanh), _written(leaky_relu), _written(rrelu)
threshold_ = _written(threshold, ", 0.5, 0.0")


def _with_indices(function: Callable[..., Any], *sizes: int) -> Callable[..., Any]:
    """The pooling, which gives the places as well; `sizes` are those of an example."""
    name = f"{function.__name__}_with_indices"

    def found(x: Tensor, *options: Any, **named: Any) -> Any:
        return function(x, *options, **{**named, "return_indices": True})

    found.__name__ = found.__qualname__ = name
    axes = ", ".join("3" * int(name[name.index("d_") - 1]))
    found.__doc__ = (
        f"`{function.__name__}` with `return_indices`: the values and their places.\n\n"
        f"    >>> values, places = {name}(Tensor.ones(1, {axes}), {', '.join(map(str, sizes))})\n"
        "    >>> values.shape == places.shape\n    True\n    "
    )
    return found


max_pool1d_with_indices = _with_indices(max_pool1d, 2)
max_pool2d_with_indices = _with_indices(max_pool2d, 2)
max_pool3d_with_indices = _with_indices(max_pool3d, 2)
adaptive_max_pool1d_with_indices = _with_indices(adaptive_max_pool1d, 2)
adaptive_max_pool2d_with_indices = _with_indices(adaptive_max_pool2d, 2)
adaptive_max_pool3d_with_indices = _with_indices(adaptive_max_pool3d, 2)
fractional_max_pool2d_with_indices = _with_indices(fractional_max_pool2d, 2, 2)
fractional_max_pool3d_with_indices = _with_indices(fractional_max_pool3d, 2, 2)


def softmin(x: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """`softmax` of -x, computed as `dtype` if given.

    >>> softmin(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    return (-x).softmax(dim, dtype)


def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x).

    >>> tanhshrink(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([-0.2384,  0.0379,  1.036 ], dtype=float32)
    """
    return x - x.tanh()


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x where it is farther than lambd from 0, else 0.

    >>> hardshrink(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([-1.,  0.,  2.], dtype=float32)
    """
    return (x.abs() <= lambd).where(0, x)


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, but not beyond 0.

    >>> softshrink(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([-0.5,  0. ,  1.5], dtype=float32)
    """
    check_number_from("softshrink", "lambd", lambd, 0)
    return (x - lambd).relu() - (-x - lambd).relu()


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """A random class, drawn by its probability, as a vector that passes gradients.

    (Jang, Gu and Poole, "Categorical Reparameterization with Gumbel-Softmax", 2017.)

    >>> gumbel_softmax(Tensor([0.0, 0.0]), hard=True).sum().item()
    1.0
    """
    noise = Tensor.gumbel(*logits.shape, dtype=logits.dtype, device=logits.device)
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    if not logits.ndim:
        raise ShapeError("gumbel_softmax: logits (); legal is an axis of classes")
    best = soft.argmax(dim, keepdim=True)
    at = Tensor.arange(logits.shape[dim], device=logits.device)
    one = logits._along(dim % logits.ndim, at).eq(best)
    sharp: Tensor = one.cast(soft.dtype) - soft.detach() + soft
    return sharp


Softmin = held("Softmin", softmin)
Tanhshrink = held("Tanhshrink", tanhshrink)
Hardshrink = held("Hardshrink", hardshrink)
Softshrink = held("Softshrink", softshrink)
CosineSimilarity = held("CosineSimilarity", cosine_similarity)
PairwiseDistance = held("PairwiseDistance", pairwise_distance)
Fold = held("Fold", fold)
Unfold = held("Unfold", unfold)


__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
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
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

spell(globals(), __all__)
Tensor._tell_instead({name: f"nn.functional.{name}(t, ..)" for name in __all__})
