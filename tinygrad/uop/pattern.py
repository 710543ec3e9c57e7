"""Patterns over graphs, and rewrite rules made of them.

A pattern is a term with named holes. It is compiled once, to a Python function of plain
comparisons. A matcher keeps these functions by the op of their root, so a node is tried only
against patterns that could fit. A `Rule` is data (name, left, right, when), so one line serves the
engine, the trace, the fuzzer and the prover.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tinygrad.base.dtype import DType
from tinygrad.uop.build import Arithmetic
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops, evaluate

T = TypeVar("T")


class UPat(Arithmetic):
    """A pattern for a node. None matches anything.

    `src` as a tuple: these sources in this order; as a list: in any order; as one pattern: every
    source matches it. A name that is used twice must be the same node.
    """

    __slots__ = ("ops", "dtypes", "src", "arg", "name", "more", "alternatives")

    def __init__(
        self,
        op: Ops | Iterable[Ops] | None = None,
        dtype: DType | Iterable[DType] | None = None,
        src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
        arg: Any = None,
        name: str | None = None,
        allow_any_len: bool = False,
        alternatives: tuple[UPat, ...] = (),
    ) -> None:
        self.ops, self.dtypes = _several(op, Ops), _several(dtype, DType)
        self.src, self.arg, self.name, self.more = src, arg, name, allow_any_len
        self.alternatives = alternatives

    @staticmethod
    def var(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Anything, called `name`."""
        return UPat(None, dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Any constant, called `name`."""
        return UPat(Ops.CONST, dtype, name=name)

    @staticmethod
    def any(*alternatives: UPat) -> UPat:
        """Whatever matches one of these."""
        return UPat(alternatives=alternatives)

    def alu(self, op: Ops, *others: UPat) -> UPat:
        src = (self, *others)
        return UPat(op, src=list(src) if op in GroupOp.Commutative else src)

    def const_like(self, value: Any) -> UPat:
        return UPat(Ops.CONST, arg=value)

    def cast(self, dtype: DType | None = None, name: str | None = None) -> UPat:
        return UPat(Ops.CAST, dtype, (self,), name=name)

    def store(self, *src: UPat, name: str | None = None) -> UPat:
        """A STORE of these sources where this one says, for any loops."""
        return UPat(Ops.STORE, src=(self, *src), name=name, allow_any_len=True)

    def named(self, name: str) -> UPat:
        """The same pattern, called `name`."""
        return UPat(self.ops, self.dtypes, self.src, self.arg, name, self.more, self.alternatives)

    def __repr__(self) -> str:
        if self.src is None:
            return self.name or (repr(self.arg) if self.arg is not None else "_")
        children = self.src if isinstance(self.src, (tuple, list)) else (self.src,)
        ops = "|".join(op.name for op in self.ops or ())
        return f"{ops}({', '.join(map(repr, children))})"

    # ---- use -------------------------------------------------------------------------------------

    def match(self, node: UOp) -> dict[str, UOp] | None:
        """What the names stand for if `node` fits, else None."""
        for one in _concrete(self):
            found = _compiled(one)(node)
            if found is not None:
                return found
        return None

    def instantiate(self, found: dict[str, UOp]) -> UOp:
        """The node that this term stands for; operations on constants alone are computed."""
        if self.name is not None and self.name in found:
            return found[self.name]
        assert self.ops is not None and isinstance(self.src, (tuple, list)), f"{self!r} is no term"
        known = [s.instantiate(found) for s in self.src if not s.is_literal()]
        like = known[-1] if known else next(iter(found.values()))
        src = [like.const_like(s.arg) if s.is_literal() else s.instantiate(found) for s in self.src]
        op = self.ops[0]
        made = src[0].alu(op, *src[1:])
        if op in GroupOp.ALU and all(s.op is Ops.CONST for s in src):
            return made.const_like(evaluate(op, made.dtype, *(s.arg for s in src)))
        return made

    def is_literal(self) -> bool:
        """Whether this is a certain constant."""
        return self.ops == (Ops.CONST,) and self.name is None


def _several(given: T | Iterable[T] | None, kind: type[T]) -> tuple[T, ...] | None:
    """One, or several, as a tuple; None as it is."""
    if given is None:
        return None
    return (given,) if isinstance(given, kind) else tuple(given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Rule:
    """`left` becomes `right` when `when` holds.

    `right` is a term, or a function of the named nodes that may return None for "no"; `when`
    takes the named nodes too. A term on the right makes the rule provable. If it is a constant, it
    gets the dtype and the shape of the node.
    """

    name: str
    left: UPat
    right: UPat | Callable[..., UOp | None]
    when: Callable[..., bool] | None = None

    def apply(self, root: UOp | None = None, **found: UOp) -> UOp | None:
        """The right side for these nodes, None for "no". `root`: the node that matched, if the
        right side is a constant."""
        if self.when is not None and not self.when(**found):
            return None
        if not isinstance(self.right, UPat):
            return self.right(**found)
        return self.right.instantiate(found) if root is None else root.const_like(self.right.arg)


RuleLike = Rule | tuple[UPat, Callable[..., UOp | None]]
_Attempt = tuple[Callable[[UOp], dict[str, UOp] | None], Callable[..., UOp | None], bool, str]


class PatternMatcher:
    """Rules in order of preference: `rewrite` returns what the first rule that fits makes of a
    node."""

    __slots__ = ("rules", "_by_op")

    def __init__(self, rules: Sequence[RuleLike]) -> None:
        self.rules = list(rules)
        self._by_op: dict[Ops, list[_Attempt]] = {}

    def _attempts(self, op: Ops) -> list[_Attempt]:
        """What to try on nodes of `op`; compiled when the first such node comes."""
        found = self._by_op.get(op)
        if found is None:
            found = [a for rule in self.rules for a in _attempts_of(rule, op)]
            self._by_op[op] = found
        return found

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(self.rules + other.rules)

    def rewrite(self, node: UOp, ctx: Any = None) -> UOp | None:
        """The replacement of `node`, None if no rule applies."""
        named = self.rewrite_named(node, ctx)
        return named[0] if named is not None else None

    def rewrite_named(self, node: UOp, ctx: Any = None) -> tuple[UOp, str] | None:
        """The replacement and the name of the rule that made it."""
        for match, function, context, name in self._attempts(node.op):
            found = match(node)
            if found is None:
                continue
            made = function(ctx=ctx, **found) if context else function(**found)
            if made is not None and made is not node:
                return made, name
        return None


# ---- compilation ---------------------------------------------------------------------------------


def _attempts_of(rule: RuleLike, op: Ops) -> list[_Attempt]:
    """How to try one rule on nodes of `op`; nothing if it can't fit."""
    if isinstance(rule, Rule):
        left, function, context, name = rule.left, rule.apply, False, rule.name
        if isinstance(rule.right, UPat) and rule.right.is_literal():
            left = left.named("root")
    else:
        left, function = rule
        context = "ctx" in inspect.signature(function).parameters
        name = getattr(function, "__name__", "rule")
    return [(_compiled(one), function, context, name) for one in _concrete(left, op)]


def _concrete(pattern: UPat, op: Ops | None = None) -> Iterator[UPat]:
    """All patterns with a fixed order of sources and no alternatives that `pattern` stands for; if
    `op` is given, those that nodes of it may fit."""
    if pattern.alternatives:
        for alternative in pattern.alternatives:
            yield from _concrete(alternative, op)
        return
    if op is not None and pattern.ops is not None and op not in pattern.ops:
        return
    if not isinstance(pattern.src, (tuple, list)):
        yield pattern
        return
    orders: Iterable[Sequence[UPat]] = [pattern.src]
    if isinstance(pattern.src, list):
        same = all(repr(s) == repr(pattern.src[0]) and s.name is None for s in pattern.src)
        orders = [pattern.src] if same else itertools.permutations(pattern.src)
    for order in orders:
        for src in itertools.product(*(list(_concrete(s)) for s in order)):
            yield UPat(pattern.ops, pattern.dtypes, src, pattern.arg, pattern.name, pattern.more)


class _Source:
    """The source of a function that matches a pattern by straight comparisons."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.facts: dict[str, Any] = {}  # what the source compares with, by name
        self.places: dict[str, str] = {}  # where each of the pattern's names stands

    def visit(self, p: UPat, place: str) -> None:
        """Compares the node at this place, and those below it, with a pattern."""
        if p.ops is not None:
            one = len(p.ops) == 1
            known = self._fact(p.ops[0] if one else p.ops)
            self._require(f"{place}.op {'is' if one else 'in'} {known}")
        if p.dtypes is not None:
            self._require(f"{place}.dtype in {self._fact(p.dtypes)}")
        if p.arg is not None:
            self._require(f"{place}.arg == {self._fact(p.arg)}")
        if p.name is not None and self.places.setdefault(p.name, place) != place:
            self._require(f"{place} is {self.places[p.name]}")
        if isinstance(p.src, UPat):
            every = self._fact(p.src.match)
            self._require(f"all({every}(s) is not None for s in {place}.src)")
        elif p.src is not None:
            self._require(f"len({place}.src) {'>=' if p.more else '=='} {len(p.src)}")
            for i, child in enumerate(p.src):
                inner = f"{place}_{i}"
                self.lines.append(f"  {inner} = {place}.src[{i}]")
                self.visit(child, inner)

    def _fact(self, value: Any) -> str:
        name = f"k{len(self.facts)}"
        self.facts[name] = value
        return name

    def _require(self, test: str) -> None:
        self.lines.append(f"  if not ({test}): return None")


def _compiled(pattern: UPat) -> Callable[[UOp], dict[str, UOp] | None]:
    """The function that matches a pattern, written as source and compiled."""
    made = _Source()
    made.visit(pattern, "n")
    captured = ", ".join(f"{name!r}: {place}" for name, place in made.places.items())
    source = "\n".join(["def match(n):", *made.lines, f"  return {{{captured}}}"])
    exec(source, made.facts)  # noqa: S102  our own text, from our own patterns
    return made.facts["match"]  # type: ignore[no-any-return]
