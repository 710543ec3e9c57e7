"""Sizes that are bound variables: one plan and one kernel for all values, checked with NumPy."""

import contextlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, nn
from tinygrad.base.errors import JitError, RuntimeCheckError, ShapeError

MOST = 40
SIZES = (1, 2, 7, 16, 33, MOST)

random = np.random.default_rng(3)
A, B = (random.standard_normal(s).astype(np.float32) for s in ((MOST, 24), (24, MOST)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attended(x, causal=False):
    scores = x @ x.T / np.sqrt(x.shape[1])
    if causal:
        scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
    return softmax(scores) @ x


def heads(x):
    return x.reshape(1, 1, x.shape[0], 24)


def attention(x, causal=False):
    found = heads(x).scaled_dot_product_attention(heads(x), heads(x), is_causal=causal)
    return found.reshape(x.shape[0], 24)


FACTS = {
    "part": (lambda a, b, n: a[:n] * 2 + 1, lambda a, b, n: a[:n] * 2 + 1),
    "rest": (lambda a, b, n: a[n - 1 :] * 2, lambda a, b, n: a[n - 1 :] * 2),
    "row": (lambda a, b, n: a[n - 1], lambda a, b, n: a[n - 1]),
    "sum of rows": (lambda a, b, n: a[:n].sum(0), lambda a, b, n: a[:n].sum(0)),
    "sum of columns": (lambda a, b, n: b[:, :n].sum(1), lambda a, b, n: b[:, :n].sum(1)),
    "sum of all": (lambda a, b, n: b[:, :n].sum(), lambda a, b, n: b[:, :n].sum()),
    "mean": (lambda a, b, n: b[:, :n].mean(1), lambda a, b, n: b[:, :n].mean(1)),
    "max": (lambda a, b, n: b[:, :n].max(1), lambda a, b, n: b[:, :n].max(1)),
    "argmax": (lambda a, b, n: b[:, :n].argmax(1), lambda a, b, n: b[:, :n].argmax(1)),
    "softmax": (lambda a, b, n: b[:, :n].softmax(), lambda a, b, n: softmax(b[:, :n])),
    "cumsum": (lambda a, b, n: a[:n].cumsum(0), lambda a, b, n: a[:n].cumsum(0)),
    "many rows": (lambda a, b, n: a[:n] @ b, lambda a, b, n: a[:n] @ b),
    "many columns": (lambda a, b, n: a @ b[:, :n], lambda a, b, n: a @ b[:, :n]),
    "long products": (lambda a, b, n: b[:, :n] @ a[:n], lambda a, b, n: b[:, :n] @ a[:n]),
    "square": (lambda a, b, n: a[:n] @ b[:, :n], lambda a, b, n: a[:n] @ b[:, :n]),
    "apart": (
        lambda a, b, n: a[:n].reshape(n, 4, 6).sum(1),
        lambda a, b, n: a[:n].reshape(n, 4, 6).sum(1),
    ),
    "flat": (lambda a, b, n: a[:n].reshape(-1) * 3, lambda a, b, n: a[:n].reshape(-1) * 3),
    "expand": (lambda a, b, n: a[:1].expand(n, 24) + a[:n], lambda a, b, n: a[:1] + a[:n]),
    "transposed": (lambda a, b, n: a[:n].T.contiguous(), lambda a, b, n: a[:n].T),
    "backwards": (lambda a, b, n: a[:n].flip(0), lambda a, b, n: a[:n][::-1]),
    "cat": (lambda a, b, n: a[:n].cat(a[:3]), lambda a, b, n: np.concatenate((a[:n], a[:3]))),
    "pad": (
        lambda a, b, n: a[:n].pad(((1, 2), None)),
        lambda a, b, n: np.pad(a[:n], ((1, 2), (0, 0))),
    ),
    "pad of either sign": (
        lambda a, b, n: a[:9].pad(((n - 5, 20 - n), None), value=7),
        lambda a, b, n: np.pad(a[:9], ((99, 99), (0, 0)), constant_values=7)[104 - n : 128 - n],
    ),
    "to the room": (
        lambda a, b, n: a[:n].pad(((0, MOST - n), None)),
        lambda a, b, n: np.pad(a[:n], ((0, MOST - n), (0, 0))),
    ),
    "ones": (
        lambda a, b, n: Tensor.ones(n, 3, device=a.device).contiguous(),
        lambda a, b, n: np.ones((n, 3)),
    ),
    "arange": (lambda a, b, n: Tensor.arange(n, device=a.device), lambda a, b, n: np.arange(n)),
    "gather": (lambda a, b, n: a[Tensor.arange(n, device=a.device)], lambda a, b, n: a[:n]),
    "stored between": (
        lambda a, b, n: (a[:n] * 2).contiguous().max(0) + a[:n].sum(0),
        lambda a, b, n: (a[:n] * 2).max(0) + a[:n].sum(0),
    ),
    "attention": (lambda a, b, n: attention(a[:n]), lambda a, b, n: attended(a[:n])),
    "causal": (lambda a, b, n: attention(a[:n], True), lambda a, b, n: attended(a[:n], True)),
    "gradient": (
        lambda a, b, n: a[:n].square().sum().gradient(a)[0],
        lambda a, b, n: np.where(np.arange(MOST)[:, None] < n, 2 * a, 0),
    ),
    "steps": (lambda a, b, n: a[:n:3] + 1, lambda a, b, n: a[:n:3] + 1),
    "steps back": (lambda a, b, n: b[:, :n][:, ::-2], lambda a, b, n: b[:, :n][:, ::-2]),
    "sorted": (lambda a, b, n: b[:, :n].sort(1)[0], lambda a, b, n: np.sort(b[:, :n], 1)),
    "sorted rows": (lambda a, b, n: a[:n].sort(1)[0], lambda a, b, n: np.sort(a[:n], 1)),
    "places in order": (
        lambda a, b, n: a[:n].argsort(0, descending=True),
        lambda a, b, n: np.argsort(-a[:n], 0),
    ),
    "largest": (lambda a, b, n: b[:, :n].topk(1)[0], lambda a, b, n: b[:, :n].max(1)[:, None]),
    "flat columns": (lambda a, b, n: b[:, :n].flatten() * 3, lambda a, b, n: b[:, :n].ravel() * 3),
    "turned": (lambda a, b, n: a[:n].reshape(24, n), lambda a, b, n: a[:n].reshape(24, n)),
    "repeated": (lambda a, b, n: a[:n].repeat(2, 1), lambda a, b, n: np.tile(a[:n], (2, 1))),
    "tokens of a batch": (
        lambda a, b, n: b.reshape(4, 6, MOST)[:, :, :n].transpose(1, 2).flatten(0, 1) @ a[:6],
        lambda a, b, n: b.reshape(4, 6, MOST)[:, :, :n].transpose(0, 2, 1).reshape(-1, 6) @ a[:6],
    ),
    "gradient of a copy": (
        lambda a, b, n: (
            (b[:, :n].flatten() * Tensor.arange(n * 24, device=b.device)).sum().gradient(b)[0]
        ),
        lambda a, b, n: np.pad(np.arange(24 * n).reshape(24, n), ((0, 0), (0, MOST - n))),
    ),
    "rolled": (lambda a, b, n: a[:n].roll(1, 0), lambda a, b, n: np.roll(a[:n], 1, 0)),
    "rolled back": (
        lambda a, b, n: a[:n].roll((-1, 5), (0, 1)),
        lambda a, b, n: np.roll(a[:n], (-1, 5), (0, 1)),
    ),
    "rolled by a size": (lambda a, b, n: a.roll(n, 1), lambda a, b, n: np.roll(a, n, 1)),
    "windows": (
        lambda a, b, n: a[:n].cat(a[:2]).unfold(0, 3, 2),
        lambda a, b, n: np.lib.stride_tricks.sliding_window_view(
            np.concatenate((a[:n], a[:2])), 3, 0
        )[::2],
    ),
    "parts": (
        lambda a, b, n: b[:, :n].split([1, n - 1], 1)[1] * 2,
        lambda a, b, n: b[:, 1:n] * 2,
    ),
    "diagonals": (
        lambda a, b, n: (a[:n] @ b[:, :n]).diagonal(-1),
        lambda a, b, n: (a[:n] @ b[:, :n]).diagonal(-1),
    ),
    "running logs": (
        lambda a, b, n: b[:, :n].logcumsumexp(1),
        lambda a, b, n: np.logaddexp.accumulate(b[:, :n], 1),
    ),
    "evenly spaced": (
        lambda a, b, n: Tensor.linspace(-1, 2, n, device=a.device),
        lambda a, b, n: np.linspace(-1, 2, n),
    ),
    "smallest": (lambda a, b, n: b[:, :n].kthvalue(1)[0], lambda a, b, n: b[:, :n].min(1)),
    "places among": (
        lambda a, b, n: a[:n, 0].sort()[0].searchsorted(a[:5, 1]),
        lambda a, b, n: np.searchsorted(np.sort(a[:n, 0]), a[:5, 1]),
    ),
    "classes": (
        lambda a, b, n: Tensor([0, 0], device=a.device).one_hot(n),
        lambda a, b, n: np.eye(1, n)[[0, 0]],
    ),
    "halves of sizes": (
        lambda a, b, n: a[:2] * (n / 2) + 1 / n,
        lambda a, b, n: a[:2] * (n / 2) + 1 / n,
    ),
    "filled with a size": (
        lambda a, b, n: Tensor.full((3,), n, device=a.device),
        lambda a, b, n: np.full(3, n),
    ),
    "of now": (lambda a, b, n: (a[:n] + 1)[:1], lambda a, b, n: (a[:n] + 1)[:1]),
    "differences": (lambda a, b, n: a[:n].diff(dim=0), lambda a, b, n: np.diff(a[:n], axis=0)),
    "differences beside it": (lambda a, b, n: a[:n].diff(2), lambda a, b, n: np.diff(a[:n], 2)),
    "narrow": (lambda a, b, n: a.narrow(0, 0, n) + 1, lambda a, b, n: a[:n] + 1),
    "counted to the end": (
        lambda a, b, n: Tensor.arange(n - 1, MOST, 2, device=a.device) + 1,
        lambda a, b, n: np.arange(n - 1, MOST, 2) + 1,
    ),
    "averages of rows": (
        lambda a, b, n: nn.functional.adaptive_avg_pool2d(a[None, :n], (None, 1)),
        lambda a, b, n: a[None, :n].mean(2, keepdims=True),
    ),
    "averages along": (
        lambda a, b, n: nn.functional.adaptive_avg_pool1d(b[None, :, :n], 1),
        lambda a, b, n: b[None, :, :n].mean(2, keepdims=True),
    ),
    "largest of all": (
        lambda a, b, n: nn.functional.adaptive_max_pool2d(b[None, None, :, :n], (6, 1)),
        lambda a, b, n: b[:, :n].reshape(1, 1, 6, 4, n).max((3, 4))[..., None],
    ),
    "divergence": (
        lambda a, b, n: nn.functional.kl_div(a[:n], a[:n].softmax(1), "batchmean"),
        lambda a, b, n: np.sum(softmax(a[:n]) * (np.log(softmax(a[:n])) - a[:n])) / n,
    ),
    "scaled by a root": (
        lambda a, b, n: a[:n] / np.sqrt(n),
        lambda a, b, n: a[:n] / np.sqrt(n),
    ),
    "gradient of a product": (
        lambda a, b, n: (b[:2, :n] + 2).prod().gradient(b)[0],
        lambda a, b, n: np.pad(
            (b[:2, :n] + 2).astype(float).prod() / (b[:2, :n] + 2), ((0, 22), (0, MOST - n))
        ),
    ),
}


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("name", FACTS)
def test_one_plan_for_all_sizes(name, device):
    ours, theirs = FACTS[name]
    a, b = Tensor(A, device=device).realize(), Tensor(B, device=device).realize()
    size = Variable("size", 1, MOST)
    sizes = SIZES if device == "CPU" else (1, 7)
    made = []
    for n in sizes:
        found, expected = ours(a, b, size.bind(n)), theirs(A, B, n)
        values = found.numpy()
        assert values.shape == expected.shape
        np.testing.assert_allclose(values, expected, rtol=2e-5, atol=2e-5)
        made.append((GlobalCounters.plans_made, GlobalCounters.kernels_lowered))
    assert len(set(made)) == 1


IMAGES = random.standard_normal((7, 3, 9, 9)).astype(np.float32)
KERNELS = random.standard_normal((4, 3, 3, 3)).astype(np.float32)


def classified(x, w, flat):
    """A variable batch through a small net: convolution, pooling, a layer, a loss by class."""
    x = x.conv2d(w, padding=1).relu().max_pool2d(2)
    scores = x.reshape(x.shape[0], -1) @ flat
    return scores.sparse_categorical_crossentropy(
        Tensor.arange(7, device=x.device)[: x.shape[0]] % 3
    )


def classified_by_torch(x, w, flat):
    scores = F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 2).flatten(1) @ flat
    return F.cross_entropy(scores, torch.arange(len(x)) % 3)


def weight_gradient(x, w, flat, loss):
    w = Tensor(w, requires_grad=True) if isinstance(x, Tensor) else w.clone().requires_grad_()
    value = loss(x, w, flat)
    return value.gradient(w)[0] if isinstance(x, Tensor) else torch.autograd.grad(value, w)[0]


PICTURES = {
    "batch": (
        lambda x, w, n: x[:n].conv2d(w, stride=2),
        lambda x, w, n: F.conv2d(x[:n], w, stride=2),
    ),
    "gradient of a size": (
        lambda x, w, n: (x[:2, :, :n].conv2d(w, padding=1) ** 2).sum().gradient(x)[0],
        lambda x, w, n: torch.autograd.grad(
            (F.conv2d(x.requires_grad_()[:2, :, :n], w, padding=1) ** 2).sum(), x
        )[0],
    ),
    "transposed": (
        lambda x, w, n: x[:2, :, :n, :n].conv_transpose2d(w[:3], stride=2, padding=1),
        lambda x, w, n: F.conv_transpose2d(x[:2, :, :n, :n], w[:3], stride=2, padding=1),
    ),
    "loss of a batch": (
        lambda x, w, n: classified(x[:n], w, Tensor.ones(64, 3, device=x.device)),
        lambda x, w, n: classified_by_torch(x[:n], w, torch.ones(64, 3)),
    ),
    "gradient of a batch": (
        lambda x, w, n: weight_gradient(x[:n], w, Tensor(FLAT, device=x.device), classified),
        lambda x, w, n: weight_gradient(x[:n], w, torch.tensor(FLAT), classified_by_torch),
    ),
    "size": (
        lambda x, w, n: x[:2, :, :n, :n].conv2d(w, padding=1),
        lambda x, w, n: F.conv2d(x[:2, :, :n, :n], w, padding=1),
    ),
    "size with steps": (
        lambda x, w, n: x[:2, :, :, :n].conv2d(w, padding=1, stride=2).relu().mean((2, 3)),
        lambda x, w, n: F.conv2d(x[:2, :, :, :n], w, padding=1, stride=2).relu().mean((2, 3)),
    ),
    "pools": (
        lambda x, w, n: x[:2, :, :n, :n].max_pool2d(2) + x[:2, :, :n, :n].avg_pool2d(2),
        lambda x, w, n: F.max_pool2d(x[:2, :, :n, :n], 2) + F.avg_pool2d(x[:2, :, :n, :n], 2),
    ),
    "gradient of pools": (
        lambda x, w, n: (x[0, :, :n, :n].max_pool2d(3, 2, padding=1) ** 2).sum().gradient(x)[0],
        lambda x, w, n: torch.autograd.grad(
            (F.max_pool2d(x.requires_grad_()[0, :, :n, :n], 3, 2, 1) ** 2).sum(), x
        )[0],
    ),
    "gradient of pools within": (
        lambda x, w, n: (x[0, :, :n, :n].max_pool2d(3, 2) ** 2).sum().gradient(x)[0],
        lambda x, w, n: torch.autograd.grad(
            (F.max_pool2d(x.requires_grad_()[0, :, :n, :n], 3, 2) ** 2).sum(), x
        )[0],
    ),
    "gradient of a product": (
        lambda x, w, n: (x[0, 0, :n, :n] / 5 + 1).prod().gradient(x)[0],
        lambda x, w, n: torch.autograd.grad((x.requires_grad_()[0, 0, :n, :n] / 5 + 1).prod(), x)[
            0
        ],
    ),
    "gathered": (
        lambda x, w, n: x[0, 0, 0, :n].gather(0, Tensor([2, 0, 1], device=x.device)),
        lambda x, w, n: x[0, 0, 0, [2, 0, 1]],
    ),
}  # fmt: skip
FLAT = random.standard_normal((64, 3)).astype(np.float32)


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_any_size_and_number(name, device):
    ours, theirs = PICTURES[name]
    x, w = Tensor(IMAGES, device=device).realize(), Tensor(KERNELS, device=device).realize()
    size, made = Variable("size", 3, 7), []
    for n in (3, 4, 6, 7) if device == "CPU" else (3, 4):
        found = ours(x, w, size.bind(n)).numpy()
        expected = theirs(torch.tensor(IMAGES), torch.tensor(KERNELS), n).detach().numpy()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
        made.append((GlobalCounters.plans_made, GlobalCounters.kernels_lowered))
    assert len(set(made)) == 1


def test_an_index_beyond_a_symbolic_size_is_told():
    n = Variable("n", 1, MOST)
    for k in (7, 5):
        with pytest.raises(IndexError, match="index 9 is out of range on axis 0"):
            Tensor(A)[: n.bind(k)][Tensor([0, 9])].tolist()
        assert Tensor(A)[: n.bind(k)][Tensor([-1, 2])].tolist() == A[[k - 1, 2]].tolist()


def test_a_captured_step_trains_on_batches_of_any_size():
    """Each batch has another size; the steps are those of plain calls."""
    n, pictures = Variable("n", 1, 7), Tensor(IMAGES).realize()

    def trained(jit):
        weight = Tensor(KERNELS, requires_grad=True).realize()
        flat = Tensor(FLAT).realize()
        optimizer = nn.optim.SGD([weight], lr=0.05)

        def step(x):
            with Tensor.train():
                optimizer.zero_grad()
                loss = classified(x, weight, flat).backward()
                return loss.realize(*optimizer.schedule_step())

        run, made = jit(step), []
        losses = []
        for k in (4, 2, 5, 7, 1, 3):
            losses.append(run(pictures[: n.bind(k)]).item())
            made.append(GlobalCounters.kernels_lowered)
        assert len(set(made[2:])) == 1
        return losses

    np.testing.assert_allclose(trained(TinyJit), trained(lambda step: step), rtol=1e-5)


def test_sizes_of_two_variables():
    n, m = Variable("n", 1, MOST), Variable("m", 1, 24)
    a = Tensor(A).realize()
    for i, j in ((1, 1), (5, 3), (MOST, 24), (7, 20)):
        found = a[: n.bind(i), : m.bind(j)]
        np.testing.assert_allclose((found.T @ found).numpy(), A[:i, :j].T @ A[:i, :j], atol=2e-5)


def test_sizes_are_one_node_however_they_are_written():
    n = Variable("n", 1, MOST).bind(5)
    a = Tensor(A)
    assert a[n : n + 1].shape == (1, 24)
    assert a[: n + 2].shape == a[: 2 + n].shape == a[1 : n + 3].shape
    assert a[:n].reshape(n * 4, 6).shape == a[:n].reshape(-1, 6).shape
    assert a[:n].numel() is a[:n].reshape(-1).shape[0]


def test_sizes_and_variables_are_numbers_of_one_kind():
    """A shape has sizes of dtype index, a user's variable is an int32."""
    n = Variable("n", 1, MOST).bind(5)
    x = Tensor.arange(MOST)[:n]
    size = x.shape[0]
    assert x[n - 1 : size].shape == x[size - 1 : n].shape
    assert (x * (size - n) + (n + size)).tolist() == [10] * 5
    assert (x + n / 2).tolist() == [2.5, 3.5, 4.5, 5.5, 6.5]
    assert Tensor(size // n + n).item() == 6


def test_a_symbolic_shape_becomes_the_numbers_of_now():
    n = Variable("n", 1, MOST).bind(5)
    assert Tensor(A)[:n].reshape(5, 24).shape == (5, 24)
    np.testing.assert_array_equal(Tensor(A)[:n].reshape(5, 24).numpy(), A[:5])
    np.testing.assert_array_equal(Tensor(A)[:n][:3].numpy(), A[:3])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, n, m: a[:n].reshape(23, n),
        lambda a, n, m: a[:n].gather(1, a[:m].cast("int32")),
        lambda a, n, m: a[:n] + a[:m],
        lambda a, n, m: a[:n].T @ a[:m],
        lambda a, n, m: a[:n].reshape(m, 24),
        lambda a, n, m: a[:n].reshape(m, -1),
        lambda a, n, m: a[None, None, :n].conv2d(Tensor.ones(1, 1, 2, 2)),  # n may be 1
    ],
)
def test_sizes_that_may_differ_dont_meet(wrong):
    n, m = Variable("n", 1, 24).bind(5), Variable("m", 1, 24).bind(5)
    with pytest.raises(ShapeError):
        wrong(Tensor(A), n, m)


PARTS = {
    "a row": lambda y: y.__setitem__(0, 7),
    "a column from another": lambda y: y.__setitem__((slice(None), 1), y[:, 0] + 0),
    "all": lambda y: y.mul_(3),
    "the first by the last": lambda y: y.__setitem__(0, y[0] + y[-1]),
}


def check_slopes(derived, wants):
    """`derived(x, n, no_grad)` has PyTorch's gradient, of sizes that are numbers and of others."""
    size = Variable("size", 1, 7)
    for n in (1, 3, 7):
        x = torch.tensor(A[:7], requires_grad=True)
        expected = torch.autograd.grad(derived(x, n, torch.no_grad), x)[0]
        for given in (n, size.bind(n)):
            ours = Tensor(A[:7], requires_grad=wants)
            found = derived(ours, given, Tensor.no_grad).gradient(ours)[0]
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("wants", [True, None])
@pytest.mark.parametrize("name", PARTS)
def test_a_write_to_a_result_of_any_size_keeps_the_gradient_of_the_rest(name, wants, silent):
    def derived(x, n, no_grad):
        y = (x[:n] * 1.5).sin()
        with contextlib.nullcontext() if not silent else no_grad():
            PARTS[name](y)
        return ((y * y.detach().cos()).sum() + (x * x).sum()) * 2

    check_slopes(derived, wants)


@pytest.mark.parametrize("wants", [True, None])
def test_recorded_and_silent_writes_in_turn(wants):
    def derived(x, n, no_grad):
        y = x[:n] * 1.5
        y[0] = y[0] * 2 + 1
        row = y[0]
        with no_grad():
            y += 1
        y[:, 1] = y[:, 1].detach() * 3
        row.mul_(2)
        with no_grad():
            row[0] = 0.5
        y += 1.5
        return (y * y.detach().cos()).sum() + (row * row.detach()).sum() + (x * x).sum()

    check_slopes(derived, wants)


@pytest.mark.parametrize(
    "formula",
    [
        "s / 2 * s", "s * (s / 2)", "s / 2 + s", "s - s / 2", "s / (s - 1)", "v / s", "s / v",
        "v / 2 * v", "v / 2 * s", "1 / s + s", "s / 2 / s", "np.sqrt(s) * s", "(v + s) / 3",
        "s // 2 / s", "s / 4 < v", "(s * 0.5) * (v * 0.5)",
    ],
)  # fmt: skip
def test_fractions_of_sizes_beside_sizes(formula):
    """They were cut to whole numbers, or no kernel."""
    n = Variable("n", 1, 16).bind(5)
    numbers = {"v": n, "s": Tensor.ones(16)[:n].shape[0], "np": np}
    found = (Tensor([1.0, 2.0]) * eval(formula, numbers)).tolist()  # noqa: S307
    expected = eval(formula, {"v": 5, "s": 5, "np": np})  # noqa: S307
    np.testing.assert_allclose(found, [expected, 2 * expected], rtol=1e-6)


@pytest.mark.parametrize("of", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_a_norm_that_trains_takes_any_size(of):
    size, theirs = Variable("size", 2, MOST), getattr(torch.nn, of.__name__)
    options = dict(affine=True, track_running_stats=True)
    for n in (2, 7, MOST):
        ours, other = of(24, **options), theirs(24, **options)
        x = torch.tensor(A[:n].T[None])
        expected = other(x).detach()
        with Tensor.train():
            found = ours(Tensor(A)[: size.bind(n)].T[None]).numpy()
        np.testing.assert_allclose(found, expected, atol=2e-5)
        for name in ("running_mean", "running_var"):
            np.testing.assert_allclose(
                getattr(ours, name).numpy(), getattr(other, name), rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("of", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_a_norm_that_trains_is_told_of_one_value_a_channel(of):
    size, x = Variable("size", 1, MOST), Tensor(A).realize()
    step = TinyJit(lambda n: of(24, affine=False)(x[:n].T[None]).realize())
    with Tensor.train():
        for n in (3, 2, 5, 4):
            assert step(size.bind(n)).shape[2].val == n
        with pytest.raises(RuntimeCheckError, match="one value a channel"):
            step(size.bind(1)).numpy()


REARRANGED = {
    "a b -> b a": {},
    "a b -> (b a)": {},
    "a (b c) -> (a b) c": {"c": 1},
    "(c a) b -> c b a": {"c": 3},
    "(c d e) b -> d b (e c)": {"c": 3, "d": 4},
}


@pytest.mark.parametrize("formula", REARRANGED)
def test_axes_of_any_size_are_rearranged(formula):
    size, x = Variable("size", 1, 24), Tensor(A).realize()
    for n in (1, 7, 24):
        found, want = (x[:36, :s] for s in (size.bind(n), n))
        found, want = (t.rearrange(formula, **REARRANGED[formula]) for t in (found, want))
        np.testing.assert_array_equal(found.numpy(), want.numpy())


def test_parts_of_an_axis_of_any_size_are_parts_of_each():
    x = Tensor(A)[: Variable("size", 1, MOST).bind(4)]
    with pytest.raises(ShapeError, match="axis has size size.*; legal are parts for each size"):
        x.rearrange("(a b) c -> a b c", a=2)


def test_the_truth_of_a_comparison_of_sizes_is_told_as_a_formula():
    n = Variable("n", 1, 8).bind(3)
    with pytest.raises(
        TypeError, match=r"the truth of \(n < 3\)\[False..True\]=0 is not known .*val"
    ):
        bool(n < 3)
    with pytest.raises(TypeError, match=r"the value of n\[1..8\]=3 is not known"):
        int(n)
    assert (n < 3).val == 0 and n < 9


def test_sizes_that_a_loop_and_a_choice_cant_take_are_told():
    x = Tensor(A)[: Variable("n", 1, MOST).bind(5)]
    with pytest.raises(ShapeError, match="LSTM: scan: .* legal are numbers as sizes"):
        nn.LSTM(24, 3)(x)
    with pytest.raises(ShapeError, match="topk: symbolic sizes, .n.1..9.=2,."):
        Tensor(A).topk(Variable("n", 1, 9).bind(2))


def test_what_reads_its_sizes_takes_those_of_now():
    x = Tensor([3, 1, 3, 2, 7])[: Variable("n", 2, 5).bind(4)]
    assert x.unique().tolist() == [1, 2, 3]
    assert x.unique_consecutive(return_inverse=True)[1].tolist() == [0, 1, 2, 3]
    assert x.bincount().tolist() == [0, 1, 1, 2]
    assert (x[None].T > 2)[None].nonzero().tolist() == [[0, 0, 0], [0, 2, 0]]
    assert x.reshape(1, -1).gt(2).nonzero(as_tuple=True)[1].tolist() == [0, 2]
    assert x[:, None][:, :0].exp().tolist() == [[], [], [], []]


def test_a_symbolic_size_that_was_not_foreseen_is_named():
    x, n = Tensor(A), Variable("n", 1, MOST).bind(5)
    with pytest.raises(ShapeError, match="interpolate: symbolic sizes"):
        x[None, None, :n].interpolate((8, 8))
    with pytest.raises(ShapeError, match="symbolic sizes, .n.1..40.=5, n.1..40.=5.; legal"):
        (x[:n] @ x.T[:, :n]).det()
    with pytest.raises(ShapeError, match="roll: by 2 of a symbolic size, of 1 to 40"):
        x[:n].roll(2, 0)
    with pytest.raises(ShapeError, match="diagonal: it is not known whether"):
        x[:n].diagonal()


def test_a_buffer_has_room_for_the_largest_size():
    x = Tensor.empty(3, Variable("n", 1, MOST).bind(5))
    assert x.assign(x.ones_like()).sum().item() == 15


def test_fewer_elements_than_are_chosen_are_told():
    n = Variable("n", 1, MOST)
    assert Tensor(B)[:, : n.bind(3)].topk(3)[1].shape == (24, 3)
    with pytest.raises(ShapeError, match="topk: shrink: box .* of shape .24, n.1..40.=2"):
        Tensor(B)[:, : n.bind(2)].topk(3)


UNFIT = {
    "a part that ends before it begins": (lambda x, n: x[n : 2 * n - 2] + 1, 1),
    "a part that begins before the axis": (lambda x, n: x[n - 2 :] + 1, 1),
    "a part that begins behind its end": (lambda x, n: x[2:n] + 1, 1),
    "a part that ends behind the axis": (lambda x, n: x[:n] + 1, 8),
    "a part of fixed size": (lambda x, n: x[n : n + 2] + 1, 3),
    "a place behind the axis": (lambda x, n: x[n] + 1, 4),
    "a place before the axis": (lambda x, n: x[n - 2] + 1, 1),
    "a view": (lambda x, n: x[:n], 7),
    "a sum": (lambda x, n: x[:n].sum(), 8),
    "a negative size": (lambda x, n: Tensor.zeros(n - 2) + 1, 1),
    "repeated a negative number of times": (lambda x, n: x.reshape(1, 4).expand(n - 2, 4) + 1, 1),
    "more than are there": (lambda x, n: x[:n].topk(2)[0], 1),
    "what a fixed part is cut from": (lambda x, n: x[:n].shrink(((1, 3),)) + 1, 2),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_value_that_fits_the_bounds_but_not_the_axis_is_told(name):
    function, unfit = UNFIT[name]
    n, x = Variable("n", 1, 8), Tensor([0.0, 1, 2, 3]).realize()
    fit, captured = 3 if unfit < 3 else 2, TinyJit(lambda x, n: function(x, n).realize())
    for run in (captured, captured, captured, function):
        with_fit = run(x, n.bind(fit)).tolist()
    for run in (captured, function):
        with pytest.raises(ShapeError, match="=.*; legal is what is"):
            run(x, n.bind(unfit))
        with pytest.raises(ShapeError, match="; legal is what is"):
            run(x, n.bind(unfit))
        assert run(x, n.bind(fit)).tolist() == with_fit


def test_a_captured_step_does_not_take_the_size_of_now_for_every_size():
    n, x = Variable("n", 1, 8), Tensor.arange(8).realize()
    step = TinyJit(lambda x, n: (x[:n].reshape(5) + 1).realize())
    assert step(x, n.bind(5)).tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(JitError, match="the value of the variable 'n' is read inside"):
        step(x, n.bind(5))


COMPARED = {
    "n.val > 0": True,
    "n.val >= 9": False,
    "n.val == 0": False,
    "0 != n.val": True,
    "bool(n.val)": True,
    "n.val == 4": None,
    "n.val != 1": None,
    "n.val >= 4": None,
    "n.val + 1 > 0": None,
    "5 - n.val > 0": None,
    "n.val in {4: 1}": None,
    "[0, 1, 2, 3, 4, 5][n.val] > 0": None,
    "len(range(n.val)) > 0": None,
    "(n + 1).val > 0": None,
    "f'{n.val}' == '4'": None,
    "(x + n.val).shape == (1,)": None,
    "x.reshape(1, n.val // 4).ndim > 0": None,
    "x.expand(n.val).ndim > 0": None,
}


@pytest.mark.parametrize("question", COMPARED)
def test_a_captured_step_is_told_of_a_value_what_its_bounds_decide(question):
    """As steps are that treat the first token in another way."""
    n, x = Variable("n", 1, 8), Tensor([0]).realize()
    ask = eval(f"lambda n: {question}", {"x": x})
    step = TinyJit(lambda x, n: (x + (2 if ask(n) else 1)).realize())
    step(x, n.bind(4))
    if (answer := COMPARED[question]) is None:
        with pytest.raises(JitError, match="the value of the variable 'n' is read inside"):
            step(x, n.bind(4))
        return
    for number in (4, 5, 8):
        assert ask(n.bind(number)) is answer
        assert step(x, n.bind(number)).item() == 1 + answer


def decoder(capture: bool):
    """One head group's step with a cache of keys and values; and what it should give."""
    most, count, width = 20, 2, 8
    weights = [random.standard_normal((16, 16)).astype(np.float32) / 4 for _ in range(3)]
    query, key, value = (Tensor(w).realize() for w in weights)
    cache = Tensor.zeros(2, 1, count, most, width).contiguous().realize()

    def step(x, place):
        q, k, v = ((x @ w).reshape(1, 1, count, width).transpose(1, 2) for w in (query, key, value))
        cache[:, :, :, place : place + 1, :].assign(Tensor.stack(k, v)).realize()
        keys, values = cache[0][:, :, : place + 1, :], cache[1][:, :, : place + 1, :]
        return q.scaled_dot_product_attention(keys, values).transpose(1, 2).flatten().realize()

    def expected(xs):
        q, k, v = ((xs @ w).reshape(-1, count, width).transpose(1, 0, 2) for w in weights)
        scores = q[:, -1:] @ k.transpose(0, 2, 1) / np.sqrt(width)  # (heads, 1, tokens)
        return (softmax(scores) @ v).reshape(-1)

    return (TinyJit(step) if capture else step), expected, Variable("place", 0, most - 1), most


@pytest.mark.parametrize("capture", [False, True])
def test_decoding_with_a_cache_has_one_plan_for_all_places(capture):
    step, expected, place, most = decoder(capture)
    xs = random.standard_normal((most, 16)).astype(np.float32)
    made = []
    for at in range(most):
        found = step(Tensor(xs[at : at + 1]).reshape(1, 1, 16).realize(), place.bind(at)).numpy()
        np.testing.assert_allclose(found, expected(xs[: at + 1]), atol=2e-5)
        made.append((GlobalCounters.plans_made, GlobalCounters.kernels_lowered))
    assert len(set(made)) == 1


def test_jit_takes_and_gives_symbolic_shapes():
    n = Variable("n", 1, MOST)
    double = TinyJit(lambda x: (x * 2).realize())
    head = TinyJit(lambda x, n: (x[:n] * 2).realize())
    a = Tensor(A).realize()
    for i in range(1, 12):
        np.testing.assert_array_equal(double(a[: n.bind(i)]).numpy(), A[:i] * 2)
        np.testing.assert_array_equal(head(a, n.bind(i)).numpy(), A[:i] * 2)


def test_some_rows_of_a_parameter():
    n, weight = Variable("n", 1, MOST), Tensor(A, requires_grad=True).realize()
    double = TinyJit(lambda x: (x * 2).realize())
    for size in (5, 5, 1, MOST):
        some = weight[: n.bind(size)]
        np.testing.assert_array_equal(some.numpy(), A[:size])
        np.testing.assert_array_equal(double(some).numpy(), A[:size] * 2)


def test_jit_gives_the_row_of_a_product_at_a_variable_place():
    place = Variable("row", 0, MOST - 1)
    a, b = Tensor(A).realize(), Tensor(B).realize()
    row = TinyJit(lambda a, place: (a.softmax() @ b)[place].realize())
    for i in (1, 5, 0, 39):
        np.testing.assert_allclose(row(a, place.bind(i)).numpy(), (softmax(A) @ B)[i], atol=1e-5)


def test_a_cache_may_be_kept_for_several_tokens_at_once():
    n, size, most = Variable("n", 0, 96), 16, 97
    inputs = random.standard_normal((1, 70, size)).astype(np.float32)
    cache = Tensor.zeros(2, 1, 2, most, 8).contiguous().realize()
    weights = [random.standard_normal((size, size)).astype(np.float32) / 4 for _ in range(4)]

    def step(x, start):
        q, k, v = (
            (x @ Tensor(w)).reshape(1, x.shape[1], 2, 8).transpose(1, 2) for w in weights[:3]
        )
        room = cache[:, :, :, start : start + x.shape[1], :]
        room.assign(Tensor.stack(k, v))
        seen = cache[:, :, :, : start + x.shape[1], :]
        mask = Tensor.arange(most) <= (Tensor.arange(x.shape[1]) + start).reshape(-1, 1)
        out = q.scaled_dot_product_attention(seen[0], seen[1], mask[:, : start + x.shape[1]])
        return x + out.transpose(1, 2).reshape(x.shape) @ Tensor(weights[3])

    def expected(x):
        q, k, v = ((x @ w).reshape(1, -1, 2, 8).transpose(0, 2, 1, 3) for w in weights[:3])
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(8)
        scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
        return x + (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ weights[3]

    parts = [step(Tensor(inputs[:, a:b]), n.bind(a)).numpy() for a, b in ((0, 64), (64, 70))]
    np.testing.assert_allclose(np.concatenate(parts, 1), expected(inputs), atol=1e-5)


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_a_whole_and_its_part_are_not_stored_in_the_part_s_loops(device):
    whole = Tensor(A[:, :3], device=device).sum(0)
    part = whole[: Variable("n", 1, 3).bind(1)].contiguous()
    Tensor.realize(part, whole)
    np.testing.assert_allclose(whole.numpy(), A[:, :3].sum(0), rtol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part * 2 + 1,
        lambda part: part * -3 + part,
        lambda part: (part * 2 + 1).maximum(3),
        lambda part: part * 0 + 5,
    ],
)
def test_a_write_to_some_rows_leaves_the_rest(change):
    """Kernels that any size shares go over all elements, which these don't."""
    rows, left = (np.arange(30, dtype=np.int32).reshape(15, 2) for _ in range(2))
    given, size = Tensor(rows).realize(), Variable("some", 1, 15)
    for number in (1, 7, 2, 15):
        some = size.bind(number)
        given[:some] = change(given[:some])
        left[:number] = change(Tensor(left[:number])).numpy()
        assert given.tolist() == left.tolist()


@pytest.mark.parametrize(
    "choose",
    [
        lambda rows, n: rows[n - 1],
        lambda rows, n: rows[n - 1 : n],
        lambda rows, n: rows[n - 1 : n].reshape(24),
        lambda rows, n: rows[:, n - 1 : n],
    ],
)
def test_jit_gives_the_part_of_what_it_computed_at_a_variable_place(choose):
    """Its shape is the same for all values, but not where it begins."""
    step = TinyJit(lambda x, n: choose((x * 2).realize(), n))
    place = Variable("place", 1, 24)
    for number in (1, 1, 1, 7, 2, 24):
        found = step(Tensor(A).realize(), place.bind(number))
        assert found.tolist() == choose(Tensor(A * 2), number).tolist()


@pytest.mark.parametrize("device", ["CPU", "CLANG", "PYTHON"])
def test_numbers_below_zero_divided_by_a_variable(device):
    """Where an element lies is (element - begin) // n here, which may be below 0."""
    array = np.arange(60, dtype=np.float32).reshape(12, 5)
    x, n = Tensor(array, device=device).realize(), Variable("n", 2, 9)
    step = TinyJit(lambda x, n: (lambda z: z[4:].cat(z[:4]))(x[:n].T.repeat(1, 2)).realize())
    for size in (9, 5, 2, 7):
        want = np.roll(np.tile(array[:size].T, (1, 2)), 1, 0)
        np.testing.assert_array_equal(step(x, n.bind(size)).numpy(), want)


OF_SOME = {
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(0),
    "argmax": lambda x: x.argmax(0),
    "aminmax": lambda x: x.aminmax(dim=0)[0],
    "norm": lambda x: x.norm(float("inf"), 0),
}


@pytest.mark.parametrize("name", OF_SOME)
def test_what_no_elements_have_not_is_told(name):
    x, n = Tensor([[1.0, 5.0], [2.0, 3.0]]).realize(), Variable("n", 0, 2)
    step = TinyJit(lambda n: OF_SOME[name](x[:n]).realize())
    for size in (2, 1, 2):
        assert step(n.bind(size)).tolist() == OF_SOME[name](x[:size]).tolist()
    with pytest.raises(RuntimeCheckError, match="of no elements: n along axis 0 is 0"):
        step(n.bind(0)).tolist()
    assert step(n.bind(1)).tolist() == OF_SOME[name](x[:1]).tolist()


@pytest.mark.parametrize("name", ["std", "var", "softmax", "logsumexp", "any", "sum", "cummax"])
def test_what_no_elements_have(name):
    x, n = Tensor([[1.0, 5.0], [2.0, 3.0]]).realize(), Variable("n", 0, 2)
    for size in (0, 1, 2):
        found, want = (getattr(x[:s], name)(0) for s in (n.bind(size), size))
        found, want = (t[0] if isinstance(t, tuple) else t for t in (found, want))
        np.testing.assert_array_equal(found.numpy(), want.numpy())
