"""Functions are PyTorch's of the same name, values and gradients."""

import ast
import inspect

import numpy as np
import pytest
import torch
from fuzz_silent import OURS, THEIRS
from silent_calls import FUNCTIONS

from tinygrad import Tensor, dtypes, nn
from tinygrad.base.errors import ArgumentError, DTypeError, RuntimeCheckError, ShapeError
from tinygrad.nn import functional as ours

theirs = torch.nn.functional
RANDOM = np.random.default_rng(0)


def array(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def check(name, *inputs, tolerance=1e-5, **options):
    """The same result, and the same gradients of every float array."""
    mine = [Tensor(x) if isinstance(x, np.ndarray) else x for x in inputs]
    other = [torch.tensor(x) if isinstance(x, np.ndarray) else x for x in inputs]
    floats = [
        i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.dtype == np.float32
    ]
    for i in floats:
        mine[i].requires_grad, other[i].requires_grad = True, True
    out, wanted = getattr(ours, name)(*mine, **options), getattr(theirs, name)(*other, **options)
    np.testing.assert_allclose(out.numpy(), wanted.detach().numpy(), rtol=tolerance, atol=tolerance)
    weights = np.cos(np.arange(wanted.numel(), dtype=np.float32)).reshape(wanted.shape)
    (wanted * torch.tensor(weights)).sum().backward()
    found_all = (out * Tensor(weights)).sum().gradient(*(mine[i] for i in floats))
    Tensor.realize(*found_all)
    for i, found in zip(floats, found_all, strict=True):
        np.testing.assert_allclose(
            found.numpy(), other[i].grad.numpy(), rtol=10 * tolerance, atol=10 * tolerance
        )


@pytest.mark.parametrize(
    "name", ["relu", "relu6", "elu", "selu", "silu", "mish", "tanh", "sigmoid", "logsigmoid"]
)
def test_activations(name):
    check(name, array(3, 5))


@pytest.mark.parametrize(
    "name, options",
    [
        ("gelu", {}),
        ("gelu", {"approximate": "tanh"}),
        ("glu", {"dim": 0}),
        ("softmin", {"dim": 1}),
        ("tanhshrink", {}),
        ("hardshrink", {}),
        ("softshrink", {}),
        ("hardswish", {}),
        ("hardsigmoid", {}),
        ("softplus", {}),
        ("softsign", {}),
    ],
)
def test_more_activations(name, options):
    check(name, array(4, 5), tolerance=3e-5, **options)


def test_what_shrinks_keeps_nan():
    x = Tensor([np.nan, 0.3, np.inf])
    for shrink in (ours.hardshrink, ours.softshrink):
        np.testing.assert_equal(
            shrink(x).numpy(),
            getattr(theirs, shrink.__name__)(torch.tensor([np.nan, 0.3, np.inf])).numpy(),
        )
    check("softplus", array(4, 5) * 9, beta=2.0, threshold=3.0)


def test_layers_with_given_weights():
    check("linear", array(2, 3), array(4, 3), array(4))
    check("conv2d", array(2, 4, 7, 6), array(6, 2, 3, 2), array(6), stride=2, padding=1, groups=2)
    check("conv1d", array(2, 4, 9), array(6, 4, 3), None, dilation=2)
    check("conv3d", array(1, 2, 4, 5, 4), array(3, 2, 2, 3, 2), array(3), padding=(1, 0, 1))
    check("conv_transpose2d", array(2, 4, 3, 5), array(4, 3, 3, 2), array(3), stride=2)
    check("embedding", np.array([[1, 2], [0, 2]]), array(3, 4))
    check("layer_norm", array(3, 4, 5), (4, 5), array(4, 5), array(4, 5))
    check("group_norm", array(2, 6, 3), 3, array(6), array(6))
    check("rms_norm", array(3, 5), (5,), array(5))
    check("rms_norm", array(3, 5), (5,), None, 0.1)


@pytest.mark.parametrize("name, given", [("layer_norm", ((5,),)), ("group_norm", (3,))])
def test_narrow_numbers_are_rounded_once(name, given):
    size = 6 if name == "group_norm" else 5
    inputs = [Tensor(array(*shape)).bfloat16() for shape in ((2, 6, 5), (size,), (size,))]
    x, weight, bias = (torch.tensor(each.float().numpy()) for each in inputs)
    wanted = getattr(theirs, name)(x, *given, weight, bias)
    found = getattr(ours, name)(inputs[0], *given, *inputs[1:])
    assert found.dtype is dtypes.bfloat16
    np.testing.assert_allclose(found.float().numpy(), wanted.numpy(), rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4, 5)])
def test_batch_norm(shape, training):
    check("batch_norm", array(*shape), None, None, array(3), array(3), True)
    mean, var = array(3), np.float32([0.5, 1.0, 2.0])
    x, weight = array(*shape), array(3)
    mine, other = ([kind(t) for t in (mean, var)] for kind in (Tensor, torch.tensor))
    for _ in range(2):
        found = ours.batch_norm(Tensor(x), *mine, Tensor(weight), None, training, 0.3, 1e-3)
        wanted = theirs.batch_norm(
            torch.tensor(x), *other, torch.tensor(weight), None, training, 0.3, 1e-3
        )
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    for a, b in zip(mine, other, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
    with pytest.raises(ArgumentError, match="both averages, or None"):
        ours.batch_norm(Tensor(x), None, None)


def test_what_layers_do_with_given_numbers():
    check("prelu", array(2, 3, 4), np.float32([0.25]))
    check("prelu", array(2, 3, 4), array(3))
    check("threshold", array(2, 3), 0.1, 7.0)
    check("threshold", np.float32([np.nan, np.inf, -np.inf]), 0.1, 7.0)
    check("local_response_norm", array(2, 6, 3), 4, alpha=0.5, beta=0.6, k=1.5)
    check("local_response_norm", array(2, 5, 3, 2), 3)
    assert ours.dropout2d(Tensor.ones(2, 3, 4), training=False).min().item() == 1.0
    dropped = ours.dropout2d(Tensor.ones(40, 5, 4), 0.5, training=True).numpy()
    assert set(np.unique(dropped)) == {0.0, 2.0} and (dropped == dropped[:, :, :1]).all()


def test_pixels_become_channels_and_back():
    check("pixel_shuffle", array(2, 12, 3, 4), 2)
    assert ours.pixel_shuffle(Tensor.zeros(0, 12, 3, 4), 2).shape == (0, 3, 6, 8)
    assert ours.pixel_unshuffle(Tensor.zeros(2, 3, 0, 4), 2).shape == (2, 12, 0, 2)
    assert ours.group_norm(Tensor.zeros(0, 6, 2), 3).tolist() == []
    check("pixel_unshuffle", array(2, 3, 6, 4), 2)


def test_columns_of_what_padding_cuts_off():
    x = array(2, 3, 6, 5)
    found, inside = ours.unfold(Tensor(x), 2, padding=-1), x[:, :, 1:-1, 1:-1]
    np.testing.assert_array_equal(found.numpy(), theirs.unfold(torch.tensor(inside), 2).numpy())


WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": (2, 3), "stride": 2},
    {"kernel_size": 3, "padding": (1, 2), "dilation": (2, 1), "stride": (1, 3)},
]


@pytest.mark.parametrize("options", WINDOWS)
def test_columns(options):
    check("unfold", array(2, 3, 7, 8), **options)
    columns = theirs.unfold(torch.zeros(2, 3, 7, 8), **options).shape
    check("fold", array(*columns), output_size=(7, 8), **options)


@pytest.mark.parametrize("size", [1, 2, 3, 5, (2, 5), (None, 4)])
@pytest.mark.parametrize("name", ["adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_pooling_to_a_size(name, size):
    check(name, array(2, 3, 7, 6), size)


def test_pooling_other_numbers_of_axes():
    check("adaptive_avg_pool1d", array(2, 3, 7), 3)
    check("adaptive_max_pool1d", array(2, 3, 7), 3)
    check("adaptive_avg_pool3d", array(2, 3, 4, 5, 6), (2, 3, 4))


POOLS = [
    ("avg_pool1d", (2, 3, 9), [2], {"ceil_mode": True, "padding": 1}),
    ("avg_pool1d", (3, 9), [(3,)], {"stride": 2}),
    ("avg_pool2d", (2, 3, 7, 6), [3, 2, 1], {"count_include_pad": False}),
    ("avg_pool2d", (3, 7, 6), [(3, 2)], {"divisor_override": 4, "padding": 1}),
    ("avg_pool2d", (3, 9, 8), [3, 2, 1, True, False, 5], {}),
    ("avg_pool3d", (1, 2, 4, 5, 6), [2], {"ceil_mode": True}),
    ("max_pool1d", (2, 3, 9), [3, 2, 1], {}),
    ("max_pool2d", (2, 3, 7, 6), [2, 1, 1, 2], {}),
    ("max_pool2d", (3, 7, 6), [2], {"ceil_mode": True}),
    ("max_pool3d", (1, 2, 4, 5, 6), [(2, 3, 2), 1], {}),
    ("max_pool3d", (1, 2, 6, 7, 8), [3, 1, 1], {}),
    ("lp_pool1d", (2, 3, 9), [2, 3], {"stride": 2}),
    ("lp_pool2d", (2, 3, 6, 7), [4.0, (2, 3)], {"ceil_mode": True}),
    ("lp_pool3d", (1, 2, 4, 5, 4), [2, 2], {}),
    ("lp_pool1d", (2, 3, 9), [1, 3], {}),
    ("lp_pool2d", (1, 2, 4, 5), [-1.0, 2], {}),
    ("adaptive_max_pool3d", (1, 2, 4, 5, 6), [(2, 3, 4)], {}),
]


@pytest.mark.parametrize(("name", "shape", "arguments", "options"), POOLS)
def test_pooling(name, shape, arguments, options):
    check(name, array(*shape), *arguments, **options)


def test_averages_of_halves_are_halves():
    x = Tensor.ones(1, 1, 5).half()
    for options in ({"ceil_mode": True}, {"padding": 1, "count_include_pad": False}):
        assert ours.avg_pool1d(x, 2, **options).dtype is dtypes.float16, options


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_where_the_largest_was_and_back(axes):
    x = RANDOM.permutation(2 * 6**axes).reshape(1, 2, *(6,) * axes).astype(np.float32)
    for name, size in (("max_pool", 2), ("adaptive_max_pool", 4)):
        found = getattr(ours, f"{name}{axes}d")(Tensor(x), size, return_indices=True)
        wanted = getattr(theirs, f"{name}{axes}d")(torch.tensor(x), size, return_indices=True)
        for mine, other in zip(found, wanted, strict=True):
            assert (mine.numpy() == other.numpy()).all()
    there = ours.max_unpool3d if axes == 3 else getattr(ours, f"max_unpool{axes}d")
    pooled = getattr(theirs, f"max_pool{axes}d")(torch.tensor(x), 2, return_indices=True)
    wanted = getattr(theirs, f"max_unpool{axes}d")(*pooled, 2)
    back = there(*(Tensor(t.numpy()) for t in pooled), 2)
    assert (back.numpy() == wanted.numpy()).all()


RESIZED = [
    {"mode": mode, "align_corners": corners, "antialias": smooth, "axes": 2}
    for mode in ("bilinear", "bicubic")
    for corners in (False, True)
    for smooth in (False, True)
] + [
    *(
        {"mode": mode, "axes": n}
        for mode in ("nearest", "nearest-exact", "area")
        for n in (1, 2, 3)
    ),
    *({"mode": "linear", "align_corners": corners, "axes": 1} for corners in (False, True)),
    *({"mode": "trilinear", "align_corners": corners, "axes": 3} for corners in (False, True)),
]


@pytest.mark.parametrize("options", RESIZED)
def test_resizing(options):
    options = dict(options)
    axes = options.pop("axes")
    shape = (1, 2, *(5, 7, 4)[:axes])
    for size in ((3, 9, 4)[:axes], (7, 2, 1)[:axes]):
        check("interpolate", array(*shape), size=size, tolerance=3e-5, **options)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_resizing_by_a_factor(mode):
    for factor in (2, 0.6, (1.7, 0.4)):
        check("interpolate", array(1, 2, 5, 7), scale_factor=factor, mode=mode, tolerance=3e-5)
        check(
            "interpolate", array(1, 2, 5, 7), scale_factor=factor, mode=mode,
            recompute_scale_factor=True, tolerance=3e-5,
        )  # fmt: skip


def test_arguments_by_their_names():
    check("softmax", array(3, 4), dim=0)
    check("log_softmax", array(3, 4), dim=1)
    check("leaky_relu", array(5), negative_slope=0.3)
    x = Tensor.ones(2000)
    Tensor.manual_seed(0)
    assert 0.6 < (ours.dropout(x, p=0.3, training=True) > 0).mean().item() < 0.8
    assert ours.dropout(x, p=0.3, training=False) is x


def test_channels_dealt_out():
    x = array(2, 6, 3, 2)
    wanted = torch.channel_shuffle(torch.tensor(x), 3).numpy()
    assert (ours.channel_shuffle(Tensor(x), 3).numpy() == wanted).all()


OUTSIDE = [
    ("zeros", False),
    ("border", True),
    ("reflection", True),
    pytest.param("reflection", False, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("padding_mode", "align_corners"), OUTSIDE)
def test_other_sampling(padding_mode, align_corners):
    options = {"padding_mode": padding_mode, "align_corners": align_corners}
    image, places = array(1, 2, 5, 7), 1.5 * array(1, 3, 4, 2)
    check("grid_sample", image, places, mode="bicubic", tolerance=3e-4, **options)
    image, places = array(1, 2, 3, 4, 5), 1.5 * array(1, 2, 3, 2, 3)
    mode = "nearest" if align_corners else "bilinear"
    check("grid_sample", image, places, mode=mode, tolerance=3e-4, **options)


def test_affine_grid_of_three_axes():
    check("affine_grid", array(2, 3, 4), [2, 1, 2, 3, 4], align_corners=False)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_sampling(mode, padding_mode, align_corners):
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    check("grid_sample", array(2, 3, 5, 7), 1.7 * array(2, 4, 6, 2), tolerance=1e-4, **options)


def test_places_of_narrow_types_are_exact_to_a_pixel():
    image, places = Tensor.arange(3000.0).reshape(1, 1, 1, 3000), np.array([[[[0.25, 0.0]]]])
    for kind in ("half", "bfloat16"):
        found = ours.grid_sample(image, Tensor(places, dtype=kind), padding_mode="border")
        assert found.item() == 1874.5
        assert ours.grid_sample(image.cast(kind), Tensor(places, dtype=kind)).dtype.name == kind


@pytest.mark.parametrize("align_corners", [False, True])
def test_affine_grid(align_corners):
    check("affine_grid", array(2, 2, 3), [2, 3, 4, 5], align_corners=align_corners)


CLASSES, SOFT = np.array([1, 4, 0]), np.random.default_rng(1).random((3, 5)).astype(np.float32)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_a_linear_layer(reduction):
    name, more = "linear_cross_entropy", {"reduction": reduction}
    check(name, array(3, 4), array(5, 4), CLASSES, **more)
    check(name, array(3, 4), array(5, 4), CLASSES, ignore_index=4, label_smoothing=0.2, **more)
    check(name, array(4), array(5, 4), np.array(3), **more)
    check(name, array(3, 4), array(5, 2, 4), np.array([[1, 4], [0, 0], [2, 3]]), **more)
    x, weight, bias = array(3, 4), array(5, 4), array(5)
    mine, other = (
        lib(make(x), make(weight), make(SOFT), linear_bias=make(bias), **more)
        for lib, make in (
            (ours.linear_cross_entropy, Tensor),
            (theirs.linear_cross_entropy, torch.tensor),
        )
    )
    np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5)


def test_a_layer_that_is_a_loss():
    options = {"out_features": (2,), "bias": True, "ignore_index": 1}
    mine, other = (lib.LinearCrossEntropyLoss(4, 5, **options) for lib in (nn, torch.nn))
    nn.state.load_state_dict(mine, {n: Tensor(t.numpy()) for n, t in other.state_dict().items()})
    x, target = array(3, 4), np.array([[1, 4], [0, 0], [2, 3]])
    wanted = other(torch.tensor(x), torch.tensor(target)).item()
    np.testing.assert_allclose(mine(Tensor(x), Tensor(target)).item(), wanted, rtol=1e-5)


def test_misuse_of_a_layer_that_is_a_loss():
    x, weight = Tensor.ones(3, 4), Tensor.ones(5, 4)
    with pytest.raises(ShapeError, match=r"linear_cross_entropy: x \(3, 4\), .*\(5, 3\).*legal"):
        ours.linear_cross_entropy(x, Tensor.ones(5, 3), Tensor([1, 2, 3]))
    with pytest.raises(ShapeError, match=r"linear_bias \(4,\); legal"):
        ours.linear_cross_entropy(x, weight, Tensor([1, 2, 3]), linear_bias=Tensor.ones(4))
    with pytest.raises(ArgumentError, match="ignore_index=-100 beside probabilities"):
        ours.linear_cross_entropy(x, weight, Tensor(SOFT), ignore_index=-100)


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_attention_with_given_weights(apart, more):
    q, k, v = array(4, 2, 6), array(5, 2, 6), array(5, 2, 6)
    padding, mask = np.zeros((2, 5), bool), np.triu(np.ones((4, 5), bool), 2)
    padding[1, 3:] = True
    biases = (array(18), array(1, 1, 6), array(1, 1, 6)) if more else (None, None, None)
    weight = None if apart else array(18, 6)
    given = dict.fromkeys(("q", "k", "v"))
    if apart:
        given = {name: array(6, 6) for name in given}
    named = {f"{name}_proj_weight": w for name, w in given.items()}
    named |= {"key_padding_mask": padding, "attn_mask": mask}
    out = array(6, 6), array(6) if more else None
    plain = {"training": False, "use_separate_proj_weight": apart, "average_attn_weights": more}
    args = (q, k, v, 6, 3, weight, *biases, more, 0.5, *out)
    found = []
    for lib, make in ((ours, Tensor), (theirs, torch.tensor)):
        arrays = [make(a) if isinstance(a, np.ndarray) else a for a in args]
        options = {n: None if a is None else make(a) for n, a in named.items()}
        found.append(lib.multi_head_attention_forward(*arrays, **options, **plain))
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


def test_misuse_of_attention_with_given_weights():
    x, w = Tensor.ones(4, 6), Tensor.ones(6, 6)
    with pytest.raises(ArgumentError, match="use_separate_proj_weight=False without.*legal"):
        ours.multi_head_attention_forward(
            x, x, x, 6, 3, None, None, None, None, False, 0.0, w, None
        )


def test_gumbel_softmax_draws_by_probability():
    Tensor.manual_seed(0)
    logits = Tensor([[0.0, np.log(3.0)]]).expand(4000, 2)
    drawn = ours.gumbel_softmax(logits, hard=True)
    np.testing.assert_allclose(drawn.numpy().sum(1), 1, atol=1e-6)
    assert abs(drawn.numpy()[:, 1].mean() - 0.75) < 0.03


@pytest.mark.parametrize(
    "misuse, error, message",
    [
        (lambda x: ours.pixel_shuffle(x, 2), ShapeError, r"C·4, H, W"),
        (lambda x: ours.pixel_unshuffle(x, 2), ShapeError, "multiples of 2"),
        (lambda x: ours.fold(x, 3, 2), ShapeError, "fold: columns"),
        (lambda x: ours.grid_sample(x, x), ShapeError, "grid_sample"),
        (lambda x: ours.adaptive_avg_pool2d(x, 0), ShapeError, "2 sizes above 0"),
        (lambda x: ours.avg_pool1d(x, 2), ShapeError, "1 axes"),
        (lambda x: ours.max_pool2d(x, (1, 2, 3)), ArgumentError, "2 of them"),
        (lambda x: ours.channel_shuffle(x, 2), ShapeError, "what divides"),
        (lambda x: ours.interpolate(x), ArgumentError, "give one"),
        (lambda x: ours.interpolate(x, 2, mode="cosine"), ArgumentError, "legal are nearest"),
        (lambda x: ours.grid_sample(x, x, mode="cubic"), ArgumentError, "bicubic"),
        (lambda x: ours.affine_grid(x, (1, 1, 2, 2)), ShapeError, "theta"),
        (lambda x: ours.glu(x), ShapeError, "no halves"),
        (lambda x: ours.gelu(x, "erf"), ArgumentError, "none.* and .*tanh"),
        (lambda x: ours.group_norm(x, 2), ShapeError, "what divides"),
        (lambda x: ours.layer_norm(x, (4,)), ShapeError, "legal is"),
        (
            lambda x: ours.rms_norm(x.cast("complex64"), x.shape[-1:]),
            DTypeError,
            "finfo: .*complex64",
        ),
    ],
)
def test_misuse(misuse, error, message):
    with pytest.raises(error, match=message):
        misuse(Tensor.ones(3, 3, 5, 5))


# ---- what fewer programs use ---------------------------------------------------------------------

BAG = np.array([1, 2, 4, 4, 0, 3])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 4, -3])
def test_embedding_bag(mode, padding):
    check("embedding_bag", BAG.reshape(2, 3), array(5, 4), mode=mode, padding_idx=padding)
    starts = np.array([0, 2, 2, 5])
    check("embedding_bag", BAG, array(5, 4), starts, mode=mode, padding_idx=padding)
    ends = {"include_last_offset": True, "mode": mode, "padding_idx": padding}
    check("embedding_bag", BAG, array(5, 4), np.array([0, 3, 6]), **ends)
    empty = ours.embedding_bag(Tensor(BAG[:0]), Tensor(array(5, 4)), Tensor([0, 0]), mode=mode)
    assert empty.tolist() == [[0.0] * 4] * 2


def test_embedding_bag_with_weights_and_embedding_with_padding():
    weights = array(2, 3)
    check("embedding_bag", BAG.reshape(2, 3), array(5, 4), mode="sum", per_sample_weights=None)
    found = ours.embedding_bag(
        Tensor(BAG.reshape(2, 3)),
        table := Tensor(array(5, 4)),
        mode="sum",
        per_sample_weights=Tensor(weights),
    )
    wanted = (table.numpy()[BAG.reshape(2, 3)] * weights[..., None]).sum(1)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)
    check("embedding", BAG, array(5, 4), padding_idx=4)
    check("embedding", BAG, array(5, 4), padding_idx=-1)


def test_instance_norm():
    for shape in ((2, 3, 5), (2, 3, 4, 2)):
        check("instance_norm", array(*shape), None, None, array(3), array(3), tolerance=3e-5)
        averages = array(3), np.float32([0.5, 1.0, 2.0])
        (mine, other), x = ([kind(t) for t in averages] for kind in (Tensor, torch.tensor)), None
        x = array(*shape)
        for use in (True, True, False):
            more = None, None, use, 0.3, 1e-3
            found = ours.instance_norm(Tensor(x), *mine, *more)
            wanted = theirs.instance_norm(torch.tensor(x), *other, *more)
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_more_functions():
    check("bilinear", array(2, 6, 3), array(2, 6, 4), array(5, 3, 4), array(5))
    check("bilinear", array(3), array(4), array(5, 3, 4))
    check("upsample_nearest", array(1, 2, 3, 4), scale_factor=2)
    check("upsample_bilinear", array(1, 2, 3, 4), (5, 7))
    for p in (1.0, 2.0, 3.5):
        check("pdist", array(4, 3), p, tolerance=1e-4)
    assert ours.pdist(Tensor(array(1, 3))).shape == (0,)
    check("rrelu", array(3, 5), 0.2, 0.6, training=False)
    slopes = ours.rrelu(Tensor.full((1000,), -1.0), 0.2, 0.6, training=True).numpy()
    assert -0.6 <= slopes.min() < -0.58 and -0.22 < slopes.max() <= -0.2


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_margins(reduction):
    labels = np.array([1, 4, 0])
    for options in ({}, {"p": 2, "margin": 0.3}):
        check("multi_margin_loss", array(3, 5), labels, reduction=reduction, **options)
    weight = Tensor([1.0, 2.0, 0.5, 3.0, 0.1])
    x = array(3, 5)
    found = ours.multi_margin_loss(Tensor(x), Tensor(labels), weight=weight, reduction=reduction)
    wanted = theirs.multi_margin_loss(
        *(torch.tensor(a) for a in (x, labels)),
        weight=torch.tensor(weight.numpy()),
        reduction=reduction,
    )
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)
    several = np.array([[1, 3, -1, 0, 0], [-1, 2, 2, 2, 2], [4, 3, 2, 1, 0]])
    check("multilabel_margin_loss", array(3, 5), several, reduction=reduction)
    check("multilabel_margin_loss", array(5), several[0], reduction=reduction)
    three = array(3, 5), array(3, 5), array(3, 5)
    check("triplet_margin_with_distance_loss", *three, swap=True, reduction=reduction)


def test_dropout_that_keeps_mean_and_variance():
    for name, shape in (("alpha_dropout", (40, 500)), ("feature_alpha_dropout", (400, 50, 2))):
        for p in (0.2, 0.5):
            x = array(*shape)
            found, wanted = (
                getattr(lib, name)(make(x), p, True).numpy()
                for lib, make in ((ours, Tensor), (theirs, torch.tensor))
            )
            same = np.isclose(found, wanted, 1e-5, 1e-6).mean()
            assert (1 - p) ** 2 + p**2 - 0.05 < same < (1 - p) ** 2 + p**2 + 0.05
            assert abs(found.mean()) < 0.04 and abs(found.var() - 1) < 0.08
        assert getattr(ours, name)(Tensor(x), 0.5, False).numpy().tolist() == x.tolist()
        assert not getattr(ours, name)(Tensor(x), 1.0, True).numpy().any()


@pytest.mark.parametrize(
    "misuse, error, message",
    [
        (lambda x, i: ours.embedding_bag(i, x, mode="avg"), ArgumentError, "mode='avg'; legal are"),
        (lambda x, i: ours.embedding_bag(i, x), ShapeError, r"\(bags, n\) without offsets"),
        (lambda x, i: ours.embedding(x, x), ArgumentError, "legal are ints"),
        (lambda x, i: ours.embedding(i, x, 9), ArgumentError, "padding_idx=9 of 2 vectors"),
        (lambda x, i: ours.multi_margin_loss(x, i, p=3), ArgumentError, "p=3; legal are 1, 2"),
        (lambda x, i: ours.multi_margin_loss(x, i[:1]), ShapeError, r"target \(1,\); legal are"),
        (lambda x, i: ours.bilinear(x, x, x), ShapeError, "the weight"),
        (lambda x, i: ours.instance_norm(x), ShapeError, r"legal is \(N, channels, \*any\)"),
        (lambda x, i: ours.rrelu(x, 0.5, 0.2), ArgumentError, "legal is no more than upper"),
        (lambda x, i: ours.alpha_dropout(x, 1.5), ArgumentError, "p=1.5"),
        (lambda x, i: ours.pdist(i), ShapeError, r"legal is \(n, k\)"),
    ],
)
def test_misuse_of_functions_is_told(misuse, error, message):
    with pytest.raises(error, match=message):
        misuse(Tensor.ones(2, 3), Tensor([0, 1]))


# ---- rows that are cut, and counted --------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"norm_type": 1.0}, {"scale_grad_by_freq": True}, {"padding_idx": 1}]
)
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_rows_that_are_too_long_are_cut_where_they_lie(name, options):
    # only the largest is there twice: PyTorch's bags count others by the wrong number
    table, numbers = array(6, 4), np.array([[1, 2, 5], [5, 3, 5]])
    layer, module = (getattr(lib, name)(6, 4, max_norm=1.0, **options) for lib in (nn, torch.nn))
    layer.weight.assign(Tensor(table)).requires_grad_()
    module.weight.data.copy_(torch.tensor(table))
    found, wanted = layer(Tensor(numbers)), module(torch.tensor(numbers))
    found.square().sum().backward()
    wanted.square().sum().backward()
    for mine, other in (
        (found, wanted),
        (layer.weight, module.weight),
        (layer.weight.grad, module.weight.grad),
    ):
        np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_rows_by_how_often_they_were_looked_up(mode):
    options = {"mode": mode, "scale_grad_by_freq": True}
    check("embedding_bag", BAG, array(5, 4), np.array([0, 2, 2, 5]), **options)
    check("embedding", BAG, array(5, 4), scale_grad_by_freq=True)


def test_misuse_of_rows_that_are_cut():
    table, numbers = Tensor(array(5, 4)), Tensor(BAG)
    with pytest.raises(ArgumentError, match="max_norm=-1; legal are numbers from 0"):
        ours.embedding(numbers, table, max_norm=-1)
    with pytest.raises(ArgumentError, match="legal are floats"):
        ours.embedding(numbers, table.cast("int32"), max_norm=1.0)
    with pytest.raises(ArgumentError, match='scale_grad_by_freq with mode="max"'):
        ours.embedding_bag(numbers.reshape(2, 3), table, scale_grad_by_freq=True, mode="max")


@pytest.mark.parametrize(
    "name, more",
    [("relu", ()), ("elu", (0.5,)), ("celu", ()), ("selu", ()), ("hardtanh", (-0.3, 0.4)),
     ("leaky_relu", (0.2,)), ("threshold", (0.1, 7.0))],
)  # fmt: skip
def test_functions_that_end_in_an_underscore_write(name, more):
    x = array(3, 4)
    ours_, theirs_ = Tensor(x).realize(), torch.tensor(x)
    view = ours_[1]
    found = getattr(ours, f"{name}_")(ours_, *more)
    wanted = getattr(theirs, f"{name}_")(theirs_, *more)
    assert found is ours_
    np.testing.assert_allclose(view.numpy(), wanted[1].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["ModuleList", "DataParallel", "SyncBatchNorm", "Buffer"])
def test_what_is_no_layer_here_has_something_instead(name):
    with pytest.raises(AttributeError, match=f"nn has no '{name}'; legal is"):
        getattr(nn, name)


def test_what_is_no_optimizer_here_has_something_instead():
    with pytest.raises(AttributeError, match="no 'AveragedModel'; legal is EMA"):
        _ = nn.optim.AveragedModel
    with pytest.raises(AttributeError, match="nn.optim has no 'Adamm'$"):
        _ = nn.optim.Adamm


def argument_names(name):
    """What PyTorch calls the arguments of a function, of several forms the first."""
    for function in (getattr(theirs, name), getattr(theirs, f"_{name}", None)):
        try:
            names = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            continue
        if names != ["args", "kwargs"]:
            return names
    arguments = torch._C._jit_get_schemas_for_operator(f"aten::{name}")[0].arguments
    return ["input" if each.name == "self" else each.name for each in arguments]


PROGRAMS = [each for line in FUNCTIONS.strip().splitlines() for each in line.split("  ") if each]


@pytest.mark.parametrize("program", PROGRAMS)
def test_arguments_have_pytorchs_names(program):
    call = ast.parse(program.strip(), mode="eval").body
    names = argument_names(call.func.attr)
    named = [ast.keyword(*pair) for pair in zip(names, call.args, strict=False)]
    by_name = ast.unparse(ast.Call(call.func, [], [*named, *call.keywords]))
    found, wanted = eval(by_name, dict(OURS)), eval(by_name, dict(THEIRS))
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


# ---- fractional pooling --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 3, 9, 11), 2, {"output_size": 6}),
        ((2, 3, 9, 11), (3, 2), {"output_size": (4, 7)}),
        ((2, 3, 9, 11), 2, {"output_size": (1, 8)}),
        ((3, 9, 11), 2, {"output_ratio": (0.5, 0.5)}),
        ((2, 3, 9, 10, 11), 2, {"output_size": (4, 5, 6)}),
        ((2, 3, 9, 10, 11), (2, 1, 3), {"output_ratio": (0.5, 0.3, 0.6)}),
    ],
)
def test_fractional_pooling(shape, kernel, options):
    axes = 2 if len(shape) < 5 else 3
    x, lead = array(*shape), (1, *shape)[-axes - 2 : -axes]
    samples = np.random.default_rng(1).random((*lead, axes)).astype(np.float32)
    given = {**options, "return_indices": True}
    name = f"fractional_max_pool{axes}d"
    found = getattr(ours, name)(Tensor(x), kernel, **given, _random_samples=Tensor(samples))
    wanted = getattr(theirs, name)(
        torch.tensor(x), kernel, **given, _random_samples=torch.tensor(samples)
    )
    for mine, their in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine.numpy(), their.numpy())


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_pooling_with_places(axes):
    x, sample = array(2, 3, *(6,) * axes), np.full((2, 3, axes), 0.3, np.float32)
    calls = [("max_pool", (3, 2, 1)), ("adaptive_max_pool", (4,))]
    for name, sizes in calls + [("fractional_max_pool", (2, 3))] * (axes > 1):
        more = [{"_random_samples": kind(sample)} for kind in (Tensor, torch.tensor)]
        more = more if "fractional" in name else [{}, {}]
        called = f"{name}{axes}d_with_indices"
        found = getattr(ours, called)(Tensor(x), *sizes, **more[0])
        wanted = getattr(theirs, called)(torch.tensor(x), *sizes, **more[1])
        for mine, their in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine.numpy(), their.numpy())


def test_fractional_pooling_draws_windows_that_hold_the_last_element():
    x = np.zeros((1, 50, 9, 9), np.float32)
    x[..., -1, -1] = 1
    layer = nn.FractionalMaxPool2d(2, output_ratio=0.6)
    assert layer(Tensor(x)).numpy()[..., -1, -1].all()
    assert (
        len(np.unique(layer(Tensor(array(1, 1, 9, 9))._copied().expand(1, 9, 9, 9)).numpy())) > 25
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "output_size=None, output_ratio=None; legal is one of them"),
        ({"output_size": 9}, r"\(9, 9\) to \(9, 9\)"),
        ({"output_ratio": 1.5}, "between 0 and 1"),
        ({"output_size": (1, 2, 3)}, "or 2 of them"),
    ],
)
def test_misuse_of_fractional_pooling(options, message):
    with pytest.raises((ArgumentError, ShapeError), match=f"fractional_max_pool2d: .*{message}"):
        ours.fractional_max_pool2d(Tensor.ones(1, 1, 9, 9), 2, **options)


UNFIT = {
    "weight of a class": lambda: ours.multi_margin_loss(
        Tensor.ones(3, 4), Tensor([0, 1, 2]), weight=Tensor.ones(3)
    ),
    "one length": lambda: ours.ctc_loss(
        Tensor.zeros(5, 2, 4), Tensor([[1, 1], [1, 2]]), Tensor([5]), Tensor([2, 2])
    ),
    "no vector of lengths": lambda: ours.ctc_loss(
        Tensor.zeros(5, 2, 4), Tensor([[1, 1], [1, 2]]), Tensor([5, 5]), Tensor(2)
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_is_given_for_each_must_be_as_many(name):
    with pytest.raises(ShapeError, match="(multi_margin|ctc)_loss: .*legal is"):
        UNFIT[name]()


@pytest.mark.parametrize("offsets", [[0, 4], [1, 2], [-1, 2], [0, 2, 1]])
def test_bags_that_lie_elsewhere(offsets):
    found = ours.embedding_bag(Tensor([0, 1, 2]), Tensor.ones(3, 4), offsets=Tensor(offsets))
    with pytest.raises(RuntimeCheckError, match="embedding_bag: offsets .* from 0 to at most 3"):
        found.tolist()


def test_sparse_gradients_are_the_same_numbers():
    weight = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    ours.embedding(Tensor([1, 1]), weight, sparse=True).sum().backward()
    assert weight.grad.tolist() == [[0.0, 0.0], [2.0, 2.0]]
