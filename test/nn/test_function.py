"""Gradients given by hand, beside torch.autograd.Function."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, function, nn
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor.scan import scan
from tinygrad.uop.node import UOp

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)


# ---- each beside PyTorch's -----------------------------------------------------------------------


@function(gradient=lambda grad_out, x: grad_out)
def rounded(x):
    return x.round()


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


@function(gradient=lambda grad_out, x, most: grad_out.clip(-most, most))
def gently(x, most):
    return x * 1


class Gently(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, most):
        ctx.most = most
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g.clip(-ctx.most, ctx.most), None


@function(gradient=lambda grad_out, x, w: (grad_out @ w.T * 2, x.T @ grad_out * 3))
def multiplied(x, w):
    return x @ w


class Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.T * 2, x.T @ g * 3


def _of_both(grads, x, w):
    of_product, of_sum = grads
    return of_product * w + of_sum * 2, (of_product * x).sum(0)


@function(gradient=_of_both)
def both(x, w):
    return x * w, x + x


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w, x + x

    @staticmethod
    def backward(ctx, of_product, of_sum):
        x, w = ctx.saved_tensors
        return of_product * w + of_sum * 2, (of_product * x).sum(0)


@function(gradient=lambda grad_out, x: grad_out * exponential(x))
def exponential(x):
    return x.exp()


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        return g * Exponential.apply(ctx.saved_tensors[0])


def first(parts):
    return parts[0].square().sum()


def all_of(parts):
    return (parts[0] * parts[1]).sum()


CASES = {
    "rounded": (lambda x: (rounded(x) * x).sum(), lambda x: (Rounded.apply(x) * x).sum(), [X]),
    "a number": (
        lambda x: gently(x, 0.5).square().sum(),
        lambda x: Gently.apply(x, 0.5).square().sum(),
        [X],
    ),
    "by name": (
        lambda x: gently(most=0.5, x=x).square().sum(),
        lambda x: Gently.apply(x, 0.5).square().sum(),
        [X],
    ),
    "two": (
        lambda x, w: multiplied(x * 2, w).square().sum(),
        lambda x, w: Multiplied.apply(x * 2, w).square().sum(),
        [X, W],
    ),
    "twice": (
        lambda x, w: multiplied(rounded(x), multiplied(w.T, w).tanh()[:1].expand(3, 2)).sum(),
        lambda x, w: Multiplied.apply(
            Rounded.apply(x), Multiplied.apply(w.T, w).tanh()[:1].expand(3, 2)
        ).sum(),
        [X, W],
    ),
    "several": (lambda x, w: all_of(both(x, w)), lambda x, w: all_of(Both.apply(x, w)), [X, X[0]]),
    "one of several": (
        lambda x, w: first(both(x, w)),
        lambda x, w: first(Both.apply(x, w)),
        [X, X[0]],
    ),
    "of views": (
        lambda x: rounded(x.T[1:].reshape(-1))[2:].square().sum(),
        lambda x: Rounded.apply(x.T[1:].reshape(-1))[2:].square().sum(),
        [X],
    ),
}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_gradient_by_hand(name, computed):
    ours, theirs, arrays = CASES[name]
    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    expected = [torch.tensor(a, requires_grad=True) for a in arrays]
    loss = ours(*tensors)
    wanted = theirs(*expected)
    if computed:
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    loss.backward()
    wanted.backward()
    for mine, other in zip(tensors, expected, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_of_gradients():
    x, t = Tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    (ours,) = exponential(x).square().sum().gradient(x)
    (theirs,) = torch.autograd.grad(Exponential.apply(t).square().sum(), t, create_graph=True)
    (ours,) = (ours.realize() * x).sum().gradient(x)
    (theirs,) = torch.autograd.grad((theirs * t).sum(), t)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


@pytest.mark.parametrize("wrap", [TinyJit, lambda step: step])
def test_a_training_step(wrap):
    w, t = Tensor(W, requires_grad=True), torch.tensor(W, requires_grad=True)
    ours, theirs = nn.optim.SGD([w], lr=0.1), torch.optim.SGD([t], lr=0.1)

    @wrap
    def step(x):
        ours.zero_grad()
        loss = rounded(gently(x @ w, 0.1) * 3).square().mean().backward()
        ours.step()
        return loss.realize()

    for turn in range(5):
        x = X * (turn + 1)
        theirs.zero_grad()
        loss = Rounded.apply(Gently.apply(torch.tensor(x) @ t, 0.1) * 3).square().mean()
        loss.backward()
        theirs.step()
        with Tensor.train():
            assert step(Tensor(x)).item() == pytest.approx(loss.item(), rel=1e-5)
        np.testing.assert_allclose(w.numpy(), t.detach().numpy(), rtol=1e-5)


# ---- where it stands -----------------------------------------------------------------------------


def test_in_a_loop_of_tensors():
    x = Tensor(X, requires_grad=True)
    (state,), _ = scan(lambda s, row: ([s + rounded(row) * 2], [s]), [Tensor.zeros(3)], [x])
    (grad,) = state.sum().gradient(x)
    assert state.tolist() == (X.round() * 2).sum(0).tolist()
    assert (grad.numpy() == 2).all()


def test_on_several_devices_and_of_complex_numbers():
    x = Tensor(X, requires_grad=True).shard(("CPU", "CPU:1"), axis=0)
    assert ((rounded(x) * 3).sum().gradient(x)[0].numpy() == 3).all()
    turned = function(lambda z: z.conj(), gradient=lambda grad_out, z: grad_out * 2)
    z = Tensor([1 + 2j, 3 - 1j])
    assert turned(z).tolist() == [1 - 2j, 3 + 1j]
    assert turned(z).real.sum().gradient(z)[0].tolist() == [2, 2]


def test_the_method_of_a_layer():
    class Scaled:
        def __init__(self):
            self.by = 3.0

        @function(gradient=lambda grad_out, self, x: grad_out * self.by)
        def __call__(self, x):
            return x

    x = Tensor(X, requires_grad=True)
    Scaled()(x).sum().backward()
    assert (x.grad.numpy() == 3).all()


def test_nothing_is_recorded_where_nothing_is_wanted():
    with Tensor.no_grad():
        assert rounded(Tensor(X, requires_grad=True)).requires_grad is False
    assert rounded(Tensor(X, requires_grad=False)).requires_grad is False
    assert rounded(Tensor(X)).requires_grad is None


@pytest.mark.usefixtures("others_are_old")
def test_a_loop_keeps_nothing():
    x, sizes = Tensor(X, requires_grad=True), []
    for _ in range(4):
        x.grad = None
        function(lambda t: t * 2, gradient=lambda grad_out, t: grad_out)(x).sum().backward()
        x.grad.realize()
        gc.collect()
        sizes.append(len(UOp._table))
    assert sizes[-1] <= sizes[-2]


def test_none_lets_no_gradient_pass():
    x, w = Tensor(X, requires_grad=True), Tensor(W, requires_grad=True)
    half = function(Tensor.matmul, gradient=lambda grad_out, x, w: (None, x.T @ grad_out))
    half(x, w).sum().backward()
    assert x.grad.tolist() == (X * 0).tolist() and w.grad.tolist() != (W * 0).tolist()


def test_a_mark():
    @function
    def scaled(x, by):
        return x * by

    assert scaled(Tensor([1, 2]), 3).tolist() == [3, 6]


def test_tensors_in_containers_that_want_no_gradient():
    chosen = function(lambda x, d: x * d["by"][0], gradient=lambda g, x, d: g * d["by"][0])
    x = Tensor(X)
    assert chosen(x, {"by": [Tensor(3.0).detach()]}).sum().gradient(x)[0].tolist()[0] == [3, 3, 3]
    with Tensor.no_grad():
        assert chosen(x, {"by": (Tensor(2.0), 1)}).tolist() == (X * 2).tolist()


def of(gradient, made=lambda x: x * 1):
    x = Tensor(X)
    return lambda: function(made, gradient=gradient)(x).sum().gradient(x)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (of(lambda g, x: (g, g)), ArgumentError, "2 gradients by hand for 1 tensors; legal is one"),
        (of(lambda g, x: g[0]), ShapeError, r"of shape \(3,\) for a tensor of shape \(4, 3\)"),
        (of(lambda g, x: 3), ArgumentError, "a gradient by hand is 3; legal are a tensor and None"),
        (
            of(lambda g, x: g, lambda x: 3),
            ArgumentError,
            "gave int; legal, with a gradient by hand",
        ),
        (
            lambda: function(lambda *, x: x, gradient=lambda g: g)(x=Tensor(X)),
            ArgumentError,
            r"tensors named \['x'\]",
        ),
        (
            lambda: function(lambda d, k: d["x"][0] * k, gradient=lambda g: g)(
                {"x": [Tensor(X)]}, 2
            ),
            ArgumentError,
            "tensors inside a container .* legal are arguments of their own, or their .detach",
        ),
        (lambda: rounded(Tensor(X), 3), TypeError, "too many positional"),
    ],
)
def test_what_is_wrong_is_said(call, error, said):
    with pytest.raises(error, match=said):
        call()
