"""Other shapes and orders of the same elements."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from tinygrad.array_api.types import checked, result_type
from tinygrad.base.errors import ShapeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import axis_of, broadcast_shape, check_axes

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]

Arrays = Sequence[Tensor]


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """All arrays under the one shape that they broadcast to.

    >>> [x.shape for x in broadcast_arrays(Tensor.ones(2, 1), Tensor.ones(3))]
    [(2, 3), (2, 3)]
    """
    checked(*arrays)
    shape = broadcast_shape("broadcast_arrays", *(x.shape for x in arrays)) if arrays else ()
    return tuple(x.expand(shape) for x in arrays)


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """`x` repeated along axes of size 1 and new axes in front.

    >>> broadcast_to(Tensor([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    checked(x)
    return x.expand(shape)


def _promoted(arrays: Arrays) -> list[Tensor]:
    checked(*arrays)
    kind = result_type(*arrays)
    return [x.cast(kind) for x in arrays]


def concat(arrays: Arrays, /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after the other along an axis; flattened, for None.

    >>> concat([Tensor([1, 2]), Tensor([3])]).tolist()
    [1, 2, 3]
    """
    first, *others = _promoted(arrays)
    if axis is None:
        return first.flatten().cat(*(x.flatten() for x in others))
    return first.cat(*others, dim=axis)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """A new axis of size 1.

    >>> expand_dims(Tensor([1, 2]), axis=1).tolist()
    [[1], [2]]
    """
    checked(x)
    return x.unsqueeze(axis)


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements in reverse along some axes, all for None.

    >>> flip(Tensor([1, 2, 3])).tolist()
    [3, 2, 1]
    """
    checked(x)
    axes = tuple(range(x.ndim)) if axis is None else axis
    return x.flip(axes) if x.ndim else x


def moveaxis(
    x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
) -> Tensor:
    """Some axes at other places, the rest in their order.

    >>> moveaxis(Tensor.ones(2, 3, 4), (0, 1), (2, 0)).shape
    (3, 4, 2)
    """
    checked(x)
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order.

    >>> permute_dims(Tensor.ones(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    checked(x)
    return x.permute(axes) if axes else x


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element of an axis so many times; of the flattened array, for None.

    >>> repeat(Tensor([1, 2]), Tensor([2, 1])).tolist()
    [1, 1, 2]
    """
    checked(x)
    return x.repeat_interleave(repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> Tensor:
    """The same elements in row-major order under another shape.

    >>> reshape(Tensor([1, 2, 3, 4]), (2, 2)).tolist()
    [[1, 2], [3, 4]]
    """
    checked(x)
    made = x.reshape(shape)
    return made.clone() if copy else made


def roll(
    x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None
) -> Tensor:
    """The elements moved on along axes; what leaves at the end comes back at the beginning.

    >>> roll(Tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    checked(x)
    return x.roll(shift, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Without some axes, which must have size 1.

    >>> squeeze(Tensor([[1, 2]]), 0).tolist()
    [1, 2]
    """
    checked(x)
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = [axis_of(a, x.ndim, "squeeze") for a in given]
    if any(x.shape[a] != 1 for a in axes) or (given and not x.ndim):
        raise ShapeError(f"squeeze: axis {axis} of {x.shape}; legal are axes of size 1")
    return x.reshape(tuple(n for a, n in enumerate(x.shape) if a not in axes))


def stack(arrays: Arrays, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape side by side along a new axis.

    >>> stack([Tensor([1]), Tensor([2])]).tolist()
    [[1], [2]]
    """
    first, *others = _promoted(arrays)
    return first.stack(*others, dim=axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole array so many times along each axis.

    >>> tile(Tensor([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    checked(x)
    return x.tile(repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of an axis, without it.

    >>> [x.tolist() for x in unstack(Tensor([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    checked(x)
    check_axes("unstack", x, 1)
    return x.unbind(axis)
