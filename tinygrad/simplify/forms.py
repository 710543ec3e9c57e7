"""Sums of integer multiples of terms, as plain dicts: the data that `affine` computes with. The
functions here keep a form a form; they decide nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from tinygrad.base.dtype import dtypes
from tinygrad.uop import Ops, UOp
from tinygrad.uop.bounds import interval_of

Terms = Mapping[UOp, int]
Form = tuple[Terms, int]
"""The sum of coefficient * term, and the constant. Never changed once made."""

ZERO: Form = ({}, 0)


@functools.lru_cache(4096)  # strides and turns: the same few, many times
def number(value: int) -> UOp:
    """A constant of dtype index."""
    return UOp.const(dtypes.index, value)


def order(term: UOp) -> tuple[int, str, bytes]:
    """The sort key of a term in a sum: the same in every process, whatever the order of
    creation."""
    if term.op is Ops.RANGE:
        return 0, term.arg[0], term.key
    if term.op is Ops.DEFINE_VAR:
        return 1, term.arg[0], term.key
    return (3 if term.op is Ops.CONST else 2), "", term.key


def combine(a: Form, b: Form, scale: int = 1) -> Form:
    """a + scale * b, term by term."""
    terms = dict(a[0])
    for term, coefficient in b[0].items():
        total = terms.get(term, 0) + scale * coefficient
        if total:
            terms[term] = total
        else:
            terms.pop(term, None)
    return terms, a[1] + scale * b[1]


def scaled(a: Form, factor: int) -> Form:
    """factor * a, term by term."""
    return combine(ZERO, a, factor)


def without(a: Form, *gone: UOp) -> Form:
    """The form with some terms left out."""
    return {t: c for t, c in a[0].items() if t not in gone}, a[1]


def step_in(terms: Terms, loop: UOp) -> int | None:
    """By how much a sum grows with each turn of `loop`; None if not by the same number."""
    found = 0
    for term, coefficient in terms.items():
        if term is loop:
            found = coefficient
        elif loop in term.ranges:
            return None
    return found


def factors(term: UOp) -> list[UOp]:
    """The factors of a product of terms, itself for any other term."""
    found: list[UOp] = []
    while term.op is Ops.MUL:
        term, last = term.src
        found.append(last)
    return [term, *reversed(found)]


def product(of: Iterable[UOp]) -> UOp:
    """The product of terms, in order, as a chain that leans left."""
    first, *rest = sorted(of, key=order)
    for factor in rest:
        first = first.alu(Ops.MUL, factor)
    return first


def positive_divisor(term: UOp) -> int | None:
    """Of a quotient or remainder by a positive constant: that constant."""
    if term.op not in (Ops.IDIV, Ops.MOD) or term.src[1].op is not Ops.CONST:
        return None
    return term.src[1].arg if term.src[1].arg > 0 else None


_OPENED = (Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX)


def open_cast(node: UOp) -> UOp | None:
    """A CAST to index, moved one step inward, if the narrower arithmetic can't have wrapped."""
    (inner,) = node.src
    if not dtypes.is_int(inner.dtype):
        return None
    if inner.op is Ops.CONST:
        return number(int(inner.arg))
    if inner.op is Ops.CAST:
        (source,) = inner.src
        if not dtypes.is_int(source.dtype) or not inner.dtype.holds(source.vmin, source.vmax):
            return None
        return source.cast(dtypes.index)
    if inner.op not in _OPENED:
        return None
    opened = UOp(inner.op, dtypes.index, tuple(s.cast(dtypes.index) for s in inner.src))
    low, high = interval_of(opened, [(s.vmin, s.vmax) for s in inner.src])
    return opened if inner.dtype.holds(low, high) else None
