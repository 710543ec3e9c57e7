"""Files mapped into memory, and tensors that are parts of them.

A mapped file costs nothing until it is read, and then only the pages that are touched. If the
device can address the host's memory (CPU, PYTHON), a tensor is the file's bytes themselves;
otherwise it is a copy, made when it is needed. A mapped file must not be truncated while it is
used: where kernels read it, that is an error (`backends/cpu/cut_files`).
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygrad.backends.cpu.cut_files import watch
from tinygrad.backends.cpu.pages import wish_huge
from tinygrad.base.dtype import from_numpy_name
from tinygrad.base.errors import FileError
from tinygrad.base.replacing import is_special, replacing
from tinygrad.engine import storage
from tinygrad.engine.devices import Device
from tinygrad.tensor import Tensor

Bytes = NDArray[np.uint8]
Source = str | os.PathLike[str] | bytes | bytearray | memoryview


def bytes_of(source: Source) -> Bytes:
    """The bytes of a file, mapped if it is a path, else in place.

    Raises:
        FileError: there is no such file, or it can't be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return np.frombuffer(source, np.uint8)
    try:
        if os.path.getsize(source) == 0:  # can't be mapped
            return np.empty(0, np.uint8)
        with open(source, "rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        wish_huge(pages)
        found = np.frombuffer(pages, np.uint8)
        watch(found, os.fspath(source))
        return found
    except (OSError, ValueError) as error:
        raise FileError(f"file {os.fspath(source)!r} can't be read: {error}") from error


def name_of(source: Source) -> str:
    """What messages call it."""
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "bytes"


WIDENED = frozenset(("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"))
"""What tensors lack; float32 holds all values."""


def tensor_of(array: NDArray[Any], device: str | None = None) -> Tensor:
    """A tensor that is `array`, a part of a mapped file, or a copy of it made when needed.

    >>> tensor_of(np.arange(3, dtype=np.int32)).tolist()
    [0, 1, 2]
    """
    place = Device.canonicalize(device)
    if array.dtype.kind == "c":  # pairs of floats
        pairs = np.ascontiguousarray(array).reshape(-1).view(array.real.dtype)
        parts = pairs.reshape((*array.shape, 2))
        return tensor_of(parts, device).view_as_complex()  # type: ignore[no-any-return]
    if array.dtype.name in WIDENED:
        return Tensor(array.astype(np.float32), device=place)
    if array.size == 0 or array.dtype.byteorder == ">":
        return Tensor(array.astype(array.dtype.newbyteorder("=")), device=place)
    node = storage.borrowed(array, from_numpy_name(array.dtype.name), place)
    return Tensor(array, device=place) if node is None else Tensor(node.reshape(array.shape))


class BytesFile(io.RawIOBase):
    """Bytes as a file, which copies only what is read."""

    def __init__(self, raw: Bytes) -> None:
        super().__init__()
        self.raw, self.place = raw, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self.place, len(self.raw))[whence]
        self.place = min(max(0, base + offset), len(self.raw))
        return self.place

    def read(self, size: int | None = -1) -> bytes:
        stop = len(self.raw) if size is None or size < 0 else self.place + size
        data = self.raw[self.place : stop].tobytes()
        self.place += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)


def write_whole(
    path: str | os.PathLike[str], parts: Iterable[Any], name: str | None = None
) -> None:
    """Writes bytes, or arrays as little-endian bytes, to a temporary file in the same folder, which
    then replaces what `path` leads to: the file is written whole or not at all. A killed process,
    or a machine that loses power, leaves the old one.

    `name`: of the temporary file; by default a new one each time. With a name there is only one
    such file, however often processes are killed, and only one process may write.
    """
    with replacing(path, name) as part, open(part, "wb") as file:
        for data in parts:
            if isinstance(data, np.ndarray):
                little = data.astype(data.dtype.newbyteorder("<"), copy=False)
                data = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
            file.write(data)
        file.flush()
        if not is_special(part):
            os.fsync(file.fileno())
    if not is_special(path):
        _sync_folder(Path(os.path.realpath(path)).parent)


def _sync_folder(folder: Path) -> None:
    """Makes a rename last, where folders can be opened (not on Windows)."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
