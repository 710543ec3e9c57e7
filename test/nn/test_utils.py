"""What stands around layers does what PyTorch's does."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn as torch_rnn

from tinygrad import nn
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn import utils
from tinygrad.nn.state import get_state_dict, load_state_dict
from tinygrad.nn.utils import rnn
from tinygrad.tensor import Tensor

RANDOM = np.random.default_rng(3)
SEQUENCES = [RANDOM.standard_normal((n, 3)).astype(np.float32) for n in (2, 5, 1, 4)]
X = RANDOM.standard_normal((2, 3)).astype(np.float32)


def check(ours, theirs):
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5)


def alike(ours, theirs):
    """Both layers have PyTorch's weights; returns both."""
    load_state_dict(ours, {k: Tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


# ---- parameters ----------------------------------------------------------------------------------


def test_parameters_go_through_a_vector():
    params = [Tensor(X), Tensor([1.0, 2.0])]
    vector = utils.parameters_to_vector(params)
    utils.vector_to_parameters(vector * 2, params)
    check(params[0], torch.tensor(X * 2))
    assert params[1].tolist() == [2.0, 4.0]


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(ShapeError, match=r"shape \(7,\); legal is \(6,\)"):
        utils.vector_to_parameters(Tensor.ones(7), [Tensor(X)])


@pytest.mark.parametrize(
    "name, transpose, options",
    [
        ("Conv1d", False, {}),
        ("Conv2d", False, {"bias": False}),
        ("Conv2d", False, {"groups": 2}),
        ("ConvTranspose2d", True, {}),
        ("ConvTranspose2d", True, {"groups": 2}),
    ],
)
def test_a_fused_convolution_is_both(name, transpose, options):
    axes = int(name[-2])
    conv, bn = getattr(nn, name)(4, 6, 3, **options), nn.BatchNorm(6)
    x = Tensor.randn(3, 4, *(7,) * axes)
    with Tensor.train():
        bn(conv(x) * 3 + 1)
    fused = utils.fuse_conv_bn_eval(conv, bn, transpose)
    np.testing.assert_allclose(fused(x).numpy(), bn(conv(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_fusing_while_training_is_refused():
    with pytest.raises(ArgumentError, match="outside training"), Tensor.train():
        utils.fuse_linear_bn_eval(nn.Linear(3, 4), nn.BatchNorm(4))


# ---- weights that are made of others -------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
def test_a_weight_in_length_and_direction(dim):
    made = torch.nn.utils.weight_norm(torch.nn.Linear(3, 4), dim=dim)
    ours, theirs = alike(utils.weight_norm(nn.Linear(3, 4), dim=dim), made)
    ours(Tensor(X)).square().sum().backward()
    theirs(torch.tensor(X)).square().sum().backward()
    check(ours(Tensor(X)), theirs(torch.tensor(X)))
    check(ours.weight_g.grad, theirs.weight_g.grad)
    check(ours.weight_v.grad, theirs.weight_v.grad)


def test_a_weight_over_its_largest_singular_value():
    made = torch.nn.utils.spectral_norm(torch.nn.Linear(3, 4))
    ours, theirs = alike(utils.spectral_norm(nn.Linear(3, 4)), made)
    for _ in range(3):
        with Tensor.train():
            check(ours(Tensor(X)), theirs(torch.tensor(X)))
    ours(Tensor(X)).square().sum().backward()
    theirs.eval()(torch.tensor(X)).square().sum().backward()
    check(ours.weight_u, theirs.weight_u)
    check(ours.weight_orig.grad, theirs.weight_orig.grad)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_such_a_layer_has_either_names_in_files(kind):
    made = getattr(torch.nn.utils.parametrizations, kind)
    theirs = torch.nn.Sequential(torch.nn.Tanh(), made(torch.nn.Linear(3, 4))).eval()
    ours = [Tensor.tanh, getattr(utils, kind)(nn.Linear(3, 4))]
    given = {name: value.numpy() for name, value in theirs.state_dict().items()}
    assert all(name.startswith(("1.bias", "1.parametrizations.weight.")) for name in given)
    load_state_dict(ours, given, consume=True)
    assert given == {}
    check(Tensor(X).sequential(ours), theirs(torch.tensor(X)))


def test_names_without_such_a_layer_are_shown_as_they_are():
    given = {"bias": np.ones(4), "parametrizations.weight.original0": np.ones((4, 1))}
    with pytest.raises(ArgumentError, match=r"for weight; .* parametrizations\.weight\.original0"):
        load_state_dict(nn.Linear(3, 4), given)


def test_a_file_with_both_names_is_refused():
    layer = utils.weight_norm(nn.Linear(3, 4))
    state = {name: t.numpy() for name, t in nn.state.get_state_dict(layer).items()}
    state["parametrizations.weight.original0"] = np.zeros((4, 1), np.float32)
    with pytest.raises(
        ArgumentError, match=r"weight_g and parametrizations\.weight\.original0 are two"
    ):
        load_state_dict(layer, state)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_such_a_layer_trains_is_copied_and_is_itself_again(kind):
    layer = getattr(utils, kind)(nn.Conv2d(2, 3, 3))
    x = Tensor.randn(1, 2, 5, 5)
    with Tensor.train():
        optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.1)
        layer(x).square().sum().backward()
        optimizer.step()
    expected = layer(x).numpy()
    for each in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(each(x).numpy(), expected)
    plain = getattr(utils, f"remove_{kind}")(layer)
    assert type(plain) is type(nn.Conv2d(2, 3, 3))
    assert set(get_state_dict(plain)) == {"weight", "bias"}
    np.testing.assert_allclose(plain(x).numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["bias", "nothing"])
def test_what_is_no_weight_is_refused(name):
    with pytest.raises(ArgumentError, match=f"no weight '{name}'"):
        utils.weight_norm(nn.Linear(3, 4, bias=False), name)


# ---- sequences of several lengths ----------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_padded_sequences(batch_first, side):
    given = [[make(x) for x in SEQUENCES] for make in (Tensor, torch.tensor)]
    found, wanted = (
        module.pad_sequence(each, batch_first, 0.5, side)
        for module, each in zip((rnn, torch_rnn), given, strict=True)
    )
    check(found, wanted)


def packed():
    """The sequences, packed by both."""
    return (
        rnn.pack_sequence([Tensor(x) for x in SEQUENCES], enforce_sorted=False),
        torch_rnn.pack_sequence([torch.tensor(x) for x in SEQUENCES], enforce_sorted=False),
    )


def test_packed_sequences_are_pytorchs_and_come_back():
    ours, theirs = packed()
    for mine, wanted in zip(ours, theirs, strict=True):
        check(mine, wanted)
    for found, sequence in zip(rnn.unpack_sequence(ours), SEQUENCES, strict=True):
        np.testing.assert_array_equal(found.numpy(), sequence)


def test_lengths_that_rise_are_refused():
    with pytest.raises(ArgumentError, match=r"lengths \[1, 2\]; legal are lengths that fall"):
        rnn.pack_padded_sequence(Tensor.ones(2, 2, 3), [1, 2])


@pytest.mark.parametrize("lengths", [[0, 1], [2, 3], [1.5, 1]])
def test_lengths_that_cannot_be_are_refused(lengths):
    with pytest.raises(ArgumentError, match="legal are 1 to 2"):
        rnn.pack_padded_sequence(Tensor.ones(2, 2, 3), lengths, enforce_sorted=False)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_layers_take_packed_sequences(name, batch_first):
    options = {"num_layers": 2, "bidirectional": True, "batch_first": batch_first}
    made = getattr(torch.nn, name)(3, 4, **options)
    ours, theirs = alike(getattr(nn, name)(3, 4, **options), made)
    for module, given in ((ours, packed()[0]), (theirs, packed()[1])):
        outputs, last = module(given)
        outputs.data.square().sum().backward()
        if module is ours:
            found, found_last = outputs, last
    check(found.data, outputs.data)
    pairs = zip(found_last, last, strict=True) if name == "LSTM" else [(found_last, last)]
    for mine, wanted in pairs:
        check(mine, wanted)
    check(ours.weight_hh_l0_reverse.grad, theirs.weight_hh_l0_reverse.grad)


def test_the_halves_of_clipping():
    def gradients(clip):
        x = Tensor([3.0, 4.0], requires_grad=True)
        (x * x).sum().backward()
        clip([x])
        return x.grad.numpy()

    def halves(params):
        total = nn.utils.get_total_norm([p.grad for p in params])
        nn.utils.clip_grads_with_norm_(params, 5.0, total)

    whole = gradients(lambda params: nn.utils.clip_grad_norm_(params, 5.0))
    np.testing.assert_allclose(gradients(halves), whole)
