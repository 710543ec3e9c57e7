"""Schedules have PyTorch's rates, step by step, also in a captured step."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, nn
from tinygrad.base.errors import ArgumentError, JitError
from tinygrad.nn import optim

STEPS = 25


def rates(make):
    optimizer = optim.SGD([Tensor([1.0])], lr=0.5)
    schedule = make(optim, optimizer)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.lr.item())
        schedule.step()
    return found


def rates_of_torch(make):
    optimizer = torch.optim.SGD([torch.tensor([1.0], requires_grad=True)], lr=0.5, momentum=0.9)
    schedule = make(torch.optim.lr_scheduler, optimizer)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def warm_then_cosine(lib, o):
    parts = [lib.LinearLR(o, 0.1, total_iters=5), lib.CosineAnnealingLR(o, T_max=10)]
    return lib.SequentialLR(o, parts, milestones=[5])


@pytest.mark.parametrize(
    "make",
    [
        lambda lib, o: lib.ConstantLR(o, 0.25, 4),
        lambda lib, o: lib.LinearLR(o, 0.25, total_iters=7),
        lambda lib, o: lib.StepLR(o, 4, 0.5),
        lambda lib, o: lib.MultiStepLR(o, [3, 11, 12], 0.5),
        lambda lib, o: lib.MultiStepLR(o, [], 0.5),
        lambda lib, o: lib.ExponentialLR(o, 0.9),
        lambda lib, o: lib.PolynomialLR(o, 10, 2.0),
        lambda lib, o: lib.CosineAnnealingLR(o, 10, 0.1),
        lambda lib, o: lib.OneCycleLR(o, 2.0, STEPS + 1),
        lambda lib, o: lib.OneCycleLR(
            o, 2.0, epochs=13, steps_per_epoch=2, anneal_strategy="linear", pct_start=0.4
        ),
        lambda lib, o: lib.OneCycleLR(o, 2.0, STEPS, pct_start=0.0),
        lambda lib, o: lib.OneCycleLR(o, 2.0, STEPS, three_phase=True),
        lambda lib, o: lib.CyclicLR(o, 0.1, 0.5, 4),
        lambda lib, o: lib.CyclicLR(o, 0.1, 0.5, 4, scale_fn=lambda cycle: 0.9**cycle),
        lambda lib, o: lib.CyclicLR(
            o, 0.1, 0.5, 4, scale_fn=lambda turn: 0.9**turn, scale_mode="iterations"
        ),
        lambda lib, o: lib.CyclicLR(o, 0.1, 0.5, 4, 7, mode="triangular2"),
        lambda lib, o: lib.CyclicLR(o, 0.1, 0.5, 3, 2, mode="exp_range", gamma=0.9),
        lambda lib, o: lib.CosineAnnealingWarmRestarts(o, 4),
        lambda lib, o: lib.CosineAnnealingWarmRestarts(o, 2, T_mult=2, eta_min=0.1),
        lambda lib, o: lib.CosineAnnealingWarmRestarts(o, 3, T_mult=3),
        lambda lib, o: lib.LambdaLR(o, lambda turn: 1 / (turn + 1)),
        lambda lib, o: lib.LambdaLR(o, lr_lambda=lambda turn: 0.9 ** (turn // 3)),
        lambda lib, o: lib.LambdaLR(o, lambda turn: min(1.0, (turn + 1) / 7)),
        lambda lib, o: lib.LambdaLR(o, lambda turn: [0.5, 0.25, 0.125][turn % 3]),
        lambda lib, o: lib.LambdaLR(o, lambda turn: 0.5),
        lambda lib, o: lib.MultiplicativeLR(o, lambda turn: 1 - 0.01 * turn),
        lambda lib, o: lib.ChainedScheduler([lib.ExponentialLR(o, 0.9)]),
        lambda lib, o: lib.ChainedScheduler(
            [lib.LinearLR(o, 0.1, total_iters=5), lib.CosineAnnealingLR(o, 30), lib.StepLR(o, 4)]
        ),
        warm_then_cosine,
    ],
)
def test_rates(make):
    np.testing.assert_allclose(rates(make), rates_of_torch(make), rtol=2e-5, atol=1e-7)


MADE = [
    lambda lib, o: lib.ConstantLR(o, 0.25, 4),
    lambda lib, o: lib.LinearLR(o, 0.25, total_iters=7),
    lambda lib, o: lib.StepLR(o, 4, 0.5),
    lambda lib, o: lib.MultiStepLR(o, [3, 11, 12], 0.5),
    lambda lib, o: lib.ExponentialLR(o, 0.9),
    lambda lib, o: lib.PolynomialLR(o, 5, 2.0),
    lambda lib, o: lib.CosineAnnealingLR(o, 10, 0.1),
    lambda lib, o: lib.LambdaLR(o, lambda turn: 1 / (turn + 1)),
    lambda lib, o: lib.MultiplicativeLR(o, lambda turn: 1 - 0.01 * turn),
    lambda lib, o: lib.CosineAnnealingWarmRestarts(o, 4),
    lambda lib, o: lib.ChainedScheduler([lib.LinearLR(o, 0.1), lib.ExponentialLR(o, 0.9)]),
    warm_then_cosine,
    lambda lib, o: lib.SequentialLR(
        o, [lib.ConstantLR(o, 0.5, 9), lib.MultiplicativeLR(o, lambda t: 0.9)], [2]
    ),
]


def beside(make, first=0.5, by_hand=(), captured=False):
    """The rates of both, if these are set by hand before steps."""
    w = Tensor([1.0], requires_grad=True)
    ours = optim.SGD([w], lr=0.5)
    theirs = torch.optim.SGD([torch.tensor([1.0], requires_grad=True)], lr=0.5)
    ours.lr = theirs.param_groups[0]["lr"] = first
    mine, wanted = make(optim, ours), make(torch.optim.lr_scheduler, theirs)

    def step():
        ours.zero_grad()
        w.sum().backward()
        with Tensor.train():
            changed = [*ours.schedule_step(), *mine.schedule_step()]
        changed[0].realize(*changed[1:])

    step = TinyJit(step) if captured else step
    found = []
    for turn in range(12):
        if turn in by_hand:
            ours.param_groups[0]["lr"] = theirs.param_groups[0]["lr"] = by_hand[turn]
        found.append((ours.lr.item(), theirs.param_groups[0]["lr"]))
        step()
        theirs.step()
        wanted.step()
    return np.array(found).T


@pytest.mark.parametrize("make", MADE)
def test_a_schedule_begins_with_the_rate_that_was_set_before(make):
    np.testing.assert_allclose(*beside(make, first=0.3), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("make", MADE)
def test_what_multiplies_goes_on_from_a_rate_that_was_set_by_hand(make):
    np.testing.assert_allclose(*beside(make, by_hand={2: 0.2, 6: 0.3}), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("make", [m for m in MADE if MADE.index(m) not in (7, 9)])
def test_a_captured_schedule_goes_on_from_a_rate_that_was_set_by_hand(make):
    rates = beside(make, by_hand={4: 0.2, 7: 0.3}, captured=True)
    np.testing.assert_allclose(*rates, rtol=1e-4, atol=1e-7)


def test_a_warm_up_leaves_a_rate_that_a_plateau_has_cut():
    ours = optim.SGD([Tensor([1.0])], lr=0.5)
    theirs = torch.optim.SGD([torch.tensor([1.0], requires_grad=True)], lr=0.5)
    for lib, o in ((optim, ours), (torch.optim.lr_scheduler, theirs)):
        warm, plateau = lib.LinearLR(o, 0.5, total_iters=3), lib.ReduceLROnPlateau(o, patience=1)
        for loss in [4.0, 3.0, 3.0, 3.0, 3.0, 2.0, 2.0]:
            o.step() if o is theirs else None
            warm.step()
            plateau.step(loss)
    assert abs(ours.lr.item() - theirs.param_groups[0]["lr"]) < 1e-7


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("how", [{}, {"threshold_mode": "abs", "threshold": 0.6}, {"eps": 0.05}])
def test_plateau(mode, how):
    losses = [3, 2, 2, 2, 2, 2, 2, 1, 1.5, 1, 1, 1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    options = {"mode": mode, "factor": 0.5, "patience": 2, "cooldown": 2, "min_lr": 0.03} | how
    ours = optim.SGD([Tensor([1.0])], lr=0.5)
    theirs = torch.optim.SGD([torch.tensor([1.0], requires_grad=True)], lr=0.5)
    mine = optim.ReduceLROnPlateau(ours, **options)
    wanted = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    for loss in losses:
        mine.step(Tensor(loss))
        wanted.step(loss)
        assert abs(ours.lr.item() - theirs.param_groups[0]["lr"]) < 1e-6


def test_a_captured_schedule_goes_on():
    w = Tensor([0.0])
    optimizer = optim.SGD([w], lr=1.0)
    schedule = optim.ExponentialLR(optimizer, 0.5)

    @TinyJit
    def step():
        optimizer.zero_grad()
        w.sum().backward()
        changed = [*optimizer.schedule_step(), *schedule.schedule_step()]
        changed[0].realize(*changed[1:])

    with Tensor.train():
        for _ in range(5):
            step()
    assert w.item() == -1.9375 and optimizer.lr.item() == 0.03125


@pytest.mark.parametrize(
    "make", [lambda o: optim.StepLR(o, 2), lambda o: optim.ReduceLROnPlateau(o, patience=1)]
)
def test_saved_state_goes_on(make):
    def goes(schedule, losses):
        for loss in losses:
            schedule.step(*([loss] if isinstance(schedule, optim.ReduceLROnPlateau) else []))
        return schedule.get_last_lr()

    first, second = (optim.SGD([Tensor([1.0])], lr=0.5) for _ in range(2))
    one, other = make(first), make(second)
    goes(one, [1.0, 1.0, 1.0])
    second.load_state_dict(first.state_dict())
    other.load_state_dict(one.state_dict())
    assert goes(one, [1.0, 1.0, 1.0]) == goes(other, [1.0, 1.0, 1.0])


def test_the_number_of_the_step():
    schedule = optim.StepLR(optim.SGD([Tensor([1.0])], lr=0.5), 2)
    schedule.step()
    assert schedule.last_epoch == 1


def test_a_group_keeps_its_first_rates():
    both = optim.OptimizerGroup(optim.SGD([Tensor([1.0])], 1.0), optim.SGD([Tensor([1.0])], 2.0))
    schedule = optim.ExponentialLR(both, 0.5)
    schedule.step()
    assert schedule.get_last_lr() == [0.5, 1.0]


@pytest.mark.parametrize(
    "misuse, message",
    [
        (lambda o: optim.StepLR(o, 0), "step_size=0; legal is 1 or more"),
        (lambda o: optim.ReduceLROnPlateau(o, mode="best"), "legal are min, max"),
        (lambda o: optim.ReduceLROnPlateau(o, threshold_mode="x"), "legal are rel, abs"),
        (lambda o: optim.LambdaLR(o, [lambda t: t]), "legal is a function"),
        (lambda o: optim.OneCycleLR(o, 1.0, epochs=3), "legal are total_steps, or both"),
        (lambda o: optim.OneCycleLR(o, 1.0, 9, anneal_strategy="x"), "legal are cos, linear"),
        (lambda o: optim.StepLR(o.params[0], 3), "of type Tensor; legal are optimizers"),
        (lambda o: optim.SequentialLR(o, [optim.ExponentialLR(o, 1)], [1]), "legal are 0"),
    ],
)
def test_misuse(misuse, message):
    with pytest.raises(ArgumentError, match=message):
        misuse(optim.SGD([Tensor([1.0])], lr=0.5))


def of_both(o):
    return [optim.ExponentialLR(o, 0.5), optim.StepLR(o, 2)]


def in_turns(o):
    for each in 2 * of_both(o):
        each.step()
    both = of_both(o)
    for _ in range(2):
        for each in both:
            each.step()


@pytest.mark.parametrize(
    "misuse, message",
    [
        (in_turns, "ExponentialLR.step: in turns with StepLR of the same optimizer.*Chained"),
        (lambda o: optim.ChainedScheduler([]), "of no schedules"),
        (lambda o: optim.ChainedScheduler([optim.CosineAnnealingLR(o, 9, 0.1)]), "down to 0"),
        (lambda o: optim.ChainedScheduler([optim.LambdaLR(o, float)]), "LambdaLR sets a rate"),
        (lambda o: optim.MultiplicativeLR(o, 0.5), "0.5; legal is a function"),
        (lambda o: optim.OneCycleLR(o, 1.0, 9, max_momentum=1.5), "max_momentum=1.5; legal are"),
        (lambda o: optim.CyclicLR(o, 0.1, 1.0, base_momentum=-1), "base_momentum=-1; legal are"),
        (lambda o: optim.CyclicLR(o, 0.1, 1.0, scale_mode="x"), "legal are cycle, iterations"),
    ],
)
def test_misuse_is_told(misuse, message):
    with pytest.raises(ArgumentError, match=message):
        misuse(optim.SGD([Tensor([1.0])], lr=0.5))


# ---- cycles of momentum --------------------------------------------------------------------------

START = np.cos(np.arange(6) * 1.3).reshape(2, 3).astype(np.float32)
CYCLES = [
    lambda lib, o: lib.OneCycleLR(o, 0.05, 12),
    lambda lib, o: lib.OneCycleLR(o, 0.05, 12, three_phase=True, anneal_strategy="linear"),
    lambda lib, o: lib.OneCycleLR(o, 0.05, 12, cycle_momentum=False),
    lambda lib, o: lib.CyclicLR(o, 0.01, 0.05, 2, mode="triangular2"),
    lambda lib, o: lib.CyclicLR(o, 0.01, 0.05, 3, 2, mode="exp_range", gamma=0.9),
    lambda lib, o: lib.SequentialLR(
        o,
        [lib.LinearLR(o, 0.1, total_iters=3), lib.OneCycleLR(o, 0.05, 6), lib.ExponentialLR(o, 1)],
        [3, 8],
    ),
]
MOVERS = [
    lambda lib, w: lib.SGD([w], lr=0.1),
    lambda lib, w: lib.SGD([w], lr=0.1, momentum=0.5, nesterov=True, weight_decay=0.01),
    lambda lib, w: lib.SGD([w], lr=0.1, momentum=0.5, dampening=0.1),
    lambda lib, w: lib.RMSprop([w], lr=0.1),
    lambda lib, w: lib.Adam([w], lr=0.1),
    lambda lib, w: lib.AdamW([w], lr=0.1, amsgrad=True),
    lambda lib, w: lib.Adamax([w], lr=0.1),
    lambda lib, w: lib.NAdam([w], lr=0.1),
    lambda lib, w: lib.RAdam([w], lr=0.1, betas=(0.9, 0.9)),
]


def moved(library, mover, cycle, captured=False, before=0):
    """A parameter after each of 12 steps; the schedule begins after some of them."""
    is_torch = library is torch
    make, target = (torch.tensor if is_torch else Tensor), START[::-1].copy()
    w, target = make(START, requires_grad=True), make(target)
    optimizer = mover(torch.optim if is_torch else optim, w)
    schedules = []

    def step():
        optimizer.zero_grad()
        ((w - target) ** 4).sum().backward()
        optimizer.step()
        for schedule in schedules:
            schedule.step()

    run = TinyJit(step) if captured else step
    found = []
    with Tensor.train():
        for turn in range(12):
            if turn == before:
                schedules.append(cycle(torch.optim.lr_scheduler if is_torch else optim, optimizer))
            run()
            found.append(w.detach().numpy().copy())
    return found


@pytest.mark.parametrize(
    ("mover", "cycle"),
    [(m, CYCLES[0]) for m in MOVERS] + [(m, c) for m in MOVERS[1:5:3] for c in CYCLES[1:]],
)
def test_momentum_goes_the_other_way_round(mover, cycle):
    found, wanted = moved(Tensor, mover, cycle), moved(torch, mover, cycle)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("mover", [MOVERS[0], MOVERS[4]])
def test_a_captured_step_sees_its_momentum_change(mover):
    found, wanted = moved(Tensor, mover, CYCLES[0], captured=True), moved(torch, mover, CYCLES[0])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("mover", [MOVERS[0], MOVERS[4], MOVERS[7]])
def test_a_cycle_may_begin_after_some_steps(mover):
    found = moved(Tensor, mover, CYCLES[0], before=4)
    np.testing.assert_allclose(found, moved(torch, mover, CYCLES[0], before=4), 1e-4, 2e-5)


def test_a_step_that_was_captured_before_the_cycle_says_so():
    with pytest.raises(JitError, match="momentum"):
        moved(Tensor, MOVERS[1], CYCLES[0], captured=True, before=4)


@pytest.mark.parametrize("kind", [optim.Adagrad, optim.Adadelta, optim.Rprop, optim.ASGD])
def test_what_has_no_momentum_is_told(kind):
    optimizer = kind([Tensor([1.0])], lr=0.5)
    with pytest.raises(ArgumentError, match="neither momentum nor b1.*legal is cycle_momentum=F"):
        optim.OneCycleLR(optimizer, 1.0, 9)
    assert optimizer.lr.item() == 0.5
    optim.OneCycleLR(optimizer, 1.0, 9, cycle_momentum=False)


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam])
@pytest.mark.parametrize("schedule_first", [True, False])
def test_a_saved_cycle_goes_on(kind, schedule_first):
    def made():
        w = Tensor(START, requires_grad=True)
        return w, kind([w], lr=0.1)

    def step(w, optimizer, schedule):
        optimizer.zero_grad()
        (w**4).sum().backward()
        optimizer.step()
        schedule.step()

    w, optimizer = made()
    schedule = optim.OneCycleLR(optimizer, 0.05, 9)
    other, later = made()
    with Tensor.train():
        for _ in range(4):
            step(w, optimizer, schedule)
        again = optim.OneCycleLR(later, 0.05, 9) if schedule_first else None
        other.assign(w.numpy()).realize()
        later.load_state_dict({k: v.clone().realize() for k, v in optimizer.state_dict().items()})
        if again:
            again.load_state_dict(schedule.state_dict())
        kept = later.param_groups[0][later.inertia]
        assert kept == optimizer.param_groups[0][later.inertia]
        for _ in range(3 if again else 0):
            step(w, optimizer, schedule)
            step(other, later, again)
    assert w.tolist() == other.tolist()


def test_a_saved_cycle_goes_on_in_a_step_that_was_captured_before():
    def made():
        w = Tensor(START, requires_grad=True).realize()
        optimizer = optim.Adam([w], lr=0.1)
        schedule = optim.OneCycleLR(optimizer, 0.05, 9)

        @TinyJit
        def step():
            optimizer.zero_grad()
            loss = (w**4).sum()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        return step, {"w": w, "optimizer": optimizer, "schedule": schedule}

    (step, kept), (again, later) = made(), made()
    with Tensor.train():
        for _ in range(4):
            step()
        for _ in range(3):
            again()
        state = {name: t.numpy() for name, t in nn.state.get_state_dict(kept).items()}
        nn.state.load_state_dict(later, state)
        for _ in range(3):
            assert again().tolist() == step().tolist()


def test_momentum_that_a_cycle_makes_is_cut_as_other_state():
    devices = ("CPU", "CPU:1")
    w = Tensor.ones(4, 2).to_(devices).requires_grad_()
    optimizer = optim.zero(optim.SGD([w], lr=0.1))
    schedule = optim.OneCycleLR(optimizer, 0.5, 5)
    assert optimizer.b[0].uop.axis == 0
    alone = Tensor.ones(4, 2).requires_grad_()
    one = optim.SGD([alone], lr=0.1)
    cycle = optim.OneCycleLR(one, 0.5, 5)
    with Tensor.train():
        for _ in range(3):
            for param, mover, turns in ((w, optimizer, schedule), (alone, one, cycle)):
                mover.zero_grad()
                (param**2).sum().backward()
                mover.step()
                turns.step()
    np.testing.assert_allclose(w.numpy(), alone.numpy(), rtol=1e-6)


def test_a_cycle_that_is_over_says_so():
    """As PyTorch's, which takes one step more than there are rates."""
    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1, momentum=0.5)
    its = torch.optim.lr_scheduler.OneCycleLR(theirs, 1.0, 4)
    mine = optim.OneCycleLR(optim.SGD([Tensor([0.0])], 0.1, momentum=0.5), 1.0, 4)
    for _ in range(4):
        theirs.step()
        its.step()
        mine.step()
    with pytest.raises(ValueError, match="Tried to step 5 times"):
        its.step()
    with pytest.raises(ArgumentError, match="OneCycleLR.step: after 4 steps; legal are 4 of them"):
        mine.step()
    resumed = optim.OneCycleLR(optim.SGD([Tensor([0.0])], 0.1, momentum=0.5), 1.0, 4)
    resumed.load_state_dict(mine.state_dict())
    with pytest.raises(ArgumentError, match="after 4 steps"):
        resumed.step()


def cycle_after_constant(lib, o):
    parts = [lib.ConstantLR(o, 0.5), lib.OneCycleLR(o, 1.0, 4)]
    return lib.SequentialLR(o, parts, milestones=[2])


def cycle_before_constant(lib, o):
    parts = [lib.OneCycleLR(o, 1.0, 4), lib.ConstantLR(o, 0.5)]
    return lib.SequentialLR(o, parts, milestones=[7])


def cycle_in_time(lib, o):
    parts = [lib.OneCycleLR(o, 1.0, 4), lib.ConstantLR(o, 0.5)]
    return lib.SequentialLR(o, parts, milestones=[5])


@pytest.mark.parametrize("capture", [lambda step: step, TinyJit])
@pytest.mark.parametrize(
    "make",
    [
        lambda lib, o: lib.OneCycleLR(o, 1.0, 4),
        cycle_after_constant,
        cycle_before_constant,
        cycle_in_time,
        lambda lib, o: lib.OneCycleLR(o, 1.0, 4, last_epoch=1),
    ],
)
def test_a_captured_cycle_that_is_over_says_so(make, capture):
    """After as many steps as PyTorch's; and the weights are those of the last step."""

    def steps(schedule, error, step):
        for number in range(12):
            try:
                step(schedule)
            except error:
                return number
        return 12

    first = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1, momentum=0.5)
    first.param_groups[0] |= {"initial_lr": 0.1, "max_lr": 1.0, "min_lr": 0.01}
    first.param_groups[0] |= {"base_momentum": 0.85, "max_momentum": 0.95}
    theirs = make(torch.optim.lr_scheduler, first)
    wanted = steps(theirs, ValueError, lambda schedule: (first.step(), schedule.step()))
    weight = Tensor([0.0])
    optimizer = optim.SGD([weight], 0.1, momentum=0.5)
    seen = []

    @capture
    def step():
        optimizer.zero_grad()
        weight.sum().backward()
        schedule.step()
        optimizer.step()

    schedule = make(optim, optimizer)

    def one(_):
        with Tensor.train():
            step()
        seen.append(weight.item())

    assert steps(schedule, ArgumentError, one) == wanted
    assert weight.item() == seen[-1] and schedule.last_epoch == wanted + schedule.after + 1
    schedule.load_state_dict({"turn": Tensor([0], dtype="int32")})
    one(schedule)  # goes on: nothing was spoilt


@pytest.mark.parametrize(
    "make",
    [
        lambda o, **more: optim.StepLR(o, 2, 0.5, **more),
        lambda o, **more: optim.LambdaLR(o, lambda turn: 1 / (turn + 1), **more),
        lambda o, **more: optim.MultiplicativeLR(o, lambda turn: 0.9 - turn * 0.01, **more),
        lambda o, **more: optim.CosineAnnealingLR(o, 7, **more),
        lambda o, **more: optim.OneCycleLR(o, 0.1, total_steps=9, **more),
    ],
)
def test_goes_on_after_the_last_epoch_of_another(make):
    def rates(steps, **more):
        schedule = make(optim.SGD([Tensor([1.0])], lr=0.5, momentum=0.9), **more)
        found = []
        for _ in range(steps):
            found += schedule.get_last_lr()
            schedule.step()
        return found

    np.testing.assert_allclose(rates(4, last_epoch=3), rates(8)[4:], rtol=1e-5)


def test_the_last_epoch_is_no_earlier_than_none():
    with pytest.raises(ArgumentError, match="StepLR: last_epoch=-2; legal are numbers from -1"):
        optim.StepLR(optim.SGD([Tensor([1.0])], lr=0.5), 2, last_epoch=-2)
