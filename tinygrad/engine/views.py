"""Views of storage as NumPy's views of its bytes: what movement shows, without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygrad.backends.disk import Region
from tinygrad.base.errors import ShapeError
from tinygrad.engine.aliases import bottom_of
from tinygrad.engine.sharing import address_of
from tinygrad.engine.storage import as_array, buffer_of, numpy_dtype
from tinygrad.schedule.strides import steps_between
from tinygrad.uop import Ops, UOp

Array = NDArray[Any]


def is_shown(node: UOp) -> bool:
    """Whether `node` is a view of a BUFFER in memory that the host can address."""
    bottom = bottom_of(node)
    if bottom.storage is None or address_of(bottom.storage) is None:
        return False
    return all(step.op in _VIEWS and len(step.src) == 1 for step in steps_between(node, bottom))


def shown(node: UOp, bottom: UOp) -> Array:
    """The content of `node`, a view of the BUFFER `bottom`: NumPy's view of it if possible."""
    return shown_of(node, bottom, whole_array(bottom))


def shown_of(node: UOp, bottom: UOp, array: Array) -> Array:
    """The same for an array in place of `bottom`."""
    for step in steps_between(node, bottom):
        if not all(isinstance(n, int) for n in step.shape):
            raise ShapeError(f"a view of shape {step.shape} on {bottom.device}; legal are numbers")
        array = _VIEWS[step.op](step, array)
    return array


def whole_array(bottom: UOp) -> Array:
    """All elements of a BUFFER; of a file they are mapped, so that nothing is read yet."""
    buffer = buffer_of(bottom)
    if isinstance(buffer.handle, Region):
        raw = buffer.handle.file.mapped(buffer.handle.offset, buffer.nbytes)
        return raw.view(numpy_dtype(bottom.dtype))
    return as_array(buffer, bottom.dtype)


def _padded(step: UOp, array: Array) -> Array:
    return np.pad(array, step.sizes)


def _windowed(step: UOp, array: Array) -> Array:
    given = {axis: (before, after) for axis, *_, before, after in step.arg}
    room = [given.get(axis, (0, 0)) for axis in range(array.ndim)]
    if any(room_of != (0, 0) for room_of in room):  # negative room cuts off elements
        pairs = zip(room, array.shape, strict=True)
        array = array[tuple(slice(max(-b, 0), n + min(a, 0)) for (b, a), n in pairs)]
        array = np.pad(array, [(max(b, 0), max(a, 0)) for b, a in room])
    strides, taps = list(array.strides), []
    for axis, _, stride, dilation, *_ in step.arg:
        taps.append(strides[axis] * dilation)
        strides[axis] *= stride
    raw = array.view(f"V{array.itemsize}")  # NumPy lacks some dtypes, such as fp8e5m2
    return np.lib.stride_tricks.as_strided(raw, step.shape, (*strides, *taps)).view(array.dtype)


_VIEWS: dict[Ops, Callable[[UOp, Array], Array]] = {
    Ops.RESHAPE: lambda step, array: array.reshape(step.shape),
    Ops.EXPAND: lambda step, array: np.broadcast_to(array, step.shape),
    Ops.PERMUTE: lambda step, array: array.transpose(step.arg),
    Ops.SHRINK: lambda step, array: array[tuple(slice(*box) for box in step.sizes)],
    Ops.FLIP: lambda step, array: np.flip(array, step.arg),
    Ops.PAD: _padded,
    Ops.WINDOW: _windowed,
    Ops.DETACH: lambda step, array: array,
}
