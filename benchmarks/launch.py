"""What it costs to launch a kernel on the CPU: inside a segment, from Python, and with helpers.

    python benchmarks/launch.py

Each line is the median and the minimum over many rounds; machines that share cores with others
stall for milliseconds at a time, so look at the minimum first.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable

from tinygrad.backends.cpu import host_memory, host_target, open_queue
from tinygrad.backends.cpu.loader import load_object
from tinygrad.backends.cpu.queue import CPUQueue
from tinygrad.backends.interface import Launch
from tinygrad.backends.llvm_compiler import LLVMCompiler

KERNELS = """
define void @empty(ptr %args, i64 %low, i64 %high, ptr %scratch) {
  ret void
}
; each task adds 1.0 to 1024 floats: 4 KiB
define void @tiny(ptr %args, i64 %low, i64 %high, ptr %scratch) {
entry:
  %x = load ptr, ptr %args
  %first = mul i64 %low, 1024
  %end = mul i64 %high, 1024
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %x, i64 %i
  %old = load <16 x float>, ptr %at, align 4
  %new = fadd <16 x float> %old, splat (float 1.0)
  store <16 x float> %new, ptr %at, align 4
  %next = add i64 %i, 16
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""


def measure(label: str, run: Callable[[], object], per: int, rounds: int = 60) -> None:
    """Print microseconds of one of the `per` things that `run` does."""
    times = []
    for _ in range(5):
        run()
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) / per * 1e6)
    times.sort()
    print(f"{label:58s} {times[len(times) // 2]:8.3f} us   (min {times[0]:.3f})", flush=True)


def measure_after_idle(label: str, run: Callable[[], object], idle: float) -> None:
    """Print microseconds of one `run` after `idle` seconds of nothing: helpers have gone to
    sleep, and so has the core."""
    times = []
    for _ in range(60):
        time.sleep(idle)
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    print(f"{label:58s} {times[len(times) // 2]:8.1f} us   (min {times[0]:.1f})", flush=True)


def lists(queue: CPUQueue, binary: bytes, x: int, threads: int) -> None:
    """Lists of many kernels, and single ones."""
    n = 1000
    for name in ("empty", "tiny"):
        function = queue.load(binary, name)
        for tasks in (1, 2, 16, 256):
            launch = Launch(function, buffers=(0,), grid=(tasks, 1, 1))
            many, one = queue.segment([launch] * n), queue.segment([launch])
            what = f"{threads} threads: {name}, {tasks} tasks"
            measure(f"{what}, in a list of {n}", functools.partial(many.run, [x], []), n)
            if tasks <= 2:
                measure(f"{what}, alone from Python", functools.partial(one.run, [x], []), 1)


def wake_up(queue: CPUQueue, binary: bytes, x: int) -> None:
    """How long a sleeping helper takes, seen from a kernel that one or two threads share."""
    function = queue.load(binary, "tiny")
    launch = Launch(function, buffers=(0,), grid=(64, 1, 1))
    segment = queue.segment([launch])
    alone = queue.segment([Launch(function, buffers=(0,), grid=(64, 1, 1), work=1)])
    for idle in (0.0, 0.005):
        after = f"after {idle * 1e3:.0f} ms idle"
        measure_after_idle(f"64 x 4 KiB, caller alone, {after}", lambda: alone.run([x], []), idle)
        measure_after_idle(
            f"64 x 4 KiB, helpers woken, {after}", lambda: segment.run([x], []), idle
        )


def main() -> None:
    """Measure everything."""
    compiler = LLVMCompiler(host_target())
    print(f"{host_target().cpu}, {host_target().cores} cores")
    binary = compiler.compile(KERNELS)
    x = host_memory().allocate(1 << 20)
    ctypes.memset(x, 0, 1 << 20)
    for threads in (1, 2):
        lists(open_queue(compiler, threads=threads), binary, x, threads)
    wake_up(open_queue(compiler, threads=2), binary, x)
    measure("load an object of two kernels", lambda: load_object(binary, ("tiny",)), 1)
    measure(
        "allocate and free 4 MiB", lambda: host_memory().free(host_memory().allocate(4 << 20)), 1
    )


if __name__ == "__main__":
    main()
