"""Tensors out of nothing, or out of numbers of Python and NumPy."""

from __future__ import annotations

import array
import functools
import math
import sys
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.backends import keeps
from tinygrad.base.dtype import (
    COMPLEX_PARTS,
    DType,
    dtypes,
    from_numpy_name,
    least_upper_dtype,
    to_dtype,
)
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import argfix, ceildiv, plain, prod
from tinygrad.engine import storage
from tinygrad.engine.devices import Device
from tinygrad.engine.keeping import tensor_of_file, workplace
from tinygrad.engine.realize import capturing
from tinygrad.engine.sharing import is_addressable
from tinygrad.schedule.shard_rules import placement_of
from tinygrad.tensor.arguments import check_number_from, check_types, given_sizes, number_of
from tinygrad.tensor.core import Core, constant, owned
from tinygrad.tensor.shapes import Devices, Shape, check_number
from tinygrad.tensor.template import constants
from tinygrad.uop.infer import most, settled
from tinygrad.uop.node import UOp

DTypeLike = DType | str
Memory = memoryview | array.array  # type: ignore[type-arg]

ARRAY = "__array__"
"""What NumPy can read has it: an ndarray, a NumPy number, another library's tensor."""
INTERFACE = "__array_interface__"
"""Or this: a picture of Pillow's."""


def checked_dtype(dtype: DTypeLike) -> DType:
    """A dtype by itself or by name; DTypeError with the names that there are."""
    try:
        return to_dtype(dtype)
    except (TypeError, AttributeError) as error:
        names = ", ".join(sorted(dtypes.fields()))
        raise DTypeError(f"unknown dtype {dtype!r}; legal are {names}") from error


def checked_shape(operation: str, *shape: Any) -> Shape:
    """`shape` as one tuple; ShapeError for a size that is negative or not whole."""
    sizes: Shape = given_sizes(*shape)
    for n in sizes:
        if isinstance(n, bool) or not isinstance(n, (int, UOp)) or (isinstance(n, int) and n < 0):
            raise ShapeError(f"{operation}: size {n!r} in {sizes}; legal are whole numbers from 0")
    return tuple(map(settled, sizes))


NUMBERS = (bool, int, float, complex)
LISTS = (list, tuple, range)


def parts_of_number(value: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a Python number."""
    return (value.real, value.imag) if isinstance(value, complex) else (value, 0)


def nested_shape(data: Any) -> tuple[int, ...]:
    """The shape of nested lists; ShapeError with the place where they are ragged."""
    shape: list[int] = []
    level = [data]
    while level and isinstance(level[0], LISTS):
        sizes = [len(item) if isinstance(item, LISTS) else None for item in level]
        if len(set(sizes)) > 1:
            raise ShapeError(
                f"Tensor: ragged list: at depth {len(shape)} the items have sizes "
                f"{sorted({str(n) for n in sizes})}; legal is one size at each depth"
            )
        shape.append(len(level[0]))
        level = [leaf for item in level for leaf in item]
    if any(isinstance(leaf, LISTS) for leaf in level):
        raise ShapeError(
            f"Tensor: ragged list: numbers and lists side by side at depth {len(shape)}"
        )
    return tuple(shape)


def _leaves(data: Any, depth: int) -> list[Any]:
    for _ in range(depth - 1):
        data = [leaf for item in data for leaf in item]
    return list(data)


_EXACT = 1 << 53
"""Whole numbers up to here are floats of Python, which `array` makes of all numbers."""


def _packed(values: list[Any], dtype: DType) -> memoryview:
    """`values` as bytes of `dtype`, which has a letter in Python's `array` module."""
    if dtypes.is_int(dtype) or dtype is dtypes.bool:
        kept = [dtypes.as_const(v, dtype) for v in values]
        if dtype is not dtypes.bool:
            for value, new in zip(values, kept, strict=True):
                if not -1 < value - new < 1:
                    check_number("Tensor", value, dtype)
        values = kept
    elif dtype.itemsize < 8 and not -_EXACT <= min(values) <= max(values) <= _EXACT:
        values = [dtypes.as_const(v, dtype) if isinstance(v, int) else v for v in values]
    letter = "B" if dtype is dtypes.bool else "h" if dtype is dtypes.int16 else dtype.fmt
    return memoryview(array.array(str(letter), values)).cast("B")  # too large a float: infinity


def from_list(data: Sequence[Any], dtype: DType | None, device: Devices) -> UOp:
    """Nested lists as a buffer of the host, copied to `device`."""
    shape = nested_shape(data)
    values = _leaves(data, len(shape))
    if not set(map(type, values)) <= {bool, int, float}:
        if any(hasattr(v, ARRAY) for v in values):
            return _from_arrays(values, shape, dtype, device)
        for wrong in (v for v in values if not isinstance(v, (bool, int, float))):
            raise DTypeError(
                f"Tensor: {wrong!r} of type {type(wrong).__name__} in a list; "
                "legal are bool, int, float and arrays"
            )
    _check_range(values)
    own = least_type(values)
    dtype = dtype or own
    if not values:
        return constant(0, dtype, device, shape)
    exact = dtype if dtype.fmt is not None and dtype is not dtypes.half else dtypes.float32
    if exact is not dtype:  # rounded once, not to float32 before
        values = [dtypes.as_const(v, dtype) for v in values]
    host = storage.from_host(_packed(values, exact), exact, "PYTHON")
    return host.copy_to(device).cast(dtype).reshape(shape)


def _check_range(values: list[Any]) -> None:
    """DTypeError for a whole number that no dtype holds."""
    for value in values:
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise DTypeError(
                f"Tensor: {value} is out of range; legal are whole numbers of 64 bits, or a float"
            )


def least_type(values: list[Any]) -> DType:
    """The dtype of numbers for which none is given."""
    kinds = set(map(type, values))
    if not kinds or any(issubclass(kind, float) for kind in kinds):
        return dtypes.default_float
    if all(issubclass(kind, bool) for kind in kinds):
        return dtypes.bool
    ints = [v for v in values if not isinstance(v, bool)]
    fits = dtypes.default_int.holds(min(ints), max(ints))
    return dtypes.default_int if fits else dtypes.int64


def from_array(data: Any, dtype: DType | None, device: Devices) -> UOp:
    """An array, or memory, as a buffer on `device`: what can't change is copied there when it is
    needed, anything else now."""
    values = as_numpy(data)
    native = values.dtype.newbyteorder("=")
    values = np.ascontiguousarray(values, native).reshape(values.shape)
    own = _dtype_of(native)
    if values.size == 0:
        return constant(0, dtype or own, device, values.shape)
    changing = may_change(values)
    if changing and isinstance(device, str) and device != storage.HOST and is_addressable(device):
        host = storage.from_host(values.reshape(-1), own, device)
    else:
        host = storage.from_host((values.copy() if changing else values).reshape(-1), own, "NPY")
    is_there = host.device == device and (device == storage.HOST or not capturing())
    there = host if is_there else host.copy_to(device)  # replays start from the same bytes
    return there.cast(dtype or own).reshape(values.shape)


def as_numpy(data: Any) -> NDArray[Any]:
    """NumPy's array of it; DTypeError where there is none, and for elements that don't count."""
    ma: Any = sys.modules.get("numpy.ma")  # loaded, if there is one
    data = ma.asarray(data) if ma and isinstance(data, LISTS) else data
    if ma and ma.is_masked(data):
        legal = "legal are .filled(value), and .data for what lies under the mask"
        raise DTypeError(
            f"Tensor: {ma.count_masked(data)} elements of an array are masked; {legal}"
        )
    try:
        return np.asarray(data)
    except (TypeError, RuntimeError) as error:
        raise DTypeError(
            f"Tensor: {type(data).__name__} of {getattr(data, 'dtype', None)}, of which NumPy "
            f"makes no array ({error}); legal are arrays, or Tensor.from_dlpack() of it"
        ) from error


@functools.cache
def _dtype_of(kind: np.dtype[Any]) -> DType:
    """The dtype of an array's; DTypeError where there is none."""
    try:
        return from_numpy_name(kind.name)
    except TypeError as error:
        raise DTypeError(f"Tensor: an array of {kind}; {error}") from error


def _from_arrays(
    values: list[Any], shape: tuple[int, ...], dtype: DType | None, device: Devices
) -> UOp:
    """Arrays of one shape in lists of this shape; numbers beside them count as in lists."""
    numbers = [v for v in values if type(v) in NUMBERS]
    arrays = [as_numpy(v) for v in values]
    if len({a.shape for a in arrays}) > 1:
        raise ShapeError(
            f"Tensor: ragged list: {arrays[0].shape} beside "
            f"{next(a.shape for a in arrays if a.shape != arrays[0].shape)}; legal is one shape"
        )
    kinds = {_dtype_of(np.asarray(v).dtype) for v in values if type(v) not in NUMBERS}
    own = least_upper_dtype(*kinds, *([least_type(numbers)] if numbers else ()))
    whole = np.stack(arrays).reshape(*shape, *arrays[0].shape)
    return from_array(whole, dtype or own, device)


def from_bytes(data: bytes, dtype: DType, device: Devices) -> UOp:
    """Bytes as the elements of `dtype` that they are in this machine's memory."""
    if len(data) % dtype.itemsize:
        raise ShapeError(
            f"Tensor: {len(data)} bytes as {dtype!r}; legal is a multiple of {dtype.itemsize}"
        )
    if dtype is dtypes.bool:
        return from_array(np.frombuffer(data, np.uint8), dtype, device)
    return from_array(np.frombuffer(data, storage.numpy_dtype(dtype)), dtype, device)


def may_change(values: NDArray[Any]) -> bool:
    """Whether somebody may still write an array: it, or what it is a view of."""
    below: Any = values
    while isinstance(below, np.ndarray):
        if below.flags.writeable:
            return True
        below = below.base
    return False


def holds_complex(data: Any) -> bool:
    """Whether a number, nested lists or an array hold complex numbers."""
    if isinstance(data, (list, tuple)):
        return any(type(leaf) is not float and holds_complex(leaf) for leaf in data)
    if isinstance(data, (complex, Core)):
        return not isinstance(data, Core) or bool(data._element)
    dtype = getattr(data, "dtype", None)  # of an array, of PyTorch's too
    return getattr(dtype, "kind", None) == "c" or getattr(dtype, "is_complex", None) is True


class Creation(Core):
    """Constants, counters, and copies of what the host has."""

    __slots__ = ()

    def _to_complex(self, kind: DType) -> Self:
        """This as complex numbers with imaginary parts of 0."""
        return self._complex.joined(self, None).cast(kind)  # type: ignore[no-any-return]

    @classmethod
    def _place(cls, device: Any) -> Any:
        return Device.canonicalize(device)

    # ---- constants -------------------------------------------------------------------------------

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Any,
        dtype: DTypeLike | None = None,
        device: Devices | None = None,
        *,
        requires_grad: bool | None = None,
        **more: Any,
    ) -> Self:
        """`fill_value`, a number or a tensor of one, everywhere; the dtype is that of the value
        unless given.

        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
        """
        if isinstance(fill_value, Creation):  # from which no gradient goes there
            value: Any = fill_value
            one = value.detach().reshape(()).to(value.device if device is None else device)
            sizes = checked_shape("full", *argfix(shape))
            full: Self = one.cast(one.dtype if dtype is None else dtype).expand(sizes).clone()
            full.requires_grad = requires_grad
            return full
        fill_value = plain(fill_value)
        if isinstance(fill_value, UOp):
            node = node_of(fill_value, checked_dtype(dtype) if dtype else None, cls._place(device))
            sizes = checked_shape("full", *argfix(shape))
            return cls._wrap(node.broadcast_to(sizes), requires_grad)
        real = dtype is not None and checked_dtype(dtype) not in COMPLEX_PARTS
        check_types("full", [fill_value], (int, float) if real else NUMBERS, "numbers")
        own = (
            least_type([fill_value]) if isinstance(fill_value, int) else dtypes.from_py(fill_value)
        )
        kind = own if dtype is None else checked_dtype(dtype)
        check_number("full", fill_value, kind)
        if kind in COMPLEX_PARTS:
            more = {"dtype": COMPLEX_PARTS[kind], "device": device, "requires_grad": requires_grad}
            parts = (cls._real.full(shape, part, **more) for part in parts_of_number(fill_value))
            return cls._complex.joined(*parts)  # type: ignore[no-any-return]
        sizes = checked_shape("full", *(shape if isinstance(shape, (tuple, list)) else (shape,)))
        place = cls._place(device)
        node = owned(constant(fill_value, kind, workplace(place), sizes))
        if keeps(place) and 0 not in sizes:
            node = node.copy_to(place)
        return cls._wrap(node, requires_grad)

    @classmethod
    def zeros(cls, *shape: Any, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """Zeros of the default float type unless `dtype` is given.

        >>> Tensor.zeros(2).tolist()
        [0.0, 0.0]
        """
        return cls.full(argfix(*shape), 0, dtype=dtype or dtypes.default_float, **more)

    @classmethod
    def ones(cls, *shape: Any, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """Ones of the default float type unless `dtype` is given.

        >>> Tensor.ones(2, dtype="int").tolist()
        [1, 1]
        """
        return cls.full(argfix(*shape), 1, dtype=dtype or dtypes.default_float, **more)

    @classmethod
    def empty(cls, *shape: Any, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """A buffer of its own whose values may be anything. With `device="disk:/path"`, what that
        file begins with; it is made if it is not there.

        >>> Tensor.empty(2, 3).shape
        (2, 3)
        """
        sizes = checked_shape("empty", *shape)
        kind = checked_dtype(dtype or dtypes.default_float)
        device = cls._place(more.get("device"))
        room = tuple(n.vmax if isinstance(n, UOp) else n for n in sizes)
        count = prod(room)
        if count == 0 or kind in COMPLEX_PARTS:
            return cls.zeros(sizes, dtype=kind, **more)
        if str(device).startswith("DISK:"):
            made = tensor_of_file(device.removeprefix("DISK:"), count, kind)
        else:
            made = storage.empty(device, count, kind)
        node = made.reshape(room).shrink(tuple((0, n) for n in sizes))
        return cls._wrap(node, more.get("requires_grad"))

    def const_like(self, value: Any, dtype: DTypeLike | None = None) -> Self:
        """`value` everywhere, with this one's shape, dtype unless given, and device.

        >>> Tensor([1, 2]).const_like(7).tolist()
        [7, 7]
        """
        value = plain(value)
        check_types("const_like", [value], (int, float), "numbers")
        return self._wrap(self._constant(value, checked_dtype(dtype or self.dtype), self.shape))

    def full_like(self, fill_value: Any, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """`fill_value` everywhere, with this one's shape, dtype and device unless given.

        >>> Tensor([1, 2]).full_like(5).tolist()
        [5, 5]
        """
        return self._like(self.full, dtype, more, fill_value)

    def _like(self, make: Any, dtype: DTypeLike | None, more: dict[str, Any], *given: Any) -> Self:
        """What `make` makes with this one's shape, dtype and device unless given; on the same
        several devices it is cut as this is."""
        kind, device = dtype or self.dtype, more.pop("device", None) or self.device
        made: Self = make(self.shape, *given, dtype=kind, device=device, **more)
        if not isinstance(self.device, tuple) or made.device != self.device:
            return made
        place = placement_of(self._held)
        return made if place.cut is None else made._from(made._held.copy_to(place))

    def zeros_like(self, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """Zeros with this one's shape, dtype and device unless given.

        >>> Tensor([5, 6]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, dtype, **more)

    def ones_like(self, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """Ones with this one's shape, dtype and device unless given.

        >>> Tensor([5, 6]).ones_like().tolist()
        [1, 1]
        """
        return self.full_like(1, dtype, **more)

    def empty_like(self, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """A buffer like this one, whose values may be anything.

        >>> Tensor.ones(2, 3).empty_like().shape
        (2, 3)
        """
        return self._like(self.empty, dtype, more)

    # ---- counters --------------------------------------------------------------------------------

    @classmethod
    def _counting(
        cls, size: int, device: Devices | None = None, dtype: DType | None = None
    ) -> Self:
        """0, 1, .. size - 1 as whole numbers."""
        place = cls._place(device)
        if size == 0:
            return cls._wrap(constant(0, dtype or dtypes.default_int, place, (0,)))
        made = cls._wrap(UOp.arange(size, place, dtype or dtypes.default_int))
        made._taped = True  # it stays a count, also where somebody has computed that count
        return made

    @classmethod
    @constants
    def arange(
        cls,
        start: Any = None,
        stop: Any = None,
        step: Any = 1,
        dtype: DTypeLike | None = None,
        **more: Any,
    ) -> Self:
        """Numbers from `start` in steps of `step`, below `stop`; one argument alone is `stop`.

        >>> Tensor.arange(3).tolist(), Tensor.arange(5, 0, -2).tolist()
        ([0, 1, 2], [5, 3, 1])
        """
        start, stop, step = number_of(start), number_of(stop), number_of(step)
        if start is None or stop is None:  # one of the two is the end
            start, stop = 0, start if stop is None else stop
        check_types("arange", (start, stop, step), (int, float, UOp), "numbers")
        if not all(isinstance(v, UOp) or math.isfinite(v) for v in (start, stop, step)):
            raise ArgumentError(
                f"arange: from {start} to {stop} by {step}; legal are finite numbers"
            )
        if step == 0:
            raise ArgumentError(f"arange: step 0 from {start} to {stop}; legal is any other")
        floats = any(isinstance(v, float) for v in (start, stop, step))
        default = dtypes.default_float if floats else dtypes.default_int
        kind = default if dtype is None else checked_dtype(dtype)
        if part := COMPLEX_PARTS.get(kind):
            return cls.arange(start, stop, step, part, **more)._to_complex(kind)
        size = math.ceil((stop - start) / step) if floats else ceildiv(stop - start, step)
        size = settled(size) if most(size) > 0 else 0
        place, wants = cls._place(more.get("device")), more.get("requires_grad")
        if size == 0:
            return cls._wrap(constant(0, kind, place, (0,)), wants)
        for end in (start, start + (size - 1) * step):
            check_number("arange", end, kind)
        if dtypes.is_float(kind):  # start + i * step, in a type that holds every i
            wide = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
            count = UOp.arange(size, place).cast(wide)
        else:
            wide = kind if kind.itemsize >= 4 else dtypes.int32
            count = UOp.arange(size, place, wide)
        scaled = count if step == 1 else count * step
        if isinstance(start, UOp):
            start = node_of(start, wide, place).broadcast_to(count.shape)
        return cls._wrap((scaled + start if start != 0 else scaled).cast(kind), wants)

    @classmethod
    @constants
    def linspace(
        cls,
        start: float | complex,
        stop: float | complex,
        steps: int,
        dtype: DTypeLike | None = None,
        **more: Any,
    ) -> Self:
        """`steps` numbers from `start` to `stop`, both included, evenly spaced.

        >>> Tensor.linspace(0, 1, 3).tolist()
        [0.0, 0.5, 1.0]
        """
        start, stop, steps = number_of(start), number_of(stop), number_of(steps)
        check_number_from("linspace", "steps", steps, 0)
        kind = checked_dtype(dtype or dtypes.default_float)
        if part := COMPLEX_PARTS.get(kind):
            return cls.linspace(start, stop, steps, dtype=part, **more)._to_complex(kind)
        place = cls._place(more.get("device"))
        wide = kind if dtypes.is_float(kind) and kind.itemsize >= 4 else dtypes.float32
        count = UOp.arange(steps, place)
        last = node_of(steps - 1, count.dtype, place).broadcast_to((steps,))
        parts = last.maximum(1)
        step = constant(stop - start, wide, place, (steps,)) / parts.cast(wide)
        forward, backward = count.cast(wide) * step + start, (count - last).cast(wide) * step + stop
        node = (count < (parts + 1) // 2).where(forward, backward)  # exact at both ends
        return cls._wrap(node.cast(kind), more.get("requires_grad"))

    @classmethod
    @constants
    def eye(cls, n: int, m: int | None = None, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """Ones on the diagonal of `n` rows and `m` columns (as many as rows unless given).

        >>> Tensor.eye(2, dtype="int").tolist()
        [[1, 0], [0, 1]]
        """
        n, m = checked_shape("eye", n, n if m is None else m)
        kind = checked_dtype(dtype or dtypes.default_float)
        place = cls._place(more.get("device"))
        if part := COMPLEX_PARTS.get(kind):
            return cls.eye(n, m, part, **more)._to_complex(kind)
        if n == 0 or m == 0:
            return cls.zeros(n, m, dtype=kind, **more)
        rows = UOp.arange(n, place).reshape((n, 1)).expand((n, m))
        columns = UOp.arange(m, place).reshape((1, m)).expand((n, m))
        return cls._wrap(rows.eq(columns).cast(kind), more.get("requires_grad"))


def node_of(data: Any, dtype: DType | None, device: Devices) -> UOp:
    """The node of whatever `Tensor(...)` accepts."""
    if isinstance(data, UOp):
        node: UOp = data.cast(dtypes.default_int) if data.dtype is dtypes.index else data
        if node.device is None:
            node = node + UOp.const(node.dtype, 0, device)
        return node if dtype is None else node.cast(dtype)
    if keeps(device) and (dtype is not None or not hasattr(data, ARRAY)):
        return node_of(data, dtype, workplace(device)).copy_to(device)
    if data is None:
        return constant(0, dtype or dtypes.default_float, device, (0,))
    if isinstance(data, (bool, int, float)):
        _check_range([data])
        kind = dtype or least_type([data])
        check_number("Tensor", data, kind)
        return constant(data, kind, device)
    if isinstance(data, (bytes, bytearray)):
        return from_bytes(bytes(data), dtype or dtypes.uint8, device)
    if isinstance(data, Memory) or hasattr(data, ARRAY):
        return from_array(data, dtype, device)
    if isinstance(data, LISTS):
        return from_list(data, dtype, device)
    if isinstance(data, Sequence) and not isinstance(data, str):
        return from_list(list(data), dtype, device)
    if hasattr(data, INTERFACE):
        return from_array(np.asarray(data), dtype, device)
    raise DTypeError(
        f"Tensor: can't hold {data!r} of type {type(data).__name__}; legal are numbers, "
        "nested lists of them, bytes, arrays and nodes; list() makes one of an iterable"
    )
