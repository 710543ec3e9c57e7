"""Random writes to views of a tensor that overlap what they read, by way of several devices, beside
NumPy, which buffers what overlaps.

    python test/fuzz_copies.py --minutes 5 --seed 1 --devices CPU,CPU:1,CL,WEBGPU
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np

from tinygrad.tensor import Tensor

DEVICES = ("CPU", "CPU:1", "PYTHON", "CLANG", "CL", "WEBGPU")
SIZES = (2, 3, 5, 8)
STEPS = 6


def part(draw: random.Random, shape: tuple[int, ...]) -> tuple[slice | int, ...]:
    """A part of each axis: all, a stretch, every so many, one, or all backwards."""
    found: list[slice | int] = []
    for size in shape:
        begin = draw.randrange(size)
        kinds = (
            slice(None),
            slice(begin, draw.randrange(begin, size) + 1),
            slice(begin, None, draw.choice((1, 2, 3))),
            begin,
            slice(None, None, -1),
        )
        found.append(draw.choice(kinds))
    return tuple(found)


def fitting(draw: random.Random, there: np.ndarray, whole: np.ndarray) -> tuple[slice | int, ...]:
    """A part that may be written `there`; all of it, if none is found."""
    for _ in range(30):
        here = part(draw, whole.shape)
        try:
            if np.broadcast_shapes(whole[here].shape, there.shape) == there.shape:
                return here
        except ValueError:
            continue
    return ()


def wrong(seed: int, devices: tuple[str, ...]) -> str | None:
    """What a program of random writes does, if it isn't what NumPy does."""
    draw = random.Random(seed)
    shape = tuple(draw.choice(SIZES) for _ in range(draw.randint(1, 3)))
    wanted = np.random.default_rng(seed).integers(-9, 9, shape).astype(np.int32)
    device = draw.choice(devices)
    found = Tensor(wanted.copy(), device=device).realize()
    lines, kept = [f"{shape} on {device}"], []
    for _ in range(draw.randint(1, STEPS)):
        there, way = part(draw, shape), draw.choice(devices)
        kind = draw.choice(("copy", "more", "both", "away", "keep", "move"))
        lines.append(f"{kind} {there} by {way}")
        if kind == "keep":
            kept.append((found[there] * 1, wanted[there].copy()))
        elif kind == "move":
            found, device = found.to(way), way
        else:
            here = fitting(draw, wanted[there], wanted)
            lines[-1] += f" from {here}"
            value, theirs = found[here], wanted[here].copy()
            try:
                np.broadcast_to(theirs, wanted[there].shape)
            except ValueError:
                continue
            if kind == "more":
                value, theirs = value + 1, theirs + 1
            elif kind == "both":
                value, theirs = value + found[there], theirs + wanted[there]
            elif kind == "away":
                value = value.to(way).to(device)
            found[there], wanted[there] = value, theirs
        if draw.random() < 0.3:
            found.realize()
    results = [(found, wanted), *kept]
    alike = all(np.array_equal(ours.numpy(), theirs) for ours, theirs in results)
    return None if alike else "\n    ".join([*lines, f"{found.tolist()} for {wanted.tolist()}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", default=",".join(DEVICES))
    options = parser.parse_args()
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    while time.monotonic() < end:
        if (problem := wrong(seed, tuple(options.devices.split(",")))) is not None:
            print(f"seed {seed}: {problem}", flush=True)
        seed += 1
    print(f"{seed - options.seed} programs")


if __name__ == "__main__":
    main()
