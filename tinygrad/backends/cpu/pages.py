"""Pages from the operating system, with their address: buffers, scratch, code and the pool's
words all live in such. Private pages, so a forked child has its own copy of what it writes."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from contextlib import suppress

from tinygrad.base.errors import DeviceError
from tinygrad.base.helpers import round_up

PAGE = mmap.PAGESIZE
HUGE_PAGE = 2 << 20


class Pages:
    """Zeroed, writable pages at `address`; unmapped by `close` or when the object dies.

    With `huge`, blocks of 2 MiB and more start on a huge page and ask for huge pages, which
    spares most page faults. Raises `MemoryError` where the system has none left.
    """

    def __init__(self, nbytes: int, huge: bool = False) -> None:
        self.nbytes = round_up(max(nbytes, 1), PAGE)
        wants_huge = huge and self.nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
        spare = HUGE_PAGE if wants_huge else 0  # address space only: never touched
        try:
            self._map = _map(self.nbytes + spare)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"the system gave no {self.nbytes} bytes: {error}") from error
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._anchor)
        if wants_huge:
            self.address = round_up(self.address, HUGE_PAGE)
            wish_huge(self._map)

    def make_executable(self) -> None:
        """Turn the pages from writable to executable; they are never both."""
        flags = mmap.PROT_READ | mmap.PROT_EXEC
        size = ctypes.c_size_t(self.nbytes)
        if _libc().mprotect(ctypes.c_void_p(self.address), size, flags):
            raise DeviceError(
                f"the system refused executable memory (errno {ctypes.get_errno()}); "
                "a policy such as SELinux execmem may forbid it; DEV=PYTHON needs none"
            )

    def forget(self, address: int, nbytes: int) -> None:
        """Give back the memory of whole pages among them: they hold zeros when next used."""
        if hasattr(mmap, "MADV_DONTNEED"):
            start = address - ctypes.addressof(self._anchor)
            self._map.madvise(mmap.MADV_DONTNEED, start, nbytes)

    def close(self) -> None:
        """Give the pages back now. Nothing may use the address any more."""
        del self._anchor
        self._map.close()


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _map(nbytes: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, nbytes)
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def wish_huge(pages: mmap.mmap) -> None:
    """Asks for huge pages, so that a core which reads much memory waits less often for addresses of
    pages. For a mapped file this holds for what is read into the cache from now on."""
    with suppress(OSError, AttributeError):
        pages.madvise(mmap.MADV_HUGEPAGE)


def view_bytes(address: int, nbytes: int) -> memoryview:
    """The writable bytes at `address`, without a copy; the caller keeps them alive."""
    if not nbytes:
        return memoryview(b"")
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
