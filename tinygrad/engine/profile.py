"""What ran: counters that are always kept, and the lines that DEBUG prints."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from tinygrad.base.helpers import colored, plural, time_to_str, uncolored
from tinygrad.base.settings import DEBUG
from tinygrad.base.target import Target


class Counters:
    """Totals of the process. `reset()` sets the counters of work to zero, but not `mem_used`.

    >>> GlobalCounters.reset()
    >>> GlobalCounters.kernel_count
    0
    """

    __slots__ = (
        *("global_ops", "global_mem", "time_sum_s", "kernel_count"),
        *("mem_used", "mem_peak", "mem_used_per_device"),
        *("kernels_lowered", "kernels_compiled", "plans_made"),
    )

    def __init__(self) -> None:
        self.reset()
        self.mem_used = self.mem_peak = 0
        self.mem_used_per_device: dict[str, int] = defaultdict(int)

    def reset(self) -> None:
        """Resets the counters of work."""
        self.global_ops = self.global_mem = self.kernel_count = 0
        self.kernels_lowered = self.kernels_compiled = self.plans_made = 0
        self.time_sum_s = 0.0

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leaves the counters of what ran as they are.

        >>> before = GlobalCounters.kernel_count
        >>> with GlobalCounters.uncounted():
        ...     _ = Tensor([1, 2]).sum().realize()
        >>> GlobalCounters.kernel_count - before
        0
        """
        names = ("global_ops", "global_mem", "time_sum_s", "kernel_count")
        before = [getattr(self, name) for name in names]
        try:
            yield
        finally:
            for name, value in zip(names, before, strict=True):
                setattr(self, name, value)

    def count_memory(self, device: str, nbytes: int) -> None:
        """`nbytes` more in use on `device`; less if negative."""
        self.mem_used += nbytes
        self.mem_used_per_device[device] += nbytes
        if self.mem_used > self.mem_peak:
            self.mem_peak = self.mem_used


GlobalCounters = Counters()
"""Those of this process. An object: a class forgets where it found its methods when its attributes
are set, which each run does."""


def show_device(name: str, target: Target) -> None:
    """At DEBUG=1: describes a device that was opened."""
    if DEBUG >= 1:
        print(f"opened {describe_target(name, target)}", file=sys.stderr)


def describe_target(name: str, target: Target) -> str:
    """A device in one line."""
    processor = f" {target.cpu}" if target.cpu else ""
    vector = f"{target.vector}-byte vectors" if target.vector else "scalars"
    groups = f", groups of {target.group_limit}" if target.has_groups else ""
    return f"{name}:{processor} {plural(target.cores, 'core')}, {vector}{groups}"


def report_step(
    device: str, name: str, seconds: float, ops: int, nbytes: int, origin: str | None
) -> None:
    """At DEBUG=2: the line of one kernel or copy: time, GFLOP/s, GB/s, the user's line."""
    GlobalCounters.time_sum_s += seconds
    number = f"{colored(f'*** {device:7s}', 'GREEN')} {GlobalCounters.kernel_count:5d}"
    shown = name + " " * (_NAME_WIDTH - len(uncolored(name)))
    per_nanosecond = 1e-9 / seconds if seconds > 0 else 0.0
    rates = f"{ops * per_nanosecond:8.2f} GFLOP/s {nbytes * per_nanosecond:7.2f} GB/s"
    memory = f"mem {GlobalCounters.mem_used / 1e9:5.2f} GB"
    place = user_place(origin)
    print(
        f"{number} {shown} {time_to_str(seconds)} {rates}  {memory}  {place}".rstrip(),
        file=sys.stderr,
    )


def user_place(origin: str | None) -> str:
    """A `file:line`, relative to the current folder where that is shorter."""
    if origin is None:
        return ""
    try:
        return min(origin, os.path.relpath(origin), key=len)
    except (ValueError, OSError):  # another drive, or a current folder that is gone
        return origin


_NAME_WIDTH = 34
