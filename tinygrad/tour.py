"""`python -m tinygrad.tour`: one expression on its way from Python to machine code, every stage.

The numbers of a machine decide what its code looks like. So that this page is the same wherever it
is printed, its code is for an example machine, an x86 core with 32-byte vectors; `--here` takes the
machine at hand instead. The result is computed on the machine at hand in either case.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence

from tinygrad.backends.cpu.features import DTYPES, STORAGE_DTYPES
from tinygrad.backends.cpu.target import host_target
from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.backends.llvm_ir import LLVMRenderer
from tinygrad.base.settings import Context
from tinygrad.base.target import ORDINARY, Target
from tinygrad.codegen.pipeline import Lowered, lower
from tinygrad.command import run_command
from tinygrad.engine.show import c_view, listing, plain_assembly
from tinygrad.engine.structure import Structure, structure_of
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.recipe import to_text
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Plan
from tinygrad.tensor.tensor import Tensor
from tinygrad.uop.node import UOp
from tinygrad.viz.explain import plan_text

EXAMPLE = Target(
    device="CPU",
    triple="x86_64-unknown-linux-gnu",
    cpu="haswell",
    features="+avx2,+fma",
    vector=32,
    registers=16,
    dtypes=DTYPES,
    storage_dtypes=STORAGE_DTYPES,
    native=ORDINARY | {"MULACC", "TRUNC", "RECIP", "PREFETCH"},
)

ASSEMBLY_LINES = 40
IR_LINES = 60

Section = tuple[str, str, str]
"""A heading, two or three sentences, and what is printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tour."""
    parser = argparse.ArgumentParser(prog="python -m tinygrad.tour", description="The whole way.")
    parser.add_argument("--here", action="store_true", help="show the code of this machine")
    target = host_target() if parser.parse_args(arguments).here else EXAMPLE
    with Context(TRACEMETA=0, DEBUG=0, NOOPT=0):
        sections = list(tour(target))
    for number, (heading, prose, shown) in enumerate(sections, 1):
        title = f"{number}. {heading}"
        print(f"{title}\n{'-' * len(title)}\n{textwrap.fill(prose, 100)}\n")
        print(textwrap.indent(shown.rstrip(), "    ") + "\n")
    return 0


def tour(target: Target) -> Iterator[Section]:
    """All stages of (a @ b).relu().sum() and of its gradient."""
    a = Tensor([[float(i - k) for k in range(4)] for i in range(8)], "CPU", requires_grad=True)
    b = Tensor([[float((k + j) % 5 - 2) for j in range(16)] for k in range(4)], "CPU")
    a.realize(b)
    result = (a @ b).relu().sum()
    (derivative,) = result.gradient(a)
    yield (
        "The program",
        "This is the whole of it. `a` has 8 rows of 4 numbers and `b` 4 rows of 16. Nothing is "
        "computed when it runs: the last two names stand for expressions.",
        "result = (a @ b).relu().sum()\n(derivative,) = result.gradient(a)",
    )
    yield from forward(result, target)
    yield from backward(result, derivative, target)


def forward(result: Tensor, target: Target) -> Iterator[Section]:
    """The stages of an expression, in order."""
    yield (
        "The tensor's graph",
        "A tensor is a node, and a node is an operation with its sources. The product is a "
        "broadcast multiplication and a sum over the axis that the two share; RESHAPE, PERMUTE "
        "and EXPAND move nothing, they say which element is meant. DETACH says that gradients by "
        "`a` end there, whatever `a` lies in. Equal nodes are one object; where one is used again "
        "it is named, x0.",
        str(result.uop),
    )
    structure = structure_of([result.uop])
    yield (
        "Its structure",
        "What the engine remembers is not about these two tensors. Buffers become numbered "
        "parameters, so the next batch of a training loop has the same structure, and a plan "
        "that was made once, in this process or in one before, is taken from the cache.",
        _structure_text(structure),
    )
    made = plan(structure.sink)
    yield (
        "The plan",
        "The scheduler decides which values are stored. Here none is but the result: product, "
        "relu and sum become one kernel, which reads its two inputs once and writes one number. "
        "`tinygrad.explain(result)` prints this before anything runs.",
        plan_text(made, target),
    )
    kernel = _kernels(made)[0]
    yield (
        "The kernel before its loops are arranged",
        "Axes are loops now (RANGE) and every movement has become arithmetic on their counters. "
        "A REDUCE closes the loops that it sums over, and the STORE those of the output. This "
        "says what is computed; nothing yet says in which order.",
        str(kernel),
    )
    scheduled, recipe = schedule(kernel, target)
    yield (
        "The recipe",
        "How to compute it is a list of steps, found by arithmetic on the machine's description: "
        "vector width, registers, caches. Each step changes loops and never what the kernel "
        "means. It is plain data, so it can be printed, stored and replayed.",
        to_text(recipe) or "(none)",
    )
    yield (
        "The kernel with its recipe",
        "The same graph with the loops split and given roles: VECTOR loops become vector "
        "instructions, UNROLL loops become copies, PARALLEL loops are shared by threads.",
        str(scheduled),
    )
    lowered = lower(scheduled, target)
    yield (
        "The loop nest",
        "A value lives inside the loops that it depends on; the recipe ordered the loops. What "
        "follows from the two is this tree, which says when each thing happens: `take` adds a "
        "turn's value to the accumulators of the sum around it, `store` writes the result. `k2 = "
        "0` is a turn that stands there by itself, since it is the only one. SPREAD loops have an "
        "accumulator for each turn, which are added up at the end.",
        _nests(lowered),
    )
    phase = lowered.phases[-1]
    source = LLVMRenderer(target).render(phase.name, phase.program)
    yield (
        "The linear program",
        "A list of instructions in order of execution, each with its type; floatx8 is eight "
        "floats side by side. Vectors and unrolled copies are explicit from here on. A CARRY is "
        "a value that goes around its loop. The interpreter runs this list in plain Python, and "
        "is the judge of every other backend.",
        listing(phase.program),
    )
    yield (
        "The same as C",
        "A view for people, which `DEBUG=4` shows. Other devices have languages like this one, "
        "and the same renderer writes them.",
        c_view(phase) or source,
    )
    yield (
        "The same as LLVM IR",
        "This is what the CPU compiles. LLVM chooses instructions and registers and nothing "
        "else: everything that is called an optimisation has already happened.",
        _first_lines(source.strip(), IR_LINES),
    )
    yield (
        "Machine code",
        "The object code goes to the cache on the disk. The next process that wants the same "
        "kernel loads it, and loads no compiler.",
        _first_lines(plain_assembly(LLVMCompiler(target).assembly(source)), ASSEMBLY_LINES),
    )
    yield (
        "The result",
        "One native call runs all kernels of a plan. The inputs are whole numbers, so every "
        "machine gives exactly this.",
        f"result.numpy() = {result.numpy()}",
    )


def backward(result: Tensor, derivative: Tensor, target: Target) -> Iterator[Section]:
    """The gradient is a graph like any other: the same stages, the short way."""
    yield (
        "The gradient's graph",
        "Derivatives come from a table with a row for each operation, applied from the result "
        "to the inputs. What comes out is more graph; it uses the nodes of the forward pass "
        "where it needs their values.",
        str(derivative.uop),
    )
    made = plan(structure_of([derivative.uop]).sink)
    yield (
        "The gradient's plan",
        "The derivative needs to know where the product was positive, and then a product with "
        "the other matrix. The scheduler again decides what is worth storing between the two.",
        plan_text(made, target),
    )
    views = []
    for kernel in _kernels(made):
        lowered = lower(schedule(kernel, target)[0], target)
        views.append(f"{lowered.name}\n{_nests(lowered)}")
    yield (
        "The gradient's loops",
        "The loop nest of each of its kernels. The second one stages its matrix: `fill` lays it "
        "out in an array, pb1, in the order in which the sum reads it.",
        "\n\n".join(views),
    )
    yield (
        "The gradient",
        "Its first row. It has derivatives of its own, because it is a tensor.",
        f"derivative.numpy()[0] = {derivative.numpy()[0].tolist()}",
    )


# ---- texts ---------------------------------------------------------------------------------------


def _structure_text(structure: Structure) -> str:
    params = "\n".join(
        f"parameter {i}: {node.arg} {node.dtype.name} of this process, unique "
        f"number {node.src[0].arg}"
        for i, node in enumerate(structure.params)
    )
    return f"{structure.sink}\n\nkey {structure.sink.key.hex()[:16]}\n{params}"


def _kernels(made: Plan) -> list[UOp]:
    return [step.ast for step in made.steps if step.ast is not None]


def _nests(lowered: Lowered) -> str:
    return "\n".join(phase.nest for phase in lowered.phases)


def _first_lines(text: str, most: int) -> str:
    lines = text.splitlines()
    rest = len(lines) - most
    return text if rest <= 0 else "\n".join([*lines[:most], f"... and {rest} lines more"])


if __name__ == "__main__":
    sys.exit(run_command(main))
