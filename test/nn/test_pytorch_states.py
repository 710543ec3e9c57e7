"""An optimizer takes the state that PyTorch's of its kind saved, and goes on as that would."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, nn
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn import optim
from tinygrad.nn.state import get_state_dict, torch_load

W = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
B = np.random.default_rng(1).standard_normal(4).astype(np.float32)

KINDS = {
    "SGD": ("SGD", {}),
    "SGD with momentum": ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    "SGD with dampening": ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    "Adam": ("Adam", {"weight_decay": 0.1}),
    "Adam with amsgrad": ("Adam", {"betas": (0.5, 0.3), "amsgrad": True}),
    "AdamW": ("AdamW", {"weight_decay": 0.1, "eps": 1e-3}),
    "SparseAdam": ("SparseAdam", {}),
    "NAdam": ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "RAdam": ("RAdam", {}),
    "Adamax": ("Adamax", {}),
    "RMSprop": ("RMSprop", {"alpha": 0.9}),
    "RMSprop, all of it": ("RMSprop", {"momentum": 0.9, "centered": True}),
    "Adagrad": ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    "Adadelta": ("Adadelta", {"rho": 0.8}),
    "Rprop": ("Rprop", {"etas": (0.4, 1.3)}),
    "Adafactor": ("Adafactor", {"d": 2.0}),
}
SAME_ARITHMETIC = ["SGD", "Rprop"]


def made(lib, name, wants=(True, True), **options):
    new = Tensor if lib is optim else torch.tensor
    params = [new(x, requires_grad=w) for x, w in zip((W, B), wants, strict=True)]
    return params, getattr(lib, name)(params, **({"lr": 0.02} | options))


def step(params, optimizer, late=False):
    optimizer.zero_grad()
    w, b = params
    loss = (w * w * w).sum() if late else (w * w * b).sum()
    if isinstance(optimizer, torch.optim.SparseAdam):
        loss.backward()
        for p in params:
            p.grad = p.grad.to_sparse()
    else:
        loss.backward()
    optimizer.step()


def resumed(what, tmp_path, options=None, late=0):
    """Both after three steps of PyTorch's optimizer, its state in a file, and three of each."""
    name, given = KINDS[what]
    params, theirs = made(torch.optim, name, **given)
    for turn in range(3):
        step(params, theirs, late=turn < late)
    torch.save(theirs.state_dict(), tmp_path / "state.pt")
    mine, ours = made(optim, name, **(options or {}))
    for own, other in zip(mine, params, strict=True):
        own.assign(Tensor(other.detach().numpy())).realize()
    ours.load_state_dict(torch_load(tmp_path / "state.pt"))
    for _ in range(3):
        step(params, theirs)
        step(mine, ours)
    return [p.numpy() for p in mine], [p.detach().numpy() for p in params]


@pytest.mark.parametrize("what", KINDS)
@Tensor.train()
def test_who_resumes_from_a_file_of_pytorchs_goes_on_as_it_would(what, tmp_path):
    for own, other in zip(*resumed(what, tmp_path), strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("what", SAME_ARITHMETIC)
@Tensor.train()
def test_and_does_so_bit_for_bit_where_the_arithmetic_is_the_same(what, tmp_path):
    for own, other in zip(*resumed(what, tmp_path), strict=True):
        assert own.tolist() == other.tolist()


@pytest.mark.parametrize("what", KINDS)
def test_its_tensors_are_taken_bit_for_bit(what):
    name, options = KINDS[what]
    params, theirs = made(torch.optim, name, **options)
    step(params, theirs)
    _, ours = made(optim, name)
    ours.load_state_dict(theirs.state_dict())
    found = [t.tolist() for n, t in ours.state_dict().items() if "options" not in n]
    for its in theirs.state_dict()["state"].values():
        assert all(t.tolist() in found for t in its.values() if hasattr(t, "ndim") and t.ndim)


@pytest.mark.parametrize("what", ["Adam", "SGD with dampening", "NAdam", "Adagrad"])
@Tensor.train()
def test_parameters_that_made_fewer_steps_count_their_own(what, tmp_path):
    for own, other in zip(*resumed(what, tmp_path, late=2), strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("what", ["SGD with dampening", "Adam with amsgrad", "RMSprop, all of it"])
@Tensor.train()
def test_options_are_those_of_the_state_whatever_it_was_made_with(what, tmp_path):
    other = {"momentum": 0.5, "nesterov": True} if what.startswith("SGD") else {"lr": 0.5}
    for own, theirs in zip(*resumed(what, tmp_path, other), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("what", ["SGD with momentum", "Adam", "Rprop"])
def test_a_state_of_no_steps_begins_anew(what):
    name, options = KINDS[what]
    params, ours = made(optim, name, **options)
    fresh = {name: t.tolist() for name, t in ours.state_dict().items()}
    with Tensor.train():
        step(params, ours)
    ours.load_state_dict(made(torch.optim, name, **options)[1].state_dict())
    assert {name: t.tolist() for name, t in ours.state_dict().items()} == fresh


@pytest.mark.parametrize("scheduled", [False, True])
@Tensor.train()
def test_groups_and_the_rate_that_a_schedule_begins_with(scheduled):
    def grouped(lib):
        (w, b), _ = made(lib, "Adam")
        groups = [{"params": [w]}, {"params": [b], "lr": 0.5, "weight_decay": 0.1}]
        return (w, b), lib.AdamW(groups, lr=0.1)

    (params, theirs), (mine, ours) = grouped(torch.optim), grouped(optim)
    schedule = torch.optim.lr_scheduler.StepLR(theirs, 2, 0.5) if scheduled else None
    for _ in range(3):
        step(params, theirs)
        if schedule:
            schedule.step()
    for own, other in zip(mine, params, strict=True):
        own.assign(Tensor(other.detach().numpy())).realize()
    ours.load_state_dict(theirs.state_dict())
    assert [g["lr"] for g in ours.param_groups] == pytest.approx(
        [g["lr"] for g in theirs.param_groups]
    )
    assert [one.base_lr for one in ours.optimizers] == [0.1, 0.5]
    step(params, theirs)
    step(mine, ours)
    for own, other in zip(mine, params, strict=True):
        np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=2e-6, atol=2e-7)


@Tensor.train()
def test_tensors_of_halves_become_float32(tmp_path):
    w = torch.tensor(W, dtype=torch.bfloat16, requires_grad=True)
    theirs = torch.optim.Adam([w])
    w.sum().backward()
    theirs.step()
    ours = optim.Adam([Tensor(W).bfloat16()])
    torch.save(theirs.state_dict(), tmp_path / "state.pt")
    ours.load_state_dict(torch_load(tmp_path / "state.pt"))
    assert ours.m[0].dtype.name == "float"
    assert ours.m[0].tolist() == theirs.state_dict()["state"][0]["exp_avg"].tolist()


LAYERS = {
    "Linear": (3, 4),
    "Conv2d": (3, 4, 3),
    "LSTM": (3, 4, 2),
    "GRUCell": (3, 4),
    "BatchNorm2d": (3,),
    "Bilinear": (2, 3, 4),
    "MultiheadAttention": (4, 2),
    "TransformerEncoderLayer": (4, 2),
    "TransformerDecoderLayer": (4, 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_their_parameters_in_pytorchs_order(name):
    theirs = [n for n, _ in getattr(torch.nn, name)(*LAYERS[name]).named_parameters()]
    ours = get_state_dict(getattr(nn, name)(*LAYERS[name]))
    assert [n for n, t in ours.items() if t.requires_grad is not False] == theirs


def state_of(name, *params, **options):
    return getattr(torch.optim, name)(
        [torch.zeros(p, requires_grad=True) for p in params or [(3, 4)]], **options
    ).state_dict()


REFUSED = {
    "other tensors": ("Adam", state_of("SGD", lr=0.1), "says momentum=0"),
    "another kind": ("AdamW", state_of("Adam"), "says decoupled_weight_decay=False"),
    "other options": ("SGD", state_of("RMSprop"), "says alpha=0.99"),
    "more parameters": ("SGD", state_of("SGD", (3, 4), (4,)), "of 2 parameters; legal are the 1"),
    "more groups": (
        "SGD",
        state_of("SGD") | {"param_groups": [{"params": [0]}, {"params": [1]}]},
        "of 2 groups; legal are 1",
    ),
    "what has none there": ("LAMB", state_of("Adam"), "its own state_dict"),
    "tensors of another kind": (
        "Adam",
        state_of("Adam") | {"state": {0: {"momentum_buffer": torch.zeros(3, 4)}}},
        "has momentum_buffer; those of Adam have exp_avg",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_others_are_refused_and_change_nothing(what):
    name, state, message = REFUSED[what]
    ours = getattr(optim, name)([Tensor(W)])
    before = dict(vars(ours))
    with pytest.raises(ArgumentError, match=message):
        ours.load_state_dict(state)
    assert vars(ours) == before


def test_other_shapes_are_refused_and_change_nothing():
    ours = optim.Adam([Tensor(W)], lr=0.5)
    state = state_of("Adam") | {"state": {0: {"exp_avg": torch.zeros(4, 3)}}}
    with pytest.raises(ShapeError, match=r"m\.0 has shape \(3, 4\) in the model and \(4, 3\)"):
        ours.load_state_dict(state)
    assert ours.lr.item() == 0.5


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@Tensor.train()
def test_lbfgs_goes_on_along_the_same_pairs(search, tmp_path):
    def closure(params, optimizer):
        def loss():
            optimizer.zero_grad()
            w, b = params
            found = ((w - b) ** 2).sum() + (w**4).sum()
            found.backward()
            return found

        return loss

    options = {"lr": 0.1, "max_iter": 4, "history_size": 3, "line_search_fn": search}
    params, theirs = made(torch.optim, "LBFGS", **options)
    for _ in range(2):
        theirs.step(closure(params, theirs))
    torch.save(theirs.state_dict(), tmp_path / "state.pt")
    mine, ours = made(optim, "LBFGS")
    for own, other in zip(mine, params, strict=True):
        own.assign(Tensor(other.detach().numpy())).realize()
    ours.load_state_dict(torch_load(tmp_path / "state.pt"))
    theirs.step(closure(params, theirs))
    ours.step(closure(mine, ours))
    for own, other in zip(mine, params, strict=True):
        np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (state_of("Adam"), "no max_iter"),
        ({"moves": []}, "no value for turns, direction"),
    ],
)
def test_lbfgs_refuses_others(state, message):
    with pytest.raises(ArgumentError, match=message):
        optim.LBFGS([Tensor(W)]).load_state_dict(state)
