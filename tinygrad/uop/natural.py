"""How a natural exponential is written: EXP2(y * log2 e). The op table has no row for it, so one
set of rules and one gradient serve both bases. The evaluation recognises this form and does not
round the product, whose error would grow with y."""

from __future__ import annotations

from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

LOG2_E = 1.4426950408889634


def natural_exponent(x: UOp) -> UOp | None:
    """The y of x = y * log2(e) in the exponent of an EXP2, where e**y is meant; else None."""
    if x.op is not Ops.MUL:
        return None
    for y, factor in (x.src, x.src[::-1]):
        if factor.op is Ops.CONST and factor.arg == UOp.const(x.dtype, LOG2_E).arg:
            return y
    return None
