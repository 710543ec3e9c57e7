"""Rules for conversions: which of two consecutive casts is needed. A dtype holds the values of
another one if converting to it changes none of them; `holds` is that relation, by bits."""

from __future__ import annotations

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop import Ops, UOp
from tinygrad.uop.pattern import Rule, UPat

x = UPat.var("x")
outer = UPat(Ops.CAST, src=(UPat(Ops.CAST, src=(x,), name="inner"),), name="outer")
p, zero = UPat.var("p", dtypes.bool), UPat(Ops.CONST, arg=0)


def holds(wide: DType, x: UOp) -> bool:
    """Whether converting x to `wide` keeps every value that x can have."""
    narrow = x.dtype.scalar()
    wide = wide.scalar()
    if wide is narrow:
        return True
    if wide is dtypes.bool:
        return False
    if dtypes.is_float(narrow):
        if not dtypes.is_float(wide):
            return False
        (exponent, mantissa), (more, finer) = dtypes.finfo(narrow), dtypes.finfo(wide)
        return bool(exponent <= more and mantissa <= finer and wide is not dtypes.fp8e4m3)
    if dtypes.is_float(wide):
        exact = 2 ** (dtypes.finfo(wide)[1] + 1)
        return bool(-exact <= x.vmin and x.vmax <= exact)
    return wide.holds(x.vmin, x.vmax)


def _middle_not_needed(outer: UOp, inner: UOp, x: UOp) -> UOp | None:
    """cast(cast(x)) is one cast if the inner one keeps every value, or if both only cut off bits.

    An integer that was converted to a float saturates in the outer cast, where a direct cast would
    wrap. So then it must fit the last type, too.
    """
    first, middle, last = x.dtype, inner.dtype, outer.dtype
    if _index_of_float(first, middle, last):
        return None
    if holds(middle, x):
        wraps = dtypes.is_int(last) and not dtypes.is_float(first)
        if wraps and dtypes.is_float(middle) and not holds(last, x):
            return None
        return x.cast(last)
    cuts = dtypes.is_int(first) and middle in dtypes.ints and last in dtypes.ints
    return x.cast(last) if cuts and last.itemsize <= middle.itemsize else None


def _index_of_float(first: DType, middle: DType, last: DType) -> bool:
    """`index` is for addresses: there is no direct conversion between it and floats."""
    return dtypes.index in (first, last) and any(dtypes.is_float(d) for d in (first, middle, last))


def _to_its_own(node: UOp) -> UOp | None:
    """A conversion of x to the dtype that it has is x."""
    return node.src[0] if node.dtype is node.src[0].dtype else None


def _of_a_choice(node: UOp, p: UOp, a: UOp, b: UOp) -> UOp | None:
    """cast(where(p, constant, constant)) is a choice of converted constants."""
    return p.where(a.cast(node.dtype), b.cast(node.dtype))


choice = UPat(Ops.WHERE, src=(UPat.var("p"), UPat.cvar("a"), UPat.cvar("b")))

RULES = [
    Rule("cast to its own", UPat((Ops.CAST, Ops.BITCAST), name="node"), _to_its_own),
    Rule("cast of a cast", outer, _middle_not_needed),
    Rule(
        "bitcast of a bitcast",
        UPat(Ops.BITCAST, src=(UPat(Ops.BITCAST, dtypes.ints, (x,)),), name="node"),
        lambda node, x: x.bitcast(node.dtype),
    ),
    Rule("cast of a choice", UPat(Ops.CAST, src=(choice,), name="node"), _of_a_choice),
    Rule("cast(p) != 0", UPat(Ops.CMPNE, src=(UPat(Ops.CAST, src=(p,)), zero)), lambda p: p),
    Rule(
        "cast(p) == 0",
        UPat(Ops.CMPEQ, src=(UPat(Ops.CAST, src=(p,)), zero)),
        lambda p: p.logical_not(),
    ),
]
