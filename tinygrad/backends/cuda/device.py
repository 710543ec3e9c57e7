"""One card: its context, its stream of commands, and what it says of itself.

Every call of the driver goes through here, so a failure is told in one way: what was asked, with
which values, and the driver's words. A card that a kernel has broken is lost to this process; each
later use says so, and other devices go on.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from tinygrad.backends.cuda import driver as cuda
from tinygrad.backends.cuda.driver import Driver, KernelNode, Pointer, version_text
from tinygrad.backends.cuda.target import WARP, chip_of, chip_target
from tinygrad.backends.presence import Presence, wait_until
from tinygrad.backends.without import permitted
from tinygrad.base.errors import CompileError, DeviceError, OutOfMemory
from tinygrad.base.settings import SETTINGS
from tinygrad.base.target import Target

# facts of a Target, and the driver's numbers of what a card is asked for them
ATTRIBUTES = {"group_limit": 1, "cores": 16, "cache_l2": 38, "local_memory": 97}
MAJOR, MINOR, WARP_SIZE = 75, 76, 10
NON_BLOCKING = 1  # our stream waits for no other library's
NO_TIMING = 2  # events that only order


@dataclass(eq=False)
class Connection:
    """One open card. Handles of the driver are numbers."""

    driver: Driver
    name: str  # "CUDA:0"
    target: Target
    context: int
    memory: int  # bytes in all
    stream: int = 0
    retired: deque[tuple[str, int]] = field(default_factory=deque)  # what nobody holds any more
    node: type[Any] = KernelNode  # how this driver wants a kernel of a graph

    def __post_init__(self) -> None:
        self.presence = Presence(self.name)

    def enter(self) -> None:
        """Makes the card's context this thread's. DeviceError if the card is lost, or this process
        is a fork."""
        self.presence.check()
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
            why = f"{what}: {words}"
            self.presence.lost = why + (f": {cuda.ADVICE[code]}" if code in cuda.ADVICE else "")
            return DeviceError(f"device {self.name} is lost: {self.presence.lost}")
        if code == cuda.OUT_OF_MEMORY:
            return OutOfMemory(f"[{what}] on {self.name}: {words}")
        if code in cuda.REFUSED:
            return CompileError(f"[{what}] on {self.name}: {words}")
        return DeviceError(f"device {self.name}: {what}: {words}")

    def synchronize(self) -> None:
        """Waits for the stream, and gives back what nobody holds."""
        self.enter()
        old = len(self.retired)
        asked = self.driver.functions["cuStreamQuery"]
        wait_until(lambda: asked(self.stream) != cuda.NOT_READY, self.name)
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
        names = ", ".join(f"CUDA:{i}" for i in range(count))
        raise DeviceError(f"device CUDA:{index}: there is no such card; there are: {names}")
    card = driver.number("cuDeviceGet", ctypes.c_int, index)
    context = driver.number("cuDevicePrimaryCtxRetain", Pointer, card)
    memory = driver.number("cuDeviceTotalMem_v2", ctypes.c_size_t, card)
    target = describe(driver, card, f"CUDA:{index}")
    connection = Connection(driver, f"CUDA:{index}", target, context, memory)
    connection.enter()
    connection.stream = connection.made("cuStreamCreate", NON_BLOCKING)
    return connection


def describe(driver: Driver, card: int, name: str) -> Target:
    """The newest row that card and driver both know, with what the driver says of this card."""
    major, minor, warp, *facts = (
        driver.number("cuDeviceGetAttribute", ctypes.c_int, code, card)
        for code in (MAJOR, MINOR, WARP_SIZE, *ATTRIBUTES.values())
    )
    # PTX 7.x came with CUDA 11.x, 8.0 with 12.0
    ptx = 80 if driver.version >= 12_000 else 70 + driver.version % 1000 // 10
    chip = chip_of((major, minor), ptx)
    if chip is None or warp != WARP:
        raise DeviceError(
            f"device {name}: compute capability {major}.{minor} with warps of {warp} lanes, and a "
            f"driver for CUDA {version_text(driver.version)}; needed are 7.5 or later and {WARP}"
        )
    found: dict[str, Any] = {n: v for n, v in zip(ATTRIBUTES, facts, strict=True) if v}
    made = chip_target(chip)
    native = frozenset(permitted(made.native, SETTINGS["CUDA_WITHOUT"].value))
    return replace(made, native=native, **found)
