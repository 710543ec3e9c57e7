"""Memory that this library and another one use at the same time, without a copy.

A buffer that is *lent* to another library stays where it is for as long as the borrower holds the
`Loan`. Meanwhile the borrower may write to it at any time (`Buffer.others`), so a value that was
computed from it is not reused for a later equal expression. Memory that is *adopted* belongs to
another library: the buffer keeps its owner alive, and it counts as written by others for good. The
same bytes are always one Buffer, however often they are lent and adopted, so that reads and writes
happen in the order of the program."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, NamedTuple

from tinygrad.backends.interface import ALIGNMENT
from tinygrad.engine.alive import Alive
from tinygrad.engine.devices import Device
from tinygrad.engine.faults import raise_faults
from tinygrad.engine.storage import HOST, Buffer, original, renew

_outside: Alive[Buffer] = Alive()  # lent, or adopted
_crooked: weakref.WeakSet[Buffer] = weakref.WeakSet()  # adopted, and not aligned as kernels write


class Loan:
    """A buffer that something outside uses. The loan ends with the object, or by `close`."""

    __slots__ = ("buffer", "address")

    def __init__(self, buffer: Buffer, address: int) -> None:
        self.buffer: Buffer | None = buffer
        self.address = address
        buffer.others += 1
        _outside.add_once(buffer)
        renew(buffer)

    def close(self) -> None:
        """Ends the loan."""
        buffer, self.buffer = self.buffer, None
        if buffer is not None:
            buffer.others -= 1

    def __del__(self) -> None:
        self.close()

    def memory(self) -> memoryview:
        """The bytes, which keep the loan alive; to be read only where nobody may write them."""
        assert self.buffer is not None
        made = (ctypes.c_char * self.buffer.nbytes).from_address(self.address)
        made.loan = self  # type: ignore[attr-defined]
        bytes_of = memoryview(made)
        return bytes_of.toreadonly() if self.buffer.fixed else bytes_of


def address_of(buffer: Buffer) -> int | None:
    """The host address of a buffer's bytes; None if the host can't address them."""
    if buffer.device == HOST or buffer.parts:
        return None
    return Device[buffer.device].backend.memory.address(buffer.handle)


def is_addressable(device: Any) -> bool:
    """Whether the host can use a device's memory in place, and the device the host's."""
    return isinstance(device, str) and Device[device].is_addressable


def lend(buffer: Buffer) -> Loan | None:
    """Lends the buffer to something outside; None if the host can't address its bytes."""
    address = address_of(buffer)
    if address is None:
        return None
    Device[buffer.device].synchronize()
    raise_faults(buffer)
    return Loan(buffer, address)


class Place(NamedTuple):
    """Bytes of a buffer from `offset` on."""

    buffer: Buffer
    offset: int


def device_at(address: int) -> str | None:
    """The device whose buffer, lent or adopted, contains the byte at `address`."""
    for buffer in _outside:
        start = address_of(buffer) or 0
        if buffer.others and start <= address < start + buffer.nbytes:
            return str(buffer.device)
    return None


def adopt(device: str, address: int, nbytes: int, owner: Any, fixed: bool) -> Place | None:
    """Foreign memory as a part of a buffer on `device`, which keeps `owner` alive; with `fixed`,
    nothing here may write it. None if the device can't use it in place, or if some of the bytes
    belong to another buffer or another device."""
    for buffer in _outside:
        start = address_of(buffer) or 0
        if buffer.others and start < address + nbytes and address < start + buffer.nbytes:
            inside = start <= address and address + nbytes <= start + buffer.nbytes
            return Place(buffer, address - start) if inside and buffer.device == device else None
    data = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
    handle = Device[device].backend.memory.borrow(data)
    if handle is None:
        return None
    buffer = Buffer(device, nbytes, handle, owner)
    buffer.others, buffer.fixed = 1, fixed
    _outside.add(buffer)
    if address % ALIGNMENT:
        _crooked.add(buffer)
    return Place(buffer, 0)


def any_crooked() -> bool:
    """Whether there is a buffer that kernels can't write in place."""
    return bool(_crooked)


Replaced = list[tuple[int, Buffer]]
"""Positions in a run's buffers, and the original buffers."""


def straightened(written: list[int], buffers: list[Buffer]) -> Replaced:
    """Replaces buffers that a run writes, but kernels can't, by aligned copies."""
    if not _crooked:
        return []
    copies: dict[Buffer, Buffer] = {}
    for place in written:
        whole = original(buffers[place])
        if whole in _crooked and whole not in copies:
            copies[whole] = Buffer(whole.device, whole.nbytes)
            copies[whole].write(whole.read())
    replaced = [(i, b) for i, b in enumerate(buffers) if original(b) in copies] if copies else []
    for place, own in replaced:
        buffers[place] = copies[original(own)]
    return replaced


def write_back(replaced: Replaced, buffers: list[Buffer]) -> None:
    """Undoes `straightened` after the run."""
    for place, own in replaced:
        own.write(buffers[place].read())
        buffers[place] = own
