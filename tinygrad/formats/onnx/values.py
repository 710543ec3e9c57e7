"""Conversions between the standard's element types, NumPy arrays and tensors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from tinygrad.base.dtype import DType, from_numpy_name
from tinygrad.base.errors import FileError, JitError
from tinygrad.engine.realize import capturing
from tinygrad.formats.mapped import bytes_of, tensor_of
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


def is_foreign(value: Value) -> bool:
    """Whether it is an array whose element type tensors lack."""
    return isinstance(value, np.ndarray) and not fits_tensor(value)


def array_of(proto: Any, folder: str = "") -> Array:
    """The array of a TensorProto; strings are objects."""
    try:
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            return _external(proto, folder)
        array = numpy_helper.to_array(proto)
    except FileError:
        raise
    except (ValueError, TypeError, KeyError, OSError, AttributeError, OverflowError) as error:
        raise FileError(f"onnx: tensor {proto.name!r} is broken: {error}") from error
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype == STRINGS:
        return np.vectorize(_text, otypes=[object])(array) if array.size else array
    return array


def _external(proto: Any, folder: str) -> Array:
    """The array of a tensor whose bytes lie in a file in the model's folder, mapped."""
    facts = {item.key: item.value for item in proto.external_data}
    name = facts.get("location", "")
    home = Path(folder).resolve()
    path = (home / name).resolve()
    if not folder or not name or not path.is_relative_to(home):
        raise FileError(
            f"onnx: tensor {proto.name!r} lies in file {name!r}; legal are files in the folder of "
            "a model that is loaded by its path"
        )
    dtype, shape = numpy_dtype_of(proto.data_type), tuple(proto.dims)
    bits = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
    each = bits.get(dtype.name, dtype.itemsize * 8)
    raw, start = bytes_of(path), int(facts.get("offset", 0))
    nbytes = -(-math.prod(shape) * each // 8)
    if dtype == STRINGS or any(n < 0 for n in shape) or not 0 <= start <= len(raw) - nbytes:
        raise FileError(
            f"onnx: tensor {proto.name!r}, {dtype} of shape {shape} at byte {start} of {name!r}, "
            f"which has {len(raw)}"
        )
    part = raw[start : start + nbytes]
    if each == dtype.itemsize * 8:
        return part.view(dtype).reshape(shape)
    packed = onnx.TensorProto(data_type=proto.data_type, dims=shape, raw_data=part.tobytes())
    return numpy_helper.to_array(packed)


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
