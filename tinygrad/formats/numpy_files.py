"""NumPy's files: `.npy` holds one array, `.npz` is a zip file of them. Objects (which NumPy would
unpickle) are refused."""

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

from tinygrad.base.errors import FileError
from tinygrad.formats.archives import BROKEN, members
from tinygrad.formats.mapped import Bytes, Source, bytes_of, name_of, tensor_of, write_whole
from tinygrad.tensor import Tensor

LONGEST_HEADER = 1 << 16


def load(source: Source) -> Tensor | dict[str, Tensor]:
    """The tensor of a `.npy` file, or those of a `.npz` file by name.

    Args:
        source: a path, or the file's bytes. Arrays that are not packed are parts of the mapped
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
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise FileError(f"{where}: elements {dtype}; legal are bools, integers and floats")
    begin, nbytes = file.tell(), math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or begin + nbytes > len(raw):
        raise FileError(f"{where}: {dtype} of shape {shape} in {len(raw)} bytes; cut short")
    try:
        flat: NDArray[Any] = raw[begin : begin + nbytes].view(dtype)
        return flat.reshape(shape, order="F" if by_columns else "C")
    except ValueError as error:
        raise FileError(f"{where}: {error}") from error


def save(path: str | os.PathLike[str], tensors: Tensor | Mapping[str, Tensor]) -> None:
    """Writes a `.npy` file of one tensor or a `.npz` file of several, whole or not at all."""
    out = io.BytesIO()
    if isinstance(tensors, Tensor):
        npy.write_array(out, tensors.numpy(), allow_pickle=False)
    else:
        with zipfile.ZipFile(out, "w") as archive:
            for name, tensor in tensors.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    npy.write_array(file, tensor.numpy(), allow_pickle=False)
    write_whole(path, [out.getbuffer()])
