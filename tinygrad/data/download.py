"""Files from the network, cached: downloaded once, checked, and not downloaded again."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tinygrad.base.errors import TinygradError

_TIMEOUT = 30.0


class FetchError(TinygradError, OSError):
    """A file that could not be had; the message names it and says what to do."""


def fetch(
    url: str,
    name: str | Path | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    headers: Mapping[str, str] | None = None,
    sha256: str | None = None,
    md5: str | None = None,
) -> Path:
    """The local path of the file at `url`, downloaded if it is not there yet.

    Args:
        url: where the file is; a path of this machine is returned as it is, if its hash is right.
        name: what to call it in the cache, or an absolute path; by default a hash of the URL.
        subdir: a folder inside the cache.
        gunzip: unpack it.
        allow_caching: False downloads again.
        headers: of the request; a file that is asked for with others is another file.
        sha256: what its content must hash to, in hex: that of the file as it comes. One in the
            cache that was not unpacked is checked, too, and downloaded again if it is another.
        md5: the same, for files whose makers give only this.

    Raises:
        FetchError: there is no network, or what came is less than was announced, not what the hash
            says, or can't be unpacked. Nothing is kept then.

    >>> import os, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "numbers")
    >>> _ = path.write_bytes(b"1 2 3")
    >>> fetch(path.as_uri()).read_bytes()
    b'1 2 3'
    """
    hashes = {"sha256": sha256, "md5": md5}
    wanted = {kind: value.lower() for kind, value in hashes.items() if value is not None}
    if url.startswith(("/", ".")):
        if gunzip:
            raise FetchError(f"fetch: gunzip of a file of this machine, {url}; legal is a URL")
        if wanted:
            _check(url, _hashes_of(Path(url), wanted), wanted)
        return Path(url)
    if name is not None and (os.sep in str(name)):
        path = Path(name)
    else:
        own = str(name) if name is not None else _hash(url)
        own += f"_{_hash(repr(sorted(headers.items())))}" if headers else ""
        path = _folder() / (subdir or "") / (own + (".gunzip" if gunzip else ""))
    is_there = allow_caching and path.is_file()
    if not is_there or not (gunzip or _hashes_of(path, wanted) == wanted):
        _download(url, dict(headers or {}), path, gunzip, wanted)
    return path


def _hashes_of(path: Path, kinds: Iterable[str]) -> dict[str, str]:
    found = {}
    for kind in kinds:
        with path.open("rb") as file:
            found[kind] = hashlib.file_digest(file, kind).hexdigest()
    return found


def _check(url: str, found: dict[str, str], wanted: dict[str, str]) -> None:
    for kind, value in wanted.items():
        if found[kind] != value:
            raise FetchError(
                f"fetch: {url} has {kind} {found[kind]}, wanted {value}; nothing was kept"
            )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("tinygrad")) / "downloads"


def _download(
    url: str, headers: dict[str, str], path: Path, gunzip: bool, wanted: dict[str, str]
) -> None:
    """Writes the file at `url` to `path`, if its hashes are as wanted; whole or not at all."""
    import http.client
    import urllib.request  # 15 ms: only who fetches needs it

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent)
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310
        with (
            os.fdopen(handle, "wb") as file,
            urllib.request.urlopen(request, timeout=_TIMEOUT) as answer,  # noqa: S310
        ):
            if (answer.status or http.client.OK) != http.client.OK:  # of a file it is None
                raise FetchError(f"fetch: {url} answered {answer.status}; nothing was kept")
            announced = answer.headers.get("Content-Length")
            while chunk := answer.read(1 << 20):
                file.write(chunk)
            if announced is not None and file.tell() != int(announced):
                raise FetchError(
                    f"fetch: {url} gave {file.tell()} bytes of {announced}; nothing was kept"
                )
        _check(url, _hashes_of(Path(part), wanted), wanted)
        if gunzip:
            _unpack(part, url)
        os.replace(part, path)
    except FetchError:
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:  # as an URLError is
        raise FetchError(
            f"fetch: can't get {url} ({error}); put the file at {path} by hand, or go online"
        ) from error
    finally:
        Path(part).unlink(missing_ok=True)


def _unpack(path: str, url: str) -> None:
    """A gzip file becomes what is in it."""
    packed = path + ".gz"
    os.replace(path, packed)
    try:
        with gzip.open(packed) as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FetchError(
            f"fetch: {url} is no whole gzip file ({error}); nothing was kept"
        ) from error
    finally:
        os.unlink(packed)
