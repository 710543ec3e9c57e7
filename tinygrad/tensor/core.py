"""What every tensor has: a node of the graph, and the facts that follow from it.

The files of this folder are a staircase. Each holds one idea as an abstract class, stands on the
one before and knows nothing of those above: core, creation, movement, elementwise, functions,
reduction, linalg, indexing, conv, order, random, learning, special, autograd, tensor.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any, ClassVar, Self

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.base.settings import TRACEMETA, TRAINING
from tinygrad.engine.holders import Holder, holders
from tinygrad.engine.storage import Family, join, latest, note_change
from tinygrad.uop.infer import settled as settled_size
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

Sint = Any  # a size: a whole number, or a node where it is symbolic
Shape = tuple[Sint, ...]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_is_inside: dict[str, bool] = {}  # file → whether it is one of the package's
VIEWS = GroupOp.Movement | {Ops.BUFFER, Ops.ASSIGN}  # what may show a buffer's newest version


def user_line() -> str | None:
    """`file:line` of the first caller outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        inside = _is_inside.get(file)
        if inside is None:
            inside = _is_inside[file] = file.startswith(_PACKAGE)
        if not inside:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def axis_of(dim: int, ndim: int, operation: str) -> int:
    """Axis `dim` counted from the front; ArgumentError unless it is one of `ndim`."""
    span = max(ndim, 1)
    if not isinstance(dim, int) or not -span <= dim < span:
        raise ArgumentError(
            f"{operation}: axis {dim!r} of a tensor with {ndim} axes; "
            f"legal are {-span} to {span - 1}"
        )
    return dim % span


def _detached(node: UOp) -> bool:
    """Whether a DETACH stands among the views at the top of `node`."""
    while node.op in GroupOp.Movement:
        node = node.src[0]
    return node.op is Ops.DETACH


def _viewed(node: UOp) -> UOp:
    """What `node` is a view of."""
    while node.op in GroupOp.Movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node


def settled(node: UOp) -> UOp:
    """What holds the value of `node` now: a view of a buffer if it was computed, else itself.

    DETACH stays, because what was computed must not let gradients through afterwards either.
    """
    if node.known is not None:
        node = node.known.detach() if _detached(node) else node.known
    if node.op is Ops.DETACH:
        inner = settled(node.src[0])
        return node if inner is node.src[0] else inner.detach()
    return latest(node) if node.op in VIEWS else node


class _Training:
    """`Tensor.training` while nobody has set it: what `Context(TRAINING=1)` says."""

    def __get__(self, tensor: object, owner: type) -> bool:
        return bool(TRAINING)


class Core(Holder):
    """A node, its gradient, and whether one is wanted. `requires_grad` None: not said.

    A result wants a gradient if a source does. Such a result keeps its expression after it was
    computed, so that `backward` can follow it; all others then keep only the buffer.
    """

    __slots__ = ("_uop", "requires_grad", "grad", "_taped", "_family")
    _recording: ClassVar[bool] = True
    training: ClassVar[Any] = _Training()

    _uop: UOp
    requires_grad: bool | None
    grad: Self | None
    _taped: bool
    _family: Family

    @classmethod
    def _wrap(cls, node: UOp, requires_grad: bool | None = None) -> Self:
        """A tensor of `node` that has no tensors as sources."""
        made = object.__new__(cls)
        made._set(node, requires_grad)
        return made

    @classmethod
    def of(cls, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A tensor of `node` that has no tensors as sources."""
        return cls._wrap(node, wants_gradient)

    def alike(self, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A tensor of `node`, another view of what this is a view of."""
        made = self._wrap(node, wants_gradient)
        made._family = self._family
        return made

    def hold(self, node: UOp, taped: bool = False) -> None:
        """From now on this is a tensor of `node`."""
        self._uop, self._taped = node, taped
        note_change()

    @property
    def wants_gradient(self) -> bool | None:
        """What `requires_grad` says."""
        return self.requires_grad

    @property
    def has_gradient(self) -> bool:
        """Whether `grad` is there."""
        return self.grad is not None

    @property
    def family(self) -> Family:
        """What this shares with the views made of it."""
        return self._family

    def _set(self, node: UOp, requires_grad: bool | None) -> None:
        if node.origin is None and TRACEMETA:
            node.origin = user_line()
        self._uop, self.requires_grad, self.grad, self._taped = node, requires_grad, None, False
        self._family = Family()
        holders.add(self)

    def _from(self, node: UOp, *others: Core) -> Self:
        """A tensor of `node`, which was made of this one and `others`."""
        wants = self.requires_grad
        for other in others:
            if other.requires_grad is not wants:
                wants = True if True in (wants, other.requires_grad) else None
        made = self._wrap(node, wants if Core._recording else False)
        made._taped = made.requires_grad is True
        if node.op in VIEWS or node.op is Ops.DETACH:
            made._join(self)
        return made

    def _join(self, other: Core) -> None:
        """If this is a view of what `other` is a view of, a write to one is seen by both."""
        if _viewed(self._uop) is _viewed(other._uop):
            self._family = other._family

    @property
    def _node(self) -> UOp:
        """The node to build on: an expression while gradients may have to follow it."""
        node = self._uop
        if self._taped and (node.known is not None or node.base.known is not None):
            return node  # it was computed, or is a view of what was
        now = settled(node)
        if now is not node:
            self._uop = now
            join(_viewed(now), self._family)
        return now

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def uop(self) -> UOp:
        """The node that holds the value: a view of a buffer once it is computed.

        >>> Tensor([1, 2]).uop.op
        Ops.COPY
        """
        node = self._node
        return settled(node) if self._taped else node

    @property
    def shape(self) -> Shape:
        """The sizes of the axes.

        >>> Tensor.ones(2, 3).shape
        (2, 3)
        """
        return self._uop.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._uop.dtype

    @property
    def device(self) -> str:
        """The name of the device that holds, or will hold, the value."""
        device = self._uop.device
        assert device is not None, "a tensor's graph names its device"
        return device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def numel(self) -> Sint:
        """The number of elements.

        >>> Tensor.ones(2, 3).numel()
        6
        """
        return settled_size(prod(self.shape))

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of axis `dim`.

        >>> Tensor.ones(2, 3).size(), Tensor.ones(2, 3).size(-1)
        ((2, 3), 3)
        """
        return self.shape if dim is None else self.shape[axis_of(dim, self.ndim, "size")]

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def nbytes(self) -> Sint:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the dtype is a float."""
        return dtypes.is_float(self.dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a tensor of shape () has no axis to count")
        return int(self.shape[0])

    def __hash__(self) -> int:
        return id(self)

    # ---- for the files above ---------------------------------------------------------------------

    def _axes(self, axis: int | tuple[int, ...] | list[int] | None, operation: str) -> Any:
        """`axis` as a tuple of axes counted from the front, in order; None means all."""
        if axis is None:
            return tuple(range(self.ndim))
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        axes = tuple(sorted(axis_of(a, self.ndim, operation) for a in given))
        if self.ndim == 0:
            return ()
        if len(set(axes)) < len(axes):
            raise ArgumentError(f"{operation}: an axis stands twice in {axis}")
        return axes

    def _constant(self, value: Any, dtype: DType | None = None, shape: Shape = ()) -> UOp:
        """A constant on this tensor's device."""
        node = UOp.const(dtype or self.dtype, value, self.device)
        return node.broadcast_to(shape) if shape else node


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
