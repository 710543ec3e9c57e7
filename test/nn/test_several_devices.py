"""Training on several devices: the same parameters after a step as on one, in data and in tensor
parallel, with optimizers that share their state; versions and captured steps over devices."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from often import one_in

from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, explain, nn
from tinygrad.base.errors import ArgumentError, IndexCheckError, JitError
from tinygrad.engine import run

D = tuple(f"CPU:{i}" for i in range(4))
rng = np.random.default_rng(0)


class MLP:
    cuts = {"a.weight": 0, "a.bias": 0, "b.weight": 1}

    def __init__(self):
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

    def __call__(self, x):
        return self.b(self.a(x).gelu())


class ConvNet:
    cuts = {"conv.weight": 0, "norm.weight": 0, "norm.bias": 0}

    def __init__(self):
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm(4)
        self.last = nn.Linear(4 * 9, 4)

    def __call__(self, x):
        return self.last(self.norm(self.conv(x)).relu().max_pool2d(2).flatten(1))


class Transformer:
    cuts = {
        "embedding.weight": 0,
        "query.weight": 0,
        "key.weight": 0,
        "value.weight": 0,
        "out.weight": 1,
        "up.weight": 0,
        "up.bias": 0,
        "down.weight": 1,
    }

    def __init__(self):
        self.embedding, self.last = nn.Embedding(11, 8), nn.Linear(8, 4)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8, bias=False) for _ in range(4))
        self.up, self.down, self.norm = nn.Linear(8, 32), nn.Linear(32, 8), nn.LayerNorm(8)

    def __call__(self, x):
        x = self.embedding(x)
        y = self.norm(x)
        q, k, v = (
            layer(y).reshape(*x.shape[:2], 4, 2).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        x = x + self.out(q.scaled_dot_product_attention(k, v).transpose(1, 2).reshape(x.shape))
        return self.last((x + self.down(self.up(x).gelu())).mean(1))


DATA = {
    MLP: rng.standard_normal((10, 8)).astype(np.float32),
    ConvNet: rng.standard_normal((10, 1, 6, 6)).astype(np.float32),
    Transformer: rng.integers(0, 11, (10, 6)).astype(np.int32),
}
LABELS = rng.integers(0, 4, 10).astype(np.int32)


def trained(model, how, optimizer=nn.optim.AdamW, steps=1, stage=0, captured=False, rows=10):
    """The losses, and all tensors of the model."""
    Tensor.manual_seed(0)
    net = model()
    state = nn.state.get_state_dict(net)
    for name, each in state.items():
        each.realize()
        if how == "data":
            each.to_(D)
        elif how == "tensor":
            each.shard_(D, model.cuts.get(name))
    moving = optimizer(nn.state.get_parameters(net), lr=0.01)
    if stage:
        nn.optim.zero(moving, stage)

    def step(x, y):
        moving.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        moving.step()
        return loss.realize()

    step = TinyJit(step) if captured else step
    place = {"data": lambda t: t.shard(D, 0), "tensor": lambda t: t.to(D)}.get(how, lambda t: t)
    batch = [place(Tensor(part[:rows])).realize() for part in (DATA[model], LABELS)]
    with Tensor.train():
        losses = [step(*batch).item() for _ in range(steps)]
    return losses, {name: each.numpy() for name, each in state.items()}, moving


def check_same(found, wanted, atol=1e-5):
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    for name in wanted[1]:
        np.testing.assert_allclose(found[1][name], wanted[1][name], atol=atol, err_msg=name)


@pytest.mark.parametrize("model", DATA)
def test_training_is_the_same_on_several_devices(model):
    wanted = trained(model, "one")
    check_same(trained(model, "data"), wanted)
    check_same(trained(model, "tensor"), wanted)


@pytest.mark.parametrize("model", one_in(2, DATA))
def test_devices_without_a_row_of_the_batch_take_part(model):
    wanted = trained(model, "one", steps=2, rows=2)
    check_same(trained(model, "data", steps=2, rows=2, captured=model is MLP), wanted)


def test_a_captured_step_of_all_devices_is_the_same_side_by_side(monkeypatch):
    wanted = trained(MLP, "one", steps=4)
    check_same(trained(MLP, "data", steps=4, captured=True), wanted)
    monkeypatch.setattr(run, "ENOUGH_WORK", -1)
    check_same(trained(MLP, "data", steps=4, captured=True), wanted)
    check_same(trained(MLP, "tensor", steps=4, captured=True), wanted)


@pytest.mark.parametrize("optimizer", [nn.optim.AdamW, nn.optim.LAMB])
def test_shared_optimizers_step_as_whole_ones(optimizer):
    wanted = trained(MLP, "data", optimizer, steps=2)
    for stage in (1, 2, 3):
        check_same(trained(MLP, "data", optimizer, steps=2, stage=stage), wanted)


@pytest.mark.usefixtures("others_are_old")
def test_each_stage_of_zero_takes_less_memory_on_each_device():
    held = {}
    for stage in range(4):
        gc.collect()
        before = GlobalCounters.mem_used_per_device["CPU:1"]
        weight = Tensor.ones(32, 32).contiguous().to_(D).requires_grad_()
        optimizer = nn.optim.Adam([weight], lr=0.1)
        if stage:
            nn.optim.zero(optimizer, stage)
        with Tensor.train():
            (Tensor.ones(8, 32).shard(D, 0) @ weight).square().sum().backward()
            optimizer.step()
        held[stage] = (GlobalCounters.mem_used_per_device["CPU:1"] - before) / weight.nbytes()
        assert (weight.uop.axis, weight.grad.uop.axis, optimizer.m[0].uop.axis) == (
            0 if stage == 3 else None,
            0 if stage >= 2 else None,
            0 if stage else None,
        )
        del weight, optimizer
    assert [round(held[s], 1) for s in range(4)] == [4.0, 2.5, 1.8, 1.0]


MISUSES = [
    ("stage=4", lambda p: nn.optim.zero(nn.optim.SGD([p], lr=0.1), 4)),
    ("on CPU; legal are several", lambda p: nn.optim.zero(nn.optim.SGD([p], lr=0.1))),
    ("an optimizer of one group", lambda p: nn.optim.zero(p)),
]


@pytest.mark.parametrize("words, misuse", MISUSES)
def test_a_misuse_of_zero_says_what_is_legal(words, misuse):
    with pytest.raises(ArgumentError, match=words):
        misuse(Tensor.ones(4, requires_grad=True))


def test_scaled_losses_step_shared_optimizers():
    weight = Tensor.ones(8, 2).contiguous().to_(D).requires_grad_()
    optimizer = nn.optim.zero(nn.optim.SGD([weight], lr=0.5), 2)
    scaler = nn.optim.GradScaler()
    with Tensor.train():
        scaler.scale((weight * weight).sum()).backward()
        scaler.step(optimizer)
    assert weight.tolist() == [[0.0, 0.0]] * 8


def test_a_file_has_whole_tensors_and_loading_cuts_them():
    net = nn.Linear(6, 5)
    net.weight.shard_(D, 0)
    path = Path(tempfile.mkdtemp()) / "net.safetensors"
    nn.state.safe_save(nn.state.get_state_dict(net), str(path))
    other = nn.Linear(6, 5)
    other.weight.shard_(D[:2], 1)
    nn.state.load_state_dict(other, nn.state.safe_load(str(path)), verbose=False)
    assert (other.weight.device, other.weight.uop.axis) == (("CPU", "CPU:1"), 1)
    np.testing.assert_equal(other.weight.numpy(), net.weight.numpy())


# ---- versions ------------------------------------------------------------------------------------

VALUES = np.arange(40, dtype=np.float32).reshape(10, 4)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_writes_are_seen_by_views_and_old_values_stay(axis):
    x, wanted = Tensor(VALUES).shard(D, axis).realize(), VALUES.copy()
    part, before = x[1:3], x + 1
    x.assign(x * 2)
    wanted *= 2
    for index, value in [
        (slice(2, 9), 7),
        (0, 3),
        ((slice(None), 1), 5),
        ((slice(None), slice(1, 3)), 8),
    ]:
        x[index] = value
        wanted[index] = value
    x[Tensor([1, 3], device=x.device)] = 1
    wanted[[1, 3]] = 1
    x[x > 50] = 0
    wanted[wanted > 50] = 0
    np.testing.assert_equal(x.numpy(), wanted)
    np.testing.assert_equal(part.numpy(), wanted[1:3])
    np.testing.assert_equal(before.numpy(), VALUES + 1)
    assert x.uop.axis == axis


def test_a_write_is_done_on_all_devices_though_only_one_is_read():
    x = Tensor(VALUES).shard(D, 0).realize()
    x.assign(x + 1)
    first, last = x[:1], x[9:]
    np.testing.assert_equal(first.numpy(), VALUES[:1] + 1)
    np.testing.assert_equal(last.numpy(), VALUES[9:] + 1)
    np.testing.assert_equal(x.numpy(), VALUES + 1)


def test_copies_to_and_from_several_devices_are_apart():
    x = Tensor(VALUES).realize()
    several = x.to(D).realize()
    one = several.to("CPU").realize()
    again = several.shard(D, 0).realize()
    several.assign(several + 1).realize()
    x.assign(x + 2).realize()
    for tensor, more in ((x, 2), (several, 1), (one, 0), (again, 0)):
        np.testing.assert_equal(tensor.numpy(), VALUES + more)
    np.testing.assert_equal(again.shard(("CPU:5", "CPU:2"), 1).numpy(), VALUES)


def test_a_plan_over_devices_is_told():
    x = Tensor(VALUES).shard(("CPU", "CPU:1"), 0).realize()
    told = explain(x + 1)
    assert "on (CPU, CPU:1; cut at [0, 5, 10]): a result" in told and "part 1 of storage" in told


def test_random_numbers_don_t_depend_on_the_devices():
    drawn = []
    for place in (lambda t: t, lambda t: t.to(D), lambda t: t.shard(D, 0)):
        Tensor.manual_seed(1)
        drawn.append(place(Tensor.randn(6, 2)).numpy())
    np.testing.assert_equal(drawn[0], drawn[1])
    np.testing.assert_equal(drawn[0], drawn[2])


def test_a_captured_step_reads_and_writes_cut_state():
    state = Tensor(VALUES).shard(D, 1).realize()

    @TinyJit
    def step(x):
        state.assign(state + x)
        return (x * state).sum(1).realize()

    wanted = VALUES.copy()
    for turn in range(4):
        x = VALUES * turn
        wanted += x
        found = step(Tensor(x).shard(D, 0).realize())
        np.testing.assert_allclose(found.numpy(), (x * wanted).sum(1), rtol=1e-5)
        np.testing.assert_equal(state.numpy(), wanted)
    with pytest.raises(JitError, match="cut at"):
        step(Tensor(VALUES).shard(D, 1).realize())


@pytest.mark.parametrize("read", [lambda t: t, lambda t: t.to("CPU"), lambda t: t.sum()])
def test_a_check_that_fails_on_any_device_is_told(read):
    x = Tensor(VALUES).shard(D, 0)
    at = Tensor(np.array([[0], [1], [2], [3], [0], [1], [2], [9], [0], [1]], np.int32)).shard(D, 0)
    with pytest.raises(IndexCheckError, match="index 9"):
        read(x.gather(1, at)).numpy()


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_a_loop_runs_on_several_devices(axis):
    two = D[:2]
    several, one = nn.LSTM(4, 3), nn.LSTM(4, 3)
    nn.state.load_state_dict(several, nn.state.get_state_dict(one), verbose=False)
    for parameter in nn.state.get_parameters(several):
        parameter.to_(two)
    sequence = Tensor(VALUES.reshape(5, 2, 4) / 40)
    found, wanted = several(sequence.shard(two, axis))[0], one(sequence)[0]
    found.square().sum().backward()
    wanted.square().sum().backward()
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-6)
    Tensor.realize(*(p.grad for n in (several, one) for p in nn.state.get_parameters(n)))
    gradients = [[p.grad.numpy() for p in nn.state.get_parameters(n)] for n in (several, one)]
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_copy_and_a_pickle_lie_as_the_original():
    for axis in (None, 1):
        x = Tensor(VALUES).shard(D, axis)
        for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
            assert (other.device, other.uop.axis) == (x.device, axis)
            np.testing.assert_equal(other.numpy(), VALUES)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_symbolic_sizes_beside_a_cut(axis):
    x = Tensor(VALUES).shard(D, axis).realize()
    for rows in (2, 7):
        part = x[: Variable("rows", 1, 10).bind(rows)]
        np.testing.assert_equal((part * 2).sum(0).numpy(), VALUES[:rows].sum(0) * 2)
        np.testing.assert_equal((part + 1).numpy(), VALUES[:rows] + 1)
    columns = x[:, : Variable("columns", 1, 4).bind(3)]
    np.testing.assert_equal((columns * 2).sum(1).numpy(), VALUES[:, :3].sum(1) * 2)


OPENCL = """
import numpy as np
from tinygrad import Device, Tensor, nn
D = ("CL", "CL:1")
x, w = np.random.randn(4, 6).astype("float32"), np.random.randn(6, 2).astype("float32")
for cut_x, cut_w in ((0, None), (1, 0)):
    a, b = Tensor(x).shard(D, cut_x), Tensor(w).shard(D, cut_w).requires_grad_()
    with Tensor.train():
        (a @ b).square().sum().backward()
        nn.optim.SGD([b], lr=0.1).step()
    want = w - 0.1 * 2 * x.T @ (x @ w)
    np.testing.assert_allclose(b.numpy(), want, rtol=1e-4, atol=1e-5)
for name in ("read", "write"):
    setattr(type(Device["CL"].backend.memory), name, None)
(b.to("CL") + b.to("CL:1").to("CL").sum()).realize()  # not by way of the host
print("same")
"""


def test_two_opencl_devices_train_as_one(tmp_path):
    places = {"POCL_DEVICES": "basic basic", "POCL_CACHE_DIR": str(tmp_path), "DEV": "CL"}
    ran = subprocess.run(
        [sys.executable, "-c", OPENCL],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.stdout == "same\n", ran.stderr[-2000:]
