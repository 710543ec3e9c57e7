"""What training programs do between their steps is done, or refused by a captured step."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit
from tinygrad.base.errors import ArgumentError, JitError
from tinygrad.nn import optim, utils


@pytest.fixture(autouse=True)
def training():
    with Tensor.train():
        yield


def two_weights(capture=TinyJit, **options):
    """A step of two weights, and these."""
    first, second = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    optimizer = optim.SGD([first, second], lr=0.25, **options)

    @capture
    def step():
        optimizer.zero_grad()
        loss = (first * second).sum().backward()
        optimizer.step()
        return loss

    return step, first, second, optimizer


def freeze(weight):
    weight.requires_grad = False


@pytest.mark.parametrize("before, after", [(True, False), (False, True)])
def test_a_replay_refuses_what_was_frozen_or_thawed(before, after):
    step, first, _, _ = two_weights()
    first.requires_grad = before
    for _ in range(3):
        step()
    first.requires_grad = after
    with pytest.raises(JitError, match=rf"requires_grad of a .* is {after} now; the .* {before}"):
        step()
    step.reset()
    frozen = first.tolist()
    for _ in range(3):
        step()
    assert (first.tolist() == frozen) is before


def test_steps_without_gradients_are_for_frozen_weights_too():
    weight = Tensor([2.0], requires_grad=True)
    evaluate = TinyJit(lambda x: (x * weight).realize())
    found = [evaluate(Tensor([3.0])).item() for _ in range(3)]
    weight.requires_grad = False
    assert [*found, evaluate(Tensor([3.0])).item()] == [6.0] * 4


def test_a_step_may_freeze_and_thaw_itself():
    first, second = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    pairs = [(first, second), (second, first)]
    optimizers = [optim.SGD([each], lr=0.25) for each in (first, second)]

    def step_of(moves, stays, optimizer):
        def step():
            moves.requires_grad, stays.requires_grad = True, False
            optimizer.zero_grad()
            (moves * stays).sum().backward()
            optimizer.step()

        return TinyJit(step)

    steps = [step_of(*pair, each) for pair, each in zip(pairs, optimizers, strict=True)]
    for _ in range(4):
        for step in steps:
            step()
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    for _ in range(4):
        a = a - 0.25 * b
        b = b - 0.25 * a
    assert first.tolist() == a.tolist() and second.tolist() == b.tolist()


def test_the_gradient_of_a_plain_step_is_not_that_of_the_replay_after_it():
    step, first, _, _ = two_weights()
    for _ in range(3):
        step()
    step.function()
    step()
    with pytest.raises(ArgumentError, match="captured step made after a zero_grad"):
        first.grad.numpy()


@pytest.mark.parametrize("look", ["step", "zero_grad", "clip"])
def test_a_replay_refuses_a_gradient_where_the_step_found_none(look):
    """A plain call would move it, forget it, or clip it."""
    step, first, second, _ = two_weights(lambda function: function)
    other = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = optim.SGD([other, first], lr=0.25)
    looks = {
        "step": optimizer.step,
        "zero_grad": optimizer.zero_grad,
        "clip": lambda: optim.clip_grad_norm_([other, first], 1.0),
    }

    @TinyJit
    def captured(x):
        looks[look]()
        return x * 2

    for _ in range(3):
        step()
        captured(Tensor([1.0]).realize())
    (other * other).sum().backward()
    with pytest.raises(JitError, match=r"shape \(2,\) has a .grad, and had none when the call was"):
        captured(Tensor([1.0]).realize())


def test_a_group_of_which_some_is_frozen_steps_with_the_rest():
    """As PyTorch's groups do; with no gradient at all it is an error as of one optimizer."""
    a, b = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    both = optim.Adam([{"params": [a]}, {"params": [b]}], lr=0.5)
    with pytest.raises(ArgumentError, match="no gradients"):
        both.step()
    (b * b).sum().backward()
    both.step()
    assert a.item() == 1.0 and abs(b.item() - 0.5) < 1e-6


def test_the_rate_of_a_group_is_that_of_each():
    both = optim.SGD([{"params": [Tensor([1.0])]}, {"params": [Tensor([1.0])], "lr": 2.0}], lr=1.0)
    with pytest.raises(ArgumentError, match=r"lr = 0.5, but each.*param_groups\[i\]"):
        both.lr = 0.5


@pytest.mark.parametrize(
    "schedule",
    [lambda lib, o: lib.LinearLR(o, 0.25, total_iters=3), lambda lib, o: lib.StepLR(o, 2)],
)
def test_the_first_step_of_asgd_has_the_rate_that_a_schedule_set(schedule):
    def found(lib, schedules, weight):
        optimizer = lib.ASGD([weight], lr=0.5, lambd=0.125)
        turns, values = schedule(schedules, optimizer), []
        for _ in range(5):
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step()
            turns.step()
            values.append(weight.tolist())
        return values

    theirs = torch.tensor([1.0, 2.0], requires_grad=True)
    wanted = found(torch.optim, torch.optim.lr_scheduler, theirs)
    np.testing.assert_allclose(found(optim, optim, Tensor([1.0, 2.0])), wanted, 1e-5)


@pytest.mark.parametrize("scaled", [True, False])
def test_a_plain_step_refuses_the_gradient_that_no_replay_makes(scaled):
    """It may be an expression of the weights alone, whose value in the capture isn't that now; and
    the weights stay as they are."""
    weight = Tensor([1.0, 2.0])
    optimizer = optim.SGD([weight], lr=0.25)

    @TinyJit
    def slopes(x):
        optimizer.zero_grad()
        return (weight * weight * (x if scaled else 1.0)).sum().backward()

    for call in range(4):
        slopes(Tensor([3.0]).realize())
        weight.assign(weight.detach() * 0.5).realize()
        with pytest.raises(ArgumentError, match="no replay makes it") if call else nullcontext():
            weight.grad.numpy()
    with pytest.raises(ArgumentError, match="SGD.step: parameter 0: .* no replay makes it"):
        optimizer.step()
    assert weight.tolist() == [0.0625, 0.125]


def test_replays_set_a_gradient_to_zeros_and_add_to_it():
    weight = Tensor([1.0, 2.0])
    optimizer = optim.SGD([weight], lr=0.25)

    @TinyJit
    def slopes(x):
        optimizer.zero_grad(set_to_none=False)
        return (weight * weight * x).sum().backward()

    for call in range(5):
        slopes(Tensor([3.0 + call]).realize())
        assert weight.grad.tolist() == [2 * w * (3.0 + call) for w in weight.tolist()]
        optimizer.step() if call % 2 else weight.assign(weight.detach() * 0.5).realize()


def test_what_a_step_makes_of_its_state_and_keeps_to_itself_is_not_that_of_a_replay():
    state, keeper = Tensor([1.0, 2.0]).realize(), SimpleNamespace()

    @TinyJit
    def step():
        state.assign(state + 1).realize()
        keeper.kept = state * 2
        return state + 0

    for _ in range(3):
        step()
    with pytest.raises(ArgumentError, match="made inside a captured step"):
        keeper.kept.numpy()


def test_a_tensor_that_a_step_puts_in_the_place_of_another_is_not_that_of_a_replay():
    keeper = SimpleNamespace(sum=Tensor([1.0, 2.0]).realize())

    @TinyJit
    def step(x):
        keeper.sum = keeper.sum + 1
        return x * 2

    for _ in range(4):
        step(Tensor([3.0]).realize())
    with pytest.raises(ArgumentError, match="made inside a captured step"):
        keeper.sum.numpy()


def test_a_replay_refuses_other_options_of_an_optimizer_in_a_group():
    a, b = Tensor([1.0]), Tensor([1.0])
    both = optim.SGD([{"params": [a]}, {"params": [b]}], lr=0.25)

    @TinyJit
    def step():
        both.zero_grad()
        (a * b).sum().backward()
        both.step()

    for _ in range(3):
        step()
    both.param_groups[1]["weight_decay"] = 0.5
    with pytest.raises(JitError, match="weight_decay .* is 0.5 now; the captured call read 0.0"):
        step()


def flat_gradients(lib, array, optimizer, read):
    """Parameters whose gradients are parts of one vector."""
    ws = [array([1.0, 2.0], True), array([3.0], True)]
    flat, mover = array([0.0, 0.0, 0.0]), optimizer(ws)
    ws[0].grad, ws[1].grad = flat[:2], flat[2:]
    for turn in range(3):
        for _ in range(2):
            ((ws[0] * ws[0]).sum() * ws[1].sum()).backward()
        read(flat)
        with lib.no_grad():
            flat *= 0.5
        mover.step()
        read(*ws)
        mover.zero_grad(set_to_none=turn == 2)
        read(flat)


def held_gradients(lib, array, optimizer, read):
    """One of them is held, has a view, and is another tensor's gradient, too."""
    w, other = array([1.0, 2.0], True), array([3.0, 4.0], True)
    for turn in range(3):
        (w * other).sum().backward()
        held, part = w.grad, w.grad[:1]
        if turn == 1:
            read(held)
        (w * w).sum().backward()
        other.grad = held
        (other * 3).sum().backward()
        read(held, part, w.grad, other.grad)
        assert (w.grad is held) and (other.grad is held)
        optimizer([w, other]).zero_grad(set_to_none=turn == 2)
        read(held, part)
        w.grad = other.grad = None


@pytest.mark.parametrize("program", [flat_gradients, held_gradients])
def test_gradients_add_up_where_they_are(program):
    seen = [], []
    program(
        Tensor,
        lambda values, wants=False: Tensor(values, requires_grad=wants).realize(),
        lambda params: optim.SGD(params, lr=0.125),
        lambda *tensors: seen[0].extend(t.tolist() for t in tensors),
    )
    program(
        torch,
        lambda values, wants=False: torch.tensor(values, requires_grad=wants),
        lambda params: torch.optim.SGD(params, lr=0.125),
        lambda *tensors: seen[1].extend(t.tolist() for t in tensors),
    )
    assert seen[0] == seen[1]


def test_a_captured_step_adds_to_a_gradient_that_is_part_of_a_vector():
    w, flat = Tensor([1.0, 2.0], requires_grad=True).realize(), Tensor([0.0] * 3).realize()
    w.grad = flat[:2]
    step = TinyJit(lambda x: (w * x).sum().backward())
    for count in range(1, 5):
        step(Tensor([1.0, 2.0]).realize())
        assert flat.tolist() == [count, 2 * count, 0]


@pytest.mark.parametrize("name, limit", [("clip_grad_norm_", 5.0), ("clip_grad_value_", 2.5)])
@pytest.mark.parametrize("turns", [1, 2])
def test_gradients_are_clipped_where_they_are(name, limit, turns):
    w, flat = Tensor([1.0, 4.0], requires_grad=True), Tensor([0.0] * 3).realize()
    other, theirs = torch.tensor([1.0, 4.0], requires_grad=True), torch.zeros(3)
    w.grad, other.grad = flat[1:], theirs[1:]
    for _ in range(turns):
        (w * w).sum().backward()
        (other * other).sum().backward()
        getattr(utils, name)([w], limit)
        getattr(torch.nn.utils, name)([other], limit)
    np.testing.assert_allclose(flat.numpy(), theirs.numpy(), rtol=1e-6)


def test_gradients_are_unscaled_where_they_are():
    w, flat = Tensor([1.0, 4.0], requires_grad=True), Tensor([0.0] * 3).realize()
    optimizer, scaler = optim.SGD([w], lr=0.5), optim.GradScaler(init_scale=8.0)
    w.grad = flat[1:]
    scaler.scale((w * w).sum()).backward()
    scaler.unscale_(optimizer)
    assert flat.tolist() == [0.0, 2.0, 8.0]
