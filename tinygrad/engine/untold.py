"""The values of variables that are arguments of a captured step, and others in each replay. Code of
the user's that asks for one while the step is captured gets what compares, and no number.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tinygrad.base.errors import JitError
from tinygrad.engine.capture import Capture
from tinygrad.engine.containers import bindings_below
from tinygrad.engine.realize import Recorder, computing
from tinygrad.uop.node import UOp

_LOOKING = (__name__, UOp.__module__)


class Untold:
    """The value of a bound variable, of which only comparisons that all values within the
    variable's bounds decide alike are told. Anything else is a JitError."""

    __slots__ = ("bind",)

    def __init__(self, bind: UOp) -> None:
        self.bind = bind


def told(bind: UOp) -> Untold | None:
    """What the user's code is given for the value of a variable that is an argument of the captured
    step; None if the value itself may be told."""
    if computing.recorder is None:
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _LOOKING:
        frame = frame.f_back
    is_own = frame is None or frame.f_globals.get("__name__", "").startswith("tinygrad.")
    return None if is_own or not _varying(computing.recorder, bind) else Untold(bind)


def refuse_to_fix(size: UOp) -> None:
    """JitError if a size that takes the place of this one for good depends on a variable that is an
    argument of the captured step."""
    recorder = computing.recorder
    if recorder is not None and (found := _varying(recorder, size)):
        raise JitError(
            f"{recorder.name}: the value of the variable {found[0]!r} is read inside the captured "
            "step, and replays would keep this one; legal is to compute with the variable itself, "
            "to compare it where its bounds decide, or a whole number as the argument"
        )


def _varying(recorder: Recorder, size: UOp) -> list[str]:
    names = [bind.src[0].arg[0] for bind in bindings_below(size)]
    return [n for n in names if n in recorder.bound] if isinstance(recorder, Capture) else []


def _comparison(how: Callable[[Any, Any], Any]) -> Callable[[Untold, int], bool]:
    def compare(value: Untold, number: int) -> bool:
        low, high = value.bind.vmin, value.bind.vmax
        is_hidden = how in (operator.eq, operator.ne) and low <= number <= high > low
        if is_hidden or how(low, number) != how(high, number):
            refuse_to_fix(value.bind)
        return bool(how(low, number))

    return compare


def _refusal(value: Untold, *_: Any) -> None:
    refuse_to_fix(value.bind)


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_ALONE = ("index", "int", "float", "hash", "repr", "neg")
_BOTH_WAYS = ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow")
for _name in _COMPARISONS:
    setattr(Untold, f"__{_name}__", _comparison(getattr(operator, _name)))
for _name in (*_ALONE, *_BOTH_WAYS, *(f"r{name}" for name in _BOTH_WAYS)):
    setattr(Untold, f"__{_name}__", _refusal)
Untold.__bool__ = lambda value: value != 0  # type: ignore[attr-defined]
