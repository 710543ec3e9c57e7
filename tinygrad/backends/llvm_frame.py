"""How a function is entered in LLVM's words: its head, where its arguments are, and which task, or
which lane of which group, is running.

A processor's function takes a table of arguments and loops over tasks. A GPU's function takes its
arguments as they are and is one lane. Both leave the names of PARAMs, variables, LOCALs and
SPECIALs with the writer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tinygrad.backends.llvm_dialect import Dialect
from tinygrad.backends.llvm_text import Writer
from tinygrad.backends.program import halved, params, special_sizes, tensors, variables
from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.uop import Ops, UOp
from tinygrad.uop.instructions import local_alignment, local_layout


class Frame(ABC):
    """The code around the instructions of a function. `constants`: lines above it."""

    def __init__(self, writer: Writer, program: Sequence[UOp], dialect: Dialect) -> None:
        self.writer, self.program, self.dialect = writer, program, dialect
        self.constants: set[str] = set()

    @abstractmethod
    def begin(self) -> None:
        """Names the arguments and the LOCAL memory."""

    @abstractmethod
    def special(self, node: UOp) -> None:
        """Names the number of the task, group or lane."""

    def pick(self, node: UOp) -> None:
        """Names the source that a number selects."""
        choose(self.writer, node)

    def finish(self) -> None:  # noqa: B027  a lane has nothing to close
        """Closes what `special` opened."""

    @abstractmethod
    def head(self, name: str) -> str:
        """The line that opens the function."""

    @abstractmethod
    def attributes(self) -> str:
        """The attributes of the function."""


class TaskFrame(Frame):
    """A function that runs the tasks lo..hi-1, with tables of arguments and with scratch memory."""

    task: tuple[int, str] | None = None  # line of the counter's phi, block before

    def head(self, name: str) -> str:
        return self.dialect.head.format(name=name)

    def attributes(self) -> str:
        return self.dialect.attributes

    def begin(self) -> None:
        emit, names = self.writer.emit, self.writer.names
        slots = (*params(self.program), *variables(self.program))
        named = {s for node in self.program if node.op is not Ops.PICK for s in node.src}
        for position, node in enumerate(slots):
            if node.op is Ops.PARAM and node not in named:
                continue
            kind = "ptr" if node.op is Ops.PARAM else "i64"
            where = emit(f"getelementptr ptr, ptr %args, i64 {position}")
            names[node] = emit(f"load {kind}, ptr {where}, align 8, !invariant.load !0")
            if node.op is Ops.DEFINE_VAR:
                name_variable(self.writer, node, names[node])
        for node, offset in local_layout(self.program)[0].items():
            names[node] = emit(f"getelementptr i8, ptr %scratch, i64 {offset}")

    def special(self, node: UOp) -> None:
        """The loop over tasks opens where the number of the task is first used."""
        assert node.arg[0] == "task", f"{node.arg[0]} on a CPU"
        writer, before = self.writer, self.writer.label
        writer.lines.append("  br label %tasks")
        writer.start_block("tasks")
        writer.names[node] = "%task"
        self.task = (len(writer.lines), before)
        writer.lines.append("")

    def pick(self, node: UOp) -> None:
        """From a table: of numbers, or of the positions of pointers among the arguments."""
        number, *choices = node.src
        if any(choice.op not in (Ops.CONST, Ops.PARAM) for choice in choices):
            super().pick(node)
            return
        emit, is_pointer = self.writer.emit, choices[0].op is Ops.PARAM
        place = {param: i for i, param in enumerate(params(self.program))}
        rows = ", ".join(f"i64 {place[c] if is_pointer else c.arg}" for c in choices)
        name, kind = f"@table{len(self.constants)}", f"[{len(choices)} x i64]"
        self.constants.add(f"{name} = private unnamed_addr constant {kind} [{rows}], align 8")
        row = emit(f"getelementptr {kind}, ptr {name}, i64 0, {self.writer.typed(number)}")
        value = emit(f"load i64, ptr {row}, align 8, !invariant.load !0")
        if is_pointer:
            where = emit(f"getelementptr ptr, ptr %args, i64 {value}")
            self.writer.names[node] = emit(f"load ptr, ptr {where}, align 8, !invariant.load !0")
        else:
            name_variable(self.writer, node, value)

    def finish(self) -> None:
        if self.task is None:
            return
        writer, (at, before) = self.writer, self.task
        writer.lines[at] = (
            f"  %task = phi i64 [ %lo, %{before} ], [ %next_task, %{self.writer.label} ]"
        )
        writer.lines += [
            "  %next_task = add nsw i64 %task, 1",
            "  %more_tasks = icmp slt i64 %next_task, %hi",
            "  br i1 %more_tasks, label %tasks, label %done",
        ]
        writer.start_block("done")


class LaneFrame(Frame):
    """A function that is one lane of one group."""

    def head(self, name: str) -> str:
        buffer = f"{self.dialect.buffer} {self.dialect.promise}"
        given = [
            *(f"{buffer} %buffer{i}" for i in range(len(params(self.program)))),
            *(f"i64 %value{i}" for i in range(len(variables(self.program)))),
            *(f"{self.dialect.tensor} %tensor{i}" for i in range(len(tensors(self.program)))),
        ]
        return self.dialect.head.format(name=name, arguments=", ".join(given))

    def attributes(self) -> str:
        sizes = special_sizes(self.program)
        lanes = prod(size for name, size in sizes.items() if name.startswith("lid"))
        return self.dialect.attributes.format(lanes=lanes)

    def begin(self) -> None:
        writer = self.writer
        for number, node in enumerate(params(self.program)):
            writer.names[node] = f"%buffer{number}"
            writer.spaces[node] = self.dialect.buffer
        for number, node in enumerate(variables(self.program)):
            name_variable(writer, node, f"%value{number}")
        for number, node in enumerate(tensors(self.program)):
            writer.names[node] = f"%tensor{number}"
        layout, total = local_layout(self.program)
        lent, space = total > self.dialect.static_local, self.dialect.local.partition(" ")[2]
        if lent:
            line = f"@lent = external {space} global [0 x i8], align 1024"
            self.constants.add(line)
        for number, (node, offset) in enumerate(layout.items()):
            writer.spaces[node] = self.dialect.local
            if lent:
                text = f"getelementptr i8, {self.dialect.local} @lent, i64 {offset}"
                writer.names[node] = writer.emit(text)
                continue
            kind = f"[{node.arg[1]} x {writer.memory_type(node.dtype)}]"
            name = writer.names[node] = f"@local{number}"
            where = f"{space} global {kind} poison, align {local_alignment(node)}"
            self.constants.add(f"{name} = internal {where}")

    def special(self, node: UOp) -> None:
        """The hardware's number, which has 32 bits and is below its size."""
        name, size = node.arg
        call = self.writer.call(self.dialect.specials[name], "i32", types="")
        value = self.writer.emit(call.replace("call i32", f"call range(i32 0, {size}) i32"))
        if self.writer.types[dtypes.index] != "i32":
            value = self.writer.emit(f"zext nneg i32 {value} to i64")
        self.writer.names[node] = value


def name_variable(writer: Writer, node: UOp, value: str) -> None:
    """An argument of 64 bits, converted to the variable's type."""
    kind = writer.type(node.dtype)
    writer.names[node] = value if kind == "i64" else writer.emit(f"trunc i64 {value} to {kind}")


def choose(writer: Writer, node: UOp) -> None:
    """One of a few, by comparisons."""
    number, *choices = node.src
    is_pointer = choices[0].op is Ops.PARAM
    if is_pointer and choices[0] in writer.spaces:
        writer.spaces[node] = writer.spaces[choices[0]]
    texts = [writer.pointer(c) if is_pointer else writer.typed(c) for c in choices]
    kind = texts[0].rsplit(" ", 1)[0]

    def chosen(middle: int, low: str, high: str) -> str:
        below = writer.emit(f"icmp slt {writer.typed(number)}, {middle}")
        return f"{kind} " + writer.emit(f"select i1 {below}, {low}, {high}")

    writer.names[node] = halved(texts, chosen).rsplit(" ", 1)[1]
