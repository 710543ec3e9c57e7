"""A card's memory. A handle is an address of the card, an int.

All commands of a card go through one stream and run in order, so a block may be given out again as
soon as it is freed: whoever gets it comes later in the stream. Copies between cards have a stream
of their own, so that kernels go on beside them. Bytes between host and card pass
through two pinned blocks in turn: while one is on its way the other is filled or emptied, and the
caller's bytes are free when `write` returns.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygrad.backends.blocks import Blocks
from tinygrad.backends.cuda.device import NON_BLOCKING, Connection
from tinygrad.backends.cuda.driver import Address
from tinygrad.backends.interface import Memory
from tinygrad.base.errors import ArgumentError, OutOfMemory

PINNED = 4 << 20  # bytes of each of the two blocks


class CUDAMemory:
    """The blocks of one card."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        limit = connection.memory // 2  # what lies in freed blocks at most
        self.blocks: Blocks[int] = Blocks(self._make, self._release, OutOfMemory, limit)
        self.pins = Pins(connection)
        self.copies = connection.made("cuStreamCreate", NON_BLOCKING)
        self._sizes: dict[int, int] = {}  # handle in use → size

    def _make(self, size: int) -> int:
        self.connection.enter()
        return self.connection.made("cuMemAlloc_v2", size, what="allocate", kind=Address)

    def _release(self, handle: int) -> None:
        if self.connection.presence.is_there:
            self.connection.synchronize()  # the stream may still need it
            self.connection.call("cuMemFree_v2", handle)

    def allocate(self, nbytes: int) -> int:
        try:
            handle, size = self.blocks.take(nbytes)
        except OutOfMemory as error:
            live = f"{sum(list(self._sizes.values())):,} bytes are in use here"
            raise OutOfMemory(
                f"[allocate] {nbytes:,} bytes on {self.connection.name}: {live}, the card has "
                f"{self.connection.memory:,}; free tensors, or use smaller ones"
            ) from error
        self._sizes[handle] = size
        return handle

    def free(self, handle: int, nbytes: int) -> None:
        size = self._sizes.pop(handle, 0)
        if not size:
            raise ArgumentError(f"[free] {handle:#x} is not a block in use: freed twice?")
        self.blocks.keep(handle, size)

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        self.pins.write(handle + offset, memoryview(data).cast("B"))

    def read(self, handle: int, nbytes: int, offset: int = 0) -> bytearray:
        return self.pins.read(handle + offset, nbytes)

    def view(self, handle: int, offset: int) -> int:
        return handle + offset

    def borrow(self, data: memoryview) -> None:
        """A card has memory of its own."""

    def address(self, handle: int) -> None:
        return None

    def copy_from(self, handle: int, other: Memory, source: int, nbytes: int) -> None:
        """Bytes of another card's memory, by the shortest way that the two have."""
        assert isinstance(other, CUDAMemory)
        mine, what = self.connection, f"copy {nbytes:,} bytes from card to card"
        places = handle, mine.context, source, other.connection.context
        mine.enter()
        mine.call("cuMemcpyPeerAsync", *places, nbytes, self.copies, what=what)
        mine.call("cuStreamSynchronize", self.copies, what=what)


@dataclass(frozen=True, eq=False)
class Pin:
    """A pinned block of the host, which the card reads and writes by itself."""

    address: int
    event: int  # after its last use
    contents: np.ndarray[Any, Any]


class Pins:
    """Two of them, made when they are first needed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.both: list[Pin] = []
        self.lock = threading.Lock()

    def write(self, target: int, data: memoryview) -> None:
        """Bytes to the card. The last ones may still be on their way when this returns."""
        connection = self.connection
        source = np.frombuffer(data, np.uint8)
        with self.lock:
            for pin, start, count in self._parts(source.size):
                connection.call("cuEventSynchronize", pin.event)
                pin.contents[:count] = source[start : start + count]
                where = target + start, pin.address, count, connection.stream
                what = f"copy {source.size:,} bytes to the card"
                connection.call("cuMemcpyHtoDAsync_v2", *where, what=what)
                connection.call("cuEventRecord", pin.event, connection.stream)

    def read(self, source: int, nbytes: int) -> bytearray:
        """Bytes of the card, after all that was asked of it before."""
        connection, received = self.connection, bytearray(nbytes)
        target = np.frombuffer(received, np.uint8)
        what = f"copy {nbytes:,} bytes from the card"
        under_way: deque[tuple[Pin, int, int]] = deque()

        def arrive() -> None:
            pin, start, count = under_way.popleft()
            connection.call("cuEventSynchronize", pin.event, what=what)
            target[start : start + count] = pin.contents[:count]

        with self.lock:
            for pin, start, count in self._parts(nbytes):
                if len(under_way) == len(self.both):
                    arrive()
                where = pin.address, source + start, count, connection.stream
                connection.call("cuMemcpyDtoHAsync_v2", *where, what=what)
                connection.call("cuEventRecord", pin.event, connection.stream)
                under_way.append((pin, start, count))
            while under_way:
                arrive()
        return received

    def _parts(self, nbytes: int) -> Iterator[tuple[Pin, int, int]]:
        """The blocks in turn, each with the bytes that it takes."""
        self.connection.enter()
        while nbytes and len(self.both) < 2:
            self.both.append(self._pin())
        for number, start in enumerate(range(0, nbytes, PINNED)):
            yield self.both[number % 2], start, min(PINNED, nbytes - start)

    def _pin(self) -> Pin:
        connection = self.connection
        address = connection.made("cuMemHostAlloc", PINNED, 0, what=f"pin {PINNED:,} bytes")
        block = (ctypes.c_uint8 * PINNED).from_address(address)
        return Pin(address, connection.event(), np.ctypeslib.as_array(block))
