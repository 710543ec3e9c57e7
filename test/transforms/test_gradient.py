"""Each row of the gradient's table against a numerical derivative along a random direction, in
float64 by the NumPy evaluator, and a few against PyTorch; and that no row is missing."""

import math

import numpy as np
import pytest
import tensor_reference
import torch

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.engine.storage import from_host
from tinygrad.tensor import Tensor
from tinygrad.transforms.gradient import CALLS, RULES, gradient
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.verify import verify

DOUBLE = dtypes.float64
DELEGATED = {Ops.SCAN, Ops.CALL, Ops.ITEM}


def leaf(values):
    """A node that holds these numbers."""
    array = np.asarray(values, np.float64)
    return from_host(array.reshape(-1), DOUBLE).reshape(array.shape)


def drawn(shape, low, high, seed):
    return np.random.default_rng(seed).random(shape) * (high - low) + low


def check(function, *shapes, low=0.5, high=2.0, order=2, tolerance=1e-6):
    """Of f(x + t·d) the derivative by t at 0 is gradient·d; and so for the gradient itself."""
    points = [
        drawn(s, low, high, i) if isinstance(s, tuple) else np.asarray(s, np.float64)
        for i, s in enumerate(shapes)
    ]
    ways = [drawn(p.shape, -1, 1, 10 + i) for i, p in enumerate(points)]

    def scalar(xs):
        out = function(*xs)
        weights = leaf(drawn(out.shape, 0.5, 1.5, 99))
        return (out * weights).reduce_axis("add", tuple(range(out.ndim)))

    def along(make, t):
        xs = [leaf(p + t * w) for p, w in zip(points, ways, strict=True)]
        return tensor_reference.evaluate(make(xs)).sum()

    for _ in range(order):
        previous = scalar

        def scalar(xs, previous=previous):
            root = previous(xs)
            verify(root, "tensor")
            total = None
            for part, way in zip(gradient(root, xs, root.const_like(1)), ways, strict=True):
                if part is not None:
                    each = (part * leaf(way)).reduce_axis("add", tuple(range(part.ndim)))
                    each = each.reshape(root.shape)
                    total = each if total is None else total + each
            return root * 0.0 if total is None else total

        step = 1e-5
        numeric = (along(previous, step) - along(previous, -step)) / (2 * step)
        exact = along(scalar, 0.0)
        scale = max(1.0, abs(exact))
        assert abs(numeric - exact) < tolerance * 10 * scale, f"{exact}, numerically {numeric}"


def index(*values):
    return from_host(np.asarray(values, np.int32), dtypes.int32)


def scatter(how):
    return lambda x, u: UOp(Ops.SCATTER, DOUBLE, (x, u, index(0, 2, 0)), (how,))


def mulacc(a, b, c):
    return a.alu(Ops.MULACC, b, c)


WINDOWS = ((0, 2, 2, 1, 1, 0), (1, 3, 1, 2, 0, 1))
ROWS = {
    Ops.ADD: (lambda a, b: a * a + b * b, (3,), (3,)),
    Ops.MUL: (lambda a, b: a * b, (3,), (3,)),
    Ops.FDIV: (lambda a, b: a / b, (3,), (3,)),
    Ops.MULACC: (mulacc, (3,), (3,), (3,)),
    Ops.MAX: (lambda a, b: (a * a).maximum(b * b), (5,), (5,)),
    Ops.POW: (lambda a, b: a.alu(Ops.POW, b), (3,), (3,)),
    Ops.RECIP: (lambda a: a.reciprocal(), (3,)),
    Ops.SQRT: (lambda a: a.sqrt(), (3,)),
    Ops.EXP2: (lambda a: a.exp2(), (3,)),
    Ops.LOG2: (lambda a: a.log2(), (3,)),
    Ops.SIN: (lambda a: a.sin(), (3,)),
    Ops.COS: (lambda a: a.cos(), (3,)),
    Ops.WHERE: (lambda a, b: (a < b).where(a * a, b * b * b), (6,), (6,)),
    Ops.CAST: (lambda a: (a * a).cast(dtypes.float64), (3,)),
    Ops.CHECK: (lambda a: (a * a).check(a > 0, "index", "no"), (3,)),
    Ops.CONTIGUOUS: (lambda a: (a * a).contiguous(), (3,)),
    Ops.DETACH: (lambda a: (a * a).detach(a * a), (3,)),
    Ops.COPY: (lambda a: (a * a).copy_to("CPU"), (3,)),
    Ops.RESHAPE: (lambda a: (a * a).reshape((3, 2)), (2, 3)),
    Ops.EXPAND: (lambda a: (a * a).reshape((3, 1)).expand((3, 4)), (3,)),
    Ops.PERMUTE: (lambda a: (a * a).permute((2, 0, 1)), (2, 3, 4)),
    Ops.PAD: (lambda a: (a * a).pad(((1, 2), (0, 1))), (2, 3)),
    Ops.SHRINK: (lambda a: (a * a).shrink(((1, 2), (0, 2))), (2, 3)),
    Ops.FLIP: (lambda a: (a * a).flip((1,)), (2, 3)),
    Ops.WINDOW: (lambda a: (a * a).window(WINDOWS), (5, 6)),
    Ops.FOLD: (lambda a: (a * a).fold(WINDOWS, (5, 6)), (3, 3, 2, 3)),
    Ops.REDUCE_AXIS: (lambda a: (a * a).reduce_axis("add", (1,)), (2, 3)),
    Ops.RUNNING: (lambda a: (a * a).running("mul", 1), (2, 3)),
    Ops.INDEX: (lambda a: (a * a).index(index(2, 0, 2, 1)), (3, 2)),
    Ops.SCATTER: (scatter("set"), (3,), (3,)),
    Ops.ASSIGN: (lambda a: leaf([1.0, 2.0, 3.0]).assign(a * a), (3,)),
}


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_row(op):
    check(*ROWS[op])


def test_monoids():
    check(lambda a: a.reduce_axis("max", (1,)), (3, 5))
    check(lambda a: a.reduce_axis("mul", (0, 2)), (2, 3, 4))
    check(lambda a: a.reduce_axis("mul", (0,)), [2.0, 0.0, 3.0, 0.5, 0.0])
    check(lambda a: a.reduce_axis("mul", (0,)), [2.0, 0.0, 3.0])
    check(lambda a: (a * a).running("add", 0), (3, 2))
    check(lambda a: (a * a).running("max", 1), (2, 5))
    check(lambda a: a.running("mul", 0), [2.0, 0.0, 3.0, 0.0, 5.0], order=1)
    check(scatter("add"), (3,), (3,))
    check(scatter("max"), (3,), (3,))
    check(scatter("mul"), (3,), (3,))
    check(scatter("mul"), [1.0, 2.0, 3.0], [0.0, 2.0, 4.0], order=1)


def test_index_with_a_gate():
    gate = index(1, 0, 1).cast(dtypes.bool)
    check(lambda a: (a * a).index(index(2, 0, 2), gate=gate), (3, 2))


def test_no_row_is_missing():
    assert set(RULES) | DELEGATED == set(Ops)
    assert not set(RULES) & DELEGATED


def test_what_has_a_row_of_its_own_is_tested():
    silent = {op for op, rule in RULES.items() if rule.__name__ in ("_silent", "_refuse")}
    assert set(RULES) - silent == set(ROWS)


@pytest.mark.parametrize("zeros", [(), (2,), (0,), (1, 3), (0, 1), (0, 2, 4), (4,)])
def test_products_with_zeros_have_all_derivatives(zeros):
    x = drawn((5,), 0.5, 2.0, 7)
    x[list(zeros)] = 0
    at = leaf([0, 1, 1, 1, 0]).cast(dtypes.int32)
    check(lambda x: x.reduce_axis("mul", (0,)), x, order=3)
    check(lambda x: x.running("mul", 0), x, order=3)
    check(lambda x: x.running("mul", 1), np.stack([x, x[::-1], x + 1]))
    check(lambda t, x: t.scatter("mul", x, at), (3,), x)


def test_nothing_passes_where_nothing_should():
    x = leaf([1.5, 2.5])
    for node in (
        x.detach(),
        x.trunc(),
        x.round(),
        (x < 2.0).cast(DOUBLE),
        x.cast(dtypes.int32).cast(DOUBLE),
        x.bitcast(dtypes.int64).bitcast(DOUBLE),
    ):
        assert gradient(node, [x], node.const_like(1)) == [None]


def test_other_leaves_get_none():
    x, y = leaf([1.0]), leaf([2.0])
    assert gradient(x * x, [y], x.const_like(1)) == [None]
    assert gradient(x, [x], y) == [y]


def test_target_in_the_middle_and_below():
    x = leaf([3.0])
    y = x * x
    z = y * y
    above, below = gradient(z, [y, x], z.const_like(1))
    assert tensor_reference.evaluate(above).tolist() == [18.0]
    assert tensor_reference.evaluate(below).tolist() == [108.0]


def test_ties_are_shared_as_pytorch_does():
    values = [1.0, 3.0, 3.0, math.nan]
    others = [1.0, 2.0, 3.0, 3.0]
    a, b = leaf(values), leaf(others)
    ta, tb = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (values, others))
    torch.maximum(ta, tb).sum().backward()
    for ours, theirs in zip(gradient(a.maximum(b), [a, b], a.const_like(1)), (ta, tb), strict=True):
        assert tensor_reference.evaluate(ours).tolist() == theirs.grad.tolist()


def test_power_at_its_edges_as_pytorch_does():
    values, others = [0.0, 0.0, 2.0, -2.0, 0.0], [0.0, 2.0, 0.0, 3.0, 1.0]
    a, b = leaf(values), leaf(others)
    ta, tb = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (values, others))
    torch.pow(ta, tb).sum().backward()
    found = gradient(a.alu(Ops.POW, b), [a, b], a.const_like(1))
    for ours, theirs in zip(found, (ta, tb), strict=True):
        np.testing.assert_allclose(tensor_reference.evaluate(ours), theirs.grad.numpy())


def test_the_gradient_of_a_broadcast_half_is_summed_in_float32():
    x = UOp.const(dtypes.half, 1.0, "CPU").broadcast_to((1,))
    wide = x.expand((5000,))
    (found,) = gradient(wide, [x], wide.const_like(1))
    assert Ops.CAST in {node.op for node in found.toposort()}
    assert tensor_reference.evaluate(found).tolist() == [5000.0]


def test_a_deep_graph_needs_no_recursion():
    x = c = leaf([0.5])
    for _ in range(20_000):
        x = x + c
    (found,) = gradient(x, [c], x.const_like(1))
    assert len(found.toposort()) > 10_000


def test_calls_delegate():
    x = leaf([2.0])
    call = UOp(Ops.CALL, src=(x,), arg=("cube",))
    cube = UOp(Ops.ITEM, DOUBLE, (call,), (0, (1,)))
    with pytest.raises(DTypeError, match="cube has none"):
        gradient(cube, [x], x.const_like(1))
    CALLS["cube"] = lambda node, results: (results[0] * node.src[0] * node.src[0] * 3.0,)
    try:
        (found,) = gradient(cube, [x], x.const_like(1))
    finally:
        del CALLS["cube"]
    assert tensor_reference.evaluate(found).tolist() == [12.0]


def test_kernels_are_refused():
    node = UOp(Ops.LOAD, DOUBLE, (leaf([1.0]),))
    with pytest.raises(DTypeError, match="no derivative"):
        gradient(node, [node.src[0]], leaf([1.0]))


def test_counting():
    assert tensor_reference.evaluate(UOp.arange(5, "CPU")).tolist() == [0, 1, 2, 3, 4]


def test_a_write_to_a_part_passes_the_gradient_of_the_rest():
    x = UOp.const(dtypes.float32, 3.0, "CPU").broadcast_to((2, 3)).contiguous()
    before = (x * 2).contiguous()
    value = UOp.const(dtypes.float32, 7.0, "CPU").broadcast_to((1, 2)).contiguous()
    after = UOp(Ops.ASSIGN, before.dtype, (before.shrink(((0, 1), (1, 3))), value))
    of_x, of_value = gradient(after * after, [x, value], after.const_like(1))
    assert Tensor(of_x).tolist() == [[24, 0, 0], [24, 24, 24]]
    assert Tensor(of_value).tolist() == [[14, 14]]


@pytest.mark.parametrize("size", [(0,), (2, 0), (0, 3, 3)])
def test_the_gradient_by_nothing_is_nothing(size):
    """Though what is computed of it is a constant, and doesn't depend on it."""
    x = Tensor.zeros(*size)
    assert x.sum().gradient(x)[0].shape == size
    assert (x * 2).prod().gradient(x)[0].tolist() == x.tolist()


def test_an_exponentials_gradient_is_not_multiplied_by_ln_2_and_log2_e():
    x = leaf(drawn((3,), -1, 1, 0))
    power = (x * 1.4426950408889634).alu(Ops.EXP2)
    (found,) = gradient(power, [x], power.const_like(2.0))
    assert found is power.const_like(2.0) * power


@pytest.mark.parametrize("of", [lambda x: x.sum(), lambda x: (x * 2).exp().prod()])
def test_a_tensor_without_elements_has_a_gradient_of_its_shape(of):
    x, w = Tensor.zeros(0, 3, requires_grad=True), Tensor([2.0], requires_grad=True)
    for _ in range(3):  # the later ones as plain steps
        x.grad = w.grad = None
        (w.square() + of(x)).sum().backward()
        assert x.grad is not None and x.grad.shape == (0, 3) and x.grad.dtype is x.dtype
        assert w.grad.tolist() == [4.0]
    (w * 3).sum().backward()
    assert w.grad.tolist() == [7.0]


@pytest.mark.parametrize("other", [lambda: Tensor.arange(3.0), lambda: Tensor.linspace(0, 2, 3)])
def test_what_equals_a_start_has_no_part_in_its_gradient(other):
    for _ in range(3):
        w = Tensor.arange(3.0, requires_grad=True)
        (w * other() * Tensor.arange(3.0)).sum().backward()
        assert w.grad.tolist() == [0.0, 1.0, 4.0]
