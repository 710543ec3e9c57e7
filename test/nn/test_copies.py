"""Layers, optimizers and schedules can be copied and pickled, and go on as the original does."""

import copy
import inspect
import pickle

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, nn
from tinygrad.base.errors import ArgumentError
from tinygrad.nn import optim
from tinygrad.nn.state import get_state_dict


def pickled(given):
    return pickle.loads(pickle.dumps(given))


COPIES = [copy.deepcopy, pickled]
GIVEN = [
    (),
    (3,),
    (4, 2),
    (3, 4),
    (3, 4, 3),
    (2, (2, 2)),
    (1, (2, 3)),
    (2, 4),
    (2, 0.5),
    (8, 20, [5, 10]),
]
OTHERS = {
    "TransformerEncoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 2),
    "TransformerDecoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2), 2),
}
NO_LAYERS = {"Any", "Checkpoint", "Parameter"}


def made(layer):
    """One with the first arguments that it takes."""
    if layer.__name__ in OTHERS:
        return OTHERS[layer.__name__]()
    for given in GIVEN:
        try:
            return layer(*given)
        except Exception as error:
            refused = error
    raise refused


LAYERS = [name for name, _ in inspect.getmembers(nn, inspect.isclass) if name not in NO_LAYERS]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name, copied):
    layer = made(getattr(nn, name))
    other = copied(layer)
    assert type(other) is type(layer)
    ours, theirs = get_state_dict(layer), get_state_dict(other)
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        np.testing.assert_array_equal(theirs[key].numpy(), value.numpy())


OPTIMIZERS = [
    name
    for name, kind in inspect.getmembers(optim, inspect.isclass)
    if issubclass(kind, optim.Optimizer) and name not in ("Optimizer", "LBFGS", "OptimizerGroup")
]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_and_its_parameters(name, copied):
    """They are copied together, as parts of one object, and step alike."""

    def step(w, optimizer):
        optimizer.zero_grad()
        with Tensor.train():
            (w * w).sum().backward()
            optimizer.step()
        return w.numpy()

    w = Tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    pair = (w, getattr(optim, name)([w]))
    step(*pair)
    other = copied(pair)
    for _ in range(2):
        np.testing.assert_array_equal(step(*other), step(*pair))


@pytest.mark.parametrize("copied", COPIES)
def test_a_schedule_and_its_optimizer(copied):
    optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    schedule = optim.StepLR(optimizer, 2, 0.5)
    other = copied(schedule)
    for _ in range(4):
        other.step()
    assert other.optimizer.lr.item() == 0.25 and optimizer.lr.item() == 1.0


def test_a_model_and_its_state_after_a_captured_step():
    """Its gradients can't be read, and neither can the copy's; its weights can."""
    layer = nn.Linear(3, 2)
    optimizer = optim.SGD(nn.state.get_parameters(layer), lr=0.1)

    @TinyJit
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean().backward()
        optimizer.step()
        return loss.detach()

    with Tensor.train():
        for _ in range(4):
            step(Tensor.ones(2, 3).contiguous())
    for copied in (copy.deepcopy(layer), copy.deepcopy(get_state_dict(layer))):
        weight = copied["weight"] if isinstance(copied, dict) else copied.weight
        np.testing.assert_array_equal(weight.numpy(), layer.weight.numpy())
        with pytest.raises(ArgumentError, match="no replay makes it again"):
            weight.grad.numpy()
        weight.grad = None
        weight.sum().backward()
        assert weight.grad.tolist() == [[1.0] * 3] * 2
