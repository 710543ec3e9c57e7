"""What languages of statements and scopes have in common, whatever a number is called in them:
lines, names, loops that carry values, branches.

A value that is used once, in the block where it is computed, is written where it is used; loads
are `val`, accumulators `acc`, other values `alu`. A loop turns at least once, so `for` says the
same as the program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.backends.program import carries, inlined
from tinygrad.base.dtype import ConstType, DType
from tinygrad.base.errors import CompileError
from tinygrad.uop import Ops, UOp

LONGEST = 100  # characters of an expression that is still inlined
OPERATORS = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.IDIV: "/",
    Ops.MOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.CMPEQ: "==",
}
Rules = Mapping[Ops, Callable[[Any, UOp], Any]]
"""What writes a node: as a statement, or as the text of an expression."""

PREFIXES = {Ops.LOAD: "val", Ops.RANGE: "ridx", Ops.CARRY: "acc"}


@dataclass(frozen=True, kw_only=True)
class Words:
    """How a language writes statements. Templates are filled in by `str.format`."""

    name: str
    declare: str = "{type} {name} = {value};"
    mutable: str = "{type} {name} = {value};"  # may be assigned again
    loop: str = "for ({type} {name} = {begin}; {name} < {end}; {name}++) {{"
    barrier: str
    helpers: tuple[tuple[str, str], ...] = ()  # a word that shows its use, a line above


class Statements(ABC):
    """The lines, and the text of each node in them."""

    def __init__(self, program: Sequence[UOp], words: Words) -> None:
        self.words = words
        self.program = program
        self.texts: dict[UOp, str] = {}
        self.lines: list[str] = []
        self.indent = "  "
        self.counts: dict[str, int] = {}
        self.once = inlined(program)
        self.carried = carries(program)

    @abstractmethod
    def type(self, dtype: DType) -> str:
        """The type of a value of `dtype`."""

    @abstractmethod
    def number(self, value: ConstType, dtype: DType) -> str:
        """A constant of one lane."""

    @abstractmethod
    def constant(self, node: UOp) -> str:
        """A CONST."""

    def write(self, statements: Rules, expressions: Rules) -> None:
        """The lines of the program, by the rules that these tables have besides SHARED."""
        for node in self.program:
            if (statement := statements.get(node.op) or SHARED.get(node.op)) is not None:
                statement(self, node)
            elif (expression := expressions.get(node.op)) is not None:
                self.define(node, expression(self, node))
            else:
                raise CompileError(f"[render] {self.words.name}: no way to write {node.op!r}")

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def helpers_of(self, body: str) -> list[str]:
        """The lines that `body` needs above it."""
        return list(dict.fromkeys(line for word, line in self.words.helpers if word in body))

    # ---- names -----------------------------------------------------------------------------------

    def fresh(self, node: UOp) -> str:
        prefix = PREFIXES.get(node.op, "alu")
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"{prefix}{number}"

    def define(self, node: UOp, text: str) -> None:
        """Gives the node's text: inlined if it is short and used once, else by a name."""
        self.texts[node] = text
        if node not in self.once or len(text) > LONGEST or node.op is Ops.LOAD:
            self.name(node)

    def name(self, node: UOp) -> str:
        name = self.fresh(node)
        self.declare(self.words.declare, node.dtype, name, self.ref(node))
        self.texts[node] = name
        return name

    def declare(self, template: str, dtype: DType, name: str, value: str) -> None:
        self.line(template.format(type=self.type(dtype), name=name, value=value))

    def atom(self, node: UOp) -> str:
        """The node as a name, so that it may be used several times."""
        text = self.ref(node)
        return text if text.isidentifier() else self.name(node)

    def ref(self, node: UOp) -> str:
        found = self.texts.get(node)
        if found is None:
            assert node.op is Ops.CONST, f"{node.op!r} is used before it is in the program"
            found = self.texts[node] = self.constant(node)
        return found

    def reciprocal(self, node: UOp) -> str:
        one = self.number(1.0, node.dtype.scalar())
        return f"({one}/{self.ref(node.src[0])})"

    # ---- statements ------------------------------------------------------------------------------

    def nothing(self, node: UOp) -> None:  # noqa: B027  a row of the table below
        """Constants are written where they are used; declarations above have their names."""

    def range(self, node: UOp) -> None:
        for carry, _ in self.carried[node]:
            name = self.texts[carry] = self.fresh(carry)
            self.declare(self.words.mutable, carry.dtype, name, self.ref(carry.src[0]))
        begin, end = (self.ref(source) for source in node.src)
        name = self.texts[node] = self.fresh(node)
        facts = {"type": self.type(node.dtype), "begin": begin, "end": end}
        self.line(self.words.loop.format(name=name, **facts))
        self.indent += "  "

    def end(self, node: UOp) -> None:
        pairs = self.carried[node.src[0]]
        names = [self.ref(carry) for carry, _ in pairs]
        values = [self.ref(following) for _, following in pairs]
        if any(name in value for name in names[:-1] for value in values[1:]):
            for i, (carry, _) in enumerate(pairs):  # all of them take their next values at once
                self.declare(self.words.declare, carry.dtype, f"next_{names[i]}", values[i])
                values[i] = f"next_{names[i]}"
        for name, value in zip(names, values, strict=True):
            self.line(f"{name} = {value};")
        self.close(node)

    def branch(self, node: UOp) -> None:
        self.line(f"if ({self.ref(node.src[0])}) {{")
        self.indent += "  "

    def close(self, node: UOp) -> None:
        self.indent = self.indent[:-2]
        self.line("}")

    def barrier(self, node: UOp) -> None:
        if self.words.barrier:
            self.line(self.words.barrier)


def memory_of(pointer: UOp) -> UOp:
    """The PARAM or LOCAL that a pointer is in."""
    while pointer.op is Ops.INDEX:
        pointer = pointer.src[0]
    return pointer


SHARED: Rules = {
    **dict.fromkeys((Ops.CONST, Ops.PARAM, Ops.DEFINE_VAR), Statements.nothing),
    **dict.fromkeys((Ops.CARRY, Ops.PREFETCH), Statements.nothing),
    Ops.RANGE: Statements.range,
    Ops.END: Statements.end,
    Ops.IF: Statements.branch,
    Ops.ENDIF: Statements.close,
    Ops.BARRIER: Statements.barrier,
}
