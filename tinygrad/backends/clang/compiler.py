"""C → a shared object → functions, by the compiler and the loader of the system.

Which compiler: `$CC` if it is set (it may have arguments), else the first of COMPILERS that is
installed. What it is and what it takes this processor for, it says itself: its predefined macros
are part of each cache key, so another compiler, version or processor never meets old code.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinygrad.backends.cpu.loader import LoadedObject, function_address
from tinygrad.backends.llvm_compiler import objdump
from tinygrad.base.errors import CompileError, DeviceError

COMPILERS = ("clang", "gcc", "cc")
NATIVE = (("-march=native",), ("-mcpu=native",), ())  # the first that a compiler understands
HALF = ("-fexcess-precision=16",), ()  # so too: what has no instructions of half rounds each result
FLAGS = (
    "-O2",
    "-ftree-vectorize",  # GCC before 12 doesn't by itself: macros loop over lanes
    "-fwrapv",  # integers wrap
    "-ffp-contract=off",  # each operation rounds
    "-fno-strict-aliasing",  # buffers are bytes
    "-fno-math-errno",
    "-fno-trapping-math",
    "-w",
)
SHARED = ("-shared",) if sys.platform == "win32" else ("-shared", "-fPIC")
MATHS = () if sys.platform == "win32" else ("-lm",)
PATIENCE = 120  # seconds that a compiler may take


@dataclass(frozen=True)
class Found:
    """A C compiler: how it is called, and its predefined macros for this processor."""

    command: tuple[str, ...]
    macros: str


def find_compiler() -> Found:
    """The C compiler of this system. If there is none, a DeviceError that says which were tried."""
    return _found(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@functools.cache
def _found(chosen: str, path: str) -> Found:
    asked = [shlex.split(chosen)] if chosen else [[name] for name in COMPILERS]
    problems = []
    for command in asked:
        program = shutil.which(command[0])
        if program is None:
            problems.append(f"{command[0]} is not there")
            continue
        for native, half in itertools.product(NATIVE, HALF):
            whole = (program, *command[1:], *native, *half)
            done = _run([*whole, "-dM", "-E", "-x", "c", "-"], "")
            if done.returncode == 0 and "__STDC__" in done.stdout:
                return Found(whole, done.stdout)
        problems.append(f"{command[0]} says {done.stderr.strip()[:200]!r}")
    raise DeviceError(
        f"device CLANG: no C compiler answers ({', '.join(problems)}); install one (Debian: "
        "apt-get install clang), name one by CC, or use DEV=CPU, which needs none"
    )


class CCompiler:
    """Compiles one file of C at a time. May be called from several threads at once."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.has_half = "#define __FLT16_MAX__ " in found.macros

    @property
    def version(self) -> str:
        """A digest of the command and of all predefined macros, which tell compiler and
        processor."""
        words = (*self.found.command, *FLAGS, self.found.macros)
        return "C " + hashlib.sha256("\n".join(words).encode()).hexdigest()

    def compile(self, source: str) -> bytes:
        """The shared object of one file. Raises `CompileError` with the compiler's words."""
        with tempfile.TemporaryDirectory(prefix="tinygrad-") as folder:
            made = Path(folder) / "kernel.so"
            whole = [*self.found.command, *FLAGS, *SHARED, "-x", "c", "-", "-o", str(made), *MATHS]
            done = _run(whole, source)
            if done.returncode:
                said = done.stderr.strip() or f"it ended with {done.returncode}"
                raise CompileError(f"[compile] {self.found.command[0]}: {said}\n{source}")
            return made.read_bytes()

    def disassemble(self, binary: bytes) -> str:
        return objdump(binary)


def _run(command: list[str], source: str) -> subprocess.CompletedProcess[str]:
    """A compiler's run, with its messages in English. DeviceError if it can't be started."""
    environment = os.environ | {"LC_ALL": "C"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "env": environment}
    try:
        return subprocess.run(command, input=source, timeout=PATIENCE, check=False, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"device CLANG: the C compiler can't be run: {error}") from error


# ---- loading -------------------------------------------------------------------------------------


class SharedObject:
    """A shared object in this process; it leaves when nobody holds it."""

    def __init__(self, binary: bytes) -> None:
        handle, path = tempfile.mkstemp(prefix="tinygrad-", suffix=".so")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(binary)
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise DeviceError(
                f"device CLANG: the system does not load what was compiled ({error}); legal as "
                "TMPDIR is a folder whose files may be executed"
            ) from error
        finally:
            _remove(path)
        closed = weakref.finalize(self, _close, self.library._handle, path)
        closed.atexit = False  # helper threads may still sleep in it


def _remove(path: str) -> None:
    """Removes a file that was loaded: it is mapped, so its name is not needed any more. On Windows
    it stays until it is closed."""
    try:
        os.unlink(path)
    except OSError:
        return


def _close(handle: int, path: str) -> None:
    import _ctypes

    if sys.platform == "win32":
        _ctypes.FreeLibrary(handle)
        _remove(path)
    else:
        _ctypes.dlclose(handle)


def load_shared(binary: bytes, names: Sequence[str]) -> LoadedObject:
    """The functions `names` of a shared object. Each is found by its entry, `name_run`, which has
    the CPU's calling convention, if it has one."""
    shared = SharedObject(binary)
    found = {}
    for name in names:
        entry = getattr(shared.library, f"{name}_run", None) or getattr(shared.library, name)
        found[name] = function_address(entry)
    return LoadedObject(found, shared)
