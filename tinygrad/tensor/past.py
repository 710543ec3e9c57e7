"""What a computed value was made of, by weak references.

A tensor that neither wants nor refuses a gradient drops its expression once it is computed: a loop
that keeps computing would otherwise keep all its turns in memory. A gradient can't pass such a
value any more. This file remembers which nodes the value was made of, as long as these are alive,
so that a gradient by one of them is an error, and not silently wrong by taking the value as a
constant."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from tinygrad.engine.holders import Holder
from tinygrad.engine.storage import Buffer, latest, past_at
from tinygrad.tensor.promise import Promise, Source
from tinygrad.tensor.roots import is_of_list
from tinygrad.tensor.version import Version
from tinygrad.transforms.gradient import followed
from tinygrad.uop import Ops, UOp

Made = weakref.ref[UOp] | weakref.ref[Promise]

STARTS = frozenset((Ops.BUFFER, Ops.DETACH))

_moved: weakref.WeakValueDictionary[Made, UOp] = weakref.WeakValueDictionary()
"""A node that a tensor let go of → what the tensor stands for since."""

_asked: weakref.WeakValueDictionary[Made, Holder] = weakref.WeakValueDictionary()
"""A promise that a tensor held before it was asked for its node → that tensor."""


def past_of(node: UOp, buffer: Buffer | None) -> set[Made]:
    """The nodes that a gradient of `node` goes on to, and those that it would have gone on to, for
    the storage that its value is in now. A write that is pending has none: it has its nodes."""
    if is_of_list(node.base):
        return set()  # of nothing
    nodes = followed(node) if buffer is not None else [node]
    found: set[Made] = {weakref.ref(node) for node in nodes if not _is_number(node)}
    pasts = {id(past): past for past in map(past_at, nodes) if past}  # views share one
    for past in pasts.values():
        found.update(map(weakref.ref, _alive(past)))
    return found


def _is_number(node: UOp) -> bool:
    """Whether it is a constant that no tensor holds as its own: all graphs have it in common."""
    return node.base.op is Ops.CONST and len(node.base.src) < 2


def past_of_promised(sources: Iterable[Source]) -> set[Made]:
    """The same for a value that depends on these sources, and has no nodes."""
    found: set[Made] = set()
    for source in sources:
        if isinstance(source, Promise):
            found.add(weakref.ref(source))
        elif isinstance(source, Version):
            found |= {weakref.ref(source.view), weakref.ref(source.base)}
            if source.buffer.past:
                found |= set(filter(_is_held, source.buffer.past))
    return found


def asked(promise: Promise, holder: Holder) -> None:
    """Remembers that a tensor which held the promise holds a node from now on."""
    _asked[weakref.ref(promise)] = holder


def remember(was: Made, now: UOp, past: Iterable[Made]) -> None:
    """Remembers that a tensor which stood for the node `was`, made of `past`, stands for `now`."""
    _moved[was] = now
    buffer = now.base.storage
    if buffer is not None:
        alive = set(filter(_is_held, past))
        buffer.past = alive | buffer.past if buffer.past else alive


def is_start(node: UOp) -> bool:
    """Whether gradients end here, at what was made of nothing that is still held."""
    base = node.base
    while base.op is Ops.COPY:
        base = base.src[0].base
    if past := past_at(base):
        return not _alive(past)
    return not base.src or base.op in STARTS


def computed_below(root: UOp) -> list[tuple[UOp, set[UOp]]]:
    """Each computed value that a gradient of `root` comes to, and what else it was made of."""
    computed = [(node, past_at(node)) for node in followed(root)]
    return [
        (value, {node for node in _alive(past) if not _same(node, value)})
        for value, past in computed
        if past
    ]


def _is_held(made: Made) -> bool:
    return made() is not None or made in _asked or made in _moved


def _alive(past: Iterable[Made]) -> set[UOp]:
    """The nodes that are still held, and what tensors stand for that did for one of them."""
    found = set()
    for made in past:
        now = made()
        holder = _asked.get(made)
        if isinstance(now, Promise) or holder is not None:
            node = holder._uop if holder is not None else now.node  # type: ignore[union-attr]
        else:
            node = _moved.get(made) if now is None else now
        if node is not None:
            found |= {node, latest(node)}
    return found


def _same(node: UOp, value: UOp) -> bool:
    """Whether a node is a view of a version of the same storage as `value` is."""
    return latest(node).base is latest(value).base
