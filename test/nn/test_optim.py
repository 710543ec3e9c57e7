"""Ten steps of an optimizer lead where PyTorch's lead, or where its paper says."""

import numpy as np
import pytest
import torch

from tinygrad.backends.cpu.queue import CPUSegment
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, JitError
from tinygrad.engine.devices import Device
from tinygrad.engine.jit import TinyJit
from tinygrad.engine.realize import in_memory
from tinygrad.nn import BatchNorm, optim
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save
from tinygrad.tensor import Tensor

STEPS = 10
X = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
W = np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32)
B = np.zeros(4, np.float32)


@pytest.fixture
def device(request, monkeypatch):
    """The device that tensors of this test go to."""
    monkeypatch.setattr(Device, "DEFAULT", request.param)


def loss_of(x, w, b):
    """A loss with slopes of many sizes: the same words mean the same in both systems."""
    return ((x @ w + b).tanh() - 0.5).square().sum()


def trained(make, steps=STEPS):
    w, b = Tensor(W), Tensor(B)
    optimizer = make([w, b])
    x = Tensor(X)
    with Tensor.train():
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(x, w, b).backward()
            optimizer.step()
    return w.numpy(), b.numpy()


def trained_by_torch(make):
    w, b = torch.tensor(W, requires_grad=True), torch.tensor(B, requires_grad=True)
    optimizer = make([w, b])
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(torch.tensor(X), w, b).backward()
        optimizer.step()
    return w.detach().numpy(), b.detach().numpy()


def same(ours, theirs):
    for mine, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)


UPHILL = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta")
UPHILL += ("RMSprop", "Rprop", "ASGD", "Adafactor")


def same_options(name, **options):
    return [(name, options, options)]


ALIKE = [
    ("SGD", {"lr": 0.01}, {"lr": 0.01}),
    ("SGD", {"lr": 0.01, "weight_decay": 0.1}, {"lr": 0.01, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.01, "momentum": 0.9}, {"lr": 0.01, "momentum": 0.9}),
    (
        "SGD",
        {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ),
    ("Adam", {"lr": 0.1}, {"lr": 0.1}),
    (
        "Adam",
        {"lr": 0.05, "b1": 0.5, "b2": 0.9, "eps": 1e-3},
        {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3},
    ),
    *same_options("Adam", lr=0.05, betas=(0.5, 0.9), weight_decay=0.1),
    *same_options("RAdam", lr=0.05, betas=[0.5, 0.9]),
    *same_options("Adam", lr=0.05, weight_decay=0.1, decoupled_weight_decay=True),
    *same_options("NAdam", lr=0.05, weight_decay=0.1, decoupled_weight_decay=True),
    *same_options("RAdam", lr=0.05, weight_decay=0.1, decoupled_weight_decay=True),
    ("AdamW", {"lr": 0.1}, {"lr": 0.1}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.5}, {"lr": 0.1, "weight_decay": 0.5}),
    ("NAdam", {"lr": 0.05}, {"lr": 0.05}),
    ("NAdam", {"b1": 0.8, "weight_decay": 0.1}, {"betas": (0.8, 0.999), "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.1}, {"lr": 0.1}),
    ("RAdam", {"b2": 0.7, "weight_decay": 0.1}, {"betas": (0.9, 0.7), "weight_decay": 0.1}),
    ("Adamax", {}, {}),
    *same_options("Adamax", lr=0.1, betas=(0.5, 0.9), weight_decay=0.1),
    ("Adagrad", {"lr": 0.1}, {"lr": 0.1}),
    *same_options(
        "Adagrad",
        lr=0.1,
        lr_decay=0.3,
        weight_decay=0.1,
        initial_accumulator_value=0.5,
    ),
    ("Adadelta", {}, {}),
    *same_options("Adadelta", lr=0.5, rho=0.6, weight_decay=0.1, eps=1e-4),
    ("RMSprop", {}, {}),
    *same_options("Adam", lr=0.1, betas=(0.5, 0.3), amsgrad=True),
    *same_options("AdamW", lr=0.1, betas=(0.5, 0.3), amsgrad=True),
    ("Rprop", {}, {}),
    *same_options("Rprop", lr=0.1, etas=(0.3, 1.5), step_sizes=(0.01, 0.3)),
    ("ASGD", {}, {}),
    *same_options("ASGD", lr=0.1, lambd=0.1, alpha=0.5, t0=2.0, weight_decay=0.1),
    ("Adafactor", {}, {}),
    *same_options("Adafactor", lr=0.5, beta2_decay=-0.3, d=2.0, weight_decay=0.1),
    *same_options("Adafactor", lr=0.1, eps=(0.3, 0.9)),
    *same_options("RMSprop", alpha=0.5, weight_decay=0.1, momentum=0.9, centered=True),
    *same_options("SGD", lr=0.01, momentum=0.9, dampening=0.5, weight_decay=0.1),
    *same_options("SGD", lr=0.01, dampening=0.5),
    *(each for name in UPHILL for each in same_options(name, lr=0.02, maximize=True)),
]
"""Name, options, PyTorch's options."""

FIRST = {row[0]: row for row in reversed(ALIKE)}


@pytest.mark.parametrize(
    ("device", "name", "ours", "theirs"),
    [("CPU", *row) for row in ALIKE] + [("PYTHON", *row) for row in FIRST.values()],
    indirect=["device"],
)
def test_ten_steps(device, name, ours, theirs):
    found = trained(lambda params: getattr(optim, name)(params, **ours))
    same(found, trained_by_torch(lambda params: getattr(torch.optim, name)(params, **theirs)))


def test_dampening_counts_the_steps_of_a_parameter_that_comes_late():
    def moved(system, made):
        early, late = (made(np.ones(2, np.float32)) for _ in range(2))
        optimizer = system.SGD([early, late], lr=0.1, momentum=0.9, dampening=0.5)
        with Tensor.train():
            for step in range(4):
                optimizer.zero_grad()
                (early * early + (late * 3 if step > 1 else 0)).sum().backward()
                optimizer.step()
        return early.detach().numpy(), late.detach().numpy()

    theirs = moved(torch.optim, lambda x: torch.tensor(x, requires_grad=True))
    same(moved(optim, lambda x: Tensor(x, requires_grad=True)), theirs)


def test_nesterov_has_no_dampening():
    with pytest.raises(ArgumentError, match=r"dampening=0.5 and nesterov; legal is one of them"):
        optim.SGD([Tensor(W)], momentum=0.9, nesterov=True, dampening=0.5)


def test_classic_momentum_is_the_same_while_the_rate_stays():
    plain = trained(lambda params: optim.SGD(params, lr=0.01, momentum=0.9))
    same(trained(lambda params: optim.SGD(params, lr=0.01, momentum=0.9, classic=True)), plain)


def test_lamb_without_scaling_is_adam():
    adam = trained(lambda params: optim.Adam(params, lr=0.1, eps=1e-6))
    same(trained(lambda params: optim.LAMB(params, lr=0.1, adam=True)), adam)


def reference(update):
    """Ten steps by NumPy; `update(param, grad, state, step)` gives the new parameter."""
    params, states = [W, B], [{}, {}]
    for step in range(1, STEPS + 1):
        tensors = [torch.tensor(p, requires_grad=True) for p in params]
        loss_of(torch.tensor(X), *tensors).backward()
        grads = [t.grad.numpy() for t in tensors]
        rows = zip(params, grads, states, strict=True)
        params = [update(p, g, state, step) for p, g, state in rows]
    return params


def ratio(above, below):
    """|above| / |below|, 1 where one is 0."""
    a, b = np.linalg.norm(above), np.linalg.norm(below)
    return a / b if a > 0 and b > 0 else 1.0


def test_lamb_moves_by_a_share_of_the_norm():
    def update(param, grad, state, step):
        state["m"] = 0.9 * state.get("m", 0) + 0.1 * grad
        state["v"] = 0.999 * state.get("v", 0) + 0.001 * grad**2
        m, v = state["m"] / (1 - 0.9**step), state["v"] / (1 - 0.999**step)
        direction = m / (np.sqrt(v) + 1e-6) + 0.1 * param
        return param - 0.01 * ratio(param, direction) * direction

    same(trained(lambda params: optim.LAMB(params, lr=0.01, weight_decay=0.1)), reference(update))


def test_lars_moves_by_a_share_of_the_norm():
    def update(param, grad, state, step):
        size, slope = np.linalg.norm(param), np.linalg.norm(grad)
        trust = 0.01 * size / (slope + 0.1 * size) if size > 0 else 1.0
        state["b"] = 0.9 * state.get("b", 0) + (grad + 0.1 * param) * trust * 0.1
        return param - state["b"]

    found = trained(lambda params: optim.LARS(params, lr=0.1, weight_decay=0.1, tcoef=0.01))
    same(found, reference(update))


def test_lars_decays_beside_the_momentum():
    def update(param, grad, state, step):
        size, slope = np.linalg.norm(param), np.linalg.norm(grad)
        trust = 0.01 * size / (slope + 0.1 * size) if size > 0 else 1.0
        state["b"] = 0.9 * state.get("b", 0) + grad * trust * 0.1
        return param * (1 - 0.1 * 0.1) - state["b"]

    options = {"lr": 0.1, "weight_decay": 0.1, "tcoef": 0.01, "pre_wd": False}
    same(trained(lambda params: optim.LARS(params, **options)), reference(update))


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_tensor_is_the_rate_also_after_it_was_written(shape):
    rate = Tensor(np.full(shape, 0.25, np.float32))
    w = Tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=rate)
    found = []
    for following in (0.5, 1.0, 1.0):
        optimizer.zero_grad()
        with Tensor.train():
            w.sum().backward()
            optimizer.step()
        rate.assign(Tensor(np.full(shape, following, np.float32))).realize()
        found.append(w.item())
    assert found == [0.75, 0.25, -0.75]
    optimizer.lr = 0.125
    assert rate.item() == 0.125
    with pytest.raises(ArgumentError, match="float"):
        optim.SGD([w], lr=Tensor(1))


def test_orthogonalized_has_singular_values_near_one():
    for shape in ((3, 5), (5, 3)):
        matrix = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        turned = optim.orthogonalized(Tensor(matrix)).numpy()
        u, _, v = np.linalg.svd(matrix, full_matrices=False)
        np.testing.assert_allclose(np.linalg.svd(turned, compute_uv=False), 1, atol=0.35)
        assert (turned * (u @ v)).sum() > 0.9 * np.linalg.norm(turned) * np.sqrt(3)


def test_muon_moves_matrices_along_orthogonal_ones():
    w = Tensor(W)
    optimizer = optim.Muon([w], lr=0.1, weight_decay=0.5)
    with Tensor.train():
        (w * Tensor(X[:4])).sum().backward()  # whose gradient is X[:4]
        optimizer.step()
    turned = optim.orthogonalized(Tensor(X[:4])).numpy()
    np.testing.assert_allclose(w.numpy(), W * (1 - 0.1 * 0.5) - 0.1 * turned, atol=1e-4)


def test_muon_moves_vectors_along_their_direction():
    vector, number = Tensor(B), Tensor(2.0)
    optimizer = optim.Muon([vector, number], lr=0.1, weight_decay=0.0)
    with Tensor.train():
        ((vector * Tensor(X[0, :4])).sum() - 3 * number).backward()
        optimizer.step()
    column = optim.orthogonalized(Tensor(X[0, :4]).reshape(4, 1)).numpy()[:, 0]
    np.testing.assert_allclose(vector.numpy(), B - 0.1 * column, atol=1e-5)
    assert 0.6 < np.linalg.norm(column) < 1.3 and 2.06 < number.item() < 2.13


def test_muon_takes_what_wants_no_gradient():
    optimizer = optim.Muon(get_parameters(BatchNorm(4)))
    assert len(optimizer.params) == 2


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
@pytest.mark.parametrize("how", [None, "original", "match_rms_adamw"])
def test_muon_is_torchs_but_for_bfloat16(monkeypatch, shape, how):
    """PyTorch rounds the direction to bfloat16 before its products; without that it is ours."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}
    start = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    goal = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    ours, theirs = Tensor(start), torch.tensor(start, requires_grad=True)
    mine = optim.Muon([ours], adjust_lr_fn=how, **options)
    wanted = torch.optim.Muon([theirs], adjust_lr_fn=how, **options)
    if how is None:  # which there is "original"
        monkeypatch.setattr("torch.optim._muon._adjust_lr", lambda lr, how, shape: lr)
    with Tensor.train():
        for _ in range(STEPS):
            mine.zero_grad()
            wanted.zero_grad()
            (ours - Tensor(goal)).square().sum().backward()
            (theirs - torch.tensor(goal)).square().sum().backward()
            mine.step()
            wanted.step()
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-4)


GROUPED = ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop"]
GROUPED += ["Adadelta"]


@pytest.mark.parametrize("name", GROUPED)
def test_groups_are_torchs(name):
    def make(lib):
        def made(params):
            return getattr(lib, name)(
                [
                    {"params": params[:1], "lr": 0.05, "weight_decay": 0.1},
                    {"params": iter(params[1:])},
                ],
                lr=0.01,
            )

        return made

    same(trained(make(optim)), trained_by_torch(make(torch.optim)))


@Tensor.train()
def test_groups_are_seen_as_in_torch():
    a, b = Tensor(B), Tensor(B)
    both = optim.SGD([{"params": [a]}, {"params": [b], "lr": 2.0}], 1.0, momentum=0.5)
    assert [group["lr"] for group in both.param_groups] == [1.0, 2.0]
    for group in both.param_groups:
        group["lr"] *= 0.5
    schedule = optim.ExponentialLR(both, 0.5)
    assert schedule.get_last_lr() == [0.5, 1.0]
    (a + b).sum().backward()
    both.step()
    assert (a.tolist(), b.tolist()) == ([-0.5] * 4, [-1.0] * 4)
    assert both.param_groups[1]["momentum"] == 0.5 and both.param_groups[1]["params"] == [b]


@Tensor.train()
def test_a_state_dict_holds_no_parameters_and_goes_on():
    w, other = Tensor(W), Tensor(W)
    first = optim.Adam([{"params": [w]}], lr=0.1)
    steps(first, w, 2)
    second = optim.Adam([{"params": [other]}], lr=0.5)
    other.assign(w.detach()).realize()
    second.load_state_dict({name: t.clone() for name, t in first.state_dict().items()})
    assert not [name for name in first.state_dict() if "params" in name]
    steps(first, w, 2)
    steps(second, other, 2)
    assert w.tolist() == other.tolist()


@Tensor.train()
def test_gradients_may_be_zeros_instead_of_none():
    w = Tensor(B)
    optimizer = optim.SGD([w])
    w.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0.0] * 4


def test_a_group_steps_all():
    alone = trained(lambda params: optim.SGD(params, lr=0.01))
    halves = trained(
        lambda params: optim.OptimizerGroup(
            optim.SGD(params[:1], lr=0.01), optim.SGD(params[1:], lr=0.01)
        )
    )
    same(halves, alone)


def test_a_captured_step_sees_another_learning_rate():
    w = Tensor(W)
    optimizer = optim.SGD([w], lr=1.0)

    @TinyJit
    def step(x):
        optimizer.zero_grad()
        loss = (w * x).sum().backward()
        optimizer.step()
        return loss.realize()

    x = Tensor(X[:4]).realize()
    rates = [1.0, 1.0, 1.0, 0.5, 0.25]
    with Tensor.train():
        for rate in rates:
            optimizer.lr.assign(Tensor([rate])).realize()
            step(x)
    np.testing.assert_allclose(w.numpy(), W - sum(rates) * X[:4], rtol=1e-5, atol=1e-5)


def test_parameters_with_equal_values_stay_apart():
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    optimizer = optim.SGD([a, b], lr=1.0, momentum=0.9)
    with Tensor.train():
        (a * 2 + b * 3).sum().backward()
        optimizer.step()
    assert (a.tolist(), b.tolist()) == ([-2.0] * 3, [-3.0] * 3)
    assert [t.tolist() for t in optimizer.b] == [[2.0] * 3, [3.0] * 3]


def test_parameters_keep_their_storage_and_what_needs_no_gradient_its_value():
    w, frozen = Tensor(W), Tensor(B + 1, requires_grad=False)
    optimizer = optim.Adam([w, frozen, w], lr=0.1)
    assert len(optimizer.params) == 1 and len(optimizer.buffers) == 1
    storage = w.uop.realized
    with Tensor.train():
        (w.sum() * frozen.sum()).backward()
        optimizer.step()
    assert w.uop.realized is storage and frozen.tolist() == [1.0] * 4


@Tensor.train()
def test_a_parameter_that_was_computed_from_another_is_a_start_for_an_optimizer():
    weight = Tensor([2.0, 4.0], requires_grad=True) * 0.5
    optimizer = optim.SGD([weight], lr=0.25)
    for _ in range(2):
        optimizer.zero_grad()
        (weight * weight).sum().backward()
        optimizer.step()
    assert weight.tolist() == [0.25, 0.5]
    assert weight.uop.realized is not None


def test_what_got_no_gradient_stays_and_is_computed():
    w, unused, count = Tensor(W), Tensor(B), Tensor(3)
    for tensor in (w, unused, count):
        tensor.requires_grad = True  # as some programs do with all that a model holds
    optimizer = optim.Adam([w, unused, count], lr=0.1)
    with Tensor.train():
        w.sum().backward()
        unused.assign(Tensor(B + 1))
        optimizer.step()
    assert in_memory(unused.uop)
    assert unused.tolist() == [1.0] * 4 and count.item() == 3


def test_half_parameters_have_state_in_float32():
    w = Tensor(W).cast(dtypes.half)
    optimizer = optim.Adam([w], lr=0.01)
    with Tensor.train():
        w.float().square().sum().backward()
        optimizer.step()
    assert w.dtype is dtypes.half and optimizer.m[0].dtype is dtypes.float32
    np.testing.assert_allclose(w.numpy(), W - 0.01 * np.sign(W), atol=4e-3)


def test_state_has_names():
    names = get_state_dict(optim.Adam([Tensor(W)])).keys()
    assert names == {"params.0", "lr", "m.0", "v.0", "b1_t", "b2_t"}  # tinygrad's


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.9999), (0.0, 0.95), (0.9, 0.0)])
def test_adam_s_corrections_are_exact_however_long_it_runs(betas):
    """Those of PyTorch, which counts steps; ours are powers in float32, as tinygrad's."""
    ours, theirs = Tensor(B, requires_grad=True), torch.tensor(B, requires_grad=True)
    mine = optim.Adam([ours], lr=0.01, betas=betas, eps=0.0)
    its = torch.optim.Adam([theirs], lr=0.01, betas=betas, eps=0.0)
    with Tensor.train():
        for turn in range(100):
            slope = (np.arange(1, 5) * (1 + turn % 7)).astype(np.float32)
            ours.grad, theirs.grad = Tensor(slope), torch.tensor(slope)
            mine.step()
            its.step()
            if turn in (0, 1, 50, 99):
                moved, wanted = ours.numpy() - B, theirs.detach().numpy() - B
                np.testing.assert_allclose(moved, wanted, rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adadelta", "RMSprop", "ASGD", "Lion", "Adam"])
@Tensor.train()
def test_without_decay_a_step_adds_no_zero_times_the_parameter(name):
    """An infinite one stays, as in PyTorch, where 0 times infinity would make NaN of it."""
    options = {"lambd": 0.0} if name == "ASGD" else {}
    w = Tensor([np.inf], requires_grad=True)
    w.grad = Tensor([1.0])
    getattr(optim, name)([w], lr=0.1, **options).step()
    assert w.item() == np.inf


def test_lion_moves_by_the_sign():
    def update(param, grad, state, step):
        m = state.get("m", 0 * grad)
        state["m"] = 0.99 * m + 0.01 * grad
        return param - 0.01 * (np.sign(0.9 * m + 0.1 * grad) + 0.1 * param)

    same(trained(lambda p: optim.Lion(p, lr=0.01, weight_decay=0.1)), reference(update))


def test_a_number_given_to_lr_is_written_in_place():
    optimizer = optim.SGD([Tensor(B)], lr=1.0)
    rate = optimizer.lr
    optimizer.lr = 0.25
    assert optimizer.lr is rate and rate.item() == 0.25


def test_groups_have_options_of_their_own():
    a, b = Tensor(B), Tensor(B)
    both = optim.OptimizerGroup.of(optim.SGD, [{"params": [a]}, {"params": [b], "lr": 2.0}], lr=1.0)
    with Tensor.train():
        (a + b).sum().backward()
        both.step()
    assert (a.tolist(), b.tolist()) == ([-1.0] * 4, [-2.0] * 4)


ALL = [
    lambda p: optim.SGD(p, 0.1, momentum=0.9),
    optim.LARS,
    optim.Lion,
    optim.Adam,
    optim.NAdam,
    optim.RAdam,
    optim.SparseAdam,
    optim.Adamax,
    optim.Adagrad,
    optim.Adadelta,
    optim.Adafactor,
    optim.ASGD,
    optim.Rprop,
    lambda p: optim.AdamW(p, amsgrad=True),
    lambda p: optim.RMSprop(p, momentum=0.9, centered=True),
]


@pytest.mark.parametrize("make", ALL)
def test_saved_state_goes_on_bit_for_bit(make, tmp_path):
    """Three steps, save, three steps: the same as load, three steps."""
    w, other = Tensor(W), Tensor(W * 2)
    with Tensor.train():
        first = make([w])
        steps(first, w, 3)
        safe_save(get_state_dict(first), str(tmp_path / "state"))
        steps(first, w, 3)
        second = make([other])
        load_state_dict(second, safe_load(str(tmp_path / "state")))
        steps(second, other, 3)
    assert w.tolist() == other.tolist()


def steps(optimizer, w, count):
    for _ in range(count):
        optimizer.zero_grad()
        (w @ Tensor(W)).tanh().sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    "misuse, message",
    [
        (lambda: optim.SGD([]), "SGD: 0 tensors, none wants a gradient"),
        (lambda: optim.SGD([Tensor(B, requires_grad=False)]), "none wants a gradient"),
        (lambda: optim.SGD([Tensor(B)]).step(), r"with Tensor.train\(\)"),
        (lambda: Tensor.train()(optim.Adam([Tensor(B)]).step)(), "call backward"),
        (lambda: optim.OptimizerGroup(), "of no optimizers"),
        (lambda: optim.Adam(Tensor(B)), "legal are lists of tensors"),
        (lambda: optim.Adam(3), "parameters 3; legal are lists of tensors"),
        (lambda: optim.LBFGS([{"params": [Tensor(B)]}]), "among the parameters: .* of type dict"),
        (lambda: optim.SGD([{"parms": [Tensor(B)]}]), 'legal are dicts with "params"'),
        (lambda: optim.Adam([Tensor(B)], betas=0.5), "betas 0.5; legal are two numbers"),
        (lambda: optim.Adam([Tensor(B)], 0.1, (0.5, 0.9)), r"b1=\(0.5, 0.9\) of type tuple"),
        (lambda: optim.Rprop([Tensor(W)], etas=(1.5, 2)), "etas=.*legal are one between 0 and 1"),
        (lambda: optim.Adafactor([Tensor(W)], eps=1e-3), "eps 0.001; legal are two numbers"),
        (lambda: optim.Adafactor([Tensor(W)], d=0.5), "d=0.5; legal are"),
        (lambda: optim.Muon([Tensor(W)], adjust_lr_fn="x"), "adjust_lr_fn='x'; legal are"),
        (
            lambda: optim.SGD([Tensor(B)]).param_groups[0].update(nesterov=True),
            "'nesterov' = True; legal to set are lr, weight_decay, momentum",
        ),
        (lambda: optim.SGD([Tensor(B)]).param_groups[0].update(lr=-1.0), "legal are numbers from"),
        (
            lambda: optim.Adam([Tensor(B)]).load_state_dict({"options.b2": Tensor([2.0])}),
            "b2 2.0; legal are numbers from 0 to below 1",
        ),
    ],
)
def test_misuse(misuse, message):
    with pytest.raises((ArgumentError, DTypeError), match=message):
        misuse()


# ---- rows ----------------------------------------------------------------------------------------

USED = ([0, 2], [2], [5, 2, 2], [1], [0, 5])


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("capture", [False, True])
@Tensor.train()
def test_rows_that_a_step_does_not_use_stay_as_with_torchs_sparse_gradients(capture, maximize):
    options = {"lr": 0.1, "betas": (0.7, 0.9), "eps": 1e-3, "maximize": maximize}
    table = Tensor(np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32))
    layer = torch.nn.Embedding(6, 4, sparse=True, _weight=torch.tensor(table.numpy()))
    ours = optim.SparseAdam([table], **options)
    theirs = torch.optim.SparseAdam(layer.parameters(), **options)

    def step(rows):
        ours.zero_grad()
        loss = (table[rows] * table[rows] * 0.5).sum().backward()
        ours.step()
        return loss.realize()

    run = TinyJit(step) if capture else step
    for rows in (*USED, *USED):
        rows = (rows * 3)[:3]
        run(Tensor(rows).realize())
        theirs.zero_grad()
        found = layer(torch.tensor(rows))
        (found * found * 0.5).sum().backward()
        theirs.step()
    same([table.numpy()], [layer.weight.detach().numpy()])


@Tensor.train()
def test_vectors_and_numbers_are_rows_of_one_element():
    vector, number = Tensor([1.0, 2.0], requires_grad=True), Tensor(3.0, requires_grad=True)
    optimizer = optim.SparseAdam([vector, number], lr=0.5)
    for used in (0, 1):
        optimizer.zero_grad()
        (vector[used] * number).backward()
        optimizer.step()
    np.testing.assert_allclose(vector.numpy()[0], 0.5, rtol=1e-5)
    assert number.item() < 2.2


# ---- options that were set later -----------------------------------------------------------------

SET_LATER = {
    "SGD": {"weight_decay": 0.3, "momentum": 0.5, "lr": 0.02},
    "Adam": {"weight_decay": 0.3, "eps": 0.1, "lr": 0.02},
    "AdamW": {"weight_decay": 0.3, "eps": 0.1},
    "NAdam": {"weight_decay": 0.3, "eps": 0.1},
    "RAdam": {"weight_decay": 0.3},
    "Adamax": {"eps": 0.1},
    "RMSprop": {"weight_decay": 0.3, "eps": 0.1},
    "Adagrad": {"weight_decay": 0.3, "eps": 0.1},
    "Adadelta": {"weight_decay": 0.3, "eps": 0.1},
    "Muon": {"weight_decay": 0.3, "momentum": 0.5},
}
MADE_WITH = {"SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.0}}


def set_later(optimizer, name):
    for group in optimizer.param_groups:
        group.update(SET_LATER[name])


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", SET_LATER)
def test_options_that_were_set_later_are_resumed_bit_for_bit(name, grouped, tmp_path):
    def make(params):
        given = [{"params": params}] if grouped else params
        return getattr(optim, name)(given, **{"lr": 0.01, **MADE_WITH.get(name, {})})

    w, other = Tensor(W), Tensor(W)
    with Tensor.train():
        first = make([w])
        steps(first, w, 3)
        set_later(first, name)
        steps(first, w, 2)
        safe_save(first.state_dict(), str(tmp_path / "state"))
        other.assign(w.detach()).realize()
        second = make([other])
        second.load_state_dict(safe_load(str(tmp_path / "state")))
        assert {k: v for k, v in second.param_groups[0].items() if k != "params"} == {
            k: v for k, v in first.param_groups[0].items() if k != "params"
        }
        steps(first, w, 3)
        steps(second, other, 3)
    assert w.tolist() == other.tolist()


@pytest.mark.parametrize("name", [name for name in SET_LATER if name != "Muon"])
def test_options_that_are_set_later_and_resumed_are_torchs(name):
    def run(lib, tensor):
        w = tensor(W)
        options = {"lr": 0.01, **MADE_WITH.get(name, {})}
        optimizer = getattr(lib, name)([w], **options)
        for turn in range(6):
            if turn == 2:
                set_later(optimizer, name)
            if turn == 4:
                state, optimizer = optimizer.state_dict(), getattr(lib, name)([w], **options)
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            loss_of(X if lib is optim else torch.tensor(X), w, 0.1).backward()
            optimizer.step()
        return w.detach().numpy()

    with Tensor.train():
        ours = run(optim, lambda x: Tensor(x, requires_grad=True))
    same([ours], [run(torch.optim, lambda x: torch.tensor(x, requires_grad=True))])


def test_a_state_without_options_keeps_what_the_optimizer_was_made_with():
    first = optim.Adam([Tensor(W)], weight_decay=0.5)
    state = {n: t for n, t in first.state_dict().items() if not n.startswith("options.")}
    second = optim.Adam([Tensor(W)], weight_decay=0.25)
    second.load_state_dict(state)
    assert second.weight_decay == 0.25
    second.load_state_dict(first.state_dict())
    assert second.weight_decay == 0.5


def test_a_refused_state_leaves_the_options():
    optimizer, other = optim.Adam([Tensor(W)]), optim.Adam([Tensor(W)], weight_decay=0.5)
    state = other.state_dict()
    del state["m.0"]
    with pytest.raises(ArgumentError, match=r"no value for m\.0"):
        optimizer.load_state_dict(state)
    assert optimizer.weight_decay == 0.0


@Tensor.train()
def test_momentum_that_is_set_later_begins_as_torchs():
    def run(lib, w):
        optimizer = lib.SGD([w], lr=0.1)
        for turn in range(5):
            optimizer.param_groups[0]["momentum"] = 0.1 * turn
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
        return w.detach().numpy()

    ours = run(optim, Tensor(W, requires_grad=True))
    same([ours], [run(torch.optim, torch.tensor(W, requires_grad=True))])


@Tensor.train()
def test_a_captured_step_sees_options_of_a_state_or_says_so():
    w = Tensor(W)
    optimizer = optim.SGD([w], lr=0.1, momentum=0.9)

    @TinyJit
    def step():
        optimizer.zero_grad()
        loss = (w * w).sum().backward()
        optimizer.step()
        return loss.realize()

    for _ in range(4):
        step()
    other = optim.SGD([Tensor(W)], lr=0.5, momentum=0.9)
    steps(other, other.params[0], 1)
    optimizer.load_state_dict(other.state_dict())  # the rate is written in place
    step()
    assert optimizer.lr.item() == 0.5
    other.param_groups[0]["weight_decay"] = 0.25
    optimizer.load_state_dict(other.state_dict())
    with pytest.raises(JitError, match="weight_decay"):
        step()


# ---- what a step costs ---------------------------------------------------------------------------

KERNELS = {"SGD": 1, "Adam": 1, "AdamW": 1, "NAdam": 1, "RAdam": 1, "Adagrad": 1, "RMSprop": 1}
KERNELS |= {
    "Rprop": 1,
    "ASGD": 2,
    "Adafactor": 6,
    "Adamax": 1,
    "Lion": 2,
    "Adadelta": 2,
    "LARS": 2,
    "LAMB": 4,
}
OF_ALL = 4  # kernels for numbers that all parameters share


@pytest.mark.parametrize("name", KERNELS)
def test_a_step_is_one_native_call_whatever_the_number_of_parameters(name, monkeypatch):
    """And so many kernels a parameter: they have sizes of their own, and so loops of their own."""
    calls = []
    plain = CPUSegment.run

    def run(segment, *rest, **more):
        calls.append(len(segment.launches))
        return plain(segment, *rest, **more)

    monkeypatch.setattr(CPUSegment, "run", run)
    for count in (2, 9):
        params = [Tensor.ones(3, 4, device="CPU").contiguous().realize() for _ in range(count)]
        optimizer = getattr(optim, name)(params, lr=0.1)
        with Tensor.train():
            sum((p * (i + 1)).square().sum() for i, p in enumerate(params)).backward()
            Tensor.realize(*(p.grad for p in params))
            calls.clear()
            optimizer.step()
        assert len(calls) == 1
        assert calls[0] <= KERNELS[name] * count + OF_ALL


def test_an_option_that_there_isnt_is_an_error_that_says_which_there_are():
    with pytest.raises(TypeError, match="Adam: no argument 'amsgrd'.*legal are params, lr, b1"):
        optim.Adam([Tensor(B)], amsgrd=True)
    with pytest.raises(TypeError, match="SGD: no argument 'foo'.*legal are params, lr, momentum"):
        optim.SGD([{"params": [Tensor(B)], "foo": 1}])
    assert optim.Adam([Tensor(B)], betas=(0.5, 0.9), fused=True).b1 == 0.5


# ---- parameters that have no gradient in some steps ----------------------------------------------

COUNTING = {
    "Adam": {"lr": 0.1, "weight_decay": 0.1},
    "AdamW": {"lr": 0.1},
    "Adamax": {"lr": 0.1},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1, "betas": (0.5, 0.6)},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.5},
    "ASGD": {"lr": 0.1, "lambd": 0.1, "t0": 2.0},
    "Adafactor": {"lr": 0.1},
}
MOVED = ["ab", "a", "b", "ab", "c", "bc", "abc", "abc", "a", "abc"]
"""Which of three parameters have a gradient in each step: the third only later on."""


def stepped(library, name, turns, optimizer=None, params=None):
    """Parameters and optimizer after these turns."""
    is_ours = library is optim
    made = Tensor if is_ours else lambda values: torch.tensor(values, requires_grad=True)
    params = params or [made(W + i) for i in range(3)]
    kind = getattr(optim if is_ours else torch.optim, name)
    optimizer = optimizer or kind(params, **COUNTING[name])
    for turn in turns:
        optimizer.zero_grad()
        sum((params["abc".index(which)] ** 3).sum() for which in turn).backward()
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize("name", COUNTING)
@Tensor.train()
def test_each_parameter_counts_its_own_steps_as_torchs(name):
    found, _ = stepped(optim, name, MOVED)
    wanted, _ = stepped(torch, name, MOVED)
    same([each.numpy() for each in found], [each.detach().numpy() for each in wanted])


@Tensor.train()
def test_counts_that_went_apart_are_saved_and_loaded():
    params, optimizer = stepped(optim, "NAdam", MOVED[:4])
    copies = [Tensor(each.numpy()) for each in params]
    other = optim.NAdam([{"params": copies}], lr=0.1)
    state = {f"optimizers.0.{n}": t.clone() for n, t in optimizer.state_dict().items()}
    assert [name for name in state if "late.2" in name]
    other.load_state_dict(state)
    for turns in (MOVED[4:], ["abc"] * 3):
        stepped(optim, "NAdam", turns, optimizer, params)
        stepped(optim, "NAdam", turns, other, copies)
        assert [each.tolist() for each in copies] == [each.tolist() for each in params]
    other.load_state_dict(optim.NAdam([{"params": copies}], lr=0.1).state_dict())
    assert other.optimizers[0].late == {}


# ---- groups that come later ----------------------------------------------------------------------


def trained_with_more(library, capture):
    """A step of one group, and of two after four steps; both have a schedule."""
    is_ours = library is optim
    make = Tensor if is_ours else torch.tensor
    a, b = make(B, requires_grad=True), make(B * 2, requires_grad=True)
    optimizer = library.SGD([{"params": [a]}], lr=0.1, momentum=0.5)

    def step(x):
        optimizer.zero_grad()
        loss = (a * x).square().sum() + (b * x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    run, found = TinyJit(step) if capture else step, []
    for turn in range(8):
        if turn == 4:
            optimizer.add_param_group({"params": [b], "lr": 0.2})
        x = make(np.float32([turn, 1, 2, 3]) / 4)
        if capture and turn == 4:
            with pytest.raises(JitError, match="optimizers"):
                run(x)
            run = TinyJit(step)
        found.append(run(x).item())
    return found


@pytest.mark.parametrize("capture", [False, True])
@Tensor.train()
def test_a_group_that_is_added_later_moves_as_torchs(capture):
    ours, theirs = trained_with_more(optim, capture), trained_with_more(torch.optim, False)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@Tensor.train()
def test_a_schedule_moves_the_rate_of_lbfgs_as_torchs():
    def run(lib, schedules, w):
        optimizer = lib.LBFGS([w], lr=0.5, max_iter=2)
        schedule = schedules.StepLR(optimizer, 1, gamma=0.5)

        def closure():
            optimizer.zero_grad()
            loss = ((w - 1) ** 2 * (w + 2) ** 2).sum()
            loss.backward()
            return loss

        losses = []
        for _ in range(4):
            losses.append(optimizer.step(closure).item())
            schedule.step()
            losses.append(optimizer.param_groups[0]["lr"])
        return losses

    ours = run(optim, optim, Tensor(B, requires_grad=True))
    theirs = run(torch.optim, torch.optim.lr_scheduler, torch.tensor(B, requires_grad=True))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


LATER_MISUSES = {
    "of one list": (
        lambda: optim.Adam([Tensor(B)]).add_param_group({"params": [Tensor(B)]}),
        "Adam.add_param_group: it was made of one list; legal is Adam",
    ),
    "of optimizers": (
        lambda: optim.OptimizerGroup(optim.SGD([Tensor(B)])).add_param_group({"params": []}),
        "made one by one; legal is OptimizerGroup",
    ),
    "twice": (
        lambda: (w := Tensor(B), optim.SGD([{"params": [w]}]).add_param_group({"params": [w]})),
        "1 of 2 parameters are in two groups",
    ),
    "in two groups": (
        lambda: (w := Tensor(B), optim.SGD([{"params": [w]}, {"params": [w]}])),
        "1 of 2 parameters are in two groups; legal is one",
    ),
    "the state of another kind": (
        lambda: optim.SGD([Tensor(B)]).load_state_dict(optim.Adam([Tensor(B)]).state_dict()),
        r"no place for m\.0, v\.0, b1_t, b2_t; legal is the state of an optimizer of this kind",
    ),
    "the state of more": (
        lambda: optim.Adam([Tensor(B)]).load_state_dict(
            optim.Adam([Tensor(B), Tensor(B)]).state_dict()
        ),
        r"no place for m\.1, v\.1; legal is",
    ),
    "LBFGS in a group": (
        lambda: Tensor.train()(optim.OptimizerGroup(optim.LBFGS([Tensor(B)])).step)(),
        r"decide on the host; legal is step\(closure\)",
    ),
    "LBFGS without a closure": (lambda: optim.LBFGS([Tensor(B)]).step(), "without a closure"),
}


@pytest.mark.parametrize("what", LATER_MISUSES)
def test_misuse_later(what):
    misuse, message = LATER_MISUSES[what]
    with pytest.raises(ArgumentError, match=message):
        misuse()


@pytest.mark.parametrize("grouped", [False, True])
def test_a_state_of_tensors_alone_may_name_the_parameters(grouped):
    def made(lr):
        w = Tensor(B)
        return optim.SGD([{"params": w}] if grouped else [w], lr=lr, momentum=0.5)

    first, second = made(0.5), made(0.1)
    second.load_state_dict(get_state_dict(first))
    assert second.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("name", ["Adafactor", "Adam", "Rprop"])
def test_a_number_is_a_parameter(name):
    """A learned temperature has no axis."""
    x, theirs = Tensor(3.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    both = getattr(optim, name)([x], lr=0.1), getattr(torch.optim, name)([theirs], lr=0.1)
    with Tensor.train():
        for _ in range(3):
            for optimizer, number in zip(both, (x, theirs), strict=True):
                optimizer.zero_grad()
                (number * number).backward()
                optimizer.step()
    assert x.item() == pytest.approx(theirs.item(), rel=1e-6)
