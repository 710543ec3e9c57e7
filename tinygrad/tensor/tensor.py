"""Tensor: the top of the staircase. Making one, computing it, reading it, replacing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from tinygrad.backends import keeps
from tinygrad.base.dtype import COMPLEX_PARTS, DType, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, FileError, ShapeError
from tinygrad.base.later import later
from tinygrad.engine.devices import Device
from tinygrad.engine.holders import surroundings
from tinygrad.engine.keeping import moved as moved_to
from tinygrad.engine.keeping import whole_file
from tinygrad.engine.kernelize import kernelize
from tinygrad.engine.profile import GlobalCounters
from tinygrad.engine.realize import in_memory
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.plan import Step
from tinygrad.schedule.shard_rules import placement_of
from tinygrad.tensor.again import compute
from tinygrad.tensor.core import owned
from tinygrad.tensor.creation import DTypeLike, checked_dtype, holds_complex, node_of
from tinygrad.tensor.long_tail.in_place import InPlace
from tinygrad.tensor.modes import recording
from tinygrad.tensor.shapes import axis_of
from tinygrad.uop.node import UOp
from tinygrad.uop.placement import Placement, cut_at, even_bounds

kernels = later("tinygrad.schedule.kernels")


class Tensor(InPlace):
    """An array of numbers that is computed when it is needed.

    `data` is a number, nested lists of numbers, bytes, an array of NumPy, a node, or the path
    (`pathlib.Path`) of a file, whose bytes stay on the device DISK until they are wanted.
    Operations build a graph; `realize`, `numpy`, `tolist`, `item` and the like compute it.

    >>> (Tensor([1.0, 2.0]) * 2).tolist()
    [2.0, 4.0]
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Any = None,
        device: Any = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Of complex numbers, a tensor of their class."""
        wants = dtype is not None and checked_dtype(dtype) in COMPLEX_PARTS
        if cls is Tensor and (wants or holds_complex(data)):
            cls = cls._complex
        return object.__new__(cls)

    def __init__(
        self,
        data: Any,
        device: str | tuple[str, ...] | None = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        sources = []
        if isinstance(data, Tensor):
            sources = [data.to(device) if device is not None else data]
            data = sources[0]._node
        kind = None if dtype is None else checked_dtype(dtype)
        if isinstance(data, os.PathLike):
            data = whole_file(data, kind or dtypes.uint8)
            data = data if device is None else moved_to(data, Device.canonicalize(device))
        node = node_of(data, kind, Device.canonicalize(device))
        self._set(node if isinstance(data, UOp) else owned(node), None)
        if requires_grad is not None:
            self.requires_grad_(requires_grad)
        self._begin()
        if sources:
            self._reads_with(*sources)

    # ---- computing -------------------------------------------------------------------------------

    def realize(self, *others: Tensor, do_update_stats: bool = True) -> Self:
        """Computes this and `others` now, together; `GlobalCounters` don't tell unless
        `do_update_stats`.

        >>> Tensor([1, 2]).realize().uop.op
        Ops.BUFFER
        """
        if do_update_stats:
            compute((self, *others))
            return self
        with GlobalCounters.uncounted():
            return self.realize(*others)

    def kernelize(self, *others: Tensor) -> Self:
        """Groups the graph into kernels, which run later; `uop.src[1].arg.ast` is one.

        >>> (Tensor([1, 2]) + 1).kernelize().tolist()
        [2, 3]
        """

        group: tuple[Tensor, ...] = (self, *others)
        kernelize(*(t._value for t in group))
        return self

    def schedule(self, *others: Tensor) -> list[Step]:
        """The steps (kernels, copies, calls) that computing this and `others` takes, in order.
        Runs none of them.

        >>> [step.op for step in (Tensor([1, 2]).realize() + 1).schedule()]
        [Ops.KERNEL]
        """
        return self.schedule_with_vars(*others)[0]

    schedule_linear = schedule

    def schedule_with_vars(self, *others: Tensor) -> tuple[list[Step], dict[str, int]]:
        """The steps, and the values of the variables bound in them.

        >>> (Tensor([1, 2]).realize() + 1).schedule_with_vars()[1]
        {}
        """
        group: tuple[Tensor, ...] = (self, *others)
        nodes = [t.uop for t in group if not in_memory(t.uop)]
        if not nodes:
            return [], {}
        structure = structure_of(nodes)
        bound = {node.src[0].arg[0]: node.val for node in structure.binds}
        return list(kernels.plan(structure.sink).steps), bound

    def replace(self, x: Tensor, allow_shape_mismatch: bool = False) -> Self:
        """Makes this the same as `x`; nothing is written.

        >>> Tensor([1, 2]).replace(Tensor([3, 4])).tolist()
        [3, 4]
        """
        if self.shape != x.shape and not allow_shape_mismatch:
            raise ShapeError(f"replace: {self.shape} by {x.shape}; legal is the same shape")
        if self._element != x._element:
            raise DTypeError(
                f"replace: {self.dtype!r} by {x.dtype!r}; legal are both complex or none"
            )
        self._become(x)
        return self

    # ---- devices ---------------------------------------------------------------------------------

    def to(
        self,
        device: Any = None,
        dtype: DTypeLike | None = None,
        non_blocking: bool = False,  # nothing here waits for a copy
        copy: bool = False,
    ) -> Self:
        """The same value on another device; on each of several, of a tuple; itself if it is there
        and no `copy` is wanted. With a `dtype`, or one in the device's place, cast; beside a
        tensor, as that one is.

        >>> Tensor([1]).to("CPU").device
        'CPU'
        >>> Tensor([1]).to(dtypes.int8).dtype
        dtypes.char
        >>> Tensor([1]).to(("CPU", "CPU:1")).device
        ('CPU', 'CPU:1')
        """
        if isinstance(dtype, bool):  # after a dtype or a tensor come these two, as in PyTorch
            dtype, copy = None, non_blocking
        if copy:
            return self.to(device, dtype).clone()
        if isinstance(device, Tensor):
            device, dtype = device.device, device.dtype if dtype is None else dtype
        elif isinstance(device, DType):
            device, dtype = None, device
        if dtype is not None:
            return self.cast(dtype).to(self.device if device is None else device)
        if isinstance(device, (tuple, list)):
            return self.shard(device)
        name = Device.canonicalize(device)
        if keeps(name) and isinstance(self.device, tuple):  # parts are put together by a kernel
            return self.to(self.device[0]).to(name)
        return self if name == self.device else self._from(moved_to(self._held, name))

    _moved = to

    def to_(self, device: str | tuple[str, ...] | None) -> Self:
        """Moves this and its gradient to another device.

        >>> Tensor([1]).to_("CPU").device
        'CPU'
        """
        moved = self._untaped().to(device)
        if moved.device != self.device:
            self._become(moved)
            self.grad = None if self._grad is None else self._grad.to(device)
        return self

    def _untaped(self) -> Self:
        """This; of what was made from nothing, without the way back that gradients would take to
        where it was before it moved."""
        return self if self._taped else self.detach()

    def shard(
        self, devices: Sequence[str], axis: int | None = None, splits: Sequence[int] | None = None
    ) -> Self:
        """The same value on several devices: all of it on each, or with `axis` cut along that into
        parts, one a device, of the sizes `splits` or as even as can be.

        Operations work on it as on any tensor, each device on its part; results are cut where their
        operands are. What devices need of each other is copied: the sum over an axis that is cut
        is summed up over the devices, an operand that is cut along another axis is brought. Of an
        axis with fewer elements than there are devices some have nothing.

        >>> x = Tensor.arange(6).shard(("CPU", "CPU:1"), axis=0)
        >>> x.device, x.uop.axis, (x * 2).sum().item()
        (('CPU', 'CPU:1'), 0, 30)
        """
        if isinstance(devices, str):
            raise ArgumentError(f"shard: devices {devices!r}; legal is a tuple of names")
        names = Device.canonicalize(tuple(devices))
        if isinstance(names, str):
            return self.to(names)
        start = self.to(names[0]) if keeps(self.device) else self  # no kernel could take parts
        if axis is None:
            if splits is not None:
                raise ArgumentError(f"shard: splits {tuple(splits)} of no axis; give axis=")
            return self._from(start._held.copy_to(names))
        where = axis_of(axis, self.ndim, "shard")
        if not self.ndim:
            raise ArgumentError("shard: a tensor of shape () has no axis to cut; legal is None")
        size = self.shape[where]
        cut = cut_at(self.shape, where, even_bounds(size, len(names), splits))
        if cut is None:
            raise ArgumentError(
                f"shard: axis {axis} of {self.shape}; legal is one with no symbolic size before it"
            )
        return self._from(start._held.copy_to(Placement(names, cut)))

    def shard_(
        self, devices: Sequence[str], axis: int | None = None, splits: Sequence[int] | None = None
    ) -> Self:
        """`shard`, in place; its gradient too.

        >>> Tensor([1, 2]).shard_(("CPU", "CPU:1"), axis=0).device
        ('CPU', 'CPU:1')
        """
        self.grad = None if self._grad is None else self._grad.shard(devices, axis, splits)
        self._become(self._untaped().shard(devices, axis, splits))
        return self

    def shard_like(self, y: Tensor) -> Self:
        """The same value where `y` is; cut as `y` is, if they have one shape.

        >>> y = Tensor([2, 3]).shard(("CPU", "CPU:1"), axis=0)
        >>> Tensor([1, 4]).shard_like(y).uop.axis
        0
        """
        if isinstance(y.device, str):
            return self.to(y.device)
        place = placement_of(y._held)
        if self.shape != y.shape and place.cut is not None:
            raise ShapeError(
                f"shard_like: {self.shape} like {y.shape}, which is cut along axis "
                f"{y.uop.axis}; legal is the same shape"
            )
        start = self.to(place.names[0]) if keeps(self.device) else self
        return self._from(start._held.copy_to(place))

    def clone(self, device: str | tuple[str, ...] | None = None) -> Self:
        """A copy in storage of its own, on `device` if given; gradients pass.

        >>> Tensor([1, 2]).clone().tolist()
        [1, 2]
        """
        return (self if device is None else self.to(device)).contiguous()

    # ---- reading ---------------------------------------------------------------------------------

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; of shape () as one number.

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        values = self._read()
        if self.dtype.fmt is None and not self._element:  # else NumPy gives numbers of ml_dtypes
            values = values.astype("float32")
        return values.tolist()

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise TypeError("iter: a tensor of shape () has no axis to go along")
        return (self[i] for i in range(len(self)))

    def __contains__(self, x: Any) -> bool:
        return bool(self.eq(x).any())

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
        """The bytes at `url` as uint8, unpacked if `gunzip`.

        >>> Tensor.from_url("data:,abc").tolist()
        [97, 98, 99]
        """
        import gzip
        import urllib.request
        import zlib

        try:
            with urllib.request.urlopen(url) as response:
                raw = response.read()
            data = gzip.decompress(raw) if gunzip else raw
        except (ValueError, AttributeError, OSError, EOFError, zlib.error) as error:
            raise FileError(f"from_url: {url!r}: {error}; legal is what can be read") from error
        return cls(data, **more)


surroundings += [(Tensor, "training"), (recording, "on")]
