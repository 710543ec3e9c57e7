"""Rules for floor division and remainder of integers that wrap. Indices don't wrap, so `affine` has
stronger laws for them; here a guard states that nothing wrapped. Division by 0 gives the quotient 0
and the remainder x."""

from __future__ import annotations

from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.simplify.arithmetic import c1, c2, literal, n, x
from tinygrad.uop.pattern import Rule, UPat

signed = UPat.var("x", dtypes.sints)
times = (n * c1).named("t")


def _no_wrap(x: Any, c1: Any, t: Any) -> Any:
    """The product t = x * c1 is the true one: its bounds are no wider than the product's."""
    return (c1.arg > 0) & (t.vmin == x.vmin * c1.arg) & (t.vmax == x.vmax * c1.arg)


def _divides(divisor: Any, number: Any) -> Any:
    return number % divisor == 0 if not isinstance(divisor, int) or divisor else False


RULES = [
    Rule("x // 1", n // 1, x),
    Rule("x % 1", n % 1, literal(0)),
    Rule("x // -1", signed // -1, x * -1),
    Rule("x // x", n // n, literal(1), lambda x: (x.vmin > 0) | (x.vmax < 0)),
    Rule("x % x", n % n, literal(0)),
    Rule(
        "x // c below c",
        n // c1,
        literal(0),
        lambda x, c1: (x.vmin >= 0) & (x.vmax < c1.arg),
    ),
    Rule("x % c below c", n % c1, x, lambda x, c1: (x.vmin >= 0) & (x.vmax < c1.arg)),
    Rule(
        "(x // c) // c",
        (n // c1) // c2,
        x // (c1 * c2),
        lambda x, c1, c2: (c1.arg > 0) & (c2.arg > 0) & (c1.arg * c2.arg <= c1.dtype.max),
    ),
    Rule(
        "(x % c) % c",
        (n % c1) % c2,
        x % c2,
        lambda x, c1, c2: (c1.arg > 0) & (c2.arg > 0) & _divides(c2.arg, c1.arg),
    ),
    Rule("(x * c) // c", times // c1, x, _no_wrap),
    Rule("(x * c) % c", times % c1, literal(0), _no_wrap),
]
