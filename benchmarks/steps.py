"""Training steps of small models of many kinds beside PyTorch: what is far from it shows here.

    python benchmarks/steps.py                       # needs torch in the same environment
    python benchmarks/steps.py --cases 'lstm,conv*'

Each model of `steps_models.py` starts from the same weights in both and takes Adam's steps on one
batch in turn, in one process with one thread: processor time, the least of the rounds' medians.
Ours is a captured step. A ratio above 1: we are faster. First: the first four steps, compiled from
whatever the cache has. DIFFERS: the losses of the first steps don't agree to three digits.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("CPU_COUNT", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from asked import matching, parser
from plain import milliseconds
from steps_models import CASES, Case, Kit

import tinygrad.nn.functional
from tinygrad import Tensor, TinyJit, nn

FIRST = 4
"""Steps of which the losses are compared; so many capture ours and compile it."""


class Module:
    """A model of ours is any object."""

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)  # type: ignore[attr-defined]


def kits() -> tuple[Kit, Kit]:
    """PyTorch's, and ours."""
    theirs = Kit(
        *(torch.nn, torch.nn.functional, torch.nn.Module),
        *(torch.tensor, torch.cat, torch.stack),
    )
    ours = Kit(
        *(nn, tinygrad.nn.functional, Module),
        lambda array: Tensor(array).realize(),
        lambda parts, dim: parts[0].cat(*parts[1:], dim=dim),
        lambda parts, dim: parts[0].stack(*parts[1:], dim=dim),
    )
    return theirs, ours


def step_of_theirs(case: Case) -> Callable[[], Any]:
    """PyTorch's step, which gives the loss."""
    model, loss = case
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> Any:
        optimizer.zero_grad()
        made = loss()
        made.backward()
        optimizer.step()
        return made

    return step


def step_of_ours(case: Case, weights: dict[str, Any]) -> Callable[[], Any]:
    """Our captured step, from these weights."""
    model, loss = case
    for name, tensor in nn.state.get_state_dict(model).items():
        tensor.assign(Tensor(weights[name].numpy()).cast(tensor.dtype)).realize()
    optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-3)

    @TinyJit
    def step() -> Any:
        optimizer.zero_grad()
        made = loss()
        made.backward()
        optimizer.step()
        return made.realize()

    return step


def line(name: str, rounds: int) -> tuple[float, str]:
    """The ratio of a case, and what it takes."""
    theirs, ours = (CASES[name](kit) for kit in kits())
    weights = {key: value.clone() for key, value in theirs[0].state_dict().items()}
    steps = [step_of_theirs(theirs), step_of_ours(ours, weights)]
    losses, first = [], []
    for step in steps:
        begin = time.process_time()
        losses.append([float(step().item()) for _ in range(FIRST)])
        first.append(time.process_time() - begin)
    word = "" if np.allclose(*losses, rtol=2e-3) else f"  DIFFERS {losses}"
    pairs = [[milliseconds(lambda s=s: s().item()) for s in steps] for _ in range(rounds)]
    one, other = (min(column) for column in zip(*pairs, strict=True))
    times = f"{one:10.3f} {other:10.3f} {first[0]:9.1f} {first[1]:7.1f}"
    return one / other, f"{one / other:7.2f}  {name:20s} {times}{word}"


def report(
    page: str | None, head: str, names: Iterable[str], line: Callable[[str, int], tuple[float, str]]
) -> None:
    """Prints the `line` of each case that is asked for, and the geometric mean of their ratios."""
    options = parser(page, rounds=5).parse_args()
    torch.set_num_threads(1)
    print(head)
    ratios = []
    with Tensor.train():
        for name in matching(options.cases, names):
            ratio, text = line(name, options.rounds)
            ratios.append(ratio)
            print(text, flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{mean:7.2f}  geometric mean of {len(ratios)}")


def main() -> None:
    head = "  ratio  case                  torch, ms   ours, ms  first, s    ours"
    report(__doc__, head, CASES, line)


if __name__ == "__main__":
    main()
