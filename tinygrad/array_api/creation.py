"""Arrays out of nothing, out of numbers, and out of other libraries' arrays."""

from __future__ import annotations

import builtins
from typing import Any

from tinygrad.array_api.types import checked
from tinygrad.base.dtype import DType
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import Devices

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]

Shape = int | tuple[int, ...]


def asarray(
    obj: Any,
    /,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    copy: builtins.bool | None = None,
) -> Tensor:
    """A tensor of numbers, nested lists of them, or an array. `copy`: False forbids a copy
    (ValueError where there must be one), None makes one only where it must be.

    >>> asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if isinstance(obj, Tensor):
        same = dtype in (None, obj.dtype) and device in (None, obj.device)
        if not same and copy is False:
            raise ArgumentError(f"asarray: copy=False, but {obj.dtype!r} must become {dtype!r}")
        made = obj.to(device) if device else obj
        made = made if dtype is None else made.cast(dtype)
        return made.clone() if copy and made is obj else made
    if hasattr(obj, "__dlpack__") and not copy:
        try:
            made = Tensor.from_dlpack(obj, device=device, copy=copy)
        except BufferError as error:
            if copy is False:
                raise ArgumentError(f"asarray: copy=False, but {error}") from error
        else:
            return asarray(made, dtype=dtype, copy=copy)
    if copy is False:
        raise ArgumentError(f"asarray: copy=False of {type(obj).__name__}; legal are arrays")
    return Tensor(obj, device=device, dtype=dtype)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: Devices | None = None,
) -> Tensor:
    """Numbers from `start` in steps of `step`, below `stop`; one argument alone is `stop`.

    >>> arange(3).tolist()
    [0, 1, 2]
    """
    return Tensor.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape: Shape, *, dtype: DType | None = None, device: Devices | None = None) -> Tensor:
    """An array whose values may be anything.

    >>> empty((2, 3)).shape
    (2, 3)
    """
    return Tensor.empty(shape, dtype=dtype, device=device)


def empty_like(
    x: Tensor, /, *, dtype: DType | None = None, device: Devices | None = None
) -> Tensor:
    """`empty` with the shape, type and device of `x` unless given.

    >>> empty_like(Tensor.ones(2, 3)).shape
    (2, 3)
    """
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Devices | None = None,
) -> Tensor:
    """Ones on diagonal `k`, zeros elsewhere.

    >>> eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    columns = n_rows if n_cols is None else n_cols
    whole = ones((n_rows, columns), dtype=dtype, device=device)
    return whole.triu(k).tril(k)


def from_dlpack(
    x: Any, /, *, device: str | None = None, copy: builtins.bool | None = None
) -> Tensor:
    """Another library's array, without a copy where that can be; see `Tensor.from_dlpack`.

    >>> import numpy as np
    >>> from_dlpack(np.arange(3)).tolist()
    [0, 1, 2]
    """
    return Tensor.from_dlpack(x, device=device, copy=copy)


def full(
    shape: Shape,
    fill_value: float | builtins.bool,
    *,
    dtype: DType | None = None,
    device: Devices | None = None,
) -> Tensor:
    """`fill_value` everywhere.

    >>> full((2,), 7).tolist()
    [7, 7]
    """
    if isinstance(fill_value, Tensor):  # SciPy gives arrays of shape ()
        fill_value = fill_value.item()
    return Tensor.full(shape, fill_value, dtype=dtype, device=device)


def full_like(
    x: Tensor,
    /,
    fill_value: float | builtins.bool,
    *,
    dtype: DType | None = None,
    device: Devices | None = None,
) -> Tensor:
    """`full` with the shape, type and device of `x` unless given.

    >>> full_like(Tensor([1, 2]), 7).tolist()
    [7, 7]
    """
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Devices | None = None,
    endpoint: builtins.bool = True,
) -> Tensor:
    """`num` numbers from `start` to `stop`, evenly spaced; without `endpoint` one step is left.

    >>> linspace(0, 1, 4, endpoint=False).tolist()
    [0.0, 0.25, 0.5, 0.75]
    """
    if endpoint:
        return Tensor.linspace(start, stop, num, dtype=dtype, device=device)
    return Tensor.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Each of some axes spread over the grid of all of them.

    >>> [x.tolist() for x in meshgrid(Tensor([1, 2]), Tensor([3]))]
    [[[1, 2]], [[3, 3]]]
    """
    if not arrays:
        return []
    checked(*arrays)
    if any(x.dtype is not arrays[0].dtype for x in arrays):
        raise ArgumentError(f"meshgrid: {[x.dtype for x in arrays]}; legal is one dtype")
    return list(arrays[0].meshgrid(*arrays[1:], indexing=indexing))


def ones(shape: Shape, *, dtype: DType | None = None, device: Devices | None = None) -> Tensor:
    """Ones.

    >>> ones((2,)).tolist()
    [1.0, 1.0]
    """
    return Tensor.ones(shape, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Devices | None = None) -> Tensor:
    """`ones` with the shape, type and device of `x` unless given.

    >>> ones_like(Tensor([5, 6])).tolist()
    [1, 1]
    """
    return full_like(x, 1, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The elements on and below diagonal `k`, zeros above.

    >>> tril(Tensor([[1, 2], [3, 4]])).tolist()
    [[1, 0], [3, 4]]
    """
    return x.tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The elements on and above diagonal `k`, zeros below.

    >>> triu(Tensor([[1, 2], [3, 4]])).tolist()
    [[1, 2], [0, 4]]
    """
    return x.triu(k)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Devices | None = None) -> Tensor:
    """Zeros.

    >>> zeros((2,)).tolist()
    [0.0, 0.0]
    """
    return Tensor.zeros(shape, dtype=dtype, device=device)


def zeros_like(
    x: Tensor, /, *, dtype: DType | None = None, device: Devices | None = None
) -> Tensor:
    """`zeros` with the shape, type and device of `x` unless given.

    >>> zeros_like(Tensor([5, 6])).tolist()
    [0, 0]
    """
    return full_like(x, 0, dtype=dtype, device=device)
