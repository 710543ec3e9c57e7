"""What a backend is: four small protocols, and the plain records that pass between them.

A *renderer* turns a linear program into source, a *compiler* turns source into a binary, a
*memory* owns the bytes of a device, a *queue* runs binaries. Nothing here knows a device's name.
The engine calls these and nothing else, so a new backend is a folder with these four and a
`Target` that states what the device can do. docs/new_backend.md makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tinygrad.base.target import Target

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ALIGNMENT = 64
"""The alignment in bytes of memory blocks that hosts can address. Kernels rely on it for what they
write; what they read may be another library's memory, with any alignment."""


class TensorView(NamedTuple):
    """A buffer as a tensor of elements of `itemsize` bytes, from which a kernel copies boxes: its
    sizes, its strides except the first, which is 1, and the shape of the boxes; the fastest axis
    first. Boxes are stored in rows of 128 bytes, swizzled (`codegen/addresses`)."""

    buffer: int  # its position among the kernel's
    itemsize: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One kernel of a segment; buffers and values are given as positions in the segment's two
    tables.

    `function` is what `Queue.load` returned. The kernel's argument table holds first the pointers
    of `buffers`, then `values` as signed 64-bit integers (bound variables). On a CPU `grid[0]` is
    the number of tasks, which any thread may run in any order; each thread gets `scratch` bytes. On
    a GPU `grid` is the number of work-groups, and `block` the work-items of each. `work` estimates
    the nanoseconds of the whole launch on one core, 0 if unknown: a CPU runs small kernels on one
    thread, and wakes sleeping threads only for enough work. `tensors` are arguments after the
    values, on devices whose kernels copy boxes of them.
    """

    function: Any
    buffers: tuple[int, ...]
    values: tuple[int, ...] = ()
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    scratch: int = 0
    work: int = 0
    tensors: tuple[TensorView, ...] = ()


class Renderer(Protocol):
    """Linear program → source text of one function named `name`."""

    def render(self, name: str, program: Sequence[Any]) -> str: ...


class Compiler(Protocol):
    """Source → binary. Binaries are stored on disk by kernel, Target, `version` and a stamp of this
    package's code, and are looked up before anything is rendered."""

    @property
    def version(self) -> str:
        """Text that changes whenever an external renderer or compiler may produce other code."""

    def compile(self, source: str) -> bytes:
        """Raises `CompileError` (base.errors) with the compiler's message."""

    def disassemble(self, binary: bytes) -> str:
        """The text that DEBUG=7 shows."""


class Memory(Protocol):
    """The memory of one device. A handle is opaque to everything but its own queue."""

    def allocate(self, nbytes: int) -> Any:
        """A block of at least `nbytes` bytes, 64-byte aligned where pointers exist.

        A limited amount of freed blocks is kept and reused. Raises `OutOfMemory` (base.errors)."""

    def free(self, handle: Any, nbytes: int) -> None:
        """Kernels that were run before may still use the block: work on the next owner's data is
        later in the queue."""

    def write(self, handle: Any, data: memoryview, offset: int = 0) -> None:
        """Overwrites bytes, after all kernels that were run before. The caller may reuse `data`
        when this returns."""

    def read(self, handle: Any, nbytes: int, offset: int = 0) -> bytearray | memoryview:
        """The bytes, after all kernels that were run before: the memory itself if the host can
        address it, else a copy."""

    def view(self, handle: Any, offset: int) -> Any:
        """A handle `offset` bytes into another one, which the caller keeps alive."""

    def borrow(self, data: memoryview) -> Any | None:
        """A handle to host memory that others own and keep alive (a mapped file, another library's
        array), aligned only to its elements; None if the device can't address it."""

    def address(self, handle: Any) -> int | None:
        """The host address of the bytes; None if the host can't address them."""


class Segment(Protocol):
    """A prepared list of kernels: built once, run many times with different tables."""

    def run(
        self, buffers: Sequence[Any], values: Sequence[int], timed: bool = False
    ) -> list[float]:
        """Runs the kernels in order; with `timed`, waits and returns the seconds of each kernel.

        Kernels of one segment, and segments of one queue, see each other's writes in order."""


@runtime_checkable
class OneCall(Protocol):
    """A segment whose kernels run in one call of C, if `is_one_call`. Its `run` takes a list `over`
    besides, which gets an element within that call: so whatever Ctrl-C breaks off, it is known
    whether they have run."""

    is_one_call: bool


class Queue(Protocol):
    """Runs binaries on one device."""

    def load(self, binary: bytes, name: str) -> Any:
        """The function called `name` in `binary`, ready for a Launch. Fast; no compiler runs."""

    def segment(self, launches: Sequence[Launch]) -> Segment:
        """The kernels, prepared."""

    def synchronize(self) -> None:
        """Returns when all work has finished; raises `DeviceError` if it failed."""


@dataclass(frozen=True)
class Backend:
    """What `backends/<name>/__init__.py` returns from `open_device(index, cache)`. The cache stores
    bytes on disk, for a backend that compiles something of its own (the CPU's runner)."""

    target: Target
    renderer: Renderer
    compiler: Compiler
    memory: Memory
    queue: Queue
    copy_from: Callable[[Any, Memory, Any, int], None] | None = None
    """Copies bytes from another device of this kind without the host: a handle here, the other's
    memory, a handle there, the number of bytes. Concurrent work of the two devices touches neither;
    when the function returns the bytes are here."""
