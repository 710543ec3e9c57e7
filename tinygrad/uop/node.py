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
        return self._as_float().alu(Ops.SQRT)  # as `np.sqrt(size)` asks

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
        """0, 1, .. size - 1, shape (size,)."""
        if isinstance(size, UOp):
            return UOp.arange(size.vmax, device, dtype).shrink(((0, size),))
        return UOp(Ops.ARANGE, dtype, () if device is None else (UOp.on(device),), size)

    @staticmethod
    def positions(
        shape: tuple[Any, ...], axis: int, device: Any, dtype: DType = dtypes.int32
    ) -> UOp:
        """For each element of `shape`, its position along one axis."""
        own = axis % len(shape)
        line = tuple(n if i == own else 1 for i, n in enumerate(shape))
        return UOp.arange(shape[own], device, dtype).reshape(line).expand(shape)

    @staticmethod
    def on(device: Any) -> UOp:
        """The DEVICE of a name, of a tuple of names, or of a Placement."""
        return UOp(Ops.DEVICE, arg=placed(device))

    @staticmethod
    def new_buffer(device: Any, size: int, dtype: DType) -> UOp:
        """A buffer unlike any other; of several devices, of `size` elements in all."""
        return UOp.on(device).new_storage(size, dtype)

    @staticmethod
    def unique() -> UOp:
        """A UNIQUE, with a number above those of all before."""
        return UOp(Ops.UNIQUE, dtypes.void, (), next(UOp._unique))

    def new_storage(self, size: int, dtype: DType) -> UOp:
        """A buffer unlike any other where this DEVICE says."""
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
        return UOp(Ops.DEFINE_VAR, dtype, arg=(name, min_val, max_val))

    @staticmethod
    def range(size: UOp | int, name: str, role: str = "LOOP", limits: tuple[UOp, ...] = ()) -> UOp:
        """A loop counter from 0 to min(size, *limits), a scalar of dtype index. A symbolic size
        becomes a limit, with its largest value as the size."""
        if isinstance(size, int):
            size = UOp.const(dtypes.index, size)
        elif size.op is not Ops.CONST:
            size, limits = UOp.const(dtypes.index, size.vmax), (size, *limits)
        return UOp(Ops.RANGE, dtypes.index, (size, *limits), (name, role))

    @staticmethod
    def sink(*roots: UOp) -> UOp:
        return UOp(Ops.SINK, src=roots)

    def alu(self, op: Ops, *others: UOp) -> UOp:
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
        kind = type(value).__name__
        if value == 0 and math.copysign(1.0, value) < 0:  # 0.0 and -0.0 are equal as keys
            kind = "minus zero"
        return _constant(self.dtype, value, kind, self.device, self.shape)

    def replace(self, **changes: Any) -> UOp:
        """This node with another op, dtype, src, arg or tag."""
        fields = {name: getattr(self, name) for name in ("op", "dtype", "src", "arg", "tag")}
        return UOp(**{**fields, **changes})

    def with_src(self, src: tuple[UOp, ...]) -> UOp:
        """This node with other sources; itself if they are the same."""
        return self if src == self.src else UOp(self.op, self.dtype, src, self.arg, self.tag)

    # ---- casts, movement, reduction (shapes are checked by Tensor; here they must be right) ------

    def cast(self, dtype: DType) -> UOp:
        return self if dtype is self.dtype else UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        return self if dtype is self.dtype else UOp(Ops.BITCAST, dtype, (self,))

    def moved(self, op: Ops, arg: Any) -> UOp:
        """A movement op whose sizes may be symbolic."""
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
        """The `arg` of a movement op, with the symbolic sizes filled in."""
        return self.arg if len(self.src) == 1 else filled(self.arg, iter(self.src[1:]))

    def as_size(self) -> UOp | int:
        """This integer as a size in canonical form; an int if the value is known."""
        node = services.size(self.cast(dtypes.index))
        return int(node.arg) if node.op is Ops.CONST else node

    def reshape(self, shape: tuple[Any, ...]) -> UOp:
        if shape == self.shape:
            return self
        inner = self.src[0] if self.op is Ops.RESHAPE else self
        return inner if shape == inner.shape else inner.moved(Ops.RESHAPE, shape)

    def expand(self, shape: tuple[Any, ...]) -> UOp:
        return self if shape == self.shape else self.moved(Ops.EXPAND, shape)

    def broadcast_to(self, shape: tuple[Any, ...]) -> UOp:
        """New axes of size 1 in front, then expanded."""
        own = self.shape
        return self.reshape((1,) * (len(shape) - len(own)) + own).expand(shape)

    def broadcast_rows(self, shape: tuple[Any, ...]) -> UOp:
        """New axes of size 1 behind, then expanded: each element is there for a whole row."""
        return self.reshape(self.shape + (1,) * (len(shape) - self.ndim)).expand(shape)

    def permute(self, axes: tuple[int, ...]) -> UOp:
        if axes == tuple(range(len(axes))):
            return self
        return UOp(Ops.PERMUTE, self.dtype, (self,), axes)

    def pad(self, pads: tuple[tuple[Any, Any], ...]) -> UOp:
        return self.moved(Ops.PAD, pads) if any(p != (0, 0) for p in pads) else self

    def shrink(self, box: tuple[tuple[Any, Any], ...]) -> UOp:
        whole = tuple((0, n) for n in self.shape)
        return self if box == whole else self.moved(Ops.SHRINK, box)

    def sliced(self, axis: int, begin: Any, end: Any) -> UOp:
        """The elements from `begin` to `end` of one axis."""
        own = axis % len(self.shape)
        return self.shrink(
            tuple((begin, end) if i == own else (0, n) for i, n in enumerate(self.shape))
        )

    def padded(self, axis: int, before: Any, after: Any) -> UOp:
        """So many zeros before and after the elements of one axis."""
        own = axis % len(self.shape)
        return self.pad(tuple((before, after) if i == own else (0, 0) for i in range(self.ndim)))

    def flip(self, axes: tuple[int, ...]) -> UOp:
        return UOp(Ops.FLIP, self.dtype, (self,), axes) if axes else self

    def window(self, windows: tuple[tuple[int, ...], ...]) -> UOp:
        return UOp(Ops.WINDOW, self.dtype, (self,), windows)

    def fold(self, windows: tuple[tuple[int, ...], ...], shape: tuple[Any, ...]) -> UOp:
        return self.moved(Ops.FOLD, (windows, shape))

    def reduce_axis(self, monoid: str, axes: tuple[int, ...]) -> UOp:
        """Reduced axes stay, with size 1; those that have it are as they were."""
        axes = tuple([axis for axis in axes if self.shape[axis] != 1])
        return UOp(Ops.REDUCE_AXIS, self.dtype, (self,), (monoid, axes)) if axes else self

    def running(self, monoid: str, axis: int) -> UOp:
        """The inclusive scan along `axis`: each element is the reduction of all elements up to
        it."""
        if self.shape[axis] == 1:
            return self
        return UOp(Ops.RUNNING, self.dtype, (self,), (monoid, axis))

    def reduce(self, monoid: str, *ranges: UOp) -> UOp:
        return UOp(Ops.REDUCE, self.dtype, (self, *ranges), monoid) if ranges else self

    def index(self, *indices: UOp, gate: UOp | None = None) -> UOp:
        gates = () if gate is None else (gate,)
        dtype = self.dtype
        return UOp(Ops.INDEX, dtype, (self, *indices, *gates), len(indices))

    def scatter(self, how: str, updates: UOp, *indices: UOp) -> UOp:
        """A copy in which `updates` are written at the indices: "set", or combined by a monoid."""
        wide = self.dtype if how in ("set", "max") else compute_dtype(self.dtype)
        src = (self.cast(wide), updates.cast(wide), *indices)
        return UOp(Ops.SCATTER, wide, src, (how,)).cast(self.dtype)

    def store(self, value: UOp, *ranges: UOp) -> UOp:
        return UOp(Ops.STORE, src=(self, value, *ranges))

    def check(self, ok: UOp, kind: str, message: str) -> UOp:
        """This value; where `ok` is false, the next host read raises `kind` with `message`."""
        return UOp(Ops.CHECK, self.dtype, (self, ok), (kind, message))

    def copy_to(self, device: Any) -> UOp:
        return UOp(Ops.COPY, self.dtype, (self, UOp.on(device)))

    def contiguous(self) -> UOp:
        return UOp(Ops.CONTIGUOUS, self.dtype, (self,))

    def own(self) -> UOp:
        """This view of a constant, with a constant that is a node of its own."""
        base = self.base
        return self.viewed(base.replace(src=(*base.src[:1], UOp.unique())))

    def detach(self, *history: UOp) -> UOp:
        """This value; its gradient goes to `history` instead, or nowhere."""
        return UOp(Ops.DETACH, self.dtype, (self, *history))

    def sloped(self, *pairs: UOp) -> UOp:
        """This value; its slope by the first of each pair is the second, whatever made the
        value."""
        nothing = UOp(Ops.DETACH, self.dtype, (self.const_like(-0.0), *pairs))
        return self.detach() + nothing

    def assign(self, value: UOp) -> UOp:
        """This view of the next version of its buffer, in which it holds `value`."""
        return self.viewed(UOp(Ops.ASSIGN, self.dtype, (self, value)))

    def viewed(self, base: UOp) -> UOp:
        """The same view of another base."""
        movement = []
        node = self
        while node.op in GroupOp.Movement:
            movement.append(node)
            node = node.src[0]
        return base.moved_by(reversed(movement))

    def moved_by(self, steps: Iterable[UOp]) -> UOp:
        """This node, moved by the same movement ops as `steps`, in order."""
        node = self
        for step in steps:
            node = UOp(step.op, node.dtype, (node, *step.src[1:]), step.arg)
        return node

    def bind(self, value: int) -> UOp:
        """This variable with a value for now, which must lie within its bounds."""
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
        """The sizes; AssertionError for a node that has no value (SINK, DEVICE, ...)."""
        shape = self._shape
        if shape is _UNSET:
            shape = self._derived("_shape")
        assert shape is not None, f"{self.op!r} has no shape"
        return shape  # type: ignore[no-any-return]

    def shaped(self, shape: tuple[Any, ...]) -> UOp:
        """This node, with a shape that its maker already knows."""
        self._shape = shape
        return self

    @property
    def has_shape(self) -> bool:
        shape = self._shape
        return (shape if shape is not _UNSET else self._derived("_shape")) is not None

    @property
    def room(self) -> tuple[int, ...]:
        """The shape that storage has: symbolic sizes count as the largest that they can be."""
        return tuple(map(most, self.shape))

    @property
    def size(self) -> int:
        """The number of elements that there is room for."""
        total = 1
        for n in self.shape:
            total *= n if isinstance(n, int) else int(n.vmax)
        return total

    def in_room(self, shape: tuple[Any, ...]) -> UOp:
        """This flat storage as a value of `shape`."""
        if all(isinstance(n, int) for n in shape):
            return self.reshape(shape)
        return self.reshape(tuple(map(most, shape))).shrink(tuple((0, n) for n in shape))

    @property
    def of_room(self) -> UOp:
        """This value as flat storage has it: 0 in the room that symbolic sizes leave."""
        pads = tuple((0, most - n) for most, n in zip(self.room, self.shape, strict=True))
        return self.pad(pads).reshape((self.size,))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def vmin(self) -> Any:
        """A lower bound of the value."""
        return self._derived("_interval")[0]

    @property
    def vmax(self) -> Any:
        """An upper bound of the value."""
        return self._derived("_interval")[1]

    @property
    def key(self) -> bytes:
        """A hash of the content, the same in every process."""
        return self._derived("_key")  # type: ignore[no-any-return]

    @property
    def ranges(self) -> frozenset[UOp]:
        """The loops that the value depends on: a REDUCE, STAGE or STORE closes its own."""
        found = self._ranges
        return self._derived("_ranges") if found is _UNSET else found  # type: ignore[no-any-return]

    @property
    def has_check(self) -> bool:
        """Whether a CHECK stands at or below this node."""
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
        """The node of which this is a view: below all movement."""
        node = self
        while node.op in GroupOp.Movement:
            node = node.src[0]
        return node

    @property
    def operands(self) -> tuple[UOp, ...]:
        """The sources without those that are sizes."""
        return self.src[:1] if self.op in GroupOp.Movement else self.src

    @property
    def val(self) -> int:
        """The value of a bound variable, a constant, or whole-number arithmetic on them."""
        if self.op is Ops.CONST:
            return int(self.arg)
        if self.op is Ops.BIND and (untold := services.told(self)) is not None:
            return untold  # type: ignore[no-any-return]
        if self.op is Ops.BIND or self.op is Ops.CAST:
            return self.src[-1].val
        return int(evaluate(self.op, self.dtype, *(s.val for s in self.src)))

    # ---- walking ---------------------------------------------------------------------------------

    def toposort(self, stop: Collection[UOp] = ()) -> list[UOp]:
        """All nodes below and this, sources first; nodes in `stop` are listed, not entered."""
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
        """This graph with some nodes replaced; replacements are not searched again."""
        done: dict[UOp, UOp] = dict(changes)
        for node in self.toposort(stop=changes):
            if node not in done:
                done[node] = node.with_src(tuple(done[s] for s in node.src))
        return done[self]

    def rebuilt(self, rows: Mapping[Ops, Callable[[UOp], UOp]]) -> UOp:
        """This graph, `remade` by the rows of its nodes' ops; each gets the node with its new
        sources."""
        if rows.keys().isdisjoint(node.op for node in self.toposort()):
            return self
        return self.remade(lambda old, node: rows[node.op](node) if node.op in rows else node)

    def remade(self, make: Callable[[UOp, UOp], UOp]) -> UOp:
        """This graph, rebuilt from its sources up: `make` gets each node as it was and with its new
        sources, and returns what takes its place. That is not rebuilt again; it keeps the user's
        source line."""
        done: dict[UOp, UOp] = {}
        for old in self.toposort():
            node = old.with_src(tuple(done[s] for s in old.src))
            made = done[old] = make(old, node)
            if made is not node and made.origin is None:
                made.origin = old.origin
        return done[self]

    # ---- services from higher floors, registered at the composition root -------------------------

    def simplify(self) -> UOp:
        return services.simplify(self)

    def render(self) -> str:
        return services.render(self)

    @property
    def realized(self) -> Any:
        """The storage that holds the value, None before it is computed."""
        return services.realized(self)

    @property
    def axis(self) -> int | None:
        """The axis along which a value of several devices is cut; None if each has all of it."""
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
