"""Fourier transforms as PyTorch's and NumPy's: every kind of length, axes, norms, gradients."""

import numpy as np
import pytest
import torch
from often import one_in, rarely

from tinygrad import TinyJit, fft
from tinygrad.base.errors import ArgumentError, DivisionCheckError, DTypeError, ShapeError
from tinygrad.numeric import dft
from tinygrad.tensor import Tensor

T = torch.fft


def draw(*shape, real=False, seed=0, kind="float32"):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (
        x.astype(kind)
        if real
        else (x + 1j * rng.normal(size=shape)).astype(
            "complex64" if kind == "float32" else "complex128"
        )
    )


def near(ours, theirs, bound=1e-6):
    """Relative to the size of the whole."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, (ours.shape, theirs.shape)
    assert np.linalg.norm(ours - theirs) <= bound * max(np.linalg.norm(theirs), 1e-30)


def check(ours, theirs, *arrays, grad=True):
    xs = [Tensor(a, requires_grad=grad) for a in arrays]
    ts = [torch.tensor(a, requires_grad=grad) for a in arrays]
    mine, goal = ours(*xs), theirs(*ts)
    near(mine.numpy(), goal.detach().resolve_conj().numpy())
    if grad:
        seed = draw(*mine.shape, real=not mine.is_complex(), seed=5)
        goal.backward(torch.tensor(seed))
        for g, t in zip(mine.gradient(*xs, gradient=Tensor(seed)), ts, strict=True):
            near(g.numpy(), t.grad.resolve_conj().numpy())


LENGTHS = [1, 2, 3, 7, 8, 30, 33, 64, 97, 100, 191, 194, 211, 2 * 191, 512, 1000]


@pytest.mark.parametrize("n", one_in(2, LENGTHS))
def test_lengths(n):
    z, x = draw(n), draw(n, real=True)
    near(fft.fft(Tensor(z)).numpy(), np.fft.fft(z))
    near(fft.ifft(Tensor(z)).numpy(), np.fft.ifft(z))
    near(fft.rfft(Tensor(x)).numpy(), np.fft.rfft(x))
    near(fft.irfft(Tensor(z), n).numpy(), np.fft.irfft(z, n))


@pytest.mark.slow
@pytest.mark.parametrize("n", [2**20, 3**12, 10**6, 2**16 + 1, 999_983])
def test_long_ones_are_exact_to_a_millionth(n):
    z, x = draw(n), draw(n, real=True)
    near(fft.fft(Tensor(z)).numpy(), np.fft.fft(z.astype("complex128")).astype("complex64"))
    near(fft.rfft(Tensor(x)).numpy(), np.fft.rfft(x.astype("float64")).astype("complex64"))


def test_double_precision():
    z = draw(1000, kind="float64")
    near(fft.fft(Tensor(z)).numpy(), np.fft.fft(z), 1e-14)
    near(fft.fft(Tensor(z[:191])).numpy(), np.fft.fft(z[:191]), 1e-14)
    near(fft.irfft(fft.rfft(Tensor(z.real))).numpy(), z.real, 1e-14)


ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("norm", [None, "ortho", rarely("forward")])
def test_axes_sizes_norms_and_gradients(name, norm):
    ours, theirs = getattr(fft, name), getattr(T, name)
    real = name in ("rfft", "ihfft")
    for n, dim in [(None, -1), (5, 0), (40, 1), (39, 1)]:
        check(lambda x, n=n, dim=dim: ours(x, n, dim, norm),
              lambda x, n=n, dim=dim: theirs(x, n, dim, norm),
              draw(3, 36, real=real))  # fmt: skip


MANY = ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn", "hfft2", "ihfft2",
        "hfftn", "ihfftn"]  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_several_axes(name):
    ours, theirs = getattr(fft, name), getattr(T, name)
    x = draw(2, 4, 6, real=name in ("rfft2", "rfftn", "ihfft2", "ihfftn"))
    check(lambda t: ours(t, norm="ortho"), lambda t: theirs(t, norm="ortho"), x)
    check(lambda t: ours(t, (3, 8), (0, 2)), lambda t: theirs(t, (3, 8), (0, 2)), x, grad=False)


def test_a_gradient_of_three_products_in_rows():
    """Each is made for the lanes of the next: of such a value's own loops none can be a vector."""
    x = draw(2, 4, 5, real=True, kind="float64")
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    mine, goal = fft.rfftn(ours), T.rfftn(theirs)
    weights = draw(*mine.shape, real=True, seed=5, kind="float64")
    terms = (mine.real * Tensor(weights)).sum() + (mine.imag * Tensor(weights) * 0.5).sum()
    ((goal.real + goal.imag * 0.5) * torch.tensor(weights)).sum().backward()
    near(terms.gradient(ours)[0].numpy(), theirs.grad.numpy(), 1e-12)


def test_frequencies_and_shifts():
    for n in (4, 5):
        near(fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5).astype("float32"))
        near(fft.rfftfreq(n, 0.5).numpy(), np.fft.rfftfreq(n, 0.5).astype("float32"))
    x = draw(4, 5)
    near(fft.fftshift(Tensor(x)).numpy(), np.fft.fftshift(x))
    near(fft.ifftshift(Tensor(x)).numpy(), np.fft.ifftshift(x))
    near(fft.fftshift(Tensor(x), 1).numpy(), np.fft.fftshift(x, 1))


def test_other_inputs():
    near(fft.fft(Tensor([1, 2, 3])).numpy(), np.fft.fft([1, 2, 3]).astype("complex64"))
    assert fft.rfft(Tensor.ones(4).half()).dtype.name == "complex64"
    assert fft.fft(Tensor.zeros(0, 4)).shape == (0, 4)
    assert fft.irfft(Tensor.zeros(0, 3, dtype="complex64")).shape == (0, 4)
    x = draw(6, 4)
    near(fft.fft(Tensor(x).realize()[::2].T).numpy(), np.fft.fft(x[::2].T))


def test_a_captured_step_transforms():
    step = TinyJit(lambda x: fft.irfft(fft.rfft(x) * 2).realize())
    for i in range(4):
        x = draw(2, 48, real=True, seed=i)
        near(step(Tensor(x).realize()).numpy(), 2 * x)


def test_no_more_kernels_than_steps_need():
    x = Tensor(draw(4096)).realize()
    assert len(fft.fft(x).schedule()) <= 3 * len(dft.radices(4096)) + 2


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows(name):
    ours, theirs = (getattr(m, f"{name}_window") for m in (fft, torch))
    for n in (0, 1, 2, 7, 8):
        for periodic in (True, False):
            goal = theirs(n, periodic=periodic).numpy()
            np.testing.assert_allclose(ours(n, periodic).numpy(), goal, rtol=1e-5, atol=1e-7)
    goal = torch.kaiser_window(9, True, 3.0).numpy()
    np.testing.assert_allclose(fft.kaiser_window(9, beta=3.0).numpy(), goal, rtol=1e-5)


SPECTRA = [
    {},
    {"center": False},
    {"hop_length": 3, "normalized": True},
    {"win_length": 6, "pad_mode": "replicate"},
    {"onesided": False},
]


@pytest.mark.parametrize("more", SPECTRA)
def test_spectra_of_pieces(more):
    size = more.get("win_length", 8)
    own, other = fft.hann_window(size, dtype="float32"), torch.hann_window(size)
    more = {"return_complex": True, **more}  # without which PyTorch does nothing
    check(lambda x: fft.stft(x, 8, window=own, **more),
          lambda x: torch.stft(x, 8, window=other, **more),
          draw(2, 30, real=True))  # fmt: skip


def test_spectra_as_pairs():
    x = Tensor(draw(30, real=True))
    pairs = fft.stft(x, 8, return_complex=False)
    near(pairs.numpy(), fft.stft(x, 8).view_as_real().numpy())


@pytest.mark.parametrize("more", [{}, {"hop_length": 3, "normalized": True}, {"length": 22},
                                  {"length": 17}, {"onesided": False}])  # fmt: skip
def test_signals_from_spectra(more):
    own, other = fft.hamming_window(8), torch.hamming_window(8)
    frequencies = 8 if more.get("onesided") is False else 5
    check(lambda x: fft.istft(x, 8, window=own, **more),
          lambda x: torch.istft(x, 8, window=other, **more),
          draw(2, frequencies, 12))  # fmt: skip


def test_complex_signals_have_spectra():
    x, own, other = draw(30), fft.hamming_window(8), torch.hamming_window(8)
    spectra = fft.stft(Tensor(x), 8, window=own, center=False)
    goal = torch.stft(torch.tensor(x), 8, window=other, center=False, return_complex=True)
    near(spectra.numpy(), goal.numpy())
    back = fft.istft(spectra, 8, window=own, center=False, return_complex=True)
    near(back.numpy(), x[: back.shape[0]])


MISUSES = [
    (ArgumentError, "backward, forward", lambda: fft.fft(Tensor.ones(4), norm="x")),
    (ArgumentError, "length 0", lambda: fft.fft(Tensor.ones(0))),
    (ArgumentError, "axis 3", lambda: fft.fft(Tensor.ones(4), dim=3)),
    (ArgumentError, "one each", lambda: fft.fft2(Tensor.ones(4, 4), (2,))),
    (DTypeError, "rfft", lambda: fft.rfft(Tensor([1j]))),
    (ShapeError, "shorter", lambda: fft.stft(Tensor.ones(4), 8, center=False)),
    (ShapeError, "window", lambda: fft.stft(Tensor.ones(9), 8, window=Tensor.ones(3))),
    (ShapeError, "frequencies", lambda: fft.istft(Tensor.ones(3, 2, dtype="complex64"), 8)),
    (DivisionCheckError, "istft", lambda: fft.istft(
        Tensor.ones(5, 3, dtype="complex64"), 8, hop_length=8, window=fft.hann_window(8),
        center=False).numpy()),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize(
    "name", ["fft", "ifft", "rfft", "irfft", "hfft", "fft2", "ifftn", "irfft2"]
)
def test_results_lie_in_order_so_that_a_reshape_is_a_view_of_them(name, is_computed):
    x = draw(2, 4, 6, real=name in ("rfft",))
    for axis in (None,) if name[-1] in "2n" else (0, 2):
        along = [{} if axis is None else {word: axis} for word in ("axis", "dim")]
        wanted = getattr(np.fft, name)(x, **along[0]).astype("complex64")
        found = getattr(fft, name)(Tensor(x), **along[1])
        if is_computed:
            found.realize()
        found.reshape(-1)[1:5] = 7
        wanted.reshape(-1)[1:5] = 7
        near(found.numpy().astype("complex64"), wanted)
