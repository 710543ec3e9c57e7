"""Recurrent layers and transformers are PyTorch's, values and gradients, with all their options."""

import numpy as np
import pytest
import torch

from tinygrad import GlobalCounters, Tensor, nn
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.state import get_state_dict, load_state_dict

RANDOM = np.random.default_rng(0)


def array(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def alike(layer, module):
    """Gives the layer the module's weights, none of them 0 or 1."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.uniform_(-0.5, 0.5)
    state = {name: Tensor(value.numpy()) for name, value in module.state_dict().items()}
    assert get_state_dict(layer).keys() == state.keys()
    load_state_dict(layer, state)


def flat(value):
    """The tensors in nested tuples."""
    if value is None:
        return []
    return [t for v in value for t in flat(v)] if isinstance(value, tuple) else [value]


def check(layer, module, *inputs, tolerance=2e-5, **options):
    """All results, and the gradients of all inputs and weights."""
    mine = [Tensor(x, requires_grad=True) for x in inputs]
    theirs = [torch.tensor(x, requires_grad=True) for x in inputs]
    more = [
        {k: lib(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        for lib in (Tensor, torch.tensor)
    ]
    outs, wanted = flat(layer(*mine, **more[0])), flat(module(*theirs, **more[1]))
    assert len(outs) == len(wanted)
    for out, other in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(
            out.numpy(), other.detach().numpy(), rtol=tolerance, atol=tolerance
        )
    module.zero_grad()
    sum(w.sin().sum() for w in wanted).backward()
    total = outs[0].sin().sum()
    for out in outs[1:]:
        total = total + out.sin().sum()
    weights = dict(module.named_parameters())
    places = get_state_dict(layer)
    found = total.gradient(*mine, *(places[name] for name in weights))
    found[0].realize(*found[1:])
    for ours, other in zip(found, [*theirs, *weights.values()], strict=True):
        np.testing.assert_allclose(
            ours.numpy(), other.grad.numpy(), rtol=10 * tolerance, atol=10 * tolerance
        )


SEQUENCES = ["RNN", "GRU", "LSTM"]


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"num_layers": 2, "bidirectional": True},
        {"batch_first": True, "bidirectional": True},
    ],
)
def test_sequences(name, options):
    layer, module = getattr(nn, name)(3, 5, **options), getattr(torch.nn, name)(3, 5, **options)
    alike(layer, module)
    check(layer, module, array(6, 4, 3))


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_without_batch_and_with_a_state(name):
    layer, module = getattr(nn, name)(3, 5), getattr(torch.nn, name)(3, 5)
    alike(layer, module)
    check(layer, module, array(6, 3))
    states = [array(1, 4, 5) for _ in range(2 if name == "LSTM" else 1)]
    mine, theirs = [[lib(s) for s in states] for lib in (Tensor, torch.tensor)]
    x = array(6, 4, 3)
    out, _ = layer(Tensor(x), tuple(mine) if len(mine) > 1 else mine[0])
    wanted, _ = module(torch.tensor(x), tuple(theirs) if len(theirs) > 1 else theirs[0])
    np.testing.assert_allclose(out.numpy(), wanted.detach().numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}]
)
def test_what_a_cell_shows_may_be_projected(options):
    layer, module = (lib.LSTM(3, 5, proj_size=2, **options) for lib in (nn, torch.nn))
    alike(layer, module)
    check(layer, module, array(6, 4, 3))
    (hidden, cell), (h, c) = layer(Tensor.ones(6, 4, 3))[1], module(torch.ones(6, 4, 3))[1]
    np.testing.assert_allclose(hidden.numpy(), h.detach().numpy(), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(cell.numpy(), c.detach().numpy(), rtol=2e-5, atol=2e-5)


def test_a_projected_state_goes_on_where_it_was():
    layer = nn.LSTM(3, 5, proj_size=2)
    x = Tensor(array(6, 4, 3))
    whole, state = layer(x)[0], layer(x[:4])[1]
    np.testing.assert_allclose(
        layer(x[4:], state)[0].numpy(), whole[4:].numpy(), rtol=2e-5, atol=1e-6
    )


def test_relu_networks():
    layer, module = nn.RNN(3, 5, nonlinearity="relu"), torch.nn.RNN(3, 5, nonlinearity="relu")
    alike(layer, module)
    check(layer, module, array(6, 4, 3))


def test_a_layer_of_ones_own_kind_runs_its_own_cell():
    class Named(nn.LSTM):
        pass

    class Halved(nn.GRUCell):
        @staticmethod
        def next(given, kept, state):
            return (state[0] * 0.5 + given.chunk(3, dim=-1)[0],)

    class Own(nn.GRU):
        cell = Halved

    x = Tensor(array(4, 1, 3))
    named, layer, own = Named(3, 2), nn.LSTM(3, 2), Own(3, 2)
    load_state_dict(named, get_state_dict(layer))
    for _ in range(2):
        np.testing.assert_array_equal(named(x)[0].numpy(), layer(x)[0].numpy())
        state = np.zeros((1, 2), "float32")
        given = x.linear(own.weight_ih_l0.T, own.bias_ih_l0).numpy()[..., :2]
        for turn in given:
            state = state * 0.5 + turn
        np.testing.assert_allclose(own(x)[1][0].numpy(), state, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
def test_cells(name):
    layer, module = getattr(nn, name)(3, 5), getattr(torch.nn, name)(3, 5)
    alike(layer, module)
    check(layer, module, array(4, 3))
    check(layer, module, array(3))


def test_length_costs_no_compilation():
    """The plan of one turn serves every length: as many kernels compile for 5 turns as for 50."""
    layer = nn.LSTM(3, 4)
    layer(Tensor(array(5, 2, 3)))[0].realize()
    before = GlobalCounters.kernels_lowered
    layer(Tensor(array(50, 2, 3)))[0].realize()
    assert GlobalCounters.kernels_lowered - before <= 4  # the product with the inputs, and sums


def test_dropout_between_layers_only_while_training():
    layer, x = nn.GRU(3, 5, num_layers=2, dropout=0.9), Tensor(array(6, 4, 3))
    plain = layer(x)[0].numpy()
    np.testing.assert_array_equal(layer(x)[0].numpy(), plain)
    with Tensor.train():
        assert not np.array_equal(layer(x)[0].numpy(), plain)


ATTENTIONS = [
    {},
    {"bias": False},
    {"batch_first": True},
    {"kdim": 5, "vdim": 7},
    {"add_bias_kv": True},
    {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
]


@pytest.mark.parametrize(
    ("options", "need_weights"),
    [*((o, True) for o in ATTENTIONS), *((o, False) for o in ATTENTIONS[::3])],
)
def test_attention(options, need_weights):
    layer, module = (
        nn.MultiheadAttention(8, 2, **options),
        torch.nn.MultiheadAttention(8, 2, **options),
    )
    alike(layer, module)
    shapes = [(4, 3), (6, 3)] if not options.get("batch_first") else [(3, 4), (3, 6)]
    q, k, v = array(*shapes[0], 8), array(*shapes[1], options.get("kdim", 8)), None
    v = array(*shapes[1], options.get("vdim", 8))
    check(layer, module, q, k, v, need_weights=need_weights)


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}])
def test_attention_with_masks(options):
    layer, module = (lib.MultiheadAttention(8, 2, **options) for lib in (nn, torch.nn))
    alike(layer, module)
    q, k, v = array(4, 3, 8), array(6, 3, 8), array(6, 3, 8)
    padding = np.zeros((3, 6), bool)
    padding[0, 4:] = padding[2, 1] = True
    some = RANDOM.random((4, 6)) > 0.7
    some[:, 0] = False
    check(layer, module, q, k, v, key_padding_mask=padding)
    check(layer, module, q, k, v, attn_mask=some, key_padding_mask=padding)
    check(layer, module, q, k, v, attn_mask=array(6, 4, 6))
    check(layer, module, q, k, v, average_attn_weights=False)
    check(layer, module, array(4, 8), array(6, 8), array(6, 8))


@pytest.mark.parametrize(
    "options",
    [{}, {"activation": "gelu", "norm_first": True}, {"batch_first": True, "bias": False}],
)
def test_transformer_layers(options):
    for name, inputs in [("Encoder", 1), ("Decoder", 2)]:
        kind = f"Transformer{name}Layer"
        layer = getattr(nn, kind)(8, 2, 16, dropout=0.0, **options)
        module = getattr(torch.nn, kind)(8, 2, 16, dropout=0.0, **options)
        alike(layer, module)
        check(layer, module, *(array(3, 3, 8) for _ in range(inputs)), tolerance=5e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"batch_first": True, "norm_first": True}, marks=pytest.mark.slow)],
)
def test_transformers(options):
    models = [lib.Transformer(8, 2, 1, 2, 16, dropout=0.0, **options) for lib in (nn, torch.nn)]
    alike(*models)
    check(*models, array(4, 4, 8), array(4, 4, 8), tolerance=5e-5)
    padding = np.zeros((4, 4), bool)
    padding[0, 2:] = True
    later = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": later}
    check(*models, array(4, 4, 8), array(4, 4, 8), tolerance=5e-5, **masks)
    assert nn.Transformer.generate_square_subsequent_mask(4).tolist() == later.tolist()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_stacks_of_layers_of_ones_own():
    parts = [
        [
            lib.TransformerEncoder(lib.TransformerEncoderLayer(8, 2, 16, 0.0), 2, lib.LayerNorm(8)),
            lib.TransformerDecoder(lib.TransformerDecoderLayer(8, 2, 16, 0.0), 2),
        ]
        for lib in (nn, torch.nn)
    ]
    for (layer, module), inputs in zip(zip(*parts, strict=True), (1, 2), strict=True):
        first, second = (get_state_dict(each) for each in layer.layers)
        for name, weight in first.items():
            assert weight is not second[name] and (weight.numpy() == second[name].numpy()).all()
        alike(layer, module)
        check(layer, module, *(array(3, 3, 8) for _ in range(inputs)), tolerance=5e-5)


def test_transformer_that_looks_back_only():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    module = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    alike(layer, module)
    x = array(5, 3, 8)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5)
    wanted = module(torch.tensor(x), src_mask=mask).detach().numpy()
    np.testing.assert_allclose(
        layer(Tensor(x), is_causal=True).numpy(), wanted, rtol=1e-4, atol=1e-5
    )
    found = layer(Tensor(x), src_mask=Tensor(mask.numpy())).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "misuse, error, message",
    [
        (lambda: nn.LSTM(3, 5, num_layers=0), ArgumentError, "num_layers=0"),
        (lambda: nn.LSTM(3, 5, proj_size=5), ArgumentError, "proj_size=5; legal .* 0 to 4"),
        (
            lambda: nn.LSTM(3, 5)(Tensor.ones(2, 1, 3), (Tensor.zeros(1, 1, 5),)),
            ShapeError,
            "LSTM: 1 states; legal are 2",
        ),
        (lambda: nn.LSTM(3, 5)(Tensor.ones(2, 4)), ShapeError, "LSTM: x has shape"),
        (lambda: nn.GRU(3, 5)(Tensor.ones(0, 2, 3)), ShapeError, "at least one turn"),
        (lambda: nn.RNN(3, 5, nonlinearity="sin"), ArgumentError, "tanh"),
        (lambda: nn.GRU(3, 5, foo=1), TypeError, "GRU: no argument 'foo'"),
        (
            lambda: nn.GRU(3, 5)(Tensor.ones(2, 2, 3), Tensor.ones(2, 5)),
            ShapeError,
            r"legal is \(1, 2, 5\)",
        ),
        (lambda: nn.GRUCell(3, 5)(Tensor.ones(2, 4)), ShapeError, "GRUCell"),
        (lambda: nn.MultiheadAttention(8, 3), ArgumentError, "what divides"),
        (
            lambda: nn.TransformerEncoderLayer(8, 2, activation="sine"),
            ArgumentError,
            "relu, gelu",
        ),
    ],
)
def test_misuse(misuse, error, message):
    with pytest.raises(error, match=message):
        misuse()
