"""The CPU device: LLVM's code generator, a native runner of kernel lists, kept host memory.

Read in this order: `features`, `target` (what this machine is); `compiler` (LLVM IR → object code:
the only file that needs LLVM); `relocations`, `loader` (object code → callable functions); `pages`,
`memory` (pages of the system; blocks); `runner_program`, `runner_languages`, `runner` (the native
code that runs a list of kernels); `pool`, `queue` (helper threads; segments).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tinygrad.backends.cpu.memory import HostMemory
from tinygrad.backends.cpu.pool import Pool
from tinygrad.backends.cpu.queue import CPUQueue
from tinygrad.backends.cpu.runner import ObjectCache, Runner, load_runner
from tinygrad.backends.cpu.runner_program import LLVM
from tinygrad.backends.cpu.target import core_count, host_target
from tinygrad.backends.interface import Backend, Compiler
from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.base.later import later

__all__ = [
    "ObjectCache",
    "core_count",
    "host_memory",
    "host_target",
    "open_device",
    "open_queue",
    "pool_of",
]


def open_device(index: int = 0, cache: ObjectCache | None = None) -> Backend:
    """The CPU. Every index is the same cores with a queue of its own and shared memory; `cache`
    keeps the runner's object code, so that a warm process need not load LLVM."""
    target = host_target()
    compiler = LLVMCompiler(target)
    queue = open_queue(compiler, cache)
    renderer = later("tinygrad.backends.llvm_ir", "LLVMRenderer", target)
    return Backend(target, renderer, compiler, host_memory(), queue)


def open_queue(
    compiler: Compiler, cache: ObjectCache | None = None, threads: int | None = None
) -> CPUQueue:
    """A queue on `threads` threads, the caller among them; None: one a core (see CPU_COUNT)."""
    target = host_target()
    pool = pool_of(threads or core_count(), lambda: load_runner(LLVM, compiler, target, cache))
    return CPUQueue(pool)


@functools.cache
def host_memory() -> HostMemory:
    """The one memory of the process: all CPU devices see the same bytes."""
    return HostMemory()


_pools: dict[int, Pool] = {}


def pool_of(threads: int, runner: Callable[[], Runner]) -> Pool:
    """The process's pool of so many threads; made once, with the `runner` of whichever device asks
    first."""
    if threads not in _pools:
        _pools[threads] = Pool(runner(), threads)
    return _pools[threads]
