"""One file as memory. It is read by calls and not through a mapping wherever its bytes are copied:
a file that was cut, or a disk that is full, is then an error and not the end of the process."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import threading
import weakref
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tinygrad.backends.cpu.cut_files import watch
from tinygrad.backends.cpu.pages import wish_huge
from tinygrad.base.errors import DeviceError, FileError, OutOfMemory
from tinygrad.base.locks import ForkSafeLock
from tinygrad.base.replacing import begin, finish, is_special

PIECE = 16 << 20  # bytes a call, so that Ctrl-C is heard
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", -1))
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class DiskFile:
    """An open file of `nbytes` bytes, or more. The same file is one object, however often it is
    opened, so that whoever writes finds those who read."""

    _known: ClassVar[weakref.WeakValueDictionary[tuple[int, int], DiskFile]]
    _known = weakref.WeakValueDictionary()
    _opening: ClassVar[ForkSafeLock] = ForkSafeLock()

    def __init__(self, path: str, handle: int, writable: bool) -> None:
        self.path, self.handle, self.writable = path, handle, writable
        self.part: str | None = None  # the name that a file has until it is whole
        self.missing = 0  # bytes until then
        self._unfinished: Any = None
        self._lock = threading.Lock()
        self._mapped: NDArray[Any] | None = None
        weakref.finalize(self, os.close, handle)

    @staticmethod
    def open(path: str, nbytes: int | None = None) -> DiskFile:
        """The file at `path`; a new one of `nbytes` zeros where there is none. FileError if it is
        absent, no plain file, or has fewer bytes."""
        with suppress(OSError):
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                raise FileError(f"file {path!r} is a folder or a device; legal is a plain file")
        flags = os.O_RDWR | (os.O_CREAT if nbytes else 0)
        writable = True
        try:
            try:
                handle = os.open(path, flags | BINARY, 0o666)
            except OSError as error:
                if error.errno not in DENIED:
                    raise
                handle, writable = os.open(path, os.O_RDONLY | BINARY), False
        except OSError as error:
            raise FileError(f"file {path!r} can't be opened: {error.strerror}") from error
        facts = os.fstat(handle)
        with DiskFile._opening.now:
            known = DiskFile._known.get((facts.st_dev, facts.st_ino))
            if known is not None and (known.writable or not writable):
                os.close(handle)
                made = known
            else:
                made = DiskFile(path, handle, writable)
                DiskFile._known[facts.st_dev, facts.st_ino] = made
        if nbytes and not facts.st_size:
            made._change("make", os.truncate, handle if made is not known else made.handle, nbytes)
        elif nbytes and facts.st_size < nbytes:
            raise FileError(
                f"file {path!r} holds {facts.st_size:,} bytes, the tensor needs {nbytes:,}; legal "
                "are a smaller tensor, or a path where there is no file"
            )
        return made

    @staticmethod
    def fresh(path: str, nbytes: int) -> DiskFile:
        """A new file that takes its place at `path` once all its bytes are written. Until then an
        older file stays there, and whoever has opened that keeps it."""
        if is_special(path):
            raise FileError(f"file {path!r} is a folder or a device; legal is a plain file")
        try:
            handle, part = begin(path)
        except OSError as error:
            raise FileError(f"file {path!r} can't be made: {error.strerror}") from error
        made = DiskFile(path, handle, writable=True)
        made.part, made.missing = part, nbytes
        made._unfinished = weakref.finalize(made, _remove, part)
        made._change("make", os.truncate, handle, nbytes)
        return made

    @property
    def size(self) -> int:
        """Its bytes now: another process may have cut it."""
        return os.fstat(self.handle).st_size

    def read(self, start: int, nbytes: int) -> bytearray:
        """Bytes from `start` on; FileError if the file ends before."""
        received = bytearray(nbytes)
        into, done = memoryview(received), 0
        while done < nbytes:
            count = self._read_into(into[done : done + PIECE], start + done)
            if not count:
                raise FileError(
                    f"file {self.path!r} ends at {self.size:,}, bytes {start:,} to "
                    f"{start + nbytes:,} are needed; it was cut after it was opened"
                )
            done += count
        return received

    def write(self, start: int, data: memoryview) -> None:
        """Puts bytes at `start`. OutOfMemory if the disk is full, FileError if the file may not be
        written."""
        if not self.writable:
            raise FileError(f"file {self.path!r} may only be read; legal is a copy of the tensor")
        source = memoryview(data).cast("B")
        done = 0
        while done < len(source):
            done += self._change("write", self._write, source[done : done + PIECE], start + done)
        if self.part is not None:
            self.missing -= len(source)
            if self.missing <= 0:
                self._finish(self.part)

    def mapped(self, start: int, nbytes: int) -> NDArray[Any]:
        """Bytes from `start` on, to be read only: nothing is read before it is looked at.
        FileError if the file is shorter."""
        end, size = start + nbytes, self.size
        if size < end:
            raise FileError(
                f"file {self.path!r} ends at {size:,}, bytes {start:,} to {end:,} are needed; it "
                "was cut after it was opened"
            )
        if self._mapped is None or self._mapped.size < end:
            try:
                whole = mmap.mmap(self.handle, 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise FileError(f"file {self.path!r} can't be mapped: {error}") from error
            wish_huge(whole)
            self._mapped = np.frombuffer(whole, np.uint8)
            watch(self._mapped, self.path)
        return self._mapped[start:end]

    def _finish(self, part: str) -> None:
        """Moves the finished file to its path."""
        self._change("write", finish, part, self.path)
        self._unfinished.detach()
        self.part = None
        facts = os.fstat(self.handle)
        DiskFile._known[facts.st_dev, facts.st_ino] = self

    def _change(self, operation: str, function: Any, *arguments: Any) -> Any:
        """The result of a system call. If it fails, the error names the file."""
        try:
            return function(*arguments)
        except OSError as error:
            where = f"[{operation}] file {self.path!r}: {error.strerror}"
            if error.errno in FULL:
                raise OutOfMemory(f"{where}; free space on that disk, or name another") from error
            raise DeviceError(where) from error

    def _read_into(self, into: memoryview, start: int) -> int:
        if hasattr(os, "preadv"):
            return self._change("read", os.preadv, self.handle, [into], start)  # type: ignore[no-any-return]
        with self._lock:
            os.lseek(self.handle, start, os.SEEK_SET)
            data = self._change("read", os.read, self.handle, len(into))
        into[: len(data)] = data
        return len(data)

    def _write(self, data: memoryview, start: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(self.handle, data, start)
        with self._lock:
            os.lseek(self.handle, start, os.SEEK_SET)
            return os.write(self.handle, data)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
