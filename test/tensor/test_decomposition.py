"""Decompositions and what solves equations: values and gradients as PyTorch's."""

import numpy as np
import pytest
import torch

from tinygrad import TinyJit, linalg
from tinygrad.base.errors import ArgumentError, DTypeError, LinalgError, ShapeError
from tinygrad.tensor import Tensor

KINDS = {"float32": 2e-3, "float64": 1e-7, "complex64": 2e-3, "complex128": 1e-7}


def draw(*shape, kind="float64", seed=0):
    rng = np.random.default_rng(seed)
    imaginary = 1j * rng.normal(size=shape) if kind.startswith("complex") else 0
    return (rng.normal(size=shape) + imaginary).astype(kind)


def wanted(x):
    return x.detach().resolve_conj().numpy()


def check(ours, theirs, *arrays, grad=True):
    """Each result, and the gradients of the weighted sum of all."""
    tolerance = max(KINDS[str(a.dtype)] for a in arrays)
    xs = [Tensor(a, requires_grad=grad) for a in arrays]
    ts = [torch.tensor(a, requires_grad=grad) for a in arrays]
    mine, other = ours(*xs), theirs(*ts)
    if not isinstance(mine, tuple):
        mine, other = (mine,), (other,)
    total, goal = Tensor(0.0), torch.tensor(0.0)
    for i, (one, two) in enumerate(zip(mine, other, strict=True)):
        assert one.numpy().dtype == wanted(two).dtype or not two.is_floating_point()
        np.testing.assert_allclose(one.numpy(), wanted(two), rtol=tolerance, atol=tolerance)
        if grad:
            weights = draw(*one.shape, kind=str(one.numpy().dtype), seed=i + 3)
            total = total + (one * Tensor(weights)).real.sum()
            goal = goal + (two * torch.tensor(weights)).real.sum()
    if not grad:
        return
    goal.backward()
    for x, found, t in zip(xs, total.gradient(*xs), ts, strict=True):
        assert found.shape == x.shape and found.dtype == x.dtype
        scale = float(abs(wanted(t.grad)).max(initial=1.0))
        np.testing.assert_allclose(found.numpy(), wanted(t.grad), tolerance, tolerance * scale)


def hermitian(x):
    eye = x.eye if isinstance(x, Tensor) else torch.eye
    return x @ x.mH + 0.5 * eye(x.shape[-1])


def rebuilt(parts, function):
    """Of U, S, V: what doesn't change with the phases of the vectors."""
    u, s, v = parts
    return u[..., : s.shape[-1]] @ (function(s).unsqueeze(-1) * v[..., : s.shape[-1], :])


T = torch.linalg
SQUARE = {
    "det": (lambda x: x.det(), T.det),
    "slogdet": (lambda x: x.slogdet(), lambda x: tuple(T.slogdet(x))),
    "inv": (lambda x: x.inv(), T.inv),
    "cholesky": (lambda x: hermitian(x).cholesky(), lambda x: T.cholesky(hermitian(x))),
    "upper": (
        lambda x: hermitian(x).cholesky(upper=True),
        lambda x: T.cholesky(hermitian(x), upper=True),
    ),
    "logdet": (lambda x: hermitian(x).logdet(), lambda x: torch.logdet(hermitian(x))),
    "matrix_exp": (lambda x: x.matrix_exp(), T.matrix_exp),
    "matrix_power": (lambda x: x.matrix_power(5), lambda x: T.matrix_power(x, 5)),
    "negative_power": (lambda x: x.matrix_power(-2), lambda x: T.matrix_power(x, -2)),
    "eigh": (
        lambda x: (
            (e := hermitian(x).eigh())[0],
            e[1] @ ((-e[0]).exp().unsqueeze(-1) * e[1].mH),
        ),
        lambda x: (
            (e := T.eigh(hermitian(x)))[0],
            e[1] @ ((-e[0]).exp().unsqueeze(-1) * e[1].mH),
        ),
    ),
    "eigvalsh": (lambda x: hermitian(x).eigvalsh("U"), lambda x: T.eigvalsh(hermitian(x))),
    "eig": (
        lambda x: ((e := x.eig())[1] * e[0].exp().unsqueeze(-2)) @ e[1].inv(),
        lambda x: ((e := T.eig(x))[1] * e[0].exp().unsqueeze(-2)) @ T.inv(e[1]),
    ),
    "eigenvectors": (
        lambda x: (x.eig()[1].abs() ** 4).sum((-2, -1)),
        lambda x: (T.eig(x)[1].abs() ** 4).sum((-2, -1)),
    ),
    "solve": (lambda x: x.solve(x.mT + 1), lambda x: T.solve(x, x.mT + 1)),
    "solve_right": (
        lambda x: x.solve(x.mT + 1, left=False),
        lambda x: T.solve(x, x.mT + 1, left=False),
    ),
    "vectors": (lambda x: x.solve(x[..., 0] + 1), lambda x: T.solve(x, x[..., 0] + 1)),
    "triangular": (
        lambda x: (
            x.solve_triangular(x.mT, upper=True),
            x.solve_triangular(x.mT, upper=False, left=False),
            x.solve_triangular(x.mT, upper=False, unitriangular=True),
        ),
        lambda x: (
            T.solve_triangular(x, x.mT, upper=True),
            T.solve_triangular(x, x.mT, upper=False, left=False),
            T.solve_triangular(x, x.mT, upper=False, unitriangular=True),
        ),
    ),
    "cholesky_solve": (
        lambda x: x.cholesky_solve(hermitian(x).cholesky()),
        lambda x: torch.cholesky_solve(x, T.cholesky(hermitian(x))),
    ),
}


@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.parametrize("kind", ["float32", "complex128"])
def test_square(name, kind):
    check(*SQUARE[name], draw(2, 3, 3, kind=kind))


ONE_TRIANGLE = {  # reads one triangle, and gives both their gradient
    "eigh": (
        lambda x: (e := x.eigh("U"))[1] * e[0].exp().unsqueeze(-2) @ e[1].mH,
        lambda x: (e := T.eigh(x, "U"))[1] * e[0].exp().unsqueeze(-2) @ e[1].mH,
    ),
    "vectors": (
        lambda x: (x.eigh()[1].abs() ** 4).sum(-1),
        lambda x: (T.eigh(x)[1].abs() ** 4).sum(-1),
    ),
    "eigvalsh": (lambda x: x.eigvalsh(), T.eigvalsh),
    "pinv": (lambda x: x.pinv(hermitian=True), lambda x: T.pinv(x, hermitian=True)),
}


@pytest.mark.parametrize("name", ONE_TRIANGLE)
@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_gradients_of_a_symmetric_matrix_are_symmetric(name, kind):
    x = draw(2, 3, 3, kind=kind)
    check(*ONE_TRIANGLE[name], x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(3))


ANY = {
    "qr": (lambda x: x.qr("reduced"), lambda x: tuple(T.qr(x))),
    "lu": (lambda x: x.lu(), lambda x: tuple(T.lu(x))),
    "pinv": (lambda x: x.pinv(), T.pinv),
    "svdvals": (lambda x: x.svdvals(), T.svdvals),
    "svd": (
        lambda x: rebuilt(x.svd(False), lambda s: s.exp()),
        lambda x: rebuilt(T.svd(x, False), torch.exp),
    ),
    "svd_full": (
        lambda x: rebuilt(x.svd(), lambda s: s.exp()),
        lambda x: rebuilt(T.svd(x), torch.exp),
    ),
    "lstsq": (
        lambda x: x.lstsq(x[..., :2] * 2 + 1)[0],
        lambda x: T.pinv(x) @ (x[..., :2] * 2 + 1),
    ),
}


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize(
    ("shape", "kind"),
    [(s, "float64") for s in ((3, 3), (4, 2), (2, 4), (2, 3, 2))]
    + [(s, "complex128") for s in ((4, 2), (2, 4))],
)
def test_any_shape(name, shape, kind):
    check(*ANY[name], draw(*shape, kind=kind))


def test_complete_qr():
    for shape in [(4, 2), (3, 3), (2, 4)]:
        x = draw(*shape)
        check(lambda t: t.qr(), lambda t: tuple(T.qr(t, "complete")), x, grad=False)
    check(lambda t: t.qr(), lambda t: tuple(T.qr(t, "complete")), draw(2, 4))


def test_lu_factor():
    for shape in [(3, 3), (4, 2), (2, 2, 4)]:
        check(lambda t: t.lu_factor(), lambda t: tuple(T.lu_factor(t)), draw(*shape), grad=False)


def test_lstsq_of_less_than_full_rank():
    a = draw(4, 3)
    a[:, 2] = a[:, 0]
    b = draw(4, 2)
    x, left, rank, values = Tensor(a).lstsq(Tensor(b))
    goal = T.lstsq(torch.tensor(a), torch.tensor(b), driver="gelsd")
    np.testing.assert_allclose(x.numpy(), goal.solution.numpy(), atol=1e-9)
    np.testing.assert_allclose(values.numpy(), goal.singular_values.numpy(), atol=1e-9)
    assert rank.item() == goal.rank.item() == 2 and left.shape == (0,)
    full, b = draw(2, 4, 3), draw(2, 4, 1)
    goal = T.lstsq(torch.tensor(full), torch.tensor(b), driver="gelsd")
    left = Tensor(full).lstsq(Tensor(b))[1]
    np.testing.assert_allclose(left.numpy(), goal.residuals.numpy(), atol=1e-9)


def test_a_determinant_has_a_gradient_where_it_is_zero():
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    x = Tensor(a, requires_grad=True)
    cofactors = [
        [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(3)]
        for i in range(3)
    ]
    np.testing.assert_allclose(x.det().gradient(x)[0].numpy(), cofactors, atol=1e-9)


@pytest.mark.parametrize("name", ["det", "inv", "solve", "svdvals", "eigvalsh", "logdet"])
def test_gradients_have_gradients(name):
    a = draw(2, 2)
    x, t = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    ours, theirs = SQUARE[name] if name in SQUARE else ANY[name]
    mine = (ours(x) ** 2).sum().gradient(x)[0]
    (goal,) = torch.autograd.grad((theirs(t) ** 2).sum(), t, create_graph=True)
    (second,) = torch.autograd.grad((goal * torch.tensor([[1.0, -2], [3, 4]])).sum(), t)
    found = (mine * Tensor([[1.0, -2], [3, 4]])).sum().gradient(x)[0]
    np.testing.assert_allclose(found.numpy(), second.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["inv", "solve", "lu"])
def test_what_holds_nan_is_nan(name):
    """OpenBLAS, and so NumPy, gives a row of the inverse numbers where NaN would be a pivot."""
    one, other = [[np.nan, 1.0], [1.0, 2.0]], [[2.0, 1.0], [0.0, 4.0]]
    x = Tensor([one, other])
    found = {"inv": x.inv, "solve": lambda: x.solve(Tensor.ones(2, 2, 1)), "lu": lambda: x.lu()[1]}
    spoilt, kept = np.isnan(found[name]().numpy())
    assert spoilt.all() and not kept.any()


def test_of_what_is_infinite_there_is_no_pseudo_inverse():
    assert np.isnan(Tensor([[1.0, np.inf, 0.0], [0.0, 2.0, 1.0]]).pinv().numpy()).all()


def test_of_nothing():
    none = Tensor.zeros(0, 0)
    assert none.det().item() == 1.0 and none.inv().shape == none.matrix_exp().shape == (0, 0)
    assert [t.tolist() for t in none.slogdet()] == [1.0, 0.0]
    assert Tensor.zeros(2, 0, 0).det().tolist() == [1.0, 1.0]
    assert [t.shape for t in Tensor.zeros(3, 0).svd()] == [(3, 3), (0,), (0, 0)]
    assert Tensor.zeros(3, 0).svd()[0].tolist() == np.eye(3).tolist()
    assert [t.shape for t in Tensor.zeros(0, 3).qr("reduced")] == [(0, 0), (0, 3)]
    assert Tensor.zeros(0, 2, 2).inv().shape == (0, 2, 2)
    assert Tensor.eye(2).solve(Tensor.zeros(2, 0)).shape == (2, 0)
    assert Tensor.zeros(0, 3).pinv().shape == (3, 0) and none.cholesky().shape == (0, 0)
    assert [t.shape for t in none.eig()] == [(0,), (0, 0)] and none.eig()[0].is_complex()
    assert Tensor.zeros(3, 0).matrix_rank().item() == 0
    assert [t.shape for t in Tensor.zeros(0, 2, 2).lu()] == [(0, 2, 2)] * 3
    x = Tensor.zeros(2, 0, 0, requires_grad=True)
    assert x.det().sum().gradient(x, materialize_grads=True)[0].shape == (2, 0, 0)


NONE_OF = {
    "a power of 0": lambda a: a.matrix_power(0),
    "solved for nothing": lambda a: a.solve(Tensor.zeros(3, 0)),
    "a right triangle, solved for nothing": lambda a: linalg.solve_triangular(
        a, Tensor.zeros(3, 0), upper=True
    ),
}


@pytest.mark.parametrize("name", NONE_OF)
def test_what_hangs_on_no_element_has_a_slope_of_zeros(name):
    for kind in ("float32", "complex64"):
        a = Tensor.eye(3).cast(kind).realize().requires_grad_()
        NONE_OF[name](a).real.sum().backward()
        assert a.grad.dtype is a.dtype and np.array_equal(a.grad.numpy(), np.zeros((3, 3))), kind


def test_replays():
    @TinyJit
    def step(a, b):
        return a.solve(b).realize(), (a @ a.mT).eigvalsh().sum().realize()

    for i in range(4):
        a, b = draw(3, 3, seed=i, kind="float32"), draw(3, 2, seed=i + 9, kind="float32")
        x, total = step(Tensor(a).realize(), Tensor(b).realize())
        np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(total.item(), (a * a).sum(), rtol=1e-4)


def test_views_and_other_dtypes():
    a = draw(3, 3)
    view = Tensor(a).realize()[::-1].T
    np.testing.assert_allclose(view.inv().numpy(), np.linalg.inv(a[::-1].T), rtol=1e-8)
    assert Tensor([[2, 0], [0, 4]]).inv().tolist() == [[0.5, 0.0], [0.0, 0.25]]
    assert Tensor([[2.0]]).half().det().dtype.name == "float"
    assert (Tensor(a) * 1j).solve(Tensor(a)).is_complex()
    assert Tensor.eye(2).solve(Tensor.ones(5, 2, 3)).shape == (5, 2, 3)


SINGULAR = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]]
MISUSES = {
    "inv": (LinalgError, r"inv: matrix \[1\] of the batch is singular",
            lambda: Tensor(SINGULAR).inv().realize()),
    "one": (LinalgError, "inv: the matrix is singular", lambda: Tensor(SINGULAR[1]).inv().numpy()),
    "solve": (LinalgError, r"solve: matrix \[1\]",
              lambda: Tensor(SINGULAR).solve(Tensor.ones(2, 2, 1)).numpy()),
    "triangular": (LinalgError, r"solve_triangular: matrix \[0\]",
                   lambda: Tensor.zeros(2, 2, 2).solve_triangular(
                       Tensor.ones(2, 2, 1), upper=True).numpy()),
    "cholesky": (LinalgError, r"cholesky: the matrix is not positive definite",
                 lambda: Tensor([[1.0, 2.0], [2.0, 1.0]]).cholesky().numpy()),
    "nan": (LinalgError, "svd: the matrix", lambda: Tensor([[float("nan")]]).svdvals().numpy()),
    "axes": (ShapeError, "two axes", lambda: Tensor([1.0]).qr()),
    "square": (ShapeError, "square", lambda: Tensor.ones(2, 3).inv()),
    "rows": (ShapeError, "2 rows", lambda: Tensor.eye(2).solve(Tensor.ones(3, 1))),
    "mode": (ArgumentError, "reduced", lambda: Tensor.eye(2).qr("r")),
    "UPLO": (ArgumentError, "L, U", lambda: Tensor.eye(2).eigh("X")),
    "complete": (DTypeError, "reduced",
                 lambda: (x := Tensor.ones(3, 2)).qr()[1].sum().gradient(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_told_and_the_next_operation_works(name):
    error, words, function = MISUSES[name]
    with pytest.raises(error, match=words):
        function()
    assert Tensor([[2.0]]).inv().tolist() == [[0.5]]
