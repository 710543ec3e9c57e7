"""Expressions drawn at random beside PyTorch: shapes, dtypes and compositions that nobody chose.

    python benchmarks/drawn.py --seed 1000 --cases 300   # needs torch in the same environment
    python benchmarks/drawn.py --only 1058,1070          # those again, for longer

`expressions.py` holds what once was slow; this looks for what is. Both libraries evaluate the same
text on the same inputs, in turn, in one process with one thread: processor time, the least of the
rounds' medians; with CPU_COUNT=2 two threads, and a clock's time. Ours is a captured step, whose
call takes some 8 microseconds. A ratio above 1: we are faster. What is below `--below` is shown as
it is found; DIFFERS: the results don't agree to about three digits (where elements are equal, the
order of their indices is nobody's). At the end the geometric mean of each family.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

os.environ.setdefault("CPU_COUNT", "1")
os.environ.setdefault("OMP_NUM_THREADS", os.environ["CPU_COUNT"])

import numpy as np
import torch
from drawn_cases import Case, drawn

import tinygrad.nn.functional
from tinygrad import Tensor, TinyJit, dtypes

THREADS = int(os.environ["CPU_COUNT"])

clock = time.thread_time if THREADS == 1 else time.perf_counter

LEAST = 0.015
"""Milliseconds; what takes less counts for no family: it is the time of a call."""

Step = Callable[[], Any]


class Ours:
    """What a text calls `torch.`"""

    def __getattr__(self, name: str) -> Any:
        return getattr(Tensor, name)


def arrays(case: Case) -> list[Any]:
    """The inputs as NumPy has them: whole numbers, or floats of single precision."""
    draw, made = np.random.default_rng(0), list[Any]()
    for kind, shape, high in case.inputs:
        made.append(
            draw.integers(0, high, shape) if high else draw.standard_normal(shape, "float32")
        )
        assert high or "int" not in kind, "whole numbers need a limit"
    return made


def slope_of(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(1).standard_normal(shape, "float32")


def theirs(case: Case, given: list[Any]) -> Step:
    made = [
        torch.tensor(a).to(getattr(torch, i.kind)) for a, i in zip(given, case.inputs, strict=True)
    ]
    names = {"F": torch.nn.functional, "torch": torch, **dict(zip("abc", made, strict=False))}
    code, wanted = compile(case.text, "case", "eval"), made[: case.wanted]

    def value() -> Any:
        with torch.no_grad():
            return eval(code, names)

    if not wanted:
        return value
    slope = torch.tensor(slope_of(tuple(value().shape)))
    for each in wanted:
        each.requires_grad_(True)

    def gradients() -> Any:
        out = eval(code, names)
        found = torch.autograd.grad(
            out, wanted, slope.to(out.dtype), allow_unused=True, materialize_grads=True
        )
        return (out, *found)

    return gradients


def ours(case: Case, given: list[Any]) -> Step:
    made = [
        Tensor(a).cast(getattr(dtypes, i.kind)).realize()
        for a, i in zip(given, case.inputs, strict=True)
    ]
    names = {"F": tinygrad.nn.functional, "torch": Ours(), **dict(zip("abc", made, strict=False))}
    code, wanted = compile(case.text, "case", "eval"), made[: case.wanted]
    if not wanted:
        return TinyJit(lambda: eval(code, names).realize())
    slope = Tensor(slope_of(eval(code, names).shape)).realize()
    for each in wanted:
        each.requires_grad_(True)

    def gradients() -> Any:
        out = eval(code, names)
        found = out.gradient(*wanted, gradient=slope.cast(out.dtype), materialize_grads=True)
        out.realize(*found)
        return (out, *found)

    return TinyJit(gradients)


def milliseconds(step: Step, seconds: float) -> float:
    """The median of calls for about so long."""
    times, end = list[float](), time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 300):
        begin = clock()
        step()
        times.append(clock() - begin)
    return 1e3 * statistics.median(times)


def numbers(result: Any) -> list[Any]:
    """All results in double precision."""
    each = result if isinstance(result, (list, tuple)) else [result]
    made = [r.detach() if isinstance(r, torch.Tensor) else r for r in each]
    return [(r.double() if r.dtype in NARROW else r).numpy().astype("float64") for r in made]


NARROW = (torch.bfloat16, torch.float16, dtypes.bfloat16, dtypes.float16)


def agree(case: Case, right: Any, found: Any) -> bool:
    narrow = any(i.kind in ("bfloat16", "float16") for i in case.inputs)
    close = 3e-2 if narrow else 2e-3
    for a, b in zip(numbers(right), numbers(found), strict=True):
        whole = np.isfinite(a)
        largest = np.abs(a[whole]).max(initial=1e-6)
        if a.shape != b.shape or np.abs(a - b)[whole].max(initial=0) > close * largest:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--only", default="", help="seeds, with commas")
    parser.add_argument("--below", type=float, default=0.8)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    seeds = range(options.seed, options.seed + options.cases)
    found: dict[str, list[float]] = defaultdict(list)
    for seed in map(int, options.only.split(",")) if options.only else seeds:
        case = drawn(seed)
        given = arrays(case)
        try:
            step = theirs(case, given)
            right = step()
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            continue  # nothing to compare with: what PyTorch refuses
        try:
            mine = ours(case, given)
            results = [mine() for _ in range(3)]
        except Exception as error:
            print(
                f"{seed:6d} REFUSED {case}: {type(error).__name__} {str(error)[:150]}", flush=True
            )
            continue
        word = "" if agree(case, right, results[-1]) else "DIFFERS "
        rounds = 7 if options.only else 3
        pairs = [[milliseconds(s, options.seconds) for s in (mine, step)] for _ in range(rounds)]
        one, other = (min(column) for column in zip(*pairs, strict=True))
        if one > LEAST:
            found[case.family].append(other / one)
        if other / one < options.below or word or options.only:
            print(f"{seed:6d} {other / one:6.2f} {one:9.3f} ms {word} {case}", flush=True)
    for family, ratios in sorted(found.items()):
        print(
            f"{family:24s} {len(ratios):4d} cases, {statistics.geometric_mean(ratios):5.2f}, "
            f"{min(ratios):5.2f} at worst, {sum(r < 1 for r in ratios)} below 1"
        )


if __name__ == "__main__":
    main()
