"""Conditions on indices, and the values that they guard.

Conditions have a canonical form, too: `sum < constant` (or a sum equal to a constant), without a
common factor, and without parts that bounds decide. So the conditions of a gate can be compared:
the stronger one is kept, a contradiction is False, and under a gate an index can be simpler than
outside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import ceildiv
from tinygrad.simplify.affine import FREE, Algebra
from tinygrad.simplify.constants import drops_check, is_positive_zero
from tinygrad.simplify.forms import Form, Terms, combine, number, order, positive_divisor, scaled
from tinygrad.uop import GroupOp, Ops, UOp
from tinygrad.uop.bounds import Interval
from tinygrad.uop.pattern import Rule, UPat

_MOST = 16
"""More conditions than this are not compared with each other."""
_NAMED = (Ops.DEFINE_VAR, Ops.BIND)


def truth(value: bool) -> UOp:
    """A constant condition."""
    return UOp.const(dtypes.bool, value)


# ---- one condition -------------------------------------------------------------------------------


def below(form: Form, algebra: Algebra = FREE) -> UOp:
    """The condition form < 0, in canonical form."""
    while True:
        terms, limit = form[0], -form[1]
        low, high = algebra.span(terms, 0)
        if high < limit or low >= limit:
            return truth(high < limit)
        factor = gcd(*terms.values())
        if factor > 1:  # g*x < k is x < ceil(k / g)
            terms = {t: c // factor for t, c in terms.items()}
            limit = ceildiv(limit, factor)
        stronger = _without_division(terms, limit, algebra)
        if stronger is None:
            return algebra.build(terms).alu(Ops.CMPLT, number(limit))
        form = stronger


def _without_division(terms: Terms, limit: int, algebra: Algebra) -> Form | None:
    """x // d < k is x < k*d, and -(x // d) < k is -x < (k - 1)*d + 1."""
    ((term, sign), *others) = terms.items()
    divisor = positive_divisor(term)
    if others or term.op is not Ops.IDIV or divisor is None or abs(sign) != 1:
        return None
    inner = algebra.affine(term.src[0])
    reach = limit * divisor if sign == 1 else (limit - 1) * divisor + 1
    return combine(scaled(inner, sign), ({}, reach), -1)


def equal(form: Form, algebra: Algebra = FREE) -> UOp:
    """The condition form == 0, in canonical form."""
    terms, value = form[0], -form[1]
    low, high = algebra.span(terms, 0)
    factor = gcd(*terms.values()) if terms else 1
    if not low <= value <= high or value % factor:
        return truth(False)
    if low == high:
        return truth(True)
    if terms[min(terms, key=order)] < 0:
        factor = -factor
    reduced = {t: c // factor for t, c in terms.items()}
    return algebra.build(reduced).alu(Ops.CMPEQ, number(value // factor))


def _difference(node: UOp, algebra: Algebra = FREE) -> Form | None:
    """What a comparison compares with 0, if it is one of indices, or of what comes from them."""
    if node.op not in GroupOp.Comparison or not dtypes.is_int(node.src[0].dtype) or node.shape:
        return None
    a, b = node.src
    if a.dtype is dtypes.index:
        return algebra.add(algebra.affine(a), algebra.affine(b), -1)
    if not (_from_index(a) or _from_index(b)):
        return None
    a, b = a.cast(dtypes.index), b.cast(dtypes.index)
    form = algebra.add(algebra.affine(a), algebra.affine(b), -1)
    if any(term.op is Ops.CAST and term.src[0].op not in _NAMED for term in form[0]):
        return None  # of data
    return form


def _from_index(node: UOp) -> bool:
    """Whether integers made from loop counters stand at the left end of this expression."""
    while node.op in (Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD):
        node = node.src[0]
    return node.op is Ops.CAST and node.src[0].dtype is dtypes.index


def simplify_condition(node: UOp, algebra: Algebra = FREE) -> UOp:
    """A comparison of indices in canonical form; NOT of one likewise; any other as it is."""
    form = _difference(node, algebra)
    if form is None:
        return _negated(node, algebra)
    if node.op is Ops.CMPLT:
        return below(form, algebra)
    same = equal(form, algebra)
    if node.op is Ops.CMPEQ:
        return same
    return truth(not same.arg) if same.op is Ops.CONST else same.src[0].ne(same.src[1])


def _negated(node: UOp, algebra: Algebra) -> UOp:
    """not (x < k) is -x < 1 - k."""
    if node.op is not Ops.CMPNE or node.src[1] is not truth(True):
        return node
    form = _difference(node.src[0], algebra) if node.src[0].op is Ops.CMPLT else None
    return node if form is None else below(combine(scaled(form, -1), ({}, 1), -1), algebra)


# ---- several -------------------------------------------------------------------------------------


def conditions_of(*gates: UOp | None) -> list[UOp]:
    """The conditions whose AND these gates are, each once, in order; None is no gate."""
    found: dict[UOp, None] = {}
    stack = [gate for gate in reversed(gates) if gate is not None]
    while stack:
        node = stack.pop()
        if node.op is Ops.AND and node.dtype is dtypes.bool:
            stack.extend(reversed(node.src))
        else:
            found[node] = None
    return list(found)


def gate_of(access: UOp) -> UOp | None:
    """The bool under which an INDEX reads; None if it always reads."""
    return access.src[-1] if len(access.src) == access.arg + 2 else None


def with_gate(access: UOp, inside: UOp) -> UOp:
    """An INDEX that reads only where `inside` holds, too."""
    gate = gate_of(access)
    if gate is None:
        return access.with_src((*access.src, inside))
    return access.with_src((*access.src[:-1], gate & inside))


def all_of(conditions: Iterable[UOp]) -> UOp:
    """The AND as a chain that leans left; True for none, False if one is."""
    total: UOp | None = None
    for condition in conditions:
        if condition is truth(False):
            return condition
        if condition is not truth(True):
            total = condition if total is None else total & condition
    return truth(True) if total is None else total


def known_from(conditions: Iterable[UOp]) -> dict[UOp, Interval]:
    """What conditions say about sums of indices: the intervals in which these lie."""
    known: dict[UOp, Interval] = {}
    for node in conditions:
        form = _difference(node) if node.op in (Ops.CMPLT, Ops.CMPEQ) else None
        if form is None or not form[0]:
            continue
        terms, limit = form[0], -form[1]
        sign = 1 if terms[min(terms, key=order)] > 0 else -1
        total = scaled((terms, 0), sign)
        measured = FREE.build(total[0])
        low, high = known.get(measured) or FREE.span(*total)
        if node.op is Ops.CMPEQ:
            low, high = max(low, sign * limit), min(high, sign * limit)
        elif sign == 1:
            high = min(high, limit - 1)
        else:
            low = max(low, 1 - limit)
        known[measured] = low, high
    return known


def both(*gates: UOp) -> UOp:
    """The AND of gates, without repeated or implied conditions; False if they visibly contradict
    each other."""
    conditions = conditions_of(*map(simplify_condition, conditions_of(*gates)))
    if len(conditions) > _MOST or any(c.has_check for c in conditions):
        return all_of(conditions)
    if any(low > high for low, high in known_from(conditions).values()):
        return truth(False)
    for condition in reversed(conditions):
        others = [c for c in conditions if c is not condition]
        known = known_from(others)
        now = simplify_condition(condition, Algebra(known)) if known else condition
        if now is truth(False):
            return now
        if now is truth(True):
            conditions = others
    return all_of(conditions)


def under(gate: UOp, node: UOp) -> UOp:
    """An index expression or a condition, simplified with the knowledge that `gate` holds."""
    algebra = Algebra(known_from(conditions_of(gate)))
    if node.dtype is dtypes.index:
        return FREE.simplify(algebra.simplify(node))
    return simplify_condition(node, algebra)


def bounds_under(conditions: Iterable[UOp], index: UOp) -> Interval:
    """The interval of an index where these conditions hold, each of which may bound a part."""
    terms, low = FREE.affine(index)
    high = low
    for measured, (least, most) in known_from(conditions).items():
        part, _ = FREE.affine(measured)
        factors = {terms.get(term, 0) / count for term, count in part.items()}
        factor = int(next(iter(factors)))
        if len(factors) == 1 and factor in factors and factor:
            terms, _ = combine((terms, 0), (part, 0), -factor)
            ends = factor * least, factor * most
            low, high = low + min(ends), high + max(ends)
    rest = FREE.span(terms, 0)
    return low + rest[0], high + rest[1]


# ---- the rules -----------------------------------------------------------------------------------


def _condition(node: UOp) -> UOp | None:
    """A comparison of indices is `sum < constant` or a sum (not) equal to a constant."""
    made = simplify_condition(node)
    return None if made is node or drops_check(node, made) else made


def _conditions(node: UOp) -> UOp | None:
    """An AND keeps the conditions that the others don't imply."""
    conditions = conditions_of(node)
    scalar = not node.shape and len(conditions) <= _MOST
    if not scalar or not known_from(map(simplify_condition, conditions)):
        return None
    return both(*conditions)


def _gated(node: UOp) -> UOp | None:
    """An INDEX under its gate gets simpler indices. A gate that always holds is dropped, and the
    INDEX is 0 if it never does."""
    gate = gate_of(node)
    if gate is None or node.shape:
        return None
    indices = node.src[1:-1]
    if gate.op is Ops.CONST:
        if gate.arg:
            return node.with_src(node.src[:-1])
        return None if any(i.has_check for i in indices) else node.const_like(0)
    made = tuple(_simpler(under(gate, i), i) for i in indices)
    return node.with_src((node.src[0], *made, gate)) if made != indices else None


def _simpler(made: UOp, index: UOp) -> UOp:
    """Which of two equal expressions has fewer divisions, then fewer nodes."""
    if made is index or drops_check(index, made):
        return index
    return min((index, made), key=_cost)


def _cost(index: UOp) -> tuple[int, int]:
    nodes = index.toposort()
    return sum(node.op in (Ops.IDIV, Ops.MOD) for node in nodes), len(nodes)


def _choice(node: UOp, gate: UOp, yes: UOp, no: UOp) -> UOp | None:
    """where(gate, x[i], 0) is x[i] read under the gate, with indices simplified under it. Not if
    the gate itself reads as often: then nothing is saved, and a product's operand would no longer
    be a plain read."""
    if node.shape:
        return None
    if is_positive_zero(yes) and no.op is Ops.INDEX:
        gate, yes, no = simplify_condition(gate.logical_not()), no, yes
    if is_positive_zero(no) and yes.op is Ops.INDEX and yes.arg:
        if any(n.op is Ops.INDEX and n.ranges >= yes.ranges for n in gate.toposort()):
            return None
        gates = (gate, *yes.src[yes.arg + 1 :])
        return yes.with_src((*yes.src[: yes.arg + 1], both(*gates)))
    if node.dtype is dtypes.index:
        closer = _simpler(under(gate, yes), yes), _simpler(under(gate.logical_not(), no), no)
        return node.with_src((gate, *closer)) if closer != (yes, no) else None
    return None


_CHOICE = UPat(Ops.WHERE, src=(UPat.var("gate"), UPat.var("yes"), UPat.var("no")), name="node")

RULES = [
    Rule("condition", UPat(GroupOp.Comparison, name="node"), _condition),
    Rule("conditions", UPat(Ops.AND, dtypes.bool, name="node"), _conditions),
    Rule("gated index", UPat(Ops.INDEX, name="node"), _gated),
    Rule("choice under a gate", _CHOICE, _choice),
]
