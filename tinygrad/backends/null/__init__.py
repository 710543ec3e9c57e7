"""The NULL device: allocates nothing and runs nothing, so that everything before it can be tested
and timed on any machine. Kernels are rendered as C; what is read back is zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.backends.interface import INTEGERS, Backend, Launch
from tinygrad.base.later import later
from tinygrad.base.target import ORDINARY, Numerics, Target

DTYPES = frozenset(("bool", *INTEGERS, "float32", "float64"))
NATIVE = ORDINARY | {"PICK", "MULACC", "TRUNC", "ROUND", "RECIP", "CAST_HALF"}
TARGET = Target(
    device="NULL",
    vector=16,
    dtypes=DTYPES,
    storage_dtypes=DTYPES | {"float16", "bfloat16"},
    native=NATIVE,
    numerics=Numerics(values=False),
)


class NullCompiler:
    """The binary is the source."""

    version = "1"

    def compile(self, source: str) -> bytes:
        return source.encode()

    def disassemble(self, binary: bytes) -> str:
        return binary.decode()


class NullMemory:
    """No memory: a handle is a number of bytes."""

    def allocate(self, nbytes: int) -> int:
        return nbytes

    def free(self, handle: int, nbytes: int) -> None:
        """Nothing was allocated."""

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        """Forgets the bytes."""

    def read(self, handle: int, nbytes: int, offset: int = 0) -> bytearray:
        return bytearray(nbytes)

    def view(self, handle: int, offset: int) -> int:
        return handle - offset

    def borrow(self, data: memoryview) -> int:
        return data.nbytes

    def address(self, handle: int) -> None:
        return None


class NullQueue:
    """Runs nothing."""

    def load(self, binary: bytes, name: str) -> str:
        return name

    def segment(self, launches: Sequence[Launch]) -> NullSegment:
        return NullSegment(len(launches))

    def synchronize(self) -> None:
        """Nothing is under way."""


class NullSegment:
    """A number of kernels."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(
        self, buffers: Sequence[Any], values: Sequence[int], timed: bool = False
    ) -> list[float]:
        return [0.0] * self.count if timed else []


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """A device that is always there."""
    renderer = later("tinygrad.backends.c_family", "CRenderer")
    return Backend(TARGET, renderer, NullCompiler(), NullMemory(), NullQueue())
