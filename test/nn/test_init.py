"""Initialisers have the bounds, means and deviations that their papers give."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn import init

SHAPE = (120, 50, 3)


@pytest.mark.parametrize(
    "name, options",
    [
        ("uniform_", {"a": -2.0, "b": 3.0}),
        ("normal_", {"mean": 1.0, "std": 0.5}),
        ("trunc_normal_", {"mean": 0.2, "std": 1.0, "a": -1.0, "b": 0.5}),
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {}),
        ("kaiming_uniform_", {"a": 0.2}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}),
    ],
)
def test_distributions(name, options):
    Tensor.manual_seed(3)
    torch.manual_seed(3)
    ours = getattr(init, name)(Tensor.zeros(*SHAPE), **options).numpy()
    theirs = getattr(torch.nn.init, name)(torch.zeros(*SHAPE), **options).numpy()
    scale = theirs.std()
    assert abs(ours.mean() - theirs.mean()) < 0.05 * scale
    assert abs(ours.std() - scale) < 0.03 * scale
    for q in (0.01, 0.25, 0.75, 0.99):
        assert abs(np.quantile(ours, q) - np.quantile(theirs, q)) < 0.1 * scale


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3)])
def test_orthogonal(shape):
    flat = init.orthogonal_(Tensor.zeros(*shape), 2.0).numpy().reshape(shape[0], -1)
    square = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(square, 4 * np.eye(len(square)), atol=1e-4)


def test_values_are_written_in_place():
    weight = Tensor([1.0, 2.0]).realize()
    view = weight[1:]
    assert init.constant_(weight, 3.0) is weight
    assert view.tolist() == [3.0]
    assert init.zeros_(weight).tolist() == [0.0, 0.0] and init.ones_(weight).tolist() == [1.0, 1.0]


def test_eye():
    assert init.eye_(Tensor.zeros(2, 3)).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid", "selu", "linear"])
def test_gains(name):
    assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", None) == init.calculate_gain("leaky_relu")
    assert init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


@pytest.mark.parametrize(
    "misuse, error, message",
    [
        (lambda: init.xavier_uniform_(Tensor.zeros(3)), ShapeError, "no fans"),
        (lambda: init.eye_(Tensor.zeros(3)), ShapeError, "two axes"),
        (
            lambda: init.kaiming_normal_(Tensor.zeros(3, 3), mode="in"),
            ArgumentError,
            "legal are fan_in, fan_out",
        ),
        (lambda: init.calculate_gain("sine"), ArgumentError, "leaky_relu"),
    ],
)
def test_misuse(misuse, error, message):
    with pytest.raises(error, match=message):
        misuse()


@pytest.mark.parametrize("shape, groups", [((4, 2, 3), 2), ((3, 5, 3, 4), 1), ((4, 4, 1, 2, 3), 4)])
def test_a_weight_that_gives_its_input(shape, groups):
    found = init.dirac_(Tensor.zeros(*shape), groups)
    assert found.tolist() == torch.nn.init.dirac_(torch.zeros(*shape), groups).tolist()


def test_sparse_columns():
    weight = init.sparse_(Tensor.zeros(50, 30), 0.3, std=2.0).numpy()
    assert ((weight == 0).sum(0) == 15).all() and abs(weight[weight != 0].std() - 2) < 0.2
    assert len(np.unique((weight == 0).argmax(0))) > 2  # other rows in each column
    with pytest.raises(ArgumentError, match="std=-1"):
        init.sparse_(Tensor.zeros(3, 3), 0.5, -1)
    with pytest.raises(ArgumentError, match="sparsity=1.5"):
        init.sparse_(Tensor.zeros(3, 3), 1.5)
    with pytest.raises(ShapeError, match="dirac_: .* 2 groups"):
        init.dirac_(Tensor.zeros(3, 3, 3), 2)
