"""Floor 5: from a scheduled kernel to linear programs. `pipeline` is the table of contents."""

from __future__ import annotations

from tinygrad.base.target import Target
from tinygrad.codegen.pipeline import Lowered, Phase, lower, rewrite
from tinygrad.loops.heuristic import schedule
from tinygrad.uop.node import UOp

__all__ = ["Lowered", "Phase", "full_rewrite_to_sink", "lower"]


def full_rewrite_to_sink(ast: UOp, target: Target | None = None) -> UOp:
    """A kernel's graph before it becomes a loop tree: with its recipe applied, and in the ops of
    the target (by default a plain CPU)."""
    chosen = target or Target("CPU")
    kernel, _ = schedule(ast, chosen)
    return rewrite(kernel, chosen)
