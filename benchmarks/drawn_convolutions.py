"""Convolutions drawn at random beside PyTorch: forward, and the gradients by image and by weight.

    python benchmarks/drawn_convolutions.py --seed 0 --cases 100   # needs torch
    python benchmarks/drawn_convolutions.py --only 17,58           # those again, for longer

Both libraries do the same work in turn, in one process with one thread: processor time, the least
of the rounds' medians; ours is a captured step. At the end how many are behind, and those that lose
most time. DIFFERS: the results don't agree to about three digits.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics

os.environ.setdefault("CPU_COUNT", "1")
os.environ.setdefault("THREADS", "1")

import cases_tinygrad
import cases_torch
import numpy as np
from convolutions import Convolution
from drawn import LEAST, Step, milliseconds
from lock import locked
from suite import Inputs

ELEMENTS = 4_000_000
"""Of the image or of the result, at most."""

WORK = 1_000_000, 400_000_000
"""Multiplications, at least and at most."""

PARTS = ("forward", "x", "weight")


def drawn(seed: int) -> Convolution:
    """The convolution of a number."""
    draw = random.Random(seed)
    while True:
        axes, transposed = draw.choice((1, 2, 2, 2, 3)), draw.random() < 0.25
        groups = draw.choice((1, 1, 1, 2, 4, 8, 32))
        ins, outs = (groups * size(draw, 1, 256 // groups) for _ in range(2))
        if draw.random() < 0.15:
            groups = ins = outs = size(draw, 4, 256)
        image = [size(draw, 5, {1: 2048, 2: 112, 3: 24}[axes]) for _ in range(axes)]
        kernel = [draw.choice((1, 2, 3, 3, 3, 4, 5, 7)) for _ in range(axes)]
        if draw.random() < 0.7:
            kernel = kernel[:1] * axes
        row = Convolution(
            "drawn",
            (size(draw, 1, 16), ins, *image),
            (ins if transposed else outs, (outs if transposed else ins) // groups, *kernel),
            stride=draw.choice((1, 1, 2, 2, 3)),
            pad=draw.choice((0, kernel[0] // 2, draw.randint(0, 3))),
            dilation=draw.choice((1, 1, 1, 2)),
            groups=groups,
            is_transposed=transposed,
        )
        wide = row.stride if transposed else 1
        held = row.x[0] * max(ins, outs * wide**axes) * math.prod(image)
        if held > ELEMENTS or (not transposed and min(row.positions) < 1):
            continue
        if transposed and min((n - 1) * row.stride - 2 * row.pad for n in image) < 1:
            continue
        if WORK[0] <= row.operations // 2 <= WORK[1]:
            return row


def size(draw: random.Random, least: int, most: int) -> int:
    """A size of any magnitude; half of them are powers of two."""
    n = int(math.exp(draw.uniform(math.log(least), math.log(most + 1))))
    return min(most, max(least, 1 << (n.bit_length() - 1) if draw.random() < 0.5 else n))


def steps(row: Convolution, part: str) -> tuple[Step, Step]:
    """The same work by both libraries, ours first."""
    if part == "forward":
        return cases_tinygrad.convolved(Inputs(), row), cases_torch.convolved(Inputs(), row)
    both = (m.differentiated(Inputs(), row, part) for m in (cases_tinygrad, cases_torch))
    return next(both), next(both)


def agree(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(
        np.abs(one - other).max(initial=0) <= 2e-3 * np.abs(other).max(initial=1e-6)
    )


def title(row: Convolution) -> str:
    kind = "transposed" if row.is_transposed else "conv"
    by = "x".join(map(str, row.weight[2:]))
    how = f"s{row.stride} p{row.pad} d{row.dilation} g{row.groups}"
    return f"{kind} {by} {how} {[*row.x]} by {[*row.weight]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--only", default="", help="seeds, with commas")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=0.03, help="of a round")
    parser.add_argument("--lock", default="", help="a file whose lock is held while measuring")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.cases)
    rows: list[tuple[float, float, str]] = []
    for seed in map(int, options.only.split(",")) if options.only else seeds:
        row = drawn(seed)
        for part in options.parts.split(","):
            mine, other = steps(row, part)
            results = [mine() for _ in range(3)]
            right = agree(cases_tinygrad.host(results[-1]), cases_torch.host(other()))
            rounds = 5 if options.only else 2
            with locked(options.lock):
                pairs = [
                    [milliseconds(s, options.seconds) for s in (mine, other)] for _ in range(rounds)
                ]
            one, two = (min(column) for column in zip(*pairs, strict=True))
            word = "" if right else "DIFFERS "
            text = f"{seed:6d} {part:8s} {two / one:6.2f} {one:9.3f} ms {word}{title(row)}"
            print(text, flush=True)
            rows.append((one, two, text))
    summary(rows)


def summary(rows: list[tuple[float, float, str]]) -> None:
    counted = [(one, two) for one, two, _ in rows if one > LEAST]
    ratios = [two / one for one, two in counted]
    below = ", ".join(f"{sum(r < n for r in ratios)} below {n}" for n in (1, 0.9, 0.75, 0.5))
    print(f"{len(ratios)} of {1e3 * LEAST:.0f} us or more: {statistics.geometric_mean(ratios):.2f}")
    print(f"{below}; lost {sum(max(0, one - two) for one, two in counted):.2f} ms; most:")
    for one, two, text in sorted(rows, key=lambda r: r[1] - r[0])[:20]:
        print(f"{one - two:8.3f} ms {text}" if one > two else "")


if __name__ == "__main__":
    main()
