"""Tensor: the top of the staircase. Making one, computing it, reading it, replacing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.engine.devices import Device
from tinygrad.engine.holders import surroundings
from tinygrad.engine.kernelize import kernelize
from tinygrad.engine.realize import in_memory, read, realize
from tinygrad.engine.storage import numpy_dtype
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Step
from tinygrad.tensor.autograd import Autograd
from tinygrad.tensor.creation import DTypeLike, checked_dtype, node_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Tensor(Autograd):
    """An array of numbers that is computed when it is needed.

    `data` is a number, nested lists of numbers, bytes, an array of NumPy, or a node. Operations
    build a graph; `realize`, `numpy`, `tolist`, `item` and the like compute it.

    >>> (Tensor([1.0, 2.0]) * 2).tolist()
    [2.0, 4.0]
    """

    __slots__ = ()
    __array_priority__ = 1000  # NumPy leaves mixed expressions to this class

    def __init__(
        self,
        data: Any,
        device: str | tuple[str, ...] | None = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        if isinstance(device, (tuple, list)):
            raise ArgumentError(f"Tensor: device {device}; legal is one name: there is no sharding")
        if isinstance(data, Tensor):
            moved = data.to(device) if device is not None else data
            data = moved._node
        kind = None if dtype is None else checked_dtype(dtype)
        self._set(node_of(data, kind, Device.canonicalize(device)), requires_grad)

    # ---- computing -------------------------------------------------------------------------------

    def realize(self, *others: Tensor) -> Self:
        """Computes this and `others` now, together.

        >>> Tensor([1, 2]).realize().uop.op
        Ops.BUFFER
        """
        group: tuple[Tensor, ...] = (self, *others)
        realize(*(t._node for t in group if 0 not in t.shape))
        return self

    def kernelize(self, *others: Tensor) -> Self:
        """Groups the graph into kernels, which run later; `uop.src[1].arg.ast` is one."""

        group: tuple[Tensor, ...] = (self, *others)
        kernelize(*(t._node for t in group))
        return self

    def schedule(self, *others: Tensor) -> list[Step]:
        """The steps (kernels, copies, calls) that computing this and `others` takes, in order.
        Runs none of them."""
        return self.schedule_with_vars(*others)[0]

    def schedule_linear(self, *others: Tensor) -> list[Step]:
        """The same as `schedule`."""
        return self.schedule(*others)

    def schedule_with_vars(self, *others: Tensor) -> tuple[list[Step], dict[str, int]]:
        """The steps, and the values of the variables bound in them."""
        group: tuple[Tensor, ...] = (self, *others)
        nodes = [t.uop for t in group if not in_memory(t.uop)]
        if not nodes:
            return [], {}
        structure = structure_of(nodes)
        bound = {node.src[0].arg[0]: node.val for node in structure.binds}
        return list(plan(structure.sink).steps), bound

    def replace(self, x: Tensor, allow_shape_mismatch: bool = False) -> Self:
        """Makes this the same as `x`; nothing is written."""
        if self.shape != x.shape and not allow_shape_mismatch:
            raise ShapeError(f"replace: {self.shape} by {x.shape}; legal is the same shape")
        self.hold(x._node, x._taped)
        return self

    def assign(self, x: Any) -> Self:
        """Writes `x` (of this shape, or broadcast to it, and this dtype) in place.

        Views of the same storage see it; expressions built before keep the old value.

        >>> t = Tensor([1, 2]).realize()
        >>> t.assign(Tensor([3, 4])).tolist()
        [3, 4]
        """
        given = self._tensor(x, self.dtype)
        if given.dtype is not self.dtype:
            raise DTypeError(
                f"assign: {given.dtype!r} to a tensor of {self.dtype!r}; use .cast({self.dtype!r})"
            )
        if given.device != self.device:
            raise ArgumentError(f"assign: from {given.device} to {self.device}; use .to() first")
        if given.requires_grad is True:
            raise ArgumentError("assign: the value needs a gradient; use .detach() first")
        value = given._broadcast_to_view("assign", self.shape)
        if value._node is self._node:
            return self
        stored = self._node.base.op in (Ops.BUFFER, Ops.ASSIGN)
        if stored and 0 not in self.shape:
            self._taped = False
            self._store()
            self._overwrite(value._node)
        else:
            self.hold(value._node)
        return self

    def _in_place(self, result: Tensor) -> Self:
        """`t += x`: written in place where that is possible, else a new expression."""
        if result.shape != self.shape:
            raise ShapeError(
                f"in place: the result has {result.shape}, this {self.shape}; legal is this shape"
            )
        result = result.cast(self.dtype)
        if result.requires_grad is True:
            self.requires_grad = True
            self.hold(result._node, taped=True)
            return self
        return self.assign(result)

    def __iadd__(self, x: Any) -> Self:
        return self._in_place(self.add(x))

    def __isub__(self, x: Any) -> Self:
        return self._in_place(self.sub(x))

    def __imul__(self, x: Any) -> Self:
        return self._in_place(self.mul(x))

    def __itruediv__(self, x: Any) -> Self:
        return self._in_place(self.div(x))

    def __ifloordiv__(self, x: Any) -> Self:
        return self._in_place(self.idiv(x))

    def __imod__(self, x: Any) -> Self:
        return self._in_place(self.mod(x))

    def __ipow__(self, x: Any) -> Self:
        return self._in_place(self.pow(x))

    def __iand__(self, x: Any) -> Self:
        return self._in_place(self.bitwise_and(x))

    def __ior__(self, x: Any) -> Self:
        return self._in_place(self.bitwise_or(x))

    def __ixor__(self, x: Any) -> Self:
        return self._in_place(self.bitwise_xor(x))

    def __ilshift__(self, x: Any) -> Self:
        return self._in_place(self.lshift(x))

    def __irshift__(self, x: Any) -> Self:
        return self._in_place(self.rshift(x))

    def __imatmul__(self, x: Any) -> Self:
        return self._in_place(self.matmul(x))

    # ---- devices ---------------------------------------------------------------------------------

    def to(self, device: str | tuple[str, ...] | None) -> Self:
        """The same value on another device; itself if it is there.

        >>> Tensor([1]).to("CPU").device
        'CPU'
        """
        if isinstance(device, (tuple, list)):
            return self.shard(device)
        name = Device.canonicalize(device)
        return self if name == self.device else self._from(self._node.copy_to(name))

    def to_(self, device: str | None) -> Self:
        """Moves this and its gradient to another device."""
        moved = self.to(device)
        if moved is not self:
            self.hold(moved._node, moved._taped)
            self.grad = None if self.grad is None else self.grad.to(device)
        return self

    def shard(self, devices: Any, axis: int | None = None) -> Self:
        """The same value on one device; ArgumentError for several, until there is sharding."""
        if len(devices) != 1:
            raise ArgumentError(f"shard: over {devices}; legal is one device: no sharding yet")
        return self.to(devices[0])

    def shard_(self, devices: Any, axis: int | None = None) -> Self:
        """`shard`, in place."""
        self.hold(self.shard(devices, axis)._node, self._taped)
        return self

    def shard_like(self, y: Tensor) -> Self:
        """The same value where `y` is."""
        return self.to(y.device)

    def clone(self) -> Self:
        """A copy in storage of its own; gradients pass.

        >>> Tensor([1, 2]).clone().tolist()
        [1, 2]
        """
        return self.contiguous()

    # ---- reading ---------------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """The values as a NumPy array of their own. Raises what CHECKs found wrong.

        >>> Tensor([1, 2]).numpy()
        array([1, 2], dtype=int32)
        """
        return read(self._node).copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def data(self) -> memoryview:
        """The values as a memoryview of this shape.

        >>> Tensor([1, 2]).data().tolist()
        [1, 2]
        """
        if self.dtype.fmt is None:
            raise DTypeError(f"data: Python has no letter for {self.dtype!r}; use .float() first")
        values: Any = self.numpy()
        return memoryview(values)

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; of shape () as one number.

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        values = read(self._node)
        if self.dtype.fmt is None:  # NumPy gives numbers of ml_dtypes otherwise
            values = values.astype("float32")
        return values.tolist()

    def item(self) -> Any:
        """The one value as a Python number. ShapeError unless there is exactly one element.

        >>> Tensor([5]).item()
        5
        """
        return self._only_item()

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not dtypes.is_int(self.dtype):
            raise DTypeError(f"index: {self.dtype!r} is no whole number")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise TypeError(
                f"the truth of a tensor of shape {self.shape} is not clear; use .any() or .all()"
            )
        return bool(self.item())

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise TypeError("iter: a tensor of shape () has no axis to go along")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, x: Any) -> bool:
        return bool(self.eq(x).any())

    def __repr__(self) -> str:
        node = self.uop
        grad = None if self.grad is None else self.grad.uop
        where = f"on {self.device} with grad {_short(grad)}"
        if _plain_memory(node) and 0 not in self.shape and self.numel() <= _SHOWN:
            return f"<Tensor {_values(node)} {node.dtype.name} {self.shape} {where}>"
        return f"<Tensor {_short(node)} {where}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self.numpy().tobytes(), self.shape, self.dtype, self.requires_grad))

    def __deepcopy__(self, memo: Any) -> Self:
        copy = self.detach().clone().realize()
        copy.requires_grad = self.requires_grad
        return copy

    # ---- a chain of layers -----------------------------------------------------------------------

    def sequential(self, layers: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        """Each layer applied to the result of the one before.

        >>> Tensor([1.0]).sequential([Tensor.exp, Tensor.log]).tolist()
        [1.0]
        """
        out: Tensor = self
        for layer in layers:
            out = layer(out)
        return out

    @classmethod
    def from_url(cls, url: str, gunzip: bool = False, **more: Any) -> Self:
        """The bytes at `url` as uint8, unpacked if `gunzip`."""
        import gzip
        import urllib.request

        with urllib.request.urlopen(url) as response:
            raw = response.read()
        return cls(gzip.decompress(raw) if gunzip else raw, **more)


surroundings.append(lambda: (bool(Tensor.training), Tensor._recording))
_SHOWN = 1000  # elements; larger tensors show what they are, not what they hold


def _plain_memory(node: UOp) -> bool:
    """Whether this is a whole computed buffer, so that looking at it computes nothing."""
    while node.op in (Ops.RESHAPE, Ops.DETACH):
        node = node.src[0]
    return node.op is Ops.BUFFER and node.realized is not None


def _short(node: UOp | None) -> str:
    """A node in one line, as the seeds print it."""
    if node is None:
        return "None"
    inner = f"(<{node.op!r}: {int(node.op)}>, {_short_buffer(node)})"
    return f"<UOp {node.device} {node.shape} {node.dtype.name} {inner}>"


def _short_buffer(node: UOp) -> str:
    held = node.realized
    return "None" if held is None else f"<buf {held.nbytes} bytes on {held.device}>"


def _values(node: UOp) -> str:
    import numpy as np

    return np.array2string(read(node), separator=", ", threshold=20).replace("\n", "")


def _rebuilt(
    raw: bytes, shape: tuple[int, ...], dtype: DType, requires_grad: bool | None
) -> Tensor:
    import numpy as np

    values = np.frombuffer(raw, numpy_dtype(dtype))
    return Tensor(values.reshape(shape), requires_grad=requires_grad)
