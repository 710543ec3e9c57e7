"""Expressions and gradients of many kinds beside PyTorch: where a kernel is far from it, it shows
here first. The cases are lines of `expressions.txt`.

    python benchmarks/expressions.py                     # needs torch in the same environment
    python benchmarks/expressions.py --cases 'g_conv*,cat*'

Both compute the same inputs in turn, in one process with one thread: processor time, the least of
the rounds' medians. Ours is a captured step, whose call takes some 8 microseconds. A ratio above 1:
we are faster. DIFFERS: the results don't agree to about three digits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("CPU_COUNT", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from asked import matching, parser
from plain import milliseconds

from tinygrad import Tensor, TinyJit, dtypes

RANDOM = np.random.default_rng(0)

NAMES: dict[str, Any] = {
    "f": lambda *shape: RANDOM.standard_normal(shape).astype(np.float32),
    "i": lambda high, *shape: RANDOM.integers(0, high, shape).astype(np.int64),
    "rng": RANDOM,
    "np": np,
    "torch": torch,
    "F": torch.nn.functional,
    "Tensor": Tensor,
    "dtypes": dtypes,
}
"""What lines of `expressions.txt` may use."""


class Case(NamedTuple):
    """A case as its lines say; `by` names the inputs of a gradient, of half the sum of squares."""

    name: str
    by: str
    inputs: str
    theirs: str
    ours: str


def cases() -> Iterator[Case]:
    """Those of the file."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    for block in text.split("\n\n")[1:]:
        title, inputs, *forms = map(str.strip, block.strip().split("\n"))
        name, _, by = title.partition(" by ")
        yield Case(name, by, inputs, forms[0], forms[-1])


def function(form: str, count: int) -> Callable[..., Any]:
    """A form as a function of the inputs a, b, c, ..."""
    made: Callable[..., Any] = eval(f"lambda {', '.join('abcdefgh'[:count])}: {form}", NAMES)
    return made


def loss_of(made: Any) -> Any:
    """One number to take the gradient of."""
    return made if made.ndim == 0 else (made * made).sum() * 0.5


def sides(case: Case, count: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What PyTorch computes, and what we do."""
    theirs, ours = function(case.theirs, count), function(case.ours, count)
    if not case.by:
        return theirs, ours
    by = ["abcdefgh".index(letter) for letter in case.by.split(", ")]

    def by_torch(*values: Any) -> Any:
        with torch.enable_grad():
            own = [v.detach().requires_grad_(True) if i in by else v for i, v in enumerate(values)]
            return torch.autograd.grad(loss_of(theirs(*own)), [own[i] for i in by])

    def by_ours(*values: Any) -> Any:
        return loss_of(ours(*values)).gradient(*[values[i] for i in by])

    return by_torch, by_ours


def several(results: Any) -> list[Any]:
    """One result or several, as a list."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def numbers(results: Any) -> Any:
    """All that they hold."""
    return np.concatenate([np.asarray(r.numpy(), np.float64).ravel() for r in several(results)])


def line(case: Case, rounds: int) -> str:
    """What a case takes."""
    inputs = several(eval(f"({case.inputs})", NAMES))
    theirs, ours = sides(case, len(inputs))
    values = [torch.from_numpy(np.array(value)) for value in inputs]
    given = [Tensor(value).realize() for value in inputs]

    def step(*tensors: Tensor) -> Any:
        made = ours(*tensors)
        Tensor.realize(*several(made))
        return made

    captured = TinyJit(step)
    with torch.no_grad():
        right, found = numbers(theirs(*values)), numbers(captured(*given))
        for _ in range(2):
            captured(*given)
        close = right.shape == found.shape and np.allclose(
            right, found, rtol=2e-3, atol=2e-3 * max(1, abs(right).max())
        )
        pairs = [
            (milliseconds(lambda: theirs(*values)), milliseconds(lambda: captured(*given)))
            for _ in range(rounds)
        ]
    one, other = (min(column) for column in zip(*pairs, strict=True))
    word = "" if close else "  DIFFERS"
    return f"{one / other:7.2f}  {case.name:26s} {one:10.3f} {other:10.3f}{word}"


def main() -> None:
    options = parser(__doc__, rounds=5).parse_args()
    named = {case.name: case for case in cases()}
    torch.set_num_threads(1)
    print("  ratio  case                        torch, ms   ours, ms")
    for name in matching(options.cases, named):
        print(line(named[name], options.rounds), flush=True)


if __name__ == "__main__":
    main()
