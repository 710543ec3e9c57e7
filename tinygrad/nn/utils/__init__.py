"""Utilities for layers: how a model prints, parameters as one vector, clipped gradients, norms
folded into the layer before them, weights computed from other tensors, and, in `rnn`, sequences of
several lengths."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.data.printed import described
from tinygrad.nn.optim.gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from tinygrad.nn.utils import parametrizations, rnn
from tinygrad.nn.utils.parametrizations import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from tinygrad.tensor import Tensor
from tinygrad.tensor.spellings import spell_functions

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "described",
    "fuse_conv_bn_eval",
    "fuse_linear_bn_eval",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector, in order; gradients pass.

    Raises:
        ArgumentError: there are none.

    >>> parameters_to_vector([Tensor([[1.0, 2.0]]), Tensor(3.0)]).tolist()
    [1.0, 2.0, 3.0]
    """
    flat = [param.flatten() for param in parameters]
    if not flat:
        raise ArgumentError("parameters_to_vector: of no parameters; give at least one")
    return Tensor.cat(*flat)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes a vector's elements into the parameters, one after the other.

    Raises:
        ShapeError: it has more or fewer elements than they.

    >>> a, b = Tensor([0.0, 0.0]), Tensor([[0.0]])
    >>> vector_to_parameters(Tensor([1.0, 2.0, 3.0]), [a, b])
    >>> a.tolist(), b.tolist()
    ([1.0, 2.0], [[3.0]])
    """
    places = list(parameters)
    sizes = [place.numel() for place in places]
    if vec.shape != (sum(sizes),):
        raise ShapeError(
            f"vector_to_parameters: a vector of shape {vec.shape}; legal is ({sum(sizes)},)"
        )
    parts = vec.detach().split(sizes) if places else ()
    for place, part in zip(places, parts, strict=True):
        place.assign(part.reshape(place.shape).cast(place.dtype).to(place.device))
    if places:
        Tensor.realize(*places)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what `conv` and then `bn` do outside training.

    Args:
        conv: a Conv1d to Conv3d, or a ConvTranspose1d to ConvTranspose3d.
        bn: the BatchNorm of its channels.
        transpose: whether `conv` is a transposed one.

    >>> conv, bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
    >>> x = Tensor.randn(1, 3, 5, 5)
    >>> fuse_conv_bn_eval(conv, bn)(x).allclose(bn(conv(x)), atol=1e-5)
    True
    """
    if transpose and conv.groups > 1:  # groups of input channels share the output's
        weight = conv.weight.reshape(conv.groups, -1, *conv.weight.shape[1:])
        scale, shift = _scale_and_shift(bn, conv.bias)
        new = weight * scale.reshape(conv.groups, 1, -1, *(1,) * (conv.weight.ndim - 2))
        return _with(conv, new.reshape(conv.weight.shape), shift)
    return _fused(conv, bn, axis=1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what `linear` and then `bn` do outside training.

    >>> linear, bn = nn.Linear(3, 4), nn.BatchNorm1d(4)
    >>> x = Tensor.randn(2, 3)
    >>> fuse_linear_bn_eval(linear, bn)(x).allclose(bn(linear(x)), atol=1e-5)
    True
    """
    return _fused(linear, bn, axis=0)


def _fused(layer: Any, bn: Any, axis: int) -> Any:
    scale, shift = _scale_and_shift(bn, layer.bias)
    if layer.weight.shape[axis] != scale.shape[0]:
        raise ShapeError(
            f"fuse: {layer.weight.shape[axis]} features out, a BatchNorm of {scale.shape[0]}; "
            "legal are as many"
        )
    return _with(layer, layer.weight * layer.weight._along(axis, scale), shift)


def _scale_and_shift(bn: Any, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """What each channel is multiplied by, and what is added then."""
    if Tensor.training or not bn.track_running_stats:
        raise ArgumentError("fuse: legal is a BatchNorm with running statistics, outside training")
    scale = (bn.running_var + bn.eps).rsqrt()
    scale = scale if bn.weight is None else scale * bn.weight
    shift = (0.0 if bias is None else bias) - bn.running_mean
    return scale, shift * scale if bn.bias is None else shift * scale + bn.bias


def _with(layer: Any, weight: Tensor, bias: Tensor) -> Any:
    new = copy.copy(layer)
    new.weight, new.bias = weight.detach().contiguous(), bias.detach().contiguous()
    new.weight.realize(new.bias)
    return new


spell_functions(globals())
