"""Which steps of several devices wait for which, and that the others run at the same time."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, nn
from tinygrad.engine import run
from tinygrad.engine.devices import Device
from tinygrad.engine.lanes import Segment, Touch, run_lanes, segments_of
from tinygrad.engine.plans import known_plan, make_plan
from tinygrad.engine.structure import structure_of
from tinygrad.uop.op import Ops


def chain_of(structure):
    make_plan(structure)
    found = known_plan(structure)
    assert found is not None
    return found[0].chain


def reads(*homes):
    return [Touch(home, False) for home in homes]


def writes(*homes):
    return [Touch(home, True) for home in homes]


def found(steps, alone=()):
    """(lane, steps, waits) of each segment; a step is (lane, touches)."""
    lanes, touches = [s[0] for s in steps], [s[1] for s in steps]
    made = segments_of(lanes, touches, [i in alone for i in range(len(steps))])
    return [(s.lane, s.steps, s.waits) for s in made]


def test_lanes_that_share_nothing_are_one_segment_each():
    steps = [("a", writes(1)), ("b", writes(2)), ("a", reads(1)), ("b", reads(2))]
    assert found(steps) == [("a", [0, 2], []), ("b", [1, 3], [])]


def test_who_reads_waits_for_who_wrote():
    steps = [("a", writes(1)), ("b", writes(2)), ("b", reads(1)), ("a", writes(3))]
    assert found(steps) == [("a", [0], []), ("b", [1], []), ("b", [2], [0]), ("a", [3], [])]


def test_who_overwrites_waits_for_who_read():
    steps = [("a", writes(1)), ("b", reads(1)), ("a", writes(1))]
    assert found(steps) == [("a", [0], []), ("b", [1], [0]), ("a", [2], [1])]


def test_one_lane_waits_once():
    steps = [("a", writes(1)), ("a", writes(2)), ("b", reads(2)), ("b", reads(1))]
    assert found(steps) == [("a", [0, 1], []), ("b", [2, 3], [0])]


def test_temporaries_that_take_turns_in_a_place_wait():
    def place(home, first, end, write=True):
        return [Touch(home, write, ("arena", first, end))]

    apart = [("a", place(1, 0, 8)), ("b", place(1, 0, 8, False)), ("a", place(2, 8, 16))]
    assert found(apart)[-1] == ("a", [2], [])
    over = [("a", place(1, 0, 8)), ("b", place(1, 0, 8, False)), ("a", place(2, 4, 12))]
    assert found(over)[-1] == ("a", [2], [1])


def test_lanes_run_at_the_same_time():
    meeting = threading.Barrier(3, timeout=30)
    segments = [Segment(lane, [n]) for n, lane in enumerate("abc")]
    run_lanes(segments, lambda number: meeting.wait(), lambda number: None)


def test_a_segment_runs_after_those_that_it_waits_for():
    order = []
    segments = [Segment("a", [0], [], True), Segment("b", [1], [0], True), Segment("a", [2], [1])]
    run_lanes(segments, order.append, lambda number: order.append(-number))
    assert order == [0, 0, 1, -1, 2]


def test_an_error_in_one_lane_stops_all_and_is_raised():
    def launch(number):
        if number == 0:
            raise ValueError("lost")

    segments = [Segment("a", [0], [], True), Segment("b", [1], [0], True), Segment("a", [2], [1])]
    with pytest.raises(ValueError, match="lost"):
        run_lanes(segments, launch, lambda number: None)


def test_a_copy_lies_beside_the_next_kernel_of_its_source():
    """While the sum over devices is on its way, its source goes on with what doesn't need it."""
    names = ("PYTHON", "PYTHON:1")
    x = Tensor(np.ones((4, 3), np.float32), device="PYTHON").shard(names, 0).realize()
    y = Tensor(np.ones((4, 3), np.float32), device="PYTHON").shard(names, 0).realize()
    nodes = [x.sum(0).uop, (y * 3).contiguous().uop]
    segments = chain_of(structure_of(nodes)).segments
    copies = [n for n, s in enumerate(segments) if s.lane[1]]
    free = [s for s in segments if not s.lane[1] and not set(copies) & set(s.waits)]
    assert len(copies) == 2 and {s.lane[0] for s in free} == set(names)


def test_what_is_copied_away_lies_beside_the_kernels_of_one_device(monkeypatch):
    monkeypatch.setattr(run, "ENOUGH_WORK", -1)
    x, y = (Tensor(np.full((4, 3), n, np.float32), device="CPU").realize() for n in (1, 2))
    moved, made = x.to("CPU:1"), y * 3 + x
    chain = chain_of(structure_of([moved.uop, made.uop]))
    assert chain.side_by_side
    assert [(s.lane, s.waits) for s in chain.segments] == [
        (("CPU:1", True), []),
        (("CPU", False), []),
    ]
    meeting = threading.Barrier(2, timeout=30)  # passes only if both are under way at once

    def met(work):
        return lambda *given: (meeting.wait(), work(*given))[1]

    monkeypatch.setitem(run.step_runners, Ops.COPY, met(run.step_runners[Ops.COPY]))
    monkeypatch.setattr(run.Stretch, "launch", met(run.Stretch.launch))
    Tensor.realize(moved, made)
    assert (moved.numpy() == 1).all() and (made.numpy() == 7).all()


def test_fault_words_and_scratch_are_each_lane_s_own(monkeypatch):
    monkeypatch.setattr(run, "ENOUGH_WORK", -1)
    names = ("CPU", "CPU:1", "CPU:2")
    values = np.arange(18, dtype=np.float32).reshape(6, 3)
    x = Tensor(values).shard(names, 0)
    at = Tensor(np.full((6, 1), 7, np.int32)).shard(names, 0)
    with pytest.raises(IndexError, match="index 7"):
        x.gather(1, at).numpy()
    np.testing.assert_allclose((x @ x.T).numpy(), values @ values.T)


# ---- what it gains -------------------------------------------------------------------------------


class Waiting:
    """A queue whose kernels take time of their own, while the processor has nothing to do: as a
    card's do. `busy` has (what, start, end) of all that its devices did."""

    def __init__(self, queue, busy):
        self.queue, self.busy = queue, busy
        self.load, self.synchronize = queue.load, queue.synchronize

    def segment(self, launches):
        made = self.queue.segment(launches)
        return SimpleNamespace(run=took(made.run, "kernels", len(launches), self.busy))


def took(work, what, count, busy):
    def run(*given):
        start = time.perf_counter()
        found = work(*given)
        time.sleep(0.004 * count)
        busy.append((what, start, time.perf_counter()))
        return found

    return run


def waiting_devices(monkeypatch, names, busy):
    """The CPU's cores as cards that are joined by slow links."""
    for name in names:
        backend = Device[name].backend
        memory = backend.memory

        def copy(target, _, source, nbytes, memory=memory):
            memory.write(target, memory.read(source, nbytes))

        queue = Waiting(backend.queue, busy)
        backend = replace(backend, queue=queue, copy_from=took(copy, "copy", 1, busy))
        monkeypatch.setattr(Device[name], "backend", backend)


def test_copies_of_a_training_step_are_hidden_behind_its_kernels(monkeypatch):
    """Data parallel: sums of gradients are on their way while the backward pass goes on."""
    names, busy = ("CPU:30", "CPU:31"), []
    waiting_devices(monkeypatch, names, busy)
    values = np.random.default_rng(0).standard_normal((8, 80)).astype(np.float32)

    def hidden(enough_work):
        """Seconds of copies while kernels ran, and the losses."""
        monkeypatch.setattr(run, "ENOUGH_WORK", enough_work)
        Tensor.manual_seed(0)
        layers = [nn.Linear(80, 80) for _ in range(4)]  # whose gradients are no small ones
        parameters = [p.to_(names) for p in nn.state.get_parameters(layers)]
        optimizer = nn.optim.SGD(parameters, lr=0.1)

        @TinyJit
        @Tensor.train()
        def step(x):
            optimizer.zero_grad()
            loss = x.sequential([f for layer in layers for f in (layer, Tensor.relu)])
            loss = loss.square().mean()
            loss.backward()
            optimizer.step()
            return loss.realize()

        x = Tensor(values).shard(names, axis=0).realize()
        losses = [step(x).item() for _ in range(3)]
        busy.clear()
        losses.append(step(x).item())
        both = (
            max(0.0, min(end, stop) - max(start, begin))
            for what, start, end in busy
            for other, begin, stop in busy
            if what == "copy" and other == "kernels"
        )
        return sum(both), losses

    (alone, wanted), (beside, losses) = hidden(float("inf")), hidden(-1)
    assert losses == wanted
    assert alone == 0 < beside
