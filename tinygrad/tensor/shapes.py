"""Sizes, axes and devices, as methods take them and errors tell them: what is checked before a node
is made. Numbers that a dtype can't hold are refused here, too; types of arguments, and words, in
`arguments`."""

from __future__ import annotations

from typing import Any, Self

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError, AxisError, ShapeError
from tinygrad.base.helpers import plain, prod
from tinygrad.uop.infer import most

Sint = Any  # a size: a whole number, or a node where it is symbolic
Shape = tuple[Sint, ...]
Devices = str | tuple[str, ...]  # one, or several that share a tensor


class Size(int):
    """A number of elements that can be called for the shape, or for the size of one axis. Of a
    symbolic shape the number is that of the largest."""

    shape: Shape

    def __new__(cls, shape: Shape) -> Self:  # noqa: D102
        made = super().__new__(cls, prod(map(most, shape)))
        made.shape = shape
        return made

    def __call__(self, dim: int | None = None) -> Any:
        """The shape; with `dim` the size of that axis."""
        return self.shape if dim is None else self.shape[axis_of(dim, len(self.shape), "size")]


def axis_of(dim: int, ndim: int, operation: str) -> int:
    """Axis `dim` counted from the front; ArgumentError unless it is one of `ndim`."""
    span, dim = max(ndim, 1), plain(dim)
    if not isinstance(dim, int) or dim is True or dim is False or not -span <= dim < span:
        raise AxisError(
            f"{operation}: axis {dim!r} of a tensor with {ndim} axes; "
            f"legal are {-span} to {span - 1}"
        )
    return dim % span


def check_axes(operation: str, tensor: Any, least: int) -> None:
    """ShapeError if the tensor has fewer axes than this."""
    if tensor.ndim < least:
        legal = "are two axes" if least == 2 else "is one axis"
        raise ShapeError(f"{operation}: {tensor.shape}; legal {legal} or more")


def check_devices(operation: str, *tensors: Any) -> None:
    """ArgumentError unless all are on one device, or on the same several."""
    first = tensors[0].device
    for tensor in tensors:
        if tensor.device != first:
            raise ArgumentError(
                f"{operation}: operands are on {first} and {tensor.device}; legal is one device, "
                "or the same several: use .to(device) or .shard(devices)"
            )


def broadcast_shape(operation: str, *shapes: Shape) -> Shape:
    """The shape that all `shapes` expand to: axes meet from the last, sizes of 1 repeat.

    >>> broadcast_shape("add", (3, 1), (4,))
    (3, 4)
    """
    first = shapes[0]
    for shape in shapes:
        if shape != first:
            break
    else:
        return first
    ndim = max(len(shape) for shape in shapes)
    lined = [(1,) * (ndim - len(shape)) + shape for shape in shapes]
    out = []
    for axis, sizes in enumerate(zip(*lined, strict=True)):
        large = {n for n in sizes if n != 1}
        if len(large) > 1:
            raise ShapeError(
                f"{operation}: shapes {' and '.join(map(str, shapes))} don't broadcast: axis "
                f"{axis - ndim} has sizes {sizes}; legal are equal sizes, or 1"
            )
        out.append(large.pop() if large else 1)
    return tuple(out)


def holds(dtype: DType, number: Any) -> bool:
    """Whether a number can be one of `dtype`: a float that becomes a whole one loses its fraction,
    no more."""
    is_exact = dtypes.is_int(dtype) and isinstance(number, (int, float))
    return not is_exact or dtype.holds(number, number)


def check_number(operation: str, number: Any, dtype: DType) -> None:
    """ArgumentError for a number that would wrap, or become another one."""
    if not holds(dtype, number):
        raise ArgumentError(
            f"{operation}: {number} as {dtype!r}, which holds {dtypes.min(dtype)} to "
            f"{dtypes.max(dtype)}; legal are such numbers, or a wider dtype"
        )
