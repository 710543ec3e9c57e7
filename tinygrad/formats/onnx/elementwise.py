"""Operators element by element: arithmetic, comparison, logic, functions, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.formats.onnx.casts import bit_cast, cast, cast_like
from tinygrad.formats.onnx.registry import Function, Row, Table, tensors
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


def _round(x: Tensor) -> Tensor:
    return x.round()


def _isinf(x: Tensor, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    return x.isinf(bool(detect_positive), bool(detect_negative))


def _sign(x: Tensor) -> Tensor:
    return x.sign()


# ---- activations ---------------------------------------------------------------------------------


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return x.gelu(approximate)


def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x.maximum(0) + (alpha * ((x / alpha).exp() - 1)).minimum(0)


def _elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return (x < 0).where(alpha * (x.exp() - 1), x)


def _hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return (x * alpha + beta).clamp(0, 1)


def _hard_swish(x: Tensor) -> Tensor:
    return x * _hard_sigmoid(x, 1 / 6, 0.5)


def _leaky(x: Tensor, alpha: float = 0.01) -> Tensor:
    return (x < 0).where(x * alpha, x)


def _mish(x: Tensor) -> Tensor:
    return x * x.softplus().tanh()


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    return (x < 0).where(x * slope, x)


def _prelu_by_channel(x: Tensor, slope: Tensor, **_: Any) -> Tensor:
    """Before version 7 the slopes are one for all, or one a channel."""
    shape = [-1 if i == 1 else 1 for i in range(x.ndim)] if slope.numel() > 1 else []
    return _prelu(x, slope.reshape(shape))


def _selu(
    x: Tensor, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return gamma * (x <= 0).where(alpha * (x.exp() - 1), x)


def _shrink(x: Tensor, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    return (x < -lambd).where(x + bias, (x > lambd).where(x - bias, 0)).cast(x.dtype)


def _swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x * (x * alpha).sigmoid()


def _thresholded(x: Tensor, alpha: float = 1.0) -> Tensor:
    return (x > alpha).where(x, 0)


def _softplus(x: Tensor) -> Tensor:
    return x.maximum(0) + (1 + (-x.abs()).exp()).log()


def _plain(function: Callable[..., Tensor]) -> Function:
    """A function of one tensor, before version 6 with an attribute that has no effect."""
    return lambda x, consumed_inputs=None: function(x)


def _aligned(function: Callable[..., Tensor]) -> Row:
    """A function of two tensors, which before version 7 met from axis `axis` on."""

    def meet(a: Tensor, b: Tensor, axis: int | None = None, broadcast: int = 0, **_: Any) -> Tensor:
        if axis is not None and b.ndim and broadcast:
            b = b.reshape(*b.shape, *[1] * (a.ndim - axis - b.ndim))
        return function(a, b)

    return tensors(meet)


ROWS: Table = {
    "Abs": tensors(_plain(Tensor.abs)),
    "Acos": tensors(Tensor.acos),
    "Acosh": tensors(Tensor.acosh),
    "Add": _aligned(Tensor.add),
    "And": _aligned(Tensor.bitwise_and),
    "Asin": tensors(Tensor.asin),
    "Asinh": tensors(Tensor.asinh),
    "Atan": tensors(Tensor.atan),
    "Atanh": tensors(Tensor.atanh),
    "BitCast": tensors(bit_cast),
    "BitShift": tensors(_shift),
    "BitwiseAnd": tensors(Tensor.bitwise_and),
    "BitwiseNot": tensors(Tensor.bitwise_not),
    "BitwiseOr": tensors(Tensor.bitwise_or),
    "BitwiseXor": tensors(Tensor.bitwise_xor),
    "Cast": tensors(cast),
    "CastLike": tensors(cast_like),
    "Ceil": tensors(_plain(Tensor.ceil)),
    "Celu": tensors(_celu),
    "Clip": tensors(_clip),
    "Cos": tensors(Tensor.cos),
    "Cosh": tensors(Tensor.cosh),
    "Div": _aligned(_div),
    "Elu": tensors(_elu),
    "Equal": _aligned(Tensor.eq),
    "Erf": tensors(Tensor.erf),
    "Exp": tensors(_plain(Tensor.exp)),
    "Floor": tensors(_plain(Tensor.floor)),
    "Gelu": tensors(_gelu),
    "Greater": _aligned(lambda a, b: a > b),
    "GreaterOrEqual": tensors(lambda a, b: a >= b),
    "HardSigmoid": tensors(_hard_sigmoid),
    "HardSwish": tensors(_hard_swish),
    "IsInf": tensors(_isinf),
    "IsNaN": tensors(Tensor.isnan),
    "LeakyRelu": tensors(_leaky),
    "Less": _aligned(lambda a, b: a < b),
    "LessOrEqual": tensors(lambda a, b: a <= b),
    "Log": tensors(_plain(Tensor.log)),
    "Max": tensors(_folded(Tensor.maximum)),
    "Mean": tensors(_mean),
    "Min": tensors(_folded(Tensor.minimum)),
    "Mish": tensors(_mish),
    "Mod": tensors(_mod),
    "Mul": _aligned(Tensor.mul),
    "Neg": tensors(_plain(Tensor.neg)),
    "Not": tensors(Tensor.logical_not),
    "Or": _aligned(Tensor.bitwise_or),
    "PRelu": {1: tensors(_prelu_by_channel), 7: tensors(_prelu)},
    "Pow": _aligned(_pow),
    "Reciprocal": tensors(_plain(Tensor.reciprocal)),
    "Relu": tensors(_plain(Tensor.relu)),
    "Round": tensors(_round),
    "Selu": tensors(_selu),
    "Shrink": tensors(_shrink),
    "Sigmoid": tensors(_plain(Tensor.sigmoid)),
    "Sign": tensors(_sign),
    "Sin": tensors(Tensor.sin),
    "Sinh": tensors(Tensor.sinh),
    "Softplus": tensors(_softplus),
    "Softsign": tensors(Tensor.softsign),
    "Sqrt": tensors(_plain(Tensor.sqrt)),
    "Sub": _aligned(Tensor.sub),
    "Sum": tensors(_folded(Tensor.add)),
    "Swish": tensors(_swish),
    "Tan": tensors(Tensor.tan),
    "Tanh": tensors(_plain(Tensor.tanh)),
    "ThresholdedRelu": tensors(_thresholded),
    "Where": tensors(lambda condition, x, y: condition.where(x, y)),
    "Xor": _aligned(Tensor.bitwise_xor),
}
