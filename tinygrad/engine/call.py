"""Calls of a captured step after the capture: the fast path.

It decides whether a call is certain to be like the captured one (`recognise`), and makes its result
before it runs. What the step computes, and what is wrong with a call that is not recognised, it
doesn't know: such a call takes the slow path (`engine/jit`), which handles all cases and names the
fault.

Read `recognise` and `ArgumentForm` first (what a call must have in common with the captured one, as
flat rows that are compared with what tensors store), then `run` (state is where it was, values of
variables, results, one native call), `Kit` (results that nobody holds any more are used again), and
last `Mould` (how a result that a kit can't hold is made).

Its Python must be short and touch few objects, without calls of tensors' methods: after a kernel
that read more memory than the caches hold, all that Python touches has to be fetched from memory
again.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from typing import Any, NamedTuple
from weakref import getweakrefcount

from tinygrad.base.dtype import DType
from tinygrad.base.errors import JitError
from tinygrad.engine.capture import Captured, Output, is_another
from tinygrad.engine.containers import bindings_below, fits, matches, unflatten, without_values
from tinygrad.engine.holders import Holder, surroundings, surroundings_now
from tinygrad.engine.layout import Source
from tinygrad.engine.places import changed
from tinygrad.engine.realize import before_overwriting, realize
from tinygrad.engine.replay import Replay
from tinygrad.engine.storage import Buffer, Changes, bind, realized_buffer
from tinygrad.engine.turns import keeping, turns
from tinygrad.engine.unread import without_unread
from tinygrad.schedule.strides import repeats, steps_between
from tinygrad.uop import Ops, UOp
from tinygrad.uop.infer import misfit

Bound = dict[UOp, UOp]
"""Variables, and expressions of them, with the values that they have in a call."""

_BUFFER, _RESHAPE, _SHRINK = Ops.BUFFER, Ops.RESHAPE, Ops.SHRINK
"""Looking up an enumeration's member by name costs as much as a function call."""

MOST_KITS = 4
MOST_KEPT, KEPT_EACH = 16 << 20, 1 << 20
"""Bytes of results that keep their place when no one holds them: of all, or else on average. Making
them anew costs some 15 microseconds, which fewer bytes are written in."""


class Outdated(Exception):
    """What the captured call took for a constant is another now: the step has to run again."""


class Given(NamedTuple):
    """The arguments of a call: tensors, each a view of a whole buffer, the buffers, and
    variables."""

    tensors: Sequence[Holder]
    inputs: Sequence[Buffer]
    bound: Bound


class ArgumentForm(NamedTuple):
    """The form that a tensor argument must have: a RESHAPE of a BUFFER to `room`, or, if sizes are
    symbolic, a SHRINK of that."""

    room: tuple[int, ...]
    arg: Any  # of the SHRINK
    sizes: tuple[UOp, ...]  # its sizes, of unbound variables
    dtype: DType
    device: Any
    fixed: bool
    requires_grad: bool  # may require one: none reached it in the capture


class Kit:
    """A call's results, made in advance: new buffers, and for each output its tensor, or None if
    its sizes change from call to call. Once no one else holds any part of it, and nothing has been
    derived from it, a later call uses it again."""

    __slots__ = ("buffers", "tensors", "_made", "_views", "_parts", "_counts")

    def __init__(
        self, moulds: Sequence[Mould | UOp | int], buffers: Sequence[Buffer], again: bool
    ) -> None:
        self.buffers = buffers
        self.tensors = [_tensor_of(mould, i, buffers) for i, mould in enumerate(moulds)]
        found = [tensor for tensor in self.tensors if tensor is not None] if again else []
        self._made = [(t, t._uop, t.requires_grad, getweakrefcount(t)) for t in found]
        self._views = _views_of(found)
        self._parts = (*buffers, *self._views, *found) if again else ()
        found.clear()
        self._counts = list(map(getrefcount, self._parts))

    @property
    def is_free(self) -> bool:
        """Whether it can be reused without anyone noticing."""
        if list(map(getrefcount, self._parts)) != self._counts:
            return False
        for buffer in self.buffers:
            if buffer.others:
                return False
        for tensor, node, wants_gradient, weak in self._made:
            if getweakrefcount(tensor) != weak or not tensor.is_untouched(node, wants_gradient):
                return False
        for node in self._views:
            if node.known is not None or node.newer is not None:
                return False
            node.families = None  # of tensors that are gone
        return True


class Call:
    """A captured call, ready to run again. `shape` is that of (args, kwargs), `settled` are the
    tensors of the captured call, and `inputs` their buffers."""

    def __init__(
        self,
        name: str,
        captured: Captured,
        shape: Any,
        settled: Sequence[Holder],
        inputs: Sequence[Buffer],
    ) -> None:
        self.name, self.captured = name, captured
        _, self._args, self._kwargs = shape
        now = zip(surroundings, surroundings_now(), strict=True)
        self._surroundings = [(*each, then) for each, then in now]
        self._forms = [_form_of(*pair) for pair in zip(settled, inputs, strict=True)]
        self._kinds = _only_tensors(self._args) if len(self._kwargs) == 1 else None
        self._is_plain = len(set(inputs)) == len(inputs)
        self._written = list(captured.written)
        seen = {out.source for out in captured.outputs if isinstance(out, Output)}
        captured.executions = without_unread(captured.executions, seen)
        self._values = [value for each in captured.executions for _, value in each.variables]
        self._names = [name for each in captured.executions for name, _ in each.variables]
        self._replay = Replay(captured.executions, captured.state, seen)
        self._moulds = _moulds(captured.outputs, self._replay.made)
        self._is_one = type(captured.result) is tuple and captured.result[0] is Holder
        fresh = self._replay.fresh
        most = max(MOST_KEPT, KEPT_EACH * len(fresh))
        self._keeps = all(type(d) is str for _, d, _ in fresh) and sum(n for *_, n in fresh) <= most
        self._kits: deque[Kit] = deque(maxlen=MOST_KITS)

    # ---- whether it is the same call ---------------------------------------------------------

    def recognise(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given | None:
        """The arguments of the call, if it certainly is like the captured one; else None."""
        if not self._is_plain:
            return None
        bound: Bound = {}
        leaves: Any = args
        if kwargs or tuple(map(type, args)) != self._kinds:
            leaves = []
            if not fits(self._args, args, leaves):
                return None
            if (kwargs or len(self._kwargs) > 1) and not fits(self._kwargs, kwargs, leaves):
                return None
            if len(leaves) > len(self._forms) and not _take_variables(leaves, bound):
                return None
        inputs = []
        for tensor, form in zip(leaves, self._forms, strict=True):
            room, _, sizes, dtype, device, fixed, wants = form
            view = node = tensor._uop
            if sizes:
                if node.op is not _SHRINK or not _same_sizes(node, form, bound):
                    return None
                node = node.src[0]
            base = node.src[0] if node.op is _RESHAPE else node
            buffer = base.storage
            if (
                base.op is not _BUFFER
                or buffer is None
                or ((node.arg,) if base is node else node.arg) != room
                or base.newer is not None
                or base.known is not None
                or node.known is not None
                or view.known is not None
                or base.dtype is not dtype
                or buffer.device != device
                or buffer.fixed is not fixed
                or (tensor.requires_grad is True and not wants)
            ):
                return None
            inputs.append(buffer)
        if len(inputs) > 1 and len(set(inputs)) < len(inputs):
            return None
        for place, name, then in self._surroundings:
            if getattr(place, name) != then:
                return None
        return tuple.__new__(Given, (leaves, inputs, bound))  # its own method is one more to fetch

    # ---- making it ---------------------------------------------------------------------------

    def run(self, given: Given) -> Any:
        """Runs the step on these arguments and returns its result."""
        if not self.captured.written and not self.captured.written_inputs:
            return self._replayed(given)
        with turns.together(), keeping.now:  # what another thread writes is done before, or after
            return self._replayed(given)

    def _replayed(self, given: Given) -> Any:
        captured, inputs = self.captured, given.inputs
        if captured.gradients:
            captured.gradients.find(self.name)
        if (
            captured.changes != Changes.count
            or captured.lost is not None
            or not captured.places.are_kept
            or not captured.states.isdisjoint(inputs)
        ):
            self._check_state(inputs)
        written: Sequence[Buffer] = self._written
        if captured.written_inputs:
            written = [*written, *(inputs[i] for i in captured.written_inputs)]
        if written:
            before_overwriting(written)
        if given.bound and captured.sized:
            self._check_sizes(given.bound)
        for happens in captured.happens:
            happens()
        changing = given.bound or captured.streams
        values = self._values_now(given.bound) if changing else self._values
        kit = self._kit()
        found = self._leaves(given, kit)  # while what this touches is in the caches
        over: list[Any] = []
        try:
            with keeping.now:  # of another thread's step this reads all or nothing
                self._replay.run(inputs, values, kit.buffers, over)
            captured.gradients.leave(found)
        except BaseException:  # Ctrl-C, maybe while it left them
            if over:
                captured.gradients.leave(found)
            raise
        if self._keeps:
            self._kits.append(kit)
        return self._result(found)

    def _check_state(self, inputs: Sequence[Buffer]) -> None:
        """The state must be where it was, with its writes completed, and no argument may be part of
        it."""
        captured, name = self.captured, self.name
        if not captured.states.isdisjoint(inputs):
            for number, buffer in enumerate(inputs):
                first = inputs.index(buffer)
                if buffer in captured.written or (
                    buffer in captured.states and first in captured.written_inputs
                ):
                    raise JitError(
                        f"{name}: argument {number} lies in a buffer that the step also "
                        "knows from outside, and one of the two is overwritten, which wasn't so "
                        "when it was captured; give a .clone()"
                    )
        if captured.lost is not None:
            raise JitError(
                f"{name}: a tensor{captured.lost} that the captured call read is gone; call "
                "reset() to capture again"
            )
        for known, was, now in changed(captured.places.settings):
            raise JitError(
                f"{name}: {known} is {now!r:.80} now; the captured call read {was!r:.80}, which "
                "replays would keep; give it as an argument, or a tensor, or call reset() to "
                "capture again"
            )
        lost = captured.places.look_again()
        for tensor in lost:
            if id(tensor) in captured.expressions:
                continue
            raise JitError(
                f"{name}: another tensor, or none, is where the captured call found one of shape "
                f"{tensor.uop.shape}; call reset() to capture again, or .assign() to it"
            )
        if lost or any(is_another(*each) for each in captured.expressions.values()):
            raise Outdated
        if captured.changes == Changes.count:
            return
        for reference, buffer in captured.homes:
            holder = reference()
            if holder is None:
                continue
            realize(holder.uop)  # what was assigned since
            if realized_buffer(holder.uop) is not buffer:
                raise JitError(
                    f"{name}: a tensor of shape {holder.uop.shape} that the captured "
                    "call read is another now (replace, load, or a write that made it a buffer "
                    "of its own); call reset() to capture again, or .assign() to it"
                )
        captured.changes = Changes.count

    def _check_sizes(self, bound: Bound) -> None:
        """What is cut and padded by variables must fit with the values that they have now."""
        for (op, sizes, given), numbers in self.captured.sized.items():
            if any(_bound(number, bound).val < 0 for number in numbers):
                raise misfit(op, _all_bound(sizes, bound), _all_bound(given, bound))

    def _values_now(self, bound: Bound) -> list[int]:
        """The values of all plans' variables: bound by arguments, drawn from streams, or
        captured."""
        known = {n.arg[0]: bind.src[1].arg for n, bind in bound.items() if n.op is Ops.DEFINE_VAR}
        streams = self.captured.streams
        for name, (stream, first, last) in streams.items():
            known[name] = stream.take(last - first) - first
            known[stream.seed_name] = stream.seed
        return [
            value + known[name] if name in streams else known.get(name, value)
            for name, value in zip(self._names, self._values, strict=True)
        ]

    # ---- what it returns ---------------------------------------------------------------------

    def captured_result(self, given: Given, find: Callable[[Source], Buffer]) -> Any:
        """The result of the call that was captured; `find` maps sources to its buffers."""
        buffers = [find(source) for source in self._replay.made]
        found = self._leaves(given, Kit(self._moulds, buffers, False))
        self.captured.gradients.leave(found)
        return self._result(found)

    def _kit(self) -> Kit:
        """The results for one call: those of the last call if they are free, since the caches have
        them; or of an earlier one, or new ones."""
        kits = self._kits
        try:
            kit = kits.pop()
            if kit.is_free:
                return kit
            kits.append(kit)
            kit = kits.popleft()
            if kit.is_free:
                return kit
            kits.appendleft(kit)
        except IndexError:  # there is none, or another thread was faster
            pass
        return Kit(self._moulds, self._replay.buffers(), self._keeps)

    def _leaves(self, given: Given, kit: Kit) -> list[Any]:
        """All tensors and numbers of the step's result, then the gradients that it leaves."""
        found: list[Any] = []
        for mould, tensor in zip(self._moulds, kit.tensors, strict=True):
            if tensor is not None:
                found.append(tensor)
            elif isinstance(mould, UOp):
                found.append(given.bound.get(mould.src[0], mould))
            elif isinstance(mould, int):
                found.append(found[mould])
            else:
                relative = found[mould.first] if mould.first < len(found) else None
                found.append(_made(mould, given, kit, relative))
        return found

    def _result(self, found: list[Any]) -> Any:
        """The step's result, of its leaves."""
        return found[0] if self._is_one else unflatten(self.captured.result, iter(found))


class Mould(NamedTuple):
    """How to make the tensor of an output: views, one of the other, of buffer `number` of those
    that a replay makes. Sizes that contain bound variables are stored unbound, too."""

    out: Output
    number: int
    views: list[tuple[Ops, list[tuple[UOp, UOp]], Any]]
    flat: UOp
    shape: list[Any] | None  # if its sizes, or where it begins, are symbolic: unbound
    first: int  # the first of the outputs that are views of each other
    is_among: bool  # whether its family must be told: others lie there, or it repeats elements
    wants: bool | None


def _moulds(
    outputs: Sequence[Output | UOp | int], made: Mapping[Source, int]
) -> list[Mould | UOp | int]:
    """How to make each output."""
    views = [(x.source, x.family) if isinstance(x, Output) else None for x in outputs]
    times = Counter(x.source for x in outputs if isinstance(x, Output))
    return [
        _mould(x, made, views.index(view), times[x.source] > 1) if isinstance(x, Output) else x
        for x, view in zip(outputs, views, strict=True)
    ]


def _mould(out: Output, made: Mapping[Source, int], first: int, has_others: bool) -> Mould:
    views: list[tuple[Ops, list[tuple[UOp, UOp]], Any]] = []
    for view in steps_between(out.view, out.view.base):
        sizes = [(size, without_values(size)) for size in view.src[1:]]
        if view.op is Ops.RESHAPE and views and views[-1][0] is Ops.RESHAPE:
            views.pop()
        views.append((view.op, sizes, view.arg))
    shape = [n if isinstance(n, int) else without_values(n) for n in out.view.shape]
    varying = [size for _, sizes, _ in views for size, free in sizes if size is not free]
    is_symbolic = bool(varying) or any(isinstance(n, UOp) for n in shape)
    number = made.get(out.source, -1)
    wants = False if out.wanted_gradient else None  # its expression stayed inside
    free = shape if is_symbolic else None
    is_among = has_others or (not out.owns_elements and repeats(out.view, out.view.base))
    return Mould(out, number, views, out.view.base, free, first, is_among, wants)


def _tensor_of(mould: Mould | UOp | int, number: int, buffers: Sequence[Buffer]) -> Holder | None:
    """The tensor of the output with that number, if it is made anew, has a constant shape, and is
    not a view of an earlier output."""
    if not isinstance(mould, Mould) or mould.out.source.kind != "made" or mould.shape is not None:
        return None
    if mould.first < number:
        return None
    return _alone(mould, _view(mould, buffers[mould.number], {}))


def _alone(mould: Mould, node: UOp) -> Holder:
    """The first tensor of a family."""
    out = mould.out
    if mould.is_among:
        return out.kind.of_shared(node, mould.wants, out.owns_elements)
    return out.kind.of(node, mould.wants)


def _views_of(tensors: Sequence[Holder]) -> list[UOp]:
    """The tensors' nodes, down to the BUFFERs."""
    found: list[UOp] = []
    for tensor in tensors:
        node = tensor._uop
        while node not in found:
            found.append(node)
            node = node if node.op is _BUFFER else node.src[0]
    return found


def _view(mould: Mould, buffer: Buffer, bound: Bound) -> UOp:
    """An output as a view of the whole of its buffer."""
    flat = mould.flat
    base = None if buffer.version is None else buffer.version()
    if base is None:
        base = bind(flat.src[1].new_storage(flat.arg, flat.dtype), buffer)
    node = base
    for op, sizes, arg in mould.views:
        src = [node]
        for size, free in sizes:
            src.append(bound[free] if free in bound else _bound(size, bound))
        node = UOp(op, flat.dtype, tuple(src), arg)
    if mould.shape is not None:
        shape = tuple([bound.get(n) if isinstance(n, UOp) else n for n in mould.shape])
        if None not in shape:
            node = node.shaped(shape)
    node.origin = node.origin or mould.out.view.origin
    return node


def _made(mould: Mould, given: Given, kit: Kit, relative: Holder | None) -> Holder:
    """The tensor of one output that `kit` lacks. `relative`: a view of the same buffer that was
    made earlier."""
    out, wants = mould.out, mould.wants
    kind, number, _ = out.source
    if kind == "made":
        buffer = kit.buffers[mould.number]
    elif kind == "input":
        relative, buffer = given.tensors[number], given.inputs[number]
        if out.itself:
            return relative
    elif kind == "constant" and out.state is None:
        return out.kind.of(out.view)
    elif isinstance(out.state, weakref.ref):
        found = out.state()
        assert found is not None, "a state that is gone was noticed before"
        return found
    else:
        assert out.state is not None, "a view of the state is like another"
        node = out.state.uop
        return out.state.alike(_bound(node, given.bound) if given.bound else node, wants)
    node = _view(mould, buffer, given.bound)
    return _alone(mould, node) if relative is None else relative.alike(node, wants)


def _bound(node: UOp, bound: Bound) -> UOp:
    """An expression or a view, with the values that variables have in this call."""
    return node.substitute({b: bound.get(b.src[0], b) for b in bindings_below(node)})


def _all_bound(sizes: Any, bound: Bound) -> Any:
    """Sizes in nested tuples, with the values that variables have in this call."""
    if isinstance(sizes, tuple):
        return tuple(_all_bound(size, bound) for size in sizes)
    return _bound(sizes, bound) if isinstance(sizes, UOp) else sizes


def _only_tensors(shape: Any) -> tuple[type, ...] | None:
    """The types of a call's arguments, if all of them are plain tensors."""
    parts = shape[1:]
    alone = all(type(part) is tuple and part[0] is Holder for part in parts)
    return tuple(part[1] for part in parts) if alone else None


def _form_of(tensor: Holder, buffer: Buffer) -> ArgumentForm:
    """The form that an argument must have for the fast path."""
    node = tensor.uop
    wants, room = tensor.requires_grad is True, node.room
    sizes = tuple(map(without_values, node.src[1:])) if node.op is Ops.SHRINK else ()
    return ArgumentForm(room, node.arg, sizes, node.dtype, buffer.device, buffer.fixed, wants)


def _take_variables(leaves: list[Any], bound: Bound) -> bool:
    """Moves variables from the leaves to `bound`. Returns whether each has a single value."""
    binds = [leaf for leaf in leaves if isinstance(leaf, UOp)]
    leaves[:] = [leaf for leaf in leaves if not isinstance(leaf, UOp)]
    return all(bound.setdefault(bind.src[0], bind) is bind for bind in binds)


def _same_sizes(node: UOp, form: ArgumentForm, bound: Bound) -> bool:
    if node.arg != form.arg or len(node.src) != len(form.sizes) + 1:
        return False
    for size, unbound in zip(node.src[1:], form.sizes, strict=True):
        if not matches(size, unbound, bound) or bound.setdefault(unbound, size) is not size:
            return False
    return True
