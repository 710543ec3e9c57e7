"""What expressions of a tensor stand on: a promise, or a version of storage.

A tensor whose promise was kept has a node, and no promise. If that isn't computed, it is promised
again, so what a loop holds since its first step, which needed a graph, doesn't send all others the
long way."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tinygrad.backends import keeps
from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.engine.aliases import bottom_of
from tinygrad.engine.chains import MOST_ELEMENTS, grows, is_costly, unstored, waits
from tinygrad.engine.holders import Promised, holders
from tinygrad.engine.host import tell_copy
from tinygrad.engine.profile import GlobalCounters
from tinygrad.engine.storage import NOTHING, Buffer, computed_from, empty, learn
from tinygrad.engine.structure import nodes_below
from tinygrad.engine.turns import keeping, turns
from tinygrad.schedule.bases import MOVED, contiguous_base
from tinygrad.tensor.backlog import is_put_off
from tinygrad.tensor.looks import Look, look_at
from tinygrad.tensor.modes import recording
from tinygrad.tensor.promise import Expression, Promise, Source, Template, Written
from tinygrad.tensor.roots import equals_known, is_of_list
from tinygrad.tensor.version import Bound, Version, is_start_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def source_of(tensor: Any) -> Source | None:
    """The promise or the version that expressions of a tensor stand on; None if there must be
    a node."""
    source: Version | Promise | None = tensor._source
    if isinstance(source, Promise):
        is_open = source.buffer is None
        if is_open and _is_due(tensor, source) and _store(tensor, source.like):
            return source_of(tensor)
        is_alike = source.wants is tensor.requires_grad and source.look is not None
        if is_alike and (tensor._taped or not source.is_computed):
            return source
        _ask(tensor, source)
        source = None
    elif source is not None and (now := source.now(tensor)) is not None:
        return now
    if tensor._uop.known is None and tensor._uop.op not in _SHOWN:
        return _waiting(tensor, tensor._uop)
    return _version_of(tensor, source)


def _is_due(tensor: Any, promise: Promise) -> bool:
    """Whether it is time to compute what nobody has asked for."""
    made = promise.expression
    if made.grows or is_put_off(tensor, promise):
        return True
    if not made.is_costly:
        return False
    below = made.below()
    return not _may_pass(tensor, [*below, *[n for each in below for n in each.nodes or ()]])


def _waiting(tensor: Any, base: UOp) -> Source | None:
    """What a tensor of `base`, which isn't computed, stands on."""
    is_due = grows(base) or (is_costly(base) and not _may_pass(tensor, nodes_below([base])))
    is_there = is_due and _store(tensor, base) and base.known is not None  # not only a part of it
    return source_of(tensor) if is_there else _promised_again(tensor)


def _may_pass(tensor: Any, below: Collection[Expression | UOp]) -> bool:
    """Whether a gradient may be asked through a tensor that says nothing of that, for another one
    `below`: which would be forgotten once it is computed."""
    if tensor.requires_grad is not None or not dtypes.is_float(tensor.dtype):
        return False
    seen, living = set(below), list(holders)
    found: list[Any] = [each for each in living if _seen_as(each) in seen]
    return not all([each is tensor or _is_kin(each, tensor) for each in found])


def _is_kin(tensor: Any, other: Any) -> bool:
    return tensor._kin is not None and tensor._kin is other._kin


def _seen_as(tensor: Any) -> Expression | UOp:
    """What stands for a tensor in what is made of it."""
    source = tensor._source
    return source.expression if isinstance(source, Promise) else tensor._uop


def _version_of(tensor: Any, source: Version | None) -> Source | None:
    """The version of storage that a tensor is, if it is one."""
    view, node = tensor._value, tensor._uop
    base = view
    while base.op in MOVED and (len(base.src) == 1 or is_start_of(base)):
        base = base.src[0]
    buffer = base.storage
    if base.op is Ops.ASSIGN and tensor.requires_grad is True and not tensor._taped:
        return source_of(tensor) if recording.writes and tensor._compute_now() else None
    if base.op is Ops.BUFFER:
        is_fit = buffer is not None and not (buffer.fixed or buffer.parts)
    elif base.op is Ops.CONST or is_of_list(base):  # which is stored once lines are made of it
        is_fit = not tensor.requires_grad
    else:
        return _waiting(tensor, base)
    is_fit &= not tensor._element
    look = look_at(type(tensor), tensor.requires_grad, tensor._held) if is_fit else None
    if look is None or keeps(look.device) or base.newer is not None:
        return None
    made = Version(tensor, view, base, look, NOTHING.era if buffer is None else buffer.era)
    if tensor._source is not source or tensor._uop is not node or base.storage is not buffer:
        return source_of(tensor)  # another thread has written: this may be of two values
    if source is not None and source.takes(made):
        return made
    tensor._source = made
    return made


def _ask(tensor: Any, promise: Promise) -> None:
    """Has the node made. What gradients begin at, and a write, is computed first, so that they are
    storage to the next step."""
    begins = tensor.requires_grad is True and not tensor._taped
    if recording.writes and (begins or type(promise) is Written):
        tensor._compute_now()
    _ = tensor._uop


def store_before_write(tensor: Any) -> None:
    """Computes what is about to be overwritten, if a run made it and didn't store it: it is storage
    from then on, as what follows a network's random weights."""
    source = tensor._source
    if isinstance(source, Promise):
        nodes = source.expression.nodes
        node = None if nodes is None else nodes[source.number]
    else:
        node = tensor._uop
    made = None if node is None or tensor._kin is not None else unstored(node)
    if node is not None and made is not None and made.ran:
        _store(tensor, node)


def _store(tensor: Any, like: UOp) -> bool:
    """Computes what nobody asked for (`engine/chains`), unless it is large; whether it did. All
    writes that wait are done with it, so that the states of a loop don't do so in turns."""
    fits = 0 < prod(like.room) <= MOST_ELEMENTS
    if not fits or not recording.computes:
        return False
    waiting: list[Any] = []
    if not holders.are_apart:
        living: list[Any] = list(holders)
        nodes = [each for each in living if each._source is None and waits(each._uop)]
        waiting = [*writes_waiting(), *nodes]
    return tensor._compute_now(waiting) and not grows(tensor._uop)


def writes_waiting() -> list[Any]:
    """The tensors that wait for a promised write, in order of creation."""
    living: list[Any] = Promised.holders.living()
    waiting = [each for each in living if type(each._source) is Written]
    return sorted(waiting, key=attrgetter("serial")) if waiting else []


_SHOWN = MOVED | {Ops.BUFFER, Ops.CONST, Ops.ASSIGN, Ops.COPY}


MOST_DEEP = 40
"""Promises that stand on each other, of which the last may be promised again."""


class Before(NamedTuple):
    """What a node was promised as, before somebody asked for it. `sources`: nodes in the place of
    promises, which would keep what is computed."""

    template: Template
    sources: Sequence[Version | Bound | UOp]
    origin: str | None
    number: int
    look: Look | None
    wants: bool | None
    views: int | None  # the source that it is a view of
    now: weakref.ref[Promise]  # the same, promised again


def remember_promise(promise: Promise) -> None:
    """That a value, which isn't computed, had no node, and could do without. (Long chains stay
    nodes: to promise them again would take as long as they are.)"""
    waiting = [promise] if promise.depth <= MOST_DEEP else []
    while waiting:
        promise = waiting.pop()
        made, number = promise.expression, promise.number
        node = None if made.nodes is None else made.nodes[number]
        if node is None or node.before is not None or type(promise) is Written:
            continue
        below = [source for source in made.sources if isinstance(source, Promise)]
        sources = [s.node if isinstance(s, Promise) else s for s in made.sources]
        waiting += below
        if node in sources:  # a copy that comes to the same
            continue
        views = [i for i, s in enumerate(made.sources) if s in below and s.stored is promise._of]
        what = made.template, sources, made.origin, number, promise.look, promise.wants
        node.before = Before(*what, views[0] if views else None, weakref.ref(promise))


def _promised_again(tensor: Any) -> Promise | None:
    """The promise of a tensor that has a node, because somebody asked for it, and isn't computed:
    so what a loop holds doesn't send each of its steps the long way."""
    before = tensor._uop.before
    if before is None or before.look is None or before.look.kind is not type(tensor):
        return None  # a complex tensor has the node of a real one
    if tensor._kin is not None and tensor._kin.root is not None:
        return None  # whose views are none of what is promised
    is_alike = tensor._taped is (before.wants is True) and before.wants is tensor.requires_grad
    return _again(tensor._uop, {}) if is_alike else None


def _again(node: UOp, made: dict[UOp, Promise | None]) -> Promise | None:
    """What was promised, if nothing that it stands on was computed, which may be written, or is
    over. What was `made` on the way isn't made twice."""
    if node not in made:
        made[node] = None if equals_known(node) else _of_sources(node, made)
    return made[node]


def _of_sources(node: UOp, made: dict[UOp, Promise | None]) -> Promise | None:
    before: Before | None = node.before
    if before is None or before.look is None:
        return None
    sources: list[Source] = []
    for below in before.sources:
        source = _again(below, made) if isinstance(below, UOp) else below
        if source is None or (type(source) is Version and source.is_over):
            return None
        sources.append(source)
    promise = before.now()
    if promise is None:
        expression = Expression(before.template, sources, before.origin)
        of: Any = None if before.views is None else sources[before.views]
        promise = Promise(expression, before.number, before.look, before.wants, of)
        promise.again_for = weakref.ref(node)
        node.before = before._replace(now=weakref.ref(promise))
    return None if promise.is_computed else promise


def numbers_of(tensor: Any) -> Buffer | None:
    """What the host has of a tensor that is a copy of it, all in its order, and isn't made yet."""
    copy = _pending_copy(tensor)
    if copy is None or contiguous_base(tensor._uop) is not copy or copy.known is not None:
        return None
    return copy.src[0].storage  # type: ignore[no-any-return]


def _pending_copy(tensor: Any) -> UOp | None:
    """The copy of numbers of a list, to one device, that a tensor is, or is a view of, and that is
    yet to be made."""
    copy = None if isinstance(tensor._source, Promise) else bottom_of(tensor._uop)
    return copy if copy is not None and is_of_list(copy) else None


def fetch(tensor: Any) -> bool:
    """Brings numbers of a list to their device now, if gradients begin at a tensor of them, which
    is yet to be made; says whether it was."""
    copy = _pending_copy(tensor) if tensor.requires_grad else None
    is_new = copy is not None and copy.known is None
    if copy is not None and is_new:
        _bring(copy)
    return is_new


def brought(version: Version) -> Version:
    """The same as a version of storage, if it is of a list: which is copied now, if it wasn't. Who
    has the tensor hears that, and stands on another version; the node stays a view of the copy."""
    copy = version.base
    return version.in_storage(_bring(copy)) if copy.op is Ops.COPY else version


def _bring(copy: Any) -> UOp:
    """Where a list is, which is copied now, if it wasn't."""
    with turns.together(), keeping.now:
        if copy.known is None:
            host = copy.src[0]
            made = empty(copy.device, host.arg, copy.dtype)
            made.storage.write(host.storage.read())
            GlobalCounters.kernel_count += 1
            tell_copy(made.storage, host.storage, copy.origin)
            computed_from(made, copy)
            learn(copy, made)
        return bottom_of(copy.known)
