"""The table that makes equal nodes one object. It holds nodes weakly: a node that nobody holds
leaves the table, and the sets of those who read its sources. Values of a device are in a key by
their `id`, which is theirs as long as the node lives: a write, and the version that it follows,
refer to each other, so neither would ever go if the table held what stands between them.

Several threads may build nodes, and finalizers run whenever a node dies, so entering takes no lock,
and removing takes one inside of which nothing is allocated."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinygrad.uop.node import UOp

Key = tuple[Any, ...]
"""Op, dtype, sources (or the `id` of each), argument and tag of a node."""


class Entry(weakref.ref["UOp"]):
    """A weak reference to a node that knows its key, and the sets of readers that it is in, from
    which a dead node has to go."""

    __slots__ = ("key", "among")
    key: Key
    among: tuple[set[Any], ...]


TABLE: dict[Key, Entry] = {}


def standing(entry: Entry) -> UOp | None:
    """The equal node that another thread has entered first. None if there is none: then `entry` has
    replaced the entry of a dead node."""
    while (other := TABLE.setdefault(entry.key, entry)) is not entry:
        found = other()
        if found is not None:
            return found
        forget(other)
    return None


_forgetting = threading.RLock()
"""Between a look at the table and a removal no other thread may enter an equal node. Nothing is
allocated meanwhile, so no finalizer, which may wait for another lock, runs there."""
if hasattr(os, "register_at_fork"):  # a child would find it taken whenever a node dies
    os.register_at_fork(after_in_child=_forgetting._at_fork_reinit)  # type: ignore[attr-defined]


def forget(
    entry: Entry,
    table: dict[Key, Entry] = TABLE,  # bound for the interpreter's last moments
    alone: Any = _forgetting,
) -> None:
    """Removes a dead node's row, and the node from the readers of its sources."""
    key = entry.key
    with alone:
        if table.get(key) is entry:
            del table[key]
    for readers in entry.among:
        readers.discard(entry)
