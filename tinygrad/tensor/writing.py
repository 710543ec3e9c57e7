"""Writing: `t[...] = value`, `assign`, and what `+=` and the methods that end in `_` are made of
(`tensor/long_tail/in_place` is their table).

A write goes to what the tensor is a view of, so its whole family sees it: into storage, as the next
version of a buffer; or, where gradients follow, as an expression that takes the place of the old
one in each tensor of the family. A view whose elements repeat can't be written, as long as others
would have to see it.

This file decides where a write goes; nothing is computed here but on devices that run no kernels.
Read `_put` first, where the two ways part; then `_rewrite` (as an expression), `_overwrite` and
`_write_to_storage` (in storage), `_store` (storage of its own for the family). The methods that
begin with `_takes` and `_promises` are short ways for what a training step does each time: they
make no graph, and give up (False) wherever more would have to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tinygrad.backends import keeps
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import argsort
from tinygrad.engine.aliases import bottom_of, on_bottom, writable_part, written
from tinygrad.engine.chains import follow
from tinygrad.engine.faults import noted, spoilt
from tinygrad.engine.holders import Promised
from tinygrad.engine.keeping import moved, workplace, write
from tinygrad.engine.realize import capturing, is_needed, is_open, open_inputs, own_copy, realize
from tinygrad.engine.storage import (
    Buffer,
    buffer_of,
    copies_of,
    is_read,
    is_shared,
    join,
    note_change,
    noting,
    numpy_dtype,
    past_at,
    supersede,
)
from tinygrad.engine.turns import keeping, turns
from tinygrad.schedule.bases import beneath
from tinygrad.schedule.strides import repeats, steps_between
from tinygrad.tensor.again import again, compute, waiting_for
from tinygrad.tensor.autograd import Autograd
from tinygrad.tensor.core import Core
from tinygrad.tensor.creation import node_of
from tinygrad.tensor.indexing import side_by_side
from tinygrad.tensor.modes import recording
from tinygrad.tensor.promise import Promise, Written
from tinygrad.tensor.roots import (
    STORED,
    computed_part,
    copied_part,
    has_no_sources,
    is_detached,
    root_of,
    tape_end,
)
from tinygrad.tensor.shapes import check_number
from tinygrad.tensor.sources import numbers_of, source_of, store_before_write
from tinygrad.tensor.version import Version
from tinygrad.uop import GroupOp, Ops, UOp

LARGEST_AT_ONCE = 1 << 10  # bytes of what a number is written to without a graph


def _by_tensors(indices: Any) -> bool:
    """Whether an array, a list or a tensor is among the indices."""
    parts = indices if isinstance(indices, tuple) else (indices,)
    return any(isinstance(part, list) or hasattr(part, "dtype") for part in parts)


def _repeated(view: Core) -> ArgumentError:
    return ArgumentError(
        f"in place: a view of shape {view.shape} in which elements repeat; legal is a copy of it: "
        ".contiguous()"
    )


def _is_silent(view: Core) -> bool:
    """Whether a write to it is none that gradients know of: they go on as if nothing was written,
    while values are the new ones. So are those to what was made from nothing, a start."""
    return not recording.on or is_detached(view._value)


def _passes(member: Any) -> bool:
    """Whether gradients go on through the expression that a tensor holds. One that says nothing
    about gradients holds it until it is computed."""
    if member._taped or member.requires_grad is not None:
        return bool(member._taped and member.requires_grad)
    value = member._value
    end = tape_end(value, member._bottom)
    return dtypes.is_float(end.dtype) and not is_detached(value) and _has_past(end)


def _says_nothing(tensor: Any) -> bool:
    """Whether a gradient by it is only known of its graph."""
    return tensor.requires_grad is None and dtypes.is_float(tensor.dtype)


def _has_past(end: UOp) -> bool:
    """Whether a value was made of others that gradients go on to, in the graph."""
    while end.op is Ops.ASSIGN:
        target, new = end.src
        if not is_detached(new) and new.base.op is not Ops.CONST:
            return True
        end = beneath(target, GroupOp.Movement)  # of what isn't overwritten
        while end.op is Ops.DETACH and len(end.src) == 1:
            end = beneath(end.src[0], GroupOp.Movement)
    return end.op is Ops.DETACH or (end.op is not Ops.BUFFER and not has_no_sources(end))


def _has_leaf(family: list[Any]) -> bool:
    """Whether one wants a gradient and was made from nothing: its value is a start, no result."""
    return any(member.requires_grad is True and not member._taped for member in family)


def _is_lone(tensor: Core) -> bool:
    """Whether this is only promised, is no view, and has no views any more."""
    it, kin = tensor._source, tensor._kin
    if type(it) is not Promise or it.stored is not it or it.is_computed:
        return False
    was_seen = kin is not None and (kin.recorded or kin.root is not None)
    return not was_seen and not tensor.has_views


def _is_all(place: Version, *ops: Ops) -> bool:
    """Whether this is all of some storage, its elements in order, below a reshape, or `ops`."""
    base = beneath(place.view, (Ops.RESHAPE, *ops))
    return base is place.base and base.op is Ops.BUFFER


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
        if type(value) is float and dtypes.is_float(self.dtype) and not keeps(self.device):
            given = self._value_for_write("setitem", 1) * value  # another one may be next
        if keeps(self.device) and _by_tensors(indices):
            raise ArgumentError(
                f"setitem: on {self.device} by a tensor or a mask; legal are numbers and slices"
            )
        with turns.together(), keeping.now:  # or another thread's write would be lost
            if self._is_mask(indices):
                self._put(self, self._masked(self._tensor(indices), given))
                return
            chosen = self._select(indices)
            view: Self = chosen.view.reshape(tuple(chosen.shape))
            if chosen.tensors:
                self._put(view, view._scattered(chosen.tensors, chosen.places, given))
            elif given._family is not self._family or given._value is not view._value:  # t[i] += v
                self._put(view, given._broadcast_to_view("setitem", view.shape))

    def assign(self, x: Any) -> Self:
        """Writes `x` (of this shape, or broadcast to it, and this dtype) in place.

        Views of the same storage see it; expressions built before keep the old value. Gradients
        pass by PyTorch's rules, but a tensor that was made from nothing, or a part of it, may be
        written: it goes on from the new value, as if under `no_grad`.

        >>> t = Tensor([1, 2]).realize()
        >>> t.assign(Tensor([3, 4])).tolist()
        [3, 4]
        """
        store_before_write(self)
        if type(x) in (int, float):
            check_number("assign", x, self.dtype)
            if self._takes_at_once(x):
                return self
        if type(x) is type(self) and self._takes_its_promise(x):
            return self
        given = self._value_for_write("assign", x)
        if given.dtype is not self.dtype:
            raise DTypeError(
                f"assign: {given.dtype!r} to a tensor of {self.dtype!r}; use .cast({self.dtype!r})"
            )
        wants = self.requires_grad, given.requires_grad
        asks_none = True not in wants and (False in wants or not dtypes.is_float(self.dtype))
        if asks_none and given.shape == self.shape and given.device == self.device:
            numbers = numbers_of(given)
            if numbers is not None and self._takes_at_once(numbers):
                return self
        value = self._here("assign", given)
        with turns.together(), keeping.now:
            passes = self._is_recorded and not _has_leaf(self._members())
            if given.requires_grad is True and not passes and recording.on:
                raise ArgumentError("assign: the value needs a gradient; use .detach() first")
            if not passes and self._promises_write(value):
                return self
            if value.shape != self.shape:
                value = value._broadcast_to_view("assign", self.shape)
            if value._value is not self._value:
                (self._put if passes else self._overwrite)(self, value)
        return self

    def copy_(self, x: Any) -> Self:
        """Writes `x`, broadcast and cast, in place.

        >>> Tensor([1, 2]).copy_(Tensor([3.7])).tolist()
        [3, 3]
        """
        alike = type(x) is type(self) and x.dtype is self.dtype and x.device == self.device
        if alike and type(x._source) is Promise:  # so that a plain step asks for nothing else
            with turns.together(), keeping.now:
                if self._takes_promise(x):
                    return self
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

    # ---- values ----------------------------------------------------------------------------------

    def _given(self, operation: str, value: Any) -> Self:
        """What is to be written, as a tensor of this dtype."""
        return self._here(operation, self._value_for_write(operation, value)).cast(self.dtype)

    def _here(self, operation: str, value: Self) -> Self:
        """The value; ArgumentError if it is on another device, from which kernels can't write."""
        if value.device != self.device and not keeps(self.device):
            raise ArgumentError(
                f"{operation}: from {value.device} to {self.device}; use .to() first"
            )
        return value

    def _value_for_write(self, operation: str, value: Any) -> Self:
        """`value` as a tensor that can be computed with. A write to a device that only keeps bytes
        is done at once, from anywhere."""
        check_number(operation, value, self.dtype)
        if not keeps(self.device):
            try:
                made = self._tensor(value, self.dtype)
            except DTypeError as error:
                error.called = operation
                raise
            if made is not value:
                made.requires_grad = False  # nobody has it to ask for its gradient
            return made
        place = workplace(self.device)
        if not isinstance(value, Writing):
            return self._wrap(node_of(value, self.dtype, place))
        return self._wrap(moved(value._held, place)) if keeps(value.device) else value  # type: ignore[return-value]

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
        with turns.together(), keeping.now:
            passes = recording.on and self._is_recorded
            if not self._takes_promise(value) and (passes or not self._promises_write(value)):
                self._put(self, value._broadcast_to_view(name, self.shape))
        return self

    def _takes_promise(self, value: Self) -> bool:
        """Whether this is what is promised of `value` from now on: no view and no storage shows
        what it was, so there is nothing to write, and a plain step stays short."""
        flags = [(t.requires_grad, t._taped, t.shape) for t in (self, value)]
        takes = flags[0] == flags[1] and _is_lone(self) and _is_lone(value)
        if takes:
            self._source = value._source
            note_change(self)
        return takes

    def _takes_its_promise(self, value: Self) -> bool:
        """Promises a write of `value` where this is sure to be one that gradients don't follow: so
        that a plain step asks for nothing else."""
        kin, promise = self._kin, value._source
        if (
            type(promise) is not Promise
            or promise.wants is not value.requires_grad
            or not (kin is None or not kin.recorded)
        ):
            return False
        with turns.together(), keeping.now:
            return self._promises_write(value)

    def _promises_write(self, value: Self) -> bool:
        """Whether storage that this is all of, and nobody else sees, will hold what is promised of
        `value`: which no gradient goes on from, or only where a graph is made of both."""
        if not recording.writes or self._taped or capturing() or open_inputs:
            return False
        promise, now = source_of(value), self._source  # promised again, if it was asked for a node
        if not isinstance(promise, Promise) or promise.is_computed or promise.look is None:
            return False
        mine, theirs = self._facts, promise.like
        says_nothing = promise.wants is self.requires_grad is None and recording.on
        place = now.place if isinstance(now, Written) else source_of(self)
        if (
            not isinstance(place, Version)
            or mine.dtype is not theirs.dtype
            or mine.shape != theirs.shape
            or mine.device != theirs.device
            or not (
                promise.wants is False
                or not dtypes.is_float(theirs.dtype)
                or (says_nothing and _is_all(place))  # no gradient would go on below a DETACH
            )
            or not self._is_own(place)
        ):
            return False
        if isinstance(now, Written):
            self._source = Written(promise, place, now.before, self)
        else:
            before: Any = self._source
            self._source = Written(promise, place, before, self)
            del self._uop
        Promised.holders.add_once(self)
        Promised.some = True
        note_change(self)
        return True

    def _takes_at_once(self, value: float | Buffer) -> bool:
        """Writes a number, or what the host has of all elements, at once to storage that this is
        all of, if that is small, nobody else sees it, and nothing waits for what it was: so no
        graph is made of, say, a learning rate."""
        is_given = type(value) is int or isinstance(value, Buffer)
        is_kind = dtypes.is_float(self.dtype) or (is_given and dtypes.is_int(self.dtype))
        if self.requires_grad or self._taped or not recording.writes or capturing() or not is_kind:
            return False
        with turns.together(), keeping.now:
            place = source_of(self)
            if not isinstance(place, Version) or not self._is_own(place):
                return False
            base, buffer = place.base, place.buffer
            if (
                buffer.nbytes > LARGEST_AT_ONCE
                or buffer.others
                or noted
                or spoilt
                or is_read(base)
                or waiting_for({buffer})
            ):
                return False
            if isinstance(value, Buffer):
                buffer.write(value.read())
            else:
                kind = numpy_dtype(base.dtype)
                numbers = np.full(base.arg, dtypes.as_const(value, base.dtype), kind)
                buffer.write(numbers.view(np.uint8).data)
            buffer.era += 1
            buffer.expression = buffer.past = None
        return True

    def _is_own(self, place: Version) -> bool:
        """Whether this is all of the storage, and nobody else sees that."""
        return (
            _is_all(place, Ops.DETACH)
            and not self.has_views
            and not copies_of(place.base)
            and not is_shared(place.base, self._family)
        )

    def _write_down(self, value: Self) -> None:
        """The write of a value that was promised; gradients go on to one that says nothing."""
        with recording.written_down(value.requires_grad is None), noting():  # it was noted then
            self._overwrite(self, value)

    def _compute_now(self, others: Sequence[Any] = ()) -> bool:
        if capturing() or open_inputs:
            return False
        compute([self, *[each for each in others if each is not self]])
        return True

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

    def _masked(self, mask: Self, value: Self) -> Self:
        """This, with `value` where `mask` is true."""
        rest = self.shape[mask.ndim :]
        whole = mask.reshape(mask.shape + (1,) * len(rest))
        if value.ndim <= len(rest) or value.shape[0] == 1:  # one for all
            return whole.where(value._broadcast_to_view("setitem", rest), self)
        count = value.shape[0]
        values = value._broadcast_to_view("setitem", (count, *rest))
        ones = mask.reshape(-1).cast(dtypes.int32)._held
        hits = ones.reduce_axis("add", (0,))
        message = f"setitem: {count} values for a mask of {{0}} true elements; legal are as many"
        told = hits.check(hits.eq(count), "shape", message)
        legal = ones.cast(dtypes.bool) & told.eq(count).expand(ones.shape)
        at = legal.where(ones.running("add", 0) - 1, ones.const_like(0))
        if not count:
            values = self.full((1, *rest), 0, dtype=self.dtype, device=self.device)
        picked = values._from(values._held.index(at)).reshape(mask.shape + rest)
        wanted = self._wrap(legal).reshape(whole.shape)
        return wanted.where(picked, self)

    def _scattered(self, tensors: list[tuple[int, Any]], places: list[int], value: Self) -> Self:
        """This, with `value` written at the places that the index tensors name."""
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
            return self._with_none_of(value)
        node = first._held.scatter("set", updates._held, *nodes)
        return first._from(node, value).permute(argsort(order))

    # ---- where it goes ---------------------------------------------------------------------------

    def _put(self, view: Self, value: Self) -> None:
        """Makes `value` the value of `view`, a view of this: as an expression where gradients
        follow, else in storage."""
        if 0 in view.shape and (value.requires_grad is not True or _is_silent(view)):
            return  # of a value that wants a gradient it says that this has one, too
        if not (_is_silent(view) or not (value.requires_grad is True or self._is_recorded)):
            self._rewrite(view, value)
        elif not (view is self and self._promises_write(value)) and (
            not self._writes_part_now(view, value)
        ):
            self._overwrite(view, value)

    def _writes_part_now(self, view: Self, value: Self) -> bool:
        """Writes to a part of storage at once, so that a plain step needs no graph of what it
        writes; but not where a gradient may be asked through that, or through what has to be
        computed for it, of what says nothing."""
        if (
            (recording.on and _says_nothing(value))
            or not recording.writes
            or capturing()
            or open_inputs
            or keeps(self.device)
        ):
            return False
        place = source_of(view)
        if not isinstance(place, Version) or place.base.op is not Ops.BUFFER or _is_all(place):
            return False
        base = place.base
        if copies_of(base) or is_shared(base, self._family) or repeats(view._value, base):
            return False
        if any(map(_passes, self._members())) or source_of(value) is None:
            return False
        if any(map(_says_nothing, waiting_for({base.storage}))):
            return False

        def by_graph(more: Sequence[Any]) -> None:
            self._overwrite(view, value)
            realize(self._bottom, *[each._value for each in more])

        again("part", [view, value], by_graph, writes=True)
        return True

    @property
    def _is_recorded(self) -> bool:
        """Whether gradients follow this, or another of its family."""
        return self.requires_grad is True or (self._kin is not None and self._kin.recorded)

    def _write_to_open(self, view: Self, value: Self) -> None:
        """Of what only a graph is built of: another expression, if it has no storage yet."""
        began = min(open_inputs.values())
        if self._bottom.op in STORED or any(m.serial < began for m in self._members()):
            raise ArgumentError(
                f"in place: to a tensor of shape {self.shape} in memory, of a graph that is only "
                "being built (export_onnx); legal are models that don't train, and writes to a "
                ".clone()"
            )
        self._rewrite(view, value, recorded=False)

    def _rewrite(self, view: Self, value: Self, recorded: bool = True) -> None:
        members = self._members()
        if _has_leaf(members):
            raise ArgumentError(
                "in place: this needs a gradient and was made from nothing, so that writing would "
                "cut it off from its gradient; legal are a copy of it, or with Tensor.no_grad()"
            )
        bottom = tape_end(self._value, self._bottom)
        self._check_single(view, members)
        new = value._held
        if view._value.reshape(bottom.shape) is not bottom:
            none = all(member.requires_grad is False for member in members)
            kept = bottom.detach() if none and not has_no_sources(bottom) else bottom
            new = written(on_bottom(view._value, bottom, kept), kept, new)
        elif bottom_of(new).op in STORED or is_detached(new):  # that is someone else's
            new = new.contiguous()
        new = _laid_out(new).reshape(bottom.shape)
        self._family.recorded = self._family.recorded or recorded
        facts: list[tuple[Any, str, Any]] = []
        for member in members:
            node = member._value
            facts.append((member, "_uop", on_bottom(node, tape_end(node, member._bottom), new)))
            if not is_detached(node) and recorded:
                facts += [(member, "requires_grad", True), (member, "_taped", True)]
        self._set_all(facts, root_of(new))

    def _overwrite(self, view: Self, value: Self) -> None:
        """`view`, this or a part of it, holds `value` from now on, and its family sees it.

        *Silent* is a write that gradients know nothing of (under no_grad, through .detach(), to a
        start): what they went through before they go through afterwards. Any other is a part of the
        expression, and the gradient goes to `value`.
        """
        if keeps(self.device):  # bytes and no kernels: written at once
            if repeats(view._value, view._bottom):
                raise _repeated(view)
            write(view._value, value._held)
            return
        members = self._members()
        if open_inputs and (is_open(view._value) or is_open(value._held)):
            self._write_to_open(view, value)
            return
        silent = _is_silent(view) or _has_leaf(members)
        if silent and recording.on and value.requires_grad is True:
            raise ArgumentError(
                "in place: a value that needs a gradient, through .detach(), which lets none pass; "
                "legal is the .detach() of the value, or a tensor of its own: .detach().clone()"
            )
        # of a silent write: who has a way for gradients, and which, to be given it back below
        passing = [member for member in members if silent and _passes(member)]
        tape = [(m, m._taped, m._value, tape_end(m._value, m._bottom)) for m in passing]
        if len(members) == 1:  # else what others see, too, is what is written
            tape = [(m, taped, past, computed_part(past, end)) for m, taped, past, end in tape]
        for member in members:
            member._taped = False
        try:
            if view is self and len(members) == 1 and self._bottom.op not in STORED:
                # an expression that nobody else sees is no place to write to: the value takes it
                new = value._value if silent else value._held
                new = new.contiguous() if tape else _laid_out(new)
                new = new.detach() if silent and not tape else new
                follow(new, self._uop)
                self._family.root = root_of(new)
                join(bottom_of(new), self._family)
                value._reads_with()
                self.hold(new)
                tape = [(m, taped, past, past) for m, taped, past, _ in tape]  # all of that is gone
            else:
                self._check_single(view, members)
                view._write_to_storage(value, silent)
            self._keep_taped(tape)
        except BaseException:
            self._keep_taped(tape)
            raise

    def _keep_taped(self, tape: list[tuple[Self, bool, UOp, UOp]]) -> None:
        """Gives members the value that is there now, and gradients as if nothing was written: those
        of what they were, by its bottom."""
        facts: list[tuple[Any, str, Any]] = []
        for member, was_taped, past, bottom in tape:
            history = bottom.src[1] if bottom.op is Ops.DETACH else bottom
            now = member._bottom
            now = now if now.shape == bottom.shape else now.in_room(bottom.shape)
            now = now.detach(history)
            facts += [(member, "_uop", on_bottom(past, bottom, now)), (member, "_taped", was_taped)]
        if tape:
            self._set_all(facts, self._family.root)

    def _write_to_storage(self, value: Self, silent: bool) -> None:
        """The next version of all storage that this is a view of, with `value` here. The storage is
        made, if it is not there yet."""
        before, bottom = self._store(), self._bottom
        if not silent and self.requires_grad is None:
            past = self._taken_past()
            before = before if past is None else past
        target = writable_part(self._value)
        assert target.base is bottom, "a family has one bottom"
        for step in steps_between(target, bottom):
            step.known = None  # where a part was computed alone is no place to write to
        new = value._value.detach() if silent else value._held
        if not silent and before is not None and self.requires_grad is None:
            # what is not overwritten keeps the way for gradients of the expression that it was, and
            # so does what is written, if it is of this, too
            passing = bottom.detach(before.of_room)
            target = on_bottom(target, bottom, passing)
            if value._family is self._family and value.requires_grad is None:
                new = on_bottom(new, bottom, passing)
        changed = target.assign(new)
        supersede(bottom, changed.base)
        if not is_detached(self._value):
            self._show(changed)

    def _taken_past(self) -> UOp | None:
        """What gradients went through before a silent write, if there was one: the next version
        tells it, and members that say nothing of gradients don't any more."""
        past, facts = None, list[tuple[Any, str, Any]]()
        for member in self._members():
            node = member._value
            end = tape_end(node, member._bottom)
            if end.op is Ops.DETACH and member.requires_grad is None:
                past, now = end.src[1], member._bottom.in_room(end.shape)
                facts.append((member, "_uop", on_bottom(node, end, now)))
        if facts:
            self._set_all(facts, self._family.root)
        return past

    def _check_single(self, view: Self, members: list[Self]) -> None:
        """Makes sure that no two elements of `view` are the same one in memory: by a copy, or an
        error if other tensors look at it."""
        if not repeats(view._value, view._bottom):
            return
        if any(member is not view for member in members):
            raise _repeated(view)
        view._leave()
        view.hold(view._value.contiguous(), view._taped)

    def _store(self) -> UOp | None:
        """Sees to it that the family has storage of its own to write into. What it was until then,
        if that was an expression that gradients may be asked through."""
        bottom = before = self._bottom
        if bottom.op not in STORED:
            self._unshare(bottom)
            is_fixed = bottom.base.op is Ops.CONST or not dtypes.is_float(bottom.dtype)
            return None if is_fixed else before
        if is_needed(bottom, self._family):
            realize(bottom)
            self._unshare(self._bottom)
        return None

    def _unshare(self, base: UOp) -> None:
        """Gives this, and the views made of it, a buffer of their own."""
        showing = self._showing(base)  # now, as what is below the base may be computed with it
        own = own_copy(base)
        if past := past_at(base):
            buffer_of(own.base).past = past
        self._rebase(showing, base, own)
        join(own, self._family)


def _laid_out(node: UOp) -> UOp:
    """A value in the order of what it becomes the value of, whose views go on being views."""
    return node.contiguous() if copied_part(node) is not None and root_of(node) is None else node
