"""Kernels that overwrite what the other one reads: each would have to run first. An optimizer's
step makes such pairs where a gradient, computed where the parameter is updated, wants another
parameter's old value. With the gradients in kernels of their own no old value has to be copied."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.schedule.bases import COMPUTED, reached
from tinygrad.schedule.demand import Kernel
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def in_circles(kernels: Sequence[Kernel]) -> set[UOp]:
    """The reductions that are to be stored, and to share no kernel, so that no two kernels
    overwrite what the other reads. Empty: there are no such pairs, or nothing helps."""
    writers = {
        assign.src[0].base: kernel
        for kernel in kernels
        for assign in kernel.stores
        if assign.op is Ops.ASSIGN
    }
    reads = {kernel: {writers.get(node) for node in kernel.reads} for kernel in writers.values()}
    found: set[UOp] = set()
    for kernel, others in reads.items():
        if any(o is not None and o is not kernel and kernel in reads[o] for o in others):
            found |= _reductions(kernel)
    return found


def _reductions(kernel: Kernel) -> set[UOp]:
    """The reductions that the kernel's new values are made of element by element."""
    own = {node for node, _ in kernel.inlined if node.op is Ops.REDUCE_AXIS}
    values = [assign.src[1] for assign in kernel.stores if assign.op is Ops.ASSIGN]
    return own.intersection(reached(*values, through=lambda node: node.op in COMPUTED))
