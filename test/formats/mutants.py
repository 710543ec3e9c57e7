"""Broken files: real ones with bytes changed, cut off, put in or taken out. A parser must give a
value or raise FileError, whatever it is given, and never take more memory than the file merits."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tinygrad.base.errors import TinygradError


@st.composite
def mutants(draw: Any, originals: list[bytes], head: int = 1 << 12) -> bytes:
    """One of the originals after one to four changes, most of them near its beginning."""
    raw = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, min(len(raw), head) - 1)))
        kind = draw(st.sampled_from(("set", "set", "huge", "cut", "insert", "remove", "repeat")))
        if kind == "set" and raw:
            raw[place] = draw(st.integers(0, 255))
        elif kind == "huge":
            raw[place : place + 8] = draw(st.sampled_from((b"\xff" * 8, b"\xff" * 4, bytes(8))))
        elif kind == "cut":
            del raw[place:]
        elif kind == "insert":
            raw[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "remove":
            del raw[place : place + draw(st.integers(1, 16))]
        else:
            raw[place:place] = raw[place : place + 32]
    return bytes(raw)


def survives(parse: Callable[[bytes], Any], raw: bytes, room: int = 64 << 20) -> bool:
    """Whether the parser took the bytes; fails if it raised anything but an error of ours, or
    needed more than `room` bytes."""
    tracemalloc.start()
    try:
        parse(raw)
        return True
    except TinygradError:
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < room, f"{peak:,} bytes for a file of {len(raw):,}"
