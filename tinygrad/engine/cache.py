"""The disk cache: bytes by kind and key. A file is written whole or not at all (atomic rename),
read only if its checksum holds, readable by its owner only, and the folder is kept under a bound.
Where nothing can be written the cache is simply in memory."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from tinygrad.base.settings import CACHE_FOLDER, CACHE_LIMIT_MB, CACHELEVEL
from tinygrad.uop.node import UOp

_CHECKSUM = 32
_SWEEPS = 32  # while as much is written as the limit; one takes 5 µs a file
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class DiskCache:
    """Entries under `folder`; `None` keeps them in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.memory: dict[tuple[str, str], bytes] = {}

    def get(self, kind: str, key: str) -> bytes | None:
        """The entry; None if there is none or its checksum fails."""
        if self.folder is None:
            return self.memory.get((kind, key))
        try:
            raw = self._path(kind, key).read_bytes()
        except OSError:
            return self.memory.get((kind, key))
        body = raw[_CHECKSUM:]
        return body if hashlib.sha256(body).digest() == raw[:_CHECKSUM] else None

    def put(self, kind: str, key: str, body: bytes) -> None:
        """Stores the entry: on disk if possible, else in memory. Its checksum is the lot that
        decides whether it starts a sweep, as a long entry does more often, so that all processes
        together sweep seldom."""
        path = self._path(kind, key) if self.folder is not None else None
        checksum, limit = hashlib.sha256(body).digest(), CACHE_LIMIT_MB.value << 20
        if path is None or not write_whole(path, checksum + body):
            self.memory[kind, key] = body
        elif int.from_bytes(checksum[:4]) * limit < _SWEEPS * len(body) << 32:
            self.sweep(limit)

    def sweep(self, limit: int) -> None:
        """Removes the least recently used entries until at most `limit` bytes are left."""
        entries = self.entries()
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= limit:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size

    def entries(self) -> list[tuple[float, int, str]]:
        """When each file was last used, its bytes and its path. Other processes may add files, and
        remove them while these are counted."""
        found = []
        for entry in _files(str(self.folder), 2) if self.folder is not None else ():
            with contextlib.suppress(OSError):
                stat = entry.stat()
                found.append((max(stat.st_atime, stat.st_mtime), stat.st_size, entry.path))
        return found

    def clear(self) -> None:
        """Removes all entries."""
        self.memory.clear()
        self.sweep(0)

    def _path(self, kind: str, key: str) -> Path:
        assert self.folder is not None
        return self.folder / kind / key[:2] / key


class KindCache:
    """One kind of entries of a cache, with binary keys: the cache that a backend gets."""

    def __init__(self, cache: DiskCache, kind: str) -> None:
        self.cache, self.kind = cache, kind

    def get(self, key: bytes) -> bytes | None:
        """The entry or None."""
        return self.cache.get(self.kind, key.hex())

    def put(self, key: bytes, value: bytes) -> None:
        """Stores the entry."""
        self.cache.put(self.kind, key.hex(), value)


def _files(folder: str, depth: int) -> Iterator[os.DirEntry[str]]:
    """What lies in folders that are this deep in the folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if depth == 0:
                yield entry
            elif entry.is_dir():
                yield from _files(entry.path, depth - 1)


def write_whole(path: Path, raw: bytes) -> bool:
    """Writes a file that only its owner can read. Returns whether that worked. No reader ever sees
    a part of it."""
    part = path.with_name(os.urandom(8).hex())  # that nobody else writes
    try:
        try:
            handle = os.open(part, _NEW, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(part, _NEW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        return False
    return True


def default_folder() -> Path | None:
    """The cache folder according to the settings; None means memory only."""
    if CACHELEVEL.value == 0:
        return None
    if CACHE_FOLDER.value:
        return Path(CACHE_FOLDER.value)
    import platformdirs

    try:
        return Path(platformdirs.user_cache_dir("tinygrad"))
    except (OSError, RuntimeError):  # no home folder
        return None


def disk_cache() -> DiskCache:
    """The process's cache; if CACHELEVEL is 0, a separate one in memory."""
    return _opened(CACHELEVEL.value > 0)


@functools.cache
def _opened(on_disk: bool) -> DiskCache:
    return DiskCache(default_folder() if on_disk else None)


def stamped_key(node: UOp, *facts: object) -> str:
    """The key of a result that depends on a graph, these facts, and the package's code; it is the
    same in every process."""
    return hashlib.sha256(node.key + repr((*facts, code_stamp())).encode()).hexdigest()


@functools.cache
def code_stamp() -> str:
    """A text that changes when the package's code does, so that no entry outlives the code that
    made it."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for folder in ("base", "uop", "simplify", "schedule", "loops", "codegen", "backends", "engine"):
        for path in sorted((package / folder).rglob("*.py")):
            stat = path.stat()
            digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
