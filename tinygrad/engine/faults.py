"""Checks that failed inside kernels. Each kernel with CHECKs has fault words of its own, for each
thread that runs it; that thread's next read on the host looks at those of the kernels that it ran
since and raises. What a thread leaves when it ends is told by whoever reads next."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinygrad.backends.interface import Memory
from tinygrad.base.errors import (
    DivisionCheckError,
    IndexCheckError,
    RuntimeCheckError,
    ShapeCheckError,
)
from tinygrad.engine.devices import OpenDevice

WORDS = 8  # int64: the code (0: none), then the operands
KINDS: dict[str, type[RuntimeCheckError]] = {
    "index": IndexCheckError,
    "division": DivisionCheckError,
    "shape": ShapeCheckError,
}


@dataclass(eq=False)
class FaultWords:
    """The fault words of one kernel of a plan, and what its codes mean."""

    memory: Memory
    faults: tuple[tuple[str, str], ...]
    _handles: dict[int, Any] = field(default_factory=dict)
    origins: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """For each of `faults` the user's line that made it, as of the latest run."""

    @property
    def handle(self) -> Any:
        """This thread's words, at first all zero."""
        thread = threading.get_ident()
        if thread not in self._handles:
            handle = self.memory.allocate(8 * WORDS)
            self.memory.write(handle, memoryview(bytes(8 * WORDS)))
            self._handles[thread] = handle
        return self._handles[thread]


def raise_faults(*devices: OpenDevice) -> None:
    """Raises an error that kernels of these devices left since the last call; then all is
    forgotten."""
    found: RuntimeCheckError | None = None
    for unread in (u for each in devices for u in (each.unread_faults, *each.left_faults())):
        for words, handle in list(unread.items()):
            found = _failed(words, handle) or found
        unread.clear()
    if found is not None:
        raise found


def _failed(words: FaultWords, handle: Any) -> RuntimeCheckError | None:
    """The error that stands there, which is forgotten then."""
    code, *operands = np.frombuffer(words.memory.read(handle, 8 * WORDS), np.int64).tolist()
    if not code:
        return None
    words.memory.write(handle, memoryview(bytes(8 * WORDS)))
    kind, message = words.faults[code - 1]
    try:
        text = message.format(*operands)
    except (IndexError, KeyError):
        text = message
    if (origin := words.origins.get((kind, message))) is not None:
        text += f" (made at {origin})"
    return KINDS.get(kind, RuntimeCheckError)(text)
