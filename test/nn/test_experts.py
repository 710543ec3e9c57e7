"""Mixtures of experts: who is dealt what, and that only chosen experts have a say."""

import numpy as np
import pytest
import torch
from model_reference import CHOOSING, made, tokens

from tinygrad import Tensor, TinyJit
from tinygrad.base.errors import ShapeError
from tinygrad.models.mixtral import Mixtral
from tinygrad.nn.experts import ChosenLinear, block_height, dealt
from tinygrad.nn.quantised import QuantisedLinear, quantise
from tinygrad.nn.state import get_state_dict

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("inputs", "used", "experts"),
    [(1, 1, 1), (1, 2, 8), (5, 1, 2), (40, 2, 3), (64, 3, 4), (300, 1, 2)],
)
def test_each_pair_stands_where_it_is_said_in_a_block_of_its_expert(inputs, used, experts):
    chosen = np.stack([RANDOM.permutation(experts)[:used] for _ in range(inputs)])
    if inputs == 300:
        chosen[:] = 1  # all the same one
    deal = dealt(Tensor(chosen.astype(np.int32)), experts)
    rows, which, places = deal.rows.numpy(), deal.which.numpy(), deal.places.numpy()
    height = block_height(inputs * used, experts)
    assert rows.shape == (len(which), height)
    assert len(np.unique(places)) == inputs * used
    np.testing.assert_array_equal(rows.reshape(-1)[places], np.arange(inputs)[:, None] + 0 * chosen)
    np.testing.assert_array_equal(which[places // height], chosen)
    assert ((which >= 0) & (which < experts)).all()


def test_blocks_of_rows_go_through_their_layers():
    layer, x = ChosenLinear(3, 5, 7), RANDOM.standard_normal((4, 2, 5)).astype(np.float32)
    which = np.array([2, 0, 2, 1])
    wanted = np.einsum("bri,boi->bro", x, layer.weight.numpy()[which])
    np.testing.assert_allclose(layer(Tensor(x), Tensor(which)).numpy(), wanted, atol=1e-5)


def test_other_shapes_are_named():
    with pytest.raises(ShapeError, match=r"x \(4, 5\) and layers \(4,\)"):
        ChosenLinear(3, 5, 7)(Tensor.ones(4, 5), Tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("rows", [1, 12])
def test_a_rounded_choice_is_the_product_with_the_rounded_weight(bits, rows):
    made = QuantisedLinear(ChosenLinear(3, 64, 70), bits)
    x, which = RANDOM.standard_normal((2, rows, 64)).astype(np.float32), np.array([2, 1])
    assert made.weight.shape == (3, 70, 64)
    wanted = np.einsum("bri,boi->bro", x, made.weight.numpy()[which])
    np.testing.assert_allclose(made(Tensor(x), Tensor(which)).numpy(), wanted, atol=1e-4)


# ---- a whole model -------------------------------------------------------------------------------


def pair():
    theirs, folder = made(*CHOOSING)
    return theirs, Mixtral.from_pretrained(folder)


def test_blocks_of_rows_give_the_scores_of_the_reference():
    theirs, ours = pair()
    given = tokens(3, 70)
    wanted = theirs(torch.from_numpy(given).long()).logits.detach().numpy()
    np.testing.assert_allclose(ours(Tensor(given)).numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (2, 9)])
def test_an_expert_that_is_not_chosen_has_no_say(shape):
    _, ours = pair()
    mixture = ours.layers[0].feed
    x = Tensor(RANDOM.standard_normal((*shape, 32)).astype(np.float32)).abs().realize()
    router = np.ones((3, 32), np.float32)
    router[1] = -1  # the last choice of all
    mixture.router.weight.assign(Tensor(router)).realize()
    wanted = mixture(x).numpy()
    mixture.gate.weight[1] = float("nan")
    np.testing.assert_array_equal(mixture(x).numpy(), wanted)


def test_gradients_are_those_of_the_reference():
    theirs, ours = pair()
    given, weights = tokens(2, 9), get_state_dict(ours)
    for weight in weights.values():
        weight.realize().requires_grad_(True)
    factors = RANDOM.standard_normal((2, 9, 97)).astype(np.float32)
    (ours(Tensor(given)) * Tensor(factors)).sum().backward()
    (theirs(torch.from_numpy(given).long()).logits * torch.from_numpy(factors)).sum().backward()
    found = {name: p.grad.numpy() for name, p in theirs.named_parameters() if p.grad is not None}
    experts = {name: value for name, value in found.items() if value.ndim == 3}
    gate_up = next(v for n, v in experts.items() if "layers.0" in n and "gate_up" in n)
    down = next(v for n, v in experts.items() if "layers.0" in n and "down" in n)
    router = next(v for n, v in found.items() if "layers.0" in n and v.shape == (3, 32))
    feed = ours.layers[0].feed
    Tensor.realize(*(p.grad for p in (feed.gate.weight, feed.up.weight, feed.down.weight)))
    own = np.concatenate([feed.gate.weight.grad.numpy(), feed.up.weight.grad.numpy()], 1)
    for mine, other in (
        (own, gate_up),
        (feed.down.weight.grad.numpy(), down),
        (feed.router.weight.grad.numpy(), router),
    ):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("bits", [None, 8])
def test_a_captured_step_holds_for_all_choices(bits):
    _, ours = pair()
    if bits:
        assert sum("feed" in name for name in quantise(ours, bits, group=16)) == 2 * 4
    step = TinyJit(lambda t: ours(t).realize())
    for number in range(4):
        given = Tensor(tokens(1, 1) * 0 + 13 * number).realize()
        np.testing.assert_allclose(step(given).numpy(), ours(given).numpy(), atol=1e-5)
