"""Which ops are legal at which stage, and what must hold for every node. `SPEC=1` runs this between
passes, so that an error is found in the pass that makes it."""

from __future__ import annotations

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import VerifyError
from tinygrad.uop.instructions import INSTRUCTIONS
from tinygrad.uop.node import UOp
from tinygrad.uop.op import ROW, SIZED, GroupOp, Ops
from tinygrad.uop.text import tree

_LEAVES = {Ops.CONST, Ops.DEFINE_VAR, Ops.PARAM, Ops.SINK}
_ELEMENTWISE = set(GroupOp.Elementwise)

STAGES: dict[str, frozenset[Ops]] = {
    # what a Tensor holds
    "tensor": frozenset(
        _LEAVES
        | _ELEMENTWISE
        | GroupOp.Movement
        | {Ops.ARANGE, Ops.UNIQUE, Ops.DEVICE, Ops.BUFFER, Ops.BIND}
        | {Ops.REDUCE_AXIS, Ops.FOLD, Ops.RUNNING, Ops.INDEX, Ops.SCATTER}
        | {Ops.CONTIGUOUS, Ops.DETACH, Ops.ASSIGN}
        | {Ops.COPY, Ops.KERNEL, Ops.SCAN, Ops.CALL, Ops.ITEM}
    ),
    # one kernel: loops over scalars, before and after a recipe is applied
    "kernel": frozenset(
        _LEAVES
        | _ELEMENTWISE
        | {Ops.RANGE, Ops.REDUCE, Ops.RUNNING, Ops.RESCALE, Ops.INDEX}
        | {Ops.STAGE, Ops.STORE, Ops.WMMA}
    ),
    # instructions in order
    "linear": frozenset(INSTRUCTIONS),
}


def verify(root: UOp, stage: str) -> None:
    """Raises VerifyError, with the node, unless every node below obeys `stage`."""
    legal = STAGES[stage]
    for node in root.toposort():
        if node.op not in legal:
            raise VerifyError(f"{node.op!r} has no place at stage {stage!r}: {tree(node)}")
        problem = _problem(node, stage)
        if problem:
            raise VerifyError(f"{node.op!r} at stage {stage!r}: {problem}: {tree(node)}")


def _problem(node: UOp, stage: str) -> str | None:
    row = ROW[node.op]
    sources = 1 if node.op in SIZED else len(node.src)
    if row.arity is not None and sources != row.arity and stage != "linear":
        return f"takes {row.arity} sources, has {len(node.src)}"
    if row.dtype in ("first", "bits") and node.src and node.dtype is not node.src[0].dtype:
        return f"has {node.dtype!r}, its first source {node.src[0].dtype!r}"
    if row.dtype == "bits" and dtypes.is_float(node.dtype):
        return f"has {node.dtype!r}, which has no bits"
    if row.dtype == "last" and node.dtype is not node.src[-1].dtype:
        return f"has {node.dtype!r}, its last source {node.src[-1].dtype!r}"
    if row.dtype == "bool" and node.dtype.scalar() is not dtypes.bool:
        return f"compares, but has {node.dtype!r}"
    if node.op in GroupOp.Binary and node.op not in (Ops.SHL, Ops.SHR):
        left, right = node.src
        if left.dtype is not right.dtype:
            return f"sources are {left.dtype!r} and {right.dtype!r}"
    if stage == "tensor" and node.op in GroupOp.Elementwise:
        shapes = {s.shape for s in node.src}
        if len(shapes) > 1:
            return f"sources have shapes {shapes}"
    if stage == "tensor" and node.op is Ops.SCATTER:
        target, updates, *places = (s.shape for s in node.src)
        rest = target[len(places) :]
        if any(where + rest != updates for where in places):
            return f"updates of shape {updates} at places {places} of {target}"
    return None
