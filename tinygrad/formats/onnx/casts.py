"""Casts between element types. Values are tensors if tensors have both types, and NumPy arrays if
one is a string or narrower than tensors support."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from tinygrad.base.dtype import DType, dtypes, largest_float
from tinygrad.engine.storage import numpy_dtype
from tinygrad.formats.onnx.registry import Array, Value
from tinygrad.formats.onnx.values import STRINGS, dtype_of, kind_of, numpy_dtype_of, to_host
from tinygrad.tensor import Tensor

EIGHT_BITS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


def cast_on_host(x: Array, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """An array as one of another of the standard's element types."""
    kind = numpy_dtype_of(to)
    if kind == STRINGS:
        texts = [str(number) for number in x.reshape(-1)]  # the shortest that reads back as it
        return np.array(texts, object).reshape(x.shape)
    if x.dtype == STRINGS:
        read = _whole if kind.kind in "iu" else float
        made = np.array([read(text) for text in x.reshape(-1)], kind if kind.kind in "iu" else None)
        return made.reshape(x.shape).astype(kind)
    if to == onnx.TensorProto.FLOAT8E8M0:
        made = numpy_helper.to_float8e8m0(x.astype(np.float32), bool(saturate), round_mode)
        return np.asarray(made).astype(kind)
    if kind.name in EIGHT_BITS and saturate:
        return np.asarray(numpy_helper.saturate_cast(x, kind))
    with np.errstate(all="ignore"):
        return x.astype(kind)


def _whole(text: str) -> int:
    """A whole number, all digits of it; of a float, what is before its point."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def cast(x: Value, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    """Converted; floats of 8 bits saturate unless told not to."""
    kind = dtype_of(to)
    if isinstance(x, np.ndarray) or kind is None:
        return cast_on_host(to_host(x, "onnx Cast"), to, saturate, round_mode)
    if kind in dtypes.fp8s and saturate and dtypes.is_float(x.dtype):
        most = largest_float(kind)
        wide = x if x.dtype.itemsize >= 4 else x.float()
        x = wide.isnan().where(wide, wide.clamp(-most, most))
    return x.cast(kind)


def cast_like(x: Value, target: Value, saturate: int = 1, round_mode: str = "up") -> Value:
    """Converted to the element type of `target`."""
    return cast(x, element_type(target), saturate, round_mode)


def element_type(value: Value) -> int:
    """The standard's element type of a value."""
    return kind_of(numpy_dtype(value.dtype) if isinstance(value, Tensor) else value.dtype)


def wide_enough(kind: DType) -> DType:
    """The float type in which numbers of `kind` are computed with."""
    return dtypes.float64 if kind is dtypes.float64 else dtypes.float32


def bit_cast(x: Value, to: int) -> Value:
    """The same bits as another element type of the same size."""
    kind = dtype_of(to)
    if isinstance(x, np.ndarray) or kind is None:
        array = np.ascontiguousarray(to_host(x, "onnx BitCast"))
        return array.view(numpy_dtype_of(to)).reshape(array.shape)
    if dtypes.bool in (x.dtype, kind):
        return x.cast(kind) if x.dtype is dtypes.bool else x.ne(0)
    return x.bitcast(kind)
