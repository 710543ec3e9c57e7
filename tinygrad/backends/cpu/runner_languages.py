"""Writes the runner (`runner_program`) in C or in LLVM IR, for machines with a C compiler or with
LLVM.

Its functions have Python's syntax and C's meaning. Values are of type i64, i32, ptr or, where
something is compared, i1. `a.b` is the word `b` of the struct that `a` points to; the last part of
a variable's name says which struct that is. A word that several threads use is read by
`relaxed(a.b)`, `acquire(a.b)` or `ordered(a.b)`, and changed by a function of its own. Each step
between the values is a row of STEPS, so both languages do the same in the same order.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tinygrad.backends.cpu.runner_program import (
    FUNCTIONS,
    FUTEX,
    PAUSES,
    PROGRAM,
    RECORD,
    SEAT,
    SEATS,
    TABLE,
    WAITS,
    WORDS,
    C,
)

PREFIX: Final = "", "%"  # of names of values

ORDERS: Final = {  # of accesses to words that several threads use
    "relaxed": ("RELAXED", "monotonic"),
    "acquire": ("ACQUIRE", "acquire"),
    "ordered": ("SEQ_CST", "seq_cst"),
}

# Of operands a, b, c, where t is the type of a, or of what lies at a: the type of the result (t, if
# it is not another; none, if empty), the text in C, and in LLVM IR.
STEPS: Final = {
    "Add": ("t", "{a} + {b}", "add {t} {a}, {b}"),
    "Sub": ("t", "{a} - {b}", "sub {t} {a}, {b}"),
    "Mult": ("t", "{a} * {b}", "mul {t} {a}, {b}"),
    "FloorDiv": ("t", "{a} / {b}", "sdiv {t} {a}, {b}"),  # of positive numbers
    "offset": ("ptr", "{a} + {b}", "getelementptr i8, ptr {a}, i64 {b}"),
    "select": ("t", "{c} ? {a} : {b}", "select i1 {c}, {t} {a}, {t} {b}"),
    "i32": ("i32", "(i32){a}", "trunc i64 {a} to i32"),
    "i64": ("i64", "(i64){a}", "sext i32 {a} to i64"),
    "unsigned": ("i64", "(i64)(unsigned){a}", "zext i32 {a} to i64"),
    "Lt": ("i1", "{a} < {b}", "icmp slt {t} {a}, {b}"),
    "LtE": ("i1", "{a} <= {b}", "icmp sle {t} {a}, {b}"),
    "Gt": ("i1", "{a} > {b}", "icmp sgt {t} {a}, {b}"),
    "GtE": ("i1", "{a} >= {b}", "icmp sge {t} {a}, {b}"),
    "Eq": ("i1", "{a} == {b}", "icmp eq {t} {a}, {b}"),
    "NotEq": ("i1", "{a} != {b}", "icmp ne {t} {a}, {b}"),
    "load": ("t", "*({t}*){a}", "load {t}, ptr {a}"),
    "store": ("", "*({t}*){a} = {b};", "store {t} {b}, ptr {a}"),
    **{
        order: (
            "t",
            f"__atomic_load_n(({{t}}*){{a}}, __ATOMIC_{in_c})",
            f"load atomic {{t}}, ptr {{a}} {in_llvm}, align {{size}}",
        )
        for order, (in_c, in_llvm) in ORDERS.items()
    },
    **{
        f"set_{order}": (
            "",
            f"__atomic_store_n(({{t}}*){{a}}, {{b}}, __ATOMIC_{in_c});",
            f"store atomic {{t}} {{b}}, ptr {{a}} {in_llvm}, align {{size}}",
        )
        for order, (in_c, in_llvm) in ORDERS.items()
    },
    # These give the value before.
    "add": (
        "t",
        "__atomic_fetch_add(({t}*){a}, {b}, __ATOMIC_SEQ_CST)",
        "atomicrmw add ptr {a}, {t} {b} seq_cst",
    ),
    "take": (
        "t",
        "__atomic_fetch_sub(({t}*){a}, {b}, __ATOMIC_ACQ_REL)",
        "atomicrmw sub ptr {a}, {t} {b} acq_rel",
    ),
    "jump": ("", "goto {a};", "br label %{a}"),
    "branch": ("", "if ({a}) goto {b}; else goto {c};", "br i1 {a}, label %{b}, label %{c}"),
    "label": ("", "{a}:;", "{a}:"),
    "return": ("", "return;", "ret void"),
}
CONVERSIONS: Final = ("i32", "i64", "unsigned")
SIZES: Final = {"i32": 4, "i64": 8, "ptr": 8}

LAYOUT: Final = {"SEATS": SEATS, "SEAT": SEAT, "RECORD": RECORD.size, "TABLE": TABLE}
C_HEAD = """
typedef int i1;
typedef int i32;
typedef long long i64;
typedef char* ptr;
#define null 0
"""


@dataclass(frozen=True)
class Value:
    """A value, or a place in memory: what it is called, and the type of what is there."""

    text: str
    type: str


class Function:
    """One function while it is written, for a machine of PAUSES."""

    def __init__(self, node: ast.FunctionDef, language: int, machine: str, linkage: str) -> None:
        self.language = language
        self.pause = PAUSES[machine].texts[language]
        self.constants = {**LAYOUT, "FUTEX": FUTEX[machine]}
        self.lines: list[str] = []
        self.declared: list[str] = []
        self.made = 0
        self.ends: list[str] = []  # the labels behind the loops that are open
        self.values = {
            each.arg: Value(PREFIX[language] + each.arg, ast.unparse(each.annotation or each))
            for each in node.args.args
        }
        given = [f"{value.type} {value.text}" for value in self.values.values()]
        self.variables = _in_memory(node)
        for statement in node.body:
            self.statement(statement)
        self.step("return")
        opening = f"{linkage} void {('', '@')[language]}{node.name}({', '.join(given)}) {{"
        self.text = "\n  ".join((opening, *self.declared, *self.lines)) + "\n}\n"

    def step(self, name: str, *given: Value | str) -> Value:
        """Writes a row of STEPS; its result."""
        first = given[0] if given else ""
        t = first.type if isinstance(first, Value) else ""
        result, *texts = STEPS[name]
        names = [each.text if isinstance(each, Value) else each for each in given]
        operands = dict(zip("abc", names, strict=False))
        text = texts[self.language].format(t=t, size=SIZES.get(t), **operands)
        return self.put(text, t if result == "t" else result)

    def put(self, text: str, type: str) -> Value:
        """Writes a line, which gives a value if it has a type."""
        self.made += bool(type)
        name = f"{PREFIX[self.language]}t{self.made}"
        define = (f"{type} {name} = {text};", f"{name} = {text}")[self.language]
        self.lines.append(define if type else text)
        return Value(name, type)

    def labels(self, *names: str) -> list[str]:
        """New labels."""
        self.made += 1
        return [f"{name}{self.made}" for name in names]

    # ---- statements ------------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        """Writes what a statement does."""
        match node:
            case ast.Assign([ast.Name(name)], value):
                self.assign(name, self.value(value))
            case ast.AugAssign(ast.Name(name), op, value):
                self.assign(name, self.value(ast.BinOp(ast.Name(name), op, value)))
            case ast.Assign([ast.Attribute() as word], value):
                self.step("store", self.place(word), self.value(value))
            case ast.Expr(ast.Call(ast.Name("pause"))):
                self.put(self.pause, "")
            case ast.Expr(value):
                self.value(value)
            case ast.If(test, body, otherwise):
                yes, no, end = self.labels("if", "else", "fi")
                self.condition(test, yes, no)
                self.block(yes, body, end)
                self.block(no, otherwise, end)
                self.step("label", end)
            case ast.While(test, body):
                again, turn, end = self.labels("while", "do", "done")
                self.step("jump", again)
                self.step("label", again)
                self.condition(test, turn, end)
                self.ends.append(end)
                self.block(turn, body, again)
                self.step("label", self.ends.pop())
            case ast.Break():
                self.step("jump", self.ends[-1])
            case ast.Return():
                self.step("return")
            case _:
                raise SyntaxError(f"the runner's language has no {ast.unparse(node)}")

    def block(self, label: str, body: list[ast.stmt], then: str) -> None:
        """Statements that begin at a label; afterwards it goes on at `then`."""
        self.step("label", label)
        for statement in body:
            self.statement(statement)
        self.step("jump", then)

    def condition(self, node: ast.expr, yes: str, no: str) -> None:
        """Goes on at `yes` if this is true, else at `no`."""
        match node:
            case ast.Constant(True):
                self.step("jump", yes)
            case ast.UnaryOp(ast.Not(), negated):
                self.condition(negated, no, yes)
            case ast.BoolOp(op, [*before, last]):
                for part in before:
                    (more,) = self.labels("more")
                    self.condition(part, *((more, no) if isinstance(op, ast.And) else (yes, more)))
                    self.step("label", more)
                self.condition(last, yes, no)
            case ast.Compare(a, [op], [b]):
                compared = self.step(type(op).__name__, self.value(a), self.value(b))
                self.step("branch", compared, yes, no)
            case _:
                value = self.value(node)
                compared = self.step("NotEq", value, "null" if value.type == "ptr" else "0")
                self.step("branch", compared, yes, no)

    def assign(self, name: str, value: Value) -> None:
        """Gives a variable a value. One that has a single value is another name for that."""
        if name not in self.variables:
            self.values[name] = value
            return
        if name not in self.values:
            self.values[name] = place = Value(f"{PREFIX[self.language]}{name}", value.type)
            there = (f"{value.type} {name}_[1]; ptr {name} = (ptr){name}_;",)
            self.declared.append((*there, f"{place.text} = alloca {value.type}")[self.language])
        self.step("store", self.values[name], value)

    # ---- values ----------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """Writes what an expression needs; its value."""
        match node:
            case ast.Constant(int(number)):
                return Value(str(number), "i64")
            case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
                return Value(f"-{number}", "i64")
            case ast.Name(name) if name in self.constants:
                return Value(str(self.constants[name]), "i64")
            case ast.Name(name):
                value = self.values[name]
                return self.step("load", value) if name in self.variables else value
            case ast.Attribute():
                return self.step("load", self.place(node))
            case ast.BinOp(left, op, right):
                a, b = self.value(left), self.value(right)
                return self.step("offset" if a.type == "ptr" else type(op).__name__, a, b)
            case ast.Call(ast.Name("min"), [left, right]):
                a, b = self.value(left), self.value(right)
                return self.step("select", a, b, self.step("Lt", a, b))
            case ast.Call(ast.Name("address"), [at]):
                return Value(self.place(at).text, "ptr")
            case ast.Call(ast.Name(name), [given]) if name in CONVERSIONS:
                return self.step(name, self.value(given))
            case ast.Call(ast.Name(name), [word, *others]) if name in STEPS:
                return self.step(name, self.place(word), *map(self.value, others))
            case ast.Call(function, given):
                return self.call(function, [self.value(each) for each in given])
        raise SyntaxError(f"the runner's language has no {ast.unparse(node)}")

    def place(self, node: ast.expr) -> Value:
        """Where a word, or a variable, lies."""
        if isinstance(node, ast.Name):
            return self.values[node.id]
        assert isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        struct = node.value.id.rpartition("_")[-1]
        offset, type = WORDS[f"{struct}.{node.attr}"]
        return Value(self.step("offset", self.value(node.value), str(offset)).text, type)

    def call(self, function: ast.expr, given: list[Value]) -> Value:
        """A call of a function of the program, or of one whose address a word holds."""
        types = ", ".join(value.type for value in given)
        names = ", ".join(value.text for value in given)
        typed = ", ".join(f"{value.type} {value.text}" for value in given)
        if isinstance(function, ast.Name):
            name = function.id
            return self.put((f"{name}({names});", f"call void @{name}({typed})")[self.language], "")
        at = self.value(function).text
        in_c = f"((void (*)({types})){at})({names});"
        return self.put((in_c, f"call void {at}({typed})")[self.language], "")


def _in_memory(node: ast.FunctionDef) -> set[str]:
    """The variables of a function that are assigned more than once, or whose address is taken."""
    uses: Counter[str] = Counter()
    for part in ast.walk(node):
        match part:
            case ast.Name(name, ast.Store()):
                uses[name] += 1
            case ast.Call(ast.Name("address"), [ast.Name(name)]):
                uses[name] += 1
    return {name for name, count in uses.items() if count > 1}


def runner_source(language: int, system: str, machine: str) -> str:
    """The program in C or LLVM IR, for an operating system (`sys.platform`) and a machine of
    `PAUSES`."""
    visible = "__declspec(dllexport)" if system == "win32" else ""
    hidden, exported = (("static", visible), ("define internal", "define"))[language]
    functions = [
        Function(node, language, machine, exported if node.name in FUNCTIONS else hidden).text
        for node in ast.parse(WAITS[system].program + PROGRAM).body
        if isinstance(node, ast.FunctionDef)
    ]
    head = C_HEAD if language == C else f"{PAUSES[machine].declaration}\n"
    return head + "".join(functions)
