"""Complex tensors against PyTorch: values, gradients, and what has no meaning."""

import copy
import pickle
from types import FunctionType

import numpy as np
import pytest
import torch
from tensor.check import value

from tinygrad import TinyJit, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.complex import Complex

KINDS = {"complex64": (2e-5, 2e-5), "complex128": (1e-9, 1e-9)}


def draw(*shape, kind="complex64", seed=0):
    rng = np.random.default_rng(seed)
    real = kind.startswith("float") or kind.startswith("int")
    values = rng.normal(size=shape) + (0 if real else 1j * rng.normal(size=shape))
    return values.astype(kind)


def same(ours, theirs, kind="complex64"):
    theirs = theirs.detach().resolve_conj().numpy()
    rtol, atol = KINDS[kind]
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, (ours.dtype, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def check(ours, theirs, *arrays, kind="complex64", grad=True):
    """Values, and gradients for an incoming gradient that differs everywhere, as PyTorch's."""
    xs = [Tensor(a, requires_grad=grad) for a in arrays]
    ts = [torch.tensor(a, requires_grad=grad) for a in arrays]
    mine, wanted = ours(*xs), theirs(*ts)
    same(value(mine) if not mine.is_complex() else mine.numpy(), wanted, kind)
    if not grad:
        return
    seed = draw(*mine.shape, kind=str(wanted.dtype).removeprefix("torch."), seed=7)
    found = mine.gradient(*xs, gradient=Tensor(seed), materialize_grads=True)
    Tensor.realize(*found)
    wanted.backward(torch.tensor(seed))
    for one, other in zip(found, ts, strict=True):
        assert other.grad is not None
        same(one.numpy(), other.grad, kind)


# fmt: off
ELEMENTWISE = [
    "exp", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
    "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sigmoid",
    "square", "abs", "angle", "sgn", "conj", "neg", "exp2",
]
# fmt: on


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
    x = draw(5, kind="complex128")
    check(lambda t: getattr(t, name)(), getattr(torch, name), x, kind="complex128")


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "number": lambda a, b: (2 - 1j * a) / (b + 0.5) - 3j / b + 2**a,
    "power": lambda a, b: a**2 + b**-1 + a**0.5 + a**1.5,
    "matmul": lambda a, b: a.reshape(2, 3) @ b.reshape(3, 2),
    "vectors": lambda a, b: a @ b,
}
MIXED = [("complex64", "complex64"), ("complex64", "float32"), ("float32", "complex64")]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("kinds", MIXED)
def test_two_operands(name, kinds):
    a, b = (draw(6, kind=kind, seed=i) for i, kind in enumerate(kinds))
    if name in ("power", "pow"):
        a, b = (abs(x) + 0.1 if x.dtype.kind == "f" else x for x in (a, b))
    if name in ("matmul", "vectors"):  # PyTorch wants equal dtypes
        wide = torch.complex64
        check(BINARY[name], lambda s, t: BINARY[name](s.to(wide), t.to(wide)), a, b)
    else:
        check(BINARY[name], BINARY[name], a, b)


MANY = {
    "sum": lambda x: x.sum(1),
    "prod": lambda x: x.prod(1),
    "mean": lambda x: x.mean(0),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "var": lambda x: x.var(1),
    "permute": lambda x: x.permute(1, 0).reshape(4, 3).flip(0),
    "slices": lambda x: x[1:, ::2] * x[:-1, 1:2],
    "index": lambda x: x[[0, 2, 2]],
    "transpose": lambda x: x.mT @ x,
    "adjoint": lambda x: x.mH @ x,
    "parts": lambda x: x.real * x.imag,
    "triangles": lambda x: x.tril() + x.triu(1) * 2,
    "diagonal": lambda x: x.diagonal(),
    "squeeze": lambda x: x.unsqueeze(0).expand(2, 3, 4).squeeze(),
}


@pytest.mark.parametrize(
    "name, other", [("divide", "div"), ("negative", "neg"), ("absolute", "abs"), ("arcsin", "asin")]
)
def test_other_names_of_a_method_are_names_of_its_complex_form(name, other):
    z, more = Tensor([1 + 2j, 3 - 1j]), (2,) if name == "divide" else ()
    assert getattr(z, name)(*more).tolist() == getattr(z, other)(*more).tolist()


ANEW = sorted(
    name
    for name, form in vars(Complex).items()
    if isinstance(form, FunctionType) and not name.startswith("_") and hasattr(Tensor, name)
)
WITH = {"const_like": (2.0,), "cast": ("complex128",), "pad": (((1, 1), (0, 1)), "constant", 2)}
WITH |= dict.fromkeys(("sub", "subtract", "div", "divide", "true_divide", "pow", "isclose"), (1j,))


@pytest.mark.parametrize("name", ANEW)
def test_by_the_name_of_the_class_the_method_is_that_of_complex_numbers(name):
    z, more, of_class = Tensor(draw(2, 3)), WITH.get(name, ()), getattr(Tensor, name)
    by_class = [lambda: of_class(z, *more)] + [lambda: of_class(input=z)] * (not more)
    try:
        wanted = getattr(z, name)(*more)
    except DTypeError as error:
        for call in by_class:
            with pytest.raises(DTypeError) as found:
                call()
            assert str(found.value) == str(error)
        return
    for call in by_class:
        for one, other in zip(several(call()), several(wanted), strict=True):
            assert one.dtype is other.dtype
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def several(made):
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("name", MANY)
def test_many_elements(name):
    def theirs(x):
        flip = torch.Tensor.flip
        return flip(x.permute(1, 0).reshape(4, 3), (0,)) if name == "permute" else MANY[name](x)

    check(MANY[name], theirs, draw(3, 4))


def test_choice_joining_windows_and_products():
    a, b = draw(3, 4), draw(3, 4, seed=1)
    mask = np.arange(12).reshape(3, 4) % 2 == 0
    own, other = Tensor(mask), torch.tensor(mask)
    pads = torch.full((3, 1), 1j), torch.full((3, 2), 1j)
    rows = [
        (
            lambda x, y: own.where(x, y) + own.where(1j, y),
            lambda x, y: torch.where(other, x, y) + torch.where(other, torch.tensor(1j), y),
        ),
        (lambda x, y: x.cat(y, dim=1), lambda x, y: torch.cat((x, y), 1)),
        (
            lambda x, y: Tensor.stack(x, y.real, dim=-1),
            lambda x, y: torch.stack((x, y.real), -1),
        ),
        (lambda x, y: x.unfold(1, 2, 1) * y[0, 0], lambda x, y: x.unfold(1, 2, 1) * y[0, 0]),
        (
            lambda x, y: x.pad((1, 2), value=1j) * y[0, 0],
            lambda x, y: torch.cat((pads[0], x, pads[1]), 1) * y[0, 0],
        ),
        (
            lambda x, y: Tensor.einsum("ij,kj->ik", x, y.conj()),
            lambda x, y: torch.einsum("ij,kj->ik", x, y.conj()),
        ),
        (lambda x, y: x.vecdot(y), lambda x, y: torch.linalg.vecdot(x, y)),
        (lambda x, y: x[0].vdot(y[0]), lambda x, y: torch.vdot(x[0], y[0])),
    ]
    for ours, theirs in rows:
        check(ours, theirs, a, b)
    check(lambda r, t: Tensor.polar(r, t), torch.polar, abs(a.real), b.real.copy())
    check(lambda r, t: Tensor.complex(r, t), torch.complex, a.real.copy(), b.real.copy())


def test_where_sizes_overflow_and_at_branch_cuts():
    sizes = np.array([1e30 + 1e30j, 2e38 + 2e38j, 0, 1e-30j, 1e-38], np.complex64)
    np.testing.assert_allclose(Tensor(sizes).abs().numpy(), abs(sizes.astype("complex128")), 1e-6)
    z = np.array([1e25 + 1e25j, 1e-25 + 1e-25j], np.complex64)
    np.testing.assert_allclose((Tensor(z) / Tensor(z)).numpy(), [1, 1], rtol=1e-6)
    cut = np.array([-2 + 0j, complex(-2, -0.0), 2 + 0j, complex(2, -0.0), 0, 2j, -2j, -1 + 1j])
    arcs = {name: "arc" + name[1:] for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}
    for name in ("sqrt", "log", "angle", *arcs):
        with np.errstate(all="ignore"):
            theirs = getattr(np, arcs.get(name, name))(cut)
        ours = getattr(Tensor(cut), name)().numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=name)
    inf = np.inf
    assert (Tensor([complex(inf, 1)]) * 2).tolist() == [complex(inf, 2)]
    assert Tensor([complex(inf, np.nan)]).abs().tolist() == [inf]
    assert Tensor([complex(inf, 0)]).exp().tolist() == [complex(inf, 0)]
    z = Tensor([complex(inf, 0), complex(0, np.nan), 1j])
    assert z.isinf().tolist() == [True, False, False]
    assert z.isnan().tolist() == [False, True, False]
    assert z.isfinite().tolist() == [False, False, True]


def test_gradients_at_zero_are_zero():
    z = Tensor([0j], requires_grad=True)
    z.abs().sum().backward()
    assert z.grad is not None and z.grad.tolist() == [0j]


def test_dtypes_meet_as_in_pytorch():
    kinds = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64",
             "complex128"]  # fmt: skip
    for kind in kinds:
        for other in ("complex64", "complex128"):
            ours = (Tensor.ones(1, dtype=kind) * Tensor.ones(1, dtype=other)).dtype
            theirs = torch.promote_types(getattr(torch, kind), getattr(torch, other))
            assert f"torch.{ours.name}" == str(theirs), (kind, other)
    assert (Tensor([1.0]) * 1j).dtype is dtypes.complex64
    assert (Tensor([1.0], dtype="float64") + 1j).dtype is dtypes.complex128
    assert (Tensor([1]) * 1j).dtype is dtypes.complex64
    assert (Tensor([1j]) * 2.0).dtype is dtypes.complex64
    assert Tensor([1j]).bool().tolist() == [True]
    assert Tensor([1j]).dtype.itemsize == Tensor([1j]).element_size() == 8


def test_made_and_read_in_every_way():
    assert Tensor(1j).item() == 1j and Tensor([[1, 2j]]).tolist() == [[1, 2j]]
    assert Tensor([1.0], dtype="complex64").tolist() == [1 + 0j]
    assert Tensor(np.array(2j)).dtype is dtypes.complex128
    assert Tensor.zeros(2, dtype=dtypes.complex64).tolist() == [0j, 0j]
    assert Tensor.full((2,), 1 - 1j).tolist() == [1 - 1j] * 2
    assert Tensor([1j]).full_like(3j).tolist() == [3j]
    assert Tensor.eye(2, dtype="complex64").real.tolist() == [[1, 0], [0, 1]]
    assert Tensor.arange(3, dtype="complex64").tolist() == [0j, 1 + 0j, 2 + 0j]
    assert Tensor.linspace(0, 1, 2, dtype="complex64").tolist() == [0j, 1 + 0j]
    assert Tensor([1j]).ones_like(dtype="bool").dtype is dtypes.bool
    assert Tensor.ones(0, dtype="complex64").numpy().shape == (0,)
    z = Tensor([1 + 2j, 3j]).realize()
    assert repr(z).startswith("<Tensor [1.+2.j, 0.+3.j] complex64 (2,) on")
    assert complex(z[1]) == 3j and (z == z).all().item() and 3j in z
    assert pickle.loads(pickle.dumps(z)).tolist() == copy.deepcopy(z).tolist() == z.tolist()
    assert np.asarray(z).dtype == np.complex64
    a = Tensor.randn(1000, dtype=dtypes.complex64)
    assert abs(a.abs().square().mean().item() - 1) < 0.15


def test_views_and_writes_share_memory():
    z = Tensor([1 + 2j, 3j, 4]).realize()
    pairs = z.view_as_real()
    z[1] = 7 - 1j
    assert pairs.tolist() == [[1, 2], [7, -1], [4, 0]]
    pairs[0, 0] = 5.0
    assert z.tolist() == [5 + 2j, 7 - 1j, 4 + 0j]
    z += 1j
    z[z.real > 4.5] = 0
    assert z.tolist() == [0, 0, 4 + 1j]
    z.assign(Tensor([1j, 2j, 3j]))
    assert z.tolist() == [1j, 2j, 3j]
    assert z.gather(0, Tensor([2, 0])).tolist() == [3j, 1j]
    assert z.scatter(0, Tensor([0]), Tensor([9j])).tolist() == [9j, 2j, 3j]
    assert Tensor.exp(z[:0]).shape == (0,)
    assert z.masked_select(z.imag > 1).tolist() == [2j, 3j]


def test_a_captured_step_takes_and_returns_them():
    @TinyJit
    def step(x, w):
        return (x * w).exp().realize(), (x @ w).realize()

    for i in range(4):
        x = draw(3, seed=i)
        out, dot = step(Tensor(x).realize(), Tensor(x + 1).realize())
        np.testing.assert_allclose(out.numpy(), np.exp(x * (x + 1)), rtol=1e-5)
        np.testing.assert_allclose(dot.item(), x @ (x + 1), rtol=1e-5)


def test_training_moves_complex_weights():
    w = Tensor([1 + 1j], requires_grad=True)
    for _ in range(40):
        loss = (w - (3 - 2j)).abs().square().sum()
        w.grad = None
        loss.backward()
        assert w.grad is not None
        w = Tensor((w - 0.2 * w.grad).numpy(), requires_grad=True)
    assert abs(w.item() - (3 - 2j)) < 1e-4


Z = lambda: Tensor([1 + 2j, 3j])  # noqa: E731
MISUSES = {
    "<": (DTypeError, "__lt__", lambda: Z() < Z()),
    "max": (DTypeError, "max", lambda: Z().max()),
    "argmax": (DTypeError, "argmax", lambda: Z().argmax()),
    "sort": (DTypeError, "sort", lambda: Z().sort()),
    "maximum": (DTypeError, "maximum", lambda: Z().maximum(Z())),
    "clamp": (DTypeError, "clamp", lambda: Z().clamp(0, 1)),
    "relu": (DTypeError, "relu", lambda: Z().relu()),
    "floor": (DTypeError, "floor", lambda: Z().floor()),
    "softmax": (DTypeError, "softmax", lambda: Z().softmax()),
    "%": (DTypeError, "mod: of", lambda: Z() % 2),
    "float": (DTypeError, "imaginary", lambda: Z().float()),
    "number": (TypeError, "complex", lambda: float(Tensor(1j))),
    "into floats": (DTypeError, "imaginary", lambda: Tensor([1.0]).realize().__setitem__(0, 1j)),
    "+= into floats": (DTypeError, "imaginary", lambda: Tensor([1.0]).__iadd__(1j)),
    "backward": (DTypeError, "gradient=", lambda: Z().sum().backward()),
    "imag": (DTypeError, "imag", lambda: Tensor([1.0]).imag),
    "pairs": (ShapeError, "size 2", lambda: Tensor([1.0]).view_as_complex()),
    "ints": (DTypeError, "float32", lambda: Tensor([1, 2]).view_as_complex()),
    "bits": (DTypeError, "bitcast", lambda: Z().bitcast("long")),
    "scatter": (DTypeError, "set and add",
                lambda: Z().scatter(0, Tensor([0]), Tensor([1j]), "multiply")),
    "replaced": (DTypeError, "both complex", lambda: Tensor([1.0]).replace(Tensor([1j]))),
    "rounding": (ArgumentError, "rounding_mode", lambda: Z().div(2, rounding_mode="floor")),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSES)
def test_what_has_no_meaning_is_refused(name):
    error, words, function = MISUSES[name]
    with pytest.raises(error, match=words):
        function()


def test_files_hold_them(tmp_path):
    from safetensors.numpy import load_file

    from tinygrad.nn.state import load_state_dict, safe_load, safe_save

    path = str(tmp_path / "z.safetensors")
    safe_save({"z": Tensor([1 + 2j, 3j]), "x": Tensor([1.0])}, path)
    assert load_file(path)["z"].tolist() == [1 + 2j, 3j]
    found = safe_load(path)
    assert found["z"].dtype is dtypes.complex64 and found["z"].tolist() == [1 + 2j, 3j]
    model = {"z": Tensor.zeros(2, dtype=dtypes.complex64).contiguous().realize()}
    load_state_dict(model, found, strict=False, verbose=False)
    assert model["z"].tolist() == [1 + 2j, 3j]
    with pytest.raises(ArgumentError, match="complex128"):
        safe_save({"z": Tensor([1j], dtype="complex128")}, path)


def test_one_number_is_scattered_into():
    x = Tensor(np.array(3 + 1j, "complex64"))
    assert x.scatter(0, Tensor(0), Tensor(np.array(2j, "complex64"))).numpy() == 2j
