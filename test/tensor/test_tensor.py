"""The tensor itself: laziness, sharing, reading, backward, what it shows."""

import copy
import pickle

import numpy as np
import pytest
import torch
from tensor.check import value

from tinygrad import nn
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, RuntimeCheckError, ShapeError
from tinygrad.base.settings import Context
from tinygrad.tensor import Tensor
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def test_gradients_of_the_tutorial():
    x = Tensor([2.0], requires_grad=True)
    y = x**2 + 3 * x + 1
    loss = y.sum()
    assert (value(x)[0], value(y)[0]) == (2.0, 11.0)
    assert value(loss.gradient(x)[0]) == 7.0
    x = Tensor([2.0], requires_grad=True)
    assert value((x**2 + 1).log().sum().gradient(x)[0]) == pytest.approx(0.8)


def test_gradient_after_everything_was_computed():
    x = Tensor([[2.0], [3.0]], requires_grad=True)
    y = x * x
    loss = y.sum()
    x.realize(), y.realize(), loss.realize()
    assert value(loss.gradient(x)[0]).tolist() == [[4.0], [6.0]]
    assert value((y * 2).sum().gradient(x)[0]).tolist() == [[8.0], [12.0]]


def test_backward_adds_up():
    x = Tensor([2.0], requires_grad=True)
    (x * x).backward()
    assert value(x.grad).tolist() == [4.0]
    (x * 3).backward()
    assert value(x.grad).tolist() == [7.0]


@pytest.mark.parametrize("made", [lambda p: p * 3, lambda p: (p * 3).realize()])
def test_the_gradient_of_what_replaced_itself_is_by_the_new_value(made):
    p = Tensor([1.0, 2.0], requires_grad=True)
    p.replace(made(p))
    (p * p).sum().backward()
    assert p.grad.tolist() == [6.0, 12.0]


def test_backward_without_requires_grad():
    x, y = Tensor([2.0]), Tensor([3.0], requires_grad=False)
    (x * y).sum().backward()
    assert value(x.grad).tolist() == [3.0] and y.grad is None


def test_backward_reaches_only_who_asked():
    x, y = Tensor([2.0], requires_grad=True), Tensor([3.0])
    (x * y).sum().backward()
    assert value(x.grad).tolist() == [3.0] and y.grad is None


def test_backward_after_item():
    x = Tensor([2.0], requires_grad=True)
    loss = (x * x).sum()
    assert loss.item() == 4.0
    loss.backward()
    assert value(x.grad).tolist() == [4.0]


def test_detach_and_no_grad():
    x = Tensor([2.0], requires_grad=True)
    still = (x * 2).detach().realize()
    assert value((x * still).sum().gradient(x)[0]).tolist() == [4.0]
    with Tensor.no_grad():
        assert (x * 2).requires_grad is False
    same = x.detach().realize()
    assert value((same * 2 + x).sum().gradient(x)[0]).tolist() == [1.0]
    with pytest.raises(ArgumentError, match="requires_grad=False"):  # as in PyTorch
        (same * 2).sum().gradient(x)


def test_what_only_detached_values_were_made_of_gets_no_gradient():
    """As in PyTorch: an optimizer leaves alone what has none, weight decay and all."""
    g, d = Tensor([1.0], requires_grad=True), Tensor([2.0], requires_grad=True)
    made = g * 3
    (d * made.detach()).backward()
    assert g.grad is None and d.grad.tolist() == [3.0]
    (d * made).backward()
    assert g.grad.tolist() == [6.0] and d.grad.tolist() == [6.0]
    for _ in range(3):  # the third time as the times before
        g.grad = d.grad = None
        (d * (g * 3).detach()).sum().backward()
        assert g.grad is None and d.grad.tolist() == [3.0]
    with pytest.raises(ArgumentError, match="doesn't depend on the target"):
        (d * made.detach()).gradient(g)


def test_a_reshaped_target_is_still_a_target():
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    square = x.reshape(2, 2)
    assert value(square.reshape(4, 1).sum().gradient(square)[0]).tolist() == [[1, 1], [1, 1]]


def test_third_derivative():
    x = Tensor([1.5], requires_grad=True)
    y = (x**4).sum()
    for wanted in (13.5, 27.0, 36.0):
        (y,) = y.gradient(x)
        assert value(y)[0] == pytest.approx(wanted)


def test_a_deep_graph():
    c, x = Tensor([0.5, 0.25]), Tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(5000):
        y = (y * c).sin()
    (grad,) = y.sum().gradient(x)
    assert len(grad._node.toposort()) > 10_000


# What was computed of a tensor that says nothing: a gradient by that would have to go on there.


def _computed(x):
    return (x * 2).realize()


CUTS = {
    "used beside it": lambda x: (_computed(x) * x).sum(),
    "used alone": lambda x: _computed(x).sum(),
    "read": lambda x: [loss := (x * x).sum(), loss.item()][0],
    "a view of it": lambda x: (_computed(x)[1:] * x[:1]).sum(),
    "twice": lambda x: ((_computed(x) + 1).realize() * x).sum(),
    "written": lambda x: (Tensor.zeros(2).contiguous().realize().assign(x * 3).realize() * x).sum(),
    "with others": lambda x: [
        Tensor.realize(y := x * 2, z := x.detach() * 3),
        (y * z * x).sum(),
    ][1],
}


@pytest.mark.parametrize("where", [lambda x: x, lambda x: x.realize(), lambda x: x * 1.5 + 1])
@pytest.mark.parametrize("name", CUTS)
def test_a_gradient_that_is_cut_by_computing_is_an_error(name, where):
    x = where(Tensor([2.0, 3.0]))
    root = CUTS[name](x)
    with pytest.raises(ArgumentError, match="made that was computed since"):
        root.gradient(x, materialize_grads=True)
    with pytest.raises(ArgumentError, match="made that was computed since"):
        root.backward()
    x.realize() + 1  # it is computed after what was made of it
    with pytest.raises(ArgumentError, match="made that was computed since"):
        root.gradient(x)


KEPT = {
    "detached": (lambda x, w: (_computed(x).detach() * x).sum(), [4.0, 6.0]),
    "given under no_grad": (lambda x, w: (Tensor.no_grad()(_computed)(x) * x).sum(), [4.0, 6.0]),
    "of another": (lambda x, w: (_computed(w) * x).sum(), [10.0, 14.0]),
    "of another, together": (
        lambda x, w: [Tensor.realize(y := w * 2, x * 2), (y * x).sum()][1],
        [10.0, 14.0],
    ),
    "rounded": (lambda x, w: (_computed(x.round().cast("int32")).float() * x).sum(), [4.0, 6.0]),
    "compared": (lambda x, w: (x > 2).realize().where(x, x * 5).sum(), [5.0, 1.0]),
    "itself": (lambda x, w: [_computed(x), (x * x).sum()][1], [4.0, 6.0]),
    "computed in between": (lambda x, w: [y := x * x, z := y.sum(), y.realize(), z][3], [4.0, 6.0]),
}


@pytest.mark.parametrize("where", [lambda x: x, lambda x: x.realize()])
@pytest.mark.parametrize("name", KEPT)
def test_what_computing_cuts_nothing_of(name, where):
    x, w = where(Tensor([2.0, 3.0])), Tensor([5.0, 7.0])
    make, expected = KEPT[name]
    assert value(make(x, w).gradient(x)[0]).tolist() == expected


def _square(x):
    return x.reshape(2, 1) @ x.reshape(1, 2)


@pytest.mark.parametrize("make", [Tensor.exp, lambda x: x * 2 + 1, Tensor.softmax, _square])
def test_what_is_made_again_of_what_was_computed_is_an_expression_again(make):
    x, start = Tensor([2.0, 3.0]).realize(), Tensor([2.0, 3.0], requires_grad=True)
    before = make(x).realize()
    after = make(x)
    (of_after,) = (after * x).square().sum().gradient(x)
    (expected,) = (make(start) * start).square().sum().gradient(start)
    assert value(of_after).tolist() == value(expected).tolist()
    assert before.tolist() == after.tolist()


def test_what_a_value_was_made_of_is_forgotten_with_it():
    """A loop that computes keeps nothing of the turns before."""
    w, x, kept = Tensor([1.0]).realize(), Tensor([1.0]).realize(), []
    for _ in range(5):
        x = (x * w).realize()
        _ = x + 1
        kept.append(sum(made() is not None for made in x.uop.base.storage.past))
    assert kept[-1] == kept[-2] <= 4
    assert (x * w).sum().gradient(x)[0].item() == 1.0


def test_a_target_is_what_it_is_now_and_whatever_equals_it():
    """A tensor that says nothing is its present version, as PyTorch's results are; an expression
    is every equal one."""
    x = Tensor([3.0]).contiguous().realize()
    before = x * 5
    x += 1
    assert value((before + x * x).sum().gradient(x)[0]).tolist() == [8.0]
    q = Tensor([3.0])
    y, z = q * 2, q * 2
    assert value((y * 5).sum().gradient(z)[0]).tolist() == [5.0]


# ---- laziness and sharing ------------------------------------------------------------------------


@pytest.mark.parametrize("made", [lambda: Tensor(3), lambda: Tensor.full((2,), 3.0)])
def test_a_constant_that_is_computed_changes_no_other(made):
    x, other = Tensor([1, 2]).realize(), made()
    before = [n.op for n in (x * other).uop.toposort()]
    made().realize()
    assert [n.op for n in (x * other).uop.toposort()] == before
    assert [n.op for n in (x * made()).uop.toposort()] == before


@pytest.mark.parametrize("make", ["zeros_like", "ones_like", "empty_like", "rand_like"])
def test_what_is_made_like_a_tensor_is_where_that_is(make):
    x = Tensor([1.0], device="PYTHON")
    assert getattr(x, make)(device=None).device == getattr(x, make)().device == "PYTHON"
    assert getattr(x, make)(device="CPU").device == "CPU"


def test_repr_never_computes():
    x = Tensor([1, 2, 3, 4])
    assert repr(x).startswith("<Tensor <UOp CPU (4,) int (<Ops.COPY: ") or x.device != "CPU"
    assert repr(x).endswith("with grad None>")
    assert x.uop.op is Ops.COPY
    assert "[1, 2, 3, 4]" in repr(x.realize())
    assert "Ops.SHRINK" in repr(x[1:2])


def test_same_expression_is_the_same_node():
    t = Tensor([1, 2, 3, 4])
    a, b = t * 4, t * 4
    assert a is not b and a.uop is b.uop
    a.realize()
    assert a.uop is b.uop and a.uop.op is Ops.BUFFER
    assert b.tolist() == [4, 8, 12, 16]


def test_a_number_is_an_array_of_no_axes_for_numpy():
    assert type(Tensor(1.5).numpy()) is np.ndarray and np.asarray(Tensor(1.5) + 1).shape == ()


@pytest.mark.parametrize(
    "whole",
    [
        lambda x: x.argmax(0),
        lambda x: x.argsort(),
        lambda x: x.sort()[1],
        lambda x: x.multinomial(2),
        lambda x: x.argmax().reshape(1) + Tensor([1]),
    ],
)
def test_whole_numbers_pass_no_gradient(whole):
    """As in PyTorch, an error where nothing else does; the third time as the times before."""
    for _ in range(3):
        x, w = Tensor([1.0, 3.0, 2.0], requires_grad=True), Tensor([2.0], requires_grad=True)
        with pytest.raises(ArgumentError, match="whole numbers"):
            whole(x).float().sum().backward()
        with pytest.raises(ArgumentError, match="whole numbers"):
            whole(x).float().sum().gradient(x)
        assert x.grad is None
        (whole(x).float() * w).sum().backward()
        assert w.grad is not None


@pytest.mark.parametrize("power", [0, 0.0])
def test_the_power_of_0_has_a_gradient_of_zeros(power):
    x = Tensor([0.0, -1.0, 2.0], requires_grad=True)
    (x**power).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_data_that_was_prepared_has_no_gradient_and_is_no_error():
    data, weight = Tensor([[2.0, 4.0]]), Tensor([[1.0], [1.0]])
    prepared = (data / 2).realize()
    (prepared @ weight).sum().backward()
    assert data.grad is None and weight.grad.tolist() == [[1.0], [2.0]]


def test_backward_of_what_was_computed_is_an_error_if_nothing_else_has_a_gradient():
    x = Tensor([1.0, 2.0])
    loss = (x * x).sum()
    assert loss.item() == 5
    with pytest.raises(ArgumentError, match="computed since"):
        loss.backward()


def test_what_was_computed_drops_its_past():
    x = Tensor([1.0])
    for _ in range(50):
        x = (x + 1).realize()
    assert len(x.uop.toposort()) == 3 and x.item() == 51.0


def test_origin_is_found_once_a_line():
    """Python counts through all lines before it."""
    nodes = [(Tensor([1.0]) + number).uop for number in range(3)]
    assert len({id(node.origin) for node in nodes}) == 1


def test_origin_is_the_users_line():
    x = Tensor([1.0]) + 41.5
    assert __file__ in x.uop.origin
    with Context(TRACEMETA=0):
        assert (Tensor([1.0]) + 77.25).uop.origin is None


# ---- reading -------------------------------------------------------------------------------------


def test_reading():
    x = Tensor([[1, 2], [3, 4]])
    assert x.numpy().tolist() == x.tolist() == np.asarray(x).tolist() == x.data().tolist()
    assert x.data().shape == (2, 2)
    assert x[0, 0].item() == 1 and int(x[0, 1]) == 2 and float(x[1, 0]) == 3.0
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    assert len(x) == 2 and x.numel() == 4 and x.nbytes() == 16 and x.size(1) == 2
    assert 3 in x and 7 not in x
    assert Tensor([1.5], dtype="bfloat16").tolist() == [1.5]


def test_numpy_gives_a_copy():
    x = Tensor([1.0]).realize()
    x.numpy()[0] = 5
    assert x.tolist() == [1.0]


def test_copies():
    x = Tensor([1.0, 2.0], requires_grad=True)
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert other.tolist() == [1.0, 2.0] and other.requires_grad is True
    y = x.detach().clone().realize()
    y += 1
    assert x.tolist() == [1.0, 2.0]


def test_numpy_on_the_left():
    assert value(np.float32([1, 2]) * Tensor([3.0, 4.0])).tolist() == [3.0, 8.0]


def test_sequential():
    assert Tensor([1.0]).sequential([lambda x: x + 1, Tensor.square]).tolist() == [4.0]


MISUSES = [
    (ShapeError, "one element", lambda: Tensor.ones(2).backward()),
    (ShapeError, "one element", lambda: Tensor.ones(2).item()),
    (DTypeError, "floats", lambda: Tensor([1]).backward()),
    (ArgumentError, "depend", lambda: Tensor([1.0]).gradient(Tensor([2.0]))),
    (TypeError, "no axis", lambda: len(Tensor(1.0))),
    (TypeError, "no axis", lambda: list(Tensor(1.0))),
    (TypeError, "any", lambda: bool(Tensor([True, False]))),
    (ArgumentError, "each once", lambda: Tensor([1], device=("CPU", "CPU"))),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


def test_a_view_of_a_computed_tensor_passes_gradients():
    w = Tensor([0.5, 2.0, 1.0], requires_grad=True)
    doubled = (w * 2).realize()
    assert value(doubled[1:].sum().gradient(w)[0]).tolist() == [0.0, 2.0, 2.0]
    assert value(doubled.reshape(1, 3).T.sum().gradient(w)[0]).tolist() == [2.0, 2.0, 2.0]
    part = w[1:].realize()  # not computed: it is in memory
    assert value((part * 3).sum().gradient(w)[0]).tolist() == [0.0, 3.0, 3.0]
    x = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
    part = x[:, 1:]
    part.numpy()
    assert value((part * 3).sum().gradient(x)[0]).tolist() == [[0.0, 3.0, 3.0]] * 2


# ---- as others write it --------------------------------------------------------------------------

M = np.array([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], np.float32)
SPELLINGS = {
    "sum(dim)": (lambda t: t.sum(dim=1), lambda: M.sum(1)),
    "sum(dims)": (lambda t: t.sum(dim=(0, 1)), lambda: M.sum()),
    "keepdims": (lambda t: t.mean(axis=1, keepdims=True), lambda: M.mean(1, keepdims=True)),
    "std(unbiased)": (lambda t: t.std(dim=1, unbiased=False), lambda: M.std(1)),
    "std(unbiased) alone": (lambda t: t.std(False), lambda: M.std()),
    "var(unbiased) alone": (lambda t: t.var(True), lambda: M.var(ddof=1)),
    "var_mean(unbiased) alone": (lambda t: t.var_mean(False)[0], lambda: M.var()),
    "var of complex numbers": (lambda t: t.cast("complex64").var(False), lambda: M.var()),
    "to(copy)": (lambda t: t.to(t.device, copy=True).add_(1) - t, lambda: np.ones_like(M)),
    "to(dtype, copy)": (lambda t: t.to(dtypes.int32, copy=True), lambda: M.astype("int32")),
    "memory_format": (lambda t: t.float(memory_format="preserve_format"), lambda: M),
    "svd(driver)": (lambda t: t.svd(driver="gesvd")[1], lambda: np.linalg.svd(M)[1]),
    "lu(pivot)": (lambda t: t[:, :2].lu(pivot=True)[2].diagonal(), lambda: np.float32([4, 4.5])),
    "repeat_interleave(output_size)": (
        lambda t: t.repeat_interleave(2, 1, output_size=6),
        lambda: np.repeat(M, 2, 1),
    ),
    "shrink_to": (lambda t: t.shrink_to(None, 2), lambda: M[:, :2]),
    "shrink_to((..))": (lambda t: t.shrink_to((1, 2)), lambda: M[:1, :2]),
    "pad_to": (lambda t: t.pad_to(3, None), lambda: np.pad(M, ((0, 1), (0, 0)))),
    "softmax(dim)": (lambda t: t.softmax(dim=0).sum(dim=0), lambda: np.ones(3, np.float32)),
    "flip(dims)": (lambda t: t.flip(dims=(0,)), lambda: M[::-1]),
    "cat(axis)": (lambda t: Tensor.cat([t, t], axis=1), lambda: np.hstack([M, M])),
    "np.sum": (np.sum, lambda: M.sum()),
    "np.mean": (lambda t: np.mean(t, axis=0, keepdims=True), lambda: M.mean(0, keepdims=True)),
    "np.std": (np.std, lambda: M.std()),
    "np.any": (lambda t: np.any(t > 5, axis=0), lambda: (M > 5).any(0)),
    "np.max": (lambda t: np.max(t, axis=1), lambda: M.max(1)),
    "np.transpose": (np.transpose, lambda: M.T),
    "np.transpose(axes)": (lambda t: np.transpose(t, (1, 0)), lambda: M.T),
    "cat([..], 1)": (lambda t: Tensor.cat([t, t], 1), lambda: np.hstack([M, M])),
    "stack([..], 1)": (lambda t: Tensor.stack([t, t], 1), lambda: np.stack([M, M], 1)),
    "reshape(shape)": (lambda t: t.reshape(shape=(3, 2)), lambda: M.reshape(3, 2)),
    "permute(dims)": (lambda t: t.permute(dims=(1, 0)), lambda: M.T),
    "permute(order)": (lambda t: t.permute(order=(1, 0)), lambda: M.T),
    "expand(shape)": (lambda t: t.expand(shape=(1, 2, 3)), lambda: M[None]),
    "split(split_size)": (lambda t: t.split(split_size=2, dim=1)[0], lambda: M[:, :2]),
    "topk(sorted)": (lambda t: t.topk(1, sorted=True)[0], lambda: M.max(1, keepdims=True)),
    "triu(k)": (lambda t: t.triu(k=1), lambda: np.triu(M, 1)),
    "clip(a_min)": (lambda t: t.clip(a_min=2, a_max=4), lambda: M.clip(2, 4)),
    "norm(ord)": (lambda t: t.norm(ord=1), lambda: M.sum()),
    "add(alpha)": (lambda t: t.add(t, alpha=-3), lambda: M * -2),
    "sub(alpha)": (lambda t: t.sub(2, alpha=3), lambda: M - 6),
    "round(decimals)": (lambda t: (t / 3).round(decimals=1), lambda: (M / 3).round(1)),
    "round before the point": (lambda t: (t * 30).round(-2), lambda: (M * 30).round(-2)),
    "zeros(size)": (lambda t: Tensor.zeros(size=(2, 3)), lambda: M * 0),
    "ones(shape)": (lambda t: Tensor.ones(shape=(2, 3)), lambda: M * 0 + 1),
    "full(size)": (lambda t: Tensor.full(size=(2, 3), fill_value=1.0), lambda: M * 0 + 1),
    "arange(end)": (lambda t: Tensor.arange(start=1, end=4), lambda: np.arange(1, 4)),
    "gather(index, dim)": (lambda t: t.gather(Tensor([[0], [2]]), 1), lambda: [[1.0], [6.0]]),
    "scatter(value)": (
        lambda t: t.scatter(1, Tensor([[0], [0]]), value=4),
        lambda: M * [0, 1, 1] + [4, 0, 0],
    ),
    "nonzero(as_tuple)": (lambda t: t.nonzero(as_tuple=True)[1], lambda: M.nonzero()[1]),
    "cat(tensors)": (lambda t: Tensor.cat(tensors=[t, t], dim=1), lambda: np.hstack([M, M])),
    "roll(shift)": (lambda t: t.roll(shift=1, axis=0), lambda: np.roll(M, 1, 0)),
    "rot90(axes)": (lambda t: t.rot90(k=1, axes=(0, 1)), lambda: np.rot90(M)),
    "flip(axes)": (lambda t: t.flip(axes=0), lambda: M[::-1]),
    "tensordot(axes)": (lambda t: t.tensordot(t, axes=([1], [1])), lambda: M @ M.T),
    "outer(vec2)": (lambda t: t[0].outer(vec2=t[1]), lambda: np.outer(M[0], M[1])),
    "pad(pad)": (lambda t: t.pad(pad=(1, 0)), lambda: np.pad(M, ((0, 0), (1, 0)))),
    "sum(input)": (lambda t: Tensor.sum(input=t, dim=0), lambda: M.sum(0)),
    "add(input, other)": (lambda t: Tensor.add(input=t, other=2), lambda: M + 2),
    "mm(mat2)": (lambda t: Tensor.mm(input=t, mat2=t.T), lambda: M @ M.T),
    "where(input, other)": (
        lambda t: Tensor.where(condition=t > 2, input=t, other=0),
        lambda: np.where(M > 2, M, 0),
    ),
    "cdist(x1, x2)": (lambda t: Tensor.cdist(x1=t, x2=t[:1])[0], lambda: [0.0]),
    "trapezoid(y)": (lambda t: Tensor.trapezoid(y=t, dx=2.0), lambda: np.trapezoid(M, dx=2.0)),
    "searchsorted(sorted_sequence, input)": (
        lambda t: Tensor.searchsorted(sorted_sequence=Tensor([2, 4]), input=t, out_int32=True),
        lambda: np.searchsorted([2, 4], M),
    ),
    "to(non_blocking)": (lambda t: t.to("CPU", non_blocking=True), lambda: M),
    "clone(memory_format)": (lambda t: t.clone(memory_format=None), lambda: M),
    "tile(reps)": (lambda t: t.tile(reps=(1, 2)), lambda: np.tile(M, (1, 2))),
    "tensor_split(sections)": (lambda t: t.tensor_split(sections=3, dim=1)[2], lambda: M[:, 2:]),
    "tensor_split(a tensor)": (lambda t: t.tensor_split(Tensor([1, 2]), 1)[1], lambda: M[:, 1:2]),
    "tensor_split(one tensor)": (lambda t: t.tensor_split(Tensor(3), 1)[1], lambda: M[:, 1:2]),
    "linspace(num)": (lambda t: Tensor.linspace(0, 1, num=3), lambda: np.linspace(0, 1, num=3)),
    "quantile(method)": (
        lambda t: t.quantile(0.3, method="lower"),
        lambda: np.quantile(M, 0.3, method="lower"),
    ),
    "cov(rowvar)": (lambda t: t.cov(rowvar=False), lambda: np.cov(M, rowvar=False)),
    "corrcoef(rowvar)": (lambda t: t.corrcoef(rowvar=False), lambda: np.corrcoef(M, rowvar=False)),
    "full(a tensor)": (
        lambda t: Tensor.full((2, 3), fill_value=t[0, 1]),
        lambda: np.full((2, 3), M[0, 1]),
    ),
    "full_like(a tensor)": (lambda t: t.full_like(t[0, 1]), lambda: np.full((2, 3), M[0, 1])),
    "new_full(a tensor)": (lambda t: t.new_full((2,), Tensor(3)), lambda: [3.0, 3.0]),
    "normal(a tensor)": (lambda t: Tensor.normal(t, 0.0), lambda: M),
    "normal(tensors)": (lambda t: Tensor.normal(mean=t, std=t[0] * 0), lambda: M),
    "normal(mean, std, size)": (lambda t: Tensor.normal(2.0, 0.0, (2, 3)), lambda: M * 0 + 2),
    "attention(query)": (
        lambda t: Tensor.scaled_dot_product_attention(query=t, key=t, value=t, scale=0.0),
        lambda: np.broadcast_to(M.mean(0), M.shape),
    ),
    "attention(scale)": (
        lambda t: t.scaled_dot_product_attention(t, t, scale=0.0),
        lambda: np.broadcast_to(M.mean(0), M.shape),
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_arguments_by_the_names_of_pytorch_and_numpy(name):
    ours, theirs = SPELLINGS[name]
    np.testing.assert_allclose(value(ours(Tensor(M))), theirs(), rtol=1e-6)


def test_a_tensor_that_fills_another_is_neither_shared_nor_gets_a_gradient():
    one = Tensor(2.0, requires_grad=True)
    full = Tensor.full((2,), one)
    assert not full.requires_grad
    full[0] = 5
    assert (full.tolist(), one.item()) == ([5.0, 2.0], 2.0)
    with pytest.raises(RuntimeCheckError, match="normal: a std below 0"):
        Tensor.normal(Tensor([0.0, 1.0]), Tensor([1.0, -1.0])).realize().tolist()
    with pytest.raises(TypeError, match="no argument 'size_average'"):
        nn.functional.mse_loss(one, one, size_average=True)


NUMBERS = {  # what counts as a number, a whole number or a bool, though it is of another type
    "numpy's whole one": (lambda t: t.topk(np.int64(1), np.int32(1))[0], M.max(1, keepdims=True)),
    "an array's whole one": (lambda t: t.tril(np.array(1)), np.tril(M, 1)),
    "a tensor's whole one": (lambda t: t.select(1, Tensor(2)), M[:, 2]),
    "tensors' whole ones": (lambda t: t.narrow(1, Tensor(1), Tensor(2)), M[:, 1:]),
    "tensors' ends": (
        lambda t: Tensor.linspace(Tensor(0.0), Tensor(1), steps=Tensor(3)),
        np.array([0, 0.5, 1]),
    ),
    "a tensor's bound": (lambda t: Tensor.randint(2, low=Tensor(2), high=Tensor(3)), [2, 2]),
    "numpy's float": (lambda t: t.add(t, alpha=np.float32(0.5)), M * 1.5),
    "an array's float": (lambda t: t.add(t, alpha=np.array(0.5, np.float32)), M * 1.5),
    "a tensor": (lambda t: (-t).leaky_relu(Tensor(0.5)), M * -0.5),
    "a tensor with an axis": (lambda t: (-t).leaky_relu(Tensor([0.5])), M * -0.5),
    "a whole one for a float": (lambda t: t.add(t, alpha=2), M * 3),
    "0 for False": (lambda t: t.sum(1, keepdim=0), M.sum(1)),
    "numpy's bool": (lambda t: t.sum(1, keepdim=np.bool(True)), M.sum(1, keepdims=True)),
    "a correction of True": (lambda t: t.std(1, correction=True), M.std(1, ddof=1)),
    "a variable": (lambda t: t.select(1, UOp.variable("n", 0, 2).bind(1)), M[:, 1]),
    "a mask of numbers": (lambda t: t.masked_fill(t.int() - 5, 0), M * (M == 5)),
    "None, by default": (lambda t: t.argmax(None), M.argmax()),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_counts_as_a_number(name):
    ours, wanted = NUMBERS[name]
    np.testing.assert_allclose(value(ours(Tensor(M))), wanted, rtol=1e-6)


def test_what_others_call_otherwise_is_named():
    t = Tensor(M)
    misused = {
        lambda: t.max(dim=1): "max: no argument 'dim' .*; legal are axis, keepdim",
        lambda: t.max(1).values: "'values'; legal is the result itself: max, min",
        lambda: t.max(1).indices: "'indices'; legal is argmax",
        lambda: t.sum(axis=0, dim=1): "sum: twice .*; legal are axis, keepdim, dtype",
        lambda: t.sum(out=M): "sum: no argument 'out'",
        lambda: t.astype("int32"): r"'astype'; legal is cast\(dtype\)",
        lambda: t.stride(): "legal is nothing: elements are in order",
        lambda: t.to(np.float32): r"device .*float32.* legal are names; .* cast\(dtype\)",
        lambda: Tensor.zeros(2, foo=3): "zeros: no argument 'foo' .*; legal are dtype, device",
        lambda: Tensor.ones(2, size=3): r"ones: .*size \(3,\) in \(2, \(3,\)\)",
        lambda: t.rand_like(seed=3): "rand_like: no argument 'seed' .*; legal are dtype, device",
        lambda: t.argmax((0, 1)): r"argmax: axis=\(0, 1\) of type tuple; legal is int",
        lambda: t.where(t > 2, 0): r"legal is mask.where\(a, b\)",
    }
    for function, words in misused.items():
        with pytest.raises((TypeError, AttributeError, ArgumentError, ShapeError), match=words):
            function()
    assert not hasattr(t, "no_such_thing") and copy.deepcopy(t).tolist() == M.tolist()


AS_PYTORCH_HAS_IT = {  # what `to` takes → dtype, device
    "a dtype": (lambda x: x.to(dtypes.float64), "double", "CPU"),
    "a dtype by name": (lambda x: x.to(dtype=dtypes.float64), "double", "CPU"),
    "a device and a dtype": (lambda x: x.to("PYTHON", dtypes.int8), "char", "PYTHON"),
    "both by name": (lambda x: x.to(device="PYTHON", dtype="int8"), "char", "PYTHON"),
    "a tensor": (
        lambda x: x.to(Tensor([1], dtype=dtypes.int64, device="PYTHON")),
        "long",
        "PYTHON",
    ),
    "a dtype, and it stays": (lambda x: x.to("PYTHON").to(dtypes.int8), "char", "PYTHON"),
    "a dtype, and it stays cut": (
        lambda x: x.to(("CPU", "CPU:1")).to(dtypes.int8),
        "char",
        ("CPU", "CPU:1"),
    ),
}


@pytest.mark.parametrize("name", AS_PYTORCH_HAS_IT)
def test_to_takes_dtypes(name):
    move, dtype, device = AS_PYTORCH_HAS_IT[name]
    moved = move(Tensor([1.0, 2.0], device="CPU"))
    assert (moved.dtype.name, moved.device) == (dtype, device)
    assert moved.tolist() == [1, 2]


OF_NONE = [
    "(x * 2)[1:1].sum()",
    "x.reshape(3, 1)[:0].sum(1)",
    "x.reshape(3, 1)[:0].sum(0)",
    "(x[1:1] ** 2).prod()",
    "x[1:1].mean()",
    "x[1:1].norm()",
    "x[1:1].logsumexp(0)",
    "x[1:1].median()",
    "x.reshape(3, 1)[:0].T @ more[:0].reshape(0, 1)",
    "join(x[1:1], more)",
    "join(more, x[1:1] * 2)",
    "join(x.reshape(3, 1)[:0], more.reshape(2, 1))",
    "x[none].sum()",
    "x[x > 9].sum()",
    "x.gather(0, none).sum()",
    "x[1:1].sort()[0].sum()",
    "x[1:1].topk(0)[0].sum()",
    "x[1:1].cumsum(0).sum()",
    "more.scatter(0, none, x[1:1])",
    "more.scatter_add(0, none, x[1:1])",
    "more.index_add(0, none, x[1:1])",
    "more.index_copy(0, none, x[1:1])",
    "more.masked_scatter(more > 9, x)",
]


@pytest.mark.parametrize("program", OF_NONE)
def test_what_no_element_of_comes_to_has_a_gradient_of_zeros(program):
    found = []
    for make, join in ((Tensor, Tensor.cat), (torch.tensor, lambda *parts: torch.cat(parts))):
        x, none = make([1.0, 2.0, 3.0], requires_grad=True), make(np.zeros(0, np.int64))
        y = eval(program, {"x": x, "none": none, "more": make([-0.0, 5.0]), "join": join})
        y.sum().backward()
        found.append(str((y.requires_grad, y.tolist(), x.grad.tolist())))
    assert found[0] == found[1]


def test_an_optimizer_goes_on_where_a_loss_counts_no_element():
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = nn.optim.SGD([w], lr=0.1, momentum=0.9)
    with Tensor.train():
        for chosen in (w > 0, w > 9):
            optimizer.zero_grad()
            (w * w)[chosen].sum().backward()
            optimizer.step()
    theirs = torch.tensor([1.0, 2.0], requires_grad=True)
    goal = torch.optim.SGD([theirs], lr=0.1, momentum=0.9)
    for chosen in (theirs > 0, theirs > 9):
        goal.zero_grad()
        (theirs * theirs)[chosen].sum().backward()
        goal.step()
    np.testing.assert_allclose(w.numpy(), theirs.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", "complex64"])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles_keep_their_dtype(name, dtype):
    values = np.ones((3, 4)).astype(dtype)
    found, wanted = getattr(Tensor(values), name)(1).numpy(), getattr(np, name)(values, 1)
    assert found.dtype == wanted.dtype and found.tolist() == wanted.tolist()
