"""Convolutions of random shape, large enough for register tiles, packed panels and vectors, against
PyTorch in float64: odd sizes, strides, paddings, dilations, groups, one to three axes."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tinygrad.tensor import Tensor

THEIRS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
LONGEST = {1: 90, 2: 34, 3: 10}


def draw(seed):
    """Shapes of x and of the weight, and the options of a convolution."""
    r = random.Random(seed)
    axes = r.choice((1, 2, 2, 2, 2, 3))
    groups = r.choice((1, 1, 1, 2, 4, 12))
    each, made = r.choice((1, 2, 3, 8, 17, 40)), groups * r.choice((1, 2, 5, 12, 24, 33))
    taps = [r.choice((1, 2, 3, 3, 5, 7)) for _ in range(axes)]
    options = {
        "groups": groups,
        "stride": [r.choice((1, 2, 2, 3, 4)) for _ in range(axes)],
        "dilation": [r.choice((1, 1, 1, 2, 3)) for _ in range(axes)],
        "padding": [r.choice((0, t // 2, t - 1)) for t in taps],
    }
    sizes = []
    for tap, gap, pad in zip(taps, options["dilation"], options["padding"], strict=True):
        reach = gap * (tap - 1) + 1
        sizes.append(max(reach - 2 * pad, 1) + r.randint(0, LONGEST[axes]))
    batch = r.choice((1, 1, 2, 3))
    return (batch, groups * each, *sizes), (made, each, *taps), options


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def compare(ours, theirs, depth):
    """Equal up to the rounding of sums of `depth` products."""
    bound = 1e-6 * (depth + 16)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=bound)


def try_conv(seed):
    x_shape, w_shape, options = draw(seed)
    x, w = numbers(seed, *x_shape), numbers(seed + 1, *w_shape)
    exact = THEIRS[x.ndim - 2](torch.from_numpy(x), torch.from_numpy(w), **options)
    found = Tensor(x.astype(np.float32)).conv2d(Tensor(w.astype(np.float32)), **options)
    compare(found, exact, int(np.prod(w_shape[1:])))


def try_gradients(seed, x_shape, w_shape, options):
    """Of a convolution's weighted sum, by both of its sides; and the convolution."""
    given = numbers(seed, *x_shape), numbers(seed + 1, *w_shape)
    theirs = [torch.from_numpy(n).requires_grad_() for n in given]
    ours = [Tensor(n.astype(np.float32)) for n in given]
    exact = THEIRS[len(x_shape) - 2](*theirs, **options)
    scale = numbers(seed + 2, *exact.shape)
    wanted = torch.autograd.grad((exact * torch.from_numpy(scale)).sum(), theirs)
    compare(ours[0].conv2d(ours[1], **options), exact.detach(), int(np.prod(w_shape[1:])))
    result = ours[0].conv2d(ours[1], **options) * Tensor(scale.astype(np.float32))
    positions = x_shape[0] * int(np.prod(exact.shape[2:]))
    depths = w_shape[0] // options["groups"] * int(np.prod(w_shape[2:])), positions
    for one, other, depth in zip(result.sum().gradient(*ours), wanted, depths, strict=True):
        compare(one, other, depth)


def try_block(seed):
    """A residual block's: a product with a steady panel and one with a strided panel."""
    r = random.Random(seed)
    made, own, other = r.choice((7, 24)), r.choice((3, 18)), r.choice((3, 18))
    size, step = r.randint(5, 30), r.choice((1, 2, 3))
    a, b = numbers(seed, 1, own, size, size), numbers(seed + 1, 1, other, size * step, size * step)
    v, w = numbers(seed + 2, made, own, 3, 3), numbers(seed + 3, made, other, 1, 1)
    ta, tb, tv, tw = (torch.from_numpy(n) for n in (a, b, v, w))
    exact = (F.conv2d(ta, tv, padding=1) + F.conv2d(tb, tw, stride=step)).relu()
    a, b, v, w = (Tensor(n.astype(np.float32)) for n in (a, b, v, w))
    compare((a.conv2d(v, padding=1) + b.conv2d(w, stride=step)).relu(), exact, 9 * own + other)


@pytest.mark.parametrize("seed", range(24))
def test_conv(seed):
    try_conv(seed)


@pytest.mark.parametrize("seed", range(12))
def test_gradients(seed):
    try_gradients(seed, *draw(seed))


def test_vectors_along_the_output_channels():
    """Where images are small, or summed over: `loops/vectors/orientation`."""
    try_gradients(1, (8, 64, 7, 7), (64, 64, 3, 3), {"padding": [1, 1], "groups": 1})
    try_gradients(2, (9, 24, 13, 9), (37, 24, 5, 5), {"padding": [2, 0], "groups": 1})
    try_gradients(3, (8, 40, 11, 7), (40, 20, 3, 3), {"padding": [3, 1], "groups": 2, "stride": 2})
    try_gradients(8, (8, 64, 9, 9), (64, 8, 3, 3), {"padding": 1, "groups": 8})
    try_gradients(7, (16, 66, 7, 7), (200, 33, 3, 5), {"dilation": [2, 1], "groups": 2})
    try_gradients(9, (48, 16, 12, 10), (32, 16, 5, 3), {"padding": 1, "groups": 1})
    try_gradients(4, (128, 20, 5, 6), (32, 20, 3, 3), {"padding": 1, "groups": 1})


def test_weights_come_from_memory_once():
    """Rows outside of panels, where they are more than the cache: `loops/vectors/tiling`."""
    try_gradients(1, (1, 32, 7, 7), (512, 32, 3, 3), {"padding": 1, "groups": 1})
    try_gradients(2, (1, 512, 5, 8), (32, 512, 3, 3), {"padding": 1, "groups": 1})


def test_rows_are_one_pixel_of_several_images():
    """And sums end at its border: whole blocks of images, a pixel that sees nothing but border,
    taps that lie apart."""
    try_gradients(4, (32, 20, 7, 7), (32, 20, 5, 5), {"groups": 1})
    try_gradients(5, (8, 24, 5, 6), (40, 24, 3, 3), {"padding": [4, 1], "groups": 1})
    try_gradients(6, (12, 16, 9, 8), (32, 16, 3, 3), {"padding": 2, "dilation": 2, "groups": 1})


FOLDED = {
    "stride 3": ((2, 20, 32, 32), (12, 20, 7, 7), {"stride": 3, "padding": 3}),
    "stride 3, in groups": ((2, 40, 16, 58), (16, 5, 7, 7), {"stride": 3, "groups": 8}),
    "stride 3, rows of 5": ((2, 24, 14, 5), (16, 24, 5, 5), {"stride": 3, "padding": 2}),
    "stride 2, rows of 7": ((3, 24, 14, 7), (40, 24, 3, 3), {"stride": 2, "padding": 1}),
    "stride 2, dilation 2": ((3, 16, 16, 17, 5), (9, 16, 4, 3, 1), {"stride": 2, "dilation": 2}),
    "most windows beyond the border": ((2, 24, 6, 5, 10), (13, 24, 5, 5, 5), {}),
    "one channel a group": ((4, 4, 8, 8, 13), (64, 1, 1, 3, 3), {"dilation": 2, "groups": 4}),
    "stride 3, three axes": ((1, 5, 7, 9, 11), (7, 5, 3, 3, 3), {"stride": 3, "padding": 1}),
}


@pytest.mark.parametrize("name", FOLDED)
def test_gradients_that_visit_taps_under_masks(name):
    """Which taps a pixel has differs from lane to lane, or from row to row:
    `loops/vectors/streams`."""
    x_shape, w_shape, options = FOLDED[name]
    try_gradients(1, x_shape, w_shape, {"groups": 1, **options})


DEPTHWISE = {
    "3x3": ((2, 5, 28, 21), (5, 1, 3, 3), {"padding": 1}),
    "5x5, stride 2, even": ((1, 6, 20, 36), (6, 1, 5, 5), {"padding": 2, "stride": 2}),
    "5x5, stride 2, odd": ((2, 6, 7, 19), (6, 1, 5, 5), {"padding": 2, "stride": 2}),
    "more taps than pixels": ((2, 4, 7, 8), (4, 1, 9, 9), {"padding": 4, "stride": 2}),
    "more taps than registers": ((3, 4, 14, 10), (4, 1, 7, 7), {"padding": 3}),
    "stride 3, dilation 2": ((1, 4, 33, 30), (4, 1, 3, 5), {"dilation": 2, "stride": 3}),
    "more border than rows in a block": ((1, 1, 512, 512), (1, 1, 11, 11), {}),
    "three axes": ((2, 4, 8, 7, 7), (4, 1, 7, 7, 7), {"padding": 3}),
    "three axes, stride 2": ((1, 4, 7, 10, 12), (4, 1, 3, 5, 5), {"padding": 2, "stride": 2}),
}


@pytest.mark.parametrize("name", DEPTHWISE)
def test_windows_of_one_channel_and_their_gradients(name):
    """Pixels that sum taps, taps that sum pixels, phases of a strided window:
    `loops/vectors/stencils`."""
    x_shape, w_shape, options = DEPTHWISE[name]
    try_gradients(1, x_shape, w_shape, {"groups": x_shape[1], **options})


CHANNELS_LAST = {
    "3x3": ((2, 24, 13, 9), 3, {}),
    "5x5, a line of channels and a part": ((1, 20, 12, 30), 5, {}),
    "7x7, of which channels aren't vectors": ((2, 37, 9, 9), 7, {}),
    "5x5, stride 2": ((2, 32, 18, 15), 5, {"stride": 2}),
    "3x3, stride 2": ((2, 16, 17, 20), 3, {"stride": 2}),
    "5x5, stride 2, odd": ((2, 16, 15, 15), 5, {"stride": 2}),
    "3x3, dilation 2": ((1, 16, 10, 21), 3, {"dilation": 2}),
    "7x7, stride 2, odd": ((1, 16, 15, 15), 7, {"stride": 2}),
    "fewer channels than a vector": ((2, 5, 16, 16), 3, {}),
}


@pytest.mark.parametrize("stored", ["image", "result", "both"])
@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_depthwise_convolutions_of_what_lies_channels_last(name, stored):
    """An image, or a result and the gradient of it, that is stored with its channels last; the
    function of the image makes it no plain read."""
    shape, size, how = CHANNELS_LAST[name]
    how = {"groups": shape[1], "padding": size // 2, **how}
    x, w, bias = numbers(0, *shape), numbers(1, shape[1], 1, size, size), numbers(2, shape[1])

    def results(x, w, bias, conv, gradients, like):
        y = conv(x.relu(), w, bias, **how)
        slopes = like(numbers(3, *y.shape))
        if stored != "image":
            y, slopes = (a.permute(0, 2, 3, 1).contiguous() for a in (y, slopes))
        return y, *gradients(y, x, w, slopes)

    def lying(a):
        return a if stored == "result" else a.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)

    given = [torch.from_numpy(a).requires_grad_() for a in (x, w, bias)]
    wanted = results(
        *given, F.conv2d, lambda y, x, w, g: torch.autograd.grad(y, (x, w), g), torch.from_numpy
    )

    def ours(a):
        return Tensor(a.astype(np.float32)).realize()

    found = results(
        lying(ours(x)).realize(),
        ours(w),
        ours(bias),
        Tensor.conv2d,
        lambda y, x, w, g: y.gradient(x, w, gradient=g),
        ours,
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), atol=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_two_convolutions_in_one_kernel(seed):
    try_block(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 250))
def test_more_convolutions(seed):
    try_conv(seed)
    try_gradients(seed, *draw(seed))
    try_block(seed)


def test_a_panel_that_is_no_whole_number_of_tiles_is_filled_to_its_end_and_no_further():
    """Two products in one kernel, as a residual block ends: 196 pixels in panels of 112, each of a
    tile of 64 and one that is cut off. What was cut off stood in the next row of the panel, which
    the first rows of results fill and the others read."""
    x, w = numbers(0, 1, 16, 14, 14), numbers(1, 140, 16, 1, 1)
    y, v = numbers(2, 1, 32, 28, 28), numbers(3, 140, 32, 1, 1)
    scale, shift = numbers(4, 140), numbers(5, 140)
    norms = [numbers(6, 140), numbers(7, 140) ** 2 + 0.1]

    def block(kind, norm, *given):
        x, w, y, v, *rest = map(kind, given)
        return (norm(x, w, 1, rest) + norm(y, v, 2, rest)).relu()

    def theirs(x, w, stride, rest):
        scale, shift, mean, spread = rest
        return F.batch_norm(F.conv2d(x, w, stride=stride), mean, spread, scale, shift)

    def ours(x, w, stride, rest):
        scale, shift, mean, spread = rest
        made = x.conv2d(w, stride=stride)
        return made.batchnorm(scale, shift, mean, (spread + 1e-5).rsqrt())

    given = (x, w, y, v, scale, shift, *norms)
    wanted = block(torch.from_numpy, theirs, *given).numpy()
    found = block(lambda a: Tensor(a.astype(np.float32)), ours, *given).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-3)
