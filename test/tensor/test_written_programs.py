"""Random programs of views, writes, `detach`, `no_grad` and backward, beside PyTorch: values and
gradients agree wherever PyTorch takes the program, or ours is an error. Each is run twice: the
second time, statements are done as they are remembered."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from often import one_in

from tinygrad import Tensor, TinyJit
from tinygrad.base.errors import ArgumentError

CUTS = (slice(0, 2), slice(1, None), slice(None, None, 2), slice(None), slice(1, 3))
STATEMENTS = [
    "mul",
    "add",
    "scale",
    "view",
    "view",
    "turned",
    "flat",
    "part",
    "joined",
    "total",
    "detach",
    "clone",
    "quiet",
    "table",
    "table",
    "compute",
    "compute",
] + ["set", "set", "set number", "set detached", "quiet mul_", "quiet set", "add_", "mul_"]
STATEMENTS += ["set alike", "set row", "add to part", "copy_", "zero_", "set by mask", "relu_"]
STATEMENTS += ["forget", "forget", "slope", "says", "chain", "chain", "read and write"]
VIEWS_OF = {
    "view",
    "turned",
    "flat",
    "detach",
    "chain",
}  # all else lies in order, other than in PyTorch
WANTS = [(True, True, None), (None, None, None), (False, True, None), (False, None, True)]
SHAPES = [(4,), (4, 2), (2, 2, 2)]


MOVES = (
    lambda t: t[1::2],
    lambda t: t[0],
    lambda t: t[-1:],
    lambda t: t[..., 0],
    lambda t: t.transpose(0, -1),
    lambda t: t.reshape(-1),
    lambda t: t.unsqueeze(0),
    lambda t: t.diagonal() if t.ndim > 1 else t[:1],
)


TABLES = (  # of numbers alone, so that two of a kind are equal expressions
    lambda lib: lib.arange(4.0).exp2(),
    lambda lib: (lib.arange(8.0) * 2).reshape(4, 2),
    lambda lib: lib.arange(8.0).exp2().reshape(2, 2, 2).clone(),
    lambda lib: lib.ones(4, 2),
)


def chain(tensor: Any, number: int) -> Any:
    """A view of views that nobody holds."""
    while number and tensor.ndim:
        number, which = divmod(number, len(MOVES))
        tensor = MOVES[which](tensor)
    return tensor


def run(lib: Any, pool: list[Any], kind: str, i: int, j: int, cut: slice, k: int) -> Any:
    """One statement, in both libraries: a new tensor, or None."""

    def like(tensor: Any) -> Any:
        alike = [t for t in pool if tuple(t.shape) == tuple(tensor.shape)]
        return alike[j % len(alike)] if alike else tensor

    a = pool[i % len(pool)]
    made = {
        "mul": lambda: a * like(a) * 0.5,
        "add": lambda: a + like(a),
        "scale": lambda: a * k,
        "view": lambda: a[cut],
        "turned": lambda: a.permute(tuple(range(a.ndim))[::-1]),
        "flat": lambda: a.reshape(-1),
        "part": lambda: a[: 1 + j % 2].sum(0),
        "joined": lambda: lib.stack([a, like(a)])[j % 2],
        "total": lambda: a * a.sum(),
        "chain": lambda: chain(a, i * 7 + j),
        "detach": lambda: a.detach(),
        "clone": lambda: a.clone(),
        "says": lambda: a.detach().clone().requires_grad_(k > 1),
        "quiet": lambda: a * k,
        "table": lambda: TABLES[j % len(TABLES)](lib),
    }

    def apart(tensor: Any) -> Any:
        """PyTorch reads what it has written, where two views of the same lie across each other."""
        return tensor.clone() if lib is torch else tensor

    if kind in made:
        result = made[kind]() if kind != "quiet" else without_recording(lib, made[kind])
        in_order = lib is Tensor or kind in VIEWS_OF
        return result if in_order else result.contiguous()

    def read_and_write() -> None:
        seen = chain(a, j)
        if lib is Tensor:
            seen.numpy()
        chain(a, j).add_(k)

    acts = {
        "read and write": read_and_write,
        "compute": lambda: a.numpy() if lib is Tensor else None,
        "set": lambda: a.__setitem__(cut, like(a[cut]) * 2),
        "set number": lambda: a.__setitem__(cut, float(k)),
        "set detached": lambda: a.detach().__setitem__(cut, like(a[cut]).detach()),
        "quiet mul_": lambda: without_recording(lib, lambda: a.mul_(k)),
        "quiet set": lambda: without_recording(lib, lambda: a.__setitem__(cut, like(a[cut]) * k)),
        "add_": lambda: a.add_(apart(like(a))),
        "mul_": lambda: a.mul_(k),
        "set alike": lambda: a.__setitem__(cut, apart(like(a[cut]))),
        "set row": lambda: a.__setitem__(0, float(k)),
        "add to part": lambda: a[cut].add_(k),
        "copy_": lambda: a.copy_(apart(like(a))),
        "zero_": lambda: a.zero_(),
        "set by mask": lambda: a.__setitem__(a > 0, float(k)),
        "relu_": lambda: a.relu_(),
        "forget": lambda: pool.pop(3 + i % (len(pool) - 3)) if len(pool) > 3 else None,
        "slope": lambda: slope(lib, a, pool),
    }
    acts[kind]()
    return None


def slope(lib: Any, tensor: Any, pool: list[Any]) -> None:
    (tensor * tensor).sum().backward(retain_graph=True)
    for each in pool if lib is torch else ():
        if each.is_leaf and each.grad is not None:
            each.grad = (
                each.grad.clone()
            )  # those of a sum's terms may be one, which takes both sums


def without_recording(lib: Any, action: Any) -> Any:
    with lib.no_grad():
        return action()


@pytest.mark.parametrize("first", one_in(2, range(0, 160, 16)))
def test_programs_agree_with_pytorch(first):
    for seed in range(first, first + 16):
        for _ in range(2):
            agree(random.Random(seed))


def agree(rng: random.Random, length: int = 0) -> None:
    wants, shape = rng.choice(WANTS), rng.choice(SHAPES)
    draw = np.random.default_rng(rng.randrange(1000))
    starts = [(draw.integers(-3, 4, shape).astype(np.float32), says) for says in wants]
    own = [Tensor(values, requires_grad=says) for values, says in starts]
    other = [torch.tensor(values, requires_grad=says is True) for values, says in starts]
    told = []
    for _ in range(length or rng.choice((8, 12, 20))):
        facts = rng.choice(STATEMENTS), rng.randrange(1000), rng.randrange(1000)
        facts += rng.choice(CUTS), rng.randrange(1, 4)
        try:
            theirs = run(torch, other, *facts)
        except (RuntimeError, IndexError):  # a start that is written, an axis of a number
            continue
        told.append(facts)
        try:
            ours = run(Tensor, own, *facts)
        except ArgumentError as error:
            assert is_told(error)
            return
        if theirs is not None:
            own.append(ours)
            other.append(theirs)
    losses = []
    for pool in (own, other):
        numbered = enumerate(zip(pool, other, strict=True), 1)
        losses.append([(t * t * n).sum() for n, (t, wanted) in numbered if wanted.requires_grad])
    try:
        for a, b in zip(own, other, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.detach().numpy(), err_msg=str(told))
        if not losses[1]:
            return
        sum(losses[1]).backward()
        sum(losses[0]).backward()
        for a, b in zip(own, other, strict=True):
            if b.is_leaf and b.requires_grad:
                found, wanted = (
                    np.zeros(b.shape) if t.grad is None else t.grad.numpy() for t in (a, b)
                )
                np.testing.assert_allclose(found, wanted, rtol=1e-4, err_msg=str(told))
    except RuntimeError as error:  # PyTorch's, or ours: it needs a value that was overwritten
        assert "modified by an inplace operation" in str(error) or is_told(error)


def is_told(error: Exception) -> bool:
    return "legal" in str(error) or "realize it before" in str(error)


# ---- what these programs found -------------------------------------------------------------------


def test_views_of_what_was_made_without_recording_follow_a_write_that_brings_gradients():
    for library, no_grad in ((torch.tensor, torch.no_grad), (Tensor, Tensor.no_grad)):
        start = library([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        with no_grad():
            whole = library([2.0, 3.0, 4.0, 5.0]) * 3
        view = whole[::2]
        whole.add_(start)
        (view * view).sum().backward()
        assert view.requires_grad
        assert start.grad.tolist() == [14.0, 0.0, 30.0, 0.0]


VIEWS = [lambda t: t[:, :2], lambda t: t.reshape(-1), lambda t: t.T, lambda t: t[1]]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("wants", [None, False, True])
def test_a_view_sees_what_is_written_once_the_whole_was_computed_alone(view, wants):
    for _ in range(3):  # the first time by the graph
        whole = Tensor(np.ones((2, 4), np.float32), requires_grad=wants) * 2
        whole[:] = 1
        whole.add_(Tensor(np.full((2, 4), 2.0, np.float32)))
        part = view(whole)
        whole.realize()
        whole.mul_(2)
        np.testing.assert_array_equal(part.numpy(), view(whole.numpy()))


@pytest.mark.parametrize("reads", [False, True])
def test_a_diagonal_of_a_promise_that_is_repeated_is_a_view_of_it(reads):
    for _ in range(2):
        x = Tensor([1.0, 2.0]).realize()
        whole = Tensor.stack([x, x + x])[1]
        first = whole.unsqueeze(1).expand(2, 2).diagonal()
        assert not reads or first.tolist() == [2, 4]
        whole.unsqueeze(1).expand(2, 2).diagonal().add_(1)
        assert whole.tolist() == [3, 5] and first.tolist() == [3, 5]


COPIES = {
    "a sum of one": lambda x: x[:1].sum(0),
    "a mean of one": lambda x: x[1:2].mean(0, keepdim=True)[0],
    "a clone": lambda x: x[0].clone(),
    "an expression": lambda x: x[0] * 1,
    "repeated in order": lambda x: x[0].unsqueeze(1).expand(3, 3).reshape(9)[::3],
    "a part of a stack": lambda x: Tensor.stack([x[0], x[0] + x[1]])[1],
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("reads", ["nothing", "the copy", "a diagonal"])
def test_a_diagonal_of_a_copy_that_is_repeated_is_a_view_of_the_copy(copied, reads):
    for _ in range(3):  # the last two times remembered
        x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        y = copied(x)
        if reads == "the copy":
            y.realize()
        whole = y.unsqueeze(1).expand(3, 3)
        first = whole.diagonal()
        if reads == "a diagonal":
            first.realize()
        whole.diagonal().fill_(7)
        assert y.tolist() == first.tolist() == [7, 7, 7]
        assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_gradients_pass_what_is_made_of_a_part_that_was_computed_alone():
    start = [[1.0, 2.0], [3.0, 4.0]]
    for given in (start, np.array(start, np.float32)):
        for is_read in (False, True):
            x = Tensor(given, requires_grad=True)
            part = x[::2]
            row = part.sum(0)  # of one row: that, in storage of its own
            part.numpy()
            if is_read:
                row.numpy()
            (row * row).sum().backward()
            assert x.grad.tolist() == [[2.0, 4.0], [0.0, 0.0]]


@pytest.mark.parametrize("view", VIEWS)
def test_the_whole_sees_what_is_written_to_a_view_that_was_computed_alone(view):
    for _ in range(3):  # the first time by the graph
        whole = Tensor(np.ones((2, 4), np.float32)) * 2
        whole.zero_()
        whole.add_(Tensor(np.full((2, 4), 2.0, np.float32)))
        part = view(whole)
        part.realize()
        part.mul_(2)
        np.testing.assert_array_equal(part.numpy(), view(whole.numpy()))
        assert (part.numpy() == 4).all()


def test_a_diagonal_of_a_part_that_was_computed_alone_is_a_view_of_the_whole():
    for _ in range(3):
        whole = Tensor(np.arange(16, dtype=np.float32).reshape(4, 4)) * 2
        windows = whole.unfold(1, 2, 2)
        _ = windows.permute(1, 0, 2).realize(), windows.realize()
        diagonal = windows.diagonal(1, 0, 2)
        assert diagonal.tolist() == [[2], [6]]
        whole[0] = 1
        assert diagonal.tolist() == [[1], [1]]


@pytest.mark.parametrize("start", [lambda x: x, lambda x: x.realize(), lambda x: x * 2])
def test_what_is_no_view_lies_in_order_so_a_reshape_of_it_is_a_view(start):
    for _ in range(3):
        x = start(Tensor(np.arange(8, dtype=np.float32).reshape(2, 2, 2)))
        before = x.numpy()
        made = x.permute(2, 1, 0)[:1].sum(0)  # of one
        flat = made.reshape(-1)
        flat[1:] = 50
        assert made.tolist() == [[0, 50], [50, 50]]
        np.testing.assert_array_equal(x.numpy(), before)


@pytest.mark.parametrize("again", ["view", "captured"])
def test_views_of_what_an_equal_expression_computes_again_stay_together(again):
    def table() -> Tensor:
        return Tensor.arange(6, dtype="float32").exp2().reshape(2, 3).clone()

    step = TinyJit(lambda x: (table() + x).realize())
    other, mine = table(), table()
    turned, mine_turned = other.T, mine.T
    mine.tolist()
    for _ in range(2):
        turned.tolist() if again == "view" else step(Tensor([1.0]).realize()).tolist()
    mine_turned.mul_(2)
    wanted = 2 ** np.arange(1, 7).reshape(2, 3)
    assert (mine.tolist(), mine_turned.tolist()) == (wanted.tolist(), wanted.T.tolist())
    assert (other.tolist(), turned.tolist()) == ((wanted / 2).tolist(), (wanted / 2).T.tolist())
