"""Safetensors files: named arrays behind a JSON header, readable without running anything.

    8 bytes   the header's length, little endian
    header    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
              and "__metadata__": strings by name; padded with spaces
    data      the arrays, row-major, little endian, without holes

(Format: https://huggingface.co/docs/safetensors.) Reading maps the file into memory, so opening a
large one costs nothing and a part is read when it is used. Nothing here knows tensors.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tinygrad.base.errors import ArgumentError

Arrays = dict[str, NDArray[Any]]
Source = str | os.PathLike[str] | bytes | bytearray | memoryview

NUMPY_DTYPES: Mapping[str, Any] = {
    "BOOL": np.dtype(np.bool_),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}

ALIGNMENT = 8  # where the data begins, so that mapped arrays of any dtype lie aligned
MAX_HEADER = 100_000_000  # bytes; the reference implementation refuses more


def _bytes_of(source: Source) -> NDArray[np.uint8]:
    """The file's bytes: mapped if it is a path, else in place. An empty file can't be mapped."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return np.frombuffer(source, np.uint8)
    if os.path.getsize(source) == 0:
        return np.empty(0, np.uint8)
    return np.memmap(source, np.uint8, mode="r")


def _header(raw: NDArray[np.uint8], where: str) -> tuple[dict[str, Any], int]:
    """The parsed header, and where the data begins."""
    if len(raw) < 8:
        raise ArgumentError(f"{where}: {len(raw)} bytes; a safetensors file has at least 8")
    (length,) = struct.unpack("<Q", raw[:8].tobytes())
    if length > min(len(raw) - 8, MAX_HEADER):
        raise ArgumentError(
            f"{where}: a header of {length} bytes in a file of {len(raw)}; this is no safetensors "
            "file, or it is cut short"
        )
    try:
        header = json.loads(raw[8 : 8 + length].tobytes())
    except ValueError as error:
        raise ArgumentError(f"{where}: the header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise ArgumentError(f"{where}: the header is no JSON object")
    return header, 8 + length


def read(source: Source) -> tuple[Arrays, dict[str, str]]:
    """The arrays by name, and the metadata.

    Args:
        source: a path, or the file's bytes. Arrays of a path are read-only and mapped: they stay
            valid while the file is not cut.

    Raises:
        ArgumentError: the file is not what the format says; the message names the array.
    """
    where = f"safetensors {source}" if isinstance(source, (str, os.PathLike)) else "safetensors"
    raw = _bytes_of(source)
    header, begin = _header(raw, where)
    metadata = header.pop("__metadata__", {})
    data = raw[begin:]
    return {name: _array(data, row, f"{where}, {name!r}") for name, row in header.items()}, metadata


def read_metadata(source: Source) -> dict[str, Any]:
    """The header: dtype, shape and place of each array, and the metadata; no data is read."""
    return _header(_bytes_of(source), "safetensors")[0]


def _array(data: NDArray[np.uint8], row: Any, where: str) -> NDArray[Any]:
    """One array, a view of `data`."""
    try:
        name, shape, (start, stop) = row["dtype"], tuple(row["shape"]), row["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"{where}: a row needs dtype, shape and data_offsets: {row}") from error
    dtype = NUMPY_DTYPES.get(name)
    if dtype is None:
        raise ArgumentError(f"{where}: dtype {name}; known are {', '.join(NUMPY_DTYPES)}")
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, start, stop)):
        raise ArgumentError(f"{where}: {row}; legal are whole numbers from 0")
    if stop > len(data) or stop - start != math.prod(shape) * dtype.itemsize:
        raise ArgumentError(
            f"{where}: {name} of shape {shape} at bytes {start} to {stop} of {len(data)}; the file "
            "is cut short or its header is wrong"
        )
    array: NDArray[Any] = data[start:stop].view(dtype).reshape(shape)
    return array


def write(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], metadata: Any = None
) -> None:
    """Writes the file whole or not at all: a killed process leaves the old one.

    Args:
        path: where to.
        arrays: by name. The larger element types come first in the file, so that all are aligned.
        metadata: strings by name, or None.

    Raises:
        ArgumentError: a dtype that the format lacks, or metadata that is not strings by name.
    """
    metadata = dict(metadata or {})
    if not all(isinstance(text, str) for item in metadata.items() for text in item):
        raise ArgumentError(f"safetensors: metadata {metadata}; legal are strings by name")
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    place = 0
    for name, array in ordered:
        kind = NAMES.get(array.dtype.newbyteorder("<"))
        if kind is None:
            raise ArgumentError(f"safetensors: {name!r} has dtype {array.dtype}, which it lacks")
        end = place + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    _replace(Path(path), [struct.pack("<Q", len(text)), text, *(a for _, a in ordered)])


def _replace(path: Path, parts: list[Any]) -> None:
    """Writes the parts to a file beside `path` that then takes its place."""
    handle, part = tempfile.mkstemp(dir=path.parent or ".", prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            for data in parts:
                if isinstance(data, np.ndarray):
                    little = data.astype(data.dtype.newbyteorder("<"), copy=False)
                    data = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
                file.write(data)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
