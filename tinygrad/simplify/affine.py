"""Index arithmetic in one canonical form: a sum of integer multiples of terms, plus a constant.

Every address of every kernel passes through here. So equal addresses are the same node, divisions
that a reshape introduced disappear where bounds allow it, and the step of a vector can be read off.
Terms are what can't be split further: RANGEs, variables, IDIV and MOD by constants, products of
variables, casts of loaded values. Nothing here knows of memory or loops, and nothing recurses over
depth.

An `index` never wraps: it is a mathematical integer, so the laws of ordinary arithmetic hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.simplify.forms import (
    ZERO,
    Form,
    Terms,
    combine,
    factors,
    number,
    open_cast,
    order,
    positive_divisor,
    product,
    scaled,
    without,
)
from tinygrad.uop.bounds import Interval, bounds
from tinygrad.uop.node import Notes, UOp
from tinygrad.uop.op import GroupOp, Ops, evaluate

_ATOM = None
"""Remembered for a node that is its own single term (a strong reference would keep it alive)."""
_MISSING: Any = object()


class _Built(tuple[Terms, int]):
    """The form of a node that is built of it, and so is canonical itself."""

    __slots__ = ()


_MOST_PRODUCTS = 16
"""A product of sums is multiplied out only up to so many terms."""


class Algebra:
    """Index arithmetic in which some sums are `known` to lie in narrower intervals than their terms
    show.

    `known` maps canonical sums without a constant to intervals; the gate that guards a value gives
    such knowledge. Without `known`, results are remembered for as long as their nodes live.
    """

    def __init__(self, known: Mapping[UOp, Interval] | None = None) -> None:
        self.known = known or {}
        self._memo: dict[UOp, Form | None] | Notes[Form | None] = {} if known else Notes()

    # ---- from nodes to forms and back ------------------------------------------------------------

    def affine(self, node: UOp) -> Form:
        """The form of a node of dtype index."""
        memo = self._memo
        form = memo.get(node, _MISSING)
        if form is not _MISSING:
            return ({node: 1}, 0) if form is _ATOM else form
        assert node.dtype is dtypes.index, f"not an index: {node!r}"
        stack = [node]
        parts: dict[UOp, tuple[UOp, ...]] = {}  # held here: the memo holds nothing
        while stack:
            top = stack[-1]
            if top not in parts:
                parts[top] = self._parts(top)
            todo = [s for s in parts[top] if s not in memo]
            if todo:
                stack.extend(todo)
                continue
            stack.pop()
            if top not in memo:
                self._remember(top, self._form(top))
        return self._recall(node)

    def _recall(self, node: UOp) -> Form:
        form = self._memo[node]
        return ({node: 1}, 0) if form is _ATOM else form

    def _remember(self, node: UOp, form: Form) -> None:
        self._memo[node] = _ATOM if node in form[0] else form

    def build(self, terms: Terms, constant: int = 0) -> UOp:
        """The canonical node of a form: ((a*ka + b*kb) + c*kc) + constant, terms in `order`."""
        total: UOp | None = None
        ordered = terms if len(terms) == 1 else sorted(terms, key=order)
        for term in ordered:
            coefficient = terms[term]
            part = term if coefficient == 1 else term.alu(Ops.MUL, number(coefficient))
            total = part if total is None else total.alu(Ops.ADD, part)
        if total is None:
            return number(constant)
        node = total.alu(Ops.ADD, number(constant)) if constant else total
        if not self._is_built(node):  # in order: code follows it, and must not tell who was first
            self._remember(node, _Built(({term: terms[term] for term in ordered}, constant)))
        return node

    def _is_built(self, node: UOp) -> bool:
        """Whether the node is known to be canonical."""
        form = self._memo.get(node, _MISSING)
        return form is _ATOM or type(form) is _Built

    def simplify(self, node: UOp) -> UOp:
        return node if self._is_built(node) else self.build(*self.affine(node))

    def _parts(self, node: UOp) -> tuple[UOp, ...]:
        """The nodes whose forms `node`'s form is made of."""
        if node.op in _FORMS:
            return node.src
        if node.op in (Ops.MAX, Ops.WHERE):
            return node.src[-2:]
        opened = open_cast(node) if node.op is Ops.CAST else None
        return () if opened is None else (opened,)

    def _form(self, node: UOp) -> Form:
        """The form of a node whose parts' forms are known."""
        rule = _FORMS.get(node.op)
        if rule is not None:
            return rule(self, node, *map(self._recall, node.src))
        if node.op is Ops.CONST:
            return {}, int(node.arg)
        if node.op in (Ops.MAX, Ops.WHERE):
            return self._choice(node)
        if node.op is Ops.CAST and (opened := open_cast(node)) is not None:
            return self._recall(opened)
        return self._atom(node)

    def _atom(self, node: UOp) -> Form:
        low, high = self._bounds(node)
        return ({}, int(low)) if low == high else ({node: 1}, 0)

    def _term(self, node: UOp) -> Form:
        """A node made here, from canonical sources. It is a term of its own, or a constant if it
        has only one value."""
        form = self._atom(node)
        if form[0]:
            self._memo[node] = _ATOM
        return form

    def _choice(self, node: UOp) -> Form:
        """max(a, b), or a WHERE: one of the two operands if bounds decide which, else a term."""
        a, b = map(self._recall, node.src[-2:])
        if a == b:
            return a
        if node.op is Ops.MAX:
            low, high = self.span(*combine(a, b, -1))
            if low >= 0 or high <= 0:
                return a if low >= 0 else b
            a, b = sorted((a, b), key=lambda form: order(self.build(*form)))
        elif node.src[0].op is Ops.CONST:
            return a if node.src[0].arg else b
        return self._term(node.with_src((*node.src[:-2], self.build(*a), self.build(*b))))

    # ---- bounds ----------------------------------------------------------------------------------

    def _bounds(self, node: UOp) -> Interval:
        return bounds(node, self.known) if self.known else (node.vmin, node.vmax)

    def span(self, terms: Terms, constant: int) -> tuple[int, int]:
        """The interval in which a form lies."""
        low = high = constant
        for term, coefficient in terms.items():
            least, most = self._bounds(term)
            low += coefficient * (least if coefficient > 0 else most)
            high += coefficient * (most if coefficient > 0 else least)
        if self.known and terms:
            for sign in (1, -1):
                fact = self.known.get(FREE.build(scaled((terms, 0), sign)[0]))
                if fact is not None:
                    least, most = sorted(sign * end for end in fact)
                    low, high = max(low, least + constant), min(high, most + constant)
        return low, high

    def _largest(self, form: Form) -> Form:
        """A form that is never below this one: loops with a limit are replaced by their last
        turn."""
        for term, coefficient in form[0].items():
            if term.op is Ops.RANGE and coefficient > 0 and len(term.src) > 1:
                last = combine(self.affine(term.src[1]), ({}, 1), -1)
                form = combine(combine(form, ({term: 1}, 0), -coefficient), last, coefficient)
        return form

    # ---- the operations --------------------------------------------------------------------------

    def add(self, a: Form, b: Form, scale: int = 1) -> Form:
        """a + scale * b, where a quotient and the remainder that belongs to it are recombined."""
        return self._recombined(combine(a, b, scale))

    def _recombined(self, form: Form) -> Form:
        """(x // d) * d + x % d is x, and (x // d % e) * d + x % d is x % (d * e)."""
        terms, _ = form
        for term, coefficient in terms.items():
            divisor = positive_divisor(term) if term.op is Ops.MOD else None
            partners = [t for t, c in terms.items() if divisor and c == coefficient * divisor]
            if divisor is None or not partners:
                continue
            inner = self.affine(term.src[0])
            high = self._quotients(inner, divisor)
            for partner in partners:
                turns = positive_divisor(partner)
                if partner not in high:
                    if partner.op is not Ops.MOD or partner.src[0] not in high or turns is None:
                        continue
                    inner = self.modulo(inner, divisor * turns)
                return self.add(without(form, term, partner), inner, coefficient)
        return form

    def _quotients(self, form: Form, divisor: int) -> list[UOp]:
        """What form // divisor is written as: (x // a + y) // b is (x + a*y) // (a*b), too."""
        found = [self.divide(form, divisor)]
        for term, coefficient in form[0].items():
            a = positive_divisor(term) if term.op is Ops.IDIV and coefficient == 1 else None
            if a is not None:
                dividend = combine(self.affine(term.src[0]), without(form, term), a)
                found.append(self.divide(dividend, a * divisor))
        return [self.build(*each) for each in found]

    def multiply(self, a: Form, b: Form) -> Form:
        """a * b, multiplied out; a large product of sums stays a term."""
        (left_terms, left_constant), (right_terms, right_constant) = a, b
        if not left_terms:
            return scaled(b, left_constant)
        if not right_terms:
            return scaled(a, right_constant)
        if len(left_terms) * len(right_terms) > _MOST_PRODUCTS:
            return self._term(product((self.build(*a), self.build(*b))))
        form: Form = {}, left_constant * right_constant
        form = combine(form, (left_terms, 0), right_constant)
        form = combine(form, (right_terms, 0), left_constant)
        for left, k in left_terms.items():
            for right, m in right_terms.items():
                both = (*factors(left), *factors(right))
                form = combine(form, self._term(product(both)), k * m)
        return self._recombined(form)

    def divide(self, form: Form, divisor: int) -> Form:
        """The floor of form / divisor; by 0 it is 0."""
        return self.divmod(form, divisor)[0]

    def modulo(self, form: Form, divisor: int) -> Form:
        """form - divisor * floor(form / divisor); by 0 the form itself."""
        return self.divmod(form, divisor)[1]

    def divmod(self, form: Form, divisor: int) -> tuple[Form, Form]:
        """Floor quotient and remainder, such that quotient * divisor + remainder is the form.

        Terms that the divisor divides go to the quotient. A rest that lies within one multiple of
        the divisor goes to the remainder. Then a common factor g is divided out, if the smaller
        terms fit under it: (g*X + y) // d is X // (d/g) if 0 <= y < g.
        """
        if divisor == 0:
            return ZERO, form
        if divisor < 0:  # x // -d is -x // d, and x % -d is -(-x % d)
            quotient, remainder = self.divmod(scaled(form, -1), -divisor)
            return quotient, scaled(remainder, -1)
        terms, constant = form
        whole: Form = ({t: c // divisor for t, c in terms.items() if c % divisor == 0}, 0)
        rest: Form = ({t: c for t, c in terms.items() if c % divisor}, constant)
        found = self._within(rest, divisor) or self._by_factor(rest, divisor)
        found = found or self._on_a_line(rest, divisor)
        if found is None:
            turns, left = divmod(constant, divisor)
            whole, rest = (whole[0], turns), (rest[0], left)
            found = self._opaque(rest, divisor)
        return self.add(whole, found[0]), found[1]

    def _within(self, rest: Form, divisor: int) -> tuple[Form, Form] | None:
        """The case that the form lies between two neighbouring multiples of the divisor. Larger
        coefficients may first contribute whole multiples: (5*i) // 4 is i + i // 4."""
        turns = {t: c // divisor + (c < 0) for t, c in rest[0].items() if abs(c) > divisor}
        for left in (rest, combine(rest, (turns, 0), -divisor)):
            low, high = self.span(*left)
            if low // divisor == high // divisor:
                quotient: Form = ({} if left is rest else turns, low // divisor)
                return quotient, combine(rest, quotient, -divisor)
            if not turns:
                break
        return None

    def _on_a_line(self, rest: Form, divisor: int) -> tuple[Form, Form] | None:
        """A value with only two possibilities has a linear quotient: (g + 1) // 2 is g if g is 0 or
        1."""
        terms, constant = rest
        if len(terms) != 1:
            return None
        ((term, coefficient),) = terms.items()
        least, most = self._bounds(term)
        if most != least + 1:
            return None
        first, last = ((coefficient * x + constant) // divisor for x in (least, most))
        quotient = combine(({}, first), ({term: 1}, -least), last - first)
        return quotient, combine(rest, quotient, -divisor)

    def _by_factor(self, rest: Form, divisor: int) -> tuple[Form, Form] | None:
        terms, constant = rest
        for factor in sorted({gcd(c, divisor) for c in terms.values()}, reverse=True):
            if factor == 1:
                break
            below = {t: c for t, c in terms.items() if c % factor}
            low, high = self.span(below, constant)
            if low // factor != high // factor:
                continue
            above = {t: c // factor for t, c in terms.items() if c % factor == 0}
            turns = low // factor
            quotient, remainder = self.divmod((above, turns), divisor // factor)
            small: Form = (below, constant - turns * factor)
            return quotient, self.add(small, remainder, factor)
        return None

    def _opaque(self, rest: Form, divisor: int) -> tuple[Form, Form]:
        """A quotient and a remainder that can't be simplified, of as simple a dividend as
        possible."""
        node, by = self.build(*rest), number(divisor)
        quotient, remainder = self._nested(rest, divisor)
        return (
            quotient or self._term(node.alu(Ops.IDIV, by)),
            remainder or self._term(node.alu(Ops.MOD, by)),
        )

    def _nested(self, rest: Form, divisor: int) -> tuple[Form | None, Form | None]:
        """(x // a + c) // b is (x + a*c) // (a*b); x % (a*b) // b is x // b % a;
        (k * (x % a) + y) % b is (k*x + y) % b where b divides k * a."""
        terms, constant = rest
        inner = {t: a for t in terms if (a := positive_divisor(t)) is not None}
        if len(terms) == 1 and inner:
            ((term, a),) = inner.items()
            if terms[term] == 1:
                x = self.affine(term.src[0])
                if term.op is Ops.IDIV:
                    dividend = combine(x, ({}, constant), a)
                    return self.divide(dividend, a * divisor), None
                if a % divisor == 0:
                    quotient, remainder = self.divmod(combine(x, ({}, constant)), divisor)
                    if constant:
                        return None, remainder
                    return self.modulo(quotient, a // divisor), remainder
        free = rest
        for term, a in inner.items():
            if term.op is Ops.MOD and terms[term] * a % divisor == 0:
                free = combine(without(free, term), self.affine(term.src[0]), terms[term])
        return None, None if free is rest else self.modulo(free, divisor)

    def divmod_by_form(self, form: Form, by: Form) -> tuple[Form, Form] | None:
        """Quotient and remainder by a divisor that is not a constant, if they can be determined:
        multiples of the divisor go to the quotient, and the rest must be at least 0 and below the
        divisor."""
        divisors, beside = by
        if self.span(*by)[0] <= 0 or len(divisors) != 1 or beside:
            return None
        ((divisor, factor),) = divisors.items()
        needed = factors(divisor)
        quotient: Form = ZERO
        rest = form
        for term, coefficient in form[0].items():
            own = factors(term)
            if coefficient % factor or any(own.count(f) < needed.count(f) for f in needed):
                continue
            for each in needed:
                own.remove(each)
            part = self._term(product(own)) if own else ({}, 1)
            rest = combine(rest, ({term: 1}, 0), -coefficient)
            quotient = combine(quotient, part, coefficient // factor)
        least, _ = self.span(*rest)
        _, beyond = self.span(*combine(self._largest(rest), by, -1))
        return (quotient, rest) if least >= 0 and beyond < 0 else None


# ---- the form of each operation from those of its sources ----------------------------------------


def _division(which: int) -> Callable[[Algebra, UOp, Form, Form], Form]:
    def form(algebra: Algebra, node: UOp, a: Form, b: Form) -> Form:
        if not b[0]:
            return algebra.divmod(a, b[1])[which]
        found = algebra.divmod_by_form(a, b)
        if found is not None:
            return found[which]
        return algebra._term(node.with_src((algebra.build(*a), algebra.build(*b))))

    return form


def _bits(algebra: Algebra, node: UOp, a: Form, b: Form) -> Form:
    """Shifts and masks by constants are products, quotients and remainders."""
    op = node.op
    if op in GroupOp.Commutative and not a[0]:
        a, b = b, a
    (terms, constant), (by_terms, by) = a, b
    if not by_terms:
        if not terms:
            return {}, int(evaluate(op, dtypes.index, constant, by))
        if op is Ops.SHL and 0 <= by < 64:
            return scaled(a, 1 << by)
        if op is Ops.SHR and 0 <= by < 64:
            return algebra.divide(a, 1 << by)
        if op is Ops.AND and by >= 0 and by & (by + 1) == 0:
            return algebra.modulo(a, by + 1)
        if op is Ops.XOR and by == -1:
            return scaled(combine(a, ({}, 1)), -1)
    return algebra._term(node.with_src((algebra.build(*a), algebra.build(*b))))


_FORMS: dict[Ops, Callable[[Algebra, UOp, Form, Form], Form]] = {
    Ops.ADD: lambda algebra, node, a, b: algebra.add(a, b),
    Ops.MUL: lambda algebra, node, a, b: algebra.multiply(a, b),
    Ops.IDIV: _division(0),
    Ops.MOD: _division(1),
    Ops.SHL: _bits,
    Ops.SHR: _bits,
    Ops.AND: _bits,
    Ops.OR: _bits,
    Ops.XOR: _bits,
}

# ---- the face: on nodes, without assumptions -----------------------------------------------------

FREE = Algebra()
affine = FREE.affine
build = FREE.build


def simplify_index(node: UOp) -> UOp:
    """An expression of dtype index in canonical form."""
    return FREE.simplify(node)


_ARITHMETIC = GroupOp.ALU | {Ops.CAST}


def _is_arithmetic(node: UOp) -> bool:
    return node.dtype is dtypes.index and node.op in _ARITHMETIC


def canonical(node: UOp) -> UOp:
    """`node`, in canonical form if it is index arithmetic."""
    return simplify_index(node) if _is_arithmetic(node) else node


def with_sources(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """`node` with other sources. These are brought into canonical form, unless the node itself is
    index arithmetic: a whole expression is brought into it where it is used, not step by step."""
    if src == node.src:
        return node
    return node.with_src(src if _is_arithmetic(node) else tuple(map(canonical, src)))


def weighted(values: Iterable[UOp], weights: Iterable[int]) -> UOp:
    """The sum of weight * value."""
    total = ZERO
    for value, weight in zip(values, weights, strict=True):
        total = FREE.add(total, affine(value), weight)
    return build(*total)


def add(a: UOp, b: UOp, factor: int = 1) -> UOp:
    """a + factor * b."""
    return build(*FREE.add(affine(a), affine(b), factor))


def scale(a: UOp, factor: int) -> UOp:
    """a * factor."""
    return build(*scaled(affine(a), factor))


def divide(a: UOp, divisor: int) -> UOp:
    """a // divisor, rounded down."""
    return build(*FREE.divide(affine(a), divisor))


def modulo(a: UOp, divisor: int) -> UOp:
    """a % divisor, signed as the divisor."""
    return build(*FREE.modulo(affine(a), divisor))
