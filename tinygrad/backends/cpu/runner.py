"""The native code that runs a list of kernels: compiled once, cached.

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

It is written in `runner_program`, and from there in C or LLVM IR (`runner_languages`), so a machine
needs the compiler of either.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tinygrad.backends.cpu.loader import LoadedObject, function_address, load_object
from tinygrad.backends.cpu.runner_program import FUNCTIONS, WAITS
from tinygrad.backends.interface import Compiler
from tinygrad.base.later import later
from tinygrad.base.target import Target

languages = later("tinygrad.backends.cpu.runner_languages")
SOURCES = ("runner_program.py", "runner_languages.py")  # what its code depends on
Place = Callable[[bytes, Sequence[str]], LoadedObject]


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


def load_runner(
    language: int,
    compiler: Compiler,
    target: Target,
    cache: ObjectCache | None = None,
    place: Place = load_object,
) -> Runner:
    """The runner for this machine, from the cache if it is there; else in the language that the
    `compiler` takes. `place` makes binaries callable."""
    machine = target.triple.partition("-")[0].replace("arm64", "aarch64")
    files = [Path(__file__).with_name(name).stat() for name in SOURCES]
    stamps = [(file.st_size, file.st_mtime_ns) for file in files]
    code = target.triple, target.cpu, target.features
    facts = language, system_name(), compiler.version, *code, stamps
    key = hashlib.sha256(repr(facts).encode()).digest()
    binary = None if cache is None else cache.get(key)
    if binary is None:
        binary = compiler.compile(languages.runner_source(language, system_name(), machine))
        if cache is not None:
            cache.put(key, binary)
    return Runner(place(binary, FUNCTIONS), machine)


def wait_functions() -> tuple[int, int]:
    """Addresses of the system's functions to sleep and to wake."""
    row = WAITS[system_name()]
    library: Any = ctypes.CDLL(row.library)
    wait, wake = (function_address(getattr(library, name)) for name in row.functions)
    return wait, wake
