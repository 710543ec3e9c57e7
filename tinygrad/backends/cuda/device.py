"""One card: its context, its stream of commands, and what it says of itself.

Every call of the driver goes through here, so a failure is told in one way: what was asked, with
which values, and the driver's words. A card that a kernel has broken is lost to this process; each
later use says so, and other devices go on.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tinygrad.backends.cuda import driver as cuda
from tinygrad.backends.cuda.driver import Driver, Pointer, version_text
from tinygrad.backends.cuda.target import CHIPS, OLDEST, WARP, Chip, card_target, chip_of
from tinygrad.base.errors import CompileError, DeviceError, OutOfMemory
from tinygrad.base.target import Target

# our names of what a card is asked, and the driver's numbers of them
ATTRIBUTES = {
    "group_limit": 1,
    "warp": 10,
    "processors": 16,
    "cache_l2": 38,
    "major": 75,
    "minor": 76,
    "local_memory": 97,
}
NON_BLOCKING = 1  # our stream waits for no other library's
NO_TIMING = 2  # events that only order


@dataclass(eq=False)
class Connection:
    """One open card. Handles of the driver are numbers."""

    driver: Driver
    name: str  # "CUDA:0"
    title: str  # "NVIDIA H200"
    target: Target
    context: int
    memory: int  # bytes in all
    stream: int = 0
    lost: str = ""  # why nothing can be asked any more
    process: int = field(default_factory=os.getpid)
    retired: deque[tuple[str, int]] = field(default_factory=deque)  # what nobody holds any more

    def enter(self) -> None:
        """Makes the card's context this thread's. DeviceError if the card is lost, or this process
        is a fork: the driver's threads don't survive one."""
        if os.getpid() != self.process:
            raise DeviceError(
                f"device {self.name}: this process was forked after the device was opened; legal "
                "are multiprocessing's start method 'spawn', or opening it in the child only"
            )
        if self.lost:
            raise DeviceError(
                f"device {self.name} was lost, and this process can't use it again: {self.lost}; "
                "restart the process, other devices go on"
            )
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Calls a function of the driver. `what` says what for, with the values, if it fails."""
        code = self.driver.functions[name](*arguments)
        if code:
            raise self.failure(code, what or name)

    def made(self, name: str, *arguments: Any, what: str = "", kind: Any = Pointer) -> int:
        """The handle that a function writes where its first argument points to."""
        found = kind()
        self.call(name, ctypes.byref(found), *arguments, what=what)
        return found.value or 0

    def failure(self, code: int, what: str) -> DeviceError | CompileError:
        """The error for a result of the driver."""
        words = self.driver.words(code)
        if code in cuda.LOST:
            self.lost = f"{what}: {words}"
            if code in cuda.ADVICE:
                self.lost += f": {cuda.ADVICE[code]}"
            return DeviceError(f"device {self.name} is lost: {self.lost}")
        if code == cuda.OUT_OF_MEMORY:
            return OutOfMemory(f"[{what}] on {self.name}: {words}")
        if code in cuda.REFUSED:
            return CompileError(f"[{what}] on {self.name}: {words}")
        return DeviceError(f"device {self.name}: {what}: {words}")

    def synchronize(self) -> None:
        """Waits for the stream, and gives back what nobody holds."""
        self.enter()
        old = len(self.retired)
        self.call("cuStreamSynchronize", self.stream, what="waiting for kernels")
        for _ in range(old):
            self.call(*self.retired.popleft())

    def retire(self, holder: object, name: str, handle: int) -> None:
        """`name` gives a handle back, after `holder` is gone and the stream has been waited for."""
        weakref.finalize(holder, self.retired.append, (name, handle)).atexit = False

    def event(self, timing: bool = False) -> int:
        """A mark that can be put into a stream."""
        return self.made("cuEventCreate", 0 if timing else NO_TIMING)


def connect(index: int) -> Connection:
    """Card number `index` of this machine."""
    driver = Driver(cuda.open_library())
    count = driver.number("cuDeviceGetCount", ctypes.c_int)
    if index >= count:
        names = ", ".join(f"CUDA:{i} ({title(driver, i)})" for i in range(count)) or "none"
        raise DeviceError(f"device CUDA:{index}: there is no such card; there are: {names}")
    number = driver.number("cuDeviceGet", ctypes.c_int, index)
    facts = {
        name: driver.number("cuDeviceGetAttribute", ctypes.c_int, code, number)
        for name, code in ATTRIBUTES.items()
    }
    chip = usable_chip(driver, facts, f"CUDA:{index} ({title(driver, index)})")
    target = card_target(
        chip,
        group_limit=facts["group_limit"],
        local_memory=facts["local_memory"] or chip.local_memory,
        cache_l2=facts["cache_l2"] or chip.cache_l2,
        cores=facts["processors"],
    )
    connection = Connection(
        driver,
        f"CUDA:{index}",
        title(driver, index),
        target,
        driver.number("cuDevicePrimaryCtxRetain", Pointer, number),
        driver.number("cuDeviceTotalMem_v2", ctypes.c_size_t, number),
    )
    connection.enter()
    connection.stream = connection.made("cuStreamCreate", NON_BLOCKING)
    return connection


def usable_chip(driver: Driver, facts: dict[str, int], card: str) -> Chip:
    """The newest row that card and driver both know."""
    capability = facts["major"], facts["minor"]
    chip = chip_of(capability, ptx_of(driver.version))
    if chip is None:
        least = min(row.ptx for row in CHIPS)
        raise DeviceError(
            f"device {card}: compute capability {capability[0]}.{capability[1]} with a driver for "
            f"CUDA {version_text(driver.version)}; needed are {OLDEST[0]}.{OLDEST[1]} or later and "
            f"PTX {least / 10}"
        )
    if facts["warp"] != WARP:
        raise DeviceError(f"device {card}: warps of {facts['warp']} lanes; code is made for {WARP}")
    return chip


def ptx_of(version: int) -> int:
    """The newest PTX that a driver surely compiles: 7.x came with CUDA 11.x, 8.0 with 12.0."""
    return 80 if version >= 12_000 else 70 + version % 1000 // 10


def title(driver: Driver, index: int) -> str:
    """What the maker calls a card."""
    text = ctypes.create_string_buffer(256)
    number = driver.number("cuDeviceGet", ctypes.c_int, index)
    driver.functions["cuDeviceGetName"](text, len(text), number)
    return text.value.decode(errors="replace")
