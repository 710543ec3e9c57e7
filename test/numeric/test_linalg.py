"""The names of torch.linalg that are made of tensors, as PyTorch's."""

import math

import numpy as np
import pytest
import torch

from tinygrad import linalg
from tinygrad.base.errors import ArgumentError, LinalgError, ShapeError
from tinygrad.tensor import Tensor

T = torch.linalg


def draw(*shape, seed=0, complex_=False):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + (1j * rng.normal(size=shape) if complex_ else 0)


def check(ours, theirs, *arrays, grad=True):
    xs = [Tensor(a, requires_grad=grad) for a in arrays]
    ts = [torch.tensor(a, requires_grad=grad) for a in arrays]
    mine, goal = ours(*xs), theirs(*ts)
    np.testing.assert_allclose(mine.numpy(), goal.detach().numpy(), rtol=1e-8, atol=1e-9)
    if grad:
        (goal.abs() ** 2).sum().backward()
        for x, g, t in zip(xs, (mine.abs() ** 2).sum().gradient(*xs), ts, strict=True):
            assert g.shape == x.shape
            np.testing.assert_allclose(g.numpy(), t.grad.numpy(), rtol=1e-7, atol=1e-8)


VECTOR = [2, 1, 0, 3, 0.5, -1, math.inf, -math.inf]


@pytest.mark.parametrize("order", VECTOR)
@pytest.mark.parametrize("complex_", [False, True])
def test_vector_norm(order, complex_):
    x = draw(3, 4, complex_=complex_)
    check(lambda t: linalg.vector_norm(t, order, 1), lambda t: T.vector_norm(t, order, 1), x,
          grad=order != 0)  # fmt: skip
    check(lambda t: linalg.vector_norm(t, order, keepdim=True),
          lambda t: T.vector_norm(t, order, keepdim=True), x, grad=False)  # fmt: skip


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
def test_matrix_norm(order):
    check(lambda t: linalg.matrix_norm(t, order), lambda t: T.matrix_norm(t, order), draw(2, 3, 4))
    check(lambda t: linalg.matrix_norm(t, order, (0, 2), True),
          lambda t: T.matrix_norm(t, order, (0, 2), True), draw(2, 3, 4), grad=False)  # fmt: skip


def test_norms_that_choose():
    for order, dim in [(None, None), (None, 0), (2, (0, 1)), (3, 1), ("nuc", None), (1, None)]:
        check(lambda t, o=order, d=dim: linalg.norm(t, o, d),
              lambda t, o=order, d=dim: T.norm(t, o, d), draw(3, 4), grad=False)  # fmt: skip
    assert linalg.vector_norm(Tensor([0.0]), 2).item() == 0.0
    x = Tensor([0.0, 0.0], requires_grad=True)
    assert linalg.vector_norm(x).gradient(x)[0].tolist() == [0.0, 0.0]
    assert linalg.vector_norm(Tensor([1e30, 1e30])).item() == pytest.approx(2**0.5 * 1e30)
    assert linalg.vector_norm(Tensor.zeros(0)).item() == 0.0


@pytest.mark.parametrize("order", [None, 2, -2, 1, "fro", "nuc", math.inf])
def test_cond(order):
    theirs = T.cond
    if order not in (None, 2, -2):  # whose backward of PyTorch's fails

        def theirs(t, p):
            return T.matrix_norm(t, p) * T.matrix_norm(T.inv(t), p)

    check(lambda t: linalg.cond(t, order), lambda t: theirs(t, order), draw(2, 3, 3))


def test_products():
    parts = [draw(*s, seed=i) for i, s in enumerate([(3, 4), (4, 2), (2, 5), (5,)])]
    check(lambda *t: linalg.multi_dot(list(t)), lambda *t: T.multi_dot(t), *parts)
    check(lambda t: linalg.vander(t, 4), lambda t: T.vander(t, N=4), draw(2, 3))
    check(lambda t: linalg.tensorinv(t, 1), lambda t: T.tensorinv(t, 1), draw(4, 2, 2))
    check(linalg.tensorsolve, T.tensorsolve, draw(2, 3, 6), draw(2, 3))
    check(lambda a, b: linalg.tensorsolve(a, b, (0,)), lambda a, b: T.tensorsolve(a, b, (0,)),
          draw(6, 2, 3), draw(2, 3))  # fmt: skip


@pytest.mark.parametrize("complex_", [False, True])
def test_reflections(complex_):
    a, tau = (t.numpy() for t in torch.geqrf(torch.tensor(draw(2, 4, 3, complex_=complex_))))
    check(linalg.householder_product, T.householder_product, a, tau)
    check(linalg.householder_product, T.householder_product, a, tau[..., :2])


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_lu_solve(left, adjoint):
    a, b = draw(2, 3, 3, complex_=True), draw(2, 3, 3, seed=1, complex_=True)
    ours, theirs = linalg.lu_factor(Tensor(a)), T.lu_factor(torch.tensor(a))
    mine = linalg.lu_solve(*ours, Tensor(b), left, adjoint)
    goal = T.lu_solve(*theirs, torch.tensor(b), left=left, adjoint=adjoint)
    np.testing.assert_allclose(mine.numpy(), goal.resolve_conj().numpy(), rtol=1e-8)


def test_named_results():
    a = Tensor(draw(3, 2))
    assert linalg.svd(a, False).Vh.shape == (2, 2) and linalg.qr(a).Q.shape == (3, 2)
    assert linalg.qr(a, "r").Q.shape == (0,) and linalg.qr(a, "complete").Q.shape == (3, 3)
    square = a.mT @ a
    assert linalg.eigh(square).eigenvalues.shape == linalg.eig(square).eigenvalues.shape == (2,)
    assert linalg.slogdet(square).sign.item() == 1.0 and linalg.lu(a).P.shape == (3, 3)
    assert linalg.lstsq(a, a).rank.item() == linalg.matrix_rank(a).item() == 2
    np.testing.assert_allclose(linalg.solve(square, square).numpy(), np.eye(2), atol=1e-9)
    assert linalg.diagonal(Tensor.ones(2, 3, 3)).shape == (2, 3)


MISUSES = [
    (ArgumentError, "two or more", lambda: linalg.multi_dot([Tensor.ones(2)])),
    (ArgumentError, "fro, nuc", lambda: linalg.matrix_norm(Tensor.ones(2, 2), 3)),
    (ArgumentError, "legal is a matrix", lambda: linalg.norm(Tensor.ones(2), "fro", 0)),
    (ShapeError, "householder",
     lambda: linalg.householder_product(Tensor.ones(2, 3), Tensor([1.0]))),
    (ShapeError, "tensorinv", lambda: linalg.tensorinv(Tensor.ones(2, 3), 1)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


def test_cholesky_without_an_error():
    whole = np.eye(3) * 2 + 0.5
    a = np.stack([whole, np.diag([1.0, -1, 2]), np.diag([1.0, 2, -1]), -np.eye(3)])
    a = a.astype(np.float32)
    low, info = linalg.cholesky_ex(Tensor(a))
    wanted, places = torch.linalg.cholesky_ex(torch.tensor(a))
    assert info.tolist() == places.tolist() == [0, 2, 3, 1]
    np.testing.assert_allclose(low.numpy()[0], wanted[0], rtol=1e-5)
    assert np.isnan(low.numpy()[1:]).all()
    x, t = Tensor(a[:1], requires_grad=True), torch.tensor(a[:1], requires_grad=True)
    linalg.cholesky_ex(x)[0].sum().backward()
    torch.linalg.cholesky_ex(t)[0].sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad, rtol=1e-5, atol=1e-6)


def test_the_name_of_the_error_is_that_of_torch():
    with pytest.raises(linalg.LinAlgError, match="not positive definite"):
        linalg.cholesky(Tensor([[-1.0]])).realize()


def test_lstsq_by_any_driver():
    a, b = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[1.0], [2.0]])
    wanted = torch.linalg.lstsq(torch.tensor(a.numpy()), torch.tensor(b.numpy()), driver="gels")
    np.testing.assert_allclose(linalg.lstsq(a, b, driver="gels")[0].numpy(), wanted[0], atol=1e-6)


def _with_singular(kind):
    a = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(kind)
    a[1] = np.diag([2, 3, 0, 0])
    return a


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64"])
def test_singular_matrices_are_told_beside_results(kind):
    a, b = _with_singular(kind), np.ones((3, 4, 2), kind)
    pairs = [
        (linalg.inv_ex(Tensor(a)), T.inv_ex(torch.tensor(a))),
        (linalg.solve_ex(Tensor(a), Tensor(b)), T.solve_ex(torch.tensor(a), torch.tensor(b))),
    ]
    for (found, info), (wanted, at) in pairs:
        assert info.tolist() == at.tolist() == [0, 3, 0]
        np.testing.assert_allclose(found.numpy()[::2], wanted.numpy()[::2], 1e-3, 1e-4)
        assert np.isnan(found.numpy()[1]).all()
    assert linalg.lu_factor_ex(Tensor(a))[2].tolist() == [0, 3, 0]
    with pytest.raises(LinalgError, match=r"matrix \[1\]"):
        Tensor(a).inv_ex(check_errors=True)[0].realize()


def test_gradients_pass_by_singular_matrices():
    x = Tensor(_with_singular("float64"), requires_grad=True)
    x.inv_ex()[0][::2].square().sum().backward()
    y = torch.tensor(_with_singular("float64")[::2], requires_grad=True)
    T.inv(y).square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy()[::2], y.grad.numpy())
    assert (x.grad.numpy()[1] == 0).all()


BOUNDS = {
    "relative": {"rtol": [0.1, 0.5, 0.9]},
    "absolute": {"atol": [0.1, 0.5, 0.0]},
    "both": {"rtol": [0.1, 0.5, 0.9], "atol": [2.0, 0.5, 0.0]},
    "one": {"rtol": 0.3},
}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_a_bound_for_each_matrix(bounds, kind):
    a = _with_singular(kind)
    ours = {name: Tensor(np.array(bound)) for name, bound in bounds.items()}
    theirs = {name: torch.tensor(np.array(bound)) for name, bound in bounds.items()}
    for name in ("pinv", "matrix_rank"):
        found = getattr(linalg, name)(Tensor(a), **ours).numpy()
        np.testing.assert_allclose(found, getattr(T, name)(torch.tensor(a), **theirs), atol=1e-9)


def test_bounds_of_another_batch_are_refused():
    with pytest.raises(ShapeError, match="pinv"):
        Tensor.eye(2).pinv(rtol=Tensor([0.1, 0.2]))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("complex_", [False, True])
def test_indefinite_matrices_by_their_factors(complex_, hermitian, size):
    a = draw(3, size, size, complex_=complex_)
    a = a + (a.conj() if hermitian else a).swapaxes(-1, -2)
    if size > 1:
        a[0] *= 1 - np.eye(size)  # which needs blocks of two
    b = draw(3, size, 2, seed=1, complex_=complex_)
    ours = linalg.ldl_factor(Tensor(a), hermitian)
    theirs = T.ldl_factor(torch.tensor(a), hermitian=hermitian)
    np.testing.assert_allclose(ours.LD.numpy(), theirs.LD.numpy(), rtol=1e-8, atol=1e-9)
    assert ours.pivots.tolist() == theirs.pivots.tolist()
    check(
        lambda x: linalg.ldl_solve(*ours, x, hermitian),
        lambda x: T.solve(torch.tensor(a), x),  # ldl_solve has no gradient there
        b,
    )


@pytest.mark.parametrize(
    "a",
    [
        np.diag([4.0, 0, 3, 0]),
        [[0, 0], [0, 3.0]],
        [[1.0, 1], [1, 1]],
        [[0.0, 1], [1, 0]],
        np.zeros((2, 3, 3)),
        np.zeros((2, 0, 0)),
    ],
)
def test_where_factors_are_zero(a):
    ours, theirs = linalg.ldl_factor_ex(Tensor(a)), T.ldl_factor_ex(torch.tensor(a))
    assert ours.info.tolist() == theirs.info.tolist()
    np.testing.assert_array_equal(ours.LD.numpy(), theirs.LD.numpy())
    if ours.info.sum().item():
        with pytest.raises(LinalgError, match=r"ldl_factor_ex: D is 0 .*legal"):
            linalg.ldl_factor_ex(Tensor(a), check_errors=True)


def test_one_factor_solves_several_and_refuses_what_it_can_not():
    a = draw(4, 4)
    a, b = a + a.T, draw(2, 3, 4, 1, seed=1)
    found = linalg.ldl_solve(*linalg.ldl_factor(Tensor(a)), Tensor(b))
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(a, b), rtol=1e-8, atol=1e-9)
    with pytest.raises(ArgumentError, match="wants a gradient.*solve"):
        linalg.ldl_factor(Tensor(a, requires_grad=True))
    with pytest.raises(ShapeError, match="ldl_solve: "):
        linalg.ldl_solve(*linalg.ldl_factor(Tensor(a)), Tensor(b[..., :3, :]))
    with pytest.raises(ShapeError, match="ldl_factor: .*square|square"):
        linalg.ldl_factor(Tensor(b))
