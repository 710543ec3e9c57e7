"""Gradients, and theirs, where something is special: zeros, equal elements, edges, certainty."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, nn

INF = float("inf")
ZEROS, SAME, MIXED = [0.0] * 6, [2.0] * 6, [1.0, 2.0, 0.0, 3.0, -1.0, 0.5]
EDGES = [-3.0, -1.0, 0.0, 1.0, 6.0, 3.0]
HUGE = [1e20, 1e30, 80.0, -0.5, 1e-30, 3e38]
OTHER = [[1.0, 0.0, 2.0], [3.0, 2.0, -1.0]]


def slopes(library, make, values, twice=True):
    """The gradients of a weighted sum, by both operands, and that of the first one's."""
    is_torch = library is torch
    tensor = torch.tensor if is_torch else Tensor
    x = tensor(np.array(values, "float32").reshape(2, 3), requires_grad=True)
    y = tensor(np.array(OTHER, "float32"), requires_grad=True)
    out = make(x, y, torch.nn.functional if is_torch else nn.functional)
    weights = (np.sin(np.arange(out.numel()) * 1.1) + 1.5).reshape(tuple(out.shape))
    total = (out * tensor(weights.astype("float32"))).sum()
    if is_torch:
        first = torch.autograd.grad(total, [x, y], create_graph=True, materialize_grads=True)
        second = twice and torch.autograd.grad((first[0] + 0 * x).sum(), [x])
    else:
        first = total.gradient(x, y, materialize_grads=True)
        second = twice and (first[0] + 0 * x).sum().gradient(x)
    return [each.detach().numpy() for each in (*first, *(second or ()))]


@pytest.mark.parametrize("values", [ZEROS, SAME, MIXED, EDGES])
@pytest.mark.parametrize(
    "make",
    [
        lambda x, y, f: x.logaddexp(y),
        lambda x, y, f: x.logaddexp2(y),
        lambda x, y, f: f.huber_loss(x, y),
        lambda x, y, f: f.smooth_l1_loss(x, y, beta=0.5),
        lambda x, y, f: f.relu6(x),
        lambda x, y, f: f.hardtanh(x),
        lambda x, y, f: f.hardswish(x),
        lambda x, y, f: f.softshrink(x, 1.0),
        lambda x, y, f: f.margin_ranking_loss(x, y, y.detach()),
        lambda x, y, f: f.hinge_embedding_loss(x, y.detach()),
    ],
)
def test_both_orders_are_those_of_torch(make, values):
    for found, wanted in zip(
        slopes(Tensor, make, values), slopes(torch, make, values), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda x, y, f: f.normalize(x, dim=1), ZEROS),
        (lambda x, y, f: f.normalize(x, 1.0, 0), MIXED),
        (lambda x, y, f: f.cosine_similarity(x, y), ZEROS),
        (lambda x, y, f: f.hardsigmoid(x), EDGES),
        (lambda x, y, f: x.norm(0.5), MIXED),
        (lambda x, y, f: x.norm(-1), MIXED),
        (lambda x, y, f: x.log1p(), HUGE),
        (lambda x, y, f: x.log1p(), [-1.0, *MIXED[1:]]),
        (lambda x, y, f: f.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid()), HUGE),
        (lambda x, y, f: f.binary_cross_entropy(x, y.detach().sigmoid()), [0.0, 1.0] * 3),
    ],
)
def test_first_order_is_that_of_torch(make, values):
    found, wanted = (slopes(library, make, values, False) for library in (Tensor, torch))
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_normalized_vector_bends_also_where_an_element_is_0():
    def make(x, y, f):
        return f.normalize(x, dim=1)

    found, wanted = (slopes(library, make, MIXED)[2] for library in (Tensor, torch))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_infinite_rows(mode):
    rows = np.array([[1.0, INF, -INF], [0.0, 2.0, 1.0], [3.0, 1.0, 0.0]], "float32")
    bags = [[0, 1, 1], [2, 2, 1], [2, 2, 2]]
    options = {"mode": mode, "padding_idx": 2}
    found = nn.functional.embedding_bag(Tensor(bags), Tensor(rows), **options)
    wanted = torch.nn.functional.embedding_bag(torch.tensor(bags), torch.tensor(rows), **options)
    np.testing.assert_allclose(found.numpy(), wanted.numpy())
