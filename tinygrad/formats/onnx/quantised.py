"""Quantised numbers: conversions to and from them, and their products in integers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.formats.onnx.casts import cast, element_type
from tinygrad.formats.onnx.products import ROWS as PRODUCTS
from tinygrad.formats.onnx.registry import Table, Value
from tinygrad.formats.onnx.values import dtype_of, numpy_dtype_of, to_host
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import axis_of

CONV: Any = PRODUCTS["Conv"]


def _spread(values: Tensor, x: Tensor, axis: int, block: int = 0) -> Tensor:
    """A scale or zero point as what meets `x`: one number, one a place of an axis, one a block of
    places, or what meets it already."""
    if values.ndim == 0 or values.numel() == 1 and not block:
        return values.reshape(())
    axis = axis_of(axis, x.ndim, "axis")
    if block:
        return values.repeat_interleave(block, dim=axis).shrink([(0, n) for n in x.shape])
    return values if values.ndim > 1 else x._along(axis, values)


def _number(value: Value) -> Tensor:
    """As float32, also of types that tensors lack."""
    if isinstance(value, np.ndarray):
        return Tensor(value.astype(np.float32))
    made: Tensor = value if value.dtype is dtypes.float64 else value.cast(dtypes.float32)
    return made


def quantise(
    x: Tensor,
    scale: Tensor,
    zero: Value = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """x / scale + zero, rounded half to even, in the range of the zero point's type."""
    kind = output_dtype or (element_type(zero) if zero is not None else 2)
    steps = _spread(scale, x, axis, block_size)
    wide = (dtype_of(precision) if precision else None) or steps.dtype
    out = (x.cast(wide) / steps.cast(wide)).float()
    numpy = numpy_dtype_of(kind)
    is_whole = numpy.kind in "iu" or numpy.name in ("int4", "uint4", "int2", "uint2")
    out = out.round() if is_whole else out
    if zero is not None:
        out = out + _spread(_number(zero), x, axis, block_size)
    if is_whole:
        limits: Any = ml_dtypes.iinfo(numpy)  # type: ignore[no-untyped-call]
        return cast(out.clamp(int(limits.min), int(limits.max)), kind)
    if numpy.name.startswith("float4"):
        return np.asarray(to_host(out, "onnx QuantizeLinear")).astype(numpy)
    return cast(out, kind, saturate)


def _dequantise(
    x: Value,
    scale: Tensor,
    zero: Value = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    kind = dtype_of(output_dtype) if output_dtype else scale.dtype
    numbers = _number(x)
    if zero is not None:
        numbers = numbers - _spread(_number(zero), numbers, axis, block_size)
    steps = _spread(scale, numbers, axis, block_size).cast(dtypes.float32)
    return (numbers * steps).cast(kind or dtypes.float32)


def _dynamic(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantised to uint8 with the scale and zero point that its range asks for."""
    low, high = x.min().minimum(0), x.max().maximum(0)
    scale = (high - low) / 255
    safe = scale.eq(0).where(1.0, scale)
    zero = (-low / safe).clamp(0, 255).round()
    out = ((x / safe).round() + zero).clamp(0, 255)
    return out.cast(dtypes.uint8), scale, zero.cast(dtypes.uint8)


def _offset(values: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """Whole numbers less their zero point, as int32."""
    wide = values.cast(dtypes.int32)
    if zero is None:
        return wide
    zero = zero.cast(dtypes.int32)
    return wide - (zero.reshape(()) if axis is None else _spread(zero, values, axis))


def _matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return _offset(a, a_zero, -2) @ _offset(b, b_zero, -1)


def _conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **how: Any
) -> Tensor:
    return CONV(_offset(x, x_zero), _offset(w, w_zero, 0), **how)  # type: ignore[no-any-return]


def _q_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor,
) -> Value:  # fmt: skip
    total = _matmul_integer(a, b, a_zero, b_zero).float()
    factor = _spread(a_scale, total, -2).float() * _spread(b_scale, total, -1).float()
    return quantise(total * factor, y_scale.float(), y_zero)


def _q_conv(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, b: Tensor | None = None, **how: Any,
) -> Value:  # fmt: skip
    total = _conv_integer(x, w, x_zero, w_zero, **how)
    if b is not None:
        total = total + total._along(1, b)
    factor = x_scale.reshape(()) * _spread(w_scale, total, 1)
    return quantise(total.float() * factor, y_scale.reshape(()), y_zero)


ROWS: Table = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantise,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _q_conv,
    "QLinearMatMul": _q_matmul,
    "QuantizeLinear": quantise,
}
