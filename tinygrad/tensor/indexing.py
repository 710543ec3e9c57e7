"""Reading and writing parts: `t[...]`, gather, scatter.

Numbers and slices are movement: a view. Tensors and lists of numbers are INDEX: a gather, with a
CHECK that each index is legal. Integers beside tensors count as tensors, as in NumPy: where all
of these stand side by side the result's axes stand there too, else first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, IndexCheckError, ShapeError
from tinygrad.base.helpers import argsort, prod
from tinygrad.engine.holders import holders
from tinygrad.engine.realize import own_copy, read, realize
from tinygrad.engine.storage import is_shared, join, latest, supersede
from tinygrad.tensor.core import Core, axis_of, broadcast_shape
from tinygrad.tensor.creation import HasArray
from tinygrad.tensor.linalg import Linalg
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

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
        chosen = self._select(indices)
        view: Self = chosen.view.reshape(tuple(chosen.shape))
        if not chosen.tensors:
            return view
        axes = [axis for axis, _ in chosen.tensors]
        rest = [i for i in range(view.ndim) if i not in axes]
        nodes, shape = view._checked(chosen.tensors)
        first = view.permute((*axes, *rest))
        out = first._from(first._node.index(*nodes))  # (S.., rest..)
        if not _side_by_side(chosen.places):
            return out
        before = sum(i < axes[0] for i in rest)
        order = (*range(len(shape), len(shape) + before), *range(len(shape)))
        return out.permute((*order, *range(len(shape) + before, out.ndim)))

    def _select(self, indices: Any) -> _Selection:
        given = self._expanded(indices)
        chosen = _Selection(self)
        axis = 0
        for place, item in enumerate(given):
            if item is None:
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
        """One item an axis, and None for new ones: `...` filled in, lists and masks as tensors."""
        items: list[Any] = []
        for item in indices if isinstance(indices, tuple) else (indices,):
            items.extend(self._as_index(item))
        dots = [i for i, item in enumerate(items) if item is Ellipsis]
        used = sum(item is not None and item is not Ellipsis for item in items)
        if len(dots) > 1 or used > self.ndim:
            raise IndexCheckError(
                f"index: {used} indices and {len(dots)} '...' for shape {self.shape}; "
                f"legal are {self.ndim} indices and one '...'"
            )
        missing = [slice(None)] * (self.ndim - used)
        at = dots[0] if dots else len(items)
        return items[:at] + missing + items[at + 1 :]

    def _as_index(self, item: Any) -> list[Any]:
        if item is None or item is Ellipsis or isinstance(item, (slice, UOp)):
            return [item]
        if isinstance(item, bool):
            item = self._tensor(item).reshape(())
        elif isinstance(item, int):
            return [item]
        elif isinstance(item, (list, tuple, HasArray)) and not isinstance(item, Indexing):
            item = self._tensor(item if not isinstance(item, (list, tuple)) else _plain(item))
            if item.numel() == 0:
                item = item.cast(dtypes.int32)
        if not isinstance(item, Indexing):
            raise ArgumentError(
                f"index: {item!r} of type {type(item).__name__}; legal are numbers, slices, None, "
                "..., tensors, lists of numbers, masks"
            )
        if item.dtype is dtypes.bool:
            where = item.nonzero()  # (hits, axes)
            return [where._cut(1, i, i + 1).reshape(-1) for i in range(item.ndim)]
        if not dtypes.is_int(item.dtype):
            raise DTypeError(f"index: a tensor of {item.dtype!r}; legal are ints and bools")
        return [item]

    def _checked(self, tensors: list[tuple[int, Any]]) -> tuple[list[UOp], tuple[Any, ...]]:
        """The index nodes of one shape: negatives counted from the end, bounds CHECKed."""
        shape = broadcast_shape("index", *(t.shape for _, t in tensors))
        nodes = [legal_index(t._broadcast_to(shape)._node, self.shape[a], a) for a, t in tensors]
        return nodes, shape

    def nonzero(self) -> Self:
        """The positions of all elements that are not zero, (how many, axes). Reads the tensor.

        >>> Tensor([0, 5, 6]).nonzero().tolist()
        [[1], [2]]
        """
        import numpy as np

        found = np.argwhere(read(self.bool()._node)).astype(np.int32)
        return self._tensor(found)

    def masked_select(self, mask: Any) -> Self:
        """The elements where `mask` is true, flat. Reads the mask.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        """
        x, chosen = self._meet("masked_select", mask, dtype=dtypes.void)
        return x[chosen.bool()]

    # ---- writing ---------------------------------------------------------------------------------

    def __setitem__(self, indices: Any, value: Any) -> None:
        """`t[...] = value`: what it names holds `value`, broadcast and cast; see `t[...]`.

        What is stored is overwritten in place and views of it see that. A tensor that needs a
        gradient, or that has no storage of its own, becomes an expression instead.
        """
        if isinstance(indices, Indexing) and indices.dtype is dtypes.bool:
            mask = indices.reshape(indices.shape + (1,) * (self.ndim - indices.ndim))
            if isinstance(value, (bool, int, float)) or getattr(value, "ndim", 1) == 0:
                self._write(mask.where(value, self).cast(self.dtype))
                return
        if not self._functional():
            self._store()
        chosen = self._select(indices)
        given = self._tensor(value).cast(self.dtype)
        if chosen.tensors:
            self._write(self._scattered(chosen, given))
            return
        while given.ndim > len(chosen.shape) and given.shape[0] == 1:
            given = given.squeeze(0)
        part = given._broadcast_to_view("setitem", tuple(chosen.shape)).reshape(chosen.view.shape)
        if not self._functional() and _writable(chosen.view._node):
            chosen.view._overwrite(part._node)
        elif chosen.view is self:
            self._write(part)
        else:
            ones = part.ones_like(dtype=dtypes.bool)
            here = self._from(_undone(chosen.view._node, self._node, ones._node))
            spread = self._from(_undone(chosen.view._node, self._node, part._node), part)
            self._write(here.where(spread, self))

    def _broadcast_to_view(self, operation: str, shape: tuple[Any, ...]) -> Self:
        behind = shape[len(shape) - self.ndim :] if self.ndim else ()
        if self.ndim > len(shape) or any(
            n not in (1, m) for n, m in zip(self.shape, behind, strict=True)
        ):
            raise ShapeError(
                f"{operation}: a value of shape {self.shape} into a part of shape {shape}; "
                "legal are shapes that broadcast to it"
            )
        return self._broadcast_to(shape)

    def _scattered(self, chosen: _Selection, value: Self) -> Self:
        """This with `value` written where the tensors say."""
        if chosen.view is not self and chosen.view._node is not self._node:
            raise ArgumentError(
                "setitem: tensors together with slices or numbers; legal are tensors alone, "
                "followed by whole axes"
            )
        view = self.reshape(tuple(chosen.shape))
        axes = [axis for axis, _ in chosen.tensors]
        rest = [i for i in range(view.ndim) if i not in axes]
        nodes, shape = view._checked(chosen.tensors)
        order = (*axes, *rest)
        first = view.permute(order)
        goal = shape + first.shape[len(axes) :]
        if axes[0] and _side_by_side(chosen.places):  # value: (before.., S.., after..)
            before = axes[0]
            lined = goal[len(shape) : len(shape) + before] + shape + goal[len(shape) + before :]
            moved = value._broadcast_to_view("setitem", lined)
            turn = (*range(before, before + len(shape)), *range(before))
            value = moved.permute((*turn, *range(before + len(shape), len(lined))))
        updates = value._broadcast_to_view("setitem", goal)
        node = UOp(Ops.SCATTER, self.dtype, (first._node, updates._node, *nodes), ("set",))
        return first._from(node, value).permute(argsort(order)).reshape(self.shape)

    def _functional(self) -> bool:
        """Whether a write must make a new expression, for gradients to follow."""
        return self.requires_grad is True

    def _store(self) -> None:
        """Sees to it that this has storage to write into."""
        node = self._node
        if node.base.op not in (Ops.BUFFER, Ops.ASSIGN):
            realize(node)
        if not _writable(self._node):
            copy = self._node.contiguous()
            realize(copy)
            self.hold(latest(copy))
        base = self._node.base
        if base.op is Ops.BUFFER and is_shared(base, self._family):
            self._unshare(base)

    def _unshare(self, base: UOp) -> None:
        """A buffer of its own for this and the views made of it."""
        own = own_copy(base)
        for holder in holders:
            if isinstance(holder, Core) and holder._family is self._family:
                node = holder._node
                if node.base is base:
                    holder.hold(node.viewed(own), holder._taped)
        join(own, self._family)

    def _write(self, value: Self) -> None:
        """Makes `value` (of this shape and dtype) the value of this."""
        if self._functional():
            self.hold(value._node, taped=True)
            return
        self._store()
        self._overwrite(value._node)

    def _overwrite(self, value: UOp) -> None:
        """The next version of the buffer that this is a view of."""
        target = self._node
        changed = target.assign(value)
        supersede(target.base, changed.base)
        self._uop = changed

    # ---- by index tensors ------------------------------------------------------------------------

    def _full_index(self, operation: str, dim: int, index: Self) -> tuple[int, list[UOp]]:
        """Index nodes for all axes: `index` on axis `dim`, a counter on each other one."""
        axis = axis_of(dim, self.ndim, operation)
        if index.ndim != self.ndim:
            raise ShapeError(f"{operation}: index of {index.shape} for {self.shape}: as many axes")
        over = [i for i in range(self.ndim) if i != axis and index.shape[i] > self.shape[i]]
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

    def gather(self, dim: int, index: Self) -> Self:
        """out[i][j] = self[index[i][j]][j] for dim 0, and so on; the shape is that of `index`.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0], [1]])).tolist()
        [[1], [4]]
        """
        if index.numel() == 0:
            return self.zeros(index.shape, dtype=self.dtype, device=self.device)
        _, nodes = self._full_index("gather", dim, index)
        return self._from(self._node.index(*nodes), index)

    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """A copy with self[index[i][j]][j] = src[i][j] for dim 0, and so on; of several updates
        of one element the last counts. `reduce` "add" or "multiply" combines instead.

        >>> Tensor([0, 0, 0]).scatter(0, Tensor([1]), Tensor([5])).tolist()
        [0, 5, 0]
        """
        if reduce not in (None, "add", "multiply"):
            raise ArgumentError(f"scatter: reduce {reduce!r}; legal are None, add, multiply")
        return self._scatter("scatter", dim, index, src, MONOID_OF.get(str(reduce), "set"))

    def _scatter(self, operation: str, dim: int, index: Self, src: Any, how: str) -> Self:
        if isinstance(src, (bool, int, float)):
            src = self._wrap(self._constant(src, shape=index.shape))
        if src.dtype is not self.dtype:
            raise DTypeError(f"{operation}: src is {src.dtype!r}; legal is {self.dtype!r}")
        if src.ndim != index.ndim or any(
            n > m for n, m in zip(index.shape, src.shape, strict=True)
        ):
            raise ShapeError(f"{operation}: src of {src.shape} doesn't cover index {index.shape}")
        if index.numel() == 0:
            return self
        _, nodes = self._full_index(operation, dim, index)
        updates = src.shrink(tuple((0, n) for n in index.shape))
        node = UOp(Ops.SCATTER, self.dtype, (self._node, updates._node, *nodes), (how,))
        return self._from(node, updates)

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """A copy with updates combined by `reduce`: "sum", "prod", "mean", "amax" or "amin".
        Without `include_self` the old value of an element that is updated doesn't count.

        >>> Tensor([1, 1]).scatter_reduce(0, Tensor([0, 0]), Tensor([5, 6]), "sum").tolist()
        [12, 1]
        """
        if reduce not in ("sum", "prod", "mean", "amax", "amin"):
            raise ArgumentError(
                f"scatter_reduce: {reduce!r}; legal are sum, prod, mean, amax and amin"
            )
        if reduce == "amin":
            turned = self._opposite().scatter_reduce(
                dim, index, src._opposite(), "amax", include_self
            )
            return turned._opposite()
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
            num_classes = int(self.max()) + 1
        return self._one_hot_along(self.ndim, num_classes).where(1, 0)

    def _one_hot_along(self, axis: int, size: int) -> Self:
        """Whether each number is the position along a new axis."""
        x = self.unsqueeze(axis)
        return x.eq(x._along(axis, self._counting(size, self.device, self.dtype)))

    def __int__(self) -> int:
        return int(self._only_item())

    def _only_item(self) -> Any:

        if self.numel() != 1:
            raise ShapeError(f"item: a tensor of {self.shape}; legal is one element")
        return read(self._node).reshape(-1)[0].item()


def legal_index(node: UOp, size: Any, axis: int) -> UOp:
    """A CHECK that all numbers lie on the axis; negative ones are counted from its end. One that
    doesn't becomes 0, so that no memory outside is touched until the error is told."""
    kind = node.dtype
    if size == 0 and 0 not in node.shape:
        raise IndexCheckError(f"index: axis {axis} has no elements to take")
    if kind.itemsize < 4 or dtypes.is_unsigned(kind):  # a type that holds -size and size
        node = node.cast(dtypes.int64 if kind.itemsize >= 4 else dtypes.int32)
    low, high = node.vmin, node.vmax
    limit, legal = size, f"{-size} to {size - 1}" if isinstance(size, int) else "those on it"
    if isinstance(size, UOp):
        limit = (size.cast(node.dtype) + UOp.const(node.dtype, 0, node.device)).broadcast_to(
            node.shape
        )
    if not (isinstance(size, int) and -size <= low and high < size):
        ok = (node < limit) & (node >= -limit)
        message = f"index {{0}} is out of range on axis {axis}; legal are {legal}"
        node = ok.where(node.check(ok, "index", message), node.const_like(0))
    return (node < 0).where(node + limit, node) if low < 0 else node


def _sliced(x: Any, axis: int, part: slice) -> Any:
    """One axis cut by a slice of numbers; a negative step flips first."""
    size = x.shape[axis]
    if part.step == 0:
        raise ArgumentError(f"index: {part} has step 0; legal is any other")
    if part == slice(None):
        return x
    if any(isinstance(v, UOp) for v in (size, part.start, part.stop)):
        return _sliced_by_sizes(x, axis, part)
    begin, end, step = part.indices(size)
    count = len(range(begin, end, step))
    if step < 0:
        x, begin, step = x.flip(axis), size - 1 - begin, -step
    last = begin + (count - 1) * step + 1 if count else begin
    return x._cut(axis, begin, last)._strided(axis, step)


def _sliced_by_sizes(x: Any, axis: int, part: slice) -> Any:
    """One axis cut where sizes are symbolic: they are taken to lie within it."""
    if part.step not in (None, 1):
        raise ArgumentError(f"index: step {part.step} of a symbolic axis; legal is 1")
    size = x.shape[axis]
    whole = slice(0 if part.start is None else part.start, size if part.stop is None else part.stop)
    begin, end = (
        size + v if isinstance(v, int) and v < 0 else v for v in (whole.start, whole.stop)
    )
    return x._cut(axis, begin, end)


def _position(item: Any, size: Any, axis: int, shape: tuple[Any, ...]) -> Any:
    if isinstance(item, UOp) or isinstance(size, UOp):
        return size + item if isinstance(item, int) and item < 0 else item
    if not -size <= item < size:
        legal = f"legal are {-size} to {size - 1}" if size else "it has no elements"
        raise IndexCheckError(f"index: {item} on axis {axis} of shape {shape}; {legal}")
    return item % size


def _side_by_side(places: list[int]) -> bool:
    return places[-1] - places[0] == len(places) - 1


def _plain(item: Any) -> Any:
    """Lists with single-element tensors in them as lists of numbers."""
    if isinstance(item, (list, tuple)):
        return [_plain(each) for each in item]
    return int(item) if isinstance(item, Indexing) else item


def _writable(node: UOp) -> bool:
    """Whether each element of this view is one of a buffer's, and no two are the same."""
    while node.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP):
        node = node.src[0]
    return node.op in (Ops.BUFFER, Ops.ASSIGN)


def _undone(view: UOp, base: UOp, value: UOp) -> UOp:
    """`value` (of the view's shape) where it stands in `base`, zeros elsewhere."""
    steps = []
    while view is not base:
        steps.append(view)
        view = view.src[0]
    for step in steps:
        below = step.src[0].shape
        if step.op is Ops.RESHAPE:
            value = value.reshape(below)
        elif step.op is Ops.SHRINK:
            box = zip(step.sizes, below, strict=True)
            value = value.pad(tuple((begin, n - end) for (begin, end), n in box))
        elif step.op is Ops.FLIP:
            value = value.flip(step.arg)
        else:
            value = _unstrided(step, value, below)
    return value


def _unstrided(step: UOp, value: UOp, below: tuple[Any, ...]) -> UOp:
    """The adjoint of windows of one tap: zeros between."""
    assert step.op is Ops.WINDOW and prod(w[1] for w in step.arg) == 1, step.op
    for axis, _, stride, *_ in step.arg:
        *shape, _ = value.shape
        n = shape[axis]
        apart = value.reshape((*shape[: axis + 1], 1, *shape[axis + 1 :]))
        pads = tuple((0, stride - 1) if i == axis + 1 else (0, 0) for i in range(apart.ndim))
        merged = apart.pad(pads).reshape((*shape[:axis], n * stride, *shape[axis + 1 :]))
        over = below[axis] - n * stride
        value = (
            merged.pad(tuple((0, over) if i == axis else (0, 0) for i in range(merged.ndim)))
            if over > 0
            else merged.shrink(
                tuple((0, below[axis]) if i == axis else (0, m) for i, m in enumerate(merged.shape))
            )
        )
    return value
