"""Capturing one call of a step: which plans ran, and where their buffers came from (an argument, an
earlier plan of the step, or *state*: what lies in memory whoever calls).

So that the three can't be mistaken for each other, arguments get nodes of their own while the step
runs, what was pending is computed before it starts, and what was computed before is computed again.
What a replay could not do as the call does is a JitError: a value read on the host, a state that is
rebound instead of overwritten, an argument that is changed from the inside. A tensor that the step
makes and keeps to itself can't be read afterwards, since no replay will make it again.
"""

from __future__ import annotations

import collections
import functools
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tinygrad.base.errors import JitError
from tinygrad.base.helpers import garbage_kept, once
from tinygrad.engine.containers import flatten, unflatten
from tinygrad.engine.gradients import Gradients, given_since
from tinygrad.engine.holders import Holder, ask_all, holders
from tinygrad.engine.layout import Source
from tinygrad.engine.outlines import Outlines
from tinygrad.engine.places import Place, Places, changed
from tinygrad.engine.reads import Reads
from tinygrad.engine.realize import (
    Run,
    before_overwriting,
    compute_pending,
    computing,
    in_memory,
    pending_writes,
    realize,
    telling,
    version_below,
)
from tinygrad.engine.replay import Execution
from tinygrad.engine.storage import (
    Buffer,
    Changes,
    bind,
    buffer_of,
    forgetting,
    forgotten,
    nothing,
    noting,
    realized_buffer,
)
from tinygrad.engine.streams import Stream
from tinygrad.engine.structure import nodes_below
from tinygrad.engine.turns import turns
from tinygrad.schedule.strides import steps_between
from tinygrad.uop import Ops, UOp
from tinygrad.uop.infer import from_zero, is_by_sizes, sizes_of

REPLACED = (
    "is a gradient that a captured step made after a zero_grad() of its own: no replay makes it "
    "again; legal is zero_grad() between the calls, or to return the gradient"
)
ESCAPED = (
    "was made inside a captured step, and is none of the tensors that it returned to the program: "
    "no replay makes it again; legal is to keep what a call returns"
)


@dataclass(frozen=True)
class Output:
    """A tensor that the step returned: `view` of a flat buffer that comes from `source`. `itself`:
    the tensor is the very object that is the argument or the state. Outputs with equal `family` are
    views of each other."""

    source: Source
    view: UOp
    kind: type[Holder]
    family: int
    owns_elements: bool = False
    wanted_gradient: bool = False
    itself: bool = False
    state: Holder | weakref.ref[Holder] | None = None


@dataclass
class Captured:
    """A captured call: the plans it ran, on which buffers, and what it returned."""

    signature: tuple[Any, ...]
    executions: list[Execution] = field(default_factory=list)
    state: list[Buffer] = field(default_factory=list)
    written: set[Buffer] = field(default_factory=set)  # those of the state
    written_inputs: set[int] = field(default_factory=set)
    streams: dict[str, tuple[Stream, int, int]] = field(default_factory=dict)  # advanced: from, to
    result: Any = None  # its shape
    outputs: list[Output | UOp | int] = field(default_factory=list)  # a number: that one again
    homes: list[tuple[weakref.ref[Holder], Buffer]] = field(default_factory=list)
    # movements by sizes that the bounds don't prove legal, and their numbers that must be >= 0
    sized: dict[tuple[Ops, Any, Any], list[UOp]] = field(default_factory=dict)
    lost: str | None = None  # a state that no tensor represents any more
    changes: int = 0  # at the last look at the homes
    places: Places = field(default_factory=lambda: Places(None))  # where the state was found
    # by `id`, tensors in such places that aren't in memory, and their nodes: constants, say, which
    # are part of a kernel
    expressions: dict[int, tuple[Holder, UOp]] = field(default_factory=dict)
    gradients: Gradients = field(init=False)
    happens: list[Callable[[], None]] = field(default_factory=list)  # on the host, each time

    @once
    def states(self) -> frozenset[Buffer]:
        """All buffers of the state."""
        return frozenset(self.state)

    @once
    def owned(self) -> list[int]:
        """Arguments for which a copy won't do: they are written, or a result is a view of them."""
        outputs = [out for out in self.outputs if isinstance(out, Output) and not out.itself]
        shown = {out.source.first for out in outputs if out.source.kind == "input"}
        return sorted(shown | self.written_inputs)


def completed(
    result: Any,
    changes: Iterable[weakref.ref[Any]],
    start: int,
    given: Iterable[Holder],
    more: Sequence[Holder] = (),
) -> tuple[Any, list[Any]]:
    """The shape of a step's result, and its leaves, behind which stand `more`. They are computed
    now, like everything that the call of the tensors `given`, begun at `start`, left to be written
    among its `changes`."""
    found: list[Any] = []
    shape = flatten(result, found)
    found += more
    families = {holder.family for holder in given}
    tensors = [leaf for leaf in found if isinstance(leaf, Holder)]
    with turns.together():  # what tensors stand for is hidden while another thread is alone
        mine = [tensor.settle_family(start, families) for tensor in tensors]
        realize(*mine, *pending_writes(changes, start))
    return shape, found


class Capture:
    """The capture of one call. `given` are the tensors among its arguments; `settled` are the same
    tensors, computed, each in a whole buffer. `own`: the gradients that the call before left."""

    def __init__(
        self,
        name: str,
        signature: tuple[Any, ...],
        given: Sequence[Holder],
        settled: Sequence[Holder],
        bound: dict[UOp, UOp],
        own: Collection[int],
    ) -> None:
        self.name, self.own = name, own
        self.made = Captured(signature)
        self.arguments = list(settled)
        self.copied = [a is not b for a, b in zip(settled, given, strict=True)]
        self.bound = {variable.arg[0]: bind.val for variable, bind in bound.items()}
        self.originals = [buffer_of(version_below(a.uop)) for a in self.arguments]
        self.places: dict[Buffer, Source] = {}
        self.start = 0  # tensors made later are the step's own, but for those of other threads
        self.others: Collection[int] = ()
        self.stand_ins: list[Holder] = []
        self.positions = {name: (s.position, s.restarts) for name, s in Stream.all.items()}

    def run(self, function: Callable[..., Any], shape: Any, leaves: Sequence[Any]) -> Captured:
        """Calls the function with arguments of this shape, and records what it does."""
        ask_all()
        self.gradients = self.made.gradients = Gradients(self.own)
        compute_pending()
        # garbage is kept so that references only vanish where the step drops them
        with garbage_kept(), holders.apart() as self.others:
            self.made.places = Places((function, shape))
            self.reads = Reads(self.made.places)
            before = _all_standing()
            expressions = _expressions(self.made.places)
            self.start = self.gradients.start = holders.now()
            self._record(function, shape, leaves)
            self.gradients.note(self.made.states, self.made.written)
            standing = self._check_state(before, expressions)
            self._forsake()
        self._remember()
        self._watch(standing)
        return self.made

    # ---- while the step runs -----------------------------------------------------------------

    def _record(self, function: Callable[..., Any], shape: Any, given: Sequence[Any]) -> None:
        """Runs the function on placeholders for its arguments while recording; then computes
        everything that it left to be computed, its results, and new gradients."""
        stand_ins = self.stand_ins = self._stand_ins()
        self.outlines = Outlines(self.bound, frozenset(self.places))
        fill = iter(stand_ins)
        leaves = [leaf if isinstance(leaf, UOp) else next(fill) for leaf in given]
        computing.recorder = self
        try:
            with forgetting():
                self.hidden = forgotten.copy()
                args, kwargs = unflatten(shape, iter(leaves))
                with telling(self.outlines.see), noting() as self.changes:
                    try:
                        with self.reads.watching():
                            result = function(*args, **kwargs)
                    except Exception:  # what it wrote to arguments is theirs all the same
                        realize(*pending_writes(self.changes, self.start))
                        raise
                    more = self.gradients.made(self.made.state)
                    self.made.result, found = completed(
                        result, self.changes, self.start, stand_ins, more
                    )
                    # completing may have read gradients that were nobody else's until then
                    more = self.gradients.made(self.made.state)
                    realize(*[gradient.uop for gradient in more])
                    found += more
                    del more
        finally:
            computing.recorder = None
        if not self.made.executions and not any(isinstance(leaf, Holder) for leaf in found):
            raise JitError(f"{self.name}: nothing was computed, so there is nothing to capture")
        self._check_arguments(shape, (args, kwargs), leaves, stand_ins)
        self._check_streams()
        families: dict[Any, int] = {}
        seen: dict[int, int] = {}
        for number, leaf in enumerate(found):
            out = leaf
            if isinstance(leaf, Holder):
                first = seen.setdefault(id(leaf), number)
                out = first if first < number else self._output(leaf, families, stand_ins)
            self.made.outputs.append(out)

    def _stand_ins(self) -> list[Holder]:
        """For each argument a tensor with a node of its own that shares the memory."""
        nodes: dict[Buffer, UOp] = {}
        made = []
        for number, (tensor, buffer) in enumerate(zip(self.arguments, self.originals, strict=True)):
            base = version_below(tensor.uop)
            if buffer not in nodes:
                shared = buffer.alias()
                node = UOp.new_buffer(buffer.device, base.arg, base.dtype)
                nodes[buffer] = bind(node, shared)
                self.places[shared] = Source("input", number)
            node = tensor.lies_at.viewed(nodes[buffer])
            made.append(type(tensor).of(node, tensor.requires_grad))
        return made

    def begins_gradient(self, holder: Holder) -> None:
        """Notes that replays must find none there."""
        self.gradients.begins(holder)

    def sees_gradient(self, holder: Holder) -> None:
        """Notes that replays must find one, or none, as this finds it now."""
        for number, argument in enumerate(self.stand_ins):
            if holder is argument and not holder.has_gradient:
                raise JitError(
                    f"{self.name}: reads .grad of argument {number}, which replays are not given; "
                    "legal is the gradient as an argument of its own"
                )
        place = realized_buffer(holder._grad.uop) if holder.has_gradient else None
        if not holder.has_gradient or (place is not None and place not in self.made.written):
            self.gradients.sees(holder)

    def sets_gradient(self, holder: Holder, gradient: Any) -> None:
        """Notes that replays must leave there what the step leaves."""
        self.gradients.sets(holder, gradient)

    def each_time(self, happens: Callable[[], None]) -> None:
        """Notes what the host does before each replay."""
        self.made.happens.append(happens)

    def unwatched(self) -> AbstractContextManager[None]:
        """A context for internal computation, which is not the step's own code."""
        return self.reads.unwatched()

    def before(self, run: Run) -> None:
        """Computes what needs the old values of arguments that are about to be overwritten."""
        for buffer in run.written:
            source = self.places.get(buffer)
            if source is None or source.kind != "input" or source.first in self.made.written_inputs:
                continue
            if self.copied[source.first]:
                raise JitError(
                    f"{self.name}: writes into argument {source.first}, a part of a larger tensor "
                    "or one in another order, of which a replay gets a copy; legal are writes into "
                    "whole tensors, or into the larger one"
                )
            original = self.originals[source.first]
            if original in run.params or original in self.made.state:
                raise self._known_twice(source.first)
            self.made.written_inputs.add(source.first)
            computing.recorder = None
            try:
                before_overwriting([original])
            finally:
                computing.recorder = self

    def after(self, run: Run) -> None:
        """Records a plan that has run."""
        made = self.made
        for name, value in run.variables:
            bound = self.bound.get(name, value)
            if bound != value:
                raise JitError(
                    f"{self.name}: binds {name} to {value} inside, an argument binds it to {bound};"
                    " legal is one value of a variable in a step"
                )
        self._note_sizes(run.structure.nodes)
        sources = [self._source(buffer) for buffer in run.params]
        made.written.update(b for b in run.written if b in made.state)
        sink = run.structure.open_sink(run.numbers[len(run.structure.binds) :])
        made.executions.append(Execution(run.plan, sources, run.variables, sink))
        for number, buffer in run.results.items():
            self.places[buffer] = Source("made", len(made.executions) - 1, number)

    def _note_sizes(self, nodes: Iterable[UOp]) -> None:
        """Remembers which sizes must be looked at when variables have other values."""
        if self.bound:
            for node in nodes:
                if is_by_sizes(node) and (open_ones := from_zero(node, node.shape)):
                    self.made.sized[sizes_of(node)] = open_ones

    def buffer(self, source: Source) -> Buffer:
        """The buffer of a source in the call that was captured."""
        if source.kind == "input":
            return self.originals[source.first]
        return next(b for b, place in self.places.items() if place == source)

    def _source(self, buffer: Buffer) -> Source:
        if buffer not in self.places:
            self.places[buffer] = Source("state", len(self.made.state))
            self.made.state.append(buffer)
        return self.places[buffer]

    # ---- what it did --------------------------------------------------------------------------

    def _check_arguments(
        self, shape: Any, arguments: Any, leaves: Sequence[Any], stand_ins: Sequence[Holder]
    ) -> None:
        """The step may write into its arguments, but must not rebind them."""
        after: list[Any] = []
        same = flatten(arguments, after, self.name) == shape and len(after) == len(leaves)
        if not same or any(a is not b for a, b in zip(after, leaves, strict=True)):
            raise JitError(
                f"{self.name}: changes a container among its arguments, which replays don't do; "
                "return the new value instead"
            )
        for number, tensor in enumerate(stand_ins):
            if tensor.has_gradient:
                raise JitError(
                    f"{self.name}: a gradient reached argument {number}, whose .grad replays don't "
                    "set; return it instead (`loss.gradient(x)`), or give x.detach()"
                )
            buffer = realized_buffer(tensor.uop)
            source = None if buffer is None else self.places.get(buffer)
            if source is None or source.kind != "input":
                raise JitError(
                    f"{self.name}: puts another tensor in the place of argument {number}, which "
                    "replays don't do; return it, or .assign() to the argument"
                )
        made = self.made
        for number, buffer in enumerate(self.originals):
            first = self.originals.index(buffer)
            if buffer in made.state and (buffer in made.written or first in made.written_inputs):
                raise self._known_twice(number)

    def _known_twice(self, number: int) -> JitError:
        return JitError(
            f"{self.name}: argument {number} is also read or written as a tensor from outside, and "
            "one of the two is overwritten; legal is one way to it"
        )

    def _check_streams(self) -> None:
        for name, (before, restarts) in self.positions.items():
            stream = Stream.all.get(name)
            if stream is None:
                continue
            if stream.restarts != restarts:
                raise JitError(
                    f"{self.name}: seeds a random stream inside, which replays don't do; seed it "
                    "outside, or draw from a generator that is made inside"
                )
            if stream.position != before:
                self.made.streams[name] = (stream, before, stream.position)

    def _output(
        self, tensor: Holder, families: dict[Any, int], stand_ins: Sequence[Holder]
    ) -> Output:
        node, kind = tensor.lies_at, type(tensor)
        base, family = node.base, families.setdefault(tensor.family, len(families))
        old = tensor.serial < self.start
        if base.op is not Ops.BUFFER:  # a constant, or nothing at all
            state = weakref.ref(tensor) if old else None
            return Output(Source("constant", 0), node, kind, family, itself=old, state=state)
        source = self._source(buffer_of(base))
        facts = (tensor.owns_elements, tensor.requires_grad is True)
        for number, stand_in in enumerate(stand_ins):
            if tensor is stand_in:
                return Output(Source("input", number), node, kind, family, *facts, itself=True)
        if source.kind == "input" and self.copied[source.first]:
            raise JitError(
                f"{self.name}: returns a view of argument {source.first}, which is a part of a "
                "larger tensor or in another order; return its .clone()"
            )
        self._note_sizes(steps_between(node, base))
        if source.kind == "state":
            kept = weakref.ref(tensor) if old else tensor.alike(node)
            return Output(source, node, kind, family, *facts, old, kept)
        view = node.viewed(base.src[1].new_storage(base.arg, base.dtype))
        view.origin = base.origin
        return Output(source, view, kind, family, *facts)

    def _check_state(
        self, before: Sequence[_Standing], expressions: dict[int, tuple[Holder, UOp]]
    ) -> list[_Standing]:
        """The tensors, of those that existed before, that represent state. If the step rebinds one
        (`self.h = ...`), replays would never see the change: another tensor is in its place. State
        that wasn't found in any place then has fewer references, or is gone. (Views of what was
        found are also other threads', which drop them when they like.)"""
        state, places = self.made.states, self.made.places
        stood = {id(standing.holder()): standing for standing in before}
        for holder in [reference() for reference in self.changes]:
            if isinstance(holder, Holder) and holder.serial < self.start:
                standing = stood.get(id(holder))
                if standing is None or standing.is_another():
                    origin = _origin_of(holder) if standing is None else standing.origin
                    raise JitError(
                        f"{self.name}: a tensor{origin} becomes another expression (replace, a "
                        "write that gradients follow, or to constants, or to what a copy shares), "
                        "which replays don't do; return the new one, or .assign() to a "
                        ".detach().clone() of it"
                    )
        found = [s for s in before if s.buffer() in state]
        self.rebound = set(map(id, places.others()))
        watched = {id(path[-1].value) for path in places.paths.values()} | self.gradients.places
        lost = set(map(id, places.look_again()))
        settings, contents = self.reads.settings(), self.reads.contents
        for name, was, now in changed(settings):
            raise JitError(
                f"{self.name}: changes {name} from {was!r:.80} to {now!r:.80}, and reads it, "
                "which replays don't do; legal is a tensor, with .assign(), or an argument"
            )
        settings += contents.settings()
        if self.gradients:  # replays make them for the same tensors
            reached = {id(path[-1].value) for path in places.paths.values()}
            wishes = [standing.wish() for standing in found if id(standing.holder()) in reached]
            settings += [wish for wish in wishes if wish is not None]
        for each, (holder, node) in expressions.items():
            if each not in lost and not is_another(holder, node):
                self.made.expressions[each] = holder, node
        tensors = {id(standing.holder()) for standing in found}
        places.watch(tensors.union(self.made.expressions), settings)
        explained = {standing.buffer() for standing in found if id(standing.holder()) in watched}
        for standing in found:
            fewer = _references(standing.holder) < standing.references
            if id(standing.holder()) in lost or (fewer and standing.buffer() not in explained):
                raise JitError(
                    f"{self.name}: reads a tensor{standing.origin} and puts another in its place, "
                    "which replays don't do; .assign() to it instead"
                )
        for name, was, now in contents.changes():
            raise JitError(
                f"{self.name}: changes {name} from {was!r:.80} to {now!r:.80}, which replays don't "
                "do; legal are arguments for what it takes, results for what it makes, and "
                "Tensor.rand for random numbers"
            )
        return found

    def _forsake(self) -> None:
        """Values that the step made and did not return become unreadable. Not what other threads
        made meanwhile: what was computed for them here is theirs, since no replay overwrites it."""
        gradients = given_since(self.start)
        for holder in holders.since(self.start):
            node = holder.lies_at
            if holder.serial in self.others:
                continue
            if self._is_of_now(holder) or any(map(self._is_of_this_call, _storage_below(node))):
                why = REPLACED if holder.serial in gradients else ESCAPED
                gone = nothing(node.device, node.size, node.dtype, why)
                gone.origin = node.origin
                holder.hold(gone.in_room(node.shape))

    def _remember(self) -> None:
        """What was computed before is where it was: the buffers that this call filled are those of
        its results alone, and who holds the same expression doesn't follow it there."""
        for node, value in self.hidden.items():
            if value is not None and value.base.storage is not None:
                node.known = value

    def _is_of_now(self, holder: Holder) -> bool:
        """Whether it is an expression of the state as the step leaves it, which has another value
        after a replay."""
        if holder.uop.base.op is Ops.BUFFER or not (below := _storage_below(holder.uop)):
            return False
        if id(holder) in self.rebound or id(holder) in self.gradients.left:
            return True
        return any(realized_buffer(n) in self.made.written for n in below)

    def _is_of_this_call(self, node: UOp) -> bool:
        buffer = realized_buffer(node)
        source = None if buffer is None else self.places.get(buffer)
        return source is not None and source.kind != "state"

    def _watch(self, standing: Sequence[_Standing]) -> None:
        """Remembers which tensors represent the state, so that a replay notices when they no longer
        do."""
        made, alive = self.made, collections.Counter(s.buffer() for s in standing)

        def died(buffer: Buffer, origin: str, _: Any) -> None:
            alive[buffer] -= 1
            if not alive[buffer]:
                made.lost = origin

        for each in standing:
            holder, buffer = each.holder(), each.buffer()
            if holder is not None and buffer is not None:
                tell = functools.partial(died, buffer, each.origin)
                made.homes.append((weakref.ref(holder, tell), buffer))
        made.changes = Changes.count


# ---- tensors that stand for state ----------------------------------------------------------------


class _Standing(NamedTuple):
    """A tensor that represented a buffer before the step ran, its number of references, and whether
    it wanted a gradient."""

    holder: weakref.ref[Holder]
    buffer: Callable[[], Buffer | None]
    references: int
    origin: str
    wants: bool | None

    def is_another(self) -> bool:
        """Whether the tensor represents something else now."""
        holder = self.holder()
        if holder is None:
            return False
        now = realized_buffer(holder.uop)
        return now is None or now is not self.buffer()

    def wish(self) -> tuple[str, Place] | None:
        """What it says of gradients, as a setting, unless the step itself changed that."""
        holder = self.holder()
        if holder is None or holder.requires_grad is not self.wants:
            return None
        name = f"requires_grad of a tensor of shape {holder.uop.shape}"
        return name, Place(getattr, holder, "requires_grad", self.wants)


def _references(reference: weakref.ref[Holder]) -> int:
    holder = reference()
    return 0 if holder is None else sys.getrefcount(holder)


def _all_standing() -> list[_Standing]:
    found = []
    for reference in holders.references():
        count = _references(reference)
        holder = reference()
        if holder is None or holder.is_broken:
            continue
        if (buffer := realized_buffer(holder.uop)) is not None:
            about = count, _origin_of(holder), holder.requires_grad
            found.append(_Standing(reference, weakref.ref(buffer), *about))
    return found


def _expressions(places: Places) -> dict[int, tuple[Holder, UOp]]:
    """The tensors in these places that are not in memory, by `id`, and their nodes."""
    held = [place.value for *_, place in places.paths.values() if not place.value.is_broken]
    return {id(holder): (holder, holder.uop) for holder in held if not in_memory(holder.uop)}


def is_another(holder: Holder, node: UOp) -> bool:
    """Whether what stood for `node` has another value now. It may have been computed since."""
    return holder.uop not in (node, node.known)


def _origin_of(holder: Holder) -> str:
    origin = holder.uop.base.origin
    return f" (made at {origin})" if origin else ""


# ---- nodes ---------------------------------------------------------------------------------------


def _storage_below(node: UOp) -> list[UOp]:
    if node.base.op is Ops.BUFFER:
        return [node.base]
    return [n for n in nodes_below([node]) if n.op is Ops.BUFFER]
