"""Methods of a node that a higher floor implements. The composition root (`tinygrad/__init__`)
registers them; until then a node answers as if it knew nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinygrad.uop.node import UOp


class _Services:
    simplify: Callable[[UOp], UOp] = staticmethod(lambda node: node)
    size: Callable[[UOp], UOp] = staticmethod(lambda node: node)
    shown: Callable[[UOp], str] = staticmethod(lambda node: f"UOp({node.op!r})")
    render: Callable[[UOp], str] = shown
    realized: Callable[[UOp], Any] = staticmethod(lambda node: None)
    axis: Callable[[UOp], int | None] = staticmethod(lambda node: None)
    told: Callable[[UOp], Any] = staticmethod(lambda bind: None)
    """What stands for the value of a bound variable, if that must not be told."""


services = _Services()
