"""Which line of the user's makes a node, for errors and DEBUG."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from types import CodeType, FrameType

from tinygrad.base.helpers import Recent
from tinygrad.base.settings import TRACEMETA

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSIDE = (PACKAGE, contextlib.__file__)  # some of our methods are decorated by that


def user_line() -> str | None:
    """`file:line` of the first caller outside this package; None if nobody wants to know."""
    frame: FrameType | None = sys._getframe(1) if TRACEMETA.value else None
    while frame is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    key = id(frame.f_code), frame.f_lasti
    known = _lines.get(key)
    if known is None:
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        _lines[key] = known = line, frame.f_code
    return known[0]


_lines: Recent[tuple[int, int], tuple[str, CodeType]] = Recent(4096)
"""The line of an instruction, for which Python counts through all of the function that stands
before it: 2 microseconds in the 200th line. The code stays, so that no other has its id."""


@functools.lru_cache(1024)  # asked for every tensor that is made
def _is_inside(file: str) -> bool:
    return file.startswith(_INSIDE)
