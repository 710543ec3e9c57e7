"""Loops in which sizes change each turn: one plan serves them all, and means what each would."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from together import together

from tinygrad import Context, GlobalCounters, Tensor, TinyJit, nn
from tinygrad.engine import plans
from tinygrad.engine.sizes import rule_of

SIZES = 7, 5, 11, 6, 12, 33, 4, 64, 17
WEIGHT = np.random.default_rng(1).standard_normal((12, 9)).astype(np.float32)


@pytest.fixture(autouse=True)
def any_size():
    with Context(ANY_SIZE=1):
        yield


def cat(*parts, dim):
    return (
        torch.cat(parts, dim) if isinstance(parts[0], torch.Tensor) else Tensor.cat(*parts, dim=dim)
    )


def attention(q, k, v, **settings):
    if isinstance(q, torch.Tensor):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **settings)
    return q.scaled_dot_product_attention(k, v, **settings)


def positions(x):
    if isinstance(x, torch.Tensor):
        return torch.arange(x.shape[1])
    return Tensor.arange(x.shape[1], device=x.device)


def heads(x):
    return x.reshape(3, x.shape[1], 4, 3).transpose(1, 2)


OF_ANY_SIZE = {  # of values (3, T, 12) and a weight
    "elements": lambda x, w: x.exp() * 2 + 1,
    "sums over it": lambda x, w: x.sum(1),
    "of all": lambda x, w: x.square().mean(),
    "largest": lambda x, w: x.amax(1) if isinstance(x, torch.Tensor) else x.max(1),
    "softmax over it": lambda x, w: x.softmax(1),
    "softmax beside it": lambda x, w: x.softmax(2),
    "spread": lambda x, w: x.std(1),
    "product": lambda x, w: x @ w,
    "product over it": lambda x, w: x.transpose(1, 2) @ x,
    "product over it twice": lambda x, w: (x @ x.transpose(1, 2)).tril(),
    "joined": lambda x, w: cat(x, x[:, :2], x * 2, dim=1),
    "shifted": lambda x, w: x[:, 1:] - x[:, :-1],
    "its ends": lambda x, w: x[:, 0] * x[:, -1],
    "turned": lambda x, w: x.transpose(1, 2) + 1,
    "one row": lambda x, w: x.reshape(-1) * 3,
    "heads": lambda x, w: heads(x) * 2,
    "heads and back": lambda x, w: heads(x).exp().transpose(1, 2).reshape(3, -1, 12) @ w,
    "attention": lambda x, w: attention(x, x, x),
    "causal": lambda x, w: attention(heads(x), heads(x), heads(x), is_causal=True),
    "one query": lambda x, w: attention(x[:, -1:], x, x),
    "running sums": lambda x, w: (x @ w).cumsum(1),
    "positions": lambda x, w: x + positions(x).reshape(1, -1, 1),
    "its number": lambda x, w: x / x.shape[1] + x.shape[1],
    "normed": lambda x, w: x / x.square().sum(1, keepdim=True).sqrt(),
    "several": lambda x, w: cat((x @ w).sum(1), x.reshape(3, -1, 4, 3).sum((1, 3)), dim=1),
}


def plans_made(run, sizes):
    before = GlobalCounters.plans_made
    for size in sizes:
        run(size)
    return GlobalCounters.plans_made - before


def values(size, seed=0):
    return np.random.default_rng([size, seed]).standard_normal((3, size, 12)).astype(np.float32)


def close(found, expected, name=""):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=str(name))


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_one_plan_for_any_size(name, device):
    function, weight = OF_ANY_SIZE[name], Tensor(WEIGHT, device=device).realize()

    def run(size):
        x = values(size)
        found = function(Tensor(x, device=device).realize(), weight).numpy()
        close(found, function(torch.from_numpy(x), torch.from_numpy(WEIGHT)).numpy(), size)

    sizes = SIZES if device == "CPU" else SIZES[:5]
    run(sizes[0]), run(sizes[1]), run(sizes[2])
    assert plans_made(run, sizes[3:]) == 0


@pytest.mark.parametrize("name", [n for n in OF_ANY_SIZE if n not in ("its number", "largest")])
def test_gradients_of_any_size(name):
    function = OF_ANY_SIZE[name]

    def run(size):
        x, theirs = values(size), torch.from_numpy(values(size)).requires_grad_()
        mine = Tensor(x, requires_grad=True)
        ours, weight = Tensor(WEIGHT, requires_grad=True), torch.from_numpy(WEIGHT.copy())
        weight.requires_grad_()
        function(mine, ours).sin().sum().backward()
        function(theirs, weight).sin().sum().backward()
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), 1e-3, 1e-4)
        if weight.grad is not None:
            np.testing.assert_allclose(ours.grad.numpy(), weight.grad.numpy(), 1e-3, 1e-3)

    run(7), run(5), run(11)
    assert plans_made(run, [6, 9, 4]) == 0
    run(33)


def test_what_is_behind_the_size_is_no_part_of_it():
    """Storage of an earlier turn may hold anything there."""

    def run(size, fill):
        x = np.full((3, size, 12), fill, np.float32)
        return Tensor(x).realize().softmax(1).sum(1).numpy()

    for size in SIZES:
        close(run(size, 1), np.ones((3, 12)))
        assert np.isnan(run(size, np.nan)).all() and np.isnan(run(size, np.inf)).all()


def test_training_on_texts_of_all_lengths():
    """As PyTorch does, and no plan is made after the third step."""
    embed = np.random.default_rng(2).standard_normal((20, 12)).astype(np.float32)
    ours = [Tensor(array, requires_grad=True) for array in (embed, WEIGHT)]
    theirs = [torch.from_numpy(array.copy()).requires_grad_() for array in (embed, WEIGHT)]
    optimizers = nn.optim.Adam(ours, lr=0.01), torch.optim.Adam(theirs, lr=0.01)

    def run(size):
        rng = np.random.default_rng(size)
        words, labels = rng.integers(0, 20, (2, size)), rng.integers(0, 9, (2 * size))
        for params, optimizer, array in zip(
            (ours, theirs), optimizers, (Tensor, torch.from_numpy), strict=True
        ):
            optimizer.zero_grad()
            x = params[0][array(words)]
            out = (attention(x, x, x) @ params[1]).reshape(-1, 9)
            if params is ours:
                loss = out.cross_entropy(array(labels))
            else:
                loss = torch.nn.functional.cross_entropy(out, array(labels))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        close(losses[-2], losses[-1], size)

    losses: list[float] = []
    with Tensor.train():
        run(5), run(7), run(11)
        assert plans_made(run, [13, 8, 21, 16, 14]) == 0
        run(41)


def test_a_cache_that_grows():
    cache, rows = Tensor.zeros(1, 4, 3).contiguous().realize(), [np.zeros((1, 4, 3), np.float32)]
    state = {"cache": cache}

    def run(turn):
        new = np.random.default_rng(turn).standard_normal((1, 4, 3)).astype(np.float32)
        rows.append(new)
        state["cache"] = state["cache"].cat(Tensor(new), dim=0).realize()
        close(state["cache"].numpy(), np.concatenate(rows))
        close(state["cache"].softmax(0).sum((1, 2)).numpy().sum(), 12)

    for turn in range(6):
        run(turn)
    assert plans_made(run, range(6, 50)) == 0


def test_sizes_that_come_again_have_plans_of_their_own():
    """What is compiled for a size runs faster."""
    x = {size: Tensor(values(size)).realize() for size in (20, 21, 22, 23)}
    function = lambda size: (x[size].tanh() * 7).sum(1).numpy()  # noqa: E731
    for size in (20, 21, 22):
        for _ in range(4):
            function(size)
    assert plans_made(function, [23]) == 1


def test_a_size_that_comes_often_gets_a_plan_of_its_own():
    def run(size):
        x = values(size)
        found = (Tensor(x).realize().cos() * 3).numpy()
        close(found, np.cos(x) * 3)

    for size in (20, 21, 22, 23):
        run(size)
    assert plans_made(run, [23] * plans.ENOUGH) == 1
    assert plans_made(run, [23, 24, 23]) == 0


def test_captured_steps_are_of_their_size():
    step = {size: TinyJit(lambda x: (x.sin() + 5).realize()) for size in SIZES}
    for size in SIZES:
        for seed in range(4):
            x = values(size, seed)
            close(step[size](Tensor(x).realize()).numpy(), np.sin(x) + 5)


def test_it_can_be_left_out():
    run = lambda size: (Tensor(values(size)).realize().erf() + 9).numpy()  # noqa: E731
    with Context(ANY_SIZE=0):
        assert plans_made(run, SIZES[:5]) == 5
    for size in SIZES:
        run(size)
    with Context(ANY_SIZE=0):
        assert plans_made(run, [SIZES[-1]]) == 1


@pytest.mark.parametrize("name", ["sort", "median", "two sizes", "a write", "a write of a part"])
def test_what_takes_no_plan_for_any_size(name):
    """Its sizes follow from no one number, or an operation needs to know them."""
    for place, size in enumerate(SIZES[:6]):
        x = values(size)
        mine = Tensor(x).realize()
        if name == "sort":
            close(mine.sort(1)[0].numpy(), np.sort(x, 1))
        elif name == "median":
            close(mine.median(1)[0].numpy(), torch.from_numpy(x).median(1)[0].numpy())
        elif name == "two sizes":
            y = values(20 - 3 * place)
            close((mine @ Tensor(y).realize().transpose(1, 2)).numpy(), x @ y.transpose(0, 2, 1))
        elif name == "a write":
            view = mine[:, 1:]
            mine.assign(mine * 2 + 1).realize()
            close(view.numpy(), (x * 2 + 1)[:, 1:])
        else:
            mine[:, 1:-1] = mine[:, :-2].exp()
            x[:, 1:-1] = np.exp(x[:, :-2])
            close(mine.numpy(), x)


def test_writes_to_results_of_any_size():
    for size in SIZES:
        x = values(size)
        mine = (Tensor(x) * 2).realize()
        part = mine.transpose(1, 2)[:, :, 1:]
        mine[:, 1] = 0.0
        mine += 1
        x *= 2
        x[:, 1] = 0.0
        close(part.numpy(), (x + 1).transpose(0, 2, 1)[:, :, 1:])


def test_an_index_out_of_range_is_told_in_any_size():
    """And the next turn works."""
    table = Tensor(WEIGHT).realize()
    for size in SIZES:
        places = np.arange(size) % 12
        close(table[Tensor(places)].numpy(), WEIGHT[places])
        places[-1] = 12
        with pytest.raises(IndexError, match="12"):
            table[Tensor(places)].numpy()


def test_several_threads():
    def work(seed):
        for size in SIZES:
            x = values(size, seed)
            close(Tensor(x).softmax(1).numpy(), torch.from_numpy(x).softmax(1).numpy())

    together(*[lambda seed=seed: work(seed) for seed in range(4)], often=True)


def test_rules():
    assert rule_of([(4, 10), (5, 12), (7, 16)]).factors == ((1, 0), (2, 2))
    assert rule_of([(4, 10), (6, 13), (8, 16)]) is None  # 1.5 of the first; the second is no whole
    assert rule_of([(4, 9), (5, 8), (7, 6)]) is None  # one falls
    assert rule_of([(16, 4), (25, 5), (49, 7)]) is None
    assert rule_of([(4, 4), (4, 4), (4, 4)]) is None
    low = rule_of([(9, 3), (8, 2), (10, 4)]).low
    assert low == 7  # where the second is 1
