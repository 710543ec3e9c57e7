"""NumPy arrays, scalars and dtypes inside a pickle, and the bytes that they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def _array(raw: Any, kind: Any) -> NDArray[Any]:
    if not isinstance(kind, np.dtype) or not isinstance(raw, bytes):
        raise ValueError("a NumPy value without bytes and dtype")
    return np.frombuffer(raw, kind)


def dtype_of(name: Any, *_: Any) -> np.dtype[Any]:
    """A dtype by its name, if it is one of numbers."""
    kind = np.dtype(str(name))
    if kind.kind not in "biuf":
        raise ValueError(f"a NumPy dtype {name!r}; legal are numbers")
    return kind


def dtype_state(kind: Any, state: Any) -> np.dtype[Any]:
    """A dtype in the order of bytes that its state says."""
    order = state[1] if type(state) is tuple and len(state) > 1 else "="
    turned: np.dtype[Any] = np.dtype(kind).newbyteorder(">" if order == ">" else "=")
    return turned


def array_state(_: Any, state: Any) -> NDArray[Any]:
    """The array that its state says: shape, dtype, order and bytes."""
    _, shape, kind, by_columns, raw = state
    return _array(raw, kind).reshape(shape, order="F" if by_columns is True else "C").copy()


def from_buffer(raw: Any, kind: Any, shape: Any, order: Any) -> NDArray[Any]:
    """An array as protocol 5 has it."""
    return _array(bytes(raw_of(raw)), kind).reshape(shape, order=order)


def scalar(kind: Any, raw: Any) -> Any:
    """A number that is its bytes."""
    return _array(raw, kind)[0]


def encoded(text: Any, encoding: Any = "latin1") -> bytes:
    """The bytes that protocol 2 has as a text."""
    if not isinstance(text, str) or encoding not in ("latin1", "utf-8", "ascii"):
        raise ValueError("bytes that are no encoded text")
    return text.encode(encoding)


def raw_of(given: Any = b"", encoding: Any = "latin1") -> Any:
    """Bytes; or a text that stands for them, as in protocol 2."""
    return given if isinstance(given, (bytes, bytearray)) else encoded(given, encoding)
