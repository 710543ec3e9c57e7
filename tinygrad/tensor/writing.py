"""Writing: `t[...] = value`, `assign`, `+=` and the methods that end in `_`.

A write goes to what the tensor is a view of, so its whole family sees it: into storage, as the next
version of a buffer; or, where gradients follow, as an expression that takes the place of the old
one in each tensor of the family. A view whose elements repeat can't be written, as long as others
would have to see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import argsort
from tinygrad.engine.aliases import (
    bottom_of,
    on_bottom,
    repeats,
    spread,
    steps_between,
    writable_part,
)
from tinygrad.engine.holders import holders
from tinygrad.engine.realize import own_copy, realize
from tinygrad.engine.storage import Family, copies_of, is_shared, join, note_change, supersede
from tinygrad.tensor.autograd import Autograd
from tinygrad.tensor.core import Core, is_detached, root_of
from tinygrad.tensor.indexing import side_by_side
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

STORED = (Ops.BUFFER, Ops.ASSIGN)


def in_place(operation: str) -> Callable[..., Any]:
    """The method that writes what `operation` gives into the tensor itself."""

    def method(self: Writing, *args: Any, **kwargs: Any) -> Writing:
        return self._in_place(operation, getattr(self, operation)(*args, **kwargs))

    method.__name__ = f"{operation}_"
    method.__doc__ = f"`{operation}` in place: this holds its result, and so do views of this."
    return method


class Writing(Autograd):
    """Changes of value."""

    __slots__ = ()

    # ---- what a user calls -----------------------------------------------------------------------

    def __setitem__(self, indices: Any, value: Any) -> None:
        """`t[...] = value`: what it names holds `value`, broadcast and cast; see `t[...]`.

        Views of the same tensor see it, and gradients pass. With a mask alone, `value` is
        broadcast, or has one element for each that is true; RuntimeCheckError at the next read
        if it has others.
        """
        given: Any = self._given("setitem", value)
        if self._is_mask(indices):
            self._put(self, self._masked(self._tensor(indices), given))
            return
        chosen = self._select(indices)
        view: Self = chosen.view.reshape(tuple(chosen.shape))
        if chosen.tensors:
            written: Self = view._scattered(chosen.tensors, chosen.places, given)
            self._put(view, written)
        elif given._family is not self._family or given._node is not view._node:  # t[i] += v
            self._put(view, given._broadcast_to_view("setitem", view.shape))

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
        if given.requires_grad is True:
            raise ArgumentError("assign: the value needs a gradient; use .detach() first")
        value = self._given("assign", given)._broadcast_to_view("assign", self.shape)
        if value._node is not self._node:
            self._overwrite(self, value)
        return self

    def copy_(self, x: Any) -> Self:
        """Writes `x`, broadcast and cast, in place.

        >>> Tensor([1, 2]).copy_(Tensor([3.7])).tolist()
        [3, 3]
        """
        return self._in_place("copy_", self._given("copy_", x))

    def fill_(self, value: Any) -> Self:
        """All elements are `value`.

        >>> Tensor([1, 2]).fill_(7).tolist()
        [7, 7]
        """
        return self.copy_(value)

    def zero_(self) -> Self:
        """All elements are 0.

        >>> Tensor([1, 2]).zero_().tolist()
        [0, 0]
        """
        return self.fill_(0)

    add_, sub_, mul_, div_ = map(in_place, ("add", "sub", "mul", "div"))
    pow_, maximum_, minimum_, lerp_ = map(in_place, ("pow", "maximum", "minimum", "lerp"))
    clamp_, clip_, neg_, abs_ = map(in_place, ("clamp", "clip", "neg", "abs"))
    exp_, log_, sqrt_, rsqrt_ = map(in_place, ("exp", "log", "sqrt", "rsqrt"))
    square_, reciprocal_, floor_, ceil_ = map(in_place, ("square", "reciprocal", "floor", "ceil"))
    round_, trunc_, sign_, sigmoid_ = map(in_place, ("round", "trunc", "sign", "sigmoid"))
    tanh_, relu_, masked_fill_ = map(in_place, ("tanh", "relu", "masked_fill"))
    scatter_, scatter_reduce_ = map(in_place, ("scatter", "scatter_reduce"))
    tril_, triu_, logical_not_ = map(in_place, ("tril", "triu", "logical_not"))

    __iadd__, __isub__, __imul__ = map(in_place, ("__add__", "__sub__", "__mul__"))
    __itruediv__, __ifloordiv__ = map(in_place, ("__truediv__", "__floordiv__"))
    __imod__, __ipow__, __imatmul__ = map(in_place, ("__mod__", "__pow__", "__matmul__"))
    __iand__, __ior__, __ixor__ = map(in_place, ("__and__", "__or__", "__xor__"))
    __ilshift__, __irshift__ = map(in_place, ("__lshift__", "__rshift__"))

    # ---- values ----------------------------------------------------------------------------------

    def _given(self, operation: str, value: Any) -> Self:
        """What is to be written, as a tensor of this dtype."""
        given = self._tensor(value, self.dtype)
        if given.device != self.device:
            raise ArgumentError(
                f"{operation}: from {given.device} to {self.device}; use .to() first"
            )
        return given.cast(self.dtype)

    def _in_place(self, operation: str, result: Self) -> Self:
        if not isinstance(result, Writing):
            raise DTypeError(f"{operation}: {type(result).__name__} is no tensor to write")
        name = operation.strip("_")
        if dtypes.is_float(result.dtype) and not dtypes.is_float(self.dtype) and name != "copy":
            raise DTypeError(
                f"{name} in place: the result is {result.dtype!r}, this {self.dtype!r}, which "
                "would cut off fractions; legal is a float, or an expression instead"
            )
        value = result.cast(self.dtype)
        if value.shape != self.shape and name != "copy":
            raise ShapeError(
                f"{name} in place: the result has {value.shape}, this {self.shape}; "
                "legal is this shape"
            )
        self._put(self, value._broadcast_to_view(name, self.shape))
        return self

    def _broadcast_to_view(self, operation: str, shape: tuple[Any, ...]) -> Self:
        given = self
        while given.ndim > len(shape) and given.shape[0] == 1:
            given = given.squeeze(0)
        behind = shape[len(shape) - given.ndim :] if given.ndim else ()
        if given.ndim > len(shape) or any(
            n not in (1, m) for n, m in zip(given.shape, behind, strict=True)
        ):
            raise ShapeError(
                f"{operation}: a value of shape {self.shape} into a part of shape {shape}; "
                "legal are shapes that broadcast to it"
            )
        return given._broadcast_to(shape)

    def _is_mask(self, indices: Any) -> bool:
        """Whether a single mask is all there is: then nothing needs to be read."""
        if isinstance(indices, (tuple, list)) or not hasattr(indices, "dtype"):
            return False
        mask = self._tensor(indices)
        over = self.shape[: mask.ndim]
        return mask.dtype is dtypes.bool and mask.ndim > 0 and mask.shape == over

    def _masked(self, mask: Self, value: Self) -> Self:
        """This with `value` where `mask` is true."""
        rest = self.shape[mask.ndim :]
        whole = mask.reshape(mask.shape + (1,) * len(rest))
        if value.ndim <= len(rest) or value.shape[0] == 1:  # one for all
            if value.ndim > len(rest):
                value = value.squeeze(0)
            return whole.where(value._broadcast_to_view("setitem", rest), self)
        count = value.shape[0]
        values = value._broadcast_to_view("setitem", (count, *rest))
        ones = mask.reshape(-1).cast(dtypes.int32)._node
        hits = ones.reduce_axis("add", (0,))
        message = f"setitem: {count} values for a mask of {{0}} true elements; legal are as many"
        told = hits.check(hits.eq(count), "shape", message)
        legal = ones.cast(dtypes.bool) & told.eq(count).expand(ones.shape)
        at = legal.where(ones.running("add", 0) - 1, ones.const_like(0))
        if not count:
            values = self._wrap(self._constant(0, shape=(1, *rest)))
        picked = values._from(values._node.index(at)).reshape(mask.shape + rest)
        wanted = self._wrap(legal).reshape(whole.shape)
        return wanted.where(picked, self)

    def _scattered(self, tensors: list[tuple[int, Any]], places: list[int], value: Self) -> Self:
        """This with `value` written where the tensors say."""
        axes = [axis for axis, _ in tensors]
        rest = [i for i in range(self.ndim) if i not in axes]
        nodes, shape = self._checked(tensors)
        order = (*axes, *rest)
        first = self.permute(order)
        goal = shape + first.shape[len(axes) :]
        if axes[0] and side_by_side(places):  # value: (before.., S.., after..)
            before = sum(i < axes[0] for i in rest)
            lined = goal[len(shape) : len(shape) + before] + shape + goal[len(shape) + before :]
            moved = value._broadcast_to_view("setitem", lined)
            turn = (*range(before, before + len(shape)), *range(before))
            value = moved.permute((*turn, *range(before + len(shape), len(lined))))
        updates = value._broadcast_to_view("setitem", goal)
        if 0 in goal:
            return self
        node = UOp(Ops.SCATTER, self.dtype, (first._node, updates._node, *nodes), ("set",))
        return first._from(node, value).permute(argsort(order))

    # ---- where it goes ---------------------------------------------------------------------------

    def _put(self, view: Self, value: Self) -> None:
        """Makes `value` the value of `view`, a view of this: as an expression where gradients
        follow, else in storage."""
        if 0 in view.shape:
            return
        follow = value.requires_grad is True or self.requires_grad is True
        if Core._recording and (follow or self._family.recorded):
            self._rewrite(view, value)
        else:
            self._overwrite(view, value)

    def _rewrite(self, view: Self, value: Self) -> None:
        members = self._members()
        if any(m.requires_grad is True and not m._taped for m in members):
            raise ArgumentError(
                "in place: this needs a gradient and was made from nothing, so that writing would "
                "cut it off from its gradient; legal are a copy of it, or with Tensor.no_grad()"
            )
        bottom = self._bottom
        self._check_single(view, members)
        new = value._node
        if view._node.reshape(bottom.shape) is not bottom:
            ones = UOp.const(dtypes.bool, True, self.device).broadcast_to(view.shape)
            here = spread(view._node, bottom, ones)
            new = here.where(spread(view._node, bottom, new), bottom)
        elif bottom_of(new).op in STORED:  # that is someone else's
            new = new.contiguous()
        new = new.reshape(bottom.shape)
        for member in members:
            node = member._node
            member._uop = on_bottom(node, member._bottom, new)
            if not is_detached(node):
                member.requires_grad = member._taped = True
        self._family.recorded = True
        self._family.root = root_of(new)
        note_change()

    def _overwrite(self, view: Self, value: Self) -> None:
        members = self._members()
        for member in members:
            member._taped = False
        if view is self and len(members) == 1 and self._bottom.op not in STORED:
            self.hold(value._node)
            self._family.root = root_of(self._uop)
            join(bottom_of(self._uop), self._family)
            return
        self._check_single(view, members)
        view._store()
        target = writable_part(view._node)
        assert target.base is view._bottom, "a family has one bottom"
        for step in steps_between(target, target.base):
            step.known = None  # where a part was computed alone is no place to write to
        changed = target.assign(value._node)
        supersede(target.base, changed.base)
        if not is_detached(view._node):
            view._uop = changed

    def _check_single(self, view: Self, members: list[Self]) -> None:
        """Sees to it that no two elements of `view` are one in memory."""
        if not repeats(view._node, view._bottom):
            return
        if any(member is not view for member in members):
            raise ArgumentError(
                f"in place: a view of shape {view.shape} in which elements repeat; legal is a copy "
                "of it: .contiguous()"
            )
        view._family = Family()
        view.hold(view._node.contiguous(), view._taped)

    def _store(self) -> None:
        """Sees to it that the family has storage of its own to write into."""
        bottom = self._bottom
        if bottom.op not in STORED and self._family.root is None:
            realize(bottom)
            bottom = self._bottom
        if bottom.op not in STORED:  # a constant, or a copy yet to be made
            copy = bottom.contiguous()
            self._rebase(bottom, copy)
            realize(copy)
            bottom = self._bottom
        if copies_of(bottom):
            for holder in holders:
                holder.copy_out(bottom)
        if is_shared(bottom, self._family):
            realize(bottom)
            self._unshare(self._bottom)

    def _unshare(self, base: UOp) -> None:
        """A buffer of its own for this and the views made of it."""
        own = own_copy(base)
        self._rebase(base, own)
        join(own, self._family)
