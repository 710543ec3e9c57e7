"""Ctrl-C at a place that a test names, where chance would find it once in thousands of runs."""

from __future__ import annotations

import _weakrefset
import sys
import weakref
from collections.abc import Callable
from types import FrameType

FINALISERS = {_weakrefset.__file__, weakref.__file__}
"""Of Python's own containers. They run whenever garbage is collected, and what is raised in one is
printed, not raised."""


def interrupted_at(number: int, work: Callable[[], None]) -> bool:
    """Whether a KeyboardInterrupt came at that one of the places in `work` where Python hears
    signals: where functions begin, and where calls of C end."""
    left = number

    def listens(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        if frame.f_code.co_filename in FINALISERS:
            return
        left -= event in ("call", "c_return")
        if left < 0 and argument is not sys.setprofile:
            raise KeyboardInterrupt

    try:
        sys.setprofile(listens)
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False
