"""What a program puts off stays bounded: values that a loop makes and nobody reads before its end,
averages that nobody reads at all, weights that nobody has computed."""

import gc

import numpy as np
import pytest
import torch

from tinygrad import GlobalCounters, Tensor, dtypes, nn
from tinygrad.engine.realize import in_memory
from tinygrad.tensor import backlog
from tinygrad.uop.interning import TABLE

random = np.random.default_rng(7)
BATCHES = random.standard_normal((48, 4, 3)).astype(np.float32)
LABELS = random.integers(0, 2, (48, 4)).astype(np.int32)
W = random.standard_normal((3, 2)).astype(np.float32)
GUESSES = (BATCHES @ W).argmax(-1)


def guesses():
    """Each batch's guesses, and its labels."""
    weight = Tensor(W).realize()
    for batch, labels in zip(BATCHES, LABELS, strict=True):
        yield (Tensor(batch) @ weight).argmax(1), Tensor(labels)


def kernels_of(run):
    """What `run` gives, and how many kernels it started."""
    before = GlobalCounters.kernel_count
    result = run()
    return result, GlobalCounters.kernel_count - before


def added():
    right = Tensor(0)
    for guess, labels in guesses():
        right = right + (guess == labels).sum()
    return right


def added_in_place():
    right = Tensor(0)
    for guess, labels in guesses():
        right += (guess == labels).sum()
    return right


def written():
    right = Tensor.zeros((), dtype=dtypes.int32).contiguous().realize()
    for guess, labels in guesses():
        right.assign(right + (guess == labels).sum())
    return right


@pytest.mark.parametrize("run", [added, added_in_place, written], ids=lambda run: run.__name__)
def test_a_sum_that_is_read_after_its_loop(run):
    right, early = kernels_of(run)
    assert early >= len(BATCHES) // backlog.MOST - 2
    (value, late) = kernels_of(right.item)
    assert value == (GUESSES == LABELS).sum()
    assert late <= 4 * 2 * backlog.MOST  # not that of all batches


def test_a_list_of_what_is_read_after_its_loop():
    found, early = kernels_of(lambda: [guess for guess, _ in guesses()])
    assert early >= len(BATCHES)
    assert [guess.tolist() for guess in found] == GUESSES.tolist()


def test_what_a_gradient_may_be_asked_through_waits():
    x = Tensor([0.5, 0.25])  # says nothing, so it may be a target
    state, found = x, []
    for _ in range(3 * backlog.MOST):
        state = state * 0.5 + 1
        found.append(state.sum())
    slope = (state + found[-1]).sum().gradient(x)[0]
    np.testing.assert_allclose(slope.numpy(), 3 * 0.5 ** (3 * backlog.MOST), 1e-5)


def test_what_reads_the_same_storage_again_and_again_waits():
    """Rounds of a hash, or layers: fused, as each is no more than arithmetic on the last."""
    x = state = Tensor([1, 2, 3]).realize()
    for _ in range(5 * backlog.MOST):
        mixed = state ^ x
        state = mixed * 3 + 1
    found, kernels = kernels_of(state.tolist)
    right = np.array([1, 2, 3], np.int32)
    for _ in range(5 * backlog.MOST):
        right = (right ^ np.array([1, 2, 3], np.int32)) * 3 + 1
    assert (found, kernels) == (right.tolist(), 1)


def test_large_values_wait():
    values = [Tensor(W).realize().expand(1, 3, 2) > number for number in range(3)]
    made = [Tensor.full((backlog.MOST_ELEMENTS + 1,), 1.5).cast(dtypes.int32) for _ in range(20)]
    assert not any(in_memory(each.uop) for each in (*values, *made))


class Net:
    """One of which nothing but the head is trained."""

    def __init__(self, library):
        self.body, self.norm = library.Linear(3, 5), library.BatchNorm1d(5)
        self.head = library.Linear(5, 2)

    def __call__(self, x):
        return self.head(self.norm(self.body(x)).tanh())


def nets():
    """The same net twice, of PyTorch's and of ours."""
    theirs, mine = Net(torch.nn), Net(nn)
    for name in ("body", "norm", "head"):
        state = {k: v.numpy() for k, v in getattr(theirs, name).state_dict().items()}
        nn.state.load_state_dict(
            getattr(mine, name), {k: Tensor(v) for k, v in state.items()}, verbose=False
        )
    return mine, theirs


def check_averages(mine, theirs):
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        one, other = getattr(mine.norm, name).numpy(), getattr(theirs.norm, name).numpy()
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


def test_averages_of_batches_that_nobody_reads_in_training():
    mine, theirs = nets()
    ours = nn.optim.SGD(nn.state.get_parameters(mine.head), 0.1)
    torchs = torch.optim.SGD(theirs.head.parameters(), 0.1)
    kept = []
    for number, (batch, labels) in enumerate(zip(BATCHES, LABELS, strict=True)):
        with Tensor.train():
            loss = mine(Tensor(batch)).cross_entropy(Tensor(labels))
            ours.zero_grad()
            loss.backward()
            ours.step()
        torchs.zero_grad()
        right = torch.nn.functional.cross_entropy(
            theirs(torch.tensor(batch)), torch.tensor(labels).long()
        )
        right.backward()
        torchs.step()
        np.testing.assert_allclose(loss.item(), right.item(), 1e-4, 1e-5)
        if number % 12 == 11:
            gc.collect()
            kept.append((len(TABLE), GlobalCounters.plans_made))
    assert kept[-1][0] <= kept[-2][0] + 8  # nodes
    assert kept[-1][1] == kept[-2][1]
    check_averages(mine, theirs)


def test_averages_of_batches_that_nothing_else_is_made_of():
    mine, theirs = nets()

    def run():
        for batch in BATCHES:
            with Tensor.train():
                mine(Tensor(batch))
            theirs(torch.tensor(batch))

    _, early = kernels_of(run)
    assert early >= 8
    check_averages(mine, theirs)


def test_weights_that_nobody_has_computed_are_computed_once():
    """A model that isn't trained, called again and again."""
    net, x = nn.Linear(3, 5), Tensor(BATCHES[0]).realize()
    found = [kernels_of(net(x).numpy) for _ in range(8)]
    assert in_memory(net.weight.uop)
    assert found[-1][1] < found[0][1]
    for value, _ in found:
        np.testing.assert_allclose(value, found[0][0], 1e-5, 1e-6)


def test_a_table_of_cosines_is_computed_once():
    table = (Tensor.arange(6).reshape(2, 3) * 0.5).cos()
    for number in range(6):
        assert in_memory(table.uop) is (number > 3)
        right = np.cos(np.arange(6) * 0.5).sum() * number
        np.testing.assert_allclose((table * number).sum().item(), right, 1e-5, 1e-6)


def test_a_mask_is_made_anew_each_time():
    mask = Tensor.ones(4, 4).tril()
    for number in range(8):
        assert (mask * number).sum().item() == 10 * number
    assert not in_memory(mask.uop)


def test_what_another_tensor_may_ask_a_gradient_through_is_made_anew_each_time():
    x = Tensor.rand(3)
    doubled = x * 2
    for number in range(8):
        (doubled + number).sum().item()
    assert doubled.square().sum().gradient(x)[0].tolist() == (doubled * 4).tolist()
