"""Checks that failed inside kernels. Each kernel with CHECKs has fault words of its own; the next
read on the host looks at those of the kernels that ran since and raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

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

    handle: Any
    faults: tuple[tuple[str, str], ...]
    origins: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """For each of `faults` the user's line that made it, as of the latest run."""


def fault_words(device: OpenDevice, faults: tuple[tuple[str, str], ...]) -> FaultWords:
    """Fresh fault words, all zero."""
    memory = device.backend.memory
    handle = memory.allocate(8 * WORDS)
    memory.write(handle, memoryview(bytes(8 * WORDS)))
    return FaultWords(handle, faults)


def raise_faults(device: OpenDevice) -> None:
    """Raises the first error that kernels left since the last call; then all is forgotten."""
    found: RuntimeCheckError | None = None
    memory = device.backend.memory
    for words in list(device.unread_faults):
        raw = memory.read(words.handle, 8 * WORDS)
        code, *operands = np.frombuffer(raw, np.int64).tolist()
        if code:
            memory.write(words.handle, memoryview(bytes(8 * WORDS)))
            kind, message = words.faults[code - 1]
            try:
                text = message.format(*operands)
            except (IndexError, KeyError):
                text = message
            if (origin := words.origins.get((kind, message))) is not None:
                text += f" (made at {origin})"
            found = found or KINDS.get(kind, RuntimeCheckError)(text)
    device.unread_faults.clear()
    if found is not None:
        raise found
