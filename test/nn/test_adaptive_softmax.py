"""The adaptive softmax is PyTorch's, values, names and gradients."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, nn
from tinygrad.base.errors import ArgumentError, IndexCheckError, ShapeError
from tinygrad.nn.state import get_state_dict, load_state_dict

RANDOM = np.random.default_rng(2)
X = RANDOM.standard_normal((7, 8)).astype(np.float32)
TARGET = np.array([0, 19, 5, 3, 4, 9, 10])


def both(*given, **options):
    layer, module = (lib.AdaptiveLogSoftmaxWithLoss(*given, **options) for lib in (nn, torch.nn))
    assert get_state_dict(layer).keys() == module.state_dict().keys()
    load_state_dict(layer, {k: Tensor(v.numpy()) for k, v in module.state_dict().items()})
    return layer, module


@pytest.mark.parametrize("options", [{}, {"div_value": 2.0, "head_bias": True}])
@pytest.mark.parametrize("cutoffs", [[4, 10], [1], [4, 10, 12]])
def test_values_and_gradients(cutoffs, options):
    options = {"div_value": 2.0, **options}
    layer, module = both(8, 20, cutoffs, **options)
    x, other = Tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    found, wanted = layer(x, Tensor(TARGET)), module(other, torch.tensor(TARGET))
    Tensor.realize(found.output, found.loss)
    np.testing.assert_allclose(found.output.numpy(), wanted.output.detach(), rtol=1e-5)
    np.testing.assert_allclose(found.loss.numpy(), wanted.loss.detach(), rtol=1e-5)
    weights = get_state_dict(layer)
    gradients = found.loss.gradient(x, *weights.values())
    Tensor.realize(*gradients)
    wanted.loss.backward()
    for gradient, weight in zip(gradients, (other, *module.parameters()), strict=True):
        np.testing.assert_allclose(gradient.numpy(), weight.grad, rtol=1e-4, atol=1e-6)


def test_probabilities_of_all_classes_and_the_likeliest():
    layer, module = both(8, 20, [4, 10], div_value=2.0)
    x, other = Tensor(X), torch.tensor(X)
    wanted = module.log_prob(other).detach()
    np.testing.assert_allclose(layer.log_prob(x).numpy(), wanted, rtol=1e-5, atol=1e-5)
    assert layer.predict(x).tolist() == module.predict(other).tolist()


def test_one_sample_without_a_batch():
    layer, module = both(8, 20, [4, 10], div_value=2.0)
    found = layer(Tensor(X[0]), Tensor(19))
    wanted = module(torch.tensor(X[0]), torch.tensor(19))
    assert found.output.shape == wanted.output.shape == ()
    np.testing.assert_allclose(found.loss.numpy(), wanted.loss.detach(), rtol=1e-5)


@pytest.mark.parametrize("cutoffs", [[], [4, 4], [10, 4], [0, 4], [4, 20]])
def test_cutoffs_that_are_refused(cutoffs):
    with pytest.raises(ArgumentError, match="legal are numbers that grow, from 1 to 19"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs)


def test_what_is_no_class_is_told():
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10])
    for wrong in (20, -1):
        with pytest.raises(IndexCheckError, match=f"a target of {wrong}; legal are 0 to 19"):
            layer(Tensor(X[:2]), Tensor([0, wrong])).output.numpy()
    with pytest.raises(ShapeError, match=r"target \(3,\)"):
        layer(Tensor(X[:2]), Tensor([0, 1, 2]))
