"""Spectra of short pieces: windows, the short-time Fourier transform and its inverse, with the
arguments of `torch.stft`, `torch.istft` and `torch.hann_window`.

(Harris, "On the use of windows for harmonic analysis with the DFT", 1978; Griffin and Lim, "Signal
estimation from modified short-time Fourier transform", 1984.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.numeric import fft as transforms
from tinygrad.tensor import Tensor
from tinygrad.tensor.spellings import spell_functions

# ---- windows -------------------------------------------------------------------------------------


def _window(name: str, of: Callable[[int], Any], n: int, periodic: bool, more: Any) -> Tensor:
    """NumPy's window, which is symmetric; a periodic one is the longer without its last."""
    if n < 0:
        raise ArgumentError(f"{name}: length {n}; legal are numbers from 0")
    values = np.ones(n) if n < 2 else of(n + 1)[:-1] if periodic else of(n)
    kind = more.pop("dtype", None) or dtypes.default_float
    wants = more.pop("requires_grad", False)
    return Tensor(values, dtype=kind, requires_grad=wants, **more)


def hann_window(window_length: int, periodic: bool = True, **more: Any) -> Tensor:
    """0.5 - 0.5·cos(2πk/n), for k below `window_length`, which n is, or one less if not `periodic`.

    >>> hann_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _window("hann_window", np.hanning, window_length, periodic, more)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **more: Any
) -> Tensor:
    """alpha - beta·cos(2πk/n).

    >>> [round(x, 2) for x in hamming_window(4).tolist()]
    [0.08, 0.54, 1.0, 0.54]
    """

    def of(n: int) -> Any:
        return alpha + beta * (2 * np.hanning(n) - 1)

    return _window("hamming_window", of, window_length, periodic, more)


def blackman_window(window_length: int, periodic: bool = True, **more: Any) -> Tensor:
    """0.42 - 0.5·cos(2πk/n) + 0.08·cos(4πk/n).

    >>> [round(abs(x), 2) for x in blackman_window(4).tolist()]
    [0.0, 0.34, 1.0, 0.34]
    """
    return _window("blackman_window", np.blackman, window_length, periodic, more)


def bartlett_window(window_length: int, periodic: bool = True, **more: Any) -> Tensor:
    """A triangle from 0 to 1 and back.

    >>> bartlett_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _window("bartlett_window", np.bartlett, window_length, periodic, more)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **more: Any
) -> Tensor:
    """I₀(beta·√(1 - (2k/n - 1)²)) / I₀(beta).

    >>> [round(x, 2) for x in kaiser_window(4).tolist()]
    [0.0, 0.22, 1.0, 0.22]
    """

    def of(n: int) -> Any:
        return np.kaiser(n, beta)

    return _window("kaiser_window", of, window_length, periodic, more)


# ---- pieces --------------------------------------------------------------------------------------


def _shape(
    name: str, n_fft: int, hop: int | None, win: int | None, window: Tensor | None, like: Tensor
) -> tuple[int, Tensor]:
    """The step, and the window with zeros on both sides up to n_fft."""
    hop, win = n_fft // 4 if hop is None else hop, n_fft if win is None else win
    if hop < 1 or not 0 < win <= n_fft:
        raise ArgumentError(
            f"{name}: n_fft {n_fft}, hop_length {hop}, win_length {win}; legal are steps from 1 "
            "and windows of at most n_fft"
        )
    kind = like.real.dtype
    if window is None:
        window = Tensor.ones(win, dtype=kind, device=like.device)
    if window.shape != (win,):
        raise ShapeError(f"{name}: a window of {window.shape}; legal is {(win,)}")
    left = (n_fft - win) // 2
    return hop, window.pad((left, n_fft - win - left))


def stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool = True,
) -> Any:
    """The spectra of pieces of n_fft numbers, `hop_length` apart (n_fft // 4), each times the
    window: (.., length) → (.., frequencies, pieces), complex.

    Args:
        center: whether piece t is around t·hop_length, x being continued by `pad_mode`.
        normalized: whether to divide by √n_fft.
        onesided: only n_fft // 2 + 1 frequencies; so for real numbers unless given.
        return_complex: False for pairs of real numbers, on one more axis.

    Raises:
        ShapeError: x is shorter than a piece, or the window has another length.

    >>> stft(Tensor.ones(16), 8, window=hann_window(8)).shape
    (5, 9)
    """
    if x.ndim not in (1, 2):
        raise ShapeError(f"stft: {x.shape}; legal are (length,) and (batch, length)")
    hop, shaped = _shape("stft", n_fft, hop_length, win_length, window, x)
    onesided = not (x.is_complex() or shaped.is_complex()) if onesided is None else onesided
    if center:
        x = x.pad((n_fft // 2, n_fft // 2), mode=pad_mode)
    if x.shape[-1] < n_fft:
        raise ShapeError(f"stft: {x.shape} is shorter than n_fft = {n_fft}")
    pieces = x.unfold(-1, n_fft, hop) * shaped  # (.., pieces, n_fft)
    function = transforms.rfft if onesided else transforms.fft
    spectra = function(pieces, norm="ortho" if normalized else None).mT
    return spectra if return_complex else spectra.view_as_real()


def istft(
    x: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """What `stft` was made of: (.., frequencies, pieces) → (.., length). Of spectra that belong to
    no signal, the signal whose spectra are nearest. The numbers are real unless `return_complex`.

    DivisionCheckError when the windows leave a place between without any weight.

    >>> x = Tensor.arange(16).float()
    >>> back = istft(stft(x, 8, window=hann_window(8)), 8, window=hann_window(8))
    >>> back.round().tolist() == x.tolist()
    True
    """
    if x.ndim not in (2, 3) or not x.is_complex():
        raise ShapeError(f"istft: {x!r}; legal are complex numbers (.., frequencies, pieces)")
    hop, shaped = _shape("istft", n_fft, hop_length, win_length, window, x)
    onesided = x.shape[-2] != n_fft if onesided is None else onesided
    if x.shape[-2] != (n_fft // 2 + 1 if onesided else n_fft):
        raise ShapeError(f"istft: {x.shape[-2]} frequencies for n_fft = {n_fft}, {onesided=}")
    norm = "ortho" if normalized else None
    turned = x.mT
    if onesided or not return_complex:  # the second half says nothing new
        pieces = transforms.irfft(turned, n_fft, norm=norm)
        pieces = pieces.cast(x.dtype) if return_complex else pieces
    else:
        pieces = transforms.ifft(turned, norm=norm)
    count = x.shape[-1]
    signal = _added(pieces * shaped.conj(), hop)
    weights = (shaped * shaped.conj()).real.unsqueeze(0).expand(count, n_fft)
    weight = _added(weights, hop)
    start = n_fft // 2 if center else 0
    total = n_fft + hop * (count - 1)
    end = start + length if length is not None else total - start
    kept = min(end, total)
    signal, weight = (t._cut(t.ndim - 1, start, kept) for t in (signal, weight))
    checked = weight._node.check(
        (weight > 1e-11)._node, "division", "istft: a window whose weights add up to zero somewhere"
    )
    out = signal / weight._from(checked)
    return out.pad((0, end - kept)) if end > kept else out


def _added(pieces: Any, hop: int) -> Any:
    """Pieces (.., count, n) added up where they overlap, `hop` apart: the adjoint of `unfold`."""
    if pieces.is_complex():
        parts = pieces.view_as_real()  # (.., count, n, 2)
        order = (parts.ndim - 1, *range(parts.ndim - 1))
        both = _added(parts.permute(order), hop)
        return both.permute((*range(1, both.ndim), 0)).view_as_complex()
    *lead, count, n = pieces.shape
    total = n + hop * (count - 1)
    node = pieces._node.fold(((len(lead), n, hop, 1, 0, 0),), (*lead, total))
    return pieces._from(node)


spell_functions(globals())
