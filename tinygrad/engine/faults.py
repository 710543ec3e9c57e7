"""CHECKs that failed inside kernels, and which buffers hold wrong values since.

Every run of a kernel with CHECKs has its own *fault words*, which stay zero if all is well. They
are not looked at after each run. Runs are noted instead, with their buffers and with what each step
reads and writes, and the next read on the host looks at all that were noted. A buffer that a failed
kernel wrote is *spoilt*, and so is any that was computed from a spoilt one. Each read of it raises
the same error, until a kernel has overwritten all of it with sound values. The thread that ran a
failed kernel gets the error once at its next read of anything; if it has ended before, the next
thread that reads gets it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from tinygrad.base.errors import (
    DivisionCheckError,
    IndexCheckError,
    RuntimeCheckError,
    ShapeCheckError,
    TinygradError,
)
from tinygrad.base.helpers import at_once
from tinygrad.base.locks import ForkSafeLock
from tinygrad.engine.cold import making
from tinygrad.engine.devices import OpenDevice
from tinygrad.engine.storage import NOTHING, Buffer, original
from tinygrad.schedule.plan import Step
from tinygrad.uop.op import Ops

WORDS = 8  # int64: the code (0: none), then the operands
ZEROS = memoryview(bytes(8 * WORDS))
MOST_NOTED = 64  # runs; when there are more, their words are checked even if no one reads
KINDS: dict[str, type[RuntimeCheckError]] = {
    "index": IndexCheckError,
    "division": DivisionCheckError,
    "shape": ShapeCheckError,
}


class Words(ctypes.c_int64):
    """The words of one run, as a number. It is the first of them, the code, if the host can address
    it and kernels have finished when they return; elsewhere it is not 0, so that runs are noted."""

    handle: Any


@dataclass(eq=False)
class FaultWords:
    """The place for the faults of one kernel of a plan, and the meaning of its codes."""

    device: OpenDevice
    faults: tuple[tuple[str, str], ...]
    origins: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """For each of `faults` the user's line that made it, as of the latest run."""
    clean: list[Words] = field(default_factory=list)

    def take(self) -> Words:
        """Words for a run, all zero."""
        try:
            return self.clean.pop()
        except IndexError:
            return self._new()

    def _new(self) -> Words:
        memory = self.device.backend.memory
        handle = memory.allocate(8 * WORDS)
        memory.write(handle, ZEROS)
        address = None if self.device.target.has_groups else memory.address(handle)
        words = Words(1) if address is None else Words.from_address(address)
        words.handle = handle
        return words

    def give_back(self, words: Words, are_zero: bool) -> None:
        """Another run may use the words."""
        if not are_zero:
            self.device.backend.memory.write(words.handle, ZEROS)
        self.clean.append(words)

    def error_in(self, words: Words) -> RuntimeCheckError | None:
        """The error that a run has left in these words, if any."""
        memory = self.device.backend.memory
        code, *operands = np.frombuffer(memory.read(words.handle, 8 * WORDS), np.int64).tolist()
        if not code:
            return None
        kind, message = self.faults[code - 1]
        try:
            text = message.format(*operands)
        except (IndexError, KeyError):
            text = message
        if (origin := self.origins.get((kind, message))) is not None:
            text += f" (made at {origin})"
        return KINDS.get(kind, RuntimeCheckError)(text)


Taken = dict[FaultWords, Words]
"""The words of one run, by their owner."""


class Flow(NamedTuple):
    """What runs: steps, with the numbers of their storages. Storages with the same `home` are one;
    `kept` are those of buffers that are visible outside, `made` the homes of those that are made
    anew: what a run leaves of them as it was is no part of their value (a symbolic size)."""

    steps: Sequence[tuple[Step, Sequence[int], FaultWords | None]]
    homes: Sequence[Hashable]
    kept: Sequence[int]
    made: Collection[Hashable]


Touches = tuple[Collection[int], Collection[int], Collection[int]]


def touches_of(step: Step) -> Iterable[Touches]:
    """For each kernel of a step the slots that it reads, those that it writes, and those that it
    writes completely."""
    if step.ast is not None and not step.touches:
        return making.touches_of_kernels(step.ast)
    made = range(step.writes)
    return step.touches or [(range(step.writes, len(step.storages)), made, made)]


class _Run(NamedTuple):
    """A run that was noted: a reference to each buffer that its flow keeps."""

    flow: Flow
    buffers: Sequence[ref[Buffer]]
    taken: Taken
    thread: threading.Thread | None


Errors = dict[Any, TinygradError | None]

noted: deque[_Run] = deque()
spoilt: dict[ref[Buffer], TinygradError] = {}
"""While this is not empty, all runs must be noted; otherwise those whose words aren't 0."""
_untold: dict[threading.Thread, TinygradError] = {}
_looking = ForkSafeLock(threading.RLock)


def leave(taken: Taken) -> None:
    """Gives back the words of a run without a fault, which are still zero."""
    for owner, words in taken.items():
        owner.clean.append(words)


def note(
    flow: Flow, buffers: Sequence[Buffer], taken: Taken, over: list[Any], asked: bool = True
) -> None:
    """Notes that these steps began to run on buffers, one for each storage; whether this thread
    `asked` for it, and is told of faults. `over` has one more element from then on."""
    kept = [ref(original(buffers[number])) for number in flow.kept]
    run = _Run(flow, kept, taken, threading.current_thread() if asked else None)
    over += map(noted.append, (run,))
    if spoilt or len(noted) >= MOST_NOTED:
        _look()


def _look() -> None:
    """Checks the words of all runs that were noted, and determines which buffers are invalid
    now."""
    with _looking.now:
        runs = [*noted]
        for device in {owner.device for run in runs for owner in run.taken}:
            with contextlib.suppress(TinygradError):  # the reader of those buffers gets the error
                device.synchronize()
        gone: Errors = {}  # by references to dead buffers, which were read in time
        for run in runs:
            failed: Errors = {}
            for owner, words in run.taken.items():
                try:
                    error: TinygradError | None = owner.error_in(words)
                except TinygradError as lost:
                    error = lost
                if error is not None:
                    failed[owner] = error
                    if run.thread is not None:
                        _untold.setdefault(run.thread, error)
            alive = [buffer() for buffer in run.buffers]  # and remain so until all is noted
            found = _spread(run, alive, failed, gone) if failed or spoilt or gone else ()
            at_once([*found, partial(noted.popleft)])  # or, looked at again, it would seem sound
            for owner, words in run.taken.items():
                with contextlib.suppress(TinygradError):  # of a device that is lost
                    owner.give_back(words, owner not in failed)


def _spread(
    run: _Run, alive: Sequence[Buffer | None], failed: Errors, gone: Errors
) -> Iterator[partial[Any]]:
    """Propagates the faults of a run, of whose buffers these are alive: what it computed from
    invalid data is invalid, too. Yields what that changes in `spoilt`."""
    flow, errors = run.flow, Errors()
    homes = [flow.homes[number] for number in flow.kept]
    rows = [*zip(homes, run.buffers, alive, strict=True)]
    for home, buffer, held in rows:
        if home not in flow.made:
            before = gone.get(id(buffer)) if held is None else spoilt.get(buffer)
            errors[home] = errors.get(home) or before
        elif held is None:
            gone.pop(id(buffer), None)
        else:
            yield partial(spoilt.pop, buffer, None)
    if not failed and not any(errors.values()):
        return
    inside = {*failed}.difference(words for _, _, words in flow.steps)  # the words of a SCAN's body
    for step, numbers, words in flow.steps:
        own = next(iter(inside), words) if step.op is Ops.SCAN else words
        for read, written, whole in touches_of(step):
            found = (errors.get(flow.homes[numbers[slot]]) for slot in read)
            error = failed.get(own) or next(filter(None, found), None)
            for slot in whole if error is None else written:
                errors[flow.homes[numbers[slot]]] = error
    for home, buffer, held in rows:
        error = errors.get(home)
        if held is None:
            gone[id(buffer)] = error
        elif error is None:
            yield partial(spoilt.pop, buffer, None)
        elif held is not NOTHING:
            yield partial(spoilt.__setitem__, ref(held, _died), error)


def _died(buffer: ref[Buffer]) -> None:
    spoilt.pop(buffer, None)


def raise_faults(buffer: Buffer) -> None:
    """Raises the error of a buffer that is about to be read on the host; else one that this thread
    has not been told yet."""
    if noted:
        _look()
    if not spoilt and not _untold:
        return
    me = threading.current_thread()
    mine = [thread for thread in list(_untold) if thread is me or not thread.is_alive()]
    told = [_untold.pop(thread) for thread in mine]
    error = spoilt.get(ref(original(buffer))) or next(iter(told), None)
    if error is not None:
        raise type(error)(*error.args)


def spoil(buffers: Iterable[Buffer], error: BaseException) -> None:
    """These hold what is neither an old value nor a new one, because of that error, which is raised
    where they are read."""
    _look()  # what ran before may have been sound
    name = type(error).__name__
    broken = RuntimeCheckError(
        f"{name} came while this was overwritten, so that it holds neither the old value nor the "
        "new one; legal is to write all of it anew"
    )
    for buffer in map(original, buffers):
        spoilt[ref(buffer, _died)] = error if isinstance(error, TinygradError) else broken


def forget_faults() -> None:
    """Discards all faults so far; all buffers count as valid."""
    _look()
    _untold.clear()
    spoilt.clear()
