"""Spectra: Fourier transforms as products with matrices of sines and cosines, and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.formats.onnx.casts import wide_enough
from tinygrad.formats.onnx.host import MOST_PLACES, checked
from tinygrad.formats.onnx.registry import Array, Row, Table, on_host, one
from tinygrad.formats.onnx.values import numpy_dtype_of
from tinygrad.numeric import fft
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import axis_of


def transform(x: Tensor, length: int, axis: int, inverse: bool, onesided: bool) -> Tensor:
    """The transform of x (.., n, .., 1 or 2), real or (real, imaginary), to `length` frequencies
    along `axis`; `onesided` takes or gives only the first half of them."""
    checked(length, MOST_PLACES)
    given = x.cast(wide_enough(x.dtype))
    numbers = given.view_as_complex() if x.shape[-1] == 2 else given.squeeze(-1)
    if inverse and onesided:
        return fft.irfft(numbers, length, axis).unsqueeze(-1).cast(x.dtype)
    found = (fft.ifft if inverse else fft.fft)(numbers, length, axis)
    kept = length // 2 + 1 if onesided else length
    return found._cut(axis, 0, kept).view_as_real().cast(x.dtype)  # type: ignore[no-any-return]


def _dft(
    x: Tensor, dft_length: Any = None, axis: Any = -2, inverse: int = 0, onesided: int = 0
) -> Tensor:
    at = axis_of(int(one(axis)), x.ndim, "axis")
    both = inverse and onesided
    size = x.shape[at]
    length = int(one(dft_length)) if dft_length is not None else 2 * (size - 1) if both else size
    return transform(x, length, at, bool(inverse), bool(onesided))


def _dft_old(x: Tensor, dft_length: Any = None, axis: int = 1, **more: int) -> Tensor:
    return _dft(x, dft_length, axis, **more)


def _stft(
    x: Tensor, frame_step: Any, window: Tensor | None = None, frame_length: Any = None,
    onesided: int = 1,
) -> Tensor:  # fmt: skip
    """Frames of (batch, length, 1 or 2) transformed: (batch, frames, frequencies, 2)."""
    step = int(one(frame_step))
    if frame_length is not None:
        length = int(one(frame_length))
    else:
        length = x.shape[1] if window is None else window.shape[0]
    frames = x.unfold(1, length, step)  # (batch, frames, parts, length)
    frames = frames.permute(0, 1, 3, 2)
    if window is not None:
        frames = frames * window.reshape(1, 1, -1, 1)
    return transform(frames, length, 2, False, bool(onesided))


def _mel(
    bins: Any, dft_length: Any, sample_rate: Any, low: Any, high: Any, output_datatype: int = 1
) -> Array:
    """Triangles (frequencies, bins) evenly spaced on the mel scale."""
    count, length, rate = int(one(bins)), int(one(dft_length)), one(sample_rate)
    low_mel, high_mel = (2595 * np.log10(1 + one(f) / 700) for f in (low, high))
    checked(count * length)
    mels = low_mel + np.arange(count + 2) * ((high_mel - low_mel) / (count + 2))
    edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    out = np.zeros((length // 2 + 1, count))
    for i, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if left == centre:
            out[centre, i] = 1
        for j in range(left, centre + 1 if left < centre else left):
            out[j, i] = (j - left) / (centre - left)
        for j in range(centre, right):
            out[j, i] = (right - j) / (right - centre)
    return out.astype(numpy_dtype_of(output_datatype))


ROWS: Table = {
    "DFT": {17: Row(_dft_old, (1,)), 20: Row(_dft, (1, 2))},
    "MelWeightMatrix": on_host(_mel),
    "STFT": Row(_stft, (1, 3)),
}
