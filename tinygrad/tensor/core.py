"""What every tensor has: a node of the graph, and the facts that follow from it.

The files of this folder are a staircase, this one the lowest step; `tinygrad.tensor` names them all
in order. Each holds one idea as an abstract class, stands on the one before and knows nothing of
those above.

This one decides which node a tensor stands for, now and after others have computed or written, and
which tensors are of one *family*: views of each other, all of which see a write. It computes and
writes nothing. Read the docstring of `Core` first (which node to ask for), then `_value` and
`_held`, then `_from` and `_join` (how a result comes to be of a family; of nodes `roots` says what
they are views of). The facts at the end need no explanation.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import at_once, prod
from tinygrad.engine.aliases import bottom_of, on_bottom, writable_part
from tinygrad.engine.holders import Holder, Promised, holders
from tinygrad.engine.realize import computing
from tinygrad.engine.storage import (
    Changes,
    Family,
    is_read_by_others,
    join,
    latest,
    leave,
    note_change,
    noting,
)
from tinygrad.engine.turns import keeping, turns
from tinygrad.schedule.bases import MOVED
from tinygrad.schedule.strides import is_window, repeats
from tinygrad.tensor.modes import recording, training
from tinygrad.tensor.origin import user_line
from tinygrad.tensor.past import asked, past_of, remember
from tinygrad.tensor.promise import BeingWritten, Promise, Source, Written
from tinygrad.tensor.roots import (
    STORED,
    VIEWS,
    WITHOUT_SOURCES,
    copied_part,
    end_of_views,
    equals_known,
    has_no_sources,
    root_of,
    settled,
    without_past,
)
from tinygrad.tensor.shapes import Devices, Shape, Sint, Size, axis_of
from tinygrad.tensor.sources import remember_promise
from tinygrad.tensor.spellings import follow, spell
from tinygrad.tensor.version import start_node
from tinygrad.uop.infer import settled as settled_size
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

_UNSTORED = MOVED | {Ops.CONST, Ops.ARANGE}


def constant(value: Any, dtype: DType, device: Devices, shape: Shape = ()) -> UOp:
    """`value` everywhere, as a node."""
    node = UOp.const(dtype, value, device)
    return node.broadcast_to(shape) if shape else node


def owned(node: UOp) -> UOp:
    """`node`, and a constant as one that is equal to no other: a gradient may be asked by it, and
    it may come to lie in memory, which must not change what others compute."""
    return node.own() if node.base.op is Ops.CONST else node


class Core(Holder):
    """A node, its gradient, and whether one is wanted. `requires_grad` None: not said.

    A result wants a gradient if a source does. Such a result keeps its expression after it was
    computed, so that `backward` can follow it (`_taped`); all others then keep only the buffer.

    Which node of a tensor a method should ask for:

        _node     to compute with numbers. A complex tensor refuses it
        _held     to use elements, of complex tensors, too. Says where gradients begin and end
        _seen     to make a view
        _value    to know where the value is, or how it is made. Says nothing of gradients
        _facts    for shape, dtype and device: no promise has to make its node
        uop       what users see: storage, once it is computed
        _uop      the slot below all these: what this was last seen to stand for; empty in a promise
    """

    __slots__ = ("_taped", "_kin", "_source")
    training: ClassVar[Any] = training
    _element: ClassVar[Shape] = ()
    """The last axes of the node that one element takes: (2,) of a complex number, else none."""
    _complex: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        spell(cls)
        follow(cls)

    if not TYPE_CHECKING:  # a checker knows what there is

        def __getattr__(self, name: str) -> Any:
            if name == "_uop":
                return self._keep_promise()
            if hasattr(type(self), name):  # a property failed: says why
                return object.__getattribute__(self, name)
            there = f"; legal is {self._instead[name]}" if name in self._instead else ""
            who = type(self).__name__
            raise AttributeError(
                f"{who!r} object has no attribute {name!r}{there}", name=name, obj=self
            )

    _instead: ClassVar[dict[str, str]]
    """What does the same as an attribute that programs look for and that isn't there."""

    @classmethod
    def _tell_instead(cls, others: dict[str, str]) -> None:
        """Adds names of missing attributes, and what the error for each says to use instead."""
        cls._instead.update({n: o for n, o in others.items() if n not in cls._instead})

    _real: ClassVar[Any]
    """The classes of tensors of complex and of other numbers, which stand above the staircase."""

    _grad: Self | None
    _taped: bool
    _kin: Family | None
    """The family, once there may be others in it."""
    _write_down: ClassVar[Callable[[Any, Any], None]]
    """Writes a value that was promised, by its node (`tensor/writing`)."""
    _compute_now: ClassVar[Callable[..., bool]]
    """Computes what gradients are to begin at, or a write that is pending, and others with it,
    unless a step is being captured; says whether it did."""
    _source: Source | BeingWritten | None
    """What it has in the place of a node, if it has none yet; of storage its version, if that was
    asked for."""

    @classmethod
    def _wrap(cls, node: UOp, requires_grad: bool | None = None) -> Self:
        """A tensor of `node` that has no tensors as sources."""
        made = object.__new__(cls)
        made._set(node, requires_grad)
        made._begin()
        return made

    @classmethod
    def of(cls, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A tensor of `node`, which has the axes of an element, see `_element`."""
        return cls._wrap(node, wants_gradient)

    @classmethod
    def of_shared(cls, node: UOp, wants_gradient: bool | None, owns_elements: bool) -> Self:
        """See `Holder`."""
        made = cls._wrap(node, wants_gradient)
        if not owns_elements:
            made._family.root = None
        made._reads_with()
        return made

    def is_untouched(self, node: UOp, wants_gradient: bool | None) -> bool:
        """Whether this is as `of` made it: nothing has happened to it."""
        return (
            self._uop is node
            and self.requires_grad is wants_gradient
            and self._grad is None
            and self._kin is None
            and self._source is None
            and not self._taped
        )

    @classmethod
    def _promised(cls, promise: Promise) -> Self:
        """A tensor that has no node before it is asked for one."""
        made = object.__new__(cls)
        made.requires_grad, made._grad, made._kin = promise.wants, None, None
        made._taped, made._source = promise.wants is True, promise
        holders.add(made)
        Promised.holders.add(made)
        if not Promised.some:  # what sets an attribute of a class makes the next look-up slow
            Promised.some = True
        return made

    def _keep_promise(self) -> UOp:
        """The node that was promised: from now on this has one, and what is a view of the same."""
        with turns.together(), keeping.now:  # writing it down may compute
            if type(self._source) is BeingWritten:
                return self._source.node
            for member in self._members():
                promise = member._source
                if not isinstance(promise, Promise):
                    continue  # another thread was faster
                try:
                    member._hold_promised(promise)
                except Exception:
                    if member is self:  # others tell who asks for them
                        raise
            return object.__getattribute__(self, "_uop")  # type: ignore[no-any-return]

    def _hold_promised(self, promise: Promise) -> None:
        """Makes this known to whoever must know of the node that was promised (its family, the
        storage that it is a view of, what remembers pasts); last, and at once, it has that."""
        if isinstance(promise, Written):
            value = self.of(promise.value, promise.follows)
            source: Any = BeingWritten(promise.place.view)
            try:
                self._source = source
                self._write_down(value)
                promise.written = True
            finally:
                if promise.written or latest(source.node).base.op is Ops.ASSIGN:
                    self._uop, self._source, promise.written = source.node, None, True
                else:  # nothing is written yet
                    self._source = promise
            return
        is_known, taped = promise.is_computed and not self._taped, self._taped
        node = promise.shown if is_known else promise.node
        if is_known and promise.wants is False and promise.stored.wants:
            node = node.detach()  # gradients follow what it is a view of
        if promise.wants is None:
            asked(promise, self)
        is_view = promise.stored is not promise
        # what the family begins with, whose own tensor may be gone
        first = promise.stored.node if is_view and not is_known else node
        root = root_of(first)
        root = end_of_views(first) if root is None else root
        begins_with_copy = root.op in MOVED and not (is_view and is_known)
        if begins_with_copy:
            self._family.root = root
            join(bottom_of(root), self._family)
        if not is_known and (is_view or not begins_with_copy):
            taped = taped or (self.requires_grad is None and equals_known(node))
        if is_known:
            join(promise.base, self._family)
        else:
            remember_promise(promise)
        self._uop, self._source, self._taped = node, None, taped

    @property
    def is_broken(self) -> bool:
        """See `Holder`."""
        return isinstance(self._source, Promise) and self._source.error is not None

    def break_with(self, error: Exception) -> None:
        """See `Holder`."""
        if isinstance(self._source, Promise):
            self._source.error = error.with_traceback(None)  # whose frames hold tensors

    def with_node(self, node: UOp) -> Self:
        """Another tensor, of `node`, that has no tensors as sources.

        >>> x = Tensor([1, 2])
        >>> x.with_node((x + 1).uop).tolist()
        [2, 3]
        """
        return self.of(node)

    def alike(self, node: UOp, wants_gradient: bool | None = None) -> Self:
        """A tensor of `node`, another view of what this is a view of."""
        made = self.of(node, wants_gradient)
        made._enter(self._family)
        return made

    def hold(self, node: UOp, taped: bool = False) -> None:
        """Makes this a tensor of `node`."""
        with keeping.now:
            source = self._source
            if type(source) is BeingWritten:
                source.node, self._taped = node, taped
            else:
                self._uop, self._taped, self._source = node, taped, None
            Changes.count += 1  # at once: no Ctrl-C is heard before the next call
        note_change(self)

    @property
    def grad(self) -> Self | None:
        """The gradient, or None. It can be set: to a tensor of this shape, or to None. Replays of a
        captured step rely on what the step's own code has found here.

        >>> x = Tensor([2.0], requires_grad=True)
        >>> _ = (x * x).sum().backward()
        >>> x.grad.tolist()
        [4.0]
        """
        if computing.recorder is not None:
            computing.recorder.sees_gradient(self)
        return self._grad

    @grad.setter
    def grad(self, gradient: Self | None) -> None:
        if computing.recorder is not None:
            computing.recorder.sets_gradient(self, gradient)
        self._grad = gradient

    @property
    def has_gradient(self) -> bool:
        """Whether `grad` is a tensor: a program may have set it to anything."""
        return isinstance(self._grad, Core)

    @property
    def family(self) -> Family:
        """What this shares with the views made of it."""
        return self._family

    @property
    def has_views(self) -> bool:
        """Whether other tensors are views of what this is, or is a view of: they see what is
        written to it.

        >>> x = Tensor([1, 2, 3])
        >>> x.has_views
        False
        >>> first = x[:1]
        >>> x.has_views
        True
        """
        return len(self._members()) > 1

    @property
    def _family(self) -> Family:
        found = self._kin
        if found is None:
            with keeping.now:
                found = self._kin  # another thread may have been faster
                if found is None:
                    found = self._kin = Family(self)
        return found

    def _set(self, node: UOp, requires_grad: bool | None) -> None:
        if node.origin is None:
            node.origin = user_line()
        self._uop, self.requires_grad, self._grad, self._taped = node, requires_grad, None, False
        self._kin = self._source = None
        holders.add(self)

    def _begin(self) -> None:
        """Makes this the first member of a family."""
        node = self._uop
        if node.op is Ops.RESHAPE and node.src[0].op is Ops.BUFFER:
            return
        if node.op in GroupOp.Movement and (root := root_of(node)) is not None:
            self._family.root = root

    def _from(self, node: UOp, *others: Core) -> Self:
        """A tensor of `node`, which was made of this one and `others`."""
        wants = self.requires_grad
        for other in others:
            if other.requires_grad is not wants:
                wants = True if True in (wants, other.requires_grad) else None
        made = object.__new__(type(self))
        if wants and not recording.on and node.op in VIEWS:
            node = node.detach()  # gradients don't follow what is written to it
        made._set(node, wants if recording.on else False)
        made._taped = made.requires_grad is True or (wants is None and equals_known(node))
        if node is self._uop or node.op in VIEWS or node.op is Ops.DETACH:
            made._join(self)
        return made

    def _copied(self, *sources: Core) -> Self:
        """This, a result, or itself, of a method that gives no views. Where it comes to the same as
        what a source lies in, a tensor of its own: a write to one is not seen by the other, though
        they share storage until then."""
        if not any([each is self or self._lies_in(each) for each in sources]):
            return self
        made = self._from(self._held)
        made._leave()
        made._family.root = copied_part(made._uop)
        made._reads_with(*sources)
        return made

    def _lies_in(self, other: Core) -> bool:
        """Whether this is a view of what `other` is a view of."""
        bottom = self._common_bottom(other)
        return bottom is not None and is_window(self._uop, bottom)

    def _common_bottom(self, other: Core) -> UOp | None:
        """The bottom of `other`, if this was made of it by movement alone."""
        root = other._root  # another thread may compute it meanwhile
        bottom = bottom_of(self._uop, root)
        return bottom if bottom is bottom_of(other._uop, root) else None

    def _in_order(self) -> Self:
        """This, a result that was just made, as one whose elements lie in order by its meaning,
        whatever order they are computed in: a reshape is a view of it."""
        self._leave()
        self._family.root = copied_part(self._uop)
        self._reads_with()
        return self

    def _reads_with(self, *others: Core) -> None:
        """Remembers that this and others may share storage without being views of each other."""
        for each in (self, *others):
            join(bottom_of(each._uop), each._family)

    def _join(self, other: Core) -> None:
        """If this is a view of what `other` is a view of, a write to one is seen by both. A copy
        by its meaning, which still reads the storage, keeps what it reads now."""
        node, bottom = self._uop, self._common_bottom(other)
        if bottom is None and settled(node, True) is not node:
            with turns.together(), keeping.now:  # another thread has written since
                _ = other._value
                node = self._uop = settled(self._uop, True)
                bottom = self._common_bottom(other)
        if bottom is not None and is_window(node, bottom):
            self._view(other)
            return
        self._family.root = copied_part(node) if bottom is not None else root_of(node)
        join(bottom_of(node), self._family)

    def _view(self, other: Core) -> None:
        """Makes this a member of the family of `other`."""
        family = other._family
        self._enter(family)
        family.recorded |= True in [t.requires_grad for t in (self, other) if t._taped]

    def _become(self, other: Core) -> None:
        """Makes this the same as `other`."""
        node, family = other._value, other._family
        with keeping.now:
            self._enter(family)
            self._uop, self._taped, self._source = node, other._taped, None
            Changes.count += 1
        note_change(self)

    def _enter(self, family: Family) -> None:
        """Makes this a member of `family`."""
        family.members.add_once(self)  # before another thread asks for this one's members
        family.several = True
        self._kin = family

    def _leave(self) -> None:
        """Makes this the only member of a new family."""
        self._kin = None

    @property
    def _bottom(self) -> UOp:
        """What this is a view of: storage, what will be stored, or a copy yet to be made."""
        return bottom_of(self._value, self._root)

    @property
    def _root(self) -> UOp | None:
        """The copy yet to be made that the family begins with, if it does."""
        family = self._kin
        root = None if family is None else family.root
        if family is None or root is None:
            return None
        if (now := settled(root)) is root or self._follows(root):
            return root
        with keeping.now:
            if family.root is root:  # else another thread has written meanwhile
                leave(latest(bottom_of(root)), family)  # the copy is made
                family.root = copied_part(now)
                join(bottom_of(now), family)
            return family.root

    def _follows(self, root: UOp) -> bool:
        """Whether a gradient follows a member that stands on `root`, which stays an expression."""
        return any(
            m._taped and not isinstance(m._source, Promise) and bottom_of(m._uop, root) is root
            for m in self._members()
        )

    def _members(self) -> list[Self]:
        """The tensors of the family, this among them."""
        family = self._kin
        if family is None or not family.several:
            return [self]
        mine = [h for h in family.members if h.family is family]
        return mine  # type: ignore[return-value]

    def _showing(self, bottom: UOp) -> list[tuple[Self, UOp]]:
        """The members of the family that are views of `bottom`, and what these views are."""
        return [(m, m._value) for m in self._members() if m._bottom is bottom]

    def _rebase(self, showing: list[tuple[Self, UOp]], old: UOp, new: UOp) -> None:
        """Makes these members views of `new`, which has the elements of their bottom `old`."""
        self._set_all([(m, "_uop", on_bottom(view, old, new)) for m, view in showing], None)

    def _follow_writes(self) -> None:
        """Makes the members whose storage was overwritten views of the version that is there now. A
        part that was computed alone before, and is stored twice, would be taken for it."""
        views = [(m, m._uop) for m in self._members() if not isinstance(m._source, Promise)]
        old = [(m, view, bottom_of(view)) for m, view in views]
        new = [(m, on_bottom(v, end, end.newer)) for m, v, end in old if end.newer is not None]
        self._set_all([(m, "_uop", view) for m, view in new], self._family.root)

    def _set_all(self, facts: list[tuple[Any, str, Any]], root: UOp | None) -> None:
        """Gives members of the family these attributes, and the family its root: all or none,
        whenever Ctrl-C comes."""
        with keeping.now:
            of_all = ((self._family, "root", root), (Changes, "count", Changes.count + 1))
            now = [(*m._slot, value) if n == "_uop" else (m, n, value) for m, n, value in facts]
            at_once([partial(setattr, *fact) for fact in (*now, *of_all)])
        note_change(*self._members())

    def copy_out(self, base: UOp) -> None:
        """See `Holder`: a copy of part of the version `base` is made before that is overwritten."""
        if self._kin is None or self._kin.root is None or bottom_of(self._value) is not base:
            return
        bottom = self._bottom
        if bottom is not base:
            with noting():  # it keeps its value
                self._rebase(self._showing(bottom), bottom, bottom.contiguous())
            leave(base, self._family)

    @property
    def owns_elements(self) -> bool:
        """See `Holder`."""
        return self._root is not None

    @property
    def lies_in(self) -> UOp:
        """See `Holder`."""
        node, family = self.uop, self._kin
        return bottom_of(node, self._root) if family is not None and family.several else node

    @property
    def lies_at(self) -> UOp:
        """See `Holder`: the view that a write to this goes to."""
        if not self.has_views:
            return writable_part(self.uop)
        value, bottom = self._value, self._bottom
        return on_bottom(writable_part(value), bottom, latest(bottom))

    def settle_family(self, start: int, given: Collection[Any]) -> UOp:
        """See `Holder`: after the step, no expression tells who sees a write to what."""
        members = self._members()
        is_new = self._family not in given and all(m.serial >= start for m in members)
        below, bottom = bottom_of(self._value), self._bottom
        if below.op in STORED:
            unsettled = is_new and (bottom is not below or is_read_by_others(below, self._family))
        else:
            lies_twice = len(members) > 1 or repeats(self._value, bottom)
            unsettled = lies_twice and bottom.op in _UNSTORED
        if unsettled:
            self._rebase(self._showing(bottom), bottom, bottom.contiguous())
            leave(below, self._family)
        return self._bottom if len(members) > 1 else self.uop

    @property
    def _held(self) -> UOp:
        """The node to build on, with the axes of an element. It says where gradients go: those of
        what was made from nothing and wants one to a node of its own, whatever its value lies in
        or is equal to; those of what says that it wants none nowhere."""
        node, wants = self._value, self.requires_grad
        if wants is None or not recording.on or (wants and self._taped):
            return node
        if wants:
            return node.detach(self._start)
        lets_none = has_no_sources(node) or not dtypes.is_float(node.dtype)
        return node if lets_none else node.detach()

    @property
    def _seen(self) -> UOp:
        """The node that views are made of. A view of what says that it wants no gradient says so,
        too; a DETACH between them would keep from it what is written to both."""
        return self._value if self.requires_grad is False else self._held

    @property
    def _start(self) -> UOp:
        """What stands in a graph for this as a start, in all its versions."""
        return start_node(self.serial)

    @property
    def _value(self) -> UOp:
        """What holds the value, or will: an expression while gradients may have to follow it. What
        others hold of the same counts or numbers is no part of an expression that is recorded."""
        node = below = self._uop
        if recording.inside:
            return node
        while below.op in GroupOp.Movement and below.known is None:
            below = below.src[0]
        if below.known is None and below.newer is None and below.op is not Ops.DETACH:
            return node  # nothing has happened to it
        if self._taped and below.known is not None:
            return node  # it was computed, or is a view of what was
        root = self._root
        if root is not None and settled(root) is not root and bottom_of(node, root) is root:
            return node  # all members stand on the root, or on its storage
        now = settled(node, self._kin is not None and self._kin.several)
        if now is node and node.known is not None and not self.has_views:
            with keeping.now:
                if not self.has_views:
                    self._leave()  # nobody else sees the whole
            now = settled(node)
        told = now
        if self.requires_grad is None and not self._taped:
            now = without_past(now)
        if now is not node:
            if any(isinstance(m._source, Promise) for m in self._members()):
                self._keep_promise()  # of views of this node, which may be gone after this
            if wants_past := now is not told or self._lets_go(node):
                was, past = weakref.ref(node), past_of(node, now.base.storage)
                hash(was)  # which it keeps, and can't tell any more once the node is gone
            join(bottom_of(now), self._family)  # before who writes sees that nobody has the node
            if not self._show(now, node):
                return self._value
            del node, below  # what nobody else holds is no part of a past
            if wants_past:
                remember(was, now, past)
            _ = self._root
        return now

    def _show(self, node: UOp, before: UOp | None = None) -> bool:
        """Makes this stand for `node`; given `before`, only if it stands for that: another thread
        that asks for the value may be slower than a write."""
        with keeping.now:
            if before is not None and (
                isinstance(self._source, Promise) or self._uop is not before
            ):
                return False
            setattr(*self._slot, node)
            return True

    @property
    def _slot(self) -> tuple[Any, str]:
        """The object and its attribute that hold the node: others see a write when it is done."""
        source = self._source
        return (source, "node") if type(source) is BeingWritten else (self, "_uop")

    def _lets_go(self, node: UOp) -> bool:
        """Whether this forgets how a gradient would go on when it no longer stands for `node`."""
        says = self.requires_grad is not None
        return not says and node.base.op not in WITHOUT_SOURCES and dtypes.is_float(node.dtype)

    _node = _held
    """The same for what computes with numbers, and not only moves elements. Complex tensors refuse
    it, so what doesn't know them is loud."""

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def uop(self) -> UOp:
        """The node that holds the value: a view of a buffer once it is computed.

        >>> Tensor([1, 2]).uop.op
        Ops.COPY
        """
        promise = self._source
        if isinstance(promise, Promise):
            with keeping.now:
                if promise.is_computed:
                    return latest(promise.shown)
        node = self._value
        return settled(node) if self._taped else node

    @property
    def _is_promised(self) -> bool:
        """Whether it has no node yet, and is not computed."""
        promise = self._source
        return isinstance(promise, Promise) and not promise.is_computed

    @property
    def _facts(self) -> UOp:
        """What has this one's shape, dtype and device."""
        promise = self._source
        return promise.like if isinstance(promise, Promise) else self._uop

    @property
    def shape(self) -> Shape:
        """The sizes of the axes.

        >>> Tensor.ones(2, 3).shape
        (2, 3)
        """
        return self._facts.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements.

        >>> Tensor([1.0]).dtype
        dtypes.float
        """
        return self._facts.dtype

    @property
    def device(self) -> Devices:
        """The name of the device that holds, or will hold, the value; a tuple of several.

        >>> Tensor([1], device="CPU").device
        'CPU'
        """
        device: Devices | None = self._facts.device
        assert device is not None, "a tensor's graph names its device"
        return device

    @property
    def ndim(self) -> int:
        """The number of axes.

        >>> Tensor.ones(2, 3).ndim
        2
        """
        return len(self.shape)

    def dim(self) -> int:
        """The number of axes.

        >>> Tensor.ones(2, 3).dim()
        2
        """
        return len(self.shape)

    def numel(self) -> Sint:
        """The number of elements.

        >>> Tensor.ones(2, 3).numel()
        6
        """
        return settled_size(prod(self.shape))

    @property
    def size(self) -> Size:
        """The number of elements, as NumPy and the array API standard have it. Called, as PyTorch
        has it: the shape, or the size of an axis.

        >>> Tensor.ones(2, 3).size, Tensor.ones(2, 3).size(), Tensor.ones(2, 3).size(-1)
        (6, (2, 3), 3)
        """
        return Size(self.shape)

    def element_size(self) -> int:
        """Bytes of one element.

        >>> Tensor([1.0]).element_size()
        4
        """
        return self.dtype.itemsize

    def nbytes(self) -> Sint:
        """Bytes of all elements.

        >>> Tensor([1.0, 2.0]).nbytes()
        8
        """
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the dtype is a float.

        >>> Tensor([1.0]).is_floating_point(), Tensor([1]).is_floating_point()
        (True, False)
        """
        return dtypes.is_float(self.dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a tensor of shape () has no axis to count")
        if not isinstance(size := self.shape[0], int):
            raise TypeError(
                f"len: the first size is {size!r}; legal is a number, not an expression"
            )
        return size

    def __hash__(self) -> int:
        return id(self)

    # ---- for the files above ---------------------------------------------------------------------

    def _axes(self, axis: int | tuple[int, ...] | list[int] | None, operation: str) -> Any:
        """`axis` as a tuple of axes counted from the front, in order; None means all."""
        if axis is None:
            return tuple(range(self.ndim))
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        axes = tuple(sorted(axis_of(a, self.ndim, operation) for a in given))
        if self.ndim == 0:
            return ()
        if len(set(axes)) < len(axes):
            raise ArgumentError(f"{operation}: an axis stands twice in {axis}; legal is each once")
        return axes

    def _constant(self, value: Any, dtype: DType | None = None, shape: Shape = ()) -> UOp:
        """A constant on this tensor's device."""
        return constant(value, dtype or self.dtype, self.device, shape)
