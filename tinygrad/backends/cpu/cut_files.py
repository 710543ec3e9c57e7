"""Mapped files that another program cuts while kernels read them. What lies behind a file's new end
is no memory any more: a processor that reads it is told by a signal, which ends the process. Here
it finds zeros instead, and the kernels' run raises, so nothing that was made of them is seen."""

from __future__ import annotations

import ctypes
import functools
import signal
import struct
import sys
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

from tinygrad.backends.cpu.pages import PAGE
from tinygrad.base.errors import FileError

ACTION = struct.Struct("P128xi4xP")  # Linux' sigaction: function, mask, flags, restorer
ADDRESS = 16  # where in a siginfo it stands what was read
WITH_INFO_AND_AGAIN = 4 | 1 << 30  # SA_SIGINFO, SA_NODEFER
READ, PRIVATE_FIXED_NO_FILE = 1, 0x02 | 0x10 | 0x20


class Mapped(NamedTuple):
    """A mapped file."""

    start: int
    end: int
    path: str


readers: list[None] = []
"""One for each run of kernels, or copy, in progress. Who else reads a mapping is not helped."""

watched: dict[int, Mapped] = {}
cut: dict[int, Mapped] = {}
"""Those that were found to be cut, from where they end."""


def watch(pages: Any, path: str) -> None:
    """Protects kernels that read `pages`, an array that is a mapped file, for as long as it
    lives."""
    if sys.platform == "linux":
        start = pages.ctypes.data
        watched[start] = Mapped(start, start + pages.nbytes, path)
        weakref.finalize(pages, _forget, start)
        _listen()


def check(addresses: Iterable[int]) -> None:
    """FileError if one of these lies in a file that was cut."""
    for address in addresses:
        for file in cut.values():
            if file.start <= address < file.end:
                raise FileError(
                    f"file {file.path!r} was cut by another program while it was mapped; it can't "
                    "be read any more: load it again"
                )


def _forget(start: int) -> None:
    watched.pop(start, None)
    cut.pop(start, None)


@functools.cache
def _listen() -> Any:
    """Installs the handler of the signal, and returns the objects that must stay alive for it."""
    system = ctypes.CDLL(None)
    system.mmap.restype = ctypes.c_void_p
    system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    before = ctypes.create_string_buffer(ACTION.size)

    def hear(number: int, info: int, context: int) -> None:
        address = ctypes.c_size_t.from_address(info + ADDRESS).value
        for start, file in list(watched.items()) if readers else ():
            if file.start <= address < file.end:
                page = address // PAGE * PAGE
                given = READ, PRIVATE_FIXED_NO_FILE, -1, 0
                if system.mmap(page, file.end - page, *given) == page:
                    cut[start] = file
                    return  # who read it reads again
        system.sigaction(signal.SIGBUS, before, None)  # and is told again

    heard = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(hear)
    function = ctypes.cast(heard, ctypes.c_void_p).value
    action = ACTION.pack(function, WITH_INFO_AND_AGAIN, 0)
    system.sigaction(signal.SIGBUS, action, before)
    return heard, before
