"""Parameters that are views of one vector: what is written to them is seen there, as PyTorch's."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, nn

START = np.linspace(-1, 1, 10, dtype=np.float32)
VECTORS = {  # in storage, nothing but numbers, an expression
    "given": (lambda: Tensor(START), lambda: torch.tensor(START)),
    "zeros": (lambda: Tensor.zeros(10), lambda: torch.zeros(10)),
    "sum": (
        lambda: (Tensor(START).reshape(10, 1) + Tensor.ones(10, 2)).sum(1),
        lambda: (torch.tensor(START).reshape(10, 1) + torch.ones(10, 2)).sum(1),
    ),
}
OPTIMIZERS = {
    "SGD": lambda lib, params: lib.SGD(params, lr=0.01),
    "momentum": lambda lib, params: lib.SGD(params, lr=0.01, momentum=0.9, weight_decay=0.1),
    "Adam": lambda lib, params: lib.Adam(params, lr=0.1),
    "groups": lambda lib, params: lib.AdamW([{"params": params[:1]}, {"params": params[1:]}]),
}


def parts(vector):
    found = vector[:2].detach(), vector[2:5].detach(), vector[5:9].reshape(2, 2).detach()
    return [part.requires_grad_(True) for part in found]


def stepped(lib, vector, optimizer, capture):
    """The vector after each of some steps."""
    params = parts(vector)
    mover = optimizer(lib, params)

    def step():
        mover.zero_grad()
        sum((p * (k + 1)).sin().sum() * (p.sum() + 1) for k, p in enumerate(params)).backward()
        mover.step()

    run, found = capture(step), []
    for _ in range(4):
        run()
        found.append(vector.tolist())
    return found


@Tensor.train()
@pytest.mark.parametrize("capture", [lambda step: step, TinyJit], ids=["plain", "captured"])
@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_optimizer_moves_the_vector(vector, optimizer, capture):
    (mine, theirs), make = VECTORS[vector], OPTIMIZERS[optimizer]
    wanted = stepped(torch.optim, theirs(), make, lambda step: step)
    found = stepped(nn.optim, mine(), make, capture)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("vector", VECTORS)
def test_initial_values_are_written_to_the_vector(vector):
    mine, theirs = (make() for make in VECTORS[vector])
    for init, whole in ((nn.init, mine), (torch.nn.init, theirs)):
        init.constant_(whole[:4], 3.0)
        init.eye_(whole[4:8].reshape(2, 2))
    assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize("vector", VECTORS)
def test_loaded_values_are_written_to_the_vector(vector):
    mine, theirs = (make() for make in VECTORS[vector])
    nn.state.load_state_dict({"w": mine[2:4]}, {"w": Tensor([5.0, 7.0])})
    theirs[2:4].copy_(torch.tensor([5.0, 7.0]))
    assert mine.tolist() == theirs.tolist()
