"""Rules for sums, products, quotients and maxima, as data.

Integers wrap, so they obey the laws of a ring. Floats round and have NaN, infinities and -0.0, so
few laws hold, and none that changes when something is rounded: x*0 is not 0, x+0.0 is not x (-0.0
becomes 0.0), (x+1)+1 is not x+2. A rule's `when` reads `.vmin`, `.vmax` and `.arg` of the named
nodes; it is written with & and |, so that the prover can read it too.
"""

from __future__ import annotations

import math

from tinygrad.base.dtype import dtypes
from tinygrad.uop import Ops, UOp
from tinygrad.uop.pattern import Rule, UPat

WRAPPING = dtypes.ints
WHOLE = (*dtypes.ints, dtypes.index)
FLOATS = dtypes.floats

x, y, c1, c2 = UPat.var("x"), UPat.var("y"), UPat.cvar("c1"), UPat.cvar("c2")
n = UPat.var("x", WRAPPING)
whole = UPat.var("x", WHOLE)
exact = UPat.var("x", (*WHOLE, dtypes.bool))
real, two = UPat.var("x", FLOATS), UPat.cvar("c1", FLOATS)


def literal(value: float) -> UPat:
    """A constant on the right of a rule, with the dtype and shape of the left side."""
    return UPat(Ops.CONST, arg=value)


def _quotient_by_power_of_two(x: UOp, c1: UOp) -> UOp | None:
    """x / c is x * (1/c), bit for bit, where 1/c is exact: both round the same real number."""
    value = float(c1.arg)
    if value == 0 or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    inverse = x.const_like(1.0 / value)
    exact = dtypes.as_const(1.0 / value, x.dtype) == 1.0 / value and abs(1.0 / value) > 1e-30
    return x.alu(Ops.MUL, inverse) if exact else None


RULES = [
    # ---- neutral and absorbing constants
    Rule("x + 0", exact + 0, x),
    Rule("x + -0.0", real + two, x, lambda x, c1: (c1.arg == 0) and math.copysign(1, c1.arg) < 0),
    Rule("x * 1", x * 1, x),
    Rule("x * 0", exact * 0, literal(0)),
    Rule("x / 1", real.alu(Ops.FDIV, x.const_like(1)), x),
    Rule("x / power of two", real.alu(Ops.FDIV, two), _quotient_by_power_of_two),
    # ---- constants meet
    Rule("(x + c) + c", (n + c1) + c2, x + (c1 + c2)),
    Rule("(x * c) * c", (n * c1) * c2, x * (c1 * c2)),
    Rule("-(-x)", (x * -1) * -1, x),
    Rule("max(max(x, c), c)", x.maximum(c1).maximum(c2), x.maximum(c1.maximum(c2))),
    # ---- like terms
    Rule("x + x", n + n, x * 2),
    Rule("x*c + x", n * c1 + n, x * (c1 + 1)),
    Rule("x*c + x*c", n * c1 + n * c2, x * (c1 + c2)),
    # ---- maxima
    Rule("max(x, x)", x.maximum(x), x),
    Rule("max(max(x, y), y)", x.maximum(y).maximum(y), x.maximum(y)),
    Rule("max above", whole.maximum(y), x, lambda x, y: x.vmin >= y.vmax),
    # ---- functions of one
    Rule("trunc(trunc(x))", real.trunc().trunc(), x.trunc()),
    Rule("pow(x, 0)", real.alu(Ops.POW, x.const_like(0)), literal(1)),
    Rule("pow(x, 1)", real.alu(Ops.POW, x.const_like(1)), x),
]
