"""Floats that change from call to call, as the weight of a loss that grows, or a rate by hand.

A look says a number's value, so each new one would send its step the long way. A method marked
`@of_any_number` uses its operand only as a constant: once a few of its calls differed in that
alone, it is run on a number that nobody has (`MARKER`), and the constant that this becomes is a
hole like others. The value is a leaf of the step's lines, which plans take as an argument."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.helpers import Recent
from tinygrad.tensor.looks import Look, look_of_any
from tinygrad.tensor.version import Bound
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

F = TypeVar("F", bound=Callable[..., Any])

MOST = 256  # calls whose numbers are counted; the least recently met goes first
FEW = 2  # so many numbers of a call are remembered by value
MARKER = 0.7390851332151607  # a number that no method has


class Varying:
    """What stands among looks for a number of any value."""


VARYING = Varying()
_met: Recent[Hashable, int] = Recent(MOST)


def of_any_number(method: F) -> F:
    """Says that the method's operand, if it is a number, becomes a constant and decides nothing
    else."""
    method.takes_any_number = True  # type: ignore[attr-defined]
    return method


def opened(looks: Sequence[Hashable]) -> list[Hashable] | None:
    """The looks without the operand's value; None if there is no such number."""
    operand = looks[1] if len(looks) > 1 else None
    of = looks[0]
    is_number = isinstance(operand, float) and math.isfinite(operand)
    is_whole = type(operand) is int and isinstance(of, Look) and dtypes.is_float(of.dtype)
    return [of, VARYING, *looks[2:]] if is_number or is_whole else None


def varies(call: Hashable) -> bool:
    """Whether a call that is met with one more number was met with a few others before."""
    _met[call] = _met.get(call, 0) + 1
    _met.used(call)
    return _met[call] > FEW


def marked(nodes: Iterable[UOp]) -> list[UOp]:
    """The constants among these that a marker became."""
    constants = [node for node in nodes if node.op is Ops.CONST and dtypes.is_float(node.dtype)]
    return [node for node in constants if node.arg == dtypes.as_const(MARKER, node.dtype)]


@functools.lru_cache(MOST)
def leaf_of(value: float, dtype: DType, device: str) -> Bound:
    """The leaf that has this value. Its node is equal to no other: a plan may have the same
    constant elsewhere, where it doesn't change."""
    node = UOp.const(dtype, value, device).own()
    return Bound(node, look_of_any(dtype, device))
