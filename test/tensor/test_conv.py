"""Convolution, pooling and resizing against PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tensor.check import check, has_large_sizes

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor import Tensor
from tinygrad.uop.op import Ops

CONVS = [
    ((2, 3, 7, 8), (4, 3, 3, 2), {}),
    ((1, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    ((1, 2, 9, 9), (2, 2, 3, 3), {"stride": 2, "padding": (1, 2)}),
    ((1, 2, 9, 9), (2, 2, 3, 3), {"dilation": 2}),
    ((1, 3, 5, 5), (3, 1, 3, 3), {"groups": 3}),
    ((2, 3, 12), (4, 3, 5), {"stride": 3}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 2, 3), {"padding": 1}),
    ((1, 1, 5, 5), (1, 1, 1, 1), {}),
]
THEIRS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
TRANSPOSED = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


@pytest.mark.parametrize(("x", "w", "more"), CONVS)
def test_conv(x, w, more):
    check(
        lambda x, w, b: x.conv2d(w, b, **more),
        lambda x, w, b: THEIRS[x.ndim](x, w, b, **more),
        x,
        w,
        (w[0],),
        atol=1e-5,
    )


def test_padding_forms():
    check(
        lambda x, w: x.conv2d(w, padding=(1, 2, 0, 3)),
        lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 3)), w),
        (1, 2, 5, 5),
        (2, 2, 3, 3),
        atol=1e-5,
    )
    check(
        lambda x, w: x.conv2d(w, padding="same"),
        lambda x, w: F.conv2d(x, w, padding="same"),
        (1, 2, 5, 5),
        (2, 2, 3, 3),
        atol=1e-5,
    )


@pytest.mark.parametrize("one", [[1], (1,)])
def test_one_size_for_all_axes_as_a_sequence(one):
    x, w = (1, 2, 5, 6), (2, 2, 3, 2)
    for name in ("padding", "stride", "dilation"):
        more = {name: one}
        check(lambda x, w, m=more: x.conv2d(w, **m), lambda x, w, m=more: F.conv2d(x, w, **m), x, w)
        check(lambda x, w, m=more: x.conv_transpose2d(w, **m),
            lambda x, w, m=more: F.conv_transpose2d(x, w, **m), x, (2, 2, 3, 2))  # fmt: skip


TRANSPOSES = [
    ((2, 3, 4, 5), (3, 4, 3, 2), {}),
    ((1, 4, 4, 4), (4, 3, 3, 3), {"groups": 2, "stride": 2, "padding": 1, "output_padding": 1}),
    ((1, 2, 4, 4), (2, 2, 3, 3), {"dilation": 2, "stride": 3, "output_padding": 2}),
    ((1, 2, 4, 4), (2, 2, 3, 2), {"dilation": 4, "stride": (3, 2), "output_padding": (2, 3)}),
    ((2, 3, 6), (3, 2, 4), {"stride": 2}),
    ((1, 24, 112), (24, 2, 3), {"stride": 3, "padding": 1}),
]


@pytest.mark.parametrize(("x", "w", "more"), TRANSPOSES)
def test_conv_transpose(x, w, more):
    out = w[1] * more.get("groups", 1)
    check(
        lambda x, w, b: x.conv_transpose2d(w, b, **more),
        lambda x, w, b: TRANSPOSED[x.ndim](x, w, b, **more),
        x,
        w,
        (out,),
        atol=1e-5,
    )


POOLS = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "stride": 1},
    {"kernel_size": (5, 4), "stride": 1, "padding": (1, 2)},
    {"kernel_size": 5, "stride": 2, "padding": 2, "ceil_mode": True},
    {"kernel_size": (7, 5), "stride": (1, 2), "padding": 2},
]


@pytest.mark.parametrize("more", POOLS)
def test_pool(more):
    check(lambda x: x.max_pool2d(**more), lambda x: F.max_pool2d(x, **more), (2, 3, 8, 9))
    check(lambda x: x.avg_pool2d(**more), lambda x: F.avg_pool2d(x, **more), (2, 3, 8, 9))
    check(
        lambda x: x.avg_pool2d(count_include_pad=False, **more),
        lambda x: F.avg_pool2d(x, count_include_pad=False, **more),
        (1, 2, 8, 9),
    )


def test_pool_dilated():
    check(
        lambda x: x.max_pool2d(2, 1, dilation=2),
        lambda x: F.max_pool2d(x, 2, 1, dilation=2),
        (1, 2, 6, 6),
    )
    check(
        lambda x: x.max_pool2d((5, 4), 1, dilation=(1, 2), padding=(2, 1)),
        lambda x: F.max_pool2d(x, (5, 4), 1, dilation=(1, 2), padding=(2, 1)),
        (1, 2, 9, 8),
    )


def test_equal_elements_share_a_pools_gradient():
    x = Tensor.ones(1, 1, 5, 5, requires_grad=True)
    x.max_pool2d(5, 1, padding=2).sum().backward()
    assert np.allclose(x.grad.sum().item(), 25) and x.grad.min().item() > 0


@pytest.mark.parametrize(
    ("size", "stride", "passes"), [(2, 2, 1), (3, 1, 1), (5, 1, 2), (13, 1, 2)]
)
def test_windows_that_overlap_much_are_pooled_along_one_axis_after_the_other(size, stride, passes):
    pooled = Tensor.empty(1, 1, 20, 20).max_pool2d(size, stride)
    assert sum(n.op is Ops.REDUCE_AXIS for n in pooled._node.toposort()) == passes


def test_max_pool_indices_and_back():
    ours = lambda x: x.max_pool2d(2, return_indices=True)  # noqa: E731
    theirs = lambda x: F.max_pool2d(x, 2, return_indices=True)  # noqa: E731
    check(lambda x: ours(x)[1].long(), lambda x: theirs(x)[1], (1, 2, 6, 6), grad=False)
    check(
        lambda x: Tensor.max_unpool2d(*ours(x), 2),
        lambda x: F.max_unpool2d(*theirs(x), 2),
        (1, 2, 6, 6),
        grad=False,
    )


@pytest.mark.parametrize("size", [(3, 7), (12, 5)])
def test_interpolate(size):
    for mode, name in (("linear", "bilinear"), ("nearest", "nearest"), ("nearest-exact",) * 2):
        check(
            lambda x, mode=mode: x.interpolate(size, mode=mode),
            lambda x, name=name: F.interpolate(x, size, mode=name),
            (1, 2, 6, 6),
            atol=1e-5,
            grad=mode == "linear",
        )
    check(
        lambda x: x.interpolate(size, align_corners=True),
        lambda x: F.interpolate(x, size, mode="bilinear", align_corners=True),
        (1, 2, 6, 6),
        atol=1e-5,
    )


X, W = (1, 3, 5, 5), (2, 3, 3, 3)
MISUSES = [
    (ShapeError, "3 channels.* takes 2", lambda: Tensor.ones(X).conv2d(Tensor.ones(2, 2, 3, 3))),
    (ShapeError, "as many axes", lambda: Tensor.ones(3, 5, 5).conv2d(Tensor.ones(W))),
    (ShapeError, "7 wide", lambda: Tensor.ones(X).conv2d(Tensor.ones(2, 3, 7, 7))),
    (ArgumentError, "stride", lambda: Tensor.ones(X).conv2d(Tensor.ones(W), stride=(1, 2, 3))),
    (ArgumentError, "padding", lambda: Tensor.ones(X).conv2d(Tensor.ones(W), padding="some")),
    (ArgumentError, "mode", lambda: Tensor.ones(X).interpolate((3,), mode="cosine")),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


def test_second_derivative_of_conv():
    x = Tensor([[[1.0, 2.0, 3.0, 4.0]]], requires_grad=True)
    w = Tensor([[[0.5, -1.0]]], requires_grad=True)
    (first,) = x.conv2d(w).square().sum().gradient(x)
    tx = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]], requires_grad=True)
    tw = torch.tensor([[[0.5, -1.0]]], requires_grad=True)
    (other,) = torch.autograd.grad(F.conv1d(tx, tw).square().sum(), tx, create_graph=True)
    from tensor.check import close, to_numpy, value

    close(
        value(first.square().sum().gradient(w)[0]),
        to_numpy(torch.autograd.grad(other.square().sum(), tw)[0]),
    )


def test_gradient_of_overlapping_pools_of_many_zeros():
    """Where no window is, nothing is divided, though 0 is the maximum of what a gate made 0."""
    some = np.random.default_rng(0).standard_normal((2, 3, 57, 57), dtype=np.float32)
    x, g = Tensor(np.maximum(some, 0)), Tensor(np.ones((2, 3, 29, 29), dtype=np.float32))
    (got,) = x.max_pool2d(3, 2, padding=1).gradient(x, gradient=g)
    np.testing.assert_allclose(got.numpy().sum(), 2 * 3 * 29 * 29, rtol=1e-5)


def test_a_staged_row_is_filled_as_far_as_unrolled_loops_read_it():
    """The border of a convolution bounds both, and only loops, no copies, stop at a bound."""
    random = np.random.default_rng(0)
    shapes = ((2, 16, 2, 2), (96, 16, 1, 1), (96, 1, 3, 3))
    x, w, v = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
    inner = F.conv2d(torch.tensor(x), torch.tensor(w)).clip(0, 6)
    inner = F.conv2d(F.pad(inner, (0, 1, 0, 1)), torch.tensor(v), groups=96, stride=2)
    long = (64, 4096) if has_large_sizes() else (4, 64)
    for _ in range(2):
        Tensor.ones(long).contiguous().softmax().realize()  # leaves its rows in the scratch
        mine = Tensor(x).conv2d(Tensor(w)).clip(0, 6).pad(((0, 0), (0, 0), (0, 1), (0, 1)))
        found = mine.conv2d(Tensor(v), groups=96, stride=2).clip(0, 6).numpy()
        np.testing.assert_allclose(found, inner.clip(0, 6).numpy(), atol=1e-4)


def test_an_image_that_is_one_number_everywhere():
    one = Tensor([2.0]).realize()
    weight = Tensor.arange(8 * 8 * 3).reshape(8, 8, 3).float().realize()
    made = one.expand(160).reshape(1, 8, 20).conv2d(weight, padding=1)
    wanted = F.conv1d(torch.full((1, 8, 20), 2.0), torch.tensor(weight.numpy()), padding=1)
    assert made.tolist() == wanted.tolist()
