"""Methods that PyTorch's programs spell otherwise: new tensors like others, questions, writes in
place, and what is said of those that aren't there."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes
from tinygrad.base.errors import ArgumentError, ShapeError

A = np.cos(np.arange(6, dtype=np.float32)).reshape(2, 3)
B = np.sin(np.arange(6, dtype=np.float32) + 1).reshape(2, 3)
I = np.arange(6).reshape(2, 3) % 4 + 1  # noqa: E741


def check(program, *arrays):
    """The same result, and the same tensors after it, as PyTorch."""
    theirs = [torch.tensor(a) for a in arrays]
    ours = [Tensor(a) for a in arrays]
    wanted, found = program(*theirs), program(*ours)
    pairs = [(found, wanted), *zip(ours, theirs, strict=True)]
    for mine, other in pairs:
        if isinstance(other, torch.Tensor):
            assert tuple(mine.shape) == tuple(other.shape)
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=2e-5, atol=1e-6)
            assert mine.numpy().dtype == other.numpy().dtype or other.dtype == torch.int64
        else:
            assert mine == other


UNARY = "absolute acos asin asinh atan cos cosh deg2rad erf erfc exp2 expm1 fix frac i0 negative "
UNARY += "rad2deg sgn sin sinc sinh tan arccos arcsin arctan arcsinh"
POSITIVE = "log2 log10 log1p lgamma"
BINARY = "arctan2 atan2 copysign divide eq floor_divide fmod ge greater greater_equal gt "
BINARY += "heaviside hypot le less less_equal logical_and logical_or logical_xor lt multiply ne "
BINARY += "nextafter not_equal remainder subtract true_divide"


@pytest.mark.parametrize("name", f"{UNARY} {POSITIVE} {BINARY}".split())
def test_in_place(name):
    x = np.abs(A) + 0.5 if name in POSITIVE.split() else A
    given = (x, B) if name in BINARY.split() else (x,)
    check(lambda t, *more: getattr(t, name + "_")(*more), *given)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"])
def test_whole_numbers_in_place(name):
    check(lambda t, u: getattr(t, name + "_")(u), I, I[::-1].copy())


PROGRAMS = {
    "addcmul_": (lambda a, b: a.addcmul_(b, b, value=2), A, B),
    "addcdiv_": (lambda a, b: a.addcdiv_(b, b + 2), A, B),
    "addmm_": (lambda a, b, c: a.addmm_(b, c), A[:, :2], B, B.T.copy()),
    "baddbmm": (
        lambda a, b: a.baddbmm(b, b.transpose(1, 2), beta=2, alpha=3),
        A[:, :2, None] + A[0, :2],
        B[:, :2, None],
    ),
    "acosh_": (lambda a: (a + 3).acosh_(), A),
    "atanh_": (lambda a: (a / 2).atanh_(), A),
    "bitwise_not_": (lambda a: a.bitwise_not_(), I),
    "clamp_min_": (lambda a: a.clamp_min_(0.2).clamp_max_(0.6), A),
    "cumsum_": (lambda a: a.cumsum_(1).cumprod_(0), A),
    "fill_diagonal_": (lambda a: a.fill_diagonal_(7.0), A),
    "index_add_": (lambda a, b: a.index_add_(0, torch_or_ours(a, [1, 1]), b), A, B),
    "index_copy_": (lambda a, b: a.index_copy_(0, torch_or_ours(a, [1, 0]), b), A, B),
    "index_fill_": (lambda a: a.index_fill_(1, torch_or_ours(a, [2, 0]), 3.0), A),
    "scatter_add_": (lambda a, i, b: a.scatter_add_(1, i - 2, b), A, I % 3 + 2, B),
    "masked_scatter_": (lambda a, b: a.masked_scatter_(a > 0, b), A, B),
    "logit_": (lambda a: (a / 4 + 0.5).logit_(), A),
    "ldexp_": (lambda a, i: a.ldexp_(i), A, I),
    "nan_to_num_": (lambda a: (a / 0).nan_to_num_(1.0, 2.0, 3.0), A),
    "xlogy_": (lambda a, b: a.xlogy_(b.abs()), A, B),
    "renorm_": (lambda a: a.renorm_(2, 0, 0.5), A),
    "digamma of views": (lambda a: (a[0].erf_(), a)[1], A),
    "index_put": (lambda a: a.index_put((torch_or_ours(a, [1, 0]),), torch_or_ours(a, [5.0])), A),
    "index_put_": (lambda a: a.index_put_((a > 0,), torch_or_ours(a, 5.0)), A),
    "index_put of rows that add up": (
        lambda a, b: a.index_put((torch_or_ours(a, [1, -1]),), b, accumulate=True),
        A,
        B,
    ),
    "index_put of numbers that add up": (
        lambda a: a.index_put(
            (torch_or_ours(a, [1, 1, 0]), torch_or_ours(a, [2, -1, 0])),
            torch_or_ours(a, [1.0, 2.0, 3.0]),
            accumulate=True,
        ),
        A,
    ),
    "select_scatter": (lambda a, b: a.select_scatter(b[0], -2, 1), A, B),
    "slice_scatter": (lambda a, b: a.slice_scatter(b[:, :2], 1, 0, 3, 2), A, B),
    "squeeze_": (lambda a: a.unsqueeze(0).squeeze_(0), A),
    "unsqueeze_": (lambda a: a.unsqueeze_(-1), A),
    "t_": (lambda a: a.t_(), A),
    "transpose_": (lambda a: a.transpose_(-1, 0), A),
    "a write to a view in its place": (lambda a: (a.unsqueeze_(0)[0].mul_(2), a)[1], A),
    "adjoint": (lambda a: a.adjoint(), A),
    "diagflat": (lambda a: a.diagflat(-1), A),
    "logaddexp2": (lambda a, b: a.logaddexp2(b), A, B),
    "logaddexp2 of infinities": (
        lambda a, b: a.logaddexp2(b),
        np.float32([np.inf, -np.inf, -np.inf, np.nan]),
        np.float32([np.inf, -np.inf, 1.0, 1.0]),
    ),
    "sum_to_size": (lambda a: a.sum_to_size(1, 3), A),
    "sum_to_size of fewer axes": (lambda a: a.sum_to_size(3), A),
    "view_as": (lambda a, b: a.view_as(b), A, np.zeros((3, 2), np.float32)),
    "type_as": (lambda a, i: a.type_as(i), A, I),
    "new_full": (lambda a: a.new_full((2, 1), 1.5), A),
    "new_zeros": (lambda a: a.new_zeros(2, 3) + a.new_ones((2, 3)), A),
    "new_tensor": (lambda a: a.new_tensor([[1, 2]]), A),
    "byte and char": (lambda i: i.byte() + i.byte() + i.char().byte(), I),
    "equal": (lambda a, b: (a.equal(a), a.equal(b), a.equal(a[:1])), A, B),
    "questions": (
        lambda a: (a.is_contiguous(), a.ndimension(), a.nelement(), a.is_signed(), a.is_leaf),
        A,
    ),
    "is_nonzero": (lambda a: a[0, 0].is_nonzero(), A),
    "is_same_size": (lambda a, b: (a.is_same_size(b), a.is_same_size(b[0])), A, B),
}


def torch_or_ours(like, values):
    return torch.tensor(values) if isinstance(like, torch.Tensor) else Tensor(values)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    program, *arrays = PROGRAMS[name]
    check(program, *arrays)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.view_as(x.reshape(3, 2)).sum_to_size(1, 2),
        lambda x: (x * 2).sin_(),
        lambda x: (x * 1).unsqueeze_(0) ** 2,
        lambda x: (x * 1).cumsum_(1),
        lambda x: x.select_scatter(x[0] * 3, 0, 1),
        lambda x: x.index_put((torch_or_ours(x, [1, 1]),), x * 2, accumulate=True),
        lambda x: x.logaddexp2(x * 2),
        lambda x: (x * 2).detach_() * x,
    ],
)
def test_gradients(program):
    theirs, ours = torch.tensor(A, requires_grad=True), Tensor(A, requires_grad=True)
    for x, made in ((theirs, torch.tensor), (ours, Tensor)):
        out = program(x)
        weights = np.cos(np.arange(6, dtype=np.float32))[: out.numel() if out.ndim < 9 else 6]
        (out.flatten() * made(weights)).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_random_numbers_in_place():
    x = Tensor.zeros(100, 100)
    assert x.normal_(3, 0.5) is x
    assert abs(x.mean().item() - 3) < 0.03 and abs(x.std().item() - 0.5) < 0.03
    x.uniform_(-1, 3)
    assert -1 <= x.min().item() < -0.98 and 2.98 < x.max().item() <= 3
    assert abs(x.exponential_(2.0).mean().item() - 0.5) < 0.03 and x.min().item() >= 0
    assert abs(x.bernoulli_(0.25).mean().item() - 0.25) < 0.03
    assert set(x.flatten().tolist()) == {0.0, 1.0}
    assert x.half().normal_().dtype.name == "half"


MISUSES = {
    "stride": (lambda x: x.stride(), AttributeError, "legal is nothing: elements are in order"),
    "take_along_axis": (lambda x: x.take_along_axis, AttributeError, "legal is gather"),
    "nonsense": (lambda x: x.nonsense, AttributeError, "no attribute 'nonsense'$"),
    "sum_to_size": (lambda x: x.sum_to_size(2, 2), ShapeError, "legal is what broadcasts to it"),
    "is_nonzero": (lambda x: x.is_nonzero(), ArgumentError, "legal is one element"),
    "unsqueeze_": (lambda x: x.requires_grad_().unsqueeze_(0), ArgumentError, "wants a gradient"),
    "fill_diagonal_": (lambda x: x[0].fill_diagonal_(1), ShapeError, "legal are two axes"),
    "uniform_": (lambda x: x.uniform_(3, 1), ArgumentError, "legal is low up to high"),
    "normal_": (lambda x: x.normal_(0, -1), ArgumentError, "std=-1"),
    "normal_ of ints": (lambda x: x.int().normal_(), ArgumentError, "legal are floats"),
    "exponential_": (lambda x: x.exponential_(0), ArgumentError, "lambd=0"),
    "cauchy_": (lambda x: x.cauchy_(0, -1), ArgumentError, "sigma=-1"),
    "geometric_": (lambda x: x.geometric_(1.5), ArgumentError, "p=1.5"),
    "select_scatter": (lambda x: x.select_scatter(x, 0, 1), ShapeError, r"legal is \(3,\)"),
    "index_put": (lambda x: x.index_put((x > 0,), x, accumulate=True), ArgumentError, "of ints"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(name):
    misuse, error, message = MISUSES[name]
    with pytest.raises(error, match=message):
        misuse(Tensor(A))


CALLS = {
    "add": {"other": 2.0, "alpha": 3},
    "mul": {"other": 2.0},
    "pow": {"exponent": 3.0},
    "eq": {"other": 1.0},
    "narrow": {"dim": 0, "start": 1, "length": 1},
    "swapaxes": {"axis0": 0, "axis1": 1},
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_have_pytorchs_names_too(name):
    x = [[1.0, 2.0], [3.0, 4.0]]
    found = getattr(Tensor(x), name)(**CALLS[name])
    assert found.tolist() == getattr(torch.tensor(x), name)(**CALLS[name]).tolist()


def test_arguments_have_names_that_pytorch_had():
    assert Tensor([[1.0, 2.0]]).mul(value=Tensor([3.0, 4.0])).tolist() == [[3.0, 8.0]]
    assert Tensor([[1.0, 2.0]]).narrow(dimension=1, start=1, length=1).tolist() == [[2.0]]


@pytest.mark.parametrize(
    ("arguments", "copies"),
    [
        (("CPU", "float32", True, True), True),
        (("CPU", "float32", True), False),
        ((dtypes.float32, True, True), True),
        ((dtypes.float32, True), False),
        ((Tensor([2.0]), False, True), True),
    ],
)
def test_to_takes_its_arguments_in_the_order_of_torch(arguments, copies):
    x = Tensor([1.0]).realize()
    found = x.to(*arguments)
    assert found.tolist() == [1.0] and (found is not x) == copies
