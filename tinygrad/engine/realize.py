"""From lazy to computed: what `Tensor.realize`, `numpy` and friends call.

A realized node keeps its meaning and gains `known`, the view of storage that holds its value;
everything else that shares the node sees it.

This file decides what a call computes besides what is wanted (what living tensors still need of
versions that are about to be overwritten), and when; which thread asks, which records, and who is
told. How a plan is found or made (`plans`) and run (`run`), and what a kernel is, it doesn't know.

Read in this order: `_compute` (find the plan, or make it without a lock, then run), `_pending` and
`_old_readers` (what has to be computed too), `_run` and `_publish` (where values are afterwards),
`before_overwriting` (the same question for replays, which overwrite without a graph), `read`.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

import tinygrad.engine.loop  # noqa: F401  registers how to run a SCAN
from tinygrad.backends import keeps
from tinygrad.base.errors import ArgumentError, JitError
from tinygrad.base.helpers import garbage_kept
from tinygrad.base.settings import ANY_SIZE
from tinygrad.engine.aliases import bottom_of, without_detach, writable_part
from tinygrad.engine.chains import Runs, note_unstored
from tinygrad.engine.devices import Device
from tinygrad.engine.faults import Taken, leave, note, noted, raise_faults, spoilt
from tinygrad.engine.holders import Holder, ask_all, holders
from tinygrad.engine.numbers import Number
from tinygrad.engine.plans import Found, known_plan, make_plan
from tinygrad.engine.run import Over, RunnablePlan, arenas_for
from tinygrad.engine.storage import (
    Buffer,
    Changes,
    Family,
    as_array,
    bind,
    buffer_of,
    computed_from,
    copies_of,
    copy_of,
    expected_of,
    forgotten,
    is_borrowed,
    is_read,
    is_read_by_others,
    is_shared,
    latest,
    learn,
    node_of,
    numpy_dtype,
    overwritten,
    renew,
)
from tinygrad.engine.structure import (
    Structure,
    add_nodes_below,
    nodes_below,
    nodes_of,
    resolved,
    resolved_beneath,
    structure_of,
)
from tinygrad.engine.turns import in_turn, keeping, turns
from tinygrad.engine.views import is_shown, shown, shown_of
from tinygrad.schedule.bases import beneath, is_kernelized, stored_base
from tinygrad.uop import GroupOp, Ops, UOp
from tinygrad.uop.placement import names_of


class Run(NamedTuple):
    """One run of a plan."""

    wanted: Sequence[UOp]
    structure: Structure  # of what is wanted
    plan: RunnablePlan
    params: list[Buffer]  # what the plan is given
    variables: list[tuple[str, int]]  # names and values
    numbers: list[Number]  # those in the structure: the first variables have their values
    buffers: list[Buffer]  # of all storages, once it has run

    @property
    def values(self) -> list[int]:
        """The values of the variables."""
        return [value for _, value in self.variables]

    @property
    def results(self) -> dict[int, Buffer]:
        """The buffers of its results, by the number of their storage."""
        storages = enumerate(self.plan.plan.storages)
        return {number: self.buffers[number] for number, s in storages if s.kind == "out"}

    @property
    def written(self) -> set[Buffer]:
        """The parameters that it overwrites."""
        storages, steps = self.plan.plan.storages, self.plan.plan.steps
        numbers = {n for step in steps for n in step.storages[: step.writes]}
        written = {storages[n].whole if storages[n].kind == "part" else n for n in numbers}
        return {self.params[storages[n].place] for n in written if storages[n].kind == "param"}


class Recorder(Protocol):
    """An observer of a thread's computations: TinyJit captures through it."""

    name: str
    start: int  # of the numbers of tensors that are made while it observes
    others: Collection[int]  # those of them that other threads make

    def begins_gradient(self, holder: Holder) -> None:
        """A tensor has no gradient: it gets one, or what has none is treated otherwise."""

    def sees_gradient(self, holder: Holder) -> None:
        """The step's own code looks whether a tensor has a gradient."""

    def sets_gradient(self, holder: Holder, gradient: Any) -> None:
        """A tensor shall have this gradient, or, if it is None, none."""

    def each_time(self, happens: Callable[[], None]) -> None:
        """Something is done by the host, which it has to do in each replay, too."""

    def unwatched(self) -> contextlib.AbstractContextManager[None]:
        """A context for internal computation, which is not the step's own code."""

    def before(self, run: Run) -> None:
        """A plan is about to run."""

    def after(self, run: Run) -> None:
        """A plan has run."""


class _Computing(threading.local):
    recorder: Recorder | None = None
    done: Callable[[Run], None] | None = None
    for_others: bool = False


computing = _Computing()
"""For each thread: its recorder, the listeners to what was computed, and whether it didn't ask for
that itself."""


def without_gradient(holder: Holder) -> None:
    """Says that code which depends on it found no gradient there."""
    if computing.recorder is not None:
        computing.recorder.begins_gradient(holder)


def each_time(happens: Callable[[], None]) -> None:
    """Calls `happens` now, and before each replay of the step that this is part of, if it is being
    captured: what it raises ends the replay before anything is written."""
    recorder = computing.recorder
    with contextlib.nullcontext() if recorder is None else recorder.unwatched():
        happens()
    if recorder is not None:
        recorder.each_time(happens)


@contextlib.contextmanager
def telling(done: Callable[[Run], None]) -> Iterator[None]:
    """A context in which `done` is told what this thread computes; outer listeners are told,
    too."""
    outside = computing.done

    def tell(run: Run) -> None:
        done(run)
        if outside is not None:
            outside(run)

    computing.done = tell
    try:
        yield
    finally:
        computing.done = outside


def capturing() -> bool:
    """Whether this thread is capturing a step."""
    return computing.recorder is not None


open_inputs: dict[UOp, int] = {}
"""BUFFERs without storage in a graph that is only being built (for an export): what depends on them
stays uncomputed, and can't be read. With `holders.now()` when that began."""


def is_open(node: UOp) -> bool:
    """Whether a value depends on inputs that have no storage."""
    return bool(open_inputs) and not open_inputs.keys().isdisjoint(nodes_below([node]))


def realize(*roots: UOp) -> None:
    """Computes the roots; afterwards `latest(root)` is a view of storage."""
    wanted = [root for root in map(latest, roots) if not in_memory(root) and not is_open(root)]
    if wanted:
        _compute(wanted)


@in_turn
def _compute(wanted: list[UOp]) -> None:
    recorder = computing.recorder
    pending: Pending | None = None
    moment = None
    own = recorder is not None or not ANY_SIZE  # a step that is captured keeps its sizes
    with recorder.unwatched() if recorder else contextlib.nullcontext():
        while True:
            with keeping.now:
                if pending is None or moment != _moment():
                    pending, moment = _pending(wanted), _moment()
                if pending is None:
                    return
                if (found := known_plan(pending.structure, own)) is not None:
                    _run(pending, found)
                    return
            try:
                with garbage_kept():
                    make_plan(pending.structure, own)  # takes long, so others go on
            except Exception:
                others = [node for node in pending.wanted if node not in wanted]
                if not others:
                    raise
                _realize_for_others(*others)  # those that can be; then it is seen whose error it is
                _hopeless.update(node for node in others if not in_memory(latest(node)))
                pending = None


def _moment() -> tuple[int, int, int]:
    """Stays the same as long as no thread computes, writes, or makes a tensor."""
    return Runs.count, Changes.count, holders.newest


_hopeless: weakref.WeakSet[UOp] = weakref.WeakSet()
"""What has no plan, or kernels that can't be made: no write waits for it, so it is lost with the
old version that it reads."""


def _realize_for_others(*roots: UOp) -> None:
    """Computes what this thread didn't ask for: of an error or a fault in it hears who reads it."""
    before, computing.for_others = computing.for_others, True
    try:
        realize(*roots)
    except Exception:
        for root in roots if len(roots) > 1 else ():
            _realize_for_others(root)
    finally:
        computing.for_others = before


class Pending(NamedTuple):
    """What is to be computed, and its structure."""

    wanted: list[UOp]
    structure: Structure


def _pending(roots: Sequence[UOp]) -> Pending | None:
    wanted = _without_views([root for root in map(latest, roots) if not in_memory(root)])
    if not wanted:
        return None
    with garbage_kept():
        nodes = nodes_below(wanted)
        if nodes_of(Ops.ASSIGN, nodes):
            nodes = _with_old_readers(wanted)
        return Pending(wanted, structure_of(wanted, nodes))


def _without_views(wanted: Sequence[UOp]) -> list[UOp]:
    """Without what will be a view of something else that is `wanted`, once that is in memory."""
    stored = set(wanted)

    def is_view(node: UOp) -> bool:
        base = node.base
        return base is not node and base in stored and beneath(node, GroupOp.View) is base

    return [node for node in wanted if not is_view(node)]


def _run(pending: Pending, found: Found) -> None:
    (wanted, structure), (runnable, variables, numbers, is_of_any_size) = pending, found
    params = [buffer_of(node) for node in structure.params]
    given = _in_room(wanted, runnable) if is_of_any_size else {}
    buffers = runnable.storages(params, given, arenas_for([runnable]))
    # it runs, a capture observes it, and CHECKs leave fault words for the next read
    run = Run(wanted, structure, runnable, params, variables, numbers, buffers)
    recorder = computing.recorder
    if recorder is not None:
        recorder.before(run)
    if runnable.faults:  # which may be looked at as soon as it runs
        origins = _origins_of_checks(structure)
        for words in runnable.faults:
            words.origins = origins
    chain, taken, over = runnable.chain, Taken(), Over()
    try:
        chain.run(buffers, run.values, taken, over)
        if noted or spoilt or any(taken.values()):
            note(chain.flow, buffers, taken, over, not computing.for_others)
        else:
            over.append(None)
            leave(taken)
        if computing.done is not None:
            computing.done(run)
        if recorder is not None:
            recorder.after(run)
        # nodes learn where their values are; memory that others may write becomes a new version
        _publish(run)
        note_unstored(structure.nodes)
    except BaseException as error:  # Ctrl-C at any place: what is over must not be done again
        if chain.finish(buffers, run.values, taken, over, error):
            _publish(run)
        raise
    for buffer in params:
        if buffer.others:
            renew(buffer)


def _in_room(wanted: Sequence[UOp], runnable: RunnablePlan) -> dict[int, Buffer]:
    """Storage for results of a plan for several sizes, which may read as far as the largest."""
    given: dict[int, Buffer] = {}
    for root, number in zip(wanted, runnable.plan.results, strict=True):
        kept = runnable.plan.storages[number]
        nbytes = stored_base(root).size * kept.dtype.itemsize
        if kept.kind == "out" and nbytes < kept.nbytes:
            given[number] = Buffer(kept.device, kept.nbytes).view(0, nbytes)
    return given


def _with_old_readers(wanted: list[UOp]) -> list[UOp]:
    """The nodes below what is `wanted`, which write. That list grows by what living tensors still
    need of versions that these nodes overwrite: afterwards it could not be computed any more."""
    nodes: list[UOp] = []
    seen: set[UOp] = set()
    add_nodes_below(wanted, nodes, seen)
    ask_all()  # promised writes must be nodes before this looks for them
    more = nodes
    while nodes_of(Ops.ASSIGN, more):
        readers = _of_this_step(_old_readers(wanted, nodes, seen))
        wanted[:] = _without_views([*wanted, *readers])
        more = []  # may overwrite something in turn
        add_nodes_below(readers, more, seen)
        nodes += more
    return nodes


def _origins_of_checks(structure: Structure) -> dict[tuple[str, str], str | None]:
    """For each check, the user's line that made the first value with that check."""
    found: dict[tuple[str, str], str | None] = {}
    unnamed: dict[UOp, set[tuple[str, str]]] = {}
    checks = set(nodes_of(Ops.CHECK, structure.nodes))
    for node in structure.nodes:
        if not unnamed and node not in checks:
            continue
        inside = set().union(*(unnamed.get(resolved(s), ()) for s in node.src))
        if node in checks:
            inside.add(node.arg)
        if inside and node.origin is not None:
            for check in inside:
                found.setdefault(check, node.origin)
        elif inside:
            unnamed[node] = inside
    return found


def in_memory(node: UOp) -> bool:
    """Whether `node` is a view of storage that holds its value already. On devices without kernels
    all movement is a view; on others windows are, if elements repeat in them."""
    below, views = node, GroupOp.Movement if keeps(node.device) else GroupOp.View
    while below.op in views or below.op is Ops.DETACH:
        below = resolved(below.src[0])
    if below.op is Ops.BUFFER:
        return True
    bottom = bottom_of(below)
    return bottom.op is Ops.BUFFER and stored_base(below) is bottom


def _old_readers(wanted: Sequence[UOp], nodes: Sequence[UOp], inside: set[UOp]) -> list[UOp]:
    """The values that living tensors still need of versions about to be overwritten. `nodes`, and
    as a set `inside`, are all nodes that are about to be computed."""
    assigns = [n for n in nodes_of(Ops.ASSIGN, nodes) if not is_kernelized(n)]
    if not assigns:
        return []
    old = {version_below(n.src[0]) for n in assigns}
    held = list(dict.fromkeys(h.lies_in for h in _waiting()))
    held = [n for n in held if n not in _hopeless and not in_memory(n)]
    pending = [n for n in held if _version_of(n) not in inside]
    if not pending:
        return []
    outside: list[UOp] = []
    add_nodes_below(pending, outside, set(nodes))
    reading = set(old)
    written = set(nodes_of(Ops.ASSIGN, nodes))
    for node in itertools.chain(nodes, outside):
        if node in written:
            continue  # whoever reads it reads the new version
        if not reading.isdisjoint(node.src):
            reading.add(node)
            continue
        for source in node.src:
            if source not in reading and resolved(source) in reading:
                reading.add(node)
                break
    reading.difference_update(map(resolved, wanted))
    return [node for node in pending if resolved(node) in reading]


def _of_this_step(readers: list[UOp]) -> list[UOp]:
    """What a step that is being captured computes itself. What only other threads wait for, which
    replays have nothing to do with, is computed now, and not recorded."""
    recorder, done = computing.recorder, computing.done
    if recorder is None or not recorder.others or not readers:
        return readers
    mine = {holder.lies_in for holder in holders if holder.serial not in recorder.others}
    computing.recorder = computing.done = None
    try:
        _realize_for_others(*[node for node in readers if node not in mine])
    finally:
        computing.recorder, computing.done = recorder, done
    return [node for node in readers if node in mine]


def _waiting() -> Iterator[Holder]:
    """The tensors that may be waiting for their values. What was computed before a step that is
    being captured is only hidden: it has its value again afterwards."""
    recorder = computing.recorder
    for holder in holders:
        if recorder is None or holder.uop not in forgotten or holder.serial >= recorder.start:
            yield holder


def before_overwriting(buffers: Sequence[Buffer]) -> None:
    """Must be called before a replay overwrites these buffers: living tensors get what they still
    need of the old values, and expressions computed from them refer to an old version from now
    on."""
    ask_all()
    for buffer in buffers:
        version = None if buffer.version is None else buffer.version()
        if version is not None and (
            buffer.others
            or version.readers
            or ((families := version.families) is not None and families.copied)
        ):
            break
    else:
        return
    _compute_readers(buffers)


@in_turn
def _compute_readers(buffers: Sequence[Buffer]) -> None:
    pairs = [(node, buffer) for buffer in buffers if (node := node_of(buffer)) is not None]
    for node, _ in pairs:
        if copies_of(node):
            copy_out(node)
    nodes = [node for node, buffer in pairs if buffer.others or is_read(node)]
    if not nodes:
        return
    old = set(nodes)
    pending = [h.uop for h in holders if not in_memory(h.uop)]
    _realize_for_others(*(n for n in pending if not old.isdisjoint(nodes_below([n]))))
    for node in nodes:
        overwritten(node)


@in_turn
def copy_out(base: UOp) -> None:
    """Makes the copies of parts of the version `base`, which is overwritten next."""
    for holder in holders:
        holder.copy_out(base)


def pending_writes(changes: Iterable[weakref.ref[Any]], start: int) -> list[UOp]:
    """What isn't computed yet of these changes, which one thread made, while others make theirs:
    versions of buffers that tensors represent, and what tensors from before `start` became."""
    found = [reference() for reference in changes]
    nodes = [each.uop for each in found if isinstance(each, Holder) and each.serial < start]
    mine = {_version_of(e.uop) if isinstance(e, Holder) else e for e in found} - {None}
    held = [h.uop for h in holders] if mine else []
    nodes += [node for node in held if _version_of(node) in mine]
    return [node for node in dict.fromkeys(nodes) if not in_memory(node)]


def compute_pending() -> None:
    """Computes what living tensors are waiting for: from then on these are state, whatever a step
    that reads them does. Values of constants alone are left out; and so are those that follow
    element by element from a file's bytes, which no one can change: quantised weights stay part of
    the products that read them."""
    held = dict.fromkeys(h.uop for h in holders)
    pending = [n for n in held if not in_memory(n) and 0 not in n.shape]
    stored: set[UOp] = set()  # values that depend on storage or on random numbers
    of_files: set[UOp] = set()
    for node in nodes_below(pending):
        sources = [resolved(source) for source in node.src]
        if node.op is Ops.BUFFER and is_borrowed(node):
            of_files.add(node)
        elif node.op in (Ops.BUFFER, Ops.BIND) or not stored.isdisjoint(sources):
            stored.add(node)
        elif not of_files.isdisjoint(sources):
            (of_files if node.op in _BY_ELEMENT else stored).add(node)
    for node in pending:
        if resolved(node) in stored:
            _realize_for_others(node)


_BY_ELEMENT = GroupOp.Movement | GroupOp.Elementwise | {Ops.DETACH}


def _version_of(node: UOp) -> UOp | None:
    """The assigned version that `node` is a view of, if it is one."""
    base = version_below(node)
    return base if base.op is Ops.ASSIGN else None


def version_below(node: UOp) -> UOp:
    """The version of a buffer that `node` is a view of."""
    return resolved_beneath(node, GroupOp.Movement)


def _publish(run: Run) -> None:
    """Tells the nodes where their values are now; some of them may have been told already."""
    last_version: dict[UOp, UOp] = {}
    first: dict[UOp, UOp] = {}  # the versions before all ASSIGNs
    for node in nodes_of(Ops.ASSIGN, run.structure.nodes):  # each after those that it overwrites
        below = version_below(node.src[0])
        home = first[node] = first.get(below, below)
        if is_kernelized(node):
            learn(node, home)
        elif home.op is Ops.BUFFER:
            last_version[home] = node  # the first and what was between are lost
    for node in last_version.values():
        if node.known is None:
            overwritten(first[node], node)
    for root, number in zip(run.wanted, run.plan.plan.results, strict=True):
        base = stored_base(root)
        if base.op in (Ops.ASSIGN, Ops.BUFFER) or base.known is not None:
            continue
        buffer = run.buffers[number]
        made = bind(UOp.new_buffer(buffer.device, base.size, base.dtype), buffer)
        made.origin = base.origin
        computed_from(made, base)
        learn(base, made.in_room(base.shape))
    for root in run.wanted:
        if root.known is None and stored_base(root).known is not None:
            learn(root, same_view(root))


def same_view(root: UOp) -> UOp:
    """A root's movement, applied to the known value of its stored base."""
    base = root
    while base.known is None:
        base = base.src[0]
    return without_detach(root, base, base.known)


# ---- reading -------------------------------------------------------------------------------------


def whole_buffer(node: UOp) -> UOp:
    """`node`, computed and contiguous: a RESHAPE of a whole BUFFER, or of the used part of its
    room."""
    realize(node)
    node = latest(node)
    if (found := buffer_of_all(node)) is not None:
        return found
    copy = node.contiguous()
    realize(copy)
    return latest(copy).base


def buffer_of_all(node: UOp) -> UOp | None:
    """The BUFFER that `node` is all of, in its order, or the used part of the room of."""
    if node.op is Ops.SHRINK:
        part = writable_part(node)
        if part.base.in_room(part.shape) is part:
            return part.base
    plain = resolved_beneath(node, (Ops.RESHAPE,))
    return plain if plain.op is Ops.BUFFER else None


def is_needed(base: UOp, family: Family) -> bool:
    """Whether the version `base`, which `family` writes next, has to stay for others; copies of it
    are made now. While a step is captured, not for an expression from before that no tensor holds:
    replays know nothing of state that moves. Who asks for it later hears that it was overwritten.
    """
    if copies_of(base):
        copy_out(base)
    if computing.recorder is None or is_borrowed(base) or is_read_by_others(base, family):
        return is_shared(base, family)
    expression = expected_of(base)
    if expression in forgotten:
        return any(holder.uop is expression for holder in holders)
    return expression is not None


def own_copy(base: UOp) -> UOp:
    """Storage of its own with the elements of `base`: a view of all of a BUFFER."""
    if base.op is Ops.BUFFER and computing.recorder is None:
        raise_faults(buffer_of(base))
        return copy_of(base)
    copy = base.contiguous().replace(tag="own")  # a kernel, so that replays copy too
    realize(copy)
    found = latest(copy)
    copy.known = None  # no one else gets it
    return found


FEW = 1024
"""Views of so few elements are read from storage directly, which is faster than a kernel that makes
them contiguous."""


def check_readable(node: UOp) -> None:
    """JitError in a captured step, ArgumentError while only a graph is being built: there is no
    value yet for the host to read."""
    if computing.recorder is not None:
        raise JitError(
            f"{computing.recorder.name}: a value of shape {node.shape} is read on the host (item, "
            "tolist, numpy, `if tensor`) inside the captured step, and replays would keep the "
            "decision made on this one; return the tensor and read it outside, or use .where()"
        )
    if is_open(node):
        raise ArgumentError(
            f"a value of shape {node.shape} is read while its graph is only being built, without "
            "inputs; legal is to return it"
        )


def read(node: UOp, copy: bool = True) -> np.ndarray[Any, Any]:
    """The value as a NumPy array of its shape; raises the errors that CHECKs found. Without `copy`
    it may be a view of the device's memory, as of a file's bytes: nobody else may write there."""
    if 0 in node.shape:
        return np.zeros(_sizes_now(node), numpy_dtype(node.dtype))
    check_readable(node)
    with turns.together():
        realize(bottom_of(latest(node)) if keeps(node.device) else node)
        with keeping.now:
            values = _values(node)
            return values.copy() if copy else values


def _values(node: UOp) -> np.ndarray[Any, Any]:
    view = latest(node)
    lies_there = keeps(node.device) or (view.size <= FEW and is_shown(view))
    base = bottom_of(view) if lies_there else whole_buffer(node)
    buffer = _filled(buffer_of(base))
    if lies_there:
        return shown(view, base)
    values = as_array(buffer, node.dtype).reshape(node.room)
    cut = tuple(map(slice, _sizes_now(node)))
    return values[cut] if cut else values  # a scalar's array has no axes


def _sizes_now(node: UOp) -> tuple[int, ...]:
    """The shape, with the numbers that symbolic sizes have now."""
    return tuple(n if isinstance(n, int) else n.val for n in node.shape)


def read_from(buffer: Buffer, like: UOp) -> np.ndarray[Any, Any]:
    """The value of a node like this one, whose stored base is all that is in the buffer."""
    end = stored_base(like)
    with turns.together(), keeping.now:
        array = as_array(_filled(buffer), end.dtype).reshape(end.shape)
        return shown_of(like, end, array).copy()


def _filled(buffer: Buffer) -> Buffer:
    """The buffer once all is done that writes to it; raises the errors that CHECKs found."""
    for name in names_of(buffer.device):
        Device[name].synchronize()
    raise_faults(buffer)
    return buffer
