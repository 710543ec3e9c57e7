"""Rules for bits, comparisons and choices, as data. NaN is unordered, so comparisons are decided by
bounds for integers only, and floats get only rules that hold for every value."""

from __future__ import annotations

from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.simplify.arithmetic import WHOLE, c1, c2, literal, n, whole, x
from tinygrad.uop.op import Ops
from tinygrad.uop.pattern import Rule, UPat

exact = UPat.var("x", (*WHOLE, dtypes.bool))
y, z, w = UPat.var("y"), UPat.var("z"), UPat.var("w", WHOLE)
p, q = UPat.var("p", dtypes.bool), UPat.var("q", dtypes.bool)
yes, no = UPat(Ops.CONST, dtypes.bool, arg=True), UPat(Ops.CONST, dtypes.bool, arg=False)


def choose(condition: UPat, yes: UPat, no: UPat) -> UPat:
    """WHERE."""
    return condition.alu(Ops.WHERE, yes, no)


def _all_ones(c1: Any) -> Any:
    dtype = c1.dtype
    return c1.arg == (dtype.max if dtypes.is_unsigned(dtype) or dtype is dtypes.bool else -1)


def _shift_holds(x: Any, c1: Any, c2: Any) -> Any:
    """x + c1 < c2 as integers: the sum can't wrap, nor can c2 - c1."""
    low, high = x.dtype.min, x.dtype.max
    fits = (x.vmin + c1.arg >= low) & (x.vmax + c1.arg <= high)
    return fits & (c2.arg - c1.arg >= low) & (c2.arg - c1.arg <= high)


def _is_below(x: Any, w: Any) -> Any:
    return x.vmax < w.vmin


def _is_not_below(x: Any, w: Any) -> Any:
    return x.vmin >= w.vmax


def _are_apart(x: Any, w: Any) -> Any:
    """No number is within the bounds of both."""
    return (x.vmax < w.vmin) | (w.vmax < x.vmin)


BITS = [
    Rule("x & x", exact & exact, x),
    Rule("x | x", exact | exact, x),
    Rule("x ^ x", exact ^ exact, literal(0)),
    Rule("x & 0", exact & 0, literal(0)),
    Rule("x | 0", exact | 0, x),
    Rule("x ^ 0", exact ^ 0, x),
    Rule("x & ones", exact & c1, x, lambda x, c1: _all_ones(c1)),
    Rule("x | ones", exact | c1, c1, lambda x, c1: _all_ones(c1)),
    Rule("(x & c) & c", (exact & c1) & c2, x & (c1 & c2)),
    Rule("(x | c) | c", (exact | c1) | c2, x | (c1 | c2)),
    Rule("(x ^ c) ^ c", (exact ^ c1) ^ c2, x ^ (c1 ^ c2)),
    Rule("(x & y) & y", (exact & y) & y, x & y),
    Rule("(x | y) | y", (exact | y) | y, x | y),
    Rule("x & (x | y)", exact & (exact | y), x),
    Rule("x | (x & y)", exact | (exact & y), x),
    Rule("p & not p", p & p.ne(True), literal(False)),
    Rule("p | not p", p | p.ne(True), literal(True)),
]
COMPARISONS = [
    Rule("not not p", p.ne(True).ne(True), p),
    Rule("p != False", p.ne(False), p),
    Rule("p == True", p.eq(True), p),
    Rule("p == False", p.eq(False), p.ne(True)),
    Rule("not x == y", x.eq(y).ne(True), x.ne(y)),
    Rule("not x != y", x.ne(y).ne(True), x.eq(y)),
    Rule("x < x", x < x, literal(False)),
    Rule("x == x", exact.eq(exact), literal(True)),
    Rule("x != x", exact.ne(exact), literal(False)),
    Rule("x < y or x == y", (whole < y) | whole.eq(y), (y < x).ne(True)),
    Rule("always x < y", whole < w, literal(True), _is_below),
    Rule("never x < y", whole < w, literal(False), _is_not_below),
    Rule("never x == y", whole.eq(w), literal(False), _are_apart),
    Rule("always x != y", whole.ne(w), literal(True), _are_apart),
    Rule("x + c < c", (n + c1) < c2, x < (c2 + c1 * -1), _shift_holds),
]
CHOICES = [
    Rule("where(p, x, x)", choose(p, x, x), x),
    Rule("where(True, x, y)", choose(c1, x, y), x, lambda c1, x, y: c1.arg == True),  # noqa: E712
    Rule("where(False, x, y)", choose(c1, x, y), y, lambda c1, x, y: c1.arg == False),  # noqa: E712
    Rule("where(not p, x, y)", choose(p.ne(True), x, y), choose(p, y, x)),
    Rule("where(p, where(p, x, y), z)", choose(p, choose(p, x, y), z), choose(p, x, z)),
    Rule("where(p, x, where(p, y, z))", choose(p, x, choose(p, y, z)), choose(p, x, z)),
    Rule("where(p, where(q, x, y), y)", choose(p, choose(q, x, y), y), choose(p & q, x, y)),
    Rule("where(p, x, where(q, x, y))", choose(p, x, choose(q, x, y)), choose(p | q, x, y)),
    Rule("where(p, True, False)", choose(p, yes, no), p),
]
CHECKS = [Rule("check that holds", UPat(Ops.CHECK, src=(x, yes)), x)]
RULES = [*BITS, *COMPARISONS, *CHOICES, *CHECKS]
