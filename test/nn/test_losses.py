"""Losses are PyTorch's, values and gradients, with all their options."""

import inspect
import math

import numpy as np
import pytest
import torch

from tinygrad import Tensor
from tinygrad.base.errors import ArgumentError, IndexCheckError, ShapeError
from tinygrad.nn import functional, losses

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((6, 5)).astype(np.float32)
Y = RANDOM.standard_normal((6, 5)).astype(np.float32)
P = (1 / (1 + np.exp(-X))).astype(np.float32)
T = RANDOM.integers(0, 2, (6, 5)).astype(np.float32)
CLASSES = np.array([0, 4, 2, 1, 3, 2])
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.25, 3.0], np.float32)
SIGNS = np.array([1, -1, 1, -1, -1, 1], np.float32)
IMAGE = RANDOM.standard_normal((2, 5, 3, 4)).astype(np.float32)
LABELS = RANDOM.integers(0, 5, (2, 3, 4))
SOFT = np.exp(Y) / np.exp(Y).sum(1, keepdims=True)


def given(value, lib):
    if not isinstance(value, np.ndarray):
        return value
    return Tensor(value) if lib is Tensor else torch.tensor(value)


def check(name, x, *others, tolerance=1e-5, **options):
    """The loss and its gradient, with each reduction."""
    for reduction in ("mean", "sum", "none"):
        mine, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        more = [{k: given(v, lib) for k, v in options.items()} for lib in (Tensor, torch)]
        sides = [[given(v, lib) for v in others] for lib in (Tensor, torch)]
        out = getattr(losses, name)(mine, *sides[0], **more[0], reduction=reduction)
        wanted = getattr(torch.nn.functional, name)(
            theirs, *sides[1], **more[1], reduction=reduction
        )
        (found,) = out.square().sum().gradient(mine)
        out.realize(found)
        assert out.shape == tuple(wanted.shape)
        np.testing.assert_allclose(
            out.numpy(), wanted.detach().numpy(), rtol=tolerance, atol=tolerance
        )
        wanted.square().sum().backward()
        np.testing.assert_allclose(
            found.numpy(), theirs.grad.numpy(), rtol=10 * tolerance, atol=tolerance
        )


@pytest.mark.parametrize(
    "name, x, others, options",
    [
        ("l1_loss", X, [Y], {}),
        ("mse_loss", X, [Y], {}),
        ("huber_loss", X, [Y], {"delta": 0.7}),
        ("huber_loss", X, [Y], {"delta": 0.7, "weight": P}),
        ("l1_loss", X, [Y], {"weight": P}),
        ("mse_loss", X, [Y], {"weight": P}),
        ("smooth_l1_loss", X, [Y], {"beta": 0.7}),
        ("smooth_l1_loss", X, [Y], {"beta": 0.0}),
        ("binary_cross_entropy", P, [T], {}),
        ("binary_cross_entropy", P, [T], {"weight": WEIGHTS}),
        ("binary_cross_entropy_with_logits", 9 * X, [T], {}),
        ("binary_cross_entropy_with_logits", X, [T], {"weight": WEIGHTS, "pos_weight": WEIGHTS}),
        ("cross_entropy", X, [CLASSES], {}),
        ("cross_entropy", X, [CLASSES], {"weight": WEIGHTS, "ignore_index": 2}),
        ("cross_entropy", X, [CLASSES], {"label_smoothing": 0.3}),
        (
            "cross_entropy",
            X,
            [CLASSES],
            {"label_smoothing": 0.3, "weight": WEIGHTS, "ignore_index": 4},
        ),
        ("cross_entropy", X, [SOFT], {"label_smoothing": 0.2, "weight": WEIGHTS}),
        ("cross_entropy", IMAGE, [LABELS], {"weight": WEIGHTS, "ignore_index": 0}),
        ("cross_entropy", X[0], [np.array(3)], {}),
        ("nll_loss", X, [CLASSES], {"weight": WEIGHTS}),
        ("nll_loss", IMAGE, [LABELS], {"ignore_index": 3}),
        ("kl_div", X, [SOFT], {}),
        ("kl_div", X, [np.where(SOFT > 0.1, SOFT, 0)], {}),
        ("kl_div", X, [Y], {"log_target": True}),
        ("kl_div", X, [SOFT - 0.3], {}),
        ("cosine_embedding_loss", X, [Y, SIGNS], {"margin": 0.1}),
        ("triplet_margin_loss", X, [Y, P], {"margin": 0.5}),
        ("triplet_margin_loss", X, [Y, P], {"p": 3.0, "swap": True}),
        ("cosine_embedding_loss", X, [Y, SIGNS * CLASSES], {"margin": 0.1}),
        ("hinge_embedding_loss", X[:, 0], [SIGNS * CLASSES], {"margin": 0.5}),
        ("margin_ranking_loss", X[:, 0], [Y[:, 0], SIGNS], {"margin": 0.5}),
        ("hinge_embedding_loss", X[:, 0], [SIGNS], {"margin": 0.5}),
        ("gaussian_nll_loss", X, [Y, P], {}),
        ("gaussian_nll_loss", X, [Y, P[:, :1]], {"full": True, "eps": 0.5}),
        ("poisson_nll_loss", X, [T * 3], {}),
        ("poisson_nll_loss", P, [T * 3], {"log_input": False, "full": True}),
        ("soft_margin_loss", X[:, 0], [SIGNS], {}),
        ("multilabel_soft_margin_loss", X, [T], {"weight": WEIGHTS}),
    ],
)
@pytest.mark.filterwarnings("ignore:reduction. 'mean'")
def test_losses(name, x, others, options):
    check(name, x, *others, **options)


def test_bools_for_targets_are_0_and_1():
    yes = Tensor(SIGNS > 0)
    assert losses.soft_margin_loss(Tensor(X[:, 0]), yes).item() == pytest.approx(
        losses.soft_margin_loss(Tensor(X[:, 0]), yes.float()).item()
    )


def test_batchmean():
    ours = losses.kl_div(Tensor(X), Tensor(SOFT), "batchmean").item()
    theirs = torch.nn.functional.kl_div(torch.tensor(X), torch.tensor(SOFT), reduction="batchmean")
    np.testing.assert_allclose(ours, theirs.item(), rtol=1e-5)


ROWS = np.array([[1, 2, 2, 3], [2, 3, 1, 1], [4, 0, 0, 0]])
COUNTS = [4, 2, 1]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc(reduction, flat):
    """By way of a log_softmax: PyTorch's gradient has its own taken in."""
    logits = RANDOM.standard_normal((9, 3, 5)).astype(np.float32)
    rows = np.concatenate([r[:n] for r, n in zip(ROWS, COUNTS, strict=True)]) if flat else ROWS
    ours, theirs = Tensor(logits, requires_grad=True), torch.tensor(logits, requires_grad=True)
    mine = losses.ctc_loss(
        ours.log_softmax(2), Tensor(rows), [9, 8, 3], COUNTS, reduction=reduction
    )
    wanted = torch.nn.functional.ctc_loss(
        theirs.log_softmax(2),
        torch.tensor(rows),
        torch.tensor([9, 8, 3]),
        torch.tensor(COUNTS),
        reduction=reduction,
    )
    np.testing.assert_allclose(mine.numpy(), wanted.detach().numpy(), rtol=1e-5)
    wanted.sum().backward()
    (found,) = mine.sum().gradient(ours)
    np.testing.assert_allclose(found.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_of_one_sample_without_a_batch(reduction):
    logs = np.log(np.random.default_rng(3).dirichlet(np.ones(4), 6)).astype(np.float32)
    found = losses.ctc_loss(Tensor(logs), Tensor([1, 2, 2]), 6, 3, reduction=reduction)
    given = torch.tensor(logs), torch.tensor([1, 2, 2]), torch.tensor(6), torch.tensor(3)
    wanted = torch.nn.functional.ctc_loss(*given, reduction=reduction)
    assert found.shape == wanted.shape == ()
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


def test_ctc_of_labels_that_do_not_fit():
    logs = Tensor(RANDOM.standard_normal((2, 1, 5)).astype(np.float32)).log_softmax(2)
    labels = Tensor([[1, 1]])
    assert losses.ctc_loss(logs, labels, [2], [2]).item() == float("inf")
    assert losses.ctc_loss(logs, labels, [2], [2], zero_infinity=True).item() == 0.0


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_an_infinite_ctc_has_no_gradient(zero_infinity, reduction):
    """The second of three sequences is too short for its labels, and the third has no turns."""
    logits = RANDOM.standard_normal((5, 3, 4)).astype(np.float32)
    facts = ([[1, 2], [1, 1], [3, 3]], [4, 2, 0], [2, 2, 2])
    options = {"reduction": reduction, "zero_infinity": zero_infinity}
    ours, theirs = Tensor(logits, requires_grad=True), torch.tensor(logits, requires_grad=True)
    of_ours = (Tensor(each) for each in facts)
    of_theirs = (torch.tensor(each) for each in facts)
    losses.ctc_loss(ours.log_softmax(2), *of_ours, **options).sum().backward()
    torch.nn.functional.ctc_loss(theirs.log_softmax(2), *of_theirs, **options).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_ctc_of_no_turns_says_nothing():
    logs = RANDOM.standard_normal((4, 3, 5)).astype(np.float32)
    counts = ([0, 0, 2], [[1, 2]] * 3, [0, 1, 2])  # turns, labels, how many of them
    ours = losses.ctc_loss(Tensor(logs), Tensor(counts[1]), counts[0], counts[2], reduction="none")
    wanted = torch.nn.functional.ctc_loss(
        torch.tensor(logs),
        torch.tensor(counts[1]),
        *(torch.tensor(counts[i]) for i in (0, 2)),
        reduction="none",
    )
    np.testing.assert_allclose(ours.numpy(), wanted.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("turns", "count", "said"),
    [
        (7, 1, "input_lengths of 7; legal are 0 to 4"),
        (-1, 1, "input_lengths of -1"),
        (4, 3, "target_lengths of 3; legal are 0 to 2"),
        (4, -1, "target_lengths of -1"),
    ],
)
def test_ctc_of_more_than_there_is(turns, count, said):
    logs = Tensor.zeros(4, 1, 5).log_softmax(2)
    with pytest.raises(IndexCheckError, match=said):
        losses.ctc_loss(logs, Tensor([[1, 2]]), [turns], [count]).item()


def test_ctc_of_no_labels_is_all_blanks():
    logits = RANDOM.standard_normal((4, 2, 3)).astype(np.float32)
    ours = losses.ctc_loss(Tensor(logits).log_softmax(2), Tensor([[1], [2]]), [4, 4], [0, 1])
    theirs = torch.nn.functional.ctc_loss(
        torch.tensor(logits).log_softmax(2),
        torch.tensor([[1], [2]]),
        torch.tensor([4, 4]),
        torch.tensor([0, 1]),
    )
    np.testing.assert_allclose(ours.item(), theirs.item(), rtol=1e-5)


def test_objects_are_the_functions():
    x, y, classes = Tensor(X), Tensor(Y), Tensor(CLASSES)
    weights, spread = Tensor(WEIGHTS), Tensor(SOFT)
    pairs = [
        (losses.L1Loss("sum")(x, y), losses.l1_loss(x, y, "sum")),
        (
            losses.MarginRankingLoss(0.5)(x, y, y.sign()),
            losses.margin_ranking_loss(x, y, y.sign(), 0.5),
        ),
        (
            losses.HingeEmbeddingLoss(reduction="sum")(x, y.sign()),
            losses.hinge_embedding_loss(x, y.sign(), reduction="sum"),
        ),
        (losses.MSELoss()(x, y), losses.mse_loss(x, y)),
        (
            losses.GaussianNLLLoss(full=True)(x, y, y.exp()),
            losses.gaussian_nll_loss(x, y, y.exp(), full=True),
        ),
        (losses.PoissonNLLLoss(full=True)(x, y), losses.poisson_nll_loss(x, y, full=True)),
        (losses.SoftMarginLoss("sum")(x, y), losses.soft_margin_loss(x, y, "sum")),
        (
            losses.MultiLabelSoftMarginLoss(reduction="sum")(x, y),
            losses.multilabel_soft_margin_loss(x, y, reduction="sum"),
        ),
        (losses.HuberLoss(delta=2.0)(x, y), losses.huber_loss(x, y, delta=2.0)),
        (losses.SmoothL1Loss(beta=2.0)(x, y), losses.smooth_l1_loss(x, y, beta=2.0)),
        (
            losses.CrossEntropyLoss(weights, label_smoothing=0.1)(x, classes),
            losses.cross_entropy(x, classes, weights, label_smoothing=0.1),
        ),
        (losses.NLLLoss()(x, classes), losses.nll_loss(x, classes)),
        (losses.KLDivLoss("batchmean")(x, spread), losses.kl_div(x, spread, "batchmean")),
        (losses.BCELoss()(Tensor(P), Tensor(T)), losses.binary_cross_entropy(Tensor(P), Tensor(T))),
        (
            losses.BCEWithLogitsLoss()(x, Tensor(T)),
            losses.binary_cross_entropy_with_logits(x, Tensor(T)),
        ),
        (losses.TripletMarginLoss()(x, y, spread), losses.triplet_margin_loss(x, y, spread)),
        (
            losses.CosineEmbeddingLoss()(x, y, Tensor(SIGNS)),
            losses.cosine_embedding_loss(x, y, Tensor(SIGNS)),
        ),
    ]
    for one, other in pairs:
        assert one.item() == other.item()


@pytest.mark.parametrize(
    "misuse, error, message",
    [
        (lambda: losses.mse_loss(Tensor(X), Tensor(Y), "best"), ArgumentError, "mean, sum, none"),
        (lambda: losses.huber_loss(Tensor(X), Tensor(Y), delta=0), ArgumentError, "above 0"),
        (lambda: losses.cross_entropy(Tensor(X), Tensor([1, 2])), ShapeError, "without axis 1"),
        (
            lambda: losses.cross_entropy(Tensor(X), Tensor(CLASSES), label_smoothing=2),
            ArgumentError,
            "from 0 to 1",
        ),
    ],
)
def test_misuse(misuse, error, message):
    with pytest.raises(error, match=message):
        misuse()


def test_functional_has_them_all():
    for name in ("mse_loss", "ctc_loss", "cross_entropy", "kl_div"):
        ours = inspect.unwrap(getattr(functional, name))  # below other libraries' spellings
        assert ours is inspect.unwrap(getattr(losses, name))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 3.0]])
def test_a_batch_of_nothing_but_ignored_targets_spoils_no_weights(smoothing, weight):
    """The loss is NaN, a mean of nothing, and its gradient 0, as PyTorch's are."""
    values, target = np.float32([[1, 2, 3], [3, 1, 2]]), [-100, -100]
    theirs = torch.tensor(values, requires_grad=True)
    given = {} if weight is None else {"weight": torch.tensor(weight)}
    loss = torch.nn.functional.cross_entropy(
        theirs, torch.tensor(target), label_smoothing=smoothing, **given
    )
    loss.backward()
    x = Tensor(values, requires_grad=True)
    given = {} if weight is None else {"weight": Tensor(weight)}
    ours = losses.cross_entropy(x, Tensor(target), label_smoothing=smoothing, **given)
    ours.backward()
    assert math.isnan(loss.item()) and math.isnan(ours.item())
    np.testing.assert_array_equal(x.grad.numpy(), theirs.grad.numpy())
