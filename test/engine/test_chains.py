"""Loops whose state nobody asks for: it is read through other values only, as in
`h = f(h); print(g(h))`. Such a loop comes to rest: it makes no more plans, and keeps no more nodes.
"""

import gc

import numpy as np
import pytest

from tinygrad import GlobalCounters, Tensor, Variable, dtypes, nn
from tinygrad.engine import chains
from tinygrad.engine.realize import in_memory
from tinygrad.uop import Ops
from tinygrad.uop.interning import TABLE

TURNS = 30
random = np.random.default_rng(5)
X = random.standard_normal((8, 8)).astype(np.float32)
V = random.standard_normal(8).astype(np.float32)
LOOPS = {}


def loop(make):
    """A program that gives one turn of a loop, for tensors and for arrays of NumPy's."""
    LOOPS[make.__name__] = make
    return make


@loop
def an_average(to, math):
    state, x = [to(V)], to(X[0])

    def turn():
        state[0] = state[0] * 0.9 + x * 0.1
        return ((state[0] - x) ** 2).mean()

    return turn


@loop
def a_recurrent_state(to, math):
    state, w, x = [to(X)], to(X), to(V)

    def turn():
        state[0] = math.tanh((state[0] @ w) * 0.1 + x)
        return (state[0] * 2).sum()

    return turn


@loop
def two_states_of_which_one_is_read(to, math):
    state, x = [to(V), to(X[1])], to(X[2])

    def turn():
        place, speed = state
        speed = speed * 0.99 - (place - x) * 0.01
        state[:] = place + speed * 0.1, speed
        return (state[0] * state[0]).sum()

    return turn


@loop
def a_state_that_the_result_does_not_see_yet(to, math):
    state, x = [to(V)], to(X[0])

    def turn():
        now = state[0]
        state[0] = now - (now * x) * 0.01
        return (now * x).sum()

    return turn


@loop
def a_count(to, math):
    state, x = [to(V) * 0], to(V)

    def turn():
        state[0] = state[0] + 1
        return (state[0] * x).sum()

    return turn


@loop
def rows_that_move_up(to, math):
    state = [to(X)]

    def turn():
        rows = state[0]
        join = Tensor.cat if isinstance(rows, Tensor) else lambda *rows: np.concatenate(rows)
        state[0] = join(rows[1:], (rows[-1:] * 0.5) + 0.1)
        return (state[0] * 2).sum()

    return turn


class Functions:
    """Of tensors, by NumPy's names."""

    tanh = staticmethod(Tensor.tanh)


@pytest.mark.parametrize("wants", [None, False, True])
@pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)
def test_a_loop_of_which_the_state_is_not_read(make, wants):
    mine = make(lambda values: Tensor(values, requires_grad=wants), Functions)
    theirs = make(lambda values: values.astype(np.float64), np)
    for _ in range(TURNS):
        np.testing.assert_allclose(mine().item(), theirs(), 1e-4, 1e-4)
    made = GlobalCounters.plans_made, GlobalCounters.kernels_lowered
    for _ in range(TURNS):
        np.testing.assert_allclose(mine().item(), theirs(), 1e-4, 1e-4)
    assert (GlobalCounters.plans_made, GlobalCounters.kernels_lowered) == made
    if wants is not True:  # whose gradient goes through all turns
        assert _kept_by(mine) <= 0


def _plans_of_late(turn, first):
    """How many plans a loop makes after its first turns."""
    for _ in range(first):
        turn()
    made = GlobalCounters.plans_made
    for _ in range(12):
        turn()
    return GlobalCounters.plans_made - made


def _kept_by(turn):
    counts = []
    for _ in range(2):
        for _ in range(12):  # whole periods
            turn().item()
        gc.collect()
        counts.append(len(TABLE))
    return counts[1] - counts[0]


def test_a_written_tensor_that_was_never_computed():
    """A network that follows another one, from random weights."""
    Tensor.manual_seed(3)
    follower, leader = nn.Linear(4, 4), nn.Linear(4, 4)
    pairs = list(zip(*map(nn.state.get_parameters, (follower, leader)), strict=True))
    x = Tensor(X[:, :4])

    def turn():
        with Tensor.no_grad():
            for mine, theirs in pairs:
                mine.assign(mine * 0.9 + theirs * 0.1)
        return follower(x).numpy()

    turn()
    before = follower.weight.numpy()
    assert _plans_of_late(turn, 16) == 0
    close = before + (leader.weight.numpy() - before) * (1 - 0.9**28)
    np.testing.assert_allclose(follower.weight.numpy(), close, 1e-5, 1e-6)


def test_the_states_of_a_cell():
    Tensor.manual_seed(3)
    cell, out = nn.LSTMCell(4, 4), nn.Linear(4, 2)
    state = [None]

    def turn():
        state[0] = cell(Tensor(X[:, :4]), state[0])
        return out(state[0][0]).argmax(1).numpy()

    assert _plans_of_late(turn, 16) == 0


def test_what_is_made_of_storage_each_time_is_not_stored():
    small = Tensor(X).cast(dtypes.int8).realize()
    weight = small.cast(dtypes.float32) * 0.5  # held, and read in many turns
    for number in range(6):
        (Tensor(X + number) @ weight).sum().item()
        (weight * number).sum().item()
    assert weight.uop.known is None


def test_large_values_are_not_stored_unasked(monkeypatch):
    monkeypatch.setattr("tinygrad.tensor.sources.MOST_ELEMENTS", 7)
    state = Tensor(V)
    for _ in range(6):
        state = state * 0.9 + 0.1
        (state * 2).sum().item()
    assert state.uop.known is None
    np.testing.assert_allclose(state.numpy(), (V - 1) * 0.9**6 + 1, 1e-5)


def test_a_state_without_elements():
    state = Tensor(X[:0])
    for _ in range(6):
        state = state * 0.9 + 1
        assert (state.sum() + 2).item() == 2


def test_a_value_has_grown_once_four_runs_made_it():
    value = Tensor(V).realize() * 2
    for _ in range(4):
        assert not chains.grows(value.uop)
        (value + 1).sum().item()
        last, value = value, value * 3
    assert in_memory(last.uop)  # its last use computed it
    assert not chains.grows(value.uop)


def test_what_one_turn_reads_in_turn_is_not_stored():
    x = Tensor(V).realize()
    for _ in range(6):
        loss = (x * 2).square()
        slope = loss * 3
        norm = (slope + loss).square()
        for read in (loss, slope, norm):
            (read + 1).sum().item()
        norm.sqrt()
        assert not in_memory(norm.uop)


def test_a_cache_of_any_length():
    """What a value was made of is forgotten with the sizes and the numbers in it."""
    keys, w = Tensor.zeros(64, 8).contiguous().realize(), Tensor(X).realize()
    token, pasts = Tensor(V[None]).realize(), []
    for length in range(1, 25):
        n = Variable("n", 1, 64).bind(length)
        keys[n - 1 : n] = token @ w
        scores = (token @ keys[:n].T).softmax(1) @ keys[:n]
        token = (scores / scores.square().mean().sqrt()).realize()
        pasts.append(len(token.uop.base.storage.past))
    assert max(pasts[12:]) == max(pasts[4:12])


def test_what_is_written_after_a_run_made_it_is_stored():
    """A target network, beside one that is trained: each turn reads what it was."""
    Tensor.manual_seed(3)
    target, net = nn.Linear(4, 4), nn.Linear(4, 4)
    target.weight.requires_grad = target.bias.requires_grad = False
    optimizer = nn.optim.SGD(nn.state.get_parameters(net), 0.01)
    pairs = list(zip(*map(nn.state.get_parameters, (target, net)), strict=True))
    x = Tensor(X[:, :4])
    for _ in range(4):
        with Tensor.train():
            optimizer.zero_grad()
            loss = (net(x) - target(x) * 0.9).square().mean()
            loss.backward()
            optimizer.step()
        loss.item()
        before = [(mine.numpy(), theirs.numpy()) for mine, theirs in pairs]
        with Tensor.no_grad():
            for mine, theirs in pairs:
                mine.assign(mine * 0.9 + theirs * 0.1)
        for (mine, _), (was, by) in zip(pairs, before, strict=True):
            np.testing.assert_allclose(mine.numpy(), was * 0.9 + by * 0.1, 1e-5, 1e-6)
    t = Tensor.rand(4)
    (t + 1).sum().item()
    t.assign(t * 2)
    assert in_memory(t.uop) or t.uop.base.op is Ops.ASSIGN


def test_a_part_of_a_table_of_numbers_may_be_read_alone_again_and_again():
    table = (Tensor.arange(6, dtype="float32") * 2).reshape(2, 3).contiguous()
    row = table[1]
    for n in range(12):
        assert (row.tolist(), (row[:1] + n).tolist()) == ([6, 8, 10], [6 + n])
    assert table.tolist() == [[0, 2, 4], [6, 8, 10]]
