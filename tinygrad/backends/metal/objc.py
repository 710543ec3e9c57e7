"""Messages to Objective-C objects, by ctypes.

Each message is a C call of `objc_msgSend` that must have the argument and result types of the
method which it reaches, or registers hold something else: the table has a row for each method that
the device uses. An object is its address.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tinygrad.base.errors import DeviceError

FRAMEWORKS = "/System/Library/Frameworks"
OBJC = "/usr/lib/libobjc.dylib"
METAL = f"{FRAMEWORKS}/Metal.framework/Metal"
# Metal names no default device in a process that has not loaded this.
GRAPHICS = f"{FRAMEWORKS}/CoreGraphics.framework/CoreGraphics"

ID, TEXT, COUNT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t  # the last is NSUInteger


class Size(ctypes.Structure):
    """MTLSize."""

    _fields_: ClassVar = [("width", COUNT), ("height", COUNT), ("depth", COUNT)]


class Span(ctypes.Structure):
    """NSRange."""

    _fields_: ClassVar = [("start", COUNT), ("length", COUNT)]


ERROR = ctypes.POINTER(ID)  # where a method puts an NSError

# Methods without arguments, by their result.
PLAIN: dict[Any, str] = {
    ID: "new retain localizedDescription name newCommandQueue contents commandBuffer error "
    "computeCommandEncoder",
    None: "release commit endEncoding",
    TEXT: "UTF8String",
    COUNT: "count status maxBufferLength maxThreadgroupMemoryLength maxTotalThreadsPerThreadgroup "
    "recommendedMaxWorkingSetSize",
    ctypes.c_ssize_t: "code",
    ctypes.c_double: "GPUStartTime GPUEndTime",
}
# selector → result, arguments
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{word: (result, ()) for result, words in PLAIN.items() for word in words.split()},
    "stringWithUTF8String:": (ID, (TEXT,)),
    "objectAtIndex:": (ID, (COUNT,)),
    "newBufferWithLength:options:": (ID, (COUNT, COUNT)),
    "newLibraryWithSource:options:error:": (ID, (ID, ID, ERROR)),
    "newComputePipelineStateWithFunction:error:": (ID, (ID, ERROR)),
    "newFunctionWithName:": (ID, (ID,)),
    "setFastMathEnabled:": (None, (ctypes.c_bool,)),
    "setLanguageVersion:": (None, (COUNT,)),
    "setComputePipelineState:": (None, (ID,)),
    "setBuffers:offsets:withRange:": (None, (ctypes.POINTER(ID), ctypes.POINTER(COUNT), Span)),
    "setBytes:length:atIndex:": (None, (ID, COUNT, COUNT)),
    "dispatchThreadgroups:threadsPerThreadgroup:": (None, (Size, Size)),
}


def open_library(path: str) -> Any:
    """A library of Apple's. DeviceError on other systems."""
    if sys.platform != "darwin":
        raise DeviceError(
            f"device METAL: no Metal library here: it is a part of macOS, and this system is "
            f"{sys.platform}. DEV=CPU needs none"
        )
    return ctypes.CDLL(path)


class ObjC:
    """The runtime: `objc(receiver, "selector:", argument)` sends a message."""

    def __init__(self, open_library: Callable[[str], Any]) -> None:
        self.library = open_library(OBJC)
        open_library(GRAPHICS)
        self.metal = open_library(METAL)
        self.named = self.function(self.library, "objc_getClass", ID, TEXT)
        self._selector = self.function(self.library, "sel_registerName", ID, TEXT)
        self._push = self.function(self.library, "objc_autoreleasePoolPush", ID)
        self._pop = self.function(self.library, "objc_autoreleasePoolPop", None, ID)
        self._sends: dict[str, tuple[Any, int]] = {}

    def function(self, library: Any, name: str, result: Any, *arguments: Any) -> Any:
        """A function of its own type: `library[name]` is a new object each time."""
        function = library[name]
        function.restype, function.argtypes = result, arguments
        return function

    def __call__(self, receiver: int, selector: str, *arguments: Any) -> Any:
        found = self._sends.get(selector)
        if found is None:
            result, kinds = SIGNATURES[selector]
            send = self.function(self.library, "objc_msgSend", result, ID, ID, *kinds)
            found = self._sends[selector] = send, self._selector(selector.encode())
        return found[0](receiver, found[1], *arguments)

    def string(self, text: str) -> int:
        """An NSString that lives as long as the pool around."""
        return int(self(self.named(b"NSString"), "stringWithUTF8String:", text.encode()))

    def text(self, string: int | None) -> str:
        """What an NSString says."""
        return self(string, "UTF8String").decode(errors="replace") if string else ""

    @contextlib.contextmanager
    def pool(self) -> Iterator[None]:
        """What methods return without `new` in their names is released at the end."""
        token = self._push()
        try:
            yield
        finally:
            self._pop(token)


class Held:
    """An object that we own: released when nobody holds this any more."""

    __slots__ = ("id", "objc")

    def __init__(self, objc: ObjC, address: int) -> None:
        self.objc, self.id = objc, address

    def __del__(self, at_the_end: Callable[[], bool] = sys.is_finalizing) -> None:
        if not at_the_end():
            self.objc(self.id, "release")
