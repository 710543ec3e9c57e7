"""Elementwise operators: arithmetic, comparison, logic, functions, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.formats.onnx.casts import bit_cast, cast, cast_like
from tinygrad.formats.onnx.registry import Function, Table
from tinygrad.tensor import Tensor

# ---- arithmetic ----------------------------------------------------------------------------------


def _div(a: Tensor, b: Tensor) -> Tensor:
    """Whole numbers are cut off toward zero."""
    return a / b if dtypes.is_float(a.dtype) else a.div(b, rounding_mode="trunc")


def _mod(a: Tensor, b: Tensor, fmod: int = 0) -> Tensor:
    """The sign of the divisor; with `fmod` that of the dividend."""
    return a.fmod(b) if fmod else a % b


def _pow(a: Tensor, b: Tensor) -> Tensor:
    """In the dtype of the base."""
    if dtypes.is_float(b.dtype) and not dtypes.is_float(a.dtype):
        return a.cast(b.dtype).pow(b).cast(a.dtype)
    return a.pow(b.cast(a.dtype))


def _shift(a: Tensor, b: Tensor, direction: str) -> Tensor:
    width = a.dtype.bitsize
    beyond = b >= width if dtypes.is_unsigned(a.dtype) else (b < 0) | (b >= width)
    places = beyond.where(0, b)  # a shift by fewer than none is refused
    if direction == "LEFT":
        return beyond.where(0, a << places)
    gone = 0 if dtypes.is_unsigned(a.dtype) else (a < 0).where(-1, 0)
    return beyond.where(gone, a >> places).cast(a.dtype)


def _folded(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return lambda *values: functools.reduce(function, values)


def _mean(*values: Tensor) -> Tensor:
    return functools.reduce(Tensor.add, values) / len(values)


def _clip(
    x: Tensor, low: Tensor | None = None, high: Tensor | None = None, **bounds: float
) -> Tensor:
    """Bounds are inputs, before version 11 attributes."""
    least: Any = bounds.get("min", low)
    most: Any = bounds.get("max", high)
    out = x if least is None else x.maximum(least)
    return (out if most is None else out.minimum(most)).cast(x.dtype)


def _isinf(x: Tensor, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    return x.isinf(bool(detect_positive), bool(detect_negative))


# ---- activations ---------------------------------------------------------------------------------


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return x.gelu(approximate)


def _hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return x.hardsigmoid(alpha, beta)


def _leaky(x: Tensor, alpha: float = 0.01) -> Tensor:
    return x.leaky_relu(alpha)


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    return (x < 0).where(x * slope, x)


def _prelu_by_channel(x: Tensor, slope: Tensor) -> Tensor:
    """Before version 7 the slopes are one for all, or one a channel."""
    return _prelu(x, x._along(1, slope) if slope.numel() > 1 else slope.reshape(()))


def _selu(
    x: Tensor, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return x.selu(alpha, gamma)


def _shrink(x: Tensor, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    return (x < -lambd).where(x + bias, (x > lambd).where(x - bias, 0)).cast(x.dtype)


def _swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x * (x * alpha).sigmoid()


def _thresholded(x: Tensor, alpha: float = 1.0) -> Tensor:
    return (x > alpha).where(x, 0)


def _aligned(function: Callable[..., Tensor]) -> Function:
    """A function of two tensors, which before version 7 met from axis `axis` on."""

    def meet(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        if axis is not None and b.ndim and broadcast:
            b = b.reshape(*b.shape, *[1] * (a.ndim - axis - b.ndim))
        return function(a, b)

    return meet


ROWS: Table = {
    "Abs": Tensor.abs,
    "Acos": Tensor.acos,
    "Acosh": Tensor.acosh,
    "Add": _aligned(Tensor.add),
    "And": _aligned(Tensor.bitwise_and),
    "Asin": Tensor.asin,
    "Asinh": Tensor.asinh,
    "Atan": Tensor.atan,
    "Atanh": Tensor.atanh,
    "BitCast": bit_cast,
    "BitShift": _shift,
    "BitwiseAnd": Tensor.bitwise_and,
    "BitwiseNot": Tensor.bitwise_not,
    "BitwiseOr": Tensor.bitwise_or,
    "BitwiseXor": Tensor.bitwise_xor,
    "Cast": cast,
    "CastLike": cast_like,
    "Ceil": Tensor.ceil,
    "Celu": Tensor.celu,
    "Clip": _clip,
    "Cos": Tensor.cos,
    "Cosh": Tensor.cosh,
    "Div": _aligned(_div),
    "Elu": Tensor.elu,
    "Equal": _aligned(Tensor.eq),
    "Erf": Tensor.erf,
    "Exp": Tensor.exp,
    "Floor": Tensor.floor,
    "Gelu": _gelu,
    "Greater": _aligned(lambda a, b: a > b),
    "GreaterOrEqual": lambda a, b: a >= b,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": Tensor.hardswish,
    "IsInf": _isinf,
    "IsNaN": Tensor.isnan,
    "LeakyRelu": _leaky,
    "Less": _aligned(lambda a, b: a < b),
    "LessOrEqual": lambda a, b: a <= b,
    "Log": Tensor.log,
    "Max": _folded(Tensor.maximum),
    "Mean": _mean,
    "Min": _folded(Tensor.minimum),
    "Mish": Tensor.mish,
    "Mod": _mod,
    "Mul": _aligned(Tensor.mul),
    "Neg": Tensor.neg,
    "Not": Tensor.logical_not,
    "Or": _aligned(Tensor.bitwise_or),
    "PRelu": {1: _prelu_by_channel, 7: _prelu},
    "Pow": _aligned(_pow),
    "Reciprocal": Tensor.reciprocal,
    "Relu": Tensor.relu,
    "Round": Tensor.round,
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": Tensor.sigmoid,
    "Sign": Tensor.sign,
    "Sin": Tensor.sin,
    "Sinh": Tensor.sinh,
    "Softplus": Tensor.softplus,
    "Softsign": Tensor.softsign,
    "Sqrt": Tensor.sqrt,
    "Sub": _aligned(Tensor.sub),
    "Sum": _folded(Tensor.add),
    "Swish": _swish,
    "Tan": Tensor.tan,
    "Tanh": Tensor.tanh,
    "ThresholdedRelu": _thresholded,
    "Where": lambda condition, x, y: condition.where(x, y),
    "Xor": _aligned(Tensor.bitwise_xor),
}
