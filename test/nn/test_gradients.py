"""What stands around a step: clipping, loss scaling, averages of weights, LBFGS."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.nn import optim

VALUES = [np.random.default_rng(i).standard_normal(shape) for i, shape in enumerate([(3, 4), (5,)])]


def with_gradients():
    ours = [Tensor(v.astype(np.float32), requires_grad=True) for v in VALUES]
    theirs = [torch.tensor(v.astype(np.float32), requires_grad=True) for v in VALUES]
    sum((t * t).sum() for t in ours).backward()
    sum((t * t).sum() for t in theirs).backward()
    return ours, theirs


@pytest.mark.parametrize("kind", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("most", [0.5, 100.0])
def test_clip_by_norm(kind, most):
    ours, theirs = with_gradients()
    total = optim.clip_grad_norm_(ours, most, kind)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, most, kind)
    np.testing.assert_allclose(total.item(), wanted.item(), rtol=1e-5)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-5)


def test_clip_by_value():
    ours, theirs = with_gradients()
    optim.clip_grad_value_(ours, 0.5)
    torch.nn.utils.clip_grad_value_(theirs, 0.5)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-6)


def test_nothing_to_clip_has_norm_zero():
    assert optim.clip_grad_norm_([Tensor([1.0])], 1.0).item() == 0.0
    with pytest.raises(ArgumentError, match="norm_type=-1"):
        optim.clip_grad_norm_(with_gradients()[0], 1.0, -1)


def scaled_steps(captured):
    """Losses of which the second overflows: the weights and the scale after each step."""
    w = Tensor([1.0, 2.0]).realize()
    optimizer = optim.Adam([w], lr=0.5)
    scaler = optim.GradScaler(init_scale=8.0, growth_interval=2)

    def step(factor):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    run = TinyJit(step) if captured else step
    seen = []
    with Tensor.train():
        for factor in [1.0, float("inf"), 1.0, 1.0, 1.0, 1.0]:
            run(Tensor([factor]).realize())
            seen.append((np.round(w.numpy(), 4).tolist(), scaler.factor.item()))
    return seen


@pytest.mark.parametrize("captured", [False, True])
def test_loss_scaling(captured):
    seen = scaled_steps(captured)
    assert [scale for _, scale in seen] == [8.0, 4.0, 4.0, 8.0, 8.0, 16.0]
    assert [weights for weights, _ in seen] == [
        [0.5, 1.5],
        [0.5, 1.5],
        [0.0, 1.0],
        [-0.5, 0.5],
        [-1.0, 0.0],
        [-1.5, -0.5],
    ]


def two_scaled(make, lib, scaler, capture, updates):
    """Two optimizers by one loss; in the third step the gradient of the first is infinite."""
    first, second = make([1.0, 2.0]), make([3.0, 4.0])
    optimizers = [lib.SGD([each], lr=0.25) for each in (first, second)]

    def step(factor):
        for each in optimizers:
            each.zero_grad()
        scaler.scale((first * factor).sum() + (second * second).sum()).backward()
        for each in optimizers:
            scaler.step(each)
        if updates:
            scaler.update()

    run, seen = capture(step), []
    for factor in [1.0, 1.0, float("inf"), 1.0, 1.0, 1.0, 1.0]:
        run(make([factor], requires_grad=False))
        seen += first.tolist() + second.tolist()
    return seen


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("capture", [lambda step: step, TinyJit])
@Tensor.train()
def test_optimizers_that_step_in_one_turn_share_the_scale(updates, capture):
    def ours(values, requires_grad=True):
        return Tensor(values, requires_grad=requires_grad).realize()

    def theirs(values, requires_grad=True):
        return torch.tensor(values, requires_grad=requires_grad)

    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    wanted = two_scaled(theirs, torch.optim, scaler, lambda step: step, True)
    scaler = optim.GradScaler(init_scale=8.0, growth_interval=2)
    np.testing.assert_allclose(two_scaled(ours, optim, scaler, capture, updates), wanted, 1e-6)


def test_half_gradients_that_would_be_zero_count():
    w = Tensor([1.0]).realize()
    optimizer, scaler = optim.SGD([w], lr=1.0), optim.GradScaler(1024.0)
    with Tensor.train():
        loss = (w.cast(dtypes.half) * 1e-4).sum() * 1e-4
        scaler.scale(loss).backward()
        scaler.step(optimizer)
    assert optimizer.params[0].grad.item() == pytest.approx(1e-8, rel=0.02)


def test_average_of_weights():
    net = {"w": Tensor([0.0]).realize(), "steps": Tensor([3])}
    average = optim.EMA(net, decay=0.5)
    for value in [1.0, 2.0, 3.0]:
        net["w"].assign(Tensor([value])).realize()
        average.update()
    with pytest.raises(KeyError), average.applied():
        assert net["w"].item() == 2.125
        raise KeyError
    assert net["w"].item() == 3.0 and net["steps"].item() == 3


def minimized(lib, start, search):
    """The place and the number of calls after two steps of LBFGS on Rosenbrock's valley."""
    calls = []
    how = {"lr": 1.0, "max_iter": 30} if search else {"lr": 0.1, "max_iter": 8}
    optimizer = lib.LBFGS([start], **how, line_search_fn=search)

    def closure():
        optimizer.zero_grad()
        x, y = start[0], start[1]
        loss = (1 - x) ** 2 + 100 * (y - x * x) ** 2
        loss.backward()
        calls.append(loss)
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return start.tolist(), len(calls)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_goes_where_pytorch_goes(search):
    ours, calls = minimized(optim, Tensor(np.array([-1.2, 1.0]), requires_grad=True), search)
    start = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    theirs, wanted = minimized(torch.optim, start, search)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert abs(calls - wanted) <= 2


def test_lbfgs_says_what_is_legal():
    with pytest.raises(ArgumentError, match="strong_wolfe"):
        optim.LBFGS([Tensor([1.0])], line_search_fn="armijo")
    with pytest.raises(ArgumentError, match="none wants a gradient"):
        optim.LBFGS([Tensor([1.0], requires_grad=False)])


@Tensor.train()
def test_unscaled_gradients_can_be_clipped():
    moved = []
    for scaler in (None, optim.GradScaler(1024.0)):
        w = Tensor([3.0, -4.0], requires_grad=True)
        optimizer = optim.SGD([w], lr=1.0)
        for _ in range(2):
            optimizer.zero_grad()
            loss = (w * w).sum()
            (loss if scaler is None else scaler.scale(loss)).backward()
            if scaler is not None:
                scaler.unscale_(optimizer)
            optim.clip_grad_norm_([w], 1.0)
            (optimizer if scaler is None else scaler).step(*([] if scaler is None else [optimizer]))
            if scaler is not None:
                scaler.update()
        moved.append(w.tolist())
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-6)
    scaler.unscale_(optimizer)
    with pytest.raises(ArgumentError, match="twice before a step"):
        scaler.unscale_(optimizer)


# ---- states of what surrounds a step -------------------------------------------------------------


@pytest.mark.parametrize("told", [False, True])
@Tensor.train()
def test_a_scaler_resumes_with_its_options(told):
    def run(turns, state=None):
        w = Tensor([1.0, 2.0], requires_grad=True)
        optimizer, scaler = optim.SGD([w], lr=0.0), optim.GradScaler(4.0, growth_interval=3)
        if state is not None:
            scaler = optim.GradScaler()
            scaler.load_state_dict(state)
        scales = []
        for turn in turns:
            optimizer.zero_grad()
            scaler.scale((w * (np.inf if turn == 4 else 1.0)).sum()).backward()
            scaler.step(optimizer)
            if told:
                scaler.update()
            scales.append(scaler.get_scale())
        return scales, scaler

    whole, _ = run(range(9))
    first, scaler = run(range(5))
    assert first + run(range(5, 9), scaler.state_dict())[0] == whole


@Tensor.train()
def test_a_scaler_that_is_not_enabled_steps_whatever_the_gradients():
    w = Tensor([1.0], requires_grad=True)
    optimizer, scaler = optim.SGD([w], lr=1.0), optim.GradScaler(4.0, enabled=False)
    for factor, wanted in ((3.0, -2.0), (np.inf, -np.inf)):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert w.item() == wanted
    assert scaler.get_scale() == torch.amp.GradScaler("cpu", enabled=False).get_scale() == 1.0


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("decay", [0.9, None])
@Tensor.train()
def test_averages_are_torchs_and_resume(decay, capture):
    from torch.optim import swa_utils

    weights = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    net, layer = {"w": Tensor(weights[0]).realize()}, torch.nn.Linear(3, 1, bias=False)
    move = None if decay is None else swa_utils.get_ema_multi_avg_fn(decay)
    theirs = swa_utils.AveragedModel(layer, multi_avg_fn=move)
    if decay is not None:  # whose average begins with the weights here, and with the first update
        layer.weight.data.copy_(torch.tensor(weights[:1]))
        theirs.update_parameters(layer)
    ours = optim.EMA(net, decay)
    update = TinyJit(ours.update) if capture else ours.update
    for turn, now in enumerate(weights[1:]):
        net["w"].assign(Tensor(now)).realize()
        update()
        layer.weight.data.copy_(torch.tensor(now)[None])
        theirs.update_parameters(layer)
        np.testing.assert_allclose(ours.averages[0].numpy(), theirs.module.weight[0].detach(), 1e-5)
        if turn == 2 and not capture:
            ours, before = optim.EMA(net, 0.5), ours
            ours.load_state_dict(before.state_dict())
            assert ours.decay == decay
            update = ours.update


@Tensor.train()
def test_a_step_by_a_closure_is_torchs():
    def run(lib, w):
        optimizer = lib.SGD([w], lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = (w * w).sum()
            loss.backward()
            return loss

        return [optimizer.step(closure).item() for _ in range(3)], w.tolist()

    ours, theirs = run(optim, Tensor([1.0], requires_grad=True)), torch.tensor([1.0])
    theirs = run(torch.optim, theirs.requires_grad_())
    np.testing.assert_allclose(np.hstack(ours), np.hstack(theirs), rtol=1e-6)


# ---- one tensor ----------------------------------------------------------------------------------


ONE = {
    "norm": lambda lib, w: lib.clip_grad_norm_(w, 1.0),
    "value": lambda lib, w: lib.clip_grad_value_(w, 2.5),
    "given norm": lambda lib, w: lib.clip_grads_with_norm_(w, 1.0, (w * w).sum().detach()),
    "total": lambda lib, w: lib.get_total_norm(w.grad),
}


@pytest.mark.parametrize("what", ONE)
def test_one_tensor_is_no_list_of_rows(what):
    def run(lib, w):
        (w * w).sum().backward()
        found = ONE[what](lib, w)
        return w.grad.tolist(), 0.0 if found is None else found.item()

    ours = run(nn.utils, Tensor([3.0, 4.0], requires_grad=True))
    theirs = run(torch.nn.utils, torch.tensor([3.0, 4.0], requires_grad=True))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_norm_that_is_not_finite_can_be_an_error(value):
    w = Tensor([1.0, 2.0], requires_grad=True)
    (w * Tensor([1.0, value])).sum().backward()
    before = w.grad.tolist()
    with pytest.raises(ArgumentError, match=f"a norm of {value}; legal are finite ones"):
        nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)
    np.testing.assert_array_equal(w.grad.tolist(), before)
    with pytest.raises(DTypeError, match="clip_grad_value_: .*legal are tensors"):
        nn.utils.clip_grad_value_(["w"], 1.0)
