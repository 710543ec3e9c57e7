"""The DISK device: a tensor that is a file, as in `Tensor.empty(8, device="disk:/tmp/x")`. It runs
no kernels; what is wanted of it is read when it goes to another device, or to NumPy.

files   one file: read, written and mapped, with errors for all that files can do
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinygrad.backends.disk.files import DiskFile
from tinygrad.backends.interface import Backend
from tinygrad.backends.npy import DTYPES
from tinygrad.backends.null import NullCompiler, NullQueue
from tinygrad.base.errors import DeviceError
from tinygrad.base.later import later
from tinygrad.base.target import Target

__all__ = ["DiskFile", "Region", "open_device"]

TARGET = Target("DISK", vector=0, dtypes=DTYPES, storage_dtypes=DTYPES)


@dataclass(frozen=True)
class Region:
    """A handle: a file and where in it the bytes begin."""

    file: DiskFile
    offset: int = 0


class DiskMemory:
    """`allocate` makes a file at `path`, which takes the place of an older one when it is whole."""

    def __init__(self, path: str) -> None:
        self.path = path

    def allocate(self, nbytes: int) -> Region:
        if not self.path:
            raise DeviceError("device DISK: names no file; legal is a path, as in 'disk:/tmp/x'")
        return Region(DiskFile.fresh(self.path, nbytes))

    def free(self, handle: Region, nbytes: int) -> None:
        """The file stays."""

    def write(self, handle: Region, data: memoryview, offset: int = 0) -> None:
        handle.file.write(handle.offset + offset, data)

    def read(self, handle: Region, nbytes: int, offset: int = 0) -> bytearray:
        return handle.file.read(handle.offset + offset, nbytes)

    def view(self, handle: Region, offset: int) -> Region:
        return Region(handle.file, handle.offset + offset)

    def borrow(self, data: memoryview) -> None:
        """Bytes of the host are no file."""

    def address(self, handle: Region) -> None:
        return None


def open_device(path: str = "", cache: Any = None) -> Backend:
    """The file at `path`, which is opened when a tensor of it is made."""
    renderer = later("tinygrad.backends.c_family", "CRenderer")
    return Backend(TARGET, renderer, NullCompiler(), DiskMemory(path), NullQueue())
