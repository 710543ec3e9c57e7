"""The CLANG device: kernels as C that people can read, compiled by the system's own compiler.

It is the CPU device with the first two parts exchanged: the renderer writes C (`DEBUG=4` prints
it), and the compiler is whatever the machine has. Memory, helper threads and segments are the
CPU's, so tensors of both lie in the same place. Nothing here needs llvmlite.

compiler   finds a C compiler; C → shared object; shared object → callable functions
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinygrad.backends.c_dialect import C_BITS, C
from tinygrad.backends.c_family import CRenderer
from tinygrad.backends.clang.compiler import CCompiler, find_compiler, load_shared
from tinygrad.backends.cpu import core_count, host_memory, host_target, pool_of
from tinygrad.backends.cpu.queue import CPUQueue
from tinygrad.backends.cpu.runner import Runner, load_runner
from tinygrad.backends.cpu.runner_program import C as C_TEXT
from tinygrad.backends.interface import Backend
from tinygrad.base.target import Target

__all__ = ["open_device"]


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """The CPU, with code compiled from C. DeviceError where there is no C compiler."""
    compiler = CCompiler(find_compiler())
    pool = pool_of(core_count(), lambda: load_c_runner(compiler, cache))
    target = describe(host_target(), compiler.has_half)
    renderer = CRenderer(C if compiler.has_half else C_BITS, entry=True)
    return Backend(target, renderer, compiler, host_memory(), CPUQueue(pool, load_shared))


def load_c_runner(compiler: CCompiler, cache: Any = None) -> Runner:
    """The CPU's runner of kernel lists, made by the C compiler."""
    return load_runner(C_TEXT, compiler, host_target(), cache, load_shared)


def describe(host: Target, has_half: bool) -> Target:
    """The host as a program in C sees it, without instructions that C has no name for. The
    processor that the compiler makes code for is a part of its version."""
    lacks = {"CAST_BFLOAT", "LDEXP", "masked_store"} | (set() if has_half else {"CAST_HALF"})
    return replace(
        host,
        device="CLANG",
        triple="",
        cpu="",
        features="",
        dtypes=host.dtypes - {"float16"},
        native=host.native - lacks,
    )
