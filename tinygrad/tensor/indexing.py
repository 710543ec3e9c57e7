"""Reading parts: `t[...]`, gather, scatter. What writes into parts stands in `writing`.

Numbers and slices are movement: a view. Tensors and lists of numbers are INDEX: a gather, with a
CHECK that each index is legal. Integers beside tensors count as tensors, as in NumPy: where all
of these stand side by side the result's axes stand there too, else first.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import compute_dtype, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, IndexCheckError, ShapeError
from tinygrad.base.helpers import plain, prod
from tinygrad.engine.realize import capturing, read, read_from
from tinygrad.engine.turns import keeping, turns
from tinygrad.schedule.regroup import for_each
from tinygrad.tensor.again import compute
from tinygrad.tensor.arguments import check_choice, check_number_from, check_types
from tinygrad.tensor.core import Core
from tinygrad.tensor.creation import ARRAY, LISTS
from tinygrad.tensor.elementwise import check_mask
from tinygrad.tensor.linalg import Linalg
from tinygrad.tensor.promise import Promise
from tinygrad.tensor.shapes import axis_of, broadcast_shape, check_devices, check_number
from tinygrad.tensor.template import expression, movements
from tinygrad.uop.infer import least, most
from tinygrad.uop.node import UOp

MONOID_OF = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "max": "max",
}


@dataclass
class _Selection:
    """What an index expression means: a view, and tensors that gather on some axes of it."""

    view: Any  # after slices, before None and integers take effect
    shape: list[Any] = field(default_factory=list)  # of the view, with None and without integers
    tensors: list[tuple[int, Any]] = field(default_factory=list)  # (axis in shape, indices)
    places: list[int] = field(default_factory=list)  # of tensors and integers in the expression


@dataclass
class _OnNewAxis:
    """An index tensor for an axis of size 1 that it brings with it."""

    index: Any


@movements
class Indexing(Linalg):
    """Parts by position."""

    __slots__ = ()

    # ---- reading ---------------------------------------------------------------------------------

    def __getitem__(self, indices: Any) -> Self:
        """Parts as in NumPy: numbers, slices with steps, None, `...`, tensors, lists, masks.

        IndexCheckError for a number outside the axis; for one in a tensor at the next read.

        >>> Tensor([1, 2, 3, 4])[1:3].tolist(), Tensor([1, 2, 3])[::-1].tolist()
        ([2, 3], [3, 2, 1])
        """
        if self._is_mask(indices) and not isinstance(self.device, tuple):
            return self._where_mask(self._tensor(indices))
        with turns.together(), keeping.now:  # no thread writes until this sees what is written
            chosen = self._select(indices)
            view: Self = chosen.view
            if view is self or view.shape != tuple(chosen.shape):
                view = view.reshape(tuple(chosen.shape))
        if not chosen.tensors:
            return view
        axes = [axis for axis, _ in chosen.tensors]
        rest = [i for i in range(view.ndim) if i not in axes]
        nodes, shape = view._checked(chosen.tensors)
        first = view.permute((*axes, *rest))
        out = first._from(first._held.index(*nodes))  # (S.., rest..)
        if not side_by_side(chosen.places):
            return out
        before = sum(i < axes[0] for i in rest)
        order = (*range(len(shape), len(shape) + before), *range(len(shape)))
        return out.permute((*order, *range(len(shape) + before, out.ndim)))

    def _at(self, axis: int, index: Any) -> Self:
        """What `index` names along one axis, all of the others."""
        return self[(slice(None),) * axis + (index,)]

    def _select(self, indices: Any) -> _Selection:
        """The view that numbers and slices make at once, and the tensors that are left to gather
        with: each stands for an axis of that view."""
        chosen = _Selection(self)
        axis = 0
        for place, item in enumerate(self._expanded(indices)):
            if item is Ellipsis:  # it stands between what is beside it, also for no axis
                continue
            if item is None:
                chosen.shape.append(1)
                continue
            if isinstance(item, _OnNewAxis):
                chosen.tensors.append((len(chosen.shape), item.index))
                chosen.places.append(place)
                chosen.shape.append(1)
                continue
            size = self.shape[axis]
            if isinstance(item, slice):
                chosen.view = _sliced(chosen.view, axis, item)
                chosen.shape.append(chosen.view.shape[axis])
            elif isinstance(item, Indexing):
                chosen.tensors.append((len(chosen.shape), item))
                chosen.places.append(place)
                chosen.shape.append(size)
            else:
                at = _position(item, size, axis, self.shape)
                chosen.view = chosen.view._cut(axis, at, at + 1)
                chosen.places.append(place)
            axis += 1
        if not chosen.tensors:
            chosen.places.clear()
        return chosen

    def _expanded(self, indices: Any) -> list[Any]:
        """One item an axis, None for new ones; slices follow `...`, lists and masks are tensors."""
        given = indices if isinstance(indices, tuple) else (indices,)
        items = [self._as_index(item) for item in given]
        dots = [i for i, item in enumerate(items) if item is Ellipsis]
        used = sum(map(_axes_used, items))
        if len(dots) > 1 or used > self.ndim:
            raise IndexCheckError(
                f"index: {used} indices and {len(dots)} '...' for shape {self.shape}; "
                f"legal are {self.ndim} indices and one '...'"
            )
        at = dots[0] + 1 if dots else len(items)
        items[at:at] = [slice(None)] * (self.ndim - used)
        out: list[Any] = []
        axis = 0
        for item in items:
            if isinstance(item, Indexing) and item.dtype is dtypes.bool:
                out += self._where_true(item, axis)
            else:
                out.append(item)
            axis += _axes_used(item)
        return out

    def _where_true(self, mask: Self, axis: int) -> list[Any]:
        """A mask on the axes from `axis` on as index tensors, one an axis. Reads the mask."""
        if not mask.ndim:
            return [_OnNewAxis(mask.reshape(1).nonzero().reshape(-1))]
        over = self.shape[axis : axis + mask.ndim]
        if mask.shape != over:
            raise IndexCheckError(
                f"index: a mask of shape {mask.shape} from axis {axis} on of shape {self.shape}; "
                f"legal is {over}"
            )
        where = mask.nonzero()  # (hits, axes)
        return [where._cut(1, i, i + 1).reshape(-1) for i in range(mask.ndim)]

    def _is_mask(self, indices: Any) -> bool:
        """Whether the index is a single mask, of the first axes."""
        if isinstance(indices, (tuple, list)) or not hasattr(indices, "dtype"):
            return False
        mask = self._tensor(indices)
        return mask.dtype is dtypes.bool and mask.shape == self.shape[: mask.ndim] != ()

    def _where_mask(self, mask: Self) -> Self:
        """The parts where a mask of the first axes is true, (how many, other axes..). A kernel
        gathers one of few numbers of them, so that another mask finds it made."""
        places = np.flatnonzero(read(mask._node))
        rows = self.reshape((mask.numel(), *self.shape[mask.ndim :]))
        count = len(places)
        if not rows.numel() or not count:
            return rows._cut(0, 0, count)
        room = rounded_up(count)
        at = np.zeros(room, np.int32 if mask.numel() < 1 << 31 else np.int64)
        at[:count] = places
        found = rows._from(rows._held.index(self._tensor(at)._node))
        compute([found])
        return found._cut(0, 0, count)

    def _as_index(self, item: Any) -> Any:
        """One item of an index as one of few kinds: None, `...`, a number, a slice of numbers, a
        tensor of whole numbers or bools, or tensors on an axis of their own."""
        if item is None or item is Ellipsis or isinstance(item, UOp):
            return item
        if isinstance(item, slice):
            return slice(_number(item.start), _number(item.stop), _number(item.step))
        if isinstance(item, bool):  # one more axis, of one element or none
            return _OnNewAxis(self._tensor([0] if item else [], dtypes.int32))
        is_one = not isinstance(item, (Indexing, *LISTS)) and not getattr(item, "ndim", 0)
        if is_one and hasattr(item, "__index__"):
            try:
                return operator.index(item)
            except TypeError:  # an array
                pass
        is_list = isinstance(item, LISTS)
        if is_list or (hasattr(item, ARRAY) and not isinstance(item, Indexing)):
            item = self._tensor(_plain(item) if is_list else item)
            if item.numel() == 0 and item.dtype is not dtypes.bool:
                item = item.cast(dtypes.int32)
        if not isinstance(item, Indexing):
            raise ArgumentError(
                f"index: {item!r} of type {type(item).__name__}; legal are numbers, slices, None, "
                "..., tensors, lists of numbers, masks"
            )
        if item.dtype is not dtypes.bool and not dtypes.is_int(item.dtype):
            raise DTypeError(f"index: a tensor of {item.dtype!r}; legal are ints and bools")
        return item

    def _checked(self, tensors: list[tuple[int, Any]]) -> tuple[list[UOp], tuple[Any, ...]]:
        """The index nodes of one shape: negatives counted from the end, bounds CHECKed."""
        check_devices("index", self, *(t for _, t in tensors))
        shape = broadcast_shape("index", *(t.shape for _, t in tensors))
        nodes = [legal_index(t._broadcast_to(shape)._node, self.shape[a], a) for a, t in tensors]
        return nodes, shape

    def nonzero(
        self, size: int | None = None, fill_value: int = 0, *, as_tuple: bool = False
    ) -> Any:
        """The positions of all elements that are not zero, (how many, axes); `as_tuple`: a vector
        for each axis. Reads the tensor, unless `size` says how many: the first ones then, and
        `fill_value` for what is not there.

        >>> Tensor([0, 5, 6]).nonzero().tolist()
        [[1], [2]]
        >>> Tensor([0, 5, 6]).nonzero(3, -1).tolist()
        [[1], [2], [-1]]
        """
        if size is not None:
            places, there = self.bool().flatten()._first_true("nonzero", size)
            sizes = [1 if n == 0 else n for n in self.shape]  # of no elements none is there
            axes = [
                there.where(places // prod(sizes[i + 1 :]) % n, fill_value)
                for i, n in enumerate(sizes)
            ]
            if as_tuple:
                return tuple(axes)
            return axes[0].stack(*axes[1:], dim=1) if axes else self._tensor(np.empty((size, 0)))
        values = read(self.bool()._node)
        flat = np.flatnonzero(values)
        flat = flat.astype(np.int32) if values.size < 1 << 31 else flat
        shape = (self.ndim, len(flat)) if as_tuple else (len(flat), self.ndim)
        found: NDArray[Any] = np.empty(shape, np.int32)
        columns = found if as_tuple else found.T
        for axis in reversed(range(1, self.ndim)):
            whole = flat // values.shape[axis]
            columns[axis] = flat - whole * values.shape[axis]
            flat = whole
        columns[:1] = flat  # of no axes none
        return tuple(map(self._tensor, found)) if as_tuple else self._tensor(found)

    def masked_select(self, mask: Any, size: int | None = None, fill_value: float = 0) -> Self:
        """The elements where `mask` is true, flat. Reads the mask, unless `size` says how many:
        the first ones then, and `fill_value` for what is not there.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True]), 3, -1).tolist()
        [1, 3, -1]
        """
        check_mask("masked_select", mask)
        x, chosen = self._meet("masked_select", mask, dtype=dtypes.void)
        if size is None:
            return x[chosen.bool()]
        places, there = chosen.bool().flatten()._first_true("masked_select", size)
        if x.numel() == 0:
            return x.full((size,), fill_value, x.dtype, x.device)
        return there.where(x.flatten()[places], fill_value)  # type: ignore[no-any-return]

    def _first_true(self: Any, operation: str, size: int) -> tuple[Any, Any]:
        """Of a vector of bools: where the first `size` true ones stand, and which of these there
        are. Nothing is read."""
        check_number_from(operation, "size", size, 0)
        count = self.cumsum()
        slot = (self & (count <= size)).where(count - 1, size)  # the last one is for all others
        places = self.zeros(size + 1, dtype=count.dtype, device=self.device)
        found = places.scatter(0, slot, self._counting(self.shape[0], self.device))[:size]
        return found, self._counting(size, self.device) < self.sum()

    # ---- by index tensors ------------------------------------------------------------------------

    def _full_index(self, operation: str, dim: int, index: Self) -> tuple[int, list[UOp]]:
        """Index nodes for all axes: `index` on axis `dim`, a counter on each other one."""
        axis = axis_of(dim, self.ndim, operation)
        check_devices(operation, self, index)
        if not dtypes.is_int(index.dtype):
            raise DTypeError(f"{operation}: an index of {index.dtype!r}; legal are ints")
        if index.ndim != self.ndim:
            raise ShapeError(
                f"{operation}: index of {index.shape} for {self.shape}; legal are as many axes"
            )
        pairs = enumerate(zip(index.shape, self.shape, strict=True))
        over = [i for i, pair in pairs if i != axis and _is_over(*pair)]
        if over:
            raise ShapeError(
                f"{operation}: index of {index.shape} is larger than {self.shape} on axis {over[0]}"
            )
        nodes = []
        for i in range(self.ndim):
            if i == axis:
                nodes.append(legal_index(index._node, self.shape[i], i))
            else:
                count = index._along(i, self._counting(index.shape[i], self.device))
                nodes.append(count._broadcast_to(index.shape)._node)
        return axis, nodes

    def gather(self, dim: Any, index: Self) -> Self:
        """out[i][j] = self[index[i][j]][j] for dim 0, and so on; the shape is that of `index`.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0], [1]])).tolist()
        [[1], [4]]
        """
        if isinstance(dim, Core):
            dim, index = index, dim  # as programs of the first years have them
        if index.numel() == 0:
            return self.zeros(index.shape, dtype=self.dtype, device=self.device)._with_none_of(self)
        if not self.ndim and not index.ndim:
            return self.reshape(1).gather(dim, index.reshape(1)).reshape(())
        _, nodes = self._full_index("gather", dim, index)
        return self._from(self._held.index(*nodes), index)

    def scatter(self, dim: int, index: Self, src: Self | float, reduce: str | None = None) -> Self:
        """A copy with self[index[i][j]][j] = src[i][j] for dim 0, and so on; of several updates
        of one element the last counts. `reduce` "add" or "multiply" combines instead.

        >>> Tensor([0, 0, 0]).scatter(0, Tensor([1]), Tensor([5])).tolist()
        [0, 5, 0]
        """
        check_choice("scatter", "reduce", reduce, (None, "add", "multiply"))
        return self._scatter("scatter", dim, index, src, MONOID_OF.get(str(reduce), "set"))

    def _scatter(self, operation: str, dim: int, index: Self, src: Any, how: str) -> Self:
        if isinstance(src, (bool, int, float)):
            check_number(operation, src, self.dtype)
            src = self._wrap(self._constant(src, shape=index.shape))
        check_devices(operation, self, src)
        if src.dtype is not self.dtype:
            raise DTypeError(f"{operation}: src is {src.dtype!r}; legal is {self.dtype!r}")
        if src.ndim != index.ndim or any(
            _is_over(n, m) for n, m in zip(index.shape, src.shape, strict=True)
        ):
            raise ShapeError(
                f"{operation}: src of {src.shape} doesn't cover index {index.shape}; "
                "legal are as many axes, of its sizes or more"
            )
        if index.numel() == 0:
            return self._copied(self)._with_none_of(src)
        if not self.ndim:
            return self.reshape(1)._scatter(operation, dim, index[None], src[None], how).reshape(())
        _, nodes = self._full_index(operation, dim, index)
        updates = src.shrink(tuple((0, n) for n in index.shape))
        if self._element and how not in ("set", "add"):
            raise DTypeError(f"{operation}: {how!r} of {self.dtype!r}; legal are set and add")
        return self._from(self._held.scatter(how, updates._held, *nodes), updates)

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """A copy with updates combined by `reduce`: "sum", "prod", "mean", "amax" or "amin".
        Without `include_self` the old value of an element that is updated doesn't count.

        >>> Tensor([1, 1]).scatter_reduce(0, Tensor([0, 0]), Tensor([5, 6]), "sum").tolist()
        [12, 1]
        """
        legal = ("sum", "prod", "mean", "amax", "amin")
        check_choice("scatter_reduce", "reduce", reduce, legal)
        if reduce == "amin":
            turned = self._opposite().scatter_reduce(
                dim, index, src._opposite(), "amax", include_self
            )
            return turned._opposite()
        wide = compute_dtype(self.dtype)
        if reduce == "mean" and self.dtype is src.dtype is not wide:
            x, updates = self.cast(wide), src.cast(wide)
            return x.scatter_reduce(dim, index, updates, reduce, include_self).cast(self.dtype)
        start = self
        if not include_self:
            first = {"sum": 0, "mean": 0, "prod": 1, "amax": dtypes.min(self.dtype)}[reduce]
            start = self._scatter("scatter_reduce", dim, index, first, "set")
        if reduce == "mean":
            total = start._scatter("scatter_reduce", dim, index, src, "add")
            counts = self.ones_like() if include_self else self.zeros_like()
            counts = counts._scatter("scatter_reduce", dim, index, 1, "add")
            counts = counts.eq(0).where(counts.ones_like(), counts)
            whole = not dtypes.is_float(self.dtype)
            return total.div(counts, rounding_mode="floor" if whole else None)
        return start._scatter("scatter_reduce", dim, index, src, MONOID_OF[reduce])

    def _opposite(self) -> Self:
        return -self if dtypes.is_float(self.dtype) else ~self

    def one_hot(self, num_classes: int = -1) -> Self:
        """1 at each number's place among `num_classes`, 0 elsewhere, along a new last axis.
        Without `num_classes` it is one more than the largest, which is read.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        if not dtypes.is_int(self.dtype):
            raise DTypeError(f"one_hot: of {self.dtype!r}; legal are ints")
        if num_classes == -1:
            num_classes = self.max().item() + 1
        num_classes = plain(num_classes)
        check_types("one_hot", [num_classes], (int, UOp), "whole numbers and variables")
        if num_classes < 1:
            raise ArgumentError(f"one_hot: {num_classes} classes; legal are numbers from 1, or -1")
        return self._one_hot(num_classes)

    @expression
    def _one_hot(self, classes: int) -> Self:
        told = self._from(legal_class(self._node, classes, "one_hot"))
        return told._one_hot_along(self.ndim, classes).where(1, 0)

    def _of_class(self, own: Self, size: int, operation: str, ignored: int | None = None) -> Self:
        """`own`, one value for each of these class numbers, with a CHECK that each is below `size`
        or the one that is `ignored`."""
        told = self._from(legal_class(self._node, size, operation, ignored))
        return told.eq(told).where(own, 0)

    @expression
    def _rows(self, index: Self) -> Self:
        """The rows that whole numbers (S..) name, as (S.., rest..); none counts from the end."""
        node = legal_index(index._node, self.shape[0], 0, True)
        return self._from(self._node.index(node))

    def _one_hot_along(self, axis: int, size: int) -> Self:
        """Whether each number is the position along a new axis."""
        x = self.unsqueeze(axis)
        return x.eq(x._along(axis, self._counting(size, self.device, self.dtype)))

    def item(self) -> Any:
        """The one value as a Python number. ShapeError unless there is exactly one element.

        >>> Tensor([5]).item()
        5
        """

        if self.numel() != 1:
            raise ShapeError(f"item: a tensor of {self.shape}; legal is one element")
        return self._read().reshape(-1)[0].item()

    def _read(self) -> NDArray[Any]:
        """A copy of the values."""
        if self._is_promised:
            compute([self])
        promise = self._source
        if isinstance(promise, Promise) and not capturing():
            buffer = promise.alone
            if buffer is not None:  # which needs no node
                return read_from(buffer, promise.like)
        return read(self.uop)


def legal_index(node: UOp, size: Any, axis: int, from_zero: bool = False) -> UOp:
    """A CHECK that all numbers lie on the axis; negative ones are counted from its end, unless it
    is to be `from_zero`. One that doesn't becomes the last, so that no memory outside is touched
    until the error is told. All is done with unsigned numbers, among which negative ones are the
    largest: then a sum and two minima suffice."""
    if size == 0 and 0 not in node.shape:
        raise IndexCheckError(f"index: axis {axis} has no elements to take")
    low, high = node.vmin, node.vmax
    unsigned = dtypes.uint64 if node.dtype.itemsize == 8 else dtypes.uint32
    if node.dtype.itemsize < 4 and not dtypes.is_unsigned(node.dtype):
        node = node.cast(dtypes.int32)  # its sign, over 32 bits
    limit, legal = for_each(node, size, unsigned), "those on it"
    if isinstance(size, int):
        legal = f"{0 if from_zero else -size} to {size - 1}"

    def place(number: UOp) -> UOp:
        number = number.cast(unsigned)
        return number if low >= 0 or from_zero else _least(number, number + limit)

    found = place(node)
    if isinstance(size, int) and (0 if from_zero else -size) <= low and high < size:
        return found
    message = f"index {{0}} is out of range on axis {axis}; legal are {legal}"
    signed = dtypes.int64 if unsigned is dtypes.uint64 else dtypes.int32
    told = found if dtypes.is_unsigned(node.dtype) else found.cast(signed)  # unchanged if it fails
    checked = told.check(found < limit, "index", message).cast(unsigned)
    return _least(checked, limit - 1)


def _least(one: UOp, other: UOp) -> UOp:
    return (one < other).where(one, other)


def legal_class(node: UOp, size: Any, operation: str, ignored: int | None = None) -> UOp:
    """A CHECK that all numbers are those of classes, or the one that is `ignored`."""
    if not dtypes.is_int(node.dtype):
        raise DTypeError(f"{operation}: class numbers of {node.dtype!r}; legal are ints")
    if node.vmin >= 0 and node.vmax < least(size):
        return node
    wide = node.cast(dtypes.int64) if node.dtype.itemsize < 8 else node
    ok = wide < for_each(node, size, wide.dtype)
    if not dtypes.is_unsigned(node.dtype):
        ok = ok & (wide >= 0)
    if ignored is not None:
        ok = ok | wide.eq(ignored)
    legal = f"0 to {size - 1}" if isinstance(size, int) else "those below the size"
    return node.check(ok, "index", f"{operation}: class {{0}} is out of range; legal are {legal}")


def _sliced(x: Any, axis: int, part: slice) -> Any:
    """One axis cut by a slice of numbers; a negative step flips first."""
    size = x.shape[axis]
    if part.step == 0:
        raise ArgumentError(f"index: {part} has step 0; legal is any other")
    if part == slice(None):
        return x
    if any(isinstance(v, UOp) for v in (size, part.start, part.stop)):
        return _sliced_by_sizes(x, axis, part)
    try:
        begin, end, step = part.indices(size)
    except TypeError as error:
        raise ArgumentError(f"index: {part}; legal are whole numbers and None") from error
    count = len(range(begin, end, step))
    if step < 0:
        x, begin, step = x.flip(axis), size - 1 - begin, -step
    last = begin + (count - 1) * step + 1 if count else begin
    return x._cut(axis, begin, last)._strided(axis, step)


def _sliced_by_sizes(x: Any, axis: int, part: slice) -> Any:
    """One axis cut where sizes are symbolic: they are taken to lie within it."""
    size, step = x.shape[axis], 1 if part.step is None else operator.index(part.step)
    first, last = (size + v if isinstance(v, int) and v < 0 else v for v in (part.start, part.stop))
    if step < 0:
        x, step = x.flip(axis), -step
        first, last = (None if v is None else size - 1 - v for v in (first, last))
    begin, end = 0 if first is None else first, size if last is None else last
    return x._cut(axis, begin, end)._strided(axis, step)


def _is_over(size: Any, limit: Any) -> bool:
    """Whether a size may be larger."""
    return size is not limit and most(size) > least(limit)


def _position(item: Any, size: Any, axis: int, shape: tuple[Any, ...]) -> Any:
    if isinstance(item, UOp) or isinstance(size, UOp):
        return size + item if isinstance(item, int) and item < 0 else item
    if not -size <= item < size:
        legal = f"legal are {-size} to {size - 1}" if size else "it has no elements"
        raise IndexCheckError(f"index: {item} on axis {axis} of shape {shape}; {legal}")
    return item % size


def _number(part: Any) -> Any:
    """A part of a slice; what a tensor or an array of one number holds."""
    return operator.index(part) if hasattr(part, "__array__") else part


def _axes_used(item: Any) -> int:
    """How many axes of what is indexed an item is for."""
    if item is None or item is Ellipsis or isinstance(item, _OnNewAxis):
        return 0
    is_mask = isinstance(item, Indexing) and item.dtype is dtypes.bool
    return item.ndim if is_mask else 1


def side_by_side(places: list[int]) -> bool:
    """Whether nothing stands between these places."""
    return places[-1] - places[0] == len(places) - 1


def rounded_up(count: int) -> int:
    """The least number from `count` on that has four bits, and zeros after them."""
    low = max(count.bit_length() - 4, 0)
    return -(-count >> low) << low


def _plain(item: Any) -> Any:
    """Lists with single-element tensors in them as lists of numbers."""
    if isinstance(item, LISTS):
        return [_plain(each) for each in item]
    return item.item() if isinstance(item, Indexing) else item
