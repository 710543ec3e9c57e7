"""Attention on a device with groups: its scores stay where a group's lanes share them, forward and
backward, at sizes that no block divides; against PyTorch."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor
from tinygrad.engine.making import plan_of
from tinygrad.engine.structure import structure_of

SCALED = torch.nn.functional.scaled_dot_product_attention


@pytest.mark.parametrize(
    "queries,keys,width,causal",
    [pytest.param(100, 100, 8, False, marks=pytest.mark.slow), (67, 67, 5, True)],
)
def test_no_scores_are_stored(queries, keys, width, causal):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, n, width), np.float32) for n in (queries, keys, keys)]
    ours = [Tensor(x, device="CL", requires_grad=True).realize() for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    out, wanted = (
        f(*x, is_causal=causal)
        for f, x in ((Tensor.scaled_dot_product_attention, ours), (SCALED, theirs))
    )
    (out.square()).sum().backward()
    wanted.square().sum().backward()
    results = [out, *(x.grad for x in ours)]
    made = plan_of(structure_of([result.uop for result in results]).sink)
    assert max(kept.size for kept in made.storages) < 3 * queries * keys
    for found, expected in zip(results, [wanted.detach(), *(x.grad for x in theirs)], strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)
