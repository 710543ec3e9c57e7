"""Between the standard's element types, arrays of NumPy and tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from tinygrad.base.dtype import DType, from_numpy_name
from tinygrad.base.errors import FileError, JitError
from tinygrad.engine.jit import capturing
from tinygrad.formats.mapped import tensor_of
from tinygrad.formats.onnx.registry import Array, Value
from tinygrad.tensor import Tensor

STRINGS = np.dtype(object)
ONLY_ON_HOST = frozenset(
    np.dtype(kind)
    for kind in (
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float4_e2m1fn,
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.int2,
        ml_dtypes.uint2,
        np.complex64,
        np.complex128,
    )
)
"""Element types that tensors lack: such values stay arrays."""


def numpy_dtype_of(kind: int) -> np.dtype[Any]:
    """The NumPy dtype of one of the standard's element types."""
    if kind == onnx.TensorProto.STRING:
        return STRINGS
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    except KeyError as error:
        raise FileError(f"onnx: element type {kind}, which the standard lacks") from error


def kind_of(dtype: np.dtype[Any]) -> int:
    """The standard's element type of a NumPy dtype."""
    if dtype.kind in "OUS":
        return int(onnx.TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def dtype_of(kind: int) -> DType | None:
    """The tensor dtype of one of the standard's element types; None if tensors lack it."""
    dtype = numpy_dtype_of(kind)
    return None if dtype in ONLY_ON_HOST or dtype == STRINGS else from_numpy_name(dtype.name)


def fits_tensor(array: Array) -> bool:
    """Whether tensors have the element type of an array."""
    return array.dtype.kind not in "OUS" and array.dtype not in ONLY_ON_HOST


def array_of(proto: Any, folder: str = "") -> Array:
    """The array of a TensorProto; strings are objects."""
    try:
        array = numpy_helper.to_array(proto, folder)
    except (ValueError, TypeError, KeyError, OSError, AttributeError) as error:
        raise FileError(f"onnx: tensor {proto.name!r} is broken: {error}") from error
    except onnx.checker.ValidationError as error:
        raise FileError(f"onnx: data of tensor {proto.name!r}: {error}") from error
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype == STRINGS:
        return np.vectorize(_text, otypes=[object])(array) if array.size else array
    return array


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def to_tensor(value: Value) -> Value:
    """An array as a tensor where tensors have its element type; all else as it is."""
    if isinstance(value, np.ndarray) and fits_tensor(value):
        return tensor_of(value)
    return value


def to_host(value: Value, where: str) -> Value:
    """A tensor as an array, which computes it; all else as it is.

    Raises:
        JitError: in a step that is being captured: a replay would keep what was read.
    """
    if isinstance(value, list):
        return [to_host(item, where) for item in value]
    if not isinstance(value, Tensor):
        return value
    if capturing():
        raise JitError(
            f"{where}: it needs a value on the host, of a tensor of {value.shape} that is computed "
            "in the captured step; legal there are constants and shapes"
        )
    return value.numpy()
