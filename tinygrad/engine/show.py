"""What DEBUG shows of the way from graph to machine code. Text for a person, on stderr, so that a
program's own output stays what it is. The tour prints the same texts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from tinygrad.backends.c_family import CRenderer
from tinygrad.backends.interface import Compiler
from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.helpers import colored
from tinygrad.base.settings import DEBUG
from tinygrad.codegen.names import axis_colors
from tinygrad.codegen.pipeline import Lowered, Phase
from tinygrad.loops.recipe import Recipe, to_text
from tinygrad.schedule.plan import Plan
from tinygrad.uop import Ops, UOp

_OPENS = (Ops.RANGE, Ops.IF)
_CLOSES = (Ops.END, Ops.ENDIF)
_POINTERS = (Ops.PARAM, Ops.LOCAL, Ops.INDEX)


def show_plan(made: Plan) -> None:
    """At DEBUG=5: each kernel's graph."""
    if DEBUG >= 5:
        for number, step in enumerate(made.steps):
            title = f"step {number}: {step.op.name} on storages {step.storages}"
            _print(_headline(title), "" if step.ast is None else str(step.ast))


def show_lowered(lowered: Lowered, recipe: Recipe, kernel_id: str) -> None:
    """At DEBUG=3: the kernel's name and id, its recipe and its loop trees."""
    if DEBUG < 3:
        return
    _print(_headline(f"kernel {lowered.colored}  id {kernel_id}"))
    colors = axis_colors(lowered.kernel)
    recipe_text = to_text(recipe) or "(none: the loops as they came)"
    _print("recipe:", _indented(painted(recipe_text, colors)))
    for phase in lowered.phases:
        _print(f"loops of {phase.name}:", _indented(painted(phase.nest, colors)))


def show_phase(phase: Phase, source: str) -> None:
    """At DEBUG=4 the kernel's source, and its view as C if it is in another language; at DEBUG=6
    the linear program."""
    if DEBUG >= 4:
        readable = c_view(phase)
        if readable is not None and readable != source.strip():
            _print(_headline(f"C view of {phase.name}"), readable)
        _print(_headline(f"source of {phase.name}"), source.strip())
    if DEBUG >= 6:
        _print(_headline(f"linear program of {phase.name}"), listing(phase.program))


def show_assembly(compiler: Compiler, source: str, binary: bytes) -> None:
    """At DEBUG=7: machine code, if the device has a readable form of it."""
    if DEBUG >= 7:
        text = compiler.disassemble(binary)
        if text.strip() != source.strip():
            _print(_headline("machine code"), plain_assembly(text))


# ---- texts ---------------------------------------------------------------------------------------


def painted(text: str, colors: Mapping[str, str]) -> str:
    """The text with the names of loops in their colours."""
    return re.sub(r"[A-Za-z][\w.]*", lambda m: colored(m[0], colors.get(m[0])), text)


def c_view(phase: Phase) -> str | None:
    """The function as plain C. None for one of groups and lanes, whose source is C-like itself, and
    for one with a matrix unit, which C can't express."""
    specials = {node.arg[0] for node in phase.program if node.op is Ops.SPECIAL}
    if specials - {"task"} or any(node.op is Ops.WMMA for node in phase.program):
        return None
    return CRenderer().render(phase.name, phase.program).strip()


def listing(program: Sequence[UOp]) -> str:
    """A linear program, one instruction a line, the bodies of loops and branches indented.

    0  float*  PARAM 0 of 4
    1  float   LOAD 0
    """
    number = {node: i for i, node in enumerate(program)}
    rows = [(_kind(node), _instruction(node, number)) for node in program]
    width = max((len(kind) for kind, _ in rows), default=0)
    lines = []
    depth = 0
    for i, (node, (kind, text)) in enumerate(zip(program, rows, strict=True)):
        depth -= node.op in _CLOSES
        lines.append(f"{i:4d}  {kind:{width}s}  {'  ' * depth}{text}")
        depth += node.op in _OPENS
    return "\n".join(lines)


def plain_assembly(text: str) -> str:
    """Assembly without the directives that only a linker reads."""
    lines = (re.split(r"\s*(?:#|//) ", line)[0].rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not re.match(r"\s+\.", line))


def _instruction(node: UOp, number: dict[UOp, int]) -> str:
    return " ".join([node.op.name, *_arguments(node), *(_operand(s, number) for s in node.src)])


def _arguments(node: UOp) -> Iterator[str]:
    """The text of an instruction's argument, without serial numbers."""
    if node.op in (Ops.PARAM, Ops.LOCAL, Ops.SPECIAL):
        yield f"{node.arg[0]} of {node.arg[1]}"
    elif node.op is Ops.LOAD:
        yield f"align {node.arg[0]}"
    elif node.op is Ops.STORE:
        yield " ".join(filter(None, (f"align {node.arg[0]}", node.arg[1])))
    elif node.arg is not None and node.op not in (Ops.CARRY, Ops.RANGE):
        yield str(node.arg)


def _operand(node: UOp, number: dict[UOp, int]) -> str:
    return f"%{number[node]}" if node in number else f"{node.arg}"


def _kind(node: UOp) -> str:
    if node.dtype is dtypes.void:
        return ""
    return _type_name(node.dtype) + "*" * (node.op in _POINTERS)


def _type_name(dtype: DType) -> str:
    scalar = dtype.scalar()
    name = "index" if scalar is dtypes.index else scalar.name
    return name if dtype.count == 1 else f"{name}x{dtype.count}"


def _headline(title: str) -> str:
    return colored("--- ", "cyan") + title


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


def _print(*lines: str) -> None:
    print(*(line for line in lines if line), sep="\n", file=sys.stderr)
