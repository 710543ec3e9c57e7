"""Random programs of views, writes, `detach`, `no_grad` and backward, beside PyTorch: values and
gradients agree wherever PyTorch takes the program, or ours is an error."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor
from tinygrad.base.errors import ArgumentError

CUTS = (slice(0, 2), slice(1, None), slice(None, None, 2), slice(None), slice(1, 3))
STATEMENTS = [
    "mul",
    "add",
    "scale",
    "view",
    "view",
    "detach",
    "clone",
    "quiet",
    "compute",
    "compute",
] + ["set", "set", "set number", "set detached", "quiet mul_", "quiet set", "add_", "mul_"]


def run(lib: Any, pool: list[Any], kind: str, i: int, j: int, cut: slice, k: int) -> Any:
    """One statement, in both libraries: a new tensor, or None."""

    def like(tensor: Any) -> Any:
        alike = [t for t in pool if tuple(t.shape) == tuple(tensor.shape)]
        return alike[j % len(alike)] if alike else tensor

    a = pool[i % len(pool)]
    made = {
        "mul": lambda: a * like(a) * 0.5,
        "add": lambda: a + like(a),
        "scale": lambda: a * k,
        "view": lambda: a[cut],
        "detach": lambda: a.detach(),
        "clone": lambda: a.clone(),
        "quiet": lambda: a * k,
    }
    if kind in made:
        return made[kind]() if kind != "quiet" else without_recording(lib, made[kind])
    acts = {
        "compute": lambda: a.numpy() if lib is Tensor else None,
        "set": lambda: a.__setitem__(cut, like(a[cut]) * 2),
        "set number": lambda: a.__setitem__(cut, float(k)),
        "set detached": lambda: a.detach().__setitem__(cut, like(a[cut]).detach()),
        "quiet mul_": lambda: without_recording(lib, lambda: a.mul_(k)),
        "quiet set": lambda: without_recording(lib, lambda: a.__setitem__(cut, like(a[cut]) * k)),
        "add_": lambda: a.add_(like(a)),
        "mul_": lambda: a.mul_(k),
    }
    acts[kind]()
    return None


def without_recording(lib: Any, action: Any) -> Any:
    with lib.no_grad():
        return action()


@pytest.mark.parametrize("first", range(0, 48, 8))
def test_programs_agree_with_pytorch(first):
    for seed in range(first, first + 8):
        agree(random.Random(seed))


def agree(rng: random.Random, length: int = 12) -> None:
    values = [[float(rng.randrange(-3, 4)) for _ in range(4)] for _ in range(3)]
    own = [Tensor(v, requires_grad=n < 2 or None) for n, v in enumerate(values)]
    other = [torch.tensor(v, requires_grad=n < 2) for n, v in enumerate(values)]
    told = []
    for _ in range(length):
        facts = rng.choice(STATEMENTS), rng.randrange(1000), rng.randrange(1000)
        facts += rng.choice(CUTS), rng.randrange(1, 4)
        try:
            theirs = run(torch, other, *facts)
        except RuntimeError:  # a start that is written
            continue
        told.append(facts)
        try:
            ours = run(Tensor, own, *facts)
        except ArgumentError as error:
            assert "legal" in str(error)
            return
        if theirs is not None:
            own.append(ours)
            other.append(theirs)
    for a, b in zip(own, other, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.detach().numpy(), err_msg=str(told))
    losses = []
    for pool in (own, other):
        pairs = [
            (n, t) for n, (t, b) in enumerate(zip(pool, other, strict=True)) if b.requires_grad
        ]
        losses.append(sum((t * t * (n + 1)).sum() for n, t in pairs))
    try:
        losses[1].backward()
    except RuntimeError:  # it needs a value that was overwritten
        return
    losses[0].backward()
    for a, b in zip(own[:2], other[:2], strict=True):
        found, expected = (np.zeros(4) if t.grad is None else t.grad.numpy() for t in (a, b))
        np.testing.assert_allclose(found, expected, rtol=1e-4, err_msg=str(told))
