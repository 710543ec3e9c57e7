"""Dropout of elements and of whole channels, as functions and as layers.

All return x unchanged unless `training` is true; its default is `Tensor.training`.
"""

from __future__ import annotations

import math

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.held import held
from tinygrad.nn.ranks import check_rank
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_number_from, check_types

LOWEST = -1.7580993408473766
"""What selu gives for minus infinity."""


def _is_on(who: str, p: float, training: bool | None) -> bool:
    check_types(who, [p], (int, float), "numbers", ArgumentError)
    check_number_from(who, "p", p, 0, 1)
    return bool(Tensor.training if training is None else training) and p > 0


def _kept(x: Tensor, p: float, axes: int) -> Tensor:
    """1 / (1 - p) with probability 1 - p, else 0; one number for all axes after the first ones."""
    shape = (*x.shape[:axes], *(1,) * (x.ndim - axes))
    with Tensor.train():
        return Tensor.ones(*shape, dtype=x.dtype, device=x.device).dropout(p)


def dropout(x: Tensor, p: float = 0.5, training: bool | None = None) -> Tensor:
    """Each element becomes 0 with probability `p`; the others are multiplied by 1 / (1 - p).
    Returns x itself unless `training`, whose default is `Tensor.training`.

    (Srivastava and others, "Dropout", 2014.)

    >>> dropout(Tensor([1.0]), 0.5, training=False).tolist()
    [1.0]
    """
    if training is None:
        return x.dropout(p)
    with Tensor.train(training):
        return x.dropout(p)


def dropout2d(x: Tensor, p: float = 0.5, training: bool | None = None) -> Tensor:
    """Whole channels of x (N, channels, *any) become 0 with probability `p`; the others are
    multiplied by 1 / (1 - p). Returns x itself unless `training`, whose default is
    `Tensor.training`.

    (Tompson and others, "Efficient Object Localization Using Convolutional Networks", 2015.)

    >>> dropout2d(Tensor.ones(1, 2, 3, 3), training=False).shape
    (1, 2, 3, 3)
    """
    if x.ndim < 2:
        raise ShapeError(f"Dropout2d: x has shape {x.shape}; legal is (N, channels, *any)")
    return _channels_kept("Dropout2d", x, p, training, 2)


def dropout1d(x: Tensor, p: float = 0.5, training: bool | None = None) -> Tensor:
    """`dropout2d` of x (N, channels, length), or without N.

    >>> dropout1d(Tensor.ones(2, 3), training=False).shape
    (2, 3)
    """
    check_rank("Dropout1d", x, (2, 3))
    return _channels_kept("Dropout1d", x, p, training, x.ndim - 1)


def dropout3d(x: Tensor, p: float = 0.5, training: bool | None = None) -> Tensor:
    """`dropout2d` of x (N, channels, depth, height, width), or without N.

    >>> dropout3d(Tensor.ones(2, 3, 3, 3), training=False).shape
    (2, 3, 3, 3)
    """
    check_rank("Dropout3d", x, (4, 5))
    return _channels_kept("Dropout3d", x, p, training, x.ndim - 3)


def _channels_kept(who: str, x: Tensor, p: float, training: bool | None, axes: int) -> Tensor:
    """One number for all that follows the first axes, up to that of the channels."""
    return x * _kept(x, p, axes) if _is_on(who, p, training) else x


def alpha_dropout(x: Tensor, p: float = 0.5, training: bool | None = None) -> Tensor:
    """Each element becomes selu's lowest value with probability `p`; then all are scaled and
    shifted, so that numbers of mean 0 and variance 1 keep these.

    (Klambauer and others, "Self-Normalizing Neural Networks", 2017.)

    >>> alpha_dropout(Tensor([1.0]), 0.5, training=False).tolist()
    [1.0]
    """
    return _alpha(x, p, x.ndim) if _is_on("AlphaDropout", p, training) else x


def feature_alpha_dropout(x: Tensor, p: float = 0.5, training: bool | None = None) -> Tensor:
    """`alpha_dropout` of whole channels of x (N, channels, *any).

    >>> feature_alpha_dropout(Tensor.ones(1, 2, 3), 0.5, training=False).shape
    (1, 2, 3)
    """
    if x.ndim < 2:
        raise ShapeError(f"FeatureAlphaDropout: {x.shape}; legal is (N, channels, *any)")
    return _alpha(x, p, 2) if _is_on("FeatureAlphaDropout", p, training) else x


def _alpha(x: Tensor, p: float, axes: int) -> Tensor:
    if p == 1:
        return x * 0
    scale = 1 / math.sqrt((1 - p) * (1 + p * LOWEST**2))
    return ((_kept(x, p, axes) > 0).where(x, LOWEST) - p * LOWEST) * scale


Dropout = held("Dropout", dropout)
Dropout1d = held("Dropout1d", dropout1d)
Dropout2d = held("Dropout2d", dropout2d)
Dropout3d = held("Dropout3d", dropout3d)
AlphaDropout = held("AlphaDropout", alpha_dropout)
FeatureAlphaDropout = held("FeatureAlphaDropout", feature_alpha_dropout)
