"""UOp: the one node type of every graph, from a tensor's expression to a linear program.

A node is immutable and interned: equal specifications are the same object. So shared work is found
by `is`, and a dict with nodes as keys has their meaning as keys. Shape and bounds are derived from
the sources when they are first asked for. Nothing here recurses over the depth of a graph.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any, ClassVar, Generic, TypeVar

from tinygrad.base.dtype import DType, compute_dtype, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.uop.infer import DERIVED, filled, most, opened, place_of
from tinygrad.uop.interning import TABLE, Entry, Key, forget, standing
from tinygrad.uop.op import ROW, GroupOp, Ops, evaluate
from tinygrad.uop.placement import placed
from tinygrad.uop.questions import Questions
from tinygrad.uop.services import services

T = TypeVar("T")
_UNSET: Any = object()
# asked for each node: an enum's members are slow
_MOVEMENT, _CONST, _DETACH = GroupOp.Movement, Ops.CONST, Ops.DETACH


class UOp(Questions):
    """An operation, the dtype of its result, its sources, and an argument that is plain data.

    These four, and `tag`, which only distinguishes nodes, are the node's identity and never change.
    All other attributes are either derived from them when they are first asked for (`_shape`,
    `_interval`, `_key`, `_ranges`, `_checks`, and `_form`, which belongs to `simplify`: see
    `Notes`), or notes of the engine: where the value is, and who looks at it (`known`, `newer`,
    `storage`, `readers`, `families`).

    >>> n = Variable("n", 1, 8)
    >>> size = n * 2 + 1
    >>> size.op, size.vmin, size.vmax, size is n * 2 + 1
    (Ops.ADD, 3, 17, True)
    """

    __slots__ = (
        *("op", "dtype", "src", "arg", "tag", "device"),  # what the node is
        *("known", "newer", "storage", "origin", "readers", "families", "before", "unstored"),
        *("_shape", "_interval", "_key", "_ranges", "_checks", "_form"),  # computed once
        "__weakref__",
    )
    _table: ClassVar[dict[Key, Entry]] = TABLE
    _unique: ClassVar[Iterator[int]] = itertools.count()

    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    device: Any
    """A name, or a tuple of names; None for what has no place of its own."""
    known: UOp | None
    """The buffer view that holds this node's value, once the engine has computed it."""
    newer: UOp | None
    """Of a version of a buffer: the one that overwrote it."""
    storage: Any
    """Of a BUFFER: its bytes, which live as long as it does (`engine/storage`)."""
    origin: str | None
    """The user's source line that made this node, for errors and DEBUG."""
    _shape: Any
    _interval: Any
    _key: Any
    _ranges: Any
    _checks: Any
    _form: Any
    readers: set[weakref.ref[UOp]] | None
    """Of a version of a buffer, shared with all views of it: the nodes that read it and are no
    views, or were computed alone, so that assign can keep them right."""
    families: Any
    """Of a version of a buffer: the tensors that look at it (`engine/storage`)."""
    before: Any
    """What it was promised as, before somebody asked for it (`tensor/sources`)."""
    unstored: Any
    """Which run computed it and didn't store it (`engine/chains`)."""

    def __new__(
        cls,
        op: Ops,
        dtype: DType = dtypes.void,
        src: tuple[UOp, ...] = (),
        arg: Any = None,
        tag: Any = None,
    ) -> UOp:
        # what may come to stand over a write to it; see `interning`
        sources = tuple(map(id, src)) if src and src[0].device is not None else src
        key: Key = (op, dtype, sources, arg, tag)
        if op is _CONST and (dtype is not dtypes.index or type(arg) is not int):
            # floats by their bits: 0.0 equals -0.0, and NaN not even itself
            arg = dtypes.as_const(arg, dtype)
            key = (op, dtype, sources, struct.pack("d", arg) if type(arg) is float else arg, tag)
        entry = TABLE.get(key)
        if entry is not None and (found := entry()) is not None:
            return found
        node = object.__new__(cls)
        node.op, node.dtype, node.src, node.arg, node.tag = op, dtype, src, arg, tag
        node.known = node.newer = node.storage = node.origin = node.readers = node.families = None
        node.before = node.unstored = None
        node._shape = node._interval = node._key = node._ranges = node._checks = node._form = _UNSET
        node.device = None
        is_view = op in _MOVEMENT  # who reads a view reads what it shows: they share `readers`
        if is_view:
            node.device, node.readers = src[0].device, src[0].readers
        elif op in _PLACES:
            node.device = place_of(op, src, arg)
        else:
            for source in src:
                if source.device is not None:
                    node.device = source.device
                    break
        if op in _VERSIONS:
            node.readers = set()
        elif op is _DETACH and src:
            node.readers = src[0].readers  # who reads it reads that
        entry = Entry(node, forget)
        entry.key, entry.among = key, ()
        if not is_view:
            for source in src[1:] if op is _DETACH else src:
                if source.readers is not None:
                    entry.among += (source.readers,)
                    source.readers.add(entry)
        # Last, for another thread may find the node from here on. No lock: of two threads that come
        # here with one key, one finds the other's node.
        if TABLE.setdefault(key, entry) is not entry:
            found = standing(entry)
            if found is not None:
                return found
        return node

    def __reduce__(self) -> tuple[Any, ...]:
        return (UOp, (self.op, self.dtype, self.src, self.arg, self.tag))

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: Any) -> UOp:
        return self

    def __repr__(self) -> str:
        return services.shown(self)

    def __bool__(self) -> bool:
        """The truth value, if bounds decide it; else a TypeError, so `if a < b` never decides by
        accident."""
        low, high = self.vmin, self.vmax
        if low == high or low > 0 or high < 0:
            return bool(low)
        raise self._unknown("truth")

    def __int__(self) -> int:
        low, high = self.vmin, self.vmax
        if low == high:
            return int(low)
        raise self._unknown("value")

    def _unknown(self, what: str) -> TypeError:
        text = services.shown(self)
        if "\n" in text:
            text = f"{self.op!r}, {self.vmin} to {self.vmax},"
        return TypeError(
            f"the {what} of {text} is not known before it runs; legal are bounds that decide it, "
            "or the number of now: .val"
        )

    def __truediv__(self, other: Any) -> UOp:
        return self._as_float()._binary(Ops.FDIV, other)

    def __rtruediv__(self, other: Any) -> UOp:
        return self._as_float()._binary(Ops.FDIV, other, True)

    def sqrt(self) -> UOp:
        """The square root, a float also of a whole number, as `np.sqrt(size)` asks for it.

        >>> UOp.const(dtypes.int, 9).sqrt().ssimplify()
        3.0
        """
        return self._as_float().alu(Ops.SQRT)

    def _as_float(self) -> UOp:
        """`/` divides whole numbers as floats; `//` is floor division."""
        return self if dtypes.is_float(self.dtype) else self.cast(dtypes.default_float)

    # ---- building --------------------------------------------------------------------------------

    @staticmethod
    def const(dtype: Any, value: Any = None, device: Any = None) -> UOp:
        """A constant; `const(value, dtype)` is tinygrad's other spelling.

        >>> UOp.const(dtypes.int, 2) is UOp.const(2, dtypes.int) is UOp.const(2)
        True
        """
        if not isinstance(dtype, DType):
            dtype, value = value or dtypes.from_py(dtype), dtype
        return UOp(Ops.CONST, dtype, () if device is None else (UOp.on(device),), value)

    @staticmethod
    def arange(size: Any, device: Any = None, dtype: DType = dtypes.int32) -> UOp:
        """The whole numbers from 0 to size - 1, shape (size,).

        >>> UOp.arange(4).shape, UOp.arange(Variable("n", 1, 8)).shape
        ((4,), (n[1..8],))
        """
        if isinstance(size, UOp):
            return UOp.arange(size.vmax, device, dtype).shrink(((0, size),))
        return UOp(Ops.ARANGE, dtype, () if device is None else (UOp.on(device),), size)

    @staticmethod
    def positions(
        shape: tuple[Any, ...], axis: int, device: Any, dtype: DType = dtypes.int32
    ) -> UOp:
        """For each element of `shape`, its position along one axis.

        >>> columns = UOp.positions((2, 3), 1, "CPU")
        >>> columns.shape, columns.base is UOp.arange(3, "CPU")
        ((2, 3), True)
        """
        own = axis % len(shape)
        line = tuple(n if i == own else 1 for i, n in enumerate(shape))
        return UOp.arange(shape[own], device, dtype).reshape(line).expand(shape)

    @staticmethod
    def on(device: Any) -> UOp:
        """The DEVICE of a name, of a tuple of names, or of a Placement.

        >>> UOp.on("CPU").arg, UOp.on(("CPU", "CPU:1")).arg.names
        ('CPU', ('CPU', 'CPU:1'))
        """
        return UOp(Ops.DEVICE, arg=placed(device))

    @staticmethod
    def new_buffer(device: Any, size: int, dtype: DType) -> UOp:
        """A buffer unlike any other; of several devices, of `size` elements in all.

        >>> one, other = UOp.new_buffer("CPU", 4, dtypes.int), UOp.new_buffer("CPU", 4, dtypes.int)
        >>> one.shape, one is other
        ((4,), False)
        """
        return UOp.on(device).new_storage(size, dtype)

    @staticmethod
    def unique() -> UOp:
        """A UNIQUE, with a number above those of all before.

        >>> UOp.unique().arg < UOp.unique().arg
        True
        """
        return UOp(Ops.UNIQUE, dtypes.void, (), next(UOp._unique))

    def new_storage(self, size: int, dtype: DType) -> UOp:
        """A buffer unlike any other where this DEVICE says.

        >>> buffer = UOp.on("CPU").new_storage(4, dtypes.int)
        >>> buffer.op, buffer.device, buffer.shape
        (Ops.BUFFER, 'CPU', (4,))
        """
        return UOp(Ops.BUFFER, dtype, (UOp.unique(), self), size).shaped((size,))

    @staticmethod
    def variable(name: str, min_val: float, max_val: float, dtype: DType = dtypes.int32) -> UOp:
        """A number from `min_val` to `max_val`, usually an integer, that kernels get as an
        argument; `bind` gives it a value.

        >>> n = UOp.variable("n", 1, 8).bind(3)
        >>> n.val
        3
        """
        kind = (int, float) if dtypes.is_float(dtype) else int
        if not (isinstance(name, str) and all(isinstance(n, kind) for n in (min_val, max_val))):
            raise DTypeError(
                f"Variable: {name!r} from {min_val!r} to {max_val!r}; legal are a name and ints"
            )
        if min_val > max_val:
            raise ArgumentError(
                f"Variable: {name} from {min_val} to {max_val}; legal is min_val <= max_val"
            )
        if dtypes.is_int(dtype) and not dtype.holds(min_val, max_val):
            raise ArgumentError(
                f"Variable: {name} from {min_val} to {max_val} of {dtype!r}; legal are bounds that "
                "it holds, or another dtype, as dtypes.int64"
            )
        return UOp(Ops.DEFINE_VAR, dtype, arg=(name, min_val, max_val))

    @staticmethod
    def range(size: UOp | int, name: str, role: str = "LOOP", limits: tuple[UOp, ...] = ()) -> UOp:
        """A loop counter from 0 to min(size, *limits), a scalar of dtype index. A symbolic size
        becomes a limit, with its largest value as the size.

        >>> i = UOp.range(4, "i")
        >>> i.vmin, i.vmax, (i * 2 + 1).vmax
        (0, 3, 7)
        """
        if isinstance(size, int):
            size = UOp.const(dtypes.index, size)
        elif size.op is not Ops.CONST:
            size, limits = UOp.const(dtypes.index, size.vmax), (size, *limits)
        return UOp(Ops.RANGE, dtypes.index, (size, *limits), (name, role))

    @staticmethod
    def sink(*roots: UOp) -> UOp:
        """A SINK: one graph that holds all of `roots`.

        >>> n = Variable("n", 1, 8)
        >>> UOp.sink(n + 1, n * 2).src
        ((n + 1)[2..9], (n*2)[2..16])
        """
        return UOp(Ops.SINK, src=roots)

    def alu(self, op: Ops, *others: UOp) -> UOp:
        """A node of `op`, of this and `others`; the op's row says its dtype.

        Raises:
            DTypeError: an operation on bits, of floats.

        >>> n = Variable("n", 1, 8)
        >>> n.alu(Ops.MUL, n), n.alu(Ops.CMPLT, n).dtype
        ((n*n)[1..64], dtypes.bool)
        """
        src = (self, *others)
        if len(others) == 1 and others[0].dtype is not self.dtype:
            src = _of_one_kind(src)
        row = ROW[op].dtype
        dtype = dtypes.bool if row == "bool" else src[-1 if row == "last" else 0].dtype
        if row == "bits" and dtypes.is_float(dtype):
            raise DTypeError(f"{op!r}: of {dtype!r}; legal are ints and bools")
        if row == "bool" and self.dtype.count > 1:
            dtype = dtypes.bool.vec(self.dtype.count)
        made = UOp(op, dtype, src)
        if made._shape is _UNSET and self._shape is not _UNSET and self._shape:
            made._shape = self._shape  # all sources have it
        return made

    def _operands(self, other: Any) -> tuple[UOp, UOp]:
        """Beside a Python float whole numbers are floats, as those of a tensor are."""
        if isinstance(other, float) and not dtypes.is_float(self.dtype):
            self = self.cast(dtypes.default_float)
        return self, self._operand(other)

    def const_like(self, value: Any) -> UOp:
        """The number `value` everywhere in this one's shape, with its dtype and device.

        >>> zeros = UOp.arange(4).const_like(0)
        >>> zeros.shape, zeros.base.arg
        ((4,), 0)
        """
        kind = type(value).__name__
        if value == 0 and math.copysign(1.0, value) < 0:  # 0.0 and -0.0 are equal as keys
            kind = "minus zero"
        return _constant(self.dtype, value, kind, self.device, self.shape)

    def replace(self, **changes: Any) -> UOp:
        """This node with another op, dtype, src, arg or tag.

        >>> (Variable("n", 1, 8) + 2).replace(op=Ops.MUL)
        (n*2)[2..16]
        """
        fields = {name: getattr(self, name) for name in ("op", "dtype", "src", "arg", "tag")}
        return UOp(**{**fields, **changes})

    def with_src(self, src: tuple[UOp, ...]) -> UOp:
        """This node with other sources; itself if they are the same.

        >>> n, m = Variable("n", 1, 8), Variable("m", 1, 3)
        >>> (n + m).with_src((m, m))
        (m + m)[2..6]
        """
        return self if src == self.src else UOp(self.op, self.dtype, src, self.arg, self.tag)

    # ---- casts, movement, reduction (shapes are checked by Tensor; here they must be right) ------

    def cast(self, dtype: DType) -> UOp:
        """This value as another dtype: ints wrap, floats round, floats as ints lose their fraction.

        >>> half = UOp.const(dtypes.float, 2.5)
        >>> half.cast(dtypes.int).ssimplify(), half.cast(dtypes.float) is half
        (2, True)
        """
        return self if dtype is self.dtype else UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        """The same bits as another dtype of the same size.

        >>> hex(UOp.const(dtypes.float, 1.0).bitcast(dtypes.uint).ssimplify())
        '0x3f800000'
        """
        return self if dtype is self.dtype else UOp(Ops.BITCAST, dtype, (self,))

    def moved(self, op: Ops, arg: Any) -> UOp:
        """A movement op; each symbolic size in `arg` becomes a source and leaves a hole.

        >>> part = UOp.arange(8).moved(Ops.SHRINK, ((0, Variable("n", 1, 8)),))
        >>> part.arg, part.shape
        (((0, '?'),), (n[1..8],))
        """
        sizes: list[UOp] = []
        arg = opened(arg, sizes)
        made = UOp(op, self.dtype, (self, *sizes), arg)
        if sizes:
            made._derived("_shape")  # which looks whether their values fit
        elif op is Ops.RESHAPE or op is Ops.EXPAND:
            made._shape = arg
        return made

    @property
    def sizes(self) -> Any:
        """The `arg` of a movement op, with the symbolic sizes filled in.

        >>> part = UOp.arange(8).shrink(((0, Variable("n", 1, 8)),))
        >>> part.arg, part.sizes
        (((0, '?'),), ((0, n[1..8]),))
        """
        return self.arg if len(self.src) == 1 else filled(self.arg, iter(self.src[1:]))

    def as_size(self) -> UOp | int:
        """This integer as a size in canonical form; an int if the value is known.

        >>> n = Variable("n", 1, 8)
        >>> (n + n).as_size(), (n - n + 2).as_size()
        ((n*2)[2..16], 2)
        """
        node = services.size(self.cast(dtypes.index))
        return int(node.arg) if node.op is Ops.CONST else node

    def reshape(self, shape: tuple[Any, ...]) -> UOp:
        """The same elements in row-major order under `shape`; a reshape of a reshape is one.

        >>> x = UOp.arange(6)
        >>> x.reshape((2, 3)).reshape((3, 2)) is x.reshape((3, 2))
        True
        """
        if shape == self.shape:
            return self
        inner = self.src[0] if self.op is Ops.RESHAPE else self
        return inner if shape == inner.shape else inner.moved(Ops.RESHAPE, shape)

    def expand(self, shape: tuple[Any, ...]) -> UOp:
        """Axes of size 1 repeated up to `shape`.

        >>> UOp.arange(3).reshape((1, 3)).expand((2, 3)).shape
        (2, 3)
        """
        return self if shape == self.shape else self.moved(Ops.EXPAND, shape)

    def broadcast_to(self, shape: tuple[Any, ...]) -> UOp:
        """New axes of size 1 in front, then expanded.

        >>> UOp.arange(3).broadcast_to((2, 3)).shape
        (2, 3)
        """
        own = self.shape
        return self.reshape((1,) * (len(shape) - len(own)) + own).expand(shape)

    def broadcast_rows(self, shape: tuple[Any, ...]) -> UOp:
        """New axes of size 1 behind, then expanded: each element is there for a whole row.

        >>> UOp.arange(3).broadcast_rows((3, 2)).shape
        (3, 2)
        """
        return self.reshape(self.shape + (1,) * (len(shape) - self.ndim)).expand(shape)

    def permute(self, axes: tuple[int, ...]) -> UOp:
        """The axes in the order `axes`.

        >>> UOp.arange(6).reshape((2, 3)).permute((1, 0)).shape
        (3, 2)
        """
        if axes == tuple(range(len(axes))):
            return self
        return UOp(Ops.PERMUTE, self.dtype, (self,), axes)

    def pad(self, pads: tuple[tuple[Any, Any], ...]) -> UOp:
        """Zeros around the elements: (before, after) for each axis.

        >>> UOp.arange(6).reshape((2, 3)).pad(((1, 0), (2, 2))).shape
        (3, 7)
        """
        return self.moved(Ops.PAD, pads) if any(p != (0, 0) for p in pads) else self

    def shrink(self, box: tuple[tuple[Any, Any], ...]) -> UOp:
        """The elements in a box: (begin, end) for each axis.

        >>> UOp.arange(6).reshape((2, 3)).shrink(((1, 2), (0, 2))).shape
        (1, 2)
        """
        whole = tuple((0, n) for n in self.shape)
        return self if box == whole else self.moved(Ops.SHRINK, box)

    def sliced(self, axis: int, begin: Any, end: Any) -> UOp:
        """The elements from `begin` to `end` of one axis.

        >>> UOp.arange(6).reshape((2, 3)).sliced(1, 0, 2).shape
        (2, 2)
        """
        own = axis % len(self.shape)
        return self.shrink(
            tuple((begin, end) if i == own else (0, n) for i, n in enumerate(self.shape))
        )

    def padded(self, axis: int, before: Any, after: Any) -> UOp:
        """So many zeros before and after the elements of one axis.

        >>> UOp.arange(6).reshape((2, 3)).padded(1, 2, 2).shape
        (2, 7)
        """
        own = axis % len(self.shape)
        return self.pad(tuple((before, after) if i == own else (0, 0) for i in range(self.ndim)))

    def flip(self, axes: tuple[int, ...]) -> UOp:
        """The axes in `axes` backwards.

        >>> x = UOp.arange(4)
        >>> x.flip((0,)).shape, x.flip(()) is x
        ((4,), True)
        """
        return UOp(Ops.FLIP, self.dtype, (self,), axes) if axes else self

    def window(self, windows: tuple[tuple[int, ...], ...]) -> UOp:
        """Sliding windows, each (axis, size, stride, dilation, before, after), over an axis with so
        many zeros around: it counts positions then, and a new last axis the elements of one.

        >>> UOp.arange(10).window(((0, 3, 2, 1, 0, 0),)).shape
        (4, 3)
        """
        return UOp(Ops.WINDOW, self.dtype, (self,), windows)

    def fold(self, windows: tuple[tuple[int, ...], ...], shape: tuple[Any, ...]) -> UOp:
        """The adjoint of `window`: each element of `shape` is the sum of what was read from it.

        >>> taps = ((0, 3, 2, 1, 0, 0),)
        >>> UOp.arange(10).window(taps).fold(taps, (10,)).shape
        (10,)
        """
        return self.moved(Ops.FOLD, (windows, shape))

    def reduce_axis(self, monoid: str, axes: tuple[int, ...]) -> UOp:
        """The elements along `axes` combined by a monoid, such as "add"; these axes stay, with
        size 1.

        >>> UOp.arange(6).reshape((2, 3)).reduce_axis("add", (1,)).shape
        (2, 1)
        """
        axes = tuple([axis for axis in axes if self.shape[axis] != 1])
        return UOp(Ops.REDUCE_AXIS, self.dtype, (self,), (monoid, axes)) if axes else self

    def running(self, monoid: str, axis: int) -> UOp:
        """The inclusive scan along `axis`: each element is the reduction of all elements up to
        it.

        >>> sums = UOp.arange(4).running("add", 0)
        >>> sums.shape, sums.arg
        ((4,), ('add', 0))
        """
        if self.shape[axis] == 1:
            return self
        return UOp(Ops.RUNNING, self.dtype, (self,), (monoid, axis))

    def reduce(self, monoid: str, *ranges: UOp) -> UOp:
        """This scalar combined by a monoid over all turns of `ranges`, on which it depends no more.

        >>> i = UOp.range(4, "i")
        >>> total = (i * 2).reduce("add", i)
        >>> len(i.ranges), len(total.ranges)
        (1, 0)
        """
        return UOp(Ops.REDUCE, self.dtype, (self, *ranges), monoid) if ranges else self

    def index(self, *indices: UOp, gate: UOp | None = None) -> UOp:
        """What lies at `indices`, one for each of the first axes; 0 where `gate` is false.

        >>> rows = UOp.arange(6).reshape((2, 3))
        >>> rows.index(UOp.const(dtypes.index, 1)).shape
        (3,)
        """
        gates = () if gate is None else (gate,)
        dtype = self.dtype
        return UOp(Ops.INDEX, dtype, (self, *indices, *gates), len(indices))

    def scatter(self, how: str, updates: UOp, *indices: UOp) -> UOp:
        """A copy in which `updates` are written at the indices: "set", or combined by a monoid.

        >>> counts, places = UOp.arange(3).const_like(0), UOp.arange(8) % 3
        >>> counts.scatter("add", places.const_like(1), places).shape
        (3,)
        """
        wide = self.dtype if how in ("set", "max") else compute_dtype(self.dtype)
        src = (self.cast(wide), updates.cast(wide), *indices)
        return UOp(Ops.SCATTER, wide, src, (how,)).cast(self.dtype)

    def store(self, value: UOp, *ranges: UOp) -> UOp:
        """A STORE of `value` at this INDEX, for all turns of `ranges`.

        >>> i = UOp.range(4, "i")
        >>> store = UOp.new_buffer("CPU", 4, dtypes.index).index(i).store(i * 2, i)
        >>> store.op, len(store.ranges)
        (Ops.STORE, 0)
        """
        return UOp(Ops.STORE, src=(self, value, *ranges))

    def check(self, ok: UOp, kind: str, message: str) -> UOp:
        """This value; where `ok` is false, the next host read raises `kind` with `message`.

        >>> x = UOp.arange(4)
        >>> x.check(x < 3, "index", "too large").has_check
        True
        """
        return UOp(Ops.CHECK, self.dtype, (self, ok), (kind, message))

    def copy_to(self, device: Any) -> UOp:
        """The same value on another device, or on several.

        >>> UOp.arange(4, "CPU").copy_to("CPU:1").device
        'CPU:1'
        """
        return UOp(Ops.COPY, self.dtype, (self, UOp.on(device)))

    def contiguous(self) -> UOp:
        """The same value, which will be stored in a buffer of its own.

        >>> doubled = UOp.arange(4) * 2
        >>> doubled.contiguous().op, doubled.contiguous().src[0] is doubled
        (Ops.CONTIGUOUS, True)
        """
        return UOp(Ops.CONTIGUOUS, self.dtype, (self,))

    def own(self) -> UOp:
        """This view of a constant, with a constant that is a node of its own.

        >>> zeros = UOp.const(dtypes.int, 0, "CPU").broadcast_to((4,))
        >>> zeros.own() is zeros, zeros.own().shape
        (False, (4,))
        """
        base = self.base
        return self.viewed(base.replace(src=(*base.src[:1], UOp.unique())))

    def detach(self, *history: UOp) -> UOp:
        """This value; its gradient goes to `history` instead, or nowhere.

        >>> x = UOp.arange(4)
        >>> x.detach().src == (x,)
        True
        """
        return UOp(Ops.DETACH, self.dtype, (self, *history))

    def sloped(self, *pairs: UOp) -> UOp:
        """This value; its slope by the first of each pair is the second, whatever made the
        value.

        >>> x = UOp.arange(4).cast(dtypes.float)
        >>> x.sloped(x, x.const_like(3)).shape
        (4,)
        """
        nothing = UOp(Ops.DETACH, self.dtype, (self.const_like(-0.0), *pairs))
        return self.detach() + nothing

    def assign(self, value: UOp) -> UOp:
        """This view of the next version of its buffer, in which it holds `value`.

        >>> x = UOp.new_buffer("CPU", 4, dtypes.int)
        >>> first = x.shrink(((0, 2),))
        >>> written = first.assign(first + 1)
        >>> written.shape, written.base.op, written.base.shape
        ((2,), Ops.ASSIGN, (4,))
        """
        return self.viewed(UOp(Ops.ASSIGN, self.dtype, (self, value)))

    def viewed(self, base: UOp) -> UOp:
        """The same view of another base.

        >>> x = UOp.arange(6)
        >>> x.reshape((2, 3)).viewed(x * 2) is (x * 2).reshape((2, 3))
        True
        """
        movement = []
        node = self
        while node.op in GroupOp.Movement:
            movement.append(node)
            node = node.src[0]
        return base.moved_by(reversed(movement))

    def moved_by(self, steps: Iterable[UOp]) -> UOp:
        """This node, moved by the same movement ops as `steps`, in order.

        >>> x = UOp.arange(6).reshape((2, 3))
        >>> (UOp.arange(6) * 2).moved_by([x]).shape
        (2, 3)
        """
        node = self
        for step in steps:
            node = UOp(step.op, node.dtype, (node, *step.src[1:]), step.arg)
        return node

    def bind(self, value: int) -> UOp:
        """This variable with a value for now.

        Raises:
            DTypeError: a value that is no whole number.
            ArgumentError: one outside of its bounds.

        >>> n = Variable("n", 1, 8)
        >>> (n.bind(3) * 2).val
        6
        >>> n.bind(9)
        Traceback (most recent call last):
        tinygrad.base.errors.ArgumentError: bind: n takes 1 to 8, not 9
        """
        name, low, high = self.arg
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise DTypeError(
                f"bind: {name} to {value!r} of type {type(value).__name__}; legal are ints"
            )
        if not low <= value <= high:
            raise ArgumentError(f"bind: {name} takes {low} to {high}, not {value}")
        return UOp(Ops.BIND, self.dtype, (self, UOp.const(self.dtype, value)))

    # ---- what follows from the sources -----------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes; AssertionError for a node that has no value (SINK, DEVICE, ...).

        >>> UOp.arange(6).reshape((2, 3)).shape, Variable("n", 1, 8).shape
        ((2, 3), ())
        """
        shape = self._shape
        if shape is _UNSET:
            shape = self._derived("_shape")
        assert shape is not None, f"{self.op!r} has no shape"
        return shape  # type: ignore[no-any-return]

    def shaped(self, shape: tuple[Any, ...]) -> UOp:
        """This node, with a shape that its maker already knows.

        >>> UOp(Ops.BUFFER, dtypes.int, (UOp.unique(), UOp.on("CPU")), 4).shaped((4,)).shape
        (4,)
        """
        self._shape = shape
        return self

    @property
    def has_shape(self) -> bool:
        """Whether this is a value; a SINK or a DEVICE is none.

        >>> UOp.arange(4).has_shape, UOp.on("CPU").has_shape
        (True, False)
        """
        shape = self._shape
        return (shape if shape is not _UNSET else self._derived("_shape")) is not None

    @property
    def room(self) -> tuple[int, ...]:
        """The shape that storage has: symbolic sizes count as the largest that they can be.

        >>> UOp.arange(Variable("n", 1, 8)).reshape((1, Variable("n", 1, 8))).room
        (1, 8)
        """
        return tuple(map(most, self.shape))

    @property
    def size(self) -> int:
        """The number of elements that there is room for.

        >>> UOp.arange(6).reshape((2, 3)).size, UOp.arange(Variable("n", 1, 8)).size
        (6, 8)
        """
        total = 1
        for n in self.shape:
            total *= n if isinstance(n, int) else int(n.vmax)
        return total

    def in_room(self, shape: tuple[Any, ...]) -> UOp:
        """This flat storage as a value of `shape`.

        >>> UOp.new_buffer("CPU", 8, dtypes.int).in_room((Variable("n", 1, 8),)).shape
        (n[1..8],)
        """
        if all(isinstance(n, int) for n in shape):
            return self.reshape(shape)
        return self.reshape(tuple(map(most, shape))).shrink(tuple((0, n) for n in shape))

    @property
    def of_room(self) -> UOp:
        """This value as flat storage has it: 0 in the room that symbolic sizes leave.

        >>> UOp.arange(Variable("n", 1, 8)).of_room.shape
        (8,)
        """
        pads = tuple((0, most - n) for most, n in zip(self.room, self.shape, strict=True))
        return self.pad(pads).reshape((self.size,))

    @property
    def ndim(self) -> int:
        """The number of axes.

        >>> UOp.arange(6).reshape((2, 3)).ndim
        2
        """
        return len(self.shape)

    @property
    def vmin(self) -> Any:
        """A lower bound of the value.

        >>> (Variable("n", 1, 8) - 3).vmin
        -2
        """
        return self._derived("_interval")[0]

    @property
    def vmax(self) -> Any:
        """An upper bound of the value.

        >>> (Variable("n", 1, 8) * 2 % 10).vmax
        9
        """
        return self._derived("_interval")[1]

    @property
    def key(self) -> bytes:
        """A hash of the content, the same in every process.

        >>> len(UOp.arange(4).key), UOp.arange(4).key == UOp.arange(5).key
        (32, False)
        """
        return self._derived("_key")  # type: ignore[no-any-return]

    @property
    def ranges(self) -> frozenset[UOp]:
        """The loops that the value depends on: a REDUCE, STAGE or STORE closes its own.

        >>> i, j = UOp.range(4, "i"), UOp.range(3, "j")
        >>> len((i + j).ranges), (i + j).reduce("add", j).ranges == {i}
        (2, True)
        """
        found = self._ranges
        return self._derived("_ranges") if found is _UNSET else found  # type: ignore[no-any-return]

    @property
    def has_check(self) -> bool:
        """Whether a CHECK stands at or below this node.

        >>> x = UOp.arange(4)
        >>> (x.check(x < 3, "index", "too large") * 2).has_check, x.has_check
        (True, False)
        """
        return self._derived("_checks")  # type: ignore[no-any-return]

    def _derived(self, slot: str) -> Any:
        """The derived fact in `slot`. It is computed, without recursion, for this node and all
        nodes below that lack it."""
        found = getattr(self, slot)
        if found is not _UNSET:
            return found
        rule = DERIVED[slot]
        for source in self.src:
            if getattr(source, slot) is _UNSET:
                break
        else:
            found = rule(self)
            setattr(self, slot, found)
            return found
        stack = [self]
        while stack:
            node = stack[-1]
            todo = [s for s in node.src if getattr(s, slot) is _UNSET]
            if todo:
                stack.extend(todo)
                continue
            stack.pop()
            if getattr(node, slot) is _UNSET:
                setattr(node, slot, rule(node))
        return getattr(self, slot)

    @property
    def base(self) -> UOp:
        """The node of which this is a view: below all movement.

        >>> x = UOp.arange(6)
        >>> x.reshape((2, 3)).permute((1, 0)).base is x
        True
        """
        node = self
        while node.op in GroupOp.Movement:
            node = node.src[0]
        return node

    @property
    def operands(self) -> tuple[UOp, ...]:
        """The sources without those that are sizes.

        >>> part = UOp.arange(8).shrink(((0, Variable("n", 1, 8)),))
        >>> len(part.src), len(part.operands)
        (2, 1)
        """
        return self.src[:1] if self.op in GroupOp.Movement else self.src

    @property
    def val(self) -> int:
        """The value of a bound variable, a constant, or whole-number arithmetic on them.

        >>> n = Variable("n", 1, 8).bind(3)
        >>> (n * n + 1).val
        10
        """
        if self.op is Ops.CONST:
            return int(self.arg)
        if self.op is Ops.BIND and (untold := services.told(self)) is not None:
            return untold  # type: ignore[no-any-return]
        if self.op is Ops.BIND or self.op is Ops.CAST:
            return self.src[-1].val
        return int(evaluate(self.op, self.dtype, *(s.val for s in self.src)))

    # ---- walking ---------------------------------------------------------------------------------

    def toposort(self, stop: Collection[UOp] = ()) -> list[UOp]:
        """All nodes below and this, sources first; nodes in `stop` are listed, not entered.

        >>> n = Variable("n", 1, 8)
        >>> [node.op for node in (n * 2 + n).toposort()]
        [Ops.DEFINE_VAR, Ops.CONST, Ops.MUL, Ops.ADD]
        """
        order: list[UOp] = []
        seen: set[UOp] = set()
        stack: list[UOp | None] = [self]
        pop, push = stack.pop, stack.append  # looked up once: walks are much of compiling
        while stack:
            node = pop()
            if node is None:  # what follows has all its sources in place
                order.append(pop())  # type: ignore[arg-type]
            elif node not in seen:
                seen.add(node)
                if not node.src or (stop and node in stop):
                    order.append(node)
                    continue
                push(node)
                push(None)
                for source in reversed(node.src):
                    if source not in seen:
                        push(source)
        return order

    def substitute(self, changes: Mapping[UOp, UOp]) -> UOp:
        """This graph with some nodes replaced; replacements are not searched again.

        >>> n, m = Variable("n", 1, 8), Variable("m", 1, 3)
        >>> (n * 2 + 1).substitute({n: m + 1})
        ((m + 1)*2 + 1)[5..9]
        """
        done: dict[UOp, UOp] = dict(changes)
        for node in self.toposort(stop=changes):
            if node not in done:
                done[node] = node.with_src(tuple(done[s] for s in node.src))
        return done[self]

    def rebuilt(self, rows: Mapping[Ops, Callable[[UOp], UOp]]) -> UOp:
        """This graph, `remade` by the rows of its nodes' ops; each gets the node with its new
        sources.

        >>> n = Variable("n", 1, 8)
        >>> (n * 2 + 1).rebuilt({Ops.MUL: lambda node: node.src[0] * 5})
        (n*5 + 1)[6..41]
        """
        if rows.keys().isdisjoint(node.op for node in self.toposort()):
            return self
        return self.remade(lambda old, node: rows[node.op](node) if node.op in rows else node)

    def remade(self, make: Callable[[UOp, UOp], UOp]) -> UOp:
        """This graph, rebuilt from its sources up: `make` gets each node as it was and with its new
        sources, and returns what takes its place. That is not rebuilt again; it keeps the user's
        source line.

        >>> n = Variable("n", 1, 8)
        >>> (n * 2 + 1).remade(lambda old, node: node + 1 if old.op is Ops.MUL else node)
        (n*2 + 1 + 1)[4..18]
        """
        done: dict[UOp, UOp] = {}
        for old in self.toposort():
            node = old.with_src(tuple(done[s] for s in old.src))
            made = done[old] = make(old, node)
            if made is not node and made.origin is None:
                made.origin = old.origin
        return done[self]

    # ---- services from higher floors, registered at the composition root -------------------------

    def simplify(self) -> UOp:
        """The same value by fewer operations, as rules and bounds show.

        >>> n = Variable("n", 1, 8)
        >>> ((n * 4 + 3) // 4).simplify(), (n // 9).simplify().arg
        (n[1..8], 0)
        """
        return services.simplify(self)

    def render(self) -> str:
        """This expression as Python would write it, without bounds.

        >>> (Variable("n", 1, 8) * 2 + 1).render()
        '(n*2 + 1)'
        """
        return services.render(self)

    @property
    def realized(self) -> Any:
        """The storage that holds the value, None before it is computed.

        >>> UOp.new_buffer("CPU", 4, dtypes.int).realized is None
        True
        """
        return services.realized(self)

    @property
    def axis(self) -> int | None:
        """The axis along which a value of several devices is cut; None if each has all of it.

        >>> Tensor.zeros(4, 2).shard(("CPU", "CPU:1"), axis=0).uop.axis
        0
        """
        return services.axis(self)


class Notes(Generic[T]):
    """A dict from nodes that remembers an entry for as long as its node lives. Entries are in a
    slot of the node itself: a weak dict would need an object for each entry, and a Python call
    whenever one dies. There is one slot, so all `Notes` must say the same of a node."""

    def get(self, node: UOp, default: T) -> T:
        found = node._form
        return default if found is _UNSET else found

    def __contains__(self, node: UOp) -> bool:
        return node._form is not _UNSET

    def __getitem__(self, node: UOp) -> T:
        return node._form  # type: ignore[no-any-return]

    def __setitem__(self, node: UOp, note: T) -> None:
        node._form = note


@functools.lru_cache(1024)  # a deep graph asks for the same few again and again
def _constant(dtype: DType, value: Any, kind: str, device: Any, shape: tuple[Any, ...]) -> UOp:
    """The number `value`, everywhere in `shape`. (`kind` keeps apart keys that are equal in
    Python: 1 and 1.0, 0.0 and -0.0.)"""
    scalar = UOp.const(dtype, value, device)
    return scalar.broadcast_to(shape) if shape else scalar


def _of_one_kind(sources: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """A size or a variable and a number of another dtype: as floats if that is one, else as
    sizes."""
    kinds = [source.dtype for source in sources]
    wanted = next(filter(dtypes.is_float, kinds), dtypes.index)
    is_mixed = wanted is dtypes.index or any(map(dtypes.is_int, kinds))
    return tuple(s.cast(wanted) for s in sources) if wanted in kinds and is_mixed else sources


_VERSIONS = (Ops.BUFFER, Ops.ASSIGN)
_PLACES = (Ops.DEVICE, Ops.COPY)
