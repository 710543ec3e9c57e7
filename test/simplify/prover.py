"""Rules as formulas: the same datum that the engine runs is proved, or refuted, by Z3.

Integers of a width are bit-vectors; where a rule divides, they are whole numbers that wrap, since
Z3 divides those much faster. `index` is a whole number. A guard sees what the engine lets it see:
`.vmin` and `.vmax` (any numbers with the value between them), `.arg` and `.dtype`.
"""

import contextlib
from dataclasses import dataclass

import z3

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.op import GroupOp, Ops
from tinygrad.uop.pattern import Rule, UPat

TRIED = (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32, dtypes.index, dtypes.bool)
DIVIDES = {Ops.IDIV, Ops.MOD}
STEPS = 40_000_000
"""What Z3 may count for one formula; all rules together need five million. Not a time: a machine
that stalls proves as much."""
BITWISE = {Ops.AND, Ops.OR, Ops.XOR}


@dataclass
class Seen:
    """What a guard sees of a node."""

    dtype: DType
    arg: object
    vmin: object
    vmax: object


def children(pattern: UPat) -> list[UPat]:
    return list(pattern.src) if isinstance(pattern.src, (tuple, list)) else []


def parts(pattern: UPat) -> list[UPat]:
    return [pattern, *(p for c in children(pattern) for p in parts(c))]


def is_literal(pattern: UPat) -> bool:
    return pattern.ops == (Ops.CONST,) and pattern.name is None


def allowed(rule: Rule) -> set[DType]:
    """The dtypes that the operands of a rule may have (what is bool in any case left out)."""
    found = set(dtypes.ints + dtypes.floats + (dtypes.index, dtypes.bool))
    leaves = [p for p in parts(rule.left) if not children(p) and not is_literal(p)]
    if all(leaf.dtypes == (dtypes.bool,) for leaf in leaves):
        return {dtypes.bool}
    for part in leaves:
        if part.dtypes is not None and part.dtypes != (dtypes.bool,):
            found &= set(part.dtypes)
    return found


def operand_kind(pattern: UPat, test: DType) -> DType | None:
    """The dtype of a pattern's value where operands have dtype `test`."""
    if pattern.dtypes == (dtypes.bool,):
        return dtypes.bool
    if not children(pattern):
        return None if is_literal(pattern) else test
    op = pattern.ops[0]
    if op in GroupOp.Comparison:
        return dtypes.bool
    if op is Ops.CAST:
        return test
    inner = {Ops.WHERE: children(pattern)[1:], Ops.CHECK: children(pattern)[:1]}.get(op)
    inner = children(pattern) if inner is None else inner
    kinds = {operand_kind(c, test) for c in inner} - {None}
    assert len(kinds) == 1, f"{pattern!r} mixes dtypes {kinds}"
    return kinds.pop()


class Mixed(Exception):
    """A rule that says nothing of this dtype: its operands would be of different ones."""


class Formula:
    """One rule for operands of one dtype."""

    def __init__(self, rule: Rule, test: DType, constants: dict[str, int] | None = None):
        self.rule, self.test, self.constants = rule, test, constants or {}
        ops = {p.ops[0] for side in (rule.left, rule.right) for p in parts(side) if p.ops}
        bounded = rule.when is not None and not ops & BITWISE
        self.whole = test is dtypes.index or bool(ops & DIVIDES) or bounded
        self.names: dict[str, tuple[object, DType]] = {}
        self.facts: list[object] = []
        try:
            kind = operand_kind(rule.left, test) or test
        except AssertionError as error:
            raise Mixed from error
        self.left = self.term(rule.left, kind)
        self.right = self.term(rule.right, kind)

    # ---- terms

    def leaf(self, name: str, dtype: DType):
        if dtype is dtypes.bool:
            return z3.Bool(name)
        if name in self.constants:
            return self.literal(self.constants[name], dtype)
        if not self.whole:
            return z3.BitVec(name, dtype.bitsize)
        value = z3.Int(name)
        if dtype is not dtypes.index:
            self.facts += [value >= dtype.min, value <= dtype.max]
        return value

    def literal(self, value, dtype: DType):
        if dtype is dtypes.bool:
            return z3.BoolVal(bool(value))
        return (
            z3.IntVal(dtypes.as_const(value, dtype))
            if self.whole
            else z3.BitVecVal(value, dtype.bitsize)
        )

    def term(self, pattern: UPat, dtype: DType):
        if pattern.name in self.names:
            return self.names[pattern.name][0]
        if not children(pattern):
            if is_literal(pattern):
                return self.literal(pattern.arg, dtype)
            made = self.leaf(pattern.name, dtype)
        else:
            made = self.operation(pattern, dtype)
        if pattern.name is not None:
            self.names[pattern.name] = made, dtype
        return made

    def operation(self, pattern: UPat, dtype: DType):
        op, src = pattern.ops[0], children(pattern)
        if op in GroupOp.Comparison:
            kinds = {operand_kind(s, self.test) for s in src} - {None}
            if len(kinds) != 1:
                raise Mixed
            inner = kinds.pop()
            a, b = (self.term(s, inner) for s in src)
            return (
                {Ops.CMPEQ: a == b, Ops.CMPNE: a != b}.get(op)
                if op is not Ops.CMPLT
                else (self.less(a, b, inner))
            )
        if op is Ops.WHERE:
            return z3.If(self.term(src[0], dtypes.bool), *(self.term(s, dtype) for s in src[1:]))
        if op is Ops.CHECK:  # the value passes
            return self.term(src[0], dtype)
        return self.binary(op, *(self.term(s, dtype) for s in src), dtype)

    def less(self, a, b, dtype: DType):
        if dtype is dtypes.bool:
            return z3.And(z3.Not(a), b)
        return z3.ULT(a, b) if not self.whole and dtypes.is_unsigned(dtype) else a < b

    def binary(self, op: Ops, a, b, dtype: DType):
        if dtype is dtypes.bool:
            return {
                Ops.ADD: z3.Or, Ops.MUL: z3.And, Ops.AND: z3.And, Ops.OR: z3.Or, Ops.XOR: z3.Xor,
                Ops.MAX: z3.Or,
            }[op](a, b)  # fmt: skip
        if op is Ops.MAX:
            return z3.If(self.less(a, b, dtype), b, a)
        if op in BITWISE:
            if self.whole:
                raise Mixed  # bits of a whole number: no dtype has them
            return {Ops.AND: a & b, Ops.OR: a | b, Ops.XOR: a ^ b}[op]
        if op is Ops.ADD:
            return self.wrapped(a + b, dtype)
        if op is Ops.MUL:
            return self.wrapped(a * b, dtype)
        quotient = z3.If(b > 0, a / b, z3.If(b < 0, -a / -b, 0))  # Z3 rounds -a / -b down too
        return self.wrapped(quotient if op is Ops.IDIV else a - b * quotient, dtype)

    def wrapped(self, value, dtype: DType):
        if not self.whole or dtype is dtypes.index:
            return value
        size = 1 << dtype.bitsize
        return (value - dtype.min) % size + dtype.min

    # ---- the guard

    def seen(self, name: str) -> Seen:
        value, dtype = self.names[name]
        if dtype is dtypes.bool:
            return Seen(dtype, value, None, None)
        wide = value
        if not self.whole:  # so wide that a guard's arithmetic can't wrap
            more = dtype.bitsize + 2
            signed = not dtypes.is_unsigned(dtype)
            wide = z3.SignExt(more, value) if signed else z3.ZeroExt(more, value)
        low, high = (z3.FreshConst(wide.sort(), f"{end} {name}") for end in ("low", "high"))
        self.facts += [low <= wide, wide <= high]
        if dtype is not dtypes.index:
            self.facts += [low >= dtype.min, high <= dtype.max]
        return Seen(dtype, wide, low, high)

    def counterexample(self, guarded: bool = True, limit: int = STEPS):
        """None if the rule is proved; a model that breaks it otherwise."""
        when = self.rule.when
        if guarded and when is not None:
            self.facts.append(when(**{name: self.seen(name) for name in self.names}))
        solver = z3.Solver()
        solver.set("rlimit", limit)
        solver.add(*self.facts)
        solver.add(self.left != self.right)
        answer = solver.check()
        assert answer != z3.unknown, f"{self.rule.name}: Z3 can't tell"
        return solver.model() if answer == z3.sat else None


def formulas(rule: Rule, constants: dict[str, int] | None = None) -> list[Formula]:
    """The formulas of a rule for each dtype of which it says something."""
    made = []
    for test in TRIED:
        if test in allowed(rule):
            with contextlib.suppress(Mixed):
                made.append(Formula(rule, test, constants))
    return made
