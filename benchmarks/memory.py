"""The most bytes of buffers that live at once in a training step, beside PyTorch's.

    python benchmarks/memory.py [--cases 'mnist*,gpt*']

Ours: GlobalCounters.mem_peak, of a step as it is written and of its capture. PyTorch's: what its
profiler says of each allocation on the CPU, added up over a step after the first three. Both with
parameters, optimizer state, gradients and the step's inputs; scratch memory inside of kernels is
counted by neither. Each framework runs in a process of its own; PyTorch's is left out where it is
not installed.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from asked import matching
from suite import CASES, Inputs

HERE = Path(__file__).resolve().parent
STEPS = [name for name in CASES if "train_step" in name]
WARM_UP_CALLS = 3


class Counted(Inputs):
    """Inputs, and how many bytes they are: PyTorch does not see what lies in NumPy's memory."""

    nbytes = 0

    def normal(self, *shape: int) -> Any:
        """See Inputs."""
        made = super().normal(*shape)
        self.nbytes += made.nbytes
        return made

    def below(self, high: int, *shape: int) -> Any:
        """See Inputs."""
        made = super().below(high, *shape)
        self.nbytes += made.nbytes
        return made


def of_tinygrad(case: str) -> dict[str, int]:
    """Peaks of the plain step and of the captured one."""
    import cases_tinygrad

    from tinygrad import Context, GlobalCounters

    peaks = {}
    for way, jit in (("plain", 0), ("captured", 1)):
        gc.collect()
        before = GlobalCounters.mem_used
        with Context(JIT=jit):
            step = getattr(cases_tinygrad, case)(Inputs())
            for _ in range(1 + WARM_UP_CALLS):
                step()
            gc.collect()
            GlobalCounters.mem_peak = GlobalCounters.mem_used
            step()
        peaks[way] = GlobalCounters.mem_peak - before
        del step
    return peaks


def of_torch(case: str) -> dict[str, int]:
    """The peak of the running sum of allocations during a step."""
    import cases_torch
    from torch.profiler import ProfilerActivity, profile, record_function

    inputs = Counted()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step = getattr(cases_torch, case)(inputs)
        for _ in range(WARM_UP_CALLS):
            step()
        with record_function("measured"):
            step()
    events = profiled.profiler.kineto_results.events()  # type: ignore[union-attr]
    (measured,) = (e for e in events if e.name() == "measured")
    live, peak = inputs.nbytes, 0
    moments = ((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    for moment, nbytes in sorted(moments, key=lambda pair: pair[0]):
        live += nbytes
        if measured.start_ns() <= moment <= measured.end_ns():
            peak = max(peak, live)
    return {"torch": peak}


WAYS = {"tinygrad": of_tinygrad, "torch": of_torch}


def peaks_of(case: str) -> dict[str, int]:
    """What each framework says, in processes of their own."""
    found: dict[str, int] = {}
    for framework in WAYS:
        command = [sys.executable, str(HERE / "memory.py"), "--inside", framework, case]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode == 0:
            found |= json.loads(made.stdout.splitlines()[-1])
        elif framework == "tinygrad":
            raise SystemExit(made.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Peaks of live buffer bytes of training steps.")
    parser.add_argument("--cases", default="*", help="names or patterns, with commas")
    parser.add_argument("--inside", nargs=2, metavar=("FRAMEWORK", "CASE"), help="for its own use")
    options = parser.parse_args()
    if options.inside:
        framework, case = options.inside
        print(json.dumps(WAYS[framework](case)))
        return
    print("| million bytes | plain | captured | torch |\n| --- | --: | --: | --: |")
    for case in matching(options.cases, STEPS):
        peaks = peaks_of(case)
        shown = (f"{peaks[w] / 1e6:.2f}" if w in peaks else "-" for w in COLUMNS)
        print(f"| {case} | {' | '.join(shown)} |", flush=True)


COLUMNS = ("plain", "captured", "torch")

if __name__ == "__main__":
    main()
