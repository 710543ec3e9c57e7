"""Finds a GPU of Apple's and describes it."""

from __future__ import annotations

import ctypes
import platform
import threading

from tinygrad.backends.interface import INTEGERS
from tinygrad.backends.metal.objc import ID, Held, ObjC, open_library
from tinygrad.backends.presence import Presence, wait_until
from tinygrad.base.errors import CompileError, DeviceError, OutOfMemory
from tinygrad.base.target import ORDINARY, Numerics, Target

COMPUTED = frozenset(("bool", *INTEGERS, "float16", "float32"))
STORED = COMPUTED | {"bfloat16", "fp8e4m3", "fp8e5m2"}
NATIVE = ORDINARY | {"PICK", "TRUNC", "ROUND", "RECIP", "CAST_HALF", "MULACC"}
MOST_LANES = 1024  # of a group, on every GPU since Apple4 and on all of a Mac
WITH_BFLOAT, WITH_LONG = (3, 1), (2, 3)  # versions of the language: macOS 14, macOS 11
PROBE = "#include <metal_stdlib>\n[[kernel]] void probe(device bfloat* data [[buffer(0)]]) {}\n"

MOST_UNDER_WAY = 64  # a queue has no more command buffers that are not done
COMPLETED, FAILED = 4, 5  # of MTLCommandBufferStatus
TIMEOUT, OUT_OF_MEMORY = 2, 8  # of MTLCommandBufferError
# What the device survives. After all other errors it is lost for this process.
SURVIVED = {
    TIMEOUT: "a kernel ran longer than the system allows; legal is less work at once",
    OUT_OF_MEMORY: "there is not enough memory; free tensors, or use smaller ones",
}


class Connection:
    """One device with a queue of commands that run in order."""

    def __init__(self, objc: ObjC, device: Held, index: int) -> None:
        self.objc, self.device = objc, device
        self.presence = Presence(f"METAL:{index}" if index else "METAL")
        self.lock = threading.RLock()
        self.under_way: list[Held] = []  # command buffers, oldest first
        with objc.pool():
            self.name = objc.text(objc(device.id, "name"))
            self.queue = self.made(objc(device.id, "newCommandQueue"), "command queue")
        try:
            self.language = WITH_BFLOAT
            self.build(PROBE)
        except CompileError:
            self.language = WITH_LONG

    def made(self, address: int | None, what: str) -> Held:
        """The object that a method returned. DeviceError if it returned none."""
        if not address:
            raise DeviceError(f"device {self.presence.label}: {self.name} gives no {what}")
        return Held(self.objc, address)

    def build(self, source: str) -> Held:
        """The library of a source. CompileError with the compiler's words."""
        self.presence.check()
        objc, error = self.objc, ID()
        major, minor = self.language
        options = Held(objc, objc(objc.named(b"MTLCompileOptions"), "new"))
        objc(options.id, "setFastMathEnabled:", False)
        objc(options.id, "setLanguageVersion:", (major << 16) + minor)
        with objc.pool():
            text, where = objc.string(source), ctypes.byref(error)
            made = objc(
                self.device.id, "newLibraryWithSource:options:error:", text, options.id, where
            )
            if not made:
                raise CompileError(f"[compile] Metal: {self.words(error.value)}\n{source}")
        return Held(objc, made)

    def words(self, error: int | None) -> str:
        """What an NSError says."""
        return self.objc.text(self.objc(error or 0, "localizedDescription"))

    # ---- what is under way -----------------------------------------------------------------------

    def sent(self, commands: Held) -> None:
        """Remembers commands that were committed. If there are too many, the oldest are waited
        for."""
        self.under_way.append(commands)
        while len(self.under_way) > MOST_UNDER_WAY:
            self._finish()

    def wait(self) -> None:
        """Waits until everything that was committed is done. Raises the first error among it."""
        self.presence.check()
        with self.lock:
            while self.under_way:
                self._finish()

    def _finish(self) -> None:
        objc, commands = self.objc, self.under_way[0]
        wait_until(lambda: objc(commands.id, "status") >= COMPLETED, self.presence.label)
        if objc(self.under_way.pop(0).id, "status") != FAILED:
            return
        with objc.pool():
            error = objc(commands.id, "error")
            words, code = self.words(error), objc(error, "code")
        self.under_way.clear()
        message = f"{SURVIVED.get(code, 'its commands failed')} ({words})"
        if code not in SURVIVED:
            self.presence.lost = message
        kind = OutOfMemory if code == OUT_OF_MEMORY else DeviceError
        raise kind(f"device {self.presence.label}: {message}")


def connect(index: int) -> Connection:
    """Device number `index` of this machine, the system's default first."""
    objc = ObjC(open_library)
    with objc.pool():
        default = objc.function(objc.metal, "MTLCreateSystemDefaultDevice", ID)()
        every = objc.function(objc.metal, "MTLCopyAllDevices", ID)() or 0
        found = [objc(every, "objectAtIndex:", i) for i in range(objc(every, "count"))]
        found.sort(key=lambda device: device != default)
        if index >= len(found):
            names = ", ".join(objc.text(objc(device, "name")) for device in found)
            raise DeviceError(f"device METAL:{index}: macOS has {names or 'no GPU for Metal'}")
        return Connection(objc, Held(objc, objc(found[index], "retain")), index)


def describe(connection: Connection) -> Target:
    """The device in our terms, as it describes itself."""
    return Target(
        device="METAL",
        cpu=connection.name,
        features=f"macOS {platform.mac_ver()[0]}",
        cache_line=128,
        most_lanes=4,
        has_groups=True,
        warp=32 if connection.name.startswith("Apple") else 0,
        aligned=True,
        buffer_limit=28,  # of 31 arguments; the others are for variables
        largest_buffer=connection.objc(connection.device.id, "maxBufferLength"),
        group_limit=MOST_LANES,
        local_memory=connection.objc(connection.device.id, "maxThreadgroupMemoryLength"),
        dtypes=COMPUTED,
        storage_dtypes=STORED,
        native=NATIVE | ({"CAST_BFLOAT16"} if connection.language == WITH_BFLOAT else set()),
        numerics=Numerics(subnormals=False),
    )
