"""What the engine knows of tensors: objects that hold a node and may be read later."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from typing import Self

from tinygrad.uop.node import UOp


class Holder(ABC):
    """A tensor, as far as the engine cares."""

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def uop(self) -> UOp:
        """The node that it stands for; a view of storage once that is computed."""

    @abstractmethod
    def with_node(self, node: UOp) -> Self:
        """A new one for another node."""


holders: weakref.WeakSet[Holder] = weakref.WeakSet()
"""All that are alive. Before a buffer is overwritten those that still need its old value are
computed, so that a program means what its order says."""
