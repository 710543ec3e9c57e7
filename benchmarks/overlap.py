"""Whether copies between devices overlap computation: wall-clock of the copies alone, of the
kernels alone, and of both in one captured step.

    python benchmarks/overlap.py                  # CPU and CPU:1
    python benchmarks/overlap.py CL CL:1          # two cards; POCL_DEVICES="basic basic" makes two

One device computes while what it made before goes to the other. `hidden` is how much of the shorter
of both disappears behind the longer: 1 is all of it, 0 is one after the other. On a machine whose
devices are its processor, and whose processor's cores all compute, there is nobody to copy
meanwhile: `CPU_COUNT=1` leaves a core free.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from tinygrad import Device, Tensor, TinyJit

ROUNDS = 15


def median_times(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Milliseconds of each step, the steps in turn."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(3):  # plans, captures
        for step in steps.values():
            step()
    for _ in range(ROUNDS):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            found[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(times) for name, times in found.items()}


def measured(devices: tuple[str, str], megabytes: int, size: int) -> dict[str, float]:
    """The times for that many megabytes, and a product of square matrices of this size."""
    here, there = devices
    bytes_here = Tensor.rand(megabytes << 18, device=here).realize()
    a, b = (Tensor.rand(size, size, device=here).realize() for _ in range(2))

    @TinyJit
    def copy(x: Tensor) -> Tensor:
        return x.to(there).realize()

    @TinyJit
    def compute(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).realize()

    @TinyJit
    def both(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        moved, made = x.to(there), a @ b
        Tensor.realize(moved, made)
        return moved, made

    def settled(step: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            step()
            for name in devices:
                Device[name].synchronize()

        return run

    return median_times(
        {
            "copies": settled(lambda: copy(bytes_here)),
            "kernels": settled(lambda: compute(a, b)),
            "both": settled(lambda: both(bytes_here, a, b)),
        }
    )


def main() -> None:
    """Prints a row a size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("devices", nargs="*", default=["CPU", "CPU:1"])
    devices = tuple(Device.canonicalize(name) for name in parser.parse_args().devices)
    print(f"{devices[0]} computes, and copies to {devices[1]}; milliseconds, median of {ROUNDS}")
    print(
        "| MB | product | copies | kernels | both | sum | hidden |\n|--:|--:|--:|--:|--:|--:|--:|"
    )
    for megabytes, size in ((32, 512), (64, 768), (128, 1024)):
        t = measured(devices, megabytes, size)
        total = t["copies"] + t["kernels"]
        hidden = (total - t["both"]) / min(t["copies"], t["kernels"])
        cells = f"{t['copies']:.1f} | {t['kernels']:.1f} | {t['both']:.1f} | {total:.1f}"
        print(f"| {megabytes} | {size} | {cells} | {hidden:.2f} |", flush=True)


if __name__ == "__main__":
    main()
