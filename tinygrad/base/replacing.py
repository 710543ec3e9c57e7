"""Files that are written whole or not at all: under another name in the same folder, at first."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tinygrad.base.later import later

tempfile = later("tempfile")

Path = str | os.PathLike[str]


@contextmanager
def replacing(path: Path, name: str | None = None) -> Iterator[str]:
    """The path of a file to write, which in the end takes the place of the one that `path` leads
    to, through links; at an error that stays. Of a device or a pipe, which can't be replaced: that
    itself.

    `name`: of the file that is written, one of its own each time unless given.
    """
    if is_special(path):
        yield os.fspath(path)
        return
    handle, part = begin(path, name)
    os.close(handle)
    try:
        yield part
        finish(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def is_special(path: Path) -> bool:
    """Whether `path` leads to a device or a pipe."""
    with suppress(OSError):
        mode = os.stat(path).st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def begin(path: Path, name: str | None = None) -> tuple[int, str]:
    """A new file beside the one that `path` leads to: its handle and its path. An OSError, of
    `path`, where there can be none."""
    folder, last = os.path.split(os.path.realpath(path))
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if name is None:
            return tempfile.mkstemp(dir=folder, prefix=last)  # type: ignore[no-any-return]
        part = os.path.join(folder, name)
        return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), part
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def finish(part: str, path: Path) -> None:
    """`part` takes the place of the file that `path` leads to, and its owner and rights; a first
    one gets those of new files."""
    target = os.path.realpath(path)
    with suppress(OSError, AttributeError):
        try:
            before = os.stat(target)
        except FileNotFoundError:
            os.chmod(part, 0o666 & ~_umask())
        else:
            os.chmod(part, stat.S_IMODE(before.st_mode))
            os.chown(part, before.st_uid, before.st_gid)
    os.replace(part, target)


def _umask() -> int:
    """What the system takes off the rights of new files; a temporary file has fewer."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
