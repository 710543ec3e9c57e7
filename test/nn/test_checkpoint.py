"""A run that is saved and resumed goes on bit for bit as if it had never stopped; also one that was
killed while it saved."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tinygrad import Generator, Tensor, TinyJit, nn
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.data.loader import ArrayDataset, DataLoader
from tinygrad.formats import safetensors
from tinygrad.nn.checkpoint import Checkpoint
from tinygrad.nn.optim import (
    EMA,
    LBFGS,
    SGD,
    Adam,
    CosineAnnealingLR,
    GradScaler,
    ReduceLROnPlateau,
)
from tinygrad.nn.state import get_state_dict

STEPS = 11
random = np.random.default_rng(0)
X, Y = (random.standard_normal((10, n)).astype(np.float32) for n in (3, 2))


class Run:
    """All that there is, from a seed."""

    def __init__(self, path, capture=True):
        Tensor.manual_seed(3)
        self.net = {"first": nn.Linear(3, 4), "norm": nn.BatchNorm(4), "last": nn.Linear(4, 2)}
        self.optimizer = Adam(nn.state.get_parameters(self.net), lr=0.05)
        self.schedules = [CosineAnnealingLR(self.optimizer, 20), ReduceLROnPlateau(self.optimizer)]
        self.average, self.scaler = EMA(self.net, 0.9), GradScaler(8.0, growth_interval=3)
        self.noise = Generator(5)
        self.loader = DataLoader(ArrayDataset(X, Y), batch_size=2, shuffle=True, seed=1)
        self.saved = Checkpoint(
            path,
            net=self.net,
            optimizer=self.optimizer,
            schedules=self.schedules,
            average=self.average,
            scaler=self.scaler,
            noise=self.noise,
            loader=self.loader,
        )
        self.step = TinyJit(self._step) if capture else self._step

    def _step(self, x, y):
        with Tensor.train():
            self.optimizer.zero_grad()
            hidden = self.net["norm"](self.net["first"](x)).relu().dropout(0.2)
            hidden = hidden + Tensor.randn(2, 4, generator=self.noise) * 0.1
            loss = (self.net["last"](hidden) - y).square().mean()
            self.scaler.scale(loss).backward()
            changed = self.scaler.schedule_step(self.optimizer)
            changed += self.schedules[0].schedule_step() + self.average.schedule_update()
        return loss.realize(*changed)

    def go(self, until, each=lambda step: None):
        """On from the file, if it is there, up to step `until`."""
        found = self.saved.load()
        step = found["step"] if found else 0
        while step < until:
            for x, y in self.loader:
                self.step(x, y)
                step += 1
                self.saved.save(step=step)
                each(step)
                if step >= until:
                    break
        return self

    def state(self):
        held = [self.net, self.optimizer, self.schedules, self.average, self.scaler]
        tensors = get_state_dict(held)
        return {name: t.numpy().tobytes() for name, t in tensors.items()} | {
            "noise": self.noise.state_dict(),
            "loader": self.loader.state_dict(),
        }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("run") / "whole").go(STEPS).state()


@pytest.mark.parametrize("stops", [(1, 4, 7), (5,)])
def test_resumed_runs_are_the_same_to_the_bit(tmp_path, uninterrupted, stops):
    """Also in the middle of an epoch, of five batches, and at its end."""
    for until in (*stops, STEPS):
        Tensor.rand(3)  # another process draws otherwise before it loads
        run = Run(tmp_path / "run").go(until)
    assert run.state() == uninterrupted


PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
from nn.test_checkpoint import STEPS, Run

def each(step):
    print(step, flush=True)
    if step == STEPS - 1:
        time.sleep(60)  # it was too quick to be killed on its way

Run(sys.argv[2]).go(STEPS, each)
"""


def test_a_killed_run_goes_on_from_its_last_save(tmp_path, uninterrupted):
    """SIGKILL in the middle of the loop, which saves after each step, again and again."""
    path, pause = tmp_path / "run", np.random.default_rng(1)
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent.parent), str(path)]
    told = 0
    for kill_at in (2, 4, 8):
        if told >= kill_at:  # it was quicker than who kills it
            continue
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                assert int(line) > told  # nothing that was told as saved was lost
                told = int(line)
                if told >= kill_at:
                    time.sleep(pause.random() * 0.02)
                    os.kill(process.pid, signal.SIGKILL)
                    told += sum(1 for _ in process.stdout)  # what it did meanwhile
                    break
        assert process.returncode == -signal.SIGKILL
    run = Run(path).go(STEPS)
    assert run.state() == uninterrupted
    assert {p.name for p in tmp_path.iterdir()} <= {"run", "run.part"}


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    net = {"w": Tensor([1.0, 2.0]).realize()}
    run = Checkpoint(tmp_path / "run", net=net)
    run.save(step=1)

    def fails(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fails)
    net["w"].assign(Tensor([5.0, 5.0])).realize()
    with pytest.raises(OSError, match="no space"):
        run.save(step=2)
    assert run.load() == {"step": 1} and net["w"].tolist() == [1.0, 2.0]
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("grouped", [False, True])
def test_options_that_were_set_later_are_in_the_file(tmp_path, grouped):
    def make():
        params = [Tensor([1.0, 2.0], requires_grad=True)]
        return Adam([{"params": params}] if grouped else params, lr=0.1)

    first, second = make(), make()
    first.param_groups[0].update(weight_decay=0.1, eps=1e-5)
    Checkpoint(tmp_path / "run", optimizer=first).save()
    Checkpoint(tmp_path / "run", optimizer=second).load()
    assert [second.param_groups[0][name] for name in ("weight_decay", "eps")] == [0.1, 1e-5]


class Trainer:
    """What a run consists of in one object: also what speaks for itself lies in it."""

    def __init__(self, lr=0.1, **options):
        self.net = nn.Linear(2, 3)
        parts = {"weight": self.net.weight, "bias": self.net.bias}
        self.optimizers = {n: SGD([t], lr, momentum=0.9, **options) for n, t in parts.items()}
        self.rest = [DataLoader(range(6), 2), (Generator(int(lr * 10)), LBFGS([self.net.weight]))]
        self.kinds = [SGD, DataLoader]  # classes say nothing

    def state(self):
        loader, (noise, search) = self.rest
        at = loader.state_dict(), noise.state_dict(), search.length
        return at, [list(each.param_groups[0].values())[1:] for each in self.optimizers.values()]


def test_what_speaks_for_itself_does_so_inside_containers_and_objects(tmp_path):
    first, second = Trainer(0.5, nesterov=True), Trainer()
    next(iter(first.rest[0]))
    first.rest[1][1].length = 0.25
    Tensor.rand(1, generator=first.rest[1][0])
    Checkpoint(tmp_path / "run", all=[first]).save()
    Checkpoint(tmp_path / "run", all=[second]).load()
    assert second.state() == first.state()
    assert second.net.weight.tolist() == first.net.weight.tolist()


def test_files_of_the_first_version_are_read(tmp_path):
    """In which what lies inside a part was kept as tensors only."""
    first, second = Trainer(0.5), Trainer()
    tensors = get_state_dict({"all": first})
    names = {id(t): name for name, t in reversed(tensors.items())}
    arrays = {name: tensors[name].numpy() for name in names.values()}
    same = {name: names[id(t)] for name, t in tensors.items() if name not in arrays}
    plain = {"random": Generator(3).state_dict()}
    header = {"version": 1, "plain": plain, "same": same, "notes": {"step": 1}}
    safetensors.write(tmp_path / "run", arrays, {"tinygrad.run": json.dumps(header)})
    assert Checkpoint(tmp_path / "run", all=second).load() == {"step": 1}
    assert second.net.weight.tolist() == first.net.weight.tolist()
    assert second.optimizers["bias"].lr.item() == 0.5


def test_a_part_may_stand_in_several_places(tmp_path):
    def run(lr):
        optimizer = SGD([Tensor([1.0], requires_grad=True)], lr)
        return optimizer, Checkpoint(tmp_path / "run", one=optimizer, all=[optimizer])

    run(0.5)[1].save()
    optimizer, saved = run(0.1)
    saved.load()
    assert optimizer.lr.item() == 0.5


def test_weights_that_were_tied_are_put_into_each_of_two(tmp_path):
    w = Tensor([1.0, 2.0])
    Checkpoint(tmp_path / "run", net=[w, w]).save()
    two = [Tensor([0.0, 0.0]), Tensor([0.0, 0.0])]
    Checkpoint(tmp_path / "run", net=two).load()
    assert [each.tolist() for each in two] == [[1.0, 2.0]] * 2


def test_two_weights_are_not_put_into_tied_ones(tmp_path):
    w = Tensor([1.0, 2.0])
    Checkpoint(tmp_path / "run", net=[Tensor([1.0, 2.0]), Tensor([3.0, 4.0])]).save()
    with pytest.raises(
        ArgumentError, match=r"net\.0 and net\.1 are one tensor, and two in the file"
    ):
        Checkpoint(tmp_path / "run", net=[w, w]).load()
    assert w.tolist() == [1.0, 2.0]


def test_a_loader_whose_loop_was_left_begins_anew_after_a_refused_file(tmp_path):
    path, loader = tmp_path / "run", DataLoader(range(4), 2)
    Checkpoint(path, loader=loader, more=Refusing()).save()
    for _ in loader:
        break
    with pytest.raises(ArgumentError, match="not mine"):
        Checkpoint(path, loader=loader, more=Refusing()).load()
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert (loader.epoch, loader.batch) == (2, 0)


def test_tensors_are_written_once_and_other_programs_can_read_them(tmp_path):
    net = nn.Linear(2, 3)
    optimizer = Adam([net.weight, net.bias])
    Checkpoint(tmp_path / "run", net=net, optimizer=optimizer).save(note=[1, None, "a"])
    arrays, metadata = safetensors.read(tmp_path / "run")
    assert sum(array.shape == (3, 2) for array in arrays.values()) == 3  # weight, two moments
    assert arrays["net.weight"].tolist() == net.weight.tolist()
    assert json.loads(metadata["tinygrad.run"])["notes"] == {"note": [1, None, "a"]}


def test_parts_that_speak_for_themselves_may_hold_tensors(tmp_path):
    def run():
        at = Tensor([3.0, -2.0], requires_grad=True)
        optimizer = LBFGS([at], max_iter=2)

        def closure():
            optimizer.zero_grad()
            loss = ((at - 1).square() * Tensor([1.0, 10.0])).sum() + at.pow(4).sum()
            loss.backward()
            return loss

        return at, optimizer, closure, Checkpoint(tmp_path / "run", at=at, optimizer=optimizer)

    at, optimizer, closure, saved = run()
    optimizer.step(closure)
    saved.save()
    optimizer.step(closure)
    other, optimizer, closure, saved = run()
    assert saved.load() == {}
    optimizer.step(closure)
    assert other.tolist() == at.tolist()


def test_loaded_values_reach_captured_steps(tmp_path):
    net = {"w": Tensor([2.0]).realize()}
    run = Checkpoint(tmp_path / "run", net=net)
    run.save()
    step = TinyJit(lambda x: net["w"].assign(net["w"] * x).realize())
    for _ in range(4):
        step(Tensor([3.0]).realize())
    run.load()
    assert step(Tensor([3.0]).realize()).item() == 6.0


class Refusing:
    """A part that takes no state but its own."""

    numbers = itertools.count()  # an id is given again to the next object

    def __init__(self):
        self.own = next(self.numbers)

    def state_dict(self):
        return {"of": self.own}

    def load_state_dict(self, state):
        if state["of"] != self.own:
            raise ArgumentError("not mine")


@pytest.mark.parametrize("why", ["another shape", "a part refuses", "beyond the data"])
def test_what_is_refused_has_moved_nothing(tmp_path, why):
    def run(size=2, samples=8, more=None):
        at = Tensor([3.0] * size, requires_grad=True)
        parts = {"at": at, "optimizer": LBFGS([at], max_iter=2), "noise": Generator(5)}
        parts["loader"] = DataLoader(range(samples), 2, shuffle=True)
        return parts, Checkpoint(tmp_path / "run", **parts, more=more or Generator(1))

    def step(parts):
        def closure():
            parts["optimizer"].zero_grad()
            (loss := parts["at"].square().square().sum()).backward()
            return loss

        parts["optimizer"].step(closure)
        next(iter(parts["loader"]))
        return Tensor.rand(2, generator=parts["noise"]).tolist(), parts["at"].tolist()

    parts, saved = run(more=Refusing() if why == "a part refuses" else None)
    step(parts)
    step(parts)
    saved.save()
    options = {
        "another shape": {"size": 3},
        "a part refuses": {"more": Refusing()},
        "beyond the data": {"samples": 1},
    }[why]
    parts, saved = run(**options)
    step(parts)
    before = parts["loader"].state_dict(), parts["noise"].state_dict(), parts["at"].tolist()
    position = Tensor.manual_seed(3) or Tensor.rand(1).tolist()
    Tensor.manual_seed(3)
    with pytest.raises((ArgumentError, ShapeError)):
        saved.load()
    after = parts["loader"].state_dict(), parts["noise"].state_dict(), parts["at"].tolist()
    assert after == before and Tensor.rand(1).tolist() == position
    found = step(parts)[1]
    other, _ = run(**options)
    step(other)
    assert step(other)[1] == found  # the optimizer is where it was, too


class Stating:
    """A part with this state."""

    def __init__(self, state):
        self.state_dict, self.load_state_dict = lambda: state, print


def misuse(change):
    def act(path):
        Checkpoint(path, net={"w": Tensor([1.0]), "v": Tensor([1.0])}).save()
        change(path)

    return act


MISUSES = {
    "other names": (
        lambda p: Checkpoint(p, net={"w": Tensor([1.0]), "u": Tensor([1.0])}).load(),
        ArgumentError,
        r"lacks \['net.u'\] and has \['net.v'\]",
    ),
    "other parts": (
        lambda p: Checkpoint(p, model={"w": Tensor([1.0])}).load(),
        ArgumentError,
        r"lacks \['model.w'\] and has \['net.v', 'net.w'\]",
    ),
    "another shape": (
        lambda p: Checkpoint(p, net={"w": Tensor([1.0]), "v": Tensor([1.0, 2.0])}).load(),
        ShapeError,
        r"net.v has shape \(2,\) in the model and \(1,\)",
    ),
    "no run": (
        lambda p: [safetensors.write(p, {"a": np.ones(2)}), Checkpoint(p).load()],
        ArgumentError,
        "holds no run",
    ),
    "notes that are no JSON": (
        lambda p: Checkpoint(p).save(step=np.ones(2)),
        ArgumentError,
        "ndarray is not JSON serializable; legal are",
    ),
    "notes whose keys are no strings": (
        lambda p: Checkpoint(p).save(losses={"of": [{1: 0.5}]}),
        ArgumentError,
        "losses.of.0: a dict with the key 1; legal are strings",
    ),
    "an array": (
        lambda p: Checkpoint(p, net=[Tensor([1.0])], best=np.ones(2)).save(),
        ArgumentError,
        r"'best' of type ndarray holds no tensors, and has no state_dict; .* save\(name=value\)",
    ),
    "a number": (lambda p: Checkpoint(p, step=3).save(), ArgumentError, "'step' of type int holds"),
    "keys that are no strings": (
        lambda p: Checkpoint(p, part=Stating({"of": {1: 2}})).save(),
        ArgumentError,
        "part.of: a dict with the key 1; legal are strings",
    ),
    "two of one name": (
        lambda p: Checkpoint(p, net={"a.b": Tensor([1.0]), "a": {"b": Generator()}}).save(),
        ArgumentError,
        "two have the name 'net.a.b'",
    ),
    "a part named random": (
        lambda p: Checkpoint(p, random=Generator()), ArgumentError, "'random' is there already"
    ),
    "a broken file": (
        lambda p: [p.write_bytes(b"broken file"), Checkpoint(p).load()], ArgumentError, "no safe"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(tmp_path, name):
    change, error, words = MISUSES[name]
    with pytest.raises(error, match=words):
        misuse(change)(tmp_path / "run")
