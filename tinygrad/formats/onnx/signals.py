"""Spectra: Fourier transforms as products with matrices of sines and cosines, and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.formats.onnx.casts import wide_enough
from tinygrad.formats.onnx.registry import Array, Row, Table, on_host
from tinygrad.formats.onnx.values import numpy_dtype_of
from tinygrad.tensor import Tensor


def _one(value: Any) -> Any:
    return np.asarray(value).reshape(-1)[0].item()


def _matrices(rows: int, columns: int, n: int, sign: int) -> tuple[Array, Array]:
    """cos and sin of sign·2π·i·k/n, the product i·k reduced first so that they stay exact."""
    angle = np.outer(np.arange(rows), np.arange(columns)) % n * (2 * np.pi / n)
    return np.cos(angle), sign * np.sin(angle)


def transform(x: Tensor, length: int, axis: int, inverse: bool, onesided: bool) -> Tensor:
    """The transform of x (.., n, .., 1 or 2), real or (real, imaginary), to `length` frequencies
    (.., length, .., 2); onesided only those from 0 to length / 2, or from them to real numbers."""
    kind = wide_enough(x.dtype)
    parts = x.cast(kind).movedim(axis, -2)  # (.., n, 1 or 2)
    has = parts.shape[-2]
    back = inverse and onesided
    used = min(has, length // 2 + 1 if back else length)
    re = parts[..., :used, 0]
    im = parts[..., :used, 1] if x.shape[-1] == 2 else None
    out_size = length if back or not onesided else length // 2 + 1
    cos, sin = _matrices(used, out_size, length, 1 if inverse else -1)
    if back:  # the other half is the mirrored conjugate
        twice = np.full((used, 1), 2.0)
        twice[0] = 1
        if length % 2 == 0 and used == length // 2 + 1:
            twice[-1] = 1
        cos, sin = cos * twice, sin * twice
    scale = 1 / length if inverse else 1.0
    dtype = np.float64 if kind is dtypes.float64 else np.float32
    c, s = (Tensor((m * scale).astype(dtype), device=x.device) for m in (cos, sin))
    real = re @ c if im is None else re @ c - im @ s
    if back:
        return real.unsqueeze(-1).movedim(-2, axis).cast(x.dtype)
    imaginary = re @ s if im is None else re @ s + im @ c
    return real.stack(imaginary, dim=-1).movedim(-2, axis).cast(x.dtype)


def _dft(
    x: Tensor,
    dft_length: Any = None,
    axis: Any = -2,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    at = int(_one(axis)) % x.ndim
    both = inverse and onesided
    size = x.shape[at]
    length = int(_one(dft_length)) if dft_length is not None else 2 * (size - 1) if both else size
    return transform(x, length, at, bool(inverse), bool(onesided))


def _dft_old(x: Tensor, dft_length: Any = None, axis: int = 1, **more: int) -> Tensor:
    return _dft(x, dft_length, axis, **more)


def _stft(
    x: Tensor, frame_step: Any, window: Tensor | None = None, frame_length: Any = None,
    onesided: int = 1,
) -> Tensor:  # fmt: skip
    """Frames of (batch, length, 1 or 2) transformed: (batch, frames, frequencies, 2)."""
    step = int(_one(frame_step))
    if frame_length is not None:
        length = int(_one(frame_length))
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
    count, length, rate = int(_one(bins)), int(_one(dft_length)), _one(sample_rate)
    low_mel, high_mel = (2595 * np.log10(1 + _one(f) / 700) for f in (low, high))
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
