"""Masks that several blocks use, on processors that have no registers for masks.

Such a mask lies in a vector's lanes. Between blocks LLVM keeps a vector of bools in narrower lanes,
so it packs a mask after computing it, and unpacks it before each use. Here lanes are widened to
those of a vector; blocks that come later look only at their signs."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.backends.llvm_text import Writer, is_number
from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.uop import Ops, UOp

NARROWEST, WIDEST = 8, 64  # bits of a lane
BLOCKS = (Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF)


class LaneMasks:
    """The masks of one function."""

    def __init__(self, writer: Writer, program: Sequence[UOp], target: Target) -> None:
        self.writer, self.bits = writer, 8 * target.vector
        self.used: dict[UOp, dict[UOp, None]] = {}
        if "masked_store" not in target.native and not target.has_groups:
            self._find(program)
        self.kept = {mask for masks in self.used.values() for mask in masks}
        self.widened: dict[UOp, str] = {}

    def _find(self, program: Sequence[UOp]) -> None:
        """For each node that begins a block, finds the masks that it uses and others made."""
        block, made = program[0], dict[UOp, UOp]()
        for node in program:
            for source in node.src:
                if made.get(source, block) is not block:
                    self.used.setdefault(block, {})[source] = None
            if node.op in BLOCKS:
                block = node
            elif self._is_mask(node):
                made[node] = block

    def _is_mask(self, node: UOp) -> bool:
        lanes = NARROWEST * node.dtype.count <= self.bits <= WIDEST * node.dtype.count
        is_bool = node.dtype.scalar() is dtypes.bool and node.dtype.count > 1
        return is_bool and lanes and node.op is not Ops.CARRY and not is_number(node)

    def follow(self, node: UOp) -> None:
        """Writes what these masks need after `node`, which has just been written."""
        writer = self.writer
        for mask in self.used.get(node, ()):
            signs = f"icmp slt {self.widened[mask]}, zeroinitializer"
            writer.names[mask] = writer.emit(signs)
        if node in self.kept:
            kind = f"<{node.dtype.count} x i{self.bits // node.dtype.count}>"
            wide = writer.emit(f"sext {writer.typed(node)} to {kind}")
            self.widened[node] = f"{kind} {wide}"
