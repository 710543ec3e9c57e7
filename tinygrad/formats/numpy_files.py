"""NumPy's files: `.npy` holds one array, `.npz` is a zip file of them. Arrays of Python objects,
which NumPy would unpickle, are refused."""

from __future__ import annotations

import io
import math
import os
import tokenize
import zipfile
from collections.abc import Mapping
from typing import Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from tinygrad.base.errors import ArgumentError, DTypeError, FileError
from tinygrad.formats.archives import BROKEN, members
from tinygrad.formats.mapped import Bytes, Source, bytes_of, name_of, tensor_of, write_whole
from tinygrad.tensor import Tensor

KNOWN = frozenset("?bBhHiIlLqQefdFD")  # NumPy's letters for elements
LONGEST_HEADER = 1 << 16


def load(source: Source) -> Tensor | dict[str, Tensor]:
    """The tensor of a `.npy` file, or those of a `.npz` file by name.

    Args:
        source: a path, or the file's bytes. The array of a `.npy` file is a part of the mapped
            file.

    Raises:
        FileError: the file is broken, or holds objects, strings or records.
    """
    raw, where = bytes_of(source), f"numpy file {name_of(source)}"
    if raw[:4].tobytes() in (b"PK\x03\x04", b"PK\x05\x06"):
        found = members(source)
        return {
            name.removesuffix(".npy"): tensor_of(_array(data, f"{where}, {name!r}"))
            for name, data in found.items()
        }
    return tensor_of(_array(raw, where))


def _array(raw: Bytes, where: str) -> NDArray[Any]:
    """One array, a view of `raw`."""
    file = io.BytesIO(raw[:LONGEST_HEADER].tobytes())
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"version {version}; legal are 1.0 and 2.0")
        shape, by_columns, dtype = read(file)
    except (SyntaxError, tokenize.TokenError, RecursionError, MemoryError, *BROKEN) as error:
        raise FileError(f"{where}: {error}") from error
    if dtype.char not in KNOWN:
        raise FileError(f"{where}: elements {dtype}; legal are bools and numbers")
    begin, nbytes = file.tell(), math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or begin + nbytes > len(raw):
        raise FileError(f"{where}: {dtype} of shape {shape} in {len(raw)} bytes; cut short")
    try:
        flat: NDArray[Any] = raw[begin : begin + nbytes].view(dtype)
        return flat.reshape(shape, order="F" if by_columns else "C")
    except ValueError as error:
        raise FileError(f"{where}: {error}") from error


def save(path: str | os.PathLike[str], tensors: Tensor | Mapping[str, Tensor]) -> None:
    """Writes a `.npy` file of one tensor or a `.npz` file of several, whole or not at all.

    Raises:
        ArgumentError: a dtype that NumPy's files lack (bfloat16, floats of 8 bits).
        DTypeError: something else than a tensor, or than tensors by name.
    """
    out = io.BytesIO()
    if isinstance(tensors, Tensor):
        npy.write_array(out, _writable(tensors), allow_pickle=False)
    elif not isinstance(tensors, Mapping):
        raise _not_a_tensor(tensors)
    else:
        with zipfile.ZipFile(out, "w") as archive:
            for name, tensor in tensors.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    npy.write_array(file, _writable(tensor), allow_pickle=False)
    write_whole(path, [out.getbuffer()])


def _not_a_tensor(value: object) -> DTypeError:
    return DTypeError(
        f"numpy_files.save: a {type(value).__name__}; legal are a Tensor and a dict of Tensors by "
        "name"
    )


def _writable(tensor: Tensor) -> NDArray[Any]:
    if not isinstance(tensor, Tensor):
        raise _not_a_tensor(tensor)
    array: NDArray[Any] = tensor.numpy()
    if array.dtype.char not in KNOWN:
        raise ArgumentError(
            f"numpy_files.save: {tensor.dtype!r}, which NumPy's files lack; cast to "
            "float32, or write safetensors"
        )
    return array
