"""Bytes on devices, and which node of a graph they belong to.

A BUFFER node names storage; this file holds the storage itself. When the node dies so does the
storage. ASSIGN writes the next version of a buffer into the same storage: the new version gets a
node of its own and the old node loses its bytes, so that reading it later is an error instead of
a wrong answer. `latest` leads from an old version to the newest.

Four ideas, in this order: `Buffer` (bytes, and `buffer_of` a node); families (tensors that see each
other's writes, and others that share the bytes only for now); versions (`overwritten`, `latest`);
what is `known` of nodes, and how a capture forgets that for a while. Nothing here runs a kernel, or
decides when something is computed or overwritten: `realize` does.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from tinygrad.backends.interface import Memory
from tinygrad.base.dtype import COMPLEX_PARTS, DType, to_numpy_name
from tinygrad.base.errors import ArgumentError, OutOfMemory
from tinygrad.base.later import later
from tinygrad.base.locks import ForkSafeLock
from tinygrad.engine.alive import Alive
from tinygrad.engine.devices import Device, Telling
from tinygrad.engine.holders import Holder
from tinygrad.engine.profile import GlobalCounters
from tinygrad.uop import Ops, UOp
from tinygrad.uop.placement import placed

ml_dtypes = later("ml_dtypes")
HOST = "NPY"  # arrays of NumPy's: where what comes from the host is copied from


class Buffer:
    """`nbytes` bytes on a device, freed with the object. A buffer on several devices has no bytes
    of its own but `parts`, a buffer on each, laid out according to its Placement."""

    __slots__ = (
        *("device", "nbytes", "handle", "owner", "memory", "version", "expression", "others"),
        *("fixed", "parts", "past", "era", "__weakref__"),
    )

    memory: Memory | None  # the allocator; None for a part, or for foreign memory
    version: weakref.ref[UOp] | None  # the BUFFER that it holds now
    expression: weakref.ref[UOp] | None  # the expression whose value that is
    others: int  # how many users outside of this library see the bytes, and may write them
    past: Any  # what the value was made of, as far as gradients may ask (`tensor/past`)
    fixed: bool  # whether others own the bytes and nothing here may write them
    era: int  # how often they were overwritten while `version` stayed, since no one else read it

    device: Any  # a name, or a Placement
    parts: tuple[Buffer, ...]

    def __init__(self, device: Any, nbytes: int, handle: Any = None, owner: Any = None) -> None:
        self.device, self.nbytes, self.handle, self.owner = device, nbytes, handle, owner
        self.memory = self.version = self.expression = self.past = None
        self.others, self.fixed, self.parts, self.era = 0, False, (), 0
        if type(device) is not str:
            self.device = placed(device)
            if handle is None:
                sizes = zip(self.device.names, self.device.sizes(nbytes), strict=True)
                try:
                    self.parts = tuple(Buffer(name, size) for name, size in sizes)
                except OutOfMemory as error:
                    names = ", ".join(self.device.names)
                    raise OutOfMemory(f"{nbytes:,} bytes on {names}: {error}") from error
        elif handle is None:
            memory = Device[device].backend.memory
            try:
                self.handle = memory.allocate(nbytes)
            except OutOfMemory as error:
                raise OutOfMemory(f"device {device}: {error}") from error
            except Exception:
                with Telling(device, f"allocating {nbytes:,} bytes"):
                    raise
            self.memory = memory
            GlobalCounters.count_memory(device, nbytes)

    def __del__(self, at_the_end: Callable[[], bool] = sys.is_finalizing) -> None:
        memory = getattr(self, "memory", None)
        if memory is not None and not at_the_end():
            GlobalCounters.count_memory(self.device, -self.nbytes)
            memory.free(self.handle, self.nbytes)

    def view(self, offset: int, nbytes: int) -> Buffer:
        """A part of this buffer, which stays alive as long as the part does."""
        handle = Device[self.device].backend.memory.view(self.handle, offset)
        return Buffer(self.device, nbytes, handle, owner=self)

    def part(self, number: int) -> Buffer:
        """The part on one of several devices; an empty one for an empty buffer."""
        return self.parts[number] if self.parts else self

    def alias(self) -> Buffer:
        """The same bytes as a distinct buffer object."""
        if not self.parts:
            return Buffer(self.device, self.nbytes, self.handle, owner=self)
        made = Buffer(self.device, self.nbytes, (), owner=self)
        made.parts = tuple(part.alias() for part in self.parts)
        return made

    def read(self, start: int = 0, nbytes: int | None = None) -> memoryview:
        """The bytes on the host, or `nbytes` of them from `start` on; without a copy if the
        device's memory is the host's."""
        if self.parts:
            whole = self._assembled()
            return whole[start:] if nbytes is None else whole[start : start + nbytes]
        device = Device[self.device]
        device.synchronize()
        count = self.nbytes - start if nbytes is None else nbytes
        try:
            return memoryview(device.backend.memory.read(self.handle, count, start))
        except Exception:
            with Telling(device.name, f"reading {count:,} bytes"):
                raise

    def write(self, data: memoryview, start: int = 0) -> None:
        """Overwrites the bytes from `start` on from the host."""
        if self.parts:
            assert not start, "buffers of several devices are written whole"
            pieces = self._pieces(np.frombuffer(data, np.uint8))
            for part, piece in zip(self.parts, pieces, strict=True):
                if piece.size:
                    part.write(np.ascontiguousarray(piece).data.cast("B"))
            return
        device = Device[self.device]
        try:
            device.backend.memory.write(self.handle, data, start)
        except Exception:
            with Telling(device.name, f"writing {len(data):,} bytes"):
                raise

    def _pieces(self, data: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """From the bytes of the whole, the bytes of each part."""
        if self.device.cut is None:
            return [data] * len(self.parts)
        outer, bounds = self.device.cut
        apart = data.reshape(outer, bounds[-1], -1)
        return [apart[:, a:b] for a, b in itertools.pairwise(bounds)]

    def _assembled(self) -> memoryview:
        if self.device.cut is None:
            return self.parts[0].read()
        whole = np.empty(self.nbytes, np.uint8)
        for part, piece in zip(self.parts, self._pieces(whole), strict=True):
            piece[...] = np.frombuffer(part.read(), np.uint8).reshape(piece.shape)
        return whole.data


def original(buffer: Buffer) -> Buffer:
    """The original buffer of these bytes: an argument of a capture is an alias."""
    while isinstance(buffer.owner, Buffer) and buffer.owner.nbytes == buffer.nbytes:
        buffer = buffer.owner
    return buffer


NOTHING = Buffer("", 0, handle=0)
"""A placeholder for storages that have no buffer yet, or need none."""

_gone: weakref.WeakKeyDictionary[UOp, str] = weakref.WeakKeyDictionary()


def buffer_of(node: UOp) -> Buffer:
    """The storage of a BUFFER node. ArgumentError if a later version has overwritten it."""
    found: Buffer | None = node.storage
    if found is None:
        where = f" (made at {node.origin})" if node.origin else ""
        reason = _gone.get(
            node,
            "reads a version of a buffer that an assign has since overwritten; realize it before "
            "the assign, or clone it",
        )
        raise ArgumentError(f"this tensor of {node.arg} {node.dtype.name}{where} {reason}")
    return found


def nothing(device: Any, size: int, dtype: DType, reason: str) -> UOp:
    """A BUFFER without storage. Reading it is an ArgumentError that gives the reason."""
    node = UOp.new_buffer(device, size, dtype)
    _gone[node] = reason
    return node


def copy_of_nothing(view: UOp) -> UOp | None:
    """Another value that can't be read, for the same reason; None if `view` is of none."""
    reason = _gone.get(view.base)
    if reason is None:
        return None
    return nothing(view.device, view.size, view.dtype, reason).in_room(view.shape)


def bind(node: UOp, buffer: Buffer) -> UOp:
    """Makes `buffer` hold the value of the BUFFER `node`."""
    node.storage = buffer
    buffer.version = weakref.ref(node)
    return node


def node_of(buffer: Buffer) -> UOp | None:
    """The version that `buffer` holds now, if its node is still alive."""
    return None if buffer.version is None else buffer.version()


def empty(device: Any, size: int, dtype: DType) -> UOp:
    """A BUFFER with uninitialised storage."""
    return bind(UOp.new_buffer(device, size, dtype), Buffer(device, size * dtype.itemsize))


def copy_of(node: UOp) -> UOp:
    """A BUFFER like `node`, with a copy of its bytes."""
    old = buffer_of(node)
    made = empty(old.device, node.arg, node.dtype)
    buffer_of(made).write(old.read())
    return made


def from_host(data: Any, dtype: DType, device: str = HOST) -> UOp:
    """A BUFFER on `device` (NPY, which needs no copy, or PYTHON) that holds the host's bytes
    `data`."""
    flat = np.ascontiguousarray(data).reshape(-1)
    raw = memoryview(flat.view(np.uint8).data) if flat.size else memoryview(b"")
    node = UOp.new_buffer(device, len(raw) // dtype.itemsize, dtype)
    if device == HOST:
        return bind(node, Buffer(HOST, len(raw), raw, owner=data))
    buffer = Buffer(device, len(raw))
    if len(raw):
        buffer.write(raw)
    return bind(node, buffer)


def borrowed(data: np.ndarray[Any, Any], dtype: DType, device: str) -> UOp | None:
    """A BUFFER on `device` that is these bytes in place, such as those of a mapped file. They are
    never written: a writer gets a buffer of its own first. None if the device can't read them in
    place, or if they are not aligned to elements."""
    if not data.flags.c_contiguous or data.ctypes.data % dtype.itemsize:
        return None
    raw = data.reshape(-1).view(np.uint8)
    handle = Device[device].backend.memory.borrow(raw.data)
    if handle is None:
        return None
    buffer = Buffer(device, raw.nbytes, handle, owner=data)
    buffer.fixed = True
    return bind(UOp.new_buffer(device, raw.nbytes // dtype.itemsize, dtype), buffer)


def is_borrowed(base: UOp) -> bool:
    """Whether the BUFFER `base` is foreign memory, which may only be read."""
    held: Buffer | None = base.storage
    return held is not None and held.fixed


@functools.cache
def numpy_dtype(dtype: DType) -> Any:
    """NumPy's dtype object for ours (from ml_dtypes for those that NumPy lacks)."""
    name = to_numpy_name(dtype)
    if dtype.fmt is None and dtype not in COMPLEX_PARTS:
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def as_array(buffer: Buffer, dtype: DType) -> np.ndarray[Any, Any]:
    """The buffer's elements as a flat NumPy array, without a copy if possible."""
    return np.frombuffer(buffer.read(), numpy_dtype(dtype))


# ---- sharing -------------------------------------------------------------------------------------
# Equal expressions are one node, so tensors that were made apart may come to share a buffer. Views
# made of each other are a *family*: a write to one is seen by all. Other families must not see it:
# before a member writes, its family gets a buffer of its own.


class Family:
    """Tensors that are views of each other. `root` is what they are views of, if that is not
    storage but a pending copy: a padded or repeated view, a constant. `recorded`: a gradient
    follows one of them. `several`: others came to the first, even if they are gone."""

    __slots__ = ("root", "recorded", "several", "members", "__weakref__")

    def __init__(self, first: Holder) -> None:
        self.root: UOp | None = None
        self.recorded = self.several = False
        self.members: Alive[Holder] = Alive()
        self.members.add(first)


class Families(Alive[Family]):
    """The families that read one version. `copied`: one of them had a `root`, so it is a copy."""

    __slots__ = ("copied",)

    def __init__(self) -> None:
        super().__init__()
        self.copied = False


_beginning = ForkSafeLock()


def join(base: UOp, family: Family) -> None:
    """A member of `family` now reads the version `base`."""
    if base.op is Ops.BUFFER or base.op is Ops.ASSIGN:
        with _beginning.now:  # one for all threads; a write may take it away at any time
            base.families = families = base.families or Families()
        families.add_once(family)
        families.copied |= family.root is not None


def copies_of(base: UOp) -> list[Family]:
    """Families that read the version `base` now, but are meant as copies of it: with a `root`."""
    return [family for family in _families(base) if family.root is not None]


def leave(base: UOp, family: Family) -> None:
    """No member of `family` reads the version `base` any more."""
    families = base.families
    if families is not None and family in families:
        families.discard(family)


def family_of(base: UOp) -> Family | None:
    """Any family that reads the BUFFER `base`."""
    return next(iter(_families(base)), None)


def _families(base: UOp) -> Iterable[Family]:
    return base.families or ()


def computed_from(base: UOp, expression: UOp) -> None:
    """Holders of `expression` may come to read the BUFFER `base`."""
    base.storage.expression = weakref.ref(expression)
    readers = expression.readers
    if readers is not None:  # a part of a version, whose value is now stored twice
        readers.add(weakref.ref(expression, readers.discard))


def is_shared(base: UOp, family: Family) -> bool:
    """Whether others than `family` read, may come to read, or own the version `base`."""
    if is_borrowed(base) or is_expected(base):
        return True
    return is_read_by_others(base, family)


def is_read_by_others(base: UOp, family: Family) -> bool:
    """Whether other families than this one read the version `base`."""
    return any(other is not family for other in _families(base))


def is_expected(base: UOp) -> bool:
    """Whether the expression whose value the BUFFER `base` holds is still alive."""
    return expected_of(base) is not None


def expected_of(base: UOp) -> UOp | None:
    """That expression."""
    expression = None if base.storage is None else base.storage.expression
    return None if expression is None else expression()


class Changes:
    """Counts how often a tensor was rebound or a buffer got a newer version: while the count stays
    the same, computed values are where they were."""

    count: ClassVar[int] = 0


class _Noting(threading.local):
    changed: list[weakref.ref[Any]] | None = None


_noting = _Noting()


@contextlib.contextmanager
def noting() -> Iterator[list[weakref.ref[Any]]]:
    """A context whose list gets what this thread changes: tensors that represent something else,
    and new versions of buffers. An outer one doesn't get it."""
    before, _noting.changed = _noting.changed, []
    try:
        yield _noting.changed
    finally:
        _noting.changed = before


def note_change(*changed: Any) -> None:
    """Notes that tensors represent something else now."""
    Changes.count += 1
    if _noting.changed is not None:
        _noting.changed += map(weakref.ref, changed)


# ---- versions ------------------------------------------------------------------------------------


def supersede(old: UOp, new: UOp) -> None:
    """`new` is the next version of the buffer that `old` is a version of."""
    old.newer = new
    Changes.count += 1  # at once: no Ctrl-C is heard before the next call
    note_change(new)


def latest(node: UOp) -> UOp:
    """The same view of the newest version of the buffer that `node` is a view of, with computed
    parts replaced by their storage. The node itself if nothing has changed."""
    if (known := node.known) is not None:
        node = known
    base = node.base
    newest = base
    while (after := _after(newest)) is not None:
        newest = after
    return node if newest is base else node.viewed(newest)


def _after(version: UOp) -> UOp | None:
    known: UOp | None = version.known
    return version.newer if known is None else known


last_eras: weakref.WeakKeyDictionary[UOp, int] = weakref.WeakKeyDictionary()
"""For overwritten versions, the era in which they ended, if it wasn't the first."""

last_pasts: weakref.WeakKeyDictionary[UOp, set[Any]] = weakref.WeakKeyDictionary()
"""For overwritten versions, what they were made of (`Buffer.past`)."""


def past_at(node: UOp) -> set[Any]:
    """What the value that is, or was, in a node's storage was made of."""
    if node.storage is not None:
        return node.storage.past or set()
    return last_pasts.get(node, set()) if node.newer is not None else set()


def overwritten(old: UOp, write: UOp | None = None) -> None:
    """The storage of `old` holds a new version now, the value of the ASSIGN `write` if that is
    given. What is seen of it comes last, in stores between which no Ctrl-C is heard."""
    buffer = buffer_of(old)
    new = _next_version(buffer, [old] if write is None else [old, write])
    if buffer.era:
        last_eras[old] = buffer.era
    if buffer.past:
        last_pasts[old] = buffer.past
    if write is not None:
        new.readers = write.readers  # who may refer to either
        _learned.add(write)
    version = weakref.ref(new)
    buffer.version, buffer.expression, buffer.past = version, None, None
    old.storage, old.newer, old.families = None, new, None
    if write is not None:
        write.known, write.families = new, None


def renew(buffer: Buffer) -> None:
    """Others may have written these bytes: what is computed from now on must not be confused with
    earlier results, so it is computed from a node of its own."""
    old = node_of(buffer)
    if old is None or old.newer is not None:
        return
    new = _next_version(buffer, [old])
    version = weakref.ref(new)
    _learned.add(old)
    buffer.version, old.known, old.families = version, new, None


def _next_version(buffer: Buffer, before: list[UOp]) -> UOp:
    """A node for what the buffer holds from now on, with the readers of these earlier ones."""
    new = UOp.new_buffer(buffer.device, before[0].arg, before[0].dtype)
    new.storage = buffer
    for old in before:
        for family in _families(old):
            join(new, family)
    return new


def is_read(node: UOp) -> bool:
    """Whether a living expression reads this version."""
    return any(reader() is not None for reader in list(node.readers or ()))


# ---- what is known -------------------------------------------------------------------------------

_learned: Alive[UOp] = Alive()


def learn(node: UOp, value: UOp) -> None:
    """The value of `node` is now at `value`, a view of storage."""
    _learned.add(node)  # first: a capture must be able to hide what is known
    node.known = value


@contextlib.contextmanager
def unknown(values: Mapping[UOp, UOp | None]) -> Iterator[None]:
    """A context in which these nodes, whose values are given, are computed again. Where views of
    each other have seen a value it stays: one of them may be there while others have yet to look,
    and a write to one is seen by all."""
    for node in values:
        node.known = None
    try:
        yield
    finally:
        for node, value in values.items():
            if node.known is None or (value is not None and _has_views(value.base)):
                node.known = value


def _has_views(base: UOp) -> bool:
    return any(family.several for family in _families(base))


forgotten: dict[UOp, UOp | None] = {}
"""Values computed before the step that is being captured, and where they are."""


@contextlib.contextmanager
def forgetting() -> Iterator[None]:
    """A context in which everything is computed again: a captured step must not rely on values that
    happen to be known. Versions of buffers stay. One thread may enter it between any two lines of
    another, which must therefore read `known` only once."""
    forgotten.update((n, n.known) for n in _learned if n.op not in (Ops.ASSIGN, Ops.BUFFER))
    try:
        with unknown(forgotten):
            yield
    finally:
        forgotten.clear()


def realized_buffer(node: UOp) -> Buffer | None:
    """The storage that a node is a view of, detached or not; None if it isn't computed."""
    while (found := latest(node).base).op is Ops.DETACH:
        node = found.src[0]
    return found.storage  # type: ignore[no-any-return]
