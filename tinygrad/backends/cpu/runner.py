"""The native code that runs a list of kernels: written as LLVM IR text, compiled once, cached.

Python writes the pointers of a segment into one table and makes one call. Everything between two
kernels happens here: filling a kernel's argument table, splitting its tasks among threads, waiting
for the last one. Rules that make it robust when cores are taken away by other programs:

- the caller works too, and alone if nobody helps; helpers are optional at every moment;
- a helper takes part only by taking a chunk of tasks from a counter, so the caller waits only for
  chunks that somebody is working on, never for a thread that has not come;
- a kernel ends by the count of its finished chunks, never by a count of threads;
- who waits spins briefly, then sleeps in the system, and is woken;
- nobody begins a chunk once the word `stop` is not 0: a list ends early, when the chunks that were
  begun are over.

Each thread has a seat with a range of a kernel's chunks: its own first, so that a core finds what
it wrote one kernel ago in its cache; then those of the others, so that nobody waits while there is
work. The seats' counters `remaining` alone protect the kernel's words: whoever brings one from
n > 0 to n - 1 owns a chunk, and the open kernel can't end before that chunk is counted in
`finished`. So a helper that slept through ten kernels can do no harm. Storing `remaining` and
counting chunks are atomic exchanges, which also order the non-temporal stores of kernels before.

Its text is in `runner_ir.py`. Nothing there knows an operating system but the table WAITS, nor a
machine but the table PAUSES.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import sys
from collections.abc import Callable
from typing import Any, Protocol

from tinygrad.backends.cpu.loader import LoadedObject, function_address, load_object
from tinygrad.backends.cpu.runner_ir import WAITS, runner_source
from tinygrad.backends.interface import Compiler

FUNCTIONS = ("run_list", "help", "dismiss")

# How a list begins: records, count, stop. Behind it lie pool, scratch and the table.
LIST = struct.Struct("3q")
# One kernel of a list: function, arguments, positions, count, tasks, chunk, chunks, ranges, wake.
# `arguments` is filled from the list's table at `count` `positions` (i32 each); `chunks` 0 means
# that the caller runs all tasks itself; `ranges` is how many seats the chunks are dealt to; `wake`
# allows waking sleeping helpers.
RECORD = struct.Struct("9q")


class ObjectCache(Protocol):
    """Where compiled objects survive the process; the engine has one."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...


class Runner:
    """The loaded native code: `run_list(list)`, `help(pool, thread)`, `dismiss(pool, thread)`. All
    arguments are addresses or integers. They are few, since each makes a call from Python
    slower."""

    def __init__(self, code: LoadedObject, machine: str) -> None:
        self.code = code
        self.machine = machine
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.run_list: Callable[[int], None] = ctypes.CFUNCTYPE(None, pointer)(
            code.address("run_list")
        )
        self.help: Callable[[int, int], None] = ctypes.CFUNCTYPE(None, pointer, integer)(
            code.address("help")
        )
        self.dismiss: Callable[[int, int], None] = ctypes.CFUNCTYPE(None, pointer, integer)(
            code.address("dismiss")
        )


def system_name() -> str:
    """The operating system as the table WAITS names it."""
    return "linux" if sys.platform.startswith("linux") else sys.platform


def load_runner(compiler: Compiler, triple: str, cache: ObjectCache | None = None) -> Runner:
    """The runner for this machine, from the cache if it is there."""
    machine = triple.partition("-")[0].replace("arm64", "aarch64")
    source = runner_source(system_name(), machine)
    binary = cached_object(compiler, source, triple, cache)
    return Runner(load_object(binary, FUNCTIONS), machine)


def cached_object(
    compiler: Compiler, source: str, machine: str, cache: ObjectCache | None
) -> bytes:
    """The object code of `source` for `machine`: compiled once."""
    key = hashlib.sha256(f"{source}\n{compiler.version}\n{machine}".encode()).digest()
    binary = None if cache is None else cache.get(key)
    if binary is None:
        binary = compiler.compile(source)
        if cache is not None:
            cache.put(key, binary)
    return binary


def wait_functions(machine: str) -> tuple[int, int]:
    """Addresses of the system's functions to sleep and to wake."""
    row = WAITS[system_name(), machine]
    library: Any = ctypes.CDLL(row.library)
    wait, wake = (function_address(getattr(library, name)) for name in row.functions)
    return wait, wake
