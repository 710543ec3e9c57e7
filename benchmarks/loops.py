"""Training loops as users write them, without TinyJit, beside PyTorch's eager mode.

    python benchmarks/loops.py                       # needs torch in the same environment
    python benchmarks/loops.py --cases 'variational,policy'

Each program of `loops_programs.py` runs in both libraries in turn, in one process with one thread:
processor time, the least of the rounds' medians. A ratio above 1: we are faster. `long`: how many
of our steps made their graph anew (`docs/notes/plain_steps.md`); 0 is meant.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("CPU_COUNT", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import steps
import torch
from loops_programs import PROGRAMS, Kit
from plain import milliseconds

from tinygrad import Tensor, nn
from tinygrad.tensor import again

FIRST = 8
"""Steps that aren't timed: those in which graphs are made and kernels compiled."""


def kits() -> tuple[Kit, Kit]:
    """PyTorch's, and ours."""
    theirs, ours = steps.kits()
    return (
        Kit(
            *(theirs.nn, theirs.F, theirs.Module, theirs.tensor, theirs.cat, theirs.stack),
            optim=torch.optim,
            parameters=lambda layer: list(layer.parameters()),
            randn=torch.randn,
            rand=torch.rand,
            randperm=torch.randperm,
            no_grad=torch.no_grad,
            gradient=lambda y, x: torch.autograd.grad(y, x, create_graph=True)[0],
        ),
        Kit(
            *(ours.nn, ours.F, ours.Module, Tensor, ours.cat, ours.stack),
            optim=nn.optim,
            parameters=nn.state.get_parameters,
            randn=Tensor.randn,
            rand=Tensor.rand,
            randperm=Tensor.randperm,
            no_grad=Tensor.no_grad,
            gradient=lambda y, x: y.gradient(x)[0],
        ),
    )


@contextmanager
def counting() -> Iterator[list[int]]:
    """A context whose list has how often a plan was asked for, and how often one was known."""
    counts, ask, do = [0, 0], again._ask, again._Asked.do_again

    def asked(*given: Any) -> None:
        counts[0] += 1
        ask(*given)

    def done(*given: Any) -> None:
        counts[1] += 1
        do(*given)

    again._ask, again._Asked.do_again = asked, done  # type: ignore[assignment]
    try:
        yield counts
    finally:
        again._ask, again._Asked.do_again = ask, do  # type: ignore[method-assign]


def line(name: str, rounds: int) -> tuple[float, str]:
    """The ratio of a program, and what it takes."""
    pair = [PROGRAMS[name](kit) for kit in kits()]
    for step in pair:
        for _ in range(FIRST):
            step()
    with counting() as counts:
        for _ in range(FIRST):
            pair[1]()
    times = [[milliseconds(step) for step in pair] for _ in range(rounds)]
    one, other = (min(column) for column in zip(*times, strict=True))
    long = (counts[0] - counts[1]) / FIRST
    return one / other, f"{one / other:7.2f}  {name:20s} {one:10.3f} {other:10.3f} {long:6.2f}"


def main() -> None:
    head = "  ratio  program               torch, ms   ours, ms   long"
    steps.report(__doc__, head, PROGRAMS, line)


if __name__ == "__main__":
    main()
