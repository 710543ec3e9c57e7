"""Archives: the members of tar and zip files as tensors of bytes, and the images in them.

Nothing is written to disk. Links, and members whose name leads out of the archive (`../x`, `/x`),
are refused, so a program that writes members to files by their names is safe. Members of plain tar
files are parts of the mapped file. Others are unpacked up to a limit, and those of zip files are
tested.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, FileError
from tinygrad.formats.mapped import Bytes, BytesFile, Source, bytes_of, name_of, tensor_of
from tinygrad.tensor import Tensor

MOST = 1 << 32  # bytes that an archive may unpack to
PIECE = 1 << 20  # that many bytes are unpacked at a time
PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")  # gzip, bzip2, xz
IMAGES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
)
BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError,
          RuntimeError, LookupError, OverflowError, TypeError)  # fmt: skip


class TensorIO(BytesFile):
    """A tensor of bytes as a file that is read.

    >>> TensorIO(Tensor(b"abc")).read(2)
    b'ab'
    """

    def __init__(self, tensor: Tensor) -> None:
        if tensor.dtype is not dtypes.uint8 or tensor.ndim != 1:
            raise ArgumentError(
                f"TensorIO: {tensor.dtype!r} of shape {tensor.shape}; legal is one axis of uint8"
            )
        super().__init__(tensor.numpy())


def members(source: Source, most: int = MOST) -> dict[str, Bytes]:
    """The regular files in a tar or zip file by name, as bytes.

    Args:
        source: a path, or the archive's bytes. Tar files may be packed by gzip, bzip2 or xz.
        most: how many bytes packed members may have altogether.

    Raises:
        FileError: no archive, a broken one, one that unpacks to more than `most` bytes, or with a
            name that leads out of it.
    """
    import lzma  # not every Python has it

    raw, where = bytes_of(source), f"archive {name_of(source)}"
    start = raw[:6].tobytes()
    try:
        if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            return _zip_members(raw, where, most)
        if start.startswith(PACKED):
            return _packed_members(raw, where, most)
        return _tar_members(raw, where)
    except FileError:
        raise
    except (lzma.LZMAError, *BROKEN) as error:
        raise FileError(f"{where}: {error}") from error


def extract(source: Source | Tensor, most: int = MOST) -> dict[str, Tensor]:
    """The regular files in a tar or zip file by name, as tensors of bytes; see `members`."""
    given = source.numpy().data if isinstance(source, Tensor) else source
    return {name: tensor_of(data) for name, data in members(given, most).items()}


def images(source: Source) -> Iterator[tuple[str, Tensor]]:
    """Name and pixels (height, width, 3) as uint8 of each image in an archive, in its order. Of 16
    bits a pixel are the 8 that are nearest, transparency is left out, and so is a turn that a
    camera notes.

    Raises:
        FileError: the archive, or an image in it, is broken.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ArgumentError("images: the package pillow reads them: pip install pillow") from error
    for name, data in members(source).items():
        if PurePosixPath(name).suffix.lower() not in IMAGES:
            continue
        try:
            with Image.open(io.BytesIO(data.tobytes())) as image:
                pixels = _pixels(image)
        except (Image.DecompressionBombError, SyntaxError, *BROKEN) as error:
            raise FileError(f"image {name!r} of archive {name_of(source)}: {error}") from error
        yield name, Tensor(pixels)


def _pixels(image: Any) -> Bytes:
    """The pixels of one of Pillow's, which cuts off what is beyond 255."""
    if image.mode[0] not in "IF":
        return np.asarray(image.convert("RGB"))
    grey = np.asarray(image)
    if grey.dtype.kind == "f" or grey.min() < 0 or grey.max() >= 1 << 16:
        raise FileError(f"{grey.dtype} from {grey.min()} to {grey.max()}; legal are 8 and 16 bits")
    return np.stack([np.rint(grey / 257).astype(np.uint8)] * 3, -1)


def _checked(name: str, where: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name.split("/")[0] or "\0" in name:
        raise FileError(f"{where}: member {name!r} leads out of the archive")
    return name


def _tar_members(raw: Bytes, where: str) -> dict[str, Bytes]:
    found: dict[str, Bytes] = {}
    with tarfile.open(fileobj=BytesFile(raw), mode="r:") as archive:
        for info in archive:
            if info.issym() or info.islnk():
                raise FileError(f"{where}: member {info.name!r} is a link")
            if info.isreg():
                if info.issparse() or info.offset_data + info.size > len(raw):
                    raise FileError(f"{where}: {info.name!r} is sparse, or ends outside the file")
                data = raw[info.offset_data : info.offset_data + info.size]
                found[_checked(info.name, where)] = data
        end = raw[archive.offset : archive.offset + tarfile.BLOCKSIZE]
    if len(end) < tarfile.BLOCKSIZE or end.any():  # where `tarfile` found no more members
        raise FileError(f"{where}: cut short or broken at byte {archive.offset}")
    return found


def _packed_members(raw: Bytes, where: str, most: int) -> dict[str, Bytes]:
    """All of a packed tar file, unpacked in one go."""
    import bz2
    import gzip
    import lzma

    file = BytesFile(raw)
    opened: Any = {PACKED[0]: gzip.GzipFile, PACKED[1]: bz2.BZ2File, PACKED[2]: lzma.LZMAFile}
    kind = next(make for start, make in opened.items() if raw[: len(start)].tobytes() == start)
    unpacker = kind(fileobj=file) if kind is gzip.GzipFile else kind(file)
    data = bytearray()
    while piece := unpacker.read(PIECE):
        data += piece
        if len(data) > most:
            raise FileError(f"{where}: unpacks to more than {most} bytes")
    return _tar_members(np.frombuffer(data, np.uint8), where)


def _zip_members(raw: Bytes, where: str, most: int) -> dict[str, Bytes]:
    found: dict[str, Bytes] = {}
    with zipfile.ZipFile(BytesFile(raw)) as archive:
        total = sum(info.file_size for info in archive.infolist())
        if total > max(most, len(raw)):
            raise FileError(f"{where}: unpacks to {total} bytes; legal are {most}")
        for info in archive.infolist():
            if not info.is_dir():
                with archive.open(info) as file:
                    data = file.read(info.file_size + 1)
                found[_checked(info.filename, where)] = np.frombuffer(data, np.uint8)
    return found
