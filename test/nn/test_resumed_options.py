"""An optimizer that resumes has the options of the state, whatever it was made with, as PyTorch's
has: its state follows."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit
from tinygrad.base.errors import ArgumentError, JitError
from tinygrad.nn import optim
from tinygrad.nn.state import safe_load, safe_save

W = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)

RESUMED = {
    "dampening": ("SGD", {"momentum": 0.9, "dampening": 0.5}, {}),
    "no dampening": ("SGD", {"momentum": 0.9}, {"momentum": 0.5, "dampening": 0.5}),
    "neither it nor momentum": ("SGD", {}, {"momentum": 0.9, "dampening": 0.5}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}, {"momentum": 0.5}),
    "no nesterov": ("SGD", {"momentum": 0.5}, {"momentum": 0.9, "nesterov": True}),
    "maximize": ("Adam", {"maximize": True}, {}),
    "no maximize": ("Adam", {}, {"maximize": True}),
    "amsgrad": ("Adam", {"amsgrad": True, "betas": (0.5, 0.3)}, {}),
    "no amsgrad": ("AdamW", {}, {"amsgrad": True}),
    "decoupled": ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}, {}),
    "centered": ("RMSprop", {"centered": True, "momentum": 0.9}, {}),
    "not centered": ("RMSprop", {}, {"centered": True, "momentum": 0.9}),
    "etas": ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (0.01, 0.3)}, {}),
    "alpha": ("ASGD", {"alpha": 1.5, "t0": 2.0, "lambd": 0.1}, {}),
    "a pair for eps": ("Adafactor", {"beta2_decay": -0.3, "d": 2.0, "eps": (0.3, 0.9)}, {}),
    "None in it": ("Adafactor", {}, {"eps": (0.3, 0.9)}),
}
"""Name, options of the state, options that the one that loads it was made with."""


def run(lib, name, first, then, keep=lambda state: state):
    w = Tensor(W, requires_grad=True) if lib is optim else torch.tensor(W, requires_grad=True)
    optimizer = getattr(lib, name)([w], lr=0.02, **first)
    for turn in range(6):
        if turn == 3:
            state = keep(optimizer.state_dict())
            optimizer = getattr(lib, name)([w], lr=0.02, **then)
            optimizer.load_state_dict(state)
        step(optimizer, w)
    return w.detach().numpy()


def step(optimizer, w):
    optimizer.zero_grad()
    (w * w * w).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("what", RESUMED)
@Tensor.train()
def test_who_resumes_has_the_options_of_the_state_as_torchs(what, tmp_path):
    def keep(state):
        safe_save(state, tmp_path / "state")
        return safe_load(tmp_path / "state")

    ours, theirs = run(optim, *RESUMED[what], keep), run(torch.optim, *RESUMED[what])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_texts_and_whole_numbers_come_back_as_they_were():
    options = {"adjust_lr_fn": "original", "ns_steps": 3, "ns_coefficients": (3.0, -4.0, 2.0)}
    first, second = optim.Muon([Tensor(W)], **options), optim.Muon([Tensor(W)])
    second.load_state_dict(first.state_dict())
    assert {name: getattr(second, name) for name in options} == options
    first.load_state_dict(optim.Muon([Tensor(W)]).state_dict())
    assert first.adjust_lr_fn is None and type(first.ns_steps) is int


@pytest.mark.parametrize("kind", [optim.Adam, lambda p, **o: optim.SGD(p, momentum=0.9, **o)])
@Tensor.train()
def test_a_momentum_that_a_cycle_moved_can_become_a_constant_again(kind):
    w, other = Tensor(W), Tensor(W)
    moved, plain = kind([w], lr=0.1), kind([other], lr=0.1)
    step(plain, other)
    moved.vary_inertia()
    w.assign(other.detach()).realize()
    moved.load_state_dict(plain.state_dict())
    for _ in range(2):
        step(moved, w)
        step(plain, other)
    assert w.tolist() == other.tolist()


@Tensor.train()
def test_a_captured_step_says_that_an_option_is_another():
    w = Tensor(W)
    optimizer = optim.SGD([w], lr=0.1, momentum=0.9)
    captured = TinyJit(lambda: step(optimizer, w))
    for _ in range(3):
        captured()
    optimizer.load_state_dict(optim.SGD([Tensor(W)], lr=0.1, momentum=0.9).state_dict())
    captured()
    others = optim.SGD([Tensor(W)], lr=0.1, momentum=0.9, nesterov=True).state_dict()
    optimizer.load_state_dict(others)
    with pytest.raises(JitError, match="nesterov"):
        captured()


def tensors_of(optimizer):
    state = optimizer.state_dict()
    return {name: tensor for name, tensor in state.items() if not name.startswith("options.")}


def test_a_state_without_them_leaves_options_and_their_state():
    optimizer = optim.Adam([Tensor(W)], amsgrad=True)
    optimizer.load_state_dict(tensors_of(optim.Adam([Tensor(W)], amsgrad=True)))
    assert optimizer.amsgrad and len(optimizer.largest) == 1
    with pytest.raises(ArgumentError, match=r"no value for largest\.0"):
        optimizer.load_state_dict(tensors_of(optim.Adam([Tensor(W)])))


def test_a_refused_state_leaves_everything_as_it_was():
    optimizer = optim.Adam([Tensor(W)])
    before = dict(vars(optimizer))
    state = optim.Adam([Tensor(W)], amsgrad=True, maximize=True).state_dict()
    del state["largest.0"]
    with pytest.raises(ArgumentError, match=r"no value for largest\.0"):
        optimizer.load_state_dict(state)
    assert vars(optimizer) == before


SCHEDULES = {
    "StepLR": ({"step_size": 2, "gamma": 0.5}, {"step_size": 3}),
    "MultiStepLR": ({"milestones": [2, 5], "gamma": 0.5}, {"milestones": [1, 2, 3]}),
    "ExponentialLR": ({"gamma": 0.7}, {"gamma": 1}),
    "ConstantLR": ({"factor": 0.5, "total_iters": 4}, {}),
    "LinearLR": ({"start_factor": 0.5, "total_iters": 8}, {}),
    "PolynomialLR": ({"total_iters": 9, "power": 2.0}, {}),
    "CosineAnnealingLR": ({"T_max": 7, "eta_min": 0.01}, {"T_max": 20}),
    "CosineAnnealingWarmRestarts": ({"T_0": 2, "T_mult": 2}, {"T_0": 5}),
    "CyclicLR": (
        {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 2, "cycle_momentum": False},
        {"base_lr": 0.1, "max_lr": 0.3, "step_size_up": 4, "cycle_momentum": False},
    ),
    "OneCycleLR": (
        {"max_lr": 0.5, "total_steps": 9, "three_phase": True, "cycle_momentum": False},
        {"max_lr": 0.3, "total_steps": 20, "cycle_momentum": False},
    ),
    "ReduceLROnPlateau": (
        {"mode": "max", "patience": 1, "factor": 0.5, "threshold_mode": "abs"},
        {"patience": 3},
    ),
}
"""Name, options of the state, options that the one that loads it was made with."""


def rates(lib, name, first, then, keep=lambda state: state):
    w = Tensor(W, requires_grad=True) if lib is optim else torch.tensor(W, requires_grad=True)
    kind = getattr(getattr(lib, "lr_scheduler", lib), name)

    def made(options):
        optimizer = lib.SGD([w], lr=0.2)
        return optimizer, kind(optimizer, **options)

    pair, seen = made(first), []
    for turn in range(8):
        if turn == 3:
            states = [keep(each.state_dict()) for each in pair]
            pair = made(then)
            for each, state in zip(pair, states, strict=True):
                each.load_state_dict(state)
        step(pair[0], w)
        pair[1].step(*[1.0] * (name == "ReduceLROnPlateau"))
        seen.append(float(pair[0].param_groups[0]["lr"]))
    return seen


@pytest.mark.parametrize("name", SCHEDULES)
@Tensor.train()
def test_a_schedule_that_resumes_has_the_options_of_the_state_as_torchs(name, tmp_path):
    def keep(state):
        safe_save(state, tmp_path / "state")
        return safe_load(tmp_path / "state")

    ours, theirs = (
        rates(optim, name, *SCHEDULES[name], keep),
        rates(torch.optim, name, *SCHEDULES[name]),
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def sequence(gamma):
    optimizer = optim.SGD([Tensor(W)], lr=0.2)
    parts = [optim.ConstantLR(optimizer, 0.5, 2), optim.ExponentialLR(optimizer, gamma)]
    return optim.SequentialLR(optimizer, parts, [2 if gamma == 0.5 else 3])


@pytest.mark.parametrize(
    "make",
    [
        sequence,
        lambda gamma: optim.ChainedScheduler(
            [optim.ExponentialLR(optim.SGD([Tensor(W)], lr=0.2), gamma)]
        ),
    ],
)
def test_schedules_of_schedules_have_those_of_all(make):
    one, other = make(0.5), make(0.9)
    one.step()
    other.load_state_dict(one.state_dict())
    other.optimizers[0].load_state_dict(one.optimizers[0].state_dict())  # the rate is in its own
    for _ in range(3):
        one.step()
        other.step()
    assert one.get_last_lr() == other.get_last_lr()


def test_a_schedules_state_from_before_leaves_options_and_a_rate_set_by_hand():
    schedule = optim.StepLR(optim.SGD([Tensor(W)], lr=0.2), 3, 0.5)
    schedule.optimizer.param_groups[0]["lr"] = 0.75
    schedule.load_state_dict({"turn": Tensor([2], dtype="int32")})
    assert (schedule.step_size, schedule.gamma, schedule.get_last_lr()) == (3, 0.5, [0.75])
    schedule.load_state_dict(optim.StepLR(optim.SGD([Tensor(W)], lr=0.1), 2, 0.9).state_dict())
    assert (schedule.step_size, schedule.gamma, schedule.get_last_lr()) == (2, 0.9, [0.75])
    others = optim.StepLR(optim.SGD([Tensor(W)], lr=0.1), 2, 0.25).state_dict()
    del others["turn"]
    with pytest.raises(ArgumentError, match="no value for turn"):
        schedule.load_state_dict(others)
    assert schedule.gamma == 0.9


@Tensor.train()
def test_a_captured_step_says_that_a_schedules_option_is_another():
    w = Tensor(W)
    schedule = optim.MultiStepLR(optim.SGD([w], lr=0.1), [4, 5], 0.5)

    @TinyJit
    def captured():
        step(schedule.optimizer, w)
        schedule.step()

    for _ in range(3):
        captured()
    schedule.load_state_dict(optim.MultiStepLR(schedule.optimizer, [4, 5], 0.5).state_dict())
    captured()
    schedule.load_state_dict(optim.MultiStepLR(schedule.optimizer, [4, 5], 0.9).state_dict())
    with pytest.raises(JitError, match="gamma"):
        captured()


@pytest.mark.parametrize(
    "first",
    [
        lambda o: optim.ExponentialLR(o, 0.5),
        lambda o: optim.MultiStepLR(o, [1], 0.5),
        lambda o: optim.LambdaLR(o, lambda turn: 1.0),
        lambda o: optim.SequentialLR(o, [optim.StepLR(o, 1, 0.5)], []),
    ],
)
def test_a_schedule_refuses_the_state_of_another_kind(first):
    optimizer = optim.SGD([Tensor(W)], lr=0.2)
    state = first(optimizer).state_dict()
    schedule = optim.StepLR(optim.SGD([Tensor(W)], lr=0.2), 3, 0.5)
    with pytest.raises(ArgumentError, match="legal is one of another StepLR, with after, gamma"):
        schedule.load_state_dict(state)


def test_a_plateau_refuses_the_state_of_another_kind():
    optimizer = optim.SGD([Tensor(W)], lr=0.2)
    with pytest.raises(ArgumentError, match="legal is one of another ReduceLROnPlateau"):
        optim.ReduceLROnPlateau(optimizer).load_state_dict(optim.StepLR(optimizer, 3).state_dict())
