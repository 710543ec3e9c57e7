"""Safetensors files: named arrays behind a JSON header, which can be read without running any code.

    8 bytes   the header's length, little endian
    header    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
              and "__metadata__": strings by name; padded with spaces
    data      the arrays, row-major, little endian, without holes

(Format: https://huggingface.co/docs/safetensors.) Reading maps the file into memory, so opening a
large file costs nothing, and a part is read when it is used. A model may be several files with an
index, `model.safetensors.index.json`, which says in which file each name is.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tinygrad.base.errors import ArgumentError, FileError
from tinygrad.formats.mapped import Bytes, Source, bytes_of, name_of, write_whole

Arrays = dict[str, NDArray[Any]]

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
    "C64": np.dtype("<c8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}

ALIGNMENT = 64  # where the data begins, so that mapped arrays lie on cache lines
MAX_HEADER = 100_000_000  # bytes; the reference implementation refuses more
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


# ---- reading -------------------------------------------------------------------------------------


def read(source: Source) -> tuple[Arrays, dict[str, str]]:
    """The arrays by name, and the metadata.

    Args:
        source: the path of a file, of an index, or of a folder with either; or a file's bytes.
            Arrays of a path are read-only and mapped: they stay valid while the file is not cut.

    Raises:
        FileError: the file is not what the format says; the message names the array.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            path = path / (INDEX if (path / INDEX).exists() else SINGLE)
        if path.suffix == ".json":
            return _read_index(path)
        source = path
    where = f"safetensors {name_of(source)}"
    raw = bytes_of(source)
    header, begin = _header(raw, where)
    metadata = header.pop("__metadata__", {})
    data = raw[begin:]
    arrays = {name: _array(data, row, f"{where}, {name!r}") for name, row in header.items()}
    _check_places(header, len(data), where)
    return arrays, metadata


def read_metadata(source: Source) -> dict[str, Any]:
    """The header: dtype, shape and place of each array, and the metadata; no data is read."""
    return _header(bytes_of(source), f"safetensors {name_of(source)}")[0]


def _read_index(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays of all files that an index names."""
    where = f"safetensors index {path}"
    index = _json(bytes_of(path), where)
    names = index.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise FileError(f"{where}: no weight_map with a file for each name")
    files: dict[str, Arrays] = {}
    for file in dict.fromkeys(names.values()):
        if Path(file).name != file or file in ("", ".", "..") or file == path.name:
            raise FileError(f"{where}: file {file!r}; legal are names in the index's folder")
        files[file], _ = read(path.parent / file)
    missing = [name for name, file in names.items() if name not in files[file]]
    if missing:
        raise FileError(f"{where}: {missing[0]!r} is not in {names[missing[0]]}")
    metadata = index.get("metadata", {})
    return {name: files[file][name] for name, file in names.items()}, metadata


def _header(raw: Bytes, where: str) -> tuple[dict[str, Any], int]:
    """The parsed header, and where the data begins."""
    if len(raw) < 8:
        raise FileError(f"{where}: {len(raw)} bytes; a safetensors file has at least 8")
    (length,) = struct.unpack("<Q", raw[:8].tobytes())
    if length > min(len(raw) - 8, MAX_HEADER):
        raise FileError(
            f"{where}: a header of {length} bytes in a file of {len(raw)}; this is no safetensors "
            "file, or it is cut short"
        )
    header = _json(raw[8 : 8 + length], where)
    metadata = header.get("__metadata__", {})
    if not isinstance(metadata, dict) or not _are_strings(metadata):
        raise FileError(f"{where}: __metadata__ {metadata!r:.80}; legal are strings by name")
    return header, 8 + length


def _are_strings(metadata: Mapping[Any, Any]) -> bool:
    return all(isinstance(text, str) for item in metadata.items() for text in item)


def _json(raw: Bytes, where: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise ValueError("a name stands twice")
        return made

    try:
        parsed = json.loads(raw.tobytes(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{where}: the header is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise FileError(f"{where}: the header is no JSON object")
    return parsed


def _array(data: Bytes, row: Any, where: str) -> NDArray[Any]:
    """One array, a view of `data`."""
    try:
        name, shape, (start, stop) = row["dtype"], tuple(row["shape"]), row["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{where}: a row needs dtype, shape and data_offsets: {row}") from error
    dtype = NUMPY_DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise FileError(f"{where}: dtype {name}; known are {', '.join(NUMPY_DTYPES)}")
    if not all(type(n) is int and n >= 0 for n in (*shape, start, stop)):
        raise FileError(f"{where}: {row}; legal are whole numbers from 0")
    if not start <= stop <= len(data) or stop - start != math.prod(shape) * dtype.itemsize:
        raise FileError(
            f"{where}: {name} of shape {shape} at bytes {start} to {stop} of {len(data)}; the file "
            "is cut short or its header is wrong"
        )
    try:
        array: NDArray[Any] = data[start:stop].view(dtype).reshape(shape)
    except ValueError as error:  # more axes than NumPy has, or sizes beyond its range beside a 0
        raise FileError(f"{where}: shape {shape}: {error}") from error
    return array


def _check_places(header: dict[str, Any], total: int, where: str) -> None:
    """The arrays follow each other without gaps, so no byte is read twice or never."""
    end = 0
    for start, stop in sorted(row["data_offsets"] for row in header.values()):
        if start != end:
            raise FileError(f"{where}: bytes {end} to {start} belong to no array, or to two")
        end = stop
    if end != total:
        raise FileError(f"{where}: arrays end at byte {end}, the file at {total}")


# ---- writing -------------------------------------------------------------------------------------


def write(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    metadata: Any = None,
    part: str | None = None,
) -> None:
    """Writes the file whole or not at all: a killed process leaves the old one, and so does a
    machine that loses its power.

    Args:
        path: where to.
        arrays: by name. The larger element types come first in the file, so that all are aligned.
        metadata: strings by name, or None.
        part: the name, in the same folder, of the file that is written first; one of its own each
            time unless given. A given one is there only once, however often processes are killed.

    Raises:
        ArgumentError: a dtype that the format lacks, or metadata that is not strings by name.
    """
    metadata = dict(metadata or {})
    if not _are_strings(metadata):
        raise ArgumentError(f"safetensors: metadata {metadata}; legal are strings by name")
    for name in arrays:
        if not isinstance(name, str) or name == "__metadata__":
            raise ArgumentError(f"safetensors: an array can't be named {name!r}")
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
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    write_whole(path, [struct.pack("<Q", len(text)), text, *(a for _, a in ordered)], part)


def write_sharded(
    folder: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    most: int = 5 << 30,
    metadata: Any = None,
) -> list[Path]:
    """Writes files of at most `most` bytes of data each (more only for a single larger array) and
    their index into a folder; or one plain file if that is enough. An old index, or an old plain
    file, that does not belong to the new files is removed: readers would mistake one for the other.

    Returns:
        The paths of the files with data.
    """
    parts: list[dict[str, NDArray[Any]]] = [{}]
    room = most
    for name, array in arrays.items():
        if array.nbytes > room and parts[-1]:
            parts.append({})
            room = most
        parts[-1][name] = array
        room -= array.nbytes
    home = Path(folder)
    if len(parts) == 1:
        write(home / SINGLE, arrays, metadata)
        (home / INDEX).unlink(missing_ok=True)
        return [home / SINGLE]
    names: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        write(home / file, part, metadata)
        names.update(dict.fromkeys(part, file))
    total = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": names}
    write_whole(home / INDEX, [json.dumps(index, indent=2).encode()])
    (home / SINGLE).unlink(missing_ok=True)
    return [home / file for file in dict.fromkeys(names.values())]
