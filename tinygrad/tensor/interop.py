"""Other libraries and Python's own protocols: NumPy, DLPack, pickle, copy, notebooks.

Memory goes out and comes in without a copy where the device's memory is the host's. Then both
sides see what the other writes; a tensor that was computed before keeps its value, and one that is
computed after sees the new one.
"""

from __future__ import annotations

import ctypes
import pickle
from abc import abstractmethod
from copy import deepcopy
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import COMPLEX_PARTS, DType, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.base.helpers import argsort, prod, strides_for
from tinygrad.base.later import later
from tinygrad.engine import storage
from tinygrad.engine.aliases import on_bottom, writable_part
from tinygrad.engine.devices import Device
from tinygrad.engine.realize import check_readable, own_copy, realize
from tinygrad.engine.sharing import Loan, adopt, device_at, is_addressable, lend
from tinygrad.engine.turns import keeping, turns
from tinygrad.engine.views import shown_of
from tinygrad.schedule.bases import contiguous_base
from tinygrad.schedule.shard_rules import placement_of
from tinygrad.schedule.strides import strides_of
from tinygrad.tensor import dlpack
from tinygrad.tensor.creation import DTypeLike, checked_dtype, checked_shape
from tinygrad.tensor.dlpack import Borrowed, Strided
from tinygrad.tensor.writing import Writing
from tinygrad.uop import Ops, UOp
from tinygrad.uop.placement import Placement

html = later("html")


SHOWN = 1000  # elements; larger tensors show what they are, not what they hold


class Interop(Writing):
    """What other libraries and Python itself ask of a tensor."""

    __slots__ = ()
    __array_priority__ = 1000  # NumPy leaves mixed expressions to this class

    # ---- NumPy -----------------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """The values as a NumPy array of their own. Raises what CHECKs found wrong.

        >>> Tensor([1, 2]).numpy()
        array([1, 2], dtype=int32)
        """
        return self._read()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """What `numpy.array` and `asarray` ask for. `copy`: True, an array of its own; False, the
        tensor's memory, ValueError where that can't be; None, the memory where it can be."""
        try:
            values = self.numpy() if copy else self._lent_array()
        except BufferError as error:
            if copy is False:
                raise ValueError(f"__array__: copy=False, but {error}") from error
            values = self.numpy()
        if dtype is None or values.dtype == dtype:
            return values
        if copy is False:
            raise ValueError(f"__array__: copy=False, but {values.dtype} must become {dtype}")
        return values.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The memory as NumPy's protocol of that name describes it, without a copy."""
        try:
            loan, view = self._lend("__array_interface__", copy=False)
            kind = storage.numpy_dtype(self.dtype)
        except (BufferError, DTypeError) as error:
            raise AttributeError(str(error)) from error
        if kind.isbuiltin != 1:  # no name, or one of bytes only; __array__ says more
            raise AttributeError(f"__array_interface__: {self.dtype!r} has no letter there")
        size = self.dtype.itemsize
        return {
            "version": 3,
            "typestr": kind.str,
            "data": loan.memory(),
            "offset": view.address - loan.address,
            "shape": view.shape,
            "strides": tuple(size * step for step in view.strides),
        }

    def _lent_array(self) -> NDArray[Any]:
        """The memory as an array, without a copy; BufferError where that can't be."""
        loan, view = self._lend("__array__", copy=False)
        steps = tuple(self.dtype.itemsize * step for step in view.strides)
        start, kind = view.address - loan.address, storage.numpy_dtype(self.dtype)
        memory: Any = loan.memory()
        return np.ndarray(view.shape, kind, memory, start, steps)

    def __buffer__(self, flags: int) -> memoryview:
        """The memory for `memoryview(t)` and the like, from Python 3.12 on."""
        if self.dtype.fmt is None:
            raise BufferError(f"buffer: Python has no letter for {self.dtype!r}")
        return memoryview(self._lent_array())  # type: ignore[arg-type]

    def data(self) -> memoryview:
        """A copy of the values as a memoryview of this shape.

        >>> Tensor([1, 2]).data().tolist()
        [1, 2]
        """
        if self.dtype.fmt is None:
            raise DTypeError(f"data: Python has no letter for {self.dtype!r}; use .float() first")
        values: Any = self.numpy()
        return memoryview(values)

    def tobytes(self) -> bytes:
        """The values as bytes, in row-major order.

        >>> Tensor([1, 258], dtype="int16").tobytes()
        b'\\x01\\x00\\x02\\x01'
        """
        return self.numpy().tobytes()

    __bytes__ = tobytes

    # ---- memory that goes out --------------------------------------------------------------------

    def _lend(self, operation: str, copy: bool | None) -> tuple[Loan, Strided]:
        """The memory of this tensor, which others may write from now on, and where in it the
        elements are. With `copy` True it is a copy's; with None, if there is no other way. Else
        BufferError."""
        check_readable(self._held)
        if self._taped:
            raise BufferError(
                f"{operation}: a gradient passes through this tensor; use .detach() first"
            )
        if not all(isinstance(n, int) for n in self.shape):
            raise BufferError(f"{operation}: shape {self.shape}; legal are numbers as sizes")
        found = None if copy else self._lent_view()
        if found is None and copy is False:
            raise BufferError(
                f"{operation}: {self.shape} {self.dtype.name} on {self.device} is no strided part "
                "of memory that the host can address; use .contiguous(), .to('CPU'), or a copy"
            )
        if found is None:
            device = self.device if is_addressable(self.device) else "CPU"
            copy_of_it = self._node.contiguous().copy_to(device).contiguous()
            found = self._wrap(copy_of_it)._lent_view()
        if found is None:
            raise BufferError(f"{operation}: {self.device} has no memory that the host can address")
        return found

    def _lent_view(self) -> tuple[Loan, Strided] | None:
        if 0 in self.shape:
            empty = storage.Buffer("PYTHON", 1)
            return _lent(empty, Strided(0, self.shape, strides_for(self.shape), self.dtype))
        if not is_addressable(self.device):
            return None
        realize(self._bottom)
        with turns.together(), keeping.now:  # another thread's write may give it other memory
            bottom = self._bottom
            if bottom.op is not Ops.BUFFER or not storage.buffer_of(bottom).fixed:
                self._store()
                realize(self._bottom)
            node = self._value
            view = _layout(node)
            return None if view is None else _lent(storage.buffer_of(node.base), view)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device in DLPack's numbers: (1, 0) is the host's memory."""
        if is_addressable(self.device):
            return dlpack.CPU
        name, _, number = str(self.device).partition(":")
        if name not in dlpack.DEVICES:
            raise BufferError(
                f"__dlpack_device__: {self.device} has no number in DLPack; use .to('CPU')"
            )
        return dlpack.DEVICES[name], int(number or 0)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule with this tensor's memory, for `from_dlpack` of another library. Both see what
        the other writes, unless `copy` is True, or there is no other way. BufferError if `copy` is
        False then, and for what other libraries couldn't read.

        Source: https://data-apis.org/array-api/2024.12/API_specification/
        """
        if dl_device not in (None, dlpack.CPU):
            raise BufferError(f"__dlpack__: dl_device {dl_device}; legal is (1, 0), the host")
        if stream is not None:
            raise BufferError(
                f"__dlpack__: stream {stream!r}; legal is None: a host has no streams"
            )
        if dl_device is None and self.__dlpack_device__() != dlpack.CPU:
            raise BufferError(
                f"__dlpack__: memory of {self.device}; legal is what the host can address: use "
                "dl_device=(1, 0), or .to('CPU')"
            )
        if self.dtype not in dlpack.CODES:
            raise BufferError(f"__dlpack__: {self.dtype!r} has no type code in DLPack")
        versioned = max_version is not None and max_version[0] >= dlpack.VERSION[0]
        loan, view = self._lend("__dlpack__", copy)
        if copy is None and min(view.strides, default=0) < 0:  # PyTorch ends the process at those
            loan, view = self._lend("__dlpack__", True)
        fixed = loan.buffer is not None and loan.buffer.fixed
        if fixed and not versioned:
            if copy is False:
                raise BufferError(
                    "__dlpack__: memory that may not be written; legal is max_version=(1, 0)"
                )
            loan, view = self._lend("__dlpack__", True)
            fixed = False
        flags = (dlpack.READ_ONLY if fixed else 0) | (dlpack.IS_COPIED if copy else 0)
        return dlpack.capsule_of(view, loan, versioned, flags)

    # ---- memory that comes in --------------------------------------------------------------------

    @classmethod
    def from_dlpack(cls, x: Any, *, device: str | None = None, copy: bool | None = None) -> Self:
        """The memory of another library's array as a tensor of its shape and dtype.

        Args:
            x: what has `__dlpack__`, such as an array of NumPy or PyTorch; or a capsule.
            device: where the tensor is to be; None, the default device, or the one whose memory
                it is.
            copy: True, always a copy; False, never; None, only where the memory can't be used as
                it is: on a device that can't address it, between elements of others, or not
                aligned to its elements. What may only be read is copied when it is first written.

        Raises:
            BufferError: `copy` is False and there must be one, or an element type is not known.

        >>> import numpy as np
        >>> there = np.zeros(2)
        >>> here = Tensor.from_dlpack(there)
        >>> there[0] = 7
        >>> here.tolist()
        [7.0, 0.0]
        """
        capsule = _capsule_from(x, copy) if hasattr(x, "__dlpack__") else x
        borrowed = Borrowed(capsule)
        if borrowed.device[0] != dlpack.CPU[0]:
            raise BufferError(
                f"from_dlpack: memory on device {borrowed.device}; legal is the host's, (1, 0)"
            )
        array, is_complex = borrowed.array, borrowed.array.dtype in COMPLEX_PARTS
        made = cls._borrow(
            "from_dlpack",
            array.as_pairs() if is_complex else array,
            borrowed,
            borrowed.read_only,
            device,
            copy,
        )
        return made.view_as_complex() if is_complex else made

    @classmethod
    def from_blob(
        cls,
        ptr: int,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """The host's memory at address `ptr`, which holds `shape` elements of `dtype`, without a
        copy where the device can address it. Who calls keeps that memory for as long as anything
        uses the tensor, or what was made of it and not yet computed.

        >>> import array
        >>> numbers = array.array("f", [1, 2, 3])
        >>> Tensor.from_blob(numbers.buffer_info()[0], (3,)).tolist()
        [1.0, 2.0, 3.0]
        """
        sizes = checked_shape("from_blob", *shape)
        kind = checked_dtype(dtype or dtypes.default_float)
        if not isinstance(ptr, int) or (ptr <= 0 and prod(sizes)):
            raise ArgumentError(f"from_blob: address {ptr!r}; legal are whole numbers above 0")
        array = Strided(ptr, sizes, strides_for(sizes), kind)
        made = cls._borrow("from_blob", array, None, False, device, None)
        return made if requires_grad is None else made.requires_grad_(requires_grad)

    @classmethod
    def _borrow(
        cls,
        operation: str,
        array: Strided,
        owner: Any,
        fixed: bool,
        device: str | None,
        copy: bool | None,
    ) -> Self:
        place = Device.canonicalize(device or device_at(array.address))
        if 0 in array.shape:
            return cls.zeros(array.shape, dtype=array.dtype, device=place)
        with turns.together(), keeping.now:  # of what another thread brings it is a view
            node = None if copy else _adopted(array, owner, fixed, place)
            if node is not None:
                made = cls._wrap(node)
                if (family := storage.family_of(node.base)) is not None:
                    made._enter(family)
                storage.join(node.base, made._family)
                return made
        if copy is False:
            raise BufferError(
                f"{operation}: shape {array.shape} with strides {array.strides} at "
                f"{array.address:#x} can't be used on {place} as it is; legal is a copy"
            )
        return cls._wrap(_copied(array).copy_to(place).reshape(array.shape))

    # ---- the array API standard ------------------------------------------------------------------

    _namespace: ClassVar[Any]  # gives the module; a floor above sets it

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """The module `tinygrad.array_api`: the functions of the Python array API standard."""
        module: ModuleType = self._namespace()
        legal = ("2021.12", "2022.12", "2023.12", module.__array_api_version__)
        if api_version not in (None, *legal):
            raise ArgumentError(
                f"__array_namespace__: version {api_version}; legal are {', '.join(legal)}"
            )
        return module

    def to_device(self, device: str, /, *, stream: Any = None) -> Self:
        """The same value on another device: `to` under the array API standard's name.

        >>> Tensor([1]).to_device("CPU").device
        'CPU'
        """
        if stream is not None:
            raise ArgumentError(f"to_device: stream {stream!r}; legal is None")
        return self._moved(device)

    @abstractmethod
    def _moved(self, device: str) -> Self: ...

    # ---- numbers of Python -----------------------------------------------------------------------

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if not dtypes.is_int(self.dtype) or self.numel() != 1:
            raise DTypeError(f"index: {self.dtype!r} of {self.shape}; legal is one whole number")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise TypeError(
                f"the truth of a tensor of shape {self.shape} is not clear; use .any() or .all()"
            )
        return bool(self.item())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.item(), digits)

    def __divmod__(self, x: Any) -> tuple[Self, Self]:
        return self // x, self % x

    def __rdivmod__(self, x: Any) -> tuple[Self, Self]:
        return x // self, x % self

    def __format__(self, spec: str) -> str:
        """A tensor of one element and no axis as its number; any other only without `spec`."""
        if not spec:
            return str(self)
        if self.shape:
            raise TypeError(
                f"format: {spec!r} for shape {self.shape}; legal is () with the format of a number"
            )
        return format(self.item(), spec)

    # ---- showing ---------------------------------------------------------------------------------

    def __repr__(self) -> str:
        node = self.uop
        grad = None if self._grad is None else self._grad.uop
        where = f"on {self.device} with grad {_short(grad)}"
        if self._is_plain() and 0 not in self.shape and self.numel() <= SHOWN:
            return f"<Tensor {_values(self._read(), ', ')} {self.dtype.name} {self.shape} {where}>"
        return f"<Tensor {_short(node)} {where}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: facts, and the values if they are few and were computed."""
        facts = [f"shape {self.shape}", self.dtype.name, f"on {self.device}"]
        if self.requires_grad is True:
            facts.append("wants a gradient")
        if not self._is_plain():
            shown = "not computed yet"
        elif not all(isinstance(n, int) for n in self.shape) or self.numel() > SHOWN:
            shown = f"{self.numel():,} elements" if isinstance(self.numel(), int) else "values"
        else:
            shown = str(self.numpy())
        head, body = html.escape(", ".join(facts)), html.escape(shown)
        return f"<div><code>Tensor: {head}</code><pre>{body}</pre></div>"

    def _is_plain(self) -> bool:
        """Whether this is a whole computed buffer, so that looking at it computes nothing."""
        base = contiguous_base(self.uop)
        return base.op is Ops.BUFFER and base.realized is not None

    # ---- copying and storing ---------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """The values, shape, dtype and device; from protocol 5 on the bytes may go apart."""
        values: Any = self.numpy().reshape(-1).view("uint8")
        raw = pickle.PickleBuffer(values) if protocol >= 5 else values.tobytes()
        several = isinstance(self.device, tuple)
        place = placement_of(self._held) if several else self.device
        facts = (self.shape, self.dtype, place, self.requires_grad)
        return (_rebuilt, (type(self), raw, *facts))

    def __copy__(self) -> Self:
        """Another tensor that is a view of this one: a write to either is seen by both."""
        made = self.of(self._uop)
        made.requires_grad = self.requires_grad
        made._taped, made._grad = self._taped, self._grad
        made._enter(self._family)
        return made

    def __deepcopy__(self, memo: Any) -> Self:
        """A tensor with memory of its own, cut off from what this was made of. Copies of views of
        each other are so, too."""
        gone = storage.copy_of_nothing(self._held)
        if gone is None:
            made = self.detach().contiguous()
            realize(made._held)
        else:  # what can't be read, like a gradient of a captured step, can't be read there either
            made = self._wrap(gone)
        made.requires_grad = self.requires_grad
        made._grad = deepcopy(self._grad, memo)
        copies = memo.setdefault(self._family, [])
        copies.append((self, made))
        if len(copies) > 1:
            self._lay_together(copies)
        return made

    def _lay_together(self, copies: list[tuple[Self, Self]]) -> None:
        """Makes the copies of members of this family, of which all but the last were so before,
        views of one copy of all that they are views of."""
        first, is_new = copies[0][1], len(copies) == 2
        with turns.together(), keeping.now:
            whole = own_copy(self._bottom) if is_new else first._bottom
            for source, made in copies if is_new else copies[-1:]:
                made.hold(on_bottom(writable_part(source._value), source._bottom, whole))
                made._enter(first._family)


# ---- memory --------------------------------------------------------------------------------------


def _lent(buffer: storage.Buffer, view: Strided) -> tuple[Loan, Strided] | None:
    """`buffer` lent, and `view` with its offset in bytes as an address."""
    loan = lend(buffer)
    return None if loan is None else (loan, view._replace(address=loan.address + view.address))


def _layout(node: UOp) -> Strided | None:
    """Where in its buffer a view begins, in bytes, and how far its elements are apart along each
    axis; None where they are at no equal distances, or repeat."""
    base = node.base
    steps = strides_of(node, base) if base.op is Ops.BUFFER else None
    if steps is None or any(step == 0 and n > 1 for step, n in zip(steps, node.shape, strict=True)):
        return None
    whole = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), base.shape, (1,))
    start = (shown_of(node, base, whole).ctypes.data - whole.ctypes.data) * node.dtype.itemsize
    strides = tuple(step if n > 1 else 1 for step, n in zip(steps, node.shape, strict=True))
    return Strided(start, node.shape, strides, node.dtype)


def _capsule_from(x: Any, copy: bool | None) -> Any:
    """What `x` lends; of a producer that is older than version 1, as it knows."""
    if hasattr(x, "is_neg") and x.is_neg():
        raise BufferError(
            "from_dlpack: PyTorch lends memory in which all signs are the others, and doesn't say "
            "so; legal is its .resolve_neg()"
        )
    device = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else dlpack.CPU
    wanted = {} if device[0] == dlpack.CPU[0] else {"dl_device": dlpack.CPU}
    asked = {} if copy is not False else {"copy": False}  # our own copies are made here
    try:
        return x.__dlpack__(max_version=dlpack.VERSION, **wanted, **asked)
    except TypeError:
        return x.__dlpack__()


def _adopted(array: Strided, owner: Any, fixed: bool, device: str) -> UOp | None:
    """Memory of others as a view of a buffer; None if it isn't dense, aligned and addressable."""
    size = array.dtype.itemsize
    start = array.address
    order = sorted(range(len(array.shape)), key=lambda i: -abs(array.strides[i]))
    axes = [i for i in order if array.shape[i] > 1]
    dense = 1
    for i in reversed(axes):
        if abs(array.strides[i]) != dense:
            return None
        if array.strides[i] < 0:
            start += array.strides[i] * (array.shape[i] - 1) * size
        dense *= array.shape[i]
    if start % size:
        return None
    place = adopt(device, start, dense * size, owner, fixed)
    if place is None:
        return None
    base = storage.node_of(place.buffer)
    if base is None:
        count = place.buffer.nbytes // size
        base = storage.bind(UOp.new_buffer(device, count, array.dtype), place.buffer)
    if base.dtype is not array.dtype or place.offset % size:
        return None
    first = place.offset // size
    flat = base.shrink(((first, first + dense),))
    lined = flat.reshape(tuple(array.shape[i] for i in order)).permute(tuple(argsort(order)))
    return lined.flip(tuple(i for i in axes if array.strides[i] < 0))


def _copied(array: Strided) -> UOp:
    """The elements in a buffer of the host's."""
    size = array.dtype.itemsize
    reach = [(n - 1) * step * size for n, step in zip(array.shape, array.strides, strict=True)]
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + size
    raw = (ctypes.c_char * (high - low)).from_address(array.address + low)
    steps = tuple(step * size for step in array.strides)
    kind = storage.numpy_dtype(array.dtype)
    values: Any = np.ndarray(array.shape, kind, memoryview(raw).cast("B"), -low, steps)
    return storage.from_host(values.flatten(), array.dtype)


# ---- text ----------------------------------------------------------------------------------------


def _short(node: UOp | None) -> str:
    """A node in one line, as tinygrad prints it."""
    if node is None:
        return "None"
    held = node.realized
    buffer = "None" if held is None else f"<buf {held.nbytes} bytes on {held.device}>"
    inner = f"(<{node.op!r}: {int(node.op)}>, {buffer})"
    return f"<UOp {node.device} {node.shape} {node.dtype.name} {inner}>"


def _values(values: NDArray[Any], separator: str) -> str:
    return np.array2string(values, separator=separator, threshold=20).replace("\n", "")


def _rebuilt(
    kind: type[Interop],
    raw: Any,
    shape: tuple[int, ...],
    dtype: DType,
    device: Any,
    requires_grad: bool | None,
) -> Interop:
    """A tensor as it was pickled."""
    if isinstance(device, Placement):
        made = _rebuilt(kind, raw, shape, dtype, device.names[0], requires_grad)
        return kind._wrap(made._held.copy_to(device), requires_grad)
    if 0 in shape:
        return kind.zeros(shape, dtype=dtype, device=device, requires_grad=requires_grad)
    values: Any = np.frombuffer(raw, storage.numpy_dtype(dtype))
    if dtypes.is_complex(dtype):
        build: Any = kind
        return build(values.reshape(shape), device, dtype, requires_grad)  # type: ignore[no-any-return]
    host = storage.from_host(values, dtype)
    return kind._wrap(host.copy_to(Device.canonicalize(device)).reshape(shape), requires_grad)
