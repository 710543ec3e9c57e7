"""Normalisations, dropout, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.casts import wide_enough
from tinygrad.formats.onnx.registry import Row, Table, one
from tinygrad.formats.onnx.values import dtype_of
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import Devices, axis_of


def _batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    outputs: int = 1,
    **_: Any,
) -> Any:
    if not spatial:
        raise ArgumentError("spatial 0, statistics of each place, before version 9; legal is 1")
    seen, spread = mean, variance
    if training_mode:
        spread, seen = x.var_mean((0, *range(2, x.ndim)), correction=0)
    out = x.batchnorm(scale, bias, seen, (spread + epsilon).rsqrt()).cast(x.dtype)
    if not training_mode:
        return out
    running = mean * momentum + seen * (1 - momentum)
    return out, running, variance * momentum + spread * (1 - momentum)


def _instance_norm(x: Tensor, scale: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    out = x.layernorm(tuple(range(2, x.ndim)), epsilon)
    return out * x._along(1, scale) + x._along(1, bias)


def _layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    wide = dtype_of(stash_type) or dtypes.float32
    axes = tuple(range(axis_of(axis, x.ndim, "axis"), x.ndim))
    variance, mean = x.cast(wide).var_mean(axes, keepdim=True, correction=0)
    inverse = (variance + epsilon).rsqrt()
    out = ((x.cast(wide) - mean) * inverse).cast(x.dtype) * scale
    return (out if bias is None else out + bias), mean, inverse


def _rms_norm(
    x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    wide = x.cast(dtype_of(stash_type) or dtypes.float32)
    axes = tuple(range(axis_of(axis, x.ndim, "axis"), x.ndim))
    out = wide * (wide.square().mean(axes, keepdim=True) + epsilon).rsqrt()
    return out.cast(x.dtype) * scale


def _group_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """The scale has an element a channel, before version 21 one a group."""
    wide = x.cast(dtype_of(stash_type) or dtypes.float32).reshape(x.shape[0], num_groups, -1)
    out = wide.layernorm(2, epsilon)
    if scale.shape[0] == num_groups:
        out = out.cast(x.dtype) * scale.reshape(1, -1, 1) + bias.reshape(1, -1, 1)
        return out.reshape(x.shape)
    out = out.cast(x.dtype).reshape(x.shape)
    return out * x._along(1, scale) + x._along(1, bias)


def _lp_norm(x: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    size = x.abs().sum(axis, keepdim=True) if p == 1 else x.square().sum(axis, keepdim=True).sqrt()
    return size.eq(0).where(0.0, x / size).cast(x.dtype)


def _lrn(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Divided by what neighbouring channels sum up to."""
    size, scale = min(size, 2 * x.shape[1]), alpha / size  # wider windows sum up the same
    before = (size - 1) // 2
    after = size - 1 - before
    pads = [(before, after) if i == 1 else (0, 0) for i in range(x.ndim)]
    windows = x.square().pad(pads).unfold(1, size, 1)  # (N, C, .., size)
    return x / (windows.sum(-1) * scale + bias).pow(beta)


def _mean_variance(x: Tensor, axes: list[int] | None = None) -> Tensor:
    gone = tuple(axes or (0, 2, 3))
    mean = x.mean(gone, keepdim=True)
    spread = x.square().mean(gone, keepdim=True) - mean.square()
    return (x - mean) / (spread.sqrt() + 1e-9)


# ---- random --------------------------------------------------------------------------------------
# With a seed the numbers are NumPy's and always the same. Without one they are the tensor's own, so
# that a captured step has fresh ones each time.


def _drawn(shape: Any, seed: Any, how: str, device: Devices | None = None) -> Tensor:
    """Numbers uniform in 0..1, or normal."""
    sizes = tuple(int(n) for n in shape)
    if seed is None:
        draw = Tensor.rand if how == "uniform" else Tensor.randn
        return draw(*sizes, device=device)
    state = np.random.RandomState(int(seed) & 0xFFFFFFFF)
    numbers = state.uniform(size=sizes) if how == "uniform" else state.normal(size=sizes)
    return Tensor(numbers, device=device, dtype=dtypes.float64)


def _dropout(
    x: Tensor, ratio: Any = 0.5, training: Any = None, seed: int | None = None, **_: Any
) -> tuple[Tensor, Tensor]:
    """What is kept is scaled up; not training, everything is."""
    share = 0.5 if ratio is None else float(one(ratio))
    active = training is not None and bool(one(training))
    if not active or share == 0:
        return x, Tensor.full(x.shape, True, dtype=dtypes.bool, device=x.device)
    kept = _drawn(x.shape, seed, "uniform", x.device) >= share
    return kept.where(x / (1 - share), 0.0).cast(x.dtype), kept


def _kind(x: Tensor | None, dtype: int | None) -> DType:
    if dtype is not None:
        return dtype_of(dtype) or dtypes.float32
    return dtypes.float32 if x is None else x.dtype


def _uniform(
    shape: Any, high: float = 1.0, low: float = 0.0, dtype: int | None = None, seed: Any = None
) -> Tensor:
    return (_drawn(shape, seed, "uniform") * (high - low) + low).cast(_kind(None, dtype))


def _normal(
    shape: Any, mean: float = 0.0, scale: float = 1.0, dtype: int | None = None, seed: Any = None
) -> Tensor:
    return (_drawn(shape, seed, "normal") * scale + mean).cast(_kind(None, dtype))


def _uniform_like(x: Tensor, dtype: int | None = None, **more: Any) -> Tensor:
    return _uniform(x.shape, **more).cast(_kind(x, dtype))


def _normal_like(x: Tensor, dtype: int | None = None, **more: Any) -> Tensor:
    return _normal(x.shape, **more).cast(_kind(x, dtype))


def _multinomial(
    x: Tensor, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Numbers of classes drawn by their log probabilities."""
    wide = x.cast(wide_enough(x.dtype)).softmax(-1).cumsum(-1)
    drawn = _drawn((x.shape[0], sample_size, 1), seed, "uniform", x.device)
    places = (wide.unsqueeze(1) < drawn).sum(-1)
    return places.clamp(0, x.shape[-1] - 1).cast(dtype_of(dtype) or dtypes.int32)


def _bernoulli(x: Tensor, dtype: int | None = None, seed: float | None = None) -> Tensor:
    return (_drawn(x.shape, seed, "uniform", x.device) < x).cast(_kind(x, dtype))


ROWS: Table = {
    "BatchNormalization": Row(_batch_norm, (), ("outputs",)),
    "Bernoulli": _bernoulli,
    "Dropout": Row(_dropout, (1, 2)),
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance,
    "Multinomial": _multinomial,
    "RMSNormalization": _rms_norm,
    "RandomNormal": _normal,
    "RandomNormalLike": _normal_like,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform_like,
}
